//! Metadata requests to the FE.

use std::future::Future;

use serde_json::{Value, json};

use super::DorisClient;
use super::flight::FlightSession;
use super::http::{self, Answer, Request, escape, host_of};
use super::retry::Backoff;
use crate::error::{Error, Result, Retry};

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

impl DorisClient {
    /// Runs an idempotent request against the FEs, healthiest first, until one answers.
    ///
    /// An error of the transport goes to the next FE, and after all of them to the next attempt; any other error is
    /// final.
    pub(super) async fn on_any_frontend<T, F, Fut>(&self, request: F) -> Result<T>
    where
        F: Fn(String) -> Fut,
        Fut: Future<Output = Result<T>>,
    {
        let mut backoff = Backoff::new();
        let attempts = self.options().retries.max(1);
        for attempt in 1.. {
            let mut last = None;
            for node in self.inner.frontends.in_order() {
                match request(node.clone()).await {
                    Ok(answer) => {
                        self.inner.frontends.answered(&node);
                        return Ok(answer);
                    }
                    Err(error) if matches!(error.retry(), Retry::SameLabel) => {
                        tracing::debug!(%node, %error, "frontend did not answer");
                        self.inner.frontends.failed(&node);
                        last = Some(error);
                    }
                    Err(error) => return Err(error),
                }
            }
            if let Some(error) = last.filter(|_| attempt >= attempts) {
                return Err(error);
            }
            tokio::time::sleep(backoff.next_pause()).await;
        }
        unreachable!("the loop ends by returning")
    }
}

impl DorisClient {
    /// Runs a statement over the FE's HTTP endpoint (`POST /api/query/default_cluster/{db}`) and gives its rows as
    /// texts, 10000 at most. For statements that may be repeated: SHOW, DESC, small SELECTs.
    ///
    /// # Errors
    /// [`Error::Server`] with the server's text, [`Error::Auth`], [`Error::Transport`].
    pub async fn statement(&self, sql: &str) -> Result<StatementRows> {
        self.on_any_frontend(|node| self.statement_at(node, sql)).await
    }

    async fn statement_at(&self, node: String, sql: &str) -> Result<StatementRows> {
        let body = json!({ "stmt": sql, "limit": STATEMENT_ROWS });
        let path = "/api/query/default_cluster/information_schema";
        let operation = "a metadata statement";
        let answer = self.inner.http.send(&node, path, operation, Request::post_json(&body), Retry::SameLabel).await?;
        let data = envelope_data(&answer, operation)?;
        statement_rows(&data).ok_or_else(|| unexpected(&answer, operation, "a result set"))
    }
}

fn statement_rows(data: &Value) -> Option<StatementRows> {
    let columns = match data.get("meta") {
        Some(meta) => meta.as_array()?.iter().map(|column| Some(column.get("name")?.as_str()?.to_string())).collect(),
        None => Some(Vec::new()),
    }?;
    let rows = match data.get("data") {
        Some(Value::Array(rows)) => rows.iter().map(|row| Some(row.as_array()?.iter().map(cell).collect())).collect(),
        _ => Some(Vec::new()),
    }?;
    Some(StatementRows { columns, rows })
}

fn cell(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    }
}

/// `data` of the FE's envelope `{"code", "msg", "data"}`.
///
/// The HTTP status is 200 for nearly every outcome, and code 0 can hold an error text where an object is expected:
/// callers check the shape of what they get.
fn envelope_data(answer: &Answer, operation: &str) -> Result<Value> {
    let envelope: Value = serde_json::from_str(&answer.body).map_err(|_| unexpected(answer, operation, "json"))?;
    let code = envelope.get("code").and_then(Value::as_i64).unwrap_or_else(|| i64::from(answer.status.as_u16()));
    let data = envelope.get("data").cloned().unwrap_or(Value::Null);
    if code == 0 {
        return Ok(data);
    }
    let text = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_string);
    let message = text(&data).or_else(|| envelope.get("msg").and_then(text)).unwrap_or_else(|| format!("code {code}"));
    Err(match code {
        401 => Error::Auth { host: answer.host.clone(), message },
        _ => Error::Server {
            host: answer.host.clone(),
            operation: operation.to_string(),
            code: u32::try_from(code).ok(),
            message,
        },
    })
}

fn unexpected(answer: &Answer, operation: &str, expected: &str) -> Error {
    let shown: String = answer.body.chars().take(200).collect();
    Error::Server {
        host: answer.host.clone(),
        operation: operation.to_string(),
        code: None,
        message: format!("expected {expected}, got http status {} with '{shown}'", answer.status.as_u16()),
    }
}

impl DorisClient {
    /// Logs in at an FE's Arrow Flight SQL service and sets session variables, given as name and SQL text of the
    /// value (`("time_zone", "'+00:00'")`). The port is `source.flight-sql-port`, or discovered by `SHOW FRONTENDS`.
    ///
    /// # Errors
    /// [`Error::Auth`], [`Error::Config`] when the service is switched off, [`Error::Transport`].
    pub async fn open_flight(&self, session_vars: &[(&str, &str)]) -> Result<FlightSession> {
        self.on_any_frontend(|node| async move {
            let port = match self.options().flight_port {
                Some(port) => port,
                None => self.flight_port(&node).await?,
            };
            FlightSession::open(self, &format!("{}:{port}", host_of(&node)), session_vars).await
        })
        .await
    }

    /// Flight port of the FE `node`, or of another one when its host is not listed by the name we use for it.
    async fn flight_port(&self, node: &str) -> Result<u16> {
        let frontends = self.statement_at(node.to_string(), "SHOW FRONTENDS").await?;
        let host = host_of(node).trim_matches(['[', ']']);
        let row = (0..frontends.rows.len())
            .find(|row| frontends.value(*row, "Host") == Some(host))
            .or_else(|| (0..frontends.rows.len()).find(|row| frontends.value(*row, "CurrentConnected") == Some("Yes")))
            .unwrap_or(0);
        let port = frontends.value(row, "ArrowFlightSqlPort").and_then(|text| text.trim().parse::<i64>().ok());
        match port.map(u16::try_from) {
            Some(Ok(port)) if port > 0 => Ok(port),
            _ => Err(Error::config(
                "source.flight-sql-port",
                format!(
                    "the fe {node} has no arrow flight service; set arrow_flight_sql_port in its fe.conf and be.conf"
                ),
            )),
        }
    }
}
