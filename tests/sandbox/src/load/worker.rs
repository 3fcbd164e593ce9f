//! The blocking half of a load: reads the body, writes batches, ends the transaction.

use std::borrow::Cow;
use std::io::{self, BufReader, Read};
use std::sync::Arc;
use std::time::{Duration, Instant};

use flate2::bufread::MultiGzDecoder;

use super::csv::{Fields, Records};
use super::error_log::ErrorRows;
use super::header::{CsvOptions, Format, LoadHead, LoadPlan};
use super::input::BodyReader;
use super::json::{JsonError, Scanner, Value};
use super::reply::{Failure, RowCounts};
use super::rows::{RowBatch, Targets};
use super::{add, arrow};
use crate::engine::Engine;
use crate::txn::LoadTxn;

/// `streaming_load_json_max_mb` in bytes: a document that is not read by line is held whole.
const MAX_JSON_BYTES: u64 = 100 * 1024 * 1024;

/// One load with its transaction.
pub(super) struct Job {
    pub engine: Arc<Engine>,
    pub txn: LoadTxn,
    pub head: LoadHead,
    pub plan: LoadPlan,
    pub targets: Targets,
}

/// What a job came to.
pub(super) struct Done {
    pub outcome: Result<(), Failure>,
    pub rows: RowCounts,
    pub errors: ErrorRows,
    pub read: Duration,
    pub write: Duration,
    pub commit: Duration,
}

/// Counters of a running job, and where its rows go.
pub(super) struct Progress<'a> {
    engine: &'a Engine,
    txn: &'a LoadTxn,
    pub rows: RowCounts,
    pub errors: ErrorRows,
    write: Duration,
}

impl Progress<'_> {
    pub fn write(&mut self, batch: ::arrow::array::RecordBatch) -> Result<(), Failure> {
        let since = Instant::now();
        let written = self.engine.write_load(self.txn, batch).map_err(Failure::from);
        add(&mut self.write, since);
        for refused in written? {
            self.filter(&refused.reason, "");
        }
        Ok(())
    }

    pub fn filter(&mut self, reason: &str, row: &str) {
        self.rows.filtered += 1;
        self.errors.push(reason, row);
    }
}

impl Job {
    /// Reads `body` to its end and commits, pre-commits or aborts.
    pub fn run(self, body: BodyReader) -> Done {
        let started = Instant::now();
        let mut progress = Progress {
            engine: &self.engine,
            txn: &self.txn,
            rows: RowCounts::default(),
            errors: ErrorRows::default(),
            write: Duration::ZERO,
        };
        let read = self.read(body, &mut progress).and_then(|()| {
            if progress.rows.exceeds(self.plan.max_filter_ratio) {
                return Err(Failure::new("DATA_QUALITY_ERROR", "too many filtered rows"));
            }
            Ok(())
        });
        let Progress { mut rows, errors, write, .. } = progress;
        let mut done = Done {
            outcome: Ok(()),
            rows,
            errors,
            read: started.elapsed().saturating_sub(write),
            write,
            commit: Duration::ZERO,
        };
        let commit = Instant::now();
        done.outcome = match read {
            Ok(()) => self.engine.finish_load(self.txn, self.head.two_phase).map(drop).map_err(Failure::from),
            Err(failure) => {
                if failure.code != "DATA_QUALITY_ERROR" {
                    rows = RowCounts::default();
                }
                done.rows = rows;
                self.engine.abort_load(self.txn, &failure.message);
                Err(failure)
            }
        };
        done.commit = commit.elapsed();
        done
    }

    fn read(&self, mut body: BodyReader, progress: &mut Progress<'_>) -> Result<(), Failure> {
        // A probe for a label sends no bytes at all, not even a gzip header.
        if !body.wait().map_err(|e| input_failure(&e))? {
            return Ok(());
        }
        let plain: Box<dyn Read> = if self.head.gzip {
            Box::new(MultiGzDecoder::new(BufReader::with_capacity(128 * 1024, body)))
        } else {
            Box::new(body)
        };
        let zone = match &self.plan.timezone {
            None => self.engine.config().time_zone.parse(),
            Some(name) => name.parse(),
        }
        .map_err(|e: String| Failure::new("INVALID_ARGUMENT", e))?;
        let targets = Arc::new(self.targets.clone());
        match self.head.format {
            Format::Arrow => arrow::read(plain, &targets, &self.plan, zone, progress),
            Format::Csv { header_lines } => {
                let mut batch = RowBatch::new(targets, self.plan.strict_mode, zone);
                // skip_lines is ignored when the format itself says how many lines are names.
                let skip = if header_lines > 0 { header_lines } else { self.plan.csv.skip_lines };
                self.read_csv(plain, skip, &mut batch, progress)?;
                flush(&mut batch, progress)
            }
            Format::Json => {
                let mut batch = RowBatch::new(targets, self.plan.strict_mode, zone);
                self.read_json(plain, &mut batch, progress)?;
                flush(&mut batch, progress)
            }
        }
    }

    fn read_csv(
        &self,
        input: impl Read,
        mut skip: usize,
        batch: &mut RowBatch,
        progress: &mut Progress<'_>,
    ) -> Result<(), Failure> {
        let options = &self.plan.csv;
        let mut records = Records::new(input);
        let mut fields = Fields::default();
        loop {
            let range = match options.enclose {
                None => records.next(&options.delimiter),
                Some(enclose) => records.next_enclosed(options, enclose),
            };
            let Some(range) = range.map_err(|e| input_failure(&e))? else { return Ok(()) };
            if skip > 0 {
                skip -= 1;
                continue;
            }
            let record = records.bytes(range);
            // An empty line is no row.
            if record.is_empty() {
                continue;
            }
            self.csv_row(record, options, &mut fields, batch, progress);
            if batch.is_full() {
                flush(batch, progress)?;
            }
        }
    }

    fn csv_row(
        &self,
        record: &[u8],
        options: &CsvOptions,
        fields: &mut Fields,
        batch: &mut RowBatch,
        progress: &mut Progress<'_>,
    ) {
        progress.rows.total += 1;
        let Ok(text) = std::str::from_utf8(record) else {
            progress.filter("Only support csv data in utf8 codec", "Unable to display");
            return;
        };
        fields.split(record, options);
        let wanted = self.targets.columns.len();
        if fields.len() != wanted {
            let relation = if fields.len() < wanted { "less" } else { "more" };
            let reason = format!(
                "actual column number in csv file is  {relation} than  schema column number.actual number: {}, schema column number: {wanted}; ",
                fields.len()
            );
            progress.filter(&reason, text);
            return;
        }
        let pushed = batch.push(|i, _| {
            let field = fields.get(i);
            let null = fields.is_null(i) || (options.empty_field_as_null && field.is_empty());
            (!null).then(|| String::from_utf8_lossy(field))
        });
        if let Err(reason) = pushed {
            progress.filter(&reason, text);
        }
    }

    fn read_json(&self, input: impl Read, batch: &mut RowBatch, progress: &mut Progress<'_>) -> Result<(), Failure> {
        if self.plan.json.by_line {
            let mut records = Records::new(input);
            while let Some(range) = records.next(&self.plan.csv.delimiter).map_err(|e| input_failure(&e))? {
                let line = records.bytes(range);
                if !line.iter().all(u8::is_ascii_whitespace) {
                    self.json_document(line, batch, progress)?;
                }
            }
            return Ok(());
        }
        let mut document = Vec::new();
        input.take(MAX_JSON_BYTES + 1).read_to_end(&mut document).map_err(|e| input_failure(&e))?;
        if document.len() as u64 > MAX_JSON_BYTES {
            return Err(Failure::new(
                "INVALID_ARGUMENT",
                format!("json body size exceed BE's conf `streaming_load_json_max_mb` {MAX_JSON_BYTES}"),
            ));
        }
        self.json_document(&document, batch, progress)
    }

    fn json_document(&self, bytes: &[u8], batch: &mut RowBatch, progress: &mut Progress<'_>) -> Result<(), Failure> {
        let Ok(text) = std::str::from_utf8(bytes) else {
            progress.rows.total += 1;
            progress.filter("Parse json data failed, the text is not utf8", "Unable to display");
            return Ok(());
        };
        let mut scanner = Scanner::new(text);
        if !self.plan.json.strip_outer_array {
            self.json_row(&mut scanner, text, true, batch, progress);
            return full_flush(batch, progress);
        }
        if !scanner.enter_array() {
            progress.rows.total += 1;
            progress.filter("JSON data is not an array-object, `strip_outer_array` must be FALSE", text);
            return Ok(());
        }
        let mut first = true;
        loop {
            match scanner.next_element(first) {
                Ok(true) => {}
                Ok(false) => return Ok(()),
                Err(error) => {
                    progress.rows.total += 1;
                    progress.filter(&json_reason(&error), text);
                    return Ok(());
                }
            }
            first = false;
            if !self.json_row(&mut scanner, text, false, batch, progress) {
                // Where the next row would begin is not known.
                return Ok(());
            }
            full_flush(batch, progress)?;
        }
    }

    /// Reads one object; false when the text is not JSON.
    fn json_row(
        &self,
        scanner: &mut Scanner<'_>,
        source: &str,
        whole: bool,
        batch: &mut RowBatch,
        progress: &mut Progress<'_>,
    ) -> bool {
        progress.rows.total += 1;
        let mut values: Vec<Option<Value<'_>>> = vec![None; self.targets.columns.len()];
        let read = scanner.object(|key, value| {
            if let Some(i) = self.targets.index(&key) {
                values[i] = Some(value);
            }
        });
        if let Err(error) = read {
            progress.filter(&json_reason(&error), source);
            return false;
        }
        if whole && !scanner.at_end() {
            progress.filter("Parse json data failed, there is text behind the document", source);
            return false;
        }
        let pushed = batch.push(|i, target| match values[i].take() {
            None => target.default.clone().map(Cow::Owned),
            Some(Value::Null) => None,
            Some(Value::Literal(text) | Value::Nested(text)) => Some(Cow::Borrowed(text)),
            Some(Value::Text(text)) => Some(text),
        });
        if let Err(reason) = pushed {
            progress.filter(&reason, source);
        }
        true
    }
}

fn json_reason(error: &JsonError) -> String {
    format!("Parse json data failed, {} at byte {}", error.what, error.at)
}

fn full_flush(batch: &mut RowBatch, progress: &mut Progress<'_>) -> Result<(), Failure> {
    if batch.is_full() { flush(batch, progress) } else { Ok(()) }
}

fn flush(batch: &mut RowBatch, progress: &mut Progress<'_>) -> Result<(), Failure> {
    match batch.take().map_err(|e| Failure::new("INTERNAL_ERROR", e.to_string()))? {
        Some(rows) => progress.write(rows),
        None => Ok(()),
    }
}

/// The body could not be read: the client is gone, or the compressed data is broken.
fn input_failure(error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::ConnectionAborted => Failure::new("CANCELLED", error.to_string()),
        _ => Failure::new("INTERNAL_ERROR", format!("failed to read the body: {error}")),
    }
}
