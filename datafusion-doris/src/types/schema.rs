//! Table identity and schema as Doris describes them.

use std::collections::BTreeMap;
use std::fmt;

use super::DorisType;

/// `db.table`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TableIdent {
    /// Database.
    pub database: String,
    /// Table.
    pub table: String,
}

impl fmt::Display for TableIdent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.database, self.table)
    }
}

/// Table model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyModel {
    /// DUPLICATE KEY: every row is kept.
    Duplicate,
    /// UNIQUE KEY: one row per key.
    Unique,
    /// AGGREGATE KEY: values of one key are aggregated.
    Aggregate,
}

/// One column.
#[derive(Debug, Clone, PartialEq)]
pub struct ColumnSchema {
    /// Name as stored.
    pub name: String,
    /// Type.
    pub doris_type: DorisType,
    /// NULL allowed.
    pub nullable: bool,
    /// Part of the key.
    pub key: bool,
    /// DEFAULT text, when Doris tells one.
    pub default: Option<String>,
}

/// A table as Doris describes it.
#[derive(Debug, Clone, PartialEq)]
pub struct TableSchema {
    /// Which table.
    pub table: TableIdent,
    /// Table model; `None` for views and external tables.
    pub model: Option<KeyModel>,
    /// Columns in table order, without hidden ones.
    pub columns: Vec<ColumnSchema>,
    /// `PROPERTIES` of SHOW CREATE TABLE, as far as the server shows them.
    pub properties: BTreeMap<String, String>,
}
