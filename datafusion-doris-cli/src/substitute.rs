//! `${…}` placeholders in SQL text and commands.
//!
//! | placeholder | value |
//! | --- | --- |
//! | `${fenodes}` | FE addresses (`host:port`, with commas) of the embedded sandbox |
//! | `${jdbc_url}` | MySQL protocol URL of the server that `\doris` talks to |
//! | `${s3_endpoint}` | URL of an object store that this program and the server reach; the sandbox brings one |
//! | `${env:NAME}` | an environment variable; unset is an error |
//! | `${name:-text}` | `text` when the value is missing or empty; it may be empty and holds no `}` |
//! | `$${` | a plain `${` |
//!
//! Values are put in before the text is parsed, also inside quotes: there the quote character is doubled (and in
//! Doris statements the backslash too), so a value never ends the string it stands in. Outside of quotes a value is
//! SQL text as it is. Comments are left alone. Statements are split before values are put in: a `;` inside a value
//! ends nothing.

use std::borrow::Cow;
use std::fmt;

use datafusion::sql::sqlparser::dialect::Dialect;
use datafusion::sql::sqlparser::tokenizer::{Token, Whitespace};

use crate::lex;

const OPEN: &str = "${";
const ESCAPED: &str = "$${";

/// Where a placeholder's value comes from.
pub trait Lookup {
    /// The value of `name`, the text before `:-`.
    ///
    /// # Errors
    /// A reason why there is none, for example an environment variable that is not set.
    fn lookup(&self, name: &str) -> Result<String, Missing>;
}

/// Why a placeholder has no value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Missing {
    /// Nothing has this name.
    Unknown,
    /// The name is known, but has no value yet; the text says how it gets one.
    Unset(String),
}

/// A placeholder that could not be replaced. Holds the placeholder's name, never a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SubstituteError {
    /// `${` without a `}` on the same line.
    Open,
    /// The name has no value and no default was given.
    Missing {
        /// The text before `:-`.
        name: String,
        /// Why it has no value.
        reason: Missing,
    },
}

impl fmt::Display for SubstituteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open => write!(f, "`${{` is not closed by `}}` on its line: write `$${{` for the plain characters"),
            Self::Missing { name, reason: Missing::Unset(why) } => write!(f, "`${{{name}}}` has no value: {why}"),
            Self::Missing { name, reason: Missing::Unknown } => write!(
                f,
                "unknown placeholder `${{{name}}}`: known are fenodes, jdbc_url, s3_endpoint and env:NAME; write `$${{` for the \
                 plain characters"
            ),
        }
    }
}

impl std::error::Error for SubstituteError {}

/// A piece of text as far as placeholders go.
enum Piece<'a> {
    Text(&'a str),
    /// `$${`
    Escape,
    /// What stands between `${` and `}`.
    Placeholder(&'a str),
    /// `${` that nothing closes.
    Open,
}

/// Cuts `text` into pieces, each with its byte offset.
fn pieces(text: &str) -> impl Iterator<Item = (usize, Piece<'_>)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let start = at;
        let rest = text.get(at..).filter(|rest| !rest.is_empty())?;
        if rest.starts_with(ESCAPED) {
            at += ESCAPED.len();
            return Some((start, Piece::Escape));
        }
        if let Some(body) = rest.strip_prefix(OPEN) {
            let Some(close) = body.find(['}', '\n']).filter(|&i| body[i..].starts_with('}')) else {
                at += OPEN.len();
                return Some((start, Piece::Open));
            };
            at += OPEN.len() + close + 1;
            return Some((start, Piece::Placeholder(&body[..close])));
        }
        let end = match (rest.find(ESCAPED), rest.find(OPEN)) {
            (Some(escaped), Some(open)) => escaped.min(open),
            (escaped, open) => escaped.or(open).unwrap_or(rest.len()),
        };
        at += end;
        Some((start, Piece::Text(&rest[..end])))
    })
}

/// Replaces every placeholder and escape by as many `x`, so that the tokenizer does not look into them.
pub(crate) fn mask(text: &str) -> Cow<'_, str> {
    if !text.contains(OPEN) {
        return Cow::Borrowed(text);
    }
    let mut masked = String::with_capacity(text.len());
    for (_, piece) in pieces(text) {
        match piece {
            Piece::Text(text) => masked.push_str(text),
            Piece::Open => masked.push_str(OPEN),
            Piece::Escape => masked.extend(std::iter::repeat_n('x', ESCAPED.len())),
            Piece::Placeholder(body) => masked.extend(std::iter::repeat_n('x', body.len() + OPEN.len() + 1)),
        }
    }
    Cow::Owned(masked)
}

/// Replaces the placeholders of a text that is not SQL, such as the argument of a command.
///
/// # Errors
/// [`SubstituteError`] names the placeholder that has no value.
pub fn in_text(text: &str, values: &dyn Lookup) -> Result<String, SubstituteError> {
    let mut out = String::with_capacity(text.len());
    for (_, piece) in pieces(text) {
        match piece {
            Piece::Text(text) => out.push_str(text),
            Piece::Escape => out.push_str(OPEN),
            Piece::Placeholder(body) => out.push_str(&resolve(body, values)?),
            Piece::Open => return Err(SubstituteError::Open),
        }
    }
    Ok(out)
}

/// Replaces the placeholders of one SQL statement, minding the quotes they stand in.
///
/// # Errors
/// [`SubstituteError`] names the placeholder that has no value.
pub fn in_sql(sql: &str, dialect: &dyn Dialect, values: &dyn Lookup) -> Result<String, SubstituteError> {
    if !sql.contains(OPEN) {
        return Ok(sql.to_owned());
    }
    let lexed = lex::lex(sql, dialect);
    let mut lexemes = lexed.lexemes.iter().peekable();
    let mut out = String::with_capacity(sql.len());
    for (offset, piece) in pieces(sql) {
        while lexemes.next_if(|lexeme| lexeme.range.end <= offset).is_some() {}
        let token = lexemes.peek().filter(|lexeme| lexeme.range.start <= offset).map(|lexeme| &lexeme.token);
        let comment = matches!(
            token,
            Some(Token::Whitespace(Whitespace::SingleLineComment { .. } | Whitespace::MultiLineComment(_)))
        );
        match piece {
            Piece::Text(text) => out.push_str(text),
            Piece::Escape => out.push_str(OPEN),
            Piece::Placeholder(body) if comment => {
                out.push_str(OPEN);
                out.push_str(body);
                out.push('}');
            }
            Piece::Open if comment => out.push_str(OPEN),
            Piece::Placeholder(body) => push_quoted(&mut out, &resolve(body, values)?, token, dialect),
            Piece::Open => return Err(SubstituteError::Open),
        }
    }
    Ok(out)
}

/// Appends a value so that it stays inside the quotes of the token it stands in.
fn push_quoted(out: &mut String, value: &str, token: Option<&Token>, dialect: &dyn Dialect) {
    let (quote, backslash) = match token {
        Some(Token::SingleQuotedString(_) | Token::NationalStringLiteral(_)) => {
            (Some('\''), dialect.supports_string_literal_backslash_escape())
        }
        Some(Token::EscapedStringLiteral(_)) => (Some('\''), true),
        Some(Token::HexStringLiteral(_) | Token::UnicodeStringLiteral(_)) => (Some('\''), false),
        Some(Token::DoubleQuotedString(_)) => (Some('"'), dialect.supports_string_literal_backslash_escape()),
        Some(Token::Word(word)) => (word.quote_style, false),
        _ => (None, false),
    };
    for c in value.chars() {
        if Some(c) == quote || (backslash && c == '\\') {
            out.push(c);
        }
        out.push(c);
    }
}

fn resolve(body: &str, values: &dyn Lookup) -> Result<String, SubstituteError> {
    let (name, default) = match body.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (body, None),
    };
    let name = name.trim();
    match (values.lookup(name), default) {
        // A misspelt name must not fall back to the default silently.
        (Err(Missing::Unknown), _) => Err(SubstituteError::Missing { name: name.to_owned(), reason: Missing::Unknown }),
        (Ok(value), Some(default)) if value.is_empty() => Ok(default.to_owned()),
        (Ok(value), _) => Ok(value),
        (Err(_), Some(default)) => Ok(default.to_owned()),
        (Err(reason), None) => Err(SubstituteError::Missing { name: name.to_owned(), reason }),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use datafusion::sql::sqlparser::dialect::{GenericDialect, MySqlDialect};

    use super::*;

    struct Values;

    impl Lookup for Values {
        fn lookup(&self, name: &str) -> Result<String, Missing> {
            match name {
                "fenodes" => Ok("127.0.0.1:8030".to_owned()),
                "env:PW" => Ok(r#"a'b"c\d`e"#.to_owned()),
                "env:EMPTY" => Ok(String::new()),
                "env:SEMI" => Ok("1; DROP TABLE t".to_owned()),
                "env:GONE" => Err(Missing::Unset("environment variable GONE is not set".to_owned())),
                _ => Err(Missing::Unknown),
            }
        }
    }

    fn sql(text: &str) -> String {
        in_sql(text, &GenericDialect {}, &Values).unwrap()
    }

    #[test]
    fn values_replace_placeholders_in_and_outside_of_quotes() {
        assert_eq!(sql("SELECT '${fenodes}', ${env:EMPTY}1"), "SELECT '127.0.0.1:8030', 1");
        assert_eq!(sql("OPTIONS ('a' 'http://${fenodes}/x')"), "OPTIONS ('a' 'http://127.0.0.1:8030/x')");
    }

    #[test]
    fn quotes_of_a_value_cannot_end_the_string_it_stands_in() {
        assert_eq!(sql("'${env:PW}'"), r#"'a''b"c\d`e'"#);
        assert_eq!(sql("\"${env:PW}\""), r#""a'b""c\d`e""#);
        assert_eq!(sql("`${env:PW}`"), r#"`a'b"c\d``e`"#);
        assert_eq!(in_sql("'${env:PW}'", &MySqlDialect {}, &Values).unwrap(), r#"'a''b"c\\d`e'"#);
        assert_eq!(in_sql("\"${env:PW}\"", &MySqlDialect {}, &Values).unwrap(), r#""a'b""c\\d`e""#);
    }

    #[test]
    fn values_outside_of_quotes_are_sql_text() {
        assert_eq!(sql("SELECT ${env:SEMI}"), "SELECT 1; DROP TABLE t");
    }

    #[test]
    fn the_escape_gives_the_plain_characters() {
        assert_eq!(sql("SELECT '$${fenodes}'"), "SELECT '${fenodes}'");
        assert_eq!(in_text("$${a} ${fenodes}", &Values).unwrap(), "${a} 127.0.0.1:8030");
    }

    #[test]
    fn comments_are_left_alone() {
        assert_eq!(sql("-- ${nope}\nSELECT 1 /* ${ */"), "-- ${nope}\nSELECT 1 /* ${ */");
    }

    #[test]
    fn defaults_stand_in_for_missing_and_empty_values() {
        assert_eq!(sql("'${env:GONE:-it's}'"), "'it''s'");
        assert_eq!(sql("'${env:EMPTY:-x}'"), "'x'");
        assert_eq!(sql("'${env:GONE:-}'"), "''");
        assert_eq!(sql("'${fenodes:-x}'"), "'127.0.0.1:8030'");
    }

    #[test]
    fn a_missing_value_is_an_error_that_names_it() {
        let error = |text| in_sql(text, &GenericDialect {}, &Values).unwrap_err().to_string();
        assert_eq!(error("SELECT ${env:GONE}"), "`${env:GONE}` has no value: environment variable GONE is not set");
        assert!(error("SELECT ${nope:-1}").starts_with("unknown placeholder `${nope}`"));
        assert!(error("SELECT ${fenodes\n}").starts_with("`${` is not closed"));
    }

    #[test]
    fn dollar_signs_that_open_nothing_stay() {
        assert_eq!(sql("SELECT $1, '$', $$ ${fenodes} $$"), "SELECT $1, '$', $$ 127.0.0.1:8030 $$");
    }

    #[test]
    fn masks_keep_every_byte_position() {
        for text in ["'${ä}' $${ x", "${", "$$ ${a} $$"] {
            assert_eq!(mask(text).len(), text.len(), "{text}");
        }
    }
}
