//! What the source, the mirror and the audit table must hold, from the statements alone: nothing here is read from a
//! server or shared with the client.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;

use crate::random::Random;

/// Keys are below this, so that most statements meet rows that are there, and deleted keys come again.
const KEYS: u64 = 600;

/// A row of the source without its key. `n` is the number of the statement that wrote it: no two versions of a row are
/// alike.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Values {
    pub v: Option<String>,
    pub n: u64,
}

/// Statements of one transaction.
#[derive(Debug, Clone)]
pub enum Op {
    /// `INSERT` of several rows, new ones and others.
    Insert(Vec<(u64, Values)>),
    /// `UPDATE` of a range of keys.
    Update {
        first: u64,
        last: u64,
        values: Values,
    },
    Delete(Vec<u64>),
    /// Several `INSERT`s in one transaction, which may meet the same keys: the last one counts.
    Together(Vec<Vec<(u64, Values)>>),
}

impl Op {
    pub fn random(random: &mut Random, n: u64) -> Self {
        let rows = |random: &mut Random, most: u64| -> Vec<(u64, Values)> {
            let keys: BTreeSet<u64> = (0..random.within(1..most)).map(|_| random.within(0..KEYS)).collect();
            keys.into_iter().map(|key| (key, values(random, n))).collect()
        };
        match random.within(0..10) {
            0..4 => Self::Insert(rows(random, 20)),
            4..6 => {
                let first = random.within(0..KEYS);
                Self::Update { first, last: first + random.within(0..30), values: values(random, n) }
            }
            6..8 => Self::Delete((0..random.within(1..20)).map(|_| random.within(0..KEYS)).collect()),
            _ => Self::Together((0..random.within(2..5)).map(|_| rows(random, 10)).collect()),
        }
    }

    /// The first rows: a snapshot of many tablets.
    pub fn seed(random: &mut Random) -> Self {
        Self::Insert((0..KEYS * 2 / 3).map(|key| (key, values(random, 0))).collect())
    }

    /// Its statements for Doris.
    pub fn sql(&self, table: &str) -> Vec<String> {
        let insert = |rows: &[(u64, Values)]| {
            let rows: Vec<String> =
                rows.iter().map(|(key, Values { v, n })| format!("({key}, {}, {n})", literal(v.as_deref()))).collect();
            format!("INSERT INTO {table} VALUES {}", rows.join(", "))
        };
        match self {
            Self::Insert(rows) => vec![insert(rows)],
            Self::Update { first, last, values: Values { v, n } } => {
                let v = literal(v.as_deref());
                vec![format!("UPDATE {table} SET v = {v}, n = {n} WHERE id BETWEEN {first} AND {last}")]
            }
            Self::Delete(keys) => {
                let keys: Vec<String> = keys.iter().map(u64::to_string).collect();
                vec![format!("DELETE FROM {table} WHERE id IN ({})", keys.join(", "))]
            }
            Self::Together(parts) => {
                let mut statements = vec!["BEGIN".to_string()];
                statements.extend(parts.iter().map(|rows| insert(rows)));
                statements.push("COMMIT".to_string());
                statements
            }
        }
    }

    /// The rows that it leaves, by key; `None` = deleted.
    fn rows(&self, state: &BTreeMap<u64, Values>) -> BTreeMap<u64, Option<Values>> {
        match self {
            Self::Insert(rows) => rows.iter().map(|(key, values)| (*key, Some(values.clone()))).collect(),
            Self::Update { first, last, values } => {
                state.range(first..=last).map(|(key, _)| (*key, Some(values.clone()))).collect()
            }
            Self::Delete(keys) => keys.iter().map(|key| (*key, None)).collect(),
            Self::Together(parts) => parts.iter().flatten().map(|(key, values)| (*key, Some(values.clone()))).collect(),
        }
    }
}

/// Texts that each load has to quote in its own way, and NULL.
fn values(random: &mut Random, n: u64) -> Values {
    let v = match random.within(0..8) {
        0 => None,
        1 => Some(String::new()),
        2 => Some(format!("a,b\t\"{}\"\n\\N", random.within(0..1000))),
        3 => Some("é".repeat(random.within(1..60) as usize)),
        _ => Some(format!("v{}", random.within(0..1_000_000))),
    };
    Values { v, n }
}

fn literal(text: Option<&str>) -> String {
    text.map_or("NULL".to_string(), |text| format!("'{}'", text.replace('\\', "\\\\").replace('\'', "''")))
}

/// A row of the audit table.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Entry {
    pub id: u64,
    pub n: u64,
    pub kind: &'static str,
    pub v: Option<String>,
}

impl Entry {
    fn new(kind: &'static str, id: u64, values: &Values) -> Self {
        Self { id, n: values.n, kind, v: values.v.clone() }
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} id {} n {} v {:?}", self.kind, self.id, self.n, self.v)
    }
}

/// A committed change of one key.
#[derive(Debug, Clone)]
struct Change {
    id: u64,
    before: Option<Values>,
    after: Option<Values>,
}

impl Change {
    /// What a changelog with old values says of it.
    fn entries(&self) -> Vec<Entry> {
        let entry = |kind, values: &Values| Entry::new(kind, self.id, values);
        match (&self.before, &self.after) {
            (None, None) => vec![],
            (None, Some(after)) => vec![entry("+I", after)],
            (Some(before), None) => vec![entry("-D", before)],
            (Some(before), Some(after)) => vec![entry("-U", before), entry("+U", after)],
        }
    }
}

/// The source and its history.
#[derive(Debug, Default)]
pub struct Model {
    pub state: BTreeMap<u64, Values>,
    transactions: Vec<Vec<Change>>,
}

impl Model {
    /// Notes a transaction that was committed.
    pub fn committed(&mut self, op: &Op) {
        let mut changes = Vec::new();
        for (id, after) in op.rows(&self.state) {
            let before = match &after {
                Some(values) => self.state.insert(id, values.clone()),
                None => self.state.remove(&id),
            };
            if before.is_some() || after.is_some() {
                changes.push(Change { id, before, after });
            }
        }
        self.transactions.push(changes);
    }

    pub fn transactions(&self) -> usize {
        self.transactions.len()
    }

    /// What is wrong with the audit table, whose rows may begin with a snapshot of any instant: as inserts the rows of
    /// then, after that every change.
    pub fn audit(&self, audit: &[Entry]) -> Audit {
        let mut difference = Difference::default();
        audit.iter().for_each(|entry| difference.add(entry.clone(), 1));
        let changes = self.transactions.iter().flatten();
        changes.flat_map(Change::entries).for_each(|entry| difference.add(entry, -1));
        let mut best = Audit { snapshot_after: 0, wrong: difference.wrong() };
        for (number, transaction) in self.transactions.iter().enumerate() {
            for change in transaction {
                // The transaction is a part of the snapshot.
                change.entries().into_iter().for_each(|entry| difference.add(entry, 1));
                for (values, count) in [(&change.before, 1), (&change.after, -1)] {
                    if let Some(values) = values {
                        difference.add(Entry::new("+I", change.id, values), count);
                    }
                }
            }
            if difference.0.len() < best.wrong.len() {
                best = Audit { snapshot_after: number + 1, wrong: difference.wrong() };
            }
        }
        best
    }
}

/// The audit table against the model.
#[derive(Debug)]
pub struct Audit {
    /// Transactions that the snapshot holds.
    pub snapshot_after: usize,
    /// How often too much (above 0) or too little a row is there.
    pub wrong: BTreeMap<Entry, i64>,
}

impl Audit {
    pub fn lost(&self) -> i64 {
        -self.wrong.values().filter(|count| **count < 0).sum::<i64>()
    }

    pub fn doubled(&self) -> i64 {
        self.wrong.values().filter(|count| **count > 0).sum()
    }
}

/// Counts of found less expected rows that are not 0.
#[derive(Debug, Default)]
struct Difference(HashMap<Entry, i64>);

impl Difference {
    fn add(&mut self, entry: Entry, count: i64) {
        let sum = self.0.remove(&entry).unwrap_or_default() + count;
        if sum != 0 {
            self.0.insert(entry, sum);
        }
    }

    fn wrong(&self) -> BTreeMap<Entry, i64> {
        self.0.iter().map(|(entry, count)| (entry.clone(), *count)).collect()
    }
}

#[test]
fn the_audit_finds_the_snapshot_and_what_is_lost_or_doubled() {
    let row = |n| Values { v: None, n };
    let mut model = Model::default();
    model.committed(&Op::Insert(vec![(1, row(0)), (2, row(0))]));
    model.committed(&Op::Together(vec![vec![(1, row(1))], vec![(1, row(2)), (3, row(2))]]));
    model.committed(&Op::Delete(vec![2, 9]));
    model.committed(&Op::Update { first: 1, last: 2, values: row(4) });
    let entry = |kind, id, n| Entry { id, n, kind, v: None };
    let snapshot = [entry("+I", 1, 2), entry("+I", 2, 0), entry("+I", 3, 2)];
    let mut rows = snapshot.to_vec();
    rows.extend([entry("-D", 2, 0), entry("-U", 1, 2), entry("+U", 1, 4)]);
    let audit = model.audit(&rows);
    assert_eq!((audit.snapshot_after, audit.lost(), audit.doubled()), (2, 0, 0));
    rows.swap_remove(3);
    rows.push(entry("+U", 1, 4));
    let audit = model.audit(&rows);
    assert_eq!((audit.snapshot_after, audit.lost(), audit.doubled()), (2, 1, 1), "{:?}", audit.wrong);
    assert_eq!(model.state.keys().copied().collect::<Vec<_>>(), [1, 3]);
}
