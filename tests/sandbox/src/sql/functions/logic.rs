//! Functions of truth values and NULL, and IN lists.

use std::fmt::Write;

use super::row::{Call, Def, Outcome, Types, f, g, null, text, truth};
use crate::types::{DorisType, Value};

fn common(t: &Types<'_>) -> Result<DorisType, String> {
    DorisType::common_of(t.args, 76).ok_or_else(|| {
        let types: Vec<String> = t.args.iter().map(ToString::to_string).collect();
        format!("cannot find a common type of {}", types.join(", "))
    })
}

/// Random bits as a version 4 UUID.
fn uuid() -> String {
    use std::hash::{BuildHasher, RandomState};
    let (high, low) = (RandomState::new().hash_one(0_u8), RandomState::new().hash_one(1_u8));
    let bits = (u128::from(high) << 64 | u128::from(low)) & !(0xf << 76) & !(0x3 << 62) | (0x4 << 76) | (0x2 << 62);
    let digits = format!("{bits:032x}");
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        let dash = if matches!(i, 8 | 12 | 16 | 20) { "-" } else { "" };
        let _ = write!(out, "{dash}{digit}");
    }
    out
}

/// Whether the first argument equals one of the others; NULL when only a NULL keeps it from being false.
fn is_in(c: &Call<'_>) -> Outcome {
    let (value, list) = (&c.args[0], &c.args[1..]);
    if value.is_null() {
        return null();
    }
    if list.iter().any(|item| !item.is_null() && item == value) {
        return truth(true);
    }
    if list.iter().any(Value::is_null) { null() } else { truth(false) }
}

pub(crate) fn defs() -> Vec<Def> {
    use DorisType::{Boolean, String as Text};
    vec![
        g("coalesce", "c+", common, |c| {
            Ok(c.args.iter().find(|value| !value.is_null()).cloned().unwrap_or(Value::Null))
        })
        .with_nulls(),
        g("ifnull nvl", "cc", common, |c| Ok(if c.args[0].is_null() { c.args[1].clone() } else { c.args[0].clone() }))
            .with_nulls(),
        g(
            "nullif",
            "cc",
            |t| Ok(t.args[0].clone()),
            |c| {
                let equal = !c.args[0].is_null() && !c.args[1].is_null() && c.args[0] == c.args[1];
                Ok(if equal { Value::Null } else { c.args[0].clone() })
            },
        )
        .with_nulls(),
        f("in", "kk+", Boolean, is_in).with_nulls(),
        f("equal_values", "cc", Boolean, |c| truth(c.args[0] == c.args[1])),
        f("same_values", "cc", Boolean, |c| truth(c.args[0] == c.args[1])).with_nulls(),
        f("truth", "b", Boolean, |c| Ok(c.args[0].clone())),
        f("xor", "bb", Boolean, |c| truth(c.b(0) != c.b(1))),
        f("isnull", "a", Boolean, |c| truth(c.args[0].is_null())).with_nulls(),
        g(
            "key",
            "a",
            |t| Ok(t.args[0].clone()),
            |c| {
                Ok(match &c.args[0] {
                    Value::Float(v) if v.is_nan() => Value::Float(f64::NAN),
                    Value::Float(v) => Value::Float(v + 0.0),
                    other => other.clone(),
                })
            },
        ),
        f("count_key", "a+", Text, |c| {
            // Lengths keep the values of one row apart.
            let mut out = String::new();
            for (value, ty) in c.args.iter().zip(c.types) {
                let own = value.text(ty).unwrap_or_default();
                let _ = write!(out, "{}:{own}", own.len());
            }
            text(out)
        }),
        f("uuid", "", Text, |_| text(uuid())).volatile(),
        g("non_nullable", "a", |t| Ok(t.args[0].clone()), |c| Ok(c.args[0].clone())),
    ]
}
