//! Group commit: rows of several loads in one transaction of the server's own.
//!
//! A group belongs to one table and one form of rows. It opens with the first load that joins it and is committed when
//! the table's `group_commit_interval_ms` is over or `group_commit_data_bytes` are in it. Loads in `async_mode` are
//! answered when their rows are in the group, loads in `sync_mode` when it is visible.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::RecordBatch;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use crate::engine::{Engine, LoadSpec, MergeType, RefusedRow, TableMeta};
use crate::error::LoadError;
use crate::random;
use crate::txn::LoadTxn;

/// `group_commit_interval_ms` of a table without the property.
const DEFAULT_INTERVAL_MS: i64 = 10_000;
/// `group_commit_data_bytes` of a table without the property.
const DEFAULT_BYTES: u64 = 134_217_728;
/// `group_commit_timeout_multipler`: a group may take so many intervals.
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
    pub batches: Vec<RecordBatch>,
    /// Bytes received.
    pub bytes: u64,
}

/// The group that took the rows of a load.
pub(super) struct Joined {
    pub txn_id: i64,
    pub label: String,
    /// Rows the table does not take.
    pub refused: Vec<RefusedRow>,
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
    /// Puts rows into the group of their form, which is opened when there is none.
    ///
    /// # Errors
    /// The group cannot be opened, or the rows do not fit the table.
    pub(super) fn join(&self, engine: &Arc<Engine>, rows: GroupRows<'_>) -> Result<Joined, LoadError> {
        let GroupRows { meta, columns, merge_type, sequence_column, batches, bytes } = rows;
        let form = Form {
            table: meta.id,
            columns: columns.clone(),
            delete: merge_type == MergeType::Delete,
            sequence: sequence_column.clone(),
        };
        let mut open = self.open.lock();
        if !open.contains_key(&form) {
            let group = begin(engine, meta, columns, merge_type, sequence_column)?;
            open.insert(form.clone(), group);
            self.opened.notify_one();
        }
        let Some(group) = open.get_mut(&form) else {
            return Err(LoadError::backend("INTERNAL_ERROR", "the group commit is gone"));
        };
        let mut refused = Vec::new();
        let mut offset = 0;
        for batch in batches {
            let rows = batch.num_rows();
            let of_batch = engine.write_load(&group.txn, batch)?;
            refused.extend(of_batch.into_iter().map(|r| RefusedRow { row: offset + r.row, ..r }));
            offset += rows;
        }
        group.bytes += bytes;
        let joined = Joined {
            txn_id: group.txn.txn_id(),
            label: group.txn.label().to_owned(),
            refused,
            done: group.done.subscribe(),
        };
        if group.bytes >= group.max_bytes
            && let Some(group) = open.remove(&form)
        {
            commit(engine, group);
        }
        Ok(joined)
    }

    /// Commits the groups whose time has come.
    fn commit_due(&self, engine: &Arc<Engine>) {
        let now = engine.config().clock.now_ms();
        let mut open = self.open.lock();
        let due: Vec<Form> = open.iter().filter(|(_, g)| g.due_ms <= now).map(|(form, _)| form.clone()).collect();
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
    pub async fn run(groups: Arc<Self>, engine: Arc<Engine>) {
        loop {
            if groups.open.lock().is_empty() {
                groups.opened.notified().await;
            }
            tokio::time::sleep(POLL).await;
            groups.commit_due(&engine);
        }
    }
}

fn begin(
    engine: &Arc<Engine>,
    meta: &TableMeta,
    columns: Option<Vec<String>>,
    merge_type: MergeType,
    sequence_column: Option<String>,
) -> Result<Group, LoadError> {
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
        columns,
        merge_type,
        sequence_column,
        ..LoadSpec::default()
    })?;
    Ok(Group {
        txn,
        due_ms: engine.config().clock.now_ms() + interval,
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
