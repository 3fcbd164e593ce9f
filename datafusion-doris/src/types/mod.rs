//! Doris types, table identity and schema; their Arrow counterparts and how values get from one to the other.

mod arrow;
mod ddl;
mod local_time;
mod mapping;
mod schema;
#[cfg(test)]
mod tests;
mod text;
mod wire;

pub(crate) use arrow::compares_alike;
pub use arrow::doris_type_of;
pub use local_time::{LocalTime, ServerZone};
pub use mapping::markdown_table as type_table;
pub(crate) use schema::INTERNAL_CATALOG;
pub use schema::{ColumnSchema, KeyModel, TableIdent, TableSchema};
pub(crate) use text::{no_utf8, unscaled};
pub use wire::{WireAction, wire_action};

/// A Doris column type.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum DorisType {
    /// BOOLEAN
    Boolean,
    /// TINYINT
    TinyInt,
    /// SMALLINT
    SmallInt,
    /// INT
    Int,
    /// BIGINT
    BigInt,
    /// LARGEINT, 128 bits
    LargeInt,
    /// FLOAT
    Float,
    /// DOUBLE
    Double,
    /// DECIMAL(p, s), p up to 76
    Decimal(u8, u8),
    /// DATE
    Date,
    /// DATETIME(p), p fractional digits 0..=6
    DateTime(u8),
    /// TIMESTAMPTZ(p)
    TimestampTz(u8),
    /// TIME(p)
    Time(u8),
    /// CHAR(n), n bytes
    Char(u32),
    /// VARCHAR(n), n bytes
    Varchar(u32),
    /// STRING
    String,
    /// JSON
    Json,
    /// VARIANT
    Variant,
    /// IPV4
    Ipv4,
    /// IPV6
    Ipv6,
    /// UUID
    Uuid,
    /// TIMESTAMP_NS, a wall clock to the nanosecond
    TimestampNs,
    /// VARBINARY
    VarBinary,
    /// BITMAP, HLL, QUANTILE_STATE, AGG_STATE: opaque states, by DDL name
    Opaque(&'static str),
    /// A type that this crate does not know, as the server spells it: newer than this crate
    Unknown(Box<str>),
    /// `ARRAY<T>`
    Array(Box<DorisType>),
    /// `MAP<K, V>`
    Map(Box<DorisType>, Box<DorisType>),
    /// `STRUCT<name: T, …>`
    Struct(Vec<(String, DorisType)>),
}
