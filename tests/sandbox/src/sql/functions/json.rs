//! Functions of JSON and VARIANT values. Objects keep the order of their members.

use super::row::{Call, Def, Outcome, Types, f, g, int, null, text, text_or_null, truth};
use crate::types::{DorisType, Nested, Value, canonical_json, parse_nested};

/// One step of a path.
enum Step {
    Member(String),
    Item(i64),
    Last,
}

/// `$.a."b c"[0][last]`; `None` when it is not a path.
fn steps(path: &str) -> Option<Vec<Step>> {
    let mut rest = path.trim().strip_prefix('$')?;
    let mut out = Vec::new();
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix('.') {
            let (name, after) = match after.strip_prefix('"') {
                Some(quoted) => quoted.split_once('"')?,
                None => after.split_at(after.find(['.', '[']).unwrap_or(after.len())),
            };
            if name.is_empty() {
                return None;
            }
            out.push(Step::Member(name.to_owned()));
            rest = after;
        } else {
            let (index, after) = rest.strip_prefix('[')?.split_once(']')?;
            out.push(match index.trim() {
                "last" => Step::Last,
                index => Step::Item(index.parse().ok()?),
            });
            rest = after;
        }
    }
    Some(out)
}

fn walk<'a>(value: &'a Nested, steps: &[Step]) -> Option<&'a Nested> {
    steps.iter().try_fold(value, |value, step| match (value, step) {
        (Nested::Entries(entries), Step::Member(name)) => {
            entries.iter().find(|(key, _)| key.text() == *name).map(|(_, value)| value)
        }
        (Nested::List(items), Step::Item(at)) => {
            let at = if *at < 0 { items.len() as i64 + at } else { *at };
            usize::try_from(at).ok().and_then(|at| items.get(at))
        }
        (Nested::List(items), Step::Last) => items.last(),
        (scalar, Step::Item(0) | Step::Last) => Some(scalar),
        _ => None,
    })
}

fn read(own: &str) -> Option<Nested> {
    canonical_json(own).and_then(|json| parse_nested(&json))
}

/// The value at the path in the second argument; `None` when there is none.
fn at_path(c: &Call<'_>) -> Result<Option<Nested>, String> {
    let path = if c.len() > 1 { c.s(1) } else { "$" };
    let path = if path.starts_with('$') { path.to_owned() } else { format!("$.{path}") };
    let steps = steps(&path)
        .ok_or_else(|| format!("[INVALID_ARGUMENT]Json path error: Invalid Json Path for value: {path}"))?;
    Ok(read(c.s(0)).and_then(|json| walk(&json, &steps).cloned()))
}

fn json(value: Option<Nested>) -> Outcome {
    text_or_null(value.map(|value| value.json()))
}

fn number(value: Option<Nested>, whole: bool) -> Outcome {
    Ok(match value {
        Some(Nested::Number(own)) => match (own.parse::<i128>(), own.parse::<f64>()) {
            (Ok(v), _) if whole => Value::Int(v),
            (_, Ok(v)) if whole => Value::Int(v as i128),
            (_, Ok(v)) => Value::Float(v),
            _ => Value::Null,
        },
        Some(Nested::Bool(flag)) if whole => Value::Int(i128::from(flag)),
        _ => Value::Null,
    })
}

/// An argument of `json_object` or `json_array` as JSON.
pub(super) fn element(value: &Value, ty: &DorisType) -> Nested {
    let own = || value.text(ty).unwrap_or_default();
    match (value, ty) {
        (Value::Null, _) => Nested::Null,
        (Value::Bool(flag), _) => Nested::Bool(*flag),
        (Value::Text(json), DorisType::Json | DorisType::Variant) => parse_nested(json).unwrap_or(Nested::Null),
        (Value::Int(_) | Value::Float(_) | Value::Decimal(..), ty) if *ty != DorisType::Ipv4 => Nested::Number(own()),
        (Value::List(items), DorisType::Array(item)) => Nested::List(items.iter().map(|v| element(v, item)).collect()),
        (Value::Map(entries), DorisType::Map(key, of)) => Nested::Entries(
            entries.iter().map(|(k, v)| (Nested::Text(k.text(key).unwrap_or_default()), element(v, of))).collect(),
        ),
        (Value::Struct(items), DorisType::Struct(fields)) => Nested::Entries(
            items.iter().zip(fields).map(|(v, (name, ty))| (Nested::Text(name.clone()), element(v, ty))).collect(),
        ),
        _ => Nested::Text(own()),
    }
}

fn kind(value: &Nested) -> &'static str {
    match value {
        Nested::Null => "null",
        Nested::Bool(_) => "bool",
        Nested::Number(own) if own.contains(['.', 'e', 'E']) => "double",
        Nested::Number(own) => match own.parse::<i128>() {
            Ok(v) if i32::try_from(v).is_ok() => "int",
            Ok(v) if i64::try_from(v).is_ok() => "bigint",
            _ => "largeint",
        },
        Nested::Text(_) => "string",
        Nested::List(_) => "array",
        Nested::Entries(_) => "object",
    }
}

fn contains(all: &Nested, part: &Nested) -> bool {
    match (all, part) {
        (Nested::List(items), Nested::List(wanted)) => wanted.iter().all(|w| items.iter().any(|i| contains(i, w))),
        (Nested::List(items), part) => items.iter().any(|item| contains(item, part)),
        (Nested::Entries(entries), Nested::Entries(wanted)) => {
            wanted.iter().all(|(key, value)| entries.iter().any(|(k, v)| k == key && contains(v, value)))
        }
        (all, part) => all == part,
    }
}

/// A path of `json_extract` whose member names may stand without `$.`, over JSON and VARIANT alike.
fn element_type(t: &Types<'_>) -> Result<DorisType, String> {
    Ok(if t.args[0] == DorisType::Variant { DorisType::Variant } else { DorisType::Json })
}

pub(crate) fn defs() -> Vec<Def> {
    use DorisType::{BigInt, Boolean, Double, Int, Json, LargeInt, String as Text};
    vec![
        g("json_extract jsonb_extract", "ss+", element_type, |c| {
            if c.len() == 2 {
                return json(at_path(c)?);
            }
            let own = read(c.s(0));
            let mut found = Vec::new();
            for i in 1..c.len() {
                let steps = steps(c.s(i)).ok_or_else(|| {
                    format!("[INVALID_ARGUMENT]Json path error: Invalid Json Path for value: {}", c.s(i))
                })?;
                found.extend(own.as_ref().and_then(|own| walk(own, &steps)).cloned());
            }
            if found.is_empty() { null() } else { text(Nested::List(found).json()) }
        }),
        f("json_extract_string jsonb_extract_string get_json_string", "ss", Text, |c| {
            Ok(match at_path(c)? {
                Some(Nested::Null) | None => Value::Null,
                Some(value) => Value::Text(value.text()),
            })
        }),
        f("json_extract_int jsonb_extract_int get_json_int", "ss", Int, |c| number(at_path(c)?, true)),
        f("json_extract_bigint jsonb_extract_bigint get_json_bigint", "ss", BigInt, |c| number(at_path(c)?, true)),
        f("json_extract_largeint jsonb_extract_largeint", "ss", LargeInt, |c| number(at_path(c)?, true)),
        f("json_extract_double jsonb_extract_double get_json_double", "ss", Double, |c| number(at_path(c)?, false)),
        f("json_extract_bool jsonb_extract_bool get_json_bool", "ss", Boolean, |c| {
            Ok(match at_path(c)? {
                Some(Nested::Bool(flag)) => Value::Bool(flag),
                _ => Value::Null,
            })
        }),
        f("json_extract_isnull jsonb_extract_isnull json_isnull", "ss", Boolean, |c| {
            Ok(at_path(c)?.map_or(Value::Null, |value| Value::Bool(value == Nested::Null)))
        }),
        f("json_exists_path jsonb_exists_path", "ss", Boolean, |c| truth(at_path(c)?.is_some())),
        f("json_type jsonb_type", "ss?", Text, |c| text_or_null(at_path(c)?.map(|value| kind(&value).to_owned()))),
        f("json_length jsonb_length", "ss?", Int, |c| {
            Ok(at_path(c)?.map_or(Value::Null, |value| {
                Value::Int(match value {
                    Nested::List(items) => items.len() as i128,
                    Nested::Entries(entries) => entries.len() as i128,
                    _ => 1,
                })
            }))
        }),
        f("json_keys jsonb_keys", "ss?", DorisType::Array(Box::new(Text)), |c| {
            Ok(match at_path(c)? {
                Some(Nested::Entries(entries)) => {
                    Value::List(entries.iter().map(|(key, _)| Value::Text(key.text())).collect())
                }
                _ => Value::Null,
            })
        }),
        f("json_valid jsonb_valid", "s", Int, |c| int(canonical_json(c.s(0)).is_some())),
        f("json_parse jsonb_parse", "s", Json, |c| match canonical_json(c.s(0)) {
            Some(json) => text(json),
            None => Err(format!(
                "[INVALID_ARGUMENT]Parse json document failed at row 0, error: Invalid JSON text: {}",
                c.s(0)
            )),
        }),
        f("json_parse_error_to_null jsonb_parse_error_to_null try_json_parse", "s", Json, |c| {
            text_or_null(canonical_json(c.s(0)))
        }),
        f("json_quote", "s", Text, |c| text(Nested::Text(c.s(0).to_owned()).json())),
        f("json_unquote", "s", Text, |c| match read(c.s(0)) {
            Some(Nested::Text(own)) if c.s(0).trim().starts_with('"') => text(own),
            _ => text(c.s(0)),
        }),
        f("json_contains", "sss?", Boolean, |c| {
            let whole = if c.len() > 2 {
                steps(c.s(2)).and_then(|steps| read(c.s(0)).and_then(|own| walk(&own, &steps).cloned()))
            } else {
                read(c.s(0))
            };
            Ok(match whole.zip(read(c.s(1))) {
                Some((whole, part)) => Value::Bool(contains(&whole, &part)),
                None => Value::Null,
            })
        }),
        f("json_array", "a+", Json, |c| {
            text(Nested::List(c.args.iter().zip(c.types).map(|(v, ty)| element(v, ty)).collect()).json())
        })
        .with_nulls(),
        f("json_object", "a+", Json, |c| {
            if c.len() % 2 == 1 {
                return Err("json_object can't have odd parameters, need even parameters".to_owned());
            }
            let mut entries = Vec::new();
            for i in (0..c.len()).step_by(2) {
                let Some(key) = c.args[i].text(&c.types[i]) else {
                    return Err("json_object key can't be NULL".to_owned());
                };
                entries.push((Nested::Text(key), element(&c.args[i + 1], &c.types[i + 1])));
            }
            text(Nested::Entries(entries).json())
        })
        .with_nulls(),
        f("to_json", "a", Json, |c| text(element(&c.args[0], &c.types[0]).json())),
    ]
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    #[test]
    fn paths_find_members_and_items() {
        let own = read(r#"{"b":{"x y":[1,{"z":"t"}]},"a":null}"#).expect("json");
        for (path, found) in [
            ("$", Some(r#"{"b":{"x y":[1,{"z":"t"}]},"a":null}"#)),
            ("$.b.\"x y\"[1].z", Some("\"t\"")),
            ("$.b.\"x y\"[last]", Some("{\"z\":\"t\"}")),
            ("$.a", Some("null")),
            ("$.c", None),
        ] {
            let steps = steps(path).expect(path);
            assert_eq!(walk(&own, &steps).map(Nested::json).as_deref(), found, "{path}");
        }
        assert!(steps("a").is_none() && steps("$..a").is_none() && steps("$[x]").is_none());
    }
}
