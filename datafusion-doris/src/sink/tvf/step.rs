//! What to do next about the statement of a staged load. Pure.

use crate::checkpoint::LoadKind;
use crate::protocol::LabelState;

/// The next step towards visible rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Run the statement, under the same label: the server takes a label once, so a statement that still comes to an end
    /// somewhere makes this one fail.
    Run,
    /// Ask again.
    Wait,
    /// The rows are in the table.
    Done,
    /// Whether it was ever run cannot be told any more.
    Forgotten,
}

/// Decides from what the server says about the label.
///
/// | label | step |
/// | --- | --- |
/// | UNKNOWN | run; forgotten if the server may have dropped the label by age |
/// | PREPARE, PRECOMMITTED | wait |
/// | COMMITTED, VISIBLE | done |
/// | ABORTED | run |
pub(super) fn towards_visible(kind: LoadKind, state: LabelState) -> Step {
    use LabelState::{Aborted, Committed, PreCommitted, Prepare, Unknown, Visible};
    match (state, kind) {
        (Unknown, LoadKind::Staged { remembered: true }) | (Aborted, _) => Step::Run,
        (Unknown, _) => Step::Forgotten,
        (Prepare | PreCommitted, _) => Step::Wait,
        (Committed | Visible, _) => Step::Done,
    }
}

/// The next step towards nothing being left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Undo {
    /// No statement runs or will run: remove the objects.
    Remove,
    /// Ask again.
    Wait,
    /// The rows are in the table.
    Committed,
}

/// Decides from what the server says about the label. `in_doubt` = this process has sent the statement and does not know
/// what became of it: it may still be begun, and must find its objects then, all of them.
pub(super) fn towards_nothing(in_doubt: bool, state: LabelState) -> Undo {
    use LabelState::{Aborted, Committed, PreCommitted, Prepare, Unknown, Visible};
    match state {
        Unknown if in_doubt => Undo::Wait,
        Unknown | Aborted => Undo::Remove,
        Prepare | PreCommitted => Undo::Wait,
        Committed | Visible => Undo::Committed,
    }
}

#[cfg(test)]
mod tests {
    use LabelState::{Aborted, Committed, PreCommitted, Prepare, Unknown, Visible};

    use super::*;

    const STATES: [LabelState; 6] = [Unknown, Prepare, PreCommitted, Committed, Visible, Aborted];

    #[test]
    fn every_row_of_the_tables() {
        let fresh = [Step::Run, Step::Wait, Step::Wait, Step::Done, Step::Done, Step::Run];
        let old = [Step::Forgotten, Step::Wait, Step::Wait, Step::Done, Step::Done, Step::Run];
        let sure = [Undo::Remove, Undo::Wait, Undo::Wait, Undo::Committed, Undo::Committed, Undo::Remove];
        let doubt = [Undo::Wait, Undo::Wait, Undo::Wait, Undo::Committed, Undo::Committed, Undo::Remove];
        for (at, state) in STATES.into_iter().enumerate() {
            assert_eq!(towards_visible(LoadKind::Staged { remembered: true }, state), fresh[at], "{state}");
            assert_eq!(towards_visible(LoadKind::Staged { remembered: false }, state), old[at], "{state}");
            assert_eq!(towards_nothing(false, state), sure[at], "{state}");
            assert_eq!(towards_nothing(true, state), doubt[at], "{state}");
        }
    }
}
