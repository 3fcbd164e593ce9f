//! The timestamp oracle: `physical_ms << 18 | logical`, strictly increasing.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::engine::{Clock, TsoStatus};

/// Bits of the logical counter.
pub(crate) const LOGICAL_BITS: u32 = 18;
/// Largest logical counter.
pub(crate) const LOGICAL_MAX: i64 = (1 << LOGICAL_BITS) - 1;
/// How far ahead a window of physical time is allocated.
const WINDOW_MS: i64 = 5000;

/// Allocates commit timestamps. The physical part follows the clock and never goes back.
pub struct Tso {
    clock: Arc<dyn Clock>,
    last: Mutex<Last>,
}

#[derive(Debug, Clone, Copy)]
struct Last {
    physical_ms: i64,
    logical: i64,
    window_end_ms: i64,
}

impl Tso {
    /// An oracle on a clock.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        let physical_ms = clock.now_ms();
        Self { clock, last: Mutex::new(Last { physical_ms, logical: 0, window_end_ms: physical_ms + WINDOW_MS }) }
    }

    fn follow_clock(&self, last: &mut Last) {
        let now = self.clock.now_ms();
        if now > last.physical_ms {
            last.physical_ms = now;
            last.logical = 0;
        }
        if last.physical_ms >= last.window_end_ms {
            last.window_end_ms = last.physical_ms + WINDOW_MS;
        }
    }

    /// A new TSO, greater than every one allocated or shown before.
    pub fn allocate(&self) -> i64 {
        let mut last = self.last.lock();
        self.follow_clock(&mut last);
        if last.logical >= LOGICAL_MAX {
            last.physical_ms += 1;
            last.logical = 0;
        }
        last.logical += 1;
        (last.physical_ms << LOGICAL_BITS) | last.logical
    }

    /// The current TSO; does not allocate.
    pub fn status(&self) -> TsoStatus {
        let mut last = self.last.lock();
        self.follow_clock(&mut last);
        TsoStatus {
            current_tso: (last.physical_ms << LOGICAL_BITS) | last.logical,
            physical_ms: last.physical_ms,
            logical: last.logical,
            window_end_ms: last.window_end_ms,
        }
    }
}
