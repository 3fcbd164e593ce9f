//! Finishing by hand what a job has left open.

use async_trait::async_trait;

use super::super::recovery::{EpochDecision, RecoveryAction, decide, recover};
use super::super::{AbortOutcome, CommitPermit, Committable, LoadKind, LoadSearch};
use crate::error::{Error, Result};
use crate::protocol::LabelState;

/// Rounds of asking and committing before a load is given up: each ends with a question for its state.
const ROUNDS: usize = 3;

/// The server's side of loads that were pre-committed by another process.
#[async_trait]
pub trait LoadService: Send + Sync + std::fmt::Debug {
    /// What the server says about a load.
    ///
    /// # Errors
    /// When it cannot be asked.
    async fn label_state(&self, load: &Committable) -> Result<LabelState>;

    /// Makes a pre-committed load visible. Idempotent.
    ///
    /// # Errors
    /// When it is not known to be visible.
    async fn commit(&self, load: &Committable, permit: &CommitPermit) -> Result<()>;

    /// Rolls a load back. Idempotent. Finding it committed is an answer, not an error.
    ///
    /// # Errors
    /// When it could not be rolled back.
    async fn abort(&self, load: &Committable) -> Result<AbortOutcome>;
}

/// How the loads of the newest record ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Settled {
    Visible,
    RangeLost,
}

fn labels(loads: &[Committable]) -> String {
    loads.iter().map(|load| load.label.as_str()).collect::<Vec<_>>().join(", ")
}

/// Commits the loads of a record, as the next start would.
///
/// # Errors
/// [`Error::Checkpoint`] when it cannot be told what became of them, or only a part of them is visible; the server's
/// error when they are not visible in the end.
pub(super) async fn settle(server: &dyn LoadService, loads: &[Committable], permit: &CommitPermit) -> Result<Settled> {
    let mut last = None;
    for _ in 0..ROUNDS {
        let mut states = Vec::with_capacity(loads.len());
        for load in loads {
            states.push(server.label_state(load).await?);
        }
        let pick = |which: &[usize]| which.iter().filter_map(|i| loads.get(*i).cloned()).collect::<Vec<_>>();
        let staged = |(load, state): &(&Committable, &LabelState)| {
            load.staged.is_some() && !matches!(state, LabelState::Committed | LabelState::Visible)
        };
        if let Some((load, state)) = loads.iter().zip(&states).find(staged) {
            // Whoever has recorded it may run its statement at any time: only a start of the job ends that.
            let reason = format!(
                "the rows of {} are staged in an object store, and its label is {state}: start the job once more, which \
                 takes them into the table, or drop it by force",
                load.label
            );
            return Err(Error::Checkpoint { reason });
        }
        let known: Vec<_> = states.iter().map(|state| (LoadKind::TwoPhase, *state)).collect();
        match decide(&known) {
            EpochDecision::Commit(which) if which.is_empty() => return Ok(Settled::Visible),
            EpochDecision::Commit(which) => {
                for load in pick(&which) {
                    if let Err(error) = server.commit(&load, permit).await {
                        last = Some(error);
                        // Not the next ones: the fewer are visible when this one is lost, the better.
                        break;
                    }
                }
            }
            EpochDecision::Replay { abort } => {
                let mut clean = true;
                for load in pick(&abort) {
                    match server.abort(&load).await {
                        Ok(AbortOutcome::RolledBack) => {}
                        Ok(AbortOutcome::Committed | AbortOutcome::Torn { .. }) => clean = false,
                        Err(error) => {
                            clean = false;
                            last = Some(error);
                        }
                    }
                }
                if clean {
                    return Ok(Settled::RangeLost);
                }
            }
            EpochDecision::Stop(which) => {
                let reason = format!(
                    "whether the rows of {} are in the table cannot be told: the server does not know their labels (any \
                     more), or still writes them",
                    labels(&pick(&which))
                );
                return Err(Error::Checkpoint { reason });
            }
            EpochDecision::Torn { visible, gone, .. } => {
                let reason = format!(
                    "of one epoch {} is visible, and {} is lost: empty the target or take its rows back, and drop the \
                     job by force",
                    labels(&pick(&visible)),
                    labels(&pick(&gone))
                );
                return Err(Error::Checkpoint { reason });
            }
        }
    }
    Err(last.unwrap_or_else(|| Error::Checkpoint { reason: format!("{} are not visible yet", labels(loads)) }))
}

/// What became of loads that are in no record.
#[derive(Debug, Default)]
pub(super) struct Swept {
    pub aborted: Vec<String>,
    /// Visible all the same.
    pub visible: Vec<String>,
    /// Not aborted, with the reason.
    pub left: Vec<String>,
}

/// Aborts loads that are in no record.
pub(super) async fn sweep(server: &dyn LoadService, mut search: LoadSearch) -> Swept {
    let mut swept = Swept::default();
    while let Some(load) = search.next_load() {
        let action = server.label_state(&load).await.map(|state| {
            search.answered(state);
            recover(load.kind(), false, state)
        });
        let label = load.label.clone();
        match action {
            Ok(RecoveryAction::Abort) => match server.abort(&load).await {
                Ok(AbortOutcome::RolledBack) => swept.aborted.push(label),
                Ok(AbortOutcome::Committed | AbortOutcome::Torn { .. }) => swept.visible.push(label),
                Err(error) => swept.left.push(format!("{label} ({error})")),
            },
            Ok(RecoveryAction::Stop) => swept.visible.push(label),
            Ok(_) => {}
            Err(error) => swept.left.push(format!("{label} ({error})")),
        }
    }
    swept
}
