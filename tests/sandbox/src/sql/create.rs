//! CREATE DATABASE and CREATE TABLE.

use std::collections::BTreeMap;

use datafusion::sql::sqlparser::tokenizer::Token;

use super::cursor::Cursor;
use super::ddl::{database_name, done, table_name};
use super::properties;
use crate::engine::StatementResult;
use crate::error::SqlError;
use crate::session::Session;
use crate::storage::{Column, DefaultValue, KeysType, TableSpec};
use crate::types::{ColumnBuilder, DorisType};

/// Buckets when none are written, or AUTO.
const DEFAULT_BUCKETS: usize = 10;
/// Most buckets of a partition that the sandbox takes.
const MAX_BUCKETS: u64 = 768;

pub(super) fn run(session: &mut Session, cursor: &mut Cursor<'_>) -> Result<StatementResult, SqlError> {
    if cursor.eat("DATABASE") || cursor.eat("SCHEMA") {
        let if_not_exists = cursor.eat_all(&["IF", "NOT", "EXISTS"]);
        let db = database_name(cursor)?;
        if cursor.eat("PROPERTIES") {
            cursor.properties()?;
        }
        cursor.expect_end()?;
        session.engine.catalog.create_database(&db, if_not_exists)?;
        return Ok(done());
    }
    if cursor.eat("TABLE") {
        return table(session, cursor);
    }
    if cursor.eat("USER") {
        return user(session, cursor);
    }
    Err(SqlError::not_served(format!("CREATE {}", cursor.rest().split('(').next().unwrap_or_default().trim())))
}

/// `CREATE USER [IF NOT EXISTS] 'name'[@'host'] [IDENTIFIED BY 'password']`
fn user(session: &mut Session, cursor: &mut Cursor<'_>) -> Result<StatementResult, SqlError> {
    cursor.eat_all(&["IF", "NOT", "EXISTS"]);
    let name = match cursor.peek() {
        Some(Token::SingleQuotedString(_)) => cursor.string()?,
        _ => cursor.ident()?,
    };
    if cursor.eat_token(&Token::AtSign) {
        match cursor.peek() {
            Some(Token::SingleQuotedString(_)) => cursor.string()?,
            _ => cursor.ident()?,
        };
    }
    let password = if cursor.eat_all(&["IDENTIFIED", "BY"]) { cursor.string()? } else { String::new() };
    cursor.expect_end()?;
    if !session.engine.is_admin(&session.user) {
        return Err(SqlError::coded(
            1227,
            "Access denied; you need (at least one of) the (GRANT) privilege(s) for this operation",
        ));
    }
    session.engine.set_user(&name, &password);
    Ok(done())
}

/// What the parentheses of CREATE TABLE hold, before keys are known.
struct ColumnDef {
    column: Column,
    key: bool,
}

fn table(session: &mut Session, cursor: &mut Cursor<'_>) -> Result<StatementResult, SqlError> {
    let if_not_exists = cursor.eat_all(&["IF", "NOT", "EXISTS"]);
    let (db, name) = table_name(session, cursor)?;
    if cursor.is_word("LIKE") || cursor.is_word("AS") || cursor.is_word("SELECT") {
        return Err(SqlError::not_served("CREATE TABLE LIKE and CREATE TABLE AS SELECT"));
    }
    let mut defs = column_defs(cursor)?;
    if cursor.eat("ENGINE") {
        cursor.expect_token(&Token::Eq)?;
        let engine = cursor.ident()?;
        if !engine.eq_ignore_ascii_case("OLAP") {
            return Err(SqlError::not_served(format!("ENGINE={engine}")));
        }
    }
    let keys = keys_clause(cursor)?;
    if cursor.is_word("CLUSTER") {
        return Err(SqlError::not_served("CLUSTER BY"));
    }
    let comment = if cursor.eat("COMMENT") { cursor.string()? } else { String::new() };
    if cursor.is_word("AUTO") || cursor.is_word("PARTITION") {
        return Err(SqlError::not_served("PARTITION BY"));
    }
    let distribution = distribution(cursor)?;
    if cursor.is_word("ROLLUP") {
        return Err(SqlError::not_served("ROLLUP"));
    }
    let written = if cursor.eat("PROPERTIES") { cursor.properties()? } else { BTreeMap::new() };
    if cursor.is_word("BROKER") || cursor.is_word("AS") {
        return Err(SqlError::not_served(cursor.rest()));
    }
    cursor.expect_end()?;
    let (keys_type, _) = apply_keys(&mut defs, keys)?;
    let columns: Vec<Column> = defs.into_iter().map(|def| def.column).collect();
    check_columns(&columns)?;
    let decimal256 = session.variables.is_true("enable_decimal256");
    let profile = session.engine.profile();
    columns.iter().try_for_each(|c| c.ty.check_column(profile, decimal256)).map_err(SqlError::detail)?;
    let Some((hash_columns, buckets, auto_buckets)) = distribution else {
        return Err(SqlError::detail("Create olap table should contain distribution desc"));
    };
    check_distribution(&columns, keys_type, &hash_columns)?;
    let (properties, changes) = properties::check(session.engine.as_ref(), written, keys_type, &columns)?;
    session.engine.catalog.create_table(
        TableSpec {
            db,
            name,
            columns,
            keys_type,
            hash_columns,
            buckets,
            auto_buckets,
            properties,
            comment,
            changes,
            created_ms: session.engine.config().clock.now_ms(),
        },
        if_not_exists,
    )?;
    Ok(done())
}

fn column_defs(cursor: &mut Cursor<'_>) -> Result<Vec<ColumnDef>, SqlError> {
    cursor.expect_token(&Token::LParen)?;
    let mut defs = Vec::new();
    loop {
        if cursor.is_word("INDEX") && !matches!(cursor.peek_at(1), Some(Token::LParen)) {
            // An index changes speed, not results.
            while !matches!(cursor.peek(), Some(Token::Comma | Token::RParen) | None) {
                if cursor.peek() == Some(&Token::LParen) { cursor.skip_group()? } else { cursor.at += 1 }
            }
        } else {
            defs.push(column_def(cursor)?);
        }
        if !cursor.eat_token(&Token::Comma) {
            break;
        }
    }
    cursor.expect_token(&Token::RParen)?;
    Ok(defs)
}

fn column_def(cursor: &mut Cursor<'_>) -> Result<ColumnDef, SqlError> {
    let name = cursor.ident()?;
    let ty = cursor.doris_type()?;
    let mut def = ColumnDef {
        column: Column { name, ty, nullable: true, key: false, default: DefaultValue::None, comment: String::new() },
        key: false,
    };
    loop {
        if cursor.eat("KEY") {
            def.key = true;
        } else if cursor.eat_all(&["NOT", "NULL"]) {
            def.column.nullable = false;
        } else if cursor.eat("NULL") {
            def.column.nullable = true;
        } else if cursor.eat("DEFAULT") {
            def.column.default = default_value(cursor, &def.column)?;
        } else if cursor.eat("COMMENT") {
            def.column.comment = cursor.string()?;
        } else if ["SUM", "MIN", "MAX", "REPLACE", "REPLACE_IF_NOT_NULL", "HLL_UNION", "BITMAP_UNION", "QUANTILE_UNION"]
            .iter()
            .any(|word| cursor.is_word(word))
        {
            return Err(SqlError::not_served("the aggregate model"));
        } else if cursor.is_word("AUTO_INCREMENT")
            || cursor.is_word("GENERATED")
            || cursor.is_word("AS")
            || cursor.is_word("ON")
        {
            return Err(SqlError::not_served(format!("{} columns", cursor.ident()?.to_ascii_uppercase())));
        } else {
            break;
        }
    }
    Ok(def)
}

fn default_value(cursor: &mut Cursor<'_>, column: &Column) -> Result<DefaultValue, SqlError> {
    if cursor.eat("NULL") {
        return Ok(DefaultValue::Null);
    }
    if cursor.eat("CURRENT_TIMESTAMP") {
        if cursor.peek() == Some(&Token::LParen) {
            cursor.skip_group()?;
        }
        if !matches!(column.ty, DorisType::DateTime(_)) {
            return Err(SqlError::detail(
                "Types other than DATETIME and DATETIMEV2 cannot use current_timestamp as the default value",
            ));
        }
        return Ok(DefaultValue::CurrentTimestamp);
    }
    let negative = cursor.eat_token(&Token::Minus);
    let text = match cursor.peek() {
        Some(Token::SingleQuotedString(text)) => text.clone(),
        Some(Token::Number(text, _)) => text.clone(),
        Some(Token::Word(word))
            if word.quote_style.is_none()
                && (word.value.eq_ignore_ascii_case("TRUE") || word.value.eq_ignore_ascii_case("FALSE")) =>
        {
            word.value.to_ascii_lowercase()
        }
        _ => return Err(SqlError::not_served("this form of DEFAULT")),
    };
    cursor.at += 1;
    let text = if negative { format!("-{text}") } else { text };
    ColumnBuilder::new(&column.ty, true)
        .append_text(&text)
        .map_err(|_| SqlError::detail(format!("Invalid default value for '{}': {text}", column.name)))?;
    Ok(DefaultValue::Text(text))
}

fn keys_clause(cursor: &mut Cursor<'_>) -> Result<Option<(KeysType, Vec<String>)>, SqlError> {
    let keys_type = if cursor.eat("DUPLICATE") {
        KeysType::Duplicate
    } else if cursor.eat("UNIQUE") {
        KeysType::Unique
    } else if cursor.is_word("AGGREGATE") {
        return Err(SqlError::not_served("the aggregate model"));
    } else {
        return Ok(None);
    };
    cursor.expect("KEY")?;
    Ok(Some((keys_type, cursor.ident_list()?)))
}

type Distribution = (Vec<String>, usize, bool);

fn distribution(cursor: &mut Cursor<'_>) -> Result<Option<Distribution>, SqlError> {
    if !cursor.eat("DISTRIBUTED") {
        return Ok(None);
    }
    cursor.expect("BY")?;
    let columns = if cursor.eat("RANDOM") {
        Vec::new()
    } else {
        cursor.expect("HASH")?;
        cursor.ident_list()?
    };
    if !cursor.eat("BUCKETS") {
        return Ok(Some((columns, DEFAULT_BUCKETS, true)));
    }
    if cursor.eat("AUTO") {
        return Ok(Some((columns, DEFAULT_BUCKETS, true)));
    }
    let buckets = cursor.number()?;
    if buckets == 0 {
        return Err(SqlError::detail("Buckets number of distribution should be greater than zero."));
    }
    if buckets > MAX_BUCKETS {
        return Err(SqlError::detail(format!(
            "Number of hash buckets should be less than max_bucket_num_per_partition {MAX_BUCKETS}"
        )));
    }
    Ok(Some((columns, buckets as usize, false)))
}

/// Marks the key columns; without a clause the table is DUPLICATE with the first one to three sortable columns as key.
fn apply_keys(defs: &mut [ColumnDef], clause: Option<(KeysType, Vec<String>)>) -> Result<(KeysType, usize), SqlError> {
    let (keys_type, names) = match clause {
        Some(clause) => clause,
        None => {
            let marked: Vec<String> = defs.iter().filter(|d| d.key).map(|d| d.column.name.clone()).collect();
            if !marked.is_empty() {
                (KeysType::Duplicate, marked)
            } else {
                let mut names = Vec::new();
                for def in defs.iter().take(3) {
                    if !def.column.ty.can_be_key() {
                        break;
                    }
                    names.push(def.column.name.clone());
                    if matches!(def.column.ty, DorisType::Varchar(_)) {
                        break;
                    }
                }
                if names.is_empty() {
                    return Err(SqlError::detail(
                        "The olap table first column could not be float, double, string or array, struct, map, please use decimal or varchar instead.",
                    ));
                }
                (KeysType::Duplicate, names)
            }
        }
    };
    for (i, name) in names.iter().enumerate() {
        let Some(at) = defs.iter().position(|d| d.column.name.eq_ignore_ascii_case(name)) else {
            return Err(SqlError::detail(format!("Key column[{name}] doesn't exist.")));
        };
        if at != i {
            return Err(SqlError::detail(format!(
                "Key columns should be a ordered prefix of the schema. KeyColumns[{i}] (starts from zero) is {name}, but corresponding column is {} in the previous columns declaration.",
                defs[i].column.name
            )));
        }
        let column = &mut defs[at].column;
        if !column.ty.can_be_key() {
            let kind = match column.ty {
                DorisType::Float | DorisType::Double => {
                    format!("Float or double can not used as a key, use decimal instead. column={name}")
                }
                DorisType::String => format!("String Type should not be used in key column[{name}]."),
                _ => format!("{} can not be used as a key column[{name}]", column.ty.primitive_name()),
            };
            return Err(SqlError::detail(kind));
        }
        column.key = true;
    }
    Ok((keys_type, names.len()))
}

fn check_columns(columns: &[Column]) -> Result<(), SqlError> {
    for (i, column) in columns.iter().enumerate() {
        if columns[..i].iter().any(|c| c.name.eq_ignore_ascii_case(&column.name)) {
            return Err(SqlError::coded(1060, format!("Duplicate column name '{}'", column.name)));
        }
        let allowed = |c: char| c.is_alphanumeric() || "_+-/?@#$%^&*\"\\, :.".contains(c);
        if column.name.is_empty() || column.name.chars().count() > 256 || !column.name.chars().all(allowed) {
            return Err(SqlError::coded(1166, format!("Incorrect column name '{}'", column.name)));
        }
        if column.name.starts_with("__DORIS_") {
            return Err(SqlError::coded(
                1166,
                format!("Incorrect column name '{}', column name can't start with '__DORIS_'", column.name),
            ));
        }
        if !column.nullable && column.default == DefaultValue::Null {
            return Err(SqlError::detail(format!(
                "Can not set null default value to non nullable column: {}",
                column.name
            )));
        }
    }
    Ok(())
}

fn check_distribution(columns: &[Column], keys_type: KeysType, hash: &[String]) -> Result<(), SqlError> {
    if hash.is_empty() && keys_type == KeysType::Unique {
        return Err(SqlError::detail("Create unique keys table should not contain random distribution desc"));
    }
    for name in hash {
        let Some(column) = columns.iter().find(|c| c.name.eq_ignore_ascii_case(name)) else {
            return Err(SqlError::detail(format!("Distribution column({name}) doesn't exist.")));
        };
        if keys_type == KeysType::Unique && !column.key {
            return Err(SqlError::detail(format!("Distribution column[{name}] is not key column")));
        }
        if matches!(column.ty, DorisType::Float | DorisType::Double | DorisType::Json | DorisType::Variant)
            || column.ty.is_nested()
        {
            return Err(SqlError::detail(format!(
                "{} type should not be used in distribution column[{name}].",
                column.ty.primitive_name()
            )));
        }
    }
    Ok(())
}
