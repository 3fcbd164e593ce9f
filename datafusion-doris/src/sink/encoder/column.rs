//! One column of a batch as texts.

use std::sync::Arc;

use arrow::array::cast::AsArray;
use arrow::array::{
    Array, ArrayRef, GenericStringArray, LargeStringArray, OffsetSizeTrait, StringArray, StringViewArray,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::{
    DataType, Date32Type, Date64Type, Decimal128Type, Decimal256Type, Float32Type, Float64Type, Int8Type, Int16Type,
    Int32Type, Int64Type, Time32MillisecondType, Time32SecondType, Time64MicrosecondType, Time64NanosecondType,
    TimeUnit, TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType,
    UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};

use super::digits::{
    DAY_MICROS, push_date, push_datetime, push_decimal128, push_decimal256, push_i64, push_time, push_u64,
};
use super::escape;
use super::json::{push_string, push_text, push_value};

/// Appends the text of a row's value; the error says why it has none.
pub(super) type Write = Box<dyn Fn(usize, &mut Vec<u8>) -> Result<(), String> + Send>;

/// Appends the text of a row's float; `false` = it is not finite.
pub(super) type WriteFloat = Box<dyn Fn(usize, &mut Vec<u8>) -> bool + Send>;

/// A column, ready to print. What [`supported`] accepts has one.
pub(super) struct Column {
    nulls: Option<NullBuffer>,
    pub(super) values: Values,
}

/// The values by how they are embedded in a row.
pub(super) enum Values {
    /// Only NULL.
    Null,
    /// Text of digits and signs; a number or literal of JSON.
    Number(Write),
    /// Text of digits and signs that JSON must quote at the top level: a decimal would pass through a double there.
    /// Inside of a nested value Doris splits the text itself and takes the bare digits.
    Exact(Write),
    /// Text without quotes, backslashes or separators of its own; a JSON string.
    Quoted(Write),
    /// Floating point; `false` = not finite, which is no JSON number.
    Float(WriteFloat),
    /// Free text.
    Text(Text),
    /// A JSON text.
    Nested(Write),
}

/// A string array.
pub(super) struct Text {
    array: Strings,
    plain: bool,
}

enum Strings {
    Utf8(StringArray),
    LargeUtf8(LargeStringArray),
    View(StringViewArray),
}

impl Text {
    fn of_offsets<O: OffsetSizeTrait>(array: &GenericStringArray<O>, strings: Strings) -> Self {
        let end = |offset: Option<&O>| offset.map_or(0, |offset| offset.as_usize());
        let offsets = array.value_offsets();
        let bytes = array.value_data().get(end(offsets.first())..end(offsets.last()));
        Self { array: strings, plain: bytes.is_some_and(|bytes| !escape::any_special(bytes)) }
    }

    pub(super) fn value(&self, row: usize) -> &str {
        match &self.array {
            Strings::Utf8(array) => array.value(row),
            Strings::LargeUtf8(array) => array.value(row),
            Strings::View(array) => array.value(row),
        }
    }

    /// True when it is known that no value holds what is special in JSON ([`escape::is_special`]).
    pub(super) fn is_plain(&self) -> bool {
        self.plain
    }
}

/// Whether values of this type can be written; the error names the type and what to do.
pub(super) fn supported(data_type: &DataType) -> Result<(), String> {
    use DataType::*;
    match data_type {
        Null | Boolean | Int8 | Int16 | Int32 | Int64 | UInt8 | UInt16 | UInt32 | UInt64 | Float16 | Float32
        | Float64 | Decimal32(..) | Decimal64(..) | Decimal128(..) | Decimal256(..) | Date32 | Date64
        | Timestamp(..) | Time32(_) | Time64(_) | Utf8 | LargeUtf8 | Utf8View => Ok(()),
        Dictionary(_, value) => supported(value),
        RunEndEncoded(_, values) => supported(values.data_type()),
        List(item) | LargeList(item) | ListView(item) | LargeListView(item) | FixedSizeList(item, _) => {
            supported(item.data_type())
        }
        Map(entries, _) => match entries.data_type() {
            Struct(pair) if pair.len() == 2 => {
                if !key_supported(pair[0].data_type()) {
                    return Err(format!(
                        "map keys of type {} cannot be written; cast them to text",
                        pair[0].data_type()
                    ));
                }
                supported(pair[1].data_type())
            }
            other => Err(format!("map entries of type {other}")),
        },
        Struct(fields) => fields.iter().try_for_each(|field| supported(field.data_type())),
        Interval(_) | Duration(_) => Err(format!(
            "type {data_type} cannot be written, Doris has no column for it; write a number of units, or text"
        )),
        Binary | LargeBinary | BinaryView | FixedSizeBinary(_) => Err(format!(
            "type {data_type} cannot be written exactly; convert it to text, for example with encode(…, 'hex')"
        )),
        other => Err(format!("type {other} cannot be written; cast it to a type that Doris has")),
    }
}

fn key_supported(data_type: &DataType) -> bool {
    match data_type {
        DataType::Dictionary(_, value) => key_supported(value),
        DataType::RunEndEncoded(_, values) => key_supported(values.data_type()),
        other => supported(other).is_ok() && !other.is_nested() && !matches!(other, DataType::Null),
    }
}

impl Column {
    /// Prepares `array`.
    pub(super) fn new(array: &ArrayRef) -> Result<Self, String> {
        let values = values(array)?;
        Ok(Self { nulls: array.logical_nulls(), values })
    }

    pub(super) fn is_null(&self, row: usize) -> bool {
        matches!(self.values, Values::Null) || self.nulls.as_ref().is_some_and(|nulls| nulls.is_null(row))
    }

    /// Appends the bare text of a value that is not NULL.
    pub(super) fn push_text(&self, row: usize, out: &mut Vec<u8>) -> Result<(), String> {
        match &self.values {
            Values::Null => Ok(()),
            Values::Number(write) | Values::Exact(write) | Values::Quoted(write) | Values::Nested(write) => {
                write(row, out)
            }
            Values::Float(write) => {
                write(row, out);
                Ok(())
            }
            Values::Text(text) => {
                out.extend_from_slice(text.value(row).as_bytes());
                Ok(())
            }
        }
    }
}

macro_rules! integers {
    ($array:expr, $type:ty, $push:ident, $wide:ty) => {{
        let array = $array.as_primitive::<$type>().clone();
        Values::Number(Box::new(move |row, out| {
            $push(out, <$wide>::from(array.value(row)));
            Ok(())
        }))
    }};
}

fn values(array: &ArrayRef) -> Result<Values, String> {
    Ok(match array.data_type() {
        DataType::Null => Values::Null,
        DataType::Boolean => {
            let array = array.as_boolean().clone();
            Values::Number(Box::new(move |row, out| {
                out.extend_from_slice(if array.value(row) { b"true" } else { b"false" });
                Ok(())
            }))
        }
        DataType::Int8 => integers!(array, Int8Type, push_i64, i64),
        DataType::Int16 => integers!(array, Int16Type, push_i64, i64),
        DataType::Int32 => integers!(array, Int32Type, push_i64, i64),
        DataType::Int64 => integers!(array, Int64Type, push_i64, i64),
        DataType::UInt8 => integers!(array, UInt8Type, push_u64, u64),
        DataType::UInt16 => integers!(array, UInt16Type, push_u64, u64),
        DataType::UInt32 => integers!(array, UInt32Type, push_u64, u64),
        DataType::UInt64 => integers!(array, UInt64Type, push_u64, u64),
        DataType::Float16 => return cast_first(array, &DataType::Float32),
        DataType::Float32 => {
            let array = array.as_primitive::<Float32Type>().clone();
            Values::Float(Box::new(move |row, out| {
                let value = array.value(row);
                push_float(out, value, value.is_nan(), value.is_infinite(), value.is_sign_negative())
            }))
        }
        DataType::Float64 => {
            let array = array.as_primitive::<Float64Type>().clone();
            Values::Float(Box::new(move |row, out| {
                let value = array.value(row);
                push_float(out, value, value.is_nan(), value.is_infinite(), value.is_sign_negative())
            }))
        }
        DataType::Decimal32(precision, scale) | DataType::Decimal64(precision, scale) => {
            return cast_first(array, &DataType::Decimal128(*precision, *scale));
        }
        DataType::Decimal128(_, scale) => {
            let (array, scale) = (array.as_primitive::<Decimal128Type>().clone(), *scale);
            Values::Exact(Box::new(move |row, out| {
                push_decimal128(out, array.value(row), scale);
                Ok(())
            }))
        }
        DataType::Decimal256(_, scale) => {
            let (array, scale) = (array.as_primitive::<Decimal256Type>().clone(), *scale);
            Values::Exact(Box::new(move |row, out| {
                push_decimal256(out, array.value(row), scale);
                Ok(())
            }))
        }
        DataType::Date32 => {
            let array = array.as_primitive::<Date32Type>().clone();
            Values::Quoted(Box::new(move |row, out| push_date(out, i64::from(array.value(row)))))
        }
        DataType::Date64 => {
            let array = array.as_primitive::<Date64Type>().clone();
            Values::Quoted(Box::new(move |row, out| {
                let millis = array.value(row);
                if millis % 86_400_000 != 0 {
                    return Err("a date with a time of day; cast it to a timestamp".into());
                }
                push_date(out, millis / 86_400_000)
            }))
        }
        DataType::Timestamp(unit, zone) => timestamps(array, *unit, zone.is_some()),
        DataType::Time32(unit) => match unit {
            TimeUnit::Second => times(array.as_primitive::<Time32SecondType>().values().clone(), 1_000_000, 1),
            _ => times(array.as_primitive::<Time32MillisecondType>().values().clone(), 1_000, 1),
        },
        DataType::Time64(unit) => match unit {
            TimeUnit::Microsecond => times(array.as_primitive::<Time64MicrosecondType>().values().clone(), 1, 1),
            _ => times(array.as_primitive::<Time64NanosecondType>().values().clone(), 1, 1_000),
        },
        DataType::Utf8 => {
            let array = array.as_string::<i32>();
            Values::Text(Text::of_offsets(array, Strings::Utf8(array.clone())))
        }
        DataType::LargeUtf8 => {
            let array = array.as_string::<i64>();
            Values::Text(Text::of_offsets(array, Strings::LargeUtf8(array.clone())))
        }
        DataType::Utf8View => Values::Text(Text { array: Strings::View(array.as_string_view().clone()), plain: false }),
        DataType::Dictionary(_, value) => return cast_first(array, value),
        DataType::RunEndEncoded(_, value) => return cast_first(array, value.data_type()),
        DataType::ListView(item) => return cast_first(array, &DataType::List(Arc::clone(item))),
        DataType::LargeListView(item) => return cast_first(array, &DataType::LargeList(Arc::clone(item))),
        DataType::List(_) => {
            let list = array.as_list::<i32>();
            lists(list.offsets().clone(), Column::new(list.values())?)
        }
        DataType::LargeList(_) => {
            let list = array.as_list::<i64>();
            lists(list.offsets().clone(), Column::new(list.values())?)
        }
        DataType::FixedSizeList(_, length) => {
            let length = usize::try_from(*length).unwrap_or(0);
            let items = Column::new(array.as_fixed_size_list().values())?;
            Values::Nested(Box::new(move |row, out| push_items(out, &items, row * length..(row + 1) * length)))
        }
        DataType::Map(..) => maps(array)?,
        DataType::Struct(_) => structs(array)?,
        other => return Err(supported(other).err().unwrap_or_else(|| format!("type {other} cannot be written"))),
    })
}

fn cast_first(array: &ArrayRef, to: &DataType) -> Result<Values, String> {
    let plain = arrow::compute::cast(array, to).map_err(|error| error.to_string())?;
    values(&plain)
}

/// The shortest text that reads back as the same value; with an exponent only where it is far from 1.
fn push_float(out: &mut Vec<u8>, value: impl zmij::Float, nan: bool, infinite: bool, negative: bool) -> bool {
    if nan {
        out.extend_from_slice(b"NaN");
    } else if infinite {
        out.extend_from_slice(if negative { b"-Infinity" } else { b"Infinity" });
    } else {
        out.extend_from_slice(zmij::Buffer::new().format_finite(value).as_bytes());
    }
    !nan && !infinite
}

/// Naive timestamps are wall clocks. Zoned ones are instants: their UTC wall clock with the suffix `+00:00`, which
/// the server converts to the zone of the load (`timezone` header) for DATETIME and keeps for TIMESTAMPTZ.
fn timestamps(array: &ArrayRef, unit: TimeUnit, zoned: bool) -> Values {
    let (raw, multiply, divide) = match unit {
        TimeUnit::Second => (array.as_primitive::<TimestampSecondType>().values().clone(), 1_000_000, 1),
        TimeUnit::Millisecond => (array.as_primitive::<TimestampMillisecondType>().values().clone(), 1_000, 1),
        TimeUnit::Microsecond => (array.as_primitive::<TimestampMicrosecondType>().values().clone(), 1, 1),
        TimeUnit::Nanosecond => (array.as_primitive::<TimestampNanosecondType>().values().clone(), 1, 1_000),
    };
    Values::Quoted(Box::new(move |row, out| {
        push_datetime(out, micros(raw[row], multiply, divide)?)?;
        if zoned {
            out.extend_from_slice(b"+00:00");
        }
        Ok(())
    }))
}

fn times<T>(raw: arrow::buffer::ScalarBuffer<T>, multiply: i64, divide: i64) -> Values
where
    T: arrow::datatypes::ArrowNativeType + Into<i64> + Send + Sync,
{
    Values::Quoted(Box::new(move |row, out| {
        let micros = micros(raw[row].into(), multiply, divide)?;
        if !(0..DAY_MICROS).contains(&micros) {
            return Err("the time is outside of 00:00:00 to 23:59:59".into());
        }
        push_time(out, micros);
        Ok(())
    }))
}

fn micros(raw: i64, multiply: i64, divide: i64) -> Result<i64, String> {
    if raw % divide != 0 {
        return Err("more than 6 fractional digits of a second; cast it to microseconds".into());
    }
    (raw / divide).checked_mul(multiply).ok_or_else(|| "the year is outside of 0000 to 9999".into())
}

fn lists<O: OffsetSizeTrait>(offsets: OffsetBuffer<O>, items: Column) -> Values {
    Values::Nested(Box::new(move |row, out| {
        push_items(out, &items, offsets[row].as_usize()..offsets[row + 1].as_usize())
    }))
}

fn push_items(out: &mut Vec<u8>, items: &Column, range: std::ops::Range<usize>) -> Result<(), String> {
    out.push(b'[');
    let first = range.start;
    for at in range {
        if at > first {
            out.push(b',');
        }
        push_value(out, items, at, true)?;
    }
    out.push(b']');
    Ok(())
}

fn maps(array: &ArrayRef) -> Result<Values, String> {
    let map = array.as_map();
    let offsets = map.offsets().clone();
    let (keys, items) = (Column::new(map.keys())?, Column::new(map.values())?);
    Ok(Values::Nested(Box::new(move |row, out| {
        out.push(b'{');
        let range = offsets[row] as usize..offsets[row + 1] as usize;
        let first = range.start;
        for at in range {
            if at > first {
                out.push(b',');
            }
            push_key(out, &keys, at)?;
            out.push(b':');
            push_value(out, &items, at, true)?;
        }
        out.push(b'}');
        Ok(())
    })))
}

/// A JSON key is a string, whatever the type of the map's keys.
fn push_key(out: &mut Vec<u8>, keys: &Column, at: usize) -> Result<(), String> {
    match &keys.values {
        Values::Text(text) => push_text(out, text, at),
        Values::Number(write) | Values::Exact(write) | Values::Quoted(write) => {
            out.push(b'"');
            write(at, out)?;
            out.push(b'"');
        }
        Values::Float(write) => {
            out.push(b'"');
            write(at, out);
            out.push(b'"');
        }
        Values::Null | Values::Nested(_) => return Err("a map key that is no plain value".into()),
    }
    Ok(())
}

fn structs(array: &ArrayRef) -> Result<Values, String> {
    let array = array.as_struct();
    let mut members = Vec::with_capacity(array.num_columns());
    for (field, column) in array.fields().iter().zip(array.columns()) {
        let mut key = Vec::new();
        push_string(&mut key, field.name());
        key.push(b':');
        members.push((key, Column::new(column)?));
    }
    Ok(Values::Nested(Box::new(move |row, out| {
        out.push(b'{');
        for (at, (key, column)) in members.iter().enumerate() {
            if at > 0 {
                out.push(b',');
            }
            out.extend_from_slice(key);
            push_value(out, column, row, true)?;
        }
        out.push(b'}');
        Ok(())
    })))
}
