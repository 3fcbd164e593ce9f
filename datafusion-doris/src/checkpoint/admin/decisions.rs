//! What may be done to a job by hand: no I/O.

use chrono::DateTime;

use super::super::SourcePosition;
use super::super::record::{Checkpoint, SourceState};
use super::description::{JobDescription, RecordContent};
use crate::error::{Error, Result};

/// Where a job is set to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ResetTarget {
    /// The positions of a savepoint of the job.
    Savepoint(String),
    /// One instant for all sources.
    Timestamp {
        /// First instant that is read, in epoch milliseconds.
        at_ms: i64,
        /// The time now, in epoch milliseconds: the server's, where it can be asked.
        now_ms: i64,
    },
}

impl ResetTarget {
    /// What was done, as records and fenced processes tell it.
    pub(super) fn note(&self) -> String {
        match self {
            Self::Savepoint(name) => format!("reset to savepoint '{name}'"),
            Self::Timestamp { at_ms, .. } => format!("reset to {}", instant(*at_ms)),
        }
    }
}

/// An instant in epoch milliseconds, for people.
pub(super) fn instant(ms: i64) -> String {
    let time = DateTime::from_timestamp_millis(ms);
    time.map_or_else(|| format!("millisecond {ms}"), |time| time.format("%Y-%m-%d %H:%M:%S%.f UTC").to_string())
}

fn refuse<T>(reason: String) -> Result<T> {
    Err(Error::Checkpoint { reason })
}

/// The newest record of a job that something can be done to.
///
/// # Errors
/// [`Error::Checkpoint`] when there is no such job, it was dropped, or its newest record is not understood.
pub(super) fn usable(job: &JobDescription) -> Result<&Checkpoint> {
    let (name, place) = (&job.job, &job.location);
    match job.newest().map(|newest| &newest.content) {
        None => refuse(format!("there is no job {name}: no checkpoint is in {place}")),
        Some(RecordContent::Newer { version }) => refuse(format!(
            "the newest checkpoint of job {name} in {place} has format version {version}, which this program does not \
             know: use a program at least as new as the one that wrote it"
        )),
        Some(RecordContent::Broken { reason }) => refuse(reason.clone()),
        Some(RecordContent::Known(record)) if record.dropped => {
            refuse(format!("job {name} was dropped at {}: a start of it begins anew", record.written_at))
        }
        Some(RecordContent::Known(record)) => Ok(record),
    }
}

/// The positions that a reset gives the sources.
///
/// # Errors
/// [`Error::Checkpoint`] when the job or the savepoint is not there or not understood, for an instant in the future, and
/// when loads are open that nobody can settle (`has_server` = false).
pub(super) fn reset_positions(
    job: &JobDescription,
    target: &ResetTarget,
    has_server: bool,
) -> Result<Vec<SourceState>> {
    let record = usable(job)?;
    let name = &job.job;
    let positions = match target {
        ResetTarget::Savepoint(savepoint) => {
            let Some(kept) = job.savepoints.iter().find(|kept| kept.name == *savepoint) else {
                return refuse(format!(
                    "job {name} has no savepoint '{savepoint}' in {}; there are: {}",
                    job.location,
                    job.savepoint_names()
                ));
            };
            let sources = match &kept.content {
                RecordContent::Known(record) => record.sources.clone(),
                RecordContent::Newer { version } => {
                    return refuse(format!(
                        "savepoint '{savepoint}' of job {name} has format version {version}, which this program does \
                         not know"
                    ));
                }
                RecordContent::Broken { reason } => return refuse(reason.clone()),
            };
            let tables = |sources: &[SourceState]| -> Vec<String> {
                sources.iter().map(|source| source.table.clone()).collect()
            };
            if tables(&sources) != tables(&record.sources) {
                return refuse(format!(
                    "savepoint '{savepoint}' has positions of {:?}, and job {name} reads {:?}",
                    tables(&sources),
                    tables(&record.sources)
                ));
            }
            sources
        }
        ResetTarget::Timestamp { at_ms, now_ms } if at_ms > now_ms => {
            return refuse(format!(
                "{} lies ahead, it is {} now: a job cannot be set to the future",
                instant(*at_ms),
                instant(*now_ms)
            ));
        }
        ResetTarget::Timestamp { at_ms, .. } => {
            let position = SourcePosition::Changelog { next_ms: *at_ms };
            let at = |source: &SourceState| SourceState { table: source.table.clone(), position: position.clone() };
            record.sources.iter().map(at).collect()
        }
    };
    check_settleable(job, has_server)?;
    Ok(positions)
}

/// # Errors
/// [`Error::Checkpoint`] when loads are open that nobody can settle.
pub(super) fn check_settleable(job: &JobDescription, has_server: bool) -> Result<()> {
    let open = job.open_loads();
    if has_server || open.is_empty() {
        return Ok(());
    }
    let labels: Vec<&str> = open.iter().map(|load| load.label.as_str()).collect();
    refuse(format!(
        "the last checkpoint of job {} holds loads that may not be committed yet ({}): name the server, so that they \
         are settled first; nothing was changed",
        job.job,
        labels.join(", ")
    ))
}

/// How a job may be dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DropWay {
    /// As a generation of its own that takes over, settles, and leaves a fence.
    TakeOver,
    /// Its newest record is not understood: a fence after it, and what is open stays so.
    FenceOnly,
}

/// # Errors
/// [`Error::Checkpoint`] when there is no such job; without `force` also when its newest record is not understood, or
/// when loads are open that nobody can settle.
pub(super) fn drop_way(job: &JobDescription, has_server: bool, force: bool) -> Result<DropWay> {
    let unreadable = job.newest().is_some_and(|newest| newest.content.known().is_none());
    if unreadable && force {
        return Ok(DropWay::FenceOnly);
    }
    if let Err(error) = usable(job) {
        let savepoints_left = job.newest().is_none_or(|newest| newest.content.known().is_some()) && !job.is_gone();
        return match savepoints_left {
            true => Ok(DropWay::FenceOnly),
            false if unreadable => refuse(format!("{}; to drop it nevertheless, use force", bare(&error))),
            false => Err(error),
        };
    }
    if !force {
        check_settleable(job, has_server).map_err(|error| Error::Checkpoint {
            reason: format!("{}; force leaves them to the server", bare(&error)),
        })?;
    }
    Ok(DropWay::TakeOver)
}

/// The reason of an error, without what is put before it.
fn bare(error: &Error) -> String {
    match error {
        Error::Checkpoint { reason } => reason.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::super::testing::{at, described, record, text};
    use super::*;

    const RECORD: &str = "checkpoint-000000000009.json";
    const DONE: (&str, Vec<u8>) = ("checkpoint-000000000009.done", vec![]);

    fn newest(record: &Checkpoint) -> (&'static str, Vec<u8>) {
        (RECORD, text(record))
    }

    fn newer(name: &'static str) -> (&'static str, Vec<u8>) {
        (name, br#"{"version": 9}"#.to_vec())
    }

    fn savepoint(record: &Checkpoint) -> (&'static str, Vec<u8>) {
        ("savepoint-s.json", text(record))
    }

    fn dropped() -> Checkpoint {
        Checkpoint { dropped: true, ..record(9) }
    }

    fn other_table() -> Checkpoint {
        let mut record = record(3);
        record.sources[0].table = "shop.other".into();
        record
    }

    fn to_savepoint() -> ResetTarget {
        ResetTarget::Savepoint("s".into())
    }

    fn to(at_ms: i64) -> ResetTarget {
        ResetTarget::Timestamp { at_ms, now_ms: 50_000 }
    }

    #[test]
    fn reset_is_refused_for_a_reason_or_gives_the_positions() {
        let settled = || vec![newest(&record(9)), DONE];
        for (objects, target, server, expected) in [
            (vec![], to(1000), true, Err("there is no job mirror")),
            (vec![newer(RECORD)], to(1000), true, Err("format version 9")),
            (vec![(RECORD, b"{".to_vec())], to(1000), true, Err("cannot be read")),
            (vec![newest(&dropped())], to(1000), true, Err("was dropped at")),
            (settled(), to(1000), false, Ok(1000)),
            (settled(), to(50_000), false, Ok(50_000)),
            (settled(), to(50_001), false, Err("cannot be set to the future")),
            (settled(), to_savepoint(), false, Err("there are: none")),
            (vec![newest(&record(9)), DONE, newer("savepoint-s.json")], to_savepoint(), true, Err("format version 9")),
            (vec![newest(&record(9)), DONE, savepoint(&other_table())], to_savepoint(), true, Err("shop.other")),
            (vec![newest(&record(9)), DONE, savepoint(&record(3))], to_savepoint(), false, Ok(3000)),
            (vec![newest(&record(9)), savepoint(&record(3))], to_savepoint(), false, Err("name the server")),
            (vec![newest(&record(9))], to(1000), false, Err("nothing was changed")),
            (vec![newest(&record(9))], to(1000), true, Ok(1000)),
        ] {
            let job = described(&objects);
            match (reset_positions(&job, &target, server), expected) {
                (Ok(sources), Ok(ms)) => assert_eq!(sources[0].position, at(ms), "{target:?}"),
                (Err(error), Err(part)) => assert!(error.to_string().contains(part), "{part}: {error}"),
                (got, expected) => panic!("{target:?} of {objects:?}: {got:?}, not {expected:?}"),
            }
        }
    }

    #[test]
    fn drop_is_refused_for_a_reason_or_has_a_way() {
        use DropWay::{FenceOnly, TakeOver};
        for (objects, server, force, expected) in [
            (vec![], true, true, Err("there is no job mirror")),
            (vec![newest(&dropped())], true, true, Err("was dropped at")),
            (vec![newest(&dropped()), savepoint(&record(3))], false, false, Ok(FenceOnly)),
            (vec![savepoint(&record(3))], false, false, Ok(FenceOnly)),
            (vec![newer(RECORD)], true, false, Err("use force")),
            (vec![newer(RECORD)], false, true, Ok(FenceOnly)),
            (vec![(RECORD, b"{".to_vec())], true, false, Err("use force")),
            (vec![newest(&record(9))], false, false, Err("force leaves them to the server")),
            (vec![newest(&record(9))], false, true, Ok(TakeOver)),
            (vec![newest(&record(9))], true, false, Ok(TakeOver)),
            (vec![newest(&record(9)), DONE], false, false, Ok(TakeOver)),
        ] {
            match (drop_way(&described(&objects), server, force), expected) {
                (Ok(way), Ok(expected)) => assert_eq!(way, expected, "{objects:?}"),
                (Err(error), Err(part)) => assert!(error.to_string().contains(part), "{part}: {error}"),
                (got, expected) => panic!("{objects:?}: {got:?}, not {expected:?}"),
            }
        }
    }

    #[test]
    fn notes_tell_what_was_done() {
        assert_eq!(to_savepoint().note(), "reset to savepoint 's'");
        assert_eq!(to(1_767_225_600_000).note(), "reset to 2026-01-01 00:00:00 UTC");
    }
}
