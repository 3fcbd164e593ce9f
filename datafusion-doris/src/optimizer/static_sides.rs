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
use crate::sink::DorisSinkExec;

/// True for the sink of a continuous insert, which executes its input again in each epoch.
fn runs_in_epochs(node: &Arc<dyn ExecutionPlan>) -> bool {
    node.is::<DorisSinkExec>() && node.boundedness().is_unbounded()
}

/// Keeps the static sides of a continuous insert from one epoch to the next, for `doris.job.static_ttl`.
#[derive(Debug)]
pub struct KeepStaticSides;

impl PhysicalOptimizerRule for KeepStaticSides {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, config: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        let ttl = JobOptions::of(config).static_ttl;
        if ttl.is_zero() {
            return Ok(plan);
        }
        plan.transform_down(|node| {
            if !runs_in_epochs(&node) {
                return Ok(Transformed::no(node));
            }
            Ok(Transformed::new(keep_bounded(node, ttl)?, true, TreeNodeRecursion::Jump))
        })
        .data()
    }

    fn name(&self) -> &str {
        "doris_keep_static_sides"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Puts a [`StaticSideExec`] above each bounded subtree that is as large as possible.
fn keep_bounded(node: Arc<dyn ExecutionPlan>, ttl: Duration) -> Result<Arc<dyn ExecutionPlan>> {
    if !node.boundedness().is_unbounded() {
        return Ok(if node.is::<StaticSideExec>() { node } else { Arc::new(StaticSideExec::new(node, ttl)) });
    }
    if node.children().is_empty() {
        return Ok(node);
    }
    let children = node.children().into_iter().map(|child| keep_bounded(Arc::clone(child), ttl));
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
