//! The epoch loop.

use std::sync::Arc;

use datafusion::execution::TaskContext;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::execution_plan::reset_plan_states;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties, SendableRecordBatchStream};
use futures::future::{join_all, try_join_all};
use tracing::{debug, warn};

use super::{AbortOutcome, Committable, Epoch, EpochSink, EpochSource, WriteOutcome};
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
/// Each epoch first lets every source fix its piece of work ([`EpochSource::arm`]), then executes a fresh copy of
/// `input` (`reset_plan_states`), writes it through `sink`, and commits. What else the plan reads is therefore read
/// after the ends of the pieces were fixed: a row that a static table had before a change was made is there for it.
/// An epoch without rows loads and commits nothing. Here the commit follows the pre-commit at once, so a crash between the
/// two leaves pre-committed loads behind; a durable store will write position and committables in between.
///
/// # Errors
/// [`Error::Checkpoint`] while another run of the same sink is open. Otherwise the first error of source, operators,
/// sink or commit ends the loop: the epoch's loads are aborted, the sources rewind to the last committed position, and
/// nothing of the failed epoch is visible (unless the commit's answer was lost for good: then the epoch may be visible,
/// whole).
///
/// # Cancellation
/// Dropping the future drops the running epoch: the open load is cut, which the server answers with an abort, and
/// loads that wait for their commit are handed to [`EpochSink::abandon`].
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
    let _run = Run::begin(sink.as_ref())?;
    let mut rows = 0;
    let mut epoch = Epoch::FIRST;
    loop {
        sources.iter().for_each(|source| source.begin_epoch(epoch));
        match run_epoch(epoch, &input, &sources, sink.as_ref(), &context).await {
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
            join_all(sources.iter().map(|source| source.closed())).await;
            return Ok(rows);
        }
        epoch = epoch.next();
    }
}

async fn run_epoch(
    epoch: Epoch,
    input: &Arc<dyn ExecutionPlan>,
    sources: &[Arc<dyn EpochSource>],
    sink: &dyn EpochSink,
    context: &Arc<TaskContext>,
) -> Result<u64> {
    if !try_join_all(sources.iter().map(|source| source.arm())).await?.contains(&true) {
        return Ok(0);
    }
    let fresh = reset_plan_states(Arc::clone(input))?;
    let data = merge_partitions(&fresh, context)?;
    let WriteOutcome { rows, committables } = sink.write_epoch(epoch, data, context).await?;
    sources.iter().for_each(|source| source.piece_done());
    if committables.is_empty() {
        return Ok(rows);
    }
    let mut pending = PreCommitted { sink, committables };
    // Seam: a durable store writes {epoch, positions, committables} here, before anything becomes visible.
    let committed = sink.commit(&pending.committables).await;
    let committables = std::mem::take(&mut pending.committables);
    if let Err(error) = committed {
        // What could not be committed must not become visible later.
        match sink.abort(&committables).await {
            Ok(AbortOutcome::Committed) => debug!(%epoch, %error, "the commit had succeeded"),
            Ok(AbortOutcome::RolledBack) => return Err(error),
            Err(abort_error) => {
                warn!(%epoch, error = %abort_error, "the epoch's loads were neither committed nor aborted");
                return Err(error);
            }
        }
    }
    Ok(rows)
}

/// An open run of a sink.
struct Run<'a>(&'a dyn EpochSink);

impl<'a> Run<'a> {
    fn begin(sink: &'a dyn EpochSink) -> Result<Self> {
        sink.begin_run()?;
        Ok(Self(sink))
    }
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        self.0.end_run();
    }
}

/// Loads between pre-commit and commit.
struct PreCommitted<'a> {
    sink: &'a dyn EpochSink,
    committables: Vec<Committable>,
}

impl Drop for PreCommitted<'_> {
    fn drop(&mut self) {
        if !self.committables.is_empty() {
            self.sink.abandon(std::mem::take(&mut self.committables));
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use arrow::array::{Int64Array, RecordBatch};
    use async_trait::async_trait;
    use datafusion::catalog::memory::MemorySourceConfig;
    use futures::TryStreamExt;
    use parking_lot::Mutex;

    use super::super::SourcePosition;
    use super::*;

    /// Writes down what happens, and fails where it is told to.
    #[derive(Debug, Default)]
    struct Recorder {
        events: Mutex<Vec<String>>,
        fail_write: bool,
        fail_commit: bool,
        hang_commit: bool,
        /// An abort finds the load committed.
        was_committed: bool,
        /// Arms this many epochs, then nothing.
        armed_epochs: Option<u64>,
        finished: AtomicBool,
        epochs: u64,
    }

    impl Recorder {
        fn note(&self, event: impl Into<String>) {
            self.events.lock().push(event.into());
        }

        fn events(&self) -> String {
            self.events.lock().join(" ")
        }
    }

    #[async_trait]
    impl EpochSource for Recorder {
        fn begin_epoch(&self, epoch: Epoch) {
            self.note(format!("begin{epoch}"));
            self.finished.store(epoch.0 >= self.epochs, Ordering::Relaxed);
        }

        async fn arm(&self) -> Result<bool> {
            self.note("arm");
            let begun = self.events.lock().iter().filter(|event| event.starts_with("begin")).count() as u64;
            Ok(self.armed_epochs.is_none_or(|armed| begun <= armed))
        }

        fn piece_done(&self) {
            self.note("done");
        }

        fn position(&self) -> SourcePosition {
            SourcePosition::START
        }

        fn epoch_committed(&self, epoch: Epoch) {
            self.note(format!("committed{epoch}"));
        }

        fn epoch_aborted(&self, epoch: Epoch) {
            self.note(format!("aborted{epoch}"));
        }

        fn finished(&self) -> bool {
            self.finished.load(Ordering::Relaxed)
        }

        fn stop(&self) {}
    }

    fn failure() -> Error {
        Error::Checkpoint { reason: "told to fail".into() }
    }

    #[async_trait]
    impl EpochSink for Recorder {
        fn begin_run(&self) -> Result<()> {
            self.note("run");
            Ok(())
        }

        fn end_run(&self) {
            self.note("end");
        }

        async fn write_epoch(
            &self,
            epoch: Epoch,
            data: SendableRecordBatchStream,
            _: &Arc<TaskContext>,
        ) -> Result<WriteOutcome> {
            let batches: Vec<RecordBatch> = data.try_collect().await?;
            let rows = batches.iter().map(|batch| batch.num_rows() as u64).sum();
            self.note(format!("write{epoch}"));
            if self.fail_write {
                return Err(failure());
            }
            let load = Committable {
                db: "db".into(),
                table: "t".into(),
                label: format!("l{epoch}"),
                txn_id: None,
                host: "be:8040".into(),
            };
            Ok(WriteOutcome { rows, committables: if rows == 0 { vec![] } else { vec![load] } })
        }

        async fn commit(&self, committables: &[Committable]) -> Result<()> {
            self.note(format!("commit-{}", committables[0].label));
            if self.hang_commit {
                std::future::pending::<()>().await;
            }
            if self.fail_commit { Err(failure()) } else { Ok(()) }
        }

        async fn abort(&self, committables: &[Committable]) -> Result<AbortOutcome> {
            self.note(format!("abort-{}", committables[0].label));
            Ok(if self.was_committed { AbortOutcome::Committed } else { AbortOutcome::RolledBack })
        }

        fn abandon(&self, committables: Vec<Committable>) {
            self.note(format!("abandon-{}", committables[0].label));
        }
    }

    fn input(rows: i64) -> Arc<dyn ExecutionPlan> {
        let values = Int64Array::from_iter_values(0..rows);
        let batch = RecordBatch::try_from_iter([("n", Arc::new(values) as _)]).unwrap();
        MemorySourceConfig::try_new_exec(&[vec![batch.clone()], vec![batch.clone()]], batch.schema(), None).unwrap()
    }

    async fn run_recorded(recorder: Recorder, rows: i64) -> (Result<u64>, String) {
        let recorder = Arc::new(recorder);
        let (source, sink) = (Arc::clone(&recorder) as _, Arc::clone(&recorder) as _);
        let result = run(input(rows), vec![source], sink, Arc::new(TaskContext::default())).await;
        (result, recorder.events())
    }

    #[tokio::test]
    async fn epochs_are_written_and_committed_one_after_the_other() {
        let (rows, events) = run_recorded(Recorder { epochs: 2, ..Recorder::default() }, 3).await;
        assert_eq!(rows.unwrap(), 12, "two partitions of three rows, twice");
        assert_eq!(
            events,
            "run begin1 arm write1 done commit-l1 committed1 begin2 arm write2 done commit-l2 committed2 end"
        );
    }

    #[tokio::test]
    async fn epoch_without_rows_commits_nothing_in_the_target() {
        let (rows, events) = run_recorded(Recorder { epochs: 1, ..Recorder::default() }, 0).await;
        assert_eq!(rows.unwrap(), 0);
        assert_eq!(events, "run begin1 arm write1 done committed1 end");
    }

    #[tokio::test]
    async fn failed_epoch_is_rolled_back_and_ends_the_job() {
        let (error, events) = run_recorded(Recorder { fail_write: true, epochs: 9, ..Recorder::default() }, 1).await;
        assert!(error.is_err());
        assert_eq!(events, "run begin1 arm write1 aborted1 end");
        let (error, events) = run_recorded(Recorder { fail_commit: true, epochs: 9, ..Recorder::default() }, 1).await;
        assert!(error.is_err());
        assert_eq!(events, "run begin1 arm write1 done commit-l1 abort-l1 aborted1 end");
    }

    #[tokio::test]
    async fn commit_that_an_abort_finds_done_is_a_success() {
        let recorder = Recorder { fail_commit: true, was_committed: true, epochs: 1, ..Recorder::default() };
        let (rows, events) = run_recorded(recorder, 1).await;
        assert_eq!(rows.unwrap(), 2);
        assert_eq!(events, "run begin1 arm write1 done commit-l1 abort-l1 committed1 end");
    }

    #[tokio::test]
    async fn plan_is_not_executed_when_no_source_has_work() {
        let (rows, events) =
            run_recorded(Recorder { epochs: 2, armed_epochs: Some(1), ..Recorder::default() }, 1).await;
        assert_eq!(rows.unwrap(), 2);
        assert_eq!(events, "run begin1 arm write1 done commit-l1 committed1 begin2 arm committed2 end");
    }

    #[tokio::test]
    async fn dropped_job_abandons_what_it_has_pre_committed() {
        let recorder = Arc::new(Recorder { hang_commit: true, epochs: 9, ..Recorder::default() });
        let (source, sink) = (Arc::clone(&recorder) as _, Arc::clone(&recorder) as _);
        let job = tokio::spawn(run(input(1), vec![source], sink, Arc::new(TaskContext::default())));
        while !recorder.events().contains("commit-l1") {
            tokio::task::yield_now().await;
        }
        job.abort();
        assert!(job.await.unwrap_err().is_cancelled());
        assert_eq!(recorder.events(), "run begin1 arm write1 done commit-l1 abandon-l1 end");
    }

    #[tokio::test]
    async fn unbounded_input_without_a_changelog_is_refused() {
        let sink = Arc::new(Recorder::default());
        let error = run(input(1), vec![], sink, Arc::new(TaskContext::default())).await.unwrap_err();
        assert!(error.to_string().contains("no doris changelog"), "{error}");
    }
}
