//! `INSERT INTO` a Doris table by Stream Load.

use datafusion::arrow::array::AsArray;
use datafusion::arrow::datatypes::UInt64Type;
use datafusion::dataframe::DataFrameWriteOptions;
use datafusion::prelude::SessionContext;

use crate::harness::{Cluster, lines, refusal, run};

/// Each format as it is by default, and without compression.
pub const FORMATS: [&[(&str, &str)]; 5] = [
    &[("sink.properties.format", "csv")],
    &[("sink.properties.format", "json")],
    &[("sink.properties.format", "arrow")],
    &[("sink.properties.format", "csv"), ("sink.properties.compress_type", "")],
    &[("sink.properties.format", "json"), ("sink.properties.compress_type", "")],
];

/// Rows that an `INSERT` reports.
pub async fn insert(ctx: &SessionContext, sql: &str) -> u64 {
    let batches = run(ctx, sql).await;
    batches[0].column(0).as_primitive::<UInt64Type>().value(0)
}

#[tokio::test]
async fn an_insert_reports_its_rows_and_they_are_visible_at_once() {
    let cluster = Cluster::start().await;
    cluster
        .doris(
            "CREATE TABLE {db}.t (id INT NOT NULL, name VARCHAR(20), score DOUBLE) DUPLICATE KEY(id)
             DISTRIBUTED BY HASH(id) BUCKETS 3 PROPERTIES ('replication_num' = '1')",
        )
        .await;
    for (index, format) in FORMATS.iter().enumerate() {
        let ctx = cluster.context();
        cluster.declare(&ctx, "t", "t", format).await;
        let rows = insert(&ctx, "INSERT INTO t VALUES (1, 'one', 1.5), (2, NULL, -0.25), (3, '', NULL)").await;
        assert_eq!(rows, 3);
        assert_eq!(cluster.scalar("SELECT COUNT(*) FROM {db}.t").await, ((index + 1) * 3).to_string());
        assert_eq!(cluster.scalar("SELECT COUNT(*) FROM {db}.t WHERE name = ''").await, (index + 1).to_string());
        assert_eq!(cluster.scalar("SELECT COUNT(*) FROM {db}.t WHERE name IS NULL").await, (index + 1).to_string());
    }
}

#[tokio::test]
async fn an_insert_of_no_rows_opens_no_load() {
    let cluster = Cluster::sandbox().await;
    cluster.doris("CREATE TABLE {db}.t (id INT) DUPLICATE KEY(id) DISTRIBUTED BY HASH(id) BUCKETS 1").await;
    let ctx = cluster.context();
    cluster.declare(&ctx, "t", "t", &[]).await;
    assert_eq!(insert(&ctx, "INSERT INTO t SELECT 1 WHERE false").await, 0);
    assert!(!cluster.server().requests().all().iter().any(|request| request.target.contains("_stream_load")));
}

#[tokio::test]
async fn every_input_partition_is_written() {
    let cluster = Cluster::start().await;
    cluster.doris("CREATE TABLE {db}.t (id BIGINT) DUPLICATE KEY(id) DISTRIBUTED BY HASH(id) BUCKETS 2").await;
    let ctx = cluster.context();
    cluster.declare(&ctx, "t", "t", &[]).await;
    let parts: Vec<String> = (0..7).map(|part| format!("SELECT {part} AS id UNION ALL SELECT {part} + 100")).collect();
    assert_eq!(insert(&ctx, &format!("INSERT INTO t {}", parts.join(" UNION ALL "))).await, 14);
    assert_eq!(cluster.scalar("SELECT COUNT(DISTINCT id) FROM {db}.t").await, "14");
}

#[tokio::test]
async fn a_bad_row_makes_the_whole_insert_invisible_and_its_reason_reaches_the_user() {
    let cluster = Cluster::start().await;
    cluster
        .doris(
            "CREATE TABLE {db}.t (id INT NOT NULL, s VARCHAR(4)) DUPLICATE KEY(id) DISTRIBUTED BY HASH(id) BUCKETS 1",
        )
        .await;
    for format in FORMATS {
        let ctx = cluster.context();
        cluster.declare(&ctx, "t", "t", format).await;
        let message = refusal(&ctx, "INSERT INTO t VALUES (1, 'ok'), (2, 'far too long')").await;
        assert!(message.contains("too many filtered rows"), "{message}");
        assert!(message.contains("_load_error_log"), "{message}");
        assert!(message.contains(&cluster.table("t")), "{message}");
        assert_eq!(cluster.scalar("SELECT COUNT(*) FROM {db}.t").await, "0");
    }
}

#[tokio::test]
async fn a_value_that_doris_cannot_convert_is_no_null() {
    let cluster = Cluster::start().await;
    cluster.doris("CREATE TABLE {db}.t (id INT, n INT) DUPLICATE KEY(id) DISTRIBUTED BY HASH(id) BUCKETS 1").await;
    for format in FORMATS {
        let ctx = cluster.context();
        let ddl = cluster.ddl("t", "t", format).replace("TABLE t ", "TABLE t (id BIGINT, n BIGINT) ");
        run(&ctx, &ddl).await;
        let message = refusal(&ctx, "INSERT INTO t VALUES (1, 3000000000)").await;
        // What has no place in an arrow column never gets as far as Doris.
        let arrow = format.contains(&("sink.properties.format", "arrow"));
        assert!(message.contains(if arrow { "column 'n', row 0" } else { "too many filtered rows" }), "{message}");
    }
    assert_eq!(cluster.scalar("SELECT COUNT(*) FROM {db}.t").await, "0");
}

#[tokio::test]
async fn a_data_frame_with_other_columns_is_refused() {
    let cluster = Cluster::start().await;
    cluster.doris("CREATE TABLE {db}.t (id INT, s STRING) DUPLICATE KEY(id) DISTRIBUTED BY HASH(id) BUCKETS 1").await;
    let ctx = cluster.context();
    cluster.declare(&ctx, "t", "t", &[]).await;
    for sql in ["SELECT 1 AS id", "SELECT 'x' AS s, 1 AS id"] {
        let frame = ctx.sql(sql).await.expect("plans");
        let result = frame.write_table("t", DataFrameWriteOptions::new()).await;
        let message = result.expect_err("refused").to_string();
        assert!(message.contains(&cluster.table("t")) && message.contains("do not fit"), "{message}");
    }
    assert_eq!(cluster.scalar("SELECT COUNT(*) FROM {db}.t").await, "0");
}

#[tokio::test]
async fn a_wrong_password_is_refused_and_never_shown() {
    let cluster = Cluster::sandbox().await;
    cluster.doris("CREATE TABLE {db}.t (id INT) DUPLICATE KEY(id) DISTRIBUTED BY HASH(id) BUCKETS 1").await;
    let ctx = cluster.context();
    let message = refusal(&ctx, &cluster.ddl("t", "t", &[("password", "hunter2-wrong")])).await;
    assert!(message.contains("Access denied"), "{message}");
    assert!(!message.contains("hunter2"), "{message}");
    cluster.declare(&ctx, "t", "t", &[]).await;
    let plan = lines(&run(&ctx, "EXPLAIN VERBOSE INSERT INTO t SELECT id + 1 FROM t").await).join("\n");
    assert!(plan.contains("DorisSinkExec") && plan.contains("DorisScanExec"), "{plan}");
    assert!(!plan.contains("s3cret"), "{plan}");
}

#[tokio::test]
async fn options_are_checked_by_name() {
    let cluster = Cluster::sandbox().await;
    cluster.doris("CREATE TABLE {db}.t (id INT) DUPLICATE KEY(id) DISTRIBUTED BY HASH(id) BUCKETS 1").await;
    let ctx = cluster.context();
    let message = refusal(&ctx, &cluster.ddl("t", "t", &[("sink.lable-prefix", "x")])).await;
    assert!(message.contains("sink.lable-prefix") && message.contains("sink.label-prefix"), "{message}");
    // DataFusion puts `format.` before a key without a dot; the user sees the key as it was written
    let message = refusal(&ctx, &cluster.ddl("t", "t", &[("fenods", "x")])).await;
    assert!(message.contains("'fenods'") && message.contains("'fenodes'"), "{message}");
    let message = refusal(&ctx, &cluster.ddl("t", "nowhere", &[])).await;
    assert!(message.contains("nowhere"), "{message}");
    let message = refusal(&ctx, &cluster.ddl("t", "t", &[("source.scan.mode", "sometimes")])).await;
    assert!(message.contains("source.scan.mode") && message.contains("sometimes"), "{message}");
}

#[tokio::test]
async fn a_unique_table_keeps_the_last_row_of_a_key() {
    let cluster = Cluster::start().await;
    cluster
        .doris(
            "CREATE TABLE {db}.t (id INT, v VARCHAR(10)) UNIQUE KEY(id) DISTRIBUTED BY HASH(id) BUCKETS 2
             PROPERTIES ('enable_unique_key_merge_on_write' = 'true')",
        )
        .await;
    let ctx = cluster.context();
    cluster.declare(&ctx, "t", "t", &[]).await;
    insert(&ctx, "INSERT INTO t VALUES (1, 'a'), (2, 'b')").await;
    insert(&ctx, "INSERT INTO t VALUES (2, 'c'), (3, 'd')").await;
    assert_eq!(lines(&run(&ctx, "SELECT * FROM t ORDER BY id").await), ["1 | a", "2 | c", "3 | d"]);
}
