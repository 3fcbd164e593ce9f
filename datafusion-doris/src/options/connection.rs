//! Hosts, credentials, timeouts.

use std::time::Duration;

use super::value::Secret;

/// How to reach the cluster.
#[derive(Debug, Clone)]
pub struct ConnectionOptions {
    /// `fenodes`: FE addresses `host:http_port`, tried in order with failover.
    pub fenodes: Vec<String>,
    /// `benodes`: BE addresses `host:http_port`; empty = the FE's redirect decides.
    pub benodes: Vec<String>,
    /// `jdbc-url`: `jdbc:mysql://host:query_port[/db]`, the MySQL protocol address, when given.
    pub jdbc_url: Option<String>,
    /// `username`.
    pub username: String,
    /// `password`.
    pub password: Secret,
    /// `source.flight-sql-port`: FE Arrow Flight SQL port; `None` = discovered by `SHOW FRONTENDS`.
    pub flight_port: Option<u16>,
    /// `auto-redirect` (default true): loads go to an FE and are redirected; false = to a BE of `/api/backends`.
    pub auto_redirect: bool,
    /// `doris.request.connect.timeout`, default 60 s.
    pub connect_timeout: Duration,
    /// `doris.request.read.timeout`, default 60 s: longest silence of a metadata request.
    pub read_timeout: Duration,
    /// `doris.request.retries`, default 3: attempts of an idempotent metadata request.
    pub retries: usize,
    /// `doris.flight.max-message-size`, default 1 GiB: largest Flight message accepted, in bytes.
    pub flight_max_message_bytes: usize,
}
