//! DROP, TRUNCATE, SET, USE, SWITCH and the resolution of table names.

use datafusion::sql::sqlparser::tokenizer::Token;

use super::cursor::Cursor;
use crate::engine::StatementResult;
use crate::error::SqlError;
use crate::session::Session;

pub(super) fn done() -> StatementResult {
    StatementResult::Done { affected: 0, info: String::new() }
}

/// 5086 for any catalog but `internal`.
pub(super) fn check_catalog(name: &str) -> Result<(), SqlError> {
    if name.eq_ignore_ascii_case("internal") {
        return Ok(());
    }
    Err(SqlError::coded(5086, format!("Unknown catalog '{name}'")))
}

/// Database and table of `[[catalog.]db.]table`.
pub(super) fn resolve(session: &Session, mut parts: Vec<String>) -> Result<(String, String), SqlError> {
    if parts.len() == 3 {
        check_catalog(&parts.remove(0))?;
    }
    let table = parts.pop().unwrap_or_default();
    let db = match parts.pop() {
        Some(db) => db,
        None => session.database.clone().ok_or_else(SqlError::no_database)?,
    };
    Ok((db, table))
}

pub(super) fn table_name(session: &Session, cursor: &mut Cursor<'_>) -> Result<(String, String), SqlError> {
    let parts = cursor.name_parts()?;
    resolve(session, parts)
}

/// `[catalog.]db`
pub(super) fn database_name(cursor: &mut Cursor<'_>) -> Result<String, SqlError> {
    let first = cursor.ident()?;
    if cursor.eat_token(&Token::Period) {
        check_catalog(&first)?;
        return cursor.ident();
    }
    Ok(first)
}

pub(super) fn drop(session: &mut Session, cursor: &mut Cursor<'_>) -> Result<StatementResult, SqlError> {
    let catalog = &session.engine.catalog;
    if cursor.eat("DATABASE") || cursor.eat("SCHEMA") {
        let if_exists = cursor.eat_all(&["IF", "EXISTS"]);
        let db = database_name(cursor)?;
        cursor.eat("FORCE");
        cursor.expect_end()?;
        catalog.drop_database(&db, if_exists)?;
        if session.database.as_deref() == Some(&db) {
            session.database = None;
        }
        return Ok(done());
    }
    if cursor.eat("TABLE") {
        let if_exists = cursor.eat_all(&["IF", "EXISTS"]);
        let (db, table) = table_name(session, cursor)?;
        cursor.eat("FORCE");
        cursor.expect_end()?;
        catalog.drop_table(&db, &table, if_exists)?;
        return Ok(done());
    }
    Err(SqlError::not_served(format!("DROP {}", cursor.rest())))
}

pub(super) fn truncate(session: &mut Session, cursor: &mut Cursor<'_>) -> Result<StatementResult, SqlError> {
    cursor.expect("TABLE")?;
    let (db, table) = table_name(session, cursor)?;
    let partitions = super::partition::names(cursor)?;
    cursor.eat("FORCE");
    cursor.expect_end()?;
    let engine = &session.engine;
    let table = engine.table_handle(&db, &table)?;
    let _order = engine.commit_lock.lock();
    table.truncate(partitions.as_deref(), |n| engine.catalog.next_ids(n), engine.config().clock.now_ms())?;
    Ok(done())
}

pub(super) fn use_database(session: &mut Session, cursor: &mut Cursor<'_>) -> Result<StatementResult, SqlError> {
    let db = database_name(cursor)?;
    cursor.expect_end()?;
    session.use_database(&db)?;
    Ok(done())
}

pub(super) fn switch(session: &mut Session, cursor: &mut Cursor<'_>) -> Result<StatementResult, SqlError> {
    let catalog = cursor.ident()?;
    cursor.expect_end()?;
    check_catalog(&catalog)?;
    session.database = None;
    Ok(done())
}

/// `SET [SESSION|GLOBAL] a = b, @@x = y`, `SET NAMES cs`, `SET CHARACTER SET cs`, `SET TRANSACTION ...`.
pub(super) fn set(session: &mut Session, cursor: &mut Cursor<'_>) -> Result<StatementResult, SqlError> {
    if cursor.eat("NAMES") || cursor.eat_all(&["CHARACTER", "SET"]) || cursor.eat("CHARSET") {
        let charset = value(cursor)?.unwrap_or_else(|| "utf8mb4".to_owned());
        if cursor.eat("COLLATE") {
            value(cursor)?;
        }
        cursor.expect_end()?;
        if !charset.to_ascii_lowercase().starts_with("utf8") {
            return Err(SqlError::coded(1115, format!("Unknown character set: '{charset}'")));
        }
        return Ok(done());
    }
    if cursor.is_word("TRANSACTION") || cursor.is_word_at(1, "TRANSACTION") {
        // The server reads and ignores isolation levels.
        return Ok(done());
    }
    if cursor.is_word("PASSWORD") || cursor.is_word("PROPERTY") {
        return Err(SqlError::not_served(format!("SET {}", cursor.rest())));
    }
    let mut assignments = Vec::new();
    loop {
        let mut global = false;
        if cursor.eat_token(&Token::AtSign) {
            if !cursor.eat_token(&Token::AtSign) {
                return Err(SqlError::not_served("user variables"));
            }
            if (cursor.is_word("SESSION") || cursor.is_word("LOCAL") || cursor.is_word("GLOBAL"))
                && cursor.peek_at(1) == Some(&Token::Period)
            {
                global = cursor.is_word("GLOBAL");
                cursor.at += 2;
            }
        } else if cursor.eat("GLOBAL") {
            global = true;
        } else if (cursor.is_word("SESSION") || cursor.is_word("LOCAL")) && cursor.peek_at(1) != Some(&Token::Eq) {
            cursor.at += 1;
        }
        let name = cursor.ident()?;
        if !cursor.eat_token(&Token::Eq) {
            cursor.expect_token(&Token::Colon)?;
            cursor.expect_token(&Token::Eq)?;
        }
        let value = value(cursor)?;
        if global {
            return Err(SqlError::not_served("global variables"));
        }
        assignments.push((name, value));
        if !cursor.eat_token(&Token::Comma) {
            break;
        }
    }
    cursor.expect_end()?;
    let mut variables = session.variables.clone();
    for (name, value) in assignments {
        variables.set(&name, value.as_deref())?;
    }
    session.variables = variables;
    Ok(done())
}

/// A value of SET; `None` is DEFAULT.
fn value(cursor: &mut Cursor<'_>) -> Result<Option<String>, SqlError> {
    if cursor.eat("DEFAULT") {
        return Ok(None);
    }
    if cursor.peek() == Some(&Token::AtSign) && cursor.peek_at(1) == Some(&Token::AtSign) {
        return Err(SqlError::not_served("SET to the value of another variable"));
    }
    let negative = cursor.eat_token(&Token::Minus);
    let text = match cursor.peek() {
        Some(Token::SingleQuotedString(text)) => text.clone(),
        Some(Token::Number(text, _)) => text.clone(),
        Some(Token::Word(word)) => word.value.clone(),
        _ => return Err(cursor.unexpected("a value")),
    };
    cursor.at += 1;
    if !cursor.at_end() && !matches!(cursor.peek(), Some(Token::Comma)) && !cursor.is_word("COLLATE") {
        return Err(SqlError::not_served("expressions as values of SET"));
    }
    Ok(Some(if negative { format!("-{text}") } else { text }))
}

/// `UNSET VARIABLE (ALL | name)`
pub(super) fn unset(session: &mut Session, cursor: &mut Cursor<'_>) -> Result<StatementResult, SqlError> {
    cursor.expect("VARIABLE")?;
    let name = cursor.ident()?;
    cursor.expect_end()?;
    if name.eq_ignore_ascii_case("ALL") {
        session.variables = super::Variables::new(session.engine.config());
    } else {
        session.variables.set(&name, None)?;
    }
    Ok(done())
}
