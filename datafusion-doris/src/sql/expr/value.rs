//! Values: expressions that give the same value in both engines, or cannot be evaluated here either.
//!
//! | accepted | because |
//! | --- | --- |
//! | columns of integers, LARGEINT, DECIMAL to 38 digits, DATE, DATETIME, BOOLEAN, texts; literals of them | |
//! | `+ - *` and `abs` of integers | only where the operands' ranges leave no room for an overflow |
//! | `/` and `%` of integers by a literal other than 0 and -1 | sent as `DIV` and `%`: both cut towards zero |
//! | `+ - *` of decimals | exact in both, as long as Doris keeps the scale |
//! | casts that keep each value, timestamp to date | |
//! | `\|\|`, `concat`, `character_length`, `octet_length`, `substr` from a positive literal, trims of blanks | |
//! | `date_part` and `date_trunc` of calendar units, `coalesce`, `nullif`, `CASE` | |
//!
//! Not sent, though Doris has the name: `lower`, `upper` (fold ASCII only in some builds), `round`, `log`, `strpos`,
//! `/` of decimals (another scale), everything on floats, everything that depends on a clock or time zone.

use arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::logical_expr::expr::{Case, ScalarFunction};
use datafusion::logical_expr::{BinaryExpr, Cast, Expr, Operator};

use super::super::literal::{date_literal, datetime_literal, decimal_literal, integer_literal};
use super::super::string_literal;
use super::typed::{decimal_of, integer_of, is_text, literal_of, micros_of, text_of};
use super::{Columns, Context, Printer};
use crate::types::{DorisType, doris_type_of};

/// Most digits of a decimal that is computed with.
const DIGITS: u8 = 38;
/// `decimal_overflow_scale`: digits of the scale that Doris keeps where a product has too many.
const OVERFLOW_SCALE: u8 = 6;

/// An expression as Doris SQL.
#[derive(Debug, Clone)]
pub(crate) struct SqlValue {
    pub sql: String,
    pub doris_type: DorisType,
    /// Of integers.
    integer: Option<Integer>,
    /// A column and nothing else: its type in the result is that of the column.
    pub bare: bool,
}

#[derive(Debug, Clone, Copy)]
struct Integer {
    /// Least and greatest value.
    range: (i128, i128),
    /// What DataFusion's type of it can hold.
    holds: (i128, i128),
}

impl Integer {
    /// `range` as a result of operands that DataFusion computes in the narrower of two types.
    fn of(range: (i128, i128), left: Integer, right: Integer) -> Option<Self> {
        let holds = (left.holds.0.max(right.holds.0), left.holds.1.min(right.holds.1));
        (holds.0 <= range.0 && range.1 <= holds.1).then_some(Self { range, holds })
    }
}

/// `expr` as a value of Doris, `None` when it is not on the whitelist.
pub(crate) fn value_sql(expr: &Expr, columns: &dyn Columns) -> Option<SqlValue> {
    Printer { columns }.value(expr, Context { negated: false, depth: 0 })
}

fn limits(data_type: &DataType) -> Option<(i128, i128)> {
    Some(match data_type {
        DataType::Int8 => (i8::MIN.into(), i8::MAX.into()),
        DataType::Int16 => (i16::MIN.into(), i16::MAX.into()),
        DataType::Int32 => (i32::MIN.into(), i32::MAX.into()),
        DataType::Int64 => (i64::MIN.into(), i64::MAX.into()),
        _ => return None,
    })
}

fn digits(number: i128) -> u8 {
    // At most 39.
    u8::try_from(number.unsigned_abs().to_string().len()).unwrap_or(u8::MAX)
}

impl SqlValue {
    fn new(sql: String, doris_type: DorisType) -> Self {
        Self { sql, doris_type, integer: None, bare: false }
    }

    fn text(sql: String) -> Self {
        Self::new(sql, DorisType::String)
    }

    fn integer(sql: String, doris_type: DorisType, integer: Integer) -> Self {
        Self { integer: Some(integer), ..Self::new(sql, doris_type) }
    }

    /// A whole number that DataFusion gives as Int32.
    fn small(sql: String, range: (i128, i128)) -> Self {
        let holds = (i32::MIN.into(), i32::MAX.into());
        Self::integer(sql, DorisType::Int, Integer { range, holds })
    }

    fn scaled(&self) -> Option<(u8, u8)> {
        match self.doris_type {
            DorisType::Decimal(precision, scale) => Some((precision, scale)),
            _ => None,
        }
    }

    /// True when Doris compares the two as they are.
    pub fn compares_with(&self, other: &Self) -> bool {
        match (&self.doris_type, &other.doris_type) {
            (DorisType::Decimal(p, s), DorisType::Decimal(q, u)) => (p - s).max(q - u) + (*s).max(*u) <= DIGITS,
            (DorisType::Date, DorisType::Date)
            | (DorisType::DateTime(_), DorisType::DateTime(_))
            | (DorisType::LargeInt, DorisType::LargeInt) => true,
            (left, right) => (is_text(left) && is_text(right)) || (self.integer.is_some() && other.integer.is_some()),
        }
    }

    /// True when equal values of the type are one group in both engines.
    pub fn is_groupable(&self) -> bool {
        !matches!(self.doris_type, DorisType::Float | DorisType::Double)
    }

    /// True when both engines sort it alike.
    pub fn is_ordered(&self) -> bool {
        self.is_groupable() && self.doris_type != DorisType::Boolean
    }

    /// The value with exactly the type that a result of DataFusion's `data_type` is read from.
    pub fn output(&self, data_type: &DataType) -> Option<(String, DorisType)> {
        if self.bare || is_text(&self.doris_type) || self.scaled().is_some() {
            return Some((self.sql.clone(), self.doris_type.clone()));
        }
        let doris_type = doris_type_of(data_type).ok()?;
        Some((format!("CAST({} AS {doris_type})", self.sql), doris_type))
    }

    /// True for whole numbers of at most 64 bits.
    pub fn is_integer(&self) -> bool {
        self.integer.is_some()
    }

    /// True for whole numbers of at most 32 bits.
    pub fn fits_int(&self) -> bool {
        let fits = |integer: Integer| i32::try_from(integer.range.0).is_ok() && i32::try_from(integer.range.1).is_ok();
        self.integer.is_some_and(fits)
    }
}

impl Printer<'_> {
    pub(super) fn value(&self, expr: &Expr, context: Context) -> Option<SqlValue> {
        let context = context.deeper()?;
        match expr {
            Expr::Alias(alias) => self.value(&alias.expr, context),
            Expr::Column(_) => self.column_value(expr),
            Expr::Literal(value, _) => literal_value(value),
            Expr::Cast(cast) => self.cast(cast, context),
            Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
                let left = self.value(left, context)?;
                let right_value = self.value(right, context)?;
                match op {
                    Operator::Plus | Operator::Minus | Operator::Multiply => arithmetic(&left, *op, &right_value),
                    Operator::Divide | Operator::Modulo => quotient(&left, *op, &right_value),
                    Operator::StringConcat if is_text(&left.doris_type) && is_text(&right_value.doris_type) => {
                        Some(SqlValue::text(format!("CONCAT({}, {})", left.sql, right_value.sql)))
                    }
                    _ => None,
                }
            }
            Expr::ScalarFunction(call) => self.call(call, context),
            Expr::Case(case) => self.case_value(case, context),
            _ => None,
        }
    }

    fn column_value(&self, expr: &Expr) -> Option<SqlValue> {
        let column = self.column(expr)?;
        let integer = match column.doris_type {
            DorisType::TinyInt | DorisType::SmallInt | DorisType::Int | DorisType::BigInt => {
                let range = limits(&column.doris_type.arrow_type().ok()?)?;
                Some(Integer { range, holds: range })
            }
            DorisType::Decimal(precision, _) if precision <= DIGITS => None,
            DorisType::Boolean
            | DorisType::LargeInt
            | DorisType::Date
            | DorisType::DateTime(_)
            | DorisType::Char(_)
            | DorisType::Varchar(_)
            | DorisType::String => None,
            _ => return None,
        };
        Some(SqlValue { sql: column.sql, doris_type: column.doris_type, integer, bare: true })
    }

    fn cast(&self, cast: &Cast, context: Context) -> Option<SqlValue> {
        let value = self.value(&cast.expr, context)?;
        let target = cast.field.data_type();
        if let (Some(integer), Some(holds)) = (value.integer, limits(target)) {
            let fits = holds.0 <= integer.range.0 && integer.range.1 <= holds.1;
            let integer = Some(Integer { range: integer.range, holds });
            let doris_type = doris_type_of(target).ok()?;
            return fits.then_some(SqlValue { integer, doris_type, bare: false, ..value });
        }
        match (&value.doris_type, target) {
            (_, DataType::Decimal128(precision, scale)) if value.integer.is_some() => {
                let range = value.integer?.range;
                let (whole, scale) = (digits(range.0).max(digits(range.1)), u8::try_from(*scale).ok()?);
                let doris_type = DorisType::Decimal(whole + scale, scale);
                (whole + scale <= *precision)
                    .then(|| SqlValue::new(format!("CAST({} AS {doris_type})", value.sql), doris_type))
            }
            (DorisType::Decimal(p, s), DataType::Decimal128(precision, scale)) => {
                let scale = u8::try_from(*scale).ok()?;
                if scale < *s || *precision < scale || precision - scale < p - s {
                    return None;
                }
                if scale == *s {
                    return Some(SqlValue { bare: false, ..value });
                }
                let doris_type = DorisType::Decimal(p - s + scale, scale);
                Some(SqlValue::new(format!("CAST({} AS {doris_type})", value.sql), doris_type))
            }
            (DorisType::Date, DataType::Timestamp(unit, None)) if *unit != arrow::datatypes::TimeUnit::Nanosecond => {
                Some(SqlValue::new(format!("CAST({} AS DATETIME(6))", value.sql), DorisType::DateTime(6)))
            }
            (DorisType::DateTime(_), DataType::Date32) => {
                Some(SqlValue::new(format!("CAST({} AS DATE)", value.sql), DorisType::Date))
            }
            (text, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View) if is_text(text) => Some(value),
            _ => None,
        }
    }

    fn call(&self, call: &ScalarFunction, context: Context) -> Option<SqlValue> {
        let name = call.func.name();
        let text = |arg: &Expr| self.value(arg, context).filter(|value| is_text(&value.doris_type));
        match (name, call.args.as_slice()) {
            ("character_length", [arg]) => {
                Some(SqlValue::small(format!("CHAR_LENGTH({})", text(arg)?.sql), (0, i32::MAX.into())))
            }
            ("octet_length", [arg]) => {
                Some(SqlValue::small(format!("LENGTH({})", text(arg)?.sql), (0, i32::MAX.into())))
            }
            ("substr" | "substring", [arg, start, rest @ ..]) if rest.len() <= 1 => {
                let start = integer_of(literal_of(start)?).filter(|start| *start >= 1)?;
                let length = match rest {
                    [length] => format!(", {}", integer_of(literal_of(length)?).filter(|length| *length >= 0)?),
                    _ => String::new(),
                };
                Some(SqlValue::text(format!("SUBSTR({}, {start}{length})", text(arg)?.sql)))
            }
            ("btrim" | "trim", [arg]) => Some(SqlValue::text(format!("TRIM({})", text(arg)?.sql))),
            ("ltrim", [arg]) => Some(SqlValue::text(format!("LTRIM({})", text(arg)?.sql))),
            ("rtrim", [arg]) => Some(SqlValue::text(format!("RTRIM({})", text(arg)?.sql))),
            // Here a NULL counts as empty, in Doris it makes the whole NULL.
            ("concat", args) if !args.is_empty() => {
                let parts: Option<Vec<String>> =
                    args.iter().map(|arg| Some(format!("COALESCE({}, '')", text(arg)?.sql))).collect();
                Some(SqlValue::text(format!("CONCAT({})", parts?.join(", "))))
            }
            ("abs", [arg]) => self.abs(arg, context),
            ("date_part", [unit, arg]) => {
                let arg = self.value(arg, context)?;
                let with_time = matches!(arg.doris_type, DorisType::DateTime(_));
                if !with_time && arg.doris_type != DorisType::Date {
                    return None;
                }
                let (function, range) = match text_of(literal_of(unit)?)?.to_ascii_lowercase().as_str() {
                    "year" => ("YEAR", (0, 9999)),
                    "quarter" => ("QUARTER", (1, 4)),
                    "month" => ("MONTH", (1, 12)),
                    "day" => ("DAY", (1, 31)),
                    "hour" if with_time => ("HOUR", (0, 23)),
                    "minute" if with_time => ("MINUTE", (0, 59)),
                    _ => return None,
                };
                Some(SqlValue::small(format!("{function}({})", arg.sql), range))
            }
            ("date_trunc", [unit, arg]) => {
                let arg = self.value(arg, context)?;
                let unit = text_of(literal_of(unit)?)?.to_ascii_lowercase();
                let known =
                    matches!(unit.as_str(), "year" | "quarter" | "month" | "day" | "hour" | "minute" | "second");
                let DorisType::DateTime(digits) = arg.doris_type else { return None };
                known.then(|| SqlValue::new(format!("DATE_TRUNC({}, '{unit}')", arg.sql), DorisType::DateTime(digits)))
            }
            ("coalesce", args) => {
                let values = args.iter().map(|arg| self.value(arg, context)).collect::<Option<Vec<_>>>()?;
                let list: Vec<&str> = values.iter().map(|value| value.sql.as_str()).collect();
                let sql = format!("COALESCE({})", list.join(", "));
                common(sql, values.iter())
            }
            ("nullif", [left, right]) => {
                let (left, right) = (self.value(left, context)?, self.value(right, context)?);
                let sql = format!("NULLIF({}, {})", left.sql, right.sql);
                left.compares_with(&right).then_some(SqlValue { sql, bare: false, ..left })
            }
            _ => None,
        }
    }

    fn abs(&self, arg: &Expr, context: Context) -> Option<SqlValue> {
        let value = self.value(arg, context)?;
        let sql = format!("ABS({})", value.sql);
        if let Some(integer) = value.integer {
            let (low, high) = integer.range;
            let range = (0, low.checked_abs()?.max(high.checked_abs()?));
            let integer = Integer::of(range, integer, integer)?;
            return Some(SqlValue::integer(sql, value.doris_type, integer));
        }
        value.scaled().map(|_| SqlValue::new(sql, value.doris_type))
    }

    fn case_value(&self, case: &Case, context: Context) -> Option<SqlValue> {
        let mut sql = String::from("(CASE");
        let mut values = Vec::with_capacity(case.when_then_expr.len() + 1);
        for (when, then) in &case.when_then_expr {
            let when = self.when(case, when, context)?;
            let then = self.value(then, context)?;
            sql.push_str(&format!(" WHEN {when} THEN {}", then.sql));
            values.push(then);
        }
        if let Some(otherwise) = &case.else_expr
            && !matches!(otherwise.as_ref(), Expr::Literal(value, _) if value.is_null())
        {
            let otherwise = self.value(otherwise, context)?;
            sql.push_str(&format!(" ELSE {}", otherwise.sql));
            values.push(otherwise);
        }
        sql.push_str(" END)");
        common(sql, values.iter())
    }
}

/// `sql`, which gives one of `values`.
fn common<'a>(sql: String, mut values: impl Iterator<Item = &'a SqlValue>) -> Option<SqlValue> {
    let first = SqlValue { sql, bare: false, ..values.next()?.clone() };
    values.try_fold(first, |known, value| {
        if let (Some(left), Some(right)) = (known.integer, value.integer) {
            let range = (left.range.0.min(right.range.0), left.range.1.max(right.range.1));
            return Some(SqlValue { integer: Some(Integer::of(range, left, right)?), ..known });
        }
        match (&known.doris_type, &value.doris_type) {
            (DorisType::Decimal(p, s), DorisType::Decimal(q, u)) if s == u => {
                let doris_type = DorisType::Decimal(*p.max(q), *s);
                Some(SqlValue { doris_type, ..known })
            }
            (DorisType::DateTime(p), DorisType::DateTime(q)) => {
                let doris_type = DorisType::DateTime(*p.max(q));
                Some(SqlValue { doris_type, ..known })
            }
            (left, right) if is_text(left) && is_text(right) => {
                Some(SqlValue { doris_type: DorisType::String, ..known })
            }
            (left, right) => (left == right && known.integer.is_none()).then_some(known),
        }
    })
}

fn literal_value(value: &ScalarValue) -> Option<SqlValue> {
    if value.is_null() {
        return None;
    }
    if let Some(holds) = limits(&value.data_type()) {
        let number = integer_of(value)?;
        let integer = Integer { range: (number.into(), number.into()), holds };
        return Some(SqlValue::integer(integer_literal(number), doris_type_of(&value.data_type()).ok()?, integer));
    }
    if let Some((unscaled, scale)) = decimal_of(value) {
        let scale = u8::try_from(scale).ok()?;
        let precision = digits(unscaled.to_i128()?).max(scale).max(1);
        let sql = decimal_literal(unscaled, scale.try_into().ok()?, precision, scale)?;
        return Some(SqlValue::new(sql, DorisType::Decimal(precision, scale)));
    }
    if let Some(text) = text_of(value) {
        return (!text.contains('\0')).then(|| SqlValue::text(string_literal(text)));
    }
    match value {
        ScalarValue::Date32(Some(days)) => Some(SqlValue::new(date_literal(*days)?, DorisType::Date)),
        value => Some(SqlValue::new(datetime_literal(micros_of(value)?)?, DorisType::DateTime(6))),
    }
}

fn arithmetic(left: &SqlValue, op: Operator, right: &SqlValue) -> Option<SqlValue> {
    let sql = format!("({} {op} {})", left.sql, right.sql);
    if let (Some(a), Some(b)) = (left.integer, right.integer) {
        let ((a_low, a_high), (b_low, b_high)) = (a.range, b.range);
        let range = match op {
            Operator::Plus => (a_low.checked_add(b_low)?, a_high.checked_add(b_high)?),
            Operator::Minus => (a_low.checked_sub(b_high)?, a_high.checked_sub(b_low)?),
            _ => {
                let products = [(a_low, b_low), (a_low, b_high), (a_high, b_low), (a_high, b_high)]
                    .map(|(a, b)| a.checked_mul(b))
                    .into_iter()
                    .collect::<Option<Vec<_>>>()?;
                (*products.iter().min()?, *products.iter().max()?)
            }
        };
        return Some(SqlValue::integer(sql, DorisType::BigInt, Integer::of(range, a, b)?));
    }
    let ((p, s), (q, u)) = (left.scaled()?, right.scaled()?);
    let doris_type = match op {
        Operator::Multiply => product(p + q, s + u)?,
        _ => {
            let (whole, scale) = ((p - s).max(q - u), s.max(u));
            (whole + scale < DIGITS).then_some(DorisType::Decimal(whole + scale + 1, scale))?
        }
    };
    Some(SqlValue::new(sql, doris_type))
}

/// Doris' type of a product, when it keeps the scale. A value that does not fit the 38 digits is one that DataFusion
/// does not compute either.
fn product(precision: u8, scale: u8) -> Option<DorisType> {
    if precision <= DIGITS {
        return Some(DorisType::Decimal(precision, scale));
    }
    let whole = precision - scale;
    let kept = if whole < DIGITS - OVERFLOW_SCALE { scale.min(DIGITS - whole) } else { scale.min(OVERFLOW_SCALE) };
    (kept == scale).then_some(DorisType::Decimal(DIGITS, scale))
}

fn quotient(left: &SqlValue, op: Operator, right: &SqlValue) -> Option<SqlValue> {
    let (a, b) = (left.integer?, right.integer?);
    let divisor = (b.range.0 == b.range.1).then_some(b.range.0).filter(|divisor| !matches!(divisor, 0 | -1))?;
    let largest = a.range.0.checked_abs()?.max(a.range.1.checked_abs()?);
    let (symbol, largest) = match op {
        Operator::Modulo => ("%", divisor.abs() - 1),
        _ => ("DIV", largest),
    };
    let integer = Integer::of((a.range.0.max(-largest), a.range.1.max(largest)), a, b);
    // The quotient's bounds may be one beyond those of its type, which no quotient reaches.
    let integer = integer.or_else(|| Integer::of(a.range, a, b))?;
    Some(SqlValue::integer(format!("({} {symbol} {})", left.sql, right.sql), DorisType::BigInt, integer))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use datafusion::logical_expr::{cast, col, lit, when};

    use super::super::filter_sql;
    use super::*;
    use crate::types::{ColumnSchema, TableIdent, TableSchema};

    fn table() -> TableSchema {
        let columns = [
            ("tiny", DorisType::TinyInt),
            ("n", DorisType::Int),
            ("big", DorisType::BigInt),
            ("price", DorisType::Decimal(15, 2)),
            ("wide", DorisType::Decimal(38, 10)),
            ("day", DorisType::Date),
            ("at", DorisType::DateTime(3)),
            ("s", DorisType::Varchar(20)),
            ("ratio", DorisType::Double),
        ];
        TableSchema {
            table: TableIdent::new("db", "t"),
            model: None,
            columns: columns.map(|(name, doris_type)| ColumnSchema::new(name, doris_type)).into(),
            properties: Default::default(),
        }
    }

    fn printed(expr: Expr) -> Option<String> {
        value_sql(&expr, &table()).map(|value| value.sql)
    }

    fn decimal(unscaled: i128, precision: u8, scale: i8) -> Expr {
        lit(ScalarValue::Decimal128(Some(unscaled), precision, scale))
    }

    #[test]
    fn integers_are_computed_only_where_no_overflow_is_possible() {
        let wide = |name| cast(col(name), DataType::Int64);
        assert_eq!(printed(wide("n") * lit(3i64)).unwrap(), "(`n` * 3)");
        assert_eq!(printed(wide("n") + wide("tiny")).unwrap(), "(`n` + `tiny`)");
        for refused in [col("n") + lit(1i32), wide("big") + lit(1i64), wide("big") * wide("n"), col("tiny") + lit(1i8)]
        {
            assert_eq!(printed(refused.clone()), None, "{refused}");
        }
    }

    #[test]
    fn integer_division_needs_a_literal_that_is_safe() {
        assert_eq!(printed(col("n") % lit(3i32)).unwrap(), "(`n` % 3)");
        assert_eq!(printed(col("big") / lit(-2i64)).unwrap(), "(`big` DIV (-2))");
        for divisor in [0i64, -1] {
            assert_eq!(printed(col("big") / lit(divisor)), None);
        }
        assert_eq!(printed(col("big") / cast(col("n"), DataType::Int64)), None);
    }

    #[test]
    fn decimals_keep_their_scale_or_stay() {
        let discounted = col("price") * (decimal(1, 20, 0) - col("price"));
        let value = value_sql(&discounted, &table()).unwrap();
        assert_eq!(value.sql, "(`price` * (CAST('1' AS DECIMAL(1, 0)) - `price`))");
        assert_eq!(value.doris_type, DorisType::Decimal(31, 4));
        let taxed = discounted * (decimal(1, 20, 0) + col("price"));
        assert_eq!(value_sql(&taxed, &table()).unwrap().doris_type, DorisType::Decimal(38, 6));
        assert_eq!(printed(col("wide") * col("wide")), None, "the scale of 20 would be cut");
        assert_eq!(printed(col("wide") + col("wide")), None, "39 digits");
        assert_eq!(printed(col("price") / col("price")), None);
    }

    #[test]
    fn functions_are_those_of_the_list() {
        use datafusion::functions::{datetime, string, unicode};
        let cases = [
            (unicode::expr_fn::character_length(col("s")), Some("CHAR_LENGTH(`s`)")),
            (string::expr_fn::octet_length(col("s")), Some("LENGTH(`s`)")),
            (unicode::expr_fn::substr(col("s"), lit(2i64)), Some("SUBSTR(`s`, 2)")),
            (unicode::expr_fn::substr(col("s"), lit(0i64)), None),
            (string::expr_fn::lower(col("s")), None),
            (string::expr_fn::concat(vec![col("s"), lit("x")]), Some("CONCAT(COALESCE(`s`, ''), COALESCE('x', ''))")),
            (datetime::expr_fn::date_part(lit("year"), col("day")), Some("YEAR(`day`)")),
            (datetime::expr_fn::date_part(lit("week"), col("day")), None),
            (datetime::expr_fn::date_part(lit("hour"), col("day")), None),
            (datetime::expr_fn::date_trunc(lit("Month"), col("at")), Some("DATE_TRUNC(`at`, 'month')")),
            (datetime::expr_fn::now(), None),
            (col("ratio") + lit(1.0), None),
        ];
        for (expr, expected) in cases {
            assert_eq!(printed(expr.clone()).as_deref(), expected, "{expr}");
        }
    }

    #[test]
    fn case_keeps_one_family_and_never_drops_its_else() {
        let kept = when(col("n").gt(lit(1)), col("price")).otherwise(decimal(0, 15, 2)).unwrap();
        assert_eq!(printed(kept).unwrap(), "(CASE WHEN (`n` > 1) THEN `price` ELSE CAST('0.00' AS DECIMAL(2, 2)) END)");
        let mixed = when(col("n").gt(lit(1)), col("price")).otherwise(col("ratio")).unwrap();
        assert_eq!(printed(mixed), None);
        let nan = when(col("ratio").lt(lit(1.5)), lit(1i64)).otherwise(lit(0i64)).unwrap();
        assert_eq!(printed(nan), None, "a comparison of doubles decides between branches");
    }

    #[test]
    fn computed_values_stand_in_conditions() {
        let table = table();
        let condition = |expr: Expr| filter_sql(&expr, &table);
        assert_eq!(condition((col("n") % lit(2i32)).eq(lit(1i32))).unwrap(), "((`n` % 2) = 1)");
        assert_eq!(
            condition(col("day").eq(cast(col("at"), DataType::Date32))).unwrap(),
            "(`day` = CAST(`at` AS DATE))"
        );
        assert_eq!(condition(col("n").gt(col("ratio"))), None);
        assert_eq!(condition(col("s").lt(col("day"))), None);
        let null_safe =
            Expr::BinaryExpr(BinaryExpr::new(Box::new(col("n")), Operator::IsDistinctFrom, Box::new(col("big"))));
        assert_eq!(condition(null_safe).unwrap(), "(NOT (`n` <=> `big`))");
    }
}
