//! Statements over the MySQL protocol, as the shell sends them.

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, OptsBuilder, Value};

use super::DorisClient;
use crate::error::{Error, Result, Retry};
use crate::options::{ConnectionOptions, Secret};

/// What is attempted while there is no session.
const CONNECTING: &str = "connecting";
/// Port of an FE's MySQL protocol unless the address names one.
const DEFAULT_PORT: u16 = 9030;
/// Largest packet of statements whose results are held in memory.
const STATEMENT_PACKET: usize = 64 << 20;

/// What one statement answered.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StatementOutput {
    /// Column names; empty when the statement has no result set.
    pub columns: Vec<String>,
    /// Rows as Doris prints them; `None` is NULL.
    pub rows: Vec<Vec<Option<String>>>,
    /// Rows changed, of a statement without a result set.
    pub affected: u64,
    /// The server's remark, for example label and transaction of an INSERT.
    pub info: String,
    /// Rows that an INSERT left out, as the protocol counts them: by two bytes.
    pub warnings: u16,
}

/// One connection to an FE's query port: session variables and the current database persist.
///
/// Dropping it closes the connection.
#[derive(Debug)]
pub struct DorisConnection {
    conn: Conn,
    host: String,
}

impl DorisConnection {
    /// Connects to `jdbc_url`, which is `jdbc:mysql://host[:port][/db][?…]`, also without `jdbc:`, and several hosts
    /// separated by commas are tried in order. Parameters after `?` belong to Java drivers and are ignored.
    ///
    /// # Errors
    /// [`Error::Config`] for a malformed address, [`Error::Auth`] for refused credentials, [`Error::Transport`] when
    /// no host answers.
    pub async fn connect(jdbc_url: &str, username: &str, password: &Secret) -> Result<Self> {
        let options = ConnectionOptions::new("", username, password.clone());
        let (conn, host) = connect_within(jdbc_url, &options, STATEMENT_PACKET).await?;
        Ok(Self { conn, host })
    }

    /// Runs `sql`, which may hold several statements separated by `;`, and gives the answer of each. Results are
    /// held in memory.
    ///
    /// # Errors
    /// [`Error::Server`] with the Doris code of the first statement that fails; earlier ones have been executed.
    ///
    /// # Cancellation
    /// Dropping the future leaves the connection in the middle of an answer: drop the connection too.
    pub async fn execute(&mut self, sql: &str) -> Result<Vec<StatementOutput>> {
        let host = self.host.clone();
        let failed = |error| server_error(&host, "the statement", error);
        let mut answers = self.conn.query_iter(sql).await.map_err(failed)?;
        let mut outputs = Vec::new();
        loop {
            let mut output = StatementOutput {
                affected: answers.affected_rows(),
                info: answers.info().into_owned(),
                warnings: answers.warnings(),
                ..Default::default()
            };
            if let Some(columns) = answers.columns() {
                output.columns = columns.iter().map(|column| column.name_str().into_owned()).collect();
            }
            let has_more = match answers.collect::<mysql_async::Row>().await {
                Ok(rows) => {
                    output.rows = rows.into_iter().map(|row| row.unwrap().into_iter().map(text).collect()).collect();
                    !answers.is_empty()
                }
                Err(error) => return Err(failed(error)),
            };
            outputs.push(output);
            if !has_more {
                break;
            }
        }
        // An error of a later statement is pending here, when that statement has no result set.
        answers.drop_result().await.map_err(failed)?;
        Ok(outputs)
    }

    /// `host:port` of the FE.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Number of this connection at the FE, as `KILL` takes it.
    pub fn id(&self) -> u32 {
        self.conn.id()
    }

    /// Says goodbye to the server and closes the connection.
    ///
    /// # Errors
    /// [`Error::Transport`]; the connection is closed anyway.
    pub async fn close(self) -> Result<()> {
        self.conn.disconnect().await.map_err(|error| server_error(&self.host, "closing the connection", error))
    }
}

/// A connection to the first host of `jdbc_url` that answers within the connect timeout, and its `host:port`. Rows larger
/// than `max_packet` bytes are errors.
pub(super) async fn connect_within(
    jdbc_url: &str,
    options: &ConnectionOptions,
    max_packet: usize,
) -> Result<(Conn, String)> {
    super::install_crypto_provider();
    let address = Address::parse(jdbc_url)?;
    let mut last = None;
    for (host, port) in &address.hosts {
        let opts = OptsBuilder::default()
            .ip_or_hostname(host.trim_start_matches('[').trim_end_matches(']'))
            .tcp_port(*port)
            .user(Some(&options.username))
            .pass(Some(options.password.reveal()))
            .db_name(address.database.as_deref())
            // A socket path that the server announces is a path on its machine.
            .prefer_socket(false)
            // Asked for otherwise, with a query that not every server knows.
            .max_allowed_packet(Some(max_packet))
            .wait_timeout(Some(28_800))
            .stmt_cache_size(0);
        let host = format!("{host}:{port}");
        match tokio::time::timeout(options.connect_timeout, Conn::new(opts)).await {
            Ok(Ok(conn)) => return Ok((conn, host)),
            Ok(Err(error)) => match server_error(&host, CONNECTING, error) {
                transport @ Error::Transport { .. } => last = Some(transport),
                refused => return Err(refused),
            },
            Err(elapsed) => last = Some(transport(&host, CONNECTING, Box::new(elapsed))),
        }
    }
    Err(last.unwrap_or_else(|| Error::config("jdbc-url", "names no host")))
}

impl DorisClient {
    /// A connection to the `jdbc-url` of the options.
    ///
    /// # Errors
    /// [`Error::Config`] when the options have none; else as [`DorisConnection::connect`].
    pub async fn connection(&self) -> Result<DorisConnection> {
        let options = self.options();
        let Some(url) = &options.jdbc_url else {
            return Err(Error::config(
                "jdbc-url",
                "is needed to send statements to Doris; give jdbc:mysql://host:9030",
            ));
        };
        DorisConnection::connect(url, &options.username, &options.password).await
    }
}

/// Values of the text protocol are texts; the others come from binary results only.
fn text(value: Value) -> Option<String> {
    match value {
        Value::NULL => None,
        Value::Bytes(bytes) => Some(String::from_utf8_lossy(&bytes).into_owned()),
        other => Some(other.as_sql(true).trim_matches('\'').to_string()),
    }
}

pub(super) fn server_error(host: &str, operation: &str, error: mysql_async::Error) -> Error {
    match error {
        mysql_async::Error::Server(error) if matches!(error.code, 1044 | 1045) => {
            Error::Auth { host: host.to_string(), message: error.message }
        }
        mysql_async::Error::Server(error) => Error::Server {
            host: host.to_string(),
            operation: operation.to_string(),
            code: Some(u32::from(error.code)),
            message: error.message,
        },
        other => transport(host, operation, Box::new(other)),
    }
}

fn transport(host: &str, operation: &str, source: Box<dyn std::error::Error + Send + Sync>) -> Error {
    // A connection that was not made has done nothing; a statement whose answer is lost may have been executed.
    let retry = if operation == CONNECTING { Retry::SameLabel } else { Retry::AskLabelState };
    Error::Transport { host: host.to_string(), operation: operation.to_string(), retry, source }
}

#[derive(Debug, PartialEq, Eq)]
struct Address {
    hosts: Vec<(String, u16)>,
    database: Option<String>,
}

impl Address {
    fn parse(jdbc_url: &str) -> Result<Self> {
        let bad = |reason: &str| Error::config("jdbc-url", format!("{reason}; expected jdbc:mysql://host:9030[/db]"));
        let url = jdbc_url.trim();
        let url = url.strip_prefix("jdbc:").unwrap_or(url);
        let rest = url.strip_prefix("mysql://").ok_or_else(|| bad("it does not start with jdbc:mysql://"))?;
        let rest = rest.split_once('?').map_or(rest, |(rest, _)| rest);
        let (hosts, database) = rest.split_once('/').map_or((rest, ""), |(hosts, database)| (hosts, database));
        if hosts.contains('@') {
            return Err(bad("it holds a user; use 'username' and 'password'"));
        }
        let host = |text: &str| {
            let text = text.trim();
            match text.rsplit_once(':') {
                Some((host, port)) if !host.is_empty() && !port.ends_with(']') => {
                    let port = port.parse().map_err(|_| bad("the port is no number"))?;
                    Ok((host.to_string(), port))
                }
                _ if text.is_empty() => Err(bad("it names no host")),
                _ => Ok((text.to_string(), DEFAULT_PORT)),
            }
        };
        let hosts = hosts.split(',').map(host).collect::<Result<Vec<_>>>()?;
        Ok(Self { hosts, database: (!database.is_empty()).then(|| database.to_string()) })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;
    use crate::error::Outlook;

    #[test]
    fn jdbc_addresses_are_understood() {
        let address = |hosts: &[(&str, u16)], database: Option<&str>| Address {
            hosts: hosts.iter().map(|(host, port)| (host.to_string(), *port)).collect(),
            database: database.map(str::to_string),
        };
        let cases = [
            ("jdbc:mysql://fe:9031", address(&[("fe", 9031)], None)),
            ("jdbc:mysql://fe:9030/sales?useSSL=false", address(&[("fe", 9030)], Some("sales"))),
            ("mysql://fe-1,fe-2:9031/", address(&[("fe-1", 9030), ("fe-2", 9031)], None)),
            ("jdbc:mysql://[::1]:9030", address(&[("[::1]", 9030)], None)),
            ("jdbc:mysql://[::1]/db", address(&[("[::1]", 9030)], Some("db"))),
        ];
        for (text, expected) in cases {
            assert_eq!(Address::parse(text).unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn malformed_jdbc_addresses_are_refused_without_showing_them() {
        for text in ["fe:9030", "jdbc:mysql://", "jdbc:mysql://fe:x", "jdbc:mysql://root:secret@fe:9030"] {
            let error = Address::parse(text).unwrap_err().to_string();
            assert!(error.contains("jdbc-url") && !error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn lost_connections_may_pass_and_only_unmade_ones_have_done_nothing() {
        let lost = || mysql_async::Error::Io(std::io::Error::from(std::io::ErrorKind::ConnectionReset).into());
        for (operation, retry) in [(CONNECTING, Retry::SameLabel), ("the statement", Retry::AskLabelState)] {
            let error = server_error("fe:9030", operation, lost());
            assert_eq!((error.retry(), error.outlook()), (retry, Outlook::Passing), "{operation}");
        }
    }
}
