//! Time zones of a session.

use std::fmt;
use std::str::FromStr;

use chrono::{FixedOffset, NaiveDateTime, Offset, TimeZone};
use chrono_tz::Tz;

/// A session `time_zone`: an IANA name or a fixed offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionZone {
    /// `+08:00`
    Fixed(FixedOffset),
    /// `Asia/Shanghai`
    Named(Tz),
}

impl SessionZone {
    /// UTC.
    pub const UTC: SessionZone = SessionZone::Named(Tz::UTC);

    /// Seconds east of UTC at an instant (seconds since the epoch).
    pub fn offset_at(&self, epoch_seconds: i64) -> i64 {
        match self {
            Self::Fixed(offset) => i64::from(offset.local_minus_utc()),
            Self::Named(tz) => match chrono::DateTime::from_timestamp(epoch_seconds, 0) {
                Some(instant) => i64::from(tz.offset_from_utc_datetime(&instant.naive_utc()).fix().local_minus_utc()),
                None => 0,
            },
        }
    }

    /// The instant (seconds since the epoch) whose rendering in this zone is the wall clock, given as seconds since the
    /// epoch as if it were UTC. In a gap the offset before it is used, in an overlap the earlier instant.
    pub fn instant_of_wall(&self, wall_seconds: i64) -> i64 {
        match self {
            Self::Fixed(offset) => wall_seconds - i64::from(offset.local_minus_utc()),
            Self::Named(tz) => {
                let Some(wall) = chrono::DateTime::from_timestamp(wall_seconds, 0).map(|t| t.naive_utc()) else {
                    return wall_seconds;
                };
                match tz.offset_from_local_datetime(&wall).earliest() {
                    Some(offset) => wall_seconds - i64::from(offset.fix().local_minus_utc()),
                    None => wall_seconds - self.offset_at(wall_seconds - 86_400),
                }
            }
        }
    }

    /// Wall clock of an instant in milliseconds.
    pub fn wall_of_ms(&self, epoch_ms: i64) -> NaiveDateTime {
        let wall_ms = epoch_ms + self.offset_at(epoch_ms.div_euclid(1000)) * 1000;
        chrono::DateTime::from_timestamp_millis(wall_ms).unwrap_or_default().naive_utc()
    }
}

impl FromStr for SessionZone {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let trimmed = text.trim();
        let upper = trimmed.to_ascii_uppercase();
        match upper.as_str() {
            "SYSTEM" | "UTC" | "Z" | "GMT" | "ZULU" => return Ok(Self::UTC),
            "CST" | "PRC" => return Ok(Self::Named(Tz::Asia__Shanghai)),
            _ => {}
        }
        let offset_text = upper.strip_prefix("GMT").or_else(|| upper.strip_prefix("UTC")).unwrap_or(&upper);
        if let Some(seconds) = parse_offset(offset_text) {
            return FixedOffset::east_opt(seconds)
                .map(Self::Fixed)
                .ok_or_else(|| format!("Unknown or incorrect time zone: '{text}'"));
        }
        trimmed
            .parse::<Tz>()
            .or_else(|_| {
                chrono_tz::TZ_VARIANTS.iter().find(|tz| tz.name().eq_ignore_ascii_case(trimmed)).copied().ok_or(())
            })
            .map(Self::Named)
            .map_err(|()| format!("Unknown or incorrect time zone: '{text}'"))
    }
}

/// Seconds of `+08:00`, `-7:30`, `+8`; within -12:00 to +14:00.
pub(super) fn parse_offset(text: &str) -> Option<i32> {
    let sign = match text.as_bytes().first()? {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let body = &text[1..];
    let (hours, minutes) = match body.split_once(':') {
        Some((h, m)) => (h, m),
        None => (body, "0"),
    };
    let digits = |t: &str| !t.is_empty() && t.len() <= 2 && t.bytes().all(|b| b.is_ascii_digit());
    if !digits(hours) || !digits(minutes) {
        return None;
    }
    let seconds = sign * (hours.parse::<i32>().ok()? * 3600 + minutes.parse::<i32>().ok()? * 60);
    (minutes.parse::<i32>().ok()? < 60 && (-12 * 3600..=14 * 3600).contains(&seconds)).then_some(seconds)
}

impl fmt::Display for SessionZone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(offset) => {
                let seconds = offset.local_minus_utc();
                let sign = if seconds < 0 { '-' } else { '+' };
                write!(f, "{sign}{:02}:{:02}", seconds.abs() / 3600, seconds.abs() % 3600 / 60)
            }
            Self::Named(tz) => f.write_str(tz.name()),
        }
    }
}
