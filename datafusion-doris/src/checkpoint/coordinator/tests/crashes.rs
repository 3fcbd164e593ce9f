//! Whole runs over a server and a store that outlive them: whatever fails, and wherever a run is dropped, in the end every
//! row is in the target once.

mod loads;

use std::collections::BTreeMap;

use super::*;
use crate::checkpoint::LabelSeries;
use crate::checkpoint::chain::newest;
use crate::checkpoint::testing::Hang;
use crate::error::Retry;

/// Rows of the source: the numbers below this, two per epoch.
const END: i64 = 7;

/// The server: loads by label, and the rows that are visible.
#[derive(Debug, Default)]
struct Doris {
    loads: BTreeMap<String, (LabelState, Vec<i64>)>,
    table: Vec<i64>,
}

/// Where something goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Site {
    Arm,
    /// Before the rows are loaded.
    Write,
    /// Rows are pre-committed, and nobody knows.
    PreCommitted,
    BeforeCommit,
    AfterCommit,
    LabelState,
    Abort,
}

const SITES: [Site; 7] =
    [Site::Arm, Site::Write, Site::PreCommitted, Site::BeforeCommit, Site::AfterCommit, Site::LabelState, Site::Abort];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// A connection is lost.
    Lost,
    /// No answer, ever.
    Hang,
    /// The server gives up all that is pre-committed.
    Expire,
}

#[derive(Debug)]
struct State {
    committed: i64,
    current: i64,
    armed: Option<(i64, i64)>,
    run: (String, Generation),
    faults: Vec<(Site, usize, Fault)>,
    stopped: bool,
}

/// Source and sink of one process.
#[derive(Debug)]
struct Process {
    doris: Arc<Mutex<Doris>>,
    state: Mutex<State>,
    /// A dropped run can still abort.
    cleans_up: bool,
    end: i64,
    /// Loads of an epoch; rows go to them by turns.
    writers: i64,
    /// The target has a unique key.
    by_key: bool,
}

impl Process {
    fn new(doris: &Arc<Mutex<Doris>>, faults: &[(Site, usize, Fault)]) -> Self {
        let state = State {
            committed: -1,
            current: -1,
            armed: None,
            run: (String::new(), Generation(0)),
            faults: faults.to_vec(),
            stopped: false,
        };
        Self {
            doris: Arc::clone(doris),
            state: Mutex::new(state),
            cleans_up: false,
            end: END,
            writers: 1,
            by_key: false,
        }
    }

    async fn at(&self, site: Site) -> Result<()> {
        let fault = {
            let faults = &mut self.state.lock().faults;
            match faults.iter().position(|(planned, _, _)| *planned == site) {
                Some(at) if faults[at].1 == 0 => Some(faults.remove(at).2),
                Some(at) => {
                    faults[at].1 -= 1;
                    None
                }
                None => None,
            }
        };
        match fault {
            None => Ok(()),
            Some(Fault::Lost) => Err(lost()),
            Some(Fault::Hang) => std::future::pending().await,
            Some(Fault::Expire) => {
                for (state, _) in self.doris.lock().loads.values_mut() {
                    if *state == LabelState::PreCommitted {
                        *state = LabelState::Aborted;
                    }
                }
                Ok(())
            }
        }
    }

    /// Loads that are pre-committed.
    fn open(&self) -> usize {
        self.doris.lock().loads.values().filter(|(state, _)| *state == LabelState::PreCommitted).count()
    }

    fn abort_now(&self, label: &str) -> bool {
        match self.doris.lock().loads.get_mut(label) {
            Some((LabelState::Visible, _)) => true,
            Some((state, _)) => {
                *state = LabelState::Aborted;
                false
            }
            None => false,
        }
    }
}

fn lost() -> Error {
    let source = Box::new(std::io::Error::from(std::io::ErrorKind::ConnectionReset));
    Error::Transport { host: "fe".into(), operation: "x".into(), retry: Retry::AskLabelState, source }
}

fn load(label: &str) -> Committable {
    Committable {
        db: "db".into(),
        table: "t".into(),
        label: label.into(),
        txn_id: None,
        host: "be".into(),
        lane: 0,
        staged: None,
    }
}

#[async_trait]
impl EpochSource for Process {
    fn table(&self) -> String {
        "db.source".into()
    }

    fn facts(&self) -> Vec<(String, String)> {
        vec![]
    }

    async fn restore(&self, position: &SourcePosition, _: bool) -> Result<()> {
        let mut state = self.state.lock();
        if let Some(next) = position.changelog_ms() {
            (state.committed, state.current) = (next, next);
        }
        Ok(())
    }

    fn has_backlog(&self) -> bool {
        true
    }

    async fn wanted(&self) {
        std::future::pending().await
    }

    async fn stopped(&self) {
        if !self.state.lock().stopped {
            std::future::pending::<()>().await;
        }
    }

    fn begin_epoch(&self, _: Epoch) {
        let mut state = self.state.lock();
        state.current = state.committed;
        state.armed = None;
    }

    async fn arm(&self) -> Result<bool> {
        self.at(Site::Arm).await?;
        let mut state = self.state.lock();
        if state.committed < 0 {
            (state.committed, state.current) = (0, 0);
        }
        if state.stopped || state.current >= self.end {
            return Ok(false);
        }
        state.armed = Some((state.current, (state.current + 2).min(self.end)));
        Ok(true)
    }

    fn piece_done(&self) {
        let mut state = self.state.lock();
        if let Some((_, end)) = state.armed.take() {
            state.current = end;
        }
    }

    fn position(&self) -> SourcePosition {
        match self.state.lock().current {
            -1 => SourcePosition::START,
            next_ms => SourcePosition::Changelog { next_ms },
        }
    }

    fn epoch_committed(&self, _: Epoch) {
        let mut state = self.state.lock();
        state.committed = state.current;
    }

    fn epoch_aborted(&self, _: Epoch) {
        let mut state = self.state.lock();
        state.current = state.committed;
    }

    fn finished(&self) -> bool {
        let state = self.state.lock();
        state.stopped || state.committed >= self.end
    }

    fn stop(&self) {
        self.state.lock().stopped = true;
    }
}

#[async_trait]
impl EpochSink for Process {
    fn begin_run(&self) -> Result<()> {
        Ok(())
    }

    fn end_run(&self) {}

    fn name_run(&self, job: &str, generation: Generation) {
        self.state.lock().run = (job.into(), generation);
    }

    fn facts(&self) -> Vec<(String, String)> {
        vec![("table".into(), "db.t".into())]
    }

    fn replaces_by_key(&self) -> bool {
        self.by_key
    }

    fn loads_of(&self, job: &str, generation: Generation, epoch: Epoch) -> Vec<Committable> {
        panic!("the records tell: {job} {generation} {epoch}")
    }

    fn labels(&self) -> Option<LabelSeries> {
        let writers = self.writers as u32;
        let (prefix, db, table) = ("p".into(), "db".into(), "t".into());
        Some(LabelSeries { prefix, db, table, writers, open_ended: false, stage: None })
    }

    async fn label_state(&self, load: &Committable) -> Result<LabelState> {
        self.at(Site::LabelState).await?;
        Ok(self.doris.lock().loads.get(&load.label).map_or(LabelState::Unknown, |(state, _)| *state))
    }

    async fn write_epoch(
        &self,
        epoch: Epoch,
        data: SendableRecordBatchStream,
        _: &Arc<TaskContext>,
    ) -> Result<WriteOutcome> {
        let _: Vec<RecordBatch> = data.try_collect().await?;
        self.at(Site::Write).await?;
        let ((job, generation), (start, end)) = {
            let state = self.state.lock();
            (state.run.clone(), state.armed.unwrap())
        };
        let series = self.labels().unwrap();
        let mut committables = vec![];
        for writer in 0..self.writers {
            let rows: Vec<i64> = (start..end).filter(|row| row % self.writers == writer).collect();
            if rows.is_empty() {
                continue;
            }
            let label = series.label(&job, generation, epoch, writer as u32);
            let old = self.doris.lock().loads.insert(label.clone(), (LabelState::PreCommitted, rows));
            assert!(!matches!(old, Some((LabelState::Visible, _))), "label {label} was used before");
            committables.push(load(&label));
            if let Err(error) = self.at(Site::PreCommitted).await {
                for load in committables {
                    self.abort_now(&load.label);
                }
                return Err(error);
            }
        }
        Ok(WriteOutcome { rows: (end - start) as u64, committables })
    }

    async fn commit(&self, committables: &[Committable], _: &CommitPermit) -> Result<()> {
        for load in committables {
            self.at(Site::BeforeCommit).await?;
            {
                let doris = &mut *self.doris.lock();
                match doris.loads.get_mut(&load.label) {
                    Some((state @ LabelState::PreCommitted, rows)) => {
                        *state = LabelState::Visible;
                        doris.table.extend(rows.iter());
                    }
                    Some((LabelState::Visible, _)) => {}
                    other => {
                        let reason = format!("it is {other:?}");
                        let (operation, label) = ("commit".to_string(), load.label.clone());
                        return Err(Error::Transaction { operation, label, txn_id: None, reason, retry: Retry::Never });
                    }
                }
            }
            self.at(Site::AfterCommit).await?;
        }
        Ok(())
    }

    async fn abort(&self, committables: &[Committable]) -> Result<AbortOutcome> {
        self.at(Site::Abort).await?;
        let labels = committables.iter().map(|load| load.label.clone());
        let (visible, gone): (Vec<String>, Vec<String>) = labels.partition(|label| self.abort_now(label));
        Ok(match (visible.is_empty(), gone.is_empty()) {
            (true, _) => AbortOutcome::RolledBack,
            (false, true) => AbortOutcome::Committed,
            (false, false) => AbortOutcome::Torn { visible, gone },
        })
    }

    fn abandon(&self, committables: Vec<Committable>) {
        if self.cleans_up {
            for load in committables {
                self.abort_now(&load.label);
            }
        }
    }
}

async fn start(process: &Arc<Process>, options: RunOptions) -> Result<u64> {
    let (source, sink) = (Arc::clone(process) as _, Arc::clone(process) as _);
    run(input(1), vec![source], sink, Arc::new(TaskContext::default()), options).await
}

/// Runs until the end, or until nothing moves any more, which drops the run.
async fn run_or_drop(process: &Arc<Process>, store: &Arc<MemoryStore>) -> Option<Result<u64>> {
    tokio::time::timeout(Duration::from_secs(36_000), start(process, checkpoints(store))).await.ok()
}

/// The rows that are visible, sorted: loads of one epoch are visible in any order.
fn rows(doris: &Mutex<Doris>) -> Vec<i64> {
    let mut rows = doris.lock().table.clone();
    rows.sort_unstable();
    rows
}

fn all_rows() -> Vec<i64> {
    (0..END).collect()
}

#[tokio::test(start_paused = true)]
async fn lost_connections_are_survived_by_the_run_itself() {
    for site in SITES {
        for occurrence in 0..4 {
            let (doris, store) = (Arc::default(), Arc::new(MemoryStore::default()));
            let process = Arc::new(Process::new(&doris, &[(site, occurrence, Fault::Lost)]));
            let rows = run_or_drop(&process, &store).await.expect("ends").unwrap();
            assert_eq!(rows, END as u64, "{site:?} {occurrence}");
            assert_eq!(doris.lock().table, all_rows(), "{site:?} {occurrence}");
            let newest = newest(store.as_ref()).await.unwrap().unwrap();
            assert!(newest.settled, "{site:?} {occurrence}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn run_that_is_killed_anywhere_goes_on_without_loss_or_repetition() {
    let mut crashes = 0;
    for first in SITES {
        for occurrence in 0..4 {
            for second in SITES {
                for cleans_up in [false, true] {
                    let (doris, store) = (Arc::default(), Arc::new(MemoryStore::default()));
                    for site in [Some((first, occurrence)), Some((second, 0)), None] {
                        let faults: Vec<_> = site.into_iter().map(|(site, n)| (site, n, Fault::Hang)).collect();
                        let process = Arc::new(Process { cleans_up, ..Process::new(&doris, &faults) });
                        if run_or_drop(&process, &store).await.is_none() {
                            crashes += 1;
                        }
                    }
                    assert_eq!(doris.lock().table, all_rows(), "{first:?} {occurrence}, then {second:?}");
                }
            }
        }
    }
    assert!(crashes > 400, "{crashes}");
}

#[tokio::test(start_paused = true)]
async fn run_that_is_killed_while_it_writes_a_record_goes_on_too() {
    for after in 0..12 {
        for done in [false, true] {
            for cleans_up in [false, true] {
                let (doris, store) = (Arc::default(), Arc::new(MemoryStore::default()));
                store.hang(Some(Hang { after, done }));
                let process = Arc::new(Process { cleans_up, ..Process::new(&doris, &[]) });
                let ended = run_or_drop(&process, &store).await;
                assert_eq!(ended.is_some(), after > 9, "write {after}");
                store.hang(None);
                let process = Arc::new(Process::new(&doris, &[]));
                run_or_drop(&process, &store).await.expect("ends").unwrap();
                assert_eq!(doris.lock().table, all_rows(), "write {after}, done: {done}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn store_that_is_away_for_a_while_is_waited_for() {
    for (failures, lost_answers) in [(5, 0), (0, 5)] {
        let (doris, store) = (Arc::default(), Arc::new(MemoryStore::default()));
        // Not at the start, where a wrong location must be told soon.
        let process = Arc::new(Process { end: 2, ..Process::new(&doris, &[]) });
        start(&process, checkpoints(&store)).await.unwrap();
        let process = Arc::new(Process::new(&doris, &[(Site::PreCommitted, 0, Fault::Lost)]));
        let running = start(&process, checkpoints(&store));
        tokio::pin!(running);
        while doris.lock().loads.len() < 2 {
            assert!(futures::poll!(running.as_mut()).is_pending());
            tokio::task::yield_now().await;
        }
        store.fail(failures);
        store.lose_answers(lost_answers);
        running.await.unwrap();
        assert_eq!(doris.lock().table, all_rows());
    }
}

#[tokio::test(start_paused = true)]
async fn store_that_cannot_be_reached_ends_a_start_soon() {
    let (doris, store) = (Arc::default(), Arc::new(MemoryStore::default()));
    store.fail(1000);
    let process = Arc::new(Process::new(&doris, &[]));
    let begun = Instant::now();
    let error = start(&process, checkpoints(&store)).await.unwrap_err();
    assert!(matches!(error, Error::CheckpointStore { .. }), "{error}");
    assert!(begun.elapsed() < Duration::from_secs(10));
}

#[tokio::test(start_paused = true)]
async fn range_of_loads_that_the_server_gave_up_is_read_again() {
    // By the run itself.
    let (doris, store) = (Arc::default(), Arc::new(MemoryStore::default()));
    let process = Arc::new(Process::new(&doris, &[(Site::BeforeCommit, 1, Fault::Expire)]));
    start(&process, checkpoints(&store)).await.unwrap();
    assert_eq!(doris.lock().table, all_rows());
    // By the next start, after a long downtime.
    let (doris, store) = (Arc::default(), Arc::new(MemoryStore::default()));
    let process = Arc::new(Process::new(&doris, &[(Site::BeforeCommit, 1, Fault::Hang)]));
    assert!(run_or_drop(&process, &store).await.is_none());
    let process = Arc::new(Process::new(&doris, &[(Site::BeforeCommit, 0, Fault::Expire)]));
    start(&process, checkpoints(&store)).await.unwrap();
    assert_eq!(doris.lock().table, all_rows());
}

#[tokio::test(start_paused = true)]
async fn forgotten_label_stops_the_start_with_advice_unless_it_is_marked_done() {
    for (site, told) in [(Site::AfterCommit, false), (Site::Arm, true)] {
        let (doris, store) = (Arc::default(), Arc::new(MemoryStore::default()));
        let process = Arc::new(Process::new(&doris, &[(site, 1, Fault::Hang)]));
        assert!(run_or_drop(&process, &store).await.is_none());
        doris.lock().loads.clear();
        let process = Arc::new(Process::new(&doris, &[]));
        let result = start(&process, checkpoints(&store)).await;
        if told {
            result.unwrap();
            assert_eq!(doris.lock().table, all_rows());
            continue;
        }
        let message = result.unwrap_err().to_string();
        assert!(message.contains("UNKNOWN") && message.contains("cannot be told"), "{message}");
        assert!(message.contains("write an empty object memory/checkpoint-000000000004.done"), "{message}");
        // The advice is taken: the rows are there.
        store.put("checkpoint-000000000004.done", vec![]).await.unwrap();
        let process = Arc::new(Process::new(&doris, &[]));
        start(&process, checkpoints(&store)).await.unwrap();
        assert_eq!(doris.lock().table, all_rows());
    }
}

#[tokio::test(start_paused = true)]
async fn record_whose_rows_are_not_in_the_target_is_removed_as_advised() {
    let (doris, store) = (Arc::default(), Arc::new(MemoryStore::default()));
    let process = Arc::new(Process::new(&doris, &[(Site::BeforeCommit, 1, Fault::Hang)]));
    assert!(run_or_drop(&process, &store).await.is_none());
    doris.lock().loads.clear();
    let message = start(&Arc::new(Process::new(&doris, &[])), checkpoints(&store)).await.unwrap_err().to_string();
    let advice = "remove checkpoint-000000000004.json and all records after it";
    assert!(message.contains(advice), "{message}");
    for name in store.list().await.unwrap() {
        if name.as_str() >= "checkpoint-000000000004" {
            store.delete(&name).await.unwrap();
        }
    }
    start(&Arc::new(Process::new(&doris, &[])), checkpoints(&store)).await.unwrap();
    assert_eq!(doris.lock().table, all_rows());
}

#[tokio::test(start_paused = true)]
async fn commit_that_cannot_succeed_ends_the_run_and_says_that_it_is_recorded() {
    let (doris, store) = (Arc::default(), Arc::new(MemoryStore::default()));
    let faults: Vec<_> = (0..3).map(|_| (Site::BeforeCommit, 0, Fault::Lost)).collect();
    let process = Arc::new(Process::new(&doris, &faults));
    let options = RunOptions { restart_attempts: Some(2), ..checkpoints(&store) };
    let message = start(&process, options).await.unwrap_err().to_string();
    assert!(message.contains("recorded in memory/checkpoint-000000000003.json"), "{message}");
    let process = Arc::new(Process::new(&doris, &[]));
    start(&process, checkpoints(&store)).await.unwrap();
    assert_eq!(doris.lock().table, all_rows());
}

#[tokio::test(start_paused = true)]
async fn newer_generation_ends_the_older_one_wherever_that_is() {
    for site in SITES {
        for occurrence in 0..3 {
            let (doris, store) = (Arc::default(), Arc::new(MemoryStore::default()));
            let old = Arc::new(Process::new(&doris, &[(site, occurrence, Fault::Lost)]));
            let running = start(&old, checkpoints(&store));
            tokio::pin!(running);
            // The old one is in its pause after the failure, when the new one runs to its end.
            let mut ended = None;
            while !old.state.lock().faults.is_empty() && ended.is_none() {
                tokio::select! {
                    biased;
                    result = running.as_mut() => ended = Some(result),
                    () = tokio::task::yield_now() => {}
                }
            }
            let new = Arc::new(Process::new(&doris, &[]));
            start(&new, checkpoints(&store)).await.unwrap();
            let result = match ended {
                Some(result) => result,
                None => running.await,
            };
            assert_eq!(doris.lock().table, all_rows(), "{site:?} {occurrence}");
            if let Err(error) = result {
                let message = error.to_string();
                assert!(message.contains("took over") && message.contains("generation 2 of job j"), "{message}");
                let open = doris.lock().loads.values().filter(|(state, _)| *state == LabelState::PreCommitted).count();
                assert_eq!(open, 0, "its loads are aborted: {site:?} {occurrence}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn savepoint_is_kept_at_the_end_and_can_be_gone_back_to() {
    let (doris, store) = (Arc::default(), Arc::new(MemoryStore::default()));
    let process = Arc::new(Process { end: 4, ..Process::new(&doris, &[]) });
    let options = checkpoints(&store);
    options.control.request_savepoint("half".into());
    start(&process, options).await.unwrap();
    let process = Arc::new(Process::new(&doris, &[]));
    start(&process, checkpoints(&store)).await.unwrap();
    assert_eq!(doris.lock().table, all_rows());
    let mut options = checkpoints(&store);
    options.checkpoints.as_mut().unwrap().savepoint = Some("half".into());
    start(&Arc::new(Process::new(&doris, &[])), options).await.unwrap();
    assert_eq!(doris.lock().table, [0, 1, 2, 3, 4, 5, 6, 4, 5, 6], "that was asked for");
    let without = RunOptions { restart_attempts: Some(0), ..RunOptions::default() };
    without.control.request_savepoint("none".into());
    let error = start(&Arc::new(Process::new(&doris, &[])), without).await.unwrap_err().to_string();
    assert!(error.contains("doris.checkpoint.dir"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn start_of_the_source_is_recorded_before_anything_is_read() {
    let (doris, store) = (Arc::default(), Arc::new(MemoryStore::default()));
    let process = Arc::new(Process::new(&doris, &[(Site::Write, 0, Fault::Hang)]));
    assert!(run_or_drop(&process, &store).await.is_none());
    let newest = newest(store.as_ref()).await.unwrap().unwrap();
    assert_eq!(newest.record.sources[0].position, SourcePosition::Changelog { next_ms: 0 });
    assert_eq!((newest.seq, newest.record.epoch), (2, Epoch(0)));
}
