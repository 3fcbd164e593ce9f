//! From the first words of a statement to what runs it.

use super::cursor::Cursor;
use super::external::{External, external};
use super::lexer::Statement;
use super::query::QueryOptions;
use super::{
    alter, create, ddl, delete, explain, insert, misc, privileges, query, set, show, show_table, statistics, streams,
    transaction, tvf, users, views,
};
use crate::engine::StatementResult;
use crate::error::SqlError;
use crate::session::Session;

/// Runs one statement.
pub(crate) async fn run(session: &mut Session, text: &str, statement: &Statement) -> Result<StatementResult, SqlError> {
    let rewritten = match external(session, statement)? {
        External::None => None,
        External::Rewritten(statement) => Some(statement),
        External::Answered(result) => return Ok(result),
    };
    let statement = rewritten.as_ref().unwrap_or(statement);
    super::changes::check_hints(&statement.hints, &statement.tokens)?;
    let saved = session.variables.clone();
    let hinted = apply_hints(session, statement)?;
    let outcome = run_bare(session, text, statement).await;
    if hinted {
        session.variables = saved;
    }
    outcome
}

async fn run_bare(session: &mut Session, text: &str, statement: &Statement) -> Result<StatementResult, SqlError> {
    let mut cursor = Cursor::new(text, statement);
    if let Some(first) = statement.first_word() {
        transaction::check(session, &first)?;
    }
    if cursor.is_word("SELECT") || cursor.is_word("WITH") || starts_query(&cursor) {
        return query::run(session, &statement.tokens, text, &QueryOptions::default()).await;
    }
    if cursor.is_word("VALUES") {
        return query::run(session, &statement.tokens, text, &QueryOptions::default()).await;
    }
    privileges::check(session, &cursor)?;
    let Ok(first) = cursor.ident() else { return Err(cursor.unexpected("a statement")) };
    if let Some(outcome) = streams::statement(session, &first, &mut cursor) {
        return outcome;
    }
    match first.to_ascii_uppercase().as_str() {
        "INSERT" => insert::run(session, &mut cursor).await,
        "UPDATE" => delete::update(session, &mut cursor).await,
        "DELETE" => delete::delete(session, &mut cursor).await,
        "TRUNCATE" => ddl::truncate(session, &mut cursor),
        "CREATE" if views::is_next(&cursor) => views::create(session, &mut cursor).await,
        "ALTER" if views::is_next(&cursor) => views::alter(session, &mut cursor).await,
        "DROP" if views::is_next(&cursor) => views::drop(session, &mut cursor),
        "CREATE" if cursor.is_word("USER") || cursor.is_word("ROLE") => users::create(session, &mut cursor),
        "ALTER" if cursor.is_word("USER") => users::alter(session, &mut cursor),
        "DROP" if cursor.is_word("USER") || cursor.is_word("ROLE") => users::drop(session, &mut cursor),
        "GRANT" => users::grant(session, &mut cursor, false),
        "REVOKE" => users::grant(session, &mut cursor, true),
        "EXPLAIN" => explain::run(session, &mut cursor).await,
        "DESC" | "DESCRIBE" if cursor.is_word("SELECT") || cursor.is_word("WITH") || cursor.is_word("VERBOSE") => {
            explain::run(session, &mut cursor).await
        }
        "KILL" => misc::kill(session, &mut cursor),
        "SYNC" if cursor.at_end() => Ok(ddl::done()),
        "REFRESH" => misc::refresh(&mut cursor),
        "ANALYZE" => statistics::analyze(session, &mut cursor).await,
        "CREATE" => create::run(session, &mut cursor).await,
        "ALTER" if cursor.is_word("TABLE") => alter::run(session, &mut cursor),
        "DROP" => ddl::drop(session, &mut cursor),
        "SHOW" => show::run(session, &mut cursor),
        "DESC" | "DESCRIBE" if cursor.is_word("FUNCTION") => tvf::describe(session, &mut cursor).await,
        "DESC" | "DESCRIBE" => match views::describe(session, &mut cursor)? {
            Some(result) => Ok(result),
            None => show_table::describe(session, &mut cursor),
        },
        "SET" => set::run(session, &mut cursor),
        "UNSET" => set::unset(session, &mut cursor),
        "USE" => ddl::use_database(session, &mut cursor),
        "SWITCH" => ddl::switch(session, &mut cursor),
        "BEGIN" => transaction::begin(session, &mut cursor),
        "START" if cursor.is_word("TRANSACTION") => transaction::begin(session, &mut cursor),
        "COMMIT" => transaction::commit(session, &mut cursor).await,
        "ROLLBACK" => transaction::rollback(session, &mut cursor),
        "ALTER" | "RECOVER" | "ADMIN" | "EXPORT" | "LOAD" | "CALL" | "BACKUP" | "RESTORE" | "CANCEL" | "SYNC"
        | "START" | "LOCK" | "UNLOCK" | "REPLACE" | "HELP" | "PREPARE" | "EXECUTE" | "INSTALL" | "WARM" => {
            Err(SqlError::not_served(format!("{} statements", first.to_ascii_uppercase())))
        }
        _ => {
            cursor.at = 0;
            Err(cursor.unexpected("a statement"))
        }
    }
}

/// A query in parentheses.
fn starts_query(cursor: &Cursor<'_>) -> bool {
    use datafusion::sql::sqlparser::tokenizer::Token;
    let mut ahead = 0;
    while cursor.peek_at(ahead) == Some(&Token::LParen) {
        ahead += 1;
    }
    ahead > 0 && (cursor.is_word_at(ahead, "SELECT") || cursor.is_word_at(ahead, "WITH"))
}

/// `/*+ SET_VAR(k=v, ...) */` sets variables for one statement. Other hints are plan hints, which a result does not show.
pub(super) fn apply_hints(session: &mut Session, statement: &Statement) -> Result<bool, SqlError> {
    let mut any = false;
    for hint in &statement.hints {
        let body = hint.trim();
        let Some(rest) = body.get(..7).filter(|w| w.eq_ignore_ascii_case("SET_VAR")).map(|_| body[7..].trim()) else {
            continue;
        };
        let inner = rest
            .strip_prefix('(')
            .and_then(|r| r.strip_suffix(')'))
            .ok_or_else(|| SqlError::coded(5006, format!("Unknown plan hint '{body}'")))?;
        for pair in inner.split(',') {
            let (name, value) =
                pair.split_once('=').ok_or_else(|| SqlError::coded(5006, format!("Unknown plan hint '{body}'")))?;
            let value = value.trim().trim_matches(|c| matches!(c, '\'' | '"'));
            session.variables.set(name.trim(), Some(value))?;
            any = true;
        }
    }
    Ok(any)
}
