//! FLOAT and DOUBLE as keys: NaN equals NaN and is the greatest, -0 equals 0, wherever rows are grouped, sorted or joined.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::logical_expr::{Aggregate, Distinct, Expr, ExprSchemable, LogicalPlan, Projection, ScalarUDF};
use datafusion::optimizer::AnalyzerRule;
use datafusion::prelude::Expr as PlanExpr;

/// Puts one form of each value in place of what keys are made of.
#[derive(Debug)]
pub(super) struct FloatKeys {
    key: Arc<ScalarUDF>,
}

impl FloatKeys {
    pub(super) fn new(key: Arc<ScalarUDF>) -> Self {
        Self { key }
    }

    fn wants(&self, expr: &Expr, plan: &LogicalPlan) -> bool {
        matches!(expr.get_type(plan.schema()), Ok(DataType::Float32 | DataType::Float64))
    }

    fn keyed(&self, expr: Expr) -> Expr {
        self.key.call(vec![expr])
    }

    fn rewrite(&self, plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
        match plan {
            LogicalPlan::Aggregate(aggregate)
                if aggregate.group_expr.iter().any(|e| self.wants(e, &aggregate.input)) =>
            {
                let key = |expr: &Expr| {
                    if !self.wants(expr, &aggregate.input) {
                        return expr.clone();
                    }
                    // The output keeps its name, which the plan above refers to.
                    let (relation, name) = expr.qualified_name();
                    self.keyed(expr.clone().unalias()).alias_qualified(relation, name)
                };
                let groups: Vec<PlanExpr> = aggregate.group_expr.iter().map(key).collect();
                let keyed = Aggregate::try_new(Arc::clone(&aggregate.input), groups, aggregate.aggr_expr.clone())?;
                Ok(Transformed::yes(LogicalPlan::Aggregate(keyed)))
            }
            LogicalPlan::Sort(mut sort) => {
                let mut changed = false;
                for by in &mut sort.expr {
                    if self.wants(&by.expr, &sort.input) {
                        by.expr = self.keyed(by.expr.clone());
                        changed = true;
                    }
                }
                let plan = LogicalPlan::Sort(sort);
                Ok(if changed { Transformed::yes(plan) } else { Transformed::no(plan) })
            }
            LogicalPlan::Join(mut join) => {
                let mut changed = false;
                for (left, right) in &mut join.on {
                    if self.wants(left, &join.left) && self.wants(right, &join.right) {
                        *left = self.keyed(left.clone());
                        *right = self.keyed(right.clone());
                        changed = true;
                    }
                }
                let plan = LogicalPlan::Join(join);
                Ok(if changed { Transformed::yes(plan) } else { Transformed::no(plan) })
            }
            LogicalPlan::Distinct(Distinct::All(input))
                if input.schema().columns().into_iter().any(|c| self.wants(&Expr::Column(c), &input)) =>
            {
                let columns = input.schema().columns().into_iter().map(|column| {
                    let (relation, name) = (column.relation.clone(), column.name.clone());
                    let expr = Expr::Column(column);
                    if self.wants(&expr, &input) { self.keyed(expr).alias_qualified(relation, name) } else { expr }
                });
                let keyed = Projection::try_new(columns.collect(), Arc::clone(&input))?;
                let keyed = Arc::new(LogicalPlan::Projection(keyed));
                Ok(Transformed::yes(LogicalPlan::Distinct(Distinct::All(keyed))))
            }
            other => Ok(Transformed::no(other)),
        }
    }
}

impl AnalyzerRule for FloatKeys {
    fn name(&self) -> &str {
        "float_keys"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        plan.transform_up_with_subqueries(|plan| self.rewrite(plan)).map(|changed| changed.data)
    }
}
