//! Passwords and keys in the texts of statements.

use std::borrow::Cow;

/// What stands in their place.
const MASK: &str = "'***'";
/// A property whose name has one of these in it holds a secret.
const SECRET_NAMES: [&str; 4] = ["password", "secret", "access_key", "token"];

/// What comes before a literal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Piece<'a> {
    Word(&'a str),
    /// The text between the quotes.
    Quoted(&'a str),
    Sign(u8),
}

impl Piece<'_> {
    fn is_word(self, word: &str) -> bool {
        matches!(self, Self::Word(w) if w.eq_ignore_ascii_case(word))
    }

    fn names_a_secret(self) -> bool {
        let Self::Quoted(name) = self else { return false };
        let name = name.to_ascii_lowercase();
        SECRET_NAMES.iter().any(|secret| name.contains(secret))
    }
}

/// The text with its passwords and keys masked: what follows IDENTIFIED BY, what SET PASSWORD sets, and properties that
/// are named as secrets.
pub(super) fn secrets(text: &str) -> Cow<'_, str> {
    if !text.contains(['\'', '"']) {
        return Cow::Borrowed(text);
    }
    let mut out = String::new();
    let mut copied = 0;
    let (mut last, mut second): (Option<Piece<'_>>, Option<Piece<'_>>) = (None, None);
    let mut sets_password = false;
    let mut at = 0;
    while let Some((piece, start, end)) = next(text, at) {
        at = end;
        let is = |piece: Option<Piece<'_>>, word: &str| piece.is_some_and(|p| p.is_word(word));
        if let Piece::Quoted(_) = piece {
            let identified = (is(last, "BY") && is(second, "IDENTIFIED")) || (is(last, "PASSWORD") && is(second, "BY"));
            let function = last == Some(Piece::Sign(b'(')) && is(second, "PASSWORD");
            let assigned = last == Some(Piece::Sign(b'='));
            if identified || function || (assigned && (sets_password || second.is_some_and(Piece::names_a_secret))) {
                out.push_str(&text[copied..start]);
                out.push_str(MASK);
                copied = end;
            }
        }
        let begins = second.is_none() || second == Some(Piece::Sign(b';'));
        sets_password |= piece.is_word("PASSWORD") && is(last, "SET") && begins;
        sets_password &= piece != Piece::Sign(b';');
        (last, second) = (Some(piece), last);
    }
    if copied == 0 {
        return Cow::Borrowed(text);
    }
    out.push_str(&text[copied..]);
    Cow::Owned(out)
}

/// The next piece from a byte on, with its place; blanks and comments are passed over.
fn next(text: &str, from: usize) -> Option<(Piece<'_>, usize, usize)> {
    let bytes = text.as_bytes();
    let mut at = from;
    loop {
        let rest = &bytes[at..];
        let skipped = match rest {
            [] => return None,
            [b'/', b'*', inner @ ..] => inner.windows(2).position(|w| w == b"*/").map_or(rest.len(), |end| end + 4),
            [b'#', ..] | [b'-', b'-', ..] => rest.iter().position(|b| *b == b'\n').unwrap_or(rest.len()),
            [blank, ..] if blank.is_ascii_whitespace() => 1,
            _ => break,
        };
        at += skipped;
    }
    let start = at;
    let first = bytes[at];
    if matches!(first, b'\'' | b'"' | b'`') {
        let mut end = at + 1;
        while end < bytes.len() {
            // A backslash takes the next byte with it, and two quotes are one.
            end += match (bytes[end], bytes.get(end + 1)) {
                (b'\\', _) if first != b'`' => 2,
                (quote, Some(next)) if quote == first && *next == first => 2,
                (quote, _) if quote == first => break,
                _ => 1,
            };
        }
        let close = end.min(bytes.len());
        let end = (end + 1).min(bytes.len());
        let inner = text.get(start + 1..close).unwrap_or_default();
        let piece = if first == b'`' { Piece::Word(inner) } else { Piece::Quoted(inner) };
        return Some((piece, start, end));
    }
    let is_word = |b: &u8| b.is_ascii_alphanumeric() || *b == b'_' || !b.is_ascii();
    if is_word(&first) {
        let length = bytes[at..].iter().position(|b| !is_word(b)).unwrap_or(bytes.len() - at);
        return Some((Piece::Word(&text[at..at + length]), start, at + length));
    }
    Some((Piece::Sign(first), start, at + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_masked_and_nothing_else() {
        for (text, expected) in [
            (
                "CREATE USER 'u'@'%' IDENTIFIED BY 'it''s' DEFAULT ROLE 'r'",
                "CREATE USER 'u'@'%' IDENTIFIED BY '***' DEFAULT ROLE 'r'",
            ),
            (
                "alter user u identified /* now */ by password \"*A\\\"B\"",
                "alter user u identified /* now */ by password '***'",
            ),
            ("SET PASSWORD FOR 'u'@'%' = PASSWORD('p')", "SET PASSWORD FOR 'u'@'%' = PASSWORD('***')"),
            ("SELECT 1; SET PASSWORD = '*ABC'; SELECT a = 'b'", "SELECT 1; SET PASSWORD = '***'; SELECT a = 'b'"),
            (
                r#"SELECT * FROM S3("uri" = "s3://b/k", "s3.access_key" = "A", "s3.secret_key" = 'B')"#,
                r#"SELECT * FROM S3("uri" = "s3://b/k", "s3.access_key" = '***', "s3.secret_key" = '***')"#,
            ),
            ("CREATE USER u IDENTIFIED BY 'open", "CREATE USER u IDENTIFIED BY '***'"),
        ] {
            assert_eq!(secrets(text), expected);
        }
        for plain in [
            "SELECT a FROM t WHERE password = 'x' AND `token` = \"y\" ORDER BY 'z' -- SET PASSWORD = 'c'",
            "UPDATE t SET password = 'x'",
            "SELECT 'ü', 'IDENTIFIED BY ''x'''",
            "/api/health?x='",
        ] {
            assert!(matches!(secrets(plain), Cow::Borrowed(text) if text == plain), "{plain}");
        }
    }
}
