//! Where a changelog read starts and ends, what it makes of the changes, and where it keeps its position.

use datafusion::prelude::SessionContext;
use doris_sandbox::Profile;

use crate::harness::{Cluster, lines, on_both_builds, refusal, run, try_run};

on_both_builds!(
    from_timestamp_gives_the_changes_since_an_instant_of_the_servers_clock,
    bounded_timestamp_ends_before_its_instant,
    min_delta_gives_the_net_change_of_each_key_in_pairs,
    append_only_gives_inserts,
    metadata_columns_tell_the_commit_of_each_change,
    tables_that_cannot_serve_an_increment_type_are_refused_with_the_property,
    a_consumer_goes_on_where_its_position_is_kept,
    an_offset_table_that_cannot_be_used_stops_the_start,
);

/// A table with two inserts before the instant that is given, and changes after it.
async fn changed_table(profile: Profile) -> (Cluster, SessionContext, String) {
    let cluster = Cluster::start_as(profile).await;
    cluster.changing_table("t", "id INT NOT NULL, v VARCHAR(20)").await;
    cluster.doris("INSERT INTO {db}.t VALUES (1, 'a'), (2, 'b')").await;
    let start = cluster.next_second().await;
    for statement in [
        "UPDATE {db}.t SET v = 'b2' WHERE id = 2",
        "UPDATE {db}.t SET v = 'b3' WHERE id = 2",
        "INSERT INTO {db}.t VALUES (3, 'c')",
        "INSERT INTO {db}.t VALUES (4, 'd')",
        "DELETE FROM {db}.t WHERE id = 4",
        "DELETE FROM {db}.t WHERE id = 1",
    ] {
        cluster.doris(statement).await;
    }
    let ctx = cluster.context();
    (cluster, ctx, start)
}

fn from<'a>(start: &'a str, more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    let mut options = vec![
        ("source.scan.mode", "from-timestamp"),
        ("source.scan.timestamp", start),
        ("source.scan.bounded-mode", "latest"),
        ("source.changelog.poll-interval", "1s"),
    ];
    options.extend(more);
    options
}

async fn from_timestamp_gives_the_changes_since_an_instant_of_the_servers_clock(profile: Profile) {
    let (cluster, ctx, start) = changed_table(profile).await;
    cluster.declare(&ctx, "changes", "t", &from(&start, &[])).await;
    let rows = lines(&run(&ctx, "SELECT * FROM changes").await);
    assert_eq!(
        rows,
        [
            "2 | b | -U",
            "2 | b2 | +U",
            "2 | b2 | -U",
            "2 | b3 | +U",
            "3 | c | +I",
            "4 | d | +I",
            "4 | d | -D",
            "1 | a | -D"
        ]
    );
    let plan = lines(&run(&ctx, "EXPLAIN SELECT * FROM changes").await).join("\n");
    assert!(plan.contains(&format!("mode=from-timestamp {start}")) && plan.contains("until=latest"), "{plan}");
}

async fn bounded_timestamp_ends_before_its_instant(profile: Profile) {
    let (cluster, ctx, start) = changed_table(profile).await;
    let options = [
        ("source.scan.mode", "from-timestamp"),
        ("source.scan.timestamp", "2020-01-01 00:00:00"),
        ("source.scan.bounded-mode", "timestamp"),
        ("source.scan.bounded-timestamp", &start),
        ("source.changelog.max-window", "365d"),
    ];
    // the table is younger than its changes are kept, so none can have expired
    cluster.declare(&ctx, "changes", "t", &options).await;
    let mut rows = lines(&run(&ctx, "SELECT * FROM changes").await);
    rows.sort();
    assert_eq!(rows, ["1 | a | +I", "2 | b | +I"]);
}

async fn min_delta_gives_the_net_change_of_each_key_in_pairs(profile: Profile) {
    let (cluster, ctx, start) = changed_table(profile).await;
    cluster.declare(&ctx, "changes", "t", &from(&start, &[("source.changelog.increment-type", "min_delta")])).await;
    let rows = lines(&run(&ctx, "SELECT * FROM changes").await);
    assert_eq!(rows, ["1 | a | -D", "2 | b | -U", "2 | b3 | +U", "3 | c | +I"]);
    // a condition on a value is evaluated over whole pairs
    let rows = lines(&run(&ctx, "SELECT * FROM changes WHERE v = 'b'").await);
    assert_eq!(rows, ["2 | b | -D"]);
    let rows = lines(&run(&ctx, "SELECT v FROM changes WHERE __change_kind = '+U'").await);
    assert_eq!(rows, ["b3"]);
}

async fn append_only_gives_inserts(profile: Profile) {
    let (cluster, ctx, start) = changed_table(profile).await;
    cluster.declare(&ctx, "changes", "t", &from(&start, &[("source.binlog.increment-type", "APPEND_ONLY")])).await;
    assert_eq!(lines(&run(&ctx, "SELECT * FROM changes").await), ["3 | c | +I", "4 | d | +I"]);
}

async fn metadata_columns_tell_the_commit_of_each_change(profile: Profile) {
    let (cluster, ctx, start) = changed_table(profile).await;
    let metadata = ("source.changelog.metadata-columns", "tso, lsn, commit-time");
    cluster.declare(&ctx, "changes", "t", &from(&start, &[metadata])).await;
    let columns = lines(&run(&ctx, "SELECT * FROM changes LIMIT 1").await)[0].split(" | ").count();
    assert_eq!(columns, 6);
    let sql =
        "SELECT count(DISTINCT __commit_tso), count(DISTINCT __commit_time) <= 6, bool_and(to_unixtime(__commit_time)
        = __commit_tso / 262144 / 1000), count(__commit_lsn) FROM changes";
    assert_eq!(lines(&run(&ctx, sql).await), ["6 | true | true | 8"]);
}

async fn tables_that_cannot_serve_an_increment_type_are_refused_with_the_property(profile: Profile) {
    let cluster = Cluster::start_as(profile).await;
    let ctx = cluster.context();
    cluster.duplicate_table("log", "a INT", cluster.recording(false)).await;
    cluster.unique_table("plain", "a INT", cluster.recording(false)).await;
    let options = [("source.scan.mode", "latest"), ("source.changelog.increment-type", "min_delta")];
    let error = refusal(&ctx, &cluster.ddl("x", "log", &options)).await;
    assert!(error.contains("log") && error.contains("min_delta needs a UNIQUE KEY table"), "{error}");
    let error = refusal(&ctx, &cluster.ddl("x", "plain", &options)).await;
    assert!(error.contains("'changelog.need_historical_value' = 'true'"), "{error}");
}

async fn a_consumer_goes_on_where_its_position_is_kept(profile: Profile) {
    let (cluster, ctx, start) = changed_table(profile).await;
    cluster.offset_table().await;
    let offsets = format!("{}.offsets", cluster.database());
    let kept = [
        ("source.changelog.offset-table", offsets.as_str()),
        ("source.changelog.consumer-id", "it's me"),
        ("source.scan.mode", "initial"),
        ("source.scan.bounded-mode", "latest"),
        ("source.changelog.poll-interval", "1s"),
    ];
    // the kept position goes before the mode
    cluster.doris(&format!("INSERT INTO {{db}}.offsets VALUES ('it''s me', '{start}', NOW())")).await;
    cluster.declare(&ctx, "changes", "t", &kept).await;
    assert_eq!(run_count(&ctx).await, 8);
    let position = cluster.scalar("SELECT offset_timestamp FROM {db}.offsets").await;
    assert!(position > start, "{position} after {start}");
    // the rows read are behind the kept position: only new changes come
    cluster.next_second().await;
    cluster.doris("INSERT INTO {db}.t VALUES (9, 'z')").await;
    assert_eq!(lines(&run(&ctx, "SELECT * FROM changes").await), ["9 | z | +I"]);
    assert_eq!(cluster.scalar("SELECT COUNT(*) FROM {db}.offsets").await, "1");
}

async fn run_count(ctx: &SessionContext) -> usize {
    crate::harness::count(&run(ctx, "SELECT * FROM changes").await)
}

async fn an_offset_table_that_cannot_be_used_stops_the_start(profile: Profile) {
    let (cluster, ctx, _) = changed_table(profile).await;
    let offsets = format!("{}.offsets", cluster.database());
    let options = [
        ("source.changelog.offset-table", offsets.as_str()),
        ("source.changelog.consumer-id", "c"),
        ("source.scan.mode", "latest"),
        ("source.scan.bounded-mode", "latest"),
    ];
    cluster.declare(&ctx, "changes", "t", &options).await;
    let error = try_run(&ctx, "SELECT * FROM changes").await.expect_err("there is no such table").to_string();
    assert!(error.contains(&offsets) && error.contains("consumer 'c'") && error.contains("UNIQUE KEY"), "{error}");
    cluster.duplicate_table("offsets", "consumer_id VARCHAR(256), offset_timestamp DATETIME", "").await;
    cluster.doris("INSERT INTO {db}.offsets VALUES ('c', NOW()), ('c', NOW())").await;
    let error = try_run(&ctx, "SELECT * FROM changes").await.expect_err("two rows").to_string();
    assert!(error.contains("2 rows have its id"), "{error}");
    cluster.doris("TRUNCATE TABLE {db}.offsets").await;
    cluster.doris("INSERT INTO {db}.offsets VALUES ('c', NULL)").await;
    let error = try_run(&ctx, "SELECT * FROM changes").await.expect_err("no time").to_string();
    assert!(error.contains("offset_timestamp is NULL"), "{error}");
    cluster.doris("DROP TABLE {db}.offsets").await;
    let texts = "consumer_id VARCHAR(256) NOT NULL, offset_timestamp VARCHAR(30) NOT NULL,
         update_time DATETIME(3) NOT NULL";
    cluster.unique_table("offsets", texts, "").await;
    for (kept, part) in [
        ("2026-02-30 00:00:00", "there is no such day"),
        ("2026-01-01T00:00:00", "must match yyyy-MM-dd HH:mm:ss"),
        ("2026-01-01 00:00:00.5", "must match"),
        ("2062-01-01 00:00:00", "lies ahead of the server's time"),
    ] {
        cluster.doris(&format!("INSERT INTO {{db}}.offsets VALUES ('c', '{kept}', NOW())")).await;
        let error = try_run(&ctx, "SELECT * FROM changes").await.expect_err(kept).to_string();
        assert!(error.contains("consumer 'c'") && error.contains(&offsets) && error.contains(part), "{kept}: {error}");
    }
}
