//! The type mapping as a table, for the documentation.

use std::fmt::Write as _;

use super::DorisType;

/// A row: type names, an example, the forms in which servers send it, and what else may be declared.
struct Row(&'static str, DorisType, &'static str, &'static str);

fn rows() -> Vec<Row> {
    let list = DorisType::Array(Box::new(DorisType::Int));
    let map = DorisType::Map(Box::new(DorisType::String), Box::new(DorisType::Int));
    let wider = "a wider integer, FLOAT or DOUBLE that holds each value, DECIMAL with enough digits";
    let text = "VARCHAR in any Arrow form";
    vec![
        Row("BOOLEAN", DorisType::Boolean, "bool", ""),
        Row("TINYINT", DorisType::TinyInt, "int8", wider),
        Row("SMALLINT", DorisType::SmallInt, "int16", wider),
        Row("INT", DorisType::Int, "int32", wider),
        Row("BIGINT", DorisType::BigInt, "int64", "DECIMAL with at least 19 digits before the point"),
        Row(
            "LARGEINT",
            DorisType::LargeInt,
            "utf8; 16 bytes, little-endian",
            "VARCHAR; BIGINT, BIGINT UNSIGNED or DECIMAL without fraction, where a value that does not fit is an error",
        ),
        Row("FLOAT", DorisType::Float, "float32", "DOUBLE"),
        Row("DOUBLE", DorisType::Double, "float64", ""),
        Row(
            "DECIMAL(p, s), p to 38; DECIMALV2 as DECIMAL(27, 9)",
            DorisType::Decimal(10, 2),
            "decimal128",
            "DECIMAL with as many digits before and behind the point; of scale 0, an integer that holds p digits",
        ),
        Row("DECIMAL(p, s), p to 76", DorisType::Decimal(76, 10), "decimal256", "the same"),
        Row("DATE, DATEV1", DorisType::Date, "date32; utf8", "TIMESTAMP: midnight"),
        Row(
            "DATETIME(p), DATETIMEV1",
            DorisType::DateTime(6),
            "timestamp (s, ms or µs by p), without zone or with that of the session; utf8",
            "TIMESTAMP(0), (3), (6) or (9) that holds p digits",
        ),
        Row(
            "TIMESTAMPTZ(p)",
            DorisType::TimestampTz(6),
            "timestamp with zone, also `Z`",
            "TIMESTAMP WITH TIME ZONE that holds p digits",
        ),
        Row("TIMESTAMP_NS", DorisType::TimestampNs, "timestamp(ns)", ""),
        Row("TIME(p)", DorisType::Time(6), "float64: microseconds, in old builds seconds", ""),
        Row("CHAR, VARCHAR, STRING", DorisType::String, "utf8", text),
        Row("JSON", DorisType::Json, "utf8, byte for byte", text),
        Row(
            "VARIANT",
            DorisType::Variant,
            "utf8, byte for byte; struct of metadata and value, both binary, which becomes JSON text",
            text,
        ),
        Row(
            "IPV4",
            DorisType::Ipv4,
            "int32 or uint32, the bits; utf8",
            "INT UNSIGNED or BIGINT: the address as a number, which sorts as addresses do",
        ),
        Row(
            "IPV6",
            DorisType::Ipv6,
            "utf8; the number of the address as utf8",
            "DECIMAL(39, 0): the address as a number, which sorts as addresses do",
        ),
        Row("UUID", DorisType::Uuid, "16 bytes; utf8", ""),
        Row("VARBINARY", DorisType::VarBinary, "binary", ""),
        Row("`ARRAY<T>`", list, "list", "lists of what T may be declared as"),
        Row("`MAP<K, V>`", map, "map", "maps likewise"),
        Row(
            "`STRUCT<name: T, …>`",
            DorisType::Struct(vec![("a".into(), DorisType::Int)]),
            "struct",
            "structs likewise",
        ),
    ]
}

/// The type mapping as Markdown: Doris type, Arrow type, forms on the wire, other types that may be declared.
pub fn markdown_table() -> String {
    let mut out =
        String::from("| Doris | Arrow | Sent by servers as | May be declared as |\n| --- | --- | --- | --- |\n");
    for Row(names, example, wire, declared) in rows() {
        let arrow = example.arrow_type().map(|arrow| arrow.to_string()).unwrap_or_default();
        let _ = writeln!(out, "| {names} | {arrow} | {wire} | {declared} |");
    }
    out
}
