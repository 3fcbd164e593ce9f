//! Arrow Flight SQL: login, session variables, statements and their results.
//!
//! One bearer token is one server-side connection: its variables persist, it runs one statement at a time, and it
//! ends with `CloseSession`. A statement runs when its `FlightInfo` is asked for; results come from one or more
//! endpoints, each at the location the server names (FE or BE), and every data call carries the token.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use arrow::datatypes::Schema;
use arrow_flight::error::FlightError;
use arrow_flight::flight_service_client::FlightServiceClient;
use arrow_flight::sql::{CommandStatementQuery, ProstMessageExt};
use arrow_flight::{Action, FlightDescriptor, FlightInfo, HandshakeRequest};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use futures::future::BoxFuture;
use futures::{FutureExt, TryStreamExt};
use parking_lot::Mutex;
use prost::Message;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Channel, ClientTlsConfig, Endpoint};
use tonic::{Code, Status};

use super::flight_result::{FlightQuery, ResultEndpoint};
use super::{DorisClient, http::host_of};
use crate::error::{Error, Result, Retry};
use crate::options::ConnectionOptions;
use crate::protocol::parse_flight_location;

/// Time a best-effort `CloseSession` may take.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
/// Probes of the operating system: they find a dead peer, and no server counts them.
const TCP_KEEP_ALIVE: Duration = Duration::from_secs(30);
/// HTTP/2 pings while a call is open. The FE is a Java gRPC server, which permits one ping in five minutes by default
/// and ends connections that send more (GOAWAY `too_many_pings`).
const HTTP2_KEEP_ALIVE: Duration = Duration::from_secs(330);

/// Bytes of one result that the server may send before they are read.
const STREAM_WINDOW: u32 = 8 << 20;
/// The same of all results of a connection: no limit of its own, since results that nobody reads for a while (a merge reads
/// them as its keys ask for) would keep the others of their server from coming.
const CONNECTION_WINDOW: u32 = i32::MAX as u32;
/// Largest piece of a result that the server may send in one HTTP/2 frame: with those of 16 KiB, which is the default, a
/// reader spends as much on frames as on their content.
const FRAME: u32 = 1 << 20;

/// Connections to Flight servers, one per URL; a channel connects on first use and reconnects by itself.
#[derive(Debug, Default)]
pub(super) struct Channels {
    by_url: Mutex<HashMap<String, Channel>>,
}

impl Channels {
    /// The channel to `url` (`http://host:port`, or `https://` for TLS).
    fn get(&self, url: &str, options: &ConnectionOptions) -> Result<Channel> {
        let mut channels = self.by_url.lock();
        if let Some(channel) = channels.get(url) {
            return Ok(channel.clone());
        }
        let unusable = |source: tonic::transport::Error| Error::Transport {
            host: authority_of(url).to_string(),
            operation: "using the arrow flight address".into(),
            retry: Retry::Never,
            source: Box::new(source),
        };
        let mut endpoint = Endpoint::from_shared(url.to_string()).map_err(unusable)?;
        if url.starts_with("https://") {
            endpoint = endpoint.tls_config(ClientTlsConfig::new().with_native_roots()).map_err(unusable)?;
        }
        let channel = endpoint
            .connect_timeout(options.connect_timeout)
            .tcp_nodelay(true)
            .tcp_keepalive(Some(TCP_KEEP_ALIVE))
            .http2_keep_alive_interval(HTTP2_KEEP_ALIVE)
            .keep_alive_timeout(Duration::from_secs(20))
            .keep_alive_while_idle(false)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_frame_size(FRAME)
            .connect_lazy();
        channels.insert(url.to_string(), channel.clone());
        Ok(channel)
    }

    /// Drops the channel, so that the next use starts a new connection at once instead of waiting for a back-off.
    fn forget(&self, url: &str) {
        self.by_url.lock().remove(url);
    }
}

/// What a login is called in errors.
const LOGIN: &str = "arrow flight login";

fn authority_of(url: &str) -> &str {
    url.split_once("://").map_or(url, |(_, authority)| authority)
}

/// A logged-in server connection.
///
/// # Cancellation
/// Dropping a session without [`FlightSession::close`] hands its token to a task of the [`DorisClient`] that sends
/// `CloseSession` as long as the client lives; the server then cancels a running statement. When the client is
/// dropped first, the server keeps the session until its idle timeout.
#[derive(Debug)]
pub struct FlightSession {
    client: DorisClient,
    /// `host:port` of the FE that issued the token.
    authority: String,
    /// Host of the FE, for endpoints that name no usable host.
    host: String,
    connection: Connection,
    closed: bool,
}

/// A session without the client, which may keep it.
#[derive(Debug)]
pub(super) struct RestingSession {
    authority: String,
    host: String,
    connection: Connection,
}

/// The channel of the FE and the token that it issued.
#[derive(Clone)]
pub(super) struct Connection {
    channel: Channel,
    bearer: MetadataValue<Ascii>,
    max_message_bytes: usize,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").field("max_message_bytes", &self.max_message_bytes).finish_non_exhaustive()
    }
}

impl Connection {
    pub(super) fn service(&self, channel: Channel) -> FlightServiceClient<Channel> {
        FlightServiceClient::new(channel)
            .max_decoding_message_size(self.max_message_bytes)
            .max_encoding_message_size(usize::MAX)
    }

    pub(super) fn request<T>(&self, message: T) -> tonic::Request<T> {
        let mut request = tonic::Request::new(message);
        request.metadata_mut().insert("authorization", self.bearer.clone());
        request
    }

    async fn close_session(&self) -> Result<(), Status> {
        let mut service = self.service(self.channel.clone());
        // The empty protobuf message is the whole CloseSessionRequest.
        let action = Action { r#type: "CloseSession".into(), body: Default::default() };
        let answers = service.do_action(self.request(action)).await?.into_inner();
        answers.try_for_each(|_| std::future::ready(Ok(()))).await
    }
}

impl FlightSession {
    /// Logs in at `authority` and sets `variables`, whose values are SQL texts.
    pub(super) fn open<'a>(
        client: &'a DorisClient,
        authority: &'a str,
        variables: &'a [(&'a str, &'a str)],
    ) -> BoxFuture<'a, Result<Self>> {
        async move {
            let options = client.options();
            let url = format!("http://{authority}");
            let channel = client.channels().get(&url, options)?;
            let connect = async {
                let bearer = handshake(channel.clone(), authority, options).await?;
                Ok(Connection { channel, bearer, max_message_bytes: options.flight_max_message_bytes })
            };
            let limit = options.connect_timeout + options.read_timeout;
            let connected = match tokio::time::timeout(limit, connect).await {
                Ok(connected) => connected,
                Err(elapsed) => Err(Error::Transport {
                    host: authority.to_string(),
                    operation: LOGIN.into(),
                    retry: Retry::SameLabel,
                    source: Box::new(elapsed),
                }),
            };
            let connection = connected.inspect_err(|_| client.channels().forget(&url))?;
            let host = host_of(authority).to_string();
            let mut session =
                Self { client: client.clone(), authority: authority.to_string(), host, connection, closed: false };
            for (name, value) in variables {
                session.query(&format!("SET {name} = {value}")).await?;
            }
            Ok(session)
        }
        .boxed()
    }

    /// `host:port` of the FE of this session.
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// Runs `sql` and returns where its result is to be had.
    ///
    /// The statement has been executed (or started) when this returns, so it is never repeated by itself. There is
    /// no client-side time limit: the server's `query_timeout` governs. A dead peer is found by TCP keep-alive, or by an
    /// HTTP/2 ping after five and a half minutes without data. An unread result of the previous statement of this
    /// session is lost.
    ///
    /// # Errors
    /// [`Error::Server`] with the server's text and code, [`Error::Auth`], [`Error::Transport`].
    pub fn query<'a>(&'a mut self, sql: &'a str) -> BoxFuture<'a, Result<FlightQuery>> {
        async move {
            let command = CommandStatementQuery { query: sql.to_string(), transaction_id: None };
            let descriptor = FlightDescriptor::new_cmd(command.as_any().encode_to_vec());
            let mut service = self.connection.service(self.connection.channel.clone());
            let info = service
                .get_flight_info(self.connection.request(descriptor))
                .await
                .map_err(|status| status_error(&self.authority, "the statement", status))?
                .into_inner();
            self.plan_result(info)
        }
        .boxed()
    }

    fn plan_result(&self, info: FlightInfo) -> Result<FlightQuery> {
        let schema = if info.schema.is_empty() {
            Arc::new(Schema::empty())
        } else {
            Arc::new(info.clone().try_decode_schema()?)
        };
        let mut endpoints = Vec::with_capacity(info.endpoint.len());
        for endpoint in info.endpoint {
            let Some(ticket) = endpoint.ticket else {
                return Err(Error::Server {
                    host: self.authority.clone(),
                    operation: "the statement".into(),
                    code: None,
                    message: "a flight endpoint without a ticket".into(),
                });
            };
            let mut sources = Vec::new();
            for location in &endpoint.location {
                let located = parse_flight_location(&location.uri, &self.host).map_err(|malformed| Error::Server {
                    host: self.authority.clone(),
                    operation: "the statement".into(),
                    code: None,
                    message: malformed.to_string(),
                })?;
                let located = located.mapped(|host, port| self.client.options().flight_host_map.resolve(host, port));
                sources.push(match located.endpoint_url() {
                    Some(url) if authority_of(&url) != self.authority => {
                        let channel = self.client.channels().get(&url, self.client.options())?;
                        (authority_of(&url).to_string(), channel)
                    }
                    _ => (self.authority.clone(), self.connection.channel.clone()),
                });
            }
            if sources.is_empty() {
                sources.push((self.authority.clone(), self.connection.channel.clone()));
            }
            endpoints.push(ResultEndpoint { ticket, sources });
        }
        Ok(FlightQuery::new(schema, endpoints, self.connection.clone(), self.authority.clone()))
    }

    /// What is left of a session that somebody may use again; it is not closed by being dropped.
    pub(super) fn rest(mut self) -> RestingSession {
        self.closed = true;
        RestingSession {
            authority: std::mem::take(&mut self.authority),
            host: std::mem::take(&mut self.host),
            connection: self.connection.clone(),
        }
    }

    /// The session again.
    pub(super) fn wake(client: DorisClient, resting: RestingSession) -> Self {
        let RestingSession { authority, host, connection } = resting;
        Self { client, authority, host, connection, closed: false }
    }

    /// Ends the server-side connection; a statement that still runs there is cancelled.
    ///
    /// # Errors
    /// [`Error::Transport`] or [`Error::Server`] when the server could not be told; the session is unusable anyway.
    pub async fn close(mut self) -> Result<()> {
        self.closed = true;
        match tokio::time::timeout(CLOSE_TIMEOUT, self.connection.close_session()).await {
            Ok(Ok(())) => Ok(()),
            // The token is gone already, or the server is older than the action: nothing is left to close.
            Ok(Err(status)) if matches!(status.code(), Code::Unauthenticated | Code::Unimplemented) => Ok(()),
            Ok(Err(status)) => Err(status_error(&self.authority, "closing the session", status)),
            Err(elapsed) => Err(Error::Transport {
                host: self.authority.clone(),
                operation: "closing the session".into(),
                retry: Retry::Never,
                source: Box::new(elapsed),
            }),
        }
    }
}

impl Drop for FlightSession {
    fn drop(&mut self) {
        if !self.closed {
            let connection = self.connection.clone();
            // Work that holds the client is done even when this was its last user.
            let client = self.client.clone();
            self.client.cleanup().later("close session", async move {
                if let Err(status) = connection.close_session().await {
                    tracing::debug!(code = ?status.code(), "close session failed");
                }
                drop(client);
            });
        }
    }
}

/// Basic in, bearer out.
async fn handshake(channel: Channel, authority: &str, options: &ConnectionOptions) -> Result<MetadataValue<Ascii>> {
    let credentials = BASE64_STANDARD.encode(format!("{}:{}", options.username, options.password.reveal()));
    let mut basic: MetadataValue<Ascii> =
        format!("Basic {credentials}").parse().map_err(|_| Error::config("password", "cannot be sent in a header"))?;
    basic.set_sensitive(true);
    let hello = HandshakeRequest { protocol_version: 0, payload: Default::default() };
    let mut request = tonic::Request::new(futures::stream::iter([hello]));
    request.metadata_mut().insert("authorization", basic);
    let answer = FlightServiceClient::new(channel)
        .handshake(request)
        .await
        .map_err(|status| status_error(authority, LOGIN, status))?;
    let token = answer
        .metadata()
        .get("authorization")
        .and_then(|value| value.to_str().ok())
        .and_then(|text| text.strip_prefix("Bearer "))
        .map(str::to_string);
    // The stream is drained, so that the call ends orderly.
    answer
        .into_inner()
        .try_for_each(|_| std::future::ready(Ok(())))
        .await
        .map_err(|status| status_error(authority, LOGIN, status))?;
    let mut bearer: MetadataValue<Ascii> = token
        .and_then(|token| format!("Bearer {token}").parse().ok())
        .ok_or_else(|| Error::Auth { host: authority.to_string(), message: "the login gave no bearer token".into() })?;
    bearer.set_sensitive(true);
    Ok(bearer)
}

pub(super) fn flight_error(authority: &str, error: FlightError) -> Error {
    match error {
        FlightError::Tonic(status) => status_error(authority, "reading the result", *status),
        FlightError::Arrow(error) => error.into(),
        other => Error::Transport {
            host: authority.to_string(),
            operation: "reading the result".into(),
            retry: Retry::Never,
            source: Box::new(other),
        },
    }
}

/// A gRPC status as this crate's error: refused credentials, an answer of Doris, or a broken connection.
pub(super) fn status_error(authority: &str, operation: &str, status: Status) -> Error {
    let message = status.message().to_string();
    let from_transport = std::error::Error::source(&status).is_some();
    match status.code() {
        // The token came from a login that was accepted: its session has ended (an FE that restarted, idle time), and
        // another one can be opened.
        Code::Unauthenticated if operation != LOGIN => Error::Transport {
            host: authority.to_string(),
            operation: operation.to_string(),
            retry: Retry::SameLabel,
            source: if message.is_empty() { "the token is not accepted any more".into() } else { message.into() },
        },
        Code::Unauthenticated | Code::PermissionDenied => Error::Auth {
            host: authority.to_string(),
            message: if message.is_empty() { "arrow flight credentials or token not accepted".into() } else { message },
        },
        // tonic reports its own failures (connect, keep-alive, broken stream) with a source and these codes.
        Code::Unavailable | Code::Unknown | Code::Cancelled if from_transport => Error::Transport {
            host: authority.to_string(),
            operation: operation.to_string(),
            retry: Retry::SameLabel,
            source: Box::new(status),
        },
        Code::OutOfRange if message.contains("message length too large") => Error::Transport {
            host: authority.to_string(),
            operation: format!("{operation} (raise 'doris.flight.max-message-size')"),
            retry: Retry::Never,
            source: Box::new(status),
        },
        _ => Error::Server {
            host: authority.to_string(),
            operation: operation.to_string(),
            code: doris_code(&status),
            message,
        },
    }
}

/// The Doris error code: newer servers send it as metadata, the mysql-like text holds the plain ones.
fn doris_code(status: &Status) -> Option<u32> {
    let sent = status.metadata().get("doris-error-code").and_then(|value| value.to_str().ok());
    sent.and_then(|text| text.trim().parse().ok())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    #[test]
    fn refused_login_is_final_and_a_refused_token_is_a_lost_session() {
        let lost = status_error("fe:8070", "the statement", Status::unauthenticated("invalid bearer token"));
        assert_eq!(lost.outlook(), crate::error::Outlook::Passing);
        assert!(lost.to_string().contains("invalid bearer token"), "{lost}");
        let denied = status_error("fe:8070", "the statement", Status::permission_denied("no SELECT"));
        assert!(matches!(denied, Error::Auth { .. }), "{denied}");
        let error = status_error("fe:8070", LOGIN, Status::unauthenticated(""));
        assert_eq!(error.to_string(), "access to fe:8070 refused: arrow flight credentials or token not accepted");
    }

    #[test]
    fn doris_error_code_is_read_from_metadata() {
        let mut status = Status::unavailable("start is expired");
        status.metadata_mut().insert("doris-error-code", "5101".parse().unwrap());
        match status_error("fe:8070", "the statement", status) {
            Error::Server { code, message, .. } => {
                assert_eq!(code, Some(5101));
                assert_eq!(message, "start is expired");
            }
            other => panic!("expected a server error, got {other}"),
        }
    }

    #[test]
    fn too_large_message_names_the_option() {
        let status = Status::out_of_range("Error, decoded message length too large: found 8 bytes");
        assert!(
            status_error("be:1", "reading the result", status).to_string().contains("doris.flight.max-message-size")
        );
    }

    #[test]
    fn debug_of_a_connection_hides_the_token() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let _guard = runtime.enter();
        let connection = Connection {
            channel: Endpoint::from_static("http://localhost:1").connect_lazy(),
            bearer: "Bearer verysecret".parse().unwrap(),
            max_message_bytes: 1,
        };
        assert!(!format!("{connection:?}").contains("verysecret"));
    }
}
