//! Filters: DataFusion expression to Doris condition, only where both mean the same for every row.
//!
//! A whitelist decides and this module prints; there is no "nearly". What is not on the list stays in DataFusion.
//!
//! | accepted | on columns of |
//! | --- | --- |
//! | `= <> < <= > >=`, `BETWEEN`, `IN` with literals of the column's type | integers, LARGEINT, DECIMAL, DATE, DATETIME, CHAR, VARCHAR, STRING |
//! | `= <> < <= > >=`, `IS [NOT] DISTINCT FROM` between two values of one family | the same |
//! | `< <=` with a finite literal other than zero, not under NOT | DOUBLE |
//! | `= <>`, the column itself | BOOLEAN |
//! | `[NOT] LIKE` with the default escape | CHAR, VARCHAR, STRING |
//! | `IS [NOT] NULL` | all but JSON, VARIANT, states and nested types |
//! | `AND OR NOT`, `IS [NOT] TRUE`, `FALSE`, `UNKNOWN`, `CASE` of the above | |
//!
//! A value is a column, a literal or one of the expressions of [`value`]. DOUBLE is that narrow because the engines
//! differ on NaN (Arrow: above all numbers), on -0.0 and on what NOT does to a comparison; FLOAT is absent because a
//! literal is never exactly the stored value.
//!
//! A condition of which Doris knows only a part is sent as that part when it holds wherever the whole does
//! ([`PushedFilter::Superset`]): `(a = 1 AND f(b)) OR c = 2` as `a = 1 OR c = 2`. DataFusion then filters again.

mod external;
mod key;
mod typed;
mod value;

use datafusion::common::{Column, ScalarValue};
use datafusion::logical_expr::expr::{Between, Case, InList, Like};
use datafusion::logical_expr::{BinaryExpr, Expr, Operator};

pub(crate) use self::external::pushed_external_filter;
pub(crate) use self::key::{KeyRows, key_rows};
use self::typed::literal_of;
pub(crate) use self::typed::{has_key_literals, is_text};
pub(super) use self::typed::{integer_of, micros_of, text_of, typed_literal};
pub(crate) use self::value::{SqlValue, value_sql};
use super::{quote_ident, string_literal};
use crate::types::{DorisType, TableSchema};

/// Longest IN list that is pushed; the server's `expr_children_limit`.
const MAX_IN_LIST: usize = 10_000;
/// Values per IN; longer lists become several, joined by OR (AND for NOT IN).
const IN_CHUNK: usize = 1_000;
/// Most terms of one AND or OR chain.
const MAX_TERMS: usize = 10_000;
/// Deepest nesting of NOT and alternating AND/OR.
const MAX_DEPTH: usize = 100;

/// A column as it stands in a statement.
#[derive(Debug, Clone)]
pub(crate) struct SqlColumn {
    pub sql: String,
    pub doris_type: DorisType,
}

/// The columns that an expression may name.
pub(crate) trait Columns {
    /// `None`: there is no such column, or expressions on it do not mean the same in Doris.
    fn column(&self, column: &Column) -> Option<SqlColumn>;
}

impl Columns for TableSchema {
    fn column(&self, column: &Column) -> Option<SqlColumn> {
        let found = self.columns.iter().find(|candidate| candidate.name == column.name)?;
        Some(SqlColumn { sql: quote_ident(&found.name), doris_type: found.doris_type.clone() })
    }
}

/// A filter as Doris SQL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PushedFilter {
    /// Holds for exactly the same rows.
    Exact(String),
    /// Holds for these rows and others.
    Superset(String),
}

impl PushedFilter {
    /// The condition.
    pub fn into_sql(self) -> String {
        match self {
            PushedFilter::Exact(sql) | PushedFilter::Superset(sql) => sql,
        }
    }
}

/// `expr` as a Doris condition that holds for exactly the same rows, or `None` when it is not on the whitelist.
pub fn filter_sql(expr: &Expr, schema: &TableSchema) -> Option<String> {
    condition_sql(expr, schema)
}

/// [`filter_sql`] over any columns.
pub(crate) fn condition_sql(expr: &Expr, columns: &dyn Columns) -> Option<String> {
    Printer { columns }.condition(expr, Context { negated: false, depth: 0 })
}

/// As much of `expr` as Doris can filter by.
pub(crate) fn pushed_filter(expr: &Expr, columns: &dyn Columns) -> Option<PushedFilter> {
    match condition_sql(expr, columns) {
        Some(sql) => Some(PushedFilter::Exact(sql)),
        None => superset_of(expr, &|term| condition_sql(term, columns), 0).map(PushedFilter::Superset),
    }
}

/// A condition that holds wherever `expr` does, made of the terms that are `known`.
fn superset_of(expr: &Expr, known: &dyn Fn(&Expr) -> Option<String>, depth: usize) -> Option<String> {
    if depth > MAX_DEPTH {
        return None;
    }
    let weaker = |term: &&Expr| known(term).or_else(|| superset_of(term, known, depth + 1));
    match expr {
        Expr::BinaryExpr(BinaryExpr { op: Operator::And, .. }) => {
            let terms: Vec<String> = chain(expr, Operator::And)?.iter().filter_map(weaker).collect();
            (!terms.is_empty()).then(|| balanced(&terms, "AND"))
        }
        Expr::BinaryExpr(BinaryExpr { op: Operator::Or, .. }) => {
            let terms = chain(expr, Operator::Or)?.iter().map(weaker).collect::<Option<Vec<_>>>()?;
            Some(balanced(&terms, "OR"))
        }
        _ => None,
    }
}

#[derive(Clone, Copy)]
struct Context {
    /// Somewhere under NOT.
    negated: bool,
    depth: usize,
}

impl Context {
    fn deeper(self) -> Option<Self> {
        (self.depth < MAX_DEPTH).then_some(Self { depth: self.depth + 1, ..self })
    }

    fn negated(self) -> Self {
        Self { negated: true, ..self }
    }
}

struct Printer<'a> {
    columns: &'a dyn Columns,
}

impl Printer<'_> {
    fn condition(&self, expr: &Expr, context: Context) -> Option<String> {
        match expr {
            Expr::Alias(alias) => self.condition(&alias.expr, context.deeper()?),
            Expr::BinaryExpr(BinaryExpr { op: op @ (Operator::And | Operator::Or), .. }) => {
                let context = context.deeper()?;
                let terms = chain(expr, *op)?
                    .into_iter()
                    .map(|term| self.condition(term, context))
                    .collect::<Option<Vec<_>>>()?;
                Some(balanced(&terms, if *op == Operator::And { "AND" } else { "OR" }))
            }
            Expr::BinaryExpr(BinaryExpr { left, op, right }) => self.comparison(left, *op, right, context),
            Expr::Not(inner) => Some(format!("(NOT {})", self.condition(inner, context.negated().deeper()?)?)),
            Expr::IsNull(inner) => Some(format!("({} IS NULL)", self.nullable(inner, context)?)),
            Expr::IsNotNull(inner) => Some(format!("({} IS NOT NULL)", self.nullable(inner, context)?)),
            Expr::IsTrue(inner) => self.truth(inner, "", true, context),
            Expr::IsNotTrue(inner) => self.truth(inner, "", false, context),
            Expr::IsFalse(inner) => self.truth(inner, "NOT ", true, context),
            Expr::IsNotFalse(inner) => self.truth(inner, "NOT ", false, context),
            Expr::IsUnknown(inner) => {
                Some(format!("({} IS NULL)", self.condition(inner, context.negated().deeper()?)?))
            }
            Expr::IsNotUnknown(inner) => {
                Some(format!("({} IS NOT NULL)", self.condition(inner, context.negated().deeper()?)?))
            }
            Expr::Between(between) => self.between(between, context),
            Expr::InList(list) => self.in_list(list, context),
            Expr::Like(like) => self.like(like, context),
            Expr::Case(case) => self.case_condition(case, context),
            Expr::Literal(ScalarValue::Boolean(Some(value)), _) => Some(if *value { "TRUE" } else { "FALSE" }.into()),
            Expr::ScalarFunction(call) => match (call.func.name(), call.args.as_slice()) {
                ("starts_with", [text, part]) => self.affix(text, part, "", "%", context),
                ("ends_with", [text, part]) => self.affix(text, part, "%", "", context),
                _ => None,
            },
            Expr::Column(_) => {
                let column = self.column(expr)?;
                (column.doris_type == DorisType::Boolean).then(|| format!("({} = TRUE)", column.sql))
            }
            _ => None,
        }
    }

    /// `expr IS TRUE` and its kin, without the operators that not every version has.
    fn truth(&self, expr: &Expr, not: &str, wanted: bool, context: Context) -> Option<String> {
        let condition = self.condition(expr, context.negated().deeper()?)?;
        let (then, otherwise) = if wanted { ("TRUE", "FALSE") } else { ("FALSE", "TRUE") };
        Some(format!("(CASE WHEN {not}{condition} THEN {then} ELSE {otherwise} END)"))
    }

    fn case_condition(&self, case: &Case, context: Context) -> Option<String> {
        let context = context.negated().deeper()?;
        let mut sql = String::from("(CASE");
        for (when, then) in &case.when_then_expr {
            let when = self.when(case, when, context)?;
            sql.push_str(&format!(" WHEN {when} THEN {}", self.condition(then, context)?));
        }
        if let Some(otherwise) = &case.else_expr
            && !matches!(otherwise.as_ref(), Expr::Literal(value, _) if value.is_null())
        {
            sql.push_str(&format!(" ELSE {}", self.condition(otherwise, context)?));
        }
        sql.push_str(" END)");
        Some(sql)
    }

    /// The condition of one branch of a CASE.
    fn when(&self, case: &Case, when: &Expr, context: Context) -> Option<String> {
        match &case.expr {
            Some(base) => self.comparison(base, Operator::Eq, when, context.negated()),
            None => self.condition(when, context.negated()),
        }
    }

    fn column(&self, expr: &Expr) -> Option<SqlColumn> {
        match expr {
            Expr::Column(column) => self.columns.column(column),
            Expr::Alias(alias) => match alias.expr.as_ref() {
                inner @ Expr::Column(_) => self.column(inner),
                _ => None,
            },
            _ => None,
        }
    }

    /// What a literal is compared with: a column of any type, or a value.
    fn subject(&self, expr: &Expr, context: Context) -> Option<SqlColumn> {
        match self.column(expr) {
            Some(column) => Some(column),
            None => self.value(expr, context).map(|value| SqlColumn { sql: value.sql, doris_type: value.doris_type }),
        }
    }

    fn nullable(&self, expr: &Expr, context: Context) -> Option<String> {
        let subject = self.subject(expr, context)?;
        match subject.doris_type {
            DorisType::Json
            | DorisType::Variant
            | DorisType::Opaque(_)
            | DorisType::Unknown(_)
            | DorisType::Array(_)
            | DorisType::Map(..)
            | DorisType::Struct(_) => None,
            _ => Some(subject.sql),
        }
    }

    fn comparison(&self, left: &Expr, op: Operator, right: &Expr, context: Context) -> Option<String> {
        let (subject, op, value) = match (literal_of(left), literal_of(right)) {
            (None, Some(value)) => (self.subject(left, context)?, op, value),
            (Some(value), None) => (self.subject(right, context)?, op.swap()?, value),
            (None, None) => return self.comparison_of_values(left, op, right, context),
            (Some(_), Some(_)) => return None,
        };
        let literal = match subject.doris_type {
            DorisType::Double if context.negated || !matches!(op, Operator::Lt | Operator::LtEq) => return None,
            DorisType::Boolean if !matches!(op, Operator::Eq | Operator::NotEq) => return None,
            _ => typed_literal(&subject.doris_type, value)?,
        };
        compared(&subject.sql, op, &literal)
    }

    fn comparison_of_values(&self, left: &Expr, op: Operator, right: &Expr, context: Context) -> Option<String> {
        let left = self.value(left, context)?;
        let right = self.value(right, context)?;
        if left.compares_with(&right) { compared(&left.sql, op, &right.sql) } else { None }
    }

    fn between(&self, between: &Between, context: Context) -> Option<String> {
        let subject = self.subject(&between.expr, context)?;
        match subject.doris_type {
            // NaN fails the upper bound in both engines, so the lower one cannot tell them apart.
            DorisType::Double if context.negated || between.negated => return None,
            DorisType::Boolean => return None,
            _ => {}
        }
        let low = typed_literal(&subject.doris_type, literal_of(&between.low)?)?;
        let high = typed_literal(&subject.doris_type, literal_of(&between.high)?)?;
        let not = if between.negated { "NOT " } else { "" };
        Some(format!("({} {not}BETWEEN {low} AND {high})", subject.sql))
    }

    fn in_list(&self, list: &InList, context: Context) -> Option<String> {
        if list.list.is_empty() || list.list.len() > MAX_IN_LIST {
            return None;
        }
        let subject = self.subject(&list.expr, context)?;
        if subject.doris_type == DorisType::Double {
            return None;
        }
        let values = list
            .list
            .iter()
            .map(|value| typed_literal(&subject.doris_type, literal_of(value)?))
            .collect::<Option<Vec<_>>>()?;
        let name = subject.sql;
        let (not, join) = if list.negated { ("NOT ", "AND") } else { ("", "OR") };
        let chunks: Vec<String> =
            values.chunks(IN_CHUNK).map(|chunk| format!("({name} {not}IN ({}))", chunk.join(", "))).collect();
        Some(balanced(&chunks, join))
    }

    fn like(&self, like: &Like, context: Context) -> Option<String> {
        if like.case_insensitive || !matches!(like.escape_char, None | Some('\\')) {
            return None;
        }
        let subject = self.subject(&like.expr, context)?;
        if !is_text(&subject.doris_type) {
            return None;
        }
        let pattern = text_of(literal_of(&like.pattern)?)?;
        if !is_plain_pattern(pattern) {
            return None;
        }
        let not = if like.negated { "NOT " } else { "" };
        Some(format!("({} {not}LIKE {})", subject.sql, string_literal(pattern)))
    }

    /// `starts_with` and `ends_with` a literal.
    fn affix(&self, text: &Expr, part: &Expr, before: &str, behind: &str, context: Context) -> Option<String> {
        let subject = self.subject(text, context)?;
        let part = text_of(literal_of(part)?)?;
        if !is_text(&subject.doris_type) || part.contains(['\\', '\0']) {
            return None;
        }
        let escaped = part.replace('%', "\\%").replace('_', "\\_");
        Some(format!("({} LIKE {})", subject.sql, string_literal(&format!("{before}{escaped}{behind}"))))
    }
}

/// `left op right` for the operators that mean the same.
fn compared(left: &str, op: Operator, right: &str) -> Option<String> {
    Some(match op {
        Operator::Eq => format!("({left} = {right})"),
        Operator::NotEq => format!("({left} <> {right})"),
        Operator::Lt => format!("({left} < {right})"),
        Operator::LtEq => format!("({left} <= {right})"),
        Operator::Gt => format!("({left} > {right})"),
        Operator::GtEq => format!("({left} >= {right})"),
        Operator::IsNotDistinctFrom => format!("({left} <=> {right})"),
        Operator::IsDistinctFrom => format!("(NOT ({left} <=> {right}))"),
        _ => return None,
    })
}

/// The terms of a chain of one operator, in order; `None` when there are too many.
fn chain(expr: &Expr, op: Operator) -> Option<Vec<&Expr>> {
    let mut terms = Vec::new();
    let mut pending = vec![expr];
    while let Some(next) = pending.pop() {
        match next {
            Expr::BinaryExpr(binary) if binary.op == op => {
                pending.push(&binary.right);
                pending.push(&binary.left);
            }
            term => terms.push(term),
        }
        if terms.len() + pending.len() > MAX_TERMS {
            return None;
        }
    }
    Some(terms)
}

/// Joins terms as a balanced tree, whose depth grows with the logarithm of their number.
fn balanced(terms: &[String], op: &str) -> String {
    match terms {
        [] => String::new(),
        [term] => term.clone(),
        _ => {
            let (left, right) = terms.split_at(terms.len() / 2);
            format!("({} {op} {})", balanced(left, op), balanced(right, op))
        }
    }
}

/// Whether a LIKE pattern means the same in both engines: a backslash only before `%` or `_`, no NUL.
fn is_plain_pattern(pattern: &str) -> bool {
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        let plain = match c {
            '\\' => matches!(chars.next(), Some('%' | '_')),
            '\0' => false,
            _ => true,
        };
        if !plain {
            return false;
        }
    }
    true
}
