//! `CREATE TABLE` in Doris for columns of DataFusion.

use std::collections::BTreeMap;

use arrow::datatypes::{DataType, Fields, TimeUnit};

use super::{literal::string_literal, quote_ident, quote_table};
use crate::error::{Error, Result};
use crate::types::{DorisType, TableIdent, doris_type_of};

/// Longest VARCHAR, the type of a text column in a key.
const KEY_TEXT: DorisType = DorisType::Varchar(65_533);

/// A table to make.
#[derive(Debug)]
pub struct CreateTable<'a> {
    /// The table.
    pub table: &'a TableIdent,
    /// Its columns.
    pub fields: &'a Fields,
    /// Positions of the primary key, in its order: makes it a UNIQUE KEY table. Empty: a DUPLICATE KEY table.
    pub key: &'a [usize],
    /// Defaults as texts, by column.
    pub defaults: &'a BTreeMap<String, String>,
    /// `PROPERTIES`.
    pub properties: &'a BTreeMap<String, String>,
}

/// The statements that make a table.
#[derive(Debug, PartialEq, Eq)]
pub struct CreateStatements {
    /// In order, to be run in one session.
    pub statements: Vec<String>,
    /// Positions of the columns as they stand in the table: Doris wants those of the key first.
    pub order: Vec<usize>,
}

impl CreateTable<'_> {
    /// The statements. UNIQUE KEY tables are distributed by their key, others at random, both with `BUCKETS AUTO`.
    ///
    /// | Column | In Doris |
    /// | --- | --- |
    /// | integers, FLOAT, DOUBLE, DECIMAL to 76 digits, DATE, nested types | the type that holds every value |
    /// | unsigned integers | the next wider type; BIGINT UNSIGNED: LARGEINT |
    /// | text | STRING; in a key VARCHAR(65533) |
    /// | timestamp to milliseconds, to microseconds and finer | DATETIME(3), DATETIME(6) |
    /// | the same with a zone | TIMESTAMPTZ(3), TIMESTAMPTZ(6) |
    ///
    /// # Errors
    /// [`Error::Schema`] that names a column without counterpart in Doris, or one that cannot be a key.
    pub fn statements(&self) -> Result<CreateStatements> {
        let fail = |column: &str, reason: &str| Error::schema(self.table, format!("column '{column}': {reason}"));
        if self.fields.is_empty() {
            return Err(Error::schema(self.table, "a table needs a column"));
        }
        let rest = (0..self.fields.len()).filter(|at| !self.key.contains(at));
        let order: Vec<usize> = self.key.iter().copied().chain(rest).collect();
        // Without a key of its own a table is sorted by its first column.
        let keys = self.key.len().max(1);
        let mut columns = Vec::with_capacity(order.len());
        let mut wide = false;
        for (place, at) in order.iter().enumerate() {
            let field = &self.fields[*at];
            let mut doris_type = created_type(field.data_type()).map_err(|reason| fail(field.name(), &reason))?;
            if place < keys {
                doris_type = key_type(doris_type).map_err(|reason| fail(field.name(), &reason))?;
            }
            wide |= is_wide(&doris_type);
            let not_null = !field.is_nullable() || (place < keys && !self.key.is_empty());
            let null = if not_null { "NOT NULL" } else { "NULL" };
            let default = self.defaults.get(field.name());
            let default = default.map(|text| format!(" DEFAULT {}", string_literal(text))).unwrap_or_default();
            columns.push(format!("{} {doris_type} {null}{default}", quote_ident(field.name())));
        }
        let names: Vec<String> = order.iter().take(keys).map(|at| quote_ident(self.fields[*at].name())).collect();
        let names = names.join(", ");
        let model = match self.key {
            [] => format!("DUPLICATE KEY({names}) DISTRIBUTED BY RANDOM"),
            _ => format!("UNIQUE KEY({names}) DISTRIBUTED BY HASH({names})"),
        };
        let properties: Vec<String> = self
            .properties
            .iter()
            .map(|(name, value)| format!("{} = {}", string_literal(name), string_literal(value)))
            .collect();
        let properties = match properties.as_slice() {
            [] => String::new(),
            _ => format!(" PROPERTIES ({})", properties.join(", ")),
        };
        let create = format!(
            "CREATE TABLE {} ({}) {model} BUCKETS AUTO{properties}",
            quote_table(self.table),
            columns.join(", ")
        );
        let wide = wide.then(|| "SET enable_decimal256 = true".to_string());
        let statements = wide.into_iter().chain(allow_names(&create)).chain([create]).collect();
        Ok(CreateStatements { statements, order })
    }
}

/// `CREATE DATABASE`.
pub fn create_database(database: &str, if_not_exists: bool) -> Vec<String> {
    let clause = if if_not_exists { "IF NOT EXISTS " } else { "" };
    let create = format!("CREATE DATABASE {clause}{}", quote_ident(database));
    allow_names(&create).into_iter().chain([create]).collect()
}

/// Names in letters beyond ASCII are a matter of the session.
fn allow_names(create: &str) -> Option<String> {
    (!create.is_ascii()).then(|| "SET enable_unicode_name_support = true".to_string())
}

/// The type of a created column. What is finer than microseconds is checked by value when it is written.
fn created_type(data_type: &DataType) -> Result<DorisType, String> {
    match data_type {
        DataType::Timestamp(TimeUnit::Nanosecond, None) => Ok(DorisType::DateTime(6)),
        DataType::Timestamp(TimeUnit::Nanosecond, Some(_)) => Ok(DorisType::TimestampTz(6)),
        // Of a column that is NULL in every row.
        DataType::Null => Ok(DorisType::String),
        other => doris_type_of(other),
    }
}

fn key_type(doris_type: DorisType) -> Result<DorisType, String> {
    match doris_type {
        DorisType::String => Ok(KEY_TEXT),
        DorisType::Float | DorisType::Double | DorisType::Array(_) | DorisType::Map(..) | DorisType::Struct(_) => {
            Err(format!(
                "type {doris_type} cannot be a key, and a table begins with its key: put a column of another type \
                 first, or name the key by PRIMARY KEY"
            ))
        }
        other => Ok(other),
    }
}

fn is_wide(doris_type: &DorisType) -> bool {
    match doris_type {
        DorisType::Decimal(precision, _) => *precision > 38,
        DorisType::Array(element) => is_wide(element),
        DorisType::Map(key, value) => is_wide(key) || is_wide(value),
        DorisType::Struct(fields) => fields.iter().any(|(_, field)| is_wide(field)),
        _ => false,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use arrow::datatypes::Field;

    use super::*;

    fn create(fields: Vec<Field>, key: &[usize], properties: &[(&str, &str)]) -> Result<CreateStatements> {
        let properties = properties.iter().map(|(k, v)| ((*k).to_string(), (*v).to_string())).collect();
        let defaults = BTreeMap::from([("note".to_string(), "it's".to_string())]);
        let table = TableIdent::new("my db", "t`1");
        CreateTable { table: &table, fields: &fields.into(), key, defaults: &defaults, properties: &properties }
            .statements()
    }

    #[test]
    fn key_columns_come_first_and_make_a_unique_table() {
        let fields = vec![
            Field::new("note", DataType::Utf8, true),
            Field::new("编号", DataType::UInt32, true),
            Field::new("at", DataType::Timestamp(TimeUnit::Nanosecond, None), false),
        ];
        let made = create(fields, &[1], &[("replication_num", "1")]).unwrap();
        assert_eq!(made.order, [1, 0, 2]);
        assert_eq!(
            made.statements[1..],
            ["CREATE TABLE `my db`.`t``1` (`编号` BIGINT NOT NULL, `note` STRING NULL DEFAULT 'it''s', \
              `at` DATETIME(6) NOT NULL) UNIQUE KEY(`编号`) DISTRIBUTED BY HASH(`编号`) BUCKETS AUTO \
              PROPERTIES ('replication_num' = '1')"]
        );
    }

    #[test]
    fn names_beyond_ascii_are_allowed_first() {
        let made = create_database("数据", true);
        assert_eq!(made, ["SET enable_unicode_name_support = true", "CREATE DATABASE IF NOT EXISTS `数据`"]);
        assert_eq!(create_database("d", false), ["CREATE DATABASE `d`"]);
    }

    #[test]
    fn a_table_without_key_is_sorted_by_its_first_column() {
        let made = create(vec![Field::new("name", DataType::Utf8, true)], &[], &[]).unwrap();
        assert_eq!(
            made.statements,
            ["CREATE TABLE `my db`.`t``1` (`name` VARCHAR(65533) NULL) DUPLICATE KEY(`name`) DISTRIBUTED BY RANDOM \
              BUCKETS AUTO"]
        );
    }

    #[test]
    fn wide_decimals_are_allowed_first() {
        let fields = vec![Field::new("id", DataType::Int32, true), Field::new("d", DataType::Decimal256(50, 3), true)];
        let made = create(fields, &[], &[]).unwrap();
        assert_eq!(made.statements[0], "SET enable_decimal256 = true");
        assert!(made.statements[1].contains("`d` DECIMAL(50, 3) NULL"), "{:?}", made.statements);
    }

    #[test]
    fn what_doris_has_no_type_for_is_refused_by_column() {
        for (data_type, word) in [(DataType::Binary, "Binary"), (DataType::Float64, "cannot be a key")] {
            let error = create(vec![Field::new("x", data_type, true)], &[], &[]).unwrap_err().to_string();
            assert!(error.contains("column 'x'") && error.contains(word), "{error}");
        }
        assert!(create(vec![], &[], &[]).is_err());
    }
}
