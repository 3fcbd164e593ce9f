//! Where the key of a target comes from: whether an update may move a row from one key to another, and whether rows of
//! different keys in the source can meet at one key in the target.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::{JoinType, ScalarValue};
use datafusion::physical_expr::expressions::{CastExpr, Column, Literal};
use datafusion::physical_expr::utils::collect_columns;
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
use datafusion::physical_plan::union::UnionExec;
use datafusion::physical_plan::unnest::UnnestExec;
use datafusion::physical_plan::{ExecutionPlan, PhysicalExpr};

use super::changes::{has_changes, join_side, kept_by_unnest, projected};
use crate::changelog::{DorisChangelogExec, RowKind};

/// The key columns of a target, as columns of the rows to insert.
pub(super) struct SinkKey<'a> {
    pub(super) input: &'a Arc<dyn ExecutionPlan>,
    pub(super) key: &'a [usize],
}

impl SinkKey<'_> {
    /// The first column that an update may change, though it leaves the row's key in the source alone.
    pub(super) fn moving_column(&self) -> Option<usize> {
        self.key.iter().copied().find(|column| !follows_source_key(self.input, *column))
    }

    /// Whether rows of `changelog` with different keys have different keys in the target too.
    pub(super) fn tells_source_keys_apart(&self, changelog: &DorisChangelogExec) -> bool {
        changelog.key().iter().all(|name| self.key.iter().any(|column| is_source_column(self.input, *column, name)))
    }
}

/// What stands in the way of a column from the root of a plan to its leaves.
enum Below<'a> {
    /// A column of an input.
    Column(&'a Arc<dyn ExecutionPlan>, usize),
    /// Columns of several inputs, of which each row has one.
    OneOf(Vec<&'a Arc<dyn ExecutionPlan>>, usize),
    /// An expression over an input.
    Computed(&'a Arc<dyn ExecutionPlan>, &'a Arc<dyn PhysicalExpr>),
    /// Column of a changelog.
    Changelog(&'a DorisChangelogExec, usize),
    /// An operator that is not known here.
    Unknown,
}

/// One step down from output column `column` of `plan`.
fn below(plan: &Arc<dyn ExecutionPlan>, column: usize) -> Below<'_> {
    let children = plan.children();
    let step = |column: Option<usize>| match (children.first(), column) {
        (Some(input), Some(column)) => Below::Column(input, column),
        _ => Below::Unknown,
    };
    let join = |join_type: JoinType, column: Option<usize>| match column
        .and_then(|column| join_side(&children, join_type, column))
    {
        Some((side, column)) => Below::Column(children[side], column),
        None => Below::Unknown,
    };
    if let Some(changelog) = plan.downcast_ref::<DorisChangelogExec>() {
        return Below::Changelog(changelog, column);
    }
    if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
        return match projection.expr().get(column) {
            None => Below::Unknown,
            Some(output) => match output.expr.downcast_ref::<Column>() {
                Some(found) => Below::Column(projection.input(), found.index()),
                None => Below::Computed(projection.input(), &output.expr),
            },
        };
    }
    if let Some(filter) = plan.downcast_ref::<FilterExec>() {
        return step(projected(filter.projection().as_deref(), column));
    }
    if let Some(found) = plan.downcast_ref::<HashJoinExec>() {
        return join(*found.join_type(), projected(found.projection.as_deref(), column));
    }
    if let Some(found) = plan.downcast_ref::<NestedLoopJoinExec>() {
        return join(*found.join_type(), projected(found.projection().as_deref(), column));
    }
    if plan.is::<CrossJoinExec>() {
        return join(JoinType::Inner, Some(column));
    }
    if let Some(found) = plan.downcast_ref::<SortMergeJoinExec>() {
        return join(found.join_type(), Some(column));
    }
    if let Some(found) = plan.downcast_ref::<SymmetricHashJoinExec>() {
        return join(*found.join_type(), Some(column));
    }
    if let Some(unnest) = plan.downcast_ref::<UnnestExec>() {
        return step(kept_by_unnest(unnest, column));
    }
    if plan.is::<UnionExec>() {
        return Below::OneOf(children, column);
    }
    let keeps_columns = plan.is::<CooperativeExec>()
        || plan.is::<CoalescePartitionsExec>()
        || plan.is::<RepartitionExec>()
        || plan.is::<GlobalLimitExec>()
        || plan.is::<LocalLimitExec>()
        || plan.is::<ScalarSubqueryExec>();
    if keeps_columns { step(Some(column)) } else { Below::Unknown }
}

/// Whether a column has one value for all changes of one key of the source.
fn follows_source_key(plan: &Arc<dyn ExecutionPlan>, column: usize) -> bool {
    match below(plan, column) {
        Below::Changelog(changelog, column) => {
            changelog.inserts_only()
                || changelog.stored_name(column).is_some_and(|name| changelog.key().iter().any(|key| key == name))
        }
        // The other side of a join may give another row for each change.
        Below::Column(input, column) => !(lost_in_join(plan, input)) && follows_source_key(input, column),
        Below::OneOf(inputs, column) => {
            inputs.into_iter().all(|input| !has_changes(input) || follows_source_key(input, column))
        }
        Below::Computed(input, expr) => {
            !is_volatile(expr) && collect_columns(expr).iter().all(|column| follows_source_key(input, column.index()))
        }
        Below::Unknown => false,
    }
}

/// True when `input` is the side of a join without the changes.
fn lost_in_join(plan: &Arc<dyn ExecutionPlan>, input: &Arc<dyn ExecutionPlan>) -> bool {
    plan.children().len() > 1 && has_changes(plan) && !has_changes(input)
}

fn is_volatile(expr: &Arc<dyn PhysicalExpr>) -> bool {
    datafusion::physical_expr_common::physical_expr::is_volatile(expr)
}

/// Whether a column is column `name` of the source as it is, at most in another type that keeps values apart.
fn is_source_column(plan: &Arc<dyn ExecutionPlan>, column: usize, name: &str) -> bool {
    match below(plan, column) {
        Below::Changelog(changelog, column) => changelog.stored_name(column) == Some(name),
        Below::Column(input, column) => is_source_column(input, column, name),
        Below::OneOf(inputs, column) => inputs.into_iter().all(|input| is_source_column(input, column, name)),
        Below::Computed(input, expr) => match expr.downcast_ref::<CastExpr>() {
            Some(cast) => cast.expr().downcast_ref::<Column>().is_some_and(|column| {
                let from = input.schema().field(column.index()).data_type().clone();
                keeps_apart(&from, cast.cast_type()) && is_source_column(input, column.index(), name)
            }),
            None => false,
        },
        Below::Unknown => false,
    }
}

/// Whether different values stay different in a cast that fails where it cannot keep one.
fn keeps_apart(from: &DataType, to: &DataType) -> bool {
    let text = super::schema::is_text;
    (from.is_integer() && to.is_integer()) || (text(from) && text(to)) || (from.is_integer() && text(to))
}

/// Whether every value of change kind column `column` is an insert, or the new half of an update.
pub(super) fn only_inserts(plan: &Arc<dyn ExecutionPlan>, column: usize) -> bool {
    match below(plan, column) {
        Below::Changelog(changelog, column) => changelog.inserts_only() && changelog.kind_index() == Some(column),
        Below::Column(input, column) => only_inserts(input, column),
        Below::OneOf(inputs, column) => inputs.into_iter().all(|input| only_inserts(input, column)),
        Below::Computed(input, expr) => match (expr.downcast_ref::<CastExpr>(), expr.downcast_ref::<Literal>()) {
            (Some(cast), _) => match cast.expr().downcast_ref::<Column>() {
                Some(column) => only_inserts(input, column.index()),
                None => writes(cast.expr()),
            },
            (None, Some(_)) => writes(expr),
            (None, None) => false,
        },
        Below::Unknown => false,
    }
}

/// Whether an expression is the text `+I` or `+U`.
fn writes(expr: &Arc<dyn PhysicalExpr>) -> bool {
    let text = |value: &ScalarValue| value.try_as_str().flatten().map(str::to_string);
    let kind = expr.downcast_ref::<Literal>().and_then(|literal| text(literal.value()));
    kind.is_some_and(|kind| [RowKind::Insert, RowKind::UpdateAfter].iter().any(|written| written.as_str() == kind))
}
