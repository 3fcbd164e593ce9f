//! Long downtimes, of the job and of Doris.

use std::time::Duration;

use datafusion::prelude::SessionContext;
use doris_sandbox::{Action, Fault, Site};
use tempfile::TempDir;

use crate::checkpoint::{HISTORY, PATIENCE, caught_up, history, job};
use crate::harness::Cluster;
use crate::timed::{asked, next_request};

/// A source `t` with a changelog, read in windows of a minute, and a history of its changes that would show every
/// repetition.
async fn source_and_history() -> (Cluster, SessionContext, TempDir) {
    let cluster = Cluster::sandbox().await;
    cluster.changing_table("t", "id INT NOT NULL, v VARCHAR(20)").await;
    cluster.duplicate_table("history", "id INT NOT NULL, v VARCHAR(20), kind VARCHAR(2)", "").await;
    cluster.doris("INSERT INTO {db}.t VALUES (1, 'a'), (2, 'b')").await;
    let ctx = cluster.context();
    let options = [
        ("source.scan.mode", "initial"),
        ("source.changelog.poll-interval", "1s"),
        ("source.changelog.max-window", "60s"),
    ];
    cluster.declare(&ctx, "changes", "t", &options).await;
    cluster.declare(&ctx, "history", "history", &[]).await;
    (cluster, ctx, tempfile::tempdir().expect("a directory"))
}

#[tokio::test]
async fn a_recorded_load_that_expired_during_the_downtime_is_read_and_written_again() {
    let (cluster, ctx, dir) = source_and_history().await;
    let first = job(&dir).submit(&ctx, HISTORY).await.expect("starts");
    caught_up(&first).await;
    // From now on no commit reaches Doris: the next epoch is pre-committed and recorded, and stays so.
    let refused = Action::Status { code: 503, body: "busy".into() };
    let from = next_request(cluster.server());
    cluster.server().faults().push(Fault::new(refused).at(Site::Be).when("_stream_load_2pc").always());
    cluster.doris("INSERT INTO {db}.t VALUES (3, 'c')").await;
    cluster.doris("DELETE FROM {db}.t WHERE id = 1").await;
    let tried = cluster.server().until(|server| {
        server.requests().matching(Site::Be, "_stream_load_2pc").iter().any(|request| request.order >= from)
    });
    tokio::time::timeout(PATIENCE, async {
        tokio::select! {
            _ = first.caught_up() => panic!("nothing can be committed"),
            () = tried => {}
        }
    })
    .await
    .expect("in time");
    drop(first);
    assert_eq!(cluster.server().running_transactions(), 1, "it waits for its commit");
    cluster.server().advance_clock(Duration::from_secs(2 * 3600));
    assert_eq!(cluster.server().running_transactions(), 0, "the server gave it up");
    cluster.server().faults().clear();

    let second = job(&dir).submit(&ctx, HISTORY).await.expect("starts");
    caught_up(&second).await;
    second.stop().await.expect("stops");
    assert_eq!(history(&cluster).await, ["1 +I a", "1 -D a", "2 +I b", "3 +I c"]);
}

#[tokio::test]
async fn committed_loads_whose_labels_are_forgotten_hold_nothing_up() {
    let (cluster, ctx, dir) = source_and_history().await;
    let first = job(&dir).submit(&ctx, HISTORY).await.expect("starts");
    caught_up(&first).await;
    drop(first);
    // Far beyond streaming_label_keep_max_second.
    cluster.server().advance_clock(Duration::from_secs(20 * 3600));
    cluster.doris("INSERT INTO {db}.t VALUES (3, 'c')").await;
    let hour = [
        ("source.scan.mode", "initial"),
        ("source.changelog.poll-interval", "1s"),
        ("source.changelog.max-window", "1d"),
    ];
    cluster.declare(&ctx, "hourly", "t", &hour).await;
    let second = job(&dir).submit(&ctx, &HISTORY.replace("changes", "hourly")).await.expect("starts");
    caught_up(&second).await;
    second.stop().await.expect("stops");
    assert_eq!(history(&cluster).await, ["1 +I a", "2 +I b", "3 +I c"]);
}

#[tokio::test]
async fn a_backlog_is_read_and_made_visible_window_by_window() {
    let (cluster, ctx, dir) = source_and_history().await;
    let first = job(&dir).submit(&ctx, HISTORY).await.expect("starts");
    caught_up(&first).await;
    drop(first);
    for id in 10..20 {
        cluster.server().advance_clock(Duration::from_secs(70));
        cluster.doris(&format!("INSERT INTO {{db}}.t VALUES ({id}, 'x')")).await;
    }
    cluster.server().advance_clock(Duration::from_secs(70));
    let from = next_request(cluster.server());
    let second = job(&dir).submit(&ctx, HISTORY).await.expect("starts");
    caught_up(&second).await;
    second.stop().await.expect("stops");
    assert_eq!(history(&cluster).await.len(), 12);
    let windows = asked(cluster.server(), "t", from);
    // A second more at the start of each statement.
    assert!(windows.iter().all(|window| window.end_ms - window.start_ms <= 61_000), "{windows:?}");
    let loads = cluster.server().requests().matching(Site::Be, "_stream_load_2pc");
    let commits = loads.iter().filter(|request| request.order >= from).count();
    assert!(commits >= 10, "each change was visible before the next was read: {commits}");
    // The window after the first commit was asked for behind it.
    let first_commit = loads.iter().map(|request| request.order).find(|order| *order >= from).expect("a commit");
    assert!(windows.iter().any(|window| window.order > first_commit), "not all windows were read ahead");
}

#[tokio::test]
async fn nodes_that_are_down_for_a_while_are_waited_for() {
    for frontend in [true, false] {
        let (cluster, ctx, dir) = source_and_history().await;
        let job = job(&dir).submit(&ctx, HISTORY).await.expect("starts");
        caught_up(&job).await;
        cluster.doris("INSERT INTO {db}.t VALUES (3, 'c')").await;
        let node = if frontend { cluster.server().frontend(0) } else { cluster.server().backend(0) };
        node.stop().await;
        let noticed = async {
            while job.status().run.failures < 2 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, noticed).await.expect("it is missed");
        assert!(job.status().run.last_error.is_some());
        node.restart().await.expect("starts again");
        caught_up(&job).await;
        assert_eq!(job.status().run.failures, 0, "forgotten after an epoch");
        job.stop().await.expect("stops");
        assert_eq!(history(&cluster).await, ["1 +I a", "2 +I b", "3 +I c"], "frontend: {frontend}");
    }
}
