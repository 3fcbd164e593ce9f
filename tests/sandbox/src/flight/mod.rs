//! Arrow Flight SQL of FE and BE, each on its own port.
//!
//! The FE runs a statement at `GetFlightInfo` and names where its rows are: itself for what it holds as text, the BE
//! for queries over tables. Rows stream from the running plan, so that a slow reader holds the plan back.

mod backend;
mod catalog;
mod frontend;
mod gateway;
mod results;
mod sessions;
mod stop;

use std::pin::Pin;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow_flight::FlightData;
use arrow_flight::encode::FlightDataEncoderBuilder;
use arrow_flight::error::FlightError;
use arrow_flight::flight_service_server::{FlightService, FlightServiceServer};
use futures::{Stream, StreamExt, TryStreamExt};
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tokio_util::sync::CancellationToken;
use tonic::Status;
use tonic::transport::Server;

use self::gateway::Gateway;
pub(crate) use self::results::FlightResults;
pub(crate) use self::sessions::FlightSessions;
use crate::faults::Site;
use crate::shared::Shared;

/// Rows of a batch (`arrow_flight_result_sink_buffer_size_rows`).
const BATCH_ROWS: usize = 32_768;
/// Size at which the encoder would cut a batch of that many rows again; Doris does not.
const MAX_MESSAGE_BYTES: usize = 1 << 30;
/// Largest request message.
const MAX_REQUEST_BYTES: usize = 64 * 1024 * 1024;

type DataStream = Pin<Box<dyn Stream<Item = Result<FlightData, Status>> + Send>>;
type BatchStream = Pin<Box<dyn Stream<Item = Result<RecordBatch, Status>> + Send>>;

/// Serves the FE until `stop`.
pub(crate) async fn serve_fe(listener: TcpListener, shared: Arc<Shared>, stop: CancellationToken) {
    let inner = frontend::Frontend::new(Arc::clone(&shared));
    serve(listener, Gateway::new(inner, shared, Site::FeFlight), stop).await;
}

/// Serves the BE until `stop`.
pub(crate) async fn serve_be(listener: TcpListener, shared: Arc<Shared>, stop: CancellationToken) {
    let inner = backend::Backend::new(Arc::clone(&shared));
    serve(listener, Gateway::new(inner, shared, Site::BeFlight), stop).await;
}

async fn serve<T: FlightService>(listener: TcpListener, gateway: Gateway<T>, stop: CancellationToken) {
    // tonic runs each connection in a task of its own: the stream itself must end them.
    let on_stop = stop.clone();
    let incoming = TcpListenerStream::new(listener).map_ok(move |stream| stop::Stoppable::new(stream, on_stop.clone()));
    let service = FlightServiceServer::new(gateway).max_decoding_message_size(MAX_REQUEST_BYTES);
    let served = Server::builder().add_service(service).serve_with_incoming_shutdown(incoming, stop.cancelled());
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
