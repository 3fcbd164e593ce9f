//! The timestamp oracle: `physical_ms << 18 | logical`, strictly increasing.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::engine::{Clock, Profile, TsoStatus};

/// Bits of the logical counter.
pub(crate) const LOGICAL_BITS: u32 = 18;
/// Largest logical counter.
pub(crate) const LOGICAL_MAX: i64 = (1 << LOGICAL_BITS) - 1;
/// How long after its window a new master counts commits of the old one as possible.
const RECOVERY_MARGIN_MS: i64 = 1000;

/// Allocates commit timestamps. The physical part follows the clock and never goes back.
pub struct Tso {
    clock: Arc<dyn Clock>,
    /// `tso_service_window_duration_ms`: how far ahead physical time is allocated.
    window_ms: i64,
    /// The build tells a committed TSO.
    tracks_commits: bool,
    state: Mutex<State>,
}

#[derive(Debug, Clone, Copy)]
struct State {
    physical_ms: i64,
    logical: i64,
    window_end_ms: i64,
    calibrated: bool,
    recovery: Option<Recovery>,
    /// What is shown lags by this much.
    shown_back_ms: i64,
}

/// After a change of the master.
#[derive(Debug, Clone, Copy)]
struct Recovery {
    until_ms: i64,
    /// The committed TSO that the old master left.
    committed: i64,
}

impl State {
    fn current(&self) -> i64 {
        (self.physical_ms << LOGICAL_BITS) | self.logical
    }
}

impl Tso {
    /// An oracle on a clock.
    pub fn new(clock: Arc<dyn Clock>, profile: Profile) -> Self {
        let physical_ms = clock.now_ms();
        let tracks_commits = profile == Profile::V5_0Changelog;
        let window_ms = if tracks_commits { 1000 } else { 5000 };
        let state = State {
            physical_ms,
            logical: 0,
            window_end_ms: physical_ms + window_ms,
            calibrated: true,
            recovery: None,
            shown_back_ms: 0,
        };
        Self { clock, window_ms, tracks_commits, state: Mutex::new(state) }
    }

    fn follow_clock(&self, state: &mut State) {
        let now = self.clock.now_ms();
        if now > state.physical_ms {
            state.physical_ms = now;
            state.logical = 0;
        }
        if state.physical_ms >= state.window_end_ms {
            state.window_end_ms = state.physical_ms + self.window_ms;
        }
        if state.recovery.is_some_and(|recovery| now >= recovery.until_ms) {
            state.recovery = None;
        }
    }

    /// A new TSO, greater than every one allocated or shown before.
    pub fn allocate(&self) -> i64 {
        let mut state = self.state.lock();
        self.follow_clock(&mut state);
        if state.logical >= LOGICAL_MAX {
            state.physical_ms += 1;
            state.logical = 0;
        }
        state.logical += 1;
        state.current()
    }

    /// The current TSO; does not allocate.
    pub fn status(&self) -> TsoStatus {
        let mut state = self.state.lock();
        self.follow_clock(&mut state);
        let committed = state.recovery.map_or(state.current(), |recovery| recovery.committed);
        TsoStatus {
            current_tso: state.current(),
            physical_ms: state.physical_ms,
            logical: state.logical,
            window_end_ms: state.window_end_ms,
            committed_tso: self.tracks_commits.then_some(committed),
            calibrated: state.calibrated,
            recovering: state.recovery.is_some(),
        }
    }

    /// The status as clients are told: what [`Tso::step_back`] asked for is taken off.
    pub fn shown(&self) -> TsoStatus {
        let mut status = self.status();
        let back = self.state.lock().shown_back_ms;
        status.physical_ms -= back;
        status.window_end_ms -= back;
        status.current_tso -= back << LOGICAL_BITS;
        status.committed_tso = status.committed_tso.map(|tso| tso - (back << LOGICAL_BITS));
        status
    }

    /// Shows a TSO that is `ms` behind, as a master does whose predecessor ran ahead. Allocation stays strictly increasing.
    pub fn step_back(&self, ms: i64) {
        self.state.lock().shown_back_ms = ms;
    }

    /// What a new master does: it starts behind the window of the old one and, where the build tells a committed TSO,
    /// recovers until no commit of the old master can be on its way.
    pub fn restart(&self) {
        let mut state = self.state.lock();
        // What the old master persisted last.
        let committed = state.recovery.map_or(state.current(), |recovery| recovery.committed);
        self.follow_clock(&mut state);
        let now = self.clock.now_ms();
        state.physical_ms = now.max(state.window_end_ms + 1);
        state.logical = 0;
        state.window_end_ms = state.physical_ms + self.window_ms;
        if self.tracks_commits {
            let until_ms = now + self.window_ms + RECOVERY_MARGIN_MS;
            state.recovery = Some(Recovery { until_ms, committed });
        }
    }

    /// Whether the service has its first window; without one no fence can be taken.
    pub fn set_calibrated(&self, calibrated: bool) {
        self.state.lock().calibrated = calibrated;
    }
}
