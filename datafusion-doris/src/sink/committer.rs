//! Commit, abort, and finding out what became of an operation whose answer was lost.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, stream};
use tokio::time::Instant;

use super::tvf::{Stage, Taken};
use crate::checkpoint::{AbortOutcome, Committable};
use crate::client::retry::Backoff;
use crate::client::{DorisClient, TxnAnswer};
use crate::error::{Error, Result, Retry};
use crate::failpoints;
use crate::protocol::{
    LabelState, NextStep, PendingOperation, TxnEvent, TxnOperation, TxnOutcome, TxnRef, TxnStep, after_txn,
    after_unknown_outcome,
};

/// Commits and aborts of one statement or epoch that are on their way at once.
const AT_ONCE: usize = 8;

/// What an abort found.
#[derive(Debug)]
pub(super) enum Aborted {
    /// Nothing of the load is left.
    Gone,
    /// It had been committed.
    Committed {
        /// The server's text.
        said: String,
        /// The rows, when they were staged.
        taken: Option<Taken>,
    },
}

/// Ends transactions of one sink. All operations are idempotent.
#[derive(Debug, Clone)]
pub(super) struct Committer {
    pub(super) client: DorisClient,
    /// Further attempts after the first.
    pub(super) max_retries: usize,
    /// How long a label's state may stay open.
    pub(super) patience: Duration,
    /// Where the rows of staged loads lie.
    pub(super) stage: Option<Arc<Stage>>,
}

impl Committer {
    /// Makes the loads of one statement or epoch visible: the first by itself, then the others together. While the
    /// first is not visible, all of them can be taken back; most reasons for which a commit fails show there. Gives what
    /// became of the rows of those that were staged.
    ///
    /// # Errors
    /// That of the first load that failed. The others may be visible or not: [`Self::abort_all`] tells, but for
    /// [`Error::NothingRead`], which is final: there is nothing to take back.
    pub(super) async fn commit_all(&self, loads: &[Committable]) -> Result<Vec<Taken>> {
        let Some((first, rest)) = loads.split_first() else { return Ok(vec![]) };
        let mut taken: Vec<Taken> = self.commit(first).await?.into_iter().collect();
        taken.extend(self.commit_each(rest).await?);
        Ok(taken)
    }

    /// Commits the loads of one writer one after the other: a later one may hold a later change of the same key, and the
    /// order of the commits tells which counts. Those of different writers have no key in common.
    async fn commit_each(&self, loads: &[Committable]) -> Result<Vec<Taken>> {
        let mut lanes: BTreeMap<u32, Vec<&Committable>> = BTreeMap::new();
        for load in loads {
            lanes.entry(load.lane).or_default().push(load);
        }
        let commits: Vec<_> = lanes.into_values().map(|lane| self.commit_lane(lane)).collect();
        // Each is tried: a part of a statement is of no use.
        let outcomes: Vec<Result<Vec<Taken>>> = stream::iter(commits).buffered(AT_ONCE).collect().await;
        Ok(outcomes.into_iter().collect::<Result<Vec<_>>>()?.concat())
    }

    async fn commit_lane(&self, loads: Vec<&Committable>) -> Result<Vec<Taken>> {
        let mut taken = Vec::new();
        for load in loads {
            taken.extend(self.commit(load).await?);
        }
        Ok(taken)
    }

    /// Ends the loads of a statement that was dropped, perhaps while they were committed: if the first is visible, the
    /// others follow it, else all are dropped.
    ///
    /// # Errors
    /// As [`Self::commit_all`] and [`Self::abort_all`].
    pub(super) async fn give_up(&self, loads: &[Committable]) -> Result<()> {
        let Some((first, rest)) = loads.split_first() else { return Ok(()) };
        match self.abort_unless_committed(first).await? {
            Aborted::Committed { .. } => self.commit_each(rest).await.map(drop),
            Aborted::Gone => self.abort_all(rest).await.map(drop),
        }
    }

    /// Drops the loads of one statement or epoch, as far as they are not committed; gives what became of the rows of those
    /// that were staged and are committed.
    ///
    /// # Errors
    /// When it is not known of a load whether it is gone; the error names those that are committed.
    pub(super) async fn abort_all(&self, loads: &[Committable]) -> Result<(AbortOutcome, Vec<Taken>)> {
        let aborts: Vec<_> = loads.iter().map(|load| self.abort_unless_committed(load)).collect();
        let outcomes: Vec<Result<Aborted>> = stream::iter(aborts).buffered(AT_ONCE).collect().await;
        let (mut visible, mut gone, mut unclear, mut all_taken) = (vec![], vec![], None, vec![]);
        for (load, outcome) in loads.iter().zip(outcomes) {
            match outcome {
                Ok(Aborted::Committed { taken, .. }) => {
                    visible.push(load.label.clone());
                    all_taken.extend(taken);
                }
                Ok(Aborted::Gone) => gone.push(load.label.clone()),
                Err(error) => unclear = unclear.or(Some((load, error))),
            }
        }
        match unclear {
            Some((load, error)) if !visible.is_empty() => {
                let reason = format!("{error}; of the same statement {} is committed", visible.join(", "));
                Err(failure("abort", load, reason, error.retry()))
            }
            Some((_, error)) => Err(error),
            None if visible.is_empty() => Ok((AbortOutcome::RolledBack, all_taken)),
            None if gone.is_empty() => Ok((AbortOutcome::Committed, all_taken)),
            None => Ok((AbortOutcome::Torn { visible, gone }, all_taken)),
        }
    }

    /// Makes a pre-committed load visible.
    ///
    /// # Errors
    /// [`Error::Transaction`] when the server aborted or refused it ([`Retry::Never`]), or when its outcome could not
    /// be found out ([`Retry::AskLabelState`]).
    async fn commit(&self, load: &Committable) -> Result<Option<Taken>> {
        match &load.staged {
            Some(staged) => self.insert(load, staged).await.map(Some),
            None => self.commit_txn(load).await.map(|()| None),
        }
    }

    async fn commit_txn(&self, load: &Committable) -> Result<()> {
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
            let (event, said) = what_came_of(commit.await);
            let retry = said.retry();
            match after_txn(TxnOperation::Commit, event) {
                TxnStep::Done => return Ok(()),
                TxnStep::Again => last = Some(said.into_error(|text| failed(text, Retry::AskLabelState))),
                TxnStep::Look => {
                    let state = match self.client.label_state(&load.db, &load.label).await {
                        Ok(state) => state,
                        Err(error) => {
                            last = Some(error);
                            continue;
                        }
                    };
                    match after_unknown_outcome(PendingOperation::Commit, state) {
                        NextStep::Done => return Ok(()),
                        NextStep::Stop => {
                            let reason = "the server aborted it; its rows are not in the table".to_string();
                            return Err(failed(reason, Retry::Never));
                        }
                        _ => {
                            let reason = format!(
                                "{said} and the label is {state}: whether its rows are in the table cannot be confirmed"
                            );
                            last = Some(failed(reason, Retry::AskLabelState));
                        }
                    }
                }
                TxnStep::AskLabelState => match self.settle(PendingOperation::Commit, load).await? {
                    NextStep::Done => return Ok(()),
                    NextStep::CommitAgain => last = Some(said.into_error(|text| failed(text, retry))),
                    _ => {
                        let reason = format!("{said}, and the label is aborted: its rows are not in the table");
                        return Err(failed(reason, Retry::Never));
                    }
                },
                TxnStep::Visible | TxnStep::Stop => {
                    return Err(said.into_error(|text| {
                        let lost = event == TxnEvent::AlreadyAborted;
                        let rows = if lost { "; its rows are not in the table" } else { "" };
                        failed(format!("{text}{rows}"), Retry::Never)
                    }));
                }
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
            Aborted::Committed { said, .. } => {
                Err(failure("abort", load, format!("it is committed: {said}"), Retry::Never))
            }
        }
    }

    /// [`Self::abort`], where finding the load committed is an answer too.
    async fn abort_unless_committed(&self, load: &Committable) -> Result<Aborted> {
        if let Some(staged) = &load.staged {
            return self.take_back(load, staged).await;
        }
        let failed = |reason: String, retry| failure("abort", load, reason, retry);
        let mut backoff = Backoff::new();
        let mut last = None;
        for attempt in 0..=self.max_retries {
            if attempt > 0 {
                tokio::time::sleep(backoff.next_pause()).await;
            }
            let answer = self.client.finish_txn(&load.db, TxnOperation::Abort, txn_of(load)).await;
            let (event, said) = what_came_of(answer);
            match after_txn(TxnOperation::Abort, event) {
                TxnStep::Done => return Ok(Aborted::Gone),
                TxnStep::Visible => return Ok(Aborted::Committed { said: said.to_string(), taken: None }),
                TxnStep::Stop => return Err(said.into_error(|text| failed(text, Retry::Never))),
                TxnStep::Again | TxnStep::Look | TxnStep::AskLabelState => {
                    last = Some(said.into_error(|text| failed(text, Retry::AskLabelState)));
                }
            }
        }
        Err(last.unwrap_or_else(|| failed("no attempt was made".into(), Retry::AskLabelState)))
    }

    /// Waits until committed loads can be read, `limit` at most. They are committed in any case.
    pub(super) async fn wait_visible(&self, loads: &[Committable], limit: Duration) {
        let deadline = Instant::now() + limit;
        for load in loads {
            let mut backoff = Backoff::new();
            loop {
                let observed = match self.client.label_state(&load.db, &load.label).await {
                    Ok(LabelState::Visible) => break,
                    Ok(state) => format!("the label is {state}"),
                    Err(error) => error.to_string(),
                };
                let pause = backoff.next_pause();
                if Instant::now() + pause > deadline {
                    tracing::warn!(
                        table = %format!("{}.{}", load.db, load.table),
                        label = %load.label,
                        observed,
                        "rows are committed and could not be read within 'sink.visible-wait-timeout'"
                    );
                    break;
                }
                tokio::time::sleep(pause).await;
            }
        }
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
    /// have left a load behind. False when the server does not know the label at all.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] when the label was committed already; [`Error::Transaction`] when it is not freed.
    pub(super) async fn clear_leftover(&self, load: &Committable) -> Result<bool> {
        let deadline = Instant::now() + self.patience;
        let mut backoff = Backoff::new();
        loop {
            let state = self.client.label_state(&load.db, &load.label).await?;
            match after_unknown_outcome(PendingOperation::Leftover, state) {
                NextStep::Resend | NextStep::Done => return Ok(state != LabelState::Unknown),
                NextStep::AbortAgain => return self.abort(load).await.map(|()| true),
                NextStep::Wait if Instant::now() < deadline => {
                    tracing::debug!(label = %load.label, "an earlier load under this label is still running");
                    tokio::time::sleep(backoff.next_pause()).await;
                }
                NextStep::Wait => {
                    let reason = "an earlier load under this label is still running".to_string();
                    return Err(failure("resolve", load, reason, Retry::AskLabelState));
                }
                NextStep::Stop | NextStep::CommitAgain => {
                    let reason = format!(
                        "label {} of table {}.{} is {state} already: rows were written under it before. They are \
                         in the table; a job that shall write them again needs a new generation",
                        load.label, load.db, load.table
                    );
                    return Err(Error::Checkpoint { reason });
                }
            }
        }
    }
}

/// What a server said, or why it could not be asked.
#[derive(Debug)]
enum Said {
    Text(String),
    Error(Error),
}

impl Said {
    fn retry(&self) -> Retry {
        match self {
            Said::Text(_) => Retry::AskLabelState,
            Said::Error(error) => error.retry(),
        }
    }

    /// The error itself, or one that `of` makes of the text.
    fn into_error(self, of: impl FnOnce(String) -> Error) -> Error {
        match self {
            Said::Text(text) => of(text),
            Said::Error(error) => error,
        }
    }
}

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Said::Text(text) => f.write_str(text),
            Said::Error(error) => error.fmt(f),
        }
    }
}

fn what_came_of(answer: Result<TxnAnswer>) -> (TxnEvent, Said) {
    match answer {
        Ok(TxnAnswer { outcome, message, .. }) => {
            let event = TxnEvent::from(&outcome);
            let text = match outcome {
                TxnOutcome::Refused { message, .. } => message,
                _ => message,
            };
            (event, Said::Text(text))
        }
        Err(error) => (TxnEvent::from(&error), Said::Error(error)),
    }
}

fn txn_of(load: &Committable) -> TxnRef {
    load.txn_id.map_or_else(|| TxnRef::Label(load.label.clone()), TxnRef::Id)
}

pub(super) fn failure(operation: &str, load: &Committable, reason: String, retry: Retry) -> Error {
    Error::Transaction { operation: operation.into(), label: load.label.clone(), txn_id: load.txn_id, reason, retry }
}
