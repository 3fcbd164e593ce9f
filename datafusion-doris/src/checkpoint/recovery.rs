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

/// How a load becomes visible.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LoadKind {
    /// Its rows are in Doris, pre-committed, and a commit makes them visible.
    TwoPhase,
    /// Its rows lie in an object store, and one statement takes them into the table, under the label. The server takes a
    /// label once, so the statement may be run again as long as the label's state is not known.
    Staged {
        /// The server cannot have forgotten the label yet.
        remembered: bool,
    },
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
///
/// Of a load whose rows are staged:
///
/// | label | in a checkpoint | in none |
/// | --- | --- | --- |
/// | UNKNOWN | commit: not run yet; stop if it may be forgotten | abort: remove the objects |
/// | PREPARE, PRECOMMITTED | commit: it runs, which is waited for | abort: wait for its end, remove the objects |
/// | COMMITTED, VISIBLE | nothing | stop: committed before its checkpoint |
/// | ABORTED | commit: run it again under its label | abort: remove the objects |
pub fn recover(kind: LoadKind, in_checkpoint: bool, observed: LabelState) -> RecoveryAction {
    use LabelState::{Aborted, Committed, PreCommitted, Prepare, Unknown, Visible};
    match (in_checkpoint, observed, kind) {
        (true, Committed | Visible, _) => RecoveryAction::Nothing,
        (false, Committed | Visible, _) => RecoveryAction::Stop,
        (true, Unknown, LoadKind::Staged { remembered: false }) => RecoveryAction::Stop,
        (true, _, LoadKind::Staged { .. }) => RecoveryAction::Commit,
        (false, _, LoadKind::Staged { .. }) => RecoveryAction::Abort,
        (true, PreCommitted, LoadKind::TwoPhase) => RecoveryAction::Commit,
        (true, Aborted, LoadKind::TwoPhase) => RecoveryAction::ReplayRange,
        (true, Prepare | Unknown, LoadKind::TwoPhase) => RecoveryAction::Stop,
        (false, Prepare | PreCommitted, LoadKind::TwoPhase) => RecoveryAction::Abort,
        (false, Aborted | Unknown, LoadKind::TwoPhase) => RecoveryAction::Nothing,
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
pub fn decide(loads: &[(LoadKind, LabelState)]) -> EpochDecision {
    let with = |wanted: RecoveryAction| -> Vec<usize> {
        let is = |(kind, state): &(LoadKind, LabelState)| recover(*kind, true, *state) == wanted;
        loads.iter().enumerate().filter(|(_, load)| is(load)).map(|(i, _)| i).collect()
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
            assert_eq!(recover(LoadKind::TwoPhase, true, state), recorded, "{state} in a checkpoint");
            assert_eq!(recover(LoadKind::TwoPhase, false, state), unrecorded, "{state} in none");
        }
    }

    #[test]
    fn every_row_of_the_table_of_staged_loads() {
        use RecoveryAction::{Abort, Commit, Nothing, Stop};
        let in_none = [Abort, Abort, Abort, Stop, Stop, Abort];
        for (remembered, unknown) in [(true, Commit), (false, Stop)] {
            let in_checkpoint = [unknown, Commit, Commit, Nothing, Nothing, Commit];
            for ((state, recorded), unrecorded) in STATES.into_iter().zip(in_checkpoint).zip(in_none) {
                let kind = LoadKind::Staged { remembered };
                assert_eq!(recover(kind, true, state), recorded, "{state} in a checkpoint, {remembered}");
                assert_eq!(recover(kind, false, state), unrecorded, "{state} in none, {remembered}");
            }
        }
    }

    #[test]
    fn epoch_is_decided_as_a_whole_for_every_pair_of_states() {
        for first in STATES {
            for second in STATES {
                let decision = decide(&[first, second].map(|state| (LoadKind::TwoPhase, state)));
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
