//! Every type in every form that a build sends: one Arrow type and one value.

use datafusion::arrow::compute::concat_batches;
use doris_sandbox::{FlightConfig, OldForms, Profile, Sandbox};

use crate::harness::{Cluster, lines, refusal, run};
use crate::read_types_cases::cluster;

const COLUMNS: &str = "id INT, b BOOLEAN, t TINYINT, s SMALLINT, i INT, l BIGINT, li LARGEINT, f FLOAT, d DOUBLE,
    dec DECIMAL(38, 10), da DATE, d0 DATETIME, d1 DATETIME(1), d3 DATETIME(3), d6 DATETIME(6), c CHAR(5),
    v VARCHAR(20), st STRING, j JSON, ip4 IPV4, ip6 IPV6, al ARRAY<LARGEINT>, ad ARRAY<DATETIME(3)>,
    m MAP<DATE, IPV4>, r STRUCT<a:LARGEINT, b:ARRAY<STRUCT<c:DATE, d:DATETIME(6)>>>";

const VALUES: &str = "(1, true, -128, -32768, -2147483648, -9223372036854775808, '-170141183460469231731687303715884105728',
      1.5, -2.5e300, '-1234567890123456789012345678.0123456789', '0001-01-01', '1000-01-01 00:00:00',
      '2024-02-29 23:59:59.9', '1969-12-31 23:59:59.999', '9999-12-31 23:59:59.999999', 'abc', '中文', '', '{\"a\":1}',
      '0.0.0.0', '::', ['170141183460469231731687303715884105727', NULL], ['2024-01-01 00:00:00.5', NULL],
      {'2024-02-29': '255.255.255.255'}, STRUCT(1, ARRAY(STRUCT('2024-02-29', '2024-02-29 01:02:03.000004'), NULL))),
    (2, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
      NULL, NULL, NULL, NULL, NULL)";

#[tokio::test]
async fn every_form_of_every_type_reads_as_one_value() {
    let all =
        OldForms { largeint_bytes: true, date_text: true, datetime_text: true, ipv4_text: true, ..OldForms::default() };
    let mut first: Option<Vec<String>> = None;
    for (profile, forms, zone) in [
        (Profile::V5_0Changelog, OldForms::default(), "+08:00"),
        (Profile::V5_0Binlog, OldForms::default(), "+08:00"),
        (Profile::V4_0, OldForms::default(), "America/New_York"),
        (Profile::V3_1, OldForms::default(), "UTC"),
        (Profile::V2_1, OldForms::default(), "Asia/Shanghai"),
        (Profile::V2_1, all, "UTC"),
        (Profile::V5_0Changelog, all, "+08:00"),
    ] {
        let cluster = cluster(profile, forms, zone).await;
        cluster.duplicate_table("t", COLUMNS, "").await;
        cluster.doris(&format!("INSERT INTO {{db}}.t VALUES {VALUES}")).await;
        let ctx = cluster.context();
        cluster.declare(&ctx, "t", "t", &[]).await;
        let batches = run(&ctx, "SELECT * FROM t ORDER BY id").await;
        let schema = ctx.table_provider("t").await.expect("declared").schema();
        let batch = concat_batches(&schema, &batches).expect("the schema that was promised");
        let read = lines(&[batch]);
        match &first {
            None => first = Some(read),
            Some(first) => assert_eq!(&read, first, "{profile} {forms:?} {zone}"),
        }
    }
    let first = first.expect("read");
    assert!(first[0].contains("-170141183460469231731687303715884105728"), "{first:?}");
    assert!(first[0].contains("{2024-02-29: 255.255.255.255}"), "{first:?}");
    assert!(first[0].contains("[170141183460469231731687303715884105727, NULL]"), "{first:?}");
    assert!(first[0].contains("1969-12-31T23:59:59.999"), "{first:?}");
}

/// A declared type that holds every value is given; one that does not is refused with the column.
#[tokio::test]
async fn declared_types_are_given_where_they_are_exact() {
    let cluster = cluster(Profile::default(), OldForms::default(), "UTC").await;
    cluster
        .duplicate_table("t", "id INT, s SMALLINT, da DATE, ts DATETIME(3), price DECIMAL(10, 2), n DECIMAL(9, 0)", "")
        .await;
    cluster.doris("INSERT INTO {db}.t VALUES (1, -7, '2024-02-29', '2024-01-01 00:00:00.125', 1.25, -999999999)").await;
    let ctx = cluster.context();
    let declared = "wide (id DECIMAL(12, 2), s DOUBLE, da TIMESTAMP, ts TIMESTAMP(9), price DECIMAL(40, 4), n INT)";
    run(&ctx, &cluster.ddl(declared, "t", &[])).await;
    let row = "1.00 | -7.0 | 2024-02-29T00:00:00 | 2024-01-01T00:00:00.125 | 1.2500 | -999999999";
    assert_eq!(lines(&run(&ctx, "SELECT * FROM wide").await), [row]);
    let filtered = "SELECT * FROM wide WHERE s < -6.5 AND da = TIMESTAMP '2024-02-29 00:00:00' AND price = 1.25 AND id = 1 AND n < 0";
    assert_eq!(lines(&run(&ctx, filtered).await), [row]);
    for (declared, column) in [
        ("narrow1 (id SMALLINT)", "id"),
        ("narrow2 (price DECIMAL(10, 1))", "price"),
        ("narrow3 (ts TIMESTAMP(0))", "ts"),
        ("narrow4 (id DECIMAL(9, 0))", "id"),
        ("narrow5 (n SMALLINT)", "n"),
    ] {
        let name = declared.split(' ').next().expect("a name");
        let ddl = cluster.ddl(declared, "t", &[]);
        let refused = match crate::harness::try_run(&ctx, &ddl).await {
            Err(error) => error.to_string(),
            Ok(_) => refusal(&ctx, &format!("SELECT * FROM {name}")).await,
        };
        assert!(refused.contains(&format!("column '{column}'")), "{declared}: {refused}");
    }
}

/// An FE that answers a query itself gives every column as text: counts, sums and constants are read from it exactly.
#[tokio::test]
async fn rows_that_the_fe_computes_come_as_text_and_are_exact() {
    let of = |answers_in_fe| async move {
        let flight = FlightConfig { answers_in_fe, ..FlightConfig::default() };
        let cluster = Cluster::of(Sandbox::builder().flight(flight)).await;
        cluster.duplicate_table("t", COLUMNS, "").await;
        cluster.doris(&format!("INSERT INTO {{db}}.t VALUES {VALUES}, {}", VALUES.replacen("(1", "(3", 1))).await;
        let ctx = cluster.context();
        cluster.declare(&ctx, "t", "t", &[]).await;
        (cluster, ctx)
    };
    let ((texts, of_fe), (_typed, of_be)) = (of(true).await, of(false).await);
    let told = format!("doris_query('SELECT id, i, dec, da, d6, b, v, li FROM {}')", texts.table("t"));
    for sql in [
        "SELECT count(*), count(i), sum(i), avg(s), min(l), max(l) FROM t",
        "SELECT min(dec), max(dec), min(li), max(li), count(dec) FROM t",
        "SELECT sum(CAST(t AS DECIMAL(10, 2))), avg(CAST(s AS DECIMAL(10, 3))) FROM t",
        "SELECT min(da), max(da), min(d0), max(d6), min(v), max(c) FROM t",
        "SELECT count(DISTINCT s), count(*) FILTER (WHERE i < 0) FROM t",
    ] {
        let pushed = lines(&run(&of_fe, &format!("EXPLAIN {sql}")).await).join("\n");
        assert!(!pushed.contains("AggregateExec"), "{sql}: {pushed}");
        assert_eq!(lines(&run(&of_fe, sql).await), lines(&run(&of_be, sql).await), "{sql}");
    }
    // The columns of a statement are those of its rows, though a result without rows comes from the FE.
    let described = run(&of_fe, &format!("SELECT * FROM {told} ORDER BY id")).await;
    let types: Vec<String> = described[0].schema().fields().iter().map(|field| field.data_type().to_string()).collect();
    assert_eq!(types[..3], ["Int32", "Int32", "Decimal128(38, 10)"], "{types:?}");
    let direct = run(&of_fe, "SELECT id, i, dec, da, d6, b, v, li FROM t ORDER BY id").await;
    assert_eq!(lines(&described), lines(&direct));
    assert_eq!(lines(&run(&of_fe, &format!("SELECT count(*), sum(i) FROM {told}")).await), ["4 | -4294967296"]);
    assert_eq!(lines(&run(&of_fe, "SELECT * FROM doris_query('SELECT 41 AS a, 1.50 AS b')").await), ["41 | 1.50"]);
    assert!(lines(&run(&of_fe, "SELECT id FROM t WHERE id < 0").await).is_empty());
}

/// The binary form of VARIANT, of the newest builds, is the text of the same document.
#[tokio::test]
async fn variant_in_its_binary_form_is_its_json_text() {
    let documents = [
        "{\"a\":[1,-300,5000000000,12345678901234567890,1.5,null,true,\"x\"],\"b\":{\"a\":false,\"c\":\"значение\"}}",
        "[]",
        "[{\"k\":\"v\"},{\"k\":[[2]]}]",
        "7",
    ];
    let mut both = Vec::new();
    for variant_struct in [false, true] {
        let forms = OldForms { variant_struct, ..OldForms::default() };
        let cluster = cluster(Profile::V5_0Changelog, forms, "UTC").await;
        cluster.duplicate_table("t", "id INT, v VARIANT", "").await;
        let rows = documents.iter().enumerate().map(|(id, document)| format!("({id}, '{document}')"));
        let rows: Vec<String> = rows.chain(["(9, NULL)".to_string()]).collect();
        cluster.doris(&format!("INSERT INTO {{db}}.t VALUES {}", rows.join(", "))).await;
        let ctx = cluster.context();
        cluster.declare(&ctx, "t", "t", &[]).await;
        both.push(lines(&run(&ctx, "SELECT v FROM t ORDER BY id").await));
        let told = format!("SELECT v FROM doris_query('SELECT v FROM {} WHERE id = 1')", cluster.table("t"));
        assert_eq!(lines(&run(&ctx, &told).await), ["[]"], "{variant_struct}");
    }
    assert_eq!(both[0], both[1]);
    assert!(both[0][0].contains("12345678901234567890") && both[0][4] == "NULL", "{both:?}");
}
