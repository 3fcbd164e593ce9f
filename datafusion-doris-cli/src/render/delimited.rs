//! CSV and TSV.

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::record_batch::RecordBatch;

use super::ResultWriter;
use super::cells::Cells;

/// What tells CSV from TSV.
pub(super) trait Style: Send {
    const SEPARATOR: u8;
    const NULL: &'static str;
    fn push(text: &str, out: &mut Vec<u8>);
}

/// RFC 4180, lines ended by a bare newline.
pub(super) struct Csv;

impl Style for Csv {
    const SEPARATOR: u8 = b',';
    const NULL: &'static str = "";

    fn push(text: &str, out: &mut Vec<u8>) {
        // An empty text is quoted so that it differs from NULL.
        if !text.is_empty() && !text.contains([',', '"', '\n', '\r']) {
            out.extend_from_slice(text.as_bytes());
            return;
        }
        out.push(b'"');
        for part in text.split_inclusive('"') {
            out.extend_from_slice(part.as_bytes());
            if part.ends_with('"') {
                out.push(b'"');
            }
        }
        out.push(b'"');
    }
}

/// The text format of `mysql --batch` and of Doris's own CSV with tabs.
pub(super) struct Tsv;

impl Style for Tsv {
    const SEPARATOR: u8 = b'\t';
    const NULL: &'static str = "\\N";

    fn push(text: &str, out: &mut Vec<u8>) {
        for byte in text.bytes() {
            match byte {
                b'\t' => out.extend_from_slice(b"\\t"),
                b'\n' => out.extend_from_slice(b"\\n"),
                b'\r' => out.extend_from_slice(b"\\r"),
                b'\\' => out.extend_from_slice(b"\\\\"),
                byte => out.push(byte),
            }
        }
    }
}

pub(super) struct DelimitedWriter<S> {
    /// The head line, until it is printed.
    head: Option<Vec<u8>>,
    cell: String,
    style: std::marker::PhantomData<S>,
}

impl<S: Style> DelimitedWriter<S> {
    pub(super) fn new(schema: &SchemaRef, _: S) -> Self {
        let mut head = Vec::new();
        for (i, field) in schema.fields().iter().enumerate() {
            if i > 0 {
                head.push(S::SEPARATOR);
            }
            S::push(field.name(), &mut head);
        }
        head.push(b'\n');
        Self { head: Some(head), cell: String::new(), style: std::marker::PhantomData }
    }
}

impl<S: Style> ResultWriter for DelimitedWriter<S> {
    fn batch(&mut self, batch: &RecordBatch, out: &mut Vec<u8>) -> Result<(), ArrowError> {
        out.extend(self.head.take().unwrap_or_default());
        let cells = Cells::new(batch)?;
        for row in 0..batch.num_rows() {
            for column in 0..cells.columns() {
                if column > 0 {
                    out.push(S::SEPARATOR);
                }
                if cells.read(column, row, &mut self.cell)? {
                    S::push(&self.cell, out);
                } else {
                    out.extend_from_slice(S::NULL.as_bytes());
                }
            }
            out.push(b'\n');
        }
        Ok(())
    }

    fn finish(&mut self, out: &mut Vec<u8>) -> Result<(), ArrowError> {
        out.extend(self.head.take().unwrap_or_default());
        Ok(())
    }
}
