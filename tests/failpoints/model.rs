//! The source as it should be, and what a history of its changes must hold.

use std::collections::BTreeMap;

/// Rows of the source at the start: several in every tablet.
const ROWS: i64 = 64;

/// A change: id, kind, value.
type Change = (i64, &'static str, String);

/// The source and every statement that changed it.
pub struct Model {
    rows: BTreeMap<i64, String>,
    initial: BTreeMap<i64, String>,
    statements: Vec<Vec<Change>>,
    rounds: i64,
    /// New rows of a round.
    new_rows: i64,
}

impl Model {
    /// `long`: rounds whose changes are a body of several chunks.
    pub fn new(long: bool) -> Self {
        // Wide values: the rows of one tablet are a chunk.
        let initial: BTreeMap<i64, String> = (0..ROWS).map(|id| (id, format!("{id}-{}", "x".repeat(300)))).collect();
        let new_rows = if long { 2100 } else { 3 };
        Self { rows: initial.clone(), initial, statements: vec![], rounds: 0, new_rows }
    }

    /// The statement that fills the source.
    pub fn fill(&self) -> String {
        insert(self.initial.iter())
    }

    /// Changes the model, and gives the statements that do the same to the source: new rows, updates, deletes.
    pub fn change(&mut self) -> Vec<String> {
        self.rounds += 1;
        let round = self.rounds;
        let new: BTreeMap<i64, String> =
            (0..self.new_rows).map(|i| (round * 10_000 + i, format!("new in {round}"))).collect();
        let present: Vec<i64> = self.rows.keys().copied().collect();
        let pick =
            |offset: i64| present[usize::try_from((round * 7 + offset * 11) % ROWS).expect("small") % present.len()];
        let updated: BTreeMap<i64, String> =
            [0, 1, 2].map(|i| (pick(i), format!("changed in {round}"))).into_iter().collect();
        let deleted = present.iter().copied().find(|id| !updated.contains_key(id)).expect("a row");

        let mut inserts = Vec::new();
        for (id, value) in &new {
            inserts.push((*id, "+I", value.clone()));
            self.rows.insert(*id, value.clone());
        }
        let mut updates = Vec::new();
        for (id, value) in &updated {
            let before = self.rows.insert(*id, value.clone()).expect("was there");
            updates.push((*id, "-U", before));
            updates.push((*id, "+U", value.clone()));
        }
        let before = self.rows.remove(&deleted).expect("was there");
        self.statements.extend([inserts, updates, vec![(deleted, "-D", before)]]);
        vec![insert(new.iter()), insert(updated.iter()), format!("DELETE FROM fp.source WHERE id = {deleted}")]
    }

    /// `id v` of every row.
    pub fn table(&self) -> Vec<String> {
        lines(self.rows.iter().map(|(id, value)| format!("{id} {value}")))
    }

    /// Checks `id kind v` of every change: the rows after some statement, and all changes by later ones.
    ///
    /// # Errors
    /// What is wrong.
    pub fn check_history(&self, found: &[String]) -> Result<(), String> {
        let mut state = self.initial.clone();
        let mut nearest: Option<(usize, String)> = None;
        for from in 0..=self.statements.len() {
            let snapshot = state.iter().map(|(id, value)| format!("{id} +I {value}"));
            let later =
                self.statements[from..].iter().flatten().map(|(id, kind, value)| format!("{id} {kind} {value}"));
            let expected = lines(snapshot.chain(later));
            if expected == found {
                return Ok(());
            }
            let (lost, more) = (without(&expected, found), without(found, &expected));
            let size = lost.len() + more.len();
            if nearest.as_ref().is_none_or(|(least, _)| size < *least) {
                let show = |lines: &[String]| lines.iter().take(5).cloned().collect::<Vec<_>>().join("; ");
                let text = format!(
                    "lost {} ({}), too many {} ({}), with a snapshot after statement {from}",
                    lost.len(),
                    show(&lost),
                    more.len(),
                    show(&more)
                );
                nearest = Some((size, text));
            }
            for (id, kind, value) in self.statements.get(from).into_iter().flatten() {
                match *kind {
                    "+I" | "+U" => state.insert(*id, value.clone()),
                    _ => state.remove(id),
                };
            }
        }
        Err(nearest.map(|(_, text)| text).unwrap_or_default())
    }
}

fn insert<'a>(rows: impl Iterator<Item = (&'a i64, &'a String)>) -> String {
    let rows: Vec<String> = rows.map(|(id, value)| format!("({id}, '{value}')")).collect();
    format!("INSERT INTO fp.source VALUES {}", rows.join(", "))
}

fn lines(lines: impl Iterator<Item = String>) -> Vec<String> {
    let mut lines: Vec<String> = lines.collect();
    lines.sort_unstable();
    lines
}

/// What of `these` is not among `those`, each as often as it is missing; both sorted.
pub fn without(these: &[String], those: &[String]) -> Vec<String> {
    let mut those = those.iter().peekable();
    let mut left = Vec::new();
    for line in these {
        while those.peek().is_some_and(|other| *other < line) {
            those.next();
        }
        if those.peek() == Some(&line) {
            those.next();
        } else {
            left.push(line.clone());
        }
    }
    left
}
