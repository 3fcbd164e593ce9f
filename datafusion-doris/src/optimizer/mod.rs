//! Optimizer rules: physical ones for streams, and one of the analyzer for DELETE and UPDATE ([`WholeStatements`]).
//!
//! DataFusion is free to reorder rows and to gather them into large batches. Over a changelog the first is
//! corruption (an old version of a key overtakes a newer one), the second hides rows for as long as the stream is
//! quiet. Two rules undo both where a changelog is below; a third says why a plan cannot run on one. In continuous inserts,
//! whose plans are executed once per epoch, static tables are read whole and kept if asked for, and no filter outlives an
//! epoch; elsewhere no position of a changelog is published ahead of its rows. Other plans are left alone.

mod batch_size;
mod dml;
mod endless;
mod hand_over;
mod lookup_joins;
mod static_sides;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests;

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::execution_plan::{ChildrenPropertiesMode, ReplaceChildrenOptions};
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::{
    CrossJoinExec, HashJoinExec, NestedLoopJoinExec, PartitionMode, SortMergeJoinExec,
};
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties, Partitioning};

pub use batch_size::BatchSizeExec;
pub use dml::WholeStatements;
pub use endless::RefuseEndless;
pub use hand_over::PublishPositions;
pub use lookup_joins::LookupJoins;
use static_sides::NoDynamicFiltersInEpochs;
pub use static_sides::StaticSides;

use crate::changelog::DorisChangelogExec;
use crate::checkpoint::keeps_no_build_state;
use crate::sink::DorisSinkExec;

/// `rules` with this crate's rules at the place where they belong: before the last pass of filter pushdown, whose
/// expressions refer to the final nodes, and before the sanity check, which refuses what the rules mend. Rules that
/// are there already are not added again.
pub fn with_stream_rules(rules: &[SharedRule]) -> Vec<SharedRule> {
    let mut rules = rules.to_vec();
    let ours: [SharedRule; 4] =
        [Arc::new(KeepChangeOrder), Arc::new(LookupJoins), Arc::new(StreamLatency), Arc::new(StaticSides)];
    if rules.iter().any(|rule| ours.iter().any(|our| our.name() == rule.name())) {
        return rules;
    }
    let place = rules
        .iter()
        .position(|rule| matches!(rule.name(), "FilterPushdown(Post)" | "SanityCheckPlan"))
        .unwrap_or(rules.len());
    if let Some(pushdown) = rules.get_mut(place).filter(|rule| rule.name() == "FilterPushdown(Post)") {
        *pushdown = Arc::new(NoDynamicFiltersInEpochs(Arc::clone(pushdown)));
    }
    rules.splice(place..place, ours);
    let place = rules.iter().position(|rule| rule.name() == "SanityCheckPlan").unwrap_or(rules.len());
    let last: [SharedRule; 2] = [Arc::new(RefuseEndless), Arc::new(PublishPositions)];
    rules.splice(place..place, last);
    rules
}

/// A shared physical optimizer rule, as a session holds it.
pub type SharedRule = Arc<dyn PhysicalOptimizerRule + Send + Sync>;

/// True when changes flow through `plan`: it is unbounded, or a (bounded) changelog read is below it.
fn carries_changes(plan: &Arc<dyn ExecutionPlan>) -> bool {
    plan.boundedness().is_unbounded()
        || plan.is::<DorisChangelogExec>()
        || plan.children().into_iter().any(carries_changes)
}

fn rebuild(plan: Arc<dyn ExecutionPlan>, children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
    plan.replace_children(children, ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute))
}

/// Keeps the order of changes: takes out the round robin that DataFusion puts above a changelog to spread work over
/// cores, and turns a join that would hash-partition the changelog into one that collects its static side.
///
/// Only parallelism is lost. Rows of one key would otherwise take different ways to the sink and overtake each other.
#[derive(Debug)]
pub struct KeepChangeOrder;

impl PhysicalOptimizerRule for KeepChangeOrder {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _config: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|node| {
            if let Some(input) = changes_below_repartition(&node, is_round_robin) {
                return Ok(Transformed::yes(input));
            }
            match node.downcast_ref::<HashJoinExec>() {
                Some(join) => match collect_static_side(join)? {
                    Some(join) => Ok(Transformed::yes(join)),
                    None => Ok(Transformed::no(node)),
                },
                None => Ok(Transformed::no(node)),
            }
        })
        .data()
    }

    fn name(&self) -> &str {
        "doris_keep_change_order"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

fn is_round_robin(partitioning: &Partitioning) -> bool {
    matches!(partitioning, Partitioning::RoundRobinBatch(_))
}

fn is_hash(partitioning: &Partitioning) -> bool {
    matches!(partitioning, Partitioning::Hash(_, _))
}

/// The input of `node` when it is a repartition of the given kind over a changelog.
fn changes_below_repartition(
    node: &Arc<dyn ExecutionPlan>,
    kind: fn(&Partitioning) -> bool,
) -> Option<Arc<dyn ExecutionPlan>> {
    let repartition = node.downcast_ref::<RepartitionExec>()?;
    (kind(repartition.partitioning()) && carries_changes(repartition.input())).then(|| Arc::clone(repartition.input()))
}

/// `Partitioned` over a changelog as `CollectLeft`: the static side is read whole, the changes keep their order.
fn collect_static_side(join: &HashJoinExec) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    if *join.partition_mode() != PartitionMode::Partitioned
        || !keeps_no_build_state(join.join_type())
        || carries_changes(join.left())
    {
        return Ok(None);
    }
    let Some(changes) = changes_below_repartition(join.right(), is_hash) else {
        return Ok(None);
    };
    let mut static_side = Arc::clone(join.left());
    if let Some(repartition) = static_side.downcast_ref::<RepartitionExec>() {
        static_side = Arc::clone(repartition.input());
    }
    if static_side.output_partitioning().partition_count() > 1 {
        static_side = Arc::new(CoalescePartitionsExec::new(static_side));
    }
    let join = join
        .builder()
        .with_partition_mode(PartitionMode::CollectLeft)
        .recompute_properties()
        .with_new_children(vec![static_side, changes])?
        .build_exec()?;
    Ok(Some(join))
}

/// Shows the rows of a free-running stream at once.
///
/// A filter gathers `batch_size` rows before it gives any; a batch size of one makes it pass every batch whole. A
/// join takes the session's batch size, which its static side needs too: [`BatchSizeExec`] sets one row for the join
/// alone. Continuous inserts are left as they are: their epochs end their streams, which flushes all operators.
#[derive(Debug)]
pub struct StreamLatency;

impl PhysicalOptimizerRule for StreamLatency {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _config: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        if plan.exists(|node| Ok(node.is::<DorisSinkExec>()))? {
            return Ok(plan);
        }
        plan.transform_up(|node| {
            if !node.boundedness().is_unbounded() {
                return Ok(Transformed::no(node));
            }
            if let Some(filter) = node.downcast_ref::<FilterExec>() {
                return Ok(if filter.batch_size() == 1 {
                    Transformed::no(node)
                } else {
                    Transformed::yes(Arc::new(filter.with_batch_size(1)?))
                });
            }
            let gathers = node.is::<HashJoinExec>()
                || node.is::<NestedLoopJoinExec>()
                || node.is::<SortMergeJoinExec>()
                || node.is::<CrossJoinExec>()
                || node.is::<SortPreservingMergeExec>();
            if !gathers || node.children().iter().any(|child| child.is::<BatchSizeExec>()) {
                return Ok(Transformed::no(node));
            }
            let children = node.children().into_iter().map(|child| BatchSizeExec::session(Arc::clone(child)));
            let children: Vec<Arc<dyn ExecutionPlan>> = children.map(|child| Arc::new(child) as _).collect();
            let node = rebuild(node, children)?;
            Ok(Transformed::yes(Arc::new(BatchSizeExec::rows(node, 1)) as Arc<dyn ExecutionPlan>))
        })
        .data()
    }

    fn name(&self) -> &str {
        "doris_stream_latency"
    }

    fn schema_check(&self) -> bool {
        true
    }
}
