//! Results: text rows of SHOW-like statements, and query streams in the form the profile sends.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::StreamExt;

use super::rewrite::{ANONYMOUS_MARK, LABEL_MARK};
use crate::engine::{Origin, Profile, Protocol, StatementResult};
use crate::error::SqlError;
use crate::types::old_wire::OldForms;
use crate::types::wire::{to_wire, wire_field};
use crate::types::{DorisType, SessionZone, conform};

/// Rows of text from the FE.
pub(super) fn text_rows(names: &[&str], rows: Vec<Vec<Option<String>>>) -> Result<StatementResult, SqlError> {
    let batch = text_batch(names, &rows)?;
    let schema = batch.schema();
    let types = vec![DorisType::String; names.len()];
    let stream = futures::stream::once(async move { Ok(batch) });
    Ok(StatementResult::Rows {
        stream: Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&schema), stream)),
        schema,
        origin: Origin::Fe,
        types,
    })
}

/// A batch of nullable text columns.
pub(super) fn text_batch(names: &[&str], rows: &[Vec<Option<String>>]) -> Result<RecordBatch, SqlError> {
    let fields: Vec<Field> = names.iter().map(|name| Field::new(*name, DataType::Utf8, true)).collect();
    let columns: Vec<ArrayRef> = (0..names.len())
        .map(|i| Arc::new(rows.iter().map(|row| row.get(i).cloned().flatten()).collect::<StringArray>()) as ArrayRef)
        .collect();
    let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
    RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), columns, &options).map_err(SqlError::detail)
}

/// A query's stream with the field names, types and values that travel.
pub(super) fn to_result(
    stream: SendableRecordBatchStream,
    origin: Origin,
    profile: Profile,
    zone: SessionZone,
    protocol: Protocol,
    old: OldForms,
) -> Result<StatementResult, SqlError> {
    let source = stream.schema();
    let flight = protocol == Protocol::Flight;
    // What the oldest build sends over Arrow in forms of its own is text elsewhere.
    let (profile, old) = if flight { (profile, old) } else { (profile.max(Profile::V3_1), OldForms::default()) };
    let mut types = Vec::with_capacity(source.fields().len());
    let mut fields = Vec::with_capacity(source.fields().len());
    for (i, field) in source.fields().iter().enumerate() {
        let ty = DorisType::of_field(field)
            .ok_or_else(|| SqlError::not_served(format!("results of Arrow type {}", field.data_type())))?;
        if flight && ty == DorisType::Hll {
            return Err(SqlError::detail(format!("HLL type is not supported in Arrow Flight results, column {i}")));
        }
        // The executor does not know the text of an expression without alias: its name is its type and position.
        let marked = field.name();
        let name = match marked.strip_suffix(ANONYMOUS_MARK) {
            Some(_) if flight && origin == Origin::Be => format!("{}_{i}", ty.executor_name(field.is_nullable())),
            label => label.unwrap_or(marked).split(LABEL_MARK).next().unwrap_or_default().to_owned(),
        };
        fields.push(old.field(&wire_field(&name, &ty, field.is_nullable(), profile, &zone), &ty));
        types.push(ty);
    }
    let schema: SchemaRef = Arc::new(Schema::new(fields));
    let (wire_schema, wire_types) = (Arc::clone(&schema), types.clone());
    let batches = stream.map(move |batch| {
        let batch = batch?;
        let mut columns = Vec::with_capacity(wire_types.len());
        for (column, ty) in batch.columns().iter().zip(&wire_types) {
            let stored = if column.data_type() == &ty.storage() { Arc::clone(column) } else { conform(column, ty)? };
            columns.push(old.array(&to_wire(&stored, ty, profile, &zone), ty));
        }
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        Ok(RecordBatch::try_new_with_options(Arc::clone(&wire_schema), columns, &options)?)
    });
    Ok(StatementResult::Rows {
        stream: Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&schema), batches)),
        schema,
        origin,
        types,
    })
}
