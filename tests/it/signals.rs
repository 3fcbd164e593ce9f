//! SIGTERM on the shell as a process of its own, while it runs a continuous INSERT.
//!
//! The process is this test binary, started again to run one ignored "test" that is the shell's `main`.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use datafusion_doris_cli::args::Args;
use doris_sandbox::{Action, Fault, Site};
use tokio::sync::{Notify, watch};

use crate::harness::Cluster;

const PATIENCE: Duration = Duration::from_secs(120);
const SCRIPT: &str = "DATAFUSION_DORIS_TEST_SCRIPT";

#[test]
#[ignore = "the shell as a process, started by the tests of this module"]
fn shell_process() {
    let script = std::env::var(SCRIPT).expect("started by a test of this module");
    let args = Args::try_parse_from(["datafusion-doris-cli", "-f", &script]).expect("arguments");
    std::process::exit(i32::from(datafusion_doris_cli::process(args)));
}

/// A shell that runs, and what it has written to standard error.
struct Process {
    child: Child,
    stderr: watch::Receiver<String>,
}

impl Drop for Process {
    fn drop(&mut self) {
        // Gone already, unless its test failed.
        let _ = self.child.kill();
    }
}

impl Process {
    fn start(script: &Path) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("this binary"));
        command.args(["--ignored", "--exact", "--nocapture", "signals::shell_process"]).env(SCRIPT, script);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("starts");
        let pipe = child.stderr.take().expect("a pipe");
        let (text, stderr) = watch::channel(String::new());
        std::thread::spawn(move || {
            for line in BufReader::new(pipe).lines().map_while(Result::ok) {
                text.send_modify(|text| text.push_str(&(line + "\n")));
            }
        });
        Self { child, stderr }
    }

    fn terminate(&self) {
        let sent = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status().expect("kill runs");
        assert!(sent.success());
    }

    /// Waits until it has written `text`.
    async fn tells(&mut self, text: &str) {
        let told = self.stderr.wait_for(|stderr| stderr.contains(text));
        tokio::time::timeout(PATIENCE, told).await.expect("it is told in time").expect("it is told");
    }

    /// Exit code and standard error.
    async fn ended(mut self) -> (Option<i32>, String) {
        // The end of the pipe is the end of the process.
        let ended = async { while self.stderr.changed().await.is_ok() {} };
        tokio::time::timeout(PATIENCE, ended).await.expect("ends");
        let code = self.child.wait().expect("its status").code();
        (code, self.stderr.borrow().clone())
    }
}

struct Setup {
    cluster: Cluster,
    dir: tempfile::TempDir,
}

impl Setup {
    async fn new() -> Self {
        let cluster = Cluster::sandbox().await;
        cluster.changing_table("source", "id INT NOT NULL, v VARCHAR(20)").await;
        cluster.duplicate_table("history", "id INT NOT NULL, v VARCHAR(20), kind VARCHAR(2)", "").await;
        cluster.doris("INSERT INTO {db}.source VALUES (1, 'a'), (2, 'b')").await;
        Self { cluster, dir: tempfile::tempdir().expect("a directory") }
    }

    /// A script that mirrors until it is stopped: as a statement, or as a background job that is waited for.
    fn script(&self, stop_timeout: &str, background: bool) -> std::path::PathBuf {
        let options = [("source.scan.mode", "initial"), ("source.changelog.poll-interval", "1s")];
        let insert = "INSERT INTO history SELECT id, v, __change_kind FROM changes;\n";
        let run = if background { format!("\\job history {insert}\\wait history\n") } else { insert.to_string() };
        let sql = format!(
            "{};\n{};\nSET doris.checkpoint.dir = '{}';\nSET doris.job.name = 'history';\n\
             SET doris.job.stop_timeout = '{stop_timeout}';\n{run}",
            self.cluster.ddl("changes", "source", &options),
            self.cluster.ddl("history", "history", &[]),
            self.dir.path().display()
        );
        let path = self.dir.path().join(format!("script-{background}-{stop_timeout}.sql"));
        std::fs::write(&path, sql).expect("a script");
        path
    }

    async fn rows(&self) -> String {
        self.cluster.scalar("SELECT COUNT(*) FROM {db}.history").await
    }

    async fn until_rows(&self, rows: &str) {
        let written = async {
            while self.rows().await != rows {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, written).await.expect("the rows are written");
    }

    /// Holds the answer to the first load; gives what tells that it is held, and what lets it go.
    fn hold_load(&self) -> (Arc<Notify>, Arc<Notify>) {
        let (done, release) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let hold = Action::HoldAnswer { done: Arc::clone(&done), release: Arc::clone(&release) };
        self.cluster.server().faults().push(Fault::new(hold).at(Site::Be).when("_stream_load "));
        (done, release)
    }

    /// Starts the shell again, and ends it once everything is written.
    async fn goes_on_to(&self, rows: &str) {
        let child = Process::start(&self.script("30s", false));
        self.until_rows(rows).await;
        child.terminate();
        let (code, err) = child.ended().await;
        assert_eq!(code, Some(143), "{err}");
        assert_eq!(self.rows().await, rows, "{err}");
    }
}

async fn an_epoch_is_finished(background: bool) {
    let setup = Setup::new().await;
    let (held, release) = setup.hold_load();
    let mut child = Process::start(&setup.script("60s", background));
    tokio::time::timeout(PATIENCE, held.notified()).await.expect("a load is sent");
    child.terminate();
    // Only once it says that it waits for the epoch may the epoch go on.
    child.tells(if background { "cancelled" } else { "stopping after the current epoch" }).await;
    release.notify_one();
    let (code, err) = child.ended().await;
    assert_eq!(code, Some(143), "{err}");
    assert!(err.contains("epoch finished and committed, 2 rows written"), "{err}");
    assert_eq!(setup.rows().await, "2");
    setup.cluster.doris("INSERT INTO {db}.source VALUES (3, 'c')").await;
    setup.goes_on_to("3").await;
}

#[tokio::test]
async fn sigterm_lets_the_epoch_of_a_statement_finish() {
    an_epoch_is_finished(false).await;
}

#[tokio::test]
async fn sigterm_lets_the_epoch_of_a_background_job_finish() {
    an_epoch_is_finished(true).await;
}

#[tokio::test]
async fn an_epoch_that_outlasts_the_deadline_is_aborted_and_read_again() {
    let setup = Setup::new().await;
    let (held, release) = setup.hold_load();
    let child = Process::start(&setup.script("100ms", false));
    tokio::time::timeout(PATIENCE, held.notified()).await.expect("a load is sent");
    child.terminate();
    let (code, err) = child.ended().await;
    assert_eq!(code, Some(143), "{err}");
    assert!(err.contains("aborted after 0.1 s; the next start reads its last epoch again"), "{err}");
    assert_eq!(setup.cluster.server().running_transactions(), 0, "the load was aborted before the process ended");
    release.notify_one();
    assert_eq!(setup.rows().await, "0");
    setup.goes_on_to("2").await;
}

#[tokio::test]
async fn a_second_signal_aborts_at_once() {
    let setup = Setup::new().await;
    let (held, release) = setup.hold_load();
    let mut child = Process::start(&setup.script("600s", false));
    tokio::time::timeout(PATIENCE, held.notified()).await.expect("a load is sent");
    child.terminate();
    child.tells("again to abandon it").await;
    child.terminate();
    let (code, err) = child.ended().await;
    assert_eq!(code, Some(143), "{err}");
    assert!(err.contains("aborted at the second signal"), "{err}");
    release.notify_one();
    setup.goes_on_to("2").await;
}
