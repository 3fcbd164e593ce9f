//! Writing to Doris by Stream Load with two-phase commit.
//!
//! ```text
//! input partitions ─┐ merged,            ┌ encoder ─ compressor ─ chunks ─┐ bounded       ┌ pre-commit ─ commit
//! input partitions ─┤ bounded ── batches ┤ csv, json or arrow             ├ channel ── BE ┤ (visible)
//! input partitions ─┘                    └ no rows: no load               ┘               └ error: abort
//! ```
//!
//! One statement (or one epoch of a continuous one) is one load under one label, so its rows become visible together
//! or not at all. In batch mode (`batch`) it is a series of loads. With `sink.parallelism` several are open at once, see
//! `parallel`: rows of one key are in the same one. None is committed before all are pre-committed, and each is committed
//! by itself.
//!
//! In TVF mode rows take another way, see `tvf`: into an object store, and from there by one statement into the table.

mod batch;
mod body;
mod committer;
mod compress;
mod encoded;
mod encoder;
mod exec;
mod loads;
mod mapping;
mod metrics;
mod output;
mod overwrite;
mod parallel;
mod partition;
mod row_writer;
mod run;
mod statement;
mod target;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests;
mod tvf;
mod upload;
mod writer;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::datasource::sink::DataSink;
use datafusion::error::Result as DataFusionResult;
use datafusion::execution::TaskContext;
use datafusion::physical_plan::metrics::MetricsSet;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, SendableRecordBatchStream};
use parking_lot::Mutex;

use self::committer::Committer;
pub use self::encoded::LoadBody;
use self::encoder::{ArrowPlan, RowLayout, has_nested};
pub use self::exec::DorisSinkExec;
pub use self::loads::DorisLoads;
use self::mapping::{Changes, Mapping};
pub(crate) use self::mapping::{
    LEFT_OUT, check_sign_column, is_delete_sign, is_left_out, is_no_column_of_a_table, no_deletes,
};
use self::metrics::SinkMetrics;
pub use self::metrics::{
    FilteredRows, MissingRows, SINK_METRICS, SinkMetric, UncountedRows, describe_sink_metrics, sink_metrics_table,
};
pub use self::overwrite::{DorisOverwriteExec, Overwrite};
use self::partition::Routing;
use self::run::{LabelSet, Labels, LoadRun};
pub use self::statement::WriteReport;
use self::target::{LoadTarget, Loaded, SettleOnDrop, TaskCount};
use self::tvf::Stage;
use crate::checkpoint::chain::unique;
use crate::checkpoint::{
    AbortOutcome, CommitPermit, Committable, Epoch, EpochSink, Generation, LabelSeries, WriteOutcome,
};
use crate::client::DorisClient;
use crate::error::{Error, Result};
use crate::options::{SinkFormat, SinkOptions, UpdateMode, WriteMode};
use crate::protocol::{DELETE_SIGN, LabelState};
use crate::types::{DorisType, KeyModel, TableIdent, TableSchema};

/// How long the state of a label may stay open, unless the load has its own `timeout`.
const PATIENCE: Duration = Duration::from_secs(600);
/// The same of an INSERT: `insert_timeout` of the server.
const INSERT_PATIENCE: Duration = Duration::from_secs(14_400);

/// A Doris table as a target of rows.
///
/// # Delivery
/// With two-phase commit (the default, but in batch mode only for jobs that keep checkpoints) the rows of a statement become visible together, after all of them were
/// received; an error, or dropping the statement before its commit, makes none of them visible. Without it
/// (`'sink.enable-2pc' = 'false'`) the rows of a load are visible as soon as the server has taken the end of its body,
/// whether or not somebody still waits for the answer. A lost answer is resolved by the state of the load's label, never
/// by sending rows under another label.
///
/// With group commit (`sink.properties.group_commit`, see [`crate::options::GroupCommit`]) a load has no label, so the
/// rows of a lost answer may be in the table or not, and those of a statement that failed midway as well: at-least-once.
///
/// In TVF mode ([`SinkOptions::with_stage`]) rows are staged in an object store, and one INSERT under a label makes them
/// visible, all or none, whatever the parallelism. It is run again, under the same label, while its outcome is not known.
///
/// With `'sink.parallelism'` above 1 a statement is several loads. Rows of one key of a unique or aggregate table are in
/// the same one, in the order of the input; batches of a duplicate table take turns. None is committed before all are
/// pre-committed, but each commit makes its own rows visible. If the server gives a load up between two of them, the
/// error names the loads that are visible and those that are not; an epoch that is recorded in a checkpoint is finished
/// by the next start instead. Without two-phase commit each load is visible by itself, and an error names those that are.
///
/// In batch mode ([`WriteMode::StreamLoadBatch`]) each writer sends a series of loads, one after the other, and their
/// commits keep that order. Without two-phase commit a batch is visible as it lands: a statement that fails leaves those
/// that landed, at least once.
///
/// # Cancellation
/// Dropping the future of a statement cuts the open loads, which the server answers with an abort. From the end of the
/// bodies to the answer of the commit, a task of the client aborts the loads by their labels; where that is not possible
/// any more (the process ends) they are never visible, and the server aborts them after its pre-commit timeout, one hour
/// by default. In TVF mode uploads are aborted and staged objects removed instead. When the commit was on its way, it may win: then the rows are visible, all of them (of several loads, if
/// the process lives on to commit the others).
#[derive(Debug)]
pub struct DorisSink {
    target: Arc<LoadTarget>,
    schema: SchemaRef,
    routing: Routing,
    /// The columns of the target that are written, with their types there.
    written: Vec<String>,
    /// The target has more columns.
    partly: bool,
    update: UpdateMode,
    changes: Changes,
    model: Option<KeyModel>,
    /// `None` = labels of epochs are not repeated by a later process.
    job: Mutex<Option<(String, Generation)>>,
    instance: String,
    /// A run of epochs is open.
    running: AtomicBool,
    /// Runs of epochs so far: each has labels of its own.
    runs: AtomicU64,
    /// The epoch whose labels were used last.
    begun: Mutex<Option<Epoch>>,
}

impl DorisSink {
    /// A sink for rows of `schema`: columns of `target` in any order, found by name, inputs of the expressions of
    /// `sink.properties.columns`, and the change-kind column of `options` if it names one, or `__DORIS_DELETE_SIGN__`.
    /// Columns of the target that are not among them are not sent: they get their defaults, or keep their values in a
    /// partial update.
    ///
    /// The delete sign is sent when there is a change-kind column, the table is of the unique model and
    /// `sink.enable-delete` is on; otherwise a delete in the input is an error.
    ///
    /// # Errors
    /// [`Error::Schema`] for a column that the table does not have, whose type cannot be written, or that must be
    /// written and is missing; [`Error::Config`] for options that contradict each other or the columns;
    /// [`Error::Unsupported`] for deletes or partial updates that the table does not take.
    pub fn try_new(client: DorisClient, target: &TableSchema, schema: SchemaRef, options: SinkOptions) -> Result<Self> {
        let table = target.table.clone();
        let mapping = Mapping::plan(target, &schema, &options)?;
        let is_key = |name: &str| target.column(name).is_some_and(|column| column.key);
        options.check_write_mode()?;
        let staged = options.write_mode == WriteMode::Tvf;
        let flexible = mapping.update == UpdateMode::FlexibleColumns;
        let mut body = mapping.body.clone();
        let written = if staged && tvf::keeps_positions(target)? {
            body.push((schema.fields().len(), tvf::POSITION.to_string()));
            tvf::positioned(&schema)
        } else {
            Arc::clone(&schema)
        };
        let layout = RowLayout::try_new(&table, &written, body, mapping.changes, mapping.delete_sign)?
            .ignoring_update_before(options.ignore_update_before.unwrap_or(true))
            .ordered_by(mapping.sequence)
            .leaving_out_nulls(flexible)
            .with_keys(is_key)
            .with_not_null(|name| mapping.not_null.iter().any(|column| column == name));
        let format = match options.format {
            Some(format) => format,
            None if staged || flexible || has_nested(&schema) => SinkFormat::Json,
            None => SinkFormat::Csv,
        };
        options.check_compression(format)?;
        options.check_group_commit()?;
        mapping.check_format(target, &options, format)?;
        let arrow = match format {
            SinkFormat::Arrow => {
                let type_of = |name: &str| mapping.type_in_body(target, name);
                let compression = options.compression_of(format);
                Some(Arc::new(ArrowPlan::try_new(layout.clone(), &schema, type_of, compression)?))
            }
            SinkFormat::Parquet => {
                let type_of = |name: &str| match target.column(name) {
                    None if name == tvf::POSITION => Some(&DorisType::BigInt),
                    column => column.map(|column| &column.doris_type),
                };
                Some(Arc::new(ArrowPlan::of_files(layout.clone(), &written, type_of)?))
            }
            SinkFormat::Csv | SinkFormat::Json => None,
        };
        let metrics = Arc::new(SinkMetrics::new(&table));
        let stage = match staged {
            true => Some(Arc::new(Stage::try_new(target, &options, &layout, format, &metrics)?)),
            false => None,
        };
        let timeout = options.properties.get("timeout").and_then(|seconds| seconds.parse().ok());
        let committer = Committer {
            client: client.clone(),
            max_retries: options.max_retries,
            patience: timeout.map_or(if staged { INSERT_PATIENCE } else { PATIENCE }, Duration::from_secs),
            stage,
        };
        let routing = match staged {
            // The order of rows is in them.
            true => Routing::Turns,
            false => Routing::of(target, &schema, mapping.computes_key),
        };
        let target_of_loads = LoadTarget {
            client,
            table,
            options,
            columns: mapping.header,
            layout,
            format,
            arrow,
            committer,
            metrics,
            tasks: TaskCount::default(),
        };
        Ok(Self {
            target: Arc::new(target_of_loads),
            schema,
            routing,
            written: mapping.written,
            partly: mapping.partly,
            update: mapping.update,
            changes: mapping.changes,
            model: target.model,
            job: Mutex::default(),
            instance: unique(),
            running: AtomicBool::new(false),
            runs: AtomicU64::new(0),
            begun: Mutex::default(),
        })
    }

    /// Names the job and its generation: labels of epochs are the same whenever the same epoch is written again, and
    /// a load that an earlier process left pre-committed under such a label is aborted first.
    pub fn with_job(self, job: impl Into<String>, generation: Generation) -> Self {
        *self.job.lock() = Some((job.into(), generation));
        self
    }

    /// Waits until what a dropped statement leaves behind is aborted, or given up.
    pub(crate) async fn cut(&self) {
        self.target.tasks.none().await;
        self.target.client.cleanup().done().await;
        if self.stage().is_some() {
            // Objects are removed after their uploads have ended.
            self.target.client.cleanup().done().await;
        }
    }

    /// Rows that Doris refused of all loads so far while it took the others (`sink.properties.max_filter_ratio`).
    pub fn filtered(&self) -> Option<FilteredRows> {
        self.target.metrics.all_filtered()
    }

    /// Rows of loads so far whose answer was lost, where nothing tells how many of them Doris took.
    pub fn uncounted(&self) -> Option<UncountedRows> {
        self.target.metrics.all_uncounted()
    }

    /// Staged rows (TVF mode) of loads so far that are neither in the table nor refused.
    pub fn missing(&self) -> Option<MissingRows> {
        self.target.metrics.all_missing()
    }

    /// The body of a load, without the load.
    ///
    /// # Errors
    /// When the compressor cannot be set up.
    pub fn body(&self) -> Result<LoadBody> {
        LoadBody::new(&self.target)
    }

    /// The table written to.
    pub fn table(&self) -> &TableIdent {
        &self.target.table
    }

    /// Where rows are staged, in TVF mode.
    fn stage(&self) -> Option<&Arc<Stage>> {
        self.target.committer.stage.as_ref()
    }

    /// Loads of a statement or epoch at most.
    fn loads(&self) -> u32 {
        match self.routing {
            _ if self.stage().is_some() => 1,
            Routing::One(_) => 1,
            Routing::Turns | Routing::Key(_) => self.target.options.parallelism,
        }
    }

    fn series(&self) -> LabelSeries {
        LabelSeries {
            prefix: self.target.options.label_prefix.clone(),
            db: self.table().database.clone(),
            table: self.table().table.clone(),
            writers: self.loads(),
            open_ended: self.target.options.write_mode == WriteMode::StreamLoadBatch,
            stage: self.stage().map(|stage| stage.stage_place()),
        }
    }

    async fn load(
        &self,
        (job, generation, epoch): (&str, Generation, Epoch),
        kind: Labels,
        two_phase: bool,
        data: SendableRecordBatchStream,
    ) -> Result<Vec<Loaded>> {
        let mut series = self.series();
        if let Some(stage) = self.stage() {
            series.writers = self.target.options.parallelism;
            let labels = LabelSet { series, job: job.to_string(), generation, epoch, kind };
            return tvf::write(&LoadRun::new(&self.target, labels, true), stage, &self.routing, data).await;
        }
        let labels = LabelSet { series, job: job.to_string(), generation, epoch, kind };
        let run = LoadRun::new(&self.target, labels, two_phase);
        parallel::write(&run, &self.routing, data).await
    }

    /// How many loads run at once, and how rows are shared out; `None` unless several were asked for.
    fn parallelism(&self) -> Option<String> {
        let asked = self.target.options.parallelism;
        if asked < 2 {
            return None;
        }
        Some(match &self.routing {
            Routing::Turns => format!("{asked} by turns"),
            Routing::Key(keys) => {
                let names: Vec<&str> = keys.iter().map(|key| key.name.as_str()).collect();
                format!("{asked} by key ({})", names.join(", "))
            }
            Routing::One(reason) => format!("1 of {asked} ({reason})"),
        })
    }

    /// Waits until loads that are committed can be read, if the options say so.
    async fn visible(&self, loads: &[Committable]) {
        let limit = self.target.options.visible_wait;
        if !limit.is_zero() {
            self.target.committer.wait_visible(loads, limit).await;
        }
    }

    /// What is said only where it is not as usual.
    fn shape(&self) -> Vec<(&'static str, String)> {
        let group = Some(self.target.options.group_commit()).filter(|mode| mode.is_on());
        let mut shape: Vec<(&'static str, String)> =
            group.map(|mode| ("group_commit", mode.to_string())).into_iter().collect();
        if self.update.is_partial() {
            shape.push(("update", self.update.to_string()));
        }
        if self.partly {
            shape.push(("columns", format!("[{}]", self.target.columns.clone().unwrap_or_default())));
        }
        shape.extend(self.parallelism().map(|parallelism| ("parallelism", parallelism)));
        shape
    }
}

#[async_trait]
impl DataSink for DorisSink {
    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.target.metrics.set.clone_inner())
    }

    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Writes `data` and commits it; gives the number of rows.
    async fn write_all(&self, data: SendableRecordBatchStream, _: &Arc<TaskContext>) -> DataFusionResult<u64> {
        Ok(self.write(data).await?.rows)
    }
}

#[async_trait]
impl EpochSink for DorisSink {
    fn begin_run(&self) -> Result<()> {
        if self.running.swap(true, Ordering::AcqRel) {
            let reason = format!(
                "this plan writes changes to table {} already: plan the statement again to run it a second time",
                self.table()
            );
            return Err(Error::Checkpoint { reason });
        }
        *self.begun.lock() = None;
        self.runs.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn end_run(&self) {
        self.running.store(false, Ordering::Release);
    }

    async fn write_epoch(
        &self,
        epoch: Epoch,
        data: SendableRecordBatchStream,
        _: &Arc<TaskContext>,
    ) -> Result<WriteOutcome> {
        let job = self.job.lock().clone();
        let two_phase = self.target.options.two_phase(job.is_some());
        // Batches that are visible as they land are not looked for again, and may be there from an earlier attempt: its
        // labels are not used a second time, and the rows are written at least once.
        let landed = job.is_some() && !two_phase && self.target.options.write_mode == WriteMode::StreamLoadBatch;
        let (job, attempt) = if landed { (None, Some(unique())) } else { (job, None) };
        let labels = match (&job, &attempt) {
            (Some((job, generation)), _) => (job.as_str(), *generation, epoch),
            (None, Some(attempt)) => (attempt.as_str(), Generation(0), epoch),
            (None, None) => (self.instance.as_str(), Generation(self.runs.load(Ordering::Relaxed)), epoch),
        };
        let before = self.begun.lock().replace(epoch);
        let kind = match &job {
            None => Labels::New,
            // Rows may be shared out differently this time.
            Some(_) if before == Some(epoch) => Labels::Repeated,
            Some(_) => Labels::Repeatable,
        };
        let loads = self.load(labels, kind, two_phase, data).await?;
        if loads.is_empty() {
            *self.begun.lock() = None;
        }
        let rows = loads.iter().map(|load| load.rows).sum();
        let committables: Vec<Committable> = loads.into_iter().map(|load| load.load).collect();
        if two_phase {
            return Ok(WriteOutcome { rows, committables });
        }
        self.visible(&committables).await;
        Ok(WriteOutcome { rows, committables: Vec::new() })
    }

    fn name_run(&self, job: &str, generation: Generation) {
        *self.job.lock() = Some((job.to_string(), generation));
    }

    fn facts(&self) -> Vec<(String, String)> {
        let kind = self.target.options.change_kind_column.as_deref().unwrap_or_default();
        let deletes = match (self.changes, self.target.layout.has_delete_sign()) {
            (Changes::None, _) => "no change kinds".to_string(),
            (Changes::Kind(_), true) => format!("by {kind}"),
            (Changes::Kind(_), false) => format!("refused by {kind}"),
            (Changes::Sign(_), _) => format!("by {DELETE_SIGN}"),
        };
        let facts = [
            ("table", self.table().to_string()),
            ("columns", self.written.join(", ")),
            ("format", self.target.format.header().to_string()),
            ("deletes", deletes),
        ];
        let mut facts: Vec<(String, String)> = facts.map(|(fact, value)| (fact.to_string(), value)).into();
        if self.update.is_partial() {
            facts.push(("update".to_string(), self.update.to_string()));
        }
        facts
    }

    fn nodes(&self) -> Vec<String> {
        self.target.client.options().fenodes.clone()
    }

    fn replaces_by_key(&self) -> bool {
        self.model == Some(KeyModel::Unique)
    }

    fn loads_of(&self, job: &str, generation: Generation, epoch: Epoch) -> Vec<Committable> {
        let writers = u32::from(self.target.options.two_phase(true));
        let mut search = LabelSeries { writers, open_ended: false, ..self.series() }.search(job, generation, epoch);
        std::iter::from_fn(|| search.next_load()).collect()
    }

    fn labels(&self) -> Option<LabelSeries> {
        // Without two phases loads are visible with their end: there is nothing to take back.
        let writers = if self.target.options.two_phase(true) { self.loads() } else { 0 };
        Some(LabelSeries { writers, ..self.series() })
    }

    async fn label_state(&self, load: &Committable) -> Result<LabelState> {
        self.target.client.label_state(&load.db, &load.label).await
    }

    async fn is_lost(&self, load: &Committable) -> Result<bool> {
        match (&load.staged, self.stage()) {
            (Some(staged), Some(stage)) if stage.place.bucket == staged.bucket => {
                Ok(stage.missing_object(staged).await?.is_some())
            }
            _ => Ok(false),
        }
    }

    async fn commit(&self, committables: &[Committable], _permit: &CommitPermit) -> Result<()> {
        {
            let _timer = self.target.metrics.commit_time.timer();
            self.target.committer.commit_all(committables).await.map(drop)?;
        }
        self.visible(committables).await;
        Ok(())
    }

    async fn abort(&self, committables: &[Committable]) -> Result<AbortOutcome> {
        self.target.committer.abort_all(committables).await.map(|(outcome, _)| outcome)
    }

    async fn tidy_up(&self, committables: &[Committable]) {
        for load in committables {
            if let Some(staged) = &load.staged {
                self.target.committer.tidy_up(load, staged).await;
            }
        }
    }

    fn abandon(&self, committables: Vec<Committable>) {
        drop(SettleOnDrop::new(&self.target, committables));
    }
}

impl DisplayAs for DorisSink {
    fn fmt_as(&self, display: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let options = &self.target.options;
        let mut facts = vec![("table", self.table().to_string())];
        if options.write_mode != WriteMode::StreamLoad {
            facts.push(("write_mode", options.write_mode.to_string()));
        }
        if let Some(stage) = self.stage() {
            facts.push(("stage", format!("s3://{}/{}", stage.place.bucket, stage.place.prefix)));
        }
        facts.push(("format", self.target.format.header().to_string()));
        facts.push(("label_prefix", options.label_prefix.clone()));
        if self.stage().is_none() {
            let two_phase = match (options.two_phase(false), options.two_phase(true)) {
                (false, true) => "with checkpoints",
                (true, _) => "true",
                (false, false) => "false",
            };
            facts.push(("two_phase_commit", two_phase.to_string()));
        }
        facts.extend(self.shape());
        let (separator, end) = match display {
            DisplayFormatType::TreeRender => ("\n", "\n"),
            DisplayFormatType::Default | DisplayFormatType::Verbose => (", ", ""),
        };
        let facts: Vec<String> = facts.into_iter().map(|(fact, value)| format!("{fact}={value}")).collect();
        write!(f, "{}{end}", facts.join(separator))
    }
}
