//! The same flights written in each mode and format: what it takes, and that nothing is lost.
//!
//! A process of its own is the server. Each INSERT runs in a further process, so that its CPU seconds and its peak memory
//! are its own; this process then compares the table with the file, row by row (by a hash of each) and how often each is
//! there. It tells each way on standard error as it is done, and prints the table at the end.
//!
//! `cargo bench --bench write_modes`; `FLIGHTS_FILE` names a Parquet file with the columns date, delay, distance, origin
//! and destination (flights-3m.parquet of vega-datasets; else flights are made up), `WRITE_MODES_ROWS` how many of its
//! rows are taken (3000000), `WRITE_MODES_ONLY` a part of the names of the ways to run.

mod common;

use std::hash::{DefaultHasher, Hasher};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use arrow::row::{RowConverter, SortField};
use datafusion::dataframe::DataFrameWriteOptions;
use datafusion::prelude::{ParquetReadOptions, SessionContext};
use futures::TryStreamExt;
use serde_json::{Value, json};

use common::server::{ACCESS_KEY, SECRET_KEY};
use common::table::Table;
use common::usage::{cpu_seconds, peak_mb};
use common::{Outcome, Server, amount, server};

/// Argument that makes this program write, as the JSON after it tells.
const WRITE: &str = "write-flights";
/// Rows that are written at most.
const ROWS: u64 = 3_000_000;
/// Peak memory may grow by this much from a third of the rows to all of them.
const MOST_GROWTH: f64 = 1.25;
/// Peak memory of every way, in MB.
const MOST_MEMORY: f64 = 256.0;
/// The columns that tell one flight from another.
const COLUMNS: &str = "date, delay, distance, origin, destination";

/// A way to write: its name and its options.
struct Way {
    name: &'static str,
    options: &'static [(&'static str, &'static str)],
}

impl Way {
    /// True when a third of the rows takes all the memory that the way may take: it is less than the batches of a writer by
    /// default (100 MB), and less than a row group of Parquet (32 MB).
    fn fills_its_buffers(&self) -> bool {
        !self.options.contains(&PARQUET) && (!self.options.contains(&BATCH) || self.options.contains(&SMALL))
    }
}

const NO_COMPRESSION: (&str, &str) = ("sink.properties.compress_type", "");
const BATCH: (&str, &str) = ("sink.write-mode", "STREAM_LOAD_BATCH");
/// A third of the rows has ten of these; of the default, 500000, it has two.
const SMALL: (&str, &str) = ("sink.buffer-flush.max-rows", "100000");
const TVF: (&str, &str) = ("sink.write-mode", "TVF");
const JSON: (&str, &str) = ("sink.properties.format", "json");
const PARQUET: (&str, &str) = ("sink.properties.format", "parquet");
const ARROW: (&str, &str) = ("sink.properties.format", "arrow");

const WAYS: &[Way] = &[
    Way { name: "streaming, csv, gz", options: &[] },
    Way { name: "streaming, csv", options: &[NO_COMPRESSION] },
    Way { name: "streaming, json, gz", options: &[JSON] },
    Way { name: "streaming, json", options: &[JSON, NO_COMPRESSION] },
    Way { name: "streaming, arrow", options: &[ARROW] },
    Way { name: "streaming, csv, gz, 2 loads", options: &[("sink.parallelism", "2")] },
    Way { name: "batch, csv, gz", options: &[BATCH] },
    Way { name: "batch, json", options: &[BATCH, JSON, NO_COMPRESSION] },
    Way { name: "batch, arrow", options: &[BATCH, ARROW] },
    Way { name: "batch of 100000, csv, gz", options: &[BATCH, SMALL] },
    Way { name: "batch of 100000, json", options: &[BATCH, SMALL, JSON, NO_COMPRESSION] },
    Way { name: "batch of 100000, arrow", options: &[BATCH, SMALL, ARROW] },
    Way { name: "tvf, json", options: &[TVF, JSON] },
    Way { name: "tvf, parquet", options: &[TVF, PARQUET] },
];

fn main() -> Outcome<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    if server::is_server() {
        return runtime.block_on(server::serve());
    }
    let mut arguments = std::env::args().skip_while(|argument| argument != WRITE);
    if arguments.next().is_some() {
        let task: Value = serde_json::from_str(&arguments.next().ok_or("nothing to write")?)?;
        return runtime.block_on(write(&task));
    }
    let server = Server::start()?;
    runtime.block_on(measure(&server))
}

fn text<'a>(task: &'a Value, name: &str) -> Outcome<&'a str> {
    task[name].as_str().ok_or_else(|| format!("no {name}").into())
}

/// What the further process does: one INSERT.
async fn write(task: &Value) -> Outcome<()> {
    let context = datafusion_doris::session_context();
    context.register_parquet("file", text(task, "file")?, ParquetReadOptions::default()).await?;
    let (fenodes, jdbc_url) = (text(task, "fenodes")?, text(task, "jdbc_url")?);
    server::declare(&context, fenodes, jdbc_url, "flights", "flights", text(task, "options")?).await?;
    let (started, before) = (Instant::now(), cpu_seconds()?);
    let insert = format!("INSERT INTO flights ({COLUMNS}) SELECT {COLUMNS} FROM file");
    datafusion_doris::sql(&context, &insert).await?.collect().await?;
    let cpu = cpu_seconds()?.zip(before).map(|(after, before)| after - before);
    println!("{}", json!({ "seconds": started.elapsed().as_secs_f64(), "cpu": cpu, "peak": peak_mb()? }));
    Ok(())
}

async fn measure(server: &Server) -> Outcome<()> {
    let (rows, begun) = (amount("WRITE_MODES_ROWS", ROWS)?, Instant::now());
    let only = std::env::var("WRITE_MODES_ONLY").unwrap_or_default();
    let dir = tempfile::tempdir()?;
    let files = [(rows / 3, dir.path().join("third.parquet")), (rows, dir.path().join("all.parquet"))];
    for (rows, file) in &files {
        cut(*rows, file).await?;
    }
    let context = SessionContext::new();
    let all = files[1].1.to_str().ok_or("an odd path")?;
    context.register_parquet("file", all, ParquetReadOptions::default()).await?;
    let written = hashes(&context, "file").await?;
    eprintln!("[{:4.0} s] {rows} flights and a third of them are in files", begun.elapsed().as_secs_f64());
    server.doris("CREATE DATABASE bench").await?;
    let mut table =
        Table::new(&["way", "rows", "missing", "added", "seconds", "CPU s", "rows/s", "peak MB at a third", "peak MB"]);
    let mut wrong = Vec::new();
    for way in WAYS.iter().filter(|way| way.name.contains(&only)) {
        let mut peaks = Vec::new();
        for (rows, file) in &files {
            let told = run(server, way, file).await.map_err(|error| format!("{}: {error}", way.name))?;
            peaks.push(told["peak"].as_f64());
            if peaks.len() < files.len() {
                continue;
            }
            let [count, missing, added] = compare(server, &written).await?;
            if (count, missing, added) != (*rows, 0, 0) {
                wrong.push(format!("{}: {count} rows, {missing} missing, {added} added", way.name));
            }
            let number = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.2}"));
            let megabytes =
                |i: usize| peaks.get(i).copied().flatten().map_or_else(|| "-".into(), |mb| format!("{mb:.0}"));
            let seconds = told["seconds"].as_f64().unwrap_or(f64::NAN);
            eprintln!(
                "[{:4.0} s] {}: {count} rows in {seconds:.2} s, {missing} missing, {added} added",
                begun.elapsed().as_secs_f64(),
                way.name
            );
            table.row(vec![
                way.name.to_owned(),
                count.to_string(),
                missing.to_string(),
                added.to_string(),
                format!("{seconds:.2}"),
                number(told["cpu"].as_f64()),
                format!("{:.0}", count as f64 / seconds),
                megabytes(0),
                megabytes(1),
            ]);
            if let [Some(Some(third)), Some(Some(all))] = [peaks.first(), peaks.last()] {
                if all / third > MOST_GROWTH && way.fills_its_buffers() {
                    wrong.push(format!("{}: memory grows from {third:.0} to {all:.0} MB with the rows", way.name));
                }
                if *all > MOST_MEMORY {
                    wrong.push(format!("{}: {all:.0} MB are more than {MOST_MEMORY}", way.name));
                }
            }
        }
    }
    println!("{}", table.render());
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("; ").into()) }
}

/// Writes the first flights of the file, or made up ones, to a file of their own.
async fn cut(rows: u64, to: &Path) -> Outcome<()> {
    let context = SessionContext::new();
    let flights = match std::env::var("FLIGHTS_FILE") {
        Ok(file) => {
            context.register_parquet("flights", &file, ParquetReadOptions::default()).await?;
            context.sql(&format!("SELECT {COLUMNS} FROM flights LIMIT {rows}")).await?
        }
        Err(_) => {
            let made_up = format!(
                "SELECT CAST(to_timestamp(978307200 + value * 37) AS TIMESTAMP) AS date, value * 7919 % 400 - 60 AS delay,
                 100 + value * 104729 % 2600 AS distance,
                 concat('O', chr(65 + value % 26), chr(65 + value / 26 % 17)) AS origin,
                 concat('D', chr(65 + value * 3 % 26), chr(65 + value / 7 % 19)) AS destination
                 FROM generate_series(1, {rows})"
            );
            context.sql(&made_up).await?
        }
    };
    let to = to.to_str().ok_or("an odd path")?;
    flights.write_parquet(to, DataFrameWriteOptions::new().with_single_file_output(true), None).await?;
    Ok(())
}

/// Makes the table anew and writes the file in a process of its own; what that tells.
async fn run(server: &Server, way: &Way, file: &Path) -> Outcome<Value> {
    server.doris("DROP TABLE IF EXISTS bench.flights").await?;
    let table = "CREATE TABLE bench.flights (`date` DATETIME(6), delay BIGINT, distance BIGINT, origin VARCHAR(8), \
                 destination VARCHAR(8)) DUPLICATE KEY(`date`) DISTRIBUTED BY HASH(origin) BUCKETS 8 \
                 PROPERTIES ('replication_num' = '1')";
    server.doris(table).await?;
    let s3 = [
        ("sink.s3.endpoint", server.s3.as_str()),
        ("sink.s3.region", "us-east-1"),
        ("sink.s3.bucket", "bench"),
        ("sink.s3.prefix", "staged"),
        ("sink.s3.access-key", ACCESS_KEY),
        ("sink.s3.secret-key", SECRET_KEY),
        ("sink.s3.path-style-access", "true"),
    ];
    let s3 = s3.iter().filter(|_| way.options.contains(&TVF));
    let options = way.options.iter().chain(s3).map(|(name, value)| format!(", '{name}' '{value}'"));
    let task = json!({
        "fenodes": server.fenodes,
        "jdbc_url": server.jdbc_url,
        "file": file,
        "options": options.collect::<String>(),
    });
    let output = Command::new(std::env::current_exe()?).args([WRITE, &task.to_string()]).output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// The rows of a source of this context, each as a hash, in the order of the hashes.
async fn hashes(context: &SessionContext, source: &str) -> Outcome<Vec<u64>> {
    let columns = "arrow_cast(date, 'Timestamp(Microsecond, None)'), arrow_cast(delay, 'Int64'), \
                   arrow_cast(distance, 'Int64'), arrow_cast(origin, 'Utf8'), arrow_cast(destination, 'Utf8')";
    let frame = datafusion_doris::sql(context, &format!("SELECT {columns} FROM {source}")).await?;
    let fields = frame.schema().as_arrow().fields().iter();
    let converter = RowConverter::new(fields.map(|field| SortField::new(field.data_type().clone())).collect())?;
    let (mut batches, mut hashes) = (frame.execute_stream().await?, Vec::new());
    while let Some(batch) = batches.try_next().await? {
        let rows = converter.convert_columns(batch.columns())?;
        hashes.extend(rows.iter().map(|row| {
            let mut hasher = DefaultHasher::new();
            hasher.write(row.as_ref());
            hasher.finish()
        }));
    }
    hashes.sort_unstable();
    Ok(hashes)
}

/// Elements of the one that the other has not, or not as often; both in order.
fn missing(of: &[u64], from: &[u64]) -> u64 {
    let (mut count, mut rest) = (0, from);
    for hash in of {
        rest = &rest[rest.partition_point(|other| other < hash)..];
        match rest.split_first() {
            Some((first, others)) if first == hash => rest = others,
            _ => count += 1,
        }
    }
    count
}

/// Rows of the table; rows that only the file has, rows that only the table has.
async fn compare(server: &Server, written: &[u64]) -> Outcome<[u64; 3]> {
    let context = datafusion_doris::session_context();
    server.declare(&context, "flights", "flights", "").await?;
    let read = hashes(&context, "flights").await?;
    Ok([read.len() as u64, missing(written, &read), missing(&read, written)])
}
