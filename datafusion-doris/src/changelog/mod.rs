//! Changelogs: a table's rows and then its changes, as a stream that never ends.
//!
//! Doris keeps the changes of a table by commit timestamp (TSO) and gives those of a *window* of time by
//! `SELECT … FROM t@incr(…)`. Reading is a sequence of windows that touch:
//!
//! ```text
//! ask TSO ─▶ T0     snapshot: all rows as +I         ask TSO ─▶ E1       ask TSO ─▶ E2
//!     │             (mode initial only)                   │                   │
//!     └──────────────────────────────────▶ [T0 … E1) by TSO, LSN, OP ─▶ [E1 … E2) ─▶ …
//! ```
//!
//! - T0 is taken *before* the snapshot. Where the server reads past versions, the snapshot is that of T0; elsewhere a
//!   change between the two comes twice (as a row and as a change), never not at all. Applied by key, the second changes
//!   nothing.
//! - The last column is the change kind, `+I`, `-U`, `+U` or `-D`; the two halves of an update follow each other.
//!   Columns outside of the key are nullable: without `binlog.need_historical_value` a delete carries its key only.
//! - In a continuous insert each window is fixed before the plan is executed, so the static side of a join is read
//!   after it: a change meets the static rows that were committed before it (or later ones).
//! - In a run of epochs a long snapshot is many epochs, some tablets each, all as of T0 where the server can.
//! - Positions are instants of the server's clock; the client's clock is never used.
//! - For a target with another key the rows that a commit takes away come before those that it brings (`commits`).
//! - A poll that finds the versions of the table's partitions as they were when everything was read ends there, and the
//!   position stays (`idle`).
//! - A column read that is dropped, renamed or retyped meanwhile ends the read with its name (`drift`).

mod checks;
mod commits;
mod control;
mod decode;
mod drift;
mod exec;
mod filter;
mod finish;
mod idle;
mod offsets;
mod publish;
mod reader;
mod retention;
mod row_kind;
mod server;
mod snapshot;
mod start;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests;
mod visibility;
mod widened;
pub mod window;

use std::sync::Arc;

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::joins::{
    CrossJoinExec, HashJoinExec, NestedLoopJoinExec, PiecewiseMergeJoinExec, SortMergeJoinExec,
};
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};

pub use control::{ChangelogControl, ChangelogStatus};
pub(crate) use decode::metadata_field;
pub(crate) use exec::ChangelogRequest;
pub use exec::DorisChangelogExec;
pub(crate) use publish::HandOver;
pub use publish::PublishAtEndExec;
pub(crate) use reader::{ChangelogSpec, read_schema};
pub(crate) use retention::time_to_live;
pub use row_kind::RowKind;

use crate::checkpoint::EpochSource;
use crate::error::{Error, Result};

/// The changelog reads whose rows reach the root of `plan`: those below an aggregation do not.
pub(crate) fn changes_at_root(plan: &Arc<dyn ExecutionPlan>) -> Vec<DorisChangelogExec> {
    let mut found = Vec::new();
    let _ = plan.apply(|node| {
        found.extend(node.downcast_ref::<DorisChangelogExec>().cloned());
        Ok(if node.is::<AggregateExec>() { TreeNodeRecursion::Jump } else { TreeNodeRecursion::Continue })
    });
    found
}

/// True for a join that collects one of its sides.
pub(crate) fn is_collecting_join(plan: &Arc<dyn ExecutionPlan>) -> bool {
    plan.is::<HashJoinExec>()
        || plan.is::<NestedLoopJoinExec>()
        || plan.is::<CrossJoinExec>()
        || plan.is::<SortMergeJoinExec>()
        || plan.is::<PiecewiseMergeJoinExec>()
}

/// Refuses a plan in which the changes of one key may overtake each other: on different ways to the root, in a sort, or
/// on the side of a join that is collected and given in another order.
///
/// # Errors
/// [`Error::Unsupported`] names the operator.
pub(crate) fn check_change_order(plan: &Arc<dyn ExecutionPlan>) -> Result<()> {
    if plan.is::<AggregateExec>() {
        return Ok(());
    }
    let ordered = |plan: &Arc<dyn ExecutionPlan>| changes_at_root(plan).iter().any(|changes| !changes.append_only());
    if plan.is::<SortExec>() && ordered(plan) {
        return Err(Error::unsupported(
            format!("{} between a changelog and its target", plan.name()),
            "it changes the order in which the changes of one key are applied; leave ORDER BY out",
        ));
    }
    // An unbounded build side is refused elsewhere, for its memory.
    if is_collecting_join(plan)
        && let Some(build) = plan.children().first()
        && !build.boundedness().is_unbounded()
        && ordered(build)
    {
        return Err(Error::unsupported(
            format!("{} that collects a changelog before it is written", plan.name()),
            "it changes the order in which the changes of one key are applied; name the static table first in the \
             join (FROM static JOIN changelog), or leave out 'source.scan.bounded-mode' and run it as a job",
        ));
    }
    if plan.is::<RepartitionExec>() && !changes_at_root(plan).is_empty() {
        return Err(Error::unsupported(
            format!("{} between a changelog and its target", plan.name()),
            "it lets changes of one key overtake each other; register this crate's optimizer rules \
             (datafusion_doris::register) or set datafusion.execution.target_partitions = 1",
        ));
    }
    plan.children().into_iter().try_for_each(check_change_order)
}

/// The changelog reads of a plan.
pub fn changelogs(plan: &Arc<dyn ExecutionPlan>) -> Vec<DorisChangelogExec> {
    let mut found = Vec::new();
    // The closure never fails, so neither does the walk.
    let _ = plan.apply(|node| {
        found.extend(node.downcast_ref::<DorisChangelogExec>().cloned());
        Ok(TreeNodeRecursion::Continue)
    });
    found
}

/// `plan` with a root that publishes the positions of those reads below it that leave that to the end.
pub(crate) fn publish_at_end(plan: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
    if plan.is::<PublishAtEndExec>() {
        return plan;
    }
    let offsets: Vec<_> = changelogs(&plan).iter().filter_map(DorisChangelogExec::published_at_end).collect();
    if offsets.is_empty() { plan } else { Arc::new(PublishAtEndExec::new(plan, offsets.into())) }
}

/// The unbounded changelog reads of a plan, as sources of epochs (a [`crate::checkpoint::SourceFinder`]).
pub fn epoch_sources(plan: &Arc<dyn ExecutionPlan>) -> Vec<Arc<dyn EpochSource>> {
    let mut found: Vec<Arc<dyn EpochSource>> = Vec::new();
    let _ = plan.apply(|node| {
        if let Some(changelog) = node.downcast_ref::<DorisChangelogExec>()
            && node.boundedness().is_unbounded()
        {
            found.push(changelog.epoch_source());
        }
        Ok(TreeNodeRecursion::Continue)
    });
    found
}
