use std::time::Duration;

use super::Fixture;
use crate::engine::{Profile, Protocol};
use crate::s3_endpoint::{S3Endpoint, S3Settings};

#[tokio::test]
async fn user_variables_stand_for_their_values() {
    let mut f = Fixture::with_database().await;
    f.run(
        "SET @a = 1 + 2, @B = 'it''s', @c = CAST('2024-01-02' AS DATE), @n = NULL, @m = -5, @d = CAST(1.5 AS DOUBLE)",
    )
    .await;
    assert_eq!(f.rows("SELECT @a, @b, @c, @n, @m, @d, @never").await, ["3|it's|2024-01-02|NULL|-5|1.5|NULL"]);
    assert_eq!(f.rows("SELECT @a * 2 AS x").await, ["6"]);
    f.run("CREATE TABLE t (k INT) DISTRIBUTED BY HASH(k) BUCKETS 1 PROPERTIES (\"replication_num\" = \"1\"); INSERT INTO t VALUES (@a), (4); SET @a := @a + 1").await;
    assert_eq!(f.rows("SELECT k FROM t WHERE k = @a").await, ["4"]);
}

#[tokio::test]
async fn variables_are_checked_and_told() {
    let mut f = Fixture::with_database().await;
    for (sql, code, text) in [
        ("SET enable_profile = maybe", 1231, "Variable 'enable_profile' can't be set to the value of 'maybe'"),
        ("SET batch_size = 'x'", 1232, "Incorrect argument type to variable 'batch_size'"),
        ("SET query_timeout = 0", 1105, "query_timeout can not be set to 0, it must be greater than 0"),
        ("SET sql_mode = 'NONSENSE'", 1231, "Variable 'sql_mode' can't be set to the value of 'NONSENSE'"),
        (
            "SET runtime_filter_mode = 'some'",
            1231,
            "Variable 'runtime_filter_mode' can't be set to the value of 'some'",
        ),
        ("SET version = 'x'", 1238, "Variable 'version' is a read only variable"),
        (
            "SET init_connect = 'x'",
            1229,
            "Variable 'init_connect' is a GLOBAL variable and should be set with SET GLOBAL",
        ),
    ] {
        let error = f.error(sql).await;
        assert_eq!((error.code, error.text()), (code, text), "{sql}");
    }
    let error = f.error("SET query_timout = 1").await;
    assert_eq!(error.code, 1193);
    assert!(
        error.text().starts_with("Unknown system variable 'query_timout',the similar variables are {query_timeout")
    );
    // Nothing of a list is set when one of it is refused.
    f.error("SET batch_size = 7, version = 'x'").await;
    assert_eq!(f.rows("SHOW VARIABLES LIKE 'batch_size'").await, ["batch_size|4064|4064|0"]);
    f.run("SET batch_size = 7, experimental_enable_profile = ON").await;
    assert_eq!(f.rows("SHOW VARIABLES WHERE Variable_name = 'batch_size'").await, ["batch_size|7|4064|1"]);
    assert_eq!(f.rows("SELECT @@enable_profile").await, ["1"]);
    f.run("SET sql_mode = concat(@@sql_mode, ',NO_BACKSLASH_ESCAPES'), batch_size = DEFAULT").await;
    assert_eq!(
        f.rows("SELECT @@sql_mode, @@batch_size, 'a\\b'").await,
        ["ONLY_FULL_GROUP_BY,NO_BACKSLASH_ESCAPES|4064|a\\b"]
    );
    f.run("SET sql_mode = 'PIPES_AS_CONCAT'").await;
    assert_eq!(f.rows("SELECT 'a' || 'b' AS x").await, ["ab"]);
    f.run("UNSET VARIABLE ALL").await;
    assert_eq!(f.rows("SELECT 1 || 0 AS x").await, ["1"]);
    assert_eq!(f.rows("SELECT @@sql_mode").await, ["ONLY_FULL_GROUP_BY"]);
}

#[tokio::test]
async fn global_values_hold_for_new_sessions_and_the_one_that_sets_them() {
    let mut f = Fixture::with_database().await;
    f.run("SET GLOBAL query_timeout = 77, @@global.time_zone = '+05:00'").await;
    assert_eq!(f.rows("SELECT @@query_timeout, @@global.query_timeout, @@time_zone").await, ["77|77|+05:00"]);
    f.session = f.engine.open_session("root", "127.0.0.1", Protocol::Mysql);
    assert_eq!(f.rows("SELECT @@query_timeout").await, ["77"]);
    f.run("SET query_timeout = 5").await;
    assert_eq!(f.rows("SHOW GLOBAL VARIABLES LIKE 'query_timeout'").await, ["query_timeout|77|900|1"]);
    assert_eq!(
        f.rows("SELECT VARIABLE_VALUE FROM information_schema.global_variables WHERE VARIABLE_NAME = 'query_timeout'")
            .await,
        ["77"]
    );
    f.run("CREATE USER u IDENTIFIED BY 'p'").await;
    let mut other = f.engine.open_session("u", "127.0.0.1", Protocol::Mysql);
    assert_eq!(other.execute("SET GLOBAL query_timeout = 1").await.expect_err("denied").code, 1227);
}

#[tokio::test]
async fn a_limit_on_selects_holds_where_none_is_written() {
    let mut f = Fixture::with_database().await;
    f.run("SET sql_select_limit = 2").await;
    assert_eq!(f.rows("SELECT number FROM numbers(\"number\" = \"5\")").await.len(), 2);
    assert_eq!(f.rows("SELECT number FROM numbers(\"number\" = \"5\") LIMIT 4").await.len(), 4);
    assert_eq!(f.rows("SELECT count(*) FROM numbers(\"number\" = \"5\")").await, ["5"]);
}

async fn with_open_load(f: &mut Fixture) -> crate::txn::LoadTxn {
    f.run("CREATE TABLE t (k INT NOT NULL) UNIQUE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 1 PROPERTIES (\"replication_num\" = \"1\", \"changelog.enable\" = \"true\", \"changelog.need_historical_value\" = \"true\"); INSERT INTO t VALUES (1); SET change_visible_timeout_ms = 1000000").await;
    let spec = crate::engine::LoadSpec { db: "d".to_owned(), table: "t".to_owned(), ..Default::default() };
    f.engine.begin_load(spec).expect("load")
}

#[tokio::test]
async fn statements_end_when_their_time_is_over() {
    let mut f = Fixture::with_database().await;
    let s3 = S3Endpoint::start(S3Settings { access_key: None, ..S3Settings::default() }).await.expect("endpoint");
    // The first file tells the columns; the second one never comes.
    s3.put("b", "1.csv", "1\n");
    s3.put("b", "2.csv", "2\n");
    s3.stall("2.csv");
    let from = format!(r#"S3("uri" = "s3://b/*.csv", "s3.endpoint" = "{}", "format" = "csv")"#, s3.address());
    f.run("SET query_timeout = 1, insert_timeout = 1").await;
    let late = f.try_rows(&format!("SELECT * FROM {from}")).await.expect_err("late");
    assert!(late.contains("query is timeout, killed by timeout checker"), "{late}");
    f.run("CREATE TABLE t (k INT) DISTRIBUTED BY HASH(k) BUCKETS 1 PROPERTIES (\"replication_num\" = \"1\")").await;
    let error = f.error(&format!("INSERT INTO t SELECT * FROM {from}")).await;
    assert_eq!((error.code, error.text()), (5024, "Execute timeout"));
    assert_eq!(f.engine.running_transactions(), 0, "its load is aborted");
    assert_eq!(f.rows("SHOW PROCESSLIST").await.len(), 1);
}

#[tokio::test]
async fn processes_are_listed_and_killed() {
    let mut f = Fixture::with_database().await;
    let _open = with_open_load(&mut f).await;
    f.run("CREATE USER u; GRANT SELECT_PRIV ON d.* TO u").await;
    let mut other = f.engine.open_session("u", "10.0.0.9", Protocol::Mysql);
    other.execute("USE d; SET change_visible_timeout_ms = 1000000").await.expect("use");
    let id = other.id();
    let secret = "SELECT * FROM t@incr() -- x\n WHERE 1 = 1";
    let waiting = tokio::spawn(async move {
        let error = other.execute(secret).await.expect_err("killed");
        (error, other)
    });
    let shown = loop {
        let rows = f.rows("SHOW FULL PROCESSLIST WHERE User = 'u'").await;
        if rows.iter().any(|row| row.contains("|Query|")) {
            break rows;
        }
        tokio::task::yield_now().await;
    };
    assert!(shown[0].starts_with(&format!("No|{id}|u|10.0.0.9|")) && shown[0].contains("t@incr()"), "{shown:?}");
    assert_eq!(f.error("KILL 99999").await.text(), "Unknown thread id: 99999");
    f.run(&format!("KILL QUERY {id}")).await;
    let (error, mut other) = tokio::time::timeout(Duration::from_secs(20), waiting).await.expect("ends").expect("task");
    assert_eq!(error.text(), "cancel query by user from 10.0.0.9");
    let own = f.session.id();
    assert_eq!(other.execute(&format!("KILL {own}")).await.expect_err("not the owner").code, 1095);
    let rows = other.execute("SHOW PROCESSLIST").await.expect("rows");
    drop(rows);
    drop(other);
    assert!(f.rows("SHOW PROCESSLIST WHERE User = 'u'").await.is_empty());
}

#[tokio::test]
async fn secrets_are_masked_where_statements_are_shown() {
    for (sql, shown) in [
        ("CREATE USER u IDENTIFIED BY 'hidden'", "CREATE USER u IDENTIFIED BY '*XXX'"),
        ("SET PASSWORD FOR u = PASSWORD('hidden')", "SET PASSWORD FOR u = PASSWORD('*XXX')"),
        (
            "SELECT * FROM S3('uri' = 's3://b/k', \"s3.secret_key\" = \"hidden\", 's3.access_key'='hidden')",
            "SELECT * FROM S3('uri' = 's3://b/k', \"s3.secret_key\" = '*XXX', 's3.access_key'='*XXX')",
        ),
        ("SELECT 'plain'", "SELECT 'plain'"),
    ] {
        let statements = crate::sql::split(sql, true).expect(sql);
        assert_eq!(crate::sql::masked(sql, &statements[0]), shown);
    }
}

#[tokio::test]
async fn plans_are_explained() {
    let mut f = Fixture::with_database().await;
    f.run("CREATE TABLE t (k INT NULL, v VARCHAR(5) NULL) DUPLICATE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 3 PROPERTIES (\"replication_num\" = \"1\")").await;
    let lines = f.rows("EXPLAIN SELECT k AS a, count(*) AS n FROM t WHERE v = 'x' GROUP BY k ORDER BY a LIMIT 4").await;
    for part in [
        "PLAN FRAGMENT 0",
        "    a[#0]",
        "VOlapScanNode",
        "TABLE: d.t(t)",
        "PREDICATES: ",
        "tablets=3/3, tabletList=",
        "VAGGREGATE",
        "limit: 4",
    ] {
        assert!(lines.iter().any(|line| line.contains(part)), "{part}: {lines:#?}");
    }
    assert_eq!(f.error("EXPLAIN SELECT * FROM none").await.text(), "Table [none] does not exist in database [d].");
    assert_eq!(
        f.error("EXPLAIN INSERT INTO t VALUES (1, 'x')").await.text(),
        "the sandbox does not implement EXPLAIN INSERT INTO t VALUES (1, 'x')"
    );
}

#[tokio::test]
async fn small_statements() {
    let mut f = Fixture::with_database().await;
    f.run("CREATE TABLE t (k INT NULL) DISTRIBUTED BY HASH(k) BUCKETS 1 PROPERTIES (\"replication_num\" = \"1\"); INSERT INTO t VALUES (1), (2)").await;
    f.run("SYNC; ANALYZE TABLE t WITH SYNC").await;
    assert_eq!(f.rows("VALUES (1, 'a'), (2, 'b')").await, ["1|a", "2|b"]);
    assert!(f.rows("ANALYZE TABLE t").await[0].ends_with("|internal|d|t|[t:k]"));
    for (sql, text) in [
        ("ANALYZE TABLE none", "Table [none] does not exist in database [d]."),
        ("REFRESH CATALOG internal", "Internal catalog name can't be refresh."),
        ("REFRESH CATALOG other", "Unknown catalog 'other'"),
        ("REFRESH TABLE t", "Only support refresh table in external catalog"),
    ] {
        assert_eq!(f.error(sql).await.text(), text);
    }
    for (sql, rows) in [
        ("SHOW TRIGGERS", 0),
        ("SHOW EVENTS FROM d", 0),
        ("SHOW PROCEDURE STATUS WHERE Db = 'd'", 0),
        ("SHOW FUNCTION STATUS", 0),
        ("SHOW FULL FUNCTIONS FROM d", 0),
        ("SHOW BROKER", 0),
        ("SHOW STATUS LIKE 'x'", 0),
        ("SHOW OPEN TABLES", 0),
        ("SHOW WARNINGS LIMIT 5", 0),
        ("SHOW CATALOGS LIKE 'int%'", 1),
        ("SHOW DATA", 4),
        ("SHOW DATA FROM t", 2),
        ("SHOW LOAD WHERE Type = 'INSERT' AND State = 'FINISHED'", 1),
        ("SHOW PROPERTY LIKE 'max%'", 2),
        ("SHOW DATABASES LIKE 'd'", 1),
        ("SHOW COLLATION WHERE Charset = 'latin1'", 0),
        ("SHOW CHARACTER SET LIKE 'utf8%'", 1),
        ("SHOW ENGINES", 1),
    ] {
        assert_eq!(f.rows(sql).await.len(), rows, "{sql}");
    }
    assert_eq!(f.error("SHOW DATABASES WHERE nope = 'x'").await.code, 1054);
    let mut old = Fixture::new(Profile::V2_1);
    assert_eq!(old.rows("SHOW PROCESSLIST").await[0].split('|').count(), 14);
}

#[tokio::test]
async fn system_tables_have_their_columns_and_rows() {
    let mut f = Fixture::with_database().await;
    f.run("CREATE TABLE t (k INT NULL) DISTRIBUTED BY HASH(k) BUCKETS 1 PROPERTIES (\"replication_num\" = \"1\")")
        .await;
    f.run("CREATE USER u; GRANT SELECT_PRIV ON d.t TO u; GRANT LOAD_PRIV ON d.* TO u").await;
    for name in
        f.rows("SELECT TABLE_NAME FROM information_schema.tables WHERE TABLE_SCHEMA = 'information_schema'").await
    {
        f.rows(&format!("SELECT * FROM information_schema.{name}")).await;
        assert!(!f.rows(&format!("SHOW TABLES FROM information_schema LIKE '{name}'")).await.is_empty());
    }
    for (sql, want) in [
        ("SELECT PRIVILEGE_TYPE, TABLE_SCHEMA, TABLE_NAME FROM information_schema.table_privileges", "SELECT|d|t"),
        ("SELECT GRANTEE, PRIVILEGE_TYPE FROM information_schema.schema_privileges", "'u'@'%'|LOAD"),
        ("SELECT COUNT(*) FROM information_schema.user_privileges WHERE GRANTEE LIKE '%root%'", "2"),
        ("SELECT PROPERTY_VALUE FROM information_schema.table_properties WHERE PROPERTY_NAME = 'storage_format'", "V2"),
        ("SELECT ENGINE FROM information_schema.engines", "Olap"),
        ("SELECT COUNT(*) FROM information_schema.triggers", "0"),
        ("SELECT COUNT(*) FROM information_schema.columns WHERE TABLE_SCHEMA = 'd'", "1"),
        ("SELECT USER, COMMAND FROM information_schema.processlist", "root|Query"),
    ] {
        assert_eq!(f.rows(sql).await, [want], "{sql}");
    }
    f.session = f.engine.open_session("u", "127.0.0.1", Protocol::Mysql);
    assert_eq!(f.rows("SELECT TABLE_NAME FROM information_schema.tables WHERE TABLE_SCHEMA = 'd'").await, ["t"]);
    assert_eq!(f.rows("SELECT SCHEMA_NAME FROM information_schema.schemata WHERE SCHEMA_NAME = 'd'").await, ["d"]);
}

#[tokio::test]
async fn inserts_between_begin_and_commit_are_one_load() {
    let mut f = Fixture::with_database().await;
    f.run("CREATE TABLE t (k INT NULL, v INT NULL) DISTRIBUTED BY HASH(k) BUCKETS 1 PROPERTIES (\"replication_num\" = \"1\"); CREATE TABLE s (k INT NULL) DISTRIBUTED BY HASH(k) BUCKETS 1 PROPERTIES (\"replication_num\" = \"1\")").await;
    f.run("BEGIN WITH LABEL several").await;
    assert_eq!(f.affected("INSERT INTO t VALUES (1, 1), (2, 2)").await, 2);
    assert_eq!(f.affected("INSERT INTO t VALUES (3, 3)").await, 1);
    assert_eq!(f.engine.running_transactions(), 1);
    for (sql, text) in [
        ("INSERT INTO s VALUES (1)", "Only one table can be inserted in one transaction."),
        ("SELECT 1", "This is in a transaction, only insert, commit, rollback is acceptable."),
        ("BEGIN", "A transaction has already begin"),
    ] {
        assert_eq!(f.error(sql).await.text(), text);
    }
    let mut other = f.engine.open_session("root", "127.0.0.1", Protocol::Mysql);
    std::mem::swap(&mut f.session, &mut other);
    assert_eq!(f.rows("SELECT count(*) FROM d.t").await, ["0"], "nobody sees it before");
    std::mem::swap(&mut f.session, &mut other);
    f.run("COMMIT").await;
    assert_eq!(f.rows("SELECT sum(k) FROM t").await, ["6"]);
    assert!(f.rows("SHOW TRANSACTION WHERE label = 'several'").await[0].contains("|VISIBLE|"));
    f.run("BEGIN; INSERT INTO t SELECT k, v FROM t; ROLLBACK; COMMIT").await;
    assert_eq!(f.rows("SELECT count(*) FROM t").await, ["3"]);
    f.run("START TRANSACTION; INSERT INTO t VALUES (9, 9)").await;
    f.session = f.engine.open_session("root", "127.0.0.1", Protocol::Mysql);
    assert_eq!(f.engine.running_transactions(), 0, "a connection that ends takes its transaction along");
}

#[tokio::test]
async fn statistics_of_columns_are_those_of_the_last_analyze() {
    let mut f = Fixture::with_database().await;
    f.run("CREATE TABLE c (k INT, s STRING, j JSON) DUPLICATE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 2").await;
    f.run("INSERT INTO c VALUES (3, 'b', '1'), (-1, NULL, '1'), (3, 'a', '1')").await;
    assert!(f.rows("SHOW COLUMN STATS c").await.is_empty(), "nothing was gathered");
    f.run("ANALYZE TABLE c WITH SYNC; INSERT INTO c VALUES (9, 'z', '1')").await;
    let shown = f.rows("SHOW COLUMN CACHED STATS c").await;
    assert_eq!(shown.len(), 2, "{shown:?}");
    assert!(shown[0].starts_with("k|c|3|2|0|0.0|0.0|-1|3|FULL|FUNDAMENTALS|MANUAL|0|"), "{shown:?}");
    assert!(shown[1].starts_with("s|c|3|2|1|0.0|0.0|'a'|'b'|"), "{shown:?}");
    assert_eq!(f.rows("SHOW COLUMN STATS c (s)").await.len(), 1);
}
