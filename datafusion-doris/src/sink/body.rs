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
use super::target::LoadTarget;
use crate::error::{Error, Result};
use crate::options::SinkFormat;

/// Rows encoded in one go, so that the task gives way between.
pub(super) const SLICE_ROWS: usize = 1024;
/// The same where a slice is a record batch of the body, which costs as much as some hundred rows.
const MOST_SLICE_ROWS: usize = 8192;
/// Bytes that are compressed in one go where that happens beside the encoder.
const PIECE_BYTES: usize = 256 << 10;

/// The body of one load.
pub(super) struct Body {
    target: Arc<LoadTarget>,
    encoder: Box<dyn Encoder>,
    /// Encoded and not compressed yet; stays empty where nothing is compressed.
    raw: Vec<u8>,
    compressor: Place,
    rows: u64,
    bytes: usize,
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
            raw: Vec::new(),
            compressor: Place::Here(compressor),
            rows: 0,
            bytes: 0,
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
        let Place::Here(compressor) = &mut self.compressor else { return Err(lost()) };
        compressor.write(&mut self.raw).map_err(compression_failed)
    }

    /// A chunk, when there are enough bytes for one.
    pub(super) fn full_chunk(&mut self) -> Option<Bytes> {
        match &mut self.compressor {
            Place::Here(compressor) => taken(compressor, self.target.options.buffer_bytes),
            Place::Away(_) | Place::Lost => None,
        }
    }

    /// Takes `len` rows of `batch` from `start` on; [`Self::next_chunk`] has them compressed.
    ///
    /// # Errors
    /// [`Error::Encode`] with the row's place in the batch.
    pub(super) fn encode(&mut self, batch: &RecordBatch, start: usize, len: usize) -> Result<()> {
        let slice = batch.slice(start, len);
        // What is not compressed needs no place in between.
        let out = match &mut self.compressor {
            Place::Here(Compressor::Plain(ready)) => ready,
            _ => &mut self.raw,
        };
        let before = out.len();
        let rows = self.encoder.encode(&slice, out).map_err(|error| at_batch_row(error, start))?;
        self.bytes += out.len() - before;
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
    pub(super) async fn next_chunk(&mut self) -> Result<Option<Bytes>> {
        let enough = self.target.options.buffer_bytes;
        match &mut self.compressor {
            Place::Here(compressor @ Compressor::Plain(_)) => Ok(taken(compressor, enough)),
            _ if self.raw.len() < PIECE_BYTES => Ok(None),
            _ => {
                let (mut compressor, spare) = self.back().await?;
                let chunk = taken(&mut compressor, enough);
                let mut raw = std::mem::replace(&mut self.raw, spare);
                self.compressor = Place::Away(SpawnedTask::spawn_blocking(move || {
                    compressor.write(&mut raw)?;
                    Ok((compressor, raw))
                }));
                Ok(chunk)
            }
        }
    }

    /// Waits for what is compressed beside the encoder, so that [`Self::finish`] can be called.
    ///
    /// # Errors
    /// When the compressor fails.
    pub(super) async fn settle(&mut self) -> Result<()> {
        let (compressor, _) = self.back().await?;
        self.compressor = Place::Here(compressor);
        Ok(())
    }

    /// The compressor, and an empty buffer.
    async fn back(&mut self) -> Result<(Compressor, Vec<u8>)> {
        match std::mem::replace(&mut self.compressor, Place::Lost) {
            Place::Here(compressor) => Ok((compressor, Vec::new())),
            Place::Away(task) => {
                let ended = task.join().await;
                let ended = ended.map_err(|error| DataFusionError::ExecutionJoin(Box::new(error)))?;
                ended.map_err(compression_failed)
            }
            Place::Lost => Err(lost()),
        }
    }

    /// The last chunk, perhaps empty.
    ///
    /// # Errors
    /// When a compressor or the encoder fails.
    pub(super) fn finish(mut self) -> Result<Bytes> {
        let Place::Here(mut compressor) = self.compressor else { return Err(lost()) };
        let out = match &mut compressor {
            Compressor::Plain(ready) => ready,
            _ => &mut self.raw,
        };
        self.encoder.finish(out)?;
        compressor.write(&mut self.raw).map_err(compression_failed)?;
        Ok(Bytes::from(compressor.finish().map_err(compression_failed)?))
    }
}

/// What is ready, when that are `enough` bytes.
fn taken(compressor: &mut Compressor, enough: usize) -> Option<Bytes> {
    let ready = compressor.ready();
    if ready.len() < enough {
        return None;
    }
    let capacity = ready.capacity();
    Some(Bytes::from(std::mem::replace(ready, Vec::with_capacity(capacity))))
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
