//! The nodes of a sandbox as they know each other: who runs, who is alive in the FEs' eyes, who is master.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use tokio::sync::{OwnedRwLockReadGuard, RwLock, watch};

use crate::engine::{Clock, Engine, Node, Topology};
use crate::faults::{Faults, NodeId, PublishHolds, Requests};
use crate::flight::{FlightResults, FlightSessions};
use crate::load::GroupCommits;
use crate::random;
use crate::shared::{Addresses, Shared};
use crate::tls::Tls;

/// What a node does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeState {
    /// Serves.
    Running,
    /// Accepts connections and moves no bytes.
    Paused,
    /// Refuses connections.
    Stopped,
}

impl NodeState {
    /// Name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Stopped => "stopped",
        }
    }
}

/// One node.
pub(crate) struct Member {
    pub id: NodeId,
    pub addresses: Addresses,
    pub state: watch::Sender<NodeState>,
    /// What the connections of the node watch.
    pub paused: watch::Sender<bool>,
    alive: AtomicBool,
    started_ms: AtomicI64,
    /// Milliseconds by which the node's clock is ahead.
    clock_offset_ms: AtomicI64,
    /// Tokens of an FE.
    pub sessions: Arc<FlightSessions>,
    /// Held by loads of a BE that do what cannot be cut off; taken by the end of the node.
    work: Arc<RwLock<()>>,
}

impl Member {
    pub fn new(id: NodeId, addresses: Addresses, now_ms: i64) -> Self {
        Self {
            id,
            addresses,
            state: watch::Sender::new(NodeState::Stopped),
            paused: watch::Sender::new(false),
            alive: AtomicBool::new(false),
            started_ms: AtomicI64::new(now_ms),
            clock_offset_ms: AtomicI64::new(0),
            sessions: Arc::new(FlightSessions::of(match id {
                NodeId::Fe(i) | NodeId::Be(i) => i,
            })),
            work: Arc::default(),
        }
    }

    /// Begins work that the end of the node waits for; `None` when the node has ended.
    pub async fn begin_work(&self) -> Option<OwnedRwLockReadGuard<()>> {
        let work = Arc::clone(&self.work).read_owned().await;
        (*self.state.borrow() != NodeState::Stopped).then_some(work)
    }

    /// Waits for the work that was begun.
    pub async fn finish_work(&self) {
        drop(self.work.write().await);
    }

    /// Whether FEs take it for alive.
    pub fn alive(&self) -> bool {
        self.alive.load(Ordering::SeqCst)
    }

    /// How far the node's clock is ahead.
    pub fn clock_offset_ms(&self) -> i64 {
        self.clock_offset_ms.load(Ordering::SeqCst)
    }
}

/// Things that clients hold open.
#[derive(Debug, Default)]
pub(crate) struct Gauge(AtomicUsize);

impl Gauge {
    /// How many there are.
    pub fn get(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

/// One open thing; dropping it closes it.
pub(crate) struct Open {
    cluster: Arc<Cluster>,
    gauge: fn(&Cluster) -> &Gauge,
}

impl Drop for Open {
    fn drop(&mut self) {
        (self.gauge)(&self.cluster).0.fetch_sub(1, Ordering::SeqCst);
        self.cluster.tell();
    }
}

/// Who leads, as one node sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Master {
    /// The node itself.
    Here,
    /// Another node that answers.
    There(usize),
    /// Another node that is stopped.
    Down(usize),
}

/// All nodes.
pub(crate) struct Cluster {
    pub engine: Arc<Engine>,
    pub clock: Arc<SandboxClock>,
    pub faults: Faults,
    pub requests: Requests,
    /// Host the nodes name to clients.
    pub host: String,
    /// What nodes of one cluster show each other.
    pub token: String,
    pub tls: Tls,
    pub frontends: Vec<Member>,
    pub backends: Vec<Member>,
    /// Results wait here for whichever BE is asked: a BE pulls what another one holds.
    pub flight_results: Arc<FlightResults>,
    /// Loads that wait for a shared commit.
    pub groups: Arc<GroupCommits>,
    /// Transactions whose publishing faults hold.
    pub holds: Arc<PublishHolds>,
    pub mysql_connections: Gauge,
    pub http_requests: Gauge,
    master: watch::Sender<usize>,
    next_backend: AtomicUsize,
    /// Counts changes of nodes and of what is open.
    changed: watch::Sender<u64>,
    shared: OnceLock<Vec<Weak<Shared>>>,
}

/// What a cluster is made from.
pub(crate) struct Parts {
    pub engine: Arc<Engine>,
    pub clock: Arc<SandboxClock>,
    pub host: String,
    pub tls: Tls,
    pub frontends: Vec<Member>,
    pub backends: Vec<Member>,
}

impl Cluster {
    pub fn new(parts: Parts) -> Arc<Self> {
        let Parts { engine, clock, host, tls, frontends, backends } = parts;
        let cluster = Arc::new(Self {
            engine,
            clock,
            faults: Faults::default(),
            requests: Requests::default(),
            host,
            token: random::uuid(),
            tls,
            frontends,
            backends,
            flight_results: Arc::default(),
            groups: Arc::default(),
            holds: Arc::default(),
            mysql_connections: Gauge::default(),
            http_requests: Gauge::default(),
            master: watch::Sender::new(0),
            next_backend: AtomicUsize::new(0),
            changed: watch::Sender::new(0),
            shared: OnceLock::new(),
        });
        cluster.describe();
        cluster
    }

    /// Makes the nodes' own parts known, so that nodes can call each other.
    pub fn introduce(&self, shared: &[Arc<Shared>]) {
        let weak = shared.iter().map(Arc::downgrade).collect();
        // A second introduction would be the same nodes again.
        let _ = self.shared.set(weak);
    }

    /// The part of a node that its servers share.
    pub fn shared(&self, id: NodeId) -> Option<Arc<Shared>> {
        self.shared.get()?.iter().filter_map(Weak::upgrade).find(|shared| shared.node == id)
    }

    /// A node.
    pub fn member(&self, id: NodeId) -> Option<&Member> {
        match id {
            NodeId::Fe(i) => self.frontends.get(i),
            NodeId::Be(i) => self.backends.get(i),
        }
    }

    /// `host:port` that clients use; an IPv6 host stands in brackets.
    pub fn host_port(&self, address: SocketAddr) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, address.port())
        } else {
            format!("{}:{}", self.host, address.port())
        }
    }

    /// Scheme of Flight locations.
    pub fn flight_scheme(&self) -> &'static str {
        if self.tls.flight { "grpc+tls" } else { "grpc+tcp" }
    }

    /// Number of the master among the FEs.
    pub fn master(&self) -> usize {
        *self.master.borrow()
    }

    /// Makes an FE master.
    pub fn elect(&self, frontend: usize) {
        self.clock.follow(self.frontends.get(frontend).map_or(0, Member::clock_offset_ms));
        if self.master.send_replace(frontend) != frontend {
            self.engine.tso_service().restart();
        }
        self.describe();
    }

    /// Who leads, seen from `node`. A paused master does not answer: the call waits for it to go on, to stop, or for
    /// another master.
    pub async fn reach_master(&self, node: NodeId) -> Master {
        let mut master = self.master.subscribe();
        loop {
            let leader = *master.borrow_and_update();
            if node == NodeId::Fe(leader) {
                return Master::Here;
            }
            let Some(member) = self.frontends.get(leader) else { return Master::Down(leader) };
            let mut state = member.state.subscribe();
            let now = *state.borrow_and_update();
            match now {
                NodeState::Running => return Master::There(leader),
                NodeState::Stopped => return Master::Down(leader),
                NodeState::Paused => tokio::select! {
                    _ = state.changed() => {}
                    _ = master.changed() => {}
                },
            }
        }
    }

    /// Waits until the master answers a BE.
    ///
    /// # Errors
    /// It is stopped; the text of the failed call.
    pub async fn call_master(&self, backend: NodeId) -> Result<(), String> {
        match self.reach_master(backend).await {
            Master::Here | Master::There(_) => Ok(()),
            Master::Down(i) => Err(format!(
                "failed to call frontend service, FE address={}:{}, reason: connect() failed: Connection refused",
                self.host,
                9020 + 100 * i
            )),
        }
    }

    /// Whether the master runs.
    pub fn master_answers(&self) -> bool {
        self.frontends.get(self.master()).is_some_and(|member| *member.state.borrow() == NodeState::Running)
    }

    /// Backends that FEs take for alive.
    pub fn alive_backends(&self) -> impl Iterator<Item = (usize, &Member)> {
        self.backends.iter().enumerate().filter(|(_, member)| member.alive())
    }

    /// The next alive backend, round robin.
    pub fn next_backend(&self) -> Option<(usize, &Member)> {
        let turn = self.next_backend.fetch_add(1, Ordering::SeqCst);
        let alive: Vec<_> = self.alive_backends().collect();
        alive.get(turn.checked_rem(alive.len())?).copied()
    }

    /// Whether any FE issued this Flight token.
    pub fn knows_token(&self, token: &str) -> bool {
        self.frontends.iter().any(|member| member.sessions.contains(token))
    }

    /// A node begins or ceases to serve.
    pub fn set_state(&self, member: &Member, state: NodeState) {
        if state == NodeState::Running && *member.state.borrow() == NodeState::Stopped {
            member.started_ms.store(self.now_ms(member), Ordering::SeqCst);
        }
        member.paused.send_replace(state == NodeState::Paused);
        member.state.send_replace(state);
        if state != NodeState::Paused {
            // Nobody notices a node that hangs at once.
            member.alive.store(state == NodeState::Running, Ordering::SeqCst);
        }
        self.describe();
    }

    /// Takes all nodes for alive before they run.
    pub fn expect_all(&self) {
        for member in self.frontends.iter().chain(&self.backends) {
            member.alive.store(true, Ordering::SeqCst);
        }
        self.describe();
    }

    /// What FEs take a node for.
    pub fn set_alive(&self, member: &Member, alive: bool) {
        member.alive.store(alive, Ordering::SeqCst);
        self.describe();
    }

    /// Sets the clock of a node ahead (or behind). The master's clock is the one of TSO and transactions.
    pub fn set_clock_offset(&self, member: &Member, ms: i64) {
        member.clock_offset_ms.store(ms, Ordering::SeqCst);
        if member.id == NodeId::Fe(self.master()) {
            self.clock.follow(ms);
        }
    }

    /// Time that a node's own clock shows.
    pub fn now_ms(&self, member: &Member) -> i64 {
        self.clock.common_ms() + member.clock_offset_ms()
    }

    /// Counts an open thing until the answer is dropped.
    pub fn open(self: &Arc<Self>, gauge: fn(&Self) -> &Gauge) -> Open {
        gauge(self).0.fetch_add(1, Ordering::SeqCst);
        self.tell();
        Open { cluster: Arc::clone(self), gauge }
    }

    /// Tells of every change of a node or of what is open.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    fn tell(&self) {
        self.changed.send_modify(|n| *n = n.wrapping_add(1));
    }

    /// Tells the engine what SHOW FRONTENDS and SHOW BACKENDS print.
    fn describe(&self) {
        let served = !self.engine.config().flight.switched_off;
        let flight = |port: u16| if served { port } else { 0 };
        let node = |member: &Member, frontend: bool| Node {
            host: self.host.clone(),
            http_port: if frontend { member.addresses.fe_http.port() } else { member.addresses.be_http.port() },
            query_port: if frontend { member.addresses.mysql.port() } else { 0 },
            flight_port: flight(match frontend {
                true => member.addresses.fe_flight.port(),
                false => member.addresses.be_flight.port(),
            }),
            tls: !frontend && self.tls.be_http,
            alive: member.alive(),
            started_ms: member.started_ms.load(Ordering::SeqCst),
        };
        self.engine.set_topology(Topology {
            frontends: self.frontends.iter().map(|m| node(m, true)).collect(),
            backends: self.backends.iter().map(|m| node(m, false)).collect(),
            master: self.master(),
        });
        self.tell();
    }
}

/// The clock of a sandbox: the one it was given, moved by hand, plus what the master's clock is ahead.
#[derive(Debug)]
pub(crate) struct SandboxClock {
    base: Arc<dyn Clock>,
    advanced_ms: AtomicI64,
    master_offset_ms: AtomicI64,
}

impl SandboxClock {
    pub fn new(base: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(Self { base, advanced_ms: AtomicI64::new(0), master_offset_ms: AtomicI64::new(0) })
    }

    /// Moves the time of all nodes.
    pub fn advance(&self, ms: i64) {
        let add = |now: i64| Some(now.saturating_add(ms));
        // The closure always gives a value.
        let _ = self.advanced_ms.fetch_update(Ordering::SeqCst, Ordering::SeqCst, add);
    }

    fn follow(&self, offset_ms: i64) {
        self.master_offset_ms.store(offset_ms, Ordering::SeqCst);
    }

    /// The time before any node's offset.
    pub fn common_ms(&self) -> i64 {
        self.base.now_ms().saturating_add(self.advanced_ms.load(Ordering::SeqCst))
    }
}

impl Clock for SandboxClock {
    fn now_ms(&self) -> i64 {
        self.common_ms().saturating_add(self.master_offset_ms.load(Ordering::SeqCst))
    }
}
