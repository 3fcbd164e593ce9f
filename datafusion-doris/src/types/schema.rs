//! Table identity and schema as Doris describes them.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use serde::{Deserialize, Serialize};

use super::DorisType;

/// The catalog of Doris' own tables.
pub(crate) const INTERNAL_CATALOG: &str = "internal";

/// `db.table`, or `catalog.db.table` in an external catalog of Doris.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TableIdent {
    /// Catalog of Doris that holds it (Hive, Iceberg, JDBC …); `None`: Doris' own, `internal`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub catalog: Option<String>,
    /// Database.
    pub database: String,
    /// Table.
    pub table: String,
}

impl TableIdent {
    /// The table `table` of `database`.
    pub fn new(database: impl Into<String>, table: impl Into<String>) -> Self {
        Self { catalog: None, database: database.into(), table: table.into() }
    }

    /// The same table in the catalog `catalog` of Doris; `internal` is that of a [`Self::new`] table.
    pub fn in_catalog(mut self, catalog: impl Into<String>) -> Self {
        let catalog = catalog.into();
        self.catalog = (!catalog.eq_ignore_ascii_case(INTERNAL_CATALOG)).then_some(catalog);
        self
    }

    /// Reads `db.table` or `catalog.db.table`; a part with a dot or a backtick stands in backticks.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let shape = || format!("'{text}' is not of the form database.table or catalog.database.table");
        let mut parts = split_identifier(text.trim()).ok_or_else(shape)?;
        let catalog = if parts.len() == 3 { Some(parts.remove(0)) } else { None };
        match (<[String; 2]>::try_from(parts), catalog) {
            (Ok([database, table]), Some(catalog)) => Ok(Self::new(database, table).in_catalog(catalog)),
            (Ok([database, table]), None) => Ok(Self::new(database, table)),
            (Err(_), _) => Err(shape()),
        }
    }
}

/// Splits at dots outside of backticks; `None` when a part is empty or a backtick is not closed.
fn split_identifier(text: &str) -> Option<Vec<String>> {
    let mut parts = vec![String::new()];
    let mut quoted = false;
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let part = parts.last_mut()?;
        match c {
            '`' if quoted && chars.peek() == Some(&'`') => {
                chars.next();
                part.push('`');
            }
            '`' if quoted || part.is_empty() => quoted = !quoted,
            '`' => return None,
            '.' if !quoted => parts.push(String::new()),
            _ => part.push(c),
        }
    }
    (!quoted && parts.iter().all(|part| !part.is_empty())).then_some(parts)
}

impl fmt::Display for TableIdent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(catalog) = &self.catalog {
            write!(f, "{catalog}.")?;
        }
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

impl KeyModel {
    /// Reads `keysType` of `_schema` (`UNIQUE_KEYS`) or the word before `KEY` in SHOW CREATE TABLE (`UNIQUE`).
    pub fn parse(text: &str) -> Option<Self> {
        match text.trim().to_ascii_uppercase().as_str() {
            "DUP_KEYS" | "DUPLICATE" => Some(KeyModel::Duplicate),
            "UNIQUE_KEYS" | "PRIMARY_KEYS" | "UNIQUE" => Some(KeyModel::Unique),
            "AGG_KEYS" | "AGGREGATE" => Some(KeyModel::Aggregate),
            _ => None,
        }
    }
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
    /// Doris makes the value when none is given: AUTO_INCREMENT, or an expression.
    pub generated: bool,
}

impl ColumnSchema {
    /// A nullable value column without default.
    pub fn new(name: impl Into<String>, doris_type: DorisType) -> Self {
        Self { name: name.into(), doris_type, nullable: true, key: false, default: None, generated: false }
    }

    /// Sets [`Self::nullable`].
    pub fn with_nullable(mut self, nullable: bool) -> Self {
        self.nullable = nullable;
        self
    }

    /// Whether rows may leave the column out.
    pub fn may_be_left_out(&self) -> bool {
        // States of aggregations begin empty.
        let state = matches!(self.doris_type, DorisType::Opaque(_));
        self.nullable || self.generated || self.default.is_some() || state
    }

    /// Sets [`Self::key`].
    pub fn with_key(mut self, key: bool) -> Self {
        self.key = key;
        self
    }
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

impl TableSchema {
    /// The column `name`, compared as Doris does: without case.
    pub fn column(&self, name: &str) -> Option<&ColumnSchema> {
        self.columns
            .iter()
            .find(|column| column.name == name)
            .or_else(|| self.columns.iter().find(|column| column.name.to_lowercase() == name.to_lowercase()))
    }

    /// The property `key`, if the server shows it, is `value`.
    fn property_is(&self, key: &str, value: &str) -> bool {
        self.properties.get(key).is_some_and(|text| text.eq_ignore_ascii_case(value))
    }

    /// Whether rows of a unique table are merged when they are read: such tables take no partial updates.
    pub fn merges_on_read(&self) -> bool {
        self.model == Some(KeyModel::Unique) && self.property_is("enable_unique_key_merge_on_write", "false")
    }

    /// Whether the table records its changes. A table whose properties are hidden from the user may do so.
    ///
    /// Properties: `changelog.enable`, before the rename `binlog.enable` with `binlog.format` = `ROW`.
    pub fn records_changes(&self) -> bool {
        let is = |key: &str, value: &str| self.properties.get(key).is_some_and(|text| text.eq_ignore_ascii_case(value));
        self.properties.is_empty()
            || is("changelog.enable", "true")
            || (is("binlog.enable", "true") && is("binlog.format", "ROW"))
    }

    /// Whether a DELETE in Doris leaves no change behind: one by predicate only hides rows.
    pub fn deletes_silently(&self) -> bool {
        let light = self.properties.get("enable_mow_light_delete");
        self.model == Some(KeyModel::Duplicate) || light.is_some_and(|text| text.eq_ignore_ascii_case("true"))
    }

    /// Whether its changelog has the old values of updates and deletes. A table whose properties are hidden from the
    /// user may have them; one without a unique key needs none.
    ///
    /// Properties: `changelog.need_historical_value`, before the rename `binlog.need_historical_value`.
    pub fn keeps_old_values(&self) -> bool {
        let is_true = |key: &str| self.properties.get(key).is_some_and(|text| text.eq_ignore_ascii_case("true"));
        self.model != Some(KeyModel::Unique)
            || self.properties.is_empty()
            || is_true("changelog.need_historical_value")
            || is_true("binlog.need_historical_value")
    }

    /// The Arrow schema of the table: one field per column, in table order, nullability as in Doris. A column whose
    /// type cannot be read as a value is Binary; reading it is refused by name.
    pub fn arrow_schema(&self) -> SchemaRef {
        let field = |column: &ColumnSchema| {
            let data_type = column.doris_type.arrow_type().unwrap_or(DataType::Binary);
            Field::new(&column.name, data_type, column.nullable)
        };
        Arc::new(Schema::new(self.columns.iter().map(field).collect::<Vec<_>>()))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    #[test]
    fn deletes_by_predicate_leave_no_change() {
        for (model, light, expected) in [
            (KeyModel::Unique, None, false),
            (KeyModel::Unique, Some("false"), false),
            (KeyModel::Unique, Some("TRUE"), true),
            (KeyModel::Duplicate, None, true),
        ] {
            let property = light.map(|text: &str| ("enable_mow_light_delete".to_string(), text.to_string()));
            let schema = TableSchema {
                table: TableIdent::new("db", "t"),
                model: Some(model),
                columns: Vec::new(),
                properties: property.into_iter().collect(),
            };
            assert_eq!(schema.deletes_silently(), expected, "{model:?} {light:?}");
        }
    }

    #[test]
    fn changes_are_recorded_under_either_name_of_the_property() {
        let cases: [(&[(&str, &str)], bool); 7] = [
            (&[], true),
            (&[("replication_num", "1")], false),
            (&[("changelog.enable", "true")], true),
            (&[("changelog.enable", "false")], false),
            (&[("binlog.enable", "true"), ("binlog.format", "ROW")], true),
            (&[("binlog.enable", "true"), ("binlog.format", "STATEMENT_AND_SNAPSHOT")], false),
            (&[("binlog.enable", "false"), ("binlog.format", "ROW")], false),
        ];
        for (properties, expected) in cases {
            let schema = TableSchema {
                table: TableIdent::new("db", "t"),
                model: Some(KeyModel::Unique),
                columns: Vec::new(),
                properties: properties.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect(),
            };
            assert_eq!(schema.records_changes(), expected, "{properties:?}");
        }
    }

    #[test]
    fn table_identifier_has_two_parts_or_three() {
        for (text, database, table) in [
            ("db.t", "db", "t"),
            (" internal.db.t ", "db", "t"),
            ("`my.db`.`a``b`", "my.db", "a`b"),
            ("数据.表", "数据", "表"),
        ] {
            assert_eq!(TableIdent::parse(text), Ok(TableIdent::new(database, table)), "{text}");
        }
        let external = TableIdent::parse("`my hive`.db.t").unwrap();
        assert_eq!(external, TableIdent::new("db", "t").in_catalog("my hive"));
        assert_eq!(external.to_string(), "my hive.db.t");
        for text in ["", "t", "db.", ".t", "a.b.c.d", "`a.b", "a`b`.c"] {
            assert!(TableIdent::parse(text).is_err(), "{text}");
        }
    }
}
