//! Packets a server answers with: OK, ERR, EOF, column definitions, text rows.

use super::packet::{put_length, put_text};
use crate::error::SqlError;
use crate::types::DorisType;

/// Another result follows.
const MORE_RESULTS: u16 = 0x0008;
/// The session commits by itself.
const AUTOCOMMIT: u16 = 0x0002;

fn status(more: bool) -> [u8; 2] {
    (AUTOCOMMIT | if more { MORE_RESULTS } else { 0 }).to_le_bytes()
}

/// OK. Two bytes hold the warnings, the lower ones of their number.
pub(super) fn ok(affected: u64, info: &str, warnings: u64, more: bool) -> Vec<u8> {
    let mut out = vec![0];
    put_length(&mut out, affected);
    put_length(&mut out, 0); // last insert id
    out.extend_from_slice(&status(more));
    out.extend_from_slice(&(warnings as u16).to_le_bytes());
    // The manual calls it the rest of the packet; servers and clients take it as length-encoded.
    if !info.is_empty() {
        put_text(&mut out, info.as_bytes());
    }
    out
}

/// End of columns or rows.
pub(super) fn eof(more: bool) -> Vec<u8> {
    let mut out = vec![0xfe, 0, 0];
    out.extend_from_slice(&status(more));
    out
}

/// ERR with code, SQL state and text.
pub(super) fn err(code: u16, state: &str, message: &str) -> Vec<u8> {
    let mut out = vec![0xff];
    out.extend_from_slice(&code.to_le_bytes());
    out.push(b'#');
    out.extend_from_slice(state.as_bytes());
    out.extend_from_slice(message.as_bytes());
    out
}

/// ERR of a statement.
pub(super) fn sql_err(error: &SqlError) -> Vec<u8> {
    err(error.code, error.state, &error.message)
}

/// First packet of the answer to a prepared statement.
pub(super) fn prepared(id: u32, columns: usize, parameters: usize) -> Vec<u8> {
    let mut out = vec![0];
    out.extend_from_slice(&id.to_le_bytes());
    out.extend_from_slice(&(columns as u16).to_le_bytes());
    out.extend_from_slice(&(parameters as u16).to_le_bytes());
    out.extend_from_slice(&[0, 0, 0]); // filler, warnings
    out
}

/// Number of columns of a result.
pub(super) fn column_count(n: usize) -> Vec<u8> {
    let mut out = Vec::new();
    put_length(&mut out, n as u64);
    out
}

/// Definition of one column.
pub(super) fn column(name: &str, ty: &DorisType) -> Vec<u8> {
    let (code, length, decimals, binary) = wire_type(ty);
    let charset: u16 = if binary { 63 } else { 33 };
    let mut out = Vec::new();
    put_text(&mut out, b"def");
    put_text(&mut out, b""); // schema
    put_text(&mut out, b""); // table
    put_text(&mut out, b""); // original table
    put_text(&mut out, name.as_bytes());
    put_text(&mut out, name.as_bytes());
    put_length(&mut out, 0x0c);
    out.extend_from_slice(&charset.to_le_bytes());
    out.extend_from_slice(&length.to_le_bytes());
    out.push(code);
    out.extend_from_slice(&[0, 0]); // flags
    out.push(decimals);
    out.extend_from_slice(&[0, 0]);
    out
}

/// MySQL type of a column.
pub(super) fn type_code(ty: &DorisType) -> u8 {
    wire_type(ty).0
}

/// MySQL type, display length, decimals, and whether the value is no text.
fn wire_type(ty: &DorisType) -> (u8, u32, u8, bool) {
    match ty {
        DorisType::Null => (0x06, 0, 0, true),
        DorisType::Boolean => (0x01, 1, 0, true),
        DorisType::TinyInt => (0x01, 4, 0, true),
        DorisType::SmallInt => (0x02, 6, 0, true),
        DorisType::Int => (0x03, 11, 0, true),
        DorisType::BigInt => (0x08, 20, 0, true),
        DorisType::Float => (0x04, 12, 31, true),
        DorisType::Double => (0x05, 22, 31, true),
        DorisType::Decimal { precision, scale } => (0xf6, u32::from(*precision) + 2, *scale, true),
        DorisType::Date => (0x0a, 10, 0, true),
        DorisType::DateTime(scale) => (0x0c, 26, *scale, true),
        DorisType::Varchar(bytes) => (0xfd, bytes.saturating_mul(3), 0, false),
        // CHAR, STRING, LARGEINT and everything without a MySQL type travel as strings.
        _ => (0xfe, 1_048_576, 0, false),
    }
}

/// One row of texts.
pub(super) fn row(out: &mut Vec<u8>, cells: impl Iterator<Item = Option<String>>) {
    out.clear();
    for cell in cells {
        match cell {
            Some(text) => put_text(out, text.as_bytes()),
            None => out.push(0xfb),
        }
    }
}
