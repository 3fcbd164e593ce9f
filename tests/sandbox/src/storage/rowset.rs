//! Immutable rowsets, the versions at which their rows died, and snapshots of a table.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Int64Array, RecordBatch, RecordBatchOptions, UInt32Array, UInt64Array,
};
use arrow::compute::filter_record_batch;
use arrow::datatypes::{Int8Type, SchemaRef};
use arrow::error::ArrowError;

use super::{COMMIT_TSO_COL, ROW_LSN_COL, VERSION_COL};

/// Death version of a row that is alive.
pub(super) const ALIVE: u64 = u64::MAX;

/// Column of a scan that gives the index of a row's tablet.
pub(crate) const TABLET_INDEX: &str = "__sandbox_tablet__";
/// Column of a scan that gives `rowset << 32 | row`.
pub(crate) const ROW_ID: &str = "__sandbox_row__";

/// Rows of one commit in one tablet.
#[derive(Debug)]
pub struct Rowset {
    /// Version from which the rows are visible.
    pub version: u64,
    /// Commit TSO.
    pub tso: i64,
    /// LSN of the first row, on duplicate tables that record changes; the others follow.
    pub first_lsn: i64,
    /// The rows, in the table's storage schema (with the delete sign last on unique tables).
    pub batch: RecordBatch,
    /// Some row carries the delete sign.
    pub has_delete_sign: bool,
    /// Version that wrote each row, where a merge brought several together.
    pub versions: Option<ArrayRef>,
}

/// A rowset and when its rows died; `None`: all alive.
#[derive(Debug, Clone)]
pub struct RowsetEntry {
    pub(super) rowset: Arc<Rowset>,
    pub(super) died: Option<Arc<Vec<u64>>>,
}

/// A tablet as one scan sees it.
#[derive(Debug, Clone)]
pub struct TabletSnapshot {
    /// Tablet id.
    pub id: u64,
    /// Its position in the table.
    pub index: u32,
    /// Name of its partition.
    pub partition: Arc<str>,
    /// Its rowsets, oldest first.
    pub rowsets: Vec<RowsetEntry>,
}

/// A table at one version.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// The version.
    pub version: u64,
    /// Changes with every TRUNCATE; row ids are valid within one epoch.
    pub epoch: u64,
    /// All tablets.
    pub tablets: Vec<TabletSnapshot>,
}

impl RowsetEntry {
    pub(super) fn new(rowset: Rowset) -> Self {
        Self { rowset: Arc::new(rowset), died: None }
    }

    pub(super) fn kill(&mut self, row: usize, version: u64) {
        let rows = self.rowset.batch.num_rows();
        let died = self.died.get_or_insert_with(|| Arc::new(vec![ALIVE; rows]));
        Arc::make_mut(died)[row] = version;
    }

    pub(super) fn is_alive(&self, row: usize) -> bool {
        self.died.as_ref().is_none_or(|died| died[row] == ALIVE)
    }

    /// Commit TSO of its rows.
    pub fn tso(&self) -> i64 {
        self.rowset.tso
    }

    /// Rows in storage, dead ones included.
    pub fn physical_rows(&self) -> usize {
        self.rowset.batch.num_rows()
    }

    /// The rows visible at `version`, with the columns of `schema` (base, hidden or row-id columns, by name).
    /// `show_deleted` keeps rows with the delete sign.
    pub(crate) fn read(
        &self,
        version: u64,
        tablet: u32,
        rowset_index: u32,
        schema: &SchemaRef,
        show_deleted: bool,
    ) -> Result<Option<RecordBatch>, ArrowError> {
        if self.rowset.version > version {
            return Ok(None);
        }
        let batch = &self.rowset.batch;
        let rows = batch.num_rows();
        let columns = schema
            .fields()
            .iter()
            .map(|field| {
                Ok(match field.name().as_str() {
                    VERSION_COL => self.rowset.row_versions(),
                    COMMIT_TSO_COL => Arc::new(Int64Array::from_value(self.rowset.tso, rows)) as ArrayRef,
                    ROW_LSN_COL => {
                        Arc::new(Int64Array::from_iter_values((0..rows as i64).map(|row| self.rowset.first_lsn + row)))
                    }
                    TABLET_INDEX => Arc::new(UInt32Array::from_value(tablet, rows)),
                    ROW_ID => Arc::new(UInt64Array::from_iter_values(
                        (0..rows as u64).map(|row| (u64::from(rowset_index) << 32) | row),
                    )),
                    name => Arc::clone(
                        batch
                            .column_by_name(name)
                            .ok_or_else(|| ArrowError::SchemaError(format!("column {name} is not in storage")))?,
                    ),
                })
            })
            .collect::<Result<Vec<_>, ArrowError>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let whole = RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)?;
        let hide_signed = self.rowset.has_delete_sign && !show_deleted;
        if self.died.is_none() && !hide_signed {
            return Ok(Some(whole));
        }
        let sign = if hide_signed { batch.columns().last().map(|c| c.as_primitive::<Int8Type>()) } else { None };
        let mask: BooleanArray = (0..rows)
            .map(|row| {
                let alive = self.died.as_ref().is_none_or(|died| died[row] > version);
                Some(alive && sign.is_none_or(|sign| sign.value(row) == 0))
            })
            .collect();
        let visible = mask.true_count();
        if visible == 0 {
            return Ok(None);
        }
        if visible == rows {
            return Ok(Some(whole));
        }
        filter_record_batch(&whole, &mask).map(Some)
    }
}

/// Whether any row of a unique-table batch carries the delete sign.
pub(super) fn any_delete_sign(batch: &RecordBatch) -> bool {
    batch
        .columns()
        .last()
        .is_some_and(|c| c.as_primitive_opt::<Int8Type>().is_some_and(|s| s.values().iter().any(|v| *v != 0)))
}

/// Delete sign of one row of a unique-table batch.
pub(super) fn delete_sign(batch: &RecordBatch, row: usize) -> bool {
    batch
        .columns()
        .last()
        .is_some_and(|c| c.as_primitive_opt::<Int8Type>().is_some_and(|s| !s.is_null(row) && s.value(row) != 0))
}
