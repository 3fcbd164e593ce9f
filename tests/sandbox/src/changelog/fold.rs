//! From change records to the rows of an increment type.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Int64Array, RecordBatch};
use arrow::compute::interleave;
use arrow::datatypes::{Field, FieldRef, Schema, SchemaRef};
use arrow::row::{RowConverter, SortField};

use super::{ChangeBatch, IncrType, RawOp};
use crate::engine::Profile;
use crate::error::SqlError;
use crate::storage::{Table, hash_keys};
use crate::types::{DorisType, conform};

/// Rows per output batch.
const BATCH_ROWS: usize = 8192;

/// Names and types of the three hidden columns of a profile.
#[derive(Debug, Clone)]
pub(crate) struct ChangeColumns {
    pub(crate) fields: [FieldRef; 3],
}

impl ChangeColumns {
    pub(crate) fn of(profile: Profile) -> Self {
        let (stem, lsn) = if profile == Profile::V5_0Binlog {
            ("BINLOG", DorisType::LargeInt)
        } else {
            ("CHANGELOG", DorisType::BigInt)
        };
        let name = |suffix: &str| format!("__DORIS_{stem}_{suffix}__");
        Self {
            fields: [
                DorisType::BigInt.storage_field(&name("TSO"), false),
                lsn.storage_field(&name("LSN"), false),
                DorisType::BigInt.storage_field(&name("OP"), false),
            ],
        }
    }
}

/// One output row: where its values stand and what its metadata are.
#[derive(Debug, Clone, Copy)]
struct Emit {
    batch: usize,
    row: usize,
    before: bool,
    op: i64,
    tso: i64,
    lsn: i64,
}

/// The rows of a window, ready to be read in batches.
#[derive(Debug)]
pub(crate) struct ChangeRows {
    batches: Vec<Arc<ChangeBatch>>,
    rows: Vec<Emit>,
}

const APPEND: i64 = 0;
const DELETE: i64 = 1;
const UPDATE_BEFORE: i64 = 2;
const UPDATE_AFTER: i64 = 3;

impl ChangeRows {
    /// Folds records, given in commit order, to rows of the type.
    pub(crate) fn new(
        table: &Table,
        batches: Vec<Arc<ChangeBatch>>,
        kind: IncrType,
        profile: Profile,
    ) -> Result<Self, SqlError> {
        let rows = match kind {
            IncrType::Detail => detail(&batches),
            IncrType::AppendOnly => {
                let mut rows = detail(&batches);
                rows.retain(|row| row.op == APPEND);
                rows
            }
            IncrType::MinDelta => min_delta(table, &batches, profile)?,
        };
        Ok(Self { batches, rows })
    }

    /// Number of output batches.
    pub(crate) fn chunks(&self) -> usize {
        self.rows.len().div_ceil(BATCH_ROWS)
    }

    /// One output batch with the columns of `schema` (base columns and hidden ones, by name).
    pub(crate) fn read(&self, chunk: usize, schema: &SchemaRef) -> Result<RecordBatch, SqlError> {
        let end = ((chunk + 1) * BATCH_ROWS).min(self.rows.len());
        let rows = &self.rows[chunk * BATCH_ROWS..end];
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(schema.fields().len());
        for field in schema.fields() {
            let name = field.name();
            let metadata =
                |value: fn(&Emit) -> i64| Arc::new(Int64Array::from_iter_values(rows.iter().map(value))) as ArrayRef;
            let hidden = name.starts_with("__DORIS_");
            columns.push(if hidden && name.ends_with("_TSO__") {
                metadata(|row| row.tso)
            } else if hidden && name.ends_with("_OP__") {
                metadata(|row| row.op)
            } else if hidden && name.ends_with("_LSN__") {
                let ty = DorisType::of_field(field).unwrap_or(DorisType::BigInt);
                conform(&metadata(|row| row.lsn), &ty).map_err(SqlError::detail)?
            } else {
                self.values(name, rows)?
            });
        }
        let options = arrow::array::RecordBatchOptions::new().with_row_count(Some(rows.len()));
        RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options).map_err(SqlError::detail)
    }

    fn values(&self, name: &str, rows: &[Emit]) -> Result<ArrayRef, SqlError> {
        let mut sources: Vec<&dyn Array> = Vec::new();
        let mut positions: HashMap<(usize, bool), usize> = HashMap::new();
        let mut indices = Vec::with_capacity(rows.len());
        for row in rows {
            let batch = &self.batches[row.batch];
            let before = row.before && batch.before.is_some();
            let at = match positions.get(&(row.batch, before)) {
                Some(at) => *at,
                None => {
                    let image = if before { batch.before.as_ref().unwrap_or(&batch.after) } else { &batch.after };
                    let column =
                        image.column_by_name(name).ok_or_else(|| SqlError::unknown_column(name, "change records"))?;
                    sources.push(column.as_ref());
                    positions.insert((row.batch, before), sources.len() - 1);
                    sources.len() - 1
                }
            };
            indices.push((at, row.row));
        }
        interleave(&sources, &indices).map_err(SqlError::detail)
    }
}

/// Every record; an update is op 2 then op 3, a delete carries its own values (key columns, or the before image).
fn detail(batches: &[Arc<ChangeBatch>]) -> Vec<Emit> {
    let mut rows = Vec::new();
    for (at, batch) in batches.iter().enumerate() {
        for (row, op) in batch.ops.iter().enumerate() {
            let emit = |before: bool, op: i64| Emit {
                batch: at,
                row,
                before,
                op,
                tso: batch.tso,
                lsn: batch.first_lsn + row as i64,
            };
            match op {
                RawOp::Insert => rows.push(emit(false, APPEND)),
                RawOp::Update => rows.extend([emit(true, UPDATE_BEFORE), emit(false, UPDATE_AFTER)]),
                RawOp::Delete => rows.push(emit(true, DELETE)),
            }
        }
    }
    rows
}

/// Batch and row of a record.
type Place = (usize, usize);

/// The net change of each key, from the first and last record of it in the window.
fn min_delta(table: &Table, batches: &[Arc<ChangeBatch>], profile: Profile) -> Result<Vec<Emit>, SqlError> {
    let keys = table.key_positions();
    let mut order: Vec<u128> = Vec::new();
    let mut ends: HashMap<u128, (Place, Place)> = HashMap::new();
    for (at, batch) in batches.iter().enumerate() {
        let columns: Vec<ArrayRef> = keys.iter().map(|i| Arc::clone(batch.after.column(*i))).collect();
        for (row, hash) in hash_keys(&columns)?.into_iter().enumerate() {
            ends.entry(hash).and_modify(|(_, last)| *last = (at, row)).or_insert_with(|| {
                order.push(hash);
                ((at, row), (at, row))
            });
        }
    }
    let mut rows = Vec::new();
    for hash in order {
        let Some((first, last)) = ends.get(&hash).copied() else { continue };
        let op = |(batch, row): Place| batches[batch].ops[row];
        let emit = |values: Place, before: bool, op: i64, meta: Place| Emit {
            batch: values.0,
            row: values.1,
            before,
            op,
            tso: batches[meta.0].tso,
            lsn: batches[meta.0].first_lsn + meta.1 as i64,
        };
        match (op(first), op(last)) {
            (RawOp::Insert, RawOp::Delete) => {}
            (RawOp::Insert, _) => rows.push(emit(last, false, APPEND, last)),
            (_, RawOp::Delete) => rows.push(emit(first, true, DELETE, last)),
            _ => {
                if profile == Profile::V5_0Changelog && same_values(table, batches, first, last)? {
                    continue;
                }
                rows.push(emit(first, true, UPDATE_BEFORE, first));
                rows.push(emit(last, false, UPDATE_AFTER, last));
            }
        }
    }
    Ok(rows)
}

/// Whether every value column is equal before the first and after the last record. Types without exact equality never are.
fn same_values(table: &Table, batches: &[Arc<ChangeBatch>], first: Place, last: Place) -> Result<bool, SqlError> {
    let Some(before) = &batches[first.0].before else { return Ok(false) };
    let after = &batches[last.0].after;
    for (i, column) in table.columns().iter().enumerate().filter(|(_, column)| !column.key) {
        if matches!(column.ty, DorisType::Float | DorisType::Double | DorisType::Variant) || column.ty.is_nested() {
            return Ok(false);
        }
        let converter = RowConverter::new(vec![SortField::new(column.ty.storage())]).map_err(SqlError::detail)?;
        let left = converter.convert_columns(&[before.column(i).slice(first.1, 1)]).map_err(SqlError::detail)?;
        let right = converter.convert_columns(&[after.column(i).slice(last.1, 1)]).map_err(SqlError::detail)?;
        if left.row(0) != right.row(0) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The schema of an `@incr` read: nullable base columns, then the hidden ones.
pub(crate) fn incr_schema(table: &Table, profile: Profile) -> SchemaRef {
    let mut fields: Vec<Field> =
        table.columns().iter().map(|c| c.field().as_ref().clone().with_nullable(true)).collect();
    fields.extend(ChangeColumns::of(profile).fields.iter().map(|f| f.as_ref().clone()));
    Arc::new(Schema::new(fields))
}
