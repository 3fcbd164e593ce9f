//! One Arrow IPC stream.

use std::fmt;
use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, Int8Array};
use arrow::compute::filter;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::ipc::CompressionType;
use arrow::ipc::writer::{IpcWriteOptions, StreamEncoder};
use arrow::record_batch::RecordBatch;

use super::conform::Conform;
use super::{Encoder, RowAction, RowLayout, Rows};
use crate::error::{Error, Result};
use crate::options::Compression;
use crate::protocol::DELETE_SIGN;
use crate::sink::output::Output;
use crate::types::DorisType;

/// What each load in `format: arrow` has in common.
#[derive(Debug)]
pub(crate) struct ArrowPlan {
    layout: RowLayout,
    columns: Vec<Conform>,
    /// Of the stream.
    schema: SchemaRef,
    compression: Option<CompressionType>,
}

/// `format: arrow`: schema, one record batch per batch, end of the stream; buffers are compressed inside of it.
///
/// Columns have the types that a BE reads, found by name; the delete sign is an Int8.
pub(crate) struct ArrowEncoder {
    plan: Arc<ArrowPlan>,
    /// Since the first rows.
    stream: Option<StreamEncoder>,
}

impl ArrowPlan {
    /// Plans streams of batches of `schema`; `type_of` gives the type of a column in the table.
    ///
    /// # Errors
    /// [`Error::Schema`] for a column whose type cannot be loaded into that of the table.
    pub(crate) fn try_new<'a>(
        layout: RowLayout,
        schema: &Schema,
        type_of: impl Fn(&str) -> Option<&'a DorisType>,
        compression: Compression,
    ) -> Result<Self> {
        let mut columns = Vec::with_capacity(layout.columns.len());
        let mut fields = Vec::with_capacity(layout.columns.len() + 1);
        for target in &layout.columns {
            let doris_type = type_of(&target.name).ok_or_else(|| layout.refuse_column(&target.name, "is unknown"))?;
            let column = Conform::plan(schema.field(target.at).data_type(), doris_type)
                .map_err(|reason| layout.refuse_column(&target.name, &reason))?;
            fields.push(Field::new(&target.name, column.data_type().clone(), true));
            columns.push(column);
        }
        if layout.delete_sign {
            fields.push(Field::new(DELETE_SIGN, DataType::Int8, true));
        }
        let compression = match compression {
            Compression::Zstd => Some(CompressionType::ZSTD),
            Compression::Lz4 => Some(CompressionType::LZ4_FRAME),
            Compression::None | Compression::Gz | Compression::Deflate => None,
        };
        Ok(Self { layout, columns, schema: Arc::new(Schema::new(fields)), compression })
    }

    fn open(&self) -> Result<StreamEncoder, ArrowError> {
        let options = IpcWriteOptions::default().try_with_compression(self.compression)?;
        StreamEncoder::try_new_with_options(&self.schema, options)
    }

    /// The schema of the batches that [`Self::convert`] gives.
    pub(super) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// The rows that are written, in the types of the table.
    pub(super) fn convert(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        let Rows { mut columns, actions } = self.layout.checked(batch)?;
        let mut kept = None;
        let mut signs = vec![0; batch.num_rows()];
        if let Some(actions) = actions {
            let rows: Vec<usize> = (0..actions.len()).filter(|row| actions[*row] != RowAction::Skip).collect();
            signs = rows.iter().map(|row| i8::from(actions[*row] == RowAction::Write(Some(b'1')))).collect();
            if rows.len() < actions.len() {
                let mask: BooleanArray = actions.iter().map(|action| Some(*action != RowAction::Skip)).collect();
                for column in &mut columns {
                    *column = filter(column, &mask).map_err(stream_error)?;
                }
                kept = Some(rows);
            }
        }
        let mut converted: Vec<ArrayRef> = Vec::with_capacity(columns.len() + 1);
        for (at, (conform, column)) in self.columns.iter().zip(&columns).enumerate() {
            converted.push(conform.apply(column).map_err(|misfit| {
                let row = kept.as_ref().and_then(|kept| kept.get(misfit.row)).copied().unwrap_or(misfit.row);
                self.layout.error(at, row, misfit.reason)
            })?);
        }
        if self.layout.delete_sign {
            converted.push(Arc::new(Int8Array::from(signs)));
        }
        RecordBatch::try_new(Arc::clone(&self.schema), converted).map_err(stream_error)
    }
}

impl ArrowEncoder {
    pub(crate) fn new(plan: Arc<ArrowPlan>) -> Self {
        Self { plan, stream: None }
    }
}

impl Encoder for ArrowEncoder {
    fn encode_to(&mut self, batch: &RecordBatch, out: &mut Output) -> Result<u64> {
        let batch = self.plan.convert(batch)?;
        if batch.num_rows() == 0 {
            return Ok(0);
        }
        let stream = match &mut self.stream {
            Some(stream) => stream,
            none => none.insert(self.plan.open().map_err(stream_error)?),
        };
        let buffers = stream.encode(&batch).map_err(stream_error)?;
        buffers.into_iter().for_each(|buffer| out.push(buffer));
        Ok(batch.num_rows() as u64)
    }

    fn finish(&mut self, out: &mut Vec<u8>) -> Result<()> {
        if let Some(stream) = self.stream.take() {
            let buffers = stream.finish().map_err(stream_error)?;
            buffers.iter().for_each(|buffer| out.extend_from_slice(buffer));
        }
        Ok(())
    }
}

impl fmt::Debug for ArrowEncoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ArrowEncoder").field("plan", &self.plan).finish_non_exhaustive()
    }
}

fn stream_error(error: ArrowError) -> Error {
    Error::from(error)
}
