//! Options of snapshot scans and changelog reads.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::entries::{Entries, parse_name};
use super::key::OptionKey;
use super::lookup::LookupOptions;
use super::value::{Parsed, parse_count, parse_duration, parse_size};
use crate::error::{Error, Result};
use crate::sql::{HiddenColumns, IncrementType};
use crate::types::{LocalTime, TableIdent};

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
    /// Changes from an instant on, inclusive (`source.scan.timestamp`, in the time zone that Doris gives new
    /// connections).
    FromTimestamp(LocalTime),
}

impl ScanMode {
    /// True for the modes that read changes.
    pub fn is_changelog(self) -> bool {
        self != ScanMode::Snapshot
    }
}

impl fmt::Display for ScanMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ScanMode::Snapshot => "snapshot",
            ScanMode::Initial => "initial",
            ScanMode::Latest => "latest",
            ScanMode::FromTimestamp(_) => "from-timestamp",
        })
    }
}

impl FromStr for ScanMode {
    type Err = Error;

    /// Reads a mode that needs no further option: `from-timestamp` is made of two.
    fn from_str(text: &str) -> Result<Self> {
        let refuse = |reason| Error::config(OptionKey::ScanMode.as_ref(), reason);
        match parse_mode(text).map_err(refuse)? {
            ModeName::Snapshot => Ok(ScanMode::Snapshot),
            ModeName::Initial => Ok(ScanMode::Initial),
            ModeName::Latest => Ok(ScanMode::Latest),
            ModeName::FromTimestamp => Err(refuse("'from-timestamp' needs 'source.scan.timestamp'".into())),
        }
    }
}

/// A mode without its timestamp.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ModeName {
    Snapshot,
    Initial,
    Latest,
    FromTimestamp,
}

fn parse_mode(text: &str) -> Parsed<ModeName> {
    match text.trim().to_ascii_lowercase().as_str() {
        "snapshot" => Ok(ModeName::Snapshot),
        "initial" => Ok(ModeName::Initial),
        "latest" => Ok(ModeName::Latest),
        "from-timestamp" => Ok(ModeName::FromTimestamp),
        _ => Err(format!("'{text}' is none of snapshot, initial, latest, from-timestamp")),
    }
}

/// `source.scan.bounded-mode`: where a changelog read ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BoundedMode {
    /// At the moment the read started.
    Latest,
    /// At an instant, exclusive (`source.scan.bounded-timestamp`, in the time zone that Doris gives new connections).
    Timestamp(LocalTime),
}

impl fmt::Display for BoundedMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BoundedMode::Latest => f.write_str("latest"),
            BoundedMode::Timestamp(end) => write!(f, "timestamp {end}"),
        }
    }
}

/// True for `timestamp`.
fn parse_bounded_mode(text: &str) -> Parsed<bool> {
    match text.trim().to_ascii_lowercase().as_str() {
        "latest" => Ok(false),
        "timestamp" => Ok(true),
        _ => Err(format!("'{text}' is none of latest, timestamp")),
    }
}

/// `source.changelog.on-expired`: what to do when changes that were asked for may have been dropped by their TTL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnExpired {
    /// The read fails.
    #[default]
    Fail,
    /// The read goes on with what is left, after a warning.
    Continue,
}

fn parse_on_expired(text: &str) -> Parsed<OnExpired> {
    match text.trim().to_ascii_lowercase().as_str() {
        "fail" => Ok(OnExpired::Fail),
        "continue" => Ok(OnExpired::Continue),
        _ => Err(format!("'{text}' is none of fail, continue")),
    }
}

/// One of `source.changelog.metadata-columns`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum MetadataColumn {
    /// `__commit_tso`, Int64: the commit's timestamp, see [`crate::protocol::Tso`].
    Tso,
    /// `__commit_lsn`, Decimal128(38, 0): order within a commit.
    Lsn,
    /// `__commit_time`, Timestamp(ms, UTC): the physical part of the commit's timestamp.
    CommitTime,
}

impl MetadataColumn {
    /// Name of the column.
    pub fn column_name(self) -> &'static str {
        match self {
            MetadataColumn::Tso => "__commit_tso",
            MetadataColumn::Lsn => "__commit_lsn",
            MetadataColumn::CommitTime => "__commit_time",
        }
    }
}

fn parse_metadata(text: &str) -> Parsed<Vec<MetadataColumn>> {
    let mut columns = Vec::new();
    for name in text.split(',').map(str::trim).filter(|name| !name.is_empty()) {
        let column = match name.to_ascii_lowercase().as_str() {
            "tso" => MetadataColumn::Tso,
            "lsn" => MetadataColumn::Lsn,
            "commit-time" => MetadataColumn::CommitTime,
            _ => return Err(format!("'{name}' is none of tso, lsn, commit-time")),
        };
        if columns.contains(&column) {
            return Err(format!("'{name}' is named twice"));
        }
        columns.push(column);
    }
    Ok(columns)
}

/// Three names: TSO, LSN, OP.
fn parse_hidden(text: &str) -> Parsed<HiddenColumns> {
    let names = text.split(',').map(parse_name).collect::<Parsed<Vec<_>>>()?;
    let [tso, lsn, op] = names.as_slice() else {
        return Err(format!(
            "'{text}' must hold three names: commit timestamp (TSO), order (LSN), operation code (OP)"
        ));
    };
    if tso.eq_ignore_ascii_case(lsn) || tso.eq_ignore_ascii_case(op) || lsn.eq_ignore_ascii_case(op) {
        return Err(format!("'{text}' names a column twice"));
    }
    Ok(HiddenColumns { tso: tso.clone(), lsn: lsn.clone(), op: op.clone() })
}

/// Where a consumer's position is published: `source.changelog.offset-table` and `source.changelog.consumer-id`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OffsetOptions {
    /// The table: `consumer_id VARCHAR(256)`, `offset_timestamp DATETIME`, `update_time DATETIME(3)`, with UNIQUE KEY
    /// (`consumer_id`).
    pub table: TableIdent,
    /// Key of the consumer's row; different jobs need different ones.
    pub consumer_id: String,
}

fn offset(entries: &mut Entries, mode: ScanMode) -> Result<Option<OffsetOptions>> {
    let table = entries.parse(OptionKey::OffsetTable, TableIdent::parse)?;
    let consumer_id = entries.parse(OptionKey::ConsumerId, parse_consumer)?;
    let (given, missing) = (OptionKey::OffsetTable.as_ref(), OptionKey::ConsumerId.as_ref());
    match (table, consumer_id) {
        (None, None) => Ok(None),
        (Some(_), Some(_)) if !mode.is_changelog() => Err(Error::config(
            given,
            "is only valid for changelogs: set 'source.scan.mode' to initial, latest or from-timestamp",
        )),
        (Some(table), Some(consumer_id)) => Ok(Some(OffsetOptions { table, consumer_id })),
        (Some(_), None) => Err(Error::config(missing, format!("must be given together with '{given}'"))),
        (None, Some(_)) => Err(Error::config(given, format!("must be given together with '{missing}'"))),
    }
}

fn parse_consumer(text: &str) -> Parsed<String> {
    match parse_name(text)? {
        name if name.len() > 256 => Err("must not be longer than 256 bytes".into()),
        name => Ok(name),
    }
}

fn parse_increment_type(text: &str) -> Parsed<IncrementType> {
    [IncrementType::Detail, IncrementType::MinDelta, IncrementType::AppendOnly]
        .into_iter()
        .find(|kind| text.trim().eq_ignore_ascii_case(kind.option_name()))
        .ok_or_else(|| format!("'{text}' is none of detail, min_delta, append_only"))
}

/// Options of reading.
#[derive(Debug, Clone)]
pub struct ReadOptions {
    /// `source.scan.mode` with `source.scan.timestamp`, default `snapshot`.
    pub mode: ScanMode,
    /// `source.scan.bounded-mode` with `source.scan.bounded-timestamp`, default none: a changelog read never ends.
    pub bounded: Option<BoundedMode>,
    /// `source.changelog.increment-type`, default `detail`.
    pub increment_type: IncrementType,
    /// `source.changelog.poll-interval`, default 10 s, at least 1 s.
    pub poll_interval: Duration,
    /// `source.changelog.max-window`, default 1 h, at least 1 s.
    pub max_window: Duration,
    /// `source.changelog.visible-wait-timeout`, default 5 min, `0s` = off.
    pub visible_wait_timeout: Duration,
    /// `source.changelog.on-expired`, default `fail`.
    pub on_expired: OnExpired,
    /// `source.changelog.offset-table` and `source.changelog.consumer-id`, default none.
    pub offset: Option<OffsetOptions>,
    /// `source.changelog.change-kind-column`, default `__change_kind`.
    pub change_kind_column: String,
    /// `source.changelog.hidden-columns`, default none: the names are found by asking the server.
    pub hidden_columns: Option<HiddenColumns>,
    /// `source.changelog.metadata-columns`, in the order of the output, default none.
    pub metadata: Vec<MetadataColumn>,
    /// `doris.request.tablet.size`, default 1: least number of tablets per scan statement, of which there are at most as
    /// many as the session's `target_partitions`; below 1 counts as 1.
    pub tablets_per_split: usize,
    /// `doris.filter.query`, default none: a condition in Doris SQL that every row read fulfils.
    pub filter_query: Option<String>,
    /// `doris.read.field`, default none: the columns that the table has here, in this order.
    pub read_fields: Option<Vec<String>>,
    /// `doris.batch.size`, default none: most rows of a batch of a scan.
    pub batch_rows: Option<usize>,
    /// `doris.exec.mem.limit`, in bytes, default none: memory that one statement of a scan may take in Doris, the
    /// session variable `exec_mem_limit`.
    pub exec_mem_limit: Option<usize>,
    /// `lookup.*`: how streams are joined with the table.
    pub lookup: LookupOptions,
}

impl Default for ReadOptions {
    fn default() -> Self {
        Self {
            mode: ScanMode::default(),
            bounded: None,
            increment_type: IncrementType::default(),
            poll_interval: Duration::from_secs(10),
            max_window: Duration::from_secs(3600),
            visible_wait_timeout: Duration::from_secs(300),
            on_expired: OnExpired::default(),
            offset: None,
            change_kind_column: "__change_kind".into(),
            hidden_columns: None,
            metadata: Vec::new(),
            tablets_per_split: 1,
            filter_query: None,
            read_fields: None,
            batch_rows: None,
            exec_mem_limit: None,
            lookup: LookupOptions::default(),
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

    /// Sets [`Self::increment_type`].
    pub fn with_increment_type(mut self, increment_type: IncrementType) -> Self {
        self.increment_type = increment_type;
        self
    }

    /// Sets [`Self::poll_interval`].
    pub fn with_poll_interval(mut self, interval: Duration) -> Self {
        self.poll_interval = interval;
        self
    }

    /// Sets [`Self::max_window`]; parts of a second are cut off, and less than a second counts as one.
    pub fn with_max_window(mut self, longest: Duration) -> Self {
        self.max_window = Duration::from_secs(longest.as_secs().max(1));
        self
    }

    /// Sets [`Self::visible_wait_timeout`].
    pub fn with_visible_wait_timeout(mut self, timeout: Duration) -> Self {
        self.visible_wait_timeout = timeout;
        self
    }

    /// Sets [`Self::on_expired`].
    pub fn with_on_expired(mut self, on_expired: OnExpired) -> Self {
        self.on_expired = on_expired;
        self
    }

    /// Sets [`Self::offset`].
    pub fn with_offset(mut self, offset: Option<OffsetOptions>) -> Self {
        self.offset = offset;
        self
    }

    /// Sets [`Self::change_kind_column`].
    pub fn with_change_kind_column(mut self, name: impl Into<String>) -> Self {
        self.change_kind_column = name.into();
        self
    }

    /// Sets [`Self::hidden_columns`].
    pub fn with_hidden_columns(mut self, hidden: Option<HiddenColumns>) -> Self {
        self.hidden_columns = hidden;
        self
    }

    /// Sets [`Self::metadata`].
    pub fn with_metadata(mut self, metadata: Vec<MetadataColumn>) -> Self {
        self.metadata = metadata;
        self
    }

    /// Sets [`Self::tablets_per_split`].
    pub fn with_tablets_per_split(mut self, tablets: usize) -> Self {
        self.tablets_per_split = tablets.max(1);
        self
    }

    /// Sets [`Self::filter_query`].
    pub fn with_filter_query(mut self, condition: Option<String>) -> Self {
        self.filter_query = condition;
        self
    }

    /// Sets [`Self::read_fields`].
    pub fn with_read_fields(mut self, columns: Option<Vec<String>>) -> Self {
        self.read_fields = columns;
        self
    }

    /// Sets [`Self::batch_rows`].
    pub fn with_batch_rows(mut self, rows: Option<usize>) -> Self {
        self.batch_rows = rows.map(|rows| rows.clamp(1, MAX_BATCH_ROWS));
        self
    }

    /// Sets [`Self::exec_mem_limit`].
    pub fn with_exec_mem_limit(mut self, bytes: Option<usize>) -> Self {
        self.exec_mem_limit = bytes;
        self
    }

    /// Sets [`Self::lookup`].
    pub fn with_lookup(mut self, lookup: LookupOptions) -> Self {
        self.lookup = lookup;
        self
    }

    pub(super) fn from_entries(entries: &mut Entries) -> Result<Self> {
        let defaults = Self::default();
        let mode = mode(entries)?;
        let filter_query = entries.parse(OptionKey::FilterQuery, parse_condition)?;
        if filter_query.is_some() && mode.is_changelog() {
            return Err(Error::config(
                OptionKey::FilterQuery.as_ref(),
                "is only valid in mode snapshot: rows that enter or leave the condition could not be told; use WHERE",
            ));
        }
        Ok(Self {
            mode,
            bounded: bounded(entries)?,
            increment_type: entries
                .parse(OptionKey::IncrementType, parse_increment_type)?
                .unwrap_or(defaults.increment_type),
            poll_interval: entries.parse(OptionKey::PollInterval, at_least_a_second)?.unwrap_or(defaults.poll_interval),
            max_window: entries
                .parse(OptionKey::MaxWindow, at_least_a_second)?
                .map_or(defaults.max_window, |longest| Duration::from_secs(longest.as_secs())),
            visible_wait_timeout: entries
                .parse(OptionKey::VisibleWaitTimeout, parse_duration)?
                .unwrap_or(defaults.visible_wait_timeout),
            offset: offset(entries, mode)?,
            on_expired: entries.parse(OptionKey::OnExpired, parse_on_expired)?.unwrap_or(defaults.on_expired),
            change_kind_column: entries
                .parse(OptionKey::ChangeKindColumnSource, parse_name)?
                .unwrap_or(defaults.change_kind_column),
            hidden_columns: entries.parse(OptionKey::HiddenColumns, parse_hidden)?,
            metadata: entries.parse(OptionKey::MetadataColumns, parse_metadata)?.unwrap_or_default(),
            tablets_per_split: entries
                .parse(OptionKey::TabletSize, parse_tablet_size)?
                .unwrap_or(defaults.tablets_per_split),
            filter_query,
            read_fields: entries.parse(OptionKey::ReadField, parse_fields)?,
            batch_rows: entries.parse(OptionKey::BatchSize, parse_batch_rows)?,
            exec_mem_limit: entries.parse(OptionKey::ExecMemLimit, parse_mem_limit)?,
            lookup: LookupOptions::from_entries(entries)?,
        })
    }
}

fn mode(entries: &mut Entries) -> Result<ScanMode> {
    let name = entries.parse(OptionKey::ScanMode, parse_mode)?.unwrap_or(ModeName::Snapshot);
    let timestamp = entries.parse(OptionKey::ScanTimestamp, LocalTime::parse)?;
    let option = OptionKey::ScanTimestamp.as_ref();
    match (name, timestamp) {
        (ModeName::FromTimestamp, Some(start)) => Ok(ScanMode::FromTimestamp(start)),
        (ModeName::FromTimestamp, None) => {
            Err(Error::config(option, "is required by mode from-timestamp and must match yyyy-MM-dd HH:mm:ss"))
        }
        (_, Some(_)) => Err(Error::config(
            option,
            "is only valid in mode from-timestamp: set 'source.scan.mode' to it or leave the timestamp out",
        )),
        (ModeName::Snapshot, None) => Ok(ScanMode::Snapshot),
        (ModeName::Initial, None) => Ok(ScanMode::Initial),
        (ModeName::Latest, None) => Ok(ScanMode::Latest),
    }
}

fn bounded(entries: &mut Entries) -> Result<Option<BoundedMode>> {
    let mode = entries.parse(OptionKey::BoundedMode, parse_bounded_mode)?;
    let timestamp = entries.parse(OptionKey::BoundedTimestamp, LocalTime::parse)?;
    let option = OptionKey::BoundedTimestamp.as_ref();
    match (mode, timestamp) {
        (Some(true), Some(end)) => Ok(Some(BoundedMode::Timestamp(end))),
        (Some(true), None) => {
            Err(Error::config(option, "is required by bounded mode timestamp and must match yyyy-MM-dd HH:mm:ss"))
        }
        (_, Some(_)) => Err(Error::config(option, "is only valid with 'source.scan.bounded-mode' = 'timestamp'")),
        (Some(false), None) => Ok(Some(BoundedMode::Latest)),
        (None, None) => Ok(None),
    }
}

fn at_least_a_second(text: &str) -> Parsed<Duration> {
    match parse_duration(text)? {
        duration if duration < Duration::from_secs(1) => Err("must be at least 1s".into()),
        duration => Ok(duration),
    }
}

/// Largest `doris.batch.size`, as in the connector.
const MAX_BATCH_ROWS: usize = 65_535;

fn parse_batch_rows(text: &str) -> Parsed<usize> {
    match parse_count(text)? {
        0 => Err("must be at least 1".into()),
        rows => Ok(rows.min(MAX_BATCH_ROWS)),
    }
}

fn parse_mem_limit(text: &str) -> Parsed<usize> {
    match parse_size(text)? {
        bytes if bytes < 1 << 20 => Err("must be at least 1mb".into()),
        bytes => Ok(bytes),
    }
}

/// Column names, bare or in backticks, separated by commas.
fn parse_fields(text: &str) -> Parsed<Vec<String>> {
    let mut fields: Vec<String> = Vec::new();
    for name in text.split(',') {
        let name = name.trim();
        let bare = name.strip_prefix('`').and_then(|name| name.strip_suffix('`')).unwrap_or(name);
        let name = parse_name(bare).map_err(|_| format!("'{text}' names an empty column"))?;
        if fields.contains(&name) {
            return Err(format!("'{name}' is named twice"));
        }
        fields.push(name);
    }
    Ok(fields)
}

/// A condition that can stand in parentheses: its own are closed in it, and no comment or end of statement is in it.
fn parse_condition(text: &str) -> Parsed<String> {
    let condition = parse_name(text)?;
    let (mut depth, mut quote, mut escaped, mut before) = (0usize, None, false, ' ');
    for c in condition.chars() {
        if let Some(open) = quote {
            match c {
                _ if escaped => escaped = false,
                '\\' if open != '`' => escaped = true,
                c if c == open => quote = None,
                _ => {}
            }
            continue;
        }
        match c {
            '\'' | '"' | '`' => quote = Some(c),
            '(' => depth += 1,
            ')' => depth = depth.checked_sub(1).ok_or("closes a parenthesis that it does not open")?,
            ';' | '#' => return Err(format!("must be one condition, without '{c}'")),
            '-' if before == '-' => return Err("must hold no comment".into()),
            '*' if before == '/' => return Err("must hold no comment".into()),
            _ => {}
        }
        before = c;
    }
    match (depth, quote) {
        (0, None) => Ok(condition),
        _ => Err("leaves a parenthesis or a quote open".into()),
    }
}

fn parse_tablet_size(text: &str) -> Parsed<usize> {
    let number: i64 = text.trim().parse().map_err(|_| format!("'{text}' is not a whole number"))?;
    usize::try_from(number.max(1)).map_err(|_| format!("'{text}' is out of range"))
}
