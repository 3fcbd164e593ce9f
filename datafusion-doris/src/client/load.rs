//! Stream Load: one streamed upload with a label.
//!
//! The load is announced to an FE with an empty body; the FE answers with a redirect to a BE, and only the BE gets
//! the body, in chunks through a bounded channel. So nothing is ever sent twice, and nothing is stuck at the FE.

use std::time::Duration;

use ::http::HeaderMap;
use bytes::Bytes;
use datafusion::common::runtime::SpawnedTask;
use futures::future::BoxFuture;
use futures::{FutureExt, Stream};
use reqwest::Url;
use serde_json::Value;
use tokio::sync::mpsc;

use super::DorisClient;
use super::http::{self, Answer, Request, authority, escape, header_map};
use crate::error::{Error, Result, Retry};
use crate::protocol::{
    ExistingJob, LoadVerdict, StreamLoadHeaders, StreamLoadResponse, TxnOperation, TxnOutcome, TxnRef, classify_load,
    classify_load_refusal, classify_txn, txn_headers,
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
    table: String,
    label: String,
    host: String,
    answer_timeout: Duration,
    state: State,
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
    Chunk(Bytes),
    End,
}

impl OpenLoad {
    /// Label of the load.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// `host:port` of the BE that takes the load.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Sends a piece of the body; waits while the server is slower than the sender.
    ///
    /// # Errors
    /// The server's refusal as soon as it is known ([`Error::StreamLoad`]), or [`Error::Transport`]. The load is over
    /// then; nothing of it was committed, since its body was not complete.
    pub async fn send(&mut self, chunk: Bytes) -> Result<()> {
        let State::Sending { body, answer } = &mut self.state else {
            return Err(self.ended());
        };
        let early = tokio::select! {
            biased;
            early = &mut *answer => early,
            permit = body.reserve() => match permit {
                Ok(permit) => {
                    permit.send(Part::Chunk(chunk));
                    return Ok(());
                }
                // The connection has let go of the body: its task is about to tell why.
                Err(_) => answer.await,
            },
        };
        self.state = State::Ended;
        Err(self.early(joined(early, &self.host)))
    }

    /// Ends the body and waits for the server's answer.
    ///
    /// # Errors
    /// [`Error::StreamLoad`] when the server refused the load. [`Error::Transport`] with [`Retry::AskLabelState`] when
    /// the answer was lost: the load may be committed (or pre-committed), and its label tells.
    pub async fn finish(mut self) -> Result<StreamLoadResponse> {
        let state = std::mem::replace(&mut self.state, State::Ended);
        let State::Sending { body, mut answer } = state else {
            return Err(self.ended());
        };
        tokio::select! {
            biased;
            early = &mut answer => return Err(self.early(joined(early, &self.host))),
            // A closed channel means that the task is ending by itself: its answer is awaited below.
            _ = body.send(Part::End) => {}
        }
        drop(body);
        match tokio::time::timeout(self.answer_timeout, answer).await {
            Ok(answer) => joined(answer, &self.host),
            Err(elapsed) => Err(Error::Transport {
                host: self.host,
                operation: format!("waiting for the answer of load {}", self.label),
                retry: Retry::AskLabelState,
                source: Box::new(elapsed),
            }),
        }
    }

    /// What an answer before the end of the body means.
    fn early(&self, answer: Result<StreamLoadResponse>) -> Error {
        match answer {
            Ok(_) => Error::StreamLoad {
                table: self.table.clone(),
                label: self.label.clone(),
                message: "the server answered before it had the whole body".into(),
                error_url: None,
                first_error: None,
                retry: Retry::AskLabelState,
            },
            // The body was not complete, so nothing can have been committed.
            Err(Error::Transport { host, operation, source, .. }) => {
                Error::Transport { host, operation, retry: Retry::SameLabel, source }
            }
            Err(error) => error,
        }
    }

    fn ended(&self) -> Error {
        Error::StreamLoad {
            table: self.table.clone(),
            label: self.label.clone(),
            message: "the load ended with an earlier error".into(),
            error_url: None,
            first_error: None,
            retry: Retry::Never,
        }
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

fn body_stream(parts: mpsc::Receiver<Part>) -> impl Stream<Item = std::io::Result<Bytes>> + Send + 'static {
    futures::stream::unfold(Some(parts), |parts| async move {
        let mut parts = parts?;
        match parts.recv().await {
            Some(Part::Chunk(chunk)) => Some((Ok(chunk), Some(parts))),
            Some(Part::End) => None,
            None => {
                let dropped = std::io::Error::new(std::io::ErrorKind::ConnectionAborted, "the load was dropped");
                Some((Err(dropped), None))
            }
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
            let path = format!("/api/{}/{}/_stream_load", escape(&load.table.database), escape(&load.table.table));
            let operation = format!("load {} into {table}", load.label);
            let headers = header_map(load.headers.iter())?;
            let url = self.load_target(&path, &operation, &headers, &load).await?;

            let host = authority(&url);
            let (body, parts) = mpsc::channel(load.buffer_count.max(1));
            let client = self.clone();
            let identity = (table.clone(), load.label.clone());
            let answer = SpawnedTask::spawn(async move {
                let body = reqwest::Body::wrap_stream(body_stream(parts));
                let answer = client.inner.http.put_stream(url, &operation, headers, body).await?;
                accepted(identity, &answer)
            });
            let timeout = load.headers.get("timeout").and_then(|seconds| seconds.parse().ok()).map(Duration::from_secs);
            let answer_timeout = timeout.map_or(ANSWER_TIMEOUT, |timeout| timeout + self.options().read_timeout);
            Ok(OpenLoad { table, label: load.label, host, answer_timeout, state: State::Sending { body, answer } })
        }
        .boxed()
    }

    /// The BE for a load: named by the options, by the FE's list of backends, or by the FE's redirect.
    async fn load_target(&self, path: &str, operation: &str, headers: &HeaderMap, load: &StreamLoad) -> Result<Url> {
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
fn accepted((table, label): (String, String), answer: &Answer) -> Result<StreamLoadResponse> {
    super::frontend::check_refused_login(answer)?;
    let response = StreamLoadResponse::parse(answer.body.as_bytes());
    let (message, retry) = match classify_load(answer.status.as_u16(), answer.body.as_bytes()) {
        LoadVerdict::Success => (String::new(), None),
        LoadVerdict::PublishTimeout => {
            tracing::warn!(%table, %label, "load is committed and not visible yet (publish timeout)");
            (String::new(), None)
        }
        LoadVerdict::LabelExists { state, txn_id } => {
            let by = txn_id.map(|id| format!(" by transaction {id}")).unwrap_or_default();
            let state = match state {
                ExistingJob::Running => "still loading".to_string(),
                ExistingJob::PreCommitted => "pre-committed".to_string(),
                ExistingJob::Finished => "finished".to_string(),
                ExistingJob::Unknown(text) => format!("in state '{text}'"),
            };
            (format!("the label is taken{by}, which is {state}"), Some(Retry::Never))
        }
        LoadVerdict::Refused { retry, message } => (message, Some(retry)),
    };
    match (response, retry) {
        (Ok(response), None) => Ok(response),
        (response, retry) => {
            let (error_url, first_error) =
                response.map(|response| (response.error_url, response.first_error)).unwrap_or_default();
            let retry = retry.unwrap_or(Retry::AskLabelState);
            Err(Error::StreamLoad { table, label, message, error_url, first_error, retry })
        }
    }
}

/// A load that the FE refused instead of redirecting it.
fn load_refusal(load: &StreamLoad, answer: Answer) -> Error {
    if let Err(refused) = super::frontend::check_refused_login(&answer) {
        return refused;
    }
    let body: Value = serde_json::from_str(&answer.body).unwrap_or(Value::Null);
    let text = ["msg", "Message", "data"].iter().find_map(|key| body.get(key).and_then(Value::as_str));
    let retry = classify_load_refusal(answer.status.as_u16(), text);
    let message = match text {
        Some(text) => text.to_string(),
        None => format!("{} answered http status {}", answer.host, answer.status.as_u16()),
    };
    Error::StreamLoad {
        table: load.table.to_string(),
        label: load.label.clone(),
        message,
        error_url: None,
        first_error: None,
        retry,
    }
}
