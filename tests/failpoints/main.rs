//! A crash or an error at every step of the checkpoint protocol: afterwards every change is in the target exactly once.
//!
//! ```sh
//! cargo test --features failpoints --test failpoints              # all
//! cargo test --features failpoints --test failpoints -- commit    # those whose name holds `commit`
//! ```
//!
//! Each run has its own sandbox in this process, and the jobs in a child: the same binary, which ends without any clean-up
//! when a point is reached (`fail` runs a callback that aborts), or gets an error there. A history of the changes (DUPLICATE
//! KEY) and a mirror (UNIQUE KEY) are written by two jobs. While no child runs, the source changes; then the next child goes
//! on. At the end the mirror equals the source, the history holds each change once, and no transaction is open. A point
//! that is not reached fails its run.

mod child;
mod matrix;
mod model;
mod process;
mod run;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Instant;

use datafusion_doris::failpoints::ALL;
use futures::StreamExt;

use crate::matrix::{Case, Mode, ROWS, cases};

/// Runs at the same time, unless `FAILPOINTS_PARALLEL` says otherwise: they wait more than they work.
const PARALLEL: usize = 8;
/// Least number of processes that must die between two epochs of one snapshot, in all of the matrix.
const WITHIN_SNAPSHOT: usize = 20;

fn main() -> ExitCode {
    if let Ok(life) = std::env::var(child::VARIABLE) {
        child::run(&life);
        return ExitCode::SUCCESS;
    }
    for point in ALL {
        assert!(ROWS.iter().any(|row| row.point == *point), "{point} is a failpoint, but not in the matrix");
    }
    let wanted: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let is_wanted =
        |case: &Case| wanted.is_empty() || wanted.iter().any(|part| case.to_string().contains(part.as_str()));
    let cases: Vec<Case> = cases().into_iter().filter(is_wanted).collect();
    if std::env::args().any(|arg| arg == "--list") {
        cases.iter().for_each(|case| println!("{case}: test"));
        return ExitCode::SUCCESS;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    if runtime.block_on(all(cases)) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs all cases; true when all are right.
async fn all(cases: Vec<Case>) -> bool {
    let parallel = std::env::var("FAILPOINTS_PARALLEL").ok().and_then(|text| text.parse().ok()).unwrap_or(PARALLEL);
    let (begun, total, everything) = (Instant::now(), cases.len(), self::cases().len());
    let verbose = std::env::args().any(|arg| arg == "--nocapture");
    let mut results: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    let (mut right, mut within_snapshot) = (0, 0);
    let mut runs = futures::stream::iter(cases)
        .map(|case| async move {
            let begun = Instant::now();
            (case, tokio::spawn(run::run(case)).await, begun.elapsed())
        })
        .buffer_unordered(parallel);
    while let Some((case, result, took)) = runs.next().await {
        let name = case.to_string();
        let result = result.unwrap_or_else(|panic| Err(panic.to_string()));
        let counted = results.entry(case.row.point.to_string()).or_default();
        counted.1 += 1;
        match result {
            Ok(seen) => {
                counted.0 += 1;
                right += 1;
                within_snapshot += usize::from(seen.within_snapshot);
                if verbose {
                    println!("  {name}: right, {:.1} s", took.as_secs_f32());
                }
            }
            Err(reason) => println!("  {name}: WRONG, {:.1} s: {reason}", took.as_secs_f32()),
        }
    }
    for (point, (right, runs)) in &results {
        println!("  {point:<18} {right:>2} of {runs:>2} right");
    }
    println!(
        "failpoints: {} points x 3 faults x 2 phases x {} modes = {total} runs (without those that cannot be), {right} right, \
         {within_snapshot} died within a snapshot, {:.0} s",
        results.len(),
        Mode::ALL.len(),
        begun.elapsed().as_secs_f32()
    );
    let enough = total < everything || within_snapshot >= WITHIN_SNAPSHOT;
    if !enough {
        println!("failpoints: WRONG, at least {WITHIN_SNAPSHOT} must die within a snapshot");
    }
    right == total && enough
}
