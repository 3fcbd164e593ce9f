//! Metadata requests to the FE.

use std::collections::BTreeMap;
use std::future::Future;

use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::{Value, json};

use super::DorisClient;
use super::flight::FlightSession;
use super::http::{Answer, Request, escape};
use super::retry::Backoff;
use crate::error::{Error, Result, Retry};
use crate::protocol::{
    Envelope, EnvelopeError, EnvelopeErrorKind, LabelState, Malformed, Tso, TsoStatus, parse_envelope, parse_result_set,
};
use crate::sql::{quote_ident, quote_table};
use crate::types::{ColumnSchema, DorisType, KeyModel, ServerZone, TableIdent, TableSchema};

/// Rows the statement endpoint is asked for; its hard limit.
const STATEMENT_ROWS: usize = 10_000;

/// Result of a statement over the FE's HTTP endpoint: small results as texts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StatementRows {
    /// Column names.
    pub columns: Vec<String>,
    /// Rows; `None` is NULL.
    pub rows: Vec<Vec<Option<String>>>,
}

impl StatementRows {
    /// Index of a column, by name without case: newer servers add columns anywhere.
    pub fn column(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column.eq_ignore_ascii_case(name))
    }

    /// A value of `row`, when the column exists and the value is not NULL.
    pub fn value(&self, row: usize, name: &str) -> Option<&str> {
        let column = self.column(name)?;
        self.rows.get(row)?.get(column)?.as_deref()
    }
}

/// A tablet of a table: the smallest part that can be read by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tablet {
    /// Tablet id, as `TABLET(…)` takes it.
    pub id: i64,
    /// BEs that hold a replica, `host:be_port`.
    pub backends: Vec<String>,
}

impl DorisClient {
    /// Runs an idempotent request against the FEs, healthiest first, until one answers.
    ///
    /// An error of the transport goes to the next FE, and after all of them to the next attempt; any other error is
    /// final, except that `any_may_know` lets an FE's refusal go to the next one too.
    async fn ask_frontends<T, F, Fut>(&self, any_may_know: bool, request: F) -> Result<T>
    where
        F: Fn(String) -> Fut,
        Fut: Future<Output = Result<T>>,
    {
        let mut backoff = Backoff::new();
        let mut attempts_left = self.options().retries.max(1);
        loop {
            attempts_left -= 1;
            let mut last = None;
            for node in self.inner.frontends.in_order() {
                let error = match request(node.clone()).await {
                    Ok(answer) => {
                        self.inner.frontends.answered(&node);
                        return Ok(answer);
                    }
                    Err(error) => error,
                };
                tracing::debug!(%node, %error, "frontend request failed");
                match &error {
                    error if error.retry() == Retry::SameLabel => self.inner.frontends.failed(&node),
                    Error::Server { .. } if any_may_know => {}
                    _ => return Err(error),
                }
                // An answer tells more than a broken connection.
                if !matches!((&last, &error), (Some(Error::Server { .. }), Error::Transport { .. })) {
                    last = Some(error);
                }
            }
            match last {
                Some(error) if attempts_left == 0 || matches!(error, Error::Server { .. }) => return Err(error),
                _ => tokio::time::sleep(backoff.next_pause()).await,
            }
        }
    }

    /// [`Self::ask_frontends`] where a refusal of one FE is the answer.
    pub(super) async fn on_any_frontend<T, F, Fut>(&self, request: F) -> Result<T>
    where
        F: Fn(String) -> Fut,
        Fut: Future<Output = Result<T>>,
    {
        self.ask_frontends(false, request).await
    }

    async fn get(&self, node: &str, path: &str, operation: &str, expected: Envelope) -> Result<Value> {
        let answer = self.inner.http.send(node, path, operation, Request::get(), Retry::SameLabel).await?;
        envelope_data(&answer, operation, expected)
    }

    /// Runs a statement over the FE's HTTP endpoint (`POST /api/query/default_cluster/{db}`) and gives its rows as
    /// texts, 10000 at most. For statements that may be repeated: SHOW, DESC, small SELECTs.
    ///
    /// # Errors
    /// [`Error::Server`] with the server's text, [`Error::Auth`], [`Error::Transport`].
    pub fn statement<'a>(&'a self, sql: &'a str) -> BoxFuture<'a, Result<StatementRows>> {
        async move { self.on_any_frontend(|node| self.statement_at(node, sql)).await }.boxed()
    }

    pub(super) async fn statement_at(&self, node: String, sql: &str) -> Result<StatementRows> {
        let body = json!({ "stmt": sql, "limit": STATEMENT_ROWS });
        let path = "/api/query/default_cluster/information_schema";
        let operation = "a metadata statement";
        let request = Request::post_json(&body);
        let answer = self.inner.http.send(&node, path, operation, request, Retry::SameLabel).await?;
        let data = envelope_data(&answer, operation, Envelope::Object)?;
        let (columns, rows) = parse_result_set(&data).map_err(|reason| malformed(&answer.host, operation, reason))?;
        Ok(StatementRows { columns, rows })
    }

    /// Columns, key model and properties of a table, from DESC, `_schema` and SHOW CREATE TABLE.
    ///
    /// Views and external tables have no model; properties are empty where the user may not see them.
    ///
    /// # Errors
    /// [`Error::Schema`] when the table does not exist or has a type this crate does not know; [`Error::Auth`],
    /// [`Error::Transport`].
    pub fn table_schema<'a>(&'a self, table: &'a TableIdent) -> BoxFuture<'a, Result<TableSchema>> {
        async move {
            let described =
                self.statement(&format!("DESC {}", quote_table(table))).await.map_err(|error| match error {
                    Error::Server { host, message, .. } => {
                        Error::schema(table, format!("{host} cannot describe it: {message}"))
                    }
                    other => other,
                })?;
            let mut columns = columns_of(table, &described)?;
            let mut model = self.rest_model(table).await?;
            let ddl = match self.statement(&format!("SHOW CREATE TABLE {}", quote_table(table))).await {
                Ok(rows) => rows.value(0, "Create Table").unwrap_or_default().to_string(),
                Err(Error::Server { message, .. }) => {
                    tracing::debug!(%table, message, "no SHOW CREATE TABLE");
                    String::new()
                }
                Err(error) => return Err(error),
            };
            // That of an external table is the DDL of where it comes from.
            if model.is_none() && table.catalog.is_none() {
                model = model_of(&ddl);
            }
            columns.iter_mut().for_each(|column| column.generated |= is_generated(&ddl, &column.name));
            Ok(TableSchema { table: table.clone(), model, columns, properties: properties_of(&ddl) })
        }
        .boxed()
    }

    /// The model that `_schema` tells; `None` for views and external tables, which are not served there.
    async fn rest_model(&self, table: &TableIdent) -> Result<Option<KeyModel>> {
        if table.catalog.is_some() {
            return Ok(None);
        }
        let path = format!("/api/{}/{}/_schema", escape(&table.database), escape(&table.table));
        let operation = format!("the schema of {table}");
        let (path, operation) = (path.as_str(), operation.as_str());
        let rest = self.on_any_frontend(|node| async move { self.get(&node, path, operation, Envelope::Object).await });
        match rest.await {
            Ok(data) => Ok(data.get("keysType").and_then(Value::as_str).and_then(KeyModel::parse)),
            Err(Error::Server { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Tablets that a scan of `table` with `filter` (a Doris condition) touches, by tablet id.
    ///
    /// # Errors
    /// [`Error::Server`] when the server cannot plan it, for example for views; [`Error::Unsupported`] for tables of
    /// external catalogs.
    pub fn tablets<'a>(&'a self, table: &'a TableIdent, filter: Option<&'a str>) -> BoxFuture<'a, Result<Vec<Tablet>>> {
        async move {
            if table.catalog.is_some() {
                return Err(Error::unsupported(format!("tablets of {table}"), "an external table has none"));
            }
            let condition = filter.map(|filter| format!(" WHERE {filter}")).unwrap_or_default();
            let body = json!({ "sql": format!("SELECT * FROM {}{condition}", quote_table(table)) });
            let path = format!("/api/{}/{}/_query_plan", escape(&table.database), escape(&table.table));
            let operation = format!("planning a scan of {table}");
            let (path, operation, body) = (path.as_str(), operation.as_str(), &body);
            self.on_any_frontend(|node| async move {
                let request = Request::post_json(body);
                let answer = self.inner.http.send(&node, path, operation, request, Retry::SameLabel).await?;
                let data = envelope_data(&answer, operation, Envelope::Object)?;
                tablets_of(&data).ok_or_else(|| {
                    let reason = Malformed("a query plan without tablets".into());
                    malformed(&answer.host, operation, reason)
                })
            })
            .await
        }
        .boxed()
    }

    /// The cluster's current timestamp: `information_schema.tso_status`, or `/api/tso` where that table does not
    /// exist; each is asked of every FE before giving up.
    ///
    /// # Errors
    /// The error of the last way when neither works.
    pub async fn current_tso(&self) -> Result<Tso> {
        Ok(self.tso_status().await?.current)
    }

    /// Whether the server can read `table` as it was after an earlier commit (`FOR VERSION AS OF`): newer servers can,
    /// for tables that record their changes.
    ///
    /// # Errors
    /// [`Error::Auth`], [`Error::Transport`].
    pub async fn reads_past_versions(&self, table: &TableIdent) -> Result<bool> {
        let now = self.current_tso().await?;
        let sql = format!("SELECT 1 FROM {} FOR VERSION AS OF {now} LIMIT 0", quote_table(table));
        match self.statement(&sql).await {
            Ok(_) => Ok(true),
            Err(error @ Error::Server { .. }) => {
                tracing::debug!(%table, %error, "the snapshot of this table cannot be read as of an instant");
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// The time zone that the server gives this user's new connections.
    ///
    /// # Errors
    /// [`Error::Unsupported`] when it is none that this crate knows, for example `SYSTEM`; [`Error::Auth`],
    /// [`Error::Transport`].
    pub async fn time_zone(&self) -> Result<ServerZone> {
        let rows = self.statement("SHOW VARIABLES LIKE 'time_zone'").await?;
        // Newer servers add columns after name and value.
        let value = rows.rows.first().and_then(|row| row.get(1)).and_then(Option::as_deref).unwrap_or_default();
        value.parse().map_err(|reason| {
            Error::unsupported(
                format!("the server's time zone: {reason}"),
                "give it one by SET GLOBAL time_zone = 'Area/City' or '+08:00'",
            )
        })
    }

    /// [`Self::current_tso`] with all that the server tells.
    ///
    /// # Errors
    /// As [`Self::current_tso`].
    pub fn tso_status(&self) -> BoxFuture<'_, Result<TsoStatus>> {
        async move {
            let operation = "asking for the current tso";
            let from_table = self.ask_frontends(true, |node| async move {
                let rows = self.statement_at(node.clone(), "SELECT * FROM information_schema.tso_status").await?;
                let row = rows.rows.first().ok_or_else(|| Malformed("information_schema.tso_status is empty".into()));
                row.and_then(|row| TsoStatus::from_row(&rows.columns, row))
                    .map_err(|reason| malformed(&node, operation, reason))
            });
            let table_error = match from_table.await {
                Ok(status) => return Ok(status),
                Err(error) => error,
            };
            let from_api = self.ask_frontends(true, |node| async move {
                let data = self.get(&node, "/api/tso", operation, Envelope::Object).await?;
                TsoStatus::from_api(&data).map_err(|reason| malformed(&node, operation, reason))
            });
            from_api.await.inspect_err(|_| {
                tracing::warn!(error = %table_error, "information_schema.tso_status did not answer, nor did /api/tso");
            })
        }
        .boxed()
    }

    /// State of the transaction behind `label`, asked of every FE until one answers.
    ///
    /// # Errors
    /// [`Error::Transport`] or [`Error::Server`] when no FE could tell: the state is still open then.
    pub fn label_state<'a>(&'a self, db: &'a str, label: &'a str) -> BoxFuture<'a, Result<LabelState>> {
        async move {
            let path = format!("/api/{}/get_load_state?label={}", escape(db), escape(label));
            let operation = format!("asking for the state of label {label}");
            let (path, operation) = (path.as_str(), operation.as_str());
            self.ask_frontends(true, |node| async move {
                let data = self.get(&node, path, operation, Envelope::Text).await?;
                let text = data.as_str().unwrap_or_default();
                text.parse::<LabelState>().map_err(|reason| malformed(&node, operation, reason))
            })
            .await
        }
        .boxed()
    }

    /// BEs that are alive, as the FE sees it: `host:http_port`.
    pub(super) fn alive_backends(&self) -> BoxFuture<'_, Result<Vec<String>>> {
        async move {
            let operation = "listing backends";
            self.ask_frontends(true, |node| async move {
                let data = self.get(&node, "/api/backends?is_alive=true", operation, Envelope::Object).await?;
                let address = |backend: &Value| {
                    let host = backend.get("ip")?.as_str()?;
                    let host = if host.contains(':') { format!("[{host}]") } else { host.to_string() };
                    Some(format!("{host}:{}", backend.get("http_port")?.as_u64()?))
                };
                let backends = data.get("backends").and_then(Value::as_array);
                Ok(backends.map(|list| list.iter().filter_map(address).collect()).unwrap_or_default())
            })
            .await
        }
        .boxed()
    }

    /// Logs in at an FE's Arrow Flight SQL service and sets session variables, given as name and SQL text of the
    /// value (`("time_zone", "'+00:00'")`). The port is `source.flight-sql-port`, or discovered by `SHOW FRONTENDS`.
    ///
    /// # Errors
    /// [`Error::Auth`], [`Error::Config`] when the service is switched off, [`Error::Transport`].
    pub fn open_flight<'a>(&'a self, session_vars: &'a [(&'a str, &'a str)]) -> BoxFuture<'a, Result<FlightSession>> {
        async move {
            self.on_any_frontend(|node| async move {
                let address = self.flight_address(&node).await?;
                let opened = FlightSession::open(self, &address, session_vars).await;
                // What the FE told may be out of date.
                opened.inspect_err(|_| self.inner.known_frontends.forget(&node))
            })
            .await
        }
        .boxed()
    }
}

/// `data` of an answer, or its refusal.
fn envelope_data(answer: &Answer, operation: &str, expected: Envelope) -> Result<Value> {
    parse_envelope(answer.status.as_u16(), answer.body.as_bytes(), expected)
        .map_err(|refusal| refused(&answer.host, operation, refusal))
}

/// An error when `answer` is a refusal of credentials, whatever else it was expected to be.
pub(super) fn check_refused_login(answer: &Answer) -> Result<()> {
    match envelope_data(answer, "logging in", Envelope::Any) {
        Err(error @ Error::Auth { .. }) => Err(error),
        _ => Ok(()),
    }
}

fn refused(host: &str, operation: &str, refusal: EnvelopeError) -> Error {
    let (host, operation) = (host.to_string(), operation.to_string());
    match refusal.kind {
        EnvelopeErrorKind::Auth => Error::Auth { host, message: refusal.message },
        // Another FE may serve it, or this one later.
        EnvelopeErrorKind::Unavailable => {
            Error::Transport { host, operation, retry: Retry::SameLabel, source: refusal.message.into() }
        }
        _ => {
            let code = refusal.code.and_then(|code| u32::try_from(code).ok());
            Error::Server { host, operation, code, message: refusal.message }
        }
    }
}

pub(super) fn malformed(host: &str, operation: &str, reason: Malformed) -> Error {
    Error::Server { host: host.to_string(), operation: operation.to_string(), code: None, message: reason.to_string() }
}

/// Columns of `DESC`: Field, Type, Null (`Yes`/`No`), Key (`true`/`false`), Default, Extra.
fn columns_of(table: &TableIdent, described: &StatementRows) -> Result<Vec<ColumnSchema>> {
    let is = |row: usize, name: &str, expected: &str| {
        described.value(row, name).is_some_and(|text| text.eq_ignore_ascii_case(expected))
    };
    let column = |row: usize| {
        let shape = || Error::schema(table, "DESC gave no Field or no Type");
        let name = described.value(row, "Field").ok_or_else(shape)?.to_string();
        let type_text = described.value(row, "Type").ok_or_else(shape)?;
        // A type that is newer than this crate spoils its own column only.
        let doris_type = DorisType::parse(type_text).unwrap_or_else(|_| DorisType::Unknown(type_text.into()));
        Ok(ColumnSchema {
            name,
            doris_type,
            nullable: !is(row, "Null", "No"),
            key: is(row, "Key", "true") || is(row, "Key", "yes"),
            default: described.value(row, "Default").filter(|text| *text != "NULL").map(str::to_string),
            generated: described
                .value(row, "Extra")
                .is_some_and(|extra| extra.contains("AUTO_INCREMENT") || extra.contains("GENERATED")),
        })
    };
    let columns = (0..described.rows.len()).map(column).collect::<Result<Vec<_>>>()?;
    if columns.is_empty() {
        return Err(Error::schema(table, "DESC gave no columns"));
    }
    Ok(columns)
}

/// Whether SHOW CREATE TABLE says that the server makes the values of a column. Without that text it may be so.
fn is_generated(ddl: &str, column: &str) -> bool {
    let name = quote_ident(column);
    let of_column = |line: &&str| line.trim_start().strip_prefix(&name).is_some_and(|rest| rest.starts_with(' '));
    ddl.is_empty()
        || ddl.lines().find(of_column).is_some_and(|line| {
            let line = line.to_ascii_uppercase();
            line.contains(" AUTO_INCREMENT") || line.contains(" GENERATED ALWAYS") || line.contains(" AS (")
        })
}

/// The word before `KEY(` of SHOW CREATE TABLE.
fn model_of(ddl: &str) -> Option<KeyModel> {
    ddl.lines().find_map(|line| {
        let (word, rest) = line.trim().split_once(char::is_whitespace)?;
        let rest = rest.trim_start();
        let is_clause = rest.get(..3).is_some_and(|start| start.eq_ignore_ascii_case("key"))
            && rest[3..].trim_start().starts_with('(');
        if is_clause { KeyModel::parse(word) } else { None }
    })
}

/// `PROPERTIES ("name" = "value", …)` of SHOW CREATE TABLE.
fn properties_of(ddl: &str) -> BTreeMap<String, String> {
    let upper = ddl.to_ascii_uppercase();
    let Some(start) = upper.rfind("PROPERTIES") else {
        return BTreeMap::new();
    };
    let mut texts = Vec::new();
    let mut rest = &ddl[start..];
    // Names and values alternate, each in double quotes.
    while let Some((_, after)) = rest.split_once('"') {
        let Some((text, after)) = after.split_once('"') else { break };
        texts.push(text.to_string());
        rest = after;
    }
    let mut texts = texts.into_iter();
    let mut properties = BTreeMap::new();
    while let (Some(name), Some(value)) = (texts.next(), texts.next()) {
        properties.insert(name, value);
    }
    properties
}

/// `{"partitions": {"<tablet id>": {"routings": ["host:port"]}}}`.
fn tablets_of(data: &Value) -> Option<Vec<Tablet>> {
    let tablet = |(id, tablet): (&String, &Value)| {
        let routings = tablet.get("routings").and_then(Value::as_array);
        let backends = routings.map(|list| list.iter().filter_map(Value::as_str).map(str::to_string).collect());
        Some(Tablet { id: id.parse().ok()?, backends: backends.unwrap_or_default() })
    };
    let mut tablets = data.get("partitions")?.as_object()?.iter().map(tablet).collect::<Option<Vec<_>>>()?;
    tablets.sort_by_key(|tablet| tablet.id);
    Some(tablets)
}
