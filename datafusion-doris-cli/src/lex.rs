//! SQL text as tokens with byte ranges, by the same tokenizer that the SQL parser uses.
//!
//! Splitting and substitution both need to know what is text, what is a quoted string and what is a comment. Asking
//! the parser's own tokenizer means that the shell never disagrees with the parser about it.

use std::ops::Range;

use datafusion::sql::sqlparser::dialect::Dialect;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer};

use crate::substitute;

/// One token and the bytes it stands on.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Lexeme {
    pub(crate) token: Token,
    pub(crate) range: Range<usize>,
}

/// The tokens of a text, up to the first one that could not be read.
#[derive(Debug, Default)]
pub(crate) struct Lexed {
    pub(crate) lexemes: Vec<Lexeme>,
    pub(crate) stopped: Option<Stopped>,
}

/// Why the tokenizer stopped before the end of the text.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Stopped {
    /// A string, a quoted name or a comment is still open: more text may close it.
    Unfinished,
    /// No text that follows can make this valid.
    Invalid,
}

/// Splits `text` into tokens. Placeholders (`${name}`) count as plain words, whatever stands in their braces.
pub(crate) fn lex(text: &str, dialect: &dyn Dialect) -> Lexed {
    let masked = substitute::mask(text);
    let mut tokens = Vec::new();
    let error =
        Tokenizer::new(dialect, &masked).with_unescape(false).tokenize_with_location_into_buf(&mut tokens).err();
    let stopped = error.map(|error| {
        let unfinished = error.message.starts_with("Unterminated")
            || error.message.starts_with("Unexpected EOF")
            || error.message.starts_with("Expected close delimiter");
        if unfinished { Stopped::Unfinished } else { Stopped::Invalid }
    });
    Lexed { lexemes: with_byte_ranges(&masked, tokens), stopped }
}

/// Turns the tokenizer's line and column numbers (from 1, columns in characters) into byte ranges.
fn with_byte_ranges(text: &str, tokens: Vec<TokenWithSpan>) -> Vec<Lexeme> {
    let mut cursor = Cursor { text, offset: 0, line: 1, column: 1 };
    tokens
        .into_iter()
        .map(|TokenWithSpan { token, span }| {
            let start = cursor.seek(span.start.line, span.start.column);
            // A look ahead on a copy: tokens inside of a MySQL hint comment all carry the comment's span.
            let end = cursor.clone().seek(span.end.line, span.end.column);
            Lexeme { token, range: start..end }
        })
        .collect()
}

/// Walks a text forward, counting lines and columns as the tokenizer does.
#[derive(Clone)]
struct Cursor<'a> {
    text: &'a str,
    offset: usize,
    line: u64,
    column: u64,
}

impl Cursor<'_> {
    fn seek(&mut self, line: u64, column: u64) -> usize {
        while (self.line, self.column) < (line, column) {
            let Some(next) = self.text[self.offset..].chars().next() else { break };
            self.offset += next.len_utf8();
            if next == '\n' {
                self.line += 1;
                self.column = 1;
            } else {
                self.column += 1;
            }
        }
        self.offset
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use datafusion::sql::sqlparser::dialect::{GenericDialect, MySqlDialect};

    use super::*;

    fn pieces<'a>(text: &'a str, dialect: &dyn Dialect) -> Vec<&'a str> {
        lex(text, dialect).lexemes.into_iter().map(|lexeme| &text[lexeme.range]).collect()
    }

    #[test]
    fn ranges_cover_the_text_without_gaps() {
        for text in ["SELECT 'ä;b' -- c; d\n, \"Ü\"\n;\tSELECT 1", "a\r\nb /* x\ny */ c", "E'a\\'b' $1 $$x;y$$"] {
            assert_eq!(pieces(text, &GenericDialect {}).concat(), text);
        }
    }

    #[test]
    fn placeholders_are_words_whatever_they_hold() {
        assert_eq!(pieces("a ${env:X:-it's; x} b", &GenericDialect {}), ["a", " ", "${env:X:-it's; x}", " ", "b"]);
        assert_eq!(pieces("$${a} b", &GenericDialect {}), ["$${a", "}", " ", "b"]);
    }

    #[test]
    fn open_strings_and_comments_are_unfinished() {
        for text in ["SELECT 'a", "SELECT \"a", "SELECT /* a", "SELECT $$ a", "SELECT `a"] {
            assert_eq!(lex(text, &GenericDialect {}).stopped, Some(Stopped::Unfinished), "{text}");
        }
        assert_eq!(lex(r"SELECT 'a\'", &MySqlDialect {}).stopped, Some(Stopped::Unfinished));
        assert_eq!(lex(r"SELECT 'a\'", &GenericDialect {}).stopped, None);
    }
}
