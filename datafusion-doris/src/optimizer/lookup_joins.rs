//! Joins of a stream with a table of Doris that asks for the stream's keys instead of reading the table.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{NullEquality, Result};
use datafusion::physical_expr::expressions::{CastExpr, Column};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::{HashJoinExec, PartitionMode};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::{ExecutionPlan, PhysicalExpr};

use super::carries_changes;
use crate::checkpoint::keeps_no_build_state;
use crate::lookup::{KeyColumn, LookupJoinExec, casts_one_to_one};
use crate::scan::DorisScanExec;

/// Replaces a join whose static side is a Doris table with `lookup.join` = `true`.
///
/// The join must be by equality of columns, as they are or cast to wider types, and its result for a row of the stream
/// must depend on that row alone; between the table and the join may be conditions and projections. Other joins with such
/// a table read it whole.
#[derive(Debug)]
pub struct LookupJoins;

impl PhysicalOptimizerRule for LookupJoins {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _config: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|node| match node.downcast_ref::<HashJoinExec>().map(lookup_of).transpose()?.flatten() {
            Some(lookup) => Ok(Transformed::yes(Arc::new(lookup) as _)),
            None => Ok(Transformed::no(node)),
        })
        .data()
    }

    fn name(&self) -> &str {
        "doris_lookup_joins"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

fn lookup_of(join: &HashJoinExec) -> Result<Option<LookupJoinExec>> {
    let fits = *join.partition_mode() == PartitionMode::CollectLeft
        && keeps_no_build_state(join.join_type())
        && join.null_equality() == NullEquality::NullEqualsNothing
        && !join.null_aware
        && join.fetch().is_none()
        && carries_changes(join.right())
        && !carries_changes(join.left());
    if !fits {
        return Ok(None);
    }
    let mut keys = Vec::with_capacity(join.on().len());
    let mut table = None;
    for (stored, _) in join.on() {
        let Some((scan, index, compared)) = traced(join.left(), stored)? else { return Ok(None) };
        let stored = scan.schema().field(index).data_type().clone();
        if !casts_one_to_one(&stored, &compared) {
            return Ok(None);
        }
        keys.push(KeyColumn { index, stored, compared });
        table = Some(scan);
    }
    let Some((options, source)) = table.and_then(|scan| scan.lookup_source(&keys)) else { return Ok(None) };
    LookupJoinExec::try_new(join, source, &keys, options).map(Some)
}

/// The scan below `plan`, the column of it that `expr` is, and the type that it is compared in.
fn traced<'a>(
    plan: &'a Arc<dyn ExecutionPlan>,
    expr: &Arc<dyn PhysicalExpr>,
) -> Result<Option<(&'a DorisScanExec, usize, arrow::datatypes::DataType)>> {
    let compared = expr.data_type(&plan.schema())?;
    let (mut plan, mut expr) = (plan, Arc::clone(expr));
    loop {
        // Only the type compared in at last counts: a cast below must be of one value to one, too.
        while let Some(cast) = expr.downcast_ref::<CastExpr>() {
            let from = cast.expr().data_type(&plan.schema())?;
            if !casts_one_to_one(&from, cast.cast_type()) {
                return Ok(None);
            }
            expr = Arc::clone(cast.expr());
        }
        let Some(column) = expr.downcast_ref::<Column>() else { return Ok(None) };
        let index = column.index();
        if let Some(scan) = plan.downcast_ref::<DorisScanExec>() {
            return Ok(Some((scan, index, compared)));
        }
        if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
            let Some(output) = projection.expr().get(index) else { return Ok(None) };
            expr = Arc::clone(&output.expr);
            plan = projection.input();
            continue;
        }
        let passes = plan.is::<CoalescePartitionsExec>()
            || plan.is::<CooperativeExec>()
            || plan.downcast_ref::<FilterExec>().is_some_and(|filter| filter.projection().is_none());
        // A limit takes some rows of the table once, not some of each lookup.
        let passes = passes && plan.fetch().is_none();
        match (passes, plan.children().as_slice()) {
            (true, [input]) => plan = input,
            _ => return Ok(None),
        }
    }
}
