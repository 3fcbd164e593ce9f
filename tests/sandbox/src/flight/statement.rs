//! Statements of a token: run at `GetFlightInfo`, described by a FlightInfo.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow_flight::sql::{ProstMessageExt, TicketStatementQuery};
use arrow_flight::{FlightDescriptor, FlightEndpoint, FlightInfo, Ticket};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::{StreamExt, stream};
use prost::Message;
use tokio_util::sync::CancellationToken;
use tonic::Status;

use super::config::Governance;
use super::replay::{Frozen, Key, Part, drain};
use super::results::{Holder, Terms};
use super::sessions::{Command, FlightSession};
use super::{backend, errors};
use crate::engine::{Node, Origin, Profile, StatementResult};
use crate::error::SqlError;
use crate::faults::{Action, Site};
use crate::queries::{ActiveQuery, EndOfReading};
use crate::random;
use crate::shared::Shared;
use crate::sql::{Shape, Statement};
use crate::types::{DorisType, TextStyle, text_value};

/// Seconds beyond `query_timeout` that a BE keeps a result nobody reads.
const RESULT_GRACE_S: i64 = 5;

/// Runs the statements of a token.
pub(super) struct Statements<'a> {
    pub shared: &'a Shared,
    pub session: &'a FlightSession,
}

/// A statement that ran and has rows.
struct Rows {
    schema: SchemaRef,
    stream: SendableRecordBatchStream,
    origin: Origin,
    types: Vec<DorisType>,
}

/// What a read of a frozen table needs to know.
struct ReplayRead {
    key: Key,
    target: Option<u64>,
}

impl Statements<'_> {
    fn profile(&self) -> Profile {
        self.shared.profile()
    }

    fn failed(&self, error: &SqlError) -> Status {
        errors::statement(self.profile(), error)
    }

    /// Runs `sql` and describes where its rows are.
    pub async fn execute(&self, sql: &str, descriptor: FlightDescriptor) -> Result<FlightInfo, Status> {
        let mut context = self.session.command(Governance::of(self.profile())).await?;
        let valid = self.session.begin_statement();
        if let Some(Action::FlightResults(others)) = self.fault(sql, |a| matches!(a, Action::FlightResults(_))) {
            return self.other_info(&mut context, sql, &others, valid, descriptor).await;
        }
        let statements = context.split(sql).map_err(|e| self.failed(&e))?;
        check_list(&statements).map_err(|e| self.failed(&e))?;
        let Some((last, before)) = statements.split_last() else {
            return Err(self.failed(&SqlError::detail("the statement is empty")));
        };
        for statement in before {
            self.run(&mut context, sql, statement).await?;
        }
        let shape = crate::sql::shape(&mut context, last);
        if let Some(replay) = replay_of(&context, &shape, sql)
            && let Some(frozen) = self.shared.flight_results.replays.get(&replay.key)
        {
            return self.replay_info(&context, sql, &frozen, valid, descriptor);
        }
        let rows = match self.run(&mut context, sql, last).await? {
            StatementResult::Rows { schema, stream, origin, types } => Rows { schema, stream, origin, types },
            StatementResult::Done { .. } => {
                let (schema, rows) = status_result()?;
                return self.frontend_info(memory_stream(schema, vec![rows]), valid, descriptor);
            }
        };
        if rows.origin == Origin::Fe {
            let stream = self.text_stream(rows).await?;
            return self.frontend_info(stream, valid, descriptor);
        }
        if matches!(shape, Shape::Point) {
            // Known as #67368: such a query has no endpoint.
            return Err(errors::after_statement(
                self.profile(),
                "fetch arrow flight schema failed, no FlightSqlEndpointsLocations",
            ));
        }
        if let Some(ReplayRead { key, target }) = replay_of(&context, &shape, sql) {
            let batches = drain(rows.stream).await.map_err(|e| self.failed(&SqlError::detail(e)))?;
            let size = context.engine.config().flight.result_sink_buffer_size_rows;
            let frozen = Arc::new(Frozen::new(rows.schema, batches, size, target).await?);
            self.shared.flight_results.replays.keep(key, Arc::clone(&frozen));
            return self.replay_info(&context, sql, &frozen, valid, descriptor);
        }
        self.backend_info(&context, sql, rows, valid, descriptor).await
    }

    /// One statement, given up when the connection ends meanwhile.
    async fn run(
        &self,
        context: &mut Command<'_>,
        sql: &str,
        statement: &Statement,
    ) -> Result<StatementResult, Status> {
        let closed = self.session.closed().clone();
        let outcome = tokio::select! {
            outcome = context.run(sql, statement) => outcome,
            () = closed.cancelled() => Err(SqlError::bare(1105, "session closed by client (CloseSession)")),
        };
        outcome.map_err(|e| self.failed(&e))
    }

    /// The conditions of results on the BEs.
    fn terms(&self, context: &Command<'_>, sql: &str, query_id: String, valid: CancellationToken) -> Terms {
        let engine = &self.shared.engine;
        let start_ms = engine.config().clock.now_ms();
        let timeout_s = context.variables.number("query_timeout").and_then(|s| i64::try_from(s).ok()).unwrap_or(900);
        let query = engine.queries.open(ActiveQuery {
            query_id,
            start_ms,
            user: self.session.user.clone(),
            database: context.database().unwrap_or_default().to_owned(),
            sql: sql.to_owned(),
        });
        let until_ms = start_ms.saturating_add(timeout_s.saturating_add(RESULT_GRACE_S).saturating_mul(1000));
        // Newer builds keep the query until the next command, older ones until it is read.
        let query = Arc::new(query);
        self.session.keep_open(Arc::clone(&query));
        let until_read = self.profile() < Profile::V5_0Binlog;
        Terms { valid, until_ms, _query: until_read.then(|| Arc::new(EndOfReading(query))) }
    }

    async fn backend_info(
        &self,
        context: &Command<'_>,
        sql: &str,
        rows: Rows,
        valid: CancellationToken,
        descriptor: FlightDescriptor,
    ) -> Result<FlightInfo, Status> {
        let query_id = random::query_id();
        let backends = self.place(context)?;
        if let Some(Action::FlightSchema(fault)) = self.fault(sql, |a| matches!(a, Action::FlightSchema(_))) {
            let first = backends.first().map_or_else(String::new, |(i, node)| {
                format!("TNetworkAddress(hostname:{}, port:{})", node.host, backend::brpc_port(*i))
            });
            return Err(errors::schema(self.profile(), &fault, &query_id, &first));
        }
        let terms = self.terms(context, sql, query_id, valid);
        let results = &self.shared.flight_results;
        let holders: Vec<Holder> = backends.iter().map(|(i, _)| Holder::Be(*i)).collect();
        let ids = match holders.as_slice() {
            [one] => vec![results.register(rows.stream, *one, terms)],
            many => results
                .register_parallel(rows.stream, many, terms)
                .await
                .map_err(|e| self.failed(&SqlError::detail(e)))?,
        };
        self.info_of(&rows.schema, sql, ids, &backends, descriptor)
    }

    /// The rows of other statements, an endpoint for each.
    async fn other_info(
        &self,
        context: &mut Command<'_>,
        sql: &str,
        others: &[String],
        valid: CancellationToken,
        descriptor: FlightDescriptor,
    ) -> Result<FlightInfo, Status> {
        let alive = self.place(context)?;
        let backends: Vec<(usize, Node)> = alive.iter().cycle().take(others.len()).cloned().collect();
        let terms = self.terms(context, sql, random::query_id(), valid);
        let (mut schema, mut ids) = (Arc::new(Schema::empty()), Vec::new());
        for (other, (number, _)) in others.iter().zip(&backends) {
            let statements = context.split(other).map_err(|e| self.failed(&e))?;
            let [statement] = statements.as_slice() else {
                return Err(Status::invalid_argument(format!("`{other}` is not one statement")));
            };
            let StatementResult::Rows { schema: own, stream, .. } = self.run(context, other, statement).await? else {
                return Err(Status::invalid_argument(format!("`{other}` has no rows")));
            };
            schema = own;
            ids.push(self.shared.flight_results.register(stream, Holder::Be(*number), terms.clone()));
        }
        self.info_of(&schema, sql, ids, &backends, descriptor)
    }

    fn replay_info(
        &self,
        context: &Command<'_>,
        sql: &str,
        frozen: &Arc<Frozen>,
        valid: CancellationToken,
        descriptor: FlightDescriptor,
    ) -> Result<FlightInfo, Status> {
        let backends = self.place(context)?;
        let terms = self.terms(context, sql, random::query_id(), valid);
        let parts = Part::split(frozen, backends.len());
        let schema = parts.first().map_or_else(|| Arc::new(Schema::empty()), Part::schema);
        let ids = parts
            .into_iter()
            .zip(&backends)
            .map(|(part, (i, _))| self.shared.flight_results.register_replay(part, Holder::Be(*i), terms.clone()))
            .collect();
        self.info_of(&schema, sql, ids, &backends, descriptor)
    }

    /// The backends that produce a result: one, or with parallel sinks several, the same one repeatedly if need be.
    fn place(&self, context: &Command<'_>) -> Result<Vec<(usize, Node)>, Status> {
        let backends = self.shared.engine.topology().backends.into_iter().enumerate();
        let backends: Vec<(usize, Node)> = backends.filter(|(_, node)| node.alive).collect();
        if backends.is_empty() {
            return Err(self.failed(&SqlError::detail(
                "No backend available as scan node, please check the status of your backends.",
            )));
        }
        let parallel = context.variables.is_true("enable_parallel_result_sink");
        let count = if parallel { self.shared.engine.config().flight.parallel_endpoints.max(1) } else { 1 };
        let first = self.shared.flight_results.next_backend(backends.len());
        Ok((0..count).map(|i| backends[(first + i) % backends.len()].clone()).collect())
    }

    fn info_of(
        &self,
        schema: &Schema,
        sql: &str,
        ids: Vec<String>,
        backends: &[(usize, Node)],
        descriptor: FlightDescriptor,
    ) -> Result<FlightInfo, Status> {
        // Before #58830 the text stood in the ticket as it is, so one with `&` broke it.
        let text = if self.profile() < Profile::V5_0Binlog { sql.to_owned() } else { STANDARD.encode(sql) };
        let named = self.location_fault(sql);
        let mut info = with_schema(schema)?.with_descriptor(descriptor);
        for (id, (number, node)) in ids.iter().zip(backends) {
            let handle = format!("{id}&{}&{}&{text}", self.shared.host, backend::brpc_port(*number));
            let location = named.clone().unwrap_or_else(|| self.location(node));
            info = info.with_endpoint(endpoint(handle, &location));
        }
        Ok(info)
    }

    /// `public_host` of the BE, if it has one, stands before its own address.
    fn location(&self, node: &Node) -> String {
        let config = &self.shared.engine.config().flight;
        let host = config.public_host.as_deref().unwrap_or(&node.host);
        let port = config.public_port.filter(|_| config.public_host.is_some()).unwrap_or(node.flight_port);
        let scheme = self.shared.cluster.flight_scheme();
        if host.contains(':') { format!("{scheme}://[{host}]:{port}") } else { format!("{scheme}://{host}:{port}") }
    }

    fn fault(&self, target: &str, able: impl Fn(&Action) -> bool) -> Option<Action> {
        self.shared.faults.take_if(Site::FeFlight, &format!("GetFlightInfo {target}"), able)
    }

    fn location_fault(&self, target: &str) -> Option<String> {
        match self.fault(target, |action| matches!(action, Action::FlightLocation(_))) {
            Some(Action::FlightLocation(location)) => Some(location),
            _ => None,
        }
    }

    /// Rows that the FE holds itself.
    fn frontend_info(
        &self,
        stream: SendableRecordBatchStream,
        valid: CancellationToken,
        descriptor: FlightDescriptor,
    ) -> Result<FlightInfo, Status> {
        let schema = stream.schema();
        let location = self
            .location_fault(&super::gateway::statement_of(&descriptor))
            .unwrap_or_else(|| frontend_location(self.shared));
        let terms = Terms { valid, until_ms: i64::MAX, _query: None };
        let id = self.shared.flight_results.register(stream, Holder::Fe, terms);
        let handle = format!("{}:{id}", self.session.token);
        Ok(with_schema(&schema)?.with_descriptor(descriptor).with_endpoint(endpoint(handle, &location)))
    }

    /// Rows of the FE are small and travel as texts.
    async fn text_stream(&self, rows: Rows) -> Result<SendableRecordBatchStream, Status> {
        let Rows { schema, mut stream, types, .. } = rows;
        let fields: Vec<Field> = schema.fields().iter().map(|f| Field::new(f.name(), DataType::Utf8, true)).collect();
        let texts: SchemaRef = Arc::new(Schema::new(fields));
        let mut batches = Vec::new();
        while let Some(batch) = stream.next().await {
            let batch = batch.map_err(|e| self.failed(&SqlError::detail(e)))?;
            let columns: Vec<ArrayRef> = batch
                .columns()
                .iter()
                .zip(&types)
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
}

/// What a plain read of a table with `sandbox.replay` is frozen under.
fn replay_of(context: &Command<'_>, shape: &Shape, sql: &str) -> Option<ReplayRead> {
    let Shape::Scan { table, tablets } = shape else { return None };
    let property = |name: &str| table.spec().properties.get(name);
    property("sandbox.replay").filter(|v| v.eq_ignore_ascii_case("true"))?;
    let snapshot = table.snapshot();
    // A read of some tablets gets its share of the rows asked for.
    let all = snapshot.tablets.len().max(1) as u64;
    let share = tablets.as_ref().map_or(all, |ids| (ids.len() as u64).min(all));
    let part = |rows: u64| u64::try_from(u128::from(rows) * u128::from(share) / u128::from(all)).unwrap_or(rows);
    let target = property("sandbox.replay.rows").and_then(|rows| rows.parse().ok()).map(part);
    let key = Key {
        table: table.id(),
        version: snapshot.version,
        epoch: snapshot.epoch,
        zone: context.zone().to_string(),
        hidden: context.variables.is_true("show_hidden_columns"),
        sql: sql.to_owned(),
    };
    Some(ReplayRead { key, target })
}

/// Location of the FE itself.
pub(super) fn frontend_location(shared: &Shared) -> String {
    format!("{}://{}", shared.cluster.flight_scheme(), shared.host_port(shared.addresses.fe_flight))
}

pub(super) fn with_schema(schema: &Schema) -> Result<FlightInfo, Status> {
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

/// What a statement without rows answers: one text `0`.
fn status_result() -> Result<(SchemaRef, RecordBatch), Status> {
    let schema: SchemaRef = Arc::new(Schema::new(vec![Field::new("StatusResult", DataType::Utf8, true)]));
    let column: ArrayRef = Arc::new(StringArray::from(vec!["0"]));
    let batch = RecordBatch::try_new(Arc::clone(&schema), vec![column]).map_err(|e| Status::internal(e.to_string()))?;
    Ok((schema, batch))
}

fn memory_stream(schema: SchemaRef, batches: Vec<RecordBatch>) -> SendableRecordBatchStream {
    Box::pin(RecordBatchStreamAdapter::new(schema, stream::iter(batches.into_iter().map(Ok))))
}
