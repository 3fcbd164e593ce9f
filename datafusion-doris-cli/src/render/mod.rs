//! Query results as text: one writer per format. All of them stream: what they keep is bounded, whatever the result's
//! size.
//!
//! | format | NULL | notes |
//! | --- | --- | --- |
//! | `table` | `NULL` | column widths from the first rows; printed again with a new head when later rows need more |
//! | `csv` | empty | RFC 4180 with a head line; an empty text is `""` |
//! | `tsv` | `\N` | head line; tab, newline, carriage return and backslash as `\t`, `\n`, `\r`, `\\` |
//! | `json` | `null` | one array per statement, one object per row |
//! | `ndjson` | `null` | one object per line |
//! | `vertical` | `NULL` | one line per value, for wide rows |

mod cells;
mod delimited;
mod json;
mod table;
mod vertical;

use std::fmt;
use std::str::FromStr;

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::record_batch::RecordBatch;

/// How results are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Format {
    /// Columns under a head, with borders.
    #[default]
    Table,
    /// Values parted by commas.
    Csv,
    /// Values parted by tabs.
    Tsv,
    /// An array of objects.
    Json,
    /// One JSON object per line.
    Ndjson,
    /// One line per value.
    Vertical,
}

impl Format {
    /// Every format.
    pub const ALL: [Self; 6] = [Self::Table, Self::Csv, Self::Tsv, Self::Json, Self::Ndjson, Self::Vertical];

    fn name(self) -> &'static str {
        match self {
            Self::Table => "table",
            Self::Csv => "csv",
            Self::Tsv => "tsv",
            Self::Json => "json",
            Self::Ndjson => "ndjson",
            Self::Vertical => "vertical",
        }
    }

    /// A writer for one result. `live` results are shown batch by batch as they come; others may wait for a few
    /// more rows.
    pub fn writer(self, schema: &SchemaRef, live: bool) -> Box<dyn ResultWriter> {
        match self {
            Self::Table => Box::new(table::TableWriter::new(schema, live)),
            Self::Csv => Box::new(delimited::DelimitedWriter::new(schema, delimited::Csv)),
            Self::Tsv => Box::new(delimited::DelimitedWriter::new(schema, delimited::Tsv)),
            Self::Json => Box::new(json::JsonWriter::array()),
            Self::Ndjson => Box::new(json::JsonWriter::lines()),
            Self::Vertical => Box::new(vertical::VerticalWriter::new(schema)),
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Format {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|format| format.name() == text)
            .ok_or_else(|| format!("unknown format `{text}`: known are table, csv, tsv, json, ndjson, vertical"))
    }
}

/// Turns the batches of one result into text, without doing I/O itself.
pub trait ResultWriter: Send {
    /// Appends what can be printed after this batch.
    ///
    /// # Errors
    /// When a value has no text form, such as a timestamp out of range.
    fn batch(&mut self, batch: &RecordBatch, out: &mut Vec<u8>) -> Result<(), ArrowError>;

    /// Appends the rest. Must be called once, after the last batch.
    ///
    /// # Errors
    /// As for [`batch`](Self::batch).
    fn finish(&mut self, out: &mut Vec<u8>) -> Result<(), ArrowError>;
}

#[cfg(test)]
mod tests;
