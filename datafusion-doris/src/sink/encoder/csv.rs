//! Separated text.

use std::collections::BTreeMap;

use arrow::record_batch::RecordBatch;

use super::column::{Column, Values};
use super::{Encoder, RowAction, RowLayout};
use crate::error::{Error, Result};

/// NULL, as Doris reads it when it is not enclosed.
const NULL: &[u8] = b"\\N";

/// Separators and quoting.
///
/// By default text is enclosed in `"` with `\` as escape, so that no value can be taken for a separator or for NULL:
/// the empty text is `""`, the text `\N` is `"\\N"`, NULL is `\N` without quotes. When the user sets a separator and
/// no `enclose`, values are written bare, and a value that holds a separator, or is the text `\N`, is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CsvRules {
    column_separator: Vec<u8>,
    line_delimiter: Vec<u8>,
    quoting: Option<Quoting>,
    headers: Vec<(String, String)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Quoting {
    enclose: u8,
    escape: u8,
}

impl CsvRules {
    /// Reads `column_separator`, `line_delimiter`, `enclose` and `escape` of `sink.properties.*`. `\xNN` stands for
    /// one byte; the header keeps the text as the user wrote it.
    ///
    /// # Errors
    /// [`Error::Config`] for an empty separator, an `enclose` or `escape` of more than one byte, or ones that meet.
    pub(crate) fn from_properties(properties: &BTreeMap<String, String>) -> Result<Self> {
        let find = |name: &str| {
            properties.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
        };
        let separator = |name: &str, default: &str| -> Result<(Vec<u8>, Option<String>)> {
            let text = find(name);
            let bytes = unescape(text.unwrap_or(default))
                .map_err(|reason| Error::config(format!("sink.properties.{name}"), reason))?;
            if bytes.is_empty() {
                return Err(Error::config(format!("sink.properties.{name}"), "is empty"));
            }
            Ok((bytes, text.map(str::to_string)))
        };
        let single = |name: &str| -> Result<Option<u8>> {
            match find(name).map(str::as_bytes) {
                None | Some([]) => Ok(None),
                Some([byte]) => Ok(Some(*byte)),
                Some(_) => Err(Error::config(format!("sink.properties.{name}"), "must be one byte")),
            }
        };
        let (column_separator, user_column) = separator("column_separator", ",")?;
        let (line_delimiter, user_line) = separator("line_delimiter", "\n")?;
        if column_separator == line_delimiter {
            return Err(Error::config("sink.properties.column_separator", "is the same as line_delimiter"));
        }
        let enclose = single("enclose")?;
        let user_separators = user_column.is_some() || user_line.is_some();
        let quoting = match (enclose, user_separators) {
            (None, true) => None,
            (enclose, _) => {
                Some(Quoting { enclose: enclose.unwrap_or(b'"'), escape: single("escape")?.unwrap_or(b'\\') })
            }
        };
        let mut headers = vec![("format".to_string(), "csv".to_string())];
        headers.push(("column_separator".into(), user_column.unwrap_or_else(|| ",".into())));
        // A line feed cannot stand in a header; it is the server's default, written as hex to be explicit.
        headers.push(("line_delimiter".into(), user_line.unwrap_or_else(|| "\\x0A".into())));
        if let Some(Quoting { enclose, escape }) = quoting {
            if enclose == escape {
                return Err(Error::config("sink.properties.escape", "is the same as enclose"));
            }
            if column_separator.contains(&enclose) || line_delimiter.contains(&enclose) {
                return Err(Error::config("sink.properties.enclose", "is part of a separator"));
            }
            headers.push(("enclose".into(), char::from(enclose).to_string()));
            headers.push(("escape".into(), char::from(escape).to_string()));
            headers.push(("trim_double_quotes".into(), "true".into()));
        }
        Ok(Self { column_separator, line_delimiter, quoting, headers })
    }
}

/// Replaces `\xNN` by the byte and `\t`, `\n`, `\r`, `\\` by what they mean.
fn unescape(text: &str) -> std::result::Result<Vec<u8>, String> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        match bytes.next() {
            Some(b'x' | b'X') => {
                let digit = |byte: Option<u8>| byte.and_then(|byte| char::from(byte).to_digit(16));
                match (digit(bytes.next()), digit(bytes.next())) {
                    (Some(high), Some(low)) => out.push((high * 16 + low) as u8),
                    _ => return Err("two hexadecimal digits must follow \\x".into()),
                }
            }
            Some(b't') => out.push(b'\t'),
            Some(b'n') => out.push(b'\n'),
            Some(b'r') => out.push(b'\r'),
            Some(other) => out.extend_from_slice(&[b'\\', other]),
            None => out.push(b'\\'),
        }
    }
    Ok(out)
}

/// `format: csv`.
#[derive(Debug)]
pub(crate) struct CsvEncoder {
    layout: RowLayout,
    rules: CsvRules,
    nested: Vec<u8>,
}

impl CsvEncoder {
    pub(crate) fn new(layout: RowLayout, rules: CsvRules) -> Self {
        Self { layout, rules, nested: Vec::new() }
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
            Values::Text(text) => return self.push_text(out, text.value(row).as_bytes()),
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
        let Some(Quoting { enclose, escape }) = self.rules.quoting else {
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
        let mut copied = 0;
        for (at, &byte) in text.iter().enumerate() {
            if byte == enclose || byte == escape {
                out.extend_from_slice(&text[copied..at]);
                out.push(escape);
                copied = at;
            }
        }
        out.extend_from_slice(&text[copied..]);
        out.push(enclose);
        Ok(())
    }

    /// Numbers and dates are written without quotes: no separator made of digits or signs may be in them.
    fn check_bare(&self, text: &[u8]) -> std::result::Result<(), String> {
        self.check_separators(text)
    }

    fn check_separators(&self, text: &[u8]) -> std::result::Result<(), String> {
        for (separator, name) in
            [(&self.rules.column_separator, "column_separator"), (&self.rules.line_delimiter, "line_delimiter")]
        {
            if contains(text, separator) {
                return Err(format!("the value holds the {name}; leave the separators at their defaults, or use json"));
            }
        }
        Ok(())
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
    fn headers(&self) -> Vec<(String, String)> {
        self.rules.headers.clone()
    }

    fn encode(&mut self, batch: &RecordBatch, out: &mut Vec<u8>) -> Result<u64> {
        let rows = self.layout.prepare(batch)?;
        let bare = self.rules.quoting.is_none();
        let mut written = 0;
        for row in 0..batch.num_rows() {
            let sign = match rows.action(row) {
                RowAction::Skip => continue,
                RowAction::Write(sign) => sign,
            };
            for (at, column) in rows.columns.iter().enumerate() {
                if at > 0 {
                    out.extend_from_slice(&self.rules.column_separator);
                }
                let start = out.len();
                self.push_field(out, column, row).map_err(|reason| self.layout.error(at, row, reason))?;
                if bare
                    && (meets(&out[start..], &self.rules.column_separator)
                        || meets(&out[start..], &self.rules.line_delimiter))
                {
                    let reason = "the value ends like a separator begins; use json".to_string();
                    return Err(self.layout.error(at, row, reason));
                }
            }
            if let Some(sign) = sign {
                out.extend_from_slice(&self.rules.column_separator);
                out.push(sign);
            }
            out.extend_from_slice(&self.rules.line_delimiter);
            written += 1;
        }
        Ok(written)
    }
}
