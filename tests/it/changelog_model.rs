//! Random changes, random reads: what was read, applied to an empty map, is the table; and it is what an independent
//! model of each increment type says.

use std::collections::BTreeMap;
use std::io::Write as _;

use doris_sandbox::{Profile, Site};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use crate::timed::{T0, Timed};

/// Tables per run, each with its own changes and reads.
const SEEDS: u64 = 500;
/// Seeds that share a sandbox.
const SEEDS_PER_SANDBOX: u64 = 50;

/// What one transaction does.
#[derive(Debug, Clone)]
enum Op {
    Upsert(Vec<(i32, u8)>),
    Delete(Vec<i32>),
    /// A key changes: the row is deleted and written under another key, in one transaction each.
    Rekey(i32, i32),
}

#[derive(Debug, Clone)]
struct Case {
    /// Pause before each transaction in milliseconds, and what it does.
    ops: Vec<(i64, Op)>,
    /// Seconds after the start at which a reader ends and another goes on.
    cuts: Vec<i64>,
    max_window_s: u64,
    increment: usize,
}

fn case() -> impl Strategy<Value = Case> {
    let key = 0..6i32;
    let op = prop_oneof![
        4 => prop::collection::vec((key.clone(), any::<u8>()), 1..4).prop_map(Op::Upsert),
        2 => prop::collection::vec(key.clone(), 1..3).prop_map(Op::Delete),
        1 => (key.clone(), key).prop_map(|(from, to)| Op::Rekey(from, to)),
    ];
    // Whole seconds and their neighbours are where windows meet.
    let pause = prop_oneof![Just(0), Just(1), Just(999), Just(1000), Just(1001), 0..4000i64];
    (prop::collection::vec((pause, op), 3..14), prop::collection::vec(1..30i64, 0..3), 1..12u64, 0..3usize)
        .prop_map(|(ops, cuts, max_window_s, increment)| Case { ops, cuts, max_window_s, increment })
}

/// A committed change of one key: its instant, and the value before and after.
#[derive(Debug, Clone)]
struct Change {
    at_ms: i64,
    key: i32,
    before: Option<u8>,
    after: Option<u8>,
}

/// Applies a case to the table and to the model.
async fn apply(timed: &mut Timed, table: &str, case: &Case, mut now_ms: i64) -> (Vec<Change>, BTreeMap<i32, u8>, i64) {
    let mut state: BTreeMap<i32, u8> = BTreeMap::new();
    let mut changes = Vec::new();
    let mut write = |at_ms, key, after: Option<u8>| {
        let before = match after {
            Some(value) => state.insert(key, value),
            None => state.remove(&key),
        };
        if before.is_some() || after.is_some() {
            changes.push(Change { at_ms, key, before, after });
        }
    };
    for (pause, op) in &case.ops {
        now_ms += pause;
        timed.at(now_ms);
        let statements = match op {
            Op::Upsert(rows) => {
                // One transaction writes each key once: of several rows the last wins.
                let last: BTreeMap<i32, u8> = rows.iter().copied().collect();
                last.iter().for_each(|(key, value)| write(now_ms, *key, Some(*value)));
                let values: Vec<String> = last.iter().map(|(key, value)| format!("({key}, '{value}')")).collect();
                vec![format!("INSERT INTO {table} VALUES {}", values.join(", "))]
            }
            Op::Delete(keys) => {
                keys.iter().for_each(|key| write(now_ms, *key, None));
                let keys: Vec<String> = keys.iter().map(i32::to_string).collect();
                vec![format!("DELETE FROM {table} WHERE id IN ({})", keys.join(", "))]
            }
            Op::Rekey(from, to) => {
                write(now_ms, *from, None);
                write(now_ms, *to, Some(7));
                vec![
                    format!("DELETE FROM {table} WHERE id = {from}"),
                    format!("INSERT INTO {table} VALUES ({to}, '7')"),
                ]
            }
        };
        for statement in statements {
            timed.cluster.doris(&statement).await;
        }
    }
    (changes, state, now_ms)
}

/// The rows that `changes` of one window give, as `kind key value`, sorted: rows of one window and of other keys have no
/// order that matters.
fn expected(profile: Profile, increment: usize, changes: &[&Change]) -> Vec<String> {
    let mut rows = Vec::new();
    let mut row = |kind: &str, key: i32, value: Option<u8>| {
        rows.push(format!("{kind} {key} {}", value.map_or_else(|| "NULL".to_string(), |value| value.to_string())));
    };
    match increment {
        0 => {
            for change in changes {
                match (change.before, change.after) {
                    (None, after) => row("+I", change.key, after),
                    (before, None) => row("-D", change.key, before),
                    (before, after) => {
                        row("-U", change.key, before);
                        row("+U", change.key, after);
                    }
                }
            }
        }
        1 => {
            let keys: std::collections::BTreeSet<i32> = changes.iter().map(|change| change.key).collect();
            for key in keys {
                let of_key: Vec<_> = changes.iter().filter(|change| change.key == key).collect();
                let (first, last) = (of_key[0].before, of_key[of_key.len() - 1].after);
                match (first, last) {
                    (None, None) => {}
                    (None, after) => row("+I", key, after),
                    // Older servers give the row as it was just before it was deleted.
                    (_, None) if profile == Profile::V5_0Binlog => row("-D", key, of_key[of_key.len() - 1].before),
                    (before, None) => row("-D", key, before),
                    // Newer servers drop a pair of equal rows.
                    (before, after) if before == after && profile != Profile::V5_0Binlog => {}
                    (before, after) => {
                        row("-U", key, before);
                        row("+U", key, after);
                    }
                }
            }
        }
        _ => changes
            .iter()
            .filter(|change| change.before.is_none())
            .for_each(|change| row("+I", change.key, change.after)),
    }
    rows.sort();
    rows
}

/// Windows that the server was asked for, as (start, end) in epoch milliseconds.
fn windows(timed: &Timed, table: &str) -> Vec<(i64, i64)> {
    let bound = |line: &str, key: &str| {
        let line = line.to_ascii_lowercase();
        let from = line.find(&format!("'{key}' = '")).expect("a window has bounds") + key.len() + 6;
        chrono_ms(&line[from..from + 19])
    };
    let sent = timed.cluster.server().requests().matching(Site::FeFlight, "SELECT `id`, `v`, `__DORIS");
    let name = table.rsplit('.').next().expect("table");
    let mut windows: Vec<(i64, i64)> = sent
        .iter()
        .filter(|request| request.target.contains(&format!("`{name}`@incr")))
        .map(|request| (bound(&request.target, "starttimestamp"), bound(&request.target, "endtimestamp")))
        .collect();
    windows.dedup();
    windows
}

/// `yyyy-MM-dd HH:mm:ss` of 2026-01-01 in UTC as epoch milliseconds.
fn chrono_ms(text: &str) -> i64 {
    let number = |from: usize, to: usize| text[from..to].parse::<i64>().expect("digits");
    assert!(text.starts_with("2026-01-0"), "{text}");
    let day_s = (number(8, 10) - 1) * 86_400;
    let second = day_s + number(11, 13) * 3600 + number(14, 16) * 60 + number(17, 19);
    T0 + (second - 36_000) * 1000
}

fn text_of(ms: i64) -> String {
    let second = (ms - T0) / 1000 + 36_000;
    format!("2026-01-{:02} {:02}:{:02}:{:02}", second / 86_400 + 1, second / 3600 % 24, second / 60 % 60, second % 60)
}

async fn check(timed: &mut Timed, profile: Profile, seed: u64, case: &Case, start_ms: i64) -> i64 {
    timed.cluster.doris("DROP TABLE IF EXISTS {db}.t").await;
    timed.cluster.changing_table("t", "id INT NOT NULL, v VARCHAR(20)").await;
    let table = timed.cluster.table("t");
    timed.cluster.server().requests().clear();
    // An older server leaves the first millisecond out of net changes.
    let (changes, state, last_ms) = apply(timed, &table, case, start_ms + 1).await;
    let end_ms = (last_ms / 1000 + 2) * 1000;
    timed.at(end_ms + 5_000);
    let increment = ["detail", "min_delta", "append_only"][case.increment];
    let mut bounds: Vec<i64> = case.cuts.iter().map(|cut| start_ms + cut * 1000).filter(|cut| *cut < end_ms).collect();
    bounds.extend([start_ms, end_ms]);
    bounds.sort_unstable();
    bounds.dedup();
    let mut mirror: BTreeMap<i32, String> = BTreeMap::new();
    let mut all = Vec::new();
    for (read, segment) in bounds.windows(2).enumerate() {
        let (from, to) = (text_of(segment[0]), text_of(segment[1]));
        let longest = format!("{}s", case.max_window_s);
        let name = format!("changes_{seed}_{read}");
        let options = [
            ("source.scan.mode", "from-timestamp"),
            ("source.scan.timestamp", from.as_str()),
            ("source.scan.bounded-mode", "timestamp"),
            ("source.scan.bounded-timestamp", to.as_str()),
            ("source.changelog.max-window", longest.as_str()),
            ("source.changelog.increment-type", increment),
        ];
        timed.declare(&name, &options).await;
        for line in timed.rows(&format!("SELECT __change_kind, id, v FROM {name}")).await {
            let cells: Vec<&str> = line.split(" | ").collect();
            let key: i32 = cells[1].parse().expect("key");
            match cells[0] {
                "+I" | "+U" => drop(mirror.insert(key, cells[2].to_string())),
                _ => drop(mirror.remove(&key)),
            }
            all.push(cells.join(" "));
        }
    }
    let context = format!("seed {seed}, {profile}, {increment}: {case:?}");
    if increment != "append_only" {
        let state: BTreeMap<i32, String> = state.into_iter().map(|(key, value)| (key, value.to_string())).collect();
        assert_eq!(mirror, state, "{context}");
    }
    // Each type by window; all but net changes are the same however the time is cut.
    let cuts = match increment {
        "min_delta" => windows(timed, &table),
        _ => vec![(start_ms, end_ms)],
    };
    let mut wanted = Vec::new();
    for (from, to) in cuts {
        // Cuts that the reader chose itself have no commit in their first millisecond; at those of its user the
        // server's rule decides to which side of a cut net changes go.
        let later = i64::from(increment == "min_delta" && profile == Profile::V5_0Binlog);
        let window = from + later..to + later;
        let inside: Vec<&Change> = changes.iter().filter(|change| window.contains(&change.at_ms)).collect();
        wanted.extend(expected(profile, case.increment, &inside));
    }
    wanted.sort();
    let mut found = all.clone();
    found.sort();
    assert_eq!(found, wanted, "{context}");
    end_ms
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_read_is_what_was_changed() {
    let mut runs = Vec::new();
    for profile in [Profile::V5_0Changelog, Profile::V5_0Binlog] {
        runs.push(tokio::spawn(async move {
            let mut seeds = 0;
            for sandbox in 0..SEEDS / 2 / SEEDS_PER_SANDBOX {
                let mut timed = Timed::start(profile, "UTC", T0).await;
                let mut start_ms = T0 + 10_000;
                for number in 0..SEEDS_PER_SANDBOX {
                    let seed = sandbox * SEEDS_PER_SANDBOX + number;
                    let mut bytes = [0; 32];
                    bytes[..8].copy_from_slice(&seed.to_le_bytes());
                    bytes[8] = profile as u8;
                    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
                    let case = case()
                        .new_tree(&mut TestRunner::new_with_rng(Config::default(), rng))
                        .expect("a case")
                        .current();
                    timed.at(start_ms);
                    start_ms = check(&mut timed, profile, seed, &case, start_ms).await + 10_000;
                    seeds += 1;
                }
            }
            seeds
        }));
    }
    let mut seeds = 0;
    for run in runs {
        seeds += run.await.expect("a run ends");
    }
    // Not captured by the test harness.
    writeln!(std::io::stdout(), "changelog_model: {seeds} seeds").expect("stdout");
    assert_eq!(seeds, SEEDS);
}
