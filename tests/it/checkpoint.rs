//! Jobs with checkpoints: killed and started again, started twice, changed between two starts.

use std::sync::Arc;
use std::time::Duration;

use datafusion::prelude::SessionContext;
use datafusion_doris::job::{SyncJob, SyncJobBuilder};
use doris_sandbox::s3_endpoint::{S3Endpoint, S3Settings};
use doris_sandbox::{Action, Fault, Sandbox, Site};
use tempfile::TempDir;
use tokio::sync::Notify;

use crate::harness::{Cluster, run, text};

const INITIAL: [(&str, &str); 2] = [("source.scan.mode", "initial"), ("source.changelog.poll-interval", "1s")];
/// Longest wait for anything that must happen.
pub const PATIENCE: Duration = Duration::from_secs(120);
/// The job of these tests.
pub const HISTORY: &str = "INSERT INTO history SELECT id, v, __change_kind FROM changes";

/// A source with a changelog, and a history of its changes that would show every repetition.
async fn source_and_history() -> (Cluster, SessionContext, TempDir) {
    let cluster = Cluster::sandbox().await;
    cluster
        .doris(
            "CREATE TABLE {db}.source (id INT NOT NULL, v VARCHAR(20)) UNIQUE KEY(id)
             DISTRIBUTED BY HASH(id) BUCKETS 4 PROPERTIES ('replication_num' = '1',
             'enable_unique_key_merge_on_write' = 'true', 'changelog.enable' = 'true',
             'changelog.need_historical_value' = 'true');
             CREATE TABLE {db}.history (id INT NOT NULL, v VARCHAR(20), kind VARCHAR(2)) DUPLICATE KEY(id)
             DISTRIBUTED BY HASH(id) BUCKETS 2 PROPERTIES ('replication_num' = '1');
             INSERT INTO {db}.source VALUES (1, 'a'), (2, 'b'), (3, 'c'), (4, 'd')",
        )
        .await;
    let ctx = cluster.context();
    cluster.declare(&ctx, "changes", "source", &INITIAL).await;
    cluster.declare(&ctx, "history", "history", &[]).await;
    (cluster, ctx, tempfile::tempdir().expect("a directory"))
}

/// The job, with its checkpoints in `dir`.
pub fn job(dir: &TempDir) -> SyncJobBuilder {
    SyncJob::builder("history").checkpoint_dir(dir.path().to_str().expect("text"))
}

/// Waits until all changes so far are written.
pub async fn caught_up(job: &SyncJob) {
    tokio::time::timeout(PATIENCE, job.caught_up()).await.expect("in time").expect("is mirrored");
}

/// `id kind v` of every change, sorted.
pub async fn history(cluster: &Cluster) -> Vec<String> {
    let rows = cluster.doris("SELECT id, kind, v FROM {db}.history ORDER BY id, v, kind").await;
    rows.into_iter().map(|row| row.into_iter().map(Option::unwrap_or_default).collect::<Vec<_>>().join(" ")).collect()
}

#[tokio::test]
async fn a_job_that_is_dropped_and_started_again_writes_every_change_once() {
    let (cluster, ctx, dir) = source_and_history().await;
    let first = job(&dir).submit(&ctx, HISTORY).await.expect("starts");
    caught_up(&first).await;
    drop(first);
    cluster.doris("INSERT INTO {db}.source VALUES (5, 'e')").await;
    let second = job(&dir).submit(&ctx, HISTORY).await.expect("starts");
    caught_up(&second).await;
    let status = second.status();
    assert_eq!(status.run.generation.map(|generation| generation.0), Some(2));
    second.stop().await.expect("stops");
    cluster.doris("DELETE FROM {db}.source WHERE id = 1").await;
    let third = job(&dir).submit(&ctx, HISTORY).await.expect("starts");
    caught_up(&third).await;
    third.stop().await.expect("stops");
    assert_eq!(history(&cluster).await, ["1 +I a", "1 -D a", "2 +I b", "3 +I c", "4 +I d", "5 +I e"]);
}

/// Drops a job while one of its requests is not answered, and starts it again.
async fn killed_at(request: &str) {
    let (cluster, ctx, dir) = source_and_history().await;
    let first = job(&dir).submit(&ctx, HISTORY).await.expect("starts");
    caught_up(&first).await;
    let (reached, release) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let action = Action::HoldAnswer { done: Arc::clone(&reached), release: Arc::clone(&release) };
    cluster.server().faults().push(Fault::new(action).at(Site::Be).when(request));
    cluster.doris("INSERT INTO {db}.source VALUES (5, 'e')").await;
    cluster.doris("DELETE FROM {db}.source WHERE id = 2").await;
    let hurried = tokio::time::timeout(PATIENCE, async {
        tokio::select! {
            _ = first.caught_up() => panic!("the request is held"),
            () = reached.notified() => {}
        }
    });
    hurried.await.expect("the request comes");
    drop(first);
    release.notify_one();
    cluster.server().faults().clear();
    let second = job(&dir).submit(&ctx, HISTORY).await.expect("starts");
    caught_up(&second).await;
    second.stop().await.expect("stops");
    let expected = ["1 +I a", "2 +I b", "2 -D b", "3 +I c", "4 +I d", "5 +I e"];
    assert_eq!(history(&cluster).await, expected, "{request}");
    assert_eq!(cluster.server().running_transactions(), 0);
}

#[tokio::test]
async fn a_job_killed_after_its_pre_commit_goes_on() {
    killed_at("_stream_load ").await;
}

#[tokio::test]
async fn a_job_killed_after_its_commit_goes_on() {
    killed_at("_stream_load_2pc").await;
}

#[tokio::test]
async fn the_newer_of_two_jobs_with_one_name_goes_on_and_the_older_ends() {
    let (cluster, ctx, dir) = source_and_history().await;
    let old = job(&dir).submit(&ctx, HISTORY).await.expect("starts");
    caught_up(&old).await;
    let new = job(&dir).submit(&ctx, HISTORY).await.expect("starts");
    cluster.doris("INSERT INTO {db}.source VALUES (5, 'e')").await;
    let (older, newer) = tokio::join!(old.caught_up(), tokio::time::timeout(PATIENCE, new.caught_up()));
    newer.expect("in time").expect("goes on");
    let message = match older {
        Err(error) => error.to_string(),
        // It had just written what there was: its next epoch tells.
        Ok(()) => {
            cluster.doris("INSERT INTO {db}.source VALUES (6, 'f')").await;
            let ended = tokio::time::timeout(PATIENCE, old.caught_up()).await.expect("in time");
            caught_up(&new).await;
            ended.expect_err("the older one is fenced").to_string()
        }
    };
    assert!(message.contains("took over") && message.contains("generation 2 of job history"), "{message}");
    new.stop().await.expect("stops");
    let rows = history(&cluster).await;
    let mut once = rows.clone();
    once.dedup();
    assert_eq!(rows, once, "no row twice");
    assert!(rows.contains(&"5 +I e".to_string()), "{rows:?}");
}

#[tokio::test]
async fn a_changed_query_is_refused_with_the_difference() {
    let (cluster, ctx, dir) = source_and_history().await;
    let first = job(&dir).submit(&ctx, HISTORY).await.expect("starts");
    caught_up(&first).await;
    first.stop().await.expect("stops");
    let other = "INSERT INTO history SELECT id, upper(v), __change_kind FROM changes";
    let second = job(&dir).submit(&ctx, other).await.expect("plans");
    let message = second.wait().await.expect_err("another query").to_string();
    assert!(message.contains("query:") && message.contains(" -> ") && message.contains("upper"), "{message}");
    assert_eq!(history(&cluster).await.len(), 4);
    // What may change: the scan mode, once there is a position.
    cluster.declare(&ctx, "later", "source", &[("source.scan.mode", "latest"), INITIAL[1]]).await;
    cluster.doris("INSERT INTO {db}.source VALUES (5, 'e')").await;
    let third = job(&dir).submit(&ctx, &HISTORY.replace("changes", "later")).await.expect("starts");
    caught_up(&third).await;
    third.stop().await.expect("stops");
    assert_eq!(history(&cluster).await.len(), 5, "from the checkpoint on, not from now");
}

#[tokio::test]
async fn settings_of_the_session_make_a_plain_insert_exactly_once() {
    let (_cluster, ctx, dir) = source_and_history().await;
    let explain = format!("EXPLAIN {HISTORY}");
    let before = text(&run(&ctx, &explain).await);
    assert!(before.contains("at-least-once after a restart"), "{before}");
    run(&ctx, &format!("SET doris.checkpoint.dir = '{}'", dir.path().display())).await;
    run(&ctx, "SET execution.checkpointing.interval = '1s'").await;
    run(&ctx, "SET doris.job.name = 'by sql'").await;
    let after = text(&run(&ctx, &explain).await);
    assert!(after.contains("guarantee=exactly-once"), "{after}");
}

#[tokio::test]
async fn a_savepoint_is_kept_and_a_checkpoint_is_written_on_demand() {
    let (cluster, ctx, dir) = source_and_history().await;
    let first = job(&dir).retain(1).submit(&ctx, HISTORY).await.expect("starts");
    tokio::time::timeout(PATIENCE, first.checkpoint_now()).await.expect("in time").expect("is written");
    assert!(first.status().run.checkpoint.is_some());
    caught_up(&first).await;
    first.stop_with_savepoint("four rows").await.expect_err("an odd name");
    first.stop_with_savepoint("four").await.expect("stops");
    assert!(dir.path().join("history/savepoint-four.json").exists());
    cluster.doris("INSERT INTO {db}.source VALUES (5, 'e')").await;
    let second = job(&dir).submit(&ctx, HISTORY).await.expect("starts");
    caught_up(&second).await;
    second.stop().await.expect("stops");
    let third = job(&dir).from_savepoint("four").submit(&ctx, HISTORY).await.expect("starts");
    caught_up(&third).await;
    third.stop().await.expect("stops");
    let rows = history(&cluster).await;
    assert_eq!(rows.iter().filter(|row| *row == "5 +I e").count(), 2, "read again, as asked for: {rows:?}");
    assert_eq!(rows.len(), 6, "{rows:?}");
}

#[tokio::test]
async fn a_job_without_checkpoints_says_so_when_one_is_asked_for() {
    let (_cluster, ctx, _dir) = source_and_history().await;
    let job = SyncJob::submit(&ctx, "plain", HISTORY).await.expect("starts");
    let asked = tokio::time::timeout(PATIENCE, job.checkpoint_now()).await.expect("in time");
    assert!(asked.expect_err("there are none").to_string().contains("doris.checkpoint.dir"));
    job.stop().await.expect("stops");
}

#[tokio::test]
async fn a_checkpoint_goes_before_the_offset_table_and_that_before_the_scan_mode() {
    let (cluster, ctx, dir) = source_and_history().await;
    cluster
        .doris(
            "CREATE TABLE {db}.offsets (consumer_id VARCHAR(256) NOT NULL, offset_timestamp DATETIME NOT NULL,
             update_time DATETIME(3) NOT NULL) UNIQUE KEY(consumer_id) DISTRIBUTED BY HASH(consumer_id) BUCKETS 1
             PROPERTIES ('replication_num' = '1', 'enable_unique_key_merge_on_write' = 'true')",
        )
        .await;
    let position = "INSERT INTO {db}.offsets SELECT 'c', FROM_UNIXTIME(FLOOR(CURRENT_TSO_PHYSICAL_TIME / 1000) + 1,
        '%Y-%m-%d %H:%i:%s'), NOW() FROM information_schema.tso_status";
    cluster.doris(position).await;
    let kept = cluster.scalar("SELECT offset_timestamp FROM {db}.offsets").await;
    let clock = "SELECT FROM_UNIXTIME(FLOOR(CURRENT_TSO_PHYSICAL_TIME / 1000), '%Y-%m-%d %H:%i:%s') FROM
        information_schema.tso_status";
    while cluster.scalar(clock).await < kept {
        tokio::task::yield_now().await;
    }
    cluster.doris("INSERT INTO {db}.source VALUES (5, 'e')").await;
    let offsets = cluster.table("offsets");
    let options = [
        INITIAL[0],
        INITIAL[1],
        ("source.changelog.offset-table", offsets.as_str()),
        ("source.changelog.consumer-id", "c"),
    ];
    cluster.declare(&ctx, "published", "source", &options).await;
    let insert = HISTORY.replace("changes", "published");
    let first = job(&dir).submit(&ctx, &insert).await.expect("starts");
    caught_up(&first).await;
    first.stop().await.expect("stops");
    assert_eq!(history(&cluster).await, ["5 +I e"], "from the offset table, without a snapshot");
    assert!(cluster.scalar("SELECT offset_timestamp FROM {db}.offsets").await > kept, "published");

    cluster.doris(&format!("INSERT INTO {{db}}.offsets VALUES ('c', '{kept}', NOW())")).await;
    cluster.doris("INSERT INTO {db}.source VALUES (6, 'f')").await;
    let second = job(&dir).submit(&ctx, &insert).await.expect("starts");
    caught_up(&second).await;
    second.stop().await.expect("stops");
    assert_eq!(history(&cluster).await, ["5 +I e", "6 +I f"], "from the checkpoint");
    let published = cluster.scalar("SELECT offset_timestamp FROM {db}.offsets").await;
    assert!(published > kept, "published again after the start from a checkpoint");

    cluster.doris("DELETE FROM {db}.offsets WHERE consumer_id = 'c'").await;
    let other = tempfile::tempdir().expect("a directory");
    let third = job(&other).submit(&ctx, &insert).await.expect("starts");
    caught_up(&third).await;
    third.stop().await.expect("stops");
    assert_eq!(history(&cluster).await.len(), 8, "all six rows by the scan mode");
}

#[tokio::test]
async fn checkpoints_in_an_object_store_do_the_same() {
    let (cluster, ctx, _dir) = source_and_history().await;
    let endpoint = S3Endpoint::start(S3Settings::default()).await.expect("starts");
    endpoint.put("checkpoints", "somebody/else", "x");
    for (id, rows) in [(5, 5), (6, 6), (7, 7)] {
        cluster.doris(&format!("INSERT INTO {{db}}.source VALUES ({id}, 'x')")).await;
        let store = Arc::new(crate::checkpoint_store::s3(&endpoint, "history"));
        let job = SyncJob::builder("history").checkpoint_store(store).submit(&ctx, HISTORY).await.expect("starts");
        caught_up(&job).await;
        assert_eq!(history(&cluster).await.len(), rows);
    }
    assert!(endpoint.keys("checkpoints").iter().any(|key| key.ends_with(".json")));
}

#[tokio::test]
async fn a_job_with_checkpoints_outlives_loads_that_fail_for_longer_than_the_sink_tries() {
    let (cluster, ctx, dir) = source_and_history().await;
    let faults = cluster.server().faults();
    faults.push(Fault::new(Action::CutAfterBytes(0)).at(Site::Be).when("_stream_load ").times(5));
    let job = job(&dir).submit(&ctx, HISTORY).await.expect("starts");
    caught_up(&job).await;
    assert_eq!(faults.armed(), 0, "all faults were used");
    let status = job.status();
    assert_eq!((status.run.failures, status.run.last_error), (0, None), "forgotten after the next epoch");
    job.stop().await.expect("stops");
    assert_eq!(history(&cluster).await.len(), 4);
}

#[tokio::test]
async fn a_job_with_checkpoints_waits_for_a_backend_that_is_down() {
    let cluster = Cluster::of(Sandbox::builder().backends(2)).await;
    cluster.changing_table("source", "id INT NOT NULL, v VARCHAR(20)").await;
    cluster.duplicate_table("history", "id INT NOT NULL, v VARCHAR(20), kind VARCHAR(2)", "").await;
    cluster.doris("INSERT INTO {db}.source VALUES (1, 'a')").await;
    let (ctx, dir) = (cluster.context(), tempfile::tempdir().expect("a directory"));
    cluster.declare(&ctx, "changes", "source", &INITIAL).await;
    cluster.declare(&ctx, "history", "history", &[]).await;
    let job = job(&dir).submit(&ctx, HISTORY).await.expect("starts");
    caught_up(&job).await;
    cluster.doris("INSERT INTO {db}.source VALUES (2, 'b')").await;
    for backend in 0..2 {
        cluster.server().backend(backend).stop().await;
    }
    let failing = async {
        while job.status().run.failures == 0 {
            assert_eq!(job.status().error, None);
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, failing).await.expect("nothing can be read or loaded");
    for backend in 0..2 {
        cluster.server().backend(backend).restart().await.expect("starts");
    }
    caught_up(&job).await;
    job.stop().await.expect("stops");
    assert_eq!(history(&cluster).await, ["1 +I a", "2 +I b"]);
}

#[tokio::test]
async fn a_snapshot_of_many_tablets_goes_on_where_it_was_killed() {
    let (cluster, ctx, dir) = source_and_history().await;
    cluster
        .doris(
            "CREATE TABLE {db}.wide (id INT NOT NULL, v VARCHAR(20)) UNIQUE KEY(id)
             DISTRIBUTED BY HASH(id) BUCKETS 24 PROPERTIES ('replication_num' = '1',
             'enable_unique_key_merge_on_write' = 'true', 'changelog.enable' = 'true',
             'changelog.need_historical_value' = 'true')",
        )
        .await;
    let rows: Vec<String> = (0..200).map(|id| format!("({id}, 'r{id}')")).collect();
    cluster.doris(&format!("INSERT INTO {{db}}.wide VALUES {}", rows.join(", "))).await;
    // The snapshot is of a second that is over: rows of the running one would come as changes.
    cluster.next_second().await;
    cluster.declare(&ctx, "wide_changes", "wide", &INITIAL).await;
    let insert = HISTORY.replace("changes", "wide_changes");
    // The second of its epochs is committed, and the job does not know it.
    let (reached, release) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let action = Action::HoldAnswer { done: Arc::clone(&reached), release: Arc::clone(&release) };
    cluster.server().faults().push(Fault::new(action).at(Site::Be).when("_stream_load_2pc").skip(1));
    let first = job(&dir).submit(&ctx, &insert).await.expect("starts");
    tokio::time::timeout(PATIENCE, reached.notified()).await.expect("the second epoch comes");
    drop(first);
    release.notify_one();
    let written: usize = cluster.scalar("SELECT COUNT(*) FROM {db}.history").await.parse().expect("a number");
    assert!((1..200).contains(&written), "some of the tablets are written, {written} rows");
    cluster.doris("DELETE FROM {db}.wide WHERE id = 7").await;
    let second = job(&dir).submit(&ctx, &insert).await.expect("starts");
    caught_up(&second).await;
    second.stop().await.expect("stops");
    let history = history(&cluster).await;
    let deleted = history.iter().filter(|row| row.contains("-D")).count();
    assert_eq!((history.len(), deleted), (201, 1), "every row once, as of the start, and the change since");
}

#[tokio::test]
async fn a_job_of_two_sources_has_one_position_for_both() {
    let (cluster, ctx, dir) = source_and_history().await;
    cluster
        .doris(
            "CREATE TABLE {db}.other (id INT NOT NULL, v VARCHAR(20)) UNIQUE KEY(id)
             DISTRIBUTED BY HASH(id) BUCKETS 2 PROPERTIES ('replication_num' = '1',
             'enable_unique_key_merge_on_write' = 'true', 'changelog.enable' = 'true',
             'changelog.need_historical_value' = 'true');
             INSERT INTO {db}.other VALUES (101, 'x'), (102, 'y')",
        )
        .await;
    cluster.declare(&ctx, "other_changes", "other", &INITIAL).await;
    let insert = format!("{HISTORY} UNION ALL SELECT id, v, __change_kind FROM other_changes");
    let first = job(&dir).submit(&ctx, &insert).await.expect("starts");
    caught_up(&first).await;
    drop(first);
    cluster.doris("INSERT INTO {db}.source VALUES (5, 'e')").await;
    let second = job(&dir).submit(&ctx, &insert).await.expect("starts");
    caught_up(&second).await;
    drop(second);
    cluster.doris("DELETE FROM {db}.other WHERE id = 101").await;
    let third = job(&dir).submit(&ctx, &insert).await.expect("starts");
    caught_up(&third).await;
    assert_eq!(third.status().positions.len(), 2);
    third.stop().await.expect("stops");
    let expected = ["1 +I a", "2 +I b", "3 +I c", "4 +I d", "5 +I e", "101 +I x", "101 -D x", "102 +I y"];
    assert_eq!(history(&cluster).await, expected);
}
