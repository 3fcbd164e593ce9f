//! ALTER TABLE.

use super::Fixture;

#[tokio::test]
async fn columns_come_and_go() {
    let mut f = Fixture::with_database().await;
    f.run("CREATE TABLE t (k INT, v INT, w STRING) UNIQUE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 2").await;
    f.run("INSERT INTO t VALUES (1, 10, 'a'), (2, 20, 'b')").await;
    f.run("ALTER TABLE t ADD COLUMN n INT DEFAULT '7' AFTER v").await;
    f.run("ALTER TABLE t ADD COLUMN (x STRING, y DATE DEFAULT '2024-01-01')").await;
    assert_eq!(f.sorted("SELECT * FROM t").await, ["1|10|7|a|NULL|2024-01-01", "2|20|7|b|NULL|2024-01-01"]);
    f.run("INSERT INTO t VALUES (2, 21, 8, 'bb', 'x', NULL); ALTER TABLE t DROP COLUMN w, DROP COLUMN x").await;
    assert_eq!(f.sorted("SELECT * FROM t").await, ["1|10|7|2024-01-01", "2|21|8|NULL"]);
    f.run("ALTER TABLE t RENAME COLUMN v value; ALTER TABLE t ADD COLUMN v STRING DEFAULT 'new'").await;
    assert_eq!(f.sorted("SELECT k, value, v FROM t").await, ["1|10|new", "2|21|new"]);
    f.run("ALTER TABLE t MODIFY COLUMN value BIGINT; UPDATE t SET value = 9999999999 WHERE k = 1").await;
    assert_eq!(f.sorted("SELECT k, value FROM t").await, ["1|9999999999", "2|21"]);
    f.run("ALTER TABLE t MODIFY COMMENT 'c'; ALTER TABLE t MODIFY COLUMN n COMMENT 'the n'").await;
    let text = f.rows("SHOW CREATE TABLE t").await.remove(0);
    assert!(text.contains("COMMENT 'c'") && text.contains("COMMENT \"the n\""), "{text}");
    f.run("ALTER TABLE t RENAME t2").await;
    let jobs = f.rows("SHOW ALTER TABLE COLUMN FROM d WHERE TableName = 't2' ORDER BY JobId DESC LIMIT 1").await;
    assert!(jobs.len() == 1 && jobs[0].contains("|t2|") && jobs[0].contains("|6:0|-1|FINISHED|"), "{jobs:?}");
    assert_eq!(f.rows("SELECT count(*) FROM t2 PARTITION(t2)").await, ["2"]);
    for (clause, text) in [
        ("ADD COLUMN n INT", "Can not add column which already exists in base table: n"),
        ("ADD COLUMN z INT FIRST", "Invalid column order. value should be after key"),
        ("ADD COLUMN z INT AFTER nope", "Column[nope] does not found"),
        ("ADD COLUMN z INT SUM", "should not specify aggregate type"),
        ("DROP COLUMN nope", "Column does not exists: nope"),
        ("DROP COLUMN k", "Distribution column[k] cannot be dropped."),
        ("MODIFY COLUMN value INT", "Can not change BIGINT to INT"),
        ("MODIFY COLUMN value BIGINT NOT NULL", "Can not change from nullable to non-nullable"),
        ("RENAME COLUMN nope x", "Column[nope] does not exists"),
        ("RENAME COLUMN n y", "Column name[y] is already used"),
        ("SET ('nope' = '1')", "Unknown table property: [nope]"),
        ("ADD ROLLUP r (k)", "does not implement ALTER TABLE"),
        ("ADD PARTITION p VALUES LESS THAN ('1')", "is not partitioned"),
    ] {
        let error = f.error(&format!("ALTER TABLE t2 {clause}")).await;
        assert!(error.message.contains(text), "{clause}: {error}");
    }
    // A statement that fails in its second clause changes nothing.
    f.error("ALTER TABLE t2 ADD COLUMN z INT, DROP COLUMN nope").await;
    f.error("SELECT z FROM t2").await;
}

#[tokio::test]
async fn loads_under_way_follow_the_schema() {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Int32Array, RecordBatch};

    let mut f = Fixture::with_database().await;
    f.run("CREATE TABLE t (k INT, a INT, b INT) UNIQUE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 1").await;
    f.run("INSERT INTO t VALUES (1, 1, 1)").await;
    let spec = |partial: bool| crate::engine::LoadSpec {
        db: "d".into(),
        table: "t".into(),
        two_phase: true,
        columns: Some(vec!["k".into(), "a".into()]),
        update_mode: if partial { crate::engine::UpdateMode::FixedColumns } else { crate::engine::UpdateMode::Upsert },
        ..Default::default()
    };
    let list = ["k".to_owned(), "a".to_owned()];
    let schema = f.engine.table_meta("d", "t").unwrap().load_schema(Some(&list)).unwrap();
    let mut ids = Vec::new();
    for partial in [false, true] {
        let txn = f.engine.begin_load(spec(partial)).unwrap();
        let column = |v: i32| Arc::new(Int32Array::from(vec![v])) as ArrayRef;
        let batch = RecordBatch::try_new(Arc::clone(&schema), vec![column(1), column(5)]).unwrap();
        f.engine.write_load(&txn, batch).unwrap();
        ids.push(txn.txn_id());
        f.engine.finish_load(txn, true).unwrap();
    }
    f.run("ALTER TABLE t DROP COLUMN b; ALTER TABLE t ADD COLUMN c INT DEFAULT '3'").await;
    let by_id = |id: i64| crate::engine::TxnRef { txn_id: Some(id), label: None };
    let error = f.engine.commit_txn("d", &by_id(ids[1])).unwrap_err();
    assert!(
        error.message.ends_with(&format!(
            "transaction [{}] check schema compatibility failed, partial update can't commit with old schema sucessfully .",
            ids[1]
        )),
        "{error}"
    );
    f.engine.commit_txn("d", &by_id(ids[0])).unwrap();
    assert_eq!(f.rows("SELECT * FROM t").await, ["1|5|3"]);
}

#[tokio::test]
async fn partitions_are_added_and_dropped() {
    let mut f = Fixture::with_database().await;
    f.run(
        "CREATE TABLE r (k INT, v INT) UNIQUE KEY(k) PARTITION BY RANGE(k) (PARTITION a VALUES LESS THAN ('10')) \
         DISTRIBUTED BY HASH(k) BUCKETS 1 PROPERTIES('changelog.enable'='true')",
    )
    .await;
    f.run("ALTER TABLE r ADD PARTITION b VALUES [('10'), ('20')); INSERT INTO r VALUES (1, 1), (15, 15)").await;
    f.run("ALTER TABLE r ADD PARTITION IF NOT EXISTS b VALUES [('10'), ('20'))").await;
    let error = f.error("ALTER TABLE r ADD PARTITION c VALUES [('15'), ('25'))").await;
    assert!(error.message.contains("is intersected with range"), "{error}");
    f.run("ALTER TABLE r RENAME PARTITION b bb; ALTER TABLE r DROP PARTITION a").await;
    assert_eq!(f.rows("SELECT k FROM r").await, ["15"]);
    // The records of a dropped partition are gone.
    assert_eq!(f.rows("SELECT k FROM r@incr('incrementType'='DETAIL')").await, ["15"]);
    assert!(f.error("ALTER TABLE r DROP PARTITION nope").await.message.contains("nope"));
    f.run("ALTER TABLE r ADD COLUMN n INT DEFAULT '4'; INSERT INTO r VALUES (16, 1, 2); DELETE FROM r WHERE k = 16")
        .await;
    let rows = f.sorted("SELECT k, n, __DORIS_CHANGELOG_OP__ FROM r@incr('incrementType'='DETAIL')").await;
    assert_eq!(rows, ["15|4|0", "16|2|0", "16|NULL|1"]);
    for clause in ["RENAME COLUMN v w", "MODIFY COLUMN v BIGINT"] {
        let error = f.error(&format!("ALTER TABLE r {clause}")).await;
        assert!(error.message.contains("Not allowed to perform current operation on Table With"), "{error}");
    }
    assert!(f.error("ALTER TABLE r SET ('changelog.enable'='false')").await.message.contains("can't disable"));
}

#[tokio::test]
async fn tables_change_places() {
    let mut f = Fixture::with_database().await;
    for (name, value) in [("a", 1), ("b", 2)] {
        f.run(&format!("CREATE TABLE {name} (k INT) DUPLICATE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 1")).await;
        f.run(&format!("INSERT INTO {name} VALUES ({value})")).await;
    }
    f.run("ALTER TABLE a REPLACE WITH TABLE b").await;
    assert_eq!(
        (f.rows("SELECT * FROM a").await, f.rows("SELECT * FROM b").await),
        (vec!["2".into()], vec!["1".into()])
    );
    f.run("ALTER TABLE a REPLACE WITH TABLE b PROPERTIES('swap'='false')").await;
    assert_eq!(f.rows("SELECT * FROM a").await, ["1"]);
    f.error("SELECT * FROM b").await;
}
