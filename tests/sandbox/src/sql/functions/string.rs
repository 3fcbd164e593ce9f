//! Functions of texts. `length` counts bytes, positions count characters from one.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha1::Digest as _;

use super::digest::{hex, md5};
use super::row::{Call, Def, Outcome, f, int, null, text, text_or_null, truth};
use crate::engine::Profile;
use crate::types::{DorisType, Value};

fn chars(text: &str) -> i64 {
    text.chars().count() as i64
}

/// `substr(s, from[, length])`: 1-based, position 0 gives the empty text, negative positions count from the end.
pub(crate) fn substr(text: &str, from: i64, length: Option<i64>) -> String {
    let count = chars(text);
    let start = match from {
        0 => return String::new(),
        n if n > 0 => n - 1,
        n if count + n < 0 => return String::new(),
        n => count + n,
    };
    let take = length.map_or(usize::MAX, |n| n.max(0) as usize);
    text.chars().skip(start as usize).take(take).collect()
}

/// Position of `part` in `whole` from a character on, 0 when it is not there.
fn locate(part: &str, whole: &str, from: i64) -> i64 {
    if from < 1 || from > chars(whole) + 1 {
        return 0;
    }
    let skipped: usize = whole.chars().take(from as usize - 1).map(char::len_utf8).sum();
    whole[skipped..].find(part).map_or(0, |at| chars(&whole[..skipped + at]) + 1)
}

/// Longest padded text.
const MAX_PADDED: i64 = 1 << 24;

fn pad(c: &Call<'_>, left: bool) -> Outcome {
    let (own, length, fill) = (c.s(0), c.i(1), c.s(2));
    if !(0..=MAX_PADDED).contains(&length) {
        return null();
    }
    let missing = length - chars(own);
    if missing <= 0 {
        return text(own.chars().take(length as usize).collect::<String>());
    }
    if fill.is_empty() {
        return text(own);
    }
    let padding: String = fill.chars().cycle().take(missing as usize).collect();
    text(if left { format!("{padding}{own}") } else { format!("{own}{padding}") })
}

/// Takes whole repetitions of a text away at the ends.
fn trim(c: &Call<'_>, left: bool, right: bool) -> Outcome {
    let what = if c.len() > 1 { c.s(1) } else { " " };
    let mut rest = c.s(0);
    if what.is_empty() {
        return text(rest);
    }
    while left && let Some(shorter) = rest.strip_prefix(what) {
        rest = shorter;
    }
    while right && let Some(shorter) = rest.strip_suffix(what) {
        rest = shorter;
    }
    text(rest)
}

/// Takes characters of a set away at the ends.
fn trim_in(c: &Call<'_>, left: bool, right: bool) -> Outcome {
    let set = |ch: char| if c.len() > 1 { c.s(1).contains(ch) } else { ch == ' ' };
    let mut rest = c.s(0);
    if left {
        rest = rest.trim_start_matches(set);
    }
    if right {
        rest = rest.trim_end_matches(set);
    }
    text(rest)
}

/// Older builds fold ASCII letters only.
fn fold(c: &Call<'_>, upper: bool) -> Outcome {
    let own = c.s(0);
    text(match (c.env.profile == Profile::V2_1, upper) {
        (true, true) => own.to_ascii_uppercase(),
        (true, false) => own.to_ascii_lowercase(),
        (false, true) => own.to_uppercase(),
        (false, false) => own.to_lowercase(),
    })
}

fn split_part(own: &str, delimiter: &str, index: i64) -> Option<String> {
    if index == 0 || delimiter.is_empty() {
        return None;
    }
    if !own.contains(delimiter) {
        return None;
    }
    let parts: Vec<&str> = own.split(delimiter).collect();
    let at = if index > 0 { index - 1 } else { parts.len() as i64 + index };
    usize::try_from(at).ok().and_then(|at| parts.get(at)).map(|part| (*part).to_owned())
}

fn substring_index(own: &str, delimiter: &str, count: i64) -> String {
    if delimiter.is_empty() || count == 0 {
        return String::new();
    }
    let parts: Vec<&str> = own.split(delimiter).collect();
    let keep = (count.unsigned_abs() as usize).min(parts.len());
    if count > 0 { parts[..keep].join(delimiter) } else { parts[parts.len() - keep..].join(delimiter) }
}

fn initcap(own: &str) -> String {
    let mut start = true;
    let each = |ch: char| {
        let out = if start { ch.to_ascii_uppercase() } else { ch.to_ascii_lowercase() };
        start = !ch.is_alphanumeric();
        out
    };
    own.chars().map(each).collect()
}

fn unhex(own: &str) -> Option<String> {
    let digits: Option<Vec<u8>> = own.chars().map(|ch| ch.to_digit(16).map(|d| d as u8)).collect();
    let digits = digits.filter(|d| d.len() % 2 == 0)?;
    let (pairs, _) = digits.as_chunks::<2>();
    String::from_utf8(pairs.iter().map(|[high, low]| high * 16 + low).collect()).ok()
}

fn sha2(own: &str, bits: i64) -> Option<String> {
    let bytes = own.as_bytes();
    Some(match bits {
        224 => hex(&sha2::Sha224::digest(bytes)),
        0 | 256 => hex(&sha2::Sha256::digest(bytes)),
        384 => hex(&sha2::Sha384::digest(bytes)),
        512 => hex(&sha2::Sha512::digest(bytes)),
        _ => return None,
    })
}

fn crc32(own: &str) -> u32 {
    let mut crc = flate2::Crc::new();
    crc.update(own.as_bytes());
    crc.sum()
}

/// The texts of all arguments from one on; an array counts as its items.
fn joined(c: &Call<'_>) -> Vec<String> {
    let mut parts = Vec::new();
    for (value, ty) in c.args.iter().zip(c.types).skip(1) {
        match value {
            Value::List(items) => {
                let item = if let DorisType::Array(item) = ty { (**item).clone() } else { DorisType::String };
                parts.extend(items.iter().filter_map(|v| v.text(&item)));
            }
            value => parts.extend(value.text(ty)),
        }
    }
    parts
}

/// LIKE: `%` any text, `_` any character, the escape character takes the meaning of the next one away.
fn like(own: &str, pattern: &str, escape: Option<char>) -> bool {
    enum Part {
        Any,
        One,
        Is(char),
    }
    let mut parts = Vec::new();
    let mut rest = pattern.chars();
    while let Some(ch) = rest.next() {
        parts.push(if Some(ch) == escape {
            match rest.clone().next() {
                Some(next) if matches!(next, '%' | '_') || Some(next) == escape => {
                    rest.next();
                    Part::Is(next)
                }
                // Before anything else it stands for itself.
                _ => Part::Is(ch),
            }
        } else {
            match ch {
                '%' => Part::Any,
                '_' => Part::One,
                ch => Part::Is(ch),
            }
        });
    }
    let own: Vec<char> = own.chars().collect();
    let (mut at, mut part) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    loop {
        match parts.get(part) {
            Some(Part::Any) => {
                retry = Some((part + 1, at));
                part += 1;
                continue;
            }
            Some(Part::One) if at < own.len() => {
                at += 1;
                part += 1;
                continue;
            }
            Some(Part::Is(ch)) if own.get(at) == Some(ch) => {
                at += 1;
                part += 1;
                continue;
            }
            None if at == own.len() => return true,
            _ => {}
        }
        // The last `%` takes one more character.
        match retry {
            Some((after, from)) if from < own.len() => {
                retry = Some((after, from + 1));
                at = from + 1;
                part = after;
            }
            _ => return false,
        }
    }
}

pub(crate) fn defs() -> Vec<Def> {
    use DorisType::{BigInt, Boolean, Int, SmallInt, String as Text};
    vec![
        f("length", "s", Int, |c| int(c.s(0).len() as i64)),
        f("bit_length", "s", Int, |c| int(c.s(0).len() as i64 * 8)),
        f("char_length character_length", "s", Int, |c| int(chars(c.s(0)))),
        f("ascii", "s", Int, |c| int(c.s(0).bytes().next().unwrap_or(0))),
        f("ord", "s", BigInt, |c| {
            let first = c.s(0).chars().next().map_or(String::new(), String::from);
            int(first.bytes().fold(0_i64, |all, byte| all * 256 + i64::from(byte)))
        }),
        f("lower lcase", "s", Text, |c| fold(c, false)),
        f("upper ucase", "s", Text, |c| fold(c, true)),
        f("initcap", "s", Text, |c| text(initcap(c.s(0)))),
        f("trim", "ss?", Text, |c| trim(c, true, true)),
        f("ltrim", "ss?", Text, |c| trim(c, true, false)),
        f("rtrim", "ss?", Text, |c| trim(c, false, true)),
        f("trim_in", "ss?", Text, |c| trim_in(c, true, true)),
        f("ltrim_in", "ss?", Text, |c| trim_in(c, true, false)),
        f("rtrim_in", "ss?", Text, |c| trim_in(c, false, true)),
        f("lpad", "sis", Text, |c| pad(c, true)),
        f("rpad", "sis", Text, |c| pad(c, false)),
        f("replace", "sss", Text, |c| {
            text(if c.s(1).is_empty() { c.s(0).to_owned() } else { c.s(0).replace(c.s(1), c.s(2)) })
        }),
        f("translate", "sss", Text, |c| {
            let to: Vec<char> = c.s(2).chars().collect();
            let each = |ch: char| match c.s(1).chars().position(|from| from == ch) {
                Some(at) => to.get(at).copied(),
                None => Some(ch),
            };
            text(c.s(0).chars().filter_map(each).collect::<String>())
        }),
        f("reverse", "s", Text, |c| text(c.s(0).chars().rev().collect::<String>())),
        f("repeat", "si", Text, |c| {
            let size = c.i(1).max(0).saturating_mul(c.s(0).len() as i64);
            if size > MAX_PADDED { null() } else { text(c.s(0).repeat(c.i(1).max(0) as usize)) }
        }),
        f("space", "i", Text, |c| text(" ".repeat(c.i(0).clamp(0, MAX_PADDED) as usize))),
        f("left strleft", "si", Text, |c| text(c.s(0).chars().take(c.i(1).max(0) as usize).collect::<String>())),
        f("right strright", "si", Text, |c| match c.i(1) {
            n if n > 0 => text(substr(c.s(0), -n.min(chars(c.s(0))), None)),
            0 => text(""),
            n => text(substr(c.s(0), -n, None)),
        }),
        f("substr substring mid", "sii?", Text, |c| text(substr(c.s(0), c.i(1), (c.len() > 2).then(|| c.i(2))))),
        f("split_part", "ssi", Text, |c| text_or_null(split_part(c.s(0), c.s(1), c.i(2)))),
        f("substring_index", "ssi", Text, |c| text(substring_index(c.s(0), c.s(1), c.i(2)))),
        f("split_by_string", "ss", DorisType::Array(Box::new(Text)), |c| {
            let own = c.s(0);
            let parts: Vec<String> = match c.s(1) {
                _ if own.is_empty() => Vec::new(),
                "" => own.chars().map(String::from).collect(),
                by => own.split(by).map(str::to_owned).collect(),
            };
            Ok(Value::List(parts.into_iter().map(Value::Text).collect()))
        }),
        f("concat", "s+", Text, |c| text((0..c.len()).map(|i| c.s(i)).collect::<String>())),
        f("concat_ws", "sa+", Text, |c| if c.args[0].is_null() { null() } else { text(joined(c).join(c.s(0))) })
            .with_nulls(),
        f("instr", "ss", Int, |c| int(locate(c.s(1), c.s(0), 1))),
        f("locate position", "ssi?", Int, |c| int(locate(c.s(0), c.s(1), if c.len() > 2 { c.i(2) } else { 1 }))),
        f("field", "cc+", Int, |c| {
            let at = c.args[1..].iter().position(|v| !v.is_null() && *v == c.args[0]);
            int(at.filter(|_| !c.args[0].is_null()).map_or(0, |at| at as i64 + 1))
        })
        .with_nulls(),
        f("find_in_set", "ss", Int, |c| {
            int(c.s(1).split(',').position(|part| part == c.s(0)).map_or(0, |at| at as i64 + 1))
        }),
        f("elt", "is+", Text, |c| {
            match usize::try_from(c.i(0)).ok().and_then(|at| c.args[1..].get(at.wrapping_sub(1))) {
                Some(value) => Ok(value.clone()),
                None => null(),
            }
        })
        .with_nulls(),
        f("hex", "a", Text, |c| match &c.args[0] {
            Value::Int(v) => text(format!("{:X}", *v as i64)),
            value => text_or_null(value.text(&c.types[0]).map(|own| hex(own.as_bytes()).to_uppercase())),
        }),
        f("unhex", "s", Text, |c| text_or_null(unhex(c.s(0)))),
        f("char", "i+", Text, |c| {
            let bytes: Vec<u8> = (0..c.len())
                .flat_map(|i| (c.i(i) as u32).to_be_bytes().into_iter().skip_while(|byte| *byte == 0))
                .collect();
            text_or_null(String::from_utf8(bytes).ok())
        }),
        f("md5", "s", Text, |c| text(hex(&md5(c.s(0).as_bytes())))),
        f("md5sum", "s+", Text, |c| text(hex(&md5((0..c.len()).map(|i| c.s(i)).collect::<String>().as_bytes())))),
        f("sha1 sha", "s", Text, |c| text(hex(&sha1::Sha1::digest(c.s(0).as_bytes())))),
        f("sha2", "si", Text, |c| match sha2(c.s(0), c.i(1)) {
            Some(digest) => text(digest),
            None => Err(format!("sha2 functions only support digest length of {:?}", [224, 256, 384, 512])),
        }),
        f("crc32", "s", BigInt, |c| int(crc32(c.s(0)))),
        f("to_base64", "s", Text, |c| text(STANDARD.encode(c.s(0)))),
        f("from_base64", "s", Text, |c| {
            text_or_null(STANDARD.decode(c.s(0)).ok().and_then(|bytes| String::from_utf8(bytes).ok()))
        }),
        f("starts_with", "ss", Boolean, |c| truth(c.s(0).starts_with(c.s(1)))),
        f("ends_with", "ss", Boolean, |c| truth(c.s(0).ends_with(c.s(1)))),
        f("strcmp", "ss", DorisType::TinyInt, |c| int(c.s(0).as_bytes().cmp(c.s(1).as_bytes()) as i8)),
        f("null_or_empty", "s", Boolean, |c| truth(c.args[0].is_null() || c.s(0).is_empty())).with_nulls(),
        f("not_null_or_empty", "s", Boolean, |c| truth(!c.args[0].is_null() && !c.s(0).is_empty())).with_nulls(),
        f("like", "sss?", Boolean, |c| {
            let escape = if c.len() > 2 { c.s(2).chars().next() } else { Some('\\') };
            truth(like(c.s(0), c.s(1), escape))
        }),
        f("count_substrings", "ss", SmallInt, |c| {
            int(if c.s(1).is_empty() { 0 } else { c.s(0).matches(c.s(1)).count() as i64 })
        }),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn substr_counts_from_one_and_from_the_end() {
        assert_eq!(substr("hello", 2, Some(3)), "ell");
        assert_eq!(substr("hello", 0, Some(3)), "");
        assert_eq!(substr("hello", -3, None), "llo");
        assert_eq!(substr("hello", -9, None), "");
        assert_eq!(substr("hé", 2, Some(9)), "é");
        assert_eq!(substr("hello", 1, Some(-1)), "");
    }

    #[test]
    fn like_matches_characters() {
        for (own, pattern, escape, matches) in [
            ("abc", "a%", Some('\\'), true),
            ("abc", "%b%c", Some('\\'), true),
            ("abc", "a_", Some('\\'), false),
            ("é", "_", Some('\\'), true),
            ("a%c", "a\\%c", Some('\\'), true),
            ("abc", "a\\%c", Some('\\'), false),
            ("a\\b", "a\\\\b", Some('\\'), true),
            ("a\\b", "a\\b", Some('\\'), true),
            ("a%c", "a|%c", Some('|'), true),
            ("", "%", Some('\\'), true),
            ("", "_", Some('\\'), false),
            ("aXbXc", "a%X%Xc", Some('\\'), true),
            ("ABC", "abc", Some('\\'), false),
        ] {
            assert_eq!(like(own, pattern, escape), matches, "{own} {pattern}");
        }
    }
}
