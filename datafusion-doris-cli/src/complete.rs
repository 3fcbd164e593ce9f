//! Completion and multi-line input for the line editor.

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError, RwLock};

use datafusion::sql::sqlparser::dialect::{Dialect, GenericDialect, dialect_from_str};
use rustyline::completion::Completer;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};

use crate::{command, split};

/// The words that statements for this shell are made of.
const KEYWORDS: &[&str] = &[
    "ALL",
    "AND",
    "AS",
    "ASC",
    "BETWEEN",
    "BY",
    "CASE",
    "CAST",
    "COUNT",
    "CREATE",
    "CROSS",
    "CSV",
    "DELETE",
    "DESC",
    "DESCRIBE",
    "DISTINCT",
    "DORIS",
    "DROP",
    "ELSE",
    "END",
    "EXCEPT",
    "EXISTS",
    "EXPLAIN",
    "EXTERNAL",
    "FALSE",
    "FROM",
    "FULL",
    "GROUP",
    "HAVING",
    "IN",
    "INNER",
    "INSERT",
    "INTERSECT",
    "INTO",
    "IS",
    "JOIN",
    "LEFT",
    "LIKE",
    "LIMIT",
    "LOCATION",
    "NOT",
    "NULL",
    "OFFSET",
    "ON",
    "OPTIONS",
    "OR",
    "ORDER",
    "OVER",
    "PARQUET",
    "PARTITION",
    "RIGHT",
    "SELECT",
    "SET",
    "SHOW",
    "STORED",
    "SUM",
    "TABLE",
    "TABLES",
    "THEN",
    "TRUE",
    "UNION",
    "UPDATE",
    "USING",
    "VALUES",
    "VIEW",
    "WHEN",
    "WHERE",
    "WITH",
];

/// What the editor knows of the session. The shell refreshes it between statements.
#[derive(Debug, Clone, Default)]
pub(crate) struct Names(Arc<RwLock<Known>>);

#[derive(Debug, Default)]
struct Known {
    /// Tables and columns.
    names: BTreeSet<String>,
    dialect: String,
}

impl Names {
    pub(crate) fn update(&self, names: BTreeSet<String>, dialect: String) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Known { names, dialect };
    }

    fn dialect(&self) -> Box<dyn Dialect> {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        dialect_from_str(&known.dialect).unwrap_or_else(|| Box::new(GenericDialect {}))
    }

    /// What may stand in the place of the word that ends `before`, and where that word starts.
    fn candidates(&self, before: &str) -> (usize, Vec<String>) {
        if let Some(prefix) = before.trim_start().strip_prefix('\\')
            && !prefix.contains(char::is_whitespace)
        {
            let commands = command::names().filter(|name| name.starts_with(prefix)).map(str::to_owned).collect();
            return (before.len() - prefix.len(), commands);
        }
        let start = before
            .rfind(|c: char| !(c.is_alphanumeric() || c == '_'))
            .map_or(0, |i| i + before[i..].chars().next().map_or(1, char::len_utf8));
        let prefix = &before[start..];
        if prefix.is_empty() {
            return (start, Vec::new());
        }
        let fits = |word: &str| {
            word.is_char_boundary(prefix.len().min(word.len()))
                && word.len() > prefix.len()
                && word[..prefix.len()].eq_ignore_ascii_case(prefix)
        };
        let lower = prefix.chars().all(|c| !c.is_uppercase());
        let keywords = KEYWORDS.iter().filter(|word| fits(word));
        let keywords = keywords.map(|word| if lower { word.to_lowercase() } else { (*word).to_owned() });
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let names = known.names.iter().filter(|name| fits(name)).cloned();
        (start, names.chain(keywords).collect())
    }
}

/// Gives the line editor its completion and tells it when an input is complete.
pub(crate) struct EditorHelper(pub(crate) Names);

impl Completer for EditorHelper {
    type Candidate = String;

    fn complete(
        &self,
        line: &str,
        position: usize,
        _: &rustyline::Context<'_>,
    ) -> rustyline::Result<(usize, Vec<String>)> {
        Ok(self.0.candidates(&line[..position]))
    }
}

impl Validator for EditorHelper {
    fn validate(&self, context: &mut ValidationContext) -> rustyline::Result<ValidationResult> {
        let complete = split::is_complete(context.input(), self.0.dialect().as_ref());
        Ok(if complete { ValidationResult::Valid(None) } else { ValidationResult::Incomplete })
    }
}

impl Hinter for EditorHelper {
    type Hint = String;
}

impl Highlighter for EditorHelper {}

impl rustyline::Helper for EditorHelper {}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    fn names() -> Names {
        let names = Names::default();
        names.update(["orders", "order_id", "Städte"].map(str::to_owned).into(), "generic".to_owned());
        names
    }

    #[test]
    fn words_are_completed_in_the_case_they_are_typed() {
        assert_eq!(names().candidates("sel"), (0, vec!["select".to_owned()]));
        assert_eq!(names().candidates("SELECT 1 FR"), (9, vec!["FROM".to_owned()]));
    }

    #[test]
    fn names_come_before_keywords() {
        let (start, found) = names().candidates("SELECT o.ord");
        assert_eq!(start, 9);
        assert_eq!(found, ["order_id", "orders", "order"]);
        assert_eq!(names().candidates("x stä").1, ["Städte"]);
        assert_eq!(names().candidates("SELECT ").1, Vec::<String>::new());
    }

    #[test]
    fn commands_are_completed_after_a_backslash() {
        assert_eq!(names().candidates("\\assert"), (1, vec!["assert".to_owned(), "assert_empty".to_owned()]));
        assert_eq!(names().candidates("\\d ord"), (3, ["order_id", "orders", "order"].map(str::to_owned).to_vec()));
    }
}
