//! `format: json`: documents of a body into rows.

use std::borrow::Cow;
use std::io::Read;

use super::csv::Records;
use super::header::{JsonOptions, MAX_JSON_BYTES, json_too_large};
use super::intake::Intake;
use super::json::{JsonError, JsonPath, Scanner, Value};
use super::mapping::{Mapping, Missing};
use super::reply::Failure;
use super::worker::input_failure;
use crate::types::DorisType;

/// What is wrong with two documents where one is expected.
const TEXT_BEHIND: &str = "there is text behind the document";

/// Reads the rows of all documents.
pub(super) fn read(
    input: impl Read,
    options: &JsonOptions,
    delimiter: &[u8],
    intake: &mut Intake<'_>,
) -> Result<(), Failure> {
    if options.by_line {
        let mut records = Records::new(input);
        while let Some(range) = records.next(delimiter).map_err(|e| input_failure(&e))? {
            let line = records.bytes(range);
            if !line.iter().all(u8::is_ascii_whitespace) {
                document(line, options, intake)?;
            }
        }
        return Ok(());
    }
    let mut bytes = Vec::new();
    input.take(MAX_JSON_BYTES + 1).read_to_end(&mut bytes).map_err(|e| input_failure(&e))?;
    if bytes.len() as u64 > MAX_JSON_BYTES {
        return Err(json_too_large(bytes.len() as u64).into());
    }
    // A body without anything but blanks has no document.
    if bytes.iter().all(u8::is_ascii_whitespace) { Ok(()) } else { document(&bytes, options, intake) }
}

fn document(bytes: &[u8], options: &JsonOptions, intake: &mut Intake<'_>) -> Result<(), Failure> {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return intake.reject("Unable to display", "Parse json data failed, the text is not utf8");
    };
    let text = text.trim();
    let root = match root(text, options.root.as_ref()) {
        Ok(Some(root)) => root,
        Ok(None) => return intake.reject(text, "JSON Root not found."),
        Err(error) => return rows_before(text, &error, options, intake),
    };
    let is_array = root.starts_with('[');
    match (options.strip_outer_array, is_array) {
        (true, false) => intake.reject(text, "JSON data is not an array-object, `strip_outer_array` must be FALSE."),
        (false, true) => intake.reject(text, "JSON data is array-object, `strip_outer_array` must be TRUE."),
        (false, false) => row(&root, options, intake),
        (true, true) => {
            let mut scanner = Scanner::new(&root);
            scanner.enter_array();
            elements(&mut scanner, options, intake)
        }
    }
}

/// Text of the value under the root path.
fn root<'a>(text: &'a str, path: Option<&JsonPath>) -> Result<Option<Cow<'a, str>>, JsonError> {
    let mut scanner = Scanner::new(text);
    let whole = scanner.raw()?;
    if !scanner.at_end() {
        return Err(JsonError { what: TEXT_BEHIND, at: whole.len() });
    }
    let Some(path) = path else { return Ok(Some(Cow::Borrowed(whole))) };
    Ok(match path.find(whole)? {
        Some(Value::Nested(text)) => Some(text),
        Some(Value::Literal(text)) => Some(Cow::Borrowed(text)),
        _ => None,
    })
}

/// A broken document: the rows of a plain array before the break are still read, as a streaming parser does.
fn rows_before(text: &str, error: &JsonError, options: &JsonOptions, intake: &mut Intake<'_>) -> Result<(), Failure> {
    let mut scanner = Scanner::new(text);
    if options.strip_outer_array && options.root.is_none() && scanner.enter_array() {
        return elements(&mut scanner, options, intake);
    }
    intake.reject(text, reason(error))
}

fn elements(scanner: &mut Scanner<'_>, options: &JsonOptions, intake: &mut Intake<'_>) -> Result<(), Failure> {
    let mut first = true;
    loop {
        let element = match scanner.next_element(first) {
            Ok(true) => scanner.raw(),
            Ok(false) => return behind(scanner, intake),
            Err(error) => Err(error),
        };
        first = false;
        match element {
            Ok(element) => row(element, options, intake)?,
            // Where the next row would begin is not known.
            Err(error) => return intake.reject(scanner.text(), reason(&error)),
        }
    }
}

/// Text behind an array is a row that cannot be read: it must not get lost without a word.
fn behind(scanner: &mut Scanner<'_>, intake: &mut Intake<'_>) -> Result<(), Failure> {
    let rest = scanner.rest();
    if rest.is_empty() {
        return Ok(());
    }
    let at = scanner.text().len() - rest.len();
    intake.reject(rest, reason(&JsonError { what: TEXT_BEHIND, at }))
}

fn reason(error: &JsonError) -> String {
    format!("Parse json data failed, {} at byte {}", error.what, error.at)
}

fn row(text: &str, options: &JsonOptions, intake: &mut Intake<'_>) -> Result<(), Failure> {
    let mapping = intake.mapping;
    let values = match &options.paths {
        Some((paths, _)) => by_path(text, paths, mapping),
        None => by_name(text, mapping),
    };
    let mut values = match values {
        Ok(values) => values,
        Err(error) => return intake.reject(text, reason(&error)),
    };
    if mapping.flexible {
        return flexible_row(text, values, intake);
    }
    if values.iter().all(Option::is_none) {
        let mut names = String::new();
        for source in &mapping.sources {
            names.push_str(&source.name);
            names.push_str(", ");
        }
        let paths = options.paths.as_ref().map_or("", |(_, text)| text);
        return intake.reject(
            text,
            format!(
                "There is no column matching jsonpaths in the json file, columns:[{names}], please check columns and jsonpaths:{paths}"
            ),
        );
    }
    intake.row(text, &[], |i| value_text(mapping, i, values[i].take()))
}

/// A row that brings columns of its own: what it lacks keeps its old value.
fn flexible_row(text: &str, mut values: Vec<Option<Value<'_>>>, intake: &mut Intake<'_>) -> Result<(), Failure> {
    let mapping = intake.mapping;
    let mut skipped = Vec::new();
    for (source, value) in mapping.sources.iter().zip(&values) {
        if value.is_some() {
            continue;
        }
        if source.key {
            return intake.reject(
                text,
                format!(
                    "The key columns can not be ommited in flexible partial update, missing key column: [{}]",
                    source.name
                ),
            );
        }
        skipped.extend(source.base);
    }
    intake.row(text, &skipped, |i| match values[i].take() {
        None if mapping.sources[i].base.is_some() => Ok(None),
        value => value_text(mapping, i, value),
    })
}

fn value_text<'v>(mapping: &Mapping, i: usize, value: Option<Value<'v>>) -> Result<Option<Cow<'v, str>>, String> {
    let source = &mapping.sources[i];
    Ok(match value {
        None => match &source.missing {
            Missing::Null => None,
            Missing::Default(text) => Some(Cow::Owned(text.clone())),
            Missing::Refused => {
                return Err(format!("The column `{}` is not nullable, but it's not found in jsondata.", source.name));
            }
        },
        Some(Value::Null) => None,
        // Numbers take a truth value as a digit.
        Some(Value::Literal(text @ ("true" | "false"))) if source.direct.as_ref().is_some_and(is_number) => {
            Some(Cow::Borrowed(if text == "true" { "1" } else { "0" }))
        }
        Some(Value::Literal(text)) => Some(Cow::Borrowed(text)),
        Some(Value::Nested(text) | Value::Text(text)) => Some(text),
    })
}

fn is_number(ty: &DorisType) -> bool {
    matches!(
        ty,
        DorisType::TinyInt
            | DorisType::SmallInt
            | DorisType::Int
            | DorisType::BigInt
            | DorisType::LargeInt
            | DorisType::Float
            | DorisType::Double
            | DorisType::Decimal { .. }
    )
}

/// Members of an object under the names of the columns.
fn by_name<'a>(text: &'a str, mapping: &Mapping) -> Result<Vec<Option<Value<'a>>>, JsonError> {
    let mut values = vec![None; mapping.sources.len()];
    let mut scanner = Scanner::new(text);
    scanner.object(|key, value| {
        if let Some(i) = mapping.index(&key) {
            values[i] = Some(value);
        }
    })?;
    Ok(values)
}

/// Values under the paths, in the order of the columns.
fn by_path<'a>(text: &'a str, paths: &[JsonPath], mapping: &Mapping) -> Result<Vec<Option<Value<'a>>>, JsonError> {
    let mut values = Vec::with_capacity(mapping.sources.len());
    for path in paths.iter().take(mapping.sources.len()) {
        values.push(path.find(text)?);
    }
    values.resize(mapping.sources.len(), None);
    Ok(values)
}
