//! What happened and what is done then (docs/outcomes.md), seen from outside.

use std::sync::Arc;

use datafusion::prelude::SessionContext;
use doris_sandbox::{Action, Fault, Site};
use tokio::sync::Notify;

use crate::harness::{Cluster, refusal, try_run};
use crate::write::insert;

const INSERT: &str = "INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, 'c')";

async fn table(options: &[(&str, &str)]) -> (Cluster, SessionContext) {
    let cluster = Cluster::sandbox().await;
    cluster.duplicate_table("t", "id INT, s STRING", "").await;
    let ctx = cluster.context();
    cluster.declare(&ctx, "t", "t", options).await;
    (cluster, ctx)
}

async fn rows(cluster: &Cluster) -> String {
    cluster.scalar("SELECT COUNT(*) FROM {db}.t").await
}

fn at_load(action: Action) -> Fault {
    Fault::new(action).at(Site::Be).when("t/_stream_load ")
}

const TOO_MANY_VERSIONS: &str = "[E-235]failed to init rowset builder. version count: 2001, exceed limit: 2000";

#[tokio::test]
async fn too_many_versions_are_waited_for_and_then_told_with_advice() {
    let (cluster, ctx) = table(&[("sink.max-retries", "1")]).await;
    let refused = || at_load(Action::FailCommit(TOO_MANY_VERSIONS.into()));
    cluster.server().faults().push(refused());
    assert_eq!(insert(&ctx, INSERT).await, 3);
    assert_eq!(cluster.server().faults().armed(), 0, "the fault was met");

    cluster.server().faults().push(refused().always());
    cluster.server().requests().clear();
    let message = refusal(&ctx, INSERT).await;
    let loads = cluster.server().requests().matching(Site::Be, "t/_stream_load");
    assert_eq!(loads.len(), 2);
    let label = loads[0].header("label").expect("a label");
    for part in [label, "version count: 2001", "write fewer and larger ones", "refused 2 times in "] {
        assert!(message.contains(part), "{part} is not in: {message}");
    }
    assert_eq!((rows(&cluster).await.as_str(), cluster.server().running_transactions()), ("3", 0));
}

#[tokio::test]
async fn a_redirect_to_a_dead_backend_is_asked_for_again() {
    let (cluster, ctx) = table(&[]).await;
    // Nothing listens there once the listener is gone.
    let dead = std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("its address");
    let location = format!("http://{dead}/api/{}/t/_stream_load", cluster.database());
    cluster.server().faults().push(Fault::new(Action::Redirect(location)).at(Site::Fe).when("t/_stream_load"));
    assert_eq!(insert(&ctx, INSERT).await, 3);
    assert_eq!(cluster.server().faults().armed(), 0, "the fault was met");
    assert_eq!((rows(&cluster).await.as_str(), cluster.server().running_transactions()), ("3", 0));
}

/// The FE that sent the load to a BE is gone when the BE needs it.
#[tokio::test]
async fn an_fe_that_is_gone_behind_its_redirect_neither_loses_nor_doubles() {
    let (cluster, ctx) = table(&[]).await;
    let frontend = cluster.server().frontend(0);
    let reached = Arc::new(Notify::new());
    cluster.server().faults().push(at_load(Action::Wait(Arc::clone(&reached))));
    let outage = async {
        let arrived =
            |server: &doris_sandbox::Sandbox| !server.requests().matching(Site::Be, "t/_stream_load").is_empty();
        cluster.server().until(arrived).await;
        frontend.stop().await;
        reached.notify_one();
        // The BE has noticed: it has answered, or waits for a master.
        frontend.restart().await.expect("starts again");
    };
    let (outcome, ()) = tokio::join!(try_run(&ctx, INSERT), outage);
    let expected = if outcome.is_ok() { "3" } else { "0" };
    assert_eq!(rows(&cluster).await, expected, "{outcome:?}");
    cluster.server().until(|server| server.running_transactions() == 0).await;
}

#[tokio::test]
async fn a_label_that_an_earlier_attempt_holds_is_freed() {
    let (cluster, ctx) = table(&[]).await;
    let taken =
        "{\"TxnId\": -1, \"Label\": \"l\", \"Status\": \"Label Already Exists\", \"ExistingJobStatus\": \"RUNNING\",
        \"Message\": \"[LABEL_ALREADY_EXISTS]TStatus: errCode = 2, detailMessage = Label [l] has already been used, \
        relate to txn [7]\"}";
    // Whatever the answer tells of the load that holds it: its label is asked.
    for (loads, job) in (1..).zip(["RUNNING", "PRECOMMITTED", "", "SOMETHING"]) {
        let taken = taken.replace("RUNNING", job);
        cluster.server().faults().push(at_load(Action::Status { code: 200, body: taken }));
        assert_eq!(insert(&ctx, INSERT).await, 3, "{job}");
        assert_eq!(cluster.server().faults().armed(), 0, "the fault was met");
        assert_eq!(
            (rows(&cluster).await, cluster.server().running_transactions()),
            ((3 * loads).to_string(), 0),
            "{job}"
        );
    }

    let finished = taken.replace("RUNNING", "FINISHED");
    cluster.server().faults().push(at_load(Action::Status { code: 200, body: finished }));
    let message = refusal(&ctx, INSERT).await;
    assert!(message.contains("the label is taken by transaction 7, which is finished"), "{message}");
    assert_eq!(rows(&cluster).await, "12");
}

#[tokio::test]
async fn rows_that_are_committed_and_not_visible_are_waited_for_on_request() {
    for two_phase in ["true", "false"] {
        let asked = [("sink.enable-2pc", two_phase), ("sink.visible-wait-timeout", "10min")];
        let (cluster, ctx) = table(&asked).await;
        let published = Arc::new(Notify::new());
        let site = if two_phase == "true" { "_stream_load_2pc commit" } else { "t/_stream_load " };
        let held = Fault::new(Action::HoldPublish(Arc::clone(&published))).at(Site::Be).when(site);
        cluster.server().faults().push(held);
        let release = async {
            let asked =
                |server: &doris_sandbox::Sandbox| !server.requests().matching(Site::Fe, "get_load_state").is_empty();
            cluster.server().until(asked).await;
            assert_eq!(rows(&cluster).await, "0");
            published.notify_one();
        };
        let (written, ()) = tokio::join!(insert(&ctx, INSERT), release);
        assert_eq!((written, rows(&cluster).await.as_str()), (3, "3"), "2pc {two_phase}");
    }
}

#[tokio::test]
async fn rows_that_stay_invisible_for_too_long_are_a_success_all_the_same() {
    let (cluster, ctx) = table(&[("sink.visible-wait-timeout", "1ms")]).await;
    let never = Arc::new(Notify::new());
    let held = Fault::new(Action::HoldPublish(never)).at(Site::Be).when("_stream_load_2pc commit");
    cluster.server().faults().push(held);
    assert_eq!(insert(&ctx, INSERT).await, 3);
    assert_eq!(rows(&cluster).await, "0");
}
