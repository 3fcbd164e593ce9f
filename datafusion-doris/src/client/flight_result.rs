//! The result of a Flight statement: its parts, fetched from where the server says.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use arrow_flight::Ticket;
use arrow_flight::decode::FlightRecordBatchStream;
use arrow_flight::error::FlightError;
use datafusion::common::runtime::SpawnedTask;
use futures::future::BoxFuture;
use futures::{Stream, StreamExt, TryStreamExt};
use tokio::sync::mpsc;
use tonic::Code;
use tonic::transport::Channel;

use super::flight::{Connection, flight_error, status_error};
use super::invalid_text::Messages;
use super::memory::{Coming, Counted, ReadMemory};
use crate::error::{Error, Result, Retry};

/// Batches that a task which decodes them may be ahead of the consumer.
pub(super) const PREFETCH_BATCHES: usize = 2;
/// Parts of a result that are fetched at once where their order is of no matter.
const PARTS_AT_ONCE: usize = 4;

/// One part of a result.
///
/// Its ticket and the session's bearer token go to the hosts of `sources` and no others: those that the FE named in the
/// answer to the statement (BEs of its cluster, or itself), by the names of `doris.flight.host-map`. What a BE answers
/// names no further ones: gRPC knows no redirects, and locations in the data that it sends are not looked at.
#[derive(Debug)]
pub(super) struct ResultEndpoint {
    pub ticket: Ticket,
    /// Alternatives, tried in order: `host:port` and channel.
    pub sources: Vec<(String, Channel)>,
}

/// A statement's result, not yet read. Keep the [`super::FlightSession`] until the stream is read: the result lives in it.
#[derive(Debug)]
pub struct FlightQuery {
    schema: SchemaRef,
    endpoints: Vec<ResultEndpoint>,
    connection: Connection,
    /// `host:port` of the FE.
    authority: String,
    /// What errors about its values name.
    subject: String,
}

impl FlightQuery {
    pub(super) fn new(
        schema: SchemaRef,
        endpoints: Vec<ResultEndpoint>,
        connection: Connection,
        authority: String,
    ) -> Self {
        let subject = format!("(a result of {authority})");
        Self { schema, endpoints, connection, authority, subject }
    }

    /// The result, as one of this table where errors are about its values.
    pub(crate) fn of_table(self, table: &str) -> Self {
        Self { subject: table.to_string(), ..self }
    }

    /// The schema the server planned; the only one an empty result has. Batches may differ from it in the encoding
    /// of a column (for example dictionaries): their own schema is the truth.
    pub fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    /// Number of parts of the result. None is not the same as an empty result, which has a part too: such rows cannot be
    /// fetched, and reading them is an error.
    pub fn endpoints(&self) -> usize {
        self.endpoints.len()
    }

    /// All parts, one after the other, in the server's order. What is read ahead are the bytes that the connection takes
    /// without being asked.
    ///
    /// # Errors
    /// The stream's errors: [`Error::Server`], [`Error::Transport`]; a part that ends early is one. [`Error::Schema`] with
    /// the column's name for text that is no UTF-8. It ends with the first.
    ///
    /// # Cancellation
    /// Dropping the stream ends the transfer.
    pub fn into_stream(self) -> impl Stream<Item = Result<RecordBatch>> + Send + 'static {
        self.read(1, ReadMemory::default())
    }

    /// All parts, each once, several at a time and in no common order; else as [`Self::into_stream`].
    ///
    /// # Errors
    /// As [`Self::into_stream`].
    ///
    /// # Cancellation
    /// Dropping the stream ends the transfer.
    pub fn into_unordered_stream(self) -> impl Stream<Item = Result<RecordBatch>> + Send + 'static {
        self.into_counted_stream(ReadMemory::default())
    }

    /// [`Self::into_unordered_stream`], whose batches are counted until they are taken.
    pub(crate) fn into_counted_stream(
        self,
        memory: ReadMemory,
    ) -> impl Stream<Item = Result<RecordBatch>> + Send + 'static {
        self.read(PARTS_AT_ONCE, memory)
    }

    // In the task of whoever reads: the connection has one of its own, and a batch that changes tasks once more costs more
    // than to decode it.
    fn read(
        self,
        parts_at_once: usize,
        memory: ReadMemory,
    ) -> impl Stream<Item = Result<RecordBatch>> + Send + 'static {
        let Self { mut endpoints, connection, authority, subject, .. } = self;
        let subject: Arc<str> = subject.into();
        let batches = match (endpoints.pop(), endpoints.is_empty()) {
            (None, _) => {
                let message = "the answer names no flight endpoint, so its rows cannot be fetched".into();
                let operation = "the statement".into();
                let error = Error::Server { host: authority, operation, code: None, message };
                futures::stream::once(async { Err(error) }).boxed()
            }
            (Some(only), true) => read_endpoint(connection, subject, only, memory.coming()).boxed(),
            (Some(last), false) => {
                endpoints.push(last);
                let parts = futures::stream::iter(endpoints)
                    .map(move |part| read_endpoint(connection.clone(), Arc::clone(&subject), part, memory.coming()));
                match parts_at_once {
                    1 => parts.flatten().boxed(),
                    _ => parts.map(StreamExt::boxed).flatten_unordered(parts_at_once).boxed(),
                }
            }
        };
        futures::stream::unfold(Some(batches), |batches| async move {
            let mut batches = batches?;
            let batch = batches.next().await?;
            let rest = batch.is_ok().then_some(batches);
            Some((batch, rest))
        })
    }
}

/// What `reader` sends, read by a task of its own that starts with the first poll and ends with the stream. A panic in
/// it is an error, not the end.
pub(super) fn spawned(
    host: &'static str,
    reader: BoxFuture<'static, ()>,
    receiver: mpsc::Receiver<Result<Counted>>,
) -> impl Stream<Item = Result<RecordBatch>> + Send + 'static {
    futures::stream::unfold(ReadState::Start(Some(reader), receiver), move |state| async move {
        let (task, mut receiver) = match state {
            ReadState::Start(reader, receiver) => (reader.map(SpawnedTask::spawn), receiver),
            ReadState::Running(task, receiver) => (task, receiver),
        };
        match receiver.recv().await {
            Some(item) => Some((item.map(Counted::taken), ReadState::Running(task, receiver))),
            // The reader ended; a panic in it must not look like the end of the result.
            None => match task?.join().await {
                Ok(()) => None,
                Err(panic) => {
                    let error = Error::Transport {
                        host: host.into(),
                        operation: "reading a result".into(),
                        retry: Retry::Never,
                        source: Box::new(panic),
                    };
                    Some((Err(error), ReadState::Running(None, receiver)))
                }
            },
        }
    })
}

enum ReadState {
    Start(Option<BoxFuture<'static, ()>>, mpsc::Receiver<Result<Counted>>),
    Running(Option<SpawnedTask<()>>, mpsc::Receiver<Result<Counted>>),
}

/// The batches of one part.
fn read_endpoint(
    connection: Connection,
    subject: Arc<str>,
    endpoint: ResultEndpoint,
    coming: Coming,
) -> impl Stream<Item = Result<RecordBatch>> + Send + 'static {
    let opened = async move {
        let mut failure = None;
        for (authority, channel) in endpoint.sources {
            let request = connection.request(endpoint.ticket.clone());
            match connection.service(channel).do_get(request).await {
                Ok(answer) => {
                    let messages = Messages::default();
                    let kept = messages.clone();
                    let data = answer.into_inner().map_err(FlightError::from);
                    let data = data.inspect_ok(move |message| kept.keep(message));
                    let batches = FlightRecordBatchStream::new_from_flight_data(data);
                    return Ok(batches.map(move |batch| match batch {
                        Ok(batch) => coming.passed(batch),
                        Err(error @ FlightError::Tonic(_)) => Err(flight_error(&authority, error)),
                        // It arrived and cannot be decoded.
                        Err(error) => Err(match messages.invalid_text() {
                            Some(reason) => Error::schema(subject.as_ref(), reason),
                            None => flight_error(&authority, error),
                        }),
                    }));
                }
                Err(status) => {
                    // Only a server that was not reached leaves the single-use ticket to the next alternative.
                    let unreachable = status.code() == Code::Unavailable;
                    failure = Some(status_error(&authority, "fetching the result", status));
                    if !unreachable {
                        break;
                    }
                }
            }
        }
        Err(failure.unwrap_or_else(|| Error::Server {
            host: "the cluster".into(),
            operation: "fetching the result".into(),
            code: None,
            message: "a flight endpoint without a location".into(),
        }))
    };
    futures::stream::once(opened).try_flatten()
}
