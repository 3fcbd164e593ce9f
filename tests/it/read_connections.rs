//! Connections of scans: how many there are at once.

use datafusion::physical_expr::expressions::col;
use datafusion::physical_expr::{LexOrdering, PhysicalSortExpr};
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::{ExecutionPlanProperties, collect};
use datafusion::prelude::{SessionConfig, SessionContext};

use crate::harness::{Cluster, count};

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
