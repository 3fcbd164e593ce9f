//! What every Flight call passes: the record of requests and the faults that do not depend on the call.

use std::sync::Arc;

use arrow_flight::flight_service_server::FlightService;
use arrow_flight::sql::{Any, CommandStatementQuery, ProstMessageExt, TicketStatementQuery};
use arrow_flight::{
    Action as FlightAction, Criteria, Empty, FlightData, FlightDescriptor, FlightInfo, HandshakeRequest, PollInfo,
    SchemaResult, Ticket,
};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::StreamExt;
use prost::Message;
use tonic::metadata::MetadataMap;
use tonic::{Code, Request, Response, Status, Streaming};

use super::DataStream;
use crate::faults::{Action, OtherBytes, RequestId, Site, StreamEnd, StreamFault};
use crate::net::ConnectionInfo;
use crate::shared::Shared;

pub(super) struct Gateway<T> {
    inner: T,
    shared: Arc<Shared>,
    site: Site,
}

impl<T> Gateway<T> {
    pub fn new(inner: T, shared: Arc<Shared>, site: Site) -> Self {
        Self { inner, shared, site }
    }

    /// Records a call and performs the faults that end or hold it.
    async fn admit<R>(&self, call: &str, target: &str, request: &Request<R>) -> Result<(), Status> {
        let id = record(&self.shared, self.site, call, target, request);
        let line = format!("{call} {target}");
        if self.site == Site::FeFlight
            && let Some(token) = bearer(request.metadata())
            && self.shared.faults.token_gone(&line)
        {
            self.shared.requests.met(id, &Action::TokenGone);
            self.shared.flight_sessions.close(token);
        }
        let able = |action: &Action| matches!(action, Action::Status { .. } | Action::Wait(_) | Action::Delay(_));
        let Some(action) = self.shared.faults.take_if(self.site, &line, able) else { return Ok(()) };
        self.shared.requests.met(id, &action);
        match action {
            Action::Status { code, body } => Err(Status::new(Code::from(i32::from(code)), body)),
            Action::Wait(signal) => {
                signal.notified().await;
                Ok(())
            }
            Action::Delay(time) => {
                tokio::time::sleep(time).await;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Does the work and loses the answer, if a fault asks for it: the connection breaks.
    async fn answered<R>(&self, line: &str, connection: Option<ConnectionInfo>, answer: R) -> R {
        let lost = self.shared.faults.take_if(self.site, line, |action| matches!(action, Action::DropAnswer));
        if let (Some(_), Some(connection)) = (lost, connection) {
            connection.cut();
            // The call ends with its connection.
            std::future::pending::<()>().await;
        }
        answer
    }
}

/// Keeps a call for tests to look at.
pub(super) fn record<R>(shared: &Shared, site: Site, call: &str, target: &str, request: &Request<R>) -> RequestId {
    let headers = request.metadata().iter().filter_map(|entry| match entry {
        tonic::metadata::KeyAndValueRef::Ascii(name, value) => {
            Some((name.as_str().to_owned(), String::from_utf8_lossy(value.as_encoded_bytes()).into_owned()))
        }
        tonic::metadata::KeyAndValueRef::Binary(..) => None,
    });
    shared.requests.record(site, call, target, headers)
}

/// The bearer token of a call.
pub(super) fn bearer(metadata: &MetadataMap) -> Option<&str> {
    metadata.get("authorization")?.to_str().ok()?.strip_prefix("Bearer ")
}

fn connection<R>(request: &Request<R>) -> Option<ConnectionInfo> {
    request.extensions().get::<ConnectionInfo>().cloned()
}

/// A stream that dies after so many batches; its first message is the schema.
fn dying(stream: DataStream, fault: StreamFault, connection: Option<ConnectionInfo>) -> DataStream {
    let state = (stream, fault.batches.saturating_add(1), Some(fault.end), connection);
    Box::pin(futures::stream::unfold(state, |(mut stream, left, end, connection)| async move {
        let end = end?;
        if left > 0 {
            let item = stream.next().await?;
            return Some((item, (stream, left - 1, Some(end), connection)));
        }
        match (end, connection) {
            (StreamEnd::Cut, Some(connection)) => {
                connection.cut();
                std::future::pending().await
            }
            (StreamEnd::Cut, None) => Some((Err(Status::unavailable("connection cut")), (stream, 0, None, None))),
            (StreamEnd::Error(text), connection) => Some((Err(Status::internal(text)), (stream, 0, None, connection))),
        }
    }))
}

/// A message with other bytes in its rows.
fn altered(message: FlightData, other: &OtherBytes) -> FlightData {
    let mut body = message.data_body.to_vec();
    other.put_into(&mut body);
    FlightData { data_body: body.into(), ..message }
}

/// SQL text of a descriptor, or the name of its command.
pub(super) fn statement_of(descriptor: &FlightDescriptor) -> String {
    let Ok(any) = Any::decode(&*descriptor.cmd) else { return String::new() };
    if any.type_url == CommandStatementQuery::type_url()
        && let Ok(command) = CommandStatementQuery::decode(&*any.value)
    {
        return command.query;
    }
    any.type_url.rsplit('.').next().unwrap_or_default().to_owned()
}

/// SQL text behind a BE ticket, or the name of what the ticket holds.
pub(super) fn statement_of_ticket(ticket: &Ticket) -> String {
    let Ok(any) = Any::decode(&*ticket.ticket) else { return String::new() };
    let sql = TicketStatementQuery::decode(&*any.value)
        .ok()
        .and_then(|t| String::from_utf8(t.statement_handle.to_vec()).ok())
        .and_then(|handle| {
            let sql = handle.splitn(4, '&').nth(3)?;
            // Older builds put the text there as it is.
            let decoded = STANDARD.decode(sql).ok().and_then(|bytes| String::from_utf8(bytes).ok());
            Some(decoded.unwrap_or_else(|| sql.to_owned()))
        });
    sql.unwrap_or_else(|| any.type_url.rsplit('.').next().unwrap_or_default().to_owned())
}

#[tonic::async_trait]
impl<T: FlightService> FlightService for Gateway<T>
where
    T::DoGetStream: 'static,
{
    type HandshakeStream = T::HandshakeStream;
    type ListFlightsStream = T::ListFlightsStream;
    type DoGetStream = DataStream;
    type DoPutStream = T::DoPutStream;
    type DoActionStream = T::DoActionStream;
    type ListActionsStream = T::ListActionsStream;
    type DoExchangeStream = T::DoExchangeStream;

    async fn handshake(
        &self,
        request: Request<Streaming<HandshakeRequest>>,
    ) -> Result<Response<Self::HandshakeStream>, Status> {
        self.admit("Handshake", "", &request).await?;
        self.inner.handshake(request).await
    }

    async fn list_flights(&self, _request: Request<Criteria>) -> Result<Response<Self::ListFlightsStream>, Status> {
        Err(Status::unimplemented("listFlights unimplemented"))
    }

    async fn get_flight_info(&self, request: Request<FlightDescriptor>) -> Result<Response<FlightInfo>, Status> {
        let target = statement_of(request.get_ref());
        self.admit("GetFlightInfo", &target, &request).await?;
        let connection = connection(&request);
        let answer = self.inner.get_flight_info(request).await;
        self.answered(&format!("GetFlightInfo {target}"), connection, answer).await
    }

    async fn poll_flight_info(&self, request: Request<FlightDescriptor>) -> Result<Response<PollInfo>, Status> {
        self.inner.poll_flight_info(request).await
    }

    async fn get_schema(&self, request: Request<FlightDescriptor>) -> Result<Response<SchemaResult>, Status> {
        self.admit("GetSchema", &statement_of(request.get_ref()), &request).await?;
        Err(Status::unimplemented("getSchemaStatement unimplemented"))
    }

    async fn do_get(&self, request: Request<Ticket>) -> Result<Response<Self::DoGetStream>, Status> {
        let target = statement_of_ticket(request.get_ref());
        self.admit("DoGet", &target, &request).await?;
        let connection = connection(&request);
        let answer = self.inner.do_get(request).await?;
        let line = format!("DoGet {target}");
        let fault = self.shared.faults.stream_fault(self.site, &line);
        let other_bytes = self.shared.faults.other_bytes(self.site, &line);
        Ok(answer.map(|stream| {
            let stream: DataStream = match other_bytes {
                Some(other) => Box::pin(stream.map(move |message| message.map(|message| altered(message, &other)))),
                None => Box::pin(stream),
            };
            match fault {
                Some(fault) => dying(stream, fault, connection),
                None => stream,
            }
        }))
    }

    async fn do_put(&self, request: Request<Streaming<FlightData>>) -> Result<Response<Self::DoPutStream>, Status> {
        self.admit("DoPut", "", &request).await?;
        self.inner.do_put(request).await
    }

    async fn do_action(&self, request: Request<FlightAction>) -> Result<Response<Self::DoActionStream>, Status> {
        let name = request.get_ref().r#type.clone();
        self.admit("DoAction", &name, &request).await?;
        let connection = connection(&request);
        let answer = self.inner.do_action(request).await;
        self.answered(&format!("DoAction {name}"), connection, answer).await
    }

    async fn list_actions(&self, request: Request<Empty>) -> Result<Response<Self::ListActionsStream>, Status> {
        self.inner.list_actions(request).await
    }

    async fn do_exchange(
        &self,
        _request: Request<Streaming<FlightData>>,
    ) -> Result<Response<Self::DoExchangeStream>, Status> {
        Err(Status::unimplemented("doExchange unimplemented"))
    }
}
