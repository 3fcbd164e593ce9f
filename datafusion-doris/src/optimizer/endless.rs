//! Says why a query over a changelog cannot run, before DataFusion's sanity check refuses it with a dump of the operator.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType, InvariantLevel};
use datafusion::physical_plan::sorts::partial_sort::PartialSortExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::windows::{BoundedWindowAggExec, WindowAggExec};
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};

use crate::changelog::{changelogs, is_collecting_join};
use crate::error::Error;
use crate::sink::DorisSinkExec;

/// Refuses operators that give no row before their input ends, or that keep all of it, over a changelog that does not
/// end: the plans that DataFusion's sanity check refuses, with the operator, the table and what to do instead. Continuous
/// inserts have rules of their own, and their own words.
#[derive(Debug)]
pub struct RefuseEndless;

impl PhysicalOptimizerRule for RefuseEndless {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _config: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        check(&plan, false)?;
        Ok(plan)
    }

    fn name(&self) -> &str {
        "doris_refuse_endless"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// `for_window`: the node's order is that of a window function.
fn check(plan: &Arc<dyn ExecutionPlan>, for_window: bool) -> Result<()> {
    if !plan.boundedness().is_unbounded() {
        // Nothing below it is read without an end, or it ends what is.
        return plan.children().into_iter().try_for_each(|child| check(child, false));
    }
    if plan.is::<DorisSinkExec>() {
        plan.check_invariants(InvariantLevel::Executable)?;
    }
    let window = plan.is::<WindowAggExec>() || plan.is::<BoundedWindowAggExec>();
    let sorts = plan.is::<SortExec>() || plan.is::<PartialSortExec>();
    plan.children().into_iter().try_for_each(|child| check(child, window || (for_window && !sorts)))?;
    let keeps_all = plan.boundedness() == Boundedness::Unbounded { requires_infinite_memory: true };
    if !keeps_all && plan.pipeline_behavior() != EmissionType::Final {
        return Ok(());
    }
    let Some(changelog) = changelogs(plan).into_iter().find(|node| node.properties().boundedness.is_unbounded()) else {
        return Ok(());
    };
    let joins = is_collecting_join(plan);
    let (what, why) = match plan {
        _ if window || (sorts && for_window) => ("a window function", "whose rows it would have to order"),
        _ if sorts => ("ORDER BY", "whose first row in that order is known only at its end"),
        plan if plan.is::<AggregateExec>() => ("an aggregation", "whose result is known only at its end"),
        _ if joins => ("a join that collects the changelog", "which it would have to keep whole"),
        _ => ("an operator that needs all rows", "which never are all there"),
    };
    let advice = if joins {
        "join it with a static table, as the side that is kept in full (an inner join, FROM static JOIN changelog, or \
         changelog LEFT JOIN static), or bound it by 'source.scan.bounded-mode' = 'latest'"
    } else {
        "bound it by 'source.scan.bounded-mode' = 'latest' (and read it again for later changes), or write the changes \
         into a table with INSERT INTO and query that"
    };
    let what = format!("{what} ({}) over the changelog of {}", plan.name(), changelog.table());
    Err(Error::unsupported(what, format!("it reads a stream without an end, {why}; {advice}")).into())
}
