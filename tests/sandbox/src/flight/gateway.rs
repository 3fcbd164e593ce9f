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
use prost::Message;
use tonic::{Code, Request, Response, Status, Streaming};

use crate::faults::{Action, Site};
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

    async fn admit<R>(&self, call: &str, target: &str, request: &Request<R>) -> Result<(), Status> {
        let headers = request.metadata().iter().filter_map(|entry| match entry {
            tonic::metadata::KeyAndValueRef::Ascii(name, value) => {
                Some((name.as_str().to_owned(), String::from_utf8_lossy(value.as_encoded_bytes()).into_owned()))
            }
            tonic::metadata::KeyAndValueRef::Binary(..) => None,
        });
        self.shared.requests.record(self.site, call, target, headers);
        let line = format!("{call} {target}");
        let able = |action: &Action| matches!(action, Action::Status { .. } | Action::Wait(_));
        match self.shared.faults.take_if(self.site, &line, able) {
            Some(Action::Status { code, body }) => Err(Status::new(Code::from(i32::from(code)), body)),
            Some(Action::Wait(signal)) => {
                signal.notified().await;
                Ok(())
            }
            _ => Ok(()),
        }
    }
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
        .and_then(|handle| handle.split('&').nth(3).and_then(|sql| STANDARD.decode(sql).ok()))
        .and_then(|sql| String::from_utf8(sql).ok());
    sql.unwrap_or_else(|| any.type_url.rsplit('.').next().unwrap_or_default().to_owned())
}

#[tonic::async_trait]
impl<T: FlightService> FlightService for Gateway<T> {
    type HandshakeStream = T::HandshakeStream;
    type ListFlightsStream = T::ListFlightsStream;
    type DoGetStream = T::DoGetStream;
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
        self.admit("GetFlightInfo", &statement_of(request.get_ref()), &request).await?;
        self.inner.get_flight_info(request).await
    }

    async fn poll_flight_info(&self, request: Request<FlightDescriptor>) -> Result<Response<PollInfo>, Status> {
        self.inner.poll_flight_info(request).await
    }

    async fn get_schema(&self, request: Request<FlightDescriptor>) -> Result<Response<SchemaResult>, Status> {
        self.admit("GetSchema", &statement_of(request.get_ref()), &request).await?;
        Err(Status::unimplemented("getSchemaStatement unimplemented"))
    }

    async fn do_get(&self, request: Request<Ticket>) -> Result<Response<Self::DoGetStream>, Status> {
        self.admit("DoGet", &statement_of_ticket(request.get_ref()), &request).await?;
        self.inner.do_get(request).await
    }

    async fn do_put(&self, request: Request<Streaming<FlightData>>) -> Result<Response<Self::DoPutStream>, Status> {
        self.admit("DoPut", "", &request).await?;
        self.inner.do_put(request).await
    }

    async fn do_action(&self, request: Request<FlightAction>) -> Result<Response<Self::DoActionStream>, Status> {
        let name = request.get_ref().r#type.clone();
        self.admit("DoAction", &name, &request).await?;
        self.inner.do_action(request).await
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
