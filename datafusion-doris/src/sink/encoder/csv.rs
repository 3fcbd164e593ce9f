//! Separated text.

use arrow::record_batch::RecordBatch;

use super::column::{Column, Values};
use super::escape::push_escaped;
use super::{Encoder, RowAction, RowLayout};
use crate::error::Result;
use crate::options::CsvFormat;
use crate::sink::output::Output;

/// A mark that Doris takes off the first line.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// NULL, as Doris reads it when it is not enclosed.
const NULL: &[u8] = b"\\N";

/// `format: csv`.
///
/// By default text is enclosed in `"` with `\` as escape, so that no value can be taken for a separator or for NULL:
/// the empty text is `""`, the text `\N` is `"\\N"`, NULL is `\N` without quotes. When the user sets a separator and
/// no `enclose`, values are written bare, and a value that holds a separator, or is the text `\N`, is refused.
#[derive(Debug)]
pub(crate) struct CsvEncoder {
    layout: RowLayout,
    format: CsvFormat,
    quoting: Option<Quoting>,
    /// No separator can be in a number, date or time.
    bare_is_safe: bool,
    nested: Vec<u8>,
}

#[derive(Debug, Clone, Copy)]
struct Quoting {
    enclose: u8,
    escape: u8,
}

impl CsvEncoder {
    pub(crate) fn new(layout: RowLayout, format: CsvFormat) -> Self {
        // Without an escape byte a value may end early: text is then written bare and checked.
        let quoting = match (format.enclose, format.escape) {
            (Some(enclose), Some(escape)) => Some(Quoting { enclose, escape }),
            _ => None,
        };
        let separators = [&format.column_separator, &format.line_delimiter];
        let bare_is_safe = separators.iter().all(|separator| separator.iter().any(|byte| !may_be_bare(*byte)));
        Self { layout, format, quoting, bare_is_safe, nested: Vec::new() }
    }

    fn push_field(&mut self, out: &mut Vec<u8>, column: &Column, row: usize) -> std::result::Result<(), String> {
        if column.is_null(row) {
            out.extend_from_slice(NULL);
            return Ok(());
        }
        let start = out.len();
        match &column.values {
            Values::Null => out.extend_from_slice(NULL),
            Values::Number(write) | Values::Exact(write) | Values::Quoted(write) => {
                write(row, out)?;
                return self.check_bare(&out[start..]);
            }
            Values::Float(write) => {
                write(row, out);
                return self.check_bare(&out[start..]);
            }
            Values::Text(text) => match self.quoting {
                Some(Quoting { enclose: b'"', escape: b'\\' }) if text.is_plain() => {
                    out.push(b'"');
                    out.extend_from_slice(text.value(row).as_bytes());
                    out.push(b'"');
                }
                _ => return self.push_text(out, text.value(row).as_bytes()),
            },
            Values::Nested(write) => {
                let mut nested = std::mem::take(&mut self.nested);
                nested.clear();
                let written = write(row, &mut nested).and_then(|()| self.push_text(out, &nested));
                self.nested = nested;
                return written;
            }
        }
        Ok(())
    }

    fn push_text(&self, out: &mut Vec<u8>, text: &[u8]) -> std::result::Result<(), String> {
        let Some(Quoting { enclose, escape }) = self.quoting else {
            if text == NULL {
                return Err(
                    "the text \\N would be read as NULL; leave the separators at their defaults, or use json".into()
                );
            }
            self.check_separators(text)?;
            out.extend_from_slice(text);
            return Ok(());
        };
        out.push(enclose);
        let special = |byte| (byte == enclose) | (byte == escape);
        push_escaped(out, text, special, |out, byte| out.extend_from_slice(&[escape, byte]));
        out.push(enclose);
        Ok(())
    }

    /// Why Doris would not read the bare `line` as the row it is, with the column at fault.
    fn unreadable(&self, line: &[u8], columns: usize, signed: bool) -> Option<(usize, &'static str)> {
        if line.is_empty() && !signed {
            return Some((
                0,
                "the row is an empty line, which doris skips; leave the separators at their defaults, or use json",
            ));
        }
        if line.starts_with(BYTE_ORDER_MARK) {
            return Some((0, "the row begins with a byte order mark, which doris cuts off the first line; use json"));
        }
        if line.ends_with(b"\r") && self.format.line_delimiter == b"\n" && !signed {
            return Some((
                columns - 1,
                "the row ends with a carriage return, which doris takes for a part of the line's end; leave the separators at their defaults, or use json",
            ));
        }
        None
    }

    /// Numbers and dates are written without quotes: no separator made of digits or signs may be in them.
    fn check_bare(&self, text: &[u8]) -> std::result::Result<(), String> {
        if self.bare_is_safe { Ok(()) } else { self.check_separators(text) }
    }

    fn check_separators(&self, text: &[u8]) -> std::result::Result<(), String> {
        for (separator, name) in
            [(&self.format.column_separator, "column_separator"), (&self.format.line_delimiter, "line_delimiter")]
        {
            if contains(text, separator) {
                return Err(format!("the value holds the {name}; leave the separators at their defaults, or use json"));
            }
        }
        Ok(())
    }
}

/// Whether a byte may be in a text that is written without quotes: of a number, a truth value, a date or a time.
fn may_be_bare(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.' | b':' | b' ')
}

/// Appends a separator, which is one byte as a rule: a copy of any length is a call.
fn push_separator(out: &mut Vec<u8>, separator: &[u8]) {
    match separator {
        [byte] => out.push(*byte),
        _ => out.extend_from_slice(separator),
    }
}

fn contains(text: &[u8], separator: &[u8]) -> bool {
    match separator {
        [byte] => text.contains(byte),
        _ => text.windows(separator.len()).any(|window| window == separator),
    }
}

/// A separator of several bytes may also arise where a value meets one: `a` + `||` after a value ending in `|`.
fn meets(before: &[u8], separator: &[u8]) -> bool {
    separator.len() > 1 && before.last() == separator.first()
}

impl Encoder for CsvEncoder {
    fn encode_to(&mut self, batch: &RecordBatch, out: &mut Output) -> Result<u64> {
        let out = out.tail();
        let rows = self.layout.prepare(batch)?;
        let bare = self.quoting.is_none();
        let mut written = 0;
        for row in 0..batch.num_rows() {
            let sign = match rows.action(row) {
                RowAction::Skip => continue,
                RowAction::Write(sign) => sign,
            };
            let line = out.len();
            for (at, column) in rows.columns.iter().enumerate() {
                if at > 0 {
                    push_separator(out, &self.format.column_separator);
                }
                let start = out.len();
                self.push_field(out, column, row).map_err(|reason| self.layout.error(at, row, reason))?;
                if bare
                    && (meets(&out[start..], &self.format.column_separator)
                        || meets(&out[start..], &self.format.line_delimiter))
                {
                    let reason = "the value ends like a separator begins; use json".to_string();
                    return Err(self.layout.error(at, row, reason));
                }
            }
            if bare && let Some((at, reason)) = self.unreadable(&out[line..], rows.columns.len(), sign.is_some()) {
                return Err(self.layout.error(at, row, reason.into()));
            }
            if let Some(sign) = sign {
                push_separator(out, &self.format.column_separator);
                out.push(sign);
            }
            push_separator(out, &self.format.line_delimiter);
            written += 1;
        }
        Ok(written)
    }
}
