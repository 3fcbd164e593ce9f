//! A reader over the tokens of one statement.

use std::collections::BTreeMap;

use datafusion::sql::sqlparser::tokenizer::Token;

use super::lexer::{Statement, Tok};
use crate::error::SqlError;
use crate::types::{DorisType, parse_type_prefix};

/// Position in a statement.
pub(crate) struct Cursor<'a> {
    pub(crate) text: &'a str,
    pub(crate) tokens: &'a [Tok],
    pub(crate) at: usize,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(text: &'a str, statement: &'a Statement) -> Self {
        Self { text, tokens: &statement.tokens, at: 0 }
    }

    pub(crate) fn peek(&self) -> Option<&'a Token> {
        self.tokens.get(self.at).map(|tok| &tok.token)
    }

    pub(crate) fn peek_at(&self, ahead: usize) -> Option<&'a Token> {
        self.tokens.get(self.at + ahead).map(|tok| &tok.token)
    }

    pub(crate) fn at_end(&self) -> bool {
        self.at >= self.tokens.len()
    }

    /// Byte offset of the next token in the text.
    pub(crate) fn offset(&self) -> usize {
        self.tokens.get(self.at).map_or_else(|| self.tokens.last().map_or(0, |t| t.end), |t| t.start)
    }

    /// Text from a byte offset to the next token.
    pub(crate) fn text_since(&self, start: usize) -> &'a str {
        let end = if self.at == 0 { start } else { self.tokens[self.at - 1].end };
        &self.text[start..end.max(start)]
    }

    /// Text of all that is left.
    pub(crate) fn rest(&self) -> &'a str {
        match (self.tokens.get(self.at), self.tokens.last()) {
            (Some(first), Some(last)) => &self.text[first.start..last.end],
            _ => "",
        }
    }

    /// Whether the token `ahead` is this unquoted word.
    pub(crate) fn is_word_at(&self, ahead: usize, word: &str) -> bool {
        matches!(self.peek_at(ahead), Some(Token::Word(w)) if w.quote_style.is_none() && w.value.eq_ignore_ascii_case(word))
    }

    pub(crate) fn is_word(&self, word: &str) -> bool {
        self.is_word_at(0, word)
    }

    /// Eats a word.
    pub(crate) fn eat(&mut self, word: &str) -> bool {
        let found = self.is_word(word);
        self.at += usize::from(found);
        found
    }

    /// Eats several words, all or none.
    pub(crate) fn eat_all(&mut self, words: &[&str]) -> bool {
        let found = words.iter().enumerate().all(|(i, word)| self.is_word_at(i, word));
        if found {
            self.at += words.len();
        }
        found
    }

    pub(crate) fn eat_token(&mut self, token: &Token) -> bool {
        let found = self.peek() == Some(token);
        self.at += usize::from(found);
        found
    }

    pub(crate) fn expect(&mut self, word: &str) -> Result<(), SqlError> {
        if self.eat(word) { Ok(()) } else { Err(self.unexpected(word)) }
    }

    pub(crate) fn expect_token(&mut self, token: &Token) -> Result<(), SqlError> {
        if self.eat_token(token) { Ok(()) } else { Err(self.unexpected(&token.to_string())) }
    }

    /// The server's text for a token it did not expect.
    pub(crate) fn unexpected(&self, expected: &str) -> SqlError {
        let got = self.tokens.get(self.at).map_or("<EOF>", |tok| &self.text[tok.start..tok.end]);
        SqlError::syntax(format!("mismatched input '{got}' expecting {expected}"))
    }

    pub(crate) fn expect_end(&self) -> Result<(), SqlError> {
        if self.at_end() { Ok(()) } else { Err(self.unexpected("<EOF>")) }
    }

    /// A name, quoted or not; a quoted string is taken as a name too where Doris does (aliases, variable values).
    pub(crate) fn ident(&mut self) -> Result<String, SqlError> {
        match self.peek() {
            Some(Token::Word(word)) => {
                self.at += 1;
                Ok(word.value.clone())
            }
            _ => Err(self.unexpected("identifier")),
        }
    }

    pub(crate) fn string(&mut self) -> Result<String, SqlError> {
        match self.peek() {
            Some(Token::SingleQuotedString(text)) => {
                self.at += 1;
                Ok(text.clone())
            }
            _ => Err(self.unexpected("string")),
        }
    }

    pub(crate) fn number(&mut self) -> Result<u64, SqlError> {
        match self.peek() {
            Some(Token::Number(text, _)) => {
                let value = text.parse().map_err(|_| self.unexpected("integer"))?;
                self.at += 1;
                Ok(value)
            }
            _ => Err(self.unexpected("integer")),
        }
    }

    /// `[[catalog.]db.]name`: the parts.
    pub(crate) fn name_parts(&mut self) -> Result<Vec<String>, SqlError> {
        let mut parts = vec![self.ident()?];
        while parts.len() < 3 && self.eat_token(&Token::Period) {
            parts.push(self.ident()?);
        }
        Ok(parts)
    }

    /// `(a, b, ...)`
    pub(crate) fn ident_list(&mut self) -> Result<Vec<String>, SqlError> {
        self.expect_token(&Token::LParen)?;
        let mut names = vec![self.ident()?];
        while self.eat_token(&Token::Comma) {
            names.push(self.ident()?);
        }
        self.expect_token(&Token::RParen)?;
        Ok(names)
    }

    /// `("k" = "v", ...)`
    pub(crate) fn properties(&mut self) -> Result<BTreeMap<String, String>, SqlError> {
        self.expect_token(&Token::LParen)?;
        let mut out = BTreeMap::new();
        loop {
            let key = match self.peek() {
                Some(Token::SingleQuotedString(_)) => self.string()?,
                _ => self.ident()?,
            };
            self.expect_token(&Token::Eq)?;
            let value = match self.peek() {
                Some(Token::Number(text, _)) => {
                    self.at += 1;
                    text.clone()
                }
                Some(Token::Word(_)) => self.ident()?,
                _ => self.string()?,
            };
            out.insert(key, value);
            if !self.eat_token(&Token::Comma) {
                break;
            }
        }
        self.expect_token(&Token::RParen)?;
        Ok(out)
    }

    /// A type of DDL.
    pub(crate) fn doris_type(&mut self) -> Result<DorisType, SqlError> {
        let start = self.offset();
        let last = self.tokens.last().map_or(start, |t| t.end);
        let (ty, length) = parse_type_prefix(&self.text[start..last]).map_err(SqlError::detail)?;
        let end = start + length;
        while self.tokens.get(self.at).is_some_and(|tok| tok.end <= end) {
            self.at += 1;
        }
        Ok(ty)
    }

    /// Skips a parenthesised group; the cursor stands on `(`.
    pub(crate) fn skip_group(&mut self) -> Result<(), SqlError> {
        self.expect_token(&Token::LParen)?;
        let mut depth = 1;
        while depth > 0 {
            match self.peek() {
                Some(Token::LParen) => depth += 1,
                Some(Token::RParen) => depth -= 1,
                None => return Err(self.unexpected(")")),
                _ => {}
            }
            self.at += 1;
        }
        Ok(())
    }
}
