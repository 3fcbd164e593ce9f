//! DATE and DATETIME: calendar arithmetic over 0000-01-01 to 9999-12-31, reading of the many text forms, printing.

use super::zone::{SessionZone, parse_offset};

/// Microseconds of a day.
pub const DAY_MICROS: i64 = 86_400_000_000;

/// Days since 1970-01-01 of a proleptic Gregorian date.
pub fn days_from_civil(year: i64, month: u32, day: u32) -> i64 {
    let y = if month <= 2 { year - 1 } else { year };
    let era = y.div_euclid(400);
    let yoe = y - era * 400;
    let m = i64::from(month);
    let doy = (153 * (m + if m > 2 { -3 } else { 9 }) + 2) / 5 + i64::from(day) - 1;
    let doe = yoe * 365 + yoe / 4 - yoe / 100 + doy;
    era * 146_097 + doe - 719_468
}

/// Year, month and day of days since 1970-01-01.
pub fn civil_from_days(days: i64) -> (i64, u32, u32) {
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let doe = z - era * 146_097;
    let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let day = (doy - (153 * mp + 2) / 5 + 1) as u32;
    let month = if mp < 10 { mp + 3 } else { mp - 9 } as u32;
    let year = yoe + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

/// `YYYY-MM-DD`.
pub fn format_date(days: i64) -> String {
    let (year, month, day) = civil_from_days(days);
    format!("{year:04}-{month:02}-{day:02}")
}

/// `YYYY-MM-DD HH:MM:SS[.f]` with `precision` digits of fraction, from microseconds of the wall clock.
pub fn format_datetime(micros: i64, precision: u8) -> String {
    let days = micros.div_euclid(DAY_MICROS);
    let rest = micros.rem_euclid(DAY_MICROS);
    let (seconds, fraction) = (rest / 1_000_000, rest % 1_000_000);
    let mut out = format!("{} {:02}:{:02}:{:02}", format_date(days), seconds / 3600, seconds / 60 % 60, seconds % 60);
    if precision > 0 {
        let digits = format!("{fraction:06}");
        out.push('.');
        out.push_str(&digits[..usize::from(precision.min(6))]);
    }
    out
}

fn days_in_month(year: i64, month: u32) -> u32 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Reads a date or datetime text: `2024-01-31`, `2024/1/31`, `20240131`, `20240131235959`, `2024-01-31T23:59:59.5`, two-digit
/// years, missing time parts, and a zone suffix (`Z`, `+08:00`, a zone name), which converts to `zone`. Gives microseconds of
/// the wall clock, rounded half up to `precision` digits.
pub fn parse_datetime(text: &str, precision: u8, zone: &SessionZone) -> Option<i64> {
    let text = text.trim();
    let (date, rest) = read_date(text)?;
    let (year, month, day) = date;
    if !(1..=12).contains(&month) || day < 1 || day > days_in_month(year, month) || !(0..=9999).contains(&year) {
        return None;
    }
    let mut micros = days_from_civil(year, month, day) * DAY_MICROS;
    let (clock, rest) = read_clock(rest)?;
    micros += clock;
    let suffix = rest.trim();
    if !suffix.is_empty() {
        let from = match parse_offset(suffix) {
            Some(seconds) => SessionZone::Fixed(chrono::FixedOffset::east_opt(seconds)?),
            None => suffix.parse().ok()?,
        };
        let instant = from.instant_of_wall(micros.div_euclid(1_000_000));
        micros = (instant + zone.offset_at(instant)) * 1_000_000 + micros.rem_euclid(1_000_000);
    }
    let unit = 10_i64.pow(u32::from(6 - precision.min(6)));
    let rounded = (micros + unit / 2).div_euclid(unit) * unit;
    let first = days_from_civil(0, 1, 1) * DAY_MICROS;
    let end = days_from_civil(10_000, 1, 1) * DAY_MICROS;
    (first..end).contains(&rounded).then_some(rounded)
}

type Date = (i64, u32, u32);

fn read_date(text: &str) -> Option<(Date, &str)> {
    let run = text.bytes().take_while(u8::is_ascii_digit).count();
    let number = |from: usize, to: usize| text[from..to].parse::<u32>().ok();
    match run {
        8 | 14 => Some(((i64::from(number(0, 4)?), number(4, 6)?, number(6, 8)?), &text[8..])),
        6 | 12 => Some(((two_digit_year(number(0, 2)?), number(2, 4)?, number(4, 6)?), &text[6..])),
        1..=4 => {
            let year_value = number(0, run)?;
            let year = if run == 4 {
                i64::from(year_value)
            } else if run == 2 {
                two_digit_year(year_value)
            } else {
                return None;
            };
            let (month, rest) = read_part(&text[run..])?;
            let (day, rest) = read_part(rest)?;
            Some(((year, month, day), rest))
        }
        _ => None,
    }
}

fn two_digit_year(value: u32) -> i64 {
    i64::from(if value < 70 { 2000 + value } else { 1900 + value })
}

/// A separator (`-`, `/`, `.`) and one or two digits.
fn read_part(text: &str) -> Option<(u32, &str)> {
    let rest = text.strip_prefix(['-', '/', '.'])?;
    let run = rest.bytes().take_while(u8::is_ascii_digit).count();
    if !(1..=2).contains(&run) {
        return None;
    }
    Some((rest[..run].parse().ok()?, &rest[run..]))
}

/// Time of day in microseconds; absent means midnight.
fn read_clock(text: &str) -> Option<(i64, &str)> {
    let rest = match text.as_bytes().first() {
        None => return Some((0, text)),
        Some(b' ' | b'T' | b't') => text[1..].trim_start(),
        Some(b'0'..=b'9') => text,
        Some(_) => return Some((0, text)),
    };
    let run = rest.bytes().take_while(u8::is_ascii_digit).count();
    let (hour, minute, second, rest) = if run == 6 {
        (rest[..2].parse().ok()?, rest[2..4].parse().ok()?, rest[4..6].parse().ok()?, &rest[6..])
    } else if (1..=2).contains(&run) {
        let hour: i64 = rest[..run].parse().ok()?;
        let (minute, rest) = colon_part(&rest[run..])?;
        let (second, rest) = colon_part(rest)?;
        (hour, minute, second, rest)
    } else if run == 0 {
        return Some((0, rest));
    } else {
        return None;
    };
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let mut micros = (hour * 3600 + minute * 60 + second) * 1_000_000;
    let mut rest = rest;
    if let Some(fraction) = rest.strip_prefix('.') {
        let run = fraction.bytes().take_while(u8::is_ascii_digit).count();
        let mut value = 0_i64;
        for i in 0..6 {
            value = value * 10 + fraction.as_bytes().get(i).filter(|_| i < run).map_or(0, |b| i64::from(b - b'0'));
        }
        if run > 6 && fraction.as_bytes()[6] >= b'5' {
            value += 1;
        }
        micros += value;
        rest = &fraction[run..];
    }
    Some((micros, rest))
}

fn colon_part(text: &str) -> Option<(i64, &str)> {
    let Some(rest) = text.strip_prefix(':') else { return Some((0, text)) };
    let run = rest.bytes().take_while(u8::is_ascii_digit).count();
    if !(1..=2).contains(&run) {
        return None;
    }
    Some((rest[..run].parse().ok()?, &rest[run..]))
}
