//! One chain of records per job, which is both its memory and its fence.
//!
//! ```text
//! checkpoint-000000000001.json  generation 1 begins          checkpoint-000000000004.json  generation 2 takes over
//! checkpoint-000000000002.json  epoch 1 of it                checkpoint-000000000005.json  epoch 1 of it
//! checkpoint-000000000003.json  epoch 2 of it                …
//! ```
//!
//! Each record is written under the next number, and only if nobody has taken that number: of two processes that run
//! the same job, the one that is second at a number knows that the other took over, and can write nothing any more. A
//! commit needs a record, so it can commit nothing any more either. Old records are removed, so a number that is free may
//! have been taken once: a record counts only when there is none after it. (Numbers are taken one after the other, and
//! the newest record is never removed: where one was taken, there is a later one.)
//!
//! `checkpoint-N.done` says that the loads of record N are visible: a job that starts again long after the server has
//! forgotten their labels need not ask.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;

use chrono::{SecondsFormat, Utc};

use super::fingerprint::Fingerprint;
use super::record::{Checkpoint, Leftover, SourceState, VERSION};
use super::store::{CheckpointStore, Created};
use super::{CommitPermit, Committable, Epoch, Generation, LabelSeries, SourcePosition};
use crate::error::{Error, Result};
use crate::failpoints;

/// Epochs of earlier generations that are remembered to be cleaned up.
const MOST_LEFTOVERS: usize = 256;

/// What a job brings to its chain.
#[derive(Debug, Clone)]
pub struct ChainOptions {
    /// Name of the job.
    pub job: String,
    /// Records that are kept, at least 1.
    pub retain: usize,
    /// What the job is.
    pub fingerprint: Fingerprint,
    /// The sources, in the order of the plan.
    pub tables: Vec<String>,
    /// How its labels are made; `None` when its loads are not two-phase.
    pub labels: Option<LabelSeries>,
    /// What a person does to the job.
    pub note: Option<String>,
    /// FE nodes of sources and sink, by table.
    pub nodes: BTreeMap<String, Vec<String>>,
    /// The name was made of target and query: another cluster's job may have the same.
    pub unnamed: bool,
}

/// The newest record of a chain.
#[derive(Debug, Clone)]
pub struct Newest {
    /// Its number.
    pub seq: u64,
    /// The record.
    pub record: Checkpoint,
    /// Its loads are known to be visible, or it has none.
    pub settled: bool,
}

/// What a new record says.
#[derive(Debug, Clone)]
pub(super) struct Draft {
    pub epoch: Epoch,
    pub sources: Vec<SourceState>,
    pub previous: Option<Vec<SourceState>>,
    pub committables: Vec<Committable>,
    pub rows: Option<u64>,
    pub to_abort: Vec<Leftover>,
}

/// What became of writing a record.
#[derive(Debug)]
pub(super) enum Appended {
    /// It is durable.
    Recorded(CommitPermit),
    /// Another generation took the number: the reason to end with.
    Fenced {
        /// Who took over.
        error: Error,
        /// The record was written nevertheless, and whoever took over found it: the loads it names are theirs.
        recorded: bool,
    },
}

/// The chain of a job, as the generation that holds it sees it.
#[derive(Debug)]
pub(super) struct Chain {
    store: Arc<dyn CheckpointStore>,
    options: ChainOptions,
    writer: String,
    seq: u64,
    record: Checkpoint,
}

pub(super) fn record_name(seq: u64) -> String {
    format!("checkpoint-{seq:012}.json")
}

pub(super) fn done_name(seq: u64) -> String {
    format!("checkpoint-{seq:012}.done")
}

fn savepoint_name(name: &str) -> String {
    format!("savepoint-{name}.json")
}

/// The savepoint whose object this is.
pub(super) fn savepoint_in(object: &str) -> Option<&str> {
    object.strip_prefix("savepoint-")?.strip_suffix(".json")
}

/// The number in the name of a record (`extension` = `json`) or of a mark.
pub(super) fn number(name: &str, extension: &str) -> Option<u64> {
    let digits = name.strip_prefix("checkpoint-")?.strip_suffix(extension)?.strip_suffix('.')?;
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
}

/// A text that no other process or object has.
pub(crate) fn unique() -> String {
    let mut text = format!("{}-", std::process::id());
    for _ in 0..2 {
        // Each state has its own random keys.
        text.push_str(&format!("{:016x}", RandomState::new().build_hasher().finish()));
    }
    text
}

fn now() -> String {
    Utc::now().to_rfc3339_opts(SecondsFormat::Secs, true)
}

/// Reads the newest record of a job; `None` when it has none.
///
/// # Errors
/// [`Error::CheckpointStore`]; [`Error::Checkpoint`] when it cannot be understood.
pub async fn newest(store: &dyn CheckpointStore) -> Result<Option<Newest>> {
    loop {
        let names = store.list().await?;
        let Some(seq) = names.iter().filter_map(|name| number(name, "json")).max() else { return Ok(None) };
        let name = record_name(seq);
        // Gone since: others went on meanwhile.
        let Some(text) = store.read(&name).await? else { continue };
        let record = Checkpoint::parse(&format!("{}/{name}", store.location()), &text)?;
        let done = |seq: u64| names.contains(&done_name(seq));
        let settled = record.committables.is_empty() || done(seq) || record.carried_from.is_some_and(done);
        return Ok(Some(Newest { seq, record, settled }));
    }
}

/// Reads a record that was kept under a name.
///
/// # Errors
/// [`Error::Checkpoint`] when there is none, or it cannot be understood.
pub async fn savepoint(store: &dyn CheckpointStore, name: &str) -> Result<Checkpoint> {
    check_savepoint_name(name)?;
    let object = savepoint_name(name);
    match store.read(&object).await? {
        Some(text) => Checkpoint::parse(&format!("{}/{object}", store.location()), &text),
        None => {
            let names = store.list().await?;
            let known: Vec<&str> = names.iter().filter_map(|name| savepoint_in(name)).collect();
            let known = if known.is_empty() { "none".to_string() } else { known.join(", ") };
            let reason = format!("there is no savepoint '{name}' in {}; there are: {known}", store.location());
            Err(Error::Checkpoint { reason })
        }
    }
}

/// # Errors
/// [`Error::Checkpoint`] for a name that could not be the name of a file everywhere.
pub(crate) fn check_savepoint_name(name: &str) -> Result<()> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if !name.is_empty() && name.len() <= 100 && name.bytes().all(plain) {
        return Ok(());
    }
    let reason = format!("'{name}' cannot be the name of a savepoint: use letters, digits, '-', '_' and '.'");
    Err(Error::Checkpoint { reason })
}

/// The record with which a generation takes over after `newest`.
fn taking_over(newest: Option<&Newest>, options: &ChainOptions, writer: &str) -> Result<Checkpoint> {
    let mut claim = Checkpoint {
        version: VERSION,
        job: options.job.clone(),
        chain: unique(),
        generation: Generation(1),
        epoch: Epoch(0),
        writer: writer.to_string(),
        written_at: now(),
        sources: options
            .tables
            .iter()
            .map(|table| SourceState { table: table.clone(), position: SourcePosition::START })
            .collect(),
        previous: None,
        committables: vec![],
        rows: None,
        carried_from: None,
        to_abort: vec![],
        labels: options.labels.clone(),
        note: options.note.clone(),
        dropped: false,
        fingerprint: options.fingerprint.clone(),
        nodes: options.nodes.clone(),
    };
    let Some(Newest { seq, record: old, settled }) = newest else { return Ok(claim) };
    claim.generation = Generation(old.generation.0.saturating_add(1));
    if old.dropped {
        return Ok(claim);
    }
    check_fits(old, options)?;
    check_clusters(old, options)?;
    claim.sources = old.sources.clone();
    if !old.chain.is_empty() {
        claim.chain = old.chain.clone();
        claim.to_abort = old.to_abort.clone();
        claim.to_abort.push(old.next_epoch());
        let surplus = claim.to_abort.len().saturating_sub(MOST_LEFTOVERS);
        claim.to_abort.drain(..surplus);
    }
    if !settled {
        claim.previous = old.previous.clone();
        claim.committables = old.committables.clone();
        claim.carried_from = old.carried_from.or(Some(*seq));
    }
    Ok(claim)
}

/// Refuses a record of another job.
fn check_fits(record: &Checkpoint, options: &ChainOptions) -> Result<()> {
    record.fingerprint.check(&options.fingerprint, &options.job)?;
    let tables: Vec<&String> = record.sources.iter().map(|source| &source.table).collect();
    if tables != options.tables.iter().collect::<Vec<_>>() {
        let reason = format!(
            "job {} reads {:?}, but its checkpoint has positions of {tables:?}: begin anew under another job name",
            options.job, options.tables
        );
        return Err(Error::Checkpoint { reason });
    }
    Ok(())
}

/// Refuses to take over what a job of another cluster may have written. A cluster is known by its FE nodes: those that
/// come and go change nothing, as long as one stays from one start to the next.
fn check_clusters(record: &Checkpoint, options: &ChainOptions) -> Result<()> {
    if !options.unnamed {
        return Ok(());
    }
    for (table, nodes) in &options.nodes {
        let Some(known) = record.nodes.get(table).filter(|known| !known.is_empty() && !nodes.is_empty()) else {
            continue;
        };
        if !nodes.iter().any(|node| known.contains(node)) {
            let job = &options.job;
            let reason = format!(
                "job {job} was given no name, and the checkpoint under the name made of its target and query has the \
                 {table} of the cluster at {}, not of that at {}: give jobs of different clusters that share a \
                 directory names of their own (doris.job.name); if it is the same cluster under other addresses, set \
                 doris.job.name = '{job}' to go on",
                known.join(", "),
                nodes.join(", ")
            );
            return Err(Error::Checkpoint { reason });
        }
    }
    Ok(())
}

/// Writes a record under a number that was never taken. `Err` = it was: the record that shows it, if it is there still.
async fn take(store: &dyn CheckpointStore, seq: u64, text: &[u8]) -> Result<std::result::Result<(), Option<Vec<u8>>>> {
    if store.create(&record_name(seq), text.to_vec()).await? == Created::Exists {
        let by = store.read(&record_name(seq)).await?;
        // Perhaps by this very attempt, whose answer was lost.
        if by.as_deref() != Some(text) {
            return Ok(Err(by));
        }
    }
    let names = store.list().await?;
    match names.iter().filter_map(|name| number(name, "json")).max().filter(|newest| *newest > seq) {
        Some(newest) => Ok(Err(store.read(&record_name(newest)).await?)),
        None => Ok(Ok(())),
    }
}

/// Writes the record of a dropped job after whatever there is; gives its number.
///
/// # Errors
/// [`Error::CheckpointStore`].
pub(super) async fn write_fence(store: &dyn CheckpointStore, job: &str, generation: Generation) -> Result<u64> {
    let options = ChainOptions {
        job: job.to_string(),
        retain: usize::MAX,
        fingerprint: Fingerprint::default(),
        tables: vec![],
        labels: None,
        note: Some("dropped".into()),
        nodes: BTreeMap::new(),
        unnamed: false,
    };
    let record = Checkpoint { generation, dropped: true, ..taking_over(None, &options, &unique())? };
    let text = record.to_json()?;
    loop {
        let names = store.list().await?;
        let seq = names.iter().filter_map(|name| number(name, "json")).max().unwrap_or(0) + 1;
        if take(store, seq, &text).await?.is_ok() {
            return Ok(seq);
        }
    }
}

impl Chain {
    /// Takes the chain over: from now on earlier generations can write nothing. A job that is not the one of the
    /// newest record is refused before that.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] for a record of another job; [`Error::CheckpointStore`].
    pub async fn claim(store: Arc<dyn CheckpointStore>, options: ChainOptions) -> Result<Self> {
        let writer = unique();
        loop {
            let newest = newest(store.as_ref()).await?;
            let record = taking_over(newest.as_ref(), &options, &writer)?;
            let seq = newest.map_or(0, |newest| newest.seq) + 1;
            let text = record.to_json()?;
            failpoints::store(failpoints::CLAIM)?;
            if take(store.as_ref(), seq, &text).await?.is_ok() {
                failpoints::store(failpoints::CLAIMED)?;
                if let Err(error) = store.sweep().await {
                    tracing::warn!(job = %options.job, %error, "what killed processes left behind is not removed");
                }
                return Ok(Self { store, options, writer, seq, record });
            }
        }
    }

    /// The newest record of this generation.
    pub fn record(&self) -> &Checkpoint {
        &self.record
    }

    /// Its number.
    pub fn seq(&self) -> u64 {
        self.seq
    }

    /// The next record.
    pub fn next_record(&self, draft: Draft) -> Checkpoint {
        let Draft { epoch, sources, previous, committables, rows, to_abort } = draft;
        Checkpoint {
            epoch,
            sources,
            previous,
            committables,
            rows,
            to_abort,
            carried_from: None,
            note: None,
            written_at: now(),
            ..self.record.clone()
        }
    }

    /// Writes `record` under the next number. After an error it may be there or not: ask again with the same record.
    ///
    /// # Errors
    /// [`Error::CheckpointStore`].
    pub async fn append(&mut self, record: &Checkpoint) -> Result<Appended> {
        let (seq, text) = (self.seq + 1, record.to_json()?);
        failpoints::store(failpoints::RECORD)?;
        if let Err(by) = take(self.store.as_ref(), seq, &text).await? {
            let by = by.and_then(|text| Checkpoint::parse("", &text).ok());
            // A start that found this record has its loads in its own, until they are settled.
            let names = |load: &Committable| record.committables.iter().any(|own| own.label == load.label);
            let recorded = by.as_ref().is_some_and(|by| by.committables.iter().any(names));
            return Ok(Appended::Fenced { error: self.fenced(by.as_ref()), recorded });
        }
        failpoints::store(failpoints::RECORDED)?;
        self.seq = seq;
        self.record = record.clone();
        Ok(Appended::Recorded(CommitPermit::recorded()))
    }

    /// The right to commit the loads of the newest record.
    pub fn permit(&self) -> CommitPermit {
        CommitPermit::recorded()
    }

    fn fenced(&self, by: Option<&Checkpoint>) -> Error {
        let Checkpoint { job, generation, .. } = &self.record;
        let rest = format!("this one, generation {generation}, ends and can record nothing any more");
        let advice = "run a job once, or give each its own name";
        let reason = match by {
            Some(Checkpoint { note: Some(note), written_at, .. }) => {
                format!("job {job} was {note} at {written_at}: {rest}")
            }
            Some(Checkpoint { generation, written_at, .. }) => {
                format!("generation {generation} of job {job}, started at {written_at}, took over: {rest}; {advice}")
            }
            None => format!("another generation of job {job}, took over: {rest}; {advice}"),
        };
        Error::Checkpoint { reason }
    }

    /// Notes that the loads of the newest record are visible, and removes what is not kept any longer.
    ///
    /// # Errors
    /// [`Error::CheckpointStore`] when the mark cannot be written; a record that cannot be removed is only logged.
    pub async fn done(&self) -> Result<()> {
        if !self.record.committables.is_empty() {
            let mark = format!("generation {}, {}\n", self.record.generation, self.writer);
            failpoints::store(failpoints::DONE_MARK)?;
            self.store.put(&done_name(self.seq), mark.into_bytes()).await?;
            failpoints::store(failpoints::DONE_MARKED)?;
        }
        if let Err(error) = self.prune().await {
            tracing::warn!(job = %self.options.job, %error, "old checkpoints are not removed");
        }
        Ok(())
    }

    async fn prune(&self) -> Result<()> {
        let retain = u64::try_from(self.options.retain.max(1)).unwrap_or(u64::MAX);
        let old = |seq: u64| seq.saturating_add(retain) <= self.seq;
        for name in self.store.list().await? {
            if number(&name, "json").or_else(|| number(&name, "done")).is_some_and(old) {
                failpoints::store(failpoints::PRUNE)?;
                self.store.delete(&name).await?;
            }
        }
        Ok(())
    }

    /// Keeps the newest record under a name, until somebody removes it.
    ///
    /// # Errors
    /// [`Error::CheckpointStore`].
    pub async fn keep(&self, name: &str) -> Result<()> {
        check_savepoint_name(name)?;
        failpoints::store(failpoints::SAVEPOINT)?;
        self.store.put(&savepoint_name(name), self.record.to_json()?).await?;
        failpoints::store(failpoints::SAVEPOINT_KEPT)
    }

    /// The sources of a savepoint of this job.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] when there is none, or it is another job's.
    pub async fn savepoint(&self, name: &str) -> Result<Vec<SourceState>> {
        let record = savepoint(self.store.as_ref(), name).await?;
        check_fits(&record, &self.options)?;
        Ok(record.sources)
    }

    /// Where the newest record is, for people.
    pub fn place(&self) -> String {
        format!("{}/{}", self.store.location(), record_name(self.seq))
    }

    /// What to do when the server cannot tell what became of the newest record's loads.
    pub fn advice(&self) -> String {
        let first = self.record.carried_from.unwrap_or(self.seq);
        format!(
            "if their rows are in the table, write an empty object {}/{}, if they are not, remove {} and all records \
             after it; then start again",
            self.store.location(),
            done_name(first),
            record_name(first)
        )
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests;
