//! What Doris knows of the size of a table: for plans, never for results.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::DorisClient;
use crate::sql::{quote_table, string_literal};
use crate::types::TableIdent;

/// How long an answer is used: the server itself counts anew once a minute.
const KEPT: Duration = Duration::from_secs(60);
/// Tables whose facts are kept by one client.
const MOST_TABLES: usize = 1024;

/// Sizes as the server counted them some time ago: rows that were deleted or replaced are among them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TableFacts {
    /// Rows; `None`: not known.
    pub rows: Option<u64>,
    /// What ANALYZE gathered, by name of the column.
    pub columns: Arc<HashMap<String, ColumnFacts>>,
}

/// What Doris gathered of a column, some time ago.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ColumnFacts {
    /// Distinct values.
    pub distinct: Option<u64>,
    /// NULLs.
    pub nulls: Option<u64>,
    /// Least value, as text.
    pub min: Option<String>,
    /// Greatest value, as text.
    pub max: Option<String>,
}

#[derive(Debug, Default)]
pub(super) struct KnownFacts {
    facts: Kept<TableFacts>,
    sizes: Kept<Arc<HashMap<i64, u64>>>,
}

/// Answers by table, each with its time.
#[derive(Debug)]
struct Kept<T>(Mutex<HashMap<TableIdent, (Instant, T)>>);

impl<T> Default for Kept<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: Clone> Kept<T> {
    fn get(&self, table: &TableIdent) -> Option<T> {
        let kept = self.0.lock();
        kept.get(table).filter(|(since, _)| since.elapsed() < KEPT).map(|(_, answer)| answer.clone())
    }

    fn put(&self, table: &TableIdent, answer: T) {
        let mut kept = self.0.lock();
        if kept.len() >= MOST_TABLES {
            kept.clear();
        }
        kept.insert(table.clone(), (Instant::now(), answer));
    }
}

impl DorisClient {
    /// The size of `table` and of its columns, by two statements at most once a minute. Nothing is known where the user may
    /// not ask.
    pub(crate) async fn table_facts(&self, table: &TableIdent) -> TableFacts {
        let known = &self.inner.known_facts.facts;
        if let Some(facts) = known.get(table) {
            return facts;
        }
        let sql = format!(
            "SELECT TABLE_ROWS FROM information_schema.tables WHERE TABLE_SCHEMA = {} AND TABLE_NAME = {}",
            string_literal(&table.database),
            string_literal(&table.table),
        );
        if table.catalog.is_some() {
            // The schema of the tables of doris itself knows nothing of it.
            return TableFacts::default();
        }
        let (rows, columns) = futures::future::join(self.statement(&sql), self.column_facts(table)).await;
        let rows = match rows {
            // None may be counted of a table that was filled a moment ago.
            Ok(rows) => rows.value(0, "TABLE_ROWS").and_then(|rows| rows.trim().parse().ok()).filter(|rows| *rows > 0),
            Err(error) => {
                tracing::debug!(%table, %error, "the size of the table is not known");
                None
            }
        };
        let facts = TableFacts { rows, columns: Arc::new(columns) };
        known.put(table, facts.clone());
        facts
    }

    async fn column_facts(&self, table: &TableIdent) -> HashMap<String, ColumnFacts> {
        // What the FE's cache does not hold has to be read from a table of Doris: not worth it for an estimate.
        let shown = match self.statement(&format!("SHOW COLUMN CACHED STATS {}", quote_table(table))).await {
            Ok(shown) => shown,
            Err(error) => {
                tracing::debug!(%table, %error, "nothing is known of the columns");
                return HashMap::new();
            }
        };
        let facts = (0..shown.rows.len()).filter_map(|row| {
            let number = |name: &str| {
                let number: f64 = shown.value(row, name)?.trim().parse().ok()?;
                (number.is_finite() && number >= 0.0).then_some(number as u64)
            };
            let bound = |name: &str| {
                let text = shown.value(row, name)?;
                let bare = text.strip_prefix('\'').and_then(|text| text.strip_suffix('\'')).unwrap_or(text);
                (!matches!(bare, "" | "N/A" | "NULL")).then(|| bare.to_string())
            };
            let facts = ColumnFacts {
                distinct: number("ndv"),
                nulls: number("num_null"),
                min: bound("min"),
                max: bound("max"),
            };
            Some((shown.value(row, "column_name")?.to_string(), facts))
        });
        facts.collect()
    }

    /// Bytes (else rows) of the tablets of `table`, by one statement at most once a minute. Tablets that the server does
    /// not tell, or the user may not see, are not in it.
    pub(crate) async fn tablet_sizes(&self, table: &TableIdent) -> Arc<HashMap<i64, u64>> {
        let known = &self.inner.known_facts.sizes;
        if let Some(sizes) = known.get(table) {
            return sizes;
        }
        let sizes = match self.statement(&format!("SHOW TABLETS FROM {}", quote_table(table))).await {
            Ok(rows) => {
                let number = |row: usize, name: &str| rows.value(row, name).and_then(|text| text.trim().parse().ok());
                let mut bytes: HashMap<i64, u64> = HashMap::new();
                let mut counts: HashMap<i64, u64> = HashMap::new();
                for row in 0..rows.rows.len() {
                    let Some(tablet) = rows.value(row, "TabletId").and_then(|text| text.trim().parse().ok()) else {
                        continue;
                    };
                    // Replicas repeat a tablet.
                    let local: u64 = number(row, "LocalDataSize").unwrap_or(0);
                    let remote: u64 = number(row, "RemoteDataSize").unwrap_or(0);
                    let size = bytes.entry(tablet).or_default();
                    *size = local.saturating_add(remote).max(*size);
                    let count = counts.entry(tablet).or_default();
                    *count = number(row, "RowCount").unwrap_or(0).max(*count);
                }
                if bytes.values().any(|size| *size > 0) { bytes } else { counts }
            }
            Err(error) => {
                tracing::debug!(%table, %error, "the sizes of the tablets are not known");
                HashMap::new()
            }
        };
        let sizes = Arc::new(sizes);
        known.put(table, Arc::clone(&sizes));
        sizes
    }
}
