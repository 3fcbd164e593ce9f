//! Who is connected and what they run: SHOW PROCESSLIST, KILL, and the end of a statement that takes too long.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use arrow::array::RecordBatch;
use datafusion::common::DataFusionError;
use datafusion::execution::SendableRecordBatchStream;
use futures::{Stream, StreamExt};
use parking_lot::Mutex;
use tokio::time::{Instant, Sleep};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use crate::error::SqlError;

/// What a connection does at the moment.
#[derive(Debug, Clone, Default)]
pub(crate) struct Running {
    pub(crate) database: Option<String>,
    /// Text of the statement that runs; empty when none does.
    pub(crate) sql: String,
    pub(crate) query_id: String,
    /// Since when it runs or is idle.
    pub(crate) since_ms: i64,
    stop: Option<CancellationToken>,
}

/// One session.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) id: u64,
    pub(crate) user: String,
    pub(crate) host: String,
    pub(crate) login_ms: i64,
    running: Mutex<Running>,
    closed: CancellationToken,
}

impl Process {
    pub(crate) fn running(&self) -> Running {
        self.running.lock().clone()
    }

    /// Ends the running statement, and the connection too.
    pub(crate) fn kill(&self, connection: bool) {
        if connection {
            self.closed.cancel();
        }
        if let Some(stop) = &self.running.lock().stop {
            stop.cancel();
        }
    }

    /// Ends the connection behind the running statement.
    pub(crate) fn close(&self) {
        self.closed.cancel();
    }

    /// Done when the connection was killed.
    pub(crate) fn closed(&self) -> CancellationToken {
        self.closed.clone()
    }

    fn begin(&self, sql: &str, database: Option<&str>, now_ms: i64) -> (CancellationToken, String) {
        let stop = CancellationToken::new();
        let query_id = crate::random::query_id();
        *self.running.lock() = Running {
            database: database.map(str::to_owned),
            sql: sql.to_owned(),
            query_id: query_id.clone(),
            since_ms: now_ms,
            stop: Some(stop.clone()),
        };
        (stop, query_id)
    }

    /// The statement is over; another one may have begun before its rows were dropped.
    fn end(&self, query_id: &str) {
        let mut running = self.running.lock();
        if running.query_id == query_id {
            running.sql.clear();
            running.stop = None;
        }
    }
}

/// All sessions of a cluster.
#[derive(Debug, Default)]
pub(crate) struct Processes(Mutex<BTreeMap<u64, Arc<Process>>>);

/// A session's place in the list; it leaves the list when this is dropped.
#[derive(Debug)]
pub(crate) struct Listed {
    pub(crate) process: Arc<Process>,
    list: Arc<Processes>,
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.list.0.lock().remove(&self.process.id);
    }
}

impl Processes {
    pub(crate) fn open(self: &Arc<Self>, id: u64, user: &str, host: &str, now_ms: i64) -> Listed {
        let connection = Arc::new(Process {
            id,
            user: user.to_owned(),
            host: host.to_owned(),
            login_ms: now_ms,
            running: Mutex::new(Running { since_ms: now_ms, ..Running::default() }),
            closed: CancellationToken::new(),
        });
        self.0.lock().insert(id, Arc::clone(&connection));
        Listed { process: connection, list: Arc::clone(self) }
    }

    pub(crate) fn list(&self) -> Vec<Arc<Process>> {
        self.0.lock().values().cloned().collect()
    }

    pub(crate) fn find(&self, id: u64) -> Option<Arc<Process>> {
        self.0.lock().get(&id).cloned()
    }
}

/// A statement that is being watched: it ends when it is cancelled or its time is over.
pub(crate) struct Watch {
    connection: Arc<Process>,
    query_id: String,
    stop: CancellationToken,
    deadline: Option<Instant>,
    late: fn() -> SqlError,
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.connection.end(&self.query_id);
    }
}

impl Watch {
    pub(crate) fn new(
        connection: &Arc<Process>,
        (sql, database, now_ms): (&str, Option<&str>, i64),
        deadline: Option<Instant>,
        late: fn() -> SqlError,
    ) -> Self {
        let (stop, query_id) = connection.begin(sql, database, now_ms);
        Self { connection: Arc::clone(connection), query_id, stop, deadline, late }
    }

    fn cancelled(connection: &Process) -> SqlError {
        SqlError::detail(format!("cancel query by user from {}", connection.host))
    }

    /// Runs a statement under the watch. Planning a query is not cut short by its deadline: only what the BEs run is.
    pub(crate) async fn run<T>(
        &self,
        query: bool,
        work: impl Future<Output = Result<T, SqlError>>,
    ) -> Result<T, SqlError> {
        tokio::select! {
            biased;
            () = self.stop.cancelled() => Err(Self::cancelled(&self.connection)),
            () = sleep_until(self.deadline.filter(|_| !query)) => Err((self.late)()),
            done = work => done,
        }
    }

    /// Keeps the watch over the rows.
    pub(crate) fn stream(self, rows: SendableRecordBatchStream) -> WatchedRows {
        let cancelled = Box::pin(self.stop.clone().cancelled_owned());
        let deadline = self.deadline.map(|deadline| Box::pin(tokio::time::sleep_until(deadline)));
        WatchedRows { watch: Some(self), rows, cancelled, deadline }
    }
}

async fn sleep_until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// Rows under a watch.
pub(crate) struct WatchedRows {
    watch: Option<Watch>,
    rows: SendableRecordBatchStream,
    cancelled: Pin<Box<WaitForCancellationFutureOwned>>,
    deadline: Option<Pin<Box<Sleep>>>,
}

impl Stream for WatchedRows {
    type Item = Result<RecordBatch, DataFusionError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Some(watch) = &self.watch else { return Poll::Ready(None) };
        let (connection, late) = (Arc::clone(&watch.connection), watch.late);
        if self.cancelled.as_mut().poll(cx).is_ready() {
            self.watch = None;
            let error = Watch::cancelled(&connection);
            return Poll::Ready(Some(Err(DataFusionError::External(Box::new(error)))));
        }
        if self.deadline.as_mut().is_some_and(|deadline| deadline.as_mut().poll(cx).is_ready()) {
            self.watch = None;
            return Poll::Ready(Some(Err(DataFusionError::External(Box::new(late())))));
        }
        let polled = self.rows.poll_next_unpin(cx);
        if matches!(polled, Poll::Ready(None)) {
            self.watch = None;
        }
        polled
    }
}
