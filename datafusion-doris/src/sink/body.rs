//! Rows become the bytes of a load's body, piece by piece.

use std::sync::Arc;

use arrow::record_batch::RecordBatch;
use bytes::Bytes;

use super::compress::Compressor;
use super::encoder::Encoder;
use super::target::LoadTarget;
use crate::error::{Error, Result};

/// Rows encoded in one go, so that the task gives way between.
pub(super) const SLICE_ROWS: usize = 1024;

/// The body of one load.
pub(super) struct Body {
    target: Arc<LoadTarget>,
    encoder: Box<dyn Encoder>,
    raw: Vec<u8>,
    compressor: Compressor,
    rows: u64,
    bytes: usize,
}

impl Body {
    pub(super) fn new(target: &Arc<LoadTarget>) -> Result<Self> {
        let compressor = Compressor::new(target.body_compression()).map_err(compression_failed)?;
        Ok(Self {
            target: Arc::clone(target),
            encoder: target.encoder(),
            raw: Vec::new(),
            compressor,
            rows: 0,
            bytes: 0,
        })
    }

    /// Rows so far, without those that are not sent.
    pub(super) fn rows(&self) -> u64 {
        self.rows
    }

    /// Bytes so far, before compression.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes `len` rows of `batch` from `start` on.
    ///
    /// # Errors
    /// [`Error::Encode`] with the row's place in the batch.
    pub(super) fn append(&mut self, batch: &RecordBatch, start: usize, len: usize) -> Result<()> {
        let slice = batch.slice(start, len);
        let rows = self.encoder.encode(&slice, &mut self.raw).map_err(|error| at_batch_row(error, start))?;
        self.rows += rows;
        self.bytes += self.raw.len();
        self.target.metrics.rows.add(usize::try_from(rows).unwrap_or(usize::MAX));
        self.compressor.write(&mut self.raw).map_err(compression_failed)
    }

    /// A chunk, when there are enough bytes for one.
    pub(super) fn full_chunk(&mut self) -> Option<Bytes> {
        let ready = self.compressor.ready();
        if ready.len() < self.target.options.buffer_bytes {
            return None;
        }
        let capacity = ready.capacity();
        Some(Bytes::from(std::mem::replace(ready, Vec::with_capacity(capacity))))
    }

    /// The last chunk, perhaps empty.
    ///
    /// # Errors
    /// When a compressor or the encoder fails.
    pub(super) fn finish(mut self) -> Result<Bytes> {
        self.encoder.finish(&mut self.raw)?;
        self.compressor.write(&mut self.raw).map_err(compression_failed)?;
        Ok(Bytes::from(self.compressor.finish().map_err(compression_failed)?))
    }
}

fn compression_failed(error: std::io::Error) -> Error {
    Error::from(arrow::error::ArrowError::from(error))
}

/// Rows of errors count from the start of the batch, not of the slice.
fn at_batch_row(error: Error, start: usize) -> Error {
    match error {
        Error::Encode { table, column, row, reason } => Error::Encode { table, column, row: row + start, reason },
        other => other,
    }
}
