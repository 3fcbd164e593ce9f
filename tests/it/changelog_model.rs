//! Random changes, random reads: what was read, applied to an empty map, is the table; and it is what an independent
//! model of each increment type says.

use std::collections::BTreeMap;
use std::io::Write as _;

use doris_sandbox::Profile;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use crate::timed::{Follower, T0, Timed, asked, utc};

/// Tables per run, each with its own changes and reads.
const SEEDS: u64 = 500;
/// Seeds that share a sandbox.
const SEEDS_PER_SANDBOX: u64 = 50;

/// A row without its key: `v` and `w`.
type Values = (Option<u8>, Option<u8>);

/// What one transaction does.
#[derive(Debug, Clone)]
enum Op {
    Upsert(Vec<(i32, u8)>),
    Delete(Vec<i32>),
    /// A key changes: the row is deleted and written under another key, in one transaction each.
    Rekey(i32, i32),
    /// `UPDATE` of one column.
    Update(i32, u8),
    /// Rows with one column of two: the other keeps its value, or is NULL in a new row.
    Partial(i32, u8),
    /// Several statements in one transaction.
    Together(Vec<(i32, u8)>),
}

/// What a reader that follows the changes does behind a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// Nothing: the next poll finds more.
    Wait,
    /// It polls.
    Poll,
    /// It is stopped, and another one goes on from the position that it kept.
    Restart,
    /// It is dropped; what it had not published comes again.
    Kill,
}

#[derive(Debug, Clone)]
struct Case {
    /// Pause before each transaction in milliseconds, and what it does.
    ops: Vec<(i64, Op)>,
    /// Seconds after the start at which a reader ends and another goes on.
    cuts: Vec<i64>,
    max_window_s: u64,
    increment: usize,
    /// Steps of a reader that follows the changes while they are made; `None`: the changes are read afterwards, in the
    /// bounded reads that the cuts make.
    steps: Option<Vec<Step>>,
}

fn case() -> impl Strategy<Value = Case> {
    let key = 0..6i32;
    let op = prop_oneof![
        4 => prop::collection::vec((key.clone(), any::<u8>()), 1..4).prop_map(Op::Upsert),
        2 => prop::collection::vec(key.clone(), 1..3).prop_map(Op::Delete),
        1 => (key.clone(), key.clone()).prop_map(|(from, to)| Op::Rekey(from, to)),
        2 => (key.clone(), any::<u8>()).prop_map(|(key, value)| Op::Update(key, value)),
        2 => (key.clone(), any::<u8>()).prop_map(|(key, value)| Op::Partial(key, value)),
        1 => prop::collection::vec((key, any::<u8>()), 2..4).prop_map(Op::Together),
    ];
    let step =
        prop_oneof![3 => Just(Step::Wait), 3 => Just(Step::Poll), 1 => Just(Step::Restart), 1 => Just(Step::Kill)];
    // Whole seconds and their neighbours are where windows meet.
    let pause = prop_oneof![Just(0), Just(1), Just(999), Just(1000), Just(1001), 0..4000i64];
    let steps = prop::option::of(prop::collection::vec(step, 14));
    (prop::collection::vec((pause, op), 3..14), prop::collection::vec(1..30i64, 0..3), 1..12u64, 0..3usize, steps)
        .prop_map(|(ops, cuts, max_window_s, increment, steps)| {
            // Where windows of net changes end depends on the commits around: those are read afterwards.
            let steps = steps.filter(|_| increment != 1);
            Case { ops, cuts, max_window_s, increment, steps }
        })
}

/// A committed change of one key: its instant, and the value before and after.
#[derive(Debug, Clone)]
struct Change {
    at_ms: i64,
    key: i32,
    before: Option<Values>,
    after: Option<Values>,
}

/// The table and what is known of it.
struct Model {
    table: String,
    now_ms: i64,
    state: BTreeMap<i32, Values>,
    changes: Vec<Change>,
}

impl Model {
    fn write(&mut self, key: i32, after: Option<Values>) {
        let before = match after {
            Some(values) => self.state.insert(key, values),
            None => self.state.remove(&key),
        };
        if before.is_some() || after.is_some() {
            self.changes.push(Change { at_ms: self.now_ms, key, before, after });
        }
    }

    /// Applies a step to the table and here.
    async fn apply(&mut self, timed: &mut Timed, pause: i64, op: &Op) {
        self.now_ms += pause;
        timed.at(self.now_ms);
        let table = self.table.clone();
        let row = |(key, value): (&i32, &u8)| format!("({key}, '{value}', '{value}')");
        // One transaction writes each key once: of several rows the last wins.
        let last = |rows: &[(i32, u8)]| rows.iter().copied().collect::<BTreeMap<i32, u8>>();
        let statements = match op {
            Op::Upsert(rows) => {
                let rows = last(rows);
                rows.iter().for_each(|(key, value)| self.write(*key, Some((Some(*value), Some(*value)))));
                vec![format!("INSERT INTO {table} VALUES {}", rows.iter().map(row).collect::<Vec<_>>().join(", "))]
            }
            Op::Together(rows) => {
                let rows = last(rows);
                rows.iter().for_each(|(key, value)| self.write(*key, Some((Some(*value), Some(*value)))));
                let inserts: Vec<String> =
                    rows.iter().map(|pair| format!("INSERT INTO {table} VALUES {}", row(pair))).collect();
                vec![format!("BEGIN; {}; COMMIT", inserts.join("; "))]
            }
            Op::Delete(keys) => {
                keys.iter().for_each(|key| self.write(*key, None));
                let keys: Vec<String> = keys.iter().map(i32::to_string).collect();
                vec![format!("DELETE FROM {table} WHERE id IN ({})", keys.join(", "))]
            }
            Op::Rekey(from, to) => {
                self.write(*from, None);
                self.write(*to, Some((Some(7), Some(7))));
                vec![
                    format!("DELETE FROM {table} WHERE id = {from}"),
                    format!("INSERT INTO {table} VALUES ({to}, '7', '7')"),
                ]
            }
            Op::Update(key, value) => {
                if let Some((_, w)) = self.state.get(key).copied() {
                    self.write(*key, Some((Some(*value), w)));
                }
                vec![format!("UPDATE {table} SET v = '{value}' WHERE id = {key}")]
            }
            Op::Partial(key, value) => {
                let v = self.state.get(key).and_then(|(v, _)| *v);
                self.write(*key, Some((v, Some(*value))));
                vec![format!(
                    "SET enable_unique_key_partial_update = true; SET enable_insert_strict = false;
                     INSERT INTO {table} (id, w) VALUES ({key}, '{value}')"
                )]
            }
        };
        for statement in statements {
            timed.cluster.doris(&statement).await;
        }
    }

    /// What the changes of one window give.
    fn rows_between(&self, profile: Profile, increment: usize, from_ms: i64, to_ms: i64) -> Vec<String> {
        let inside: Vec<&Change> = self.changes.iter().filter(|c| (from_ms..to_ms).contains(&c.at_ms)).collect();
        expected(profile, increment, &inside)
    }
}

/// The rows that `changes` of one window give, as `kind key value`, sorted: rows of one window and of other keys have no
/// order that matters.
fn expected(profile: Profile, increment: usize, changes: &[&Change]) -> Vec<String> {
    let mut rows = Vec::new();
    let cell = |value: Option<u8>| value.map_or_else(|| "NULL".to_string(), |value| value.to_string());
    let mut row = |kind: &str, key: i32, values: Option<Values>| {
        let (v, w) = values.unwrap_or_default();
        rows.push(format!("{kind} {key} {} {}", cell(v), cell(w)));
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
fn windows(timed: &Timed) -> Vec<(i64, i64)> {
    let asked = asked(timed.cluster.server(), "t", 0).into_iter();
    let mut windows: Vec<(i64, i64)> = asked.map(|window| (window.start_ms, window.end_ms)).collect();
    windows.dedup();
    windows
}

/// What a mirror of the table holds, and all rows that it was given.
#[derive(Default)]
struct Mirror {
    state: BTreeMap<i32, String>,
    rows: Vec<String>,
}

impl Mirror {
    fn take(&mut self, lines: Vec<String>) {
        for line in lines {
            let cells: Vec<&str> = line.split(" | ").collect();
            let key: i32 = cells[1].parse().expect("key");
            match cells[0] {
                "+I" | "+U" => drop(self.state.insert(key, cells[2..].join(" "))),
                _ => drop(self.state.remove(&key)),
            }
            self.rows.push(cells.join(" "));
        }
    }
}

/// Reads afterwards, in bounded reads that touch; gives the windows in which each type is to be told.
async fn read_afterwards(
    timed: &mut Timed,
    (profile, seed, case): (Profile, u64, &Case),
    (start_ms, end_ms): (i64, i64),
    mirror: &mut Mirror,
) -> Vec<(i64, i64)> {
    timed.at(end_ms + 5_000);
    let increment = INCREMENTS[case.increment];
    let mut bounds: Vec<i64> = case.cuts.iter().map(|cut| start_ms + cut * 1000).filter(|cut| *cut < end_ms).collect();
    bounds.extend([start_ms, end_ms]);
    bounds.sort_unstable();
    bounds.dedup();
    for (read, segment) in bounds.windows(2).enumerate() {
        let (from, to) = (utc(segment[0]), utc(segment[1]));
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
        mirror.take(timed.rows(&format!("SELECT __change_kind, id, v, w FROM {name}")).await);
    }
    // All but net changes are the same however the time is cut.
    let cuts = match increment {
        "min_delta" => windows(timed),
        _ => vec![(start_ms, end_ms)],
    };
    // Cuts that the reader chose itself have no commit in their first millisecond; at those of its user the
    // server's rule decides to which side of a cut net changes go.
    let later = i64::from(increment == "min_delta" && profile == Profile::V5_0Binlog);
    cuts.into_iter().map(|(from, to)| (from + later, to + later)).collect()
}

/// Follows the changes while they are made. True when a reader was dropped, so that rows may have come twice.
async fn follow(
    timed: &mut Timed,
    model: &mut Model,
    (profile, seed, case): (Profile, u64, &Case),
    (start_ms, steps): (i64, &[Step]),
    mirror: &mut Mirror,
) -> bool {
    let (from, longest) = (utc(start_ms), format!("{}s", case.max_window_s));
    let (offsets, consumer) = (timed.cluster.table("offsets"), format!("{profile}-{seed}"));
    let options = [
        ("source.scan.mode", "from-timestamp"),
        ("source.scan.timestamp", from.as_str()),
        ("source.changelog.max-window", longest.as_str()),
        ("source.changelog.increment-type", INCREMENTS[case.increment]),
        ("source.changelog.offset-table", offsets.as_str()),
        ("source.changelog.consumer-id", consumer.as_str()),
        Follower::PATIENT,
    ];
    let name = format!("followed_{seed}");
    timed.declare(&name, &options).await;
    let sql = format!("SELECT __change_kind, id, v, w FROM {name}");
    let mut reader: Option<Follower> = None;
    // From where rows are counted; `None` behind a reader that was dropped: what it had published is unknown.
    let (mut reached_ms, mut twice) = (Some(start_ms), false);
    let last = case.ops.len() - 1;
    for (number, (pause, op)) in case.ops.iter().enumerate() {
        model.apply(timed, *pause, op).await;
        let step = if number == last { Step::Poll } else { steps[number % steps.len()] };
        if step == Step::Wait {
            continue;
        }
        // Everything so far lies in seconds that are over.
        model.now_ms = (model.now_ms / 1000 + 2) * 1000 + 1;
        timed.at(model.now_ms);
        let end_ms = model.now_ms - 1;
        let rows = reached_ms.map_or(0, |from_ms| model.rows_between(profile, case.increment, from_ms, end_ms).len());
        let follower = match &mut reader {
            Some(follower) => {
                follower.poll();
                follower
            }
            // It polls when it starts.
            None => reader.insert(Follower::start(timed, &sql).await),
        };
        mirror.take(follower.reach(timed.cluster.server(), end_ms, rows).await);
        reached_ms = Some(end_ms);
        match step {
            Step::Restart => {
                if let Some(follower) = reader.take() {
                    mirror.take(follower.stop().await);
                }
            }
            Step::Kill => {
                twice = true;
                reader = None;
                reached_ms = None;
            }
            Step::Wait | Step::Poll => {}
        }
    }
    if let Some(follower) = reader {
        mirror.take(follower.stop().await);
    }
    twice
}

const INCREMENTS: [&str; 3] = ["detail", "min_delta", "append_only"];

async fn check(timed: &mut Timed, profile: Profile, seed: u64, case: &Case, start_ms: i64) -> i64 {
    timed.cluster.doris("DROP TABLE IF EXISTS {db}.t").await;
    timed.cluster.changing_table("t", "id INT NOT NULL, v VARCHAR(20), w VARCHAR(20)").await;
    timed.cluster.server().requests().clear();
    let mut model =
        // An older server leaves the first millisecond out of net changes.
        Model { table: timed.cluster.table("t"), now_ms: start_ms + 1, state: BTreeMap::new(), changes: Vec::new() };
    let mut mirror = Mirror::default();
    let increment = INCREMENTS[case.increment];
    let context = format!("seed {seed}, {profile}, {increment}: {case:?}");
    let (cuts, twice) = match &case.steps {
        Some(steps) => {
            let twice = follow(timed, &mut model, (profile, seed, case), (start_ms, steps), &mut mirror).await;
            (vec![(start_ms, i64::MAX)], twice)
        }
        None => {
            for (pause, op) in &case.ops {
                model.apply(timed, *pause, op).await;
            }
            let end_ms = (model.now_ms / 1000 + 2) * 1000;
            (read_afterwards(timed, (profile, seed, case), (start_ms, end_ms), &mut mirror).await, false)
        }
    };
    if increment != "append_only" {
        let text = |value: Option<u8>| value.map_or_else(|| "NULL".to_string(), |value| value.to_string());
        let state: BTreeMap<i32, String> =
            model.state.iter().map(|(key, (v, w))| (*key, format!("{} {}", text(*v), text(*w)))).collect();
        assert_eq!(mirror.state, state, "{context}");
    }
    let mut wanted: Vec<String> =
        cuts.into_iter().flat_map(|(from, to)| model.rows_between(profile, case.increment, from, to)).collect();
    wanted.sort();
    let mut found = mirror.rows;
    found.sort();
    if twice {
        // At least once: nothing is missing, and nothing else came.
        found.dedup();
        wanted.dedup();
    }
    assert_eq!(found, wanted, "{context}");
    (timed.now_ms() / 1000 + 1) * 1000
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_read_is_what_was_changed() {
    // One seed again, alone: `CHANGELOG_MODEL_SEED=17`.
    let only: Option<u64> = std::env::var("CHANGELOG_MODEL_SEED").ok().map(|seed| seed.parse().expect("a number"));
    let mut runs = Vec::new();
    for profile in [Profile::V5_0Changelog, Profile::V5_0Binlog] {
        runs.push(tokio::spawn(async move {
            let mut seeds = 0;
            for sandbox in 0..SEEDS / 2 / SEEDS_PER_SANDBOX {
                let mut timed = Timed::start(profile, "UTC", T0).await;
                timed.cluster.offset_table().await;
                let mut start_ms = T0 + 10_000;
                for number in 0..SEEDS_PER_SANDBOX {
                    let seed = sandbox * SEEDS_PER_SANDBOX + number;
                    if only.is_some_and(|only| only != seed) {
                        continue;
                    }
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
    assert!(only.is_some() || seeds == SEEDS);
}
