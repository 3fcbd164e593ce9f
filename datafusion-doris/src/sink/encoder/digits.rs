//! Decimal texts of numbers, dates and times, by integer arithmetic.

use arrow::datatypes::i256;

const PAIRS: &[u8; 200] = b"0001020304050607080910111213141516171819\
2021222324252627282930313233343536373839\
4041424344454647484950515253545556575859\
6061626364656667686970717273747576777879\
8081828384858687888990919293949596979899";

/// Microseconds of a day.
pub(super) const DAY_MICROS: i64 = 86_400_000_000;

/// Appends `value`.
pub(super) fn push_u64(out: &mut Vec<u8>, mut value: u64) {
    let mut buffer = [0u8; 20];
    let mut at = buffer.len();
    while value >= 100 {
        let pair = (value % 100) as usize * 2;
        value /= 100;
        at -= 2;
        buffer[at..at + 2].copy_from_slice(&PAIRS[pair..pair + 2]);
    }
    if value >= 10 {
        let pair = value as usize * 2;
        at -= 2;
        buffer[at..at + 2].copy_from_slice(&PAIRS[pair..pair + 2]);
    } else {
        at -= 1;
        buffer[at] = b'0' + value as u8;
    }
    out.extend_from_slice(&buffer[at..]);
}

/// Appends `value`.
pub(super) fn push_i64(out: &mut Vec<u8>, value: i64) {
    if value < 0 {
        out.push(b'-');
    }
    push_u64(out, value.unsigned_abs());
}

/// Appends `unscaled * 10^-scale` with all digits, never with an exponent.
pub(super) fn push_decimal128(out: &mut Vec<u8>, unscaled: i128, scale: i8) {
    if unscaled < 0 {
        out.push(b'-');
    }
    let magnitude = unscaled.unsigned_abs();
    match u64::try_from(magnitude) {
        Ok(small) => {
            let mut digits = Vec::with_capacity(20);
            push_u64(&mut digits, small);
            push_scaled(out, &digits, scale);
        }
        Err(_) => push_scaled(out, magnitude.to_string().as_bytes(), scale),
    }
}

/// Appends `unscaled * 10^-scale` with all digits, never with an exponent.
pub(super) fn push_decimal256(out: &mut Vec<u8>, unscaled: i256, scale: i8) {
    let text = unscaled.to_string();
    let digits = match text.strip_prefix('-') {
        Some(digits) => {
            out.push(b'-');
            digits
        }
        None => text.as_str(),
    };
    push_scaled(out, digits.as_bytes(), scale);
}

fn push_scaled(out: &mut Vec<u8>, digits: &[u8], scale: i8) {
    if scale <= 0 {
        out.extend_from_slice(digits);
        if digits != b"0" {
            out.extend(std::iter::repeat_n(b'0', usize::from(scale.unsigned_abs())));
        }
        return;
    }
    let scale = usize::from(scale.unsigned_abs());
    if digits.len() > scale {
        let (whole, fraction) = digits.split_at(digits.len() - scale);
        out.extend_from_slice(whole);
        out.push(b'.');
        out.extend_from_slice(fraction);
    } else {
        out.extend_from_slice(b"0.");
        out.extend(std::iter::repeat_n(b'0', scale - digits.len()));
        out.extend_from_slice(digits);
    }
}

/// Appends `YYYY-MM-DD` of a day counted from 1970-01-01.
///
/// # Errors
/// Years outside of 0..=9999, which Doris cannot hold.
pub(super) fn push_date(out: &mut Vec<u8>, day: i64) -> Result<(), String> {
    let (year, month, day) = civil(day);
    if !(0..=9999).contains(&year) {
        return Err(format!("year {year} is outside of 0000 to 9999"));
    }
    push_pair(out, (year / 100) as usize);
    push_pair(out, (year % 100) as usize);
    out.push(b'-');
    push_pair(out, month);
    out.push(b'-');
    push_pair(out, day);
    Ok(())
}

/// Appends `HH:MM:SS[.ffffff]` of microseconds since midnight.
pub(super) fn push_time(out: &mut Vec<u8>, micros: i64) {
    let seconds = (micros / 1_000_000) as usize;
    push_pair(out, seconds / 3600);
    out.push(b':');
    push_pair(out, seconds / 60 % 60);
    out.push(b':');
    push_pair(out, seconds % 60);
    let fraction = (micros % 1_000_000) as usize;
    if fraction != 0 {
        out.push(b'.');
        push_pair(out, fraction / 10_000);
        push_pair(out, fraction / 100 % 100);
        push_pair(out, fraction % 100);
    }
}

/// Appends `YYYY-MM-DD HH:MM:SS[.ffffff]` of microseconds since 1970-01-01.
///
/// # Errors
/// Years outside of 0..=9999.
pub(super) fn push_datetime(out: &mut Vec<u8>, micros: i64) -> Result<(), String> {
    push_date(out, micros.div_euclid(DAY_MICROS))?;
    out.push(b' ');
    push_time(out, micros.rem_euclid(DAY_MICROS));
    Ok(())
}

fn push_pair(out: &mut Vec<u8>, value: usize) {
    let at = value * 2;
    out.extend_from_slice(&PAIRS[at..at + 2]);
}

/// Year, month and day of a day counted from 1970-01-01, in the proleptic Gregorian calendar.
///
/// Counts in eras of 400 years that start on 1 March, so that the leap day is the last day of a year.
fn civil(day: i64) -> (i64, usize, usize) {
    let shifted = day + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day_of_month = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month as usize, day_of_month as usize)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn decimals_have_all_digits_and_no_exponent() {
        let cases: [(i128, i8, &str); 8] = [
            (0, 0, "0"),
            (0, 3, "0.000"),
            (-5, 3, "-0.005"),
            (12345, 2, "123.45"),
            (99999999999999999999999999999999999999, 10, "9999999999999999999999999999.9999999999"),
            (i128::MIN, 0, "-170141183460469231731687303715884105728"),
            (7, -3, "7000"),
            (0, -3, "0"),
        ];
        for (unscaled, scale, expected) in cases {
            assert_eq!(text(|out| push_decimal128(out, unscaled, scale)), expected);
            assert_eq!(text(|out| push_decimal256(out, i256::from_i128(unscaled), scale)), expected);
        }
    }

    #[test]
    fn years_that_doris_cannot_hold_are_refused() {
        assert!(push_date(&mut Vec::new(), 2_932_897).is_err());
        assert_eq!(text(|out| push_date(out, 2_932_896).unwrap()), "9999-12-31");
        assert_eq!(text(|out| push_date(out, -719_528).unwrap()), "0000-01-01");
        assert!(push_date(&mut Vec::new(), -719_529).is_err());
    }

    proptest! {
        #[test]
        fn integers_print_as_the_standard_library_does(value: i64, unsigned: u64) {
            prop_assert_eq!(text(|out| push_i64(out, value)), value.to_string());
            prop_assert_eq!(text(|out| push_u64(out, unsigned)), unsigned.to_string());
        }

        #[test]
        fn datetimes_print_as_chrono_does(micros in -62_167_219_200_000_000i64..253_402_300_800_000_000) {
            let expected = chrono::DateTime::from_timestamp_micros(micros).unwrap().naive_utc();
            let format = if micros % 1_000_000 == 0 { "%Y-%m-%d %H:%M:%S" } else { "%Y-%m-%d %H:%M:%S%.6f" };
            prop_assert_eq!(text(|out| push_datetime(out, micros).unwrap()), expected.format(format).to_string());
        }
    }
}
