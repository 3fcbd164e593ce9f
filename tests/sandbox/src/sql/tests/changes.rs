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
        ("s@reset()", "Invalid param type for olap table"),
        ("s@incr('startTimestamp'=' 0')", "Invalid TIMESTAMP format in incr clause:  0"),
        (
            "s@incr('endTimestamp'='1960-01-01 00:00:00')",
            "Invalid TIMESTAMP format in incr clause: 1960-01-01 00:00:00",
        ),
        ("s@incr('incrementtype'='DETAIL')", "Unsupported parameter in incr query: incrementtype"),
        ("s@incr() PARTITION(p)", "Partition: p is not exists on table s"),
        ("s@incr() FOR VERSION AS OF 1", "FOR VERSION/TIME AS OF cannot be used with @incr"),
    ];
    for (from, text) in cases {
        assert_eq!(f.error(&format!("SELECT * FROM {from}")).await.text(), text, "{from}");
    }
    let hinted = f.error("SELECT * FROM s@incr('incrementType'='DETAIL') /*+PREAGGOPEN*/").await;
    assert_eq!(hinted.text(), "PREAGGOPEN hint is not supported for INCR query");
}

#[tokio::test]
async fn truncate_forgets_pending_changes() {
    let mut f = Fixture::with_database().await;
    table(&mut f, false).await;
    f.run("INSERT INTO s VALUES (1,'a',1); TRUNCATE TABLE s; INSERT INTO s VALUES (2,'b',1)").await;
    assert_eq!(f.rows("SELECT id FROM s@incr('incrementType'='DETAIL')").await, ["2"]);
    assert_eq!(f.rows("SELECT id, __DORIS_COMMIT_TSO_COL__ > 0 FROM s").await, ["2|1"]);
}

#[tokio::test]
async fn schema_of_a_window_is_nullable_but_for_keys_and_metadata() {
    for (profile, stem, properties, lsn) in [
        (Profile::V5_0Changelog, "CHANGELOG", "'changelog.enable'='true'", "bigint"),
        (Profile::V5_0Binlog, "BINLOG", "'binlog.enable'='true', 'binlog.format'='ROW'", "largeint"),
    ] {
        let mut f = Fixture::new(profile);
        f.run("CREATE DATABASE d; USE d").await;
        f.run(&format!(
            "CREATE TABLE s (id INT NOT NULL, n INT NOT NULL) UNIQUE KEY(id) DISTRIBUTED BY HASH(id) BUCKETS 1 \
             PROPERTIES({properties})"
        ))
        .await;
        let sql = format!(
            "SELECT id, n, __DORIS_{stem}_TSO__, __doris_{0}_lsn__, __DORIS_{stem}_OP__ FROM s@incr('incrementType'='DETAIL') t",
            stem.to_lowercase()
        );
        let result = f.session.execute(&sql).await.unwrap().pop();
        let Some(crate::engine::StatementResult::Rows { schema, types, .. }) = result else { panic!("{sql}") };
        let nullable: Vec<bool> = schema.fields().iter().map(|f| f.is_nullable()).collect();
        assert_eq!(nullable[..2], [false, true], "{profile}");
        let names: Vec<String> = types.iter().map(ToString::to_string).collect();
        assert_eq!(names[2].to_lowercase(), "bigint");
        assert_eq!(names[3].to_lowercase(), lsn);
        assert_eq!(names[4].to_lowercase(), "bigint");
    }
}

#[tokio::test]
async fn a_net_delete_carries_the_row_at_the_start_or_in_older_builds_the_last_one() {
    for (profile, property, stem, expected) in [
        (
            Profile::V5_0Changelog,
            "'changelog.enable'='true', 'changelog.need_historical_value'='true'",
            "CHANGELOG",
            "1|a|1",
        ),
        (
            Profile::V5_0Binlog,
            "'binlog.enable'='true', 'binlog.format'='ROW', 'binlog.need_historical_value'='true'",
            "BINLOG",
            "1|b|1",
        ),
    ] {
        let mut f = Fixture::new(profile);
        f.run("CREATE DATABASE d; USE d").await;
        f.run(&format!(
            "CREATE TABLE s (id INT, v STRING) UNIQUE KEY(id) DISTRIBUTED BY HASH(id) BUCKETS 1 PROPERTIES({property})"
        ))
        .await;
        f.run("INSERT INTO s VALUES (1, 'a')").await;
        f.clock.advance(2000);
        f.run("INSERT INTO s VALUES (1, 'b'); DELETE FROM s WHERE id = 1").await;
        f.clock.advance(1000);
        let sql = format!("SELECT id, v, __DORIS_{stem}_OP__ FROM s@incr('startTimestamp'='2024-01-01 00:00:01')");
        assert_eq!(f.rows(&sql).await, [expected], "{profile}");
    }
}

#[tokio::test]
async fn pairs_without_net_change_vanish_in_the_newest_build_only() {
    // (value columns, row before and after, pair stays in the newest build)
    let cases = [
        ("v STRING", "'a'", false),
        ("v STRING", "NULL", true),
        ("v DOUBLE", "1.5", true),
        ("v ARRAY<INT>", "'[1,2]'", false),
        ("v ARRAY<DOUBLE>", "'[1.5]'", true),
        ("v STRING, w INT", "NULL, 3", false),
    ];
    for (columns, row, stays) in cases {
        for profile in [Profile::V5_0Changelog, Profile::V5_0Binlog] {
            let stem = if profile == Profile::V5_0Changelog { "changelog" } else { "binlog" };
            let format = if stem == "binlog" { "'binlog.format'='ROW'," } else { "" };
            let mut f = Fixture::new(profile);
            f.run("CREATE DATABASE d; USE d").await;
            f.run(&format!(
                "CREATE TABLE s (id INT, {columns}) UNIQUE KEY(id) DISTRIBUTED BY HASH(id) BUCKETS 1 PROPERTIES({format} \
                 '{stem}.enable'='true', '{stem}.need_historical_value'='true')"
            ))
            .await;
            f.run(&format!("INSERT INTO s VALUES (1, {row})")).await;
            f.clock.advance(2000);
            f.run(&format!("DELETE FROM s WHERE id = 1; INSERT INTO s VALUES (1, {row})")).await;
            f.clock.advance(1000);
            let rows = f.rows("SELECT id FROM s@incr('startTimestamp'='2024-01-01 00:00:01')").await;
            let pair = stays || profile == Profile::V5_0Binlog;
            assert_eq!(rows.len(), if pair { 2 } else { 0 }, "{profile} {columns} {row}");
        }
    }
}

#[tokio::test]
async fn windows_take_partitions_tablets_and_aliases() {
    let mut f = Fixture::with_database().await;
    table(&mut f, true).await;
    f.run("INSERT INTO s VALUES (1,'a',1),(2,'b',2),(3,'c',3),(4,'d',4)").await;
    let tablets = f.engine.tablets("d", "s").unwrap();
    let mut counts = Vec::new();
    for tablet in &tablets {
        let sql =
            format!("SELECT x.id FROM d.s@incr('incrementType'='DETAIL') PARTITION(s) TABLET({}) AS x", tablet.id);
        counts.push(f.rows(&sql).await.len() as u64);
    }
    assert_eq!(counts, tablets.iter().map(|t| t.rows).collect::<Vec<_>>());
    let joined =
        "SELECT a.id, b.v FROM s@incr('incrementType'='DETAIL') a JOIN s@incr() b ON a.id = b.id WHERE a.id > 2";
    assert_eq!(f.sorted(joined).await, ["3|c", "4|d"]);
}

#[tokio::test]
async fn lsns_order_one_transaction() {
    let mut f = Fixture::with_database().await;
    f.run("CREATE TABLE du (k INT) DUPLICATE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 1 PROPERTIES('changelog.enable'='true')").await;
    f.run("INSERT INTO du VALUES (1),(2); INSERT INTO du VALUES (3)").await;
    let sql = format!("SELECT k, {META} FROM du@incr() ORDER BY tso, lsn");
    let lsns: Vec<String> = f.rows(&sql).await.iter().map(|r| r.split('|').nth(2).unwrap().to_owned()).collect();
    assert_eq!(lsns, ["1", "2", "1"]);
    assert_eq!(f.sorted("SELECT k, __DORIS_ROW_LSN_COL__ FROM du").await, ["1|1", "2|2", "3|1"]);
    f.run("SET show_hidden_columns = true").await;
    assert_eq!(f.rows("SELECT * FROM du WHERE k = 3").await[0].split('|').count(), 3);
}

#[tokio::test]
async fn a_start_before_a_young_table_has_not_expired() {
    let mut f = Fixture::new(Profile::V5_0Changelog);
    f.run("CREATE DATABASE d; USE d").await;
    f.run(
        "CREATE TABLE s (id INT) UNIQUE KEY(id) DISTRIBUTED BY HASH(id) BUCKETS 1 PROPERTIES('changelog.enable'='true', \
         'changelog.need_historical_value'='true', 'changelog.ttl_seconds'='60')",
    )
    .await;
    f.run("INSERT INTO s VALUES (1)").await;
    f.clock.advance(2000);
    let sql = "SELECT id FROM s@incr('startTimestamp'='2020-01-01 00:00:00', 'incrementType'='MIN_DELTA')";
    assert_eq!(f.rows(sql).await, ["1"]);
    f.clock.advance(120_000);
    assert!(f.error(sql).await.message.contains("has expired"));
}
