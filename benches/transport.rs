//! What the sandbox itself can move, so that it is not what a benchmark measures.
//!
//! A process of its own serves a table whose reads are sent from encoded bytes and a table whose loads are checked and
//! discarded. This process reads the one with a bare Arrow Flight client and writes the other with a bare HTTP client.
//!
//! `cargo bench --bench transport`; `TRANSPORT_ROWS` and `TRANSPORT_LOAD_MB` change the amounts.

mod common;

use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema};
use arrow::ipc::writer::StreamWriter;
use arrow_flight::decode::FlightRecordBatchStream;
use arrow_flight::error::FlightError;
use arrow_flight::flight_service_client::FlightServiceClient;
use arrow_flight::sql::client::FlightSqlServiceClient;
use arrow_flight::{FlightInfo, Ticket};
use bytes::Bytes;
use futures::TryStreamExt;
use tonic::transport::Channel;

use common::flight::channel;
use common::http::Http;
use common::server::{PASSWORD, USER};
use common::{Outcome, Server, amount, server};

/// Rows of the read.
const ROWS: u64 = 10_000_000;
/// Megabytes of each load.
const LOAD_MB: u64 = 2048;
/// BIGINT columns of both tables.
const COLUMNS: usize = 8;
/// Rows that the read table holds; the read repeats them.
const BASE_ROWS: i64 = 327_680;
/// Rows of a batch.
const BATCH_ROWS: i64 = 32_768;
/// Times that each measurement is made; the best one counts.
const RUNS: usize = 3;
/// Size of the piece of a CSV body that is sent again and again.
const PIECE_BYTES: usize = 1 << 20;

fn main() -> Outcome<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    if server::is_server() {
        return runtime.block_on(server::serve());
    }
    let server = Server::start()?;
    runtime.block_on(measure(&server))
}

async fn measure(server: &Server) -> Outcome<()> {
    let rows = amount("TRANSPORT_ROWS", ROWS)?;
    let load_bytes = amount("TRANSPORT_LOAD_MB", LOAD_MB)? * 1_000_000;
    // Another provider cannot be installed in this process.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let http = Http::new(server)?;
    let columns: Vec<String> = (0..COLUMNS).map(|i| format!("c{i} BIGINT NOT NULL")).collect();
    let table = |name: &str, property: &str| {
        format!(
            "CREATE TABLE bench.{name} ({}) DUPLICATE KEY(c0) DISTRIBUTED BY HASH(c0) BUCKETS 1 \
             PROPERTIES (\"replication_num\" = \"1\", {property})",
            columns.join(", ")
        )
    };
    http.statement("CREATE DATABASE bench").await?;
    let replayed = format!("\"sandbox.replay\" = \"true\", \"sandbox.replay.rows\" = \"{rows}\"");
    http.statement(&table("replayed", &replayed)).await?;
    http.load("replayed", "arrow", &[], stream_of(arrow_body(BASE_ROWS / BATCH_ROWS)?, 1)).await?;
    read(server, rows).await?;
    http.statement(&table("discarded", "\"sandbox.discard\" = \"true\"")).await?;
    write(&http, load_bytes).await
}

/// Reads the table with a bare client: its messages as they come, and decoded to batches.
async fn read(server: &Server, rows: u64) -> Outcome<()> {
    let mut fe = FlightSqlServiceClient::new_from_inner(FlightServiceClient::new(channel(&server.fe_flight).await?));
    fe.handshake(USER, PASSWORD).await?;
    let be = FlightServiceClient::new(channel(&server.be_flight).await?).max_decoding_message_size(usize::MAX);
    let payload = rows * COLUMNS as u64 * 8;
    let mut times = [Duration::MAX; 2];
    for run in 0..=RUNS {
        for (decode, best) in times.iter_mut().enumerate() {
            let info = fe.execute("SELECT * FROM bench.replayed".to_owned(), None).await?;
            let ticket = only_ticket(&info)?;
            let started = Instant::now();
            let got = if decode == 1 {
                decoded_rows(be.clone(), ticket).await?
            } else {
                raw_rows(be.clone(), ticket).await?
            };
            let time = started.elapsed();
            if got != rows {
                return Err(format!("the server sent {got} rows, not {rows}").into());
            }
            // The first read freezes the table.
            if run > 0 {
                *best = time.min(*best);
            }
        }
    }
    for (kind, time) in ["messages", "decoded batches"].iter().zip(times) {
        println!(
            "flight read, {kind}: {rows} rows x {COLUMNS} Int64, {:.3} GB in {:.3} s: {:.2} GB/s",
            payload as f64 / 1e9,
            time.as_secs_f64(),
            payload as f64 / 1e9 / time.as_secs_f64()
        );
    }
    Ok(())
}

fn only_ticket(info: &FlightInfo) -> Outcome<Ticket> {
    match info.endpoint.as_slice() {
        [endpoint] => endpoint.ticket.clone().ok_or_else(|| "the endpoint has no ticket".into()),
        other => Err(format!("{} endpoints instead of one", other.len()).into()),
    }
}

/// Rows by the length of the bodies: each row is as long as its columns.
async fn raw_rows(mut be: FlightServiceClient<Channel>, ticket: Ticket) -> Outcome<u64> {
    let mut stream = be.do_get(ticket).await?.into_inner();
    let mut bytes = 0;
    while let Some(message) = stream.message().await? {
        bytes += message.data_body.len() as u64;
    }
    Ok(bytes / (COLUMNS as u64 * 8))
}

async fn decoded_rows(mut be: FlightServiceClient<Channel>, ticket: Ticket) -> Outcome<u64> {
    let messages = be.do_get(ticket).await?.into_inner().map_err(|status| FlightError::Tonic(Box::new(status)));
    let mut batches = FlightRecordBatchStream::new_from_flight_data(messages);
    let mut rows = 0;
    while let Some(batch) = batches.try_next().await? {
        rows += batch.num_rows() as u64;
    }
    Ok(rows)
}

/// Loads bodies that repeat one piece.
async fn write(http: &Http, bytes: u64) -> Outcome<()> {
    let csv = csv_piece();
    let arrow = arrow_batches()?;
    for (format, body) in [("csv", Body::Repeated(csv)), ("arrow", Body::Arrow(arrow))] {
        let mut best = Duration::MAX;
        let mut sent = 0;
        for _ in 0..RUNS {
            let (stream, length) = body.stream(bytes);
            let started = Instant::now();
            http.load("discarded", format, &[], stream).await?;
            best = best.min(started.elapsed());
            sent = length;
        }
        println!(
            "stream load, {format}, discarded: {:.0} MB in {:.3} s: {:.0} MB/s",
            sent as f64 / 1e6,
            best.as_secs_f64(),
            sent as f64 / 1e6 / best.as_secs_f64()
        );
    }
    Ok(())
}

/// A body of any length made from a few buffers.
enum Body {
    /// The same bytes over and over.
    Repeated(Bytes),
    /// An Arrow stream: head, a batch over and over, end.
    Arrow([Bytes; 3]),
}

impl Body {
    /// The body of about so many bytes, and its length.
    fn stream(&self, bytes: u64) -> (reqwest::Body, u64) {
        let (head, piece, end) = match self {
            Self::Repeated(piece) => (Bytes::new(), piece.clone(), Bytes::new()),
            Self::Arrow([head, batch, end]) => (head.clone(), batch.clone(), end.clone()),
        };
        let times = (bytes / piece.len() as u64).max(1);
        let length = head.len() as u64 + times * piece.len() as u64 + end.len() as u64;
        let pieces = std::iter::repeat_n(piece, usize::try_from(times).unwrap_or(usize::MAX));
        let all = std::iter::once(head).chain(pieces).chain([end]).filter(|b| !b.is_empty());
        (reqwest::Body::wrap_stream(futures::stream::iter(all.map(Ok::<_, std::io::Error>))), length)
    }
}

fn csv_piece() -> Bytes {
    let mut text = String::with_capacity(PIECE_BYTES + 128);
    let mut row = 0_u64;
    while text.len() < PIECE_BYTES {
        let cells: Vec<String> = (0..COLUMNS as u64).map(|i| (row * 1_000_003 + i).to_string()).collect();
        text.push_str(&cells.join("\t"));
        text.push('\n');
        row += 1;
    }
    text.into()
}

fn batch() -> Outcome<RecordBatch> {
    let fields: Vec<Field> = (0..COLUMNS).map(|i| Field::new(format!("c{i}"), DataType::Int64, false)).collect();
    let columns = (0..COLUMNS as i64)
        .map(|i| Arc::new(Int64Array::from_iter_values((0..BATCH_ROWS).map(|row| row * 31 + i))) as ArrayRef)
        .collect();
    Ok(RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)?)
}

/// Schema, one batch and end of an Arrow stream, apart.
fn arrow_batches() -> Outcome<[Bytes; 3]> {
    let batch = batch()?;
    let mut writer = StreamWriter::try_new(Vec::new(), &batch.schema())?;
    let head = writer.get_ref().len();
    writer.write(&batch)?;
    let one = writer.get_ref().len();
    writer.finish()?;
    let bytes = Bytes::from(writer.into_inner()?);
    Ok([bytes.slice(..head), bytes.slice(head..one), bytes.slice(one..)])
}

fn arrow_body(batches: i64) -> Outcome<Bytes> {
    let batch = batch()?;
    let mut writer = StreamWriter::try_new(Vec::new(), &batch.schema())?;
    for _ in 0..batches {
        writer.write(&batch)?;
    }
    Ok(Bytes::from(writer.into_inner()?))
}

fn stream_of(bytes: Bytes, times: usize) -> reqwest::Body {
    let pieces = std::iter::repeat_n(bytes, times).map(Ok::<_, std::io::Error>);
    reqwest::Body::wrap_stream(futures::stream::iter(pieces))
}
