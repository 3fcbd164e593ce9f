//! The schema of a table from a list of columns, without asking Doris about the table.

use arrow::datatypes::SchemaRef;

use super::DorisTable;
use super::kind::kind_column;
use super::raw::with_read_fields;
use super::schema::BoundSchema;
use crate::error::Result;
use crate::options::DorisOptions;
use crate::types::TableSchema;

impl DorisTable {
    /// The schema that a snapshot of the table with these options has.
    ///
    /// # Errors
    /// As [`super::DorisTableBuilder::build`].
    pub(crate) fn schema_of(options: DorisOptions, doris: &TableSchema) -> Result<SchemaRef> {
        let declared = with_read_fields(None, &options, doris)?;
        let kind = kind_column(&options, doris, declared.as_ref())?;
        let bound = BoundSchema::bind(doris, declared.as_ref(), kind, &options.sink)?;
        Ok(SchemaRef::clone(bound.schema()))
    }
}
