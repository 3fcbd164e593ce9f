//! Finishing what is recorded: commits that are repeated until they are done, and the work of a start.

use std::time::Duration;

use tracing::{info, warn};

use super::super::record::SourceState;
use super::super::recovery::{EpochDecision, RecoveryAction, decide, recover};
use super::super::{AbortOutcome, CommitPermit, Committable, Epoch, LoadKind, LoadSearch};
use super::{EpochLoop, NotRecorded};
use crate::error::{Error, Result, Retry};
use crate::failpoints;
use crate::protocol::LabelState;

/// How often a label whose state tells nothing is asked for again, after growing pauses: half a minute in all. An FE that
/// has just become master may not know it yet.
const UNCLEAR_ROUNDS: u32 = 5;
/// Pause before the states of labels are asked for again that have just changed.
const AGAIN: Duration = Duration::from_secs(1);

/// How loads that are in a checkpoint ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Settled {
    /// They are visible.
    Visible,
    /// The server has lost them, all of them: their range is to be read again.
    RangeLost,
}

/// What an epoch ends with whose range is read again.
pub(super) fn range_lost(label: String) -> Error {
    Error::Transaction {
        operation: "commit".into(),
        label,
        txn_id: None,
        reason: "the server aborted it after its pre-commit; its rows are read and written again".into(),
        retry: Retry::AskLabelState,
    }
}

impl EpochLoop {
    /// Commits loads that are in the newest record, until they are visible, or proven to be lost.
    ///
    /// # Errors
    /// When the attempts are used up or the server's answers do not fit: the record stays, and the next start goes on
    /// with it. [`Error::NothingRead`]: the record must not stay, see [`Self::go_back`].
    pub(super) async fn commit_recorded(&mut self, loads: &[Committable], permit: CommitPermit) -> Result<Settled> {
        if loads.is_empty() {
            self.mark_done().await;
            return Ok(Settled::Visible);
        }
        self.options.control.update(|status| {
            status.open_labels = loads.iter().map(|load| load.label.clone()).collect();
        });
        let settled = self.commit_until_done(loads, &permit).await?;
        if settled == Settled::Visible {
            self.mark_done().await;
        }
        self.options.control.update(|status| status.open_labels.clear());
        Ok(settled)
    }

    /// Puts the position before the rows of a recorded load of which Doris has read none: its label tells success, so the
    /// next start would take them for written. Gives the error to stop with. An epoch whose rows are staged is one load.
    ///
    /// Until the new record is there, nothing but this process knows: a start after its death finds the label only.
    pub(super) async fn go_back(&mut self, epoch: Epoch, before: Vec<SourceState>, error: Error) -> Error {
        let draft = self.draft(epoch, before, None, vec![]);
        let then = match self.record(draft).await {
            Ok(_) => "the job stands before them again: its next start reads and writes them once more".to_string(),
            Err(NotRecorded { error, .. }) => format!(
                "that could not be recorded ({error}), and the next start of the job would take them for written: reset it \
                 to a savepoint or an instant before them"
            ),
        };
        Error::Checkpoint { reason: format!("{error}; {then}") }
    }

    async fn commit_until_done(&mut self, loads: &[Committable], permit: &CommitPermit) -> Result<Settled> {
        let mut waiting: Vec<Committable> = loads.to_vec();
        let mut unclear = 0;
        loop {
            let mut failed = None;
            if !waiting.is_empty() {
                match self.sink.commit(&waiting, permit).await {
                    Ok(()) => return Ok(Settled::Visible),
                    // The label is that of rows that are in the table, and would tell so.
                    Err(error @ Error::NothingRead { .. }) => return Err(error),
                    Err(error) => failed = Some(error),
                }
            }
            let states = match self.states(loads).await {
                Ok(states) => states,
                Err(error) => {
                    self.pause_recorded(failed.unwrap_or(error)).await?;
                    continue;
                }
            };
            let pick = |which: &[usize]| which.iter().filter_map(|i| loads.get(*i).cloned()).collect::<Vec<_>>();
            let names = |which: &[usize]| {
                let named =
                    which.iter().filter_map(|i| Some(format!("{} ({})", loads.get(*i)?.label, states.get(*i)?.1)));
                named.collect::<Vec<_>>().join(", ")
            };
            match decide(&states) {
                EpochDecision::Commit(which) if which.is_empty() => {
                    self.sink.tidy_up(loads).await;
                    return Ok(Settled::Visible);
                }
                EpochDecision::Commit(which) => {
                    waiting = pick(&which);
                    if let Some(error) = failed {
                        self.pause_recorded(error).await?;
                    }
                }
                EpochDecision::Replay { abort } => {
                    warn!(labels = %names(&(0..loads.len()).collect::<Vec<_>>()), "recorded loads are lost");
                    match self.sink.abort(&pick(&abort)).await {
                        Ok(AbortOutcome::RolledBack) => return Ok(Settled::RangeLost),
                        // Meanwhile, by a commit whose answer was lost: their states tell.
                        Ok(AbortOutcome::Committed | AbortOutcome::Torn { .. }) => {
                            waiting.clear();
                            tokio::time::sleep(AGAIN).await;
                        }
                        Err(error) => {
                            waiting.clear();
                            self.pause_recorded(error).await?;
                        }
                    }
                }
                EpochDecision::Stop(_) if unclear < UNCLEAR_ROUNDS => {
                    waiting.clear();
                    tokio::time::sleep(Duration::from_secs(1 << unclear)).await;
                    unclear += 1;
                }
                EpochDecision::Stop(which) => {
                    let reason = format!(
                        "whether the rows of {} are in the table cannot be told (Doris forgets labels after \
                         streaming_label_keep_max_second): {}",
                        names(&which),
                        self.advice()
                    );
                    return Err(Error::Checkpoint { reason });
                }
                // Rows that are there already are replaced by themselves.
                EpochDecision::Torn { visible, gone, waiting: open } if self.sink.replaces_by_key() => {
                    warn!(visible = %names(&visible), gone = %names(&gone), "of one epoch some loads are lost");
                    match self.sink.abort(&pick(&open)).await {
                        Ok(_) => return Ok(Settled::RangeLost),
                        Err(error) => {
                            waiting.clear();
                            self.pause_recorded(error).await?;
                        }
                    }
                }
                EpochDecision::Torn { visible, gone, .. } => {
                    let reason = format!(
                        "of one epoch {} is visible, and {} is lost: empty the target or take its rows back, and go on \
                         from a savepoint or begin anew under another job name",
                        names(&visible),
                        names(&gone)
                    );
                    return Err(Error::Checkpoint { reason });
                }
            }
        }
    }

    async fn states(&self, loads: &[Committable]) -> Result<Vec<(LoadKind, LabelState)>> {
        let mut states = Vec::with_capacity(loads.len());
        for load in loads {
            let (kind, state) = (load.kind(), self.sink.label_state(load).await?);
            let to_be_run = matches!(state, LabelState::Unknown | LabelState::Aborted)
                && recover(kind, true, state) == RecoveryAction::Commit;
            if !to_be_run || !self.sink.is_lost(load).await? {
                states.push((kind, state));
                continue;
            }
            // Somebody may have run it meanwhile, and removed what it had taken.
            states.push(match self.sink.label_state(load).await? {
                // As if the server had lost rows that it had: they are read again.
                LabelState::Unknown | LabelState::Aborted => (LoadKind::TwoPhase, LabelState::Aborted),
                since => (kind, since),
            });
        }
        Ok(states)
    }

    /// Waits before a recorded epoch is tried again.
    ///
    /// # Errors
    /// That its rows are not visible yet, when there is no next attempt.
    async fn pause_recorded(&mut self, error: Error) -> Result<()> {
        match self.pause_after(error) {
            Ok(pause) => {
                tokio::time::sleep(pause).await;
                Ok(())
            }
            Err(error) => {
                let place = self.chain.as_ref().map(|chain| chain.place()).unwrap_or_default();
                let reason = format!(
                    "{error}; the epoch is recorded in {place}, and the next start of the job makes its rows visible"
                );
                Err(Error::Checkpoint { reason })
            }
        }
    }

    fn advice(&self) -> String {
        self.chain.as_ref().map(|chain| chain.advice()).unwrap_or_default()
    }

    async fn mark_done(&self) {
        if let Some(chain) = &self.chain
            && let Err(error) = chain.done().await
        {
            // The labels tell the same, for as long as the server remembers them.
            warn!(checkpoint = %chain.place(), %error, "a checkpoint was not marked as done");
        }
    }

    /// Finishes what earlier generations recorded, drops what they did not, and goes to their position.
    pub(super) async fn recover(&mut self, savepoint: Option<&str>) -> Result<()> {
        let Some(chain) = &self.chain else { return Ok(()) };
        let (record, permit) = (chain.record().clone(), chain.permit());
        if !record.committables.is_empty() {
            let labels: Vec<&str> = record.committables.iter().map(|load| load.label.as_str()).collect();
            info!(?labels, "finishing the epoch that was recorded last");
            failpoints::request(failpoints::RECOVER)?;
            let mut stop = None;
            let settled = match self.commit_recorded(&record.committables, permit).await {
                Err(error @ Error::NothingRead { .. }) => {
                    stop = Some(error);
                    Settled::RangeLost
                }
                settled => settled?,
            };
            if settled == Settled::RangeLost {
                let Some(previous) = record.previous.clone() else {
                    let why = stop.map(|error| format!(" ({error})")).unwrap_or_default();
                    let reason = format!(
                        "the rows of {labels:?} are lost{why}, and the checkpoint does not tell from where to read them \
                         again: begin anew under another job name"
                    );
                    return Err(Error::Checkpoint { reason });
                };
                if let Some(error) = stop {
                    return Err(self.go_back(record.epoch, previous, error).await);
                }
                let draft = self.draft(record.epoch, previous, None, vec![]);
                self.record(draft).await?;
            }
        }
        self.abort_leftovers().await?;
        if let (Some(name), Some(chain)) = (savepoint, &self.chain)
            && !self.restored
        {
            let sources = chain.savepoint(name).await?;
            let draft = self.draft(chain.record().epoch, sources, None, vec![]);
            self.record(draft).await?;
        }
        let Some(chain) = &self.chain else { return Ok(()) };
        let by_key = self.sink.replaces_by_key();
        for (source, state) in self.sources.iter().zip(chain.record().sources.clone()) {
            failpoints::request(failpoints::RESTORE)?;
            source.restore(&state.position, by_key).await?;
        }
        self.restored = true;
        Ok(())
    }

    /// Drops the loads of epochs that are in no checkpoint.
    async fn abort_leftovers(&mut self) -> Result<()> {
        let Some(job) = self.chain.as_ref().map(|chain| chain.record().label_job()) else { return Ok(()) };
        let mut left = Vec::new();
        for leftover in self.leftovers.clone() {
            let mut search = leftover
                .search(&job)
                .unwrap_or_else(|| LoadSearch::of(self.sink.loads_of(&job, leftover.generation, leftover.epoch)));
            while let Some(load) = search.next_load() {
                failpoints::request(failpoints::DROP_LEFTOVERS)?;
                let state = self.sink.label_state(&load).await?;
                search.answered(state);
                match recover(load.kind(), false, state) {
                    RecoveryAction::Abort => {
                        if let Err(error) = self.sink.abort(std::slice::from_ref(&load)).await {
                            // Nobody may commit it any more; the server drops it in time.
                            warn!(label = %load.label, %error, "a load of an earlier generation was not aborted");
                            if left.last() != Some(&leftover) {
                                left.push(leftover.clone());
                            }
                        }
                    }
                    RecoveryAction::Stop => {
                        let reason = format!(
                            "load {} of generation {} is visible and in no checkpoint: records after {} were removed; \
                             begin anew under another job name",
                            load.label,
                            leftover.generation,
                            self.chain.as_ref().map(|chain| chain.place()).unwrap_or_default()
                        );
                        return Err(Error::Checkpoint { reason });
                    }
                    _ => {}
                }
            }
        }
        self.leftovers = left;
        Ok(())
    }
}
