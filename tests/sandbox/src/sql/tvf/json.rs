//! Rows inside a JSON document: `json_root`, `strip_outer_array`, `jsonpaths`.

use std::borrow::Cow;

use super::properties::JsonOptions;
use super::text::Stop;
use crate::load::{JsonScanner, JsonValue};

/// One step of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    Key(String),
    Index(usize),
}

/// `$.a.b[0]`
fn steps(path: &str) -> Result<Vec<Step>, String> {
    let invalid = || format!("Invalid json path: {path}");
    let mut rest = path.trim().strip_prefix('$').ok_or_else(invalid)?;
    let mut out = Vec::new();
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix('.') {
            let (key, after) = match after.strip_prefix('"') {
                Some(quoted) => quoted.split_once('"').ok_or_else(invalid)?,
                None => after.split_at(after.find(['.', '[']).unwrap_or(after.len())),
            };
            if key.is_empty() {
                return Err(invalid());
            }
            out.push(Step::Key(key.to_owned()));
            rest = after;
        } else if let Some(after) = rest.strip_prefix('[') {
            let (index, after) = after.split_once(']').ok_or_else(invalid)?;
            out.push(Step::Index(index.trim().parse().map_err(|_| invalid())?));
            rest = after;
        } else {
            return Err(invalid());
        }
    }
    Ok(out)
}

/// Column that a path fills: its last key.
pub(super) fn column_name(path: &str) -> Result<String, String> {
    let last = steps(path)?.into_iter().rev().find_map(|step| match step {
        Step::Key(key) => Some(key),
        Step::Index(_) => None,
    });
    last.ok_or_else(|| format!("Invalid json path: {path}"))
}

fn broken(error: &crate::load::JsonError) -> Stop {
    Stop::quality(format!("Parse json data for JsonDoc failed. {} at byte {}", error.what, error.at))
}

/// A value apart from its document.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Found {
    /// Text of a scalar; `None` is `null`.
    Scalar(Option<String>),
    /// An object or array, as written.
    Nested(String),
}

fn found(value: JsonValue<'_>) -> Found {
    match value {
        JsonValue::Nested(text) => Found::Nested(text.into_owned()),
        other => Found::Scalar(text(other).map(Cow::into_owned)),
    }
}

/// The value at the end of a path; `None` when the document has none there.
fn at_path(document: &str, steps: &[Step]) -> Result<Option<Found>, Stop> {
    let mut scanner = JsonScanner::new(document);
    let Some((step, rest)) = steps.split_first() else {
        return scanner.value().map(|value| Some(found(value))).map_err(|e| broken(&e));
    };
    let mut next = None;
    match step {
        Step::Key(wanted) if document.trim_start().starts_with('{') => scanner
            .object(|key, value| {
                if key == wanted.as_str() {
                    next = Some(found(value));
                }
            })
            .map_err(|e| broken(&e))?,
        Step::Index(wanted) if scanner.enter_array() => {
            let mut at = 0;
            while scanner.next_element(at == 0).map_err(|e| broken(&e))? {
                let value = scanner.value().map_err(|e| broken(&e))?;
                if at == *wanted {
                    next = Some(found(value));
                }
                at += 1;
            }
        }
        _ => {}
    }
    match next {
        Some(Found::Nested(inner)) if !rest.is_empty() => at_path(&inner, rest),
        Some(value) if rest.is_empty() => Ok(Some(value)),
        _ => Ok(None),
    }
}

/// Gives each row of a document to `row` until it answers false; whether more rows are wanted.
pub(super) fn rows(
    text: &str,
    options: &JsonOptions,
    mut row: impl FnMut(&str) -> Result<bool, Stop>,
) -> Result<bool, Stop> {
    let mut whole = JsonScanner::new(text);
    whole.value().map_err(|e| broken(&e))?;
    if !whole.at_end() {
        return Err(Stop::quality("Parse json data for JsonDoc failed. there is text behind the document"));
    }
    let document = match &options.root {
        None => text.trim().to_owned(),
        Some(root) => match at_path(text, &steps(root).map_err(Stop::quality)?)? {
            Some(Found::Nested(inner)) => inner,
            _ => return Err(Stop::quality("JSON Root not found.")),
        },
    };
    let mut scanner = JsonScanner::new(&document);
    if !options.strip_outer_array {
        if !document.starts_with('{') {
            return Err(Stop::quality("JSON data is array-object, `strip_outer_array` must be TRUE."));
        }
        return row(&document);
    }
    if !scanner.enter_array() {
        return Err(Stop::quality("JSON data is not an array-object, `strip_outer_array` must be FALSE."));
    }
    let mut first = true;
    while scanner.next_element(first).map_err(|e| broken(&e))? {
        first = false;
        let JsonValue::Nested(inner) = scanner.value().map_err(|e| broken(&e))? else {
            return Err(Stop::quality("Parse json data failed, an element of the array is no object"));
        };
        if !row(&inner)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Keys of a row.
pub(super) fn keys(row: &str) -> Result<Vec<String>, Stop> {
    let mut names: Vec<String> = Vec::new();
    JsonScanner::new(row)
        .object(|key, _| {
            if !names.iter().any(|name| *name == key) {
                names.push(key.into_owned());
            }
        })
        .map_err(|e| broken(&e))?;
    Ok(names)
}

/// Takes the columns out of rows, by name or by path.
pub(super) struct RowReader<'a> {
    names: &'a [String],
    paths: Vec<Vec<Step>>,
}

impl<'a> RowReader<'a> {
    pub(super) fn new(names: &'a [String], paths: &[String]) -> Result<Self, String> {
        Ok(Self { names, paths: paths.iter().map(|path| steps(path)).collect::<Result<_, _>>()? })
    }

    /// Texts of the columns; what is missing or `null` is NULL.
    pub(super) fn read<'t>(&self, row: &'t str) -> Result<Vec<Option<Cow<'t, str>>>, Stop> {
        if !self.paths.is_empty() {
            let text = |value: Found| match value {
                Found::Scalar(text) => text.map(Cow::Owned),
                Found::Nested(text) => Some(Cow::Owned(text)),
            };
            return self.paths.iter().map(|path| Ok(at_path(row, path)?.and_then(text))).collect();
        }
        let mut values = vec![None; self.names.len()];
        JsonScanner::new(row)
            .object(|key, value| {
                if let Some(i) = self.names.iter().position(|name| name.eq_ignore_ascii_case(&key)) {
                    values[i] = text(value);
                }
            })
            .map_err(|e| broken(&e))?;
        Ok(values)
    }
}

fn text(value: JsonValue<'_>) -> Option<Cow<'_, str>> {
    match value {
        JsonValue::Null => None,
        // Booleans read as STRING are numbers, as on the server.
        JsonValue::Literal("true") => Some(Cow::Borrowed("1")),
        JsonValue::Literal("false") => Some(Cow::Borrowed("0")),
        JsonValue::Literal(text) => Some(Cow::Borrowed(text)),
        JsonValue::Text(text) | JsonValue::Nested(text) => Some(text),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    #[test]
    fn paths_lead_into_objects_and_arrays() {
        let row = r#"{"a":{"b":[{"c":1.50},{"c":"x"}]},"d.e":2,"n":null,"t":true}"#;
        for (path, want) in [
            ("$.a.b[0].c", Some("1.50")),
            ("$.a.b[1].c", Some("x")),
            ("$.a.b[1]", Some(r#"{"c":"x"}"#)),
            ("$.a.b[2].c", None),
            ("$.\"d.e\"", Some("2")),
            ("$.n", None),
            ("$.t", Some("1")),
            ("$.a.x", None),
        ] {
            let reader = RowReader::new(&[], &[path.to_owned()]).expect(path);
            let Ok(values) = reader.read(row) else { panic!("{path}") };
            assert_eq!(values[0].as_deref(), want, "{path}");
        }
        for path in ["a", "$a", "$.", "$.a[x]", "$.a[0"] {
            assert!(steps(path).is_err(), "{path}");
        }
        assert_eq!(column_name("$.a.b[0]").as_deref(), Ok("b"));
        assert!(column_name("$").is_err());
    }
}
