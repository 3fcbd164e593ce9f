//! The average of decimals from their sum and number, as DataFusion's `avg` computes it.

use std::sync::Arc;

use arrow::array::{Array, AsArray, Decimal128Array};
use arrow::datatypes::{DataType, Decimal128Type, DecimalType, Int64Type};
use datafusion::common::{Result, exec_datafusion_err, exec_err};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

/// `sum / count` of type `data_type`; `None` for types that `avg` does not give.
pub(super) fn decimal_average(sum: Expr, count: Expr, data_type: &DataType) -> Option<Expr> {
    let DataType::Decimal128(precision, scale) = data_type else { return None };
    let function = ScalarUDF::from(DecimalAverage {
        precision: *precision,
        scale: *scale,
        signature: Signature::any(2, Volatility::Immutable),
    });
    Some(Arc::new(function).call(vec![sum, count]))
}

/// Cut towards zero after `scale` digits; NULL of a NULL sum, which is the sum of no values.
#[derive(Debug, PartialEq, Eq, Hash)]
struct DecimalAverage {
    precision: u8,
    scale: i8,
    signature: Signature,
}

fn average(sum: i128, count: i64, digits: u32, precision: u8, scale: i8) -> Result<i128> {
    let overflow = || exec_datafusion_err!("arithmetic overflow in avg");
    let scaled = 10_i128.checked_pow(digits).and_then(|power| sum.checked_mul(power)).ok_or_else(overflow)?;
    let average = scaled.checked_div(count.into()).ok_or_else(overflow)?;
    Decimal128Type::validate_decimal_precision(average, precision, scale).map_err(|_| overflow())?;
    Ok(average)
}

impl ScalarUDFImpl for DecimalAverage {
    fn name(&self) -> &str {
        "doris_average"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _args: &[DataType]) -> Result<DataType> {
        Ok(DataType::Decimal128(self.precision, self.scale))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        let [sums, counts] = arrays.as_slice() else { return exec_err!("doris_average takes a sum and a number") };
        let DataType::Decimal128(_, sum_scale) = sums.data_type() else {
            return exec_err!("doris_average takes a decimal sum");
        };
        let digits =
            u32::try_from(self.scale - sum_scale).map_err(|_| exec_datafusion_err!("scale of doris_average"))?;
        let (sums, counts) = (sums.as_primitive::<Decimal128Type>(), counts.as_primitive::<Int64Type>());
        let averages = sums.iter().zip(counts.iter()).map(|pair| match pair {
            (Some(sum), Some(count)) => average(sum, count, digits, self.precision, self.scale).map(Some),
            _ => Ok(None),
        });
        let averages: Decimal128Array = averages.collect::<Result<_>>()?;
        Ok(ColumnarValue::Array(Arc::new(averages.with_precision_and_scale(self.precision, self.scale)?)))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    #[test]
    fn averages_are_cut_and_never_wrap() {
        // 1.00 / 3 with six digits.
        assert_eq!(average(100, 3, 4, 19, 6).unwrap(), 333_333);
        assert_eq!(average(-200, 3, 4, 19, 6).unwrap(), -666_666);
        assert!(average(i128::MAX, 1, 4, 38, 6).is_err());
        assert!(average(10_i128.pow(30), 1, 0, 19, 6).is_err());
    }
}
