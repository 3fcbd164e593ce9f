use arrow::array::{BinaryArray, StringArray};
use arrow::datatypes::TimeUnit;
use arrow::util::pretty::pretty_format_batches;
use chrono_tz::Tz;

use super::*;
use crate::options::TimePrecision;

fn decoder(columns: &[(&str, DataType)]) -> DebeziumDecoder {
    let fields: Vec<Field> = columns.iter().map(|(name, of)| Field::new(*name, of.clone(), *name != "id")).collect();
    let options = DebeziumOptions::default();
    DebeziumDecoder::new("shop.orders", &Schema::new(fields), |name| name == "id", "__change_kind", options)
}

fn text(events: &[&str]) -> ArrayRef {
    Arc::new(StringArray::from_iter_values(events))
}

/// The rows of events as `kind value value …`.
fn rows(decoder: &mut DebeziumDecoder, events: &ArrayRef) -> Result<Vec<String>> {
    let batch = decoder.decode(events)?;
    assert_eq!(batch.schema_ref(), decoder.schema());
    let table = pretty_format_batches(&[batch])?.to_string();
    let lines = table.lines().skip(3).filter(|line| line.starts_with('|'));
    Ok(lines
        .map(|line| {
            let mut cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
            let kind = cells.pop().unwrap();
            format!("{kind} {}", cells.join(" ")).trim_end().to_string()
        })
        .collect())
}

fn orders() -> DebeziumDecoder {
    decoder(&[("id", DataType::Int64), ("name", DataType::Utf8)])
}

#[test]
fn operations_become_change_kinds_in_order() {
    let events = text(&[
        r#"{"op":"r","before":null,"after":{"id":1,"name":"a"},"ts_ms":1}"#,
        r#"{"op":"c","after":{"name":"b","id":2},"source":{"db":"x"}}"#,
        r#"{"op":"u","before":{"id":1,"name":"a"},"after":{"id":1,"name":"aa"}}"#,
        r#"{"op":"d","before":{"id":2,"name":"b"},"after":null}"#,
        r#"{"op":"m","message":{"prefix":"p"}}"#,
        "null",
        "",
        r#"{"schema":null,"payload":{"op":"c","after":{"ID":3,"Name":"c","extra":9}}}"#,
        r#"{"schema":{"type":"struct","fields":[]},"payload":null}"#,
    ]);
    let expected = ["+I 1 a", "+I 2 b", "-U 1 a", "+U 1 aa", "-D 2 b", "+I 3 c"];
    assert_eq!(rows(&mut orders(), &events).unwrap(), expected);
    let batch = orders().decode(&text(&[])).unwrap();
    assert_eq!((batch.num_rows(), batch.num_columns()), (0, 3));
}

#[test]
fn changed_key_deletes_the_old_one() {
    let events = text(&[
        r#"{"op":"u","before":{"id":7,"name":"x"},"after":{"id":8,"name":"x"}}"#,
        // The same key, written otherwise.
        r#"{"op":"u","before":{"id":"8"},"after":{"id":8,"name":"y"}}"#,
        // PostgreSQL, default replica identity: nothing of the old row, or only its key, which changed.
        r#"{"op":"u","before":null,"after":{"id":8,"name":"z"}}"#,
        r#"{"op":"u","before":{"id":null,"name":null},"after":{"id":8,"name":"ä"}}"#,
        r#"{"op":"u","before":{"id":8,"name":null},"after":{"id":9,"name":"ä"}}"#,
        r#"{"op":"d","before":{"id":9}}"#,
    ]);
    let expected = ["-D 7 x", "+I 8 x", "-U 8", "+U 8 y", "+U 8 z", "+U 8 ä", "-D 8", "+I 9 ä", "-D 9"];
    assert_eq!(rows(&mut orders(), &events).unwrap(), expected);
}

#[test]
fn bytes_and_views_are_read_as_text() {
    let event = r#"{"op":"c","after":{"id":1,"name":"a\tb\"\\ é 🦀 \u00e9"}}"#;
    let bytes: ArrayRef = Arc::new(BinaryArray::from_iter_values([event.as_bytes()]));
    let batch = orders().decode(&bytes).unwrap();
    assert_eq!(batch.column(1).as_string::<i32>().value(0), "a\tb\"\\ é 🦀 é");
    let error = orders().decode(&(Arc::new(arrow::array::Int64Array::from(vec![1])) as ArrayRef)).unwrap_err();
    assert!(error.to_string().contains("change events are text, not Int64"), "{error}");
    let broken: ArrayRef = Arc::new(BinaryArray::from_iter_values([b"\xff\xfe"]));
    assert!(orders().decode(&broken).is_err());
}

#[test]
fn what_cannot_be_applied_is_an_error_with_its_row() {
    for (event, reason) in [
        (r#"{"op":"t"}"#, "truncated"),
        (r#"{"op":"x"}"#, "operation 'x' is unknown"),
        (r#"{"id":1,"name":"flat"}"#, "ExtractNewRecordState"),
        ("[1]", "no JSON object"),
        ("{", "no JSON object"),
        (r#"{"op":"c","after":null}"#, "no 'after'"),
        (r#"{"op":"c","after":{"id":1}}"#, "column 'name', row 1 of the batch: is not in the event"),
        (r#"{"op":"d","before":null}"#, "REPLICA IDENTITY"),
        (r#"{"op":"d","before":{"id":null,"name":"a"}}"#, "REPLICA IDENTITY"),
        (r#"{"op":"c","after":{"id":1.5,"name":"a"}}"#, "1.5 is no whole number"),
        (r#"{"op":"c","after":{"id":9223372036854775808,"name":"a"}}"#, "does not fit"),
        (r#"{"op":"c","after":{"id":1,"name":"__debezium_unavailable_value"}}"#, "REPLICA IDENTITY FULL"),
        (r#"{"op":"c","after":{"id":1,"name":"X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="}}"#, "did not change"),
        (r#"{"schema":{"x":1},"payload":{"op":"c","after":{"id":1,"name":"a"}}}"#, "schema cannot be read"),
    ] {
        let good = r#"{"op":"c","after":{"id":1,"name":"a"}}"#;
        let error = orders().decode(&text(&[good, event])).unwrap_err().to_string();
        assert!(error.contains(reason) && error.contains("row 1") && error.contains("shop.orders"), "{event}: {error}");
    }
}

/// One value without schema, as it is shown in a column.
fn plain(of: DataType, value: &str) -> Result<String> {
    let mut decoder = decoder(&[("v", of)]);
    let event = format!(r#"{{"op":"c","after":{{"v":{value}}}}}"#);
    Ok(rows(&mut decoder, &text(&[&event]))?[0].trim_start_matches("+I").trim_start().to_string())
}

const MICROS: DataType = DataType::Timestamp(TimeUnit::Microsecond, None);

#[test]
fn plain_values_are_exact_or_refused() {
    let decimal = DataType::Decimal128(10, 2);
    let cases: &[(&DataType, &str, Option<&str>)] = &[
        (&DataType::Boolean, "true", Some("true")),
        (&DataType::Boolean, "0", Some("false")),
        (&DataType::Boolean, "\"t\"", Some("true")),
        (&DataType::Boolean, "2", None),
        (&DataType::Int8, "true", Some("1")),
        (&DataType::Int8, "-128", Some("-128")),
        (&DataType::Int8, "128", None),
        (&DataType::Int32, "1e3", Some("1000")),
        (&DataType::Int32, "\"12\"", Some("12")),
        (&DataType::Int32, "1.9", None),
        (&DataType::Int64, "9007199254740993", Some("9007199254740993")),
        (&DataType::Int64, "-9223372036854775809", None),
        (&DataType::UInt64, "18446744073709551615", Some("18446744073709551615")),
        (
            &DataType::Decimal256(39, 0),
            "-170141183460469231731687303715884105728",
            Some("-170141183460469231731687303715884105728"),
        ),
        (&DataType::Float64, "0.30000000000000004", Some("0.30000000000000004")),
        (&DataType::Float64, "\"NaN\"", Some("NaN")),
        (&DataType::Float64, "\"-Infinity\"", Some("-inf")),
        (&DataType::Float64, "1e999", None),
        (&DataType::Float32, "1e39", None),
        (&DataType::Float32, "[1]", None),
        (&decimal, "12.5", Some("12.50")),
        (&decimal, "\"-12.500\"", Some("-12.50")),
        (&decimal, "1.25e1", Some("12.50")),
        (&decimal, "1.255", None),
        (&decimal, "99999999.99", Some("99999999.99")),
        (&decimal, "100000000", None),
        (&decimal, "\"Ew==\"", None),
        (&decimal, "0.000", Some("0.00")),
        (&DataType::Date32, "19723", Some("2024-01-01")),
        (&DataType::Date32, "-1", Some("1969-12-31")),
        (&DataType::Date32, "\"2024-02-29\"", Some("2024-02-29")),
        (&DataType::Date32, "\"2024-02-29Z\"", Some("2024-02-29")),
        (&DataType::Date32, "\"2023-02-29\"", None),
        (&DataType::Date32, "\"2024-02-29T10:00:00\"", None),
        (&MICROS, "\"2024-01-01T10:00:00.000001Z\"", Some("2024-01-01T10:00:00.000001")),
        (&MICROS, "\"2024-01-01T10:00:00+02:00\"", Some("2024-01-01T08:00:00")),
        (&MICROS, "\"2024-01-01 10:00:00.5\"", Some("2024-01-01T10:00:00.500")),
        (&MICROS, "\"2024-01-01T10:00:00.0000001Z\"", None),
        (&MICROS, "1704067200000", None),
        (&DataType::Utf8, "12345678901234567890.10", Some("12345678901234567890.10")),
        (&DataType::Utf8, "{\"a\": [1, 2]}", Some("{\"a\": [1, 2]}")),
        (&DataType::Utf8, "null", Some("")),
        (&DataType::Binary, "\"AA==\"", None),
    ];
    for (of, value, expected) in cases {
        match (plain((*of).clone(), value), expected) {
            (Ok(shown), Some(expected)) => assert_eq!(shown, *expected, "{value} as {of}"),
            (Err(error), None) => assert!(error.to_string().contains("column 'v'"), "{value} as {of}: {error}"),
            (shown, _) => panic!("{value} as {of}: {shown:?}, expected {expected:?}"),
        }
    }
}

#[test]
fn unit_of_plain_times_is_an_option_and_never_guessed() {
    let error = plain(MICROS, "1704067200000").unwrap_err().to_string();
    assert!(error.contains("sink.debezium.time-precision"), "{error}");
    for (precision, value) in [
        (TimePrecision::Millis, "1704067200123"),
        (TimePrecision::Micros, "1704067200123000"),
        (TimePrecision::Nanos, "1704067200123000000"),
    ] {
        let mut decoder = decoder(&[("v", MICROS)]);
        decoder.options.time_precision = Some(precision);
        let event = format!(r#"{{"op":"c","after":{{"v":{value}}}}}"#);
        assert_eq!(rows(&mut decoder, &text(&[&event])).unwrap(), ["+I 2024-01-01T00:00:00.123"]);
    }
    let mut decoder = decoder(&[("v", MICROS)]);
    decoder.options.time_zone = Tz::Asia__Shanghai;
    let event = r#"{"op":"c","after":{"v":"2024-01-01T00:00:00Z"}}"#;
    assert_eq!(rows(&mut decoder, &text(&[event])).unwrap(), ["+I 2024-01-01T08:00:00"]);
}

/// One value whose schema is `schema`, as it is shown in a column.
fn typed(of: DataType, schema: &str, value: &str) -> Result<String> {
    let mut decoder = decoder(&[("v", of)]);
    let event = format!(
        r#"{{"schema":{{"type":"struct","fields":[{{"type":"struct","field":"before","fields":[]}},
            {{"type":"struct","field":"after","fields":[{schema}]}}]}},"payload":{{"op":"c","after":{{"v":{value}}}}}}}"#
    );
    Ok(rows(&mut decoder, &text(&[&event]))?[0].trim_start_matches("+I").trim_start().to_string())
}

#[test]
fn schema_tells_what_values_are() {
    let named = |kind: &str, name: &str| format!(r#"{{"type":"{kind}","name":"{name}","field":"v"}}"#);
    let decimal = |scale: i32| {
        format!(
            r#"{{"type":"bytes","name":"org.apache.kafka.connect.data.Decimal","parameters":{{"scale":"{scale}"}},"field":"v"}}"#
        )
    };
    let bits = named("bytes", "io.debezium.data.Bits");
    let money = DataType::Decimal128(10, 2);
    let list = DataType::List(Arc::new(Field::new_list_field(DataType::Date32, true)));
    let dates = r#"{"type":"array","items":{"type":"int32","name":"io.debezium.time.Date"},"field":"v"}"#;
    let cases: Vec<(DataType, String, &str, Option<&str>)> = vec![
        (DataType::Date32, named("int32", "io.debezium.time.Date"), "19723", Some("2024-01-01")),
        (DataType::Utf8, named("int32", "io.debezium.time.Date"), "19723", Some("2024-01-01")),
        (MICROS, named("int64", "io.debezium.time.Timestamp"), "1704067200123", Some("2024-01-01T00:00:00.123")),
        (
            MICROS,
            named("int64", "io.debezium.time.MicroTimestamp"),
            "1704067200000001",
            Some("2024-01-01T00:00:00.000001"),
        ),
        (
            MICROS,
            named("int64", "io.debezium.time.NanoTimestamp"),
            "1704067200000001000",
            Some("2024-01-01T00:00:00.000001"),
        ),
        (MICROS, named("int64", "io.debezium.time.NanoTimestamp"), "1704067200000000001", None),
        (MICROS, named("int64", "io.debezium.time.MicroTimestamp"), "-1", Some("1969-12-31T23:59:59.999999")),
        (DataType::Utf8, named("int64", "io.debezium.time.MicroTime"), "3723000001", Some("01:02:03.000001")),
        (DataType::Utf8, named("int64", "io.debezium.time.MicroTime"), "-3020399000000", Some("-838:59:59")),
        (DataType::Date32, named("int64", "io.debezium.time.Timestamp"), "1704067200000", Some("2024-01-01")),
        (DataType::Date32, named("int64", "io.debezium.time.Timestamp"), "1704067200001", None),
        // 12345 and -12345, two digits after the point.
        (money.clone(), decimal(2), "\"MDk=\"", Some("123.45")),
        (money.clone(), decimal(2), "\"z8c=\"", Some("-123.45")),
        (money.clone(), decimal(3), "\"MDk=\"", None),
        (money.clone(), decimal(-2), "\"AQ==\"", Some("100.00")),
        (money.clone(), decimal(2), "\"\"", Some("0.00")),
        (DataType::Utf8, decimal(2), "\"MDk=\"", Some("123.45")),
        (DataType::Float64, decimal(2), "\"MDk=\"", Some("123.45")),
        (DataType::Int32, decimal(0), "\"MDk=\"", Some("12345")),
        (money.clone(), decimal(2), "\"not base64!\"", None),
        (
            money,
            named("struct", "io.debezium.data.VariableScaleDecimal"),
            r#"{"scale":2,"value":"MDk="}"#,
            Some("123.45"),
        ),
        (DataType::Boolean, bits.clone(), "\"AQ==\"", Some("true")),
        (DataType::Int32, bits.clone(), "\"AAE=\"", Some("256")),
        (DataType::Utf8, bits, "\"AAE=\"", None),
        (list, dates.into(), "[19723, null]", Some("[2024-01-01, ]")),
        (DataType::Utf8, named("string", "io.debezium.data.Json"), r#""{\"a\":1}""#, Some(r#"{"a":1}"#)),
    ];
    for (of, schema, value, expected) in cases {
        match (typed(of.clone(), &schema, value), expected) {
            (Ok(shown), Some(expected)) => assert_eq!(shown, expected, "{value} of {schema} as {of}"),
            (Err(_), None) => {}
            (shown, _) => panic!("{value} of {schema} as {of}: {shown:?}, expected {expected:?}"),
        }
    }
}

#[test]
fn nested_values_come_as_objects_or_as_text() {
    let fields = vec![Field::new("b", DataType::Int32, true), Field::new("a", DataType::Utf8, true)];
    let row = DataType::Struct(fields.into());
    let entries = vec![Field::new("key", DataType::Utf8, false), Field::new("value", DataType::Int32, true)];
    let map = DataType::Map(Arc::new(Field::new("entries", DataType::Struct(entries.into()), false)), false);
    assert_eq!(plain(row.clone(), r#"{"a":"x","b":1}"#).unwrap(), "{b: 1, a: x}");
    assert_eq!(plain(row.clone(), r#""{\"B\":2}""#).unwrap(), "{b: 2, a: }");
    assert_eq!(plain(map.clone(), r#"{"k":1,"l":null}"#).unwrap(), "{k: 1, l: }");
    assert!(plain(map, r#"{"k":1.5}"#).is_err());
    assert!(plain(row, "[1]").is_err());
}

mod properties {
    use proptest::prelude::*;

    use super::super::decimal::Number;

    proptest! {
        /// Text to number to text keeps the value, and base64 gives what text gives.
        #[test]
        fn decimals_keep_their_value(unscaled in any::<i128>(), scale in 0_i32..38) {
            use base64::Engine;
            let encoded = base64::prelude::BASE64_STANDARD.encode(unscaled.to_be_bytes());
            let number = Number::from_base64(&encoded, scale).unwrap();
            let text = number.text();
            prop_assert_eq!(&Number::parse(&text).unwrap(), &number);
            let digits: String = text.chars().filter(char::is_ascii_digit).collect();
            let expected = unscaled.unsigned_abs().to_string();
            prop_assert_eq!(digits.trim_start_matches('0'), expected.trim_start_matches('0'));
            prop_assert_eq!(text.split_once('.').map_or(0, |(_, fraction)| fraction.len()), usize::try_from(scale).unwrap());
            prop_assert_eq!(text.starts_with('-'), unscaled < 0);
        }

        /// No text of an event makes the decoder panic.
        #[test]
        fn any_text_is_rows_or_an_error(text in "\\PC{0,80}", value in "\\PC{0,30}") {
            let mut decoder = super::orders();
            let event = format!("{{\"op\":\"c\",\"after\":{{\"id\":{value},\"name\":\"a\"}}}}");
            let _ = decoder.decode(&super::text(&[&text]));
            let _ = decoder.decode(&super::text(&[&event]));
        }
    }
}
