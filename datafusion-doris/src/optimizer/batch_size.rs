//! A node that changes the batch size of what is below it.

use std::fmt;
use std::sync::Arc;

use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, Statistics, internal_err};
use datafusion::execution::TaskContext;
use datafusion::execution::context::SessionConfig;
use datafusion::physical_plan::execution_plan::{ChildrenPropertiesMode, ReplaceChildrenOptions};
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, PhysicalExpr, PlanProperties, SendableRecordBatchStream,
};

/// Which batch size the input sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BatchSize {
    /// This many rows.
    Rows(usize),
    /// What the session said before a node above changed it.
    Session,
}

/// The session's own batch size, kept beside the changed one.
struct SessionBatchSize(usize);

/// Runs its input with another batch size; rows pass through unchanged.
///
/// Used in pairs: one above a join sets a small size, so that the join gives its rows at once, and one above each
/// input of the join restores the session's size, so that the static side is read in normal batches.
#[derive(Debug, Clone)]
pub struct BatchSizeExec {
    input: Arc<dyn ExecutionPlan>,
    size: BatchSize,
}

impl BatchSizeExec {
    /// The input sees `rows` as its batch size.
    pub fn rows(input: Arc<dyn ExecutionPlan>, rows: usize) -> Self {
        Self { input, size: BatchSize::Rows(rows.max(1)) }
    }

    /// The input sees the session's batch size again.
    pub fn session(input: Arc<dyn ExecutionPlan>) -> Self {
        Self { input, size: BatchSize::Session }
    }

    pub(super) fn context(&self, context: &Arc<TaskContext>) -> Arc<TaskContext> {
        let config = context.session_config();
        let kept = config.get_extension::<SessionBatchSize>();
        let changed = match (self.size, kept) {
            (BatchSize::Session, None) => return Arc::clone(context),
            (BatchSize::Session, Some(kept)) => config.clone().with_batch_size(kept.0),
            (BatchSize::Rows(rows), Some(_)) => config.clone().with_batch_size(rows),
            (BatchSize::Rows(rows), None) => {
                let kept = Arc::new(SessionBatchSize(config.batch_size()));
                config.clone().with_extension(kept).with_batch_size(rows)
            }
        };
        Arc::new(with_config(context, changed))
    }
}

/// A copy of `context` with another configuration.
fn with_config(context: &TaskContext, config: SessionConfig) -> TaskContext {
    TaskContext::new(
        context.task_id(),
        context.session_id(),
        config,
        context.scalar_functions().clone(),
        context.higher_order_functions().clone(),
        context.aggregate_functions().clone(),
        context.window_functions().clone(),
        context.runtime_env(),
    )
}

impl DisplayAs for BatchSizeExec {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = match self.size {
            BatchSize::Rows(rows) => format!("batch_size={rows}"),
            BatchSize::Session => "batch_size=session".to_string(),
        };
        match format {
            DisplayFormatType::Default | DisplayFormatType::Verbose => write!(f, "BatchSizeExec: {size}"),
            DisplayFormatType::TreeRender => writeln!(f, "{size}"),
        }
    }
}

impl ExecutionPlan for BatchSizeExec {
    fn name(&self) -> &str {
        "BatchSizeExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.input.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn apply_expressions(
        &self,
        _f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
        _options: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        match (children.pop(), children.is_empty()) {
            (Some(input), true) => Ok(Arc::new(Self { input, size: self.size })),
            _ => internal_err!("BatchSizeExec has one child"),
        }
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        self.replace_children(children, ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        self.input.execute(partition, self.context(&context))
    }

    fn child_stats_requests(&self, partition: Option<usize>) -> Vec<ChildStats> {
        vec![ChildStats::At(partition)]
    }

    fn statistics_from_inputs(
        &self,
        input_stats: &[Arc<Statistics>],
        _args: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        match input_stats {
            [input] => Ok(Arc::clone(input)),
            _ => internal_err!("BatchSizeExec has one child"),
        }
    }

    fn supports_limit_pushdown(&self) -> bool {
        true
    }
}
