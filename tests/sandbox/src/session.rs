//! One connection: current database, variables, identity.

use std::sync::Arc;

use datafusion::physical_plan::stream::RecordBatchStreamAdapter;

use crate::deep_stack::DeepStack;
use crate::engine::{Engine, Protocol, StatementResult};
use crate::error::SqlError;
use crate::sql::{Statement, Variables};
use crate::types::SessionZone;

/// A session. Statements of one session run one after another; sessions run in parallel.
#[derive(Debug)]
pub struct Session {
    pub(crate) engine: Arc<Engine>,
    pub(crate) id: u64,
    pub(crate) user: String,
    pub(crate) client_ip: String,
    protocol: Protocol,
    pub(crate) database: Option<String>,
    pub(crate) variables: Variables,
    pub(crate) last_insert: Option<LastInsert>,
    follower: bool,
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
}

impl Session {
    pub(crate) fn new(engine: Arc<Engine>, id: u64, user: &str, client_ip: &str, protocol: Protocol) -> Self {
        let variables = Variables::new(engine.config());
        Self {
            engine,
            id,
            user: user.to_owned(),
            client_ip: client_ip.to_owned(),
            protocol,
            database: None,
            variables,
            last_insert: None,
            follower: false,
        }
    }

    /// Says that the session is on a follower, which asks the master for what only that knows.
    pub fn set_follower(&mut self, follower: bool) {
        self.follower = follower;
    }

    /// Whether the session is on a follower.
    pub fn is_follower(&self) -> bool {
        self.follower
    }

    /// Connection id, as CONNECTION_ID() gives it.
    pub fn id(&self) -> u64 {
        self.id
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
    /// 1049.
    pub fn use_database(&mut self, db: &str) -> Result<(), SqlError> {
        if !self.engine.catalog.has_database(db) {
            return Err(SqlError::unknown_database(db));
        }
        self.database = Some(db.to_owned());
        Ok(())
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
        crate::sql::split(sql, self.variables.backslash_escapes())
    }

    /// Runs one statement of `sql`.
    ///
    /// Planning and running recurse into nested expressions, so both get a deep stack.
    pub(crate) async fn run(&mut self, sql: &str, statement: &Statement) -> Result<StatementResult, SqlError> {
        statement.check_size()?;
        let result = DeepStack::new(Box::pin(crate::sql::run(self, sql, statement))).await?;
        Ok(match result {
            StatementResult::Rows { schema, stream, origin, types } => {
                let deep = RecordBatchStreamAdapter::new(Arc::clone(&schema), DeepStack::new(stream));
                StatementResult::Rows { schema, stream: Box::pin(deep), origin, types }
            }
            done @ StatementResult::Done { .. } => done,
        })
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
            results.push(StatementResult::Done { affected: 0, info: String::new() });
        }
        Ok(results)
    }
}
