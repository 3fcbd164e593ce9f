//! Single values, for what works row by row: functions and aggregates.

use std::cmp::Ordering;

use arrow::array::{Array, AsArray};
use arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Decimal256Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type,
    Int64Type, Time64MicrosecondType, TimeUnit, TimestampMicrosecondType, TimestampMillisecondType,
    TimestampSecondType, UInt32Type, UInt64Type, i256,
};

use super::{ColumnBuilder, DorisType, TextStyle, text_value};

/// A value of any type.
#[derive(Debug, Clone)]
pub enum Value {
    /// NULL
    Null,
    /// BOOLEAN
    Bool(bool),
    /// TINYINT to LARGEINT, and the bits of an IPV4.
    Int(i128),
    /// FLOAT and DOUBLE
    Float(f64),
    /// Unscaled DECIMAL and its scale.
    Decimal(i256, u8),
    /// Texts, JSON, IPV6
    Text(String),
    /// BITMAP and HLL as stored.
    Bytes(Vec<u8>),
    /// Days since 1970-01-01.
    Date(i32),
    /// Microseconds of the wall clock.
    DateTime(i64),
    /// Microseconds of a TIME.
    Time(i64),
    /// Microseconds of an instant.
    Instant(i64),
    /// ARRAY
    List(Vec<Value>),
    /// MAP
    Map(Vec<(Value, Value)>),
    /// STRUCT
    Struct(Vec<Value>),
}

/// Ten to a power, within 256 bits.
pub fn ten_to(power: u8) -> i256 {
    let mut out = i256::ONE;
    for _ in 0..power.min(76) {
        out = out.wrapping_mul(i256::from_i128(10));
    }
    out
}

/// An unscaled decimal at another scale, rounded half away from zero; `None` when it does not fit 256 bits.
pub fn rescale(value: i256, from: u8, to: u8) -> Option<i256> {
    if to >= from {
        return value.checked_mul(ten_to(to - from));
    }
    let unit = ten_to(from - to);
    let (quotient, remainder) = (value.checked_div(unit)?, value.checked_rem(unit)?);
    let twice = remainder.wrapping_abs().checked_mul(i256::from_i128(2))?;
    let one = if value.is_negative() { i256::MINUS_ONE } else { i256::ONE };
    Some(if twice >= unit { quotient.checked_add(one)? } else { quotient })
}

impl Value {
    /// The value of a row of a storage array.
    pub fn read(array: &dyn Array, row: usize, ty: &DorisType) -> Self {
        if array.is_null(row) {
            return Self::Null;
        }
        match array.data_type() {
            DataType::Boolean => Self::Bool(array.as_boolean().value(row)),
            DataType::Int8 => Self::Int(array.as_primitive::<Int8Type>().value(row).into()),
            DataType::Int16 => Self::Int(array.as_primitive::<Int16Type>().value(row).into()),
            DataType::Int32 => Self::Int(array.as_primitive::<Int32Type>().value(row).into()),
            DataType::Int64 => Self::Int(array.as_primitive::<Int64Type>().value(row).into()),
            DataType::UInt32 => Self::Int(array.as_primitive::<UInt32Type>().value(row).into()),
            DataType::UInt64 => Self::Int(array.as_primitive::<UInt64Type>().value(row).into()),
            DataType::Float32 => Self::Float(array.as_primitive::<Float32Type>().value(row).into()),
            DataType::Float64 => Self::Float(array.as_primitive::<Float64Type>().value(row)),
            DataType::Decimal128(_, scale) => {
                Self::Decimal(i256::from_i128(array.as_primitive::<Decimal128Type>().value(row)), *scale as u8)
            }
            DataType::Decimal256(_, scale) => {
                let value = array.as_primitive::<Decimal256Type>().value(row);
                match (ty, value.to_i128()) {
                    (DorisType::LargeInt, Some(whole)) => Self::Int(whole),
                    _ => Self::Decimal(value, *scale as u8),
                }
            }
            DataType::Utf8 => Self::Text(array.as_string::<i32>().value(row).to_owned()),
            DataType::LargeUtf8 => Self::Text(array.as_string::<i64>().value(row).to_owned()),
            DataType::Utf8View => Self::Text(array.as_string_view().value(row).to_owned()),
            DataType::Binary => Self::Bytes(array.as_binary::<i32>().value(row).to_vec()),
            DataType::LargeBinary => Self::Bytes(array.as_binary::<i64>().value(row).to_vec()),
            DataType::Date32 => Self::Date(array.as_primitive::<Date32Type>().value(row)),
            DataType::Time64(_) => Self::Time(array.as_primitive::<Time64MicrosecondType>().value(row)),
            DataType::Timestamp(unit, zone) => {
                let micros = match unit {
                    TimeUnit::Second => array.as_primitive::<TimestampSecondType>().value(row) * 1_000_000,
                    TimeUnit::Millisecond => array.as_primitive::<TimestampMillisecondType>().value(row) * 1000,
                    _ => array.as_primitive::<TimestampMicrosecondType>().value(row),
                };
                if zone.is_some() { Self::Instant(micros) } else { Self::DateTime(micros) }
            }
            DataType::List(field) => {
                let items = array.as_list::<i32>().value(row);
                let item_type = match ty {
                    DorisType::Array(item) => (**item).clone(),
                    _ => DorisType::of_field(field).unwrap_or(DorisType::Null),
                };
                Self::List((0..items.len()).map(|i| Self::read(&items, i, &item_type)).collect())
            }
            DataType::Map(..) => {
                let DorisType::Map(key, value) = ty else { return Self::Null };
                let entries = array.as_map().value(row);
                let read = |i| (Self::read(entries.column(0), i, key), Self::read(entries.column(1), i, value));
                Self::Map((0..entries.len()).map(read).collect())
            }
            DataType::Struct(_) => {
                let DorisType::Struct(fields) = ty else { return Self::Null };
                let columns = array.as_struct().columns().iter().zip(fields);
                Self::Struct(columns.map(|(column, (_, ty))| Self::read(column, row, ty)).collect())
            }
            _ => Self::Null,
        }
    }

    /// Whether it is NULL.
    pub fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }

    /// The number as a double.
    pub fn as_f64(&self) -> Option<f64> {
        match self {
            Self::Bool(flag) => Some(f64::from(u8::from(*flag))),
            Self::Int(value) => Some(*value as f64),
            Self::Float(value) => Some(*value),
            Self::Decimal(value, scale) => super::decimal::format_unscaled(&value.to_string(), *scale).parse().ok(),
            _ => None,
        }
    }

    /// Order of values: NULL before all, NaN above all numbers and equal to itself, -0 equal to 0, texts by bytes.
    pub fn compare(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Null, Self::Null) => Ordering::Equal,
            (Self::Null, _) => Ordering::Less,
            (_, Self::Null) => Ordering::Greater,
            (Self::Bool(a), Self::Bool(b)) => a.cmp(b),
            (Self::Int(a), Self::Int(b)) => a.cmp(b),
            (Self::Text(a), Self::Text(b)) => a.as_bytes().cmp(b.as_bytes()),
            (Self::Bytes(a), Self::Bytes(b)) => a.cmp(b),
            (Self::Date(a), Self::Date(b)) => a.cmp(b),
            (Self::DateTime(a), Self::DateTime(b))
            | (Self::Time(a), Self::Time(b))
            | (Self::Instant(a), Self::Instant(b)) => a.cmp(b),
            (Self::Date(a), Self::DateTime(b)) => (i64::from(*a) * super::datetime::DAY_MICROS).cmp(b),
            (Self::DateTime(a), Self::Date(b)) => a.cmp(&(i64::from(*b) * super::datetime::DAY_MICROS)),
            (Self::List(a), Self::List(b)) | (Self::Struct(a), Self::Struct(b)) => {
                let first = a.iter().zip(b).map(|(a, b)| a.compare(b)).find(|order| order.is_ne());
                first.unwrap_or_else(|| a.len().cmp(&b.len()))
            }
            (Self::Map(a), Self::Map(b)) => {
                let pairs = a.iter().zip(b).map(|(a, b)| a.0.compare(&b.0).then_with(|| a.1.compare(&b.1)));
                pairs.into_iter().find(|order| order.is_ne()).unwrap_or_else(|| a.len().cmp(&b.len()))
            }
            (Self::Decimal(a, s), Self::Decimal(b, t)) => compare_decimals(*a, *s, *b, *t),
            (Self::Decimal(a, s), Self::Int(b)) => compare_decimals(*a, *s, i256::from_i128(*b), 0),
            (Self::Int(a), Self::Decimal(b, s)) => compare_decimals(i256::from_i128(*a), 0, *b, *s),
            (a, b) => match (a.as_f64(), b.as_f64()) {
                (Some(a), Some(b)) => compare_floats(a, b),
                _ => a.rank().cmp(&b.rank()),
            },
        }
    }

    fn rank(&self) -> u8 {
        match self {
            Self::Null => 0,
            Self::Bool(_) | Self::Int(_) | Self::Float(_) | Self::Decimal(..) => 1,
            Self::Text(_) => 2,
            Self::Bytes(_) => 3,
            Self::Date(_) | Self::DateTime(_) | Self::Time(_) | Self::Instant(_) => 4,
            Self::List(_) => 5,
            Self::Map(_) => 6,
            Self::Struct(_) => 7,
        }
    }

    /// Text of a value of a type, as a cast to STRING gives it; `None` for NULL.
    pub fn text(&self, ty: &DorisType) -> Option<String> {
        match self {
            Self::Null => None,
            Self::Text(text) => Some(text.clone()),
            Self::Int(value) if *ty != DorisType::Ipv4 => Some(value.to_string()),
            _ => {
                let mut builder = ColumnBuilder::new(ty, true);
                builder.append_value(self).ok()?;
                text_value(&builder.finish(), 0, ty, TextStyle::Cast)
            }
        }
    }
}

fn compare_decimals(a: i256, s: u8, b: i256, t: u8) -> Ordering {
    let scale = s.max(t);
    match (rescale(a, s, scale), rescale(b, t, scale)) {
        (Some(a), Some(b)) => a.cmp(&b),
        // Too large for the common scale: the sign or the magnitude decides.
        (None, _) => {
            if a.is_negative() {
                Ordering::Less
            } else {
                Ordering::Greater
            }
        }
        (_, None) => {
            if b.is_negative() {
                Ordering::Greater
            } else {
                Ordering::Less
            }
        }
    }
}

fn compare_floats(a: f64, b: f64) -> Ordering {
    a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}

impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        self.compare(other).is_eq()
    }
}

impl Eq for Value {}

impl PartialOrd for Value {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Value {
    fn cmp(&self, other: &Self) -> Ordering {
        self.compare(other)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;
    use crate::types::parse_type;

    #[test]
    fn values_survive_their_columns() {
        for (ty, text) in [
            ("largeint", "-170141183460469231731687303715884105728"),
            ("decimal(76,3)", "-1234567890.123"),
            ("decimal(10,2)", "1.50"),
            ("datetime(3)", "0000-01-01 00:00:00.123"),
            ("date", "9999-12-31"),
            ("ipv4", "255.0.0.1"),
            ("time(2)", "-10:00:00.25"),
            ("float", "0.1"),
            ("double", "NaN"),
            ("array<decimal(40,2)>", "[1.25, null]"),
            ("map<string,largeint>", "{\"a\":170141183460469231731687303715884105727}"),
            ("struct<a:int,b:string>", "{\"a\":1, \"b\":\"x\"}"),
        ] {
            let ty = parse_type(ty).unwrap();
            let mut builder = ColumnBuilder::new(&ty, true);
            builder.append_text(text).unwrap();
            let array = builder.finish();
            let value = Value::read(&array, 0, &ty);
            let mut again = ColumnBuilder::new(&ty, true);
            again.append_value(&value).unwrap();
            assert_eq!(&again.finish(), &array, "{ty}");
            assert_eq!(value.text(&ty).as_deref(), Some(text), "{ty}");
        }
    }

    #[test]
    fn numbers_compare_across_types() {
        let decimal = |v: i128, s| Value::Decimal(i256::from_i128(v), s);
        let ascending = [
            Value::Null,
            Value::Float(f64::NEG_INFINITY),
            Value::Int(-1),
            decimal(-5, 1),
            Value::Float(-0.0),
            decimal(1, 1),
            Value::Int(2),
            decimal(201, 2),
            Value::Float(f64::INFINITY),
            Value::Float(f64::NAN),
        ];
        for pair in ascending.windows(2) {
            assert_eq!(pair[0].compare(&pair[1]), Ordering::Less, "{pair:?}");
        }
        assert_eq!(Value::Float(-0.0), Value::Float(0.0));
        assert_eq!(Value::Float(f64::NAN), Value::Float(f64::NAN));
        assert_eq!(rescale(i256::from_i128(-15), 1, 0), Some(i256::from_i128(-2)));
    }
}
