//! Writing streams of record batches without SQL: for programs that embed this crate.
//!
//! ```no_run
//! use datafusion::physical_plan::SendableRecordBatchStream;
//! use datafusion_doris::DorisWriter;
//! use datafusion_doris::options::{ConnectionOptions, DorisOptions, Secret, SinkOptions};
//! use datafusion_doris::types::TableIdent;
//!
//! # async fn example(stream: SendableRecordBatchStream) -> datafusion_doris::Result<()> {
//! let connection = ConnectionOptions::new("fe:8030", "root", Secret::new("…"));
//! let options = DorisOptions::new(TableIdent::new("school", "students"), connection)
//!     .with_sink(SinkOptions::default().with_parallelism(2));
//! let writer = DorisWriter::builder(options).build(&stream.schema()).await?;
//! let report = writer.write(stream).await?;
//! println!("{} rows by {}", report.rows, report.labels.join(", "));
//! # Ok(())
//! # }
//! ```

use std::sync::Arc;

use arrow::datatypes::{Schema, SchemaRef};
use arrow::record_batch::RecordBatch;
use datafusion::error::DataFusionError;
use datafusion::physical_plan::SendableRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::StreamExt;

use crate::client::DorisClient;
use crate::debezium::DebeziumDecoder;
use crate::error::{Error, Result};
use crate::options::{ChangeFormat, DorisOptions, SinkOptions};
use crate::sink::{DorisSink, WriteReport, is_no_column_of_a_table, no_deletes};
use crate::table::{change_options, check_kind_column};
use crate::types::{KeyModel, TableIdent, TableSchema};

/// Writes streams of record batches to one Doris table, each as a statement of its own.
///
/// The columns of a stream are found in the table by name. With `sink.change-kind-column` one of them holds the change
/// kind (`+I`, `-U`, `+U`, `-D`) of its row; with `sink.change-format` the stream has one column of text with change
/// events, for example of Debezium, and the rows are what they tell, in their order.
///
/// # Delivery
/// That of [`DorisSink`]: with two-phase commit all rows of a stream are visible when [`Self::write`] returns, and none when
/// it fails.
#[derive(Debug)]
pub struct DorisWriter {
    sink: DorisSink,
    /// Of the streams.
    schema: SchemaRef,
    decoder: Option<DebeziumDecoder>,
}

/// Makes a [`DorisWriter`].
#[derive(Debug)]
#[must_use]
pub struct DorisWriterBuilder {
    options: DorisOptions,
    client: Option<DorisClient>,
    columns: Option<Vec<String>>,
}

impl DorisSink {
    /// A builder for a writer of streams, as [`DorisWriter::builder`].
    pub fn builder(options: DorisOptions) -> DorisWriterBuilder {
        DorisWriter::builder(options)
    }
}

impl DorisWriterBuilder {
    /// Uses an existing client, so that several writers of one cluster share its connections.
    pub fn with_client(mut self, client: DorisClient) -> Self {
        self.client = Some(client);
        self
    }

    /// Names the table; default: the one of the options.
    pub fn with_table(mut self, table: TableIdent) -> Self {
        self.options.table = table;
        self
    }

    /// Names the columns that change events fill; default: all. Rows of a stream fill the columns that it has.
    pub fn with_columns(mut self, columns: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.columns = Some(columns.into_iter().map(Into::into).collect());
        self
    }

    /// Reads the table's schema from Doris and matches `schema`, that of the streams, with it.
    ///
    /// # Errors
    /// [`Error::Schema`] when the table does not exist, or names each column of the stream that the table does not have, and
    /// a column whose type cannot be written; [`Error::Config`] for options that contradict each other;
    /// [`Error::Unsupported`] for change kinds or a delete sign where the table is none of the unique model;
    /// [`Error::Auth`], [`Error::Transport`].
    pub async fn build(self, schema: &SchemaRef) -> Result<DorisWriter> {
        let Self { options, client, columns } = self;
        let client = match client {
            Some(client) => client,
            None => DorisClient::try_new(Arc::new(options.connection.clone()))?,
        };
        let doris = client.table_schema(&options.table).await?;
        let options = change_options(options, &doris)?;
        if options.read.mode.is_changelog() {
            return Err(Error::config("source.scan.mode", "is for reading, leave it out to write"));
        }
        check_kind_column(&options, &doris)?;
        let (rows, decoder) = match options.sink.change_format {
            Some(ChangeFormat::DebeziumJson(debezium)) => {
                check_events(schema, &doris)?;
                let kind = options.sink.change_kind_column.clone().unwrap_or_default();
                let columns = event_columns(&doris, columns)?;
                let is_key = |name: &str| doris.column(name).is_some_and(|column| column.key);
                let decoder = DebeziumDecoder::new(&doris.table, &columns, is_key, &kind, debezium);
                (Arc::clone(decoder.schema()), Some(decoder))
            }
            None if columns.is_some() => {
                let reason =
                    "the columns to write are those of the stream: select them there, and leave out with_columns";
                return Err(Error::schema(&doris.table, reason));
            }
            None => {
                let rows = row_schema(schema, &doris, &options.sink)?;
                check_kinds(&doris, &options.sink)?;
                (Arc::new(rows), None)
            }
        };
        let sink = DorisSink::try_new(client, &doris, rows, options.sink)?;
        Ok(DorisWriter { sink, schema: Arc::clone(schema), decoder })
    }
}

/// The columns of a stream under their names in the table.
fn row_schema(schema: &Schema, doris: &TableSchema, options: &SinkOptions) -> Result<Schema> {
    let kind = options.change_kind_column.as_deref();
    let mut fields = Vec::with_capacity(schema.fields().len());
    let mut unknown = Vec::new();
    for field in schema.fields() {
        let stored = doris.column(field.name()).map(|column| column.name.as_str());
        // The delete sign, and inputs of the load.
        let added = if is_no_column_of_a_table(field.name(), options)? { Some(field.name().as_str()) } else { None };
        let Some(name) = stored.or(kind.filter(|kind| kind == field.name())).or(added) else {
            unknown.push(format!("'{}'", field.name()));
            continue;
        };
        if fields.iter().any(|known: &arrow::datatypes::Field| known.name() == name) {
            let reason = format!("column '{name}' is in the stream twice");
            return Err(Error::schema(&doris.table, reason));
        }
        fields.push(field.as_ref().clone().with_name(name));
    }
    if !unknown.is_empty() {
        let known: Vec<&str> = doris.columns.iter().map(|column| column.name.as_str()).collect();
        let reason = format!("has no column {}, its columns are {}", unknown.join(", "), known.join(", "));
        return Err(Error::schema(&doris.table, reason));
    }
    if let Some(kind) = kind.filter(|kind| !fields.iter().any(|field| field.name() == kind)) {
        let reason = format!("the stream has no column '{kind}', which the option names");
        return Err(Error::config("sink.change-kind-column", reason));
    }
    if fields.is_empty() {
        return Err(Error::schema(&doris.table, "the stream has no columns"));
    }
    Ok(Schema::new(fields))
}

/// Refuses change kinds where no row can be deleted by its key: nothing tells before the stream that none deletes.
fn check_kinds(doris: &TableSchema, options: &SinkOptions) -> Result<()> {
    match &options.change_kind_column {
        Some(kind) if doris.model.is_some_and(|model| model != KeyModel::Unique) => {
            Err(no_deletes(doris, &format!("rows that may delete, by column '{kind}',")))
        }
        _ => Ok(()),
    }
}

fn check_events(schema: &Schema, doris: &TableSchema) -> Result<()> {
    let [event] = schema.fields().as_ref() else {
        let reason = format!("takes change events: one column of text, not {}", schema.fields().len());
        return Err(Error::schema(&doris.table, reason));
    };
    if DebeziumDecoder::accepts(event.data_type()) {
        return Ok(());
    }
    let reason = format!("takes change events: column '{}' is {}, not text", event.name(), event.data_type());
    Err(Error::schema(&doris.table, reason))
}

/// The columns that events fill.
fn event_columns(doris: &TableSchema, columns: Option<Vec<String>>) -> Result<Schema> {
    let all = doris.arrow_schema();
    let Some(columns) = columns else { return Ok(all.as_ref().clone()) };
    let mut fields = Vec::with_capacity(columns.len());
    for name in columns {
        let column = doris.column(&name).and_then(|column| all.field_with_name(&column.name).ok());
        fields.push(column.ok_or_else(|| Error::schema(&doris.table, format!("has no column '{name}'")))?.clone());
    }
    let missing = |name: &str| fields.iter().all(|field| field.name() != name);
    if let Some(key) = doris.columns.iter().find(|column| column.key && missing(&column.name)) {
        let reason = format!("key column '{}' is not among the columns, and rows are written by their key", key.name);
        return Err(Error::schema(&doris.table, reason));
    }
    Ok(Schema::new(fields))
}

impl DorisWriter {
    /// A builder for a writer to the table of `options`.
    pub fn builder(options: DorisOptions) -> DorisWriterBuilder {
        DorisWriterBuilder { options, client: None, columns: None }
    }

    /// The table written to.
    pub fn table(&self) -> &TableIdent {
        self.sink.table()
    }

    /// The schema of the streams.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Writes all rows of a stream as one statement, and tells how many they were and under which labels. The stream must
    /// end: rows are visible when it does.
    ///
    /// # Errors
    /// [`Error::Schema`] when the stream has other columns than the writer was built for; the error of the stream;
    /// [`Error::Encode`] with column and row of a value that cannot be written exactly; [`Error::StreamLoad`],
    /// [`Error::Transaction`]. No row is visible then, unless the error names loads that are.
    ///
    /// # Cancellation
    /// As [`DorisSink`]: a dropped write makes no row visible, except that a commit on its way may win.
    pub async fn write(&self, stream: SendableRecordBatchStream) -> Result<WriteReport> {
        let same = |(ours, given): (&arrow::datatypes::FieldRef, &arrow::datatypes::FieldRef)| {
            ours.name() == given.name() && ours.data_type() == given.data_type()
        };
        let (ours, given) = (self.schema.fields(), stream.schema());
        if ours.len() != given.fields().len() || !ours.iter().zip(given.fields()).all(same) {
            let names = |schema: &Schema| {
                let columns = schema.fields().iter().map(|field| format!("{} {}", field.name(), field.data_type()));
                columns.collect::<Vec<_>>().join(", ")
            };
            let reason = format!("the stream has ({}), the writer takes ({})", names(&given), names(&self.schema));
            return Err(Error::schema(self.table(), reason));
        }
        let rows = Arc::clone(datafusion::datasource::sink::DataSink::schema(&self.sink));
        let batches: SendableRecordBatchStream = match self.decoder.clone() {
            Some(mut decoder) => {
                let decoded = stream.map(move |batch| Ok(decoder.decode(batch?.column(0))?));
                Box::pin(RecordBatchStreamAdapter::new(rows, decoded))
            }
            None => {
                let schema = Arc::clone(&rows);
                let named = stream.map(move |batch| {
                    let batch = batch?;
                    let columns = batch.columns().to_vec();
                    RecordBatch::try_new(Arc::clone(&schema), columns).map_err(DataFusionError::from)
                });
                Box::pin(RecordBatchStreamAdapter::new(rows, named))
            }
        };
        self.sink.write(batches).await
    }

    /// [`Self::write`] of batches that are there already.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub async fn write_batches(&self, batches: Vec<RecordBatch>) -> Result<WriteReport> {
        let schema = batches.first().map_or_else(|| Arc::clone(&self.schema), RecordBatch::schema);
        let stream = futures::stream::iter(batches.into_iter().map(Ok));
        self.write(Box::pin(RecordBatchStreamAdapter::new(schema, stream))).await
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use arrow::datatypes::{DataType, Field};

    use super::*;
    use crate::types::{ColumnSchema, DorisType};

    fn table() -> TableSchema {
        TableSchema {
            table: TableIdent::new("d", "t"),
            model: Some(KeyModel::Unique),
            columns: vec![
                ColumnSchema::new("Id", DorisType::Int).with_key(true).with_nullable(false),
                ColumnSchema::new("v", DorisType::String),
            ],
            properties: Default::default(),
        }
    }

    fn schema(names: &[&str]) -> Schema {
        Schema::new(names.iter().map(|name| Field::new(*name, DataType::Utf8, true)).collect::<Vec<_>>())
    }

    #[test]
    fn columns_are_found_by_name() {
        let row_schema = |schema: &Schema, table: &TableSchema, kind: Option<&str>| {
            let options = SinkOptions::default().with_change_kind_column(kind.map(str::to_string));
            row_schema(schema, table, &options)
        };
        let names = |schema: Schema| schema.fields().iter().map(|field| field.name().clone()).collect::<Vec<_>>();
        assert_eq!(names(row_schema(&schema(&["V", "id"]), &table(), None).unwrap()), ["v", "Id"]);
        assert_eq!(names(row_schema(&schema(&["kind", "id"]), &table(), Some("kind")).unwrap()), ["kind", "Id"]);
        for (columns, kind, expected) in [
            (&["id", "x", "y"][..], None, "no column 'x', 'y', its columns are Id, v"),
            (&["id", "ID"], None, "'Id' is in the stream twice"),
            (&["id"], Some("kind"), "no column 'kind'"),
            (&["id", "kind"], None, "no column 'kind'"),
            (&[], None, "no columns"),
        ] {
            let error = row_schema(&schema(columns), &table(), kind).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        // What a load has beside the columns of the table.
        let list = [("columns".to_string(), "id,raw,v=upper(raw)".to_string())];
        let options = SinkOptions::default().with_properties(list.into()).unwrap();
        let rows = schema(&["id", "raw", "__doris_delete_sign__"]);
        let found = super::row_schema(&rows, &table(), &options).unwrap();
        assert_eq!(names(found), ["Id", "raw", "__doris_delete_sign__"]);
    }

    #[test]
    fn change_kinds_need_a_table_with_deletes() {
        for (model, kind, taken) in [
            (Some(KeyModel::Unique), Some("kind"), true),
            (Some(KeyModel::Duplicate), Some("kind"), false),
            (Some(KeyModel::Aggregate), Some("kind"), false),
            (Some(KeyModel::Duplicate), None, true),
            // The server judges.
            (None, Some("kind"), true),
        ] {
            let options = SinkOptions::default().with_change_kind_column(kind.map(str::to_string));
            let checked = check_kinds(&TableSchema { model, ..table() }, &options);
            assert_eq!(checked.is_ok(), taken, "{model:?} {kind:?}");
            if let Err(error) = checked {
                assert!(error.to_string().contains("'kind'") && error.to_string().contains("UNIQUE KEY"), "{error}");
            }
        }
    }

    #[test]
    fn events_fill_all_columns_or_those_that_are_named() {
        let names = |schema: Schema| schema.fields().iter().map(|field| field.name().clone()).collect::<Vec<_>>();
        assert_eq!(names(event_columns(&table(), None).unwrap()), ["Id", "v"]);
        assert_eq!(names(event_columns(&table(), Some(vec!["ID".into()])).unwrap()), ["Id"]);
        for (columns, expected) in [("v", "key column 'Id'"), ("x", "no column 'x'")] {
            let error = event_columns(&table(), Some(vec![columns.into()])).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        let number = Schema::new(vec![Field::new("event", DataType::Int32, true)]);
        let error = check_events(&number, &table()).unwrap_err().to_string();
        assert!(error.contains("'event' is Int32"), "{error}");
    }
}
