//! Idle polls: one cheap question instead of the server's time and a window without rows.
//!
//! Each publish gives the partitions that it touches another visible version. Versions that were there before the
//! server's time was `seen_ms` belong to commits of up to `seen_ms`; once windows were read beyond it, and as long as the
//! versions stay the same, there is nothing to read. Then the position stays where it is: nothing is skipped, the next
//! window is only longer. A full poll follows once a minute, or in a quarter of the time that changes are kept, whatever
//! the versions say, since a frontend that lags behind may show old ones.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::reader::Reader;
use super::window::WindowPlanner;
use crate::error::Error;

/// Longest time between two full polls.
const FULL_POLL: Duration = Duration::from_secs(60);
/// Tables of more partitions are not asked for their versions: the answer is no longer cheap.
const MOST_PARTITIONS: usize = 1000;

/// The partitions of a table with their visible versions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PartitionVersions(Vec<(String, String)>);

impl PartitionVersions {
    /// Of ids and versions, in any order.
    pub fn new(mut versions: Vec<(String, String)>) -> Self {
        versions.sort_unstable();
        Self(versions)
    }
}

/// What is known of a table's versions; shared by all copies of a node.
#[derive(Debug, Default)]
pub(super) struct IdleWatch {
    /// The server does not tell versions, or too many.
    useless: AtomicBool,
    seen: Mutex<Option<Seen>>,
}

#[derive(Debug)]
struct Seen {
    versions: PartitionVersions,
    /// The server's time when they were first seen, or later.
    seen_ms: i64,
    /// The last full poll: when, and the server's time then.
    full: (Instant, i64),
}

impl IdleWatch {
    /// The server's time by now, when `versions` show that everything published lies before `next_ms`, and the last full
    /// poll is not too long ago.
    fn nothing_from(&self, versions: &PartitionVersions, next_ms: i64, longest: Duration) -> Option<i64> {
        let seen = self.seen.lock();
        let seen = seen.as_ref()?;
        let (at, server_ms) = seen.full;
        let idle = seen.versions == *versions && seen.seen_ms < next_ms && at.elapsed() < longest;
        idle.then(|| server_ms.saturating_add(i64::try_from(at.elapsed().as_millis()).unwrap_or(i64::MAX)))
    }

    /// `versions` were there before the server's time was `server_ms`.
    fn note(&self, versions: PartitionVersions, server_ms: i64) {
        let full = (Instant::now(), server_ms);
        let mut seen = self.seen.lock();
        match seen.as_mut() {
            Some(seen) if seen.versions == versions => seen.full = full,
            _ => *seen = Some(Seen { versions, seen_ms: server_ms, full }),
        }
    }
}

/// What an idle poll found.
#[derive(Debug)]
pub(super) enum Look {
    /// There is nothing to read from the position on.
    Nothing,
    /// There may be: poll in full. The versions, when they are known, are to be given to [`Reader::looked`] afterwards.
    Poll(Option<PartitionVersions>),
}

impl Reader {
    /// Looks whether a full poll can be spared: not when somebody waits for an instant.
    pub(super) async fn look(&self, planner: &WindowPlanner) -> Look {
        // A position that stays must not look as if its changes had expired.
        let longest = self.spec.time_to_live.map_or(FULL_POLL, |ttl| FULL_POLL.min(ttl / 4));
        let pointless = self.idle.useless.load(Ordering::Relaxed) || self.spec.poll_interval >= longest;
        if pointless || !self.control.polls_by_interval(planner) {
            return Look::Poll(None);
        }
        let table = &self.spec.table;
        let versions = match self.server.partition_versions().await {
            Ok(Some(versions)) if versions.0.len() <= MOST_PARTITIONS => versions,
            Ok(_) => {
                tracing::debug!(%table, "versions of its partitions are not asked for: unknown, or too many");
                self.idle.useless.store(true, Ordering::Relaxed);
                return Look::Poll(None);
            }
            Err(error @ Error::Transport { .. }) => {
                tracing::debug!(%table, %error, "no versions of its partitions this time");
                return Look::Poll(None);
            }
            Err(error) => {
                tracing::debug!(%table, %error, "versions of its partitions are not asked for any more");
                self.idle.useless.store(true, Ordering::Relaxed);
                return Look::Poll(None);
            }
        };
        let Some(server_ms) = self.idle.nothing_from(&versions, planner.next_ms(), longest) else {
            return Look::Poll(Some(versions));
        };
        self.control.looked();
        self.metrics.idle_polls.add(1);
        self.metrics.lag_ms.set(usize::try_from(server_ms - planner.next_ms()).unwrap_or_default());
        Look::Nothing
    }

    /// Notes the versions that a look found, and the server's time that was asked for after them.
    pub(super) fn looked(&self, versions: Option<PartitionVersions>, server_ms: i64) {
        if let Some(versions) = versions {
            self.idle.note(versions, server_ms);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    fn versions(of_p1: u32) -> PartitionVersions {
        let pair = |id: &str, version: u32| (id.to_string(), version.to_string());
        PartitionVersions::new(vec![pair("p2", 7), pair("p1", of_p1)])
    }

    #[tokio::test(start_paused = true)]
    async fn versions_prove_nothing_until_windows_passed_the_time_at_which_they_were_seen() {
        let watch = IdleWatch::default();
        assert_eq!(watch.nothing_from(&versions(1), i64::MAX, FULL_POLL), None, "nothing was seen yet");
        watch.note(versions(1), 20_400);
        assert_eq!(watch.nothing_from(&versions(1), 20_000, FULL_POLL), None, "a commit at 20.1 s may be among them");
        assert_eq!(watch.nothing_from(&versions(1), 20_400, FULL_POLL), None);
        watch.note(versions(1), 30_400);
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!(
            watch.nothing_from(&versions(1), 30_000, FULL_POLL),
            Some(32_400),
            "seen at 20.4 s, read up to 30 s"
        );
        assert_eq!(watch.nothing_from(&versions(2), 30_000, FULL_POLL), None, "something was published");
        watch.note(versions(2), 40_400);
        assert_eq!(watch.nothing_from(&versions(2), 40_000, FULL_POLL), None);
    }

    #[tokio::test(start_paused = true)]
    async fn full_poll_is_due_after_a_minute() {
        let watch = IdleWatch::default();
        watch.note(versions(1), 20_400);
        tokio::time::advance(FULL_POLL - Duration::from_millis(1)).await;
        assert!(watch.nothing_from(&versions(1), 21_000, FULL_POLL).is_some());
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(watch.nothing_from(&versions(1), 21_000, FULL_POLL), None);
        watch.note(versions(1), 80_400);
        assert!(watch.nothing_from(&versions(1), 21_000, FULL_POLL).is_some());
    }
}
