//! What is kept of a job, and what follows from it: no I/O.

use super::super::chain::{done_name, number, savepoint_in};
use super::super::record::{Checkpoint, Leftover, VERSION};
use super::super::{Committable, SourcePosition};

/// The content of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecordContent {
    /// This program understands it.
    Known(Box<Checkpoint>),
    /// A newer program wrote it.
    Newer {
        /// Version of its format.
        version: u64,
    },
    /// It cannot be read.
    Broken {
        /// Why, and what to do.
        reason: String,
    },
}

impl RecordContent {
    /// Reads a text; `name` is for the reason.
    pub(super) fn of(name: &str, text: &[u8]) -> Self {
        match Checkpoint::parse(name, text) {
            Ok(record) => Self::Known(Box::new(record)),
            Err(error) => match number_of(text, "version") {
                Some(version) if version > VERSION => Self::Newer { version },
                _ => Self::Broken { reason: error.to_string() },
            },
        }
    }

    /// The record, when it is understood.
    pub fn known(&self) -> Option<&Checkpoint> {
        match self {
            Self::Known(record) => Some(record),
            Self::Newer { .. } | Self::Broken { .. } => None,
        }
    }
}

/// A number in a JSON object that is not understood otherwise.
pub(super) fn number_of(text: &[u8], field: &str) -> Option<u64> {
    serde_json::from_slice::<serde_json::Value>(text).ok()?.get(field)?.as_u64()
}

/// A record that is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptRecord {
    /// Its number.
    pub seq: u64,
    /// What it says.
    pub content: RecordContent,
    /// Its loads are marked as visible.
    pub done: bool,
}

/// A savepoint that is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptSavepoint {
    /// Its name.
    pub name: String,
    /// What it says.
    pub content: RecordContent,
}

/// All that is kept of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobDescription {
    /// Name of the job.
    pub job: String,
    /// Where it is kept, for people.
    pub location: String,
    /// Its records, the newest first.
    pub records: Vec<KeptRecord>,
    /// Its savepoints, by name.
    pub savepoints: Vec<KeptSavepoint>,
}

impl JobDescription {
    /// Puts together what was read; objects of other names are none of a job's.
    pub(super) fn of(job: &str, location: String, objects: &[(String, Vec<u8>)], names: &[String]) -> Self {
        let place = |name: &str| format!("{location}/{name}");
        let mut records = Vec::new();
        let mut savepoints = Vec::new();
        for (name, text) in objects {
            let content = RecordContent::of(&place(name), text);
            if let Some(seq) = number(name, "json") {
                records.push(KeptRecord { seq, content, done: names.contains(&done_name(seq)) });
            } else if let Some(name) = savepoint_in(name) {
                savepoints.push(KeptSavepoint { name: name.to_string(), content });
            }
        }
        records.sort_by_key(|record| std::cmp::Reverse(record.seq));
        savepoints.sort_by(|a, b| a.name.cmp(&b.name));
        Self { job: job.to_string(), location, records, savepoints }
    }

    /// The newest record.
    pub fn newest(&self) -> Option<&KeptRecord> {
        self.records.first()
    }

    /// The newest record, when it is understood and the job was not dropped.
    pub fn current(&self) -> Option<&Checkpoint> {
        self.newest()?.content.known().filter(|record| !record.dropped)
    }

    /// Nothing but the fence of a job that was dropped is left.
    pub fn is_gone(&self) -> bool {
        let dropped = self.newest().is_none_or(|newest| newest.content.known().is_some_and(|record| record.dropped));
        dropped && self.savepoints.is_empty()
    }

    /// Loads that the newest record names and that are not known to be visible: the next start makes them so.
    pub fn open_loads(&self) -> &[Committable] {
        let Some(newest) = self.newest() else { return &[] };
        let Some(record) = self.current() else { return &[] };
        let carried_done = |seq| self.records.iter().any(|record| record.seq == seq && record.done);
        match newest.done || record.carried_from.is_some_and(carried_done) {
            true => &[],
            false => &record.committables,
        }
    }

    /// Epochs whose loads may be open and are in no record: the next start aborts them.
    pub fn leftovers(&self) -> Vec<Leftover> {
        let Some(record) = self.current() else { return vec![] };
        record.to_abort.iter().cloned().chain([record.next_epoch()]).collect()
    }

    /// Names of the savepoints, for people.
    pub(super) fn savepoint_names(&self) -> String {
        match self.savepoints.iter().map(|savepoint| savepoint.name.as_str()).collect::<Vec<_>>() {
            names if names.is_empty() => "none".to_string(),
            names => names.join(", "),
        }
    }
}

/// What a new position of a source means for its rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PositionChange {
    /// Nothing: it is the old one.
    Same,
    /// Changes are read, and written, a second time.
    Again {
        /// First instant, in epoch milliseconds.
        from_ms: i64,
        /// End, exclusive.
        to_ms: i64,
    },
    /// Changes are never read.
    Skipped {
        /// First instant, in epoch milliseconds.
        from_ms: i64,
        /// End, exclusive.
        to_ms: i64,
    },
    /// The snapshot, or a part of it, is read a second time, and the changes after it.
    SnapshotAgain,
    /// What is left of the snapshot, and the changes before the new position, are never read.
    SnapshotSkipped,
}

impl PositionChange {
    /// Compares two positions.
    pub fn between(old: &SourcePosition, new: &SourcePosition) -> Self {
        match (old.changelog_ms(), new.changelog_ms()) {
            _ if old == new => Self::Same,
            (Some(old_ms), Some(new_ms)) if new_ms < old_ms => Self::Again { from_ms: new_ms, to_ms: old_ms },
            (Some(old_ms), Some(new_ms)) => Self::Skipped { from_ms: old_ms, to_ms: new_ms },
            (None, Some(_)) => Self::SnapshotSkipped,
            (_, None) => Self::SnapshotAgain,
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::super::testing::{at, described, record, text};
    use super::*;

    #[test]
    fn objects_become_records_and_savepoints() {
        let job = described(&[
            ("checkpoint-000000000009.json", text(&record(9))),
            ("checkpoint-000000000010.json", br#"{"version": 7, "generation": 3}"#.to_vec()),
            ("checkpoint-000000000008.json", b"{".to_vec()),
            ("checkpoint-000000000009.done", vec![]),
            ("savepoint-b.json", text(&record(1))),
            ("savepoint-a.json", br#"{"version": 7}"#.to_vec()),
            ("notes.txt", b"mine".to_vec()),
        ]);
        let shown: Vec<(u64, bool, bool)> =
            job.records.iter().map(|record| (record.seq, record.done, record.content.known().is_some())).collect();
        assert_eq!(shown, [(10, false, false), (9, true, true), (8, false, false)]);
        assert_eq!(job.records[0].content, RecordContent::Newer { version: 7 });
        let RecordContent::Broken { reason } = &job.records[2].content else { panic!("it is no JSON") };
        assert!(reason.contains("memory/checkpoint-000000000008.json cannot be read"), "{reason}");
        assert_eq!(job.savepoint_names(), "a, b");
        assert!(job.current().is_none() && job.open_loads().is_empty() && !job.is_gone());
    }

    #[test]
    fn loads_are_open_until_they_are_marked_done() {
        let newest = ("checkpoint-000000000009.json", text(&record(9)));
        let job = described(std::slice::from_ref(&newest));
        assert_eq!(job.open_loads().len(), 1);
        let epochs: Vec<(u64, u64)> = job.leftovers().iter().map(|left| (left.generation.0, left.epoch.0)).collect();
        assert_eq!(epochs, [(1, 3), (2, 10)]);
        let done = described(&[newest, ("checkpoint-000000000009.done", vec![])]);
        assert!(done.open_loads().is_empty());
        let carried = Checkpoint { carried_from: Some(8), ..record(9) };
        let older = ("checkpoint-000000000008.json", text(&record(8)));
        let carried = ("checkpoint-000000000009.json", text(&carried));
        assert_eq!(described(&[older.clone(), carried.clone()]).open_loads().len(), 1);
        assert!(described(&[older, carried, ("checkpoint-000000000008.done", vec![])]).open_loads().is_empty());
    }

    #[test]
    fn dropped_job_is_gone_once_it_has_no_savepoints() {
        let fence = ("checkpoint-000000000009.json", text(&Checkpoint { dropped: true, ..record(9) }));
        let job = described(std::slice::from_ref(&fence));
        assert!(job.is_gone() && job.current().is_none() && job.open_loads().is_empty() && job.leftovers().is_empty());
        assert!(!described(&[fence, ("savepoint-a.json", text(&record(1)))]).is_gone());
        assert!(described(&[]).is_gone());
    }

    #[test]
    fn every_pair_of_positions() {
        let snapshot = |tablets: &[i64]| SourcePosition::Snapshot { start_ms: Some(5), done_tablets: tablets.to_vec() };
        for (old, new, change) in [
            (at(20), at(20), PositionChange::Same),
            (at(20), at(10), PositionChange::Again { from_ms: 10, to_ms: 20 }),
            (at(20), at(30), PositionChange::Skipped { from_ms: 20, to_ms: 30 }),
            (snapshot(&[1]), at(10), PositionChange::SnapshotSkipped),
            (SourcePosition::START, at(10), PositionChange::SnapshotSkipped),
            (at(20), snapshot(&[1]), PositionChange::SnapshotAgain),
            (snapshot(&[1, 2]), snapshot(&[1]), PositionChange::SnapshotAgain),
            (snapshot(&[1]), snapshot(&[1]), PositionChange::Same),
        ] {
            assert_eq!(PositionChange::between(&old, &new), change, "{old:?} {new:?}");
        }
    }
}
