//! Loads that share a transaction, and properties of a load that exclude each other.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use super::SinkOptions;
use super::value::{Parsed, parse_bool};
use super::write_mode::WriteMode;
use crate::error::{Error, Result};

/// `sink.properties.group_commit`: Doris collects the rows of many loads and commits them together.
///
/// # Delivery
/// Such a load has no label. When its answer is lost, nothing tells whether its rows are in the table, so it is
/// at-least-once at best: an `INSERT` ends with an error that says so, a continuous one writes the rows of the epoch again.
/// Rows that Doris refuses cannot take the others back: more of them than `max_filter_ratio` allows are an error after
/// which the others are in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum GroupCommit {
    /// `off_mode`: each load is a transaction of its own.
    #[default]
    Off,
    /// `sync_mode`: a load ends when its rows are visible.
    Sync,
    /// `async_mode`: a load ends when its rows are in the log of a BE; they are visible after the table's
    /// `group_commit_interval_ms`, 10 s by default.
    Async,
}

impl GroupCommit {
    /// The mode that the properties ask for.
    pub(super) fn of(properties: &BTreeMap<String, String>) -> Self {
        properties.get(NAME).and_then(|mode| mode.parse().ok()).unwrap_or_default()
    }

    /// Loads share a transaction.
    pub fn is_on(self) -> bool {
        self != GroupCommit::Off
    }
}

impl fmt::Display for GroupCommit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            GroupCommit::Off => "off_mode",
            GroupCommit::Sync => "sync_mode",
            GroupCommit::Async => "async_mode",
        })
    }
}

impl FromStr for GroupCommit {
    type Err = String;

    fn from_str(text: &str) -> Parsed<Self> {
        match text.trim().to_ascii_lowercase().as_str() {
            "off_mode" => Ok(GroupCommit::Off),
            "sync_mode" => Ok(GroupCommit::Sync),
            "async_mode" => Ok(GroupCommit::Async),
            _ => Err(format!("'{}' is no mode, use off_mode, sync_mode or async_mode", text.trim())),
        }
    }
}

const NAME: &str = "group_commit";

fn conflict(property: &str, reason: impl Into<String>) -> Error {
    Error::config(format!("sink.properties.{property}"), reason)
}

/// Checks properties against each other. Doris would take most of these, and do something else than they say.
///
/// # Errors
/// [`Error::Config`] that names one of them.
pub(super) fn check_properties(properties: &BTreeMap<String, String>) -> Result<()> {
    let text = |name: &str| properties.get(name).map(|text| text.trim());
    let partial = text("partial_columns").is_some_and(|flag| parse_bool(flag) == Ok(true));
    let mode = text("unique_key_update_mode").map(str::to_ascii_uppercase);
    let updates = mode.as_deref().is_some_and(|mode| mode != "UPSERT");
    if GroupCommit::of(properties).is_on() {
        let alone = |property| {
            Err(conflict(property, "excludes group commit: Doris would load the rows without it, remove one"))
        };
        if partial {
            return alone("partial_columns");
        }
        if updates {
            return alone("unique_key_update_mode");
        }
        if let Some(property) = ["partitions", "temporary_partitions"].into_iter().find(|name| text(name).is_some()) {
            return alone(property);
        }
    }
    if text("partitions").is_some() && text("temporary_partitions").is_some() {
        return Err(conflict("temporary_partitions", "excludes 'sink.properties.partitions', remove one"));
    }
    // Of two names of one thing Doris takes one and says nothing of the other.
    for (taken, ignored) in [("timezone", "time_zone"), ("cloud_cluster", "compute_group")] {
        if text(taken).is_some() && text(ignored).is_some() {
            let reason = format!("says the same as 'sink.properties.{taken}', remove one of them");
            return Err(conflict(ignored, reason));
        }
    }
    if partial && mode.is_some() && !updates {
        return Err(conflict(
            "partial_columns",
            "Doris looks at 'sink.properties.unique_key_update_mode' only, which says UPSERT: remove one",
        ));
    }
    Ok(())
}

impl SinkOptions {
    /// `sink.properties.group_commit`, default [`GroupCommit::Off`].
    pub fn group_commit(&self) -> GroupCommit {
        GroupCommit::of(&self.properties)
    }

    /// Whether loads of these options can share a transaction, if they are to.
    ///
    /// # Errors
    /// [`Error::Config`] when they are to be committed in two phases, or are no Stream Loads.
    pub(crate) fn check_group_commit(&self) -> Result<()> {
        let reason = match (self.group_commit().is_on(), self.write_mode) {
            (false, _) => return Ok(()),
            (true, WriteMode::StreamLoad | WriteMode::StreamLoadBatch) if self.two_phase(true) => {
                "group commit and two-phase commit exclude each other, set 'sink.enable-2pc' = 'false' or remove it"
            }
            (true, WriteMode::StreamLoad | WriteMode::StreamLoadBatch) => return Ok(()),
            (true, WriteMode::Tvf) => "is of Stream Loads, use another 'sink.write-mode' or remove it",
        };
        Err(conflict(NAME, reason))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    fn properties(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect()
    }

    #[test]
    fn modes_are_read_in_any_case() {
        for mode in [GroupCommit::Off, GroupCommit::Sync, GroupCommit::Async] {
            assert_eq!(mode.to_string().parse(), Ok(mode));
            assert_eq!(format!(" {} ", mode.to_string().to_uppercase()).parse(), Ok(mode));
        }
        assert!("async".parse::<GroupCommit>().unwrap_err().contains("'async' is no mode"));
    }

    #[test]
    fn properties_that_exclude_each_other_are_refused_by_name() {
        let group = ("group_commit", "Async_Mode");
        for (pairs, refused) in [
            (vec![group, ("partial_columns", "TRUE")], Some("partial_columns")),
            (vec![group, ("partial_columns", "false")], None),
            (vec![group, ("unique_key_update_mode", "update_fixed_columns")], Some("unique_key_update_mode")),
            (vec![group, ("unique_key_update_mode", "upsert")], None),
            (vec![group, ("partitions", "p1")], Some("partitions")),
            (vec![group, ("temporary_partitions", "p1")], Some("temporary_partitions")),
            (vec![("group_commit", "off_mode"), ("partial_columns", "true")], None),
            (vec![("partitions", "p1"), ("temporary_partitions", "p2")], Some("temporary_partitions")),
            (vec![("timezone", "UTC"), ("time_zone", "+08:00")], Some("time_zone")),
            (vec![("compute_group", "a"), ("cloud_cluster", "b")], Some("compute_group")),
            (vec![("time_zone", "UTC"), ("compute_group", "a")], None),
            (vec![("partial_columns", "true"), ("unique_key_update_mode", "UPSERT")], Some("partial_columns")),
            (vec![("partial_columns", "true"), ("unique_key_update_mode", "UPDATE_FIXED_COLUMNS")], None),
        ] {
            let found = match check_properties(&properties(&pairs)) {
                Ok(()) => None,
                Err(Error::Config { option, .. }) => Some(option),
                Err(other) => panic!("{pairs:?}: {other}"),
            };
            assert_eq!(found, refused.map(|name| format!("sink.properties.{name}")), "{pairs:?}");
        }
    }

    #[test]
    fn group_commit_needs_stream_loads_of_one_phase() {
        let options =
            SinkOptions { properties: properties(&[("group_commit", "sync_mode")]), ..SinkOptions::default() };
        for (mode, two_phase, allowed) in [
            (WriteMode::StreamLoad, None, false),
            (WriteMode::StreamLoad, Some(true), false),
            (WriteMode::StreamLoad, Some(false), true),
            // Batches are committed in two phases when that is asked for.
            (WriteMode::StreamLoadBatch, None, true),
            (WriteMode::StreamLoadBatch, Some(true), false),
            (WriteMode::StreamLoadBatch, Some(false), true),
            (WriteMode::Tvf, Some(false), false),
        ] {
            let options = SinkOptions { write_mode: mode, two_phase_commit: two_phase, ..options.clone() };
            assert_eq!(options.check_group_commit().is_ok(), allowed, "{mode} {two_phase:?}");
        }
        assert!(SinkOptions::default().check_group_commit().is_ok());
    }
}
