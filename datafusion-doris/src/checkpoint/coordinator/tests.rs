mod crashes;

use std::sync::atomic::{AtomicBool, Ordering};

use arrow::array::{Int64Array, RecordBatch};
use async_trait::async_trait;
use datafusion::catalog::memory::MemorySourceConfig;
use futures::TryStreamExt;
use parking_lot::Mutex;

use super::*;
use crate::checkpoint::Generation;
use crate::checkpoint::testing::MemoryStore;
use crate::protocol::LabelState;

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
    fn table(&self) -> String {
        "db.source".into()
    }

    fn facts(&self) -> Vec<(String, String)> {
        vec![]
    }

    async fn restore(&self, position: &SourcePosition, _: bool) -> Result<()> {
        self.note(if *position == SourcePosition::START { "restore-start" } else { "restore" });
        Ok(())
    }

    fn has_backlog(&self) -> bool {
        true
    }

    async fn wanted(&self) {
        std::future::pending().await
    }

    async fn stopped(&self) {
        std::future::pending().await
    }

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

    fn name_run(&self, _: &str, generation: Generation) {
        self.note(format!("generation{generation}"));
    }

    fn facts(&self) -> Vec<(String, String)> {
        vec![]
    }

    fn replaces_by_key(&self) -> bool {
        false
    }

    fn loads_of(&self, _: &str, _: Generation, _: Epoch) -> Vec<Committable> {
        vec![]
    }

    async fn label_state(&self, _: &Committable) -> Result<LabelState> {
        Ok(LabelState::Visible)
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
            lane: 0,
            staged: None,
        };
        Ok(WriteOutcome { rows, committables: if rows == 0 { vec![] } else { vec![load] } })
    }

    async fn commit(&self, committables: &[Committable], _: &CommitPermit) -> Result<()> {
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

/// Without checkpoints the first failure ends the run.
fn in_memory() -> RunOptions {
    RunOptions { restart_attempts: Some(0), ..RunOptions::default() }
}

fn checkpoints(store: &Arc<MemoryStore>) -> RunOptions {
    let store = Arc::clone(store) as Arc<dyn CheckpointStore>;
    let checkpoints = Checkpoints { store, job: "j".into(), unnamed: false, retain: 3, savepoint: None };
    RunOptions { checkpoints: Some(checkpoints), ..RunOptions::default() }
}

async fn run_with(recorder: Recorder, rows: i64, options: RunOptions) -> (Result<u64>, String) {
    let recorder = Arc::new(recorder);
    let (source, sink) = (Arc::clone(&recorder) as _, Arc::clone(&recorder) as _);
    let result = run(input(rows), vec![source], sink, Arc::new(TaskContext::default()), options).await;
    (result, recorder.events())
}

async fn run_recorded(recorder: Recorder, rows: i64) -> (Result<u64>, String) {
    run_with(recorder, rows, in_memory()).await
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
async fn epoch_is_recorded_between_its_pre_commit_and_its_commit() {
    let store = Arc::new(MemoryStore::default());
    let recorder = Arc::new(Recorder { hang_commit: true, epochs: 1, ..Recorder::default() });
    let (source, sink) = (Arc::clone(&recorder) as _, Arc::clone(&recorder) as _);
    let job = tokio::spawn(run(input(1), vec![source], sink, Arc::new(TaskContext::default()), checkpoints(&store)));
    while !recorder.events().contains("commit-l1") {
        tokio::task::yield_now().await;
    }
    let newest = crate::checkpoint::chain::newest(store.as_ref()).await.unwrap().unwrap();
    assert_eq!((newest.seq, newest.record.epoch, newest.settled), (2, Epoch(1), false));
    assert_eq!(newest.record.committables[0].label, "l1");
    job.abort();
    assert!(job.await.unwrap_err().is_cancelled());
    let expected = "run generation1 restore-start begin1 arm write1 done commit-l1 end";
    assert_eq!(recorder.events(), expected, "what is recorded is not given up");
    // The server says that it is visible.
    let (rows, events) = run_with(Recorder { epochs: 1, ..Recorder::default() }, 1, checkpoints(&store)).await;
    assert_eq!(rows.unwrap(), 2);
    let expected = "run generation2 commit-l1 restore-start begin1 arm write1 done commit-l1 committed1 end";
    assert_eq!(events, expected);
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
    let (rows, events) = run_recorded(Recorder { epochs: 2, armed_epochs: Some(1), ..Recorder::default() }, 1).await;
    assert_eq!(rows.unwrap(), 2);
    assert_eq!(events, "run begin1 arm write1 done commit-l1 committed1 begin2 arm committed2 end");
}

#[tokio::test]
async fn dropped_job_abandons_what_it_has_pre_committed() {
    let recorder = Arc::new(Recorder { hang_commit: true, epochs: 9, ..Recorder::default() });
    let (source, sink) = (Arc::clone(&recorder) as _, Arc::clone(&recorder) as _);
    let job = tokio::spawn(run(input(1), vec![source], sink, Arc::new(TaskContext::default()), in_memory()));
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
    let error = run(input(1), vec![], sink, Arc::new(TaskContext::default()), in_memory()).await.unwrap_err();
    assert!(error.to_string().contains("no doris changelog"), "{error}");
}
