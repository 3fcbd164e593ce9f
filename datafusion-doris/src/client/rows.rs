//! Results over the MySQL protocol, row by row.

use std::sync::Arc;

use arrow::array::{ArrayRef, BinaryBuilder};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::record_batch::RecordBatch;
use futures::{FutureExt, Stream};
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Row, Value};
use tokio::sync::mpsc;

use super::flight_result::{PREFETCH_BATCHES, spawned};
use super::memory::{Counted, ReadMemory};
use super::statement::{connect_within, server_error};
use super::{DorisClient, Variables};
use crate::error::{Error, Result};
use crate::options::ConnectionOptions;
use crate::sql::STATEMENT_PREFIX;

/// Bytes of texts at which a batch is full, whatever its rows.
const BATCH_BYTES: usize = 8 << 20;
const READING: &str = "reading the result";
/// Packet size of a connection that only ends a statement.
const SMALL_PACKET: usize = 16 << 20;
/// Characters of a statement that tell it from others of the same connection: a process list cuts it.
const TOLD_APART: usize = 60;

/// A connection to an FE's query port for one statement that is read as it comes.
///
/// # Cancellation
/// Dropping it closes the connection at once, unread rows and all. A statement that runs is killed over another
/// connection, best effort: the server itself would find out only when it has rows to send.
#[derive(Debug)]
pub(crate) struct RowReader {
    client: DorisClient,
    conn: Option<Conn>,
    host: String,
    /// Begun and not read to its end.
    running: Option<String>,
}

impl Drop for RowReader {
    fn drop(&mut self) {
        let Some(conn) = self.conn.take() else { return };
        let id = conn.id();
        // Dropping the connection would have it read to the end in the background. Goodbye is a few bytes; a connection
        // that does not take them at once is closed without.
        let _ = conn.disconnect().now_or_never();
        let Some(sql) = self.running.take() else { return };
        let (client, host) = (self.client.clone(), std::mem::take(&mut self.host));
        self.client.cleanup().later("kill query", async move {
            if let Err(error) = kill(client.options(), &host, id, &sql).await {
                tracing::debug!(%error, "a statement that nobody reads is left to the server");
            }
            drop(client);
        });
    }
}

/// Ends the connection `id` of the FE at `host` when it runs `sql`.
///
/// Behind a load balancer another FE may answer, whose connections have other numbers: hence the look at what runs.
async fn kill(options: &ConnectionOptions, host: &str, id: u32, sql: &str) -> Result<()> {
    let (mut conn, host) = connect_within(&format!("jdbc:mysql://{host}"), options, SMALL_PACKET).await?;
    let failed = |error| server_error(&host, "killing a statement", error);
    let processes: Vec<Row> = conn.query("SHOW PROCESSLIST").await.map_err(failed)?;
    if processes.iter().any(|process| runs(process, id, sql)) {
        conn.query_drop(format!("KILL {id}")).await.map_err(failed)?;
    }
    conn.disconnect().await.map_err(failed)
}

/// Whether a row of the process list is that of connection `id` with the statement `sql`.
fn runs(process: &Row, id: u32, sql: &str) -> bool {
    let column = |name: &str| {
        let at = process.columns_ref().iter().position(|column| column.name_str().eq_ignore_ascii_case(name))?;
        process.get::<Option<String>, _>(at)?
    };
    let start: String = sql.strip_prefix(STATEMENT_PREFIX).unwrap_or(sql).chars().take(TOLD_APART).collect();
    let shown = column("Info").unwrap_or_default();
    // The list may cut the text anywhere.
    let shown = shown.strip_prefix(STATEMENT_PREFIX).unwrap_or(&shown);
    column("Id").is_some_and(|shown| shown.trim() == id.to_string())
        && !shown.is_empty()
        && (shown.starts_with(&start) || start.starts_with(shown))
}

impl DorisClient {
    /// Connects to the MySQL protocol (`jdbc-url`, or the FE's query port) and sets `variables`.
    ///
    /// # Errors
    /// [`Error::Config`] when its address is not known, [`Error::Auth`], [`Error::Transport`], [`Error::Server`].
    pub(crate) async fn open_rows(&self, variables: &Variables) -> Result<RowReader> {
        let options = self.options();
        let url = self.mysql_url().await?;
        let (mut conn, host) = connect_within(&url, options, options.flight_max_message_bytes).await?;
        for (name, value) in variables {
            let set = conn.query_drop(format!("SET {name} = {value}")).await;
            set.map_err(|error| server_error(&host, "setting a session variable", error))?;
        }
        Ok(RowReader { client: self.clone(), conn: Some(conn), host, running: None })
    }
}

impl RowReader {
    /// Runs `sql` and gives its rows as texts (Binary columns as the server sends them), at most `batch_rows` in a batch.
    /// At most two batches are read ahead, counted until they are taken.
    ///
    /// # Errors
    /// The stream's errors: [`Error::Server`] for what Doris refuses, [`Error::Transport`] when the connection breaks.
    ///
    /// # Cancellation
    /// Dropping the stream closes the connection and ends the statement.
    pub fn into_stream(
        self,
        sql: String,
        batch_rows: usize,
        memory: ReadMemory,
    ) -> impl Stream<Item = Result<RecordBatch>> + Send + 'static {
        let (sender, receiver) = mpsc::channel(PREFETCH_BATCHES);
        let reader = async move {
            if let Err(error) = self.read(&sql, batch_rows.max(1), &memory, &sender).await {
                // The consumer may be gone; then nobody is interested in the error either.
                let _ = sender.send(Err(error)).await;
            }
        };
        spawned("the MySQL protocol", Box::pin(reader), receiver)
    }

    async fn read(
        mut self,
        sql: &str,
        batch_rows: usize,
        memory: &ReadMemory,
        sender: &mpsc::Sender<Result<Counted>>,
    ) -> Result<()> {
        let coming = memory.coming();
        let finish = |batch: &mut TextBatch| batch.finish().and_then(|batch| coming.counted(batch));
        let Self { conn: Some(conn), host, running, .. } = &mut self else { return Ok(()) };
        *running = Some(sql.to_string());
        let mut result = match conn.query_iter(sql).await {
            Ok(result) => result,
            Err(error) => {
                *running = None;
                return Err(server_error(host, "the statement", error));
            }
        };
        let names: Vec<String> = result.columns_ref().iter().map(|column| column.name_str().into_owned()).collect();
        let mut batch = TextBatch::new(&names);
        loop {
            let row = match result.next().await {
                Ok(Some(row)) => row,
                Ok(None) => break,
                Err(error) => {
                    let error = server_error(host, READING, error);
                    // What the server tells is the statement's end. A connection that broke has no number any more: behind
                    // a restart another one may have it.
                    *running = None;
                    return Err(error);
                }
            };
            batch.push(row.unwrap());
            if batch.rows >= batch_rows || batch.bytes >= BATCH_BYTES {
                // Counted once there is room for it.
                let Ok(place) = sender.reserve().await else { return Ok(()) };
                place.send(Ok(finish(&mut batch)?));
            }
        }
        // The server is done; what is not taken any more lies here.
        *running = None;
        drop(result);
        if batch.rows > 0 {
            let Ok(place) = sender.reserve().await else { return Ok(()) };
            place.send(Ok(finish(&mut batch)?));
        }
        if let Some(conn) = self.conn.take()
            && let Err(error) = conn.disconnect().await
        {
            tracing::debug!(%error, "closing a mysql connection failed");
        }
        Ok(())
    }
}

/// Rows until they are a batch.
struct TextBatch {
    schema: SchemaRef,
    columns: Vec<BinaryBuilder>,
    rows: usize,
    bytes: usize,
}

impl TextBatch {
    fn new(names: &[String]) -> Self {
        let fields: Vec<Field> = names.iter().map(|name| Field::new(name, DataType::Binary, true)).collect();
        let columns = names.iter().map(|_| BinaryBuilder::new()).collect();
        Self { schema: Arc::new(Schema::new(fields)), columns, rows: 0, bytes: 0 }
    }

    fn push(&mut self, row: Vec<Value>) {
        for (column, value) in self.columns.iter_mut().zip(row) {
            match value {
                Value::NULL => column.append_null(),
                Value::Bytes(bytes) => {
                    self.bytes += bytes.len();
                    column.append_value(bytes);
                }
                // Values of the text protocol are texts.
                other => column.append_value(other.as_sql(true).trim_matches('\'')),
            }
        }
        self.rows += 1;
    }

    fn finish(&mut self) -> Result<RecordBatch> {
        self.rows = 0;
        self.bytes = 0;
        let columns: Vec<ArrayRef> = self.columns.iter_mut().map(|column| Arc::new(column.finish()) as _).collect();
        RecordBatch::try_new(Arc::clone(&self.schema), columns).map_err(Error::from)
    }
}
