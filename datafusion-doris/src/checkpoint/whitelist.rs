//! Which operators may stand between a changelog and a sink.

use std::sync::Arc;

use datafusion::common::JoinType;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::union::UnionExec;
use datafusion::physical_plan::unnest::UnnestExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};

use crate::error::{Error, Result};
use crate::lookup::LookupJoinExec;

/// Checks that no operator over an unbounded input of `plan` keeps state or breaks the order of changes.
///
/// An epoch ends by the end of its stream, and the next one executes the plan afresh: state would be lost with the
/// epoch. Allowed are filters, projections, unions of changelogs, unnesting, the merge of partitions, and hash joins whose
/// unbounded side is the probe side (inner, right, right semi, right anti, right mark), as lookups too; bounded subtrees may hold
/// anything.
///
/// # Errors
/// [`Error::Unsupported`] names the first operator that is not on the list.
pub fn check_stateless(plan: &Arc<dyn ExecutionPlan>) -> Result<()> {
    let mut refused = None;
    plan.apply(|node| {
        if !node.boundedness().is_unbounded() {
            return Ok(TreeNodeRecursion::Jump);
        }
        if let Some(reason) = refusal(node) {
            refused = Some((node.name().to_string(), reason));
            return Ok(TreeNodeRecursion::Stop);
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    match refused {
        None => Ok(()),
        Some((name, reason)) => Err(Error::unsupported(
            format!("{name} over a changelog in a continuous insert"),
            format!(
                "it {reason}; use filters, projections, union all and joins with static tables, and run the job with \
                 target_partitions = 1"
            ),
        )),
    }
}

/// Why a node over an unbounded input is refused; `None` when it is allowed.
fn refusal(node: &Arc<dyn ExecutionPlan>) -> Option<&'static str> {
    if node.fetch().is_some() {
        return Some("would count its limit anew in every epoch");
    }
    if let Some(join) = node.downcast_ref::<HashJoinExec>() {
        return join_refusal(join);
    }
    if node.is::<UnionExec>() && node.children().iter().any(|input| !input.boundedness().is_unbounded()) {
        return Some("would give the rows of its bounded input anew in every epoch");
    }
    let allowed = node.children().is_empty()
        || node.is::<FilterExec>()
        || node.is::<ProjectionExec>()
        || node.is::<CoalescePartitionsExec>()
        || node.is::<CooperativeExec>()
        || node.is::<UnionExec>()
        || node.is::<LookupJoinExec>()
        || node.is::<UnnestExec>();
    (!allowed).then_some("keeps state or changes the order of rows across epochs")
}

fn join_refusal(join: &HashJoinExec) -> Option<&'static str> {
    if join.left().boundedness().is_unbounded() {
        return Some("would have to hold an unbounded side in memory");
    }
    (!keeps_no_build_state(join.join_type())).then_some("has to remember the matches of its static side across epochs")
}

/// True for join types whose result for a probe row depends on that row and the (static) build side alone.
pub fn keeps_no_build_state(join_type: &JoinType) -> bool {
    matches!(
        join_type,
        JoinType::Inner | JoinType::Right | JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark
    )
}
