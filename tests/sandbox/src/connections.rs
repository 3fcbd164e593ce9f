//! The pool of connections: how many of them, of a user, and of Arrow Flight SQL may be open.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;

/// Limits of a pool.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// `qe_max_connection`.
    pub total: usize,
    /// `max_user_connections`.
    pub user: usize,
    /// `arrow_flight_max_connections`.
    pub flight: usize,
}

#[derive(Debug, Default)]
struct Counts {
    total: usize,
    flight: usize,
    by_user: HashMap<String, usize>,
}

/// Counts the open connections.
#[derive(Debug, Clone, Default)]
pub(crate) struct ConnectionPool {
    counts: Arc<Mutex<Counts>>,
}

/// A connection that counts as long as it exists.
#[derive(Debug)]
pub(crate) struct Slot {
    counts: Arc<Mutex<Counts>>,
    user: String,
    flight: bool,
}

/// Why a connection was not admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LimitReached {
    total: usize,
    user: usize,
    current: usize,
    flight: Option<usize>,
}

impl LimitReached {
    /// Connections that are open.
    pub fn current(&self) -> usize {
        self.current
    }
}

impl fmt::Display for LimitReached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { total, user, current, flight } = self;
        write!(f, "Reach limit of connections. Total: {total}, User: {user}, Current: {current}")?;
        match flight {
            Some(flight) => write!(f, ", Arrow Flight SQL: {flight}"),
            None => Ok(()),
        }
    }
}

impl ConnectionPool {
    /// Admits a connection, or tells which limits stand.
    pub fn admit(&self, user: &str, flight: bool, limits: Limits) -> Result<Slot, LimitReached> {
        let mut counts = self.counts.lock();
        let of_user = counts.by_user.get(user).copied().unwrap_or(0);
        let share_is_full = flight && counts.flight >= limits.flight;
        if counts.total >= limits.total || of_user >= limits.user || share_is_full {
            let flight = (flight && limits.flight < limits.total).then_some(limits.flight);
            return Err(LimitReached { total: limits.total, user: limits.user, current: counts.total, flight });
        }
        counts.total += 1;
        counts.flight += usize::from(flight);
        *counts.by_user.entry(user.to_owned()).or_default() += 1;
        Ok(Slot { counts: Arc::clone(&self.counts), user: user.to_owned(), flight })
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut counts = self.counts.lock();
        counts.total -= 1;
        counts.flight -= usize::from(self.flight);
        if let Some(of_user) = counts.by_user.get_mut(&self.user) {
            *of_user -= 1;
            if *of_user == 0 {
                counts.by_user.remove(&self.user);
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_counts_until_it_is_dropped() {
        let pool = ConnectionPool::default();
        let limits = Limits { total: 3, user: 2, flight: 1 };
        let first = pool.admit("a", true, limits).expect("first");
        let refused = pool.admit("b", true, limits).expect_err("the share of Flight is full");
        assert_eq!(
            refused.to_string(),
            "Reach limit of connections. Total: 3, User: 2, Current: 1, Arrow Flight SQL: 1"
        );
        let second = pool.admit("a", false, limits).expect("second");
        let refused = pool.admit("a", false, limits).expect_err("the user has two");
        assert_eq!(refused.to_string(), "Reach limit of connections. Total: 3, User: 2, Current: 2");
        let _third = pool.admit("b", false, limits).expect("third");
        assert_eq!(pool.admit("c", false, limits).expect_err("full").current(), 3);
        drop((first, second));
        pool.admit("a", true, limits).expect("free again");
    }
}
