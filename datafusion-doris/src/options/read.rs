//! Options of snapshot scans and changelog reads.

use std::time::Duration;

/// `source.scan.mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ScanMode {
    /// The table as it is now; bounded.
    #[default]
    Snapshot,
    /// The table as it is now, then its changes.
    Initial,
    /// Changes from now on.
    Latest,
}

/// `source.scan.bounded-mode`: where a changelog read ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BoundedMode {
    /// At the moment the read started.
    Latest,
}

/// Options of reading.
#[derive(Debug, Clone)]
pub struct ReadOptions {
    /// `source.scan.mode`, default `snapshot`.
    pub mode: ScanMode,
    /// `source.scan.bounded-mode`, default none: a changelog read never ends.
    pub bounded: Option<BoundedMode>,
    /// `source.changelog.poll-interval`, default 10 s, at least 1 s.
    pub poll_interval: Duration,
    /// `source.changelog.visible-wait-timeout`, default 5 min, `0s` = off.
    pub visible_wait_timeout: Duration,
    /// `source.changelog.change-kind-column`, default `__change_kind`.
    pub change_kind_column: String,
    /// `doris.request.tablet.size`, default 1: tablets per split at most... see the option table.
    pub tablets_per_split: usize,
}
