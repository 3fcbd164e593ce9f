//! What all write modes have in common: rows in, loads that ended well out.

use std::sync::Arc;

use arrow::record_batch::RecordBatch;

use super::batch::BatchWriter;
use super::run::LoadRun;
use super::tvf::StageWriter;
use super::writer::LoadWriter;
use crate::error::Result;
use crate::options::WriteMode;

/// Writes the rows of one of the writers of a statement or epoch, in their order.
///
/// Loads that have ended well are told to [`LoadRun::ended`]. Before a label is used for the first time, what an earlier
/// attempt or process left under it is taken back, unless nobody can have used it ([`super::run::Labels`]).
///
/// # Cancellation
/// Dropping it cuts what is under way, and gives up what was not sent. Tasks of its own are counted
/// ([`super::target::InTask`]) and aborted.
pub(super) enum RowWriter {
    Stream(Box<LoadWriter>),
    Batch(Box<BatchWriter>),
    Staged(Box<StageWriter>),
}

impl RowWriter {
    /// The writer of this number, from 0.
    pub(super) fn new(run: &Arc<LoadRun>, writer: u32) -> Result<Self> {
        match run.target.options.write_mode {
            WriteMode::StreamLoad => Ok(Self::Stream(Box::new(LoadWriter::new(run, writer)?))),
            WriteMode::StreamLoadBatch => Ok(Self::Batch(Box::new(BatchWriter::new(run, writer)))),
            WriteMode::Tvf => Ok(Self::Staged(Box::new(StageWriter::new(run)?))),
        }
    }

    /// Takes rows; waits while the server is slower than the input.
    ///
    /// # Errors
    /// Of these rows, or of earlier ones.
    pub(super) async fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        match self {
            Self::Stream(writer) => writer.write(batch).await,
            Self::Staged(writer) => writer.write(batch).await,
            Self::Batch(writer) => writer.write(batch).await,
        }
    }

    /// What is to be done though no rows come. Awaited beside the input, and dropped whenever rows come.
    ///
    /// # Errors
    /// Of earlier rows.
    pub(super) async fn background(&mut self) -> Result<()> {
        match self {
            Self::Stream(_) | Self::Staged(_) => std::future::pending().await,
            Self::Batch(writer) => writer.background().await,
        }
    }

    /// There are no more rows: ends the loads.
    ///
    /// # Errors
    /// The first failure of a load.
    pub(super) async fn finish(self) -> Result<()> {
        match self {
            Self::Stream(writer) => writer.finish().await,
            Self::Staged(writer) => writer.finish().await,
            Self::Batch(writer) => writer.finish().await,
        }
    }
}
