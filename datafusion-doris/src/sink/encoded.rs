//! The body of a load, without the load.

use std::sync::Arc;

use arrow::record_batch::RecordBatch;
use bytes::Bytes;

use super::body::Body;
use super::target::LoadTarget;
use crate::client::Chunk;
use crate::error::Result;

/// Encodes and compresses batches as a load of the sink would, and sends nothing: to see or keep what Doris would get.
///
/// The chunks of [`Self::chunk`] and that of [`Self::finish`], one after the other, are the body.
pub struct LoadBody(Body);

impl LoadBody {
    pub(super) fn new(target: &Arc<LoadTarget>) -> Result<Self> {
        Ok(Self(Body::new(target)?))
    }

    /// Takes the rows of `batch`.
    ///
    /// # Errors
    /// [`crate::Error::Encode`] for a value that cannot be written exactly, with its column and row.
    pub fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        let rows = self.0.slice_rows(batch);
        for start in (0..batch.num_rows()).step_by(rows) {
            self.0.append(batch, start, rows.min(batch.num_rows() - start))?;
        }
        Ok(())
    }

    /// Rows so far, without those that are not sent.
    pub fn rows(&self) -> u64 {
        self.0.rows()
    }

    /// A chunk, once there are `sink.buffer-size` bytes. They pile up until it is taken.
    pub fn chunk(&mut self) -> Option<Bytes> {
        self.0.full_chunk().map(Chunk::into_bytes)
    }

    /// The last chunk, perhaps empty.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub fn finish(self) -> Result<Bytes> {
        self.0.finish().map(Chunk::into_bytes)
    }
}

impl std::fmt::Debug for LoadBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LoadBody").field("rows", &self.rows()).finish_non_exhaustive()
    }
}
