//! From a batch of some columns to one of the storage schema: defaults, hidden columns, checks.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use arrow::array::{Array, ArrayRef, AsArray, BinaryArray, Int8Array, LargeBinaryArray, RecordBatch, new_null_array};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};

use super::definition::Definition;
use super::partial::Partial;
use super::{Column, DELETE_SIGN, DefaultValue, KeysType, SEQUENCE_COL, SKIP_BITMAP_COL, aggregate, partial};
use crate::error::SqlError;
use crate::types::{ColumnBuilder, DorisType, SessionZone, bitmap, hll};

/// How the batches of a load become rows.
#[derive(Debug, Clone, Default)]
pub(crate) struct WritePlan {
    /// Every row deletes its key.
    pub(crate) delete: bool,
    /// Column of the batches whose value is the sequence.
    pub(crate) sequence_column: Option<String>,
    /// SUM columns are subtracted.
    pub(crate) negative: bool,
}

/// Gives out the values of AUTO_INCREMENT columns.
#[derive(Debug)]
pub(super) struct AutoIncrement(AtomicI64);

impl AutoIncrement {
    pub(super) fn new(start: i64) -> Self {
        Self(AtomicI64::new(start))
    }

    pub(super) fn take(&self, n: usize) -> std::ops::Range<i64> {
        let first = self.0.fetch_add(n as i64, Ordering::Relaxed);
        first..first + n as i64
    }
}

/// Schema of the batches of a buffer: that of storage, with room for what a partial update leaves out.
pub(super) fn buffer_schema(def: &Definition, partial: Option<&Partial>) -> SchemaRef {
    let Some(partial) = partial else { return Arc::clone(&def.schema) };
    let mut fields: Vec<Field> = def
        .schema
        .fields()
        .iter()
        .enumerate()
        .map(|(i, f)| {
            let loose = i < def.base() && !def.keys.contains(&i);
            f.as_ref().clone().with_nullable(f.is_nullable() || loose)
        })
        .collect();
    if partial.flexible {
        fields.push(super::skip_bitmap_field().as_ref().clone());
    }
    Arc::new(Schema::new(fields))
}

/// A batch in the schema of the buffer from one with some of the columns: defaults and hidden columns are filled in, NULLs
/// and lengths checked.
pub(super) fn complete(
    def: &Definition,
    batch: &RecordBatch,
    plan: &WritePlan,
    partial: Option<&Partial>,
    (auto, now_ms, string_limit): (&AutoIncrement, i64, u32),
) -> Result<RecordBatch, SqlError> {
    let rows = batch.num_rows();
    let given = batch.schema();
    let find = |name: &str| {
        given.fields().iter().position(|f| f.name().eq_ignore_ascii_case(name)).map(|i| Arc::clone(batch.column(i)))
    };
    check_known(def, &given, plan, partial)?;
    let flexible = partial.is_some_and(|p| p.flexible);
    let skips = if flexible { Some(skip_bitmaps(find(SKIP_BITMAP_COL), rows)?) } else { None };
    let mut columns: Vec<ArrayRef> = Vec::with_capacity(def.schema.fields().len() + 1);
    for (at, column) in def.spec.columns.iter().enumerate() {
        let array = match find(&column.name) {
            Some(array) => {
                if array.data_type() != &column.ty.storage() {
                    return Err(SqlError::detail(format!(
                        "column `{}` has Arrow type {}, expected {}",
                        column.name,
                        array.data_type(),
                        column.ty.storage()
                    )));
                }
                if column.auto_increment && array.null_count() > 0 && partial.is_none() {
                    number_nulls(column, &array, auto)?
                } else {
                    array
                }
            }
            None if partial.is_some() && !column.key => new_null_array(&column.ty.storage(), rows),
            None if column.auto_increment => numbers(column, auto.take(rows))?,
            None => default_array(column, rows, now_ms)?,
        };
        let absent = partial.is_some_and(|p| p.absent.contains(&at));
        if !column.nullable && !absent && array.null_count() > 0 {
            let missing =
                |row: usize| array.is_null(row) && !skips.as_ref().is_some_and(|s| partial::skips(s, row, at));
            if skips.is_none() || (0..rows).any(missing) {
                return Err(SqlError::detail(format!("null value for not null column, column={}", column.name)));
            }
        }
        check_length(column, &array, string_limit)?;
        let negate = plan.negative && column.aggregation == Some(super::Aggregation::Sum);
        columns.push(if negate { aggregate::negated(&array)? } else { array });
    }
    if let (Some(_), Some(spec)) = (def.sequence, &def.spec.sequence) {
        let carried = find(SEQUENCE_COL);
        let named = plan.sequence_column.as_deref().and_then(&find);
        columns.push(match (carried.or(named), def.mapped_sequence) {
            (Some(array), _) => crate::types::conform(&array, &spec.ty).map_err(SqlError::detail)?,
            (None, Some(at)) => Arc::clone(&columns[at]),
            (None, None) => new_null_array(&spec.ty.storage(), rows),
        });
    }
    if def.spec.keys_type == KeysType::Unique {
        let sign = match find(DELETE_SIGN) {
            Some(array) => crate::types::conform(&array, &DorisType::TinyInt).map_err(SqlError::detail)?,
            None => Arc::new(Int8Array::from_value(i8::from(plan.delete), rows)) as ArrayRef,
        };
        if sign.null_count() > 0 {
            return Err(SqlError::detail(format!("null value for not null column, column={DELETE_SIGN}")));
        }
        columns.push(sign);
    }
    columns.extend(skips);
    RecordBatch::try_new(buffer_schema(def, partial), columns).map_err(SqlError::detail)
}

/// The skip bitmaps of a flexible batch; without any, no row skips a column.
fn skip_bitmaps(found: Option<ArrayRef>, rows: usize) -> Result<ArrayRef, SqlError> {
    let wanted = super::skip_bitmap_field();
    match found {
        None => Ok(new_null_array(wanted.data_type(), rows)),
        Some(array) if array.as_list_opt::<i32>().is_some_and(|l| l.value_type() == DataType::Int32) => {
            arrow::compute::cast(&array, wanted.data_type()).map_err(SqlError::detail)
        }
        Some(array) => Err(SqlError::detail(format!("column {SKIP_BITMAP_COL} has Arrow type {}", array.data_type()))),
    }
}

fn check_known(
    def: &Definition,
    given: &SchemaRef,
    plan: &WritePlan,
    partial: Option<&Partial>,
) -> Result<(), SqlError> {
    for field in given.fields() {
        let name = field.name();
        let hidden = (def.spec.keys_type == KeysType::Unique && name.eq_ignore_ascii_case(DELETE_SIGN))
            || (def.sequence.is_some() && name.eq_ignore_ascii_case(SEQUENCE_COL))
            || (partial.is_some_and(|p| p.flexible) && name.eq_ignore_ascii_case(SKIP_BITMAP_COL))
            || plan.sequence_column.as_deref().is_some_and(|c| c.eq_ignore_ascii_case(name));
        if !hidden && def.spec.position(name).is_none() {
            return Err(SqlError::unknown_column(name, "table list"));
        }
    }
    Ok(())
}

/// The default of a column, repeated.
pub(super) fn default_array(column: &Column, rows: usize, now_ms: i64) -> Result<ArrayRef, SqlError> {
    if column.default == DefaultValue::Empty {
        return Ok(match column.ty {
            DorisType::Hll => {
                let empty = hll::empty_bytes();
                Arc::new(LargeBinaryArray::from_iter_values(std::iter::repeat_n(&empty, rows)))
            }
            _ => {
                let empty = bitmap::empty_bytes();
                Arc::new(BinaryArray::from_iter_values(std::iter::repeat_n(&empty, rows)))
            }
        });
    }
    let Some(text) = column.default.value_at(now_ms) else { return Ok(new_null_array(&column.ty.storage(), rows)) };
    let mut builder = ColumnBuilder::in_zone(&column.ty, SessionZone::UTC);
    for _ in 0..rows {
        builder.append_text(&text).map_err(SqlError::detail)?;
    }
    Ok(builder.finish())
}

/// Values of an AUTO_INCREMENT column.
pub(super) fn numbers(column: &Column, values: std::ops::Range<i64>) -> Result<ArrayRef, SqlError> {
    let array: ArrayRef = Arc::new(arrow::array::Int64Array::from_iter_values(values));
    crate::types::conform(&array, &column.ty).map_err(SqlError::detail)
}

fn number_nulls(column: &Column, array: &ArrayRef, auto: &AutoIncrement) -> Result<ArrayRef, SqlError> {
    let made = numbers(column, auto.take(array.len()))?;
    let given = arrow::compute::is_not_null(array).map_err(SqlError::detail)?;
    arrow::compute::kernels::zip::zip(&given, array, &made).map_err(SqlError::detail)
}

/// CHAR(n), VARCHAR(n) and STRING count bytes.
fn check_length(column: &Column, array: &ArrayRef, string_limit: u32) -> Result<(), SqlError> {
    let Some(limit) = column.ty.max_bytes(string_limit) else { return Ok(()) };
    let DataType::Utf8 = array.data_type() else { return Ok(()) };
    let longest = array.as_string::<i32>().offsets().windows(2).map(|w| w[1] - w[0]).max().unwrap_or(0);
    if longest as i64 > i64::from(limit) {
        return Err(SqlError::detail(format!(
            "the length of input is too long than schema, column_name: {}, schema length: {limit}, actual length: {longest}",
            column.name
        )));
    }
    Ok(())
}
