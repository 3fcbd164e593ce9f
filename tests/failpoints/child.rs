//! The process that runs the jobs: told by lines on its input, answering by lines on its output.

use std::io::{BufRead, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use datafusion::prelude::SessionContext;
use datafusion_doris::failpoints::{fail, injected};
use datafusion_doris::job::SyncJob;
use serde_json::{Value, json};

/// The variable that holds the [`Life`] and makes the binary a child.
pub const VARIABLE: &str = "FAILPOINTS_CHILD";

/// Times that a job may end before that is told to be wrong.
const MOST_ENDS: usize = 3;

/// What a process is to do.
#[derive(Debug, Clone)]
pub struct Life {
    /// Statements that declare the tables.
    pub declare: Vec<String>,
    /// Where checkpoints are kept.
    pub dir: String,
    /// Point, what happens there (`crash`, `passing`, `permanent`), and at which time; from the start on.
    pub fault: Option<(String, String, usize)>,
}

impl Life {
    pub fn to_text(&self) -> String {
        json!({"declare": self.declare, "dir": self.dir, "fault": self.fault}).to_string()
    }

    fn parse(text: &str) -> Self {
        let value: Value = serde_json::from_str(text).expect("a life");
        let text = |value: &Value| value.as_str().expect("text").to_string();
        let fault = &value["fault"];
        Self {
            declare: value["declare"].as_array().expect("a list").iter().map(text).collect(),
            dir: text(&value["dir"]),
            fault: (!fault.is_null()).then(|| {
                let hit = fault[2].as_u64().expect("a number");
                (text(&fault[0]), text(&fault[1]), usize::try_from(hit).expect("small"))
            }),
        }
    }
}

/// Writes a line at once.
fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    out.write_all(format!("{line}\n").as_bytes()).expect("the parent listens");
    out.flush().expect("the parent listens");
}

fn arm(point: &str, what: &str, hit: usize) {
    if what != "crash" {
        let before = if hit > 1 { format!("{}*off->", hit - 1) } else { String::new() };
        fail::cfg(point, &format!("{before}1*return({what})->off")).expect("actions");
        return;
    }
    let (hits, name) = (AtomicUsize::new(0), point.to_string());
    let crash = move || {
        if hits.fetch_add(1, Ordering::SeqCst) + 1 == hit {
            say(&format!("dying at {name}"));
            // No drop code, no handler, no flush: as a kill.
            std::process::abort();
        }
    };
    fail::cfg_callback(point, crash).expect("a callback");
}

/// A job that is started again when it ends with an error.
struct Job {
    name: &'static str,
    sql: &'static str,
    dir: String,
    job: SyncJob,
    ends: Vec<String>,
}

impl Job {
    async fn start(context: &SessionContext, name: &'static str, sql: &'static str, dir: &str) -> Self {
        let job = submit(context, name, sql, dir).await;
        Self { name, sql, dir: dir.to_string(), job, ends: vec![] }
    }

    /// Does `work` until it succeeds.
    async fn until_done<T>(
        &mut self,
        context: &SessionContext,
        work: impl AsyncFn(&SyncJob) -> datafusion_doris::Result<T>,
    ) {
        while let Err(error) = work(&self.job).await {
            eprintln!("job {} ended: {error}", self.name);
            self.ends.push(error.to_string());
            assert!(self.ends.len() <= MOST_ENDS, "it ends again and again: {:?}", self.ends);
            self.job = submit(context, self.name, self.sql, &self.dir).await;
        }
    }
}

async fn submit(context: &SessionContext, name: &str, sql: &str, dir: &str) -> SyncJob {
    let job = SyncJob::builder(name).checkpoint_dir(dir).checkpoint_interval(Duration::from_millis(200)).retain(2);
    job.submit(context, sql).await.expect("the job is planned")
}

/// Runs the jobs of a life.
pub fn run(text: &str) {
    let life = Life::parse(text);
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let context = datafusion_doris::session_context();
        for ddl in &life.declare {
            datafusion_doris::sql(&context, ddl).await.expect("plans").collect().await.expect("is declared");
        }
        if let Some((point, what, hit)) = &life.fault {
            arm(point, what, *hit);
        }
        let history = "INSERT INTO history SELECT id, v, __change_kind FROM history_changes";
        let mirror = "INSERT INTO mirror SELECT * FROM mirror_changes";
        let mut history = Job::start(&context, "history", history, &life.dir).await;
        let mut mirror = Job::start(&context, "mirror", mirror, &life.dir).await;
        loop {
            let line = tokio::task::spawn_blocking(|| {
                let mut line = String::new();
                std::io::stdin().lock().read_line(&mut line).map(|_| line)
            });
            let line = line.await.expect("read").expect("read");
            let words: Vec<&str> = line.split_whitespace().collect();
            match words.as_slice() {
                ["arm", point, what, hit] => {
                    arm(point, what, hit.parse().expect("a number"));
                    say("armed");
                }
                ["catch"] => {
                    let caught_up = async |job: &SyncJob| job.caught_up().await;
                    tokio::join!(history.until_done(&context, caught_up), mirror.until_done(&context, caught_up));
                    say(&format!("caught {}", injected()));
                }
                ["stop", name] => {
                    let stop = async |job: &SyncJob| job.stop_with_savepoint(name).await;
                    tokio::join!(history.until_done(&context, stop), mirror.until_done(&context, stop));
                    say(&format!("stopped {} {}", injected(), history.ends.len() + mirror.ends.len()));
                    return;
                }
                // The parent is gone.
                _ => return,
            }
        }
    });
}
