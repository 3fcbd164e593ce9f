//! Continuous inserts as plain statements, exactly-once by settings of the session.

use std::time::Duration;

use datafusion::prelude::SessionContext;
use tempfile::TempDir;

use crate::harness::{Cluster, run, try_run};

const INITIAL: [(&str, &str); 2] = [("source.scan.mode", "initial"), ("source.changelog.poll-interval", "1s")];
const PATIENCE: Duration = Duration::from_secs(120);
const HISTORY: &str = "INSERT INTO history SELECT id, v, __change_kind FROM changes";

async fn tables(cluster: &Cluster, db: &str) {
    cluster
        .doris(&format!(
            "CREATE DATABASE IF NOT EXISTS {db};
             CREATE TABLE {db}.source (id INT NOT NULL, v VARCHAR(20)) UNIQUE KEY(id) DISTRIBUTED BY HASH(id) BUCKETS 2
             PROPERTIES ('replication_num' = '1', 'enable_unique_key_merge_on_write' = 'true', {});
             CREATE TABLE {db}.history (id INT NOT NULL, v VARCHAR(20), kind VARCHAR(2)) DUPLICATE KEY(id)
             DISTRIBUTED BY HASH(id) BUCKETS 2 PROPERTIES ('replication_num' = '1');
             CREATE TABLE {db}.dim (id INT NOT NULL, v VARCHAR(20)) UNIQUE KEY(id) DISTRIBUTED BY HASH(id) BUCKETS 2
             PROPERTIES ('replication_num' = '1', 'enable_unique_key_merge_on_write' = 'true');
             INSERT INTO {db}.dim VALUES (1, 'one'), (2, 'two'), (3, 'three');
             INSERT INTO {db}.source VALUES (1, 'a'), (2, 'b'), (3, 'c')",
            cluster.recording(true)
        ))
        .await;
}

/// A session of its own, as of another process, which keeps checkpoints in `dir`.
async fn session(cluster: &Cluster, db: &str, dir: &TempDir, more: &[(&str, &str)]) -> SessionContext {
    let ctx = cluster.context();
    for (name, options) in [("changes", &INITIAL[..]), ("history", &[]), ("dim", &[])] {
        let table = format!("{db}.{name}").replace("changes", "source");
        let mut options = options.to_vec();
        options.push(("table.identifier", table.as_str()));
        options.extend(more);
        cluster.declare(&ctx, name, name, &options).await;
    }
    run(&ctx, &format!("SET doris.checkpoint.dir = '{}'", dir.path().display())).await;
    run(&ctx, "SET doris.checkpoint.interval = '200ms'").await;
    ctx
}

/// `id kind v` of every change, sorted.
async fn history(cluster: &Cluster, db: &str) -> Vec<String> {
    let rows = cluster.doris(&format!("SELECT id, kind, v FROM {db}.history ORDER BY id, v, kind")).await;
    rows.into_iter().map(|row| row.into_iter().map(Option::unwrap_or_default).collect::<Vec<_>>().join(" ")).collect()
}

/// Runs a statement until the history has so many rows, then drops it.
async fn killed_at(cluster: &Cluster, db: &str, ctx: &SessionContext, sql: &str, rows: usize) {
    let running = try_run(ctx, sql);
    let written = async {
        while history(cluster, db).await.len() < rows {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        ended = running => panic!("{sql} ended: {ended:?}"),
        written = tokio::time::timeout(PATIENCE, written) => written.expect("in time"),
    }
}

fn jobs(dir: &TempDir) -> Vec<String> {
    let entries = std::fs::read_dir(dir.path()).expect("a directory").flatten();
    let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[tokio::test]
async fn a_plain_insert_that_is_killed_goes_on_in_another_session_by_the_name_made_for_it() {
    let cluster = Cluster::sandbox().await;
    let (db, dir) = (cluster.database().to_string(), tempfile::tempdir().expect("a directory"));
    tables(&cluster, &db).await;
    killed_at(&cluster, &db, &session(&cluster, &db, &dir, &[]).await, HISTORY, 3).await;
    cluster.doris("INSERT INTO {db}.source VALUES (4, 'd')").await;
    cluster.doris("DELETE FROM {db}.source WHERE id = 1").await;
    // Nodes may be added, and options of the connection changed.
    let nodes = format!("{},127.0.0.1:1", cluster.fenodes());
    let more = [("fenodes", nodes.as_str()), ("doris.request.retries", "4")];
    killed_at(&cluster, &db, &session(&cluster, &db, &dir, &more).await, HISTORY, 5).await;
    cluster.doris("INSERT INTO {db}.source VALUES (5, 'e')").await;
    killed_at(&cluster, &db, &session(&cluster, &db, &dir, &[]).await, HISTORY, 6).await;
    assert_eq!(history(&cluster, &db).await, ["1 +I a", "1 -D a", "2 +I b", "3 +I c", "4 +I d", "5 +I e"]);
    let names = jobs(&dir);
    assert!(names.len() == 1 && names[0].starts_with("insert-"), "{names:?}");
}

#[tokio::test]
async fn different_inserts_in_one_directory_are_jobs_of_their_own() {
    let cluster = Cluster::sandbox().await;
    let (db, dir) = (cluster.database().to_string(), tempfile::tempdir().expect("a directory"));
    tables(&cluster, &db).await;
    let ctx = session(&cluster, &db, &dir, &[]).await;
    // They differ by a condition that the changelog evaluates itself, and by one that Doris evaluates.
    for (rows, sql) in [
        (1, format!("{HISTORY} WHERE id = 1")),
        (2, format!("{HISTORY} WHERE id = 2")),
        (
            3,
            "INSERT INTO history SELECT c.id, d.v, c.__change_kind FROM dim d JOIN changes c ON c.id = d.id
             WHERE d.v = 'two'"
                .to_string(),
        ),
        (
            4,
            "INSERT INTO history SELECT c.id, d.v, c.__change_kind FROM dim d JOIN changes c ON c.id = d.id
             WHERE d.v = 'three'"
                .to_string(),
        ),
    ] {
        killed_at(&cluster, &db, &ctx, &sql, rows).await;
        assert_eq!(jobs(&dir).len(), rows, "{sql}");
    }
    assert_eq!(history(&cluster, &db).await, ["1 +I a", "2 +I b", "2 +I two", "3 +I three"]);
}

#[tokio::test]
async fn another_condition_on_a_static_table_is_another_job() {
    let cluster = Cluster::sandbox().await;
    let (db, dir) = (cluster.database().to_string(), tempfile::tempdir().expect("a directory"));
    tables(&cluster, &db).await;
    let join = |name: &str| {
        format!(
            "INSERT INTO history SELECT c.id, d.v, c.__change_kind FROM dim d JOIN changes c ON c.id = d.id
             WHERE d.v = '{name}'"
        )
    };
    let ctx = session(&cluster, &db, &dir, &[]).await;
    run(&ctx, "SET doris.job.name = 'joined'").await;
    killed_at(&cluster, &db, &ctx, &join("two"), 1).await;
    let message = try_run(&ctx, &join("three")).await.expect_err("another condition").to_string();
    for part in ["query:", " -> ", "`v` = 'two'", "`v` = 'three'", "joined"] {
        assert!(message.contains(part), "no {part}: {message}");
    }
    // The same, over other nodes and with rows that are kept.
    let nodes = format!("127.0.0.1:1,{}", cluster.fenodes());
    let ctx = session(&cluster, &db, &dir, &[("fenodes", nodes.as_str())]).await;
    run(&ctx, "SET doris.job.name = 'joined'").await;
    run(&ctx, "SET doris.job.static_ttl = '1h'").await;
    cluster.doris("UPDATE {db}.source SET v = 'bb' WHERE id = 2").await;
    killed_at(&cluster, &db, &ctx, &join("two"), 3).await;
    assert_eq!(history(&cluster, &db).await, ["2 +I two", "2 +U two", "2 -U two"]);
}

#[tokio::test]
async fn jobs_of_two_clusters_in_one_directory_need_names() {
    let (one, other) = (Cluster::sandbox().await, Cluster::sandbox().await);
    let (db, dir) = ("same", tempfile::tempdir().expect("a directory"));
    for cluster in [&one, &other] {
        tables(cluster, db).await;
    }
    killed_at(&one, db, &session(&one, db, &dir, &[]).await, HISTORY, 3).await;
    let ctx = session(&other, db, &dir, &[]).await;
    let message = try_run(&ctx, HISTORY).await.expect_err("another cluster").to_string();
    for part in [one.fenodes(), other.fenodes(), "doris.job.name", "insert-"] {
        assert!(message.contains(part), "no {part}: {message}");
    }
    run(&ctx, "SET doris.job.name = 'other'").await;
    killed_at(&other, db, &ctx, HISTORY, 3).await;
    // The first one was not disturbed.
    one.doris("INSERT INTO same.source VALUES (4, 'd')").await;
    killed_at(&one, db, &session(&one, db, &dir, &[]).await, HISTORY, 4).await;
    assert_eq!(history(&one, db).await, ["1 +I a", "2 +I b", "3 +I c", "4 +I d"]);
    assert_eq!(history(&other, db).await, ["1 +I a", "2 +I b", "3 +I c"]);
}
