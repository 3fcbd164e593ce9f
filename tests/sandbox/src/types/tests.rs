//! Types: DDL text, values, wire forms.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, TimestampMillisecondArray};
use arrow::datatypes::{DataType, Field, Int32Type, TimeUnit, TimestampMillisecondType};

use super::wire::{to_wire, wire_field, wire_type};
use super::*;
use crate::engine::Profile;

fn text_of(ty: &DorisType, text: &str) -> Option<String> {
    let mut builder = ColumnBuilder::new(ty, true);
    builder.append_text(text).ok()?;
    let array = builder.finish();
    assert_eq!(array.data_type(), &ty.storage(), "{ty}");
    text_value(&array, 0, ty, TextStyle::Mysql)
}

#[test]
fn ddl_text_is_read_and_printed() {
    let cases = [
        ("INT(11)", "int"),
        ("bool", "boolean"),
        ("decimal", "decimal(38,9)"),
        ("DECIMALV3(76, 3)", "decimal(76,3)"),
        ("varchar", "varchar(65533)"),
        ("VARCHAR(*)", "varchar(65533)"),
        ("char", "char(1)"),
        ("text", "string"),
        ("DATETIME(3)", "datetime(3)"),
        ("datetimev2", "datetime"),
        (
            "array<map<string, struct<a:int,`b c`:array<decimal(10,2)>>>>",
            "array<map<string,struct<a:int,b c:array<decimal(10,2)>>>>",
        ),
        ("LARGEINT", "largeint"),
        ("JSONB", "json"),
    ];
    for (text, printed) in cases {
        assert_eq!(parse_type(text).map(|ty| ty.to_string()), Ok(printed.to_owned()), "{text}");
    }
    let (ty, end) = parse_type_prefix("ARRAY<INT> NOT NULL").unwrap();
    assert_eq!((ty.to_string().as_str(), end), ("array<int>", 10));
}

#[test]
fn bad_types_are_refused_by_name() {
    let cases = [
        ("BLOB", "unknown type `BLOB`"),
        ("QUANTILE_STATE", "the sandbox does not implement type QUANTILE_STATE"),
        ("DECIMALV2(10,2)", "the sandbox does not implement type DECIMALV2"),
        ("DECIMAL(77,1)", "decimal precision should between 1 and 76, but was 77"),
        ("DECIMAL(5,6)", "scale of decimal must between 0 and precision. Scale was set to: 6"),
        ("DECIMAL(1,1,1)", "decimal takes precision and scale"),
        ("CHAR(256)", "char size must be <= 255: 256"),
        ("VARCHAR(65534)", "varchar size must be <= 65533: 65534"),
        ("DATETIME(7)", "Scale of Datetime/Time must between 0 and 6. Scale was set to: 7"),
        ("ARRAY<INT", "expected `>` in type `ARRAY<INT`"),
        ("STRUCT<a:INT,A:INT>", "Duplicate field name A in struct"),
        ("INT x", "unexpected text `x` after type `INT`"),
        ("", "expected a type at ``"),
        ("VARCHAR(x)", "bad number `x` in type `VARCHAR(x)`"),
    ];
    for (text, message) in cases {
        assert_eq!(parse_type(text), Err(message.to_owned()), "{text}");
    }
    let deep = format!("{}INT{}", "ARRAY<".repeat(11), ">".repeat(11));
    assert_eq!(parse_type(&deep), Err("type nesting depth exceeds 9".to_owned()));
}

#[test]
fn dates_are_read_in_many_forms() {
    let cases = [
        ("2024-01-31", Some("2024-01-31 00:00:00.000000")),
        ("2024/1/5 7:8", Some("2024-01-05 07:08:00.000000")),
        ("20240131", Some("2024-01-31 00:00:00.000000")),
        ("20240131235958", Some("2024-01-31 23:59:58.000000")),
        ("2024-01-31T23:59:58.5", Some("2024-01-31 23:59:58.500000")),
        ("69-12-31", Some("2069-12-31 00:00:00.000000")),
        ("70-12-31", Some("1970-12-31 00:00:00.000000")),
        ("0000-01-01", Some("0000-01-01 00:00:00.000000")),
        ("9999-12-31 23:59:59.999999", Some("9999-12-31 23:59:59.999999")),
        ("9999-12-31 23:59:59.9999999", None),
        ("2024-01-31 00:00:00.1234565", Some("2024-01-31 00:00:00.123457")),
        ("2024-01-31 10:00:00+08:00", Some("2024-01-31 02:00:00.000000")),
        ("2024-01-31 10:00:00 Asia/Shanghai", Some("2024-01-31 02:00:00.000000")),
        ("2024-01-31 10:00:00Z", Some("2024-01-31 10:00:00.000000")),
        ("2023-02-29", None),
        ("2024-13-01", None),
        ("2024-01-31 24:00:00", None),
        ("2024-01-31 x", None),
        ("1-1-1", None),
        ("", None),
        ("0", None),
    ];
    for (text, expected) in cases {
        let read = parse_datetime(text, 6, &SessionZone::UTC).map(|micros| format_datetime(micros, 6));
        assert_eq!(read.as_deref(), expected, "{text}");
    }
    for day in [-719_528, -1, 0, 19_782, 2_932_896] {
        let (y, m, d) = civil_from_days(day);
        assert_eq!(days_from_civil(y, m, d), day);
    }
}

#[test]
fn values_are_rounded_bounded_and_normalised() {
    let d = |precision, scale| DorisType::Decimal { precision, scale };
    let cases = [
        (d(5, 2), "123.455", Some("123.46")),
        (d(5, 2), "-0.005", Some("-0.01")),
        (d(5, 2), "999.995", None),
        (d(5, 2), "1e2", Some("100.00")),
        (d(5, 2), "1.5e-1", Some("0.15")),
        (d(5, 2), ".5", Some("0.50")),
        (d(5, 2), "1.2.3", None),
        (d(38, 0), "99999999999999999999999999999999999999", Some("99999999999999999999999999999999999999")),
        (d(76, 1), "-1234567890123456789012345678901234567890.15", Some("-1234567890123456789012345678901234567890.2")),
        (DorisType::LargeInt, "170141183460469231731687303715884105728", None),
        (
            DorisType::LargeInt,
            "-170141183460469231731687303715884105728",
            Some("-170141183460469231731687303715884105728"),
        ),
        (DorisType::TinyInt, "128", None),
        (DorisType::Int, " 7 ", Some("7")),
        (DorisType::Boolean, "TRUE", Some("1")),
        (DorisType::Boolean, "0", Some("0")),
        (DorisType::Boolean, "yes", None),
        (DorisType::Char(3), "é!", Some("é!")),
        (DorisType::Varchar(2), "é!", None),
        (DorisType::DateTime(0), "2024-01-31 23:59:59.5", Some("2024-02-01 00:00:00")),
        (DorisType::DateTime(2), "2024-01-31 23:59:59.126", Some("2024-01-31 23:59:59.13")),
        (DorisType::Date, "2024-01-31 23:59:59", Some("2024-01-31")),
        (DorisType::Double, "NaN", Some("NaN")),
        (DorisType::Double, "-Infinity", Some("-Infinity")),
        (DorisType::Double, "1e20", Some("1e+20")),
        (DorisType::Float, "0.1", Some("0.1")),
        (DorisType::Json, "{\"a\": 1}", Some("{\"a\":1}")),
        (DorisType::Json, "{a", None),
        (DorisType::Ipv4, "10.1.2.3", Some("10.1.2.3")),
        (DorisType::Ipv4, "10.1.2.333", None),
        (DorisType::Ipv6, "0:0:0:0:0:0:0:1", Some("::1")),
    ];
    for (ty, text, expected) in cases {
        assert_eq!(text_of(&ty, text).as_deref(), expected, "{ty} {text}");
    }
}

#[test]
fn nested_text_and_json_agree() {
    let ty = parse_type("STRUCT<a:ARRAY<INT>,m:MAP<STRING,DATE>>").unwrap();
    let text = r#"{"a":[1,null,3],"m":{"k":"2024-01-31"}}"#;
    let printed = r#"{"a":[1, null, 3], "m":{"k":"2024-01-31"}}"#;
    assert_eq!(text_of(&ty, text).as_deref(), Some(printed));
    assert_eq!(text_of(&ty, "{a: [1, NULL, 3], m: {'k': '2024-01-31'}}").as_deref(), Some(printed));
    assert_eq!(text_of(&ty, "[1"), None);
    let mut builder = ColumnBuilder::new(&ty, true);
    builder.append_json(&serde_json::from_str(text).unwrap()).unwrap();
    builder.append_json(&serde_json::Value::Null).unwrap();
    let array = builder.finish();
    assert_eq!(text_value(&array, 0, &ty, TextStyle::Mysql).as_deref(), Some(printed));
    assert!(array.is_null(1));
    let numbers = parse_type("ARRAY<TINYINT>").unwrap();
    assert_eq!(text_of(&numbers, "[1, 300]").as_deref(), Some("[1, null]"));
}

#[test]
fn datetime_over_arrow_depends_on_the_profile() {
    let zone: SessionZone = "Asia/Shanghai".parse().unwrap();
    let ty = DorisType::DateTime(3);
    // 2024-01-01 08:00:00 on the wall.
    let stored: ArrayRef = Arc::new(TimestampMillisecondArray::from(vec![1_704_096_000_000]));
    assert_eq!(wire_type(&ty, Profile::V5_0Changelog, &zone), DataType::Timestamp(TimeUnit::Millisecond, None));
    let tagged = DataType::Timestamp(TimeUnit::Millisecond, Some("Asia/Shanghai".into()));
    assert_eq!(wire_type(&ty, Profile::V4_0, &zone), tagged);
    let sent = to_wire(&stored, &ty, Profile::V4_0, &zone);
    assert_eq!(sent.as_primitive::<TimestampMillisecondType>().value(0), 1_704_067_200_000);
    assert_eq!(text_value(&sent, 0, &ty, TextStyle::Mysql).as_deref(), Some("2024-01-01 08:00:00.000"));
    for (p, unit) in
        [(0, TimeUnit::Second), (1, TimeUnit::Millisecond), (3, TimeUnit::Millisecond), (4, TimeUnit::Microsecond)]
    {
        assert_eq!(datetime_unit(p), unit, "{p}");
    }
}

#[test]
fn wire_forms_of_wide_types() {
    let utc = SessionZone::UTC;
    let mut builder = ColumnBuilder::new(&DorisType::LargeInt, true);
    builder.append_text("-170141183460469231731687303715884105728").unwrap();
    let sent = to_wire(&builder.finish(), &DorisType::LargeInt, Profile::default(), &utc);
    assert_eq!(sent.as_string::<i32>().value(0), "-170141183460469231731687303715884105728");
    let mut builder = ColumnBuilder::new(&DorisType::Ipv4, true);
    builder.append_text("255.255.255.255").unwrap();
    let sent = to_wire(&builder.finish(), &DorisType::Ipv4, Profile::default(), &utc);
    assert_eq!(sent.as_primitive::<Int32Type>().value(0), -1);
    let field = wire_field("l", &DorisType::LargeInt, true, Profile::default(), &utc);
    assert_eq!(field.metadata().get("doris_type").map(String::as_str), Some("LARGEINT"));
    assert!(wire_field("l", &DorisType::LargeInt, true, Profile::V2_1, &utc).metadata().is_empty());
    let list = parse_type("ARRAY<LARGEINT>").unwrap();
    let mut builder = ColumnBuilder::new(&list, true);
    builder.append_text("[1]").unwrap();
    let stored = builder.finish();
    let sent = to_wire(&stored, &list, Profile::default(), &utc);
    assert_eq!(sent.data_type(), &wire_type(&list, Profile::default(), &utc));
    // What was sent can be loaded again.
    assert_eq!(&conform(&sent, &list).unwrap(), &stored);
}

#[test]
fn a_tag_tells_types_with_one_arrow_type_apart() {
    for text in ["largeint", "json", "variant", "ipv4", "ipv6", "datetime(2)", "decimal(39,0)", "array<largeint>"] {
        let ty = parse_type(text).unwrap();
        assert_eq!(DorisType::of_field(&ty.storage_field("x", true)), Some(ty), "{text}");
    }
    let stale = Field::new("x", DataType::Int64, true).with_metadata([(TYPE_KEY.to_owned(), "json".to_owned())].into());
    assert_eq!(DorisType::of_field(&stale), Some(DorisType::BigInt));
}

#[test]
fn names_of_information_schema_and_rest() {
    let cases = [
        ("boolean", "tinyint", "tinyint(1)", "BOOLEAN"),
        ("tinyint", "tinyint", "tinyint(4)", "TINYINT"),
        ("largeint", "bigint unsigned", "largeint", "LARGEINT"),
        ("string", "varchar", "string", "STRING"),
        ("varchar(20)", "varchar", "varchar(20)", "VARCHAR"),
        ("decimal(10,2)", "decimal", "decimalv3(10, 2)", "DECIMAL64"),
        ("decimal(39,2)", "decimal", "decimalv3(39, 2)", "DECIMAL256"),
        ("datetime", "datetime", "datetime", "DATETIMEV2"),
        ("datetime(3)", "datetime", "datetime(3)", "DATETIMEV2"),
        ("json", "json", "json", "JSONB"),
        ("struct<a:int,b:string>", "struct", "struct<int(11),string>", "STRUCT"),
        ("map<int,date>", "map", "map<int(11),date>", "MAP"),
    ];
    for (text, data_type, column_type, primitive) in cases {
        let ty = parse_type(text).unwrap();
        assert_eq!(
            (ty.data_type_name(), ty.column_type_name().as_str(), ty.primitive_name()),
            (data_type, column_type, primitive)
        );
    }
}

#[test]
fn zones_are_offsets_or_names() {
    for (text, printed) in [
        ("+08:00", "+08:00"),
        ("-7:30", "-07:30"),
        ("asia/shanghai", "Asia/Shanghai"),
        ("UTC", "UTC"),
        ("CST", "Asia/Shanghai"),
    ] {
        assert_eq!(text.parse::<SessionZone>().map(|z| z.to_string()), Ok(printed.to_owned()), "{text}");
    }
    for text in ["+15:00", "Mars/Base", "", "+8:99"] {
        assert!(text.parse::<SessionZone>().is_err(), "{text}");
    }
    // A gap of daylight saving: 02:30 does not exist, the offset before it counts.
    let berlin: SessionZone = "Europe/Berlin".parse().unwrap();
    let wall = parse_datetime("2024-03-31 02:30:00", 0, &SessionZone::UTC).unwrap() / 1_000_000;
    assert_eq!(berlin.instant_of_wall(wall), wall - 3600);
}

#[test]
fn arrow_batches_of_loads_conform_to_columns() {
    let utc: SessionZone = "+08:00".parse().unwrap();
    let zoned: ArrayRef = Arc::new(TimestampMillisecondArray::from(vec![1_704_067_200_123]).with_timezone("UTC"));
    let stored = conform_in(&zoned, &DorisType::DateTime(3), &utc).unwrap();
    assert_eq!(
        text_value(&stored, 0, &DorisType::DateTime(3), TextStyle::Mysql).as_deref(),
        Some("2024-01-01 08:00:00.123")
    );
    let naive: ArrayRef = Arc::new(TimestampMillisecondArray::from(vec![-1]));
    let stored = conform_in(&naive, &DorisType::DateTime(0), &utc).unwrap();
    assert_eq!(
        text_value(&stored, 0, &DorisType::DateTime(0), TextStyle::Mysql).as_deref(),
        Some("1969-12-31 23:59:59")
    );
    let wide: ArrayRef = Arc::new(arrow::array::Int64Array::from(vec![Some(300), None]));
    let small = conform(&wide, &DorisType::TinyInt).unwrap();
    assert_eq!(small.null_count(), 2);
    let dates: ArrayRef = Arc::new(arrow::array::Date32Array::from(vec![0]));
    assert!(conform(&dates, &DorisType::Int).is_err());
}
