//! Write mode `STREAM_LOAD`: rows flow into an open load while they arrive.

use std::sync::Arc;

use arrow::record_batch::RecordBatch;

use super::body::Body;
use super::run::{Labels, LoadRun};
use super::upload::Upload;
use crate::error::Result;
use crate::failpoints;

/// Writes one load. It is opened with the first full chunk, or at the end: no rows, no load.
pub(super) struct LoadWriter {
    run: Arc<LoadRun>,
    body: Body,
    upload: Upload,
    begun: bool,
}

impl LoadWriter {
    pub(super) fn new(run: &Arc<LoadRun>, writer: u32) -> Result<Self> {
        let (body, upload) = (Body::new(&run.target)?, Upload::streamed(run, writer)?);
        Ok(Self { run: Arc::clone(run), body, upload, begun: false })
    }

    pub(super) async fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        if batch.num_rows() > 0 && !self.begun {
            self.begun = true;
            if self.run.labels.kind != Labels::New {
                self.upload.clear_leftover().await?;
            }
        }
        let rows = self.body.slice_rows(batch);
        self.body.share_buffers_of(batch);
        for start in (0..batch.num_rows()).step_by(rows) {
            self.body.encode(batch, start, rows.min(batch.num_rows() - start))?;
            match self.body.next_chunk().await? {
                Some(chunk) => {
                    self.upload.send(chunk).await?;
                    // The connection was woken, perhaps on this thread.
                    tokio::task::yield_now().await;
                }
                None => tokio::task::consume_budget().await,
            }
        }
        Ok(())
    }

    /// Ends the load; without rows nothing was sent.
    ///
    /// # Errors
    /// The server's refusal, or that the outcome could not be found out.
    pub(super) async fn finish(mut self) -> Result<()> {
        if !self.begun && self.run.labels.kind == Labels::Repeated {
            self.upload.clear_leftover().await?;
        }
        let rows = self.body.rows();
        if rows == 0 {
            return Ok(());
        }
        self.body.settle().await?;
        let rest = self.body.finish()?;
        if !rest.is_empty() {
            failpoints::request(failpoints::BODY_LAST)?;
            self.upload.send(rest).await?;
        }
        let load = self.upload.finish(rows).await?;
        self.run.ended(load);
        Ok(())
    }
}
