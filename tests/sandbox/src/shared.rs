//! What the servers of one node share.

use std::net::SocketAddr;
use std::sync::Arc;

use futures::StreamExt;

use crate::cluster::{Cluster, Member};
use crate::engine::{Engine, Profile, Protocol, StatementResult};
use crate::error::SqlError;
use crate::faults::{NodeFaults, NodeId, NodeRequests};
use crate::flight::{FlightResults, FlightSessions};
use crate::http::cookie::WebSessions;
use crate::load::{ErrorLogs, GroupCommits};
use crate::session::Session;
use crate::types::{TextStyle, text_value};

/// Addresses of the servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Addresses {
    /// HTTP of the FE (`http_port`).
    pub fe_http: SocketAddr,
    /// HTTP of the FE with TLS (`https_port`), when it is served.
    pub fe_https: Option<SocketAddr>,
    /// HTTP of the BE (`webserver_port`).
    pub be_http: SocketAddr,
    /// MySQL protocol of the FE (`query_port`).
    pub mysql: SocketAddr,
    /// Arrow Flight SQL of the FE.
    pub fe_flight: SocketAddr,
    /// Arrow Flight SQL of the BE.
    pub be_flight: SocketAddr,
}

/// One node: what its servers need, kept over a restart.
pub(crate) struct Shared {
    pub cluster: Arc<Cluster>,
    pub node: NodeId,
    pub engine: Arc<Engine>,
    pub faults: NodeFaults,
    pub requests: NodeRequests,
    /// Host the nodes name to clients.
    pub host: String,
    /// The node's own addresses; those of the other side are of its first node.
    pub addresses: Addresses,
    pub error_logs: ErrorLogs,
    /// Sessions of callers with a cookie.
    pub web_sessions: WebSessions,
    /// Loads that wait for a shared commit, of the whole cluster.
    pub groups: Arc<GroupCommits>,
    /// Tokens of an FE.
    pub flight_sessions: Arc<FlightSessions>,
    /// Results wait here for whichever BE is asked: a BE pulls what another one holds.
    pub flight_results: Arc<FlightResults>,
}

impl Shared {
    /// The part of a node.
    pub fn new(cluster: &Arc<Cluster>, member: &Member) -> Arc<Self> {
        Arc::new(Self {
            node: member.id,
            engine: Arc::clone(&cluster.engine),
            faults: cluster.faults.of(member.id),
            requests: cluster.requests.of(member.id),
            host: cluster.host.clone(),
            addresses: member.addresses,
            error_logs: ErrorLogs::default(),
            web_sessions: WebSessions::default(),
            groups: Arc::clone(&cluster.groups),
            flight_sessions: Arc::clone(&member.sessions),
            flight_results: Arc::clone(&cluster.flight_results),
            cluster: Arc::clone(cluster),
        })
    }

    /// The node as the others see it.
    pub fn member(&self) -> &Member {
        let (list, i) = match self.node {
            NodeId::Fe(i) => (&self.cluster.frontends, i),
            NodeId::Be(i) => (&self.cluster.backends, i),
        };
        &list[i]
    }

    pub fn profile(&self) -> Profile {
        self.engine.config().profile
    }

    /// `host:port` that clients use for a server; an IPv6 host stands in brackets.
    pub fn host_port(&self, address: SocketAddr) -> String {
        self.cluster.host_port(address)
    }

    /// Milliseconds since the Unix epoch on the node's own clock.
    pub fn now_ms(&self) -> i64 {
        self.cluster.now_ms(self.member())
    }

    /// Opens a session at this FE.
    pub fn open_session(&self, user: &str, client: &str, protocol: Protocol) -> Session {
        self.open_session_as(self.engine.next_connection(), user, client, protocol)
    }

    /// [`Self::open_session`] of a connection that has its number already.
    pub fn open_session_as(&self, id: u64, user: &str, client: &str, protocol: Protocol) -> Session {
        let mut session = self.engine.open_session_as(id, user, client, protocol);
        if let NodeId::Fe(i) = self.node {
            session.set_frontend(i);
        }
        session
    }

    /// Runs a statement with rows; its column names and its rows as texts, NULL as an empty text.
    pub async fn text_rows(
        &self,
        user: &str,
        client: &str,
        sql: &str,
    ) -> Result<(Vec<String>, Vec<Vec<String>>), SqlError> {
        let mut session = self.open_session(user, client, Protocol::Http);
        let Some(StatementResult::Rows { schema, mut stream, types, .. }) = session.execute(sql).await?.pop() else {
            return Err(SqlError::detail(format!("{sql} returned no rows")));
        };
        let names = schema.fields().iter().map(|f| f.name().clone()).collect();
        let mut rows = Vec::new();
        while let Some(batch) = stream.next().await {
            let batch = batch.map_err(|e| SqlError::detail(e.to_string()))?;
            for row in 0..batch.num_rows() {
                let cells = batch.columns().iter().zip(&types);
                rows.push(
                    cells
                        .map(|(column, ty)| text_value(column.as_ref(), row, ty, TextStyle::Mysql).unwrap_or_default())
                        .collect(),
                );
            }
        }
        Ok((names, rows))
    }
}
