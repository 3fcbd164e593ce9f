//! The TSO clock.

use std::sync::Arc;

use super::{LOGICAL_BITS, LOGICAL_MAX, Tso};
use crate::engine::{ManualClock, Profile};

fn tso(now_ms: i64) -> (Arc<ManualClock>, Tso) {
    let clock = Arc::new(ManualClock::new(now_ms));
    (Arc::clone(&clock), Tso::new(clock, Profile::default()))
}

#[test]
fn timestamps_rise_strictly_even_when_the_clock_steps_back() {
    let (clock, tso) = tso(1000);
    let mut last = tso.allocate();
    assert_eq!(last, (1000 << LOGICAL_BITS) | 1);
    for step in [0, 5, -100, 0, 200] {
        clock.advance(step);
        let next = tso.allocate();
        assert!(next > last, "{step}");
        last = next;
    }
    assert_eq!(last >> LOGICAL_BITS, 1105);
}

#[test]
fn reading_allocates_nothing_and_later_commits_are_greater() {
    let (clock, tso) = tso(1000);
    let first = tso.allocate();
    assert_eq!(tso.status().current_tso, first);
    clock.advance(7);
    let shown = tso.status();
    assert_eq!((shown.physical_ms, shown.logical, shown.current_tso), (1007, 0, 1007 << LOGICAL_BITS));
    assert!(shown.window_end_ms > shown.physical_ms);
    assert!(tso.allocate() > shown.current_tso);
}

#[test]
fn a_full_counter_moves_to_the_next_millisecond() {
    let (_clock, tso) = tso(1000);
    for _ in 0..LOGICAL_MAX {
        tso.allocate();
    }
    assert_eq!(tso.status().logical, LOGICAL_MAX);
    assert_eq!(tso.allocate(), (1001 << LOGICAL_BITS) | 1);
}

#[test]
fn a_step_back_is_shown_but_never_allocated() {
    let (clock, tso) = tso(10_000);
    let last = tso.allocate();
    tso.step_back(3_000);
    assert_eq!((tso.shown().physical_ms, tso.status().physical_ms), (7_000, 10_000));
    clock.advance(1);
    assert!(tso.allocate() > last);
    tso.step_back(0);
    assert_eq!(tso.shown(), tso.status());
}

#[test]
fn a_new_master_starts_behind_the_window_of_the_old_one() {
    let clock = Arc::new(ManualClock::new(10_000));
    let tso = Tso::new(Arc::clone(&clock) as _, Profile::V5_0Changelog);
    let last = tso.allocate();
    let window_end = tso.status().window_end_ms;
    clock.advance(-2_000);
    tso.restart();
    let status = tso.status();
    assert_eq!(status.physical_ms, window_end + 1);
    assert_eq!((status.recovering, status.committed_tso), (true, Some(last)));
    assert!(tso.allocate() > last);
    clock.advance(2_000);
    assert_eq!(tso.status().committed_tso, Some(tso.status().current_tso));
    let older = Tso::new(clock, Profile::V5_0Binlog);
    older.restart();
    assert_eq!((older.status().recovering, older.status().committed_tso), (false, None));
}
