//! The changes of a commit in an order that fits targets with another key.
//!
//! Two rows of a source may pass a key of the target from one to the other in one commit:
//!
//! ```text
//! source (key id)           changes, in the order of the source     as they are given here
//! 1: a → b, 2: b → a        -U 1 a, +U 1 b, -U 2 b, +U 2 a          -U 1 a, -U 2 b, +U 1 b, +U 2 a
//! ```
//!
//! Written by the second column in the order of the source, the delete of `b` takes away the row that has just become
//! `b`. So of each commit the rows that were are given before the rows that are. Of a row of the source that one commit
//! changes several times only what it was before and what it is after counts: what it was in between would come
//! after its own end. One that is gone in the end is told by a delete of what it was before.
//!
//! Rows of a commit have the same commit timestamp and follow each other. They are held until the next one begins, unless
//! they come in the right order already as far as one batch goes, and count against the session's memory pool.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array, RecordBatch, StringArray};
use arrow::compute::interleave_record_batch;
use arrow::datatypes::Int64Type;
use arrow::row::{Row, RowConverter, Rows, SortField};
use datafusion::common::{Result, internal_err};
use datafusion::execution::memory_pool::MemoryReservation;

use super::row_kind::RowKind;

/// Rows of a batch that is put together anew.
const BATCH_ROWS: usize = 8192;

/// Where to find what the order depends on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CommitColumns {
    /// Key columns of the source.
    pub key: Vec<usize>,
    /// The commit timestamp; NULL for rows of a snapshot.
    pub tso: usize,
    /// The change kind.
    pub kind: usize,
}

/// Orders consecutive batches of one read.
#[derive(Debug)]
pub(super) struct CommitOrder {
    table: String,
    columns: CommitColumns,
    /// The rows so far of a commit that may go on.
    held: Vec<RecordBatch>,
    tso: Option<i64>,
    memory: MemoryReservation,
}

impl CommitOrder {
    pub fn new(table: impl ToString, columns: CommitColumns, memory: MemoryReservation) -> Self {
        Self { table: table.to_string(), columns, held: Vec::new(), tso: None, memory }
    }

    /// True when rows are held.
    pub fn holds(&self) -> bool {
        !self.held.is_empty()
    }

    /// Takes the next rows; gives those of commits that are complete.
    ///
    /// # Errors
    /// `DataFusionError::ResourcesExhausted` when a commit is larger than the memory pool.
    pub fn push(&mut self, batch: RecordBatch) -> Result<Vec<RecordBatch>> {
        let mut ready = Vec::new();
        let tsos = batch.column(self.columns.tso).as_primitive::<Int64Type>().clone();
        let Some(last) = last_run(&tsos) else { return Ok(ready) };
        let first_end = if last == 0 { batch.num_rows() } else { run_end(&tsos, 0) };
        let first_tso = value(&tsos, 0);
        let mut begin = 0;
        if self.holds() {
            if self.tso == first_tso {
                self.hold(batch.slice(0, first_end))?;
                begin = first_end;
            }
            if begin == batch.num_rows() {
                return Ok(ready);
            }
            ready.extend(self.finish()?);
        }
        let tail = if value(&tsos, last).is_some() { last } else { batch.num_rows() };
        if begin < tail {
            ready.extend(self.ordered(&batch.slice(begin, tail - begin))?);
        }
        if tail < batch.num_rows() {
            self.tso = value(&tsos, tail);
            self.hold(batch.slice(tail, batch.num_rows() - tail))?;
        }
        Ok(ready)
    }

    /// The rows that are held: nothing more comes of their commit.
    ///
    /// # Errors
    /// As [`Self::push`].
    pub fn finish(&mut self) -> Result<Vec<RecordBatch>> {
        let held = std::mem::take(&mut self.held);
        self.tso = None;
        let ready = match in_order(&self.kinds(&held)) {
            true => Ok(held),
            false => self.put_together(&held, vec![held.iter().map(RecordBatch::num_rows).sum()]),
        };
        self.memory.free();
        ready
    }

    fn hold(&mut self, rows: RecordBatch) -> Result<()> {
        self.grow(rows.get_array_memory_size())?;
        self.held.push(rows);
        Ok(())
    }

    fn grow(&self, bytes: usize) -> Result<()> {
        let (table, tso) = (&self.table, self.tso.unwrap_or_default());
        self.memory.try_grow(bytes).map_err(|error| {
            error.context(format!(
                "the commit {tso} of {table} changes more rows than fit into memory, and they are written to a table with \
                 another key, where deletes must go before the rows that take their keys: give the session more memory, \
                 change fewer rows at once, or write to a table whose key has all key columns of {table}"
            ))
        })
    }

    fn kinds(&self, batches: &[RecordBatch]) -> Vec<bool> {
        batches.iter().flat_map(|batch| self.deletes(batch)).collect()
    }

    /// Whether each row is one that was.
    fn deletes(&self, batch: &RecordBatch) -> Vec<bool> {
        let kinds = batch.column(self.columns.kind).as_string::<i32>();
        let gone = [RowKind::UpdateBefore.as_str(), RowKind::Delete.as_str()];
        (0..batch.num_rows()).map(|row| gone.contains(&kinds.value(row))).collect()
    }

    /// Whole commits, each in order.
    fn ordered(&self, rows: &RecordBatch) -> Result<Vec<RecordBatch>> {
        let tsos = rows.column(self.columns.tso).as_primitive::<Int64Type>();
        let deletes = self.deletes(rows);
        let (mut ends, mut begin, mut as_they_are) = (Vec::new(), 0, true);
        while begin < rows.num_rows() {
            let end = run_end(tsos, begin);
            as_they_are &= value(tsos, begin).is_none() || in_order(&deletes[begin..end]);
            ends.push(end);
            begin = end;
        }
        match as_they_are {
            true => Ok(vec![rows.clone()]),
            false => self.put_together(std::slice::from_ref(rows), ends),
        }
    }

    /// Puts commits in order, of which each ends behind so many rows of `batches`.
    fn put_together(&self, batches: &[RecordBatch], ends: Vec<usize>) -> Result<Vec<RecordBatch>> {
        let fields = |batch: &RecordBatch| -> Vec<SortField> {
            let types = self.columns.key.iter().map(|key| batch.column(*key).data_type().clone());
            types.map(SortField::new).collect()
        };
        let Some(first) = batches.first() else { return Ok(vec![]) };
        let converter = RowConverter::new(fields(first))?;
        let mut keys: Vec<Rows> = Vec::with_capacity(batches.len());
        let mut copied = 0;
        for batch in batches {
            let columns: Vec<ArrayRef> = self.columns.key.iter().map(|key| Arc::clone(batch.column(*key))).collect();
            let rows = converter.convert_columns(&columns)?;
            // The rows are copied, once.
            let bytes = rows.size() + batch.get_array_memory_size();
            self.grow(bytes)?;
            copied += bytes;
            keys.push(rows);
        }
        let places: Vec<(usize, usize)> = batches
            .iter()
            .enumerate()
            .flat_map(|(batch, rows)| (0..rows.num_rows()).map(move |row| (batch, row)))
            .collect();
        let deletes = self.kinds(batches);
        let mut order: Vec<(usize, usize)> = Vec::with_capacity(places.len());
        let mut gone = vec![];
        let mut begin = 0;
        for end in ends {
            let Some(rows) = places.get(begin..end) else { return internal_err!("a commit ends behind its rows") };
            let of_commit = &deletes[begin..end];
            if in_order(of_commit) {
                order.extend_from_slice(rows);
            } else {
                let keys: Vec<Row<'_>> = rows.iter().map(|(batch, row)| keys[*batch].row(*row)).collect();
                for net in net(&keys, of_commit) {
                    gone.extend(net.gone.then_some(order.len()));
                    order.push(rows[net.at]);
                }
            }
            begin = end;
        }
        let batches: Vec<&RecordBatch> = batches.iter().collect();
        let mut gone = gone.into_iter().peekable();
        let ordered = order.chunks(BATCH_ROWS).enumerate().map(|(chunk, places)| {
            let rows = interleave_record_batch(&batches, places)?;
            let begin = chunk * BATCH_ROWS;
            let here = std::iter::from_fn(|| gone.next_if(|at| *at < begin + places.len())).map(|at| at - begin);
            self.deleted(rows, &here.collect::<Vec<_>>())
        });
        let ordered = ordered.collect();
        self.memory.shrink(copied);
        ordered
    }

    /// The rows at `places` as deletes.
    fn deleted(&self, rows: RecordBatch, places: &[usize]) -> Result<RecordBatch> {
        if places.is_empty() {
            return Ok(rows);
        }
        let mut kinds: Vec<_> = rows.column(self.columns.kind).as_string::<i32>().iter().collect();
        places.iter().for_each(|at| kinds[*at] = Some(RowKind::Delete.as_str()));
        let mut columns = rows.columns().to_vec();
        columns[self.columns.kind] = Arc::new(StringArray::from(kinds));
        Ok(RecordBatch::try_new(rows.schema(), columns)?)
    }
}

/// True when no row that was follows one that is.
fn in_order(deletes: &[bool]) -> bool {
    deletes.is_sorted_by(|earlier, later| earlier >= later)
}

/// A row of what a commit makes of its rows.
struct Net {
    /// Its place among them.
    at: usize,
    /// It is what a key was before that is no more: a delete, also if it was the old half of an update.
    gone: bool,
}

/// What a commit makes of its rows: what each key was before, then what each is after. `deletes` says which rows are such
/// that were.
fn net<K: std::hash::Hash + Eq>(keys: &[K], deletes: &[bool]) -> Vec<Net> {
    let mut before = Vec::new();
    let mut after: HashMap<&K, Option<usize>> = HashMap::new();
    for (at, (key, gone)) in keys.iter().zip(deletes).enumerate() {
        let is = (!gone).then_some(at);
        match after.entry(key) {
            Entry::Vacant(first) => {
                before.extend(gone.then_some(at));
                first.insert(is);
            }
            Entry::Occupied(mut known) => {
                known.insert(is);
            }
        }
    }
    let is_gone = |at: usize| after.get(&keys[at]).is_some_and(Option::is_none);
    let mut order: Vec<Net> = before.into_iter().map(|at| Net { at, gone: is_gone(at) }).collect();
    let mut after: Vec<usize> = after.into_values().flatten().collect();
    after.sort_unstable();
    order.extend(after.into_iter().map(|at| Net { at, gone: false }));
    order
}

fn value(tsos: &Int64Array, row: usize) -> Option<i64> {
    tsos.is_valid(row).then(|| tsos.value(row))
}

/// The end of the run of one commit that begins at `begin`.
fn run_end(tsos: &Int64Array, begin: usize) -> usize {
    (begin..tsos.len()).find(|row| value(tsos, *row) != value(tsos, begin)).unwrap_or(tsos.len())
}

/// Where the last run begins.
fn last_run(tsos: &Int64Array) -> Option<usize> {
    let last = tsos.len().checked_sub(1)?;
    let before = (0..last).rev().find(|row| value(tsos, *row) != value(tsos, last));
    Some(before.map_or(0, |row| row + 1))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests;
