//! Options of snapshot scans and changelog reads.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::entries::{Entries, parse_name};
use super::key::OptionKey;
use super::value::{Parsed, parse_duration};
use crate::error::{Error, Result};

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

impl fmt::Display for ScanMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ScanMode::Snapshot => "snapshot",
            ScanMode::Initial => "initial",
            ScanMode::Latest => "latest",
        })
    }
}

impl FromStr for ScanMode {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        parse_mode(text).map_err(|reason| Error::config(OptionKey::ScanMode.as_ref(), reason))
    }
}

fn parse_mode(text: &str) -> Parsed<ScanMode> {
    match text.trim().to_ascii_lowercase().as_str() {
        "snapshot" => Ok(ScanMode::Snapshot),
        "initial" => Ok(ScanMode::Initial),
        "latest" => Ok(ScanMode::Latest),
        "from-timestamp" => Err("from-timestamp is not supported yet, use initial or latest".into()),
        _ => Err(format!("'{text}' is none of snapshot, initial, latest")),
    }
}

/// `source.scan.bounded-mode`: where a changelog read ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BoundedMode {
    /// At the moment the read started.
    Latest,
}

impl fmt::Display for BoundedMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("latest")
    }
}

fn parse_bounded_mode(text: &str) -> Parsed<BoundedMode> {
    match text.trim().to_ascii_lowercase().as_str() {
        "latest" => Ok(BoundedMode::Latest),
        "timestamp" => Err("timestamp is not supported yet, use latest".into()),
        _ => Err(format!("'{text}' is not 'latest'")),
    }
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
    /// `doris.request.tablet.size`, default 1: least number of tablets per scan statement, of which there are at most as
    /// many as the session's `target_partitions`; below 1 counts as 1.
    pub tablets_per_split: usize,
}

impl Default for ReadOptions {
    fn default() -> Self {
        Self {
            mode: ScanMode::default(),
            bounded: None,
            poll_interval: Duration::from_secs(10),
            visible_wait_timeout: Duration::from_secs(300),
            change_kind_column: "__change_kind".into(),
            tablets_per_split: 1,
        }
    }
}

impl ReadOptions {
    /// Sets [`Self::mode`].
    pub fn with_mode(mut self, mode: ScanMode) -> Self {
        self.mode = mode;
        self
    }

    /// Sets [`Self::bounded`].
    pub fn with_bounded(mut self, bounded: Option<BoundedMode>) -> Self {
        self.bounded = bounded;
        self
    }

    /// Sets [`Self::poll_interval`].
    pub fn with_poll_interval(mut self, interval: Duration) -> Self {
        self.poll_interval = interval;
        self
    }

    /// Sets [`Self::visible_wait_timeout`].
    pub fn with_visible_wait_timeout(mut self, timeout: Duration) -> Self {
        self.visible_wait_timeout = timeout;
        self
    }

    /// Sets [`Self::change_kind_column`].
    pub fn with_change_kind_column(mut self, name: impl Into<String>) -> Self {
        self.change_kind_column = name.into();
        self
    }

    /// Sets [`Self::tablets_per_split`].
    pub fn with_tablets_per_split(mut self, tablets: usize) -> Self {
        self.tablets_per_split = tablets.max(1);
        self
    }

    pub(super) fn from_entries(entries: &mut Entries) -> Result<Self> {
        let defaults = Self::default();
        Ok(Self {
            mode: entries.parse(OptionKey::ScanMode, parse_mode)?.unwrap_or(defaults.mode),
            bounded: entries.parse(OptionKey::BoundedMode, parse_bounded_mode)?,
            poll_interval: entries
                .parse(OptionKey::PollInterval, parse_poll_interval)?
                .unwrap_or(defaults.poll_interval),
            visible_wait_timeout: entries
                .parse(OptionKey::VisibleWaitTimeout, parse_duration)?
                .unwrap_or(defaults.visible_wait_timeout),
            change_kind_column: entries
                .parse(OptionKey::ChangeKindColumnSource, parse_name)?
                .unwrap_or(defaults.change_kind_column),
            tablets_per_split: entries
                .parse(OptionKey::TabletSize, parse_tablet_size)?
                .unwrap_or(defaults.tablets_per_split),
        })
    }
}

fn parse_poll_interval(text: &str) -> Parsed<Duration> {
    match parse_duration(text)? {
        interval if interval < Duration::from_secs(1) => Err("must be at least 1s".into()),
        interval => Ok(interval),
    }
}

fn parse_tablet_size(text: &str) -> Parsed<usize> {
    let number: i64 = text.trim().parse().map_err(|_| format!("'{text}' is not a whole number"))?;
    usize::try_from(number.max(1)).map_err(|_| format!("'{text}' is out of range"))
}
