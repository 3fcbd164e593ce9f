//! Everything that talks to a Doris cluster.

mod change;
mod chunk;
mod cleanup;
mod columns;
mod endpoints;
mod error_log;
mod facts;
mod flight;
mod flight_result;
mod frontend;
mod http;
mod invalid_text;
mod load;
mod memory;
mod names;
mod places;
mod redirect;
pub(crate) mod retry;
mod rows;
mod sessions;
mod statement;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
pub(crate) mod testing;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests;
mod transport;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

pub use self::chunk::Chunk;
use self::cleanup::Cleanup;
use self::endpoints::Endpoints;
use self::facts::KnownFacts;
pub use self::facts::{ColumnFacts, TableFacts};
use self::flight::Channels;
pub use self::flight::FlightSession;
pub use self::flight_result::FlightQuery;
pub use self::frontend::{StatementRows, Tablet};
use self::http::Http;
pub use self::load::{OpenLoad, StreamLoad, TxnAnswer};
pub(crate) use self::memory::ReadMemory;
pub use self::names::TableName;
pub(crate) use self::places::Place;
use self::places::Places;
use self::sessions::Sessions;
pub(crate) use self::sessions::Variables;
pub use self::statement::{DorisConnection, StatementOutput};
use self::transport::KnownFrontends;
use crate::error::{Error, Result};
use crate::options::ConnectionOptions;

/// A Doris cluster: its nodes, their health, and the connections to them. Clones share all of it.
///
/// Making one performs no I/O. Requests go to the FEs in configured order; one that fails is tried last from then on,
/// until it answers again. Idempotent metadata requests are repeated `doris.request.retries` times with exponential
/// back-off; loads, commits and statements never are.
pub struct DorisClient {
    inner: Arc<Inner>,
}

impl Clone for DorisClient {
    fn clone(&self) -> Self {
        self.inner.users.fetch_add(1, Ordering::Relaxed);
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl Drop for DorisClient {
    fn drop(&mut self) {
        // The last user closes the sessions that nobody uses any more.
        if self.inner.users.fetch_sub(1, Ordering::AcqRel) == 1 && self.inner.sessions.any() {
            self.clone().close_resting();
        }
    }
}

struct Inner {
    /// Clones of the client that are alive.
    users: AtomicUsize,
    sessions: Sessions,
    places: Arc<Places>,
    known_frontends: KnownFrontends,
    known_facts: KnownFacts,
    options: Arc<ConnectionOptions>,
    http: Http,
    frontends: Endpoints,
    backends: Endpoints,
    channels: Channels,
    cleanup: Cleanup,
}

impl fmt::Debug for DorisClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DorisClient").field("fenodes", &self.inner.options.fenodes).finish_non_exhaustive()
    }
}

impl DorisClient {
    /// A client for the cluster of `options`. Performs no I/O.
    ///
    /// # Errors
    /// [`Error::Config`] when no FE is named or an address is malformed.
    pub fn try_new(options: Arc<ConnectionOptions>) -> Result<Self> {
        install_crypto_provider();
        if options.fenodes.is_empty() {
            return Err(Error::config("fenodes", "names no FE; give host:http_port, several separated by commas"));
        }
        for node in options.fenodes.iter().chain(&options.benodes) {
            http::url(node, "/")?;
        }
        let inner = Inner {
            users: AtomicUsize::new(1),
            sessions: Sessions::default(),
            places: Arc::new(Places::new(options.max_connections, options.overflow_connections)),
            known_frontends: KnownFrontends::default(),
            known_facts: KnownFacts::default(),
            http: Http::try_new(&options)?,
            frontends: Endpoints::new(&options.fenodes),
            backends: Endpoints::new(&options.benodes),
            channels: Channels::default(),
            cleanup: Cleanup::default(),
            options,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The options of this client.
    pub fn options(&self) -> &ConnectionOptions {
        &self.inner.options
    }

    /// True when both reach the same FEs as the same user.
    pub(crate) fn same_cluster(&self, other: &Self) -> bool {
        let (a, b) = (self.options(), other.options());
        Arc::ptr_eq(&self.inner, &other.inner)
            || (a.fenodes == b.fenodes && a.username == b.username && a.password.reveal() == b.password.reveal())
    }

    fn channels(&self) -> &Channels {
        &self.inner.channels
    }

    pub(crate) fn cleanup(&self) -> &Cleanup {
        &self.inner.cleanup
    }
}

/// One TLS implementation for HTTP, Flight and MySQL; `Err` = the program has chosen one already.
pub(crate) fn install_crypto_provider() {
    let _ = rustls::crypto::ring::default_provider().install_default();
}
