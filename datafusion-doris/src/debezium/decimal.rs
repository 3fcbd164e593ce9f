//! Decimal numbers as text, without rounding.

use arrow::datatypes::i256;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;

use super::value::bytes_of;

/// Most places that an exponent may move the point: those of the widest decimal.
const MOST_PLACES: i64 = 76;

/// Digits, and how many of them stand after the point.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Number {
    negative: bool,
    /// Without leading zeros; empty = 0.
    digits: String,
    /// At most [`MOST_PLACES`], not negative.
    scale: usize,
}

impl Number {
    /// Reads `-12.50`, `1e3` and the like.
    pub fn parse(text: &str) -> Result<Self, String> {
        let fail = || format!("'{text}' is no decimal number");
        let (negative, rest) = match text.as_bytes().first() {
            Some(b'-') => (true, &text[1..]),
            Some(b'+') => (false, &text[1..]),
            _ => (false, text),
        };
        let (mantissa, exponent) = match rest.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, exponent.parse::<i64>().map_err(|_| fail())?),
            None => (rest, 0),
        };
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let all_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        if (whole.is_empty() && fraction.is_empty()) || !all_digits(whole) || !all_digits(fraction) {
            return Err(fail());
        }
        let fraction = if exponent == 0 { fraction } else { fraction.trim_end_matches('0') };
        let mut digits = format!("{whole}{fraction}");
        let places = i64::try_from(fraction.len()).map_err(|_| fail())?.checked_sub(exponent).ok_or_else(fail)?;
        if digits.bytes().all(|digit| digit == b'0') {
            let scale = usize::try_from(places.clamp(0, MOST_PLACES)).unwrap_or_default();
            return Ok(Self { negative: false, digits: String::new(), scale });
        }
        if !(-MOST_PLACES..=MOST_PLACES + 20).contains(&places) {
            return Err(format!("'{text}' has more digits than a decimal may have"));
        }
        if places < 0 {
            let zeros = usize::try_from(-places).unwrap_or_default();
            digits.extend(std::iter::repeat_n('0', zeros));
        }
        let scale = usize::try_from(places.max(0)).unwrap_or_default();
        Ok(Self { negative, digits: digits.trim_start_matches('0').to_owned(), scale })
    }

    /// Reads an unscaled two's complement number, most significant byte first, in base64.
    pub fn from_base64(text: &str, scale: i32) -> Result<Self, String> {
        let bytes = BASE64_STANDARD.decode(text).map_err(|error| format!("'{text}' is no base64 text: {error}"))?;
        Self::from_bytes(&bytes, scale)
    }

    fn from_bytes(bytes: &[u8], scale: i32) -> Result<Self, String> {
        let fill = if bytes.first().is_some_and(|byte| *byte >= 0x80) { 0xff } else { 0 };
        let mut wide = [fill; 32];
        let start = wide.len().checked_sub(bytes.len()).ok_or("a decimal is longer than 76 digits")?;
        wide[start..].copy_from_slice(bytes);
        Self::parse(&format!("{}e{}", i256::from_be_bytes(wide), -i64::from(scale)))
    }

    /// Reads `{"scale": …, "value": base64}`.
    pub fn from_variable(text: &str) -> Result<Self, String> {
        #[derive(serde::Deserialize)]
        struct Variable {
            scale: i32,
            value: String,
        }
        let Variable { scale, value } = serde_json::from_str(text).map_err(|error| format!("{text}: {error}"))?;
        Self::from_base64(&value, scale)
    }

    /// Plain text, without exponent.
    pub fn text(&self) -> String {
        let sign = if self.negative { "-" } else { "" };
        let digits = format!("{:0>width$}", self.digits, width = self.scale + 1);
        let (whole, fraction) = digits.split_at(digits.len() - self.scale);
        if fraction.is_empty() { format!("{sign}{whole}") } else { format!("{sign}{whole}.{fraction}") }
    }

    /// Plain text for a decimal column.
    ///
    /// # Errors
    /// When digits would be lost.
    pub fn exact(&self, precision: u8, scale: i8) -> Result<String, String> {
        let zeros = self.digits.len() - self.digits.trim_end_matches('0').len();
        let needed = if self.digits.is_empty() { 0 } else { self.scale.saturating_sub(zeros) };
        let places = usize::try_from(scale.max(0)).unwrap_or_default();
        if needed > places {
            return Err(format!("{} has more than the {scale} digits after the point of the column", self.text()));
        }
        let whole = self.digits.len().saturating_sub(self.scale);
        if whole + places > usize::from(precision) {
            return Err(format!("{} does not fit into DECIMAL({precision},{scale})", self.text()));
        }
        Ok(self.text())
    }

    /// Digits of a whole number.
    ///
    /// # Errors
    /// When it has a fraction.
    pub fn whole(&self) -> Result<String, String> {
        let text = self.text();
        match text.split_once('.') {
            None => Ok(text),
            Some((whole, fraction)) if fraction.bytes().all(|digit| digit == b'0') => Ok(whole.to_owned()),
            Some(_) => Err(format!("{text} is no whole number")),
        }
    }
}

/// A bit set as a number.
pub(super) fn bits(text: &str) -> Result<u64, String> {
    let bytes = bytes_of(text)?;
    let mut wide = [0; 8];
    let used = bytes.len() - bytes.iter().rev().take_while(|byte| **byte == 0).count();
    match wide.get_mut(..used) {
        Some(target) => target.copy_from_slice(&bytes[..used]),
        None => return Err(format!("a set of {} bits is wider than a column may be", bytes.len() * 8)),
    }
    Ok(u64::from_le_bytes(wide))
}
