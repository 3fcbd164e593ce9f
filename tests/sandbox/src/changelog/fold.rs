//! From change records to the rows of an increment type.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, new_null_array};

use super::incr::IncrType;
use super::rows::{Emit, Image};
use super::{ChangeBatch, RawOp};
use crate::engine::Profile;
use crate::error::SqlError;
use crate::storage::{Table, hash_keys};
use crate::types::DorisType;

pub(super) const APPEND: i64 = 0;
pub(super) const DELETE: i64 = 1;
pub(super) const UPDATE_BEFORE: i64 = 2;
pub(super) const UPDATE_AFTER: i64 = 3;

/// The records of a window, in commit order.
pub(super) type Records = [Arc<ChangeBatch>];

/// Batch and row of a record.
type Place = (usize, usize);

fn emit(records: &Records, values: Place, image: Image, op: i64, meta: Place) -> Emit {
    let batch = &records[meta.0];
    Emit { batch: values.0, row: values.1, image, op, tso: batch.tso, lsn: batch.first_lsn + meta.1 as i64 }
}

/// The image before a record where the table keeps one; else what the record has: the new row of an update, the key of a
/// delete.
fn before(records: &Records, place: Place) -> Image {
    if records[place.0].before.is_some() { Image::Before } else { Image::After }
}

/// The rows of an increment type.
pub(super) fn fold(table: &Table, records: &Records, kind: IncrType, profile: Profile) -> Result<Vec<Emit>, SqlError> {
    match kind {
        IncrType::Detail => Ok(detail(records)),
        IncrType::AppendOnly => Ok(detail(records).into_iter().filter(|row| row.op == APPEND).collect()),
        IncrType::MinDelta => min_delta(table, records, profile),
    }
}

/// Every record; an update is op 2 then op 3 of one TSO and LSN.
fn detail(records: &Records) -> Vec<Emit> {
    let mut rows = Vec::new();
    for (at, batch) in records.iter().enumerate() {
        for (row, op) in batch.ops.iter().enumerate() {
            let here = (at, row);
            let one = |image, op| emit(records, here, image, op, here);
            match op {
                RawOp::Insert => rows.push(one(Image::After, APPEND)),
                RawOp::Update => {
                    rows.extend([one(before(records, here), UPDATE_BEFORE), one(Image::After, UPDATE_AFTER)]);
                }
                RawOp::Delete => rows.push(one(before(records, here), DELETE)),
            }
        }
    }
    rows
}

/// First and last record of each key, by the first one.
fn ends(table: &Table, records: &Records) -> Result<Vec<(Place, Place)>, SqlError> {
    let names: Vec<String> = table.columns().iter().filter(|c| c.key).map(|c| c.name.clone()).collect();
    let mut found: Vec<(Place, Place)> = Vec::new();
    let mut known: HashMap<u128, usize> = HashMap::new();
    for (at, batch) in records.iter().enumerate() {
        let keys: Vec<ArrayRef> = names
            .iter()
            .map(|name| {
                let column = batch.after.column_by_name(name).cloned();
                column.ok_or_else(|| SqlError::unknown_column(name, "change records"))
            })
            .collect::<Result<_, _>>()?;
        for (row, hash) in hash_keys(&keys)?.into_iter().enumerate() {
            let here = (at, row);
            match known.get(&hash) {
                Some(i) => found[*i].1 = here,
                None => {
                    known.insert(hash, found.len());
                    found.push((here, here));
                }
            }
        }
    }
    Ok(found)
}

/// The net change of each key, from the first and last record of it in the window.
fn min_delta(table: &Table, records: &Records, profile: Profile) -> Result<Vec<Emit>, SqlError> {
    let newest = profile == Profile::V5_0Changelog;
    let mut rows = Vec::new();
    for (first, last) in ends(table, records)? {
        let op = |place: Place| records[place.0].ops[place.1];
        match (op(first), op(last)) {
            (RawOp::Insert, RawOp::Delete) => {}
            (RawOp::Insert, _) => rows.push(emit(records, last, Image::After, APPEND, last)),
            (_, RawOp::Delete) => {
                // The row at the start of the window; older builds give the one that the last record deleted.
                let values = if newest { first } else { last };
                rows.push(emit(records, values, before(records, values), DELETE, last));
            }
            _ => {
                if newest && unchanged(table, records, first, last) {
                    continue;
                }
                rows.push(emit(records, first, before(records, first), UPDATE_BEFORE, first));
                rows.push(emit(records, last, Image::After, UPDATE_AFTER, last));
            }
        }
    }
    Ok(rows)
}

/// The rows that later changes superseded: of each key whose first record has a row before it, that row.
pub(super) fn superseded(table: &Table, records: &Records) -> Result<Vec<Emit>, SqlError> {
    let ends = ends(table, records)?.into_iter();
    Ok(ends
        .filter(|(first, _)| records[first.0].ops[first.1] != RawOp::Insert)
        .map(|(first, _)| emit(records, first, before(records, first), UPDATE_BEFORE, first))
        .collect())
}

/// Every record once, with its raw op.
pub(super) fn raw(records: &Records) -> Vec<Emit> {
    let mut rows = Vec::new();
    for (at, batch) in records.iter().enumerate() {
        for (row, op) in batch.ops.iter().enumerate() {
            let image = if *op == RawOp::Delete { before(records, (at, row)) } else { Image::After };
            rows.push(emit(records, (at, row), image, op.code(), (at, row)));
        }
    }
    rows
}

/// Whether the row before the first record equals the one after the last: no net change. Never for types without exact
/// equality, nor when every value before is NULL.
fn unchanged(table: &Table, records: &Records, first: Place, last: Place) -> bool {
    let Some(old) = &records[first.0].before else { return false };
    let new = &records[last.0].after;
    let mut all_null = true;
    for column in table.columns().iter().filter(|column| !column.key) {
        if !has_exact_equality(&column.ty) {
            return false;
        }
        let missing = || new_null_array(&column.ty.storage(), 1);
        let one = |batch: &arrow::array::RecordBatch, row: usize| {
            batch.column_by_name(&column.name).map_or_else(missing, |array| array.slice(row, 1))
        };
        let (old, new) = (one(old, first.1), one(new, last.1));
        all_null &= old.is_null(0);
        if old.as_ref() != new.as_ref() {
            return false;
        }
    }
    !all_null
}

fn has_exact_equality(ty: &DorisType) -> bool {
    match ty {
        DorisType::Float | DorisType::Double | DorisType::Variant | DorisType::Bitmap | DorisType::Hll => false,
        DorisType::Array(item) => has_exact_equality(item),
        DorisType::Map(key, value) => has_exact_equality(key) && has_exact_equality(value),
        DorisType::Struct(fields) => fields.iter().all(|(_, ty)| has_exact_equality(ty)),
        _ => true,
    }
}
