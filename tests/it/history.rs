//! A job that keeps a history of changes, which counts how often each was written.

use std::sync::Arc;
use std::time::Duration;

use datafusion::prelude::SessionContext;
use datafusion_doris::job::SyncJob;
use doris_sandbox::{Action, Fault, Site};
use tempfile::TempDir;
use tokio::sync::Notify;

use crate::harness::Cluster;

const PATIENCE: Duration = Duration::from_secs(120);

/// What the job does.
pub const HISTORY: &str =
    "INSERT INTO history SELECT id, __change_kind, 1 FROM changes WHERE __change_kind IN ('+I', '+U')";

/// A changelog of 60 rows, the history, and where the job keeps its checkpoints.
pub struct History {
    pub cluster: Cluster,
    pub ctx: SessionContext,
    dir: TempDir,
}

impl History {
    /// The history is written with the options `sink`.
    pub async fn new(sink: &[(&str, &str)]) -> Self {
        let cluster = Cluster::sandbox().await;
        cluster.changing_table("source", "id INT NOT NULL, v VARCHAR(20)").await;
        cluster
            .doris(
                "CREATE TABLE {db}.history (id INT NOT NULL, kind VARCHAR(2) NOT NULL, n BIGINT SUM)
                 AGGREGATE KEY(id, kind) DISTRIBUTED BY HASH(id) BUCKETS 2 PROPERTIES ('replication_num' = '1')",
            )
            .await;
        let rows: Vec<String> = (0..60).map(|id| format!("({id}, 'a{id}')")).collect();
        cluster.doris(&format!("INSERT INTO {{db}}.source VALUES {}", rows.join(", "))).await;
        let ctx = session(&cluster, sink).await;
        Self { cluster, ctx, dir: tempfile::tempdir().expect("a directory") }
    }

    /// Starts the job.
    pub async fn start(&self, ctx: &SessionContext) -> SyncJob {
        let job = SyncJob::builder("history").checkpoint_dir(self.dir.path().to_str().expect("text"));
        job.submit(ctx, HISTORY).await.expect("starts")
    }

    pub async fn change_all(&self) {
        let rows: Vec<String> = (100..180).map(|id| format!("({id}, 'b{id}')")).collect();
        self.cluster.doris(&format!("INSERT INTO {{db}}.source VALUES {}", rows.join(", "))).await;
    }

    /// Every row of the source is in the history once, and nothing else is.
    pub async fn assert_once(&self) {
        let expected = self.cluster.scalar("SELECT COUNT(*) FROM {db}.source").await;
        let all = self.cluster.scalar("SELECT COUNT(*) FROM {db}.history").await;
        let written = self.cluster.scalar("SELECT SUM(n) FROM {db}.history").await;
        assert_eq!((all, written), (expected.clone(), expected));
        assert_eq!(self.cluster.server().running_transactions(), 0);
    }

    /// Drops the job while the answer to a request is held back, and starts it again with other options of the sink.
    pub async fn killed_at(self, request: &str, skip: usize, then: &[(&str, &str)]) {
        let first = self.start(&self.ctx).await;
        caught_up(&first).await;
        let (reached, release) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let action = Action::HoldAnswer { done: Arc::clone(&reached), release: Arc::clone(&release) };
        self.cluster.server().faults().push(Fault::new(action).at(Site::Be).when(request).skip(skip));
        self.change_all().await;
        let reached = tokio::time::timeout(PATIENCE, async {
            tokio::select! {
                _ = first.caught_up() => panic!("the request is held"),
                () = reached.notified() => {}
            }
        });
        reached.await.expect("the request comes");
        drop(first);
        release.notify_one();
        self.cluster.server().faults().clear();
        let second = self.start(&session(&self.cluster, then).await).await;
        caught_up(&second).await;
        second.stop().await.expect("stops");
        self.assert_once().await;
    }
}

async fn session(cluster: &Cluster, sink: &[(&str, &str)]) -> SessionContext {
    let ctx = cluster.context();
    let source = [("source.scan.mode", "initial"), ("source.changelog.poll-interval", "1s")];
    cluster.declare(&ctx, "changes", "source", &source).await;
    cluster.declare(&ctx, "history", "history", sink).await;
    ctx
}

/// Waits until the job has mirrored what there is.
pub async fn caught_up(job: &SyncJob) {
    tokio::time::timeout(PATIENCE, job.caught_up()).await.expect("in time").expect("is mirrored");
}
