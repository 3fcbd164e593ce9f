//! Writes streams of record batches to Doris without SQL: rows, changes, and Debezium events.
//!
//! Runs against an embedded sandbox, or against the cluster that `DORIS_FENODES` and `DORIS_JDBC_URL` name (with
//! `DORIS_USERNAME` and `DORIS_PASSWORD`), where it makes and drops the database `write_stream`:
//!
//! ```sh
//! cargo run --locked --example write_stream
//! ```

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Float64Array, Int32Array, RecordBatch, StringArray};
use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::physical_plan::SendableRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion_doris::client::DorisConnection;
use datafusion_doris::options::{ChangeFormat, ConnectionOptions, DebeziumOptions, DorisOptions, Secret, SinkOptions};
use datafusion_doris::types::TableIdent;
use datafusion_doris::{DorisWriter, WriteReport};
use doris_sandbox::Sandbox;
use futures::{StreamExt, stream};

type Result<T, E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

const TABLE: &str = "
    CREATE TABLE {db}.readings (id INT NOT NULL, sensor VARCHAR(20), celsius DOUBLE) UNIQUE KEY(id)
    DISTRIBUTED BY HASH(id) BUCKETS 2
    PROPERTIES ('replication_num' = '1', 'enable_unique_key_merge_on_write' = 'true')";

#[tokio::main]
async fn main() -> Result<()> {
    let var = |name: &str, default: &str| std::env::var(name).unwrap_or_else(|_| default.to_string());
    let (fenodes, jdbc_url, _sandbox) = match std::env::var("DORIS_FENODES") {
        Ok(fenodes) => (fenodes, std::env::var("DORIS_JDBC_URL")?, None),
        Err(_) => {
            let sandbox = Sandbox::builder().user("root").start().await?;
            (sandbox.fenodes(), sandbox.jdbc_url(), Some(sandbox))
        }
    };
    let password = Secret::new(var("DORIS_PASSWORD", ""));
    let connection = ConnectionOptions::new(fenodes, var("DORIS_USERNAME", "root"), password).with_jdbc_url(jdbc_url);
    doris(&connection, "CREATE DATABASE write_stream").await?;
    let outcome = run(&connection, "write_stream").await;
    doris(&connection, "DROP DATABASE write_stream").await?;
    for line in outcome? {
        println!("{line}");
    }
    Ok(())
}

/// Writes in the three ways to a table of `database`; gives what the table holds in the end.
pub async fn run(connection: &ConnectionOptions, database: &str) -> Result<Vec<String>> {
    doris(connection, &TABLE.replace("{db}", database)).await?;
    let options = DorisOptions::new(TableIdent::new(database, "readings"), connection.clone());

    // Rows: the columns of the stream are found in the table by name. Two loads at once, visible together.
    let stream = readings();
    let rows = options.clone().with_sink(SinkOptions::default().with_parallelism(2));
    let writer = DorisWriter::builder(rows).build(&stream.schema()).await?;
    tell("rows", &writer.write(stream).await?);

    // Changes: a column of the stream holds the kind of each.
    let batch = changes()?;
    let kinds = SinkOptions::default().with_change_kind_column(Some("kind".to_string()));
    let writer = DorisWriter::builder(options.clone().with_sink(kinds)).build(&batch.schema()).await?;
    tell("changes", &writer.write_batches(vec![batch]).await?);

    // Debezium: one column of JSON, as a consumer of the topic gets it.
    let batch = events()?;
    let debezium = ChangeFormat::DebeziumJson(DebeziumOptions::default());
    let debezium = SinkOptions::default().with_change_format(Some(debezium));
    let writer = DorisWriter::builder(options.with_sink(debezium)).build(&batch.schema()).await?;
    tell("events", &writer.write_batches(vec![batch]).await?);

    doris(connection, &format!("SELECT id, sensor, celsius FROM {database}.readings ORDER BY id")).await
}

fn tell(what: &str, report: &WriteReport) {
    println!("{what}: {} by {} load(s)", report.rows, report.labels.len());
}

/// Any stream will do: this one makes its batches when they are asked for.
fn readings() -> SendableRecordBatchStream {
    // Not in the order of the table.
    let schema = Arc::new(Schema::new(vec![
        Field::new("celsius", DataType::Float64, true),
        Field::new("id", DataType::Int32, false),
        Field::new("sensor", DataType::Utf8, true),
    ]));
    let of_stream = Arc::clone(&schema);
    let batches = stream::iter([0, 4]).map(move |start| {
        let ids = Int32Array::from_iter_values(start..start + 4);
        let celsius = Float64Array::from_iter_values(ids.values().iter().map(|id| f64::from(*id) / 2.0));
        let sensors = StringArray::from_iter_values(ids.values().iter().map(|id| format!("s{}", id % 2)));
        let columns: Vec<ArrayRef> = vec![Arc::new(celsius), Arc::new(ids), Arc::new(sensors)];
        Ok(RecordBatch::try_new(Arc::clone(&schema), columns)?)
    });
    Box::pin(RecordBatchStreamAdapter::new(of_stream, batches))
}

/// Row 0 is deleted, row 1 gets another value, row 100 is new.
fn changes() -> Result<RecordBatch> {
    let columns: [(&str, ArrayRef); 4] = [
        ("id", Arc::new(Int32Array::from(vec![0, 1, 100]))),
        ("sensor", Arc::new(StringArray::from(vec!["s0", "s1", "s2"]))),
        ("celsius", Arc::new(Float64Array::from(vec![None, Some(-1.5), Some(50.0)]))),
        ("kind", Arc::new(StringArray::from(vec!["-D", "+U", "+I"]))),
    ];
    Ok(RecordBatch::try_from_iter(columns)?)
}

/// Row 2 is deleted, row 3 gets another key.
fn events() -> Result<RecordBatch> {
    let events = StringArray::from(vec![
        r#"{"op":"d","before":{"id":2,"sensor":"s0","celsius":1.0},"after":null}"#,
        r#"{"op":"u","before":{"id":3,"sensor":"s1"},"after":{"id":33,"sensor":"s1","celsius":16.5}}"#,
    ]);
    Ok(RecordBatch::try_from_iter([("value", Arc::new(events) as ArrayRef)])?)
}

/// Sends a statement to Doris itself, and gives its rows.
async fn doris(connection: &ConnectionOptions, sql: &str) -> Result<Vec<String>> {
    let url = connection.jdbc_url.as_deref().unwrap_or_default();
    let mut doris = DorisConnection::connect(url, &connection.username, &connection.password).await?;
    let answers = doris.execute(sql).await?;
    let cell = |cell: &Option<String>| cell.clone().unwrap_or_else(|| "NULL".to_string());
    let line = |row: &Vec<Option<String>>| row.iter().map(cell).collect::<Vec<_>>().join(" ");
    Ok(answers.iter().flat_map(|answer| &answer.rows).map(line).collect())
}
