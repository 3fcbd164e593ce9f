//! DDL, DML, SHOW.

use super::Fixture;

#[tokio::test]
async fn unique_table_takes_inserts_updates_and_deletes() {
    let mut f = Fixture::with_database().await;
    f.run("CREATE TABLE u (id BIGINT NOT NULL, name VARCHAR(20), n INT DEFAULT '7') UNIQUE KEY(id) DISTRIBUTED BY HASH(id) BUCKETS 4").await;
    assert_eq!(f.affected("INSERT INTO u VALUES (1, 'a', 1), (2, 'b', 2), (3, 'c', 3)").await, 3);
    f.run("INSERT INTO u (id, name) VALUES (2, 'B'), (4, 'd'), (4, 'D')").await;
    assert_eq!(f.sorted("SELECT * FROM u").await, ["1|a|1", "2|B|7", "3|c|3", "4|D|7"]);
    assert_eq!(f.affected("UPDATE u SET n = n + 10, name = concat(name, '!') WHERE id <= 2").await, 2);
    assert_eq!(f.affected("DELETE FROM u WHERE id = 3").await, 1);
    f.run("INSERT INTO u (id, name, n, __DORIS_DELETE_SIGN__) VALUES (4, 'x', 0, 1), (5, 'e', 5, 0)").await;
    assert_eq!(f.sorted("SELECT * FROM u").await, ["1|a!|11", "2|B!|17", "5|e|5"]);
    assert_eq!(f.rows("SELECT count(*) FROM u").await, ["3"]);
    f.run("SET show_hidden_columns = true").await;
    let rows = f.sorted("SELECT id, __DORIS_DELETE_SIGN__ FROM u").await;
    assert_eq!(rows, ["1|0", "2|0", "3|1", "4|1", "5|0"]);
}

#[tokio::test]
async fn duplicate_table_keeps_all_rows_and_deletes_by_predicate() {
    let mut f = Fixture::with_database().await;
    f.run("CREATE TABLE t (k INT, v STRING) DUPLICATE KEY(k) DISTRIBUTED BY RANDOM BUCKETS 2 PROPERTIES('replication_num'='1')").await;
    f.run("INSERT INTO t VALUES (1, 'a'), (1, 'a'); INSERT INTO t SELECT k + 1, v FROM t").await;
    assert_eq!(f.sorted("SELECT * FROM t").await, ["1|a", "1|a", "2|a", "2|a"]);
    // The condition is stored, its rows are not counted.
    assert_eq!(f.affected("DELETE FROM t WHERE k = 2").await, 0);
    assert_eq!(f.sorted("SELECT * FROM t").await, ["1|a", "1|a"]);
    f.run("TRUNCATE TABLE t").await;
    assert!(f.rows("SELECT * FROM t").await.is_empty());
}

#[tokio::test]
async fn tables_without_a_unique_key_store_simple_conditions_only() {
    let mut f = Fixture::with_database().await;
    f.run("CREATE TABLE t (k INT, v STRING, r DOUBLE) DUPLICATE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 1").await;
    f.run("INSERT INTO t VALUES (1, 'a', 1), (2, NULL, 2), (3, 'c', 3), (4, 'd', 4), (5, 'e', 5)").await;
    for condition in ["k = 1 OR v = 'c'", "v LIKE 'a%'", "k + 1 = 2", "k = r", "r = 1", "NOT (k = 1 AND v = 'a')"] {
        let error = f.error(&format!("DELETE FROM t WHERE {condition}")).await;
        assert_eq!(error.text(), "delete command on with using clause only supports unique key model", "{condition}");
    }
    for condition in
        ["(k = 1) AND v IS NOT NULL", "v IS NULL", "t.k IN (3, 30)", "4 <= k AND NOT (v <> concat('d', ''))"]
    {
        f.run(&format!("DELETE FROM t WHERE {condition}")).await;
    }
    assert_eq!(f.rows("SELECT k FROM t").await, ["5"]);
    f.run("DELETE FROM t WHERE 1 = 0; DELETE FROM t WHERE k BETWEEN 5 AND 6").await;
    assert!(f.rows("SELECT k FROM t").await.is_empty());
}

#[tokio::test]
async fn tablets_part_a_table_without_overlap() {
    let mut f = Fixture::with_database().await;
    f.run("CREATE TABLE t (k INT, v STRING) UNIQUE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 3").await;
    let values: Vec<String> = (0..50).map(|i| format!("({i}, 'v{i}')")).collect();
    f.run(&format!("INSERT INTO t VALUES {}", values.join(","))).await;
    let tablets = f.engine.tablets("d", "t").unwrap();
    assert_eq!(tablets.len(), 3);
    let mut all = Vec::new();
    for tablet in &tablets {
        let rows = f.rows(&format!("SELECT k FROM `d`.`t` TABLET({})", tablet.id)).await;
        assert_eq!(rows.len() as u64, tablet.rows);
        all.extend(rows);
    }
    all.sort_by_key(|k| k.parse::<i32>().unwrap());
    assert_eq!(all, (0..50).map(|i| i.to_string()).collect::<Vec<_>>());
    let both =
        format!("SELECT x.k FROM t PARTITION(t) TABLET({},{}) AS x WHERE x.k >= 0", tablets[0].id, tablets[1].id);
    assert_eq!(f.rows(&both).await.len() as u64, tablets[0].rows + tablets[1].rows);
}

#[tokio::test]
async fn every_type_is_stored_and_printed() {
    let mut f = Fixture::with_database().await;
    f.run("SET enable_decimal256 = true").await;
    f.run(
        "CREATE TABLE t (k INT, b BOOLEAN, ti TINYINT, si SMALLINT, bi BIGINT, li LARGEINT, fl FLOAT, db DOUBLE, \
         d DECIMAL(10,2), big DECIMAL(76,3), c CHAR(3), s STRING, dt DATE, t6 DATETIME(6), j JSON, a ARRAY<INT>, \
         m MAP<STRING,INT>, st STRUCT<x:INT,y:STRING>, ip IPV4, ip6 IPV6) DUPLICATE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 1",
    )
    .await;
    f.run(
        "INSERT INTO t VALUES (1, true, -128, 32767, 9223372036854775807, -170141183460469231731687303715884105728, 1.5, \
         1e300, 12.345, '123456789012345678901234567890123456789012345678901234567890.125', 'abc', 'é', '2024-02-29', \
         '2024-02-29 01:02:03.123456', '{\"a\":1}', [1,NULL,3], {'k':1}, named_struct('x', 1, 'y', 'z'), '10.0.0.1', '::1')",
    )
    .await;
    assert_eq!(
        f.rows("SELECT * FROM t").await,
        ["1|1|-128|32767|9223372036854775807|-170141183460469231731687303715884105728|1.5|1e+300|12.35|\
          123456789012345678901234567890123456789012345678901234567890.125|abc|é|2024-02-29|2024-02-29 01:02:03.123456|\
          {\"a\":1}|[1, null, 3]|{\"k\":1}|{\"x\":1, \"y\":\"z\"}|10.0.0.1|::1"]
    );
    f.run("INSERT INTO t (k) VALUES (2)").await;
    assert_eq!(f.rows("SELECT count(*) FROM t WHERE li IS NULL AND a IS NULL AND st IS NULL").await, ["1"]);
    assert_eq!(f.rows("SELECT k FROM t WHERE li < 0").await, ["1"]);
}

#[tokio::test]
async fn show_and_describe_tell_the_table() {
    let mut f = Fixture::with_database().await;
    f.run("CREATE TABLE t (k INT NOT NULL COMMENT 'the key', v STRING, a ARRAY<DECIMAL(10,2)>, n INT DEFAULT '3') UNIQUE KEY(k) COMMENT 'c' DISTRIBUTED BY HASH(k) BUCKETS 2").await;
    assert_eq!(f.rows("SHOW TABLES").await, ["t"]);
    assert_eq!(f.rows("SHOW FULL TABLES LIKE 't%'").await, ["t|BASE TABLE|NONE"]);
    assert_eq!(f.rows("SHOW DATABASES LIKE 'd'").await, ["d"]);
    assert_eq!(
        f.rows("DESC t").await,
        [
            "k|int|No|true|NULL|",
            "v|text|Yes|false|NULL|NONE",
            "a|array<decimal(10,2)>|Yes|false|NULL|NONE",
            "n|int|Yes|false|3|NONE"
        ]
    );
    assert_eq!(f.rows("SHOW COLUMNS FROM t FROM d LIKE 'k'").await, ["k|int|NO|YES|NULL|"]);
    let created = f.rows("SHOW CREATE TABLE t").await.remove(0);
    for part in [
        "`k` int NOT NULL COMMENT \"the key\"",
        "UNIQUE KEY(`k`)",
        "DISTRIBUTED BY HASH(`k`) BUCKETS 2",
        "\"enable_unique_key_merge_on_write\" = \"true\"",
    ] {
        assert!(created.contains(part), "{part} not in {created}");
    }
    let again = created.split_once('|').unwrap().1.replace("`t`", "`t2`");
    f.run(&again).await;
    assert_eq!(f.rows("SHOW TABLES").await, ["t", "t2"]);
    assert_eq!(
        f.rows("SELECT COLUMN_NAME, ORDINAL_POSITION, IS_NULLABLE, DATA_TYPE, COLUMN_TYPE, COLUMN_KEY FROM information_schema.columns WHERE table_schema = 'd' AND TABLE_NAME = 't' ORDER BY ORDINAL_POSITION").await,
        ["k|1|NO|int|int(11)|UNI", "v|2|YES|varchar|string|", "a|3|YES|array|array<decimalv3(10, 2)>|", "n|4|YES|int|int(11)|"]
    );
    assert_eq!(
        f.rows("SELECT TABLE_TYPE, ENGINE FROM information_schema.tables WHERE TABLE_NAME = 't'").await,
        ["BASE TABLE|Doris"]
    );
    assert_eq!(f.rows("SHOW PARTITIONS FROM t").await.len(), 1);
    assert_eq!(f.rows("SHOW TABLETS FROM t").await.len(), 2);
    assert_eq!(
        f.rows("SELECT CURRENT_TSO_PHYSICAL_TIME FROM information_schema.tso_status").await,
        [super::START_MS.to_string()]
    );
}

#[tokio::test]
async fn variables_are_kept_per_session() {
    let mut f = Fixture::with_database().await;
    f.run("SET time_zone = '+08:00', @@session.query_timeout = 5; SET NAMES utf8mb4; SET autocommit=1").await;
    assert_eq!(f.rows("SELECT @@time_zone, @@query_timeout").await, ["+08:00|5"]);
    assert_eq!(f.rows("SHOW VARIABLES LIKE 'query_time%'").await, ["query_timeout|5|900|1"]);
    assert_eq!(f.rows("SELECT from_unixtime(0)").await, ["1970-01-01 08:00:00"]);
    assert_eq!(f.rows("SELECT /*+ SET_VAR(time_zone='UTC') */ from_unixtime(0)").await, ["1970-01-01 00:00:00"]);
    assert_eq!(f.session.variable("time_zone").as_deref(), Some("+08:00"));
    let mut other = f.engine.open_session("root", "127.0.0.1", crate::engine::Protocol::Http);
    assert_eq!(other.variable("query_timeout").as_deref(), Some("900"));
    other.execute("SET query_timeout = DEFAULT").await.unwrap();
}

#[tokio::test]
async fn insert_with_label_is_exactly_once() {
    let mut f = Fixture::with_database().await;
    f.run("CREATE TABLE t (k INT) DUPLICATE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 1").await;
    f.run("INSERT INTO t WITH LABEL l1 (k) VALUES (1)").await;
    assert_eq!(
        f.error("INSERT INTO t WITH LABEL l1 VALUES (2)").await.text(),
        "Label [l1] has already been used, relate to txn [1001], status [VISIBLE]."
    );
    assert_eq!(f.rows("SELECT * FROM t").await, ["1"]);
    assert_eq!(f.rows("SHOW LAST INSERT").await, ["1001|l1|d|t|VISIBLE|1|0"]);
    let shown = f.rows("SHOW TRANSACTION WHERE label = 'l1'").await.remove(0);
    assert!(shown.starts_with("1001|l1|FE: 127.0.0.1|VISIBLE|INSERT_STREAMING|2024-01-01 00:00:00|"), "{shown}");
    // A refused row leaves the label free.
    f.error("INSERT INTO t WITH LABEL l2 VALUES ('x')").await;
    f.run("INSERT INTO t WITH LABEL l2 VALUES (3)").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_write_and_read_in_parallel() {
    let mut f = Fixture::with_database().await;
    f.run("CREATE TABLE t (k INT, v INT) UNIQUE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 4 PROPERTIES('changelog.enable'='true')").await;
    f.run("INSERT INTO t VALUES (0, 0)").await;
    let mut tasks = tokio::task::JoinSet::new();
    for worker in 0..8 {
        let engine = std::sync::Arc::clone(&f.engine);
        tasks.spawn(async move {
            let mut session = engine.open_session("root", "127.0.0.1", crate::engine::Protocol::Mysql);
            for i in 1..=5 {
                let key = worker * 100 + i;
                session
                    .execute(&format!("INSERT INTO d.t VALUES ({key}, {i}); UPDATE d.t SET v = v + 1 WHERE k = 0"))
                    .await?;
            }
            Ok::<_, crate::error::SqlError>(())
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap().unwrap();
    }
    // No update was lost, and each is in the changelog once.
    assert_eq!(f.rows("SELECT v FROM t WHERE k = 0").await, ["40"]);
    assert_eq!(f.rows("SELECT count(*) FROM t").await, ["41"]);
    let sql =
        "SELECT __DORIS_CHANGELOG_OP__ AS op, count(*) FROM t@incr('incrementType'='DETAIL') GROUP BY op ORDER BY op";
    assert_eq!(f.rows(sql).await, ["0|41", "2|40", "3|40"]);
}
