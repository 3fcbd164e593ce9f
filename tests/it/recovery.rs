//! Lost answers, cut bodies, dead servers: nothing is lost, nothing is doubled, and the error says what to do.

use std::sync::Arc;
use std::time::Duration;

use datafusion::prelude::SessionContext;
use doris_sandbox::{Action, Fault, Site};
use futures::StreamExt;
use tokio::sync::Notify;

use crate::harness::{Cluster, lines, refusal, run, try_run};

const PATIENCE: Duration = Duration::from_secs(60);

async fn table() -> (Cluster, SessionContext) {
    let cluster = Cluster::sandbox().await;
    cluster.doris("CREATE TABLE {db}.t (id INT, s STRING) DUPLICATE KEY(id) DISTRIBUTED BY HASH(id) BUCKETS 2").await;
    let ctx = cluster.context();
    cluster.declare(&ctx, "t", "t", &[]).await;
    (cluster, ctx)
}

async fn rows(cluster: &Cluster) -> String {
    cluster.scalar("SELECT COUNT(*) FROM {db}.t").await
}

const INSERT: &str = "INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, 'c')";

#[tokio::test]
async fn a_lost_answer_to_the_load_is_resolved_by_its_label() {
    let (cluster, ctx) = table().await;
    cluster.server().faults().push(Fault::new(Action::DropAnswer).at(Site::Be).when("_stream_load "));
    let faults = cluster.server().faults().clone();
    let result = try_run(&ctx, INSERT).await;
    assert_eq!(faults.armed(), 0, "the fault was used");
    let expected = if result.is_ok() { "3" } else { "0" };
    assert_eq!(rows(&cluster).await, expected, "{result:?}");
    assert_eq!(lines(&run(&ctx, INSERT).await), ["3"]);
}

#[tokio::test]
async fn a_lost_answer_to_the_commit_neither_loses_nor_doubles() {
    let (cluster, ctx) = table().await;
    cluster.server().faults().push(Fault::new(Action::DropAnswer).at(Site::Be).when("_stream_load_2pc"));
    assert_eq!(lines(&run(&ctx, INSERT).await), ["3"]);
    assert_eq!(cluster.server().faults().armed(), 0, "the fault was used");
    assert_eq!(rows(&cluster).await, "3");
}

#[tokio::test]
async fn a_commit_answered_with_a_server_error_is_tried_again() {
    let (cluster, ctx) = table().await;
    let error = Action::Status { code: 503, body: "busy".to_string() };
    cluster.server().faults().push(Fault::new(error).at(Site::Be).when("_stream_load_2pc").times(2));
    assert_eq!(lines(&run(&ctx, INSERT).await), ["3"]);
    assert_eq!(cluster.server().faults().armed(), 0, "the fault was used");
    assert_eq!(rows(&cluster).await, "3");
}

const MANY: &str = "INSERT INTO plain SELECT value, repeat('x', 100) FROM generate_series(1, 100000)";

#[tokio::test]
async fn a_body_cut_early_is_sent_again_under_the_same_label() {
    let (cluster, ctx) = table().await;
    // The whole body is kept: how much of it the network takes before it tells of the cut is a matter of time.
    let options = [("sink.properties.compress_type", ""), ("sink.buffer-count", "32")];
    cluster.declare(&ctx, "plain", "t", &options).await;
    cluster.server().faults().push(Fault::new(Action::CutAfterBytes(1000)).at(Site::Be).when("_stream_load "));
    assert_eq!(lines(&run(&ctx, MANY).await), ["100000"]);
    assert_eq!(cluster.server().faults().armed(), 0, "the fault was used");
    assert_eq!(rows(&cluster).await, "100000");
    let loads = cluster.server().requests().matching(Site::Be, "_stream_load");
    let labels: std::collections::HashSet<_> = loads.iter().filter_map(|load| load.header("label")).collect();
    assert_eq!(labels.len(), 1, "{labels:?}");
}

#[tokio::test]
async fn a_body_that_is_always_cut_leaves_nothing_visible_and_no_open_transaction() {
    let (cluster, ctx) = table().await;
    cluster.declare(&ctx, "plain", "t", &[("sink.properties.compress_type", "")]).await;
    for bytes in [1000, 8_000_000] {
        cluster.server().faults().clear();
        cluster
            .server()
            .faults()
            .push(Fault::new(Action::CutAfterBytes(bytes)).at(Site::Be).when("_stream_load ").always());
        refusal(&ctx, MANY).await;
        assert_eq!(rows(&cluster).await, "0");
        let closed = cluster.server().until(|server| server.running_transactions() == 0);
        tokio::time::timeout(PATIENCE, closed).await.expect("no transaction stays open");
    }
}

#[tokio::test]
async fn dropping_an_insert_aborts_its_load() {
    let (cluster, ctx) = table().await;
    let seen = Arc::new(Notify::new());
    let frame = datafusion_doris::sql(&ctx, "INSERT INTO t SELECT value, 'x' FROM generate_series(1, 1000000000)")
        .await
        .expect("plans");
    let server = cluster.server();
    {
        let running = frame.collect();
        tokio::pin!(running);
        let signal = Arc::clone(&seen);
        let load_is_open = async move {
            server.until(|server| server.running_transactions() > 0).await;
            signal.notify_one();
        };
        tokio::select! {
            result = &mut running => panic!("ended: {result:?}"),
            opened = tokio::time::timeout(PATIENCE, load_is_open) => opened.expect("a load is opened"),
        }
    }
    tokio::time::timeout(PATIENCE, server.until(|server| server.running_transactions() == 0))
        .await
        .expect("no transaction stays open");
    assert_eq!(rows(&cluster).await, "0");
}

#[tokio::test]
async fn dropping_an_insert_that_waits_for_the_answer_of_its_load_aborts_it() {
    let (cluster, ctx) = table().await;
    let (done, release) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let hold = Action::HoldAnswer { done: Arc::clone(&done), release: Arc::clone(&release) };
    cluster.server().faults().push(Fault::new(hold).at(Site::Be).when("_stream_load "));
    let frame = datafusion_doris::sql(&ctx, INSERT).await.expect("plans");
    {
        let running = frame.collect();
        tokio::pin!(running);
        tokio::select! {
            result = &mut running => panic!("ended: {result:?}"),
            held = tokio::time::timeout(PATIENCE, done.notified()) => held.expect("the load is pre-committed"),
        }
    }
    let closed = cluster.server().until(|server| server.running_transactions() == 0);
    tokio::time::timeout(PATIENCE, closed).await.expect("no transaction stays open");
    assert_eq!(rows(&cluster).await, "0");
    release.notify_one();
}

#[tokio::test]
async fn the_first_fe_may_be_down() {
    let (cluster, ctx) = table().await;
    let nodes = format!("127.0.0.1:1,{}", cluster.fenodes());
    cluster.declare(&ctx, "failover", "t", &[("fenodes", &nodes)]).await;
    assert_eq!(lines(&run(&ctx, "INSERT INTO failover VALUES (1, 'a')").await), ["1"]);
    assert_eq!(lines(&run(&ctx, "SELECT * FROM failover").await), ["1 | a"]);
}

#[tokio::test]
async fn an_fe_that_is_not_ready_for_a_load_is_asked_again() {
    let (cluster, ctx) = table().await;
    let starting = Action::Status { code: 503, body: "starting".to_string() };
    cluster.server().faults().push(Fault::new(starting).at(Site::Fe).when("/t/_stream_load").times(2));
    assert_eq!(lines(&run(&ctx, INSERT).await), ["3"]);
    assert_eq!(cluster.server().faults().armed(), 0, "the fault was used");
    assert_eq!(rows(&cluster).await, "3");
}

#[tokio::test]
async fn credentials_go_to_no_host_outside_the_redirect_rule() {
    let (cluster, ctx) = table().await;
    for location in ["gopher://x/", "ftp://root@elsewhere.invalid/api/x/_stream_load", "not a location", ""] {
        cluster
            .server()
            .faults()
            .push(Fault::new(Action::Redirect(location.to_string())).at(Site::Fe).when("/t/_stream_load").always());
        let message = refusal(&ctx, INSERT).await;
        assert!(
            message.contains("redirect") || message.contains("Location") || message.contains("location"),
            "{message}"
        );
        assert!(!message.contains("s3cret"), "{message}");
        cluster.server().faults().clear();
    }
    assert_eq!(rows(&cluster).await, "0");
}

// C021
#[tokio::test]
async fn an_endpoint_at_0_0_0_0_is_read_from_the_connected_host() {
    let (cluster, ctx) = table().await;
    run(&ctx, "INSERT INTO t VALUES (1, 'a'), (2, 'b')").await;
    let port = cluster.server().addresses().be_flight.port();
    cluster.server().faults().push(
        Fault::new(Action::FlightLocation(format!("grpc+tcp://0.0.0.0:{port}")))
            .at(Site::FeFlight)
            .when("select")
            .always(),
    );
    assert_eq!(lines(&run(&ctx, "SELECT * FROM t ORDER BY id").await), ["1 | a", "2 | b"]);
}

// C024
#[tokio::test]
async fn every_data_call_carries_the_token_of_the_login() {
    let (cluster, ctx) = table().await;
    run(&ctx, "INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, 'c'), (4, 'd')").await;
    cluster.server().faults().push(Fault::new(Action::RequireBearer).at(Site::BeFlight).always());
    assert_eq!(lines(&run(&ctx, "SELECT * FROM t ORDER BY id").await).len(), 4);
}

#[tokio::test]
async fn a_flight_error_names_the_host_and_what_the_server_said() {
    let (cluster, ctx) = table().await;
    let broken = Action::Status { code: 13, body: "errCode = 2, detailMessage = tablet is on fire".to_string() };
    cluster.server().faults().push(Fault::new(broken).at(Site::FeFlight).when("select").always());
    let message = refusal(&ctx, "SELECT * FROM t").await;
    assert!(message.contains("tablet is on fire"), "{message}");
    assert!(message.contains("127.0.0.1"), "{message}");
}

#[tokio::test]
async fn dropping_a_scan_closes_its_flight_sessions() {
    let (cluster, ctx) = table().await;
    run(&ctx, "INSERT INTO t SELECT value, repeat('x', 200) FROM generate_series(1, 50000)").await;
    let mut stream =
        datafusion_doris::sql(&ctx, "SELECT * FROM t").await.expect("plans").execute_stream().await.expect("runs");
    stream.next().await.expect("a batch").expect("rows");
    drop(stream);
    tokio::time::timeout(PATIENCE, cluster.server().until(|server| server.open_flight_tokens() == 0))
        .await
        .expect("all sessions are closed");
}
