//! Results that wait for their `DoGet`.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::compute::concat_batches;
use arrow::datatypes::{Schema, SchemaRef};
use datafusion::execution::SendableRecordBatchStream;
use futures::{Stream, StreamExt, stream};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tonic::Status;

use super::replay::{Part, Replays};
use super::{BatchStream, DataStream, encode};
use crate::queries::EndOfReading;
use crate::random;

/// What holds for a result.
#[derive(Debug, Clone)]
pub(crate) struct Terms {
    /// Cancelled by the next statement of the token.
    pub valid: CancellationToken,
    /// Time at which a result that nobody reads is cancelled, milliseconds.
    pub until_ms: i64,
    /// The query, in builds that take it for running until its results are read.
    pub _query: Option<Arc<EndOfReading>>,
}

/// Where a result is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Holder {
    /// The FE.
    Fe,
    /// The backend of this number.
    Be(usize),
}

/// How a result is sent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sink {
    /// Most rows of a batch.
    pub rows: usize,
    /// A failure ends the stream without an error.
    pub failing_is_empty: bool,
}

/// One endpoint's share of a result.
pub(crate) struct Pending {
    pub schema: SchemaRef,
    pub holder: Holder,
    rows: Rows,
    terms: Terms,
}

enum Rows {
    /// Of a running plan.
    Plan { head: VecDeque<RecordBatch>, rest: Arc<tokio::sync::Mutex<SendableRecordBatchStream>> },
    /// Encoded before.
    Replay(Part),
}

/// Results by fragment instance id.
#[derive(Default)]
pub(crate) struct FlightResults {
    waiting: Mutex<HashMap<String, Pending>>,
    /// Counts results, to spread them over the backends.
    placed: AtomicUsize,
    changed: watch::Sender<u64>,
    /// What plain reads of replayed tables were frozen to.
    pub replays: Replays,
}

impl FlightResults {
    /// The backend that takes the next result, of so many.
    pub fn next_backend(&self, backends: usize) -> usize {
        self.placed.fetch_add(1, Ordering::Relaxed) % backends.max(1)
    }

    /// Registers a result as one endpoint; returns its id.
    pub fn register(&self, stream: SendableRecordBatchStream, holder: Holder, terms: Terms) -> String {
        let schema = stream.schema();
        let rest = Arc::new(tokio::sync::Mutex::new(stream));
        self.insert(Pending { schema, holder, rows: Rows::Plan { head: VecDeque::new(), rest }, terms })
    }

    /// Registers a result as one endpoint per holder. Each gets a slice of the first batch and then what it can take of
    /// the rest, so a reader that skips one loses rows.
    ///
    /// # Errors
    /// The first batch failed.
    pub async fn register_parallel(
        &self,
        mut stream: SendableRecordBatchStream,
        holders: &[Holder],
        terms: Terms,
    ) -> Result<Vec<String>, datafusion::error::DataFusionError> {
        let schema = stream.schema();
        let first = stream.next().await.transpose()?;
        let rest = Arc::new(tokio::sync::Mutex::new(stream));
        let mut ids = Vec::with_capacity(holders.len());
        for (i, holder) in holders.iter().enumerate() {
            let slice = first.as_ref().map(|batch| {
                let rows = batch.num_rows();
                let (from, to) = (rows * i / holders.len(), rows * (i + 1) / holders.len());
                batch.slice(from, to - from)
            });
            let head = slice.into_iter().filter(|s| s.num_rows() > 0).collect();
            let rows = Rows::Plan { head, rest: Arc::clone(&rest) };
            ids.push(self.insert(Pending { schema: Arc::clone(&schema), holder: *holder, rows, terms: terms.clone() }));
        }
        Ok(ids)
    }

    /// Registers an encoded result.
    pub fn register_replay(&self, part: Part, holder: Holder, terms: Terms) -> String {
        self.insert(Pending { schema: part.schema(), holder, rows: Rows::Replay(part), terms })
    }

    fn insert(&self, pending: Pending) -> String {
        let id = random::query_id();
        let mut waiting = self.waiting.lock();
        // Results of finished statements have no reader any more.
        waiting.retain(|_, p| !p.terms.valid.is_cancelled());
        waiting.insert(id.clone(), pending);
        drop(waiting);
        self.changed.send_modify(|n| *n += 1);
        id
    }

    /// Takes a result; a second call finds none.
    pub fn take(&self, id: &str, now_ms: i64) -> Option<Pending> {
        let taken = self.waiting.lock().remove(id)?;
        self.changed.send_modify(|n| *n += 1);
        let valid = !taken.terms.valid.is_cancelled() && now_ms <= taken.terms.until_ms;
        valid.then_some(taken)
    }

    /// Takes a result if it was encoded before and is held by this backend.
    pub fn take_replay(&self, id: &str, backend: usize, now_ms: i64) -> Option<Replayed> {
        let mut waiting = self.waiting.lock();
        let found = waiting.get(id)?;
        let fits = matches!(found.rows, Rows::Replay(_))
            && found.holder == Holder::Be(backend)
            && !found.terms.valid.is_cancelled()
            && now_ms <= found.terms.until_ms;
        let taken = fits.then(|| waiting.remove(id)).flatten()?;
        drop(waiting);
        self.changed.send_modify(|n| *n += 1);
        match taken.rows {
            Rows::Replay(part) => Some(Replayed { part, terms: taken.terms }),
            Rows::Plan { .. } => None,
        }
    }

    /// Drops what a backend held that is gone.
    pub fn forget(&self, backend: usize) {
        self.waiting.lock().retain(|_, p| p.holder != Holder::Be(backend));
        self.changed.send_modify(|n| *n += 1);
    }

    /// Cancels results that nobody fetched in time.
    pub fn sweep(&self, now_ms: i64) {
        let mut waiting = self.waiting.lock();
        let before = waiting.len();
        waiting.retain(|_, p| !p.terms.valid.is_cancelled() && now_ms <= p.terms.until_ms);
        let gone = before - waiting.len();
        drop(waiting);
        if gone > 0 {
            self.changed.send_modify(|n| *n += 1);
        }
    }

    /// Tells of every result that begins or ends to wait from now on.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Results that nobody fetched.
    pub fn len(&self) -> usize {
        self.waiting.lock().values().filter(|p| !p.terms.valid.is_cancelled()).count()
    }
}

/// An encoded result that is being read.
pub(crate) struct Replayed {
    pub part: Part,
    pub terms: Terms,
}

/// What a reader gets whose result was invalidated meanwhile.
pub(crate) fn cancelled() -> Status {
    Status::internal("ArrowFlightBatchLocalReader fetch arrow data failed, the result was cancelled")
}

impl Pending {
    /// The messages, until the end or the token's next statement.
    pub fn into_data(self, sink: Sink) -> DataStream {
        let Pending { schema, rows, terms, .. } = self;
        match rows {
            Rows::Plan { head, rest } => encode(schema, batches(head, rest, terms, sink)),
            Rows::Replay(part) => {
                let messages = part.into_messages().map(|message| message.data());
                let valid = terms.valid.clone();
                Box::pin(while_valid(stream::iter(messages), valid, terms))
            }
        }
    }

    /// The batches of a plan; encoded results have messages only.
    pub fn into_plan(self, sink: Sink) -> Result<BatchStream, Self> {
        match self.rows {
            Rows::Plan { head, rest } => Ok(batches(head, rest, self.terms, sink)),
            Rows::Replay(_) => Err(self),
        }
    }
}

/// Ends with an error when the result is invalidated; `kept` lives as long as the stream.
fn while_valid<S>(stream: S, valid: CancellationToken, kept: Terms) -> impl Stream<Item = S::Item> + Send + use<S>
where
    S: Stream<Item = Result<arrow_flight::FlightData, Status>> + Send + Unpin,
{
    stream::unfold((stream, valid, kept, false), |(mut stream, valid, kept, ended)| async move {
        if ended {
            return None;
        }
        if valid.is_cancelled() {
            return Some((Err(cancelled()), (stream, valid, kept, true)));
        }
        let item = stream.next().await?;
        Some((item, (stream, valid, kept, false)))
    })
}

/// Batches as large as the server's setting lets them be, made from what the plan gives.
fn batches(
    head: VecDeque<RecordBatch>,
    rest: Arc<tokio::sync::Mutex<SendableRecordBatchStream>>,
    terms: Terms,
    sink: Sink,
) -> BatchStream {
    let reader = Reader { head, rest, terms, sink, taken: Vec::new(), rows: 0, end: None };
    Box::pin(stream::unfold(reader, |mut reader| async move { reader.next().await.map(|item| (item, reader)) }))
}

/// Reads a plan for one endpoint.
struct Reader {
    /// Batches to look at before the plan is asked for more.
    head: VecDeque<RecordBatch>,
    rest: Arc<tokio::sync::Mutex<SendableRecordBatchStream>>,
    terms: Terms,
    sink: Sink,
    /// Parts of the batch that is being filled.
    taken: Vec<RecordBatch>,
    rows: usize,
    /// Set when the plan is read: nothing, or the failure that is still to be told.
    end: Option<Option<Status>>,
}

impl Reader {
    async fn next(&mut self) -> Option<Result<RecordBatch, Status>> {
        while self.end.is_none() && self.rows < self.sink.rows {
            let Some(batch) = self.head.pop_front() else {
                self.pull().await;
                continue;
            };
            let room = self.sink.rows - self.rows;
            if batch.num_rows() > room {
                self.head.push_front(batch.slice(room, batch.num_rows() - room));
                self.take(batch.slice(0, room));
            } else {
                self.take(batch);
            }
        }
        if !self.taken.is_empty() {
            return Some(self.filled());
        }
        self.end.as_mut()?.take().map(Err)
    }

    fn take(&mut self, batch: RecordBatch) {
        self.rows += batch.num_rows();
        self.taken.push(batch);
    }

    fn filled(&mut self) -> Result<RecordBatch, Status> {
        self.rows = 0;
        let mut parts = std::mem::take(&mut self.taken);
        if parts.len() == 1
            && let Some(only) = parts.pop()
        {
            return Ok(only);
        }
        let rows = parts.iter().map(RecordBatch::num_rows).sum();
        let schema = parts.first().map(RecordBatch::schema).unwrap_or_else(|| Arc::new(Schema::empty()));
        let joined = if schema.fields().is_empty() {
            RecordBatch::try_new_with_options(schema, vec![], &RecordBatchOptions::new().with_row_count(Some(rows)))
        } else {
            concat_batches(&schema, &parts)
        };
        joined.map_err(|e| Status::internal(e.to_string()))
    }

    /// Asks the plan for its next batch.
    async fn pull(&mut self) {
        let rest = Arc::clone(&self.rest);
        let next = async { rest.lock().await.next().await };
        let next = tokio::select! {
            biased;
            () = self.terms.valid.cancelled() => {
                // Rows that were not sent are of no use to anyone.
                self.taken.clear();
                self.end = Some(Some(cancelled()));
                return;
            }
            next = next => next,
        };
        match next {
            None => self.end = Some(None),
            Some(Ok(batch)) if batch.num_rows() == 0 => {}
            Some(Ok(batch)) => self.head.push_back(batch),
            Some(Err(_)) if self.sink.failing_is_empty => self.end = Some(None),
            Some(Err(error)) => {
                let text = format!("ArrowFlightBatchLocalReader fetch arrow data failed, {error}");
                self.end = Some(Some(Status::internal(text)));
            }
        }
    }
}
