//! Functions that DataFusion lacks or gives another meaning.

use std::hash::Hash;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Float64Array, Int64Array, StringArray};
use arrow::datatypes::{DataType, Field, FieldRef, Float64Type, Int64Type, TimeUnit, TimestampMicrosecondType};
use datafusion::common::{Result, ScalarValue, exec_datafusion_err, exec_err, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use super::functions::date_format;
use crate::types::{DorisType, SessionZone, conform, conform_in, parse_type};

fn array_of(value: &ColumnarValue, rows: usize) -> Result<ArrayRef> {
    value.clone().into_array(rows)
}

fn conformed(array: &ArrayRef, ty: &DorisType) -> Result<ArrayRef> {
    conform(array, ty).map_err(Into::into)
}

macro_rules! common {
    ($name:expr) => {
        fn name(&self) -> &str {
            $name
        }

        fn signature(&self) -> &Signature {
            &self.signature
        }
    };
}

/// `CAST(x AS type)`: what cannot be converted becomes NULL.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Cast {
    signature: Signature,
}

fn cast_target(args: &[Option<&ScalarValue>]) -> Result<DorisType> {
    match args.get(1) {
        Some(Some(ScalarValue::Utf8(Some(text)))) => parse_type(text).map_err(|e| exec_datafusion_err!("{e}")),
        _ => exec_err!("cast without a type"),
    }
}

impl ScalarUDFImpl for Cast {
    common!("__doris_cast");

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        exec_err!("the type of a cast depends on its argument")
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let ty = cast_target(args.scalar_arguments)?;
        let source = args.arg_fields[0].data_type();
        let widening = match (source, &ty) {
            (a, b) if *a == b.storage() => true,
            (
                DataType::Int8 | DataType::Int16 | DataType::Int32,
                DorisType::BigInt | DorisType::LargeInt | DorisType::Double,
            ) => true,
            (DataType::Int64, DorisType::LargeInt) => true,
            _ => false,
        };
        let nullable = !widening || args.arg_fields[0].is_nullable();
        Ok(ty.storage_field(self.name(), nullable))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let field = &args.return_field;
        let ty = match &args.args[1] {
            ColumnarValue::Scalar(ScalarValue::Utf8(Some(text))) => {
                parse_type(text).map_err(|e| exec_datafusion_err!("{e}"))?
            }
            _ => DorisType::of_field(field).ok_or_else(|| exec_datafusion_err!("cast without a type"))?,
        };
        match &args.args[0] {
            ColumnarValue::Scalar(value) => {
                let array = conformed(&value.to_array()?, &ty)?;
                Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&array, 0)?))
            }
            ColumnarValue::Array(array) => Ok(ColumnarValue::Array(conformed(array, &ty)?)),
        }
    }
}

/// `__doris_cast(x, 'type')`
pub(super) fn cast() -> ScalarUDF {
    ScalarUDF::from(Cast { signature: Signature::any(2, Volatility::Immutable) })
}

/// Which division.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Arithmetic {
    /// `/`, always DOUBLE
    Divide,
    /// `%`
    Modulo,
    /// `DIV`
    IntDivide,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Divide {
    kind: Arithmetic,
    signature: Signature,
}

impl ScalarUDFImpl for Divide {
    fn name(&self) -> &str {
        match self.kind {
            Arithmetic::Divide => "__doris_divide",
            Arithmetic::Modulo => "__doris_mod",
            Arithmetic::IntDivide => "__doris_int_divide",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        let decimal = types.iter().any(|t| matches!(t, DataType::Decimal128(..) | DataType::Decimal256(..)));
        let integers = types.iter().all(|t| t.is_integer() || matches!(t, DataType::Boolean | DataType::Null));
        if decimal && !types.iter().any(DataType::is_floating) {
            return plan_err!("the sandbox does not implement division of DECIMAL and LARGEINT values");
        }
        Ok(match self.kind {
            Arithmetic::Divide => DataType::Float64,
            Arithmetic::Modulo if !integers => DataType::Float64,
            _ => DataType::Int64,
        })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = args.number_rows;
        let (left, right) = (array_of(&args.args[0], rows)?, array_of(&args.args[1], rows)?);
        if *args.return_field.data_type() == DataType::Float64 {
            let (left, right) = (conformed(&left, &DorisType::Double)?, conformed(&right, &DorisType::Double)?);
            let pairs = left.as_primitive::<Float64Type>().iter().zip(right.as_primitive::<Float64Type>());
            let modulo = self.kind == Arithmetic::Modulo;
            let out: Float64Array = pairs
                .map(|pair| match pair {
                    (Some(a), Some(b)) if b != 0.0 => Some(if modulo { a % b } else { a / b }),
                    _ => None,
                })
                .collect();
            return Ok(ColumnarValue::Array(Arc::new(out)));
        }
        let (left, right) = (conformed(&left, &DorisType::BigInt)?, conformed(&right, &DorisType::BigInt)?);
        let pairs = left.as_primitive::<Int64Type>().iter().zip(right.as_primitive::<Int64Type>());
        let modulo = self.kind == Arithmetic::Modulo;
        let out: Int64Array = pairs
            .map(|pair| match pair {
                (Some(a), Some(b)) if b != 0 => Some(if modulo { a.wrapping_rem(b) } else { a.wrapping_div(b) }),
                _ => None,
            })
            .collect();
        Ok(ColumnarValue::Array(Arc::new(out)))
    }
}

/// `/`, `%` and `DIV`; division by zero is NULL.
pub(super) fn arithmetic(kind: Arithmetic) -> ScalarUDF {
    ScalarUDF::from(Divide { kind, signature: Signature::any(2, Volatility::Immutable) })
}

/// Argument of `sum` and `avg`: widened as Doris does, refused where the result would differ.
#[derive(Debug, PartialEq, Eq, Hash)]
struct AggregateInput {
    average: bool,
    signature: Signature,
}

impl AggregateInput {
    fn target(&self, from: &DataType) -> Result<DorisType> {
        Ok(match from {
            DataType::Decimal256(39, 0) => return plan_err!("the sandbox does not implement SUM and AVG of LARGEINT"),
            DataType::Decimal128(..) | DataType::Decimal256(..) if self.average => {
                return plan_err!("the sandbox does not implement AVG of DECIMAL");
            }
            DataType::Decimal128(_, s) => DorisType::Decimal { precision: 38, scale: (*s).max(0) as u8 },
            DataType::Decimal256(_, s) => DorisType::Decimal { precision: 76, scale: (*s).max(0) as u8 },
            DataType::Float32 | DataType::Float64 | DataType::Utf8 => DorisType::Double,
            t if t.is_integer() || *t == DataType::Boolean => {
                if self.average {
                    DorisType::Double
                } else {
                    DorisType::BigInt
                }
            }
            DataType::Null => DorisType::Double,
            other => return plan_err!("sum and avg requires a numeric parameter: {other}"),
        })
    }
}

impl ScalarUDFImpl for AggregateInput {
    fn name(&self) -> &str {
        if self.average { "__doris_avg_input" } else { "__doris_sum_input" }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        self.target(&types[0]).map(|ty| ty.storage())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let array = array_of(&args.args[0], args.number_rows)?;
        let ty = self.target(array.data_type())?;
        Ok(ColumnarValue::Array(conformed(&array, &ty)?))
    }
}

/// Widening of the argument of `sum` (or of `avg`).
pub(super) fn aggregate_input(average: bool) -> ScalarUDF {
    ScalarUDF::from(AggregateInput { average, signature: Signature::any(1, Volatility::Immutable) })
}

/// `substr(s, from[, length])`: 1-based, position 0 gives the empty string, negative positions count from the end.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Substr {
    signature: Signature,
}

fn substr(text: &str, from: i64, length: Option<i64>) -> String {
    let chars = text.chars().count() as i64;
    let start = match from {
        0 => return String::new(),
        n if n > 0 => n - 1,
        n if chars + n < 0 => return String::new(),
        n => chars + n,
    };
    let take = length.map_or(usize::MAX, |n| n.max(0) as usize);
    text.chars().skip(start as usize).take(take).collect()
}

impl ScalarUDFImpl for Substr {
    common!("__doris_substr");

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = args.number_rows;
        let text = conformed(&array_of(&args.args[0], rows)?, &DorisType::String)?;
        let from = conformed(&array_of(&args.args[1], rows)?, &DorisType::BigInt)?;
        let length = args.args.get(2).map(|a| conformed(&array_of(a, rows)?, &DorisType::BigInt)).transpose()?;
        let (text, from) = (text.as_string::<i32>(), from.as_primitive::<Int64Type>());
        let out: StringArray = (0..rows)
            .map(|i| {
                let length = match &length {
                    Some(array) if array.is_null(i) => return None,
                    Some(array) => Some(array.as_primitive::<Int64Type>().value(i)),
                    None => None,
                };
                (!text.is_null(i) && !from.is_null(i)).then(|| substr(text.value(i), from.value(i), length))
            })
            .collect();
        Ok(ColumnarValue::Array(Arc::new(out)))
    }
}

pub(super) fn substr_function() -> ScalarUDF {
    ScalarUDF::from(Substr { signature: Signature::variadic_any(Volatility::Immutable) })
}

/// Which conversion between time and text or numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum TimeKind {
    /// `from_unixtime(seconds[, format])`
    FromUnixtime,
    /// `unix_timestamp(datetime)`
    UnixTimestamp,
    /// `date_format(datetime, format)`
    DateFormat,
}

/// Conversions that depend on the session's time zone.
#[derive(Debug, PartialEq, Eq, Hash)]
struct TimeFunction {
    kind: TimeKind,
    zone: String,
    signature: Signature,
}

impl TimeFunction {
    fn zone(&self) -> SessionZone {
        self.zone.parse().unwrap_or(SessionZone::UTC)
    }
}

impl ScalarUDFImpl for TimeFunction {
    fn name(&self) -> &str {
        match self.kind {
            TimeKind::FromUnixtime => "__doris_from_unixtime",
            TimeKind::UnixTimestamp => "__doris_unix_timestamp",
            TimeKind::DateFormat => "__doris_date_format",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(if self.kind == TimeKind::UnixTimestamp { DataType::Int64 } else { DataType::Utf8 })
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let types: Vec<DataType> = args.arg_fields.iter().map(|f| f.data_type().clone()).collect();
        Ok(Arc::new(Field::new(self.name(), self.return_type(&types)?, true)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = args.number_rows;
        let zone = self.zone();
        let first = array_of(&args.args[0], rows)?;
        let format = args.args.get(1).map(|a| conformed(&array_of(a, rows)?, &DorisType::String)).transpose()?;
        let format_of = |i: usize| match &format {
            Some(array) if array.is_null(i) => None,
            Some(array) => Some(array.as_string::<i32>().value(i).to_owned()),
            None => Some("%Y-%m-%d %H:%i:%s".to_owned()),
        };
        if self.kind == TimeKind::FromUnixtime {
            let seconds = conformed(&first, &DorisType::Double)?;
            let seconds = seconds.as_primitive::<Float64Type>();
            let out: StringArray = (0..rows)
                .map(|i| {
                    if seconds.is_null(i) || seconds.value(i) < 0.0 {
                        return None;
                    }
                    let instant = seconds.value(i).floor() as i64;
                    let wall = instant + zone.offset_at(instant);
                    Some(date_format(wall * 1_000_000, &format_of(i)?))
                })
                .collect();
            return Ok(ColumnarValue::Array(Arc::new(out)));
        }
        let micros = conform_in(&first, &DorisType::DateTime(6), &zone)?;
        let micros = match micros.data_type() {
            DataType::Timestamp(TimeUnit::Microsecond, None) => {
                micros.as_primitive::<TimestampMicrosecondType>().clone()
            }
            other => return exec_err!("unexpected time type {other}"),
        };
        if self.kind == TimeKind::UnixTimestamp {
            let out: Int64Array =
                micros.iter().map(|v| v.map(|v| zone.instant_of_wall(v.div_euclid(1_000_000)))).collect();
            return Ok(ColumnarValue::Array(Arc::new(out)));
        }
        let out: StringArray = (0..rows)
            .map(|i| (!micros.is_null(i)).then(|| format_of(i).map(|f| date_format(micros.value(i), &f))).flatten())
            .collect();
        Ok(ColumnarValue::Array(Arc::new(out)))
    }
}

pub(super) fn time_function(kind: TimeKind, zone: &SessionZone) -> ScalarUDF {
    ScalarUDF::from(TimeFunction {
        kind,
        zone: zone.to_string(),
        signature: Signature::variadic_any(Volatility::Immutable),
    })
}

#[cfg(test)]
mod tests {
    use super::substr;

    #[test]
    fn substr_counts_from_one_and_from_the_end() {
        assert_eq!(substr("hello", 2, Some(3)), "ell");
        assert_eq!(substr("hello", 0, Some(3)), "");
        assert_eq!(substr("hello", -3, None), "llo");
        assert_eq!(substr("hello", -9, None), "");
        assert_eq!(substr("hé", 2, Some(9)), "é");
        assert_eq!(substr("hello", 1, Some(-1)), "");
    }
}
