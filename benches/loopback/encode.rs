//! Batches of a shape as the bytes of a load, by this project's encoders and by the writers that arrow comes with.

use std::io::Write;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use arrow::ipc::writer::StreamWriter;
use arrow::record_batch::RecordBatch;
use bytes::Bytes;
use datafusion::catalog::MemTable;
use datafusion::prelude::SessionContext;
use datafusion_doris::client::DorisClient;
use datafusion_doris::options::{ConnectionOptions, DorisOptions, Secret};
use datafusion_doris::sink::DorisSink;
use datafusion_doris::types::TableIdent;

use crate::common::server::{PASSWORD, USER};
use crate::common::{Outcome, Server};
use crate::shapes::Shape;

/// Rows of the batches that are written again and again.
pub const BASE: u64 = 65_536;
/// Bytes that a writer's output keeps before it begins anew, as the chunks of a load do.
const CHUNK: usize = 1 << 20;

/// Rows of a shape, ready for a table, and the sink that encodes them.
pub struct Rows {
    pub batches: Vec<RecordBatch>,
    schema: SchemaRef,
    sink: DorisSink,
    /// Bytes of one pass over the batches.
    pub length: u64,
}

impl Rows {
    /// Rows with the types of `bench.{table}`, which is declared as `target`, and a sink that does not compress.
    pub async fn make(
        server: &Server,
        context: &SessionContext,
        shape: &Shape,
        table: &str,
        format: &str,
    ) -> Outcome<Self> {
        let schema = Arc::new(context.table("target").await?.schema().as_arrow().clone());
        let casts = schema
            .fields()
            .iter()
            .map(|field| format!("arrow_cast(\"{0}\", '{1}') AS \"{0}\"", field.name(), field.data_type()));
        let query = format!("SELECT {} FROM ({})", casts.collect::<Vec<_>>().join(", "), shape.query(BASE));
        let batches = datafusion_doris::sql(context, &query).await?.collect().await?;
        let batches: Vec<RecordBatch> = batches
            .into_iter()
            .map(|batch| RecordBatch::try_new(Arc::clone(&schema), batch.columns().to_vec()))
            .collect::<Result<_, _>>()?;
        let sink = sink(server, table, format, &schema).await?;
        let mut rows = Self { batches, schema, sink, length: 0 };
        rows.length = rows.encode(1)?;
        Ok(rows)
    }

    /// Passes over the batches that make about so many bytes.
    pub fn times(&self, bytes: u64) -> u64 {
        (bytes / self.length.max(1)).max(1)
    }

    /// Encodes so many passes; their bytes, which are dropped chunk by chunk.
    pub fn encode(&self, times: u64) -> Outcome<u64> {
        let mut length = 0;
        self.each_chunk(times, |chunk| length += chunk.len() as u64)?;
        Ok(length)
    }

    /// The same twice, on two cores at once.
    pub fn encode_on_two(&self, times: u64) -> Outcome<()> {
        std::thread::scope(|scope| {
            let other = scope.spawn(|| self.encode(times));
            self.encode(times)?;
            other.join().map_err(|_| "a thread panicked")?.map(drop)
        })
    }

    /// Encodes so many passes and keeps the chunks.
    pub fn chunks(&self, times: u64) -> Outcome<Vec<Bytes>> {
        let mut chunks = Vec::new();
        self.each_chunk(times, |chunk| chunks.push(chunk))?;
        Ok(chunks)
    }

    fn each_chunk(&self, times: u64, mut take: impl FnMut(Bytes)) -> Outcome<()> {
        let mut body = self.sink.body()?;
        for batch in (0..times).flat_map(|_| &self.batches) {
            body.write(batch)?;
            if let Some(chunk) = body.chunk() {
                take(chunk);
            }
        }
        take(body.finish()?);
        Ok(())
    }

    /// Registers a table of so many passes.
    pub fn register(&self, context: &SessionContext, name: &str, times: u64) -> Outcome<()> {
        let repeated: Vec<RecordBatch> = (0..times).flat_map(|_| self.batches.iter().cloned()).collect();
        context.deregister_table(name)?;
        context.register_table(name, Arc::new(MemTable::try_new(Arc::clone(&self.schema), vec![repeated])?))?;
        Ok(())
    }

    /// So many passes by the writer of arrow; its bytes.
    pub fn stock(&self, format: &str, times: u64) -> Outcome<u64> {
        let all = (0..times).flat_map(|_| &self.batches);
        let store = Store { kept: Vec::with_capacity(CHUNK), total: 0 };
        match format {
            "csv" => {
                let mut writer = arrow::csv::WriterBuilder::new().with_header(false).build(store);
                for batch in all {
                    writer.write(batch)?;
                }
                Ok(writer.into_inner().total)
            }
            "json" => {
                let mut writer = arrow::json::LineDelimitedWriter::new(store);
                for batch in all {
                    writer.write(batch)?;
                }
                writer.finish()?;
                Ok(writer.into_inner().total)
            }
            _ => {
                let mut writer = StreamWriter::try_new(store, &self.schema)?;
                for batch in all {
                    writer.write(batch)?;
                }
                Ok(writer.into_inner()?.total)
            }
        }
    }
}

/// Keeps what a writer writes, as an encoder keeps its chunk.
struct Store {
    kept: Vec<u8>,
    total: u64,
}

impl Write for Store {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.kept.len() >= CHUNK {
            self.kept.clear();
        }
        self.kept.extend_from_slice(bytes);
        self.total += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

async fn sink(server: &Server, table: &str, format: &str, schema: &SchemaRef) -> Outcome<DorisSink> {
    let connection = ConnectionOptions::new(&server.fenodes, USER, Secret::new(PASSWORD));
    let name = format!("bench.{table}");
    let map = [
        ("fenodes", server.fenodes.as_str()),
        ("username", USER),
        ("password", PASSWORD),
        ("table.identifier", name.as_str()),
        ("sink.properties.format", format),
        ("sink.properties.compress_type", ""),
    ];
    let options = DorisOptions::from_map(map.map(|(name, value)| (name.to_owned(), value.to_owned())).into())?;
    let client = DorisClient::try_new(Arc::new(connection))?;
    let target = client.table_schema(&TableIdent::new("bench", table)).await?;
    Ok(DorisSink::try_new(client, &target, Arc::clone(schema), options.sink)?)
}

/// Chunks as a body of HTTP.
pub fn body_of(chunks: &[Bytes]) -> reqwest::Body {
    let chunks = chunks.to_vec();
    reqwest::Body::wrap_stream(futures::stream::iter(chunks.into_iter().map(Ok::<_, std::io::Error>)))
}

/// Runs an INSERT and checks that it wrote so many rows.
pub async fn insert(context: &SessionContext, sql: &str, rows: u64) -> Outcome<()> {
    let counted = datafusion_doris::sql(context, sql).await?.collect().await?;
    let column = counted.first().ok_or("no answer")?.column(0);
    let text = arrow::util::display::array_value_to_string(column, 0)?;
    if text == rows.to_string() { Ok(()) } else { Err(format!("{sql}: {text} instead of {rows} rows").into()) }
}

/// The columns of a shape for a statement here.
pub fn columns(shape: &Shape) -> String {
    shape.names().iter().map(|name| format!("\"{name}\"")).collect::<Vec<_>>().join(", ")
}
