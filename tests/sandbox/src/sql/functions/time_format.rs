//! The formats of `date_format` and `str_to_date`.

use super::time::week;
use crate::types::{civil_from_days, days_from_civil, format_datetime};

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

fn ordinal(day: u32) -> &'static str {
    match (day % 100, day % 10) {
        (11..=13, _) => "th",
        (_, 1) => "st",
        (_, 2) => "nd",
        (_, 3) => "rd",
        _ => "th",
    }
}

/// MySQL's `date_format` over microseconds of a wall clock.
pub(crate) fn date_format(micros: i64, format: &str) -> String {
    let text = format_datetime(micros, 6);
    let days = micros.div_euclid(86_400_000_000);
    let (year, month, day) = civil_from_days(days);
    let hour: u32 = text[11..13].parse().unwrap_or(0);
    let hour12 = if hour.is_multiple_of(12) { 12 } else { hour % 12 };
    let mut out = String::new();
    let mut chars = format.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        match chars.next() {
            Some('Y') => out.push_str(&format!("{year:04}")),
            Some('y') => out.push_str(&format!("{:02}", year % 100)),
            Some('m') => out.push_str(&format!("{month:02}")),
            Some('c') => out.push_str(&month.to_string()),
            Some('d') => out.push_str(&format!("{day:02}")),
            Some('e') => out.push_str(&day.to_string()),
            Some('H') => out.push_str(&text[11..13]),
            Some('k') => out.push_str(&hour.to_string()),
            Some('h' | 'I') => out.push_str(&format!("{hour12:02}")),
            Some('l') => out.push_str(&hour12.to_string()),
            Some('i') => out.push_str(&text[14..16]),
            Some('s' | 'S') => out.push_str(&text[17..19]),
            Some('f') => out.push_str(&text[20..26]),
            Some('p') => out.push_str(if hour < 12 { "AM" } else { "PM" }),
            Some('T') => out.push_str(&text[11..19]),
            Some('r') => out.push_str(&format!("{hour12:02}{} {}", &text[13..19], if hour < 12 { "AM" } else { "PM" })),
            Some('M') => out.push_str(MONTHS[(month - 1) as usize]),
            Some('b') => out.push_str(&MONTHS[(month - 1) as usize][..3]),
            Some('W') => out.push_str(DAYS[(days + 4).rem_euclid(7) as usize]),
            Some('a') => out.push_str(&DAYS[(days + 4).rem_euclid(7) as usize][..3]),
            Some('w') => out.push_str(&(days + 4).rem_euclid(7).to_string()),
            Some('j') => out.push_str(&format!("{:03}", days - days_from_civil(year, 1, 1) + 1)),
            Some('D') => out.push_str(&format!("{day}{}", ordinal(day))),
            // Weeks that start on Sunday or Monday, counted from 0, or from 1 with the year they belong to.
            Some('U') => out.push_str(&format!("{:02}", week(days, 0, false))),
            Some('u') => out.push_str(&format!("{:02}", week(days, 1, false))),
            Some('V') => out.push_str(&format!("{:02}", week(days, 2, false))),
            Some('v') => out.push_str(&format!("{:02}", week(days, 3, false))),
            Some('X') => out.push_str(&format!("{:04}", week(days, 2, true) / 100)),
            Some('x') => out.push_str(&format!("{:04}", week(days, 3, true) / 100)),
            Some(other) => out.push(other),
            None => out.push('%'),
        }
    }
    out
}

/// Reads a text by a format of `date_format`; gives microseconds of the wall clock.
pub(crate) fn str_to_date(text: &str, format: &str) -> Option<i64> {
    let format = match format {
        "yyyyMMdd" => "%Y%m%d",
        "yyyy-MM-dd" => "%Y-%m-%d",
        "yyyy-MM-dd HH:mm:ss" => "%Y-%m-%d %H:%i:%s",
        other => other,
    };
    let (mut year, mut month, mut day) = (None::<i64>, 1_i64, 1_i64);
    let (mut hour, mut minute, mut second, mut micros) = (0_i64, 0_i64, 0_i64, 0_i64);
    let mut afternoon = None;
    let mut day_of_year = None;
    let mut rest = text.trim_start();
    let expanded = format.replace("%T", "%H:%i:%s").replace("%r", "%h:%i:%s %p");
    let mut parts = expanded.chars();
    while let Some(ch) = parts.next() {
        if ch != '%' {
            if ch.is_whitespace() {
                rest = rest.trim_start();
            } else {
                rest = rest.strip_prefix(ch)?;
            }
            continue;
        }
        let mut number = |most: usize| -> Option<i64> {
            let digits = rest.bytes().take(most).take_while(u8::is_ascii_digit).count();
            let value = rest[..digits].parse().ok()?;
            rest = &rest[digits..];
            Some(value)
        };
        match parts.next()? {
            'Y' => year = Some(number(4)?),
            'y' => {
                let short = number(2)?;
                year = Some(if short < 70 { 2000 + short } else { 1900 + short });
            }
            'm' | 'c' => month = number(2)?,
            'd' | 'e' => day = number(2)?,
            'j' => day_of_year = Some(number(3)?),
            'H' | 'k' => hour = number(2)?,
            'h' | 'I' | 'l' => hour = number(2)?,
            'i' => minute = number(2)?,
            's' | 'S' => second = number(2)?,
            'f' => {
                let digits = rest.bytes().take(6).take_while(u8::is_ascii_digit).count();
                micros = format!("{:0<6}", &rest[..digits]).parse().ok()?;
                rest = &rest[digits..];
            }
            'p' => {
                afternoon = Some(rest.get(..2)?.eq_ignore_ascii_case("PM"));
                rest = &rest[2..];
            }
            'M' => {
                let at = MONTHS.iter().position(|name| starts_with(rest, name))?;
                month = at as i64 + 1;
                rest = &rest[MONTHS[at].len()..];
            }
            'b' => {
                let at = MONTHS.iter().position(|name| starts_with(rest, &name[..3]))?;
                month = at as i64 + 1;
                rest = &rest[3..];
            }
            'W' => {
                let name = DAYS.iter().find(|name| starts_with(rest, name))?;
                rest = &rest[name.len()..];
            }
            'a' => rest = rest.get(3..)?,
            '%' => rest = rest.strip_prefix('%')?,
            _ => return None,
        }
    }
    if let Some(afternoon) = afternoon {
        if !(1..=12).contains(&hour) {
            return None;
        }
        hour = hour % 12 + if afternoon { 12 } else { 0 };
    }
    let year = year.unwrap_or(0);
    if !(1..=12).contains(&month) || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let date = match day_of_year {
        Some(number) => days_from_civil(year, 1, 1) + number - 1,
        None => days_from_civil(year, month as u32, u32::try_from(day).ok()?),
    };
    if day_of_year.is_none() && civil_from_days(date) != (year, month as u32, day as u32) {
        return None;
    }
    Some(((date * 24 + hour) * 60 + minute) * 60_000_000 + second * 1_000_000 + micros)
}

fn starts_with(text: &str, name: &str) -> bool {
    text.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn date_format_prints_each_part() {
        let micros = 1_704_067_199_123_456; // 2023-12-31 23:59:59.123456, a Sunday
        assert_eq!(date_format(micros, "%Y-%m-%d %H:%i:%s.%f"), "2023-12-31 23:59:59.123456");
        assert_eq!(date_format(micros, "%W %M %e %l:%i %p %%"), "Sunday December 31 11:59 PM %");
    }

    #[test]
    fn texts_are_read_by_their_format() {
        for (text, format, read) in [
            ("2014-12-21 12:34:56", "%Y-%m-%d %H:%i:%s", Some("2014-12-21 12:34:56.000000")),
            ("20140422154706", "%Y%m%d%H%i%s", Some("2014-04-22 15:47:06.000000")),
            ("April 3, 24 01:02:03 PM", "%M %e, %y %r", Some("2024-04-03 13:02:03.000000")),
            ("2024-02-30", "%Y-%m-%d", None),
            ("2024-01-01", "%d/%m", None),
            ("2024.5", "%Y.%f", Some("2024-01-01 00:00:00.500000")),
        ] {
            let micros = str_to_date(text, format).map(|micros| format_datetime(micros, 6));
            assert_eq!(micros.as_deref(), read, "{text}");
        }
    }
}
