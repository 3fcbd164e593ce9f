//! From the decision to commit to visible rows; the second step can be held back, as a slow publish does.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;

use super::{TxnState, TxnView};
use crate::engine::Engine;
use crate::error::SqlError;
use crate::storage::{Commit, LoadBuffer, Table};

/// Which publishing is held, and what waits for it.
#[derive(Debug, Default)]
pub(crate) struct Publisher(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    all: bool,
    tables: HashSet<u64>,
    /// In the order of their commit.
    pending: VecDeque<Pending>,
}

#[derive(Debug)]
struct Pending {
    id: i64,
    table: Arc<Table>,
    buffer: Arc<LoadBuffer>,
    tso: i64,
}

/// Why a commit did not happen.
pub(super) enum Refused {
    /// The transaction was not in the state it had to be in.
    State(Box<TxnView>),
    /// A partial update was planned with another schema; the transaction stays as it is.
    Schema(SqlError),
    /// The rows could not be applied; the transaction is aborted.
    Apply(SqlError),
}

impl Waiting {
    fn holds(&self, table: u64) -> bool {
        self.all || self.tables.contains(&table)
    }

    /// Takes out what may be published now. A transaction behind a held one of its table waits too.
    fn ready(&mut self) -> Vec<Pending> {
        let mut out = Vec::new();
        for pending in std::mem::take(&mut self.pending) {
            if self.holds(pending.table.id()) {
                self.pending.push_back(pending);
            } else {
                out.push(pending);
            }
        }
        out
    }
}

/// COMMITTED under one TSO, then VISIBLE, all rows at once; COMMITTED when publishing is held.
pub(super) fn publish(engine: &Engine, id: i64, from: TxnState) -> Result<TxnState, Refused> {
    let _order = engine.commit_lock.lock();
    let (table, buffer) = engine.txns.start_commit(id, from)?;
    let tso = engine.tso.allocate();
    {
        let mut waiting = engine.publisher.0.lock();
        if waiting.holds(table.id()) {
            waiting.pending.push_back(Pending { id, table, buffer, tso });
            return Ok(TxnState::Committed);
        }
    }
    apply(engine, &Pending { id, table, buffer, tso }).map_err(Refused::Apply)?;
    Ok(TxnState::Visible)
}

fn apply(engine: &Engine, pending: &Pending) -> Result<(), SqlError> {
    let config = engine.config();
    let commit = Commit {
        tso: pending.tso,
        now_ms: config.clock.now_ms(),
        compaction: config.auto_compaction,
        first_id: engine.catalog.next_ids(pending.buffer.replacement_ids()),
    };
    let outcome = pending.table.apply(&pending.buffer, commit);
    engine.txns.end_commit(pending.id, outcome.as_ref().copied());
    outcome
}

/// Holds publishing of a table (`None`: of all), or releases it; what waited becomes visible in the order of its commit.
pub(crate) fn set_held(engine: &Engine, table: Option<u64>, held: bool) {
    let _order = engine.commit_lock.lock();
    let ready = {
        let mut waiting = engine.publisher.0.lock();
        match (table, held) {
            (None, true) => waiting.all = true,
            (None, false) => {
                waiting.all = false;
                waiting.tables.clear();
            }
            (Some(table), true) => {
                waiting.tables.insert(table);
            }
            (Some(table), false) => {
                waiting.tables.remove(&table);
            }
        }
        waiting.ready()
    };
    for pending in ready {
        // A table dropped meanwhile: its transaction is aborted with that reason.
        let _ = apply(engine, &pending);
    }
}
