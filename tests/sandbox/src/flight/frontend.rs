//! Flight SQL of the FE: login, statements, prepared statements, metadata, session options.

use std::pin::Pin;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::ipc::writer::IpcWriteOptions;
use arrow_flight::decode::FlightRecordBatchStream;
use arrow_flight::error::FlightError;
use arrow_flight::flight_service_server::FlightService;
use arrow_flight::sql::server::{FlightSqlService, PeekableFlightDataStream};
use arrow_flight::sql::{
    ActionClosePreparedStatementRequest, ActionCreatePreparedStatementRequest, ActionCreatePreparedStatementResult,
    CommandGetCatalogs, CommandGetCrossReference, CommandGetDbSchemas, CommandGetExportedKeys, CommandGetImportedKeys,
    CommandGetPrimaryKeys, CommandGetSqlInfo, CommandGetTableTypes, CommandGetTables, CommandGetXdbcTypeInfo,
    CommandPreparedStatementQuery, CommandPreparedStatementUpdate, CommandStatementQuery, CommandStatementUpdate,
    DoPutPreparedStatementResult, ProstMessageExt, SqlInfo, TicketStatementQuery,
};
use arrow_flight::{
    Action, ActionType, FlightDescriptor, FlightEndpoint, FlightInfo, HandshakeRequest, HandshakeResponse, IpcMessage,
    SchemaAsIpc, Ticket,
};
use bytes::Bytes;
use futures::{Stream, StreamExt, TryStreamExt, stream};
use prost::Message;
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::{Request, Response, Status, Streaming};

use super::config::Governance;
use super::results::{Holder, Sink};
use super::sessions::{Command, FlightSession};
use super::statement::{Statements, frontend_location, with_schema};
use super::{catalog, encode, errors, gateway, once, options};
use crate::faults::{Action as FaultAction, Site};
use crate::http::auth::Credentials;
use crate::net::ConnectionInfo;
use crate::shared::Shared;

/// Action that ends a session.
const CLOSE_SESSION: &str = "CloseSession";
/// Actions of the newest build.
const SET_OPTIONS: &str = "SetSessionOptions";
const GET_OPTIONS: &str = "GetSessionOptions";
/// `CloseSessionResult { status: CLOSED }`.
const SESSION_CLOSED: &[u8] = &[0x08, 0x01];

pub(super) struct Frontend {
    shared: Arc<Shared>,
}

type Info = Result<Response<FlightInfo>, Status>;
type Data = Result<Response<<Frontend as FlightService>::DoGetStream>, Status>;

impl Frontend {
    pub fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    fn governance(&self) -> Governance {
        Governance::of(self.shared.profile())
    }

    /// The token of a call: the one it brings, or a new one for its user and password.
    fn authorize<R>(&self, request: &Request<R>) -> Result<String, Status> {
        let value = authorization(request.metadata()).ok_or_else(|| Status::unauthenticated("no credentials"))?;
        let (sessions, engine) = (&self.shared.flight_sessions, &self.shared.engine);
        if let Some(token) = value.strip_prefix("Bearer ") {
            sessions.validate(engine, token)?;
            return Ok(token.to_owned());
        }
        let refused = || Status::unauthenticated("wrong user or password");
        let credentials = Credentials::from_header_value(value).ok_or_else(refused)?;
        if !engine.authenticate(&credentials.user, &credentials.password) {
            return Err(refused());
        }
        let peer = request.extensions().get::<ConnectionInfo>().map(|c| c.peer);
        let address = peer.map_or_else(|| "unknown".to_owned(), |a| a.ip().to_string());
        sessions.login(engine, &credentials.user, &address)
    }

    fn session(&self, token: &str) -> Result<Arc<FlightSession>, Status> {
        self.shared.flight_sessions.session(&self.shared.engine, token)
    }

    /// A turn on the connection of a token.
    async fn command<'a>(&self, session: &'a FlightSession) -> Result<Command<'a>, Status> {
        session.command(self.governance()).await
    }

    /// The two parts of a handle and the connection of the first: tokens may use what others made.
    fn of_handle(&self, handle: &[u8]) -> Result<(Arc<FlightSession>, String), Status> {
        let handle = String::from_utf8_lossy(handle);
        let (token, id) = handle.split_once(':').ok_or_else(errors::short_handle)?;
        Ok((self.session(token)?, id.to_owned()))
    }

    /// Takes a result that the FE holds.
    async fn stream_of(&self, handle: &[u8], token: &str) -> Data {
        let (session, id) = self.of_handle(handle)?;
        let _turn = self.command(&session).await?;
        let engine = &self.shared.engine;
        let pending = self
            .shared
            .flight_results
            .take(&id, engine.config().clock.now_ms())
            .filter(|pending| pending.holder == Holder::Fe)
            .ok_or_else(errors::no_stream)?;
        // The FE sends what it holds in one batch.
        let sink = Sink { rows: usize::MAX, failing_is_empty: false };
        Ok(echo(token, pending.into_data(sink)))
    }

    /// A metadata command: its ticket is the command itself.
    fn metadata_info<M: ProstMessageExt>(
        &self,
        command: &M,
        schema: &SchemaRef,
        request: Request<FlightDescriptor>,
    ) -> Info {
        let token = self.authorize(&request)?;
        let name = gateway::statement_of(request.get_ref());
        let line = format!("GetFlightInfo {name}");
        let able = |action: &FaultAction| matches!(action, FaultAction::FlightLocation(_));
        let location = match self.shared.faults.take_if(Site::FeFlight, &line, able) {
            Some(FaultAction::FlightLocation(location)) => location,
            _ => frontend_location(&self.shared),
        };
        let ticket = Ticket::new(command.as_any().encode_to_vec());
        let endpoint = FlightEndpoint::new().with_ticket(ticket).with_location(location);
        Ok(echo(&token, with_schema(schema)?.with_endpoint(endpoint).with_descriptor(request.into_inner())))
    }

    /// The rows of a metadata command, as one command of the connection.
    async fn metadata<R>(&self, request: Request<R>, make: impl FnOnce() -> Result<RecordBatch, Status>) -> Data {
        let token = self.authorize(&request)?;
        let session = self.session(&token)?;
        let _turn = self.command(&session).await?;
        let batch = make()?;
        Ok(echo(&token, encode(batch.schema(), once(batch))))
    }

    fn unimplemented<R>(&self, request: &Request<R>, call: &str) -> Status {
        match self.authorize(request) {
            Ok(_) => Status::unimplemented(format!("{call} unimplemented")),
            Err(refused) => refused,
        }
    }
}

fn authorization(metadata: &MetadataMap) -> Option<&str> {
    metadata.get("authorization").and_then(|v| v.to_str().ok())
}

/// Doris repeats the bearer token in every answer.
fn echo<T>(token: &str, body: T) -> Response<T> {
    let mut response = Response::new(body);
    if let Ok(value) = MetadataValue::try_from(format!("Bearer {token}")) {
        response.metadata_mut().insert("authorization", value);
    }
    response
}

/// IPC bytes of a schema, as prepared statements carry them.
fn schema_bytes(schema: &Schema) -> Result<Bytes, Status> {
    let options = IpcWriteOptions::default();
    let message: IpcMessage = SchemaAsIpc::new(schema, &options)
        .try_into()
        .map_err(|e: arrow::error::ArrowError| Status::internal(e.to_string()))?;
    Ok(message.0)
}

fn one_result(body: impl Into<Bytes>) -> Response<<Frontend as FlightService>::DoActionStream> {
    let result = arrow_flight::Result { body: body.into() };
    Response::new(Box::pin(stream::iter([Ok(result)])))
}

#[tonic::async_trait]
impl FlightSqlService for Frontend {
    type FlightService = Self;

    async fn do_handshake(
        &self,
        request: Request<Streaming<HandshakeRequest>>,
    ) -> Result<Response<Pin<Box<dyn Stream<Item = Result<HandshakeResponse, Status>> + Send>>>, Status> {
        let token = self.authorize(&request)?;
        let answer = HandshakeResponse { protocol_version: 0, payload: Bytes::copy_from_slice(token.as_bytes()) };
        let answers: Pin<Box<dyn Stream<Item = _> + Send>> = Box::pin(stream::iter([Ok(answer)]));
        Ok(echo(&token, answers))
    }

    async fn get_flight_info_statement(
        &self,
        query: CommandStatementQuery,
        request: Request<FlightDescriptor>,
    ) -> Info {
        let token = self.authorize(&request)?;
        let session = self.session(&token).map_err(errors::no_connection)?;
        let statements = Statements { shared: &self.shared, session: &session };
        let info = statements.execute(&query.query, request.into_inner()).await?;
        Ok(echo(&token, info))
    }

    async fn get_flight_info_prepared_statement(
        &self,
        query: CommandPreparedStatementQuery,
        request: Request<FlightDescriptor>,
    ) -> Info {
        let token = self.authorize(&request)?;
        let (session, id) = self.of_handle(&query.prepared_statement_handle)?;
        let sql = session
            .prepared(&id)
            .ok_or_else(|| errors::after_statement(self.shared.profile(), "the prepared statement is not known"))?;
        let statements = Statements { shared: &self.shared, session: &session };
        let info = statements.execute(&sql, request.into_inner()).await?;
        Ok(echo(&token, info))
    }

    async fn do_get_statement(&self, ticket: TicketStatementQuery, request: Request<Ticket>) -> Data {
        let token = self.authorize(&request)?;
        self.stream_of(&ticket.statement_handle, &token).await
    }

    async fn do_get_prepared_statement(&self, query: CommandPreparedStatementQuery, request: Request<Ticket>) -> Data {
        let token = self.authorize(&request)?;
        self.stream_of(&query.prepared_statement_handle, &token).await
    }

    async fn do_action_create_prepared_statement(
        &self,
        query: ActionCreatePreparedStatementRequest,
        request: Request<Action>,
    ) -> Result<ActionCreatePreparedStatementResult, Status> {
        let token = self.authorize(&request)?;
        let session = self.session(&token)?;
        let _turn = self.command(&session).await?;
        // The text is stored unread; these schemas are placeholders.
        let dataset = Schema::new(vec![Field::new("ResultMeta", DataType::Utf8, true)]);
        Ok(ActionCreatePreparedStatementResult {
            prepared_statement_handle: session.prepare(query.query).into_bytes().into(),
            dataset_schema: schema_bytes(&dataset)?,
            parameter_schema: schema_bytes(&Schema::empty())?,
        })
    }

    async fn do_action_close_prepared_statement(
        &self,
        query: ActionClosePreparedStatementRequest,
        request: Request<Action>,
    ) -> Result<(), Status> {
        self.authorize(&request)?;
        let (session, id) = self.of_handle(&query.prepared_statement_handle)?;
        let _turn = self.command(&session).await?;
        session.close_prepared(&id);
        Ok(())
    }

    async fn do_put_prepared_statement_query(
        &self,
        _query: CommandPreparedStatementQuery,
        request: Request<PeekableFlightDataStream>,
    ) -> Result<DoPutPreparedStatementResult, Status> {
        Err(self.unimplemented(&request, "acceptPutPreparedStatementQuery"))
    }

    async fn do_put_statement_update(
        &self,
        _ticket: CommandStatementUpdate,
        request: Request<PeekableFlightDataStream>,
    ) -> Result<i64, Status> {
        Err(self.unimplemented(&request, "acceptPutStatement"))
    }

    /// Binds parameters: none can be bound, so there may be no rows; the statement itself does not run.
    async fn do_put_prepared_statement_update(
        &self,
        _query: CommandPreparedStatementUpdate,
        request: Request<PeekableFlightDataStream>,
    ) -> Result<i64, Status> {
        self.authorize(&request)?;
        let data = request.into_inner().map_err(|status| FlightError::Tonic(Box::new(status)));
        let mut batches = FlightRecordBatchStream::new_from_flight_data(data);
        while let Some(batch) = batches.next().await {
            let batch = batch.map_err(|e| Status::invalid_argument(e.to_string()))?;
            if batch.num_rows() > 0 {
                return Err(Status::internal(
                    "acceptPutPreparedStatementUpdate failed, null, IllegalStateException: null",
                ));
            }
        }
        Ok(-1)
    }

    async fn do_action_fallback(
        &self,
        request: Request<Action>,
    ) -> Result<Response<<Self as FlightService>::DoActionStream>, Status> {
        let token = self.authorize(&request)?;
        let Action { r#type: name, body } = request.into_inner();
        match name.as_str() {
            CLOSE_SESSION => {
                self.shared.flight_sessions.close(&token);
                Ok(one_result(SESSION_CLOSED))
            }
            SET_OPTIONS if self.governance() == Governance::OnePool => {
                let wanted =
                    options::SessionOptions::decode(body).map_err(|e| Status::invalid_argument(e.to_string()))?;
                let session = self.session(&token)?;
                let mut context = self.command(&session).await?;
                Ok(one_result(options::set(&mut context, wanted).encode_to_vec()))
            }
            GET_OPTIONS if self.governance() == Governance::OnePool => {
                let session = self.session(&token)?;
                let context = self.command(&session).await?;
                Ok(one_result(options::get(&context).encode_to_vec()))
            }
            _ => Err(Status::unimplemented(format!("the sandbox does not implement the action {name}"))),
        }
    }

    async fn list_custom_actions(&self) -> Option<Vec<Result<ActionType, Status>>> {
        let action = |name: &str, text: &str| Ok(ActionType { r#type: name.to_owned(), description: text.to_owned() });
        let mut actions = vec![action(CLOSE_SESSION, "Invalidates the bearer token of the call")];
        if self.governance() == Governance::OnePool {
            actions.push(action(SET_OPTIONS, "Sets options of the session of the call"));
            actions.push(action(GET_OPTIONS, "Tells the options of the session of the call"));
        }
        Some(actions)
    }

    async fn get_flight_info_sql_info(&self, query: CommandGetSqlInfo, request: Request<FlightDescriptor>) -> Info {
        self.metadata_info(&query, &catalog::sql_info_schema(), request)
    }

    async fn get_flight_info_catalogs(&self, query: CommandGetCatalogs, request: Request<FlightDescriptor>) -> Info {
        let schema = query.into_builder().schema();
        self.metadata_info(&query, &schema, request)
    }

    async fn get_flight_info_schemas(&self, query: CommandGetDbSchemas, request: Request<FlightDescriptor>) -> Info {
        let schema = query.clone().into_builder().schema();
        self.metadata_info(&query, &schema, request)
    }

    async fn get_flight_info_tables(&self, query: CommandGetTables, request: Request<FlightDescriptor>) -> Info {
        let schema = query.clone().into_builder().schema();
        self.metadata_info(&query, &schema, request)
    }

    // Doris describes these, and fails when they are fetched.

    async fn get_flight_info_table_types(
        &self,
        query: CommandGetTableTypes,
        request: Request<FlightDescriptor>,
    ) -> Info {
        let schema = query.into_builder().schema();
        self.metadata_info(&query, &schema, request)
    }

    async fn get_flight_info_primary_keys(
        &self,
        query: CommandGetPrimaryKeys,
        request: Request<FlightDescriptor>,
    ) -> Info {
        self.metadata_info(&query, &catalog::primary_keys_schema(), request)
    }

    async fn get_flight_info_exported_keys(
        &self,
        query: CommandGetExportedKeys,
        request: Request<FlightDescriptor>,
    ) -> Info {
        self.metadata_info(&query, &catalog::foreign_keys_schema(), request)
    }

    async fn get_flight_info_imported_keys(
        &self,
        query: CommandGetImportedKeys,
        request: Request<FlightDescriptor>,
    ) -> Info {
        self.metadata_info(&query, &catalog::foreign_keys_schema(), request)
    }

    async fn get_flight_info_cross_reference(
        &self,
        query: CommandGetCrossReference,
        request: Request<FlightDescriptor>,
    ) -> Info {
        self.metadata_info(&query, &catalog::foreign_keys_schema(), request)
    }

    async fn get_flight_info_xdbc_type_info(
        &self,
        query: CommandGetXdbcTypeInfo,
        request: Request<FlightDescriptor>,
    ) -> Info {
        self.metadata_info(&query, &catalog::type_info_schema()?, request)
    }

    async fn do_get_table_types(&self, _query: CommandGetTableTypes, request: Request<Ticket>) -> Data {
        Err(self.unimplemented(&request, "getStreamTableTypes"))
    }

    async fn do_get_primary_keys(&self, _query: CommandGetPrimaryKeys, request: Request<Ticket>) -> Data {
        Err(self.unimplemented(&request, "getStreamPrimaryKeys"))
    }

    async fn do_get_exported_keys(&self, _query: CommandGetExportedKeys, request: Request<Ticket>) -> Data {
        Err(self.unimplemented(&request, "getStreamExportedKeys"))
    }

    async fn do_get_imported_keys(&self, _query: CommandGetImportedKeys, request: Request<Ticket>) -> Data {
        Err(self.unimplemented(&request, "getStreamImportedKeys"))
    }

    async fn do_get_cross_reference(&self, _query: CommandGetCrossReference, request: Request<Ticket>) -> Data {
        Err(self.unimplemented(&request, "getStreamCrossReference"))
    }

    async fn do_get_xdbc_type_info(&self, _query: CommandGetXdbcTypeInfo, request: Request<Ticket>) -> Data {
        Err(self.unimplemented(&request, "getStreamTypeInfo"))
    }

    async fn do_get_sql_info(&self, query: CommandGetSqlInfo, request: Request<Ticket>) -> Data {
        let token = self.authorize(&request)?;
        let batch = catalog::sql_info(query)?;
        Ok(echo(&token, encode(batch.schema(), once(batch))))
    }

    async fn do_get_catalogs(&self, query: CommandGetCatalogs, request: Request<Ticket>) -> Data {
        self.metadata(request, || catalog::catalogs(query)).await
    }

    async fn do_get_schemas(&self, query: CommandGetDbSchemas, request: Request<Ticket>) -> Data {
        self.metadata(request, || catalog::schemas(query, &self.shared)).await
    }

    async fn do_get_tables(&self, query: CommandGetTables, request: Request<Ticket>) -> Data {
        let token = self.authorize(&request)?;
        let session = self.session(&token)?;
        let _turn = self.command(&session).await?;
        let batch = catalog::tables(query, &self.shared, &session.user).await?;
        Ok(echo(&token, encode(batch.schema(), once(batch))))
    }

    async fn register_sql_info(&self, _id: i32, _result: &SqlInfo) {}
}
