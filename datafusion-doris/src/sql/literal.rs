//! Literals, printed so that each has the type it is compared with.

use arrow::datatypes::i256;
use chrono::{DateTime, Datelike, Days, NaiveDate, NaiveDateTime};

/// A string literal: backslashes and quotes doubled, NUL as `\0`.
///
/// Right while `NO_BACKSLASH_ESCAPES` is off in the session's `sql_mode`, which this crate's sessions set.
pub fn string_literal(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('\'');
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\'' => out.push_str("''"),
            '\0' => out.push_str("\\0"),
            c => out.push(c),
        }
    }
    out.push('\'');
    out
}

/// A whole number; a negative one in parentheses, since `--` begins a comment.
pub(super) fn integer_literal(value: i64) -> String {
    if value < 0 { format!("({value})") } else { value.to_string() }
}

/// A LARGEINT, by cast: a plain number would take the smallest type that holds it, and text would compare as text.
pub(super) fn largeint_literal(value: i128) -> String {
    format!("CAST('{value}' AS LARGEINT)")
}

/// A decimal of the column's own precision and scale; `None` when the value does not fit it exactly.
pub(super) fn decimal_literal(value: i256, value_scale: i8, precision: u8, scale: u8) -> Option<String> {
    let unscaled = rescale(value, value_scale, scale)?;
    let negative = unscaled < i256::ZERO;
    let digits = unscaled.to_string();
    let digits = digits.trim_start_matches('-');
    if digits.len() > usize::from(precision) {
        return None;
    }
    let scale = usize::from(scale);
    let digits = format!("{digits:0>width$}", width = scale + 1);
    let (whole, fraction) = digits.split_at(digits.len() - scale);
    let point = if fraction.is_empty() { "" } else { "." };
    let sign = if negative { "-" } else { "" };
    Some(format!("CAST('{sign}{whole}{point}{fraction}' AS DECIMAL({precision}, {scale}))"))
}

/// `value * 10^-from` as an unscaled number of scale `to`, when that is exact.
pub(super) fn rescale(value: i256, from: i8, to: u8) -> Option<i256> {
    let ten = i256::from_i128(10);
    let mut out = value;
    let steps = i16::from(to) - i16::from(from);
    for _ in 0..steps.max(0) {
        out = out.checked_mul(ten)?;
    }
    for _ in 0..(-steps).max(0) {
        if out.checked_rem(ten)? != i256::ZERO {
            return None;
        }
        out = out.checked_div(ten)?;
    }
    Some(out)
}

/// A finite double other than zero, by its shortest round-trip text.
///
/// Zero is refused: Arrow orders -0.0 before 0.0, Doris takes them as equal.
pub(super) fn double_literal(value: f64) -> Option<String> {
    (value.is_finite() && value != 0.0).then(|| format!("CAST('{value:e}' AS DOUBLE)"))
}

/// Years that Doris prints with four digits; year zero is off by one day in some servers.
fn in_range(date: NaiveDate) -> bool {
    (1..=9999).contains(&date.year())
}

/// A date from days since 1970-01-01.
pub(super) fn date_literal(days: i32) -> Option<String> {
    let epoch = NaiveDate::from_ymd_opt(1970, 1, 1)?;
    let distance = Days::new(u64::from(days.unsigned_abs()));
    let date = if days < 0 { epoch.checked_sub_days(distance) } else { epoch.checked_add_days(distance) }?;
    in_range(date).then(|| format!("CAST('{}' AS DATE)", date.format("%Y-%m-%d")))
}

/// A datetime from microseconds since 1970-01-01 00:00:00 of the wall clock.
pub(super) fn datetime_literal(micros: i64) -> Option<String> {
    let wall_clock: NaiveDateTime = DateTime::from_timestamp_micros(micros)?.naive_utc();
    in_range(wall_clock.date())
        .then(|| format!("CAST('{}' AS DATETIME(6))", wall_clock.format("%Y-%m-%d %H:%M:%S%.6f")))
}
