//! Reads the snapshot and the windows, one after the other, into one channel.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use arrow::array::AsArray;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::record_batch::RecordBatch;
use async_trait::async_trait;
use datafusion::physical_plan::metrics::{Count, Gauge, Time};
use futures::StreamExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::mpsc::Sender;
use tokio::time::Instant;

use super::control::{Armed, ChangelogControl, Piece, Progress, Work};
use super::decode::{WindowDecoder, metadata_field};
use super::idle::{IdleWatch, Look};
use super::offsets::Offsets;
use super::row_kind::RowKind;
use super::server::{ChangelogServer, Rows};
use super::visibility;
use super::window::{Step, Window, WindowPlanner, closed_second};
use crate::checkpoint::{Epoch, EpochSource, SourcePosition};
use crate::error::{Error, Result};
use crate::options::{BoundedMode, MetadataColumn, OnExpired};
use crate::scan::Conformer;
use crate::sql::{ChangelogSelect, HiddenColumns, IncrementType};
use crate::types::{DorisType, LocalTime, TableIdent};

/// By how much net changes stay behind the server's time: the second after a window's end must be over before it can
/// be seen whether anything was committed at the end itself.
const NET_CHANGES_LAG_MS: i64 = 1000;

pub(super) type Output = Sender<datafusion::error::Result<RecordBatch>>;

/// What a changelog read is: everything but live connections.
#[derive(Debug, Clone)]
pub(crate) struct ChangelogSpec {
    pub table: TableIdent,
    /// Columns read, in the order of `schema` without its last field.
    pub columns: Arc<[String]>,
    /// Doris types of `columns`.
    pub types: Arc<[DorisType]>,
    /// Key columns of the table, by name.
    pub key: Arc<[String]>,
    /// Their types.
    pub key_types: Arc<[DorisType]>,
    /// The names of the hidden columns; `None`: found by probing.
    pub hidden: Option<HiddenColumns>,
    /// Metadata columns, which follow `columns`.
    pub metadata: Arc<[MetadataColumn]>,
    /// What the reader gives: the columns read, the metadata, then the change kind.
    pub schema: SchemaRef,
    /// The snapshot first.
    pub snapshot: bool,
    /// The server reads the table as it was: the snapshot shows the instant at which the changes begin.
    pub exact_snapshot: bool,
    /// First instant of the changes, in the server's time zone; `None`: now.
    pub start: Option<LocalTime>,
    /// Where the read ends; `None`: never.
    pub end: Option<BoundedMode>,
    pub increment_type: IncrementType,
    pub poll_interval: Duration,
    pub max_window: Duration,
    pub visible_wait_timeout: Duration,
    /// How long the table keeps its changes.
    pub time_to_live: Option<Duration>,
    pub on_expired: OnExpired,
}

impl ChangelogSpec {
    pub fn select<'a>(
        &'a self,
        columns: &'a [&'a str],
        hidden: &'a HiddenColumns,
        window: Window,
    ) -> ChangelogSelect<'a> {
        // One second more at the start, see `window`; not before 1970, which a server refuses.
        let earlier = window.start_ms.saturating_sub(1000);
        let start_ms = match self.increment_type {
            IncrementType::MinDelta => window.start_ms,
            _ if earlier < 0 => window.start_ms,
            IncrementType::Detail | IncrementType::AppendOnly => earlier,
        };
        ChangelogSelect {
            table: &self.table,
            columns,
            hidden,
            start_ms,
            end_ms: window.end_ms,
            increment_type: self.increment_type,
            key: &self.key,
        }
    }

    pub fn kind_index(&self) -> usize {
        self.columns.len() + self.metadata.len()
    }

    /// Turns wire batches into the columns read, without the change kind.
    pub(super) fn conformer(&self) -> Result<Conformer> {
        let columns: Vec<usize> = (0..self.columns.len()).collect();
        Ok(Conformer::new(self.table.to_string(), Arc::new(self.schema.project(&columns)?), Arc::clone(&self.types)))
    }
}

/// Figures of a read, registered once per node.
#[derive(Debug, Clone)]
pub(super) struct ReadMetrics {
    pub windows: Count,
    /// Polls that a look at the partitions' versions ended.
    pub idle_polls: Count,
    pub visible_wait_retries: Count,
    /// Position, epoch milliseconds.
    pub position_ms: Gauge,
    /// The server's time less the position, at the last poll.
    pub lag_ms: Gauge,
    /// Time between the question for the server's time and its answer.
    pub poll_time: Time,
    /// Rows by kind, in the order of [`RowKind::ALL`].
    pub rows: [Count; 4],
}

impl ReadMetrics {
    pub fn count(&self, rows: &RecordBatch) {
        let Some(kinds) = rows.columns().last().and_then(|kinds| kinds.as_string_opt::<i32>()) else { return };
        let mut counts = [0; RowKind::ALL.len()];
        for found in kinds.iter().flatten() {
            // Looked at once for all kinds.
            if let Some(at) = RowKind::ALL.iter().position(|kind| kind.as_str() == found) {
                counts[at] += 1;
            }
        }
        for (count, rows) in self.rows.iter().zip(counts) {
            count.add(rows);
        }
    }
}

/// Warnings that were given, each once.
#[derive(Debug, Default)]
pub(super) struct Warned {
    pub half_gone: AtomicBool,
    pub old: AtomicBool,
}

/// Reads a changelog: once and free-running, or as a source of epochs.
#[derive(Debug, Clone)]
pub(super) struct Reader {
    pub server: Arc<dyn ChangelogServer>,
    pub spec: Arc<ChangelogSpec>,
    pub control: Arc<ChangelogControl>,
    /// The spelling of the hidden columns, found once.
    pub hidden: Arc<tokio::sync::OnceCell<HiddenColumns>>,
    pub warned: Arc<Warned>,
    pub idle: Arc<IdleWatch>,
    /// What the read is, for checkpoints.
    pub facts: Arc<[(String, String)]>,
    /// FE addresses of the cluster read.
    pub fenodes: Arc<[String]>,
    /// Where the position is published, if anywhere.
    pub offsets: Option<Arc<Offsets>>,
    pub metrics: ReadMetrics,
}

#[async_trait]
impl EpochSource for Reader {
    fn table(&self) -> String {
        self.spec.table.to_string()
    }

    fn facts(&self) -> Vec<(String, String)> {
        self.facts.to_vec()
    }

    fn nodes(&self) -> Vec<String> {
        self.fenodes.to_vec()
    }

    async fn restore(&self, position: &SourcePosition, by_key: bool) -> Result<()> {
        self.restore_position(position, by_key).await
    }

    fn has_backlog(&self) -> bool {
        self.control.has_backlog()
    }

    async fn wanted(&self) {
        self.control.wanted().await;
    }

    async fn stopped(&self) {
        self.control.stopped().await;
    }

    fn begin_epoch(&self, epoch: Epoch) {
        self.control.begin_epoch(epoch);
    }

    async fn arm(&self) -> Result<bool> {
        let armed = tokio::select! {
            biased;
            () = self.control.stopped() => None,
            armed = self.next_piece(self.control.current()) => armed?,
        };
        let is_armed = armed.is_some();
        if let Some(armed) = armed {
            self.control.arm(armed);
        }
        Ok(is_armed)
    }

    fn piece_done(&self) {
        if let Some(Progress::Changes(planner)) = self.control.piece_done() {
            self.show_position(&planner);
        }
    }

    fn position(&self) -> SourcePosition {
        self.control.position()
    }

    fn epoch_committed(&self, _epoch: Epoch) {
        self.control.epoch_committed();
        if let (Some(offsets), Some(next_ms)) = (&self.offsets, self.control.status().position.changelog_ms()) {
            offsets.publish(next_ms);
        }
    }

    async fn closed(&self) {
        if let Some(offsets) = &self.offsets {
            offsets.flush().await;
        }
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
    ///
    /// A free-running read notes each position in `passed` and sends an empty batch behind the rows before it: whoever
    /// takes that batch has taken the rows.
    pub async fn run(self, work: Work, passed: Arc<Mutex<VecDeque<i64>>>, output: Output) -> Result<()> {
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
                    self.control.set_current(then.clone());
                    if let Progress::Changes(planner) = &then {
                        self.show_position(planner);
                    }
                    if let (Some(_), Progress::Changes(planner)) = (&self.offsets, &then) {
                        passed.lock().push_back(planner.next_ms());
                        let empty = RecordBatch::new_empty(Arc::clone(&self.spec.schema));
                        if output.send(Ok(empty)).await.is_err() {
                            return Ok(());
                        }
                    }
                    progress = then;
                }
            }
        }
    }

    /// Waits for the next piece and fixes its end; `None` when the bound is reached.
    async fn next_piece(&self, progress: Progress) -> Result<Option<Armed>> {
        self.plan_piece(progress).await.map_err(|error| self.explain(error))
    }

    async fn plan_piece(&self, progress: Progress) -> Result<Option<Armed>> {
        let progress = match progress {
            Progress::Start => {
                let (planner, resumed) = self.start().await?;
                let progress = match self.spec.snapshot && !resumed {
                    true => Progress::Snapshot { then: planner, done: [].into() },
                    false => Progress::Changes(planner),
                };
                self.control.started(progress.clone());
                progress
            }
            progress => progress,
        };
        let planner = match progress {
            Progress::Changes(planner) => planner,
            Progress::Start => return Ok(None),
            Progress::Snapshot { then, done } => match self.snapshot_piece(then, done).await? {
                Some(armed) => return Ok(Some(armed)),
                None => then,
            },
        };
        self.show_position(&planner);
        while !planner.is_done() {
            self.control.poll_due(&planner, self.spec.poll_interval).await;
            let Look::Poll(versions) = self.look(&planner).await else { continue };
            let server_ms = self.server_ms().await?;
            self.looked(versions, server_ms);
            let now_ms = self.usable(server_ms);
            self.control.asked(now_ms);
            self.metrics.lag_ms.set(usize::try_from(server_ms - planner.next_ms()).unwrap_or_default());
            let mut window = match planner.step(&self.spec.table, now_ms)? {
                Step::Done => break,
                Step::Wait => continue,
                Step::Read(window) => window,
            };
            self.check_retention(window.start_ms, server_ms).await?;
            if self.spec.increment_type == IncrementType::MinDelta && planner.bound_ms() != Some(window.end_ms) {
                let closed_ms = closed_second(now_ms);
                let latest_ms = planner.bound_ms().map_or(closed_ms, |bound_ms| closed_ms.min(bound_ms - 1000));
                match self.clear_edge(window, latest_ms).await? {
                    Some(end_ms) => window.end_ms = end_ms,
                    None => {
                        // Nothing to read until another second is over.
                        self.control.asked(planner.next_ms());
                        continue;
                    }
                }
            }
            let mut then = planner;
            then.advance(window)?;
            return Ok(Some(Armed { piece: Piece::Window(window), then: Progress::Changes(then) }));
        }
        Ok(None)
    }

    /// The server's time, in epoch milliseconds.
    pub(super) async fn server_ms(&self) -> Result<i64> {
        let timer = self.metrics.poll_time.timer();
        let now_ms = self.when_ready(|| self.server.now_ms()).await?;
        timer.done();
        Ok(now_ms)
    }

    /// The time up to which windows may end when the server's time is `server_ms`.
    pub(super) fn usable(&self, server_ms: i64) -> i64 {
        match self.spec.increment_type {
            IncrementType::MinDelta => server_ms - NET_CHANGES_LAG_MS,
            IncrementType::Detail | IncrementType::AppendOnly => server_ms,
        }
    }

    pub(super) fn error(&self, reason: impl Into<String>) -> Error {
        Error::Changelog { table: self.spec.table.to_string(), reason: reason.into() }
    }

    async fn read(&self, piece: Piece, output: &Output) -> Result<()> {
        match piece {
            Piece::Snapshot { as_of, tablets } => self.read_snapshot(as_of, &tablets, output).await,
            Piece::Window(window) => {
                self.read_window(window, output).await.map_err(|error| self.explain(error))?;
                self.metrics.windows.add(1);
                let Window { start_ms, end_ms } = window;
                tracing::debug!(table = %self.spec.table, start_ms, end_ms, "window is read");
                Ok(())
            }
        }
    }

    fn show_position(&self, planner: &WindowPlanner) {
        self.metrics.position_ms.set(usize::try_from(planner.next_ms()).unwrap_or_default());
    }

    async fn read_window(&self, window: Window, output: &Output) -> Result<()> {
        let hidden = self.hidden_names(window).await?;
        let columns: Vec<&str> = self.spec.columns.iter().map(String::as_str).collect();
        let sql = self.spec.select(&columns, hidden, window).to_sql()?;
        let Rows { schema, parts, mut batches } = self.query_when_visible(&sql).await?;
        // Now, not when the rows were taken: the server has begun with what it had.
        self.check_still_kept(window).await?;
        let mut decoder = WindowDecoder::new(&self.spec, hidden, window, &schema)?;
        if parts > 1 {
            // The server sorted the whole, but handed it out in parts: put it together again.
            let mut all = Vec::new();
            while let Some(batch) = batches.next().await {
                all.push(batch?);
            }
            if let Some(sorted) = decoder.sort(all)? {
                let rows = decoder.decode(&sorted)?;
                self.metrics.count(&rows);
                // A batch without rows marks a position.
                if rows.num_rows() > 0 {
                    output.send(Ok(rows)).await.ok();
                }
            }
            return Ok(());
        }
        while let Some(batch) = batches.next().await {
            let batch = decoder.decode(&batch?)?;
            self.metrics.count(&batch);
            if batch.num_rows() > 0 && output.send(Ok(batch)).await.is_err() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Runs a statement over the table; see [`Self::when_ready`].
    pub(super) async fn query_when_visible(&self, sql: &str) -> Result<Rows> {
        self.when_ready(|| self.server.query(sql)).await
    }

    /// Asks; waits and asks the same again while the transactions of the window are not visible yet, or the server has
    /// no timestamps yet.
    async fn when_ready<'a, T>(&self, ask: impl Fn() -> BoxFuture<'a, Result<T>>) -> Result<T> {
        let started = Instant::now();
        let (mut pause, longest) = visibility::PAUSE;
        loop {
            let error = match ask().await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            let left = self.spec.visible_wait_timeout.saturating_sub(started.elapsed());
            let asked_for = match visibility::asks_again(&error) {
                None => return Err(error),
                Some(_) if left.is_zero() => return Err(self.not_visible(&error)),
                Some(asked_for) => asked_for,
            };
            tracing::debug!(table = %self.spec.table, %error, "not ready yet");
            self.metrics.visible_wait_retries.add(1);
            tokio::time::sleep(pause.max(asked_for).min(left)).await;
            pause = (pause * 2).min(longest);
        }
    }
}

/// The schema of a read: `fields`, the metadata and the change kind.
pub(crate) fn read_schema(fields: Vec<Field>, metadata: &[MetadataColumn], kind_column: &str) -> SchemaRef {
    let kind = Field::new(kind_column, DataType::Utf8, false);
    let metadata = metadata.iter().map(|column| metadata_field(*column));
    Arc::new(Schema::new(fields.into_iter().chain(metadata).chain([kind]).collect::<Vec<_>>()))
}
