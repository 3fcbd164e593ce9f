//! The meaning of expressions.

use super::Fixture;

#[tokio::test]
async fn expressions_mean_what_they_mean_in_doris() {
    let mut f = Fixture::with_database().await;
    let cases = [
        ("SELECT 1", "1"),
        ("SELECT 7 / 2", "3.5"),
        ("SELECT 7 DIV 2", "3"),
        ("SELECT 1 / 0, 1 % 0, 5 % 3", "NULL|NULL|2"),
        ("SELECT NULL <=> NULL, 1 <=> NULL, 1 <=> 1", "1|0|1"),
        ("SELECT TRUE || FALSE, 1 && 0", "1|0"),
        (r"SELECT 'a\nb', 'it''s', 'a\%', '\q'", "a\nb|it's|a\\%|q"),
        (r#"SELECT "double ""quoted""" "#, "double \"quoted\""),
        ("SELECT concat('a', NULL)", "NULL"),
        ("SELECT concat('a', 1, 'b')", "a1b"),
        ("SELECT length('hé'), char_length('hé')", "3|2"),
        ("SELECT locate('b', 'abc'), instr('abc', 'c')", "2|3"),
        ("SELECT substr('hello', 0, 3), substr('hello', -2)", "|lo"),
        ("SELECT CAST('12' AS INT), CAST('x' AS INT)", "12|NULL"),
        ("SELECT CAST('2024-02-30' AS DATE)", "NULL"),
        ("SELECT CAST('2024-01-31 10:11:12.345' AS DATETIME(2))", "2024-01-31 10:11:12.35"),
        (
            "SELECT CAST('170141183460469231731687303715884105727' AS LARGEINT)",
            "170141183460469231731687303715884105727",
        ),
        ("SELECT CAST(1.005 AS DECIMAL(10, 2)), CAST('123.456' AS DECIMAL(6, 2))", "1.01|123.46"),
        ("SELECT CAST('NaN' AS DOUBLE)", "NaN"),
        ("SELECT DATE '2024-03-01', TIMESTAMP '2024-03-01 01:02:03.5'", "2024-03-01|2024-03-01 01:02:03.5"),
        ("SELECT date_trunc(CAST('2024-03-05 01:02:03' AS DATETIME), 'month')", "2024-03-01 00:00:00"),
        ("SELECT FROM_UNIXTIME(1704067200, '%Y-%m-%d %H:%i:%s')", "2024-01-01 00:00:00"),
        ("SELECT from_unixtime(1704067200500 / 1000)", "2024-01-01 00:00:00"),
        ("SELECT unix_timestamp('2024-01-01 00:00:00')", "1704067200"),
        ("SELECT if(1 > 2, 'a', 'b'), ifnull(NULL, 3)", "b|3"),
        ("SELECT 'abc' LIKE 'a%', 'a%c' LIKE 'a\\%c', 'abc' LIKE 'a\\%c'", "1|1|0"),
        ("SELECT 'abc' REGEXP 'b', 'abc' RLIKE '^b'", "1|0"),
        ("SELECT 'B' < 'a'", "1"),
        ("SELECT '10' > 9, '1' = 1, 'x' = 0", "1|1|NULL"),
        ("SELECT 5 BETWEEN 1 AND 10, 5 NOT BETWEEN 1 AND 10", "1|0"),
        ("SELECT year('2024-05-06'), month('2024-05-06'), day('2024-05-06')", "2024|5|6"),
        ("SELECT [1, 2, NULL]", "[1, 2, null]"),
        ("SELECT DATABASE(), CONNECTION_ID(), USER()", "d|1|'root'@'%'"),
        ("SELECT @@autocommit, @@session.sql_mode", "1|ONLY_FULL_GROUP_BY"),
        ("SELECT now()", "2024-01-01 00:00:00"),
        ("SELECT 1, 1, 'a' AS x, 'b' AS x", "1|1|a|b"),
        ("/* lead */ SELECT 2 -- trailing\n + 1 # more", "3"),
        ("SELECT .5 + 1", "1.5"),
        ("SELECT CAST('2024-01-01' AS DATE) = CAST('2024-01-01 00:00:00' AS DATETIME)", "1"),
    ];
    let mut wrong = Vec::new();
    for (sql, expected) in cases {
        let rows = f.try_rows(sql).await;
        if rows.as_deref() != Ok([expected.to_owned()].as_slice()) {
            wrong.push(format!("{sql}: {rows:?}, expected {expected:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test]
async fn labels_are_the_text_of_the_expression() {
    let mut f = Fixture::with_database().await;
    let cases = [
        ("SELECT 1", vec!["1"]),
        ("SELECT @@version_comment LIMIT 1", vec!["@@version_comment"]),
        ("SELECT 1 AS A, 1 AS A", vec!["A", "A"]),
        ("SELECT count(*) FROM information_schema.schemata", vec!["count(*)"]),
    ];
    for (sql, labels) in cases {
        let results = f.session.execute(sql).await.expect(sql);
        let Some(crate::engine::StatementResult::Rows { schema, .. }) = results.into_iter().next() else {
            panic!("{sql}")
        };
        let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
        assert_eq!(names, labels, "{sql}");
    }
}

#[tokio::test]
async fn nulls_come_first_ascending_and_last_descending() {
    let mut f = Fixture::with_database().await;
    f.run("CREATE TABLE t (k INT, v INT) DUPLICATE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 3").await;
    f.run("INSERT INTO t VALUES (1, 2), (2, NULL), (3, 1)").await;
    assert_eq!(f.rows("SELECT v FROM t ORDER BY v").await, ["NULL", "1", "2"]);
    assert_eq!(f.rows("SELECT v FROM t ORDER BY v DESC").await, ["2", "1", "NULL"]);
    assert_eq!(f.rows("SELECT v FROM t ORDER BY v ASC NULLS LAST LIMIT 1, 2").await, ["2", "NULL"]);
}

#[tokio::test]
async fn columns_are_found_without_case_and_tables_with_it() {
    let mut f = Fixture::with_database().await;
    f.run("CREATE TABLE T1 (`Key Col` INT, V INT) DUPLICATE KEY(`Key Col`) DISTRIBUTED BY HASH(`Key Col`) BUCKETS 2")
        .await;
    f.run("INSERT INTO T1 VALUES (1, 2)").await;
    assert_eq!(f.rows("SELECT `key col`, v FROM T1 WHERE v = 2").await, ["1|2"]);
    assert_eq!(f.rows("SELECT a.V FROM internal.d.T1 a JOIN d.T1 b ON a.v = b.V").await, ["2"]);
    assert_eq!(f.rows("SELECT T1.v AS X FROM T1 ORDER BY x").await, ["2"]);
    // Aliases that differ from a column in case only.
    assert_eq!(f.rows("SELECT v + 1 AS v FROM T1 ORDER BY v").await, ["3"]);
    assert_eq!(f.rows("SELECT x.v FROM (SELECT v + 1 AS v FROM T1) x WHERE x.v = 3").await, ["3"]);
    assert_eq!(f.rows("WITH x AS (SELECT 5 AS v FROM T1) SELECT x.V AS v FROM x").await, ["5"]);
    assert!(f.error("SELECT * FROM t1").await.text().contains("Table [t1] does not exist in database [d]."));
}

#[tokio::test]
async fn aggregates_widen_as_doris_does() {
    let mut f = Fixture::with_database().await;
    f.run("CREATE TABLE t (k INT, d DECIMAL(9,2), s STRING) DUPLICATE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 2").await;
    f.run("INSERT INTO t VALUES (1, 1.50, 'a'), (2, 2.25, 'b'), (3, NULL, 'b')").await;
    assert_eq!(
        f.rows("SELECT count(*), count(d), sum(k), avg(k), sum(d), min(s), max(d) FROM t").await,
        ["3|2|6|2|3.75|a|2.25"]
    );
    assert_eq!(f.rows("SELECT s, count(*) AS n FROM t GROUP BY s HAVING n > 1").await, ["b|2"]);
    assert_eq!(f.rows("SELECT count(DISTINCT s) FROM t").await, ["2"]);
    assert_eq!(f.rows("SELECT sum(k) FROM t WHERE k > 100").await, ["NULL"]);
}

#[tokio::test]
async fn dates_compare_with_text_and_with_each_other() {
    let mut f = Fixture::with_database().await;
    f.run(
        "CREATE TABLE t (k INT, d DATE, m DATETIME(3), z DATETIME) DUPLICATE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 1",
    )
    .await;
    f.run("INSERT INTO t VALUES (1, '2024-01-31', '2024-01-31 10:00:00.123', '9999-12-31 23:59:59'), (2, '0000-01-01', NULL, '0001-01-01 00:00:00')").await;
    for (predicate, keys) in [
        ("d = '2024-01-31'", vec!["1"]),
        ("d < '2024-01-31 00:00:01'", vec!["1", "2"]),
        ("m > '2024-01-31 10:00:00.122999'", vec!["1"]),
        ("m = '2024-01-31 10:00:00.123'", vec!["1"]),
        ("m > d", vec!["1"]),
        ("z >= '9999-12-31'", vec!["1"]),
        ("z IN ('0001-01-01 00:00:00')", vec!["2"]),
        ("d BETWEEN '0000-01-01' AND '1000-01-01'", vec!["2"]),
    ] {
        assert_eq!(f.sorted(&format!("SELECT k FROM t WHERE {predicate}")).await, keys, "{predicate}");
    }
    assert_eq!(
        f.rows("SELECT d, m, z FROM t WHERE k = 1").await,
        ["2024-01-31|2024-01-31 10:00:00.123|9999-12-31 23:59:59"]
    );
}

#[tokio::test]
async fn predicates_as_clients_push_them() {
    let mut f = Fixture::with_database().await;
    f.run("SET enable_decimal256 = true").await;
    f.run(
        "CREATE TABLE t (k INT, b BOOLEAN, li LARGEINT, d DECIMAL(10,2), w DECIMAL(40,3), db DOUBLE, s VARCHAR(20), c CHAR(4), \
         dt DATE, m DATETIME(6)) DUPLICATE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 2",
    )
    .await;
    f.run(
        "INSERT INTO t VALUES (-5, true, 170141183460469231731687303715884105727, 1.50, 7.125, 1.5, 'it''s 5%', 'ab', '2024-02-29', \
         '2024-02-29 12:00:00.5'), (7, false, -1, -2.25, NULL, CAST('NaN' AS DOUBLE), 'a\\\\b', NULL, NULL, NULL), \
         (8, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)",
    )
    .await;
    for (predicate, keys) in [
        ("(`k` = (-5))", vec!["-5"]),
        ("(`k` IN ((-5), 7))", vec!["-5", "7"]),
        ("(`k` NOT IN (7, 8))", vec!["-5"]),
        ("(`b` = TRUE)", vec!["-5"]),
        ("(NOT (`b` = TRUE))", vec!["7"]),
        ("`b`", vec!["-5"]),
        ("b = 1", vec!["-5"]),
        ("(`li` = CAST('170141183460469231731687303715884105727' AS LARGEINT))", vec!["-5"]),
        ("(`li` IN (CAST('-1' AS LARGEINT), CAST('5' AS LARGEINT)))", vec!["7"]),
        ("li < 0", vec!["7"]),
        ("(`d` >= CAST('1.50' AS DECIMAL(10, 2)))", vec!["-5"]),
        ("d = 1.5", vec!["-5"]),
        ("d < 0", vec!["7"]),
        ("(`w` = CAST('7.125' AS DECIMAL(40, 3)))", vec!["-5"]),
        ("(`db` = CAST('1.5e0' AS DOUBLE))", vec!["-5"]),
        ("(`s` = 'it''s 5%')", vec!["-5"]),
        ("(`s` = 'a\\\\b')", vec!["7"]),
        ("(`s` IN ('a\\\\b', 'x'))", vec!["7"]),
        ("(`s` NOT IN ('a\\\\b', 'x'))", vec!["-5"]),
        ("(`s` LIKE 'it%')", vec!["-5"]),
        ("(`s` LIKE '%5\\%')", vec!["-5"]),
        ("(`s` LIKE 'a\\\\\\\\b')", vec!["7"]),
        ("(`c` = 'ab')", vec!["-5"]),
        ("c = 'ab  '", vec![]),
        ("(`dt` = CAST('2024-02-29' AS DATE))", vec!["-5"]),
        (
            "(`m` BETWEEN CAST('2024-02-29 12:00:00.500000' AS DATETIME(6)) AND CAST('9999-12-31 00:00:00.000000' AS DATETIME(6)))",
            vec!["-5"],
        ),
        ("(`s` IS NULL)", vec!["8"]),
        ("(`s` IS NOT NULL)", vec!["-5", "7"]),
        ("NOT (s <=> NULL)", vec!["-5", "7"]),
        ("(`k` < 0 OR (`k` > 7 AND `s` IS NULL))", vec!["-5", "8"]),
    ] {
        let rows = f.try_rows(&format!("SELECT `k` FROM `d`.`t` WHERE {predicate} ORDER BY k")).await;
        assert_eq!(rows, Ok(keys.iter().map(|k| (*k).to_owned()).collect()), "{predicate}");
    }
    let many: Vec<String> = (0..3000).map(|i| format!("'v{i}'")).collect();
    assert!(f.rows(&format!("SELECT k FROM t WHERE s IN ({})", many.join(", "))).await.is_empty());
    assert_eq!(f.rows("SELECT COUNT(*) AS `row_count` FROM `d`.`t`").await, ["3"]);
}

#[tokio::test]
async fn older_builds_tag_datetime_with_the_session_zone() {
    use arrow::datatypes::{DataType, TimeUnit};
    let mut f = Fixture::new(crate::engine::Profile::V4_0);
    f.run("SET time_zone = 'Asia/Shanghai'").await;
    let sql = "SELECT CAST('2024-01-01 08:00:00' AS DATETIME) AS m";
    assert_eq!(f.rows(sql).await, ["2024-01-01 08:00:00"]);
    let results = f.session.execute(sql).await.expect(sql);
    let Some(crate::engine::StatementResult::Rows { schema, .. }) = results.into_iter().next() else { panic!("{sql}") };
    assert_eq!(schema.field(0).data_type(), &DataType::Timestamp(TimeUnit::Second, Some("Asia/Shanghai".into())));
}

#[tokio::test]
async fn a_column_may_stand_beside_all_columns() {
    let mut f = Fixture::with_database().await;
    f.run("CREATE TABLE d.t (id INT, v INT) DUPLICATE KEY(id) DISTRIBUTED BY HASH(id) BUCKETS 1").await;
    f.run("INSERT INTO d.t VALUES (1, 2)").await;
    assert_eq!(f.rows("SELECT *, id, v + 1 FROM d.t").await, ["1|2|1|3"]);
    assert_eq!(f.rows("SELECT x.id, x.* FROM d.t x").await, ["1|1|2"]);
    for (sql, text) in [
        ("SELECT * FROM (SELECT id, id FROM d.t) x", "does not implement several columns of one name"),
        ("SELECT id, count(*) FROM d.t GROUP BY v", "must appear in the GROUP BY clause"),
        ("SELECT 1 WHERE 1 = 0 HAVING 1 = 1", "HAVING may name"),
    ] {
        let error = f.error(sql).await;
        assert!(error.message.contains(text) && !error.message.contains("__doris"), "{sql}: {}", error.message);
    }
}
