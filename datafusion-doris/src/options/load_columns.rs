//! The header `columns` of a load: names of the body's columns, and expressions over them.
//!
//! The text is cut into tokens, each with its place, and the list is read from them:
//!
//! ```text
//! list  = items | "(" items ")"          name  = word | "`" … "`"
//! items = item { "," item }              expr  = tokens in which brackets close, up to a "," outside of them
//! item  = name [ "=" expr ]
//! ```
//!
//! Expressions are Doris's to judge and are handed on as they are written.

use std::fmt;
use std::ops::Range;

use super::value::Parsed;

/// `sink.properties.columns`, taken apart.
///
/// ```text
/// dt, page, user_id, user_id = to_bitmap(user_id)
/// ─────────────────  ───────────────────────────
/// body, in order     computed by Doris from the body
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LoadColumns {
    /// Names of the body's columns, in its order; none = what the rows have.
    pub body: Vec<String>,
    /// Columns that Doris computes: name and expression.
    pub computed: Vec<(String, String)>,
}

impl LoadColumns {
    /// Takes a list apart. Names may stand in backticks, in which two backticks are one.
    ///
    /// # Errors
    /// The reason, when the text is no such list or names a column twice.
    pub fn parse(text: &str) -> Result<Self, String> {
        let refuse = |why: &dyn fmt::Display| format!("'{text}' is not a list of columns like a,b,c=f(a): {why}");
        let tokens = tokens(text).map_err(|why| refuse(&why))?;
        let columns = Reader { text, tokens: inner(&tokens) }.list().map_err(|why| refuse(&why))?;
        let computed = columns.computed.iter().map(|(name, _)| name);
        match twice(columns.body.iter()).or_else(|| twice(computed)) {
            Some(name) => Err(format!("names column '{name}' twice")),
            None => Ok(columns),
        }
    }

    /// Whether the body has a column of this name; Doris compares names without case.
    pub fn in_body(&self, name: &str) -> bool {
        self.body.iter().any(|column| column.eq_ignore_ascii_case(name))
    }

    /// Whether a column of this name is computed.
    pub fn is_computed(&self, name: &str) -> bool {
        self.computed.iter().any(|(column, _)| column.eq_ignore_ascii_case(name))
    }
}

/// Checks a list without keeping it.
pub(super) fn check(text: &str) -> Parsed<()> {
    if text.chars().any(char::is_control) {
        return Err("has a control character, which a header cannot carry".into());
    }
    LoadColumns::parse(text).map(drop)
}

/// The first name that was there before in another case or the same.
fn twice<'a>(names: impl Iterator<Item = &'a String>) -> Option<&'a str> {
    let mut seen = std::collections::HashSet::new();
    names.map(String::as_str).find(|name| !seen.insert(name.to_ascii_lowercase()))
}

/// Why a text is no list, and where: in characters from 1.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Fault {
    why: &'static str,
    at: usize,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at character {}", self.why, self.at)
    }
}

fn fault(text: &str, byte: usize, why: &'static str) -> Fault {
    Fault { why, at: text[..byte].chars().count() + 1 }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A name without quotes, a keyword or a number.
    Word,
    /// A name in backticks.
    Quoted,
    /// A text in quotes.
    Text,
    Comma,
    Equals,
    Open(Bracket),
    Close(Bracket),
    /// Any other character: operators.
    Other,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bracket {
    Round,
    Square,
    Curly,
}

/// A piece of the text: what it is, and its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Token {
    kind: Kind,
    span: Range<usize>,
}

/// Characters of words: of names without quotes, and of numbers.
fn in_word(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '$' | '@' | '.')
}

/// Cuts a text into tokens; blanks between them are left out.
fn tokens(text: &str) -> Result<Vec<Token>, Fault> {
    let mut tokens = Vec::new();
    let mut at = 0;
    while let Some(c) = text[at..].chars().next() {
        let rest = &text[at + c.len_utf8()..];
        let (kind, length) = match c {
            c if c.is_whitespace() => {
                at += c.len_utf8();
                continue;
            }
            '`' => (Kind::Quoted, quoted(rest, '`').ok_or_else(|| fault(text, at, "a backtick is not closed"))?),
            '\'' | '"' => (Kind::Text, quoted(rest, c).ok_or_else(|| fault(text, at, "a quote is not closed"))?),
            ',' => (Kind::Comma, 0),
            '=' => (Kind::Equals, 0),
            '(' => (Kind::Open(Bracket::Round), 0),
            '[' => (Kind::Open(Bracket::Square), 0),
            '{' => (Kind::Open(Bracket::Curly), 0),
            ')' => (Kind::Close(Bracket::Round), 0),
            ']' => (Kind::Close(Bracket::Square), 0),
            '}' => (Kind::Close(Bracket::Curly), 0),
            '#' => return Err(fault(text, at, "a comment begins")),
            '-' if rest.starts_with('-') => return Err(fault(text, at, "a comment begins (write - -1 for --1)")),
            '/' if rest.starts_with('*') => return Err(fault(text, at, "a comment begins")),
            c if in_word(c) => (Kind::Word, rest.find(|c| !in_word(c)).unwrap_or(rest.len())),
            _ => (Kind::Other, 0),
        };
        let end = at + c.len_utf8() + length;
        tokens.push(Token { kind, span: at..end });
        at = end;
    }
    Ok(tokens)
}

/// Bytes of `rest`, which begins behind an opening quote, up to and with the closing one. Two quotes are one that does not
/// close; in texts a backslash takes away the meaning of the character behind it.
fn quoted(rest: &str, quote: char) -> Option<usize> {
    let mut chars = rest.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        if c == '\\' && quote != '`' {
            chars.next()?;
        } else if c == quote && chars.next_if(|(_, next)| *next == quote).is_none() {
            return Some(at + quote.len_utf8());
        }
    }
    None
}

/// The tokens of the list, without brackets around the whole.
fn inner(tokens: &[Token]) -> &[Token] {
    let [first, inner @ .., last] = tokens else { return tokens };
    if (first.kind, last.kind) != (Kind::Open(Bracket::Round), Kind::Close(Bracket::Round)) {
        return tokens;
    }
    // `(a),(b)` begins and ends with brackets too.
    let mut depth = 0_usize;
    let around = inner.iter().all(|token| match token.kind {
        Kind::Open(_) => {
            depth += 1;
            true
        }
        Kind::Close(_) => match depth.checked_sub(1) {
            Some(less) => {
                depth = less;
                true
            }
            None => false,
        },
        _ => true,
    });
    if around { inner } else { tokens }
}

/// Reads tokens from the first on.
struct Reader<'a> {
    text: &'a str,
    tokens: &'a [Token],
}

impl<'a> Reader<'a> {
    fn fault(&self, why: &'static str) -> Fault {
        let at = self.tokens.first().map_or(self.text.trim_end().len(), |token| token.span.start);
        fault(self.text, at, why)
    }

    fn next_if(&mut self, wanted: impl Fn(Kind) -> bool) -> Option<&'a Token> {
        let (first, rest) = self.tokens.split_first()?;
        wanted(first.kind).then(|| {
            self.tokens = rest;
            first
        })
    }

    fn list(mut self) -> Result<LoadColumns, Fault> {
        let mut columns = LoadColumns::default();
        loop {
            let name = self.name()?;
            match self.next_if(|kind| kind == Kind::Equals) {
                None => columns.body.push(name),
                Some(_) => columns.computed.push((name, self.expression()?)),
            }
            if self.next_if(|kind| kind == Kind::Comma).is_none() {
                break;
            }
        }
        match self.tokens {
            [] => Ok(columns),
            _ => Err(self.fault("a comma or = is missing")),
        }
    }

    fn name(&mut self) -> Result<String, Fault> {
        let missing = self.fault("a name is missing");
        let blank = self.fault("a name is empty");
        let token = self.next_if(|kind| matches!(kind, Kind::Word | Kind::Quoted)).ok_or(missing)?;
        let text = &self.text[token.span.clone()];
        if token.kind == Kind::Word {
            return Ok(text.to_string());
        }
        let name = text[1..text.len() - 1].replace("``", "`");
        if name.trim().is_empty() { Err(blank) } else { Ok(name) }
    }

    /// The text up to a comma outside of brackets, or the end.
    fn expression(&mut self) -> Result<String, Fault> {
        let begin = self.fault("an expression is missing");
        if self.tokens.first().is_some_and(|token| token.kind == Kind::Equals) {
            return Err(self.fault("there is a second ="));
        }
        let mut open: Vec<(Bracket, usize)> = Vec::new();
        let mut span: Option<Range<usize>> = None;
        while let Some(token) = self.tokens.first() {
            match token.kind {
                Kind::Comma if open.is_empty() => break,
                Kind::Open(bracket) => open.push((bracket, token.span.start)),
                Kind::Close(bracket) => match open.pop() {
                    Some((opened, _)) if opened == bracket => {}
                    _ => return Err(self.fault("a bracket closes that is not open")),
                },
                _ => {}
            }
            span = Some(span.map_or(token.span.start, |span| span.start)..token.span.end);
            self.tokens = &self.tokens[1..];
        }
        if let Some((_, at)) = open.pop() {
            return Err(fault(self.text, at, "a bracket is not closed"));
        }
        span.map(|span| self.text[span].to_string()).ok_or(begin)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests;
