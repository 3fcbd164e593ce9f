//! Building columns from load text and JSON, one typed Arrow builder per Doris type.

use std::fmt;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryBuilder, BooleanBuilder, Date32Builder, Decimal128Builder, Decimal256Builder, LargeBinaryBuilder,
    ListArray, MapArray, NullArray, PrimitiveBuilder, StringBuilder, StructArray, Time64MicrosecondBuilder,
    TimestampMicrosecondBuilder, TimestampMillisecondBuilder, TimestampSecondBuilder, UInt32Builder,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::{DataType, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, TimeUnit};
use serde_json::Value;

use super::datetime::{DAY_MICROS, parse_datetime};
use super::zone::SessionZone;
use super::{DorisType, Nested, canonical_json, datetime_unit, decimal, nested, parse_time};

/// Why a text is not a value of a type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValueError {
    /// What is wrong, naming the value and the type.
    pub message: String,
}

impl fmt::Display for ValueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ValueError {}

/// Builds one column of storage type. A failed append appends nothing: the caller appends a NULL instead (non-strict)
/// or drops the row (append a NULL to keep the columns level, and filter the batch afterwards).
pub struct ColumnBuilder {
    ty: DorisType,
    zone: SessionZone,
    inner: Inner,
}

enum Inner {
    Null(usize),
    Bool(BooleanBuilder),
    I8(PrimitiveBuilder<Int8Type>),
    I16(PrimitiveBuilder<Int16Type>),
    I32(PrimitiveBuilder<Int32Type>),
    I64(PrimitiveBuilder<Int64Type>),
    F32(PrimitiveBuilder<Float32Type>),
    F64(PrimitiveBuilder<Float64Type>),
    D128(Decimal128Builder),
    D256(Decimal256Builder),
    Text(StringBuilder),
    Date(Date32Builder),
    Second(TimestampSecondBuilder),
    Milli(TimestampMillisecondBuilder),
    Micro(TimestampMicrosecondBuilder),
    Time(Time64MicrosecondBuilder),
    Ipv4(UInt32Builder),
    Bitmap(BinaryBuilder),
    Hll(LargeBinaryBuilder),
    List { child: Box<ColumnBuilder>, offsets: Vec<i32>, valid: Vec<bool> },
    Map { key: Box<ColumnBuilder>, value: Box<ColumnBuilder>, offsets: Vec<i32>, valid: Vec<bool> },
    Struct { children: Vec<ColumnBuilder>, valid: Vec<bool> },
}

impl ColumnBuilder {
    /// A builder of the type's storage array. `nullable` is not enforced: NULLs are counted by the caller.
    pub fn new(ty: &DorisType, _nullable: bool) -> Self {
        Self::in_zone(ty, SessionZone::UTC)
    }

    /// As [`ColumnBuilder::new`]; texts with a zone suffix are converted to `zone`.
    pub fn in_zone(ty: &DorisType, zone: SessionZone) -> Self {
        let child = |ty: &DorisType| Box::new(Self::in_zone(ty, zone));
        let inner = match ty {
            DorisType::Null => Inner::Null(0),
            DorisType::Boolean => Inner::Bool(BooleanBuilder::new()),
            DorisType::TinyInt => Inner::I8(PrimitiveBuilder::new()),
            DorisType::SmallInt => Inner::I16(PrimitiveBuilder::new()),
            DorisType::Int => Inner::I32(PrimitiveBuilder::new()),
            DorisType::BigInt => Inner::I64(PrimitiveBuilder::new()),
            DorisType::Float => Inner::F32(PrimitiveBuilder::new()),
            DorisType::Double => Inner::F64(PrimitiveBuilder::new()),
            DorisType::LargeInt => Inner::D256(Decimal256Builder::new().with_data_type(ty.storage())),
            DorisType::Decimal { precision, .. } if *precision <= 38 => {
                Inner::D128(Decimal128Builder::new().with_data_type(ty.storage()))
            }
            DorisType::Decimal { .. } => Inner::D256(Decimal256Builder::new().with_data_type(ty.storage())),
            DorisType::Char(_)
            | DorisType::Varchar(_)
            | DorisType::String
            | DorisType::Json
            | DorisType::Variant
            | DorisType::Ipv6 => Inner::Text(StringBuilder::new()),
            DorisType::Date => Inner::Date(Date32Builder::new()),
            DorisType::DateTime(p) | DorisType::TimestampTz(p) => match datetime_unit(*p) {
                TimeUnit::Second => Inner::Second(TimestampSecondBuilder::new().with_data_type(ty.storage())),
                TimeUnit::Millisecond => Inner::Milli(TimestampMillisecondBuilder::new().with_data_type(ty.storage())),
                _ => Inner::Micro(TimestampMicrosecondBuilder::new().with_data_type(ty.storage())),
            },
            DorisType::Time(_) => Inner::Time(Time64MicrosecondBuilder::new()),
            DorisType::Bitmap => Inner::Bitmap(BinaryBuilder::new()),
            DorisType::Hll => Inner::Hll(LargeBinaryBuilder::new()),
            DorisType::Ipv4 => Inner::Ipv4(UInt32Builder::new()),
            DorisType::Array(item) => Inner::List { child: child(item), offsets: vec![0], valid: Vec::new() },
            DorisType::Map(key, value) => {
                Inner::Map { key: child(key), value: child(value), offsets: vec![0], valid: Vec::new() }
            }
            DorisType::Struct(fields) => Inner::Struct {
                children: fields.iter().map(|(_, ty)| Self::in_zone(ty, zone)).collect(),
                valid: Vec::new(),
            },
        };
        Self { ty: ty.clone(), zone, inner }
    }

    /// The type being built.
    pub fn doris_type(&self) -> &DorisType {
        &self.ty
    }

    /// Appends a NULL.
    pub fn append_null(&mut self) {
        match &mut self.inner {
            Inner::Null(n) => *n += 1,
            Inner::Bool(b) => b.append_null(),
            Inner::I8(b) => b.append_null(),
            Inner::I16(b) => b.append_null(),
            Inner::I32(b) => b.append_null(),
            Inner::I64(b) => b.append_null(),
            Inner::F32(b) => b.append_null(),
            Inner::F64(b) => b.append_null(),
            Inner::D128(b) => b.append_null(),
            Inner::D256(b) => b.append_null(),
            Inner::Text(b) => b.append_null(),
            Inner::Date(b) => b.append_null(),
            Inner::Second(b) => b.append_null(),
            Inner::Milli(b) => b.append_null(),
            Inner::Micro(b) => b.append_null(),
            Inner::Ipv4(b) => b.append_null(),
            Inner::Time(b) => b.append_null(),
            Inner::Bitmap(b) => b.append_null(),
            Inner::Hll(b) => b.append_null(),
            Inner::List { child, offsets, valid } => {
                offsets.push(child.len() as i32);
                valid.push(false);
            }
            Inner::Map { key, offsets, valid, .. } => {
                offsets.push(key.len() as i32);
                valid.push(false);
            }
            Inner::Struct { children, valid } => {
                children.iter_mut().for_each(Self::append_null);
                valid.push(false);
            }
        }
    }

    /// Rows so far.
    pub fn len(&self) -> usize {
        use arrow::array::ArrayBuilder;
        match &self.inner {
            Inner::Null(n) => *n,
            Inner::Bool(b) => b.len(),
            Inner::I8(b) => b.len(),
            Inner::I16(b) => b.len(),
            Inner::I32(b) => b.len(),
            Inner::I64(b) => b.len(),
            Inner::F32(b) => b.len(),
            Inner::F64(b) => b.len(),
            Inner::D128(b) => b.len(),
            Inner::D256(b) => b.len(),
            Inner::Text(b) => b.len(),
            Inner::Date(b) => b.len(),
            Inner::Second(b) => b.len(),
            Inner::Milli(b) => b.len(),
            Inner::Micro(b) => b.len(),
            Inner::Ipv4(b) => b.len(),
            Inner::Time(b) => b.len(),
            Inner::Bitmap(b) => b.len(),
            Inner::Hll(b) => b.len(),
            Inner::List { valid, .. } | Inner::Map { valid, .. } | Inner::Struct { valid, .. } => valid.len(),
        }
    }

    /// Whether nothing was appended.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn invalid(&self, text: &str) -> ValueError {
        let shown: String = text.chars().take(64).collect();
        ValueError { message: format!("parse failed, value `{shown}` is not a valid {}", self.ty) }
    }

    /// Appends the value of a text, read as Stream Load reads a CSV field.
    ///
    /// # Errors
    /// The text is not a value of the type, or is too long for it; nothing was appended.
    pub fn append_text(&mut self, text: &str) -> Result<(), ValueError> {
        let zone = self.zone;
        let wrong = || self.invalid(text);
        match (&self.ty, &self.inner) {
            (DorisType::Char(n) | DorisType::Varchar(n), _) if text.len() > *n as usize => {
                return Err(ValueError {
                    message: format!(
                        "the length of input is too long than schema, first 32 bytes of input str: [{}], schema length: {n}, actual length: {}",
                        first_bytes(text, 32),
                        text.len()
                    ),
                });
            }
            (DorisType::Bitmap | DorisType::Hll, _) => {
                let function = if self.ty == DorisType::Hll { "hll_hash" } else { "to_bitmap" };
                return Err(ValueError {
                    message: format!("parse failed, a {} value comes from a function such as {function}", self.ty),
                });
            }
            _ => {}
        }
        let normal = match &self.ty {
            DorisType::Ipv6 => Some(text.trim().parse::<std::net::Ipv6Addr>().map_err(|_| wrong())?.to_string()),
            DorisType::Json | DorisType::Variant => Some(canonical_json(text).ok_or_else(wrong)?),
            _ => None,
        };
        if self.ty.is_nested() {
            let value = nested::parse(text).ok_or_else(wrong)?;
            return match value {
                Nested::Null => Err(wrong()),
                value => self.append_nested(&value),
            };
        }
        macro_rules! parsed {
            ($builder:expr, $value:expr) => {
                match $value {
                    Some(value) => $builder.append_value(value),
                    None => return Err(self.invalid(text)),
                }
            };
        }
        match &mut self.inner {
            Inner::Null(n) => *n += 1,
            Inner::Bool(b) => parsed!(b, parse_bool(text)),
            Inner::I8(b) => parsed!(b, text.trim().parse().ok()),
            Inner::I16(b) => parsed!(b, text.trim().parse().ok()),
            Inner::I32(b) => parsed!(b, text.trim().parse().ok()),
            Inner::I64(b) => parsed!(b, text.trim().parse().ok()),
            Inner::F32(b) => parsed!(b, text.trim().parse().ok()),
            Inner::F64(b) => parsed!(b, text.trim().parse().ok()),
            Inner::D128(b) => match &self.ty {
                DorisType::Decimal { precision, scale } => parsed!(b, decimal::parse_128(text, *precision, *scale)),
                _ => return Err(self.invalid(text)),
            },
            Inner::D256(b) => match &self.ty {
                DorisType::LargeInt => parsed!(b, decimal::parse_largeint(text)),
                DorisType::Decimal { precision, scale } => parsed!(b, decimal::parse_256(text, *precision, *scale)),
                _ => return Err(self.invalid(text)),
            },
            Inner::Text(b) => b.append_value(normal.as_deref().unwrap_or(text)),
            Inner::Date(b) => parsed!(b, parse_datetime(text, 6, &zone).map(|m| m.div_euclid(DAY_MICROS) as i32)),
            Inner::Second(b) => {
                let read = match &self.ty {
                    DorisType::TimestampTz(_) => instant(text, 0, &zone),
                    _ => parse_datetime(text, 0, &zone),
                };
                parsed!(b, read.map(|m| m.div_euclid(1_000_000)));
            }
            Inner::Time(b) => match &self.ty {
                DorisType::Time(p) => parsed!(b, parse_time(text, *p)),
                _ => return Err(self.invalid(text)),
            },
            Inner::Milli(b) => match &self.ty {
                DorisType::DateTime(p) => parsed!(b, parse_datetime(text, *p, &zone).map(|m| m.div_euclid(1000))),
                DorisType::TimestampTz(p) => {
                    parsed!(b, instant(text, *p, &zone).map(|m| m.div_euclid(1000)));
                }
                _ => return Err(self.invalid(text)),
            },
            Inner::Micro(b) => match &self.ty {
                DorisType::DateTime(p) => parsed!(b, parse_datetime(text, *p, &zone)),
                DorisType::TimestampTz(p) => parsed!(b, instant(text, *p, &zone)),
                _ => return Err(self.invalid(text)),
            },
            Inner::Ipv4(b) => parsed!(b, text.trim().parse::<std::net::Ipv4Addr>().ok().map(u32::from)),
            Inner::Bitmap(_) | Inner::Hll(_) | Inner::List { .. } | Inner::Map { .. } | Inner::Struct { .. } => {
                return Err(self.invalid(text));
            }
        }
        Ok(())
    }

    /// Appends the state of a BITMAP or HLL as stored.
    ///
    /// # Errors
    /// The bytes are no such state, or the column is of another type; nothing was appended.
    pub fn append_state(&mut self, bytes: &[u8]) -> Result<(), ValueError> {
        let wrong = || ValueError { message: format!("parse failed, not a serialised {}", self.ty) };
        match &mut self.inner {
            Inner::Bitmap(b) if super::bitmap::Bitmap::from_bytes(bytes).is_some() => b.append_value(bytes),
            Inner::Hll(b) if super::hll::Hll::from_bytes(bytes).is_some() => b.append_value(bytes),
            _ => return Err(wrong()),
        }
        Ok(())
    }

    /// Appends a JSON value: scalars by their text, arrays and objects into nested types, anything into text types.
    ///
    /// # Errors
    /// As [`ColumnBuilder::append_text`].
    pub fn append_json(&mut self, value: &Value) -> Result<(), ValueError> {
        self.append_nested(&Nested::from(value))
    }

    /// As [`ColumnBuilder::append_json`], of a value that keeps the digits of its numbers.
    ///
    /// # Errors
    /// As [`ColumnBuilder::append_text`].
    pub fn append_nested(&mut self, value: &Nested) -> Result<(), ValueError> {
        let or_null = |child: &mut ColumnBuilder, item: &Nested| {
            if child.append_nested(item).is_err() {
                child.append_null();
            }
        };
        match (&mut self.inner, value) {
            (_, Nested::Null) => {
                self.append_null();
                Ok(())
            }
            (Inner::List { .. } | Inner::Map { .. } | Inner::Struct { .. }, Nested::Text(text)) => {
                self.append_text(text)
            }
            (Inner::List { child, offsets, valid }, Nested::List(items)) => {
                items.iter().for_each(|item| or_null(child, item));
                offsets.push(child.len() as i32);
                valid.push(true);
                Ok(())
            }
            (Inner::Map { key, value: values, offsets, valid }, Nested::Entries(entries)) => {
                for (name, item) in entries {
                    if key.append_nested(name).is_ok() {
                        or_null(values, item);
                    }
                }
                offsets.push(key.len() as i32);
                valid.push(true);
                Ok(())
            }
            (Inner::Struct { children, valid }, Nested::Entries(entries)) => {
                let DorisType::Struct(fields) = &self.ty else { return Err(self.invalid(&value.json())) };
                for ((name, _), child) in fields.iter().zip(children) {
                    let item = entries.iter().find(|(key, _)| key.text().eq_ignore_ascii_case(name));
                    or_null(child, item.map_or(&Nested::Null, |(_, item)| item));
                }
                valid.push(true);
                Ok(())
            }
            (Inner::Struct { children, valid }, Nested::List(items)) if items.len() == children.len() => {
                items.iter().zip(children).for_each(|(item, child)| or_null(child, item));
                valid.push(true);
                Ok(())
            }
            (Inner::List { .. } | Inner::Map { .. } | Inner::Struct { .. }, other) => Err(self.invalid(&other.json())),
            (Inner::Text(b), other) if matches!(self.ty, DorisType::Json | DorisType::Variant) => {
                b.append_value(other.json());
                Ok(())
            }
            (_, Nested::Bool(flag)) => match &self.ty {
                DorisType::Boolean | DorisType::Char(_) | DorisType::Varchar(_) | DorisType::String => {
                    self.append_text(if *flag { "true" } else { "false" })
                }
                _ => self.append_text(if *flag { "1" } else { "0" }),
            },
            (_, other) => self.append_text(&other.text()),
        }
    }

    /// The array of all appended values, in storage type.
    pub fn finish(&mut self) -> ArrayRef {
        if !self.ty.is_nested() {
            return self.finish_flat();
        }
        let storage = self.ty.storage();
        match (&mut self.inner, storage) {
            (Inner::List { child, offsets, valid }, DataType::List(field)) => {
                let offsets = OffsetBuffer::new(std::mem::replace(offsets, vec![0]).into());
                let nulls = NullBuffer::from(std::mem::take(valid));
                Arc::new(ListArray::new(field, offsets, child.finish(), Some(nulls).filter(|n| n.null_count() > 0)))
            }
            (Inner::Map { key, value, offsets, valid }, DataType::Map(field, _)) => {
                let DataType::Struct(fields) = field.data_type() else { return Arc::new(NullArray::new(0)) };
                let entries = StructArray::new(fields.clone(), vec![key.finish(), value.finish()], None);
                let offsets = OffsetBuffer::new(std::mem::replace(offsets, vec![0]).into());
                let nulls = NullBuffer::from(std::mem::take(valid));
                Arc::new(MapArray::new(field, offsets, entries, Some(nulls).filter(|n| n.null_count() > 0), false))
            }
            (Inner::Struct { children, valid }, DataType::Struct(fields)) => {
                let rows = valid.len();
                let nulls = NullBuffer::from(std::mem::take(valid));
                let arrays: Vec<ArrayRef> = children.iter_mut().map(Self::finish).collect();
                let nulls = Some(nulls).filter(|n| n.null_count() > 0);
                Arc::new(
                    StructArray::try_new_with_length(fields.clone(), arrays, nulls.clone(), rows)
                        .unwrap_or_else(|_| StructArray::new_null(fields, rows)),
                )
            }
            _ => Arc::new(NullArray::new(0)),
        }
    }

    fn finish_flat(&mut self) -> ArrayRef {
        match &mut self.inner {
            Inner::Null(n) => Arc::new(NullArray::new(std::mem::take(n))),
            Inner::Bool(b) => Arc::new(b.finish()),
            Inner::I8(b) => Arc::new(b.finish()),
            Inner::I16(b) => Arc::new(b.finish()),
            Inner::I32(b) => Arc::new(b.finish()),
            Inner::I64(b) => Arc::new(b.finish()),
            Inner::F32(b) => Arc::new(b.finish()),
            Inner::F64(b) => Arc::new(b.finish()),
            Inner::D128(b) => Arc::new(b.finish()),
            Inner::D256(b) => Arc::new(b.finish()),
            Inner::Text(b) => Arc::new(b.finish()),
            Inner::Date(b) => Arc::new(b.finish()),
            Inner::Second(b) => Arc::new(b.finish()),
            Inner::Milli(b) => Arc::new(b.finish()),
            Inner::Micro(b) => Arc::new(b.finish()),
            Inner::Ipv4(b) => Arc::new(b.finish()),
            Inner::Time(b) => Arc::new(b.finish()),
            Inner::Bitmap(b) => Arc::new(b.finish()),
            Inner::Hll(b) => Arc::new(b.finish()),
            Inner::List { .. } | Inner::Map { .. } | Inner::Struct { .. } => Arc::new(NullArray::new(0)),
        }
    }
}

impl ColumnBuilder {
    /// Appends a value, converted where its text is a value of the type.
    ///
    /// # Errors
    /// It does not fit the type; nothing was appended.
    pub fn append_value(&mut self, value: &super::Value) -> Result<(), ValueError> {
        use super::Value as V;
        let unscaled = |ty: &DorisType, value: &V| -> Option<arrow::datatypes::i256> {
            let DorisType::Decimal { precision, scale } = ty else { return None };
            let scaled = match value {
                V::Int(v) => super::rescale(arrow::datatypes::i256::from_i128(*v), 0, *scale)?,
                V::Decimal(v, from) => super::rescale(*v, *from, *scale)?,
                _ => return None,
            };
            let limit = super::ten_to(*precision);
            (*precision >= 76 || (scaled < limit && scaled > limit.wrapping_neg())).then_some(scaled)
        };
        macro_rules! whole {
            ($builder:expr, $value:expr) => {
                match (*$value).try_into() {
                    Ok(v) => $builder.append_value(v),
                    Err(_) => return Err(ValueError { message: format!("value `{}` is out of range", $value) }),
                }
            };
        }
        match (&mut self.inner, value) {
            (_, V::Null) => self.append_null(),
            (Inner::Bool(b), V::Bool(v)) => b.append_value(*v),
            (Inner::I8(b), V::Int(v)) => whole!(b, v),
            (Inner::I16(b), V::Int(v)) => whole!(b, v),
            (Inner::I32(b), V::Int(v)) => whole!(b, v),
            (Inner::I64(b), V::Int(v)) => whole!(b, v),
            (Inner::Ipv4(b), V::Int(v)) => whole!(b, v),
            (Inner::F32(b), V::Float(v)) => b.append_value(*v as f32),
            (Inner::F64(b), V::Float(v)) => b.append_value(*v),
            (Inner::F64(b), V::Int(v)) => b.append_value(*v as f64),
            (Inner::D256(b), V::Int(v)) if self.ty == DorisType::LargeInt => {
                b.append_value(arrow::datatypes::i256::from_i128(*v));
            }
            (Inner::D128(b), V::Int(_) | V::Decimal(..)) => match unscaled(&self.ty, value).and_then(|v| v.to_i128()) {
                Some(v) => b.append_value(v),
                None => return Err(ValueError { message: format!("value is out of range of {}", self.ty) }),
            },
            (Inner::D256(b), V::Int(_) | V::Decimal(..)) if self.ty != DorisType::LargeInt => {
                match unscaled(&self.ty, value) {
                    Some(v) => b.append_value(v),
                    None => return Err(ValueError { message: format!("value is out of range of {}", self.ty) }),
                }
            }
            (Inner::Text(b), V::Text(v)) => b.append_value(v),
            (Inner::Date(b), V::Date(v)) => b.append_value(*v),
            (Inner::Date(b), V::DateTime(v)) => b.append_value(v.div_euclid(DAY_MICROS) as i32),
            (Inner::Second(b), V::DateTime(v) | V::Instant(v)) => b.append_value(v.div_euclid(1_000_000)),
            (Inner::Milli(b), V::DateTime(v) | V::Instant(v)) => b.append_value(v.div_euclid(1000)),
            (Inner::Micro(b), V::DateTime(v) | V::Instant(v)) => b.append_value(*v),
            (Inner::Second(b), V::Date(v)) => b.append_value(i64::from(*v) * (DAY_MICROS / 1_000_000)),
            (Inner::Milli(b), V::Date(v)) => b.append_value(i64::from(*v) * (DAY_MICROS / 1000)),
            (Inner::Micro(b), V::Date(v)) => b.append_value(i64::from(*v) * DAY_MICROS),
            (Inner::Time(b), V::Time(v)) => b.append_value(*v),
            (Inner::Bitmap(b), V::Bytes(v)) => b.append_value(v),
            (Inner::Hll(b), V::Bytes(v)) => b.append_value(v),
            (Inner::List { child, offsets, valid }, V::List(items)) => {
                for item in items {
                    if child.append_value(item).is_err() {
                        child.append_null();
                    }
                }
                offsets.push(child.len() as i32);
                valid.push(true);
            }
            (Inner::Map { key, value, offsets, valid }, V::Map(entries)) => {
                for (name, item) in entries {
                    if !name.is_null() && key.append_value(name).is_ok() && value.append_value(item).is_err() {
                        value.append_null();
                    }
                }
                offsets.push(key.len() as i32);
                valid.push(true);
            }
            (Inner::Struct { children, valid }, V::Struct(items)) if items.len() == children.len() => {
                for (item, child) in items.iter().zip(children) {
                    if child.append_value(item).is_err() {
                        child.append_null();
                    }
                }
                valid.push(true);
            }
            (_, other) => {
                let ty = match other {
                    V::Bool(_) => DorisType::Boolean,
                    V::Float(_) => DorisType::Double,
                    V::Decimal(_, scale) => DorisType::Decimal { precision: 76, scale: *scale },
                    V::Date(_) => DorisType::Date,
                    V::DateTime(_) => DorisType::DateTime(6),
                    V::Time(_) => DorisType::Time(6),
                    _ => DorisType::String,
                };
                let text = if ty == self.ty { None } else { other.text(&ty) };
                return match text {
                    Some(text) => self.append_text(&text),
                    None => Err(ValueError { message: format!("a value of another type is no {}", self.ty) }),
                };
            }
        }
        Ok(())
    }
}

/// The instant of a text: its zone suffix counts, without one the text is read in `zone`.
fn instant(text: &str, precision: u8, zone: &SessionZone) -> Option<i64> {
    let micros = parse_datetime(text, precision, zone)?;
    Some(zone.instant_of_wall(micros.div_euclid(1_000_000)) * 1_000_000 + micros.rem_euclid(1_000_000))
}

/// `true`, `false` in any case, and numbers: zero is false.
fn parse_bool(text: &str) -> Option<bool> {
    let text = text.trim();
    if text.eq_ignore_ascii_case("true") {
        return Some(true);
    }
    if text.eq_ignore_ascii_case("false") {
        return Some(false);
    }
    match text {
        "1" => Some(true),
        "0" => Some(false),
        _ => None,
    }
}

/// At most `n` bytes of a text, cut at a character boundary.
fn first_bytes(text: &str, n: usize) -> &str {
    let mut end = text.len().min(n);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}
