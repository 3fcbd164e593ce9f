//! Operators with Doris's meaning, where the executor's differs.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::{DFSchema, Result, ScalarValue, plan_datafusion_err, plan_err};
use datafusion::logical_expr::planner::{
    ExprPlanner, PlannerResult, RawBinaryExpr, RawDictionaryExpr, RawFieldAccessExpr,
};
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, GetFieldAccess, Operator, ScalarUDF};
use datafusion::prelude::lit;
use datafusion::sql::sqlparser::ast::BinaryOperator;

use super::env::Env;
use crate::types::{ColumnBuilder, DorisType};

/// Plans operators.
#[derive(Debug)]
pub(super) struct DorisOperators {
    functions: HashMap<String, Arc<ScalarUDF>>,
    env: Env,
}

/// The planner with the functions it calls, by name.
pub(super) fn operators(functions: HashMap<String, Arc<ScalarUDF>>, env: Env) -> DorisOperators {
    DorisOperators { functions, env }
}

impl DorisOperators {
    fn call(&self, name: &str, args: Vec<Expr>) -> Result<Expr> {
        match self.functions.get(&format!("__doris_{name}")) {
            Some(function) => Ok(function.call(args)),
            None => plan_err!("Can not found function '{name}'"),
        }
    }

    fn cast_to(&self, expr: Expr, ty: &DorisType) -> Result<Expr> {
        self.call("cast", vec![expr, lit(ty.to_string())])
    }

    fn comparison(&self, expr: RawBinaryExpr, op: Operator, schema: &DFSchema) -> Result<PlannerResult<RawBinaryExpr>> {
        let (left, right) = (doris_type(&expr.left, schema)?, doris_type(&expr.right, schema)?);
        let (l, r) = (expr.left, expr.right);
        if matches!(left, DorisType::Bitmap | DorisType::Hll) || matches!(right, DorisType::Bitmap | DorisType::Hll) {
            return plan_err!("comparison predicate could not contains complex type: {left}, {right}");
        }
        if left.is_nested() || right.is_nested() {
            let both = left.common(&right, 76).is_some();
            let name = match op {
                Operator::Eq if both => "equal_values",
                Operator::IsNotDistinctFrom if both => "same_values",
                _ => return plan_err!("the sandbox does not implement comparison of {left} and {right}"),
            };
            return Ok(PlannerResult::Planned(self.call(name, vec![l, r])?));
        }
        let target = meeting(&left, &l, &right, &r, self.env.max_precision());
        let (l, r) = match &target {
            None => (l, r),
            Some(ty) => (self.align(l, &left, ty)?, self.align(r, &right, ty)?),
        };
        let float = |ty: &DorisType| matches!(ty, DorisType::Float | DorisType::Double);
        let floats = target.as_ref().map_or(float(&left) || float(&right), float);
        if floats {
            let key = |e: Expr, ty: &DorisType| -> Result<Expr> {
                if target.is_some() || float(ty) { self.call("float_key", vec![e]) } else { Ok(e) }
            };
            let (l, r) = (key(l, &left)?, key(r, &right)?);
            return Ok(PlannerResult::Planned(binary(l, op, r)));
        }
        Ok(PlannerResult::Planned(binary(l, op, r)))
    }

    fn align(&self, expr: Expr, from: &DorisType, to: &DorisType) -> Result<Expr> {
        if from == to || (from.is_text() && to.is_text()) { Ok(expr) } else { self.cast_to(expr, to) }
    }

    fn truth(&self, expr: Expr, schema: &DFSchema) -> Result<Expr> {
        // The type of a comparison needs no look at its operands.
        use Operator::{Eq, Gt, GtEq, IsNotDistinctFrom, Lt, LtEq, NotEq};
        let compares = |op: &Operator| matches!(op, Eq | NotEq | Lt | LtEq | Gt | GtEq | IsNotDistinctFrom);
        if matches!(&expr, Expr::BinaryExpr(BinaryExpr { op, .. }) if op.is_logic_operator() || compares(op)) {
            return Ok(expr);
        }
        match doris_type(&expr, schema)? {
            DorisType::Boolean | DorisType::Null => Ok(expr),
            _ => self.cast_to(expr, &DorisType::Boolean),
        }
    }
}

fn doris_type(expr: &Expr, schema: &DFSchema) -> Result<DorisType> {
    let (_, field) = expr.to_field(schema)?;
    match field.data_type() {
        DataType::Interval(_) => plan_err!("INTERVAL needs a date beside it"),
        other => DorisType::of_field(&field).ok_or_else(|| plan_datafusion_err!("operands of Arrow type {other}")),
    }
}

fn binary(left: Expr, op: Operator, right: Expr) -> Expr {
    Expr::BinaryExpr(BinaryExpr::new(Box::new(left), op, Box::new(right)))
}

/// The type in which two operands are compared; `None` when they can be as they are.
fn meeting(left: &DorisType, l: &Expr, right: &DorisType, r: &Expr, max_precision: u8) -> Option<DorisType> {
    let wide = |ty: &DorisType| *ty == DorisType::LargeInt || matches!(ty, DorisType::Decimal { precision: 39.., .. });
    match (left, right) {
        (a, b) if a == b || (a.is_text() && b.is_text()) => None,
        (DorisType::Null, _) | (_, DorisType::Null) => None,
        (DorisType::TimestampTz(_), _) | (_, DorisType::TimestampTz(_)) => Some(DorisType::TimestampTz(6)),
        (DorisType::Time(_), _) | (_, DorisType::Time(_)) => Some(DorisType::Time(6)),
        (a, b) if a.is_time() || b.is_time() => {
            let alone = (*a == DorisType::Date && b.is_text() && date_only(r))
                || (*b == DorisType::Date && a.is_text() && date_only(l));
            if alone {
                return Some(DorisType::Date);
            }
            let digits = |ty: &DorisType| match ty {
                DorisType::Date => 0,
                DorisType::DateTime(p) => *p,
                _ => 6,
            };
            Some(DorisType::DateTime(digits(a).max(digits(b))))
        }
        (ty @ (DorisType::Ipv4 | DorisType::Ipv6), _) | (_, ty @ (DorisType::Ipv4 | DorisType::Ipv6)) => {
            Some(ty.clone())
        }
        (DorisType::Variant, other) | (other, DorisType::Variant) => Some(other.clone()),
        (DorisType::Json, _) | (_, DorisType::Json) => Some(DorisType::Json),
        (a, b) if a.is_text() => Some(text_against(l, b)),
        (a, b) if b.is_text() => Some(text_against(r, a)),
        (DorisType::Boolean, ty) | (ty, DorisType::Boolean) => Some(match ty {
            DorisType::TinyInt => DorisType::SmallInt,
            ty => ty.clone(),
        }),
        (a, b)
            if matches!(a, DorisType::Float | DorisType::Double)
                || matches!(b, DorisType::Float | DorisType::Double) =>
        {
            Some(DorisType::Double)
        }
        (a, b) if wide(a) || wide(b) => match (a, b) {
            (DorisType::Decimal { scale, .. }, _) | (_, DorisType::Decimal { scale, .. }) if *scale > 0 => {
                let other = if let DorisType::Decimal { scale, .. } = b { *scale } else { 0 };
                Some(DorisType::Decimal { precision: 76, scale: (*scale).max(other) })
            }
            (a, b) if a.is_integer() && b.is_integer() => Some(DorisType::LargeInt),
            _ => Some(DorisType::Decimal { precision: 76, scale: 0 }),
        },
        (a, b) if matches!(a, DorisType::Decimal { .. }) != matches!(b, DorisType::Decimal { .. }) => {
            a.common(b, max_precision)
        }
        _ => None,
    }
}

/// A literal text that is a date without a time of day.
fn date_only(expr: &Expr) -> bool {
    matches!(expr, Expr::Literal(ScalarValue::Utf8(Some(text)), _) if text.trim().len() <= 10)
}

/// Type in which a text meets a number: the number's when a literal fits it, else DOUBLE.
fn text_against(text: &Expr, number: &DorisType) -> DorisType {
    match text {
        Expr::Literal(ScalarValue::Utf8(Some(value)), _) => {
            let mut builder = ColumnBuilder::new(number, true);
            let exact = !matches!(number, DorisType::Float | DorisType::Decimal { .. });
            if exact && builder.append_text(value).is_ok() { number.clone() } else { DorisType::Double }
        }
        _ => DorisType::Double,
    }
}

impl ExprPlanner for DorisOperators {
    fn plan_binary_op(&self, expr: RawBinaryExpr, schema: &DFSchema) -> Result<PlannerResult<RawBinaryExpr>> {
        let call =
            |name: &str, expr: RawBinaryExpr| Ok(PlannerResult::Planned(self.call(name, vec![expr.left, expr.right])?));
        match expr.op {
            BinaryOperator::Divide => call("divide", expr),
            BinaryOperator::Modulo => call("mod", expr),
            BinaryOperator::MyIntegerDivide => call("int_divide", expr),
            BinaryOperator::Plus => call("add", expr),
            BinaryOperator::Minus => call("subtract", expr),
            BinaryOperator::Multiply => call("multiply", expr),
            BinaryOperator::BitwiseAnd => call("bitand", expr),
            BinaryOperator::BitwiseOr => call("bitor", expr),
            BinaryOperator::BitwiseXor => call("bitxor", expr),
            BinaryOperator::PGBitwiseShiftLeft => call("bit_shift_left", expr),
            BinaryOperator::PGBitwiseShiftRight => call("bit_shift_right", expr),
            BinaryOperator::Xor => call("xor", expr),
            BinaryOperator::Eq => self.comparison(expr, Operator::Eq, schema),
            BinaryOperator::NotEq => match self.comparison(expr, Operator::Eq, schema)? {
                // As NOT of equality, so that what compares by a function needs no second one.
                PlannerResult::Planned(Expr::BinaryExpr(BinaryExpr { left, right, .. })) => {
                    Ok(PlannerResult::Planned(binary(*left, Operator::NotEq, *right)))
                }
                PlannerResult::Planned(equal) => Ok(PlannerResult::Planned(Expr::Not(Box::new(equal)))),
                original => Ok(original),
            },
            BinaryOperator::Lt => self.comparison(expr, Operator::Lt, schema),
            BinaryOperator::LtEq => self.comparison(expr, Operator::LtEq, schema),
            BinaryOperator::Gt => self.comparison(expr, Operator::Gt, schema),
            BinaryOperator::GtEq => self.comparison(expr, Operator::GtEq, schema),
            BinaryOperator::Spaceship => self.comparison(expr, Operator::IsNotDistinctFrom, schema),
            BinaryOperator::And | BinaryOperator::Or => {
                let op = if matches!(expr.op, BinaryOperator::And) { Operator::And } else { Operator::Or };
                let (left, right) = (self.truth(expr.left, schema)?, self.truth(expr.right, schema)?);
                Ok(PlannerResult::Planned(binary(left, op, right)))
            }
            // `||` under PIPES_AS_CONCAT; NULL when a side is NULL.
            BinaryOperator::StringConcat => {
                Ok(PlannerResult::Planned(self.call("concat", vec![expr.left, expr.right])?))
            }
            other => plan_err!("the sandbox does not implement operator {other}"),
        }
    }

    fn plan_field_access(&self, expr: RawFieldAccessExpr, _: &DFSchema) -> Result<PlannerResult<RawFieldAccessExpr>> {
        let key = match expr.field_access {
            GetFieldAccess::NamedStructField { name } => lit(name),
            GetFieldAccess::ListIndex { key } => *key,
            GetFieldAccess::ListRange { .. } => {
                return plan_err!("the sandbox does not implement slices in brackets, use array_slice");
            }
        };
        Ok(PlannerResult::Planned(self.call("element_at", vec![expr.expr, key])?))
    }

    fn plan_array_literal(&self, exprs: Vec<Expr>, _: &DFSchema) -> Result<PlannerResult<Vec<Expr>>> {
        Ok(PlannerResult::Planned(self.call("array", exprs)?))
    }

    fn plan_dictionary_literal(
        &self,
        expr: RawDictionaryExpr,
        _: &DFSchema,
    ) -> Result<PlannerResult<RawDictionaryExpr>> {
        let pairs = expr.keys.into_iter().zip(expr.values).flat_map(|(key, value)| [key, value]);
        Ok(PlannerResult::Planned(self.call("map", pairs.collect())?))
    }
}
