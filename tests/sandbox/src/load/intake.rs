//! Where the rows of a body go: through the mapping into the transaction, with counters and the error log.

use std::borrow::Cow;
use std::time::{Duration, Instant};

use arrow::array::{ArrayRef, RecordBatch};

use super::add;
use super::batch::{Fate, Lines, SourceBatch, SourceRows};
use super::error_log::ErrorRows;
use super::mapping::Mapping;
use super::reply::{Failure, RowCounts};
use crate::engine::Engine;
use crate::txn::LoadTxn;

/// What takes the mapped rows.
pub(super) enum Destination<'a> {
    /// The load's own transaction.
    Txn(&'a LoadTxn),
    /// They are kept for a group commit.
    Kept(Vec<KeptRows>),
}

/// Rows that are kept for a group commit, with what the body has for them.
pub(super) struct KeptRows {
    pub batch: RecordBatch,
    /// Places of the rows among the lines.
    places: Vec<usize>,
    lines: Lines,
}

impl KeptRows {
    /// A row as the body has it.
    pub fn line(&self, row: usize) -> Cow<'_, str> {
        self.places.get(row).map(|place| self.lines.get(*place)).unwrap_or_default()
    }
}

/// Counters of a running load.
#[derive(Default)]
pub(super) struct Progress {
    pub rows: RowCounts,
    pub errors: ErrorRows,
    pub write: Duration,
}

impl Progress {
    pub fn filter(&mut self, reason: &str, line: &str) {
        self.rows.filtered += 1;
        self.errors.push(reason, line);
    }
}

/// Takes rows in and passes them on batch by batch.
pub(super) struct Intake<'a> {
    engine: &'a Engine,
    pub mapping: &'a Mapping,
    destination: Destination<'a>,
    batch: SourceBatch,
    progress: Progress,
}

impl<'a> Intake<'a> {
    pub fn new(engine: &'a Engine, mapping: &'a Mapping, destination: Destination<'a>) -> Self {
        let batch = SourceBatch::new(mapping.sources.len(), mapping.flexible);
        Self { engine, mapping, destination, batch, progress: Progress::default() }
    }

    /// Takes a row of texts; `line` is the row as the body has it.
    pub fn row<'v>(
        &mut self,
        line: &str,
        skipped: &[i32],
        value: impl FnMut(usize) -> Result<Option<Cow<'v, str>>, String>,
    ) -> Result<(), Failure> {
        self.batch.push(line, skipped, value);
        self.flush_full()
    }

    /// Takes a row that cannot be read.
    pub fn reject(&mut self, line: &str, reason: impl Into<String>) -> Result<(), Failure> {
        self.batch.reject(line, reason.into());
        self.flush_full()
    }

    /// Takes columns of a binary format, one array per source column.
    pub fn arrays(&mut self, arrays: Vec<ArrayRef>, rows: usize, what: &'static str) -> Result<(), Failure> {
        let lines = Lines::Numbered { first: self.progress.rows.total, what };
        self.pass(SourceRows { arrays, skips: None, fates: vec![Fate::Kept; rows], lines })
    }

    fn flush_full(&mut self) -> Result<(), Failure> {
        if self.batch.is_full() { self.flush() } else { Ok(()) }
    }

    /// Passes on the rows so far.
    pub fn flush(&mut self) -> Result<(), Failure> {
        let rows = self.batch.take();
        if rows.fates.is_empty() { Ok(()) } else { self.pass(rows) }
    }

    fn pass(&mut self, mut rows: SourceRows) -> Result<(), Failure> {
        let progress = &mut self.progress;
        progress.rows.total += rows.fates.len() as u64;
        let mapped = self.mapping.map(&mut rows)?;
        for (row, fate) in rows.fates.iter().enumerate() {
            match fate {
                Fate::Kept => {}
                Fate::Unselected => progress.rows.unselected += 1,
                Fate::Filtered(reason) => progress.filter(reason, &rows.lines.get(row)),
            }
        }
        let Some(mapped) = mapped else { return Ok(()) };
        match &mut self.destination {
            Destination::Kept(kept) => {
                kept.push(KeptRows { batch: mapped.batch, places: mapped.kept, lines: rows.lines });
            }
            Destination::Txn(txn) => {
                let since = Instant::now();
                let refused = self.engine.write_load(txn, mapped.batch).map_err(Failure::from);
                add(&mut progress.write, since);
                for refused in refused? {
                    let line = mapped.kept.get(refused.row).map(|row| rows.lines.get(*row));
                    progress.filter(&refused.reason, line.as_deref().unwrap_or_default());
                }
            }
        }
        Ok(())
    }

    /// The counters, and the rows kept for a group commit.
    pub fn into_parts(self) -> (Progress, Vec<KeptRows>) {
        let kept = match self.destination {
            Destination::Txn(_) => Vec::new(),
            Destination::Kept(batches) => batches,
        };
        (self.progress, kept)
    }
}
