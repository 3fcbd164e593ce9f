//! Results over the MySQL protocol, row by row.

use std::sync::Arc;

use arrow::array::{ArrayRef, BinaryBuilder};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::record_batch::RecordBatch;
use futures::Stream;
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Value};
use tokio::sync::mpsc;

use super::flight_result::{PREFETCH_BATCHES, spawned};
use super::statement::{connect_within, server_error};
use super::{DorisClient, Variables};
use crate::error::{Error, Result};

/// Bytes of texts at which a batch is full, whatever its rows.
const BATCH_BYTES: usize = 8 << 20;
const READING: &str = "reading the result";

/// A connection to an FE's query port for one statement that is read as it comes.
#[derive(Debug)]
pub(crate) struct RowReader {
    conn: Conn,
    host: String,
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
        Ok(RowReader { conn, host })
    }
}

impl RowReader {
    /// Runs `sql` and gives its rows as texts (Binary columns as the server sends them), at most `batch_rows` in a batch.
    /// At most two batches are read ahead.
    ///
    /// # Errors
    /// The stream's errors: [`Error::Server`] for what Doris refuses, [`Error::Transport`] when the connection breaks.
    ///
    /// # Cancellation
    /// Dropping the stream closes the connection, which ends the statement.
    pub fn into_stream(
        self,
        sql: String,
        batch_rows: usize,
    ) -> impl Stream<Item = Result<RecordBatch>> + Send + 'static {
        let (sender, receiver) = mpsc::channel(PREFETCH_BATCHES);
        let reader = async move {
            if let Err(error) = self.read(&sql, batch_rows.max(1), &sender).await {
                // The consumer may be gone; then nobody is interested in the error either.
                let _ = sender.send(Err(error)).await;
            }
        };
        spawned("the MySQL protocol", Box::pin(reader), receiver)
    }

    async fn read(mut self, sql: &str, batch_rows: usize, sender: &mpsc::Sender<Result<RecordBatch>>) -> Result<()> {
        let host = self.host;
        let mut result =
            self.conn.query_iter(sql).await.map_err(|error| server_error(&host, "the statement", error))?;
        let names: Vec<String> = result.columns_ref().iter().map(|column| column.name_str().into_owned()).collect();
        let mut batch = TextBatch::new(&names);
        while let Some(row) = result.next().await.map_err(|error| server_error(&host, READING, error))? {
            batch.push(row.unwrap());
            if (batch.rows >= batch_rows || batch.bytes >= BATCH_BYTES) && sender.send(batch.finish()).await.is_err() {
                return Ok(());
            }
        }
        if batch.rows > 0 && sender.send(batch.finish()).await.is_err() {
            return Ok(());
        }
        drop(result);
        if let Err(error) = self.conn.disconnect().await {
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
