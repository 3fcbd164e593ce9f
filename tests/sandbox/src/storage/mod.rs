//! Databases, tables, tablets and rowsets.
//!
//! Loads become immutable rowsets of Arrow batches, one list per tablet. A row is visible to a scan of version `v` when its
//! rowset's version is at most `v` and it did not die at or before `v`. Unique tables find the row to supersede in a key
//! index per tablet; deletes are rows with the delete sign set, as on the server.

mod buffer;
mod catalog;
mod history;
mod key;
mod rowset;
mod table;
mod unique;

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};

pub use buffer::LoadBuffer;
pub use catalog::{Catalog, OnExisting, View, ViewColumn};
pub use rowset::{Snapshot, TabletSnapshot};
pub use table::{ChangeConfig, RowVictims, Table, TableSpec};

use crate::error::SqlError;
use crate::types::DorisType;

pub(crate) use key::hash_keys;

/// Delete sign of unique tables.
pub const DELETE_SIGN: &str = "__DORIS_DELETE_SIGN__";
/// Load version of unique tables.
pub const VERSION_COL: &str = "__DORIS_VERSION_COL__";
/// TSO of the last write, on tables that record changes.
pub const COMMIT_TSO_COL: &str = "__DORIS_COMMIT_TSO_COL__";
/// Order of a row inside its transaction, on duplicate tables of the newest build that record changes.
pub const ROW_LSN_COL: &str = "__DORIS_ROW_LSN_COL__";

/// Key model of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeysType {
    /// `DUPLICATE KEY`
    Duplicate,
    /// `UNIQUE KEY`
    Unique,
}

impl KeysType {
    /// Name in REST answers.
    pub fn rest_name(self) -> &'static str {
        match self {
            Self::Duplicate => "DUP_KEYS",
            Self::Unique => "UNIQUE_KEYS",
        }
    }

    /// Words in DDL.
    pub fn ddl_name(self) -> &'static str {
        match self {
            Self::Duplicate => "DUPLICATE KEY",
            Self::Unique => "UNIQUE KEY",
        }
    }

    /// `information_schema.columns.COLUMN_KEY` of key columns.
    pub fn column_key(self) -> &'static str {
        match self {
            Self::Duplicate => "DUP",
            Self::Unique => "UNI",
        }
    }
}

/// DEFAULT clause of a column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DefaultValue {
    /// None given.
    None,
    /// `DEFAULT NULL`
    Null,
    /// A literal, kept as text.
    Text(String),
    /// `DEFAULT CURRENT_TIMESTAMP[(p)]`
    CurrentTimestamp,
}

impl DefaultValue {
    /// Text in DESC, `_schema` and information_schema.
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::None | Self::Null => None,
            Self::Text(text) => Some(text),
            Self::CurrentTimestamp => Some("CURRENT_TIMESTAMP"),
        }
    }
}

/// One column of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// Name as written in the DDL.
    pub name: String,
    /// Type.
    pub ty: DorisType,
    /// NULLs are allowed.
    pub nullable: bool,
    /// Part of the key.
    pub key: bool,
    /// DEFAULT clause.
    pub default: DefaultValue,
    /// Comment, may be empty.
    pub comment: String,
}

impl Column {
    /// Storage field.
    pub fn field(&self) -> FieldRef {
        self.ty.storage_field(&self.name, self.nullable)
    }
}

/// The field of the delete sign in storage.
pub(crate) fn delete_sign_field() -> FieldRef {
    Arc::new(Field::new(DELETE_SIGN, DataType::Int8, false))
}

/// Schema of load batches for a column list; see [`crate::engine::TableMeta::load_schema`].
pub(crate) fn load_schema(columns: &[Column], keys: KeysType, list: Option<&[String]>) -> Result<SchemaRef, SqlError> {
    let Some(list) = list else {
        return Ok(Arc::new(Schema::new(columns.iter().map(Column::field).collect::<Vec<_>>())));
    };
    let mut fields: Vec<FieldRef> = Vec::with_capacity(list.len());
    for name in list {
        let field = if name.eq_ignore_ascii_case(DELETE_SIGN) && keys == KeysType::Unique {
            delete_sign_field()
        } else {
            match columns.iter().find(|c| c.name.eq_ignore_ascii_case(name)) {
                Some(column) => column.field(),
                None => return Err(SqlError::unknown_column(name, "table list")),
            }
        };
        if fields.iter().any(|known| known.name() == field.name()) {
            return Err(SqlError::detail(format!("Duplicate column: {name}")));
        }
        fields.push(field);
    }
    Ok(Arc::new(Schema::new(fields)))
}

#[cfg(test)]
mod tests;
