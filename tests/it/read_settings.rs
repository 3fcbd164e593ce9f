//! Options of reads that change how Doris is asked, each with what the server sees of it.

use std::sync::Arc;

use datafusion::physical_plan::ExecutionPlanProperties;
use datafusion::prelude::{SessionConfig, SessionContext};
use doris_sandbox::{Action, Fault, FlightConfig, Sandbox, Site};
use tokio::sync::Notify;

use crate::harness::{Cluster, count, lines, refusal, run};

/// A cluster with a table `t` of 8 tablets and 100 rows.
async fn cluster(flight: FlightConfig) -> Cluster {
    let cluster = Cluster::of(Sandbox::builder().flight(flight)).await;
    let values: Vec<String> = (1..=100).map(|id| format!("({id})")).collect();
    cluster
        .doris(&format!(
            "CREATE TABLE {{db}}.t (id INT) DUPLICATE KEY(id) DISTRIBUTED BY HASH(id) BUCKETS 8;
             INSERT INTO {{db}}.t VALUES {}",
            values.join(", ")
        ))
        .await;
    cluster
}

fn context(partitions: usize) -> SessionContext {
    let ctx = SessionContext::new_with_config(SessionConfig::new().with_target_partitions(partitions));
    datafusion_doris::register(&ctx).expect("registers");
    ctx
}

/// Read by tablets: Doris adds nothing up.
const ROWS: &str = "SELECT id FROM t";

/// Locations name the public host of the BEs, which the options may map further.
#[tokio::test]
async fn rows_come_from_the_public_host_of_a_be() {
    let public = |host: &str| FlightConfig { public_host: Some(host.to_string()), ..FlightConfig::default() };
    let local = cluster(public("localhost")).await;
    let ctx = context(2);
    local.declare(&ctx, "t", "t", &[]).await;
    assert_eq!(count(&run(&ctx, ROWS).await), 100);

    let mapped = cluster(public("be.public.invalid")).await;
    let map = format!("be.public.invalid=127.0.0.1:{}", mapped.server().addresses().be_flight.port());
    mapped.declare(&ctx, "mapped", "t", &[("doris.flight.host-map", &map)]).await;
    assert_eq!(lines(&run(&ctx, "SELECT sum(id) FROM mapped").await), ["5050"]);
    let unmapped = [("doris.request.retries", "1"), ("doris.request.connect.timeout", "5s")];
    mapped.declare(&ctx, "unmapped", "t", &unmapped).await;
    let message = refusal(&ctx, "SELECT sum(id) FROM unmapped").await;
    assert!(message.contains("be.public.invalid"), "{message}");
}

#[tokio::test]
async fn a_statement_reads_at_least_so_many_tablets() {
    let cluster = cluster(FlightConfig::default()).await;
    for (size, partitions) in [("1", 8), ("3", 3), ("4", 2), ("100", 1)] {
        let ctx = context(8);
        cluster.declare(&ctx, "t", "t", &[("doris.request.tablet.size", size)]).await;
        let frame = datafusion_doris::sql(&ctx, "SELECT id FROM t").await.expect("plans");
        let plan = frame.create_physical_plan().await.expect("plans");
        assert_eq!(plan.output_partitioning().partition_count(), partitions, "{size}");
        assert_eq!(count(&run(&ctx, ROWS).await), 100);
    }
}

#[tokio::test]
async fn metadata_requests_are_repeated_as_often_as_told() {
    let cluster = cluster(FlightConfig::default()).await;
    let lost = |times| Fault::new(Action::DropAnswer).at(Site::Fe).when("_query_plan").times(times);
    for (retries, works) in [("1", false), ("2", false), ("3", true)] {
        let ctx = context(2);
        cluster.declare(&ctx, "t", "t", &[("doris.request.retries", retries)]).await;
        cluster.server().faults().push(lost(2));
        match works {
            true => assert_eq!(count(&run(&ctx, ROWS).await), 100),
            false => {
                let message = refusal(&ctx, ROWS).await;
                assert!(message.contains("planning a scan"), "{message}");
            }
        }
        cluster.server().faults().clear();
    }
}

#[tokio::test]
async fn a_metadata_request_that_is_silent_for_too_long_is_an_error() {
    let cluster = cluster(FlightConfig::default()).await;
    let ctx = context(2);
    let options = [("doris.request.read.timeout", "1s"), ("doris.request.retries", "1")];
    cluster.declare(&ctx, "t", "t", &options).await;
    let (done, release) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    cluster.server().faults().push(Fault::new(Action::HoldAnswer { done, release }).at(Site::Fe).when("_query_plan"));
    let message = refusal(&ctx, ROWS).await;
    assert!(message.contains("planning a scan"), "{message}");
}

#[tokio::test]
async fn the_longest_run_of_a_query_is_set_in_its_session() {
    let cluster = cluster(FlightConfig::default()).await;
    let ctx = context(1);
    cluster.declare(&ctx, "flight", "t", &[("doris.request.query.timeout", "77s")]).await;
    let options = [("doris.request.query.timeout.s", "78"), ("source.use-flight-sql", "false")];
    cluster.declare(&ctx, "mysql", "t", &options).await;
    for (table, site, seconds) in [("flight", Site::FeFlight, 77), ("mysql", Site::Mysql, 78)] {
        assert_eq!(lines(&run(&ctx, &format!("SELECT sum(id) FROM {table}")).await), ["5050"]);
        let set = format!("SET query_timeout = {seconds}");
        assert_eq!(cluster.server().requests().matching(site, &set).len(), 1, "{set}");
    }
}
