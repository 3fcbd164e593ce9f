//! Partial updates: rows that bring some columns take the others from the live row of their key.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::compute::interleave;
use arrow::datatypes::Int32Type;

use super::buffer::ROWSET_ROWS;
use super::complete::{AutoIncrement, default_array, numbers};
use super::definition::Definition;
use super::key::{BuildIdentity, hash_keys};
use super::rowset::delete_sign;
use super::sequence;
use super::table::{RowRef, Tablet};
use crate::error::SqlError;
use crate::txn::NewKeyBehavior;
use crate::types::{TextStyle, text_value};

/// What a partial update leaves out.
#[derive(Debug, Clone)]
pub(crate) struct Partial {
    /// Each row tells in its skip bitmap what it does not bring.
    pub(crate) flexible: bool,
    /// Positions in storage that no row brings.
    pub(crate) absent: Vec<usize>,
    /// What becomes of keys without a live row.
    pub(crate) new_key: NewKeyBehavior,
}

/// Whether the bitmap of a row holds a column.
pub(super) fn skips(bitmaps: &ArrayRef, row: usize, column: usize) -> bool {
    let Some(list) = bitmaps.as_list_opt::<i32>() else { return false };
    if list.is_null(row) {
        return false;
    }
    let values = list.value(row);
    values.as_primitive_opt::<Int32Type>().is_some_and(|v| v.values().contains(&(column as i32)))
}

/// Where a value of a finished row stands.
#[derive(Debug, Clone, Copy)]
enum Place {
    Old(RowRef),
    New { batch: u32, row: u32 },
    Default,
    Auto(u32),
}

/// The refusal of a key that is not there.
pub(super) fn unknown_key(def: &Definition, columns: &[ArrayRef], row: usize) -> SqlError {
    let cells: Vec<String> = def
        .keys
        .iter()
        .map(|i| {
            let ty = &def.spec.columns[*i].ty;
            text_value(&columns[*i], row, ty, TextStyle::Mysql).unwrap_or_else(|| "NULL".to_owned())
        })
        .collect();
    SqlError::detail(format!(
        "Can't append new rows in partial update when partial_update_new_key_behavior is ERROR. Row with key=[{}] is not in table.",
        cells.join(", ")
    ))
}

/// Completes the rows of one tablet, in the order of their arrival.
pub(super) fn resolve(
    tablet: &Tablet,
    def: &Definition,
    partial: &Partial,
    batches: &[RecordBatch],
    auto: &AutoIncrement,
    now_ms: i64,
) -> Result<Vec<RecordBatch>, SqlError> {
    let width = def.schema.fields().len();
    let mut current: HashMap<u128, Option<Vec<Place>>, BuildIdentity> = HashMap::default();
    let mut rows: Vec<Vec<Place>> = Vec::new();
    let mut made = 0_u32;
    for (at, batch) in batches.iter().enumerate() {
        let keys: Vec<ArrayRef> = def.keys.iter().map(|i| Arc::clone(batch.column(*i))).collect();
        let bitmaps = partial.flexible.then(|| Arc::clone(batch.column(width)));
        for (row, hash) in hash_keys(&keys)?.into_iter().enumerate() {
            let base = match current.get(&hash) {
                Some(known) => known.clone(),
                None => tablet
                    .index
                    .get(&hash)
                    .filter(|old| !delete_sign(&tablet.rowsets[old.rowset as usize].rowset.batch, old.row as usize))
                    .map(|old| vec![Place::Old(*old); width]),
            };
            let deleted = batch.column(width - 1).as_primitive::<arrow::datatypes::Int8Type>().value(row) != 0;
            if base.is_none() && deleted {
                continue;
            }
            if base.is_none() && partial.new_key == NewKeyBehavior::Error {
                return Err(unknown_key(def, batch.columns(), row));
            }
            let brings = |column: usize| {
                // The sequence goes with the column it copies.
                let base_column =
                    if Some(column) == def.sequence { def.mapped_sequence.unwrap_or(column) } else { column };
                !partial.absent.contains(&column)
                    && !bitmaps.as_ref().is_some_and(|bitmaps| skips(bitmaps, row, base_column))
            };
            let mut places = Vec::with_capacity(width);
            for column in 0..width {
                places.push(if brings(column) {
                    Place::New { batch: at as u32, row: row as u32 }
                } else if let Some(base) = &base {
                    base[column]
                } else if def.spec.columns.get(column).is_some_and(|c| c.auto_increment) {
                    made += 1;
                    Place::Auto(made - 1)
                } else {
                    unmentioned(def, column)?;
                    Place::Default
                });
            }
            if let (Some(sequence), Some(base)) = (def.sequence, &base) {
                let value = |place: Place| match place {
                    Place::Old(old) => {
                        sequence_of(&tablet.rowsets[old.rowset as usize].rowset.batch, sequence, old.row)
                    }
                    Place::New { batch, row } => sequence_of(&batches[batch as usize], sequence, row),
                    Place::Default | Place::Auto(_) => None,
                };
                if value(places[sequence]) < value(base[sequence]) {
                    continue;
                }
            }
            current.insert(hash, if deleted { None } else { Some(places.clone()) });
            rows.push(places);
        }
    }
    let made = auto.take(made as usize);
    rows.chunks(ROWSET_ROWS).map(|rows| build(tablet, def, batches, rows, made.clone(), now_ms)).collect()
}

fn sequence_of(batch: &RecordBatch, column: usize, row: u32) -> Option<i128> {
    sequence::value(batch.column(column), row as usize)
}

/// A column that a new key cannot fill.
fn unmentioned(def: &Definition, column: usize) -> Result<(), SqlError> {
    match def.spec.columns.get(column) {
        Some(column) if !column.fillable() => Err(SqlError::detail(format!(
            "the unmentioned column `{}` should have default value or be nullable for newly inserted rows in non-strict mode partial update",
            column.name
        ))),
        _ => Ok(()),
    }
}

fn build(
    tablet: &Tablet,
    def: &Definition,
    batches: &[RecordBatch],
    rows: &[Vec<Place>],
    made: std::ops::Range<i64>,
    now_ms: i64,
) -> Result<RecordBatch, SqlError> {
    let width = def.schema.fields().len();
    let mut columns = Vec::with_capacity(width);
    for column in 0..width {
        let spec = def.spec.columns.get(column);
        let filler = match spec {
            Some(spec) if spec.auto_increment => numbers(spec, made.clone())?,
            Some(spec) => default_array(spec, 1, now_ms)?,
            None => arrow::array::new_null_array(def.schema.field(column).data_type(), 1),
        };
        let mut sources: Vec<&dyn Array> = vec![filler.as_ref()];
        sources.extend(batches.iter().map(|b| b.column(column).as_ref()));
        let mut old: HashMap<u32, usize> = HashMap::new();
        let mut indices = Vec::with_capacity(rows.len());
        for places in rows {
            indices.push(match places[column] {
                Place::Default => (0, 0),
                Place::Auto(n) => (0, n as usize),
                Place::New { batch, row } => (batch as usize + 1, row as usize),
                Place::Old(at) => {
                    let source = *old.entry(at.rowset).or_insert_with(|| {
                        sources.push(tablet.rowsets[at.rowset as usize].rowset.batch.column(column).as_ref());
                        sources.len() - 1
                    });
                    (source, at.row as usize)
                }
            });
        }
        columns.push(interleave(&sources, &indices).map_err(SqlError::detail)?);
    }
    RecordBatch::try_new(Arc::clone(&def.schema), columns).map_err(SqlError::detail)
}
