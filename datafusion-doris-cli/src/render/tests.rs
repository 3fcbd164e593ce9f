#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Float64Array, Int64Array, ListArray, NullArray, StringArray};
use datafusion::arrow::datatypes::{Int32Type, Schema};

use super::*;

fn sample() -> RecordBatch {
    RecordBatch::try_from_iter([
        ("id", Arc::new(Int64Array::from(vec![1, 2, 3])) as ArrayRef),
        ("Name", Arc::new(StringArray::from(vec![Some("Ada, \"A\""), Some(""), None]))),
        ("note", Arc::new(StringArray::from(vec!["tab\there", "two\nlines", "日本 \\ \u{1b}[31m"]))),
        ("x", Arc::new(Float64Array::from(vec![Some(0.5), Some(f64::NAN), None]))),
        ("nothing", Arc::new(NullArray::new(3))),
        (
            "list",
            Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>(vec![
                Some(vec![Some(1), None]),
                None,
                Some(vec![]),
            ])),
        ),
    ])
    .unwrap()
}

fn render(format: Format, live: bool, batches: &[RecordBatch]) -> String {
    let schema = batches.first().map_or_else(|| Arc::new(Schema::empty()), RecordBatch::schema);
    let mut writer = format.writer(&schema, live);
    let mut out = Vec::new();
    for batch in batches {
        writer.batch(batch, &mut out).unwrap();
    }
    writer.finish(&mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn every_format_prints_the_sample() {
    insta::assert_snapshot!("table", render(Format::Table, false, &[sample()]));
    insta::assert_snapshot!("csv", render(Format::Csv, false, &[sample()]));
    insta::assert_snapshot!("tsv", render(Format::Tsv, false, &[sample()]));
    insta::assert_snapshot!("json", render(Format::Json, false, &[sample()]));
    insta::assert_snapshot!("ndjson", render(Format::Ndjson, false, &[sample()]));
    insta::assert_snapshot!("vertical", render(Format::Vertical, false, &[sample()]));
}

#[test]
fn several_batches_print_like_one() {
    let whole = sample();
    let parts: Vec<_> = (0..3).map(|row| whole.slice(row, 1)).collect();
    for format in Format::ALL {
        assert_eq!(render(format, false, &parts), render(format, false, std::slice::from_ref(&whole)), "{format}");
    }
}

#[test]
fn an_empty_result_still_shows_its_columns() {
    let none = [sample().slice(0, 0)];
    assert_eq!(render(Format::Csv, false, &none), "id,Name,note,x,nothing,list\n");
    assert_eq!(render(Format::Json, false, &none), "[]\n");
    assert_eq!(render(Format::Ndjson, false, &none), "");
    assert_eq!(render(Format::Vertical, false, &none), "");
    assert!(render(Format::Table, false, &none).contains("| id | Name |"));
}

fn numbers(values: &[&str]) -> RecordBatch {
    RecordBatch::try_from_iter([("n", Arc::new(StringArray::from(values.to_vec())) as ArrayRef)]).unwrap()
}

#[test]
fn a_live_table_prints_each_batch_and_widens_under_a_new_head() {
    let schema = numbers(&["1"]).schema();
    let mut writer = Format::Table.writer(&schema, true);
    let mut print = |values: &[&str]| {
        let mut out = Vec::new();
        writer.batch(&numbers(values), &mut out).unwrap();
        String::from_utf8(out).unwrap()
    };
    assert_eq!(print(&["10", "2"]), "+----+\n| n  |\n+----+\n| 10 |\n| 2  |\n");
    assert_eq!(print(&["3"]), "| 3  |\n");
    assert_eq!(print(&["100"]), "+-----+\n| n   |\n+-----+\n| 100 |\n");
    assert_eq!(print(&[]), "");
}

#[test]
fn a_long_table_is_printed_in_chunks() {
    let values: Vec<String> = (0..2_500).map(|i| i.to_string()).collect();
    let batch = numbers(&values.iter().map(String::as_str).collect::<Vec<_>>());
    let mut writer = Format::Table.writer(&batch.schema(), false);
    let mut out = Vec::new();
    writer.batch(&batch, &mut out).unwrap();
    let early = String::from_utf8(out.clone()).unwrap();
    assert!(early.contains("| 1999 |") && !early.contains("| 2000 |"), "rows wait for at most one chunk");
    writer.finish(&mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    assert_eq!(text.lines().filter(|line| line.starts_with("| ")).count(), 2_500 + 2, "rows and two heads");
}

#[test]
fn formats_are_known_by_name() {
    for format in Format::ALL {
        assert_eq!(format.to_string().parse(), Ok(format));
    }
    assert!("yaml".parse::<Format>().unwrap_err().contains("`yaml`"));
}
