//! Statements prepared on the server: their parameters become literals in the text that runs.

use std::collections::BTreeMap;
use std::ops::Range;

use super::packet::Take;
use crate::error::SqlError;
use crate::session::Session;

/// A statement with `?` in it.
pub(super) struct PreparedStatement {
    text: String,
    places: Vec<Range<usize>>,
    /// Type codes of the parameters, told with the first execution.
    types: Vec<u8>,
    /// Types without a sign.
    unsigned: Vec<bool>,
    /// Parameters sent ahead in pieces.
    long: BTreeMap<usize, Vec<u8>>,
}

/// A text that is not what it should be.
fn malformed() -> SqlError {
    SqlError::bare(1835, "Malformed communication packet")
}

impl PreparedStatement {
    /// Reads one statement.
    ///
    /// # Errors
    /// It is not one statement, or cannot be read.
    pub fn new(session: &Session, sql: &str) -> Result<Self, SqlError> {
        let statements = session.split(sql)?;
        let [statement] = statements.as_slice() else {
            return Err(SqlError::detail("only one statement can be prepared"));
        };
        let (start, end) = statement.span();
        Ok(Self {
            text: sql[start..end].to_owned(),
            places: statement.placeholders().into_iter().map(|at| at - start..at - start + 1).collect(),
            types: Vec::new(),
            unsigned: Vec::new(),
            long: BTreeMap::new(),
        })
    }

    /// Number of parameters.
    pub fn parameters(&self) -> usize {
        self.places.len()
    }

    /// The text with a literal for each parameter.
    pub fn with(&self, literals: &[String]) -> String {
        let mut out = String::new();
        let mut copied = 0;
        for (place, literal) in self.places.iter().zip(literals) {
            out.push_str(&self.text[copied..place.start]);
            out.push_str(literal);
            copied = place.end;
        }
        out.push_str(&self.text[copied..]);
        out
    }

    /// A text that can be planned before the parameters are known.
    pub fn sample(&self) -> String {
        let literal = |place: &Range<usize>| {
            let before = self.text[..place.start].trim_end().to_ascii_uppercase();
            if before.ends_with("LIMIT") || before.ends_with("OFFSET") { "1".to_owned() } else { "NULL".to_owned() }
        };
        self.with(&self.places.iter().map(literal).collect::<Vec<_>>())
    }

    /// Adds a piece of a parameter.
    pub fn add_long(&mut self, parameter: usize, bytes: &[u8]) {
        if parameter < self.places.len() {
            self.long.entry(parameter).or_default().extend_from_slice(bytes);
        }
    }

    /// Forgets the pieces.
    pub fn reset(&mut self) {
        self.long.clear();
    }

    /// Literals of the parameters of an execution: what follows the iteration count.
    ///
    /// # Errors
    /// The packet is too short, a text is not UTF-8, or a type is unknown.
    pub fn literals(&mut self, bytes: &[u8], backslash_escapes: bool) -> Result<Vec<String>, SqlError> {
        let count = self.places.len();
        if count == 0 {
            return Ok(Vec::new());
        }
        let mut take = Take(bytes);
        let nulls = take.bytes(count.div_ceil(8)).ok_or_else(malformed)?;
        if take.u8().ok_or_else(malformed)? == 1 {
            let types = take.bytes(2 * count).ok_or_else(malformed)?;
            self.types = types.iter().step_by(2).copied().collect();
            self.unsigned = types.iter().skip(1).step_by(2).map(|flag| flag & 0x80 != 0).collect();
        }
        if self.types.len() != count {
            return Err(malformed());
        }
        let mut out = Vec::with_capacity(count);
        for i in 0..count {
            if let Some(long) = self.long.get(&i) {
                out.push(text_literal(long, backslash_escapes)?);
            } else if nulls[i / 8] >> (i % 8) & 1 == 1 {
                out.push("NULL".to_owned());
            } else {
                out.push(literal(&mut take, self.types[i], self.unsigned[i], backslash_escapes)?);
            }
        }
        self.long.clear();
        Ok(out)
    }
}

fn signed(value: i64) -> String {
    if value < 0 { format!("({value})") } else { value.to_string() }
}

fn literal(take: &mut Take<'_>, code: u8, unsigned: bool, backslash_escapes: bool) -> Result<String, SqlError> {
    let mut fixed = |n: usize| {
        let mut bytes = [0; 8];
        bytes[..n].copy_from_slice(take.bytes(n)?);
        Some(u64::from_le_bytes(bytes))
    };
    let integer = |value: Option<u64>, bits: u32| {
        let value = value.ok_or_else(malformed)?;
        let shift = 64 - bits;
        Ok(if unsigned { value.to_string() } else { signed((value << shift) as i64 >> shift) })
    };
    match code {
        0x01 => integer(fixed(1), 8),
        0x02 | 0x0d => integer(fixed(2), 16),
        0x03 | 0x09 => integer(fixed(4), 32),
        0x08 => integer(fixed(8), 64),
        0x04 => {
            let value = f32::from_bits(fixed(4).ok_or_else(malformed)? as u32);
            Ok(format!("CAST('{value}' AS FLOAT)"))
        }
        0x05 => {
            let value = f64::from_bits(fixed(8).ok_or_else(malformed)?);
            Ok(format!("CAST('{value}' AS DOUBLE)"))
        }
        0x06 => Ok("NULL".to_owned()),
        0x07 | 0x0a | 0x0c => date_literal(take, code).ok_or_else(malformed),
        0x0b => time_literal(take).ok_or_else(malformed),
        0x00 | 0xf6 => {
            let text = String::from_utf8_lossy(lenenc(take)?).into_owned();
            let plain = text.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'-'));
            if plain && !text.is_empty() { Ok(format!("({text})")) } else { Err(malformed()) }
        }
        0x0f | 0x10 | 0xf5 | 0xf7..=0xff => text_literal(lenenc(take)?, backslash_escapes),
        other => Err(SqlError::not_served(format!("parameters of MySQL type {other:#x}"))),
    }
}

fn lenenc<'a>(take: &mut Take<'a>) -> Result<&'a [u8], SqlError> {
    let length = take.length().and_then(|n| usize::try_from(n).ok()).ok_or_else(malformed)?;
    take.bytes(length).ok_or_else(malformed)
}

fn text_literal(bytes: &[u8], backslash_escapes: bool) -> Result<String, SqlError> {
    let text = std::str::from_utf8(bytes).map_err(|_| SqlError::bare(1300, "Invalid utf8 character string"))?;
    let escaped = if backslash_escapes { text.replace('\\', "\\\\") } else { text.to_owned() };
    Ok(format!("'{}'", escaped.replace('\'', "''")))
}

fn date_literal(take: &mut Take<'_>, code: u8) -> Option<String> {
    let length = usize::from(take.u8()?);
    let bytes = take.bytes(length)?;
    let number = |range: Range<usize>| {
        bytes.get(range).map(|part| part.iter().rev().fold(0_u32, |value, byte| value << 8 | u32::from(*byte)))
    };
    let date = match length {
        0 => "0000-00-00".to_owned(),
        _ => format!("{:04}-{:02}-{:02}", number(0..2)?, number(2..3)?, number(3..4)?),
    };
    if code == 0x0a {
        return Some(format!("CAST('{date}' AS DATE)"));
    }
    let time = match length {
        7 | 11 => format!("{:02}:{:02}:{:02}", number(4..5)?, number(5..6)?, number(6..7)?),
        _ => "00:00:00".to_owned(),
    };
    Some(match length {
        11 => format!("CAST('{date} {time}.{:06}' AS DATETIME(6))", number(7..11)?),
        _ => format!("CAST('{date} {time}' AS DATETIME)"),
    })
}

fn time_literal(take: &mut Take<'_>) -> Option<String> {
    let length = usize::from(take.u8()?);
    let bytes = take.bytes(length)?;
    if length == 0 {
        return Some("'00:00:00'".to_owned());
    }
    let mut inner = Take(bytes);
    let negative = inner.u8()? == 1;
    let days = inner.u32()?;
    let (hours, minutes, seconds) = (inner.u8()?, inner.u8()?, inner.u8()?);
    let fraction = inner.u32().map(|micros| format!(".{micros:06}")).unwrap_or_default();
    let sign = if negative { "-" } else { "" };
    if minutes > 59 || seconds > 59 || fraction.len() > 7 {
        return None;
    }
    Some(format!("'{sign}{:02}:{minutes:02}:{seconds:02}{fraction}'", u64::from(hours) + 24 * u64::from(days)))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    #[test]
    fn parameters_become_literals() {
        for (code, unsigned, bytes, want) in [
            (0x01, false, &[0xff][..], "(-1)"),
            (0x01, true, &[0xff], "255"),
            (0x02, false, &[0x00, 0x80], "(-32768)"),
            (0x03, false, &[1, 0, 0, 0], "1"),
            (0x0b, false, &[8, 1, 0xff, 0xff, 0xff, 0xff, 1, 2, 3], "'-103079215081:02:03'"),
            (0x08, true, &[0xff; 8], "18446744073709551615"),
            (0x05, false, &1.5_f64.to_le_bytes(), "CAST('1.5' AS DOUBLE)"),
            (0xfd, false, b"\x05it's\\", "'it''s\\\\'"),
            (0xf6, false, b"\x05-1.50", "(-1.50)"),
            (0x0a, false, &[4, 0xe8, 7, 1, 2], "CAST('2024-01-02' AS DATE)"),
            (0x0c, false, &[7, 0xe8, 7, 1, 2, 3, 4, 5], "CAST('2024-01-02 03:04:05' AS DATETIME)"),
            (
                0x0c,
                false,
                &[11, 0xe8, 7, 1, 2, 3, 4, 5, 1, 0, 0, 0],
                "CAST('2024-01-02 03:04:05.000001' AS DATETIME(6))",
            ),
            (0x0b, false, &[8, 1, 1, 0, 0, 0, 2, 3, 4], "'-26:03:04'"),
        ] {
            assert_eq!(literal(&mut Take(bytes), code, unsigned, true).as_deref(), Ok(want));
        }
        assert!(literal(&mut Take(b"\x05ab"), 0xfd, false, true).is_err());
        assert!(literal(&mut Take(b"\x041; x"), 0xf6, false, true).is_err(), "a decimal holds digits only");
        assert_eq!(text_literal(b"a\\b", false).as_deref(), Ok("'a\\b'"));
        assert_eq!(text_literal(&[0xff], true).expect_err("not UTF-8").code, 1300);
    }
}
