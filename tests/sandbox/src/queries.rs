//! Queries that are open: running, or with results that wait to be read (`information_schema.active_queries`).

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;

/// One open query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActiveQuery {
    /// Query id.
    pub query_id: String,
    /// Start in milliseconds since the Unix epoch.
    pub start_ms: i64,
    /// User.
    pub user: String,
    /// Current database, empty for none.
    pub database: String,
    /// Its text.
    pub sql: String,
}

/// The open queries of a cluster.
#[derive(Debug, Clone, Default)]
pub(crate) struct ActiveQueries {
    open: Arc<Mutex<Open>>,
}

#[derive(Debug, Default)]
struct Open {
    next: u64,
    queries: BTreeMap<u64, ActiveQuery>,
}

/// Keeps a query open until it is closed or dropped.
pub(crate) struct QueryGuard {
    open: Arc<Mutex<Open>>,
    key: u64,
}

impl fmt::Debug for QueryGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueryGuard").field("key", &self.key).finish()
    }
}

impl ActiveQueries {
    /// Opens a query.
    pub fn open(&self, query: ActiveQuery) -> QueryGuard {
        let mut open = self.open.lock();
        let key = open.next;
        open.next += 1;
        open.queries.insert(key, query);
        QueryGuard { open: Arc::clone(&self.open), key }
    }

    /// All open queries, oldest first.
    pub fn list(&self) -> Vec<ActiveQuery> {
        self.open.lock().queries.values().cloned().collect()
    }
}

impl QueryGuard {
    /// Ends the query, whoever else holds it.
    pub fn close(&self) {
        self.open.lock().queries.remove(&self.key);
    }
}

impl Drop for QueryGuard {
    fn drop(&mut self) {
        self.close();
    }
}

/// Ends a query when its results were read, or nobody can read them any more.
#[derive(Debug)]
pub(crate) struct EndOfReading(pub Arc<QueryGuard>);

impl Drop for EndOfReading {
    fn drop(&mut self) {
        self.0.close();
    }
}
