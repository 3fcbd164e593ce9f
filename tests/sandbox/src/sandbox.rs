//! Starting and stopping a sandbox.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use futures::TryStreamExt;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::engine::{Clock, Engine, EngineConfig, Node, Profile, Protocol, StatementResult, Topology};
use crate::error::SqlError;
use crate::faults::{Faults, NodeId, Requests};
use crate::flight::FlightConfig;
use crate::shared::{Addresses, Shared};
use crate::{flight, http, mysql};

/// Why a sandbox did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// An address cannot be listened on.
    #[error("cannot listen on {host}:{port} for {what}: {source}")]
    Bind {
        /// Which server.
        what: &'static str,
        /// Host asked for.
        host: String,
        /// Port asked for.
        port: u16,
        /// Reason.
        source: std::io::Error,
    },
    /// The seed script failed.
    #[error("the seed script failed: {0}")]
    Seed(#[from] SqlError),
}

/// Settings of a sandbox; [`Sandbox::builder`] makes one.
pub struct SandboxBuilder {
    config: EngineConfig,
    host: String,
    public_host: Option<String>,
    ports: Ports,
    seed: Vec<String>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Ports {
    fe_http: u16,
    be_http: u16,
    mysql: u16,
    fe_flight: u16,
    be_flight: u16,
}

impl fmt::Debug for SandboxBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SandboxBuilder")
            .field("config", &self.config)
            .field("host", &self.host)
            .field("ports", &self.ports)
            .finish_non_exhaustive()
    }
}

impl SandboxBuilder {
    /// Name of the administrator (default `root`).
    #[must_use]
    pub fn user(mut self, user: impl Into<String>) -> Self {
        self.config.user = user.into();
        self
    }

    /// Password of the administrator (default empty).
    #[must_use]
    pub fn password(mut self, password: impl Into<String>) -> Self {
        self.config.password = password.into();
        self
    }

    /// The Doris build to imitate (default [`Profile::V5_0Changelog`]).
    #[must_use]
    pub fn profile(mut self, profile: Profile) -> Self {
        self.config.profile = profile;
        self
    }

    /// Time source of transactions and TSO.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.config.clock = clock;
        self
    }

    /// Age at which a pre-committed transaction is aborted (default 3600 s).
    #[must_use]
    pub fn precommit_timeout(mut self, timeout: Duration) -> Self {
        self.config.precommit_timeout = timeout;
        self
    }

    /// `max_running_txn_num_per_db` (default 10000).
    #[must_use]
    pub fn max_running_transactions(mut self, limit: usize) -> Self {
        self.config.max_running_txn_num_per_db = limit;
        self
    }

    /// Time zone of new sessions: an IANA name or an offset (default `Asia/Shanghai`).
    #[must_use]
    pub fn time_zone(mut self, zone: impl Into<String>) -> Self {
        self.config.time_zone = zone.into();
        self
    }

    /// Limits and switches of Arrow Flight SQL.
    #[must_use]
    pub fn flight(mut self, flight: FlightConfig) -> Self {
        self.config.flight = flight;
        self
    }

    /// Host to listen on (default `127.0.0.1`).
    #[must_use]
    pub fn host(mut self, host: impl Into<String>) -> Self {
        self.host = host.into();
        self
    }

    /// Host that redirects, endpoints and SHOW FRONTENDS name (default: the host listened on, or `127.0.0.1` when
    /// that is every interface).
    #[must_use]
    pub fn public_host(mut self, host: impl Into<String>) -> Self {
        self.public_host = Some(host.into());
        self
    }

    /// HTTP port of the FE; 0, the default of all ports, takes any free one.
    #[must_use]
    pub fn http_port(mut self, port: u16) -> Self {
        self.ports.fe_http = port;
        self
    }

    /// HTTP port of the BE.
    #[must_use]
    pub fn be_http_port(mut self, port: u16) -> Self {
        self.ports.be_http = port;
        self
    }

    /// MySQL port of the FE.
    #[must_use]
    pub fn mysql_port(mut self, port: u16) -> Self {
        self.ports.mysql = port;
        self
    }

    /// Flight SQL port of the FE.
    #[must_use]
    pub fn flight_port(mut self, port: u16) -> Self {
        self.ports.fe_flight = port;
        self
    }

    /// Flight SQL port of the BE.
    #[must_use]
    pub fn be_flight_port(mut self, port: u16) -> Self {
        self.ports.be_flight = port;
        self
    }

    /// Statements to run before the servers answer; may be called several times.
    #[must_use]
    pub fn seed_sql(mut self, sql: impl Into<String>) -> Self {
        self.seed.push(sql.into());
        self
    }

    /// Binds all ports, runs the seed and starts the servers.
    ///
    /// # Errors
    /// A port cannot be listened on, or a seed statement fails.
    pub async fn start(self) -> Result<Sandbox, StartError> {
        let bind = |what, port| listen(what, &self.host, port);
        let fe_http = bind("the FE's HTTP", self.ports.fe_http).await?;
        let be_http = bind("the BE's HTTP", self.ports.be_http).await?;
        let mysql = bind("MySQL", self.ports.mysql).await?;
        let fe_flight = bind("the FE's Flight SQL", self.ports.fe_flight).await?;
        let be_flight = bind("the BE's Flight SQL", self.ports.be_flight).await?;
        let addresses = Addresses {
            fe_http: fe_http.1,
            be_http: be_http.1,
            mysql: mysql.1,
            fe_flight: fe_flight.1,
            be_flight: be_flight.1,
        };
        let host = self.public_host.unwrap_or_else(|| match self.host.parse::<IpAddr>() {
            Ok(ip) if ip.is_unspecified() => "127.0.0.1".to_owned(),
            _ => self.host.clone(),
        });
        let engine = Engine::new(self.config);
        engine.set_topology(topology(&host, &addresses));
        let (faults, requests) = (Faults::default(), Requests::default());
        let (flight_sessions, flight_results) = (Arc::default(), Arc::default());
        let groups = Arc::<crate::load::GroupCommits>::default();
        let node = |node: NodeId| {
            Arc::new(Shared {
                node,
                engine: Arc::clone(&engine),
                faults: faults.of(node),
                requests: requests.of(node),
                host: host.clone(),
                addresses,
                error_logs: crate::load::ErrorLogs::default(),
                groups: Arc::clone(&groups),
                flight_sessions: Arc::clone(&flight_sessions),
                flight_results: Arc::clone(&flight_results),
            })
        };
        let (shared, backend) = (node(NodeId::Fe(0)), node(NodeId::Be(0)));
        let stop = CancellationToken::new();
        let sandbox =
            Sandbox { shared: Arc::clone(&shared), faults, requests, stop: stop.clone(), servers: JoinSet::new() };
        for sql in &self.seed {
            sandbox.execute(sql).await?;
        }
        let mut sandbox = sandbox;
        let servers = &mut sandbox.servers;
        servers.spawn(http::serve_fe(fe_http.0, Arc::clone(&shared)));
        servers.spawn(http::serve_be(be_http.0, Arc::clone(&backend)));
        servers.spawn(mysql::serve(mysql.0, Arc::clone(&shared)));
        servers.spawn(flight::serve_fe(fe_flight.0, Arc::clone(&shared), stop.clone()));
        servers.spawn(flight::serve_be(be_flight.0, backend, stop));
        servers.spawn(crate::load::GroupCommits::run(groups, Arc::clone(&shared.engine)));
        servers.spawn(sweep(Arc::clone(&shared.engine)));
        Ok(sandbox)
    }
}

async fn listen(what: &'static str, host: &str, port: u16) -> Result<(TcpListener, SocketAddr), StartError> {
    let failed = |source| StartError::Bind { what, host: host.to_owned(), port, source };
    let listener = TcpListener::bind((host, port)).await.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    Ok((listener, address))
}

fn topology(host: &str, addresses: &Addresses) -> Topology {
    Topology {
        frontends: vec![Node {
            host: host.to_owned(),
            http_port: addresses.fe_http.port(),
            query_port: addresses.mysql.port(),
            flight_port: addresses.fe_flight.port(),
        }],
        backends: vec![Node {
            host: host.to_owned(),
            http_port: addresses.be_http.port(),
            query_port: 0,
            flight_port: addresses.be_flight.port(),
        }],
    }
}

/// Aborts overdue transactions even when nobody asks.
async fn sweep(engine: Arc<Engine>) {
    let mut ticks = tokio::time::interval(Duration::from_secs(1));
    loop {
        ticks.tick().await;
        engine.sweep();
    }
}

/// Outcome of a statement run by [`Sandbox::execute`].
#[derive(Debug, Clone)]
pub enum Outcome {
    /// Rows, all of them.
    Rows {
        /// Arrow schema as the profile sends it.
        schema: SchemaRef,
        /// The rows.
        batches: Vec<RecordBatch>,
    },
    /// No result set.
    Done {
        /// Affected rows.
        affected: u64,
        /// Info text.
        info: String,
    },
}

impl Outcome {
    /// Number of rows, or of affected rows.
    pub fn rows(&self) -> u64 {
        match self {
            Self::Rows { batches, .. } => batches.iter().map(|b| b.num_rows() as u64).sum(),
            Self::Done { affected, .. } => *affected,
        }
    }
}

/// A running sandbox. Dropping it closes every listener and connection.
pub struct Sandbox {
    shared: Arc<Shared>,
    faults: Faults,
    requests: Requests,
    stop: CancellationToken,
    servers: JoinSet<()>,
}

impl fmt::Debug for Sandbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sandbox").field("addresses", &self.shared.addresses).finish_non_exhaustive()
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        self.stop.cancel();
        self.servers.abort_all();
        self.shared.groups.commit_all(&self.shared.engine);
    }
}

impl Sandbox {
    /// Default settings: user `root` without password, any free ports on 127.0.0.1.
    pub fn builder() -> SandboxBuilder {
        SandboxBuilder {
            config: EngineConfig::default(),
            host: "127.0.0.1".to_owned(),
            public_host: None,
            ports: Ports::default(),
            seed: Vec::new(),
        }
    }

    /// Addresses of the servers.
    pub fn addresses(&self) -> Addresses {
        self.shared.addresses
    }

    /// `host:port` of the FE's HTTP server: the value of a `fenodes` option.
    pub fn fenodes(&self) -> String {
        self.shared.host_port(self.shared.addresses.fe_http)
    }

    /// `host:port` of the BE's HTTP server: the value of a `benodes` option.
    pub fn benodes(&self) -> String {
        self.shared.host_port(self.shared.addresses.be_http)
    }

    /// `jdbc:mysql://host:port`.
    pub fn jdbc_url(&self) -> String {
        format!("jdbc:mysql://{}", self.shared.host_port(self.shared.addresses.mysql))
    }

    /// The engine behind the servers.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.shared.engine
    }

    /// Faults to arm.
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// What the servers received.
    pub fn requests(&self) -> &Requests {
        &self.requests
    }

    /// Number of Flight tokens that are open.
    pub fn open_flight_tokens(&self) -> usize {
        self.shared.flight_sessions.users().len()
    }

    /// Ids of the Flight connections that are open; in older builds a token has one from its first command on.
    pub fn flight_connections(&self) -> Vec<u64> {
        self.shared.flight_sessions.connections()
    }

    /// Ends a Flight connection as KILL CONNECTION does; false when there is none of this id.
    pub fn kill_flight_connection(&self, id: u64) -> bool {
        self.shared.flight_sessions.kill(&self.shared.engine, id)
    }

    /// Number of Flight results that nobody has fetched.
    pub fn unfetched_results(&self) -> usize {
        self.shared.flight_results.len()
    }

    /// Number of transactions in PREPARE or PRECOMMITTED.
    pub fn running_transactions(&self) -> usize {
        self.shared.engine.running_transactions()
    }

    /// Waits until `condition` holds; it is asked again whenever a transaction, a Flight token or a
    /// Flight result begins or ends.
    pub async fn until(&self, condition: impl Fn(&Self) -> bool) {
        let mut transactions = self.shared.engine.transaction_changes();
        let mut tokens = self.shared.flight_sessions.changes();
        let mut results = self.shared.flight_results.changes();
        while !condition(self) {
            // Both senders live as long as the sandbox.
            tokio::select! {
                _ = transactions.changed() => {}
                _ = tokens.changed() => {}
                _ = results.changed() => {}
            }
        }
    }

    /// Ends all Flight tokens, as if they had expired.
    pub fn expire_flight_tokens(&self) {
        self.shared.flight_sessions.close_all();
    }

    /// Runs statements as the administrator, past all servers.
    ///
    /// # Errors
    /// The first statement that fails.
    pub async fn execute(&self, sql: &str) -> Result<Vec<Outcome>, SqlError> {
        let user = self.shared.engine.config().user.clone();
        let mut session = self.shared.engine.open_session(&user, "127.0.0.1", Protocol::Mysql);
        let mut outcomes = Vec::new();
        for result in session.execute(sql).await? {
            outcomes.push(match result {
                StatementResult::Done { affected, info } => Outcome::Done { affected, info },
                StatementResult::Rows { schema, stream, .. } => {
                    let batches = stream.try_collect().await.map_err(|e| SqlError::detail(e.to_string()))?;
                    Outcome::Rows { schema, batches }
                }
            });
        }
        Ok(outcomes)
    }
}
