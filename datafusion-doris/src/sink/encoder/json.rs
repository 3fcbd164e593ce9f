//! One JSON object per line.

use arrow::record_batch::RecordBatch;

use super::column::{Column, Text, Values};
use super::escape::{is_special, push_escaped};
use super::{Encoder, RowAction, RowLayout};
use crate::error::Result;
use crate::protocol::DELETE_SIGN;
use crate::sink::output::Output;

/// `format: json` with `read_json_by_line: true`.
///
/// Every key is written, NULL as `null` (in flexible partial updates NULL is left out instead, except in keys). Integers are numbers; decimals are strings of their digits, since a JSON
/// number may pass through a double at the server; floats that are no numbers are the strings `NaN`, `Infinity` and
/// `-Infinity`; dates and times are strings.
#[derive(Debug)]
pub(crate) struct JsonEncoder {
    layout: RowLayout,
    /// `,"a":` of each column.
    keys: Vec<Key>,
    delete_key: Vec<u8>,
}

/// Bytes of keys that are copied without a call.
const SHORT: usize = 16;

/// Bytes that are written for each row.
#[derive(Debug)]
enum Key {
    /// The first so many of these.
    Short([u8; SHORT], usize),
    Long(Vec<u8>),
}

impl Key {
    fn new(bytes: Vec<u8>) -> Self {
        let mut short = [0; SHORT];
        match short.get_mut(..bytes.len()) {
            Some(room) => {
                room.copy_from_slice(&bytes);
                Self::Short(short, bytes.len())
            }
            None => Self::Long(bytes),
        }
    }

    fn push(&self, out: &mut Vec<u8>) {
        match self {
            Self::Short(bytes, length) => {
                let start = out.len();
                out.extend_from_slice(bytes);
                out.truncate(start + length);
            }
            Self::Long(bytes) => out.extend_from_slice(bytes),
        }
    }
}

impl JsonEncoder {
    pub(crate) fn new(layout: RowLayout) -> Self {
        let key = |name: &str| {
            let mut key = Vec::with_capacity(name.len() + 4);
            key.push(b',');
            push_string(&mut key, name);
            key.push(b':');
            key
        };
        let keys = layout.names().map(|name| Key::new(key(name))).collect();
        let delete_key = key(DELETE_SIGN);
        Self { layout, keys, delete_key }
    }
}

impl Encoder for JsonEncoder {
    fn encode_to(&mut self, batch: &RecordBatch, out: &mut Output) -> Result<u64> {
        let out = out.tail();
        let rows = self.layout.prepare(batch)?;
        let mut written = 0;
        for row in 0..batch.num_rows() {
            let sign = match rows.action(row) {
                RowAction::Skip => continue,
                RowAction::Write(sign) => sign,
            };
            let start = out.len();
            for (at, (key, column)) in self.keys.iter().zip(&rows.columns).enumerate() {
                if self.layout.sparse && column.is_null(row) && !self.layout.columns[at].key {
                    continue;
                }
                key.push(out);
                push_value(out, column, row, false).map_err(|reason| self.layout.error(at, row, reason))?;
            }
            if let Some(sign) = sign {
                out.extend_from_slice(&self.delete_key);
                out.push(sign);
            }
            // In place of the first comma.
            match out.get_mut(start) {
                Some(first) => *first = b'{',
                None => out.push(b'{'),
            }
            out.extend_from_slice(b"}\n");
            written += 1;
        }
        Ok(written)
    }
}

/// Appends a value as JSON; `nested` = it is part of a list, map or struct.
pub(super) fn push_value(out: &mut Vec<u8>, column: &Column, row: usize, nested: bool) -> Result<(), String> {
    if column.is_null(row) {
        out.extend_from_slice(b"null");
        return Ok(());
    }
    match &column.values {
        Values::Null => out.extend_from_slice(b"null"),
        Values::Number(write) | Values::Nested(write) => write(row, out)?,
        Values::Exact(write) if nested => write(row, out)?,
        Values::Exact(write) | Values::Quoted(write) => {
            out.push(b'"');
            write(row, out)?;
            out.push(b'"');
        }
        Values::Float(write) => {
            let start = out.len();
            if !write(row, out) {
                if nested {
                    return Err("a float inside of a nested value that is no number".into());
                }
                out.insert(start, b'"');
                out.push(b'"');
            }
        }
        Values::Text(text) => push_text(out, text, row),
    }
    Ok(())
}

/// Appends a value of a text column as a JSON string.
pub(super) fn push_text(out: &mut Vec<u8>, text: &Text, row: usize) {
    if !text.is_plain() {
        return push_string(out, text.value(row));
    }
    out.push(b'"');
    out.extend_from_slice(text.value(row).as_bytes());
    out.push(b'"');
}

/// Appends a JSON string. Everything but quotes, backslashes and control characters stays UTF-8.
pub(super) fn push_string(out: &mut Vec<u8>, text: &str) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    out.push(b'"');
    push_escaped(out, text.as_bytes(), is_special, |out, byte| match byte {
        b'"' => out.extend_from_slice(b"\\\""),
        b'\\' => out.extend_from_slice(b"\\\\"),
        b'\n' => out.extend_from_slice(b"\\n"),
        b'\r' => out.extend_from_slice(b"\\r"),
        b'\t' => out.extend_from_slice(b"\\t"),
        other => {
            out.extend_from_slice(b"\\u00");
            out.push(HEX[usize::from(other >> 4)]);
            out.push(HEX[usize::from(other & 15)]);
        }
    });
    out.push(b'"');
}
