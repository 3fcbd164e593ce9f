//! Jobs seen and changed from outside: what is kept of them, other positions, the end of them.
//!
//! Nothing here needs the job's process. Whatever is changed is written through the job's chain, as a start of it would:
//! a process that still runs is fenced, commits nothing any more, and says by whom it was.
//!
//! ```text
//! reset ── take over ── settle what the newest record holds ── abort what is in none ── record the new positions
//! drop ─── take over ── settle ── abort ── a last record as a fence ── remove all before it, and the savepoints
//! ```

mod decisions;
mod description;
mod settle;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod testing;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests;

use std::sync::Arc;

pub use self::decisions::ResetTarget;
use self::decisions::{DropWay, check_settleable, drop_way, reset_positions};
use self::description::number_of;
pub use self::description::{JobDescription, KeptRecord, KeptSavepoint, PositionChange, RecordContent};
pub use self::settle::LoadService;
use self::settle::{Settled, Swept, settle, sweep};
use super::chain::{Appended, Chain, ChainOptions, Draft, number, record_name, savepoint_in, write_fence};
use super::record::{Checkpoint, Leftover, SourceState};
use super::store::{self, CheckpointStore};
use super::{Committable, Generation};
use crate::error::{Error, Result};

/// Everything that is kept of one job.
#[derive(Debug, Clone)]
pub struct JobAdmin {
    job: String,
    store: Arc<dyn CheckpointStore>,
}

/// What a reset did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResetOutcome {
    /// The generation that wrote the new positions: older ones are fenced.
    pub generation: u64,
    /// Each source, its new position, and what it means for its rows.
    pub sources: Vec<(SourceState, PositionChange)>,
    /// What became of open loads.
    pub loads: LoadsOutcome,
}

/// What a drop did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DropOutcome {
    /// What became of open loads.
    pub loads: LoadsOutcome,
    /// Objects that were removed.
    pub removed: usize,
    /// Savepoints that were kept.
    pub kept_savepoints: Vec<String>,
}

/// What became of open loads, by their labels.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LoadsOutcome {
    /// Recorded ones that are visible now.
    pub visible: Vec<String>,
    /// Recorded ones that the server had given up: their rows are not in the table.
    pub lost: Vec<String>,
    /// In no record, and aborted.
    pub aborted: Vec<String>,
    /// In no record, and visible nevertheless.
    pub unrecorded_visible: Vec<String>,
    /// Left as they are, with the reason where there is one: the next start sees to them, and after a drop the server's
    /// timeout.
    pub left: Vec<String>,
}

impl LoadsOutcome {
    fn add(&mut self, swept: Swept) {
        self.aborted.extend(swept.aborted);
        self.unrecorded_visible.extend(swept.visible);
        self.left.extend(swept.left);
    }
}

/// The jobs below `dir`, a value of `doris.checkpoint.dir`, by name; dropped ones only when savepoints of them are kept.
///
/// # Errors
/// [`Error::Config`] for a location that cannot be used, [`Error::Checkpoint`] for a directory that is not there,
/// [`Error::CheckpointStore`].
pub async fn list(dir: &str) -> Result<Vec<JobDescription>> {
    let mut jobs = Vec::new();
    for name in store::jobs(dir).await? {
        let job = JobAdmin::open(dir, &name)?.describe().await?;
        if !job.is_gone() {
            jobs.push(job);
        }
    }
    Ok(jobs)
}

impl JobAdmin {
    /// The job `job` below `dir`, a value of `doris.checkpoint.dir`.
    ///
    /// # Errors
    /// [`Error::Config`] for a location that cannot be used.
    pub fn open(dir: &str, job: &str) -> Result<Self> {
        Ok(Self::with_store(job, store::open(dir, job)?))
    }

    /// A job whose checkpoints are in a store of its own.
    pub fn with_store(job: impl Into<String>, store: Arc<dyn CheckpointStore>) -> Self {
        Self { job: job.into(), store }
    }

    /// All that is kept of the job.
    ///
    /// # Errors
    /// [`Error::CheckpointStore`]. Records that are not understood are shown as such.
    pub async fn describe(&self) -> Result<JobDescription> {
        'again: loop {
            let names = self.store.list().await?;
            let newest = names.iter().filter_map(|name| number(name, "json")).max();
            let mut objects = Vec::new();
            for name in &names {
                let seq = number(name, "json");
                if seq.is_none() && savepoint_in(name).is_none() {
                    continue;
                }
                match self.store.read(name).await? {
                    Some(text) => objects.push((name.clone(), text)),
                    // Others went on meanwhile.
                    None if seq.is_some() && seq == newest => continue 'again,
                    None => {}
                }
            }
            return Ok(JobDescription::of(&self.job, self.store.location(), &objects, &names));
        }
    }

    /// Takes over from every process of the job that may run, and gives its sources other positions: the next start goes
    /// on from there. Loads that the newest record holds are settled first, as that start would; what is in no record is
    /// aborted, or left to that start when there is no `server`.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] when there is no such job or savepoint, or it is not understood, for an instant that lies
    /// ahead, for open loads without a `server`, and when the server cannot tell what became of them: the positions are
    /// the old ones then. [`Error::CheckpointStore`].
    pub async fn reset(&self, target: &ResetTarget, server: Option<&dyn LoadService>) -> Result<ResetOutcome> {
        let job = self.describe().await?;
        let sources = reset_positions(&job, target, server.is_some())?;
        let mut chain = self.take_over(&job, target.note()).await?;
        let mut outcome = ResetOutcome { generation: chain.record().generation.0, ..ResetOutcome::default() };
        let old = self.settle(&chain, server, false, &mut outcome.loads).await?;
        let claimed = chain.record();
        let change = |(new, old): (&SourceState, &SourceState)| {
            (new.clone(), PositionChange::between(&old.position, &new.position))
        };
        outcome.sources = sources.iter().zip(&old).map(change).collect();
        // What was not looked after here is left to the next start.
        let looked_after = |load: &Leftover| server.is_some() && outcome.loads.left.is_empty() && load.labels.is_some();
        let to_abort = claimed.to_abort.iter().filter(|load| !looked_after(load)).cloned().collect();
        let draft = Draft { epoch: claimed.epoch, sources, previous: None, committables: vec![], rows: None, to_abort };
        let record = Checkpoint { note: Some(target.note()), ..chain.next_record(draft) };
        self.append(&mut chain, &record).await?;
        Ok(outcome)
    }

    /// Ends the job for good: processes of it are fenced, what the newest record holds is committed, what is in no record
    /// is aborted, and records, marks and savepoints are removed. One small record stays, as a fence: the next start of
    /// the name begins anew after it.
    ///
    /// `force`: also when the newest record is not understood, or its loads cannot be settled; what is left open is in the
    /// outcome. `keep_savepoints`: they stay, and a new job of the name can begin from one.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] when there is no such job; without `force` also when it is not understood, or for open loads
    /// that are not settled: nothing is removed then. [`Error::CheckpointStore`].
    pub async fn drop_job(
        &self,
        server: Option<&dyn LoadService>,
        force: bool,
        keep_savepoints: bool,
    ) -> Result<DropOutcome> {
        let job = self.describe().await?;
        let mut outcome = DropOutcome::default();
        let fence = match drop_way(&job, server.is_some(), force)? {
            DropWay::TakeOver => {
                let mut chain = self.take_over(&job, "dropped".into()).await?;
                self.settle(&chain, server, force, &mut outcome.loads).await?;
                let record = chain.record();
                let draft = Draft {
                    epoch: record.epoch,
                    sources: vec![],
                    previous: None,
                    committables: vec![],
                    rows: None,
                    to_abort: vec![],
                };
                let record = Checkpoint { note: Some("dropped".into()), dropped: true, ..chain.next_record(draft) };
                self.append(&mut chain, &record).await?;
                chain.seq()
            }
            DropWay::FenceOnly => {
                if let Some(newest) = job.newest() {
                    outcome.loads.left.push(format!("whatever checkpoint {} holds", newest.seq));
                }
                self.fence().await?
            }
        };
        let fence = record_name(fence);
        for name in self.store.list().await? {
            match savepoint_in(&name) {
                Some(savepoint) if keep_savepoints => outcome.kept_savepoints.push(savepoint.to_string()),
                None if name == fence || number(&name, "json").or(number(&name, "done")).is_none() => {}
                _ => {
                    self.store.delete(&name).await?;
                    outcome.removed += 1;
                }
            }
        }
        outcome.kept_savepoints.sort();
        Ok(outcome)
    }

    /// A generation after all others, which is the job as its newest record says.
    async fn take_over(&self, job: &JobDescription, note: String) -> Result<Chain> {
        let record = decisions::usable(job)?;
        let options = ChainOptions {
            job: record.job.clone(),
            // Nothing is removed here.
            retain: usize::MAX,
            fingerprint: record.fingerprint.clone(),
            tables: record.sources.iter().map(|source| source.table.clone()).collect(),
            labels: record.labels.clone(),
            note: Some(note),
            nodes: record.nodes.clone(),
            unnamed: false,
        };
        Chain::claim(Arc::clone(&self.store), options).await
    }

    /// Settles what the claimed record carries, and aborts what is in none. Gives the positions up to which rows are in
    /// the target.
    async fn settle(
        &self,
        chain: &Chain,
        server: Option<&dyn LoadService>,
        force: bool,
        outcome: &mut LoadsOutcome,
    ) -> Result<Vec<SourceState>> {
        let record = chain.record();
        let labels = |loads: &[Committable]| loads.iter().map(|load| load.label.clone()).collect::<Vec<_>>();
        let mut reached = record.sources.clone();
        if !record.committables.is_empty() {
            let settled = match server {
                Some(server) => settle(server, &record.committables, &chain.permit()).await,
                // Recorded by a process of the job since this one looked.
                None => check_settleable(&self.describe().await?, false).map(|()| Settled::Visible),
            };
            match settled {
                Ok(Settled::Visible) => {
                    chain.done().await?;
                    outcome.visible = labels(&record.committables);
                }
                Ok(Settled::RangeLost) => {
                    outcome.lost = labels(&record.committables);
                    reached = record.previous.clone().unwrap_or(reached);
                }
                Err(error) if force => {
                    outcome.left.extend(record.committables.iter().map(|load| match server {
                        Some(_) => format!("{} ({error})", load.label),
                        None => load.label.clone(),
                    }));
                }
                Err(error) => return Err(error),
            }
        }
        if let Some(server) = server {
            for leftover in &record.to_abort {
                if let Some(search) = leftover.search(&record.label_job()) {
                    outcome.add(sweep(server, search).await);
                }
            }
        }
        Ok(reached)
    }

    async fn append(&self, chain: &mut Chain, record: &Checkpoint) -> Result<()> {
        match chain.append(record).await? {
            Appended::Recorded(_) => Ok(()),
            Appended::Fenced { error, .. } => {
                let reason = format!("job {} was started or changed meanwhile, try again: {error}", self.job);
                Err(Error::Checkpoint { reason })
            }
        }
    }

    /// A record that fences without what the newest one says: it cannot be understood, or there is none.
    async fn fence(&self) -> Result<u64> {
        let generation = match self.newest_text().await? {
            Some(text) => number_of(&text, "generation").unwrap_or(0).saturating_add(1),
            None => 1,
        };
        write_fence(self.store.as_ref(), &self.job, Generation(generation)).await
    }

    async fn newest_text(&self) -> Result<Option<Vec<u8>>> {
        let names = self.store.list().await?;
        match names.iter().filter_map(|name| number(name, "json")).max() {
            Some(seq) => self.store.read(&record_name(seq)).await,
            None => Ok(None),
        }
    }
}
