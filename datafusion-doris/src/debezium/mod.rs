//! Change events of Debezium (JSON) as rows with a change kind.
//!
//! ```text
//! event (text) ─▶ envelope {op, before, after} ─▶ per column: value, its meaning in the source, the type here ─▶ rows
//! ```
//!
//! | `op` | rows |
//! | --- | --- |
//! | `c`, `r` | `+I` after |
//! | `u` | `-U` before (where the event has it), `+U` after |
//! | `u` with another key | `-D` before, `+I` after: the old key goes whatever `sink.ignore.update-before` says |
//! | `d` | `-D` before |
//! | `m`, and tombstones (NULL) | none |
//! | `t` | an error: Doris tables are truncated by the user |
//!
//! Events come with their schema (`{"schema": …, "payload": …}`) or without. With it, dates, times and decimals are read
//! as the schema says. Without it a number is a date only in a DATE column (days), and an instant only when
//! [`DebeziumOptions::time_precision`] tells its unit: units are never guessed. A value that the column cannot hold
//! exactly is an error with the column and the row; so is `__debezium_unavailable_value`, which would overwrite a value
//! that did not change.
//!
//! Sources: the Debezium reference on data change events and on the types of the MySQL and PostgreSQL connectors (2.x, 3.x).

mod decimal;
mod event;
mod exec;
mod schema;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests;
mod time;
mod value;

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, StringArray};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::json::ReaderBuilder;
use serde_json::value::RawValue;

use self::event::{Event, Fields, Operation};
pub use self::exec::DebeziumExec;
use self::schema::{RowMeaning, SchemaCache};
use crate::changelog::RowKind;
use crate::error::{Error, Result};
use crate::options::DebeziumOptions;

/// One column to fill.
#[derive(Debug, Clone)]
struct Target {
    name: String,
    data_type: DataType,
    key: bool,
}

/// Turns events into rows of one table.
///
/// The rows have the columns of the table, all but the key nullable (the old half of an event may have only its key), and
/// last the change kind: Utf8, not null.
#[derive(Debug, Clone)]
pub struct DebeziumDecoder {
    table: String,
    targets: Vec<Target>,
    values: SchemaRef,
    schema: SchemaRef,
    options: DebeziumOptions,
    meanings: SchemaCache,
}

impl DebeziumDecoder {
    /// Rows for `columns` of `table`; `is_key` says which of them are its key. Fields of events are found by name, first
    /// as written, then in any case; those without a column are left out.
    pub fn new(
        table: impl ToString,
        columns: &Schema,
        is_key: impl Fn(&str) -> bool,
        change_kind_column: &str,
        options: DebeziumOptions,
    ) -> Self {
        let targets: Vec<Target> = columns
            .fields()
            .iter()
            .map(|field| Target {
                name: field.name().clone(),
                data_type: field.data_type().clone(),
                key: is_key(field.name()),
            })
            .collect();
        let mut fields: Vec<Field> = columns
            .fields()
            .iter()
            .zip(&targets)
            .map(|(field, target)| field.as_ref().clone().with_nullable(!target.key || field.is_nullable()))
            .collect();
        let values = Arc::new(Schema::new(fields.clone()));
        fields.push(Field::new(change_kind_column, DataType::Utf8, false));
        let schema = Arc::new(Schema::new(fields));
        Self { table: table.to_string(), targets, values, schema, options, meanings: SchemaCache::default() }
    }

    /// Whether a column of this type can hold events: text, or bytes that are text.
    pub fn accepts(data_type: &DataType) -> bool {
        matches!(
            data_type,
            DataType::Utf8
                | DataType::LargeUtf8
                | DataType::Utf8View
                | DataType::Binary
                | DataType::LargeBinary
                | DataType::BinaryView
        )
    }

    /// Columns of the rows.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// The rows of a column of events: text, or bytes that are text. They keep the order of the events.
    ///
    /// # Errors
    /// [`Error::Encode`] with the row of an event that is none, or of a value that its column cannot hold exactly;
    /// [`Error::Schema`] for a column that is not text.
    pub fn decode(&mut self, events: &ArrayRef) -> Result<RecordBatch> {
        let texts = match events.data_type() {
            DataType::Utf8View => Arc::clone(events),
            other if Self::accepts(other) => {
                // Bytes that are no text are an error, not a NULL.
                cast_with_options(events, &DataType::Utf8View, &CastOptions { safe: false, ..CastOptions::default() })?
            }
            other => {
                let reason = format!("change events are text, not {other}: select the one column that holds them");
                return Err(Error::schema(&self.table, reason));
            }
        };
        let mut rows = Rows::default();
        for (at, text) in texts.as_string_view().iter().enumerate() {
            // A tombstone, for the log's compaction only, comes as NULL.
            let Some(text) = text.filter(|text| !text.trim_ascii().is_empty()) else { continue };
            self.decode_event(text, &mut rows).map_err(|Failure { column, reason }| Error::Encode {
                table: self.table.clone(),
                column: column.unwrap_or_else(|| "change event".into()),
                row: at,
                reason,
            })?;
        }
        self.batch(&rows)
    }

    fn decode_event(&mut self, text: &str, rows: &mut Rows) -> Result<(), Failure> {
        let Some(Event { operation, before, after, schema }) = Event::parse(text)? else { return Ok(()) };
        let (old, new) = self.meanings.of(schema)?;
        let before = before.map(|raw| Image::parse(raw, &old)).transpose()?;
        let after = after.map(|raw| Image::parse(raw, &new)).transpose()?;
        let missing = |what: &str, advice: &str| {
            Failure::from(format!("an event of operation '{}' has no '{what}': {advice}", operation.code()))
        };
        match operation {
            Operation::Create | Operation::Read => {
                let after = after.ok_or_else(|| missing("after", "it is incomplete"))?;
                self.push(RowKind::Insert, &after, rows)
            }
            Operation::Update => {
                let after = after.ok_or_else(|| missing("after", "it is incomplete"))?;
                let Some(before) = before else { return self.push(RowKind::UpdateAfter, &after, rows) };
                // The halves are written first and looked at then, since the key compares as what it becomes here.
                let old = self.write_row(RowKind::UpdateBefore, &before, rows)?;
                let new = self.write_row(RowKind::UpdateAfter, &after, rows)?;
                let (old_kind, new_kind) = match old.key_is_known && old.key != new.key {
                    true => (RowKind::Delete, RowKind::Insert),
                    false => (RowKind::UpdateBefore, RowKind::UpdateAfter),
                };
                match old.key_is_known {
                    true => rows.kinds.push(old_kind),
                    // PostgreSQL's default replica identity tells nothing of the old row while its key stays.
                    false => rows.remove(old.range, &new),
                }
                rows.kinds.push(new_kind);
                Ok(())
            }
            Operation::Delete => {
                let advice =
                    "the row to delete is unknown; set REPLICA IDENTITY (PostgreSQL) or binlog_row_image = FULL";
                let before = before.ok_or_else(|| missing("before", advice))?;
                let written = self.write_row(RowKind::Delete, &before, rows)?;
                if !written.key_is_known {
                    return Err(missing("key in its 'before'", advice));
                }
                rows.kinds.push(RowKind::Delete);
                Ok(())
            }
        }
    }

    fn push(&self, kind: RowKind, image: &Image<'_>, rows: &mut Rows) -> Result<(), Failure> {
        self.write_row(kind, image, rows)?;
        rows.kinds.push(kind);
        Ok(())
    }

    /// Appends one row as a JSON object whose values are as the columns take them.
    fn write_row(&self, kind: RowKind, image: &Image<'_>, rows: &mut Rows) -> Result<Written, Failure> {
        let old_half = matches!(kind, RowKind::Delete | RowKind::UpdateBefore);
        let start = rows.text.len();
        let mut written = Written { range: start..start, key: Vec::new(), key_is_known: true };
        rows.text.push(b'{');
        for (at, target) in self.targets.iter().enumerate() {
            if at > 0 {
                rows.text.push(b',');
            }
            write_string(&mut rows.text, &target.name);
            rows.text.push(b':');
            let value_start = rows.text.len();
            match image.fields.find(at, &target.name) {
                Some(field) => {
                    let meaning = image.meaning.of(field.name);
                    value::write(&mut rows.text, field.value, meaning, &target.data_type, &self.options)
                        .map_err(|reason| Failure { column: Some(target.name.clone()), reason })?;
                }
                None if old_half => rows.text.extend_from_slice(b"null"),
                None => {
                    let reason =
                        "is not in the event: declare the table without the column, or have the source send it";
                    return Err(Failure { column: Some(target.name.clone()), reason: reason.into() });
                }
            }
            if target.key {
                let value = &rows.text[value_start..];
                written.key_is_known &= value != b"null";
                written.key.extend_from_slice(value);
                written.key.push(b',');
            }
        }
        rows.text.extend_from_slice(b"}\n");
        written.range.end = rows.text.len();
        Ok(written)
    }

    fn batch(&self, rows: &Rows) -> Result<RecordBatch> {
        let mut reader = ReaderBuilder::new(Arc::clone(&self.values)).with_batch_size(rows.kinds.len().max(1));
        // Columns of the key may be null in the old half only, which is refused above.
        reader = reader.with_strict_mode(false);
        let mut decoder = reader.build_decoder()?;
        decoder.decode(&rows.text)?;
        let Some(batch) = decoder.flush()? else { return Ok(RecordBatch::new_empty(Arc::clone(&self.schema))) };
        let mut columns = batch.columns().to_vec();
        columns.push(Arc::new(StringArray::from_iter_values(rows.kinds.iter().map(|kind| kind.as_str()))));
        Ok(RecordBatch::try_new(Arc::clone(&self.schema), columns)?)
    }
}

/// Why an event gives no rows.
#[derive(Debug)]
struct Failure {
    column: Option<String>,
    reason: String,
}

impl From<String> for Failure {
    fn from(reason: String) -> Self {
        Self { column: None, reason }
    }
}

/// A row before or after a change.
struct Image<'a> {
    fields: Fields<'a>,
    meaning: Arc<RowMeaning>,
}

impl<'a> Image<'a> {
    fn parse(raw: &'a RawValue, meaning: &Arc<RowMeaning>) -> Result<Self, Failure> {
        Ok(Self { fields: Fields::parse(raw)?, meaning: Arc::clone(meaning) })
    }
}

/// Rows so far: one JSON object each, and their kinds.
#[derive(Default)]
struct Rows {
    text: Vec<u8>,
    kinds: Vec<RowKind>,
}

impl Rows {
    /// Takes a row out again that is followed by `next` alone.
    fn remove(&mut self, range: std::ops::Range<usize>, next: &Written) {
        self.text.copy_within(next.range.clone(), range.start);
        self.text.truncate(range.start + next.range.len());
    }
}

/// A row in [`Rows`].
struct Written {
    range: std::ops::Range<usize>,
    /// The values of its key columns.
    key: Vec<u8>,
    /// None of them is NULL.
    key_is_known: bool,
}

/// Appends a JSON string.
fn write_string(out: &mut Vec<u8>, text: &str) {
    // A writer to memory does not fail, and a str has no error of its own.
    let _ = serde_json::to_writer(out, text);
}
