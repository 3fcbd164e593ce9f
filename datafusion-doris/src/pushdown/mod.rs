//! Aggregates, ORDER BY … LIMIT and joins as statements of Doris.
//!
//! ```text
//! Aggregate ─┐                                            Projection: names and types as before
//! Filter     │ over DorisTable, DorisQueryTable    ──▶      TableScan of a DorisQueryTable:
//! Join       │                                              SELECT … FROM … WHERE … GROUP BY …
//! Sort+fetch ┘
//! ```
//!
//! DataFusion offers tables no place to take an aggregate, so a logical rule ([`PushDown`]) does it. It is a rule of our
//! own and no federation of whole subtrees, because (1) a general SQL printer does not know what means something else
//! in Doris, and a whitelist has to decide for each expression, (2) tables that are only scanned keep their scan by tablets,
//! (3) any session takes one more rule, while federation replaces the planner. The rule comes last, so filters are in
//! their scans already; what remains above (HAVING, LIMIT) reaches the new scan in the next pass.
//!
//! **One statement.** An aggregate is pushed whole, not per group of tablets with a final aggregate above: Doris runs it
//! in parallel itself, its nodes exchange partial results among each other, and only final groups travel. All tables
//! are then read at one version, too.
//!
//! **Same results.** Grouping and comparing take types on which both engines agree (not FLOAT and DOUBLE: NaN, -0). SUM
//! takes integers and decimals, on which the order of additions does not count. AVG is sent as SUM and COUNT and
//! divided here, with DataFusion's types and rounding. The order of ORDER BY … LIMIT is made again above the scan, since it
//! costs nothing for so few rows; of rows that are equal in all sort keys any may come, as always.
//!
//! **Joins** are pushed below an aggregate or an ORDER BY … LIMIT only: their own result can be larger than their
//! inputs. Inner, semi and anti joins by equal keys are taken, of tables of one cluster, read as one user.

mod aggregate;
mod average;
mod function;
mod query_table;
mod relation;
mod topk;

use std::sync::Arc;

use datafusion::catalog::TableProvider;
use datafusion::common::Result;
use datafusion::common::tree_node::Transformed;
use datafusion::datasource::{provider_as_source, source_as_provider};
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, TableScan, TableSource};
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

use self::aggregate::push_aggregate;
pub use self::function::{DORIS_QUERY, DorisQueryFunction, prepare_queries};
pub use self::query_table::DorisQueryTable;
use self::topk::push_topk;
use crate::options::JobOptions;
use crate::table::DorisTable;

/// A logical optimizer rule, as a session holds it.
pub type SharedLogicalRule = Arc<dyn OptimizerRule + Send + Sync>;

/// Name of a pushed query among the tables of a plan.
const PUSHED: &str = "doris";

/// `rules` with the rules of this module: the settings first, the pushing last. Rules that are there already are not
/// added again.
pub fn with_pushdown_rules(rules: &[SharedLogicalRule]) -> Vec<SharedLogicalRule> {
    let mut rules = rules.to_vec();
    if !rules.iter().any(|rule| rule.name() == PushDown.name()) {
        rules.insert(0, Arc::new(PushdownSettings));
        rules.push(Arc::new(PushDown));
    }
    rules
}

/// Gives the tables of a plan the settings `doris.pushdown.*` of the session.
#[derive(Debug)]
pub struct PushdownSettings;

impl OptimizerRule for PushdownSettings {
    fn name(&self) -> &str {
        "doris_pushdown_settings"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::BottomUp)
    }

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        let LogicalPlan::TableScan(scan) = plan else { return Ok(Transformed::no(plan)) };
        let pushdown = JobOptions::of(&config.options()).pushdown;
        let provider = provider_of(&scan.source);
        let changed: Option<Arc<dyn TableProvider>> = provider.as_ref().and_then(|provider| {
            if let Some(table) = provider.downcast_ref::<DorisTable>() {
                return (table.pushdown() != pushdown).then(|| Arc::new(table.with_pushdown(pushdown)) as _);
            }
            let query = provider.downcast_ref::<DorisQueryTable>()?;
            (query.pushdown() != pushdown).then(|| Arc::new(query.with_pushdown(pushdown)) as _)
        });
        match changed {
            Some(provider) => {
                let scan = TableScan { source: provider_as_source(provider), ..scan };
                Ok(Transformed::yes(LogicalPlan::TableScan(scan)))
            }
            None => Ok(Transformed::no(LogicalPlan::TableScan(scan))),
        }
    }
}

/// Turns aggregates and ORDER BY … LIMIT over tables of Doris into statements of Doris.
#[derive(Debug)]
pub struct PushDown;

impl OptimizerRule for PushDown {
    fn name(&self) -> &str {
        "doris_pushdown"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::BottomUp)
    }

    fn rewrite(&self, plan: LogicalPlan, _config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        let pushed = match &plan {
            LogicalPlan::Aggregate(aggregate) => push_aggregate(aggregate)?,
            LogicalPlan::Sort(sort) => push_topk(sort)?,
            _ => None,
        };
        Ok(pushed.map_or_else(|| Transformed::no(plan), Transformed::yes))
    }
}

/// The table provider of a source, if it has one.
fn provider_of(source: &Arc<dyn TableSource>) -> Option<Arc<dyn TableProvider>> {
    source_as_provider(source).ok()
}

/// A scan of `table`, with `exprs` over its columns above.
fn scan_of(table: DorisQueryTable, exprs: Vec<Expr>) -> Result<LogicalPlan> {
    LogicalPlanBuilder::scan(PUSHED, provider_as_source(Arc::new(table)), None)?.project(exprs)?.build()
}
