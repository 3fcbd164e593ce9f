//! The JSON-like text of ARRAY, MAP and STRUCT values: `[1,'a',null]`, `{"k":1}`, `{k:1}`. Numbers keep their digits, so
//! that LARGEINT and DECIMAL elements lose none.

use serde_json::Value;

/// A value as written, before its type is known.
#[derive(Debug, Clone, PartialEq)]
pub enum Nested {
    /// NULL
    Null,
    /// `true` or `false`
    Bool(bool),
    /// A number's text.
    Number(String),
    /// A text, or a word that is nothing else.
    Text(String),
    /// `[...]`
    List(Vec<Nested>),
    /// `{key: value, ...}` in the order of the text.
    Entries(Vec<(Nested, Nested)>),
}

impl Nested {
    /// The text of a scalar, as it would stand alone; JSON text of the others.
    pub fn text(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            other => other.json(),
        }
    }

    /// JSON text.
    pub fn json(&self) -> String {
        match self {
            Self::Null => "null".to_owned(),
            Self::Bool(flag) => flag.to_string(),
            Self::Number(text) => text.clone(),
            Self::Text(text) => Value::String(text.clone()).to_string(),
            Self::List(items) => {
                let items: Vec<String> = items.iter().map(Self::json).collect();
                format!("[{}]", items.join(","))
            }
            Self::Entries(entries) => {
                let entries: Vec<String> = entries
                    .iter()
                    .map(|(key, value)| format!("{}:{}", Self::Text(key.text()).json(), value.json()))
                    .collect();
                format!("{{{}}}", entries.join(","))
            }
        }
    }
}

impl From<&Value> for Nested {
    fn from(value: &Value) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Bool(flag) => Self::Bool(*flag),
            Value::Number(number) => Self::Number(number.to_string()),
            Value::String(text) => Self::Text(text.clone()),
            Value::Array(items) => Self::List(items.iter().map(Self::from).collect()),
            Value::Object(entries) => {
                Self::Entries(entries.iter().map(|(key, value)| (Self::Text(key.clone()), Self::from(value))).collect())
            }
        }
    }
}

/// Reads a nested value; `None` when the text is not one.
pub fn parse(text: &str) -> Option<Nested> {
    let mut reader = Reader { bytes: text.as_bytes(), text, at: 0 };
    let value = reader.value(0)?;
    reader.space();
    (reader.at == text.len()).then_some(value)
}

struct Reader<'a> {
    bytes: &'a [u8],
    text: &'a str,
    at: usize,
}

impl Reader<'_> {
    fn space(&mut self) {
        while self.bytes.get(self.at).is_some_and(u8::is_ascii_whitespace) {
            self.at += 1;
        }
    }

    fn eat(&mut self, byte: u8) -> bool {
        self.space();
        let found = self.bytes.get(self.at) == Some(&byte);
        self.at += usize::from(found);
        found
    }

    fn value(&mut self, depth: usize) -> Option<Nested> {
        if depth > 32 {
            return None;
        }
        self.space();
        match self.bytes.get(self.at)? {
            b'[' => {
                self.at += 1;
                let mut items = Vec::new();
                if self.eat(b']') {
                    return Some(Nested::List(items));
                }
                loop {
                    items.push(self.value(depth + 1)?);
                    if self.eat(b',') {
                        continue;
                    }
                    return self.eat(b']').then_some(Nested::List(items));
                }
            }
            b'{' => {
                self.at += 1;
                let mut entries = Vec::new();
                if self.eat(b'}') {
                    return Some(Nested::Entries(entries));
                }
                loop {
                    let key = self.value(depth + 1)?;
                    if !self.eat(b':') {
                        return None;
                    }
                    entries.push((key, self.value(depth + 1)?));
                    if self.eat(b',') {
                        continue;
                    }
                    return self.eat(b'}').then_some(Nested::Entries(entries));
                }
            }
            b'"' => self.json_string().or_else(|| self.quoted(b'"')),
            b'\'' => self.quoted(b'\''),
            _ => {
                let start = self.at;
                while self.bytes.get(self.at).is_some_and(|b| !matches!(b, b',' | b']' | b'}' | b':')) {
                    self.at += 1;
                }
                let word = self.text[start..self.at].trim();
                if word.is_empty() {
                    return None;
                }
                Some(match word {
                    _ if word.eq_ignore_ascii_case("null") => Nested::Null,
                    "true" => Nested::Bool(true),
                    "false" => Nested::Bool(false),
                    _ if is_number(word) => Nested::Number(word.to_owned()),
                    _ => Nested::Text(word.to_owned()),
                })
            }
        }
    }

    /// A string with the escapes of JSON.
    fn json_string(&mut self) -> Option<Nested> {
        let mut end = self.at + 1;
        loop {
            match *self.bytes.get(end)? {
                b'\\' => end += 2,
                b'"' => break,
                _ => end += 1,
            }
        }
        let text = serde_json::from_str::<String>(self.text.get(self.at..=end)?).ok()?;
        self.at = end + 1;
        Some(Nested::Text(text))
    }

    fn quoted(&mut self, quote: u8) -> Option<Nested> {
        self.at += 1;
        let mut out = Vec::new();
        loop {
            match *self.bytes.get(self.at)? {
                b'\\' => {
                    out.push(*self.bytes.get(self.at + 1)?);
                    self.at += 2;
                }
                byte if byte == quote => {
                    self.at += 1;
                    return String::from_utf8(out).ok().map(Nested::Text);
                }
                byte => {
                    out.push(byte);
                    self.at += 1;
                }
            }
        }
    }
}

/// A number as JSON writes them.
fn is_number(word: &str) -> bool {
    let starts = word.as_bytes().first().is_some_and(|b| b.is_ascii_digit() || *b == b'-');
    starts && serde_json::from_str::<serde::de::IgnoredAny>(word).is_ok()
}
