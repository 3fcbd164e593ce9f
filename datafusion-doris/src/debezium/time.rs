//! Dates and times of events.

use std::fmt::Write as _;

use arrow::datatypes::TimeUnit;
use chrono::{DateTime, Days, FixedOffset, NaiveDate, NaiveDateTime, Timelike};
use chrono_tz::Tz;

use crate::options::TimePrecision;

fn per_second(precision: TimePrecision) -> i64 {
    match precision {
        TimePrecision::Millis => 1_000,
        TimePrecision::Micros => 1_000_000,
        TimePrecision::Nanos => 1_000_000_000,
    }
}

/// Seconds, and the rest in nanoseconds.
fn split(number: i64, precision: TimePrecision) -> (i64, u32) {
    let unit = per_second(precision);
    let rest = number.rem_euclid(unit) * (1_000_000_000 / unit);
    (number.div_euclid(unit), u32::try_from(rest).unwrap_or_default())
}

/// A day by its number.
pub(super) fn day(days: i64) -> Result<NaiveDate, String> {
    let epoch = NaiveDate::default();
    let distance = Days::new(days.unsigned_abs());
    let day = if days < 0 { epoch.checked_sub_days(distance) } else { epoch.checked_add_days(distance) };
    day.ok_or_else(|| format!("{days} days from 1970-01-01 is no date"))
}

/// A wall clock time by its number.
pub(super) fn date_time(number: i64, precision: TimePrecision) -> Result<NaiveDateTime, String> {
    let (seconds, nanos) = split(number, precision);
    let instant = DateTime::from_timestamp(seconds, nanos);
    instant.map(|instant| instant.naive_utc()).ok_or_else(|| format!("{number} is no time"))
}

/// A time of day as text, `HH:mm:ss` with a fraction when there is one. MySQL's TIME goes beyond a day and below zero.
pub(super) fn time_of_day(number: i64, precision: TimePrecision) -> String {
    let sign = if number < 0 { "-" } else { "" };
    // The absolute value of the least number does not fit, and is 292 years.
    let (seconds, nanos) = split(number.checked_abs().unwrap_or(i64::MAX), precision);
    let mut text = format!("{sign}{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
    if nanos > 0 {
        let fraction = format!("{nanos:09}");
        // Writing to a String does not fail.
        let _ = write!(text, ".{}", fraction.trim_end_matches('0'));
    }
    text
}

/// What a text of a date and time is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TimeText {
    /// A wall clock time.
    Local(NaiveDateTime),
    /// An instant, with its offset.
    Instant(DateTime<FixedOffset>),
}

impl TimeText {
    /// ISO 8601, with `T` or a blank, with or without offset; a date alone is its midnight.
    pub fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if let Ok(instant) = DateTime::parse_from_rfc3339(text) {
            return Ok(TimeText::Instant(instant));
        }
        let local = ["%Y-%m-%dT%H:%M:%S%.f", "%Y-%m-%d %H:%M:%S%.f"]
            .iter()
            .find_map(|form| NaiveDateTime::parse_from_str(text, form).ok());
        let midnight = || NaiveDate::parse_from_str(text, "%Y-%m-%d").ok()?.and_hms_opt(0, 0, 0);
        local.or_else(midnight).map(TimeText::Local).ok_or_else(|| format!("'{text}' is no date and time"))
    }

    /// The wall clock time that a column without zone shows.
    pub fn local(self, zone: Tz) -> NaiveDateTime {
        match self {
            TimeText::Local(local) => local,
            TimeText::Instant(instant) => instant.with_timezone(&zone).naive_local(),
        }
    }

    /// The instant that a column with zone holds; a time without offset is UTC.
    pub fn instant(self) -> NaiveDateTime {
        match self {
            TimeText::Local(local) => local,
            TimeText::Instant(instant) => instant.naive_utc(),
        }
    }
}

/// A day without time; an offset behind it says nothing about the day.
pub(super) fn parse_day(text: &str) -> Result<NaiveDate, String> {
    let text = text.trim();
    let (day, rest) = text.split_at_checked(10).unwrap_or((text, ""));
    let offset = rest.is_empty() || rest == "Z" || (rest.len() == 6 && rest.starts_with(['+', '-']));
    let parsed = NaiveDate::parse_from_str(day, "%Y-%m-%d").ok().filter(|_| offset);
    parsed.ok_or_else(|| format!("'{text}' is no date"))
}

/// Text of a time for a column of `unit`.
///
/// # Errors
/// When it is finer than the unit.
pub(super) fn exact(time: NaiveDateTime, unit: TimeUnit) -> Result<String, String> {
    let (grain, digits) = match unit {
        TimeUnit::Second => (1_000_000_000, 0),
        TimeUnit::Millisecond => (1_000_000, 3),
        TimeUnit::Microsecond => (1_000, 6),
        TimeUnit::Nanosecond => (1, 9),
    };
    if !time.nanosecond().is_multiple_of(grain) {
        return Err(format!("{time} is finer than the {digits} digits of the column"));
    }
    Ok(time.format("%Y-%m-%dT%H:%M:%S%.9f").to_string())
}
