use std::sync::Arc;

use ::arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, BooleanArray, Date32Array, Date64Array, Decimal128Array, Decimal256Array,
    DictionaryArray, FixedSizeListArray, Float32Array, Float64Array, Int8Array, Int32Array, Int64Array, ListArray,
    ListViewArray, MapArray, NullArray, RunArray, StringArray, StringViewArray, StructArray, Time32SecondArray,
    TimestampMicrosecondArray, TimestampNanosecondArray, UInt32Array, UInt64Array,
};
use ::arrow::buffer::{NullBuffer, OffsetBuffer};
use ::arrow::compute::concat_batches;
use ::arrow::datatypes::{DataType, Field, Fields, Int32Type, Int64Type, i256};
use ::arrow::ipc::reader::StreamReader;
use ::arrow::record_batch::RecordBatch;

use super::*;
use crate::options::Compression;
use crate::types::DorisType;

fn field(name: &str, data_type: &DataType) -> Arc<Field> {
    Arc::new(Field::new(name, data_type.clone(), true))
}

fn plan_of(batch: &RecordBatch, types: &[DorisType], layout: RowLayout, inside: Compression) -> Result<ArrowPlan> {
    let schema = batch.schema();
    let type_of = |name: &str| schema.index_of(name).ok().and_then(|at| types.get(at));
    ArrowPlan::try_new(layout, &schema, type_of, inside)
}

fn layout_of(batch: &RecordBatch, kinds: Option<&str>) -> RowLayout {
    tests::plan(batch.schema_ref(), kinds, kinds.is_some()).unwrap()
}

fn batch_of(array: ArrayRef) -> RecordBatch {
    RecordBatch::try_from_iter_with_nullable([("c", array, true)]).unwrap()
}

/// The column as a BE reads it.
fn sent(array: ArrayRef, doris_type: &str) -> Result<ArrayRef> {
    let batch = batch_of(array);
    let plan = plan_of(&batch, &[DorisType::parse(doris_type).unwrap()], layout_of(&batch, None), Compression::Zstd)?;
    let (mut encoder, mut body) = (ArrowEncoder::new(Arc::new(plan)), Vec::new());
    encoder.encode(&batch, &mut body)?;
    encoder.finish(&mut body)?;
    Ok(Arc::clone(read(&body).column(0)))
}

fn read(body: &[u8]) -> RecordBatch {
    let reader = StreamReader::try_new(body, None).unwrap();
    let schema = reader.schema();
    let batches: Vec<RecordBatch> = reader.collect::<std::result::Result<_, _>>().unwrap();
    concat_batches(&schema, &batches).unwrap()
}

fn strings(texts: &[Option<&str>]) -> ArrayRef {
    Arc::new(StringArray::from(texts.to_vec()))
}

fn list_of(lengths: &[usize], values: ArrayRef) -> ArrayRef {
    let item = field("item", values.data_type());
    Arc::new(ListArray::new(item, OffsetBuffer::from_lengths(lengths.iter().copied()), values, None))
}

#[test]
fn columns_arrive_in_the_types_that_a_server_reads() {
    let decimals = |values: &[i128], precision, scale| -> ArrayRef {
        Arc::new(Decimal128Array::from(values.to_vec()).with_precision_and_scale(precision, scale).unwrap())
    };
    let micros = TimestampMicrosecondArray::from(vec![Some(1_500_000), None]);
    let runs: ArrayRef = Arc::new(
        RunArray::<Int32Type>::try_new(&Int32Array::from(vec![1, 2]), &StringArray::from(vec![Some("a"), None]))
            .unwrap(),
    );
    let dictionary: ArrayRef = Arc::new(DictionaryArray::<Int32Type>::new(
        Int32Array::from(vec![Some(1), None]),
        Arc::new(Int64Array::from(vec![7, 8])),
    ));
    let large = Decimal256Array::from(vec![i256::from_i128(i128::MIN)]).with_precision_and_scale(39, 0).unwrap();
    let cases: Vec<(ArrayRef, &str, ArrayRef)> = vec![
        (
            Arc::new(Int64Array::from(vec![Some(127), None])),
            "TINYINT",
            Arc::new(Int8Array::from(vec![Some(127), None])),
        ),
        (Arc::new(UInt64Array::from(vec![1])), "BIGINT", Arc::new(Int64Array::from(vec![1]))),
        (dictionary, "INT", Arc::new(Int32Array::from(vec![Some(8), None]))),
        (Arc::new(large), "LARGEINT", strings(&[Some("-170141183460469231731687303715884105728")])),
        (Arc::new(UInt64Array::from(vec![u64::MAX])), "LARGEINT", strings(&[Some("18446744073709551615")])),
        (decimals(&[1500], 10, 3), "DECIMAL(9, 1)", decimals(&[15], 9, 1)),
        (Arc::new(Int32Array::from(vec![-3])), "DECIMAL(20, 2)", decimals(&[-300], 20, 2)),
        (Arc::new(Float64Array::from(vec![0.5, f64::NAN])), "FLOAT", Arc::new(Float32Array::from(vec![0.5, f32::NAN]))),
        (Arc::new(Date64Array::from(vec![86_400_000])), "DATE", Arc::new(Date32Array::from(vec![1]))),
        (Arc::new(micros.clone()), "DATETIME(6)", strings(&[Some("1970-01-01 00:00:01.500000"), None])),
        (
            Arc::new(micros.with_timezone("+08:00")),
            "TIMESTAMPTZ(6)",
            strings(&[Some("1970-01-01 00:00:01.500000+00:00"), None]),
        ),
        (runs, "STRING", strings(&[Some("a"), None])),
        (Arc::new(StringViewArray::from(vec!["x\u{1f980}"])), "VARCHAR(10)", strings(&[Some("x\u{1f980}")])),
        (Arc::new(Time32SecondArray::from(vec![3661])), "VARCHAR(20)", strings(&[Some("01:01:01")])),
        (Arc::new(UInt32Array::from(vec![5])), "STRING", strings(&[Some("5")])),
        (list_of(&[2], strings(&[Some("q\""), None])), "JSON", strings(&[Some("[\"q\\\"\",null]")])),
        (Arc::new(NullArray::new(2)), "ARRAY<INT>", {
            let item = field("item", &DataType::Int32);
            Arc::new(ListArray::new_null(item, 2))
        }),
        (
            list_of(&[1, 2], Arc::new(Int64Array::from(vec![1, 2, 3]))),
            "ARRAY<INT>",
            list_of(&[1, 2], Arc::new(Int32Array::from(vec![1, 2, 3]))),
        ),
    ];
    for (array, doris_type, expected) in cases {
        let found = sent(Arc::clone(&array), doris_type).unwrap();
        assert_eq!(&found, &expected, "{} into {doris_type}", array.data_type());
        // Rows of the middle of a batch.
        let tail = array.slice(1, array.len() - 1);
        if !tail.is_empty() {
            let expected = expected.slice(1, expected.len() - 1);
            assert_eq!(&sent(tail, doris_type).unwrap(), &expected, "{} into {doris_type}", array.data_type());
        }
    }
}

#[test]
fn lists_of_every_kind_are_lists() {
    let values = Int32Array::from(vec![Some(1), None, Some(3), Some(4)]);
    let item = field("item", &DataType::Int32);
    let nulls = NullBuffer::from(vec![true, false]);
    let fixed = FixedSizeListArray::new(Arc::clone(&item), 2, Arc::new(values.clone()), Some(nulls.clone()));
    let view = ListViewArray::new(
        Arc::clone(&item),
        vec![2, 0].into(),
        vec![2, 2].into(),
        Arc::new(values.clone()),
        Some(nulls.clone()),
    );
    // What a NULL row holds does not fit, and is nobody's value.
    let odd = Int64Array::from(vec![Some(3), Some(4), Some(i64::MAX)]);
    let odd =
        ListArray::new(field("item", odd.data_type()), OffsetBuffer::from_lengths([2, 1]), Arc::new(odd), Some(nulls));
    let cases: [(ArrayRef, [Option<i32>; 2]); 3] =
        [(Arc::new(fixed), [Some(1), None]), (Arc::new(view), [Some(3), Some(4)]), (Arc::new(odd), [Some(3), Some(4)])];
    for (array, first) in cases {
        let found = sent(Arc::clone(&array), "ARRAY<INT>").unwrap();
        let found = found.as_list::<i32>();
        assert_eq!(found.value(0).as_ref(), &Int32Array::from(first.to_vec()) as &dyn Array, "{}", array.data_type());
        assert!(found.is_null(1));
    }
}

#[test]
fn structs_have_the_order_of_the_table_and_maps_keep_their_keys() {
    let fields: Fields = vec![field("B", &DataType::Int64), field("a", &DataType::Utf8)].into();
    let columns: Vec<ArrayRef> = vec![Arc::new(Int64Array::from(vec![1, i64::MAX])), strings(&[Some("x"), None])];
    let array = StructArray::new(fields.clone(), columns, Some(NullBuffer::from(vec![true, false])));
    let found = sent(Arc::new(array), "STRUCT<a:STRING,b:INT>").unwrap();
    let found = found.as_struct();
    assert_eq!(found.column_names(), ["a", "b"]);
    assert_eq!((found.column(0).as_string::<i32>().value(0), found.is_null(1)), ("x", true));

    let entries = StructArray::from(vec![
        (Arc::new(Field::new("k", DataType::Int64, false)), Arc::new(Int64Array::from(vec![1, 2])) as ArrayRef),
        (field("v", &DataType::Utf8), strings(&[Some("say \"a:b\", ok"), None])),
    ]);
    let entry = Arc::new(Field::new("entries", entries.data_type().clone(), false));
    let map = MapArray::new(entry, OffsetBuffer::from_lengths([0, 2]), entries, None, false);
    let found = sent(Arc::new(map.slice(1, 1)), "MAP<INT,STRING>").unwrap();
    let found = found.as_map();
    assert_eq!(found.keys().as_primitive::<Int32Type>().values(), &[1, 2]);
    assert_eq!(found.values().as_string::<i32>().value(0), "say \"a:b\", ok");
}

#[test]
fn values_that_would_change_are_refused_with_their_row() {
    let nested = |values: Vec<i64>| list_of(&[1, 0, 2], Arc::new(Int64Array::from(values)));
    let decimals = Decimal128Array::from(vec![100, 101]).with_precision_and_scale(10, 2).unwrap();
    let cases: Vec<(ArrayRef, &str, usize)> = vec![
        (Arc::new(Int64Array::from(vec![1, 128])), "TINYINT", 1),
        (Arc::new(UInt64Array::from(vec![0, 0, u64::MAX])), "BIGINT", 2),
        (Arc::new(Int64Array::from(vec![i64::MAX])), "DOUBLE", 0),
        (Arc::new(Float64Array::from(vec![0.5, 0.1])), "FLOAT", 1),
        (Arc::new(decimals), "DECIMAL(10, 1)", 1),
        (Arc::new(Int64Array::from(vec![1, 1000])), "DECIMAL(3, 1)", 1),
        (Arc::new(Date64Array::from(vec![0, 1])), "DATE", 1),
        (Arc::new(TimestampNanosecondArray::from(vec![1000, 1001])), "DATETIME(6)", 1),
        (Arc::new(TimestampMicrosecondArray::from(vec![i64::MAX])), "DATETIME(6)", 0),
        (nested(vec![1, 2, 3_000_000_000]), "ARRAY<INT>", 2),
        (nested(vec![3_000_000_000, 2, 3]), "ARRAY<INT>", 0),
    ];
    for (array, doris_type, expected) in cases {
        let from = array.data_type().clone();
        match sent(array, doris_type).unwrap_err() {
            Error::Encode { table, column, row, .. } => {
                assert_eq!((table.as_str(), column.as_str(), row), ("db.t", "c", expected), "{from} into {doris_type}");
            }
            other => panic!("{from} into {doris_type}: {other}"),
        }
    }
}

#[test]
fn types_that_never_fit_are_refused_at_planning() {
    let cases: Vec<(ArrayRef, &str)> = vec![
        (strings(&[Some("1")]), "INT"),
        (strings(&[Some("[1]")]), "ARRAY<INT>"),
        (Arc::new(BooleanArray::from(vec![true])), "INT"),
        (Arc::new(Float64Array::from(vec![1.0])), "DECIMAL(10, 2)"),
        (Arc::new(Int64Array::from(vec![1])), "DATE"),
        (Arc::new(Int64Array::from(vec![1])), "IPV4"),
        (list_of(&[1], strings(&[Some("1")])), "ARRAY<INT>"),
    ];
    for (array, doris_type) in cases {
        let batch = batch_of(array);
        let types = [DorisType::parse(doris_type).unwrap()];
        let error = plan_of(&batch, &types, layout_of(&batch, None), Compression::None).unwrap_err().to_string();
        assert!(error.contains("db.t: column 'c'") && error.contains("cannot be loaded into"), "{doris_type}: {error}");
    }
    let binary = batch_of(Arc::new(BinaryArray::from(vec![&b"x"[..]])));
    assert!(tests::plan(binary.schema_ref(), None, false).is_err());
}

#[test]
fn change_kinds_become_a_column_of_delete_signs() {
    let kinds = strings(&[Some("+I"), Some("-U"), Some("+U"), Some("-D")]);
    let ids: ArrayRef = Arc::new(Int64Array::from(vec![0, 1, 2, 3]));
    let batch = RecordBatch::try_from_iter_with_nullable([("id", ids, true), ("kind", kinds, true)]).unwrap();
    let plan = plan_of(&batch, &[DorisType::BigInt], layout_of(&batch, Some("kind")), Compression::None).unwrap();
    let (mut encoder, mut body) = (ArrowEncoder::new(Arc::new(plan)), Vec::new());
    assert_eq!(encoder.encode(&batch.slice(1, 1), &mut body).unwrap(), 0);
    assert!(body.is_empty(), "no rows, no stream");
    assert_eq!(encoder.encode(&batch, &mut body).unwrap(), 3);
    assert_eq!(encoder.encode(&batch.slice(3, 1), &mut body).unwrap(), 1);
    encoder.finish(&mut body).unwrap();
    let found = read(&body);
    assert_eq!(found.schema().field(1).name(), "__DORIS_DELETE_SIGN__");
    assert_eq!(found.column(0).as_primitive::<Int64Type>().values(), &[0, 2, 3, 3]);
    assert_eq!(found.column(1).as_ref(), &Int8Array::from(vec![0, 0, 1, 1]) as &dyn Array);

    // Rows of errors are those of the batch, not of what is left of it.
    let plan = plan_of(&batch, &[DorisType::TinyInt], layout_of(&batch, Some("kind")), Compression::None).unwrap();
    let wide: ArrayRef = Arc::new(Int64Array::from(vec![0, 9999, 2, 300]));
    let wide = RecordBatch::try_new(batch.schema(), vec![wide, Arc::clone(batch.column(1))]).unwrap();
    let error = ArrowEncoder::new(Arc::new(plan)).encode(&wide, &mut Vec::new()).unwrap_err();
    assert!(matches!(error, Error::Encode { row: 3, .. }), "{error}");
}

#[test]
fn buffers_that_are_sent_from_where_they_are_make_the_same_body() {
    let rows = 20_000;
    let sparse: ArrayRef = Arc::new((0..rows).map(|row| (row % 7 > 0).then_some(row)).collect::<Int64Array>());
    let texts: ArrayRef = Arc::new(StringArray::from_iter_values((0..rows).map(|row| format!("text of {row}"))));
    let tags = list_of(&vec![2; rows as usize], Arc::new(Int64Array::from_iter_values(0..2 * rows)));
    let batch =
        RecordBatch::try_from_iter_with_nullable([("n", sparse, true), ("t", texts, true), ("l", tags, true)]).unwrap();
    let types = ["BIGINT", "STRING", "ARRAY<BIGINT>"].map(|text| DorisType::parse(text).unwrap());
    for inside in [Compression::None, Compression::Lz4] {
        let plan = Arc::new(plan_of(&batch, &types, layout_of(&batch, None), inside).unwrap());
        let (mut copying, mut copied) = (ArrowEncoder::new(Arc::clone(&plan)), Vec::new());
        let (mut sharing, mut shared) = (ArrowEncoder::new(plan), Output::default());
        shared.share(true);
        for slice in [batch.slice(0, 9_000), batch.slice(9_000, 11_000), batch.slice(5, 10)] {
            let written = copying.encode(&slice, &mut copied).unwrap();
            assert_eq!(sharing.encode_to(&slice, &mut shared).unwrap(), written);
        }
        copying.finish(&mut copied).unwrap();
        sharing.finish(shared.tail()).unwrap();
        let chunk = shared.take();
        let lent = batch.column(0).to_data().buffers()[0].as_ptr();
        let from_there = chunk.clone().into_iter().any(|piece| piece.as_ptr() == lent);
        assert_eq!(from_there, inside == Compression::None, "{inside:?}");
        assert!(chunk.into_bytes() == copied, "{inside:?}");
        let read = read(&copied);
        assert_eq!(read.slice(0, 20_000), batch, "{inside:?}");
        assert_eq!(read.slice(20_000, 10), batch.slice(5, 10), "{inside:?}");
    }
}
