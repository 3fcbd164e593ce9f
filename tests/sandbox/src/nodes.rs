//! Starting, stopping, pausing and restarting the servers of a node.

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::cluster::{Cluster, Member, NodeState};
use crate::faults::NodeId;
use crate::net::{Listener, Port, Running, acceptor};
use crate::sandbox::StartError;
use crate::shared::{Addresses, Shared};
use crate::tls::Certificates;
use crate::{flight, http, mysql};

/// The ports of a node, by what is served there.
pub(crate) struct NodePorts {
    pub http: Port,
    /// `https_port` of an FE.
    pub https: Option<Port>,
    pub mysql: Option<Port>,
    pub flight: Port,
}

impl NodePorts {
    fn all(&self) -> impl Iterator<Item = &Port> {
        [Some(&self.http), self.https.as_ref(), self.mysql.as_ref(), Some(&self.flight)].into_iter().flatten()
    }
}

/// One node and its servers.
pub(crate) struct NodeServers {
    pub shared: Arc<Shared>,
    ports: NodePorts,
    certificates: Option<Arc<Certificates>>,
    /// The tasks of the current run.
    run: Mutex<Option<Run>>,
    /// One change at a time.
    change: tokio::sync::Mutex<()>,
}

struct Run {
    stop: CancellationToken,
    tasks: JoinSet<()>,
}

impl Drop for Run {
    fn drop(&mut self) {
        self.stop.cancel();
        self.tasks.abort_all();
    }
}

impl NodeServers {
    pub fn new(shared: Arc<Shared>, ports: NodePorts, certificates: Option<Arc<Certificates>>) -> Self {
        Self { shared, ports, certificates, run: Mutex::new(None), change: tokio::sync::Mutex::new(()) }
    }

    fn cluster(&self) -> &Arc<Cluster> {
        &self.shared.cluster
    }

    fn member(&self) -> &Member {
        self.shared.member()
    }

    /// Starts the servers of a stopped node.
    pub fn start(&self) -> Result<(), StartError> {
        let stop = CancellationToken::new();
        let running = Running { stop: stop.clone(), paused: self.member().paused.subscribe() };
        let listen = |port: &Port, what| {
            let listener = port.listen().map_err(|source| StartError::Bind {
                what,
                host: port.address().ip().to_string(),
                port: port.address().port(),
                source,
            })?;
            Ok::<_, StartError>(Listener::new(listener, running.clone()))
        };
        let shared = || Arc::clone(&self.shared);
        let tls = self.cluster().tls;
        let plain_tls = acceptor(self.certificates.as_ref().map(|c| &c.plain));
        let h2_tls = acceptor(self.certificates.as_ref().map(|c| &c.h2)).filter(|_| tls.flight);
        let flight = !self.shared.engine.config().flight.switched_off;
        let mut tasks = JoinSet::new();
        match self.shared.node {
            NodeId::Fe(_) => {
                tasks.spawn(http::serve_fe(listen(&self.ports.http, "the FE's HTTP")?, shared(), None));
                if let Some(port) = &self.ports.https {
                    tasks.spawn(http::serve_fe(listen(port, "the FE's HTTPS")?, shared(), plain_tls.clone()));
                }
                if let Some(port) = &self.ports.mysql {
                    let offered = plain_tls.filter(|_| tls.mysql);
                    tasks.spawn(mysql::serve(listen(port, "MySQL")?, shared(), offered));
                }
                if flight {
                    tasks.spawn(flight::serve_fe(listen(&self.ports.flight, "the FE's Flight SQL")?, shared(), h2_tls));
                }
            }
            NodeId::Be(_) => {
                let secure = plain_tls.filter(|_| tls.be_http);
                tasks.spawn(http::serve_be(listen(&self.ports.http, "the BE's HTTP")?, shared(), secure));
                if flight {
                    tasks.spawn(flight::serve_be(listen(&self.ports.flight, "the BE's Flight SQL")?, shared(), h2_tls));
                }
            }
        }
        *self.run.lock() = Some(Run { stop, tasks });
        self.cluster().set_state(self.member(), NodeState::Running);
        Ok(())
    }

    /// Closes listeners and connections, and waits until the tasks are gone.
    async fn halt(&self) {
        let run = self.run.lock().take();
        self.cluster().set_state(self.member(), NodeState::Stopped);
        if let Some(mut run) = run {
            run.stop.cancel();
            run.tasks.shutdown().await;
        }
        // What loads are in the middle of is done or undone before the node counts as stopped.
        self.member().finish_work().await;
        for port in self.ports.all() {
            if let Err(error) = port.reserve() {
                tracing::warn!(%error, address = %port.address(), "a stopped node cannot keep its port");
            }
        }
        // Sessions and results of a process that is gone.
        self.member().sessions.close_all();
        if let NodeId::Be(number) = self.shared.node {
            self.shared.flight_results.forget(number);
        }
        self.shared.web_sessions.clear();
    }

    /// Ends all without waiting.
    pub fn abort(&self) {
        self.run.lock().take();
    }
}

/// A node of a sandbox, to stop, pause and look at.
#[derive(Clone)]
pub struct NodeHandle {
    servers: Arc<NodeServers>,
}

impl fmt::Debug for NodeHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeHandle").field("id", &self.id()).field("state", &self.state()).finish()
    }
}

impl NodeHandle {
    pub(crate) fn new(servers: Arc<NodeServers>) -> Self {
        Self { servers }
    }

    /// Which node it is.
    pub fn id(&self) -> NodeId {
        self.servers.shared.node
    }

    /// The node's addresses; those of the other kind of node are of the first one.
    pub fn addresses(&self) -> Addresses {
        self.servers.member().addresses
    }

    /// `host:port` of its HTTP server, the one with TLS where there is one.
    pub fn http(&self) -> String {
        let addresses = self.addresses();
        let address = match self.id() {
            NodeId::Fe(_) => addresses.fe_https.unwrap_or(addresses.fe_http),
            NodeId::Be(_) => addresses.be_http,
        };
        self.servers.cluster().host_port(address)
    }

    /// What it does.
    pub fn state(&self) -> NodeState {
        *self.servers.member().state.borrow()
    }

    /// Whether FEs show it as alive.
    pub fn is_alive(&self) -> bool {
        self.servers.member().alive()
    }

    /// What FEs shall take it for, until it is stopped or started. A paused node stays alive in their eyes until this
    /// is called, as in the time before a heartbeat is missed.
    pub fn set_alive(&self, alive: bool) {
        self.servers.cluster().set_alive(self.servers.member(), alive);
    }

    /// Closes its listeners and cuts its connections, as a killed process does. FEs see it as dead at once; its ports
    /// stay its own. Loads that were running on a BE are aborted; tokens and MySQL sessions of an FE are gone; data and
    /// transactions stay.
    pub async fn stop(&self) {
        let _change = self.servers.change.lock().await;
        self.servers.halt().await;
    }

    /// From now on connections are accepted and nothing is read or written. A stopped node stays stopped.
    pub async fn pause(&self) {
        let _change = self.servers.change.lock().await;
        if self.state() == NodeState::Running {
            self.servers.cluster().set_state(self.servers.member(), NodeState::Paused);
        }
    }

    /// Goes on where [`Self::pause`] stopped, connections and all.
    pub async fn resume(&self) {
        let _change = self.servers.change.lock().await;
        if self.state() == NodeState::Paused {
            self.servers.cluster().set_state(self.servers.member(), NodeState::Running);
        }
    }

    /// Stops it unless it is stopped, and starts it on the same ports.
    ///
    /// # Errors
    /// A port was taken meanwhile.
    pub async fn restart(&self) -> Result<(), StartError> {
        let _change = self.servers.change.lock().await;
        if self.state() != NodeState::Stopped {
            self.servers.halt().await;
        }
        self.servers.start()
    }

    /// Sets the node's clock ahead, or behind when negative. The clock of the master FE is the one of TSO, transactions
    /// and `NOW()`; a BE's clock shows in its error logs and start time.
    pub fn set_clock_offset_ms(&self, ms: i64) {
        self.servers.cluster().set_clock_offset(self.servers.member(), ms);
    }

    /// Number of Flight tokens that are open on an FE.
    pub fn open_flight_tokens(&self) -> usize {
        self.servers.member().sessions.users().len()
    }
}
