//! Databases, tables, tablets and rowsets.
//!
//! Loads become immutable rowsets of Arrow batches, one list per tablet. A row is visible to a scan of version `v` when its
//! rowset's version is at most `v` and it did not die at or before `v`. Unique tables find the row to supersede in a key
//! index per tablet; deletes are rows with the delete sign set, as on the server.

mod aggregate;
mod alter;
mod apply;
mod buffer;
mod catalog;
mod compaction;
mod complete;
mod definition;
mod history;
mod key;
mod partial;
mod partition;
mod rowset;
mod sequence;
mod table;
mod unique;

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};

pub use aggregate::Aggregation;
pub(crate) use alter::Redefinition;
pub(crate) use apply::Commit;
pub use buffer::LoadBuffer;
pub use catalog::{Catalog, OnExisting, View, ViewColumn};
pub(crate) use catalog::{check_name, check_script};
pub(crate) use complete::WritePlan;
pub use definition::{ChangeConfig, SequenceSpec, TableSpec};
pub(crate) use partial::Partial;
pub(crate) use partition::encode_value;
pub use partition::{Bound, Bounds, PartitionKind, PartitionSpec, Partitioning};
pub use rowset::{Snapshot, TabletSnapshot};
pub use table::{RowVictims, Table};

use crate::error::SqlError;
use crate::types::DorisType;

pub(crate) use key::hash_keys;
pub(crate) use sequence::fits as fits_sequence;

/// Delete sign of unique tables.
pub const DELETE_SIGN: &str = "__DORIS_DELETE_SIGN__";
/// Order of conflicting writes on unique tables with a sequence column.
pub const SEQUENCE_COL: &str = "__DORIS_SEQUENCE_COL__";
/// Positions of the base columns that a row of a flexible partial update does not bring.
pub const SKIP_BITMAP_COL: &str = "__DORIS_SKIP_BITMAP_COL__";
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
    /// `AGGREGATE KEY`
    Aggregate,
}

impl KeysType {
    /// Name in REST answers.
    pub fn rest_name(self) -> &'static str {
        match self {
            Self::Duplicate => "DUP_KEYS",
            Self::Unique => "UNIQUE_KEYS",
            Self::Aggregate => "AGG_KEYS",
        }
    }

    /// Words in DDL.
    pub fn ddl_name(self) -> &'static str {
        match self {
            Self::Duplicate => "DUPLICATE KEY",
            Self::Unique => "UNIQUE KEY",
            Self::Aggregate => "AGGREGATE KEY",
        }
    }

    /// `information_schema.columns.COLUMN_KEY` of key columns.
    pub fn column_key(self) -> &'static str {
        match self {
            Self::Duplicate => "DUP",
            Self::Unique => "UNI",
            Self::Aggregate => "AGG",
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
    CurrentTimestamp(u8),
    /// `DEFAULT CURRENT_DATE`
    CurrentDate,
    /// `DEFAULT BITMAP_EMPTY`, `DEFAULT HLL_EMPTY`
    Empty,
}

impl DefaultValue {
    /// Text in DESC, `_schema` and information_schema.
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::None | Self::Null => None,
            Self::Text(text) => Some(text),
            Self::CurrentTimestamp(_) => Some("CURRENT_TIMESTAMP"),
            Self::CurrentDate => Some("CURRENT_DATE"),
            Self::Empty => Some("BITMAP_EMPTY"),
        }
    }

    /// The text of the value at a moment of UTC, in milliseconds; `None` for NULL and for states, which have none.
    pub(crate) fn value_at(&self, now_ms: i64) -> Option<String> {
        match self {
            Self::None | Self::Null | Self::Empty => None,
            Self::Text(text) => Some(text.clone()),
            Self::CurrentTimestamp(precision) => Some(crate::types::format_datetime(now_ms * 1000, *precision)),
            Self::CurrentDate => Some(crate::types::format_date(now_ms.div_euclid(86_400_000))),
        }
    }

    /// Whether a value is made without NULL.
    pub(crate) fn is_value(&self) -> bool {
        !matches!(self, Self::None | Self::Null)
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
    /// How values of one key meet, on value columns of aggregate tables.
    pub aggregation: Option<Aggregation>,
    /// Absent values are numbered.
    pub auto_increment: bool,
}

impl Column {
    /// A nullable value column.
    pub fn new(name: impl Into<String>, ty: DorisType) -> Self {
        Self {
            name: name.into(),
            ty,
            nullable: true,
            key: false,
            default: DefaultValue::None,
            comment: String::new(),
            aggregation: None,
            auto_increment: false,
        }
    }

    /// `aggregation_type` of `_schema`: empty when there is none.
    pub fn aggregation_type(&self) -> &'static str {
        self.aggregation.map_or("", Aggregation::name)
    }

    /// `Extra` of DESC.
    pub fn extra(&self, keys: KeysType) -> String {
        let mut text = match (self.key, keys) {
            (true, _) => String::new(),
            (false, KeysType::Aggregate) => self.aggregation_type().to_owned(),
            (false, _) => "NONE".to_owned(),
        };
        if self.auto_increment {
            if !text.is_empty() {
                text.push_str(", ");
            }
            text.push_str("AUTO_INCREMENT");
        }
        text
    }

    /// Whether rows may leave the column out.
    pub(crate) fn fillable(&self) -> bool {
        self.nullable || self.auto_increment || self.default.is_value()
    }

    /// Storage field.
    pub fn field(&self) -> FieldRef {
        self.ty.storage_field(&self.name, self.nullable)
    }
}

/// The field of the delete sign in storage.
pub(crate) fn delete_sign_field() -> FieldRef {
    Arc::new(Field::new(DELETE_SIGN, DataType::Int8, false))
}

/// The field of the skip bitmap in load batches.
fn skip_bitmap_field() -> FieldRef {
    let item = Arc::new(Field::new("item", DataType::Int32, true));
    Arc::new(Field::new(SKIP_BITMAP_COL, DataType::List(item), true))
}

/// Schema of load batches for a column list; see [`crate::engine::TableMeta::load_schema`].
pub(crate) fn load_schema(
    columns: &[Column],
    keys: KeysType,
    sequence: Option<&DorisType>,
    list: Option<&[String]>,
) -> Result<SchemaRef, SqlError> {
    let Some(list) = list else {
        return Ok(Arc::new(Schema::new(columns.iter().map(Column::field).collect::<Vec<_>>())));
    };
    let mut fields: Vec<FieldRef> = Vec::with_capacity(list.len());
    for name in list {
        let field = if name.eq_ignore_ascii_case(DELETE_SIGN) && keys == KeysType::Unique {
            delete_sign_field()
        } else if name.eq_ignore_ascii_case(SKIP_BITMAP_COL) && keys == KeysType::Unique {
            skip_bitmap_field()
        } else if let Some(ty) = sequence.filter(|_| name.eq_ignore_ascii_case(SEQUENCE_COL)) {
            ty.storage_field(SEQUENCE_COL, true)
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
