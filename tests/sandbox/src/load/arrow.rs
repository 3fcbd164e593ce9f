//! `format: arrow`: one Arrow IPC stream, columns matched by name.

use std::io::{BufReader, Read};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, ListArray, MapArray, StructArray};
use arrow::datatypes::{DataType, Field, FieldRef, Fields};
use arrow::error::ArrowError;

use super::arrow_stream::Batches;
use super::intake::Intake;
use super::reply::Failure;
use crate::engine::Profile;
use crate::types::DorisType;

pub(super) fn read(input: impl Read, profile: Profile, intake: &mut Intake<'_>) -> Result<(), Failure> {
    let mut batches = Batches::open(BufReader::with_capacity(128 * 1024, input)).map_err(broken)?;
    let schema = Arc::clone(batches.schema());
    let mut order = Vec::with_capacity(intake.mapping.sources.len());
    for source in &intake.mapping.sources {
        let found = schema.fields().iter().position(|f| f.name().eq_ignore_ascii_case(&source.name));
        let Some(index) = found else {
            return Err(Failure::new("INTERNAL_ERROR", format!("the arrow stream has no column {}", source.name)));
        };
        let data_type = schema.field(index).data_type();
        if let Some(target) = &source.direct
            && !fits(data_type, target)
        {
            return Err(Failure::new(
                "INTERNAL_ERROR",
                format!("column {} of arrow type {data_type} cannot be loaded into {target}", source.name),
            ));
        }
        order.push(index);
    }
    // Older builds take the integer of a timestamp without a zone for an instant and show it in the load's zone.
    let shifted = !profile.naive_datetime();
    while let Some(batch) = batches.next().map_err(broken)? {
        let mut arrays = Vec::with_capacity(order.len());
        for index in &order {
            let array = batch.column(*index);
            arrays.push(if shifted { as_instants(array).map_err(broken)? } else { Arc::clone(array) });
        }
        intake.arrays(arrays, batch.num_rows(), "the arrow stream")?;
    }
    Ok(())
}

fn broken(error: ArrowError) -> Failure {
    Failure::new("INTERNAL_ERROR", format!("failed to read the arrow stream: {error}"))
}

/// Whether a BE reads this Arrow type into this column: the same width and scale, texts where it has none of its own.
fn fits(from: &DataType, ty: &DorisType) -> bool {
    let text = matches!(from, DataType::Utf8 | DataType::LargeUtf8);
    match ty {
        DorisType::Boolean => *from == DataType::Boolean,
        DorisType::TinyInt => *from == DataType::Int8,
        DorisType::SmallInt => *from == DataType::Int16,
        DorisType::Int => *from == DataType::Int32,
        DorisType::BigInt => *from == DataType::Int64,
        DorisType::Float => *from == DataType::Float32,
        DorisType::Double => *from == DataType::Float64,
        DorisType::Decimal { scale, .. } => match from {
            DataType::Decimal128(_, s) | DataType::Decimal256(_, s) => i16::from(*s) == i16::from(*scale),
            _ => false,
        },
        DorisType::Date => *from == DataType::Date32,
        DorisType::DateTime(_) => text || matches!(from, DataType::Timestamp(..) | DataType::Date64),
        DorisType::Ipv4 => text || matches!(from, DataType::Int32 | DataType::UInt32),
        DorisType::Array(item) => match from {
            DataType::List(field) | DataType::LargeList(field) => fits(field.data_type(), item),
            _ => false,
        },
        DorisType::Map(key, value) => match from {
            DataType::Map(entries, _) => match entries.data_type() {
                DataType::Struct(fields) if fields.len() == 2 => {
                    fits(fields[0].data_type(), key) && fits(fields[1].data_type(), value)
                }
                _ => false,
            },
            _ => false,
        },
        DorisType::Struct(types) => match from {
            DataType::Struct(fields) => {
                fields.len() == types.len()
                    && fields.iter().zip(types).all(|(field, (_, ty))| fits(field.data_type(), ty))
            }
            _ => false,
        },
        // LARGEINT, strings, JSON, VARIANT, IPV6 and what else travels as text.
        _ => text,
    }
}

/// Timestamps without a zone become instants, at any depth.
fn as_instants(array: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    if !has_naive(array.data_type()) {
        return Ok(Arc::clone(array));
    }
    let retyped = |field: &FieldRef, values: &ArrayRef| -> FieldRef {
        Arc::new(Field::new(field.name(), values.data_type().clone(), field.is_nullable()))
    };
    let children = |fields: &Fields, values: &StructArray| -> Result<StructArray, ArrowError> {
        let columns = values.columns().iter().map(as_instants).collect::<Result<Vec<_>, _>>()?;
        let fields: Fields = fields.iter().zip(&columns).map(|(field, column)| retyped(field, column)).collect();
        StructArray::try_new(fields, columns, values.nulls().cloned())
    };
    Ok(match array.data_type() {
        DataType::Timestamp(unit, None) => {
            let zoned = DataType::Timestamp(*unit, Some("UTC".into()));
            arrow::array::make_array(array.to_data().into_builder().data_type(zoned).build()?)
        }
        DataType::Date64 => {
            let millis = DataType::Timestamp(arrow::datatypes::TimeUnit::Millisecond, Some("UTC".into()));
            arrow::array::make_array(array.to_data().into_builder().data_type(millis).build()?)
        }
        DataType::List(field) => {
            let list = array.as_list::<i32>();
            let values = as_instants(list.values())?;
            let field = retyped(field, &values);
            Arc::new(ListArray::try_new(field, list.offsets().clone(), values, list.nulls().cloned())?)
        }
        DataType::Struct(fields) => Arc::new(children(fields, array.as_struct())?),
        DataType::Map(field, sorted) => {
            let map = array.as_map();
            let entries = children(map.entries().fields(), map.entries())?;
            let field = Arc::new(Field::new(field.name(), entries.data_type().clone(), false));
            Arc::new(MapArray::try_new(field, map.offsets().clone(), entries, map.nulls().cloned(), *sorted)?)
        }
        _ => Arc::clone(array),
    })
}

fn has_naive(data_type: &DataType) -> bool {
    match data_type {
        DataType::Timestamp(_, None) | DataType::Date64 => true,
        DataType::List(field) | DataType::Map(field, _) => has_naive(field.data_type()),
        DataType::Struct(fields) => fields.iter().any(|f| has_naive(f.data_type())),
        _ => false,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use arrow::array::{StringArray, TimestampSecondArray};
    use arrow::buffer::OffsetBuffer;
    use arrow::datatypes::TimeUnit;

    use super::*;

    #[test]
    fn only_the_same_width_and_scale_fits() {
        let decimal = DorisType::Decimal { precision: 10, scale: 2 };
        for (from, ty, expected) in [
            (DataType::Int64, DorisType::BigInt, true),
            (DataType::Int32, DorisType::BigInt, false),
            (DataType::Int64, DorisType::Int, false),
            (DataType::Float64, DorisType::Float, false),
            (DataType::Utf8, DorisType::Int, false),
            (DataType::Utf8, DorisType::LargeInt, true),
            (DataType::Decimal128(38, 0), DorisType::LargeInt, false),
            (DataType::Decimal128(38, 2), decimal.clone(), true),
            (DataType::Decimal256(40, 2), decimal.clone(), true),
            (DataType::Decimal128(10, 3), decimal, false),
            (DataType::Date32, DorisType::Date, true),
            (DataType::Utf8, DorisType::DateTime(6), true),
            (DataType::Timestamp(TimeUnit::Nanosecond, None), DorisType::DateTime(0), true),
            (DataType::Date32, DorisType::DateTime(0), false),
            (DataType::UInt32, DorisType::Ipv4, true),
            (DataType::Int32, DorisType::Ipv4, true),
            (DataType::Utf8, DorisType::Json, true),
            (DataType::Binary, DorisType::String, false),
            (DataType::new_list(DataType::Int32, true), DorisType::Array(Box::new(DorisType::Int)), true),
            (DataType::new_list(DataType::Int64, true), DorisType::Array(Box::new(DorisType::Int)), false),
            (DataType::Utf8, DorisType::Array(Box::new(DorisType::Int)), false),
        ] {
            assert_eq!(fits(&from, &ty), expected, "{from} into {ty}");
        }
    }

    #[test]
    fn naive_timestamps_become_instants_inside_of_lists_too() {
        let times: ArrayRef = Arc::new(TimestampSecondArray::from(vec![Some(0), None]));
        let list: ArrayRef = Arc::new(ListArray::new(
            Arc::new(Field::new("item", times.data_type().clone(), true)),
            OffsetBuffer::from_lengths([2]),
            times,
            None,
        ));
        let zoned = as_instants(&list).expect("list");
        assert_eq!(
            zoned.as_list::<i32>().values().data_type(),
            &DataType::Timestamp(TimeUnit::Second, Some("UTC".into()))
        );
        let texts: ArrayRef = Arc::new(StringArray::from(vec!["a"]));
        assert_eq!(as_instants(&texts).expect("texts").data_type(), &DataType::Utf8);
    }
}
