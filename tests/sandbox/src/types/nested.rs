//! The JSON-like text of ARRAY, MAP and STRUCT values: `[1,'a',null]`, `{"k":1}`, `{k:1}`.

use serde_json::{Map, Value};

/// Reads a nested value; `None` when the text is not one.
pub(super) fn parse(text: &str) -> Option<Value> {
    if let Ok(value) = serde_json::from_str::<Value>(text) {
        return Some(value);
    }
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

    fn value(&mut self, depth: usize) -> Option<Value> {
        if depth > 32 {
            return None;
        }
        self.space();
        match self.bytes.get(self.at)? {
            b'[' => {
                self.at += 1;
                let mut items = Vec::new();
                if self.eat(b']') {
                    return Some(Value::Array(items));
                }
                loop {
                    items.push(self.value(depth + 1)?);
                    if self.eat(b',') {
                        continue;
                    }
                    return self.eat(b']').then_some(Value::Array(items));
                }
            }
            b'{' => {
                self.at += 1;
                let mut entries = Map::new();
                if self.eat(b'}') {
                    return Some(Value::Object(entries));
                }
                loop {
                    let key = match self.value(depth + 1)? {
                        Value::String(key) => key,
                        other => other.to_string(),
                    };
                    if !self.eat(b':') {
                        return None;
                    }
                    entries.insert(key, self.value(depth + 1)?);
                    if self.eat(b',') {
                        continue;
                    }
                    return self.eat(b'}').then_some(Value::Object(entries));
                }
            }
            quote @ (b'\'' | b'"') => self.quoted(*quote),
            _ => {
                let start = self.at;
                while self.bytes.get(self.at).is_some_and(|b| !matches!(b, b',' | b']' | b'}' | b':')) {
                    self.at += 1;
                }
                let word = self.text[start..self.at].trim();
                if word.eq_ignore_ascii_case("null") {
                    return Some(Value::Null);
                }
                if word.is_empty() {
                    return None;
                }
                Some(serde_json::from_str(word).unwrap_or_else(|_| Value::String(word.to_owned())))
            }
        }
    }

    fn quoted(&mut self, quote: u8) -> Option<Value> {
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
                    return String::from_utf8(out).ok().map(Value::String);
                }
                byte => {
                    out.push(byte);
                    self.at += 1;
                }
            }
        }
    }
}
