//! Continuous inserts as background jobs.

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::array::AsArray;
use datafusion::arrow::datatypes::UInt64Type;
use datafusion::common::runtime::SpawnedTask;
use datafusion::logical_expr::{DmlStatement, LogicalPlan, WriteOp};
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties, collect};
use datafusion::prelude::{SessionConfig, SessionContext};
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::changelog::window::covering_second;
use crate::changelog::{ChangelogStatus, DorisChangelogExec, changelogs};
use crate::checkpoint::SourcePosition;
use crate::error::{Error, Result};

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
    /// Why it failed.
    pub error: Option<String>,
}

/// A running `INSERT INTO sink SELECT … FROM changelog`.
///
/// The job runs on the runtime that [`SyncJob::submit`] was called on. Its plan is made for one partition, without
/// round robin, dynamic filters and joins of two streams, whatever the session's settings are.
///
/// # Cancellation
/// Dropping the job stops it hard: the running epoch is not committed, and its open load is aborted by the server.
///
/// # Delivery
/// Every epoch is visible whole or not at all. Positions are kept in memory only: a job that is started again starts
/// at the beginning of its mode. For UNIQUE KEY targets upserts by key make that harmless, except that rows deleted in
/// the source while no job ran stay in the target.
///
/// # Joins with static tables
/// A static table is read anew in every epoch, after the epoch's window of changes was fixed: a change meets the
/// static rows that were committed before it. Rows that come or change later do not touch what is mirrored already.
#[derive(Debug)]
pub struct SyncJob {
    name: String,
    sources: Vec<DorisChangelogExec>,
    outcome: watch::Receiver<Option<Outcome>>,
    stopping: Mutex<bool>,
    /// Aborts the job when dropped.
    _task: SpawnedTask<()>,
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
        let name = name.into();
        let context = job_context(context);
        let plan = context.state().create_logical_plan(sql).await?;
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
        Ok(Self { name, sources, outcome, stopping: Mutex::new(false), _task: task })
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
                    return Err(match ended {
                        Some(Err(error)) => shared(&self.name, &error),
                        _ => Error::Checkpoint { reason: format!("job {} ended before it had caught up", self.name) },
                    });
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
        let reason =
            format!("job {} ended without an outcome: its task panicked or its runtime was shut down", self.name);
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
fn job_context(context: &SessionContext) -> SessionContext {
    let state = context.state();
    let config = job_config(state.config().clone());
    let state =
        datafusion::execution::session_state::SessionStateBuilder::new_from_existing(state).with_config(config).build();
    SessionContext::new_with_state(state)
}

fn job_config(config: SessionConfig) -> SessionConfig {
    // The tables are those of the session: a default catalog made here would take the place of theirs.
    let mut config = config
        .with_create_default_catalog_and_schema(false)
        .with_target_partitions(1)
        .with_round_robin_repartition(false);
    let optimizer = &mut config.options_mut().optimizer;
    // The filter of one epoch's build side would be applied to the next epoch's rows.
    optimizer.enable_dynamic_filter_pushdown = false;
    // A join of two streams keeps everything it has seen.
    optimizer.allow_symmetric_joins_without_pruning = false;
    config
}
