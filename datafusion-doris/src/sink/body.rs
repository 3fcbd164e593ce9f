//! Rows become the bytes of a load's body, piece by piece.

use std::io;
use std::sync::Arc;

use arrow::array::Array;
use arrow::record_batch::RecordBatch;
use bytes::Bytes;
use datafusion::common::runtime::SpawnedTask;
use datafusion::error::DataFusionError;

use super::compress::Compressor;
use super::encoder::Encoder;
use super::output::{Output, Spares, is_compact};
use super::target::LoadTarget;
use crate::client::Chunk;
use crate::error::{Error, Result};
use crate::options::SinkFormat;

/// Rows encoded in one go, so that the task gives way between.
pub(super) const SLICE_ROWS: usize = 1024;
/// The same where a slice is a record batch of the body, which costs as much as some hundred rows.
const MOST_SLICE_ROWS: usize = 8192;
/// Bytes that are compressed in one go where that happens beside the encoder.
///
/// Handing a piece over takes two wake-ups, and the compressor waits for both.
const PIECE_BYTES: usize = 1 << 20;

/// The body of one load.
pub(super) struct Body {
    target: Arc<LoadTarget>,
    encoder: Box<dyn Encoder>,
    /// Encoded and not compressed yet; where nothing is compressed, what is not taken yet.
    encoded: Output,
    /// `None` = nothing is compressed.
    compressor: Option<Place>,
    rows: u64,
    bytes: usize,
    /// Memory of compressed chunks.
    spares: Spares,
}

/// Where the compressor is.
enum Place {
    Here(Compressor),
    /// In a thread, with the bytes that it is to take.
    Away(SpawnedTask<io::Result<(Compressor, Vec<u8>)>>),
    /// It failed, or the future that waited for it was dropped.
    Lost,
}

impl Body {
    pub(super) fn new(target: &Arc<LoadTarget>) -> Result<Self> {
        let compressor = Compressor::new(target.body_compression()).map_err(compression_failed)?;
        Ok(Self {
            target: Arc::clone(target),
            encoder: target.encoder(),
            encoded: Output::default(),
            compressor: compressor.map(Place::Here),
            rows: 0,
            bytes: 0,
            spares: Spares::default(),
        })
    }

    /// Rows of `batch` to encode in one go.
    pub(super) fn slice_rows(&self, batch: &RecordBatch) -> usize {
        if self.target.format != SinkFormat::Arrow {
            return SLICE_ROWS;
        }
        let bytes: usize =
            batch.columns().iter().map(|column| column.to_data().get_slice_memory_size().unwrap_or_default()).sum();
        let of_row = (bytes / batch.num_rows().max(1)).max(1);
        (self.target.options.buffer_bytes / of_row).clamp(SLICE_ROWS, MOST_SLICE_ROWS)
    }

    /// Sends buffers of `batch` from where they are, where that keeps little else in memory. For chunks that do not wait for
    /// long; holds until the next call.
    pub(super) fn share_buffers_of(&mut self, batch: &RecordBatch) {
        self.encoded.share(self.target.format == SinkFormat::Arrow && is_compact(batch));
    }

    /// Rows so far, without those that are not sent.
    pub(super) fn rows(&self) -> u64 {
        self.rows
    }

    /// Bytes so far, before compression.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes `len` rows of `batch` from `start` on, and compresses them.
    ///
    /// # Errors
    /// [`Error::Encode`] with the row's place in the batch; when the compressor fails.
    pub(super) fn append(&mut self, batch: &RecordBatch, start: usize, len: usize) -> Result<()> {
        self.encode(batch, start, len)?;
        match &mut self.compressor {
            None => Ok(()),
            Some(Place::Here(compressor)) => compressor.write(self.encoded.tail()).map_err(compression_failed),
            Some(Place::Away(_) | Place::Lost) => Err(lost()),
        }
    }

    /// A chunk, when there are enough bytes for one.
    pub(super) fn full_chunk(&mut self) -> Option<Chunk> {
        let enough = self.target.options.buffer_bytes;
        match &mut self.compressor {
            None => (self.encoded.len() >= enough).then(|| self.encoded.take()),
            Some(Place::Here(compressor)) => taken(compressor, enough, &self.spares),
            Some(Place::Away(_) | Place::Lost) => None,
        }
    }

    /// Takes `len` rows of `batch` from `start` on; [`Self::next_chunk`] has them compressed.
    ///
    /// # Errors
    /// [`Error::Encode`] with the row's place in the batch.
    pub(super) fn encode(&mut self, batch: &RecordBatch, start: usize, len: usize) -> Result<()> {
        let slice = batch.slice(start, len);
        let before = self.encoded.len();
        let rows = self.encoder.encode_to(&slice, &mut self.encoded).map_err(|error| at_batch_row(error, start))?;
        self.bytes += self.encoded.len() - before;
        self.rows += rows;
        self.target.metrics.rows.add(usize::try_from(rows).unwrap_or(usize::MAX));
        Ok(())
    }

    /// As [`Self::full_chunk`], after rows were compressed in a thread beside the encoder, a piece at a time: waits for the
    /// piece before.
    ///
    /// # Errors
    /// When the compressor fails.
    ///
    /// # Cancellation
    /// The body is of no use when it was dropped while it waited.
    pub(super) async fn next_chunk(&mut self) -> Result<Option<Chunk>> {
        if self.compressor.is_none() {
            return Ok(self.full_chunk());
        }
        if self.encoded.len() < PIECE_BYTES {
            return Ok(None);
        }
        let Some((mut compressor, spare)) = self.back().await? else { return Ok(None) };
        let chunk = taken(&mut compressor, self.target.options.buffer_bytes, &self.spares);
        let mut raw = std::mem::replace(self.encoded.tail(), spare);
        self.compressor = Some(Place::Away(SpawnedTask::spawn_blocking(move || {
            compressor.write(&mut raw)?;
            Ok((compressor, raw))
        })));
        Ok(chunk)
    }

    /// Waits for what is compressed beside the encoder, so that [`Self::finish`] can be called.
    ///
    /// # Errors
    /// When the compressor fails.
    pub(super) async fn settle(&mut self) -> Result<()> {
        if let Some((compressor, _)) = self.back().await? {
            self.compressor = Some(Place::Here(compressor));
        }
        Ok(())
    }

    /// The compressor, and an empty buffer; `None` where nothing is compressed.
    async fn back(&mut self) -> Result<Option<(Compressor, Vec<u8>)>> {
        let Some(place) = &mut self.compressor else { return Ok(None) };
        match std::mem::replace(place, Place::Lost) {
            Place::Here(compressor) => Ok(Some((compressor, Vec::new()))),
            Place::Away(task) => {
                let ended = task.join().await;
                let ended = ended.map_err(|error| DataFusionError::ExecutionJoin(Box::new(error)))?;
                ended.map(Some).map_err(compression_failed)
            }
            Place::Lost => Err(lost()),
        }
    }

    /// The last chunk, perhaps empty.
    ///
    /// # Errors
    /// When a compressor or the encoder fails.
    pub(super) fn finish(mut self) -> Result<Chunk> {
        self.encoder.finish(self.encoded.tail())?;
        match self.compressor {
            None => Ok(self.encoded.take()),
            Some(Place::Here(mut compressor)) => {
                compressor.write(self.encoded.tail()).map_err(compression_failed)?;
                Ok(Bytes::from(compressor.finish().map_err(compression_failed)?).into())
            }
            Some(Place::Away(_) | Place::Lost) => Err(lost()),
        }
    }
}

/// What is ready, when that are `enough` bytes.
fn taken(compressor: &mut Compressor, enough: usize, spares: &Spares) -> Option<Chunk> {
    let ready = compressor.ready();
    (ready.len() >= enough).then(|| spares.lend(ready).into())
}

fn compression_failed(error: io::Error) -> Error {
    Error::from(arrow::error::ArrowError::from(error))
}

fn lost() -> Error {
    compression_failed(io::Error::other("the compressor of a load is gone"))
}

/// Rows of errors count from the start of the batch, not of the slice.
fn at_batch_row(error: Error, start: usize) -> Error {
    match error {
        Error::Encode { table, column, row, reason } => Error::Encode { table, column, row: row + start, reason },
        other => other,
    }
}
