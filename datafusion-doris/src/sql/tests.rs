#![allow(clippy::unwrap_used, clippy::expect_used)]

use arrow::datatypes::i256;
use datafusion::common::ScalarValue;
use datafusion::logical_expr::{Expr, Like, cast, col, ident, lit, not};
use proptest::prelude::*;

use super::literal::{date_literal, datetime_literal, decimal_literal, double_literal, integer_literal};
use super::*;
use crate::types::{ColumnSchema, DorisType, TableIdent, TableSchema};

/// Doris' own decoding of a string literal: first the doubled quote, then the escapes.
fn decode(literal: &str) -> String {
    let inner = literal.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\'')).unwrap();
    // A quote inside must be doubled, or the literal would have ended there.
    let mut undoubled = String::new();
    let mut chars = inner.chars();
    while let Some(c) = chars.next() {
        if c == '\'' {
            assert_eq!(chars.next(), Some('\''), "{literal}");
        }
        undoubled.push(c);
    }
    let mut out = String::new();
    let mut chars = undoubled.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        match chars.next() {
            None => out.push('\\'),
            Some('0') => out.push('\0'),
            Some('b') => out.push('\u{8}'),
            Some('n') => out.push('\n'),
            Some('r') => out.push('\r'),
            Some('t') => out.push('\t'),
            Some('Z') => out.push('\u{1a}'),
            Some(keep @ ('%' | '_')) => out.extend(['\\', keep]),
            Some(other) => out.push(other),
        }
    }
    out
}

proptest! {
    #[test]
    fn string_literal_reads_back(text in "(\\PC|[\\\\'\"\0\n\t%_]){0,20}") {
        prop_assert_eq!(decode(&string_literal(&text)), text);
    }

    #[test]
    fn quoted_identifier_holds_one_name(name in "(\\PC|`){1,12}") {
        let quoted = quote_ident(&name);
        prop_assert_eq!(quoted[1..quoted.len() - 1].replace("``", "`"), name);
    }

    #[test]
    fn double_literal_keeps_its_bits(value in any::<f64>()) {
        if let Some(literal) = double_literal(value) {
            let text = literal.strip_prefix("CAST('").unwrap().strip_suffix("' AS DOUBLE)").unwrap();
            prop_assert_eq!(text.parse::<f64>().unwrap().to_bits(), value.to_bits());
        } else {
            prop_assert!(!value.is_finite() || value == 0.0);
        }
    }
}

#[test]
fn literals_that_would_end_early_or_inject_do_not() {
    for (text, expected) in [
        ("a''b", "'a''''b'"),
        ("c:\\new", "'c:\\\\new'"),
        ("x\\", "'x\\\\'"),
        ("\\'' OR 1=1 -- ", "'\\\\'''' OR 1=1 -- '"),
        ("a\0b", "'a\\0b'"),
    ] {
        assert_eq!(string_literal(text), expected);
    }
}

#[test]
fn number_and_time_literals_have_the_type_of_the_column() {
    assert_eq!((integer_literal(5), integer_literal(-5)), ("5".into(), "(-5)".into()));
    let decimal = |value: i128, from, precision, scale| decimal_literal(i256::from_i128(value), from, precision, scale);
    for (found, expected) in [
        (decimal(150, 2, 10, 2), Some("CAST('1.50' AS DECIMAL(10, 2))")),
        (decimal(-5, 2, 10, 2), Some("CAST('-0.05' AS DECIMAL(10, 2))")),
        (decimal(15, 1, 10, 2), Some("CAST('1.50' AS DECIMAL(10, 2))")),
        (decimal(1500, 3, 10, 2), Some("CAST('1.50' AS DECIMAL(10, 2))")),
        (decimal(1501, 3, 10, 2), None),
        (decimal(100_000, 0, 5, 0), None),
        (decimal(7, -2, 5, 0), Some("CAST('700' AS DECIMAL(5, 0))")),
        (date_literal(-1), Some("CAST('1969-12-31' AS DATE)")),
        (date_literal(i32::MAX), None),
        (datetime_literal(-1), Some("CAST('1969-12-31 23:59:59.999999' AS DATETIME(6))")),
        (datetime_literal(1_500_000), Some("CAST('1970-01-01 00:00:01.500000' AS DATETIME(6))")),
        (datetime_literal(i64::MIN), None),
        (double_literal(1e300), Some("CAST('1e300' AS DOUBLE)")),
        (double_literal(-0.1), Some("CAST('-1e-1' AS DOUBLE)")),
        (double_literal(-0.0), None),
        (double_literal(f64::NAN), None),
    ] {
        assert_eq!(found.as_deref(), expected);
    }
}

fn schema() -> TableSchema {
    let column = ColumnSchema::new;
    TableSchema {
        table: TableIdent::new("db", "t"),
        model: None,
        columns: vec![
            column("i", DorisType::Int),
            column("big", DorisType::LargeInt),
            column("d", DorisType::Decimal(10, 2)),
            column("x", DorisType::Double),
            column("f", DorisType::Float),
            column("s", DorisType::String),
            column("c", DorisType::Char(4)),
            column("b", DorisType::Boolean),
            column("day", DorisType::Date),
            column("at", DorisType::DateTime(3)),
            column("tz", DorisType::TimestampTz(6)),
            column("j", DorisType::Json),
            column("ip", DorisType::Ipv4),
            column("l", DorisType::Array(Box::new(DorisType::Int))),
            column("Na`me", DorisType::Int),
        ],
        properties: Default::default(),
    }
}

fn like(pattern: &str, escape: Option<char>, case_insensitive: bool) -> Expr {
    Expr::Like(Like::new(false, Box::new(col("s")), Box::new(lit(pattern)), escape, case_insensitive))
}

#[test]
fn accepted_filters_print_as_doris_reads_them() {
    let largeint = |value: i128| lit(ScalarValue::Decimal256(Some(i256::from_i128(value)), 39, 0));
    let micros = |value| lit(ScalarValue::TimestampMicrosecond(Some(value), None));
    for (expr, expected) in [
        (col("i").eq(lit(5i32)), "(`i` = 5)"),
        (lit(5i64).lt(col("i")), "(`i` > 5)"),
        (col("i").not_eq(lit(-5i32)), "(`i` <> (-5))"),
        (ident("Na`me").gt_eq(lit(1i32)), "(`Na``me` >= 1)"),
        (col("big").gt(largeint(i128::MIN)), &format!("(`big` > CAST('{}' AS LARGEINT))", i128::MIN)),
        (col("big").eq(lit(9i64)), "(`big` = CAST('9' AS LARGEINT))"),
        (col("d").eq(lit(ScalarValue::Decimal128(Some(150), 10, 2))), "(`d` = CAST('1.50' AS DECIMAL(10, 2)))"),
        (col("x").lt(lit(1.5f64)), "(`x` < CAST('1.5e0' AS DOUBLE))"),
        (col("x").between(lit(1.0f64), lit(2.0f64)), "(`x` BETWEEN CAST('1e0' AS DOUBLE) AND CAST('2e0' AS DOUBLE))"),
        (col("s").eq(lit("O'Hara\\")), "(`s` = 'O''Hara\\\\')"),
        (col("s").eq(lit(ScalarValue::Utf8View(Some("北京".into())))), "(`s` = '北京')"),
        (col("b"), "(`b` = TRUE)"),
        (not(col("b")), "(NOT (`b` = TRUE))"),
        (col("b").eq(lit(false)), "(`b` = FALSE)"),
        (col("day").lt_eq(lit(ScalarValue::Date32(Some(0)))), "(`day` <= CAST('1970-01-01' AS DATE))"),
        (col("at").gt(micros(123_456)), "(`at` > CAST('1970-01-01 00:00:00.123456' AS DATETIME(6)))"),
        (
            col("at").gt(lit(ScalarValue::TimestampNanosecond(Some(5_000), None))),
            "(`at` > CAST('1970-01-01 00:00:00.000005' AS DATETIME(6)))",
        ),
        (col("ip").is_null(), "(`ip` IS NULL)"),
        (col("s").is_not_null(), "(`s` IS NOT NULL)"),
        (col("i").between(lit(1i32), lit(9i32)), "(`i` BETWEEN 1 AND 9)"),
        (col("i").not_between(lit(1i32), lit(9i32)), "(`i` NOT BETWEEN 1 AND 9)"),
        (col("s").in_list(vec![lit("a"), lit("b'")], true), "(`s` NOT IN ('a', 'b'''))"),
        (like("50\\%_%", None, false), "(`s` LIKE '50\\\\%_%')"),
        (like("a%", Some('\\'), false), "(`s` LIKE 'a%')"),
        (
            col("i").eq(lit(1i32)).or(col("i").eq(lit(2i32))).and(not(col("s").eq(lit("x")))),
            "(((`i` = 1) OR (`i` = 2)) AND (NOT (`s` = 'x')))",
        ),
        (col("i").eq(lit(1i32)).alias("named"), "(`i` = 1)"),
    ] {
        assert_eq!(filter_sql(&expr, &schema()).as_deref(), Some(expected), "{expr}");
    }
}

#[test]
fn filters_that_could_mean_something_else_are_refused() {
    let zoned = ScalarValue::TimestampMicrosecond(Some(0), Some("UTC".into()));
    for expr in [
        col("i").eq(col("d")),
        col("i").eq(lit("5")),
        col("i").eq(lit(1.5f64)),
        col("i").eq(lit(ScalarValue::Int32(None))),
        cast(col("i"), arrow::datatypes::DataType::Utf8).eq(lit("5")),
        col("big").eq(lit("5")),
        col("big").eq(lit(ScalarValue::Decimal256(Some(i256::MAX), 76, 0))),
        col("big").eq(lit(ScalarValue::Decimal128(Some(15), 10, 1))),
        col("d").eq(lit(ScalarValue::Decimal128(Some(1501), 10, 3))),
        col("x").eq(lit(1.5f64)),
        col("x").gt(lit(1.5f64)),
        col("x").lt(lit(f64::NAN)),
        col("x").lt(lit(f64::INFINITY)),
        col("x").lt(lit(0.0f64)),
        not(col("x").lt(lit(1.5f64))),
        col("x").not_between(lit(1.0f64), lit(2.0f64)),
        col("x").in_list(vec![lit(1.5f64)], false),
        col("f").lt(lit(1.5f32)),
        col("c").eq(lit("a\0")),
        col("b").lt(lit(true)),
        col("at").gt(lit(zoned.clone())),
        col("at").gt(lit(ScalarValue::TimestampNanosecond(Some(5_001), None))),
        col("tz").gt(lit(zoned)),
        col("j").eq(lit("{}")),
        col("j").is_null(),
        col("ip").eq(lit("1.2.3.4")),
        col("l").is_null(),
        col("missing").eq(lit(1i32)),
        col("i").in_list(vec![], false),
        col("i").in_list(vec![lit(1i32), lit(ScalarValue::Int32(None))], true),
        col("i").in_list(vec![lit(1i32); 10_001], false),
        like("A%", None, true),
        like("a!%", Some('!'), false),
        like("a\\b", None, false),
        like("a\\\\%", None, false),
        like("a\\", None, false),
        col("i"),
        col("i").is_true(),
        col("i").eq(lit(1i32)).or(col("ip").eq(lit("x"))),
        (col("i") + lit(1i32)).eq(lit(2i32)),
    ] {
        assert_eq!(filter_sql(&expr, &schema()), None, "{expr}");
    }
}

#[test]
fn long_in_list_is_cut_into_balanced_chunks() {
    let values: Vec<Expr> = (0..2_500i32).map(lit).collect();
    let chunks = |text: &str, word: &str| text.matches(word).count();
    let found = filter_sql(&col("i").in_list(values.clone(), false), &schema()).unwrap();
    assert_eq!((chunks(&found, " IN ("), chunks(&found, " OR ")), (3, 2));
    let negated = filter_sql(&col("i").in_list(values, true), &schema()).unwrap();
    assert_eq!((chunks(&negated, " NOT IN ("), chunks(&negated, " AND "), chunks(&negated, " OR ")), (3, 2, 0));
}

#[test]
fn long_chain_is_printed_as_a_shallow_tree() {
    let chain = (0..5_000i32).map(|i| col("i").eq(lit(i))).reduce(Expr::or).unwrap();
    let text = filter_sql(&chain, &schema()).unwrap();
    let mut depth = 0usize;
    let deepest = text
        .chars()
        .map(|c| {
            match c {
                '(' => depth += 1,
                ')' => depth -= 1,
                _ => {}
            }
            depth
        })
        .max();
    assert!(deepest < Some(20), "{deepest:?}");
    let nested = (0..300).fold(col("b"), |inner, _| not(inner));
    assert_eq!(filter_sql(&nested, &schema()), None);
}

#[test]
fn scan_statement_has_projection_tablets_filter_and_limit() {
    let table = TableIdent::new("d`b", "t");
    let mut scan = ScanSelect {
        query: None,
        table: &table,
        columns: &["a", "b c"],
        as_of: None,
        tablets: &[10, 11],
        filter: Some("(`a` = 1)"),
        limit: Some(5),
    };
    assert_eq!(
        scan.to_sql(),
        "/* ApplicationName=datafusion-doris */ SELECT `a`, `b c` FROM `d``b`.`t` TABLET(10,11) WHERE (`a` = 1) LIMIT 5"
    );
    scan = ScanSelect { columns: &[], tablets: &[], filter: None, ..scan };
    assert_eq!(scan.body(), "SELECT COUNT(*) AS `row_count` FROM `d``b`.`t`");
}

#[test]
fn changelog_statement_has_its_window_in_utc_and_a_total_order() {
    let table = TableIdent::new("db", "t");
    let hidden = HiddenColumns::binlog();
    let select = ChangelogSelect {
        table: &table,
        columns: &["id", "v"],
        hidden: &hidden,
        start_ms: 0,
        end_ms: 1_785_542_410_000,
        increment_type: IncrementType::Detail,
        key: &[],
    };
    let order = "`__DORIS_BINLOG_TSO__`, `__DORIS_BINLOG_LSN__`, `__DORIS_BINLOG_OP__`";
    let window = "FROM `db`.`t`@incr('startTimestamp' = '1970-01-01 00:00:00', 'endTimestamp' = \
                  '2026-08-01 00:00:10', 'incrementType' = 'DETAIL')";
    assert_eq!(
        select.to_sql().unwrap(),
        format!("{STATEMENT_PREFIX}SELECT `id`, `v`, {order} {window} ORDER BY {order}")
    );
    assert_eq!(select.probe_sql().unwrap(), format!("{STATEMENT_PREFIX}SELECT `id`, `v`, {order} {window} LIMIT 0"));
    let key = ["k`1".to_string(), "id".to_string()];
    let net = ChangelogSelect { increment_type: IncrementType::MinDelta, key: &key, ..select.clone() };
    let sql = net.to_sql().unwrap();
    assert!(sql.ends_with("'MIN_DELTA') ORDER BY `k``1`, `id`, `__DORIS_BINLOG_OP__`"), "{sql}");
    assert_eq!(
        commit_at_sql(&table, &hidden, 1_785_542_410_000, 5..6).unwrap(),
        format!(
            "{STATEMENT_PREFIX}SELECT `__DORIS_BINLOG_TSO__` FROM `db`.`t`@incr('startTimestamp' = '2026-08-01 00:00:09', \
             'endTimestamp' = '2026-08-01 00:00:11', 'incrementType' = 'DETAIL') WHERE `__DORIS_BINLOG_TSO__` >= 5 AND \
             `__DORIS_BINLOG_TSO__` < 6 LIMIT 1"
        )
    );
    assert_eq!(
        first_change_sql(&table, &hidden, 1_785_542_410_000).unwrap(),
        format!("{STATEMENT_PREFIX}SELECT MIN(`__DORIS_BINLOG_TSO__`) AS `first_tso` {window}")
    );
    let error = ChangelogSelect { end_ms: 1_500, ..select }.to_sql().unwrap_err().to_string();
    assert!(error.contains("db.t") && error.contains("whole second"), "{error}");
    assert_eq!(utc_text(-1_000).as_deref(), Some("1969-12-31 23:59:59"));
}
