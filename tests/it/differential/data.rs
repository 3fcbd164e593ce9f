//! Tables of all types, with many NULLs, the ends of each type, and what tends to go wrong.

use doris_sandbox::Profile;

use super::queries::EMPTY;
use super::random::Random;
use crate::harness::Cluster;

/// A column: name, type, and the values it takes, as Doris writes them.
pub const COLUMNS: &[(&str, &str, &[&str])] = &[
    ("b", "BOOLEAN", &["true", "false"]),
    ("i8", "TINYINT", &["-128", "127", "0", "1", "2", "3", "-1", "7"]),
    ("i16", "SMALLINT", &["-32768", "32767", "0", "1", "2", "5", "100"]),
    ("i32", "INT", &["-2147483648", "2147483647", "0", "1", "2", "3", "-7", "42"]),
    ("i64", "BIGINT", &["-9223372036854775808", "9223372036854775807", "0", "1", "-1", "5", "1000000007"]),
    (
        "i128",
        "LARGEINT",
        &[
            "'-170141183460469231731687303715884105728'",
            "'170141183460469231731687303715884105727'",
            "'0'",
            "'1'",
            "'9'",
            "'10'",
        ],
    ),
    ("f", "FLOAT", &["0.1", "-1.5", "0", "2.5", "CAST('NaN' AS FLOAT)", "CAST('Infinity' AS FLOAT)", "16777216"]),
    (
        "d",
        "DOUBLE",
        &[
            "0.1",
            "-1.5",
            "0",
            "CAST('-0.0' AS DOUBLE)",
            "2.5",
            "CAST('NaN' AS DOUBLE)",
            "CAST('Infinity' AS DOUBLE)",
            "CAST('-Infinity' AS DOUBLE)",
            "CAST('1e300' AS DOUBLE)",
        ],
    ),
    ("dec", "DECIMAL(12, 2)", &["0", "1.50", "-1.50", "10.50", "9999999999.99", "-9999999999.99", "0.01"]),
    (
        "wide",
        "DECIMAL(38, 10)",
        &[
            "0",
            "1.5",
            "'9999999999999999999999999999.9999999999'",
            "'-9999999999999999999999999999.9999999999'",
            "2.0000000001",
        ],
    ),
    ("dt", "DATE", &["'0001-01-01'", "'9999-12-31'", "'2024-02-29'", "'1970-01-01'", "'1969-12-31'", "'2024-03-01'"]),
    (
        "ts",
        "DATETIME(6)",
        &[
            "'0001-01-01 00:00:00'",
            "'9999-12-31 23:59:59.999999'",
            "'2024-02-29 12:34:56.789012'",
            "'1970-01-01 00:00:00'",
            "'1969-12-31 23:59:59.999999'",
            "'1700-01-01 00:00:00'",
            "'2024-02-29 00:00:00'",
        ],
    ),
    ("c", "CHAR(8)", &["''", "'a'", "'a '", "'A'", "'ab'", "'数据'", "'%'"]),
    (
        "v",
        "VARCHAR(40)",
        &[
            "''",
            "'a'",
            "'a '",
            "' a'",
            "'A'",
            "'ab'",
            "'b'",
            "'ü'",
            "'数据'",
            "'100%'",
            "'a_b'",
            "'back\\\\slash'",
            "'it''s'",
            "'\\t'",
        ],
    ),
    (
        "huge",
        "DECIMAL(60, 12)",
        &[
            "'0'",
            "'1.5'",
            "'999999999999999999999999999999999999999999999999.999999999999'",
            "'-999999999999999999999999999999999999999999999999.999999999999'",
            "'0.000000000001'",
        ],
    ),
    (
        "d0",
        "DATETIME",
        &["'0001-01-01 00:00:00'", "'9999-12-31 23:59:59'", "'2024-02-29 12:34:56'", "'1970-01-01 00:00:00'"],
    ),
    ("d3", "DATETIME(3)", &["'0001-01-01 00:00:00'", "'1969-12-31 23:59:59.999'", "'2024-02-29 12:34:56.789'"]),
    (
        "tz",
        "TIMESTAMPTZ(6)",
        &["'2024-02-29 12:34:56.789012 +00:00'", "'1970-01-01 00:00:00 +08:00'", "'2024-01-01 00:00:00 -05:30'"],
    ),
    ("ip4", "IPV4", &["'0.0.0.0'", "'255.255.255.255'", "'9.0.0.1'", "'10.0.0.1'"]),
    (
        "ip6",
        "IPV6",
        &["'::'", "'::1'", "'ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff'", "'::ffff:10.0.0.1'", "'2001:db8::1'"],
    ),
    ("j", "JSON", &["'{\"a\":1}'", "'[]'", "'[1,null,\"x\"]'", "'null'"]),
    ("va", "VARIANT", &["'{\"a\":1,\"b\":[true]}'", "'[]'", "'7'"]),
    ("tags", "ARRAY<INT>", &["[]", "[1, NULL, 3]", "[-2147483648]"]),
    ("m", "MAP<VARCHAR(5), INT>", &["{}", "{'a': 1, 'b': NULL}", "{'': -1}"]),
    ("st", "STRUCT<a:INT, b:ARRAY<DATE>>", &["STRUCT(1, ['2024-02-29'])", "STRUCT(-1, ['0001-01-01'])"]),
    ("s", "STRING", &["''", "'a'", "'ab'", "'abc'", "'z'", "'Z'", "'😀'", "'é'", "'e\u{301}'"]),
];

/// Creates and fills `d{table}`: a key `k` that counts the rows, and columns of all types. Of the tables one is read in
/// parts, one is mostly NULL, and the last one has no rows.
pub async fn create(cluster: &Cluster, table: &str, random: &mut Random) {
    // Older builds know no instants; their texts stand in for them.
    let instants = cluster.server().engine().profile() >= Profile::V5_0Changelog;
    let columns = COLUMNS.iter().map(|(name, data_type, _)| match data_type.starts_with("TIMESTAMPTZ") && !instants {
        true => format!("{name} STRING"),
        false => format!("{name} {data_type}"),
    });
    let columns: Vec<String> = columns.collect();
    cluster
        .doris(&format!(
            "SET enable_decimal256 = true; CREATE TABLE {{db}}.d{table} (k INT, {})
             DUPLICATE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS {} PROPERTIES ('replication_num' = '1')",
            columns.join(", "),
            if table == "0" { 3 } else { 1 },
        ))
        .await;
    let (nulls, least) = match table {
        "1" => (70, 40),
        EMPTY => return,
        _ => (20, 40),
    };
    let rows: Vec<String> = (0..least + random.below(20))
        .map(|k| {
            let cells = COLUMNS.iter().map(|(_, _, values)| match random.percent(nulls) {
                true => "NULL".to_string(),
                false => random.pick(values).to_string(),
            });
            let cells: Vec<String> = cells.collect();
            format!("({k}, {})", cells.join(", "))
        })
        .collect();
    cluster.doris(&format!("INSERT INTO {{db}}.d{table} VALUES {}", rows.join(", "))).await;
}
