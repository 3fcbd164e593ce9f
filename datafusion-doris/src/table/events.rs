//! A target that takes change events instead of rows.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::physical_plan::ExecutionPlan;

use super::DorisTable;
use crate::debezium::{DebeziumDecoder, DebeziumExec};
use crate::error::{Error, Result};
use crate::options::{ChangeFormat, DorisOptions, OptionKey};
use crate::types::{KeyModel, TableSchema};

/// The column of the events.
pub(super) const EVENT_COLUMN: &str = "event";

/// Name of the change kind column when no option names it.
const CHANGE_KIND: &str = "__change_kind";

/// What such a target takes: one column of text.
pub(super) fn event_schema() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new(EVENT_COLUMN, DataType::Utf8, true)]))
}

/// Sets what goes with a change format, and refuses what does not.
pub(super) fn with_change_format(mut options: DorisOptions, doris: &TableSchema) -> Result<DorisOptions> {
    if options.sink.change_format.is_none() {
        return Ok(options);
    }
    let fail = |reason: &str| Err(Error::config(OptionKey::ChangeFormat.as_ref(), reason));
    if options.read.mode.is_changelog() {
        return fail("is for targets; declare the changelog to read and the table to write as two external tables");
    }
    if doris.model != Some(KeyModel::Unique) {
        return fail("needs a UNIQUE KEY table: events update and delete rows by their key");
    }
    if !options.sink.enable_delete {
        return fail("needs 'sink.enable-delete' = 'true': events delete rows");
    }
    options.sink.change_kind_column.get_or_insert_with(|| CHANGE_KIND.into());
    Ok(options)
}

impl DorisTable {
    /// The rows that the events of `input` tell; `None` when the table takes rows.
    pub(super) fn decoded(&self, input: &Arc<dyn ExecutionPlan>) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let Some(ChangeFormat::DebeziumJson(options)) = self.options.sink.change_format else { return Ok(None) };
        let schema = input.schema();
        if schema.fields().len() != 1 || !DebeziumDecoder::accepts(schema.field(0).data_type()) {
            let reason = format!("takes change events: insert one column of text, not ({})", names(&schema));
            return Err(Error::schema(&self.doris.table, reason));
        }
        let columns = self.bound.schema().project(&(0..self.bound.columns()).collect::<Vec<_>>())?;
        let is_key = |name: &str| self.doris.column(name).is_some_and(|column| column.key);
        if let Some(key) =
            self.doris.columns.iter().find(|column| column.key && columns.index_of(&column.name).is_err())
        {
            let reason = format!("key column '{}' is not declared, and rows are written by their key", key.name);
            return Err(Error::schema(&self.doris.table, reason));
        }
        let kind = self.options.sink.change_kind_column.as_deref().unwrap_or(CHANGE_KIND);
        let decoder = DebeziumDecoder::new(&self.doris.table, &columns, is_key, kind, options);
        Ok(Some(Arc::new(DebeziumExec::planned(Arc::clone(input), Arc::new(decoder))?)))
    }
}

fn names(schema: &Schema) -> String {
    let column = |field: &Arc<Field>| format!("{} {}", field.name(), field.data_type());
    schema.fields().iter().map(column).collect::<Vec<_>>().join(", ")
}
