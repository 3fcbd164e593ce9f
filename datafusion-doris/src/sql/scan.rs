//! The SELECT of a snapshot scan.

use std::fmt::{self, Write as _};

use serde::{Deserialize, Serialize};

use super::{STATEMENT_PREFIX, quote_ident, quote_table, without_secrets};
use crate::types::TableIdent;

/// A statement that is read like a table.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScanQuery {
    /// The SELECT, without prefix and semicolon.
    pub sql: String,
    /// Its columns, in order.
    pub columns: Vec<String>,
}

/// The text may hold credentials, as those of the table function S3.
impl fmt::Debug for ScanQuery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { sql, columns } = self;
        f.debug_struct("ScanQuery").field("sql", &without_secrets(sql)).field("columns", columns).finish()
    }
}

/// One statement of a scan: a projection of some tablets of one table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScanSelect<'a> {
    /// The table.
    pub table: &'a TableIdent,
    /// Read in the place of the table.
    pub query: Option<&'a ScanQuery>,
    /// Columns in output order. Empty: one row with the number of rows, column `row_count` (BIGINT); a limit is then
    /// the caller's to apply to that number.
    pub columns: &'a [&'a str],
    /// The table as it was after the last commit up to this TSO; `None`: as it is now.
    pub as_of: Option<i64>,
    /// Tablets to read; empty = all.
    pub tablets: &'a [i64],
    /// Condition in Doris SQL, for example of [`super::filter_sql`].
    pub filter: Option<&'a str>,
    /// Most rows wanted.
    pub limit: Option<usize>,
}

impl ScanSelect<'_> {
    /// The statement, without a trailing semicolon.
    pub fn to_sql(&self) -> String {
        format!("{STATEMENT_PREFIX}{}", self.body())
    }

    /// The statement without the comment before it, for EXPLAIN.
    pub fn body(&self) -> String {
        if let Some(query) = self.query
            && self.filter.is_none()
            && self.limit.is_none()
            && self.columns == query.columns.as_slice()
        {
            return query.sql.clone();
        }
        let mut sql = String::from("SELECT ");
        if self.columns.is_empty() {
            sql.push_str("COUNT(*) AS `row_count`");
        }
        for (i, column) in self.columns.iter().enumerate() {
            sql.push_str(if i == 0 { "" } else { ", " });
            sql.push_str(&quote_ident(column));
        }
        let _ = match self.query {
            Some(query) => write!(sql, " FROM ({}) AS `q`", query.sql),
            None => write!(sql, " FROM {}", quote_table(self.table)),
        };
        if let Some(tso) = self.as_of {
            let _ = write!(sql, " FOR VERSION AS OF {tso}");
        }
        if !self.tablets.is_empty() {
            let tablets: Vec<String> = self.tablets.iter().map(i64::to_string).collect();
            let _ = write!(sql, " TABLET({})", tablets.join(","));
        }
        if let Some(filter) = self.filter {
            let _ = write!(sql, " WHERE {filter}");
        }
        if let Some(limit) = self.limit.filter(|_| !self.columns.is_empty()) {
            let _ = write!(sql, " LIMIT {limit}");
        }
        sql
    }
}
