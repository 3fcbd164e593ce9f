//! `+ - * / % DIV`, unary minus and the bit operators, with Doris's result types.

use arrow::datatypes::i256;

use super::row::{Call, Def, Outcome, Types, f, g, null};
use crate::types::{DorisType, Value, rescale, ten_to};

/// Digits that a division adds to the scale of its dividend.
const DIVISION_DIGITS: u8 = 4;
/// `decimal_overflow_scale`: digits that survive when a result needs more than the type has.
const OVERFLOW_SCALE: u8 = 6;

fn operand(ty: &DorisType) -> Result<(), String> {
    let fine =
        ty.is_number() || ty.is_text() || matches!(ty, DorisType::Boolean | DorisType::Null | DorisType::Time(_));
    if fine { Ok(()) } else { Err(format!("the sandbox does not implement arithmetic on {ty}")) }
}

/// Neither operand is an integer or a decimal.
fn floating(types: &[DorisType]) -> bool {
    types.iter().any(|ty| {
        ty.is_text() || matches!(ty, DorisType::Float | DorisType::Double | DorisType::Null | DorisType::Time(_))
    })
}

/// The two operands as decimals, when at least one of them is.
fn shapes(types: &[DorisType]) -> Option<((u8, u8), (u8, u8))> {
    let decimal = types.iter().any(|ty| matches!(ty, DorisType::Decimal { .. }));
    let (a, b) = (types.first()?.decimal_shape()?, types.get(1)?.decimal_shape()?);
    decimal.then_some((a, b))
}

fn decimal(precision: u8, scale: u8) -> DorisType {
    DorisType::Decimal { precision, scale: scale.min(precision) }
}

fn rank(ty: &DorisType) -> u8 {
    ty.integer_rank().unwrap_or(0)
}

/// Precision to which decimals of the operands are capped: operands of more than 38 digits lift it.
fn cap(t: &Types<'_>) -> u8 {
    let wide = t.args.iter().any(|ty| matches!(ty, DorisType::Decimal { precision, .. } if *precision > 38));
    if wide { 76 } else { t.env.max_precision() }
}

/// Integers compute one type wider, up to BIGINT; LARGEINT stays.
fn widened(types: &[DorisType]) -> DorisType {
    DorisType::integer_of_rank(match types.iter().map(rank).max().unwrap_or(0) {
        widest @ 0..=2 => widest + 1,
        widest => widest,
    })
}

fn add_type(t: &Types<'_>) -> Result<DorisType, String> {
    t.args.iter().try_for_each(operand)?;
    if floating(t.args) {
        return Ok(DorisType::Double);
    }
    let Some(((p, s), (q, u))) = shapes(t.args) else { return Ok(widened(t.args)) };
    let (scale, whole, cap) = (s.max(u), (p - s).max(q - u), cap(t));
    if whole + scale < cap {
        return Ok(decimal(whole + scale + 1, scale));
    }
    Ok(decimal(cap, scale.min(cap - whole.min(cap))))
}

fn multiply_type(t: &Types<'_>) -> Result<DorisType, String> {
    t.args.iter().try_for_each(operand)?;
    if floating(t.args) {
        return Ok(DorisType::Double);
    }
    let Some(((p, s), (q, u))) = shapes(t.args) else { return Ok(widened(t.args)) };
    let (precision, scale, cap) = (p + q, s + u, cap(t));
    if precision <= cap {
        return Ok(decimal(precision, scale));
    }
    let whole = precision - scale;
    let scale = if whole < cap - OVERFLOW_SCALE { scale.min(cap - whole) } else { scale.min(OVERFLOW_SCALE) };
    Ok(decimal(cap, scale))
}

fn divide_type(t: &Types<'_>) -> Result<DorisType, String> {
    t.args.iter().try_for_each(operand)?;
    if floating(t.args) {
        return Ok(DorisType::Double);
    }
    let Some(((p, s), (_, u))) = shapes(t.args) else { return Ok(DorisType::Double) };
    let (precision, scale, cap) = (p + u + DIVISION_DIGITS, s + DIVISION_DIGITS, cap(t));
    if precision <= cap {
        return Ok(decimal(precision, scale));
    }
    let whole = precision - s;
    let scale = if whole < cap - OVERFLOW_SCALE {
        cap - whole + DIVISION_DIGITS
    } else {
        s.min(OVERFLOW_SCALE) + DIVISION_DIGITS
    };
    Ok(decimal(cap, scale))
}

fn modulo_type(t: &Types<'_>) -> Result<DorisType, String> {
    t.args.iter().try_for_each(operand)?;
    if floating(t.args) {
        return Ok(DorisType::Double);
    }
    let Some(((p, s), (q, u))) = shapes(t.args) else {
        return Ok(DorisType::integer_of_rank(t.args.iter().map(rank).max().unwrap_or(0)));
    };
    let (scale, whole, cap) = (s.max(u), (p - s).max(q - u), cap(t));
    Ok(decimal((whole + scale).min(cap), scale.min(cap - whole.min(cap))))
}

fn int_divide_type(t: &Types<'_>) -> Result<DorisType, String> {
    t.args.iter().try_for_each(operand)?;
    Ok(if t.args.contains(&DorisType::LargeInt) { DorisType::LargeInt } else { DorisType::BigInt })
}

fn negate_type(t: &Types<'_>) -> Result<DorisType, String> {
    operand(&t.args[0])?;
    // What is computed is subtracted from zero; the sign of a number as written belongs to it.
    Ok(match &t.args[0] {
        ty if ty.is_integer() => widened(std::slice::from_ref(ty)),
        ty @ DorisType::Decimal { .. } => ty.clone(),
        _ => DorisType::Double,
    })
}

fn bit_type(t: &Types<'_>) -> Result<DorisType, String> {
    t.args.iter().try_for_each(operand)?;
    if shapes(t.args).is_some() || floating(t.args) {
        return Ok(DorisType::BigInt);
    }
    Ok(DorisType::integer_of_rank(t.args.iter().map(rank).max().unwrap_or(0)))
}

/// An integer cut to the bits of its type.
fn wrap(value: i128, ty: &DorisType) -> Value {
    Value::Int(match ty {
        DorisType::TinyInt => i128::from(value as i8),
        DorisType::SmallInt => i128::from(value as i16),
        DorisType::Int => i128::from(value as i32),
        DorisType::BigInt => i128::from(value as i64),
        _ => value,
    })
}

/// A truth value counts as a number, a text as the number it spells.
fn number(value: &Value) -> Value {
    match value {
        Value::Bool(flag) => Value::Int(i128::from(*flag)),
        Value::Text(text) => text.trim().parse().map_or(Value::Null, Value::Float),
        Value::Time(micros) => Value::Float(*micros as f64 / 1e6),
        other => other.clone(),
    }
}

/// An unscaled operand at a scale.
fn at_scale(value: &Value, scale: u8) -> Option<i256> {
    match value {
        Value::Int(v) => rescale(i256::from_i128(*v), 0, scale),
        Value::Decimal(v, from) => rescale(*v, *from, scale),
        _ => None,
    }
}

fn scale_of(value: &Value) -> u8 {
    if let Value::Decimal(_, scale) = value { *scale } else { 0 }
}

fn overflow(c: &Call<'_>) -> String {
    format!(
        "[ARITHMETIC_OVERFLOW_ERRROR]Arithmetic overflow, convert failed, expected data is in the range of {}",
        c.ret
    )
}

/// A decimal result, refused when it has too many digits.
fn checked(value: Option<i256>, from: u8, c: &Call<'_>) -> Outcome {
    let DorisType::Decimal { precision, scale } = c.ret else { return null() };
    let scaled = value.and_then(|v| rescale(v, from, *scale)).ok_or_else(|| overflow(c))?;
    if *precision < 76 && (scaled >= ten_to(*precision) || scaled <= ten_to(*precision).wrapping_neg()) {
        return Err(overflow(c));
    }
    Ok(Value::Decimal(scaled, *scale))
}

fn operate(
    c: &Call<'_>,
    ints: fn(i128, i128) -> Option<i128>,
    floats: fn(f64, f64) -> Option<f64>,
    decimals: fn(&Value, &Value, &Call<'_>) -> Outcome,
) -> Outcome {
    let (a, b) = (number(&c.args[0]), number(&c.args[1]));
    match c.ret {
        DorisType::Double => Ok(match (a.as_f64(), b.as_f64()) {
            (Some(a), Some(b)) => floats(a, b).map_or(Value::Null, Value::Float),
            _ => Value::Null,
        }),
        DorisType::Decimal { .. } => decimals(&a, &b, c),
        ty => Ok(match (a, b) {
            (Value::Int(a), Value::Int(b)) => ints(a, b).map_or(Value::Null, |v| wrap(v, ty)),
            (a, b) => match (a.as_f64(), b.as_f64()) {
                (Some(a), Some(b)) => ints(a as i128, b as i128).map_or(Value::Null, |v| wrap(v, ty)),
                _ => Value::Null,
            },
        }),
    }
}

fn add_decimals(a: &Value, b: &Value, c: &Call<'_>, combine: fn(i256, i256) -> Option<i256>) -> Outcome {
    let scale = scale_of(a).max(scale_of(b));
    let sum = at_scale(a, scale).zip(at_scale(b, scale)).and_then(|(a, b)| combine(a, b));
    checked(sum, scale, c)
}

fn divide_decimals(a: &Value, b: &Value, c: &Call<'_>) -> Outcome {
    let DorisType::Decimal { scale, .. } = c.ret else { return null() };
    let (Some(a), Some(divisor)) = (at_scale(a, scale_of(a)).map(|v| (v, scale_of(a))), at_scale(b, scale_of(b)))
    else {
        return null();
    };
    if divisor == i256::ZERO {
        return null();
    }
    // The dividend gets the scale of the result plus that of the divisor; the quotient is cut.
    let up = scale + scale_of(b);
    let dividend = if up >= a.1 { rescale(a.0, a.1, up) } else { a.0.checked_div(ten_to(a.1 - up)) };
    checked(dividend.and_then(|d| d.checked_div(divisor)), *scale, c)
}

fn modulo_decimals(a: &Value, b: &Value, c: &Call<'_>) -> Outcome {
    let scale = scale_of(a).max(scale_of(b));
    match at_scale(a, scale).zip(at_scale(b, scale)) {
        Some((_, i256::ZERO)) => null(),
        Some((a, b)) => checked(a.checked_rem(b), scale, c),
        None => Err(overflow(c)),
    }
}

fn not_zero(a: f64, b: f64, divide: fn(f64, f64) -> f64) -> Option<f64> {
    (b != 0.0).then(|| divide(a, b))
}

fn negate(c: &Call<'_>) -> Outcome {
    Ok(match number(&c.args[0]) {
        Value::Int(v) => wrap(v.wrapping_neg(), c.ret),
        Value::Float(v) => Value::Float(-v),
        Value::Decimal(v, scale) => Value::Decimal(v.wrapping_neg(), scale),
        _ => Value::Null,
    })
}

fn bits(c: &Call<'_>, combine: fn(i128, i128) -> i128) -> Outcome {
    let whole = |value: &Value| match number(value) {
        Value::Int(v) => Some(v),
        other => other.as_f64().map(|v| v as i128),
    };
    Ok(match (whole(&c.args[0]), whole(&c.args[1])) {
        (Some(a), Some(b)) => wrap(combine(a, b), c.ret),
        _ => Value::Null,
    })
}

/// The operators, under the names by which they can be called as functions too.
pub(crate) fn defs() -> Vec<Def> {
    vec![
        g("add", "aa", add_type, |c| {
            operate(
                c,
                |a, b| Some(a.wrapping_add(b)),
                |a, b| Some(a + b),
                |a, b, c| add_decimals(a, b, c, i256::checked_add),
            )
        }),
        g("subtract", "aa", add_type, |c| {
            operate(
                c,
                |a, b| Some(a.wrapping_sub(b)),
                |a, b| Some(a - b),
                |a, b, c| add_decimals(a, b, c, i256::checked_sub),
            )
        }),
        g("multiply", "aa", multiply_type, |c| {
            operate(
                c,
                |a, b| Some(a.wrapping_mul(b)),
                |a, b| Some(a * b),
                |a, b, c| {
                    let product = at_scale(a, scale_of(a)).zip(at_scale(b, scale_of(b)));
                    checked(product.and_then(|(a, b)| a.checked_mul(b)), scale_of(a) + scale_of(b), c)
                },
            )
        }),
        g("divide", "aa", divide_type, |c| {
            operate(c, |_, _| None, |a, b| not_zero(a, b, |a, b| a / b), divide_decimals)
        }),
        g("mod fmod", "aa", modulo_type, |c| {
            operate(
                c,
                |a, b| if b == 0 { None } else { Some(a.wrapping_rem(b)) },
                |a, b| not_zero(a, b, |a, b| a % b),
                modulo_decimals,
            )
        }),
        g("pmod", "aa", modulo_type, |c| {
            operate(
                c,
                |a, b| if b == 0 { None } else { Some(a.wrapping_rem(b).wrapping_add(b).wrapping_rem(b)) },
                |a, b| not_zero(a, b, |a, b| (a % b + b) % b),
                modulo_decimals,
            )
        }),
        g("int_divide", "aa", int_divide_type, |c| {
            operate(
                c,
                |a, b| if b == 0 { None } else { Some(a.wrapping_div(b)) },
                |a, b| not_zero(a, b, |a, b| (a / b).trunc()),
                |_, _, _| null(),
            )
        }),
        g("negate negative", "a", negate_type, negate),
        g("bitand", "aa", bit_type, |c| bits(c, |a, b| a & b)),
        g("bitor", "aa", bit_type, |c| bits(c, |a, b| a | b)),
        g("bitxor", "aa", bit_type, |c| bits(c, |a, b| a ^ b)),
        g("bitnot", "a", bit_type, |c| match number(&c.args[0]) {
            Value::Int(v) => Ok(wrap(!v, c.ret)),
            _ => null(),
        }),
        f("bit_shift_left", "ii", DorisType::BigInt, |c| {
            Ok(Value::Int(if (0..64).contains(&c.i(1)) { i128::from(c.i(0) << c.i(1)) } else { 0 }))
        }),
        f("bit_shift_right", "ii", DorisType::BigInt, |c| {
            // The sign does not fill up.
            Ok(Value::Int(if (0..64).contains(&c.i(1)) { i128::from((c.i(0) as u64 >> c.i(1)) as i64) } else { 0 }))
        }),
    ]
}
