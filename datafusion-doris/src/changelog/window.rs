//! The algebra of changelog windows: pure, no clock, no I/O.
//!
//! A position is an instant in epoch milliseconds, never local text, so that neither the server's zone nor a clock
//! change night matters. The server takes window bounds as text of whole seconds in the time zone of the session,
//! which this crate sets to UTC.
//!
//! ```text
//! server's TSO    ──────p0───────────────p1──────────p2───▶
//! whole seconds   ─|──────────|──────────|──────────|─────▶
//! windows          [ T0 .. E1 )[ E1 .. .. E2 )
//! ```
//!
//! A window ends at the last whole second *strictly before* the server's current millisecond. Builds disagree whether
//! a window is `[start, end)` or `(start, end]` at millisecond grain. Here a window is `[start, end)`, always: the
//! server is asked for one second more at the start, and rows are cut by their commit timestamp. So no change is lost
//! or doubled even when another build serves the next window. Net changes (`min_delta`) cannot be cut; their windows end
//! at seconds in whose first millisecond nothing was committed, where both rules agree.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// Grain of the server's window bounds, in milliseconds.
const SECOND_MS: i64 = 1000;

/// How far the server's time may fall back before that is an error: an FE that has just become master, or a follower
/// that lags behind it, catches up within this time.
pub(super) const TOLERATED_STEP_BACK_MS: i64 = 60_000;

/// One read of the changelog: whole seconds, `start_ms < end_ms`, in epoch milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Window {
    /// Start, epoch milliseconds.
    pub start_ms: i64,
    /// End, epoch milliseconds.
    pub end_ms: i64,
}

/// The last whole second strictly before `now_ms`: nothing can be committed at or before it any more.
pub fn closed_second(now_ms: i64) -> i64 {
    (now_ms - 1).div_euclid(SECOND_MS) * SECOND_MS
}

/// The first whole second strictly after `now_ms`: a window that ends there holds everything committed up to
/// `now_ms`, under both bound rules.
pub fn covering_second(now_ms: i64) -> i64 {
    (now_ms.div_euclid(SECOND_MS) + 1) * SECOND_MS
}

/// Where the next window starts, and where reading ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct WindowPlanner {
    next_ms: i64,
    bound_ms: Option<i64>,
    /// Longest window, milliseconds.
    #[serde(default)]
    longest_ms: Option<i64>,
}

/// What to do at the server's current time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Read this window.
    Read(Window),
    /// No further second is closed yet, or the server's time is somewhat behind.
    Wait,
    /// The bound is reached.
    Done,
}

/// Milliseconds of server time, at least one, until a window may end at `target_ms`.
pub fn millis_until_closed(target_ms: i64, now_ms: i64) -> u64 {
    u64::try_from(target_ms.saturating_add(1).saturating_sub(now_ms)).unwrap_or(0).max(1)
}

impl WindowPlanner {
    /// Windows from `start_ms` (a whole second) on, for ever.
    pub fn new(start_ms: i64) -> Self {
        Self { next_ms: start_ms, bound_ms: None, longest_ms: None }
    }

    /// Ends at `bound_ms`, a whole second.
    pub fn with_bound(mut self, bound_ms: Option<i64>) -> Self {
        self.bound_ms = bound_ms;
        self
    }

    /// No window is longer than `longest_ms`, a number of whole seconds.
    pub fn with_longest(mut self, longest_ms: Option<i64>) -> Self {
        self.longest_ms = longest_ms.map(|longest| longest.max(SECOND_MS));
        self
    }

    /// True when a window could be read at the server's time `now_ms`.
    pub fn has_backlog(&self, now_ms: i64) -> bool {
        !self.is_done() && closed_second(now_ms) > self.next_ms
    }

    /// Everything before this instant was planned.
    pub fn next_ms(&self) -> i64 {
        self.next_ms
    }

    /// True when the bound is reached.
    pub fn is_done(&self) -> bool {
        self.bound_ms.is_some_and(|bound| self.next_ms >= bound)
    }

    /// The instant at which reading ends, when there is one.
    pub fn bound_ms(&self) -> Option<i64> {
        self.bound_ms
    }

    /// What to do when the server's clock shows `now_ms`. A time before the last window's end gives no window: the
    /// FE that answers may lag behind the one that answered before.
    ///
    /// # Errors
    /// [`Error::Changelog`] when the server's time is a minute or more before the last window's end.
    pub fn step(&self, table: &dyn std::fmt::Display, now_ms: i64) -> Result<Step> {
        if self.is_done() {
            return Ok(Step::Done);
        }
        if now_ms <= self.next_ms - TOLERATED_STEP_BACK_MS {
            return Err(Error::Changelog {
                table: table.to_string(),
                reason: format!(
                    "the server's timestamp moved backwards from {} to {} (epoch milliseconds): check which frontend \
                     is master and its clock, then start again",
                    self.next_ms, now_ms
                ),
            });
        }
        let closed = closed_second(now_ms);
        let end_ms = self.bound_ms.map_or(closed, |bound| closed.min(bound));
        let end_ms = self.longest_ms.map_or(end_ms, |longest| end_ms.min(self.next_ms.saturating_add(longest)));
        Ok(if end_ms > self.next_ms { Step::Read(Window { start_ms: self.next_ms, end_ms }) } else { Step::Wait })
    }

    /// The state after `window` was read.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] when the window does not start where the last one ended; the state is untouched then.
    pub fn advance(&mut self, window: Window) -> Result<()> {
        if window.start_ms != self.next_ms || window.end_ms <= window.start_ms {
            return Err(Error::Checkpoint {
                reason: format!("window {window:?} does not continue the changelog read up to {}", self.next_ms),
            });
        }
        self.next_ms = window.end_ms;
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Membership of an event under the two documented bound rules.
    fn holds(window: Window, event_ms: i64, start_inclusive: bool) -> bool {
        if start_inclusive {
            window.start_ms <= event_ms && event_ms < window.end_ms
        } else {
            window.start_ms < event_ms && event_ms <= window.end_ms
        }
    }

    #[test]
    fn end_is_strictly_before_the_current_millisecond() {
        assert_eq!(closed_second(10_000), 9_000);
        assert_eq!(closed_second(10_001), 10_000);
        assert_eq!(closed_second(10_999), 10_000);
        assert_eq!(covering_second(10_000), 11_000);
        assert_eq!(covering_second(10_999), 11_000);
    }

    #[test]
    fn server_time_that_moves_backwards_is_waited_for_up_to_a_minute() {
        let planner = WindowPlanner::new(120_000);
        for (now_ms, waits) in [(119_999, true), (61_000, true), (60_001, true), (60_000, false), (0, false)] {
            match planner.step(&"db.t", now_ms) {
                Ok(step) => assert!(waits && step == Step::Wait, "{now_ms}: {step:?}"),
                Err(error) => {
                    assert!(!waits, "{now_ms}: {error}");
                    let wanted = format!("moved backwards from 120000 to {now_ms}");
                    assert!(error.to_string().contains(&wanted) && error.to_string().contains("db.t"), "{error}");
                }
            }
        }
    }

    #[test]
    fn same_second_gives_no_window() {
        let planner = WindowPlanner::new(20_000);
        assert_eq!(planner.step(&"t", 20_400).unwrap(), Step::Wait);
        assert_eq!(planner.step(&"t", 21_000).unwrap(), Step::Wait);
        assert_eq!(planner.step(&"t", 21_001).unwrap(), Step::Read(Window { start_ms: 20_000, end_ms: 21_000 }));
        assert_eq!(millis_until_closed(21_000, 20_400), 601);
        assert_eq!(millis_until_closed(21_000, 99_000), 1);
    }

    #[test]
    fn bounded_read_ends_at_its_bound() {
        let mut planner = WindowPlanner::new(20_000).with_bound(Some(25_000));
        let Step::Read(window) = planner.step(&"t", 90_000).unwrap() else { panic!("expected a window") };
        assert_eq!(window, Window { start_ms: 20_000, end_ms: 25_000 });
        assert!(!planner.is_done());
        planner.advance(window).unwrap();
        assert!(planner.is_done());
        assert_eq!(planner.step(&"t", 90_000).unwrap(), Step::Done);
    }

    #[test]
    fn backlog_is_read_in_bounded_steps() {
        let mut planner = WindowPlanner::new(20_000).with_longest(Some(30_000)).with_bound(Some(95_000));
        let mut windows = Vec::new();
        while let Step::Read(window) = planner.step(&"t", 90_400).unwrap() {
            assert!(planner.has_backlog(90_400));
            windows.push((window.start_ms, window.end_ms));
            planner.advance(window).unwrap();
        }
        assert_eq!(windows, [(20_000, 50_000), (50_000, 80_000), (80_000, 90_000)]);
        assert!(!planner.has_backlog(90_400));
        assert_eq!(planner.step(&"t", 99_000).unwrap(), Step::Read(Window { start_ms: 90_000, end_ms: 95_000 }));
    }

    #[test]
    fn window_that_leaves_a_gap_or_overlaps_is_refused() {
        let mut planner = WindowPlanner::new(20_000);
        assert!(planner.advance(Window { start_ms: 21_000, end_ms: 22_000 }).is_err());
        assert!(planner.advance(Window { start_ms: 19_000, end_ms: 22_000 }).is_err());
        assert!(planner.advance(Window { start_ms: 20_000, end_ms: 20_000 }).is_err());
        assert_eq!(planner.next_ms(), 20_000);
    }

    proptest! {
        /// Whatever the polls, each event after the start is in exactly one window, under either rule, and no window
        /// that was read could still receive a commit.
        #[test]
        fn each_event_is_in_exactly_one_window(
            start in 0i64..5_000,
            polls in prop::collection::vec(0i64..4_500, 1..40),
            events in prop::collection::vec(0i64..180_000, 0..60),
            start_inclusive in any::<bool>(),
        ) {
            let first = start * SECOND_MS;
            let mut planner = WindowPlanner::new(first);
            let mut now = first;
            let mut windows = Vec::new();
            for pause in polls {
                now += pause;
                if let Step::Read(window) = planner.step(&"t", now).unwrap() {
                    prop_assert!(!holds(window, now, start_inclusive), "a commit now would be lost");
                    prop_assert_eq!(window.end_ms % SECOND_MS, 0);
                    planner.advance(window).unwrap();
                    windows.push(window);
                }
            }
            for event in events.into_iter().map(|offset| first + offset) {
                let times = windows.iter().filter(|w| holds(**w, event, start_inclusive)).count();
                let end = planner.next_ms();
                let inside = holds(Window { start_ms: first, end_ms: end }, event, start_inclusive);
                prop_assert_eq!(times, usize::from(inside));
            }
        }

        /// A bounded read covers everything committed up to the moment it started.
        #[test]
        fn bounded_read_covers_its_start(start_now in 1_000i64..10_000_000, late in 0i64..5_000, start_inclusive in any::<bool>()) {
            let bound = covering_second(start_now);
            let mut planner = WindowPlanner::new(closed_second(start_now)).with_bound(Some(bound));
            let mut now = start_now + late;
            let mut covered = false;
            while !planner.is_done() {
                match planner.step(&"t", now).unwrap() {
                    Step::Read(window) => {
                        covered |= holds(window, start_now, start_inclusive);
                        planner.advance(window).unwrap();
                    }
                    Step::Wait => now += i64::try_from(millis_until_closed(bound, now)).unwrap(),
                    Step::Done => prop_assert!(false, "the loop ended already"),
                }
            }
            prop_assert!(covered);
            prop_assert!(now > bound);
        }
    }
}
