//! Times as Doris and the Flink connector write them: text of whole seconds in a server's time zone.

use std::fmt;
use std::str::FromStr;

use chrono::{DateTime, Datelike, FixedOffset, LocalResult, NaiveDate, NaiveDateTime, TimeZone};
use chrono_tz::{TZ_VARIANTS, Tz};

/// A wall clock time of whole seconds, `yyyy-MM-dd HH:mm:ss`, in a zone that is told elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LocalTime(NaiveDateTime);

/// Why a text is no [`LocalTime`].
const FORM: &str = "must match yyyy-MM-dd HH:mm:ss";

impl LocalTime {
    /// Reads exactly `yyyy-MM-dd HH:mm:ss`. The calendar is checked here: a server would take 30 February as 1 March.
    ///
    /// # Errors
    /// The reason, with the text.
    pub fn parse(text: &str) -> Result<Self, String> {
        let bad = |reason: &str| format!("'{text}' {FORM}{reason}");
        let shape = text.len() == 19
            && text.bytes().enumerate().all(|(at, byte)| match at {
                4 | 7 => byte == b'-',
                10 => byte == b' ',
                13 | 16 => byte == b':',
                _ => byte.is_ascii_digit(),
            });
        if !shape {
            return Err(bad(""));
        }
        // The shape makes each of these a number of digits.
        let number = |from: usize, to: usize| text[from..to].parse::<u32>().unwrap_or_default();
        let year = i32::try_from(number(0, 4)).unwrap_or_default();
        if year == 0 {
            return Err(bad(" with a year from 0001 to 9999"));
        }
        NaiveDate::from_ymd_opt(year, number(5, 7), number(8, 10))
            .ok_or_else(|| bad(": there is no such day"))?
            .and_hms_opt(number(11, 13), number(14, 16), number(17, 19))
            .map(Self)
            .ok_or_else(|| bad(": there is no such time of day"))
    }

    /// The instant in epoch milliseconds.
    ///
    /// # Errors
    /// The reason, when the zone's clock shows this time twice or never.
    pub fn to_epoch_ms(self, zone: &ServerZone) -> Result<i64, String> {
        let resolved = match zone {
            ServerZone::Named(zone) => zone.from_local_datetime(&self.0).map(|at| at.timestamp_millis()),
            ServerZone::Fixed(offset) => offset.from_local_datetime(&self.0).map(|at| at.timestamp_millis()),
        };
        match resolved {
            LocalResult::Single(ms) => Ok(ms),
            LocalResult::Ambiguous(..) => Err(format!(
                "{self} comes twice in the server's time zone {zone}, before and after its clock is set back; give a \
                 time outside of that hour"
            )),
            LocalResult::None => {
                Err(format!("{self} does not exist in the server's time zone {zone}, whose clock is set forward then"))
            }
        }
    }

    /// The time that a clock of `zone` shows at an instant; `None` when it is not a whole second of the years 1 to 9999.
    pub fn of_epoch_ms(ms: i64, zone: &ServerZone) -> Option<Self> {
        let utc = (ms.rem_euclid(1000) == 0).then(|| DateTime::from_timestamp_millis(ms)).flatten()?;
        let local = match zone {
            ServerZone::Named(zone) => utc.with_timezone(zone).naive_local(),
            ServerZone::Fixed(offset) => utc.with_timezone(offset).naive_local(),
        };
        (1..=9999).contains(&local.year()).then_some(Self(local))
    }
}

impl fmt::Display for LocalTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.format("%Y-%m-%d %H:%M:%S"))
    }
}

/// The time zone of a Doris session, as `time_zone` names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerZone {
    /// An IANA name.
    Named(Tz),
    /// `+08:00`.
    Fixed(FixedOffset),
}

impl ServerZone {
    /// Coordinated universal time.
    pub const UTC: ServerZone = ServerZone::Named(Tz::UTC);
}

impl FromStr for ServerZone {
    type Err = String;

    /// Reads a value of the variable `time_zone`: an IANA name in any case, an offset, or Doris' own `CST`, which is
    /// China's time.
    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if text.eq_ignore_ascii_case("CST") {
            return Ok(Self::Named(Tz::Asia__Shanghai));
        }
        if let Some(offset) = parse_offset(text) {
            return Ok(Self::Fixed(offset));
        }
        let known = TZ_VARIANTS.iter().find(|zone| zone.name().eq_ignore_ascii_case(text));
        known.map(|zone| Self::Named(*zone)).ok_or_else(|| format!("'{text}' is not a known time zone"))
    }
}

/// `+08:00`, `-3:30`, `+00:00`.
fn parse_offset(text: &str) -> Option<FixedOffset> {
    let (sign, rest) = match text.split_at_checked(1)? {
        ("+", rest) => (1, rest),
        ("-", rest) => (-1, rest),
        _ => return None,
    };
    let (hours, minutes) = rest.split_once(':')?;
    let digits = |part: &str, longest: usize| {
        ((1..=longest).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit()))
            .then(|| part.parse::<i32>().ok())
            .flatten()
    };
    let (hours, minutes) = (digits(hours, 2)?, digits(minutes, 2)?);
    (hours <= 14 && minutes < 60).then(|| FixedOffset::east_opt(sign * (hours * 3600 + minutes * 60))).flatten()
}

impl fmt::Display for ServerZone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ServerZone::Named(zone) => f.write_str(zone.name()),
            ServerZone::Fixed(offset) => offset.fmt(f),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    fn time(text: &str) -> LocalTime {
        LocalTime::parse(text).unwrap()
    }

    fn zone(text: &str) -> ServerZone {
        text.parse().unwrap()
    }

    #[test]
    fn only_whole_seconds_of_the_calendar_are_times() {
        for text in ["2026-01-01 00:00:00", "2024-02-29 23:59:59", "0001-01-01 00:00:00", "9999-12-31 23:59:59"] {
            assert_eq!(time(text).to_string(), text);
        }
        for (text, reason) in [
            ("2026-01-01", FORM),
            ("2026-1-1 0:0:0", FORM),
            ("2026-01-01T00:00:00", FORM),
            ("2026-01-01 00:00:00.5", FORM),
            (" 2026-01-01 00:00:00", FORM),
            ("2026-02-30 00:00:00", "no such day"),
            ("2025-02-29 00:00:00", "no such day"),
            ("2026-13-01 00:00:00", "no such day"),
            ("2026-01-01 24:00:00", "no such time"),
            ("2026-01-01 23:59:60", "no such time"),
            ("0000-01-01 00:00:00", "year from 0001"),
            ("２026-01-01 00:00:0", FORM),
        ] {
            let error = LocalTime::parse(text).unwrap_err();
            assert!(error.contains(reason) && error.contains(text), "{error}");
        }
    }

    #[test]
    fn zones_come_by_name_offset_or_dialect() {
        let noon = time("2026-07-01 12:00:00");
        let utc = noon.to_epoch_ms(&ServerZone::UTC).unwrap();
        for (text, hours) in [
            ("Asia/Shanghai", 8),
            ("asia/shanghai", 8),
            ("CST", 8),
            ("+08:00", 8),
            ("-3:30", -4),
            ("PRC", 8),
            ("UTC", 0),
        ] {
            let at = noon.to_epoch_ms(&zone(text)).unwrap();
            let offset = utc - at;
            assert_eq!(offset.div_euclid(3_600_000), hours, "{text}");
            assert_eq!(LocalTime::of_epoch_ms(at, &zone(text)), Some(noon), "{text}");
        }
        for text in ["", "SYSTEM", "+25:00", "+8", "Mars/Base"] {
            assert!(text.parse::<ServerZone>().is_err(), "{text}");
        }
    }

    #[test]
    fn hour_that_comes_twice_is_refused_and_so_is_one_that_does_not_come() {
        let new_york = zone("America/New_York");
        let error = time("2025-11-02 01:30:00").to_epoch_ms(&new_york).unwrap_err();
        assert!(error.contains("comes twice") && error.contains("America/New_York"), "{error}");
        let error = time("2025-03-09 02:30:00").to_epoch_ms(&new_york).unwrap_err();
        assert!(error.contains("does not exist"), "{error}");
        assert_eq!(time("2025-11-02 00:59:59").to_epoch_ms(&new_york), Ok(1_762_059_599_000));
        assert_eq!(time("2025-11-02 02:00:00").to_epoch_ms(&new_york), Ok(1_762_066_800_000));
    }

    #[test]
    fn text_of_an_instant_needs_a_whole_second_of_four_digit_years() {
        assert_eq!(LocalTime::of_epoch_ms(1_500, &ServerZone::UTC), None);
        assert_eq!(LocalTime::of_epoch_ms(-62_135_596_800_000 - 1000, &ServerZone::UTC), None);
        assert_eq!(LocalTime::of_epoch_ms(0, &ServerZone::UTC).unwrap().to_string(), "1970-01-01 00:00:00");
    }
}
