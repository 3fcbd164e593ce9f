//! The second phase of two-phase commit, with the texts of the server.

use std::sync::Arc;

use super::manager::STATUS_PREFIX;
use super::publish::{Refused, publish};
use super::{TxnState, TxnView};
use crate::engine::{Engine, LabelState, TxnRef};
use crate::error::SqlError;

fn refused(text: impl std::fmt::Display) -> SqlError {
    SqlError::bare(1105, format!("{STATUS_PREFIX}{text}"))
}

fn unknown_database(db: &str) -> SqlError {
    refused(format!("unknown database, database={db}"))
}

/// Finds the transaction: the id wins; a label names a transaction in one of `states`.
fn resolve(engine: &Engine, db: &str, txn: &TxnRef, states: &[TxnState]) -> Result<TxnView, SqlError> {
    if !engine.catalog.has_database(db) {
        return Err(unknown_database(db));
    }
    if let Some(id) = txn.txn_id {
        return engine.txns.find(db, id).ok_or_else(|| refused(format!("transaction [{id}] not found.")));
    }
    let Some(label) = &txn.label else { return Err(SqlError::bare(1105, "No transaction id or label selected.")) };
    engine
        .txns
        .find_label(db, label)
        .filter(|view| states.contains(&view.state))
        .ok_or_else(|| refused(format!("running transaction not found, label={label}")))
}

/// `label [L] transaction [N] commit successfully.`
fn done(txn: &TxnRef, what: &str) -> String {
    let label = txn.label.as_ref().map(|label| format!("label [{label}] ")).unwrap_or_default();
    let id = txn.txn_id.map(|id| format!("transaction [{id}] ")).unwrap_or_default();
    format!("{label}{id}{what} successfully.")
}

/// The transaction that a second phase names, before its state is looked at.
pub(crate) fn named(engine: &Engine, db: &str, txn: &TxnRef) -> Option<TxnView> {
    match (txn.txn_id, &txn.label) {
        (Some(id), _) => engine.txns.find(db, id),
        (None, Some(label)) => engine.txns.find_label(db, label),
        (None, None) => None,
    }
}

pub(crate) fn commit_two_phase(
    engine: &Arc<Engine>,
    db: &str,
    txn: &TxnRef,
    hold: &dyn Fn(i64) -> bool,
) -> Result<String, SqlError> {
    let view = resolve(engine, db, txn, &[TxnState::PreCommitted])?;
    publish(engine, view.id, TxnState::PreCommitted, hold).map_err(|why| match why {
        Refused::Apply(error) | Refused::Schema(error) => refused(error.text()),
        Refused::State(view) => match view.state {
            TxnState::Aborted => {
                refused(format!("transaction [{}] is already aborted. abort reason: {}", view.id, view.reason))
            }
            TxnState::Prepare => refused(format!("transaction [{}] is prepare, not pre-committed.", view.id)),
            TxnState::Unknown => refused(format!("transaction [{}] not found.", view.id)),
            state => refused(format!(
                "transaction [{}] is already {}, not pre-committed.",
                view.id,
                state.name().to_lowercase()
            )),
        },
    })?;
    Ok(done(txn, "commit"))
}

pub(crate) fn abort_two_phase(engine: &Engine, db: &str, txn: &TxnRef) -> Result<String, SqlError> {
    let view = resolve(engine, db, txn, &[TxnState::PreCommitted, TxnState::Prepare])?;
    if view.group && view.state.is_running() {
        // Its rows are other clients', who were told that they are kept.
        return Err(refused(format!("transaction [{}] is of a group commit, could not abort.", view.id)));
    }
    engine.txns.abort(view.id, "User Abort").map_err(|view| match view.state {
        TxnState::Aborted => {
            refused(format!("transaction [{}] is already aborted, abort reason: {}", view.id, view.reason))
        }
        TxnState::Unknown => refused(format!("transaction [{}] not found.", view.id)),
        state => refused(format!("transaction [{}] is already {state}, could not abort.", view.id)),
    })?;
    Ok(done(txn, "abort"))
}

pub(crate) fn label_state(engine: &Engine, db: &str, label: &str) -> Result<LabelState, SqlError> {
    engine.catalog.database_id(db)?;
    Ok(match engine.txns.find_label(db, label) {
        Some(view) => LabelState { state: view.state, txn_id: Some(view.id), reason: view.reason },
        None => LabelState { state: TxnState::Unknown, txn_id: None, reason: String::new() },
    })
}
