#![allow(clippy::unwrap_used, clippy::expect_used)]

use http::{HeaderName, HeaderValue};

use super::*;
use crate::engine::{NewKeyBehavior, UpdateMode};

fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
    pairs
        .iter()
        .map(|(name, value)| (name.parse::<HeaderName>().expect("name"), HeaderValue::from_str(value).expect("value")))
        .collect()
}

/// The first step of a chunked load.
fn head_of(profile: Profile, pairs: &[(&str, &str)]) -> Result<LoadHead, HeaderError> {
    let mut headers = headers(pairs);
    if !headers.contains_key(CONTENT_LENGTH) {
        headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    }
    LoadHead::parse(&headers, profile)
}

fn head(pairs: &[(&str, &str)]) -> Result<LoadHead, HeaderError> {
    head_of(Profile::default(), pairs)
}

fn plan_of(format: Format, pairs: &[(&str, &str)]) -> Result<LoadPlan, HeaderError> {
    LoadPlan::parse(&headers(pairs), format)
}

fn plan(pairs: &[(&str, &str)]) -> Result<LoadPlan, HeaderError> {
    plan_of(Format::Csv { header_lines: 0 }, pairs)
}

#[test]
fn without_headers_a_load_is_tab_separated_text_with_the_long_timeout() {
    let head = head(&[]).expect("head");
    assert_eq!(
        (head.format, head.compression, head.two_phase),
        (Format::Csv { header_lines: 0 }, Compression::Plain, false)
    );
    assert_eq!((head.length, head.timeout), (None, Duration::from_secs(259_200)));
    let plan = plan(&[]).expect("plan");
    assert_eq!((plan.csv.separator.as_slice(), plan.csv.delimiter.as_slice()), (b"\t".as_slice(), b"\n".as_slice()));
    assert_eq!((plan.max_filter_ratio, plan.strict_mode, plan.json.by_line), (0.0, false, true));
    assert_eq!((plan.update_mode, plan.new_key, plan.merge), Default::default());
}

#[test]
fn formats_and_compressions() {
    let csv = Format::Csv { header_lines: 0 };
    for (pairs, format, compression) in [
        (vec![("format", "JSON")], Format::Json, Compression::Plain),
        (vec![("format", "arrow")], Format::Arrow, Compression::Plain),
        (vec![("format", "Parquet")], Format::Parquet, Compression::Plain),
        (vec![("format", "csv_with_names")], Format::Csv { header_lines: 1 }, Compression::Plain),
        (vec![("format", "csv_with_names_and_types")], Format::Csv { header_lines: 2 }, Compression::Plain),
        (vec![("compress_type", "GZ")], csv, Compression::Gzip),
        (vec![("content-encoding", "gzip")], csv, Compression::Gzip),
        (vec![("compress_type", "")], csv, Compression::Plain),
        (vec![("compress_type", "LZ4")], csv, Compression::Lz4Frame),
        (vec![("compress_type", "lz4_block")], csv, Compression::Lz4Block),
        (vec![("compress_type", "deflate")], csv, Compression::Deflate),
        (vec![("compress_type", "zstd")], csv, Compression::Zstd),
        (vec![("format", "json"), ("compress_type", "gz")], Format::Json, Compression::Gzip),
    ] {
        let head = head(&pairs).expect("head");
        assert_eq!((head.format, head.compression), (format, compression), "{pairs:?}");
    }
}

#[test]
fn older_builds_know_neither_zstd_nor_compressed_json() {
    for profile in [Profile::V2_1, Profile::V3_1] {
        let error = head_of(profile, &[("compress_type", "zstd")]).expect_err("zstd");
        assert_eq!(error.message, "unknown data format, format=csv");
        let error = head_of(profile, &[("format", "json"), ("compress_type", "gz")]).expect_err("json");
        assert_eq!(error.message, "unknown data format, format=json");
    }
}

#[test]
fn first_step_refusals() {
    let missing = "the sandbox does not implement";
    for (pairs, code, message) in [
        (vec![("format", "xml")], "DATA_FILE_TYPE_ERROR", "unknown data format, format=xml".to_owned()),
        (vec![("compress_type", "rar")], "DATA_FILE_TYPE_ERROR", "unknown data format, format=csv".to_owned()),
        (vec![("format", "orc")], "NOT_IMPLEMENTED_ERROR", format!("{missing} format orc")),
        (vec![("format", "hive_text")], "NOT_IMPLEMENTED_ERROR", format!("{missing} format hive_text")),
        (vec![("format", "wal")], "NOT_IMPLEMENTED_ERROR", format!("{missing} format wal")),
        (vec![("compress_type", "bz2")], "NOT_IMPLEMENTED_ERROR", format!("{missing} compress_type bz2")),
        (vec![("compress_type", "LZOP")], "NOT_IMPLEMENTED_ERROR", format!("{missing} compress_type lzop")),
        (vec![("timeout", "soon")], "INVALID_ARGUMENT", "Invalid timeout format, soon".to_owned()),
        (
            vec![("timeout", "0")],
            "ANALYSIS_ERROR",
            "TStatus: errCode = 2, detailMessage = Invalid timeout. Timeout should between 1 and 259200 seconds".to_owned(),
        ),
        (vec![("content-length", "abc")], "INVALID_ARGUMENT", "invalid HTTP header CONTENT_LENGTH=abc: stol".to_owned()),
        (
            vec![("content-length", "3"), ("transfer-encoding", "chunked")],
            "INVALID_ARGUMENT",
            "please do not set both content_length and transfer-encoding".to_owned(),
        ),
        (
            vec![("content-length", "10737418241")],
            "EXCEEDED_LIMIT",
            "body size 10737418241 exceed BE's conf `streaming_load_max_mb` 10737418240. increase it if you are sure this load is reasonable".to_owned(),
        ),
        (
            vec![("format", "json"), ("content-length", "104857601")],
            "EXCEEDED_LIMIT",
            "json body size 104857601 exceed BE's conf `streaming_load_json_max_mb` 104857600. increase it if you are sure this load is reasonable".to_owned(),
        ),
    ] {
        let error = head(&pairs).expect_err("refused");
        assert_eq!((error.code, error.message), (code, message), "{pairs:?}");
    }
    let by_line = [("format", "json"), ("content-length", "104857601"), ("read_json_by_line", "true")];
    assert_eq!(head(&by_line).expect("head").length, Some(104_857_601));
    let error = LoadHead::parse(&headers(&[]), Profile::default()).expect_err("no length");
    assert!(error.message.starts_with("content_length is empty and transfer-encoding!=chunked"), "{error:?}");
}

#[test]
fn group_commit_falls_back_to_an_ordinary_load_where_doris_does() {
    let chunked = ("transfer-encoding", "chunked");
    let group = |pairs: &[(&str, &str)]| group_commit(&headers(&[pairs, &[chunked]].concat()));
    for extra in [
        ("two_phase_commit", "true"),
        ("partial_columns", "true"),
        ("partitions", "p"),
        ("temporary_partitions", "p"),
        ("unique_key_update_mode", "UPDATE_FLEXIBLE_COLUMNS"),
    ] {
        assert_eq!(group(&[("group_commit", "async_mode"), ("label", "l"), extra]), Ok(GroupRequest::Off), "{extra:?}");
        assert_eq!(group(&[("group_commit", "async_mode"), extra]), Ok(GroupRequest::Off), "{extra:?}");
    }
    assert_eq!(group(&[("group_commit", "OFF_MODE"), ("label", "l")]), Ok(GroupRequest::Off));
    assert_eq!(group(&[("group_commit", "Async_Mode")]), Ok(GroupRequest::Mode(GroupMode::Async)));
    assert_eq!(group(&[("group_commit", "sync_mode")]), Ok(GroupRequest::Mode(GroupMode::Sync)));
    assert_eq!(group(&[]), Ok(GroupRequest::Table));
    assert_eq!(group(&[("label", "l")]), Ok(GroupRequest::Off));
    let empty = [("group_commit", "sync_mode"), ("content-length", "0")];
    assert_eq!(group_commit(&headers(&empty)), Ok(GroupRequest::Off), "an empty body");
    for (pairs, message) in [
        (vec![("group_commit", "yes")], "group_commit can only be [async_mode, sync_mode, off_mode]"),
        (vec![("group_commit", "sync_mode"), ("label", "l")], "label and group_commit can't be set at the same time"),
    ] {
        let error = group(&pairs).expect_err("refused");
        assert_eq!((error.code, error.message.as_str()), ("INVALID_ARGUMENT", message));
    }
}

#[test]
fn second_step_refusals() {
    for (pairs, code, message) in [
        (vec![("strict_mode", "maybe")], "INVALID_ARGUMENT", "Invalid strict mode format. Must be bool type"),
        (vec![("enclose", "''")], "INVALID_ARGUMENT", "enclose must be single-char, actually is ''"),
        (vec![("escape", "ab")], "INVALID_ARGUMENT", "escape must be single-char, actually is ab"),
        (vec![("skip_lines", "-1")], "INVALID_ARGUMENT", "Invalid 'skip_lines': -1"),
        (vec![("skip_lines", "few")], "INVALID_ARGUMENT", "Invalid skip_lines format, few"),
        (vec![("exec_mem_limit", "2G")], "INVALID_ARGUMENT", "Invalid mem limit format, stoll"),
        (vec![("send_batch_parallelism", "two")], "INVALID_ARGUMENT", "Invalid send_batch_parallelism format, two"),
        (vec![("load_stream_per_node", "x")], "INVALID_ARGUMENT", "Invalid load_stream_per_node format, x"),
        (vec![("merge_type", "UPSERT")], "INVALID_ARGUMENT", "Invalid merge type UPSERT"),
        (vec![("merge_type", "merge")], "INVALID_ARGUMENT", "Excepted DELETE ON clause when merge type is MERGE."),
        (vec![("delete", "v=1")], "INVALID_ARGUMENT", "Not support DELETE ON clause when merge type is not MERGE."),
        (
            vec![("partitions", "p"), ("temporary_partitions", "q")],
            "INVALID_ARGUMENT",
            "Can not specify both partitions and temporary partitions",
        ),
        (
            vec![("temporary_partitions", "q")],
            "NOT_IMPLEMENTED_ERROR",
            "the sandbox does not implement the header temporary_partitions",
        ),
        (
            vec![("partial_update_new_key_behavior", "x")],
            "INVALID_ARGUMENT",
            "Invalid partial_update_new_key_behavior X, must be one of {'APPEND', 'ERROR'}",
        ),
        (
            vec![("unique_key_update_mode", "UPDATE")],
            "INVALID_ARGUMENT",
            "Invalid unique_key_partial_mode UPDATE, must be one of 'UPSERT', 'UPDATE_FIXED_COLUMNS' or 'UPDATE_FLEXIBLE_COLUMNS'",
        ),
        (
            vec![("unique_key_update_mode", "UPDATE_FLEXIBLE_COLUMNS")],
            "INVALID_ARGUMENT",
            "flexible partial update only support json format as input file currently",
        ),
        (
            vec![("max_filter_ratio", "2")],
            "INVALID_ARGUMENT",
            "Invalid max_filter_ratio 2: must be a number between 0 and 1",
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
        (vec![("jsonpaths", "$.a")], "INVALID_JSON_PATH", "Invalid json path: $.a"),
        (vec![("jsonpaths", "[\"a\"]")], "INVALID_JSON_PATH", "Invalid json path: a"),
        (vec![("json_root", "a")], "INVALID_JSON_PATH", "Invalid json path: a"),
    ] {
        let error = plan(&pairs).expect_err("refused");
        assert_eq!((error.code, error.message.as_str()), (code, message), "{pairs:?}");
    }
}

#[test]
fn flexible_partial_update_goes_with_plain_json_only() {
    let flexible = ("unique_key_update_mode", "update_flexible_columns");
    assert_eq!(plan_of(Format::Json, &[flexible]).expect("plan").update_mode, UpdateMode::FlexibleColumns);
    for (name, value, how) in [
        ("fuzzy_parse", "true", "enabled"),
        ("columns", "a", "specified"),
        ("jsonpaths", "[\"$.a\"]", "specified"),
        ("hidden_columns", "__DORIS_DELETE_SIGN__", "specified"),
        ("function_column.sequence_col", "a", "specified"),
        ("merge_type", "APPEND", "specified"),
        ("where", "a > 1", "specified"),
    ] {
        let error = plan_of(Format::Json, &[flexible, (name, value)]).expect_err(name);
        let expected = format!("Don't support flexible partial update when '{name}' is {how}");
        assert_eq!((error.code, error.message), ("INVALID_ARGUMENT", expected));
    }
}

#[test]
fn the_newer_header_of_the_update_mode_wins() {
    for (pairs, mode) in [
        (vec![("partial_columns", "TRUE")], UpdateMode::FixedColumns),
        (vec![("partial_columns", "yes")], UpdateMode::Upsert),
        (vec![("unique_key_update_mode", "Update_Fixed_Columns")], UpdateMode::FixedColumns),
        (vec![("unique_key_update_mode", "UPSERT"), ("partial_columns", "true")], UpdateMode::Upsert),
    ] {
        assert_eq!(plan(&pairs).expect("plan").update_mode, mode, "{pairs:?}");
    }
    let error = plan(&[("partial_columns", "true"), ("partial_update_new_key_behavior", "error")]).expect("plan");
    assert_eq!(error.new_key, NewKeyBehavior::Error);
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
fn hidden_columns_count_only_without_columns() {
    let sign = ("hidden_columns", "__DORIS_DELETE_SIGN__, __DORIS_SEQUENCE_COL__");
    let hidden = plan(&[sign]).expect("plan").hidden_columns;
    assert_eq!(hidden, ["__DORIS_DELETE_SIGN__", "__DORIS_SEQUENCE_COL__"]);
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

#[test]
fn what_follows_a_load_is_read_from_its_headers() {
    let plan = plan(&[
        ("columns", "a, t, b = t + 1"),
        ("where", "a > 1"),
        ("merge_type", "merge"),
        ("delete", "t = 'd'"),
        ("function_column.sequence_col", "t"),
        ("partitions", "p1, `p2`"),
        ("negative", "true"),
        ("load_to_single_tablet", "True"),
        ("time_zone", "+08:00"),
        ("timezone", "UTC"),
    ])
    .expect("plan");
    assert_eq!(plan.columns.as_ref().map(Vec::len), Some(3));
    assert_eq!((plan.filter.as_deref(), plan.delete_on.as_deref()), (Some("a > 1"), Some("t = 'd'")));
    assert_eq!((plan.merge, plan.sequence_column.as_deref()), (MergeKind::Merge, Some("t")));
    assert_eq!(plan.partitions, Some(vec!["p1".to_owned(), "p2".to_owned()]));
    assert!(plan.negative && plan.single_tablet);
    assert_eq!(plan.timezone.as_deref(), Some("UTC"));
}
