//! Flight SQL of the FE: login, statements, prepared statements, metadata.

use std::pin::Pin;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions, StringArray};
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
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures::{Stream, StreamExt, TryStreamExt, stream};
use prost::Message;
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::{Request, Response, Status, Streaming};

use super::sessions::FlightSession;
use super::{catalog, encode, once};
use crate::engine::{Origin, Profile, Protocol, StatementResult};
use crate::error::SqlError;
use crate::faults::{Action as FaultAction, Site};
use crate::http::auth::Credentials;
use crate::shared::Shared;
use crate::sql::Statement;
use crate::types::{DorisType, TextStyle, text_value};

/// `brpc_port` that a BE ticket names.
const BRPC_PORT: u16 = 8060;
/// Endpoints of a query under `enable_parallel_result_sink`.
const PARALLEL_ENDPOINTS: usize = 3;
/// Action that ends a session.
const CLOSE_SESSION: &str = "CloseSession";
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

    /// The session of a call: an existing one by bearer token, a new one by Basic login.
    fn authorize<R>(&self, request: &Request<R>) -> Result<Arc<FlightSession>, Status> {
        let value = authorization(request.metadata()).ok_or_else(|| Status::unauthenticated("no credentials"))?;
        if let Some(token) = value.strip_prefix("Bearer ") {
            return self.shared.flight_sessions.get(token).ok_or_else(|| self.unknown_token(token));
        }
        let refused = || Status::unauthenticated("wrong user or password");
        let credentials = Credentials::from_header_value(value).ok_or_else(refused)?;
        if !self.shared.engine.authenticate(&credentials.user, &credentials.password) {
            return Err(refused());
        }
        let address = request.remote_addr().map_or_else(|| "unknown".to_owned(), |a| a.ip().to_string());
        let session = self.shared.engine.open_session(&credentials.user, &address, Protocol::Flight);
        Ok(self.shared.flight_sessions.open(&credentials.user, session))
    }

    fn unknown_token(&self, token: &str) -> Status {
        // Older builds tell the client nothing; newer ones never repeat the token itself.
        if self.shared.profile() < Profile::V5_0Binlog {
            return Status::unauthenticated("");
        }
        let shown: String = token.chars().take(4).collect();
        Status::unauthenticated(format!(
            "invalid bearer token, token id: {shown}***: no Arrow Flight SQL session is open under it on this frontend."
        ))
    }

    fn location(&self) -> String {
        format!("grpc+tcp://{}", self.shared.host_port(self.shared.addresses.fe_flight))
    }

    /// Runs `sql` and describes where its rows are.
    async fn execute(
        &self,
        session: &FlightSession,
        sql: &str,
        descriptor: FlightDescriptor,
    ) -> Result<FlightInfo, Status> {
        let mut context = session.session.lock().await;
        let valid = session.begin_statement();
        let statements = context.split(sql).map_err(|e| statement_error(&e))?;
        check_list(&statements).map_err(|e| statement_error(&e))?;
        let mut result = None;
        for statement in &statements {
            result = Some(context.run(sql, statement).await.map_err(|e| statement_error(&e))?);
        }
        let result = result.ok_or_else(|| statement_error(&SqlError::detail("the statement is empty")))?;
        let parallel =
            context.variable("enable_parallel_result_sink").is_some_and(|v| v == "1" || v.eq_ignore_ascii_case("true"));
        drop(context);
        let (schema, stream, origin, types) = match result {
            StatementResult::Rows { schema, stream, origin, types } => (schema, stream, origin, types),
            StatementResult::Done { .. } => {
                let (schema, rows) = status_result()?;
                let stream = memory_stream(schema, vec![rows]);
                return self.frontend_info(session, stream, valid, descriptor);
            }
        };
        if origin == Origin::Fe {
            let stream = text_stream(&schema, &types, stream).await?;
            return self.frontend_info(session, stream, valid, descriptor);
        }
        let location = self.backend_location(sql);
        let ids = if parallel {
            self.shared
                .flight_results
                .register_parallel(stream, valid, PARALLEL_ENDPOINTS)
                .await
                .map_err(|e| statement_error(&SqlError::detail(e.to_string())))?
        } else {
            vec![self.shared.flight_results.register(stream, valid)]
        };
        let mut info = with_schema(&schema)?.with_descriptor(descriptor);
        for id in ids {
            let handle = format!("{id}&{}&{BRPC_PORT}&{}", self.shared.host, STANDARD.encode(sql));
            info = info.with_endpoint(endpoint(handle, &location));
        }
        Ok(info)
    }

    fn backend_location(&self, sql: &str) -> String {
        self.location_fault(sql)
            .unwrap_or_else(|| format!("grpc+tcp://{}", self.shared.host_port(self.shared.addresses.be_flight)))
    }

    fn location_fault(&self, target: &str) -> Option<String> {
        let line = format!("GetFlightInfo {target}");
        let able = |action: &FaultAction| matches!(action, FaultAction::FlightLocation(_));
        match self.shared.faults.take_if(Site::FeFlight, &line, able) {
            Some(FaultAction::FlightLocation(location)) => Some(location),
            _ => None,
        }
    }

    /// Rows that the FE holds itself.
    fn frontend_info(
        &self,
        session: &FlightSession,
        stream: datafusion::execution::SendableRecordBatchStream,
        valid: tokio_util::sync::CancellationToken,
        descriptor: FlightDescriptor,
    ) -> Result<FlightInfo, Status> {
        let schema = stream.schema();
        let location =
            self.location_fault(&super::gateway::statement_of(&descriptor)).unwrap_or_else(|| self.location());
        let id = self.shared.flight_results.register(stream, valid);
        let handle = format!("{}:{id}", session.token);
        Ok(with_schema(&schema)?.with_descriptor(descriptor).with_endpoint(endpoint(handle, &location)))
    }

    /// A metadata command: its ticket is the command itself.
    fn metadata_info<M: ProstMessageExt>(
        &self,
        command: &M,
        schema: Option<SchemaRef>,
        request: Request<FlightDescriptor>,
    ) -> Info {
        let session = self.authorize(&request)?;
        let info = match schema {
            Some(schema) => with_schema(&schema)?,
            None => FlightInfo::new(),
        };
        let name = super::gateway::statement_of(request.get_ref());
        let location = self.location_fault(&name).unwrap_or_else(|| self.location());
        let ticket = Ticket::new(command.as_any().encode_to_vec());
        let endpoint = FlightEndpoint::new().with_ticket(ticket).with_location(location);
        Ok(echo(&session, info.with_endpoint(endpoint).with_descriptor(request.into_inner())))
    }
}

fn authorization(metadata: &MetadataMap) -> Option<&str> {
    metadata.get("authorization").and_then(|v| v.to_str().ok())
}

/// Doris repeats the bearer token in every answer.
fn echo<T>(session: &FlightSession, body: T) -> Response<T> {
    let mut response = Response::new(body);
    if let Ok(value) = MetadataValue::try_from(format!("Bearer {}", session.token)) {
        response.metadata_mut().insert("authorization", value);
    }
    response
}

fn with_schema(schema: &Schema) -> Result<FlightInfo, Status> {
    FlightInfo::new().try_with_schema(schema).map_err(|e| Status::internal(e.to_string()))
}

fn endpoint(handle: String, location: &str) -> FlightEndpoint {
    let ticket = TicketStatementQuery { statement_handle: handle.into_bytes().into() };
    FlightEndpoint::new().with_ticket(Ticket::new(ticket.as_any().encode_to_vec())).with_location(location)
}

/// A list of statements may return rows once, at its end. Told before any of them runs.
fn check_list(statements: &[Statement]) -> Result<(), SqlError> {
    let Some((last, before)) = statements.split_last() else { return Ok(()) };
    if before.iter().any(Statement::returns_rows) || (!before.is_empty() && !last.returns_rows()) {
        return Err(SqlError::coded(5097, "There can only be one stmt that returns the result and it is at the end."));
    }
    Ok(())
}

/// How Doris reports a failed statement: INTERNAL with a description, or UNAVAILABLE for windows that are not ready.
fn statement_error(error: &SqlError) -> Status {
    let name = error.name.unwrap_or("ERR_UNKNOWN_ERROR");
    let text = format!(
        "get flight info statement failed, {}, {}, error code: {name}, error msg: {}",
        error.text(),
        error.text(),
        error.message
    );
    if !matches!(error.code, 5100 | 5101) {
        return Status::internal(text);
    }
    let mut metadata = MetadataMap::new();
    metadata.insert("doris-error-code", MetadataValue::from(error.code));
    if let Ok(name) = MetadataValue::try_from(name) {
        metadata.insert("doris-error-name", name);
    }
    Status::with_metadata(tonic::Code::Unavailable, text, metadata)
}

/// What a statement without rows answers: one text `0`.
fn status_result() -> Result<(SchemaRef, RecordBatch), Status> {
    let schema: SchemaRef = Arc::new(Schema::new(vec![Field::new("StatusResult", DataType::Utf8, true)]));
    let column: ArrayRef = Arc::new(StringArray::from(vec!["0"]));
    let batch = RecordBatch::try_new(Arc::clone(&schema), vec![column]).map_err(|e| Status::internal(e.to_string()))?;
    Ok((schema, batch))
}

fn memory_stream(schema: SchemaRef, batches: Vec<RecordBatch>) -> datafusion::execution::SendableRecordBatchStream {
    use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
    Box::pin(RecordBatchStreamAdapter::new(schema, stream::iter(batches.into_iter().map(Ok))))
}

/// Rows of the FE are small and travel as texts.
async fn text_stream(
    schema: &Schema,
    types: &[DorisType],
    mut rows: datafusion::execution::SendableRecordBatchStream,
) -> Result<datafusion::execution::SendableRecordBatchStream, Status> {
    let fields: Vec<Field> = schema.fields().iter().map(|f| Field::new(f.name(), DataType::Utf8, true)).collect();
    let texts: SchemaRef = Arc::new(Schema::new(fields));
    let mut batches = Vec::new();
    while let Some(batch) = rows.next().await {
        let batch = batch.map_err(|e| statement_error(&SqlError::detail(e.to_string())))?;
        let columns: Vec<ArrayRef> = batch
            .columns()
            .iter()
            .zip(types)
            .map(|(column, ty)| {
                let cells = (0..batch.num_rows()).map(|row| text_value(column.as_ref(), row, ty, TextStyle::Mysql));
                Arc::new(cells.collect::<StringArray>()) as ArrayRef
            })
            .collect();
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let batch = RecordBatch::try_new_with_options(Arc::clone(&texts), columns, &options)
            .map_err(|e| Status::internal(e.to_string()))?;
        batches.push(batch);
    }
    Ok(memory_stream(texts, batches))
}

/// IPC bytes of a schema, as prepared statements carry them.
fn schema_bytes(schema: &Schema) -> Result<Bytes, Status> {
    let options = IpcWriteOptions::default();
    let message: IpcMessage = SchemaAsIpc::new(schema, &options)
        .try_into()
        .map_err(|e: arrow::error::ArrowError| Status::internal(e.to_string()))?;
    Ok(message.0)
}

#[tonic::async_trait]
impl FlightSqlService for Frontend {
    type FlightService = Self;

    async fn do_handshake(
        &self,
        request: Request<Streaming<HandshakeRequest>>,
    ) -> Result<Response<Pin<Box<dyn Stream<Item = Result<HandshakeResponse, Status>> + Send>>>, Status> {
        let session = self.authorize(&request)?;
        let answer =
            HandshakeResponse { protocol_version: 0, payload: Bytes::copy_from_slice(session.token.as_bytes()) };
        let answers: Pin<Box<dyn Stream<Item = _> + Send>> = Box::pin(stream::iter([Ok(answer)]));
        Ok(echo(&session, answers))
    }

    async fn get_flight_info_statement(
        &self,
        query: CommandStatementQuery,
        request: Request<FlightDescriptor>,
    ) -> Info {
        let session = self.authorize(&request)?;
        let info = self.execute(&session, &query.query, request.into_inner()).await?;
        Ok(echo(&session, info))
    }

    async fn get_flight_info_prepared_statement(
        &self,
        query: CommandPreparedStatementQuery,
        request: Request<FlightDescriptor>,
    ) -> Info {
        let session = self.authorize(&request)?;
        let handle = String::from_utf8_lossy(&query.prepared_statement_handle).into_owned();
        let sql = session
            .prepared(&handle)
            .ok_or_else(|| Status::invalid_argument("prepared statement handle is not known to this token"))?;
        let info = self.execute(&session, &sql, request.into_inner()).await?;
        Ok(echo(&session, info))
    }

    async fn do_get_statement(&self, ticket: TicketStatementQuery, request: Request<Ticket>) -> Data {
        let session = self.authorize(&request)?;
        let handle = String::from_utf8_lossy(&ticket.statement_handle).into_owned();
        let id = handle.strip_prefix(session.token.as_str()).and_then(|rest| rest.strip_prefix(':'));
        let pending = id.and_then(|id| self.shared.flight_results.take(id)).ok_or_else(|| {
            Status::internal("get stream statement failed, the result was fetched before or is no longer valid")
        })?;
        let schema = Arc::clone(&pending.schema);
        Ok(echo(&session, encode(schema, pending.into_batches())))
    }

    async fn do_action_create_prepared_statement(
        &self,
        query: ActionCreatePreparedStatementRequest,
        request: Request<Action>,
    ) -> Result<ActionCreatePreparedStatementResult, Status> {
        let session = self.authorize(&request)?;
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
        let session = self.authorize(&request)?;
        session.close_prepared(&String::from_utf8_lossy(&query.prepared_statement_handle));
        Ok(())
    }

    async fn do_put_prepared_statement_query(
        &self,
        _query: CommandPreparedStatementQuery,
        request: Request<PeekableFlightDataStream>,
    ) -> Result<DoPutPreparedStatementResult, Status> {
        self.authorize(&request)?;
        let data = request.into_inner().map_err(|status| FlightError::Tonic(Box::new(status)));
        let mut batches = FlightRecordBatchStream::new_from_flight_data(data);
        while let Some(batch) = batches.next().await {
            let batch = batch.map_err(|e| Status::invalid_argument(e.to_string()))?;
            if batch.num_rows() > 0 {
                return Err(Status::internal("parameters of prepared statements are not supported"));
            }
        }
        Ok(DoPutPreparedStatementResult { prepared_statement_handle: None })
    }

    async fn do_put_statement_update(
        &self,
        _ticket: CommandStatementUpdate,
        request: Request<PeekableFlightDataStream>,
    ) -> Result<i64, Status> {
        self.authorize(&request)?;
        Err(Status::unimplemented("acceptPutStatement unimplemented"))
    }

    async fn do_put_prepared_statement_update(
        &self,
        _query: CommandPreparedStatementUpdate,
        request: Request<PeekableFlightDataStream>,
    ) -> Result<i64, Status> {
        self.authorize(&request)?;
        Err(Status::unimplemented("acceptPutPreparedStatementUpdate unimplemented"))
    }

    async fn do_action_fallback(
        &self,
        request: Request<Action>,
    ) -> Result<Response<<Self as FlightService>::DoActionStream>, Status> {
        let session = self.authorize(&request)?;
        let name = request.into_inner().r#type;
        if name != CLOSE_SESSION {
            return Err(Status::unimplemented(format!("the sandbox does not implement the action {name}")));
        }
        self.shared.flight_sessions.close(&session.token);
        let closed = arrow_flight::Result { body: Bytes::from_static(SESSION_CLOSED) };
        Ok(Response::new(Box::pin(stream::iter([Ok(closed)]))))
    }

    async fn list_custom_actions(&self) -> Option<Vec<Result<ActionType, Status>>> {
        let description = "Invalidates the bearer token of the call".to_owned();
        Some(vec![Ok(ActionType { r#type: CLOSE_SESSION.to_owned(), description })])
    }

    async fn get_flight_info_sql_info(&self, query: CommandGetSqlInfo, request: Request<FlightDescriptor>) -> Info {
        self.metadata_info(&query, Some(catalog::sql_info_schema()), request)
    }

    async fn get_flight_info_catalogs(&self, query: CommandGetCatalogs, request: Request<FlightDescriptor>) -> Info {
        let schema = query.into_builder().schema();
        self.metadata_info(&query, Some(schema), request)
    }

    async fn get_flight_info_schemas(&self, query: CommandGetDbSchemas, request: Request<FlightDescriptor>) -> Info {
        let schema = query.clone().into_builder().schema();
        self.metadata_info(&query, Some(schema), request)
    }

    async fn get_flight_info_tables(&self, query: CommandGetTables, request: Request<FlightDescriptor>) -> Info {
        let schema = query.clone().into_builder().schema();
        self.metadata_info(&query, Some(schema), request)
    }

    // Doris describes these, and fails when they are fetched.

    async fn get_flight_info_table_types(
        &self,
        query: CommandGetTableTypes,
        request: Request<FlightDescriptor>,
    ) -> Info {
        let schema = query.into_builder().schema();
        self.metadata_info(&query, Some(schema), request)
    }

    async fn get_flight_info_primary_keys(
        &self,
        query: CommandGetPrimaryKeys,
        request: Request<FlightDescriptor>,
    ) -> Info {
        self.metadata_info(&query, None, request)
    }

    async fn get_flight_info_exported_keys(
        &self,
        query: CommandGetExportedKeys,
        request: Request<FlightDescriptor>,
    ) -> Info {
        self.metadata_info(&query, None, request)
    }

    async fn get_flight_info_imported_keys(
        &self,
        query: CommandGetImportedKeys,
        request: Request<FlightDescriptor>,
    ) -> Info {
        self.metadata_info(&query, None, request)
    }

    async fn get_flight_info_cross_reference(
        &self,
        query: CommandGetCrossReference,
        request: Request<FlightDescriptor>,
    ) -> Info {
        self.metadata_info(&query, None, request)
    }

    async fn get_flight_info_xdbc_type_info(
        &self,
        query: CommandGetXdbcTypeInfo,
        request: Request<FlightDescriptor>,
    ) -> Info {
        self.metadata_info(&query, None, request)
    }

    async fn do_get_sql_info(&self, query: CommandGetSqlInfo, request: Request<Ticket>) -> Data {
        let session = self.authorize(&request)?;
        let batch = catalog::sql_info(query, self.shared.profile())?;
        Ok(echo(&session, encode(batch.schema(), once(batch))))
    }

    async fn do_get_catalogs(&self, query: CommandGetCatalogs, request: Request<Ticket>) -> Data {
        let session = self.authorize(&request)?;
        let batch = catalog::catalogs(query)?;
        Ok(echo(&session, encode(batch.schema(), once(batch))))
    }

    async fn do_get_schemas(&self, query: CommandGetDbSchemas, request: Request<Ticket>) -> Data {
        let session = self.authorize(&request)?;
        let batch = catalog::schemas(query, &self.shared)?;
        Ok(echo(&session, encode(batch.schema(), once(batch))))
    }

    async fn do_get_tables(&self, query: CommandGetTables, request: Request<Ticket>) -> Data {
        let session = self.authorize(&request)?;
        let batch = catalog::tables(query, &self.shared, &session.user).await?;
        Ok(echo(&session, encode(batch.schema(), once(batch))))
    }

    async fn register_sql_info(&self, _id: i32, _result: &SqlInfo) {}
}
