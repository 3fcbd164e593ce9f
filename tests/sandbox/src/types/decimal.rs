//! Decimal text to scaled integers, with rounding half away from zero.

use arrow::datatypes::i256;

/// Digits of a decimal text, ready to be scaled.
struct Parts {
    negative: bool,
    digits: Vec<u8>,
    /// Number of digits before the point, may be negative or beyond the digits after an exponent.
    point: i64,
}

fn split(text: &str) -> Option<Parts> {
    let text = text.trim();
    let (negative, body) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let (mantissa, exponent) = match body.find(['e', 'E']) {
        Some(at) => (&body[..at], body[at + 1..].parse::<i64>().ok().filter(|e| e.abs() < 10_000)?),
        None => (body, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let mut digits = Vec::with_capacity(whole.len() + fraction.len());
    for byte in whole.bytes().chain(fraction.bytes()) {
        if !byte.is_ascii_digit() {
            return None;
        }
        digits.push(byte);
    }
    Some(Parts { negative, digits, point: whole.len() as i64 + exponent })
}

/// The digits of `text * 10^scale`, rounded, without leading zeros; `None` when not a number.
fn scaled_digits(text: &str, scale: u8) -> Option<(bool, Vec<u8>)> {
    let parts = split(text)?;
    let keep = parts.point + i64::from(scale);
    let mut digits: Vec<u8> = Vec::new();
    if keep > 200 {
        let leading = parts.digits.iter().take_while(|d| **d == b'0').count() as i64;
        if leading == parts.digits.len() as i64 {
            return Some((false, vec![b'0']));
        }
        if keep - leading > 200 {
            return None;
        }
    }
    for i in 0..keep.max(0) {
        digits.push(parts.digits.get(i as usize).copied().unwrap_or(b'0'));
    }
    let round_up = keep >= 0 && parts.digits.get(keep as usize).is_some_and(|d| *d >= b'5');
    if round_up {
        let mut i = digits.len();
        loop {
            if i == 0 {
                digits.insert(0, b'1');
                break;
            }
            i -= 1;
            if digits[i] == b'9' {
                digits[i] = b'0';
            } else {
                digits[i] += 1;
                break;
            }
        }
    }
    let first = digits.iter().position(|d| *d != b'0').unwrap_or(digits.len());
    digits.drain(..first);
    if digits.is_empty() {
        digits.push(b'0');
    }
    Some((parts.negative, digits))
}

/// Unscaled value of a DECIMAL(precision <= 38, scale); `None` when not a number or too large.
pub(super) fn parse_128(text: &str, precision: u8, scale: u8) -> Option<i128> {
    let (negative, digits) = scaled_digits(text, scale)?;
    if digits.len() > usize::from(precision) && digits != b"0" {
        return None;
    }
    let value = digits.iter().fold(0_i128, |acc, d| acc * 10 + i128::from(d - b'0'));
    Some(if negative { -value } else { value })
}

/// Unscaled value of a DECIMAL(precision <= 76, scale).
pub(super) fn parse_256(text: &str, precision: u8, scale: u8) -> Option<i256> {
    let (negative, digits) = scaled_digits(text, scale)?;
    if digits.len() > usize::from(precision) && digits != b"0" {
        return None;
    }
    let body = std::str::from_utf8(&digits).ok()?;
    let value = i256::from_string(body)?;
    Some(if negative { value.wrapping_neg() } else { value })
}

/// A LARGEINT text: an integer within 128 bits.
pub(super) fn parse_largeint(text: &str) -> Option<i256> {
    text.trim().parse::<i128>().ok().map(i256::from_i128)
}

/// Prints an unscaled value with its scale.
pub(super) fn format_unscaled(unscaled: &str, scale: u8) -> String {
    let scale = usize::from(scale);
    if scale == 0 {
        return unscaled.to_owned();
    }
    let (sign, digits) = unscaled.strip_prefix('-').map_or(("", unscaled), |d| ("-", d));
    let padded = format!("{digits:0>width$}", width = scale + 1);
    let (whole, fraction) = padded.split_at(padded.len() - scale);
    format!("{sign}{whole}.{fraction}")
}
