use std::collections::BTreeMap;

use arrow::array::Int32Array;
use datafusion::error::DataFusionError;
use datafusion::execution::memory_pool::{GreedyMemoryPool, MemoryConsumer, MemoryPool};
use proptest::prelude::*;

use super::*;

/// A change: commit, key in the source, key in the target, kind.
type Change = (Option<i64>, i32, &'static str, &'static str);

fn batch(changes: &[Change]) -> RecordBatch {
    let columns: [(&str, ArrayRef); 4] = [
        ("id", Arc::new(changes.iter().map(|change| Some(change.1)).collect::<Int32Array>())),
        ("name", Arc::new(changes.iter().map(|change| Some(change.2)).collect::<StringArray>())),
        ("tso", Arc::new(changes.iter().map(|change| change.0).collect::<Int64Array>())),
        ("kind", Arc::new(changes.iter().map(|change| Some(change.3)).collect::<StringArray>())),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.map(|(name, values)| (name, values, true))).unwrap()
}

fn changes(batches: &[RecordBatch]) -> Vec<(Option<i64>, i32, String, String)> {
    let rows = batches.iter().flat_map(|batch| {
        (0..batch.num_rows()).map(|row| {
            let text = |column: usize| batch.column(column).as_string::<i32>().value(row).to_string();
            let id = batch.column(0).as_primitive::<arrow::datatypes::Int32Type>().value(row);
            (value(batch.column(2).as_primitive(), row), id, text(1), text(3))
        })
    });
    rows.collect()
}

fn order(limit: usize) -> (Arc<dyn MemoryPool>, CommitOrder) {
    let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(limit));
    let memory = MemoryConsumer::new("test").register(&pool);
    (pool, CommitOrder::new("db.t", CommitColumns { key: vec![0], tso: 2, kind: 3 }, memory))
}

/// What comes out of batches of so many rows.
fn through(input: &[Change], size: usize) -> Vec<RecordBatch> {
    let (pool, mut order) = order(1 << 24);
    let mut out = Vec::new();
    for part in input.chunks(size.max(1)) {
        out.extend(order.push(batch(part)).unwrap());
    }
    out.extend(order.finish().unwrap());
    assert!(!order.holds());
    assert_eq!(pool.reserved(), 0);
    out
}

#[test]
fn a_commit_gives_what_was_before_what_is() {
    const T: Option<i64> = Some(7);
    for (input, expected) in [
        // A swap.
        (
            vec![(T, 1, "a", "-U"), (T, 1, "b", "+U"), (T, 2, "b", "-U"), (T, 2, "a", "+U")],
            vec![(T, 1, "a", "-U"), (T, 2, "b", "-U"), (T, 1, "b", "+U"), (T, 2, "a", "+U")],
        ),
        // A key that is taken over from a row that goes, whichever comes first.
        (vec![(T, 1, "b", "+I"), (T, 2, "b", "-D")], vec![(T, 2, "b", "-D"), (T, 1, "b", "+I")]),
        // A row that moves twice: it never was `b` for anybody else.
        (
            vec![(T, 1, "a", "-U"), (T, 1, "b", "+U"), (T, 1, "b", "-U"), (T, 1, "c", "+U")],
            vec![(T, 1, "a", "-U"), (T, 1, "c", "+U")],
        ),
        // One that is changed and then goes is gone, also for a target that skips the old halves of updates.
        (vec![(T, 1, "a", "-U"), (T, 1, "a", "+U"), (T, 1, "a", "-D")], vec![(T, 1, "a", "-D")]),
        (
            vec![(T, 1, "a", "-U"), (T, 1, "b", "+U"), (T, 1, "b", "-D"), (T, 2, "b", "-U"), (T, 2, "a", "+U")],
            vec![(T, 1, "a", "-D"), (T, 2, "b", "-U"), (T, 2, "a", "+U")],
        ),
        // One that comes and goes leaves nothing, one that goes and comes back is replaced.
        (vec![(T, 1, "a", "+I"), (T, 1, "a", "-D"), (T, 2, "b", "+I")], vec![(T, 2, "b", "+I")]),
        (
            vec![(T, 2, "x", "+I"), (T, 1, "a", "-D"), (T, 1, "b", "+I")],
            vec![(T, 1, "a", "-D"), (T, 2, "x", "+I"), (T, 1, "b", "+I")],
        ),
        // Other commits are not touched, nor are rows of a snapshot.
        (
            vec![(Some(1), 1, "a", "-U"), (Some(1), 1, "b", "+U"), (Some(2), 2, "b", "-U"), (Some(2), 2, "a", "+U")],
            vec![(Some(1), 1, "a", "-U"), (Some(1), 1, "b", "+U"), (Some(2), 2, "b", "-U"), (Some(2), 2, "a", "+U")],
        ),
        (
            vec![(None, 1, "a", "+I"), (None, 1, "a", "+I"), (T, 1, "b", "+I"), (T, 2, "b", "-D")],
            vec![(None, 1, "a", "+I"), (None, 1, "a", "+I"), (T, 2, "b", "-D"), (T, 1, "b", "+I")],
        ),
    ] {
        for size in 1..=input.len() {
            assert_eq!(changes(&through(&input, size)), changes(&[batch(&expected)]), "{size} of {input:?}");
        }
    }
}

#[test]
fn rows_in_order_pass_as_they_came() {
    let input = [(None, 1, "a", "+I"), (Some(1), 2, "b", "+I"), (Some(2), 2, "b", "-U"), (Some(2), 2, "c", "+U")];
    let (pool, mut order) = order(1 << 24);
    let ready = order.push(batch(&input)).unwrap();
    assert_eq!(ready, [batch(&input[..2])]);
    assert!(order.holds() && pool.reserved() > 0, "the last commit may go on");
    assert_eq!(order.finish().unwrap(), [batch(&input[2..])]);
    assert!(order.push(batch(&[])).unwrap().is_empty());
    // A snapshot is never held.
    assert_eq!(order.push(batch(&input[..1])).unwrap(), [batch(&input[..1])]);
    assert!(!order.holds());
}

#[test]
fn a_commit_that_is_larger_than_memory_is_an_error_with_its_table() {
    let (_pool, mut order) = order(1 << 12);
    let part: Vec<Change> = (0..100).map(|id| (Some(7), id, "a", "+I")).collect();
    let error = (0..100).find_map(|_| order.push(batch(&part)).err()).unwrap();
    assert!(matches!(error.find_root(), DataFusionError::ResourcesExhausted(_)), "{error}");
    let told = error.to_string();
    assert!(told.contains("commit 7 of db.t") && told.contains("key columns of db.t"), "{told}");
}

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

/// Commits over rows 0 to 3, after each of which their names are all different (or the row is gone): each is a list of rows
/// with their new names, in the order in which they are changed. A row may be changed several times.
fn commits() -> impl Strategy<Value = Vec<Vec<(i32, Option<&'static str>)>>> {
    let between = prop::collection::vec((0..4_i32, prop::option::of(prop::sample::select(&NAMES[..]))), 0..4);
    let last = (
        Just(NAMES.to_vec()).prop_shuffle(),
        prop::collection::vec(any::<bool>(), 4),
        Just(vec![0, 1, 2, 3]).prop_shuffle(),
    );
    let commit = (between, last).prop_map(|(mut steps, (names, there, ids))| {
        steps.extend(ids.into_iter().map(|id: i32| (id, there[id as usize].then(|| names[id as usize]))));
        steps
    });
    prop::collection::vec(commit, 1..6)
}

proptest! {
    /// Written by name, in the order given, the table is the source after each commit, whatever the batches.
    #[test]
    fn a_mirror_by_another_key_is_the_source_after_each_commit(commits in commits(), size in 1..20_usize) {
        let mut source: BTreeMap<i32, &'static str> = BTreeMap::new();
        let mut input: Vec<Change> = Vec::new();
        let mut states = Vec::new();
        for (tso, steps) in (0_i64..).zip(commits) {
            for (id, name) in steps {
                match (source.get(&id).copied(), name) {
                    (None, None) => {}
                    (None, Some(new)) => input.push((Some(tso), id, new, "+I")),
                    (Some(old), None) => input.push((Some(tso), id, old, "-D")),
                    (Some(old), Some(new)) => {
                        input.push((Some(tso), id, old, "-U"));
                        input.push((Some(tso), id, new, "+U"));
                    }
                }
                match name {
                    Some(name) => source.insert(id, name),
                    None => source.remove(&id),
                };
            }
            states.push((tso, source.iter().map(|(id, name)| (name.to_string(), *id)).collect::<BTreeMap<_, _>>()));
        }
        let given = changes(&through(&input, size));
        let mut mirror: BTreeMap<String, i32> = BTreeMap::new();
        let mut given = given.into_iter().peekable();
        for (tso, state) in states {
            while let Some((_, id, name, kind)) = given.next_if(|change| change.0 <= Some(tso)) {
                match kind.starts_with('-') {
                    true => mirror.remove(&name),
                    false => mirror.insert(name, id),
                };
            }
            prop_assert_eq!(&mirror, &state);
        }
        prop_assert!(given.next().is_none());
    }
}
