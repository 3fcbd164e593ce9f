//! The SELECT of one changelog window.

use std::fmt;
use std::ops::Range;

use chrono::{DateTime, Datelike};

use super::{STATEMENT_PREFIX, quote_ident, quote_table, string_literal};
use crate::error::{Error, Result};
use crate::types::TableIdent;

/// `incrementType` of `@incr`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum IncrementType {
    /// Every change.
    #[default]
    Detail,
    /// The net change per key of the window.
    MinDelta,
    /// Inserts only.
    AppendOnly,
}

impl IncrementType {
    /// The name in options.
    pub fn option_name(self) -> &'static str {
        match self {
            IncrementType::Detail => "detail",
            IncrementType::MinDelta => "min_delta",
            IncrementType::AppendOnly => "append_only",
        }
    }
}

impl fmt::Display for IncrementType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            IncrementType::Detail => "DETAIL",
            IncrementType::MinDelta => "MIN_DELTA",
            IncrementType::AppendOnly => "APPEND_ONLY",
        })
    }
}

/// Names of the three columns that Doris adds to each change; they were renamed once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HiddenColumns {
    /// Commit timestamp, see [`crate::protocol::Tso`].
    pub tso: String,
    /// Order of the changes of one commit.
    pub lsn: String,
    /// Operation code: 0 insert, 1 delete, 2 update-before, 3 update-after.
    pub op: String,
}

impl HiddenColumns {
    fn with_stem(stem: &str) -> Self {
        let name = |suffix: &str| format!("__DORIS_{stem}_{suffix}__");
        Self { tso: name("TSO"), lsn: name("LSN"), op: name("OP") }
    }

    /// `__DORIS_CHANGELOG_TSO__` and its siblings, of newer servers.
    pub fn changelog() -> Self {
        Self::with_stem("CHANGELOG")
    }

    /// `__DORIS_BINLOG_TSO__` and its siblings, of older servers.
    pub fn binlog() -> Self {
        Self::with_stem("BINLOG")
    }

    /// The spellings to probe, newest first.
    pub fn candidates() -> [Self; 2] {
        [Self::changelog(), Self::binlog()]
    }
}

/// One window of changes, as the server is asked for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangelogSelect<'a> {
    /// The table.
    pub table: &'a TableIdent,
    /// Table columns in output order; the three hidden columns follow them: tso, lsn, op.
    pub columns: &'a [&'a str],
    /// Names of the hidden columns at this server.
    pub hidden: &'a HiddenColumns,
    /// Window start, Unix epoch milliseconds, whole seconds.
    pub start_ms: i64,
    /// Window end, Unix epoch milliseconds, whole seconds.
    pub end_ms: i64,
    /// What Doris makes of the changes.
    pub increment_type: IncrementType,
    /// Key columns of the table. Net changes ([`IncrementType::MinDelta`]) are ordered by them and OP: the two halves of
    /// one may have different TSOs, and there is one net change per key.
    pub key: &'a [String],
}

impl ChangelogSelect<'_> {
    /// The statement, ordered by TSO, LSN and OP (net changes: by key and OP). Its times are UTC: the session's
    /// `time_zone` must be `+00:00`.
    ///
    /// # Errors
    /// [`Error::Changelog`] when a bound is not a whole second of the years 1 to 9999.
    pub fn to_sql(&self) -> Result<String> {
        Ok(format!("{STATEMENT_PREFIX}{}", self.body()?))
    }

    /// The statement without the comment before it, for EXPLAIN.
    ///
    /// # Errors
    /// As [`Self::to_sql`].
    pub fn body(&self) -> Result<String> {
        let HiddenColumns { tso, lsn, op } = self.hidden;
        let hidden = [tso, lsn, op].map(|name| quote_ident(name)).join(", ");
        let columns: String = self.columns.iter().map(|column| format!("{}, ", quote_ident(column))).collect();
        let order = match self.increment_type {
            IncrementType::MinDelta => {
                let key: String = self.key.iter().map(|column| format!("{}, ", quote_ident(column))).collect();
                format!("{key}{}", quote_ident(op))
            }
            IncrementType::Detail | IncrementType::AppendOnly => hidden.clone(),
        };
        Ok(format!(
            "SELECT {columns}{hidden} FROM {} ORDER BY {order}",
            incr(self.table, self.start_ms, self.end_ms, self.increment_type)?
        ))
    }

    /// A statement over the same window that gives no row and fails when a hidden column does not exist.
    ///
    /// # Errors
    /// As [`Self::to_sql`].
    pub fn probe_sql(&self) -> Result<String> {
        let body = self.body()?;
        let unordered = body.rsplit_once(" ORDER BY ").map_or(body.as_str(), |(head, _)| head);
        Ok(format!("{STATEMENT_PREFIX}{unordered} LIMIT 0"))
    }
}

/// A statement that gives one row when a change has a TSO of `tso`, and none otherwise. Those TSOs lie in the first
/// millisecond of the second `edge_ms` (epoch milliseconds); the server's time must be past the end of that second.
///
/// # Errors
/// As [`ChangelogSelect::to_sql`].
pub fn commit_at_sql(table: &TableIdent, hidden: &HiddenColumns, edge_ms: i64, tso: Range<i64>) -> Result<String> {
    let column = quote_ident(&hidden.tso);
    Ok(format!(
        "{STATEMENT_PREFIX}SELECT {column} FROM {} WHERE {column} >= {} AND {column} < {} LIMIT 1",
        incr(table, edge_ms - 1000, edge_ms + 1000, IncrementType::Detail)?,
        tso.start,
        tso.end,
    ))
}

/// A statement that gives the TSO of the first change that is still there before `end_ms`, or NULL.
///
/// # Errors
/// As [`ChangelogSelect::to_sql`].
pub fn first_change_sql(table: &TableIdent, hidden: &HiddenColumns, end_ms: i64) -> Result<String> {
    Ok(format!(
        "{STATEMENT_PREFIX}SELECT MIN({}) AS `first_tso` FROM {}",
        quote_ident(&hidden.tso),
        incr(table, 0, end_ms, IncrementType::Detail)?
    ))
}

fn incr(table: &TableIdent, start_ms: i64, end_ms: i64, increment_type: IncrementType) -> Result<String> {
    let bound = |ms: i64| utc_text(ms).map(|text| string_literal(&text)).ok_or_else(|| bound_error(table, ms));
    Ok(format!(
        "{}@incr('startTimestamp' = {}, 'endTimestamp' = {}, 'incrementType' = '{increment_type}')",
        quote_table(table),
        bound(start_ms)?,
        bound(end_ms)?,
    ))
}

fn bound_error(table: &TableIdent, ms: i64) -> Error {
    Error::Changelog {
        table: table.to_string(),
        reason: format!("window bound {ms} ms is not a whole second of the years 1 to 9999"),
    }
}

/// `yyyy-MM-dd HH:mm:ss` in UTC; `None` when `ms` is not a whole second of the years 1 to 9999.
pub fn utc_text(ms: i64) -> Option<String> {
    if ms.rem_euclid(1000) != 0 {
        return None;
    }
    let instant = DateTime::from_timestamp_millis(ms)?;
    (1..=9999).contains(&instant.year()).then(|| instant.format("%Y-%m-%d %H:%M:%S").to_string())
}
