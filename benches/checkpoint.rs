//! What checkpoints cost a sync job, and what an idle job costs.
//!
//! A process of its own serves a table with a backlog of changes, some seconds of them. This process mirrors them into a
//! table that is new each time, second by second: in turns with a checkpoint for each and with none. Then it measures its
//! own CPU time while a job with checkpoints every second waits for changes that do not come.
//!
//! `cargo bench --bench checkpoint`; `CHECKPOINT_ROWS` (changes of each second), `CHECKPOINT_SECONDS`, `CHECKPOINT_RUNS`
//! and `CHECKPOINT_IDLE_SECONDS` change the amounts. It fails when a bar is missed.

use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use datafusion::prelude::SessionContext;
use datafusion_doris::client::DorisConnection;
use datafusion_doris::job::{JobState, SyncJob};
use datafusion_doris::options::Secret;
use doris_sandbox::Sandbox;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// Argument that makes this program the server.
const SERVE: &str = "serve-sandbox";
/// Changes of each second of the backlog.
const ROWS: u64 = 250_000;
/// Seconds of the backlog.
const SECONDS: u64 = 10;
/// Times that each way is measured.
const RUNS: u64 = 5;
/// Seconds that the idle job is watched for.
const IDLE_SECONDS: u64 = 20;
/// Throughput with checkpoints over that without, at least.
const LEAST_RATIO: f64 = 0.95;
/// Percent of a core that an idle job takes, below this.
const MOST_IDLE_PERCENT: f64 = 1.0;
/// Shortest measurement that counts.
const SHORTEST: Duration = Duration::from_secs(5);
const INTERVAL: Duration = Duration::from_secs(1);
/// Between two looks at a job's progress.
const LOOK: Duration = Duration::from_millis(2);
const USER: &str = "root";
const PASSWORD: &str = "checkpoint";

fn main() -> Outcome<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    if std::env::args().any(|argument| argument == SERVE) {
        return runtime.block_on(serve());
    }
    let mut server = Server::start()?;
    runtime.block_on(measure(&mut server))
}

fn amount(variable: &str, default: u64) -> Outcome<u64> {
    match std::env::var(variable) {
        Ok(text) => Ok(text.parse().map_err(|_| format!("{variable} must be a number, got {text}"))?),
        Err(_) => Ok(default),
    }
}

/// Serves until standard input is closed. Each line there moves the clock on by a second.
async fn serve() -> Outcome<()> {
    let sandbox = Sandbox::builder().user(USER).password(PASSWORD).start().await?;
    println!("{} {}", sandbox.fenodes(), sandbox.jdbc_url());
    std::io::stdout().flush()?;
    tokio::task::spawn_blocking(move || -> Outcome<()> {
        for line in std::io::stdin().lines() {
            line?;
            sandbox.advance_clock(Duration::from_secs(1));
            println!("advanced");
            std::io::stdout().flush()?;
        }
        Ok(())
    })
    .await?
}

/// The server process; it ends with this one.
struct Server {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    fenodes: String,
    jdbc_url: String,
}

impl Server {
    fn start() -> Outcome<Self> {
        let mut child =
            Command::new(std::env::current_exe()?).arg(SERVE).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let input = child.stdin.take();
        let mut output = BufReader::new(child.stdout.take().ok_or("the server has no output")?);
        let mut line = String::new();
        output.read_line(&mut line)?;
        let (fenodes, jdbc_url) = line.trim().split_once(' ').ok_or("the server did not start")?;
        let (fenodes, jdbc_url) = (fenodes.to_owned(), jdbc_url.to_owned());
        Ok(Self { child, input, output, fenodes, jdbc_url })
    }

    /// Moves its clock on by a second.
    fn advance(&mut self) -> Outcome<()> {
        let input = self.input.as_mut().ok_or("the server has no input")?;
        writeln!(input, "advance")?;
        input.flush()?;
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        if line.trim() == "advanced" { Ok(()) } else { Err(format!("the server answered '{line}'").into()) }
    }

    async fn doris(&self, sql: &str) -> Outcome<Option<String>> {
        let mut connection = DorisConnection::connect(&self.jdbc_url, USER, &Secret::new(PASSWORD)).await?;
        let outputs = connection.execute(sql).await.map_err(|error| format!("{sql}: {error}"))?;
        Ok(outputs.into_iter().flat_map(|output| output.rows).next().and_then(|row| row.into_iter().next().flatten()))
    }

    async fn declare(&self, context: &SessionContext, name: &str, options: &str) -> Outcome<()> {
        let (fenodes, jdbc_url) = (&self.fenodes, &self.jdbc_url);
        let table = name.strip_suffix("_changes").unwrap_or(name);
        let sql = format!(
            "CREATE EXTERNAL TABLE {name} STORED AS DORIS OPTIONS ('fenodes' '{fenodes}', 'jdbc-url' '{jdbc_url}',
             'table.identifier' 'bench.{table}', 'username' '{USER}', 'password' '{PASSWORD}' {options})"
        );
        datafusion_doris::sql(context, &sql).await?.collect().await?;
        Ok(())
    }

    async fn create(&self, table: &str, properties: &str) -> Outcome<()> {
        let sql = format!(
            "CREATE TABLE bench.{table} (id BIGINT NOT NULL, name VARCHAR(40), amount DECIMAL(18, 2), at DATETIME(6))
             UNIQUE KEY(id) DISTRIBUTED BY HASH(id) BUCKETS 4 PROPERTIES ('replication_num' = '1',
             'enable_unique_key_merge_on_write' = 'true' {properties})"
        );
        self.doris(&sql).await.map(drop)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.input.take());
        // Nothing to do about a child that cannot be waited for.
        let _ = self.child.wait();
    }
}

async fn measure(server: &mut Server) -> Outcome<()> {
    let (rows, seconds) = (amount("CHECKPOINT_ROWS", ROWS)?, amount("CHECKPOINT_SECONDS", SECONDS)?);
    let runs = amount("CHECKPOINT_RUNS", RUNS)?;
    let context = datafusion_doris::session_context();
    fill(server, &context, rows, seconds).await?;
    let mut times: [Vec<Duration>; 2] = Default::default();
    for run in 0..=runs {
        for (checkpoints, times) in times.iter_mut().enumerate() {
            let time = mirror(server, &context, checkpoints == 1, rows, rows * seconds).await?;
            // The first of each warms up.
            if run > 0 {
                times.push(time);
            }
        }
    }
    let changes = rows * seconds;
    let [without, with] = times.map(median);
    for (kind, time) in [("none", without), ("one for each second of changes", with)] {
        println!(
            "sync job, checkpoints: {kind}: {changes} changes in {:.2} s (median of {runs}): {:.0} changes/s",
            time.as_secs_f64(),
            changes as f64 / time.as_secs_f64()
        );
    }
    println!(
        "epochs: {seconds} in {:.2} s, one every {:.2} s",
        with.as_secs_f64(),
        with.as_secs_f64() / seconds as f64
    );
    let ratio = without.as_secs_f64() / with.as_secs_f64();
    println!("throughput with checkpoints over without: {ratio:.3} (bar: at least {LEAST_RATIO})");
    let idle = idle(server, &context).await?;
    if without < SHORTEST {
        println!("the measurements are too short to judge by: set CHECKPOINT_ROWS higher");
        return Ok(());
    }
    if ratio < LEAST_RATIO || idle.is_some_and(|percent| percent >= MOST_IDLE_PERCENT) {
        return Err("a bar is missed".into());
    }
    Ok(())
}

/// Makes the backlog: a transaction in each second that changes every row.
async fn fill(server: &mut Server, context: &SessionContext, rows: u64, seconds: u64) -> Outcome<()> {
    server.doris("CREATE DATABASE bench").await?;
    server.create("source", ", 'changelog.enable' = 'true'").await?;
    let start = server.doris("SELECT NOW()").await?.ok_or("no time")?;
    let start = start.split('.').next().unwrap_or_default().to_owned();
    server.declare(context, "source", "").await?;
    for second in 0..seconds {
        server.advance()?;
        let insert = format!(
            "INSERT INTO source SELECT value, concat('customer of second ', CAST({second} AS VARCHAR)),
             CAST(value AS DECIMAL(18, 2)) / 7, CAST('2026-01-01 00:00:00.123456' AS TIMESTAMP)
             FROM generate_series(1, {rows})"
        );
        datafusion_doris::sql(context, &insert).await?.collect().await?;
    }
    for _ in 0..2 {
        server.advance()?;
    }
    let options = format!(
        ", 'source.scan.mode' 'from-timestamp', 'source.scan.timestamp' '{start}',
         'source.changelog.max-window' '1s', 'source.changelog.poll-interval' '1s'"
    );
    server.declare(context, "source_changes", &options).await
}

const MIRROR: &str = "INSERT INTO mirror SELECT * FROM source_changes";

async fn new_mirror(server: &Server, context: &SessionContext) -> Outcome<()> {
    server.doris("DROP TABLE IF EXISTS bench.mirror").await?;
    server.create("mirror", "").await?;
    context.deregister_table("mirror")?;
    server.declare(context, "mirror", ", 'sink.change-kind-column' '__change_kind'").await
}

/// Mirrors the backlog, and gives the time it took.
async fn mirror(
    server: &Server,
    context: &SessionContext,
    checkpoints: bool,
    rows: u64,
    changes: u64,
) -> Outcome<Duration> {
    new_mirror(server, context).await?;
    let dir = tempfile::tempdir()?;
    let mut job = SyncJob::builder("mirror");
    if checkpoints {
        job = job.checkpoint_dir(dir.path().to_str().ok_or("an odd path")?).checkpoint_interval(INTERVAL);
    }
    let started = Instant::now();
    let job = job.submit(context, MIRROR).await?;
    // Not `caught_up`, which waits for the end of the present second.
    while job.status().rows < changes {
        if job.status().state != JobState::Running {
            return Err(format!("the job ended: {:?}", job.status().error).into());
        }
        tokio::time::sleep(LOOK).await;
    }
    let time = started.elapsed();
    job.stop().await?;
    let mirrored = server.doris("SELECT COUNT(*) FROM bench.mirror").await?.unwrap_or_default();
    if mirrored != rows.to_string() {
        return Err(format!("{mirrored} rows were mirrored, not {rows}").into());
    }
    Ok(time)
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

/// Watches a job with checkpoints that has caught up; percent of a core.
async fn idle(server: &Server, context: &SessionContext) -> Outcome<Option<f64>> {
    let seconds = amount("CHECKPOINT_IDLE_SECONDS", IDLE_SECONDS)?;
    new_mirror(server, context).await?;
    let dir = tempfile::tempdir()?;
    let dir = dir.path().to_str().ok_or("an odd path")?;
    let job =
        SyncJob::builder("idle").checkpoint_dir(dir).checkpoint_interval(INTERVAL).submit(context, MIRROR).await?;
    job.caught_up().await?;
    let Some(before) = cpu_seconds()? else {
        println!("idle job: not measured, this system has no /proc/self/stat");
        return Ok(None);
    };
    let started = Instant::now();
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    let (time, after) = (started.elapsed().as_secs_f64(), cpu_seconds()?.unwrap_or(before));
    job.stop().await?;
    let percent = (after - before) / time * 100.0;
    println!(
        "idle job, looks for changes and checkpoints every second: {:.2} s of CPU in {time:.1} s: {percent:.2} % \
         (bar: under {MOST_IDLE_PERCENT} %)",
        after - before
    );
    Ok(Some(percent))
}

/// CPU time of this process so far, of all its threads, in user and kernel; the kernel counts in hundredths of a second.
fn cpu_seconds() -> Outcome<Option<f64>> {
    let Ok(stat) = std::fs::read_to_string("/proc/self/stat") else { return Ok(None) };
    // The name of the program may hold anything, blanks too; utime and stime are the 12th and 13th after it.
    let fields = stat.rsplit_once(')').ok_or("/proc/self/stat has no name")?.1.split_whitespace();
    let ticks: Vec<f64> = fields.skip(11).take(2).map(str::parse).collect::<Result<_, _>>()?;
    Ok(Some(ticks.iter().sum::<f64>() / 100.0))
}
