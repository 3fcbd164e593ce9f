//! Formats of bodies.

use arrow::array::{ArrayRef, TimestampMicrosecondArray};
use datafusion::parquet::arrow::ArrowWriter;

use super::*;

const JSON: (&str, &str) = ("format", "json");
const STRIP: (&str, &str) = ("strip_outer_array", "true");

async fn create(s: &Sandbox, table: &str, columns: &str) {
    let sql = format!(
        "CREATE TABLE d.{table} ({columns}) DUPLICATE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 1 PROPERTIES (\"replication_num\" = \"1\")"
    );
    s.execute(&sql).await.expect("table");
}

#[tokio::test]
async fn jsonpaths_feed_the_columns_in_order() {
    let s = sandbox().await;
    let body = r#"{"a":{"id":1,"tags":["x","y"]},"n":10}
{"a":{"id":2},"n":20}"#;
    let paths = ("jsonpaths", r#"["$.a.id", "$.a.tags[1]", "$.n"]"#);
    let answer = load(&s, "dup", &[JSON, paths], body).await;
    assert_eq!((answer["Status"].as_str(), counts(&answer)), (Some("Success"), [2, 2, 0, 0]), "{answer}");
    assert_eq!(query(&s, "SELECT * FROM d.dup ORDER BY id").await, ["1|y|10", "2|NULL|20"]);
    let columns = ("columns", "n, id, v = concat('v', n)");
    let answer =
        load(&s, "dup", &[JSON, ("jsonpaths", r#"["$.n","$.a.id"]"#), columns], r#"{"a":{"id":3},"n":7}"#).await;
    assert_eq!(answer["Status"], "Success", "{answer}");
    assert_eq!(query(&s, "SELECT * FROM d.dup WHERE id = 3").await, ["3|v7|7"]);
}

#[tokio::test]
async fn a_row_without_any_of_the_columns_is_bad() {
    let s = sandbox().await;
    let answer = load(&s, "dup", &[JSON, ("jsonpaths", r#"["$.X", "$.Y"]"#), ("columns", "id, v")], r#"{"x":1}"#).await;
    assert_eq!(
        error_log(&answer).await,
        "Reason: There is no column matching jsonpaths in the json file, columns:[id, v, ], please check columns and jsonpaths:[\"$.X\", \"$.Y\"]. src line [{\"x\":1}]; \n"
    );
}

#[tokio::test]
async fn json_root_and_outer_arrays() {
    let s = sandbox().await;
    let whole = ("read_json_by_line", "false");
    let body = "{\"data\": {\"rows\": [\n {\"id\": 1, \"v\": \"a\", \"n\": 1},\n {\"id\": 2, \"v\": null, \"n\": 2}]}}";
    let root = ("json_root", "$.data.rows");
    let answer = load(&s, "dup", &[JSON, STRIP, root], body).await;
    assert_eq!((answer["Status"].as_str(), counts(&answer)), (Some("Success"), [2, 2, 0, 0]), "{answer}");
    for (headers, reason) in [
        (vec![JSON, whole, root], "JSON data is array-object, `strip_outer_array` must be TRUE."),
        (
            vec![JSON, STRIP, ("json_root", "$.data")],
            "JSON data is not an array-object, `strip_outer_array` must be FALSE.",
        ),
        (vec![JSON, STRIP, ("json_root", "$.none")], "JSON Root not found."),
    ] {
        let answer = load(&s, "dup", &headers, body).await;
        assert_eq!(counts(&answer), [1, 0, 1, 0], "{answer}");
        assert!(error_log(&answer).await.starts_with(&format!("Reason: {reason}. src line [")), "{headers:?}");
    }
    let one = load(&s, "dup", &[JSON, whole], "\n {\"id\": 3,\n \"n\": 3}\n").await;
    assert_eq!((one["Status"].as_str(), counts(&one)), (Some("Success"), [1, 1, 0, 0]), "{one}");
    assert_eq!(query(&s, "SELECT * FROM d.dup ORDER BY id").await, ["1|a|1", "2|NULL|2", "3|NULL|3"]);
}

#[tokio::test]
async fn missing_keys_take_defaults_and_nulls_stay() {
    let s = sandbox().await;
    create(&s, "m", "k INT NULL, a INT NULL DEFAULT \"5\", b INT NULL, c INT NOT NULL").await;
    let body = "{\"k\":1,\"c\":1}\n{\"k\":2,\"a\":null,\"c\":2}\n{\"k\":3}\n";
    let answer = load(&s, "m", &[JSON, ("max_filter_ratio", "0.5")], body).await;
    assert_eq!((answer["Status"].as_str(), counts(&answer)), (Some("Success"), [3, 2, 1, 0]), "{answer}");
    assert!(error_log(&answer).await.contains("The column `c` is not nullable, but it's not found in jsondata."));
    assert_eq!(query(&s, "SELECT * FROM d.m ORDER BY k").await, ["1|5|NULL|1", "2|NULL|NULL|2"]);
}

#[tokio::test]
async fn nested_json_reaches_arrays_maps_structs_and_json() {
    let s = sandbox().await;
    create(
        &s,
        "nest",
        "k INT NULL, a ARRAY<BIGINT> NULL, m MAP<STRING, INT> NULL, st STRUCT<x: INT, y: STRING> NULL, j JSON NULL, t STRING NULL, f BOOLEAN NULL, i INT NULL",
    )
    .await;
    let body = r#"{"k":1,"a":[9007199254740993,null],"m":{"p":1},"st":{"x":1,"y":"z"},"j":{"o":[1,2.50]},"t":{"raw": 1.10},"f":true,"i":true}
{"k":2,"a":"[1,2]","m":"{\"q\":2}","st":"{\"x\":3,\"y\":\"w\"}","j":"[true]","t":1.50,"f":0,"i":false}"#;
    for extra in [("num_as_string", "false"), ("num_as_string", "true"), ("fuzzy_parse", "true")] {
        s.execute("TRUNCATE TABLE d.nest").await.expect("truncate");
        let answer = load(&s, "nest", &[JSON, extra], body).await;
        assert_eq!(answer["Status"], "Success", "{answer}");
        assert_eq!(
            query(&s, "SELECT k, a, t, f, i FROM d.nest ORDER BY k").await,
            ["1|[9007199254740993, null]|{\"raw\": 1.10}|1|1", "2|[1, 2]|1.50|0|0"]
        );
        assert_eq!(query(&s, "SELECT count(*) FROM d.nest WHERE m IS NULL OR st IS NULL OR j IS NULL").await, ["0"]);
    }
}

#[tokio::test]
async fn broken_json_is_a_bad_row_and_the_others_are_read() {
    let s = sandbox().await;
    let body = "{\"id\":1,\"n\":1}\n{\"id\":2,\n{\"id\":3,\"n\":3}\n[1]\n{\"id\":4,\"n\":4}x\n";
    let answer = load(&s, "dup", &[JSON, ("max_filter_ratio", "1")], body).await;
    assert_eq!((answer["Status"].as_str(), counts(&answer)), (Some("Success"), [5, 2, 3, 0]), "{answer}");
    let log = error_log(&answer).await;
    assert!(log.contains("Reason: Parse json data failed") && log.contains("src line [{\"id\":2,]"), "{log}");
    let array = "[{\"id\":5,\"n\":5},{\"id\":6,\"n\"";
    let answer = load(&s, "dup", &[JSON, STRIP, ("max_filter_ratio", "1")], array).await;
    assert_eq!(counts(&answer), [2, 1, 1, 0], "{answer}");
}

#[tokio::test]
async fn names_and_types_are_passed_over() {
    let s = sandbox().await;
    let text = "id,v,n\nINT,TEXT,BIGINT\n1,a,1\n";
    for headers in [
        vec![CSV, ("format", "csv_with_names_and_types")],
        vec![CSV, ("format", "csv_with_names_and_types"), ("skip_lines", "9")],
        vec![CSV, ("skip_lines", "2")],
        vec![CSV, ("format", "csv_with_names"), ("where", "id = 1")],
    ] {
        let answer = load(&s, "dup", &headers, text).await;
        assert_eq!(answer["NumberLoadedRows"], 1, "{headers:?}: {answer}");
    }
}

#[tokio::test]
async fn separators_of_several_bytes_quotes_and_empty_fields() {
    let s = sandbox().await;
    for (headers, body, expected) in [
        (
            vec![("column_separator", "||"), ("line_delimiter", "@@")],
            "1||a|b||1@@2||\\N||2@@",
            vec!["1|a|b|1", "2|NULL|2"],
        ),
        (
            vec![("column_separator", "\\x01"), ("line_delimiter", "\\x02\\x03")],
            "1\x01a\x011\x02\x032\x01b\x012",
            vec!["1|a|1", "2|b|2"],
        ),
        (vec![CSV, ("trim_double_quotes", "true")], "\"1\",\"a\",\"1\"\n2,b\",2\n", vec!["1|a|1", "2|b\"|2"]),
        (vec![CSV], "1,\"a\",1\n", vec!["1|\"a\"|1"]),
        (vec![CSV, ("empty_field_as_null", "true")], "1,,1\n2,\\N,2\n", vec!["1|NULL|1", "2|NULL|2"]),
        (vec![CSV, ("enclose", "'"), ("escape", "\\")], "1,'a,\nb',1\n2,'c\\'',2\n", vec!["1|a,\nb|1", "2|c'|2"]),
        (vec![CSV, ("enclose", "\""), ("trim_double_quotes", "true")], "1,\"a,\"\"\",1\n", vec!["1|a,\"|1"]),
        (vec![CSV], "\u{feff}1,a,1\r\n2,b,2\r\n", vec!["1|a|1", "2|b|2"]),
        (vec![CSV, ("columns", "n,id,v")], "1,1,a\r\n", vec!["1|a|1"]),
        (vec![CSV, ("columns", "n,id,v"), ("enclose", "'")], "1,1,'a'\r\n2,2,'b'\r\n", vec!["1|a|1", "2|b|2"]),
    ] {
        s.execute("TRUNCATE TABLE d.dup").await.expect("truncate");
        let answer = load(&s, "dup", &headers, body).await;
        assert_eq!(answer["Status"], "Success", "{headers:?}: {answer}");
        assert_eq!(query(&s, "SELECT * FROM d.dup ORDER BY id").await, expected, "{headers:?}");
    }
}

#[tokio::test]
async fn too_many_columns_are_told_from_too_few() {
    let s = sandbox().await;
    let answer = load(&s, "dup", &[CSV], "1,a,1,9\n").await;
    let log = error_log(&answer).await;
    let expected = "Reason: actual column number in csv file is  more than  schema column number.actual number: 4, schema column number: 3; . src line [1,a,1,9]; \n";
    assert_eq!(log, expected);
}

#[tokio::test]
async fn compressed_bodies_of_each_kind() {
    let s = sandbox().await;
    let plain = "1,a,1\n2,b,2\n";
    let lz4 = |text: &str| {
        let mut encoder = lz4_flex::frame::FrameEncoder::new(Vec::new());
        encoder.write_all(text.as_bytes()).expect("lz4");
        encoder.finish().expect("lz4")
    };
    let zstd = zstd::stream::encode_all(plain.as_bytes(), 1).expect("zstd");
    for (name, body) in [("gz", gzip(plain)), ("lz4", lz4(plain)), ("zstd", zstd)] {
        let answer = load(&s, "dup", &[CSV, ("compress_type", name)], body).await;
        assert_eq!((answer["Status"].as_str(), counts(&answer)), (Some("Success"), [2, 2, 0, 0]), "{name}: {answer}");
    }
    let json = gzip("{\"id\":1,\"n\":1}\n");
    let answer = load(&s, "dup", &[JSON, ("compress_type", "gz")], json.clone()).await;
    assert_eq!(answer["Status"], "Success", "{answer}");
    let old = builder().profile(Profile::V3_1).start().await.expect("sandbox");
    let answer = load(&old, "dup", &[JSON, ("compress_type", "gz")], json).await;
    assert_eq!(message(&answer), "[DATA_FILE_TYPE_ERROR]unknown data format, format=json");
}

fn ipc(batch: &RecordBatch) -> Vec<u8> {
    let mut body = Vec::new();
    let mut writer = StreamWriter::try_new(&mut body, &batch.schema()).expect("writer");
    writer.write(batch).expect("write");
    writer.finish().expect("finish");
    drop(writer);
    body
}

fn batch(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
    RecordBatch::try_from_iter(columns).expect("batch")
}

#[tokio::test]
async fn arrow_columns_need_the_width_of_the_table() {
    let s = sandbox().await;
    let n: ArrayRef = Arc::new(Int32Array::from(vec![1]));
    let v: ArrayRef = Arc::new(StringArray::from(vec!["a"]));
    let body = ipc(&batch(vec![("id", Arc::clone(&n)), ("v", Arc::clone(&v)), ("n", Arc::clone(&n))]));
    let answer = load(&s, "dup", &[("format", "arrow")], body.clone()).await;
    assert_eq!(message(&answer), "[INTERNAL_ERROR]column n of arrow type Int32 cannot be loaded into bigint");
    // An expression takes any type.
    let answer = load(
        &s,
        "dup",
        &[("format", "arrow"), ("columns", "id, v, x, n = id + 1"), ("label", "e")],
        ipc(&batch(vec![("id", Arc::clone(&n)), ("x", Arc::clone(&n)), ("v", v)])),
    )
    .await;
    assert_eq!(answer["Status"], "Success", "{answer}");
    assert_eq!(query(&s, "SELECT * FROM d.dup").await, ["1|a|2"]);
    let answer = load(&s, "dup", &[("format", "arrow")], ipc(&batch(vec![("id", n)]))).await;
    assert_eq!(message(&answer), "[INTERNAL_ERROR]the arrow stream has no column v");
    let answer = load(&s, "dup", &[("format", "arrow")], "no stream").await;
    assert!(message(&answer).starts_with("[INTERNAL_ERROR]failed to read the arrow stream"), "{answer}");
}

#[tokio::test]
async fn naive_timestamps_are_shifted_by_older_builds_only() {
    for (profile, naive) in [(Profile::V5_0Changelog, "2024-01-01 00:00:00"), (Profile::V4_0, "2024-01-01 02:00:00")] {
        let s = builder().profile(profile).start().await.expect("sandbox");
        create(&s, "t", "k INT NULL, a DATETIME NULL, z DATETIME(3) NULL").await;
        let micros = 1_704_067_200_000_000; // 2024-01-01 00:00:00 UTC
        let body = ipc(&batch(vec![
            ("k", Arc::new(Int32Array::from(vec![1]))),
            ("a", Arc::new(TimestampMicrosecondArray::from(vec![micros]))),
            ("z", Arc::new(TimestampMicrosecondArray::from(vec![micros]).with_timezone("UTC"))),
        ]));
        let answer = load(&s, "t", &[("format", "arrow"), ("timezone", "+02:00")], body).await;
        assert_eq!(answer["Status"], "Success", "{answer}");
        assert_eq!(
            query(&s, "SELECT CAST(a AS STRING), CAST(z AS STRING) FROM d.t").await,
            [format!("{naive}|2024-01-01 02:00:00.000")]
        );
    }
}

fn parquet(batch: &RecordBatch) -> Vec<u8> {
    let mut body = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut body, batch.schema(), None).expect("writer");
    writer.write(batch).expect("write");
    writer.close().expect("close");
    body
}

#[tokio::test]
async fn parquet_is_matched_by_name_and_converted() {
    let s = sandbox().await;
    create(&s, "p", "k INT NULL, v STRING NULL, n INT NULL DEFAULT \"7\", t DATETIME NULL").await;
    let body = parquet(&batch(vec![
        ("V", Arc::new(StringArray::from(vec![Some("a"), None, Some("c")])) as ArrayRef),
        ("K", Arc::new(Int64Array::from(vec![1, 2, 3_000_000_000]))),
        ("T", Arc::new(TimestampMicrosecondArray::from(vec![0, 1, 2]).with_timezone("UTC"))),
    ]));
    let headers = [("format", "parquet"), ("timezone", "+08:00"), ("strict_mode", "true"), ("max_filter_ratio", "0.4")];
    let answer = load(&s, "p", &headers, body.clone()).await;
    assert_eq!((answer["Status"].as_str(), counts(&answer)), (Some("Success"), [3, 2, 1, 0]), "{answer}");
    assert!(error_log(&answer).await.contains("src line [row 2 of the parquet file]"));
    assert_eq!(
        query(&s, "SELECT k, v, n, CAST(t AS STRING) FROM d.p ORDER BY k").await,
        ["1|a|7|1970-01-01 08:00:00", "2|NULL|7|1970-01-01 08:00:00"]
    );
    let columns = [("format", "parquet"), ("columns", "k, v, n = k + 1"), ("where", "n > 2")];
    let answer = load(&s, "p", &columns, body.clone()).await;
    assert_eq!(counts(&answer), [3, 1, 0, 2], "k of the last row becomes NULL, and so does n: {answer}");
    let answer = load(&s, "p", &[("format", "parquet"), ("label", "cut")], body[..body.len() - 20].to_vec()).await;
    assert!(message(&answer).starts_with("[INTERNAL_ERROR]Read parquet file failed, reason = "), "{answer}");
    assert_eq!(s.running_transactions(), 0);
}

#[tokio::test]
async fn a_discarding_table_counts_rows_and_keeps_none() {
    let s = sandbox().await;
    s.execute(
        r#"CREATE TABLE d.hole (id INT NULL, v STRING NULL) DUPLICATE KEY(id) DISTRIBUTED BY HASH(id) BUCKETS 1
           PROPERTIES ("replication_num" = "1", "sandbox.discard" = "true")"#,
    )
    .await
    .expect("table");
    let csv = "1,a\n2,b\n\nnot a row of the table\n";
    let n: ArrayRef = Arc::new(Int32Array::from(vec![1, 2, 3]));
    let arrow = ipc(&batch(vec![("id", Arc::clone(&n)), ("v", Arc::new(StringArray::from(vec!["a", "b", "c"])))]));
    let file = parquet(&batch(vec![("id", n)]));
    for (headers, body) in [
        (vec![CSV], csv.as_bytes().to_vec()),
        (vec![CSV, ("compress_type", "gz")], gzip(csv)),
        (vec![JSON], b"{}\n{}\n{}\n".to_vec()),
        (vec![JSON, STRIP], b"[{},{},{}]".to_vec()),
        (vec![("format", "arrow")], arrow),
        (vec![("format", "parquet")], file),
    ] {
        let bytes = body.len();
        let answer = load(&s, "hole", &headers, body).await;
        assert_eq!((answer["Status"].as_str(), counts(&answer)), (Some("Success"), [3, 3, 0, 0]), "{answer}");
        assert_eq!(answer["LoadBytes"].as_u64(), Some(bytes as u64), "{headers:?}");
    }
    let answer = load(&s, "hole", &[JSON, ("label", "bad")], "{}\n{\n").await;
    assert_eq!(message(&answer), "[DATA_QUALITY_ERROR]too many filtered rows");
    let answer = load(&s, "hole", &[CSV, ("label", "two"), ("two_phase_commit", "true")], csv).await;
    let txn = answer["TxnId"].to_string();
    assert_eq!(second_phase(&s, &[("txn_operation", "commit"), ("txn_id", &txn)]).await.0, "Success");
    let answer = load(&s, "hole", &[CSV, ("where", "id > 1")], csv).await;
    assert!(message(&answer).contains("does not implement the header where"), "{answer}");
    assert_eq!(query(&s, "SELECT count(*) FROM d.hole").await, ["0"]);
}
