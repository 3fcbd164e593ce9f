//! The plan node of a snapshot scan.

use std::fmt;
use std::sync::Arc;

use arrow::array::{AsArray, RecordBatchOptions};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, Int64Type, SchemaRef};
use arrow::record_batch::RecordBatch;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result as DfResult, internal_err};
use datafusion::execution::TaskContext;
use datafusion::physical_expr::EquivalenceProperties;
use datafusion::physical_plan::coop::cooperative;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType, ReplaceChildrenOptions, SchedulingType};
use datafusion::physical_plan::metrics::{BaselineMetrics, Count, ExecutionPlanMetricsSet, MetricBuilder, MetricsSet};
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PhysicalExpr, PlanProperties, SendableRecordBatchStream,
};
use futures::stream::BoxStream;
use futures::{Stream, StreamExt, TryStreamExt};

use super::{Conformer, MeteredStream, ScanPlan, ScanSplit, open_session};
use crate::client::{DorisClient, FlightSession};
use crate::error::{Error, Result};
use crate::types::DorisType;

/// Reads a table as it is now: one statement and one Flight session per partition, opened at the first poll.
///
/// # Cancellation
/// Dropping a partition's stream ends its transfer and its Flight session; other partitions go on.
#[derive(Debug, Clone)]
pub struct DorisScanExec {
    client: DorisClient,
    plan: Arc<ScanPlan>,
    schema: SchemaRef,
    /// Doris type per column of `schema`.
    types: Arc<[DorisType]>,
    /// Exactly this many rows per partition, if there are so many.
    fetch: Option<usize>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
    /// Made once per node: a node that is executed again and again must not register new ones each time.
    partition_metrics: Arc<[PartitionMetrics]>,
}

#[derive(Debug, Clone)]
struct PartitionMetrics {
    baseline: BaselineMetrics,
    rows_received: Count,
}

impl DorisScanExec {
    /// A scan of `plan`, whose columns are those of `schema` with the Doris types `types`.
    pub(crate) fn new(client: DorisClient, plan: ScanPlan, schema: SchemaRef, types: Arc<[DorisType]>) -> Self {
        Self::build(client, Arc::new(plan), schema, types, None)
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
        });
        let partition_metrics = partition_metrics.collect();
        Self { client, plan, schema, types, fetch, properties: Arc::new(properties), metrics, partition_metrics }
    }

    /// The same rows by one statement, whatever tablets the table has by then: for plans that outlive the list of tablets
    /// that was made when they were planned.
    pub(crate) fn of_whole_table(&self) -> Self {
        let mut plan = self.plan.as_ref().clone();
        plan.splits = vec![ScanSplit::default()];
        let Self { client, schema, types, fetch, .. } = self.clone();
        Self::build(client, Arc::new(plan), schema, types, fetch)
    }

    /// What it reads, as text that is the same at every start: without tablets and nodes.
    pub(crate) fn statement(&self) -> String {
        self.plan.display_sql(&ScanSplit::default())
    }

    /// What is sent to Doris.
    pub fn plan(&self) -> &ScanPlan {
        &self.plan
    }

    fn open(&self, partition: usize, batch_size: usize) -> impl Stream<Item = Result<RecordBatch>> + Send + 'static {
        let Self { client, plan, schema, types, .. } = self.clone();
        let received = self.partition_metrics[partition].rows_received.clone();
        let opened = async move {
            let Some(split) = plan.splits.get(partition) else { return Ok(futures::stream::empty().boxed()) };
            let mut session = open_session(&client).await?;
            let sql = plan.sql(split);
            let query = session.query(&sql).await?;
            let batches = closing(session, query.into_stream()).inspect_ok(move |batch| {
                received.add(batch.num_rows());
            });
            if plan.counts_only() {
                let table = plan.table.to_string();
                let mut total = 0;
                let mut batches = std::pin::pin!(batches);
                while let Some(batch) = batches.next().await {
                    total += row_count(&table, &batch?)?;
                }
                return Ok(empty_rows(schema, total, batch_size).boxed());
            }
            let mut conformer = Conformer::new(plan.table.to_string(), schema, types);
            Ok::<BoxStream<'static, Result<RecordBatch>>, Error>(
                batches.map(move |batch| conformer.conform(&batch?)).boxed(),
            )
        };
        futures::stream::once(opened).try_flatten()
    }
}

/// `batches`, with the session alive until their end and closed then.
fn closing(
    session: FlightSession,
    batches: impl Stream<Item = Result<RecordBatch>> + Send + 'static,
) -> impl Stream<Item = Result<RecordBatch>> + Send {
    futures::stream::unfold(Some((batches.boxed(), session)), |state| async move {
        let (mut batches, session) = state?;
        match batches.next().await {
            Some(Ok(batch)) => Some((Ok(batch), Some((batches, session)))),
            Some(Err(error)) => Some((Err(error), None)),
            None => {
                drop(batches);
                if let Err(error) = session.close().await {
                    tracing::debug!(%error, "closing a flight session failed");
                }
                None
            }
        }
    })
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

/// `rows` rows without columns, at most `batch_size` in a batch.
fn empty_rows(schema: SchemaRef, rows: usize, batch_size: usize) -> impl Stream<Item = Result<RecordBatch>> + Send {
    futures::stream::unfold(rows, move |left| {
        let schema = Arc::clone(&schema);
        async move {
            let slice = left.min(batch_size.max(1));
            if slice == 0 {
                return None;
            }
            let options = RecordBatchOptions::new().with_row_count(Some(slice));
            let batch = RecordBatch::try_new_with_options(schema, vec![], &options).map_err(Error::from);
            Some((batch, left - slice))
        }
    })
}

/// At most `fetch` rows of `batches`; nothing is polled once they are there.
pub(crate) fn cut_at(
    batches: impl Stream<Item = DfResult<RecordBatch>> + Send + 'static,
    fetch: Option<usize>,
) -> BoxStream<'static, DfResult<RecordBatch>> {
    let Some(fetch) = fetch else { return batches.boxed() };
    let state = (fetch > 0).then(|| (batches.boxed(), fetch));
    futures::stream::unfold(state, |state| async move {
        let (mut batches, left) = state?;
        match batches.next().await? {
            Ok(batch) if batch.num_rows() >= left => Some((Ok(batch.slice(0, left)), None)),
            Ok(batch) => {
                let left = left - batch.num_rows();
                Some((Ok(batch), Some((batches, left))))
            }
            Err(error) => Some((Err(error), None)),
        }
    })
    .boxed()
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
        match format {
            DisplayFormatType::Default | DisplayFormatType::Verbose => {
                write!(f, "DorisScanExec: table={}, partitions={}{fetch}, sql=[", self.plan.table, splits.len())?;
                write!(f, "{}", sql.join("; "))?;
                if more > 0 {
                    write!(f, "; {more} more by other tablets")?;
                }
                write!(f, "]")
            }
            DisplayFormatType::TreeRender => {
                writeln!(f, "table={}", self.plan.table)?;
                writeln!(f, "partitions={}", splits.len())?;
                if let Some(fetch) = self.fetch {
                    writeln!(f, "fetch={fetch}")?;
                }
                sql.iter().try_for_each(|sql| writeln!(f, "sql={sql}"))
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
        let batches = self.open(partition, batch_size).map_err(Into::into);
        let batches = cut_at(batches, self.fetch);
        let stream = MeteredStream::new(Arc::clone(&self.schema), batches, metrics.baseline.clone());
        Ok(Box::pin(cooperative(stream)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn with_fetch(&self, fetch: Option<usize>) -> Option<Arc<dyn ExecutionPlan>> {
        let mut plan = self.plan.as_ref().clone();
        plan.limit = match (plan.limit, fetch) {
            (Some(limit), Some(fetch)) => Some(limit.min(fetch)),
            (limit, fetch) => limit.or(fetch),
        };
        let Self { client, schema, types, .. } = self.clone();
        Some(Arc::new(Self::build(client, Arc::new(plan), schema, types, fetch)))
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

    #[tokio::test]
    async fn fetch_cuts_exactly_and_polls_no_further() {
        let forever = futures::stream::iter([Ok(numbers(0..3)), Ok(numbers(3..6))]).chain(futures::stream::pending());
        let cut: Vec<_> = cut_at(forever, Some(5)).try_collect().await.unwrap();
        assert_eq!(cut, vec![numbers(0..3), numbers(3..5)]);
        let none: Vec<_> = cut_at(futures::stream::pending(), Some(0)).try_collect().await.unwrap();
        assert!(none.is_empty());
    }

    #[tokio::test]
    async fn counted_rows_come_in_slices() {
        let schema = Arc::new(Schema::empty());
        let sizes = |rows, batch_size| {
            let batches = empty_rows(Arc::clone(&schema), rows, batch_size);
            async move {
                let batches: Vec<RecordBatch> = batches.try_collect().await.unwrap();
                batches.iter().map(RecordBatch::num_rows).collect::<Vec<_>>()
            }
        };
        assert_eq!(sizes(10, 4).await, vec![4, 4, 2]);
        assert_eq!(sizes(0, 4).await, Vec::<usize>::new());
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
