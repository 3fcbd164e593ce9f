//! DROP, TRUNCATE, USE, SWITCH and the resolution of table names.

use datafusion::sql::sqlparser::tokenizer::Token;

use super::cursor::Cursor;
use crate::engine::StatementResult;
use crate::error::SqlError;
use crate::session::Session;

pub(super) fn done() -> StatementResult {
    StatementResult::Done { affected: 0, info: String::new(), warnings: 0 }
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
