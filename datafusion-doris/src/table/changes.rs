//! What an INSERT does to the changes of its input: whether they reach the target with their kinds, and whole.

use std::sync::Arc;

use datafusion::common::JoinType;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::physical_expr::expressions::{CastExpr, Column};
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::{
    CrossJoinExec, HashJoinExec, NestedLoopJoinExec, SortMergeJoinExec, SymmetricHashJoinExec,
};
use datafusion::physical_plan::limit::{GlobalLimitExec, LocalLimitExec};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::scalar_subquery::ScalarSubqueryExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::union::UnionExec;
use datafusion::physical_plan::unnest::UnnestExec;
use datafusion::physical_plan::windows::{BoundedWindowAggExec, WindowAggExec};
use datafusion::physical_plan::{ExecutionPlan, PhysicalExpr};

use crate::changelog::{DorisChangelogExec, changes_at_root};

/// True when changes other than inserts reach the root of `plan`.
pub(super) fn has_changes(plan: &Arc<dyn ExecutionPlan>) -> bool {
    changes_at_root(plan).iter().any(|changelog| !changelog.inserts_only())
}

/// True when output column `column` of `plan` is the change kind of every changelog below it, unchanged.
///
/// Operators that are not known here make it false: a kind that is computed, or that comes from another place, could
/// write a delete as a row.
pub(super) fn carries_kind(plan: &Arc<dyn ExecutionPlan>, column: usize) -> bool {
    if !has_changes(plan) {
        return true;
    }
    let children = plan.children();
    if let Some(changelog) = plan.downcast_ref::<DorisChangelogExec>() {
        return changelog.kind_index() == Some(column);
    }
    if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
        let below = projection.expr().get(column).and_then(|output| column_of(&output.expr));
        return below.is_some_and(|below| carries_kind(projection.input(), below));
    }
    if let Some(filter) = plan.downcast_ref::<FilterExec>() {
        let below = match filter.projection() {
            Some(projection) => projection.get(column).copied(),
            None => Some(column),
        };
        return below.is_some_and(|below| carries_kind(filter.input(), below));
    }
    if let Some(join) = plan.downcast_ref::<HashJoinExec>() {
        let column = projected(join.projection.as_deref(), column);
        return column.is_some_and(|column| join_carries_kind(&children, *join.join_type(), column));
    }
    if let Some(join) = plan.downcast_ref::<NestedLoopJoinExec>() {
        let column = projected(join.projection().as_deref(), column);
        return column.is_some_and(|column| join_carries_kind(&children, *join.join_type(), column));
    }
    if plan.is::<CrossJoinExec>() {
        return join_carries_kind(&children, JoinType::Inner, column);
    }
    if let Some(unnest) = plan.downcast_ref::<UnnestExec>() {
        return kept_by_unnest(unnest, column).is_some_and(|below| carries_kind(unnest.input(), below));
    }
    if plan.is::<UnionExec>() {
        return children.into_iter().all(|input| carries_kind(input, column));
    }
    if plan.is::<WindowAggExec>() || plan.is::<BoundedWindowAggExec>() {
        // Their own columns come after those of the input.
        return children.first().is_some_and(|input| {
            let inputs = input.schema().fields().len();
            column < inputs && carries_kind(input, column)
        });
    }
    let keeps_columns = plan.is::<CooperativeExec>()
        || plan.is::<CoalescePartitionsExec>()
        || plan.is::<RepartitionExec>()
        || plan.is::<SortExec>()
        || plan.is::<SortPreservingMergeExec>()
        || plan.is::<GlobalLimitExec>()
        || plan.is::<LocalLimitExec>()
        || plan.is::<ScalarSubqueryExec>();
    keeps_columns && children.first().is_some_and(|input| carries_kind(input, column))
}

/// The column that `expr` gives as it is, at most as another type of text.
fn column_of(expr: &Arc<dyn PhysicalExpr>) -> Option<usize> {
    match expr.downcast_ref::<CastExpr>() {
        Some(cast) if super::schema::is_text(cast.cast_type()) => column_of(cast.expr()),
        Some(_) => None,
        None => expr.downcast_ref::<Column>().map(Column::index),
    }
}

/// The input column that output column `column` of an unnesting is, when it is not unnested.
pub(super) fn kept_by_unnest(unnest: &UnnestExec, column: usize) -> Option<usize> {
    // Columns that are not unnested keep their name, other columns may come between them.
    let (output, input) = (unnest.schema(), unnest.input().schema());
    let name = output.field(column).name();
    let unnested = |index: &usize| {
        unnest.struct_column_indices().contains(index)
            || unnest.list_column_indices().iter().any(|list| list.index_in_input_schema == *index)
    };
    let unique = output.fields().iter().filter(|field| field.name() == name).count() == 1;
    input.fields().iter().position(|field| field.name() == name).filter(|index| unique && !unnested(index))
}

pub(super) fn projected(projection: Option<&[usize]>, column: usize) -> Option<usize> {
    projection.map_or(Some(column), |projection| projection.get(column).copied())
}

/// The side of a join (0 left, 1 right) that column `column` comes from, and its place there; `column` counts before the
/// join's own projection.
pub(super) fn join_side(
    children: &[&Arc<dyn ExecutionPlan>],
    join_type: JoinType,
    column: usize,
) -> Option<(usize, usize)> {
    let [left, right] = children else { return None };
    let from_left = match join_type {
        JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark => 0,
        _ => left.schema().fields().len(),
    };
    if column < from_left {
        return Some((0, column));
    }
    let from_right = match join_type {
        JoinType::LeftSemi | JoinType::LeftAnti | JoinType::LeftMark => 0,
        _ => right.schema().fields().len(),
    };
    let column = column - from_left;
    (column < from_right).then_some((1, column))
}

/// `column` counts before the join's own projection. The other side must not have changes: their kind would be lost.
fn join_carries_kind(children: &[&Arc<dyn ExecutionPlan>], join_type: JoinType, column: usize) -> bool {
    join_side(children, join_type, column)
        .is_some_and(|(side, column)| carries_kind(children[side], column) && !has_changes(children[1 - side]))
}

/// The first operator over changes of `plan` that may let one half of an update through and not the other.
///
/// Conditions that the changelog evaluates itself are none: it turns the half that is left into an insert or a delete.
pub(super) fn splitting_updates(plan: &Arc<dyn ExecutionPlan>) -> Option<String> {
    let mut found = None;
    // The closure never fails, so neither does the walk.
    let _ = plan.apply(|node| {
        if node.is::<AggregateExec>() {
            return Ok(TreeNodeRecursion::Jump);
        }
        let splits = node.is::<FilterExec>()
            || node.is::<HashJoinExec>()
            || node.is::<NestedLoopJoinExec>()
            || node.is::<SortMergeJoinExec>()
            || node.is::<SymmetricHashJoinExec>()
            || node.is::<UnnestExec>();
        if splits && has_changes(node) {
            found = Some(node.name().to_string());
            return Ok(TreeNodeRecursion::Stop);
        }
        Ok(TreeNodeRecursion::Continue)
    });
    found
}
