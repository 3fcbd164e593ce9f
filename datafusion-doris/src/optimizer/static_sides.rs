//! Continuous inserts: what their plans read beside the changelog, epoch after epoch.

use std::sync::Arc;
use std::time::Duration;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};

use super::{SharedRule, rebuild};
use crate::checkpoint::StaticSideExec;
use crate::options::JobOptions;
use crate::scan::DorisScanExec;
use crate::sink::DorisSinkExec;

/// True for the sink of a continuous insert, which executes its input again in each epoch.
fn runs_in_epochs(node: &Arc<dyn ExecutionPlan>) -> bool {
    node.is::<DorisSinkExec>() && node.boundedness().is_unbounded()
}

/// Makes the static sides of a continuous insert fit to be read for months: whole tables instead of the tablets that they
/// had when the plan was made, and kept from one epoch to the next for `doris.job.static_ttl`.
#[derive(Debug)]
pub struct StaticSides;

impl PhysicalOptimizerRule for StaticSides {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, config: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        let ttl = JobOptions::of(config).static_ttl;
        plan.transform_down(|node| {
            if !runs_in_epochs(&node) {
                return Ok(Transformed::no(node));
            }
            Ok(Transformed::new(prepare(node, ttl)?, true, TreeNodeRecursion::Jump))
        })
        .data()
    }

    fn name(&self) -> &str {
        "doris_static_sides"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Goes to each bounded subtree that is as large as possible, and puts a [`StaticSideExec`] above it.
fn prepare(node: Arc<dyn ExecutionPlan>, ttl: Duration) -> Result<Arc<dyn ExecutionPlan>> {
    if !node.boundedness().is_unbounded() {
        let whole = node.transform_up(|node| {
            Ok(match node.downcast_ref::<DorisScanExec>() {
                Some(scan) => Transformed::yes(Arc::new(scan.of_whole_table()) as _),
                None => Transformed::no(node),
            })
        });
        let whole = whole.data()?;
        let keeps = !ttl.is_zero() && !whole.is::<StaticSideExec>();
        return Ok(if keeps { Arc::new(StaticSideExec::new(whole, ttl)) } else { whole });
    }
    if node.children().is_empty() {
        return Ok(node);
    }
    let children = node.children().into_iter().map(|child| prepare(Arc::clone(child), ttl));
    let children = children.collect::<Result<Vec<_>>>()?;
    rebuild(node, children)
}

/// The last pass of filter pushdown, without dynamic filters where a plan is executed more than once: a source would keep
/// the bounds that one epoch found, and leave rows out of the next.
#[derive(Debug)]
pub(super) struct NoDynamicFiltersInEpochs(pub SharedRule);

impl PhysicalOptimizerRule for NoDynamicFiltersInEpochs {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, config: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        if !plan.exists(|node| Ok(runs_in_epochs(node)))? {
            return self.0.optimize(plan, config);
        }
        let mut config = config.clone();
        // Switches those of joins, aggregates and sorts off too.
        config.set("datafusion.optimizer.enable_dynamic_filter_pushdown", "false")?;
        self.0.optimize(plan, &config)
    }

    fn name(&self) -> &str {
        self.0.name()
    }

    fn schema_check(&self) -> bool {
        self.0.schema_check()
    }
}
