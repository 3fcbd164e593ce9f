//! Values as the text protocol prints them.

use std::fmt::Write;

use arrow::array::{Array, AsArray};
use arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Decimal256Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type,
    Int64Type, Time64MicrosecondType, TimeUnit, TimestampMicrosecondType, TimestampMillisecondType,
    TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};

use super::datetime::{format_date, format_datetime};
use super::zone::SessionZone;
use super::{DorisType, decimal, format_time};

/// Where a text goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextStyle {
    /// MySQL text protocol: BOOLEAN is 1 or 0.
    Mysql,
    /// CAST to STRING: BOOLEAN is `true` or `false`.
    Cast,
}

/// Text of one value, `None` for NULL. Reads storage arrays and wire arrays alike.
pub fn text_value(array: &dyn Array, row: usize, ty: &DorisType, style: TextStyle) -> Option<String> {
    // A BITMAP and an HLL have no text.
    if array.is_null(row) || matches!(array.data_type(), DataType::Null | DataType::Binary | DataType::LargeBinary) {
        return None;
    }
    let mut out = String::new();
    write_value(&mut out, array, row, ty, style, false);
    Some(out)
}

fn write_value(out: &mut String, array: &dyn Array, row: usize, ty: &DorisType, style: TextStyle, inside: bool) {
    if array.is_null(row) {
        out.push_str("null");
        return;
    }
    let quote = |out: &mut String, text: &str| {
        if inside {
            let _ = write!(out, "\"{text}\"");
        } else {
            out.push_str(text);
        }
    };
    match array.data_type() {
        DataType::Null => out.push_str("null"),
        DataType::Boolean => {
            let flag = array.as_boolean().value(row);
            out.push_str(match (style, flag) {
                (TextStyle::Mysql, true) => "1",
                (TextStyle::Mysql, false) => "0",
                (TextStyle::Cast, true) => "true",
                (TextStyle::Cast, false) => "false",
            });
        }
        DataType::Int8 => push(out, array.as_primitive::<Int8Type>().value(row)),
        DataType::Int16 => push(out, array.as_primitive::<Int16Type>().value(row)),
        DataType::Int32 if *ty == DorisType::Ipv4 => {
            let bits = array.as_primitive::<Int32Type>().value(row) as u32;
            quote(out, &std::net::Ipv4Addr::from(bits).to_string());
        }
        DataType::Int32 => push(out, array.as_primitive::<Int32Type>().value(row)),
        DataType::Int64 => push(out, array.as_primitive::<Int64Type>().value(row)),
        DataType::UInt8 => push(out, array.as_primitive::<UInt8Type>().value(row)),
        DataType::UInt16 => push(out, array.as_primitive::<UInt16Type>().value(row)),
        DataType::UInt32 if *ty == DorisType::Ipv4 => {
            quote(out, &std::net::Ipv4Addr::from(array.as_primitive::<UInt32Type>().value(row)).to_string());
        }
        DataType::UInt32 => push(out, array.as_primitive::<UInt32Type>().value(row)),
        DataType::UInt64 => push(out, array.as_primitive::<UInt64Type>().value(row)),
        DataType::Float32 => {
            let value = array.as_primitive::<Float32Type>().value(row);
            out.push_str(&float_text(f64::from(value), &value.to_string(), &format!("{value:e}"), 7));
        }
        DataType::Float64 if matches!(ty, DorisType::Time(_)) => {
            // A TIME in its wire form, in microseconds.
            let DorisType::Time(precision) = ty else { return };
            quote(out, &format_time(array.as_primitive::<Float64Type>().value(row) as i64, *precision));
        }
        DataType::Float64 => {
            let value = array.as_primitive::<Float64Type>().value(row);
            out.push_str(&float_text(value, &value.to_string(), &format!("{value:e}"), 16));
        }
        DataType::Decimal128(_, scale) => {
            let value = array.as_primitive::<Decimal128Type>().value(row);
            out.push_str(&decimal::format_unscaled(&value.to_string(), (*scale).max(0) as u8));
        }
        DataType::Decimal256(_, scale) => {
            let value = array.as_primitive::<Decimal256Type>().value(row);
            out.push_str(&decimal::format_unscaled(&value.to_string(), (*scale).max(0) as u8));
        }
        DataType::Utf8 => string_text(out, array.as_string::<i32>().value(row), ty, inside),
        DataType::LargeUtf8 => string_text(out, array.as_string::<i64>().value(row), ty, inside),
        DataType::Utf8View => string_text(out, array.as_string_view().value(row), ty, inside),
        DataType::Date32 => quote(out, &format_date(i64::from(array.as_primitive::<Date32Type>().value(row)))),
        DataType::Time64(_) => {
            let precision = if let DorisType::Time(p) = ty { *p } else { 6 };
            quote(out, &format_time(array.as_primitive::<Time64MicrosecondType>().value(row), precision));
        }
        DataType::Binary | DataType::LargeBinary => out.push_str("null"),
        DataType::Timestamp(unit, zone) => {
            let mut micros = match unit {
                TimeUnit::Second => array.as_primitive::<TimestampSecondType>().value(row) * 1_000_000,
                TimeUnit::Millisecond => array.as_primitive::<TimestampMillisecondType>().value(row) * 1000,
                TimeUnit::Microsecond => array.as_primitive::<TimestampMicrosecondType>().value(row),
                TimeUnit::Nanosecond => array.as_primitive::<TimestampNanosecondType>().value(row).div_euclid(1000),
            };
            let mut offset = 0;
            if let Some(zone) = zone.as_ref().and_then(|z| z.parse::<SessionZone>().ok()) {
                offset = zone.offset_at(micros.div_euclid(1_000_000));
                micros += offset * 1_000_000;
            }
            match ty {
                DorisType::TimestampTz(p) => {
                    let sign = if offset < 0 { '-' } else { '+' };
                    let (hours, minutes) = (offset.abs() / 3600, offset.abs() / 60 % 60);
                    quote(out, &format!("{} {sign}{hours:02}:{minutes:02}", format_datetime(micros, *p)));
                }
                DorisType::DateTime(p) => quote(out, &format_datetime(micros, *p)),
                _ => quote(out, &format_datetime(micros, 6)),
            }
        }
        DataType::List(_) => {
            let item_type = match ty {
                DorisType::Array(item) => (**item).clone(),
                _ => DorisType::Null,
            };
            let items = array.as_list::<i32>().value(row);
            out.push('[');
            for i in 0..items.len() {
                out.push_str(if i > 0 { ", " } else { "" });
                write_value(out, &items, i, &item_type, style, true);
            }
            out.push(']');
        }
        DataType::Map(..) => {
            let (key_type, value_type) = match ty {
                DorisType::Map(key, value) => ((**key).clone(), (**value).clone()),
                _ => (DorisType::Null, DorisType::Null),
            };
            let entries = array.as_map().value(row);
            out.push('{');
            for i in 0..entries.len() {
                out.push_str(if i > 0 { ", " } else { "" });
                write_value(out, entries.column(0), i, &key_type, style, true);
                out.push(':');
                write_value(out, entries.column(1), i, &value_type, style, true);
            }
            out.push('}');
        }
        DataType::Struct(_) => {
            let values = array.as_struct();
            out.push('{');
            for (i, column) in values.columns().iter().enumerate() {
                let field_type = match ty {
                    DorisType::Struct(fields) => fields.get(i).map_or(DorisType::Null, |(_, ty)| ty.clone()),
                    _ => DorisType::Null,
                };
                let _ = write!(out, "{}\"{}\":", if i > 0 { ", " } else { "" }, values.fields()[i].name());
                write_value(out, column, row, &field_type, style, true);
            }
            out.push('}');
        }
        other => {
            let _ = write!(out, "<{other}>");
        }
    }
}

fn push(out: &mut String, value: impl std::fmt::Display) {
    let _ = write!(out, "{value}");
}

fn string_text(out: &mut String, text: &str, ty: &DorisType, inside: bool) {
    if inside && !matches!(ty, DorisType::Json | DorisType::Variant | DorisType::LargeInt) {
        let _ = write!(out, "\"{text}\"");
    } else {
        out.push_str(text);
    }
}

/// Shortest text that reads back as the value: plain up to `digits` integer digits, scientific beyond.
fn float_text(value: f64, plain: &str, scientific: &str, digits: i32) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "Infinity" } else { "-Infinity" }.to_owned();
    }
    let magnitude = value.abs();
    if magnitude == 0.0 || (1e-4..10_f64.powi(digits)).contains(&magnitude) {
        return plain.to_owned();
    }
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((scientific, "0"));
    let number: i32 = exponent.parse().unwrap_or(0);
    format!("{mantissa}e{}{:02}", if number < 0 { '-' } else { '+' }, number.abs())
}
