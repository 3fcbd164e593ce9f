//! What source, sink and coordinator hand to each other.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use chrono::Utc;
use datafusion::execution::TaskContext;
use datafusion::physical_plan::{ExecutionPlan, SendableRecordBatchStream};
use serde::{Deserialize, Serialize};

use super::recovery::LoadKind;
use super::{CommitPermit, LabelSeries, Staged};
use crate::error::Result;
use crate::protocol::LabelState;

/// Number of an epoch, counted from 1 within one generation of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Epoch(pub u64);

impl Epoch {
    /// The first epoch of a generation.
    pub const FIRST: Epoch = Epoch(1);

    /// The epoch after this one.
    pub fn next(self) -> Self {
        Epoch(self.0 + 1)
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Number of a start of a job. A newer generation fences an older one; labels carry it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Generation(pub u64);

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A load that is durable in Doris and waits for its commit: everything needed to commit or abort it later, from
/// another process too.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Committable {
    /// Database of the target.
    pub db: String,
    /// Target table.
    pub table: String,
    /// Label of the load, the identity that survives a lost answer.
    pub label: String,
    /// Transaction id, when the server told it.
    pub txn_id: Option<i64>,
    /// `host:port` that took the load.
    pub host: String,
    /// Loads of one lane may hold changes of the same key: they are committed in their order.
    #[serde(default, skip_serializing_if = "is_first")]
    pub lane: u32,
    /// Its rows lie in an object store, from where the commit takes them into the table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub staged: Option<Staged>,
}

fn is_first(lane: &u32) -> bool {
    *lane == 0
}

impl Committable {
    /// How it becomes visible, now.
    pub fn kind(&self) -> LoadKind {
        self.staged.as_ref().map_or(LoadKind::TwoPhase, |staged| staged.kind(Utc::now().timestamp_millis()))
    }
}

/// Where a source stands: everything up to here was handed out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "phase")]
pub enum SourcePosition {
    /// The snapshot is not read, or in part; the changelog will start at `start_ms` once it is done.
    Snapshot {
        /// First instant of the changelog that follows, in epoch milliseconds; `None` before it is known.
        start_ms: Option<i64>,
        /// Tablets of the snapshot that were handed out whole.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        done_tablets: Vec<i64>,
    },
    /// Every change before `next_ms` (epoch milliseconds) was handed out.
    Changelog {
        /// Start of the next window, in epoch milliseconds.
        next_ms: i64,
    },
}

impl SourcePosition {
    /// Nothing was begun: where the source starts is still open.
    pub const START: SourcePosition = SourcePosition::Snapshot { start_ms: None, done_tablets: vec![] };

    /// Start of the next changelog window in epoch milliseconds, when the snapshot is behind.
    pub fn changelog_ms(&self) -> Option<i64> {
        match self {
            SourcePosition::Snapshot { .. } => None,
            SourcePosition::Changelog { next_ms } => Some(*next_ms),
        }
    }
}

/// What one epoch wrote.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WriteOutcome {
    /// Rows sent to the target.
    pub rows: u64,
    /// Pre-committed loads; empty when the epoch had no rows.
    pub committables: Vec<Committable>,
}

/// The source's side of the epoch protocol, implemented by the changelog's reader.
///
/// Calls come from one coordinator, one after the other: `begin_epoch`, `arm`, then the plan is executed and drained,
/// then `piece_done`, then `epoch_committed` or `epoch_aborted`.
#[async_trait]
pub trait EpochSource: Send + Sync + fmt::Debug {
    /// What is read, `db.table`.
    fn table(&self) -> String;
    /// What the source is, as facts for the checkpoint; without what may change between two starts.
    fn facts(&self) -> Vec<(String, String)>;
    /// FE nodes (`host:port`) of the cluster read, when they are known.
    fn nodes(&self) -> Vec<String> {
        vec![]
    }
    /// Goes to the position of a checkpoint, before the first epoch: it goes before every other rule for the start.
    /// `by_key`: the target replaces rows by their key, so rows may be read a second time.
    ///
    /// # Errors
    /// When the position cannot be gone on from.
    async fn restore(&self, position: &SourcePosition, by_key: bool) -> Result<()>;
    /// There is work that need not be waited for: an earlier epoch did not take all there was.
    fn has_backlog(&self) -> bool;
    /// Waits until somebody asks for what is not committed yet, or for a stop.
    async fn wanted(&self);
    /// Waits for [`Self::stop`].
    async fn stopped(&self);
    /// Starts an epoch at the last committed position; an earlier epoch's piece of work is forgotten.
    fn begin_epoch(&self, epoch: Epoch);
    /// Waits until there is a finite piece of work and fixes its end: the next `execute` of the source's node reads
    /// that piece and nothing else. False when there is none, because the source is stopped or finished.
    ///
    /// It runs before the plan is executed, so that whatever else the plan reads (the static side of a join) is read
    /// after the end of the piece was fixed, and is not older than the changes it meets.
    ///
    /// # Errors
    /// When the source cannot be asked how far it goes.
    async fn arm(&self) -> Result<bool>;
    /// The plan was read to its end, and with it the armed piece: the position moves behind it. Operators that need
    /// no row of the source (a join whose static side is empty) may not have read it at all.
    fn piece_done(&self);
    /// Position after the pieces done in the current epoch. It is known once something was armed: what was not at
    /// [`SourcePosition::START`] once never is again.
    fn position(&self) -> SourcePosition;
    /// The epoch is committed in the target.
    fn epoch_committed(&self, epoch: Epoch);
    /// The epoch was rolled back: rewind to the last committed position, so that the next epoch replays it.
    fn epoch_aborted(&self, epoch: Epoch);
    /// True when the source has nothing more to give, ever: the loop ends after the current epoch.
    fn finished(&self) -> bool;
    /// Graceful stop: ends a waiting `arm` now; an armed piece is read to its end; no further one is armed.
    fn stop(&self);
    /// The run of epochs ended well: what is still to be told to others is told now. The default has nothing to tell.
    async fn closed(&self) {}
    /// One line with the rows and outcome of an epoch for status displays; the default ignores it.
    fn epoch_written(&self, _epoch: Epoch, _rows: u64) {}
}

/// Finds the epoch sources in a plan. A function pointer, so that a sink node needs no knowledge of source nodes.
pub type SourceFinder = fn(&Arc<dyn ExecutionPlan>) -> Vec<Arc<dyn EpochSource>>;

/// What rolling back has found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AbortOutcome {
    /// Nothing of the loads is left.
    RolledBack,
    /// Every load had been committed before: the epoch is visible, whole.
    Committed,
    /// Some had been committed before, the others are gone.
    Torn {
        /// Labels of the loads whose rows are visible.
        visible: Vec<String>,
        /// Labels of the loads that are gone.
        gone: Vec<String>,
    },
}

/// The sink's side of the epoch protocol.
#[async_trait]
pub trait EpochSink: Send + Sync + fmt::Debug {
    /// Opens a run of epochs that counts from [`Epoch::FIRST`]; [`Self::end_run`] closes it.
    ///
    /// # Errors
    /// [`crate::error::Error::Checkpoint`] while another run is open: two runs would share sources and labels.
    fn begin_run(&self) -> Result<()>;

    /// Closes the run; called when it ended, failed or was dropped.
    fn end_run(&self);

    /// Names the job and its generation: labels of the run's epochs are made of them from now on, and are the same
    /// whenever the same epoch is written again.
    fn name_run(&self, job: &str, generation: Generation);

    /// What the sink is, as facts for the checkpoint; without what may change between two starts.
    fn facts(&self) -> Vec<(String, String)>;

    /// FE nodes (`host:port`) of the cluster written to, when they are known.
    fn nodes(&self) -> Vec<String> {
        vec![]
    }

    /// A row written twice is there once.
    fn replaces_by_key(&self) -> bool;

    /// The loads that an epoch of `job` may have left behind whose record does not tell ([`Self::labels`]): an epoch was
    /// one load then. All that is known of them is their labels.
    fn loads_of(&self, job: &str, generation: Generation, epoch: Epoch) -> Vec<Committable>;

    /// How the labels of an epoch's loads are made, for the checkpoint; without writers when nothing can be left behind.
    /// May change between two starts. `None` = as [`Self::loads_of`] tells.
    fn labels(&self) -> Option<LabelSeries> {
        None
    }

    /// What the server says about a load.
    ///
    /// # Errors
    /// When it cannot be asked.
    async fn label_state(&self, load: &Committable) -> Result<LabelState>;

    /// Whether the rows of a staged load are gone, of which the server says that they are not in the table.
    ///
    /// # Errors
    /// When the object store cannot be asked.
    async fn is_lost(&self, _load: &Committable) -> Result<bool> {
        Ok(false)
    }

    /// Writes one epoch's rows and pre-commits them. An epoch without rows opens no load.
    ///
    /// # Errors
    /// On any error nothing of the epoch stays behind that could become visible.
    async fn write_epoch(
        &self,
        epoch: Epoch,
        data: SendableRecordBatchStream,
        context: &Arc<TaskContext>,
    ) -> Result<WriteOutcome>;

    /// Makes pre-committed loads visible. Idempotent; a lost answer is resolved by the label's state.
    ///
    /// # Errors
    /// When a load is not known to be visible: its state tells what may be done, but for [`crate::error::Error::NothingRead`],
    /// after which the load's rows are not in the table whatever its state. Others may be visible.
    async fn commit(&self, committables: &[Committable], permit: &CommitPermit) -> Result<()>;

    /// Rolls pre-committed loads back. Idempotent. Finding some or all of them committed is an answer, not an error.
    ///
    /// # Errors
    /// When a load could not be rolled back.
    async fn abort(&self, committables: &[Committable]) -> Result<AbortOutcome>;

    /// Removes what loads of which the server says that they are visible have left elsewhere, as far as possible. The
    /// default is for loads that leave nothing.
    async fn tidy_up(&self, _committables: &[Committable]) {}

    /// Rolls pre-committed loads back, later and as far as possible: called when the job is dropped between the
    /// pre-commit and the commit, where nothing can be awaited. Must not block.
    fn abandon(&self, committables: Vec<Committable>);
}
