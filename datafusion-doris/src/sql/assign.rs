//! Assignments of an UPDATE: DataFusion expression to Doris SQL, only where both give the same value.
//!
//! | accepted | for columns of |
//! | --- | --- |
//! | a literal that the column holds exactly | BOOLEAN, numbers, DATE, DATETIME, CHAR, VARCHAR, STRING |
//! | `NULL` | all that may be NULL |
//! | another column of the same type, or a text that always fits | all but states |
//! | `+ - *` over integer columns and whole numbers | TINYINT, SMALLINT, INT, BIGINT |
//!
//! Arithmetic is done in LARGEINT, which cannot overflow here, and comes with a condition for the rows whose result the
//! column cannot hold: servers differ in what they make of those.

use datafusion::common::ScalarValue;
use datafusion::logical_expr::{BinaryExpr, Expr, Operator};

use super::expr::{text_of, typed_literal};
use super::literal::{integer_literal, largeint_literal};
use super::{quote_ident, string_literal};
use crate::types::{ColumnSchema, DorisType, TableSchema};

/// Most columns and numbers in one sum.
const MAX_OPERANDS: usize = 16;

/// The new value of a column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AssignedValue {
    /// The value in Doris SQL.
    pub sql: String,
    /// Holds for rows whose value does not fit the column; `None` = it always fits.
    pub overflow: Option<String>,
}

/// `value` in Doris SQL, as the new value of `target`, a column of `schema`.
///
/// # Errors
/// Why it cannot be sent.
pub fn assigned_value(value: &Expr, target: &ColumnSchema, schema: &TableSchema) -> Result<AssignedValue, String> {
    let always_fits = |sql: String| Ok(AssignedValue { sql, overflow: None });
    match value {
        Expr::Alias(alias) => assigned_value(&alias.expr, target, schema),
        Expr::Literal(value, _) if value.is_null() => match target.nullable {
            true => always_fits("NULL".into()),
            false => Err("the column is NOT NULL".into()),
        },
        Expr::Literal(value, _) => match literal(value, &target.doris_type) {
            Some(sql) => always_fits(sql),
            None => Err(format!("{value} is no value that {} holds exactly", target.doris_type)),
        },
        Expr::Column(column) => {
            let source = exact_column(schema, &column.name)
                .ok_or_else(|| format!("'{}' is no column of the table in Doris", column.name))?;
            match fits(&source.doris_type, &target.doris_type) {
                true => always_fits(quote_ident(&source.name)),
                false => Err(format!("column '{}' is {}, not {}", source.name, source.doris_type, target.doris_type)),
            }
        }
        value => {
            let range = integer_range(&target.doris_type);
            let sum = range.and_then(|_| Sum { schema, operands: 0, products: 0 }.print(value));
            let (Some((low, high)), Some(sum)) = (range, sum) else {
                return Err("it is neither a literal nor a column nor a sum of integer columns and numbers".into());
            };
            let overflow = format!("({sum} NOT BETWEEN {} AND {})", largeint_literal(low), largeint_literal(high));
            Ok(AssignedValue { sql: format!("CAST({sum} AS {})", target.doris_type), overflow: Some(overflow) })
        }
    }
}

fn exact_column<'a>(schema: &'a TableSchema, name: &str) -> Option<&'a ColumnSchema> {
    schema.columns.iter().find(|column| column.name == name)
}

fn integer_range(doris_type: &DorisType) -> Option<(i128, i128)> {
    Some(match doris_type {
        DorisType::TinyInt => (i8::MIN.into(), i8::MAX.into()),
        DorisType::SmallInt => (i16::MIN.into(), i16::MAX.into()),
        DorisType::Int => (i32::MIN.into(), i32::MAX.into()),
        DorisType::BigInt => (i64::MIN.into(), i64::MAX.into()),
        _ => return None,
    })
}

/// Whether each value of `source` is one of `target`, the same.
fn fits(source: &DorisType, target: &DorisType) -> bool {
    match (source, target) {
        (DorisType::Opaque(_), _) => false,
        (DorisType::Varchar(from), DorisType::Varchar(to)) => from <= to,
        (DorisType::Varchar(_), DorisType::String) => true,
        (source, target) => match (integer_range(source), integer_range(target)) {
            (Some((low, high)), Some((least, most))) => least <= low && high <= most,
            _ => source == target,
        },
    }
}

fn literal(value: &ScalarValue, target: &DorisType) -> Option<String> {
    match target {
        DorisType::TinyInt | DorisType::SmallInt | DorisType::Int | DorisType::BigInt => {
            let number: i128 = super::expr::integer_of(value)?.into();
            let (low, high) = integer_range(target)?;
            if number < low || number > high { None } else { typed_literal(target, value) }
        }
        DorisType::Float => match value {
            ScalarValue::Float32(Some(value)) => value.is_finite().then(|| format!("CAST('{value:e}' AS FLOAT)")),
            _ => None,
        },
        DorisType::Double => match value {
            ScalarValue::Float64(Some(value)) => value.is_finite().then(|| format!("CAST('{value:e}' AS DOUBLE)")),
            _ => None,
        },
        DorisType::DateTime(precision) => {
            let micros = super::expr::micros_of(value)?;
            let unit = 10_i64.checked_pow(6_u32.checked_sub(u32::from(*precision))?)?;
            if micros % unit == 0 { typed_literal(target, value) } else { None }
        }
        DorisType::Char(bytes) | DorisType::Varchar(bytes) => {
            let text = text_of(value)?;
            let padded = matches!(target, DorisType::Char(_)) && text.contains('\0');
            (text.len() <= *bytes as usize && !padded).then(|| string_literal(text))
        }
        target => typed_literal(target, value),
    }
}

/// Prints sums of integers, exact in LARGEINT: products of two columns or numbers, one at most.
struct Sum<'a> {
    schema: &'a TableSchema,
    operands: usize,
    products: usize,
}

impl Sum<'_> {
    fn print(&mut self, expr: &Expr) -> Option<String> {
        match expr {
            Expr::BinaryExpr(BinaryExpr { left, op: op @ (Operator::Plus | Operator::Minus), right }) => {
                let (left, right) = (self.print(left)?, self.print(right)?);
                Some(format!("({left} {op} {right})"))
            }
            Expr::BinaryExpr(BinaryExpr { left, op: Operator::Multiply, right }) => {
                self.products += 1;
                let (left, right) = (self.operand(left)?, self.operand(right)?);
                (self.products == 1).then(|| format!("({left} * {right})"))
            }
            Expr::Cast(cast) if cast.field.data_type().is_signed_integer() => match self.operand(&cast.expr) {
                Some(operand) => Some(operand),
                None => self.print(&cast.expr),
            },
            operand => self.operand(operand),
        }
    }

    fn operand(&mut self, expr: &Expr) -> Option<String> {
        match expr {
            Expr::Cast(cast) if cast.field.data_type().is_signed_integer() => self.operand(&cast.expr),
            Expr::Column(column) => {
                let column = exact_column(self.schema, &column.name)?;
                integer_range(&column.doris_type)?;
                self.count()?;
                Some(format!("CAST({} AS LARGEINT)", quote_ident(&column.name)))
            }
            Expr::Literal(value, _) if !value.is_null() => {
                let number = super::expr::integer_of(value)?;
                self.count()?;
                Some(integer_literal(number))
            }
            _ => None,
        }
    }

    fn count(&mut self) -> Option<()> {
        self.operands += 1;
        (self.operands <= MAX_OPERANDS).then_some(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use datafusion::logical_expr::{cast, col, lit};

    use super::*;
    use crate::types::TableIdent;
    use arrow::datatypes::DataType;

    fn table() -> TableSchema {
        let column = ColumnSchema::new;
        TableSchema {
            table: TableIdent::new("d", "t"),
            model: None,
            columns: vec![
                column("i", DorisType::Int).with_nullable(false),
                column("b", DorisType::BigInt),
                column("c", DorisType::BigInt),
                column("s", DorisType::Varchar(3)),
                column("l", DorisType::Varchar(9)),
                column("t", DorisType::DateTime(0)),
                column("d", DorisType::Double),
                column("f", DorisType::Float),
                column("m", DorisType::Decimal(5, 2)),
                column("j", DorisType::Json),
            ],
            properties: Default::default(),
        }
    }

    fn assigned(column: &str, value: Expr) -> Result<String, String> {
        let table = table();
        assigned_value(&value, table.column(column).unwrap(), &table).map(|value| match value.overflow {
            Some(overflow) => format!("{} UNLESS {overflow}", value.sql),
            None => value.sql,
        })
    }

    #[test]
    fn values_are_sent_when_the_column_holds_them_exactly() {
        let second = |micros| lit(ScalarValue::TimestampMicrosecond(Some(micros), None));
        let cases = [
            ("i", lit(-5_i32), "(-5)"),
            ("b", lit(ScalarValue::Null), "NULL"),
            ("s", lit("it'"), "'it'''"),
            ("l", col("s"), "`s`"),
            ("b", col("i"), "`i`"),
            ("t", second(1_000_000), "CAST('1970-01-01 00:00:01.000000' AS DATETIME(6))"),
            ("d", lit(0.0_f64), "CAST('0e0' AS DOUBLE)"),
            ("f", lit(0.1_f32), "CAST('1e-1' AS FLOAT)"),
            ("m", lit(ScalarValue::Decimal128(Some(150), 5, 2)), "CAST('1.50' AS DECIMAL(5, 2))"),
            ("j", col("j"), "`j`"),
        ];
        for (column, value, expected) in cases {
            assert_eq!(assigned(column, value.clone()).as_deref(), Ok(expected), "{column} = {value}");
        }
    }

    #[test]
    fn values_that_may_change_on_the_way_are_refused() {
        let cases = [
            ("i", lit(ScalarValue::Null), "NOT NULL"),
            ("i", lit(1_i64 << 40), "INT"),
            ("i", col("b"), "BIGINT"),
            ("s", lit("long"), "VARCHAR(3)"),
            ("s", col("l"), "VARCHAR(9)"),
            ("t", lit(ScalarValue::TimestampMicrosecond(Some(1), None)), "DATETIME"),
            ("d", lit(f64::NAN), "DOUBLE"),
            ("j", lit("{}"), "JSON"),
            ("d", col("d") + lit(1.0), "neither a literal"),
            ("b", (col("b") + col("c")) * col("i"), "neither a literal"),
            ("b", col("b") * col("c") + col("b") * col("c"), "neither a literal"),
            ("b", col("b") / lit(2_i64), "neither a literal"),
            ("b", col("nope"), "no column"),
        ];
        for (column, value, expected) in cases {
            let reason = assigned(column, value.clone()).unwrap_err();
            assert!(reason.contains(expected), "{column} = {value}: {reason}");
        }
    }

    #[test]
    fn sums_come_with_the_rows_they_do_not_fit() {
        let value = cast(cast(col("i"), DataType::Int64) + lit(1_i64), DataType::Int32);
        assert_eq!(
            assigned("i", value).unwrap(),
            "CAST((CAST(`i` AS LARGEINT) + 1) AS INT) UNLESS ((CAST(`i` AS LARGEINT) + 1) NOT BETWEEN \
             CAST('-2147483648' AS LARGEINT) AND CAST('2147483647' AS LARGEINT))"
        );
        let value = col("b") * lit(2_i64) - col("c");
        let sql = assigned("b", value).unwrap();
        assert!(
            sql.starts_with("CAST(((CAST(`b` AS LARGEINT) * 2) - CAST(`c` AS LARGEINT)) AS BIGINT) UNLESS"),
            "{sql}"
        );
    }
}
