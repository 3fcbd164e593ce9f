//! Filters: DataFusion expression to Doris condition, only where both mean the same for every row.
//!
//! A whitelist decides and this module prints; there is no "nearly". What is not on the list stays in DataFusion.
//!
//! | accepted | on columns of |
//! | --- | --- |
//! | `= <> < <= > >=`, `BETWEEN`, `IN` with literals of the column's type | integers, LARGEINT, DECIMAL, DATE, DATETIME, CHAR, VARCHAR, STRING |
//! | `< <=` with a finite literal other than zero, not under NOT | DOUBLE |
//! | `= <>`, the column itself | BOOLEAN |
//! | `[NOT] LIKE` with the default escape | CHAR, VARCHAR, STRING |
//! | `IS [NOT] NULL` | all but JSON, VARIANT, states and nested types |
//! | `AND OR NOT` of the above | |
//!
//! DOUBLE is that narrow because the engines differ on NaN (Arrow: above all numbers), on -0.0 and on what NOT does to
//! a comparison; FLOAT is absent because a literal is never exactly the stored value.

use datafusion::common::ScalarValue;
use datafusion::logical_expr::expr::{Between, InList, Like};
use datafusion::logical_expr::{BinaryExpr, Expr, Operator};

use super::literal::{
    date_literal, datetime_literal, decimal_literal, double_literal, integer_literal, largeint_literal, rescale,
};
use super::{quote_ident, string_literal};
use crate::types::{ColumnSchema, DorisType, TableSchema};
use arrow::datatypes::i256;

/// Longest IN list that is pushed; the server's `expr_children_limit`.
const MAX_IN_LIST: usize = 10_000;
/// Values per IN; longer lists become several, joined by OR (AND for NOT IN).
const IN_CHUNK: usize = 1_000;
/// Most terms of one AND or OR chain.
const MAX_TERMS: usize = 10_000;
/// Deepest nesting of NOT and alternating AND/OR.
const MAX_DEPTH: usize = 100;

/// `expr` as a Doris condition that holds for exactly the same rows, or `None` when it is not on the whitelist.
pub fn filter_sql(expr: &Expr, schema: &TableSchema) -> Option<String> {
    Printer { schema }.condition(expr, Context { negated: false, depth: 0 })
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
}

struct Printer<'a> {
    schema: &'a TableSchema,
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
            Expr::Not(inner) => {
                let context = Context { negated: true, ..context }.deeper()?;
                Some(format!("(NOT {})", self.condition(inner, context)?))
            }
            Expr::IsNull(inner) => Some(format!("({} IS NULL)", self.nullable_column(inner)?)),
            Expr::IsNotNull(inner) => Some(format!("({} IS NOT NULL)", self.nullable_column(inner)?)),
            Expr::Between(between) => self.between(between, context),
            Expr::InList(list) => self.in_list(list),
            Expr::Like(like) => self.like(like),
            Expr::Column(_) => {
                let column = self.column(expr)?;
                (column.doris_type == DorisType::Boolean).then(|| format!("({} = TRUE)", quote_ident(&column.name)))
            }
            _ => None,
        }
    }

    fn column(&self, expr: &Expr) -> Option<&ColumnSchema> {
        match expr {
            Expr::Column(column) => self.schema.columns.iter().find(|candidate| candidate.name == column.name),
            Expr::Alias(alias) => match alias.expr.as_ref() {
                inner @ Expr::Column(_) => self.column(inner),
                _ => None,
            },
            _ => None,
        }
    }

    fn nullable_column(&self, expr: &Expr) -> Option<String> {
        let column = self.column(expr)?;
        match column.doris_type {
            DorisType::Json
            | DorisType::Variant
            | DorisType::Opaque(_)
            | DorisType::Array(_)
            | DorisType::Map(..)
            | DorisType::Struct(_) => None,
            _ => Some(quote_ident(&column.name)),
        }
    }

    fn comparison(&self, left: &Expr, op: Operator, right: &Expr, context: Context) -> Option<String> {
        let (column, op, value) = match (self.column(left), self.column(right)) {
            (Some(column), None) => (column, op, literal_of(right)?),
            (None, Some(column)) => (column, op.swap()?, literal_of(left)?),
            _ => return None,
        };
        let symbol = match op {
            Operator::Eq => "=",
            Operator::NotEq => "<>",
            Operator::Lt => "<",
            Operator::LtEq => "<=",
            Operator::Gt => ">",
            Operator::GtEq => ">=",
            _ => return None,
        };
        let literal = match column.doris_type {
            DorisType::Double if context.negated || !matches!(op, Operator::Lt | Operator::LtEq) => return None,
            DorisType::Boolean if !matches!(op, Operator::Eq | Operator::NotEq) => return None,
            _ => typed_literal(&column.doris_type, value)?,
        };
        Some(format!("({} {symbol} {literal})", quote_ident(&column.name)))
    }

    fn between(&self, between: &Between, context: Context) -> Option<String> {
        let column = self.column(&between.expr)?;
        match column.doris_type {
            // NaN fails the upper bound in both engines, so the lower one cannot tell them apart.
            DorisType::Double if context.negated || between.negated => return None,
            DorisType::Boolean => return None,
            _ => {}
        }
        let low = typed_literal(&column.doris_type, literal_of(&between.low)?)?;
        let high = typed_literal(&column.doris_type, literal_of(&between.high)?)?;
        let not = if between.negated { "NOT " } else { "" };
        Some(format!("({} {not}BETWEEN {low} AND {high})", quote_ident(&column.name)))
    }

    fn in_list(&self, list: &InList) -> Option<String> {
        let column = self.column(&list.expr)?;
        if list.list.is_empty() || list.list.len() > MAX_IN_LIST || column.doris_type == DorisType::Double {
            return None;
        }
        let values = list
            .list
            .iter()
            .map(|value| typed_literal(&column.doris_type, literal_of(value)?))
            .collect::<Option<Vec<_>>>()?;
        let name = quote_ident(&column.name);
        let (not, join) = if list.negated { ("NOT ", "AND") } else { ("", "OR") };
        let chunks: Vec<String> =
            values.chunks(IN_CHUNK).map(|chunk| format!("({name} {not}IN ({}))", chunk.join(", "))).collect();
        Some(balanced(&chunks, join))
    }

    fn like(&self, like: &Like) -> Option<String> {
        if like.case_insensitive || !matches!(like.escape_char, None | Some('\\')) {
            return None;
        }
        let column = self.column(&like.expr)?;
        if !is_text(&column.doris_type) {
            return None;
        }
        let pattern = text_of(literal_of(&like.pattern)?)?;
        if !is_plain_pattern(pattern) {
            return None;
        }
        let not = if like.negated { "NOT " } else { "" };
        Some(format!("({} {not}LIKE {})", quote_ident(&column.name), string_literal(pattern)))
    }
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

fn literal_of(expr: &Expr) -> Option<&ScalarValue> {
    match expr {
        Expr::Literal(value, _) if !value.is_null() => Some(value),
        _ => None,
    }
}

fn is_text(doris_type: &DorisType) -> bool {
    matches!(doris_type, DorisType::Char(_) | DorisType::Varchar(_) | DorisType::String)
}

pub(super) fn text_of(value: &ScalarValue) -> Option<&str> {
    match value {
        ScalarValue::Utf8(Some(text)) | ScalarValue::LargeUtf8(Some(text)) | ScalarValue::Utf8View(Some(text)) => {
            Some(text)
        }
        _ => None,
    }
}

pub(super) fn integer_of(value: &ScalarValue) -> Option<i64> {
    match value {
        ScalarValue::Int8(Some(value)) => Some((*value).into()),
        ScalarValue::Int16(Some(value)) => Some((*value).into()),
        ScalarValue::Int32(Some(value)) => Some((*value).into()),
        ScalarValue::Int64(Some(value)) => Some(*value),
        ScalarValue::UInt8(Some(value)) => Some((*value).into()),
        ScalarValue::UInt16(Some(value)) => Some((*value).into()),
        ScalarValue::UInt32(Some(value)) => Some((*value).into()),
        ScalarValue::UInt64(Some(value)) => i64::try_from(*value).ok(),
        _ => None,
    }
}

/// Unscaled value and scale.
fn decimal_of(value: &ScalarValue) -> Option<(i256, i8)> {
    match value {
        ScalarValue::Decimal32(Some(value), _, scale) => Some((i256::from_i128((*value).into()), *scale)),
        ScalarValue::Decimal64(Some(value), _, scale) => Some((i256::from_i128((*value).into()), *scale)),
        ScalarValue::Decimal128(Some(value), _, scale) => Some((i256::from_i128(*value), *scale)),
        ScalarValue::Decimal256(Some(value), _, scale) => Some((*value, *scale)),
        _ => None,
    }
}

/// Microseconds of a timestamp without zone; nanoseconds only when whole.
pub(super) fn micros_of(value: &ScalarValue) -> Option<i64> {
    match value {
        ScalarValue::TimestampSecond(Some(value), None) => value.checked_mul(1_000_000),
        ScalarValue::TimestampMillisecond(Some(value), None) => value.checked_mul(1_000),
        ScalarValue::TimestampMicrosecond(Some(value), None) => Some(*value),
        ScalarValue::TimestampNanosecond(Some(value), None) => (value % 1_000 == 0).then_some(value / 1_000),
        _ => None,
    }
}

/// True for the types of columns that [`key_literal`] has literals for: those whose equality is the same everywhere.
pub(crate) fn has_key_literals(doris_type: &DorisType) -> bool {
    matches!(
        doris_type,
        DorisType::Boolean
            | DorisType::TinyInt
            | DorisType::SmallInt
            | DorisType::Int
            | DorisType::BigInt
            | DorisType::LargeInt
            | DorisType::Decimal(..)
            | DorisType::Date
            | DorisType::DateTime(_)
            | DorisType::Char(_)
            | DorisType::Varchar(_)
            | DorisType::String
    )
}

/// `value`, of the column's own type, as a literal that equals the same rows in Doris; `None` when there is none.
pub(crate) fn key_literal(doris_type: &DorisType, value: &ScalarValue) -> Option<String> {
    has_key_literals(doris_type).then(|| typed_literal(doris_type, value)).flatten()
}

/// `value` as a literal that Doris compares with a column of `doris_type` without converting the column.
pub(super) fn typed_literal(doris_type: &DorisType, value: &ScalarValue) -> Option<String> {
    match doris_type {
        DorisType::Boolean => match value {
            ScalarValue::Boolean(Some(value)) => Some(if *value { "TRUE" } else { "FALSE" }.into()),
            _ => None,
        },
        DorisType::TinyInt | DorisType::SmallInt | DorisType::Int | DorisType::BigInt => {
            integer_of(value).map(integer_literal)
        }
        DorisType::LargeInt => {
            let number = match decimal_of(value) {
                Some((unscaled, scale)) => rescale(unscaled, scale, 0)?.to_i128()?,
                None => integer_of(value)?.into(),
            };
            Some(largeint_literal(number))
        }
        DorisType::Decimal(precision, scale) => {
            let (unscaled, value_scale) = decimal_of(value)?;
            decimal_literal(unscaled, value_scale, *precision, *scale)
        }
        DorisType::Double => match value {
            ScalarValue::Float64(Some(value)) => double_literal(*value),
            _ => None,
        },
        DorisType::Date => match value {
            ScalarValue::Date32(Some(days)) => date_literal(*days),
            _ => None,
        },
        DorisType::DateTime(_) => datetime_literal(micros_of(value)?),
        // CHAR is stored padded with NUL: a value that ends with one cannot be told from a shorter one.
        DorisType::Char(_) => text_of(value).filter(|text| !text.contains('\0')).map(string_literal),
        DorisType::Varchar(_) | DorisType::String => text_of(value).map(string_literal),
        _ => None,
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
