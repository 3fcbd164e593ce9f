//! From the decision to commit to visible rows; the second step can be held back, as a slow publish does.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::{TxnState, TxnView};
use crate::engine::Engine;
use crate::error::SqlError;
use crate::storage::{Commit, LoadBuffer, Table};

/// How long the answer to a commit waits for those before it to be published (`publish_version_timeout_second`).
const PUBLISH_WAIT: Duration = Duration::from_secs(30);

/// Which publishing is held, and what waits for it.
#[derive(Debug, Default)]
pub(crate) struct Publisher(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    all: bool,
    tables: HashSet<u64>,
    txns: HashSet<i64>,
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

/// Whose publishing is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Held {
    /// That of every transaction.
    All,
    /// That of a table's transactions.
    Table(u64),
    /// That of one transaction.
    Txn(i64),
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
    fn holds(&self, pending: &Pending) -> bool {
        self.all || self.tables.contains(&pending.table.id()) || self.txns.contains(&pending.id)
    }

    /// Takes out what may be published now. Versions of a table follow each other: what stands behind a held transaction
    /// of its table waits too.
    fn ready(&mut self) -> Vec<Pending> {
        let mut out = Vec::new();
        let mut blocked = HashSet::new();
        for pending in std::mem::take(&mut self.pending) {
            if blocked.contains(&pending.table.id()) || self.holds(&pending) {
                blocked.insert(pending.table.id());
                self.pending.push_back(pending);
            } else {
                out.push(pending);
            }
        }
        out
    }
}

/// COMMITTED under one TSO, then VISIBLE, all rows at once; COMMITTED when publishing is held. `hold` is asked once the
/// transaction is COMMITTED whether its own publishing is held from now on.
pub(super) fn publish(
    engine: &Engine,
    id: i64,
    from: TxnState,
    hold: &dyn Fn(i64) -> bool,
) -> Result<TxnState, Refused> {
    let _order = engine.commit_lock.lock();
    let (table, buffer) = engine.txns.start_commit(id, from)?;
    let pending = Pending { id, table, buffer, tso: engine.tso.allocate() };
    {
        let mut waiting = engine.publisher.0.lock();
        if hold(id) {
            waiting.txns.insert(id);
        }
        let behind = waiting.pending.iter().any(|before| before.table.id() == pending.table.id());
        if behind || waiting.holds(&pending) {
            waiting.pending.push_back(pending);
            drop(waiting);
            engine.txns.announce();
            return Ok(TxnState::Committed);
        }
    }
    apply(engine, &pending).map_err(Refused::Apply)?;
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

/// Waits for a COMMITTED transaction that only stands behind others; the state it is in then. One that is held itself is
/// not waited for.
pub(crate) async fn published(engine: &Engine, id: i64) -> TxnState {
    let held = {
        let waiting = engine.publisher.0.lock();
        waiting.pending.iter().any(|pending| pending.id == id && waiting.holds(pending))
    };
    engine.txns.wait_published(id, if held { Duration::ZERO } else { PUBLISH_WAIT }).await
}

/// Holds publishing, or releases it; what waited becomes visible in the order of its commit.
pub(crate) fn set_held(engine: &Engine, whose: Held, held: bool) {
    let _order = engine.commit_lock.lock();
    let ready = {
        let mut waiting = engine.publisher.0.lock();
        match (whose, held) {
            (Held::All, true) => waiting.all = true,
            (Held::All, false) => {
                waiting.all = false;
                waiting.tables.clear();
                waiting.txns.clear();
            }
            (Held::Table(table), true) => {
                waiting.tables.insert(table);
            }
            (Held::Table(table), false) => {
                waiting.tables.remove(&table);
            }
            (Held::Txn(id), true) => {
                waiting.txns.insert(id);
            }
            (Held::Txn(id), false) => {
                waiting.txns.remove(&id);
            }
        }
        waiting.ready()
    };
    for pending in ready {
        // A table dropped meanwhile: its transaction is aborted with that reason.
        let _ = apply(engine, &pending);
    }
}
