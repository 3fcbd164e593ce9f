//! The connection behind a bearer token: one context, one command at a time.

use std::collections::HashMap;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::MutexGuard;
use tokio_util::sync::CancellationToken;
use tonic::Status;

use super::config::Governance;
use crate::connections::Slot;
use crate::queries::QueryGuard;
use crate::random;
use crate::session::Session;

/// One connection.
pub(crate) struct FlightSession {
    pub token: String,
    pub user: String,
    /// Connection id.
    pub id: u64,
    context: tokio::sync::Mutex<Session>,
    /// Statements by the id in their handle.
    prepared: Mutex<HashMap<String, String>>,
    statement: Mutex<Unread>,
    /// Cancelled when the connection ends.
    closed: CancellationToken,
    /// Cancelled by KILL.
    killed: CancellationToken,
    /// Commands that run or wait.
    busy: AtomicUsize,
    active_ms: AtomicI64,
    wait_timeout_s: AtomicU64,
    query_timeout_s: AtomicU64,
    slot: Mutex<Option<Slot>>,
}

/// What the latest statement left to be read.
#[derive(Default)]
struct Unread {
    /// Cancelled when the results are no longer valid.
    valid: CancellationToken,
    /// The query, while the FE takes it for running.
    query: Option<Arc<QueryGuard>>,
}

impl Drop for Unread {
    fn drop(&mut self) {
        self.valid.cancel();
        if let Some(query) = &self.query {
            query.close();
        }
    }
}

impl fmt::Debug for FlightSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FlightSession").field("user", &self.user).field("id", &self.id).finish_non_exhaustive()
    }
}

impl FlightSession {
    /// A connection of a token.
    pub fn new(token: &str, context: Session, slot: Slot) -> Self {
        let number = |name: &str| context.variables.number(name).unwrap_or(0);
        Self {
            token: token.to_owned(),
            user: context.user().to_owned(),
            id: context.id(),
            active_ms: AtomicI64::new(context.engine.config().clock.now_ms()),
            wait_timeout_s: AtomicU64::new(number("wait_timeout")),
            query_timeout_s: AtomicU64::new(number("query_timeout")),
            prepared: Mutex::default(),
            statement: Mutex::default(),
            closed: CancellationToken::new(),
            killed: context.listed.process.closed(),
            busy: AtomicUsize::new(0),
            slot: Mutex::new(Some(slot)),
            context: tokio::sync::Mutex::new(context),
        }
    }

    /// Waits for the commands before this one. The newest build waits as long as a query may run, and then gives up.
    pub async fn command(&self, governance: Governance) -> Result<Command<'_>, Status> {
        let waiting = Busy::new(&self.busy);
        let context = if governance == Governance::OnePool {
            let seconds = self.query_timeout_s.load(Ordering::Relaxed);
            match tokio::time::timeout(Duration::from_secs(seconds), self.context.lock()).await {
                Ok(context) => context,
                Err(_) => {
                    return Err(Status::unavailable(format!(
                        "another command of this Arrow Flight SQL session is still running after {seconds} seconds, connection id: {}",
                        self.id
                    )));
                }
            }
        } else {
            self.context.lock().await
        };
        if self.closed.is_cancelled() {
            return Err(Status::unauthenticated(format!(
                "this Arrow Flight SQL session was closed, connection id: {}; reconnect to run further commands",
                self.id
            )));
        }
        self.touch(&context);
        Ok(Command { session: self, context, _busy: waiting })
    }

    fn touch(&self, context: &Session) {
        self.active_ms.store(context.engine.config().clock.now_ms(), Ordering::Relaxed);
    }

    /// No command for longer than `wait_timeout`.
    pub fn is_idle(&self, now_ms: i64) -> bool {
        let timeout_ms = i64::try_from(self.wait_timeout_s.load(Ordering::Relaxed).saturating_mul(1000));
        let idle_ms = now_ms - self.active_ms.load(Ordering::Relaxed);
        self.busy.load(Ordering::Relaxed) == 0 && timeout_ms.is_ok_and(|timeout| idle_ms > timeout)
    }

    /// Ended by KILL CONNECTION.
    pub fn is_killed(&self) -> bool {
        self.killed.is_cancelled()
    }

    /// Told when the connection ends.
    pub fn closed(&self) -> &CancellationToken {
        &self.closed
    }

    /// Invalidates what the previous statement left unread; the returned token guards the new results.
    pub fn begin_statement(&self) -> CancellationToken {
        let fresh = Unread::default();
        let valid = fresh.valid.clone();
        *self.statement.lock() = fresh;
        valid
    }

    /// Keeps a query open until the next statement.
    pub fn keep_open(&self, query: Arc<QueryGuard>) {
        if !self.closed.is_cancelled() {
            self.statement.lock().query = Some(query);
        }
    }

    /// Ends the connection: its unread results are gone and a running statement is told.
    pub fn end(&self) {
        self.closed.cancel();
        *self.statement.lock() = Unread::default();
        self.slot.lock().take();
    }

    /// Keeps a statement; the handle is `<token>:<uuid>`.
    pub fn prepare(&self, sql: String) -> String {
        let id = random::uuid();
        let handle = format!("{}:{id}", self.token);
        self.prepared.lock().insert(id, sql);
        handle
    }

    /// Statement of a handle's second part.
    pub fn prepared(&self, id: &str) -> Option<String> {
        self.prepared.lock().get(id).cloned()
    }

    /// Forgets a statement.
    pub fn close_prepared(&self, id: &str) {
        self.prepared.lock().remove(id);
    }
}

/// A command that has its turn.
pub(crate) struct Command<'a> {
    session: &'a FlightSession,
    context: MutexGuard<'a, Session>,
    _busy: Busy<'a>,
}

impl Deref for Command<'_> {
    type Target = Session;

    fn deref(&self) -> &Session {
        &self.context
    }
}

impl DerefMut for Command<'_> {
    fn deref_mut(&mut self) -> &mut Session {
        &mut self.context
    }
}

impl Drop for Command<'_> {
    fn drop(&mut self) {
        let session = self.session;
        session.touch(&self.context);
        for (name, kept) in [("wait_timeout", &session.wait_timeout_s), ("query_timeout", &session.query_timeout_s)] {
            if let Some(seconds) = self.context.variables.number(name) {
                kept.store(seconds, Ordering::Relaxed);
            }
        }
    }
}

struct Busy<'a>(&'a AtomicUsize);

impl<'a> Busy<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
