//! Streams written without SQL.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Int32Array, Int64Array, RecordBatch, StringArray};
use datafusion::error::DataFusionError;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion_doris::client::DorisClient;
use datafusion_doris::options::{ChangeFormat, ConnectionOptions, DebeziumOptions, DorisOptions, Secret, SinkOptions};
use datafusion_doris::sink::DorisSink;
use datafusion_doris::types::TableIdent;
use datafusion_doris::{DorisWriter, Error};
use doris_sandbox::{Action, Fault};
use futures::stream;

use crate::harness::Cluster;

#[allow(dead_code)]
#[path = "../../examples/write_stream.rs"]
mod example;

fn connection(cluster: &Cluster) -> ConnectionOptions {
    ConnectionOptions::new(cluster.fenodes(), cluster.username(), Secret::new(cluster.password()))
        .with_jdbc_url(cluster.jdbc_url())
}

fn options(cluster: &Cluster, table: &str, sink: SinkOptions) -> DorisOptions {
    DorisOptions::new(TableIdent::new(cluster.database(), table), connection(cluster)).with_sink(sink)
}

/// Columns in another order and case than those of the table.
fn batch(ids: &[i32], names: &[Option<&str>]) -> RecordBatch {
    let columns: [(&str, ArrayRef); 2] =
        [("NAME", Arc::new(StringArray::from(names.to_vec()))), ("id", Arc::new(Int32Array::from(ids.to_vec())))];
    RecordBatch::try_from_iter_with_nullable(columns.map(|(name, values)| (name, values, true))).expect("a batch")
}

async fn rows(cluster: &Cluster) -> Vec<String> {
    let rows = cluster.doris("SELECT id, Name, n FROM {db}.t ORDER BY id").await;
    let cell = |cell: Option<String>| cell.unwrap_or_else(|| "NULL".into());
    rows.into_iter().map(|row| row.into_iter().map(cell).collect::<Vec<_>>().join(" ")).collect()
}

async fn table(cluster: &Cluster) {
    cluster.unique_table("t", "id INT NOT NULL, Name VARCHAR(10), n INT DEFAULT '7'", "").await;
}

#[tokio::test]
async fn the_example_writes_rows_changes_and_events() {
    let cluster = Cluster::start().await;
    let written = example::run(&connection(&cluster), cluster.database()).await.expect("written");
    let expected = ["1 s1 -1.5", "4 s0 2", "5 s1 2.5", "6 s0 3", "7 s1 3.5", "33 s1 16.5", "100 s2 50"];
    assert_eq!(written, expected);
}

#[tokio::test]
async fn each_stream_is_a_statement_whose_rows_and_labels_are_told() {
    let cluster = Cluster::start().await;
    table(&cluster).await;
    for (format, loads) in [("csv", 1), ("json", 1), ("csv", 2)] {
        cluster.doris("TRUNCATE TABLE {db}.t").await;
        let format = match format {
            "json" => datafusion_doris::options::SinkFormat::Json,
            _ => datafusion_doris::options::SinkFormat::Csv,
        };
        let sink = SinkOptions::default().with_format(Some(format)).with_parallelism(loads);
        let first = batch(&[1, 2, 3, 4, 5], &[Some("a"), None, Some("c,\t\"\\"), Some(""), Some("数")]);
        let writer = DorisSink::builder(options(&cluster, "t", sink)).build(&first.schema()).await.expect("a writer");
        let report = writer.write_batches(vec![first.clone(), batch(&[6], &[Some("f")])]).await.expect("written");
        assert_eq!((report.rows, report.labels.len()), (6, loads as usize));
        let again = writer.write_batches(vec![batch(&[6], &[Some("g")])]).await.expect("written");
        assert_eq!(again.rows, 1);
        assert!(again.labels.iter().all(|label| !report.labels.contains(label)));
        for label in report.labels.iter().chain(&again.labels) {
            let client = DorisClient::try_new(Arc::new(connection(&cluster))).expect("a client");
            let state = client.label_state(cluster.database(), label).await.expect("a state");
            assert_eq!(state.to_string(), "VISIBLE", "{label}");
        }
        assert_eq!(rows(&cluster).await, ["1 a 7", "2 NULL 7", "3 c,\t\"\\ 7", "4  7", "5 数 7", "6 g 7"]);
    }
    let none = batch(&[], &[]);
    let writer = DorisWriter::builder(options(&cluster, "t", SinkOptions::default()));
    let report = writer.build(&none.schema()).await.expect("a writer").write_batches(vec![]).await.expect("nothing");
    assert_eq!((report.rows, report.labels.len()), (0, 0));
}

#[tokio::test]
async fn streams_that_fail_leave_nothing() {
    let cluster = Cluster::sandbox().await;
    table(&cluster).await;
    let first = batch(&[1, 2], &[Some("a"), Some("b")]);
    let schema = first.schema();
    let writer =
        DorisWriter::builder(options(&cluster, "t", SinkOptions::default())).build(&schema).await.expect("built");
    // Of the stream itself.
    let broken = stream::iter([Ok(first.clone()), Err(DataFusionError::Execution("the source is gone".into()))]);
    let error = writer.write(Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&schema), broken))).await;
    assert!(error.expect_err("broken").to_string().contains("the source is gone"));
    // Of a value.
    let error = writer.write_batches(vec![batch(&[1], &[Some("longer than ten")])]).await.expect_err("too long");
    assert!(matches!(error, Error::StreamLoad { .. }), "{error}");
    // Of the commit.
    cluster.server().faults().push(Fault::new(Action::FailCommit("no".into())));
    let error = writer.write_batches(vec![first]).await.expect_err("no commit");
    assert!(error.to_string().contains("no"), "{error}");
    assert!(rows(&cluster).await.is_empty());
}

#[tokio::test]
async fn streams_that_do_not_fit_are_refused_with_their_columns() {
    let cluster = Cluster::sandbox().await;
    table(&cluster).await;
    cluster.duplicate_table("d", "id INT, Name VARCHAR(10)", "").await;
    let kinds = SinkOptions::default().with_change_kind_column(Some("kind".into()));
    let events =
        || SinkOptions::default().with_change_format(Some(ChangeFormat::DebeziumJson(DebeziumOptions::default())));
    let rows = batch(&[1], &[None]).schema();
    let other: [(&str, ArrayRef); 2] =
        [("id", Arc::new(Int32Array::from(vec![1]))), ("missing", Arc::new(Int32Array::from(vec![1])))];
    let other = RecordBatch::try_from_iter(other).expect("a batch").schema();
    let changes: [(&str, ArrayRef); 2] =
        [("id", Arc::new(Int32Array::from(vec![1]))), ("kind", Arc::new(StringArray::from(vec!["+I"])))];
    let changes = RecordBatch::try_from_iter(changes).expect("a batch").schema();
    for (table, sink, schema, expected) in [
        ("t", SinkOptions::default(), &other, "no column 'missing', its columns are id, Name, n"),
        ("t", kinds.clone(), &rows, "no column 'kind'"),
        ("t", events(), &rows, "one column of text, not 2"),
        ("nowhere", SinkOptions::default(), &rows, "nowhere"),
        // A stream whose rows may delete, before there is a stream.
        ("d", kinds.clone(), &changes, "no UNIQUE KEY table"),
    ] {
        let error = DorisWriter::builder(options(&cluster, table, sink)).build(schema).await.expect_err("refused");
        assert!(error.to_string().contains(expected), "{error}");
    }
    let builder = DorisWriter::builder(options(&cluster, "nowhere", SinkOptions::default()));
    let builder = builder.with_table(TableIdent::new(cluster.database(), "t"));
    let writer = builder.build(&rows).await.expect("a writer");
    let changed: [(&str, ArrayRef); 2] =
        [("NAME", Arc::new(Int64Array::from(vec![1]))), ("id", Arc::new(Int32Array::from(vec![1])))];
    let changed = RecordBatch::try_from_iter(changed).expect("a batch");
    let error = writer.write_batches(vec![changed]).await.expect_err("another schema").to_string();
    assert!(error.contains("NAME Int64") && error.contains("NAME Utf8"), "{error}");
}

#[tokio::test]
async fn events_fill_the_columns_that_are_named() {
    let cluster = Cluster::start().await;
    table(&cluster).await;
    cluster.doris("INSERT INTO {db}.t VALUES (1, 'a', 1), (2, 'b', 2)").await;
    let events: ArrayRef = Arc::new(StringArray::from(vec![
        Some(r#"{"payload":{"op":"c","before":null,"after":{"id":5,"Name":"e"}},"schema":null}"#),
        Some(r#"{"op":"u","before":{"id":1,"Name":"a"},"after":{"id":9,"Name":"z"}}"#),
        None,
        Some(r#"{"op":"d","before":{"id":2},"after":null}"#),
    ]));
    let batch = RecordBatch::try_from_iter([("value", events)]).expect("a batch");
    let format = ChangeFormat::DebeziumJson(DebeziumOptions::default());
    let sink = SinkOptions::default().with_change_format(Some(format));
    let builder = DorisWriter::builder(options(&cluster, "t", sink)).with_columns(["id", "name"]);
    let writer = builder.build(&batch.schema()).await.expect("a writer");
    for _ in 0..2 {
        writer.write_batches(vec![batch.clone()]).await.expect("written");
        assert_eq!(rows(&cluster).await, ["5 e 7", "9 z 7"]);
    }
}
