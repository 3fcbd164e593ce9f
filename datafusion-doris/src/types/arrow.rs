//! One Arrow type per Doris type, and back.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, TimeUnit};

use super::DorisType;

/// Zone of TIMESTAMPTZ values: sessions run at this offset, so the text of an instant never depends on the server.
const UTC: &str = "+00:00";

impl DorisType {
    /// The Arrow type that a reader of a column of this type sees.
    ///
    /// | Doris | Arrow |
    /// | --- | --- |
    /// | BOOLEAN, TINYINT … BIGINT, FLOAT, DOUBLE | Boolean, Int8 … Int64, Float32, Float64 |
    /// | LARGEINT | Decimal256(39, 0): 128 bits need 39 digits |
    /// | DECIMAL(p, s) | Decimal128(p, s) to 38 digits, else Decimal256(p, s) |
    /// | DATE | Date32 |
    /// | DATETIME(p) | Timestamp(µs), without zone: the digits as stored |
    /// | TIMESTAMPTZ(p) | Timestamp(µs, +00:00) |
    /// | TIME(p) | Float64, as the server sends it |
    /// | CHAR, VARCHAR, STRING, JSON, VARIANT, IPV4, IPV6, UUID | Utf8 |
    /// | TIMESTAMP_NS | Timestamp(ns), without zone |
    /// | VARBINARY | Binary |
    /// | ARRAY, MAP, STRUCT | List, Map, Struct of the above; elements nullable, map keys not |
    ///
    /// # Errors
    /// The reason with advice, for types without values of their own (BITMAP, HLL, …).
    pub fn arrow_type(&self) -> Result<DataType, String> {
        Ok(match self {
            DorisType::Boolean => DataType::Boolean,
            DorisType::TinyInt => DataType::Int8,
            DorisType::SmallInt => DataType::Int16,
            DorisType::Int => DataType::Int32,
            DorisType::BigInt => DataType::Int64,
            DorisType::LargeInt => DataType::Decimal256(39, 0),
            DorisType::Float => DataType::Float32,
            DorisType::Double | DorisType::Time(_) => DataType::Float64,
            // A scale is at most 76.
            DorisType::Decimal(precision, scale) if *precision <= 38 => DataType::Decimal128(*precision, *scale as i8),
            DorisType::Decimal(precision, scale) => DataType::Decimal256(*precision, *scale as i8),
            DorisType::Date => DataType::Date32,
            DorisType::DateTime(_) => DataType::Timestamp(TimeUnit::Microsecond, None),
            DorisType::TimestampTz(_) => DataType::Timestamp(TimeUnit::Microsecond, Some(UTC.into())),
            DorisType::Char(_)
            | DorisType::Varchar(_)
            | DorisType::String
            | DorisType::Json
            | DorisType::Variant
            | DorisType::Ipv4
            | DorisType::Ipv6
            | DorisType::Uuid => DataType::Utf8,
            DorisType::TimestampNs => DataType::Timestamp(TimeUnit::Nanosecond, None),
            DorisType::VarBinary => DataType::Binary,
            DorisType::Opaque(name) => {
                return Err(format!(
                    "type {name} has no readable values, read it by doris_query or a view that converts it \
                     (for example by BITMAP_TO_STRING, BITMAP_COUNT, HLL_CARDINALITY or CAST), or leave it out"
                ));
            }
            DorisType::Unknown(text) => {
                return Err(format!(
                    "unknown Doris type '{text}', read it through a view that converts it by CAST, or leave it out of \
                     the column list"
                ));
            }
            DorisType::Array(element) => {
                DataType::List(Arc::new(Field::new(Field::LIST_FIELD_DEFAULT_NAME, element.arrow_type()?, true)))
            }
            DorisType::Map(key, value) => {
                let entries =
                    vec![Field::new("key", key.arrow_type()?, false), Field::new("value", value.arrow_type()?, true)];
                DataType::Map(Arc::new(Field::new("entries", DataType::Struct(entries.into()), false)), false)
            }
            DorisType::Struct(fields) => {
                let fields = fields
                    .iter()
                    .map(|(name, field)| Ok(Field::new(name, field.arrow_type()?, true)))
                    .collect::<Result<Vec<_>, String>>()?;
                DataType::Struct(fields.into())
            }
        })
    }
}

/// The Doris type that holds every value of an Arrow type, for created tables.
///
/// # Errors
/// The reason, when no Doris type does.
pub fn doris_type_of(data_type: &DataType) -> Result<DorisType, String> {
    Ok(match data_type {
        DataType::Boolean => DorisType::Boolean,
        DataType::Int8 => DorisType::TinyInt,
        DataType::Int16 | DataType::UInt8 => DorisType::SmallInt,
        DataType::Int32 | DataType::UInt16 => DorisType::Int,
        DataType::Int64 | DataType::UInt32 => DorisType::BigInt,
        DataType::UInt64 => DorisType::LargeInt,
        DataType::Float16 | DataType::Float32 => DorisType::Float,
        DataType::Float64 => DorisType::Double,
        DataType::Decimal256(39, 0) => DorisType::LargeInt,
        DataType::Decimal32(precision, scale)
        | DataType::Decimal64(precision, scale)
        | DataType::Decimal128(precision, scale)
        | DataType::Decimal256(precision, scale) => {
            let scale = u8::try_from(*scale).map_err(|_| format!("type {data_type} has a negative scale"))?;
            let precision = (*precision).max(scale);
            DorisType::Decimal(precision, scale)
        }
        DataType::Date32 => DorisType::Date,
        DataType::Timestamp(unit, zone) => {
            let digits = match unit {
                TimeUnit::Second => 0,
                TimeUnit::Millisecond => 3,
                TimeUnit::Microsecond => 6,
                TimeUnit::Nanosecond => {
                    return Err(format!("type {data_type} is finer than the 6 digits of DATETIME, cast it first"));
                }
            };
            if zone.is_some() { DorisType::TimestampTz(digits) } else { DorisType::DateTime(digits) }
        }
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => DorisType::String,
        DataType::Dictionary(_, values) => doris_type_of(values)?,
        DataType::RunEndEncoded(_, values) => doris_type_of(values.data_type())?,
        DataType::List(element)
        | DataType::LargeList(element)
        | DataType::ListView(element)
        | DataType::LargeListView(element)
        | DataType::FixedSizeList(element, _) => DorisType::Array(Box::new(doris_type_of(element.data_type())?)),
        DataType::Map(entries, _) => match entries.data_type() {
            DataType::Struct(fields) if fields.len() == 2 => DorisType::Map(
                Box::new(doris_type_of(fields[0].data_type())?),
                Box::new(doris_type_of(fields[1].data_type())?),
            ),
            _ => return Err(format!("type {data_type} is not a map of keys and values")),
        },
        DataType::Struct(fields) => DorisType::Struct(
            fields
                .iter()
                .map(|field| Ok((field.name().clone(), doris_type_of(field.data_type())?)))
                .collect::<Result<Vec<_>, String>>()?,
        ),
        other => return Err(format!("type {other} has no counterpart in Doris, cast it first")),
    })
}

/// True for Arrow types of one family, whose values compare alike.
pub(crate) fn compares_alike(natural: &DataType, declared: &DataType) -> bool {
    let is_text = |data_type: &DataType| matches!(data_type, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View);
    natural == declared
        || (is_text(natural) && is_text(declared))
        || (natural.is_signed_integer() && declared.is_signed_integer())
}
