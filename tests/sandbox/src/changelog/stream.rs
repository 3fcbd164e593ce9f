//! Table streams: how far each partition of a base table was consumed.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};

use super::IncrType;
use crate::error::SqlError;

/// How far a partition was consumed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Offset {
    /// Changes up to this TSO are consumed.
    pub(crate) tso: i64,
    /// When a statement last moved it, milliseconds.
    pub(crate) consumed_ms: Option<i64>,
}

/// The table that a stream tells of; found again by its id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BaseTable {
    pub(crate) db: String,
    pub(crate) name: String,
    pub(crate) id: u64,
}

/// A table stream.
#[derive(Debug)]
pub(crate) struct TableStream {
    pub(crate) id: u64,
    /// Id of its database, which may be dropped and made again.
    pub(crate) db_id: u64,
    pub(crate) db: String,
    pub(crate) name: String,
    pub(crate) base: BaseTable,
    pub(crate) kind: IncrType,
    /// `show_initial_rows`: partitions never consumed tell all their rows.
    pub(crate) initial_rows: bool,
    comment: RwLock<String>,
    /// By partition id.
    offsets: Mutex<BTreeMap<u64, Offset>>,
    /// Held while a statement that consumes the stream commits.
    commits: tokio::sync::Mutex<()>,
}

impl TableStream {
    /// A stream whose partitions are consumed up to `offsets`.
    pub(crate) fn new(
        (id, db_id): (u64, u64),
        (db, name): (String, String),
        base: BaseTable,
        kind: IncrType,
        initial_rows: bool,
        comment: String,
        offsets: BTreeMap<u64, Offset>,
    ) -> Self {
        let comment = RwLock::new(comment);
        Self {
            id,
            db_id,
            db,
            name,
            base,
            kind,
            initial_rows,
            comment,
            offsets: Mutex::new(offsets),
            commits: tokio::sync::Mutex::new(()),
        }
    }

    pub(crate) fn comment(&self) -> String {
        self.comment.read().clone()
    }

    pub(crate) fn set_comment(&self, comment: String) {
        *self.comment.write() = comment;
    }

    /// Offset of a partition; `None`: never consumed, or newer than the stream.
    pub(crate) fn offset(&self, partition: u64) -> Option<Offset> {
        self.offsets.lock().get(&partition).copied()
    }
}

/// The streams of all databases.
#[derive(Debug, Default)]
pub(crate) struct Streams(RwLock<BTreeMap<(String, String), Arc<TableStream>>>);

impl Streams {
    pub(crate) fn get(&self, db: &str, name: &str) -> Option<Arc<TableStream>> {
        self.0.read().get(&(db.to_owned(), name.to_owned())).cloned()
    }

    /// Adds a stream; `false` when the name is taken.
    pub(crate) fn insert(&self, stream: TableStream) -> bool {
        let key = (stream.db.clone(), stream.name.clone());
        let mut streams = self.0.write();
        if streams.contains_key(&key) {
            return false;
        }
        streams.insert(key, Arc::new(stream));
        true
    }

    pub(crate) fn remove(&self, db: &str, name: &str) -> bool {
        self.0.write().remove(&(db.to_owned(), name.to_owned())).is_some()
    }

    /// Streams in order of their names, of one database or of all.
    pub(crate) fn list(&self, db: Option<&str>) -> Vec<Arc<TableStream>> {
        let streams = self.0.read();
        streams.values().filter(|stream| db.is_none_or(|db| db == stream.db)).cloned().collect()
    }
}

/// What a statement reads of streams: offsets to move when it commits.
#[derive(Debug, Default)]
pub(crate) struct Consumption(BTreeMap<u64, Move>);

#[derive(Debug)]
struct Move {
    stream: Arc<TableStream>,
    /// Offset that was read and offset to set, by partition.
    partitions: BTreeMap<u64, (Option<i64>, i64)>,
}

impl Consumption {
    /// No stream is read.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds partitions of a stream, read behind their offset and up to `to`.
    pub(crate) fn add(&mut self, stream: &Arc<TableStream>, partition: u64, from: Option<i64>, to: i64) {
        let entry =
            self.0.entry(stream.id).or_insert_with(|| Move { stream: Arc::clone(stream), partitions: BTreeMap::new() });
        entry.partitions.entry(partition).and_modify(|(_, most)| *most = to.max(*most)).or_insert((from, to));
    }

    /// Runs the commit of the statement and moves the offsets with it.
    ///
    /// # Errors
    /// Another statement has moved one of them, or the commit fails: then nothing moves.
    pub(crate) async fn commit<T>(
        self,
        now_ms: i64,
        commit: impl Future<Output = Result<T, SqlError>>,
    ) -> Result<T, SqlError> {
        // By stream id, so that two statements never wait for each other.
        let mut held = Vec::with_capacity(self.0.len());
        for moved in self.0.values() {
            held.push(moved.stream.commits.lock().await);
        }
        for moved in self.0.values() {
            moved.check()?;
        }
        let outcome = commit.await?;
        for moved in self.0.values() {
            let mut offsets = moved.stream.offsets.lock();
            for (partition, (_, to)) in &moved.partitions {
                offsets.insert(*partition, Offset { tso: *to, consumed_ms: Some(now_ms) });
            }
        }
        drop(held);
        Ok(outcome)
    }
}

impl Move {
    fn check(&self) -> Result<(), SqlError> {
        for (partition, (from, to)) in &self.partitions {
            let now = self.stream.offset(*partition).map(|offset| offset.tso);
            if now != *from {
                let (db, name) = (&self.stream.db, &self.stream.name);
                let now = now.map_or_else(|| "N/A".to_owned(), |tso| tso.to_string());
                return Err(SqlError::detail(format!(
                    "target offset already consumed: {db}-{name}-{partition}-{to} vs {now}"
                )));
            }
        }
        Ok(())
    }
}
