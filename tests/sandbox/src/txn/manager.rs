//! The transactions of all databases.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;

use super::TxnState;
use super::publish::Refused;
use crate::engine::{Clock, EngineConfig};
use crate::error::{LoadError, SqlError};
use crate::storage::{LoadBuffer, Table};

/// Text before every FE refusal that travels as a status.
pub(super) const STATUS_PREFIX: &str = "TStatus: errCode = 2, detailMessage = ";

/// Reason of an abort by time.
const TIMED_OUT: &str = "timeout by txn manager";

/// Times and limits.
#[derive(Debug, Clone, Copy)]
struct Limits {
    precommit_timeout_ms: i64,
    label_keep_ms: i64,
    streaming_label_keep_ms: i64,
    running_per_db: usize,
    publishing_per_table: Option<usize>,
}

/// Keeps the transactions.
pub struct TxnManager {
    clock: Arc<dyn Clock>,
    limits: Limits,
    label_with_state: bool,
    inner: Mutex<Inner>,
    changed: watch::Sender<u64>,
}

#[derive(Default)]
struct Inner {
    next_id: i64,
    txns: BTreeMap<i64, Txn>,
    labels: HashMap<(String, String), i64>,
    /// PREPARE and PRECOMMITTED transactions by database.
    running: HashMap<String, usize>,
    /// COMMITTED transactions by table.
    publishing: HashMap<u64, usize>,
    /// Transactions that are not finished, by table.
    open: HashMap<u64, BTreeSet<i64>>,
    /// When a transaction is aborted (running) or forgotten (finished), and its id.
    deadlines: BTreeSet<(i64, i64)>,
}

struct Txn {
    view: TxnView,
    table_id: u64,
    /// What a commit needs; gone once the transaction is finished, so that it keeps no dropped table.
    work: Option<(Arc<Table>, Arc<LoadBuffer>)>,
    deadline: i64,
}

/// What SHOW TRANSACTION tells.
#[derive(Debug, Clone)]
pub(crate) struct TxnView {
    pub(crate) id: i64,
    pub(crate) db: String,
    pub(crate) table: String,
    pub(crate) label: String,
    pub(crate) state: TxnState,
    pub(crate) source: &'static str,
    pub(crate) prepared_ms: i64,
    pub(crate) precommitted_ms: Option<i64>,
    pub(crate) committed_ms: Option<i64>,
    pub(crate) finished_ms: Option<i64>,
    pub(crate) reason: String,
    /// Where the rows are told that an INSERT filtered.
    pub(crate) error_url: Option<String>,
    pub(crate) rows: u64,
    pub(crate) timeout_ms: i64,
    /// The server's own transaction of a group commit.
    pub(crate) group: bool,
}

impl TxnView {
    /// `Coordinator` of SHOW TRANSACTION: streams come through a BE.
    pub(crate) fn coordinator(&self) -> &'static str {
        if self.source == "BACKEND_STREAMING" { "BE: 127.0.0.1" } else { "FE: 127.0.0.1" }
    }
}

/// What [`TxnManager::begin`] needs to know.
pub(super) struct NewTxn<'a> {
    pub(super) db: &'a str,
    pub(super) db_id: u64,
    pub(super) label: &'a str,
    pub(super) table: Arc<Table>,
    pub(super) buffer: Arc<LoadBuffer>,
    pub(super) timeout_ms: i64,
    pub(super) source: &'static str,
    pub(super) group: bool,
}

impl TxnManager {
    /// A manager without transactions.
    pub fn new(config: &EngineConfig) -> Self {
        let limits = Limits {
            precommit_timeout_ms: config.precommit_timeout.as_millis() as i64,
            label_keep_ms: config.label_keep_max.as_millis() as i64,
            streaming_label_keep_ms: config.streaming_label_keep_max.as_millis() as i64,
            running_per_db: config.max_running_txn_num_per_db,
            publishing_per_table: config.max_publishing_txn_num_per_table,
        };
        Self {
            clock: Arc::clone(&config.clock),
            limits,
            label_with_state: config.profile.has_changes(),
            inner: Mutex::new(Inner { next_id: 1001, ..Inner::default() }),
            changed: watch::Sender::new(0),
        }
    }

    /// Tells of every transaction that begins or ends from now on.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Transactions in PREPARE or PRECOMMITTED.
    pub fn running_total(&self) -> usize {
        self.inner.lock().running.values().sum()
    }

    /// Aborts PREPARE transactions older than their timeout and PRECOMMITTED ones older than the pre-commit timeout, and
    /// forgets finished ones whose label has aged out.
    pub fn expire(&self, now_ms: i64) {
        let mut inner = self.inner.lock();
        if inner.expire(now_ms, &self.limits) {
            drop(inner);
            self.announce();
        }
    }

    pub(super) fn announce(&self) {
        self.changed.send_modify(|n| *n += 1);
    }

    /// Locks the transactions, after aborting what is past its time.
    fn lock(&self) -> parking_lot::MutexGuard<'_, Inner> {
        let mut inner = self.inner.lock();
        if inner.expire(self.clock.now_ms(), &self.limits) {
            self.announce();
        }
        inner
    }

    pub(super) fn begin(&self, new: NewTxn<'_>) -> Result<i64, LoadError> {
        let mut inner = self.lock();
        if let Some(old) = inner.owner(new.db, new.label)
            && old.state != TxnState::Aborted
        {
            let mut text = format!("Label [{}] has already been used, relate to txn [{}]", new.label, old.id);
            if self.label_with_state {
                text.push_str(&format!(", status [{}].", old.state));
            }
            return Err(LoadError::LabelExists {
                label: new.label.to_owned(),
                txn_id: old.id,
                state: old.state,
                message: format!("{STATUS_PREFIX}{text}"),
            });
        }
        let running = inner.running.get(new.db).copied().unwrap_or(0);
        if running >= self.limits.running_per_db {
            return Err(LoadError::frontend(format!(
                "current running txns on db {} is {running}, larger than limit {}",
                new.db_id, self.limits.running_per_db
            )));
        }
        let table_id = new.table.id();
        let publishing = inner.publishing.get(&table_id).copied().unwrap_or(0);
        if let Some(limit) = self.limits.publishing_per_table
            && publishing >= limit
        {
            return Err(LoadError::frontend(format!(
                "current publishing txns on table {table_id} of db {} is {publishing}, larger than limit {limit}",
                new.db_id
            )));
        }
        let id = inner.next_id;
        inner.next_id += 1;
        let prepared_ms = self.clock.now_ms();
        let view = TxnView {
            id,
            db: new.db.to_owned(),
            table: new.table.name().to_owned(),
            label: new.label.to_owned(),
            state: TxnState::Prepare,
            source: new.source,
            prepared_ms,
            precommitted_ms: None,
            committed_ms: None,
            finished_ms: None,
            reason: String::new(),
            error_url: None,
            rows: 0,
            timeout_ms: new.timeout_ms,
            group: new.group,
        };
        // What a group commit has taken was acknowledged: it is committed, however late.
        let deadline = if new.group { i64::MAX } else { prepared_ms.saturating_add(new.timeout_ms) };
        inner.labels.insert((new.db.to_owned(), new.label.to_owned()), id);
        inner.txns.insert(id, Txn { view, table_id, work: Some((new.table, new.buffer)), deadline });
        inner.deadlines.insert((deadline, id));
        inner.open.entry(table_id).or_default().insert(id);
        *inner.running.entry(new.db.to_owned()).or_default() += 1;
        self.announce();
        Ok(id)
    }

    /// A transaction of a database.
    pub(crate) fn find(&self, db: &str, id: i64) -> Option<TxnView> {
        self.lock().txns.get(&id).filter(|t| t.view.db == db).map(|t| t.view.clone())
    }

    /// A transaction, whatever its database.
    pub(super) fn view(&self, id: i64) -> Option<TxnView> {
        self.lock().txns.get(&id).map(|t| t.view.clone())
    }

    /// Notes where the rows are told that an INSERT filtered.
    pub(crate) fn set_error_url(&self, id: i64, url: String) {
        if let Some(txn) = self.lock().txns.get_mut(&id) {
            txn.view.error_url = Some(url);
        }
    }

    fn state(&self, id: i64) -> TxnState {
        self.lock().txns.get(&id).map_or(TxnState::Unknown, |t| t.view.state)
    }

    /// Whether rows can still be added to a transaction.
    pub(crate) fn is_open(&self, id: i64) -> bool {
        self.state(id) == TxnState::Prepare
    }

    /// Waits until a transaction is aborted because its time is over; for ever when it ends otherwise.
    pub(crate) async fn timed_out(&self, id: i64) {
        let late = |t: &Txn| t.view.state == TxnState::Aborted && t.view.reason == TIMED_OUT;
        let mut changed = self.changed.subscribe();
        while !self.lock().txns.get(&id).is_some_and(late) {
            if changed.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Waits until a committed transaction is visible or aborted; its state then, or when `timeout` has passed.
    pub(super) async fn wait_published(&self, id: i64, timeout: std::time::Duration) -> TxnState {
        let mut changed = self.changed.subscribe();
        let published = async {
            while self.state(id) == TxnState::Committed {
                if changed.changed().await.is_err() {
                    return;
                }
            }
        };
        // Late or not, its state tells.
        let _ = tokio::time::timeout(timeout, published).await;
        self.state(id)
    }

    /// Ids of the transactions that are committed and not visible, oldest first.
    pub(crate) fn committed(&self) -> Vec<i64> {
        self.lock().txns.values().filter(|t| t.view.state == TxnState::Committed).map(|t| t.view.id).collect()
    }

    /// The newest transaction with a label.
    pub(crate) fn find_label(&self, db: &str, label: &str) -> Option<TxnView> {
        self.lock().owner(db, label).cloned()
    }

    /// All transactions of a database, oldest first.
    pub(crate) fn list(&self, db: &str) -> Vec<TxnView> {
        self.lock().txns.values().filter(|t| t.view.db == db).map(|t| t.view.clone()).collect()
    }

    /// Moves a PREPARE transaction to PRECOMMITTED.
    pub(super) fn precommit(&self, id: i64) -> Result<u64, Box<TxnView>> {
        let mut inner = self.lock();
        let now = self.clock.now_ms();
        match inner.txns.get_mut(&id) {
            Some(txn) if txn.view.state == TxnState::Prepare => {
                txn.view.state = TxnState::PreCommitted;
                txn.view.precommitted_ms = Some(now);
                txn.view.rows = txn.work.as_ref().map_or(0, |(_, buffer)| buffer.rows());
                let rows = txn.view.rows;
                inner.set_deadline(id, now.saturating_add(self.limits.precommit_timeout_ms));
                Ok(rows)
            }
            Some(txn) => Err(Box::new(txn.view.clone())),
            None => Err(missing(id)),
        }
    }

    /// Moves a transaction from `from` to COMMITTED and hands out its rows.
    pub(super) fn start_commit(&self, id: i64, from: TxnState) -> Result<(Arc<Table>, Arc<LoadBuffer>), Refused> {
        let mut inner = self.lock();
        let now = self.clock.now_ms();
        let Some(txn) = inner.txns.get_mut(&id) else { return Err(Refused::State(missing(id))) };
        let Some((table, buffer)) = txn.work.clone().filter(|_| txn.view.state == from) else {
            return Err(Refused::State(Box::new(txn.view.clone())));
        };
        if buffer.is_partial() && table.schema_changed_since(&buffer) {
            return Err(Refused::Schema(SqlError::detail(format!(
                "transaction [{id}] check schema compatibility failed, partial update can't commit with old schema sucessfully ."
            ))));
        }
        txn.view.state = TxnState::Committed;
        txn.view.committed_ms = Some(now);
        txn.view.rows = buffer.rows();
        txn.work = None;
        let (db, table_id) = (txn.view.db.clone(), txn.table_id);
        inner.stop_running(id, &db);
        *inner.publishing.entry(table_id).or_default() += 1;
        Ok((table, buffer))
    }

    /// Ends a commit: VISIBLE, or ABORTED with a reason.
    pub(super) fn end_commit(&self, id: i64, outcome: Result<(), &SqlError>) {
        let mut inner = self.inner.lock();
        if let Some(txn) = inner.txns.get_mut(&id) {
            txn.view.finished_ms = Some(self.clock.now_ms());
            match outcome {
                Ok(()) => txn.view.state = TxnState::Visible,
                Err(error) => {
                    txn.view.state = TxnState::Aborted;
                    error.text().clone_into(&mut txn.view.reason);
                }
            }
            let table = txn.table_id;
            let left = inner.publishing.get(&table).map_or(0, |n| n.saturating_sub(1));
            if left == 0 {
                inner.publishing.remove(&table);
            } else {
                inner.publishing.insert(table, left);
            }
            inner.close(id, table);
            inner.keep_label(id, self.clock.now_ms(), &self.limits);
        }
        drop(inner);
        self.announce();
    }

    /// Aborts a running transaction; its view before the attempt when it is not running.
    pub(super) fn abort(&self, id: i64, reason: &str) -> Result<(), Box<TxnView>> {
        let mut inner = self.lock();
        let now = self.clock.now_ms();
        let outcome = match inner.txns.get(&id) {
            Some(txn) if txn.view.state.is_running() => {
                inner.abort(id, reason, now, &self.limits);
                Ok(())
            }
            Some(txn) => Err(Box::new(txn.view.clone())),
            None => Err(missing(id)),
        };
        drop(inner);
        if outcome.is_ok() {
            self.announce();
        }
        outcome
    }

    /// The highest transaction id given out.
    pub(crate) fn watermark(&self) -> i64 {
        self.inner.lock().next_id - 1
    }

    /// Waits until no transaction up to `watermark` is open on the tables; `false` when `timeout` passed first.
    pub(crate) async fn wait_quiet(
        &self,
        tables: &BTreeSet<u64>,
        watermark: i64,
        timeout: std::time::Duration,
    ) -> bool {
        let mut changed = self.changed.subscribe();
        let quiet = async {
            loop {
                let open = {
                    let inner = self.lock();
                    tables.iter().any(|table| {
                        inner.open.get(table).is_some_and(|open| open.range(..=watermark).next().is_some())
                    })
                };
                if !open {
                    return true;
                }
                if changed.changed().await.is_err() {
                    return false;
                }
            }
        };
        tokio::time::timeout(timeout, quiet).await.unwrap_or(false)
    }
}

impl Inner {
    fn owner(&self, db: &str, label: &str) -> Option<&TxnView> {
        let id = self.labels.get(&(db.to_owned(), label.to_owned()))?;
        self.txns.get(id).map(|t| &t.view)
    }

    fn set_deadline(&mut self, id: i64, deadline: i64) {
        if let Some(txn) = self.txns.get_mut(&id) {
            self.deadlines.remove(&(txn.deadline, id));
            txn.deadline = deadline;
            self.deadlines.insert((deadline, id));
        }
    }

    /// The transaction is no longer PREPARE or PRECOMMITTED: nothing aborts it any more.
    fn stop_running(&mut self, id: i64, db: &str) {
        if let Some(txn) = self.txns.get(&id) {
            self.deadlines.remove(&(txn.deadline, id));
        }
        if let Some(running) = self.running.get_mut(db) {
            *running = running.saturating_sub(1);
        }
    }

    /// The transaction is finished.
    fn close(&mut self, id: i64, table: u64) {
        if let Some(open) = self.open.get_mut(&table) {
            open.remove(&id);
            if open.is_empty() {
                self.open.remove(&table);
            }
        }
    }

    fn keep_label(&mut self, id: i64, now_ms: i64, limits: &Limits) {
        let Some(txn) = self.txns.get(&id) else { return };
        let streaming = matches!(txn.view.source, "BACKEND_STREAMING" | "INSERT" | "INSERT_STREAMING");
        let keep = if streaming { limits.streaming_label_keep_ms } else { limits.label_keep_ms };
        self.set_deadline(id, now_ms.saturating_add(keep));
    }

    fn abort(&mut self, id: i64, reason: &str, now_ms: i64, limits: &Limits) {
        let Some(txn) = self.txns.get_mut(&id) else { return };
        txn.view.state = TxnState::Aborted;
        reason.clone_into(&mut txn.view.reason);
        txn.view.finished_ms = Some(now_ms);
        txn.work = None;
        let (db, table) = (txn.view.db.clone(), txn.table_id);
        self.stop_running(id, &db);
        self.close(id, table);
        self.keep_label(id, now_ms, limits);
    }

    fn forget(&mut self, id: i64) {
        let Some(txn) = self.txns.remove(&id) else { return };
        self.deadlines.remove(&(txn.deadline, id));
        let label = (txn.view.db, txn.view.label);
        // A newer transaction may have the label by now.
        if self.labels.get(&label) == Some(&id) {
            self.labels.remove(&label);
        }
    }

    /// Whether a transaction was aborted.
    fn expire(&mut self, now_ms: i64, limits: &Limits) -> bool {
        let mut any = false;
        while let Some((deadline, id)) = self.deadlines.first().copied() {
            if deadline >= now_ms {
                break;
            }
            match self.txns.get(&id) {
                Some(txn) if txn.view.state.is_running() => {
                    self.abort(id, TIMED_OUT, now_ms, limits);
                    any = true;
                }
                Some(_) => self.forget(id),
                None => {
                    self.deadlines.remove(&(deadline, id));
                }
            }
        }
        any
    }
}

fn missing(id: i64) -> Box<TxnView> {
    Box::new(TxnView {
        id,
        db: String::new(),
        table: String::new(),
        label: String::new(),
        state: TxnState::Unknown,
        source: "",
        prepared_ms: 0,
        precommitted_ms: None,
        committed_ms: None,
        finished_ms: None,
        reason: String::new(),
        error_url: None,
        rows: 0,
        timeout_ms: 0,
        group: false,
    })
}
