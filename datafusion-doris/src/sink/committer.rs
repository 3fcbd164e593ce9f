//! Commit, abort, and finding out what became of an operation whose answer was lost.

use std::time::Duration;

use tokio::time::Instant;

use crate::checkpoint::Committable;
use crate::client::DorisClient;
use crate::client::retry::Backoff;
use crate::error::{Error, Result, Retry};
use crate::failpoints;
use crate::protocol::{
    LabelState, NextStep, PendingOperation, TxnOperation, TxnOutcome, TxnRef, after_unknown_outcome,
};

/// What an abort found.
#[derive(Debug)]
pub(super) enum Aborted {
    /// Nothing of the load is left.
    Gone,
    /// It had been committed; the server's text.
    Committed(String),
}

/// Ends transactions of one sink. All operations are idempotent.
#[derive(Debug, Clone)]
pub(super) struct Committer {
    pub(super) client: DorisClient,
    /// Further attempts after the first.
    pub(super) max_retries: usize,
    /// How long a label's state may stay open.
    pub(super) patience: Duration,
}

impl Committer {
    /// Makes a pre-committed load visible.
    ///
    /// # Errors
    /// [`Error::Transaction`] when the server aborted or refused it ([`Retry::Never`]), or when its outcome could not
    /// be found out ([`Retry::AskLabelState`]).
    pub(super) async fn commit(&self, load: &Committable) -> Result<()> {
        let failed = |reason: String, retry| failure("commit", load, reason, retry);
        let mut backoff = Backoff::new();
        let mut last = None;
        for attempt in 0..=self.max_retries {
            if attempt > 0 {
                tokio::time::sleep(backoff.next_pause()).await;
            }
            let commit = async {
                failpoints::request(failpoints::COMMIT)?;
                let answer = self.client.finish_txn(&load.db, TxnOperation::Commit, txn_of(load)).await?;
                failpoints::answer(failpoints::COMMITTED)?;
                Ok::<_, Error>(answer)
            };
            match commit.await {
                Ok(answer) if answer.outcome.fulfils(TxnOperation::Commit) => return Ok(()),
                Ok(answer) => match answer.outcome {
                    TxnOutcome::AlreadyAborted => {
                        let reason = format!("{}; its rows are not in the table", answer.message);
                        return Err(failed(reason, Retry::Never));
                    }
                    TxnOutcome::Refused { retry: Retry::Never, message } => {
                        return Err(failed(message, Retry::Never));
                    }
                    TxnOutcome::NotFound => match self.client.label_state(&load.db, &load.label).await {
                        Ok(LabelState::Committed | LabelState::Visible) => return Ok(()),
                        Ok(LabelState::Aborted) => {
                            let reason = "the server aborted it; its rows are not in the table".to_string();
                            return Err(failed(reason, Retry::Never));
                        }
                        Ok(state) => {
                            let reason = format!(
                                "{} and the label is {state}: whether its rows are in the table cannot be confirmed",
                                answer.message
                            );
                            last = Some(failed(reason, Retry::AskLabelState));
                        }
                        Err(error) => last = Some(error),
                    },
                    _ => last = Some(failed(answer.message, Retry::AskLabelState)),
                },
                Err(error) if error.retry() == Retry::Never => return Err(error),
                Err(error) => match self.settle(PendingOperation::Commit, load).await? {
                    NextStep::Done => return Ok(()),
                    NextStep::CommitAgain => last = Some(error),
                    _ => {
                        let reason = format!("{error}, and the label is aborted: its rows are not in the table");
                        return Err(failed(reason, Retry::Never));
                    }
                },
            }
        }
        Err(last.unwrap_or_else(|| failed("no attempt was made".into(), Retry::AskLabelState)))
    }

    /// Drops a load: frees its label. A load that is gone already is fine.
    ///
    /// # Errors
    /// [`Error::Transaction`]: with [`Retry::Never`] when it is committed already, so its rows stay.
    pub(super) async fn abort(&self, load: &Committable) -> Result<()> {
        match self.abort_unless_committed(load).await? {
            Aborted::Gone => Ok(()),
            Aborted::Committed(message) => {
                Err(failure("abort", load, format!("it is committed: {message}"), Retry::Never))
            }
        }
    }

    /// [`Self::abort`], where finding the load committed is an answer too.
    pub(super) async fn abort_unless_committed(&self, load: &Committable) -> Result<Aborted> {
        let failed = |reason: String, retry| failure("abort", load, reason, retry);
        let mut backoff = Backoff::new();
        let mut last = None;
        for attempt in 0..=self.max_retries {
            if attempt > 0 {
                tokio::time::sleep(backoff.next_pause()).await;
            }
            match self.client.finish_txn(&load.db, TxnOperation::Abort, txn_of(load)).await {
                Ok(answer) if answer.outcome.fulfils(TxnOperation::Abort) => return Ok(Aborted::Gone),
                Ok(answer) => match answer.outcome {
                    TxnOutcome::AlreadyCommitted => return Ok(Aborted::Committed(answer.message)),
                    TxnOutcome::Refused { retry: Retry::Never, message } => {
                        return Err(failed(message, Retry::Never));
                    }
                    _ => last = Some(failed(answer.message, Retry::AskLabelState)),
                },
                Err(error) if error.retry() == Retry::Never => return Err(error),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| failed("no attempt was made".into(), Retry::AskLabelState)))
    }

    /// Asks the label's state until it tells what became of `operation`.
    ///
    /// # Errors
    /// [`Error::Transaction`] with [`Retry::AskLabelState`] when the state stays open for longer than the load may
    /// take.
    pub(super) async fn settle(&self, operation: PendingOperation, load: &Committable) -> Result<NextStep> {
        let deadline = Instant::now() + self.patience;
        let mut backoff = Backoff::new();
        loop {
            let observed = match self.client.label_state(&load.db, &load.label).await {
                Ok(state) => match after_unknown_outcome(operation, state) {
                    NextStep::Wait => format!("the label is {state}"),
                    step => return Ok(step),
                },
                Err(error @ Error::Auth { .. }) => return Err(error),
                Err(error) => error.to_string(),
            };
            let pause = backoff.next_pause();
            if Instant::now() + pause > deadline {
                let reason = format!(
                    "the answer was lost and {observed} after {} s; ask its state before the rows are sent again",
                    self.patience.as_secs()
                );
                return Err(failure("resolve", load, reason, Retry::AskLabelState));
            }
            tokio::time::sleep(pause).await;
        }
    }

    /// Makes sure that a label with a fixed meaning is free, before rows are sent under it: an earlier process may
    /// have left a load behind.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] when the label was committed already; [`Error::Transaction`] when it is not freed.
    pub(super) async fn clear_leftover(&self, load: &Committable) -> Result<()> {
        let deadline = Instant::now() + self.patience;
        let mut backoff = Backoff::new();
        loop {
            let state = self.client.label_state(&load.db, &load.label).await?;
            match state {
                LabelState::Unknown | LabelState::Aborted => return Ok(()),
                LabelState::PreCommitted => return self.abort(load).await,
                LabelState::Committed | LabelState::Visible => {
                    let reason = format!(
                        "label {} of table {}.{} is {state} already: this epoch was written before; start a new \
                         generation",
                        load.label, load.db, load.table
                    );
                    return Err(Error::Checkpoint { reason });
                }
                LabelState::Prepare if Instant::now() < deadline => {
                    tracing::debug!(label = %load.label, "an earlier load under this label is still running");
                    tokio::time::sleep(backoff.next_pause()).await;
                }
                LabelState::Prepare => {
                    let reason = "an earlier load under this label is still running".to_string();
                    return Err(failure("resolve", load, reason, Retry::AskLabelState));
                }
            }
        }
    }
}

fn txn_of(load: &Committable) -> TxnRef {
    load.txn_id.map_or_else(|| TxnRef::Label(load.label.clone()), TxnRef::Id)
}

fn failure(operation: &str, load: &Committable, reason: String, retry: Retry) -> Error {
    Error::Transaction { operation: operation.into(), label: load.label.clone(), txn_id: load.txn_id, reason, retry }
}
