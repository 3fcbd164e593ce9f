//! The plan node of a snapshot scan.

use std::fmt;
use std::sync::Arc;

use arrow::array::AsArray;
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, FieldRef, Int64Type, SchemaRef};
use arrow::record_batch::RecordBatch;
use datafusion::common::config::ConfigOptions;
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{ColumnStatistics, Result as DfResult, ScalarValue, Statistics, internal_err};
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::MemoryConsumer;
use datafusion::physical_expr::{DynamicFilterTracking, EquivalenceProperties};
use datafusion::physical_plan::coop::cooperative;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType, ReplaceChildrenOptions, SchedulingType};
use datafusion::physical_plan::filter_pushdown::{
    ChildPushdownResult, FilterPushdownPhase, FilterPushdownPropagation, PushedDown,
};
use datafusion::physical_plan::metrics::{BaselineMetrics, Count, ExecutionPlanMetricsSet, MetricBuilder, MetricsSet};
use datafusion::physical_plan::statistics::StatisticsArgs;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PhysicalExpr, PlanProperties, SendableRecordBatchStream,
};
use futures::stream::BoxStream;
use futures::{Stream, StreamExt, TryStreamExt};

use super::bounded::{cut_at, empty_rows, in_slices, reserved};
use super::dynamic::with_dynamic_filters;
use super::lookup::DorisRows;
use super::plan::Transport;
use super::read::Statement;
use super::{Conformer, MeteredStream, ScanPlan, ScanSplit};
use crate::client::{ColumnFacts, DorisClient, ReadMemory, TableFacts};
use crate::error::{Error, Result};
use crate::lookup::{KeyColumn, RowSource};
use crate::options::{LookupOptions, PushdownOptions};
use crate::sql::has_key_literals;
use crate::types::DorisType;

/// Bytes at which a value without a fixed width is estimated.
const TYPICAL_WIDTH: usize = 32;

/// Reads a table as it is now: one statement per partition, begun at the first poll, on a connection of its own (a Flight
/// session, or one of the MySQL protocol).
///
/// A statement that gives no rows because a node is lost is run again; after its first batch an error is the query's.
///
/// # Memory
/// Reserved in the session's memory pool: the batch given last, the next one that is made of what came, and of each
/// part of a result those that wait to be taken and one that is being received.
///
/// # Cancellation
/// Dropping a partition's stream ends its transfer and its session; other partitions go on.
#[derive(Debug, Clone)]
pub struct DorisScanExec {
    client: DorisClient,
    plan: Arc<ScanPlan>,
    schema: SchemaRef,
    /// Doris type per column of `schema`.
    types: Arc<[DorisType]>,
    /// Exactly this many rows per partition, if there are so many.
    fetch: Option<usize>,
    /// For estimates.
    facts: TableFacts,
    /// How a stream asks for rows by their keys; `None`: it reads them all.
    lookup: Option<LookupOptions>,
    /// What DataFusion learns while it runs, read when a partition starts.
    dynamic: Arc<[Arc<dyn PhysicalExpr>]>,
    pushdown: PushdownOptions,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
    /// Made once per node: a node that is executed again and again must not register new ones each time.
    partition_metrics: Arc<[PartitionMetrics]>,
}

#[derive(Debug, Clone)]
struct PartitionMetrics {
    baseline: BaselineMetrics,
    rows_received: Count,
    bytes_received: Count,
}

impl DorisScanExec {
    /// A scan of `plan`, whose columns are those of `schema` with the Doris types `types`.
    pub(crate) fn new(client: DorisClient, plan: ScanPlan, schema: SchemaRef, types: Arc<[DorisType]>) -> Self {
        Self::build(client, Arc::new(plan), schema, types, None)
    }

    /// With what is known of the table's size.
    pub(crate) fn with_facts(mut self, facts: TableFacts) -> Self {
        self.facts = facts;
        self
    }

    /// With the options of lookups, if streams shall do such.
    pub(crate) fn with_lookup(mut self, options: &LookupOptions) -> Self {
        self.lookup = Some(options).filter(|options| options.enabled).cloned();
        self
    }

    /// The rows of this scan by the values of some of its columns, and the options of lookups; `None` when they are not
    /// asked for, or the scan gives only some of its rows.
    pub(crate) fn lookup_source(&self, keys: &[KeyColumn]) -> Option<(LookupOptions, Arc<dyn RowSource>)> {
        let options = self.lookup.clone()?;
        if self.fetch.is_some() || self.plan.limit.is_some() || self.plan.counts_only() {
            return None;
        }
        let keys: Vec<usize> = keys.iter().map(|key| key.index).collect();
        let comparable = |index: &usize| {
            let natural = self.types[*index].arrow_type().ok();
            natural.as_ref() == Some(self.schema.field(*index).data_type()) && has_key_literals(&self.types[*index])
        };
        let rows = DorisRows {
            client: self.client.clone(),
            plan: self.plan.as_ref().clone(),
            schema: Arc::clone(&self.schema),
            types: Arc::clone(&self.types),
            keys,
        };
        rows.keys.iter().all(comparable).then(|| (options, Arc::new(rows) as _))
    }

    fn build(
        client: DorisClient,
        plan: Arc<ScanPlan>,
        schema: SchemaRef,
        types: Arc<[DorisType]>,
        fetch: Option<usize>,
    ) -> Self {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(Arc::clone(&schema)),
            // Without a tablet there is one, which is empty.
            Partitioning::UnknownPartitioning(plan.splits.len().max(1)),
            EmissionType::Incremental,
            Boundedness::Bounded,
        )
        .with_scheduling_type(SchedulingType::Cooperative);
        let metrics = ExecutionPlanMetricsSet::new();
        let partition_metrics = (0..plan.splits.len().max(1)).map(|partition| PartitionMetrics {
            baseline: BaselineMetrics::new(&metrics, partition),
            rows_received: MetricBuilder::new(&metrics).counter("rows_received", partition),
            bytes_received: MetricBuilder::new(&metrics).counter("bytes_received", partition),
        });
        let partition_metrics = partition_metrics.collect();
        let (facts, lookup) = (TableFacts::default(), None);
        Self {
            client,
            plan,
            schema,
            types,
            fetch,
            facts,
            lookup,
            dynamic: Arc::new([]),
            pushdown: PushdownOptions::default(),
            properties: Arc::new(properties),
            metrics,
            partition_metrics,
        }
    }

    /// The same scan under these settings.
    pub(crate) fn with_pushdown(self, pushdown: PushdownOptions) -> Self {
        Self { pushdown, ..self }
    }

    /// The same rows by one statement, whatever tablets the table has by then: for plans that outlive the list of tablets
    /// that was made when they were planned.
    pub(crate) fn of_whole_table(&self) -> Self {
        let mut plan = self.plan.as_ref().clone();
        plan.splits = vec![ScanSplit::default()];
        let Self { client, schema, types, fetch, facts, lookup, pushdown, .. } = self.clone();
        Self { lookup, pushdown, ..Self::build(client, Arc::new(plan), schema, types, fetch).with_facts(facts) }
    }

    /// What it reads, as text that is the same at every start: without tablets and nodes.
    pub(crate) fn statement(&self) -> String {
        self.plan.display_sql(&ScanSplit::default())
    }

    /// What is sent to Doris.
    pub fn plan(&self) -> &ScanPlan {
        &self.plan
    }

    /// Estimates, for plans: what the server counted, less what conditions (a fifth is left, as DataFusion guesses) and
    /// limit take away. One partition has its share of the splits.
    fn estimate(&self, partition: Option<usize>) -> Statistics {
        let mut statistics = Statistics::new_unknown(&self.schema);
        let Some(mut rows) = self.facts.rows.and_then(|rows| usize::try_from(rows).ok()) else { return statistics };
        let splits = self.plan.splits.len();
        if splits == 0 {
            rows = 0;
        }
        if self.plan.filter.is_some() {
            rows = rows.div_ceil(5);
        }
        if partition.is_some() {
            rows = rows.div_ceil(splits.max(1));
        }
        if let Some(limit) = self.fetch.or(self.plan.limit) {
            rows = rows.min(limit);
        }
        let width = |field: &FieldRef| field.data_type().primitive_width().unwrap_or(TYPICAL_WIDTH);
        let row_bytes: usize = self.schema.fields().iter().map(width).sum();
        for ((column, name), field) in
            statistics.column_statistics.iter_mut().zip(&self.plan.columns).zip(self.schema.fields())
        {
            if let Some(facts) = self.facts.columns.get(name) {
                *column = column_statistics(facts, field.data_type(), rows);
            }
        }
        statistics.num_rows = Precision::Inexact(rows);
        statistics.total_byte_size = Precision::Inexact(rows.saturating_mul(row_bytes));
        statistics
    }

    fn open(
        &self,
        partition: usize,
        batch_size: usize,
        memory: ReadMemory,
    ) -> impl Stream<Item = Result<RecordBatch>> + Send + 'static {
        let Self { client, plan, schema, types, .. } = self.clone();
        let PartitionMetrics { rows_received, bytes_received, .. } = self.partition_metrics[partition].clone();
        let dynamic = Arc::clone(&self.dynamic);
        let opened = async move {
            let Some(split) = plan.splits.get(partition).cloned() else { return Ok(futures::stream::empty().boxed()) };
            // Only now: a join asks for its larger side when it has read the smaller one.
            let plan = with_dynamic_filters(plan, &dynamic, &schema, &types)?;
            let table = plan.table.to_string();
            let most_rows = plan.settings.batch_rows;
            let statement = Statement {
                client,
                table: table.clone(),
                sql: plan.sql(&split),
                settings: plan.settings.clone(),
                types: if plan.counts_only() { [DorisType::BigInt].into() } else { Arc::clone(&types) },
                batch_rows: most_rows.unwrap_or(batch_size),
                memory,
            };
            let batches = statement.run().await?.inspect_ok(move |batch| {
                rows_received.add(batch.num_rows());
                bytes_received.add(size_of_values(batch));
            });
            if plan.counts_only() {
                let mut total = 0;
                let mut batches = std::pin::pin!(batches);
                while let Some(batch) = batches.next().await {
                    total += row_count(&table, &batch?)?;
                }
                return Ok(empty_rows(schema, total, batch_size).boxed());
            }
            let mut conformer = Conformer::new(table, schema, types);
            Ok::<BoxStream<'static, Result<RecordBatch>>, Error>(in_slices(
                batches.map(move |batch| conformer.conform(&batch?)).boxed(),
                most_rows,
            ))
        };
        futures::stream::once(opened).try_flatten()
    }
}

/// What is known of a column, of which a scan gives at most `rows` values. Bounds of texts are left out: Doris may have
/// cut them.
fn column_statistics(facts: &ColumnFacts, data_type: &DataType, rows: usize) -> ColumnStatistics {
    let at_most = |number: Option<u64>| match number.and_then(|number| usize::try_from(number).ok()) {
        Some(number) => Precision::Inexact(number.min(rows)),
        None => Precision::Absent,
    };
    let ordered = data_type.is_integer()
        || data_type.is_floating()
        || data_type.is_decimal()
        || matches!(data_type, DataType::Date32 | DataType::Timestamp(_, None));
    let bound = |text: &Option<String>| {
        let text = text.as_ref().filter(|_| ordered)?;
        let value = ScalarValue::try_from_string(text.clone(), data_type).ok()?;
        (!value.is_null()).then_some(Precision::Inexact(value))
    };
    ColumnStatistics {
        distinct_count: at_most(facts.distinct),
        null_count: at_most(facts.nulls),
        min_value: bound(&facts.min).unwrap_or(Precision::Absent),
        max_value: bound(&facts.max).unwrap_or(Precision::Absent),
        ..ColumnStatistics::new_unknown()
    }
}

fn is_dynamic(filter: &Arc<dyn PhysicalExpr>) -> bool {
    DynamicFilterTracking::classify(filter).contains_dynamic_filter()
}

/// Bytes of the rows of a batch, whose buffers may be parts of larger ones.
fn size_of_values(batch: &RecordBatch) -> usize {
    batch.columns().iter().map(|column| column.to_data().get_slice_memory_size().unwrap_or_default()).sum()
}

/// The number in an answer to `SELECT COUNT(*)`.
fn row_count(table: &str, batch: &RecordBatch) -> Result<usize> {
    let invalid = || Error::schema(table, "doris answered something else than a number to SELECT COUNT(*)");
    let column = batch.columns().first().ok_or_else(invalid)?;
    let exact = CastOptions { safe: false, ..Default::default() };
    let counts = cast_with_options(column, &DataType::Int64, &exact)?;
    let counts = counts.as_primitive::<Int64Type>().iter();
    counts.map(|count| count.and_then(|count| usize::try_from(count).ok()).ok_or_else(invalid)).sum()
}

impl DisplayAs for DorisScanExec {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let splits = &self.plan.splits;
        let shown = match format {
            DisplayFormatType::Verbose => splits.len(),
            DisplayFormatType::Default | DisplayFormatType::TreeRender => 1,
        };
        let sql: Vec<String> = splits.iter().take(shown).map(|split| self.plan.display_sql(split)).collect();
        let more = splits.len().saturating_sub(shown);
        let fetch = self.fetch.map(|fetch| format!(", fetch={fetch}")).unwrap_or_default();
        let dynamic: Vec<String> = self.dynamic.iter().map(ToString::to_string).collect();
        let transport = self.plan.settings.transport;
        let by = if transport == Transport::Flight { String::new() } else { format!(", transport={transport}") };
        match format {
            DisplayFormatType::Default | DisplayFormatType::Verbose => {
                write!(f, "DorisScanExec: table={}, partitions={}{by}{fetch}, sql=[", self.plan.table, splits.len())?;
                write!(f, "{}", sql.join("; "))?;
                if more > 0 {
                    write!(f, "; {more} more by other tablets")?;
                }
                write!(f, "]")?;
                if dynamic.is_empty() { Ok(()) } else { write!(f, ", dynamic=[{}]", dynamic.join("; ")) }
            }
            DisplayFormatType::TreeRender => {
                writeln!(f, "table={}", self.plan.table)?;
                writeln!(f, "partitions={}", splits.len())?;
                if transport != Transport::Flight {
                    writeln!(f, "transport={transport}")?;
                }
                if let Some(fetch) = self.fetch {
                    writeln!(f, "fetch={fetch}")?;
                }
                sql.iter().try_for_each(|sql| writeln!(f, "sql={sql}"))?;
                dynamic.iter().try_for_each(|filter| writeln!(f, "dynamic={filter}"))
            }
        }
    }
}

impl ExecutionPlan for DorisScanExec {
    fn name(&self) -> &str {
        "DorisScanExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![]
    }

    fn apply_expressions(
        &self,
        _f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> DfResult<TreeNodeRecursion>,
    ) -> DfResult<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
        _options: ReplaceChildrenOptions,
    ) -> DfResult<Arc<dyn ExecutionPlan>> {
        if children.is_empty() { Ok(self) } else { internal_err!("DorisScanExec has no children") }
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Arc<dyn ExecutionPlan>>) -> DfResult<Arc<dyn ExecutionPlan>> {
        if children.is_empty() { Ok(self) } else { internal_err!("DorisScanExec has no children") }
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> DfResult<SendableRecordBatchStream> {
        let Some(metrics) = self.partition_metrics.get(partition) else {
            return internal_err!("DorisScanExec has no partition {partition}");
        };
        let batch_size = context.session_config().batch_size();
        let reservation = MemoryConsumer::new(format!("DorisScanExec[{partition}]")).register(context.memory_pool());
        let ahead = ReadMemory::beside(&reservation);
        let batches = reserved(self.open(partition, batch_size, ahead).boxed(), reservation);
        let batches = cut_at(batches, self.fetch);
        let stream = MeteredStream::new(Arc::clone(&self.schema), batches, metrics.baseline.clone());
        Ok(Box::pin(cooperative(stream)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn statistics_from_inputs(&self, _inputs: &[Arc<Statistics>], args: &StatisticsArgs) -> DfResult<Arc<Statistics>> {
        Ok(Arc::new(self.estimate(args.partition())))
    }

    fn with_fetch(&self, fetch: Option<usize>) -> Option<Arc<dyn ExecutionPlan>> {
        let mut plan = self.plan.as_ref().clone();
        if self.pushdown.limit {
            plan.limit = match (plan.limit, fetch) {
                (Some(limit), Some(fetch)) => Some(limit.min(fetch)),
                (limit, fetch) => limit.or(fetch),
            };
        }
        let Self { client, schema, types, facts, lookup, dynamic, pushdown, .. } = self.clone();
        let limited = Self::build(client, Arc::new(plan), schema, types, fetch).with_facts(facts);
        Some(Arc::new(Self { lookup, dynamic, pushdown, ..limited }))
    }

    fn handle_child_pushdown_result(
        &self,
        phase: FilterPushdownPhase,
        offered: ChildPushdownResult,
        _config: &ConfigOptions,
    ) -> DfResult<FilterPushdownPropagation<Arc<dyn ExecutionPlan>>> {
        let filters: Vec<_> = offered.parent_filters.into_iter().map(|offered| offered.filter).collect();
        // Whoever offers one filters itself: what is sent is at most a part of it.
        let answer = FilterPushdownPropagation::with_parent_pushdown_result(vec![PushedDown::No; filters.len()]);
        let wanted = phase == FilterPushdownPhase::Post && self.pushdown.dynamic_filter;
        let dynamic: Vec<_> = filters.into_iter().filter(is_dynamic).collect();
        // A limit counts the rows that pass all filters.
        if !wanted || dynamic.is_empty() || self.plan.limit.is_some() || self.fetch.is_some() {
            return Ok(answer);
        }
        let dynamic = self.dynamic.iter().cloned().chain(dynamic).collect();
        let scan = Self { dynamic, ..self.clone() };
        Ok(answer.with_updated_node(Arc::new(scan)))
    }

    fn fetch(&self) -> Option<usize> {
        self.fetch
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use arrow::array::{Int64Array, StringArray};
    use arrow::datatypes::{Field, Schema};

    use super::*;

    fn numbers(values: std::ops::Range<i64>) -> RecordBatch {
        let schema = Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, false)]));
        RecordBatch::try_new(schema, vec![Arc::new(Int64Array::from_iter_values(values))]).unwrap()
    }

    #[test]
    fn count_is_read_from_number_or_text() {
        assert_eq!(row_count("db.t", &numbers(3..4)).unwrap(), 3);
        let schema = Arc::new(Schema::new(vec![Field::new("row_count", DataType::Utf8, false)]));
        let text = RecordBatch::try_new(schema, vec![Arc::new(StringArray::from(vec!["12"]))]).unwrap();
        assert_eq!(row_count("db.t", &text).unwrap(), 12);
        assert!(row_count("db.t", &numbers(-1..0)).is_err());
    }
}
