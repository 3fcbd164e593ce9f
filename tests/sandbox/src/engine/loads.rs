//! Loads and transactions of the engine.

use std::sync::Arc;

use arrow::array::RecordBatch;

use super::{Engine, LabelState, LoadOutcome, LoadSpec, RefusedRow, TxnRef};
use crate::error::{LoadError, SqlError};
use crate::txn::{Held, LoadTxn, TxnState};

impl Engine {
    /// Begins a load transaction in PREPARE.
    ///
    /// # Errors
    /// Unknown database or table, a bad or used label, too many running transactions, columns that cannot be loaded.
    pub fn begin_load(self: &Arc<Self>, spec: LoadSpec) -> Result<LoadTxn, LoadError> {
        let table = self.catalog.table(&spec.db, &spec.table).ok();
        // The label comes first: whether it is taken is known before the load is planned.
        let txn = crate::txn::begin(self, spec)?;
        let tablets = table.map(|table| table.tablets()).unwrap_or_default();
        match crate::replicas::check_loadable(self, &tablets) {
            Ok(()) => Ok(txn),
            Err(refused) => {
                self.abort_load(txn, &refused.to_string());
                Err(refused)
            }
        }
    }

    /// Writes rows of the schema of [`crate::engine::TableMeta::load_schema`] (columns are matched by name). The rows of the
    /// answer were not written: the caller counts them as filtered.
    ///
    /// # Errors
    /// A NULL in a NOT NULL column, a text longer than its column, or a batch of another schema.
    pub fn write_load(&self, txn: &LoadTxn, batch: RecordBatch) -> Result<Vec<RefusedRow>, LoadError> {
        crate::txn::write(self, txn, batch)
    }

    /// As [`Engine::write_load`], for several batches: all of them or none. Refused rows come with the number of their
    /// batch.
    pub(crate) fn write_together(
        &self,
        txn: &LoadTxn,
        batches: impl IntoIterator<Item = RecordBatch>,
    ) -> Result<Vec<(usize, RefusedRow)>, LoadError> {
        crate::txn::write_together(self, txn, batches)
    }

    /// Ends the rows of a load: PRECOMMITTED when `two_phase`, else VISIBLE, or COMMITTED while publishing is held.
    ///
    /// # Errors
    /// The transaction was aborted meanwhile (timeout, abort by label, dropped table).
    pub fn finish_load(self: &Arc<Self>, txn: LoadTxn, two_phase: bool) -> Result<LoadOutcome, LoadError> {
        crate::txn::finish(self, txn, two_phase, &|_| false)
    }

    /// As [`Engine::finish_load`]; `hold` is asked at the commit whether the transaction's publishing is held.
    pub(crate) fn finish_load_held(
        self: &Arc<Self>,
        txn: LoadTxn,
        two_phase: bool,
        hold: &dyn Fn(i64) -> bool,
    ) -> Result<LoadOutcome, LoadError> {
        crate::txn::finish(self, txn, two_phase, hold)
    }

    /// Why a transaction that is neither PREPARE nor PRECOMMITTED cannot go on.
    pub(crate) fn ended_load(&self, txn_id: i64) -> Option<LoadError> {
        crate::txn::ended(self, txn_id)
    }

    /// Leaves a load in PREPARE, as a BE that does not reach the master does.
    pub(crate) fn leave_load(&self, txn: LoadTxn) {
        crate::txn::leave(txn);
    }

    /// Waits while a COMMITTED transaction stands behind others that are not published; its state then.
    pub(crate) async fn published(&self, txn_id: i64) -> TxnState {
        crate::txn::published(self, txn_id).await
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
        crate::txn::commit_two_phase(self, db, txn, &|_| false)
    }

    /// As [`Engine::commit_txn`]; `hold` is asked at the commit whether the transaction's publishing is held.
    pub(crate) fn commit_txn_held(
        self: &Arc<Self>,
        db: &str,
        txn: &TxnRef,
        hold: &dyn Fn(i64) -> bool,
    ) -> Result<String, SqlError> {
        crate::txn::commit_two_phase(self, db, txn, hold)
    }

    /// Id and table of the transaction that a second phase names.
    pub(crate) fn named_txn(&self, db: &str, txn: &TxnRef) -> Option<(i64, String)> {
        crate::txn::named(self, db, txn).map(|view| (view.id, view.table))
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
        let whose = match table {
            Some((db, table)) => Held::Table(self.catalog.table(db, table)?.id()),
            None => Held::All,
        };
        crate::txn::set_held(self, whose, held);
        Ok(())
    }

    /// The same for one transaction, before its commit or after it. Later ones of its table wait for it.
    pub fn set_transaction_held(&self, txn_id: i64, held: bool) {
        crate::txn::set_held(self, Held::Txn(txn_id), held);
    }

    /// Ids of the transactions that are COMMITTED and not VISIBLE, oldest first.
    pub fn unpublished_transactions(&self) -> Vec<i64> {
        self.txns.committed()
    }

    /// Number of tablets of all tables, for `TabletNum` of SHOW BACKENDS.
    pub fn tablet_count(&self) -> usize {
        let databases = self.catalog.database_names();
        let tables = databases.iter().filter_map(|db| self.catalog.tables(db).ok()).flatten();
        tables.map(|table| table.tablets().len()).sum()
    }
}
