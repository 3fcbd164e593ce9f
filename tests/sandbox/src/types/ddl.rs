//! Type text of DDL and CAST.

use super::{DorisType, VARCHAR_MAX};

/// Reads a whole type text.
///
/// # Errors
/// A text that is not a type, a type Doris has and the sandbox does not store, or parameters out of range.
pub fn parse_type(text: &str) -> Result<DorisType, String> {
    let (ty, end) = parse_type_prefix(text)?;
    let rest = text[end..].trim();
    if rest.is_empty() { Ok(ty) } else { Err(format!("unexpected text `{rest}` after type `{}`", text[..end].trim())) }
}

/// Reads a type at the start of a text and gives the byte offset behind it.
///
/// # Errors
/// As [`parse_type`].
pub fn parse_type_prefix(text: &str) -> Result<(DorisType, usize), String> {
    let mut cursor = Cursor { text, at: 0 };
    let ty = cursor.read_type(0)?;
    Ok((ty, cursor.at))
}

struct Cursor<'a> {
    text: &'a str,
    at: usize,
}

impl Cursor<'_> {
    fn skip_space(&mut self) {
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_start().len();
    }

    fn peek(&mut self) -> Option<char> {
        self.skip_space();
        self.text[self.at..].chars().next()
    }

    fn eat(&mut self, c: char) -> bool {
        let found = self.peek() == Some(c);
        if found {
            self.at += c.len_utf8();
        }
        found
    }

    fn expect(&mut self, c: char) -> Result<(), String> {
        if self.eat(c) { Ok(()) } else { Err(format!("expected `{c}` in type `{}`", self.text.trim())) }
    }

    fn word(&mut self) -> String {
        self.skip_space();
        if let Some(rest) = self.text[self.at..].strip_prefix('`') {
            let end = rest.find('`').unwrap_or(rest.len());
            self.at += (end + 2).min(self.text.len() - self.at);
            return rest[..end].to_owned();
        }
        let rest = &self.text[self.at..];
        let end = rest.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == '$')).unwrap_or(rest.len());
        self.at += end;
        rest[..end].to_owned()
    }

    fn numbers(&mut self) -> Result<Vec<u32>, String> {
        let mut out = Vec::new();
        if !self.eat('(') {
            return Ok(out);
        }
        loop {
            let word = self.word();
            if word == "*" || (word.is_empty() && self.eat('*')) {
                out.push(VARCHAR_MAX);
            } else {
                out.push(word.parse().map_err(|_| format!("bad number `{word}` in type `{}`", self.text.trim()))?);
            }
            if !self.eat(',') {
                break;
            }
        }
        self.expect(')')?;
        Ok(out)
    }

    fn read_type(&mut self, depth: usize) -> Result<DorisType, String> {
        if depth > 9 {
            return Err("type nesting depth exceeds 9".to_owned());
        }
        let name = self.word();
        let upper = name.to_ascii_uppercase();
        let simple = |ty: DorisType| Ok(ty);
        match upper.as_str() {
            "BOOLEAN" | "BOOL" => simple(DorisType::Boolean),
            "TINYINT" => self.display_width(DorisType::TinyInt),
            "SMALLINT" => self.display_width(DorisType::SmallInt),
            "INT" | "INTEGER" => self.display_width(DorisType::Int),
            "BIGINT" => self.display_width(DorisType::BigInt),
            "LARGEINT" => self.display_width(DorisType::LargeInt),
            "FLOAT" => simple(DorisType::Float),
            "DOUBLE" => {
                let mark = self.at;
                if !self.word().eq_ignore_ascii_case("PRECISION") {
                    self.at = mark;
                }
                simple(DorisType::Double)
            }
            "DECIMAL" | "DECIMALV3" | "NUMERIC" => self.decimal(),
            "DECIMALV2" => Err("the sandbox does not implement type DECIMALV2".to_owned()),
            "CHAR" | "CHARACTER" => match self.numbers()?.as_slice() {
                [] => Ok(DorisType::Char(1)),
                [n] if (1..=255).contains(n) => Ok(DorisType::Char(*n)),
                [n] => Err(format!("char size must be <= 255: {n}")),
                _ => Err("char takes one length".to_owned()),
            },
            "VARCHAR" => match self.numbers()?.as_slice() {
                [] => Ok(DorisType::Varchar(VARCHAR_MAX)),
                [n] if (1..=VARCHAR_MAX).contains(n) => Ok(DorisType::Varchar(*n)),
                [n] => Err(format!("varchar size must be <= {VARCHAR_MAX}: {n}")),
                _ => Err("varchar takes one length".to_owned()),
            },
            "STRING" | "TEXT" => {
                self.numbers()?;
                simple(DorisType::String)
            }
            "DATE" | "DATEV2" => simple(DorisType::Date),
            "DATETIME" | "DATETIMEV2" | "TIMESTAMP" => self.fraction_digits().map(DorisType::DateTime),
            "JSON" | "JSONB" => simple(DorisType::Json),
            "VARIANT" => simple(DorisType::Variant),
            "IPV4" => simple(DorisType::Ipv4),
            "IPV6" => simple(DorisType::Ipv6),
            "ARRAY" => {
                self.expect('<')?;
                let item = self.read_type(depth + 1)?;
                self.optional_null();
                self.expect('>')?;
                Ok(DorisType::Array(Box::new(item)))
            }
            "MAP" => {
                self.expect('<')?;
                let key = self.read_type(depth + 1)?;
                self.expect(',')?;
                let value = self.read_type(depth + 1)?;
                self.expect('>')?;
                Ok(DorisType::Map(Box::new(key), Box::new(value)))
            }
            "STRUCT" => {
                self.expect('<')?;
                let mut fields: Vec<(String, DorisType)> = Vec::new();
                loop {
                    let name = self.word();
                    if name.is_empty() {
                        return Err(format!("expected a field name in type `{}`", self.text.trim()));
                    }
                    if fields.iter().any(|(known, _)| known.eq_ignore_ascii_case(&name)) {
                        return Err(format!("Duplicate field name {name} in struct"));
                    }
                    self.eat(':');
                    fields.push((name, self.read_type(depth + 1)?));
                    self.optional_null();
                    if !self.eat(',') {
                        break;
                    }
                }
                self.expect('>')?;
                Ok(DorisType::Struct(fields))
            }
            "BITMAP" => simple(DorisType::Bitmap),
            "HLL" => simple(DorisType::Hll),
            "TIME" | "TIMEV2" => self.fraction_digits().map(DorisType::Time),
            "TIMESTAMPTZ" => self.fraction_digits().map(DorisType::TimestampTz),
            "QUANTILE_STATE" | "AGG_STATE" | "VARBINARY" | "UUID" | "TIMESTAMP_NS" => {
                Err(format!("the sandbox does not implement type {upper}"))
            }
            "" => Err(format!("expected a type at `{}`", self.text[self.at..].chars().take(20).collect::<String>())),
            _ => Err(format!("unknown type `{name}`")),
        }
    }

    /// `INT(11)`: the width is accepted and dropped.
    fn display_width(&mut self, ty: DorisType) -> Result<DorisType, String> {
        self.numbers()?;
        Ok(ty)
    }

    /// Digits of a fraction of a second, 0 to 6.
    fn fraction_digits(&mut self) -> Result<u8, String> {
        match self.numbers()?.as_slice() {
            [] => Ok(0),
            [p] if *p <= 6 => Ok(*p as u8),
            [p] => Err(format!("Scale of Datetime/Time must between 0 and 6. Scale was set to: {p}")),
            _ => Err("datetime takes one scale".to_owned()),
        }
    }

    fn optional_null(&mut self) {
        let mark = self.at;
        let word = self.word();
        if word.eq_ignore_ascii_case("NULL") {
            return;
        }
        self.at = mark;
    }

    fn decimal(&mut self) -> Result<DorisType, String> {
        let (precision, scale) = match self.numbers()?.as_slice() {
            [] => (38, 9),
            [p] => (*p, 0),
            [p, s] => (*p, *s),
            _ => return Err("decimal takes precision and scale".to_owned()),
        };
        if !(1..=76).contains(&precision) {
            return Err(format!("decimal precision should between 1 and 76, but was {precision}"));
        }
        if scale > precision {
            return Err(format!("scale of decimal must between 0 and precision. Scale was set to: {scale}"));
        }
        Ok(DorisType::Decimal { precision: precision as u8, scale: scale as u8 })
    }
}
