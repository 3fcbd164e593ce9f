//! Group commit: rows of several loads in one transaction of the server's own.
//!
//! A group belongs to one table and one form of rows. It opens with the first load that joins it and is committed when
//! the table's `group_commit_interval_ms` is over or `group_commit_data_bytes` are in it. Loads in `async_mode` are
//! answered when their rows are in the group, loads in `sync_mode` when it is visible. What has been answered is
//! committed, however late: a group has no timeout, clients do not end its transaction, and it waits for a master that is
//! away.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::RecordBatch;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use crate::cluster::Cluster;
use crate::engine::{Engine, LoadSpec, MergeType, RefusedRow, TableMeta};
use crate::error::LoadError;
use crate::random;
use crate::txn::LoadTxn;

/// `group_commit_interval_ms` of a table without the property.
const DEFAULT_INTERVAL_MS: i64 = 10_000;
/// `group_commit_data_bytes` of a table without the property.
const DEFAULT_BYTES: u64 = 134_217_728;
/// `group_commit_timeout_multipler`: so many intervals are shown as the transaction's timeout.
const TIMEOUT_INTERVALS: i64 = 10;
/// How often the clock is read while a group is open; the clock may be one that tests move.
const POLL: Duration = Duration::from_millis(20);

/// What loads must have in common to share a transaction.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Form {
    table: u64,
    columns: Option<Vec<String>>,
    delete: bool,
    sequence: Option<String>,
    negative: bool,
}

struct Group {
    txn: LoadTxn,
    due_ms: i64,
    bytes: u64,
    max_bytes: u64,
    /// Tells the loads that wait; `None` while the group is open.
    done: watch::Sender<Option<Result<(), LoadError>>>,
}

/// The open groups of a cluster.
#[derive(Default)]
pub(crate) struct GroupCommits {
    open: Mutex<HashMap<Form, Group>>,
    opened: Notify,
}

/// Rows that join a group.
pub(super) struct GroupRows<'a> {
    pub meta: &'a TableMeta,
    pub columns: Option<Vec<String>>,
    pub merge_type: MergeType,
    pub sequence_column: Option<String>,
    /// Sums are subtracted.
    pub negative: bool,
    pub batches: Vec<RecordBatch>,
    /// Bytes received.
    pub bytes: u64,
}

impl GroupRows<'_> {
    fn form(&self) -> Form {
        Form {
            table: self.meta.id,
            columns: self.columns.clone(),
            delete: self.merge_type == MergeType::Delete,
            sequence: self.sequence_column.clone(),
            negative: self.negative,
        }
    }
}

/// The group that took the rows of a load.
pub(super) struct Joined {
    pub txn_id: i64,
    pub label: String,
    /// Rows the table does not take, with the number of their batch.
    pub refused: Vec<(usize, RefusedRow)>,
    done: watch::Receiver<Option<Result<(), LoadError>>>,
}

impl Joined {
    /// Waits until the group is visible.
    ///
    /// # Errors
    /// Why it was not committed.
    pub async fn visible(mut self) -> Result<(), LoadError> {
        match self.done.wait_for(Option::is_some).await {
            Ok(outcome) => outcome.clone().unwrap_or(Ok(())),
            Err(_) => Err(LoadError::backend("CANCELLED", "the group commit ended without an answer")),
        }
    }
}

impl GroupCommits {
    /// Puts rows into the group of their form, all of them or none. The group is opened when there is none, or when
    /// something ended the transaction of the one that there was.
    ///
    /// # Errors
    /// The group cannot be opened, or the rows do not fit the table.
    pub(super) fn join(&self, cluster: &Cluster, rows: GroupRows<'_>) -> Result<Joined, LoadError> {
        let engine = &cluster.engine;
        let form = rows.form();
        let mut open = self.open.lock();
        if !open.get(&form).is_some_and(|group| engine.txns.is_open(group.txn.txn_id())) {
            if let Some(dead) = open.insert(form.clone(), begin(engine, &rows)?) {
                commit(engine, dead);
            }
            self.opened.notify_one();
        }
        let Some(group) = open.get_mut(&form) else {
            return Err(LoadError::backend("INTERNAL_ERROR", "the group commit is gone"));
        };
        let refused = engine.write_together(&group.txn, rows.batches)?;
        group.bytes += rows.bytes;
        let joined = Joined {
            txn_id: group.txn.txn_id(),
            label: group.txn.label().to_owned(),
            refused,
            done: group.done.subscribe(),
        };
        if group.bytes >= group.max_bytes
            && cluster.master_answers()
            && let Some(group) = open.remove(&form)
        {
            commit(engine, group);
        }
        Ok(joined)
    }

    /// Commits the groups whose time has come, unless the master is away.
    fn commit_due(&self, cluster: &Cluster) {
        if !cluster.master_answers() {
            return;
        }
        let engine = &cluster.engine;
        let now = engine.config().clock.now_ms();
        let mut open = self.open.lock();
        let due = |g: &Group| g.due_ms <= now || g.bytes >= g.max_bytes;
        let due: Vec<Form> = open.iter().filter(|(_, g)| due(g)).map(|(form, _)| form.clone()).collect();
        for form in due {
            if let Some(group) = open.remove(&form) {
                commit(engine, group);
            }
        }
    }

    /// Commits every open group: what a server does with its log before it stops.
    pub fn commit_all(&self, engine: &Arc<Engine>) {
        for (_, group) in self.open.lock().drain() {
            commit(engine, group);
        }
    }

    /// Commits groups when they are due; ends only when it is dropped.
    pub async fn run(cluster: Arc<Cluster>) {
        let groups = &cluster.groups;
        loop {
            if groups.open.lock().is_empty() {
                groups.opened.notified().await;
            }
            tokio::time::sleep(POLL).await;
            groups.commit_due(&cluster);
        }
    }
}

fn begin(engine: &Arc<Engine>, rows: &GroupRows<'_>) -> Result<Group, LoadError> {
    let meta = rows.meta;
    let property = |key: &str| meta.properties.get(key).map(String::as_str);
    let interval =
        property("group_commit_interval_ms").and_then(|v| v.parse().ok()).unwrap_or(DEFAULT_INTERVAL_MS).max(0);
    let max_bytes = property("group_commit_data_bytes").and_then(|v| v.parse().ok()).unwrap_or(DEFAULT_BYTES);
    let id = random::query_id().replace('-', "_");
    let txn = engine.begin_load(LoadSpec {
        db: meta.database.clone(),
        table: meta.name.clone(),
        label: Some(format!("group_commit_{id}")),
        timeout: Duration::from_millis((interval.max(1000) * TIMEOUT_INTERVALS).unsigned_abs()),
        columns: rows.columns.clone(),
        merge_type: rows.merge_type,
        sequence_column: rows.sequence_column.clone(),
        negative: rows.negative,
        group: true,
        ..LoadSpec::default()
    })?;
    Ok(Group {
        txn,
        due_ms: engine.config().clock.now_ms().saturating_add(interval),
        bytes: 0,
        max_bytes,
        done: watch::Sender::new(None),
    })
}

fn commit(engine: &Arc<Engine>, group: Group) {
    let label = group.txn.label().to_owned();
    let outcome = engine.finish_load(group.txn, false).map(drop);
    if let Err(error) = &outcome {
        tracing::warn!(%error, label, "a group commit failed");
    }
    // Nobody waits for a group of loads in async mode.
    group.done.send_replace(Some(outcome));
}
