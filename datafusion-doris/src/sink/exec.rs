//! The sink as a plan node.

use std::fmt;
use std::sync::Arc;

use arrow::array::UInt64Array;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::record_batch::RecordBatch;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::datasource::sink::DataSink;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::TaskContext;
use datafusion::physical_expr::{Distribution, EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{
    ChildrenPropertiesMode, EvaluationType, InvariantLevel, ReplaceChildrenOptions, SchedulingType,
    check_default_invariants,
};
use datafusion::physical_plan::metrics::MetricsSet;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, InputDistributionRequirements, Partitioning,
    PlanProperties, SendableRecordBatchStream,
};

use super::DorisSink;
use crate::changelog::check_change_order;
use crate::checkpoint::{EpochSink, SourceFinder, check_stateless, coordinator, merge_partitions};

/// Writes every partition of its input to a [`DorisSink`] and gives one row, `count: UInt64`, not null.
///
/// It runs all input partitions itself instead of asking the planner for a single one, so that no partition is lost
/// where that request does not travel (plans that cross an FFI or a network boundary), and merges them into one
/// load.
///
/// A bounded input is one statement. An unbounded one runs as a sequence of epochs ([`coordinator::run`]), each
/// committed by itself; the row appears when all sources are finished or stopped.
///
/// # Cancellation
/// Dropping the stream drops the statement, see [`DorisSink`].
#[derive(Debug)]
pub struct DorisSinkExec {
    input: Arc<dyn ExecutionPlan>,
    sink: Arc<DorisSink>,
    sources: SourceFinder,
    properties: Arc<PlanProperties>,
}

impl DorisSinkExec {
    /// Writes `input` to `sink`; `sources` finds the changelogs in an unbounded input.
    pub fn new(input: Arc<dyn ExecutionPlan>, sink: Arc<DorisSink>, sources: SourceFinder) -> Self {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(count_schema()),
            Partitioning::UnknownPartitioning(1),
            input.pipeline_behavior(),
            input.boundedness(),
        )
        .with_scheduling_type(SchedulingType::Cooperative)
        .with_evaluation_type(EvaluationType::Eager);
        Self { input, sink, sources, properties: Arc::new(properties) }
    }

    /// The rows to write.
    pub fn input(&self) -> &Arc<dyn ExecutionPlan> {
        &self.input
    }

    /// Where they go.
    pub fn sink(&self) -> &Arc<DorisSink> {
        &self.sink
    }

    /// What a reader of the plan may rely on.
    fn guarantee(&self) -> &'static str {
        match (self.input.boundedness().is_unbounded(), self.sink.options.two_phase_commit) {
            (false, _) => "all-or-nothing",
            (true, true) => "all-or-nothing per epoch",
            (true, false) => "at-least-once",
        }
    }
}

fn count_schema() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("count", DataType::UInt64, false)]))
}

impl DisplayAs for DorisSinkExec {
    fn fmt_as(&self, display: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if display != DisplayFormatType::TreeRender {
            write!(f, "DorisSinkExec: ")?;
        }
        self.sink.fmt_as(display, f)?;
        match display {
            DisplayFormatType::TreeRender => writeln!(f, "guarantee={}", self.guarantee()),
            _ => write!(f, ", guarantee={}", self.guarantee()),
        }
    }
}

impl ExecutionPlan for DorisSinkExec {
    fn name(&self) -> &str {
        "DorisSinkExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn input_distribution_requirements(&self) -> InputDistributionRequirements {
        InputDistributionRequirements::new(vec![Distribution::UnspecifiedDistribution])
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        // One load takes the rows one after the other, and round robin would let changes of a key overtake another.
        vec![false]
    }

    fn check_invariants(&self, check: InvariantLevel) -> Result<()> {
        check_default_invariants(self, check)?;
        if matches!(check, InvariantLevel::Executable) {
            check_change_order(&self.input)?;
            if self.input.boundedness().is_unbounded() {
                check_stateless(&self.input)?;
            }
        }
        Ok(())
    }

    fn replace_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        match (children.pop(), children.is_empty()) {
            (Some(input), true) => Ok(Arc::new(Self::new(input, Arc::clone(&self.sink), self.sources))),
            _ => Err(DataFusionError::Internal("DorisSinkExec has exactly one child".into())),
        }
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        self.replace_children(children, ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute))
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        if partition != 0 {
            return Err(DataFusionError::Internal(format!("DorisSinkExec has one partition, not {partition}")));
        }
        let (input, sink, sources) = (Arc::clone(&self.input), Arc::clone(&self.sink), self.sources);
        let rows = async move {
            let rows = if input.boundedness().is_unbounded() {
                let found = sources(&input);
                coordinator::run(input, found, sink as Arc<dyn EpochSink>, context).await?
            } else {
                let data = merge_partitions(&input, &context)?;
                sink.write_all(data, &context).await?
            };
            Ok(RecordBatch::try_new(count_schema(), vec![Arc::new(UInt64Array::from(vec![rows]))])?)
        };
        Ok(Box::pin(RecordBatchStreamAdapter::new(count_schema(), futures::stream::once(rows))))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        self.sink.metrics()
    }
}
