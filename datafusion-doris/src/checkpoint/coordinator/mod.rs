//! The epoch loop.

mod guards;
mod settle;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use datafusion::execution::TaskContext;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::execution_plan::reset_plan_states;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties, SendableRecordBatchStream};
use futures::StreamExt;
use futures::future::{join_all, select_all};
use futures::stream::FuturesUnordered;
use tokio::time::Instant;
use tracing::{debug, info, warn};

use self::guards::{KeptSides, PreCommitted, Run};
use super::chain::{Appended, Chain, ChainOptions, Draft};
use super::control::{Failures, RunControl};
use super::fingerprint::Fingerprint;
use super::record::{Leftover, SourceState};
use super::{
    AbortOutcome, CheckpointStore, CommitPermit, Committable, Epoch, EpochSink, EpochSource, SourcePosition,
    WriteOutcome,
};
use crate::error::{Error, Result};
use crate::failpoints;

/// Failures to reach the store before a job has begun: a location that is wrong is told soon.
const FIRST_ATTEMPTS: u32 = 2;

/// How long the other sources are waited for when one has work.
const GRACE: Duration = Duration::from_secs(1);

/// Executes every partition of `plan` and merges them by arrival; the order within a partition is kept.
///
/// One partition is executed as it is. More are read by one task each through a bounded channel; dropping the
/// stream aborts the tasks.
///
/// # Errors
/// Whatever `execute` of the plan returns.
pub fn merge_partitions(
    plan: &Arc<dyn ExecutionPlan>,
    context: &Arc<TaskContext>,
) -> Result<SendableRecordBatchStream> {
    let merged = match plan.output_partitioning().partition_count() {
        1 => plan.execute(0, Arc::clone(context)),
        _ => CoalescePartitionsExec::new(Arc::clone(plan)).execute(0, Arc::clone(context)),
    };
    Ok(merged?)
}

/// Where a run keeps its checkpoints.
#[derive(Debug, Clone)]
pub struct Checkpoints {
    /// The store of the job.
    pub store: Arc<dyn CheckpointStore>,
    /// Name of the job: part of its labels.
    pub job: String,
    /// The name was made of target and query.
    pub unnamed: bool,
    /// Records that are kept, at least 1.
    pub retain: usize,
    /// Go on from this savepoint instead of the newest checkpoint.
    pub savepoint: Option<String>,
}

/// What a program gives a run beside the session's settings: an extension of the session's configuration.
#[derive(Debug, Clone, Default)]
pub struct RunSetup {
    /// Keep checkpoints here, whatever `doris.checkpoint.dir` says.
    pub store: Option<Arc<dyn CheckpointStore>>,
    /// Go on from this savepoint.
    pub savepoint: Option<String>,
}

/// How a run of epochs goes on.
#[derive(Debug, Clone, Default)]
pub struct RunOptions {
    /// Durable checkpoints; `None`: positions are kept in memory, and the run is at-least-once.
    pub checkpoints: Option<Checkpoints>,
    /// Shortest time between the beginnings of two epochs, unless there is a backlog; `None`: the sources alone tell.
    pub interval: Option<Duration>,
    /// Failures in a row after which the run ends; `None`: any number, as long as they may pass.
    pub restart_attempts: Option<u32>,
    /// The plan as text, a fact of the job (see [`super::fingerprint::plan_text`]).
    pub query: String,
    /// Watches the run.
    pub control: Arc<RunControl>,
}

/// Runs a continuous insert: epoch after epoch, until every source is finished or stopped. Returns the rows written.
///
/// Each epoch first lets every source fix its piece of work ([`EpochSource::arm`]), then executes a fresh copy of
/// `input` (`reset_plan_states`), writes it through `sink`, and commits. What else the plan reads is therefore read
/// after the ends of the pieces were fixed: a row that a static table had before a change was made is there for it. Rows
/// that a [`super::StaticSideExec`] keeps are older, by its time to live at most.
///
/// With checkpoints the run begins by taking over from earlier ones, finishes what they had pre-committed and recorded,
/// and goes on from their last position. Each epoch with rows is recorded between its pre-commit and its commit. An
/// epoch without rows loads nothing, and is recorded only if the interval has passed: reading an empty range again is
/// harmless. A failure that may pass (a lost connection or node) is rolled back and tried again, after a pause.
///
/// Without checkpoints the commit follows the pre-commit at once.
///
/// # Errors
/// [`Error::Checkpoint`] while another run of the same sink is open, when another generation of the job took over, when
/// the job is not the one of its checkpoint, or when it cannot be told whether an epoch is visible. Otherwise the
/// first error that cannot pass: the epoch's loads are aborted, the sources rewind to the last committed position, and
/// nothing of the failed epoch is visible. An error after the epoch's checkpoint was written says so: the next start
/// commits it. (Without checkpoints a commit whose answer was lost for good leaves the epoch visible or not, whole.)
///
/// # Cancellation
/// Dropping the future drops the running epoch: the open load is cut, which the server answers with an abort, and
/// loads that are in no checkpoint are handed to [`EpochSink::abandon`].
pub async fn run(
    input: Arc<dyn ExecutionPlan>,
    sources: Vec<Arc<dyn EpochSource>>,
    sink: Arc<dyn EpochSink>,
    context: Arc<TaskContext>,
    options: RunOptions,
) -> Result<u64> {
    if sources.is_empty() {
        return Err(Error::Checkpoint {
            reason: format!(
                "the input of the continuous insert ({}) is unbounded but holds no doris changelog: only changelogs \
                 can be cut into epochs",
                input.name()
            ),
        });
    }
    let _run = Run::begin(sink.as_ref())?;
    let _kept = KeptSides(Arc::clone(&input));
    let failures = Failures::new(options.restart_attempts);
    let mut job = EpochLoop {
        input,
        sources,
        sink: Arc::clone(&sink),
        context,
        options,
        chain: None,
        restored: false,
        leftovers: vec![],
        epoch: Epoch::FIRST,
        failures,
        began: None,
        recorded: Instant::now(),
        rows: 0,
    };
    while let Err(error) = job.begin().await {
        if job.chain.is_none() && job.failures.in_row() >= FIRST_ATTEMPTS {
            return Err(error);
        }
        if job.wait_after(error).await? {
            // Stopped before it could begin.
            job.keep_savepoint().await?;
            return Ok(0);
        }
    }
    job.epochs().await
}

struct EpochLoop {
    input: Arc<dyn ExecutionPlan>,
    sources: Vec<Arc<dyn EpochSource>>,
    sink: Arc<dyn EpochSink>,
    context: Arc<TaskContext>,
    options: RunOptions,
    chain: Option<Chain>,
    /// The sources are where the chain says.
    restored: bool,
    /// Epochs of earlier generations whose loads could not be aborted yet.
    leftovers: Vec<Leftover>,
    epoch: Epoch,
    failures: Failures,
    /// When the last epoch began.
    began: Option<Instant>,
    /// When the last record was written.
    recorded: Instant,
    rows: u64,
}

impl EpochLoop {
    /// Takes over from earlier generations and goes where they were; again after a failure.
    async fn begin(&mut self) -> Result<()> {
        let Some(checkpoints) = self.options.checkpoints.clone() else { return Ok(()) };
        if self.chain.is_none() {
            let options = ChainOptions {
                job: checkpoints.job.clone(),
                retain: checkpoints.retain,
                fingerprint: self.fingerprint(),
                tables: self.sources.iter().map(|source| source.table()).collect(),
                labels: self.sink.labels(),
                note: None,
                nodes: self.nodes(),
                unnamed: checkpoints.unnamed,
            };
            let chain = Chain::claim(Arc::clone(&checkpoints.store), options).await?;
            let record = chain.record();
            info!(job = %checkpoints.job, generation = %record.generation, checkpoint = %chain.place(), "job starts");
            self.sink.name_run(&record.label_job(), record.generation);
            self.leftovers = record.to_abort.clone();
            self.chain = Some(chain);
            self.show();
        }
        self.recover(checkpoints.savepoint.as_deref()).await
    }

    fn fingerprint(&self) -> Fingerprint {
        let mut facts: Fingerprint = self.sink.facts().into_iter().map(|(k, v)| (format!("sink {k}"), v)).collect();
        for (index, source) in self.sources.iter().enumerate() {
            for (fact, value) in source.facts() {
                facts.insert(format!("source {} {fact}", index + 1), value);
            }
        }
        facts.insert("query", self.options.query.clone());
        facts
    }

    fn nodes(&self) -> BTreeMap<String, Vec<String>> {
        let of_source = |source: &Arc<dyn EpochSource>| (format!("source {}", source.table()), source.nodes());
        self.sources.iter().map(of_source).chain([("sink".to_string(), self.sink.nodes())]).collect()
    }

    fn positions(&self) -> Vec<SourceState> {
        let state = |source: &Arc<dyn EpochSource>| SourceState { table: source.table(), position: source.position() };
        self.sources.iter().map(state).collect()
    }

    async fn epochs(mut self) -> Result<u64> {
        loop {
            self.sources.iter().for_each(|source| source.begin_epoch(self.epoch));
            match self.run_epoch().await {
                Ok(Done { rows, counted, requested }) => {
                    // Nothing can fail here.
                    let _ = failpoints::request(failpoints::EPOCH_COMMITTED);
                    self.rows += rows;
                    for source in &self.sources {
                        source.epoch_written(self.epoch, rows);
                        source.epoch_committed(self.epoch);
                    }
                    debug!(epoch = %self.epoch, rows, "epoch committed");
                    self.failures.reset();
                    if counted {
                        self.epoch = self.epoch.next();
                    }
                    self.show();
                    self.options.control.serve(requested);
                }
                Err(error) => {
                    warn!(epoch = %self.epoch, %error, "epoch failed and was rolled back");
                    self.sources.iter().for_each(|source| source.epoch_aborted(self.epoch));
                    if self.chain.is_none() {
                        // The label of an epoch that is recorded nowhere is not used again.
                        self.epoch = self.epoch.next();
                    }
                    self.wait_after(error).await?;
                }
            }
            if self.finished() {
                self.keep_savepoint().await?;
                join_all(self.sources.iter().map(|source| source.closed())).await;
                return Ok(self.rows);
            }
        }
    }

    fn finished(&self) -> bool {
        self.sources.iter().all(|source| source.finished())
    }

    /// Waits before the next attempt; true when the run was stopped meanwhile.
    ///
    /// # Errors
    /// `error`, when there is no next attempt.
    async fn wait_after(&mut self, error: Error) -> Result<bool> {
        let pause = self.pause_after(error)?;
        tokio::select! {
            () = tokio::time::sleep(pause) => Ok(false),
            _ = select_all(self.sources.iter().map(|source| source.stopped())) => Ok(true),
        }
    }

    /// How long to wait before the next attempt.
    ///
    /// # Errors
    /// `error`, when there is none.
    fn pause_after(&mut self, error: Error) -> Result<Duration> {
        let Some(pause) = self.failures.next_pause(&error) else { return Err(error) };
        warn!(%error, ?pause, failures = self.failures.in_row(), "trying again after a pause");
        let failures = self.failures.in_row();
        self.options.control.update(|status| {
            status.failures = failures;
            status.last_error = Some(error.to_string());
        });
        Ok(pause)
    }

    /// Waits until the next epoch is due.
    async fn pace(&self) {
        let (Some(interval), Some(began)) = (self.options.interval, self.began) else { return };
        if self.sources.iter().any(|source| source.has_backlog()) {
            return;
        }
        tokio::select! {
            () = tokio::time::sleep_until(began + interval) => {}
            _ = select_all(self.sources.iter().map(|source| source.wanted())) => {}
            () = self.options.control.asked() => {}
        }
    }

    async fn run_epoch(&mut self) -> Result<Done> {
        self.pace().await;
        let requested = self.options.control.requested();
        self.began = Some(Instant::now());
        failpoints::request(failpoints::EPOCH_BEGIN)?;
        let armed = self.arm().await?;
        failpoints::request(failpoints::EPOCH_ARMED)?;
        self.pin().await?;
        failpoints::request(failpoints::EPOCH_PINNED)?;
        let before = self.positions();
        let mut pending = PreCommitted { sink: Arc::clone(&self.sink), committables: vec![] };
        let mut rows = 0;
        if armed {
            let fresh = reset_plan_states(Arc::clone(&self.input))?;
            let data = merge_partitions(&fresh, &self.context)?;
            let WriteOutcome { rows: written, committables } =
                self.sink.write_epoch(self.epoch, data, &self.context).await?;
            (rows, pending.committables) = (written, committables);
            failpoints::request(failpoints::EPOCH_WRITTEN)?;
            self.sources.iter().for_each(|source| source.piece_done());
        }
        if self.chain.is_none() {
            self.commit_at_once(&mut pending).await?;
            return Ok(Done { rows, counted: true, requested });
        }
        if !self.must_record(rows, &pending.committables, requested) {
            return Ok(Done { rows, counted: false, requested });
        }
        self.record_and_commit(rows, before, pending).await?;
        Ok(Done { rows, counted: true, requested })
    }

    /// Lets the sources fix their pieces of work. Those that have nothing soon after another one has are left out of this
    /// epoch: an idle table does not hold up the changes of another. False when no source has anything.
    async fn arm(&self) -> Result<bool> {
        let mut arming: FuturesUnordered<_> = self.sources.iter().map(|source| source.arm()).collect();
        while let Some(armed) = arming.next().await {
            if armed? {
                let rest = async {
                    while let Some(armed) = arming.next().await {
                        armed?;
                    }
                    Ok::<_, Error>(())
                };
                return match tokio::time::timeout(GRACE, rest).await {
                    Ok(rest) => rest.map(|()| true),
                    Err(_) => Ok(true),
                };
            }
        }
        Ok(false)
    }

    /// Records where the sources start, once that is known and before anything is read.
    async fn pin(&mut self) -> Result<()> {
        let Some(chain) = &self.chain else { return Ok(()) };
        let positions = self.positions();
        let open = |source: &SourceState| source.position == SourcePosition::START;
        let became_known = chain.record().sources.iter().zip(&positions).any(|(old, new)| open(old) && !open(new));
        if !became_known {
            return Ok(());
        }
        let draft = self.draft(chain.record().epoch, positions, None, vec![]);
        self.record(draft).await?;
        Ok(())
    }

    fn must_record(&self, rows: u64, committables: &[Committable], requested: u64) -> bool {
        if rows > 0 || !committables.is_empty() || requested > self.options.control.served() {
            return true;
        }
        let moved = self.chain.as_ref().is_some_and(|chain| chain.record().sources != self.positions());
        let due = self.options.interval.is_none_or(|interval| self.recorded.elapsed() >= interval);
        moved && (due || self.finished())
    }

    fn draft(
        &self,
        epoch: Epoch,
        sources: Vec<SourceState>,
        previous: Option<Vec<SourceState>>,
        committables: Vec<Committable>,
    ) -> Draft {
        Draft { epoch, sources, previous, committables, rows: None, to_abort: self.leftovers.clone() }
    }

    /// Makes an epoch durable, then visible.
    async fn record_and_commit(
        &mut self,
        rows: u64,
        before: Vec<SourceState>,
        mut pending: PreCommitted,
    ) -> Result<()> {
        let committables = pending.committables.clone();
        if committables.len() > 1 || committables.iter().any(|load| load.staged.is_some()) {
            // Dropped while the record is written, they are the next start's: aborting them one by one, while that start
            // commits them, could leave a part of the epoch. One alone is either visible or read again, unless its objects
            // can be removed one by one.
            pending.committables.clear();
        }
        let draft = self.draft(self.epoch, self.positions(), Some(before.clone()), committables.clone());
        let draft = Draft { rows: Some(rows), ..draft };
        let permit = match self.record(draft).await {
            Ok(permit) => permit,
            Err(NotRecorded { error, may_be_there: false }) => {
                // In no checkpoint: nobody may commit them.
                pending.committables.clear();
                if let Err(abort_error) = self.sink.abort(&committables).await {
                    warn!(epoch = %self.epoch, error = %abort_error, "loads that are in no checkpoint were not aborted");
                }
                return Err(error);
            }
            Err(NotRecorded { error, may_be_there: true }) => {
                // Whoever goes on finds the record, and commits them, or does not, and aborts them. Aborting them here, while
                // they are committed there, could leave a part of the epoch.
                pending.committables.clear();
                let labels: Vec<&str> = committables.iter().map(|load| load.label.as_str()).collect();
                warn!(epoch = %self.epoch, ?labels, "loads are left to the next start of the job: perhaps they are recorded");
                return Err(error);
            }
        };
        // From here on the record speaks for them.
        pending.committables.clear();
        match self.commit_recorded(&committables, permit).await {
            Ok(settle::Settled::Visible) => Ok(()),
            Err(error @ Error::NothingRead { .. }) => Err(self.go_back(self.epoch, before, error).await),
            Err(error) => Err(error),
            Ok(settle::Settled::RangeLost) => {
                let draft = self.draft(self.epoch, before, None, vec![]);
                self.record(draft).await?;
                let lost = committables.first().map(|load| load.label.clone()).unwrap_or_default();
                self.epoch = self.epoch.next();
                Err(settle::range_lost(lost))
            }
        }
    }

    /// Writes a record, for as long as it takes.
    ///
    /// # Errors
    /// That another generation took over, or the store's error when it is not tried any more.
    async fn record(&mut self, draft: Draft) -> Result<CommitPermit, NotRecorded> {
        let Some(record) = self.chain.as_ref().map(|chain| chain.next_record(draft)) else {
            return Ok(CommitPermit::without_checkpoints());
        };
        loop {
            let Some(chain) = self.chain.as_mut() else { return Ok(CommitPermit::without_checkpoints()) };
            match chain.append(&record).await {
                Ok(Appended::Recorded(permit)) => {
                    self.recorded = Instant::now();
                    self.show();
                    return Ok(permit);
                }
                Ok(Appended::Fenced { error, recorded }) => return Err(NotRecorded { error, may_be_there: recorded }),
                Err(error) => match self.pause_after(error) {
                    Ok(pause) => tokio::time::sleep(pause).await,
                    Err(error) => return Err(NotRecorded { error, may_be_there: true }),
                },
            }
        }
    }

    /// Without checkpoints: commits what was pre-committed, or rolls it back.
    async fn commit_at_once(&self, pending: &mut PreCommitted) -> Result<()> {
        if pending.committables.is_empty() {
            return Ok(());
        }
        let committed = self.sink.commit(&pending.committables, &CommitPermit::without_checkpoints()).await;
        let committables = std::mem::take(&mut pending.committables);
        let error = match committed {
            Ok(()) => return Ok(()),
            // There is nothing to take back, and the state of the label tells the opposite.
            Err(error @ Error::NothingRead { .. }) => return Err(error),
            Err(error) => error,
        };
        // What could not be committed must not become visible later.
        match self.sink.abort(&committables).await {
            Ok(AbortOutcome::Committed) => {
                debug!(epoch = %self.epoch, %error, "the commit had succeeded");
                Ok(())
            }
            Ok(AbortOutcome::RolledBack) => Err(error),
            Ok(AbortOutcome::Torn { visible, gone }) => Err(Error::Checkpoint {
                reason: format!(
                    "{error}; of one epoch {} is visible, and {} is lost: take the rows that are visible back before the \
                     job is begun again, unless its target replaces rows by their key; with doris.checkpoint.dir an epoch \
                     that was begun to be committed is finished",
                    visible.join(", "),
                    gone.join(", ")
                ),
            }),
            Err(abort_error) => {
                warn!(epoch = %self.epoch, error = %abort_error, "the epoch's loads were neither committed nor aborted");
                Err(error)
            }
        }
    }

    /// Keeps the savepoint that was asked for, for as long as it takes.
    async fn keep_savepoint(&mut self) -> Result<()> {
        let Some(name) = self.options.control.savepoint() else { return Ok(()) };
        loop {
            let Some(chain) = &self.chain else {
                let why = match &self.options.checkpoints {
                    Some(checkpoints) => format!("{} could not be read", checkpoints.store.location()),
                    None => "the job has no checkpoints (doris.checkpoint.dir)".to_string(),
                };
                let reason = format!("savepoint '{name}' cannot be kept: {why}");
                return Err(Error::Checkpoint { reason });
            };
            match chain.keep(&name).await {
                Ok(()) => {
                    info!(savepoint = name, checkpoint = %chain.place(), "savepoint kept");
                    return Ok(());
                }
                Err(error) => {
                    let pause = self.pause_after(error)?;
                    tokio::time::sleep(pause).await;
                }
            }
        }
    }

    /// Shows how the run stands.
    fn show(&self) {
        let failures = self.failures.in_row();
        self.options.control.update(|status| {
            status.failures = failures;
            if failures == 0 {
                status.last_error = None;
            }
            if let Some(chain) = &self.chain {
                status.generation = Some(chain.record().generation);
                status.checkpoint = Some(chain.seq());
            }
        });
    }
}

/// A record that is not known to be the newest one.
struct NotRecorded {
    error: Error,
    /// It may be there, and another generation may have read it.
    may_be_there: bool,
}

impl From<NotRecorded> for Error {
    fn from(not_recorded: NotRecorded) -> Self {
        not_recorded.error
    }
}

/// A finished epoch.
struct Done {
    rows: u64,
    /// Its number is used up.
    counted: bool,
    /// The last request for a checkpoint that was made before it began.
    requested: u64,
}
