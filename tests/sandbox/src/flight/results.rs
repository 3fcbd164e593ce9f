//! Results that wait for their `DoGet`.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::execution::SendableRecordBatchStream;
use futures::{StreamExt, stream};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use tonic::Status;

use super::{BATCH_ROWS, BatchStream};
use crate::random;

/// One endpoint's share of a result.
pub(crate) struct Pending {
    pub schema: SchemaRef,
    head: VecDeque<RecordBatch>,
    rest: Arc<tokio::sync::Mutex<SendableRecordBatchStream>>,
    /// Cancelled by the next statement of the token.
    valid: CancellationToken,
}

/// Results by fragment instance id.
#[derive(Default)]
pub(crate) struct FlightResults {
    waiting: Mutex<HashMap<String, Pending>>,
}

impl FlightResults {
    /// Registers a result as one endpoint; returns its id.
    pub fn register(&self, stream: SendableRecordBatchStream, valid: CancellationToken) -> String {
        let schema = stream.schema();
        let rest = Arc::new(tokio::sync::Mutex::new(stream));
        self.insert(Pending { schema, head: VecDeque::new(), rest, valid })
    }

    /// Registers a result as `endpoints` endpoints. Each gets a slice of the first batch and then what it can take
    /// of the rest, so a reader that skips one loses rows.
    ///
    /// # Errors
    /// The first batch failed.
    pub async fn register_parallel(
        &self,
        mut stream: SendableRecordBatchStream,
        valid: CancellationToken,
        endpoints: usize,
    ) -> Result<Vec<String>, datafusion::error::DataFusionError> {
        let schema = stream.schema();
        let first = stream.next().await.transpose()?;
        let rest = Arc::new(tokio::sync::Mutex::new(stream));
        let mut ids = Vec::with_capacity(endpoints);
        for i in 0..endpoints {
            let slice = first.as_ref().map(|batch| {
                let rows = batch.num_rows();
                let (from, to) = (rows * i / endpoints, rows * (i + 1) / endpoints);
                batch.slice(from, to - from)
            });
            let head = slice.into_iter().filter(|s| s.num_rows() > 0).collect();
            let (schema, rest, valid) = (Arc::clone(&schema), Arc::clone(&rest), valid.clone());
            ids.push(self.insert(Pending { schema, head, rest, valid }));
        }
        Ok(ids)
    }

    fn insert(&self, pending: Pending) -> String {
        let id = random::query_id();
        let mut waiting = self.waiting.lock();
        // Results of finished statements have no reader any more.
        waiting.retain(|_, p| !p.valid.is_cancelled());
        waiting.insert(id.clone(), pending);
        id
    }

    /// Takes a result; a second call finds none.
    pub fn take(&self, id: &str) -> Option<Pending> {
        self.waiting.lock().remove(id).filter(|p| !p.valid.is_cancelled())
    }

    /// Results that nobody fetched.
    pub fn len(&self) -> usize {
        self.waiting.lock().values().filter(|p| !p.valid.is_cancelled()).count()
    }
}

impl Pending {
    /// The batches, bounded in rows, until the end or the token's next statement.
    pub fn into_batches(self) -> BatchStream {
        let Pending { head, rest, valid, .. } = self;
        let state = (head, rest, valid, false);
        Box::pin(stream::unfold(state, |(mut head, rest, valid, ended)| async move {
            if ended {
                return None;
            }
            loop {
                if let Some(batch) = head.pop_front() {
                    if batch.num_rows() > BATCH_ROWS {
                        head.push_front(batch.slice(BATCH_ROWS, batch.num_rows() - BATCH_ROWS));
                        return Some((Ok(batch.slice(0, BATCH_ROWS)), (head, rest, valid, false)));
                    }
                    return Some((Ok(batch), (head, rest, valid, false)));
                }
                let next = async { rest.lock().await.next().await };
                let next = tokio::select! {
                    biased;
                    () = valid.cancelled() => {
                        let gone = Status::internal(
                            "ArrowFlightBatchLocalReader fetch arrow data failed, the result was cancelled",
                        );
                        return Some((Err(gone), (head, rest, valid, true)));
                    }
                    next = next => next,
                };
                match next {
                    None => return None,
                    Some(Ok(batch)) if batch.num_rows() == 0 => {}
                    Some(Ok(batch)) => head.push_back(batch),
                    Some(Err(error)) => {
                        let text = format!("ArrowFlightBatchLocalReader fetch arrow data failed, {error}");
                        return Some((Err(Status::internal(text)), (head, rest, valid, true)));
                    }
                }
            }
        }))
    }
}
