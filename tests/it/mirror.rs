//! `INSERT INTO sink SELECT … FROM changelog`: a sequence of epochs inside one unbounded plan.

use std::time::Duration;

use datafusion::prelude::SessionContext;
use datafusion_doris::job::SyncJob;

use crate::harness::{Cluster, lines, refusal, run};

const INITIAL: [(&str, &str); 2] = [("source.scan.mode", "initial"), ("source.changelog.poll-interval", "1s")];
const SINK: [(&str, &str); 1] = [("sink.change-kind-column", "__change_kind")];
const COLUMNS: &str = "id INT NOT NULL, v VARCHAR(20), n BIGINT";
const PATIENCE: Duration = Duration::from_secs(120);

async fn source_and_mirror(target_partitions: usize) -> (Cluster, SessionContext) {
    let cluster = Cluster::start().await;
    cluster.changing_table("source", COLUMNS).await;
    cluster.unique_table("mirror", COLUMNS, "").await;
    cluster.doris("INSERT INTO {db}.source VALUES (1, 'a', 10), (2, 'b', 20), (3, 'c', 30), (4, NULL, NULL)").await;
    let ctx = cluster.context();
    run(&ctx, &format!("SET datafusion.execution.target_partitions = {target_partitions}")).await;
    cluster.declare(&ctx, "changes", "source", &INITIAL).await;
    cluster.declare(&ctx, "mirror", "mirror", &SINK).await;
    (cluster, ctx)
}

async fn assert_mirrored(cluster: &Cluster) {
    let source = cluster.doris("SELECT * FROM {db}.source ORDER BY id").await;
    let mirror = cluster.doris("SELECT * FROM {db}.mirror ORDER BY id").await;
    assert_eq!(source, mirror);
}

#[tokio::test]
async fn a_job_mirrors_inserts_updates_key_changes_and_deletes() {
    let (cluster, ctx) = source_and_mirror(4).await;
    let job = SyncJob::submit(&ctx, "mirror", "INSERT INTO mirror SELECT * FROM changes").await.expect("starts");
    tokio::time::timeout(PATIENCE, job.caught_up()).await.expect("in time").expect("snapshot is mirrored");
    assert_mirrored(&cluster).await;

    cluster.doris("INSERT INTO {db}.source VALUES (5, 'e', 50), (6, 'f', 60)").await;
    cluster.doris("UPDATE {db}.source SET v = 'aa', n = 11 WHERE id = 1").await;
    cluster.doris("DELETE FROM {db}.source WHERE id = 2").await;
    // a key changes: delete and insert
    cluster.doris("DELETE FROM {db}.source WHERE id = 3").await;
    cluster.doris("INSERT INTO {db}.source VALUES (33, 'c', 30)").await;
    for value in 0..20 {
        cluster.doris(&format!("UPDATE {{db}}.source SET n = {value} WHERE id = 5")).await;
    }
    tokio::time::timeout(PATIENCE, job.caught_up()).await.expect("in time").expect("changes are mirrored");
    assert_mirrored(&cluster).await;
    assert_eq!(cluster.scalar("SELECT n FROM {db}.mirror WHERE id = 5").await, "19");
    assert_eq!(cluster.scalar("SELECT COUNT(*) FROM {db}.mirror WHERE id IN (2, 3)").await, "0");

    tokio::time::timeout(PATIENCE, job.stop()).await.expect("stops in time").expect("stops cleanly");
}

#[tokio::test]
async fn a_computed_projection_keeps_the_order_of_one_key() {
    let (cluster, ctx) = source_and_mirror(4).await;
    for value in 0..30 {
        cluster.doris(&format!("UPDATE {{db}}.source SET n = {value}, v = 'x{value}' WHERE id = 1")).await;
    }
    cluster
        .declare(&ctx, "caught_up", "source", &[INITIAL[0], INITIAL[1], ("source.scan.bounded-mode", "latest")])
        .await;
    run(&ctx, "INSERT INTO mirror SELECT id, upper(v), n + 0, __change_kind FROM caught_up WHERE n >= 0").await;
    assert_eq!(
        cluster.doris("SELECT v, n FROM {db}.mirror WHERE id = 1").await,
        [[Some("X29".into()), Some("29".into())]]
    );
}

#[tokio::test]
async fn a_bounded_changelog_insert_ends_and_reports_its_rows() {
    let (cluster, ctx) = source_and_mirror(1).await;
    cluster.doris("DELETE FROM {db}.source WHERE id = 4").await;
    cluster
        .declare(&ctx, "caught_up", "source", &[INITIAL[0], INITIAL[1], ("source.scan.bounded-mode", "latest")])
        .await;
    let result = run(&ctx, "INSERT INTO mirror SELECT * FROM caught_up").await;
    let rows: u64 = lines(&result)[0].parse().expect("a count");
    assert!(rows >= 3, "{rows}");
    assert_mirrored(&cluster).await;
}

#[tokio::test]
async fn a_changelog_is_never_written_as_plain_rows() {
    let (cluster, ctx) = source_and_mirror(2).await;
    cluster.declare(&ctx, "plain", "mirror", &[]).await;
    let message = refusal(&ctx, "INSERT INTO plain SELECT id, v, n FROM changes").await;
    assert!(message.contains("sink.change-kind-column"), "{message}");
    assert_eq!(cluster.scalar("SELECT COUNT(*) FROM {db}.mirror").await, "0");
}

#[tokio::test]
async fn operators_that_keep_state_or_order_are_refused_by_name() {
    let (_cluster, ctx) = source_and_mirror(2).await;
    let message =
        refusal(&ctx, "INSERT INTO mirror SELECT id, v, row_number() OVER () AS n, __change_kind FROM changes").await;
    assert!(message.contains("WindowAggExec"), "{message}");
}

#[tokio::test]
async fn a_limit_makes_a_changelog_insert_one_bounded_statement() {
    let (cluster, ctx) = source_and_mirror(2).await;
    let result = tokio::time::timeout(PATIENCE, run(&ctx, "INSERT INTO mirror SELECT * FROM changes LIMIT 3"));
    assert_eq!(lines(&result.await.expect("ends")), ["3"]);
    assert_eq!(cluster.scalar("SELECT COUNT(*) FROM {db}.mirror").await, "3");
}

#[tokio::test]
async fn a_join_with_a_static_table_is_mirrored_through_epochs() {
    let (cluster, ctx) = source_and_mirror(2).await;
    run(&ctx, "CREATE TABLE names AS VALUES (1, 'one'), (2, 'two'), (5, 'five')").await;
    let sql = "INSERT INTO mirror SELECT c.id, s.column2, c.n, c.__change_kind FROM changes c JOIN names s ON c.id = s.column1";
    let job = SyncJob::submit(&ctx, "joined", sql).await.expect("starts");
    tokio::time::timeout(PATIENCE, job.caught_up()).await.expect("in time").expect("caught up");
    cluster.doris("INSERT INTO {db}.source VALUES (5, 'e', 50)").await;
    cluster.doris("DELETE FROM {db}.source WHERE id = 1").await;
    tokio::time::timeout(PATIENCE, job.caught_up()).await.expect("in time").expect("caught up");
    let mirror = cluster.doris("SELECT id, v, n FROM {db}.mirror ORDER BY id").await;
    let mirror: Vec<String> = mirror
        .into_iter()
        .map(|row| row.into_iter().map(|cell| cell.unwrap_or_else(|| "NULL".into())).collect::<Vec<_>>().join(" | "))
        .collect();
    assert_eq!(mirror, ["2 | two | 20", "5 | five | 50"]);
    job.stop().await.expect("stops");
}

#[tokio::test]
async fn an_update_that_leaves_the_range_of_a_join_leaves_the_mirror() {
    let (cluster, ctx) = source_and_mirror(2).await;
    run(&ctx, "CREATE TABLE names AS VALUES ('a', 'one'), ('b', 'two'), ('c', 'three')").await;
    let select = "SELECT c.id, s.column2, c.n, c.__change_kind FROM changes c JOIN names s ON c.v = s.column1";
    let job = SyncJob::submit(&ctx, "joined", &format!("INSERT INTO mirror {select}")).await.expect("starts");
    tokio::time::timeout(PATIENCE, job.caught_up()).await.expect("in time").expect("caught up");
    assert_eq!(cluster.scalar("SELECT COUNT(*) FROM {db}.mirror").await, "3");
    cluster.doris("UPDATE {db}.source SET v = 'nobody' WHERE id = 1").await;
    cluster.doris("UPDATE {db}.source SET v = 'c' WHERE id = 2").await;
    tokio::time::timeout(PATIENCE, job.caught_up()).await.expect("in time").expect("caught up");
    assert_eq!(cluster.scalar("SELECT COUNT(*) FROM {db}.mirror WHERE id = 1").await, "0");
    assert_eq!(cluster.scalar("SELECT v FROM {db}.mirror WHERE id = 2").await, "three");
    job.stop().await.expect("stops");

    cluster.declare(&ctx, "strict", "mirror", &[SINK[0], ("sink.ignore.update-before", "true")]).await;
    let message = refusal(&ctx, &format!("INSERT INTO strict {select}")).await;
    assert!(message.contains("HashJoinExec") && message.contains("sink.ignore.update-before"), "{message}");
}

#[tokio::test]
async fn the_change_kind_must_be_the_changelogs_own() {
    let (cluster, ctx) = source_and_mirror(2).await;
    for columns in ["id, __change_kind, n, '+I'", "id, v, n, coalesce(v, __change_kind)"] {
        let message = refusal(&ctx, &format!("INSERT INTO mirror SELECT {columns} FROM changes")).await;
        assert!(message.contains("__change_kind") && message.contains("unchanged"), "{message}");
    }
    cluster.declare(&ctx, "itself", "source", &SINK).await;
    let message = refusal(&ctx, "INSERT INTO itself SELECT * FROM changes").await;
    assert!(message.contains("use another target"), "{message}");
    assert_eq!(cluster.scalar("SELECT COUNT(*) FROM {db}.mirror").await, "0");
}

#[tokio::test]
async fn a_sort_or_a_collected_changelog_is_refused() {
    let (cluster, ctx) = source_and_mirror(1).await;
    let bounded = [INITIAL[0], INITIAL[1], ("source.scan.bounded-mode", "latest")];
    cluster.declare(&ctx, "bounded", "source", &bounded).await;
    run(&ctx, "CREATE TABLE names AS VALUES (1, 'one'), (2, 'two')").await;
    run(&ctx, "SET datafusion.optimizer.join_reordering = false").await;
    let message = refusal(&ctx, "INSERT INTO mirror SELECT * FROM bounded ORDER BY n LIMIT 2").await;
    assert!(message.contains("SortExec") && message.contains("ORDER BY"), "{message}");
    let columns = "SELECT c.id, s.column2, c.n, c.__change_kind";
    let join = format!("INSERT INTO mirror {columns} FROM bounded c JOIN names s ON c.id = s.column1");
    let message = refusal(&ctx, &join).await;
    assert!(message.contains("HashJoinExec") && message.contains("static table first"), "{message}");
    run(&ctx, &format!("INSERT INTO mirror {columns} FROM names s JOIN bounded c ON c.id = s.column1")).await;
    assert_eq!(cluster.scalar("SELECT COUNT(*) FROM {db}.mirror").await, "2");
}

#[tokio::test]
async fn a_growing_table_with_its_snapshot_needs_an_exact_snapshot_or_a_unique_target() {
    let cluster = Cluster::start().await;
    cluster.duplicate_table("log", "id INT", cluster.recording(false)).await;
    cluster.unique_table("keyed", "id INT", cluster.recording(false)).await;
    cluster.duplicate_table("copy", "id INT", "").await;
    cluster.doris("INSERT INTO {db}.log VALUES (1), (1), (2)").await;
    let ctx = cluster.context();
    cluster.declare(&ctx, "copy", "copy", &[]).await;
    // Without old values a keyed table is not read as of an instant: its snapshot overlaps with the changes.
    let mut inserts = INITIAL.to_vec();
    inserts.push(("source.changelog.increment-type", "append_only"));
    cluster.declare(&ctx, "keyed", "keyed", &inserts).await;
    let message = refusal(&ctx, "INSERT INTO copy SELECT id FROM keyed").await;
    assert!(message.contains("UNIQUE KEY") && message.contains("latest"), "{message}");
    // A table of rows alone is: each row comes once, whenever it was written.
    let mut bounded = INITIAL.to_vec();
    bounded.push(("source.scan.bounded-mode", "latest"));
    cluster.declare(&ctx, "log", "log", &bounded).await;
    run(&ctx, "INSERT INTO copy SELECT id FROM log").await;
    assert_eq!(cluster.scalar("SELECT GROUP_CONCAT(id ORDER BY id) FROM {db}.copy").await, "1, 1, 2");
}

#[tokio::test]
async fn a_union_of_two_changelogs_is_mirrored() {
    let (cluster, ctx) = source_and_mirror(2).await;
    cluster.changing_table("second", COLUMNS).await;
    cluster.doris("INSERT INTO {db}.second VALUES (1001, 'z', 1)").await;
    cluster.declare(&ctx, "second", "second", &INITIAL).await;
    let job = SyncJob::submit(&ctx, "union", "INSERT INTO mirror SELECT * FROM changes UNION ALL SELECT * FROM second")
        .await
        .expect("starts");
    tokio::time::timeout(PATIENCE, job.caught_up()).await.expect("in time").expect("caught up");
    cluster.doris("UPDATE {db}.second SET n = 2 WHERE id = 1001").await;
    cluster.doris("DELETE FROM {db}.source WHERE id = 1").await;
    tokio::time::timeout(PATIENCE, job.caught_up()).await.expect("in time").expect("caught up");
    let ids = cluster.doris("SELECT id FROM {db}.mirror ORDER BY id").await;
    let ids: Vec<&str> = ids.iter().filter_map(|row| row[0].as_deref()).collect();
    assert_eq!(ids, ["2", "3", "4", "1001"]);
    assert_eq!(cluster.scalar("SELECT n FROM {db}.mirror WHERE id = 1001").await, "2");
    job.stop().await.expect("stops");
}

#[tokio::test]
async fn an_idle_job_loads_nothing() {
    let cluster = Cluster::sandbox().await;
    cluster.changing_table("source", "id INT NOT NULL").await;
    cluster.unique_table("mirror", "id INT NOT NULL", "").await;
    let ctx = cluster.context();
    cluster.declare(&ctx, "changes", "source", &INITIAL).await;
    cluster.declare(&ctx, "mirror", "mirror", &SINK).await;
    let job = SyncJob::submit(&ctx, "idle", "INSERT INTO mirror SELECT * FROM changes").await.expect("starts");
    tokio::time::timeout(PATIENCE, job.caught_up()).await.expect("in time").expect("caught up");
    tokio::time::timeout(PATIENCE, job.caught_up()).await.expect("in time").expect("caught up");
    assert_eq!(job.stop().await.expect("stops"), 0);
    assert!(!cluster.server().requests().all().iter().any(|request| request.target.contains("_stream_load")));
}

#[tokio::test]
async fn a_static_table_is_read_after_each_window_is_fixed() {
    let (cluster, ctx) = source_and_mirror(2).await;
    cluster.unique_table("dim", "id INT NOT NULL, name VARCHAR(20)", "").await;
    cluster.declare(&ctx, "dim", "dim", &[]).await;
    let sql = "INSERT INTO mirror SELECT c.id, d.name, c.n, c.__change_kind FROM changes c JOIN dim d ON c.id = d.id";
    let begun = std::time::Instant::now();
    let job = SyncJob::submit(&ctx, "joined", sql).await.expect("starts");
    // the static side is empty: the join ends without asking the changelog for a row
    for _ in 0..2 {
        tokio::time::timeout(PATIENCE, job.caught_up()).await.expect("in time").expect("caught up");
    }
    // a snapshot, a window per poll (1 s), and one for each wait at most
    let (epochs, seconds) = (job.status().epochs, begun.elapsed().as_secs());
    assert!(epochs <= seconds + 4, "{epochs} epochs in {seconds} s");
    assert_eq!(cluster.scalar("SELECT COUNT(*) FROM {db}.mirror").await, "0");

    for id in 10..13 {
        cluster.doris(&format!("INSERT INTO {{db}}.dim VALUES ({id}, 'n{id}')")).await;
        cluster.doris(&format!("INSERT INTO {{db}}.source VALUES ({id}, 'x', {id})")).await;
        tokio::time::timeout(PATIENCE, job.caught_up()).await.expect("in time").expect("caught up");
        assert_eq!(cluster.scalar(&format!("SELECT v FROM {{db}}.mirror WHERE id = {id}")).await, format!("n{id}"));
    }
    job.stop().await.expect("stops");
}

#[tokio::test]
async fn a_bounded_changelog_beside_the_followed_one_does_not_hold_up_catching_up() {
    let (cluster, ctx) = source_and_mirror(2).await;
    let bounded = [INITIAL[0], INITIAL[1], ("source.scan.bounded-mode", "latest")];
    cluster.declare(&ctx, "known", "source", &bounded).await;
    let sql = "INSERT INTO mirror SELECT c.id, c.v, c.n, c.__change_kind FROM changes c
               JOIN (SELECT id FROM known GROUP BY id) k ON c.id = k.id";
    let job = SyncJob::submit(&ctx, "beside", sql).await.expect("starts");
    tokio::time::timeout(PATIENCE, job.caught_up()).await.expect("in time").expect("caught up");
    assert_mirrored(&cluster).await;
    job.stop().await.expect("stops");
}

#[tokio::test]
async fn a_job_goes_on_when_its_idle_session_was_ended() {
    let cluster = Cluster::sandbox().await;
    cluster.changing_table("source", "id INT NOT NULL").await;
    cluster.unique_table("mirror", "id INT NOT NULL", "").await;
    let ctx = cluster.context();
    let hourly = [INITIAL[0], ("source.changelog.poll-interval", "1h")];
    cluster.declare(&ctx, "changes", "source", &hourly).await;
    cluster.declare(&ctx, "mirror", "mirror", &SINK).await;
    let job = SyncJob::submit(&ctx, "idle", "INSERT INTO mirror SELECT * FROM changes").await.expect("starts");
    tokio::time::timeout(PATIENCE, job.caught_up()).await.expect("in time").expect("caught up");
    cluster.server().expire_flight_tokens();
    cluster.doris("INSERT INTO {db}.source VALUES (1)").await;
    tokio::time::timeout(PATIENCE, job.caught_up()).await.expect("in time").expect("a new session is opened");
    assert_eq!(cluster.scalar("SELECT COUNT(*) FROM {db}.mirror").await, "1");
    job.stop().await.expect("stops");
}
