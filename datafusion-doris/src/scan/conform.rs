//! Turns batches as they came over the wire into batches of the declared schema.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use arrow::array::timezone::Tz;
use arrow::array::{
    Array, ArrayRef, AsArray, Decimal256Array, FixedSizeBinaryArray, ListArray, MapArray, PrimitiveArray,
    RecordBatchOptions, StringArray, StructArray, UInt32Array, new_null_array,
};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{
    ArrowTimestampType, DataType, Field, FieldRef, SchemaRef, TimeUnit, TimestampMicrosecondType,
    TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType, UInt32Type, i256,
};
use arrow::error::ArrowError;
use arrow::record_batch::RecordBatch;
use chrono::{DateTime, Offset, TimeZone};

use super::text::array_of;
use super::variant::variant_texts;
use crate::error::{Error, Result};
use crate::types::{DorisType, WireAction, wire_action};

type Converted = Result<ArrayRef, ArrowError>;

/// Casts fail on a value that does not fit, instead of making it NULL.
const EXACT: CastOptions<'static> =
    CastOptions { safe: false, format_options: arrow::util::display::FormatOptions::new() };

/// Conforms the batches of one stream: columns by position, types by the table of [`wire_action`], nulls checked.
///
/// What to do per column is decided once per wire schema; columns of equal type cost nothing.
#[derive(Debug)]
pub(crate) struct Conformer {
    table: String,
    schema: SchemaRef,
    types: Arc<[DorisType]>,
    plan: Option<(SchemaRef, Vec<WireAction>)>,
}

impl Conformer {
    /// Conforms to `schema`, whose columns have the Doris types `types`; `table` is for error texts.
    pub fn new(table: impl Into<String>, schema: SchemaRef, types: Arc<[DorisType]>) -> Self {
        Self { table: table.into(), schema, types, plan: None }
    }

    /// `batch` as a batch of the declared schema.
    ///
    /// # Errors
    /// [`Error::Schema`] that names the column: another number of columns, a type or value that cannot be converted
    /// exactly, NULL in a column that is declared NOT NULL.
    pub fn conform(&mut self, batch: &RecordBatch) -> Result<RecordBatch> {
        // An FE that knows that there are no rows tells all columns as text, also those whose values have no such form.
        if batch.num_rows() == 0 {
            return Ok(RecordBatch::new_empty(Arc::clone(&self.schema)));
        }
        let known = self.plan.as_ref().is_some_and(|(wire, _)| Arc::ptr_eq(wire, batch.schema_ref()));
        if !known {
            let actions = self.decide(batch)?;
            self.plan = Some((batch.schema(), actions));
        }
        let actions = self.plan.as_ref().map(|(_, actions)| actions.as_slice()).unwrap_or_default();
        let mut columns = Vec::with_capacity(actions.len());
        for ((action, column), field) in actions.iter().zip(batch.columns()).zip(self.schema.fields()) {
            let converted = convert(action, column, field.data_type())
                .map_err(|error| self.error(format!("column '{}': {error}", field.name())))?;
            if !field.is_nullable() && converted.null_count() > 0 {
                return Err(self.error(format!(
                    "column '{}' is declared not null, but doris sent a null: declare it nullable",
                    field.name()
                )));
            }
            columns.push(converted);
        }
        let rows = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        Ok(RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &rows)?)
    }

    fn decide(&self, batch: &RecordBatch) -> Result<Vec<WireAction>> {
        let (wire, wanted) = (batch.num_columns(), self.schema.fields().len());
        if wire != wanted {
            return Err(self.error(format!("doris sent {wire} columns where {wanted} were asked for")));
        }
        let columns = batch.columns().iter().zip(self.schema.fields()).zip(self.types.iter());
        columns
            .map(|((column, field), doris)| {
                wire_action(doris, column.data_type(), field.data_type())
                    .map_err(|reason| self.error(format!("column '{}': {reason}", field.name())))
            })
            .collect()
    }

    fn error(&self, reason: String) -> Error {
        Error::schema(&self.table, reason)
    }
}

/// Carries out one decision.
fn convert(action: &WireAction, array: &ArrayRef, target: &DataType) -> Converted {
    match action {
        WireAction::Keep => Ok(Arc::clone(array)),
        WireAction::Cast | WireAction::TextToDate | WireAction::TextToTimestamp => {
            cast_with_options(array, target, &EXACT)
        }
        WireAction::TextToDecimal => {
            let wide = values_of_texts(&DorisType::Decimal(39, 0), array)?;
            if wide.data_type() == target { Ok(wide) } else { cast_with_options(&wide, target, &EXACT) }
        }
        WireAction::TextToValue(doris) => values_of_texts(doris, array),
        WireAction::Chain(first, between, then) => convert(then, &convert(first, array, between)?, target),
        WireAction::Nulls => Ok(new_null_array(target, array.len())),
        WireAction::LocalWallClock { zone } => local_wall_clock(array, zone, target),
        WireAction::Int128ToDecimal => {
            let wide = int128_values(array)?.map(|value| value.map(i256::from_i128));
            let wide: Decimal256Array = wide.collect();
            let wide: ArrayRef = Arc::new(wide.with_precision_and_scale(39, 0)?);
            if wide.data_type() == target { Ok(wide) } else { cast_with_options(&wide, target, &EXACT) }
        }
        WireAction::Int128ToText => {
            let text = int128_values(array)?.map(|value| value.map(|value| value.to_string()));
            Ok(Arc::new(text.collect::<StringArray>()))
        }
        WireAction::BitsToInteger => cast_with_options(&(Arc::new(ipv4_bits(array)) as ArrayRef), target, &EXACT),
        WireAction::Ipv4TextToInteger => {
            let text = cast_with_options(array, &DataType::Utf8, &EXACT)?;
            let number = |text: &str| match text.parse::<Ipv4Addr>() {
                Ok(address) => Ok(address.to_bits()),
                Err(_) => Err(ArrowError::CastError(format!("'{text}' is no ipv4 address"))),
            };
            let bits = text.as_string::<i32>().iter().map(|text| text.map(number).transpose());
            let bits: ArrayRef = Arc::new(bits.collect::<Result<UInt32Array, _>>()?);
            cast_with_options(&bits, target, &EXACT)
        }
        WireAction::UuidBytesToText => {
            let bytes = array.as_fixed_size_binary_opt().ok_or_else(|| mismatch(array, target))?;
            let text = bytes.iter().map(|bytes| bytes.map(uuid_text));
            Ok(Arc::new(text.collect::<StringArray>()))
        }
        WireAction::BitsToIpv4Text => {
            let bits = ipv4_bits(array);
            let text = bits.iter().map(|bits| bits.map(|bits| Ipv4Addr::from(bits).to_string()));
            Ok(Arc::new(text.collect::<StringArray>()))
        }
        WireAction::VariantToText => variant_texts(array),
        WireAction::Ipv6Text => {
            let text = cast_with_options(array, &DataType::Utf8, &EXACT)?;
            let address = |text: &str| ipv6_address(text).map(|address| address.to_string());
            let text = text.as_string::<i32>().iter().map(|text| text.map(address).transpose());
            Ok(Arc::new(text.collect::<Result<StringArray, _>>()?))
        }
        WireAction::Ipv6TextToDecimal => {
            let text = cast_with_options(array, &DataType::Utf8, &EXACT)?;
            let number = |text: &str| ipv6_address(text).map(|address| i256::from_parts(address.to_bits(), 0));
            let numbers = text.as_string::<i32>().iter().map(|text| text.map(number).transpose());
            let numbers: Decimal256Array = numbers.collect::<Result<_, _>>()?;
            let numbers: ArrayRef = Arc::new(numbers.with_precision_and_scale(39, 0)?);
            if numbers.data_type() == target { Ok(numbers) } else { cast_with_options(&numbers, target, &EXACT) }
        }
        WireAction::List(element) => convert_list(element, array, target),
        WireAction::Map(key, value) => convert_map(key, value, array, target),
        WireAction::Struct(actions) => convert_struct(actions, array, target),
    }
}

fn values_of_texts(doris: &DorisType, array: &ArrayRef) -> Converted {
    let texts = cast_with_options(array, &DataType::Binary, &EXACT)?;
    array_of(doris, texts.as_binary()).map_err(ArrowError::CastError)
}

fn int128_values(array: &ArrayRef) -> Result<impl Iterator<Item = Option<i128>> + '_, ArrowError> {
    let bytes = array
        .as_any()
        .downcast_ref::<FixedSizeBinaryArray>()
        .filter(|bytes| bytes.value_length() == 16)
        .ok_or_else(|| ArrowError::CastError("expected 16 bytes per value".into()))?;
    Ok(bytes.iter().map(|value| value.and_then(|bytes| <[u8; 16]>::try_from(bytes).ok()).map(i128::from_le_bytes)))
}

/// 32 bits of either signedness: the pattern counts.
fn ipv4_bits(array: &ArrayRef) -> UInt32Array {
    match array.data_type() {
        DataType::UInt32 => array.as_primitive::<UInt32Type>().clone(),
        _ => array.as_primitive::<arrow::datatypes::Int32Type>().unary::<_, UInt32Type>(|bits| bits as u32),
    }
}

/// Groups of 8, 4, 4, 4 and 12 digits.
fn uuid_text(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(36);
    for (at, byte) in bytes.iter().enumerate() {
        if matches!(at, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        let digit = |four: u8| char::from_digit(u32::from(four), 16).unwrap_or_default();
        text.extend([digit(byte >> 4), digit(byte & 15)]);
    }
    text
}

/// Old servers send the address as one decimal number. Texts are written anew, so that equal addresses are equal texts.
fn ipv6_address(text: &str) -> Result<Ipv6Addr, ArrowError> {
    let address = match text.contains(':') {
        true => text.parse().ok(),
        false => text.trim().parse::<u128>().ok().map(Ipv6Addr::from),
    };
    address.ok_or_else(|| ArrowError::CastError(format!("'{text}' is no ipv6 address")))
}

/// The instant's wall clock in `zone`, without the zone.
fn local_wall_clock(array: &ArrayRef, zone: &Arc<str>, target: &DataType) -> Converted {
    let DataType::Timestamp(unit, None) = target else {
        return Err(ArrowError::CastError(format!("{target} is no timestamp without zone")));
    };
    let instants = cast_with_options(array, &DataType::Timestamp(*unit, Some(Arc::clone(zone))), &EXACT)?;
    if matches!(zone.as_ref(), "UTC" | "Z" | "+00:00" | "Etc/UTC") {
        return drop_zone(&instants, *unit, Some);
    }
    let zone: Tz = zone.parse()?;
    let shift = |value: i64| {
        let per_second: i64 = match unit {
            TimeUnit::Second => 1,
            TimeUnit::Millisecond => 1_000,
            TimeUnit::Microsecond => 1_000_000,
            TimeUnit::Nanosecond => 1_000_000_000,
        };
        let instant = DateTime::from_timestamp(value.div_euclid(per_second), 0)?.naive_utc();
        let offset = i64::from(zone.offset_from_utc_datetime(&instant).fix().local_minus_utc());
        value.checked_add(offset.checked_mul(per_second)?)
    };
    drop_zone(&instants, *unit, shift)
}

fn drop_zone(instants: &ArrayRef, unit: TimeUnit, shift: impl Fn(i64) -> Option<i64>) -> Converted {
    fn shifted<T: ArrowTimestampType>(array: &ArrayRef, shift: impl Fn(i64) -> Option<i64>) -> Converted {
        let shifted: PrimitiveArray<T> = array.as_primitive::<T>().try_unary(|value| {
            shift(value).ok_or_else(|| ArrowError::CastError(format!("instant {value} has no local time")))
        })?;
        Ok(Arc::new(shifted))
    }
    match unit {
        TimeUnit::Second => shifted::<TimestampSecondType>(instants, shift),
        TimeUnit::Millisecond => shifted::<TimestampMillisecondType>(instants, shift),
        TimeUnit::Microsecond => shifted::<TimestampMicrosecondType>(instants, shift),
        TimeUnit::Nanosecond => shifted::<TimestampNanosecondType>(instants, shift),
    }
}

fn mismatch(array: &ArrayRef, target: &DataType) -> ArrowError {
    ArrowError::CastError(format!("{} cannot become {target}", array.data_type()))
}

fn convert_list(element: &WireAction, array: &ArrayRef, target: &DataType) -> Converted {
    let (Some(list), DataType::List(field)) = (array.as_list_opt::<i32>(), target) else {
        return Err(mismatch(array, target));
    };
    let values = convert(element, list.values(), field.data_type())?;
    let list = ListArray::try_new(Arc::clone(field), list.offsets().clone(), values, list.nulls().cloned())?;
    Ok(Arc::new(list))
}

fn convert_map(key: &WireAction, value: &WireAction, array: &ArrayRef, target: &DataType) -> Converted {
    let (Some(map), DataType::Map(entries, sorted)) = (array.as_map_opt(), target) else {
        return Err(mismatch(array, target));
    };
    let DataType::Struct(fields) = entries.data_type() else {
        return Err(mismatch(array, target));
    };
    let keys = convert(key, map.keys(), fields[0].data_type())?;
    let values = convert(value, map.values(), fields[1].data_type())?;
    let pairs = StructArray::try_new(fields.clone(), vec![keys, values], map.entries().nulls().cloned())?;
    let map = MapArray::try_new(Arc::clone(entries), map.offsets().clone(), pairs, map.nulls().cloned(), *sorted)?;
    Ok(Arc::new(map))
}

fn convert_struct(actions: &[WireAction], array: &ArrayRef, target: &DataType) -> Converted {
    let (Some(row), DataType::Struct(fields)) = (array.as_struct_opt(), target) else {
        return Err(mismatch(array, target));
    };
    let columns = actions.iter().zip(row.columns()).zip(fields);
    let columns = columns.map(|((action, column), field): (_, &FieldRef)| convert(action, column, field.data_type()));
    let columns = columns.collect::<Result<Vec<_>, _>>()?;
    let row = StructArray::try_new_with_length(fields.clone(), columns, row.nulls().cloned(), row.len())?;
    Ok(Arc::new(row))
}

/// Checks that a column of type `doris` can be read as `field` declares it.
///
/// # Errors
/// The reason, when not every value can be represented exactly.
pub(crate) fn check_readable(doris: &DorisType, field: &Field) -> Result<(), String> {
    wire_action(doris, &doris.arrow_type()?, field.data_type()).map(|_| ())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use arrow::array::{DictionaryArray, Int32Array, Int64Array, TimestampMicrosecondArray};
    use arrow::datatypes::{Int32Type, Schema};

    use super::*;

    fn one(doris: DorisType, target: DataType, nullable: bool, column: ArrayRef) -> Result<ArrayRef> {
        let schema = Arc::new(Schema::new(vec![Field::new("c", target, nullable)]));
        let wire = Arc::new(Schema::new(vec![Field::new("whatever_1", column.data_type().clone(), true)]));
        let batch = RecordBatch::try_new(wire, vec![column]).unwrap();
        let conformed = Conformer::new("db.t", schema, vec![doris].into()).conform(&batch)?;
        Ok(Arc::clone(conformed.column(0)))
    }

    fn micros() -> DataType {
        DataType::Timestamp(TimeUnit::Microsecond, None)
    }

    #[test]
    fn dictionary_becomes_values() {
        let wire: DictionaryArray<Int32Type> = vec!["a", "b", "a"].into_iter().collect();
        let read = one(DorisType::String, DataType::Utf8, true, Arc::new(wire)).unwrap();
        assert_eq!(read.as_string::<i32>(), &StringArray::from(vec!["a", "b", "a"]));
    }

    #[test]
    fn zoned_datetime_shows_its_wall_clock_and_naive_one_its_digits() {
        // 2024-07-01 12:00:00 in Berlin is 10:00 UTC.
        let utc = 1_719_828_000_000_000;
        let digits = utc + 7_200_000_000;
        let zoned = TimestampMicrosecondArray::from(vec![utc]).with_timezone("Europe/Berlin");
        let read = one(DorisType::DateTime(6), micros(), true, Arc::new(zoned)).unwrap();
        assert_eq!(read.as_primitive::<TimestampMicrosecondType>().value(0), digits);
        let utc_zone = TimestampMicrosecondArray::from(vec![utc]).with_timezone("UTC");
        let read = one(DorisType::DateTime(6), micros(), true, Arc::new(utc_zone)).unwrap();
        assert_eq!(read.as_primitive::<TimestampMicrosecondType>().value(0), utc);
        let naive = TimestampMicrosecondArray::from(vec![utc]);
        let read = one(DorisType::DateTime(6), micros(), true, Arc::new(naive)).unwrap();
        assert_eq!(read.as_primitive::<TimestampMicrosecondType>().value(0), utc);
    }

    #[test]
    fn largeint_is_exact_at_both_ends() {
        let texts = StringArray::from(vec![i128::MAX.to_string(), i128::MIN.to_string()]);
        let read = one(DorisType::LargeInt, DataType::Decimal256(39, 0), true, Arc::new(texts)).unwrap();
        let values = read.as_primitive::<arrow::datatypes::Decimal256Type>();
        assert_eq!(values.value(0), i256::from_i128(i128::MAX));
        assert_eq!(values.value(1), i256::from_i128(i128::MIN));
        let bytes = FixedSizeBinaryArray::try_from_iter([i128::MIN.to_le_bytes()].iter()).unwrap();
        let read = one(DorisType::LargeInt, DataType::Decimal256(39, 0), true, Arc::new(bytes)).unwrap();
        assert_eq!(read.as_primitive::<arrow::datatypes::Decimal256Type>().value(0), i256::from_i128(i128::MIN));
    }

    #[test]
    fn addresses_are_texts_whatever_the_wire_form() {
        let bits = Int32Array::from(vec![-1_062_731_519]);
        let read = one(DorisType::Ipv4, DataType::Utf8, true, Arc::new(bits)).unwrap();
        assert_eq!(read.as_string::<i32>().value(0), "192.168.1.1");
        let number = StringArray::from(vec!["1", "::2"]);
        let read = one(DorisType::Ipv6, DataType::Utf8, true, Arc::new(number)).unwrap();
        assert_eq!(read.as_string::<i32>(), &StringArray::from(vec!["::1", "::2"]));
    }

    #[test]
    fn largeint_is_converted_by_value_where_it_is_declared_narrower() {
        let wire = |values: [i128; 2]| -> [ArrayRef; 3] {
            let bytes = values.map(i128::to_le_bytes);
            let wide = Decimal256Array::from_iter_values(values.map(i256::from_i128));
            [
                Arc::new(StringArray::from(values.map(|value| value.to_string()).to_vec())),
                Arc::new(FixedSizeBinaryArray::try_from_iter(bytes.iter()).unwrap()),
                Arc::new(wide.with_precision_and_scale(39, 0).unwrap()),
            ]
        };
        for target in [DataType::Int64, DataType::Decimal128(20, 0)] {
            for array in wire([i128::from(i64::MAX), -5]) {
                let read = one(DorisType::LargeInt, target.clone(), true, array).unwrap();
                let text = cast_with_options(&read, &DataType::Utf8, &EXACT).unwrap();
                assert_eq!(text.as_string::<i32>(), &StringArray::from(vec!["9223372036854775807", "-5"]));
            }
            for array in wire([i128::MAX, 1]) {
                let error = one(DorisType::LargeInt, target.clone(), true, array).unwrap_err().to_string();
                assert!(error.contains("column 'c'"), "{error}");
            }
        }
        for array in wire([i128::MIN, 1]) {
            let read = one(DorisType::LargeInt, DataType::Utf8, true, array).unwrap();
            assert_eq!(read.as_string::<i32>().value(0), i128::MIN.to_string());
        }
    }

    /// As the FE sends what it computes itself.
    #[test]
    fn values_that_come_as_text_are_exact_and_others_are_refused_by_column() {
        let cases: &[(DorisType, DataType, &str, Option<&str>)] = &[
            (DorisType::BigInt, DataType::Int64, "9223372036854775807", Some("9223372036854775807")),
            (DorisType::BigInt, DataType::Int64, "9223372036854775808", None),
            (DorisType::BigInt, DataType::Int64, "1.0", None),
            (DorisType::BigInt, DataType::Int64, "1e3", None),
            (DorisType::BigInt, DataType::Int64, "", None),
            (DorisType::Int, DataType::Int64, "-7", Some("-7")),
            (DorisType::Int, DataType::Float64, "7", Some("7.0")),
            (DorisType::TinyInt, DataType::Int8, "128", None),
            (DorisType::Boolean, DataType::Boolean, "1", Some("true")),
            (DorisType::Double, DataType::Float64, "0.1", Some("0.1")),
            (DorisType::Float, DataType::Float64, "0.5", Some("0.5")),
            (
                DorisType::Decimal(38, 2),
                DataType::Decimal128(38, 2),
                "123456789012345678901234567890123456.78",
                Some("123456789012345678901234567890123456.78"),
            ),
            (DorisType::Decimal(10, 2), DataType::Decimal128(12, 3), "1.25", Some("1.250")),
            (DorisType::Decimal(10, 2), DataType::Decimal128(10, 2), "1.255", None),
            (DorisType::LargeInt, DataType::Decimal256(39, 0), "1.5", None),
            (DorisType::LargeInt, DataType::Int64, "12", Some("12")),
            (DorisType::Date, DataType::Date32, "2024-02-29", Some("2024-02-29")),
            (DorisType::Date, micros(), "2024-02-29", Some("2024-02-29T00:00:00")),
            (DorisType::DateTime(6), micros(), "2024-02-29 00:00:00.000001", Some("2024-02-29T00:00:00.000001")),
            (DorisType::Time(6), DataType::Float64, "00:00:01.5", Some("1500000.0")),
        ];
        for (doris, target, text, expected) in cases {
            let wire: ArrayRef = Arc::new(StringArray::from(vec![Some(*text), None]));
            let read = one(doris.clone(), target.clone(), true, wire);
            match (read, expected) {
                (Ok(read), Some(expected)) => {
                    assert_eq!(read.data_type(), target, "{doris} {text}");
                    let shown = arrow::util::display::array_value_to_string(&read, 0).unwrap();
                    assert_eq!((shown.as_str(), read.is_null(1)), (*expected, true), "{doris} {text}");
                }
                (Err(error), None) => assert!(error.to_string().contains("column 'c'"), "{doris} {text}: {error}"),
                (found, _) => panic!("{doris} {text} as {target}: {found:?}"),
            }
        }
    }

    #[test]
    fn addresses_declared_as_integers_sort_as_addresses() {
        let bits: ArrayRef = Arc::new(Int32Array::from(vec![-1, 1]));
        let text: ArrayRef = Arc::new(StringArray::from(vec!["255.255.255.255", "0.0.0.1"]));
        for array in [bits, text] {
            let read = one(DorisType::Ipv4, DataType::Int64, true, array).unwrap();
            assert_eq!(read.as_primitive::<arrow::datatypes::Int64Type>(), &Int64Array::from(vec![u32::MAX.into(), 1]));
        }
        let wrong = StringArray::from(vec!["1.2.3"]);
        assert!(one(DorisType::Ipv4, DataType::UInt32, true, Arc::new(wrong)).is_err());
    }

    #[test]
    fn ipv6_declared_as_a_number_sorts_as_addresses() {
        let texts: ArrayRef = Arc::new(StringArray::from(vec![Some("2::"), Some("10::"), Some("1"), None]));
        let read = one(DorisType::Ipv6, DataType::Decimal256(39, 0), true, Arc::clone(&texts)).unwrap();
        let read = read.as_primitive::<arrow::datatypes::Decimal256Type>();
        assert!(read.value(2) < read.value(0) && read.value(0) < read.value(1) && read.is_null(3));
        assert_eq!(read.value(2), i256::ONE);
        let most: ArrayRef = Arc::new(StringArray::from(vec!["ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"]));
        let most = one(DorisType::Ipv6, DataType::Decimal256(40, 0), true, most).unwrap();
        let most = arrow::util::display::array_value_to_string(&most, 0).unwrap();
        assert_eq!(most, u128::MAX.to_string());
        assert!(one(DorisType::Ipv6, DataType::Decimal256(38, 0), true, texts).is_err());
        let long: ArrayRef = Arc::new(StringArray::from(vec!["0:0:0:0:0:0:0:1"]));
        let read = one(DorisType::Ipv6, DataType::Utf8View, true, long).unwrap();
        assert_eq!(read.as_string_view().value(0), "::1");
    }

    #[test]
    fn texts_are_given_in_every_arrow_form() {
        let uuid = FixedSizeBinaryArray::try_from_iter([[0_u8; 16]].iter()).unwrap();
        let bits = Int32Array::from(vec![1]);
        let cases: [(DorisType, ArrayRef, &str); 3] = [
            (DorisType::Uuid, Arc::new(uuid), "00000000-0000-0000-0000-000000000000"),
            (DorisType::Ipv4, Arc::new(bits), "0.0.0.1"),
            (DorisType::Json, Arc::new(StringArray::from(vec!["{}"])), "{}"),
        ];
        for (doris, array, expected) in cases {
            for target in [DataType::Utf8View, DataType::LargeUtf8] {
                let read = one(doris.clone(), target.clone(), true, Arc::clone(&array)).unwrap();
                assert_eq!(read.data_type(), &target);
                assert_eq!(arrow::util::display::array_value_to_string(&read, 0).unwrap(), expected);
            }
        }
    }

    #[test]
    fn whole_decimals_are_integers_where_each_fits() {
        let decimals = arrow::array::Decimal128Array::from(vec![999_999_999]);
        let wire: ArrayRef = Arc::new(decimals.with_precision_and_scale(9, 0).unwrap());
        let read = one(DorisType::Decimal(9, 0), DataType::Int32, true, Arc::clone(&wire)).unwrap();
        assert_eq!(read.as_primitive::<Int32Type>().value(0), 999_999_999);
        assert!(one(DorisType::Decimal(9, 0), DataType::Int16, true, wire).is_err());
        let wide = arrow::array::Decimal128Array::from(vec![1]);
        let wide: ArrayRef = Arc::new(wide.with_precision_and_scale(10, 0).unwrap());
        assert!(one(DorisType::Decimal(10, 0), DataType::Int32, true, wide).is_err());
    }

    #[test]
    fn uuid_is_its_text() {
        let bytes = FixedSizeBinaryArray::try_from_iter([std::array::from_fn::<u8, 16, _>(|i| i as u8 * 17)].iter());
        let read = one(DorisType::Uuid, DataType::Utf8, true, Arc::new(bytes.unwrap())).unwrap();
        assert_eq!(read.as_string::<i32>().value(0), "00112233-4455-6677-8899-aabbccddeeff");
    }

    #[test]
    fn dates_and_integers_widen_exactly() {
        let days: ArrayRef = Arc::new(arrow::array::Date32Array::from(vec![1]));
        let read = one(DorisType::Date, micros(), true, days).unwrap();
        assert_eq!(read.as_primitive::<TimestampMicrosecondType>().value(0), 86_400_000_000);
        let wide: ArrayRef = Arc::new(Int64Array::from(vec![i64::MIN]));
        let read = one(DorisType::BigInt, DataType::Decimal128(20, 1), true, Arc::clone(&wide)).unwrap();
        assert_eq!(read.as_primitive::<arrow::datatypes::Decimal128Type>().value(0), i128::from(i64::MIN) * 10);
        for target in [DataType::Decimal128(19, 1), DataType::Float64] {
            assert!(one(DorisType::BigInt, target, true, Arc::clone(&wide)).is_err());
        }
    }

    #[test]
    fn null_in_a_not_null_column_is_an_error_that_names_the_column() {
        let nulls = Int64Array::from(vec![Some(1), None]);
        let error = one(DorisType::BigInt, DataType::Int64, false, Arc::new(nulls)).unwrap_err().to_string();
        assert!(error.contains("db.t") && error.contains("column 'c'"), "{error}");
    }

    #[test]
    fn narrowing_type_is_refused_and_widening_one_is_exact() {
        let wide = Int64Array::from(vec![1]);
        let error = one(DorisType::BigInt, DataType::Int32, true, Arc::new(wide)).unwrap_err().to_string();
        assert!(error.contains("column 'c'"), "{error}");
        let narrow = Int32Array::from(vec![7]);
        let read = one(DorisType::Int, DataType::Int64, true, Arc::new(narrow)).unwrap();
        assert_eq!(read.as_primitive::<arrow::datatypes::Int64Type>().value(0), 7);
    }

    #[test]
    fn nested_values_are_converted_and_keep_their_nulls() {
        let wire = ListArray::from_iter_primitive::<Int32Type, _, _>(vec![Some(vec![Some(1), None]), None]);
        let target = DataType::List(Arc::new(Field::new("item", DataType::Int64, true)));
        let read = one(DorisType::Array(Box::new(DorisType::Int)), target, true, Arc::new(wire)).unwrap();
        let read = read.as_list::<i32>();
        assert!(read.is_null(1));
        assert_eq!(read.value(0).as_primitive::<arrow::datatypes::Int64Type>(), &Int64Array::from(vec![Some(1), None]));
    }

    #[test]
    fn batch_without_rows_is_one_of_the_declared_schema_whatever_came() {
        let list = DorisType::Array(Box::new(DorisType::Int));
        let target = list.arrow_type().unwrap();
        let none: ArrayRef = Arc::new(StringArray::from(Vec::<String>::new()));
        let read = one(list.clone(), target.clone(), false, none).unwrap();
        assert_eq!((read.len(), read.data_type()), (0, &target));
        let some: ArrayRef = Arc::new(StringArray::from(vec!["[1]"]));
        assert!(one(list, target, false, some).unwrap_err().to_string().contains("column 'c'"));
    }

    #[test]
    fn batch_without_columns_keeps_its_row_count() {
        let none = Arc::new(Schema::empty());
        let rows = RecordBatchOptions::new().with_row_count(Some(3));
        let batch = RecordBatch::try_new_with_options(Arc::clone(&none), vec![], &rows).unwrap();
        let read = Conformer::new("db.t", none, Arc::new([])).conform(&batch).unwrap();
        assert_eq!(read.num_rows(), 3);
    }
}
