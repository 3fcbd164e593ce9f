//! Texts that Doris sends for values: what is wrong with one, and decimals read from them.

use std::fmt::Write as _;

use arrow::datatypes::i256;

/// Bytes of a wrong text that an error shows.
const SHOWN_BYTES: usize = 16;

/// Says that a value of a text column is no UTF-8, and what to do.
pub(crate) fn no_utf8(bytes: &[u8]) -> String {
    let mut shown = String::new();
    for byte in bytes.iter().take(SHOWN_BYTES) {
        let _ = write!(shown, "{byte:02x} ");
    }
    let more = if bytes.len() > SHOWN_BYTES { " …" } else { "" };
    format!(
        "a value is no utf-8 (bytes {}{more}), so it cannot be read as text; read it by doris_query or a view that gives \
         HEX(…) or TO_BASE64(…) of the column, or leave the column out",
        shown.trim_end()
    )
}

/// The number in `text`, times 10^`scale`; `None` when it is no plain decimal, or has more than `precision` digits or
/// digits behind the scale that are not zero.
pub(crate) fn unscaled(text: &str, precision: u8, scale: u8) -> Option<i256> {
    let text = text.trim();
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let numeric = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if (whole.is_empty() && fraction.is_empty()) || !numeric(whole) || !numeric(fraction) {
        return None;
    }
    let scale = usize::from(scale);
    let kept = fraction.get(..scale).unwrap_or(fraction);
    if fraction[kept.len()..].bytes().any(|digit| digit != b'0') {
        return None;
    }
    let padded = format!("{whole}{kept}{}", "0".repeat(scale - kept.len()));
    let significant = padded.trim_start_matches('0');
    if significant.len() > usize::from(precision) {
        return None;
    }
    let value = i256::from_string(if significant.is_empty() { "0" } else { significant })?;
    Some(if negative { -value } else { value })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_read_digit_for_digit_or_not_at_all() {
        let nines = "9".repeat(76);
        let cases: &[(&str, u8, u8, Option<&str>)] = &[
            ("0", 10, 2, Some("0")),
            ("-12.5", 10, 2, Some("-1250")),
            ("12.5000", 10, 2, Some("1250")),
            ("12.505", 10, 2, None),
            (".5", 10, 2, Some("50")),
            ("5.", 10, 2, Some("500")),
            ("+1", 10, 0, Some("1")),
            ("007", 1, 0, Some("7")),
            ("123", 2, 0, None),
            (
                "12345678901234567890123456789012345678.0123456789",
                50,
                10,
                Some("123456789012345678901234567890123456780123456789"),
            ),
            (&nines, 76, 0, Some(&nines)),
            ("1e3", 10, 0, None),
            ("NaN", 10, 0, None),
            ("", 10, 0, None),
            (".", 10, 0, None),
            ("-", 10, 0, None),
            ("1 2", 10, 0, None),
            ("١", 10, 0, None),
        ];
        for (text, precision, scale, expected) in cases {
            let found = unscaled(text, *precision, *scale).map(|value| value.to_string());
            assert_eq!(found.as_deref(), *expected, "{text}");
        }
    }

    #[test]
    fn long_values_are_shown_in_part() {
        assert!(no_utf8(b"A\x84\xffB").contains("(bytes 41 84 ff 42)"));
        assert!(no_utf8(&[0xff; 40]).contains("ff ff …"));
    }
}
