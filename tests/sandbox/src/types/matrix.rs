//! Every type of section E: smallest, largest and NULL values, alone and nested, in each profile.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::{DataType, TimeUnit};

use super::wire::{to_wire, wire_field, wire_type};
use super::*;
use crate::engine::Profile;

const PROFILES: [Profile; 5] =
    [Profile::V2_1, Profile::V3_1, Profile::V4_0, Profile::V5_0Binlog, Profile::V5_0Changelog];

/// Type, smallest and largest value, and the texts that MySQL clients see.
const CASES: &[(&str, &[(&str, &str)])] = &[
    ("boolean", &[("false", "0"), ("true", "1")]),
    ("tinyint", &[("-128", "-128"), ("127", "127")]),
    ("smallint", &[("-32768", "-32768"), ("32767", "32767")]),
    ("int", &[("-2147483648", "-2147483648"), ("2147483647", "2147483647")]),
    ("bigint", &[("-9223372036854775808", "-9223372036854775808"), ("9223372036854775807", "9223372036854775807")]),
    (
        "largeint",
        &[
            ("-170141183460469231731687303715884105728", "-170141183460469231731687303715884105728"),
            ("170141183460469231731687303715884105727", "170141183460469231731687303715884105727"),
        ],
    ),
    ("float", &[("-3.4028235e38", "-3.4028235e+38"), ("1e-45", "1e-45"), ("NaN", "NaN"), ("0.1", "0.1")]),
    (
        "double",
        &[
            ("-1.7976931348623157e308", "-1.7976931348623157e+308"),
            ("Infinity", "Infinity"),
            ("1234567.125", "1234567.125"),
        ],
    ),
    ("decimal(9,2)", &[("-9999999.99", "-9999999.99"), ("9999999.99", "9999999.99")]),
    ("decimal(38,0)", &[("99999999999999999999999999999999999999", "99999999999999999999999999999999999999")]),
    (
        "decimal(76,2)",
        &[(
            "-99999999999999999999999999999999999999999999999999999999999999999999999999.99",
            "-99999999999999999999999999999999999999999999999999999999999999999999999999.99",
        )],
    ),
    ("char(3)", &[("", ""), ("a  ", "a  ")]),
    ("varchar(3)", &[("é!", "é!")]),
    ("string", &[("x", "x")]),
    ("date", &[("0000-01-01", "0000-01-01"), ("9999-12-31", "9999-12-31")]),
    ("datetime", &[("0000-01-01 00:00:00", "0000-01-01 00:00:00"), ("9999-12-31 23:59:59", "9999-12-31 23:59:59")]),
    ("datetime(1)", &[("2024-01-31 01:02:03.4", "2024-01-31 01:02:03.4")]),
    ("datetime(3)", &[("2024-01-31 01:02:03.456", "2024-01-31 01:02:03.456")]),
    ("datetime(6)", &[("9999-12-31 23:59:59.999999", "9999-12-31 23:59:59.999999")]),
    ("json", &[("{\"a\": [1, null]}", "{\"a\":[1,null]}")]),
    ("variant", &[("{\"a\": 1}", "{\"a\":1}")]),
    ("ipv4", &[("0.0.0.0", "0.0.0.0"), ("255.255.255.255", "255.255.255.255")]),
    ("ipv6", &[("::", "::"), ("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff")]),
    ("time(6)", &[("-838:59:59.999999", "-838:59:59.999999"), ("838:59:59", "838:59:59.000000")]),
];

fn arrow_type(text: &str, profile: Profile) -> DataType {
    let zone = |unit| DataType::Timestamp(unit, (profile != Profile::V5_0Changelog).then(|| "+08:00".into()));
    match text {
        "boolean" => DataType::Boolean,
        "tinyint" => DataType::Int8,
        "smallint" => DataType::Int16,
        "int" => DataType::Int32,
        "bigint" => DataType::Int64,
        "float" => DataType::Float32,
        "double" | "time(6)" => DataType::Float64,
        "decimal(9,2)" => DataType::Decimal128(9, 2),
        "decimal(38,0)" => DataType::Decimal128(38, 0),
        "decimal(76,2)" => DataType::Decimal256(76, 2),
        "date" => DataType::Date32,
        "datetime" => zone(TimeUnit::Second),
        "datetime(1)" | "datetime(3)" => zone(TimeUnit::Millisecond),
        "datetime(6)" => zone(TimeUnit::Microsecond),
        "ipv4" if profile == Profile::V2_1 => DataType::UInt32,
        "ipv4" => DataType::Int32,
        _ => DataType::Utf8,
    }
}

fn column(ty: &DorisType, texts: &[&str]) -> ArrayRef {
    let mut builder = ColumnBuilder::new(ty, true);
    texts.iter().for_each(|text| builder.append_text(text).unwrap_or_else(|e| panic!("{ty} {text}: {e}")));
    builder.append_null();
    builder.finish()
}

#[test]
fn every_type_in_every_profile() {
    let zone: SessionZone = "+08:00".parse().unwrap();
    for (text, values) in CASES {
        let ty = parse_type(text).unwrap();
        let given: Vec<&str> = values.iter().map(|(given, _)| *given).collect();
        let stored = column(&ty, &given);
        for profile in PROFILES {
            let at = format!("{text} on {profile}");
            let sent = to_wire(&stored, &ty, profile, &zone);
            assert_eq!(sent.data_type(), &arrow_type(text, profile), "{at}");
            assert_eq!(sent.data_type(), &wire_type(&ty, profile, &zone), "{at}");
            assert!(sent.is_null(values.len()), "{at}");
            // The two forms of the oldest build that are no text for a reader.
            if profile > Profile::V2_1 || !matches!(ty, DorisType::Ipv6 | DorisType::Time(_)) {
                for (row, (_, printed)) in values.iter().enumerate() {
                    let seen = text_value(sent.as_ref(), row, &ty, TextStyle::Mysql);
                    assert_eq!(seen.as_deref(), Some(*printed), "{at}");
                }
            }
            let tag = wire_field("c", &ty, true, profile, &zone).metadata().get("doris_type").cloned();
            let expected = match (&ty, profile >= Profile::V5_0Binlog) {
                (DorisType::LargeInt, true) => Some("LARGEINT"),
                (DorisType::Ipv4, true) => Some("IPV4"),
                (DorisType::Ipv6, true) => Some("IPV6"),
                (DorisType::Variant, true) => Some("VARIANT"),
                (DorisType::Json, true) => Some("JSON"),
                _ => None,
            };
            assert_eq!(tag.as_deref(), expected, "{at}");
        }
        for (_, printed) in *values {
            let again = column(&ty, &[printed]);
            assert_eq!(text_value(&again, 0, &ty, TextStyle::Mysql).as_deref(), Some(*printed), "{text} read again");
        }
    }
}

#[test]
fn nested_values_follow_the_same_rules() {
    let zone: SessionZone = "+08:00".parse().unwrap();
    for (text, values) in CASES.iter().filter(|(text, _)| !text.starts_with("time(")) {
        let inner = parse_type(text).unwrap();
        let list = DorisType::Array(Box::new(inner.clone()));
        let record = DorisType::Struct(vec![("f".to_owned(), inner.clone())]);
        let map = DorisType::Map(Box::new(DorisType::String), Box::new(inner.clone()));
        let flat = column(&inner, &values.iter().map(|(given, _)| *given).collect::<Vec<_>>());
        let items: Vec<Value> = (0..flat.len()).map(|row| Value::read(&flat, row, &inner)).collect();
        for profile in PROFILES {
            let at = format!("{text} on {profile}");
            for ty in [&list, &record, &map] {
                let value = match ty {
                    DorisType::Array(_) => Value::List(items.clone()),
                    DorisType::Struct(_) => Value::Struct(vec![items[0].clone()]),
                    _ => Value::Map(vec![(Value::Text("k".to_owned()), items[0].clone())]),
                };
                let mut builder = ColumnBuilder::new(ty, true);
                builder.append_value(&value).unwrap();
                builder.append_null();
                let stored = builder.finish();
                assert_eq!(Value::read(&stored, 0, ty), value, "{at}");
                let sent = to_wire(&stored, ty, profile, &zone);
                assert_eq!(sent.data_type(), &wire_type(ty, profile, &zone), "{at}");
                assert!(sent.is_null(1), "{at}");
                let child = match sent.data_type() {
                    DataType::List(field) => field.data_type().clone(),
                    DataType::Struct(fields) => fields[0].data_type().clone(),
                    DataType::Map(..) => sent.as_map().values().data_type().clone(),
                    other => panic!("{other}"),
                };
                assert_eq!(child, arrow_type(text, profile), "{at}");
            }
        }
    }
}

#[test]
fn digits_of_wide_numbers_survive_nesting() {
    for (ty, text, printed) in [
        (
            "array<largeint>",
            "[170141183460469231731687303715884105727, -1]",
            "[170141183460469231731687303715884105727, -1]",
        ),
        (
            "map<string,decimal(38,1)>",
            "{\"a\": 1234567890123456789012345678901234567.8}",
            "{\"a\":1234567890123456789012345678901234567.8}",
        ),
        (
            "struct<a:decimal(76,0)>",
            "{\"a\": 1234567890123456789012345678901234567890}",
            "{\"a\":1234567890123456789012345678901234567890}",
        ),
        (
            "map<largeint,int>",
            "{170141183460469231731687303715884105727: 1}",
            "{170141183460469231731687303715884105727:1}",
        ),
    ] {
        let ty = parse_type(ty).unwrap();
        let array = column(&ty, &[text]);
        assert_eq!(text_value(&array, 0, &ty, TextStyle::Mysql).as_deref(), Some(printed));
    }
}

#[test]
fn states_and_instants_travel() {
    let utc = SessionZone::UTC;
    let zone: SessionZone = "Asia/Shanghai".parse().unwrap();
    let mut builder = ColumnBuilder::new(&DorisType::Bitmap, true);
    builder.append_state(&bitmap::Bitmap::from_text("1,2").unwrap().to_bytes()).unwrap();
    assert!(builder.append_state(b"\xff").is_err());
    assert!(builder.append_text("1").unwrap_err().message.contains("to_bitmap"));
    let sent = to_wire(&builder.finish(), &DorisType::Bitmap, Profile::default(), &utc);
    assert_eq!(sent.data_type(), &DataType::Binary);
    assert_eq!(bitmap::Bitmap::from_bytes(sent.as_binary::<i32>().value(0)).unwrap().to_text(), "1,2");
    let mut builder = ColumnBuilder::new(&DorisType::Hll, true);
    builder.append_state(&hll::empty_bytes()).unwrap();
    let sent = to_wire(&builder.finish(), &DorisType::Hll, Profile::default(), &utc);
    assert_eq!(sent.data_type(), &DataType::Binary);
    let ty = DorisType::TimestampTz(3);
    let mut builder = ColumnBuilder::in_zone(&ty, zone);
    builder.append_text("2024-01-01 08:00:00.5").unwrap();
    builder.append_text("2024-01-01 00:00:00+00:00").unwrap();
    let stored = builder.finish();
    for (zone, tag, printed) in [
        (zone, "Asia/Shanghai", ["2024-01-01 08:00:00.500 +08:00", "2024-01-01 08:00:00.000 +08:00"]),
        (utc, "Z", ["2024-01-01 00:00:00.500 +00:00", "2024-01-01 00:00:00.000 +00:00"]),
    ] {
        let sent = to_wire(&stored, &ty, Profile::default(), &zone);
        assert_eq!(sent.data_type(), &DataType::Timestamp(TimeUnit::Millisecond, Some(tag.into())));
        for (row, printed) in printed.iter().enumerate() {
            assert_eq!(text_value(&sent, row, &ty, TextStyle::Mysql).as_deref(), Some(*printed));
        }
    }
    assert!(ty.check_column(Profile::V5_0Changelog, false).is_ok());
    assert!(ty.check_column(Profile::V5_0Binlog, false).is_err());
}
