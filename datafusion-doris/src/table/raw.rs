//! What the options of a table say of its reads in the words of Doris: `doris.read.field`, `doris.filter.query`.

use std::sync::Arc;

use arrow::datatypes::{Field, Schema, SchemaRef};

use super::DorisTable;
use crate::error::{Error, Result};
use crate::options::{DorisOptions, OptionKey};
use crate::types::TableSchema;

/// The columns of `doris.read.field` as a declaration, unless there is one.
pub(super) fn with_read_fields(
    declared: Option<SchemaRef>,
    options: &DorisOptions,
    doris: &TableSchema,
) -> Result<Option<SchemaRef>> {
    let Some(names) = &options.read.read_fields else { return Ok(declared) };
    let option = OptionKey::ReadField.as_ref();
    if declared.is_some() {
        return Err(Error::config(option, "says what the column list says; give one of them"));
    }
    let field = |name: &String| {
        let column = doris.column(name).ok_or_else(|| {
            let known: Vec<&str> = doris.columns.iter().map(|column| column.name.as_str()).collect();
            Error::config(
                option,
                format!("{} has no column '{name}', its columns are {}", doris.table, known.join(", ")),
            )
        })?;
        let data_type = column.doris_type.arrow_type().map_err(|reason| Error::config(option, reason))?;
        Ok(Field::new(&column.name, data_type, column.nullable))
    };
    let fields = names.iter().map(field).collect::<Result<Vec<_>>>()?;
    Ok(Some(Arc::new(Schema::new(fields))))
}

impl DorisTable {
    /// `doris.filter.query`, in parentheses: it stands beside other conditions.
    pub(super) fn own_condition(&self) -> Option<String> {
        self.options.read.filter_query.as_ref().map(|condition| format!("({condition})"))
    }
}
