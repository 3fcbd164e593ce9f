//! What a column looks like over Arrow Flight, by profile.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, ListArray, MapArray, PrimitiveArray, StringArray, StringBuilder, StructArray,
    new_null_array,
};
use arrow::datatypes::{
    DataType, Decimal256Type, Field, FieldRef, Fields, Float64Type, Int32Type, Time64MicrosecondType, TimeUnit,
    TimestampMicrosecondType, TimestampMillisecondType, TimestampSecondType, UInt32Type,
};

use super::zone::SessionZone;
use super::{DorisType, datetime_unit};
use crate::engine::Profile;

/// Arrow field of a result column. `doris_type` metadata is set where newer servers set it.
pub fn wire_field(name: &str, ty: &DorisType, nullable: bool, profile: Profile, zone: &SessionZone) -> FieldRef {
    let field = Field::new(name, wire_type(ty, profile, zone), nullable);
    let tag = match ty {
        _ if profile < Profile::V5_0Binlog => None,
        DorisType::LargeInt => Some("LARGEINT"),
        DorisType::Ipv4 => Some("IPV4"),
        DorisType::Ipv6 => Some("IPV6"),
        DorisType::Variant => Some("VARIANT"),
        DorisType::Json => Some("JSON"),
        _ => None,
    };
    match tag {
        Some(tag) => Arc::new(field.with_metadata([("doris_type".to_owned(), tag.to_owned())].into())),
        None => Arc::new(field),
    }
}

/// Arrow type of a result column.
pub fn wire_type(ty: &DorisType, profile: Profile, zone: &SessionZone) -> DataType {
    let child = |name: &str, ty: &DorisType, nullable: bool| wire_field(name, ty, nullable, profile, zone);
    match ty {
        DorisType::LargeInt => DataType::Utf8,
        DorisType::Ipv4 if profile == Profile::V2_1 => DataType::UInt32,
        DorisType::Ipv4 => DataType::Int32,
        DorisType::Time(_) => DataType::Float64,
        DorisType::TimestampTz(p) => DataType::Timestamp(datetime_unit(*p), Some(instant_zone(zone).into())),
        DorisType::Hll => DataType::Binary,
        DorisType::DateTime(p) if !profile.naive_datetime() => {
            DataType::Timestamp(datetime_unit(*p), Some(zone.to_string().into()))
        }
        DorisType::Array(item) => DataType::List(child("item", item, true)),
        DorisType::Map(key, value) => DataType::Map(
            Arc::new(Field::new(
                "entries",
                DataType::Struct(Fields::from(vec![child("key", key, false), child("value", value, true)])),
                false,
            )),
            false,
        ),
        DorisType::Struct(fields) => DataType::Struct(fields.iter().map(|(name, ty)| child(name, ty, true)).collect()),
        flat => flat.storage(),
    }
}

/// The zone with which an instant travels: the session's, where UTC is spelled in one letter.
fn instant_zone(zone: &SessionZone) -> String {
    if *zone == SessionZone::UTC { "Z".to_owned() } else { zone.to_string() }
}

/// The number as which the oldest build prints an IPV6.
fn ipv6_number(text: &str) -> Option<String> {
    text.parse::<std::net::Ipv6Addr>().ok().map(|address| u128::from(address).to_string())
}

/// A storage array in its wire form.
pub fn to_wire(array: &ArrayRef, ty: &DorisType, profile: Profile, zone: &SessionZone) -> ArrayRef {
    let target = wire_type(ty, profile, zone);
    if *ty == DorisType::Ipv6 && profile == Profile::V2_1 && array.data_type() == &DataType::Utf8 {
        let numbers = array.as_string::<i32>().iter().map(|text| text.and_then(ipv6_number));
        return Arc::new(numbers.collect::<StringArray>());
    }
    if array.data_type() == &target {
        return Arc::clone(array);
    }
    match (ty, array.data_type(), &target) {
        (DorisType::LargeInt, DataType::Decimal256(..), _) => {
            let values = array.as_primitive::<Decimal256Type>();
            let mut out = StringBuilder::with_capacity(values.len(), values.len() * 8);
            for value in values {
                out.append_option(value.map(|v| v.to_string()));
            }
            Arc::new(out.finish())
        }
        (DorisType::Ipv4, DataType::UInt32, _) => {
            let values = array.as_primitive::<UInt32Type>();
            Arc::new(values.unary::<_, Int32Type>(|bits| bits as i32))
        }
        (DorisType::Time(_), DataType::Time64(_), _) => {
            // The oldest build counts seconds.
            let unit = if profile == Profile::V2_1 { 1_000_000.0 } else { 1.0 };
            let values = array.as_primitive::<Time64MicrosecondType>();
            Arc::new(values.unary::<_, Float64Type>(|micros| micros as f64 / unit))
        }
        (DorisType::TimestampTz(_), DataType::Timestamp(unit, Some(_)), DataType::Timestamp(_, Some(tag))) => {
            // The instant stays, only its zone is named anew.
            let tag = Arc::clone(tag);
            match unit {
                TimeUnit::Second => Arc::new(array.as_primitive::<TimestampSecondType>().clone().with_timezone(tag)),
                TimeUnit::Millisecond => {
                    Arc::new(array.as_primitive::<TimestampMillisecondType>().clone().with_timezone(tag))
                }
                _ => Arc::new(array.as_primitive::<TimestampMicrosecondType>().clone().with_timezone(tag)),
            }
        }
        (DorisType::DateTime(_), DataType::Timestamp(unit, None), DataType::Timestamp(_, Some(tag))) => {
            let tag = Arc::clone(tag);
            let shift = |value: i64, per_second: i64| {
                zone.instant_of_wall(value.div_euclid(per_second)) * per_second + value.rem_euclid(per_second)
            };
            match unit {
                TimeUnit::Second => {
                    let values: PrimitiveArray<TimestampSecondType> =
                        array.as_primitive::<TimestampSecondType>().unary(|v| shift(v, 1));
                    Arc::new(values.with_timezone(tag))
                }
                TimeUnit::Millisecond => {
                    let values: PrimitiveArray<TimestampMillisecondType> =
                        array.as_primitive::<TimestampMillisecondType>().unary(|v| shift(v, 1000));
                    Arc::new(values.with_timezone(tag))
                }
                _ => {
                    let values: PrimitiveArray<TimestampMicrosecondType> =
                        array.as_primitive::<TimestampMicrosecondType>().unary(|v| shift(v, 1_000_000));
                    Arc::new(values.with_timezone(tag))
                }
            }
        }
        (DorisType::Array(item), DataType::List(_), DataType::List(field)) => {
            let list = array.as_list::<i32>();
            let values = to_wire(list.values(), item, profile, zone);
            Arc::new(ListArray::new(Arc::clone(field), list.offsets().clone(), values, list.nulls().cloned()))
        }
        (DorisType::Map(key, value), DataType::Map(..), DataType::Map(field, _)) => {
            let map = array.as_map();
            let DataType::Struct(fields) = field.data_type() else { return new_null_array(&target, array.len()) };
            let columns = vec![to_wire(map.keys(), key, profile, zone), to_wire(map.values(), value, profile, zone)];
            let entries = StructArray::new(fields.clone(), columns, None);
            Arc::new(MapArray::new(Arc::clone(field), map.offsets().clone(), entries, map.nulls().cloned(), false))
        }
        (DorisType::Struct(types), DataType::Struct(_), DataType::Struct(fields)) => {
            let values = array.as_struct();
            let columns: Vec<ArrayRef> = values
                .columns()
                .iter()
                .zip(types)
                .map(|(column, (_, ty))| to_wire(column, ty, profile, zone))
                .collect();
            Arc::new(StructArray::new(fields.clone(), columns, values.nulls().cloned()))
        }
        _ => super::cast_array(array, &target).unwrap_or_else(|_| new_null_array(&target, array.len())),
    }
}
