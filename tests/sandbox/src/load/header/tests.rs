#![allow(clippy::unwrap_used, clippy::expect_used)]

use http::{HeaderName, HeaderValue};

use super::*;

fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
    pairs
        .iter()
        .map(|(name, value)| (name.parse::<HeaderName>().expect("name"), HeaderValue::from_str(value).expect("value")))
        .collect()
}

fn head(pairs: &[(&str, &str)]) -> Result<LoadHead, HeaderError> {
    LoadHead::parse(&headers(pairs))
}

fn plan(pairs: &[(&str, &str)]) -> Result<LoadPlan, HeaderError> {
    LoadPlan::parse(&headers(pairs))
}

#[test]
fn without_headers_a_load_is_tab_separated_text_with_the_long_timeout() {
    let head = head(&[]).expect("head");
    assert_eq!((head.format, head.gzip, head.two_phase), (Format::Csv { header_lines: 0 }, false, false));
    assert_eq!((head.label, head.timeout), (None, Duration::from_secs(259_200)));
    let plan = plan(&[]).expect("plan");
    assert_eq!((plan.csv.separator.as_slice(), plan.csv.delimiter.as_slice()), (b"\t".as_slice(), b"\n".as_slice()));
    assert_eq!((plan.max_filter_ratio, plan.strict_mode, plan.json.by_line), (0.0, false, true));
}

#[test]
fn formats_and_compressions() {
    for (pairs, format, gzip) in [
        (vec![("format", "JSON")], Format::Json, false),
        (vec![("format", "arrow")], Format::Arrow, false),
        (vec![("format", "csv_with_names")], Format::Csv { header_lines: 1 }, false),
        (vec![("format", "csv_with_names_and_types")], Format::Csv { header_lines: 2 }, false),
        (vec![("compress_type", "GZ")], Format::Csv { header_lines: 0 }, true),
        (vec![("content-encoding", "gzip")], Format::Csv { header_lines: 0 }, true),
        (vec![("compress_type", "")], Format::Csv { header_lines: 0 }, false),
    ] {
        let head = head(&pairs).expect("head");
        assert_eq!((head.format, head.gzip), (format, gzip), "{pairs:?}");
    }
}

#[test]
fn first_step_refusals() {
    for (pairs, code, message) in [
        (vec![("format", "xml")], "DATA_FILE_TYPE_ERROR", "unknown data format, format=xml"),
        (vec![("compress_type", "rar")], "DATA_FILE_TYPE_ERROR", "unknown data format, format=csv"),
        (vec![("format", "parquet")], "NOT_IMPLEMENTED_ERROR", "the sandbox does not implement format parquet"),
        (vec![("compress_type", "lz4")], "NOT_IMPLEMENTED_ERROR", "the sandbox does not implement compress_type lz4"),
        (
            vec![("group_commit", "yes")],
            "INVALID_ARGUMENT",
            "group_commit can only be [async_mode, sync_mode, off_mode]",
        ),
        (
            vec![("group_commit", "sync_mode"), ("label", "l")],
            "INVALID_ARGUMENT",
            "label and group_commit can't be set at the same time",
        ),
        (vec![("group_commit", "sync_mode")], "NOT_IMPLEMENTED_ERROR", "the sandbox does not implement group_commit"),
        (vec![("timeout", "soon")], "INVALID_ARGUMENT", "Invalid timeout format, soon"),
        (
            vec![("timeout", "0")],
            "ANALYSIS_ERROR",
            "TStatus: errCode = 2, detailMessage = Invalid timeout. Timeout should between 1 and 259200 seconds",
        ),
    ] {
        let error = head(&pairs).expect_err("refused");
        assert_eq!((error.code, error.message.as_str()), (code, message), "{pairs:?}");
    }
}

#[test]
fn group_commit_falls_back_to_an_ordinary_load_where_doris_does() {
    for extra in [("two_phase_commit", "true"), ("partial_columns", "true"), ("partitions", "p")] {
        assert!(head(&[("group_commit", "async_mode"), ("label", "l"), extra]).is_ok(), "{extra:?}");
    }
    assert!(head(&[("group_commit", "OFF_MODE"), ("label", "l")]).is_ok());
}

#[test]
fn second_step_refusals() {
    for (pairs, code, message) in [
        (vec![("strict_mode", "maybe")], "INVALID_ARGUMENT", "Invalid strict mode format. Must be bool type"),
        (vec![("enclose", "''")], "INVALID_ARGUMENT", "enclose must be single-char, actually is ''"),
        (vec![("escape", "ab")], "INVALID_ARGUMENT", "escape must be single-char, actually is ab"),
        (vec![("skip_lines", "-1")], "INVALID_ARGUMENT", "Invalid 'skip_lines': -1"),
        (vec![("merge_type", "UPSERT")], "INVALID_ARGUMENT", "Invalid merge type UPSERT"),
        (vec![("merge_type", "merge")], "INVALID_ARGUMENT", "Excepted DELETE ON clause when merge type is MERGE."),
        (vec![("delete", "v=1")], "INVALID_ARGUMENT", "Not support DELETE ON clause when merge type is not MERGE."),
        (
            vec![("merge_type", "MERGE"), ("delete", "v=1")],
            "NOT_IMPLEMENTED_ERROR",
            "the sandbox does not implement merge_type MERGE",
        ),
        (
            vec![("partitions", "p"), ("temporary_partitions", "q")],
            "INVALID_ARGUMENT",
            "Can not specify both partitions and temporary partitions",
        ),
        (
            vec![("partial_update_new_key_behavior", "x")],
            "INVALID_ARGUMENT",
            "Invalid partial_update_new_key_behavior x, must be one of {'APPEND', 'ERROR'}",
        ),
        (vec![("where", "a > 1")], "NOT_IMPLEMENTED_ERROR", "the sandbox does not implement the header where"),
        (
            vec![("partial_columns", "true")],
            "NOT_IMPLEMENTED_ERROR",
            "the sandbox does not implement partial column update",
        ),
        (
            vec![("columns", "a, b=a+1")],
            "NOT_IMPLEMENTED_ERROR",
            "the sandbox does not implement expressions in the header columns",
        ),
        (
            vec![("max_filter_ratio", "2")],
            "INVALID_ARGUMENT",
            "Invalid max_filter_ratio 2: must be a number between 0 and 1",
        ),
        (
            vec![("hidden_columns", "__DORIS_SEQUENCE_COL__")],
            "NOT_IMPLEMENTED_ERROR",
            "the sandbox does not implement the hidden column __DORIS_SEQUENCE_COL__",
        ),
        (
            vec![("column_separator", "\\x0")],
            "ANALYSIS_ERROR",
            "TStatus: errCode = 2, detailMessage = Hex str length error",
        ),
        (
            vec![("line_delimiter", "\\xzz")],
            "ANALYSIS_ERROR",
            "TStatus: errCode = 2, detailMessage = Hex str format error",
        ),
    ] {
        let error = plan(&pairs).expect_err("refused");
        assert_eq!((error.code, error.message.as_str()), (code, message), "{pairs:?}");
    }
}

#[test]
fn separators_are_texts_or_hex() {
    for (value, bytes) in [
        (",", b",".as_slice()),
        ("||", b"||"),
        ("\\x01", b"\x01"),
        ("\\X0102", b"\x01\x02"),
        ("\\x01\\x02", b"\x01\x02"),
        ("\\t", b"\\t"),
    ] {
        assert_eq!(plan(&[("column_separator", value)]).expect("plan").csv.separator, bytes, "{value}");
    }
}

#[test]
fn columns_lose_backticks_and_blanks() {
    let columns = plan(&[("columns", " a, `b c` ,`d,e`,__DORIS_DELETE_SIGN__")]).expect("plan").columns;
    assert_eq!(columns.expect("columns"), ["a", "b c", "d,e", "__DORIS_DELETE_SIGN__"]);
}

#[test]
fn hidden_columns_count_only_without_columns() {
    let sign = ("hidden_columns", "__DORIS_DELETE_SIGN__");
    assert_eq!(plan(&[sign]).expect("plan").hidden_columns, ["__DORIS_DELETE_SIGN__"]);
    assert!(plan(&[sign, ("columns", "a")]).expect("plan").hidden_columns.is_empty());
}

#[test]
fn json_is_read_by_line_unless_a_header_says_otherwise() {
    for (pairs, by_line, strip) in [
        (vec![], true, false),
        (vec![("strip_outer_array", "true")], false, true),
        (vec![("read_json_by_line", "true"), ("strip_outer_array", "true")], true, true),
        (vec![("read_json_by_line", "false")], false, false),
    ] {
        let json = plan(&pairs).expect("plan").json;
        assert_eq!((json.by_line, json.strip_outer_array), (by_line, strip), "{pairs:?}");
    }
}

#[test]
fn an_enclosing_byte_brings_the_backslash_as_escape() {
    assert_eq!(plan(&[("enclose", "'")]).expect("plan").csv.escape, Some(b'\\'));
    assert_eq!(plan(&[]).expect("plan").csv.escape, None);
}

#[test]
fn only_the_exact_spelling_asks_for_two_phases() {
    for (value, expected) in [("true", true), ("TRUE", false), ("True", false), ("1", false), ("false", false)] {
        assert_eq!(head(&[("two_phase_commit", value)]).expect(value).two_phase, expected, "{value}");
    }
}
