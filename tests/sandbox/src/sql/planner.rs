//! Operators with Doris's meaning, where DataFusion's differs.

use std::sync::Arc;

use arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::{DFSchema, Result, ScalarValue, plan_err};
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, Operator, ScalarUDF};
use datafusion::prelude::lit;
use datafusion::sql::sqlparser::ast::BinaryOperator;

use super::udf;
use crate::types::DorisType;

/// Plans binary operators.
#[derive(Debug)]
pub(super) struct DorisOperators {
    pub(super) cast: Arc<ScalarUDF>,
    pub(super) divide: Arc<ScalarUDF>,
    pub(super) modulo: Arc<ScalarUDF>,
    pub(super) int_divide: Arc<ScalarUDF>,
}

impl DorisOperators {
    fn cast_to(&self, expr: Expr, ty: &DorisType) -> Expr {
        self.cast.call(vec![expr, lit(ty.to_string())])
    }

    fn arithmetic(&self, expr: RawBinaryExpr, op: Operator, schema: &DFSchema) -> Result<PlannerResult<RawBinaryExpr>> {
        let (left, right) = (expr.left.get_type(schema)?, expr.right.get_type(schema)?);
        if is_largeint(&left) || is_largeint(&right) {
            return plan_err!("the sandbox does not implement arithmetic on LARGEINT");
        }
        let temporal = |t: &DataType| matches!(t, DataType::Date32 | DataType::Timestamp(..) | DataType::Interval(_));
        if temporal(&left) || temporal(&right) {
            let interval = matches!(left, DataType::Interval(_)) || matches!(right, DataType::Interval(_));
            return if interval {
                Ok(PlannerResult::Original(expr))
            } else {
                plan_err!("the sandbox does not implement arithmetic on dates without INTERVAL")
            };
        }
        let rank = integer_rank(&expr.left, &left).zip(integer_rank(&expr.right, &right));
        let Some((a, b)) = rank else {
            let text = |t: &DataType| matches!(t, DataType::Utf8 | DataType::Boolean);
            let (mut l, mut r) = (expr.left, expr.right);
            if text(&left) {
                l = self.cast_to(l, &DorisType::Double);
            }
            if text(&right) {
                r = self.cast_to(r, &DorisType::Double);
            }
            return Ok(PlannerResult::Planned(binary(l, op, r)));
        };
        // One step wider than the wider operand, up to BIGINT.
        let ty = match a.max(b) {
            0 => DorisType::SmallInt,
            1 => DorisType::Int,
            _ => DorisType::BigInt,
        };
        let (l, r) = (self.cast_to(expr.left, &ty), self.cast_to(expr.right, &ty));
        Ok(PlannerResult::Planned(binary(l, op, r)))
    }

    fn comparison(&self, expr: RawBinaryExpr, op: Operator, schema: &DFSchema) -> Result<PlannerResult<RawBinaryExpr>> {
        let (left, right) = (expr.left.get_type(schema)?, expr.right.get_type(schema)?);
        let (l, r) = (expr.left, expr.right);
        if left == right {
            return Ok(PlannerResult::Planned(binary(l, op, r)));
        }
        let nested = |t: &DataType| t.is_nested();
        if nested(&left) || nested(&right) {
            return plan_err!("the sandbox does not implement comparison of {left} and {right}");
        }
        let target = match (&left, &right) {
            (DataType::Null, _) | (_, DataType::Null) => None,
            (a, b) if is_time(a) || is_time(b) => {
                if matches!((a, b), (DataType::Date32, DataType::Utf8) | (DataType::Utf8, DataType::Date32))
                    && (date_only(&l) || date_only(&r))
                {
                    Some(DorisType::Date)
                } else {
                    Some(DorisType::DateTime(time_digits(a).max(time_digits(b))))
                }
            }
            (DataType::Utf8, number) if is_number(number) || *number == DataType::Boolean => {
                Some(text_against(&l, number))
            }
            (number, DataType::Utf8) if is_number(number) || *number == DataType::Boolean => {
                Some(text_against(&r, number))
            }
            (DataType::Boolean, number) | (number, DataType::Boolean) if is_number(number) => {
                DorisType::of_arrow(number).map(|ty| if ty == DorisType::TinyInt { DorisType::SmallInt } else { ty })
            }
            (a, b) if is_largeint(a) || is_largeint(b) => {
                let other = if is_largeint(a) { b } else { a };
                match other {
                    DataType::Float32 | DataType::Float64 => Some(DorisType::Double),
                    DataType::Decimal128(_, s) | DataType::Decimal256(_, s) if *s > 0 => {
                        Some(DorisType::Decimal { precision: 76, scale: *s as u8 })
                    }
                    _ => Some(DorisType::LargeInt),
                }
            }
            _ => None,
        };
        let Some(target) = target else { return Ok(PlannerResult::Planned(binary(l, op, r))) };
        Ok(PlannerResult::Planned(binary(self.align(l, &left, &target), op, self.align(r, &right, &target))))
    }

    fn align(&self, expr: Expr, from: &DataType, to: &DorisType) -> Expr {
        if *from == to.storage() { expr } else { self.cast_to(expr, to) }
    }
}

fn binary(left: Expr, op: Operator, right: Expr) -> Expr {
    Expr::BinaryExpr(BinaryExpr::new(Box::new(left), op, Box::new(right)))
}

fn is_largeint(t: &DataType) -> bool {
    matches!(t, DataType::Decimal256(39, 0))
}

fn is_number(t: &DataType) -> bool {
    t.is_numeric()
}

fn is_time(t: &DataType) -> bool {
    matches!(t, DataType::Date32 | DataType::Timestamp(..))
}

/// Fraction digits that a comparison with this operand needs.
fn time_digits(t: &DataType) -> u8 {
    match t {
        DataType::Timestamp(TimeUnit::Second, _) | DataType::Date32 => 0,
        DataType::Timestamp(TimeUnit::Millisecond, _) => 3,
        _ => 6,
    }
}

/// A literal text that is a date without a time of day.
fn date_only(expr: &Expr) -> bool {
    matches!(expr, Expr::Literal(ScalarValue::Utf8(Some(text)), _) if text.trim().len() <= 10)
}

/// Type in which a text meets a number: the number's when a literal fits it, else DOUBLE.
fn text_against(text: &Expr, number: &DataType) -> DorisType {
    let ty = DorisType::of_arrow(number).unwrap_or(DorisType::Double);
    match text {
        Expr::Literal(ScalarValue::Utf8(Some(value)), _) => {
            let mut builder = crate::types::ColumnBuilder::new(&ty, true);
            let exact = !matches!(ty, DorisType::Float | DorisType::Decimal { .. });
            if exact && builder.append_text(value).is_ok() { ty } else { DorisType::Double }
        }
        _ => DorisType::Double,
    }
}

/// 0 TINYINT to 3 BIGINT; literals count by their value.
fn integer_rank(expr: &Expr, t: &DataType) -> Option<u8> {
    if let Expr::Literal(value, _) = expr
        && let Ok(ScalarValue::Int64(Some(number))) = value.cast_to(&DataType::Int64)
        && t.is_integer()
    {
        return Some(match number {
            n if i8::try_from(n).is_ok() => 0,
            n if i16::try_from(n).is_ok() => 1,
            n if i32::try_from(n).is_ok() => 2,
            _ => 3,
        });
    }
    match t {
        DataType::Int8 => Some(0),
        DataType::Int16 | DataType::UInt8 => Some(1),
        DataType::Int32 | DataType::UInt16 => Some(2),
        DataType::Int64 | DataType::UInt32 | DataType::UInt64 => Some(3),
        _ => None,
    }
}

impl ExprPlanner for DorisOperators {
    fn plan_binary_op(&self, expr: RawBinaryExpr, schema: &DFSchema) -> Result<PlannerResult<RawBinaryExpr>> {
        let call = |udf: &Arc<ScalarUDF>, expr: RawBinaryExpr| {
            Ok(PlannerResult::Planned(udf.call(vec![expr.left, expr.right])))
        };
        match expr.op {
            BinaryOperator::Divide => call(&self.divide, expr),
            BinaryOperator::Modulo => call(&self.modulo, expr),
            BinaryOperator::MyIntegerDivide => call(&self.int_divide, expr),
            BinaryOperator::Plus => self.arithmetic(expr, Operator::Plus, schema),
            BinaryOperator::Minus => self.arithmetic(expr, Operator::Minus, schema),
            BinaryOperator::Multiply => self.arithmetic(expr, Operator::Multiply, schema),
            BinaryOperator::Eq => self.comparison(expr, Operator::Eq, schema),
            BinaryOperator::NotEq => self.comparison(expr, Operator::NotEq, schema),
            BinaryOperator::Lt => self.comparison(expr, Operator::Lt, schema),
            BinaryOperator::LtEq => self.comparison(expr, Operator::LtEq, schema),
            BinaryOperator::Gt => self.comparison(expr, Operator::Gt, schema),
            BinaryOperator::GtEq => self.comparison(expr, Operator::GtEq, schema),
            BinaryOperator::Spaceship => self.comparison(expr, Operator::IsNotDistinctFrom, schema),
            BinaryOperator::And | BinaryOperator::Or => {
                let op = if matches!(expr.op, BinaryOperator::And) { Operator::And } else { Operator::Or };
                let truth = |e: Expr| -> Result<Expr> {
                    let t = e.get_type(schema)?;
                    Ok(if matches!(t, DataType::Boolean | DataType::Null) {
                        e
                    } else {
                        self.cast_to(e, &DorisType::Boolean)
                    })
                };
                let planned = binary(truth(expr.left)?, op, truth(expr.right)?);
                Ok(PlannerResult::Planned(planned))
            }
            // `||` under PIPES_AS_CONCAT; NULL when a side is NULL.
            BinaryOperator::StringConcat => {
                let (left, right) =
                    (self.cast_to(expr.left, &DorisType::String), self.cast_to(expr.right, &DorisType::String));
                Ok(PlannerResult::Planned(binary(left, Operator::StringConcat, right)))
            }
            BinaryOperator::BitwiseAnd | BinaryOperator::BitwiseOr | BinaryOperator::BitwiseXor => {
                Ok(PlannerResult::Original(expr))
            }
            other => plan_err!("the sandbox does not implement operator {other}"),
        }
    }
}

/// The planner with the functions it calls.
pub(super) fn operators() -> DorisOperators {
    DorisOperators {
        cast: Arc::new(udf::cast()),
        divide: Arc::new(udf::arithmetic(udf::Arithmetic::Divide)),
        modulo: Arc::new(udf::arithmetic(udf::Arithmetic::Modulo)),
        int_divide: Arc::new(udf::arithmetic(udf::Arithmetic::IntDivide)),
    }
}
