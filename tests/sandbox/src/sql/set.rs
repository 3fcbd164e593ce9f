//! SET and UNSET: session and global variables, user variables, names and passwords.

use arrow::array::{Array, ArrayRef};
use arrow::datatypes::{DataType, Field};
use datafusion::sql::sqlparser::tokenizer::Token;

use super::cursor::Cursor;
use super::ddl::done;
use super::{query, users};
use crate::engine::StatementResult;
use crate::error::SqlError;
use crate::session::Session;
use crate::types::{DorisType, TextStyle, text_value};
use crate::users::{Privilege, denied};

/// One assignment of SET.
enum Assignment {
    Variable { name: String, value: Option<String>, global: bool },
    User { name: String, value: Vec<Token> },
}

/// `SET [SESSION|GLOBAL] a = b, @@x = y, @u = expr`, `SET NAMES cs`, `SET CHARACTER SET cs`, `SET TRANSACTION ...`,
/// `SET PASSWORD ...`, `SET PROPERTY ...`.
pub(super) fn run(session: &mut Session, cursor: &mut Cursor<'_>) -> Result<StatementResult, SqlError> {
    if cursor.eat("NAMES") || cursor.eat_all(&["CHARACTER", "SET"]) || cursor.eat("CHARSET") {
        return names(cursor);
    }
    if cursor.is_word("TRANSACTION") || cursor.is_word_at(1, "TRANSACTION") {
        // The server reads and ignores isolation levels.
        return Ok(done());
    }
    if cursor.eat("PASSWORD") {
        return users::set_password(session, cursor);
    }
    if cursor.eat("PROPERTY") {
        return users::set_property(session, cursor);
    }
    if cursor.is_word("DEFAULT") || cursor.is_word("ROLE") {
        return Err(SqlError::not_served(format!("SET {}", cursor.rest())));
    }
    let mut assignments = Vec::new();
    loop {
        assignments.push(assignment(session, cursor)?);
        if !cursor.eat_token(&Token::Comma) {
            break;
        }
    }
    cursor.expect_end()?;
    apply(session, assignments)?;
    Ok(done())
}

fn names(cursor: &mut Cursor<'_>) -> Result<StatementResult, SqlError> {
    let text = |cursor: &mut Cursor<'_>| match cursor.peek() {
        Some(Token::SingleQuotedString(_)) => cursor.string(),
        _ => cursor.ident(),
    };
    let charset = text(cursor)?;
    if cursor.eat("COLLATE") {
        text(cursor)?;
    }
    cursor.expect_end()?;
    let known = charset.eq_ignore_ascii_case("default") || charset.to_ascii_lowercase().starts_with("utf8");
    match known {
        true => Ok(done()),
        false => Err(SqlError::coded(1115, format!("Unknown character set: '{charset}'"))),
    }
}

/// All or none: the first refusal leaves every variable as it was.
fn apply(session: &mut Session, assignments: Vec<Assignment>) -> Result<(), SqlError> {
    let (mut variables, mut user) = (session.variables.clone(), session.user_variables.clone());
    let mut globals = Vec::new();
    for assignment in assignments {
        match assignment {
            Assignment::Variable { name, value, global } => {
                let (key, value) = variables.check(&name, value.as_deref(), global)?;
                if global {
                    if !session.engine.users.allows(&session.user, "", "", Privilege::Admin) {
                        return Err(denied("ADMIN"));
                    }
                    globals.push((key.clone(), value.clone()));
                }
                // A global value holds for the session that sets it too.
                variables.put(key, value);
            }
            Assignment::User { name, value } => {
                user.insert(name, value);
            }
        }
    }
    session.engine.globals.write().extend(globals);
    (session.variables, session.user_variables) = (variables, user);
    Ok(())
}

fn assignment(session: &Session, cursor: &mut Cursor<'_>) -> Result<Assignment, SqlError> {
    let mut global = false;
    if cursor.eat_token(&Token::AtSign) {
        if !cursor.eat_token(&Token::AtSign) {
            let name = cursor.ident()?.to_ascii_lowercase();
            equals(cursor)?;
            let value = literal(&value_of(session, cursor)?)?;
            return Ok(Assignment::User { name, value });
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
    equals(cursor)?;
    Ok(Assignment::Variable { value: setting(session, cursor)?, name, global })
}

fn equals(cursor: &mut Cursor<'_>) -> Result<(), SqlError> {
    if !cursor.eat_token(&Token::Eq) {
        cursor.expect_token(&Token::Colon)?;
        cursor.expect_token(&Token::Eq)?;
    }
    Ok(())
}

/// Where the value at the cursor ends: at a comma outside parentheses, or with the statement.
fn value_end(cursor: &Cursor<'_>) -> usize {
    let mut depth = 0_i32;
    let mut at = cursor.at;
    while let Some(tok) = cursor.tokens.get(at) {
        match tok.token {
            Token::LParen | Token::LBracket | Token::LBrace => depth += 1,
            Token::RParen | Token::RBracket | Token::RBrace => depth -= 1,
            Token::Comma if depth == 0 => break,
            _ => {}
        }
        at += 1;
    }
    at
}

/// A value of a variable; `None` is DEFAULT. A single word is a text.
fn setting(session: &Session, cursor: &mut Cursor<'_>) -> Result<Option<String>, SqlError> {
    if cursor.eat("DEFAULT") {
        return Ok(None);
    }
    let length = value_end(cursor) - cursor.at;
    let negative = length == 2 && cursor.peek() == Some(&Token::Minus);
    if length == 1 || negative {
        cursor.at += usize::from(negative);
        let text = match cursor.peek() {
            Some(Token::SingleQuotedString(text)) => text.clone(),
            Some(Token::Number(text, _)) => text.clone(),
            Some(Token::Word(word)) => word.value.clone(),
            _ => return Err(cursor.unexpected("a value")),
        };
        cursor.at += 1;
        return Ok(Some(if negative { format!("-{text}") } else { text }));
    }
    let value = value_of(session, cursor)?;
    let ty = type_of(&value)?;
    let text = text_value(value.as_ref(), 0, &ty, TextStyle::Mysql);
    text.map(Some).ok_or_else(|| SqlError::detail("a variable can not be set to NULL"))
}

/// Evaluates the expression at the cursor.
fn value_of(session: &Session, cursor: &mut Cursor<'_>) -> Result<ArrayRef, SqlError> {
    let end = value_end(cursor);
    if end == cursor.at {
        return Err(cursor.unexpected("a value"));
    }
    let tokens = &cursor.tokens[cursor.at..end];
    cursor.at = end;
    query::constant(session, tokens, cursor.text)
}

fn type_of(value: &ArrayRef) -> Result<DorisType, SqlError> {
    DorisType::of_field(&Field::new("", value.data_type().clone(), true))
        .ok_or_else(|| SqlError::not_served(format!("variables of Arrow type {}", value.data_type())))
}

/// Tokens that stand for a value in a statement.
fn literal(value: &ArrayRef) -> Result<Vec<Token>, SqlError> {
    if value.is_null(0) || value.data_type() == &DataType::Null {
        return Ok(vec![Token::make_keyword("NULL")]);
    }
    let ty = type_of(value)?;
    let text = text_value(value.as_ref(), 0, &ty, TextStyle::Mysql).unwrap_or_default();
    Ok(match &ty {
        DorisType::Boolean => vec![Token::make_keyword(if text == "1" { "TRUE" } else { "FALSE" })],
        DorisType::TinyInt
        | DorisType::SmallInt
        | DorisType::Int
        | DorisType::BigInt
        | DorisType::LargeInt
        | DorisType::Decimal { .. } => match text.strip_prefix('-') {
            Some(digits) => {
                vec![Token::LParen, Token::Minus, Token::Number(digits.to_owned(), false), Token::RParen]
            }
            None => vec![Token::Number(text, false)],
        },
        DorisType::String | DorisType::Varchar(_) | DorisType::Char(_) => vec![Token::SingleQuotedString(text)],
        DorisType::Float | DorisType::Double => cast(text, "DOUBLE", None),
        DorisType::Date => cast(text, "DATE", None),
        DorisType::DateTime(scale) => cast(text, "DATETIME", Some(*scale)),
        other => return Err(SqlError::not_served(format!("user variables of type {other}"))),
    })
}

/// `CAST('text' AS type[(scale)])`
fn cast(text: String, ty: &str, scale: Option<u8>) -> Vec<Token> {
    let mut tokens = vec![
        Token::make_keyword("CAST"),
        Token::LParen,
        Token::SingleQuotedString(text),
        Token::make_keyword("AS"),
        Token::make_keyword(ty),
    ];
    if let Some(scale) = scale {
        tokens.extend([Token::LParen, Token::Number(scale.to_string(), false), Token::RParen]);
    }
    tokens.push(Token::RParen);
    tokens
}

/// `UNSET [SESSION|GLOBAL] VARIABLE (ALL | name)`
pub(super) fn unset(session: &mut Session, cursor: &mut Cursor<'_>) -> Result<StatementResult, SqlError> {
    let global = cursor.eat("GLOBAL");
    if !global {
        cursor.eat("SESSION");
    }
    cursor.expect("VARIABLE")?;
    let name = cursor.ident()?;
    cursor.expect_end()?;
    if global && !session.engine.users.allows(&session.user, "", "", Privilege::Admin) {
        return Err(denied("ADMIN"));
    }
    if name.eq_ignore_ascii_case("ALL") {
        if global {
            session.engine.globals.write().clear();
        }
        session.variables = super::Variables::new(session.engine.config(), &session.engine.globals.read());
        return Ok(done());
    }
    let (key, value) = session.variables.check(&name, None, global)?;
    if global {
        session.engine.globals.write().remove(&key);
    }
    session.variables.put(key, value);
    Ok(done())
}
