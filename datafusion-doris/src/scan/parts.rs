//! Steps of a scan by themselves, for the benches of this workspace: no part of the interface.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;

use super::{Conformer, text};
use crate::error::Result;
use crate::types::DorisType;

/// Batches as they came to batches of a declared schema.
#[derive(Debug)]
pub struct Conform(Conformer);

impl Conform {
    /// To `schema`, whose columns have these Doris types.
    pub fn new(schema: SchemaRef, types: Vec<DorisType>) -> Self {
        Self(Conformer::new("bench", schema, Arc::from(types)))
    }

    /// One batch.
    ///
    /// # Errors
    /// [`crate::Error::Schema`] for what cannot be converted exactly.
    pub fn batch(&mut self, batch: &RecordBatch) -> Result<RecordBatch> {
        self.0.conform(batch)
    }
}

/// Texts of the MySQL protocol (Binary columns) as columns of these Doris types.
///
/// # Errors
/// [`crate::Error::Schema`] for a text that is no value of its type.
pub fn typed_texts(types: &[DorisType], batch: &RecordBatch) -> Result<RecordBatch> {
    text::typed("bench", types, batch)
}
