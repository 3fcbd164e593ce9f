//! Loads whose rows lie in an object store until one statement takes them into the table.

use serde::{Deserialize, Serialize};

use super::recovery::LoadKind;

/// How long after its staging a load is certainly known to the server, if it was ever run: less than the shortest time for
/// which Doris keeps labels (`streaming_label_keep_max_second`, 12 hours).
const REMEMBERED_MS: i64 = 11 * 3_600_000;

/// One staged object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct StagedObject {
    /// Its key in the bucket.
    pub key: String,
    /// Its size.
    pub bytes: u64,
}

/// The staged rows of a load: everything that the statement needs beside the options of the target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Staged {
    /// Bucket.
    pub bucket: String,
    /// What the keys of all objects of the label begin with.
    pub folder: String,
    /// The key, or pattern of keys, that the statement reads. Empty where only the label is known: nothing can be run.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub keys: String,
    /// Rows in the objects, before any is replaced by a later one of its key; `None` in records that do not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows: Option<u64>,
    /// The objects of this attempt.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub objects: Vec<StagedObject>,
    /// Format of the objects.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub format: String,
    /// Compression of the objects, as the statement names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compression: Option<String>,
    /// When they were complete, in epoch milliseconds by the clock of the process that wrote them.
    #[serde(default)]
    pub staged_ms: i64,
}

impl Staged {
    /// The staged rows that a label may have left, of which nothing else is known.
    pub fn unknown(bucket: &str, folder: String) -> Self {
        Self {
            bucket: bucket.to_string(),
            folder,
            keys: String::new(),
            rows: None,
            objects: vec![],
            format: String::new(),
            compression: None,
            staged_ms: 0,
        }
    }

    /// Whether a label that the server does not know may have been run, and forgotten.
    pub fn kind(&self, now_ms: i64) -> LoadKind {
        let age = now_ms.saturating_sub(self.staged_ms);
        LoadKind::Staged { remembered: (0..REMEMBERED_MS).contains(&age) }
    }
}

/// Where the loads of a series of labels are staged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StagePlace {
    /// Bucket.
    pub bucket: String,
    /// What the keys of all loads begin with, without a slash at its end.
    pub prefix: String,
}

impl StagePlace {
    /// What the keys of the objects of a label begin with.
    pub fn folder(&self, label: &str) -> String {
        format!("{}/{label}/", self.prefix)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    #[test]
    fn load_is_remembered_for_less_time_than_the_server_keeps_labels() {
        let staged = Staged { staged_ms: 1_000_000, ..Staged::unknown("b", "p/l/".into()) };
        let hour = 3_600_000;
        for (after_ms, remembered) in [(0, true), (hour, true), (11 * hour - 1, true), (11 * hour, false), (-1, false)]
        {
            assert_eq!(staged.kind(1_000_000 + after_ms), LoadKind::Staged { remembered }, "{after_ms}");
        }
    }
}
