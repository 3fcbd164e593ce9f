//! Write mode `STREAM_LOAD_BATCH`: rows are kept until there are enough of them for a load.
//!
//! ```text
//! rows ─ encode, compress ─▶ buffer ─ full, or old ─▶ queue (bounded) ─▶ task: one load after the other
//!        (the writer)        max-rows, max-bytes,     filled buffers      known length, sent again as a whole
//!                            interval
//! ```
//!
//! A writer holds one buffer that is filled, those in the queue, and one that is sent: `queue-size` + 2 at most, and
//! together, as they are after compression, no more than `max-bytes` and a slice of rows. So that one can be filled while
//! another is sent, a buffer of half of that goes out as soon as nothing is under way. A full queue, and full memory, hold
//! the input up. Loads keep the order of the rows, so the last change of a key is the one that counts.
//!
//! A load that fails ends the task, and the buffers behind it are dropped: nothing is sent that comes after rows which are
//! not in the table. The writer tells at its next call, and while it waits for rows.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::record_batch::RecordBatch;
use datafusion::common::runtime::JoinSet;
use datafusion::error::DataFusionError;
use datafusion::physical_plan::metrics::Gauge;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinError;
use tokio::time::{Instant, sleep_until};

use super::body::{Body, SLICE_ROWS};
use super::run::{Labels, LoadRun};
use super::target::InTask;
use super::upload::Upload;
use crate::client::Chunk;
use crate::error::{Error, Result};
use crate::options::FlushOptions;

/// Writes loads one after the other, in a task of its own that ends with it.
pub(super) struct BatchWriter {
    run: Arc<LoadRun>,
    /// Number of the writer, which is that of its first load.
    writer: u32,
    buffer: Option<Buffer>,
    /// The task; dropped before the queue, whose end would look like the end of the rows.
    loads: JoinSet<Result<()>>,
    /// Filled buffers on their way to the task; `None` = none was filled yet.
    queue: Option<mpsc::Sender<Filled>>,
    /// Memory of the filled buffers.
    filled: Arc<Memory>,
}

impl BatchWriter {
    pub(super) fn new(run: &Arc<LoadRun>, writer: u32) -> Self {
        let filled = Arc::default();
        Self { run: Arc::clone(run), writer, buffer: None, loads: JoinSet::new(), queue: None, filled }
    }

    fn options(&self) -> &FlushOptions {
        &self.run.target.options.flush
    }

    pub(super) async fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        if let Some(ended) = self.loads.try_join_next() {
            return Err(early(ended));
        }
        let mut start = 0;
        while start < batch.num_rows() {
            self.memory().await?;
            let options = *self.options();
            let buffer = match &mut self.buffer {
                Some(buffer) => buffer,
                none => none.insert(Buffer::new(&self.run)?),
            };
            let room = options.max_rows.saturating_sub(buffer.rows()).max(1);
            let len = SLICE_ROWS.min(batch.num_rows() - start).min(room);
            buffer.append(batch, start, len)?;
            start += len;
            let full = buffer.rows() >= options.max_rows || buffer.body.bytes() >= options.max_bytes;
            // After compression there is room for many buffers in the memory of one.
            if full || (buffer.memory >= options.max_bytes / 2 && self.filled.bytes() == 0) {
                self.flush().await?;
            }
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    /// Waits until there is memory for more rows.
    async fn memory(&mut self) -> Result<()> {
        let limit = self.options().max_bytes;
        loop {
            let freed = self.filled.freed.notified();
            let filled = self.filled.bytes();
            if filled == 0 || filled + self.buffer.as_ref().map_or(0, |buffer| buffer.memory) < limit {
                return Ok(());
            }
            tokio::select! {
                Some(ended) = self.loads.join_next() => return Err(early(ended)),
                () = freed => {}
            }
        }
    }

    /// Sends a buffer that is old enough, and tells when the task failed.
    ///
    /// # Cancellation
    /// Nothing is lost when it is dropped.
    pub(super) async fn background(&mut self) -> Result<()> {
        let due = self.buffer.as_ref().map(|buffer| buffer.since + self.options().interval);
        let old = async {
            match due {
                Some(due) => sleep_until(due).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            Some(ended) = self.loads.join_next() => return Err(early(ended)),
            () = old => {}
        }
        self.flush().await
    }

    /// Queues the buffer; waits while the queue is full. Dropped while it waits, it has done nothing.
    async fn flush(&mut self) -> Result<()> {
        if self.buffer.as_ref().is_none_or(|buffer| buffer.rows() == 0) {
            // Rows that are not sent, such as the old rows of updates.
            self.buffer = None;
            return Ok(());
        }
        let queue = match &mut self.queue {
            Some(queue) => queue,
            none => {
                let (queue, filled) = mpsc::channel(self.run.target.options.flush.queue_size);
                let (run, writer, in_task) = (Arc::clone(&self.run), self.writer, InTask::new(&self.run));
                self.loads.spawn(async move {
                    let loaded = load_all(run, writer, filled).await;
                    drop(in_task);
                    loaded
                });
                none.insert(queue)
            }
        };
        let Ok(place) = queue.reserve().await else {
            return Err(match self.loads.join_next().await {
                Some(ended) => early(ended),
                None => ended_early(),
            });
        };
        // Nothing is awaited between taking the buffer and handing it over.
        if let Some(buffer) = self.buffer.take() {
            place.send(buffer.fill(&self.filled)?);
        }
        Ok(())
    }

    /// Sends what is left and waits for all loads.
    ///
    /// # Errors
    /// The first failure of a load.
    pub(super) async fn finish(mut self) -> Result<()> {
        self.flush().await?;
        if self.queue.take().is_none() {
            return free_rest(&self.run, self.writer).await;
        }
        while let Some(ended) = self.loads.join_next().await {
            joined(ended)?;
        }
        Ok(())
    }
}

fn joined(ended: std::result::Result<Result<()>, JoinError>) -> Result<()> {
    ended.unwrap_or_else(|error| Err(DataFusionError::ExecutionJoin(Box::new(error)).into()))
}

/// Why a task ended before its queue did.
fn early(ended: std::result::Result<Result<()>, JoinError>) -> Error {
    match joined(ended) {
        Err(error) => error,
        Ok(()) => ended_early(),
    }
}

fn ended_early() -> Error {
    DataFusionError::Internal("the loads of a batch writer ended before its rows".into()).into()
}

/// Loads buffers in their order, until there are no more.
async fn load_all(run: Arc<LoadRun>, writer: u32, mut filled: mpsc::Receiver<Filled>) -> Result<()> {
    let mut number = writer;
    while let Some(Filled { chunks, rows, held, memory }) = filled.recv().await {
        let mut upload = Upload::whole(&run, number, writer, chunks)?;
        if run.labels.kind != Labels::New {
            upload.clear_leftover().await?;
        }
        let load = upload.finish(rows).await?;
        run.ended(load);
        drop((held, memory));
        number = next(&run, number)?;
    }
    free_rest(&run, number).await
}

/// The number of the load after that of `number`.
fn next(run: &LoadRun, number: u32) -> Result<u32> {
    number.checked_add(run.labels.series.writers).ok_or_else(|| {
        Error::config("sink.buffer-flush.max-rows", "there are too many batches for one statement, use larger ones")
    })
}

/// Frees the labels that an earlier attempt used and this one did not, from `number` on.
async fn free_rest(run: &LoadRun, mut number: u32) -> Result<()> {
    if run.labels.kind != Labels::Repeated {
        return Ok(());
    }
    // Loads are opened one after the other: behind a label that is not known there are none.
    while run.target.committer.clear_leftover(&run.target.load(run.labels.label(number), 0)).await? {
        number = next(run, number)?;
    }
    Ok(())
}

/// Rows that are not enough for a load yet.
struct Buffer {
    body: Body,
    chunks: Vec<Chunk>,
    /// Bytes of the chunks.
    memory: usize,
    /// When its first row came.
    since: Instant,
    held: Held,
}

impl Buffer {
    fn new(run: &LoadRun) -> Result<Self> {
        let held = Held { gauge: run.target.metrics.buffered.clone(), bytes: 0 };
        Ok(Self { body: Body::new(&run.target)?, chunks: Vec::new(), memory: 0, since: Instant::now(), held })
    }

    fn rows(&self) -> usize {
        usize::try_from(self.body.rows()).unwrap_or(usize::MAX)
    }

    fn append(&mut self, batch: &RecordBatch, start: usize, len: usize) -> Result<()> {
        self.body.append(batch, start, len)?;
        if let Some(chunk) = self.body.full_chunk() {
            self.memory += chunk.len();
            self.chunks.push(chunk);
        }
        self.held.grow_to(self.body.bytes());
        Ok(())
    }

    /// No more rows.
    fn fill(self, filled: &Arc<Memory>) -> Result<Filled> {
        let Self { body, mut chunks, held, .. } = self;
        let rows = body.rows();
        chunks.extend(Some(body.finish()?).filter(|rest| !rest.is_empty()));
        let memory = filled.take(chunks.iter().map(Chunk::len).sum());
        Ok(Filled { chunks, rows, held, memory })
    }
}

/// The whole body of a load.
struct Filled {
    chunks: Vec<Chunk>,
    rows: u64,
    held: Held,
    memory: Taken,
}

/// Memory of the filled buffers of a writer: those that wait and the one that is sent.
#[derive(Default)]
struct Memory {
    bytes: AtomicUsize,
    freed: Notify,
}

impl Memory {
    fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Acquire)
    }

    fn take(self: &Arc<Self>, bytes: usize) -> Taken {
        self.bytes.fetch_add(bytes, Ordering::AcqRel);
        Taken { memory: Arc::clone(self), bytes }
    }
}

/// A part of a [`Memory`], given back when it is dropped.
struct Taken {
    memory: Arc<Memory>,
    bytes: usize,
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.memory.bytes.fetch_sub(self.bytes, Ordering::AcqRel);
        // The writer alone waits, and looks again after each buffer.
        self.memory.freed.notify_one();
    }
}

/// Bytes of a buffer, before compression, in the gauge of all buffers for as long as it is there. What the server says
/// that it has read never changes it.
struct Held {
    gauge: Gauge,
    bytes: usize,
}

impl Held {
    fn grow_to(&mut self, bytes: usize) {
        self.gauge.add(bytes.saturating_sub(self.bytes));
        self.bytes = bytes;
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.gauge.sub(self.bytes);
    }
}
