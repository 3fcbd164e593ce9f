//! Identifiers.

use crate::types::TableIdent;

/// The identifier in backticks, a backtick inside doubled.
pub fn quote_ident(name: &str) -> String {
    format!("`{}`", name.replace('`', "``"))
}

/// `` `db`.`table` ``.
pub fn quote_table(table: &TableIdent) -> String {
    format!("{}.{}", quote_ident(&table.database), quote_ident(&table.table))
}
