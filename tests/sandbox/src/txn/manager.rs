//! The transactions of all databases.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;

use super::TxnState;
use crate::engine::{Clock, EngineConfig};
use crate::error::{LoadError, SqlError};
use crate::storage::{LoadBuffer, Table};

/// Text before every FE refusal that travels as a status.
pub(super) const STATUS_PREFIX: &str = "TStatus: errCode = 2, detailMessage = ";

/// Keeps the transactions.
pub struct TxnManager {
    clock: Arc<dyn Clock>,
    precommit_timeout_ms: i64,
    max_running_per_db: usize,
    label_with_state: bool,
    inner: Mutex<Inner>,
    changed: watch::Sender<u64>,
}

#[derive(Default)]
struct Inner {
    next_id: i64,
    txns: BTreeMap<i64, Txn>,
    labels: HashMap<(String, String), i64>,
}

pub(super) struct Txn {
    pub(super) view: TxnView,
    pub(super) table: Arc<Table>,
    pub(super) buffer: Option<Arc<LoadBuffer>>,
    timeout_ms: i64,
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
    pub(crate) finished_ms: Option<i64>,
    pub(crate) reason: String,
    pub(crate) rows: u64,
    pub(crate) timeout_ms: i64,
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
}

impl TxnManager {
    /// A manager without transactions.
    pub fn new(config: &EngineConfig) -> Self {
        Self {
            clock: Arc::clone(&config.clock),
            precommit_timeout_ms: config.precommit_timeout.as_millis() as i64,
            max_running_per_db: config.max_running_txn_num_per_db,
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
        self.inner.lock().txns.values().filter(|t| t.view.state.is_running()).count()
    }

    /// Aborts PREPARE transactions older than their timeout and PRECOMMITTED ones older than the pre-commit timeout.
    pub fn expire(&self, now_ms: i64) {
        let mut inner = self.inner.lock();
        if inner.expire(now_ms, self.precommit_timeout_ms) {
            drop(inner);
            self.announce();
        }
    }

    fn announce(&self) {
        self.changed.send_modify(|n| *n += 1);
    }

    /// Locks the transactions, after aborting what is past its time.
    fn lock(&self) -> parking_lot::MutexGuard<'_, Inner> {
        let mut inner = self.inner.lock();
        if inner.expire(self.clock.now_ms(), self.precommit_timeout_ms) {
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
        let running = inner.txns.values().filter(|t| t.view.db == new.db && t.view.state.is_running()).count();
        if running >= self.max_running_per_db {
            return Err(LoadError::frontend(format!(
                "current running txns on db {} is {running}, larger than limit {}",
                new.db_id, self.max_running_per_db
            )));
        }
        let id = inner.next_id;
        inner.next_id += 1;
        let view = TxnView {
            id,
            db: new.db.to_owned(),
            table: new.table.name().to_owned(),
            label: new.label.to_owned(),
            state: TxnState::Prepare,
            source: new.source,
            prepared_ms: self.clock.now_ms(),
            precommitted_ms: None,
            finished_ms: None,
            reason: String::new(),
            rows: 0,
            timeout_ms: new.timeout_ms,
        };
        inner.labels.insert((new.db.to_owned(), new.label.to_owned()), id);
        inner.txns.insert(id, Txn { view, table: new.table, buffer: Some(new.buffer), timeout_ms: new.timeout_ms });
        self.announce();
        Ok(id)
    }

    /// A transaction of a database.
    pub(crate) fn find(&self, db: &str, id: i64) -> Option<TxnView> {
        self.lock().txns.get(&id).filter(|t| t.view.db == db).map(|t| t.view.clone())
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
                txn.view.rows = txn.buffer.as_ref().map_or(0, |b| b.rows());
                Ok(txn.view.rows)
            }
            Some(txn) => Err(Box::new(txn.view.clone())),
            None => Err(missing(id)),
        }
    }

    /// Moves a transaction from `from` to COMMITTED and hands out its rows.
    pub(super) fn start_commit(&self, id: i64, from: TxnState) -> Result<(Arc<Table>, Arc<LoadBuffer>), Box<TxnView>> {
        let mut inner = self.lock();
        match inner.txns.get_mut(&id) {
            Some(txn) if txn.view.state == from => match txn.buffer.take() {
                Some(buffer) => {
                    txn.view.state = TxnState::Committed;
                    txn.view.rows = buffer.rows();
                    Ok((Arc::clone(&txn.table), buffer))
                }
                None => Err(Box::new(txn.view.clone())),
            },
            Some(txn) => Err(Box::new(txn.view.clone())),
            None => Err(missing(id)),
        }
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
        }
        drop(inner);
        self.announce();
    }

    /// Aborts a running transaction; its view before the attempt when it is not running.
    pub(super) fn abort(&self, id: i64, reason: &str) -> Result<(), Box<TxnView>> {
        let mut inner = self.lock();
        let now = self.clock.now_ms();
        let outcome = match inner.txns.get_mut(&id) {
            Some(txn) if txn.view.state.is_running() => {
                txn.abort(reason, now);
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
        tables: &std::collections::BTreeSet<u64>,
        watermark: i64,
        timeout: std::time::Duration,
    ) -> bool {
        let mut changed = self.changed.subscribe();
        let quiet = async {
            loop {
                let open = {
                    let inner = self.lock();
                    inner.txns.range(..=watermark).any(|(_, t)| {
                        tables.contains(&t.table.id())
                            && (t.view.state.is_running() || t.view.state == TxnState::Committed)
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

    fn expire(&mut self, now_ms: i64, precommit_timeout_ms: i64) -> bool {
        let mut any = false;
        for txn in self.txns.values_mut() {
            let late = match txn.view.state {
                TxnState::Prepare => now_ms - txn.view.prepared_ms > txn.timeout_ms,
                TxnState::PreCommitted => {
                    txn.view.precommitted_ms.is_some_and(|since| now_ms - since > precommit_timeout_ms)
                }
                _ => false,
            };
            if late {
                txn.abort("timeout by txn manager", now_ms);
                any = true;
            }
        }
        any
    }
}

impl Txn {
    fn abort(&mut self, reason: &str, now_ms: i64) {
        self.view.state = TxnState::Aborted;
        reason.clone_into(&mut self.view.reason);
        self.view.finished_ms = Some(now_ms);
        self.buffer = None;
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
        finished_ms: None,
        reason: String::new(),
        rows: 0,
        timeout_ms: 0,
    })
}
