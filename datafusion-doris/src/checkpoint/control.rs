//! How a run of epochs is watched and asked for something, from outside of the plan.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;

use super::Generation;
use crate::error::{Error, Outlook};

/// Longest pause before a failed epoch is tried again.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// Failures in a row that are tried again when the server's error does not tell whether that helps.
const MOST_UNCLEAR: u32 = 5;

/// A run of epochs at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunStatus {
    /// Generation of the job; `None` without checkpoints.
    pub generation: Option<Generation>,
    /// Number of the newest checkpoint of this run.
    pub checkpoint: Option<u64>,
    /// Labels of loads that are in that checkpoint and not known to be visible.
    pub open_labels: Vec<String>,
    /// Failures since the last epoch that was committed.
    pub failures: u32,
    /// The last of them.
    pub last_error: Option<String>,
}

/// Watches a run and asks it for checkpoints; shared by all copies of the sink's node.
#[derive(Debug)]
pub struct RunControl {
    status: Mutex<RunStatus>,
    requested: watch::Sender<u64>,
    served: watch::Sender<u64>,
    savepoint: Mutex<Option<String>>,
}

impl Default for RunControl {
    fn default() -> Self {
        Self {
            status: Mutex::default(),
            requested: watch::Sender::new(0),
            served: watch::Sender::new(0),
            savepoint: Mutex::default(),
        }
    }
}

impl RunControl {
    /// How the run stands.
    pub fn status(&self) -> RunStatus {
        self.status.lock().clone()
    }

    /// Asks for a checkpoint after the next epoch, which begins without waiting for the interval; gives the number of
    /// the request.
    pub fn request_checkpoint(&self) -> u64 {
        let mut number = 0;
        self.requested.send_modify(|requested| {
            *requested += 1;
            number = *requested;
        });
        number
    }

    /// Waits until the request is fulfilled.
    pub async fn checkpoint_written(&self, request: u64) {
        let mut served = self.served.subscribe();
        // The sender lives as long as `self`.
        let _ = served.wait_for(|served| *served >= request).await;
    }

    /// Asks that the last checkpoint be kept under `name` when the run ends.
    pub fn request_savepoint(&self, name: String) {
        *self.savepoint.lock() = Some(name);
    }

    pub(super) fn savepoint(&self) -> Option<String> {
        self.savepoint.lock().clone()
    }

    pub(super) fn update(&self, change: impl FnOnce(&mut RunStatus)) {
        change(&mut self.status.lock());
    }

    pub(super) fn requested(&self) -> u64 {
        *self.requested.borrow()
    }

    pub(super) fn served(&self) -> u64 {
        *self.served.borrow()
    }

    pub(super) fn serve(&self, request: u64) {
        self.served.send_replace(request);
    }

    /// Waits for a request that is not fulfilled.
    pub(super) async fn asked(&self) {
        let served = self.served();
        let mut requested = self.requested.subscribe();
        let _ = requested.wait_for(|requested| *requested > served).await;
    }
}

/// Counts failures in a row, and decides whether to go on.
#[derive(Debug)]
pub(super) struct Failures {
    /// Most in a row that are tried again; `None` = any number.
    limit: Option<u32>,
    in_row: u32,
    unclear: u32,
}

impl Failures {
    pub fn new(limit: Option<u32>) -> Self {
        Self { limit, in_row: 0, unclear: 0 }
    }

    /// How long to wait before the next attempt; `None` = there is none.
    pub fn next_pause(&mut self, error: &Error) -> Option<Duration> {
        match error.outlook() {
            Outlook::Permanent => return None,
            Outlook::Unclear => self.unclear += 1,
            Outlook::Passing => {}
        }
        if self.unclear > MOST_UNCLEAR || self.limit.is_some_and(|limit| self.in_row >= limit) {
            return None;
        }
        let pause = Duration::from_secs(1).saturating_mul(1 << self.in_row.min(10));
        self.in_row += 1;
        Some(pause.min(LONGEST_PAUSE))
    }

    pub fn in_row(&self) -> u32 {
        self.in_row
    }

    /// There was progress.
    pub fn reset(&mut self) {
        (self.in_row, self.unclear) = (0, 0);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;
    use crate::error::Retry;

    fn lost() -> Error {
        let source = Box::new(std::io::Error::from(std::io::ErrorKind::ConnectionReset));
        Error::Transport { host: "fe".into(), operation: "x".into(), retry: Retry::AskLabelState, source }
    }

    fn answered() -> Error {
        Error::Server { host: "fe".into(), operation: "x".into(), code: None, message: "no".into() }
    }

    #[test]
    fn pauses_grow_to_thirty_seconds_for_any_number_of_lost_connections() {
        let mut failures = Failures::new(None);
        let pauses: Vec<u64> = (0..40).map(|_| failures.next_pause(&lost()).unwrap().as_secs()).collect();
        assert_eq!(pauses[..7], [1, 2, 4, 8, 16, 30, 30]);
        assert_eq!(pauses[39], 30);
        failures.reset();
        assert_eq!(failures.next_pause(&lost()).unwrap().as_secs(), 1);
    }

    #[test]
    fn limit_and_kind_of_error_end_the_attempts() {
        let mut limited = Failures::new(Some(2));
        assert!(limited.next_pause(&lost()).is_some() && limited.next_pause(&lost()).is_some());
        assert!(limited.next_pause(&lost()).is_none());
        assert!(Failures::new(Some(0)).next_pause(&lost()).is_none());
        let mut unclear = Failures::new(None);
        assert_eq!((0..9).filter(|_| unclear.next_pause(&answered()).is_some()).count(), 5);
        let permanent = Error::Checkpoint { reason: "no".into() };
        assert!(Failures::new(None).next_pause(&permanent).is_none());
        let wrapped = Error::from(datafusion::error::DataFusionError::from(lost()).context("an operator"));
        assert!(Failures::new(None).next_pause(&wrapped).is_some());
    }

    #[tokio::test]
    async fn request_is_fulfilled_once() {
        let control = RunControl::default();
        let request = control.request_checkpoint();
        control.asked().await;
        assert!(futures::FutureExt::now_or_never(control.checkpoint_written(request)).is_none());
        control.serve(control.requested());
        control.checkpoint_written(request).await;
        assert!(futures::FutureExt::now_or_never(control.asked()).is_none());
    }
}
