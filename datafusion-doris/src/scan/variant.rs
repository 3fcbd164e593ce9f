//! VARIANT in its binary form, as JSON text.
//!
//! The newest builds send VARIANT as a struct of two columns of bytes, laid out as the Variant type of Parquet: `metadata`
//! holds the names of fields, `value` one value that refers to them by number. The text is that of the same document,
//! compact, with the fields in the order in which they are stored; what JSON has no type for (dates, times, bytes) is a string.

use std::fmt::Write as _;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, StringBuilder};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use arrow::error::ArrowError;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use chrono::{DateTime, NaiveDate, NaiveTime};

/// Deepest nesting that is read.
const MAX_DEPTH: usize = 200;

/// The texts of a struct of `metadata` and `value`.
///
/// # Errors
/// Bytes that are no variant.
pub(super) fn variant_texts(array: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    let broken = |reason: &str| ArrowError::CastError(format!("the bytes of a variant are broken: {reason}"));
    let rows = array.as_struct_opt().ok_or_else(|| broken("they come in no struct"))?;
    let column = |name: &str| -> Result<ArrayRef, ArrowError> {
        let column = rows.column_by_name(name).ok_or_else(|| broken("a column is missing"))?;
        cast(column, &DataType::Binary)
    };
    let (metadata, values) = (column("metadata")?, column("value")?);
    let (metadata, values) = (metadata.as_binary::<i32>(), values.as_binary::<i32>());
    let mut texts = StringBuilder::with_capacity(rows.len(), values.value_data().len());
    for row in 0..rows.len() {
        if rows.is_null(row) || values.is_null(row) || metadata.is_null(row) {
            texts.append_null();
            continue;
        }
        let text = json_text(metadata.value(row), values.value(row)).ok_or_else(|| broken("it ends too early"))?;
        texts.append_value(text);
    }
    Ok(Arc::new(texts.finish()))
}

/// One value; `None` when the bytes are no variant.
fn json_text(metadata: &[u8], value: &[u8]) -> Option<String> {
    let names = Names::read(metadata)?;
    let mut out = String::new();
    // Values that share their bytes would be as many as one likes.
    let mut left = value.len();
    write_value(&mut out, &names, value, 0, &mut left)?;
    Some(out)
}

/// A little-endian number of up to 4 bytes.
fn number(bytes: &[u8], at: usize, size: usize) -> Option<usize> {
    let bytes = bytes.get(at..at.checked_add(size)?)?;
    bytes.iter().rev().try_fold(0_usize, |number, byte| number.checked_mul(256)?.checked_add(usize::from(*byte)))
}

/// The names of fields.
struct Names<'a> {
    bytes: &'a [u8],
    offset_size: usize,
    count: usize,
}

impl<'a> Names<'a> {
    fn read(bytes: &'a [u8]) -> Option<Self> {
        let header = *bytes.first()?;
        // The version of the layout.
        if header & 0x0f != 1 {
            return None;
        }
        let offset_size = usize::from(header >> 6) + 1;
        Some(Self { bytes, offset_size, count: number(bytes, 1, offset_size)? })
    }

    fn get(&self, index: usize) -> Option<&'a str> {
        if index >= self.count {
            return None;
        }
        let offset = |index: usize| number(self.bytes, 1 + self.offset_size * (1 + index), self.offset_size);
        let begin = 1 + self.offset_size * (2 + self.count);
        let range = begin.checked_add(offset(index)?)?..begin.checked_add(offset(index + 1)?)?;
        std::str::from_utf8(self.bytes.get(range)?).ok()
    }
}

/// `left`: how many more values there may be.
fn write_value(out: &mut String, names: &Names<'_>, bytes: &[u8], depth: usize, left: &mut usize) -> Option<()> {
    *left = left.checked_sub(1)?;
    let header = *bytes.first()?;
    let (basic, header) = (header & 0b11, usize::from(header >> 2));
    match basic {
        0 => write_primitive(out, header, bytes.get(1..)?),
        1 => write_text(out, std::str::from_utf8(bytes.get(1..1 + header)?).ok()?),
        _ if depth >= MAX_DEPTH => None,
        2 => {
            let (offset_size, id_size, large) = ((header & 0b11) + 1, (header >> 2 & 0b11) + 1, header >> 4 & 1 == 1);
            let count_size = if large { 4 } else { 1 };
            let count = number(bytes, 1, count_size)?;
            let ids = 1 + count_size;
            let offsets = ids.checked_add(count.checked_mul(id_size)?)?;
            let values = offsets.checked_add(count.checked_add(1)?.checked_mul(offset_size)?)?;
            out.push('{');
            for index in 0..count {
                if index > 0 {
                    out.push(',');
                }
                write_text(out, names.get(number(bytes, ids + index * id_size, id_size)?)?)?;
                out.push(':');
                // The end of a field is not that of the next one: they are sorted by name, their values may not be.
                let begin = values.checked_add(number(bytes, offsets + index * offset_size, offset_size)?)?;
                write_value(out, names, bytes.get(begin..)?, depth + 1, left)?;
            }
            out.push('}');
            Some(())
        }
        _ => {
            let (offset_size, large) = ((header & 0b11) + 1, header >> 2 & 1 == 1);
            let count_size = if large { 4 } else { 1 };
            let count = number(bytes, 1, count_size)?;
            let offsets = 1 + count_size;
            let values = offsets.checked_add(count.checked_add(1)?.checked_mul(offset_size)?)?;
            out.push('[');
            for index in 0..count {
                if index > 0 {
                    out.push(',');
                }
                let begin = values.checked_add(number(bytes, offsets + index * offset_size, offset_size)?)?;
                write_value(out, names, bytes.get(begin..)?, depth + 1, left)?;
            }
            out.push(']');
            Some(())
        }
    }
}

fn write_text(out: &mut String, text: &str) -> Option<()> {
    out.push_str(&serde_json::to_string(text).ok()?);
    Some(())
}

fn write_primitive(out: &mut String, kind: usize, bytes: &[u8]) -> Option<()> {
    fn fixed<const N: usize>(bytes: &[u8]) -> Option<[u8; N]> {
        bytes.get(..N)?.try_into().ok()
    }
    let sized = || {
        let size = number(bytes, 0, 4)?;
        bytes.get(4..4_usize.checked_add(size)?)
    };
    let i64_of = || fixed(bytes).map(i64::from_le_bytes);
    let micros = || DateTime::from_timestamp_micros(i64_of()?);
    let nanos = || Some(DateTime::from_timestamp_nanos(i64_of()?));
    match kind {
        0 => out.push_str("null"),
        1 => out.push_str("true"),
        2 => out.push_str("false"),
        3 => write!(out, "{}", i8::from_le_bytes(fixed(bytes)?)).ok()?,
        4 => write!(out, "{}", i16::from_le_bytes(fixed(bytes)?)).ok()?,
        5 => write!(out, "{}", i32::from_le_bytes(fixed(bytes)?)).ok()?,
        6 => write!(out, "{}", i64_of()?).ok()?,
        7 => write_double(out, f64::from_le_bytes(fixed(bytes)?))?,
        8 => write_decimal(out, *bytes.first()?, i32::from_le_bytes(fixed(bytes.get(1..)?)?).into())?,
        9 => write_decimal(out, *bytes.first()?, i64::from_le_bytes(fixed(bytes.get(1..)?)?).into())?,
        10 => write_decimal(out, *bytes.first()?, i128::from_le_bytes(fixed(bytes.get(1..)?)?))?,
        11 => write_text(out, &NaiveDate::from_epoch_days(i32::from_le_bytes(fixed(bytes)?))?.to_string())?,
        12 => write_text(out, &micros()?.format("%Y-%m-%d %H:%M:%S%.6f+00:00").to_string())?,
        13 => write_text(out, &micros()?.format("%Y-%m-%d %H:%M:%S%.6f").to_string())?,
        14 => {
            let value = f32::from_le_bytes(fixed(bytes)?);
            // By its own shortest text, not by that of the double.
            write_double(out, value.to_string().parse().ok()?)?;
        }
        15 => write_text(out, &BASE64_STANDARD.encode(sized()?))?,
        16 => write_text(out, std::str::from_utf8(sized()?).ok()?)?,
        17 => {
            let micros = u64::try_from(i64_of()?).ok()?;
            let seconds = u32::try_from(micros / 1_000_000).ok()?;
            let time = NaiveTime::from_num_seconds_from_midnight_opt(seconds, (micros % 1_000_000) as u32 * 1_000)?;
            write_text(out, &time.format("%H:%M:%S%.6f").to_string())?;
        }
        18 => write_text(out, &nanos()?.format("%Y-%m-%d %H:%M:%S%.9f+00:00").to_string())?,
        19 => write_text(out, &nanos()?.format("%Y-%m-%d %H:%M:%S%.9f").to_string())?,
        20 => {
            let hex: String = fixed::<16>(bytes)?.iter().map(|byte| format!("{byte:02x}")).collect();
            let parts = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]];
            write_text(out, &parts.join("-"))?;
        }
        _ => return None,
    }
    Some(())
}

/// JSON has no number that is not finite.
fn write_double(out: &mut String, value: f64) -> Option<()> {
    if value.is_finite() {
        out.push_str(&serde_json::to_string(&value).ok()?);
        return Some(());
    }
    write_text(
        out,
        if value.is_nan() {
            "NaN"
        } else if value > 0.0 {
            "Infinity"
        } else {
            "-Infinity"
        },
    )
}

fn write_decimal(out: &mut String, scale: u8, unscaled: i128) -> Option<()> {
    if scale > 38 {
        return None;
    }
    let scale = usize::from(scale);
    let digits = format!("{:0>width$}", unscaled.unsigned_abs(), width = scale + 1);
    let (whole, fraction) = digits.split_at(digits.len() - scale);
    let point = if scale > 0 { "." } else { "" };
    write!(out, "{}{whole}{point}{fraction}", if unscaled < 0 { "-" } else { "" }).ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    /// Names `a`, `bc`.
    const NAMES: &[u8] = &[0x01, 2, 0, 1, 3, b'a', b'b', b'c'];

    fn primitive(kind: u8, rest: &[u8]) -> Vec<u8> {
        [&[kind << 2], rest].concat()
    }

    #[test]
    fn every_kind_of_value_has_its_text() {
        let cases: &[(Vec<u8>, &str)] = &[
            (primitive(0, &[]), "null"),
            (primitive(1, &[]), "true"),
            (primitive(2, &[]), "false"),
            (primitive(3, &[0x80]), "-128"),
            (primitive(4, &1_000_i16.to_le_bytes()), "1000"),
            (primitive(5, &(-70_000_i32).to_le_bytes()), "-70000"),
            (primitive(6, &i64::MIN.to_le_bytes()), "-9223372036854775808"),
            (primitive(7, &0.1_f64.to_le_bytes()), "0.1"),
            (primitive(7, &f64::NAN.to_le_bytes()), "\"NaN\""),
            (primitive(8, &[&[2][..], &(-5_i32).to_le_bytes()].concat()), "-0.05"),
            (primitive(9, &[&[0][..], &12_i64.to_le_bytes()].concat()), "12"),
            (primitive(10, &[&[0][..], &12345678901234567890_i128.to_le_bytes()].concat()), "12345678901234567890"),
            (primitive(11, &19_782_i32.to_le_bytes()), "\"2024-02-29\""),
            (primitive(12, &1_i64.to_le_bytes()), "\"1970-01-01 00:00:00.000001+00:00\""),
            (primitive(13, &(-1_i64).to_le_bytes()), "\"1969-12-31 23:59:59.999999\""),
            (primitive(14, &0.1_f32.to_le_bytes()), "0.1"),
            (primitive(15, &[2, 0, 0, 0, 0xff, 0]), "\"/wA=\""),
            (primitive(16, &[3, 0, 0, 0, b'a', b'"', b'b']), "\"a\\\"b\""),
            (primitive(17, &3_600_000_001_i64.to_le_bytes()), "\"01:00:00.000001\""),
            (primitive(19, &5_i64.to_le_bytes()), "\"1970-01-01 00:00:00.000000005\""),
            (primitive(20, &[0x11; 16]), "\"11111111-1111-1111-1111-111111111111\""),
            (vec![2 << 2 | 1, 0xc3, 0xa9], "\"é\""),
            (vec![3, 0, 0], "[]"),
            (vec![3, 2, 0, 1, 2, 0, 4], "[null,true]"),
        ];
        for (bytes, expected) in cases {
            assert_eq!(json_text(NAMES, bytes).as_deref(), Some(*expected), "{bytes:?}");
        }
        // A large array with offsets of two bytes.
        let large = [&[0b101 << 2 | 3, 1, 0, 0, 0, 0, 0, 1, 0][..], &primitive(2, &[])].concat();
        assert_eq!(json_text(NAMES, &large).as_deref(), Some("[false]"));
    }

    #[test]
    fn fields_have_their_names_wherever_their_values_stand() {
        // The value of `a` stands behind that of `bc`.
        let object = [&[2_u8, 2, 0, 1, 1, 0, 2][..], &primitive(1, &[]), &primitive(0, &[])].concat();
        assert_eq!(json_text(NAMES, &object).as_deref(), Some("{\"a\":null,\"bc\":true}"));
    }

    #[test]
    fn broken_bytes_are_an_error_and_no_panic() {
        let object = [&[2_u8, 2, 0, 1, 1, 0, 2][..], &primitive(1, &[]), &primitive(0, &[])].concat();
        for end in 0..object.len() {
            assert_eq!(json_text(NAMES, &object[..end]), None, "{end}");
        }
        for bytes in
            [&[][..], &[21 << 2], &[2, 1, 9, 0, 1, 0], &[2 << 2 | 1, 0xff, 0xff], &[3 | 4 << 2, 0xff, 0xff, 0xff, 0xff]]
        {
            assert_eq!(json_text(NAMES, bytes), None, "{bytes:?}");
        }
        for metadata in [&[][..], &[2, 0, 0], &[1, 1, 0, 9]] {
            assert_eq!(json_text(metadata, &object), None, "{metadata:?}");
        }
        // An array whose only element is itself, as far as offsets go.
        let deep = [3_u8, 1, 0, 1].repeat(MAX_DEPTH + 2);
        assert_eq!(json_text(NAMES, &deep), None);
        // One whose two elements are the same, a hundred times: 2^100 values.
        let wide = [[3_u8, 2, 0, 0, 5].repeat(100), vec![0]].concat();
        assert_eq!(json_text(NAMES, &wide), None);
    }
}
