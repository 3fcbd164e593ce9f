//! A running sandbox.

mod builder;

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use futures::TryStreamExt;
use futures::future::select_all;
use tokio::sync::watch;
use tokio::task::JoinSet;

pub use self::builder::{SandboxBuilder, StartError};
use crate::cluster::Cluster;
use crate::engine::{Engine, Protocol, StatementResult};
use crate::error::SqlError;
use crate::faults::{Faults, NodeId, Requests};
use crate::nodes::{NodeHandle, NodeServers};
use crate::shared::Addresses;

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
    cluster: Arc<Cluster>,
    /// FEs first, then BEs.
    nodes: Vec<Arc<NodeServers>>,
    ca_pem: Option<String>,
    admin: Option<SocketAddr>,
    tasks: JoinSet<()>,
}

impl fmt::Debug for Sandbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sandbox").field("addresses", &self.addresses()).finish_non_exhaustive()
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        self.tasks.abort_all();
        for node in &self.nodes {
            node.abort();
        }
        self.cluster.groups.commit_all(&self.cluster.engine);
    }
}

impl Sandbox {
    /// Default settings: user `root` without password, one FE and one BE, any free ports on 127.0.0.1.
    pub fn builder() -> SandboxBuilder {
        SandboxBuilder::new()
    }

    /// Addresses of the first FE and the first BE.
    pub fn addresses(&self) -> Addresses {
        self.cluster.frontends[0].addresses
    }

    /// `host:port` of the FEs' HTTP servers, the ones with TLS where there are such, joined by commas: the value of a
    /// `fenodes` option.
    pub fn fenodes(&self) -> String {
        let port = |a: Addresses| a.fe_https.unwrap_or(a.fe_http);
        let list: Vec<_> = self.cluster.frontends.iter().map(|m| self.cluster.host_port(port(m.addresses))).collect();
        list.join(",")
    }

    /// `host:port` of the BEs' HTTP servers, joined by commas: the value of a `benodes` option.
    pub fn benodes(&self) -> String {
        let list: Vec<_> = self.cluster.backends.iter().map(|m| self.cluster.host_port(m.addresses.be_http)).collect();
        list.join(",")
    }

    /// `jdbc:mysql://host:port` of the first FE.
    pub fn jdbc_url(&self) -> String {
        format!("jdbc:mysql://{}", self.cluster.host_port(self.addresses().mysql))
    }

    /// Certificate of the authority that signed the servers' one, when any server speaks TLS.
    pub fn ca_pem(&self) -> Option<&str> {
        self.ca_pem.as_deref()
    }

    /// Address of the admin endpoint.
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.admin
    }

    /// The engine behind the servers.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.cluster.engine
    }

    /// Faults to arm.
    pub fn faults(&self) -> &Faults {
        &self.cluster.faults
    }

    /// What the servers received.
    pub fn requests(&self) -> &Requests {
        &self.cluster.requests
    }

    /// A node; `None` when there is no such.
    pub fn node(&self, id: NodeId) -> Option<NodeHandle> {
        self.nodes.iter().find(|node| node.shared.node == id).map(|node| NodeHandle::new(Arc::clone(node)))
    }

    /// An FE, numbered from 0.
    ///
    /// # Panics
    /// There is no such FE.
    pub fn frontend(&self, i: usize) -> NodeHandle {
        assert!(i < self.cluster.frontends.len(), "there is no frontend {i}");
        NodeHandle::new(Arc::clone(&self.nodes[i]))
    }

    /// A BE, numbered from 0.
    ///
    /// # Panics
    /// There is no such BE.
    pub fn backend(&self, i: usize) -> NodeHandle {
        assert!(i < self.cluster.backends.len(), "there is no backend {i}");
        NodeHandle::new(Arc::clone(&self.nodes[self.cluster.frontends.len() + i]))
    }

    /// All nodes, FEs first.
    pub(crate) fn handles(&self) -> Vec<NodeHandle> {
        self.nodes.iter().map(|node| NodeHandle::new(Arc::clone(node))).collect()
    }

    /// Number of the master among the FEs.
    pub fn master(&self) -> usize {
        self.cluster.master()
    }

    /// Makes an FE master. Transactions go on; the timestamp oracle goes on behind the window of the old master.
    ///
    /// # Panics
    /// There is no such FE.
    pub fn elect_master(&self, frontend: usize) {
        assert!(frontend < self.cluster.frontends.len(), "there is no frontend {frontend}");
        self.cluster.elect(frontend);
    }

    /// The token that nodes of this cluster show each other: of `/api/bootstrap` and of the header `token` of a load.
    pub fn cluster_token(&self) -> &str {
        &self.cluster.token
    }

    /// Moves the time of all nodes. What is overdue then is aborted at once.
    pub fn advance_clock(&self, by: Duration) {
        self.cluster.clock.advance(i64::try_from(by.as_millis()).unwrap_or(i64::MAX));
        self.cluster.engine.sweep();
    }

    /// Shows a TSO that is so many milliseconds behind, 0 to end it: a fault that no healthy cluster has. What commits
    /// get stays strictly increasing.
    pub fn tso_step_back(&self, ms: i64) {
        self.engine().tso_service().step_back(ms);
    }

    /// Cleans up the change records of a table from before a moment, in milliseconds since the epoch, as its TTL would.
    ///
    /// # Errors
    /// There is no such table.
    pub fn expire_changes(&self, db: &str, table: &str, before_ms: i64) -> Result<(), SqlError> {
        self.engine().expire_changes(db, table, before_ms)
    }

    /// Number of Flight tokens that are open, over all FEs.
    pub fn open_flight_tokens(&self) -> usize {
        self.cluster.frontends.iter().map(|member| member.sessions.users().len()).sum()
    }

    /// Ids of the Flight connections that are open; in older builds a token has one from its first command on.
    pub fn flight_connections(&self) -> Vec<u64> {
        self.cluster.frontends.iter().flat_map(|member| member.sessions.connections()).collect()
    }

    /// Number of Flight results that nobody has fetched.
    pub fn unfetched_results(&self) -> usize {
        self.cluster.flight_results.len()
    }

    /// Number of transactions in PREPARE or PRECOMMITTED.
    pub fn running_transactions(&self) -> usize {
        self.cluster.engine.running_transactions()
    }

    /// Number of MySQL connections, those that log in included.
    pub fn open_mysql_connections(&self) -> usize {
        self.cluster.mysql_connections.get()
    }

    /// Number of HTTP requests that wait for their answer.
    pub fn open_http_requests(&self) -> usize {
        self.cluster.http_requests.get()
    }

    /// Waits until `condition` holds; it is asked again whenever a transaction, a Flight token or result, a MySQL
    /// connection or an HTTP request begins or ends, and when a node changes.
    pub async fn until(&self, condition: impl Fn(&Self) -> bool) {
        let tokens = self.cluster.frontends.iter().map(|member| member.sessions.changes());
        let mut watched: Vec<watch::Receiver<u64>> =
            [self.engine().transaction_changes(), self.cluster.changes(), self.cluster.flight_results.changes()]
                .into_iter()
                .chain(tokens)
                .collect();
        while !condition(self) {
            // All senders live as long as the sandbox.
            let _ = select_all(watched.iter_mut().map(|receiver| Box::pin(receiver.changed()))).await;
        }
    }

    /// Ends all Flight tokens, as if they had expired.
    pub fn expire_flight_tokens(&self) {
        for member in &self.cluster.frontends {
            member.sessions.close_all();
        }
    }

    /// Runs statements as the administrator, past all servers.
    ///
    /// # Errors
    /// The first statement that fails.
    pub async fn execute(&self, sql: &str) -> Result<Vec<Outcome>, SqlError> {
        let user = self.engine().config().user.clone();
        let mut session = self.engine().open_session(&user, "127.0.0.1", Protocol::Mysql);
        session.set_frontend(self.master());
        let mut outcomes = Vec::new();
        for result in session.execute(sql).await? {
            outcomes.push(match result {
                StatementResult::Done { affected, info, .. } => Outcome::Done { affected, info },
                StatementResult::Rows { schema, stream, .. } => {
                    let batches = stream.try_collect().await.map_err(|e| SqlError::detail(e.to_string()))?;
                    Outcome::Rows { schema, batches }
                }
            });
        }
        Ok(outcomes)
    }
}

#[cfg(test)]
mod tests;
