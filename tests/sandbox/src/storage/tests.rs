//! Versions, keys and buckets.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Array, Int64Array, StringArray};

use super::{KeysType, hash_keys, load_schema};
use crate::engine::{Engine, EngineConfig, Protocol};

#[test]
fn keys_with_nulls_in_different_places_differ() {
    let a: ArrayRef = Arc::new(Int32Array::from(vec![None, Some(1), None, Some(1)]));
    let b: ArrayRef = Arc::new(StringArray::from(vec![Some("1"), None, None, None]));
    let hashes = hash_keys(&[a, b]).unwrap();
    assert_ne!(hashes[0], hashes[1]);
    assert_ne!(hashes[0], hashes[2]);
    assert_eq!(hashes[1], hashes[3]);
}

#[tokio::test]
async fn a_snapshot_keeps_its_version() {
    let engine = Engine::new(EngineConfig::default());
    let mut session = engine.open_session("root", "127.0.0.1", Protocol::Http);
    session
        .execute(
            "CREATE DATABASE d; CREATE TABLE d.t (k INT, v INT) UNIQUE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 1; \
             INSERT INTO d.t VALUES (1, 1), (2, 2)",
        )
        .await
        .unwrap();
    let table = engine.table_handle("d", "t").unwrap();
    let snapshot = table.snapshot();
    session.execute("INSERT INTO d.t VALUES (1, 10), (3, 3); DELETE FROM d.t WHERE k = 2").await.unwrap();
    let values = |snapshot: &super::rowset::Snapshot| {
        let schema = load_schema(table.columns(), KeysType::Unique, None, None).unwrap();
        let mut values = Vec::new();
        for (i, entry) in snapshot.tablets[0].rowsets.iter().enumerate() {
            if let Some(batch) = entry.read(snapshot.version, 0, i as u32, &schema, false).unwrap() {
                let column = batch.column(1).as_any().downcast_ref::<Int32Array>().unwrap().clone();
                values.extend(column.values().to_vec());
            }
        }
        values.sort_unstable();
        values
    };
    assert_eq!(values(&snapshot), [1, 2]);
    assert_eq!(values(&table.snapshot()), [3, 10]);
    // The same rowsets, read at the older version.
    let mut old = table.snapshot();
    old.version = snapshot.version;
    assert_eq!(values(&old), [1, 2]);
    assert_eq!(table.tablets()[0].rows, 2);
}

#[tokio::test]
async fn many_small_loads_are_scanned_in_large_batches() {
    let engine = Engine::new(EngineConfig::default());
    let mut session = engine.open_session("root", "127.0.0.1", Protocol::Http);
    session
        .execute("CREATE DATABASE d; CREATE TABLE d.t (k BIGINT) DUPLICATE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 1")
        .await
        .unwrap();
    let table = engine.table_handle("d", "t").unwrap();
    let schema = engine.table_meta("d", "t").unwrap().load_schema(None).unwrap();
    for i in 0..100 {
        let spec = crate::engine::LoadSpec {
            db: "d".into(),
            table: "t".into(),
            label: None,
            two_phase: false,
            timeout: std::time::Duration::from_secs(60),
            columns: None,
            merge_type: crate::engine::MergeType::Append,
            source: "INSERT",
            ..Default::default()
        };
        let txn = engine.begin_load(spec).unwrap();
        let batch =
            arrow::array::RecordBatch::try_new(Arc::clone(&schema), vec![Arc::new(Int64Array::from(vec![i; 3]))])
                .unwrap();
        engine.write_load(&txn, batch).unwrap();
        engine.finish_load(txn, false).unwrap();
    }
    assert_eq!(table.version().0, 101);
    let results = session.execute("SELECT k FROM d.t").await.unwrap();
    let Some(crate::engine::StatementResult::Rows { stream, .. }) = results.into_iter().next() else { panic!() };
    let batches: Vec<_> = futures::TryStreamExt::try_collect(stream).await.unwrap();
    assert_eq!(batches.len(), 1);
    assert_eq!(batches[0].num_rows(), 300);
}

#[test]
fn load_schema_finds_columns_without_case() {
    let ty = crate::types::DorisType::Int;
    let mut column = super::Column::new("Kk", ty);
    column.nullable = false;
    let list = ["kK".to_owned(), "__doris_delete_sign__".to_owned()];
    let schema = load_schema(std::slice::from_ref(&column), KeysType::Unique, None, Some(&list)).unwrap();
    assert_eq!(schema.field(0).name(), "Kk");
    assert_eq!(schema.field(1).name(), super::DELETE_SIGN);
    assert!(load_schema(&[column], KeysType::Duplicate, None, Some(&list)).is_err());
}

#[test]
fn states_are_united_per_group() {
    use arrow::array::{AsArray, BinaryArray, LargeBinaryArray};

    use super::Aggregation;
    use super::aggregate::fold;
    use crate::types::bitmap::Bitmap;
    use crate::types::hll::Hll;

    let bitmap = |values: &[u64]| {
        let mut out = Bitmap::new();
        values.iter().for_each(|v| out.insert(*v));
        out.to_bytes()
    };
    let states = [bitmap(&[5]), bitmap(&[9]), bitmap(&[5, 7])];
    let all: ArrayRef = Arc::new(BinaryArray::from_iter_values(&states));
    let united = fold(Aggregation::BitmapUnion, &all, &[0, 1, 0], 3).unwrap();
    let united = united.as_binary::<i32>();
    assert_eq!(Bitmap::from_bytes(united.value(0)).unwrap().to_text(), "5,7");
    assert_eq!(Bitmap::from_bytes(united.value(1)).unwrap().to_text(), "9");
    assert!(arrow::array::Array::is_null(united, 2));
    let states = [Hll::of_value(b"a").to_bytes(), Hll::of_value(b"b").to_bytes(), Hll::of_value(b"a").to_bytes()];
    let all: ArrayRef = Arc::new(LargeBinaryArray::from_iter_values(&states));
    let united = fold(Aggregation::HllUnion, &all, &[0, 0, 0], 1).unwrap();
    assert_eq!(Hll::from_bytes(united.as_binary::<i64>().value(0)).unwrap().cardinality(), 2);
}

#[tokio::test]
async fn compaction_keeps_rows_versions_and_snapshots() {
    let engine = Engine::new(EngineConfig::default());
    let mut session = engine.open_session("root", "127.0.0.1", Protocol::Http);
    session
        .execute(
            "CREATE DATABASE d; CREATE TABLE d.u (k INT, v INT) UNIQUE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 1; \
             CREATE TABLE d.a (k INT, v INT SUM) AGGREGATE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 1",
        )
        .await
        .unwrap();
    let mut snapshot = None;
    for i in 0..200 {
        let k = i % 20;
        session.execute(&format!("INSERT INTO d.u VALUES ({k}, {i}); INSERT INTO d.a VALUES ({k}, 1)")).await.unwrap();
        if i == 100 {
            snapshot = Some(engine.table_handle("d", "u").unwrap().snapshot());
        }
    }
    let table = engine.table_handle("d", "u").unwrap();
    let now = table.snapshot();
    assert!(now.tablets[0].rowsets.len() < 40, "{}", now.tablets[0].rowsets.len());
    assert_eq!(table.tablets()[0].rows, 20);
    let sum = |snapshot: &super::rowset::Snapshot| {
        let schema = load_schema(table.columns(), KeysType::Unique, None, None).unwrap();
        let mut values = Vec::new();
        for (i, entry) in snapshot.tablets[0].rowsets.iter().enumerate() {
            if let Some(batch) = entry.read(snapshot.version, 0, i as u32, &schema, false).unwrap() {
                values.extend(batch.column(1).as_any().downcast_ref::<Int32Array>().unwrap().values().to_vec());
            }
        }
        values.sort_unstable();
        values
    };
    assert_eq!(sum(&now), (180..200).collect::<Vec<_>>());
    assert_eq!(sum(&snapshot.unwrap()), (81..=100).collect::<Vec<_>>());
    session.execute("DELETE FROM d.u WHERE k < 19; UPDATE d.u SET v = 0 WHERE k = 19").await.unwrap();
    assert_eq!(sum(&table.snapshot()), [0]);
    assert_eq!(engine.tablets("d", "a").unwrap()[0].rows, 20);
}
