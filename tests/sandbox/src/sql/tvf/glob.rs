//! Path patterns of file table functions, as Doris reads them.

/// Patterns that braces may expand to.
const MAX_PATTERNS: usize = 10_000;

/// A pattern over the keys of a bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Glob {
    prefix: String,
    patterns: Vec<Vec<Piece>>,
    plain: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Char(char),
    /// `?`: one character of a segment.
    One,
    /// `*`: any part of a segment.
    Many,
    /// `**`: anything.
    Deep,
    /// `[abc]`, `[a-z]`, `[!abc]`
    Set {
        not: bool,
        ranges: Vec<(char, char)>,
    },
}

impl Glob {
    /// Reads a pattern.
    ///
    /// # Errors
    /// A bracket or brace without its end, or braces that mean too many patterns.
    pub(super) fn new(text: &str) -> Result<Self, String> {
        let special = text.find(['*', '?', '[', '{']);
        let prefix = text[..special.unwrap_or(text.len())].to_owned();
        let patterns = expand(text)?.iter().map(|pattern| compile(pattern)).collect::<Result<_, _>>()?;
        Ok(Self { prefix, patterns, plain: special.is_none() })
    }

    /// The longest start without wildcards.
    pub(super) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Without any wildcard it names one key.
    pub(super) fn is_plain(&self) -> bool {
        self.plain
    }

    pub(super) fn matches(&self, key: &str) -> bool {
        let key: Vec<char> = key.chars().collect();
        self.patterns.iter().any(|pattern| matches(pattern, &key))
    }
}

/// Texts without braces.
fn expand(text: &str) -> Result<Vec<String>, String> {
    let mut done = Vec::new();
    let mut waiting = vec![text.to_owned()];
    while let Some(pattern) = waiting.pop() {
        let Some(open) = pattern.find('{') else {
            done.push(pattern);
            if done.len() + waiting.len() > MAX_PATTERNS {
                return Err(format!("the path means more than {MAX_PATTERNS} patterns"));
            }
            continue;
        };
        let (members, close) = members(&pattern[open + 1..]).ok_or_else(|| format!("missing '}}' in path {text}"))?;
        let (head, tail) = (&pattern[..open], &pattern[open + 1 + close..]);
        for member in alternatives(&members)? {
            waiting.push(format!("{head}{member}{tail}"));
        }
        if done.len() + waiting.len() > MAX_PATTERNS {
            return Err(format!("the path means more than {MAX_PATTERNS} patterns"));
        }
    }
    Ok(done)
}

/// Members up to the closing brace, and where the text goes on.
fn members(text: &str) -> Option<(Vec<&str>, usize)> {
    let (mut depth, mut start) = (0, 0);
    let mut members = Vec::new();
    for (at, c) in text.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => {
                members.push(&text[start..at]);
                return Some((members, at + 1));
            }
            '}' => depth -= 1,
            ',' if depth == 0 => {
                members.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    None
}

/// A group with a range holds numbers only; what is none is dropped. Leading zeros are not kept.
fn alternatives(members: &[&str]) -> Result<Vec<String>, String> {
    if !members.iter().any(|member| member.contains("..")) {
        return Ok(members.iter().map(|member| (*member).to_owned()).collect());
    }
    let number = |text: &str| text.trim().parse::<u32>().ok();
    let mut out: Vec<String> = Vec::new();
    let mut add = |n: u32| {
        let text = n.to_string();
        if !out.contains(&text) {
            out.push(text);
        }
    };
    for member in members {
        match member.split_once("..") {
            Some((from, to)) => {
                if let (Some(from), Some(to)) = (number(from), number(to)) {
                    if from.abs_diff(to) as usize >= MAX_PATTERNS {
                        return Err(format!("the path means more than {MAX_PATTERNS} patterns"));
                    }
                    (from.min(to)..=from.max(to)).for_each(&mut add);
                }
            }
            None => number(member).into_iter().for_each(&mut add),
        }
    }
    Ok(out)
}

fn compile(text: &str) -> Result<Vec<Piece>, String> {
    let mut pieces = Vec::new();
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        pieces.push(match c {
            '?' => Piece::One,
            '*' => {
                let mut deep = false;
                while chars.next_if_eq(&'*').is_some() {
                    deep = true;
                }
                if deep { Piece::Deep } else { Piece::Many }
            }
            '[' => {
                let not = chars.next_if(|c| matches!(c, '!' | '^')).is_some();
                let mut ranges = Vec::new();
                loop {
                    let Some(from) = chars.next() else { return Err(format!("missing ']' in path {text}")) };
                    if from == ']' && !ranges.is_empty() {
                        break;
                    }
                    let mut ahead = chars.clone();
                    if ahead.next() == Some('-')
                        && let Some(to) = ahead.next().filter(|to| *to != ']')
                    {
                        ranges.push((from, to));
                        chars = ahead;
                    } else {
                        ranges.push((from, from));
                    }
                }
                Piece::Set { not, ranges }
            }
            other => Piece::Char(other),
        });
    }
    Ok(pieces)
}

/// Matches piece by piece, keeping every position of the pattern that may be reached.
fn matches(pattern: &[Piece], key: &[char]) -> bool {
    let mut reached = vec![false; pattern.len() + 1];
    let close = |reached: &mut Vec<bool>| {
        for at in 0..pattern.len() {
            if reached[at] && matches!(pattern[at], Piece::Many | Piece::Deep) {
                reached[at + 1] = true;
            }
        }
    };
    reached[0] = true;
    close(&mut reached);
    for c in key {
        let mut next = vec![false; pattern.len() + 1];
        for (at, piece) in pattern.iter().enumerate() {
            if !reached[at] {
                continue;
            }
            match piece {
                Piece::Deep => next[at] = true,
                Piece::Many => next[at] |= *c != '/',
                Piece::One => next[at + 1] |= *c != '/',
                Piece::Char(wanted) => next[at + 1] |= c == wanted,
                Piece::Set { not, ranges } => {
                    let inside = ranges.iter().any(|(from, to)| (from..=to).contains(&c));
                    next[at + 1] |= *c != '/' && inside != *not;
                }
            }
        }
        close(&mut next);
        reached = next;
    }
    reached[pattern.len()]
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_the_server_matches() {
        for (pattern, yes, no) in [
            ("a/b.csv", &["a/b.csv"][..], &["a/b.csv2", "a/bxcsv", "b.csv"][..]),
            ("a/*.csv", &["a/x.csv", "a/.csv"], &["a/b/x.csv", "a/x.csv.gz"]),
            ("a/**.csv", &["a/x.csv", "a/b/c/x.csv"], &["b/x.csv"]),
            ("a/**/x", &["a/b/x", "a/b/c/x"], &["a/x"]),
            ("a/?.csv", &["a/x.csv", "a/é.csv"], &["a/.csv", "a/xy.csv", "a//.csv"]),
            ("f[abc]", &["fa", "fc"], &["fd", "f", "f["]),
            ("f[a-c1]", &["fb", "f1"], &["fd", "f-"]),
            ("f[!a-c]", &["fd", "f1"], &["fb", "f/"]),
            ("{a,b/c}.p", &["a.p", "b/c.p"], &["c.p", "{a.p"]),
            ("{a,x{1,2}}", &["a", "x1", "x2"], &["x", "1"]),
            ("p{1..3}", &["p1", "p2", "p3"], &["p0", "p4", "p1..3"]),
            ("p{3..1}", &["p1", "p2", "p3"], &["p4"]),
            ("p{1..3,5}", &["p1", "p3", "p5"], &["p4"]),
            ("p{01..12}", &["p1", "p9", "p12"], &["p01", "p012", "p13"]),
            ("p{1..2,x,-4..5,-1}", &["p1", "p2"], &["px", "p3", "p-1", "p4"]),
            ("p{a..c}", &[], &["pa", "pb", "p{a..c}"]),
        ] {
            let glob = Glob::new(pattern).expect(pattern);
            yes.iter().for_each(|key| assert!(glob.matches(key), "{pattern} {key}"));
            no.iter().for_each(|key| assert!(!glob.matches(key), "{pattern} {key}"));
        }
    }

    #[test]
    fn the_prefix_ends_before_the_first_wildcard() {
        for (pattern, prefix, plain) in
            [("a/b/c", "a/b/c", true), ("a/b*/c", "a/b", false), ("a/{x,y}", "a/", false), ("[x]", "", false)]
        {
            let glob = Glob::new(pattern).expect(pattern);
            assert_eq!((glob.prefix(), glob.is_plain()), (prefix, plain));
        }
    }

    #[test]
    fn broken_and_boundless_patterns_are_refused() {
        for pattern in ["a{b", "a[b", "{1..9999999}", "{1..200}{1..200}{1..200}"] {
            assert!(Glob::new(pattern).is_err(), "{pattern}");
        }
    }
}
