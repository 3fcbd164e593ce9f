//! What a table remembers of its changes: the records of a window, the records behind a moment, their clean-up.
//!
//! The past of a merge-on-write table is told by its live rows and the before images of later changes, as on the server.
//! Superseded rowsets may therefore be compacted away at any time; change records may only go through [`Table::expire`].

use std::sync::Arc;

use super::Table;
use super::rowset::Snapshot;
use crate::changelog::ChangeBatch;

impl Table {
    /// Recorded changes with a TSO in `[from, to)`, in commit order.
    pub(crate) fn changes(&self, from: i64, to: i64) -> Vec<Arc<ChangeBatch>> {
        let state = self.shared.state.read();
        window(&state.changes, from, to)
    }

    /// The table at its current version and, of the same moment, the changes recorded with a TSO of at least `from`.
    pub(crate) fn snapshot_with_changes(&self, from: i64) -> (Snapshot, Vec<Arc<ChangeBatch>>) {
        let state = self.shared.state.read();
        (self.snapshot_of(&state), window(&state.changes, from, i64::MAX))
    }

    /// Forgets the change records with a TSO below `before`; the rows stay.
    pub(crate) fn expire(&self, before: i64) {
        let mut state = self.shared.state.write();
        if before > state.expired_before {
            state.expired_before = before;
            let keep = state.changes.partition_point(|batch| batch.tso < before);
            state.changes.drain(..keep);
        }
    }

    /// The TSO up to which change records were cleaned up.
    pub(crate) fn expired_before(&self) -> i64 {
        self.shared.state.read().expired_before
    }
}

fn window(changes: &[Arc<ChangeBatch>], from: i64, to: i64) -> Vec<Arc<ChangeBatch>> {
    let first = changes.partition_point(|batch| batch.tso < from);
    changes[first..].iter().take_while(|batch| batch.tso < to).cloned().collect()
}
