//! What a query looks like to the parts of the server that treat some of them apart: plain scans and point queries.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, GroupByExpr, Query, Select, SelectItem, SetExpr, TableFactor, UnaryOperator, Value,
};

use super::dispatch::apply_hints;
use super::lexer::Statement;
use super::relations::{self, scan_name};
use super::rewrite::plain_name;
use super::{ddl, query};
use crate::session::Session;
use crate::storage::{KeysType, Table};

/// The look of a query.
#[derive(Debug)]
pub(crate) enum Shape {
    /// Columns of one table, all its rows.
    Scan {
        /// The table.
        table: Arc<Table>,
        /// Only these tablets.
        tablets: Option<Vec<u64>>,
    },
    /// One row by its key, which the FE reads past the planner (`enable_short_circuit_query`).
    Point,
    /// Anything else.
    Other,
}

/// The look of a statement, hints included. What cannot be read is [`Shape::Other`]: running it tells why.
pub(crate) fn shape(session: &mut Session, statement: &Statement) -> Shape {
    let saved = session.variables.clone();
    let shape = match apply_hints(session, statement) {
        Ok(_) => look(session, statement).unwrap_or(Shape::Other),
        Err(_) => Shape::Other,
    };
    session.variables = saved;
    shape
}

fn look(session: &Session, statement: &Statement) -> Option<Shape> {
    let rewritten = relations::rewrite(session, &statement.tokens).ok()?;
    let parsed = query::parse(rewritten.tokens).ok()?;
    let select = plain_select(&parsed)?;
    let [from] = select.from.as_slice() else { return None };
    let TableFactor::Table { name, args: None, .. } = &from.relation else { return None };
    if !from.joins.is_empty() {
        return None;
    }
    let shown = plain_name(name);
    let scan = (0..rewritten.scans.len()).find(|i| scan_name(*i) == shown).map(|i| &rewritten.scans[i]);
    let parts = scan.map_or_else(|| shown.split('.').map(str::to_owned).collect(), |s| s.parts.clone());
    if scan.is_some_and(|s| s.incr.is_some() || s.partitions.is_some()) {
        return None;
    }
    let (db, table) = ddl::resolve(session, parts).ok()?;
    let table = session.engine.table_handle(&db, &table).ok()?;
    match &select.selection {
        None => Some(Shape::Scan { table, tablets: scan.and_then(|s| s.tablets.clone()) }),
        Some(filter) => is_point(session, &table, filter).then_some(Shape::Point),
    }
}

/// A SELECT of columns with nothing behind WHERE.
fn plain_select(query: &Query) -> Option<&Select> {
    let bare =
        query.with.is_none() && query.order_by.is_none() && query.limit_clause.is_none() && query.fetch.is_none();
    let SetExpr::Select(select) = query.body.as_ref() else { return None };
    let ungrouped = matches!(&select.group_by, GroupByExpr::Expressions(list, _) if list.is_empty());
    let whole = select.distinct.is_none() && select.having.is_none() && select.qualify.is_none();
    let columns = select.projection.iter().all(|item| match item {
        SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..) => true,
        SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => is_column(expr),
        _ => false,
    });
    (bare && ungrouped && whole && columns).then_some(select)
}

fn is_column(expr: &Expr) -> bool {
    matches!(expr, Expr::Identifier(_) | Expr::CompoundIdentifier(_))
}

/// All key columns of a merge-on-write table with a row store are compared with constants.
fn is_point(session: &Session, table: &Table, filter: &Expr) -> bool {
    let property = |name: &str| table.spec().properties.get(name).is_some_and(|v| v.eq_ignore_ascii_case("true"));
    let row_store = property("store_row_column") || table.spec().properties.contains_key("row_store_columns");
    if table.keys_type() != KeysType::Unique
        || !row_store
        || !property("enable_unique_key_merge_on_write")
        || !session.variables.is_true("enable_short_circuit_query")
    {
        return false;
    }
    let mut named = HashSet::new();
    if !equalities(filter, &mut named) {
        return false;
    }
    let keys: HashSet<String> = table.columns().iter().filter(|c| c.key).map(|c| c.name.to_ascii_lowercase()).collect();
    named == keys
}

/// Collects the columns of `a = 1 AND b = 2`; false for any other filter.
fn equalities(filter: &Expr, named: &mut HashSet<String>) -> bool {
    match filter {
        Expr::Nested(inner) => equalities(inner, named),
        Expr::BinaryOp { left, op: BinaryOperator::And, right } => equalities(left, named) && equalities(right, named),
        Expr::BinaryOp { left, op: BinaryOperator::Eq, right } => {
            let column = match (left.as_ref(), right.as_ref()) {
                (column, constant) if is_constant(constant) => column,
                (constant, column) if is_constant(constant) => column,
                _ => return false,
            };
            let name = match column {
                Expr::Identifier(name) => name,
                Expr::CompoundIdentifier(parts) => match parts.last() {
                    Some(name) => name,
                    None => return false,
                },
                _ => return false,
            };
            named.insert(name.value.to_ascii_lowercase());
            true
        }
        _ => false,
    }
}

fn is_constant(expr: &Expr) -> bool {
    match expr {
        Expr::Value(value) => !matches!(value.value, Value::Null | Value::Placeholder(_)),
        Expr::UnaryOp { op: UnaryOperator::Minus | UnaryOperator::Plus, expr } => is_constant(expr),
        Expr::Nested(inner) => is_constant(inner),
        _ => false,
    }
}
