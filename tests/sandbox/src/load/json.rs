//! JSON rows without loss: numbers keep their digits, because no value passes through a double.

mod path;

use std::borrow::Cow;

pub use self::path::JsonPath;

/// Nesting beyond which a document is refused.
const MAX_DEPTH: usize = 128;

/// One value of a row object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value<'a> {
    /// `null`.
    Null,
    /// A number, `true` or `false`, as written.
    Literal(&'a str),
    /// A string, unescaped.
    Text(Cow<'a, str>),
    /// An object or an array, as written.
    Nested(Cow<'a, str>),
}

/// Reads JSON text from its start.
pub struct Scanner<'a> {
    text: &'a str,
    at: usize,
}

/// Why a text is not JSON, and at which byte.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonError {
    /// What was expected or found.
    pub what: &'static str,
    /// Byte offset.
    pub at: usize,
}

impl<'a> Scanner<'a> {
    /// Reads `text`.
    pub fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    /// The whole text.
    pub fn text(&self) -> &'a str {
        self.text
    }

    fn error<T>(&self, what: &'static str) -> Result<T, JsonError> {
        Err(JsonError { what, at: self.at })
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn blanks(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    /// Passes over `byte` if it comes next.
    fn eat(&mut self, byte: u8) -> bool {
        self.blanks();
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    /// True when only blanks are left.
    pub fn at_end(&mut self) -> bool {
        self.blanks();
        self.at == self.text.len()
    }

    /// What is left behind the blanks.
    pub fn rest(&mut self) -> &'a str {
        self.blanks();
        &self.text[self.at..]
    }

    /// Passes over any value; its text.
    ///
    /// # Errors
    /// The text is not JSON here.
    pub fn raw(&mut self) -> Result<&'a str, JsonError> {
        self.blanks();
        let start = self.at;
        self.skip(0)?;
        Ok(&self.text[start..self.at])
    }

    /// Enters an array; false when something else comes next.
    pub fn enter_array(&mut self) -> bool {
        self.eat(b'[')
    }

    /// Whether another element of an entered array follows.
    ///
    /// # Errors
    /// Neither a comma nor the closing bracket follows.
    pub fn next_element(&mut self, first: bool) -> Result<bool, JsonError> {
        if self.eat(b']') {
            return Ok(false);
        }
        if !first && !self.eat(b',') {
            return self.error("expected a comma or a closing bracket");
        }
        Ok(true)
    }

    /// Reads an object, giving each member to `member`.
    ///
    /// # Errors
    /// The text is not an object here, or not JSON.
    pub fn object(&mut self, mut member: impl FnMut(Cow<'a, str>, Value<'a>)) -> Result<(), JsonError> {
        if !self.eat(b'{') {
            return self.error("expected an object");
        }
        if self.eat(b'}') {
            return Ok(());
        }
        loop {
            self.blanks();
            let key = self.string()?;
            if !self.eat(b':') {
                return self.error("expected a colon");
            }
            let value = self.value()?;
            member(key, value);
            if self.eat(b'}') {
                return Ok(());
            }
            if !self.eat(b',') {
                return self.error("expected a comma or a closing brace");
            }
        }
    }

    /// Reads any value.
    ///
    /// # Errors
    /// The text is not JSON here.
    pub fn value(&mut self) -> Result<Value<'a>, JsonError> {
        self.blanks();
        let start = self.at;
        match self.peek() {
            Some(b'"') => self.string().map(Value::Text),
            Some(b'{' | b'[') => {
                self.skip(0)?;
                Ok(Value::Nested(Cow::Borrowed(&self.text[start..self.at])))
            }
            Some(b'n') => self.word("null").map(|()| Value::Null),
            Some(_) => {
                self.skip(0)?;
                Ok(Value::Literal(&self.text[start..self.at]))
            }
            None => self.error("unexpected end"),
        }
    }

    fn word(&mut self, word: &str) -> Result<(), JsonError> {
        if !self.text.as_bytes()[self.at..].starts_with(word.as_bytes()) {
            return self.error("unknown literal");
        }
        self.at += word.len();
        Ok(())
    }

    fn skip(&mut self, depth: usize) -> Result<(), JsonError> {
        if depth > MAX_DEPTH {
            return self.error("nested too deep");
        }
        self.blanks();
        match self.peek() {
            Some(b'"') => self.string().map(drop),
            Some(b'{') => {
                self.at += 1;
                if self.eat(b'}') {
                    return Ok(());
                }
                loop {
                    self.blanks();
                    self.string()?;
                    if !self.eat(b':') {
                        return self.error("expected a colon");
                    }
                    self.skip(depth + 1)?;
                    if self.eat(b'}') {
                        return Ok(());
                    }
                    if !self.eat(b',') {
                        return self.error("expected a comma or a closing brace");
                    }
                }
            }
            Some(b'[') => {
                self.at += 1;
                let mut first = true;
                while self.next_element(first)? {
                    self.skip(depth + 1)?;
                    first = false;
                }
                Ok(())
            }
            Some(b't') => self.word("true"),
            Some(b'f') => self.word("false"),
            Some(b'n') => self.word("null"),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(_) => self.error("unexpected character"),
            None => self.error("unexpected end"),
        }
    }

    fn digits(&mut self) -> Result<(), JsonError> {
        let start = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        if start == self.at { self.error("expected a digit") } else { Ok(()) }
    }

    fn number(&mut self) -> Result<(), JsonError> {
        self.at += usize::from(self.peek() == Some(b'-'));
        if self.peek() == Some(b'0') {
            self.at += 1;
        } else {
            self.digits()?;
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            self.at += usize::from(matches!(self.peek(), Some(b'+' | b'-')));
            self.digits()?;
        }
        Ok(())
    }

    fn string(&mut self) -> Result<Cow<'a, str>, JsonError> {
        if self.peek() != Some(b'"') {
            return self.error("expected a string");
        }
        self.at += 1;
        let start = self.at;
        let bytes = self.text.as_bytes();
        // The plain case is a slice of the input.
        while let Some(&b) = bytes.get(self.at) {
            match b {
                b'"' => {
                    self.at += 1;
                    return Ok(Cow::Borrowed(&self.text[start..self.at - 1]));
                }
                b'\\' => return self.escaped(start).map(Cow::Owned),
                0..=0x1f => return self.error("control character in a string"),
                _ => self.at += 1,
            }
        }
        self.error("unterminated string")
    }

    fn escaped(&mut self, start: usize) -> Result<String, JsonError> {
        let mut out = self.text[start..self.at].to_owned();
        let mut plain = self.at;
        while let Some(b) = self.peek() {
            match b {
                b'"' => {
                    out.push_str(&self.text[plain..self.at]);
                    self.at += 1;
                    return Ok(out);
                }
                b'\\' => {
                    out.push_str(&self.text[plain..self.at]);
                    self.at += 1;
                    out.push(self.escape()?);
                    plain = self.at;
                }
                0..=0x1f => return self.error("control character in a string"),
                _ => self.at += 1,
            }
        }
        self.error("unterminated string")
    }

    fn escape(&mut self) -> Result<char, JsonError> {
        let Some(b) = self.peek() else { return self.error("unterminated string") };
        self.at += 1;
        Ok(match b {
            b'"' => '"',
            b'\\' => '\\',
            b'/' => '/',
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => return self.unicode(),
            _ => return self.error("unknown escape"),
        })
    }

    fn unicode(&mut self) -> Result<char, JsonError> {
        let high = self.hex4()?;
        let code = if (0xd800..0xdc00).contains(&high) {
            if !self.text.as_bytes()[self.at..].starts_with(b"\\u") {
                return self.error("lone surrogate");
            }
            self.at += 2;
            let low = self.hex4()?;
            if !(0xdc00..0xe000).contains(&low) {
                return self.error("lone surrogate");
            }
            0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00)
        } else {
            high
        };
        char::from_u32(code).map_or_else(|| self.error("lone surrogate"), Ok)
    }

    fn hex4(&mut self) -> Result<u32, JsonError> {
        let digits = self.text.get(self.at..self.at + 4).filter(|d| d.bytes().all(|b| b.is_ascii_hexdigit()));
        match digits.and_then(|d| u32::from_str_radix(d, 16).ok()) {
            Some(code) => {
                self.at += 4;
                Ok(code)
            }
            None => self.error("expected four hex digits"),
        }
    }
}

#[cfg(test)]
mod tests;
