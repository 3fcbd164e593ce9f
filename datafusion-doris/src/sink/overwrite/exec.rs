//! `INSERT OVERWRITE` as a plan node.

use std::fmt;
use std::sync::Arc;

use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::datasource::sink::DataSink;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::TaskContext;
use datafusion::physical_expr::{Distribution, EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{
    Boundedness, ChildrenPropertiesMode, EmissionType, EvaluationType, ReplaceChildrenOptions, SchedulingType,
};
use datafusion::physical_plan::metrics::MetricsSet;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, InputDistributionRequirements, Partitioning, PlanProperties,
    SendableRecordBatchStream,
};
use parking_lot::Mutex;

use super::{DorisSink, Overwrite};
use crate::checkpoint::merge_partitions;
use crate::count::{count_schema, counted};

/// Replaces the rows of a Doris table by those of its input and gives one row, `count: UInt64`, not null.
///
/// # Delivery
/// The rows are loaded into a staging table (`datafusion_overwrite_…`, made like the target and dropped after), then put in
/// place by one INSERT OVERWRITE of Doris. Readers see the old rows or the new ones; an error, or the end of the process,
/// leaves the old ones. The outcome of a lost answer is found by the statement's label and the table's partitions. Rows
/// that others write meanwhile are replaced too.
///
/// Needs the privileges SELECT, LOAD, CREATE and DROP on the database, and `jdbc-url`.
///
/// # Cancellation
/// Dropping the stream aborts the loads, ends the statement in Doris by `KILL QUERY` (it may have been done by then) and
/// drops the staging table. When the process ends instead, the staging table stays, and can be dropped by its name.
#[derive(Debug)]
pub struct DorisOverwriteExec {
    input: Arc<dyn ExecutionPlan>,
    overwrite: Arc<Overwrite>,
    /// The sink of the last run.
    sink: Arc<Mutex<Option<Arc<DorisSink>>>>,
    properties: Arc<PlanProperties>,
}

impl DorisOverwriteExec {
    /// Writes the rows of a bounded `input`.
    pub fn new(input: Arc<dyn ExecutionPlan>, overwrite: Arc<Overwrite>) -> Self {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(count_schema()),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Final,
            Boundedness::Bounded,
        )
        .with_scheduling_type(SchedulingType::Cooperative)
        .with_evaluation_type(EvaluationType::Eager);
        Self { input, overwrite, sink: Arc::default(), properties: Arc::new(properties) }
    }
}

impl DisplayAs for DorisOverwriteExec {
    fn fmt_as(&self, display: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let table = &self.overwrite.target.table;
        let partitions = self.overwrite.partition_names().map_or("all".to_string(), |names| names.join(", "));
        match display {
            DisplayFormatType::TreeRender => {
                writeln!(f, "table={table}")?;
                writeln!(f, "partitions={partitions}")
            }
            _ => write!(f, "DorisOverwriteExec: table={table}, partitions={partitions}, atomic by a staging table"),
        }
    }
}

impl ExecutionPlan for DorisOverwriteExec {
    fn name(&self) -> &str {
        "DorisOverwriteExec"
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
        vec![false]
    }

    fn replace_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        match (children.pop(), children.is_empty()) {
            (Some(input), true) => {
                let copy = Self::new(input, Arc::clone(&self.overwrite));
                Ok(Arc::new(Self { sink: Arc::clone(&self.sink), ..copy }))
            }
            _ => Err(DataFusionError::Internal("DorisOverwriteExec has exactly one child".into())),
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
            return Err(DataFusionError::Internal(format!("DorisOverwriteExec has one partition, not {partition}")));
        }
        let (input, overwrite, slot) = (Arc::clone(&self.input), Arc::clone(&self.overwrite), Arc::clone(&self.sink));
        Ok(counted(async move {
            let data = merge_partitions(&input, &context)?;
            Ok(overwrite.run(|sink| *slot.lock() = Some(sink), data).await?)
        }))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        self.sink.lock().as_ref().and_then(|sink| sink.metrics())
    }
}
