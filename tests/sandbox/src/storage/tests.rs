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
        let schema = load_schema(table.columns(), KeysType::Unique, None).unwrap();
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
    let column = super::Column {
        name: "Kk".into(),
        ty,
        nullable: false,
        key: true,
        default: super::DefaultValue::None,
        comment: String::new(),
    };
    let list = ["kK".to_owned(), "__doris_delete_sign__".to_owned()];
    let schema = load_schema(std::slice::from_ref(&column), KeysType::Unique, Some(&list)).unwrap();
    assert_eq!(schema.field(0).name(), "Kk");
    assert_eq!(schema.field(1).name(), super::DELETE_SIGN);
    assert!(load_schema(&[column], KeysType::Duplicate, Some(&list)).is_err());
}
