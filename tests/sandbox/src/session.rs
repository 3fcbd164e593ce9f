//! One connection: current database, variables, identity.

use std::sync::Arc;

use crate::engine::{Engine, Protocol, StatementResult};
use crate::error::SqlError;
use crate::sql::Variables;
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
        }
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

    /// Runs the statements of a text in order and stops at the first error.
    ///
    /// # Errors
    /// The error of the statement that failed; those before it have taken effect.
    pub async fn execute(&mut self, sql: &str) -> Result<Vec<StatementResult>, SqlError> {
        let statements = crate::sql::split(sql, self.variables.backslash_escapes())?;
        let mut results = Vec::with_capacity(statements.len());
        for statement in &statements {
            results.push(crate::sql::run(self, sql, statement).await?);
        }
        if results.is_empty() {
            results.push(StatementResult::Done { affected: 0, info: String::new() });
        }
        Ok(results)
    }
}
