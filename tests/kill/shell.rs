//! The shell: one process after the other, which runs all jobs until it is killed.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use tokio::sync::watch;

use crate::server::Server;
use crate::{AUDITS, BINARY, BUCKET, DATABASE, PASSWORD, PREFIX};

/// Longest time for each job to write what is left: on a machine that does much else it is a lot.
pub const CATCH_UP: Duration = Duration::from_secs(600);
/// Checkpoints that are kept of each job.
pub const RETAIN: usize = 3;

/// Where a process stands, by what it says.
#[derive(Debug, Clone, Default)]
pub struct Said {
    /// All jobs run.
    pub started: bool,
    /// It has closed its standard error: it has ended.
    pub ended: bool,
    /// Errors, in its words.
    pub errors: Vec<String>,
}

/// A process; it is killed when dropped.
pub struct Life {
    process: Child,
    said: watch::Receiver<Said>,
}

impl Drop for Life {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Life {
    /// SIGKILL; false when it had ended before.
    pub fn kill(&mut self) -> bool {
        let alive = matches!(self.process.try_wait(), Ok(None));
        let _ = self.process.kill();
        let _ = self.process.wait();
        alive
    }

    /// Waits until all jobs run; false when the process ended before.
    pub async fn started(&mut self) -> bool {
        self.said.wait_for(|said| said.started || said.ended).await.is_ok_and(|said| said.started)
    }

    /// Waits until it ends by itself.
    pub async fn ended(&mut self) -> ExitStatus {
        let _ = self.said.wait_for(|said| said.ended).await;
        self.process.wait().expect("a status")
    }

    pub fn said(&self) -> Said {
        self.said.borrow().clone()
    }
}

/// Starts processes.
pub struct Shell {
    dir: PathBuf,
    declarations: String,
    lives: usize,
}

impl Shell {
    pub fn new(dir: &Path, server: &Server, s3: &str) -> Self {
        let declarations = declarations(server, s3, &dir.join("checkpoints"));
        Self { dir: dir.to_path_buf(), declarations, lives: 0 }
    }

    /// Processes so far.
    pub fn lives(&self) -> usize {
        self.lives
    }

    /// A process that runs until it is killed.
    pub fn endless(&mut self) -> Life {
        self.run(|job| format!("\\wait {job}\n"))
    }

    /// A process that ends with success when all changes so far are written.
    pub fn last(&mut self) -> Life {
        self.run(|job| format!("\\catchup {job} {}\n", CATCH_UP.as_secs()))
    }

    /// Runs all jobs, and for each what `end` says.
    fn run(&mut self, end: impl Fn(&str) -> String) -> Life {
        self.lives += 1;
        let script = self.dir.join("jobs.sql");
        let end: String = ["mirror"].iter().chain(&AUDITS).map(|job| end(job)).collect();
        std::fs::write(&script, format!("{}{end}", self.declarations)).expect("a script");
        let mut log = File::create(self.dir.join(format!("shell-{:05}.log", self.lives))).expect("a log");
        let mut process = Command::new(BINARY)
            .arg("-f")
            .arg(&script)
            .env("RUST_LOG", "warn,datafusion_doris=info")
            .env("NO_COLOR", "1")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the shell starts");
        let err = BufReader::new(process.stderr.take().expect("its output"));
        let (sender, said) = watch::channel(Said::default());
        // Ends with the process.
        std::thread::spawn(move || {
            for line in err.lines().map_while(Result::ok) {
                let _ = writeln!(log, "{line}");
                sender.send_if_modified(|said| {
                    let started = line.contains("job `staged` started");
                    said.started |= started;
                    let error = line.starts_with("error") || line.contains(" ERROR ");
                    if error {
                        said.errors.push(line);
                    }
                    started || error
                });
            }
            sender.send_modify(|said| said.ended = true);
        });
        Life { process, said }
    }
}

/// Everything in front of what the script waits for.
fn declarations(server: &Server, s3: &str, checkpoints: &Path) -> String {
    let table = |name: &str, table: &str, more: &[(&str, &str)]| {
        let (fenodes, jdbc_url) = (server.fenodes(), server.jdbc_url());
        let identifier = format!("{DATABASE}.{table}");
        let mut options = vec![
            ("fenodes", fenodes.as_str()),
            ("jdbc-url", &jdbc_url),
            ("table.identifier", &identifier),
            ("username", "root"),
            ("password", PASSWORD),
            ("doris.request.connect.timeout", "2s"),
            ("doris.request.read.timeout", "5s"),
        ];
        options.extend(more);
        let options: Vec<String> = options.iter().map(|(key, value)| format!("'{key}' '{value}'")).collect();
        format!("CREATE EXTERNAL TABLE {name} STORED AS DORIS OPTIONS ({});\n", options.join(", "))
    };
    let source = [
        ("source.scan.mode", "initial"),
        ("source.changelog.poll-interval", "1s"),
        // A backlog becomes several epochs, which follow each other without a pause.
        ("source.changelog.max-window", "2s"),
    ];
    let offsets = format!("{DATABASE}.offsets");
    let mut published = source.to_vec();
    published.extend([("source.changelog.offset-table", offsets.as_str()), ("source.changelog.consumer-id", "mirror")]);
    let mut stamped = source.to_vec();
    stamped.push(("source.changelog.metadata-columns", "tso"));
    let every_change = ("sink.ignore.update-before", "false");
    let batched = [
        every_change,
        ("sink.write-mode", "STREAM_LOAD_BATCH"),
        ("sink.buffer-flush.max-rows", "16"),
        ("sink.parallelism", "2"),
    ];
    let staged = [
        every_change,
        ("sink.write-mode", "TVF"),
        ("sink.s3.endpoint", s3),
        ("sink.s3.region", "us-east-1"),
        ("sink.s3.bucket", BUCKET),
        ("sink.s3.prefix", PREFIX),
        ("sink.s3.access-key", "sandbox-access"),
        ("sink.s3.secret-key", "top-secret"),
        ("sink.s3.clean-up", "true"),
        ("sink.parallelism", "2"),
    ];
    let audit_job = |table: &str| {
        format!(
            "\\job {table} INSERT INTO {table} SELECT id, n, __change_kind, v, __commit_tso FROM stamped_changes;\n"
        )
    };
    [
        format!("SET doris.checkpoint.dir = '{}';\n", checkpoints.display()),
        "SET doris.checkpoint.interval = '100ms';\n".to_string(),
        format!("SET doris.checkpoint.retain = '{RETAIN}';\n"),
        table("changes", "source", &published),
        table("stamped_changes", "source", &stamped),
        table("mirror", "mirror", &[("sink.change-kind-column", "__change_kind"), ("sink.parallelism", "3")]),
        table("audit", "audit", &[every_change]),
        table("batched", "batched", &batched),
        table("staged", "staged", &staged),
        "\\job mirror INSERT INTO mirror SELECT * FROM changes;\n".to_string(),
        AUDITS.map(audit_job).concat(),
    ]
    .concat()
}
