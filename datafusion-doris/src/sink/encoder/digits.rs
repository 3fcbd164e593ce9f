//! Decimal texts of numbers, dates and times, by integer arithmetic.
//!
//! Each is written into room of a fixed size at the end of the buffer, of which only the used part is kept: copies of a
//! known size are instructions, where those of any other are calls.

use arrow::datatypes::i256;

/// The numbers below 100 as two digits; a power of two of them, so that an index needs no check but a mask.
const PAIRS: [[u8; 2]; 128] = {
    let mut pairs = [[b'0'; 2]; 128];
    let mut at = 0;
    while at < 100 {
        pairs[at] = [b'0' + (at / 10) as u8, b'0' + (at % 10) as u8];
        at += 1;
    }
    pairs
};

/// Microseconds of a day.
pub(super) const DAY_MICROS: i64 = 86_400_000_000;

/// Most digits of a `u64`.
const U64_DIGITS: usize = 20;
/// Powers of ten below 2^64.
const TENS: [u64; U64_DIGITS] = {
    let mut tens = [1; U64_DIGITS];
    let mut at = 1;
    while at < U64_DIGITS {
        tens[at] = tens[at - 1] * 10;
        at += 1;
    }
    tens
};

/// Appends what `write` puts into `N` zero bytes; it gives the number of those that are kept.
fn push_in<const N: usize>(out: &mut Vec<u8>, write: impl FnOnce(&mut [u8; N]) -> usize) {
    let start = out.len();
    out.extend_from_slice(&[0; N]);
    let used = out.last_chunk_mut().map_or(0, write);
    out.truncate(start + used);
}

/// Number of decimal digits.
fn digits_of(value: u64) -> usize {
    // log10(2) is about 1233 / 4096; one too many where the value is below that power of ten.
    let odd = value | 1;
    let most = (((64 - odd.leading_zeros()) * 1233) >> 12) as usize;
    most + usize::from(odd >= TENS[most])
}

/// Writes the last `count` digits of `value` to the start of `room`.
fn put_digits(room: &mut [u8], mut value: u64, count: usize) {
    let mut end = count.min(room.len());
    while let Some(four) = room[..end].last_chunk_mut::<4>() {
        let low = (value % 10_000) as usize;
        value /= 10_000;
        put_pair(four, 0, low / 100);
        put_pair(four, 2, low % 100);
        end -= 4;
    }
    for digit in room[..end].iter_mut().rev() {
        *digit = b'0' + (value % 10) as u8;
        value /= 10;
    }
}

/// Writes the two digits of a number below 100.
fn put_pair<const N: usize>(room: &mut [u8; N], at: usize, value: usize) {
    [room[at], room[at + 1]] = PAIRS[value & 127];
}

/// Appends `value`.
pub(super) fn push_u64(out: &mut Vec<u8>, value: u64) {
    push_in::<U64_DIGITS>(out, |room| {
        let count = digits_of(value);
        put_digits(room, value, count);
        count
    });
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
    match (u64::try_from(magnitude), usize::try_from(scale)) {
        (Ok(small), Ok(0)) => push_u64(out, small),
        (Ok(small), Ok(scale)) if scale < U64_DIGITS => push_in::<{ 2 * U64_DIGITS }>(out, |room| {
            let (whole, fraction) = (small / TENS[scale], small % TENS[scale]);
            let count = digits_of(whole);
            put_digits(room, whole, count);
            room[count] = b'.';
            put_digits(&mut room[count + 1..], fraction, scale);
            count + 1 + scale
        }),
        _ => push_scaled(out, magnitude.to_string().as_bytes(), scale),
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
    let date = civil(day)?;
    push_in::<16>(out, |room| put_date(room, date));
    Ok(())
}

/// Appends `HH:MM:SS[.ffffff]` of microseconds since midnight.
pub(super) fn push_time(out: &mut Vec<u8>, micros: i64) {
    push_in::<16>(out, |room| put_time(room, 0, micros));
}

/// Appends `YYYY-MM-DD HH:MM:SS[.ffffff]` of microseconds since 1970-01-01.
///
/// # Errors
/// Years outside of 0..=9999.
pub(super) fn push_datetime(out: &mut Vec<u8>, micros: i64) -> Result<(), String> {
    let date = civil(micros.div_euclid(DAY_MICROS))?;
    push_in::<32>(out, |room| {
        let end = put_date(room, date);
        room[end] = b' ';
        put_time(room, end + 1, micros.rem_euclid(DAY_MICROS))
    });
    Ok(())
}

/// Writes `YYYY-MM-DD` to the start of `room`; gives its end.
fn put_date<const N: usize>(room: &mut [u8; N], (year, month, day): (usize, usize, usize)) -> usize {
    put_pair(room, 0, year / 100);
    put_pair(room, 2, year % 100);
    room[4] = b'-';
    put_pair(room, 5, month);
    room[7] = b'-';
    put_pair(room, 8, day);
    10
}

/// Writes `HH:MM:SS[.ffffff]` at `at`; gives its end.
fn put_time<const N: usize>(room: &mut [u8; N], at: usize, micros: i64) -> usize {
    let (seconds, fraction) = ((micros / 1_000_000) as u32 as usize, (micros % 1_000_000) as u32 as usize);
    put_pair(room, at, seconds / 3600);
    room[at + 2] = b':';
    put_pair(room, at + 3, seconds / 60 % 60);
    room[at + 5] = b':';
    put_pair(room, at + 6, seconds % 60);
    if fraction == 0 {
        return at + 8;
    }
    room[at + 8] = b'.';
    put_pair(room, at + 9, fraction / 10_000);
    put_pair(room, at + 11, fraction / 100 % 100);
    put_pair(room, at + 13, fraction % 100);
    at + 15
}

/// Year, month and day of a day counted from 1970-01-01, in the proleptic Gregorian calendar.
///
/// Years begin on 1 March, so that the leap day is the last day of a year. Divisions are products with shifts: C. Neri and
/// L. Schneider, "Euclidean affine functions and their application to calendar algorithms", 2022.
///
/// # Errors
/// Years outside of 0..=9999.
fn civil(day: i64) -> Result<(usize, usize, usize), String> {
    /// Days from 1 March of the year -400 to 1970-01-01.
    const SHIFT: i64 = 719_468 + 146_097;
    if !(-719_528..=2_932_896).contains(&day) {
        return Err(out_of_years(day));
    }
    let shifted = (day + SHIFT) as u32;
    let of_centuries = 4 * shifted + 3;
    let (century, day_of_century) = (of_centuries / 146_097, of_centuries % 146_097 / 4);
    let of_years = u64::from(4 * day_of_century + 3) * 2_939_745;
    let (year_of_century, day_of_year) = ((of_years >> 32) as u32, of_years as u32 / 2_939_745 / 4);
    let of_months = 2141 * day_of_year + 197_913;
    let (month_from_march, day_of_month) = (of_months >> 16, of_months % 65_536 / 2141);
    let next_year = day_of_year >= 306;
    let month = if next_year { month_from_march - 12 } else { month_from_march };
    let year = 100 * century + year_of_century + u32::from(next_year) - 400;
    Ok((year as usize, month as usize, day_of_month as usize + 1))
}

/// Why a day has no text.
#[cold]
fn out_of_years(day: i64) -> String {
    let year =
        chrono::DateTime::from_timestamp(day.saturating_mul(86_400), 0).map(|time| chrono::Datelike::year(&time));
    let year = year.map_or_else(|| format!("of day {day}"), |year| year.to_string());
    format!("year {year} is outside of 0000 to 9999")
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
