//! Known failure modes of other clients: types as they are read.

use datafusion::arrow::datatypes::{DataType, TimeUnit};
use doris_sandbox::{Action, Fault, FlightConfig, OldForms, Profile, Sandbox, Site};

use crate::harness::{Cluster, lines, refusal, run};

const PROFILES: [Profile; 5] =
    [Profile::V2_1, Profile::V3_1, Profile::V4_0, Profile::V5_0Binlog, Profile::V5_0Changelog];

/// A sandbox of a build, whose types travel in old forms, with a zone of its own.
pub async fn cluster(profile: Profile, old_forms: OldForms, zone: &str) -> Cluster {
    let flight = FlightConfig { old_forms, ..FlightConfig::default() };
    Cluster::of(Sandbox::builder().profile(profile).flight(flight).time_zone(zone)).await
}

/// A query with its conditions in Doris, and with all of them here.
pub async fn pushed_and_local(ctx: &datafusion::prelude::SessionContext, select: &str, condition: &str) -> Vec<String> {
    let pushed = lines(&run(ctx, &format!("SELECT {select} WHERE {condition}")).await);
    // A condition on a random number cannot be sent, nor can one with it in a CASE.
    let local = format!("SELECT {select} WHERE CASE WHEN random() < 2 THEN {condition} END");
    assert_eq!(lines(&run(ctx, &local).await), pushed, "{condition}");
    pushed
}

/// Set in the processes that a test starts to run itself in another zone.
const IN_ANOTHER_ZONE: &str = "DORIS_TEST_IN_ANOTHER_ZONE";

/// A zone label does not shift the digits, in any build and zone, whatever the zone of this process is.
#[tokio::test]
async fn c001_datetime_digits_do_not_depend_on_zones() {
    if std::env::var_os(IN_ANOTHER_ZONE).is_none() {
        for zone in ["UTC", "America/Los_Angeles"] {
            let run = tokio::task::spawn_blocking(move || {
                std::process::Command::new(std::env::current_exe().expect("the test binary"))
                    .args(["--exact", "read_types_cases::c001_datetime_digits_do_not_depend_on_zones"])
                    .env(IN_ANOTHER_ZONE, "1")
                    .env("TZ", zone)
                    .output()
            });
            let ended = run.await.expect("runs").expect("starts");
            let said = String::from_utf8_lossy(&ended.stdout);
            assert!(ended.status.success() && said.contains("1 passed"), "TZ={zone}: {said}");
        }
    }
    let other_zone = cluster(Profile::V4_0, OldForms::default(), "UTC").await;
    other_zone.duplicate_table("t", "id INT, ts DATETIME(6)", "").await;
    other_zone.doris("INSERT INTO {db}.t VALUES (1, '2025-10-26 02:30:15.000007')").await;
    let ctx = other_zone.context();
    other_zone.declare(&ctx, "t", "t", &[]).await;
    // Timestamp(us, "+08:00") with the raw value 1761417015000007.
    let labelled = format!("SELECT /*+ SET_VAR(time_zone = '+08:00') */ ts FROM {}", other_zone.table("t"));
    let fault = Fault::new(Action::FlightResults(vec![labelled])).at(Site::FeFlight).when("`ts`");
    other_zone.server().faults().push(fault.always());
    assert_eq!(lines(&run(&ctx, "SELECT ts FROM t").await), ["2025-10-26T02:30:15.000007"]);
    assert_eq!(lines(&run(&ctx, "SELECT ts FROM t WHERE ts = '2025-10-26 02:30:15.000007'").await).len(), 1);
    assert!(!other_zone.server().faults().applied().is_empty(), "the fault was used");

    for (profile, zone) in
        PROFILES.into_iter().zip(["+08:00", "America/Los_Angeles", "Asia/Kolkata", "+08:00", "+08:00"])
    {
        let cluster = cluster(profile, OldForms::default(), zone).await;
        cluster.duplicate_table("t", "id INT, ts DATETIME(6)", "").await;
        cluster
            .doris("INSERT INTO {db}.t VALUES (1, '2025-10-26 02:30:15.000007'), (2, '1969-12-31 23:59:59.999999')")
            .await;
        let ctx = cluster.context();
        cluster.declare(&ctx, "t", "t", &[]).await;
        let all = run(&ctx, "SELECT ts FROM t ORDER BY id").await;
        assert_eq!(all[0].schema().field(0).data_type(), &DataType::Timestamp(TimeUnit::Microsecond, None));
        assert_eq!(lines(&all), ["2025-10-26T02:30:15.000007", "1969-12-31T23:59:59.999999"], "{profile} {zone}");
        let found = pushed_and_local(&ctx, "id FROM t", "ts = '2025-10-26 02:30:15.000007'").await;
        assert_eq!(found, ["1"], "{profile} {zone}");
    }
}

/// The unit is that of the Arrow type, however big the number is.
#[tokio::test]
async fn c002_the_unit_of_a_timestamp_is_told_and_not_guessed() {
    for profile in [Profile::V2_1, Profile::V5_0Changelog] {
        let cluster = cluster(profile, OldForms::default(), "UTC").await;
        cluster.duplicate_table("t", "id INT, d0 DATETIME, d3 DATETIME(3), d6 DATETIME(6)", "").await;
        cluster
            .doris("INSERT INTO {db}.t VALUES (1, '2031-04-05 06:07:08', '1970-01-01 00:00:00.001', '1970-01-01 00:40:00.5')")
            .await;
        let ctx = cluster.context();
        cluster.declare(&ctx, "t", "t", &[]).await;
        let read = lines(&run(&ctx, "SELECT d0, d3, d6 FROM t").await);
        assert_eq!(read, ["2031-04-05T06:07:08 | 1970-01-01T00:00:00.001 | 1970-01-01T00:40:00.500"]);
    }
}

#[tokio::test]
async fn c003_dates_of_year_zero_are_read_and_sorted() {
    let cluster = Cluster::start().await;
    cluster.duplicate_table("t", "d DATE", "").await;
    // Servers with apache/doris#67366 send 0000-01-01 as the day number of 0000-01-02.
    cluster
        .doris(
            "INSERT INTO {db}.t VALUES ('0001-01-01'), ('0000-02-28'), ('0000-01-01'), ('9999-12-31'), ('0000-01-02')",
        )
        .await;
    let ctx = cluster.context();
    cluster.declare(&ctx, "t", "t", &[]).await;
    let rows = run(&ctx, "SELECT CAST(d AS VARCHAR) AS text, d, CAST(d AS INT) AS days FROM t ORDER BY d").await;
    assert_eq!(
        lines(&rows),
        [
            "0000-01-01 | 0000-01-01 | -719528",
            "0000-01-02 | 0000-01-02 | -719527",
            "0000-02-28 | 0000-02-28 | -719470",
            "0001-01-01 | 0001-01-01 | -719162",
            "9999-12-31 | 9999-12-31 | 2932896"
        ]
    );
    assert_eq!(lines(&run(&ctx, "SELECT CAST(d AS VARCHAR) AS text FROM t ORDER BY d LIMIT 1").await), ["0000-01-01"]);
}

/// As text and as 16 bytes; compared as numbers in Doris and here.
#[tokio::test]
async fn c004_largeint_is_a_number_of_39_digits() {
    for largeint_bytes in [false, true] {
        let cluster = cluster(Profile::V2_1, OldForms { largeint_bytes, ..OldForms::default() }, "UTC").await;
        cluster.duplicate_table("t", "id INT, v LARGEINT", "").await;
        let (least, most) = (i128::MIN, i128::MAX);
        cluster
            .doris(&format!("INSERT INTO {{db}}.t VALUES (1, 9), (2, 10), (3, '{least}'), (4, '{most}'), (5, NULL)"))
            .await;
        let ctx = cluster.context();
        cluster.declare(&ctx, "t", "t", &[]).await;
        let all = run(&ctx, "SELECT v FROM t ORDER BY id").await;
        assert_eq!(all[0].schema().field(0).data_type(), &DataType::Decimal256(39, 0));
        assert_eq!(lines(&all), ["9", "10", &least.to_string(), &most.to_string(), "NULL"]);
        let mut above = pushed_and_local(&ctx, "v FROM t", "v > 9").await;
        above.sort();
        assert_eq!(above, ["10", &most.to_string()]);

        let declared = cluster.ddl("text_v (id INT, v VARCHAR)", "t", &[]);
        run(&ctx, &declared).await;
        let texts = lines(&run(&ctx, "SELECT v FROM text_v WHERE v = '10' OR id = 3 ORDER BY id").await);
        assert_eq!(texts, ["10", &least.to_string()]);
        run(&ctx, &cluster.ddl("narrow (id INT, v BIGINT)", "t", &[])).await;
        assert_eq!(lines(&run(&ctx, "SELECT v FROM narrow WHERE id < 3 ORDER BY id").await), ["9", "10"]);
        let error = refusal(&ctx, "SELECT v FROM narrow").await;
        assert!(error.contains("column 'v'"), "{error}");
    }
}

#[tokio::test]
async fn c005_decimals_of_more_than_38_digits_are_exact() {
    let cluster = Cluster::start().await;
    cluster
        .doris(
            "SET enable_decimal256 = true; CREATE TABLE {db}.t (id INT, d DECIMAL(50, 10)) DUPLICATE KEY(id)
             DISTRIBUTED BY HASH(id) BUCKETS 1 PROPERTIES ('replication_num' = '1');
             INSERT INTO {db}.t VALUES (1, '12345678901234567890123456789012345678.0123456789'),
               (2, '12345678901234567890123456789012345678.0123456789'), (3, NULL)",
        )
        .await;
    let ctx = cluster.context();
    cluster.declare(&ctx, "t", "t", &[]).await;
    let all = run(&ctx, "SELECT d FROM t ORDER BY id").await;
    assert_eq!(all[0].schema().field(0).data_type(), &DataType::Decimal256(50, 10));
    assert_eq!(lines(&all)[1..], ["12345678901234567890123456789012345678.0123456789", "NULL"]);
    let sum = lines(&run(&ctx, "SELECT sum(d) FROM t").await);
    assert_eq!(sum, ["24691357802469135780246913578024691356.0246913578"]);
}

/// Unsigned, signed and as text; IPV6 as text and as a number.
#[tokio::test]
async fn c006_addresses_read_the_same_in_every_form() {
    let text = OldForms { ipv4_text: true, ..OldForms::default() };
    for (profile, forms) in [
        (Profile::V2_1, OldForms::default()),
        (Profile::V4_0, OldForms::default()),
        (Profile::V5_0Changelog, OldForms::default()),
        (Profile::V4_0, text),
    ] {
        let cluster = cluster(profile, forms, "UTC").await;
        cluster.duplicate_table("t", "id INT, ip4 IPV4, ip6 IPV6, list ARRAY<IPV4>", "").await;
        cluster
            .doris(
                "INSERT INTO {db}.t VALUES (1, '255.255.255.255', '::ffff:10.0.0.1', ['0.0.0.1', NULL]),
                 (2, '9.0.0.1', '::1', []), (3, '10.0.0.1', NULL, NULL), (4, NULL, NULL, NULL)",
            )
            .await;
        let ctx = cluster.context();
        cluster.declare(&ctx, "t", "t", &[]).await;
        let found = pushed_and_local(&ctx, "ip4, ip6, list FROM t", "ip4 = '255.255.255.255'").await;
        assert_eq!(found, ["255.255.255.255 | ::ffff:10.0.0.1 | [0.0.0.1, NULL]"], "{profile} {forms:?}");
        run(&ctx, &cluster.ddl("numbers (id INT, ip4 BIGINT)", "t", &[])).await;
        let sorted = lines(&run(&ctx, "SELECT id, ip4 FROM numbers WHERE ip4 > 0 ORDER BY ip4").await);
        assert_eq!(sorted, ["2 | 150994945", "3 | 167772161", "1 | 4294967295"], "{profile} {forms:?}");
        run(&ctx, &cluster.ddl("numbers6 (id INT, ip6 DECIMAL(39, 0))", "t", &[])).await;
        let sorted = lines(&run(&ctx, "SELECT id, ip6 FROM numbers6 WHERE ip6 > 0 ORDER BY ip6 DESC").await);
        assert_eq!(sorted, ["1 | 281470849515521", "2 | 1"], "{profile} {forms:?}");
    }
}

/// The column is never asked for unless it is named, and naming it is refused by name.
#[tokio::test]
async fn c007_hll_and_bitmap_spoil_no_other_column() {
    let cluster = Cluster::sandbox().await;
    cluster
        .doris(
            "CREATE TABLE {db}.t (id INT, u HLL HLL_UNION, b BITMAP BITMAP_UNION) AGGREGATE KEY(id)
             DISTRIBUTED BY HASH(id) BUCKETS 1 PROPERTIES ('replication_num' = '1');
             INSERT INTO {db}.t VALUES (1, HLL_HASH('x'), TO_BITMAP(3))",
        )
        .await;
    // The second statement with the column in it would fail.
    let replay = Action::Status { code: 13, body: "replay of a cached result failed".to_string() };
    cluster.server().faults().push(Fault::new(replay).at(Site::FeFlight).when("`u`").skip(1).always());
    let ctx = cluster.context();
    cluster.declare(&ctx, "t", "t", &[]).await;
    run(&ctx, &cluster.catalog_ddl("d", &[])).await;
    let of_catalog = format!("d.{}.t", cluster.database());
    for table in ["t", of_catalog.as_str()] {
        for _ in 0..2 {
            assert_eq!(lines(&run(&ctx, &format!("SELECT id FROM {table}")).await), ["1"]);
            assert_eq!(lines(&run(&ctx, &format!("SELECT count(*) FROM {table} WHERE id = 1")).await), ["1"]);
            for (columns, name) in [("*", "'u'"), ("u", "'u'"), ("id, b", "'b'")] {
                let error = refusal(&ctx, &format!("SELECT {columns} FROM {table}")).await;
                assert!(error.contains(&format!("column {name}")) && error.contains("doris_query"), "{error}");
            }
        }
    }
    let asked = cluster.server().requests().all();
    let scans = asked.iter().filter(|request| request.site == Site::FeFlight);
    assert!(scans.clone().count() > 0);
    for request in scans {
        assert!(!request.target.contains("`u`") && !request.target.contains("`b`"), "{request:?}");
    }
}

/// A stream that fails in its middle is an error with the server's text, not fewer rows.
#[tokio::test]
async fn c008_a_failing_stream_is_an_error() {
    let flight = FlightConfig { result_sink_buffer_size_rows: 100, ..FlightConfig::default() };
    let cluster = Cluster::of(Sandbox::builder().flight(flight)).await;
    cluster.duplicate_table("t", "id INT, m MAP<STRING, INT>", "").await;
    let rows: Vec<String> = (0..150).map(|id| format!("({id}, {{'a': {id}}})")).collect();
    cluster.doris(&format!("INSERT INTO {{db}}.t VALUES {}", rows.join(", "))).await;
    let ctx = cluster.context();
    cluster.declare(&ctx, "t", "t", &[]).await;
    let message = "Invalid: Map array keys array should have no nulls".to_string();
    let fault = Fault::new(Action::FlightErrorAfterBatches { batches: 1, message }).at(Site::BeFlight).when("`m`");
    cluster.server().faults().push(fault.times(2));
    let error = refusal(&ctx, "SELECT id, m FROM t").await;
    assert!(error.contains("keys array should have no nulls"), "{error}");
    let refused = Action::Status { code: 3, body: "Map array keys array should have no nulls".to_string() };
    cluster.server().faults().push(Fault::new(refused).at(Site::BeFlight).when("`m`").always());
    let error = refusal(&ctx, "SELECT id, m FROM t").await;
    assert!(error.contains("keys array should have no nulls"), "{error}");
    assert_eq!(lines(&run(&ctx, "SELECT id FROM t").await).len(), 150);
}

/// Documents come byte for byte where the server keeps them so, and SQL NULL stays NULL.
#[tokio::test]
async fn c009_json_is_text_and_not_written_anew() {
    for profile in [Profile::V2_1, Profile::V5_0Changelog] {
        let cluster = cluster(profile, OldForms::default(), "UTC").await;
        cluster.duplicate_table("t", "id INT, j JSON, b JSONB, v VARIANT", "").await;
        let document = "{\"k\":\"значение\",\"n\":12345678901234567890}";
        cluster
            .doris(&format!(
                "INSERT INTO {{db}}.t VALUES (1, '{document}', '{document}', '{document}'), (2, NULL, NULL, NULL)"
            ))
            .await;
        let ctx = cluster.context();
        cluster.declare(&ctx, "t", "t", &[]).await;
        let stored = cluster.doris("SELECT j, b, v FROM {db}.t ORDER BY id").await;
        let read = lines(&run(&ctx, "SELECT j, b, v FROM t ORDER BY id").await);
        let expected: Vec<String> = stored
            .iter()
            .map(|row| row.iter().map(|cell| cell.clone().unwrap_or("NULL".into())).collect::<Vec<_>>().join(" | "))
            .collect();
        assert_eq!(read, expected);
        assert!(read[0].contains("12345678901234567890") && read[0].contains("значение"), "{read:?}");
        assert_eq!(read[1], "NULL | NULL | NULL");
    }
}

/// Bytes that are no text are an error that names the column, in both protocols; other columns are read as ever.
#[tokio::test]
async fn c010_invalid_utf8_in_a_text_column_is_refused_by_name() {
    let cluster = Cluster::sandbox().await;
    cluster.duplicate_table("t", "id INT, s STRING, a ARRAY<STRING>", "").await;
    cluster.doris("INSERT INTO {db}.t VALUES (1, 'fine', ['fine']), (2, 'AxyB', ['AxyB'])").await;
    let other = Action::OtherBytes { from: b"AxyB".to_vec(), to: vec![0x41, 0x84, 0xff, 0x42] };
    cluster.server().faults().push(Fault::new(other.clone()).at(Site::BeFlight).always());
    cluster.server().faults().push(Fault::new(other).at(Site::Mysql).when("`s`").always());
    let ctx = cluster.context();
    cluster.declare(&ctx, "flight", "t", &[]).await;
    cluster.declare(&ctx, "mysql", "t", &[("source.use-flight-sql", "false")]).await;
    for table in ["flight", "mysql"] {
        for column in ["s", "length(s)", "id, s"] {
            let error = refusal(&ctx, &format!("SELECT {column} FROM {table}")).await;
            let named = error.contains("column 's'") && error.contains(&cluster.table("t"));
            assert!(named && error.contains("41 84 ff 42") && error.contains("HEX("), "{table} {column}: {error}");
        }
        assert_eq!(lines(&run(&ctx, &format!("SELECT id FROM {table} ORDER BY id")).await), ["1", "2"]);
    }
    let error = refusal(&ctx, "SELECT a FROM flight").await;
    assert!(error.contains("column 'a'"), "{error}");
    let applied = cluster.server().faults().applied();
    assert!([Site::BeFlight, Site::Mysql].iter().all(|site| applied.iter().any(|used| used.site == *site)));
}
