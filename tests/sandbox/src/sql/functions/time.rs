//! Functions of dates and times.

use super::row::{Call, Def, Outcome, Types, f, g, int, null, text, text_or_null};
use super::time_format::{date_format, str_to_date};
use crate::types::{DorisType, SessionZone, Value, civil_from_days, days_from_civil};

const DAY: i64 = 86_400_000_000;

/// The unit of an interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unit {
    Month(i64),
    Micros(i64),
}

/// Units by name; whether it is made of whole days.
fn unit(name: &str) -> Option<(Unit, bool)> {
    Some(match name.to_ascii_uppercase().as_str() {
        "YEAR" => (Unit::Month(12), true),
        "QUARTER" => (Unit::Month(3), true),
        "MONTH" => (Unit::Month(1), true),
        "WEEK" => (Unit::Micros(7 * DAY), true),
        "DAY" => (Unit::Micros(DAY), true),
        "HOUR" => (Unit::Micros(3_600_000_000), false),
        "MINUTE" => (Unit::Micros(60_000_000), false),
        "SECOND" => (Unit::Micros(1_000_000), false),
        "MILLISECOND" => (Unit::Micros(1000), false),
        "MICROSECOND" => (Unit::Micros(1), false),
        _ => return None,
    })
}

fn days_in_month(year: i64, month: u32) -> u32 {
    let next = if month == 12 { days_from_civil(year + 1, 1, 1) } else { days_from_civil(year, month + 1, 1) };
    (next - days_from_civil(year, month, 1)) as u32
}

fn in_range(micros: i64) -> Option<i64> {
    (days_from_civil(0, 1, 1) * DAY..days_from_civil(10_000, 1, 1) * DAY).contains(&micros).then_some(micros)
}

/// Adds to a wall clock; a day that the month does not have becomes its last one.
fn add(micros: i64, amount: i64, of: Unit) -> Option<i64> {
    match of {
        Unit::Micros(size) => in_range(micros.checked_add(amount.checked_mul(size)?)?),
        Unit::Month(months) => {
            let (days, clock) = (micros.div_euclid(DAY), micros.rem_euclid(DAY));
            let (year, month, day) = civil_from_days(days);
            let index = (year * 12 + i64::from(month) - 1).checked_add(amount.checked_mul(months)?)?;
            let (year, month) = (index.div_euclid(12), index.rem_euclid(12) as u32 + 1);
            if !(0..=9999).contains(&year) {
                return None;
            }
            let day = day.min(days_in_month(year, month));
            in_range(days_from_civil(year, month, day) * DAY + clock)
        }
    }
}

/// Whole units from one moment to another.
fn difference(from: i64, to: i64, of: Unit) -> i64 {
    match of {
        Unit::Micros(size) => (to - from) / size,
        Unit::Month(months) => {
            let parts = |micros: i64| {
                let (year, month, day) = civil_from_days(micros.div_euclid(DAY));
                (year * 12 + i64::from(month), i64::from(day) * DAY + micros.rem_euclid(DAY))
            };
            let ((a, rest_a), (b, rest_b)) = (parts(from), parts(to));
            let mut count = b - a;
            if count > 0 && rest_b < rest_a {
                count -= 1;
            } else if count < 0 && rest_b > rest_a {
                count += 1;
            }
            count / months
        }
    }
}

/// A text that is a date alone counts as DATE, any other as DATETIME with its digits.
fn time_type(t: &Types<'_>, i: usize) -> DorisType {
    match (&t.args[i], t.literals.get(i)) {
        (DorisType::Date, _) => DorisType::Date,
        (ty @ DorisType::DateTime(_), _) => ty.clone(),
        (DorisType::TimestampTz(p), _) => DorisType::DateTime(*p),
        (_, Some(Some(Value::Text(own)))) if own.trim().len() <= 10 => DorisType::Date,
        (_, Some(Some(Value::Text(own)))) => {
            DorisType::DateTime(own.rsplit_once('.').map_or(0, |(_, fraction)| fraction.len().min(6) as u8))
        }
        _ => DorisType::DateTime(6),
    }
}

/// Type of `date_add(x, n, unit)`.
fn add_type(t: &Types<'_>) -> Result<DorisType, String> {
    let Some(Some(Value::Text(name))) = t.literals.get(2) else { return Err("an interval without a unit".to_owned()) };
    let (_, whole_days) = unit(name).ok_or_else(|| format!("the sandbox does not implement INTERVAL of {name}"))?;
    let fine = |digits: u8| match name.to_ascii_uppercase().as_str() {
        "MICROSECOND" => 6,
        "MILLISECOND" => digits.max(3),
        _ => digits,
    };
    Ok(match time_type(t, 0) {
        DorisType::Date if whole_days => DorisType::Date,
        DorisType::Date => DorisType::DateTime(fine(0)),
        DorisType::DateTime(p) => DorisType::DateTime(fine(p)),
        other => other,
    })
}

fn shifted(c: &Call<'_>, sign: i64, name: &str) -> Outcome {
    let Some((of, _)) = unit(name) else { return null() };
    Ok(match add(c.i(0), c.i(1).saturating_mul(sign), of) {
        Some(micros) if *c.ret == DorisType::Date => Value::Date(micros.div_euclid(DAY) as i32),
        Some(micros) => Value::DateTime(micros),
        None => Err(format!("Operation {} out of range", if sign > 0 { "add" } else { "sub" }))?,
    })
}

/// The start of a unit.
fn truncate(micros: i64, name: &str) -> Option<i64> {
    let days = micros.div_euclid(DAY);
    let (year, month, _) = civil_from_days(days);
    Some(match name.to_ascii_lowercase().as_str() {
        "year" => days_from_civil(year, 1, 1) * DAY,
        "quarter" => days_from_civil(year, (month - 1) / 3 * 3 + 1, 1) * DAY,
        "month" => days_from_civil(year, month, 1) * DAY,
        // Weeks start on Monday.
        "week" => (days - (days + 3).rem_euclid(7)) * DAY,
        "day" => days * DAY,
        "hour" => micros.div_euclid(3_600_000_000) * 3_600_000_000,
        "minute" => micros.div_euclid(60_000_000) * 60_000_000,
        "second" => micros.div_euclid(1_000_000) * 1_000_000,
        _ => return None,
    })
}

fn trunc_type(t: &Types<'_>) -> Result<DorisType, String> {
    let text = |i: usize| match t.literals.get(i) {
        Some(Some(Value::Text(own))) => Some(own.to_ascii_lowercase()),
        _ => None,
    };
    match text(1) {
        Some(name) if truncate(0, &name).is_none() => Err(format!(
            "date_trunc function time unit param only support argument is year|quarter|month|week|day|hour|minute|second, but got {name}"
        )),
        None => Err("date_trunc function time unit param must be a string constant".to_owned()),
        _ => Ok(match time_type(t, 0) {
            DorisType::Date => DorisType::Date,
            _ => DorisType::DateTime(0),
        }),
    }
}

fn parts(c: &Call<'_>) -> (i64, u32, u32) {
    civil_from_days(c.i(0).div_euclid(DAY))
}

fn clock(c: &Call<'_>, size: i64, modulus: i64) -> Outcome {
    int(c.i(0).rem_euclid(DAY) / size % modulus)
}

fn day_number(c: &Call<'_>) -> i64 {
    c.i(0).div_euclid(DAY)
}

/// `week(d, mode)` as MySQL counts.
pub(super) fn week(days: i64, mode: i64, year_too: bool) -> i64 {
    let (monday_first, from_one, first_is_long) = (mode & 1 != 0, mode & 2 != 0 || year_too, mode & 4 != 0);
    let rule = if monday_first { !first_is_long } else { first_is_long };
    // With the rule, week one is the first that has four days in the year; else the first that starts in it.
    let start_of = |year: i64| {
        let first = days_from_civil(year, 1, 1);
        let weekday = if monday_first { (first + 3).rem_euclid(7) } else { (first + 4).rem_euclid(7) };
        if rule {
            if weekday <= 3 { first - weekday } else { first + 7 - weekday }
        } else if weekday == 0 {
            first
        } else {
            first + 7 - weekday
        }
    };
    let (mut year, _, _) = civil_from_days(days);
    if days >= start_of(year + 1) && from_one {
        year += 1;
    } else if days < start_of(year) {
        if !from_one {
            return 0;
        }
        year -= 1;
    }
    let number = (days - start_of(year)).div_euclid(7) + 1;
    if year_too { year * 100 + number } else { number }
}

fn from_unixtime(c: &Call<'_>) -> Outcome {
    let seconds = c.f(0);
    if !(0.0..=253_402_271_999.0).contains(&seconds) {
        return null();
    }
    let instant = seconds.floor() as i64;
    let wall = instant + c.env.zone.offset_at(instant);
    let format = if c.len() > 1 { c.s(1) } else { "%Y-%m-%d %H:%i:%s" };
    let format = match format {
        "yyyyMMdd" => "%Y%m%d",
        "yyyy-MM-dd" => "%Y-%m-%d",
        "yyyy-MM-dd HH:mm:ss" => "%Y-%m-%d %H:%i:%s",
        other => other,
    };
    text(date_format(wall * 1_000_000, format))
}

fn convert_zone(micros: i64, from: &str, to: &str) -> Option<i64> {
    let (from, to): (SessionZone, SessionZone) = (from.parse().ok()?, to.parse().ok()?);
    let instant = from.instant_of_wall(micros.div_euclid(1_000_000));
    Some((instant + to.offset_at(instant)) * 1_000_000 + micros.rem_euclid(1_000_000))
}

const DAYS_TO_EPOCH: i64 = 719_528;

/// `years_add` and the like: `(name, unit, sign)`.
macro_rules! shift {
    ($name:literal, $unit:literal, $sign:literal) => {
        g(
            $name,
            "ti",
            |t| {
                let literals = [t.literals[0].clone(), None, Some(Value::Text($unit.to_owned()))];
                add_type(&Types { env: t.env, args: t.args, literals: &literals })
            },
            |c| shifted(c, $sign, $unit),
        )
    };
}

/// `days_diff(later, earlier)` and the like.
macro_rules! diff {
    ($name:literal, $unit:literal) => {
        f($name, "tt", DorisType::BigInt, |c| match unit($unit) {
            Some((of, _)) => int(difference(c.i(1), c.i(0), of)),
            None => null(),
        })
    };
}

pub(crate) fn defs() -> Vec<Def> {
    use DorisType::{BigInt, Date, Int, SmallInt, String as Text, TinyInt};
    vec![
        f("year", "t", SmallInt, |c| int(parts(c).0)),
        f("quarter", "t", TinyInt, |c| int((parts(c).1 - 1) / 3 + 1)),
        f("month", "t", TinyInt, |c| int(parts(c).1)),
        f("day dayofmonth", "t", TinyInt, |c| int(parts(c).2)),
        f("hour", "t", TinyInt, |c| clock(c, 3_600_000_000, 24)),
        f("minute", "t", TinyInt, |c| clock(c, 60_000_000, 60)),
        f("second", "t", TinyInt, |c| clock(c, 1_000_000, 60)),
        f("microsecond", "t", Int, |c| clock(c, 1, 1_000_000)),
        f("dayofweek dow", "t", TinyInt, |c| int((day_number(c) + 4).rem_euclid(7) + 1)),
        f("weekday", "t", TinyInt, |c| int((day_number(c) + 3).rem_euclid(7))),
        f("dayofyear", "t", SmallInt, |c| int(day_number(c) - days_from_civil(parts(c).0, 1, 1) + 1)),
        f("week", "ti?", TinyInt, |c| int(week(day_number(c), if c.len() > 1 { c.i(1) } else { 0 }, false))),
        f("weekofyear", "t", TinyInt, |c| int(week(day_number(c), 3, false))),
        f("yearweek", "ti?", Int, |c| int(week(day_number(c), if c.len() > 1 { c.i(1) } else { 0 }, true))),
        f("dayname", "t", Text, |c| text(date_format(c.i(0), "%W"))),
        f("monthname", "t", Text, |c| text(date_format(c.i(0), "%M"))),
        f("last_day", "t", Date, |c| {
            let (year, month, _) = parts(c);
            Ok(Value::Date(days_from_civil(year, month, days_in_month(year, month)) as i32))
        }),
        f("to_date date", "d", Date, |c| Ok(c.args[0].clone())),
        f("to_days", "d", Int, |c| int(c.i(0) + DAYS_TO_EPOCH)),
        f("from_days", "i", Date, |c| {
            let days = c.i(0) - DAYS_TO_EPOCH;
            Ok(in_range(days.saturating_mul(DAY)).map_or(Value::Null, |_| Value::Date(days as i32)))
        }),
        f("makedate", "ii", Date, |c| {
            if c.i(1) < 1 || !(0..=9999).contains(&c.i(0)) {
                return null();
            }
            Ok(Value::Date((days_from_civil(c.i(0), 1, 1) + c.i(1) - 1) as i32))
        }),
        f("datediff", "dd", Int, |c| int(c.i(0) - c.i(1))),
        f("timediff", "tt", DorisType::Time(0), |c| Ok(Value::Time((c.i(0) - c.i(1)) / 1_000_000 * 1_000_000))),
        f("timestampdiff", "stt", BigInt, |c| match unit(c.s(0)) {
            Some((of, _)) => int(difference(c.i(1), c.i(2), of)),
            None => Err(format!("Unsupported time stamp diff time unit: {}", c.s(0))),
        }),
        g("date_add", "tis", add_type, |c| shifted(c, 1, c.s(2))),
        g("date_sub", "tis", add_type, |c| shifted(c, -1, c.s(2))),
        shift!("years_add", "YEAR", 1),
        shift!("years_sub", "YEAR", -1),
        shift!("quarters_add", "QUARTER", 1),
        shift!("quarters_sub", "QUARTER", -1),
        shift!("months_add add_months", "MONTH", 1),
        shift!("months_sub", "MONTH", -1),
        shift!("weeks_add", "WEEK", 1),
        shift!("weeks_sub", "WEEK", -1),
        shift!("days_add", "DAY", 1),
        shift!("days_sub", "DAY", -1),
        shift!("hours_add", "HOUR", 1),
        shift!("hours_sub", "HOUR", -1),
        shift!("minutes_add", "MINUTE", 1),
        shift!("minutes_sub", "MINUTE", -1),
        shift!("seconds_add", "SECOND", 1),
        shift!("seconds_sub", "SECOND", -1),
        shift!("milliseconds_add", "MILLISECOND", 1),
        shift!("milliseconds_sub", "MILLISECOND", -1),
        shift!("microseconds_add", "MICROSECOND", 1),
        shift!("microseconds_sub", "MICROSECOND", -1),
        diff!("years_diff", "YEAR"),
        diff!("months_diff", "MONTH"),
        diff!("weeks_diff", "WEEK"),
        diff!("days_diff", "DAY"),
        diff!("hours_diff", "HOUR"),
        diff!("minutes_diff", "MINUTE"),
        diff!("seconds_diff", "SECOND"),
        diff!("milliseconds_diff", "MILLISECOND"),
        diff!("microseconds_diff", "MICROSECOND"),
        g("date_trunc", "ts", trunc_type, |c| match truncate(c.i(0), c.s(1)) {
            // The first week began before the first day there is.
            Some(micros) if civil_from_days(micros.div_euclid(DAY)).0 < 0 => {
                Err("Operation date_trunc out of range".to_owned())
            }
            Some(micros) if *c.ret == Date => Ok(Value::Date(micros.div_euclid(DAY) as i32)),
            Some(micros) => Ok(Value::DateTime(micros)),
            None => null(),
        }),
        f("date_format", "ts", Text, |c| text(date_format(c.i(0), c.s(1)))),
        g(
            "str_to_date",
            "ss",
            |t| match t.literals.get(1) {
                // Without a time of day in the format the result is a DATE.
                Some(Some(Value::Text(format))) => Ok(match format {
                    format if format.contains("%f") => DorisType::DateTime(6),
                    format
                        if ["%H", "%h", "%I", "%i", "%s", "%S", "%T", "%r", "%k", "%l", "HH", "%p"]
                            .iter()
                            .any(|part| format.contains(part)) =>
                    {
                        DorisType::DateTime(0)
                    }
                    _ => Date,
                }),
                _ => Ok(DorisType::DateTime(6)),
            },
            |c| {
                let micros = str_to_date(c.s(0), c.s(1)).and_then(in_range);
                Ok(micros.map_or(Value::Null, Value::DateTime))
            },
        ),
        f("from_unixtime", "fs?", Text, from_unixtime),
        f("unix_timestamp", "ts?", BigInt, |c| int(c.env.zone.instant_of_wall(c.i(0).div_euclid(1_000_000)).max(0))),
        f("from_second", "i", DorisType::DateTime(0), |c| {
            let wall = c.i(0).saturating_add(c.env.zone.offset_at(c.i(0)));
            Ok(in_range(wall.saturating_mul(1_000_000)).map_or(Value::Null, Value::DateTime))
        }),
        f("from_millisecond", "i", DorisType::DateTime(3), |c| {
            let offset = c.env.zone.offset_at(c.i(0).div_euclid(1000));
            Ok(in_range(c.i(0).saturating_add(offset * 1000).saturating_mul(1000)).map_or(Value::Null, Value::DateTime))
        }),
        f("second_timestamp", "t", BigInt, |c| int(c.env.zone.instant_of_wall(c.i(0).div_euclid(1_000_000)))),
        f("millisecond_timestamp", "t", BigInt, |c| {
            let seconds = c.env.zone.instant_of_wall(c.i(0).div_euclid(1_000_000));
            int(seconds * 1000 + c.i(0).rem_euclid(1_000_000) / 1000)
        }),
        f("microsecond_timestamp", "t", BigInt, |c| {
            let seconds = c.env.zone.instant_of_wall(c.i(0).div_euclid(1_000_000));
            int(seconds * 1_000_000 + c.i(0).rem_euclid(1_000_000))
        }),
        f("convert_tz", "tss", DorisType::DateTime(6), |c| {
            Ok(convert_zone(c.i(0), c.s(1), c.s(2)).and_then(in_range).map_or(Value::Null, Value::DateTime))
        }),
        f("time_to_sec", "x", Int, |c| int(c.i(0) / 1_000_000)),
        f("sec_to_time", "i", DorisType::Time(0), |c| {
            let limit = 3_020_399;
            Ok(Value::Time(c.i(0).clamp(-limit, limit) * 1_000_000))
        }),
        f("to_iso8601", "t", Text, |c| text(date_format(c.i(0), "%Y-%m-%dT%H:%i:%s.%f"))),
        f("to_monday", "d", Date, |c| Ok(Value::Date((c.i(0) - (c.i(0) + 3).rem_euclid(7)) as i32))),
        f("time_format", "xs", Text, |c| text_or_null(Some(date_format(c.i(0).rem_euclid(DAY), c.s(1))))),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn months_keep_within_their_days() {
        let at = |y, m, d| days_from_civil(y, m, d) * DAY;
        assert_eq!(add(at(2024, 1, 31), 1, Unit::Month(1)), Some(at(2024, 2, 29)));
        assert_eq!(add(at(2024, 2, 29), 1, Unit::Month(12)), Some(at(2025, 2, 28)));
        assert_eq!(add(at(9999, 12, 31), 1, Unit::Micros(DAY)), None);
        assert_eq!(difference(at(2024, 1, 31), at(2024, 2, 29), Unit::Month(1)), 0);
        assert_eq!(difference(at(2024, 3, 1), at(2024, 1, 31), Unit::Month(1)), -1);
    }

    #[test]
    fn weeks_count_by_mode() {
        let day = |y, m, d| days_from_civil(y, m, d);
        assert_eq!(week(day(2020, 1, 1), 0, false), 0);
        assert_eq!(week(day(2020, 7, 1), 1, false), 27);
        assert_eq!(week(day(2021, 1, 1), 3, false), 53);
        assert_eq!(week(day(2024, 12, 30), 3, false), 1);
    }
}
