//! Conversion of whole arrays to the storage type of a column.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Decimal256Array, ListArray, MapArray, StructArray,
    TimestampMicrosecondArray, TimestampMillisecondArray, TimestampSecondArray, UInt32Array,
};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, Int32Type, Time64MicrosecondType, TimeUnit, TimestampMicrosecondType, i256};
use arrow::error::ArrowError;

use super::builder::ColumnBuilder;
use super::datetime::DAY_MICROS;
use super::text::{TextStyle, text_value};
use super::zone::SessionZone;
use super::{DorisType, datetime_unit};

/// Casts by Arrow's rules; values that do not fit become NULL.
///
/// # Errors
/// The pair of types has no cast.
pub fn cast_array(array: &ArrayRef, target: &DataType) -> Result<ArrayRef, ArrowError> {
    if array.data_type() == target {
        return Ok(Arc::clone(array));
    }
    cast_with_options(array, target, &CastOptions { safe: true, ..CastOptions::default() })
}

/// Converts an array to the storage form of `ty` by Doris's cast rules: what cannot be converted becomes NULL.
///
/// # Errors
/// The pair of types has no conversion.
pub fn conform(array: &ArrayRef, ty: &DorisType) -> Result<ArrayRef, ArrowError> {
    conform_in(array, ty, &SessionZone::UTC)
}

/// As [`conform`]; instants (timestamps with a zone) and texts with a zone suffix become the wall clock of `zone`.
///
/// # Errors
/// As [`conform`].
pub fn conform_in(array: &ArrayRef, ty: &DorisType, zone: &SessionZone) -> Result<ArrayRef, ArrowError> {
    let target = ty.storage();
    let source = array.data_type();
    if source == &target {
        return match ty {
            // The texts of these must be read, whatever they were before.
            DorisType::Json | DorisType::Variant | DorisType::Ipv6 => {
                let mut builder = ColumnBuilder::in_zone(ty, *zone);
                for text in array.as_string::<i32>() {
                    match text {
                        Some(text) if builder.append_text(text).is_ok() => {}
                        _ => builder.append_null(),
                    }
                }
                Ok(builder.finish())
            }
            DorisType::DateTime(p) if !matches!(p, 0 | 3 | 6) => Ok(truncate_fraction(array, *p)),
            _ => Ok(Arc::clone(array)),
        };
    }
    match (source, ty) {
        (DataType::Null, _) => Ok(arrow::array::new_null_array(&target, array.len())),
        (DataType::Dictionary(_, value), _) => {
            let flat = cast_array(array, value)?;
            conform_in(&flat, ty, zone)
        }
        (DataType::Utf8View | DataType::LargeUtf8, _) => {
            let flat = cast_array(array, &DataType::Utf8)?;
            conform_in(&flat, ty, zone)
        }
        (DataType::Utf8, _) => {
            let mut builder = ColumnBuilder::in_zone(ty, *zone);
            for text in array.as_string::<i32>() {
                match text {
                    Some(text) if builder.append_text(text).is_ok() => {}
                    _ => builder.append_null(),
                }
            }
            Ok(builder.finish())
        }
        (DataType::Time64(_), DorisType::Time(p)) => {
            let unit = 10_i64.pow(u32::from(6 - *p));
            let values = array.as_primitive::<Time64MicrosecondType>();
            Ok(Arc::new(values.unary::<_, Time64MicrosecondType>(|v| v / unit * unit)))
        }
        (DataType::Timestamp(_, None) | DataType::Date32, DorisType::Time(p)) => {
            let micros = conform_in(array, &DorisType::DateTime(6), zone)?;
            let micros = micros.as_primitive::<TimestampMicrosecondType>();
            let unit = 10_i64.pow(u32::from(6 - *p));
            Ok(Arc::new(micros.unary::<_, Time64MicrosecondType>(|v| v.rem_euclid(DAY_MICROS) / unit * unit)))
        }
        (DataType::Timestamp(_, Some(_)), DorisType::TimestampTz(p)) => {
            let micros = cast_array(array, &DataType::Timestamp(TimeUnit::Microsecond, None))?;
            instants(&micros, *p, |v| v)
        }
        (DataType::Timestamp(_, None) | DataType::Date32, DorisType::TimestampTz(p)) => {
            let micros = conform_in(array, &DorisType::DateTime(6), zone)?;
            instants(&micros, *p, |v| {
                zone.instant_of_wall(v.div_euclid(1_000_000)) * 1_000_000 + v.rem_euclid(1_000_000)
            })
        }
        (DataType::Int32, DorisType::Ipv4) => {
            let bits = array.as_primitive::<Int32Type>();
            Ok(Arc::new(bits.iter().map(|v| v.map(|v| v as u32)).collect::<UInt32Array>()))
        }
        (_, DorisType::Char(_) | DorisType::Varchar(_) | DorisType::String) => {
            let from = DorisType::of_arrow(source).unwrap_or(DorisType::Null);
            let texts: arrow::array::StringArray =
                (0..array.len()).map(|row| text_value(array, row, &from, TextStyle::Cast)).collect();
            conform_in(&(Arc::new(texts) as ArrayRef), ty, zone)
        }
        (DataType::Timestamp(_, Some(_)), DorisType::DateTime(_) | DorisType::Date) => {
            let naive = wall_clock(array, zone)?;
            conform_in(&naive, ty, zone)
        }
        (DataType::Timestamp(_, None) | DataType::Date64, DorisType::DateTime(p)) => {
            let cast = rescale_timestamp(array, &target)?;
            Ok(if matches!(p, 0 | 3 | 6) { cast } else { truncate_fraction(&cast, *p) })
        }
        (DataType::Boolean, _) => {
            let numbers: arrow::array::Int8Array = array.as_boolean().iter().map(|v| v.map(i8::from)).collect();
            conform_in(&(Arc::new(numbers) as ArrayRef), ty, zone)
        }
        (DataType::List(_) | DataType::LargeList(_), DorisType::Array(item)) => {
            let list = cast_to_list(array)?;
            let DataType::List(field) = &target else { return Err(no_cast(source, ty)) };
            let values = conform_in(list.values(), item, zone)?;
            Ok(Arc::new(ListArray::try_new(Arc::clone(field), list.offsets().clone(), values, list.nulls().cloned())?))
        }
        (DataType::Map(..), DorisType::Map(key, value)) => {
            let map = array.as_map();
            let DataType::Map(field, _) = &target else { return Err(no_cast(source, ty)) };
            let DataType::Struct(fields) = field.data_type() else { return Err(no_cast(source, ty)) };
            let columns = vec![conform_in(map.keys(), key, zone)?, conform_in(map.values(), value, zone)?];
            let entries = StructArray::try_new(fields.clone(), columns, None)?;
            Ok(Arc::new(MapArray::try_new(
                Arc::clone(field),
                map.offsets().clone(),
                entries,
                map.nulls().cloned(),
                false,
            )?))
        }
        (DataType::Struct(from), DorisType::Struct(types)) if from.len() == types.len() => {
            let DataType::Struct(fields) = &target else { return Err(no_cast(source, ty)) };
            let values = array.as_struct();
            let mut columns = Vec::with_capacity(types.len());
            for (i, (name, ty)) in types.iter().enumerate() {
                let column = values.column_by_name(name).unwrap_or_else(|| values.column(i));
                columns.push(conform_in(column, ty, zone)?);
            }
            Ok(Arc::new(StructArray::try_new(fields.clone(), columns, values.nulls().cloned())?))
        }
        (DataType::Float32 | DataType::Float64, DorisType::Boolean) | (_, DorisType::Boolean) => {
            let numbers = cast_array(array, &DataType::Float64)?;
            let numbers = numbers.as_primitive::<arrow::datatypes::Float64Type>();
            Ok(Arc::new(numbers.iter().map(|v| v.map(|v| v != 0.0)).collect::<BooleanArray>()))
        }
        (
            DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Int64 | DataType::Decimal128(..),
            DorisType::Date | DorisType::DateTime(_),
        ) => {
            // 20240131 and 20240131235959 are dates.
            let from = DorisType::of_arrow(source).unwrap_or(DorisType::Null);
            let texts: arrow::array::StringArray =
                (0..array.len()).map(|row| text_value(array, row, &from, TextStyle::Cast)).collect();
            conform_in(&(Arc::new(texts) as ArrayRef), ty, zone)
        }
        (DataType::Date32 | DataType::Timestamp(..) | DataType::Time64(_), ty) if is_number(ty) => {
            Err(no_cast(source, ty))
        }
        (_, DorisType::LargeInt) => whole_numbers(array),
        (_, DorisType::Time(_) | DorisType::Bitmap | DorisType::Hll) => Err(no_cast(source, ty)),
        _ => cast_array(array, &target),
    }
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

fn no_cast(source: &DataType, ty: &DorisType) -> ArrowError {
    ArrowError::CastError(format!("the sandbox does not implement a cast of {source} to {ty}"))
}

fn cast_to_list(array: &ArrayRef) -> Result<ListArray, ArrowError> {
    match array.data_type() {
        DataType::LargeList(field) => {
            let flat = cast_array(array, &DataType::List(Arc::clone(field)))?;
            Ok(flat.as_list::<i32>().clone())
        }
        _ => Ok(array.as_list::<i32>().clone()),
    }
}

/// Integer rescale of naive timestamps; a finer fraction is cut toward the past, as stored values are.
fn rescale_timestamp(array: &ArrayRef, target: &DataType) -> Result<ArrayRef, ArrowError> {
    let micros = cast_array(array, &DataType::Timestamp(TimeUnit::Microsecond, None))?;
    let micros = micros.as_primitive::<TimestampMicrosecondType>();
    let scaled: ArrayRef = match target {
        DataType::Timestamp(TimeUnit::Second, None) => {
            Arc::new(micros.unary::<_, arrow::datatypes::TimestampSecondType>(|v| v.div_euclid(1_000_000)))
        }
        DataType::Timestamp(TimeUnit::Millisecond, None) => {
            Arc::new(micros.unary::<_, arrow::datatypes::TimestampMillisecondType>(|v| v.div_euclid(1000)))
        }
        _ => Arc::new(micros.clone()),
    };
    Ok(scaled)
}

fn truncate_fraction(array: &ArrayRef, precision: u8) -> ArrayRef {
    let per_second_digits = if precision <= 3 { 3 } else { 6 };
    let unit = 10_i64.pow(u32::from(per_second_digits - precision));
    if precision <= 3 {
        let values = array.as_primitive::<arrow::datatypes::TimestampMillisecondType>();
        Arc::new(values.unary::<_, arrow::datatypes::TimestampMillisecondType>(|v| v.div_euclid(unit) * unit))
    } else {
        let values = array.as_primitive::<TimestampMicrosecondType>();
        Arc::new(values.unary::<_, TimestampMicrosecondType>(|v| v.div_euclid(unit) * unit))
    }
}

/// Microseconds of instants as a TIMESTAMPTZ; a finer fraction is cut.
fn instants(micros: &ArrayRef, precision: u8, instant: impl Fn(i64) -> i64) -> Result<ArrayRef, ArrowError> {
    let unit = 10_i64.pow(u32::from(6 - precision));
    let values = micros.as_primitive::<TimestampMicrosecondType>();
    let cut = |v: i64| instant(v).div_euclid(unit) * unit;
    let tag = super::INSTANT_ZONE;
    Ok(match datetime_unit(precision) {
        TimeUnit::Second => {
            let scaled: TimestampSecondArray = values.unary(|v| cut(v).div_euclid(1_000_000));
            Arc::new(scaled.with_timezone(tag))
        }
        TimeUnit::Millisecond => {
            let scaled: TimestampMillisecondArray = values.unary(|v| cut(v).div_euclid(1000));
            Arc::new(scaled.with_timezone(tag))
        }
        _ => {
            let scaled: TimestampMicrosecondArray = values.unary(cut);
            Arc::new(scaled.with_timezone(tag))
        }
    })
}

/// Numbers as LARGEINT: a fraction is cut, what needs more than 128 bits is NULL.
fn whole_numbers(array: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    let whole = |text: String| -> Option<i256> { text.split('.').next()?.parse::<i128>().ok().map(i256::from_i128) };
    let out: Decimal256Array = match array.data_type() {
        DataType::Float32 | DataType::Float64 => {
            let values = cast_array(array, &DataType::Float64)?;
            // Every finite double below 2^127 prints all its digits.
            let values = values.as_primitive::<arrow::datatypes::Float64Type>();
            values
                .iter()
                .map(|v| v.filter(|v| v.is_finite()).and_then(|v| whole(format!("{:.0}", v.trunc()))))
                .collect()
        }
        DataType::Decimal128(..) | DataType::Decimal256(..) => {
            let from = DorisType::of_arrow(array.data_type()).unwrap_or(DorisType::Null);
            let text = |row| text_value(array, row, &from, TextStyle::Cast);
            (0..array.len()).map(|row| text(row).and_then(whole)).collect()
        }
        _ => return cast_array(array, &DorisType::LargeInt.storage()),
    };
    Ok(Arc::new(out.with_precision_and_scale(39, 0)?))
}

/// Instants as the wall clock of a zone.
fn wall_clock(array: &ArrayRef, zone: &SessionZone) -> Result<ArrayRef, ArrowError> {
    let micros = cast_array(array, &DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())))?;
    let micros = micros.as_primitive::<TimestampMicrosecondType>();
    let shifted =
        micros.unary::<_, TimestampMicrosecondType>(|v| v + zone.offset_at(v.div_euclid(1_000_000)) * 1_000_000);
    Ok(Arc::new(shifted))
}
