//! The epoch loop.

use std::sync::Arc;

use datafusion::execution::TaskContext;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::execution_plan::reset_plan_states;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties, SendableRecordBatchStream};
use tracing::{debug, warn};

use super::{Epoch, EpochSink, EpochSource};
use crate::error::{Error, Result};

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

/// Runs a continuous insert: epoch after epoch, until every source is finished or stopped. Returns the rows written.
///
/// Each epoch executes a fresh copy of `input` (`reset_plan_states`), writes it through `sink`, and commits. An epoch
/// without rows loads and commits nothing. Here the commit follows the pre-commit at once, so a crash between the
/// two leaves pre-committed loads behind; a durable store will write position and committables in between.
///
/// # Errors
/// The first error of source, operators or sink ends the loop: the epoch's loads are aborted, the sources rewind to
/// the last committed position, and nothing of the failed epoch is visible. An error of the commit itself is
/// returned without an abort, since the load may be visible already: its label tells.
///
/// # Cancellation
/// Dropping the future drops the running epoch: the open load is cut, which the server answers with an abort.
/// Loads that were pre-committed in this epoch stay until their timeout at the server, and are never visible.
pub async fn run(
    input: Arc<dyn ExecutionPlan>,
    sources: Vec<Arc<dyn EpochSource>>,
    sink: Arc<dyn EpochSink>,
    context: Arc<TaskContext>,
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
    let mut rows = 0;
    let mut epoch = Epoch::FIRST;
    loop {
        sources.iter().for_each(|source| source.begin_epoch(epoch));
        match run_epoch(epoch, &input, sink.as_ref(), &context).await {
            Ok(written) => {
                rows += written;
                for source in &sources {
                    source.epoch_written(epoch, written);
                    source.epoch_committed(epoch);
                }
                debug!(%epoch, rows = written, "epoch committed");
            }
            Err(error) => {
                warn!(%epoch, %error, "epoch failed and was rolled back");
                sources.iter().for_each(|source| source.epoch_aborted(epoch));
                return Err(error);
            }
        }
        if sources.iter().all(|source| source.finished()) {
            return Ok(rows);
        }
        epoch = epoch.next();
    }
}

async fn run_epoch(
    epoch: Epoch,
    input: &Arc<dyn ExecutionPlan>,
    sink: &dyn EpochSink,
    context: &Arc<TaskContext>,
) -> Result<u64> {
    let fresh = reset_plan_states(Arc::clone(input))?;
    let data = merge_partitions(&fresh, context)?;
    let outcome = sink.write_epoch(epoch, data, context).await?;
    // Seam: a durable store writes {epoch, positions, committables} here, before anything becomes visible.
    if !outcome.committables.is_empty() {
        sink.commit(&outcome.committables).await?;
    }
    Ok(outcome.rows)
}
