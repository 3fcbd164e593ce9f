//! Every refusal of the SQL layer: statement, error code, part of its text.

use super::Fixture;
use crate::engine::Profile;

#[tokio::test]
async fn statements_are_refused_as_the_server_refuses_them() {
    let mut f = Fixture::with_database().await;
    f.run("CREATE TABLE t (k INT NOT NULL, v VARCHAR(3), d DECIMAL(5,2), l LARGEINT) UNIQUE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 1").await;
    f.run("CREATE TABLE dup (k INT, v INT) DUPLICATE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 1").await;
    let create = |rest: &str| format!("CREATE TABLE x {rest}");
    let cases: Vec<(String, u16, &str)> = [
        ("CREATE DATABASE d", 1007, "Can't create database 'd'; database exists"),
        ("CREATE DATABASE `a b`", 1102, "Incorrect database name 'a b'"),
        ("CREATE DATABASE `数据`", 1102, "Incorrect database name '数据'"),
        ("DROP DATABASE nope", 1008, "Can't drop database 'nope'; database doesn't exist"),
        ("DROP DATABASE information_schema", 1105, "Access denied"),
        ("USE nope", 1049, "Unknown database 'nope'"),
        ("SWITCH hive", 5086, "Unknown catalog 'hive'"),
        ("SELECT * FROM hive.d.t", 5086, "Unknown catalog 'hive'"),
        ("DROP TABLE nope", 1051, "Unknown table 'nope'"),
        ("SELECT * FROM nope", 1105, "Table [nope] does not exist in database [d]."),
        ("SELECT * FROM nope.t", 1049, "Unknown database 'nope'"),
        (
            "SELECT * FROM information_schema.nope",
            1105,
            "Table [nope] does not exist in database [information_schema].",
        ),
        ("SELECT nope FROM t", 1105, "Unknown column 'nope' in 'table list'"),
        ("SELECT __DORIS_DELETE_SIGN__ FROM t", 1105, "Unknown column '__DORIS_DELETE_SIGN__'"),
        ("SELECT nope(1)", 1105, "Can not found function 'nope'"),
        ("SELECT locate('a')", 1105, "Can not found function 'locate'"),
        ("SELECT @@nope", 1193, "Unknown system variable 'nope',the similar variables are {"),
        ("SET nope = 1", 1193, "Unknown system variable 'nope'"),
        ("SET version = 1", 1238, "read only"),
        ("SET autocommit = maybe", 1231, "Variable 'autocommit' can't be set to the value of 'maybe'"),
        ("SET query_timeout = 'x'", 1232, "Incorrect argument type to variable 'query_timeout'"),
        ("SET time_zone = 'Mars/Base'", 1298, "Unknown or incorrect time zone: 'Mars/Base'"),
        ("SET NAMES latin1", 1115, "Unknown character set: 'latin1'"),
        ("SET PASSWORD = 'x'", 1372, "Password hash should be a 41-digit hexadecimal number"),
        ("SELECT /*+ SET_VAR(query_timeout) */ 1", 5006, "Unknown plan hint"),
        ("SELECT 'open", 1105, "unterminated string literal"),
        ("SELECT `open", 1105, "unterminated backtick"),
        ("SELECT 1 /* open", 1105, "unterminated bracketed comment"),
        ("SELECT 1 ?", 1105, "mismatched input '?'"),
        ("SELEC 1", 1105, "mismatched input 'SELEC'"),
        ("SELECT 1 FROM t WHERE", 1105, "Expected"),
        ("SELECT 'a' ILIKE 'A'", 1105, "mismatched input"),
        ("SELECT DATE '2024-02-30'", 1105, "date/datetime literal [2024-02-30] is invalid"),
        ("SELECT * FROM t TABLET(5)", 1105, "Invalid tablet id: 5"),
        ("SELECT * FROM t PARTITION(p)", 1105, "Partition: p is not exists on table t"),
        ("SELECT * FROM t TABLET(a)", 1105, "mismatched input 'a'"),
        ("SELECT * FROM t FOR UPDATE", 1105, "does not implement locking reads"),
        ("SELECT * FROM s3('uri'='x')", 1105, "format: is not supported"),
        ("SELECT concat()", 1105, "Can not found function 'concat' which has 0 arity"),
        ("SELECT abs(1, 2, 3)", 1105, "Can not found function 'abs' which has 3 arity"),
        ("SELECT array_map(x -> x, [1])", 1105, ""),
        ("SELECT regexp_extract('a', 'b', 1)", 1105, "does not implement function regexp_extract"),
        ("SELECT date_trunc('day', now())", 1105, "date_trunc function time unit param"),
        ("SELECT max([1])", 1105, "min/max function doesn't support type"),
        ("SELECT sum([1])", 1105, "sum requires a numeric parameter"),
        ("SELECT bitmap_union(1)", 1105, "need a BITMAP parameter"),
        ("SELECT DATE '2024-01-32'", 1105, "date/datetime literal [2024-01-32] is invalid"),
        ("SELECT TIMESTAMP '2024-01-01 25:00:00'", 1105, "date/datetime literal [2024-01-01 25:00:00] is invalid"),
        ("SELECT CAST(1 AS VARBINARY)", 1105, "does not implement type VARBINARY"),
        ("SELECT now() + INTERVAL 1 DAY_HOUR", 1105, ""),
        ("SELECT [1] = 1", 1105, "does not implement comparison"),
        ("SELECT a.k FROM t a, t b WHERE k = 1", 1052, "ambiguous"),
        ("INSERT INTO t VALUES (1)", 5010, "Column count doesn't match value count"),
        ("INSERT INTO t (k) VALUES (1, 2)", 5010, "Column count doesn't match value count"),
        ("INSERT INTO t (nope) VALUES (1)", 1054, "Unknown column 'nope' in 'table list'"),
        ("INSERT INTO t (k, k) VALUES (1, 1)", 1105, "Duplicate column: k"),
        ("INSERT INTO t (v) VALUES ('a')", 1105, "Column has no default value, column=k"),
        ("INSERT INTO t (k) VALUES (NULL)", 1105, "null value for not null column, column=k"),
        ("INSERT INTO t (k) VALUES (DEFAULT)", 1105, "Column has no default value, column=k"),
        ("INSERT INTO t (k, v) VALUES (1, 'toolong')", 1105, "Insert has filtered data in strict mode"),
        ("INSERT INTO t (k) VALUES (99999999999)", 1105, "Insert has filtered data in strict mode"),
        ("INSERT INTO t (k, d) VALUES (1, 12345)", 1105, "Insert has filtered data in strict mode"),
        (
            "INSERT INTO t (k, v) SELECT 1, 'toolong'",
            1105,
            "the length of input is too long than schema, column_name: v",
        ),
        ("INSERT INTO t (k) SELECT 'x'", 1105, "Insert has filtered data in strict mode"),
        ("INSERT INTO t SELECT 1", 5010, "target 4 columns, query 1"),
        ("INSERT INTO t WITH LABEL `a b` VALUES (1)", 5010, "Column count"),
        (
            "INSERT INTO t WITH LABEL `a b` (k) VALUES (1)",
            1105,
            "Label format error. regex: ^[-_A-Za-z0-9:]{1,128}$, label: a b",
        ),
        ("INSERT INTO t PARTITION(p) VALUES (1)", 1105, "Partition: p is not exists on table t"),
        ("INSERT OVERWRITE TABLE t TEMPORARY PARTITION(p) VALUES (1)", 1105, "does not implement temporary partitions"),
        ("INSERT INTO dup (k, __DORIS_DELETE_SIGN__) VALUES (1, 1)", 1054, "Unknown column '__DORIS_DELETE_SIGN__'"),
        ("UPDATE dup SET v = 1 WHERE k = 1", 1105, "Only unique table could be updated."),
        ("UPDATE t SET k = 1 WHERE k = 1", 1105, "Only value columns of unique table could be updated"),
        ("UPDATE t SET nope = 1", 1054, "Unknown column 'nope'"),
        ("UPDATE t SET v = '1', v = '2'", 1105, "Duplicate column name in update: v"),
        ("UPDATE t SET v = 'x' FROM dup WHERE t.k = dup.k", 1105, "does not implement UPDATE ... FROM"),
        ("DELETE FROM t", 1105, "Where clause is not set"),
        ("DELETE FROM t USING dup WHERE t.k = dup.k", 1105, "does not implement DELETE ... USING"),
        ("TRUNCATE TABLE t PARTITION p", 1105, "Partition: p is not exists on table t"),
        ("ALTER TABLE t ORDER BY (k)", 1105, "does not implement ALTER"),
        ("COMMIT TO SAVEPOINT x", 1105, "mismatched input 'TO' expecting <EOF>"),
        ("SHOW TRANSACTION WHERE id = 5", 1105, "transaction with id 5 does not exist"),
        ("SHOW TRANSACTION WHERE label = 'x'", 1105, "transaction with label x does not exist"),
        ("SHOW TRANSACTION WHERE foo = 'x'", 1105, "Where clause should looks like"),
        ("SHOW TABLES FROM nope", 1049, "Unknown database 'nope'"),
        ("SHOW TABLES WHERE nope = 'x'", 1054, "Unknown column 'nope'"),
        ("SHOW TABLETS FROM t PARTITION(p)", 1105, "Partition: p is not exists on table t"),
        ("DESC nope", 1105, "Table [nope] does not exist in database [d]."),
        ("DESC FUNCTION s3()", 1105, "Missing required property: uri"),
        ("CREATE TABLE t (k INT) DUPLICATE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 1", 1050, "Table 't' already exists"),
        (
            "CREATE TABLE `1t` (k INT) DUPLICATE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 1",
            1103,
            "Incorrect table name '1t'",
        ),
        (
            "CREATE TABLE `数据` (k INT) DUPLICATE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 1",
            1103,
            "Incorrect table name '数据'",
        ),
        (
            "CREATE TABLE nope.x (k INT) DUPLICATE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 1",
            1049,
            "Unknown database 'nope'",
        ),
    ]
    .into_iter()
    .map(|(sql, code, text)| (sql.to_owned(), code, text))
    .chain(
        [
            ("LIKE nope", 1105, "Table [nope] does not exist in database [d]."),
            ("(k INT) DUPLICATE KEY(k)", 1105, "Create olap table should contain distribution desc"),
            (
                "(k INT) ENGINE=mysql DUPLICATE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 1",
                1105,
                "does not implement ENGINE=mysql",
            ),
            ("(k INT, K INT) DUPLICATE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 1", 1060, "Duplicate column name 'K'"),
            (
                "(k INT, `__DORIS_X` INT) DUPLICATE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 1",
                1166,
                "Incorrect column name '__DORIS_X'",
            ),
            ("(k INT) DUPLICATE KEY(z) DISTRIBUTED BY HASH(k) BUCKETS 1", 1105, "Key column[z] doesn't exist."),
            (
                "(v INT, k INT) DUPLICATE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 1",
                1105,
                "Key columns should be a ordered prefix of the schema",
            ),
            (
                "(k DOUBLE) DUPLICATE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 1",
                1105,
                "Float or double can not used as a key",
            ),
            (
                "(k STRING) DUPLICATE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 1",
                1105,
                "String Type should not be used in key column[k].",
            ),
            ("(k DOUBLE) DISTRIBUTED BY HASH(k) BUCKETS 1", 1105, "first column could not be float, double, string"),
            (
                "(k INT) DUPLICATE KEY(k) DISTRIBUTED BY HASH(z) BUCKETS 1",
                1105,
                "Distribution column(z) doesn't exist.",
            ),
            (
                "(k INT, v INT) UNIQUE KEY(k) DISTRIBUTED BY HASH(v) BUCKETS 1",
                1105,
                "Distribution column[v] is not key column",
            ),
            (
                "(k INT) UNIQUE KEY(k) DISTRIBUTED BY RANDOM BUCKETS 1",
                1105,
                "should not contain random distribution desc",
            ),
            (
                "(k INT, v DOUBLE) DUPLICATE KEY(k) DISTRIBUTED BY HASH(v) BUCKETS 1",
                1105,
                "should not be used in distribution column[v]",
            ),
            (
                "(k INT) DUPLICATE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 0",
                1105,
                "Buckets number of distribution should be greater than zero.",
            ),
            ("(k INT) DUPLICATE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 9999", 1105, "max_bucket_num_per_partition"),
            (
                "(k INT) DUPLICATE KEY(k) AUTO PARTITION BY LIST(k) () DISTRIBUTED BY HASH(k) BUCKETS 1",
                1105,
                "does not implement AUTO PARTITION",
            ),
            (
                "(k INT, v VARCHAR(5) SUM) AGGREGATE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 1",
                1105,
                "Aggregate type SUM is not compatible with primitive type varchar",
            ),
            (
                "(k INT, v INT) AGGREGATE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 1",
                1105,
                "AGG_KEYS table should specify aggregate type for non-key column[v]",
            ),
            (
                "(k BIGINT AUTO_INCREMENT) UNIQUE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 1",
                1105,
                "the auto increment column should be NOT NULL.",
            ),
            (
                "(k INT, b QUANTILE_STATE) DUPLICATE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 1",
                1105,
                "does not implement type QUANTILE_STATE",
            ),
            (
                "(k INT, t TIME) DUPLICATE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 1",
                1105,
                "Time type is not supported for olap table",
            ),
            (
                "(k INT, d DECIMAL(39,1)) DUPLICATE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 1",
                1105,
                "set enable_decimal256 = true to enable it",
            ),
            (
                "(k INT, a ARRAY<BITMAP>) DUPLICATE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 1",
                1105,
                "ARRAY unsupported sub-type: BITMAP",
            ),
            ("(k INT, b BLOB) DUPLICATE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 1", 1105, "unknown type `BLOB`"),
            (
                "(k INT DEFAULT 'x') DUPLICATE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 1",
                1105,
                "Invalid default value for 'k': x",
            ),
            (
                "(k INT DEFAULT CURRENT_TIMESTAMP) DUPLICATE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 1",
                1105,
                "cannot use current_timestamp",
            ),
            (
                "(k INT NOT NULL DEFAULT NULL) DUPLICATE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 1",
                1105,
                "Can not set null default value",
            ),
            (
                "(k INT) DUPLICATE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 1 ROLLUP (r(k))",
                1105,
                "does not implement ROLLUP",
            ),
            (
                "(k INT) DUPLICATE KEY(k) CLUSTER BY (k) DISTRIBUTED BY HASH(k) BUCKETS 1",
                1105,
                "does not implement CLUSTER BY",
            ),
        ]
        .into_iter()
        .map(|(rest, code, text)| (create(rest), code, text)),
    )
    .collect();
    let mut wrong = Vec::new();
    for (sql, code, text) in cases {
        match f.session.execute(&sql).await {
            Ok(_) => wrong.push(format!("{sql}: not refused")),
            Err(error) if error.code != code || !error.message.contains(text) => {
                wrong.push(format!("{sql}: {} {}", error.code, error.message));
            }
            Err(_) => {}
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test]
async fn without_a_database_bare_names_are_refused() {
    let mut f = Fixture::new(Profile::default());
    for sql in
        ["SELECT * FROM t", "SHOW TABLES", "INSERT INTO t VALUES (1)", "DROP TABLE t", "SHOW TRANSACTION WHERE id = 1"]
    {
        let error = f.error(sql).await;
        assert_eq!((error.code, error.state), (1046, "3D000"), "{sql}");
    }
}

#[tokio::test]
async fn properties_are_checked_by_profile() {
    let cases = [
        (Profile::V5_0Changelog, "UNIQUE", "'nope'='1'", "Unknown properties: {nope=1}"),
        (
            Profile::V5_0Changelog,
            "UNIQUE",
            "'binlog.enable'='true'",
            "does not implement binlog.enable for cross-cluster replication",
        ),
        (Profile::V5_0Changelog, "UNIQUE", "'changelog.enable'='yes'", "Invalid changelog enable value: yes"),
        (
            Profile::V5_0Changelog,
            "UNIQUE",
            "'changelog.enable'='true', 'changelog.ttl_seconds'='x'",
            "Invalid changelog ttl_seconds value: x",
        ),
        (
            Profile::V5_0Changelog,
            "DUPLICATE",
            "'changelog.enable'='true', 'changelog.need_historical_value'='true'",
            "Duplicate table model don't support record historical value",
        ),
        (
            Profile::V5_0Changelog,
            "UNIQUE",
            "'changelog.enable'='true', 'enable_unique_key_merge_on_write'='false'",
            "Only duplicate and mow table model support changelog",
        ),
        (Profile::V5_0Binlog, "UNIQUE", "'changelog.enable'='true'", "Unknown properties: {changelog.enable=true}"),
        (
            Profile::V5_0Binlog,
            "UNIQUE",
            "'binlog.enable'='true', 'binlog.format'='row'",
            "Invalid binlog format value: row",
        ),
        (
            Profile::V5_0Binlog,
            "UNIQUE",
            "'binlog.enable'='true'",
            "does not implement binlog.format=STATEMENT_AND_SNAPSHOT",
        ),
        (
            Profile::V5_0Binlog,
            "UNIQUE",
            "'binlog.enable'='true', 'binlog.format'='ROW', 'enable_unique_key_merge_on_write'='false'",
            "Only duplicate and mow table model support binlog<Row>",
        ),
        (
            Profile::V4_0,
            "UNIQUE",
            "'binlog.enable'='true', 'binlog.format'='ROW'",
            "Unknown properties: {binlog.format=ROW}",
        ),
        (Profile::V4_0, "UNIQUE", "'changelog.enable'='true'", "Unknown properties: {changelog.enable=true}"),
        (
            Profile::V5_0Changelog,
            "UNIQUE",
            "'replication_num'='3'",
            "replication num should be less than the number of available backends. replication num is 3, available backend num is 1",
        ),
        (Profile::V5_0Changelog, "UNIQUE", "'replication_num'='x'", "Replication num invalid"),
        (Profile::V5_0Changelog, "DUPLICATE", "'enable_unique_key_merge_on_write'='true'", "Unknown properties"),
        (
            Profile::V5_0Changelog,
            "UNIQUE",
            "'enable_mow_light_delete'='true'",
            "does not implement property enable_mow_light_delete=true",
        ),
        (
            Profile::V5_0Changelog,
            "UNIQUE",
            "'function_column.sequence_col'='nope'",
            "The specified sequence column[nope] not exists",
        ),
        (
            Profile::V5_0Changelog,
            "UNIQUE",
            "'dynamic_partition.enable'='true'",
            "does not implement property dynamic_partition.enable",
        ),
    ];
    for (profile, model, properties, text) in cases {
        let mut f = Fixture::new(profile);
        f.run("CREATE DATABASE d; USE d").await;
        let sql =
            format!("CREATE TABLE t (k INT) {model} KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 1 PROPERTIES({properties})");
        let error = f.error(&sql).await;
        assert!(error.message.contains(text), "{properties} on {profile}: {}", error.message);
    }
    let mut f = Fixture::with_database().await;
    let sql = "CREATE TABLE t (k INT, v VARIANT) UNIQUE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 1 PROPERTIES('changelog.enable'='true')";
    assert!(f.error(sql).await.message.contains("VARIANT column v is not supported"));
}

#[tokio::test]
async fn ordinary_users_are_refused_administration() {
    let mut f = Fixture::with_database().await;
    f.run("CREATE USER 'reader'@'%' IDENTIFIED BY 'pw'").await;
    assert!(f.engine.authenticate("reader", "pw"));
    let mut session = f.engine.open_session("reader", "127.0.0.1", crate::engine::Protocol::Mysql);
    for sql in ["SHOW BACKENDS", "CREATE USER x"] {
        let error = session.execute(sql).await.expect_err(sql);
        assert_eq!(error.code, 1227, "{sql}");
    }
}

#[tokio::test]
async fn query_plans_take_plain_scans_only() {
    let mut f = Fixture::with_database().await;
    f.run("CREATE TABLE t (k INT, v INT) DUPLICATE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 3").await;
    let tablets = f.engine.plan_tablets("d", "t", "SELECT k FROM `d`.`t` WHERE v > 1").await.unwrap();
    assert_eq!(tablets.len(), 3);
    let one = format!("select k from d.t TABLET({})", tablets[1].id);
    assert_eq!(f.engine.plan_tablets("d", "t", &one).await.unwrap(), [tablets[1].clone()]);
    let cases = [
        ("SELECT count(*) FROM d.t", "only support single table filter-prune-scan, but found [ AGGREGATE ]"),
        ("SELECT k FROM d.t LIMIT 1", "only support single table filter-prune-scan, but found [ LIMIT ]"),
        ("SELECT k FROM d.t ORDER BY k", "only support single table filter-prune-scan, but found [ SORT ]"),
        ("SELECT a.k FROM d.t a, d.t b", "Select statement must have only one table"),
        ("SELECT k FROM (SELECT k FROM d.t) x", "Select statement must not embed another statement"),
        ("SELECT k FROM d.t UNION ALL SELECT k FROM d.t", "Select statement must not embed another statement"),
        ("SELECT k FROM other.t", "requested database and table must consistent with sql"),
        ("SELECT nope FROM d.t", "Unknown column 'nope'"),
    ];
    for (sql, text) in cases {
        let error = f.engine.plan_tablets("d", "t", sql).await.expect_err(sql);
        assert!(error.message.contains(text), "{sql}: {}", error.message);
    }
}

/// The limits of the server, and what is within them runs.
#[tokio::test]
async fn depth_and_width_are_bounded_as_on_the_server() {
    let mut f = Fixture::with_database().await;
    let nested = |n: usize| format!("SELECT {}-1{}", "abs(".repeat(n), ")".repeat(n));
    let chain = |n: usize, op: &str| format!("SELECT {}1", format!("1 {op} ").repeat(n));
    assert_eq!(f.rows(&nested(100)).await, ["1"]);
    assert_eq!(f.rows(&format!("SELECT {} TRUE", "NOT ".repeat(200))).await, ["1"]);
    assert_eq!(f.rows(&chain(2000, "OR")).await, ["1"]);
    assert_eq!(f.rows(&chain(100, "+")).await, ["101"]);
    assert_eq!(f.rows(&format!("SELECT {}1{}", "(SELECT ".repeat(5), ")".repeat(5))).await, ["1"]);
    assert_eq!(f.rows(&format!("SELECT 1 {}", "BETWEEN 0 AND 2 ".repeat(3))).await, ["1"]);
    for (sql, text) in [
        (nested(3100), "Exceeded the maximum depth of an expression tree (3000)."),
        (format!("SELECT {} TRUE", "NOT ".repeat(3100)), "Exceeded the maximum depth of an expression tree (3000)."),
        (chain(3100, "+"), "Exceeded the maximum depth of an expression tree (3000)."),
        (nested(300), "does not implement more than 200 calls and operators within each other"),
        (format!("SELECT 1 {}", "BETWEEN 0 AND 2 ".repeat(100)), "does not implement conditions on expressions nested"),
        (
            format!("SELECT {}1{}", "CASE ".repeat(40), " WHEN 1 THEN 1 WHEN 2 THEN 3 END".repeat(40)),
            "does not implement conditions on expressions nested",
        ),
        (
            format!("SELECT {}1{}", "(SELECT ".repeat(12), ")".repeat(12)),
            "does not implement more than 10 subqueries within each other",
        ),
        (chain(10_001, "OR"), "Exceeded the maximum number of child expressions (10000)."),
        (
            format!("SELECT 1 IN ({})", vec!["1"; 10_001].join(",")),
            "Exceeded the maximum number of child expressions (10000).",
        ),
    ] {
        let error = f.error(&sql).await;
        assert!(error.message.contains(text), "{}", error.message);
    }
}
