//! Conformance of the sandbox: statements and requests with the answers and refusals that the protocol's reference
//! gives, in `cases/*.slt`, grouped by the sections of the reference. [`record`] describes the format.
//!
//! What a case expects comes from the reference, never from the sandbox. `CONFORMANCE=name` runs only the files whose
//! name contains it.

mod body;
mod flight;
mod http;
mod matching;
mod mysql;
mod record;
mod run;
mod wire;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use futures::StreamExt;

use self::run::Outcome;

/// Sandboxes at work at the same time.
const AT_ONCE: usize = 4;

#[derive(Default)]
struct Count {
    cases: usize,
    runs: usize,
    gaps: usize,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_sandbox_answers_as_the_reference_says() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/conformance/cases");
    let filter = std::env::var("CONFORMANCE").unwrap_or_default();
    let files: Vec<_> = record::read_all(&directory)
        .into_iter()
        .filter(|file| file.path.file_name().is_some_and(|name| name.to_string_lossy().contains(&filter)))
        .map(Arc::new)
        .collect();
    let mut counts: BTreeMap<String, Count> = BTreeMap::new();
    for record in files.iter().flat_map(|file| &file.records).filter(|record| record.counts()) {
        let count = counts.entry(record.section.clone()).or_default();
        if record.gap.is_some() {
            count.gaps += 1;
        } else {
            count.cases += 1;
        }
    }
    let runs = files.iter().flat_map(|file| file.profiles.iter().map(|profile| (Arc::clone(file), *profile)));
    let outcomes: Vec<Vec<Outcome>> = futures::stream::iter(runs.map(|(file, profile)| run::file(file, profile)))
        .buffer_unordered(AT_ONCE)
        .collect()
        .await;
    let mut failures: BTreeMap<String, (Vec<String>, String)> = BTreeMap::new();
    let (mut closed, mut open) = (BTreeSet::new(), BTreeSet::new());
    for outcome in outcomes.into_iter().flatten() {
        closed.extend(outcome.closed);
        open.extend(outcome.open);
        if outcome.counts {
            counts.entry(outcome.section).or_default().runs += 1;
        }
        if let Some(failure) = outcome.failure {
            let (profiles, _) = failures.entry(failure.place).or_insert_with(|| (vec![], failure.error));
            profiles.push(failure.profile.to_string());
        }
    }
    report(&counts, &closed - &open);
    let differ: Vec<String> = failures
        .iter()
        .map(|(place, (profiles, error))| format!("{place} ({})\n{error}\n", profiles.join(", ")))
        .collect();
    assert!(differ.is_empty(), "{} differ:\n\n{}", differ.len(), differ.join("\n"));
}

/// Prints past the harness, which keeps the output of tests that pass.
fn report(counts: &BTreeMap<String, Count>, closed: BTreeSet<String>) {
    let mut text = "\nconformance: section, cases, runs over profiles, known gaps\n".to_owned();
    let mut total = Count::default();
    for (section, count) in counts.iter().filter(|(section, _)| !section.is_empty()) {
        text.push_str(&format!("  {section:<6} {:>4} {:>5} {:>3}\n", count.cases, count.runs, count.gaps));
        total.cases += count.cases;
        total.runs += count.runs;
        total.gaps += count.gaps;
    }
    text.push_str(&format!("  total  {:>4} {:>5} {:>3}\n", total.cases, total.runs, total.gaps));
    for gap in closed {
        text.push_str(&format!("  no longer a gap: {gap}\n"));
    }
    std::io::stdout().write_all(text.as_bytes()).expect("standard output");
}
