//! Literals of VALUES lists, without going through the planner.

use datafusion::sql::sqlparser::tokenizer::Token;

use super::cursor::Cursor;
use crate::types::{ColumnBuilder, DorisType, Nested};

/// A literal as written.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Literal {
    Null,
    Default,
    Bool(bool),
    Number(String),
    Text(String),
    Nested(Nested),
}

/// Reads one literal that ends at `,` or `)`; `None` when the value is an expression. The cursor moves only on success.
pub(super) fn read(cursor: &mut Cursor<'_>) -> Option<Literal> {
    let start = cursor.at;
    let literal = read_one(cursor);
    if literal.is_some() && matches!(cursor.peek(), Some(Token::Comma | Token::RParen)) {
        return literal;
    }
    cursor.at = start;
    None
}

fn read_one(cursor: &mut Cursor<'_>) -> Option<Literal> {
    let token = cursor.peek()?;
    match token {
        Token::SingleQuotedString(text) => {
            cursor.at += 1;
            Some(Literal::Text(text.clone()))
        }
        Token::Number(text, _) => {
            cursor.at += 1;
            Some(Literal::Number(text.clone()))
        }
        Token::Minus | Token::Plus => {
            let negative = *token == Token::Minus;
            let Some(Token::Number(text, _)) = cursor.peek_at(1) else { return None };
            cursor.at += 2;
            Some(Literal::Number(if negative { format!("-{text}") } else { text.clone() }))
        }
        Token::LBracket | Token::LBrace => nested(cursor).map(Literal::Nested),
        Token::Word(word) if word.quote_style.is_none() => {
            let upper = word.value.to_ascii_uppercase();
            match upper.as_str() {
                "NULL" => cursor.at += 1,
                "DEFAULT" => {
                    cursor.at += 1;
                    return Some(Literal::Default);
                }
                "TRUE" | "FALSE" => {
                    cursor.at += 1;
                    return Some(Literal::Bool(upper == "TRUE"));
                }
                "DATE" | "DATEV2" | "TIMESTAMP" | "DATETIME" => {
                    let Some(Token::SingleQuotedString(text)) = cursor.peek_at(1) else { return None };
                    cursor.at += 2;
                    return Some(Literal::Text(text.clone()));
                }
                "ARRAY" | "MAP" | "NAMED_STRUCT" | "STRUCT" => return nested(cursor).map(Literal::Nested),
                _ => return None,
            }
            Some(Literal::Null)
        }
        _ => None,
    }
}

/// `[..]`, `{k:v}`, `ARRAY(..)`, `MAP(k,v,..)`, `NAMED_STRUCT('f',v,..)`, `STRUCT(v,..)` of literals.
fn nested(cursor: &mut Cursor<'_>) -> Option<Nested> {
    match cursor.peek()? {
        Token::LBracket => {
            cursor.at += 1;
            list(cursor, &Token::RBracket).map(Nested::List)
        }
        Token::LBrace => {
            cursor.at += 1;
            let mut entries = Vec::new();
            if cursor.eat_token(&Token::RBrace) {
                return Some(Nested::Entries(entries));
            }
            loop {
                let key = nested(cursor)?;
                cursor.eat_token(&Token::Colon).then_some(())?;
                entries.push((key, nested(cursor)?));
                if !cursor.eat_token(&Token::Comma) {
                    break;
                }
            }
            cursor.eat_token(&Token::RBrace).then_some(Nested::Entries(entries))
        }
        Token::Word(word) if cursor.peek_at(1) == Some(&Token::LParen) => {
            let upper = word.value.to_ascii_uppercase();
            if !matches!(upper.as_str(), "ARRAY" | "MAP" | "NAMED_STRUCT" | "STRUCT") {
                return None;
            }
            cursor.at += 2;
            let items = list(cursor, &Token::RParen)?;
            if matches!(upper.as_str(), "ARRAY" | "STRUCT") {
                return Some(Nested::List(items));
            }
            let mut entries = Vec::new();
            let mut items = items.into_iter();
            while let Some(key) = items.next() {
                entries.push((key, items.next()?));
            }
            Some(Nested::Entries(entries))
        }
        _ => Some(match read_one(cursor)? {
            Literal::Null => Nested::Null,
            Literal::Bool(flag) => Nested::Bool(flag),
            Literal::Number(text) => Nested::Number(text),
            Literal::Text(text) => Nested::Text(text),
            Literal::Nested(value) => value,
            Literal::Default => return None,
        }),
    }
}

fn list(cursor: &mut Cursor<'_>, end: &Token) -> Option<Vec<Nested>> {
    let mut items = Vec::new();
    if cursor.eat_token(end) {
        return Some(items);
    }
    loop {
        items.push(nested(cursor)?);
        if !cursor.eat_token(&Token::Comma) {
            break;
        }
    }
    cursor.eat_token(end).then_some(items)
}

/// Appends a literal by Doris's conversion rules; `false` when it is not a value of the type (nothing is appended then).
pub(super) fn append(builder: &mut ColumnBuilder, literal: &Literal) -> bool {
    let text_type = matches!(
        builder.doris_type(),
        DorisType::Char(_) | DorisType::Varchar(_) | DorisType::String | DorisType::Json | DorisType::Variant
    );
    match literal {
        Literal::Null | Literal::Default => {
            builder.append_null();
            true
        }
        Literal::Bool(flag) => {
            let as_word = *builder.doris_type() == DorisType::Boolean;
            let text = match (as_word, flag) {
                (true, true) => "true",
                (true, false) => "false",
                (false, true) => "1",
                (false, false) => "0",
            };
            builder.append_text(text).is_ok()
        }
        Literal::Number(text) => {
            if builder.append_text(text).is_ok() {
                return true;
            }
            if text_type {
                return false;
            }
            if *builder.doris_type() == DorisType::Boolean {
                let zero = text.trim_start_matches('-').bytes().all(|b| matches!(b, b'0' | b'.'));
                return builder.append_text(if zero { "0" } else { "1" }).is_ok();
            }
            // A decimal literal in an integer column is cut.
            match text.split_once('.') {
                Some((whole, fraction)) if fraction.bytes().all(|b| b.is_ascii_digit()) => {
                    let whole = if whole.is_empty() || whole == "-" { "0" } else { whole };
                    builder.append_text(whole).is_ok()
                }
                _ => false,
            }
        }
        Literal::Text(text) => builder.append_text(text).is_ok(),
        Literal::Nested(value) => builder.append_nested(value).is_ok(),
    }
}
