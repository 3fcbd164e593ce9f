//! Functions of ARRAY, MAP and STRUCT values.

use super::row::{Call, Def, Outcome, Types, f, float, g, int, null, text, truth};
use crate::types::{DorisType, Nested, Value, parse_nested};

fn array_of(item: DorisType) -> DorisType {
    DorisType::Array(Box::new(item))
}

fn common(types: &[DorisType]) -> Result<DorisType, String> {
    DorisType::common_of(types, 76).ok_or_else(|| "items have no common type".to_owned())
}

/// The type of the items of an argument; NULL of a NULL.
fn item(t: &Types<'_>, i: usize) -> Result<DorisType, String> {
    match &t.args[i] {
        DorisType::Array(item) => Ok((**item).clone()),
        DorisType::Null => Ok(DorisType::Null),
        other => Err(format!("an ARRAY is expected, not {other}")),
    }
}

fn same(t: &Types<'_>) -> Result<DorisType, String> {
    item(t, 0).map(array_of)
}

/// The type of items of all array arguments together.
fn merged(t: &Types<'_>) -> Result<DorisType, String> {
    common(t.args)
}

fn map_parts(ty: &DorisType) -> Result<(DorisType, DorisType), String> {
    match ty {
        DorisType::Map(key, value) => Ok(((**key).clone(), (**value).clone())),
        DorisType::Null => Ok((DorisType::Null, DorisType::Null)),
        other => Err(format!("a MAP is expected, not {other}")),
    }
}

fn map_type(t: &Types<'_>) -> Result<DorisType, String> {
    if t.args.len() % 2 == 1 {
        return Err("map can't be odd parameters, need even parameters".to_owned());
    }
    let of = |skip: usize| common(&t.args.iter().skip(skip).step_by(2).cloned().collect::<Vec<_>>());
    Ok(DorisType::Map(Box::new(of(0)?), Box::new(of(1)?)))
}

fn named_struct_type(t: &Types<'_>) -> Result<DorisType, String> {
    if t.args.len() % 2 == 1 || t.args.is_empty() {
        return Err("named_struct can't be odd parameters, need even parameters".to_owned());
    }
    let mut fields = Vec::new();
    for i in (0..t.args.len()).step_by(2) {
        let Some(Some(Value::Text(name))) = t.literals.get(i) else {
            return Err("named_struct only allows constant string parameter in odd position".to_owned());
        };
        fields.push((name.clone(), t.args[i + 1].clone()));
    }
    Ok(DorisType::Struct(fields))
}

fn struct_position(t: &Types<'_>) -> Result<usize, String> {
    let DorisType::Struct(fields) = &t.args[0] else { return Err(format!("a STRUCT is expected, not {}", t.args[0])) };
    match t.literals.get(1) {
        Some(Some(Value::Text(name))) => fields.iter().position(|(field, _)| field.eq_ignore_ascii_case(name)),
        Some(Some(Value::Int(at))) => usize::try_from(at - 1).ok().filter(|at| *at < fields.len()),
        _ => return Err("struct_element only allows constant int or string second parameter".to_owned()),
    }
    .ok_or_else(|| "the specified field name was not found in the struct".to_owned())
}

fn element_type(t: &Types<'_>) -> Result<DorisType, String> {
    match &t.args[0] {
        DorisType::Array(item) => Ok((**item).clone()),
        DorisType::Map(_, value) => Ok((**value).clone()),
        ty @ (DorisType::Variant | DorisType::Json) => Ok(ty.clone()),
        DorisType::Struct(fields) => struct_position(t).map(|at| fields[at].1.clone()),
        DorisType::Null => Ok(DorisType::Null),
        other => Err(format!("an element of {other} cannot be taken")),
    }
}

fn element(c: &Call<'_>) -> Outcome {
    match (&c.args[0], &c.args[1]) {
        (Value::List(items), Value::Int(at)) => {
            let at = if *at < 0 { items.len() as i128 + at } else { at - 1 };
            Ok(usize::try_from(at).ok().and_then(|at| items.get(at)).cloned().unwrap_or(Value::Null))
        }
        (Value::Map(entries), key) => {
            let found = entries.iter().rev().find(|(k, _)| k == key);
            Ok(found.map_or(Value::Null, |(_, value)| value.clone()))
        }
        (Value::Struct(items), Value::Int(at)) => {
            Ok(usize::try_from(at - 1).ok().and_then(|at| items.get(at)).cloned().unwrap_or(Value::Null))
        }
        (Value::Struct(items), Value::Text(name)) => {
            let DorisType::Struct(fields) = &c.types[0] else { return null() };
            let at = fields.iter().position(|(field, _)| field.eq_ignore_ascii_case(name));
            Ok(at.and_then(|at| items.get(at)).cloned().unwrap_or(Value::Null))
        }
        (Value::Text(json), key) => {
            let found = match (parse_nested(json), key) {
                (Some(Nested::Entries(entries)), Value::Text(name)) => {
                    entries.into_iter().find(|(k, _)| k.text() == *name).map(|(_, value)| value)
                }
                (Some(Nested::List(items)), Value::Int(at)) => {
                    let at = if *at < 0 { items.len() as i128 + at } else { at - 1 };
                    usize::try_from(at).ok().and_then(|at| items.get(at)).cloned()
                }
                _ => None,
            };
            Ok(found.map_or(Value::Null, |value| Value::Text(value.json())))
        }
        _ => null(),
    }
}

fn distinct(items: impl IntoIterator<Item = Value>) -> Vec<Value> {
    let mut seen = std::collections::BTreeSet::new();
    items.into_iter().filter(|item| seen.insert(item.clone())).collect()
}

fn list(items: Vec<Value>) -> Outcome {
    Ok(Value::List(items))
}

fn slice(items: &[Value], from: i64, length: Option<i64>) -> Vec<Value> {
    let count = items.len() as i64;
    let start = match from {
        0 => return Vec::new(),
        n if n > 0 => n - 1,
        n => count + n,
    };
    if start < 0 || start >= count {
        return Vec::new();
    }
    let end = match length {
        None => count,
        Some(n) if n < 0 => count + n,
        Some(n) => (start + n).min(count),
    };
    items.get(start as usize..end.max(start) as usize).map(<[Value]>::to_vec).unwrap_or_default()
}

fn sum_type(t: &Types<'_>) -> Result<DorisType, String> {
    Ok(match item(t, 0)? {
        DorisType::Decimal { scale, .. } => DorisType::Decimal { precision: 38, scale },
        DorisType::LargeInt => DorisType::LargeInt,
        ty if ty.is_integer() || ty == DorisType::Boolean => DorisType::BigInt,
        _ => DorisType::Double,
    })
}

fn numbers(c: &Call<'_>) -> Vec<f64> {
    c.list(0).iter().filter_map(Value::as_f64).collect()
}

fn sum(c: &Call<'_>) -> Outcome {
    let mut total: Option<Value> = None;
    for item in c.list(0).iter().filter(|item| !item.is_null()) {
        total = Some(match (total, item) {
            (None, item) => item.clone(),
            (Some(Value::Int(a)), Value::Int(b)) => Value::Int(a.wrapping_add(*b)),
            (Some(Value::Decimal(a, s)), Value::Decimal(b, _)) => Value::Decimal(a.wrapping_add(*b), s),
            (Some(a), b) => Value::Float(a.as_f64().unwrap_or(0.0) + b.as_f64().unwrap_or(0.0)),
        });
    }
    Ok(total.unwrap_or(Value::Null))
}

pub(crate) fn defs() -> Vec<Def> {
    use DorisType::{BigInt, Boolean, Double, String as Text};
    let mut defs = vec![
        g("array", "c+", |t| common(t.args).map(array_of), |c| list(c.args.to_vec())).with_nulls(),
        g("empty_array", "", |_| Ok(array_of(DorisType::Null)), |_| list(Vec::new())),
        g(
            "empty_map",
            "",
            |_| Ok(DorisType::Map(Box::new(DorisType::Null), Box::new(DorisType::Null))),
            |_| Ok(Value::Map(Vec::new())),
        ),
        g("map", "a+", map_type, |c| {
            let (keys, values) = (c.args.iter().step_by(2), c.args.iter().skip(1).step_by(2));
            Ok(Value::Map(keys.cloned().zip(values.cloned()).collect()))
        })
        .with_nulls(),
        g("named_struct", "a+", named_struct_type, |c| {
            Ok(Value::Struct(c.args.iter().skip(1).step_by(2).cloned().collect()))
        })
        .with_nulls(),
        g(
            "struct",
            "a+",
            |t| {
                Ok(DorisType::Struct(
                    t.args.iter().enumerate().map(|(i, ty)| (format!("col{}", i + 1), ty.clone())).collect(),
                ))
            },
            |c| Ok(Value::Struct(c.args.to_vec())),
        )
        .with_nulls(),
        g("element_at", "ap", element_type, element),
        g("struct_element", "aa", element_type, element),
        g("array_sort sort_array", "a", same, |c| {
            let mut items = c.list(0).to_vec();
            items.sort();
            list(items)
        }),
        g("array_reverse_sort", "a", same, |c| {
            let mut items = c.list(0).to_vec();
            items.sort_by(|a, b| b.cmp(a));
            list(items)
        }),
        g("array_distinct", "a", same, |c| list(distinct(c.list(0).iter().cloned()))),
        g("array_compact", "a", same, |c| {
            let mut items = c.list(0).to_vec();
            items.dedup();
            list(items)
        }),
        g("array_remove", "ae", same, |c| list(c.list(0).iter().filter(|item| **item != c.args[1]).cloned().collect())),
        g("array_pushback", "ae", same, |c| {
            if c.args[0].is_null() { null() } else { list([c.list(0), &c.args[1..2]].concat()) }
        })
        .with_nulls(),
        g("array_pushfront", "ae", same, |c| {
            if c.args[0].is_null() { null() } else { list([&c.args[1..2], c.list(0)].concat()) }
        })
        .with_nulls(),
        g("array_popback", "a", same, |c| list(slice(c.list(0), 1, Some(c.list(0).len() as i64 - 1)))),
        g("array_popfront", "a", same, |c| list(slice(c.list(0), 2, None))),
        g("array_slice", "aii?", same, |c| list(slice(c.list(0), c.i(1), (c.len() > 2).then(|| c.i(2))))),
        g("array_concat", "c+", merged, |c| list((0..c.len()).flat_map(|i| c.list(i).iter().cloned()).collect())),
        g("array_union", "c+", merged, |c| list(distinct((0..c.len()).flat_map(|i| c.list(i).iter().cloned())))),
        g("array_intersect", "c+", merged, |c| {
            let in_all = |item: &Value| (1..c.len()).all(|i| c.list(i).contains(item));
            list(distinct(c.list(0).iter().filter(|item| in_all(item)).cloned()))
        }),
        g("array_except", "cc", merged, |c| {
            list(distinct(c.list(0).iter().filter(|item| !c.list(1).contains(item)).cloned()))
        }),
        f("arrays_overlap", "cc", Boolean, |c| {
            truth(c.list(0).iter().any(|item| !item.is_null() && c.list(1).contains(item)))
        }),
        f("array_contains", "ae", Boolean, |c| {
            if c.args[0].is_null() { null() } else { truth(c.list(0).contains(&c.args[1])) }
        })
        .with_nulls(),
        f("array_position", "ae", BigInt, |c| {
            if c.args[0].is_null() {
                return null();
            }
            int(c.list(0).iter().position(|item| *item == c.args[1]).map_or(0, |at| at as i64 + 1))
        })
        .with_nulls(),
        f("countequal", "ae", BigInt, |c| int(c.list(0).iter().filter(|item| **item == c.args[1]).count() as i64)),
        f("array_size cardinality size", "a", BigInt, |c| {
            int(match &c.args[0] {
                Value::List(items) => items.len() as i64,
                Value::Map(entries) => entries.len() as i64,
                other => return Err(format!("size of {other:?} cannot be taken")),
            })
        }),
        f("array_join", "ass?", Text, |c| {
            let DorisType::Array(of) = &c.types[0] else { return null() };
            let of = (**of).clone();
            let part = |item: &Value| match item.text(&of) {
                None if c.len() > 2 => Some(c.s(2).to_owned()),
                own => own,
            };
            text(c.list(0).iter().filter_map(part).collect::<Vec<_>>().join(c.s(1)))
        }),
        g(
            "array_min",
            "a",
            |t| item(t, 0),
            |c| Ok(c.list(0).iter().filter(|item| !item.is_null()).min().cloned().unwrap_or(Value::Null)),
        ),
        g(
            "array_max",
            "a",
            |t| item(t, 0),
            |c| Ok(c.list(0).iter().filter(|item| !item.is_null()).max().cloned().unwrap_or(Value::Null)),
        ),
        g("array_sum", "a", sum_type, sum),
        f("array_avg", "a", Double, |c| {
            let values = numbers(c);
            if values.is_empty() { null() } else { float(values.iter().sum::<f64>() / values.len() as f64) }
        }),
        g(
            "array_with_constant",
            "ia",
            |t| Ok(array_of(t.args[1].clone())),
            |c| {
                if !(0..=1_000_000).contains(&c.i(0)) {
                    return Err("Array size should in range(0, 1000000) in function: array_with_constant".to_owned());
                }
                list(vec![c.args[1].clone(); c.i(0) as usize])
            },
        )
        .with_nulls(),
        g(
            "array_repeat",
            "ai",
            |t| Ok(array_of(t.args[0].clone())),
            |c| list(vec![c.args[0].clone(); c.i(1).clamp(0, 1_000_000) as usize]),
        )
        .with_nulls(),
        f("array_range sequence", "ii?i?", array_of(DorisType::Int), |c| {
            let (from, to) = if c.len() > 1 { (c.i(0), c.i(1)) } else { (0, c.i(0)) };
            let step = if c.len() > 2 { c.i(2) } else { 1 };
            if step <= 0 || from < 0 || to < 0 || (to - from) / step > 1_000_000 {
                return null();
            }
            list((from..to).step_by(step as usize).map(|v| Value::Int(i128::from(v))).collect())
        }),
        g(
            "map_keys",
            "a",
            |t| map_parts(&t.args[0]).map(|(key, _)| array_of(key)),
            |c| list(c.entries(0).iter().map(|(key, _)| key.clone()).collect()),
        ),
        g(
            "map_values",
            "a",
            |t| map_parts(&t.args[0]).map(|(_, value)| array_of(value)),
            |c| list(c.entries(0).iter().map(|(_, value)| value.clone()).collect()),
        ),
        f("map_size", "a", BigInt, |c| int(c.entries(0).len() as i64)),
        f("map_contains_key", "ae", Boolean, |c| truth(c.entries(0).iter().any(|(key, _)| *key == c.args[1]))),
        f("map_contains_value", "aa", Boolean, |c| truth(c.entries(0).iter().any(|(_, value)| *value == c.args[1]))),
    ];
    defs.push(g("array_reverse", "a", same, |c| list(c.list(0).iter().rev().cloned().collect())));
    defs
}
