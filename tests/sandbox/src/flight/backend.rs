//! Flight SQL of a BE: hands out results by ticket, without authentication.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use arrow_flight::Ticket;
use arrow_flight::flight_service_server::FlightService;
use arrow_flight::sql::server::FlightSqlService;
use arrow_flight::sql::{SqlInfo, TicketStatementQuery};
use futures::{StreamExt, stream};
use tonic::{Request, Response, Status};

use super::gateway::statement_of_ticket;
use super::results::{Holder, Pending, Sink};
use super::{DataStream, encode};
use crate::engine::Profile;
use crate::faults::{Action, NodeId, Site};
use crate::shared::Shared;

/// `brpc_port` of the first BE; each further one on the same host has the next.
const BRPC_PORT: usize = 8060;

/// The port that tickets name for a BE.
pub(super) fn brpc_port(backend: usize) -> usize {
    BRPC_PORT + backend
}

pub(super) struct Backend {
    shared: Arc<Shared>,
}

/// A ticket of the BE: `<instance id>&<host>&<brpc port>&<sql>`.
struct Handle {
    id: String,
    host: String,
    port: usize,
}

impl Handle {
    fn parse(text: &str) -> Result<Self, Status> {
        let parts: Vec<&str> = text.split('&').collect();
        let [id, host, port, _sql] = parts.as_slice() else {
            return Err(Status::invalid_argument(format!("Malformed ticket: {text}, size: {}", parts.len())));
        };
        if id.split('-').count() != 2 {
            // The server joins its format and the values instead of filling them in.
            return Err(Status::invalid_argument(format!("Malformed ticket: {{}}, missing query id: {{}}{text}{id}")));
        }
        let port = port.parse().map_err(|_| Status::invalid_argument("stoi"))?;
        Ok(Self { id: (*id).to_owned(), host: (*host).to_owned(), port })
    }

    /// How readers of other BEs name the result in their errors.
    fn remote_error(&self, text: &str, packet: u64) -> Status {
        let Self { id, host, port } = self;
        Status::invalid_argument(format!(
            "ArrowFlightBatchReader {text}, packet_seq={packet}, result={host}:{port}, finistId={id}"
        ))
    }
}

impl Backend {
    pub fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    fn fault(&self, line: &str) -> Option<Action> {
        self.shared.faults.take_if(Site::BeFlight, line, |action| {
            matches!(action, Action::RequireBearer | Action::FlightSchemaOnly | Action::FlightNoMessage)
        })
    }

    fn sink(&self) -> Sink {
        let config = &self.shared.engine.config().flight;
        Sink { rows: config.result_sink_buffer_size_rows, failing_is_empty: config.failing_query_is_empty }
    }

    fn number(&self) -> usize {
        match self.shared.node {
            NodeId::Be(number) => number,
            NodeId::Fe(_) => 0,
        }
    }

    /// The result of a ticket, and whether another BE holds it.
    fn find(&self, handle: &Handle) -> Result<(Pending, bool), Status> {
        let own = self.number();
        let asked = handle.port.checked_sub(BRPC_PORT);
        let local = handle.host == self.shared.host && asked == Some(own);
        let backends = self.shared.engine.topology().backends;
        let reached = asked.and_then(|b| backends.get(b)).is_some_and(|node| node.alive);
        if !local && (handle.host != self.shared.host || !reached) {
            return Err(handle.remote_error("error=Connection refused, error_text=[E111]Fail to connect", 0));
        }
        let now_ms = self.shared.engine.config().clock.now_ms();
        let pending = self
            .shared
            .flight_results
            .take(&handle.id, now_ms)
            .filter(|pending| asked.is_some_and(|b| pending.holder == Holder::Be(b)))
            .ok_or_else(|| {
                let reader = if local { "ArrowFlightBatchLocalReader fetch arrow data failed, " } else { "" };
                Status::internal(format!("{reader}no result for this query, finst_id={}", handle.id))
            })?;
        Ok((pending, !local))
    }

    /// Pulls a result that another BE holds. It learns the names from the first block, joined by commas.
    async fn remote(&self, handle: &Handle, pending: Pending) -> Result<DataStream, Status> {
        let schema: SchemaRef = Arc::clone(&pending.schema);
        let labels: Vec<&str> = schema.fields().iter().map(|f| f.name().as_str()).collect();
        if labels.iter().any(|label| label.contains(',')) {
            return Err(handle.remote_error("labels of the result are not those of its columns", 1));
        }
        let mut batches = match pending.into_plan(self.sink()) {
            Ok(batches) => batches,
            Err(replay) => return Ok(replay.into_data(self.sink())),
        };
        match batches.next().await {
            // Known as #63136: an end without a block before it is an error.
            None if self.shared.profile() < Profile::V5_0Binlog => {
                Err(handle.remote_error("received unexpected eos, packet_seq=0", 1))
            }
            None => Ok(encode(schema, Box::pin(stream::empty()))),
            Some(first) => Ok(encode(schema, Box::pin(stream::iter([first]).chain(batches)))),
        }
    }
}

#[tonic::async_trait]
impl FlightSqlService for Backend {
    type FlightService = Self;

    async fn do_get_statement(
        &self,
        ticket: TicketStatementQuery,
        request: Request<Ticket>,
    ) -> Result<Response<<Self as FlightService>::DoGetStream>, Status> {
        let text = String::from_utf8_lossy(&ticket.statement_handle).into_owned();
        let handle = Handle::parse(&text)?;
        let fault = self.fault(&format!("DoGet {}", statement_of_ticket(request.get_ref())));
        if matches!(fault, Some(Action::RequireBearer)) {
            let value = request.metadata().get("authorization").and_then(|v| v.to_str().ok()).unwrap_or_default();
            let token = value.strip_prefix("Bearer ").unwrap_or_default();
            if !self.shared.cluster.knows_token(token) {
                return Err(Status::unauthenticated("no bearer token"));
            }
        }
        let (pending, remote) = self.find(&handle)?;
        Ok(Response::new(match fault {
            Some(Action::FlightSchemaOnly) => encode(Arc::clone(&pending.schema), Box::pin(stream::empty())),
            Some(Action::FlightNoMessage) => Box::pin(stream::empty()),
            _ if remote => self.remote(&handle, pending).await?,
            _ => pending.into_data(self.sink()),
        }))
    }

    async fn register_sql_info(&self, _id: i32, _result: &SqlInfo) {}
}
