//! Numbers as written in a statement, with the type Doris gives them.

use std::fmt;
use std::hash::{Hash, Hasher};

use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::{Result, ScalarValue, exec_datafusion_err, exec_err};
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use super::super::env::Env;
use super::cast::number;
use crate::types::{ColumnBuilder, DorisType, Value};

/// `__doris_number('text')`
struct Number {
    max_precision: u8,
    signature: Signature,
}

impl fmt::Debug for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("__doris_number")
    }
}

impl PartialEq for Number {
    fn eq(&self, other: &Self) -> bool {
        self.max_precision == other.max_precision
    }
}

impl Eq for Number {}

impl Hash for Number {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.max_precision.hash(state);
    }
}

/// A number with its sign: the type is that of the number without it, except for the smallest LARGEINT.
pub(crate) fn signed(text: &str, max_precision: u8) -> (DorisType, Value) {
    let Some(body) = text.strip_prefix('-') else { return number(text, max_precision) };
    if let Ok(smallest @ i128::MIN) = text.parse::<i128>() {
        return (DorisType::LargeInt, Value::Int(smallest));
    }
    let (ty, value) = number(body, max_precision);
    let value = match value {
        Value::Int(v) => Value::Int(-v),
        Value::Float(v) => Value::Float(-v),
        Value::Decimal(v, scale) => Value::Decimal(v.wrapping_neg(), scale),
        other => other,
    };
    (ty, value)
}

fn written(value: Option<&ScalarValue>) -> Result<&str> {
    match value {
        Some(ScalarValue::Utf8(Some(text))) => Ok(text),
        _ => exec_err!("a number that is not written"),
    }
}

impl ScalarUDFImpl for Number {
    fn name(&self) -> &str {
        "__doris_number"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        exec_err!("the type of a number comes from its text")
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let text = written(args.scalar_arguments.first().copied().flatten())?;
        Ok(signed(text, self.max_precision).0.storage_field(self.name(), false))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let text = match &args.args[0] {
            ColumnarValue::Scalar(value) => written(Some(value))?,
            ColumnarValue::Array(_) => return exec_err!("a number that is not written"),
        };
        let (ty, value) = signed(text, self.max_precision);
        let mut builder = ColumnBuilder::new(&ty, true);
        builder.append_value(&value).map_err(|e| exec_datafusion_err!("{e}"))?;
        Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&builder.finish(), 0)?))
    }
}

pub(crate) fn number_function(env: &Env) -> ScalarUDF {
    ScalarUDF::from(Number { max_precision: env.max_precision(), signature: Signature::any(1, Volatility::Immutable) })
}
