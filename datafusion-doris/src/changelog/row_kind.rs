//! Row kinds, and the hidden columns that carry them.

use std::fmt;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array, StringArray};
use arrow::buffer::OffsetBuffer;
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, Int64Type, Schema};

use crate::error::{Error, Result};
use crate::sql::HiddenColumns;
use crate::types::TableIdent;

/// What a row of a changelog says about its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RowKind {
    /// `+I`: the row is new.
    Insert,
    /// `-U`: the row as it was before an update.
    UpdateBefore,
    /// `+U`: the row as it is after an update.
    UpdateAfter,
    /// `-D`: the row is gone.
    Delete,
}

impl RowKind {
    /// All kinds.
    pub const ALL: [RowKind; 4] = [RowKind::Insert, RowKind::UpdateBefore, RowKind::UpdateAfter, RowKind::Delete];

    /// The text in the change kind column.
    pub fn as_str(self) -> &'static str {
        match self {
            RowKind::Insert => "+I",
            RowKind::UpdateBefore => "-U",
            RowKind::UpdateAfter => "+U",
            RowKind::Delete => "-D",
        }
    }

    /// The kind of an operation code of `@incr`: 0 insert, 1 delete, 2 update before, 3 update after.
    pub fn from_operation(code: i64) -> Option<Self> {
        match code {
            0 => Some(RowKind::Insert),
            1 => Some(RowKind::Delete),
            2 => Some(RowKind::UpdateBefore),
            3 => Some(RowKind::UpdateAfter),
            _ => None,
        }
    }
}

/// Length of the text of each kind.
const KIND_BYTES: usize = 2;

impl fmt::Display for RowKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A change kind column of `rows` times the same kind.
pub(super) fn constant_kinds(kind: RowKind, rows: usize) -> ArrayRef {
    Arc::new(StringArray::from_iter_values(std::iter::repeat_n(kind.as_str(), rows)))
}

/// Where the columns of a window's result are: the hidden ones are found by name, the others keep their order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ResultColumns {
    pub tso: usize,
    pub lsn: usize,
    pub operation: usize,
    pub business: Vec<usize>,
}

impl ResultColumns {
    /// Finds the three hidden columns by the names asked for, whatever their case and position.
    pub fn locate(table: &TableIdent, schema: &Schema, names_of: &HiddenColumns, business: usize) -> Result<Self> {
        let hidden = |name: &str| {
            let mut found = (0..schema.fields().len()).filter(|i| schema.field(*i).name().eq_ignore_ascii_case(name));
            match (found.next(), found.next()) {
                (Some(index), None) => Ok(index),
                _ => Err(Error::Changelog {
                    table: table.to_string(),
                    reason: format!(
                        "the result must hold exactly one TSO, LSN and OP column, but its columns are {}",
                        names(schema)
                    ),
                }),
            }
        };
        let (tso, lsn, operation) = (hidden(&names_of.tso)?, hidden(&names_of.lsn)?, hidden(&names_of.op)?);
        let others: Vec<usize> = (0..schema.fields().len()).filter(|i| ![tso, lsn, operation].contains(i)).collect();
        if others.len() != business {
            return Err(Error::Changelog {
                table: table.to_string(),
                reason: format!("expected {business} columns and three hidden ones, got {}", names(schema)),
            });
        }
        Ok(Self { tso, lsn, operation, business: others })
    }
}

fn names(schema: &Schema) -> String {
    schema.fields().iter().map(|field| field.name().as_str()).collect::<Vec<_>>().join(", ")
}

/// The change kind column of operation codes, which come as any integer, a decimal or a text of one.
pub(super) fn decode_kinds(table: &TableIdent, codes: &ArrayRef) -> Result<ArrayRef> {
    let invalid = |what: String| Error::Changelog {
        table: table.to_string(),
        reason: format!("{what} is not an operation code (0 insert, 1 delete, 2 update before, 3 update after)"),
    };
    let codes = integers(codes).ok_or_else(|| invalid(format!("a value of type {}", codes.data_type())))?;
    if codes.null_count() > 0 {
        return Err(invalid("null".into()));
    }
    let mut kinds = Vec::with_capacity(codes.len() * KIND_BYTES);
    for code in codes.values() {
        let kind = RowKind::from_operation(*code).ok_or_else(|| invalid(code.to_string()))?;
        kinds.extend_from_slice(kind.as_str().as_bytes());
    }
    let offsets = OffsetBuffer::from_repeated_length(KIND_BYTES, codes.len());
    Ok(Arc::new(StringArray::try_new(offsets, kinds.into(), None)?))
}

fn integers(codes: &ArrayRef) -> Option<Int64Array> {
    if codes.data_type().is_floating() {
        return None;
    }
    let exact = CastOptions { safe: false, ..Default::default() };
    let cast = cast_with_options(codes, &DataType::Int64, &exact).ok()?;
    Some(cast.as_primitive::<Int64Type>().clone())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use arrow::array::{Decimal128Array, Int8Array, Int64Array};
    use arrow::datatypes::Field;

    use super::*;

    fn table() -> TableIdent {
        TableIdent::new("db", "t")
    }

    fn schema(names: &[&str]) -> Schema {
        Schema::new(names.iter().map(|name| Field::new(*name, DataType::Int64, true)).collect::<Vec<_>>())
    }

    #[test]
    fn hidden_columns_are_found_by_name_in_any_order_and_case() {
        let odd = schema(&["__DORIS_BINLOG_LSN__", "id", "__DORIS_BINLOG_OP__", "name", "__doris_binlog_tso__"]);
        let found = ResultColumns::locate(&table(), &odd, &HiddenColumns::binlog(), 2).unwrap();
        assert_eq!(found, ResultColumns { tso: 4, lsn: 0, operation: 2, business: vec![1, 3] });
        let new = schema(&["id", "__DORIS_CHANGELOG_TSO__", "__DORIS_CHANGELOG_LSN__", "__DORIS_CHANGELOG_OP__"]);
        assert_eq!(ResultColumns::locate(&table(), &new, &HiddenColumns::changelog(), 1).unwrap().business, vec![0]);
        let mine = HiddenColumns { tso: "commit".into(), lsn: "seq".into(), op: "kind".into() };
        let named = schema(&["id", "KIND", "Seq", "commit"]);
        assert_eq!(ResultColumns::locate(&table(), &named, &mine, 1).unwrap().tso, 3);
    }

    #[test]
    fn missing_or_doubled_hidden_column_is_an_error_that_lists_the_columns() {
        let binlog = HiddenColumns::binlog();
        let missing = schema(&["id", "__DORIS_BINLOG_LSN__", "__DORIS_BINLOG_OP__"]);
        let error = ResultColumns::locate(&table(), &missing, &binlog, 1).unwrap_err().to_string();
        assert!(error.contains("exactly one") && error.contains("id, __DORIS_BINLOG_LSN__"), "{error}");
        let doubled =
            schema(&["__DORIS_BINLOG_TSO__", "__doris_binlog_tso__", "__DORIS_BINLOG_LSN__", "__DORIS_BINLOG_OP__"]);
        assert!(ResultColumns::locate(&table(), &doubled, &binlog, 0).is_err());
    }

    #[test]
    fn a_column_of_the_user_that_ends_like_a_hidden_one_is_not_taken() {
        let mine = schema(&["MY_TSO__", "__DORIS_BINLOG_TSO__", "__DORIS_BINLOG_LSN__", "__DORIS_BINLOG_OP__"]);
        assert_eq!(ResultColumns::locate(&table(), &mine, &HiddenColumns::binlog(), 1).unwrap().business, vec![0]);
    }

    #[test]
    fn operation_codes_come_as_any_integer_decimal_or_text() {
        let expected = StringArray::from(vec!["+I", "-D", "-U", "+U"]);
        let forms: [ArrayRef; 4] = [
            Arc::new(Int8Array::from(vec![0, 1, 2, 3])),
            Arc::new(Int64Array::from(vec![0, 1, 2, 3])),
            Arc::new(StringArray::from(vec!["0", "1", "2", "3"])),
            Arc::new(Decimal128Array::from(vec![0, 1, 2, 3]).with_precision_and_scale(27, 0).unwrap()),
        ];
        for form in forms {
            assert_eq!(decode_kinds(&table(), &form).unwrap().as_string::<i32>(), &expected);
        }
    }

    #[test]
    fn unknown_operation_code_is_an_error_that_names_it() {
        for code in [4, 9, -1, 1 << 32] {
            let codes: ArrayRef = Arc::new(Int64Array::from(vec![0, code]));
            let error = decode_kinds(&table(), &codes).unwrap_err().to_string();
            assert!(error.contains(&format!("{code} is not an operation code")), "{error}");
        }
        let null: ArrayRef = Arc::new(Int64Array::from(vec![None]));
        assert!(decode_kinds(&table(), &null).unwrap_err().to_string().contains("null is not"));
        let text: ArrayRef = Arc::new(StringArray::from(vec!["x"]));
        assert!(decode_kinds(&table(), &text).is_err());
    }
}
