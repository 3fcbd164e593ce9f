//! What becomes of loads whose epoch was interrupted: pure decisions, and the right to commit.

use crate::protocol::LabelState;

/// What to do about one load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RecoveryAction {
    /// It is in a checkpoint and waits: make it visible.
    Commit,
    /// It is as it should be.
    Nothing,
    /// Its rows are gone, proven by the server: read the epoch's range again, under another label.
    ReplayRange,
    /// It is in no checkpoint: drop it, its rows will be read again.
    Abort,
    /// What became of it cannot be told, or breaks the protocol: do not guess.
    Stop,
}

/// Decides from whether the load is in a durable checkpoint, and what the server says about its label.
///
/// | label | in a checkpoint | in none |
/// | --- | --- | --- |
/// | PRECOMMITTED | commit | abort |
/// | COMMITTED, VISIBLE | nothing | stop: committed before its checkpoint |
/// | ABORTED | replay the range | nothing |
/// | PREPARE | stop | abort |
/// | UNKNOWN | stop: forgotten, or not known yet | nothing |
pub fn recover(in_checkpoint: bool, observed: LabelState) -> RecoveryAction {
    use LabelState::{Aborted, Committed, PreCommitted, Prepare, Unknown, Visible};
    match (in_checkpoint, observed) {
        (true, PreCommitted) => RecoveryAction::Commit,
        (true, Committed | Visible) => RecoveryAction::Nothing,
        (true, Aborted) => RecoveryAction::ReplayRange,
        (true, Prepare | Unknown) => RecoveryAction::Stop,
        (false, Prepare | PreCommitted) => RecoveryAction::Abort,
        (false, Aborted | Unknown) => RecoveryAction::Nothing,
        (false, Committed | Visible) => RecoveryAction::Stop,
    }
}

/// What to do about an epoch, all of whose loads are in a checkpoint. Loads are given by their index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EpochDecision {
    /// Commit these (none: all are visible already).
    Commit(Vec<usize>),
    /// Drop these, then read the epoch's range again.
    Replay {
        /// Loads that wait, and must not be committed any more.
        abort: Vec<usize>,
    },
    /// These cannot be told.
    Stop(Vec<usize>),
    /// Some are visible and the rows of others are gone: reading again is right only where rows replace each other by
    /// key.
    Torn {
        /// Visible.
        visible: Vec<usize>,
        /// Gone.
        gone: Vec<usize>,
        /// Waiting for their commit.
        waiting: Vec<usize>,
    },
}

/// Decides about all loads of an epoch at once: they become visible together or not at all.
pub fn decide(states: &[LabelState]) -> EpochDecision {
    let with = |wanted: RecoveryAction| -> Vec<usize> {
        states.iter().enumerate().filter(|(_, state)| recover(true, **state) == wanted).map(|(i, _)| i).collect()
    };
    let unclear = with(RecoveryAction::Stop);
    if !unclear.is_empty() {
        return EpochDecision::Stop(unclear);
    }
    let (waiting, gone) = (with(RecoveryAction::Commit), with(RecoveryAction::ReplayRange));
    if gone.is_empty() {
        return EpochDecision::Commit(waiting);
    }
    match with(RecoveryAction::Nothing) {
        visible if visible.is_empty() => EpochDecision::Replay { abort: waiting },
        visible => EpochDecision::Torn { visible, gone, waiting },
    }
}

/// The right to commit loads. It comes from a durable checkpoint that names them, and [`super::EpochSink::commit`]
/// cannot be called without it.
#[derive(Debug)]
pub struct CommitPermit(());

impl CommitPermit {
    /// The loads are in a record that is durable.
    pub(super) fn recorded() -> Self {
        Self(())
    }

    /// The run keeps no checkpoints: it is at-least-once, and commits what it has pre-committed.
    pub(super) fn without_checkpoints() -> Self {
        Self(())
    }

    #[cfg(test)]
    pub(crate) fn for_test() -> Self {
        Self(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use LabelState::{Aborted, Committed, PreCommitted, Prepare, Unknown, Visible};

    use super::*;

    const STATES: [LabelState; 6] = [Unknown, Prepare, PreCommitted, Committed, Visible, Aborted];

    #[test]
    fn every_row_of_the_table() {
        use RecoveryAction::{Abort, Commit, Nothing, ReplayRange, Stop};
        let in_checkpoint = [Stop, Stop, Commit, Nothing, Nothing, ReplayRange];
        let in_none = [Nothing, Abort, Abort, Stop, Stop, Nothing];
        for ((state, recorded), unrecorded) in STATES.into_iter().zip(in_checkpoint).zip(in_none) {
            assert_eq!(recover(true, state), recorded, "{state} in a checkpoint");
            assert_eq!(recover(false, state), unrecorded, "{state} in none");
        }
    }

    #[test]
    fn epoch_is_decided_as_a_whole_for_every_pair_of_states() {
        for first in STATES {
            for second in STATES {
                let decision = decide(&[first, second]);
                let is = |wanted: &[LabelState]| [first, second].map(|state| wanted.contains(&state));
                let pick = |marks: [bool; 2]| (0..2).filter(|i| marks[*i]).collect::<Vec<usize>>();
                let unclear = is(&[Unknown, Prepare]);
                let visible = is(&[Committed, Visible]);
                let (waiting, gone) = (is(&[PreCommitted]), is(&[Aborted]));
                let expected = if unclear.contains(&true) {
                    EpochDecision::Stop(pick(unclear))
                } else if !gone.contains(&true) {
                    EpochDecision::Commit(pick(waiting))
                } else if visible.contains(&true) {
                    EpochDecision::Torn { visible: pick(visible), gone: pick(gone), waiting: pick(waiting) }
                } else {
                    EpochDecision::Replay { abort: pick(waiting) }
                };
                assert_eq!(decision, expected, "{first} and {second}");
            }
        }
        assert_eq!(decide(&[]), EpochDecision::Commit(vec![]));
    }
}
