//! Statements and metadata commands over Arrow Flight SQL.

use std::net::SocketAddr;

use arrow_flight::error::FlightError;
use arrow_flight::flight_service_client::FlightServiceClient;
use arrow_flight::sql::client::FlightSqlServiceClient;
use arrow_flight::sql::{
    CommandGetDbSchemas, CommandGetPrimaryKeys, CommandGetTables, CommandGetXdbcTypeInfo, ProstMessageExt, SqlInfo,
    TicketStatementQuery,
};
use arrow_flight::{FlightInfo, Ticket};
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{Field, Schema};
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use doris_sandbox::Sandbox;
use futures::TryStreamExt;
use prost::Message;
use tonic::transport::{Channel, Endpoint};

use super::matching::{cell, expect_refusal};
use super::record::Record;
use super::run::{DATABASE, PASSWORD, USER, compare};

type Client = FlightSqlServiceClient<Channel>;

/// One token on the FE.
pub struct Flight {
    client: Client,
    address: SocketAddr,
    backend: SocketAddr,
    tickets: Vec<(String, Ticket)>,
}

async fn client(uri: &str) -> Result<Client, String> {
    let uri = uri.replace("grpc+tcp://", "http://");
    let channel =
        Endpoint::from_shared(uri).map_err(|e| e.to_string())?.connect().await.map_err(|e| format!("connect: {e}"))?;
    Ok(FlightSqlServiceClient::new_from_inner(FlightServiceClient::new(channel).max_decoding_message_size(64 << 20)))
}

/// `Status text` of an error of the server.
fn refusal(error: FlightError) -> String {
    match error {
        FlightError::Tonic(status) => format!("{:?} {}", status.code(), status.message()),
        other => {
            let text = other.to_string();
            from_debug(&text).unwrap_or_else(|| format!("- {text}"))
        }
    }
}

/// The client of `arrow-flight` keeps only the text of a status that refuses a handshake.
fn from_debug(text: &str) -> Option<String> {
    let (code, rest) = text.split_once("code: '")?.1.split_once('\'')?;
    let known = (0..17).map(tonic::Code::from).find(|candidate| candidate.description() == code)?;
    Some(format!("{known:?} {rest}"))
}

impl Flight {
    /// Logs in and enters the database of the suite.
    pub async fn connect(sandbox: &Sandbox) -> Result<Self, String> {
        let address = sandbox.addresses().fe_flight;
        let mut client = client(&format!("http://{address}")).await?;
        client.handshake(USER, PASSWORD).await.map_err(refusal)?;
        let mut flight = Self { client, address, backend: sandbox.addresses().be_flight, tickets: vec![] };
        flight.statement(&format!("USE {DATABASE}")).await?;
        Ok(flight)
    }

    async fn statement(&mut self, sql: &str) -> Result<(Schema, Vec<String>), String> {
        let info = self.client.execute(sql.to_owned(), None).await.map_err(refusal)?;
        self.fetch(info).await
    }

    /// Rows of all endpoints, each from where it says.
    async fn fetch(&mut self, info: FlightInfo) -> Result<(Schema, Vec<String>), String> {
        // A command that is refused when it is read may come without a schema.
        let schema = if info.schema.is_empty() {
            Schema::empty()
        } else {
            Schema::try_from(info.clone()).map_err(|e| e.to_string())?
        };
        let mut rows = Vec::new();
        self.tickets.clear();
        for endpoint in info.endpoint {
            let uri = endpoint.location.first().map(|l| l.uri.clone()).unwrap_or_default();
            let ticket = endpoint.ticket.ok_or("an endpoint without ticket")?;
            self.tickets.push((uri.clone(), ticket.clone()));
            let own = uri.is_empty() || uri.ends_with(&self.address.to_string());
            let stream = if own {
                self.client.do_get(ticket).await.map_err(refusal)?
            } else {
                client(&uri).await?.do_get(ticket).await.map_err(refusal)?
            };
            let batches: Vec<RecordBatch> = stream.try_collect().await.map_err(refusal)?;
            for batch in &batches {
                if batch.schema().fields() != schema.fields() {
                    return Err(format!("the stream's schema differs: {}", schema_text(&batch.schema())));
                }
                rows.extend(lines(batch)?);
            }
        }
        Ok((schema, rows))
    }

    /// The verbs of Flight.
    pub async fn check(&mut self, record: &Record) -> Result<(), String> {
        let sql = record.sql();
        match record.verb.as_str() {
            "flight-error" => match self.statement(&sql).await {
                Ok((_, rows)) => Err(format!("expected error {}\ngot {rows:?}", record.arguments)),
                Err(got) => expect_refusal(record.arguments.trim(), &got),
            },
            "flight" => {
                let (schema, mut rows) = self.statement(&sql).await.map_err(|e| format!("refused: {e}"))?;
                if record.has("schema") {
                    rows.insert(0, schema_text(&schema));
                }
                compare(record, &rows)
            }
            _ => {
                let outcome = self.call(record, &sql).await;
                let refused = record.expected.first().and_then(|line| line.strip_prefix("error "));
                match (outcome, refused) {
                    (Ok(rows), None) => compare(record, &rows),
                    (Err(got), Some(expected)) => expect_refusal(expected, &got),
                    (Ok(rows), Some(expected)) => Err(format!("expected error {expected}\ngot {rows:?}")),
                    (Err(got), None) => Err(format!("refused: {got}")),
                }
            }
        }
    }

    async fn call(&mut self, record: &Record, sql: &str) -> Result<Vec<String>, String> {
        let words: Vec<&str> = record.arguments.split_whitespace().filter(|w| *w != "sort" && *w != "among").collect();
        let (name, arguments) = words.split_first().ok_or("flight-call NAME")?;
        let argument = |at: usize| arguments.get(at).map(|text| (*text).to_owned());
        let failed = refusal;
        let info = match *name {
            "catalogs" => self.client.get_catalogs().await.map_err(failed)?,
            "schemas" => {
                let request = CommandGetDbSchemas { catalog: None, db_schema_filter_pattern: argument(0) };
                self.client.get_db_schemas(request).await.map_err(failed)?
            }
            "tables" => {
                let request = CommandGetTables {
                    catalog: None,
                    db_schema_filter_pattern: argument(0),
                    table_name_filter_pattern: argument(1),
                    table_types: vec![],
                    include_schema: false,
                };
                self.client.get_tables(request).await.map_err(failed)?
            }
            "table-types" => self.client.get_table_types().await.map_err(failed)?,
            "sql-info" => self.client.get_sql_info(vec![SqlInfo::FlightSqlServerName]).await.map_err(failed)?,
            "primary-keys" => {
                let request = CommandGetPrimaryKeys {
                    catalog: None,
                    db_schema: Some(DATABASE.to_owned()),
                    table: argument(0).unwrap_or_default(),
                };
                self.client.get_primary_keys(request).await.map_err(failed)?
            }
            "xdbc-type-info" => {
                let request = CommandGetXdbcTypeInfo { data_type: None };
                self.client.get_xdbc_type_info(request).await.map_err(failed)?
            }
            "update" => {
                let count = self.client.execute_update(sql.to_owned(), None).await.map_err(failed)?;
                return Ok(vec![count.to_string()]);
            }
            "begin" => {
                self.client.begin_transaction().await.map_err(failed)?;
                return Ok(vec!["a transaction".to_owned()]);
            }
            "prepare" => {
                let prepared = self.client.prepare(sql.to_owned(), None).await.map_err(failed)?;
                let parameters = schema_text(prepared.parameter_schema().map_err(failed)?);
                let dataset = schema_text(prepared.dataset_schema().map_err(failed)?);
                return Ok(vec![format!("parameters ({parameters})"), format!("dataset ({dataset})")]);
            }
            "prepared" => {
                let mut prepared = self.client.prepare(sql.to_owned(), None).await.map_err(failed)?;
                let info = prepared.execute().await.map_err(failed)?;
                let (_, rows) = self.fetch(info).await?;
                prepared.close().await.map_err(failed)?;
                return Ok(rows);
            }
            "info" => {
                let info = self.client.execute(sql.to_owned(), None).await.map_err(failed)?;
                let mut rows = vec![
                    format!("records {}", info.total_records),
                    format!("bytes {}", info.total_bytes),
                    format!("ordered {}", info.ordered),
                    format!("endpoints {}", info.endpoint.len()),
                ];
                for endpoint in &info.endpoint {
                    rows.extend(endpoint.location.iter().map(|l| format!("location {}", l.uri)));
                }
                self.fetch(info).await?;
                return Ok(rows);
            }
            // The tickets of the last statement once more.
            "again" => {
                for (uri, ticket) in self.tickets.clone() {
                    let stream = client(&uri).await?.do_get(ticket).await.map_err(failed)?;
                    stream.try_collect::<Vec<RecordBatch>>().await.map_err(refusal)?;
                }
                return Ok(vec!["fetched".to_owned()]);
            }
            // A ticket of another server's making, at the BE.
            "ticket" => {
                let command = TicketStatementQuery { statement_handle: arguments.join(" ").into_bytes().into() };
                let mut be = client(&format!("http://{}", self.backend)).await?;
                let stream = be.do_get(Ticket::new(command.as_any().encode_to_vec())).await;
                stream.map_err(failed)?.try_collect::<Vec<RecordBatch>>().await.map_err(failed)?;
                return Ok(vec!["fetched".to_owned()]);
            }
            "login" => {
                let mut other = client(&format!("http://{}", self.address)).await?;
                let (user, password) = (argument(0).unwrap_or_default(), argument(1).unwrap_or_default());
                other.handshake(&user, &password).await.map_err(failed)?;
                return Ok(vec!["ok".to_owned()]);
            }
            // A statement under a token that nobody issued.
            "token" => {
                let mut other = client(&format!("http://{}", self.address)).await?;
                other.set_token(argument(0).unwrap_or_default());
                let info = other.execute(sql.to_owned(), None).await.map_err(failed)?;
                return Ok(vec![format!("endpoints {}", info.endpoint.len())]);
            }
            "close-session" => {
                let action = arrow_flight::Action::new("CloseSession", Vec::<u8>::new());
                let mut request = tonic::Request::new(action);
                let token = self.client.token().cloned().ok_or("no token")?;
                let value = format!("Bearer {token}").parse().map_err(|_| "token")?;
                request.metadata_mut().insert("authorization", value);
                let stream = self.client.inner_mut().do_action(request).await;
                let status = |s: tonic::Status| format!("{:?} {}", s.code(), s.message());
                let answers: Vec<_> = stream.map_err(status)?.into_inner().try_collect().await.map_err(status)?;
                return Ok(vec![format!("{} answer", answers.len())]);
            }
            other => return Err(format!("no such call: {other}")),
        };
        let (_, rows) = self.fetch(info).await?;
        Ok(rows)
    }
}

fn field_text(field: &Field) -> String {
    let metadata = if field.metadata().is_empty() {
        String::new()
    } else {
        let mut pairs: Vec<String> = field.metadata().iter().map(|(k, v)| format!("{k}={v}")).collect();
        pairs.sort();
        format!(" {{{}}}", pairs.join(","))
    };
    format!("{}: {}{}{metadata}", field.name(), field.data_type(), if field.is_nullable() { "?" } else { "" })
}

fn schema_text(schema: &Schema) -> String {
    schema.fields().iter().map(|field| field_text(field)).collect::<Vec<_>>().join(" | ")
}

fn lines(batch: &RecordBatch) -> Result<Vec<String>, String> {
    let options = FormatOptions::default();
    let columns = batch.columns();
    let formatters = columns
        .iter()
        .map(|c| ArrayFormatter::try_new(c.as_ref(), &options))
        .collect::<Result<Vec<_>, _>>()
        .map_err(|e| e.to_string())?;
    Ok((0..batch.num_rows())
        .map(|row| {
            let cells: Vec<String> = formatters
                .iter()
                .zip(columns)
                .map(|(f, c)| if c.is_null(row) { cell(None) } else { cell(Some(&f.value(row).to_string())) })
                .collect();
            cells.join(" | ")
        })
        .collect())
}
