//! Flight sessions that wait to be used again.

use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::DorisClient;
use super::flight::{FlightSession, RestingSession};

/// Sessions that are kept, over all users of a client.
const MOST_RESTING: usize = 8;
/// A session that was not used for so long is closed instead of being used again: the server may have ended it.
const LONGEST_REST: Duration = Duration::from_secs(60);

/// Time that the command may take after which a session rests: a query whose rows are read waits for it.
const REST_TIMEOUT: Duration = Duration::from_secs(5);

/// Name and SQL text of the value.
pub(crate) type Variables = Vec<(&'static str, String)>;

/// The sessions of one client.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    resting: Mutex<Vec<Resting>>,
}

#[derive(Debug)]
struct Resting {
    session: RestingSession,
    variables: Variables,
    since: Instant,
}

impl Sessions {
    /// The youngest session with these variables, and all that rested too long.
    fn take(&self, variables: &Variables) -> (Option<RestingSession>, Vec<RestingSession>) {
        let mut resting = self.resting.lock();
        let old = resting.extract_if(.., |resting| resting.since.elapsed() >= LONGEST_REST);
        let old = old.map(|resting| resting.session).collect();
        let found = resting.iter().rposition(|resting| resting.variables == *variables);
        (found.map(|found| resting.remove(found).session), old)
    }

    /// Keeps a session, unless there are enough.
    fn keep(&self, session: RestingSession, variables: Variables) -> Option<RestingSession> {
        let mut resting = self.resting.lock();
        if resting.len() >= MOST_RESTING {
            return Some(session);
        }
        resting.push(Resting { session, variables, since: Instant::now() });
        None
    }

    pub fn any(&self) -> bool {
        !self.resting.lock().is_empty()
    }

    pub fn take_all(&self) -> Vec<RestingSession> {
        self.resting.lock().drain(..).map(|resting| resting.session).collect()
    }
}

impl DorisClient {
    /// A session with `variables` that rested; a client closes those that rested too long.
    pub(crate) fn rested_session(&self, variables: &Variables) -> Option<FlightSession> {
        let (found, old) = self.inner.sessions.take(variables);
        for session in old {
            // Dropping it closes it.
            drop(FlightSession::wake(self.clone(), session));
        }
        found.map(|session| FlightSession::wake(self.clone(), session))
    }

    /// Keeps a session whose result is read for the next statement with the same `variables`, or closes it.
    ///
    /// A server takes a query for running until the next command of its session, so one is sent.
    pub(crate) fn rest_session(&self, mut session: FlightSession, variables: Variables) -> BoxFuture<'_, ()> {
        async move {
            let Some((name, value)) = variables.first() else { return };
            let command = format!("SET {name} = {value}");
            match tokio::time::timeout(REST_TIMEOUT, session.query(&command)).await {
                Ok(Ok(_)) => {}
                // Dropping it closes it.
                Ok(Err(error)) => return tracing::debug!(%error, "a flight session is not kept"),
                Err(_) => return tracing::debug!("a flight session is not kept: its server does not answer"),
            }
            if let Some(session) = self.inner.sessions.keep(session.rest(), variables) {
                drop(FlightSession::wake(self.clone(), session));
            }
        }
        .boxed()
    }

    /// Closes the sessions that rest, best effort.
    pub(super) fn close_resting(&self) {
        for session in self.inner.sessions.take_all() {
            drop(FlightSession::wake(self.clone(), session));
        }
    }
}
