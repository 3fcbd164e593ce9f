//! Aggregate tables: rows of one key become one row, column by column.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, BinaryArray, BooleanArray, LargeBinaryArray, PrimitiveArray,
    RecordBatch, UInt32Array,
};
use arrow::compute::{interleave, take};
use arrow::datatypes::{
    DataType, Decimal128Type, Decimal256Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
};
use arrow::row::{RowConverter, SortField};

use super::buffer::ROWSET_ROWS;
use super::definition::Definition;
use super::key::{BuildIdentity, hash_keys};
use super::table::{RowRef, Tablet, new_rowset};
use crate::error::SqlError;
use crate::types::{DorisType, bitmap, hll};

/// How the values of one key meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Aggregation {
    /// `SUM`
    Sum,
    /// `MIN`
    Min,
    /// `MAX`
    Max,
    /// `REPLACE`
    Replace,
    /// `REPLACE_IF_NOT_NULL`
    ReplaceIfNotNull,
    /// `BITMAP_UNION`
    BitmapUnion,
    /// `HLL_UNION`
    HllUnion,
}

impl Aggregation {
    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::Sum, Self::Min, Self::Max, Self::Replace, Self::ReplaceIfNotNull, Self::BitmapUnion, Self::HllUnion];

    /// Word in DDL.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sum => "SUM",
            Self::Min => "MIN",
            Self::Max => "MAX",
            Self::Replace => "REPLACE",
            Self::ReplaceIfNotNull => "REPLACE_IF_NOT_NULL",
            Self::BitmapUnion => "BITMAP_UNION",
            Self::HllUnion => "HLL_UNION",
        }
    }

    /// Whether values of the type can meet so.
    pub fn fits(self, ty: &DorisType) -> bool {
        let number = matches!(
            ty,
            DorisType::TinyInt
                | DorisType::SmallInt
                | DorisType::Int
                | DorisType::BigInt
                | DorisType::LargeInt
                | DorisType::Float
                | DorisType::Double
                | DorisType::Decimal { .. }
        );
        match self {
            Self::Sum => number,
            Self::Min | Self::Max => {
                number
                    || matches!(
                        ty,
                        DorisType::Date
                            | DorisType::DateTime(_)
                            | DorisType::Char(_)
                            | DorisType::Varchar(_)
                            | DorisType::String
                            | DorisType::Ipv4
                            | DorisType::Ipv6
                    )
            }
            Self::Replace | Self::ReplaceIfNotNull => {
                !matches!(ty, DorisType::Bitmap | DorisType::Hll | DorisType::Variant)
            }
            Self::BitmapUnion => *ty == DorisType::Bitmap,
            Self::HllUnion => *ty == DorisType::Hll,
        }
    }
}

/// Adds the batches of one commit to a tablet, merged with the live rows of their keys.
pub(super) fn merge(
    tablet: &mut Tablet,
    def: &Definition,
    batches: Vec<RecordBatch>,
    version: u64,
    tso: i64,
) -> Result<(), SqlError> {
    let mut groups: HashMap<u128, u32, BuildIdentity> = HashMap::default();
    let mut hashes: Vec<u128> = Vec::new();
    let mut olds: Vec<RowRef> = Vec::new();
    // Members in order of arrival: group, source, row. The live row of a key comes before its new rows.
    let mut members: Vec<u32> = Vec::new();
    let mut places: Vec<(usize, usize)> = Vec::new();
    let mut sources: Vec<&RecordBatch> = batches.iter().collect();
    let mut old_sources: HashMap<u32, usize> = HashMap::new();
    for (at, batch) in batches.iter().enumerate() {
        let keys: Vec<ArrayRef> = def.keys.iter().map(|i| Arc::clone(batch.column(*i))).collect();
        for (row, hash) in hash_keys(&keys)?.into_iter().enumerate() {
            let group = match groups.get(&hash) {
                Some(group) => *group,
                None => {
                    let group = hashes.len() as u32;
                    groups.insert(hash, group);
                    hashes.push(hash);
                    if let Some(old) = tablet.index.get(&hash) {
                        let source = *old_sources.entry(old.rowset).or_insert_with(|| {
                            sources.push(&tablet.rowsets[old.rowset as usize].rowset.batch);
                            sources.len() - 1
                        });
                        olds.push(*old);
                        members.push(group);
                        places.push((source, old.row as usize));
                    }
                    group
                }
            };
            members.push(group);
            places.push((at, row));
        }
    }
    let single = members.len() == hashes.len();
    let mut columns = Vec::with_capacity(def.base());
    for (i, column) in def.spec.columns.iter().enumerate() {
        let arrays: Vec<&dyn Array> = sources.iter().map(|b| b.column(i).as_ref()).collect();
        let all = interleave(&arrays, &places).map_err(SqlError::detail)?;
        columns.push(if single {
            all
        } else {
            fold(column.aggregation.unwrap_or(Aggregation::Replace), &all, &members, hashes.len())?
        });
    }
    let merged = RecordBatch::try_new(Arc::clone(&def.schema), columns).map_err(SqlError::detail)?;
    for old in olds {
        tablet.rowsets[old.rowset as usize].kill(old.row as usize, version);
        tablet.rows -= 1;
    }
    let mut start = 0;
    while start < hashes.len() {
        let n = (hashes.len() - start).min(ROWSET_ROWS);
        let rowset = tablet.rowsets.len() as u32;
        for (row, hash) in hashes[start..start + n].iter().enumerate() {
            tablet.index.insert(*hash, RowRef { rowset, row: row as u32 });
        }
        tablet.rowsets.push(new_rowset(merged.slice(start, n), version, tso));
        tablet.rows += n as u64;
        start += n;
    }
    Ok(())
}

/// One value per group; `members` tells the group of each row.
pub(super) fn fold(how: Aggregation, all: &ArrayRef, members: &[u32], groups: usize) -> Result<ArrayRef, SqlError> {
    match how {
        Aggregation::Replace => pick(all, members, groups, |_, _| true),
        Aggregation::ReplaceIfNotNull => pick(all, members, groups, |_, row| !all.is_null(row)),
        Aggregation::Min | Aggregation::Max => {
            let converter =
                RowConverter::new(vec![SortField::new(all.data_type().clone())]).map_err(SqlError::detail)?;
            let rows = converter.convert_columns(std::slice::from_ref(all)).map_err(SqlError::detail)?;
            pick(all, members, groups, |best, row| {
                if all.is_null(row) {
                    return false;
                }
                best.is_none_or(|best| {
                    let order = rows.row(row).cmp(&rows.row(best));
                    if how == Aggregation::Min { order.is_lt() } else { order.is_gt() }
                })
            })
        }
        Aggregation::Sum => sum(all, members, groups),
        Aggregation::BitmapUnion => {
            let array = all.as_binary::<i32>();
            let states = unions(array.iter(), members, groups, bitmap::union_bytes)?;
            Ok(Arc::new(states.iter().map(Option::as_deref).collect::<BinaryArray>()))
        }
        Aggregation::HllUnion => {
            let array = all.as_binary::<i64>();
            let states = unions(array.iter(), members, groups, hll::union_bytes)?;
            Ok(Arc::new(states.iter().map(Option::as_deref).collect::<LargeBinaryArray>()))
        }
    }
}

/// Takes the last row of each group that `wins` over the one chosen before; NULL where none does.
fn pick(
    all: &ArrayRef,
    members: &[u32],
    groups: usize,
    wins: impl Fn(Option<usize>, usize) -> bool,
) -> Result<ArrayRef, SqlError> {
    let mut best: Vec<Option<u32>> = vec![None; groups];
    for (row, group) in members.iter().enumerate() {
        let slot = &mut best[*group as usize];
        if wins(slot.map(|row| row as usize), row) {
            *slot = Some(row as u32);
        }
    }
    take(all, &UInt32Array::from(best), None).map_err(SqlError::detail)
}

/// The union of the states of each group.
fn unions<'a>(
    states: impl Iterator<Item = Option<&'a [u8]>>,
    members: &[u32],
    groups: usize,
    union: impl Fn(&[u8], &[u8]) -> Option<Vec<u8>>,
) -> Result<Vec<Option<Vec<u8>>>, SqlError> {
    let mut out: Vec<Option<Vec<u8>>> = vec![None; groups];
    for (state, group) in states.zip(members) {
        let Some(state) = state else { continue };
        let slot = &mut out[*group as usize];
        *slot = Some(match slot {
            None => state.to_vec(),
            Some(known) => union(known, state).ok_or_else(|| SqlError::detail("a stored state cannot be read"))?,
        });
    }
    Ok(out)
}

fn sums<T: ArrowPrimitiveType>(
    all: &ArrayRef,
    members: &[u32],
    groups: usize,
    add: impl Fn(T::Native, T::Native) -> T::Native,
) -> ArrayRef {
    let array = all.as_primitive::<T>();
    let mut out: Vec<Option<T::Native>> = vec![None; groups];
    for (row, group) in members.iter().enumerate() {
        if array.is_null(row) {
            continue;
        }
        let slot = &mut out[*group as usize];
        *slot = Some(slot.map_or(array.value(row), |sum| add(sum, array.value(row))));
    }
    Arc::new(PrimitiveArray::<T>::from_iter(out).with_data_type(all.data_type().clone()))
}

fn sum(all: &ArrayRef, members: &[u32], groups: usize) -> Result<ArrayRef, SqlError> {
    Ok(match all.data_type() {
        DataType::Int8 => sums::<Int8Type>(all, members, groups, i8::wrapping_add),
        DataType::Int16 => sums::<Int16Type>(all, members, groups, i16::wrapping_add),
        DataType::Int32 => sums::<Int32Type>(all, members, groups, i32::wrapping_add),
        DataType::Int64 => sums::<Int64Type>(all, members, groups, i64::wrapping_add),
        DataType::Float32 => sums::<Float32Type>(all, members, groups, |a, b| a + b),
        DataType::Float64 => sums::<Float64Type>(all, members, groups, |a, b| a + b),
        DataType::Decimal128(..) => sums::<Decimal128Type>(all, members, groups, i128::wrapping_add),
        DataType::Decimal256(..) => sums::<Decimal256Type>(all, members, groups, |a, b| a.wrapping_add(b)),
        other => return Err(SqlError::not_served(format!("SUM over {other}"))),
    })
}

/// The values of a SUM column with the opposite sign.
pub(super) fn negated(array: &ArrayRef) -> Result<ArrayRef, SqlError> {
    arrow::compute::kernels::numeric::neg_wrapping(array).map_err(SqlError::detail)
}

/// Forgets dead rows of a keyed tablet.
pub(super) fn forget(tablet: &mut Tablet, def: &Definition, dead: &[RowRef]) -> Result<(), SqlError> {
    let mut by_rowset: HashMap<u32, Vec<u32>> = HashMap::new();
    for at in dead {
        by_rowset.entry(at.rowset).or_default().push(at.row);
    }
    for (rowset, rows) in by_rowset {
        let batch = &tablet.rowsets[rowset as usize].rowset.batch;
        let chosen = UInt32Array::from(rows);
        let keys = def
            .keys
            .iter()
            .map(|i| take(batch.column(*i), &chosen, None))
            .collect::<Result<Vec<_>, _>>()
            .map_err(SqlError::detail)?;
        for hash in hash_keys(&keys)? {
            tablet.index.remove(&hash);
        }
    }
    Ok(())
}

/// Which rows of a rowset are alive.
pub(super) fn alive(entry: &super::rowset::RowsetEntry) -> BooleanArray {
    (0..entry.physical_rows()).map(|row| Some(entry.is_alive(row))).collect()
}
