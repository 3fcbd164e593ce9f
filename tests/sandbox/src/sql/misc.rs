//! Small statements: KILL, SYNC, REFRESH; and statements as others may see them.

use datafusion::sql::sqlparser::tokenizer::Token;

use super::cursor::Cursor;
use super::ddl::{check_catalog, done};
use super::lexer::Statement;
use crate::engine::StatementResult;
use crate::error::SqlError;
use crate::session::Session;

/// Words in the name of a property whose value is nobody's business.
const SECRET_WORDS: [&str; 5] = ["secret", "password", "token", "access_key", "credential"];

/// The text of a statement without passwords and keys.
pub(crate) fn masked(text: &str, statement: &Statement) -> String {
    let tokens = &statement.tokens;
    let (Some(first), Some(last)) = (tokens.first(), tokens.last()) else { return String::new() };
    let mut out = String::new();
    let mut copied = first.start;
    for (i, tok) in tokens.iter().enumerate() {
        let Token::SingleQuotedString(_) = &tok.token else { continue };
        let before = |n: usize| i.checked_sub(n).map(|at| &tokens[at].token);
        let word = |token: Option<&Token>, wanted: &str| matches!(token, Some(Token::Word(w)) if w.value.eq_ignore_ascii_case(wanted));
        let property = before(1) == Some(&Token::Eq)
            && before(2).is_some_and(|token| {
                let name = match token {
                    Token::SingleQuotedString(name) => name.to_ascii_lowercase(),
                    Token::Word(word) => word.value.to_ascii_lowercase(),
                    _ => return false,
                };
                SECRET_WORDS.iter().any(|secret| name.contains(secret))
            });
        let identified = word(before(1), "BY") || word(before(1), "PASSWORD");
        let password = before(1) == Some(&Token::LParen) && word(before(2), "PASSWORD");
        let set_password = before(1) == Some(&Token::Eq) && tokens.iter().any(|t| word(Some(&t.token), "PASSWORD"));
        if property || identified || password || set_password {
            out.push_str(&text[copied..tok.start]);
            out.push_str("'*XXX'");
            copied = tok.end;
        }
    }
    out.push_str(&text[copied..last.end]);
    out
}

/// `KILL [CONNECTION | QUERY] id`, after KILL.
pub(super) fn kill(session: &Session, cursor: &mut Cursor<'_>) -> Result<StatementResult, SqlError> {
    let query = cursor.eat("QUERY");
    if !query {
        cursor.eat("CONNECTION");
    }
    let processes = &session.engine.processes;
    let found = match cursor.peek() {
        Some(Token::SingleQuotedString(_)) if query => {
            let id = cursor.string()?;
            processes
                .list()
                .into_iter()
                .find(|p| p.running().query_id == id)
                .ok_or_else(|| SqlError::coded(1094, format!("Unknown query id: {id}")))?
        }
        _ => {
            let id = cursor.number()?;
            processes.find(id).ok_or_else(|| SqlError::coded(1094, format!("Unknown thread id: {id}")))?
        }
    };
    cursor.expect_end()?;
    if found.user != session.user && !session.engine.is_admin(&session.user) {
        return Err(SqlError::coded(1095, format!("You are not owner of thread {}", found.id)));
    }
    if !query && found.id == session.id {
        // The answer goes out first; the connection ends behind it.
        found.close();
        return Ok(done());
    }
    found.kill(!query);
    Ok(done())
}

/// `REFRESH CATALOG|DATABASE|TABLE name`, after REFRESH: for external catalogs only.
pub(super) fn refresh(cursor: &mut Cursor<'_>) -> Result<StatementResult, SqlError> {
    if cursor.eat("CATALOG") {
        let name = cursor.ident()?;
        check_catalog(&name)?;
        return Err(SqlError::detail("Internal catalog name can't be refresh."));
    }
    if cursor.is_word("DATABASE") || cursor.is_word("TABLE") {
        let what = cursor.ident()?.to_lowercase();
        return Err(SqlError::detail(format!("Only support refresh {what} in external catalog")));
    }
    Err(SqlError::not_served(format!("REFRESH {}", cursor.rest())))
}
