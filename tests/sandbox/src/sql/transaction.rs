//! `BEGIN`, `INSERT` several times, `COMMIT` or `ROLLBACK`: several INSERTs of one connection in one load transaction.

use datafusion::sql::sqlparser::tokenizer::Token;

use super::cursor::Cursor;
use super::insert::{publish, report};
use crate::engine::StatementResult;
use crate::error::SqlError;
use crate::session::Session;
use crate::txn::LoadTxn;

/// What stands open between BEGIN and its end.
#[derive(Debug)]
pub(crate) struct Transaction {
    /// Label of the load, made up when BEGIN names none.
    pub(super) label: String,
    /// The load, from the first INSERT on.
    pub(super) open: Option<OpenLoad>,
}

/// The load that the INSERTs of a transaction fill.
#[derive(Debug)]
pub(super) struct OpenLoad {
    pub(super) txn: LoadTxn,
    pub(super) db: String,
    pub(super) table: String,
    pub(super) columns: Option<Vec<String>>,
}

impl OpenLoad {
    /// Whether another INSERT fits into the load.
    ///
    /// # Errors
    /// It is for another table, or for other columns.
    pub(super) fn check(&self, db: &str, table: &str, columns: Option<&[String]>) -> Result<(), SqlError> {
        if self.db != db || self.table != table {
            return Err(SqlError::detail("Only one table can be inserted in one transaction."));
        }
        if self.columns.as_deref() != columns {
            return Err(SqlError::not_served("INSERTs with different column lists in one transaction"));
        }
        Ok(())
    }
}

fn told(label: &str, status: &str, txn_id: &str) -> StatementResult {
    told_rows(label, status, txn_id, 0)
}

/// The OK of a statement inside a transaction.
pub(super) fn told_rows(label: &str, status: &str, txn_id: &str, affected: u64) -> StatementResult {
    let info = format!("{{'label':'{label}', 'status':'{status}', 'txnId':'{txn_id}'}}");
    StatementResult::Done { affected, info, warnings: 0 }
}

/// Refuses what may not stand between BEGIN and its end.
pub(super) fn check(session: &Session, first_word: &str) -> Result<(), SqlError> {
    let fits = matches!(first_word, "INSERT" | "COMMIT" | "ROLLBACK" | "BEGIN" | "START");
    match session.transaction.is_some() && !fits {
        true => Err(SqlError::detail("This is in a transaction, only insert, commit, rollback is acceptable.")),
        false => Ok(()),
    }
}

/// `BEGIN [WORK] [WITH LABEL l]`, `START TRANSACTION`, after the first word.
pub(super) fn begin(session: &mut Session, cursor: &mut Cursor<'_>) -> Result<StatementResult, SqlError> {
    if session.transaction.is_some() {
        return Err(SqlError::detail("A transaction has already begin"));
    }
    cursor.eat("WORK");
    cursor.eat("TRANSACTION");
    let mut label = None;
    if cursor.eat_all(&["WITH", "LABEL"]) {
        label = Some(match cursor.peek() {
            Some(Token::SingleQuotedString(_)) => cursor.string()?,
            _ => cursor.ident()?,
        });
    }
    cursor.expect_end()?;
    let label = label.unwrap_or_else(|| format!("txn_insert_{}", crate::random::query_id()));
    session.transaction = Some(Transaction { label: label.clone(), open: None });
    Ok(told(&label, "PREPARE", ""))
}

/// `COMMIT [WORK]`, after the word. Drivers end transactions that nobody began: that is no error.
pub(super) async fn commit(session: &mut Session, cursor: &mut Cursor<'_>) -> Result<StatementResult, SqlError> {
    cursor.eat("WORK");
    cursor.expect_end()?;
    let Some(Transaction { label, open }) = session.transaction.take() else { return Ok(super::ddl::done()) };
    let Some(open) = open else { return Ok(told(&label, "VISIBLE", "")) };
    let engine = std::sync::Arc::clone(&session.engine);
    let outcome = publish(&engine, session.commits.clone(), open.txn).await?;
    match report(session, outcome, &open.db, &open.table) {
        // The rows were counted by the INSERTs.
        StatementResult::Done { info, .. } => Ok(StatementResult::Done { affected: 0, info, warnings: 0 }),
        rows => Ok(rows),
    }
}

/// `ROLLBACK [WORK]`, after the word.
pub(super) fn rollback(session: &mut Session, cursor: &mut Cursor<'_>) -> Result<StatementResult, SqlError> {
    cursor.eat("WORK");
    cursor.expect_end()?;
    let Some(Transaction { label, open }) = session.transaction.take() else { return Ok(super::ddl::done()) };
    let Some(open) = open else { return Ok(told(&label, "ABORTED", "")) };
    let txn_id = open.txn.txn_id().to_string();
    session.engine.abort_load(open.txn, "user rollback");
    Ok(told(&label, "ABORTED", &txn_id))
}
