//! What `jobs` shows, as tables: no I/O.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, BooleanArray, Float64Array, Int64Array, StringArray, UInt64Array};
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion_doris::checkpoint::admin::{JobDescription, KeptRecord, PositionChange, RecordContent};
use datafusion_doris::checkpoint::record::{Checkpoint, SourceState};
use datafusion_doris::checkpoint::{Committable, SourcePosition};
use datafusion_doris::protocol::LabelState;

use crate::context::{instant, place};

type Table = Result<RecordBatch, ArrowError>;

fn table<const N: usize>(columns: [(&str, ArrayRef); N]) -> Table {
    RecordBatch::try_from_iter(columns)
}

fn texts(values: impl IntoIterator<Item = Option<String>>) -> ArrayRef {
    Arc::new(values.into_iter().collect::<StringArray>())
}

fn numbers(values: impl IntoIterator<Item = Option<u64>>) -> ArrayRef {
    Arc::new(values.into_iter().collect::<UInt64Array>())
}

fn positions_text(sources: &[SourceState]) -> String {
    let texts: Vec<String> =
        sources.iter().map(|source| format!("{}: {}", source.table, place(&source.position))).collect();
    texts.join(", ")
}

fn state_of(job: &JobDescription) -> String {
    match job.newest().map(|newest| &newest.content) {
        None => "no checkpoint".to_owned(),
        Some(RecordContent::Newer { version }) => format!("format version {version}: not known here"),
        Some(RecordContent::Broken { .. }) => "unreadable".to_owned(),
        Some(RecordContent::Known(record)) if record.dropped => "dropped".to_owned(),
        Some(RecordContent::Known(_)) if !job.open_loads().is_empty() => "open loads".to_owned(),
        Some(RecordContent::Known(_)) => "committed".to_owned(),
    }
}

/// One row per job.
pub(super) fn jobs(jobs: &[JobDescription]) -> Table {
    let current = || jobs.iter().map(JobDescription::current);
    table([
        ("name", texts(jobs.iter().map(|job| Some(job.job.clone())))),
        ("state", texts(jobs.iter().map(|job| Some(state_of(job))))),
        ("generation", numbers(current().map(|record| record.map(|record| record.generation.0)))),
        ("checkpoint", numbers(jobs.iter().map(|job| job.newest().map(|newest| newest.seq)))),
        ("written_at", texts(current().map(|record| record.map(|record| record.written_at.clone())))),
        ("position", texts(current().map(|record| record.map(|record| positions_text(&record.sources))))),
        ("savepoints", numbers(jobs.iter().map(|job| u64::try_from(job.savepoints.len()).ok()))),
    ])
}

/// The time that lags are told by.
#[derive(Debug, Clone, Copy)]
pub(super) struct Clock {
    pub now_ms: i64,
    pub name: &'static str,
}

/// One row per source, with how far it is behind `clock`.
pub(super) fn positions(job: &JobDescription, clock: Clock) -> Table {
    let sources = job.current().map(|record| record.sources.as_slice()).unwrap_or_default();
    let lag = |position: &SourcePosition| {
        // Milliseconds of many thousand years fit.
        position.changelog_ms().map(|next_ms| (clock.now_ms - next_ms) as f64 / 1000.0)
    };
    let lags: Vec<Option<f64>> = sources.iter().map(|source| lag(&source.position)).collect();
    table([
        ("source", texts(sources.iter().map(|source| Some(source.table.clone())))),
        ("position", texts(sources.iter().map(|source| Some(place(&source.position))))),
        ("lag_seconds", Arc::new(Float64Array::from(lags.clone()))),
        ("clock", texts(lags.iter().map(|lag| lag.map(|_| clock.name.to_owned())))),
    ])
}

fn what(record: &KeptRecord) -> String {
    match &record.content {
        RecordContent::Newer { version } => format!("format version {version}: not known here"),
        RecordContent::Broken { .. } => "unreadable".to_owned(),
        RecordContent::Known(known) => match (&known.note, known.rows) {
            (Some(note), _) => note.clone(),
            (None, Some(_)) => "epoch".to_owned(),
            (None, None) if known.epoch.0 == 0 => "start".to_owned(),
            (None, None) => "position".to_owned(),
        },
    }
}

/// One row per record, the newest first.
pub(super) fn records(job: &JobDescription) -> Table {
    let known = |pick: fn(&Checkpoint) -> Option<u64>| {
        numbers(job.records.iter().map(move |record| record.content.known().and_then(pick)))
    };
    let done = job.records.iter().map(|record| {
        let known = record.content.known()?;
        Some(record.done || known.committables.is_empty())
    });
    table([
        ("checkpoint", numbers(job.records.iter().map(|record| Some(record.seq)))),
        ("what", texts(job.records.iter().map(|record| Some(what(record))))),
        ("generation", known(|record| Some(record.generation.0))),
        ("epoch", known(|record| Some(record.epoch.0).filter(|epoch| *epoch > 0))),
        ("written_at", texts(job.records.iter().map(|record| Some(record.content.known()?.written_at.clone())))),
        ("rows", known(|record| record.rows)),
        ("loads", known(|record| u64::try_from(record.committables.len()).ok())),
        ("done", Arc::new(done.collect::<BooleanArray>())),
    ])
}

/// A load that may be open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct OpenLoad {
    pub load: Committable,
    /// It is in the newest checkpoint.
    pub recorded: bool,
    /// What the server says, when it was asked.
    pub state: Option<LabelState>,
}

/// One row per load that may be open.
pub(super) fn loads(loads: &[OpenLoad]) -> Table {
    let then = |open: &OpenLoad| if open.recorded { "the next start commits it" } else { "the next start aborts it" };
    table([
        ("label", texts(loads.iter().map(|open| Some(open.load.label.clone())))),
        ("table", texts(loads.iter().map(|open| Some(format!("{}.{}", open.load.db, open.load.table))))),
        ("txn_id", Arc::new(loads.iter().map(|open| open.load.txn_id).collect::<Int64Array>())),
        ("state", texts(loads.iter().map(|open| open.state.map(|state| state.to_string())))),
        ("then", texts(loads.iter().map(|open| Some(then(open).to_owned())))),
    ])
}

/// One row per savepoint.
pub(super) fn savepoints(job: &JobDescription) -> Table {
    let known = || job.savepoints.iter().map(|savepoint| savepoint.content.known());
    table([
        ("savepoint", texts(job.savepoints.iter().map(|savepoint| Some(savepoint.name.clone())))),
        ("written_at", texts(known().map(|record| Some(record?.written_at.clone())))),
        ("position", texts(known().map(|record| Some(positions_text(&record?.sources))))),
    ])
}

/// One row per fact of what the job is.
pub(super) fn facts(job: &JobDescription) -> Table {
    let facts: Vec<(String, String)> = match job.current() {
        Some(record) => record.fingerprint.facts().map(|(fact, value)| (fact.to_owned(), value.to_owned())).collect(),
        None => vec![],
    };
    table([
        ("fact", texts(facts.iter().map(|(fact, _)| Some(fact.clone())))),
        ("value", texts(facts.iter().map(|(_, value)| Some(value.clone())))),
    ])
}

/// What a reset means for the rows of a source.
pub(super) fn change_text(change: PositionChange) -> String {
    match change {
        PositionChange::Same => "as before".to_owned(),
        PositionChange::Again { from_ms, to_ms } => {
            format!("changes from {} to {} are written again", instant(from_ms), instant(to_ms))
        }
        PositionChange::Skipped { from_ms, to_ms } => {
            format!("changes from {} to {} are skipped", instant(from_ms), instant(to_ms))
        }
        PositionChange::SnapshotAgain => "the snapshot, or a part of it, is written again".to_owned(),
        PositionChange::SnapshotSkipped => "what is left of the snapshot is skipped".to_owned(),
    }
}

/// One row per source that was reset.
pub(super) fn changes(sources: &[(SourceState, PositionChange)]) -> Table {
    table([
        ("source", texts(sources.iter().map(|(source, _)| Some(source.table.clone())))),
        ("position", texts(sources.iter().map(|(source, _)| Some(place(&source.position))))),
        ("effect", texts(sources.iter().map(|(_, change)| Some(change_text(*change))))),
    ])
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    #[test]
    fn effects_of_a_reset_are_told() {
        for (change, text) in [
            (PositionChange::Same, "as before"),
            (
                PositionChange::Again { from_ms: 1000, to_ms: 2500 },
                "changes from 1970-01-01 00:00:01.000 UTC to 1970-01-01 00:00:02.500 UTC are written again",
            ),
            (
                PositionChange::Skipped { from_ms: 1000, to_ms: 2000 },
                "changes from 1970-01-01 00:00:01.000 UTC to 1970-01-01 00:00:02.000 UTC are skipped",
            ),
            (PositionChange::SnapshotAgain, "the snapshot, or a part of it, is written again"),
            (PositionChange::SnapshotSkipped, "what is left of the snapshot is skipped"),
        ] {
            assert_eq!(change_text(change), text);
        }
    }
}
