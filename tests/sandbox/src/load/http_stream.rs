//! `PUT /api/_http_stream`: the header `sql` is an `INSERT INTO … SELECT … FROM http_stream(…)` whose rows are the body.
//!
//! Columns of csv are `c1` to `cn`, those of json go by their keys; all are texts, as the server infers them.

use std::sync::Arc;
use std::time::Instant;

use axum::body::Body;
use datafusion::sql::sqlparser::tokenizer::Token;
use http::{HeaderMap, HeaderName, HeaderValue};

use super::header::{Format, GroupRequest, LoadHead, LoadPlan, group_commit};
use super::mapping::Mapping;
use super::reply::{Commit, Failure};
use super::{LoadReply, LoadTarget, PlannedLoad, alone, authenticate, call_master};
use crate::faults::CommitFaults;
use crate::random;
use crate::shared::Shared;
use crate::sql::Statement;

/// Properties that mean the same as the header of their name.
const PROPERTIES: &[&str] = &[
    "format",
    "column_separator",
    "line_delimiter",
    "compress_type",
    "skip_lines",
    "enclose",
    "escape",
    "trim_double_quotes",
    "empty_field_as_null",
    "read_json_by_line",
    "strip_outer_array",
    "jsonpaths",
    "json_root",
    "num_as_string",
    "fuzzy_parse",
];

/// Headers that only a load without a statement has.
const NOT_OURS: &[&str] = &[
    "columns",
    "where",
    "delete",
    "merge_type",
    "hidden_columns",
    "partial_columns",
    "unique_key_update_mode",
    "function_column.sequence_col",
    "partitions",
    "temporary_partitions",
    "negative",
    "load_to_single_tablet",
];

/// The statement of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StreamInsert {
    pub db: Option<String>,
    pub table: String,
    pub label: Option<String>,
    /// Target columns; `None` means the table's.
    pub columns: Option<Vec<String>>,
    /// Texts of the selected expressions; `*` stands for all columns of the body.
    pub items: Vec<String>,
    pub properties: Vec<(String, String)>,
    pub filter: Option<String>,
    /// Words that may be names of the body's columns.
    pub words: Vec<String>,
}

/// Runs the statement of a request over its body.
pub(crate) async fn run(
    shared: &Arc<Shared>,
    (client, commits): (String, Arc<CommitFaults>),
    headers: &HeaderMap,
    body: Body,
) -> LoadReply {
    let started = Instant::now();
    let text = |name: &str| crate::http::header_text(headers, name);
    let two_phase = text("two_phase_commit") == "true";
    let mut reply = LoadReply::new(text("label").to_owned(), text("comment").to_owned(), Commit::Own { two_phase });
    if let Err(failure) = load(shared, (client, commits), headers, body, &mut reply).await {
        reply.fail(failure);
    }
    reply.times.load = started.elapsed();
    reply
}

async fn load(
    shared: &Arc<Shared>,
    (client, commits): (String, Arc<CommitFaults>),
    headers: &HeaderMap,
    body: Body,
    reply: &mut LoadReply,
) -> Result<(), Failure> {
    let sql = crate::http::header_text(headers, "sql");
    let insert = StreamInsert::parse(sql).map_err(|text| analysis(&text));
    if let Some(label) = insert.as_ref().ok().and_then(|i| i.label.clone()).filter(|_| reply.label.is_empty()) {
        reply.label = label;
    }
    if reply.label.is_empty() {
        reply.label = random::uuid();
    }
    // A BE looks at this before anything else.
    if let GroupRequest::Mode(_) = group_commit(headers)? {
        let text = "the sandbox does not implement the header group_commit of http_stream";
        return Err(Failure::new("NOT_IMPLEMENTED_ERROR", text));
    }
    let insert = insert?;
    let headers = merged(headers, &insert)?;
    let head = LoadHead::parse(&headers, shared.profile())?;
    let Some(db) = insert.db.clone() else { return Err(analysis("No database selected")) };
    let target = LoadTarget { db, table: insert.table.clone(), client, commits };
    call_master(shared).await?;
    let credentials = authenticate(shared, &target, &headers)?;
    let planned = plan(shared, &target, &credentials.user, &headers, &head, &insert);
    alone(shared, &target, head, planned, body, reply).await
}

fn analysis(text: &str) -> Failure {
    Failure::new("ANALYSIS_ERROR", format!("TStatus: errCode = 2, detailMessage = {text}"))
}

fn plan(
    shared: &Shared,
    target: &LoadTarget,
    user: &str,
    headers: &HeaderMap,
    head: &LoadHead,
    insert: &StreamInsert,
) -> Result<PlannedLoad, Failure> {
    if !matches!(head.format, Format::Csv { header_lines: 0 } | Format::Json) {
        return Err(Failure::new("NOT_IMPLEMENTED_ERROR", "the sandbox does not implement http_stream of this format"));
    }
    let plan = LoadPlan::parse(headers, head.format)?;
    let meta = shared.engine.table_meta(&target.db, &target.table).map_err(Failure::from_sql)?;
    let planned = Mapping::select(&shared.engine, user, &meta, &plan, insert, head.format)?;
    Ok(PlannedLoad { plan, meta, planned, discard: false })
}

/// The headers of the request with the properties of the function in their place.
fn merged(headers: &HeaderMap, insert: &StreamInsert) -> Result<HeaderMap, Failure> {
    let mut merged = headers.clone();
    for name in PROPERTIES.iter().chain(NOT_OURS) {
        merged.remove(*name);
    }
    if !insert.properties.iter().any(|(key, _)| key == "format") {
        return Err(analysis("format is not set"));
    }
    for (key, value) in &insert.properties {
        let (Some(known), Ok(value)) =
            (PROPERTIES.iter().find(|known| *known == key), HeaderValue::from_bytes(value.as_bytes()))
        else {
            return Err(analysis(&format!("the sandbox does not implement the property {key}={value} of http_stream")));
        };
        merged.insert(HeaderName::from_static(known), value);
    }
    Ok(merged)
}

impl StreamInsert {
    /// Reads the statement.
    pub fn parse(sql: &str) -> Result<Self, String> {
        let mut statements = crate::sql::split(sql, true).map_err(|e| e.text().to_owned())?;
        let (Some(statement), true) = (statements.pop(), statements.is_empty()) else {
            return Err("the header sql must hold one statement".to_owned());
        };
        statement.check_size().map_err(|e| e.text().to_owned())?;
        Reader { sql, statement: &statement, at: 0 }.insert()
    }
}

struct Reader<'a> {
    sql: &'a str,
    statement: &'a Statement,
    at: usize,
}

impl Reader<'_> {
    fn peek(&self) -> Option<&Token> {
        self.statement.tokens.get(self.at).map(|tok| &tok.token)
    }

    fn mismatch<T>(&self) -> Result<T, String> {
        Err(match self.peek() {
            Some(token) => format!("mismatched input '{token}' in the statement of http_stream"),
            None => "mismatched input '<EOF>' in the statement of http_stream".to_owned(),
        })
    }

    fn is_word(&self, text: &str) -> bool {
        matches!(self.peek(), Some(Token::Word(w)) if w.quote_style.is_none() && w.value.eq_ignore_ascii_case(text))
    }

    fn word(&mut self, text: &str) -> bool {
        let found = self.is_word(text);
        self.at += usize::from(found);
        found
    }

    fn expect_word(&mut self, text: &str) -> Result<(), String> {
        if self.word(text) { Ok(()) } else { self.mismatch() }
    }

    fn token(&mut self, token: &Token) -> bool {
        let found = self.peek() == Some(token);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, token: &Token) -> Result<(), String> {
        if self.token(token) { Ok(()) } else { self.mismatch() }
    }

    fn name(&mut self) -> Result<String, String> {
        match self.peek() {
            Some(Token::Word(word)) => {
                let name = word.value.clone();
                self.at += 1;
                Ok(name)
            }
            _ => self.mismatch(),
        }
    }

    fn string(&mut self) -> Result<String, String> {
        match self.peek() {
            Some(Token::SingleQuotedString(text)) => {
                let text = text.clone();
                self.at += 1;
                Ok(text)
            }
            _ => self.mismatch(),
        }
    }

    /// Text of the tokens from `from` to here.
    fn text(&self, from: usize) -> String {
        let tokens = &self.statement.tokens[from..self.at];
        match (tokens.first(), tokens.last()) {
            (Some(first), Some(last)) => self.sql[first.start..last.end].to_owned(),
            _ => String::new(),
        }
    }

    fn insert(mut self) -> Result<StreamInsert, String> {
        self.expect_word("INSERT")?;
        self.expect_word("INTO")?;
        let mut parts = vec![self.name()?];
        while self.token(&Token::Period) {
            parts.push(self.name()?);
        }
        let table = parts.pop().unwrap_or_default();
        let db = parts.pop();
        let mut label = None;
        if self.word("WITH") {
            self.expect_word("LABEL")?;
            label = Some(self.name()?);
        }
        let columns = if self.token(&Token::LParen) { Some(self.names()?) } else { None };
        self.expect_word("SELECT")?;
        let (items, mut words) = self.items()?;
        self.expect_word("HTTP_STREAM")?;
        self.expect(&Token::LParen)?;
        let mut properties = Vec::new();
        while !self.token(&Token::RParen) {
            let key = self.string()?.to_ascii_lowercase();
            self.expect(&Token::Eq)?;
            properties.push((key, self.string()?));
            if self.peek() != Some(&Token::RParen) {
                self.expect(&Token::Comma)?;
            }
        }
        if !self.is_word("WHERE") && matches!(self.peek(), Some(Token::Word(_))) {
            self.word("AS");
            self.name()?;
        }
        let mut filter = None;
        if self.word("WHERE") {
            let from = self.at;
            while self.peek().is_some() {
                if ["GROUP", "ORDER", "LIMIT", "UNION", "HAVING"].iter().any(|w| self.is_word(w)) {
                    return self.mismatch();
                }
                self.note_word(&mut words);
                self.at += 1;
            }
            filter = Some(self.text(from)).filter(|text| !text.is_empty());
        }
        if self.peek().is_some() {
            return self.mismatch();
        }
        Ok(StreamInsert { db, table, label, columns, items, properties, filter, words })
    }

    fn names(&mut self) -> Result<Vec<String>, String> {
        let mut names = vec![self.name()?];
        while self.token(&Token::Comma) {
            names.push(self.name()?);
        }
        self.expect(&Token::RParen)?;
        Ok(names)
    }

    /// Notes the word here unless it is a function.
    fn note_word(&self, words: &mut Vec<String>) {
        let next = self.statement.tokens.get(self.at + 1).map(|tok| &tok.token);
        if let (Some(Token::Word(word)), true) = (self.peek(), next != Some(&Token::LParen))
            && !words.iter().any(|known| known.eq_ignore_ascii_case(&word.value))
        {
            words.push(word.value.clone());
        }
    }

    /// The selected expressions, up to FROM.
    fn items(&mut self) -> Result<(Vec<String>, Vec<String>), String> {
        let (mut items, mut words) = (Vec::new(), Vec::new());
        let (mut from, mut depth) = (self.at, 0_usize);
        loop {
            let end = depth == 0 && self.is_word("FROM");
            if end || (depth == 0 && self.peek() == Some(&Token::Comma)) {
                let text = self.text(from);
                if text.is_empty() {
                    return self.mismatch();
                }
                items.push(text);
                self.at += 1;
                from = self.at;
                if end {
                    return Ok((items, words));
                }
                continue;
            }
            match self.peek() {
                Some(Token::LParen | Token::LBracket) => depth += 1,
                Some(Token::RParen | Token::RBracket) => depth = depth.saturating_sub(1),
                Some(_) => self.note_word(&mut words),
                None => return self.mismatch(),
            }
            self.at += 1;
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    #[test]
    fn statements_are_taken_apart() {
        let insert = StreamInsert::parse(
            "insert into d.`t` with label l1 (a, `b`) select c1, concat(c2, ',', c3) from HTTP_STREAM(\"format\"='CSV', \"column_separator\"=\",\") where c1 > 1 and c4 = 'x';",
        )
        .expect("statement");
        assert_eq!(
            (insert.db.as_deref(), insert.table.as_str(), insert.label.as_deref()),
            (Some("d"), "t", Some("l1"))
        );
        assert_eq!(insert.columns, Some(vec!["a".to_owned(), "b".to_owned()]));
        assert_eq!(insert.items, ["c1", "concat(c2, ',', c3)"]);
        assert_eq!(insert.properties[1], ("column_separator".to_owned(), ",".to_owned()));
        assert_eq!(insert.filter.as_deref(), Some("c1 > 1 and c4 = 'x'"));
        assert_eq!(insert.words, ["c1", "c2", "c3", "and", "c4"]);
        let plain =
            StreamInsert::parse("INSERT INTO t SELECT * FROM http_stream('format'='json') AS s").expect("plain");
        assert_eq!((plain.db, plain.columns, plain.filter), (None, None, None));
        assert_eq!(plain.items, ["*"]);
    }

    #[test]
    fn other_statements_are_refused() {
        for sql in [
            "",
            "SELECT 1",
            "INSERT INTO t VALUES (1)",
            "INSERT INTO t SELECT 1 FROM s",
            "INSERT INTO t SELECT , FROM http_stream()",
            "INSERT INTO t SELECT c1 FROM http_stream('format'='csv') LIMIT 1",
            "INSERT INTO t SELECT c1 FROM http_stream('format'='csv') WHERE c1 > 1 LIMIT 1",
            "INSERT INTO t SELECT 1 FROM http_stream('format'='csv'); SELECT 2",
            "INSERT INTO t SELECT c1 FROM http_stream(format='csv')",
        ] {
            assert!(StreamInsert::parse(sql).is_err(), "{sql}");
        }
    }
}
