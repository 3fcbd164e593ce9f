//! Rows of a load on their way to a commit, already split by tablet.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use arrow::array::{RecordBatch, UInt32Array};
use arrow::compute::{concat_batches, take_record_batch};
use arrow::datatypes::SchemaRef;
use parking_lot::Mutex;

use super::definition::Definition;
use super::key::bucket_of;
use super::partial::Partial;
use super::partition::Router;
use super::table::ids_of;
use crate::error::SqlError;
use crate::txn::{Overwrite, RefusedRow};
use crate::types::{TextStyle, text_value};

/// Rows per rowset batch: large enough to scan fast, small enough to copy a delete vector cheaply.
pub(super) const ROWSET_ROWS: usize = 65_536;

/// Where the rows of one partition go.
#[derive(Debug, Clone, Copy)]
pub(super) struct Target {
    pub(super) partition: u64,
    pub(super) buckets: usize,
    /// Position of the first bucket among the parts.
    pub(super) first: usize,
}

/// Rows of one load, by partition and tablet.
#[derive(Debug)]
pub struct LoadBuffer {
    /// The definition that the load was planned with.
    pub(super) def: Arc<Definition>,
    /// How a partial update fills its rows at the commit.
    pub(super) partial: Option<Partial>,
    /// What the commit replaces.
    pub(super) overwrite: Overwrite,
    schema: SchemaRef,
    hash_columns: Vec<usize>,
    router: Arc<Router>,
    targets: Vec<Target>,
    parts: Vec<Mutex<Part>>,
    rows: AtomicU64,
    refused: AtomicU64,
    next: AtomicUsize,
}

#[derive(Debug, Default)]
struct Part {
    pending: Vec<RecordBatch>,
    pending_rows: usize,
    done: Vec<RecordBatch>,
}

/// The batches of one tablet.
#[derive(Debug)]
pub(super) struct Pieces {
    pub(super) partition: u64,
    pub(super) bucket: usize,
    pub(super) batches: Vec<RecordBatch>,
}

impl LoadBuffer {
    /// A buffer for batches of `schema`; without hash columns whole batches go round robin.
    pub(super) fn new(
        def: Arc<Definition>,
        schema: SchemaRef,
        partial: Option<Partial>,
        overwrite: Overwrite,
        router: Router,
        partitions: &[(u64, usize)],
    ) -> Self {
        let hash_columns = def.spec.hash_columns.iter().filter_map(|name| def.spec.position(name)).collect();
        let mut targets = Vec::with_capacity(partitions.len());
        let mut first = 0;
        for (partition, buckets) in partitions {
            targets.push(Target { partition: *partition, buckets: *buckets, first });
            first += buckets;
        }
        Self {
            def,
            partial,
            overwrite,
            schema,
            hash_columns,
            router: Arc::new(router),
            targets,
            parts: (0..first).map(|_| Mutex::default()).collect(),
            rows: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            next: AtomicUsize::new(0),
        }
    }

    /// An empty buffer that takes the same rows.
    pub(crate) fn sibling(&self) -> Self {
        Self {
            def: Arc::clone(&self.def),
            partial: self.partial.clone(),
            overwrite: self.overwrite,
            schema: Arc::clone(&self.schema),
            hash_columns: self.hash_columns.clone(),
            router: Arc::clone(&self.router),
            targets: self.targets.clone(),
            parts: self.parts.iter().map(|_| Mutex::default()).collect(),
            rows: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            next: AtomicUsize::new(self.next.load(Ordering::Relaxed)),
        }
    }

    /// Takes over the rows of a sibling, behind its own.
    pub(crate) fn absorb(&self, sibling: Self) {
        for (mine, theirs) in self.parts.iter().zip(sibling.parts) {
            mine.lock().absorb(theirs.into_inner());
        }
        self.rows.fetch_add(sibling.rows.into_inner(), Ordering::Relaxed);
        self.refused.fetch_add(sibling.refused.into_inner(), Ordering::Relaxed);
        self.next.store(sibling.next.into_inner(), Ordering::Relaxed);
    }

    /// Rows so far.
    pub fn rows(&self) -> u64 {
        self.rows.load(Ordering::Relaxed)
    }

    /// Rows that no partition took.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Whether the rows are completed at the commit.
    pub(crate) fn is_partial(&self) -> bool {
        self.partial.is_some()
    }

    /// Most ids that the commit needs for replaced partitions.
    pub(crate) fn replacement_ids(&self) -> u64 {
        match self.overwrite {
            Overwrite::No => 0,
            _ => self.targets.iter().map(|t| ids_of(t.buckets)).sum(),
        }
    }

    /// Partitions that the load may write to.
    pub(super) fn targets(&self) -> &[Target] {
        &self.targets
    }

    /// Adds a batch of the buffer's schema. The rows of the answer have no partition and were not added.
    pub(crate) fn push(&self, batch: RecordBatch) -> Result<Vec<RefusedRow>, SqlError> {
        if batch.num_rows() == 0 {
            return Ok(Vec::new());
        }
        let Some(routes) = self.router.route(batch.columns())? else {
            if let Some(target) = self.targets.first() {
                self.push_to(*target, batch)?;
            }
            return Ok(Vec::new());
        };
        let mut refused = Vec::new();
        let mut rows_of: Vec<Vec<u32>> = vec![Vec::new(); self.targets.len()];
        for (row, route) in routes.into_iter().enumerate() {
            match route {
                Some(at) => rows_of[at].push(row as u32),
                None => refused.push(RefusedRow { row, reason: self.no_partition(&batch, row) }),
            }
        }
        for (target, rows) in self.targets.iter().zip(rows_of) {
            if rows.len() == batch.num_rows() {
                self.push_to(*target, batch.clone())?;
            } else if !rows.is_empty() {
                let piece = take_record_batch(&batch, &UInt32Array::from(rows)).map_err(SqlError::detail)?;
                self.push_to(*target, piece)?;
            }
        }
        self.refused.fetch_add(refused.len() as u64, Ordering::Relaxed);
        Ok(refused)
    }

    fn no_partition(&self, batch: &RecordBatch, row: usize) -> String {
        let cells: Vec<String> = self
            .def
            .spec
            .columns
            .iter()
            .zip(batch.columns())
            .map(|(c, array)| {
                let text = text_value(array, row, &c.ty, TextStyle::Mysql).unwrap_or_else(|| "NULL".to_owned());
                format!("{{\"{}\":{text}}}", c.name)
            })
            .collect();
        format!("no partition for this tuple. tuple=[{}]", cells.join(", "))
    }

    fn push_to(&self, target: Target, batch: RecordBatch) -> Result<(), SqlError> {
        let rows = batch.num_rows();
        let parts = &self.parts[target.first..target.first + target.buckets];
        if let [part] = parts {
            part.lock().add(&self.schema, batch)?;
        } else if self.hash_columns.is_empty() {
            let at = self.next.fetch_add(1, Ordering::Relaxed) % parts.len();
            parts[at].lock().add(&self.schema, batch)?;
        } else {
            let columns: Vec<_> = self.hash_columns.iter().map(|i| Arc::clone(batch.column(*i))).collect();
            let mut rows_of: Vec<Vec<u32>> = vec![Vec::new(); parts.len()];
            for (row, bucket) in bucket_of(&columns, parts.len())?.into_iter().enumerate() {
                rows_of[bucket as usize].push(row as u32);
            }
            for (part, rows) in parts.iter().zip(rows_of) {
                if !rows.is_empty() {
                    let piece = take_record_batch(&batch, &UInt32Array::from(rows)).map_err(SqlError::detail)?;
                    part.lock().add(&self.schema, piece)?;
                }
            }
        }
        self.rows.fetch_add(rows as u64, Ordering::Relaxed);
        Ok(())
    }

    /// The batches of every tablet that got rows; the buffer is empty afterwards.
    pub(super) fn take(&self) -> Result<Vec<Pieces>, SqlError> {
        let mut out = Vec::new();
        for target in &self.targets {
            for bucket in 0..target.buckets {
                let mut part = self.parts[target.first + bucket].lock();
                part.flush(&self.schema)?;
                let batches = std::mem::take(&mut part.done);
                if !batches.is_empty() {
                    out.push(Pieces { partition: target.partition, bucket, batches });
                }
            }
        }
        Ok(out)
    }
}

impl Part {
    fn add(&mut self, schema: &SchemaRef, batch: RecordBatch) -> Result<(), SqlError> {
        self.pending_rows += batch.num_rows();
        self.pending.push(batch);
        if self.pending_rows >= ROWSET_ROWS { self.flush(schema) } else { Ok(()) }
    }

    fn absorb(&mut self, mut other: Self) {
        if !other.done.is_empty() {
            self.done.append(&mut self.pending);
            self.done.append(&mut other.done);
            self.pending_rows = 0;
        }
        self.pending_rows += other.pending_rows;
        self.pending.append(&mut other.pending);
    }

    fn flush(&mut self, schema: &SchemaRef) -> Result<(), SqlError> {
        self.pending_rows = 0;
        match self.pending.len() {
            0 => {}
            1 => self.done.append(&mut self.pending),
            _ => {
                let whole = concat_batches(schema, &self.pending).map_err(SqlError::detail)?;
                self.pending.clear();
                self.done.push(whole);
            }
        }
        Ok(())
    }
}
