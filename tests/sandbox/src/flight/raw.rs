//! `DoGet` of encoded results past tonic: the bytes of the messages go to the connection as they are.
//!
//! Everything else, and everything while a fault is armed, goes to the service behind it.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use arrow_flight::Ticket;
use arrow_flight::sql::{Any, TicketStatementQuery};
use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame};
use prost::Message as _;
use tonic::body::Body;
use tonic::codegen::{Service, http};
use tonic::metadata::MetadataMap;
use tonic::server::NamedService;
use tonic::{Request, Status};

use super::gateway::{self, statement_of_ticket};
use super::replay::Message;
use super::results::{Replayed, Terms, cancelled};
use crate::faults::{NodeId, Site};
use crate::shared::Shared;

/// Path of `DoGet`.
const DO_GET: &str = "/arrow.flight.protocol.FlightService/DoGet";
/// Largest request looked at; a ticket is far smaller.
const MAX_TICKET_BYTES: usize = 1 << 20;
/// Length of the prefix of a gRPC message.
const PREFIX: usize = 5;

/// A service that answers replays itself.
#[derive(Clone)]
pub(super) struct RawReplay<S> {
    inner: S,
    shared: Arc<Shared>,
}

impl<S> RawReplay<S> {
    pub fn new(inner: S, shared: Arc<Shared>) -> Self {
        Self { inner, shared }
    }
}

impl<S: NamedService> NamedService for RawReplay<S> {
    const NAME: &'static str = S::NAME;
}

impl<S> Service<http::Request<Body>> for RawReplay<S>
where
    S: Service<http::Request<Body>, Response = http::Response<Body>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send + 'static,
{
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        // The service that was polled ready answers; its clone waits for the next call.
        let next = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, next);
        if request.uri().path() != DO_GET || self.shared.faults.any() {
            return Box::pin(inner.call(request));
        }
        let shared = Arc::clone(&self.shared);
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let bytes = match axum::body::to_bytes(axum::body::Body::new(body), MAX_TICKET_BYTES).await {
                Ok(bytes) => bytes,
                Err(error) => return Ok(Status::invalid_argument(error.to_string()).into_http()),
            };
            if let Some((ticket, replayed)) = find(&shared, &bytes) {
                let metadata = MetadataMap::from_headers(parts.headers);
                let seen = Request::from_parts(metadata, tonic::Extensions::default(), ticket);
                gateway::record(&shared, Site::BeFlight, "DoGet", &statement_of_ticket(seen.get_ref()), &seen);
                return Ok(answer(replayed));
            }
            inner.call(http::Request::from_parts(parts, Body::new(axum::body::Body::from(bytes)))).await
        })
    }
}

/// The ticket of a request and the replay behind it.
fn find(shared: &Shared, bytes: &Bytes) -> Option<(Ticket, Replayed)> {
    let (prefix, message) = bytes.split_at_checked(PREFIX)?;
    if prefix.first() != Some(&0) {
        return None;
    }
    let ticket = Ticket::decode(message).ok()?;
    let any = Any::decode(&*ticket.ticket).ok()?;
    let handle = TicketStatementQuery::decode(&*any.value).ok()?.statement_handle;
    let handle = std::str::from_utf8(&handle).ok()?;
    let (id, rest) = handle.split_once('&')?;
    let NodeId::Be(number) = shared.node else { return None };
    let own = format!("{}&{}&", shared.host, super::backend::brpc_port(number));
    rest.starts_with(&own).then_some(())?;
    let replayed = shared.flight_results.take_replay(id, number, shared.engine.config().clock.now_ms())?;
    Some((ticket, replayed))
}

fn answer(replayed: Replayed) -> http::Response<Body> {
    let Replayed { part, terms } = replayed;
    let body = Messages { messages: Box::new(part.into_messages()), terms, ended: false };
    let mut response = http::Response::new(Body::new(body));
    response.headers_mut().insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static("application/grpc"));
    response
}

/// Encoded messages and the trailers behind them.
struct Messages {
    messages: Box<dyn Iterator<Item = Message> + Send>,
    terms: Terms,
    ended: bool,
}

impl HttpBody for Messages {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let next = if self.terms.valid.is_cancelled() { Err(cancelled()) } else { Ok(self.messages.next()) };
        Poll::Ready(Some(Ok(match next {
            Ok(Some(message)) => Frame::data(message.bytes()),
            end => {
                self.ended = true;
                let status = end.err().unwrap_or_else(|| Status::ok(""));
                let mut trailers = http::HeaderMap::new();
                // A status of our own texts always fits into headers.
                let _ = status.add_header(&mut trailers);
                Frame::trailers(trailers)
            }
        })))
    }
}
