//! What a load asks for and what it becomes.

use std::time::Duration;

use super::TxnState;

/// How the rows of a load meet the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MergeType {
    /// Upsert (unique) or append (duplicate).
    #[default]
    Append,
    /// Every row deletes its key.
    Delete,
    /// The batch carries `__DORIS_DELETE_SIGN__` per row.
    Merge,
}

/// `unique_key_update_mode` of a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum UpdateMode {
    /// Whole rows; columns that are not listed take their default.
    #[default]
    Upsert,
    /// Columns that are not listed keep the value of the live row (`partial_columns: true`).
    FixedColumns,
    /// Each row carries, in `__DORIS_SKIP_BITMAP_COL__` (a list of Int32: positions among the base columns), the columns
    /// that it does not bring.
    FlexibleColumns,
}

/// `partial_update_new_key_behavior`: what a partial update does with a key that has no live row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum NewKeyBehavior {
    /// The row is inserted; columns it does not bring take their default.
    #[default]
    Append,
    /// The load fails.
    Error,
}

/// What a load replaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Overwrite {
    /// Nothing.
    #[default]
    No,
    /// All rows of the partitions it may write to.
    Targets,
    /// All rows of the partitions it does write to.
    Touched,
}

/// What a load is about.
#[derive(Debug, Clone)]
pub struct LoadSpec {
    /// Database.
    pub db: String,
    /// Table.
    pub table: String,
    /// Label of the caller; `None`: one is made.
    pub label: Option<String>,
    /// The load will stop at PRECOMMITTED.
    pub two_phase: bool,
    /// A PREPARE transaction older than this is aborted.
    pub timeout: Duration,
    /// Target columns of the batches (`None`: all base columns).
    pub columns: Option<Vec<String>>,
    /// How rows meet the table.
    pub merge_type: MergeType,
    /// Where the load comes from, for SHOW TRANSACTION (`BACKEND_STREAMING`, `INSERT_STREAMING`).
    pub source: &'static str,
    /// Target column whose value is the sequence (`function_column.sequence_col`).
    pub sequence_column: Option<String>,
    /// Whole rows or partial ones.
    pub update_mode: UpdateMode,
    /// Partial update of an absent key.
    pub new_key: NewKeyBehavior,
    /// Only these partitions accept rows; `None`: all.
    pub partitions: Option<Vec<String>>,
    /// SUM columns are subtracted (`negative: true`).
    pub negative: bool,
    /// Rows that the commit replaces.
    pub overwrite: Overwrite,
    /// The server's own load of a group commit: no client ends it, and it has no timeout.
    pub group: bool,
}

impl Default for LoadSpec {
    /// An append of whole rows into no table; callers name database and table.
    fn default() -> Self {
        Self {
            db: String::new(),
            table: String::new(),
            label: None,
            two_phase: false,
            timeout: Duration::from_secs(259_200),
            columns: None,
            merge_type: MergeType::default(),
            source: "BACKEND_STREAMING",
            sequence_column: None,
            update_mode: UpdateMode::default(),
            new_key: NewKeyBehavior::default(),
            partitions: None,
            negative: false,
            overwrite: Overwrite::No,
            group: false,
        }
    }
}

/// A row that the table does not take, such as one that no partition covers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedRow {
    /// Position in the batch.
    pub row: usize,
    /// Why, as the error log words it.
    pub reason: String,
}

/// What a finished load became.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadOutcome {
    /// Transaction id.
    pub txn_id: i64,
    /// Label, given or made.
    pub label: String,
    /// PRECOMMITTED, VISIBLE, or COMMITTED while publishing is held.
    pub state: TxnState,
    /// Rows written.
    pub rows: u64,
    /// Rows that the table refused.
    pub refused: u64,
}

/// A transaction named by id, by label or by both.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TxnRef {
    /// Transaction id.
    pub txn_id: Option<i64>,
    /// Label.
    pub label: Option<String>,
}

/// State of a label.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabelState {
    /// `UNKNOWN` when no transaction has the label.
    pub state: TxnState,
    /// The transaction with the label.
    pub txn_id: Option<i64>,
    /// Reason of an abort, empty otherwise.
    pub reason: String,
}
