//! Identifiers.

use crate::types::TableIdent;

/// The identifier in backticks, a backtick inside doubled.
pub fn quote_ident(name: &str) -> String {
    format!("`{}`", name.replace('`', "``"))
}

/// `` `db`.`table` ``, with the catalog before it when that is not `internal`.
pub fn quote_table(table: &TableIdent) -> String {
    let catalog = table.catalog.as_ref().map(|catalog| format!("{}.", quote_ident(catalog))).unwrap_or_default();
    format!("{catalog}{}.{}", quote_ident(&table.database), quote_ident(&table.table))
}
