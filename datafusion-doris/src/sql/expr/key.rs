//! Keys that rows are looked up by: which rows of Doris can equal a value.
//!
//! A lookup may bring more rows than the key has, since the join compares them again, but never fewer. So a value that
//! Doris compares as DataFusion does is asked for as it is; one that no value of the column can equal is not asked for; and
//! of the rest a range is asked for that holds all rows which can come back as that value:
//!
//! | column | value | asked for |
//! | --- | --- | --- |
//! | integers, LARGEINT | beyond the type | nothing |
//! | DECIMAL(p, s) | more digits than p, or behind s | nothing |
//! | DATE, DATETIME | year below 0 or above 9999, parts of a microsecond | nothing |
//! | DATE, DATETIME | year 0, which some servers send a day late | everything before 0001-01-02 |
//! | CHAR | ends with NUL, with which Doris pads | nothing |
//! | CHAR | holds NUL | what begins with the text before it |

use chrono::{DateTime, Datelike, NaiveDate};
use datafusion::common::ScalarValue;

use super::super::string_literal;
use super::typed::{decimal_of, has_key_literals, integer_of, micros_of, text_of, typed_literal};
use crate::types::DorisType;

/// Which rows can equal a value of a key column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum KeyRows {
    /// Those whose column equals this literal.
    Equal(String),
    /// Some of those for which this condition holds.
    Among(String),
    /// None.
    None,
}

/// The rows whose `column` (as it stands in a statement) of type `doris_type` can equal `value`, which is of the Arrow type
/// that the column is read as.
pub(crate) fn key_rows(column: &str, doris_type: &DorisType, value: &ScalarValue) -> KeyRows {
    if value.is_null() {
        return KeyRows::None;
    }
    let literal = has_key_literals(doris_type).then(|| typed_literal(doris_type, value)).flatten();
    if let Some(literal) = literal {
        return KeyRows::Equal(literal);
    }
    let any = || KeyRows::Among(format!("({column} IS NOT NULL)"));
    let of_year = |year: Option<i32>, later: &str| match year {
        Some(0) => KeyRows::Among(format!("({column} < {later})")),
        // What chrono cannot tell is further away.
        _ => KeyRows::None,
    };
    match doris_type {
        DorisType::TinyInt | DorisType::SmallInt | DorisType::Int | DorisType::BigInt => match value {
            ScalarValue::UInt64(_) => KeyRows::None,
            _ => any(),
        },
        DorisType::LargeInt | DorisType::Decimal(..) if decimal_of(value).is_some() => KeyRows::None,
        DorisType::LargeInt if integer_of(value).is_some() => KeyRows::None,
        DorisType::Date => match value {
            ScalarValue::Date32(Some(days)) => {
                of_year(NaiveDate::from_epoch_days(*days).map(|date| date.year()), "CAST('0001-01-02' AS DATE)")
            }
            _ => any(),
        },
        DorisType::DateTime(_) => match value {
            ScalarValue::TimestampSecond(Some(_), None)
            | ScalarValue::TimestampMillisecond(Some(_), None)
            | ScalarValue::TimestampMicrosecond(Some(_), None)
            | ScalarValue::TimestampNanosecond(Some(_), None) => {
                let at = micros_of(value).and_then(DateTime::from_timestamp_micros);
                of_year(at.map(|at| at.year()), "CAST('0001-01-02 00:00:00' AS DATETIME(6))")
            }
            _ => any(),
        },
        DorisType::Char(_) => match text_of(value) {
            Some(text) if text.ends_with('\0') => KeyRows::None,
            Some(text) => {
                let begin = text.split('\0').next().unwrap_or_default();
                let (from, to) = (string_literal(begin), string_literal(&format!("{begin}\u{1}")));
                KeyRows::Among(format!("({column} >= {from} AND {column} < {to})"))
            }
            None => any(),
        },
        _ => any(),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use arrow::datatypes::i256;

    use super::*;

    #[test]
    fn values_that_doris_cannot_compare_are_no_error_and_lose_no_row() {
        let days = |year, month, day| {
            let date = NaiveDate::from_ymd_opt(year, month, day).unwrap();
            ScalarValue::Date32(Some(
                date.signed_duration_since(NaiveDate::from_ymd_opt(1970, 1, 1).unwrap()).num_days() as i32,
            ))
        };
        let micros = |year| {
            let at = NaiveDate::from_ymd_opt(year, 12, 31).unwrap().and_hms_opt(23, 59, 59).unwrap();
            ScalarValue::TimestampMicrosecond(Some(at.and_utc().timestamp_micros()), None)
        };
        let text = |text: &str| ScalarValue::Utf8(Some(text.into()));
        let equal = |sql: &str| KeyRows::Equal(sql.into());
        let among = |sql: &str| KeyRows::Among(sql.into());
        let year_zero = "(`k` < CAST('0001-01-02' AS DATE))";
        let year_zero_at = "(`k` < CAST('0001-01-02 00:00:00' AS DATETIME(6)))";
        let cases = [
            (DorisType::Int, ScalarValue::Int32(Some(-5)), equal("(-5)")),
            (DorisType::Int, ScalarValue::Int32(None), KeyRows::None),
            (DorisType::BigInt, ScalarValue::UInt64(Some(u64::MAX)), KeyRows::None),
            (DorisType::Int, ScalarValue::Float64(Some(f64::NAN)), among("(`k` IS NOT NULL)")),
            (
                DorisType::LargeInt,
                ScalarValue::Decimal256(Some(i256::from_i128(i128::MAX)), 39, 0),
                equal("CAST('170141183460469231731687303715884105727' AS LARGEINT)"),
            ),
            (
                DorisType::LargeInt,
                ScalarValue::Decimal256(i256::from_i128(i128::MAX).checked_add(i256::ONE), 39, 0),
                KeyRows::None,
            ),
            (DorisType::LargeInt, ScalarValue::Decimal128(Some(15), 3, 1), KeyRows::None),
            (
                DorisType::Decimal(10, 2),
                ScalarValue::Decimal128(Some(125), 10, 2),
                equal("CAST('1.25' AS DECIMAL(10, 2))"),
            ),
            (DorisType::Decimal(10, 2), ScalarValue::Decimal128(Some(1255), 10, 3), KeyRows::None),
            (DorisType::Decimal(10, 2), ScalarValue::Decimal256(Some(i256::MAX), 76, 0), KeyRows::None),
            (DorisType::Date, days(2024, 2, 29), equal("CAST('2024-02-29' AS DATE)")),
            (DorisType::Date, days(0, 2, 29), among(year_zero)),
            (DorisType::Date, days(-1, 12, 31), KeyRows::None),
            (DorisType::Date, days(10_000, 1, 1), KeyRows::None),
            (DorisType::Date, ScalarValue::Date32(Some(i32::MAX)), KeyRows::None),
            (DorisType::DateTime(6), micros(0), among(year_zero_at)),
            (DorisType::DateTime(6), micros(-1), KeyRows::None),
            (DorisType::DateTime(6), micros(10_000), KeyRows::None),
            (DorisType::DateTime(6), ScalarValue::TimestampMicrosecond(Some(i64::MAX), None), KeyRows::None),
            (DorisType::DateTime(6), ScalarValue::TimestampNanosecond(Some(1_001), None), KeyRows::None),
            (DorisType::Char(4), text("a"), equal("'a'")),
            (DorisType::Char(4), text("a\0"), KeyRows::None),
            (DorisType::Char(4), text("a'\0b"), among("(`k` >= 'a''' AND `k` < 'a''\u{1}')")),
            (DorisType::Varchar(4), text("a\0"), equal("'a\\0'")),
            (DorisType::Double, ScalarValue::Float64(Some(1.5)), among("(`k` IS NOT NULL)")),
        ];
        for (doris_type, value, expected) in cases {
            assert_eq!(key_rows("`k`", &doris_type, &value), expected, "{doris_type} {value:?}");
        }
    }
}
