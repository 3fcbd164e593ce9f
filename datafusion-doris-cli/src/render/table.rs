//! Columns with borders, printed in chunks of bounded size.

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::record_batch::RecordBatch;
use unicode_width::UnicodeWidthStr;

use super::ResultWriter;
use super::cells::{Cells, visible};

/// Rows that wait for each other to find common widths.
const CHUNK_ROWS: usize = 1_000;
/// Bytes of text after which a chunk is printed early.
const CHUNK_BYTES: usize = 4 << 20;

pub(super) struct TableWriter {
    names: Vec<String>,
    /// Widths of what is printed already; they only grow.
    widths: Vec<usize>,
    /// Cells of the rows that are not printed yet, row by row.
    pending: Vec<String>,
    pending_bytes: usize,
    live: bool,
    head_printed: bool,
}

impl TableWriter {
    pub(super) fn new(schema: &SchemaRef, live: bool) -> Self {
        let names: Vec<String> = schema.fields().iter().map(|field| visible(field.name())).collect();
        let widths = names.iter().map(|name| width(name)).collect();
        Self { names, widths, pending: Vec::new(), pending_bytes: 0, live, head_printed: false }
    }

    /// Prints the rows that wait, under a new head if they need wider columns than the last one had.
    fn print_chunk(&mut self, out: &mut Vec<u8>) {
        let columns = self.names.len();
        let mut grown = false;
        for (i, cell) in self.pending.iter().enumerate() {
            let known = &mut self.widths[i % columns];
            let needed = width(cell);
            if needed > *known {
                *known = needed;
                grown = true;
            }
        }
        if !self.head_printed || grown {
            self.border(out);
            self.row(&self.names, out);
            self.border(out);
            self.head_printed = true;
        }
        for row in self.pending.chunks(columns) {
            self.row(row, out);
        }
        self.pending.clear();
        self.pending_bytes = 0;
    }

    fn border(&self, out: &mut Vec<u8>) {
        for width in &self.widths {
            out.push(b'+');
            out.extend(std::iter::repeat_n(b'-', width + 2));
        }
        out.extend_from_slice(b"+\n");
    }

    /// One row, as many lines high as its highest cell.
    fn row(&self, cells: &[String], out: &mut Vec<u8>) {
        let mut lines: Vec<_> = cells.iter().map(|cell| cell.split('\n')).collect();
        let height = cells.iter().map(|cell| cell.matches('\n').count() + 1).max().unwrap_or(1);
        for _ in 0..height {
            for (cell, width) in lines.iter_mut().zip(&self.widths) {
                let line = cell.next().unwrap_or_default();
                out.extend_from_slice(b"| ");
                out.extend_from_slice(line.as_bytes());
                out.extend(std::iter::repeat_n(b' ', width.saturating_sub(line.width()) + 1));
            }
            out.extend_from_slice(b"|\n");
        }
    }
}

impl ResultWriter for TableWriter {
    fn batch(&mut self, batch: &RecordBatch, out: &mut Vec<u8>) -> Result<(), ArrowError> {
        if self.names.is_empty() {
            return Ok(());
        }
        let cells = Cells::new(batch)?;
        let mut text = String::new();
        for row in 0..batch.num_rows() {
            for column in 0..cells.columns() {
                let shown = if cells.read(column, row, &mut text)? { visible(&text) } else { "NULL".to_owned() };
                self.pending_bytes += shown.len();
                self.pending.push(shown);
            }
            if self.pending.len() >= CHUNK_ROWS * self.names.len() || self.pending_bytes >= CHUNK_BYTES {
                self.print_chunk(out);
            }
        }
        if self.live && !self.pending.is_empty() {
            self.print_chunk(out);
        }
        Ok(())
    }

    fn finish(&mut self, out: &mut Vec<u8>) -> Result<(), ArrowError> {
        if self.names.is_empty() {
            return Ok(());
        }
        if !self.pending.is_empty() || !self.head_printed {
            self.print_chunk(out);
        }
        self.border(out);
        Ok(())
    }
}

/// Width of the widest line, in terminal columns.
fn width(cell: &str) -> usize {
    cell.split('\n').map(UnicodeWidthStr::width).max().unwrap_or(0)
}
