//! One line per value, as `\G` prints it in a MySQL client.

use std::io::Write as _;

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::record_batch::RecordBatch;
use unicode_width::UnicodeWidthStr;

use super::ResultWriter;
use super::cells::{Cells, visible};

pub(super) struct VerticalWriter {
    /// Column names, padded on the left to one width.
    labels: Vec<String>,
    indent: usize,
    rows: u64,
}

impl VerticalWriter {
    pub(super) fn new(schema: &SchemaRef) -> Self {
        let names: Vec<String> = schema.fields().iter().map(|field| visible(field.name())).collect();
        let indent = names.iter().map(|name| name.width()).max().unwrap_or(0);
        let labels = names.iter().map(|name| format!("{}{name}: ", " ".repeat(indent - name.width()))).collect();
        Self { labels, indent: indent + 2, rows: 0 }
    }
}

impl ResultWriter for VerticalWriter {
    fn batch(&mut self, batch: &RecordBatch, out: &mut Vec<u8>) -> Result<(), ArrowError> {
        let cells = Cells::new(batch)?;
        let stars = "*".repeat(27);
        let mut text = String::new();
        for row in 0..batch.num_rows() {
            self.rows += 1;
            writeln!(out, "{stars} {}. row {stars}", self.rows)?;
            for (column, label) in self.labels.iter().enumerate() {
                out.extend_from_slice(label.as_bytes());
                if cells.read(column, row, &mut text)? {
                    let continued = format!("\n{}", " ".repeat(self.indent));
                    out.extend_from_slice(visible(&text).replace('\n', &continued).as_bytes());
                } else {
                    out.extend_from_slice(b"NULL");
                }
                out.push(b'\n');
            }
        }
        Ok(())
    }

    fn finish(&mut self, _: &mut Vec<u8>) -> Result<(), ArrowError> {
        Ok(())
    }
}
