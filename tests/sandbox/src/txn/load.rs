//! Loads: begin, write, finish, abort.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use arrow::array::RecordBatch;

use super::manager::NewTxn;
use super::publish::{Refused, publish};
use super::{RefusedRow, TxnState, TxnView, UpdateMode};
use crate::engine::{Engine, LoadOutcome, LoadSpec, MergeType};
use crate::error::LoadError;
use crate::storage::{Aggregation, DELETE_SIGN, KeysType, LoadBuffer, Partial, SEQUENCE_COL, Table, WritePlan};

/// An open load. Dropping it without [`Engine::finish_load`] or [`Engine::abort_load`] aborts its transaction.
pub struct LoadTxn {
    engine: Weak<Engine>,
    id: i64,
    label: String,
    db: String,
    table: Arc<Table>,
    buffer: Arc<LoadBuffer>,
    plan: WritePlan,
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

/// What the spec leaves out, when it is a partial update.
fn partial(table: &Table, spec: &LoadSpec) -> Result<Option<Partial>, LoadError> {
    if spec.update_mode == UpdateMode::Upsert {
        return Ok(None);
    }
    if !table.spec().is_mow() {
        return Err(LoadError::frontend("Only unique key merge on write support partial update"));
    }
    let flexible = spec.update_mode == UpdateMode::FlexibleColumns;
    let enabled = table.spec().properties.get("enable_unique_key_skip_bitmap_column").is_some_and(|v| v == "true");
    if flexible && !enabled {
        let name = table.name();
        return Err(LoadError::frontend(format!(
            "Flexible partial update can only support table with skip bitmap hidden column. But table {name} doesn't have it. You can use `ALTER TABLE {name} ENABLE FEATURE \"UPDATE_FLEXIBLE_COLUMNS\";` to add it to the table."
        )));
    }
    let listed = |name: &str| {
        spec.columns.as_ref().is_none_or(|list| list.iter().any(|column| column.eq_ignore_ascii_case(name)))
    };
    let columns = table.columns();
    let mut absent: Vec<usize> = (0..columns.len()).filter(|i| !listed(&columns[*i].name)).collect();
    if let Some(sequence) = &table.spec().sequence {
        let carried = spec.columns.is_some() && listed(SEQUENCE_COL);
        let mapped = sequence.column.as_deref().is_some_and(listed);
        if !carried && !mapped && spec.sequence_column.is_none() {
            absent.push(columns.len());
        }
    }
    if absent.is_empty() && !flexible {
        return Ok(None);
    }
    Ok(Some(Partial { flexible, absent, new_key: spec.new_key }))
}

/// Whether the rows bring what the sequence of the table needs.
fn check_sequence(table: &Table, spec: &LoadSpec) -> Result<(), LoadError> {
    let listed = |name: &str| {
        spec.columns.as_ref().is_some_and(|list| list.iter().any(|column| column.eq_ignore_ascii_case(name)))
    };
    let Some(sequence) = &table.spec().sequence else {
        if spec.sequence_column.is_some() {
            return Err(LoadError::frontend(format!("There is no sequence column in the table {}", table.name())));
        }
        return Ok(());
    };
    let given = spec.sequence_column.is_some() || listed(SEQUENCE_COL);
    let mapped = sequence.column.as_deref().is_some_and(|column| {
        spec.columns.is_none() || listed(column) || table.column(column).is_some_and(|c| c.default.is_value())
    });
    if given || mapped || spec.update_mode != UpdateMode::Upsert {
        return Ok(());
    }
    Err(LoadError::frontend(format!("Table {} has sequence column, need to specify the sequence column", table.name())))
}

pub(crate) fn begin(engine: &Arc<Engine>, spec: LoadSpec) -> Result<LoadTxn, LoadError> {
    let db_id = engine
        .catalog
        .database_id(&spec.db)
        .map_err(|_| LoadError::frontend(format!("unknown database, database={}", spec.db)))?;
    let table = engine
        .table_handle(&spec.db, &spec.table)
        .map_err(|_| LoadError::frontend(format!("unknown table, tables=[{}]", spec.table)))?;
    if let Some(label) = &spec.label {
        check_label(label)?;
    }
    if spec.merge_type != MergeType::Append && table.keys_type() != KeysType::Unique {
        return Err(LoadError::frontend("Batch delete only supported in unique tables."));
    }
    let partial = partial(&table, &spec)?;
    check_sequence(&table, &spec)?;
    if let Some(columns) = &spec.columns {
        table.check_columns(Some(columns), partial.is_some()).map_err(|e| LoadError::frontend(e.text()))?;
        let signed = columns.iter().any(|c| c.eq_ignore_ascii_case(DELETE_SIGN));
        if spec.merge_type == MergeType::Merge && !signed {
            return Err(LoadError::frontend(format!("merge load without column {DELETE_SIGN}")));
        }
    }
    if spec.negative
        && let Some(column) = table.columns().iter().find(|c| !c.key && c.aggregation != Some(Aggregation::Sum))
    {
        return Err(LoadError::frontend(format!("Column is not SUM AggregateType. column:{}", column.name)));
    }
    if let Some(names) = &spec.partitions
        && let Some(unknown) = names.iter().find(|name| table.partition_ids(std::slice::from_ref(name)).is_err())
    {
        return Err(LoadError::frontend(format!("Unknown partition '{unknown}' in table '{}'", table.name())));
    }
    let buffer =
        table.buffer(spec.partitions.as_deref(), partial, spec.overwrite).map_err(|e| LoadError::frontend(e.text()))?;
    let buffer = Arc::new(buffer);
    let label = spec.label.unwrap_or_else(|| made_label(engine.config().clock.now_ms()));
    let id = engine.txns.begin(NewTxn {
        db: &spec.db,
        db_id,
        label: &label,
        table: Arc::clone(&table),
        buffer: Arc::clone(&buffer),
        timeout_ms: spec.timeout.as_millis().min(i64::MAX as u128) as i64,
        source: spec.source,
        group: spec.group,
    })?;
    Ok(LoadTxn {
        engine: Arc::downgrade(engine),
        id,
        label,
        db: spec.db,
        table,
        buffer,
        plan: WritePlan {
            delete: spec.merge_type == MergeType::Delete,
            sequence_column: spec.sequence_column,
            negative: spec.negative,
        },
        open: true,
    })
}

pub(crate) fn write(engine: &Engine, txn: &LoadTxn, batch: RecordBatch) -> Result<Vec<RefusedRow>, LoadError> {
    write_into(engine, txn, &txn.buffer, batch)
}

/// Writes all of several batches, or nothing; refused rows with the number of their batch.
pub(crate) fn write_together(
    engine: &Engine,
    txn: &LoadTxn,
    batches: impl IntoIterator<Item = RecordBatch>,
) -> Result<Vec<(usize, RefusedRow)>, LoadError> {
    let buffer = txn.buffer.sibling();
    let mut refused = Vec::new();
    for (i, batch) in batches.into_iter().enumerate() {
        refused.extend(write_into(engine, txn, &buffer, batch)?.into_iter().map(|row| (i, row)));
    }
    txn.buffer.absorb(buffer);
    Ok(refused)
}

fn write_into(
    engine: &Engine,
    txn: &LoadTxn,
    buffer: &LoadBuffer,
    batch: RecordBatch,
) -> Result<Vec<RefusedRow>, LoadError> {
    let config = engine.config();
    let quality = |error: crate::error::SqlError| LoadError::backend("DATA_QUALITY_ERROR", error.text());
    let limit = config.max_tablet_version_num;
    if let Some((tablet, versions)) = txn.table.crowded_tablet(limit) {
        return Err(LoadError::backend(
            "E-235",
            format!(
                "failed to init rowset builder. version count: {versions}, exceed limit: {limit}, tablet: {tablet}. Please reduce the frequency of loading data or adjust the max_tablet_version_num in be.conf to a larger value."
            ),
        ));
    }
    let (now_ms, string_limit) = (config.clock.now_ms(), config.string_limit_bytes);
    let whole = txn.table.complete(buffer, &batch, &txn.plan, now_ms, string_limit).map_err(quality)?;
    txn.table.check_new_keys(buffer, &whole).map_err(quality)?;
    buffer.push(whole).map_err(quality)
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

/// Why a transaction that ended without its load cannot go on.
pub(crate) fn ended(engine: &Engine, id: i64) -> Option<LoadError> {
    engine.txns.view(id).filter(|view| !view.state.is_running()).map(|view| not_running(&view))
}

pub(crate) fn finish(
    engine: &Arc<Engine>,
    mut txn: LoadTxn,
    two_phase: bool,
    hold: &dyn Fn(i64) -> bool,
) -> Result<LoadOutcome, LoadError> {
    txn.open = false;
    let (rows, refused) = (txn.buffer.rows(), txn.buffer.refused());
    let label = txn.label.clone();
    if two_phase {
        engine.txns.precommit(txn.id).map_err(|view| not_running(&view))?;
        return Ok(LoadOutcome { txn_id: txn.id, label, state: TxnState::PreCommitted, rows, refused });
    }
    let state = publish(engine, txn.id, TxnState::Prepare, hold).map_err(|why| match why {
        Refused::State(view) => not_running(&view),
        Refused::Apply(error) | Refused::Schema(error) => LoadError::frontend(error.text()),
    })?;
    Ok(LoadOutcome { txn_id: txn.id, label, state, rows, refused })
}

/// Leaves a load as it is: its transaction runs until its timeout, or until somebody else ends it.
pub(crate) fn leave(mut txn: LoadTxn) {
    txn.open = false;
}

pub(crate) fn abort_load(engine: &Engine, mut txn: LoadTxn, reason: &str) {
    txn.open = false;
    // A transaction that ended meanwhile stays as it is.
    let _ = engine.txns.abort(txn.id, reason);
}
