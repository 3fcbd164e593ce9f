//! One connection: current database, variables, identity.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::sql::sqlparser::tokenizer::Token;
use tokio::time::Instant;

use crate::deep_stack::DeepStack;
use crate::engine::{Engine, Protocol, StatementResult};
use crate::error::SqlError;
use crate::faults::CommitFaults;
use crate::processes::{Listed, Watch};
use crate::sql::{Statement, Transaction, Variables};
use crate::types::{DorisType, SessionZone};

/// A session. Statements of one session run one after another; sessions run in parallel.
#[derive(Debug)]
pub struct Session {
    pub(crate) engine: Arc<Engine>,
    pub(crate) id: u64,
    pub(crate) user: String,
    pub(crate) client_ip: String,
    /// Number of the FE that the client is connected to.
    pub(crate) frontend: usize,
    protocol: Protocol,
    pub(crate) database: Option<String>,
    pub(crate) variables: Variables,
    pub(crate) last_insert: Option<LastInsert>,
    /// Literals of `@name`, by name in lower case.
    pub(crate) user_variables: BTreeMap<String, Vec<Token>>,
    /// The transaction that BEGIN opened.
    pub(crate) transaction: Option<Transaction>,
    pub(crate) listed: Listed,
    /// Faults that wait for the commits of the request that runs.
    pub(crate) commits: Option<Arc<CommitFaults>>,
}

/// What SHOW LAST INSERT tells.
#[derive(Debug, Clone)]
pub(crate) struct LastInsert {
    pub(crate) txn_id: i64,
    pub(crate) label: String,
    pub(crate) db: String,
    pub(crate) table: String,
    pub(crate) status: &'static str,
    pub(crate) rows: u64,
    pub(crate) filtered: u64,
}

impl Session {
    pub(crate) fn new(engine: Arc<Engine>, id: u64, user: &str, client_ip: &str, protocol: Protocol) -> Self {
        let variables = Variables::new(engine.config(), &engine.globals.read());
        let now = engine.config().clock.now_ms();
        let listed = engine.processes.open(id, user, client_ip, now);
        Self {
            engine,
            id,
            user: user.to_owned(),
            client_ip: client_ip.to_owned(),
            frontend: 0,
            protocol,
            database: None,
            variables,
            last_insert: None,
            user_variables: BTreeMap::new(),
            transaction: None,
            listed,
            commits: None,
        }
    }

    /// Whether the session is on a follower, which asks the master for what only that knows.
    pub fn is_follower(&self) -> bool {
        self.frontend != self.engine.master()
    }

    /// Connection id, as CONNECTION_ID() gives it.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Says which FE the client is connected to.
    pub(crate) fn set_frontend(&mut self, frontend: usize) {
        self.frontend = frontend;
    }

    /// User of the session.
    pub fn user(&self) -> &str {
        &self.user
    }

    /// Address of the client.
    pub fn client_ip(&self) -> &str {
        &self.client_ip
    }

    /// Protocol it was opened by.
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// Current database.
    pub fn database(&self) -> Option<&str> {
        self.database.as_deref()
    }

    /// Makes a database current.
    ///
    /// # Errors
    /// 1049, or 1044 when nothing in it is open to the user.
    pub fn use_database(&mut self, db: &str) -> Result<(), SqlError> {
        if !self.engine.catalog.has_database(db) {
            return Err(SqlError::unknown_database(db));
        }
        crate::sql::check_use(self, db)?;
        self.database = Some(db.to_owned());
        Ok(())
    }

    /// Puts everything but the database back to what it was when the session was opened.
    pub fn reset(&mut self) {
        self.variables = Variables::new(self.engine.config(), &self.engine.globals.read());
        self.user_variables.clear();
        self.last_insert = None;
        // Its load is aborted.
        self.transaction = None;
    }

    /// Value of a session variable; `None` when there is no such variable.
    pub fn variable(&self, name: &str) -> Option<String> {
        self.variables.get(name).map(str::to_owned)
    }

    /// The session's `time_zone`.
    pub fn zone(&self) -> SessionZone {
        self.variables.zone()
    }

    /// The statements of a text, none of them run yet.
    pub(crate) fn split(&self, sql: &str) -> Result<Vec<Statement>, SqlError> {
        let mut statements = crate::sql::split(sql, self.variables.backslash_escapes())?;
        if self.variables.pipes_concat() {
            statements.iter_mut().for_each(|statement| statement.concat_pipes(sql));
        }
        Ok(statements)
    }

    /// Runs one statement of `sql`.
    ///
    /// Planning and running recurse into nested expressions, so both get a deep stack.
    pub(crate) async fn run(&mut self, sql: &str, statement: &Statement) -> Result<StatementResult, SqlError> {
        statement.check_size()?;
        let text = crate::sql::masked(sql, statement);
        let (deadline, late) = self.deadline(statement);
        let place = (text.as_str(), self.database.as_deref(), self.engine.config().clock.now_ms());
        let watch = Watch::new(&self.listed.process, place, deadline, late);
        let result = watch
            .run(statement.returns_rows(), DeepStack::new(Box::pin(crate::sql::run(self, sql, statement))))
            .await?;
        Ok(match result {
            StatementResult::Rows { schema, stream, origin, types } => {
                let deep = RecordBatchStreamAdapter::new(Arc::clone(&schema), DeepStack::new(stream));
                let watched = RecordBatchStreamAdapter::new(Arc::clone(&schema), watch.stream(Box::pin(deep)));
                StatementResult::Rows { schema, stream: Box::pin(watched), origin, types }
            }
            done @ StatementResult::Done { .. } => done,
        })
    }

    /// Names and types of the columns of one query, planned and not run; empty for other statements.
    pub(crate) async fn describe(&self, sql: &str) -> Result<Vec<(String, DorisType)>, SqlError> {
        let statements = self.split(sql)?;
        let [statement] = statements.as_slice() else { return Ok(Vec::new()) };
        statement.check_size()?;
        DeepStack::new(Box::pin(crate::sql::describe(self, sql, statement))).await
    }

    /// When a statement has to be over, and what is said then: `query_timeout` for reads, `insert_timeout` for writes.
    fn deadline(&self, statement: &Statement) -> (Option<Instant>, fn() -> SqlError) {
        let seconds = |name: &str| Duration::from_secs(self.variables.number(name).unwrap_or(u64::from(u32::MAX)));
        let (limit, late): (_, fn() -> SqlError) = match statement.first_word().as_deref() {
            Some("SELECT" | "WITH" | "VALUES") => {
                (seconds("query_timeout"), || SqlError::detail("query is timeout, killed by timeout checker"))
            }
            Some("INSERT" | "UPDATE" | "DELETE") => {
                (seconds("insert_timeout"), || SqlError::coded(5024, "Execute timeout"))
            }
            _ => return (None, || SqlError::detail("query is timeout, killed by timeout checker")),
        };
        (Instant::now().checked_add(limit), late)
    }

    /// Runs the statements of a text in order and stops at the first error.
    ///
    /// # Errors
    /// The error of the statement that failed; those before it have taken effect.
    pub async fn execute(&mut self, sql: &str) -> Result<Vec<StatementResult>, SqlError> {
        let statements = self.split(sql)?;
        let mut results = Vec::with_capacity(statements.len());
        for statement in &statements {
            results.push(self.run(sql, statement).await?);
        }
        if results.is_empty() {
            results.push(StatementResult::Done { affected: 0, info: String::new(), warnings: 0 });
        }
        Ok(results)
    }
}
