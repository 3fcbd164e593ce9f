//! Background jobs: continuous INSERTs that run beside later statements.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use datafusion::arrow::array::{ArrayRef, StringArray, UInt64Array};
use datafusion::arrow::record_batch::RecordBatch;

use crate::error::{Result, ShellError};
use crate::interrupt::Interrupts;
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
        result.map_err(|error| named(name, error))
    }

    /// Stops what still runs after its epoch, says so, and drops all jobs. A request to stop abandons the rest.
    ///
    /// # Errors
    /// The first failure that the user has not been told of.
    pub(crate) async fn end(&mut self, output: &Output, quiet: bool, interrupts: &mut Interrupts) -> Result<()> {
        let mut first_error = None;
        for (name, Entry { job, failure_told }) in std::mem::take(&mut self.0) {
            let running = match job.progress().state {
                State::Stopped | State::Finished => continue,
                State::Failed if failure_told => continue,
                State::Running => true,
                State::Failed => false,
            };
            match interrupts.guard(job.stop()).await {
                Ok(rows) if running && !quiet => {
                    output.note(&format!("job `{name}` stopped: {}", rows_written(rows))).await?;
                }
                Ok(_) => {}
                Err(error @ ShellError::Interrupted(_)) => return Err(error),
                Err(error) => {
                    first_error.get_or_insert(named(&name, error));
                }
            }
        }
        first_error.map_or(Ok(()), Err)
    }
}

/// A count of written rows, for people.
pub(crate) fn rows_written(rows: u64) -> String {
    format!("{rows} {} written", if rows == 1 { "row" } else { "rows" })
}

fn named(name: &str, error: ShellError) -> ShellError {
    match error {
        error @ (ShellError::Interrupted(_) | ShellError::OutputClosed | ShellError::Job(_)) => error,
        error => ShellError::Job(format!("job `{name}` failed: {error}")),
    }
}

/// Runs a job in the foreground. The first request to stop ends it after its epoch, the second one drops it.
pub(crate) async fn foreground(
    job: &dyn Background,
    output: &Output,
    quiet: bool,
    interrupts: &mut Interrupts,
) -> Result<u64> {
    match interrupts.guard(job.wait()).await {
        Err(ShellError::Interrupted(signal)) => {
            if !quiet {
                output.note("stopping after the current epoch; again to abandon it").await?;
            }
            let rows = interrupts.guard(job.stop()).await?;
            if !quiet {
                output.note(&format!("stopped: {}", rows_written(rows))).await?;
            }
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
    use crate::interrupt::Signal;

    /// A job that does what its test says.
    struct Fake {
        state: watch::Sender<State>,
        stopping: Arc<Notify>,
        fails: bool,
    }

    impl Fake {
        fn new(state: State, fails: bool) -> Self {
            Self { state: watch::Sender::new(state), stopping: Arc::default(), fails }
        }
    }

    #[async_trait]
    impl Background for Fake {
        fn progress(&self) -> Progress {
            Progress { state: *self.state.borrow(), epochs: 2, rows: 3, position: "12:00".into() }
        }

        async fn caught_up(&self) -> Result<()> {
            std::future::pending().await
        }

        async fn stop(&self) -> Result<u64> {
            self.stopping.notify_one();
            if self.fails {
                return Err(ShellError::Assertion("broken".into()));
            }
            self.state.send_replace(State::Stopped);
            Ok(3)
        }

        async fn wait(&self) -> Result<u64> {
            self.state.subscribe().wait_for(|state| *state != State::Running).await.unwrap();
            Ok(3)
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
        let error = jobs.end(&output, false, &mut interrupts).await.unwrap_err();
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
        assert!(jobs.end(&output, false, &mut interrupts).await.is_ok());
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
        let job = Fake::new(State::Running, false);
        sender.send(Signal::Interrupt).await.unwrap();
        let error = foreground(&job, &output, false, &mut interrupts).await.unwrap_err();
        assert!(matches!(error, ShellError::Interrupted(Signal::Interrupt)));
        assert_eq!(job.progress().state, State::Stopped);
        output.flush().await.unwrap();
        assert!(captured.err().contains("stopped: 3 rows written"));
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
