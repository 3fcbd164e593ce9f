//! The fence that an incremental read takes before it is planned: an end that no later commit can fall behind, and a wait
//! for the transactions that may still belong to the window.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::LOGICAL_BITS;
use crate::engine::{Engine, Profile, TsoStatus};
use crate::error::SqlError;
use crate::session::Session;

/// `retryAfterMs` of the structured errors: the server's poll interval.
const RETRY_AFTER_MS: u64 = 100;

/// What a fence can be made to fail with, where the sandbox has no such state of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IncrFailure {
    /// 5100 with reason `WINDOW_NOT_READY` (the text for one without a window end is the wait timeout).
    WindowNotReady,
    /// 5101 or, where the build has no code, the wait timeout.
    WaitTimeout,
    /// The publishers of the tables hold their locks.
    SynchronizeVersions,
    /// The follower does not catch up with the journal.
    JournalReplay,
    /// The transaction ids cannot be read.
    Watermark,
    /// The follower cannot reach the master.
    MasterUnreachable,
}

/// Failures that wait for the next fences, first in, first out.
#[derive(Debug, Default)]
pub(crate) struct IncrFailures(Mutex<VecDeque<IncrFailure>>);

impl IncrFailures {
    pub(crate) fn push(&self, failure: IncrFailure) {
        self.0.lock().push_back(failure);
    }

    fn take(&self) -> Option<IncrFailure> {
        self.0.lock().pop_front()
    }
}

/// What the incremental relations of one statement need.
#[derive(Debug, Default)]
pub(crate) struct FenceRequest {
    /// Tables by database.
    tables: BTreeMap<u64, BTreeSet<u64>>,
    end_ms: Option<i64>,
    unbounded: bool,
}

/// A fence: the state of the TSO when it was taken, and the end of reads without one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fence {
    pub(crate) now: TsoStatus,
    pub(crate) upper: i64,
}

impl FenceRequest {
    /// Adds one relation.
    pub(crate) fn add(&mut self, db: u64, table: u64, end_ms: Option<i64>) {
        self.tables.entry(db).or_default().insert(table);
        match end_ms {
            Some(end) => self.end_ms = Some(self.end_ms.map_or(end, |most| most.max(end))),
            None => self.unbounded = true,
        }
    }

    /// Takes the fence.
    ///
    /// # Errors
    /// The window ends in the future, the TSO is not ready, or transactions of the tables outlive the wait.
    pub(crate) async fn acquire(&self, session: &Session) -> Result<Fence, SqlError> {
        let engine = &session.engine;
        let wait = !session.variables.is_true("enable_eventual_consistent_change");
        let now = engine.tso.status();
        // An eventual read without an end takes whatever is visible.
        if !wait && self.end_ms.is_none() {
            return Ok(Fence { now, upper: i64::MAX });
        }
        let timeout_ms = session.variables.number("change_visible_timeout_ms").unwrap_or(10_000);
        let attempt = Attempt { request: self, engine, wait, timeout_ms };
        let failure = engine.incr_failures.take();
        if failure == Some(IncrFailure::JournalReplay) {
            let text = format!(
                "timeout waiting follower journal replay for time-based read, maxJournalId={}",
                engine.txns.watermark()
            );
            return Err(SqlError::detail(text));
        }
        if failure == Some(IncrFailure::MasterUnreachable) {
            return Err(SqlError::detail("failed to get master FE client for time-based read"));
        }
        let outcome = match failure {
            Some(failure) => Err(attempt.forced(failure, now)),
            None => attempt.run(now).await,
        };
        outcome.map_err(|error| if session.is_follower() { from_master(error) } else { error })?;
        Ok(Fence { now, upper: now.current_tso + 1 })
    }
}

/// A follower asks the master for its fence. The codes of windows travel as they are, other texts get a prefix.
fn from_master(error: SqlError) -> SqlError {
    if error.name.is_some() {
        return error;
    }
    SqlError::detail(format!("acquire time-based read fence from master FE failed: {}", error.text()))
}

struct Attempt<'a> {
    request: &'a FenceRequest,
    engine: &'a Arc<Engine>,
    wait: bool,
    timeout_ms: u64,
}

impl Attempt<'_> {
    /// The structured errors are for consistent reads of which every window has an end, in the newest build.
    fn structured_end(&self) -> Option<i64> {
        let newest = self.engine.profile() == Profile::V5_0Changelog;
        self.request.end_ms.filter(|_| newest && self.wait && !self.request.unbounded)
    }

    async fn run(&self, now: TsoStatus) -> Result<(), SqlError> {
        if !now.calibrated {
            return Err(SqlError::detail("TSO timestamp is not calibrated, please check"));
        }
        if let Some(end_ms) = self.request.end_ms
            && end_ms > now.physical_ms
        {
            return Err(match self.structured_end() {
                Some(end_ms) => not_ready("END_AFTER_CURRENT_TSO", end_ms, now),
                None => SqlError::detail(format!(
                    "endTimestamp exceeds the maximum supported time for an INCR read: \
                     requestedEndTimestampMs={end_ms}, CURRENT_TSO_PHYSICAL_TIME={}",
                    now.physical_ms
                )),
            });
        }
        if let Some(end_ms) = self.structured_end()
            && now.recovering
            && now.committed_tso.is_some_and(|committed| end_ms > committed >> LOGICAL_BITS)
        {
            return Err(not_ready("TSO_RECOVERING", end_ms, now));
        }
        if !self.wait {
            return Ok(());
        }
        let deadline = Instant::now() + Duration::from_millis(self.timeout_ms);
        let watermark = self.engine.txns.watermark();
        for (db, tables) in &self.request.tables {
            let left = deadline.saturating_duration_since(Instant::now());
            if !self.engine.txns.wait_quiet(tables, watermark, left).await {
                return Err(self.wait_timeout(watermark, *db, tables));
            }
        }
        Ok(())
    }

    /// The refusal when transactions outlive the wait.
    fn wait_timeout(&self, watermark: i64, db: u64, tables: &BTreeSet<u64>) -> SqlError {
        if let Some(end_ms) = self.structured_end() {
            let now = self.engine.tso.status();
            let (code, name) = (5101, "ERR_INCR_VISIBLE_WAIT_TIMEOUT");
            return window_error(code, name, "VISIBLE_WAIT_TIMEOUT", end_ms, now, self.timeout_ms);
        }
        let tables: Vec<String> = tables.iter().map(u64::to_string).collect();
        SqlError::detail(format!(
            "timeout waiting previous transactions finish for time-based read, txnIdWatermark={watermark} dbId={db} \
             tableIds=[{}]",
            tables.join(", ")
        ))
    }

    fn forced(&self, failure: IncrFailure, now: TsoStatus) -> SqlError {
        let watermark = self.engine.txns.watermark();
        let none = BTreeSet::new();
        let (db, tables) = self.request.tables.iter().next().map_or((0, &none), |(db, tables)| (*db, tables));
        match failure {
            IncrFailure::WindowNotReady => match self.structured_end() {
                Some(end_ms) => not_ready("WINDOW_NOT_READY", end_ms, now),
                None => self.wait_timeout(watermark, db, tables),
            },
            IncrFailure::SynchronizeVersions => SqlError::detail(format!(
                "timeout synchronizing visible versions for time-based read, dbId={db} tableId={}",
                tables.first().copied().unwrap_or_default()
            )),
            IncrFailure::Watermark => SqlError::detail("get transaction id watermark failed for time-based read"),
            _ => self.wait_timeout(watermark, db, tables),
        }
    }
}

fn not_ready(reason: &str, end_ms: i64, now: TsoStatus) -> SqlError {
    window_error(5100, "ERR_INCR_WINDOW_NOT_READY", reason, end_ms, now, 0)
}

/// The structured text of the codes 5100 and 5101.
fn window_error(code: u16, name: &'static str, reason: &str, end_ms: i64, now: TsoStatus, timeout_ms: u64) -> SqlError {
    let committed = now.committed_tso.unwrap_or(now.current_tso);
    let mut error = SqlError::coded(
        code,
        format!(
            "{name}: reason={reason}, requestedEndTimestampMs={end_ms}, currentTSO={}, currentTSOPhysicalTimeMs={}, \
             committedTSO={committed}, committedTSOPhysicalTimeMs={}, retryAfterMs={RETRY_AFTER_MS}, \
             timeoutMs={timeout_ms}",
            now.current_tso,
            now.physical_ms,
            committed >> LOGICAL_BITS
        ),
    );
    error.name = Some(name);
    error
}
