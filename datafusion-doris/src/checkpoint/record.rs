//! The record of a checkpoint, its versions, and how older ones become the newest.
//!
//! A record is JSON that a person can read, one object per file. Everything needed to go on after it, or to finish what
//! it began, stands in it: nothing else is kept between two starts of a job.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::fingerprint::Fingerprint;
use super::{Committable, Epoch, Generation, LabelSeries, LoadSearch, SourcePosition};
use crate::error::{Error, Result};

/// The version that this crate writes.
pub const VERSION: u64 = 2;

/// Where one source stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceState {
    /// `db.table`.
    pub table: String,
    /// Everything before it was handed out.
    pub position: SourcePosition,
}

/// An epoch of an earlier generation whose loads are in no checkpoint, and may still be open.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leftover {
    /// Generation of its labels.
    pub generation: Generation,
    /// Epoch of its labels.
    pub epoch: Epoch,
    /// How its labels are made. Absent where an older program did not keep it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<LabelSeries>,
}

impl Leftover {
    /// Looks for the loads that it may have left behind; `job` is the job's name as labels carry it. `None` = not known
    /// how their labels are made.
    pub fn search(&self, job: &str) -> Option<LoadSearch> {
        Some(self.labels.as_ref()?.search(job, self.generation, self.epoch))
    }
}

/// What a job knows after an epoch: the sources' positions, and the loads that the epoch pre-committed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// Version of the format.
    pub version: u64,
    /// Name of the job.
    pub job: String,
    /// Drawn with the first record: labels of a job that was begun anew, under the same name, are others.
    pub chain: String,
    /// Start of the job that wrote the record.
    pub generation: Generation,
    /// Last finished epoch of this generation; 0 in the record with which a generation takes over.
    pub epoch: Epoch,
    /// Process that wrote the record.
    pub writer: String,
    /// When, by that process's clock: for people.
    pub written_at: String,
    /// Position of each source after the epoch, in the order of the plan.
    pub sources: Vec<SourceState>,
    /// Position of each source before the epoch: from there its rows are read again when the server has lost them.
    /// Absent where an older version did not keep it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<Vec<SourceState>>,
    /// Loads of the epoch that are pre-committed, and to be committed.
    pub committables: Vec<Committable>,
    /// Rows of the epoch; absent in records that are no epoch's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows: Option<u64>,
    /// The record from which `committables` were taken over, when a generation could not know that they are done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub carried_from: Option<u64>,
    /// Epochs of earlier generations whose loads are to be aborted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub to_abort: Vec<Leftover>,
    /// How the labels of this generation are made; absent when its loads are not two-phase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<LabelSeries>,
    /// What a person did to the job, who had the record written: `reset to …`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// The job was dropped: the record stays as a fence, and the next start begins anew after it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dropped: bool,
    /// What the job is. Empty when an older version did not keep it.
    #[serde(default)]
    pub fingerprint: Fingerprint,
    /// FE nodes of the clusters of its sources and its sink, by table: they may change, but not all at once when the job
    /// was given no name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub nodes: BTreeMap<String, Vec<String>>,
}

/// Version 0, which had neither generations nor a fingerprint.
#[derive(Debug, Deserialize)]
struct CheckpointV0 {
    job: String,
    epoch: Epoch,
    sources: Vec<SourceState>,
    #[serde(default)]
    committables: Vec<Committable>,
}

impl From<CheckpointV0> for Checkpoint {
    fn from(old: CheckpointV0) -> Self {
        Self {
            version: VERSION,
            chain: String::new(),
            job: old.job,
            generation: Generation(0),
            epoch: old.epoch,
            writer: String::new(),
            written_at: String::new(),
            sources: old.sources,
            previous: None,
            committables: old.committables,
            rows: None,
            carried_from: None,
            to_abort: vec![],
            labels: None,
            note: None,
            dropped: false,
            fingerprint: Fingerprint::default(),
            nodes: BTreeMap::new(),
        }
    }
}

impl Checkpoint {
    /// Reads a record of any known version; `name` is for the error.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] for a newer version, or a text that is no record.
    pub fn parse(name: &str, text: &[u8]) -> Result<Self> {
        let broken = |reason: &dyn std::fmt::Display| Error::Checkpoint {
            reason: format!(
                "{name} cannot be read: {reason}; put it back from a copy, or remove it to go on from the record before"
            ),
        };
        let value: Value = serde_json::from_slice(text).map_err(|error| broken(&error))?;
        let version = match value.get("version") {
            None => 0,
            Some(version) => version.as_u64().ok_or_else(|| broken(&"its version is no number"))?,
        };
        match version {
            0 => serde_json::from_value::<CheckpointV0>(value).map(Self::from).map_err(|error| broken(&error)),
            // Version 2 tells how labels are made, and how many loads an epoch has. A program that knows version 1 only
            // would not look after all of them.
            1 | VERSION => serde_json::from_value(value)
                .map(|record| Self { version: VERSION, ..record })
                .map_err(|error| broken(&error)),
            newer => Err(Error::Checkpoint {
                reason: format!(
                    "{name} has version {newer}, and this program knows versions up to {VERSION}: start the job with a \
                     program at least as new as the one that wrote it"
                ),
            }),
        }
    }

    /// The record as text.
    ///
    /// # Errors
    /// None in practice: every record can be written as JSON.
    pub fn to_json(&self) -> Result<Vec<u8>> {
        let mut text = serde_json::to_vec_pretty(self)
            .map_err(|error| Error::Checkpoint { reason: format!("a record cannot be written: {error}") })?;
        text.push(b'\n');
        Ok(text)
    }

    /// The epoch of this generation that follows: its loads may be there, and are in no record yet.
    pub fn next_epoch(&self) -> Leftover {
        Leftover { generation: self.generation, epoch: self.epoch.next(), labels: self.labels.clone() }
    }

    /// The job's name as labels carry it.
    pub fn label_job(&self) -> String {
        format!("{}/{}", self.job, self.chain)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::super::{Staged, StagedObject};
    use super::*;

    pub(crate) fn record() -> Checkpoint {
        let state =
            |next_ms| SourceState { table: "shop.orders".into(), position: SourcePosition::Changelog { next_ms } };
        Checkpoint {
            version: VERSION,
            job: "mirror".into(),
            chain: "c0ffee".into(),
            generation: Generation(2),
            epoch: Epoch(7),
            writer: "1-ab".into(),
            written_at: "2026-01-01T00:00:00Z".into(),
            sources: vec![state(20_000)],
            previous: Some(vec![state(10_000)]),
            committables: vec![Committable {
                db: "shop".into(),
                table: "copy".into(),
                label: "l".into(),
                txn_id: Some(4),
                host: "be:8040".into(),
                lane: 0,
                staged: None,
            }],
            rows: Some(12),
            carried_from: None,
            to_abort: vec![Leftover { generation: Generation(1), epoch: Epoch(3), labels: None }],
            labels: Some(LabelSeries {
                prefix: "p".into(),
                db: "shop".into(),
                table: "copy".into(),
                writers: 1,
                open_ended: false,
                stage: None,
            }),
            note: None,
            dropped: false,
            fingerprint: Fingerprint::from_iter([("sink table", "shop.copy")]),
            nodes: BTreeMap::from([("sink".to_string(), vec!["fe:8030".to_string()])]),
        }
    }

    #[test]
    fn record_is_json_that_can_be_read_back() {
        let record = record();
        let text = String::from_utf8(record.to_json().unwrap()).unwrap();
        assert!(text.contains("\"version\": 2,\n") && text.contains("\"sink table\": \"shop.copy\""), "{text}");
        assert!(text.contains("\"phase\": \"changelog\""), "{text}");
        for absent in ["carried_from", "note", "dropped"] {
            assert!(!text.contains(absent), "{text}");
        }
        assert_eq!(Checkpoint::parse("r", text.as_bytes()).unwrap(), record);
    }

    #[test]
    fn staged_load_is_in_the_record_with_its_objects_and_without_credentials() {
        let object = StagedObject { key: "p/l/a-0.json".into(), bytes: 12 };
        let staged = Staged {
            keys: "p/l/a-*.json".into(),
            objects: vec![object],
            format: "json".into(),
            compression: Some("gz".into()),
            staged_ms: 1_000,
            ..Staged::unknown("b", "p/l/".into())
        };
        let mut record = record();
        record.committables[0].staged = Some(staged);
        let text = String::from_utf8(record.to_json().unwrap()).unwrap();
        assert!(text.contains("\"p/l/a-0.json\"") && !text.contains("key\": \"s"), "{text}");
        assert_eq!(Checkpoint::parse("r", text.as_bytes()).unwrap(), record);
    }

    #[test]
    fn version_0_is_migrated() {
        let old = r#"{"job": "mirror", "epoch": 5,
            "sources": [{"table": "shop.orders", "position": {"phase": "changelog", "next_ms": 20000}}],
            "committables": [{"db": "shop", "table": "copy", "label": "l", "txn_id": null, "host": "be:8040"}]}"#;
        for text in [old.to_string(), old.replacen('{', r#"{"version": 0, "#, 1)] {
            let record = Checkpoint::parse("r", text.as_bytes()).unwrap();
            assert_eq!((record.version, record.generation, record.epoch), (VERSION, Generation(0), Epoch(5)));
            assert_eq!(record.sources[0].position, SourcePosition::Changelog { next_ms: 20_000 });
            assert_eq!(record.committables[0].label, "l");
            assert!(record.previous.is_none() && record.fingerprint.is_empty());
            let again = Checkpoint::parse("r", &record.to_json().unwrap()).unwrap();
            assert_eq!(again, record, "what was migrated is written in the new version");
        }
    }

    #[test]
    fn version_1_is_migrated() {
        let old = r#"{"version": 1, "job": "mirror", "chain": "c", "generation": 3, "epoch": 5, "writer": "1-ab",
            "written_at": "2026-01-01T00:00:00Z",
            "sources": [{"table": "shop.orders", "position": {"phase": "changelog", "next_ms": 20000}}],
            "committables": [], "to_abort": [{"generation": 2, "epoch": 9}], "fingerprint": {"query": "q"}}"#;
        let record = Checkpoint::parse("r", old.as_bytes()).unwrap();
        assert_eq!((record.version, record.generation), (VERSION, Generation(3)));
        assert_eq!(record.next_epoch(), Leftover { generation: Generation(3), epoch: Epoch(6), labels: None });
        assert_eq!(record.to_abort, [Leftover { generation: Generation(2), epoch: Epoch(9), labels: None }]);
        let again = Checkpoint::parse("r", &record.to_json().unwrap()).unwrap();
        assert_eq!(again, record, "what was migrated is written in the new version");
    }

    #[test]
    fn snapshot_position_of_an_older_record_has_no_tablets() {
        let text = r#"{"job": "j", "epoch": 1, "sources": [{"table": "t", "position": {"phase": "snapshot", "start_ms": null}}]}"#;
        let record = Checkpoint::parse("r", text.as_bytes()).unwrap();
        assert_eq!(record.sources[0].position, SourcePosition::START);
    }

    #[test]
    fn newer_version_and_broken_text_are_refused_by_name() {
        let message = |text: &str| Checkpoint::parse("checkpoint-7.json", text.as_bytes()).unwrap_err().to_string();
        let newer = message(r#"{"version": 3, "something": "else"}"#);
        assert!(newer.contains("checkpoint-7.json has version 3") && newer.contains("up to 2"), "{newer}");
        for broken in
            ["", "{", "[]", r#"{"version": "1"}"#, r#"{"version": 2}"#, r#"{"version": 1}"#, r#"{"version": 0}"#]
        {
            assert!(message(broken).contains("checkpoint-7.json cannot be read"), "{broken}");
        }
    }
}
