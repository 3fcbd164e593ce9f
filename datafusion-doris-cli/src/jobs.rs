//! Background jobs: continuous INSERTs that run beside later statements.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use datafusion::arrow::array::{ArrayRef, StringArray, UInt64Array};
use datafusion::arrow::record_batch::RecordBatch;
use futures::StreamExt;
use futures::future::join_all;
use futures::stream::FuturesUnordered;
use tokio::time::Instant;

use crate::error::{Result, ShellError};
use crate::interrupt::{Interrupts, Signal};
use crate::output::Output;

/// How far a job is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Progress {
    pub(crate) state: State,
    /// Epochs that are committed in Doris.
    pub(crate) epochs: u64,
    /// Rows written by committed epochs.
    pub(crate) rows: u64,
    /// Source position that is mirrored, for people.
    pub(crate) position: String,
    /// Why the last epoch was rolled back, when none has been committed since.
    pub(crate) failed_epoch: Option<String>,
}

/// What a job is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Running,
    Stopped,
    Finished,
    Failed,
}

impl State {
    fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Stopped => "stopped",
            Self::Finished => "finished",
            Self::Failed => "failed",
        }
    }
}

/// What the shell needs of a job. Dropping it stops it hard: the epoch in progress is aborted.
#[async_trait]
pub(crate) trait Background: Send + Sync {
    fn progress(&self) -> Progress;
    /// Waits until all that was committed at the source before the call is committed in the target.
    async fn caught_up(&self) -> Result<()>;
    /// Ends the job after its current epoch; gives the rows written.
    async fn stop(&self) -> Result<u64>;
    /// Waits until the job ends by itself; gives the rows written.
    async fn wait(&self) -> Result<u64>;
    /// Stops the job hard; tells what becomes of its epoch.
    async fn abort(&self) -> Abandoned;
}

/// What becomes of the epoch of a job that was stopped hard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Abandoned {
    /// Its checkpoint is written.
    Recorded,
    /// It is in no checkpoint.
    ReadAgain,
    /// The job has no checkpoints.
    BeginsAnew,
}

impl Abandoned {
    fn text(self) -> &'static str {
        match self {
            Self::Recorded => "its last epoch is recorded, and the next start commits it",
            Self::ReadAgain => "the next start reads its last epoch again",
            Self::BeginsAnew => "its last epoch is rolled back, and without checkpoints the next start begins anew",
        }
    }
}

/// How jobs are stopped.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stopping {
    /// The signal that asks for it; `None`: nothing hurries.
    pub(crate) signal: Option<Signal>,
    /// How long epochs may take after a signal.
    pub(crate) timeout: Duration,
    /// Only what went wrong is told.
    pub(crate) quiet: bool,
}

/// Jobs by the names that people know them by.
type Named = Vec<(String, Arc<dyn Background>)>;

/// Stops jobs after their epochs, all at once. After a signal they have the time limit for it; then, or at the next
/// signal, the rest is stopped hard. Says how each one ended.
///
/// # Errors
/// The first failure of a job, else [`ShellError::Interrupted`] when the signal came here.
async fn stop_all(jobs: Named, stopping: Stopping, output: &Output, interrupts: &mut Interrupts) -> Result<()> {
    let Stopping { mut signal, timeout, quiet } = stopping;
    let asked_before = signal.is_some();
    let mut deadline = Instant::now() + timeout;
    let mut open: BTreeMap<&str, &Arc<dyn Background>> = jobs.iter().map(|(name, job)| (name.as_str(), job)).collect();
    let mut ending: FuturesUnordered<_> =
        jobs.iter().map(|(name, job)| async move { (name.as_str(), job.stop().await) }).collect();
    let mut first_error = None;
    let why = loop {
        tokio::select! {
            ended = ending.next() => {
                let Some((name, result)) = ended else { break String::new() };
                let failed_epoch = open.remove(name).and_then(|job| job.progress().failed_epoch);
                match (result, failed_epoch) {
                    (Ok(rows), Some(error)) => {
                        let rows = rows_written(rows);
                        output.note(&format!("{name} stopped: {rows}; its last epoch was rolled back: {error}")).await?;
                    }
                    (Ok(_), None) if quiet => {}
                    (Ok(rows), None) if signal.is_none() => {
                        output.note(&format!("{name} stopped: {}", rows_written(rows))).await?;
                    }
                    (Ok(rows), None) => {
                        output.note(&format!("{name}: epoch finished and committed, {}", rows_written(rows))).await?;
                    }
                    (Err(error), _) => {
                        first_error.get_or_insert(named(name, error));
                    }
                }
            }
            next = interrupts.recv() => {
                if signal.is_some() {
                    break "at the second signal".to_owned();
                }
                signal = Some(next);
                deadline = Instant::now() + timeout;
                if !quiet {
                    output.note(&waiting(timeout)).await?;
                }
            }
            () = tokio::time::sleep_until(deadline), if signal.is_some() => {
                break format!("after {} s", timeout.as_secs_f64());
            }
        }
    };
    drop(ending);
    let abandoned = open.into_iter().map(|(name, job)| async move { (name, job.abort().await) });
    for (name, left) in join_all(abandoned).await {
        output.note(&format!("{name}: aborted {why}; {}", left.text())).await?;
    }
    match (first_error, signal) {
        (Some(error), _) => Err(error),
        (None, Some(signal)) if !asked_before => Err(ShellError::Interrupted(signal)),
        (None, _) => Ok(()),
    }
}

/// What is told when a signal asks jobs to stop.
fn waiting(timeout: Duration) -> String {
    format!("stopping after the current epoch, for {} s at most; again to abandon it", timeout.as_secs_f64())
}

/// The jobs of one shell, by name.
#[derive(Default)]
pub(crate) struct Jobs(BTreeMap<String, Entry>);

struct Entry {
    job: Arc<dyn Background>,
    /// Whether the user has been told of its failure.
    failure_told: bool,
}

impl Jobs {
    /// Refuses a name that a running job has.
    pub(crate) fn check_free(&self, name: &str) -> Result<()> {
        match self.0.get(name) {
            Some(entry) if entry.job.progress().state == State::Running => Err(ShellError::Job(format!(
                "a job named `{name}` is running: `\\stop {name}` it, or take another name"
            ))),
            _ => Ok(()),
        }
    }

    /// Adds a job, in the place of an ended one with the same name.
    pub(crate) fn add(&mut self, name: &str, job: impl Background + 'static) {
        self.0.insert(name.to_owned(), Entry { job: Arc::new(job), failure_told: false });
    }

    fn get(&self, name: &str) -> Result<Arc<dyn Background>> {
        match self.0.get(name) {
            Some(entry) => Ok(Arc::clone(&entry.job)),
            None if self.0.is_empty() => Err(ShellError::Job(format!("no job named `{name}`: there are no jobs"))),
            None => {
                let names: Vec<&str> = self.0.keys().map(String::as_str).collect();
                Err(ShellError::Job(format!("no job named `{name}`: there are {}", names.join(", "))))
            }
        }
    }

    /// One row per job.
    pub(crate) fn table(&self) -> Result<RecordBatch> {
        let progress: Vec<_> = self.0.values().map(|entry| entry.job.progress()).collect();
        let columns: [(&str, ArrayRef); 5] = [
            ("name", Arc::new(StringArray::from_iter_values(self.0.keys()))),
            ("state", Arc::new(StringArray::from_iter_values(progress.iter().map(|p| p.state.name())))),
            ("epochs", Arc::new(UInt64Array::from_iter_values(progress.iter().map(|p| p.epochs)))),
            ("rows", Arc::new(UInt64Array::from_iter_values(progress.iter().map(|p| p.rows)))),
            ("position", Arc::new(StringArray::from_iter_values(progress.iter().map(|p| &p.position)))),
        ];
        Ok(RecordBatch::try_from_iter(columns)?)
    }

    pub(crate) async fn catch_up(&mut self, name: &str, timeout: Duration, interrupts: &mut Interrupts) -> Result<()> {
        let job = self.get(name)?;
        let limited = async { Ok::<_, ShellError>(tokio::time::timeout(timeout, job.caught_up()).await) };
        match interrupts.guard(limited).await? {
            Ok(result) => self.told(name, result),
            Err(_) => Err(ShellError::NotCaughtUp { name: name.to_owned(), waited: timeout }),
        }
    }

    pub(crate) async fn wait(&mut self, name: &str, interrupts: &mut Interrupts) -> Result<u64> {
        let job = self.get(name)?;
        let result = interrupts.guard(job.wait()).await;
        self.told(name, result)
    }

    pub(crate) async fn stop(&mut self, name: &str, interrupts: &mut Interrupts) -> Result<u64> {
        let job = self.get(name)?;
        let result = interrupts.guard(job.stop()).await;
        self.told(name, result)
    }

    /// Passes a result on to the user; the end need not repeat a failure.
    fn told<T>(&mut self, name: &str, result: Result<T>) -> Result<T> {
        if result.is_err()
            && let Some(entry) = self.0.get_mut(name)
        {
            entry.failure_told = entry.job.progress().state == State::Failed;
        }
        result.map_err(|error| named(&format!("job `{name}`"), error))
    }

    /// Stops what still runs after its epoch, or as `stopping` says, tells how each ended, and drops all jobs.
    ///
    /// # Errors
    /// The first failure that the user has not been told of; [`ShellError::Interrupted`] when a signal came meanwhile.
    pub(crate) async fn end(&mut self, stopping: Stopping, output: &Output, interrupts: &mut Interrupts) -> Result<()> {
        let untold = std::mem::take(&mut self.0).into_iter().filter(|(_, entry)| match entry.job.progress().state {
            State::Stopped | State::Finished => false,
            State::Failed => !entry.failure_told,
            State::Running => true,
        });
        let jobs: Named = untold.map(|(name, entry)| (format!("job `{name}`"), entry.job)).collect();
        if jobs.is_empty() {
            return Ok(());
        }
        stop_all(jobs, stopping, output, interrupts).await
    }
}

/// A count of written rows, for people.
pub(crate) fn rows_written(rows: u64) -> String {
    format!("{rows} {} written", if rows == 1 { "row" } else { "rows" })
}

fn named(name: &str, error: ShellError) -> ShellError {
    match error {
        error @ (ShellError::Interrupted(_) | ShellError::OutputClosed | ShellError::Job(_)) => error,
        error => ShellError::Job(format!("{name} failed: {error}")),
    }
}

/// Runs a job in the foreground. A signal ends it after its epoch, or as `stopping` says.
pub(crate) async fn foreground(
    job: Arc<dyn Background>,
    stopping: Stopping,
    output: &Output,
    interrupts: &mut Interrupts,
) -> Result<u64> {
    match interrupts.guard(job.wait()).await {
        Err(ShellError::Interrupted(signal)) => {
            if !stopping.quiet {
                output.note(&waiting(stopping.timeout)).await?;
            }
            let stopping = Stopping { signal: Some(signal), ..stopping };
            stop_all(vec![("insert".to_owned(), job)], stopping, output, interrupts).await?;
            Err(ShellError::Interrupted(signal))
        }
        result => result,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use tokio::sync::{Notify, watch};

    use super::*;

    /// A job that does what its test says.
    struct Fake {
        state: watch::Sender<State>,
        stopping: Arc<Notify>,
        fails: bool,
        /// Its epoch never ends.
        hangs: bool,
    }

    impl Fake {
        fn new(state: State, fails: bool) -> Self {
            Self { state: watch::Sender::new(state), stopping: Arc::default(), fails, hangs: false }
        }

        fn hanging() -> Self {
            Self { hangs: true, ..Self::new(State::Running, false) }
        }
    }

    fn stopping(signal: Option<Signal>) -> Stopping {
        Stopping { signal, timeout: Duration::from_secs(30), quiet: false }
    }

    #[async_trait]
    impl Background for Fake {
        fn progress(&self) -> Progress {
            Progress { state: *self.state.borrow(), epochs: 2, rows: 3, position: "12:00".into(), failed_epoch: None }
        }

        async fn caught_up(&self) -> Result<()> {
            std::future::pending().await
        }

        async fn stop(&self) -> Result<u64> {
            self.stopping.notify_one();
            if self.fails {
                return Err(ShellError::Assertion("broken".into()));
            }
            if self.hangs {
                return std::future::pending().await;
            }
            self.state.send_replace(State::Stopped);
            Ok(3)
        }

        async fn wait(&self) -> Result<u64> {
            self.state.subscribe().wait_for(|state| *state != State::Running).await.unwrap();
            Ok(3)
        }

        async fn abort(&self) -> Abandoned {
            self.state.send_replace(State::Failed);
            Abandoned::ReadAgain
        }
    }

    #[tokio::test]
    async fn the_end_stops_running_jobs_and_reports_failed_ones() {
        let (_sender, mut interrupts) = Interrupts::channel();
        let (output, captured) = Output::captured();
        let mut jobs = Jobs::default();
        jobs.add("a", Fake::new(State::Running, false));
        jobs.add("b", Fake::new(State::Failed, true));
        jobs.add("c", Fake::new(State::Stopped, true));
        let error = jobs.end(stopping(None), &output, &mut interrupts).await.unwrap_err();
        assert_eq!(error.to_string(), "job `b` failed: assertion failed: broken");
        output.flush().await.unwrap();
        assert_eq!(captured.err(), "job `a` stopped: 3 rows written\n");
    }

    #[tokio::test]
    async fn a_failure_is_told_once() {
        let (_sender, mut interrupts) = Interrupts::channel();
        let (output, captured) = Output::captured();
        let mut jobs = Jobs::default();
        jobs.add("b", Fake::new(State::Failed, true));
        assert!(jobs.stop("b", &mut interrupts).await.is_err());
        assert!(jobs.end(stopping(None), &output, &mut interrupts).await.is_ok());
        assert_eq!(captured.err(), "");
    }

    #[tokio::test(start_paused = true)]
    async fn catching_up_ends_with_an_error_after_its_time() {
        let (_sender, mut interrupts) = Interrupts::channel();
        let mut jobs = Jobs::default();
        jobs.add("m", Fake::new(State::Running, false));
        let error = jobs.catch_up("m", Duration::from_secs(5), &mut interrupts).await.unwrap_err();
        assert!(matches!(error, ShellError::NotCaughtUp { .. }), "{error}");
        let error = jobs.catch_up("n", Duration::from_secs(5), &mut interrupts).await.unwrap_err();
        assert_eq!(error.to_string(), "no job named `n`: there are m");
    }

    #[tokio::test]
    async fn a_request_to_stop_ends_a_foreground_job_after_its_epoch() {
        let (sender, mut interrupts) = Interrupts::channel();
        let (output, captured) = Output::captured();
        let job = Arc::new(Fake::new(State::Running, false));
        sender.send(Signal::Interrupt).await.unwrap();
        let run = foreground(Arc::clone(&job) as _, stopping(None), &output, &mut interrupts);
        assert!(matches!(run.await.unwrap_err(), ShellError::Interrupted(Signal::Interrupt)));
        assert_eq!(job.progress().state, State::Stopped);
        output.flush().await.unwrap();
        let expected = "stopping after the current epoch, for 30 s at most; again to abandon it\n\
                        insert: epoch finished and committed, 3 rows written\n";
        assert_eq!(captured.err(), expected);
    }

    #[tokio::test(start_paused = true)]
    async fn an_epoch_that_takes_too_long_after_a_signal_is_abandoned() {
        let (_sender, mut interrupts) = Interrupts::channel();
        let (output, captured) = Output::captured();
        let mut jobs = Jobs::default();
        jobs.add("a", Fake::new(State::Running, false));
        jobs.add("b", Fake::hanging());
        let begun = Instant::now();
        jobs.end(stopping(Some(Signal::Terminate)), &output, &mut interrupts).await.unwrap();
        assert_eq!(begun.elapsed(), Duration::from_secs(30));
        output.flush().await.unwrap();
        let expected = "job `a`: epoch finished and committed, 3 rows written\n\
                        job `b`: aborted after 30 s; the next start reads its last epoch again\n";
        assert_eq!(captured.err(), expected);
    }

    #[tokio::test(start_paused = true)]
    async fn the_second_signal_abandons_at_once_and_the_first_is_the_exit_code() {
        let (sender, mut interrupts) = Interrupts::channel();
        let (output, captured) = Output::captured();
        let mut jobs = Jobs::default();
        jobs.add("b", Fake::hanging());
        sender.send(Signal::Terminate).await.unwrap();
        sender.send(Signal::Interrupt).await.unwrap();
        let begun = Instant::now();
        let error = jobs.end(stopping(None), &output, &mut interrupts).await.unwrap_err();
        assert!(matches!(error, ShellError::Interrupted(Signal::Terminate)), "{error}");
        assert_eq!(begun.elapsed(), Duration::ZERO);
        output.flush().await.unwrap();
        assert!(
            captured
                .err()
                .ends_with("job `b`: aborted at the second signal; the next start reads its last epoch again\n")
        );
    }

    #[tokio::test]
    async fn a_name_is_free_again_once_its_job_has_ended() {
        let mut jobs = Jobs::default();
        jobs.add("m", Fake::new(State::Running, false));
        assert!(jobs.check_free("m").is_err());
        jobs.add("m", Fake::new(State::Stopped, false));
        assert!(jobs.check_free("m").is_ok());
        assert_eq!(jobs.table().unwrap().num_rows(), 1);
    }
}
