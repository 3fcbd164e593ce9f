//! CAST, truth values and literals of numbers.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Float64Array, StringArray};
use arrow::datatypes::{DataType, FieldRef, Float32Type, Float64Type};
use datafusion::common::{Result, ScalarValue, exec_datafusion_err, exec_err};
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use super::super::env::Env;
use super::row::doris_types;
use crate::types::{DorisType, TextStyle, Value, canonical_json, conform_in, parse_type, text_value};

/// The texts of a column, as a cast to STRING gives them.
pub(crate) fn to_text(array: &ArrayRef, from: &DorisType) -> ArrayRef {
    if from.is_text() || matches!(from, DorisType::Json | DorisType::Variant) {
        return Arc::clone(array);
    }
    let texts: StringArray = (0..array.len()).map(|row| text_value(array, row, from, TextStyle::Cast)).collect();
    Arc::new(texts)
}

/// `CAST(x AS type)`. What cannot be converted is NULL, or an error under `enable_strict_cast`.
struct Cast {
    env: Env,
    /// `TRY_CAST` never fails.
    lenient: bool,
    signature: Signature,
}

impl fmt::Debug for Cast {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl PartialEq for Cast {
    fn eq(&self, other: &Self) -> bool {
        self.lenient == other.lenient && self.env == other.env
    }
}

impl Eq for Cast {}

impl Hash for Cast {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.lenient.hash(state);
    }
}

fn target(value: Option<&ScalarValue>) -> Result<DorisType> {
    match value {
        Some(ScalarValue::Utf8(Some(text))) => parse_type(text).map_err(|e| exec_datafusion_err!("{e}")),
        _ => exec_err!("cast without a type"),
    }
}

/// Converts by Doris's rules; what cannot be converted is NULL.
pub(crate) fn convert(array: &ArrayRef, from: &DorisType, to: &DorisType, env: &Env) -> Result<ArrayRef> {
    let array = match (from, to) {
        (DorisType::Json | DorisType::Variant, to) if !matches!(to, DorisType::Json | DorisType::Variant) => {
            json_scalars(array, to)
        }
        (from, DorisType::Json | DorisType::Variant) if !from.is_text() && !from.is_nested() => {
            let quoted = !from.is_number() && *from != DorisType::Boolean && *from != DorisType::Null;
            let json = |text: String| if quoted { serde_json::Value::String(text).to_string() } else { text };
            let texts: StringArray =
                (0..array.len()).map(|row| text_value(array, row, from, TextStyle::Cast).map(json)).collect();
            return Ok(Arc::new(texts));
        }
        (from, DorisType::Json | DorisType::Variant) if from.is_text() => {
            let json = array.as_string::<i32>().iter().map(|text| text.and_then(canonical_json));
            return Ok(Arc::new(json.collect::<StringArray>()));
        }
        (DorisType::Json | DorisType::Variant, DorisType::Json | DorisType::Variant) => return Ok(Arc::clone(array)),
        (from, DorisType::Json | DorisType::Variant) if from.is_nested() => {
            let json = (0..array.len()).map(|row| match Value::read(array, row, from) {
                Value::Null => None,
                value => Some(super::json::element(&value, from).json()),
            });
            return Ok(Arc::new(json.collect::<StringArray>()));
        }
        // Integers of a text may have a fraction, which is cut.
        (from, to) if from.is_text() && to.is_integer() => {
            let cut = |text: &str| -> String {
                match text.trim().split_once('.') {
                    Some((whole, rest)) if rest.bytes().all(|b| b.is_ascii_digit()) && !whole.is_empty() => {
                        whole.to_owned()
                    }
                    _ => text.trim().to_owned(),
                }
            };
            let texts = array.as_string::<i32>().iter().map(|text| text.map(cut));
            Arc::new(texts.collect::<StringArray>()) as ArrayRef
        }
        (from, to) if from.is_text() && *to == DorisType::Boolean => {
            let word = |text: &str| match text.trim().to_ascii_lowercase().as_str() {
                "t" | "yes" | "on" => "true".to_owned(),
                "f" | "no" | "off" => "false".to_owned(),
                other => match other.parse::<f64>() {
                    Ok(number) if env.profile < crate::engine::Profile::V4_0 => u8::from(number != 0.0).to_string(),
                    _ => other.to_owned(),
                },
            };
            let texts = array.as_string::<i32>().iter().map(|text| text.map(word));
            Arc::new(texts.collect::<StringArray>()) as ArrayRef
        }
        (from, DorisType::Char(n) | DorisType::Varchar(n)) if !from.is_nested() => {
            // A longer text is cut to the bytes of the type.
            let texts = to_text(array, from);
            let cut = |text: &str| {
                let mut end = text.len().min(*n as usize);
                while !text.is_char_boundary(end) {
                    end -= 1;
                }
                text[..end].to_owned()
            };
            let texts = texts.as_string::<i32>().iter().map(|text| text.map(cut));
            return Ok(Arc::new(texts.collect::<StringArray>()));
        }
        (from, to) if to.is_text() => return Ok(to_text(array, from)),
        _ => Arc::clone(array),
    };
    conform_in(&array, to, &env.zone).map_err(Into::into)
}

/// JSON scalars as texts of what they hold; `null` is NULL.
fn json_scalars(array: &ArrayRef, to: &DorisType) -> ArrayRef {
    let scalar = |text: &str| -> Option<String> {
        if to.is_nested() {
            return Some(text.to_owned());
        }
        match text.trim() {
            "null" => None,
            text if text.starts_with('"') && !to.is_text() => serde_json::from_str(text).ok(),
            text => Some(text.to_owned()),
        }
    };
    Arc::new(array.as_string::<i32>().iter().map(|text| text.and_then(scalar)).collect::<StringArray>())
}

impl ScalarUDFImpl for Cast {
    fn name(&self) -> &str {
        if self.lenient { "__doris_try_cast" } else { "__doris_cast" }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        exec_err!("the type of a cast depends on its argument")
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let ty = target(args.scalar_arguments.get(1).copied().flatten())?;
        let from = DorisType::of_field(&args.arg_fields[0]).unwrap_or(DorisType::Null);
        let widening = from == ty
            || match (from.integer_rank(), ty.integer_rank()) {
                (Some(a), Some(b)) => a <= b,
                (Some(_), None) => ty == DorisType::Double,
                _ => false,
            };
        Ok(ty.storage_field(self.name(), !widening || args.arg_fields[0].is_nullable()))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let from = doris_types(&args.arg_fields[..1])?.remove(0);
        let to = match &args.args[1] {
            ColumnarValue::Scalar(value) => target(Some(value))?,
            ColumnarValue::Array(_) => return exec_err!("cast without a type"),
        };
        let (single, array) = match &args.args[0] {
            ColumnarValue::Scalar(value) => (true, value.to_array()?),
            ColumnarValue::Array(array) => (false, Arc::clone(array)),
        };
        let out = convert(&array, &from, &to, &self.env)?;
        if self.env.strict_cast && !self.lenient {
            let lost = (0..array.len()).find(|row| array.is_valid(*row) && out.is_null(*row));
            if let Some(row) = lost.filter(|_| from != DorisType::Null) {
                let text = text_value(&array, row, &from, TextStyle::Cast).unwrap_or_default();
                return exec_err!(
                    "[INVALID_ARGUMENT]parse {} fail, string: '{text}'",
                    to.to_string().to_ascii_uppercase()
                );
            }
        }
        if single {
            return Ok(ColumnarValue::Scalar(super::row::scalar(&out)?));
        }
        Ok(ColumnarValue::Array(out))
    }
}

/// `__doris_cast(x, 'type')`
pub(crate) fn cast(env: &Env) -> ScalarUDF {
    ScalarUDF::from(Cast { env: *env, lenient: false, signature: Signature::any(2, Volatility::Immutable) })
}

/// `__doris_try_cast(x, 'type')`
pub(crate) fn try_cast(env: &Env) -> ScalarUDF {
    ScalarUDF::from(Cast { env: *env, lenient: true, signature: Signature::any(2, Volatility::Immutable) })
}

/// 2^127
const LARGEINT_BOUND: &str = "170141183460469231731687303715884105728";

/// The type and value of a number as written: the smallest integer that holds it, else a decimal, else DOUBLE.
pub(crate) fn number(text: &str, max_precision: u8) -> (DorisType, Value) {
    let double = || (DorisType::Double, Value::Float(text.parse().unwrap_or(f64::INFINITY)));
    if text.bytes().all(|b| b.is_ascii_digit()) {
        if let Ok(value) = text.parse::<i128>() {
            let rank = [i128::from(i8::MAX), i128::from(i16::MAX), i128::from(i32::MAX), i128::from(i64::MAX)];
            let rank = rank.iter().filter(|max| value > **max).count() as u8;
            return (DorisType::integer_of_rank(rank), Value::Int(value));
        }
        let digits = text.trim_start_matches('0');
        // One above the largest LARGEINT, so that a minus before it gives the smallest.
        let limit = if digits == LARGEINT_BOUND { 39 } else { max_precision };
        let shape = u8::try_from(digits.len()).ok().map(|digits| (digits.max(39), 0));
        return decimal(text, shape, limit).unwrap_or_else(double);
    }
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let Ok(exponent) = exponent.parse::<i32>() else { return double() };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    let significant = digits.trim_start_matches('0').len().max(1) as i32;
    let scale = fraction.len() as i32 - exponent;
    let shape = if scale < 0 { (significant - scale, 0) } else { (significant.max(scale), scale) };
    let fits = u8::try_from(shape.0).ok().zip(u8::try_from(shape.1).ok());
    decimal(text, fits, max_precision).unwrap_or_else(double)
}

fn decimal(text: &str, shape: Option<(u8, u8)>, max_precision: u8) -> Option<(DorisType, Value)> {
    let (precision, scale) = shape.filter(|(precision, _)| *precision <= max_precision)?;
    let ty = DorisType::Decimal { precision, scale };
    let mut builder = crate::types::ColumnBuilder::new(&ty, true);
    builder.append_text(text).ok()?;
    let value = Value::read(&builder.finish(), 0, &ty);
    Some((ty, value))
}

/// A float column in which equal values are the same bits: one NaN, no -0.
pub(crate) fn float_key(array: &ArrayRef) -> ArrayRef {
    let key = |v: f64| if v.is_nan() { f64::NAN } else { v + 0.0 };
    match array.data_type() {
        DataType::Float64 => Arc::new(array.as_primitive::<Float64Type>().unary::<_, Float64Type>(key)),
        DataType::Float32 => Arc::new(
            array
                .as_primitive::<Float32Type>()
                .unary::<_, Float32Type>(|v| if v.is_nan() { f32::NAN } else { v + 0.0 }),
        ),
        _ => Arc::new(Float64Array::from(vec![None; array.len()])),
    }
}

/// `__doris_float_key(x)`
#[derive(Debug, PartialEq, Eq, Hash)]
struct FloatKey {
    signature: Signature,
}

impl ScalarUDFImpl for FloatKey {
    fn name(&self) -> &str {
        "__doris_float_key"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        Ok(types[0].clone())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match &args.args[0] {
            ColumnarValue::Scalar(value) => {
                let out = float_key(&value.to_array()?);
                Ok(ColumnarValue::Scalar(super::row::scalar(&out)?))
            }
            ColumnarValue::Array(array) => Ok(ColumnarValue::Array(float_key(array))),
        }
    }
}

pub(crate) fn float_key_function() -> ScalarUDF {
    ScalarUDF::from(FloatKey { signature: Signature::any(1, Volatility::Immutable) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_take_the_smallest_type() {
        for (text, max, ty) in [
            ("0", 38, "tinyint"),
            ("127", 38, "tinyint"),
            ("128", 38, "smallint"),
            ("32768", 38, "int"),
            ("2147483648", 38, "bigint"),
            ("9223372036854775808", 38, "largeint"),
            ("170141183460469231731687303715884105728", 38, "decimal(39,0)"),
            ("1.5", 38, "decimal(2,1)"),
            ("1.50", 38, "decimal(3,2)"),
            ("0.05", 38, "decimal(2,2)"),
            ("1e10", 38, "decimal(11,0)"),
            ("1.5e0", 38, "decimal(2,1)"),
            ("1.5e-3", 38, "decimal(4,4)"),
            ("1e38", 38, "double"),
            ("1e38", 76, "decimal(39,0)"),
            ("1e400", 76, "double"),
        ] {
            assert_eq!(number(text, max).0.to_string(), ty, "{text}");
        }
    }
}
