//! The plan node of a changelog read.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result as DfResult, internal_err};
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::MemoryConsumer;
use datafusion::physical_expr::EquivalenceProperties;
use datafusion::physical_plan::coop::cooperative;
use datafusion::physical_plan::execution_plan::{
    Boundedness, EmissionType, ReplaceChildrenOptions, SchedulingType, apply_expression_roots,
};
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricBuilder, MetricsSet};
use datafusion::physical_plan::stream::RecordBatchReceiverStreamBuilder;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PhysicalExpr, PlanProperties, SendableRecordBatchStream,
};
use futures::StreamExt;
use parking_lot::Mutex;
use tokio::sync::OnceCell;

use super::commits::{CommitColumns, CommitOrder};
use super::control::{ChangelogControl, Work};
use super::filter::ChangeFilters;
use super::finish::FinishedRows;
use super::idle::IdleWatch;
use super::offsets::{OffsetTable, Offsets};
use super::publish::{HandOver, Publishing};
use super::reader::{ChangelogSpec, ReadMetrics, Reader, Warned};
use super::row_kind::RowKind;
use super::server::{ChangelogServer, DorisServer};
use super::widened::Widened;
use super::window::Window;
use crate::checkpoint::EpochSource;
use crate::client::DorisClient;
use crate::options::OffsetOptions;
use crate::scan::{MeteredStream, cut_at};
use crate::sql::{HiddenColumns, IncrementType};
use crate::types::TableIdent;

/// Batches read ahead of the consumer.
const PREFETCH_BATCHES: usize = 2;

/// Reads a table's changes, after its rows if so asked: one partition, in the order of the changes.
///
/// The node is unbounded; with a limit, or bounded by the moment the read started, it says truthfully that it ends.
/// It evaluates its filters itself, so that none above it gathers rows (and see the `filter` module for what a filter
/// does to an update).
///
/// An execution is free-running and starts at the beginning, unless a coordinator steers the node by
/// [`Self::epoch_source`]: then each execution reads the piece that was armed for its epoch.
///
/// # Cancellation
/// Dropping the stream aborts the read at once and closes its Flight session.
///
/// # Metrics
/// | name | what |
/// | --- | --- |
/// | `rows_inserted`, `rows_update_before`, `rows_update_after`, `rows_deleted` | rows read, before filters |
/// | `windows` | windows read |
/// | `idle_polls` | polls that ended with a look at the versions of the table's partitions |
/// | `visible_wait_retries` | statements asked again while transactions were not visible |
/// | `position_ms` | first instant that was not read, epoch milliseconds |
/// | `lag_ms` | the server's time less that, at the last poll |
/// | `kept_ms` | the lag at which changes are lost (`changelog.ttl_seconds`), where there is one |
/// | `poll_time` | time spent on asking for the server's time |
///
/// # Delivery
/// Free-running (any query, and any target that is not a continuous insert into Doris): every change at least once. With
/// an offset table the position is published once the rows before it were taken, which is when whoever takes them asks
/// for the next ones, so a read that is started again repeats some; under operators that hold rows back, it is published
/// at the end of the plan (see [`crate::optimizer::PublishPositions`], without which such plans run ahead). Without one,
/// a read that is started again begins with its scan mode. Mode `initial` reads its snapshot
/// as of the instant at which the changes begin, where the server can (`snapshot=as-of` in EXPLAIN): then no change is
/// seen twice. Otherwise (`snapshot=overlapping`) changes that were committed around the start of the changelog come as
/// rows and again as changes; writing them by key changes nothing.
#[derive(Debug, Clone)]
pub struct DorisChangelogExec {
    server: Arc<dyn ChangelogServer>,
    spec: Arc<ChangelogSpec>,
    filters: ChangeFilters,
    /// Filters as EXPLAIN shows them.
    filter_text: String,
    /// Output columns, as indices of the columns read.
    projection: Arc<[usize]>,
    /// Commits are put in order by these columns.
    order: Option<CommitColumns>,
    fetch: Option<usize>,
    inserts_only: bool,
    append_only: bool,
    old_values: bool,
    /// FE addresses of the cluster read.
    fenodes: Arc<[String]>,
    control: Arc<ChangelogControl>,
    hidden: Arc<OnceCell<HiddenColumns>>,
    warned: Arc<Warned>,
    idle: Arc<IdleWatch>,
    /// What the read is, for checkpoints.
    facts: Arc<[(String, String)]>,
    /// Where the position is published, if anywhere.
    offsets: Option<Arc<Offsets>>,
    /// How its rows are handed on, where no run of epochs drives it; `None`: the plan was not looked at.
    hand_over: Option<HandOver>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
    baseline: BaselineMetrics,
    read_metrics: ReadMetrics,
}

/// What a table asks of a changelog node.
#[derive(Debug)]
pub(crate) struct ChangelogRequest {
    pub spec: ChangelogSpec,
    /// Conditions over `spec.schema`.
    pub filters: Vec<Arc<dyn PhysicalExpr>>,
    /// Output columns, as indices of `spec.schema`.
    pub projection: Vec<usize>,
    /// The table only ever gets new rows.
    pub append_only: bool,
    /// Updates and deletes come with the rows as they were.
    pub old_values: bool,
    pub tablets_per_split: usize,
    /// Where to publish the position.
    pub offsets: Option<OffsetOptions>,
}

impl DorisChangelogExec {
    pub(crate) fn try_new(client: DorisClient, request: ChangelogRequest) -> DfResult<Self> {
        let spec = &request.spec;
        let fenodes = client.options().fenodes.clone();
        let offsets = request.offsets.clone().map(|OffsetOptions { table, consumer_id }| {
            Arc::new(Offsets::new(Arc::new(OffsetTable::new(client.clone(), table, consumer_id))))
        });
        let server = DorisServer::new(client, spec.table.clone(), Arc::clone(&spec.columns), request.tablets_per_split);
        Ok(Self { fenodes: fenodes.into(), offsets, ..Self::with_server(Arc::new(server), request)? })
    }

    #[cfg(test)]
    pub(super) fn with_offsets(self, offsets: Arc<Offsets>) -> Self {
        Self { offsets: Some(offsets), ..self }
    }

    pub(super) fn with_server(server: Arc<dyn ChangelogServer>, request: ChangelogRequest) -> DfResult<Self> {
        let ChangelogRequest { spec, filters, projection, append_only, old_values, .. } = request;
        let kind_column = spec.kind_index();
        let filters = ChangeFilters::new(filters, kind_column);
        let filter_text = filters.all().map(|filter| filter.to_string()).collect::<Vec<_>>().join(" AND ");
        let passing = filters.passing_kinds(&spec.schema, kind_column);
        let deletes = passing.contains(&RowKind::Delete) || passing.contains(&RowKind::UpdateBefore);
        let metrics = ExecutionPlanMetricsSet::new();
        let counter = |name: &'static str| MetricBuilder::new(&metrics).counter(name, 0);
        let schema = Arc::new(spec.schema.project(&projection)?);
        let properties = Self::properties_of(&schema, spec.end.is_some());
        let only_inserts = append_only || spec.increment_type == IncrementType::AppendOnly;
        let hidden = spec.hidden.clone();
        if let Some(kept) = spec.time_to_live {
            // Beside the lag, which it limits.
            let kept_ms = usize::try_from(kept.as_millis()).unwrap_or(usize::MAX);
            MetricBuilder::new(&metrics).gauge("kept_ms", 0).set(kept_ms);
        }
        let facts = facts_of(&spec, &schema, &filter_text);
        Ok(Self {
            server,
            spec: Arc::new(spec),
            filters,
            filter_text,
            projection: projection.into(),
            order: None,
            fetch: None,
            inserts_only: only_inserts || !deletes,
            append_only,
            old_values,
            fenodes: Arc::default(),
            control: Arc::default(),
            hidden: Arc::new(OnceCell::new_with(hidden)),
            warned: Arc::default(),
            idle: Arc::default(),
            facts: facts.into(),
            offsets: None,
            hand_over: None,
            properties: Arc::new(properties),
            baseline: BaselineMetrics::new(&metrics, 0),
            read_metrics: ReadMetrics {
                windows: counter("windows"),
                idle_polls: counter("idle_polls"),
                visible_wait_retries: counter("visible_wait_retries"),
                position_ms: MetricBuilder::new(&metrics).gauge("position_ms", 0),
                lag_ms: MetricBuilder::new(&metrics).gauge("lag_ms", 0),
                poll_time: MetricBuilder::new(&metrics).subset_time("poll_time", 0),
                rows: ["rows_inserted", "rows_update_before", "rows_update_after", "rows_deleted"].map(counter),
            },
            metrics,
        })
    }

    fn properties_of(schema: &SchemaRef, bounded: bool) -> PlanProperties {
        let boundedness = match bounded {
            true => Boundedness::Bounded,
            false => Boundedness::Unbounded { requires_infinite_memory: false },
        };
        PlanProperties::new(
            EquivalenceProperties::new(Arc::clone(schema)),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Incremental,
            boundedness,
        )
        .with_scheduling_type(SchedulingType::Cooperative)
    }

    /// Notes how the rows of this free-running read are handed on.
    pub(crate) fn handed_over(self, hand_over: HandOver) -> Self {
        Self { hand_over: Some(hand_over), ..self }
    }

    /// True when the position is published (`source.changelog.offset-table`).
    pub fn keeps_position(&self) -> bool {
        self.offsets.is_some()
    }

    /// Where the position goes, when that is to be at the end of the plan.
    pub(super) fn published_at_end(&self) -> Option<Arc<Offsets>> {
        self.offsets.clone().filter(|_| self.hand_over == Some(HandOver::AtEnd))
    }

    /// The table read.
    pub fn table(&self) -> &TableIdent {
        &self.spec.table
    }

    /// What steers the read; shared by all copies of the node.
    pub fn control(&self) -> &Arc<ChangelogControl> {
        &self.control
    }

    /// This read as a source of epochs. Its node then reads what was armed; see [`EpochSource`].
    pub fn epoch_source(&self) -> Arc<dyn EpochSource> {
        Arc::new(self.reader())
    }

    fn reader(&self) -> Reader {
        Reader {
            server: Arc::clone(&self.server),
            spec: Arc::clone(&self.spec),
            control: Arc::clone(&self.control),
            hidden: Arc::clone(&self.hidden),
            warned: Arc::clone(&self.warned),
            idle: Arc::clone(&self.idle),
            facts: Arc::clone(&self.facts),
            fenodes: Arc::clone(&self.fenodes),
            offsets: self.offsets.clone(),
            metrics: self.read_metrics.clone(),
        }
    }

    /// The server's time now, in epoch milliseconds.
    ///
    /// # Errors
    /// As [`DorisClient::current_tso`].
    pub async fn server_now_ms(&self) -> crate::error::Result<i64> {
        self.server.now_ms().await
    }

    /// True when no row of the output is a delete or an update's old half: the table only ever gets new rows, or the
    /// query's condition on the change kind lets only inserts and new halves through.
    pub fn inserts_only(&self) -> bool {
        self.inserts_only
    }

    /// True when the table only ever gets new rows, whose order does not matter.
    pub fn append_only(&self) -> bool {
        self.append_only
    }

    /// True when updates and deletes come with the rows as they were, not with their keys alone.
    pub fn keeps_old_values(&self) -> bool {
        self.old_values
    }

    /// Which changes are read.
    pub fn increment_type(&self) -> IncrementType {
        self.spec.increment_type
    }

    /// Names of the key columns of the table read.
    pub fn key(&self) -> &[String] {
        &self.spec.key
    }

    /// The column of the table that an output column gives; `None` for metadata and the change kind.
    pub fn stored_name(&self, output: usize) -> Option<&str> {
        let read = *self.projection.get(output)?;
        self.spec.columns.get(read).map(String::as_str)
    }

    /// True when rows and changes overlap: a change may come as a row of the snapshot and again as a change.
    pub fn overlaps(&self) -> bool {
        self.spec.snapshot && !self.spec.exact_snapshot
    }

    /// True when the rows of the table come before its changes.
    pub fn reads_snapshot(&self) -> bool {
        self.spec.snapshot
    }

    /// FE addresses of the cluster read.
    pub fn fenodes(&self) -> &[String] {
        &self.fenodes
    }

    /// True when the change kind is among the output columns.
    pub fn gives_change_kind(&self) -> bool {
        self.kind_index().is_some()
    }

    /// Where the change kind is among the output columns.
    pub fn kind_index(&self) -> Option<usize> {
        self.projection.iter().position(|column| *column == self.spec.kind_index())
    }

    /// This read with what a commit takes away before what it brings, see `commits`: for a target in which rows of
    /// different keys of this table may have one key. The same where no such order is needed or there is one already.
    ///
    /// # Errors
    /// When a key column cannot be read.
    pub(crate) fn with_commits_in_order(&self) -> DfResult<Self> {
        if self.order.is_some()
            || self.inserts_only
            || self.spec.increment_type != IncrementType::Detail
            || self.spec.key.is_empty()
        {
            return Ok(self.clone());
        }
        let Widened { spec, order, added } = self.spec.with_commits()?;
        let place = |index: usize| added.place(index);
        let projection = self.projection.iter().map(|index| place(*index)).collect();
        Ok(Self {
            server: self.server.with_columns(Arc::clone(&spec.columns)),
            filters: self.filters.moved(place)?,
            projection,
            spec: Arc::new(spec),
            order: Some(order),
            ..self.clone()
        })
    }

    fn example_sql(&self) -> String {
        let columns: Vec<&str> = self.spec.columns.iter().map(String::as_str).collect();
        let hidden = self.hidden.get().cloned().unwrap_or_else(HiddenColumns::changelog);
        let window = Window { start_ms: 1000, end_ms: 2000 };
        let sql = self.spec.select(&columns, &hidden, window).body().unwrap_or_default();
        let [earlier, start, end] = [0, 1000, 2000].map(|ms| crate::sql::utc_text(ms).unwrap_or_default());
        sql.replace(&earlier, "<start - 1s>").replace(&start, "<start>").replace(&end, "<end>")
    }
}

/// What a read is, for checkpoints: all that must be the same when it goes on after a restart.
fn facts_of(spec: &ChangelogSpec, output: &SchemaRef, filter: &str) -> Vec<(String, String)> {
    let columns = spec.columns.iter().zip(spec.types.iter()).map(|(name, doris_type)| format!("{name} {doris_type}"));
    let output = output.fields().iter().map(|field| field.name().clone());
    let mut facts = vec![
        ("table", spec.table.to_string()),
        ("columns", columns.collect::<Vec<_>>().join(", ")),
        ("increment-type", spec.increment_type.option_name().to_string()),
        ("change-kind-column", spec.schema.field(spec.kind_index()).name().clone()),
        ("output", output.collect::<Vec<_>>().join(", ")),
    ];
    if !filter.is_empty() {
        facts.push(("filter", filter.to_string()));
    }
    facts.into_iter().map(|(fact, value)| (fact.to_string(), value)).collect()
}

impl DisplayAs for DorisChangelogExec {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ChangelogSpec { table, snapshot, start, end, increment_type, .. } = self.spec.as_ref();
        let mode = match (snapshot, start) {
            (true, _) => "initial".to_string(),
            (false, None) => "latest".to_string(),
            (false, Some(start)) => format!("from-timestamp {start}"),
        };
        let mut facts = vec![
            ("table", table.to_string()),
            ("mode", mode),
            ("unbounded", (end.is_none() && self.fetch.is_none()).to_string()),
        ];
        if *snapshot {
            facts.push(("snapshot", if self.overlaps() { "overlapping" } else { "as-of" }.to_string()));
        }
        if *increment_type != IncrementType::Detail {
            facts.push(("increment_type", increment_type.option_name().to_string()));
        }
        if self.order.is_some() {
            facts.push(("commits", "deletes first".to_string()));
        }
        if let Some(end) = end {
            facts.push(("until", end.to_string()));
        }
        if let Some(fetch) = self.fetch {
            facts.push(("fetch", fetch.to_string()));
        }
        if !self.filter_text.is_empty() {
            facts.push(("filters", format!("[{}]", self.filter_text)));
        }
        if !matches!(format, DisplayFormatType::Default) {
            facts.push(("poll_interval", format!("{:?}", self.spec.poll_interval)));
            facts.push(("max_window", format!("{:?}", self.spec.max_window)));
        }
        if let Some(hand_over) = self.hand_over {
            facts.push(("delivery", hand_over.describe(self.keeps_position()).to_string()));
        }
        facts.push(("sql", format!("[{}]", self.example_sql())));
        match format {
            DisplayFormatType::Default | DisplayFormatType::Verbose => {
                let facts: Vec<String> = facts.into_iter().map(|(key, value)| format!("{key}={value}")).collect();
                write!(f, "DorisChangelogExec: {}", facts.join(", "))
            }
            DisplayFormatType::TreeRender => {
                facts.into_iter().try_for_each(|(key, value)| writeln!(f, "{key}={value}"))
            }
        }
    }
}

impl ExecutionPlan for DorisChangelogExec {
    fn name(&self) -> &str {
        "DorisChangelogExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![]
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> DfResult<TreeNodeRecursion>,
    ) -> DfResult<TreeNodeRecursion> {
        apply_expression_roots(self.filters.all(), f)
    }

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
        _options: ReplaceChildrenOptions,
    ) -> DfResult<Arc<dyn ExecutionPlan>> {
        if children.is_empty() { Ok(self) } else { internal_err!("DorisChangelogExec has no children") }
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Arc<dyn ExecutionPlan>>) -> DfResult<Arc<dyn ExecutionPlan>> {
        if children.is_empty() { Ok(self) } else { internal_err!("DorisChangelogExec has no children") }
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> DfResult<SendableRecordBatchStream> {
        if partition != 0 {
            return internal_err!("DorisChangelogExec has no partition {partition}");
        }
        let reader = self.reader();
        let work = self.control.work();
        let free_running = work == Work::All;
        let read_schema = Arc::clone(&self.spec.schema);
        let passed: Arc<Mutex<VecDeque<i64>>> = Arc::default();
        let noted = Arc::clone(&passed);
        // The reading task starts with the first poll, not here.
        let input = futures::stream::once(async move {
            let mut builder = RecordBatchReceiverStreamBuilder::new(read_schema, PREFETCH_BATCHES);
            let output = builder.tx();
            builder.spawn(async move { reader.run(work, noted, output).await.map_err(Into::into) });
            builder.build()
        });
        let input = datafusion::physical_plan::stream::RecordBatchStreamAdapter::new(
            Arc::clone(&self.spec.schema),
            input.flatten(),
        );
        let order = self.order.clone().map(|columns| {
            let consumer = MemoryConsumer::new(format!("DorisChangelogExec[{}]", self.spec.table));
            CommitOrder::new(&self.spec.table, columns, consumer.register(context.memory_pool()))
        });
        // A commit is put in order by all its rows: only then their kinds are what they are.
        let (filters, of_ordered) = match order {
            Some(_) => self.filters.clone().split(),
            None => (self.filters.clone(), ChangeFilters::default()),
        };
        // In a run of epochs it is the run that publishes.
        let offsets = self.offsets.clone().filter(|_| free_running);
        let finished = FinishedRows {
            input: Box::pin(input),
            passed,
            filters,
            of_ordered,
            projection: Arc::clone(&self.projection),
            order,
            publishing: Publishing { offsets, hand_over: self.hand_over.unwrap_or_default() },
        };
        let rows = cut_at(finished.into_stream(), self.fetch);
        let stream = MeteredStream::new(self.schema(), rows, self.baseline.clone());
        Ok(Box::pin(cooperative(stream)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn with_fetch(&self, fetch: Option<usize>) -> Option<Arc<dyn ExecutionPlan>> {
        let properties = Self::properties_of(&self.schema(), self.spec.end.is_some() || fetch.is_some());
        Some(Arc::new(Self { fetch, properties: Arc::new(properties), ..self.clone() }))
    }

    fn fetch(&self) -> Option<usize> {
        self.fetch
    }
}
