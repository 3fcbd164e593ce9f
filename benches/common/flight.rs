//! Connections of the bare Flight clients.

use tonic::transport::{Channel, Endpoint};

use super::Outcome;

/// HTTP/2 window of the reader.
const WINDOW: u32 = 64 << 20;
/// HTTP/2 frames of the reader.
const FRAME: u32 = 1 << 20;

/// A connection to `host:port`.
pub async fn channel(address: &str) -> Outcome<Channel> {
    let endpoint = Endpoint::from_shared(format!("http://{address}"))?
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(WINDOW)
        .max_frame_size(FRAME)
        .tcp_nodelay(true);
    Ok(endpoint.connect().await?)
}
