//! External catalogs, to be read: names of three parts that do not begin with `internal`.
//!
//! The database `sales` of the catalog `hive` is the internal database `hive__sales`: tests fill it as they fill any other.
//! Names are replaced before a statement runs. What a server reads from elsewhere has no tablets, no key and no model.

use datafusion::sql::sqlparser::ast::Ident;
use datafusion::sql::sqlparser::tokenizer::{Token, Word};

use super::lexer::Statement;
use super::output::text_rows;
use super::show::cell;
use crate::engine::StatementResult;
use crate::error::SqlError;
use crate::session::Session;

/// What is done with a statement that names an external catalog.
pub(super) enum External {
    /// It names none.
    None,
    /// The same with names of internal databases.
    Rewritten(Statement),
    /// It is answered.
    Answered(StatementResult),
}

/// Looks for names of external catalogs.
pub(super) fn external(session: &Session, statement: &Statement) -> Result<External, SqlError> {
    let catalogs = &session.engine.config().external_catalogs;
    let tokens = &statement.tokens;
    let catalog_at = |at: usize| match tokens.get(at).map(|token| &token.token) {
        Some(Token::Word(word)) => catalogs.iter().find(|catalog| catalog.eq_ignore_ascii_case(&word.value)),
        _ => None,
    };
    let word = |at: usize| match tokens.get(at).map(|token| &token.token) {
        Some(Token::Word(word)) => word.value.to_ascii_uppercase(),
        _ => String::new(),
    };
    if catalogs.is_empty() {
        return Ok(External::None);
    }
    if word(0) == "SHOW"
        && matches!(word(1).as_str(), "DATABASES" | "SCHEMAS")
        && word(2) == "FROM"
        && tokens.len() == 4
        && let Some(catalog) = catalog_at(3)
    {
        let prefix = format!("{catalog}__");
        let names = session.engine.databases();
        let names = names.iter().filter_map(|name| name.strip_prefix(&prefix)).map(|name| vec![cell(name)]);
        return Ok(External::Answered(text_rows(&["Database"], names.collect())?));
    }
    let mut out = Statement { tokens: Vec::with_capacity(tokens.len()), hints: statement.hints.clone() };
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        let begins_name = at == 0 || tokens[at - 1].token != Token::Period;
        let next = (tokens.get(at + 1).map(|token| &token.token), tokens.get(at + 2).map(|token| &token.token));
        if let (true, Some(catalog), (Some(Token::Period), Some(Token::Word(database)))) =
            (begins_name, catalog_at(at), next)
        {
            let name = Ident::with_quote('`', format!("{catalog}__{}", database.value));
            let mut replaced = tokens[at + 2].clone();
            replaced.token =
                Token::Word(Word { value: name.value, quote_style: name.quote_style, keyword: database.keyword });
            out.tokens.push(replaced);
            at += 3;
            continue;
        }
        out.tokens.push(token.clone());
        at += 1;
    }
    if out.tokens.len() == tokens.len() {
        return Ok(External::None);
    }
    match word(0).as_str() {
        "SELECT" | "WITH" | "DESC" | "DESCRIBE" | "SHOW" | "EXPLAIN" => Ok(External::Rewritten(out)),
        other => Err(SqlError::not_served(format!("{other} in an external catalog"))),
    }
}
