//! How rows become CSV: separators, and what stands around and before values.

use super::value::Parsed;
use crate::error::{Error, Result};

/// How values become CSV text, decoded from the `sink.properties.*` that shape it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CsvFormat {
    /// Between two values, raw bytes; default a tab.
    pub column_separator: Vec<u8>,
    /// Between two rows, raw bytes; default a line feed.
    pub line_delimiter: Vec<u8>,
    /// Byte around a value; default `"`, absent when the user names separators without it.
    pub enclose: Option<u8>,
    /// Byte before a literal enclose or escape byte; default `\`, absent as above.
    pub escape: Option<u8>,
}

impl Default for CsvFormat {
    fn default() -> Self {
        Self {
            column_separator: b"\t".to_vec(),
            line_delimiter: b"\n".to_vec(),
            enclose: Some(b'"'),
            escape: Some(b'\\'),
        }
    }
}

#[derive(Default)]
pub(super) struct CsvProperties {
    pub(super) column_separator: Option<Vec<u8>>,
    pub(super) line_delimiter: Option<Vec<u8>>,
    pub(super) enclose: Option<Option<u8>>,
    pub(super) escape: Option<Option<u8>>,
}

impl CsvProperties {
    pub(super) fn build(self) -> Result<CsvFormat> {
        let defaults = CsvFormat::default();
        // Own separators without `enclose` mean plain text, as the user's other tools write it.
        let plain = self.enclose.is_none() && (self.column_separator.is_some() || self.line_delimiter.is_some());
        let enclose = if plain { None } else { self.enclose.unwrap_or(defaults.enclose) };
        let escape = match (self.escape, enclose) {
            (Some(escape), _) => escape,
            (None, Some(_)) => defaults.escape,
            (None, None) => None,
        };
        if enclose.is_some() && escape.is_none() {
            return Err(Error::config(
                "sink.properties.escape",
                "is needed beside enclose, else a value may end early",
            ));
        }
        if enclose.is_none() && escape.is_some() {
            return Err(Error::config("sink.properties.escape", "has no meaning without sink.properties.enclose"));
        }
        let csv = CsvFormat {
            column_separator: self.column_separator.unwrap_or(defaults.column_separator),
            line_delimiter: self.line_delimiter.unwrap_or(defaults.line_delimiter),
            enclose,
            escape,
        };
        let overlap = csv.column_separator.starts_with(&csv.line_delimiter)
            || csv.line_delimiter.starts_with(&csv.column_separator)
            || (enclose.is_some() && enclose == escape);
        let special = |bytes: &[u8]| bytes.iter().any(|byte| Some(*byte) == enclose || Some(*byte) == escape);
        if overlap || special(&csv.column_separator) || special(&csv.line_delimiter) {
            return Err(Error::config(
                "sink.properties.column_separator",
                "column_separator, line_delimiter, enclose and escape must not share bytes",
            ));
        }
        Ok(csv)
    }
}

/// Separator text: as it is, with `\xNN`, `\t`, `\n` and `\r` decoded. As in Doris, one `\x` may stand before several
/// pairs of digits that fill the text.
pub(super) fn parse_separator(text: &str) -> Parsed<Vec<u8>> {
    if let Some(digits) = text.strip_prefix("\\x").or_else(|| text.strip_prefix("\\X"))
        && !digits.is_empty()
        && digits.len().is_multiple_of(2)
        && digits.bytes().all(|digit| digit.is_ascii_hexdigit())
    {
        // Checked above.
        return Ok((0..digits.len())
            .step_by(2)
            .filter_map(|at| u8::from_str_radix(&digits[at..at + 2], 16).ok())
            .collect());
    }
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        if let Some(hex) = rest.strip_prefix("\\x").or_else(|| rest.strip_prefix("\\X")) {
            let digits = hex.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok());
            out.push(digits.ok_or_else(|| format!("'{text}' has a \\x without two hex digits"))?);
            rest = &hex[2..];
            continue;
        }
        let short = [("\\t", b'\t'), ("\\n", b'\n'), ("\\r", b'\r')];
        if let Some((spelling, byte)) = short.iter().find(|(spelling, _)| rest.starts_with(spelling)) {
            out.push(*byte);
            rest = &rest[spelling.len()..];
            continue;
        }
        out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
        rest = &rest[c.len_utf8()..];
    }
    if out.is_empty() { Err("must not be empty".into()) } else { Ok(out) }
}

/// One ASCII byte; an empty text means none.
pub(super) fn parse_single_byte(text: &str) -> Parsed<Option<u8>> {
    if text.is_empty() {
        return Ok(None);
    }
    match parse_separator(text)?.as_slice() {
        [byte] if byte.is_ascii() => Ok(Some(*byte)),
        _ => Err(format!("'{text}' is not a single character")),
    }
}
