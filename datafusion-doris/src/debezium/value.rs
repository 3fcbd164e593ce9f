//! One value: JSON of the event to JSON that Arrow's reader takes for the column, exactly.

use std::borrow::Cow;
use std::fmt::Display;

use arrow::datatypes::{DataType, Fields as ArrowFields, TimeUnit};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::decimal::{Number, bits};
use super::event::Fields;
use super::schema::Meaning;
use super::time::{self, TimeText};
use super::write_string;
use crate::options::DebeziumOptions;

/// What Debezium sends in place of a large value that did not change.
const UNAVAILABLE: &str = "__debezium_unavailable_value";

/// A value by its JSON type.
enum Token<'a> {
    Text(Cow<'a, str>),
    Number(&'a str),
    Boolean(bool),
    /// An object or array.
    Nested(&'a str),
}

#[derive(Deserialize)]
struct JsonText<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'a> Token<'a> {
    /// `None` = null.
    fn of(json: &'a str) -> Result<Option<Self>, String> {
        Ok(Some(match json.as_bytes().first() {
            Some(b'n') | None => return Ok(None),
            Some(b't') => Token::Boolean(true),
            Some(b'f') => Token::Boolean(false),
            Some(b'{' | b'[') => Token::Nested(json),
            Some(b'"') => {
                let JsonText(text) = serde_json::from_str(json).map_err(|error| error.to_string())?;
                Token::Text(text)
            }
            Some(_) => Token::Number(json),
        }))
    }
}

/// Appends `raw` as a value for a column of type `target`.
///
/// # Errors
/// The reason, when the column cannot hold it exactly, or what it is cannot be told.
pub(super) fn write(
    out: &mut Vec<u8>,
    raw: &RawValue,
    meaning: &Meaning,
    target: &DataType,
    options: &DebeziumOptions,
) -> Result<(), String> {
    let json = raw.get();
    let Some(token) = Token::of(json)? else {
        out.extend_from_slice(b"null");
        return Ok(());
    };
    if let Token::Text(text) = &token
        && (text == UNAVAILABLE || is_unavailable_bytes(text))
    {
        return Err(format!(
            "the event has no value for it ({UNAVAILABLE}), because it did not change: set REPLICA IDENTITY FULL on the \
             source table, or leave the column out of the target"
        ));
    }
    match target {
        DataType::Dictionary(_, values) => write(out, raw, meaning, values, options),
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => {
            write_string(out, &text_of(json, &token, meaning)?);
            Ok(())
        }
        DataType::Boolean => {
            out.extend_from_slice(if boolean(&token, meaning)? { b"true" } else { b"false" });
            Ok(())
        }
        DataType::Int8 => write_integer::<i8>(out, &token, meaning, target),
        DataType::Int16 => write_integer::<i16>(out, &token, meaning, target),
        DataType::Int32 => write_integer::<i32>(out, &token, meaning, target),
        DataType::Int64 => write_integer::<i64>(out, &token, meaning, target),
        DataType::UInt8 => write_integer::<u8>(out, &token, meaning, target),
        DataType::UInt16 => write_integer::<u16>(out, &token, meaning, target),
        DataType::UInt32 => write_integer::<u32>(out, &token, meaning, target),
        DataType::UInt64 => write_integer::<u64>(out, &token, meaning, target),
        DataType::Float32 | DataType::Float64 => {
            write_string(out, &float(&token, meaning, target)?);
            Ok(())
        }
        DataType::Decimal32(precision, scale)
        | DataType::Decimal64(precision, scale)
        | DataType::Decimal128(precision, scale)
        | DataType::Decimal256(precision, scale) => {
            write_string(out, &number(&token, meaning)?.exact(*precision, *scale)?);
            Ok(())
        }
        DataType::Date32 | DataType::Date64 => {
            write_string(out, &day(&token, meaning)?);
            Ok(())
        }
        DataType::Timestamp(unit, zone) => {
            write_string(out, &timestamp(&token, meaning, *unit, zone.is_some(), options)?);
            Ok(())
        }
        DataType::List(element) | DataType::LargeList(element) => {
            write_list(out, &token, meaning, element.data_type(), options)
        }
        DataType::Struct(fields) => write_row(out, &token, meaning, fields, options),
        DataType::Map(entries, _) => match entries.data_type() {
            DataType::Struct(fields) if fields.len() == 2 => {
                write_map(out, &token, meaning, fields[1].data_type(), options)
            }
            _ => Err(unfit(&token, target)),
        },
        _ => Err(unfit(&token, target)),
    }
}

/// The placeholder of a column of bytes is the same text, in base64.
fn is_unavailable_bytes(text: &str) -> bool {
    text.len() == UNAVAILABLE.len().div_ceil(3) * 4 && text == BASE64_STANDARD.encode(UNAVAILABLE)
}

fn unfit(token: &Token<'_>, target: impl Display) -> String {
    let what = match token {
        Token::Text(text) => format!("'{}'", shortened(text)),
        Token::Number(number) => (*number).to_owned(),
        Token::Boolean(value) => value.to_string(),
        Token::Nested(json) => shortened(json).into_owned(),
    };
    format!("{what} does not fit into a column of type {target}")
}

/// At most 60 characters of a text, for messages.
fn shortened(text: &str) -> Cow<'_, str> {
    match text.char_indices().nth(60) {
        Some((end, _)) => Cow::Owned(format!("{}…", &text[..end])),
        None => Cow::Borrowed(text),
    }
}

pub(super) fn bytes_of(text: &str) -> Result<Vec<u8>, String> {
    BASE64_STANDARD.decode(text).map_err(|error| format!("'{}' is no base64 text: {error}", shortened(text)))
}

fn integer(token: &Token<'_>) -> Result<i64, String> {
    match token {
        Token::Number(number) => number.parse().map_err(|_| format!("{number} is no whole number of 64 bits")),
        other => Err(unfit(other, "a number")),
    }
}

/// The decimal number of a value with such a meaning; `None` for other meanings.
fn scaled(token: &Token<'_>, meaning: &Meaning) -> Option<Result<Number, String>> {
    match (meaning, token) {
        (Meaning::Decimal { scale }, Token::Text(text)) => Some(Number::from_base64(text, *scale)),
        (Meaning::VariableDecimal, Token::Nested(json)) => Some(Number::from_variable(json)),
        _ => None,
    }
}

fn number(token: &Token<'_>, meaning: &Meaning) -> Result<Number, String> {
    if let Some(scaled) = scaled(token, meaning) {
        return scaled;
    }
    match (token, meaning) {
        (Token::Text(text), Meaning::Bits) => Number::parse(&bits(text)?.to_string()),
        (Token::Number(number), _) => Number::parse(number),
        (Token::Text(text), _) => Number::parse(text).map_err(|reason| {
            format!(
                "{reason}; an unscaled number (decimal.handling.mode = precise) can be read from events with schema \
                 only, set the connector's decimal.handling.mode = string"
            )
        }),
        (Token::Boolean(value), _) => Number::parse(if *value { "1" } else { "0" }),
        (other @ Token::Nested(_), _) => Err(unfit(other, "a number")),
    }
}

fn write_integer<T: TryFrom<i128>>(
    out: &mut Vec<u8>,
    token: &Token<'_>,
    meaning: &Meaning,
    target: &DataType,
) -> Result<(), String> {
    let whole = number(token, meaning)?.whole()?;
    match whole.parse::<i128>().ok().and_then(|value| T::try_from(value).ok()) {
        Some(_) => {
            out.extend_from_slice(whole.as_bytes());
            Ok(())
        }
        None => Err(unfit(token, target)),
    }
}

fn boolean(token: &Token<'_>, meaning: &Meaning) -> Result<bool, String> {
    match (token, meaning) {
        (Token::Boolean(value), _) => Ok(*value),
        (Token::Text(text), Meaning::Bits) => match bits(text)? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(format!("a bit set of {other} is neither 0 nor 1")),
        },
        (Token::Number("0"), _) => Ok(false),
        (Token::Number("1"), _) => Ok(true),
        (Token::Text(text), _) => match text.to_ascii_lowercase().as_str() {
            "true" | "t" | "1" => Ok(true),
            "false" | "f" | "0" => Ok(false),
            _ => Err(unfit(token, "BOOLEAN")),
        },
        (other, _) => Err(unfit(other, "BOOLEAN")),
    }
}

fn float(token: &Token<'_>, meaning: &Meaning, target: &DataType) -> Result<String, String> {
    if let Some(scaled) = scaled(token, meaning) {
        return Ok(scaled?.text());
    }
    let text = match token {
        Token::Number(number) => *number,
        Token::Text(text) => match text.as_ref() {
            "NaN" => return Ok("NaN".into()),
            "Infinity" | "+Infinity" => return Ok("inf".into()),
            "-Infinity" => return Ok("-inf".into()),
            text => text,
        },
        other => return Err(unfit(other, target)),
    };
    let finite = match target {
        DataType::Float32 => text.parse::<f32>().is_ok_and(f32::is_finite),
        _ => text.parse::<f64>().is_ok_and(f64::is_finite),
    };
    if finite { Ok(text.to_owned()) } else { Err(unfit(token, target)) }
}

fn day(token: &Token<'_>, meaning: &Meaning) -> Result<String, String> {
    let day = match (token, meaning) {
        (Token::Number(_), Meaning::DateTime(precision)) => {
            let time = time::date_time(integer(token)?, *precision)?;
            match time.time() == chrono::NaiveTime::MIN {
                true => time.date(),
                false => return Err(format!("{time} has a time of day, the column is a DATE")),
            }
        }
        // Debezium's and Kafka Connect's dates are days, with schema and without.
        (Token::Number(_), Meaning::Days | Meaning::Plain) => time::day(integer(token)?)?,
        (Token::Text(text), _) => time::parse_day(text)?,
        (other, _) => return Err(unfit(other, "DATE")),
    };
    Ok(day.format("%Y-%m-%d").to_string())
}

fn timestamp(
    token: &Token<'_>,
    meaning: &Meaning,
    unit: TimeUnit,
    with_zone: bool,
    options: &DebeziumOptions,
) -> Result<String, String> {
    let time = match (token, meaning) {
        (Token::Number(_), Meaning::DateTime(precision)) => time::date_time(integer(token)?, *precision)?,
        (Token::Number(_), Meaning::Days) => time::day(integer(token)?)?.and_time(chrono::NaiveTime::MIN),
        (Token::Number(number), Meaning::Plain) => match options.time_precision {
            Some(precision) => time::date_time(integer(token)?, precision)?,
            None => {
                return Err(format!(
                    "{number} is a time of unknown unit: the event has no schema that tells it; set \
                     'sink.debezium.time-precision' to ms, us or ns (time.precision.mode of the connector: connect = ms, \
                     adaptive = ms up to 3 digits, else us)"
                ));
            }
        },
        (Token::Text(text), _) => {
            let text = TimeText::parse(text)?;
            if with_zone { text.instant() } else { text.local(options.time_zone) }
        }
        (other, _) => return Err(unfit(other, "DATETIME")),
    };
    let text = time::exact(time, unit)?;
    Ok(if with_zone { format!("{text}Z") } else { text })
}

fn text_of<'a>(json: &'a str, token: &'a Token<'a>, meaning: &Meaning) -> Result<Cow<'a, str>, String> {
    if let Some(scaled) = scaled(token, meaning) {
        return Ok(Cow::Owned(scaled?.text()));
    }
    Ok(match (token, meaning) {
        (Token::Number(_), Meaning::Days) => Cow::Owned(time::day(integer(token)?)?.format("%Y-%m-%d").to_string()),
        (Token::Number(_), Meaning::DateTime(precision)) => {
            let time = time::date_time(integer(token)?, *precision)?;
            Cow::Owned(time.format("%Y-%m-%d %H:%M:%S%.f").to_string())
        }
        (Token::Number(_), Meaning::Time(precision)) => Cow::Owned(time::time_of_day(integer(token)?, *precision)),
        (Token::Text(_), Meaning::Bits) => {
            return Err("a set of bits fits into BOOLEAN, or an integer column that is wide enough".into());
        }
        (Token::Text(text), _) => Cow::Borrowed(text.as_ref()),
        _ => Cow::Borrowed(json),
    })
}

/// The JSON of a nested value: the source may send it as text.
fn nested<'a>(token: &'a Token<'_>, open: u8) -> Option<&'a str> {
    let json = match token {
        Token::Nested(json) => json,
        Token::Text(text) => text.trim_ascii(),
        _ => return None,
    };
    json.as_bytes().first().is_some_and(|first| *first == open).then_some(json)
}

fn parsed<'a, T: Deserialize<'a>>(json: &'a str) -> Result<T, String> {
    serde_json::from_str(json).map_err(|error| format!("{}: {error}", shortened(json)))
}

fn write_list(
    out: &mut Vec<u8>,
    token: &Token<'_>,
    meaning: &Meaning,
    element: &DataType,
    options: &DebeziumOptions,
) -> Result<(), String> {
    let values: Vec<&RawValue> = parsed(nested(token, b'[').ok_or_else(|| unfit(token, "ARRAY"))?)?;
    let meaning = if let Meaning::List(meaning) = meaning { meaning } else { &Meaning::Plain };
    out.push(b'[');
    for (at, value) in values.into_iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        write(out, value, meaning, element, options)?;
    }
    out.push(b']');
    Ok(())
}

fn write_map(
    out: &mut Vec<u8>,
    token: &Token<'_>,
    meaning: &Meaning,
    target: &DataType,
    options: &DebeziumOptions,
) -> Result<(), String> {
    let fields: Fields<'_> = parsed(nested(token, b'{').ok_or_else(|| unfit(token, "MAP"))?)?;
    let meaning = if let Meaning::Map(meaning) = meaning { meaning } else { &Meaning::Plain };
    out.push(b'{');
    for (at, field) in fields.iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        write_string(out, field.name);
        out.push(b':');
        write(out, field.value, meaning, target, options)?;
    }
    out.push(b'}');
    Ok(())
}

fn write_row(
    out: &mut Vec<u8>,
    token: &Token<'_>,
    meaning: &Meaning,
    targets: &ArrowFields,
    options: &DebeziumOptions,
) -> Result<(), String> {
    let fields: Fields<'_> = parsed(nested(token, b'{').ok_or_else(|| unfit(token, "STRUCT"))?)?;
    out.push(b'{');
    for (at, target) in targets.iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        write_string(out, target.name());
        out.push(b':');
        match fields.find(at, target.name()) {
            None => out.extend_from_slice(b"null"),
            Some(field) => {
                let meaning = if let Meaning::Row(row) = meaning { row.of(field.name) } else { &Meaning::Plain };
                write(out, field.value, meaning, target.data_type(), options)?;
            }
        }
    }
    out.push(b'}');
    Ok(())
}
