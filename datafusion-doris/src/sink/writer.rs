//! One load: batches in, bounded chunks out, answered and settled.

use std::sync::Arc;

use arrow::record_batch::RecordBatch;
use bytes::Bytes;

use super::compress::Compressor;
use super::encoder::Encoder;
use super::target::{AbortOnDrop, LoadTarget, Loaded};
use crate::checkpoint::Committable;
use crate::client::retry::Backoff;
use crate::client::{OpenLoad, StreamLoad};
use crate::error::{Error, Result, Retry};
use crate::failpoints;
use crate::protocol::{LoadRequest, NextStep, PendingOperation, StreamLoadHeaders};

/// Rows encoded in one go, so that the task gives way between.
const SLICE_ROWS: usize = 1024;

/// Writes one load. It is opened with the first full chunk, or at the end: no rows, no load.
///
/// The first chunks are kept until there are more than may wait for the network. While they are all there is, a load
/// that the server refused for a passing reason, or whose BE died, is sent again under the same label.
pub(super) struct LoadWriter {
    target: Arc<LoadTarget>,
    encoder: Box<dyn Encoder>,
    headers: StreamLoadHeaders,
    raw: Vec<u8>,
    body: Compressor,
    open: Option<OpenLoad>,
    /// All chunks so far; `None` = some are gone.
    replay: Option<Vec<Bytes>>,
    attempts_left: usize,
    backoff: Backoff,
    rows: u64,
    load: Committable,
}

impl LoadWriter {
    pub(super) fn new(target: &Arc<LoadTarget>, label: String) -> Result<Self> {
        let columns: Vec<&str> = target.layout.names().collect();
        let headers = StreamLoadHeaders::build(&LoadRequest {
            table: &target.table,
            options: &target.options,
            columns: &columns,
            format: target.format,
            delete_sign: target.layout.has_delete_sign(),
            label: &label,
            two_phase_commit: target.options.two_phase_commit,
        })?;
        let body = Compressor::new(target.body_compression()).map_err(compression_failed)?;
        Ok(Self {
            target: Arc::clone(target),
            encoder: target.encoder(),
            headers,
            raw: Vec::new(),
            body,
            open: None,
            replay: Some(Vec::new()),
            attempts_left: target.options.max_retries,
            backoff: Backoff::new(),
            rows: 0,
            load: target.load(label),
        })
    }

    /// Frees the label, which an earlier attempt or process may have left with a load.
    pub(super) async fn clear_leftover(&mut self) -> Result<()> {
        self.target.committer.clear_leftover(&self.load).await
    }

    pub(super) async fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        for start in (0..batch.num_rows()).step_by(SLICE_ROWS) {
            let slice = batch.slice(start, SLICE_ROWS.min(batch.num_rows() - start));
            let rows = self.encoder.encode(&slice, &mut self.raw).map_err(|error| at_batch_row(error, start))?;
            self.rows += rows;
            self.target.metrics.rows.add(usize::try_from(rows).unwrap_or(usize::MAX));
            self.body.write(&mut self.raw).map_err(compression_failed)?;
            if let Some(chunk) = self.full_chunk() {
                self.send(chunk).await?;
            }
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    fn full_chunk(&mut self) -> Option<Bytes> {
        let ready = self.body.ready();
        if ready.len() < self.target.options.buffer_bytes {
            return None;
        }
        let capacity = ready.capacity();
        Some(Bytes::from(std::mem::replace(ready, Vec::with_capacity(capacity))))
    }

    async fn send(&mut self, chunk: Bytes) -> Result<()> {
        self.target.metrics.bytes.add(chunk.len());
        if let Some(replay) = &mut self.replay {
            if replay.len() < self.target.options.buffer_count.max(1) {
                replay.push(chunk.clone());
            } else {
                self.replay = None;
            }
        }
        loop {
            let sent = match &mut self.open {
                Some(open) => match failpoints::request(failpoints::BODY_CHUNK) {
                    Ok(()) => open.send(chunk.clone()).await,
                    Err(error) => Err(error),
                },
                // The chunk is among those to replay.
                None => self.open_and_replay().await,
            };
            match sent {
                Ok(()) => return Ok(()),
                Err(error) => {
                    let was_open = self.open.take().is_some();
                    self.prepare_retry(error, was_open).await?;
                }
            }
        }
    }

    /// Opens the load and sends what is kept, which is everything so far.
    async fn open_and_replay(&mut self) -> Result<()> {
        failpoints::request(failpoints::BODY_BEGIN)?;
        let load = StreamLoad {
            table: self.target.table.clone(),
            label: self.load.label.clone(),
            headers: self.headers.clone(),
            buffer_count: self.target.options.buffer_count,
        };
        let open = self.open.insert(self.target.client.stream_load(load).await?);
        self.target.metrics.loads.add(1);
        self.load.host = open.host().to_string();
        for chunk in self.replay.iter().flatten() {
            open.send(chunk.clone()).await?;
        }
        Ok(())
    }

    /// Decides whether the load may be sent again; gives the error back when not. `was_open` = the server knew it.
    async fn prepare_retry(&mut self, error: Error, was_open: bool) -> Result<()> {
        if error.retry() != Retry::SameLabel || self.replay.is_none() || self.attempts_left == 0 {
            return Err(error);
        }
        self.attempts_left -= 1;
        tracing::debug!(label = %self.load.label, %error, "sending the load again under the same label");
        tokio::time::sleep(self.backoff.next_pause()).await;
        if was_open {
            // The server may not have noticed yet that the first attempt is over.
            self.clear_leftover().await?;
        }
        Ok(())
    }

    /// Ends the load. `None` = there were no rows, and nothing was sent.
    ///
    /// # Errors
    /// The server's refusal, or that the outcome could not be found out.
    pub(super) async fn finish(mut self) -> Result<Option<Loaded>> {
        if self.rows == 0 {
            return Ok(None);
        }
        self.encoder.finish(&mut self.raw)?;
        self.body.write(&mut self.raw).map_err(compression_failed)?;
        let body = std::mem::replace(&mut self.body, Compressor::Plain(Vec::new()));
        let rest = body.finish().map_err(compression_failed)?;
        if !rest.is_empty() {
            failpoints::request(failpoints::BODY_LAST)?;
            self.send(Bytes::from(rest)).await?;
        }
        let operation = match self.target.options.two_phase_commit {
            true => PendingOperation::PreCommit,
            false => PendingOperation::Load,
        };
        loop {
            let Some(open) = self.open.take() else {
                match self.open_and_replay().await {
                    Ok(()) => continue,
                    Err(error) => {
                        let was_open = self.open.take().is_some();
                        self.prepare_retry(error, was_open).await?;
                        continue;
                    }
                }
            };
            let finish = async {
                failpoints::request(failpoints::PRE_COMMIT)?;
                let response = open.finish().await?;
                failpoints::answer(failpoints::PRE_COMMITTED)?;
                Ok::<_, Error>(response)
            };
            let answer = AbortOnDrop::during(&self.target, &self.load, finish).await;
            let error = match answer {
                Ok(response) => {
                    self.load.txn_id = response.txn_id;
                    let dropped = response.filtered_rows.saturating_add(response.unselected_rows);
                    return Ok(Some(Loaded::new(&self.target, self.rows.saturating_sub(dropped), self.load)));
                }
                Err(error) => error,
            };
            if error.retry() != Retry::AskLabelState {
                self.prepare_retry(error, true).await?;
                continue;
            }
            tracing::warn!(label = %self.load.label, %error, "the answer to a load was lost, asking for its state");
            let settled = self.target.committer.settle(operation, &self.load);
            match AbortOnDrop::during(&self.target, &self.load, settled).await? {
                NextStep::Done => return Ok(Some(Loaded::new(&self.target, self.rows, self.load))),
                // Nothing of it is in Doris: the first failure decides whether there is something to send again.
                NextStep::Resend if self.replay.is_some() && self.attempts_left > 0 => self.attempts_left -= 1,
                _ => return Err(error),
            }
        }
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
