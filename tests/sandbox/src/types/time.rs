//! TIME values: a signed span of up to 838:59:59.999999, in microseconds.

/// Largest span.
const MAX_MICROS: i64 = ((838 * 60 + 59) * 60 + 59) * 1_000_000 + 999_999;

/// Reads `[-]h:m:s[.f]`, `h:m` and `hmmss[.f]` without separators, rounded half up to `precision` digits of fraction.
pub fn parse_time(text: &str, precision: u8) -> Option<i64> {
    let text = text.trim();
    let (negative, body) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
    let (clock, fraction) = body.split_once('.').unwrap_or((body, ""));
    let number = |part: &str| -> Option<i64> {
        (!part.is_empty() && part.len() <= 3 && part.bytes().all(|b| b.is_ascii_digit())).then(|| part.parse().ok())?
    };
    let (hours, minutes, seconds) = match clock.split(':').collect::<Vec<_>>().as_slice() {
        [h, m, s] => (number(h)?, number(m)?, number(s)?),
        [h, m] => (number(h)?, number(m)?, 0),
        [digits] if !digits.is_empty() && digits.len() <= 7 && digits.bytes().all(|b| b.is_ascii_digit()) => {
            let value: i64 = digits.parse().ok()?;
            (value / 10_000, value / 100 % 100, value % 100)
        }
        _ => return None,
    };
    if minutes > 59 || seconds > 59 || !fraction.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let mut micros = ((hours * 60 + minutes) * 60 + seconds) * 1_000_000;
    let padded = format!("{fraction:0<7}");
    micros += padded[..6].parse::<i64>().ok()? + i64::from(padded.as_bytes()[6] >= b'5');
    let unit = 10_i64.pow(u32::from(6 - precision.min(6)));
    let rounded = (micros + unit / 2) / unit * unit;
    (rounded <= MAX_MICROS).then_some(if negative { -rounded } else { rounded })
}

/// `[-]HH:MM:SS[.f]` with `precision` digits of fraction.
pub fn format_time(micros: i64, precision: u8) -> String {
    let sign = if micros < 0 { "-" } else { "" };
    let micros = micros.unsigned_abs();
    let seconds = micros / 1_000_000;
    let mut out = format!("{sign}{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
    if precision > 0 {
        let digits = format!("{:06}", micros % 1_000_000);
        out.push('.');
        out.push_str(&digits[..usize::from(precision.min(6))]);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_read_and_printed() {
        for (text, precision, printed) in [
            ("10:11:12.5", 0, Some("10:11:13")),
            ("10:11:12.5", 3, Some("10:11:12.500")),
            ("-838:59:59", 0, Some("-838:59:59")),
            ("839:00:00", 0, None),
            ("101112", 0, Some("10:11:12")),
            ("7:8", 0, Some("07:08:00")),
            ("10:60:00", 0, None),
            ("x", 0, None),
            ("", 0, None),
        ] {
            let read = parse_time(text, precision).map(|micros| format_time(micros, precision));
            assert_eq!(read.as_deref(), printed, "{text}");
        }
    }
}
