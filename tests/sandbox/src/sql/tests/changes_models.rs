//! Changes of tables with partitions, sequences, partial updates, and of schemas that change.

use super::Fixture;

const ON: &str = "PROPERTIES('changelog.enable'='true', 'changelog.need_historical_value'='true'";

async fn partitioned() -> Fixture {
    let mut f = Fixture::with_database().await;
    f.run(&format!(
        "CREATE TABLE p (k INT, v INT) UNIQUE KEY(k) \
         PARTITION BY RANGE(k) (PARTITION p1 VALUES LESS THAN ('10'), PARTITION p2 VALUES LESS THAN ('20')) \
         DISTRIBUTED BY HASH(k) BUCKETS 2 {ON})"
    ))
    .await;
    f
}

const DETAIL: &str = "p@incr('incrementType'='DETAIL')";

#[tokio::test]
async fn windows_read_partitions_and_lose_those_that_are_gone() {
    let mut f = partitioned().await;
    f.run("INSERT INTO p VALUES (1,1),(2,2),(11,1)").await;
    f.clock.advance(1000);
    f.run("UPDATE p SET v = 9 WHERE k IN (1, 11)").await;
    assert_eq!(f.rows(&format!("SELECT k FROM {DETAIL}")).await.len(), 7);
    assert_eq!(f.sorted(&format!("SELECT k, v FROM {DETAIL} PARTITION (p2) x")).await, ["11|1", "11|1", "11|9"]);
    assert_eq!(f.sorted(&format!("SELECT k FROM {DETAIL} PARTITIONS (p1, p2)")).await.len(), 7);
    assert_eq!(
        f.error(&format!("SELECT k FROM {DETAIL} PARTITION (p7)")).await.text(),
        "Partition: p7 is not exists on table p"
    );
    assert_eq!(f.rows("SELECT count(*) FROM changelog('table'='p', 'partition'='p2')").await, ["2"]);
    // The past is told by partition too.
    assert_eq!(f.sorted("SELECT * FROM p FOR TIME AS OF '2024-01-01 00:00:01'").await, ["11|1", "1|1", "2|2"]);
    assert_eq!(f.rows("SELECT * FROM p FOR TIME AS OF '2024-01-01 00:00:01' PARTITION (p2)").await, ["11|1"]);
    f.run("TRUNCATE TABLE p PARTITION (p1)").await;
    assert_eq!(f.sorted(&format!("SELECT k, v FROM {DETAIL}")).await, ["11|1", "11|1", "11|9"]);
    assert_eq!(f.rows("SELECT * FROM p FOR TIME AS OF '2024-01-01 00:00:01'").await, ["11|1"]);
    f.run("INSERT INTO p VALUES (3,3); ALTER TABLE p DROP PARTITION p2; ALTER TABLE p ADD PARTITION p3 VALUES LESS THAN ('30')").await;
    f.run("INSERT INTO p VALUES (25,25)").await;
    let rows = format!("SELECT k, v, __DORIS_CHANGELOG_OP__ FROM {DETAIL}");
    assert_eq!(f.sorted(&rows).await, ["25|25|0", "3|3|0"]);
    f.run("TRUNCATE TABLE p").await;
    assert!(f.rows(&rows).await.is_empty());
}

#[tokio::test]
async fn streams_are_consumed_by_partition() {
    let mut f = partitioned().await;
    f.run("CREATE TABLE target (k INT, v INT) UNIQUE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 1").await;
    f.run("INSERT INTO p VALUES (1,1); CREATE STREAM s ON TABLE p; INSERT INTO p VALUES (2,2),(11,11)").await;
    assert_eq!(f.sorted("SELECT * FROM s").await, ["11|11", "2|2"]);
    assert_eq!(f.rows("SELECT * FROM s PARTITION (p2)").await, ["11|11"]);
    f.run("INSERT INTO target SELECT k, v FROM s PARTITION (p2)").await;
    assert_eq!(f.rows("SELECT * FROM s").await, ["2|2"]);
    assert_eq!(f.sorted("SELECT k FROM s@snapshot()").await, ["1", "11"]);
    // A partition younger than the stream is told from its beginning; a truncated one is such.
    f.run("ALTER TABLE p ADD PARTITION p3 VALUES LESS THAN ('30'); INSERT INTO p VALUES (25,25)").await;
    assert_eq!(f.sorted("SELECT * FROM s").await, ["25|25", "2|2"]);
    f.run("TRUNCATE TABLE p PARTITION (p2); INSERT INTO p VALUES (12,12)").await;
    assert_eq!(f.sorted("SELECT * FROM s").await, ["12|12", "25|25", "2|2"]);
    let units =
        "SELECT UNIT, CONSUMPTION_STATUS = 'N/A', LAG FROM information_schema.table_stream_consumption ORDER BY UNIT";
    assert_eq!(f.rows(units).await[1..], ["p2|1|N/A", "p3|1|N/A"]);
}

#[tokio::test]
async fn a_write_with_a_lower_sequence_leaves_no_record() {
    let mut f = Fixture::with_database().await;
    f.run(&format!(
        "CREATE TABLE q (k INT, v STRING, s INT) UNIQUE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 1 {ON}, \
         'function_column.sequence_col'='s')"
    ))
    .await;
    f.run("INSERT INTO q VALUES (1,'a',5); INSERT INTO q VALUES (1,'late',4); INSERT INTO q VALUES (1,'b',5)").await;
    let sql = "SELECT v, __DORIS_CHANGELOG_OP__ AS op FROM q@incr('incrementType'='DETAIL') \
               ORDER BY __DORIS_CHANGELOG_TSO__, __DORIS_CHANGELOG_LSN__, op";
    assert_eq!(f.rows(sql).await, ["a|0", "a|2", "b|3"]);
    f.run("INSERT INTO q (k, v, s, __DORIS_DELETE_SIGN__) VALUES (1,'x',3,1)").await;
    assert_eq!(f.rows(sql).await.len(), 3);
}

#[tokio::test]
async fn a_partial_update_records_the_merged_row() {
    let mut f = Fixture::with_database().await;
    f.run(&format!(
        "CREATE TABLE q (k INT, v STRING, n INT DEFAULT '7') UNIQUE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 1 {ON})"
    ))
    .await;
    f.run("INSERT INTO q VALUES (1,'a',1); SET enable_unique_key_partial_update = true; INSERT INTO q (k, v) VALUES (1,'b')").await;
    let sql = "SELECT v, n, __DORIS_CHANGELOG_OP__ AS op FROM q@incr('incrementType'='DETAIL') \
               ORDER BY __DORIS_CHANGELOG_TSO__, __DORIS_CHANGELOG_LSN__, op";
    assert_eq!(f.rows(sql).await, ["a|1|0", "a|1|2", "b|1|3"]);
}

#[tokio::test]
async fn models_without_records_are_refused() {
    let mut f = Fixture::with_database().await;
    for (columns, keys, text) in [
        ("k INT, v INT SUM", "AGGREGATE KEY(k)", "Only duplicate and mow table model support changelog"),
        (
            "k BIGINT NOT NULL AUTO_INCREMENT, v INT",
            "UNIQUE KEY(k)",
            "auto increment column k is not supported on a table with changelog",
        ),
        ("k INT, v VARIANT", "UNIQUE KEY(k)", "VARIANT column v is not supported on a table with changelog"),
    ] {
        let sql = format!(
            "CREATE TABLE x ({columns}) {keys} DISTRIBUTED BY HASH(k) BUCKETS 1 PROPERTIES('changelog.enable'='true')"
        );
        assert_eq!(f.error(&sql).await.text(), text);
    }
    f.run("CREATE TABLE agg (k INT, v INT SUM) AGGREGATE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 1").await;
    f.run("CREATE TABLE mor (k INT, v INT) UNIQUE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 1 PROPERTIES('enable_unique_key_merge_on_write'='false')").await;
    for table in ["agg", "mor"] {
        assert_eq!(
            f.error(&format!("SELECT * FROM {table}@incr()")).await.text(),
            "INCR query requires ROW binlog enabled on base table."
        );
        assert_eq!(
            f.error(&format!("SELECT * FROM {table} FOR VERSION AS OF 1")).await.text(),
            "FOR VERSION/TIME AS OF is only supported on duplicate or unique merge-on-write tables"
        );
    }
}

#[tokio::test]
async fn records_follow_the_columns_of_the_table() {
    let mut f = Fixture::with_database().await;
    f.run(&format!("CREATE TABLE q (k INT, v STRING) UNIQUE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 1 {ON})")).await;
    f.run("INSERT INTO q VALUES (1,'a'),(2,'b')").await;
    f.clock.advance(1000);
    f.run("ALTER TABLE q ADD COLUMN n INT DEFAULT '7'; INSERT INTO q VALUES (1,'c',3); DELETE FROM q WHERE k = 2")
        .await;
    f.clock.advance(1000);
    let sql = "SELECT k, v, n, __DORIS_CHANGELOG_OP__ AS op FROM q@incr('startTimestamp'='2024-01-01 00:00:01', \
               'incrementType'='DETAIL') ORDER BY __DORIS_CHANGELOG_TSO__, __DORIS_CHANGELOG_LSN__, op";
    assert_eq!(f.rows(sql).await, ["1|a|7|2", "1|c|3|3", "2|b|7|1"]);
    let past = "SELECT * FROM q FOR TIME AS OF '2024-01-01 00:00:01'";
    assert_eq!(f.sorted(past).await, ["1|a|7", "2|b|7"]);
    f.run("ALTER TABLE q DROP COLUMN v").await;
    assert!(f.error(sql).await.text().contains("Unknown column 'v'"));
    assert_eq!(f.rows("SELECT * FROM q@incr('incrementType'='DETAIL') LIMIT 1").await[0].split('|').count(), 2);
    // A column of the same name is another column.
    f.run("ALTER TABLE q ADD COLUMN v STRING").await;
    assert_eq!(f.sorted("SELECT k, v FROM q FOR TIME AS OF '2024-01-01 00:00:01'").await, ["1|NULL", "2|NULL"]);
    for alter in ["MODIFY COLUMN n BIGINT", "RENAME COLUMN n m", "ORDER BY (k, n, v)"] {
        let error = f.error(&format!("ALTER TABLE q {alter}")).await;
        assert_eq!(error.text(), "Not allowed to perform current operation on Table With changelog", "{alter}");
    }
    f.run("ALTER TABLE q MODIFY COLUMN n COMMENT 'kept'; ALTER TABLE q SET ('changelog.ttl_seconds'='1')").await;
    assert!(f.rows("SHOW CREATE TABLE q").await[0].contains("\"changelog.ttl_seconds\" = \"1\""));
    f.clock.advance(5000);
    assert!(f.rows("SELECT k FROM q@incr('incrementType'='DETAIL')").await.is_empty());
    assert_eq!(f.error(past).await.text(), "Changelog offset has expired according to changelog.ttl_seconds");
    // Longer again, what is still there is told again.
    f.run("ALTER TABLE q SET ('changelog.ttl_seconds'='86400')").await;
    assert_eq!(f.rows("SELECT k FROM q@incr('incrementType'='DETAIL')").await.len(), 5);
    f.run("CREATE STREAM s ON TABLE q; INSERT INTO q (k, n) VALUES (5, 5); ALTER TABLE q RENAME r").await;
    assert_eq!(f.rows("SELECT k FROM s").await, ["5"]);
    for wrong in ["'changelog.enable'='false'", "'changelog.need_historical_value'='false'"] {
        f.error(&format!("ALTER TABLE r SET ({wrong})")).await;
    }
}
