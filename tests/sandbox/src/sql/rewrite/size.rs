//! `expr_depth_limit` and `expr_children_limit`.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr, Query, Visit, Visitor};

use super::ast::args;
use crate::error::SqlError;

/// `expr_depth_limit`
const DEPTH: usize = 3000;
/// `expr_children_limit`
const CHILDREN: usize = 10_000;

/// Calls and operators within each other that the executor plans in seconds: its time grows with the third power.
const PLANNED: usize = 200;

/// Parts of expressions that are copied (`BETWEEN`, short IN lists, `CASE x`), in one query.
const COPIED: usize = 20_000;

fn too_deep() -> SqlError {
    SqlError::detail(format!("Exceeded the maximum depth of an expression tree ({DEPTH})."))
}

fn too_many() -> SqlError {
    SqlError::detail(format!("Exceeded the maximum number of child expressions ({CHILDREN})."))
}

/// Subqueries in expressions within each other: the executor's planning time doubles with each.
const SUBQUERIES: usize = 10;

/// Counts levels while it goes down; a chain of one logical operator is one level with many children.
#[derive(Default)]
struct Measure {
    /// For each open expression: whether it is a level, which logical chain it belongs to, and whether it computes.
    open: Vec<(bool, usize, bool)>,
    depth: usize,
    /// Calls and operators that are open, and the most there were.
    computing: usize,
    most: usize,
    /// Subqueries that are open, and the most there were.
    querying: usize,
    most_queries: usize,
}

fn holds_query(expr: &Expr) -> bool {
    matches!(expr, Expr::Subquery(_) | Expr::InSubquery { .. } | Expr::Exists { .. })
}

fn chain(expr: &Expr) -> Option<bool> {
    match expr {
        Expr::BinaryOp { op: BinaryOperator::And, .. } => Some(true),
        Expr::BinaryOp { op: BinaryOperator::Or, .. } => Some(false),
        _ => None,
    }
}

/// Terms of a chain of ANDs or ORs.
fn terms(expr: &Expr, kind: bool) -> usize {
    let (mut count, mut rest) = (0, vec![expr]);
    while let Some(next) = rest.pop() {
        match next {
            Expr::BinaryOp { left, right, .. } if chain(next) == Some(kind) => {
                rest.extend([left.as_ref(), right.as_ref()])
            }
            _ => count += 1,
        }
    }
    count
}

impl Visitor for Measure {
    type Break = SqlError;

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<SqlError> {
        let kind = chain(expr);
        let inside =
            kind.is_some() && self.open.last().is_some_and(|(_, of, _)| *of == 1 + usize::from(kind == Some(true)));
        let level = !matches!(expr, Expr::Nested(_)) && !inside;
        let computes = kind.is_none()
            && matches!(expr, Expr::Function(_) | Expr::BinaryOp { .. } | Expr::Cast { .. } | Expr::Case { .. });
        self.open.push((level, kind.map_or(0, |and| 1 + usize::from(and)), computes));
        self.depth += usize::from(level);
        self.computing += usize::from(computes);
        self.most = self.most.max(self.computing);
        self.querying += usize::from(holds_query(expr));
        self.most_queries = self.most_queries.max(self.querying);
        if self.depth > DEPTH {
            return ControlFlow::Break(too_deep());
        }
        let children = match expr {
            Expr::InList { list, .. } => list.len() + 1,
            Expr::Function(function) => args(function).len(),
            Expr::Array(array) => array.elem.len(),
            _ => match kind.filter(|_| !inside) {
                Some(kind) => terms(expr, kind),
                None => 0,
            },
        };
        if children > CHILDREN { ControlFlow::Break(too_many()) } else { ControlFlow::Continue(()) }
    }

    fn post_visit_expr(&mut self, expr: &Expr) -> ControlFlow<SqlError> {
        self.querying -= usize::from(holds_query(expr));
        if let Some((level, _, computes)) = self.open.pop() {
            self.depth -= usize::from(level);
            self.computing -= usize::from(computes);
        }
        ControlFlow::Continue(())
    }
}

fn check(tree: &impl Visit) -> Result<(), SqlError> {
    let mut measure = Measure::default();
    match tree.visit(&mut measure) {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) if measure.most > PLANNED => Err(SqlError::not_served(format!(
            "more than {PLANNED} calls and operators within each other (expr_depth_limit is {DEPTH})"
        ))),
        ControlFlow::Continue(()) if measure.most_queries > SUBQUERIES => {
            Err(SqlError::not_served(format!("more than {SUBQUERIES} subqueries within each other")))
        }
        ControlFlow::Continue(()) => Ok(()),
    }
}

/// Refuses expressions of a query that are too deep or too wide.
pub(super) fn check_query(query: &Query) -> Result<(), SqlError> {
    check(query)
}

/// As [`check_query`], of one expression.
pub(super) fn check_expr(expr: &Expr) -> Result<(), SqlError> {
    check(expr)
}

/// Number of expressions in an expression, itself included.
pub(super) fn parts(expr: &Expr) -> usize {
    struct Count(usize);
    impl Visitor for Count {
        type Break = ();

        fn pre_visit_expr(&mut self, _: &Expr) -> ControlFlow<()> {
            self.0 += 1;
            ControlFlow::Continue(())
        }
    }
    let mut count = Count(0);
    // Never breaks.
    let _ = expr.visit(&mut count);
    count.0
}

/// Refuses what the executor could only plan by writing the same expressions over and over.
pub(super) fn check_copied(copied: usize) -> Result<(), SqlError> {
    match copied > COPIED {
        true => Err(SqlError::not_served("conditions on expressions nested so deep within each other")),
        false => Ok(()),
    }
}
