//! Which protocols the FEs serve, and where.

use std::collections::HashMap;

use parking_lot::Mutex;

use super::DorisClient;
use super::frontend::malformed;
use super::http::host_of;
use crate::error::{Error, Result};
use crate::protocol::{Frontend, flight_port_of, parse_frontends};

/// `SHOW FRONTENDS` as each FE answered it, until a connection to what it told fails.
#[derive(Debug, Default)]
pub(super) struct KnownFrontends {
    by_node: Mutex<HashMap<String, Vec<Frontend>>>,
}

impl KnownFrontends {
    /// Asks again next time.
    pub fn forget(&self, node: &str) {
        self.by_node.lock().remove(node);
    }
}

/// `host:port`, or the host alone, without its port.
fn with_port(node: &str, port: u16) -> String {
    format!("{}:{port}", host_of(node))
}

impl DorisClient {
    async fn frontends_at(&self, node: &str) -> Result<Vec<Frontend>> {
        if let Some(known) = self.inner.known_frontends.by_node.lock().get(node) {
            return Ok(known.clone());
        }
        let rows = self.statement_at(node.to_string(), "SHOW FRONTENDS").await?;
        let frontends = parse_frontends(&rows.columns, &rows.rows)
            .map_err(|reason| malformed(node, "discovering the arrow flight port", reason))?;
        self.inner.known_frontends.by_node.lock().insert(node.to_string(), frontends.clone());
        Ok(frontends)
    }

    /// `host:port` of the Flight service of the FE `node`.
    pub(super) async fn flight_address(&self, node: &str) -> Result<String> {
        if let Some(port) = self.options().flight_port {
            return Ok(with_port(node, port));
        }
        let frontends = self.frontends_at(node).await?;
        let port = flight_port_of(&frontends, node).ok_or_else(|| {
            Error::config(
                "source.flight-sql-port",
                format!(
                    "the fe {node} shows no arrow flight service; set arrow_flight_sql_port in fe.conf and be.conf, or \
                     this option, or read by the MySQL protocol: 'source.use-flight-sql' = 'false'"
                ),
            )
        })?;
        Ok(with_port(node, port))
    }

    /// Whether the FEs serve Arrow Flight SQL: servers before 2.1 do not, and others when it is switched off.
    ///
    /// # Errors
    /// [`Error::Auth`], [`Error::Transport`] when no FE could be asked.
    pub(crate) async fn serves_flight(&self) -> Result<bool> {
        if self.options().flight_port.is_some() {
            return Ok(true);
        }
        let found = self
            .on_any_frontend(|node| async move {
                let frontends = self.frontends_at(&node).await?;
                Ok(flight_port_of(&frontends, &node).is_some())
            })
            .await;
        match found {
            // Who may not see the FEs is told so when the port is needed.
            Err(Error::Server { .. }) => Ok(true),
            found => found,
        }
    }

    /// Where the MySQL protocol is served: `jdbc-url`, or the query port that an FE tells.
    ///
    /// # Errors
    /// [`Error::Config`] when no FE tells one; [`Error::Auth`], [`Error::Transport`].
    pub(super) async fn mysql_url(&self) -> Result<String> {
        if let Some(url) = &self.options().jdbc_url {
            return Ok(url.clone());
        }
        self.on_any_frontend(|node| async move {
            let frontends = self.frontends_at(&node).await?;
            let of_host: Vec<&Frontend> = frontends.iter().filter(|frontend| frontend.current).collect();
            let asked = match of_host.as_slice() {
                [one] => Some(*one),
                _ => frontends.first().filter(|_| frontends.len() == 1),
            };
            match asked.and_then(|frontend| frontend.query_port) {
                Some(port) => Ok(format!("jdbc:mysql://{}", with_port(&node, port))),
                None => Err(Error::config(
                    "jdbc-url",
                    "is needed to read by the MySQL protocol; give jdbc:mysql://host:9030",
                )),
            }
        })
        .await
    }
}
