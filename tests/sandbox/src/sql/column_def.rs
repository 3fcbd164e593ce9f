//! Column definitions of CREATE TABLE and ALTER TABLE, and the rules they must keep.

use datafusion::sql::sqlparser::tokenizer::Token;

use super::cursor::Cursor;
use crate::error::SqlError;
use crate::storage::{Aggregation, Column, DefaultValue, KeysType};
use crate::types::{ColumnBuilder, DorisType};

/// A column as written, before the keys are known.
pub(super) struct ColumnDef {
    pub(super) column: Column,
    /// `KEY` was written.
    pub(super) key: bool,
    /// First value of `AUTO_INCREMENT`.
    pub(super) auto_increment_start: i64,
}

/// `name type [agg] [KEY] [NOT NULL] [DEFAULT v] [AUTO_INCREMENT] [COMMENT 'c']`
pub(super) fn column_def(cursor: &mut Cursor<'_>) -> Result<ColumnDef, SqlError> {
    let name = cursor.ident()?;
    let ty = cursor.doris_type()?;
    let mut def = ColumnDef { column: Column::new(name, ty), key: false, auto_increment_start: 1 };
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
        } else if let Some(how) = Aggregation::ALL.into_iter().find(|how| cursor.is_word(how.name())) {
            cursor.at += 1;
            def.column.aggregation = Some(how);
        } else if cursor.eat("AUTO_INCREMENT") {
            def.column.auto_increment = true;
            if cursor.eat_token(&Token::LParen) {
                def.auto_increment_start = cursor.number()? as i64;
                cursor.expect_token(&Token::RParen)?;
            }
        } else if cursor.is_word("QUANTILE_UNION")
            || cursor.is_word("GENERIC")
            || cursor.is_word("GENERATED")
            || cursor.is_word("AS")
        {
            return Err(SqlError::not_served(format!("{} columns", cursor.ident()?.to_ascii_uppercase())));
        } else if cursor.is_word("ON") {
            return Err(SqlError::not_served("ON UPDATE columns"));
        } else {
            break;
        }
    }
    check_column(&def.column)?;
    Ok(def)
}

fn default_value(cursor: &mut Cursor<'_>, column: &Column) -> Result<DefaultValue, SqlError> {
    if cursor.eat("NULL") {
        return Ok(DefaultValue::Null);
    }
    if cursor.eat("CURRENT_TIMESTAMP") {
        let mut precision = 0;
        if cursor.eat_token(&Token::LParen) {
            precision = cursor.number()?.min(7) as u8;
            cursor.expect_token(&Token::RParen)?;
        }
        let DorisType::DateTime(scale) = column.ty else {
            return Err(SqlError::detail(
                "Types other than DATETIME and DATETIMEV2 cannot use current_timestamp as the default value",
            ));
        };
        if precision > 6 || precision > scale {
            return Err(SqlError::detail(format!(
                "default value precision of column '{}' ({precision}) is larger than its own ({scale})",
                column.name
            )));
        }
        return Ok(DefaultValue::CurrentTimestamp(precision));
    }
    if cursor.eat("CURRENT_DATE") {
        if column.ty != DorisType::Date {
            return Err(SqlError::detail(
                "Types other than DATE and DATEV2 cannot use current_date as the default value",
            ));
        }
        return Ok(DefaultValue::CurrentDate);
    }
    for (word, ty) in [("BITMAP_EMPTY", DorisType::Bitmap), ("HLL_EMPTY", DorisType::Hll)] {
        if cursor.eat(word) {
            if column.ty != ty {
                let low = word.to_lowercase();
                return Err(SqlError::detail(format!("Types other than {ty} cannot use {low} as the default value")));
            }
            return Ok(DefaultValue::Empty);
        }
    }
    for (word, value) in [("PI", std::f64::consts::PI), ("E", std::f64::consts::E)] {
        if cursor.eat(word) {
            if column.ty != DorisType::Double {
                let low = word.to_lowercase();
                return Err(SqlError::detail(format!("Types other than DOUBLE cannot use {low} as the default value")));
            }
            return Ok(DefaultValue::Text(value.to_string()));
        }
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
    let array_like = column.ty.is_nested() && text != "[]" && text != "{}";
    if array_like {
        return Err(SqlError::detail(format!(
            "{} type column default value just support null",
            column.ty.primitive_name()
        )));
    }
    ColumnBuilder::new(&column.ty, true)
        .append_text(&text)
        .map_err(|_| SqlError::detail(format!("Invalid default value for '{}': {text}", column.name)))?;
    Ok(DefaultValue::Text(text))
}

/// What a column must keep by itself.
fn check_column(column: &Column) -> Result<(), SqlError> {
    let allowed = |c: char| c.is_alphanumeric() || "_+-/?@#$%^&*\"\\, :.".contains(c);
    if column.name.is_empty() || column.name.chars().count() > 256 || !column.name.chars().all(allowed) {
        return Err(SqlError::coded(1166, format!("Incorrect column name '{}'", column.name)));
    }
    if column.name.to_ascii_uppercase().starts_with("__DORIS_") {
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
    if column.auto_increment {
        if column.ty != DorisType::BigInt {
            return Err(SqlError::detail("the auto increment must be BIGINT type."));
        }
        if column.nullable {
            return Err(SqlError::detail("the auto increment column should be NOT NULL."));
        }
        if column.default != DefaultValue::None {
            return Err(SqlError::detail("the auto increment column can't have default value."));
        }
    }
    if let Some(how) = column.aggregation
        && !how.fits(&column.ty)
    {
        return Err(SqlError::detail(format!(
            "Aggregate type {} is not compatible with primitive type {}",
            how.name(),
            column.ty.primitive_name().to_lowercase()
        )));
    }
    Ok(())
}

/// 1060 for a name that comes twice.
pub(super) fn check_names(columns: &[Column]) -> Result<(), SqlError> {
    for (i, column) in columns.iter().enumerate() {
        if columns[..i].iter().any(|c| c.name.eq_ignore_ascii_case(&column.name)) {
            return Err(SqlError::coded(1060, format!("Duplicate column name '{}'", column.name)));
        }
    }
    if columns.iter().filter(|c| c.auto_increment).count() > 1 {
        return Err(SqlError::detail("there can be at most one auto increment column in OlapTable."));
    }
    Ok(())
}

/// Whether the aggregation of a value column, or its absence, suits the model.
pub(super) fn check_aggregation(column: &Column, keys_type: KeysType) -> Result<(), SqlError> {
    match (column.key, column.aggregation, keys_type) {
        (true, Some(how), _) => {
            Err(SqlError::detail(format!("Key column {} can not set aggregation type {}", column.name, how.name())))
        }
        (false, None, KeysType::Aggregate) => Err(SqlError::detail(format!(
            "AGG_KEYS table should specify aggregate type for non-key column[{}]",
            column.name
        ))),
        (false, Some(_), KeysType::Duplicate | KeysType::Unique) => Err(SqlError::detail(format!(
            "{} table should not specify aggregate type for non-key column[{}]",
            keys_type.rest_name(),
            column.name
        ))),
        _ if column.auto_increment && keys_type == KeysType::Aggregate => {
            Err(SqlError::detail("the auto increment is only supported in duplicate table and unique table."))
        }
        _ => Ok(()),
    }
}

/// The refusal of a type as key, if it is one.
pub(super) fn check_key_type(column: &Column) -> Result<(), SqlError> {
    if column.ty.can_be_key() {
        return Ok(());
    }
    let name = &column.name;
    Err(SqlError::detail(match column.ty {
        DorisType::Float | DorisType::Double => {
            format!("Float or double can not used as a key, use decimal instead. column={name}")
        }
        DorisType::String => format!("String Type should not be used in key column[{name}]."),
        _ => format!("{} can not be used as a key column[{name}]", column.ty.primitive_name()),
    }))
}
