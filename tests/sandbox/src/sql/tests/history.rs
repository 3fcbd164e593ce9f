//! Retention, a table as it was, and raw records.

use super::Fixture;
use crate::engine::Profile;

const EXPIRED: &str = "Changelog offset has expired according to changelog.ttl_seconds";

async fn create(f: &mut Fixture, extra: &str) {
    f.run(&format!(
        "CREATE TABLE s (id INT NOT NULL, v STRING, n INT) UNIQUE KEY(id) DISTRIBUTED BY HASH(id) BUCKETS 2 \
         PROPERTIES('changelog.enable'='true', 'changelog.need_historical_value'='true'{extra})"
    ))
    .await;
}

#[tokio::test]
async fn records_expire_by_age() {
    let mut f = Fixture::with_database().await;
    create(&mut f, ", 'changelog.ttl_seconds'='10'").await;
    f.run("INSERT INTO s VALUES (1,'a',1)").await;
    f.clock.advance(9_000);
    f.run("INSERT INTO s VALUES (1,'b',1),(2,'x',1)").await;
    let detail = "SELECT id, v FROM s@incr('startTimestamp'='2024-01-01 00:00:00', 'incrementType'='DETAIL')";
    let delta = "SELECT id, v FROM s@incr('startTimestamp'='2024-01-01 00:00:00')";
    assert_eq!(f.rows(detail).await.len(), 4);
    assert_eq!(f.sorted(delta).await, ["1|b", "2|x"]);
    // At its age of 10 s the first record is gone: skipped, or a wrong net change.
    f.clock.advance(1_000);
    assert_eq!(f.sorted(detail).await, ["1|a", "1|b", "2|x"]);
    assert_eq!(
        f.rows("SELECT id FROM s@incr('startTimestamp'='2024-01-01 00:00:00', 'incrementType'='APPEND_ONLY')").await,
        ["2"]
    );
    assert_eq!(f.error(delta).await.text(), EXPIRED);
    // Without a start, or with start 0, the start moves.
    for start in ["", "'startTimestamp'='0'"] {
        assert_eq!(f.sorted(&format!("SELECT id, v FROM s@incr({start})")).await, ["1|a", "1|b", "2|x"]);
    }
    assert_eq!(f.rows("SELECT id FROM s@incr('startTimestamp'='2024-01-01 00:00:01')").await.len(), 3);
    // Raw records stay until they are cleaned up.
    assert_eq!(f.rows("SELECT id FROM changelog('table'='s')").await.len(), 3);
    f.engine.sweep();
    assert_eq!(f.rows("SELECT id FROM changelog('table'='s')").await.len(), 2);
    assert_eq!(f.sorted("SELECT id, v FROM s").await, ["1|b", "2|x"]);
    f.engine.expire_changes("d", "s", super::START_MS + 9_500).unwrap();
    assert_eq!(f.rows("SELECT id FROM s@incr()").await.len(), 0);
    assert_eq!(f.error("SELECT id FROM s@incr('startTimestamp'='2024-01-01 00:00:09')").await.text(), EXPIRED);
}

#[tokio::test]
async fn the_older_build_never_expires() {
    let mut f = Fixture::new(Profile::V5_0Binlog);
    f.run("CREATE DATABASE d; USE d").await;
    f.run(
        "CREATE TABLE s (id INT) UNIQUE KEY(id) DISTRIBUTED BY HASH(id) BUCKETS 1 PROPERTIES('binlog.enable'='true', \
         'binlog.format'='ROW', 'binlog.need_historical_value'='true', 'binlog.ttl_seconds'='1', 'binlog.max_history_nums'='1')",
    )
    .await;
    f.run("INSERT INTO s VALUES (1); INSERT INTO s VALUES (2)").await;
    f.clock.advance(1_000_000);
    f.engine.sweep();
    assert_eq!(f.rows("SELECT id FROM s@incr('startTimestamp'='2023-01-01 00:00:00')").await.len(), 2);
}

#[tokio::test]
async fn a_table_is_read_as_it_was() {
    let mut f = Fixture::with_database().await;
    create(&mut f, "").await;
    f.clock.advance(500);
    f.run("INSERT INTO s VALUES (1,'a',1),(2,'b',2),(3,'c',3)").await;
    let first = f.rows("SELECT MAX(__DORIS_COMMIT_TSO_COL__) FROM s").await.remove(0);
    f.clock.advance(1_000);
    f.run("UPDATE s SET v = 'A' WHERE id = 1; DELETE FROM s WHERE id = 2; INSERT INTO s VALUES (4,'d',4)").await;
    let second = f.rows("SELECT MAX(__DORIS_COMMIT_TSO_COL__) FROM s").await.remove(0);
    f.clock.advance(1_000);
    f.run("INSERT INTO s VALUES (1,'AA',1),(2,'again',2); DELETE FROM s WHERE id = 4").await;
    let was: &[&str] = &["1|a|1", "2|b|2", "3|c|3"];
    let then: &[&str] = &["1|A|1", "3|c|3", "4|d|4"];
    let now: &[&str] = &["1|AA|1", "2|again|2", "3|c|3"];
    let cases: &[(String, &[&str])] = &[
        ("FOR TIME AS OF '2024-01-01 00:00:00'".into(), &[]),
        ("FOR TIME AS OF '2020-01-01 00:00:00'".into(), &[]),
        ("FOR TIME AS OF '2024-01-01 00:00:01'".into(), was),
        (format!("FOR VERSION AS OF {first}"), was),
        ("FOR TIME AS OF '2024-01-01 00:00:02' t".into(), then),
        (format!("FOR VERSION AS OF {second} AS t"), then),
        ("FOR VERSION AS OF 0".into(), &[]),
        ("FOR VERSION AS OF 9223372036854775807".into(), now),
        ("FOR TIME AS OF '2034-01-01 00:00:01'".into(), now),
    ];
    for (clause, rows) in cases {
        assert_eq!(f.sorted(&format!("SELECT * FROM s {clause}")).await, *rows, "{clause}");
    }
    // Filters, joins, tablets, the session's zone.
    assert_eq!(f.rows("SELECT v FROM d.s FOR TIME AS OF '2024-01-01 00:00:01' WHERE id = 2").await, ["b"]);
    let joined = "SELECT n.id, o.v, n.v FROM s n JOIN s FOR TIME AS OF '2024-01-01 00:00:01' AS o ON n.id = o.id WHERE n.v <> o.v ORDER BY n.id";
    assert_eq!(f.rows(joined).await, ["1|a|AA", "2|b|again"]);
    let mut found = 0;
    for tablet in f.engine.tablets("d", "s").unwrap() {
        found +=
            f.rows(&format!("SELECT id FROM s FOR TIME AS OF '2024-01-01 00:00:01' TABLET({})", tablet.id)).await.len();
    }
    assert_eq!(found, 3);
    f.run("SET time_zone = '+08:00'").await;
    assert_eq!(f.sorted("SELECT * FROM s FOR TIME AS OF '2024-01-01 08:00:01'").await, was);
    // A truncated table has no past; an expired moment cannot be told.
    f.engine.expire_changes("d", "s", super::START_MS + 2_000).unwrap();
    assert_eq!(f.error("SELECT * FROM s FOR TIME AS OF '2024-01-01 08:00:01'").await.text(), EXPIRED);
    f.run("SELECT * FROM s FOR TIME AS OF '2020-01-01 08:00:00'").await;
    f.run("TRUNCATE TABLE s").await;
    assert!(f.rows("SELECT * FROM s FOR TIME AS OF '2024-01-01 08:00:02'").await.is_empty());
}

/// The values of a tablet are those that it had, and no others.
#[tokio::test]
async fn each_tablet_gives_its_own_rows_of_the_past() {
    let mut f = Fixture::with_database().await;
    let create = "CREATE TABLE w (id INT NOT NULL, v STRING) UNIQUE KEY(id) DISTRIBUTED BY HASH(id) BUCKETS 8 \
         PROPERTIES('changelog.enable'='true', 'changelog.need_historical_value'='true')";
    f.run(create).await;
    let rows: Vec<String> = (0..100).map(|id| format!("({id}, 'r{id}')")).collect();
    f.run(&format!("INSERT INTO w VALUES {}", rows.join(","))).await;
    let tablets = f.engine.tablets("d", "w").unwrap();
    let mut was = Vec::new();
    for tablet in &tablets {
        was.push(f.sorted(&format!("SELECT id, v FROM w TABLET({})", tablet.id)).await);
    }
    assert!(was.iter().all(|rows| !rows.is_empty() && rows.len() < 50), "spread over the tablets: {was:?}");
    let version = f.rows("SELECT MAX(__DORIS_COMMIT_TSO_COL__) FROM w").await.remove(0);
    let past = format!("SELECT id, v FROM w FOR VERSION AS OF {version}");
    // Once as long as nothing has changed, once with rows that were superseded.
    for change in ["SELECT 1", "UPDATE w SET v = 'new' WHERE id < 30; DELETE FROM w WHERE id >= 70"] {
        f.clock.advance(1_000);
        f.run(change).await;
        for (tablet, was) in tablets.iter().zip(&was) {
            assert_eq!(f.sorted(&format!("{past} TABLET({})", tablet.id)).await, *was, "{change}");
        }
        let two = f.rows(&format!("{past} TABLET({}, {})", tablets[0].id, tablets[5].id)).await.len();
        assert_eq!(two, was[0].len() + was[5].len());
    }
}

#[tokio::test]
async fn a_duplicate_table_keeps_its_deletes_in_the_past() {
    let mut f = Fixture::with_database().await;
    f.run("CREATE TABLE du (k INT) DUPLICATE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 1 PROPERTIES('changelog.enable'='true')").await;
    f.run("INSERT INTO du VALUES (1),(2)").await;
    f.clock.advance(1000);
    f.run("DELETE FROM du WHERE k = 1; INSERT INTO du VALUES (3)").await;
    assert_eq!(f.rows("SELECT k FROM du FOR TIME AS OF '2024-01-01 00:00:01'").await, ["2"]);
    assert_eq!(f.sorted("SELECT k FROM du").await, ["2", "3"]);
}

#[tokio::test]
async fn the_past_needs_records_with_images() {
    let mut f = Fixture::with_database().await;
    f.run("CREATE TABLE plain (id INT) UNIQUE KEY(id) DISTRIBUTED BY HASH(id) BUCKETS 1").await;
    f.run("CREATE TABLE s (id INT) UNIQUE KEY(id) DISTRIBUTED BY HASH(id) BUCKETS 1 PROPERTIES('changelog.enable'='true')").await;
    for (from, text) in [
        ("plain FOR VERSION AS OF 1", "FOR VERSION/TIME AS OF requires row binlog"),
        (
            "s FOR VERSION AS OF 1",
            "FOR VERSION/TIME AS OF on merge-on-write table requires changelog.need_historical_value=true",
        ),
        ("plain FOR TIME AS OF 5", "mismatched input '5' after AS OF"),
    ] {
        assert_eq!(f.error(&format!("SELECT * FROM {from}")).await.text(), text);
    }
}

#[tokio::test]
async fn raw_records_have_raw_ops_and_both_images() {
    let mut f = Fixture::with_database().await;
    create(&mut f, "").await;
    f.run("INSERT INTO s VALUES (1,'a',1); INSERT INTO s VALUES (1,'b',2); DELETE FROM s WHERE id = 1; INSERT INTO s VALUES (1,'c',3)").await;
    let sql = "SELECT __DORIS_CHANGELOG_OP__ AS op, id, v, n, __BEFORE__v__, __BEFORE__n__ FROM changelog('db'='d', 'table'='s') \
               ORDER BY __DORIS_CHANGELOG_TSO__, __DORIS_CHANGELOG_LSN__";
    assert_eq!(f.rows(sql).await, ["0|1|a|1|NULL|NULL", "1|1|b|2|a|1", "2|1|b|2|b|2", "0|1|c|3|NULL|NULL"]);
    assert_eq!(f.rows("SELECT count(*) FROM changelog('table'='s', 'partition'='s') r WHERE r.id = 1").await, ["4"]);
    let tablets: Vec<String> = f.engine.tablets("d", "s").unwrap().iter().map(|t| t.id.to_string()).collect();
    let sql = format!("SELECT count(*) FROM changelog('table'='s', 'tablet'='{}')", tablets.join(","));
    assert_eq!(f.rows(&sql).await, ["4"]);
    for (call, text) in [
        ("changelog('table'='none')", "Table [none] does not exist in database [d]."),
        ("changelog('x'='s')", "Unknown property of the table function: x"),
        ("changelog('db'='d')", "the table function needs the property \"table\""),
    ] {
        assert_eq!(f.error(&format!("SELECT * FROM {call}")).await.text(), text);
    }
}

#[tokio::test]
async fn properties_are_checked_and_printed_by_build() {
    let create = |keys: &str, properties: &str| {
        format!("CREATE TABLE t (k INT, v INT) {keys} KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 1 PROPERTIES({properties})")
    };
    let on = Profile::V5_0Changelog;
    let row = Profile::V5_0Binlog;
    let refusals = [
        (
            on,
            "UNIQUE",
            "'changelog.enable'='true','changelog.ttl_seconds'='0'",
            "changelog.ttl_seconds must be greater than 0",
        ),
        (
            on,
            "UNIQUE",
            "'binlog.enable'='true','binlog.format'='ROW'",
            "property binlog.format is not supported any more",
        ),
        (
            on,
            "UNIQUE",
            "'binlog.need_historical_value'='true'",
            "property binlog.need_historical_value is not supported any more",
        ),
        (on, "UNIQUE", "'changelog.format'='ROW'", "Unknown properties: {changelog.format=ROW}"),
        (row, "UNIQUE", "'binlog.enable'='true','binlog.format'='row'", "Invalid binlog format value: row"),
        (row, "UNIQUE", "'binlog.enable'='maybe'", "Invalid binlog enable value: maybe"),
        (row, "UNIQUE", "'binlog.ttl_seconds'='soon'", "Invalid binlog ttl_seconds value: soon"),
        (
            row,
            "DUPLICATE",
            "'binlog.enable'='true','binlog.format'='ROW','binlog.need_historical_value'='true'",
            "Duplicate table model don't support record historical value",
        ),
    ];
    for (profile, keys, properties, text) in refusals {
        let mut f = Fixture::new(profile);
        f.run("CREATE DATABASE d; USE d").await;
        let error = f.error(&create(keys, properties)).await;
        assert!(error.text().starts_with(text), "{properties}: {error}");
    }
    let prints: [(Profile, &str, &[&str]); 3] = [
        (
            on,
            "'changelog.enable'='true'",
            &[
                "\"changelog.enable\" = \"true\"",
                "\"changelog.need_historical_value\" = \"false\"",
                "\"changelog.ttl_seconds\" = \"86400\"",
                "\"changelog.max_bytes\" = \"9223372036854775807\"",
                "\"changelog.max_history_nums\" = \"9223372036854775807\"",
            ],
        ),
        (
            row,
            "'binlog.enable'='true','binlog.format'='ROW','binlog.ttl_seconds'='7'",
            &[
                "\"binlog.enable\" = \"true\"",
                "\"binlog.format\" = \"ROW\"",
                "\"binlog.need_historical_value\" = \"false\"",
                "\"binlog.ttl_seconds\" = \"7\"",
                "\"binlog.max_bytes\" = \"9223372036854775807\"",
                "\"binlog.max_history_nums\" = \"9223372036854775807\"",
            ],
        ),
        (
            row,
            "'replication_num'='1'",
            &["\"binlog.enable\" = \"false\"", "\"binlog.format\" = \"STATEMENT_AND_SNAPSHOT\""],
        ),
    ];
    for (profile, properties, lines) in prints {
        let mut f = Fixture::new(profile);
        f.run("CREATE DATABASE d; USE d").await;
        f.run(&create("UNIQUE", properties)).await;
        let text = f.rows("SHOW CREATE TABLE t").await.remove(0);
        for line in lines {
            assert!(text.contains(line), "{line} in {text}");
        }
    }
}

#[tokio::test]
async fn the_fe_switch_turns_the_feature_off() {
    let engine = crate::engine::Engine::new(crate::engine::EngineConfig {
        enable_feature_binlog: false,
        ..crate::engine::EngineConfig::default()
    });
    let mut session = engine.open_session("root", "127.0.0.1", crate::engine::Protocol::Mysql);
    session.execute("CREATE DATABASE d").await.unwrap();
    let sql =
        "CREATE TABLE d.t (k INT) UNIQUE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 1 PROPERTIES('changelog.enable'='true')";
    assert_eq!(session.execute(sql).await.unwrap_err().text(), "Binlog feature is not enabled");
}

#[tokio::test]
async fn hidden_columns_and_tso_status_follow_the_build() {
    for (profile, property, columns, hidden) in [
        (Profile::V5_0Changelog, "'changelog.enable'='true'", 6, 3),
        (Profile::V5_0Binlog, "'binlog.enable'='true', 'binlog.format'='ROW'", 4, 2),
    ] {
        let mut f = Fixture::new(profile);
        f.run("CREATE DATABASE d; USE d").await;
        f.run(&format!(
            "CREATE TABLE du (k INT) DUPLICATE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 1 PROPERTIES({property})"
        ))
        .await;
        let status = f.rows("SELECT * FROM information_schema.tso_status").await.remove(0);
        assert_eq!(status.split('|').count(), columns, "{profile}");
        f.run("SET show_hidden_columns = true; INSERT INTO du VALUES (1)").await;
        assert_eq!(f.rows("DESC du").await.len(), hidden, "{profile}");
        assert_eq!(f.rows("SELECT * FROM du").await[0].split('|').count(), hidden, "{profile}");
    }
}

#[test]
fn alter_changes_the_lifetime_and_nothing_else() {
    use crate::changelog::alter_properties;
    use crate::storage::ChangeConfig;
    let recorded = |ttl_seconds| Some(ChangeConfig { before_image: true, ttl_seconds });
    let (on, row) = (Profile::V5_0Changelog, Profile::V5_0Binlog);
    let properties = |text: &str| -> std::collections::BTreeMap<String, String> {
        text.split(';').filter_map(|pair| pair.split_once('=')).map(|(k, v)| (k.to_owned(), v.to_owned())).collect()
    };
    let refusals = [
        (row, recorded(None), "binlog.enable=false", "can't disable binlog when format is [Row]"),
        (
            row,
            recorded(None),
            "binlog.need_historical_value=false",
            "not support change binlog.need_historical_value from true to false",
        ),
        (row, None, "binlog.format=ROW", "not support change binlog format from STATEMENT_AND_SNAPSHOT to ROW"),
        (
            row,
            recorded(None),
            "binlog.format=STATEMENT_AND_SNAPSHOT",
            "not support change binlog format from ROW to STATEMENT_AND_SNAPSHOT",
        ),
        (row, recorded(None), "binlog.format=row", "Invalid binlog format value: row"),
        (on, recorded(None), "changelog.enable=false", "can't disable changelog"),
        (on, None, "changelog.enable=true", "not support change changelog.enable from false to true"),
        (on, recorded(None), "changelog.ttl_seconds=0", "changelog.ttl_seconds must be greater than 0"),
        (on, recorded(None), "binlog.format=ROW", "property binlog.format is not supported any more"),
    ];
    for (profile, current, written, text) in refusals {
        let error = alter_properties(profile, true, current, &properties(written)).unwrap_err();
        assert!(error.text().starts_with(text), "{written}: {error}");
    }
    let (changed, kept) =
        alter_properties(on, true, recorded(Some(5)), &properties("changelog.ttl_seconds=7;comment=x")).unwrap();
    assert_eq!(changed, recorded(Some(7)));
    assert_eq!(kept.len(), 1);
    // The same value is no change.
    alter_properties(row, true, recorded(None), &properties("binlog.format=ROW;binlog.ttl_seconds=9")).unwrap();
    let off = alter_properties(on, false, recorded(None), &properties("changelog.ttl_seconds=7")).unwrap_err();
    assert_eq!(off.text(), "Binlog feature is not enabled");
}
