//! Rows of a load on their way to a commit, already split by tablet.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use arrow::array::{RecordBatch, UInt32Array};
use arrow::compute::{concat_batches, take_record_batch};
use arrow::datatypes::SchemaRef;
use parking_lot::Mutex;

use super::key::bucket_of;
use crate::error::SqlError;

/// Rows per rowset batch: large enough to scan fast, small enough to copy a delete vector cheaply.
const ROWSET_ROWS: usize = 65_536;

/// Rows of one load, by tablet.
#[derive(Debug)]
pub struct LoadBuffer {
    schema: SchemaRef,
    hash_columns: Vec<usize>,
    parts: Vec<Mutex<Part>>,
    rows: AtomicU64,
    next: AtomicUsize,
}

#[derive(Debug, Default)]
struct Part {
    pending: Vec<RecordBatch>,
    pending_rows: usize,
    done: Vec<RecordBatch>,
}

impl LoadBuffer {
    /// A buffer for batches of `schema`; without hash columns whole batches go round robin.
    pub(super) fn new(schema: SchemaRef, hash_columns: Vec<usize>, buckets: usize) -> Self {
        Self {
            schema,
            hash_columns,
            parts: (0..buckets).map(|_| Mutex::default()).collect(),
            rows: AtomicU64::new(0),
            next: AtomicUsize::new(0),
        }
    }

    /// Rows so far.
    pub fn rows(&self) -> u64 {
        self.rows.load(Ordering::Relaxed)
    }

    /// Adds a batch of the table's full storage schema.
    pub(crate) fn push(&self, batch: RecordBatch) -> Result<(), SqlError> {
        let rows = batch.num_rows();
        if rows == 0 {
            return Ok(());
        }
        if self.parts.len() == 1 {
            self.parts[0].lock().add(&self.schema, batch)?;
        } else if self.hash_columns.is_empty() {
            let at = self.next.fetch_add(1, Ordering::Relaxed) % self.parts.len();
            self.parts[at].lock().add(&self.schema, batch)?;
        } else {
            let columns: Vec<_> = self.hash_columns.iter().map(|i| Arc::clone(batch.column(*i))).collect();
            let mut rows_of: Vec<Vec<u32>> = vec![Vec::new(); self.parts.len()];
            for (row, bucket) in bucket_of(&columns, self.parts.len())?.into_iter().enumerate() {
                rows_of[bucket as usize].push(row as u32);
            }
            for (part, rows) in self.parts.iter().zip(rows_of) {
                if !rows.is_empty() {
                    let piece = take_record_batch(&batch, &UInt32Array::from(rows)).map_err(SqlError::detail)?;
                    part.lock().add(&self.schema, piece)?;
                }
            }
        }
        self.rows.fetch_add(rows as u64, Ordering::Relaxed);
        Ok(())
    }

    /// The batches of every tablet; the buffer is empty afterwards.
    pub(super) fn take(&self) -> Result<Vec<Vec<RecordBatch>>, SqlError> {
        self.parts
            .iter()
            .map(|part| {
                let mut part = part.lock();
                part.flush(&self.schema)?;
                Ok(std::mem::take(&mut part.done))
            })
            .collect()
    }
}

impl Part {
    fn add(&mut self, schema: &SchemaRef, batch: RecordBatch) -> Result<(), SqlError> {
        self.pending_rows += batch.num_rows();
        self.pending.push(batch);
        if self.pending_rows >= ROWSET_ROWS { self.flush(schema) } else { Ok(()) }
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
