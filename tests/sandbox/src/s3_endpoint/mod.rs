//! A small S3-compatible server in memory: what a staged load needs of an object store.
//!
//! It lists (version 2, in pages), reads (also ranges), writes (also in parts) and deletes objects of buckets that come
//! into being with their first object. Paths name the bucket first, or the host does (`bucket.host`). Requests must carry
//! a SigV4 `Authorization` header of the configured access key, and the session token when one is set; the signature
//! itself is not computed again.

mod objects;
mod requests;

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

use self::objects::Objects;

/// What the server asks of its clients.
#[derive(Clone, PartialEq, Eq)]
pub struct S3Settings {
    /// Access key that signs requests; `None` lets anyone in.
    pub access_key: Option<String>,
    /// Session token that must stand in `x-amz-security-token`.
    pub session_token: Option<String>,
    /// Keys of one page of a listing.
    pub page: usize,
    /// The buckets that there are; `None`: each comes into being with its first object.
    pub buckets: Option<Vec<String>>,
    /// Requests that name the bucket in the host are not understood.
    pub path_style_only: bool,
}

impl Default for S3Settings {
    fn default() -> Self {
        Self {
            access_key: Some("sandbox-access".to_owned()),
            session_token: None,
            page: 1000,
            buckets: None,
            path_style_only: false,
        }
    }
}

impl std::fmt::Debug for S3Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("S3Settings").field("page", &self.page).finish_non_exhaustive()
    }
}

/// A request that the server answered, without its credentials.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct S3Request {
    /// HTTP method.
    pub method: String,
    /// Bucket, empty when the request names none.
    pub bucket: String,
    /// Key, empty for requests to a bucket.
    pub key: String,
    /// Query string.
    pub query: String,
    /// Range header.
    pub range: Option<String>,
    /// It carried an `Authorization` header.
    pub signed: bool,
    /// The bucket stood in the host.
    pub virtual_host: bool,
    /// Status of the answer.
    pub status: u16,
}

/// A refusal to give once.
#[derive(Debug, Clone)]
struct Refusal {
    method: String,
    key_part: String,
    status: u16,
}

struct State {
    settings: S3Settings,
    objects: Mutex<Objects>,
    seen: Mutex<Vec<S3Request>>,
    refusals: Mutex<Vec<Refusal>>,
    stalled: Mutex<Vec<String>>,
    /// Told after each answer.
    answered: watch::Sender<u64>,
}

/// A running server. Dropping it closes the listener and its connections.
pub struct S3Endpoint {
    address: SocketAddr,
    state: Arc<State>,
    _server: JoinSet<()>,
}

impl std::fmt::Debug for S3Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("S3Endpoint").field("address", &self.address).finish_non_exhaustive()
    }
}

impl S3Endpoint {
    /// Listens on a free port of 127.0.0.1.
    ///
    /// # Errors
    /// The port cannot be bound.
    pub async fn start(settings: S3Settings) -> std::io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let state = Arc::new(State {
            settings,
            objects: Mutex::default(),
            seen: Mutex::default(),
            refusals: Mutex::default(),
            stalled: Mutex::default(),
            answered: watch::Sender::new(0),
        });
        let router = Router::new().fallback(requests::answer).with_state(Arc::clone(&state));
        let mut server = JoinSet::new();
        server.spawn(async move {
            if let Err(error) = axum::serve(listener, router).await {
                tracing::warn!(%error, "the S3 endpoint ended");
            }
        });
        Ok(Self { address, state, _server: server })
    }

    /// Address it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// `http://host:port`
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Stores an object.
    pub fn put(&self, bucket: &str, key: &str, body: impl Into<Bytes>) {
        self.state.objects.lock().put(bucket, key, body.into());
    }

    /// Content of an object.
    pub fn get(&self, bucket: &str, key: &str) -> Option<Bytes> {
        self.state.objects.lock().get(bucket, key).map(|object| object.body.clone())
    }

    /// Removes an object, as a life-cycle rule does.
    pub fn remove(&self, bucket: &str, key: &str) {
        self.state.objects.lock().delete(bucket, key);
    }

    /// Keys of a bucket, sorted.
    pub fn keys(&self, bucket: &str) -> Vec<String> {
        self.state.objects.lock().keys(bucket)
    }

    /// Uploads in parts that were begun and neither completed nor aborted.
    pub fn open_uploads(&self) -> usize {
        self.state.objects.lock().open_uploads()
    }

    /// Waits until the condition holds; it is looked at after each answer.
    pub async fn until(&self, condition: impl Fn(&Self) -> bool) {
        let mut answered = self.state.answered.subscribe();
        while !condition(self) {
            answered.borrow_and_update();
            if condition(self) || answered.changed().await.is_err() {
                return;
            }
        }
    }

    /// What was asked so far, in order.
    pub fn requests(&self) -> Vec<S3Request> {
        self.state.seen.lock().clone()
    }

    /// Answers requests again that [`Self::stall`] would leave without an answer; those that wait go on waiting.
    pub fn unstall(&self) {
        self.state.stalled.lock().clear();
    }

    /// Leaves every request for a key that holds `key_part` without an answer.
    pub fn stall(&self, key_part: &str) {
        self.state.stalled.lock().push(key_part.to_owned());
    }

    /// Takes back all refusals that nobody has met, and answers what is left without an answer from now on.
    pub fn pardon(&self) {
        self.state.refusals.lock().clear();
        self.state.stalled.lock().clear();
    }

    /// Refuses the next request of this method whose key holds `key_part` with `status`.
    pub fn refuse_next(&self, method: &str, key_part: &str, status: u16) {
        let refusal = Refusal { method: method.to_owned(), key_part: key_part.to_owned(), status };
        self.state.refusals.lock().push(refusal);
    }
}

#[cfg(test)]
mod tests;
