//! Many small rowsets of a tablet become one. Snapshots hold the rowsets they were taken with and do not notice.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Int64Array, RecordBatch};
use arrow::compute::{concat, concat_batches, filter, filter_record_batch};

use super::KeysType;
use super::aggregate::alive;
use super::buffer::ROWSET_ROWS;
use super::definition::Definition;
use super::key::hash_keys;
use super::rowset::{Rowset, RowsetEntry, any_delete_sign};
use super::table::{RowRef, Tablet};
use crate::error::SqlError;

/// Rowsets of a tablet above which its newest ones are merged.
const ROWSETS: usize = 32;

/// Merges the newest rowsets of a tablet when it has many. Each row is merged a logarithmic number of times.
pub(super) fn compact(tablet: &mut Tablet, def: &Definition) -> Result<(), SqlError> {
    if tablet.rowsets.len() <= ROWSETS {
        return Ok(());
    }
    let mut first = tablet.rowsets.len();
    let mut rows = 0;
    while first > 0 {
        let next = tablet.rowsets[first - 1].physical_rows();
        // A rowset much larger than all newer ones together stays as it is.
        if rows + next > ROWSET_ROWS || (tablet.rowsets.len() - first > ROWSETS / 2 && next > 2 * rows) {
            break;
        }
        rows += next;
        first -= 1;
    }
    if tablet.rowsets.len() - first < 2 {
        return Ok(());
    }
    let merged = merge(&tablet.rowsets[first..], def)?;
    let keyed = def.spec.keys_type != KeysType::Duplicate;
    let hashes = if keyed {
        let keys: Vec<ArrayRef> = def.keys.iter().map(|i| Arc::clone(merged.batch.column(*i))).collect();
        hash_keys(&keys)?
    } else {
        Vec::new()
    };
    tablet.rowsets.truncate(first);
    for (row, hash) in hashes.into_iter().enumerate() {
        tablet.index.insert(hash, RowRef { rowset: first as u32, row: row as u32 });
    }
    if merged.batch.num_rows() > 0 {
        tablet.rowsets.push(RowsetEntry::new(merged));
    }
    Ok(())
}

fn merge(entries: &[RowsetEntry], def: &Definition) -> Result<Rowset, SqlError> {
    let mut batches: Vec<RecordBatch> = Vec::with_capacity(entries.len());
    let mut versions: Vec<ArrayRef> = Vec::with_capacity(entries.len());
    let (mut version, mut tso) = (0, 0);
    for entry in entries {
        let rowset = &entry.rowset;
        version = version.max(rowset.version);
        tso = tso.max(rowset.tso);
        let written = rowset.row_versions();
        if entry.died.is_none() {
            batches.push(rowset.batch.clone());
            versions.push(written);
        } else {
            let mask = alive(entry);
            batches.push(filter_record_batch(&rowset.batch, &mask).map_err(SqlError::detail)?);
            versions.push(filter(&written, &mask).map_err(SqlError::detail)?);
        }
    }
    let batch = concat_batches(&def.schema, &batches).map_err(SqlError::detail)?;
    let arrays: Vec<&dyn Array> = versions.iter().map(|a| a.as_ref()).collect();
    let versions = concat(&arrays).map_err(SqlError::detail)?;
    let has_delete_sign = def.spec.keys_type == KeysType::Unique && any_delete_sign(&batch);
    Ok(Rowset { version, tso, first_lsn: 0, batch, has_delete_sign, versions: Some(versions) })
}

impl Rowset {
    /// Version that wrote each row.
    pub(super) fn row_versions(&self) -> ArrayRef {
        match &self.versions {
            Some(versions) => Arc::clone(versions),
            None => Arc::new(Int64Array::from_value(self.version as i64, self.batch.num_rows())),
        }
    }
}
