//! Encoders against the stock writers of arrow, and whole INSERTs against a bare PUT of the same bytes.

use std::io::Write;
use std::sync::Arc;

use arrow::ipc::writer::StreamWriter;
use arrow::record_batch::RecordBatch;
use bytes::Bytes;
use datafusion::catalog::MemTable;
use datafusion_doris::client::DorisClient;
use datafusion_doris::options::{ConnectionOptions, DorisOptions, Secret};
use datafusion_doris::sink::DorisSink;
use datafusion_doris::types::TableIdent;

use crate::common::http::Http;
use crate::common::measure::Series;
use crate::common::server::{PASSWORD, USER};
use crate::common::{Outcome, Server, amount};
use crate::report::{Bar, Report};
use crate::shapes::{SHAPES, Shape};

/// Rows of the batches that are written again and again.
const BASE: u64 = 65_536;
/// Bytes that each measurement of an encoder makes, at least.
const ENCODED: u64 = 1 << 30;
/// Bytes that each INSERT sends, at least.
const SENT: u64 = 2 << 30;

/// A format with the bars of its encoder: MB/s on flights, and times the stock writer.
struct Format {
    name: &'static str,
    megabytes: f64,
}

const FORMATS: [Format; 3] = [
    Format { name: "csv", megabytes: 400.0 },
    Format { name: "json", megabytes: 300.0 },
    Format { name: "arrow", megabytes: 2000.0 },
];

/// Measures every shape in every format that can hold it.
pub async fn measure(server: &Server, runs: u64, report: &mut Report) -> Outcome<()> {
    let share = amount("LOOPBACK_PERCENT", 100)?;
    for shape in SHAPES {
        let table = format!("insert_{}", shape.name);
        server.doris(&shape.create(&table, ", 'sandbox.discard' = 'true'")).await?;
        for format in &FORMATS {
            // The server takes nested values as JSON text in csv, which nobody would choose.
            if format.name == "csv" && shape.name == "nested" {
                continue;
            }
            one(server, shape, &table, format, runs, share, report).await?;
        }
        server.doris(&format!("DROP TABLE bench.{table}")).await?;
    }
    Ok(())
}

async fn one(
    server: &Server,
    shape: &Shape,
    table: &str,
    format: &Format,
    runs: u64,
    share: u64,
    report: &mut Report,
) -> Outcome<()> {
    let context = datafusion_doris::session_context();
    let options = format!(", 'sink.properties.format' '{}', 'sink.properties.compress_type' ''", format.name);
    server.declare(&context, "target", table, &options).await?;
    let schema = Arc::new(context.table("target").await?.schema().as_arrow().clone());
    let names = shape.names().iter().map(|name| format!("\"{name}\"")).collect::<Vec<_>>().join(", ");
    let casts = schema
        .fields()
        .iter()
        .map(|field| format!("arrow_cast(\"{0}\", '{1}') AS \"{0}\"", field.name(), field.data_type()));
    let query = format!("SELECT {} FROM ({})", casts.collect::<Vec<_>>().join(", "), shape.query(BASE));
    let batches = datafusion_doris::sql(&context, &query).await?.collect().await?;
    let batches: Vec<RecordBatch> = batches
        .into_iter()
        .map(|batch| RecordBatch::try_new(Arc::clone(&schema), batch.columns().to_vec()))
        .collect::<Result<_, _>>()?;
    let sink = sink(server, table, format.name, &schema).await?;
    let pass = encode(&sink, &batches, 1)?;
    let length: u64 = pass.iter().map(|chunk| chunk.len() as u64).sum();
    let label = format!("{} {}", shape.name, format.name);

    let times = (ENCODED * share / 100 / length).max(1);
    let [mut ours, mut stock] = [(); 2].map(|()| Series::default());
    let mut stock_bytes = 0;
    for run in 0..=runs {
        ours.time(async { encode(&sink, &batches, times) }).await?;
        stock_bytes = stock.time(async { stock_writer(format.name, &batches, times) }).await?;
        if run == 0 {
            ours.clear();
            stock.clear();
        }
    }
    let encoder = (times * length) as f64 / ours.wall();
    let bar = if shape.name == "flights" { Bar::Least(format.megabytes) } else { Bar::None };
    let beside =
        format!("stock writer {:.0} MB/s, spread {:.0} %", stock_bytes as f64 / 1e6 / stock.wall(), ours.spread());
    report.add(format!("encoder {label}"), encoder / 1e6, "MB/s", bar, beside);
    // Rows count, not bytes: the stock writer's text is of another length.
    let bar = if shape.name == "nested" { Bar::None } else { Bar::Least(1.5) };
    report.add(format!("encoder {label}: rows over the stock writer"), stock.ratio_to(&ours, |s| s.wall), "x", bar, "");

    let times = usize::try_from((SENT * share / 100 / length).max(1))?;
    let repeated: Vec<RecordBatch> = (0..times).flat_map(|_| batches.iter().cloned()).collect();
    let rows = BASE * times as u64;
    context.register_table("rows", Arc::new(MemTable::try_new(Arc::clone(&schema), vec![repeated])?))?;
    let insert = format!("INSERT INTO target ({names}) SELECT {names} FROM rows");
    let bytes = encode(&sink, &batches, times as u64)?;
    let total: u64 = bytes.iter().map(|chunk| chunk.len() as u64).sum();
    let http = Http::new(server)?;
    let [mut whole, mut bare] = [(); 2].map(|()| Series::default());
    for run in 0..=runs {
        bare.time(http.load(table, format.name, body_of(&bytes))).await?;
        let inserted = whole.time(async {
            let plan = datafusion_doris::sql(&context, &insert).await?;
            Outcome::Ok(plan.collect().await?)
        });
        let counted = inserted.await?;
        if !format!("{counted:?}").contains(&rows.to_string()) {
            return Err(format!("{label}: {counted:?} instead of {rows} rows").into());
        }
        if run == 0 {
            whole.clear();
            bare.clear();
        }
    }
    let rate = total as f64 / whole.wall();
    let put = total as f64 / bare.wall();
    let beside = format!(
        "{:.0} MB/s; encoder {:.0} MB/s, bare PUT {:.0} MB/s; {:.2} CPU s, PUT {:.2}; spread {:.0} %",
        rate / 1e6,
        encoder / 1e6,
        put / 1e6,
        whole.cpu(),
        bare.cpu(),
        whole.spread()
    );
    report.add(
        format!("insert {label}: rate over what limits it"),
        rate / encoder.min(put),
        "x",
        Bar::Least(0.90),
        beside,
    );
    Ok(())
}

async fn sink(server: &Server, table: &str, format: &str, schema: &arrow::datatypes::SchemaRef) -> Outcome<DorisSink> {
    let ident = TableIdent::new("bench", table);
    let connection = ConnectionOptions::new(&server.fenodes, USER, Secret::new(PASSWORD));
    let properties = [("sink.properties.format", format), ("sink.properties.compress_type", "")];
    let connect = [("fenodes", server.fenodes.as_str()), ("username", USER), ("password", PASSWORD)];
    let name = format!("bench.{table}");
    let map = properties.into_iter().chain(connect).chain([("table.identifier", name.as_str())]);
    let options = DorisOptions::from_map(map.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())?;
    let client = DorisClient::try_new(Arc::new(connection))?;
    let target = client.table_schema(&ident).await?;
    Ok(DorisSink::try_new(client, &target, Arc::clone(schema), options.sink)?)
}

/// Chunks of a body that holds the batches so often.
fn encode(sink: &DorisSink, batches: &[RecordBatch], times: u64) -> Outcome<Vec<Bytes>> {
    let mut body = sink.body()?;
    let mut chunks = Vec::new();
    for batch in (0..times).flat_map(|_| batches) {
        body.write(batch)?;
        chunks.extend(body.chunk());
    }
    chunks.push(body.finish()?);
    Ok(chunks)
}

/// Counts what a stock writer writes.
struct Counter(u64);

impl Write for Counter {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The same batches by the writers that arrow comes with.
fn stock_writer(format: &str, batches: &[RecordBatch], times: u64) -> Outcome<u64> {
    let all = (0..times).flat_map(|_| batches);
    match format {
        "csv" => {
            let mut writer = arrow::csv::WriterBuilder::new().with_header(false).build(Counter(0));
            for batch in all {
                writer.write(batch)?;
            }
            Ok(writer.into_inner().0)
        }
        "json" => {
            let mut writer = arrow::json::LineDelimitedWriter::new(Counter(0));
            for batch in all {
                writer.write(batch)?;
            }
            writer.finish()?;
            Ok(writer.into_inner().0)
        }
        _ => {
            let schema = batches.first().ok_or("no batches")?.schema();
            let mut writer = StreamWriter::try_new(Counter(0), &schema)?;
            for batch in all {
                writer.write(batch)?;
            }
            Ok(writer.into_inner()?.0)
        }
    }
}

fn body_of(chunks: &[Bytes]) -> reqwest::Body {
    let chunks = chunks.to_vec();
    reqwest::Body::wrap_stream(futures::stream::iter(chunks.into_iter().map(Ok::<_, std::io::Error>)))
}
