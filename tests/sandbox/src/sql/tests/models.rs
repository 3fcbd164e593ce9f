//! Partitions, the aggregate model, sequence columns, partial updates, INSERT OVERWRITE and derived tables.

use super::Fixture;

const RANGE: &str = "CREATE TABLE r (d DATE, k INT, v INT) DUPLICATE KEY(d, k) PARTITION BY RANGE(d) (\
     PARTITION p1 VALUES LESS THAN ('2024-01-01'), PARTITION p2 VALUES [('2024-01-01'), ('2024-02-01')), \
     FROM ('2024-03-01') TO ('2024-03-04') INTERVAL 1 DAY) DISTRIBUTED BY HASH(k) BUCKETS 2";

#[tokio::test]
async fn range_partitions_take_their_rows() {
    let mut f = Fixture::with_database().await;
    f.run(RANGE).await;
    f.run("INSERT INTO r VALUES ('2023-05-05', 1, 1), (NULL, 2, 2), ('2024-01-31', 3, 3), ('2024-03-02', 4, 4)").await;
    assert_eq!(f.sorted("SELECT k FROM r PARTITION(p1)").await, ["1", "2"]);
    assert_eq!(f.sorted("SELECT k FROM r PARTITION(p2, p_20240302) WHERE v > 0").await, ["3", "4"]);
    assert_eq!(f.rows("SELECT count(*) FROM r").await, ["4"]);
    let error = f.error("INSERT INTO r VALUES ('2024-02-01', 9, 9)").await;
    assert!(error.message.contains("no partition for this tuple. tuple="), "{error}");
    f.run("SET enable_insert_strict = false; INSERT INTO r VALUES ('2024-02-01', 9, 9), ('2024-03-03', 5, 5)").await;
    assert!(f.rows("SHOW LAST INSERT").await[0].ends_with("|VISIBLE|1|1"));
    assert_eq!(f.rows("SELECT count(*) FROM r").await, ["5"]);
    assert_eq!(f.error("SELECT * FROM r PARTITION(nope)").await.text(), "Partition: nope is not exists on table r");
    assert_eq!(f.rows("SHOW TABLETS FROM r").await.len(), 10);
    assert_eq!(f.rows("SHOW TABLETS FROM r PARTITION(p1)").await.len(), 2);
    let shown = f.rows("SHOW PARTITIONS FROM r").await;
    let names: Vec<&str> = shown.iter().map(|row| row.split('|').nth(1).unwrap()).collect();
    assert_eq!(names, ["p1", "p2", "p_20240301", "p_20240302", "p_20240303"]);
    assert!(
        shown[1].contains("|NORMAL|d|[types: [DATEV2]; keys: [2024-01-01]; ..types: [DATEV2]; keys: [2024-02-01]; )|"),
        "{}",
        shown[1]
    );
    // A table made from the text is the same table.
    let text = f.rows("SHOW CREATE TABLE r").await.remove(0);
    let again = text.split_once('|').unwrap().1.replace("`r`", "`r2`");
    f.run(&again).await;
    assert_eq!(f.rows("SHOW PARTITIONS FROM r2").await.len(), 5);
    assert_eq!(f.affected("DELETE FROM r PARTITION p1 WHERE k = 1").await, 0);
    f.run("TRUNCATE TABLE r PARTITION(p2)").await;
    assert_eq!(f.sorted("SELECT k FROM r").await, ["2", "4", "5"]);
}

#[tokio::test]
async fn list_partitions_and_named_targets() {
    let mut f = Fixture::with_database().await;
    f.run(
        "CREATE TABLE l (c VARCHAR(10), k INT) UNIQUE KEY(c, k) PARTITION BY LIST(c) (PARTITION eu VALUES IN ('de', 'fr'), \
         PARTITION asia VALUES IN ('cn')) DISTRIBUTED BY HASH(k) BUCKETS 1",
    )
    .await;
    f.run("INSERT INTO l VALUES ('de', 1), ('cn', 2); INSERT INTO l PARTITION(eu) VALUES ('fr', 3)").await;
    assert_eq!(f.sorted("SELECT k FROM l PARTITION(eu)").await, ["1", "3"]);
    let error = f.error("INSERT INTO l PARTITION(eu) VALUES ('cn', 4)").await;
    assert!(error.message.contains("no partition for this tuple"), "{error}");
    f.run("INSERT OVERWRITE TABLE l PARTITION(eu) VALUES ('de', 7)").await;
    assert_eq!(f.sorted("SELECT * FROM l").await, ["cn|2", "de|7"]);
    f.run("INSERT OVERWRITE TABLE l PARTITION(*) VALUES ('cn', 8)").await;
    assert_eq!(f.sorted("SELECT * FROM l").await, ["cn|8", "de|7"]);
    f.run("INSERT OVERWRITE TABLE l SELECT 'fr', 9").await;
    assert_eq!(f.sorted("SELECT * FROM l").await, ["fr|9"]);
    for (clause, text) in [
        ("LIST(c) (PARTITION a VALUES IN ('x'), PARTITION b VALUES IN ('y', 'x'))", "is intersected with range"),
        ("LIST(c) (PARTITION a VALUES IN ('x'), PARTITION a VALUES IN ('y'))", "Duplicate partition name a"),
        ("LIST(nope) ()", "partition key nope is not exists"),
        ("RANGE(c) ()", "Column[c] type[VARCHAR] cannot be a range partition key."),
        ("RANGE(v) ()", "partition column must be KEY column"),
        ("RANGE(k) (PARTITION a VALUES [('5'), ('3')))", "is empty or reversed"),
        ("RANGE(k) (PARTITION a VALUES IN ('3'))", "fixed or less than values"),
        ("RANGE(k) (PARTITION a VALUES LESS THAN ('x'))", "Invalid value for the partition key"),
    ] {
        let sql = format!(
            "CREATE TABLE bad (c VARCHAR(10), k INT, v INT) UNIQUE KEY(c, k) PARTITION BY {clause} DISTRIBUTED BY HASH(k) BUCKETS 1"
        );
        let error = f.error(&sql).await;
        assert!(error.message.contains(text), "{clause}: {error}");
    }
}

#[tokio::test]
async fn aggregate_tables_merge_the_rows_of_a_key() {
    let mut f = Fixture::with_database().await;
    f.run(
        "CREATE TABLE a (k INT, s BIGINT SUM DEFAULT '0', lo DATE MIN, hi VARCHAR(10) MAX, r STRING REPLACE, \
         n INT REPLACE_IF_NOT_NULL, dec1 DECIMAL(20,2) SUM, dbl DOUBLE SUM) AGGREGATE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 2",
    )
    .await;
    f.run("INSERT INTO a VALUES (1, 10, '2024-01-02', 'a', 'x', 5, 1.25, 0.5), (1, 1, '2024-01-01', 'c', NULL, NULL, 2, 1)")
        .await;
    f.run(
        "INSERT INTO a VALUES (1, 5, '2024-05-01', 'b', 'z', NULL, 1, 1), (2, 7, NULL, NULL, NULL, NULL, NULL, NULL)",
    )
    .await;
    let expected = ["1|16|2024-01-01|c|z|5|4.25|2.5", "2|7|NULL|NULL|NULL|NULL|NULL|NULL"];
    assert_eq!(f.sorted("SELECT * FROM a").await, expected);
    assert_eq!(f.rows("DESC a").await[1], "s|bigint|Yes|false|0|SUM");
    let text = f.rows("SHOW CREATE TABLE a").await.remove(0);
    assert!(text.contains("`s` bigint SUM NULL DEFAULT \"0\"") && text.contains("AGGREGATE KEY(`k`)"), "{text}");
    assert_eq!(f.engine.table_meta("d", "a").unwrap().keys_type.rest_name(), "AGG_KEYS");
    assert_eq!(f.error("UPDATE a SET s = 1 WHERE k = 1").await.text(), "Only unique table could be updated.");
    let error = f.error("DELETE FROM a WHERE s > 1").await;
    assert!(error.message.contains("Table[a] is an Aggregate table"), "{error}");
    assert_eq!(f.affected("DELETE FROM a WHERE k = 1").await, 0);
    f.run("INSERT INTO a (k, s) VALUES (1, 3)").await;
    assert_eq!(f.sorted("SELECT k, s FROM a").await, ["1|3", "2|7"]);
    let error = f.error("SELECT * FROM a@incr()").await;
    assert!(error.message.contains("INCR query requires"), "{error}");
}

#[tokio::test]
async fn negative_loads_subtract() {
    let mut f = Fixture::with_database().await;
    f.run("CREATE TABLE a (k INT, s INT SUM) AGGREGATE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 1").await;
    f.run("CREATE TABLE m (k INT, s INT MAX) AGGREGATE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 1").await;
    f.run("INSERT INTO a VALUES (1, 10)").await;
    let spec = |table: &str| crate::engine::LoadSpec {
        db: "d".into(),
        table: table.into(),
        negative: true,
        ..Default::default()
    };
    let txn = f.engine.begin_load(spec("a")).unwrap();
    let schema = f.engine.table_meta("d", "a").unwrap().load_schema(None).unwrap();
    let int = |v: i32| std::sync::Arc::new(arrow::array::Int32Array::from(vec![v])) as arrow::array::ArrayRef;
    let batch = arrow::array::RecordBatch::try_new(schema, vec![int(1), int(4)]).unwrap();
    f.engine.write_load(&txn, batch).unwrap();
    f.engine.finish_load(txn, false).unwrap();
    assert_eq!(f.rows("SELECT s FROM a").await, ["6"]);
    let error = f.engine.begin_load(spec("m")).unwrap_err();
    assert!(error.to_string().contains("Column is not SUM AggregateType. column:s"), "{error}");
}

#[tokio::test]
async fn the_greater_or_equal_sequence_wins() {
    let mut f = Fixture::with_database().await;
    f.run(
        "CREATE TABLE q (k INT, v STRING, ts DATETIME) UNIQUE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 1 \
         PROPERTIES('function_column.sequence_col'='ts', 'changelog.enable'='true')",
    )
    .await;
    f.run("INSERT INTO q VALUES (1, 'b', '2024-01-02'), (1, 'a', '2024-01-01'), (2, 'x', '2024-01-05')").await;
    assert_eq!(f.sorted("SELECT k, v FROM q").await, ["1|b", "2|x"]);
    f.run("INSERT INTO q VALUES (1, 'old', '2023-01-01'), (2, 'same', '2024-01-05')").await;
    assert_eq!(f.sorted("SELECT k, v FROM q").await, ["1|b", "2|same"]);
    f.run("INSERT INTO q (k, ts, __DORIS_DELETE_SIGN__) VALUES (1, '2023-06-01', 1)").await;
    assert_eq!(f.rows("SELECT count(*) FROM q").await, ["2"]);
    assert_eq!(f.affected("UPDATE q SET v = 'u' WHERE k = 1").await, 1);
    assert_eq!(f.affected("DELETE FROM q WHERE k = 2").await, 1);
    assert_eq!(f.sorted("SELECT k, v FROM q").await, ["1|u"]);
    // Dropped rows left no record.
    let ops = f.sorted("SELECT k, __DORIS_CHANGELOG_OP__ FROM q@incr('incrementType'='DETAIL')").await;
    assert_eq!(ops, ["1|0", "1|2", "1|3", "2|0", "2|1", "2|2", "2|3"]);
    assert_eq!(
        f.error("INSERT INTO q (k, v) VALUES (5, 'z')").await.text(),
        "Table q has sequence column, need to specify the sequence column"
    );
    f.run("SET show_hidden_columns = true").await;
    assert!(f.rows("DESC q").await.iter().any(|row| row.starts_with("__DORIS_SEQUENCE_COL__|datetime|")));
}

#[tokio::test]
async fn a_typed_sequence_must_be_given() {
    let mut f = Fixture::with_database().await;
    f.run(
        "CREATE TABLE q (k INT, v STRING) UNIQUE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 1 \
         PROPERTIES('function_column.sequence_type'='bigint')",
    )
    .await;
    assert_eq!(
        f.error("INSERT INTO q VALUES (1, 'a')").await.text(),
        "Table q has sequence column, need to specify the sequence column"
    );
    f.run("INSERT INTO q (k, v, __DORIS_SEQUENCE_COL__) VALUES (1, 'a', 5), (1, 'b', 4), (2, 'c', 1)").await;
    assert_eq!(f.affected("UPDATE q SET v = 'n' WHERE k = 1").await, 1);
    f.run("INSERT INTO q (k, v, __DORIS_SEQUENCE_COL__) VALUES (1, 'late', 4), (2, 'd', 2)").await;
    assert_eq!(f.sorted("SELECT * FROM q").await, ["1|n", "2|d"]);
    assert_eq!(f.affected("DELETE FROM q WHERE k = 2").await, 1);
    f.run("INSERT INTO q (k, v, __DORIS_SEQUENCE_COL__) VALUES (2, 'e', 1)").await;
    assert_eq!(f.sorted("SELECT * FROM q").await, ["1|n"]);
    for (property, text) in [
        ("'function_column.sequence_type'='string'", "Sequence type only support integer types and date types"),
        (
            "'function_column.sequence_type'='int', 'function_column.sequence_col'='v'",
            "sequence_col and sequence_type cannot be set at the same time",
        ),
    ] {
        let sql = format!(
            "CREATE TABLE bad (k INT, v INT) UNIQUE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 1 PROPERTIES({property})"
        );
        assert_eq!(f.error(&sql).await.text(), text);
    }
}

#[tokio::test]
async fn partial_inserts_keep_the_other_columns() {
    let mut f = Fixture::with_database().await;
    f.run(
        "CREATE TABLE p (k INT, a INT, b STRING DEFAULT 'none', c INT NOT NULL DEFAULT '9') UNIQUE KEY(k) \
         DISTRIBUTED BY HASH(k) BUCKETS 1 PROPERTIES('changelog.enable'='true')",
    )
    .await;
    f.run("INSERT INTO p VALUES (1, 1, 'x', 1), (2, 2, 'y', 2)").await;
    f.run("SET enable_unique_key_partial_update = true").await;
    f.run("INSERT INTO p (k, a) VALUES (1, 10), (1, 11)").await;
    let error = f.error("INSERT INTO p (k, b) VALUES (3, 'new')").await;
    assert!(error.message.contains("Row with key=[3] is not in table."), "{error}");
    assert!(
        f.error("INSERT INTO p (a) VALUES (3)").await.message.contains("should include all key columns, missing: k")
    );
    f.run(
        "SET enable_insert_strict = false; INSERT INTO p (k, a) VALUES (3, 30); INSERT INTO p (b, k) VALUES ('z', 2)",
    )
    .await;
    assert_eq!(f.sorted("SELECT * FROM p").await, ["1|11|x|1", "2|2|z|2", "3|30|none|9"]);
    // The record holds the whole row.
    let changes =
        f.sorted("SELECT k, a, b, c FROM p@incr('incrementType'='DETAIL') WHERE __DORIS_CHANGELOG_OP__ = 3").await;
    assert_eq!(changes, ["1|11|x|1", "2|2|z|2"]);
}

#[tokio::test]
async fn tables_are_made_from_tables_and_queries() {
    let mut f = Fixture::with_database().await;
    f.run(RANGE).await;
    f.run("INSERT INTO r VALUES ('2024-01-05', 1, 10)").await;
    f.run("CREATE TABLE c LIKE r").await;
    assert_eq!(f.rows("SHOW PARTITIONS FROM c").await.len(), 5);
    assert!(f.rows("SELECT * FROM c").await.is_empty());
    f.run("CREATE TABLE s PROPERTIES('replication_num'='1') AS SELECT k, v + 1 AS w, 'x' AS name FROM r").await;
    assert_eq!(f.rows("SELECT * FROM s").await, ["1|11|x"]);
    f.run("CREATE TABLE u (a, b) UNIQUE KEY(a) DISTRIBUTED BY HASH(a) BUCKETS 1 AS SELECT k, v FROM r").await;
    assert_eq!(f.rows("SELECT a, b FROM u").await, ["1|10"]);
    f.error("CREATE TABLE broken AS SELECT nope FROM r").await;
    f.error("SELECT * FROM broken").await;
}

#[tokio::test]
async fn absent_numbers_are_assigned() {
    let mut f = Fixture::with_database().await;
    f.run(
        "CREATE TABLE n (id BIGINT NOT NULL AUTO_INCREMENT(100), v STRING, t DATETIME(3) DEFAULT CURRENT_TIMESTAMP(3), \
         d DATE DEFAULT CURRENT_DATE, x DOUBLE DEFAULT PI) UNIQUE KEY(id) DISTRIBUTED BY HASH(id) BUCKETS 1",
    )
    .await;
    f.run("INSERT INTO n (v) VALUES ('a'), ('b'); INSERT INTO n (id, v) VALUES (7, 'c')").await;
    assert_eq!(
        f.sorted("SELECT id, v, t, d FROM n").await,
        [
            "100|a|2024-01-01 00:00:00.000|2024-01-01",
            "101|b|2024-01-01 00:00:00.000|2024-01-01",
            "7|c|2024-01-01 00:00:00.000|2024-01-01"
        ]
    );
    assert_eq!(f.rows("DESC n").await[0], "id|bigint|No|true|NULL|AUTO_INCREMENT");
}

#[tokio::test]
async fn wide_decimals_need_the_variable() {
    let mut f = Fixture::with_database().await;
    let sql = "CREATE TABLE w (k INT, v DECIMAL(76, 2)) DUPLICATE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 1";
    assert!(f.error(sql).await.message.contains("DecimalV3 with precision 76"));
    f.run("SET enable_decimal256 = true").await;
    f.run(sql).await;
    let error = f.error("DELETE FROM w WHERE nope = 1").await;
    assert_eq!(error.code, 1054);
}

#[tokio::test]
async fn states_have_their_own_aggregations() {
    let mut f = Fixture::with_database().await;
    for (column, text) in [
        ("b BITMAP SUM", "Aggregate type SUM is not compatible with primitive type bitmap"),
        ("b INT BITMAP_UNION", "Aggregate type BITMAP_UNION is not compatible with primitive type int"),
        ("b INT DEFAULT BITMAP_EMPTY", "cannot use bitmap_empty as the default value"),
    ] {
        let sql = format!("CREATE TABLE x (k INT, {column}) AGGREGATE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 1");
        assert!(f.error(&sql).await.message.contains(text), "{column}");
    }
}

#[tokio::test]
async fn flexible_rows_bring_columns_of_their_own() {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Int8Array, Int32Array, ListArray, RecordBatch, StringArray};
    use arrow::datatypes::Int32Type;

    use crate::engine::{LoadSpec, UpdateMode};

    let mut f = Fixture::with_database().await;
    f.run(
        "CREATE TABLE p (k INT, a INT, b STRING DEFAULT 'none') UNIQUE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 1 \
         PROPERTIES('changelog.enable'='true')",
    )
    .await;
    f.run("INSERT INTO p VALUES (1, 1, 'x'), (2, 2, 'y'), (3, 3, 'z')").await;
    let list: Vec<String> =
        ["k", "a", "b", "__DORIS_DELETE_SIGN__", "__DORIS_SKIP_BITMAP_COL__"].map(str::to_owned).to_vec();
    let spec = || LoadSpec {
        db: "d".into(),
        table: "p".into(),
        columns: Some(list.clone()),
        update_mode: UpdateMode::FlexibleColumns,
        ..LoadSpec::default()
    };
    let refused = f.engine.begin_load(spec()).unwrap_err().to_string();
    assert!(refused.contains("skip bitmap hidden column"), "{refused}");
    f.run("ALTER TABLE p ENABLE FEATURE \"UPDATE_FLEXIBLE_COLUMNS\"").await;
    let txn = f.engine.begin_load(spec()).unwrap();
    let skips = ListArray::from_iter_primitive::<Int32Type, _, _>([
        Some(vec![Some(2)]),
        Some(vec![Some(1)]),
        Some(vec![Some(1), Some(2)]),
        Some(vec![Some(2)]),
        Some(vec![Some(1), Some(2)]),
        Some(vec![Some(2)]),
    ]);
    let schema = f.engine.table_meta("d", "p").unwrap().load_schema(Some(&list)).unwrap();
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int32Array::from(vec![1, 1, 2, 4, 3, 3])),
        Arc::new(Int32Array::from(vec![Some(10), None, None, Some(40), None, Some(33)])),
        Arc::new(StringArray::from(vec![None, Some("xx"), None, None, None, None])),
        Arc::new(Int8Array::from(vec![0, 0, 1, 0, 1, 0])),
        Arc::new(skips),
    ];
    f.engine.write_load(&txn, RecordBatch::try_new(schema, columns).unwrap()).unwrap();
    f.engine.finish_load(txn, false).unwrap();
    assert_eq!(f.sorted("SELECT * FROM p").await, ["1|10|xx", "3|33|none", "4|40|none"]);
    // Delete and write of one key in one batch are one update.
    let sql = "SELECT k, __DORIS_CHANGELOG_OP__ FROM p@incr('incrementType'='DETAIL') WHERE k = 3";
    assert_eq!(f.sorted(sql).await, ["3|0", "3|2", "3|3"]);
}

#[tokio::test]
async fn values_may_be_states() {
    let mut f = Fixture::with_database().await;
    f.run(
        "CREATE TABLE d.s (id INT, u BITMAP BITMAP_UNION, h HLL HLL_UNION) AGGREGATE KEY(id) DISTRIBUTED BY HASH(id) \
         BUCKETS 1",
    )
    .await;
    f.run("INSERT INTO d.s VALUES (1, to_bitmap(5), hll_hash('a')), (1, bitmap_from_string('6,7'), hll_hash('b'))")
        .await;
    f.run("INSERT INTO d.s VALUES (2, bitmap_empty(), hll_empty())").await;
    let rows = f.rows("SELECT id, bitmap_to_string(u), hll_cardinality(h) FROM d.s ORDER BY id").await;
    assert_eq!(rows, ["1|5,6,7|2", "2||0"]);
}
