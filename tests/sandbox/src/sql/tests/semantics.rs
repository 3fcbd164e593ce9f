//! Section J: literals, operators, comparison and functions as Doris means them.

use super::{Fixture, check};
use crate::engine::{Profile, StatementResult};

/// Type and text of every column of a one-row query, as `type text`, joined by `|`.
async fn typed(f: &mut Fixture, sql: &str) -> Result<String, String> {
    use futures::TryStreamExt;
    let result = f.session.execute(sql).await.map_err(|error| error.to_string())?.pop();
    let Some(StatementResult::Rows { stream, types, .. }) = result else { return Err("no rows".to_owned()) };
    let batches: Vec<_> = stream.try_collect().await.map_err(|error| error.to_string())?;
    let batch = batches.iter().find(|batch| batch.num_rows() > 0).ok_or("no row")?;
    let cell = |(column, ty): (&arrow::array::ArrayRef, &crate::types::DorisType)| {
        let text = crate::types::text_value(column.as_ref(), 0, ty, crate::types::TextStyle::Mysql);
        format!("{ty} {}", text.unwrap_or_else(|| "NULL".to_owned()))
    };
    Ok(batch.columns().iter().zip(&types).map(cell).collect::<Vec<_>>().join("|"))
}

/// Checks `(expression, expected)` pairs; all that differ are told at once.
async fn check_typed(f: &mut Fixture, cases: &[(&str, &str)]) {
    let mut wrong = Vec::new();
    for (expr, expected) in cases {
        let got = typed(f, &format!("SELECT {expr}")).await;
        if got.as_deref() != Ok(*expected) {
            wrong.push(format!("{expr}: {got:?}, expected {expected:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test]
async fn literals_have_the_smallest_type() {
    let mut f = Fixture::with_database().await;
    check_typed(
        &mut f,
        &[
            ("127", "tinyint 127"),
            ("128", "smallint 128"),
            ("-128", "smallint -128"),
            ("-127", "tinyint -127"),
            ("32768", "int 32768"),
            ("2147483648", "bigint 2147483648"),
            ("9223372036854775808", "largeint 9223372036854775808"),
            ("-170141183460469231731687303715884105728", "largeint -170141183460469231731687303715884105728"),
            ("1.5e0", "decimal(2,1) 1.5"),
            ("1e10", "decimal(11,0) 10000000000"),
            ("1e40", "double 1e+40"),
            ("0.10", "decimal(2,2) 0.10"),
            ("TRUE", "boolean 1"),
            ("'a'", "string a"),
            ("DATE '2024-01-31'", "date 2024-01-31"),
            ("TIMESTAMP '2024-01-31 01:02:03.45'", "datetime(2) 2024-01-31 01:02:03.45"),
            ("TIMESTAMP '2024-01-31T01:02:03+08:00'", "datetime 2024-01-30 17:02:03"),
            ("[1, 300]", "array<smallint> [1, 300]"),
            ("{'a': 1, 'b': 2}", "map<string,tinyint> {\"a\":1, \"b\":2}"),
            ("MAP('a', 1)", "map<string,tinyint> {\"a\":1}"),
            ("named_struct('f', 1, 'g', 'x')", "struct<f:tinyint,g:string> {\"f\":1, \"g\":\"x\"}"),
            ("NULL", "null NULL"),
            ("[]", "array<null> []"),
        ],
    )
    .await;
    check_typed(&mut f, &[("99999999999999999999999999999999999999999999", "double 1e+44")]).await;
    for sql in ["SELECT CAST(1 AS DECIMAL(39,1))", "SELECT CAST('[1]' AS ARRAY<DECIMAL(76,1)>)"] {
        let error = f.try_rows(sql).await.unwrap_err();
        assert!(error.contains("set enable_decimal256 = true to enable it"), "{error}");
    }
    f.run("SET enable_decimal256 = true").await;
    check_typed(&mut f, &[("1e40", "decimal(41,0) 10000000000000000000000000000000000000000")]).await;
}

#[tokio::test]
async fn arithmetic_has_the_types_and_values_of_doris() {
    let mut f = Fixture::with_database().await;
    check_typed(
        &mut f,
        &[
            ("1 + 1", "smallint 2"),
            ("127 + 1", "smallint 128"),
            ("CAST(1 AS INT) + 1", "bigint 2"),
            ("CAST(9223372036854775807 AS BIGINT) + 1", "bigint -9223372036854775808"),
            ("9223372036854775807 * 2", "bigint -2"),
            ("CAST(1 AS LARGEINT) + 1", "largeint 2"),
            (
                "CAST('170141183460469231731687303715884105727' AS LARGEINT) + 1",
                "largeint -170141183460469231731687303715884105728",
            ),
            ("7 / 2", "double 3.5"),
            ("7 DIV 2", "bigint 3"),
            ("-7 DIV 2 + 1", "bigint -2"),
            ("7 % 3", "tinyint 1"),
            ("-7 % 3", "tinyint -1"),
            ("1 / 0", "double NULL"),
            ("1 DIV 0", "bigint NULL"),
            ("1 % 0", "tinyint NULL"),
            ("1.5 / 0", "decimal(6,5) NULL"),
            ("1.5 % 0", "decimal(4,1) NULL"),
            ("1.5 + 1", "decimal(5,1) 2.5"),
            ("1.5 + 1.25", "decimal(4,2) 2.75"),
            ("1.5 * 1.25", "decimal(5,3) 1.875"),
            ("1.0 / 3.0", "decimal(7,5) 0.33333"),
            ("2.0 / 3", "decimal(6,5) 0.66666"),
            ("5.5 % 2", "decimal(4,1) 1.5"),
            ("CAST(1 AS DECIMAL(38,10)) * CAST(2 AS DECIMAL(38,10))", "decimal(38,6) 2.000000"),
            ("CAST(1 AS DECIMAL(38,4)) + CAST(2 AS DECIMAL(38,10))", "decimal(38,4) 3.0000"),
            ("1.5 + CAST(1 AS DOUBLE)", "double 2.5"),
            ("'3' + 4", "double 7"),
            ("NULL + 1", "double NULL"),
            ("-(-5)", "smallint 5"),
            ("- CAST(5 AS INT)", "bigint -5"),
            ("5 & 3, 5 | 3, 5 ^ 3, ~5", "tinyint 1|tinyint 7|tinyint 6|tinyint -6"),
            ("2 ^ 3 * 2", "smallint 2"),
            ("1 + 2 * 3 - 4 / 2", "double 5"),
            ("pmod(-7, 3)", "tinyint 2"),
        ],
    )
    .await;
    let error = f.try_rows("SELECT CAST(9e37 AS DECIMAL(38,0)) + CAST(9e37 AS DECIMAL(38,0))").await.unwrap_err();
    assert!(error.contains("Arithmetic overflow"), "{error}");
}

#[tokio::test]
async fn logic_and_comparison() {
    let mut f = Fixture::with_database().await;
    check(
        &mut f,
        &[
            ("1 || 0, 0 || 0, NULL || 1, NULL || 0", "1|0|1|NULL"),
            ("1 && 0, 1 && 1, NULL && 0", "0|1|0"),
            ("!1, !0, !NULL, !1 = 0", "0|1|NULL|1"),
            ("NOT 1 = 0", "1"),
            ("1 XOR 1, 1 XOR 0, NULL XOR 1", "0|1|NULL"),
            ("NULL <=> NULL, 1 <=> NULL, 1 <=> 1", "1|0|1"),
            ("1 IS TRUE, 0 IS TRUE, NULL IS TRUE, NULL IS NOT TRUE, 0 IS FALSE", "1|0|0|1|1"),
            ("'a' = 'A', 'a' = 'a ', 'b' > 'a'", "0|0|1"),
            ("'10' = 10, '1.0' = 1, 'x' = 1, '9' < 10", "1|1|NULL|1"),
            ("CAST('NaN' AS DOUBLE) = CAST('NaN' AS DOUBLE)", "1"),
            ("CAST('NaN' AS DOUBLE) > 1e300, CAST('NaN' AS DOUBLE) > CAST('Infinity' AS DOUBLE)", "1|1"),
            ("CAST('-0' AS DOUBLE) = CAST('0' AS DOUBLE), CAST('-0' AS DOUBLE) < CAST('0' AS DOUBLE)", "1|0"),
            ("CAST('NaN' AS DOUBLE) <=> CAST('NaN' AS DOUBLE)", "1"),
            ("1 = 1.0, 1.5 > 1, CAST(1 AS LARGEINT) = 1.00", "1|1|1"),
            ("TRUE = 1, TRUE = 2", "1|0"),
            ("DATE '2024-01-31' = '2024-01-31', DATE '2024-01-31' < '2024-01-31 00:00:01'", "1|1"),
            ("DATE '2024-01-31' = 20240131", "1"),
            ("1 IN (1, 2), 3 IN (1, 2), 3 IN (1, NULL), NULL IN (1)", "1|0|NULL|NULL"),
            ("'1' IN (1, 2), 1 NOT IN (2, 3)", "1|1"),
            ("[1, 2] = [1, 2], [1] != [2]", "1|1"),
            ("CASE 2 WHEN 1 THEN 'a' WHEN '2' THEN 'b' ELSE 'c' END", "b"),
            ("CASE WHEN 0 THEN 1 WHEN 5 THEN 2 END", "2"),
            ("IF(5, 'y', 'n'), IF(NULL, 'y', 'n')", "y|n"),
            ("1 WHERE 1", "1"),
            ("CAST('10:00:00' AS TIME) < '11:00:00'", "1"),
            ("CAST('1.2.3.4' AS IPV4) = '1.2.3.4', CAST('1.2.3.4' AS IPV4) < '10.0.0.0'", "1|1"),
        ],
    )
    .await;
    assert!(f.rows("SELECT 1 WHERE 0").await.is_empty());
    let many: Vec<String> = (0..9000).map(|i| i.to_string()).collect();
    assert_eq!(f.rows(&format!("SELECT 8999 IN ({0}), 9001 IN ({0})", many.join(","))).await, ["1|0"]);
}

#[tokio::test]
async fn texts_and_patterns() {
    let mut f = Fixture::with_database().await;
    check(
        &mut f,
        &[
            (r"'a\'b', 'a''b', 'a\\b', 'a\x', 'a\%'", r"a'b|a'b|a\b|ax|a\%"),
            ("\"it's\"", "it's"),
            ("'abc' LIKE 'a_c', 'é' LIKE '_', 'ABC' LIKE 'abc'", "1|1|0"),
            (r"'a%' LIKE 'a\%', 'ab' LIKE 'a\%', 'a_' LIKE 'a\_'", "1|0|1"),
            (r"'a\\b' LIKE 'a\\\\b'", "1"),
            ("'a%c' LIKE 'a|%c' ESCAPE '|', 'abc' LIKE 'a|%c' ESCAPE '|'", "1|0"),
            ("'abc' NOT LIKE '%b%', NULL LIKE 'a', 'a' LIKE NULL", "0|NULL|NULL"),
            ("'abc' REGEXP '^a.c$', 'abc' RLIKE 'B', 'abc' NOT REGEXP 'z'", "1|0|1"),
            ("123 LIKE '1%'", "1"),
            ("1 # comment\n + 1", "2"),
            ("5--2\n", "5"),
            ("1 /* c */ + /* d */ 1", "2"),
        ],
    )
    .await;
    for (sql, text) in [
        ("SELECT 'a' ILIKE 'A'", "mismatched input"),
        ("SELECT 'a' SIMILAR TO 'a'", "mismatched input"),
        ("SELECT 'a' REGEXP '(?=b)'", "look-around"),
        ("SELECT 'a' REGEXP '('", "unclosed group"),
        ("SELECT 'a' LIKE 'a' ESCAPE 'xx'", "like escape character must be a single ascii character: xx"),
        ("SELECT a->'$.b' FROM (SELECT '{}' AS a) x", "operator ->"),
    ] {
        let error = f.try_rows(sql).await.expect_err(sql);
        assert!(error.contains(text), "{sql}: {error}");
    }
    let mut old = Fixture::new(Profile::V2_1);
    assert!(old.error("SELECT 'a' LIKE 'a' ESCAPE '|'").await.text().contains("ESCAPE"));
}

#[tokio::test]
async fn casts_fail_softly_or_strictly() {
    let mut f = Fixture::with_database().await;
    check_typed(
        &mut f,
        &[
            ("CAST('x' AS INT)", "int NULL"),
            ("CAST(300 AS TINYINT)", "tinyint NULL"),
            ("CAST('12.7' AS INT), CAST(12.7 AS INT), CAST(-12.7 AS BIGINT)", "int 12|int 12|bigint -12"),
            ("CAST('abcdef' AS VARCHAR(3)), CAST(1.50 AS STRING)", "string abc|string 1.50"),
            ("CAST(TRUE AS STRING), CAST(TRUE AS INT), CAST('true' AS BOOLEAN)", "string true|int 1|boolean 1"),
            ("CAST('2024-02-30' AS DATE)", "date NULL"),
            ("CAST(1e39 AS DECIMAL(38,0))", "decimal(38,0) NULL"),
            ("CAST('170141183460469231731687303715884105728' AS LARGEINT)", "largeint NULL"),
            ("CAST(1e30 AS LARGEINT)", "largeint 1000000000000000000000000000000"),
            ("CAST('{\"a\": [1, 2]}' AS JSON), CAST('{a' AS JSON)", "json {\"a\":[1,2]}|json NULL"),
            ("CAST('[1,\"x\"]' AS ARRAY<STRING>)", "array<string> [\"1\", \"x\"]"),
            ("CAST([1, 2] AS ARRAY<BIGINT>)", "array<bigint> [1, 2]"),
            ("CAST('-10:20:30.5' AS TIME(1))", "time(1) -10:20:30.5"),
            ("CAST('2024-01-01 00:00:00+08:00' AS DATETIME)", "datetime 2023-12-31 16:00:00"),
            ("CAST('2024-01-01 00:00:00' AS TIMESTAMPTZ)", "timestamptz 2024-01-01 00:00:00 +00:00"),
            ("TRY_CAST('x' AS INT)", "int NULL"),
            ("CAST(DATE '2024-01-31' AS DATETIME(3))", "datetime(3) 2024-01-31 00:00:00.000"),
            ("CAST('3' AS SIGNED)", "bigint 3"),
            ("CAST('NaN' AS FLOAT), CAST('-Infinity' AS DOUBLE)", "float NaN|double -Infinity"),
        ],
    )
    .await;
    f.run("SET enable_strict_cast = true").await;
    let error = f.try_rows("SELECT CAST('x' AS INT)").await.unwrap_err();
    assert!(error.contains("parse INT fail, string: 'x'"), "{error}");
    assert_eq!(f.rows("SELECT TRY_CAST('x' AS INT), CAST('5' AS INT), CAST(NULL AS INT)").await, ["NULL|5|NULL"]);
}
