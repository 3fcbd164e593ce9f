#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::sync::Arc;

use ::arrow::datatypes::{DataType, Field, TimeUnit};
use proptest::prelude::*;

use super::*;

fn boxed(doris_type: DorisType) -> Box<DorisType> {
    Box::new(doris_type)
}

#[test]
fn every_spelling_of_a_type_is_read() {
    for (text, expected) in [
        ("BOOLEAN", DorisType::Boolean),
        ("tinyint(1)", DorisType::TinyInt),
        ("tinyint(4)", DorisType::TinyInt),
        ("int(11)", DorisType::Int),
        ("bigint unsigned", DorisType::LargeInt),
        ("largeint", DorisType::LargeInt),
        ("DECIMALV3(10, 2)", DorisType::Decimal(10, 2)),
        ("decimal(76,6)", DorisType::Decimal(76, 6)),
        ("decimalv2", DorisType::Decimal(27, 9)),
        ("DATEV2", DorisType::Date),
        ("datetime", DorisType::DateTime(0)),
        ("datetimev2(3)", DorisType::DateTime(3)),
        ("timestamp(6)", DorisType::DateTime(6)),
        ("TIMESTAMPTZ(6)", DorisType::TimestampTz(6)),
        ("varchar(65533)", DorisType::Varchar(65533)),
        ("varchar(*)", DorisType::Varchar(65533)),
        ("char(10)", DorisType::Char(10)),
        ("text", DorisType::String),
        ("jsonb", DorisType::Json),
        ("variant<'a>b': int, PROPERTIES('x' = '1')>", DorisType::Variant),
        ("agg_state<max_by(int, bigint)>", DorisType::Opaque("AGG_STATE")),
        ("bitmap", DorisType::Opaque("BITMAP")),
        ("array<int(11)>", DorisType::Array(boxed(DorisType::Int))),
        ("MAP<string,int>", DorisType::Map(boxed(DorisType::String), boxed(DorisType::Int))),
        (
            "struct<a:int,`b c`:text COMMENT 'x>\\,''y', d : array<map<int, decimalv3(9, 0)>> NOT NULL>",
            DorisType::Struct(vec![
                ("a".into(), DorisType::Int),
                ("b c".into(), DorisType::String),
                (
                    "d".into(),
                    DorisType::Array(boxed(DorisType::Map(boxed(DorisType::Int), boxed(DorisType::Decimal(9, 0))))),
                ),
            ]),
        ),
    ] {
        assert_eq!(DorisType::parse(text), Ok(expected), "{text}");
    }
    for text in
        ["", "unknown", "int)", "array<int", "struct<int>", "decimal(77,1)", "decimal(3,4)", "datetime(7)", "array"]
    {
        assert!(DorisType::parse(text).is_err(), "{text}");
    }
}

#[test]
fn column_type_tells_boolean_from_tinyint() {
    for (text, expected) in [
        ("tinyint(1)", DorisType::Boolean),
        ("tinyint(4)", DorisType::TinyInt),
        ("timestamp(3)", DorisType::TimestampTz(3)),
        ("decimalv3(10, 2)", DorisType::Decimal(10, 2)),
        ("array<tinyint(1)>", DorisType::Array(boxed(DorisType::Boolean))),
    ] {
        assert_eq!(DorisType::parse_column_type(text), Ok(expected), "{text}");
    }
    assert!(DorisType::parse_column_type("struct<int,text>").unwrap_err().contains("does not name its fields"));
}

#[test]
fn rest_schema_takes_precision_from_beside_the_name() {
    assert_eq!(DorisType::from_rest("DECIMAL64", Some("10"), Some("2")), Ok(DorisType::Decimal(10, 2)));
    assert_eq!(DorisType::from_rest("DATETIMEV2", None, None), Ok(DorisType::DateTime(0)));
    assert!(DorisType::from_rest("DECIMAL128I", None, None).is_err());
    assert!(DorisType::from_rest("ARRAY", None, None).is_err());
}

fn any_type() -> impl Strategy<Value = DorisType> {
    let scalar = prop_oneof![
        Just(DorisType::Boolean),
        Just(DorisType::TinyInt),
        Just(DorisType::LargeInt),
        Just(DorisType::Double),
        (1u8..=76).prop_flat_map(|p| (Just(p), 0..=p)).prop_map(|(p, s)| DorisType::Decimal(p, s)),
        Just(DorisType::Date),
        (0u8..=6).prop_map(DorisType::DateTime),
        (0u8..=6).prop_map(DorisType::TimestampTz),
        (1u32..=255).prop_map(DorisType::Char),
        (1u32..=65533).prop_map(DorisType::Varchar),
        Just(DorisType::String),
        Just(DorisType::Json),
        Just(DorisType::Variant),
        Just(DorisType::Ipv6),
        Just(DorisType::Opaque("HLL")),
    ];
    scalar.prop_recursive(4, 16, 4, |inner| {
        prop_oneof![
            inner.clone().prop_map(|element| DorisType::Array(Box::new(element))),
            (inner.clone(), inner.clone()).prop_map(|(k, v)| DorisType::Map(Box::new(k), Box::new(v))),
            proptest::collection::vec(("[a-z`:<>, é]{1,6}", inner), 1..4).prop_map(DorisType::Struct),
        ]
    })
}

proptest! {
    #[test]
    fn printed_type_reads_back(doris_type in any_type()) {
        prop_assert_eq!(DorisType::parse(&doris_type.to_string()), Ok(doris_type));
    }

    #[test]
    fn type_parser_never_panics(text in "\\PC{0,40}") {
        let _ = DorisType::parse(&text);
    }
}

#[test]
fn a_column_that_cannot_be_read_keeps_its_place() {
    let mut schema = TableSchema {
        table: TableIdent::new("db", "t"),
        model: Some(KeyModel::Unique),
        columns: vec![
            ColumnSchema::new("id", DorisType::LargeInt).with_nullable(false).with_key(true),
            ColumnSchema::new("at", DorisType::DateTime(3)),
            ColumnSchema::new("d", DorisType::Decimal(40, 2)),
        ],
        properties: Default::default(),
    };
    let fields = schema.arrow_schema();
    assert_eq!(
        fields.fields().iter().map(|field| (field.data_type().clone(), field.is_nullable())).collect::<Vec<_>>(),
        [
            (DataType::Decimal256(39, 0), false),
            (DataType::Timestamp(TimeUnit::Microsecond, None), true),
            (DataType::Decimal256(40, 2), true)
        ]
    );
    schema.columns.push(ColumnSchema::new("users", DorisType::Opaque("BITMAP")));
    schema.columns.push(ColumnSchema::new("new", DorisType::Unknown("POINT(4)".into())));
    let fields = schema.arrow_schema();
    assert_eq!((fields.field(3).data_type(), fields.field(4).data_type()), (&DataType::Binary, &DataType::Binary));
    for (column, word) in [(3, "BITMAP_TO_STRING"), (4, "POINT(4)")] {
        let reason = schema.columns[column].doris_type.arrow_type().unwrap_err();
        assert!(reason.contains(word), "{reason}");
    }
}

#[test]
fn arrow_type_of_a_doris_type_maps_back_to_a_type_that_holds_it() {
    for doris_type in [
        DorisType::Boolean,
        DorisType::BigInt,
        DorisType::LargeInt,
        DorisType::Decimal(40, 2),
        DorisType::Date,
        DorisType::DateTime(6),
        DorisType::TimestampTz(6),
        DorisType::String,
        DorisType::Map(boxed(DorisType::Int), boxed(DorisType::Array(boxed(DorisType::String)))),
    ] {
        assert_eq!(doris_type_of(&doris_type.arrow_type().unwrap()), Ok(doris_type));
    }
    assert!(doris_type_of(&DataType::Timestamp(TimeUnit::Nanosecond, None)).is_err());
    assert!(doris_type_of(&DataType::Binary).is_err());
}

#[test]
fn wire_actions_never_cut_a_value() {
    use DataType::{Date32, Decimal128, Decimal256, FixedSizeBinary, Float64, Int8, Int32, Int64, UInt32, Utf8};
    let naive = |unit| DataType::Timestamp(unit, None);
    let zoned = |unit| DataType::Timestamp(unit, Some("Asia/Shanghai".into()));
    let (second, milli, micro) = (TimeUnit::Second, TimeUnit::Millisecond, TimeUnit::Microsecond);
    let list = |item| DataType::List(Arc::new(Field::new("item", item, true)));
    let zone: Arc<str> = "Asia/Shanghai".into();
    let variant = |names: &[&str]| {
        DataType::Struct(names.iter().map(|name| Field::new(*name, DataType::Binary, false)).collect())
    };
    let cases: Vec<(DorisType, DataType, DataType, Option<WireAction>)> = vec![
        (DorisType::Int, Int32, Int32, Some(WireAction::Keep)),
        (DorisType::Int, Int32, Int64, Some(WireAction::Cast)),
        (DorisType::Int, Int32, Int8, None),
        (DorisType::Int, Int32, Float64, Some(WireAction::Cast)),
        (DorisType::BigInt, Int64, Float64, None),
        (DorisType::Ipv4, Int32, Float64, None),
        (DorisType::Ipv4, Int32, Decimal128(20, 0), None),
        (DorisType::Int, DataType::Null, Int32, Some(WireAction::Nulls)),
        (DorisType::LargeInt, Utf8, Decimal256(39, 0), Some(WireAction::TextToDecimal)),
        (DorisType::LargeInt, Utf8, Utf8, Some(WireAction::Keep)),
        (DorisType::LargeInt, FixedSizeBinary(16), Decimal256(39, 0), Some(WireAction::Int128ToDecimal)),
        (DorisType::LargeInt, Int64, Decimal256(39, 0), Some(WireAction::Cast)),
        (DorisType::Ipv4, Int32, Utf8, Some(WireAction::BitsToIpv4Text)),
        (DorisType::Ipv4, UInt32, Utf8, Some(WireAction::BitsToIpv4Text)),
        (DorisType::Ipv4, Utf8, Utf8, Some(WireAction::Keep)),
        (DorisType::Ipv6, Utf8, Utf8, Some(WireAction::Ipv6Text)),
        (DorisType::Date, Utf8, Date32, Some(WireAction::TextToDate)),
        (
            DorisType::DateTime(6),
            zoned(micro),
            naive(micro),
            Some(WireAction::LocalWallClock { zone: Arc::clone(&zone) }),
        ),
        (DorisType::DateTime(0), naive(second), naive(micro), Some(WireAction::Cast)),
        (DorisType::DateTime(6), naive(micro), naive(micro), Some(WireAction::Keep)),
        (DorisType::DateTime(6), naive(micro), naive(milli), None),
        (DorisType::DateTime(3), naive(micro), naive(milli), Some(WireAction::Cast)),
        (DorisType::DateTime(0), Utf8, naive(micro), Some(WireAction::TextToTimestamp)),
        (DorisType::Decimal(10, 2), Decimal128(10, 2), Decimal128(12, 4), Some(WireAction::Cast)),
        (DorisType::Decimal(10, 2), Decimal128(10, 2), Decimal128(10, 1), None),
        (DorisType::Decimal(10, 2), Decimal128(10, 2), Decimal128(10, 4), None),
        (DorisType::Time(0), Float64, Float64, Some(WireAction::Keep)),
        (DorisType::BigInt, Utf8, Int64, Some(WireAction::TextToValue(DorisType::BigInt))),
        (DorisType::BigInt, Utf8, Int32, None),
        (DorisType::String, Int64, Utf8, Some(WireAction::Cast)),
        (DorisType::String, Float64, Utf8, None),
        (DorisType::Decimal(9, 0), Decimal128(9, 0), Int32, Some(WireAction::Cast)),
        (DorisType::Decimal(10, 0), Decimal128(10, 0), Int32, None),
        (DorisType::Decimal(9, 1), Decimal128(9, 1), Int64, None),
        (DorisType::Ipv6, Utf8, Decimal256(39, 0), Some(WireAction::Ipv6TextToDecimal)),
        (DorisType::Variant, Utf8, Utf8, Some(WireAction::Keep)),
        (DorisType::Variant, variant(&["metadata", "value"]), Utf8, Some(WireAction::VariantToText)),
        (DorisType::Variant, variant(&["metadata", "value", "typed_value"]), Utf8, None),
        (
            DorisType::Array(boxed(DorisType::LargeInt)),
            list(Utf8),
            list(Decimal256(39, 0)),
            Some(WireAction::List(Box::new(WireAction::TextToDecimal))),
        ),
        (DorisType::Array(boxed(DorisType::Int)), list(Int32), list(Int32), Some(WireAction::Keep)),
        (DorisType::Array(boxed(DorisType::Int)), list(Int64), list(Int32), None),
    ];
    for (doris, wire, target, expected) in cases {
        assert_eq!(wire_action(&doris, &wire, &target).ok(), expected, "{doris}: {wire} -> {target}");
    }
}

#[test]
fn key_model_is_read_from_both_sources() {
    for (text, expected) in [
        ("UNIQUE_KEYS", Some(KeyModel::Unique)),
        ("duplicate", Some(KeyModel::Duplicate)),
        ("AGG_KEYS", Some(KeyModel::Aggregate)),
        ("OTHER", None),
    ] {
        assert_eq!(KeyModel::parse(text), expected, "{text}");
    }
}
