//! Flight SQL of the BE: hands out results by ticket, without authentication.

use std::sync::Arc;

use arrow_flight::Ticket;
use arrow_flight::flight_service_server::FlightService;
use arrow_flight::sql::server::FlightSqlService;
use arrow_flight::sql::{SqlInfo, TicketStatementQuery};
use tonic::{Request, Response, Status};

use super::encode;
use super::gateway::statement_of_ticket;
use crate::faults::{Action, Site};
use crate::shared::Shared;

pub(super) struct Backend {
    shared: Arc<Shared>,
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
}

#[tonic::async_trait]
impl FlightSqlService for Backend {
    type FlightService = Self;

    async fn do_get_statement(
        &self,
        ticket: TicketStatementQuery,
        request: Request<Ticket>,
    ) -> Result<Response<<Self as FlightService>::DoGetStream>, Status> {
        let handle = String::from_utf8_lossy(&ticket.statement_handle).into_owned();
        let parts: Vec<&str> = handle.split('&').collect();
        if parts.len() != 4 {
            return Err(Status::invalid_argument(format!("Malformed ticket: {handle}, size: {}", parts.len())));
        }
        let fault = self.fault(&format!("DoGet {}", statement_of_ticket(request.get_ref())));
        if matches!(fault, Some(Action::RequireBearer)) {
            let value = request.metadata().get("authorization").and_then(|v| v.to_str().ok()).unwrap_or_default();
            let token = value.strip_prefix("Bearer ").unwrap_or_default();
            if self.shared.flight_sessions.get(token).is_none() {
                return Err(Status::unauthenticated("no bearer token"));
            }
        }
        let pending = self.shared.flight_results.take(parts[0]).ok_or_else(|| {
            Status::internal(format!(
                "ArrowFlightBatchLocalReader fetch arrow data failed, no result for this query, finst_id={}",
                parts[0]
            ))
        })?;
        let schema = Arc::clone(&pending.schema);
        Ok(Response::new(match fault {
            Some(Action::FlightSchemaOnly) => encode(schema, Box::pin(futures::stream::empty())),
            Some(Action::FlightNoMessage) => Box::pin(futures::stream::empty()),
            _ => encode(schema, pending.into_batches()),
        }))
    }

    async fn register_sql_info(&self, _id: i32, _result: &SqlInfo) {}
}
