//! ORDER BY … LIMIT as a statement of Doris.

use std::sync::Arc;

use arrow::datatypes::{Field, Schema};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, Result, TableReference};
use datafusion::logical_expr::{Expr, LogicalPlan, Projection, Sort};

use super::relation::Relation;
use super::{DorisQueryTable, PUSHED, scan_of};
use crate::sql::{ScanQuery, quote_ident};

/// `sort` over a statement that gives no more rows than are wanted; `None` when Doris orders otherwise, or cannot do
/// what is below.
pub(super) fn push_topk(sort: &Sort) -> Result<Option<LogicalPlan>> {
    let Some(fetch) = sort.fetch else { return Ok(None) };
    // What a projection computes need not be known in Doris, as long as the keys are.
    let (below, projection) = match sort.input.as_ref() {
        LogicalPlan::Projection(projection) => (&projection.input, Some(projection)),
        _ => (&sort.input, None),
    };
    let Some(relation) = Relation::of(below)? else { return Ok(None) };
    if !relation.pushdown.topk || relation.limited.is_some_and(|limited| limited <= fetch) {
        return Ok(None);
    }
    let schema = below.schema();
    let (mut outputs, mut types, mut names, mut fields, mut exprs) = (vec![], vec![], vec![], vec![], vec![]);
    for (index, (qualifier, field)) in schema.iter().enumerate() {
        let column = Expr::Column(Column::new(qualifier.cloned(), field.name()));
        let Some((sql, doris_type)) = relation.output(&column, field.data_type())? else { return Ok(None) };
        let name = format!("c{index}");
        outputs.push(format!("{sql} AS {}", quote_ident(&name)));
        types.push(doris_type);
        fields.push(Field::new(&name, field.data_type().clone(), field.is_nullable()));
        let read = Expr::Column(Column::new(Some(TableReference::bare(PUSHED)), &name));
        exprs.push(read.alias_qualified(qualifier.cloned(), field.name()));
        names.push(name);
    }
    if outputs.is_empty() {
        return Ok(None);
    }
    let mut keys = Vec::with_capacity(sort.expr.len());
    for key in &sort.expr {
        let expr = match projection {
            Some(projection) => beneath(&key.expr, projection)?,
            None => key.expr.clone(),
        };
        let Some(value) = relation.value(&expr)?.filter(|value| value.is_ordered()) else { return Ok(None) };
        let direction = if key.asc { "ASC" } else { "DESC" };
        // Doris puts NULLs first where DataFusion puts them last.
        let nulls = if key.nulls_first { "FIRST" } else { "LAST" };
        keys.push(format!("{} {direction} NULLS {nulls}", value.sql));
    }
    let sql =
        format!("SELECT {} {} ORDER BY {} LIMIT {fetch}", outputs.join(", "), relation.source_text(), keys.join(", "));
    let query = ScanQuery { sql, columns: names };
    let table = DorisQueryTable::new(relation.client, relation.table, query, types, Arc::new(Schema::new(fields)))
        .with_settings(relation.settings)
        .with_pushdown(relation.pushdown)
        .with_limited(Some(fetch));
    let mut input = Arc::new(scan_of(table, exprs)?);
    if let Some(projection) = projection {
        let (exprs, schema) = (projection.expr.clone(), Arc::clone(&projection.schema));
        input = Arc::new(LogicalPlan::Projection(Projection::try_new_with_schema(exprs, input, schema)?));
    }
    Ok(Some(LogicalPlan::Sort(Sort { expr: sort.expr.clone(), input, fetch: sort.fetch })))
}

/// `expr` over the columns below `projection`.
fn beneath(expr: &Expr, projection: &Projection) -> Result<Expr> {
    let computed = |column: &Column| {
        let index = projection.schema.maybe_index_of_column(column)?;
        projection.expr.get(index).map(|expr| expr.clone().unalias_nested().data)
    };
    let beneath = expr.clone().transform(|expr| {
        Ok(match &expr {
            Expr::Column(column) => match computed(column) {
                Some(inner) => Transformed::new(inner, true, TreeNodeRecursion::Jump),
                None => Transformed::no(expr),
            },
            _ => Transformed::no(expr),
        })
    })?;
    Ok(beneath.data)
}
