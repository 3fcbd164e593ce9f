//! Jobs of the real shell in every write mode, killed over and over while the source changes, the network breaks and nodes
//! go: at the end a mirror and an audit of every change for each mode hold what they must, nothing lost and nothing
//! doubled, and no staged object is left.
//!
//! ```text
//!   writer ──MySQL──▶ source ──changelog──▶ shell (job mirror)  ──loads────▶ mirror   UNIQUE KEY: the rows
//!                       │     ──changelog──▶       (job audit)   ──loads────▶ audit    DUPLICATE KEY: every change
//!                       │     ──changelog──▶       (job batched) ──batches──▶ batched  the same
//!                       │     ──changelog──▶       (job staged)  ──objects──▶ S3 ──INSERT──▶ staged  the same
//!   faults ──admin endpoint──▶ sandbox (a process)      ▲
//!   killer ─────────────────── SIGKILL ─────────────────┘
//! ```
//!
//! What is expected is worked out from the statements alone (`model`). Time passes here and nothing waits for a signal:
//! moments are drawn from a seed, which is printed. Environment variables: `KILL_SEED` runs with another one, `KILLS` kills
//! and cuts more often than 100 times, `KILL_KEEP` keeps logs and checkpoints also after success.

#![allow(clippy::expect_used)]

mod faults;
mod model;
mod random;
mod server;
mod shell;
mod writer;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use doris_sandbox::s3_endpoint::{S3Endpoint, S3Settings};
use serde_json::json;
use tokio::time::{sleep, timeout};

use crate::model::{Entry, Model};
use crate::random::Random;
use crate::server::{Loads, Server};
use crate::shell::{CATCH_UP, RETAIN, Shell};
use crate::writer::Writer;

/// The shell, which is the sandbox too.
const BINARY: &str = env!("CARGO_BIN_EXE_datafusion-doris-cli");
const DATABASE: &str = "sync";
const PASSWORD: &str = "s3cret";
/// Where rows are staged.
const BUCKET: &str = "lake";
const PREFIX: &str = "stage";
/// Tables that hold every change, and the jobs that write them: one for each write mode.
const AUDITS: [&str; 3] = ["audit", "batched", "staged"];

/// Kills and cuts, unless `KILLS` says otherwise.
const KILLS: usize = 100;
/// Longest wait for anything that must happen.
const PATIENCE: Duration = Duration::from_secs(180);
/// Rows that a failure shows of each kind.
const SHOWN: usize = 20;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{variable} is no number: {text}")))
}

/// What has been done so far.
#[derive(Default)]
struct Counts {
    /// Processes that ran when they were killed.
    kills: Cell<usize>,
    /// Of them, those that did not run all jobs yet.
    early: Cell<usize>,
    /// Of them, those that were killed while a request of theirs was held.
    aimed: Cell<usize>,
    cuts: Cell<usize>,
    others: Cell<usize>,
    outages: Cell<usize>,
    /// Processes that did not get to their jobs, since a fault hit the declaration of a table.
    never_started: Cell<usize>,
}

fn more(counter: &Cell<usize>) {
    counter.set(counter.get() + 1);
}

/// Kills one process after the other, until there were `wanted` kills and cuts.
async fn kill(shell: &mut Shell, server: &Server, mut random: Random, counts: &Counts, wanted: usize) {
    while counts.kills.get() < wanted || counts.cuts.get() < wanted {
        let mut life = shell.endless();
        if random.chance(10) {
            sleep(Duration::from_millis(random.within(0..800))).await;
            if life.kill() {
                more(&counts.kills);
                more(&counts.early);
            }
            continue;
        }
        if !timeout(PATIENCE, life.started()).await.expect("jobs start, or the shell says why not") {
            more(&counts.never_started);
            // A fault may hit a declaration now and then; jobs that never start are another matter.
            assert!(
                counts.never_started.get() <= wanted,
                "the shell does not start its jobs: {:?}",
                life.said().errors
            );
            continue;
        }
        let held = if random.chance(30) { hold(server, &mut random).await } else { false };
        let pause = if held { 0..250 } else { 200..2000 };
        sleep(Duration::from_millis(random.within(pause))).await;
        let said = life.said();
        assert!(life.kill(), "the shell ended by itself: {:?}", said.errors);
        assert!(said.errors.is_empty(), "a job gave up: {:?}", said.errors);
        more(&counts.kills);
        if held {
            more(&counts.aimed);
        }
        let applied = server.applied().await;
        counts.cuts.set(applied.cuts);
        counts.others.set(applied.others);
    }
}

/// Holds a request back whose moment matters; false when none came soon.
async fn hold(server: &Server, random: &mut Random) -> bool {
    let (site, when) = *random.pick(&[
        ("be", "/_stream_load "),
        ("be", "_stream_load_2pc"),
        ("fe", "get_load_state"),
        ("mysql", "with label"),
        ("be_flight", ""),
    ]);
    let before = server.applied().await.delays;
    let mut fault = json!({"action": {"type": "delay", "ms": 300}, "site": site, "when": when});
    if random.chance(50) {
        fault["skip"] = json!(1);
    }
    server.arm(&fault).await;
    for _ in 0..100 {
        if server.applied().await.delays > before {
            return true;
        }
        sleep(Duration::from_millis(15)).await;
    }
    false
}

#[tokio::test]
async fn jobs_of_every_write_mode_outlive_a_hundred_kills_and_cuts_without_losing_or_doubling_a_row() {
    let begun = Instant::now();
    let wanted = number("KILLS").map_or(KILLS, |kills| usize::try_from(kills).expect("a count"));
    let nanos = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock").as_nanos();
    let seed = number("KILL_SEED").unwrap_or_else(|| u64::try_from(nanos % 1_000_000_000).expect("small"));
    let mut random = Random::new(seed);
    // Kept until the end is known to be a good one.
    let dir = tempfile::tempdir().expect("a directory").keep();
    println!(
        "seed {seed} (KILL_SEED={seed} runs with it), kills and cuts: {wanted}, logs and checkpoints: {}",
        dir.display()
    );

    let server = Server::start(&dir.join("sandbox.log"));
    let mut writer = Writer::start(&server, random.fork()).await;
    let s3 = S3Endpoint::start(S3Settings::default()).await.expect("an object store");
    let mut shell = Shell::new(&dir, &server, &s3.url());
    let mut loads = Loads::default();
    let counts = Counts::default();
    let [for_kills, for_network, for_nodes, for_store] = [random.fork(), random.fork(), random.fork(), random.fork()];
    let stop = Cell::new(false);
    let disorder = async {
        tokio::select! {
            () = kill(&mut shell, &server, for_kills, &counts, wanted) => stop.set(true),
            () = faults::network(&server, for_network) => {}
            () = faults::store(&s3, for_store) => {}
            () = loads.watch(&server) => {}
        }
    };
    tokio::join!(disorder, writer.run(&stop), faults::nodes(&server, for_nodes, &counts.outages, &stop));
    let mut problems = Vec::new();
    faults::heal(&server).await;
    s3.pardon();
    writer.finish().await;
    let mut last = shell.last();
    let mut caught_up = false;
    match timeout(CATCH_UP + PATIENCE, last.ended()).await {
        Ok(status) if status.success() => caught_up = true,
        Ok(status) => problems.push(format!("the last process ended with {status}: {:?}", last.said().errors)),
        Err(_) => problems.push(format!("the jobs do not catch up within {CATCH_UP:?}")),
    }
    drop(last);
    loads.gather(&server).await;

    // Before that rows are missing, and the snapshot of an audit cannot be told from its changes.
    if caught_up {
        problems.extend(writer.compare().await);
    }
    let open = server.running_transactions().await;
    if open > 0 {
        problems.push(format!("{open} transactions are left running"));
    }
    for job in ["mirror"].iter().chain(&AUDITS) {
        problems.extend(left_in(&dir.join("checkpoints").join(job)));
    }
    let staged = s3.requests().iter().filter(|request| request.method == "PUT" && request.status == 200).count();
    let (objects, uploads) = (s3.keys(BUCKET), s3.open_uploads());
    if !objects.is_empty() || uploads > 0 {
        problems.push(format!("{uploads} uploads and these objects are left: {objects:?}"));
    }
    // Past the capture of the test's output.
    let _ = writeln!(
        std::io::stderr(),
        "seed {seed}: {} kills ({} at start, {} in a request), {} cuts, {} other faults, {} outages of nodes, \
         {} processes ({} met a fault at start), {} epochs by loads, {staged} staged objects, {} transactions, \
         {} rows in the source, {} changes, {:.0} s",
        counts.kills.get(),
        counts.early.get(),
        counts.aimed.get(),
        counts.cuts.get(),
        counts.others.get(),
        counts.outages.get(),
        shell.lives(),
        counts.never_started.get(),
        loads.epochs(),
        writer.model.transactions(),
        writer.model.state.len(),
        writer.audited,
        begun.elapsed().as_secs_f64(),
    );
    std::fs::write(dir.join("loads.log"), loads.lines.join("\n")).expect("a log");
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    if std::env::var("KILL_KEEP").is_err() {
        std::fs::remove_dir_all(&dir).expect("is removed");
    }
}

/// What is in the directory of a job and should not be.
fn left_in(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
    let mut names: Vec<String> =
        entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    let ending = |extension: &str| names.iter().filter(|name| name.ends_with(extension)).count();
    let (records, marks) = (ending(".json"), ending(".done"));
    if records <= RETAIN && marks <= records && records + marks == names.len() {
        return vec![];
    }
    vec![format!("{} should hold {RETAIN} records: {names:?}", dir.display())]
}

/// What is wrong with the mirror.
fn compare_rows(what: &str, expected: &Model, found: &BTreeMap<u64, model::Values>) -> Vec<String> {
    let keys: std::collections::BTreeSet<&u64> = expected.state.keys().chain(found.keys()).collect();
    let differ = keys.into_iter().filter(|key| expected.state.get(key) != found.get(key));
    let lines: Vec<String> = differ
        .map(|key| format!("{what}: id {key} is {:?}, expected {:?}", found.get(key), expected.state.get(key)))
        .collect();
    let left_out = lines.len().saturating_sub(SHOWN);
    let mut shown: Vec<String> = lines.into_iter().take(SHOWN).collect();
    if left_out > 0 {
        shown.push(format!("{what}: {left_out} more rows differ"));
    }
    shown
}

/// What is wrong with the audit table; `stamps` are the commit timestamps of its rows.
fn compare_audit(table: &str, expected: &Model, found: &[(Entry, Option<u64>)]) -> Vec<String> {
    let entries: Vec<Entry> = found.iter().map(|(entry, _)| entry.clone()).collect();
    let audit = expected.audit(&entries);
    if audit.wrong.is_empty() {
        return vec![];
    }
    let mut lines = vec![format!(
        "{table}: {} rows lost, {} doubled, of a snapshot after transaction {}",
        audit.lost(),
        audit.doubled(),
        audit.snapshot_after
    )];
    for (entry, count) in audit.wrong.iter().take(SHOWN) {
        let stamps: Vec<String> = found
            .iter()
            .filter(|(other, _)| other.id == entry.id && other.n == entry.n)
            .map(|(other, tso)| format!("{} at tso {tso:?}", other.kind))
            .collect();
        let what = if *count > 0 { "too often" } else { "missing" };
        lines.push(format!("{table}: {entry} is {what} ({count:+}); of this row there are {stamps:?}"));
    }
    lines
}
