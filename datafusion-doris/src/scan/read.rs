//! One statement of a scan: where it runs, what is tried again, and what is left behind.

use std::sync::Arc;
use std::task::{Context, Poll};

use arrow::record_batch::RecordBatch;
use futures::stream::BoxStream;
use futures::{Stream, StreamExt, TryStreamExt};
use tokio::time::Instant;

use super::plan::{ReadSettings, Transport};
use super::text;
use crate::client::retry::Backoff;
use crate::client::{DorisClient, FlightQuery, FlightSession, Place, ReadMemory, Variables};
use crate::error::{Error, Result, Retry};
use crate::types::DorisType;

type Batches = BoxStream<'static, Result<RecordBatch>>;

/// A SELECT that may be run again.
#[derive(Debug, Clone)]
pub(crate) struct Statement {
    pub client: DorisClient,
    /// For error texts.
    pub table: String,
    pub sql: String,
    pub settings: ReadSettings,
    /// Types of the columns that it gives.
    pub types: Arc<[DorisType]>,
    /// Rows of a batch where this side makes them (MySQL protocol).
    pub batch_rows: usize,
    /// Where batches are counted that are read ahead.
    pub memory: ReadMemory,
}

/// An error, and whether another attempt may end better.
struct Failure {
    error: Error,
    again: bool,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self { error, again: false }
    }
}

impl Statement {
    /// Runs it and gives its batches as they came, in no order unless it asks for one and comes in one part.
    ///
    /// Up to its first batch it is run again, on another session, when a node is lost or refuses to give the rows (the FE
    /// then picks another replica, or another FE is asked): `doris.request.retries` attempts in all, none of which begins
    /// after the connect timeout. Later errors, an early end among them, are the stream's.
    ///
    /// # Errors
    /// [`Error::Server`] for what Doris refuses, [`Error::Auth`], [`Error::Transport`].
    ///
    /// # Cancellation
    /// Dropping future or stream ends the statement and closes its session.
    pub async fn run(self) -> Result<Batches> {
        let place = self.client.statement_place().await?;
        let options = self.client.options();
        let (began, mut backoff) = (Instant::now(), Backoff::new());
        let mut attempts_left = options.retries.max(1);
        loop {
            attempts_left -= 1;
            let failure = match self.attempt().await {
                Ok(batches) => {
                    return Ok(placed(batches, place).boxed());
                }
                Err(failure) => failure,
            };
            if !failure.again || attempts_left == 0 || began.elapsed() >= options.connect_timeout {
                return Err(failure.error);
            }
            tracing::debug!(table = %self.table, error = %failure.error, "a statement gave no rows, running it again");
            tokio::time::sleep(backoff.next_pause()).await;
        }
    }

    async fn attempt(&self) -> Result<Batches, Failure> {
        match self.settings.transport {
            Transport::Flight => self.by_flight().await,
            Transport::Mysql => self.by_mysql().await,
        }
    }

    async fn by_flight(&self) -> Result<Batches, Failure> {
        let variables = self.variables();
        let (session, query) = match self.on_rested_session(&variables).await {
            Some(running) => running,
            None => {
                let mut session = self.open(&variables).await?;
                let query = session.query(&self.sql).await;
                (session, query.map_err(|error| Failure { again: error.retry() != Retry::Never, error })?)
            }
        };
        if query.endpoints() == 0 {
            // Builds differ in which queries they answer past their BEs, whose rows Flight does not give then.
            tracing::debug!(table = %self.table, "the answer names no flight endpoint, reading by the MySQL protocol");
            drop(session);
            for doris in self.types.iter() {
                text::check_readable(doris).map_err(|reason| {
                    let what =
                        format!("reading {} over the mysql protocol, as the server serves this query", self.table);
                    Failure { again: false, error: Error::unsupported(what, reason) }
                })?;
            }
            return self.by_mysql().await;
        }
        let batches = query.of_table(&self.table).into_counted_stream(self.memory.clone()).boxed();
        begun(resting(self.client.clone(), session, variables, batches), |error| match error {
            // A BE that cannot give the rows; another one may.
            Error::Server { .. } => true,
            error => error.retry() != Retry::Never,
        })
        .await
    }

    /// The statement on a session that was used before; `None` when there is none, or it does not run there: the session
    /// may have ended meanwhile.
    async fn on_rested_session(&self, variables: &Variables) -> Option<(FlightSession, FlightQuery)> {
        let mut session = self.client.rested_session(variables)?;
        match session.query(&self.sql).await {
            Ok(query) => Some((session, query)),
            Err(error) => {
                tracing::debug!(%error, "a kept flight session is of no use, opening another one");
                None
            }
        }
    }

    async fn open(&self, variables: &Variables) -> Result<FlightSession> {
        let texts: Vec<(&str, &str)> = variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let mut session = self.client.open_flight(&texts).await?;
        // Rows that the FE reads past its planner have no Flight endpoint.
        match session.query("SET enable_short_circuit_query = false").await {
            Ok(_) => Ok(session),
            Err(error @ Error::Server { .. }) => {
                tracing::debug!(%error, "the server has no short circuit to switch off");
                Ok(session)
            }
            Err(error) => Err(error),
        }
    }

    async fn by_mysql(&self) -> Result<Batches, Failure> {
        let reader = self.client.open_rows(&self.variables()).await?;
        let (table, types) = (self.table.clone(), Arc::clone(&self.types));
        let texts = reader.into_stream(self.sql.clone(), self.batch_rows, self.memory.clone());
        let batches = texts.map(move |batch| text::typed(&table, &types, &batch?));
        // The FE tells an error of its own either way: the statement is wrong, or no replica is left.
        begun(batches, |error| error.retry() != Retry::Never).await
    }

    fn variables(&self) -> Variables {
        let mut variables = read_variables(&self.client);
        variables.extend(self.settings.exec_mem_limit.map(|bytes| ("exec_mem_limit", bytes.to_string())));
        variables
    }
}

/// Values and texts of times must not depend on the server's settings, and a backslash in a literal is an escape.
pub(super) fn read_variables(client: &DorisClient) -> Variables {
    let query_timeout = client.options().query_timeout.as_secs().to_string();
    vec![("time_zone", "'+00:00'".into()), ("sql_mode", "''".into()), ("query_timeout", query_timeout)]
}

/// `batches` with the place of their statement, which is free again at their end, even where the stream is kept longer.
fn placed(mut batches: Batches, place: Place) -> impl Stream<Item = Result<RecordBatch>> + Send {
    let mut place = Some(place);
    let next = move |context: &mut Context<'_>| {
        let Some(held) = &mut place else { return Poll::Ready(None) };
        held.waits(true);
        let polled = batches.poll_next_unpin(context);
        match &polled {
            Poll::Ready(None) => place = None,
            Poll::Ready(Some(_)) => held.waits(false),
            Poll::Pending => {}
        }
        polled
    };
    futures::stream::poll_fn(next)
}

/// Waits for the first batch, so that an error before it can still be answered by another attempt.
async fn begun(
    batches: impl Stream<Item = Result<RecordBatch>> + Send + 'static,
    again: impl Fn(&Error) -> bool,
) -> Result<Batches, Failure> {
    // An empty result has ended here, and is asked again by whoever reads it.
    let mut batches = batches.boxed().fuse();
    match batches.try_next().await {
        Ok(first) => Ok(futures::stream::iter(first.map(Ok)).chain(batches).boxed()),
        Err(error) => Err(Failure { again: again(&error), error }),
    }
}

/// `batches`, with the session alive until their end and kept for the next statement then.
fn resting(
    client: DorisClient,
    session: FlightSession,
    variables: Variables,
    batches: Batches,
) -> impl Stream<Item = Result<RecordBatch>> + Send {
    futures::stream::unfold(Some((batches, client, session, variables)), |state| async move {
        let (mut batches, client, session, variables) = state?;
        match batches.next().await {
            Some(Ok(batch)) => Some((Ok(batch), Some((batches, client, session, variables)))),
            Some(Err(error)) => Some((Err(error), None)),
            None => {
                drop(batches);
                client.rest_session(session, variables).await;
                None
            }
        }
    })
}
