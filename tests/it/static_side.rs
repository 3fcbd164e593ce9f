//! Static tables that a job joins its changes with: read anew, or kept for a while.

use std::time::Duration;

use datafusion::prelude::SessionContext;
use datafusion_doris::job::{SyncJob, SyncJobBuilder};
use doris_sandbox::Site;

use crate::harness::{Cluster, run, text};

const INITIAL: [(&str, &str); 2] = [("source.scan.mode", "initial"), ("source.changelog.poll-interval", "1s")];
const SINK: [(&str, &str); 1] = [("sink.change-kind-column", "__change_kind")];
const PATIENCE: Duration = Duration::from_secs(120);
const JOIN: &str = "INSERT INTO mirror SELECT c.id, d.name, c.__change_kind FROM changes c JOIN dim d ON c.k = d.k";

async fn tables() -> (Cluster, SessionContext) {
    let cluster = Cluster::sandbox().await;
    cluster.changing_table("source", "id INT NOT NULL, k INT").await;
    cluster.unique_table("mirror", "id INT NOT NULL, name VARCHAR(20)", "").await;
    cluster
        .doris(
            "CREATE TABLE {db}.dim (k INT NOT NULL, name VARCHAR(20)) DUPLICATE KEY(k) PARTITION BY RANGE(k) (
             PARTITION p0 VALUES [('0'), ('10'))) DISTRIBUTED BY HASH(k) BUCKETS 2 PROPERTIES ('replication_num' = '1');
             INSERT INTO {db}.dim VALUES (1, 'old');
             INSERT INTO {db}.source VALUES (1, 1)",
        )
        .await;
    let ctx = cluster.context();
    cluster.declare(&ctx, "changes", "source", &INITIAL).await;
    cluster.declare(&ctx, "mirror", "mirror", &SINK).await;
    cluster.declare(&ctx, "dim", "dim", &[]).await;
    (cluster, ctx)
}

fn job() -> SyncJobBuilder {
    SyncJob::builder("joined")
}

/// Inserts a row into the source, and waits until it is mirrored.
async fn mirrored(cluster: &Cluster, job: &SyncJob, id: i32, k: i32) -> String {
    cluster.doris(&format!("INSERT INTO {{db}}.source VALUES ({id}, {k})")).await;
    tokio::time::timeout(PATIENCE, job.caught_up()).await.expect("in time").expect("caught up");
    cluster.scalar(&format!("SELECT MAX(name) FROM {{db}}.mirror WHERE id = {id}")).await
}

/// How often the rows of the static table were asked for.
fn reads(cluster: &Cluster) -> usize {
    let asked = cluster.server().requests().matching(Site::FeFlight, "`dim`");
    asked.iter().filter(|request| request.method == "GetFlightInfo").count()
}

#[tokio::test]
async fn a_static_table_is_read_anew_in_each_epoch_with_the_partitions_it_has_by_then() {
    let (cluster, ctx) = tables().await;
    let job = job().submit(&ctx, JOIN).await.expect("starts");
    assert_eq!(mirrored(&cluster, &job, 2, 1).await, "old");
    let before = reads(&cluster);
    cluster.doris("ALTER TABLE {db}.dim ADD PARTITION p1 VALUES [('10'), ('20'))").await;
    cluster.doris("INSERT INTO {db}.dim VALUES (11, 'new')").await;
    assert_eq!(mirrored(&cluster, &job, 3, 11).await, "new");
    assert!(reads(&cluster) > before);
    job.stop().await.expect("stops");
}

#[tokio::test]
async fn a_static_table_is_kept_for_its_time_to_live() {
    let (cluster, ctx) = tables().await;
    let job = job().static_ttl(Duration::from_secs(3600)).submit(&ctx, JOIN).await.expect("starts");
    assert_eq!(mirrored(&cluster, &job, 2, 1).await, "old");
    cluster.doris("INSERT INTO {db}.dim VALUES (2, 'unseen')").await;
    assert_eq!(mirrored(&cluster, &job, 3, 1).await, "old");
    cluster.doris("INSERT INTO {db}.source VALUES (4, 2)").await;
    tokio::time::timeout(PATIENCE, job.caught_up()).await.expect("in time").expect("caught up");
    assert_eq!(cluster.scalar("SELECT COUNT(*) FROM {db}.mirror WHERE id = 4").await, "0", "its rows are as they were");
    assert_eq!(reads(&cluster), 1);
    job.stop().await.expect("stops");

    run(&ctx, "SET doris.job.static_ttl = '1h'").await;
    let shown = text(&run(&ctx, &format!("EXPLAIN {JOIN}")).await);
    assert!(shown.contains("StaticSideExec: kept across epochs, ttl=3600s"), "{shown}");
}
