//! Stream Load: one streamed upload with a label.
//!
//! The load is announced to an FE with an empty body; the FE answers with a redirect to a BE, and only the BE gets
//! the body, in chunks through a bounded channel. So nothing is ever sent twice, and nothing is stuck at the FE.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ::http::HeaderMap;
use ::http::header::{CONTENT_LENGTH, HeaderValue};
use bytes::Bytes;
use datafusion::common::runtime::SpawnedTask;
use futures::future::BoxFuture;
use futures::{FutureExt, Stream};
use reqwest::Url;
use serde_json::Value;
use tokio::sync::mpsc;

use super::http::{self, Answer, Request, authority, escape, header_map};
use super::{Chunk, DorisClient};
use crate::error::{Error, Result, Retry};
use crate::protocol::{
    LoadEvent, LoadKind, LoadStep, Refusal, StreamLoadHeaders, StreamLoadResponse, TxnOperation, TxnOutcome, TxnRef,
    after_load, classify_load, classify_load_refusal, classify_txn, txn_headers,
};
use crate::types::TableIdent;

/// Time the server gets to answer after the end of the body, unless the load has its own `timeout`.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(600);

/// A load to open.
#[derive(Debug, Clone)]
pub struct StreamLoad {
    /// The table.
    pub table: TableIdent,
    /// Label of the load, as in the headers.
    pub label: String,
    /// What the body is and what becomes of it.
    pub headers: StreamLoadHeaders,
    /// Chunks that may wait for the network; more make [`OpenLoad::send`] wait.
    pub buffer_count: usize,
    /// Bytes of the whole body, when they are known; else it is sent in chunks.
    pub length: Option<u64>,
}

/// The answer to a commit or abort.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TxnAnswer {
    /// What it says.
    pub outcome: TxnOutcome,
    /// `host:port` that gave it.
    pub host: String,
    /// The server's text.
    pub message: String,
}

/// A load whose body is being sent.
///
/// It is finished by [`OpenLoad::finish`]; the server then answers. Until then nothing of it can become visible.
///
/// # Cancellation
/// Dropping it cuts the connection in the middle of the body: the BE aborts the transaction and the label is free
/// again.
#[derive(Debug)]
#[must_use = "dropping an open load aborts it"]
pub struct OpenLoad {
    identity: Identity,
    host: String,
    answer_timeout: Duration,
    body: BodyLength,
    state: State,
}

/// How much of the body the connection has taken, and how much there is.
#[derive(Debug, Clone)]
struct BodyLength {
    /// `None` = the body tells its end itself.
    whole: Option<u64>,
    taken: Arc<AtomicU64>,
}

impl BodyLength {
    /// The server may have all of it: a body of known length has no other end than its last byte.
    fn is_taken(&self) -> bool {
        self.whole.is_some_and(|whole| self.taken.load(Ordering::Acquire) >= whole)
    }
}

/// What errors and decisions need to know of a load.
#[derive(Debug, Clone)]
struct Identity {
    table: String,
    label: String,
    kind: LoadKind,
}

impl Identity {
    /// What may be done after `event`, which is no success.
    fn retry_after(&self, event: LoadEvent) -> Retry {
        match after_load(event, self.kind) {
            LoadStep::Failed(retry) => retry,
            LoadStep::Done | LoadStep::DoneNotVisible => Retry::AskLabelState,
        }
    }

    fn refused(&self, message: String, retry: Retry) -> Error {
        Error::StreamLoad {
            table: self.table.clone(),
            label: self.label.clone(),
            message,
            error_url: None,
            first_error: None,
            retry,
        }
    }
}

#[derive(Debug)]
enum State {
    /// The body is being sent; the task ends with the server's answer.
    Sending { body: mpsc::Sender<Part>, answer: SpawnedTask<Result<StreamLoadResponse>> },
    /// The server answered before the end of the body, or the connection broke; the error was handed out.
    Ended,
}

/// A piece of the body. The body is complete only if it ends with `End`: a channel that is merely closed means that
/// the load was dropped, and must not look like a short but complete body.
#[derive(Debug)]
enum Part {
    Chunk(Chunk),
    End,
}

impl OpenLoad {
    /// Label of the load.
    pub fn label(&self) -> &str {
        &self.identity.label
    }

    /// `host:port` of the BE that takes the load.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Sends a piece of the body; waits while the server is slower than the sender, as long as for an answer: the load's
    /// own `timeout` and `doris.request.read.timeout`, or ten minutes.
    ///
    /// # Errors
    /// The server's refusal as soon as it is known ([`Error::StreamLoad`]), or [`Error::Transport`]. The load is over
    /// then; nothing of it was committed, since its body was not complete.
    pub async fn send(&mut self, chunk: impl Into<Chunk>) -> Result<()> {
        let chunk = chunk.into();
        let State::Sending { body, answer } = &mut self.state else {
            return Err(self.ended());
        };
        let early = tokio::select! {
            biased;
            early = &mut *answer => Ok(early),
            permit = tokio::time::timeout(self.answer_timeout, body.reserve()) => match permit {
                Ok(Ok(permit)) => {
                    permit.send(Part::Chunk(chunk));
                    return Ok(());
                }
                // The connection has let go of the body: its task is about to tell why.
                Ok(Err(_)) => Ok(answer.await),
                Err(elapsed) => Err(elapsed),
            },
        };
        self.state = State::Ended;
        match early {
            Ok(early) => Err(self.early(joined(early, &self.host))),
            Err(elapsed) => Err(self.not_taken(elapsed)),
        }
    }

    /// Ends the body and waits for the server's answer.
    ///
    /// A server that was told the length of the body may answer before this is called: that answer is the one.
    ///
    /// # Errors
    /// [`Error::StreamLoad`] when the server refused the load. [`Error::Transport`] with [`Retry::AskLabelState`] when
    /// the answer was lost: the load may be committed (or pre-committed), and its label tells. A load by group commit
    /// has none: [`Retry::CannotTell`].
    pub async fn finish(mut self) -> Result<StreamLoadResponse> {
        let state = std::mem::replace(&mut self.state, State::Ended);
        let State::Sending { body, mut answer } = state else {
            return Err(self.ended());
        };
        tokio::select! {
            biased;
            early = &mut answer => return match joined(early, &self.host) {
                Ok(answer) if self.body.is_taken() => Ok(answer),
                early => Err(self.early(early)),
            },
            // A closed channel means that the task is ending by itself: its answer is awaited below.
            sent = tokio::time::timeout(self.answer_timeout, body.send(Part::End)) => if let Err(elapsed) = sent {
                return Err(self.not_taken(elapsed));
            },
        }
        drop(body);
        match tokio::time::timeout(self.answer_timeout, answer).await {
            Ok(answer) => joined(answer, &self.host).map_err(|error| self.broken(error, LoadEvent::LostAnswer)),
            Err(elapsed) => Err(Error::Transport {
                operation: format!("waiting for the answer of load {}", self.identity.label),
                retry: self.identity.retry_after(LoadEvent::LostAnswer),
                host: self.host,
                source: Box::new(elapsed),
            }),
        }
    }

    /// The server takes nothing of the body any more. It was not complete, so nothing can have been committed.
    fn not_taken(&self, elapsed: tokio::time::error::Elapsed) -> Error {
        Error::Transport {
            host: self.host.clone(),
            operation: format!("sending the body of load {}", self.identity.label),
            retry: self.identity.retry_after(LoadEvent::CutBody),
            source: Box::new(elapsed),
        }
    }

    /// `error`, where a connection that broke means `event`.
    fn broken(&self, error: Error, event: LoadEvent) -> Error {
        match error {
            Error::Transport { host, operation, retry, source } if retry != Retry::Never => {
                let event = if retry == Retry::SameLabel { LoadEvent::NotReached } else { event };
                Error::Transport { host, operation, retry: self.identity.retry_after(event), source }
            }
            error => error,
        }
    }

    /// What an answer before the end of the body means.
    fn early(&self, answer: Result<StreamLoadResponse>) -> Error {
        match answer {
            Ok(_) => {
                let retry = self.identity.retry_after(LoadEvent::LostAnswer);
                self.identity.refused("the server answered before it had the whole body".into(), retry)
            }
            // The last bytes may have arrived, and the load may be done.
            Err(error) if self.body.is_taken() => self.broken(error, LoadEvent::LostAnswer),
            Err(error) => self.broken(error, LoadEvent::CutBody),
        }
    }

    /// Waits until the answer is there, for which nobody has asked yet.
    #[cfg(test)]
    pub(super) async fn answered(&mut self) {
        if let State::Sending { answer, .. } = &mut self.state {
            let outcome = joined((&mut *answer).await, &self.host);
            *answer = SpawnedTask::spawn(async move { outcome });
            // The task is behind this one, and does not wait.
            tokio::task::yield_now().await;
        }
    }

    fn ended(&self) -> Error {
        self.identity.refused("the load ended with an earlier error".into(), Retry::Never)
    }
}

fn joined<E>(answer: Result<Result<StreamLoadResponse>, E>, host: &str) -> Result<StreamLoadResponse>
where
    E: std::error::Error + Send + Sync + 'static,
{
    answer.unwrap_or_else(|panic| {
        Err(Error::Transport {
            host: host.to_string(),
            operation: "the load".into(),
            retry: Retry::AskLabelState,
            source: Box::new(panic),
        })
    })
}

fn body_stream(
    parts: mpsc::Receiver<Part>,
    length: BodyLength,
) -> impl Stream<Item = std::io::Result<Bytes>> + Send + 'static {
    futures::stream::unfold(Some((parts, length, Chunk::default().into_iter())), |state| async move {
        let (mut parts, length, mut chunk) = state?;
        loop {
            if let Some(piece) = chunk.next() {
                length.taken.fetch_add(piece.len() as u64, Ordering::AcqRel);
                return Some((Ok(piece), Some((parts, length, chunk))));
            }
            chunk = match parts.recv().await {
                Some(Part::Chunk(chunk)) => chunk.into_iter(),
                Some(Part::End) => return None,
                None => {
                    let dropped = std::io::Error::new(std::io::ErrorKind::ConnectionAborted, "the load was dropped");
                    return Some((Err(dropped), None));
                }
            };
        }
    })
}

impl DorisClient {
    /// Opens a load: finds the BE that will take it and starts the request. The body follows by [`OpenLoad::send`].
    ///
    /// # Errors
    /// [`Error::StreamLoad`] when the FE refuses, [`Error::Auth`], [`Error::Transport`]; nothing was loaded then.
    pub fn stream_load(&self, load: StreamLoad) -> BoxFuture<'_, Result<OpenLoad>> {
        async move {
            let table = load.table.to_string();
            let identity = Identity { table, label: load.label.clone(), kind: load.headers.kind() };
            let path = format!("/api/{}/{}/_stream_load", escape(&load.table.database), escape(&load.table.table));
            let operation = format!("load {} into {}", load.label, identity.table);
            let mut headers = header_map(load.headers.iter())?;
            let url = self.load_target(&path, &operation, &headers, &identity).await?;
            if let Some(length) = load.length {
                headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
            }

            let host = authority(&url);
            let (body, parts) = mpsc::channel(load.buffer_count.max(1));
            let client = self.clone();
            let of_answer = identity.clone();
            let length = BodyLength { whole: load.length, taken: Arc::default() };
            let sent = length.clone();
            let answer = SpawnedTask::spawn(async move {
                let body = reqwest::Body::wrap_stream(body_stream(parts, sent));
                let answer = client.inner.http.put_stream(url, &operation, headers, body).await?;
                client.with_refused_rows(accepted(&of_answer, &answer), &answer.host).await
            });
            let timeout = load.headers.get("timeout").and_then(|seconds| seconds.parse().ok()).map(Duration::from_secs);
            let answer_timeout = timeout.map_or(ANSWER_TIMEOUT, |timeout| timeout + self.options().read_timeout);
            Ok(OpenLoad { identity, host, answer_timeout, body: length, state: State::Sending { body, answer } })
        }
        .boxed()
    }

    /// Adds why the first rows of a refused load were refused. Of a load that was taken without them, the first reason,
    /// where the answer only tells where to read it (builds up to 2.1).
    async fn with_refused_rows(
        &self,
        mut answer: Result<StreamLoadResponse>,
        host: &str,
    ) -> Result<StreamLoadResponse> {
        match &mut answer {
            Ok(StreamLoadResponse { filtered_rows: 1.., error_url: Some(url), first_error: first @ None, .. }) => {
                let rows = self.refused_rows(url, host).await;
                *first = rows.and_then(|rows| rows.lines().next().map(str::to_string));
            }
            Err(Error::StreamLoad { error_url: Some(url), first_error, .. }) => {
                if let Some(rows) = self.refused_rows(url, host).await {
                    *first_error = Some(rows);
                }
            }
            _ => {}
        }
        answer
    }

    /// The BE for a load: named by the options, by the FE's list of backends, or by the FE's redirect.
    async fn load_target(&self, path: &str, operation: &str, headers: &HeaderMap, load: &Identity) -> Result<Url> {
        if !self.inner.backends.is_empty() {
            return self.live_backend(self.inner.backends.in_order(), path, operation).await;
        }
        if !self.options().auto_redirect {
            return self.live_backend(self.alive_backends().await?, path, operation).await;
        }
        self.on_any_frontend(|node| async move {
            match self.inner.http.resolve_load(&node, path, operation, headers).await? {
                Ok(url) => Ok(url),
                Err(answer) => Err(load_refusal(load, answer)),
            }
        })
        .await
    }

    /// The first of `nodes` that answers HTTP at all. A load cannot be repeated, so the node is asked before.
    async fn live_backend(&self, nodes: Vec<String>, path: &str, operation: &str) -> Result<Url> {
        let mut last = Error::Transport {
            host: "the cluster".into(),
            operation: operation.to_string(),
            retry: Retry::SameLabel,
            source: "no backend is alive".into(),
        };
        for node in nodes {
            match self.inner.http.send(&node, "/api/health", operation, Request::get(), Retry::SameLabel).await {
                Ok(_) => {
                    self.inner.backends.answered(&node);
                    return http::url(&node, path);
                }
                Err(error) => {
                    self.inner.backends.failed(&node);
                    last = error;
                }
            }
        }
        Err(last)
    }

    /// Commits or aborts a pre-committed transaction: one request to one FE (or BE of `benodes`), redirected to a BE.
    ///
    /// # Errors
    /// [`Error::Transport`] with [`Retry::AskLabelState`] when the answer was lost: the operation may have happened.
    pub fn finish_txn<'a>(
        &'a self,
        db: &'a str,
        operation: TxnOperation,
        txn: TxnRef,
    ) -> BoxFuture<'a, Result<TxnAnswer>> {
        async move {
            let path = format!("/api/{}/_stream_load_2pc", escape(db));
            let what = format!("{operation} of {txn}");
            let pairs = txn_headers(operation, &txn);
            let headers = header_map(pairs.iter().map(|(name, value)| (*name, value.as_str())))?;
            let (path, what, headers) = (path.as_str(), what.as_str(), &headers);
            // A node that was not reached did nothing (`SameLabel`): the next one is asked. A lost answer ends here.
            let answer = if self.inner.backends.is_empty() {
                self.on_any_frontend(|node| async move {
                    self.inner.http.send(&node, path, what, Request::put(headers.clone()), Retry::AskLabelState).await
                })
                .await?
            } else {
                let url = self.live_backend(self.inner.backends.in_order(), path, what).await?;
                let node = format!("{}://{}", url.scheme(), authority(&url));
                self.inner.http.send(&node, path, what, Request::put(headers.clone()), Retry::AskLabelState).await?
            };
            super::frontend::check_refused_login(&answer)?;
            let outcome = classify_txn(answer.status.as_u16(), answer.body.as_bytes());
            let body: Value = serde_json::from_str(&answer.body).unwrap_or(Value::Null);
            let message = body.get("msg").and_then(Value::as_str).unwrap_or_default().to_string();
            Ok(TxnAnswer { outcome, host: answer.host, message })
        }
        .boxed()
    }
}

/// The BE's answer, when it took the load.
fn accepted(load: &Identity, answer: &Answer) -> Result<StreamLoadResponse> {
    super::frontend::check_refused_login(answer)?;
    let (event, said) = classify_load(answer.status.as_u16(), answer.body.as_bytes());
    let response = StreamLoadResponse::parse(answer.body.as_bytes());
    let Identity { table, label, .. } = load;
    match (after_load(event, load.kind), response) {
        (LoadStep::Done, Ok(response)) => Ok(response),
        (LoadStep::DoneNotVisible, Ok(response)) => {
            tracing::warn!(%table, %label, "load is committed and not visible yet (publish timeout)");
            Ok(response)
        }
        (LoadStep::Failed(retry), response) => {
            let response = response.unwrap_or_default();
            let message = match event {
                LoadEvent::LabelTaken(state) => {
                    let by = response.txn_of_label().map(|id| format!(" by transaction {id}")).unwrap_or_default();
                    format!("the label is taken{by}, which is {state}")
                }
                LoadEvent::Refused(reason) => advised(said, reason),
                _ => said,
            };
            let message = message + &response.row_counts();
            let StreamLoadResponse { error_url, first_error, .. } = response;
            Err(Error::StreamLoad {
                table: table.clone(),
                label: label.clone(),
                message,
                error_url,
                first_error,
                retry,
            })
        }
        // Events of success are only read from responses.
        (_, Err(malformed)) => Err(load.refused(malformed.to_string(), load.retry_after(LoadEvent::LostAnswer))),
    }
}

/// The server's text and what to do about it.
fn advised(said: String, reason: Refusal) -> String {
    match reason.advice() {
        Some(advice) => format!("{said}; {advice}"),
        None => said,
    }
}

/// A load that the FE refused instead of redirecting it.
fn load_refusal(load: &Identity, answer: Answer) -> Error {
    if let Err(refused) = super::frontend::check_refused_login(&answer) {
        return refused;
    }
    let body: Value = serde_json::from_str(&answer.body).unwrap_or(Value::Null);
    let text = ["msg", "Message", "data"].iter().find_map(|key| body.get(key).and_then(Value::as_str));
    let event = classify_load_refusal(answer.status.as_u16(), text);
    let said = match text {
        Some(text) => text.to_string(),
        None => format!("{} answered http status {}", answer.host, answer.status.as_u16()),
    };
    let message = match event {
        LoadEvent::AtFrontend(reason) => advised(said, reason),
        _ => said,
    };
    load.refused(message, load.retry_after(event))
}
