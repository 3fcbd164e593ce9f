//! HTTP servers of FE and BE.
//!
//! hyper sends `100 Continue` when a handler first polls the request body. An FE must answer its 307 without it, so
//! its handlers leave the body alone; what the client sends nevertheless is read and dropped when the connection
//! closes, within bounds, for a close with unread bytes would reset the connection and could take the answer with it.

pub(crate) mod admin;
pub(crate) mod auth;
mod be;
pub(crate) mod cookie;
mod envelope;
mod fe;
mod head;
mod master;
mod nodes;
mod redirect;
mod statement;
mod tables;

use std::convert::Infallible;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, BodyDataStream};
use axum::extract::Request;
use axum::response::Response;
use bytes::Bytes;
use futures::StreamExt;
use http::header::LOCATION;
use http::{HeaderMap, HeaderValue};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use self::head::{Copying, HeadCopy};
use crate::faults::{Action, CommitFaults, Site};
use crate::net::{self, Connection, Listener};
use crate::shared::Shared;

/// Unread request bytes that are taken in after an early answer (`stream_load_redirect_bounded_drain_max_bytes`).
const DRAIN_BYTES: usize = 64 * 1024 * 1024;
/// How long an answered connection may go on sending.
const DRAIN_TIME: Duration = Duration::from_secs(5);

/// Address of the client, given to handlers as an extension.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peer(pub SocketAddr);

/// Text of a header without blanks around it; empty when absent.
pub(crate) fn header_text<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    headers.get(name).and_then(|v| std::str::from_utf8(v.as_bytes()).ok()).map(str::trim).unwrap_or_default()
}

/// Whether a request came over TLS, given to handlers as an extension.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Secure(pub bool);

/// Serves an FE until the returned future is dropped.
pub(crate) async fn serve_fe(listener: Listener, shared: Arc<Shared>, tls: Option<TlsAcceptor>) {
    serve(listener, fe::router(Arc::clone(&shared)), shared, Site::Fe, tls).await;
}

/// Serves a BE until the returned future is dropped.
pub(crate) async fn serve_be(listener: Listener, shared: Arc<Shared>, tls: Option<TlsAcceptor>) {
    serve(listener, be::router(Arc::clone(&shared)), shared, Site::Be, tls).await;
}

async fn serve(listener: Listener, router: Router, shared: Arc<Shared>, site: Site, tls: Option<TlsAcceptor>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            (stream, peer) = listener.accept() => {
                let (router, shared, tls) = (router.clone(), Arc::clone(&shared), tls.clone());
                connections.spawn(async move {
                    match net::secure(stream, tls).await {
                        Ok(stream) => connection(stream, peer, router, shared, site).await,
                        Err(error) => tracing::debug!(%error, "TLS handshake failed"),
                    }
                });
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn connection(stream: Connection, peer: SocketAddr, router: Router, shared: Arc<Shared>, site: Site) {
    let head = HeadCopy::default();
    let secure = Secure(stream.is_tls());
    let stream = Copying::new(stream, head.clone(), site == Site::Be);
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        let (router, shared, head) = (router.clone(), Arc::clone(&shared), head.clone());
        Box::pin(async move {
            let _open = shared.cluster.open(|cluster| &cluster.http_requests);
            let mut request = request.map(Body::new);
            head.restore(&mut request);
            let answer = handle(request, peer, secure, router, &shared, site).await;
            head.next_request();
            answer
        })
    });
    let mut connection = http1::Builder::new().timer(TokioTimer::new()).serve_connection(TokioIo::new(stream), service);
    if poll_fn(|cx| connection.poll_without_shutdown(cx)).await.is_ok() {
        linger(connection.into_parts().io.into_inner().into_inner()).await;
    }
}

/// Ends our side and takes in what the client still sends, within bounds.
async fn linger(mut stream: Connection) {
    let drain = async {
        stream.shutdown().await?;
        let mut buffer = vec![0; 64 * 1024];
        let mut left = DRAIN_BYTES;
        while left > 0 {
            match stream.read(&mut buffer).await? {
                0 => break,
                n => left = left.saturating_sub(n),
            }
        }
        Ok::<_, std::io::Error>(())
    };
    // The answer is out; how the client leaves is of no interest.
    let _ = tokio::time::timeout(DRAIN_TIME, drain).await;
}

/// The connection ends without an answer.
#[derive(Debug, thiserror::Error)]
#[error("connection cut by a fault")]
struct Cut;

/// Actions that the handler of an HTTP request performs itself.
fn is_of_http(action: &Action) -> bool {
    matches!(
        action,
        Action::Status { .. }
            | Action::DropAnswer
            | Action::HoldAnswer { .. }
            | Action::CutAfterBytes(_)
            | Action::CutAnswerAfterBytes(_)
            | Action::Wait(_)
            | Action::Delay(_)
            | Action::Redirect(_)
    )
}

async fn handle(
    mut request: Request,
    peer: SocketAddr,
    secure: Secure,
    router: Router,
    shared: &Arc<Shared>,
    site: Site,
) -> Result<Response, Cut> {
    let target = request.uri().path_and_query().map_or("/", |p| p.as_str()).to_owned();
    let headers = request
        .headers()
        .iter()
        .map(|(n, v)| (n.as_str().to_owned(), String::from_utf8_lossy(v.as_bytes()).into_owned()));
    let id = shared.requests.record(site, request.method().as_str(), &target, headers);
    let line = {
        let text = |name: &str| request.headers().get(name).and_then(|v| v.to_str().ok()).unwrap_or_default();
        format!("{} {target} {} {}", request.method(), text("txn_operation"), text("label"))
    };
    request.extensions_mut().insert(Peer(peer));
    request.extensions_mut().insert(secure);

    let action = shared.faults.take_if(site, &line, is_of_http);
    let held = Arc::new(CommitFaults::new((&shared.faults, &shared.requests), id, site, line, &shared.cluster.holds));
    request.extensions_mut().insert(Arc::clone(&held));
    let cut = Arc::new(AtomicBool::new(false));
    if let Some(action) = &action {
        shared.requests.met(id, action);
    }
    let counting = Arc::clone(shared);
    request = request.map(|body| counted(body, move |bytes| counting.requests.read(id, bytes)));
    match &action {
        Some(Action::Status { code, body }) => {
            let mut response = Response::new(Body::from(body.clone()));
            *response.status_mut() =
                http::StatusCode::from_u16(*code).unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR);
            shared.requests.answered(id, response.status().as_u16());
            return Ok(response);
        }
        Some(Action::CutAfterBytes(limit)) => {
            let (limit, cut) = (*limit, Arc::clone(&cut));
            request = request.map(|body| cut_after(body.into_data_stream(), limit, cut));
        }
        Some(Action::Wait(signal)) => signal.notified().await,
        Some(Action::Delay(time)) => tokio::time::sleep(*time).await,
        _ => {}
    }
    let local = match site {
        Site::Fe => master::elsewhere(request, peer, secure.0, shared).await,
        _ => Ok(request),
    };
    let mut response = match local {
        Ok(request) => {
            let Ok(response) = run(router, request).await;
            response
        }
        Err(response) => *response,
    };
    if held.holds_any() {
        response = response.map(|body| Body::new(Until { body, _held: held }));
    }
    // A body that was too short to be cut has its answer.
    if matches!(action, Some(Action::DropAnswer)) || cut.load(Ordering::SeqCst) {
        return Err(Cut);
    }
    shared.requests.answered(id, response.status().as_u16());
    match action {
        Some(Action::CutAnswerAfterBytes(limit)) => {
            Ok(response.map(|body| cut_answer_after(body.into_data_stream(), limit)))
        }
        Some(Action::HoldAnswer { done, release }) => {
            done.notify_one();
            release.notified().await;
            Ok(response)
        }
        Some(Action::Redirect(location)) if response.status().is_redirection() => {
            if let Ok(value) = HeaderValue::from_str(&location) {
                response.headers_mut().insert(LOCATION, value);
            }
            Ok(response)
        }
        _ => Ok(response),
    }
}

async fn run(router: Router, request: Request) -> Result<Response, Infallible> {
    TowerToHyperService::new(router).call(request).await
}

/// A body whose bytes are counted as they are read.
fn counted(body: Body, count: impl Fn(u64) + Send + 'static) -> Body {
    if hyper::body::Body::is_end_stream(&body) {
        return body;
    }
    Body::from_stream(body.into_data_stream().inspect(move |chunk| {
        if let Ok(bytes) = chunk {
            count(bytes.len() as u64);
        }
    }))
}

/// An answer that breaks off after so many bytes, once these are sent.
fn cut_answer_after(body: BodyDataStream, limit: u64) -> Body {
    enum Step {
        Send(u64),
        Flush,
        Cut,
    }
    Body::from_stream(futures::stream::unfold((body, Step::Send(limit)), |(mut body, step)| async move {
        match step {
            Step::Send(left) => match body.next().await {
                Some(Ok(bytes)) if (bytes.len() as u64) < left => {
                    let left = left - bytes.len() as u64;
                    Some((Ok(bytes), (body, Step::Send(left))))
                }
                Some(Ok(bytes)) => {
                    let kept = usize::try_from(left).map_or(bytes.len(), |n| n.min(bytes.len()));
                    Some((Ok(bytes.slice(..kept)), (body, Step::Flush)))
                }
                Some(Err(error)) => Some((Err(std::io::Error::other(error)), (body, Step::Cut))),
                None => Some((Err(std::io::Error::other("connection cut by a fault")), (body, Step::Cut))),
            },
            Step::Flush => {
                // hyper writes out what it holds while the body is not ready.
                tokio::task::yield_now().await;
                Some((Err(std::io::Error::other("connection cut by a fault")), (body, Step::Cut)))
            }
            Step::Cut => None,
        }
    }))
}

/// The body of an answer that keeps transactions from being published until it is written.
struct Until {
    body: Body,
    _held: Arc<CommitFaults>,
}

impl hyper::body::Body for Until {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<hyper::body::Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> hyper::body::SizeHint {
        self.body.size_hint()
    }
}

/// A body that fails after so many bytes, and notes when it does.
fn cut_after(body: BodyDataStream, limit: u64, cut: Arc<AtomicBool>) -> Body {
    let mut left = limit;
    Body::from_stream(body.map(move |chunk| {
        let chunk: Bytes = chunk.map_err(std::io::Error::other)?;
        if cut.load(Ordering::SeqCst) || chunk.len() as u64 > left {
            cut.store(true, Ordering::SeqCst);
            return Err(std::io::Error::other("connection cut by a fault"));
        }
        left -= chunk.len() as u64;
        Ok(chunk)
    }))
}

#[cfg(test)]
mod tests;
