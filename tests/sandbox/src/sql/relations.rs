//! What stands in FROM: `TABLET(..)`, `PARTITION(..)` and `@incr(..)` are taken out of the tokens before parsing, and the
//! names are bound to snapshots.

use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::Token;

use super::changes;
use super::lexer::Tok;
use super::tvf::{self, TableFunction};
use crate::changelog::{IncrSpec, Travel};
use crate::engine::Profile;
use crate::error::SqlError;
use crate::session::Session;

/// A table with read hints.
#[derive(Debug, Clone, Default)]
pub(super) struct ScanSpec {
    /// `[[catalog.]db.]table`
    pub(super) parts: Vec<String>,
    pub(super) tablets: Option<Vec<u64>>,
    pub(super) partitions: Option<Vec<String>>,
    pub(super) incr: Option<IncrSpec>,
    /// `@snapshot()` or `@reset()`
    pub(super) stream_param: Option<StreamParam>,
    /// `FOR TIME AS OF …`
    pub(super) travel: Option<Travel>,
    /// The table function of raw change records.
    pub(super) raw: Option<RawSpec>,
    /// Another table function.
    pub(super) function: Option<TableFunction>,
}

/// How a table stream is read, if not for its changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StreamParam {
    /// The base table where the changes begin.
    Snapshot,
    /// The base table of now.
    Reset,
}

/// Parameters of the table function of raw change records.
#[derive(Debug, Clone, Default)]
pub(super) struct RawSpec {
    pub(super) db: Option<String>,
    pub(super) table: String,
    pub(super) partitions: Option<Vec<String>>,
    pub(super) tablets: Option<Vec<u64>>,
}

/// Tokens ready for the query parser.
#[derive(Debug, Default)]
pub(super) struct Rewritten {
    pub(super) tokens: Vec<Token>,
    pub(super) scans: Vec<ScanSpec>,
    /// `@@x` was replaced: the result comes from the FE.
    pub(super) uses_variables: bool,
}

/// Name under which scan `i` stands in the rewritten tokens.
pub(super) fn scan_name(i: usize) -> String {
    format!("__sandbox_scan_{i}__")
}

/// Takes hints and system variables out of the tokens of a query.
pub(super) fn rewrite(session: &Session, tokens: &[Tok]) -> Result<Rewritten, SqlError> {
    rewrite_at(session, tokens, 0)
}

/// As [`rewrite`], for one expression: no output is labelled.
pub(super) fn rewrite_expression(session: &Session, tokens: &[Tok]) -> Result<Rewritten, SqlError> {
    rewrite_at(session, tokens, 1)
}

fn rewrite_at(session: &Session, tokens: &[Tok], mut depth: i32) -> Result<Rewritten, SqlError> {
    let mut out = Rewritten::default();
    let mut reader = Reader { tokens, at: 0 };
    while let Some(token) = reader.peek(0) {
        match token {
            Token::LParen => depth += 1,
            Token::RParen => depth -= 1,
            Token::AtSign if reader.peek(1) == Some(&Token::AtSign) => {
                variable(session, &mut reader, &mut out, depth)?;
                continue;
            }
            Token::AtSign if !(reader.starts_modifier() && ends_with_name(&out.tokens)) => {
                user_variable(session, &mut reader, &mut out, depth)?;
                continue;
            }
            _ => {}
        }
        if follows_from(&out.tokens) && reader.starts_raw(session.engine.profile()) {
            let name = reader.word(0).unwrap_or_default().to_lowercase();
            reader.at += 1;
            let raw = raw(&mut reader)?;
            let scan = ScanSpec { parts: vec![name], raw: Some(raw), ..ScanSpec::default() };
            reader.push(scan, &mut out);
            continue;
        }
        if let Some(name) = reader.starts_function(&out.tokens) {
            reader.at += 1;
            let function = TableFunction { properties: reader.pairs()?.into_iter().collect(), name: name.clone() };
            reader.push(ScanSpec { parts: vec![name], function: Some(function), ..ScanSpec::default() }, &mut out);
            continue;
        }
        if reader.starts_modifier() && ends_with_name(&out.tokens) {
            let parts = pop_name(&mut out.tokens);
            let mut scan = ScanSpec { parts, ..ScanSpec::default() };
            while reader.starts_modifier() {
                modifier(&mut reader, &mut scan)?;
            }
            reader.push(scan, &mut out);
            continue;
        }
        out.tokens.push(token.clone());
        reader.at += 1;
    }
    Ok(out)
}

struct Reader<'a> {
    tokens: &'a [Tok],
    at: usize,
}

impl<'a> Reader<'a> {
    fn peek(&self, ahead: usize) -> Option<&'a Token> {
        self.tokens.get(self.at + ahead).map(|t| &t.token)
    }

    fn word(&self, ahead: usize) -> Option<String> {
        match self.peek(ahead) {
            Some(Token::Word(word)) if word.quote_style.is_none() => Some(word.value.to_ascii_uppercase()),
            _ => None,
        }
    }

    fn starts_modifier(&self) -> bool {
        if self.peek(0) == Some(&Token::AtSign) {
            return self.peek(2) == Some(&Token::LParen) && matches!(self.peek(1), Some(Token::Word(_)));
        }
        self.starts_travel()
            || (self.peek(1) == Some(&Token::LParen)
                && matches!(self.word(0).as_deref(), Some("TABLET" | "PARTITION" | "PARTITIONS")))
    }

    /// `FOR TIME AS OF` or `FOR VERSION AS OF`
    fn starts_travel(&self) -> bool {
        self.word(0).as_deref() == Some("FOR")
            && matches!(self.word(1).as_deref(), Some("TIME" | "VERSION"))
            && self.word(2).as_deref() == Some("AS")
            && self.word(3).as_deref() == Some("OF")
    }

    /// The table function of raw records and its first parameter.
    fn starts_raw(&self, profile: Profile) -> bool {
        self.word(0).is_some_and(|word| changes::is_raw_function(profile, &word))
            && self.peek(1) == Some(&Token::LParen)
            && matches!(self.peek(2), Some(Token::SingleQuotedString(_)))
    }

    /// Name of the table function that is called here: `FROM name (`, `JOIN name (`, `, name ("key" = ...`.
    fn starts_function(&self, before: &[Token]) -> Option<String> {
        let Some(Token::Word(word)) = self.peek(0) else { return None };
        if word.quote_style.is_some() || self.peek(1) != Some(&Token::LParen) || !tvf::is_known(&word.value) {
            return None;
        }
        let after_from = match before.last() {
            Some(Token::Word(w)) => w.quote_style.is_none() && matches!(w.keyword, Keyword::FROM | Keyword::JOIN),
            _ => false,
        };
        let pairs = matches!(self.peek(2), Some(Token::SingleQuotedString(_))) && self.peek(3) == Some(&Token::Eq);
        (after_from || pairs).then(|| word.value.clone())
    }

    /// Puts the name of a scan into the query, with an alias when there is none.
    fn push(&self, scan: ScanSpec, out: &mut Rewritten) {
        out.tokens.push(Token::make_word(&scan_name(out.scans.len()), Some('`')));
        if !self.starts_alias() {
            out.tokens.push(Token::make_keyword("AS"));
            out.tokens.push(Token::make_word(scan.parts.last().map_or("", String::as_str), Some('`')));
        }
        out.scans.push(scan);
    }

    /// `("key" = "value", ...)`
    fn pairs(&mut self) -> Result<Vec<(String, String)>, SqlError> {
        let mut pairs = Vec::new();
        self.expect(&Token::LParen)?;
        if self.peek(0) == Some(&Token::RParen) {
            self.at += 1;
            return Ok(pairs);
        }
        loop {
            let key = self.text()?;
            self.expect(&Token::Eq)?;
            pairs.push((key, self.text()?));
            if self.peek(0) != Some(&Token::Comma) {
                break;
            }
            self.at += 1;
        }
        self.expect(&Token::RParen)?;
        Ok(pairs)
    }

    fn text(&mut self) -> Result<String, SqlError> {
        match self.peek(0) {
            Some(Token::SingleQuotedString(text)) => {
                self.at += 1;
                Ok(text.clone())
            }
            other => Err(SqlError::syntax(format!(
                "mismatched input '{}' expecting a string",
                other.map_or_else(|| "<EOF>".to_owned(), ToString::to_string)
            ))),
        }
    }

    fn starts_alias(&self) -> bool {
        match self.peek(0) {
            Some(Token::Word(word)) => {
                word.quote_style.is_some() || matches!(word.keyword, Keyword::NoKeyword | Keyword::AS)
            }
            _ => false,
        }
    }

    fn expect(&mut self, token: &Token) -> Result<(), SqlError> {
        if self.peek(0) == Some(token) {
            self.at += 1;
            return Ok(());
        }
        let got = self.peek(0).map_or_else(|| "<EOF>".to_owned(), ToString::to_string);
        Err(SqlError::syntax(format!("mismatched input '{got}' expecting '{token}'")))
    }

    /// `(item, item, ...)`
    fn list<T>(&mut self, item: impl Fn(&Token) -> Option<T>) -> Result<Vec<T>, SqlError> {
        self.expect(&Token::LParen)?;
        let mut items = Vec::new();
        loop {
            let token = self.peek(0).ok_or_else(|| SqlError::syntax("mismatched input '<EOF>'"))?;
            items.push(item(token).ok_or_else(|| SqlError::syntax(format!("mismatched input '{token}'")))?);
            self.at += 1;
            if self.peek(0) != Some(&Token::Comma) {
                break;
            }
            self.at += 1;
        }
        self.expect(&Token::RParen)?;
        Ok(items)
    }
}

fn ends_with_name(tokens: &[Token]) -> bool {
    matches!(tokens.last(), Some(Token::Word(word)) if word.quote_style.is_some() || !is_clause(word.keyword))
}

fn is_clause(keyword: Keyword) -> bool {
    matches!(
        keyword,
        Keyword::OVER | Keyword::FROM | Keyword::JOIN | Keyword::SELECT | Keyword::WHERE | Keyword::BY | Keyword::AS
    )
}

/// Takes `[[catalog.]db.]table` off the end.
fn pop_name(tokens: &mut Vec<Token>) -> Vec<String> {
    let mut parts = Vec::new();
    while let Some(Token::Word(word)) = tokens.last() {
        parts.insert(0, word.value.clone());
        tokens.pop();
        if tokens.last() != Some(&Token::Period) {
            break;
        }
        tokens.pop();
    }
    parts
}

fn modifier(reader: &mut Reader<'_>, scan: &mut ScanSpec) -> Result<(), SqlError> {
    if reader.peek(0) == Some(&Token::AtSign) {
        let name = match reader.peek(1) {
            Some(Token::Word(word)) => word.value.clone(),
            _ => String::new(),
        };
        reader.at += 2;
        let param = match name.to_ascii_lowercase().as_str() {
            "incr" => None,
            "snapshot" => Some(StreamParam::Snapshot),
            "reset" => Some(StreamParam::Reset),
            _ => return Err(SqlError::not_served(format!("table parameter @{name}"))),
        };
        if param.is_some() {
            if let Some((key, _)) = reader.pairs()?.first() {
                return Err(SqlError::detail(format!("Unsupported parameter in @{name}: {key}")));
            }
            scan.stream_param = param;
            return Ok(());
        }
        let mut spec = IncrSpec::default();
        for (key, value) in reader.pairs()? {
            spec.set(&key, &value)?;
        }
        scan.incr = Some(spec);
        return Ok(());
    }
    if reader.starts_travel() {
        let time = reader.word(1).as_deref() == Some("TIME");
        reader.at += 4;
        scan.travel = Some(match reader.peek(0) {
            Some(Token::SingleQuotedString(text)) if time => Travel::Time(text.clone()),
            Some(Token::SingleQuotedString(text) | Token::Number(text, _)) if !time => Travel::Version(text.clone()),
            other => {
                let got = other.map_or_else(|| "<EOF>".to_owned(), ToString::to_string);
                return Err(SqlError::syntax(format!("mismatched input '{got}' after AS OF")));
            }
        });
        reader.at += 1;
        return Ok(());
    }
    let word = reader.word(0).unwrap_or_default();
    reader.at += 1;
    if word == "TABLET" {
        scan.tablets = Some(reader.list(|token| match token {
            Token::Number(text, _) => text.parse().ok(),
            _ => None,
        })?);
    } else {
        scan.partitions = Some(reader.list(|token| match token {
            Token::Word(word) => Some(word.value.clone()),
            _ => None,
        })?);
    }
    Ok(())
}

/// Parameters of the table function of raw records; lists are separated by commas.
fn raw(reader: &mut Reader<'_>) -> Result<RawSpec, SqlError> {
    let mut spec = RawSpec::default();
    for (key, value) in reader.pairs()? {
        let list = || value.split(',').map(|item| item.trim().to_owned()).filter(|item| !item.is_empty());
        match key.to_ascii_lowercase().as_str() {
            "db" => spec.db = Some(value.clone()),
            "table" => spec.table.clone_from(&value),
            "partition" => spec.partitions = Some(list().collect()),
            "tablet" => {
                let ids: Result<Vec<u64>, _> = list().map(|id| id.parse()).collect();
                spec.tablets = Some(ids.map_err(|_| SqlError::detail(format!("Invalid tablet id: {value}")))?);
            }
            _ => return Err(SqlError::detail(format!("Unknown property of the table function: {key}"))),
        }
    }
    if spec.table.is_empty() {
        return Err(SqlError::detail("the table function needs the property \"table\""));
    }
    Ok(spec)
}

/// Whether a relation may stand next.
fn follows_from(tokens: &[Token]) -> bool {
    match tokens.last() {
        Some(Token::Comma) => true,
        Some(Token::Word(word)) => word.quote_style.is_none() && matches!(word.keyword, Keyword::FROM | Keyword::JOIN),
        _ => false,
    }
}

/// `@@[session.|global.]name` becomes a literal, labelled with its text.
fn variable(session: &Session, reader: &mut Reader<'_>, out: &mut Rewritten, depth: i32) -> Result<(), SqlError> {
    let whole = starts_item(&out.tokens);
    let mut label = "@@".to_owned();
    reader.at += 2;
    if matches!(reader.word(0).as_deref(), Some("SESSION" | "GLOBAL" | "LOCAL"))
        && reader.peek(1) == Some(&Token::Period)
    {
        label.push_str(&reader.word(0).unwrap_or_default().to_lowercase());
        label.push('.');
        reader.at += 2;
    }
    let Some(Token::Word(word)) = reader.peek(0) else { return Err(SqlError::syntax("mismatched input after '@@'")) };
    label.push_str(&word.value);
    reader.at += 1;
    let globals = label
        .starts_with("@@global.")
        .then(|| session.engine.globals.read().get(&word.value.to_ascii_lowercase()).cloned());
    let value = match globals.flatten() {
        Some(global) => Some(global),
        None => session.variables.get(&word.value).map(str::to_owned),
    };
    let Some(value) = value.as_deref() else {
        return Err(SqlError::coded(1193, session.variables.unknown_text(&word.value)));
    };
    let token = if !value.is_empty() && value.len() < 19 && value.bytes().all(|b| b.is_ascii_digit()) {
        Token::Number(value.to_owned(), false)
    } else {
        match value {
            "true" => Token::Number("1".to_owned(), false),
            "false" => Token::Number("0".to_owned(), false),
            _ => Token::SingleQuotedString(value.to_owned()),
        }
    };
    out.tokens.push(token);
    out.uses_variables = true;
    if whole && depth == 0 {
        label_item(reader, out, &label);
    }
    Ok(())
}

/// Whether an output begins here: nothing but SELECT or a comma stands before.
fn starts_item(before: &[Token]) -> bool {
    match before.last() {
        Some(Token::Comma) => {
            let clause = before.iter().rev().find_map(|token| match token {
                Token::Word(word) if word.quote_style.is_none() => match word.keyword {
                    Keyword::SELECT => Some(true),
                    Keyword::FROM | Keyword::WHERE | Keyword::GROUP | Keyword::ORDER | Keyword::HAVING => Some(false),
                    _ => None,
                },
                _ => None,
            });
            clause == Some(true)
        }
        Some(Token::Word(word)) => {
            word.quote_style.is_none() && matches!(word.keyword, Keyword::SELECT | Keyword::DISTINCT | Keyword::ALL)
        }
        _ => false,
    }
}

/// `@name` becomes the literal that was set, or NULL.
fn user_variable(session: &Session, reader: &mut Reader<'_>, out: &mut Rewritten, depth: i32) -> Result<(), SqlError> {
    let Some(Token::Word(word)) = reader.peek(1) else { return Err(SqlError::syntax("mismatched input after '@'")) };
    let whole = starts_item(&out.tokens);
    reader.at += 2;
    match session.user_variables.get(&word.value.to_ascii_lowercase()) {
        Some(literal) => out.tokens.extend(literal.iter().cloned()),
        None => out.tokens.push(Token::make_keyword("NULL")),
    }
    out.uses_variables = true;
    if whole && depth == 0 {
        label_item(reader, out, &format!("@{}", word.value));
    }
    Ok(())
}

/// Labels a whole output with the text it had.
fn label_item(reader: &Reader<'_>, out: &mut Rewritten, label: &str) {
    let ends_item = match reader.peek(0) {
        None | Some(Token::Comma) => true,
        Some(Token::Word(word)) => matches!(word.keyword, Keyword::FROM | Keyword::LIMIT),
        _ => false,
    };
    if ends_item {
        out.tokens.push(Token::make_keyword("AS"));
        out.tokens.push(Token::make_word(label, Some('`')));
    }
}
