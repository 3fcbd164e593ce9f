//! Decoding as a plan node.

use std::fmt;
use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::TaskContext;
use datafusion::physical_expr::{Distribution, EquivalenceProperties, OrderingRequirements, PhysicalExpr};
use datafusion::physical_optimizer::output_requirements::OutputRequirementExec;
use datafusion::physical_plan::execution_plan::{
    ChildrenPropertiesMode, InvariantLevel, ReplaceChildrenOptions, check_default_invariants,
};
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, Partitioning, PlanProperties,
    SendableRecordBatchStream,
};
use futures::StreamExt;

use super::DebeziumDecoder;
use crate::error::Error;

/// Change events of one text column to rows with a change kind, batch by batch, in their order.
///
/// Events of a key are applied in the order of the input, so a plan that reads it in several partitions at once, and
/// does not sort it then, is refused.
#[derive(Debug)]
pub struct DebeziumExec {
    input: Arc<dyn ExecutionPlan>,
    decoder: Arc<DebeziumDecoder>,
    properties: Arc<PlanProperties>,
}

impl DebeziumExec {
    /// Decodes the one column of a planned statement's `input`; where that says ORDER BY, the order is kept, which is
    /// not so for rows: DataFusion sees no use in it.
    ///
    /// # Errors
    /// Those of rewriting a plan.
    pub fn planned(input: Arc<dyn ExecutionPlan>, decoder: Arc<DebeziumDecoder>) -> Result<Self> {
        let kept = input.transform_down(|node| {
            let Some(sort) = node.downcast_ref::<SortExec>() else { return Ok(Transformed::no(node)) };
            let order = OrderingRequirements::from(sort.expr().clone());
            let distribution = Distribution::SinglePartition;
            let kept = OutputRequirementExec::new(Arc::clone(&node), Some(order), distribution, None);
            Ok(Transformed::new(Arc::new(kept) as _, true, TreeNodeRecursion::Jump))
        })?;
        Ok(Self::new(kept.data, decoder))
    }

    /// Decodes the one column of `input`.
    pub fn new(input: Arc<dyn ExecutionPlan>, decoder: Arc<DebeziumDecoder>) -> Self {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(Arc::clone(decoder.schema())),
            Partitioning::UnknownPartitioning(input.output_partitioning().partition_count()),
            input.pipeline_behavior(),
            input.boundedness(),
        );
        Self { input, decoder, properties: Arc::new(properties) }
    }
}

impl DisplayAs for DebeziumExec {
    fn fmt_as(&self, display: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.decoder.schema().fields().iter().map(|field| field.name().as_str()).collect();
        match display {
            DisplayFormatType::TreeRender => writeln!(f, "columns={}", names.join(", ")),
            _ => write!(f, "DebeziumExec: columns=[{}]", names.join(", ")),
        }
    }
}

impl ExecutionPlan for DebeziumExec {
    fn name(&self) -> &str {
        "DebeziumExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        // Round robin would let changes of a key overtake another.
        vec![false]
    }

    fn check_invariants(&self, check: InvariantLevel) -> Result<()> {
        check_default_invariants(self, check)?;
        if matches!(check, InvariantLevel::Executable) {
            check_order(&self.input)?;
        }
        Ok(())
    }

    fn replace_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        match (children.pop(), children.is_empty()) {
            (Some(input), true) => Ok(Arc::new(Self::new(input, Arc::clone(&self.decoder)))),
            _ => Err(DataFusionError::Internal("DebeziumExec has exactly one child".into())),
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
        let input = self.input.execute(partition, context)?;
        let mut decoder = self.decoder.as_ref().clone();
        let rows = input.map(move |batch| {
            let batch = batch?;
            let [events] = batch.columns() else {
                return Err(DataFusionError::Internal("change events come in one column".into()));
            };
            Ok(decoder.decode(events)?)
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(Arc::clone(self.decoder.schema()), rows)))
    }
}

/// Refuses a plan whose rows may overtake each other.
fn check_order(plan: &Arc<dyn ExecutionPlan>) -> Result<()> {
    let mut unordered = None;
    plan.apply(|node| {
        if node.is::<SortExec>() || node.is::<SortPreservingMergeExec>() {
            return Ok(TreeNodeRecursion::Jump);
        }
        let partitions = node.output_partitioning().partition_count();
        if partitions > 1 {
            unordered = Some(format!("{} gives change events in {partitions} partitions", node.name()));
            return Ok(TreeNodeRecursion::Stop);
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    let advice = "events of one key could overtake each other; SET datafusion.execution.target_partitions = 1, or add \
                  ORDER BY the position of the events";
    unordered.map_or(Ok(()), |what| Err(Error::unsupported(what, advice).into()))
}
