//! Arrow Flight SQL of FE and BE, each on its own port.
//!
//! The FE runs a statement at `GetFlightInfo` and names where its rows are: itself for what it holds as text, a BE for
//! queries over tables. Rows stream from the running plan, so that a slow reader holds the plan back. What a build
//! allows to tokens and connections is in [`config`] and [`tokens`]; what is kept for a connection, in [`sessions`].

mod backend;
mod catalog;
mod columns;
mod config;
mod errors;
mod frontend;
mod gateway;
mod options;
mod raw;
mod replay;
mod results;
mod sessions;
mod statement;
mod tokens;

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow_flight::FlightData;
use arrow_flight::encode::FlightDataEncoderBuilder;
use arrow_flight::error::FlightError;
use arrow_flight::flight_service_server::FlightServiceServer;
use futures::{Stream, StreamExt, TryStreamExt};
use tokio_rustls::TlsAcceptor;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::{Service, http};
use tonic::server::NamedService;
use tonic::transport::Server;

pub use self::config::{FlightArgs, FlightConfig};
use self::gateway::Gateway;
pub(crate) use self::results::FlightResults;
pub(crate) use self::tokens::FlightSessions;
use crate::faults::Site;
use crate::net::Listener;
use crate::shared::Shared;

/// Size at which the encoder would cut a batch again; Doris does not.
const MAX_MESSAGE_BYTES: usize = 1 << 30;
/// Largest request message.
const MAX_REQUEST_BYTES: usize = 64 * 1024 * 1024;
/// Time between two looks for connections and results that are past their time.
const SWEEP: Duration = Duration::from_secs(1);
/// HTTP/2 windows and frames: what is sent is large, so are they.
const WINDOW: u32 = 16 << 20;
const FRAME: u32 = 1 << 20;

type DataStream = Pin<Box<dyn Stream<Item = Result<FlightData, Status>> + Send>>;
type BatchStream = Pin<Box<dyn Stream<Item = Result<RecordBatch, Status>> + Send>>;

/// Serves an FE until the node stops.
pub(crate) async fn serve_fe(listener: Listener, shared: Arc<Shared>, tls: Option<TlsAcceptor>) {
    let inner = frontend::Frontend::new(Arc::clone(&shared));
    let gateway = Gateway::new(inner, Arc::clone(&shared), Site::FeFlight);
    let service = FlightServiceServer::new(gateway).max_decoding_message_size(MAX_REQUEST_BYTES);
    tokio::select! {
        () = serve(listener, service, tls) => {}
        () = sweep(&shared) => {}
    }
}

/// Serves a BE until the node stops.
pub(crate) async fn serve_be(listener: Listener, shared: Arc<Shared>, tls: Option<TlsAcceptor>) {
    let inner = backend::Backend::new(Arc::clone(&shared));
    let gateway = Gateway::new(inner, Arc::clone(&shared), Site::BeFlight);
    let service = FlightServiceServer::new(gateway).max_decoding_message_size(MAX_REQUEST_BYTES);
    serve(listener, raw::RawReplay::new(service, shared), tls).await;
}

/// Ends idle connections, old tokens and results that nobody reads, also when nobody asks.
async fn sweep(shared: &Shared) {
    let mut ticks = tokio::time::interval(SWEEP);
    loop {
        ticks.tick().await;
        shared.flight_sessions.sweep(&shared.engine);
        shared.flight_results.sweep(shared.engine.config().clock.now_ms());
    }
}

async fn serve<S>(listener: Listener, service: S, tls: Option<TlsAcceptor>)
where
    S: Service<http::Request<Body>, Response = http::Response<Body>, Error = std::convert::Infallible>
        + NamedService
        + Clone
        + Send
        + Sync
        + 'static,
    S::Future: Send + 'static,
{
    let stop = listener.stop();
    // tonic runs each connection in a task of its own; it ends because its stream breaks when the node stops.
    let incoming = Box::pin(listener.connections(tls));
    let served = Server::builder()
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(WINDOW)
        .max_frame_size(FRAME)
        .add_service(service)
        .serve_with_incoming_shutdown(incoming, stop.cancelled());
    if let Err(error) = served.await {
        tracing::warn!(%error, "flight server ended");
    }
}

/// Schema first, even without rows, then each batch as one message.
fn encode(schema: SchemaRef, batches: BatchStream) -> DataStream {
    let batches = batches.map_err(|status| FlightError::Tonic(Box::new(status)));
    let encoder = FlightDataEncoderBuilder::new()
        .with_schema(schema)
        .with_max_flight_data_size(MAX_MESSAGE_BYTES)
        .build(batches)
        .map_err(|error| match error {
            FlightError::Tonic(status) => *status,
            other => Status::internal(other.to_string()),
        });
    Box::pin(encoder)
}

/// A stream of one batch.
fn once(batch: RecordBatch) -> BatchStream {
    Box::pin(futures::stream::once(async move { Ok(batch) }).boxed())
}

#[cfg(test)]
mod tests;
