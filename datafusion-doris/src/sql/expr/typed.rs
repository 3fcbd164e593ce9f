//! Literals of DataFusion, read for a Doris type.

use arrow::datatypes::i256;
use datafusion::common::ScalarValue;
use datafusion::logical_expr::Expr;

use super::super::literal::{
    date_literal, datetime_literal, decimal_literal, double_literal, integer_literal, largeint_literal, rescale,
};
use super::super::string_literal;
use crate::types::DorisType;

pub(super) fn literal_of(expr: &Expr) -> Option<&ScalarValue> {
    match expr {
        Expr::Literal(value, _) if !value.is_null() => Some(value),
        _ => None,
    }
}

/// CHAR, VARCHAR, STRING.
pub(crate) fn is_text(doris_type: &DorisType) -> bool {
    matches!(doris_type, DorisType::Char(_) | DorisType::Varchar(_) | DorisType::String)
}

pub(in crate::sql) fn text_of(value: &ScalarValue) -> Option<&str> {
    match value {
        ScalarValue::Utf8(Some(text)) | ScalarValue::LargeUtf8(Some(text)) | ScalarValue::Utf8View(Some(text)) => {
            Some(text)
        }
        _ => None,
    }
}

pub(in crate::sql) fn integer_of(value: &ScalarValue) -> Option<i64> {
    match value {
        ScalarValue::Int8(Some(value)) => Some((*value).into()),
        ScalarValue::Int16(Some(value)) => Some((*value).into()),
        ScalarValue::Int32(Some(value)) => Some((*value).into()),
        ScalarValue::Int64(Some(value)) => Some(*value),
        ScalarValue::UInt8(Some(value)) => Some((*value).into()),
        ScalarValue::UInt16(Some(value)) => Some((*value).into()),
        ScalarValue::UInt32(Some(value)) => Some((*value).into()),
        ScalarValue::UInt64(Some(value)) => i64::try_from(*value).ok(),
        _ => None,
    }
}

/// Unscaled value and scale.
pub(super) fn decimal_of(value: &ScalarValue) -> Option<(i256, i8)> {
    match value {
        ScalarValue::Decimal32(Some(value), _, scale) => Some((i256::from_i128((*value).into()), *scale)),
        ScalarValue::Decimal64(Some(value), _, scale) => Some((i256::from_i128((*value).into()), *scale)),
        ScalarValue::Decimal128(Some(value), _, scale) => Some((i256::from_i128(*value), *scale)),
        ScalarValue::Decimal256(Some(value), _, scale) => Some((*value, *scale)),
        _ => None,
    }
}

/// Microseconds of a timestamp without zone; nanoseconds only when whole.
pub(in crate::sql) fn micros_of(value: &ScalarValue) -> Option<i64> {
    match value {
        ScalarValue::TimestampSecond(Some(value), None) => value.checked_mul(1_000_000),
        ScalarValue::TimestampMillisecond(Some(value), None) => value.checked_mul(1_000),
        ScalarValue::TimestampMicrosecond(Some(value), None) => Some(*value),
        ScalarValue::TimestampNanosecond(Some(value), None) => (value % 1_000 == 0).then_some(value / 1_000),
        _ => None,
    }
}

/// True for the types of columns that have literals as keys: those whose equality is the same everywhere.
pub(crate) fn has_key_literals(doris_type: &DorisType) -> bool {
    matches!(
        doris_type,
        DorisType::Boolean
            | DorisType::TinyInt
            | DorisType::SmallInt
            | DorisType::Int
            | DorisType::BigInt
            | DorisType::LargeInt
            | DorisType::Decimal(..)
            | DorisType::Date
            | DorisType::DateTime(_)
            | DorisType::Char(_)
            | DorisType::Varchar(_)
            | DorisType::String
    )
}

/// `value` as a literal that Doris compares with a column of `doris_type` without converting the column.
pub(in crate::sql) fn typed_literal(doris_type: &DorisType, value: &ScalarValue) -> Option<String> {
    match doris_type {
        DorisType::Boolean => match value {
            ScalarValue::Boolean(Some(value)) => Some(if *value { "TRUE" } else { "FALSE" }.into()),
            _ => None,
        },
        DorisType::TinyInt | DorisType::SmallInt | DorisType::Int | DorisType::BigInt => {
            integer_of(value).map(integer_literal)
        }
        DorisType::LargeInt => {
            let number = match decimal_of(value) {
                Some((unscaled, scale)) => rescale(unscaled, scale, 0)?.to_i128()?,
                None => integer_of(value)?.into(),
            };
            Some(largeint_literal(number))
        }
        DorisType::Decimal(precision, scale) => {
            let (unscaled, value_scale) = decimal_of(value)?;
            decimal_literal(unscaled, value_scale, *precision, *scale)
        }
        DorisType::Double => match value {
            ScalarValue::Float64(Some(value)) => double_literal(*value),
            _ => None,
        },
        DorisType::Date => match value {
            ScalarValue::Date32(Some(days)) => date_literal(*days),
            _ => None,
        },
        DorisType::DateTime(_) => datetime_literal(micros_of(value)?),
        // CHAR is stored padded with NUL: a value that ends with one cannot be told from a shorter one.
        DorisType::Char(_) => text_of(value).filter(|text| !text.contains('\0')).map(string_literal),
        DorisType::Varchar(_) | DorisType::String => text_of(value).map(string_literal),
        _ => None,
    }
}
