//! Doris type text: DDL, `DESC`, `SHOW CREATE TABLE`, `COLUMN_TYPE` and `_schema` spell the same types differently.

use std::fmt;

use super::DorisType;

/// Where a type text stands, as far as it changes the meaning.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Dialect {
    /// DDL, `DESC`, `SHOW CREATE TABLE`, `_schema`.
    Ddl,
    /// `information_schema.columns`.
    ColumnType,
}

/// Longest VARCHAR, in bytes.
const VARCHAR_MAX: u32 = 65_533;

impl DorisType {
    /// Reads a type as DDL, `DESC`, `SHOW CREATE TABLE` or the REST schema print it, any case.
    ///
    /// # Errors
    /// The reason, when the text is not a known type.
    pub fn parse(text: &str) -> Result<Self, String> {
        parse(text, Dialect::Ddl)
    }

    /// Reads `information_schema.columns.COLUMN_TYPE`, where `tinyint(1)` is BOOLEAN, `timestamp` is TIMESTAMPTZ and
    /// `bigint unsigned` is LARGEINT.
    ///
    /// # Errors
    /// As [`Self::parse`]; also for STRUCT, whose field names that table does not tell.
    pub fn parse_column_type(text: &str) -> Result<Self, String> {
        parse(text, Dialect::ColumnType)
    }

    /// Reads one column of the REST schema: the primitive `type` name and, for decimals, `precision` and `scale`.
    ///
    /// # Errors
    /// As [`Self::parse`]. Nested types come without their elements there and are refused: use `DESC`.
    pub fn from_rest(type_name: &str, precision: Option<&str>, scale: Option<&str>) -> Result<Self, String> {
        let is_decimal = type_name.trim().get(..7).is_some_and(|start| start.eq_ignore_ascii_case("decimal"));
        match (is_decimal, precision, scale) {
            (true, Some(precision), Some(scale)) => Self::parse(&format!("decimal({precision},{scale})")),
            _ => Self::parse(type_name),
        }
    }
}

fn parse(text: &str, dialect: Dialect) -> Result<DorisType, String> {
    let mut parser = Parser { text, rest: text, dialect };
    let doris_type = parser.data_type()?;
    parser.skip_blanks();
    if parser.rest.is_empty() { Ok(doris_type) } else { Err(parser.fail()) }
}

struct Parser<'a> {
    text: &'a str,
    rest: &'a str,
    dialect: Dialect,
}

impl<'a> Parser<'a> {
    fn fail(&self) -> String {
        format!("unknown Doris type '{}'", self.text)
    }

    fn skip_blanks(&mut self) {
        self.rest = self.rest.trim_start();
    }

    fn eat(&mut self, symbol: char) -> bool {
        self.skip_blanks();
        match self.rest.strip_prefix(symbol) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn expect(&mut self, symbol: char) -> Result<(), String> {
        if self.eat(symbol) { Ok(()) } else { Err(self.fail()) }
    }

    /// The next bare word in lower case, left in place.
    fn peek_word(&self) -> (String, usize) {
        let rest = self.rest.trim_start();
        let blanks = self.rest.len() - rest.len();
        let end = rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len());
        (rest[..end].to_lowercase(), blanks + end)
    }

    fn eat_word(&mut self, wanted: &str) -> bool {
        let (word, end) = self.peek_word();
        if word == wanted {
            self.rest = &self.rest[end..];
        }
        word == wanted
    }

    /// `(n)` or `(n, m)` after a type name; `(*)` counts as absent.
    fn arguments(&mut self) -> Result<Vec<u32>, String> {
        if !self.eat('(') {
            return Ok(Vec::new());
        }
        let close = self.rest.find(')').ok_or_else(|| self.fail())?;
        let inner = &self.rest[..close];
        self.rest = &self.rest[close + 1..];
        if inner.trim() == "*" {
            return Ok(Vec::new());
        }
        inner.split(',').map(|part| part.trim().parse().map_err(|_| self.fail())).collect()
    }

    fn data_type(&mut self) -> Result<DorisType, String> {
        let (word, end) = self.peek_word();
        self.rest = &self.rest[end..];
        match word.as_str() {
            "array" => {
                self.expect('<')?;
                let element = self.element()?;
                self.expect('>')?;
                return Ok(DorisType::Array(Box::new(element)));
            }
            "map" => {
                self.expect('<')?;
                let key = self.element()?;
                self.expect(',')?;
                let value = self.element()?;
                self.expect('>')?;
                return Ok(DorisType::Map(Box::new(key), Box::new(value)));
            }
            "struct" => return self.struct_type(),
            "variant" | "agg_state" => {
                self.skip_angle_brackets()?;
                return Ok(if word == "variant" { DorisType::Variant } else { DorisType::Opaque("AGG_STATE") });
            }
            _ => {}
        }
        let arguments = self.arguments()?;
        let unsigned = self.eat_word("unsigned");
        self.scalar(&word, &arguments, unsigned)
    }

    fn scalar(&self, word: &str, arguments: &[u32], unsigned: bool) -> Result<DorisType, String> {
        let column_type = self.dialect == Dialect::ColumnType;
        if unsigned {
            return if word == "bigint" { Ok(DorisType::LargeInt) } else { Err(self.fail()) };
        }
        let fraction = || match arguments {
            [] => Ok(0),
            [digits @ 0..=6] => Ok(*digits as u8),
            _ => Err(self.fail()),
        };
        let length = |default: u32| match arguments {
            [] => Ok(default),
            [length] => Ok(*length),
            _ => Err(self.fail()),
        };
        Ok(match word {
            "boolean" | "bool" => DorisType::Boolean,
            "tinyint" if column_type && arguments == [1] => DorisType::Boolean,
            "tinyint" => DorisType::TinyInt,
            "smallint" => DorisType::SmallInt,
            "int" | "integer" => DorisType::Int,
            "bigint" => DorisType::BigInt,
            "largeint" => DorisType::LargeInt,
            "float" => DorisType::Float,
            "double" => DorisType::Double,
            "decimal" | "decimalv3" | "decimal32" | "decimal64" | "decimal128" | "decimal128i" | "decimal256"
            | "decimalv2" | "numeric" => self.decimal(word, arguments)?,
            "date" | "datev2" | "datev1" => DorisType::Date,
            "datetime" | "datetimev2" | "datetimev1" => DorisType::DateTime(fraction()?),
            "timestamp" if column_type => DorisType::TimestampTz(fraction()?),
            "timestamp" => DorisType::DateTime(fraction()?),
            "timestamptz" => DorisType::TimestampTz(fraction()?),
            "time" | "timev2" => DorisType::Time(fraction()?),
            "char" => DorisType::Char(length(1)?),
            "varchar" => DorisType::Varchar(length(VARCHAR_MAX)?),
            "string" | "text" => DorisType::String,
            "json" | "jsonb" => DorisType::Json,
            "ipv4" => DorisType::Ipv4,
            "ipv6" => DorisType::Ipv6,
            "bitmap" => DorisType::Opaque("BITMAP"),
            "hll" => DorisType::Opaque("HLL"),
            "quantile_state" => DorisType::Opaque("QUANTILE_STATE"),
            "varbinary" => DorisType::VarBinary,
            "uuid" => DorisType::Uuid,
            "timestamp_ns" => DorisType::TimestampNs,
            _ => return Err(self.fail()),
        })
    }

    fn decimal(&self, word: &str, arguments: &[u32]) -> Result<DorisType, String> {
        let (precision, scale) = match (arguments, word) {
            ([], "decimalv2") => (27, 9),
            // The REST schema names the width; without its precision the widest of that width holds every value.
            ([], "decimal32" | "decimal64" | "decimal128" | "decimal128i" | "decimal256") => {
                return Err(format!("type '{}' comes without precision and scale", self.text));
            }
            ([], _) => (9, 0),
            ([precision], _) => (*precision, 0),
            ([precision, scale], _) => (*precision, *scale),
            _ => return Err(self.fail()),
        };
        if precision == 0 || precision > 76 || scale > precision {
            return Err(self.fail());
        }
        Ok(DorisType::Decimal(precision as u8, scale as u8))
    }

    /// A nested type with what may follow it: nullability and comment.
    fn element(&mut self) -> Result<DorisType, String> {
        let element = self.data_type()?;
        if self.eat_word("not") && !self.eat_word("null") {
            return Err(self.fail());
        }
        self.eat_word("null");
        if self.eat_word("comment") {
            self.skip_blanks();
            let quote = self.rest.chars().next().filter(|c| matches!(c, '\'' | '"')).ok_or_else(|| self.fail())?;
            self.quoted(quote)?;
        }
        Ok(element)
    }

    fn struct_type(&mut self) -> Result<DorisType, String> {
        self.expect('<')?;
        let mut fields = Vec::new();
        loop {
            self.skip_blanks();
            let name = if self.rest.starts_with('`') {
                self.quoted('`')?
            } else {
                let end = self.rest.find([':', ',', '<', '>', '(', ' ']).ok_or_else(|| self.fail())?;
                let name = self.rest[..end].to_owned();
                self.rest = &self.rest[end..];
                name
            };
            if !self.eat(':') {
                return Err(format!("type '{}' does not name its fields", self.text));
            }
            if name.is_empty() {
                return Err(self.fail());
            }
            fields.push((name, self.element()?));
            if self.eat('>') {
                return Ok(DorisType::Struct(fields));
            }
            self.expect(',')?;
        }
    }

    /// A quoted text at the start of the rest; the doubled quote is one quote.
    fn quoted(&mut self, quote: char) -> Result<String, String> {
        let mut out = String::new();
        let mut chars = self.rest.char_indices().skip(1).peekable();
        while let Some((at, c)) = chars.next() {
            if c != quote {
                out.push(c);
            } else if chars.peek().is_some_and(|(_, next)| *next == quote) {
                chars.next();
                out.push(quote);
            } else {
                self.rest = &self.rest[at + quote.len_utf8()..];
                return Ok(out);
            }
        }
        Err(self.fail())
    }

    /// `<…>` with nesting and quoted texts, as VARIANT and AGG_STATE carry it.
    fn skip_angle_brackets(&mut self) -> Result<(), String> {
        if !self.eat('<') {
            return Ok(());
        }
        let mut depth = 1;
        while let Some(c) = self.rest.chars().next() {
            if matches!(c, '\'' | '"' | '`') {
                self.quoted(c)?;
                continue;
            }
            self.rest = &self.rest[c.len_utf8()..];
            match c {
                '<' => depth += 1,
                '>' => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                return Ok(());
            }
        }
        Err(self.fail())
    }
}

/// The type as DDL.
impl fmt::Display for DorisType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let with_fraction = |f: &mut fmt::Formatter<'_>, name: &str, digits: &u8| match digits {
            0 => f.write_str(name),
            _ => write!(f, "{name}({digits})"),
        };
        match self {
            DorisType::Boolean => f.write_str("BOOLEAN"),
            DorisType::TinyInt => f.write_str("TINYINT"),
            DorisType::SmallInt => f.write_str("SMALLINT"),
            DorisType::Int => f.write_str("INT"),
            DorisType::BigInt => f.write_str("BIGINT"),
            DorisType::LargeInt => f.write_str("LARGEINT"),
            DorisType::Float => f.write_str("FLOAT"),
            DorisType::Double => f.write_str("DOUBLE"),
            DorisType::Decimal(precision, scale) => write!(f, "DECIMAL({precision}, {scale})"),
            DorisType::Date => f.write_str("DATE"),
            DorisType::DateTime(digits) => with_fraction(f, "DATETIME", digits),
            DorisType::TimestampTz(digits) => with_fraction(f, "TIMESTAMPTZ", digits),
            DorisType::Time(digits) => with_fraction(f, "TIME", digits),
            DorisType::Char(length) => write!(f, "CHAR({length})"),
            DorisType::Varchar(length) => write!(f, "VARCHAR({length})"),
            DorisType::String => f.write_str("STRING"),
            DorisType::Json => f.write_str("JSON"),
            DorisType::Variant => f.write_str("VARIANT"),
            DorisType::Ipv4 => f.write_str("IPV4"),
            DorisType::Ipv6 => f.write_str("IPV6"),
            DorisType::Uuid => f.write_str("UUID"),
            DorisType::TimestampNs => f.write_str("TIMESTAMP_NS"),
            DorisType::VarBinary => f.write_str("VARBINARY"),
            DorisType::Opaque(name) => f.write_str(name),
            DorisType::Unknown(text) => f.write_str(text),
            DorisType::Array(element) => write!(f, "ARRAY<{element}>"),
            DorisType::Map(key, value) => write!(f, "MAP<{key}, {value}>"),
            DorisType::Struct(fields) => {
                f.write_str("STRUCT<")?;
                for (i, (name, field)) in fields.iter().enumerate() {
                    let separator = if i == 0 { "" } else { ", " };
                    write!(f, "{separator}{}: {field}", crate::sql::quote_ident(name))?;
                }
                f.write_str(">")
            }
        }
    }
}
