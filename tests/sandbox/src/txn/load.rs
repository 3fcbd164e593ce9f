//! Loads: begin, write, finish, abort.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use arrow::array::RecordBatch;

use super::manager::NewTxn;
use super::{RefusedRow, TxnState, TxnView};
use crate::engine::{Engine, LoadOutcome, LoadSpec, MergeType};
use crate::error::LoadError;
use crate::storage::{DELETE_SIGN, KeysType, LoadBuffer, Table};

/// An open load. Dropping it without [`Engine::finish_load`] or [`Engine::abort_load`] aborts its transaction.
pub struct LoadTxn {
    engine: Weak<Engine>,
    id: i64,
    label: String,
    db: String,
    table: Arc<Table>,
    buffer: Arc<LoadBuffer>,
    delete: bool,
    open: bool,
}

impl LoadTxn {
    /// Transaction id.
    pub fn txn_id(&self) -> i64 {
        self.id
    }

    /// Label, given or made.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// Database.
    pub fn database(&self) -> &str {
        &self.db
    }

    /// Rows written so far.
    pub fn rows(&self) -> u64 {
        self.buffer.rows()
    }
}

impl fmt::Debug for LoadTxn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoadTxn").field("id", &self.id).field("label", &self.label).finish_non_exhaustive()
    }
}

impl Drop for LoadTxn {
    fn drop(&mut self) {
        if self.open
            && let Some(engine) = self.engine.upgrade()
        {
            // Not running any more means it ended another way: nothing to undo.
            let _ = engine.txns.abort(self.id, "load cancelled");
        }
    }
}

static LABELS: AtomicU64 = AtomicU64::new(1);

/// A label for a load that brings none, unique in this process and improbable elsewhere.
fn made_label(now_ms: i64) -> String {
    format!("label_{now_ms:x}_{:x}", LABELS.fetch_add(1, Ordering::Relaxed))
}

/// `^[-_A-Za-z0-9:]{1,128}$`
fn check_label(label: &str) -> Result<(), LoadError> {
    let right = (1..=128).contains(&label.len())
        && label.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b':'));
    if right {
        return Ok(());
    }
    Err(LoadError::frontend(format!("Label format error. regex: ^[-_A-Za-z0-9:]{{1,128}}$, label: {label}")))
}

pub(crate) fn begin(engine: &Arc<Engine>, spec: LoadSpec) -> Result<LoadTxn, LoadError> {
    let db_id = engine
        .catalog
        .database_id(&spec.db)
        .map_err(|_| LoadError::frontend(format!("unknown database, database={}", spec.db)))?;
    let table = engine
        .table_handle(&spec.db, &spec.table)
        .map_err(|_| LoadError::frontend(format!("unknown table, tables=[{}]", spec.table)))?;
    let label = match spec.label {
        Some(label) => {
            check_label(&label)?;
            label
        }
        None => made_label(engine.config().clock.now_ms()),
    };
    if spec.merge_type != MergeType::Append && table.keys_type() != KeysType::Unique {
        return Err(LoadError::frontend("Batch delete only supported in unique tables."));
    }
    if let Some(columns) = &spec.columns {
        table.check_columns(Some(columns)).map_err(|e| LoadError::frontend(e.text()))?;
        let signed = columns.iter().any(|c| c.eq_ignore_ascii_case(DELETE_SIGN));
        if spec.merge_type == MergeType::Merge && !signed {
            return Err(LoadError::frontend(format!("merge load without column {DELETE_SIGN}")));
        }
    }
    let buffer = Arc::new(table.buffer());
    let id = engine.txns.begin(NewTxn {
        db: &spec.db,
        db_id,
        label: &label,
        table: Arc::clone(&table),
        buffer: Arc::clone(&buffer),
        timeout_ms: spec.timeout.as_millis().min(i64::MAX as u128) as i64,
        source: spec.source,
    })?;
    Ok(LoadTxn {
        engine: Arc::downgrade(engine),
        id,
        label,
        db: spec.db,
        table,
        buffer,
        delete: spec.merge_type == MergeType::Delete,
        open: true,
    })
}

pub(crate) fn write(engine: &Engine, txn: &LoadTxn, batch: RecordBatch) -> Result<Vec<RefusedRow>, LoadError> {
    let now = engine.config().clock.now_ms();
    let quality = |error: crate::error::SqlError| LoadError::backend("DATA_QUALITY_ERROR", error.text());
    let whole = txn.table.complete(&batch, txn.delete, now).map_err(quality)?;
    txn.buffer.push(whole).map_err(quality)?;
    Ok(Vec::new())
}

/// Why a transaction cannot go on, as the FE tells a load.
fn not_running(view: &TxnView) -> LoadError {
    match view.state {
        TxnState::Aborted => {
            LoadError::frontend(format!("transaction [{}] is already aborted. abort reason: {}", view.id, view.reason))
        }
        TxnState::Unknown => LoadError::frontend(format!("transaction [{}] not found.", view.id)),
        state => LoadError::frontend(format!("transaction [{}] is already {}", view.id, state.name().to_lowercase())),
    }
}

pub(crate) fn finish(engine: &Arc<Engine>, mut txn: LoadTxn, two_phase: bool) -> Result<LoadOutcome, LoadError> {
    txn.open = false;
    let rows = txn.buffer.rows();
    let label = txn.label.clone();
    if two_phase {
        engine.txns.precommit(txn.id).map_err(|view| not_running(&view))?;
        return Ok(LoadOutcome { txn_id: txn.id, label, state: TxnState::PreCommitted, rows });
    }
    publish(engine, txn.id, TxnState::Prepare).map_err(|refused| match refused {
        Refused::State(view) => not_running(&view),
        Refused::Apply(error) => LoadError::frontend(error.text()),
    })?;
    Ok(LoadOutcome { txn_id: txn.id, label, state: TxnState::Visible, rows })
}

/// Why a commit did not happen.
pub(super) enum Refused {
    /// The transaction was not in the state it had to be in.
    State(Box<TxnView>),
    /// The rows could not be applied; the transaction is aborted.
    Apply(crate::error::SqlError),
}

/// COMMITTED, then VISIBLE: one TSO, all rows at once.
pub(super) fn publish(engine: &Engine, id: i64, from: TxnState) -> Result<(), Refused> {
    let _order = engine.commit_lock.lock();
    let (table, buffer) = engine.txns.start_commit(id, from).map_err(Refused::State)?;
    let now = engine.config().clock.now_ms();
    let outcome = table.apply(&buffer, engine.tso.allocate(), now);
    engine.txns.end_commit(id, outcome.as_ref().copied());
    outcome.map_err(Refused::Apply)
}

pub(crate) fn abort_load(engine: &Engine, mut txn: LoadTxn, reason: &str) {
    txn.open = false;
    // A transaction that ended meanwhile stays as it is.
    let _ = engine.txns.abort(txn.id, reason);
}
