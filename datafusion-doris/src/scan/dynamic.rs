//! Dynamic filters: what DataFusion learns while a query runs, as far as Doris understands it.
//!
//! A hash join tells its larger side the values, or the least and the greatest one, of its smaller side; a top-k its
//! present bound. The text is made when a partition sends its statement, with what is known then. Each filter stays with
//! the node that made it, so a part that cannot be said in SQL, or not exactly, is left out.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::common::{Column as LogicalColumn, Result, ScalarValue};
use datafusion::logical_expr::{BinaryExpr as LogicalBinary, Cast, Expr, Operator};
use datafusion::physical_expr::expressions::{
    BinaryExpr, CaseExpr, CastExpr, Column, InListExpr, IsNotNullExpr, IsNullExpr, Literal, NotExpr,
};
use datafusion::physical_expr_common::physical_expr::snapshot_physical_expr;
use datafusion::physical_plan::PhysicalExpr;

use super::ScanPlan;
use crate::sql::{Columns, PushedFilter, SqlColumn, is_text, pushed_filter, quote_ident};
use crate::types::{DorisType, compares_alike};

/// `plan` with the present state of `filters`, whose columns are those of `schema`.
pub(super) fn with_dynamic_filters(
    plan: Arc<ScanPlan>,
    filters: &[Arc<dyn PhysicalExpr>],
    schema: &SchemaRef,
    types: &[DorisType],
) -> Result<Arc<ScanPlan>> {
    if filters.is_empty() || plan.limit.is_some() {
        return Ok(plan);
    }
    let columns = ScanColumns { plan: &plan, schema, types };
    let mut conditions: Vec<String> = plan.filter.iter().cloned().collect();
    for filter in filters {
        let now = snapshot_physical_expr(Arc::clone(filter))?;
        let sql = weaker(&now).and_then(|expr| pushed_filter(&expr, &columns));
        if let Some(PushedFilter::Exact(sql) | PushedFilter::Superset(sql)) = sql {
            conditions.push(sql);
        }
    }
    let filter = (!conditions.is_empty()).then(|| conditions.join(" AND "));
    Ok(Arc::new(ScanPlan { filter, ..plan.as_ref().clone() }))
}

struct ScanColumns<'a> {
    plan: &'a ScanPlan,
    schema: &'a SchemaRef,
    types: &'a [DorisType],
}

impl Columns for ScanColumns<'_> {
    fn column(&self, column: &LogicalColumn) -> Option<SqlColumn> {
        let index = self.schema.index_of(&column.name).ok()?;
        let (stored, doris_type) = (self.plan.columns.get(index)?, self.types.get(index)?);
        let natural = doris_type.arrow_type().ok()?;
        // Another system compares texts as it likes.
        let in_doris = self.plan.table.catalog.is_none() || !is_text(doris_type);
        (in_doris && compares_alike(&natural, self.schema.field(index).data_type()))
            .then(|| SqlColumn { sql: quote_ident(stored), doris_type: doris_type.clone() })
    }
}

/// A condition that holds wherever `expr` does; `None`: nothing is known.
fn weaker(expr: &Arc<dyn PhysicalExpr>) -> Option<Expr> {
    if let Some(binary) = expr.downcast_ref::<BinaryExpr>() {
        let (left, right) = (binary.left(), binary.right());
        match binary.op() {
            Operator::And => {
                return match (weaker(left), weaker(right)) {
                    (Some(left), Some(right)) => Some(left.and(right)),
                    (left, right) => left.or(right),
                };
            }
            Operator::Or => return Some(weaker(left)?.or(weaker(right)?)),
            _ => {}
        }
    }
    // One branch for each partition of a join's smaller side.
    if let Some(case) = expr.downcast_ref::<CaseExpr>() {
        let mut branches: Vec<&Arc<dyn PhysicalExpr>> = case.when_then_expr().iter().map(|(_, then)| then).collect();
        branches.extend(case.else_expr());
        let branches = branches.into_iter().filter(|branch| !is_false(branch)).map(weaker);
        return branches.collect::<Option<Vec<_>>>()?.into_iter().reduce(Expr::or);
    }
    match exact(expr)? {
        Expr::Literal(ScalarValue::Boolean(Some(true)), _) => None,
        expr => Some(expr),
    }
}

fn is_false(expr: &Arc<dyn PhysicalExpr>) -> bool {
    expr.downcast_ref::<Literal>().is_some_and(|literal| *literal.value() == ScalarValue::Boolean(Some(false)))
}

/// The same as a logical expression.
fn exact(expr: &Arc<dyn PhysicalExpr>) -> Option<Expr> {
    if let Some(column) = expr.downcast_ref::<Column>() {
        return Some(Expr::Column(LogicalColumn::new_unqualified(column.name())));
    }
    if let Some(literal) = expr.downcast_ref::<Literal>() {
        return Some(Expr::Literal(literal.value().clone(), None));
    }
    if let Some(binary) = expr.downcast_ref::<BinaryExpr>() {
        let (left, right) = (exact(binary.left())?, exact(binary.right())?);
        return Some(Expr::BinaryExpr(LogicalBinary::new(Box::new(left), *binary.op(), Box::new(right))));
    }
    if let Some(list) = expr.downcast_ref::<InListExpr>() {
        // NULL in a list makes nothing true that would be false.
        let values = list.list().iter().map(exact).collect::<Option<Vec<_>>>()?;
        let values: Vec<Expr> =
            values.into_iter().filter(|value| !matches!(value, Expr::Literal(value, _) if value.is_null())).collect();
        if list.negated() || values.is_empty() {
            return None;
        }
        return Some(exact(list.expr())?.in_list(values, false));
    }
    if let Some(not) = expr.downcast_ref::<NotExpr>() {
        return Some(Expr::Not(Box::new(exact(not.arg())?)));
    }
    if let Some(null) = expr.downcast_ref::<IsNullExpr>() {
        return Some(exact(null.arg())?.is_null());
    }
    if let Some(value) = expr.downcast_ref::<IsNotNullExpr>() {
        return Some(exact(value.arg())?.is_not_null());
    }
    let cast = expr.downcast_ref::<CastExpr>()?;
    Some(Expr::Cast(Cast::new(Box::new(exact(cast.expr())?), cast.cast_type().clone())))
}
