//! What checkpoints cost a sync job, and what an idle job costs.
//!
//! A process of its own serves a table with a backlog of changes, some seconds of them. This process mirrors them into a
//! table that is new each time, second by second: in turns with a checkpoint for each and with none. Then it measures its
//! own CPU time while a job with checkpoints every second waits for changes that do not come.
//!
//! `cargo bench --bench checkpoint`; `CHECKPOINT_ROWS` (changes of each second), `CHECKPOINT_SECONDS`, `CHECKPOINT_RUNS`
//! and `CHECKPOINT_IDLE_SECONDS` change the amounts. It fails when a bar is missed.

mod common;

use std::time::{Duration, Instant};

use datafusion::prelude::SessionContext;
use datafusion_doris::job::{JobState, SyncJob};

use common::usage::cpu_seconds;
use common::{Outcome, Server, amount, backlog, median, server};

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

fn main() -> Outcome<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    if server::is_server() {
        return runtime.block_on(server::serve());
    }
    let mut server = Server::start()?;
    runtime.block_on(measure(&mut server))
}

/// Declares the table, or its changes.
async fn declare(server: &Server, context: &SessionContext, name: &str, options: &str) -> Outcome<()> {
    server.declare(context, name, name.strip_suffix("_changes").unwrap_or(name), options).await
}

async fn create(server: &Server, table: &str, properties: &str) -> Outcome<()> {
    let sql = format!(
        "CREATE TABLE bench.{table} ({})
         UNIQUE KEY(id) DISTRIBUTED BY HASH(id) BUCKETS 4 PROPERTIES ('replication_num' = '1',
         'enable_unique_key_merge_on_write' = 'true' {properties})",
        backlog::COLUMNS
    );
    server.doris(&sql).await.map(drop)
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
    create(server, "source", ", 'changelog.enable' = 'true'").await?;
    declare(server, context, "source", "").await?;
    let start = backlog::fill(server, context, rows, seconds).await?;
    let options = format!(
        ", 'source.scan.mode' 'from-timestamp', 'source.scan.timestamp' '{start}',
         'source.changelog.max-window' '1s', 'source.changelog.poll-interval' '1s'"
    );
    declare(server, context, "source_changes", &options).await
}

const MIRROR: &str = "INSERT INTO mirror SELECT * FROM source_changes";

async fn new_mirror(server: &Server, context: &SessionContext) -> Outcome<()> {
    server.doris("DROP TABLE IF EXISTS bench.mirror").await?;
    create(server, "mirror", "").await?;
    context.deregister_table("mirror")?;
    declare(server, context, "mirror", ", 'sink.change-kind-column' '__change_kind'").await
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
