//! The columns of all tables of a database at once: for lists.

use std::collections::BTreeMap;

use super::DorisClient;
use super::names::PAGE;
use crate::error::Result;
use crate::sql::string_literal;
use crate::types::{ColumnSchema, DorisType};

/// A table's columns; `None` where the list does not tell a type whole.
type Listed = Option<Vec<ColumnSchema>>;

impl DorisClient {
    /// Columns of every table and view of `database` that the user may see: a statement for each 10,000 of them.
    ///
    /// `None` stands for a table that has to be described by itself: the list does not tell the field names of STRUCT.
    /// Nothing tells defaults and which values the server makes.
    ///
    /// # Errors
    /// [`crate::Error::Server`], [`crate::Error::Auth`], [`crate::Error::Transport`].
    pub(crate) async fn columns_of_tables(&self, database: &str) -> Result<BTreeMap<String, Listed>> {
        let mut tables: BTreeMap<String, Listed> = BTreeMap::new();
        let mut from = String::new();
        loop {
            // The database by equality: the FE describes the tables of all others too else.
            let sql = format!(
                "SELECT TABLE_NAME, COLUMN_NAME, IS_NULLABLE, COLUMN_KEY, COLUMN_TYPE FROM information_schema.columns WHERE \
                 TABLE_SCHEMA = {}{from} ORDER BY TABLE_NAME, ORDINAL_POSITION LIMIT {PAGE}",
                string_literal(database)
            );
            let rows = self.statement(&sql).await?.rows;
            let full = rows.len() >= PAGE;
            for row in rows {
                add(&mut tables, row);
            }
            if !full {
                return Ok(tables);
            }
            // The last table may go on behind the page: it is read again from its start, unless it is a page by itself.
            let Some(last) = tables.last_key_value().map(|(name, _)| name.clone()) else { return Ok(tables) };
            let literal = string_literal(&last);
            let again = format!(" AND TABLE_NAME >= {literal}");
            if from == again {
                tables.insert(last, None);
                from = format!(" AND TABLE_NAME > {literal}");
            } else {
                tables.remove(&last);
                from = again;
            }
        }
    }
}

/// Adds a row of the list.
fn add(tables: &mut BTreeMap<String, Listed>, row: Vec<Option<String>>) {
    let mut row = row.into_iter();
    let mut next = || row.next().flatten();
    let (Some(table), Some(name)) = (next(), next()) else { return };
    let nullable = next().is_none_or(|text| !text.eq_ignore_ascii_case("no"));
    let key = next().is_some_and(|text| !text.is_empty());
    let doris_type = next().and_then(|text| DorisType::parse_column_type(&text).ok());
    let columns = tables.entry(table).or_insert_with(|| Some(Vec::new()));
    match (doris_type, &mut *columns) {
        (Some(doris_type), Some(known)) => {
            known.push(ColumnSchema { name, doris_type, nullable, key, default: None, generated: false });
        }
        _ => *columns = None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_that_is_not_told_whole_leaves_the_table_to_be_described() {
        let mut tables = BTreeMap::new();
        for (table, name, nullable, key, column_type) in [
            ("a", "id", "NO", "UNI", "bigint(20)"),
            ("a", "flag", "YES", "", "tinyint(1)"),
            ("b", "id", "NO", "DUP", "int(11)"),
            ("b", "s", "YES", "", "struct<int,string>"),
            ("b", "n", "YES", "", "int(11)"),
        ] {
            let row = [table, name, nullable, key, column_type].map(|text| Some(text.to_string()));
            add(&mut tables, row.to_vec());
        }
        let told: Vec<String> = tables["a"]
            .iter()
            .flatten()
            .map(|column| format!("{} {} {} {}", column.name, column.doris_type, column.nullable, column.key))
            .collect();
        assert_eq!(told, ["id BIGINT false true", "flag BOOLEAN true false"]);
        assert!(tables["b"].is_none());
    }
}
