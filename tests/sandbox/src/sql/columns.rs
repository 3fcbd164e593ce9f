//! Which columns a relation shows: base columns, and hidden ones when they are named or `show_hidden_columns` is on.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::sql::sqlparser::tokenizer::Token;

use crate::changelog::incr_schema;
use crate::engine::Profile;
use crate::storage::{COMMIT_TSO_COL, KeysType, ROW_LSN_COL, SEQUENCE_COL, Table, VERSION_COL, delete_sign_field};

/// Hidden columns that a statement names, in upper case.
pub(super) fn mentioned(tokens: &[Token]) -> HashSet<String> {
    tokens
        .iter()
        .filter_map(|token| match token {
            Token::Word(word) => Some(word.value.to_ascii_uppercase()).filter(|name| name.starts_with("__DORIS_")),
            _ => None,
        })
        .collect()
}

/// A relation's schema and the columns in it that `*` leaves out.
pub(super) struct Shown {
    pub(super) schema: SchemaRef,
    pub(super) hidden: Vec<String>,
}

/// Schema of a table scan.
///
/// With `row_lsn` duplicate tables have one more hidden column.
pub(super) fn of_table(
    table: &Table,
    named: &HashSet<String>,
    show_hidden: bool,
    row_ids: bool,
    row_lsn: bool,
) -> Shown {
    let mut fields: Vec<Field> = table.columns().iter().map(|c| c.field().as_ref().clone()).collect();
    let mut hidden = Vec::new();
    if show_hidden && table.keys_type() == KeysType::Unique {
        fields.push(delete_sign_field().as_ref().clone());
        fields.push(Field::new(VERSION_COL, DataType::Int64, false));
    }
    // Statements that write rows back read the sequence too.
    if let Some(ty) = table.sequence_type().filter(|_| show_hidden || row_ids) {
        fields.push(ty.storage_field(SEQUENCE_COL, true).as_ref().clone());
        if !show_hidden {
            hidden.push(SEQUENCE_COL.to_owned());
        }
    }
    let row_lsn = row_lsn && table.keys_type() == KeysType::Duplicate;
    for (column, there) in [(COMMIT_TSO_COL, true), (ROW_LSN_COL, row_lsn)] {
        if there && table.spec().changes.is_some() && (show_hidden || named.contains(column)) {
            fields.push(Field::new(column, DataType::Int64, false));
            if !show_hidden {
                hidden.push(column.to_owned());
            }
        }
    }
    if row_ids {
        fields.push(Field::new("__sandbox_tablet__", DataType::UInt32, false));
        fields.push(Field::new("__sandbox_row__", DataType::UInt64, false));
    }
    Shown { schema: Arc::new(Schema::new(fields)), hidden }
}

/// Schema of an `@incr` read.
pub(super) fn of_changes(table: &Table, profile: Profile, named: &HashSet<String>, show_hidden: bool) -> Shown {
    let all = incr_schema(table, profile);
    let base = table.columns().len();
    let mut fields: Vec<Field> = all.fields()[..base].iter().map(|f| f.as_ref().clone()).collect();
    let mut hidden = Vec::new();
    for field in &all.fields()[base..] {
        if show_hidden || named.contains(field.name()) {
            fields.push(field.as_ref().clone());
            if !show_hidden {
                hidden.push(field.name().clone());
            }
        }
    }
    Shown { schema: Arc::new(Schema::new(fields)), hidden }
}
