//! Merge-on-write: a commit supersedes the live row of each key and says what changed.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BooleanArray, RecordBatch, UInt32Array, new_null_array};
use arrow::compute::{interleave, nullif, take_record_batch};
use arrow::datatypes::{Field, Schema};

use super::ChangeConfig;
use super::definition::Definition;
use super::key::hash_keys;
use super::rowset::delete_sign;
use super::sequence;
use super::table::{RowRef, Tablet, new_rowset};
use crate::changelog::{ChangeBatch, RawOp};
use crate::error::SqlError;

/// Adds the batches of one commit to a tablet. Of several rows with one key the last wins, unless its sequence is lower.
/// Returns the change records, without their LSN and partition, one batch per rowset.
pub(super) fn upsert(
    tablet: &mut Tablet,
    batches: Vec<RecordBatch>,
    def: &Definition,
    version: u64,
    tso: i64,
) -> Result<Vec<ChangeBatch>, SqlError> {
    let keys = &def.keys;
    // Everything that can fail comes before the first change of the tablet.
    let mut hashes = Vec::with_capacity(batches.len());
    for batch in &batches {
        let columns: Vec<ArrayRef> = keys.iter().map(|i| Arc::clone(batch.column(*i))).collect();
        hashes.push(hash_keys(&columns)?);
    }
    let first_new = tablet.rowsets.len() as u32;
    let mut superseded: Vec<Vec<Option<RowRef>>> = batches.iter().map(|b| vec![None; b.num_rows()]).collect();
    for batch in batches {
        tablet.rowsets.push(new_rowset(batch, version, tso));
    }
    for (i, hashes) in hashes.iter().enumerate() {
        let rowset = first_new + i as u32;
        for (row, hash) in hashes.iter().enumerate() {
            let here = RowRef { rowset, row: row as u32 };
            let Some(old) = tablet.index.insert(*hash, here) else {
                count(tablet, here, 1);
                continue;
            };
            if let Some(column) = def.sequence
                && sequence_of(tablet, here, column) < sequence_of(tablet, old, column)
            {
                // Dead from its birth: no scan sees it and no change tells of it.
                tablet.index.insert(*hash, old);
                tablet.rowsets[rowset as usize].kill(row, version);
                continue;
            }
            count(tablet, old, -1);
            count(tablet, here, 1);
            tablet.rowsets[old.rowset as usize].kill(old.row as usize, version);
            superseded[i][row] = if old.rowset >= first_new {
                superseded[(old.rowset - first_new) as usize][old.row as usize]
            } else {
                Some(old)
            };
        }
    }
    let Some(config) = def.spec.changes else { return Ok(Vec::new()) };
    let mut out = Vec::new();
    for (i, superseded) in superseded.iter().enumerate() {
        out.extend(record(tablet, first_new as usize + i, superseded, def, tso, config)?);
    }
    Ok(out)
}

fn sequence_of(tablet: &Tablet, at: RowRef, column: usize) -> Option<i128> {
    sequence::value(tablet.rowsets[at.rowset as usize].rowset.batch.column(column), at.row as usize)
}

/// Keeps the number of live rows of the tablet.
fn count(tablet: &mut Tablet, at: RowRef, step: i64) {
    if !delete_sign(&tablet.rowsets[at.rowset as usize].rowset.batch, at.row as usize) {
        tablet.rows = tablet.rows.saturating_add_signed(step);
    }
}

/// The change records of one new rowset.
fn record(
    tablet: &Tablet,
    rowset: usize,
    superseded: &[Option<RowRef>],
    def: &Definition,
    tso: i64,
    config: ChangeConfig,
) -> Result<Option<ChangeBatch>, SqlError> {
    let entry = &tablet.rowsets[rowset];
    let batch = &entry.rowset.batch;
    let mut ops = Vec::new();
    let mut rows = Vec::new();
    let mut before = Vec::new();
    for (row, superseded) in superseded.iter().enumerate() {
        if !entry.is_alive(row) {
            continue;
        }
        let old =
            superseded.filter(|old| !delete_sign(&tablet.rowsets[old.rowset as usize].rowset.batch, old.row as usize));
        let op = match (delete_sign(batch, row), old) {
            (false, None) => RawOp::Insert,
            (false, Some(_)) => RawOp::Update,
            (true, Some(_)) => RawOp::Delete,
            (true, None) => continue,
        };
        ops.push(op);
        rows.push(row as u32);
        before.push(old);
    }
    if ops.is_empty() {
        return Ok(None);
    }
    let base = def.base();
    let visible = batch.project(&(0..base).collect::<Vec<_>>()).map_err(SqlError::detail)?;
    let kept = if rows.len() == batch.num_rows() {
        visible
    } else {
        take_record_batch(&visible, &UInt32Array::from(rows)).map_err(SqlError::detail)?
    };
    let fields: Vec<Field> = kept.schema().fields().iter().map(|f| f.as_ref().clone().with_nullable(true)).collect();
    let schema = Arc::new(Schema::new(fields));
    let deleted: BooleanArray = ops.iter().map(|op| Some(*op == RawOp::Delete)).collect();
    let any_deleted = deleted.true_count() > 0;
    let any_before = before.iter().any(Option::is_some);
    let mut after_columns = Vec::with_capacity(base);
    let mut before_columns = Vec::with_capacity(base);
    for (i, column) in kept.columns().iter().enumerate() {
        let after = if any_deleted && !def.keys.contains(&i) {
            nullif(column, &deleted).map_err(SqlError::detail)?
        } else {
            Arc::clone(column)
        };
        after_columns.push(after);
        if config.before_image && any_before {
            before_columns.push(old_values(tablet, &before, i, column)?);
        }
    }
    let after = RecordBatch::try_new(Arc::clone(&schema), after_columns).map_err(SqlError::detail)?;
    let before = if before_columns.is_empty() {
        None
    } else {
        Some(RecordBatch::try_new(schema, before_columns).map_err(SqlError::detail)?)
    };
    Ok(Some(ChangeBatch { tso, first_lsn: 0, partition: 0, tablet: tablet.id, ops, after, before }))
}

/// Column `i` of the superseded rows, NULL where there is none.
fn old_values(tablet: &Tablet, rows: &[Option<RowRef>], i: usize, like: &ArrayRef) -> Result<ArrayRef, SqlError> {
    let nothing = new_null_array(like.data_type(), 1);
    let mut sources: Vec<&dyn Array> = vec![nothing.as_ref()];
    let mut positions: std::collections::HashMap<u32, usize> = std::collections::HashMap::new();
    let mut indices = Vec::with_capacity(rows.len());
    for row in rows {
        match row {
            None => indices.push((0, 0)),
            Some(at) => {
                let source = *positions.entry(at.rowset).or_insert_with(|| {
                    sources.push(tablet.rowsets[at.rowset as usize].rowset.batch.column(i).as_ref());
                    sources.len() - 1
                });
                indices.push((source, at.row as usize));
            }
        }
    }
    interleave(&sources, &indices).map_err(SqlError::detail)
}
