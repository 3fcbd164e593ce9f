//! State of a label, and what to do when the outcome of an operation is unknown.

use std::fmt;
use std::str::FromStr;

use super::Malformed;

/// State of the transaction behind a label, as `GET /api/{db}/get_load_state` tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LabelState {
    /// No such label (any more, or not yet at this FE).
    Unknown,
    /// Loading.
    Prepare,
    /// Waits for commit or abort.
    PreCommitted,
    /// Committed, visible soon.
    Committed,
    /// Visible.
    Visible,
    /// Aborted; the label is free again.
    Aborted,
}

impl LabelState {
    /// All states.
    pub const ALL: [LabelState; 6] = [
        LabelState::Unknown,
        LabelState::Prepare,
        LabelState::PreCommitted,
        LabelState::Committed,
        LabelState::Visible,
        LabelState::Aborted,
    ];

    /// No later state can follow.
    pub fn is_final(self) -> bool {
        matches!(self, LabelState::Visible | LabelState::Aborted)
    }
}

impl FromStr for LabelState {
    type Err = Malformed;

    fn from_str(text: &str) -> Result<Self, Malformed> {
        match text.trim().to_ascii_uppercase().as_str() {
            "UNKNOWN" => Ok(LabelState::Unknown),
            "PREPARE" => Ok(LabelState::Prepare),
            "PRECOMMITTED" => Ok(LabelState::PreCommitted),
            "COMMITTED" => Ok(LabelState::Committed),
            "VISIBLE" => Ok(LabelState::Visible),
            "ABORTED" | "CANCELLED" => Ok(LabelState::Aborted),
            _ => Err(Malformed(format!("label state '{text}'"))),
        }
    }
}

impl fmt::Display for LabelState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LabelState::Unknown => "UNKNOWN",
            LabelState::Prepare => "PREPARE",
            LabelState::PreCommitted => "PRECOMMITTED",
            LabelState::Committed => "COMMITTED",
            LabelState::Visible => "VISIBLE",
            LabelState::Aborted => "ABORTED",
        })
    }
}

/// The operation whose answer was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PendingOperation {
    /// A load without two-phase commit.
    Load,
    /// The first phase: a load that ends pre-committed.
    PreCommit,
    /// The second phase.
    Commit,
    /// Giving up a pre-committed load.
    Abort,
    /// Nothing of ours: somebody left a load under a label that is to be used.
    Leftover,
}

impl PendingOperation {
    /// All operations.
    pub const ALL: [PendingOperation; 5] = [
        PendingOperation::Load,
        PendingOperation::PreCommit,
        PendingOperation::Commit,
        PendingOperation::Abort,
        PendingOperation::Leftover,
    ];
}

impl fmt::Display for PendingOperation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PendingOperation::Load => "load",
            PendingOperation::PreCommit => "pre-commit",
            PendingOperation::Commit => "commit",
            PendingOperation::Abort => "abort",
            PendingOperation::Leftover => "leftover",
        })
    }
}

/// What to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NextStep {
    /// The operation was done.
    Done,
    /// Send the commit again.
    CommitAgain,
    /// Send the abort again.
    AbortAgain,
    /// Send the same rows again under the same label: nothing of them is in Doris, nor will be.
    Resend,
    /// Ask again, until the load's timeout has passed; then stop. Never resend: the load may still end either way.
    Wait,
    /// The state cannot follow from this operation, or the rows are lost: stop with an error, do not guess.
    Stop,
}

/// Decides from the label's state after the answer to `operation` was lost.
///
/// | state | load | pre-commit | commit | abort | leftover |
/// | --- | --- | --- | --- | --- | --- |
/// | UNKNOWN | wait | wait | wait | wait | resend |
/// | PREPARE | wait | wait | wait | wait | wait |
/// | PRECOMMITTED | stop | done | commit again | abort again | abort again |
/// | COMMITTED, VISIBLE | done | stop | done | stop | stop |
/// | ABORTED | resend | resend | stop | done | resend |
pub fn after_unknown_outcome(operation: PendingOperation, state: LabelState) -> NextStep {
    use LabelState::{Aborted, Committed, PreCommitted, Prepare, Unknown, Visible};
    use PendingOperation::{Abort, Commit, Leftover, Load, PreCommit};
    match (operation, state) {
        (Leftover, Unknown) => NextStep::Resend,
        (_, Unknown | Prepare) => NextStep::Wait,
        // Nobody asked for a second phase.
        (Load, PreCommitted) => NextStep::Stop,
        (PreCommit, PreCommitted) => NextStep::Done,
        (Commit, PreCommitted) => NextStep::CommitAgain,
        (Abort | Leftover, PreCommitted) => NextStep::AbortAgain,
        (Load | Commit, Committed | Visible) => NextStep::Done,
        // Committed by someone else, or before its checkpoint.
        (PreCommit | Abort | Leftover, Committed | Visible) => NextStep::Stop,
        (Load | PreCommit | Leftover, Aborted) => NextStep::Resend,
        // The pre-committed rows are gone: only whoever can replay them may go on.
        (Commit, Aborted) => NextStep::Stop,
        (Abort, Aborted) => NextStep::Done,
    }
}
