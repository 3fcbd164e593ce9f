//! One run: a sandbox, the lives of the jobs beside it, and what must hold at the end.

use std::fs;
use std::path::Path;
use std::time::Duration;

use datafusion_doris::client::DorisConnection;
use datafusion_doris::options::Secret;
use doris_sandbox::Sandbox;
use doris_sandbox::s3_endpoint::{S3Endpoint, S3Settings};
use serde_json::Value;
use tempfile::TempDir;

use crate::child::Life;
use crate::matrix::{Case, Fault, Mode, Phase, Then};
use crate::model::{Model, without};
use crate::process::{Answer, Process};

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(90);
/// How long a transaction may stay open after the end of the jobs.
const ALLOWED: Duration = Duration::from_secs(10);
/// Rounds of changes after which a point that was not reached is told.
const MOST_ROUNDS: usize = 5;
const TABLES: &str = "
    CREATE DATABASE fp;
    CREATE TABLE fp.source (id INT NOT NULL, v VARCHAR(400)) UNIQUE KEY(id) DISTRIBUTED BY HASH(id) BUCKETS {buckets}
    PROPERTIES ('replication_num' = '1', 'enable_unique_key_merge_on_write' = 'true',
                'changelog.enable' = 'true', 'changelog.need_historical_value' = 'true');
    CREATE TABLE fp.mirror (id INT NOT NULL, v VARCHAR(400)) UNIQUE KEY(id) DISTRIBUTED BY HASH(id) BUCKETS 2
    PROPERTIES ('replication_num' = '1', 'enable_unique_key_merge_on_write' = 'true');
    CREATE TABLE fp.history (id INT NOT NULL, v VARCHAR(400), kind VARCHAR(2)) DUPLICATE KEY(id)
    DISTRIBUTED BY HASH(id) BUCKETS 2 PROPERTIES ('replication_num' = '1');
    CREATE TABLE fp.offsets (consumer_id VARCHAR(256) NOT NULL, offset_timestamp DATETIME NOT NULL,
    update_time DATETIME(3) NOT NULL) UNIQUE KEY(consumer_id) DISTRIBUTED BY HASH(consumer_id) BUCKETS 1
    PROPERTIES ('replication_num' = '1', 'enable_unique_key_merge_on_write' = 'true')";

type Result<T> = std::result::Result<T, String>;

/// What a right run has seen.
#[derive(Debug, Clone, Copy, Default)]
pub struct Seen {
    /// A process died while a part of a snapshot was written, and the rest was not.
    pub within_snapshot: bool,
}

struct Run {
    case: Case,
    server: Sandbox,
    s3: S3Endpoint,
    dir: TempDir,
    model: Model,
    /// Faults of the lives to come.
    faults: Vec<(String, String, usize)>,
    process: Option<Process>,
    /// The fault of the running process.
    armed: Option<(String, String, usize)>,
    rounds: usize,
    /// Errors that the running process has met.
    injected: usize,
    seen: Seen,
}

/// Runs a case.
///
/// # Errors
/// What is wrong.
pub async fn run(case: Case) -> Result<Seen> {
    let server = Sandbox::builder().user("root").password("s3cret").start().await.map_err(|e| e.to_string())?;
    let s3 = S3Endpoint::start(S3Settings::default()).await.map_err(|e| e.to_string())?;
    let dir = tempfile::tempdir().map_err(|e| e.to_string())?;
    let what = match case.fault {
        Fault::Crash => "crash",
        Fault::Passing => "passing",
        Fault::Permanent => "permanent",
    };
    let mut faults = vec![(case.row.point.to_string(), what.to_string(), case.hit)];
    if let Some(point) = case.row.after {
        faults.insert(0, (point.to_string(), "crash".to_string(), 1));
    }
    // A batch is cut into chunks as it is.
    let long = case.row.point == "body-chunk" && case.phase == Phase::Changelog && case.mode != Mode::Batch;
    let model = Model::new(long);
    let mut run = Run {
        case,
        server,
        s3,
        dir,
        model,
        faults,
        process: None,
        armed: None,
        rounds: 0,
        injected: 0,
        seen: Seen::default(),
    };
    let result = run.go().await;
    result.map(|()| run.seen).map_err(|reason| {
        let errors = fs::read_to_string(run.errors()).unwrap_or_default();
        let kept: Vec<&str> = errors.lines().rev().take(12).collect();
        let kept: Vec<&str> = kept.into_iter().rev().collect();
        format!("{reason}\n      {}", kept.join("\n      "))
    })
}

impl Run {
    fn errors(&self) -> std::path::PathBuf {
        self.dir.path().join("stderr")
    }

    fn checkpoints(&self) -> String {
        self.dir.path().join("checkpoints").display().to_string()
    }

    /// Sends statements to the server.
    async fn doris(&self, sql: &str) -> Result<Vec<String>> {
        let said = |error: datafusion_doris::Error| format!("{}…: {error}", sql.chars().take(100).collect::<String>());
        let connection = DorisConnection::connect(&self.server.jdbc_url(), "root", &Secret::new("s3cret")).await;
        let outputs = connection.map_err(said)?.execute(sql).await.map_err(said)?;
        let rows = outputs.into_iter().flat_map(|output| output.rows);
        Ok(rows.map(|row| row.into_iter().map(Option::unwrap_or_default).collect::<Vec<_>>().join(" ")).collect())
    }

    fn declare(&self) -> Vec<String> {
        let ddl = |name: &str, table: &str, options: &[(&str, &str)]| {
            let (fenodes, jdbc) = (self.server.fenodes(), self.server.jdbc_url());
            let (table, endpoint) = (format!("fp.{table}"), self.s3.url());
            let base = [
                ("fenodes", fenodes.as_str()),
                ("jdbc-url", jdbc.as_str()),
                ("table.identifier", table.as_str()),
                ("username", "root"),
                ("password", "s3cret"),
            ];
            let staged = [("sink.s3.endpoint", endpoint.as_str())];
            let staged = if self.case.mode == Mode::Tvf { &staged[..] } else { &[] };
            let list: Vec<String> =
                base.iter().chain(staged).chain(options).map(|(key, value)| format!("'{key}' '{value}'")).collect();
            format!("CREATE EXTERNAL TABLE {name} STORED AS DORIS OPTIONS ({})", list.join(", "))
        };
        let source = |consumer| {
            [
                ("source.scan.mode", "initial"),
                ("source.changelog.poll-interval", "1s"),
                ("source.changelog.offset-table", "fp.offsets"),
                ("source.changelog.consumer-id", consumer),
            ]
        };
        let options = |mode: Mode, more: &[(&'static str, &'static str)]| [mode.options(), more].concat();
        vec![
            ddl("history_changes", "source", &source("history")),
            ddl("mirror_changes", "source", &source("mirror")),
            ddl("history", "history", &options(self.case.mode, &[])),
            ddl("mirror", "mirror", &options(self.case.mode, &[("sink.change-kind-column", "__change_kind")])),
        ]
    }

    async fn go(&mut self) -> Result<()> {
        // Of a snapshot, the first epoch reads four tablets and the second the rest.
        let buckets = if self.case.phase == Phase::Snapshot { "9" } else { "2" };
        self.doris(&TABLES.replace("{buckets}", buckets)).await?;
        let fill = self.model.fill();
        self.doris(&fill).await?;
        // The snapshot is of a second that is over: the rows must be there before it.
        self.server.advance_clock(Duration::from_secs(2));
        if self.case.phase == Phase::Changelog {
            self.start(false)?;
            self.must_live("catch").await?;
            let (point, what, hit) = self.faults.remove(0);
            self.must_live(&format!("arm {point} {what} {hit}")).await?;
            self.armed = Some((point, what, hit));
        } else {
            self.start(true)?;
        }
        if self.case.phase == Phase::Snapshot && self.case.row.point.starts_with("savepoint") {
            // In the middle of the snapshot.
            self.stop("early").await?;
            self.start(true)?;
        }
        self.catch_up().await?;
        let at_stop = self.case.row.point.starts_with("savepoint");
        while self.rounds < 1 || (self.is_open() && !at_stop && self.rounds < MOST_ROUNDS) {
            self.change().await?;
            self.catch_up().await?;
        }
        self.stop("end").await?;
        if self.is_open() {
            return Err(format!("the point was not reached within {} rounds", self.rounds));
        }
        self.check().await
    }

    /// A fault is still to come.
    fn is_open(&self) -> bool {
        !self.faults.is_empty() || (self.armed.is_some() && self.injected == 0)
    }

    /// Starts a process, with the next fault if it is to be armed from the start on.
    fn start(&mut self, armed: bool) -> Result<()> {
        let fault = if armed && !self.faults.is_empty() { Some(self.faults.remove(0)) } else { None };
        let life = Life { declare: self.declare(), dir: self.checkpoints(), fault: fault.clone() };
        self.process = Some(Process::start(&life, &self.errors())?);
        self.injected = 0;
        self.armed = fault;
        Ok(())
    }

    async fn ask(&mut self, line: &str) -> Result<Answer> {
        let process = self.process.as_mut().ok_or("no process")?;
        let answer = process.ask(line, PATIENCE).await?;
        if matches!(answer, Answer::Died) {
            let dies = self.armed.take().is_some_and(|(_, what, _)| what == "crash");
            if !dies {
                return Err("it died without being told to".to_string());
            }
            self.seen.within_snapshot |= self.within_snapshot();
        }
        Ok(answer)
    }

    async fn must_live(&mut self, line: &str) -> Result<()> {
        match self.ask(line).await? {
            Answer::Line(_) => Ok(()),
            Answer::Died => Err(format!("it died at '{line}'")),
        }
    }

    /// While nobody runs the jobs the source changes; then they are started again.
    async fn live_again(&mut self) -> Result<()> {
        self.change().await?;
        self.start(true)
    }

    async fn change(&mut self) -> Result<()> {
        self.rounds += 1;
        for sql in self.model.change() {
            self.doris(&sql).await?;
        }
        Ok(())
    }

    async fn catch_up(&mut self) -> Result<()> {
        loop {
            match self.ask("catch").await? {
                Answer::Died => self.live_again().await?,
                Answer::Line(said) => {
                    let injected = said.trim().strip_prefix("caught ").and_then(|number| number.parse().ok());
                    self.injected = injected.ok_or_else(|| format!("odd answer '{said}'"))?;
                    return Ok(());
                }
            }
        }
    }

    /// Stops the jobs, keeping savepoints.
    async fn stop(&mut self, savepoint: &str) -> Result<()> {
        let said = loop {
            match self.ask(&format!("stop {savepoint}")).await? {
                Answer::Line(said) => break said,
                Answer::Died => {
                    self.live_again().await?;
                    if savepoint == "end" {
                        self.catch_up().await?;
                    }
                }
            }
        };
        if let Some(process) = self.process.take() {
            process.ended()?;
        }
        let figures: Vec<usize> = said.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        let [injected, ends] = figures[..] else { return Err(format!("odd answer '{said}'")) };
        let is_error = self.armed.as_ref().is_some_and(|(_, what, _)| what != "crash");
        let expected = match (is_error, self.case.then()) {
            (true, Some(Then::Ends)) => (1, 1),
            (true, _) => (1, 0),
            (false, _) => (0, 0),
        };
        if is_error {
            self.armed = None;
        }
        if (injected, ends) != expected {
            return Err(format!("errors injected and jobs ended: {:?}, expected {expected:?}", (injected, ends)));
        }
        Ok(())
    }

    /// True when the newest record of a job stands in the middle of a snapshot.
    fn within_snapshot(&self) -> bool {
        ["history", "mirror"].iter().any(|job| {
            let Ok(entries) = fs::read_dir(Path::new(&self.checkpoints()).join(job)) else { return false };
            let names = entries.filter_map(|entry| Some(entry.ok()?.path()));
            let record = |path: &std::path::PathBuf| path.extension().is_some_and(|extension| extension == "json");
            let newest = names.filter(record).max().and_then(|path| fs::read_to_string(path).ok());
            let value: Option<Value> = newest.and_then(|text| serde_json::from_str(&text).ok());
            value.is_some_and(|value| {
                let position = &value["sources"][0]["position"];
                position["done_tablets"].as_array().is_some_and(|done| !done.is_empty())
            })
        })
    }

    async fn check(&self) -> Result<()> {
        let source = sorted(self.doris("SELECT id, v FROM fp.source").await?);
        if source != self.model.table() {
            return Err("the source is not as the model says".to_string());
        }
        let mirror = sorted(self.doris("SELECT id, v FROM fp.mirror").await?);
        if mirror != source {
            let (lost, more) = (without(&source, &mirror), without(&mirror, &source));
            return Err(format!("the mirror differs from the source: without {lost:?}, with {more:?}"));
        }
        let history = sorted(self.doris("SELECT id, kind, v FROM fp.history").await?);
        self.model.check_history(&history).map_err(|reason| format!("history: {reason}"))?;
        let positions = self.doris("SELECT consumer_id FROM fp.offsets ORDER BY consumer_id").await?;
        if positions != ["history", "mirror"] {
            return Err(format!("positions are published of {positions:?}"));
        }
        for job in ["history", "mirror"] {
            let path = Path::new(&self.checkpoints()).join(job).join("savepoint-end.json");
            let kept = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
            serde_json::from_str::<Value>(&kept).map_err(|e| format!("{}: {e}", path.display()))?;
        }
        let objects = self.s3.keys("stage");
        // Whoever dies between the commit and the clean-up leaves them to a life-cycle rule.
        let may_stay = self.case.fault == Fault::Crash && self.case.row.point == "committed"
            || self.case.row.after == Some("committed");
        if !may_stay && !objects.is_empty() {
            return Err(format!("staged objects are left: {objects:?}"));
        }
        let closed = self.server.until(|server| server.running_transactions() == 0);
        let open = tokio::time::timeout(ALLOWED, closed).await;
        open.map_err(|_| format!("{} transactions are open after {ALLOWED:?}", self.server.running_transactions()))
    }
}

fn sorted(mut rows: Vec<String>) -> Vec<String> {
    rows.sort_unstable();
    rows
}
