//! Continuous statements whose epochs are staged in an object store: exactly once, whatever is lost or killed.

use std::sync::Arc;

use doris_sandbox::{Action, Fault, Site};
use tempfile::TempDir;
use tokio::sync::Notify;

use crate::checkpoint::{caught_up, history, job};
use crate::tvf::{PATIENCE, Staging, fault_is_met};

pub const HISTORY: &str = "INSERT INTO history SELECT id, v, __change_kind FROM changes";
const MIRROR: &str = "INSERT INTO mirror SELECT * FROM changes";
/// The INSERT of staged rows, not those of the source.
const STATEMENT: &str = "with label";
const CHANGED: [&str; 6] = ["1 +I a", "2 +I b", "2 -D b", "3 +I c", "4 +I d", "5 +I e"];

/// A source with a changelog, and a history of its changes that would show every repetition.
async fn source_and_history() -> (Staging, TempDir) {
    source_and_history_with(&[]).await
}

pub async fn source_and_history_with(options: &[(&str, &str)]) -> (Staging, TempDir) {
    let staging = Staging::start().await;
    staging.cluster.changing_table("source", "id INT NOT NULL, v VARCHAR(20)").await;
    staging.cluster.duplicate_table("history", "id INT NOT NULL, v VARCHAR(20), kind VARCHAR(2)", "").await;
    staging.cluster.unique_table("mirror", "id INT NOT NULL, v VARCHAR(20)", "").await;
    staging.cluster.doris("INSERT INTO {db}.source VALUES (1, 'a'), (2, 'b'), (3, 'c'), (4, 'd')").await;
    let initial = [("source.scan.mode", "initial"), ("source.changelog.poll-interval", "1s")];
    staging.cluster.declare(&staging.ctx, "changes", "source", &initial).await;
    staging.declare("history", options).await;
    staging.declare("mirror", &[("sink.change-kind-column", "__change_kind")]).await;
    (staging, tempfile::tempdir().expect("a directory"))
}

#[tokio::test]
async fn a_job_that_is_dropped_and_started_again_writes_every_change_once() {
    let (staging, dir) = source_and_history().await;
    let first = job(&dir).submit(&staging.ctx, HISTORY).await.expect("starts");
    caught_up(&first).await;
    drop(first);
    staging.cluster.doris("INSERT INTO {db}.source VALUES (5, 'e')").await;
    staging.cluster.doris("DELETE FROM {db}.source WHERE id = 2").await;
    let second = job(&dir).submit(&staging.ctx, HISTORY).await.expect("starts");
    caught_up(&second).await;
    second.stop().await.expect("stops");
    assert_eq!(history(&staging.cluster).await, CHANGED);
}

#[tokio::test]
async fn changes_of_a_key_within_one_epoch_end_with_the_last() {
    let (staging, dir) = source_and_history().await;
    let changes = "UPDATE {db}.source SET v = 'x' WHERE id = 1; UPDATE {db}.source SET v = 'y' WHERE id = 1;
         DELETE FROM {db}.source WHERE id = 2; INSERT INTO {db}.source VALUES (2, 'again');
         DELETE FROM {db}.source WHERE id = 3; INSERT INTO {db}.source VALUES (6, 'f'); DELETE FROM {db}.source WHERE id = 6";
    let mirror = job(&dir).submit(&staging.ctx, MIRROR).await.expect("starts");
    caught_up(&mirror).await;
    staging.cluster.doris(changes).await;
    caught_up(&mirror).await;
    mirror.stop().await.expect("stops");
    let rows = staging.cluster.doris("SELECT id, v FROM {db}.mirror ORDER BY id").await;
    let texts: Vec<_> = rows.into_iter().flatten().flatten().collect();
    assert_eq!(texts, ["1", "y", "2", "again", "4", "d"]);
}

/// Drops a job while its INSERT is on its way, which `fault` tells, and starts it again.
async fn killed_in_the_insert(clean_up: &str, fault: impl FnOnce(&Arc<Notify>) -> Action) {
    let (staging, dir) = source_and_history_with(&[("sink.s3.clean-up", clean_up)]).await;
    let first = job(&dir).submit(&staging.ctx, HISTORY).await.expect("starts");
    caught_up(&first).await;
    let (server, signal) = (staging.cluster.server(), Arc::new(Notify::new()));
    let used = server.faults().applied().len();
    server.faults().push(Fault::new(fault(&signal)).at(Site::Mysql).when(STATEMENT));
    staging.cluster.doris("INSERT INTO {db}.source VALUES (5, 'e')").await;
    staging.cluster.doris("DELETE FROM {db}.source WHERE id = 2").await;
    let hurried = tokio::time::timeout(PATIENCE, async {
        tokio::select! {
            _ = first.caught_up() => {}
            () = fault_is_met(&staging.cluster, used) => {}
        }
    });
    hurried.await.expect("the statement comes");
    drop(first);
    let second = job(&dir).submit(&staging.ctx, HISTORY).await.expect("starts");
    caught_up(&second).await;
    // What was held goes on, too late: its label is taken.
    signal.notify_one();
    tokio::time::timeout(PATIENCE, server.until(|server| server.running_transactions() == 0)).await.expect("ends");
    second.stop().await.expect("stops");
    assert_eq!(history(&staging.cluster).await, CHANGED);
    assert_eq!(staging.keys().is_empty(), clean_up == "true", "{:?}", staging.keys());
}

#[tokio::test]
async fn a_job_killed_between_staging_and_insert_goes_on() {
    for clean_up in ["false", "true"] {
        killed_in_the_insert(clean_up, |signal| Action::Wait(Arc::clone(signal))).await;
    }
}

#[tokio::test]
async fn a_job_killed_after_its_insert_goes_on() {
    for clean_up in ["false", "true"] {
        killed_in_the_insert(clean_up, |_| Action::DropAnswer).await;
    }
}

/// The coordinator finds the rows visible, after the sink could not tell.
#[tokio::test]
async fn objects_of_an_epoch_whose_commit_could_not_be_confirmed_are_removed() {
    let (staging, dir) = source_and_history_with(&[("sink.s3.clean-up", "true"), ("sink.max-retries", "0")]).await;
    let recorded = crate::metrics::Recorded::default();
    // The test's own thread runs all of its tasks.
    let _recorder = metrics::set_default_local_recorder(&recorded);
    let of = |name: &str| recorded.of(name, &staging.cluster.table("history"));
    let faults = staging.cluster.server().faults();
    // The statement is answered by an error, though its rows are in the table: the label is taken by the next.
    faults.push(Fault::new(Action::DropAnswer).at(Site::Mysql).when(STATEMENT));
    let denied = Action::Status { code: 401, body: "not now".to_owned() };
    faults.push(Fault::new(denied).at(Site::Fe).when("get_load_state").skip(2));
    let history_job = job(&dir).submit(&staging.ctx, HISTORY).await.expect("starts");
    caught_up(&history_job).await;
    history_job.stop().await.expect("stops");
    assert_eq!(faults.armed(), 0, "the faults were used");
    assert_eq!(history(&staging.cluster).await, ["1 +I a", "2 +I b", "3 +I c", "4 +I d"]);
    assert_eq!((staging.keys(), staging.inserts().len()), (vec![], 1));
    assert_eq!((of("doris_sink_loads_succeeded"), of("doris_sink_loaded_rows")), (Some(1), Some(4)), "counted once");
}

#[tokio::test]
async fn an_epoch_whose_insert_fails_for_a_while_is_run_again_from_its_objects() {
    let (staging, dir) = source_and_history().await;
    let faults = staging.cluster.server().faults();
    let full = || Action::FailCommit("no space left".to_owned());
    faults.push(Fault::new(full()).at(Site::Mysql).when(STATEMENT).times(2));
    let history_job = job(&dir).submit(&staging.ctx, HISTORY).await.expect("starts");
    caught_up(&history_job).await;
    history_job.stop().await.expect("stops");
    assert_eq!(staging.cluster.server().faults().armed(), 0, "the fault was used");
    assert_eq!(history(&staging.cluster).await, ["1 +I a", "2 +I b", "3 +I c", "4 +I d"]);
    let inserts = staging.inserts();
    assert!(inserts.len() >= 3 && inserts[0] == inserts[2], "{inserts:?}");
}

#[tokio::test]
async fn a_job_that_is_dropped_while_it_stages_leaves_no_object_and_goes_on() {
    let (staging, dir) = source_and_history().await;
    let first = job(&dir).submit(&staging.ctx, HISTORY).await.expect("starts");
    caught_up(&first).await;
    let kept = staging.keys();
    for _ in 0..8 {
        // As often as the client asks, the store has no time.
        staging.s3.refuse_next("PUT", "stage/", 503);
    }
    staging.cluster.doris("INSERT INTO {db}.source VALUES (5, 'e')").await;
    let asked = staging.s3.until(|s3| s3.requests().iter().any(|request| request.status == 503));
    tokio::time::timeout(PATIENCE, asked).await.expect("the store is asked");
    drop(first);
    let second = job(&dir).submit(&staging.ctx, HISTORY).await.expect("starts");
    caught_up(&second).await;
    second.stop().await.expect("stops");
    assert_eq!(history(&staging.cluster).await, ["1 +I a", "2 +I b", "3 +I c", "4 +I d", "5 +I e"]);
    let inserts = staging.inserts().len();
    assert_eq!((staging.keys().len(), kept.len()), (inserts, inserts - 1));
}

#[tokio::test]
async fn rows_of_a_recorded_epoch_whose_objects_are_gone_are_read_and_staged_again() {
    let (staging, dir) = source_and_history().await;
    let first = job(&dir).submit(&staging.ctx, HISTORY).await.expect("starts");
    caught_up(&first).await;
    let (server, before) = (staging.cluster.server(), staging.keys());
    // The job dies with its epoch recorded and nothing of it in the table.
    let used = server.faults().applied().len();
    let refused = Action::Status { code: 1105, body: "not now".to_owned() };
    server.faults().push(Fault::new(refused).at(Site::Mysql).when(STATEMENT).always());
    staging.cluster.doris("INSERT INTO {db}.source VALUES (5, 'e')").await;
    tokio::time::timeout(PATIENCE, fault_is_met(&staging.cluster, used)).await.expect("the statement comes");
    drop(first);
    for key in staging.keys().into_iter().filter(|key| !before.contains(key)) {
        staging.s3.remove("lake", &key);
    }
    server.faults().clear();
    let second = job(&dir).submit(&staging.ctx, HISTORY).await.expect("starts");
    caught_up(&second).await;
    second.stop().await.expect("stops");
    assert_eq!(history(&staging.cluster).await, ["1 +I a", "2 +I b", "3 +I c", "4 +I d", "5 +I e"]);
}
