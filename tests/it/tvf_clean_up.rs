//! What is left in the object store: nothing where `sink.s3.clean-up` is on, whoever wins or dies.

use std::sync::Arc;

use doris_sandbox::{Action, Fault, Site};
use tokio::sync::Notify;

use crate::harness::{lines, run};
use crate::tvf::{PATIENCE, Staging, fault_is_met};

const STATEMENT: &str = "with label";
const CLEAN_UP: (&str, &str) = ("sink.s3.clean-up", "true");
const INSERT: &str = "INSERT INTO t SELECT value, 'x' FROM generate_series(1, 100)";

/// Drops an INSERT while its statement is held at the server; gives what lets it go on.
async fn dropped_in_the_statement(staging: &Staging) -> Arc<Notify> {
    let signal = Arc::new(Notify::new());
    let wait = Action::Wait(Arc::clone(&signal));
    staging.cluster.server().faults().push(Fault::new(wait).at(Site::Mysql).when(STATEMENT));
    let frame = datafusion_doris::sql(&staging.ctx, INSERT).await.expect("plans");
    let running = frame.collect();
    tokio::pin!(running);
    tokio::select! {
        result = &mut running => panic!("ended: {result:?}"),
        met = tokio::time::timeout(PATIENCE, fault_is_met(&staging.cluster, 0)) => met.expect("the statement comes"),
    }
    signal
}

#[tokio::test]
async fn objects_of_a_dropped_insert_go_with_its_end_whoever_wins() {
    let staging = Staging::duplicate(&[CLEAN_UP, ("sink.parallelism", "2")]).await;
    run(&staging.ctx, "SET datafusion.execution.batch_size = 10").await;
    let signal = dropped_in_the_statement(&staging).await;
    assert_eq!(staging.keys().len(), 2, "the statement may still read them");
    signal.notify_one();
    let gone = staging.s3.until(|s3| s3.keys("lake").is_empty());
    tokio::time::timeout(PATIENCE, gone).await.expect("the objects are removed");
    let rows = staging.rows().await;
    assert!(rows == "0" || rows == "100", "all or nothing: {rows}");
    assert_eq!(staging.inserts().len(), 1);
}

#[tokio::test]
async fn objects_go_after_an_answer_that_was_lost() {
    let staging = Staging::duplicate(&[CLEAN_UP]).await;
    staging.cluster.server().faults().push(Fault::new(Action::DropAnswer).at(Site::Mysql).when(STATEMENT));
    assert_eq!(lines(&run(&staging.ctx, INSERT).await), ["100"]);
    assert_eq!((staging.rows().await.as_str(), staging.keys()), ("100", vec![]));
}

#[tokio::test]
async fn objects_with_odd_characters_in_their_keys_are_removed() {
    let staging = Staging::duplicate(&[
        CLEAN_UP,
        ("sink.s3.prefix", "stage/dt=2026-01-01/run+1:2/a b/ü"),
        ("sink.parallelism", "3"),
    ])
    .await;
    run(&staging.ctx, "SET datafusion.execution.batch_size = 10").await;
    // Others have theirs beside them.
    staging.s3.put("lake", "stage/dt=2026-01-01/run+1:2/a b/ü/other/x.json", "{}");
    assert_eq!(lines(&run(&staging.ctx, INSERT).await), ["100"]);
    assert_eq!(staging.rows().await, "100");
    assert_eq!(staging.keys(), ["stage/dt=2026-01-01/run+1:2/a b/ü/other/x.json"]);
    assert!(staging.inserts()[0].contains("s3://lake/stage/dt=2026-01-01/run+1:2/a b/ü/"), "{:?}", staging.inserts());
}

/// The rows are in the table: an INSERT does not fail for what is left, and tells it in the log.
#[tokio::test]
async fn a_store_that_does_not_remove_fails_no_insert() {
    let staging = Staging::duplicate(&[CLEAN_UP, ("sink.max-retries", "0")]).await;
    // Objects are removed by one request to the bucket.
    staging.s3.refuse_next("POST", "", 403);
    assert_eq!(lines(&run(&staging.ctx, INSERT).await), ["100"]);
    assert_eq!((staging.rows().await.as_str(), staging.keys().len()), ("100", 1));
}
