//! Settings of a sandbox, and its start.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use super::Sandbox;
use crate::cluster::{Cluster, Member, Parts, SandboxClock};
use crate::engine::{Clock, Engine, EngineConfig, Profile};
use crate::error::SqlError;
use crate::executor;
use crate::faults::{NodeId, PublishHolds};
use crate::flight::FlightConfig;
use crate::http;
use crate::load::GroupCommits;
use crate::net::Port;
use crate::nodes::{NodePorts, NodeServers};
use crate::shared::{Addresses, Shared};
use crate::tls::{Certificates, Tls, TlsError};

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
    /// No certificate could be made.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// A cluster needs at least one FE and one BE.
    #[error("a sandbox needs at least one FE and one BE")]
    NoNode,
    /// No threads for queries.
    #[error("cannot start the threads of queries: {0}")]
    Executor(std::io::Error),
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
    frontends: usize,
    backends: usize,
    tls: Tls,
    admin: Option<u16>,
    seed: Vec<String>,
}

/// Ports of the first node of each kind; further nodes take free ones.
#[derive(Debug, Clone, Copy, Default)]
struct Ports {
    fe_http: u16,
    fe_https: u16,
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
            .field("frontends", &self.frontends)
            .field("backends", &self.backends)
            .field("tls", &self.tls)
            .finish_non_exhaustive()
    }
}

impl SandboxBuilder {
    pub(super) fn new() -> Self {
        Self {
            config: EngineConfig::default(),
            host: "127.0.0.1".to_owned(),
            public_host: None,
            ports: Ports::default(),
            frontends: 1,
            backends: 1,
            tls: Tls::default(),
            admin: None,
            seed: Vec::new(),
        }
    }

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

    /// `string_type_length_soft_limit_bytes` (default 1 MiB): longest STRING that is stored.
    #[must_use]
    pub fn string_limit_bytes(mut self, limit: u32) -> Self {
        self.config.string_limit_bytes = limit;
        self
    }

    /// Time zone of new sessions: an IANA name or an offset (default `Asia/Shanghai`).
    #[must_use]
    pub fn time_zone(mut self, zone: impl Into<String>) -> Self {
        self.config.time_zone = zone.into();
        self
    }

    /// Adds an external catalog, which can be read: its database `d` is the internal database `name__d`.
    #[must_use]
    pub fn external_catalog(mut self, name: impl Into<String>) -> Self {
        self.config.external_catalogs.push(name.into());
        self
    }

    /// Limits and switches of Arrow Flight SQL.
    #[must_use]
    pub fn flight(mut self, flight: FlightConfig) -> Self {
        self.config.flight = flight;
        self
    }

    /// Number of FEs (default 1); the first is master until [`Sandbox::elect_master`].
    #[must_use]
    pub fn frontends(mut self, n: usize) -> Self {
        self.frontends = n;
        self
    }

    /// Number of BEs (default 1). Tablets are spread over them, one replica each.
    #[must_use]
    pub fn backends(mut self, n: usize) -> Self {
        self.backends = n;
        self
    }

    /// Which servers speak TLS (default none), with a certificate of an authority made at the start
    /// ([`Sandbox::ca_pem`]).
    #[must_use]
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = tls;
        self
    }

    /// Serves the admin endpoint on this port, 0 for any free one (default: not at all).
    #[must_use]
    pub fn admin_port(mut self, port: u16) -> Self {
        self.admin = Some(port);
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

    /// HTTP port of the first FE; 0, the default of all ports, takes any free one.
    #[must_use]
    pub fn http_port(mut self, port: u16) -> Self {
        self.ports.fe_http = port;
        self
    }

    /// HTTP port with TLS of the first FE, with [`Tls::http`].
    #[must_use]
    pub fn https_port(mut self, port: u16) -> Self {
        self.ports.fe_https = port;
        self
    }

    /// HTTP port of the first BE.
    #[must_use]
    pub fn be_http_port(mut self, port: u16) -> Self {
        self.ports.be_http = port;
        self
    }

    /// MySQL port of the first FE.
    #[must_use]
    pub fn mysql_port(mut self, port: u16) -> Self {
        self.ports.mysql = port;
        self
    }

    /// Flight SQL port of the first FE.
    #[must_use]
    pub fn flight_port(mut self, port: u16) -> Self {
        self.ports.fe_flight = port;
        self
    }

    /// Flight SQL port of the first BE.
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
    pub async fn start(mut self) -> Result<Sandbox, StartError> {
        if self.frontends == 0 || self.backends == 0 {
            return Err(StartError::NoNode);
        }
        let host = self.public_host.take().unwrap_or_else(|| match self.host.parse::<IpAddr>() {
            Ok(ip) if ip.is_unspecified() => "127.0.0.1".to_owned(),
            _ => self.host.clone(),
        });
        let certificates = match self.tls.any() {
            true => Some(Arc::new(Certificates::new(&[&host])?)),
            false => None,
        };
        let ports = self.take_ports().await?;
        let admin = match self.admin {
            Some(port) => Some(self.take("the admin endpoint", port).await?),
            None => None,
        };

        let clock = SandboxClock::new(Arc::clone(&self.config.clock));
        self.config.clock = Arc::clone(&clock) as Arc<dyn Clock>;
        self.config.executor = Some(executor::handle().map_err(StartError::Executor)?);
        let engine = Engine::new(self.config);
        let members = addresses(&ports);
        let now_ms = clock.common_ms();
        let (frontends, backends) = members
            .iter()
            .map(|(id, addresses)| Member::new(*id, *addresses, now_ms))
            .partition(|member| matches!(member.id, NodeId::Fe(_)));
        let cluster = Cluster::new(Parts { engine, clock, host, tls: self.tls, frontends, backends });
        let shared: Vec<Arc<Shared>> =
            cluster.frontends.iter().chain(&cluster.backends).map(|member| Shared::new(&cluster, member)).collect();
        cluster.introduce(&shared);
        // Whoever is about to run is alive: the seed may need the BEs.
        cluster.expect_all();
        let nodes = shared
            .into_iter()
            .zip(ports)
            .map(|(shared, ports)| Arc::new(NodeServers::new(shared, ports, certificates.clone())))
            .collect();
        let mut sandbox = Sandbox {
            cluster,
            nodes,
            ca_pem: certificates.map(|c| c.ca_pem.clone()),
            admin: admin.as_ref().map(Port::address),
            tasks: JoinSet::new(),
        };
        for sql in &self.seed {
            sandbox.execute(sql).await?;
        }
        for node in &sandbox.nodes {
            node.start()?;
        }
        if let Some(port) = admin {
            let listener = port.listen().map_err(|source| StartError::Bind {
                what: "the admin endpoint",
                host: self.host.clone(),
                port: port.address().port(),
                source,
            })?;
            let handles = sandbox.handles();
            sandbox.tasks.spawn(http::admin::serve(listener, Arc::clone(&sandbox.cluster), handles));
        }
        sandbox.tasks.spawn(GroupCommits::run(Arc::clone(&sandbox.cluster)));
        let engine = Arc::clone(&sandbox.cluster.engine);
        let release = move |txn| engine.set_transaction_held(txn, false);
        sandbox.tasks.spawn(PublishHolds::run(Arc::clone(&sandbox.cluster.holds), release));
        sandbox.tasks.spawn(super::sweep(Arc::clone(&sandbox.cluster.engine)));
        Ok(sandbox)
    }

    async fn take(&self, what: &'static str, port: u16) -> Result<Port, StartError> {
        let failed = |source| StartError::Bind { what, host: self.host.clone(), port, source };
        Port::take(&self.host, port).await.map_err(failed)
    }

    /// The ports of all nodes, FEs first.
    async fn take_ports(&self) -> Result<Vec<NodePorts>, StartError> {
        let mut all = Vec::with_capacity(self.frontends + self.backends);
        for i in 0..self.frontends {
            let asked = if i == 0 { self.ports } else { Ports::default() };
            all.push(NodePorts {
                http: self.take("the FE's HTTP", asked.fe_http).await?,
                https: match self.tls.http {
                    true => Some(self.take("the FE's HTTPS", asked.fe_https).await?),
                    false => None,
                },
                mysql: Some(self.take("MySQL", asked.mysql).await?),
                flight: self.take("the FE's Flight SQL", asked.fe_flight).await?,
            });
        }
        for i in 0..self.backends {
            let asked = if i == 0 { self.ports } else { Ports::default() };
            all.push(NodePorts {
                http: self.take("the BE's HTTP", asked.be_http).await?,
                https: None,
                mysql: None,
                flight: self.take("the BE's Flight SQL", asked.be_flight).await?,
            });
        }
        Ok(all)
    }
}

/// Every node with its addresses; what a node does not have is the first one's of the other kind.
fn addresses(ports: &[NodePorts]) -> Vec<(NodeId, Addresses)> {
    let is_frontend = |ports: &&NodePorts| ports.mysql.is_some();
    let first_fe = ports.iter().find(is_frontend);
    let first_be = ports.iter().find(|p| !is_frontend(p));
    let address = |port: Option<&Port>| port.map_or(SocketAddr::from(([0, 0, 0, 0], 0)), Port::address);
    let addresses = |fe: Option<&NodePorts>, be: Option<&NodePorts>| Addresses {
        fe_http: address(fe.map(|p| &p.http)),
        fe_https: fe.and_then(|p| p.https.as_ref()).map(Port::address),
        be_http: address(be.map(|p| &p.http)),
        mysql: address(fe.and_then(|p| p.mysql.as_ref())),
        fe_flight: address(fe.map(|p| &p.flight)),
        be_flight: address(be.map(|p| &p.flight)),
    };
    let frontends = ports.iter().filter(is_frontend).enumerate();
    let backends = ports.iter().filter(|p| !is_frontend(p)).enumerate();
    frontends
        .map(|(i, fe)| (NodeId::Fe(i), addresses(Some(fe), first_be)))
        .chain(backends.map(|(i, be)| (NodeId::Be(i), addresses(first_fe, Some(be)))))
        .collect()
}
