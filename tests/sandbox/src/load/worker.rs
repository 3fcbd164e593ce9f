//! The blocking half of a load: reads the body and writes batches.

use std::io::{self, Read};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::header::{Format, LoadHead, LoadPlan};
use super::input::BodyReader;
use super::intake::{Destination, Intake, KeptRows, Progress};
use super::mapping::Mapping;
use super::reply::{Failure, RowCounts};
use super::{arrow, csv_rows, decompress, discard, json_rows, parquet};
use crate::engine::Engine;
use crate::txn::LoadTxn;

/// One load.
pub(super) struct Job {
    pub engine: Arc<Engine>,
    /// Its transaction; `None` when its rows go into a group commit.
    pub txn: Option<LoadTxn>,
    pub head: LoadHead,
    pub plan: LoadPlan,
    pub mapping: Mapping,
    /// Rows are counted and dropped.
    pub discard: bool,
}

/// What a job came to.
pub(super) struct Done {
    /// Whether all that was read can be committed.
    pub outcome: Result<(), Failure>,
    /// Its transaction, still open.
    pub txn: Option<LoadTxn>,
    pub progress: Progress,
    pub read: Duration,
    /// Rows for a group commit.
    pub kept: Vec<KeptRows>,
}

impl Job {
    /// Reads `body` to its end.
    pub fn run(self, body: BodyReader) -> Done {
        let started = Instant::now();
        let (read, mut progress, kept) = if self.discard {
            let (read, progress) = self.count(body);
            (read, progress, Vec::new())
        } else {
            let destination = match &self.txn {
                Some(txn) => Destination::Txn(txn),
                None => Destination::Kept(Vec::new()),
            };
            let mut intake = Intake::new(&self.engine, &self.mapping, destination);
            let read = self.read(body, &mut intake);
            let (progress, kept) = intake.into_parts();
            (read, progress, kept)
        };
        let outcome = read.and_then(|()| {
            // A group commit does not look at the ratio.
            match self.txn.is_some() && progress.rows.exceeds(self.plan.max_filter_ratio) {
                true => Err(Failure::new("DATA_QUALITY_ERROR", "too many filtered rows")),
                false => Ok(()),
            }
        });
        if outcome.as_ref().is_err_and(|failure| failure.code != "DATA_QUALITY_ERROR") {
            progress.rows = RowCounts::default();
        }
        let read = started.elapsed().saturating_sub(progress.write);
        Done { outcome, txn: self.txn, progress, read, kept }
    }

    fn count(&self, mut body: BodyReader) -> (Result<(), Failure>, Progress) {
        let plain = match body.wait() {
            Ok(true) => decompress::reader(body, self.head.compression),
            Ok(false) => return (Ok(()), Progress::default()),
            Err(error) => Err(error),
        };
        match plain {
            Ok(plain) => discard::read(plain, self.head.format, &self.plan),
            Err(error) => (Err(input_failure(&error)), Progress::default()),
        }
    }

    fn read(&self, mut body: BodyReader, intake: &mut Intake<'_>) -> Result<(), Failure> {
        // A probe for a label sends no bytes at all, not even a gzip header.
        if !body.wait().map_err(|e| input_failure(&e))? {
            return Ok(());
        }
        let plain = decompress::reader(body, self.head.compression).map_err(|e| input_failure(&e))?;
        match self.head.format {
            Format::Arrow => arrow::read(plain, self.engine.profile(), intake)?,
            Format::Parquet => parquet(plain, intake)?,
            Format::Csv { header_lines } => {
                // skip_lines is ignored when the format itself says how many lines are names.
                let skip = if header_lines > 0 { header_lines } else { self.plan.csv.skip_lines };
                csv_rows::read(plain, skip, &self.plan.csv, intake)?;
            }
            Format::Json => json_rows::read(without_bom(plain)?, &self.plan.json, &self.plan.csv.delimiter, intake)?,
        }
        intake.flush()
    }
}

/// The reader trusts what a file names and panics over some of it.
fn parquet(plain: impl Read, intake: &mut Intake<'_>) -> Result<(), Failure> {
    catch_unwind(AssertUnwindSafe(|| parquet::read(plain, intake)))
        .unwrap_or_else(|_| Err(Failure::new("INTERNAL_ERROR", "Read parquet file failed: the file is malformed")))
}

/// A JSON body without the byte order mark it may begin with.
fn without_bom(mut plain: impl Read) -> Result<impl Read, Failure> {
    let mut head = Vec::with_capacity(3);
    (&mut plain).take(3).read_to_end(&mut head).map_err(|error| input_failure(&error))?;
    if head == b"\xef\xbb\xbf" {
        head.clear();
    }
    Ok(io::Cursor::new(head).chain(plain))
}

/// The body could not be read: the client is gone, or the compressed data is broken.
pub(super) fn input_failure(error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::ConnectionAborted => Failure::new("CANCELLED", error.to_string()),
        _ => Failure::new("INTERNAL_ERROR", format!("failed to read the body: {error}")),
    }
}
