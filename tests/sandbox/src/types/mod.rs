//! Doris types: DDL text, Arrow form in storage and on the wire, conversion of text and JSON to values, rendering.
//!
//! Storage keeps one Arrow type per Doris type ([`DorisType::storage`]); what travels over Flight depends on the
//! profile and is made by [`wire`].

pub mod bitmap;
mod builder;
mod cast;
mod coerce;
mod datetime;
mod ddl;
mod decimal;
pub mod hll;
mod json;
mod nested;
pub mod old_wire;
mod text;
mod time;
mod value;
mod variant;
pub mod wire;
mod zone;

use std::fmt;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, Fields, TimeUnit};

use crate::engine::Profile;

pub use builder::{ColumnBuilder, ValueError};
pub use cast::{cast_array, conform, conform_in};
pub use datetime::{civil_from_days, days_from_civil, format_date, format_datetime, parse_datetime};
pub use ddl::{parse_type, parse_type_prefix};
pub use json::canonical as canonical_json;
pub use nested::{Nested, parse as parse_nested};
pub use text::{TextStyle, text_value};
pub use time::{format_time, parse_time};
pub use value::{Value, rescale, ten_to};
pub use zone::SessionZone;

/// Metadata key on a storage field whose Arrow type does not tell the Doris type.
pub const TYPE_KEY: &str = "sandbox.doris_type";

/// A column type of Doris.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum DorisType {
    /// Type of a bare NULL.
    Null,
    /// `BOOLEAN`
    Boolean,
    /// `TINYINT`
    TinyInt,
    /// `SMALLINT`
    SmallInt,
    /// `INT`
    Int,
    /// `BIGINT`
    BigInt,
    /// `LARGEINT`, 128 bits
    LargeInt,
    /// `FLOAT`
    Float,
    /// `DOUBLE`
    Double,
    /// `DECIMAL(precision, scale)`, precision 1 to 76
    Decimal {
        /// Digits in all.
        precision: u8,
        /// Digits after the point.
        scale: u8,
    },
    /// `CHAR(bytes)`
    Char(u32),
    /// `VARCHAR(bytes)`
    Varchar(u32),
    /// `STRING`
    String,
    /// `DATE`
    Date,
    /// `DATETIME(precision)`, precision 0 to 6
    DateTime(u8),
    /// `TIME(precision)`: the type of expressions only, no table has such a column.
    Time(u8),
    /// `TIMESTAMPTZ(precision)`: an instant.
    TimestampTz(u8),
    /// `JSON`
    Json,
    /// `VARIANT`
    Variant,
    /// `IPV4`
    Ipv4,
    /// `IPV6`
    Ipv6,
    /// `BITMAP`, a set of unsigned 64-bit numbers
    Bitmap,
    /// `HLL`, a sketch that counts distinct values
    Hll,
    /// `ARRAY<T>`
    Array(Box<DorisType>),
    /// `MAP<K,V>`
    Map(Box<DorisType>, Box<DorisType>),
    /// `STRUCT<name:T,...>`
    Struct(Vec<(String, DorisType)>),
}

/// Zone of a stored TIMESTAMPTZ; spelled so that it is told from the zones with which DATETIME travels.
pub(crate) const INSTANT_ZONE: &str = "+00:00";

/// Widest VARCHAR in bytes.
pub const VARCHAR_MAX: u32 = 65533;

impl DorisType {
    /// Arrow type of a column in storage.
    pub fn storage(&self) -> DataType {
        match self {
            Self::Null => DataType::Null,
            Self::Boolean => DataType::Boolean,
            Self::TinyInt => DataType::Int8,
            Self::SmallInt => DataType::Int16,
            Self::Int => DataType::Int32,
            Self::BigInt => DataType::Int64,
            Self::LargeInt => DataType::Decimal256(39, 0),
            Self::Float => DataType::Float32,
            Self::Double => DataType::Float64,
            Self::Decimal { precision, scale } if *precision <= 38 => DataType::Decimal128(*precision, *scale as i8),
            Self::Decimal { precision, scale } => DataType::Decimal256(*precision, *scale as i8),
            Self::Char(_) | Self::Varchar(_) | Self::String | Self::Json | Self::Variant | Self::Ipv6 => DataType::Utf8,
            Self::Date => DataType::Date32,
            Self::DateTime(precision) => DataType::Timestamp(datetime_unit(*precision), None),
            Self::Time(_) => DataType::Time64(TimeUnit::Microsecond),
            Self::TimestampTz(precision) => DataType::Timestamp(datetime_unit(*precision), Some(INSTANT_ZONE.into())),
            Self::Ipv4 => DataType::UInt32,
            Self::Bitmap => DataType::Binary,
            Self::Hll => DataType::LargeBinary,
            Self::Array(item) => DataType::List(item.storage_field("item", true)),
            Self::Map(key, value) => DataType::Map(
                Arc::new(Field::new(
                    "entries",
                    DataType::Struct(Fields::from(vec![
                        key.storage_field("key", false),
                        value.storage_field("value", true),
                    ])),
                    false,
                )),
                false,
            ),
            Self::Struct(fields) => {
                DataType::Struct(fields.iter().map(|(name, ty)| ty.storage_field(name, true)).collect())
            }
        }
    }

    /// Storage field of this type; carries the Doris type as metadata where the Arrow type is ambiguous.
    pub fn storage_field(&self, name: &str, nullable: bool) -> FieldRef {
        let field = Field::new(name, self.storage(), nullable);
        if self.needs_tag() {
            Arc::new(field.with_metadata([(TYPE_KEY.to_owned(), self.to_string())].into()))
        } else {
            Arc::new(field)
        }
    }

    fn needs_tag(&self) -> bool {
        match self {
            Self::LargeInt | Self::Json | Self::Variant | Self::Ipv4 | Self::Ipv6 => true,
            Self::DateTime(p) | Self::TimestampTz(p) => !matches!(p, 0 | 3 | 6),
            Self::Time(p) => *p != 6,
            Self::Decimal { precision: 39, scale: 0 } => true,
            Self::Array(item) => item.needs_tag(),
            Self::Map(key, value) => key.needs_tag() || value.needs_tag(),
            Self::Struct(fields) => fields.iter().any(|(_, ty)| ty.needs_tag()),
            _ => false,
        }
    }

    /// The Doris type of an expression's field: its tag when that fits the Arrow type, else the nearest type.
    pub fn of_field(field: &Field) -> Option<DorisType> {
        if let Some(text) = field.metadata().get(TYPE_KEY)
            && let Ok(ty) = parse_type(text)
            && ty.storage().equals_datatype(field.data_type())
        {
            return Some(ty);
        }
        Self::of_arrow(field.data_type())
    }

    /// The nearest Doris type of an Arrow type; `None` when Doris has none.
    pub fn of_arrow(data_type: &DataType) -> Option<DorisType> {
        Some(match data_type {
            DataType::Null => Self::Null,
            DataType::Boolean => Self::Boolean,
            DataType::Int8 => Self::TinyInt,
            DataType::Int16 | DataType::UInt8 => Self::SmallInt,
            DataType::Int32 | DataType::UInt16 => Self::Int,
            DataType::Int64 | DataType::UInt32 => Self::BigInt,
            DataType::UInt64 | DataType::Decimal256(39, 0) => Self::LargeInt,
            DataType::Float16 | DataType::Float32 => Self::Float,
            DataType::Float64 => Self::Double,
            DataType::Decimal32(p, s)
            | DataType::Decimal64(p, s)
            | DataType::Decimal128(p, s)
            | DataType::Decimal256(p, s)
                if *s >= 0 =>
            {
                Self::Decimal { precision: *p, scale: *s as u8 }
            }
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => Self::String,
            DataType::Date32 => Self::Date,
            DataType::Timestamp(unit, zone) => {
                let precision = match unit {
                    TimeUnit::Second => 0,
                    TimeUnit::Millisecond => 3,
                    TimeUnit::Microsecond | TimeUnit::Nanosecond => 6,
                };
                match zone.as_deref() {
                    Some(INSTANT_ZONE) => Self::TimestampTz(precision),
                    _ => Self::DateTime(precision),
                }
            }
            DataType::Time64(TimeUnit::Microsecond) => Self::Time(6),
            DataType::Binary => Self::Bitmap,
            DataType::LargeBinary => Self::Hll,
            DataType::List(item) | DataType::LargeList(item) => Self::Array(Box::new(Self::of_field(item)?)),
            DataType::Map(entries, _) => match entries.data_type() {
                DataType::Struct(fields) if fields.len() == 2 => {
                    Self::Map(Box::new(Self::of_field(&fields[0])?), Box::new(Self::of_field(&fields[1])?))
                }
                _ => return None,
            },
            DataType::Struct(fields) => Self::Struct(
                fields.iter().map(|f| Some((f.name().clone(), Self::of_field(f)?))).collect::<Option<Vec<_>>>()?,
            ),
            DataType::Dictionary(_, value) => return Self::of_arrow(value),
            _ => return None,
        })
    }

    /// Whether the type may be a key column.
    pub fn can_be_key(&self) -> bool {
        !matches!(
            self,
            Self::Float
                | Self::Double
                | Self::String
                | Self::Json
                | Self::Variant
                | Self::Time(_)
                | Self::Bitmap
                | Self::Hll
                | Self::Array(_)
                | Self::Map(..)
                | Self::Struct(_)
                | Self::Null
        )
    }

    /// Whether all decimals of the type have at most 38 digits, or may have more.
    ///
    /// # Errors
    /// That they may not.
    pub fn check_decimals(&self, decimal256: bool) -> Result<(), String> {
        match self {
            Self::Decimal { precision, .. } if *precision > 38 && !decimal256 => Err(format!(
                "Datatype DecimalV3 with precision {precision}, which is greater than 38 is disabled by default, \
                 set enable_decimal256 = true to enable it."
            )),
            Self::Array(item) => item.check_decimals(decimal256),
            Self::Map(key, value) => {
                key.check_decimals(decimal256)?;
                value.check_decimals(decimal256)
            }
            Self::Struct(fields) => fields.iter().try_for_each(|(_, ty)| ty.check_decimals(decimal256)),
            _ => Ok(()),
        }
    }

    /// Whether a table may have a column of this type: on this build, and with decimals of more than 38 digits or not.
    ///
    /// # Errors
    /// Why not.
    pub fn check_column(&self, profile: Profile, decimal256: bool) -> Result<(), String> {
        let inside = |item: &DorisType, outer: &str| match item {
            DorisType::Bitmap | DorisType::Hll => {
                Err(format!("{outer} unsupported sub-type: {}", item.to_string().to_uppercase()))
            }
            item => item.check_column(profile, decimal256),
        };
        match self {
            Self::Null => Err("column type NULL is not supported".to_owned()),
            Self::Time(_) => Err("Time type is not supported for olap table".to_owned()),
            Self::TimestampTz(_) if profile < Profile::V5_0Changelog => Err("unknown type `TIMESTAMPTZ`".to_owned()),
            Self::Decimal { .. } => self.check_decimals(decimal256),
            Self::Array(item) => inside(item, "ARRAY"),
            Self::Map(key, value) => {
                inside(key, "MAP")?;
                inside(value, "MAP")
            }
            Self::Struct(fields) => fields.iter().try_for_each(|(_, ty)| inside(ty, "STRUCT")),
            _ => Ok(()),
        }
    }

    /// Bytes a column's text may have; STRING has the limit of the server's configuration.
    pub fn max_bytes(&self, string_limit: u32) -> Option<u32> {
        match self {
            Self::Char(n) | Self::Varchar(n) => Some(*n),
            Self::String => Some(string_limit),
            _ => None,
        }
    }

    /// ARRAY, MAP or STRUCT.
    pub fn is_nested(&self) -> bool {
        matches!(self, Self::Array(_) | Self::Map(..) | Self::Struct(_))
    }

    /// Storage primitive name, as `_schema` of the FE prints it.
    pub fn primitive_name(&self) -> &'static str {
        match self {
            Self::Null => "NULL_TYPE",
            Self::Boolean => "BOOLEAN",
            Self::TinyInt => "TINYINT",
            Self::SmallInt => "SMALLINT",
            Self::Int => "INT",
            Self::BigInt => "BIGINT",
            Self::LargeInt => "LARGEINT",
            Self::Float => "FLOAT",
            Self::Double => "DOUBLE",
            Self::Decimal { precision, .. } => match precision {
                0..=9 => "DECIMAL32",
                10..=18 => "DECIMAL64",
                19..=38 => "DECIMAL128",
                _ => "DECIMAL256",
            },
            Self::Char(_) => "CHAR",
            Self::Varchar(_) => "VARCHAR",
            Self::String => "STRING",
            Self::Date => "DATEV2",
            Self::DateTime(_) => "DATETIMEV2",
            Self::Time(_) => "TIMEV2",
            Self::TimestampTz(_) => "TIMESTAMPTZ",
            Self::Bitmap => "BITMAP",
            Self::Hll => "HLL",
            Self::Json => "JSONB",
            Self::Variant => "VARIANT",
            Self::Ipv4 => "IPV4",
            Self::Ipv6 => "IPV6",
            Self::Array(_) => "ARRAY",
            Self::Map(..) => "MAP",
            Self::Struct(_) => "STRUCT",
        }
    }

    /// `information_schema.columns.DATA_TYPE`.
    pub fn data_type_name(&self) -> &'static str {
        match self {
            Self::Null => "unknown",
            Self::Boolean | Self::TinyInt => "tinyint",
            Self::SmallInt => "smallint",
            Self::Int => "int",
            Self::BigInt => "bigint",
            Self::LargeInt => "bigint unsigned",
            Self::Float => "float",
            Self::Double => "double",
            Self::Decimal { .. } => "decimal",
            Self::Char(_) => "char",
            Self::Varchar(_) | Self::String => "varchar",
            Self::Date => "date",
            Self::DateTime(_) => "datetime",
            Self::Time(_) => "unknown",
            Self::TimestampTz(_) => "timestamp",
            Self::Bitmap => "bitmap",
            Self::Hll => "hll",
            Self::Json => "json",
            Self::Variant => "variant",
            Self::Ipv4 => "ipv4",
            Self::Ipv6 => "ipv6",
            Self::Array(_) => "array",
            Self::Map(..) => "map",
            Self::Struct(_) => "struct",
        }
    }

    /// `information_schema.columns.COLUMN_TYPE`; the names of struct fields are lost, as on the server.
    pub fn column_type_name(&self) -> String {
        match self {
            Self::Null => "unknown".to_owned(),
            Self::Boolean => "tinyint(1)".to_owned(),
            Self::TinyInt => "tinyint(4)".to_owned(),
            Self::SmallInt => "smallint(6)".to_owned(),
            Self::Int => "int(11)".to_owned(),
            Self::BigInt => "bigint(20)".to_owned(),
            Self::LargeInt => "largeint".to_owned(),
            Self::Float => "float".to_owned(),
            Self::Double => "double".to_owned(),
            Self::Decimal { precision, scale } => format!("decimalv3({precision}, {scale})"),
            Self::Char(n) => format!("char({n})"),
            Self::Varchar(n) => format!("varchar({n})"),
            Self::String => "string".to_owned(),
            Self::Date => "date".to_owned(),
            Self::DateTime(0) => "datetime".to_owned(),
            Self::DateTime(p) => format!("datetime({p})"),
            Self::Time(_) => "unknown".to_owned(),
            Self::TimestampTz(0) => "timestamp".to_owned(),
            Self::TimestampTz(p) => format!("timestamp({p})"),
            Self::Bitmap => "bitmap".to_owned(),
            Self::Hll => "hll".to_owned(),
            Self::Json => "json".to_owned(),
            Self::Variant => "variant".to_owned(),
            Self::Ipv4 => "ipv4".to_owned(),
            Self::Ipv6 => "ipv6".to_owned(),
            Self::Array(item) => format!("array<{}>", item.column_type_name()),
            Self::Map(key, value) => format!("map<{},{}>", key.column_type_name(), value.column_type_name()),
            Self::Struct(fields) => {
                let inner: Vec<String> = fields.iter().map(|(_, ty)| ty.column_type_name()).collect();
                format!("struct<{}>", inner.join(","))
            }
        }
    }

    /// Name of the type inside the executor, of which Flight makes the names of unnamed expressions.
    pub fn executor_name(&self, nullable: bool) -> String {
        let name = match self {
            Self::Null => "Nothing".to_owned(),
            Self::Boolean => "UInt8".to_owned(),
            Self::TinyInt => "Int8".to_owned(),
            Self::SmallInt => "Int16".to_owned(),
            Self::Int => "Int32".to_owned(),
            Self::BigInt => "Int64".to_owned(),
            Self::LargeInt => "Int128".to_owned(),
            Self::Float => "Float32".to_owned(),
            Self::Double => "Float64".to_owned(),
            Self::Decimal { precision, scale } => format!("Decimal({precision}, {scale})"),
            Self::Char(_) | Self::Varchar(_) | Self::String => "String".to_owned(),
            Self::Date => "DateV2".to_owned(),
            Self::DateTime(p) => format!("DateTimeV2({p})"),
            Self::Time(p) => format!("TimeV2({p})"),
            Self::TimestampTz(p) => format!("TimeStampTz({p})"),
            Self::Json => "JSONB".to_owned(),
            Self::Variant => "Variant".to_owned(),
            Self::Ipv4 => "IPv4".to_owned(),
            Self::Ipv6 => "IPv6".to_owned(),
            Self::Bitmap => "BitMap".to_owned(),
            Self::Hll => "HLL".to_owned(),
            Self::Array(item) => format!("Array({})", item.executor_name(true)),
            Self::Map(key, value) => format!("Map({}, {})", key.executor_name(true), value.executor_name(true)),
            Self::Struct(fields) => {
                let inner: Vec<String> =
                    fields.iter().map(|(name, ty)| format!("{name}:{}", ty.executor_name(true))).collect();
                format!("Struct({})", inner.join(", "))
            }
        };
        if nullable { format!("Nullable({name})") } else { name }
    }

    /// Type text of DESC: lower-case DDL, STRING as `text`.
    pub fn desc_name(&self) -> String {
        match self {
            Self::String => "text".to_owned(),
            Self::Array(item) => format!("array<{}>", item.desc_name()),
            Self::Map(key, value) => format!("map<{},{}>", key.desc_name(), value.desc_name()),
            Self::Struct(fields) => {
                let inner: Vec<String> = fields.iter().map(|(name, ty)| format!("{name}:{}", ty.desc_name())).collect();
                format!("struct<{}>", inner.join(","))
            }
            other => other.to_string(),
        }
    }
}

/// Prints DDL text as SHOW CREATE TABLE does.
impl fmt::Display for DorisType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("null"),
            Self::Boolean => f.write_str("boolean"),
            Self::TinyInt => f.write_str("tinyint"),
            Self::SmallInt => f.write_str("smallint"),
            Self::Int => f.write_str("int"),
            Self::BigInt => f.write_str("bigint"),
            Self::LargeInt => f.write_str("largeint"),
            Self::Float => f.write_str("float"),
            Self::Double => f.write_str("double"),
            Self::Decimal { precision, scale } => write!(f, "decimal({precision},{scale})"),
            Self::Char(n) => write!(f, "char({n})"),
            Self::Varchar(n) => write!(f, "varchar({n})"),
            Self::String => f.write_str("string"),
            Self::Date => f.write_str("date"),
            Self::DateTime(0) => f.write_str("datetime"),
            Self::DateTime(p) => write!(f, "datetime({p})"),
            Self::Time(0) => f.write_str("time"),
            Self::Time(p) => write!(f, "time({p})"),
            Self::TimestampTz(0) => f.write_str("timestamptz"),
            Self::TimestampTz(p) => write!(f, "timestamptz({p})"),
            Self::Bitmap => f.write_str("bitmap"),
            Self::Hll => f.write_str("hll"),
            Self::Json => f.write_str("json"),
            Self::Variant => f.write_str("variant"),
            Self::Ipv4 => f.write_str("ipv4"),
            Self::Ipv6 => f.write_str("ipv6"),
            Self::Array(item) => write!(f, "array<{item}>"),
            Self::Map(key, value) => write!(f, "map<{key},{value}>"),
            Self::Struct(fields) => {
                f.write_str("struct<")?;
                for (i, (name, ty)) in fields.iter().enumerate() {
                    if i > 0 {
                        f.write_str(",")?;
                    }
                    write!(f, "{name}:{ty}")?;
                }
                f.write_str(">")
            }
        }
    }
}

/// Arrow unit of a DATETIME of this precision: seconds, then milliseconds up to 3 digits, then microseconds.
pub fn datetime_unit(precision: u8) -> TimeUnit {
    match precision {
        0 => TimeUnit::Second,
        1..=3 => TimeUnit::Millisecond,
        _ => TimeUnit::Microsecond,
    }
}

#[cfg(test)]
mod matrix;
#[cfg(test)]
mod tests;
