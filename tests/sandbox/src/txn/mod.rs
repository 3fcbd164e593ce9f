//! Load transactions: labels, states, two-phase commit and its texts.
//!
//! ```text
//! PREPARE ──finish(2PC)──> PRECOMMITTED ──commit──> COMMITTED ──> VISIBLE
//!    │  └──finish──────────────────────────────────────┘
//!    └────────────abort, timeout────> ABORTED <──abort, timeout── PRECOMMITTED
//! ```

mod load;
mod manager;
mod publish;
mod spec;
mod two_phase;

use std::fmt;

pub use load::LoadTxn;
pub(crate) use load::{abort_load, begin, ended, finish, leave, write, write_together};
pub use manager::TxnManager;
pub(crate) use manager::TxnView;
pub(crate) use publish::{Held, Publisher, published, set_held};
pub use spec::{
    LabelState, LoadOutcome, LoadSpec, MergeType, NewKeyBehavior, Overwrite, RefusedRow, TxnRef, UpdateMode,
};
pub(crate) use two_phase::{abort_two_phase, commit_two_phase, label_state, named};

/// State of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TxnState {
    /// No transaction has the label.
    Unknown,
    /// Rows are being written.
    Prepare,
    /// Written, waiting for the second phase.
    PreCommitted,
    /// Decided, not yet visible.
    Committed,
    /// Visible.
    Visible,
    /// Undone; the label is free.
    Aborted,
}

impl TxnState {
    /// Name as the server prints it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Unknown => "UNKNOWN",
            Self::Prepare => "PREPARE",
            Self::PreCommitted => "PRECOMMITTED",
            Self::Committed => "COMMITTED",
            Self::Visible => "VISIBLE",
            Self::Aborted => "ABORTED",
        }
    }

    /// `ExistingJobStatus` of a load whose label is taken.
    pub fn existing_job_status(self) -> &'static str {
        match self {
            Self::Prepare => "RUNNING",
            Self::PreCommitted => "PRECOMMITTED",
            Self::Committed | Self::Visible => "FINISHED",
            Self::Unknown => "UNKNOWN",
            Self::Aborted => "CANCELLED",
        }
    }

    /// PREPARE or PRECOMMITTED.
    pub fn is_running(self) -> bool {
        matches!(self, Self::Prepare | Self::PreCommitted)
    }
}

impl fmt::Display for TxnState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests;
