//! Joins of a stream of changes with a table that is asked for the stream's keys.

use std::time::Duration;

use datafusion::prelude::SessionContext;
use datafusion_doris::job::SyncJob;
use doris_sandbox::{Action, Fault, Site};

use crate::harness::{Cluster, lines, refusal, run};

const INITIAL: [(&str, &str); 2] = [("source.scan.mode", "initial"), ("source.changelog.poll-interval", "1s")];
const BOUNDED: [(&str, &str); 2] = [("source.scan.mode", "initial"), ("source.scan.bounded-mode", "latest")];
const SINK: [(&str, &str); 1] = [("sink.change-kind-column", "__change_kind")];
const PATIENCE: Duration = Duration::from_secs(120);

/// A stream of 6 rows, and a table of many of which some have the stream's keys.
async fn tables(stream: &[(&str, &str)], options: &[(&str, &str)]) -> (Cluster, SessionContext) {
    let cluster = Cluster::sandbox().await;
    cluster.changing_table("source", "id INT NOT NULL, k BIGINT, day DATE").await;
    cluster.unique_table("mirror", "id INT NOT NULL, name VARCHAR(20)", "").await;
    let many: Vec<String> = (100..400).map(|k| format!("({k}, '2024-01-01', 'n{k}')")).collect();
    cluster
        .doris(&format!(
            "CREATE TABLE {{db}}.dim (k INT, day DATE, name VARCHAR(20)) DUPLICATE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 2;
             INSERT INTO {{db}}.dim VALUES (1, '2024-01-01', 'one'), (2, '2024-01-01', 'two'), (2, '2024-01-02', 'zwei'),
               (NULL, '2024-01-01', 'null'), {};
             INSERT INTO {{db}}.source VALUES (1, 1, '2024-01-01'), (2, 2, '2024-01-02'), (3, NULL, '2024-01-01'),
               (4, 2, '2024-01-01'), (5, 4294967297, '2024-01-01'), (6, 7, NULL)",
            many.join(", ")
        ))
        .await;
    let ctx = cluster.context();
    cluster.declare(&ctx, "changes", "source", stream).await;
    cluster.declare(&ctx, "mirror", "mirror", &SINK).await;
    cluster.declare(&ctx, "whole", "dim", &[]).await;
    let mut all = vec![("lookup.join", "true")];
    all.extend_from_slice(options);
    cluster.declare(&ctx, "dim", "dim", &all).await;
    (cluster, ctx)
}

/// The statements that asked for rows of the table.
fn asked(cluster: &Cluster) -> Vec<String> {
    let seen = cluster.server().requests().matching(Site::FeFlight, "`dim`");
    seen.into_iter().filter(|seen| seen.method == "GetFlightInfo").map(|seen| seen.target).collect()
}

#[tokio::test]
async fn lookups_give_what_reading_the_table_gives_and_read_only_the_keys() {
    let (cluster, ctx) = tables(&BOUNDED, &[]).await;
    let queries = [
        "SELECT c.id, d.name FROM changes c JOIN {d} d ON c.k = d.k",
        "SELECT c.id, d.name FROM changes c LEFT JOIN {d} d ON c.k = d.k",
        "SELECT c.id, d.name FROM changes c LEFT JOIN {d} d ON c.k = d.k AND c.day = d.day",
        "SELECT c.id, d.name FROM changes c LEFT JOIN {d} d ON c.k = d.k AND d.name <> 'two'",
        "SELECT c.id, d.name FROM changes c LEFT JOIN {d} d ON c.k = d.k AND c.day < d.day",
        "SELECT c.id, upper(d.name) FROM changes c JOIN {d} d ON c.k = d.k WHERE lower(d.name) <> 'one'",
        "SELECT c.id FROM changes c WHERE EXISTS (SELECT 1 FROM {d} d WHERE d.k = c.k)",
        "SELECT c.id FROM changes c WHERE NOT EXISTS (SELECT 1 FROM {d} d WHERE d.k = c.k)",
        "SELECT c.id, d.day FROM changes c JOIN {d} d ON d.k = c.k AND d.name = 'zwei'",
    ];
    for sql in queries {
        let mut expected = lines(&run(&ctx, &sql.replace("{d}", "whole")).await);
        expected.sort();
        cluster.server().requests().clear();
        let mut found = lines(&run(&ctx, &sql.replace("{d}", "dim")).await);
        found.sort();
        assert_eq!(found, expected, "{sql}");
        let statements = asked(&cluster);
        assert!(!statements.is_empty(), "{sql}");
        for statement in statements {
            let by_key = statement.contains("`k` IN (") || statement.contains("(`k` = ");
            assert!(by_key && !statement.contains("4294967297"), "{sql}: {statement}");
        }
    }
}

/// Keys that no date of Doris equals, and those of year 0, which some servers send a day late.
#[tokio::test]
async fn keys_that_doris_cannot_compare_match_nothing_or_are_compared_here() {
    let (cluster, ctx) = tables(&BOUNDED, &[]).await;
    cluster.doris("INSERT INTO {db}.dim VALUES (50, '0000-01-01', 'zero'), (51, '0000-12-31', 'late')").await;
    cluster.doris("INSERT INTO {db}.source VALUES (20, 50, '0000-01-01'), (21, 51, '9999-12-31')").await;
    for (sql, asks) in [
        ("SELECT c.id, d.name FROM changes c LEFT JOIN {d} d ON c.day = d.day", true),
        ("SELECT c.id, d.name FROM changes c LEFT JOIN {d} d ON c.day = d.day AND c.k = d.k", true),
        ("SELECT c.id, d.name FROM changes c LEFT JOIN {d} d ON c.day + INTERVAL '10000' YEAR = d.day", false),
        ("SELECT c.id, d.name FROM changes c LEFT JOIN {d} d ON c.day - INTERVAL '2024' YEAR = d.day", true),
    ] {
        let mut expected = lines(&run(&ctx, &sql.replace("{d}", "whole")).await);
        expected.sort();
        assert!(expected.len() >= 8, "{sql}: {expected:?}");
        cluster.server().requests().clear();
        let mut found = lines(&run(&ctx, &sql.replace("{d}", "dim")).await);
        found.sort();
        assert_eq!(found, expected, "{sql}");
        assert_eq!(!asked(&cluster).is_empty(), asks, "{sql}: {:?}", asked(&cluster));
    }
}

#[tokio::test]
async fn explain_says_what_is_looked_up() {
    let (_cluster, ctx) = tables(&INITIAL, &[("lookup.cache.max-rows", "50"), ("lookup.cache.ttl", "5s")]).await;
    let sql = "SELECT c.id, d.name FROM changes c JOIN dim d ON c.k = d.k";
    let explained = |format: &str| {
        let explain = format!("EXPLAIN {format} {sql}");
        let ctx = ctx.clone();
        async move { lines(&run(&ctx, &explain).await).join("\n") }
    };
    let plan = explained("FORMAT INDENT").await;
    assert!(plan.contains("LookupJoinExec: join_type=Inner"), "{plan}");
    assert!(plan.contains("WHERE <keys of k>]") && !plan.contains("DorisScanExec"), "{plan}");
    let plan = explained("VERBOSE").await;
    assert!(plan.contains("cache=50 rows for 5s"), "{plan}");
    // Not by equality of columns that can be told: the table is read.
    for condition in ["c.k + 1 = d.k + 1", "CAST(c.k AS DOUBLE) = CAST(d.k AS DOUBLE)"] {
        let sql = format!("EXPLAIN FORMAT INDENT SELECT c.id FROM changes c JOIN dim d ON {condition}");
        let plan = lines(&run(&ctx, &sql).await).join("\n");
        assert!(plan.contains("DorisScanExec") && !plan.contains("LookupJoinExec"), "{plan}");
    }
}

#[tokio::test]
async fn a_lookup_that_fails_is_tried_again_as_often_as_allowed() {
    let (cluster, ctx) = tables(&BOUNDED, &[("lookup.max-retries", "2"), ("doris.request.retries", "1")]).await;
    let sql = "SELECT c.id, d.name FROM changes c JOIN dim d ON c.k = d.k ORDER BY c.id, d.name";
    let fails = |times| {
        let broken = Action::Status { code: 13, body: "tablet is busy".to_string() };
        Fault::new(broken).at(Site::BeFlight).when("in (").times(times)
    };
    cluster.server().faults().push(fails(2));
    assert_eq!(lines(&run(&ctx, sql).await), ["1 | one", "2 | two", "2 | zwei", "4 | two", "4 | zwei"]);
    assert_eq!(cluster.server().faults().armed(), 0, "the fault was used");
    cluster.server().faults().push(fails(3));
    let message = refusal(&ctx, sql).await;
    assert!(message.contains("tablet is busy"), "{message}");
    assert_eq!(cluster.server().faults().armed(), 0, "the fault was used");
}

const JOIN: &str = "INSERT INTO mirror SELECT c.id, d.name, c.__change_kind FROM changes c LEFT JOIN dim d ON c.k = d.k
     AND d.day = DATE '2024-01-01'";

async fn caught_up(job: &SyncJob) {
    tokio::time::timeout(PATIENCE, job.caught_up()).await.expect("in time").expect("caught up");
}

async fn name(cluster: &Cluster, id: i32) -> String {
    cluster.scalar(&format!("SELECT COALESCE(MAX(name), '-') FROM {{db}}.mirror WHERE id = {id}")).await
}

#[tokio::test]
async fn a_job_looks_up_the_rows_of_each_epoch_as_they_are_then() {
    let (cluster, ctx) = tables(&INITIAL, &[]).await;
    let job = SyncJob::builder("looks").submit(&ctx, JOIN).await.expect("starts");
    caught_up(&job).await;
    assert_eq!(name(&cluster, 1).await, "one");
    assert_eq!(name(&cluster, 6).await, "-");
    cluster.doris("INSERT INTO {db}.dim VALUES (7, '2024-01-01', 'seven')").await;
    cluster.doris("INSERT INTO {db}.source VALUES (8, 7, NULL), (9, NULL, NULL)").await;
    caught_up(&job).await;
    assert_eq!((name(&cluster, 8).await, name(&cluster, 9).await), ("seven".to_string(), "-".to_string()));
    // Updates and deletes find their rows by key, whatever was looked up for them.
    cluster.doris("INSERT INTO {db}.source VALUES (1, 7, NULL)").await;
    cluster.doris("DELETE FROM {db}.source WHERE id = 2").await;
    caught_up(&job).await;
    assert_eq!(name(&cluster, 1).await, "seven");
    assert_eq!(cluster.scalar("SELECT COUNT(*) FROM {db}.mirror WHERE id = 2").await, "0");
    assert!(asked(&cluster).iter().all(|statement| statement.contains("`k` IN (")), "{:?}", asked(&cluster));
    job.stop().await.expect("stops");
}

#[tokio::test]
async fn kept_rows_and_kept_misses_serve_later_epochs() {
    let (cluster, ctx) = tables(&INITIAL, &[("lookup.cache.max-rows", "1000"), ("lookup.cache.ttl", "1h")]).await;
    let job = SyncJob::builder("keeps").submit(&ctx, JOIN).await.expect("starts");
    caught_up(&job).await;
    let before = asked(&cluster).len();
    cluster.doris("INSERT INTO {db}.dim VALUES (7, '2024-01-01', 'unseen')").await;
    cluster.doris("INSERT INTO {db}.source VALUES (10, 1, NULL), (11, 7, NULL)").await;
    caught_up(&job).await;
    assert_eq!((name(&cluster, 10).await, name(&cluster, 11).await), ("one".to_string(), "-".to_string()));
    assert_eq!(asked(&cluster).len(), before);
    job.stop().await.expect("stops");
}
