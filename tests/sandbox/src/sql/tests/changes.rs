//! Change records and `@incr` windows.

use super::Fixture;
use crate::engine::Profile;

const META: &str = "__DORIS_CHANGELOG_TSO__ AS tso, __DORIS_CHANGELOG_LSN__ AS lsn, __DORIS_CHANGELOG_OP__ AS op";

async fn table(f: &mut Fixture, historical: bool) {
    f.run(&format!(
        "CREATE TABLE s (id INT NOT NULL, v STRING, n INT) UNIQUE KEY(id) DISTRIBUTED BY HASH(id) BUCKETS 2 \
         PROPERTIES('changelog.enable'='true', 'changelog.need_historical_value'='{historical}')"
    ))
    .await;
}

#[tokio::test]
async fn detail_tells_every_change_with_images() {
    let mut f = Fixture::with_database().await;
    table(&mut f, true).await;
    f.run("INSERT INTO s VALUES (1, 'a', 1), (2, 'b', 2)").await;
    f.clock.advance(1000);
    f.run("UPDATE s SET v = 'A' WHERE id = 1; DELETE FROM s WHERE id = 2; INSERT INTO s VALUES (2, 'again', 5)").await;
    f.clock.advance(1000);
    let sql = "SELECT id, v, n, __DORIS_CHANGELOG_OP__ FROM s@incr(\"startTimestamp\"=\"0\", \"incrementType\"=\"DETAIL\") \
               ORDER BY __DORIS_CHANGELOG_TSO__, __DORIS_CHANGELOG_LSN__, __DORIS_CHANGELOG_OP__";
    let rows = f.rows(sql).await;
    assert_eq!(rows[2..], ["1|a|1|2", "1|A|1|3", "2|b|2|1", "2|again|5|0"]);
    let mut first = rows[..2].to_vec();
    first.sort();
    assert_eq!(first, ["1|a|1|0", "2|b|2|0"]);
    // Hidden columns are not part of `*`.
    assert_eq!(f.rows("SELECT * FROM s@incr('incrementType'='DETAIL') LIMIT 1").await[0].split('|').count(), 3);
    let sql = format!("SELECT *, {META} FROM d.s@incr('incrementType'='detail') x WHERE x.id = 1 ORDER BY tso LIMIT 1");
    let tso = ((super::START_MS) << 18) | 1;
    assert_eq!(f.rows(&sql).await[0].split('|').nth(3).unwrap(), tso.to_string());
}

#[tokio::test]
async fn deletes_without_historical_values_carry_the_key_only() {
    let mut f = Fixture::with_database().await;
    table(&mut f, false).await;
    f.run("INSERT INTO s VALUES (1, 'a', 1); INSERT INTO s VALUES (1, 'b', 2); DELETE FROM s WHERE id = 1; DELETE FROM s WHERE id = 1").await;
    let sql = "SELECT id, v, n, __DORIS_CHANGELOG_OP__ AS op FROM s@incr('incrementType'='DETAIL') ORDER BY __DORIS_CHANGELOG_TSO__, __DORIS_CHANGELOG_LSN__, op";
    assert_eq!(f.rows(sql).await, ["1|a|1|0", "1|b|2|2", "1|b|2|3", "1|NULL|NULL|1"]);
    let refused = f.error("SELECT * FROM s@incr()").await;
    assert_eq!(
        refused.text(),
        "MIN_DELTA INCR query requires base table to enable changelog.need_historical_value=true"
    );
}

#[tokio::test]
async fn windows_are_half_open_by_profile() {
    // (profile, properties, op column, rows for the window that starts / ends at the commit's second)
    let cases = [
        (Profile::V5_0Changelog, "'changelog.enable'='true'", 1, 0),
        (Profile::V5_0Binlog, "'binlog.enable'='true', 'binlog.format'='ROW'", 0, 1),
    ];
    for (profile, properties, starting, ending) in cases {
        let mut f = Fixture::new(profile);
        f.run("CREATE DATABASE d; USE d").await;
        f.run(&format!(
            "CREATE TABLE s (id INT) UNIQUE KEY(id) DISTRIBUTED BY HASH(id) BUCKETS 1 PROPERTIES({properties})"
        ))
        .await;
        f.run("INSERT INTO s VALUES (1)").await;
        f.clock.advance(5000);
        let window = |start: &str, end: &str| {
            format!(
                "SELECT id FROM s@incr('startTimestamp'='{start}', 'endTimestamp'='{end}', 'incrementType'='DETAIL')"
            )
        };
        let at = "2024-01-01 00:00:00";
        assert_eq!(f.rows(&window(at, "2024-01-01 00:00:05")).await.len(), starting, "{profile}");
        assert_eq!(f.rows(&window("2023-12-31 23:59:59", at)).await.len(), ending, "{profile}");
        assert_eq!(f.rows(&window("0", "2024-01-01 00:00:05")).await.len(), 1, "{profile}");
        assert!(f.rows(&window("2024-01-01 00:00:04", "2024-01-01 00:00:02")).await.is_empty());
        f.run("SET time_zone = '+08:00'").await;
        assert_eq!(f.rows(&window("2024-01-01 07:59:59", "2024-01-01 08:00:05")).await.len(), 1, "{profile}");
    }
}

#[tokio::test]
async fn min_delta_folds_by_first_and_last_change() {
    // (changes before the window, changes in it, rows)
    let cases: &[(&str, &str, &[&str])] = &[
        ("", "INSERT INTO s VALUES (1,'a',1); INSERT INTO s VALUES (1,'b',2)", &["1|b|2|0"]),
        ("", "INSERT INTO s VALUES (1,'a',1); DELETE FROM s WHERE id=1", &[]),
        (
            "INSERT INTO s VALUES (1,'a',1)",
            "INSERT INTO s VALUES (1,'b',2); INSERT INTO s VALUES (1,'c',3)",
            &["1|a|1|2", "1|c|3|3"],
        ),
        ("INSERT INTO s VALUES (1,'a',1)", "INSERT INTO s VALUES (1,'b',2); DELETE FROM s WHERE id=1", &["1|a|1|1"]),
        (
            "INSERT INTO s VALUES (1,'a',1)",
            "DELETE FROM s WHERE id=1; INSERT INTO s VALUES (1,'c',3)",
            &["1|a|1|2", "1|c|3|3"],
        ),
        ("INSERT INTO s VALUES (1,'a',1)", "DELETE FROM s WHERE id=1", &["1|a|1|1"]),
        ("INSERT INTO s VALUES (1,'a',1)", "INSERT INTO s VALUES (1,'b',2); INSERT INTO s VALUES (1,'a',1)", &[]),
    ];
    for (before, inside, expected) in cases {
        let mut f = Fixture::with_database().await;
        table(&mut f, true).await;
        f.run(before).await;
        f.clock.advance(1000);
        f.run(inside).await;
        f.clock.advance(1000);
        let sql = "SELECT id, v, n, __DORIS_CHANGELOG_OP__ AS op FROM s@incr('startTimestamp'='2024-01-01 00:00:01') ORDER BY op";
        assert_eq!(f.rows(sql).await, *expected, "{before} / {inside}");
    }
}

#[tokio::test]
async fn append_only_and_duplicate_tables_tell_inserts_only() {
    let mut f = Fixture::with_database().await;
    table(&mut f, true).await;
    f.run("INSERT INTO s VALUES (1,'a',1); INSERT INTO s VALUES (1,'b',2),(2,'x',1); DELETE FROM s WHERE id = 2").await;
    let sql = "SELECT id, v, __DORIS_CHANGELOG_OP__ AS op FROM s@incr('incrementType'='APPEND_ONLY') ORDER BY id";
    assert_eq!(f.rows(sql).await, ["1|a|0", "2|x|0"]);
    f.run("CREATE TABLE du (k INT, v STRING) DUPLICATE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 1 PROPERTIES('changelog.enable'='true')").await;
    f.run("INSERT INTO du VALUES (1,'a'),(1,'a'); DELETE FROM du WHERE k = 1; INSERT INTO du VALUES (2,'b')").await;
    for kind in ["", "'incrementType'='DETAIL'", "'incrementType'='MIN_DELTA'"] {
        let sql = format!("SELECT k, __DORIS_CHANGELOG_OP__ FROM du@incr({kind})");
        assert_eq!(f.sorted(&sql).await, ["1|0", "1|0", "2|0"], "{kind}");
    }
}

#[tokio::test]
async fn incr_refuses_what_the_server_refuses() {
    let mut f = Fixture::with_database().await;
    table(&mut f, true).await;
    f.run("CREATE TABLE plain (id INT) UNIQUE KEY(id) DISTRIBUTED BY HASH(id) BUCKETS 1").await;
    let cases = [
        ("plain@incr()", "INCR query requires ROW binlog enabled on base table."),
        ("s@incr('starttimestamp'='0')", "Unsupported parameter in incr query: starttimestamp"),
        ("s@incr('incrementType'='ALL')", "Unsupported parameter in incr query: Unsupported increment type: ALL"),
        ("s@incr('startTimestamp'='2024-01-01')", "Invalid TIMESTAMP format in incr clause: 2024-01-01"),
        (
            "s@incr('startTimestamp'='2024-01-01 00:00:00.5')",
            "Invalid TIMESTAMP format in incr clause: 2024-01-01 00:00:00.5",
        ),
        ("s@snapshot()", "Invalid param type for olap table"),
    ];
    for (from, text) in cases {
        assert_eq!(f.error(&format!("SELECT * FROM {from}")).await.text(), text, "{from}");
    }
}

#[tokio::test]
async fn end_after_current_tso_is_refused_by_code_or_text() {
    let sql = "SELECT * FROM s@incr('endTimestamp'='2024-01-01 00:00:01', 'incrementType'='DETAIL')";
    let mut f = Fixture::with_database().await;
    table(&mut f, false).await;
    let error = f.error(sql).await;
    assert_eq!((error.code, error.name), (5100, Some("ERR_INCR_WINDOW_NOT_READY")));
    assert!(error.text().starts_with(
        "ERR_INCR_WINDOW_NOT_READY: reason=END_AFTER_CURRENT_TSO, requestedEndTimestampMs=1704067201000, currentTSO="
    ));
    f.clock.advance(1000);
    f.run(sql).await;
    let mut f = Fixture::new(Profile::V5_0Binlog);
    f.run("CREATE DATABASE d; USE d; CREATE TABLE s (id INT) UNIQUE KEY(id) DISTRIBUTED BY HASH(id) BUCKETS 1 PROPERTIES('binlog.enable'='true', 'binlog.format'='ROW')").await;
    let error = f.error(sql).await;
    assert_eq!(error.code, 1105);
    assert_eq!(
        error.text(),
        "endTimestamp exceeds the maximum supported time for an INCR read: requestedEndTimestampMs=1704067201000, CURRENT_TSO_PHYSICAL_TIME=1704067200000"
    );
}

#[tokio::test(start_paused = true)]
async fn incr_waits_for_open_transactions_of_the_table() {
    let mut f = Fixture::with_database().await;
    table(&mut f, false).await;
    let txn = f
        .engine
        .begin_load(crate::engine::LoadSpec {
            db: "d".into(),
            table: "s".into(),
            label: Some("open".into()),
            two_phase: true,
            timeout: std::time::Duration::from_secs(600),
            columns: None,
            merge_type: crate::engine::MergeType::Append,
            source: "BACKEND_STREAMING",
            ..Default::default()
        })
        .unwrap();
    let sql = "SELECT * FROM s@incr('incrementType'='DETAIL')";
    // The structured error is for windows with an end; a read up to now keeps the older text.
    let error = f.error(sql).await;
    assert_eq!((error.code, error.name), (1105, None));
    assert!(error.message.contains("timeout waiting previous transactions finish for time-based read"), "{error}");
    let bounded = "SELECT * FROM s@incr('endTimestamp'='2020-01-01 00:00:00','incrementType'='DETAIL')";
    let error = f.error(bounded).await;
    assert_eq!((error.code, error.name), (5101, Some("ERR_INCR_VISIBLE_WAIT_TIMEOUT")));
    f.run("SET enable_eventual_consistent_change = true").await;
    f.run(sql).await;
    f.run("SET enable_eventual_consistent_change = false").await;
    f.engine.abort_load(txn, "done");
    f.run(sql).await;
}

#[tokio::test]
async fn truncate_forgets_pending_changes() {
    let mut f = Fixture::with_database().await;
    table(&mut f, false).await;
    f.run("INSERT INTO s VALUES (1,'a',1); TRUNCATE TABLE s; INSERT INTO s VALUES (2,'b',1)").await;
    assert_eq!(f.rows("SELECT id FROM s@incr('incrementType'='DETAIL')").await, ["2"]);
    assert_eq!(f.rows("SELECT id, __DORIS_COMMIT_TSO_COL__ > 0 FROM s").await, ["2|1"]);
}
