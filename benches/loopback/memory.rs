//! Peak memory of a process that reads, writes or mirrors few rows and many.

use std::process::Command;

use datafusion::physical_plan::execute_stream;
use datafusion_doris::job::SyncJob;
use futures::TryStreamExt;
use serde_json::{Value, json};

use crate::common::server::{TUNABLES, declare};
use crate::common::usage::peak_mb;
use crate::common::{Outcome, Server, backlog};
use crate::epochs::written;
use crate::report::{Bar, Figure, Report};
use crate::shapes::flights;
use crate::share;

/// Argument that makes this program the process that is measured.
pub const TASK: &str = "run-task";
/// Rows of the small and of the large run.
const ROWS: [u64; 2] = [1_000_000, 30_000_000];
/// Changes of each second of a backlog.
const CHANGES: u64 = 250_000;
/// Small runs, of which the largest peak counts: memory goes up and down by what is on its way just then, and a large run
/// has many times as many moments.
const SMALL_RUNS: u32 = 7;
/// Megabytes.
const MOST: f64 = 256.0;
/// Of the large run over the small one.
const MOST_GROWTH: f64 = 1.10;
/// Megabytes that the allocator and the threads may make of a difference.
const SLACK: f64 = 8.0;

/// What the process does: a statement whose rows it counts, or a job until it has written so many changes.
pub async fn run(task: &Value) -> Outcome<()> {
    let text = |name: &str| task[name].as_str().ok_or_else(|| format!("no {name}"));
    let context = datafusion_doris::session_context();
    for table in task["tables"].as_array().into_iter().flatten() {
        let part = |name: &str| table[name].as_str().ok_or_else(|| format!("no {name} of a table"));
        let (name, of, options) = (part("name")?, part("table")?, part("options")?);
        declare(&context, text("fenodes")?, text("jdbc_url")?, name, of, options).await?;
    }
    match task["changes"].as_u64() {
        Some(changes) => {
            let dir = tempfile::tempdir()?;
            let dir = dir.path().to_str().ok_or("an odd path")?;
            let job = SyncJob::builder("memory").checkpoint_dir(dir).submit(&context, text("sql")?).await?;
            written(&job, changes).await?;
            job.stop().await?;
        }
        None => {
            let plan = datafusion_doris::sql(&context, text("sql")?).await?.create_physical_plan().await?;
            let mut batches = execute_stream(plan, context.task_ctx())?;
            while batches.try_next().await?.is_some() {}
        }
    }
    println!("{}", json!({ "peak": peak_mb()? }));
    Ok(())
}

/// Peak of a process that runs `sql`, in megabytes; `changes`: see [`run`].
fn peak_of_one(server: &Server, sql: &str, tables: &Value, changes: Option<u64>) -> Outcome<f64> {
    let (fenodes, jdbc_url) = (&server.fenodes, &server.jdbc_url);
    let task = json!({ "fenodes": fenodes, "jdbc_url": jdbc_url, "sql": sql, "tables": tables, "changes": changes });
    // With the allocator as it is.
    let mut command = Command::new(std::env::current_exe()?);
    let output = command.args([TASK, &task.to_string()]).env_remove(TUNABLES).output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
    }
    let told: Value = serde_json::from_slice(&output.stdout)?;
    Ok(told["peak"].as_f64().unwrap_or(f64::NAN))
}

/// The largest peak of so many processes.
fn peak_of(server: &Server, sql: &str, tables: &Value, changes: Option<u64>, runs: u32) -> Outcome<f64> {
    (0..runs).try_fold(f64::NAN, |largest, _| Ok(peak_of_one(server, sql, tables, changes)?.max(largest)))
}

/// Measures a scan, an INSERT and a job.
pub async fn measure(server: &mut Server, report: &mut Report) -> Outcome<()> {
    let rows = [share(ROWS[0], flights()?.base)?, share(ROWS[1], flights()?.base * 2)?];
    let scan = [scan(server, rows[0], SMALL_RUNS).await?, scan(server, rows[1], 1).await?];
    tell(report, "scan", rows, scan);
    let insert = [insert(server, rows[0], SMALL_RUNS).await?, insert(server, rows[1], 1).await?];
    tell(report, "insert", rows, insert);
    let (rows, sync) = sync(server).await?;
    tell(report, "sync", rows, sync);
    Ok(())
}

fn tell(report: &mut Report, what: &str, rows: [u64; 2], peaks: [f64; 2]) {
    let [few, many] = peaks;
    let beside = format!("{few:.0} MB at {} rows, the most of {SMALL_RUNS} runs; the whole process", rows[0]);
    let figure = Figure::new(format!("{what}: peak memory"), many, "MB", Bar::Most(MOST));
    report.add(figure.moved(None, rows[1]).slack(SLACK).beside(beside));
    let figure =
        Figure::new(format!("{what}: growth of memory with the rows"), many / few, "x", Bar::Most(MOST_GROWTH));
    report.add(figure.moved(None, rows[1]).slack(SLACK / few));
}

async fn scan(server: &Server, rows: u64, runs: u32) -> Outcome<f64> {
    let (flights, table) = (flights()?, "memory_scan");
    let property = format!(", 'sandbox.replay' = 'true', 'sandbox.replay.rows' = '{rows}'");
    server.doris(&flights.create(table, &property)).await?;
    let context = datafusion_doris::session_context();
    server.declare(&context, table, table, "").await?;
    let insert = format!("INSERT INTO {table} {}", flights.query(flights.base));
    datafusion_doris::sql(&context, &insert).await?.collect().await?;
    let tables = json!([{ "name": table, "table": table, "options": "" }]);
    let sql = format!("SELECT * FROM {table}");
    let peak = peak_of(server, &sql, &tables, None, runs)?;
    server.doris(&format!("DROP TABLE bench.{table}")).await?;
    Ok(peak)
}

async fn insert(server: &Server, rows: u64, runs: u32) -> Outcome<f64> {
    let (flights, table) = (flights()?, "memory_insert");
    server.doris(&flights.create(table, ", 'sandbox.discard' = 'true'")).await?;
    let tables = json!([{ "name": table, "table": table, "options": "" }]);
    let sql = format!("INSERT INTO {table} {}", flights.query(rows));
    let peak = peak_of(server, &sql, &tables, None, runs)?;
    server.doris(&format!("DROP TABLE bench.{table}")).await?;
    Ok(peak)
}

/// Rows of both runs, and their peaks. Both have the same changes in a second, and the same first second.
async fn sync(server: &mut Server) -> Outcome<([u64; 2], [f64; 2])> {
    let context = datafusion_doris::session_context();
    backlog::tables(server, &context, "").await?;
    let each = share(CHANGES, 1_000)?;
    let seconds = ROWS.map(|rows| rows / CHANGES);
    let rows = seconds.map(|seconds| seconds * each);
    let start = backlog::fill(server, &context, each, seconds[0]).await?;
    let options = backlog::changes_options(&start, ", 'source.changelog.poll-interval' '1s'");
    let tables = json!([
        { "name": "changes", "table": "source", "options": options },
        { "name": "history", "table": "history", "options": "" },
    ]);
    let sql = "INSERT INTO history SELECT * FROM changes";
    let few = peak_of(server, sql, &tables, Some(rows[0]), SMALL_RUNS)?;
    backlog::fill(server, &context, each, seconds[1] - seconds[0]).await?;
    let many = peak_of(server, sql, &tables, Some(rows[1]), 1)?;
    for table in ["source", "history"] {
        server.doris(&format!("DROP TABLE bench.{table}")).await?;
    }
    Ok((rows, [few, many]))
}
