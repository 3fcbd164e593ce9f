//! Loads and transactions of the engine.

use std::sync::Arc;

use arrow::array::RecordBatch;

use super::{Engine, LabelState, LoadOutcome, LoadSpec, RefusedRow, TxnRef};
use crate::error::{LoadError, SqlError};
use crate::txn::LoadTxn;

impl Engine {
    /// Begins a load transaction in PREPARE.
    ///
    /// # Errors
    /// Unknown database or table, a bad or used label, too many running transactions, columns that cannot be loaded.
    pub fn begin_load(self: &Arc<Self>, spec: LoadSpec) -> Result<LoadTxn, LoadError> {
        if let Ok(table) = self.catalog.table(&spec.db, &spec.table) {
            crate::replicas::check_loadable(self, &table.tablets())?;
        }
        crate::txn::begin(self, spec)
    }

    /// Writes rows of the schema of [`crate::engine::TableMeta::load_schema`] (columns are matched by name). The rows of the
    /// answer were not written: the caller counts them as filtered.
    ///
    /// # Errors
    /// A NULL in a NOT NULL column, a text longer than its column, or a batch of another schema.
    pub fn write_load(&self, txn: &LoadTxn, batch: RecordBatch) -> Result<Vec<RefusedRow>, LoadError> {
        crate::txn::write(self, txn, batch)
    }

    /// Ends the rows of a load: PRECOMMITTED when `two_phase`, else VISIBLE, or COMMITTED while publishing is held.
    ///
    /// # Errors
    /// The transaction was aborted meanwhile (timeout, abort by label, dropped table).
    pub fn finish_load(self: &Arc<Self>, txn: LoadTxn, two_phase: bool) -> Result<LoadOutcome, LoadError> {
        crate::txn::finish(self, txn, two_phase)
    }

    /// Aborts a load; its label is free again.
    pub fn abort_load(&self, txn: LoadTxn, reason: &str) {
        crate::txn::abort_load(self, txn, reason);
    }

    /// Second phase of 2PC: commits a pre-committed transaction. Returns `msg` of the reply.
    ///
    /// # Errors
    /// The refusal text of reference section C, with its `TStatus:` prefix, in `message`; code 1105.
    pub fn commit_txn(self: &Arc<Self>, db: &str, txn: &TxnRef) -> Result<String, SqlError> {
        crate::txn::commit_two_phase(self, db, txn)
    }

    /// Second phase of 2PC: aborts. Returns `msg` of the reply.
    ///
    /// # Errors
    /// As [`Engine::commit_txn`].
    pub fn abort_txn(&self, db: &str, txn: &TxnRef) -> Result<String, SqlError> {
        crate::txn::abort_two_phase(self, db, txn)
    }

    /// State of a label; [`crate::TxnState::Unknown`] when no transaction has it.
    ///
    /// # Errors
    /// 1049 for the database.
    pub fn label_state(&self, db: &str, label: &str) -> Result<LabelState, SqlError> {
        crate::txn::label_state(self, db, label)
    }

    /// Holds the publishing of a table (`None`: of all), or releases it: while it is held, commits end COMMITTED and not
    /// VISIBLE; their rows appear, in the order of the commits, when it is released.
    ///
    /// # Errors
    /// As [`Engine::table_meta`].
    pub fn set_publish_held(&self, table: Option<(&str, &str)>, held: bool) -> Result<(), SqlError> {
        let id = table.map(|(db, table)| self.catalog.table(db, table).map(|t| t.id())).transpose()?;
        crate::txn::set_held(self, id, held);
        Ok(())
    }

    /// Number of tablets of all tables, for `TabletNum` of SHOW BACKENDS.
    pub fn tablet_count(&self) -> usize {
        let databases = self.catalog.database_names();
        let tables = databases.iter().filter_map(|db| self.catalog.tables(db).ok()).flatten();
        tables.map(|table| table.tablets().len()).sum()
    }
}
