//! Hosts, credentials, timeouts.

use std::time::Duration;

use super::entries::{Entries, parse_name};
use super::host_map::HostMap;
use super::key::OptionKey;
use super::value::{Parsed, Secret, parse_bool, parse_count, parse_duration, parse_nodes, parse_port, parse_size};
use crate::error::{Error, Result};

/// How to reach the cluster.
#[derive(Debug, Clone)]
pub struct ConnectionOptions {
    /// `fenodes`: FE addresses `host:http_port`, tried in order with failover.
    pub fenodes: Vec<String>,
    /// `benodes`: BE addresses `host:http_port`; empty = the FE's redirect decides.
    pub benodes: Vec<String>,
    /// `jdbc-url`: `jdbc:mysql://host:query_port[/db]`, the MySQL protocol address, when given; parameters are cut off.
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
    /// `doris.request.query.timeout`, default 21600 s: longest run of one query, the session variable `query_timeout`.
    pub query_timeout: Duration,
    /// `doris.request.retries`, default 3: attempts of an idempotent metadata request.
    pub retries: usize,
    /// `doris.flight.max-message-size`, default 1 GiB: largest Flight message accepted, in bytes.
    pub flight_max_message_bytes: usize,
    /// `doris.flight.host-map`, default empty: where the hosts that Flight locations name are really reached.
    pub flight_host_map: HostMap,
    /// `source.use-flight-sql`, default true; false = rows are read by the MySQL protocol.
    pub use_flight: bool,
    /// `source.max-connections`, default 32: statements of scans that run at once, each on a connection of its own.
    pub max_connections: usize,
    /// `source.overflow-connections`, default 16: further statements that may run while all of those wait for somebody to
    /// take their rows, as in a plan that merges more streams than there are connections.
    pub overflow_connections: usize,
}

impl Default for ConnectionOptions {
    /// The defaults of the option table; without FE and user, which have none.
    fn default() -> Self {
        Self {
            fenodes: Vec::new(),
            benodes: Vec::new(),
            jdbc_url: None,
            username: String::new(),
            password: Secret::default(),
            flight_port: None,
            auto_redirect: true,
            connect_timeout: Duration::from_secs(60),
            read_timeout: Duration::from_secs(60),
            query_timeout: Duration::from_secs(21_600),
            retries: 3,
            flight_max_message_bytes: 1 << 30,
            flight_host_map: HostMap::default(),
            use_flight: true,
            max_connections: 32,
            overflow_connections: 16,
        }
    }
}

impl ConnectionOptions {
    /// Defaults for the FE at `fenode` (`host:http_port`) and one user.
    pub fn new(fenode: impl Into<String>, username: impl Into<String>, password: Secret) -> Self {
        Self { fenodes: vec![fenode.into()], username: username.into(), password, ..Self::default() }
    }

    /// Sets [`Self::fenodes`].
    pub fn with_fenodes(mut self, fenodes: Vec<String>) -> Self {
        self.fenodes = fenodes;
        self
    }

    /// Sets [`Self::benodes`].
    pub fn with_benodes(mut self, benodes: Vec<String>) -> Self {
        self.benodes = benodes;
        self
    }

    /// Sets [`Self::jdbc_url`], without its parameters.
    pub fn with_jdbc_url(mut self, jdbc_url: impl Into<String>) -> Self {
        self.jdbc_url = Some(without_parameters(&jdbc_url.into()));
        self
    }

    /// Sets [`Self::flight_port`].
    pub fn with_flight_port(mut self, port: u16) -> Self {
        self.flight_port = Some(port);
        self
    }

    /// Sets [`Self::auto_redirect`].
    pub fn with_auto_redirect(mut self, auto_redirect: bool) -> Self {
        self.auto_redirect = auto_redirect;
        self
    }

    /// Sets [`Self::connect_timeout`].
    pub fn with_connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Sets [`Self::read_timeout`].
    pub fn with_read_timeout(mut self, timeout: Duration) -> Self {
        self.read_timeout = timeout;
        self
    }

    /// Sets [`Self::query_timeout`].
    pub fn with_query_timeout(mut self, timeout: Duration) -> Self {
        self.query_timeout = timeout;
        self
    }

    /// Sets [`Self::retries`].
    pub fn with_retries(mut self, retries: usize) -> Self {
        self.retries = retries;
        self
    }

    /// Sets [`Self::flight_max_message_bytes`].
    pub fn with_flight_max_message_bytes(mut self, bytes: usize) -> Self {
        self.flight_max_message_bytes = bytes;
        self
    }

    /// Sets [`Self::flight_host_map`].
    pub fn with_flight_host_map(mut self, map: HostMap) -> Self {
        self.flight_host_map = map;
        self
    }

    /// Sets [`Self::use_flight`].
    pub fn with_use_flight(mut self, use_flight: bool) -> Self {
        self.use_flight = use_flight;
        self
    }

    /// Sets [`Self::max_connections`], at least 1.
    pub fn with_max_connections(mut self, connections: usize) -> Self {
        self.max_connections = connections.max(1);
        self
    }

    /// Sets [`Self::overflow_connections`].
    pub fn with_overflow_connections(mut self, connections: usize) -> Self {
        self.overflow_connections = connections;
        self
    }

    /// `fenodes` comes from the LOCATION when it names them.
    pub(super) fn from_entries(entries: &mut Entries, located: Option<Vec<String>>) -> Result<Self> {
        let defaults = Self::default();
        let given = entries.parse(OptionKey::FeNodes, parse_nodes)?;
        let fenodes = match (given, located) {
            (Some(given), Some(located)) if given != located => {
                return Err(Error::config("fenodes", "contradicts LOCATION, give one of them"));
            }
            (Some(nodes), _) | (None, Some(nodes)) => nodes,
            (None, None) => return Err(Error::config("fenodes", "is required, for example 'fe-host:8030'")),
        };
        let in_seconds = entries.is_spelt(OptionKey::QueryTimeout, ".s");
        let username = entries
            .parse(OptionKey::Username, parse_name)?
            .ok_or_else(|| Error::config("username", "is required, the Doris user"))?;
        Ok(Self {
            fenodes,
            benodes: entries.parse(OptionKey::BeNodes, parse_nodes)?.unwrap_or_default(),
            jdbc_url: entries.parse(OptionKey::JdbcUrl, parse_jdbc_url)?,
            username,
            password: Secret::new(entries.text(OptionKey::Password).unwrap_or_default()),
            flight_port: entries.parse(OptionKey::FlightSqlPort, parse_flight_port)?.flatten(),
            auto_redirect: entries.parse(OptionKey::AutoRedirect, parse_bool)?.unwrap_or(defaults.auto_redirect),
            connect_timeout: entries
                .parse(OptionKey::ConnectTimeout, parse_timeout)?
                .unwrap_or(defaults.connect_timeout),
            read_timeout: entries.parse(OptionKey::ReadTimeout, parse_timeout)?.unwrap_or(defaults.read_timeout),
            query_timeout: entries
                .parse(OptionKey::QueryTimeout, |text| parse_query_timeout(text, in_seconds))?
                .unwrap_or(defaults.query_timeout),
            retries: entries.parse(OptionKey::Retries, parse_count)?.unwrap_or(defaults.retries).max(1),
            flight_max_message_bytes: entries
                .parse(OptionKey::FlightMaxMessageSize, parse_message_size)?
                .unwrap_or(defaults.flight_max_message_bytes),
            flight_host_map: entries.parse(OptionKey::FlightHostMap, HostMap::parse)?.unwrap_or_default(),
            use_flight: entries.parse(OptionKey::UseFlightSql, parse_bool)?.unwrap_or(defaults.use_flight),
            max_connections: entries
                .parse(OptionKey::MaxConnections, parse_connections)?
                .unwrap_or(defaults.max_connections),
            overflow_connections: entries
                .parse(OptionKey::OverflowConnections, parse_count)?
                .unwrap_or(defaults.overflow_connections),
        })
    }
}

fn parse_timeout(text: &str) -> Parsed<Duration> {
    match parse_duration(text)? {
        Duration::ZERO => Err("must be longer than zero".into()),
        timeout => Ok(timeout),
    }
}

/// Whole seconds, which the session variable counts: a shorter time is one. The spelling that names seconds takes a bare
/// number of them.
fn parse_query_timeout(text: &str, in_seconds: bool) -> Parsed<Duration> {
    let bare = text.trim().parse::<u64>().ok().filter(|_| in_seconds);
    let timeout = match bare {
        Some(0) => return Err("must be longer than zero".into()),
        Some(seconds) => Duration::from_secs(seconds),
        None => parse_timeout(text)?,
    };
    Ok(Duration::from_secs(timeout.as_secs() + u64::from(timeout.subsec_nanos() > 0)))
}

fn parse_connections(text: &str) -> Parsed<usize> {
    match parse_count(text)? {
        0 => Err("must be at least 1".into()),
        connections => Ok(connections),
    }
}

fn parse_message_size(text: &str) -> Parsed<usize> {
    match parse_size(text)? {
        bytes if bytes < 1 << 20 => Err("must be at least 1mb".into()),
        bytes => Ok(bytes),
    }
}

/// A port, or a number of zero or below for "discover".
fn parse_flight_port(text: &str) -> Parsed<Option<u16>> {
    match text.trim().parse::<i64>() {
        Ok(number) if number <= 0 => Ok(None),
        _ => parse_port(text).map(Some),
    }
}

/// `url` up to its parameters: nothing here reads them, and they may hold a password, which `Debug` would show.
fn without_parameters(url: &str) -> String {
    url.split('?').next().unwrap_or_default().to_owned()
}

/// `jdbc:mysql://host:port[,host:port][/db][?params]`. The text may hold a password: it never stands in the reason.
fn parse_jdbc_url(text: &str) -> Parsed<String> {
    let shape = || "is not of the form 'jdbc:mysql://host:9030'".to_owned();
    let trimmed = text.trim();
    let rest = trimmed.strip_prefix("jdbc:").unwrap_or(trimmed);
    let rest = rest.strip_prefix("mysql://").ok_or_else(shape)?;
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    parse_nodes(&rest[..end]).map_err(|_| shape())?;
    Ok(without_parameters(trimmed))
}
