//! Everything that talks to a Doris cluster.

mod change;
mod cleanup;
mod endpoints;
mod flight;
mod frontend;
mod http;
mod load;
mod redirect;
pub(crate) mod retry;
mod statement;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
pub(crate) mod testing;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests;

use std::fmt;
use std::sync::Arc;

use self::cleanup::Cleanup;
use self::endpoints::Endpoints;
use self::flight::Channels;
pub use self::flight::{FlightQuery, FlightSession};
pub use self::frontend::{StatementRows, Tablet};
use self::http::Http;
pub use self::load::{OpenLoad, StreamLoad, TxnAnswer};
pub use self::statement::{DorisConnection, StatementOutput};
use crate::error::{Error, Result};
use crate::options::ConnectionOptions;

/// A Doris cluster: its nodes, their health, and the connections to them. Clones share all of it.
///
/// Making one performs no I/O. Requests go to the FEs in configured order; one that fails is tried last from then on,
/// until it answers again. Idempotent metadata requests are repeated `doris.request.retries` times with exponential
/// back-off; loads, commits and statements never are.
#[derive(Clone)]
pub struct DorisClient {
    inner: Arc<Inner>,
}

struct Inner {
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

    fn channels(&self) -> &Channels {
        &self.inner.channels
    }

    pub(crate) fn cleanup(&self) -> &Cleanup {
        &self.inner.cleanup
    }
}

/// One TLS implementation for HTTP, Flight and MySQL; `Err` = the program has chosen one already.
fn install_crypto_provider() {
    let _ = rustls::crypto::ring::default_provider().install_default();
}
