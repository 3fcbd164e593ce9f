//! Loads into tables whose model says what rows mean: partial updates, sequences, partitions, aggregates, sketches.

use super::*;

async fn with(sql: &str) -> Sandbox {
    let s = sandbox().await;
    s.execute(sql).await.expect("tables");
    s
}

#[tokio::test]
async fn a_partial_update_keeps_what_it_does_not_bring() {
    let s = sandbox().await;
    load(&s, "uniq", &[CSV], "1,a,1\n2,b,2\n").await;
    let columns = ("columns", "id, v");
    let answer = load(&s, "uniq", &[CSV, columns, ("partial_columns", "true")], "1,x\n3,y\n").await;
    assert_eq!((answer["Status"].as_str(), counts(&answer)), (Some("Success"), [2, 2, 0, 0]), "{answer}");
    assert_eq!(query(&s, "SELECT * FROM d.uniq ORDER BY id").await, ["1|x|1", "2|b|2", "3|y|7"]);
    let mode = ("unique_key_update_mode", "UPDATE_FIXED_COLUMNS");
    let only_known = ("partial_update_new_key_behavior", "ERROR");
    let answer = load(&s, "uniq", &[CSV, mode, only_known, ("columns", "id, n")], "1,10\n9,9\n").await;
    assert_eq!(answer["Status"], "Fail", "{answer}");
    let answer = load(&s, "uniq", &[CSV, mode, only_known, ("columns", "id, n")], "1,10\n").await;
    assert_eq!(answer["Status"], "Success", "{answer}");
    assert_eq!(query(&s, "SELECT * FROM d.uniq ORDER BY id").await, ["1|x|10", "2|b|2", "3|y|7"]);
}

#[tokio::test]
async fn rows_of_a_flexible_update_bring_columns_of_their_own() {
    let s = with(
        r#"CREATE TABLE d.flex (id INT NOT NULL, v VARCHAR(5) NULL, n BIGINT NOT NULL DEFAULT "7", w INT NULL)
           UNIQUE KEY(id) DISTRIBUTED BY HASH(id) BUCKETS 1
           PROPERTIES ("replication_num" = "1", "enable_unique_key_merge_on_write" = "true",
                       "enable_unique_key_skip_bitmap_column" = "true")"#,
    )
    .await;
    load(&s, "flex", &[CSV], "1,a,1,1\n2,b,2,2\n3,c,3,3\n").await;
    let flexible =
        [("format", "json"), ("unique_key_update_mode", "UPDATE_FLEXIBLE_COLUMNS"), ("max_filter_ratio", "0.2")];
    let body = r#"{"id":1,"v":"x"}
{"id":2,"w":null,"n":20}
{"id":3,"__DORIS_DELETE_SIGN__":1}
{"id":4,"w":4}
{"v":"no key"}"#;
    let answer = load(&s, "flex", &flexible, body).await;
    assert_eq!((answer["Status"].as_str(), counts(&answer)), (Some("Success"), [5, 4, 1, 0]), "{answer}");
    assert!(error_log(&answer).await.contains("missing key column: [id]"));
    assert_eq!(query(&s, "SELECT * FROM d.flex ORDER BY id").await, ["1|x|1|1", "2|b|20|NULL", "4|NULL|7|4"]);
    let answer = load(&s, "uniq", &flexible, body).await;
    assert!(message(&answer).contains("Flexible partial update can only support table with skip bitmap hidden column. But table uniq doesn't have it."), "{answer}");
}

#[tokio::test]
async fn the_greater_sequence_wins() {
    let s = with(
        r#"CREATE TABLE d.mapped (id INT NOT NULL, v STRING NULL, ts INT NULL) UNIQUE KEY(id)
           DISTRIBUTED BY HASH(id) BUCKETS 1
           PROPERTIES ("replication_num" = "1", "function_column.sequence_col" = "ts");
           CREATE TABLE d.typed (id INT NOT NULL, v STRING NULL) UNIQUE KEY(id)
           DISTRIBUTED BY HASH(id) BUCKETS 1
           PROPERTIES ("replication_num" = "1", "function_column.sequence_type" = "int");"#,
    )
    .await;
    let answer = load(&s, "mapped", &[CSV], "1,new,5\n1,old,4\n").await;
    assert_eq!(answer["Status"], "Success", "{answer}");
    assert_eq!(query(&s, "SELECT id, v FROM d.mapped").await, ["1|new"]);
    let missing = "need to specify the sequence column";
    let answer = load(&s, "mapped", &[CSV, ("columns", "id, v")], "1,x\n").await;
    assert!(message(&answer).ends_with(&format!("Table mapped has sequence column, {missing}")), "{answer}");
    let answer = load(&s, "typed", &[CSV], "1,x\n").await;
    assert!(message(&answer).ends_with(&format!("Table typed has sequence column, {missing}")), "{answer}");
    // The sequence of the second form is no column of the table.
    let header = ("function_column.sequence_col", "seq");
    let answer = load(&s, "typed", &[CSV, header, ("columns", "id, v, seq")], "1,new,5\n1,old,4\n2,b,1\n").await;
    assert_eq!(answer["Status"], "Success", "{answer}");
    let answer = load(&s, "typed", &[CSV, header, ("columns", "id, v, s, seq = s - 1")], "1,late,5\n2,c,2\n").await;
    assert_eq!(answer["Status"], "Success", "{answer}");
    let hidden = [("format", "json"), ("hidden_columns", "__DORIS_SEQUENCE_COL__")];
    let answer = load(&s, "typed", &hidden, r#"{"id":2,"v":"d","__DORIS_SEQUENCE_COL__":0}"#).await;
    assert_eq!(answer["Status"], "Success", "{answer}");
    assert_eq!(query(&s, "SELECT id, v FROM d.typed ORDER BY id").await, ["1|new", "2|c"]);
}

#[tokio::test]
async fn rows_outside_of_the_partitions_are_filtered_with_their_text() {
    let s = with(
        r#"CREATE TABLE d.parts (id INT NOT NULL, v STRING NULL) DUPLICATE KEY(id)
           PARTITION BY RANGE(id) (PARTITION p1 VALUES LESS THAN ("10"), PARTITION p2 VALUES LESS THAN ("20"))
           DISTRIBUTED BY HASH(id) BUCKETS 1 PROPERTIES ("replication_num" = "1")"#,
    )
    .await;
    let ratio = ("max_filter_ratio", "0.5");
    let answer = load(&s, "parts", &[CSV, ratio], "1,a\n99,nowhere\n12,b\n").await;
    assert_eq!((answer["Status"].as_str(), counts(&answer)), (Some("Success"), [3, 2, 1, 0]), "{answer}");
    assert!(error_log(&answer).await.contains("src line [99,nowhere]"), "{answer}");
    let answer = load(&s, "parts", &[CSV, ratio, ("partitions", "p1")], "2,c\n13,d\n").await;
    assert_eq!((answer["Status"].as_str(), counts(&answer)), (Some("Success"), [2, 1, 1, 0]), "{answer}");
    let answer = load(&s, "parts", &[CSV, ("partitions", "p1,p9")], "2,c\n").await;
    assert!(message(&answer).contains("p9"), "{answer}");
    assert_eq!(query(&s, "SELECT id FROM d.parts ORDER BY id").await, ["1", "2", "12"]);
}

#[tokio::test]
async fn negative_loads_take_sums_back() {
    let s = with(
        r#"CREATE TABLE d.sums (k INT NOT NULL, n BIGINT SUM NULL) AGGREGATE KEY(k)
           DISTRIBUTED BY HASH(k) BUCKETS 1 PROPERTIES ("replication_num" = "1");
           CREATE TABLE d.maxima (k INT NOT NULL, n BIGINT MAX NULL) AGGREGATE KEY(k)
           DISTRIBUTED BY HASH(k) BUCKETS 1 PROPERTIES ("replication_num" = "1");"#,
    )
    .await;
    load(&s, "sums", &[CSV], "1,10\n1,5\n2,1\n").await;
    let answer = load(&s, "sums", &[CSV, ("negative", "true")], "1,4\n").await;
    assert_eq!(answer["Status"], "Success", "{answer}");
    assert_eq!(query(&s, "SELECT * FROM d.sums ORDER BY k").await, ["1|11", "2|1"]);
    let answer = load(&s, "maxima", &[CSV, ("negative", "true")], "1,4\n").await;
    assert!(message(&answer).ends_with("Column is not SUM AggregateType. column:n"), "{answer}");
    let answer = load(&s, "sums", &[CSV, ("merge_type", "DELETE")], "1,4\n").await;
    assert!(message(&answer).ends_with("load by MERGE or DELETE is only supported in unique tables."), "{answer}");
}

#[tokio::test]
async fn columns_of_sketches_are_computed() {
    let s = with(
        r#"CREATE TABLE d.visits (page INT NOT NULL, users BITMAP BITMAP_UNION) AGGREGATE KEY(page)
           DISTRIBUTED BY HASH(page) BUCKETS 1 PROPERTIES ("replication_num" = "1")"#,
    )
    .await;
    for columns in ["page, users", "page, u, users = u"] {
        let answer = load(&s, "visits", &[CSV, ("columns", columns)], "1,7\n").await;
        assert!(
            message(&answer).ends_with("bitmap column users require the function return type is BITMAP"),
            "{answer}"
        );
    }
}
