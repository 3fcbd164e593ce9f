//! Jobs seen and changed from outside by the shell's `jobs` command, over the sandbox.

use std::sync::Arc;
use std::time::Duration;

use datafusion::prelude::SessionContext;
use datafusion_doris::job::{SyncJob, SyncJobBuilder};
use doris_sandbox::{Action, Fault, Site};
use tempfile::TempDir;
use tokio::sync::Notify;

use crate::cli::{Outcome, shell};
use crate::harness::Cluster;

const PATIENCE: Duration = Duration::from_secs(120);
const HISTORY: &str = "INSERT INTO history SELECT id, v, __change_kind FROM changes";

/// A source with a changelog, a history of its changes that would show every repetition, and a checkpoint directory.
struct Setup {
    cluster: Cluster,
    ctx: SessionContext,
    dir: TempDir,
}

impl Setup {
    async fn new() -> Self {
        let cluster = Cluster::sandbox().await;
        cluster.changing_table("source", "id INT NOT NULL, v VARCHAR(20)").await;
        cluster.duplicate_table("history", "id INT NOT NULL, v VARCHAR(20), kind VARCHAR(2)", "").await;
        cluster.doris("INSERT INTO {db}.source VALUES (1, 'a'), (2, 'b')").await;
        let ctx = cluster.context();
        let options = [("source.scan.mode", "initial"), ("source.changelog.poll-interval", "1s")];
        cluster.declare(&ctx, "changes", "source", &options).await;
        cluster.declare(&ctx, "history", "history", &[]).await;
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::write(dir.path().join("password"), "s3cret\n").expect("a file");
        Self { cluster, ctx, dir }
    }

    fn job(&self) -> SyncJobBuilder {
        SyncJob::builder("history").checkpoint_dir(self.dir.path().to_str().expect("text"))
    }

    /// Starts the job and lets it write everything.
    async fn caught_up(&self) -> SyncJob {
        let job = self.job().submit(&self.ctx, HISTORY).await.expect("starts");
        tokio::time::timeout(PATIENCE, job.caught_up()).await.expect("in time").expect("is mirrored");
        job
    }

    async fn run_once(&self) {
        self.caught_up().await.stop().await.expect("stops");
    }

    /// `jobs` with the server named or not.
    async fn jobs(&self, server: bool, args: &[&str]) -> Outcome {
        let (dir, password) = (self.dir.path(), self.dir.path().join("password"));
        let mut all = vec!["jobs", "--dir", dir.to_str().expect("text"), "--format", "csv"];
        if server {
            all.extend(["--fenodes", self.cluster.fenodes(), "--password-file", password.to_str().expect("text")]);
        }
        all.extend(args);
        shell(&all).await
    }

    /// `id kind` of every change, sorted.
    async fn history(&self) -> Vec<String> {
        let rows = self.cluster.doris("SELECT id, kind FROM {db}.history ORDER BY id, kind").await;
        rows.into_iter()
            .map(|row| row.into_iter().map(Option::unwrap_or_default).collect::<Vec<_>>().join(" "))
            .collect()
    }

    /// Drops a running job while a request of its next epoch is not answered: `_stream_load ` leaves a load in no
    /// checkpoint, `_stream_load_2pc` one that is recorded. The server does not hear of the drop.
    async fn killed_at(&self, request: &str) {
        let job = self.caught_up().await;
        let faults = self.cluster.server().faults();
        let (reached, release) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let hold = Action::HoldAnswer { done: Arc::clone(&reached), release: Arc::clone(&release) };
        faults.push(Fault::new(hold).at(Site::Be).when(request));
        self.cluster.doris("INSERT INTO {db}.source VALUES (3, 'c')").await;
        tokio::time::timeout(PATIENCE, async {
            tokio::select! {
                _ = job.caught_up() => panic!("the request is held"),
                () = reached.notified() => {}
            }
        })
        .await
        .expect("the request comes");
        drop(job);
        release.notify_one();
        faults.clear();
    }
}

#[tokio::test]
async fn jobs_are_listed_and_shown() {
    let setup = Setup::new().await;
    setup.caught_up().await.stop_with_savepoint("two").await.expect("stops");
    let list = setup.jobs(false, &["list"]).await;
    assert_eq!(list.code, 0, "{}", list.err);
    let line = list.out.lines().nth(1).expect("a job");
    assert!(line.starts_with("history,committed,1,") && line.ends_with(",1"), "{}", list.out);
    assert!(line.contains(&format!("{}: changes before 20", setup.cluster.table("source"))), "{line}");

    let show = setup.jobs(true, &["show", "history"]).await;
    assert_eq!((show.code, show.err.as_str()), (0, ""), "{}", show.out);
    assert!(show.out.contains(",server\n") && show.out.contains(",epoch,1,1,"), "{}", show.out);
    assert!(show.out.contains(",2,1,true\n"), "two rows, one load, done: {}", show.out);
    assert!(show.out.contains("\ntwo,20") && show.out.contains("sink table,"), "{}", show.out);
    let alone = setup.jobs(false, &["show", "history", "-q", "--format", "json"]).await;
    assert_eq!((alone.code, alone.err.as_str()), (0, ""));
    assert!(alone.out.starts_with("[{\"source\":\"") && alone.out.contains("\"clock\":\"local\""), "{}", alone.out);
    assert!(!format!("{}{}{}", list.out, show.out, alone.out).contains("s3cret"));
}

#[tokio::test]
async fn unknown_names_and_wrong_arguments_have_their_exit_codes() {
    let setup = Setup::new().await;
    setup.run_once().await;
    for args in [&["show", "other"][..], &["drop", "other"], &["reset", "other", "--to-savepoint", "s"]] {
        let outcome = setup.jobs(false, args).await;
        assert_eq!(outcome.code, 1, "{args:?}");
        assert!(
            outcome.err.contains("no job named `other`") && outcome.err.contains("there are history"),
            "{}",
            outcome.err
        );
    }
    for (args, part) in [
        (&["--to-timestamp", "yesterday", "--time-zone", "UTC"][..], "yyyy-MM-dd HH:mm:ss"),
        (&["--to-timestamp", "2026-01-01 00:00:00"], "--time-zone"),
        (&["--to-timestamp", "2026-01-01 00:00:00", "--time-zone", "Mars/Base"], "Mars/Base"),
    ] {
        let outcome = setup.jobs(false, &[&["reset", "history"], args].concat()).await;
        assert_eq!(outcome.code, 2, "{args:?}: {}", outcome.err);
        assert!(outcome.err.contains(part), "{}", outcome.err);
    }
    let future = ["reset", "history", "--to-timestamp", "9000-01-01 00:00:00", "--time-zone", "UTC"];
    let outcome = setup.jobs(false, &future).await;
    assert!(outcome.code == 1 && outcome.err.contains("the future"), "{}", outcome.err);
    let outcome = shell(&["jobs", "list"]).await;
    assert!(outcome.code == 2 && outcome.err.contains("--dir"), "{}", outcome.err);
    let outcome = shell(&["jobs", "--dir", "/nowhere/at/all", "list"]).await;
    assert!(outcome.code == 1 && outcome.err.contains("/nowhere/at/all"), "{}", outcome.err);
}

#[tokio::test]
async fn a_reset_to_a_savepoint_writes_what_came_since_again() {
    let setup = Setup::new().await;
    setup.caught_up().await.stop_with_savepoint("two").await.expect("stops");
    setup.cluster.doris("INSERT INTO {db}.source VALUES (3, 'c')").await;
    setup.run_once().await;
    let outcome = setup.jobs(false, &["reset", "history", "--to-savepoint", "two"]).await;
    assert_eq!(outcome.code, 0, "{}", outcome.err);
    assert!(outcome.out.contains("are written again"), "{}", outcome.out);
    setup.run_once().await;
    assert_eq!(setup.history().await, ["1 +I", "2 +I", "3 +I", "3 +I"]);
}

#[tokio::test]
async fn a_reset_to_an_instant_fences_the_job_that_runs() {
    let setup = Setup::new().await;
    let instant = setup.cluster.next_second().await;
    let job = setup.caught_up().await;
    setup.cluster.doris("INSERT INTO {db}.source VALUES (3, 'c')").await;
    tokio::time::timeout(PATIENCE, job.caught_up()).await.expect("in time").expect("is mirrored");
    let outcome = setup.jobs(true, &["reset", "history", "--to-timestamp", &instant]).await;
    assert_eq!(outcome.code, 0, "{}", outcome.err);
    setup.cluster.doris("INSERT INTO {db}.source VALUES (4, 'd')").await;
    let ended = tokio::time::timeout(PATIENCE, job.wait()).await.expect("in time");
    let message = ended.expect_err("it is fenced").to_string();
    assert!(message.contains("was reset to") && message.contains("generation 1"), "{message}");
    setup.run_once().await;
    assert_eq!(setup.history().await, ["1 +I", "2 +I", "3 +I", "3 +I", "4 +I"]);
}

#[tokio::test]
async fn a_drop_commits_what_is_recorded() {
    let setup = Setup::new().await;
    let faults = setup.cluster.server().faults();
    // The commit never reaches the server: the load stays pre-committed.
    setup.killed_before_its_commit().await;
    let shown = setup.jobs(true, &["show", "history"]).await;
    assert!(shown.out.contains("PRECOMMITTED,the next start commits it"), "{}{}", shown.out, shown.err);
    let alone = setup.jobs(false, &["drop", "history"]).await;
    assert!(alone.code == 1 && alone.err.contains("name the server"), "{}", alone.err);
    assert_eq!(setup.history().await.len(), 2);
    faults.clear();
    let outcome = setup.jobs(true, &["drop", "history"]).await;
    assert_eq!(outcome.code, 0, "{}", outcome.err);
    assert!(outcome.err.contains("recorded, committed: "), "{}", outcome.err);
    assert_eq!(setup.history().await, ["1 +I", "2 +I", "3 +I"]);
    assert_eq!(setup.cluster.server().running_transactions(), 0);
    assert_eq!(setup.jobs(false, &["list"]).await.out.lines().count(), 1, "no job is left");
    setup.run_once().await;
    assert_eq!(setup.history().await.len(), 6, "begun anew");
}

impl Setup {
    /// Drops a running job whose commits are refused: its last epoch is recorded, and pre-committed.
    async fn killed_before_its_commit(&self) {
        let job = self.caught_up().await;
        let faults = self.cluster.server().faults();
        let refused = Action::Status { code: 503, body: "busy".to_string() };
        faults.push(Fault::new(refused).when("_stream_load_2pc").always());
        self.cluster.doris("INSERT INTO {db}.source VALUES (3, 'c')").await;
        let open = async {
            while job.status().run.open_labels.is_empty() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, open).await.expect("an epoch is recorded");
        drop(job);
    }
}

#[tokio::test]
async fn a_load_in_no_checkpoint_does_not_become_visible() {
    let setup = Setup::new().await;
    setup.killed_at("_stream_load ").await;
    let outcome = setup.jobs(true, &["drop", "history"]).await;
    assert_eq!(outcome.code, 0, "{}", outcome.err);
    assert_eq!(setup.cluster.server().running_transactions(), 0);
    assert_eq!(setup.history().await.len(), 2);
}

#[tokio::test]
async fn a_checkpoint_of_a_newer_program_is_shown_as_such_and_only_dropped_by_force() {
    let setup = Setup::new().await;
    setup.run_once().await;
    let newer = setup.dir.path().join("history/checkpoint-000000000099.json");
    std::fs::write(newer, r#"{"version": 7, "generation": 4}"#).expect("a record");
    let list = setup.jobs(false, &["list"]).await;
    assert!(list.out.contains("format version 7"), "{}", list.out);
    let timestamp = ["reset", "history", "--to-timestamp", "2026-01-01 00:00:00"];
    for args in [&timestamp[..], &["drop", "history"]] {
        let outcome = setup.jobs(true, args).await;
        assert!(outcome.code == 1 && outcome.err.contains("format version 7"), "{args:?}: {}", outcome.err);
    }
    let outcome = setup.jobs(false, &["drop", "history", "--force"]).await;
    assert_eq!(outcome.code, 0, "{}", outcome.err);
    assert!(outcome.err.contains("left open"), "{}", outcome.err);
}
