//! Rows of the binary protocol: what a prepared statement answers.

use super::packet::put_text;

/// One row; each cell has the MySQL type code of its column and its text.
pub(super) fn row(out: &mut Vec<u8>, cells: &[(u8, Option<String>)]) {
    out.clear();
    out.push(0);
    let bitmap = out.len();
    out.resize(bitmap + (cells.len() + 9) / 8, 0);
    for (i, (code, cell)) in cells.iter().enumerate() {
        match cell {
            Some(text) => value(out, *code, text),
            None => out[bitmap + (i + 2) / 8] |= 1 << ((i + 2) % 8),
        }
    }
}

fn value(out: &mut Vec<u8>, code: u8, text: &str) {
    // The texts are the server's own, so that they can be read back.
    match code {
        0x01 => out.extend(text.parse::<i8>().unwrap_or_default().to_le_bytes()),
        0x02 => out.extend(text.parse::<i16>().unwrap_or_default().to_le_bytes()),
        0x03 => out.extend(text.parse::<i32>().unwrap_or_default().to_le_bytes()),
        0x08 => out.extend(text.parse::<i64>().unwrap_or_default().to_le_bytes()),
        0x04 => out.extend(float(text).map_or(0.0, |n| n as f32).to_le_bytes()),
        0x05 => out.extend(float(text).unwrap_or_default().to_le_bytes()),
        0x0a | 0x0c => datetime(out, code, text),
        _ => put_text(out, text.as_bytes()),
    }
}

fn float(text: &str) -> Option<f64> {
    text.parse().ok()
}

/// `YYYY-MM-DD[ HH:MM:SS[.ffffff]]` as length, year, month, day, hour, minute, second and microseconds.
fn datetime(out: &mut Vec<u8>, code: u8, text: &str) {
    let (date, time) = text.split_once(' ').unwrap_or((text, "00:00:00"));
    let (clock, fraction) = time.split_once('.').unwrap_or((time, ""));
    let numbers =
        |part: &str, by: char| part.split(by).map(|n| n.parse::<u16>().unwrap_or_default()).collect::<Vec<_>>();
    let (date, clock) = (numbers(date, '-'), numbers(clock, ':'));
    let at = |numbers: &[u16], i: usize| numbers.get(i).copied().unwrap_or_default();
    let micros = format!("{fraction:0<6}").parse::<u32>().unwrap_or_default();
    out.push(if code == 0x0a {
        4
    } else if micros == 0 {
        7
    } else {
        11
    });
    out.extend(at(&date, 0).to_le_bytes());
    out.extend([at(&date, 1) as u8, at(&date, 2) as u8]);
    if code == 0x0c {
        out.extend([at(&clock, 0) as u8, at(&clock, 1) as u8, at(&clock, 2) as u8]);
        if micros != 0 {
            out.extend(micros.to_le_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_the_form_of_their_type() {
        let mut out = Vec::new();
        let cells = [
            (0x01, Some("-1".to_owned())),
            (0x08, None),
            (0x0c, Some("2024-01-02 03:04:05.5".to_owned())),
            (0x0a, Some("0000-01-01".to_owned())),
            (0xfd, Some("ab".to_owned())),
        ];
        row(&mut out, &cells);
        let want = [
            &[0, 0b1000][..],
            &[0xff],
            &[11, 0xe8, 7, 1, 2, 3, 4, 5, 0x20, 0xa1, 7, 0],
            &[4, 0, 0, 1, 1],
            &[2, b'a', b'b'],
        ];
        assert_eq!(out, want.concat());
    }
}
