//! Bearer tokens and the sessions behind them.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::random;
use crate::session::Session;

/// One token: one connection context, one statement at a time.
pub(crate) struct FlightSession {
    pub token: String,
    pub user: String,
    /// Held while a statement runs, so that statements of one token queue up.
    pub session: tokio::sync::Mutex<Session>,
    /// Statements by prepared handle.
    prepared: Mutex<HashMap<String, String>>,
    /// Cancelled when the results of the latest statement are no longer valid.
    statement: Mutex<CancellationToken>,
}

impl fmt::Debug for FlightSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FlightSession").field("user", &self.user).finish_non_exhaustive()
    }
}

impl FlightSession {
    /// Invalidates what the previous statement left unread; the returned token guards the new results.
    pub fn begin_statement(&self) -> CancellationToken {
        let fresh = CancellationToken::new();
        std::mem::replace(&mut *self.statement.lock(), fresh.clone()).cancel();
        fresh
    }

    /// Keeps a statement; the handle is `<token>:<uuid>`.
    pub fn prepare(&self, sql: String) -> String {
        let handle = format!("{}:{}", self.token, random::uuid());
        self.prepared.lock().insert(handle.clone(), sql);
        handle
    }

    /// Statement of a handle; handles of other tokens are unknown here.
    pub fn prepared(&self, handle: &str) -> Option<String> {
        self.prepared.lock().get(handle).cloned()
    }

    /// Forgets a handle.
    pub fn close_prepared(&self, handle: &str) {
        self.prepared.lock().remove(handle);
    }
}

/// All open tokens.
#[derive(Debug, Default)]
pub(crate) struct FlightSessions {
    by_token: Mutex<BTreeMap<String, Arc<FlightSession>>>,
    changed: watch::Sender<u64>,
}

impl FlightSessions {
    /// Opens a session under a new token.
    pub fn open(&self, user: &str, session: Session) -> Arc<FlightSession> {
        let opened = Arc::new(FlightSession {
            token: random::token(),
            user: user.to_owned(),
            session: tokio::sync::Mutex::new(session),
            prepared: Mutex::default(),
            statement: Mutex::default(),
        });
        self.by_token.lock().insert(opened.token.clone(), Arc::clone(&opened));
        self.changed.send_modify(|n| *n += 1);
        opened
    }

    /// The session of a token.
    pub fn get(&self, token: &str) -> Option<Arc<FlightSession>> {
        self.by_token.lock().get(token).cloned()
    }

    /// Ends a token; its unread results are gone.
    pub fn close(&self, token: &str) {
        let closed = self.by_token.lock().remove(token);
        if let Some(session) = closed {
            session.statement.lock().cancel();
            self.changed.send_modify(|n| *n += 1);
        }
    }

    /// Ends all tokens.
    pub fn close_all(&self) {
        for (_, session) in std::mem::take(&mut *self.by_token.lock()) {
            session.statement.lock().cancel();
        }
        self.changed.send_modify(|n| *n += 1);
    }

    /// Tells of every token that is opened or closed from now on.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Users of the open tokens.
    pub fn users(&self) -> Vec<String> {
        self.by_token.lock().values().map(|s| s.user.clone()).collect()
    }
}
