//! Random columns for the round trip: extremes, NULL, empty, separators, quotes, control characters, four-byte UTF-8.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use datafusion::arrow::array::{
    ArrayRef, BooleanArray, Date32Array, Decimal128Array, Decimal256Array, Float32Array, Float64Array, Int8Array,
    Int16Array, Int32Array, Int64Array, ListArray, MapArray, StringArray, StructArray, TimestampMicrosecondArray,
};
use datafusion::arrow::buffer::{NullBuffer, OffsetBuffer};
use datafusion::arrow::datatypes::{DataType, i256};
use proptest::num::f32::ANY as ANY_F32;
use proptest::num::f64::ANY as ANY_F64;
use proptest::prelude::*;
use proptest::strategy::{BoxedStrategy, ValueTree};
use proptest::test_runner::TestRunner;

/// Every type that a table stores, with those of its parameters that change how it is written.
pub const COLUMNS: [&str; 33] = [
    "BOOLEAN",
    "TINYINT",
    "SMALLINT",
    "INT",
    "BIGINT",
    "LARGEINT",
    "FLOAT",
    "DOUBLE",
    "DECIMAL(9, 2)",
    "DECIMAL(18, 18)",
    "DECIMAL(38, 10)",
    "DECIMAL(76, 20)",
    "DATE",
    "DATETIME",
    "DATETIME(3)",
    "DATETIME(6)",
    "TIMESTAMPTZ(6)",
    "CHAR(20)",
    "VARCHAR(200)",
    "STRING",
    "JSON",
    "VARIANT",
    "IPV4",
    "IPV6",
    "ARRAY<TINYINT>",
    "ARRAY<STRING>",
    "ARRAY<DECIMAL(20, 4)>",
    "ARRAY<DATETIME(6)>",
    "ARRAY<ARRAY<STRING>>",
    "MAP<STRING, INT>",
    "MAP<INT, STRING>",
    "STRUCT<b:INT, a:STRING, d:DATE>",
    "ARRAY<STRUCT<x:DOUBLE, y:ARRAY<BIGINT>>>",
];

/// A column of `rows` values of a Doris type, as the Arrow type of a table's column.
pub fn array(doris_type: &str, data_type: &DataType, rows: usize, runner: &mut TestRunner) -> ArrayRef {
    column(doris_type, data_type, rows, false, runner)
}

fn pick<T>(strategy: &impl Strategy<Value = T>, runner: &mut TestRunner) -> T {
    strategy.new_tree(runner).expect("no filter").current()
}

fn values<T: std::fmt::Debug>(
    strategy: impl Strategy<Value = T>,
    rows: usize,
    runner: &mut TestRunner,
) -> Vec<Option<T>> {
    let strategy = prop::option::weighted(0.85, strategy);
    (0..rows).map(|_| pick(&strategy, runner)).collect()
}

/// Any value, and often those at the ends.
macro_rules! whole {
    ($type:ty) => {
        prop_oneof![3 => any::<$type>(), 1 => Just(<$type>::MIN), 1 => Just(<$type>::MAX), 1 => Just(0)]
    };
}

fn column(doris_type: &str, data_type: &DataType, rows: usize, nested: bool, runner: &mut TestRunner) -> ArrayRef {
    match data_type {
        DataType::Boolean => Arc::new(BooleanArray::from(values(any::<bool>(), rows, runner))),
        DataType::Int8 => Arc::new(Int8Array::from(values(whole!(i8), rows, runner))),
        DataType::Int16 => Arc::new(Int16Array::from(values(whole!(i16), rows, runner))),
        DataType::Int32 => Arc::new(Int32Array::from(values(whole!(i32), rows, runner))),
        DataType::Int64 => Arc::new(Int64Array::from(values(whole!(i64), rows, runner))),
        // The only NaN that has a text.
        DataType::Float32 => {
            let one_nan = |v: f32| if v.is_nan() { f32::NAN } else { v };
            Arc::new(Float32Array::from(values(ANY_F32.prop_map(one_nan), rows, runner)))
        }
        DataType::Float64 => {
            let one_nan = move |v: f64| match v.is_nan() {
                true if nested => 0.1,
                true => f64::NAN,
                // JSON has no numbers for these: refused inside of nested values.
                false if nested && v.is_infinite() => -1e300,
                false => v,
            };
            Arc::new(Float64Array::from(values(ANY_F64.prop_map(one_nan), rows, runner)))
        }
        DataType::Decimal128(precision, scale) => {
            let limit = 10_i128.pow(u32::from(*precision)) - 1;
            let digits = prop_oneof![3 => -limit..=limit, 1 => Just(limit), 1 => Just(-limit), 1 => -9_i128..10];
            let array = Decimal128Array::from(values(digits, rows, runner));
            Arc::new(array.with_precision_and_scale(*precision, *scale).expect("fits"))
        }
        DataType::Decimal256(39, 0) => {
            let digits = whole!(i128).prop_map(i256::from_i128);
            let array = Decimal256Array::from(values(digits, rows, runner));
            Arc::new(array.with_precision_and_scale(39, 0).expect("fits"))
        }
        DataType::Decimal256(precision, scale) => {
            let half = i256::from_i128(10_i128.pow(38));
            let part = || 0..10_i128.pow(38);
            let digits = (part(), part(), any::<bool>()).prop_map(move |(high, low, negative)| {
                let digits = i256::from_i128(high).wrapping_mul(half).wrapping_add(i256::from_i128(low));
                if negative { digits.wrapping_neg() } else { digits }
            });
            let array = Decimal256Array::from(values(digits, rows, runner));
            Arc::new(array.with_precision_and_scale(*precision, *scale).expect("fits"))
        }
        DataType::Date32 => {
            let (first, last) = (-719_528, 2_932_896);
            let days = prop_oneof![4 => first..=last, 1 => Just(first), 1 => Just(last), 1 => Just(-1)];
            Arc::new(Date32Array::from(values(days, rows, runner)))
        }
        DataType::Timestamp(_, zone) => {
            let unit = match doris_type {
                "DATETIME" => 1_000_000,
                "DATETIME(3)" => 1000,
                _ => 1,
            };
            let (first, last) = match zone {
                None => (-62_167_219_200_000_000_i64, 253_402_300_799_999_999),
                // In some zone the instants of the first and last days have a year that Doris has not.
                Some(_) => (-62_135_424_000_000_000, 253_402_128_000_000_000),
            };
            let micros = prop_oneof![4 => first..=last, 1 => Just(first), 1 => Just(last), 1 => Just(-1)];
            let micros = micros.prop_map(move |micros| micros.div_euclid(unit) * unit);
            let array = TimestampMicrosecondArray::from(values(micros, rows, runner));
            Arc::new(array.with_timezone_opt(zone.clone()))
        }
        DataType::Utf8 => Arc::new(StringArray::from(values(text(doris_type), rows, runner))),
        DataType::List(item) => {
            let (lengths, nulls) = shape(rows, runner);
            let items = column("", item.data_type(), lengths.iter().sum(), true, runner);
            Arc::new(ListArray::new(Arc::clone(item), OffsetBuffer::from_lengths(lengths), items, Some(nulls)))
        }
        DataType::Map(entries, sorted) => {
            let DataType::Struct(fields) = entries.data_type() else { panic!("{data_type}") };
            let (lengths, nulls) = shape(rows, runner);
            let total = lengths.iter().sum();
            let keys = keys(fields[0].data_type(), total, runner);
            let items = column("", fields[1].data_type(), total, true, runner);
            let pairs = StructArray::new(fields.clone(), vec![keys, items], None);
            let offsets = OffsetBuffer::from_lengths(lengths);
            Arc::new(MapArray::new(Arc::clone(entries), offsets, pairs, Some(nulls), *sorted))
        }
        DataType::Struct(fields) => {
            let columns = fields.iter().map(|field| column("", field.data_type(), rows, true, runner)).collect();
            let nulls =
                NullBuffer::from((0..rows).map(|_| pick(&prop::bool::weighted(0.85), runner)).collect::<Vec<_>>());
            Arc::new(StructArray::new(fields.clone(), columns, Some(nulls)))
        }
        other => panic!("{doris_type} has values of type {other}"),
    }
}

/// Lengths of lists, and which of them are not NULL.
fn shape(rows: usize, runner: &mut TestRunner) -> (Vec<usize>, NullBuffer) {
    let present: Vec<bool> = (0..rows).map(|_| pick(&prop::bool::weighted(0.85), runner)).collect();
    let lengths = present.iter().map(|present| if *present { pick(&(0..4_usize), runner) } else { 0 }).collect();
    (lengths, NullBuffer::from(present))
}

/// Keys of maps, no two alike.
fn keys(data_type: &DataType, total: usize, runner: &mut TestRunner) -> ArrayRef {
    match data_type {
        DataType::Int32 => Arc::new(Int32Array::from_iter_values((0..total).map(|at| at as i32 * 7 - 50))),
        _ => {
            let texts = text("STRING");
            let keys = (0..total).map(|at| format!("{}{at}", pick(&texts, runner)));
            Arc::new(StringArray::from_iter_values(keys))
        }
    }
}

fn text(doris_type: &str) -> BoxedStrategy<String> {
    let hard = prop_oneof![
        Just(String::new()),
        Just("\\N".to_string()),
        Just("null".to_string()),
        Just("a\tb\n\\\",\u{1}\rz".to_string()),
        Just("\u{1f980}\u{20bb7}\u{10ffff}".to_string()),
        Just("'; DROP TABLE t; --".to_string()),
        Just("{\"k\":[1,\"}\"]}".to_string()),
    ];
    match doris_type {
        "IPV4" => any::<[u8; 4]>().prop_map(|bytes| Ipv4Addr::from(bytes).to_string()).boxed(),
        "IPV6" => any::<[u8; 16]>().prop_map(|bytes| Ipv6Addr::from(bytes).to_string()).boxed(),
        "CHAR(20)" => "[a-zA-Z0-9\"\\\\\t,]{0,19}[a-z]".boxed(),
        "JSON" | "VARIANT" => (text("STRING"), any::<i64>(), any::<bool>())
            .prop_map(|(text, number, flag)| {
                serde_json::json!({ "text": text, "number": number, "list": [flag, number, "\u{1f980}"] }).to_string()
            })
            .boxed(),
        _ => prop_oneof![2 => hard, 2 => "\\PC{0,12}", 1 => "[\\x00-\\x7f]{0,20}", 1 => "[ \t\n\r\"'\\\\,|;:{}\\[\\]]{1,8}"]
            .boxed(),
    }
}
