//! When a free-running read publishes its position.

use std::fmt;
use std::sync::Arc;

use arrow::record_batch::RecordBatch;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, Statistics, internal_err};
use datafusion::execution::TaskContext;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::execution_plan::{ChildrenPropertiesMode, ReplaceChildrenOptions};
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PhysicalExpr, PlanProperties,
    SendableRecordBatchStream,
};
use futures::StreamExt;

use super::offsets::Offsets;

/// How the rows of a free-running read reach whoever takes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum HandOver {
    /// Each batch at once: whoever asks for the next one has taken it.
    #[default]
    AtOnce,
    /// Through operators that hold rows back: all of them are taken when the plan has ended.
    AtEnd,
    /// The plan may end, by a limit, while some are held back.
    Unknown,
}

impl HandOver {
    /// What EXPLAIN says of the delivery.
    pub fn describe(self, keeps_position: bool) -> &'static str {
        match (keeps_position, self) {
            (false, _) => "at-least-once (no position is kept)",
            (true, Self::AtOnce) => "at-least-once (position published after hand-over)",
            (true, Self::AtEnd) => "at-least-once (position published at the end of the statement)",
            (true, Self::Unknown) => "at-least-once (no position is published under this LIMIT)",
        }
    }
}

/// The positions of one execution: dropping it ends their publishing.
pub(super) struct Publishing {
    /// Where they go, when this read publishes at all.
    pub offsets: Option<Arc<Offsets>>,
    pub hand_over: HandOver,
}

impl Publishing {
    /// All rows before `next_ms` (epoch milliseconds) were asked past.
    pub fn passed(&self, next_ms: i64) {
        let Some(offsets) = &self.offsets else { return };
        match self.hand_over {
            HandOver::AtOnce => offsets.publish(next_ms),
            HandOver::AtEnd => offsets.hold(next_ms),
            HandOver::Unknown => {}
        }
    }

    /// Waits until the last position is written, when that is to be seen here.
    pub async fn flush(&self) {
        if let (Some(offsets), HandOver::AtOnce) = (&self.offsets, self.hand_over) {
            offsets.flush().await;
        }
    }
}

impl Drop for Publishing {
    fn drop(&mut self) {
        if let (Some(offsets), HandOver::AtOnce) = (&self.offsets, self.hand_over) {
            offsets.stop();
        }
    }
}

/// The root of a (bounded) plan whose operators hold rows of a changelog back: passes all rows on, and publishes the
/// positions of the reads below it once they have ended. It gives one partition: those of its input are gathered below
/// it, since whoever gathered them above would take their ends before their last rows are handed on.
///
/// Over an INSERT that is after its commit. A plan that fails or is dropped publishes nothing.
#[derive(Debug)]
pub struct PublishAtEndExec {
    input: Arc<dyn ExecutionPlan>,
    offsets: Arc<[Arc<Offsets>]>,
}

impl PublishAtEndExec {
    pub(super) fn new(input: Arc<dyn ExecutionPlan>, offsets: Arc<[Arc<Offsets>]>) -> Self {
        let input = match input.output_partitioning().partition_count() {
            1 => input,
            _ => Arc::new(CoalescePartitionsExec::new(input)),
        };
        Self { input, offsets }
    }
}

impl DisplayAs for PublishAtEndExec {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match format {
            DisplayFormatType::Default | DisplayFormatType::Verbose => {
                write!(f, "PublishAtEndExec: positions={}", self.offsets.len())
            }
            DisplayFormatType::TreeRender => writeln!(f, "positions={}", self.offsets.len()),
        }
    }
}

impl ExecutionPlan for PublishAtEndExec {
    fn name(&self) -> &str {
        "PublishAtEndExec"
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
            (Some(input), true) => Ok(Arc::new(Self::new(input, Arc::clone(&self.offsets)))),
            _ => internal_err!("PublishAtEndExec has one child"),
        }
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        self.replace_children(children, ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let input = self.input.execute(partition, context)?;
        let offsets = Arc::clone(&self.offsets);
        let rows = futures::stream::unfold(Some(input), move |input| {
            let offsets = Arc::clone(&offsets);
            async move {
                let mut input = input?;
                match input.next().await {
                    Some(Ok(batch)) => Some((Ok::<RecordBatch, _>(batch), Some(input))),
                    Some(Err(error)) => Some((Err(error), None)),
                    None => {
                        for offsets in offsets.iter() {
                            offsets.publish_held();
                            offsets.flush().await;
                        }
                        None
                    }
                }
            }
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), rows)))
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
            _ => internal_err!("PublishAtEndExec has one child"),
        }
    }
}
