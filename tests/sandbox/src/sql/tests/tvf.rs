use std::io::Write;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, Decimal128Array, Int32Array, Int64Array, ListArray, RecordBatch, StringArray, TimestampMicrosecondArray,
};
use arrow::datatypes::Int32Type;
use datafusion::parquet::arrow::ArrowWriter;

use super::Fixture;
use crate::engine::Profile;
use crate::s3_endpoint::{S3Endpoint, S3Settings};

async fn endpoint() -> S3Endpoint {
    S3Endpoint::start(S3Settings::default()).await.expect("endpoint")
}

/// `S3(...)` of files in bucket `b`.
fn call(endpoint: &S3Endpoint, path: &str, more: &str) -> String {
    format!(
        r#"S3("uri" = "s3://b/{path}", "s3.endpoint" = "{}", "s3.region" = "us-east-1",
           "s3.access_key" = "sandbox-access", "s3.secret_key" = "top-secret"{}{more})"#,
        endpoint.address(),
        if more.is_empty() { "" } else { ", " },
    )
}

fn gz(text: &str) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(text.as_bytes()).expect("gz");
    encoder.finish().expect("gz")
}

#[tokio::test]
async fn csv_files_have_text_columns() {
    let (mut f, s3) = (Fixture::with_database().await, endpoint().await);
    s3.put("b", "d/1.csv", "1\ta\n2\t\\N\n\n3\tc\textra\n");
    s3.put("b", "d/2.csv", "4\n");
    s3.put("b", "d/empty.csv", "");
    s3.put("b", "other.csv", "9\tz\n");
    let from = call(&s3, "d/*.csv", r#""format" = "csv""#);
    assert_eq!(f.sorted(&format!("SELECT c1, c2 FROM {from}")).await, ["1|a", "2|NULL", "3|c", "4|NULL"]);
    assert_eq!(f.rows(&format!("SELECT sum(CAST(t.c1 AS INT)) FROM {from} t WHERE t.c2 IS NULL")).await, ["6"]);
    assert_eq!(
        f.rows(&format!("DESC FUNCTION {from}")).await,
        ["c1|text|Yes|false|NULL|NONE", "c2|text|Yes|false|NULL|NONE"]
    );
    assert!(s3.requests().iter().all(|r| r.signed && r.bucket == "b" && r.status < 300), "{:?}", s3.requests());
    s3.put("b", "n.csv", "# comment\n\"x\",\"y\"\n\"1\",\"2\"\n");
    let from = call(
        &s3,
        "n.csv",
        r#""format" = "csv", "column_separator" = ",", "skip_lines" = "1", "trim_double_quotes" = "true""#,
    );
    assert_eq!(f.rows(&format!("SELECT * FROM {from}")).await, ["x|y", "1|2"]);
    s3.put("b", "names.csv", "id,名\nINT,STRING\n1,x\n");
    let from = call(&s3, "names.csv", r#""format" = "csv_with_names_and_types", "column_separator" = ",""#);
    assert_eq!(f.rows(&format!("SELECT `名`, ID FROM {from}")).await, ["x|1"]);
    let from = call(&s3, "names.csv", r#""format" = "csv_with_names", "column_separator" = ",""#);
    assert_eq!(f.rows(&format!("SELECT id FROM {from}")).await, ["INT", "1"]);
}

#[tokio::test]
async fn compressed_files_are_read_by_suffix_or_by_name() {
    let (mut f, s3) = (Fixture::with_database().await, endpoint().await);
    let text = "1,a\n2,b\n";
    let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
    zlib.write_all(text.as_bytes()).expect("zlib");
    let mut lz4 = lz4_flex::frame::FrameEncoder::new(Vec::new());
    lz4.write_all(text.as_bytes()).expect("lz4");
    for (key, body, kind) in [
        ("a.csv.gz", gz(text), "UNKNOWN"),
        ("a.csv.lz4", lz4.finish().expect("lz4"), "UNKNOWN"),
        ("a.csv.zst", zstd::encode_all(text.as_bytes(), 1).expect("zstd"), "unknown"),
        ("a.deflate", zlib.finish().expect("zlib"), "UNKNOWN"),
        ("b.csv", gz(text), "gz"),
        ("c.csv.gz", text.as_bytes().to_vec(), "PLAIN"),
    ] {
        s3.put("b", key, body);
        let more = format!(r#""format" = "csv", "column_separator" = ",", "compress_type" = "{kind}""#);
        assert_eq!(f.rows(&format!("SELECT * FROM {}", call(&s3, key, &more))).await, ["1|a", "2|b"], "{key}");
    }
    s3.put("b", "broken.csv.gz", "no gzip at all");
    let error = f.try_rows(&format!("SELECT * FROM {}", call(&s3, "broken.csv.gz", r#""format" = "csv""#))).await;
    assert!(error.is_err());
    s3.put("b", "x.bz2", "x");
    let error = f.error(&format!("SELECT * FROM {}", call(&s3, "x.bz2", r#""format" = "csv""#))).await;
    assert!(error.text().contains("files compressed as .bz2"), "{error}");
}

#[tokio::test]
async fn json_rows_keep_their_digits() {
    let (mut f, s3) = (Fixture::with_database().await, endpoint().await);
    s3.put(
        "b",
        "a.json",
        "{\"k\":12345678901234567890.5,\"o\":{\"x\":[1]},\"t\":true}\n{\"T\":null,\"k\":\"é\",\"new\":1}\n",
    );
    let from = call(&s3, "a.json", r#""format" = "json""#);
    assert_eq!(f.rows(&format!("SELECT * FROM {from}")).await, ["12345678901234567890.5|{\"x\":[1]}|1", "é|NULL|NULL"]);
    s3.put("b", "b.json", r#"{"data":{"rows":[{"id":1,"v":{"w":"a"}},{"id":2}]}}"#);
    let from = call(
        &s3,
        "b.json",
        r#""format" = "json", "strip_outer_array" = "true", "json_root" = "$.data.rows", "jsonpaths" = "[\"$.v.w\", \"$.id\"]""#,
    );
    assert_eq!(f.rows(&format!("SELECT w, id FROM {from}")).await, ["a|1", "NULL|2"]);
    s3.put("b", "c.json", "{\"k\":1}\nnot json\n");
    let error = f.try_rows(&format!("SELECT * FROM {}", call(&s3, "c.json", r#""format" = "json""#))).await;
    assert!(error.expect_err("refused").contains("[DATA_QUALITY_ERROR]"));
}

fn parquet(columns: Vec<(&str, ArrayRef)>) -> Vec<u8> {
    let batch = RecordBatch::try_from_iter(columns).expect("batch");
    let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), None).expect("writer");
    writer.write(&batch).expect("write");
    writer.into_inner().expect("parquet")
}

#[tokio::test]
async fn parquet_columns_are_found_by_name_and_typed_by_the_footer() {
    let (mut f, s3) = (Fixture::with_database().await, endpoint().await);
    let micros = TimestampMicrosecondArray::from(vec![1_700_000_000_123_456]);
    let first = parquet(vec![
        ("Id", Arc::new(Int32Array::from(vec![1])) as ArrayRef),
        ("s", Arc::new(StringArray::from(vec!["x"]))),
        ("d", Arc::new(Decimal128Array::from(vec![1234]).with_precision_and_scale(10, 2).expect("decimal"))),
        ("wall", Arc::new(micros.clone())),
        ("instant", Arc::new(micros.with_timezone("UTC"))),
        ("l", Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>([Some([Some(1), None])]))),
    ]);
    s3.put("b", "p/dt=1/a.parquet", first);
    s3.put("b", "p/dt=2/b.parquet", parquet(vec![("ID", Arc::new(Int64Array::from(vec![2, 3])) as ArrayRef)]));
    let from = call(&s3, "p/*/*.parquet", r#""format" = "parquet", "path_partition_keys" = "dt""#);
    f.run("SET time_zone = '+08:00'").await;
    assert_eq!(
        f.sorted(&format!("SELECT id, s, d, wall, instant, l, dt FROM {from}")).await,
        [
            "1|x|12.34|2023-11-14 22:13:20.123456|2023-11-15 06:13:20.123456|[1, null]|1",
            "2|NULL|NULL|NULL|NULL|NULL|2",
            "3|NULL|NULL|NULL|NULL|NULL|2",
        ]
    );
    assert_eq!(f.rows(&format!("SELECT count(*) FROM {from}")).await, ["3"]);
    assert_eq!(
        f.rows(&format!("DESC FUNCTION {from}")).await[2..4],
        ["d|decimal(10,2)|Yes|false|NULL|NONE", "wall|datetime(6)|Yes|false|NULL|NONE"]
    );
    assert!(s3.requests().iter().any(|r| r.range.is_some()), "footers are read alone");
}

#[tokio::test]
async fn files_are_inserted_under_a_label() {
    let (mut f, s3) = (Fixture::with_database().await, endpoint().await);
    f.run("CREATE TABLE t (k INT NOT NULL, v VARCHAR(10) NULL) UNIQUE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 2 PROPERTIES (\"replication_num\" = \"1\")").await;
    s3.put("b", "up/l/0.csv", "k,v,__DORIS_DELETE_SIGN__\n1,a,0\n2,b,0\n1,,1\n");
    s3.put("b", "up/l/1.csv", "k,v,__DORIS_DELETE_SIGN__\n3,c,0\n");
    let from = call(&s3, "up/l/*.csv", r#""format" = "csv_with_names", "column_separator" = ",""#);
    let insert = format!(
        "INSERT INTO t WITH LABEL l1 (k, v, __DORIS_DELETE_SIGN__) SELECT k, v, __DORIS_DELETE_SIGN__ FROM {from}"
    );
    assert_eq!(f.affected(&insert).await, 4);
    assert_eq!(f.sorted("SELECT * FROM t").await, ["2|b", "3|c"]);
    assert!(f.error(&insert).await.text().contains("Label [l1] has already been used"));
    let none = call(&s3, "up/none/*.csv", r#""format" = "csv""#);
    assert_eq!(f.rows(&format!("SELECT * FROM {none}")).await, Vec::<String>::new());
    assert!(f.error(&format!("SELECT c1 FROM {none}")).await.text().contains("Unknown column 'c1'"));
}

#[tokio::test]
async fn last_row_of_a_key_is_taken_by_a_window_over_the_files() {
    let (mut f, s3) = (Fixture::with_database().await, endpoint().await);
    f.run("CREATE TABLE t (k INT NOT NULL, v JSON NULL, a ARRAY<INT> NULL) UNIQUE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 2 PROPERTIES (\"replication_num\" = \"1\")").await;
    s3.put(
        "b",
        "l/0.json",
        "{\"k\":1,\"v\":\"{\\\"x\\\":1}\",\"a\":[1],\"p\":5}\n{\"k\":2,\"v\":null,\"a\":null,\"p\":1}\n",
    );
    s3.put("b", "l/1.json", "{\"k\":1,\"v\":\"[]\",\"a\":[2],\"p\":10}\n{\"k\":1,\"v\":\"7\",\"a\":[3],\"p\":9}\n");
    let from = call(&s3, "l/*.json", r#""format" = "json""#);
    let insert = format!(
        "INSERT INTO t WITH LABEL `a-b:c_1` (`k`, `v`, `a`) SELECT `k`, CAST(`v` AS JSON), CAST(`a` AS ARRAY<INT>) FROM \
         (SELECT `k`, `v`, `a`, ROW_NUMBER() OVER (PARTITION BY CAST(`k` AS INT) ORDER BY CAST(`p` AS BIGINT) DESC) AS `r` \
         FROM {from}) AS `s` WHERE `r` = 1"
    );
    assert_eq!(f.affected(&insert).await, 2);
    assert_eq!(f.sorted("SELECT * FROM t").await, ["1|[]|[2]", "2|NULL|NULL"]);
    assert!(f.error(&insert).await.text().contains("Label [a-b:c_1] has already been used"));
}

#[tokio::test]
async fn filtered_rows_are_counted_where_the_mode_is_not_strict() {
    let (mut f, s3) = (Fixture::with_database().await, endpoint().await);
    f.run("CREATE TABLE t (k INT NOT NULL) DUPLICATE KEY(k) PARTITION BY RANGE(k) (PARTITION p VALUES LESS THAN (\"10\")) DISTRIBUTED BY HASH(k) BUCKETS 1 PROPERTIES (\"replication_num\" = \"1\")").await;
    s3.put("b", "a.json", "{\"k\":1}\n{\"k\":2}\n{\"k\":30}\n{\"k\":4}\n");
    let insert = format!("INSERT INTO t (k) SELECT k FROM {}", call(&s3, "a.json", r#""format" = "json""#));
    assert!(f.error(&insert).await.text().contains("Insert has filtered data in strict mode"));
    f.run("SET enable_insert_strict = false, insert_max_filter_ratio = 0.2").await;
    let error = f.error(&insert).await;
    assert!(error.text().contains("Insert has too many filtered data 1/4 insert_max_filter_ratio is 0.2"), "{error}");
    f.run("SET insert_max_filter_ratio = 0.25").await;
    assert_eq!(f.affected(&insert).await, 3);
}

#[tokio::test]
async fn credentials_are_used_and_never_shown() {
    let settings = S3Settings { session_token: Some("a-token".to_owned()), ..S3Settings::default() };
    let (mut f, s3) = (Fixture::with_database().await, S3Endpoint::start(settings).await.expect("endpoint"));
    s3.put("b", "a.csv", "1\n");
    let good = call(&s3, "a.csv", r#""format" = "csv", "s3.session_token" = "a-token""#);
    assert_eq!(f.rows(&format!("SELECT * FROM {good}")).await, ["1"]);
    for bad in [
        call(&s3, "a.csv", r#""format" = "csv", "s3.session_token" = "wrong-token""#),
        call(&s3, "*.csv", r#""format" = "csv""#),
        call(&s3, "a.csv", r#""format" = "csv", "tokn" = "wrong-token""#),
        call(&s3, "a.csv", r#""format" = "cs""#),
    ] {
        let error = f.error(&format!("SELECT * FROM {bad}")).await;
        for secret in ["top-secret", "wrong-token", "sandbox-access"] {
            assert!(!error.message.contains(secret), "{error}");
        }
    }
    let open = S3Endpoint::start(S3Settings { access_key: None, ..S3Settings::default() }).await.expect("endpoint");
    open.put("b", "a.csv", "7\n");
    let anonymous = format!(r#"s3("URI" = "{}/b/a.csv", "FORMAT" = "csv", "use_path_style" = "true")"#, open.url());
    assert_eq!(f.rows(&format!("SELECT c1 FROM {anonymous}")).await, ["7"]);
    assert!(open.requests().iter().all(|r| !r.signed));
    let mut old = Fixture::new(Profile::V2_1);
    assert_eq!(
        old.error(&format!("SELECT c1 FROM {anonymous}")).await.text(),
        "Missing [s3.access_key] in properties."
    );
}

#[tokio::test]
async fn other_table_functions() {
    let mut f = Fixture::with_database().await;
    assert_eq!(f.rows("SELECT sum(number), count(*) FROM numbers(\"number\" = \"10\")").await, ["45|10"]);
    assert_eq!(f.rows("SELECT a.number FROM numbers(\"number\" = \"3\") a, numbers('number' = '2') b WHERE a.number = b.number + 1").await.len(), 2);
    assert_eq!(f.error("SELECT * FROM numbers()").await.text(), "number not set");
    assert_eq!(f.rows("SELECT count(*) FROM backends()").await, ["0"], "no servers run here");
    assert_eq!(f.rows("DESC FUNCTION frontends()").await[0], "Name|text|Yes|false|NULL|NONE");
    for name in ["local", "hdfs", "http", "file"] {
        let error = f.error(&format!("SELECT * FROM {name}(\"uri\" = \"x\", \"format\" = \"csv\")")).await;
        assert_eq!(error.text(), format!("the sandbox does not implement table function {name}"));
    }
    assert!(f.error("DESC FUNCTION nothing()").await.text().contains("nothing"));
}
