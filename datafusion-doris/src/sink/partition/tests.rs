use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{
    BooleanArray, Date32Array, Date64Array, Decimal128Array, Decimal256Array, DictionaryArray, Int8Array, Int32Array,
    Int64Array, LargeStringArray, RunArray, StringArray, StringViewArray, TimestampMicrosecondArray,
    TimestampMillisecondArray, TimestampNanosecondArray, TimestampSecondArray, UInt64Array,
};
use arrow::datatypes::{Field, Int32Type};
use proptest::prelude::*;

use super::*;
use crate::types::{ColumnSchema, TableIdent};

fn target(model: KeyModel, keys: &[(&str, DorisType)]) -> TableSchema {
    let mut columns: Vec<ColumnSchema> = keys
        .iter()
        .map(|(name, doris_type)| ColumnSchema { key: true, ..ColumnSchema::new(*name, doris_type.clone()) })
        .collect();
    columns.push(ColumnSchema::new("v", DorisType::Int));
    TableSchema { table: TableIdent::new("db", "t"), model: Some(model), columns, properties: Default::default() }
}

fn batch(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, array)| (name, array, true))).unwrap()
}

/// The hash of each value of one key column.
fn hashes(doris_type: &DorisType, array: &ArrayRef) -> Vec<u64> {
    let kind = Kind::of(doris_type, array.data_type()).unwrap_or_else(|| panic!("{doris_type} {}", array.data_type()));
    let mut hashes = vec![7; array.len()];
    kind.mix(array, &mut hashes).unwrap();
    hashes
}

/// Each array holds the same two keys, then NULL.
fn assert_alike(doris_type: DorisType, arrays: Vec<ArrayRef>) {
    let expected = hashes(&doris_type, &arrays[0]);
    assert_eq!(expected.len(), 3);
    assert!(expected[0] != expected[1] && expected[1] != expected[2], "{doris_type}: {expected:?}");
    for array in arrays {
        assert_eq!(hashes(&doris_type, &array), expected, "{doris_type} from {}", array.data_type());
    }
}

#[test]
fn same_key_is_hashed_alike_in_every_encoding() {
    let text = [Some("ab"), Some("a much longer text of it"), None];
    let dictionary: DictionaryArray<Int32Type> = text.into_iter().collect();
    let runs: RunArray<Int32Type> = text.into_iter().collect();
    for doris_type in [DorisType::Varchar(40), DorisType::Char(40), DorisType::String] {
        assert_alike(
            doris_type,
            vec![
                Arc::new(StringArray::from(text.to_vec())),
                Arc::new(LargeStringArray::from(text.to_vec())),
                Arc::new(StringViewArray::from(text.to_vec())),
                Arc::new(dictionary.clone()),
                Arc::new(runs.clone()),
            ],
        );
    }
    let padded: ArrayRef = Arc::new(StringArray::from(vec!["ab", "ab  ", "ab\0\0"]));
    let padded = hashes(&DorisType::Char(4), &padded);
    assert!(padded.iter().all(|hash| *hash == padded[0]), "CHAR is stored without its padding");
    let decimal = |array: Decimal128Array, precision| Arc::new(array.with_precision_and_scale(precision, 0).unwrap());
    for doris_type in [
        DorisType::TinyInt,
        DorisType::SmallInt,
        DorisType::Int,
        DorisType::BigInt,
        DorisType::LargeInt,
        DorisType::Decimal(9, 0),
        DorisType::Decimal(20, 2),
    ] {
        assert_alike(
            doris_type,
            vec![
                Arc::new(Int8Array::from(vec![Some(-5), Some(7), None])),
                Arc::new(Int32Array::from(vec![Some(-5), Some(7), None])),
                Arc::new(Int64Array::from(vec![Some(-5), Some(7), None])),
                decimal(Decimal128Array::from(vec![Some(-5), Some(7), None]), 20),
                Arc::new(
                    Decimal256Array::from(vec![Some(whole(-5)), Some(whole(7)), None])
                        .with_precision_and_scale(39, 0)
                        .unwrap(),
                ),
            ],
        );
    }
    let scaled = |unscaled: [i128; 2], scale| -> ArrayRef {
        let values = Decimal128Array::from(vec![Some(unscaled[0]), Some(unscaled[1]), None]);
        Arc::new(values.with_precision_and_scale(20, scale).unwrap())
    };
    assert_alike(
        DorisType::Decimal(18, 4),
        vec![scaled([15, -20], 1), scaled([150, -200], 2), scaled([15_000, -20_000], 4)],
    );
    assert_alike(
        DorisType::Date,
        vec![
            Arc::new(Date32Array::from(vec![Some(-1), Some(20_000), None])),
            Arc::new(Date64Array::from(vec![Some(-86_400_000), Some(20_000 * 86_400_000), None])),
        ],
    );
    for doris_type in [DorisType::DateTime(0), DorisType::DateTime(6), DorisType::TimestampTz(3)] {
        assert_alike(
            doris_type,
            vec![
                Arc::new(TimestampSecondArray::from(vec![Some(-1), Some(5), None])),
                Arc::new(TimestampMillisecondArray::from(vec![Some(-1000), Some(5000), None])),
                Arc::new(TimestampMicrosecondArray::from(vec![Some(-1_000_000), Some(5_000_000), None])),
                Arc::new(
                    TimestampMicrosecondArray::from(vec![Some(-1_000_000), Some(5_000_000), None]).with_timezone("UTC"),
                ),
                Arc::new(TimestampNanosecondArray::from(vec![Some(-1_000_000_000), Some(5_000_000_000), None])),
            ],
        );
    }
    assert_alike(DorisType::Boolean, vec![Arc::new(BooleanArray::from(vec![Some(false), Some(true), None]))]);
}

#[test]
fn values_that_doris_makes_equal_are_hashed_alike() {
    // Rounded half up.
    let instants: ArrayRef =
        Arc::new(TimestampMicrosecondArray::from(vec![999_500, 1_000_000, 1_499_999, 1_500_000, 2_000_000]));
    let hashed = hashes(&DorisType::DateTime(0), &instants);
    assert_eq!((hashed[0], hashed[2], hashed[3]), (hashed[1], hashed[1], hashed[4]));
    assert_ne!(hashed[1], hashed[4]);
    // NULL, where strict mode is off.
    let beyond: ArrayRef = Arc::new(Int64Array::from(vec![Some(128), None, Some(-129), Some(127)]));
    let hashed = hashes(&DorisType::TinyInt, &beyond);
    assert_eq!((hashed[0], hashed[2]), (hashed[1], hashed[1]));
    assert_ne!(hashed[1], hashed[3]);
    let beyond: ArrayRef = Arc::new(UInt64Array::from(vec![Some(u64::MAX), None, Some(999)]));
    let hashed = hashes(&DorisType::Decimal(5, 2), &beyond);
    assert_eq!(hashed[0], hashed[1]);
    assert_ne!(hashed[1], hashed[2]);
}

#[test]
fn columns_whose_keys_cannot_be_compared_are_left_out() {
    let schema = |fields: &[(&str, DataType)]| {
        Schema::new(fields.iter().map(|(name, ty)| Field::new(*name, ty.clone(), true)).collect::<Vec<_>>())
    };
    let uncertain = [
        (DorisType::Int, DataType::Utf8),
        (DorisType::Varchar(9), DataType::Int32),
        (DorisType::Decimal(9, 1), DataType::Decimal128(9, 2)),
        (DorisType::Date, DataType::Timestamp(TimeUnit::Second, None)),
        (DorisType::DateTime(0), DataType::Timestamp(TimeUnit::Second, Some("Europe/Berlin".into()))),
        (DorisType::DateTime(0), DataType::Utf8),
        (DorisType::Ipv6, DataType::Utf8),
        (DorisType::Double, DataType::Float64),
    ];
    for (doris_type, data_type) in uncertain {
        let input = schema(&[("a", data_type.clone()), ("v", DataType::Int32)]);
        let table = target(KeyModel::Unique, &[("a", doris_type.clone())]);
        assert!(matches!(Routing::of(&table, &input, false), Routing::One(_)), "{doris_type} from {data_type}");
        let table = target(KeyModel::Unique, &[("a", doris_type), ("B", DorisType::Int)]);
        let input = schema(&[("v", DataType::Int32), ("b", DataType::Int32), ("a", data_type)]);
        let Routing::Key(keys) = Routing::of(&table, &input, false) else { panic!("b can be compared") };
        assert_eq!(keys.iter().map(|key| (key.name.as_str(), key.at)).collect::<Vec<_>>(), [("B", 1)]);
    }
    let table = target(KeyModel::Aggregate, &[("a", DorisType::Int)]);
    let (with, without) = (schema(&[("a", DataType::Int32)]), schema(&[("v", DataType::Int32)]));
    assert!(matches!(Routing::of(&table, &with, false), Routing::Key(_)));
    assert!(matches!(Routing::of(&table, &with, true), Routing::One(_)), "the key may be computed");
    assert!(matches!(Routing::of(&table, &without, false), Routing::One(_)), "the key is not written");
    let plain = target(KeyModel::Duplicate, &[("a", DorisType::Int)]);
    assert_eq!(Routing::of(&plain, &with, false), Routing::Turns);
    let view = TableSchema { model: None, ..plain };
    assert!(matches!(Routing::of(&view, &with, false), Routing::One(_)));
}

#[test]
fn batches_of_a_duplicate_table_take_turns() {
    let mut partitioner = Partitioner::new(&Routing::Turns, 3);
    let mut taken = vec![];
    for rows in [2, 0, 3, 1, 5] {
        let batch = batch(vec![("a", Arc::new(Int32Array::from(vec![1; rows])) as ArrayRef)]);
        let parts = partitioner.split(batch).unwrap();
        taken.extend(parts.into_iter().map(|(writer, part)| (writer, part.batch.num_rows(), part.rows.is_none())));
    }
    assert_eq!(taken, [(0, 2, true), (1, 3, true), (2, 1, true), (0, 5, true)]);
}

/// Encodes the keys of a batch in one way or another.
fn encoded(way: u8, keys: &[(i64, String)]) -> RecordBatch {
    let texts: Vec<&str> = keys.iter().map(|(_, text)| text.as_str()).collect();
    let numbers: Vec<i64> = keys.iter().map(|(number, _)| *number).collect();
    let text: ArrayRef = match way {
        0 => Arc::new(StringArray::from(texts)),
        1 => Arc::new(StringViewArray::from(texts)),
        2 => Arc::new(texts.into_iter().collect::<DictionaryArray<Int32Type>>()),
        _ => Arc::new(LargeStringArray::from(texts)),
    };
    batch(vec![("n", Arc::new(Int64Array::from(numbers))), ("s", text)])
}

proptest! {
    #[test]
    fn every_row_goes_once_to_the_writer_of_its_key_and_in_order(
        input in prop::collection::vec((0_u8..4, prop::collection::vec((-3_i64..3, "[ab]{0,2}"), 0..40)), 1..8),
        writers in 1_usize..7,
    ) {
        let table = target(KeyModel::Unique, &[("n", DorisType::BigInt), ("s", DorisType::Varchar(9))]);
        let first = encoded(0, &[]);
        let routing = Routing::of(&table, first.schema_ref(), false);
        let mut partitioner = Partitioner::new(&routing, writers);
        // Place of each row in the input, by key; and the rows as writers get them.
        let mut expected: BTreeMap<(i64, String), Vec<(usize, usize)>> = BTreeMap::new();
        let mut got: BTreeMap<(i64, String), Vec<(usize, usize)>> = BTreeMap::new();
        let mut writer_of = BTreeMap::new();
        for (number, (way, keys)) in input.iter().enumerate() {
            for (row, key) in keys.iter().enumerate() {
                expected.entry(key.clone()).or_default().push((number, row));
            }
            for (writer, part) in partitioner.split(encoded(*way, keys)).unwrap() {
                prop_assert!(writer < writers);
                let plain = cast(part.batch.column(1), &DataType::Utf8).unwrap();
                let numbers = part.batch.column(0).as_primitive::<Int64Type>();
                for at in 0..part.batch.num_rows() {
                    let row = part.rows.as_ref().map_or(at, |rows| rows.value(at) as usize);
                    let key = (numbers.value(at), plain.as_string::<i32>().value(at).to_string());
                    prop_assert_eq!(&key, &keys[row], "rows tell the place in the input");
                    prop_assert_eq!(*writer_of.entry(key.clone()).or_insert(writer), writer);
                    got.entry(key).or_default().push((number, row));
                }
            }
        }
        prop_assert_eq!(got, expected);
    }
}

#[test]
fn keys_are_spread_over_the_writers() {
    let table = target(KeyModel::Unique, &[("n", DorisType::BigInt)]);
    for step in [1, 2, 64, 1000, 1 << 20] {
        let numbers = Int64Array::from_iter_values((0..8000).map(|n| n * step));
        let batch = batch(vec![("n", Arc::new(numbers))]);
        let routing = Routing::of(&table, batch.schema_ref(), false);
        for writers in [2, 3, 4, 16] {
            let parts = Partitioner::new(&routing, writers).split(batch.clone()).unwrap();
            assert_eq!(parts.len(), writers);
            for (writer, part) in parts {
                let (rows, share) = (part.batch.num_rows(), 8000 / writers);
                assert!((share / 2..share * 2).contains(&rows), "step {step}: {rows} rows for {writer} of {writers}");
            }
        }
    }
}
