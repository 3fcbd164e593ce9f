//! J.7 and the functions beside it.

use super::{Fixture, check};
use crate::engine::Profile;

#[tokio::test]
async fn functions_of_texts() {
    let mut f = Fixture::with_database().await;
    check(
        &mut f,
        &[
            ("concat('a', NULL), concat('a', 1, 'b'), concat_ws('-', 'a', NULL, 'b')", "NULL|a1b|a-b"),
            ("length('é'), char_length('é'), bit_length('ab')", "2|1|16"),
            (
                "substr('hello', 0), substr('hello', 2, 2), substring('hello', -3), SUBSTRING('hello' FROM 2)",
                "|el|llo|ello",
            ),
            ("instr('hello', 'l'), locate('l', 'hello'), locate('l', 'hello', 4), POSITION('o' IN 'hello')", "3|3|4|5"),
            ("lower('ÄB'), upper('äb'), initcap('hello world')", "äb|ÄB|Hello World"),
            ("trim('  a '), ltrim('  a'), rtrim('ababxab', 'ab'), trim('ababxab', 'ab')", "a|a|ababx|x"),
            ("lpad('hi', 5, 'xy'), rpad('hi', 5, 'xy'), lpad('hi', 1, 'x'), lpad('hi', -1, 'x')", "xyxhi|hixyx|h|NULL"),
            ("replace('aXbX', 'X', '-'), reverse('abc'), repeat('ab', 3), repeat('a', -1)", "a-b-|cba|ababab|"),
            ("left('hello', 2), right('hello', 2), strleft('a', 5)", "he|lo|a"),
            ("split_part('a,b,c', ',', 2), split_part('a,b,c', ',', -1), split_part('a', ',', 1)", "b|c|NULL"),
            ("substring_index('a.b.c', '.', 2), substring_index('a.b.c', '.', -1)", "a.b|c"),
            ("ascii('A'), hex('ab'), hex(255), unhex('6162'), char(65, 66)", "65|6162|FF|ab|AB"),
            ("md5('a'), crc32('a')", "0cc175b9c0f1b6a831c399e269772661|3904355907"),
            ("sha2('a', 256)", "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb"),
            ("find_in_set('b', 'a,b'), field('b', 'a', 'b'), strcmp('a', 'b')", "2|2|-1"),
            ("starts_with('abc', 'a'), ends_with('abc', 'x')", "1|0"),
            ("to_base64('a'), from_base64('YQ==')", "YQ==|a"),
            (
                "split_by_string('a,b', ','), array_join([1, NULL, 3], '-'), array_join([1, NULL], '-', 'x')",
                "[\"a\", \"b\"]|1-3|1-x",
            ),
        ],
    )
    .await;
    let mut old = Fixture::new(Profile::V2_1);
    check(&mut old, &[("lower('ÄB'), upper('äb')", "Äb|äB")]).await;
}

#[tokio::test]
async fn functions_of_numbers() {
    let mut f = Fixture::with_database().await;
    check(
        &mut f,
        &[
            ("log(2, 8), round(log(10), 4), ln(1), log10(100), log2(8), ln(0)", "3|2.3026|0|2|3|NULL"),
            ("round(2.5), round(-2.5), round(1.255, 2), round(15, -1), round(2.45, 1)", "3|-3|1.26|20|2.5"),
            ("truncate(1.999, 2), truncate(-1.999, 0), truncate(123.4, -2)", "1.99|-1|100"),
            ("ceil(1.2), floor(-1.2), ceil(CAST(1.2 AS DOUBLE)), CEILING(2.0)", "2|-2|2|2"),
            ("abs(-5), abs(-1.5), sign(-3), sqrt(16), pow(2, 10), mod(7, 3), fmod(7.5, 2)", "5|1.5|-1|4|1024|1|1.5"),
            ("greatest(1, 2.5, 2), least('b', 'a'), greatest(1, NULL)", "2.5|a|NULL"),
            ("bin(5), conv('ff', 16, 10), conv(10, 10, 2), bit_count(7)", "101|255|1010|3"),
            ("bitand(6, 3), bitor(6, 3), bitxor(6, 3), bitnot(5)", "2|7|5|-6"),
            ("sqrt(-1), 1 + pi() > 4, isnan(CAST('NaN' AS DOUBLE))", "NULL|1|1"),
        ],
    )
    .await;
}

#[tokio::test]
async fn functions_of_time() {
    let mut f = Fixture::with_database().await;
    check(
        &mut f,
        &[
            ("now(), now(3), curdate(), current_timestamp()", "2024-01-01 00:00:00|2024-01-01 00:00:00.000|2024-01-01|2024-01-01 00:00:00"),
            ("date_trunc('2024-05-17 13:45:00', 'month'), date_trunc('2024-05-17 13:45:00', 'week')", "2024-05-01 00:00:00|2024-05-13 00:00:00"),
            ("date_add('2024-01-31', INTERVAL 1 MONTH), date_sub('2024-03-01', INTERVAL 1 DAY)", "2024-02-29|2024-02-29"),
            ("DATE '2024-01-31' + INTERVAL 1 DAY, TIMESTAMP '2024-01-31 00:00:00' - INTERVAL 1 SECOND", "2024-02-01|2024-01-30 23:59:59"),
            ("DATE '2024-01-31' + INTERVAL 2 HOUR, date_add('2024-01-01', 5)", "2024-01-31 02:00:00|2024-01-06"),
            ("datediff('2024-03-01', '2024-02-28 23:00:00'), timestampdiff(MONTH, '2024-01-31', '2024-03-30')", "2|1"),
            ("timestampdiff(SECOND, '2024-01-01', '2024-01-01 00:01:00'), timestampadd(DAY, 1, '2024-01-01')", "60|2024-01-02"),
            ("year('2024-05-17'), quarter('2024-05-17'), dayofweek('2024-05-17'), weekday('2024-05-17'), dayofyear('2024-05-17')", "2024|2|6|4|138"),
            ("hour('2024-05-17 13:45:09'), minute('2024-05-17 13:45:09'), second('2024-05-17 13:45:09'), EXTRACT(DAY FROM '2024-05-17')", "13|45|9|17"),
            ("last_day('2024-02-10'), dayname('2024-05-17'), monthname('2024-05-17'), weekofyear('2024-01-01')", "2024-02-29|Friday|May|1"),
            ("date_format('2024-05-17 13:45:09', '%Y/%m/%d %H:%i:%s'), str_to_date('17.05.2024', '%d.%m.%Y')", "2024/05/17 13:45:09|2024-05-17"),
            ("str_to_date('2024-05-17 01:02:03', '%Y-%m-%d %H:%i:%s'), str_to_date('x', '%Y')", "2024-05-17 01:02:03|NULL"),
            ("from_unixtime(0), from_unixtime(1704067200, '%Y'), unix_timestamp('2024-01-01 00:00:00'), unix_timestamp()", "1970-01-01 00:00:00|2024|1704067200|1704067200"),
            ("to_date('2024-05-17 13:00:00'), to_days('2024-01-01'), from_days(739251), makedate(2024, 60)", "2024-05-17|739251|2024-01-01|2024-02-29"),
            ("timediff('2024-01-02 00:00:00', '2024-01-01 12:00:00'), sec_to_time(3661), time_to_sec('01:01:01')", "12:00:00|01:01:01|3661"),
            ("convert_tz('2024-01-01 00:00:00', 'UTC', 'Asia/Shanghai'), hours_add('2024-01-01 00:00:00', 3)", "2024-01-01 08:00:00.000000|2024-01-01 03:00:00"),
        ],
    )
    .await;
    f.run("SET time_zone = '+08:00'").await;
    check(
        &mut f,
        &[(
            "now(), from_unixtime(0), unix_timestamp('1970-01-01 08:00:00')",
            "2024-01-01 08:00:00|1970-01-01 08:00:00|0",
        )],
    )
    .await;
    check(
        &mut f,
        &[
            (
                "date_format('2020-01-05', '%j %D %U %u %V %v %X %x'), date_format('2021-01-02', '%X-%V %x-%v')",
                "005 5th 01 01 01 01 2020 2020|2020-52 2020-53",
            ),
            (
                "date_format('2020-01-11', '%D'), date_format('2020-01-22', '%D'), date_format('2020-01-23', '%D')",
                "11th|22nd|23rd",
            ),
            ("'a' REGEXP NULL, NULL REGEXP 'a', 'a' NOT RLIKE NULL, 'a' LIKE NULL", "NULL|NULL|NULL|NULL"),
        ],
    )
    .await;
    assert!(f.try_rows("SELECT date_trunc('0000-01-01', 'week')").await.unwrap_err().contains("out of range"));
    assert!(f.try_rows("SELECT date_add('9999-12-31', INTERVAL 1 DAY)").await.unwrap_err().contains("out of range"));
}

#[tokio::test]
async fn functions_of_null_json_and_nested_values() {
    let mut f = Fixture::with_database().await;
    check(
        &mut f,
        &[
            ("ifnull(NULL, 1), nvl(2, 1), coalesce(NULL, NULL, 'x'), nullif(1, 1), nullif(1, 2)", "1|2|x|NULL|1"),
            ("json_extract('{\"a\": {\"b\": [1, \"x\"]}}', '$.a.b[1]'), json_extract_string('{\"a\":\"x\"}', '$.a')", "\"x\"|x"),
            ("get_json_int('{\"a\": 5}', '$.a'), get_json_double('{\"a\": 1.5}', '$.a'), json_extract('{}', '$.a')", "5|1.5|NULL"),
            ("json_valid('{}'), json_valid('{'), json_length('[1,2]'), json_type('{\"a\":1}', '$.a')", "1|0|2|int"),
            ("json_object('a', 1, 'b', NULL), json_array(1, 'x', TRUE), json_quote('a\"b')", "{\"a\":1,\"b\":null}|[1,\"x\",true]|\"a\\\"b\""),
            ("json_contains('[1,2]', '1'), json_keys('{\"b\":1,\"a\":2}'), json_unquote('\"x\"')", "1|[\"b\", \"a\"]|x"),
            ("CAST('{\"a\":[1,2]}' AS VARIANT)['a'][2]", "2"),
            ("[1, 2, 3][1], [1, 2, 3][-1], [1][5], {'a': 5}['a'], struct_element(named_struct('f', 7), 'f')", "1|3|NULL|5|7"),
            ("array('a', 'b')[1], array('a', 'b')[-1], element_at(['a', 'b'], 2), split_by_string('a,b', ',')[1]", "a|b|b|a"),
            ("array(1.5, 2)[1], array(DATE '2020-01-01')[1], array(array('x'))[1], array(CAST(1 AS DOUBLE))[1], array(TRUE)[1]", "1.5|2020-01-01|[\"x\"]|1|1"),
            ("array(CAST(1 AS LARGEINT)), array(CAST('1.2.3.4' AS IPV4)), map('a', CAST(1 AS LARGEINT)), array(CAST(1 AS LARGEINT))[1]", "[1]|[\"1.2.3.4\"]|{\"a\":1}|1"),
            ("array_contains([1, 2], 2), size([1, 2]), array_sort([3, 1, NULL]), array_distinct([1, 1, 2])", "1|2|[null, 1, 3]|[1, 2]"),
            ("array_position([1, 2], 2), array_concat([1], [2, 3]), array_slice([1, 2, 3], 2, 2), array_reverse([1, 2])", "2|[1, 2, 3]|[2, 3]|[2, 1]"),
            ("array_min([3, 1]), array_max([3, 1]), array_sum([1, 2]), array_avg([1, 2]), array_range(3)", "1|3|3|1.5|[0, 1, 2]"),
            ("array_union([1], [1, 2]), array_intersect([1, 2], [2]), array_except([1, 2], [2]), arrays_overlap([1], [1])", "[1, 2]|[2]|[1]|1"),
            ("map_keys({'a': 1}), map_values({'a': 1}), map_size({'a': 1}), map_contains_key({'a': 1}, 'a')", "[\"a\"]|[1]|1|1"),
            ("length(uuid()), version(), current_catalog()", "36|5.7.99|internal"),
        ],
    )
    .await;
}

#[tokio::test]
async fn functions_of_bitmaps_and_sketches() {
    let mut f = Fixture::with_database().await;
    check(
        &mut f,
        &[
            ("bitmap_to_string(to_bitmap(5)), bitmap_count(to_bitmap(-1)), bitmap_count(to_bitmap(NULL))", "5|0|0"),
            ("bitmap_to_string(bitmap_from_string('1, 2,3')), bitmap_to_string(bitmap_from_string('x'))", "1,2,3|NULL"),
            ("bitmap_to_string(bitmap_or(to_bitmap(1), bitmap_from_string('2,3'))), bitmap_count(bitmap_empty())", "1,2,3|0"),
            ("bitmap_to_string(bitmap_and(bitmap_from_string('1,2'), bitmap_from_string('2,3')))", "2"),
            ("bitmap_to_string(bitmap_xor(bitmap_from_string('1,2'), bitmap_from_string('2,3')))", "1,3"),
            ("bitmap_to_string(bitmap_not(bitmap_from_string('1,2'), bitmap_from_string('2,3')))", "1"),
            ("bitmap_contains(to_bitmap(5), 5), bitmap_has_any(to_bitmap(1), to_bitmap(2)), bitmap_max(bitmap_from_string('1,9'))", "1|0|9"),
            ("bitmap_count(bitmap_hash('hello')), bitmap_to_array(bitmap_from_string('3,1'))", "1|[1, 3]"),
            ("hll_cardinality(hll_hash('a')), hll_cardinality(hll_empty()), hll_cardinality(hll_hash(NULL))", "1|0|0"),
            ("to_bitmap(1), hll_hash('a')", "NULL|NULL"),
        ],
    )
    .await;
    f.run("CREATE TABLE t (k INT, v INT) DUPLICATE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 3").await;
    f.run("INSERT INTO t VALUES (1, 1), (1, 2), (2, 2), (2, 3), (3, NULL)").await;
    assert_eq!(
        f.rows("SELECT bitmap_union_count(to_bitmap(v)), bitmap_to_string(bitmap_union(to_bitmap(v))), hll_union_agg(hll_hash(v)), ndv(v), bitmap_count(bitmap_agg(v)) FROM t").await,
        ["3|1,2,3|3|3|3"]
    );
    assert_eq!(f.rows("SELECT intersect_count(to_bitmap(v), k, 1, 2) FROM t").await, ["1"]);
}

#[tokio::test]
async fn aggregates_and_windows() {
    let mut f = Fixture::with_database().await;
    f.run("CREATE TABLE t (k INT, g INT, d DECIMAL(9,2), l LARGEINT, s STRING, f DOUBLE, b BOOLEAN) DUPLICATE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 3").await;
    f.run(
        "INSERT INTO t VALUES (1, 1, 1.50, 1, 'b', 1, true), (2, 1, 2.25, 170141183460469231731687303715884105727, 'a', 2, false), \
         (3, 2, NULL, 5, 'c', CAST('NaN' AS DOUBLE), true), (4, 2, 0.10, NULL, NULL, CAST('-0' AS DOUBLE), NULL)",
    )
    .await;
    for (sql, row) in [
        ("sum(k), avg(k), min(k), max(k), count(*), count(d)", "10|2.5|1|4|4|3"),
        ("sum(d), avg(d), sum(l)", "3.85|1.2833|-170141183460469231731687303715884105723"),
        (
            "stddev(k), variance(k), stddev_samp(k) > stddev(k), var_samp(k)",
            "1.118033988749895|1.25|1|1.6666666666666667",
        ),
        (
            "group_concat(s ORDER BY s), group_concat(s, '|'  ORDER BY s DESC), group_concat(DISTINCT s ORDER BY s SEPARATOR '-')",
            "a, b, c|c|b|a|a-b-c",
        ),
        (
            "array_agg(s ORDER BY k), collect_list(s ORDER BY k), array_sort(collect_set(g))",
            "[\"b\", \"a\", \"c\", null]|[\"b\", \"a\", \"c\"]|[1, 2]",
        ),
        ("percentile(k, 0.5), percentile_approx(k, 0.5), median(k), percentile_array(k, [0, 1])", "2.5|2.5|2.5|[1, 4]"),
        ("group_bit_and(k), group_bit_or(k), group_bit_xor(k)", "0|7|4"),
        ("bool_and(b), bool_or(b), count_if(b), any_value(g) IN (1, 2)", "0|1|2|1"),
        (
            "max_by(s, k), min_by(s, k), approx_count_distinct(g), count(DISTINCT g), count(DISTINCT g, s)",
            "NULL|b|2|2|3",
        ),
        ("sum(DISTINCT g), avg(DISTINCT g), max(f), min(s), max(d)", "3|1.5|NaN|a|2.25"),
        ("sum(if(k > 100, k, NULL)), avg(if(k > 100, k, NULL)), max(if(k > 100, k, NULL))", "NULL|NULL|NULL"),
    ] {
        assert_eq!(f.try_rows(&format!("SELECT {sql} FROM t")).await, Ok(vec![row.to_owned()]), "{sql}");
    }
    assert_eq!(f.rows("SELECT f FROM t ORDER BY f DESC, k").await, ["NaN", "2", "1", "-0"]);
    f.run(
        "INSERT INTO t VALUES (5, 3, NULL, NULL, NULL, 0, NULL), (6, 3, NULL, NULL, NULL, CAST('NaN' AS DOUBLE), NULL)",
    )
    .await;
    assert_eq!(f.sorted("SELECT f + 0, count(*) FROM t GROUP BY f").await, ["0|2", "1|1", "2|1", "NaN|2"]);
    assert_eq!(f.rows("SELECT count(DISTINCT f) FROM t").await, ["4"]);
    assert_eq!(f.rows("SELECT count(*) FROM (SELECT DISTINCT f FROM t) x").await, ["4"]);
    assert_eq!(f.rows("SELECT count(*) FROM t a JOIN t b ON a.f = b.f").await, ["10"]);
    assert_eq!(
        f.rows("SELECT k, row_number() OVER (PARTITION BY g ORDER BY k DESC), sum(k) OVER (ORDER BY k), lag(k, 1, 0) OVER (ORDER BY k), \
                sum(k) OVER (ORDER BY k ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) FROM t WHERE k < 4 ORDER BY k").await,
        ["1|2|1|0|1", "2|1|3|1|3", "3|1|6|2|5"]
    );
    assert_eq!(f.rows("SELECT g, sum(k) FROM t GROUP BY 1 ORDER BY 2 DESC LIMIT 1, 1").await, ["2|7"]);
    assert_eq!(f.rows("SELECT g FROM t GROUP BY g HAVING count(*) ORDER BY g LIMIT 1 OFFSET 1").await, ["2"]);
}

#[tokio::test]
async fn unnamed_expressions_over_flight_are_their_type_and_position() {
    let mut f = Fixture::with_database().await;
    f.run("CREATE TABLE t (k INT) DUPLICATE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 1").await;
    let sql = "SELECT k, k + 1, count(*) AS n, avg(k), max(k) FROM t GROUP BY k";
    let names = |results: Vec<crate::engine::StatementResult>| match results.into_iter().next() {
        Some(crate::engine::StatementResult::Rows { schema, .. }) => {
            schema.fields().iter().map(|field| field.name().clone()).collect::<Vec<_>>()
        }
        _ => panic!("{sql}"),
    };
    let mut flight = f.engine.open_session("root", "127.0.0.1", crate::engine::Protocol::Flight);
    flight.use_database("d").unwrap();
    let over_flight = names(flight.execute(sql).await.unwrap());
    assert_eq!(over_flight, ["k", "Nullable(Int64)_1", "n", "Nullable(Float64)_3", "Nullable(Int32)_4"]);
    assert_eq!(names(f.session.execute(sql).await.unwrap()), ["k", "k + 1", "n", "avg(k)", "max(k)"]);
    let error = flight.execute("SELECT hll_hash('a') AS h FROM t").await.unwrap_err();
    assert!(error.message.contains("HLL"), "{}", error.message);
}

#[tokio::test]
async fn what_fails_while_it_runs() {
    let mut f = Fixture::with_database().await;
    for (sql, text) in [
        ("SELECT bitmap_count('1')", "a value of type string is no bitmap"),
        ("SELECT hll_cardinality(1)", "is no hll"),
        ("SELECT percentile(1, 2)", "percentile must be in the range [0, 1]"),
        ("SELECT json_extract('{}', '$..')", "Invalid Json Path for value: $.."),
        ("SELECT sha2('a', 1)", "sha2 functions only support digest length"),
        ("SELECT to_bitmap_with_check(-1)", "is not valid, to_bitmap only support bigint value"),
    ] {
        let error = f.try_rows(sql).await.expect_err(sql);
        assert!(error.contains(text), "{sql}: {error}");
    }
}
