//! Continuous inserts as background jobs.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use datafusion::arrow::array::AsArray;
use datafusion::arrow::datatypes::UInt64Type;
use datafusion::common::runtime::SpawnedTask;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::{DmlStatement, LogicalPlan, WriteOp};
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties, collect};
use datafusion::prelude::{SessionConfig, SessionContext};
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::changelog::window::covering_second;
use crate::changelog::{ChangelogStatus, DorisChangelogExec, changelogs};
use crate::checkpoint::chain::check_savepoint_name;
use crate::checkpoint::{CheckpointStore, RunControl, RunSetup, RunStatus, SourcePosition};
use crate::error::{Error, Result};
use crate::listed_sign;
use crate::options::JobOptions;
use crate::sink::{DorisSink, DorisSinkExec};

/// What a job is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobState {
    /// Epoch after epoch.
    Running,
    /// [`SyncJob::stop`] was called and the last epoch is committed.
    Stopped,
    /// An error ended it; [`SyncJob::wait`] tells which.
    Failed,
    /// The source has nothing more to give, and everything is committed.
    Finished,
}

impl fmt::Display for JobState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            JobState::Running => "running",
            JobState::Stopped => "stopped",
            JobState::Failed => "failed",
            JobState::Finished => "finished",
        })
    }
}

/// A job at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobStatus {
    /// What it is doing.
    pub state: JobState,
    /// Committed epochs, those without rows included.
    pub epochs: u64,
    /// Rows of the committed epochs.
    pub rows: u64,
    /// Position of each changelog after the last committed epoch, with the table's name.
    pub positions: Vec<(String, SourcePosition)>,
    /// Generation, newest checkpoint, open loads and failures in a row.
    pub run: RunStatus,
    /// Why it failed.
    pub error: Option<String>,
}

/// A running `INSERT INTO sink SELECT … FROM changelog`.
///
/// The job runs on the runtime that [`SyncJob::submit`] was called on. Its plan is made for one partition, without
/// round robin and joins of two streams, whatever the session's settings are; and like that of every continuous insert,
/// without dynamic filters.
///
/// # Cancellation
/// Dropping the job stops it hard: the running epoch is not committed, and its open load is aborted by the server.
///
/// # Delivery
/// Every epoch is visible whole or not at all. With checkpoints ([`JobOptions`], or the builder) every change is in the
/// target exactly once, whatever happens to the process. Without them a job that is started again starts at the beginning
/// of its mode. For UNIQUE KEY targets upserts by key make that harmless, except that rows deleted in the source while no
/// job ran stay in the target.
///
/// # Joins with static tables
/// A static table is read anew in every epoch, after the epoch's window of changes was fixed: a change meets the
/// static rows that were committed before it. Rows that come or change later do not touch what is mirrored already.
/// Under [`SyncJobBuilder::static_ttl`] the rows are kept in memory instead, and those that a change meets may be older
/// than it by so much.
/// Exactly-once holds for the changes, not for what they are joined with: an epoch that is replayed after a crash reads
/// the static table as it is then, and may give other rows than those that the lost attempt had (and not made visible).
#[derive(Debug)]
pub struct SyncJob {
    name: String,
    sources: Vec<DorisChangelogExec>,
    control: Arc<RunControl>,
    outcome: watch::Receiver<Option<Outcome>>,
    stopping: Mutex<bool>,
    /// Of the sink: aborts what a dropped job leaves open.
    sink: Option<Arc<DorisSink>>,
    /// Aborts the job when dropped.
    task: Mutex<Option<SpawnedTask<()>>>,
}

/// Makes a [`SyncJob`].
#[derive(Debug)]
#[must_use]
pub struct SyncJobBuilder {
    name: String,
    /// The session's setting goes before `name`.
    named_by_session: bool,
    /// Settings of the session, by key.
    options: Vec<(&'static str, String)>,
    setup: RunSetup,
}

impl SyncJobBuilder {
    fn option(mut self, key: &'static str, value: String) -> Self {
        self.options.push((key, value));
        self
    }

    /// Keeps checkpoints below a directory or URL, as `doris.checkpoint.dir`.
    pub fn checkpoint_dir(self, dir: impl Into<String>) -> Self {
        self.option("doris.checkpoint.dir", dir.into())
    }

    /// Keeps checkpoints in a store of one's own, which must be this job's alone.
    pub fn checkpoint_store(mut self, store: Arc<dyn CheckpointStore>) -> Self {
        self.setup.store = Some(store);
        self
    }

    /// Shortest time between two epochs, as `doris.checkpoint.interval`; 10 s with checkpoints.
    pub fn checkpoint_interval(self, interval: Duration) -> Self {
        self.option("doris.checkpoint.interval", format!("{}ms", interval.as_millis()))
    }

    /// Checkpoints that are kept, at least 1, as `doris.checkpoint.retain`; 3 by default.
    pub fn retain(self, checkpoints: usize) -> Self {
        self.option("doris.checkpoint.retain", checkpoints.to_string())
    }

    /// Failures in a row that are tried again, as `doris.job.restart_attempts`.
    pub fn restart_attempts(self, attempts: u32) -> Self {
        self.option("doris.job.restart_attempts", attempts.to_string())
    }

    /// How old the rows of a joined static table may be when an epoch begins, as `doris.job.static_ttl`; zero, the
    /// default: they are read anew in each epoch.
    pub fn static_ttl(self, ttl: Duration) -> Self {
        self.option("doris.job.static_ttl", format!("{}ms", ttl.as_millis()))
    }

    /// Goes on from a savepoint of this job instead of its newest checkpoint. What was written to the target since then
    /// stays there, and is written again; so it is at each start that asks for it: a program that is started again by a
    /// supervisor goes back once with `jobs reset` (or [`crate::checkpoint::admin::JobAdmin::reset`]) instead.
    pub fn from_savepoint(mut self, savepoint: impl Into<String>) -> Self {
        self.setup.savepoint = Some(savepoint.into());
        self
    }

    /// Plans `sql` and starts the job.
    ///
    /// # Errors
    /// As [`SyncJob::submit`]; [`Error::DataFusion`] for a setting that is out of its range.
    pub async fn submit(self, context: &SessionContext, sql: &str) -> Result<SyncJob> {
        let Self { name, named_by_session, options, setup } = self;
        let context = job_context(context, |config| {
            JobOptions::register(config.options_mut());
            if !named_by_session {
                config.options_mut().set("doris.job.name", &name)?;
            }
            options.iter().try_for_each(|(key, value)| config.options_mut().set(key, value))?;
            config.set_extension(Arc::new(setup));
            Ok(())
        })?;
        SyncJob::start(name, context, sql).await
    }
}

/// How a job ended: the rows written, or its error. Errors are shared, since several may wait.
type Outcome = std::result::Result<u64, Arc<Error>>;

impl SyncJob {
    /// Plans `sql` and starts it.
    ///
    /// # Errors
    /// [`Error::Unsupported`] when the statement is no INSERT over an unbounded changelog, or holds an operator that
    /// cannot run in epochs; planning errors.
    pub async fn submit(context: &SessionContext, name: impl Into<String>, sql: &str) -> Result<Self> {
        Self::builder(name).submit(context, sql).await
    }

    /// A job with settings of its own; what is not set is as in the session.
    pub fn builder(name: impl Into<String>) -> SyncJobBuilder {
        SyncJobBuilder { name: name.into(), named_by_session: false, options: vec![], setup: RunSetup::default() }
    }

    /// Plans a continuous INSERT and starts it as it would run as a plain statement: under the session's
    /// `doris.job.name`, else a name that is made of its target and plan.
    ///
    /// # Errors
    /// As [`SyncJob::submit`].
    pub async fn statement(context: &SessionContext, sql: &str) -> Result<Self> {
        let name = JobOptions::of(context.state().config_options()).job_name;
        let builder = Self::builder(name.unwrap_or_else(|| "insert".into()));
        SyncJobBuilder { named_by_session: true, ..builder }.submit(context, sql).await
    }

    async fn start(name: String, context: SessionContext, sql: &str) -> Result<Self> {
        let plan = listed_sign::plan(&context, sql).await?;
        if !matches!(&plan, LogicalPlan::Dml(DmlStatement { op: WriteOp::Insert(_), .. })) {
            return Err(Error::unsupported(format!("job {name}"), "a job is one INSERT INTO … SELECT statement"));
        }
        let plan = context.state().create_physical_plan(&plan).await?;
        let unbounded = plan.boundedness().is_unbounded();
        // A bounded changelog in a static subtree is read anew by every epoch and has no position.
        let sources: Vec<DorisChangelogExec> =
            changelogs(&plan).into_iter().filter(|source| source.properties().boundedness.is_unbounded()).collect();
        if !unbounded || sources.is_empty() {
            return Err(Error::unsupported(
                format!("job {name}"),
                "it would end by itself: a job reads an unbounded changelog; run this INSERT as a statement",
            ));
        }
        let mut sink = None;
        plan.apply(|node| {
            let found = node.downcast_ref::<DorisSinkExec>();
            sink = sink.take().or(found.map(|sink| (Arc::clone(sink.control()), Arc::clone(sink.sink()))));
            Ok(TreeNodeRecursion::Continue)
        })?;
        let (control, sink) = match sink {
            Some((control, sink)) => (control, Some(sink)),
            None => (Arc::default(), None),
        };
        let (sender, outcome) = watch::channel(None);
        let task_context = context.task_ctx();
        let job = name.clone();
        let task = SpawnedTask::spawn(async move {
            let result = collect(plan, task_context).await;
            let result = result.map(|batches| {
                let counts = batches.iter().filter_map(|batch| batch.columns().first());
                counts
                    .filter_map(|count| count.as_primitive_opt::<UInt64Type>())
                    .flat_map(|count| count.values().to_vec())
                    .sum()
            });
            if let Err(error) = &result {
                tracing::error!(job, %error, "job failed");
            }
            sender.send_replace(Some(result.map_err(|error| Arc::new(unwrap_external(error)))));
        });
        let (stopping, task) = (Mutex::new(false), Mutex::new(Some(task)));
        Ok(Self { name, sources, control, outcome, stopping, sink, task })
    }

    /// The job's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where the job stands now.
    pub fn status(&self) -> JobStatus {
        // Asked first: a task that ends between the two has left its outcome.
        let task_ended = self.outcome.has_changed().is_err();
        let outcome = self.outcome.borrow().clone();
        let state = match &outcome {
            None if task_ended => JobState::Failed,
            None => JobState::Running,
            Some(Err(_)) => JobState::Failed,
            Some(Ok(_)) if *self.stopping.lock() => JobState::Stopped,
            Some(Ok(_)) => JobState::Finished,
        };
        let statuses: Vec<(String, ChangelogStatus)> =
            self.sources.iter().map(|source| (source.table().to_string(), source.control().status())).collect();
        JobStatus {
            state,
            // All sources go through the same epochs, and the rows are those of the whole.
            epochs: statuses.iter().map(|(_, status)| status.epochs).max().unwrap_or_default(),
            rows: statuses.iter().map(|(_, status)| status.rows).max().unwrap_or_default(),
            positions: statuses.into_iter().map(|(table, status)| (table, status.position)).collect(),
            run: self.control.status(),
            error: match outcome {
                Some(Err(error)) => Some(error.to_string()),
                None if task_ended => Some(self.without_outcome().to_string()),
                _ => None,
            },
        }
    }

    /// Waits until every change that was committed in the source before this call is committed in the sink.
    ///
    /// # Errors
    /// The job's error, when it fails meanwhile; [`Error::Checkpoint`] when it is stopped before it has caught up.
    pub async fn caught_up(&self) -> Result<()> {
        for source in &self.sources {
            let wanted_ms = covering_second(source.server_now_ms().await?);
            source.control().hurry(wanted_ms);
            let mut outcome = self.outcome.clone();
            tokio::select! {
                () = source.control().committed_up_to(wanted_ms) => {}
                ended = outcome.wait_for(Option::is_some) => {
                    if source.control().has_committed(wanted_ms) {
                        continue;
                    }
                    // Read and released before the next await.
                    let ended = ended.ok().and_then(|outcome| outcome.clone());
                    return Err(self.ended_before(ended, "it had caught up"));
                }
            }
        }
        Ok(())
    }

    /// Stops gracefully: an idle wait ends now, a running epoch is finished and committed. Returns the rows written.
    ///
    /// # Errors
    /// The job's error, when it failed.
    pub async fn stop(&self) -> Result<u64> {
        *self.stopping.lock() = true;
        self.sources.iter().for_each(|source| source.control().stop());
        self.wait().await
    }

    /// Stops hard, as dropping the job does, and waits up to `limit` until the server has been told to abort what the
    /// running epoch loaded. Gives how the run stood: an epoch whose loads are in
    /// [`RunStatus::open_labels`] is recorded, and the next start of the job commits it; any other is read again.
    pub async fn abort(&self, limit: Duration) -> RunStatus {
        let task = self.task.lock().take();
        let mut outcome = self.outcome.clone();
        drop(task);
        let told = async {
            // The sender goes with the task, after the streams that it polled.
            while outcome.changed().await.is_ok() {}
            if let Some(sink) = &self.sink {
                sink.cut().await;
            }
        };
        if tokio::time::timeout(limit, told).await.is_err() {
            tracing::warn!(job = self.name, ?limit, "loads of an abandoned epoch are left to the server's timeout");
        }
        self.control.status()
    }

    /// Begins the next epoch now and waits until its checkpoint is written and its rows are visible.
    ///
    /// # Errors
    /// The job's error, when it fails meanwhile; [`Error::Checkpoint`] when it has no checkpoints, or is stopped before.
    pub async fn checkpoint_now(&self) -> Result<()> {
        for source in &self.sources {
            source.control().hurry(covering_second(source.server_now_ms().await?));
        }
        let request = self.control.request_checkpoint();
        let mut outcome = self.outcome.clone();
        tokio::select! {
            biased;
            () = self.control.checkpoint_written(request) => {}
            ended = outcome.wait_for(Option::is_some) => {
                let ended = ended.ok().and_then(|outcome| outcome.clone());
                return Err(self.ended_before(ended, "its next checkpoint"));
            }
        }
        match self.control.status().checkpoint {
            Some(_) => Ok(()),
            None => Err(self.without_checkpoints()),
        }
    }

    /// Stops as [`Self::stop`] does and keeps the last checkpoint under `savepoint`, until somebody removes it;
    /// [`SyncJobBuilder::from_savepoint`] goes on from there. Returns the rows written.
    ///
    /// # Errors
    /// The job's error, when it failed; [`Error::Checkpoint`] when it has no checkpoints, or for an odd name.
    pub async fn stop_with_savepoint(&self, savepoint: &str) -> Result<u64> {
        check_savepoint_name(savepoint)?;
        self.control.request_savepoint(savepoint.to_string());
        self.stop().await
    }

    /// What those are told who waited for `what` of a job that ended.
    fn ended_before(&self, ended: Option<Outcome>, what: &str) -> Error {
        match ended {
            Some(Err(error)) => shared(&self.name, &error),
            _ => Error::Checkpoint { reason: format!("job {} ended before {what}", self.name) },
        }
    }

    fn without_checkpoints(&self) -> Error {
        let reason = format!("job {} has no checkpoints: set doris.checkpoint.dir before it is started", self.name);
        Error::Checkpoint { reason }
    }

    /// Waits until the job ends. Returns the rows written.
    ///
    /// # Errors
    /// The job's error, when it failed.
    pub async fn wait(&self) -> Result<u64> {
        let mut outcome = self.outcome.clone();
        let ended = match outcome.wait_for(Option::is_some).await {
            Ok(ended) => ended.clone(),
            Err(_) => None,
        };
        match ended {
            Some(Ok(rows)) => Ok(rows),
            Some(Err(error)) => Err(shared(&self.name, &error)),
            None => Err(self.without_outcome()),
        }
    }

    fn without_outcome(&self) -> Error {
        let reason = format!(
            "job {} ended without an outcome: it was aborted, its task panicked, or its runtime was shut down",
            self.name
        );
        Error::Checkpoint { reason }
    }
}

/// The error of a job for one of those who wait for it.
fn shared(job: &str, error: &Arc<Error>) -> Error {
    Error::DataFusion(Box::new(
        datafusion::error::DataFusionError::External(Box::new(Arc::clone(error))).context(format!("job {job}")),
    ))
}

/// This crate's own error, when that is what DataFusion carries.
fn unwrap_external(error: datafusion::error::DataFusionError) -> Error {
    match error {
        datafusion::error::DataFusionError::External(inner) => match inner.downcast::<Error>() {
            Ok(ours) => *ours,
            Err(other) => Error::from(datafusion::error::DataFusionError::External(other)),
        },
        other => Error::from(other),
    }
}

/// A context over the same tables and functions, with the settings of a job.
fn job_context(
    context: &SessionContext,
    settings: impl FnOnce(&mut SessionConfig) -> datafusion::error::Result<()>,
) -> Result<SessionContext> {
    let state = context.state();
    let mut config = job_config(state.config().clone());
    settings(&mut config)?;
    let state =
        datafusion::execution::session_state::SessionStateBuilder::new_from_existing(state).with_config(config).build();
    Ok(SessionContext::new_with_state(state))
}

fn job_config(config: SessionConfig) -> SessionConfig {
    // The tables are those of the session: a default catalog made here would take the place of theirs.
    let mut config = config
        .with_create_default_catalog_and_schema(false)
        .with_target_partitions(1)
        .with_round_robin_repartition(false);
    // A join of two streams keeps everything it has seen.
    config.options_mut().optimizer.allow_symmetric_joins_without_pruning = false;
    config
}
