//! Functions of numbers.

use super::row::{Call, Def, Outcome, Types, f, float, g, int, null, number_or_null, text};
use crate::types::{DorisType, Value, rescale, ten_to};

/// A random number in [0, 1): the process's hash seeds and a counter, mixed.
fn random() -> f64 {
    use std::hash::{BuildHasher, RandomState};
    (RandomState::new().hash_one(0_u8) >> 11) as f64 / (1_u64 << 53) as f64
}

fn whole_literal(t: &Types<'_>, i: usize) -> i64 {
    match t.literals.get(i) {
        Some(Some(Value::Int(v))) => *v as i64,
        _ => 0,
    }
}

/// Decimals keep their digits and get the scale that is asked for; the rest is DOUBLE.
fn rounded_type(t: &Types<'_>) -> Result<DorisType, String> {
    Ok(match &t.args[0] {
        DorisType::Decimal { precision, scale } => {
            let digits = if t.args.len() < 2 {
                0
            } else if t.literals.get(1).is_some_and(Option::is_some) {
                whole_literal(t, 1).clamp(0, i64::from(*scale)) as u8
            } else {
                *scale
            };
            let whole = precision - scale;
            DorisType::Decimal { precision: (whole + digits + u8::from(digits < *scale)).min(76), scale: digits }
        }
        _ => DorisType::Double,
    })
}

#[derive(Clone, Copy)]
enum Rounding {
    Half,
    HalfEven,
    Down,
    Up,
    Zero,
}

/// Rounds at a digit after the point, or before it when negative.
fn round(c: &Call<'_>, how: Rounding) -> Outcome {
    let digits = if c.len() > 1 { c.i(1) } else { 0 };
    if let Value::Decimal(value, scale) = &c.args[0] {
        let drop = i64::from(*scale) - digits;
        if drop <= 0 {
            return Ok(c.args[0].clone());
        }
        if drop > 76 {
            return Ok(Value::Decimal(arrow::datatypes::i256::ZERO, *scale));
        }
        let unit = ten_to(drop as u8);
        let zero = arrow::datatypes::i256::ZERO;
        let one = arrow::datatypes::i256::ONE;
        let remainder = value.wrapping_rem(unit);
        let quotient = value.wrapping_div(unit);
        let up = match how {
            Rounding::Zero => zero,
            Rounding::Down if remainder < zero => one.wrapping_neg(),
            Rounding::Up if remainder > zero => one,
            Rounding::Down | Rounding::Up => zero,
            Rounding::Half | Rounding::HalfEven => {
                let twice = remainder.wrapping_abs().wrapping_mul(arrow::datatypes::i256::from_i128(2));
                let odd = quotient.wrapping_rem(arrow::datatypes::i256::from_i128(2)) != zero;
                let away = twice > unit || (twice == unit && (matches!(how, Rounding::Half) || odd));
                match (away, *value < zero) {
                    (false, _) => zero,
                    (true, false) => one,
                    (true, true) => one.wrapping_neg(),
                }
            }
        };
        let rounded = quotient.wrapping_add(up).wrapping_mul(unit);
        let DorisType::Decimal { scale: to, .. } = c.ret else { return null() };
        return Ok(rescale(rounded, *scale, *to).map_or(Value::Null, |v| Value::Decimal(v, *to)));
    }
    let value = c.f(0);
    let unit = 10_f64.powi(digits.unsigned_abs().min(400) as i32);
    let scaled = if digits >= 0 { value * unit } else { value / unit };
    if !scaled.is_finite() {
        return float(value);
    }
    let rounded = match how {
        Rounding::Half => scaled.round(),
        Rounding::HalfEven => scaled.round_ties_even(),
        Rounding::Down => scaled.floor(),
        Rounding::Up => scaled.ceil(),
        Rounding::Zero => scaled.trunc(),
    };
    float(if digits >= 0 { rounded / unit } else { rounded * unit })
}

fn abs_type(t: &Types<'_>) -> Result<DorisType, String> {
    Ok(match &t.args[0] {
        ty @ (DorisType::Decimal { .. } | DorisType::Float) => ty.clone(),
        ty => match ty.integer_rank() {
            Some(rank) => DorisType::integer_of_rank((rank + 1).min(4)),
            None => DorisType::Double,
        },
    })
}

fn abs(c: &Call<'_>) -> Outcome {
    Ok(match &c.args[0] {
        Value::Int(v) => Value::Int(v.wrapping_abs()),
        Value::Decimal(v, scale) => Value::Decimal(v.wrapping_abs(), *scale),
        other => match (other.as_f64(), other) {
            (Some(v), _) => Value::Float(v.abs()),
            (None, Value::Text(own)) => own.trim().parse::<f64>().map_or(Value::Null, |v| Value::Float(v.abs())),
            _ => Value::Null,
        },
    })
}

fn common(t: &Types<'_>) -> Result<DorisType, String> {
    DorisType::common_of(t.args, 76).ok_or_else(|| "greatest and least need values of one type".to_owned())
}

/// A number in another base, two to thirty-six.
fn conv(own: &str, from: i64, to: i64) -> Option<String> {
    if !(2..=36).contains(&from.abs()) || !(2..=36).contains(&to.abs()) {
        return None;
    }
    let own = own.trim();
    let (negative, body) = own.strip_prefix('-').map_or((false, own), |rest| (true, rest));
    let digits: String = body.chars().take_while(|ch| ch.is_digit(from.unsigned_abs() as u32)).collect();
    let mut value = u64::from_str_radix(&digits, from.unsigned_abs() as u32).unwrap_or(if digits.is_empty() {
        0
    } else {
        u64::MAX
    });
    if negative {
        value = value.wrapping_neg();
    }
    let minus = to < 0 && (value as i64) < 0;
    let mut rest = if minus { (value as i64).unsigned_abs() } else { value };
    let base = to.unsigned_abs();
    let mut out = Vec::new();
    loop {
        out.push(char::from_digit((rest % base) as u32, base as u32)?.to_ascii_uppercase());
        rest /= base;
        if rest == 0 {
            break;
        }
    }
    if minus {
        out.push('-');
    }
    Some(out.into_iter().rev().collect())
}

pub(crate) fn defs() -> Vec<Def> {
    use DorisType::{BigInt, Double, String as Text, TinyInt};
    vec![
        g("abs", "a", abs_type, abs),
        g("ceil ceiling dceil", "ai?", rounded_type, |c| round(c, Rounding::Up)),
        g("floor dfloor", "ai?", rounded_type, |c| round(c, Rounding::Down)),
        g("round dround", "ai?", rounded_type, |c| round(c, Rounding::Half)),
        g("round_bankers", "ai?", rounded_type, |c| round(c, Rounding::HalfEven)),
        g("truncate", "ai?", rounded_type, |c| round(c, Rounding::Zero)),
        f("sqrt dsqrt", "f", Double, |c| number_or_null(c.f(0).sqrt())),
        f("cbrt", "f", Double, |c| float(c.f(0).cbrt())),
        f("exp dexp", "f", Double, |c| float(c.f(0).exp())),
        f("ln dlog1", "f", Double, |c| if c.f(0) <= 0.0 { null() } else { float(c.f(0).ln()) }),
        f("log", "ff?", Double, |c| {
            // One argument: the natural logarithm; two: base, then number.
            let (base, value) = if c.len() > 1 { (c.f(0), c.f(1)) } else { (std::f64::consts::E, c.f(0)) };
            if base <= 0.0 || value <= 0.0 || (base - 1.0).abs() < 1e-9 {
                return null();
            }
            float(if c.len() > 1 { value.ln() / base.ln() } else { value.ln() })
        }),
        f("log10 dlog10", "f", Double, |c| if c.f(0) <= 0.0 { null() } else { float(c.f(0).log10()) }),
        f("log2", "f", Double, |c| if c.f(0) <= 0.0 { null() } else { float(c.f(0).log2()) }),
        f("pow power dpow fpow", "ff", Double, |c| float(c.f(0).powf(c.f(1)))),
        f("sign", "f", TinyInt, |c| {
            int(if c.f(0) > 0.0 {
                1_i8
            } else if c.f(0) < 0.0 {
                -1
            } else {
                0
            })
        }),
        f("sin", "f", Double, |c| float(c.f(0).sin())),
        f("cos", "f", Double, |c| float(c.f(0).cos())),
        f("tan", "f", Double, |c| float(c.f(0).tan())),
        f("cot", "f", Double, |c| float(1.0 / c.f(0).tan())),
        f("asin", "f", Double, |c| number_or_null(c.f(0).asin())),
        f("acos", "f", Double, |c| number_or_null(c.f(0).acos())),
        f("atan", "f", Double, |c| float(c.f(0).atan())),
        f("atan2", "ff", Double, |c| float(c.f(0).atan2(c.f(1)))),
        f("sinh", "f", Double, |c| float(c.f(0).sinh())),
        f("cosh", "f", Double, |c| float(c.f(0).cosh())),
        f("tanh", "f", Double, |c| float(c.f(0).tanh())),
        f("radians", "f", Double, |c| float(c.f(0).to_radians())),
        f("degrees", "f", Double, |c| float(c.f(0).to_degrees())),
        f("pi", "", Double, |_| float(std::f64::consts::PI)),
        f("e", "", Double, |_| float(std::f64::consts::E)),
        f("random rand", "i?i?", Double, |c| {
            if c.len() == 2 {
                return float((c.i(0) as f64 + random() * (c.i(1) - c.i(0)) as f64).floor());
            }
            float(random())
        })
        .volatile(),
        g("greatest", "c+", common, |c| Ok(c.args.iter().max().cloned().unwrap_or(Value::Null))),
        g("least", "c+", common, |c| Ok(c.args.iter().min().cloned().unwrap_or(Value::Null))),
        f("bin", "i", Text, |c| text(format!("{:b}", c.i(0)))),
        f("conv", "sii", Text, |c| super::row::text_or_null(conv(c.s(0), c.i(1), c.i(2)))),
        g("positive", "a", |t| Ok(t.args[0].clone()), |c| Ok(c.args[0].clone())),
        f("bit_count", "i", TinyInt, |c| int(c.i(0).count_ones())),
        f("isnan", "f", DorisType::Boolean, |c| super::row::truth(c.f(0).is_nan())),
        f("isinf", "f", DorisType::Boolean, |c| super::row::truth(c.f(0).is_infinite())),
        f("width_bucket", "fffi", BigInt, |c| {
            let (value, low, high, buckets) = (c.f(0), c.f(1), c.f(2), c.i(3));
            int(if value < low {
                0
            } else if value >= high {
                buckets + 1
            } else {
                ((value - low) / ((high - low) / buckets as f64)).floor() as i64 + 1
            })
        }),
    ]
}
