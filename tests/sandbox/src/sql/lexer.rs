//! Doris's tokens: strings with its escapes, backticks, three comment forms, hints, `||` and `&&` as logic.

use datafusion::sql::sqlparser::tokenizer::Token;

use crate::error::SqlError;

/// A token and where its text stands.
#[derive(Debug, Clone)]
pub(crate) struct Tok {
    pub(crate) token: Token,
    pub(crate) start: usize,
    pub(crate) end: usize,
}

/// One statement: its tokens and the bodies of its `/*+ */` hints.
#[derive(Debug, Clone, Default)]
pub(crate) struct Statement {
    pub(crate) tokens: Vec<Tok>,
    pub(crate) hints: Vec<String>,
}

/// `expr_depth_limit`: levels of nesting, and operators in a row that each make the tree one level deeper.
const MAX_DEPTH: usize = 3000;

impl Statement {
    /// Whether the statement returns rows, told from its first word.
    pub(crate) fn returns_rows(&self) -> bool {
        self.tokens.iter().find(|tok| tok.token != Token::LParen).is_some_and(|tok| match &tok.token {
            Token::Word(word) => ["SELECT", "WITH", "SHOW", "DESC", "DESCRIBE", "EXPLAIN", "VALUES"]
                .iter()
                .any(|first| word.quote_style.is_none() && word.value.eq_ignore_ascii_case(first)),
            _ => false,
        })
    }

    /// Gives `||` the meaning of `PIPES_AS_CONCAT`.
    pub(crate) fn concat_pipes(&mut self, text: &str) {
        let pipes = self.tokens.iter_mut().filter(|tok| &text[tok.start..tok.end] == "||");
        pipes.for_each(|tok| tok.token = Token::StringConcat);
    }

    /// Where its text begins and ends.
    pub(crate) fn span(&self) -> (usize, usize) {
        let start = self.tokens.first().map_or(0, |tok| tok.start);
        (start, self.tokens.last().map_or(start, |tok| tok.end))
    }

    /// Where its `?` stand.
    pub(crate) fn placeholders(&self) -> Vec<usize> {
        let marks = self.tokens.iter().filter(|tok| matches!(tok.token, Token::Placeholder(_)));
        marks.map(|tok| tok.start).collect()
    }

    /// The first word in upper case, parentheses passed over.
    pub(crate) fn first_word(&self) -> Option<String> {
        match self.tokens.iter().map(|tok| &tok.token).find(|token| **token != Token::LParen) {
            Some(Token::Word(word)) if word.quote_style.is_none() => Some(word.value.to_ascii_uppercase()),
            _ => None,
        }
    }

    /// Refuses what is nested too deeply to be parsed; the tree that comes of it is measured again.
    ///
    /// # Errors
    /// What is too large.
    pub(crate) fn check_size(&self) -> Result<(), SqlError> {
        let (mut depth, mut prefixes) = (0usize, 0usize);
        let mut chains = vec![0usize];
        for tok in &self.tokens {
            let prefix = match &tok.token {
                Token::LParen | Token::LBracket => {
                    depth += 1;
                    chains.push(0);
                    false
                }
                Token::RParen | Token::RBracket => {
                    depth = depth.saturating_sub(1);
                    chains.pop();
                    false
                }
                Token::Comma => {
                    chains.last_mut().into_iter().for_each(|chain| *chain = 0);
                    false
                }
                Token::Minus | Token::Plus | Token::Mul | Token::Div | Token::Mod => true,
                Token::Word(word) if word.quote_style.is_none() && word.value.eq_ignore_ascii_case("NOT") => true,
                _ => false,
            };
            prefixes = if prefix { prefixes + 1 } else { 0 };
            if prefix {
                chains.last_mut().into_iter().for_each(|chain| *chain += 1);
            }
            if depth > MAX_DEPTH || prefixes > MAX_DEPTH || chains.last().is_some_and(|chain| *chain > MAX_DEPTH) {
                return Err(SqlError::detail(format!(
                    "Exceeded the maximum depth of an expression tree ({MAX_DEPTH})."
                )));
            }
        }
        Ok(())
    }
}

/// Splits a text into statements at `;`. Empty statements are dropped.
pub(crate) fn statements(text: &str, backslash_escapes: bool) -> Result<Vec<Statement>, SqlError> {
    let mut lexer = Lexer { text, bytes: text.as_bytes(), at: 0, backslash_escapes };
    let mut out = vec![Statement::default()];
    while let Some(item) = lexer.next()? {
        let Some(current) = out.last_mut() else { break };
        match item {
            Item::Hint(body) => current.hints.push(body),
            Item::Tok(tok) if tok.token == Token::SemiColon => out.push(Statement::default()),
            Item::Tok(tok) => current.tokens.push(tok),
        }
    }
    out.retain(|statement| !statement.tokens.is_empty());
    Ok(out)
}

enum Item {
    Tok(Tok),
    Hint(String),
}

struct Lexer<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
    backslash_escapes: bool,
}

impl Lexer<'_> {
    fn peek(&self, ahead: usize) -> u8 {
        self.bytes.get(self.at + ahead).copied().unwrap_or(0)
    }

    fn next(&mut self) -> Result<Option<Item>, SqlError> {
        loop {
            let Some(&byte) = self.bytes.get(self.at) else { return Ok(None) };
            match byte {
                b if b.is_ascii_whitespace() => self.at += 1,
                b'#' => self.skip_line(),
                b'-' if self.peek(1) == b'-' => self.skip_line(),
                b'/' if self.peek(1) == b'*' => {
                    let rest = &self.text[self.at + 2..];
                    let Some(end) = rest.find("*/") else {
                        return Err(SqlError::syntax("unterminated bracketed comment"));
                    };
                    self.at += end + 4;
                    if let Some(hint) = rest[..end].strip_prefix('+') {
                        return Ok(Some(Item::Hint(hint.to_owned())));
                    }
                }
                _ => break,
            }
        }
        let start = self.at;
        let token = self.token()?;
        Ok(Some(Item::Tok(Tok { token, start, end: self.at })))
    }

    fn skip_line(&mut self) {
        while self.at < self.bytes.len() && self.bytes[self.at] != b'\n' {
            self.at += 1;
        }
    }

    fn token(&mut self) -> Result<Token, SqlError> {
        let byte = self.peek(0);
        match byte {
            b'\'' | b'"' => self.string(byte).map(Token::SingleQuotedString),
            b'`' => self.backticked(),
            b'0'..=b'9' => Ok(self.number()),
            b'.' if self.peek(1).is_ascii_digit() && !self.after_name() => Ok(self.number()),
            b if b.is_ascii_alphabetic() || b == b'_' || b == b'$' || b >= 0x80 => Ok(self.word()),
            _ => self.operator(),
        }
    }

    /// Whether the byte before is part of a name, so that `.` is a qualifier.
    fn after_name(&self) -> bool {
        self.at > 0 && matches!(self.bytes[self.at - 1], b'`' | b'_' | b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9')
    }

    fn word(&mut self) -> Token {
        let start = self.at;
        while self.at < self.bytes.len() {
            let b = self.bytes[self.at];
            if b.is_ascii_alphanumeric() || b == b'_' || b == b'$' || b >= 0x80 {
                self.at += 1;
            } else {
                break;
            }
        }
        Token::make_word(&self.text[start..self.at], None)
    }

    fn number(&mut self) -> Token {
        let start = self.at;
        let digits = |lexer: &mut Self| {
            while lexer.peek(0).is_ascii_digit() {
                lexer.at += 1;
            }
        };
        digits(self);
        if self.peek(0) == b'.' {
            self.at += 1;
            digits(self);
        }
        if matches!(self.peek(0), b'e' | b'E') {
            let sign = usize::from(matches!(self.peek(1), b'+' | b'-'));
            if self.peek(1 + sign).is_ascii_digit() {
                self.at += 1 + sign;
                digits(self);
            }
        }
        let body = &self.text[start..self.at];
        if body.bytes().all(|b| b.is_ascii_digit()) && (self.peek(0).is_ascii_alphabetic() || self.peek(0) == b'_') {
            // A name may start with a digit.
            while self.peek(0).is_ascii_alphanumeric() || self.peek(0) == b'_' {
                self.at += 1;
            }
            return Token::make_word(&self.text[start..self.at], None);
        }
        Token::Number(body.to_owned(), false)
    }

    fn backticked(&mut self) -> Result<Token, SqlError> {
        let mut name = String::new();
        let mut rest = &self.text[self.at + 1..];
        let whole = rest.len();
        loop {
            let Some(end) = rest.find('`') else { return Err(SqlError::syntax("unterminated backtick")) };
            name.push_str(&rest[..end]);
            rest = &rest[end + 1..];
            match rest.strip_prefix('`') {
                Some(more) => {
                    name.push('`');
                    rest = more;
                }
                None => break,
            }
        }
        self.at += 1 + whole - rest.len();
        Ok(Token::make_word(&name, Some('`')))
    }

    /// A quoted string. `\0 \b \n \r \t \Z` are control characters, `\%` and `\_` keep their backslash, any other `\x` is `x`.
    fn string(&mut self, quote: u8) -> Result<String, SqlError> {
        self.at += 1;
        let mut out: Vec<u8> = Vec::new();
        loop {
            let Some(&byte) = self.bytes.get(self.at) else {
                return Err(SqlError::syntax("unterminated string literal"));
            };
            self.at += 1;
            if byte == quote {
                if self.peek(0) == quote {
                    out.push(quote);
                    self.at += 1;
                    continue;
                }
                return String::from_utf8(out).map_err(|_| SqlError::syntax("string literal is not valid UTF-8"));
            }
            if byte != b'\\' || !self.backslash_escapes {
                out.push(byte);
                continue;
            }
            let Some(&escaped) = self.bytes.get(self.at) else {
                return Err(SqlError::syntax("unterminated string literal"));
            };
            self.at += 1;
            match escaped {
                b'0' => out.push(0),
                b'b' => out.push(8),
                b'n' => out.push(b'\n'),
                b'r' => out.push(b'\r'),
                b't' => out.push(b'\t'),
                b'Z' => out.push(26),
                b'%' | b'_' => out.extend([b'\\', escaped]),
                other => out.push(other),
            }
        }
    }

    fn operator(&mut self) -> Result<Token, SqlError> {
        let (token, length) = match (self.peek(0), self.peek(1), self.peek(2)) {
            (b'<', b'=', b'>') => (Token::Spaceship, 3),
            (b'<', b'=', _) => (Token::LtEq, 2),
            (b'<', b'>', _) | (b'!', b'=', _) => (Token::Neq, 2),
            (b'<', ..) => (Token::Lt, 1),
            (b'>', b'=', _) => (Token::GtEq, 2),
            (b'>', ..) => (Token::Gt, 1),
            (b'=', b'=', _) => (Token::Eq, 2),
            (b'=', ..) => (Token::Eq, 1),
            (b'|', b'|', _) => (Token::make_keyword("OR"), 2),
            (b'&', b'&', _) => (Token::make_keyword("AND"), 2),
            (b'!', ..) => (Token::ExclamationMark, 1),

            (b'+', ..) => (Token::Plus, 1),
            (b'-', b'>', _) => (Token::Arrow, 2),
            (b'-', ..) => (Token::Minus, 1),
            (b'*', ..) => (Token::Mul, 1),
            (b'/', ..) => (Token::Div, 1),
            (b'%', ..) => (Token::Mod, 1),
            (b',', ..) => (Token::Comma, 1),
            (b'(', ..) => (Token::LParen, 1),
            (b')', ..) => (Token::RParen, 1),
            (b'[', ..) => (Token::LBracket, 1),
            (b']', ..) => (Token::RBracket, 1),
            (b'{', ..) => (Token::LBrace, 1),
            (b'}', ..) => (Token::RBrace, 1),
            (b'.', ..) => (Token::Period, 1),
            (b':', ..) => (Token::Colon, 1),
            (b';', ..) => (Token::SemiColon, 1),
            (b'@', ..) => (Token::AtSign, 1),
            (b'&', ..) => (Token::Ampersand, 1),
            (b'|', ..) => (Token::Pipe, 1),
            (b'^', ..) => (Token::Caret, 1),
            (b'~', ..) => (Token::Tilde, 1),
            (b'?', ..) => (Token::Placeholder("?".to_owned()), 1),
            (other, ..) => {
                return Err(SqlError::syntax(format!("extraneous input '{}' in statement", other as char)));
            }
        };
        self.at += length;
        Ok(token)
    }
}
