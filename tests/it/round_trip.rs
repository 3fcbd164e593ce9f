//! Random values of every type that Doris stores, written in each format and compression, read back equal.
//!
//! The seed is new in each run and stands in the message of a failure: `ROUND_TRIP_SEED=… cargo test --test it
//! round_trip` repeats it.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray, Int32Array, RecordBatch, StringArray};
use datafusion::arrow::compute::concat_batches;
use datafusion::datasource::MemTable;
use datafusion::prelude::SessionContext;
use doris_sandbox::s3_endpoint::{S3Endpoint, S3Settings};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use crate::harness::{Cluster, refusal, run};
use crate::round_trip_values::{COLUMNS, array};

/// Batches written in every way.
const CASES: usize = 3;
/// Rows per batch.
const ROWS: usize = 40;

/// Every format with each compression it takes.
pub const WAYS: [(&str, &str); 13] = [
    ("csv", "gz"),
    ("csv", ""),
    ("csv", "lz4"),
    ("csv", "zstd"),
    ("csv", "deflate"),
    ("json", "gz"),
    ("json", ""),
    ("json", "lz4"),
    ("json", "zstd"),
    ("json", "deflate"),
    ("arrow", ""),
    ("arrow", "lz4"),
    ("arrow", "zstd"),
];

/// The same for rows that are staged in an object store.
const STAGED: [(&str, &str); 9] = [
    ("json", "gz"),
    ("json", ""),
    ("json", "lz4"),
    ("json", "zstd"),
    ("json", "deflate"),
    ("parquet", "zstd"),
    ("parquet", ""),
    ("parquet", "lz4"),
    ("parquet", "gz"),
];

/// The write mode of each way, with its format and compression.
fn ways() -> Vec<(&'static str, &'static str, &'static str)> {
    let streamed = WAYS.iter().map(|(format, compression)| ("STREAM_LOAD", *format, *compression));
    // The cluster of the environment reaches no endpoint of this process.
    let staged = STAGED.iter().filter(|_| std::env::var_os("DORIS_FENODES").is_none());
    streamed.chain(staged.map(|(format, compression)| ("TVF", *format, *compression))).collect()
}

/// Options of a target that is written in a way.
fn options<'a>(endpoint: &'a str, way: &(&'a str, &'a str, &'a str)) -> Vec<(&'a str, &'a str)> {
    let (mode, format, compression) = *way;
    let mut options = vec![
        ("sink.write-mode", mode),
        ("sink.properties.format", format),
        ("sink.properties.compress_type", compression),
    ];
    if mode == "TVF" {
        options.extend([
            ("sink.s3.endpoint", endpoint),
            ("sink.s3.region", "us-east-1"),
            ("sink.s3.bucket", "lake"),
            ("sink.s3.prefix", "stage"),
            ("sink.s3.access-key", "sandbox-access"),
            ("sink.s3.secret-key", "top-secret"),
        ]);
    }
    options
}

fn seed() -> u64 {
    match std::env::var("ROUND_TRIP_SEED") {
        Ok(seed) => seed.parse().expect("ROUND_TRIP_SEED is a number"),
        Err(_) => RandomState::new().hash_one("seed"),
    }
}

#[tokio::test]
async fn every_type_reads_back_equal_in_every_format_and_compression() {
    let seed = seed();
    println!("ROUND_TRIP_SEED={seed}");
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);

    let cluster = Cluster::start().await;
    let s3 = S3Endpoint::start(S3Settings::default()).await.expect("endpoint");
    let (url, ways) = (s3.url(), ways());
    let columns: Vec<String> =
        COLUMNS.iter().enumerate().map(|(at, doris_type)| format!("c{at} {doris_type} NULL")).collect();
    cluster
        .doris(&format!(
            "SET enable_decimal256 = true; CREATE TABLE {{db}}.t (way INT, id INT, {})
             DUPLICATE KEY(way, id) DISTRIBUTED BY HASH(id) BUCKETS 1 PROPERTIES ('replication_num' = '1')",
            columns.join(", ")
        ))
        .await;
    let contexts: Vec<SessionContext> = {
        let mut contexts = Vec::new();
        for way in &ways {
            let ctx = cluster.context();
            cluster.declare(&ctx, "t", "t", &options(&url, way)).await;
            contexts.push(ctx);
        }
        contexts
    };
    let schema = contexts[0].table_provider("t").await.expect("declared").schema();

    for case in 0..CASES {
        let values: Vec<ArrayRef> = COLUMNS
            .iter()
            .zip(&schema.fields()[2..])
            .map(|(doris_type, field)| array(doris_type, field.data_type(), ROWS, &mut runner))
            .collect();
        for (way, ctx) in contexts.iter().enumerate() {
            let ids: ArrayRef = Arc::new(Int32Array::from_iter_values(0..ROWS as i32));
            let ways: ArrayRef = Arc::new(Int32Array::from_value(way as i32, ROWS));
            let batch = RecordBatch::try_new(Arc::clone(&schema), [vec![ways, ids], values.clone()].concat());
            let batch = batch.expect("the values have the types of the table");
            let source = MemTable::try_new(Arc::clone(&schema), vec![vec![batch]]).expect("source");
            ctx.register_table("src", Arc::new(source)).expect("registered");
            run(ctx, "INSERT INTO t SELECT * FROM src").await;
            ctx.deregister_table("src").expect("registered before");
        }
        for (way, (mode, format, compression)) in ways.iter().enumerate() {
            let back = run(&contexts[0], &format!("SELECT * FROM t WHERE way = {way} ORDER BY id")).await;
            let back = concat_batches(&schema, &back).expect("one schema");
            assert_eq!(back.num_rows(), ROWS, "seed {seed}, case {case}, {mode} {format} {compression:?}");
            for (at, (doris_type, expected)) in COLUMNS.iter().zip(&values).enumerate() {
                let found = normalised(doris_type, back.column(at + 2));
                let expected = normalised(doris_type, expected);
                for row in 0..ROWS {
                    assert_eq!(
                        &found.slice(row, 1),
                        &expected.slice(row, 1),
                        "{doris_type} in {mode} {format} {compression:?}: seed {seed}, case {case}, row {row}"
                    );
                }
            }
        }
        cluster.doris("TRUNCATE TABLE {db}.t").await;
    }
}

/// Texts of which the server keeps the meaning only.
fn normalised(doris_type: &str, array: &ArrayRef) -> ArrayRef {
    if !matches!(doris_type, "JSON" | "VARIANT") {
        return Arc::clone(array);
    }
    let compact = |text| serde_json::from_str::<serde_json::Value>(text).expect("JSON").to_string();
    let texts = array.as_string::<i32>().iter().map(|text| text.map(compact));
    Arc::new(texts.collect::<StringArray>())
}

/// What is refused in one format is refused in all, no row is visible then, and the column's name reaches the user.
#[tokio::test]
async fn round_trip_refusals_are_equal_in_every_format() {
    let cluster = Cluster::start().await;
    let s3 = S3Endpoint::start(S3Settings::default()).await.expect("endpoint");
    let (url, ways) = (s3.url(), ways());
    // Type in Doris, type that the table is declared with here, value.
    let cases = [
        ("VARCHAR(4)", "STRING", "'12345'"),
        ("CHAR(4)", "STRING", "'\u{1f980}\u{1f980}'"),
        ("TINYINT", "BIGINT", "128"),
        ("INT", "BIGINT", "-3000000000"),
        ("LARGEINT", "STRING", "'170141183460469231731687303715884105728'"),
        ("DECIMAL(5, 2)", "DECIMAL(10, 2)", "1000.00"),
        ("JSON", "STRING", "'{y:'"),
        ("IPV4", "STRING", "'1.2.3.256'"),
        ("IPV6", "STRING", "'::12345'"),
        ("DATETIME(6)", "TIMESTAMP", "TIMESTAMP '2024-02-28 00:00:00.000000001'"),
    ];
    for (at, (doris_type, declared, bad)) in cases.iter().enumerate() {
        cluster.duplicate_table(&format!("t{at}"), &format!("id INT, odd_one {doris_type}"), "").await;
        for way in ways.iter().filter(|(_, _, compression)| compression.is_empty()) {
            let ctx = cluster.context();
            let columns = format!("TABLE t (id INT, odd_one {declared}) ");
            run(&ctx, &cluster.ddl("t", &format!("t{at}"), &options(&url, way)).replace("TABLE t ", &columns)).await;
            let message = refusal(&ctx, &format!("INSERT INTO t VALUES (1, {bad})")).await;
            assert!(message.contains("odd_one"), "{doris_type} in {way:?}: {message}");
        }
        assert_eq!(cluster.scalar(&format!("SELECT COUNT(*) FROM {{db}}.t{at}")).await, "0", "{doris_type}");
    }
}
