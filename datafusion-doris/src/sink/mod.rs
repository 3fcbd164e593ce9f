//! Writing to Doris by Stream Load with two-phase commit.
//!
//! ```text
//! input partitions ─┐ merged,            ┌ encoder ─ gz ─ chunks ─┐ bounded       ┌ pre-commit ─ commit
//! input partitions ─┤ bounded ── batches ┤ csv or json            ├ channel ── BE ┤ (visible)
//! input partitions ─┘                    └ no rows: no load       ┘               └ error: abort
//! ```
//!
//! One statement (or one epoch of a continuous one) is one load under one label, so its rows become visible together
//! or not at all.

mod committer;
mod encoder;
mod exec;
mod loads;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests;
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
use datafusion::physical_plan::metrics::{Count, ExecutionPlanMetricsSet, MetricBuilder, MetricsSet, Time};
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, SendableRecordBatchStream};
use futures::StreamExt;
use parking_lot::Mutex;

use self::committer::{Aborted, Committer};
use self::encoder::{CsvEncoder, Encoder, JsonEncoder, RowLayout, has_nested};
pub use self::exec::DorisSinkExec;
pub use self::loads::DorisLoads;
use self::writer::{LoadWriter, Loaded};
use crate::checkpoint::chain::unique;
use crate::checkpoint::{
    AbortOutcome, CommitPermit, Committable, Epoch, EpochSink, Generation, LabelSeries, WriteOutcome,
};
use crate::client::DorisClient;
use crate::error::{Error, Result};
use crate::options::{SinkFormat, SinkOptions};
use crate::protocol::LabelState;
use crate::types::{KeyModel, TableIdent, TableSchema};

/// How long the state of a label may stay open, unless the load has its own `timeout`.
const PATIENCE: Duration = Duration::from_secs(600);

/// A Doris table as a target of rows.
///
/// # Delivery
/// With two-phase commit (the default) the rows of a statement become visible together, after all of them were
/// received; an error, or dropping the statement before its commit, makes none of them visible. Without it
/// (`'sink.enable-2pc' = 'false'`) the rows of the single load are visible as soon as the server has taken the end of
/// its body, whether or not somebody still waits for the answer. A lost answer is resolved by the state of the load's
/// label, never by sending rows under another label.
///
/// # Cancellation
/// Dropping the future of a statement cuts the open load, which the server answers with an abort. From the end of the
/// body to the answer of the commit, a task of the client aborts the load by its label; where that is not possible any
/// more (the process ends) it is never visible, and the server aborts it after its pre-commit timeout, one hour by
/// default. When the commit was on its way, it may win: then the rows are visible, all of them.
#[derive(Debug)]
pub struct DorisSink {
    client: DorisClient,
    table: TableIdent,
    schema: SchemaRef,
    options: SinkOptions,
    layout: RowLayout,
    format: SinkFormat,
    committer: Committer,
    /// The columns of the target that are written, with their types there.
    columns: String,
    model: Option<KeyModel>,
    /// `None` = labels of epochs are not repeated by a later process.
    job: Mutex<Option<(String, Generation)>>,
    instance: String,
    /// A run of epochs is open.
    running: AtomicBool,
    /// Runs of epochs so far: each has labels of its own.
    runs: AtomicU64,
    metrics: SinkMetrics,
}

#[derive(Debug)]
struct SinkMetrics {
    set: ExecutionPlanMetricsSet,
    rows: Count,
    bytes: Count,
    loads: Count,
    commit_time: Time,
}

impl SinkMetrics {
    /// Handles are made once: each registers an entry, and epochs go on for months.
    fn new() -> Self {
        let set = ExecutionPlanMetricsSet::new();
        Self {
            rows: MetricBuilder::new(&set).global_counter("rows_sent"),
            bytes: MetricBuilder::new(&set).global_counter("bytes_sent"),
            loads: MetricBuilder::new(&set).global_counter("loads"),
            commit_time: MetricBuilder::new(&set).subset_time("commit_time", 0),
            set,
        }
    }
}

impl DorisSink {
    /// A sink for rows of `schema`: columns of `target` in any order, found by name, and the change-kind column of
    /// `options` if it names one.
    ///
    /// The delete sign is sent when there is a change-kind column, the table is of the unique model and
    /// `sink.enable-delete` is on; otherwise a delete in the input is an error.
    ///
    /// # Errors
    /// [`Error::Schema`] for a column that the table does not have or whose type cannot be written.
    pub fn try_new(client: DorisClient, target: &TableSchema, schema: SchemaRef, options: SinkOptions) -> Result<Self> {
        let table = target.table.clone();
        let change_kind = options.change_kind_column.as_deref();
        for field in schema.fields() {
            if Some(field.name().as_str()) != change_kind && target.column(field.name()).is_none() {
                return Err(Error::schema(&table, format!("has no column '{}'", field.name())));
            }
        }
        let columns = schema.fields().iter().filter_map(|field| target.column(field.name()));
        let columns: Vec<String> = columns.map(|column| format!("{} {}", column.name, column.doris_type)).collect();
        let columns = columns.join(", ");
        let delete_sign = options.enable_delete && target.model == Some(KeyModel::Unique);
        let is_key = |name: &str| target.column(name).is_some_and(|column| column.key);
        let ignore_update_before = options.ignore_update_before.unwrap_or(true);
        let layout =
            RowLayout::try_new(&table, &schema, change_kind, delete_sign, ignore_update_before)?.with_keys(is_key);
        let format = match options.format {
            Some(format) => format,
            None if has_nested(&schema) => SinkFormat::Json,
            None => SinkFormat::Csv,
        };
        let timeout = options.properties.get("timeout").and_then(|seconds| seconds.parse().ok());
        let committer = Committer {
            client: client.clone(),
            max_retries: options.max_retries,
            patience: timeout.map_or(PATIENCE, Duration::from_secs),
        };
        Ok(Self {
            client,
            table,
            schema,
            options,
            layout,
            format,
            committer,
            columns,
            model: target.model,
            job: Mutex::default(),
            instance: unique(),
            running: AtomicBool::new(false),
            runs: AtomicU64::new(0),
            metrics: SinkMetrics::new(),
        })
    }

    /// Names the job and its generation: labels of epochs are the same whenever the same epoch is written again, and
    /// a load that an earlier process left pre-committed under such a label is aborted first.
    pub fn with_job(self, job: impl Into<String>, generation: Generation) -> Self {
        *self.job.lock() = Some((job.into(), generation));
        self
    }

    pub(crate) fn client(&self) -> &DorisClient {
        &self.client
    }

    /// The table written to.
    pub fn table(&self) -> &TableIdent {
        &self.table
    }

    fn encoder(&self) -> Box<dyn Encoder> {
        match self.format {
            SinkFormat::Csv => Box::new(CsvEncoder::new(self.layout.clone(), self.options.csv.clone())),
            SinkFormat::Json => Box::new(JsonEncoder::new(self.layout.clone())),
        }
    }

    fn label(&self, job: &str, generation: u64, epoch: u64) -> String {
        self.series().label(job, Generation(generation), Epoch(epoch), 0)
    }

    fn series(&self) -> LabelSeries {
        LabelSeries {
            prefix: self.options.label_prefix.clone(),
            db: self.table.database.clone(),
            table: self.table.table.clone(),
            writers: 1,
        }
    }

    /// Writes all of `data` under `label`, to the pre-commit (or to the end, without two-phase commit).
    async fn load(&self, label: String, mut data: SendableRecordBatchStream, fixed: bool) -> Result<Option<Loaded>> {
        let mut writer = LoadWriter::new(self, &self.committer, label)?;
        let mut first = fixed;
        let written = async {
            while let Some(batch) = data.next().await {
                let batch = batch?;
                if std::mem::take(&mut first) && batch.num_rows() > 0 {
                    self.committer.clear_leftover(writer.load()).await?;
                }
                writer.write(&batch).await?;
            }
            Ok(())
        };
        written.await.inspect_err(|error: &Error| {
            tracing::debug!(%error, "statement failed, its load is cut");
        })?;
        writer.finish().await
    }
}

/// Aborts a load that is, or may be, pre-committed when its statement is dropped before the commit was answered.
struct AbortOnDrop<'a> {
    sink: &'a DorisSink,
    load: Option<Committable>,
}

impl<'a> AbortOnDrop<'a> {
    /// Guards `load` while `wait` runs: for the time in which only its label tells what became of it.
    async fn during<T>(sink: &'a DorisSink, load: &Committable, wait: impl Future<Output = T>) -> T {
        let load = sink.options.two_phase_commit.then(|| load.clone());
        let mut guard = Self { sink, load };
        let outcome = wait.await;
        guard.load = None;
        outcome
    }
}

impl Drop for AbortOnDrop<'_> {
    fn drop(&mut self) {
        if let Some(load) = self.load.take() {
            let committer = self.sink.committer.clone();
            self.sink.client.cleanup().later("abort transaction", async move {
                if let Err(error) = committer.abort(&load).await {
                    tracing::warn!(label = %load.label, %error, "a cancelled statement's load was not aborted");
                }
            });
        }
    }
}

#[async_trait]
impl DataSink for DorisSink {
    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.set.clone_inner())
    }

    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Writes `data` as one load and commits it; gives the number of rows.
    async fn write_all(&self, data: SendableRecordBatchStream, _: &Arc<TaskContext>) -> DataFusionResult<u64> {
        // Each call is a statement of its own.
        let label = self.label(&unique(), 0, 1);
        let Some(Loaded { rows, load }) = self.load(label, data, false).await? else {
            return Ok(0);
        };
        if !self.options.two_phase_commit {
            return Ok(rows);
        }
        let mut guard = AbortOnDrop { sink: self, load: Some(load.clone()) };
        let committed = {
            let _timer = self.metrics.commit_time.timer();
            self.committer.commit(&load).await
        };
        let settled = match committed {
            Ok(()) => Ok(rows),
            // All or nothing: what could not be committed must not become visible later by somebody else's commit.
            Err(error) => match self.committer.abort_unless_committed(&load).await {
                Ok(Aborted::Committed(_)) => Ok(rows),
                Ok(Aborted::Gone) => Err(error),
                Err(abort_error) => {
                    tracing::warn!(label = %load.label, error = %abort_error, "load was neither committed nor aborted");
                    Err(error)
                }
            },
        };
        guard.load = None;
        Ok(settled?)
    }
}

#[async_trait]
impl EpochSink for DorisSink {
    fn begin_run(&self) -> Result<()> {
        if self.running.swap(true, Ordering::AcqRel) {
            let reason = format!(
                "this plan writes changes to table {} already: plan the statement again to run it a second time",
                self.table
            );
            return Err(Error::Checkpoint { reason });
        }
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
        let label = match &job {
            Some((job, generation)) => self.label(job, generation.0, epoch.0),
            None => self.label(&self.instance, self.runs.load(Ordering::Relaxed), epoch.0),
        };
        let Some(Loaded { rows, load }) = self.load(label, data, job.is_some()).await? else {
            return Ok(WriteOutcome::default());
        };
        let committables = if self.options.two_phase_commit { vec![load] } else { Vec::new() };
        Ok(WriteOutcome { rows, committables })
    }

    fn name_run(&self, job: &str, generation: Generation) {
        *self.job.lock() = Some((job.to_string(), generation));
    }

    fn facts(&self) -> Vec<(String, String)> {
        let deletes = match (self.options.change_kind_column.as_deref(), self.layout.has_delete_sign()) {
            (None, _) => "no change kinds".to_string(),
            (Some(column), true) => format!("by {column}"),
            (Some(column), false) => format!("refused by {column}"),
        };
        let facts = [
            ("table", self.table.to_string()),
            ("columns", self.columns.clone()),
            ("format", self.format.header().to_string()),
            ("deletes", deletes),
        ];
        facts.map(|(fact, value)| (fact.to_string(), value)).into()
    }

    fn nodes(&self) -> Vec<String> {
        self.client.options().fenodes.clone()
    }

    fn replaces_by_key(&self) -> bool {
        self.model == Some(KeyModel::Unique)
    }

    fn loads_of(&self, job: &str, generation: Generation, epoch: Epoch) -> Vec<Committable> {
        self.labels().map(|series| series.loads_of(job, generation, epoch)).unwrap_or_default()
    }

    fn labels(&self) -> Option<LabelSeries> {
        // Without two phases loads are visible with their end: there is nothing to take back.
        self.options.two_phase_commit.then(|| self.series())
    }

    async fn label_state(&self, load: &Committable) -> Result<LabelState> {
        self.client.label_state(&load.db, &load.label).await
    }

    async fn commit(&self, committables: &[Committable], _permit: &CommitPermit) -> Result<()> {
        let _timer = self.metrics.commit_time.timer();
        for load in committables {
            self.committer.commit(load).await?;
        }
        Ok(())
    }

    async fn abort(&self, committables: &[Committable]) -> Result<AbortOutcome> {
        let (mut committed, mut first_error) = (0, None);
        for load in committables {
            match self.committer.abort_unless_committed(load).await {
                Ok(Aborted::Gone) => {}
                Ok(Aborted::Committed(_)) => committed += 1,
                Err(error) => {
                    first_error.get_or_insert(error);
                }
            }
        }
        match first_error {
            Some(error) => Err(error),
            None if committed > 0 && committed == committables.len() => Ok(AbortOutcome::Committed),
            None => Ok(AbortOutcome::RolledBack),
        }
    }

    fn abandon(&self, committables: Vec<Committable>) {
        for load in committables {
            drop(AbortOnDrop { sink: self, load: Some(load) });
        }
    }
}

impl DisplayAs for DorisSink {
    fn fmt_as(&self, display: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let format = self.format.header();
        let (prefix, two_phase) = (&self.options.label_prefix, self.options.two_phase_commit);
        match display {
            DisplayFormatType::TreeRender => {
                writeln!(f, "table={}", self.table)?;
                writeln!(f, "format={format}")?;
                writeln!(f, "label_prefix={prefix}")?;
                writeln!(f, "two_phase_commit={two_phase}")
            }
            DisplayFormatType::Default | DisplayFormatType::Verbose => {
                write!(f, "table={}, format={format}, label_prefix={prefix}, two_phase_commit={two_phase}", self.table)
            }
        }
    }
}
