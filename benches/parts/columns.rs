//! One column of each type, with a NULL now and then.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BooleanArray, Date32Array, Decimal128Array, Decimal256Array, Float32Array, Float64Array, Int32Array,
    Int64Array, ListArray, StringArray, StructArray, TimestampMicrosecondArray,
};
use arrow::datatypes::{DataType, Field, Int32Type, i256};
use datafusion_doris::types::DorisType;

/// Rows of a batch.
pub const ROWS: usize = 8192;

/// A value for each row; NULL for each seventeenth.
pub fn values<T>(make: impl Fn(i64) -> T) -> impl Iterator<Item = Option<T>> {
    (0..ROWS as i64).map(move |row| (row % 17 != 0).then(|| make(row.wrapping_mul(2_654_435_761) % 1_000_003)))
}

/// Columns of the types that tables have most, with their names.
pub fn columns() -> Result<Vec<(&'static str, DorisType, ArrayRef)>, arrow::error::ArrowError> {
    let wide = |value: i64| i256::from_i128(i128::from(value) * 170_141_183_460_469);
    let list = ListArray::from_iter_primitive::<Int32Type, _, _>(
        values(|value| [Some(value as i32), None, Some(7)]).map(|list| list.map(Vec::from)),
    );
    let lat: ArrayRef = Arc::new(values(|value| value as f64 / 7.0).collect::<Float64Array>());
    let code: ArrayRef = Arc::new(values(|value| format!("code {value}")).collect::<StringArray>());
    let place = StructArray::from(vec![
        (Arc::new(Field::new("lat", DataType::Float64, true)), lat),
        (Arc::new(Field::new("code", DataType::Utf8, true)), code),
    ]);
    let place_type = vec![("lat".to_owned(), DorisType::Double), ("code".to_owned(), DorisType::String)];
    let quoted = |value: i64| format!("a \"quoted\" text\twith\nall \\ that needs care, number {value}");
    Ok(vec![
        ("boolean", DorisType::Boolean, Arc::new(values(|value| value % 2 == 0).collect::<BooleanArray>())),
        ("int", DorisType::Int, Arc::new(values(|value| value as i32).collect::<Int32Array>())),
        ("bigint", DorisType::BigInt, Arc::new(values(|value| value * 1_000_003).collect::<Int64Array>())),
        (
            "largeint",
            DorisType::LargeInt,
            Arc::new(values(wide).collect::<Decimal256Array>().with_precision_and_scale(39, 0)?),
        ),
        ("float", DorisType::Float, Arc::new(values(|value| value as f32 / 7.0).collect::<Float32Array>())),
        ("double", DorisType::Double, Arc::new(values(|value| value as f64 / 7.0).collect::<Float64Array>())),
        (
            "decimal",
            DorisType::Decimal(18, 2),
            Arc::new(values(i128::from).collect::<Decimal128Array>().with_precision_and_scale(18, 2)?),
        ),
        ("date", DorisType::Date, Arc::new(values(|value| (value % 20_000) as i32).collect::<Date32Array>())),
        (
            "datetime",
            DorisType::DateTime(6),
            Arc::new(values(|value| value * 1_500_000_001).collect::<TimestampMicrosecondArray>()),
        ),
        ("text", DorisType::String, Arc::new(values(|value| format!("some text {value}")).collect::<StringArray>())),
        ("text to escape", DorisType::String, Arc::new(values(quoted).collect::<StringArray>())),
        ("array", DorisType::Array(Box::new(DorisType::Int)), Arc::new(list)),
        ("struct", DorisType::Struct(place_type), Arc::new(place)),
    ])
}
