//! Doris SQL text: quoting, literals, filters, and the statements of scans, changelog reads and changes of rows.
//!
//! Everything that stands in a statement comes from here. Literals are printed by this crate alone: a general SQL
//! printer does not know Doris' backslash escapes, and a value could end its literal early.

mod assign;
mod change;
mod changelog;
mod create;
mod expr;
mod ident;
mod literal;
mod mask;
mod scan;
mod staged_insert;
#[cfg(test)]
mod tests;

pub use assign::{AssignedValue, assigned_value};
pub use change::{Change, delete_sql, truncate_sql, update_sql};
pub use changelog::{ChangelogSelect, HiddenColumns, IncrementType, commit_at_sql, first_change_sql, utc_text};
pub use create::{CreateStatements, CreateTable, create_database};
pub use expr::filter_sql;
pub(crate) use expr::{
    Columns, KeyRows, PushedFilter, SqlColumn, SqlValue, condition_sql, has_key_literals, is_text, key_rows,
    pushed_external_filter, pushed_filter, value_sql,
};
pub use ident::{quote_ident, quote_table};
pub use literal::string_literal;
pub(crate) use mask::without_secrets;
pub use scan::{ScanQuery, ScanSelect};
pub use staged_insert::{LastOfKey, StagedColumn, StagedInsert};

/// Stands before every statement, so that the audit log of Doris names the sender.
pub const STATEMENT_PREFIX: &str = "/* ApplicationName=datafusion-doris */ ";
