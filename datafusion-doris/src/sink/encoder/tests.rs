use std::sync::Arc;

use ::arrow::array::{
    ArrayRef, BooleanArray, Date32Array, Date64Array, Decimal32Array, Decimal64Array, Decimal128Array, Decimal256Array,
    DictionaryArray, FixedSizeListArray, Float64Array, Int32Array, Int64Array, LargeStringArray, ListArray,
    ListViewArray, MapBuilder, RunArray, StringArray, StringBuilder, StringViewArray, StructArray, Time32SecondArray,
    Time64NanosecondArray, TimestampMicrosecondArray, TimestampNanosecondArray, UInt8Array, UInt64Array,
};
use ::arrow::buffer::OffsetBuffer;
use ::arrow::datatypes::{DataType, Field, Int32Type, i256};
use ::arrow::record_batch::RecordBatch;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::options::{CsvFormat, SinkOptions};

/// What a server reads: `None` is NULL.
type Rows = Vec<Vec<Option<Vec<u8>>>>;

/// Reads csv as the server does, written apart from the encoder: NULL is an unquoted `\N`; between enclosing bytes
/// separators are data, and an escape byte makes the next byte data.
fn read_csv(body: &[u8], format: &CsvFormat) -> Rows {
    let (mut rows, mut row, mut field) = (Vec::new(), Vec::new(), Vec::new());
    let (mut quoted, mut inside, mut at) = (false, false, 0);
    let end = |field: &mut Vec<u8>, quoted: &mut bool| {
        let text = std::mem::take(field);
        let null = !std::mem::take(quoted) && text == b"\\N";
        (!null).then_some(text)
    };
    while at < body.len() {
        let rest = &body[at..];
        if inside {
            match rest[0] {
                byte if Some(byte) == format.escape => {
                    field.push(rest[1]);
                    at += 2;
                    continue;
                }
                byte if Some(byte) == format.enclose => inside = false,
                byte => field.push(byte),
            }
            at += 1;
        } else if rest.starts_with(&format.column_separator) {
            row.push(end(&mut field, &mut quoted));
            at += format.column_separator.len();
        } else if rest.starts_with(&format.line_delimiter) {
            row.push(end(&mut field, &mut quoted));
            rows.push(std::mem::take(&mut row));
            at += format.line_delimiter.len();
        } else {
            match rest[0] {
                byte if Some(byte) == format.enclose && field.is_empty() => (inside, quoted) = (true, true),
                byte => field.push(byte),
            }
            at += 1;
        }
    }
    assert!(row.is_empty() && field.is_empty() && !inside, "the last row is not ended");
    rows
}

fn batch(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, array)| (name, array, true))).unwrap()
}

/// A layout of all columns, the change kind apart.
pub(super) fn plan(schema: &Schema, change_kind: Option<&str>, delete_sign: bool) -> Result<RowLayout> {
    let kind = change_kind.map(|name| schema.index_of(name).unwrap());
    let columns = schema.fields().iter().enumerate().filter(|(at, _)| Some(*at) != kind);
    let body: Vec<(usize, String)> = columns.map(|(at, field)| (at, field.name().clone())).collect();
    RowLayout::try_new("db.t", schema, body, kind.map_or(Changes::None, Changes::Kind), delete_sign && kind.is_some())
}

fn layout(batch: &RecordBatch, change_kind: Option<&str>, delete_sign: bool, ignore: bool) -> RowLayout {
    plan(batch.schema_ref(), change_kind, delete_sign).unwrap().ignoring_update_before(ignore)
}

fn csv_with(batch: &RecordBatch, format: &CsvFormat) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    CsvEncoder::new(layout(batch, None, false, true), format.clone()).encode(batch, &mut out)?;
    Ok(out)
}

fn csv(batch: &RecordBatch) -> String {
    String::from_utf8(csv_with(batch, &CsvFormat::default()).unwrap()).unwrap()
}

fn json_text(batch: &RecordBatch) -> Result<String> {
    let mut out = Vec::new();
    JsonEncoder::new(layout(batch, None, false, true)).encode(batch, &mut out)?;
    Ok(String::from_utf8(out).unwrap())
}

fn json_rows(batch: &RecordBatch) -> Vec<Value> {
    json_text(batch).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn separators(column: &[u8], line: &[u8]) -> CsvFormat {
    CsvFormat { column_separator: column.to_vec(), line_delimiter: line.to_vec(), enclose: None, escape: None }
}

/// a TAB b LF backslash quote comma U+0001 CR z
const HARD: &str = "a\tb\n\\\",\u{1}\rz";

#[test]
fn separators_and_quotes_in_text_arrive_unchanged() {
    let batch =
        batch(vec![("id", Arc::new(Int32Array::from(vec![1]))), ("s", Arc::new(StringArray::from(vec![HARD])))]);
    let format = CsvFormat::default();
    let rows = read_csv(&csv_with(&batch, &format).unwrap(), &format);
    assert_eq!(rows, [[Some(b"1".to_vec()), Some(HARD.as_bytes().to_vec())]]);
    assert_eq!(json_rows(&batch), [json!({ "id": 1, "s": HARD })]);
}

#[test]
fn own_separators_refuse_a_value_that_holds_one() {
    let format = separators(b"\x01", b"\x02");
    let fine =
        batch(vec![("id", Arc::new(Int32Array::from(vec![1]))), ("s", Arc::new(StringArray::from(vec!["a\tb\n\""])))]);
    assert_eq!(csv_with(&fine, &format).unwrap(), b"1\x01a\tb\n\"\x02");
    for bad in [HARD, "x\u{2}", "\\N"] {
        let batch = batch(vec![("s", Arc::new(StringArray::from(vec!["ok", bad])))]);
        match csv_with(&batch, &format).unwrap_err() {
            Error::Encode { table, column, row, .. } => {
                assert_eq!((table.as_str(), column.as_str(), row), ("db.t", "s", 1));
            }
            other => panic!("expected an encode error, got {other}"),
        }
    }
    let numbers = batch(vec![("d", Arc::new(Date32Array::from(vec![0])))]);
    assert!(csv_with(&numbers, &separators(b"-", b"\n")).is_err());
    let tail =
        batch(vec![("s", Arc::new(StringArray::from(vec!["a|"]))), ("t", Arc::new(StringArray::from(vec!["b"])))]);
    assert!(csv_with(&tail, &separators(b"||", b"\n")).is_err());
}

#[test]
fn null_empty_text_and_the_text_backslash_n_stay_apart() {
    let texts = vec![None, Some(""), Some("\\N"), Some("null"), Some("\"")];
    let batch = batch(vec![("s", Arc::new(StringArray::from(texts.clone())))]);
    let format = CsvFormat::default();
    let rows = read_csv(&csv_with(&batch, &format).unwrap(), &format);
    let expected: Rows = texts.iter().map(|text| vec![text.map(|text| text.as_bytes().to_vec())]).collect();
    assert_eq!(rows, expected);
    assert_eq!(csv(&batch), "\\N\n\"\"\n\"\\\\N\"\n\"null\"\n\"\\\"\"\n");
    let values: Vec<Value> = texts.iter().map(|text| json!({ "s": text })).collect();
    assert_eq!(json_rows(&batch), values);
}

#[test]
fn big_numbers_keep_every_digit() {
    let decimal =
        Decimal128Array::from(vec![99999999999999999999999999999999999999i128]).with_precision_and_scale(38, 10);
    let largeint = Decimal256Array::from(vec![i256::from_i128(i128::MIN)]).with_precision_and_scale(39, 0);
    let batch = batch(vec![
        ("b", Arc::new(Int64Array::from(vec![9007199254740993]))),
        ("u", Arc::new(UInt64Array::from(vec![u64::MAX]))),
        ("l", Arc::new(largeint.unwrap())),
        ("d", Arc::new(decimal.unwrap())),
    ]);
    for text in [csv(&batch), json_text(&batch).unwrap()] {
        for digits in [
            "9007199254740993",
            "18446744073709551615",
            "-170141183460469231731687303715884105728",
            "9999999999999999999999999999.9999999999",
        ] {
            assert!(text.contains(digits), "{text}");
        }
        assert!(!text.contains(['e', 'E']), "{text}");
    }
    assert!(json_text(&batch).unwrap().contains("\"d\":\"9999"), "decimals are quoted");
}

#[test]
fn floats_are_shortest_and_never_null() {
    let values = vec![0.1, -0.0, 1.0, 1e300, 5e-324, f64::NAN, f64::INFINITY, f64::NEG_INFINITY];
    let batch = batch(vec![("f", Arc::new(Float64Array::from(values)))]);
    assert_eq!(csv(&batch), "0.1\n-0.0\n1.0\n1e+300\n5e-324\nNaN\nInfinity\n-Infinity\n");
    let json = json_text(&batch).unwrap();
    let lines: Vec<&str> = json.lines().collect();
    assert_eq!(lines[0], "{\"f\":0.1}");
    assert_eq!(&lines[5..], ["{\"f\":\"NaN\"}", "{\"f\":\"Infinity\"}", "{\"f\":\"-Infinity\"}"]);
}

#[test]
fn times_are_wall_clocks_and_zoned_ones_say_so() {
    let micros = vec![Some(1_700_000_000_000_000), Some(-1), None];
    let naive = TimestampMicrosecondArray::from(micros.clone());
    let zoned = TimestampMicrosecondArray::from(micros).with_timezone("+08:00");
    let batch = batch(vec![
        ("n", Arc::new(naive)),
        ("z", Arc::new(zoned)),
        ("d", Arc::new(Date32Array::from(vec![Some(0), Some(-1), None]))),
    ]);
    assert_eq!(
        csv(&batch),
        "2023-11-14 22:13:20\t2023-11-14 22:13:20+00:00\t1970-01-01\n\
         1969-12-31 23:59:59.999999\t1969-12-31 23:59:59.999999+00:00\t1969-12-31\n\
         \\N\t\\N\t\\N\n"
    );
    assert_eq!(json_rows(&batch)[1]["n"], json!("1969-12-31 23:59:59.999999"));
}

#[test]
fn values_that_would_lose_something_are_refused_with_column_and_row() {
    let nanos = TimestampNanosecondArray::from(vec![1_000, 1_001]);
    let far = TimestampMicrosecondArray::from(vec![0, i64::MAX]);
    for (name, array) in [("nanos", Arc::new(nanos) as ArrayRef), ("far", Arc::new(far))] {
        let batch = batch(vec![("id", Arc::new(Int32Array::from(vec![1, 2]))), (name, array)]);
        for error in [csv_with(&batch, &CsvFormat::default()).unwrap_err(), json_text(&batch).unwrap_err()] {
            assert!(matches!(&error, Error::Encode { column, row: 1, .. } if column == name), "{error}");
        }
    }
}

#[test]
fn types_that_cannot_be_written_are_refused_at_planning() {
    let types = [
        DataType::Binary,
        DataType::Interval(::arrow::datatypes::IntervalUnit::DayTime),
        DataType::Duration(::arrow::datatypes::TimeUnit::Second),
        DataType::List(Arc::new(Field::new("item", DataType::LargeBinary, true))),
    ];
    for data_type in types {
        let schema = Schema::new(vec![Field::new("odd", data_type, true)]);
        let error = plan(&schema, None, false).unwrap_err().to_string();
        assert!(error.contains("'odd'") && error.contains("db.t"), "{error}");
    }
}

#[test]
fn nested_values_are_json_in_both_formats() {
    let inner: ArrayRef = Arc::new(StringArray::from(vec![Some("a\"b"), None, Some("c")]));
    let item = Arc::new(Field::new("item", DataType::Utf8, true));
    let list = ListArray::new(Arc::clone(&item), OffsetBuffer::new(vec![0, 2, 2].into()), inner.slice(0, 2), None);
    let decimals: ArrayRef = Arc::new(Decimal128Array::from(vec![150, -1]).with_precision_and_scale(38, 2).unwrap());
    let structs = StructArray::from(vec![(Arc::new(Field::new("x", decimals.data_type().clone(), true)), decimals)]);
    let mut map = MapBuilder::new(None, StringBuilder::new(), ::arrow::array::Int32Builder::new());
    map.keys().append_value("k");
    map.values().append_value(1);
    map.append(true).unwrap();
    map.append(false).unwrap();
    let batch = batch(vec![("l", Arc::new(list)), ("s", Arc::new(structs)), ("m", Arc::new(map.finish()))]);
    assert!(has_nested(batch.schema_ref()));
    assert_eq!(
        json_text(&batch).unwrap(),
        "{\"l\":[\"a\\\"b\",null],\"s\":{\"x\":1.50},\"m\":{\"k\":1}}\n{\"l\":[],\"s\":{\"x\":-0.01},\"m\":null}\n"
    );
    let format = CsvFormat::default();
    let rows = read_csv(&csv_with(&batch, &format).unwrap(), &format);
    assert_eq!(rows[0][0].as_deref(), Some(&b"[\"a\\\"b\",null]"[..]));
    assert_eq!(rows[1][2], None);
}

#[test]
fn every_string_encoding_and_slices_read_the_same() {
    let texts = vec![Some("zero"), Some("one"), None, Some("three")];
    let keys = Int32Array::from(vec![Some(0), Some(1), None, Some(2)]);
    let values: ArrayRef = Arc::new(StringArray::from(vec!["zero", "one", "three"]));
    let dictionary = DictionaryArray::<Int32Type>::new(keys, values);
    let batch = batch(vec![
        ("a", Arc::new(StringArray::from(texts.clone()))),
        ("b", Arc::new(LargeStringArray::from(texts.clone()))),
        ("c", Arc::new(StringViewArray::from(texts))),
        ("d", Arc::new(dictionary)),
        ("e", Arc::new(BooleanArray::from(vec![Some(true), Some(false), None, Some(true)]))),
    ]);
    let tail = batch.slice(1, 3);
    assert_eq!(
        csv(&tail),
        "\"one\"\t\"one\"\t\"one\"\t\"one\"\tfalse\n\\N\t\\N\t\\N\t\\N\t\\N\n\"three\"\t\"three\"\t\"three\"\t\"three\"\ttrue\n"
    );
    assert_eq!(json_rows(&tail)[0], json!({ "a": "one", "b": "one", "c": "one", "d": "one", "e": false }));
}

#[test]
fn numbers_of_every_width_and_times_of_day_are_texts() {
    let batch = batch(vec![
        ("d32", Arc::new(Decimal32Array::from(vec![-105]).with_precision_and_scale(9, 2).unwrap())),
        ("d64", Arc::new(Decimal64Array::from(vec![7]).with_precision_and_scale(18, 18).unwrap())),
        ("u8", Arc::new(UInt8Array::from(vec![u8::MAX]))),
        ("f16", ::arrow::compute::cast(&Float64Array::from(vec![0.5]), &DataType::Float16).unwrap()),
        ("day", Arc::new(Date64Array::from(vec![-86_400_000]))),
        ("s", Arc::new(Time32SecondArray::from(vec![86_399]))),
        ("ns", Arc::new(Time64NanosecondArray::from(vec![1_000]))),
    ]);
    let texts = ["-1.05", "0.000000000000000007", "255", "0.5", "1969-12-31", "23:59:59", "00:00:00.000001"];
    assert_eq!(csv(&batch), format!("{}\n", texts.join("\t")));
    let found = json_rows(&batch);
    let names = ["d32", "d64", "u8", "f16", "day", "s", "ns"];
    for (name, text) in names.into_iter().zip(texts) {
        let value = &found[0][name];
        let found = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        assert_eq!(found, text, "{name}");
    }
}

#[test]
fn runs_views_and_every_kind_of_list_read_the_same_in_texts() {
    let item = Arc::new(Field::new("item", DataType::Int32, true));
    let values: ArrayRef = Arc::new(Int32Array::from(vec![Some(1), None, Some(3), Some(4)]));
    let ends = Int32Array::from(vec![1, 3]);
    let runs = RunArray::<Int32Type>::try_new(&ends, &StringArray::from(vec![Some("r"), None])).unwrap();
    let lists = [
        Arc::new(FixedSizeListArray::new(Arc::clone(&item), 1, values.slice(1, 3), None)) as ArrayRef,
        Arc::new(ListViewArray::new(Arc::clone(&item), vec![1, 2, 3].into(), vec![1, 1, 1].into(), values, None)),
    ];
    for list in lists {
        let batch = batch(vec![("r", Arc::new(runs.clone()) as ArrayRef), ("l", list)]);
        assert!(has_nested(batch.schema_ref()));
        assert_eq!(csv(&batch), "\"r\"\t\"[null]\"\n\\N\t\"[3]\"\n\\N\t\"[4]\"\n");
        assert_eq!(json_rows(&batch.slice(1, 1)), [json!({ "r": null, "l": [3] })]);
    }
}

fn changes(kinds: Vec<Option<&str>>) -> RecordBatch {
    let ids = Int32Array::from_iter_values(0..kinds.len() as i32);
    batch(vec![("id", Arc::new(ids)), ("__change_kind", Arc::new(StringViewArray::from(kinds)))])
}

#[test]
fn change_kinds_become_the_delete_sign() {
    let batch = changes(vec![Some("+I"), Some("-U"), Some("+U"), Some("-D")]);
    let mut out = Vec::new();
    let ignoring = layout(&batch, Some("__change_kind"), true, true);
    assert_eq!(ignoring.names().collect::<Vec<_>>(), ["id"]);
    let rows = CsvEncoder::new(ignoring.clone(), CsvFormat::default()).encode(&batch, &mut out).unwrap();
    assert_eq!((rows, out.as_slice()), (3, &b"0\t0\n2\t0\n3\t1\n"[..]));

    out.clear();
    let keeping = layout(&batch, Some("__change_kind"), true, false);
    JsonEncoder::new(keeping).encode(&batch, &mut out).unwrap();
    let signs: Vec<Value> = out
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| serde_json::from_slice(line).unwrap())
        .collect();
    assert_eq!(signs[1], json!({ "id": 1, "__DORIS_DELETE_SIGN__": 1 }));
    assert_eq!(signs[2], json!({ "id": 2, "__DORIS_DELETE_SIGN__": 0 }));
}

#[test]
fn unknown_kinds_and_deletes_without_a_sign_are_refused() {
    for (kinds, sign, expected) in [
        (vec![Some("+I"), Some("?")], true, "unknown change kind '?'"),
        (vec![Some("+I"), None], true, "NULL"),
        (vec![Some("+I"), Some("-D")], false, "sink.enable-delete"),
    ] {
        let batch = changes(kinds);
        let mut encoder = JsonEncoder::new(layout(&batch, Some("__change_kind"), sign, true));
        let error = encoder.encode(&batch, &mut Vec::new()).unwrap_err();
        assert!(matches!(error, Error::Encode { row: 1, .. }), "{error}");
        assert!(error.to_string().contains(expected), "{error}");
    }
    let batch = changes(vec![Some("+I"), Some("-U")]);
    let mut out = Vec::new();
    assert_eq!(
        JsonEncoder::new(layout(&batch, Some("__change_kind"), false, true)).encode(&batch, &mut out).unwrap(),
        1
    );
}

#[test]
fn null_in_a_not_null_column_is_refused_except_in_values_of_deletes() {
    let schema = Schema::new(vec![
        Field::new("id", DataType::Int32, false),
        Field::new("v", DataType::Utf8, false),
        Field::new("kind", DataType::Utf8, false),
    ]);
    let row_layout = plan(&schema, Some("kind"), true).unwrap();
    let row_layout = row_layout.with_keys(|name| name == "id");
    let rows = |id: Option<i32>, kind: &str| {
        batch(vec![
            ("id", Arc::new(Int32Array::from(vec![id]))),
            ("v", Arc::new(StringArray::from(vec![None::<&str>]))),
            ("kind", Arc::new(StringArray::from(vec![kind]))),
        ])
    };
    let mut encoder = JsonEncoder::new(row_layout);
    let mut body = Vec::new();
    // Doris would refuse the NULL of a deleted row too.
    encoder.encode(&rows(Some(1), "-D"), &mut body).unwrap();
    let body: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!((&body["id"], &body["v"]), (&1.into(), &"".into()));
    for (id, kind, expected) in [(Some(1), "+I", "v"), (None, "-D", "id")] {
        let error = encoder.encode(&rows(id, kind), &mut Vec::new()).unwrap_err();
        assert!(matches!(&error, Error::Encode { column, row: 0, .. } if column == expected), "{error}");
    }
}

proptest! {
    #[test]
    fn any_row_survives_csv(
        rows in prop::collection::vec(
            (any::<Option<i64>>(), prop::option::of("\\PC*|[\\x00-\\x7f]*"), prop::option::of(any::<f64>())), 1..20)
    ) {
        let batch = batch(vec![
            ("i", Arc::new(Int64Array::from_iter(rows.iter().map(|row| row.0)))),
            ("s", Arc::new(StringViewArray::from_iter(rows.iter().map(|row| row.1.as_deref())))),
            ("f", Arc::new(Float64Array::from_iter(rows.iter().map(|row| row.2)))),
        ]);
        let options = SinkOptions::default();
        let read = read_csv(&csv_with(&batch, &options.csv).unwrap(), &options.csv);
        prop_assert_eq!(read.len(), rows.len());
        for ((int, text, float), fields) in rows.iter().zip(read) {
            let utf8 = |at: usize| fields[at].clone().map(|field| String::from_utf8(field).unwrap());
            prop_assert_eq!(utf8(0), int.map(|int| int.to_string()));
            prop_assert_eq!(utf8(1), text.clone());
            match (utf8(2), float) {
                (Some(read), Some(float)) if !float.is_nan() => {
                    prop_assert_eq!(read.parse::<f64>().unwrap().to_bits(), float.to_bits());
                }
                (read, float) => prop_assert_eq!(read.is_some(), float.is_some()),
            }
        }
    }

    #[test]
    fn any_row_survives_json(
        rows in prop::collection::vec(
            (any::<Option<i64>>(), prop::option::of("\\PC*|[\\x00-\\x7f]*"), prop::option::of(any::<i128>())), 1..20)
    ) {
        let limit = 10i128.pow(38);
        let decimal = |row: &(Option<i64>, Option<String>, Option<i128>)| row.2.map(|value| value % limit);
        let decimals = Decimal128Array::from_iter(rows.iter().map(decimal)).with_precision_and_scale(38, 0).unwrap();
        let batch = batch(vec![
            ("i", Arc::new(Int64Array::from_iter(rows.iter().map(|row| row.0)))),
            ("s \"quoted\"", Arc::new(StringArray::from_iter(rows.iter().map(|row| row.1.as_deref())))),
            ("d", Arc::new(decimals)),
        ]);
        let read = json_rows(&batch);
        prop_assert_eq!(read.len(), rows.len());
        for (row, object) in rows.iter().zip(read) {
            let expected = json!({ "i": row.0, "s \"quoted\"": row.1, "d": decimal(row).map(|value| value.to_string()) });
            prop_assert_eq!(object, expected);
        }
    }
}
