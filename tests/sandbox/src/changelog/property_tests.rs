//! Random transactions, folded over random windows, against a model that knows nothing of batches.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::TryStreamExt;
use proptest::prelude::*;

use crate::engine::{Engine, EngineConfig, ManualClock, Profile, Protocol, StatementResult};
use crate::session::Session;
use crate::types::{TextStyle, text_value};

/// 2024-01-01 00:00:00 UTC.
const START_MS: i64 = 1_704_067_200_000;
const KEYS: u8 = 4;

/// What one transaction does to one key.
#[derive(Debug, Clone, Copy)]
enum Write {
    Put(u8, Option<u8>),
    Delete(u8),
}

/// Transactions, each in a second of its own.
fn transactions() -> impl Strategy<Value = Vec<Vec<Write>>> {
    let write = prop_oneof![
        3 => (0..KEYS, proptest::option::weighted(0.8, 0..3_u8)).prop_map(|(k, v)| Write::Put(k, v)),
        1 => (0..KEYS).prop_map(Write::Delete),
    ];
    proptest::collection::vec(proptest::collection::vec(write, 1..4), 1..9)
}

type Value = Option<u8>;

/// A change as the model keeps it: second, key, value before and after.
#[derive(Debug, Clone, Copy)]
struct Change {
    second: usize,
    key: u8,
    before: Option<Value>,
    after: Option<Value>,
}

/// The changes that transactions make: of several writes of a key in one transaction the last counts.
fn model(transactions: &[Vec<Write>]) -> Vec<Change> {
    let mut live: BTreeMap<u8, Value> = BTreeMap::new();
    let mut changes = Vec::new();
    for (second, writes) in transactions.iter().enumerate() {
        let mut last: BTreeMap<u8, Option<Value>> = BTreeMap::new();
        for write in writes {
            match *write {
                Write::Put(key, value) => last.insert(key, Some(value)),
                Write::Delete(key) => last.insert(key, None),
            };
        }
        for (key, after) in last {
            let before = live.get(&key).copied();
            if before.is_none() && after.is_none() {
                continue;
            }
            changes.push(Change { second, key, before, after });
            match after {
                Some(value) => live.insert(key, value),
                None => live.remove(&key),
            };
        }
    }
    changes
}

/// Rows of a window by the model: key, value, op; sorted.
fn expected(changes: &[Change], kind: &str, from: usize, to: usize, newest: bool) -> Vec<String> {
    let inside: Vec<Change> = changes.iter().copied().filter(|c| (from..to).contains(&c.second)).collect();
    let show = |key: u8, value: Value, op: u8| {
        format!("{key}|{}|{op}", value.map_or_else(|| "NULL".to_owned(), |v| v.to_string()))
    };
    let mut rows = Vec::new();
    if kind != "MIN_DELTA" {
        for c in &inside {
            match (c.before, c.after) {
                (None, Some(new)) => rows.push(show(c.key, new, 0)),
                _ if kind == "APPEND_ONLY" => {}
                (Some(old), None) => rows.push(show(c.key, old, 1)),
                (Some(old), Some(new)) => rows.extend([show(c.key, old, 2), show(c.key, new, 3)]),
                (None, None) => {}
            }
        }
    } else {
        for key in 0..KEYS {
            let of_key: Vec<&Change> = inside.iter().filter(|c| c.key == key).collect();
            let (Some(first), Some(last)) = (of_key.first(), of_key.last()) else { continue };
            match (first.before, last.after) {
                (None, None) => {}
                (None, Some(new)) => rows.push(show(key, new, 0)),
                (Some(old), None) => {
                    let old = if newest { old } else { last.before.expect("a delete has a row before it") };
                    rows.push(show(key, old, 1));
                }
                // A row of NULLs counts as changed.
                (Some(old), Some(new)) if newest && old == new && old.is_some() => {}
                (Some(old), Some(new)) => rows.extend([show(key, old, 2), show(key, new, 3)]),
            }
        }
    }
    rows.sort();
    rows
}

/// Live rows after the transactions before `second`.
fn live_at(changes: &[Change], second: usize) -> Vec<String> {
    let mut live: BTreeMap<u8, Value> = BTreeMap::new();
    for c in changes.iter().filter(|c| c.second < second) {
        match c.after {
            Some(value) => live.insert(c.key, value),
            None => live.remove(&c.key),
        };
    }
    live.into_iter().map(|(k, v)| format!("{k}|{}", v.map_or_else(|| "NULL".to_owned(), |v| v.to_string()))).collect()
}

async fn rows(session: &mut Session, sql: &str) -> Vec<String> {
    let result = session.execute(sql).await.expect(sql).pop();
    let Some(StatementResult::Rows { stream, types, .. }) = result else { panic!("{sql}: no rows") };
    let batches: Vec<_> = stream.try_collect().await.expect(sql);
    let mut out = Vec::new();
    for batch in &batches {
        for row in 0..batch.num_rows() {
            let cell = |(c, ty)| text_value(c, row, ty, TextStyle::Mysql).unwrap_or_else(|| "NULL".to_owned());
            out.push(batch.columns().iter().map(|c| c.as_ref()).zip(&types).map(cell).collect::<Vec<_>>().join("|"));
        }
    }
    out.sort();
    out
}

/// The bound of a window at a second: transactions are committed in the middle of their seconds.
fn at(second: usize) -> String {
    format!("2024-01-01 00:00:{second:02}")
}

async fn check(profile: Profile, transactions: &[Vec<Write>], windows: &[(usize, usize)]) {
    let clock = Arc::new(ManualClock::new(START_MS));
    let engine = Engine::new(EngineConfig {
        profile,
        clock: Arc::clone(&clock) as _,
        time_zone: "UTC".to_owned(),
        ..EngineConfig::default()
    });
    let newest = profile == Profile::V5_0Changelog;
    let stem = if newest { "changelog" } else { "binlog" };
    let format = if newest { "" } else { "'binlog.format'='ROW'," };
    let mut session = engine.open_session("root", "127.0.0.1", Protocol::Http);
    session
        .execute(&format!(
            "CREATE DATABASE d; USE d; CREATE TABLE s (k INT, v INT) UNIQUE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 2 \
             PROPERTIES({format} '{stem}.enable'='true', '{stem}.need_historical_value'='true')"
        ))
        .await
        .unwrap();
    clock.advance(500);
    for writes in transactions {
        let values: Vec<String> = writes
            .iter()
            .map(|write| match write {
                Write::Put(k, Some(v)) => format!("({k}, {v}, 0)"),
                Write::Put(k, None) => format!("({k}, NULL, 0)"),
                Write::Delete(k) => format!("({k}, NULL, 1)"),
            })
            .collect();
        let sql = format!("INSERT INTO s (k, v, __DORIS_DELETE_SIGN__) VALUES {}", values.join(", "));
        session.execute(&sql).await.expect(&sql);
        clock.advance(1000);
    }
    let changes = model(transactions);
    let op = format!("__DORIS_{}_OP__", stem.to_uppercase());
    for (a, b) in windows {
        let (from, to) = (*a.min(b), *a.max(b));
        let (from, to) = (from.min(transactions.len()), to.min(transactions.len()));
        for kind in ["DETAIL", "APPEND_ONLY", "MIN_DELTA"] {
            let sql = format!(
                "SELECT k, v, {op} FROM s@incr('startTimestamp'='{}','endTimestamp'='{}','incrementType'='{kind}')",
                at(from),
                at(to)
            );
            assert_eq!(rows(&mut session, &sql).await, expected(&changes, kind, from, to, newest), "{profile} {sql}");
        }
        let sql = format!("SELECT k, v FROM s FOR TIME AS OF '{}'", at(to));
        assert_eq!(rows(&mut session, &sql).await, live_at(&changes, to), "{profile} {sql}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn windows_fold_as_the_model_does(
        transactions in transactions(),
        windows in proptest::collection::vec((0..10_usize, 0..10_usize), 1..4),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            for profile in [Profile::V5_0Changelog, Profile::V5_0Binlog] {
                check(profile, &transactions, &windows).await;
            }
        });
    }
}
