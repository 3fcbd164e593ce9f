//! The SELECT of one changelog window.

use std::fmt;

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

    /// Positions of (tso, lsn, op) among `names`, compared without case.
    ///
    /// # Errors
    /// The reason, when one of them is not there exactly once.
    pub fn locate<'a>(&self, names: impl IntoIterator<Item = &'a str>) -> Result<(usize, usize, usize), String> {
        let names: Vec<&str> = names.into_iter().collect();
        let position = |wanted: &str| {
            let mut found = names.iter().enumerate().filter(|(_, name)| name.eq_ignore_ascii_case(wanted));
            match (found.next(), found.next()) {
                (Some((at, _)), None) => Ok(at),
                (None, _) => Err(format!("column {wanted} is missing")),
                (Some(_), Some(_)) => Err(format!("column {wanted} is there twice")),
            }
        };
        Ok((position(&self.tso)?, position(&self.lsn)?, position(&self.op)?))
    }
}

/// One window of changes.
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
}

impl ChangelogSelect<'_> {
    /// The statement, ordered by TSO, LSN and OP. Its times are UTC: the session's `time_zone` must be `+00:00`.
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
        let bound = |ms: i64| {
            utc_text(ms).map(|text| string_literal(&text)).ok_or_else(|| Error::Changelog {
                table: self.table.to_string(),
                reason: format!("window bound {ms} ms is not a whole second of the years 1 to 9999"),
            })
        };
        Ok(format!(
            "SELECT {columns}{hidden} FROM {}@incr('startTimestamp' = {}, 'endTimestamp' = {}, 'incrementType' = '{}') \
             ORDER BY {hidden}",
            quote_table(self.table),
            bound(self.start_ms)?,
            bound(self.end_ms)?,
            self.increment_type,
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

/// `yyyy-MM-dd HH:mm:ss` in UTC; `None` when `ms` is not a whole second of the years 1 to 9999.
pub fn utc_text(ms: i64) -> Option<String> {
    if ms.rem_euclid(1000) != 0 {
        return None;
    }
    let instant = DateTime::from_timestamp_millis(ms)?;
    (1..=9999).contains(&instant.year()).then(|| instant.format("%Y-%m-%d %H:%M:%S").to_string())
}
