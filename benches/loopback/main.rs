//! Whole paths over the loopback against a server in a process of its own, each beside the bare transport of the same run,
//! with the bars that this project sets itself.
//!
//! `cargo bench --bench loopback`; it prints one Markdown table and writes the figures as JSON to the file that
//! `LOOPBACK_JSON` names. `LOOPBACK_ONLY` names the parts to run (`shell`, `scan`, `insert`, `changelog`, `memory`; comma separated),
//! `LOOPBACK_RUNS` the measurements of each (5), `LOOPBACK_PERCENT` the share of the rows. It fails when a bar is missed.

mod changelog;
#[path = "../common/mod.rs"]
mod common;
mod insert;
mod memory;
mod report;
mod scan;
mod shapes;
mod shell;

use serde_json::Value;

use common::{Outcome, Server, amount, server};
use report::Report;

/// Measurements of each figure.
const RUNS: u64 = 5;

fn main() -> Outcome<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    if server::is_server() {
        return runtime.block_on(server::serve());
    }
    let mut arguments = std::env::args().skip_while(|argument| argument != memory::TASK);
    if arguments.next().is_some() {
        let task: Value = serde_json::from_str(&arguments.next().ok_or("no task")?)?;
        return runtime.block_on(memory::run(&task));
    }
    let mut server = Server::start()?;
    runtime.block_on(measure(&mut server))
}

async fn measure(server: &mut Server) -> Outcome<()> {
    // Another provider cannot be installed in this process.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runs = amount("LOOPBACK_RUNS", RUNS)?;
    let only = std::env::var("LOOPBACK_ONLY").unwrap_or_default();
    let wanted = |part: &str| only.is_empty() || only.split(',').any(|name| name.trim() == part);
    server.doris("CREATE DATABASE bench").await?;
    let mut report = Report::default();
    if wanted("shell") {
        shell::measure(runs, &mut report).await?;
    }
    if wanted("scan") {
        scan::measure(server, runs, &mut report).await?;
    }
    if wanted("insert") {
        insert::measure(server, runs, &mut report).await?;
    }
    if wanted("changelog") {
        changelog::measure(server, runs, &mut report).await?;
    }
    if wanted("memory") {
        memory::measure(server, &mut report).await?;
    }
    println!("{}", report.markdown());
    if let Ok(file) = std::env::var("LOOPBACK_JSON") {
        std::fs::write(file, serde_json::to_string_pretty(&report.json())? + "\n")?;
    }
    match report.missed() {
        missed if missed.is_empty() => Ok(()),
        missed => Err(format!("bars missed: {}", missed.join("; ")).into()),
    }
}
