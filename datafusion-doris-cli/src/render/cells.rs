//! Text of single values.

use std::fmt::Write as _;

use datafusion::arrow::array::Array;
use datafusion::arrow::buffer::NullBuffer;
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};

/// How NULLs *inside* arrays, maps and structs are shown.
const OPTIONS: FormatOptions<'static> = FormatOptions::new().with_display_error(false).with_null("NULL");

/// The columns of a batch, ready to be read as text row by row.
pub(super) struct Cells<'a> {
    columns: Vec<(ArrayFormatter<'a>, Option<NullBuffer>)>,
}

impl<'a> Cells<'a> {
    pub(super) fn new(batch: &'a RecordBatch) -> Result<Self, ArrowError> {
        let columns = batch.columns().iter().map(|column| {
            // Logical: a NullArray and a dictionary with a null value have no validity bits of their own.
            Ok((ArrayFormatter::try_new(column.as_ref(), &OPTIONS)?, column.logical_nulls()))
        });
        Ok(Self { columns: columns.collect::<Result<_, ArrowError>>()? })
    }

    pub(super) fn columns(&self) -> usize {
        self.columns.len()
    }

    /// Puts the value's text into `text`, which is emptied before. False for NULL.
    pub(super) fn read(&self, column: usize, row: usize, text: &mut String) -> Result<bool, ArrowError> {
        text.clear();
        let (formatter, nulls) = &self.columns[column];
        if nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) {
            return Ok(false);
        }
        formatter.value(row).write(text)?;
        Ok(true)
    }
}

/// A value for people: control characters other than a newline are shown as escapes, so that data can neither move
/// the cursor nor break the layout.
pub(super) fn visible(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' => shown.push(c),
            '\t' => shown.push_str("\\t"),
            '\r' => shown.push_str("\\r"),
            c if c.is_control() => {
                let _ = write!(shown, "\\x{:02x}", u32::from(c));
            }
            c => shown.push(c),
        }
    }
    shown
}
