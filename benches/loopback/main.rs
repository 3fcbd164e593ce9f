//! Whole paths over the loopback against a server in a process of its own, each beside the bare transport of the same run,
//! with the bars that this project sets itself.
//!
//! `cargo bench --bench loopback`; it tells each figure on standard error as it is made, prints one Markdown table, and
//! writes the figures as JSON to the file that `LOOPBACK_JSON` names. `LOOPBACK_ONLY` names the parts to run (comma
//! separated, see [`PARTS`]), `LOOPBACK_RUNS` the measurements of each (7), `LOOPBACK_PERCENT` the share of the rows. It fails
//! when a bar is missed; with `LOOPBACK_PERCENT` below 100 bars are told and not judged.

mod bare;
mod changelog;
#[path = "../common/mod.rs"]
mod common;
mod encode;
mod epochs;
mod gz;
mod insert;
mod latency;
mod memory;
mod pushed;
mod report;
mod scan;
mod shapes;
mod shell;
mod wire;

use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::runtime::Builder;

use common::server::{KEEP_MEMORY, TUNABLES};
use common::{Outcome, Server, amount, server};
use report::Report;

/// Measurements of each figure.
const RUNS: u64 = 7;
/// The parts, in the order in which they run.
const PARTS: [&str; 9] = ["shell", "scan", "pushed", "insert", "gz", "changelog", "latency", "epochs", "memory"];

fn main() -> Outcome<ExitCode> {
    if let Some(code) = shell::run_here() {
        return Ok(code);
    }
    // No thread ends: the kernel forgets what an ended one has used, see `usage::cpu_of_threads`.
    let runtime = Builder::new_multi_thread().enable_all().thread_keep_alive(Duration::from_secs(86_400)).build()?;
    if server::is_server() {
        return runtime.block_on(server::serve()).map(|()| ExitCode::SUCCESS);
    }
    let mut arguments = std::env::args().skip_while(|argument| argument != memory::TASK);
    if arguments.next().is_some() {
        let task: Value = serde_json::from_str(&arguments.next().ok_or("no task")?)?;
        return runtime.block_on(memory::run(&task)).map(|()| ExitCode::SUCCESS);
    }
    keep_memory()?;
    let mut server = Server::start()?;
    common::measure::watch(server.pid);
    runtime.block_on(measure(&mut server))
}

/// Starts this program anew with an allocator that keeps memory, see [`KEEP_MEMORY`].
fn keep_memory() -> Outcome<()> {
    if std::env::var_os(TUNABLES).is_some() || !cfg!(target_env = "gnu") {
        return Ok(());
    }
    let arguments = std::env::args_os().skip(1);
    let error = Command::new(std::env::current_exe()?).args(arguments).env(TUNABLES, KEEP_MEMORY).exec();
    Err(error.into())
}

async fn measure(server: &mut Server) -> Outcome<ExitCode> {
    // Another provider cannot be installed in this process.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runs = amount("LOOPBACK_RUNS", RUNS)?.max(1);
    let percent = amount("LOOPBACK_PERCENT", 100)?;
    let only = std::env::var("LOOPBACK_ONLY").unwrap_or_default();
    let wanted: Vec<&str> = only.split(',').map(str::trim).filter(|name| !name.is_empty()).collect();
    if let Some(unknown) = wanted.iter().find(|name| !PARTS.contains(name)) {
        return Err(format!("LOOPBACK_ONLY: there is no part '{unknown}', but {}", PARTS.join(", ")).into());
    }
    server.doris("CREATE DATABASE bench").await?;
    let (mut report, begun) = (Report::default(), Instant::now());
    for (number, part) in PARTS.into_iter().enumerate() {
        if !wanted.is_empty() && !wanted.contains(&part) {
            continue;
        }
        eprintln!("[{:4.0} s] part {} of {}: {part}", begun.elapsed().as_secs_f64(), number + 1, PARTS.len());
        match part {
            "shell" => shell::measure(runs, &mut report).await?,
            "scan" => scan::measure(server, runs, &mut report).await?,
            "pushed" => pushed::measure(server, runs, &mut report).await?,
            "insert" => insert::measure(server, runs, &mut report).await?,
            "gz" => gz::measure(server, runs, &mut report).await?,
            "changelog" => changelog::measure(server, runs, &mut report).await?,
            "latency" => latency::measure(server, &mut report).await?,
            "epochs" => epochs::measure(server, runs, &mut report).await?,
            _ => memory::measure(server, &mut report).await?,
        }
    }
    eprintln!("[{:4.0} s] done", begun.elapsed().as_secs_f64());
    println!("{}", report.markdown());
    if let Ok(file) = std::env::var("LOOPBACK_JSON") {
        std::fs::write(file, serde_json::to_string_pretty(&report.json(runs, percent))? + "\n")?;
    }
    let missed = report.missed();
    if missed.is_empty() || percent < 100 {
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!("bars missed:\n  {}", missed.join("\n  "));
    Ok(ExitCode::FAILURE)
}

/// `rows` by the share that was asked for, at least `least`.
fn share(rows: u64, least: u64) -> Outcome<u64> {
    Ok((rows * amount("LOOPBACK_PERCENT", 100)? / 100).max(least))
}
