//! Expressions other than calls.

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, CastKind, CeilFloorKind, DataType as SqlType, DateTimeField, Expr, TimezoneInfo, TrimWhereField,
    UnaryOperator, Value,
};

use super::Rewriter;
use super::ast::{
    args_of, bare_number, binary, call, cast, make_truth, negated, not, null, number, restore_number, take, text,
    written_number,
};
use super::size::{check_copied, parts};
use crate::error::SqlError;
use crate::types::{DorisType, SessionZone, parse_datetime, parse_time, parse_type};

/// Type text of CAST as the Doris parser reads it.
fn type_text(data_type: &SqlType) -> Result<DorisType, SqlError> {
    let printed = match data_type {
        SqlType::SignedInteger | SqlType::Signed => "BIGINT".to_owned(),
        SqlType::Character(_) | SqlType::Char(None) => "VARCHAR(65533)".to_owned(),
        SqlType::Timestamp(precision, TimezoneInfo::Tz | TimezoneInfo::WithTimeZone) => {
            format!("TIMESTAMPTZ({})", precision.unwrap_or(0))
        }
        SqlType::Timestamp(precision, _) => format!("DATETIME({})", precision.unwrap_or(0)),
        SqlType::Time(precision, _) => format!("TIME({})", precision.unwrap_or(0)),
        SqlType::JSON => "JSON".to_owned(),
        other => other.to_string(),
    };
    parse_type(&printed).map_err(SqlError::detail)
}

/// The name of a unit of time, in the singular.
pub(super) fn unit_name(field: &DateTimeField) -> String {
    let name = field.to_string().to_ascii_uppercase();
    match name.strip_suffix('S') {
        Some(singular) if matches!(singular, "YEAR" | "MONTH" | "WEEK" | "DAY" | "HOUR" | "MINUTE" | "SECOND") => {
            singular.to_owned()
        }
        _ => name,
    }
}

/// A comparison in which NULL is false, for what decides between branches.
fn equals(left: Expr, right: Expr) -> Expr {
    binary(left, BinaryOperator::Eq, right)
}

impl Rewriter<'_> {
    /// Accounts for an expression that is written `times` times instead of once: such copies within each other would
    /// grow with their power.
    fn copies(&mut self, expr: &Expr, times: usize) -> Result<(), SqlError> {
        self.copied = self.copied.saturating_add(parts(expr).saturating_mul(times.saturating_sub(1)));
        check_copied(self.copied)
    }

    fn cast_type(&self, data_type: &SqlType) -> Result<String, SqlError> {
        let ty = type_text(data_type)?;
        ty.check_decimals(self.facts.decimal256).map_err(SqlError::detail)?;
        Ok(ty.to_string())
    }

    /// What must be seen before its parts are rewritten.
    pub(super) fn before(&mut self, expr: &mut Expr) -> Result<(), SqlError> {
        match expr {
            // The sign belongs to a number, so that the smallest of a type can be written.
            Expr::UnaryOp { op: UnaryOperator::Minus, expr: inner } => {
                if let Expr::Value(value) = inner.as_ref()
                    && let Value::Number(digits, _) = &value.value
                {
                    *expr = number(format!("-{digits}"));
                }
            }
            Expr::Array(array) if array.elem.is_empty() => *expr = call("__doris_empty_array", vec![]),
            Expr::Function(function) => self.before_call(function),
            Expr::BinaryOp { op: op @ (BinaryOperator::And | BinaryOperator::Or), .. } => {
                let op = op.clone();
                balance(expr, &op);
            }
            _ => {}
        }
        Ok(())
    }

    pub(super) fn expr(&mut self, expr: &mut Expr) -> Result<(), SqlError> {
        match expr {
            Expr::Identifier(name) => self.spell(name),
            Expr::CompoundIdentifier(parts) => {
                if let Some(last) = parts.last_mut() {
                    self.spell(last);
                }
            }
            Expr::Value(value) => match &value.value {
                Value::Number(digits, _) => *expr = number(digits),
                Value::Placeholder(_) => return Err(SqlError::syntax("parameters are not supported")),
                _ => {}
            },
            Expr::UnaryOp { op, expr: inner } => {
                let mut value = take(inner);
                *expr = match op {
                    UnaryOperator::Plus => value,
                    UnaryOperator::Minus => match written_number(&value) {
                        Some(digits) if !digits.starts_with('-') => number(format!("-{digits}")),
                        _ => call("__doris_negate", vec![value]),
                    },
                    UnaryOperator::Not | UnaryOperator::BangNot => {
                        make_truth(&mut value);
                        not(value)
                    }
                    UnaryOperator::BitwiseNot => call("__doris_bitnot", vec![value]),
                    other => return Err(SqlError::syntax(format!("mismatched input '{other}'"))),
                };
            }
            Expr::BinaryOp { left, op, right } => {
                if matches!(op, BinaryOperator::Plus | BinaryOperator::Minus) {
                    let minus = *op == BinaryOperator::Minus;
                    let (date, interval) = match (args_of(left, "__doris_interval"), args_of(right, "__doris_interval"))
                    {
                        (_, Some(interval)) => (take(left), interval),
                        (Some(interval), None) if !minus => (take(right), interval),
                        _ => return Ok(()),
                    };
                    *expr = shift(date, interval, minus);
                }
            }
            Expr::Function(function) => {
                if let Some(replaced) = self.function(function)? {
                    *expr = replaced;
                }
            }
            Expr::Cast { kind, expr: inner, data_type, .. } => {
                let ty = self.cast_type(data_type)?;
                let inner = take(inner);
                *expr = match kind {
                    CastKind::TryCast | CastKind::SafeCast => call("__doris_try_cast", vec![inner, text(ty)]),
                    _ => cast(inner, &ty),
                };
            }
            Expr::Convert { expr: inner, data_type: Some(data_type), .. } => {
                let ty = self.cast_type(data_type)?;
                *expr = cast(take(inner), &ty);
            }
            Expr::Convert { .. } => return Err(SqlError::not_served("CONVERT ... USING")),
            Expr::TypedString(typed) => {
                let value = typed.value.value.clone().into_string().unwrap_or_default();
                *expr = typed_text(&typed.data_type, value)?;
            }
            Expr::Interval(interval) => {
                let Some(field) = &interval.leading_field else {
                    return Err(SqlError::syntax("INTERVAL needs a unit"));
                };
                if interval.last_field.is_some() {
                    return Err(SqlError::not_served("INTERVAL of several units"));
                }
                let field = unit_name(field);
                *expr = call("__doris_interval", vec![take(&mut interval.value), text(field)]);
            }
            Expr::Between { expr: inner, negated: no, low, high } => {
                let (value, low, high) = (take(inner), take(low), take(high));
                self.copies(&value, 2)?;
                let inside = binary(
                    binary(value.clone(), BinaryOperator::GtEq, low),
                    BinaryOperator::And,
                    binary(value, BinaryOperator::LtEq, high),
                );
                *expr = negated(inside, *no);
            }
            Expr::InList { expr: inner, list, negated: no } => {
                let mut args = vec![take(inner)];
                if list.is_empty() {
                    return Err(SqlError::syntax("IN needs a list"));
                }
                let no = *no;
                *expr = match list.len() {
                    // Each is compared as `=` compares, while they are few.
                    1..=64 => {
                        let value = args.remove(0);
                        self.copies(&value, list.len())?;
                        let terms = std::mem::take(list).into_iter().map(|item| equals(value.clone(), item)).collect();
                        negated(balanced_or(terms), no)
                    }
                    _ => {
                        args.append(list);
                        negated(call("__doris_in", args), no)
                    }
                };
            }
            Expr::Like { negated: no, any, expr: inner, pattern, escape_char } => {
                if *any {
                    return Err(SqlError::syntax("mismatched input 'ANY'"));
                }
                let mut args = vec![take(inner), take(pattern)];
                if let Some(escape) = escape_char {
                    if !self.facts.like_escape {
                        return Err(SqlError::syntax("mismatched input 'ESCAPE' expecting <EOF>"));
                    }
                    let escape = escape.value.clone().into_string().unwrap_or_default();
                    if escape.len() != 1 {
                        return Err(SqlError::detail(format!(
                            "like escape character must be a single ascii character: {escape}"
                        )));
                    }
                    args.push(text(escape));
                }
                *expr = negated(call("__doris_like", args), *no);
            }
            Expr::RLike { negated: no, expr: inner, pattern, .. } => {
                let args = vec![cast(take(inner), "STRING"), cast(take(pattern), "STRING")];
                *expr = negated(call("regexp_like", args), *no);
            }
            Expr::IsTrue(inner) | Expr::IsNotTrue(inner) | Expr::IsFalse(inner) | Expr::IsNotFalse(inner) => {
                make_truth(inner);
            }
            Expr::Case { operand, conditions, .. } => {
                let operand = operand.take();
                if let Some(operand) = &operand {
                    self.copies(operand, conditions.len())?;
                }
                for when in conditions {
                    match &operand {
                        Some(operand) => {
                            let value = take(&mut when.condition);
                            when.condition = equals(operand.as_ref().clone(), value);
                        }
                        None => make_truth(&mut when.condition),
                    }
                }
            }
            Expr::Substring { expr: inner, substring_from, substring_for, .. } => {
                let mut args = vec![take(inner)];
                args.push(substring_from.take().map_or_else(|| bare_number(1), |e| *e));
                args.extend(substring_for.take().map(|e| *e));
                *expr = call("__doris_substr", args.into_iter().map(bare).collect());
            }
            Expr::Trim { expr: inner, trim_where, trim_what, trim_characters } => {
                let name = match trim_where {
                    Some(TrimWhereField::Leading) => "__doris_ltrim",
                    Some(TrimWhereField::Trailing) => "__doris_rtrim",
                    _ => "__doris_trim",
                };
                let mut args = vec![take(inner)];
                args.extend(trim_what.take().map(|e| *e));
                args.extend(trim_characters.take().into_iter().flatten());
                *expr = call(name, args);
            }
            Expr::Extract { field, expr: inner, .. } => {
                let name = unit_name(field).to_ascii_lowercase();
                let known = ["year", "quarter", "month", "week", "day", "hour", "minute", "second", "microsecond"];
                if !known.contains(&name.as_str()) {
                    return Err(SqlError::not_served(format!("EXTRACT of {name}")));
                }
                *expr = call(&format!("__doris_{name}"), vec![take(inner)]);
            }
            Expr::Position { expr: part, r#in: whole } => {
                *expr = call("__doris_locate", vec![take(part), take(whole)]);
            }
            Expr::Ceil { expr: inner, field } => *expr = rounded("__doris_ceil", take(inner), field)?,
            Expr::Floor { expr: inner, field } => *expr = rounded("__doris_floor", take(inner), field)?,
            Expr::ILike { .. } | Expr::SimilarTo { .. } | Expr::IsDistinctFrom(..) | Expr::IsNotDistinctFrom(..) => {
                return Err(SqlError::syntax(format!("mismatched input at `{expr}`")));
            }
            Expr::AtTimeZone { .. } => return Err(SqlError::syntax("mismatched input 'AT'")),
            _ => {}
        }
        Ok(())
    }
}

/// A number for the planner where one is written, else the expression.
pub(super) fn bare(mut expr: Expr) -> Expr {
    restore_number(&mut expr);
    expr
}

/// `date_add` or `date_sub` of the parts of an interval.
pub(super) fn shift(date: Expr, interval: Vec<Expr>, minus: bool) -> Expr {
    let mut args = vec![date];
    args.extend(interval.into_iter().map(bare));
    call(if minus { "__doris_date_sub" } else { "__doris_date_add" }, args)
}

fn rounded(name: &str, value: Expr, kind: &CeilFloorKind) -> Result<Expr, SqlError> {
    match kind {
        CeilFloorKind::DateTimeField(DateTimeField::NoDateTime) => Ok(call(name, vec![value])),
        CeilFloorKind::Scale(scale) => Ok(call(name, vec![value, Expr::Value(scale.clone())])),
        CeilFloorKind::DateTimeField(_) => Err(SqlError::syntax("mismatched input 'TO'")),
    }
}

/// `DATE '...'`, `TIMESTAMP '...'`, `TIME '...'`.
fn typed_text(data_type: &SqlType, value: String) -> Result<Expr, SqlError> {
    if let SqlType::Time(..) = data_type {
        return match parse_time(&value, 6) {
            Some(_) => Ok(cast(text(value), "TIME(6)")),
            None => Err(SqlError::detail(format!("time literal [{value}] is invalid"))),
        };
    }
    let date = matches!(data_type, SqlType::Date);
    if parse_datetime(&value, 6, &SessionZone::UTC).is_none() {
        return Err(SqlError::detail(format!("date/datetime literal [{value}] is invalid")));
    }
    let fraction = value.rsplit_once('.').map_or("", |(_, fraction)| fraction);
    let digits = fraction.bytes().take_while(u8::is_ascii_digit).count();
    if digits > 6 {
        return Err(SqlError::detail(format!("date/datetime literal [{value}] is invalid")));
    }
    Ok(cast(text(value), &if date { "DATE".to_owned() } else { format!("DATETIME({digits})") }))
}

/// Chains of this many terms become trees of logarithmic depth.
const LONG_CHAIN: usize = 16;

/// Makes a long chain of one logical operator flat.
fn balance(expr: &mut Expr, op: &BinaryOperator) {
    let mut terms = Vec::new();
    let mut rest = vec![take(expr)];
    while let Some(next) = rest.pop() {
        match next {
            Expr::BinaryOp { left, op: own, right } if own == *op => {
                rest.push(*right);
                rest.push(*left);
            }
            term => terms.push(term),
        }
    }
    if terms.len() > LONG_CHAIN {
        *expr = balanced(terms, op);
        return;
    }
    let chain =
        |left: Expr, right: Expr| Expr::BinaryOp { left: Box::new(left), op: op.clone(), right: Box::new(right) };
    *expr = terms.into_iter().reduce(chain).unwrap_or_else(null);
}

fn balanced_or(terms: Vec<Expr>) -> Expr {
    balanced(terms, &BinaryOperator::Or)
}

/// A tree of logarithmic depth.
fn balanced(mut terms: Vec<Expr>, op: &BinaryOperator) -> Expr {
    while terms.len() > 1 {
        let mut next = Vec::with_capacity(terms.len().div_ceil(2));
        let mut rest = terms.into_iter();
        while let Some(left) = rest.next() {
            next.push(match rest.next() {
                Some(right) => binary(left, op.clone(), right),
                None => left,
            });
        }
        terms = next;
    }
    terms.pop().unwrap_or_else(null)
}
