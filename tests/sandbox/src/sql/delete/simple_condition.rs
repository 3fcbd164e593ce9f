//! Conditions that DELETE stores with a table that has no unique key: column against constant, joined by AND.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr, UnaryOperator, visit_expressions};
use datafusion::sql::sqlparser::tokenizer::Token;

use crate::error::SqlError;
use crate::sql::cursor::Cursor;
use crate::sql::dialect::parser;
use crate::storage::Table;
use crate::types::DorisType;

/// Checks the WHERE at the cursor.
pub(super) fn check(table: &Table, cursor: &Cursor<'_>) -> Result<(), SqlError> {
    let tokens: Vec<Token> = cursor.tokens[cursor.at..].iter().skip(1).map(|tok| tok.token.clone()).collect();
    // What cannot be read is told by the query that it becomes.
    let Ok(condition) = parser(tokens).parse_expr() else { return Ok(()) };
    if constant(&condition) || stored(table, &condition) {
        return Ok(());
    }
    // What is not stored would be rewritten as a load of deletes.
    Err(SqlError::detail("delete command on with using clause only supports unique key model"))
}

fn stored(table: &Table, condition: &Expr) -> bool {
    match condition {
        Expr::Nested(inner) => stored(table, inner),
        Expr::BinaryOp { left, op: BinaryOperator::And, right } => stored(table, left) && stored(table, right),
        Expr::UnaryOp { op: UnaryOperator::Not, expr } => match expr.as_ref() {
            Expr::Nested(inner) => one(table, inner),
            inner => one(table, inner),
        },
        Expr::Between { expr, negated: false, low, high } => column(table, expr) && constant(low) && constant(high),
        condition => one(table, condition),
    }
}

fn one(table: &Table, condition: &Expr) -> bool {
    match condition {
        Expr::Nested(inner) => one(table, inner),
        Expr::BinaryOp {
            left,
            op:
                BinaryOperator::Eq
                | BinaryOperator::NotEq
                | BinaryOperator::Lt
                | BinaryOperator::LtEq
                | BinaryOperator::Gt
                | BinaryOperator::GtEq,
            right,
        } => (column(table, left) && constant(right)) || (constant(left) && column(table, right)),
        Expr::IsNull(inner) | Expr::IsNotNull(inner) => column(table, inner),
        Expr::InList { expr, list, .. } => column(table, expr) && list.iter().all(constant),
        _ => false,
    }
}

fn column(table: &Table, expr: &Expr) -> bool {
    let name = match expr {
        Expr::Nested(inner) => return column(table, inner),
        Expr::Identifier(name) => name,
        Expr::CompoundIdentifier(parts) => match parts.last() {
            Some(name) => name,
            None => return false,
        },
        _ => return false,
    };
    // An unknown one is told by the query.
    table.column(&name.value).is_none_or(|column| !matches!(column.ty, DorisType::Float | DorisType::Double))
}

fn constant(expr: &Expr) -> bool {
    let named = visit_expressions(expr, |expr| match expr {
        Expr::Identifier(_) | Expr::CompoundIdentifier(_) | Expr::Subquery(_) | Expr::Exists { .. } => {
            ControlFlow::Break(())
        }
        _ => ControlFlow::Continue(()),
    });
    named.is_continue()
}
