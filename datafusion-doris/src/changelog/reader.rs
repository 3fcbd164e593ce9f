//! Reads the snapshot and the windows, one after the other, into one channel.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use arrow::array::{ArrayRef, UInt32Array};
use arrow::compute::{
    CastOptions, SortColumn, cast_with_options, concat_batches, lexsort_to_indices, take_record_batch,
};
use arrow::datatypes::{DataType, Schema, SchemaRef};
use arrow::record_batch::RecordBatch;
use async_trait::async_trait;
use datafusion::physical_plan::metrics::{Count, Gauge};
use futures::StreamExt;
use tokio::sync::mpsc::Sender;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::control::{Armed, ChangelogControl, Piece, Progress, Work};
use super::row_kind::{ResultColumns, RowKind, constant_kinds, decode_kinds};
use super::server::{ChangelogServer, Rows};
use super::window::{Step, Window, WindowPlanner, closed_second, covering_second};
use crate::checkpoint::{Epoch, EpochSource, SourcePosition};
use crate::error::{Error, Result};
use crate::scan::Conformer;
use crate::sql::{ChangelogSelect, HiddenColumns, IncrementType};
use crate::types::{DorisType, TableIdent};

/// Statements of one snapshot that are read at the same time.
const SNAPSHOT_PARALLELISM: usize = 4;
/// First and longest pause between two tries of a window whose transactions are not visible yet.
const VISIBLE_WAIT_PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(5));

type Output = Sender<datafusion::error::Result<RecordBatch>>;

/// What a changelog read is: everything but live connections.
#[derive(Debug, Clone)]
pub(crate) struct ChangelogSpec {
    pub table: TableIdent,
    /// Columns read, in the order of `schema` without its last field.
    pub columns: Arc<[String]>,
    /// Doris types of `columns`.
    pub types: Arc<[DorisType]>,
    /// What the reader gives: the columns read, then the change kind.
    pub schema: SchemaRef,
    /// The snapshot first.
    pub snapshot: bool,
    /// Ends when everything committed before the start was read.
    pub bounded: bool,
    pub poll_interval: Duration,
    pub visible_wait_timeout: Duration,
}

impl ChangelogSpec {
    pub fn select<'a>(
        &'a self,
        columns: &'a [&'a str],
        hidden: &'a HiddenColumns,
        window: Window,
    ) -> ChangelogSelect<'a> {
        ChangelogSelect {
            table: &self.table,
            columns,
            hidden,
            start_ms: window.start_ms,
            end_ms: window.end_ms,
            increment_type: IncrementType::Detail,
        }
    }

    /// Turns wire batches into the columns read, without the change kind.
    fn conformer(&self) -> Result<Conformer> {
        let columns: Vec<usize> = (0..self.columns.len()).collect();
        Ok(Conformer::new(self.table.to_string(), Arc::new(self.schema.project(&columns)?), Arc::clone(&self.types)))
    }
}

/// Figures of a read, registered once per node.
#[derive(Debug, Clone)]
pub(super) struct ReadMetrics {
    pub windows: Count,
    pub visible_wait_retries: Count,
    pub position_ms: Gauge,
}

/// Reads a changelog: once and free-running, or as a source of epochs.
#[derive(Debug, Clone)]
pub(super) struct Reader {
    pub server: Arc<dyn ChangelogServer>,
    pub spec: Arc<ChangelogSpec>,
    pub control: Arc<ChangelogControl>,
    /// The spelling of the hidden columns, found once.
    pub hidden: Arc<tokio::sync::OnceCell<HiddenColumns>>,
    pub metrics: ReadMetrics,
}

#[async_trait]
impl EpochSource for Reader {
    fn begin_epoch(&self, epoch: Epoch) {
        self.control.begin_epoch(epoch);
    }

    async fn arm(&self) -> Result<bool> {
        let armed = tokio::select! {
            biased;
            () = self.control.stopped() => None,
            armed = self.next_piece(self.control.current()) => armed?,
        };
        if let Some(armed) = armed {
            self.control.arm(armed);
        }
        Ok(armed.is_some())
    }

    fn piece_done(&self) {
        if let Some(planner) = self.control.piece_done() {
            self.show_position(&planner);
        }
    }

    fn position(&self) -> SourcePosition {
        self.control.position()
    }

    fn epoch_committed(&self, _epoch: Epoch) {
        self.control.epoch_committed();
    }

    fn epoch_aborted(&self, _epoch: Epoch) {
        self.control.epoch_aborted();
    }

    fn finished(&self) -> bool {
        self.control.finished()
    }

    fn stop(&self) {
        self.control.stop();
    }

    fn epoch_written(&self, _epoch: Epoch, rows: u64) {
        self.control.epoch_written(rows);
    }
}

impl Reader {
    /// Does `work`, sending conformed batches (with all kinds, unfiltered) to `output`. Returns early without error
    /// when nobody listens any more.
    pub async fn run(self, work: Work, output: Output) -> Result<()> {
        match work {
            Work::Epoch(None) => Ok(()),
            // The piece is counted as read by the coordinator, so it is read whatever happens meanwhile.
            Work::Epoch(Some(piece)) => self.read(piece, &output).await,
            Work::All => {
                let mut progress = Progress::Start;
                loop {
                    let armed = tokio::select! {
                        biased;
                        () = output.closed() => None,
                        () = self.control.stopped() => None,
                        armed = self.next_piece(progress) => armed?,
                    };
                    let Some(Armed { piece, then }) = armed else { return Ok(()) };
                    self.read(piece, &output).await?;
                    self.advanced_to(&then);
                    progress = Progress::Changes(then);
                }
            }
        }
    }

    /// Waits for the next piece and fixes its end; `None` when the bound is reached.
    async fn next_piece(&self, progress: Progress) -> Result<Option<Armed>> {
        let planner = match progress {
            Progress::Changes(planner) => planner,
            Progress::Start => {
                let planner = self.start().await?;
                if self.spec.snapshot {
                    return Ok(Some(Armed { piece: Piece::Snapshot, then: planner }));
                }
                self.advanced_to(&planner);
                planner
            }
        };
        while !planner.is_done() {
            self.control.poll_due(&planner, self.spec.poll_interval).await;
            let now_ms = self.server.now_ms().await?;
            self.control.asked(now_ms);
            match planner.step(&self.spec.table, now_ms)? {
                Step::Done => break,
                Step::Wait => {}
                Step::Read(window) => {
                    let mut then = planner;
                    then.advance(window)?;
                    return Ok(Some(Armed { piece: Piece::Window(window), then }));
                }
            }
        }
        Ok(None)
    }

    async fn read(&self, piece: Piece, output: &Output) -> Result<()> {
        match piece {
            Piece::Snapshot => self.read_snapshot(output).await,
            Piece::Window(window) => {
                self.read_window(window, output).await?;
                self.metrics.windows.add(1);
                Ok(())
            }
        }
    }

    fn advanced_to(&self, planner: &WindowPlanner) {
        self.control.set_current(Progress::Changes(*planner));
        self.show_position(planner);
    }

    fn show_position(&self, planner: &WindowPlanner) {
        self.metrics.position_ms.set(usize::try_from(planner.next_ms()).unwrap_or_default());
    }

    /// Fixes the first window's start, before any snapshot, and makes sure that nothing before it is still on its
    /// way: reading the second before it waits for the transactions that may belong to it.
    async fn start(&self) -> Result<WindowPlanner> {
        let now_ms = self.server.now_ms().await?;
        let start_ms = closed_second(now_ms);
        let fence = Window { start_ms: start_ms - 1000, end_ms: start_ms };
        let hidden = self.hidden_names(fence).await?;
        let mut rows = self.query_when_visible(&self.spec.select(&[], hidden, fence).to_sql()?).await?;
        while let Some(batch) = rows.batches.next().await {
            batch?;
        }
        let bound_ms = self.spec.bounded.then(|| covering_second(now_ms));
        tracing::debug!(table = %self.spec.table, start_ms, ?bound_ms, "changelog starts");
        Ok(WindowPlanner::new(start_ms).with_bound(bound_ms))
    }

    /// The spelling of the hidden columns that this server knows, found by a query without rows.
    async fn hidden_names(&self, window: Window) -> Result<&HiddenColumns> {
        let probe = async || {
            let mut first = None;
            for hidden in HiddenColumns::candidates() {
                let sql = self.spec.select(&[], &hidden, window).probe_sql()?;
                match self.query_when_visible(&sql).await {
                    Ok(mut rows) => {
                        while let Some(batch) = rows.batches.next().await {
                            batch?;
                        }
                        return Ok(hidden);
                    }
                    Err(error @ Error::Server { .. }) => {
                        first.get_or_insert(error);
                    }
                    Err(error) => return Err(error),
                }
            }
            let reason = match first {
                Some(error) => format!("it cannot be read: {error}"),
                None => "no spelling of its hidden columns is known".into(),
            };
            Err(Error::Changelog { table: self.spec.table.to_string(), reason })
        };
        self.hidden.get_or_try_init(probe).await
    }

    /// All rows of now, as inserts; a few statements at a time, in no order.
    async fn read_snapshot(&self, output: &Output) -> Result<()> {
        let statements: Arc<[String]> = self.server.snapshot_statements().await?.into();
        let next = Arc::new(AtomicUsize::new(0));
        let mut workers = JoinSet::new();
        for _ in 0..SNAPSHOT_PARALLELISM.min(statements.len()) {
            let (server, spec, output) = (Arc::clone(&self.server), Arc::clone(&self.spec), output.clone());
            let (statements, next) = (Arc::clone(&statements), Arc::clone(&next));
            workers.spawn(async move {
                while let Some(sql) = statements.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let rows = server.query(sql).await?;
                    if !send_snapshot(&spec, rows, &output).await? {
                        break;
                    }
                }
                Ok::<_, Error>(())
            });
        }
        while let Some(finished) = workers.join_next().await {
            match finished {
                Ok(result) => result?,
                Err(panic) => {
                    return Err(Error::Changelog {
                        table: self.spec.table.to_string(),
                        reason: format!("a snapshot reader stopped: {panic}"),
                    });
                }
            }
        }
        Ok(())
    }

    async fn read_window(&self, window: Window, output: &Output) -> Result<()> {
        let hidden = self.hidden_names(window).await?;
        let columns: Vec<&str> = self.spec.columns.iter().map(String::as_str).collect();
        let sql = self.spec.select(&columns, hidden, window).to_sql()?;
        let Rows { schema, parts, mut batches } = self.query_when_visible(&sql).await?;
        let mut decoder = WindowDecoder::new(&self.spec, &schema)?;
        if parts > 1 {
            // The server sorted the whole, but handed it out in parts: put it together again.
            let mut all = Vec::new();
            while let Some(batch) = batches.next().await {
                all.push(batch?);
            }
            if let Some(sorted) = decoder.sort(all)? {
                output.send(Ok(decoder.decode(&sorted)?)).await.ok();
            }
            return Ok(());
        }
        while let Some(batch) = batches.next().await {
            let batch = decoder.decode(&batch?)?;
            if batch.num_rows() > 0 && output.send(Ok(batch)).await.is_err() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Runs a statement over a window; waits and asks the same again while its transactions are not visible yet.
    async fn query_when_visible(&self, sql: &str) -> Result<Rows> {
        let started = Instant::now();
        let (mut pause, longest) = VISIBLE_WAIT_PAUSE;
        loop {
            let error = match self.server.query(sql).await {
                Ok(rows) => return Ok(rows),
                Err(error) => error,
            };
            let left = self.spec.visible_wait_timeout.saturating_sub(started.elapsed());
            if !waits_for_visibility(&error) || left.is_zero() {
                return Err(error);
            }
            tracing::debug!(table = %self.spec.table, %error, "window is not visible yet");
            self.metrics.visible_wait_retries.add(1);
            tokio::time::sleep(pause.min(left)).await;
            pause = (pause * 2).min(longest);
        }
    }
}

async fn send_snapshot(spec: &ChangelogSpec, mut rows: Rows, output: &Output) -> Result<bool> {
    let mut conformer = spec.conformer()?;
    while let Some(batch) = rows.batches.next().await {
        let batch = conformer.conform(&batch?)?;
        if batch.num_rows() == 0 {
            continue;
        }
        let mut columns = batch.columns().to_vec();
        columns.push(constant_kinds(RowKind::Insert, batch.num_rows()));
        let batch = RecordBatch::try_new(Arc::clone(&spec.schema), columns)?;
        if output.send(Ok(batch)).await.is_err() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Turns the batches of one window into rows with a change kind.
struct WindowDecoder<'a> {
    spec: &'a ChangelogSpec,
    columns: Option<(SchemaRef, ResultColumns)>,
    conformer: Conformer,
}

impl<'a> WindowDecoder<'a> {
    /// `planned` is checked at once, so that a window without rows is validated too.
    fn new(spec: &'a ChangelogSpec, planned: &SchemaRef) -> Result<Self> {
        let mut decoder = Self { spec, columns: None, conformer: spec.conformer()? };
        if !planned.fields().is_empty() {
            decoder.locate(planned)?;
        }
        Ok(decoder)
    }

    fn locate(&mut self, schema: &SchemaRef) -> Result<&ResultColumns> {
        if self.columns.as_ref().is_none_or(|(known, _)| known != schema) {
            let found = ResultColumns::locate(&self.spec.table, schema, self.spec.columns.len())?;
            self.columns = Some((Arc::clone(schema), found));
        }
        match &self.columns {
            Some((_, columns)) => Ok(columns),
            None => Err(Error::Changelog { table: self.spec.table.to_string(), reason: "no result schema".into() }),
        }
    }

    fn decode(&mut self, batch: &RecordBatch) -> Result<RecordBatch> {
        let columns = self.locate(batch.schema_ref())?.clone();
        let kinds = decode_kinds(&self.spec.table, batch.column(columns.operation))?;
        let rows = self.conformer.conform(&batch.project(&columns.business)?)?;
        let mut values = rows.columns().to_vec();
        values.push(kinds);
        Ok(RecordBatch::try_new(Arc::clone(&self.spec.schema), values)?)
    }

    /// All rows of a window ordered by TSO, LSN and operation.
    fn sort(&mut self, batches: Vec<RecordBatch>) -> Result<Option<RecordBatch>> {
        let Some(first) = batches.first() else { return Ok(None) };
        let schema = first.schema();
        let columns = self.locate(&schema)?.clone();
        let all = concat_batches(&schema, &batches)?;
        let key = |index: usize| -> Result<SortColumn> {
            // LSN may come as the text of a 128 bit integer, of up to 39 digits: compare numbers, not texts, and
            // never take one that is no number for NULL.
            let exact = CastOptions { safe: false, ..CastOptions::default() };
            let values: ArrayRef = cast_with_options(all.column(index), &DataType::Decimal256(76, 0), &exact)?;
            Ok(SortColumn { values, options: None })
        };
        let order: UInt32Array =
            lexsort_to_indices(&[key(columns.tso)?, key(columns.lsn)?, key(columns.operation)?], None)?;
        Ok(Some(take_record_batch(&all, &order)?))
    }
}

/// True for the errors by which a server says: ask again, transactions of the window are not visible yet.
fn waits_for_visibility(error: &Error) -> bool {
    const CODES: [u32; 2] = [5100, 5101];
    const TEXTS: [&str; 8] = [
        "timeout waiting transaction become visible for time-based read",
        "timeout waiting previous transactions finish for time-based read",
        "timeout synchronizing visible versions for time-based read",
        "timeout waiting follower journal replay for time-based read",
        "endTimestamp exceeds the maximum supported time for an INCR read",
        "TSO timestamp is not calibrated",
        "ERR_INCR_WINDOW_NOT_READY",
        "ERR_INCR_VISIBLE_WAIT_TIMEOUT",
    ];
    match error {
        Error::Server { code, message, .. } => {
            code.is_some_and(|code| CODES.contains(&code)) || TEXTS.iter().any(|text| message.contains(text))
        }
        _ => false,
    }
}

/// The schema of a read: `fields` and the change kind.
pub(crate) fn read_schema(fields: Vec<arrow::datatypes::Field>, kind_column: &str) -> SchemaRef {
    let kind = arrow::datatypes::Field::new(kind_column, DataType::Utf8, false);
    Arc::new(Schema::new(fields.into_iter().chain([kind]).collect::<Vec<_>>()))
}
