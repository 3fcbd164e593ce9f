//! Connections of scans: how many there are at once, and that a dropped read leaves none.

use std::time::Duration;

use datafusion::physical_expr::expressions::col;
use datafusion::physical_expr::{LexOrdering, PhysicalSortExpr};
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::{ExecutionPlanProperties, collect};
use datafusion::prelude::{SessionConfig, SessionContext};
use doris_sandbox::{FlightConfig, Sandbox};
use futures::StreamExt;

use crate::harness::{Cluster, count, run, try_run};

const PATIENCE: Duration = Duration::from_secs(60);

fn context(partitions: usize) -> SessionContext {
    let ctx = SessionContext::new_with_config(SessionConfig::new().with_target_partitions(partitions));
    datafusion_doris::register(&ctx).expect("registers");
    ctx
}

/// A table of so many tablets, each with rows.
async fn tablets(cluster: &Cluster, tablets: usize, rows: usize) {
    let values: Vec<String> = (0..rows).map(|id| format!("({id})")).collect();
    let model = format!("DUPLICATE KEY(id) DISTRIBUTED BY HASH(id) BUCKETS {tablets}");
    cluster
        .doris(&format!("CREATE TABLE {{db}}.t (id INT) {model}; INSERT INTO {{db}}.t VALUES {}", values.join(", ")))
        .await;
}

/// No stream of a merge gives its second batch before all have given their first.
#[tokio::test]
async fn a_plan_merges_more_streams_than_there_are_connections() {
    let cluster = Cluster::sandbox().await;
    tablets(&cluster, 20, 2_000).await;
    let ctx = context(20);
    cluster.declare(&ctx, "t", "t", &[("doris.request.connect.timeout", "5s")]).await;
    let frame = datafusion_doris::sql(&ctx, "SELECT id FROM t UNION ALL SELECT id FROM t").await.expect("plans");
    let union = frame.create_physical_plan().await.expect("plans");
    assert_eq!(union.output_partitioning().partition_count(), 40, "more than the 32 of source.max-connections");
    let by_id = PhysicalSortExpr::new_default(col("id", &union.schema()).expect("a column"));
    let merge = SortPreservingMergeExec::new(LexOrdering::new([by_id]).expect("an order"), union);
    let rows = collect(std::sync::Arc::new(merge), ctx.task_ctx()).await.expect("all rows");
    assert_eq!(count(&rows), 4_000);
}

/// A cluster, with Flight or without, and a view that is not read to its end in a day.
async fn endless(view: &str, flight: bool) -> (Cluster, SessionContext) {
    let config = FlightConfig { switched_off: !flight, ..FlightConfig::default() };
    let cluster = Cluster::of(Sandbox::builder().flight(config)).await;
    tablets(&cluster, 1, 20_000).await;
    let pairs = "SELECT x.id + y.id AS id FROM {db}.t x CROSS JOIN {db}.t y";
    cluster.doris(&format!("CREATE VIEW {{db}}.v AS SELECT {view} FROM {{db}}.t a CROSS JOIN ({pairs}) b")).await;
    let ctx = context(1);
    cluster.declare(&ctx, "v", "v", &[]).await;
    (cluster, ctx)
}

async fn no_connection_is_left(cluster: &Cluster) {
    tokio::time::timeout(PATIENCE, cluster.server().until(|server| server.open_mysql_connections() == 0))
        .await
        .expect("no connection is left");
}

#[tokio::test]
async fn rows_that_nobody_wants_any_more_are_not_read_over_the_mysql_protocol() {
    let (cluster, ctx) = endless("a.id + b.id AS id", false).await;
    assert_eq!(count(&run(&ctx, "SELECT * FROM v LIMIT 1").await), 1);
    no_connection_is_left(&cluster).await;
    let frame = datafusion_doris::sql(&ctx, "SELECT * FROM v").await.expect("plans");
    let mut stream = frame.execute_stream().await.expect("runs");
    stream.next().await.expect("a batch").expect("rows");
    drop(stream);
    no_connection_is_left(&cluster).await;
}

#[tokio::test]
async fn a_statement_without_rows_yet_is_killed_when_its_read_is_dropped() {
    let (cluster, ctx) = endless("max(a.id * b.id) AS n", false).await;
    let read = tokio::spawn(async move { try_run(&ctx, "SELECT n FROM v").await });
    let runs = || async {
        let processes = cluster.doris("SHOW PROCESSLIST").await;
        processes.into_iter().flatten().flatten().any(|cell| cell.contains("`n`"))
    };
    while !runs().await {
        assert!(!read.is_finished(), "the statement has no end");
    }
    read.abort();
    read.await.expect_err("aborted");
    no_connection_is_left(&cluster).await;
}

#[tokio::test]
async fn rows_that_nobody_wants_any_more_leave_no_flight_session() {
    let (cluster, ctx) = endless("a.id + b.id AS id", true).await;
    let no_session_is_left = || async {
        tokio::time::timeout(
            PATIENCE,
            cluster.server().until(|server| server.open_flight_tokens() == 0 && server.unfetched_results() == 0),
        )
        .await
        .expect("no session is left");
        assert!(
            !cluster.doris("SHOW PROCESSLIST").await.into_iter().flatten().flatten().any(|cell| cell.contains("`v`"))
        );
    };
    assert_eq!(count(&run(&ctx, "SELECT * FROM v LIMIT 1").await), 1);
    let frame = datafusion_doris::sql(&ctx, "SELECT * FROM v").await.expect("plans");
    let mut stream = frame.execute_stream().await.expect("runs");
    stream.next().await.expect("a batch").expect("rows");
    drop((stream, ctx));
    no_session_is_left().await;
}
