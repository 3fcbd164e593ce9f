//! Values of the sequence column: the greater or equal one wins.

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::{
    DataType, Date32Type, Decimal256Type, Int8Type, Int16Type, Int32Type, Int64Type, TimeUnit,
    TimestampMicrosecondType, TimestampMillisecondType, TimestampSecondType,
};

use crate::types::DorisType;

/// Whether a sequence may have this type.
pub(crate) fn fits(ty: &DorisType) -> bool {
    matches!(
        ty,
        DorisType::TinyInt
            | DorisType::SmallInt
            | DorisType::Int
            | DorisType::BigInt
            | DorisType::LargeInt
            | DorisType::Date
            | DorisType::DateTime(_)
    )
}

/// A value that orders as the sequence does; NULL is the least.
pub(super) fn value(array: &ArrayRef, row: usize) -> Option<i128> {
    if array.is_null(row) {
        return None;
    }
    Some(match array.data_type() {
        DataType::Int8 => array.as_primitive::<Int8Type>().value(row).into(),
        DataType::Int16 => array.as_primitive::<Int16Type>().value(row).into(),
        DataType::Int32 => array.as_primitive::<Int32Type>().value(row).into(),
        DataType::Int64 => array.as_primitive::<Int64Type>().value(row).into(),
        DataType::Date32 => array.as_primitive::<Date32Type>().value(row).into(),
        DataType::Timestamp(TimeUnit::Second, _) => array.as_primitive::<TimestampSecondType>().value(row).into(),
        DataType::Timestamp(TimeUnit::Millisecond, _) => {
            array.as_primitive::<TimestampMillisecondType>().value(row).into()
        }
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            array.as_primitive::<TimestampMicrosecondType>().value(row).into()
        }
        // LARGEINT has 128 bits.
        DataType::Decimal256(..) => array.as_primitive::<Decimal256Type>().value(row).as_i128(),
        _ => return None,
    })
}
