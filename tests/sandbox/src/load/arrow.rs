//! `format: arrow`: one Arrow IPC stream, columns matched by name.

use std::io::{BufReader, Read};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::ipc::reader::StreamReader;

use super::header::LoadPlan;
use super::reply::Failure;
use super::rows::{Target, Targets, keep_rows, not_null};
use super::worker::Progress;
use crate::types::{DorisType, SessionZone, conform_in};

pub(super) fn read(
    input: Box<dyn Read>,
    targets: &Arc<Targets>,
    plan: &LoadPlan,
    zone: SessionZone,
    progress: &mut Progress<'_>,
) -> Result<(), Failure> {
    let reader = StreamReader::try_new(BufReader::with_capacity(128 * 1024, input), None).map_err(broken)?;
    let schema = reader.schema();
    let order = targets
        .columns
        .iter()
        .map(|target| {
            let found = schema.fields().iter().position(|f| f.name().eq_ignore_ascii_case(&target.name));
            found.ok_or_else(|| {
                Failure::new("INTERNAL_ERROR", format!("the arrow stream has no column {}", target.name))
            })
        })
        .collect::<Result<Vec<_>, _>>()?;
    for batch in reader {
        let batch = batch.map_err(broken)?;
        progress.rows.total += batch.num_rows() as u64;
        let (arrays, kept) = conform_batch(&batch, targets, &order, plan.strict_mode, zone, progress)?;
        let rows =
            keep_rows(&targets.schema, arrays, &kept).map_err(|e| Failure::new("INTERNAL_ERROR", e.to_string()))?;
        if let Some(rows) = rows {
            progress.write(rows)?;
        }
    }
    Ok(())
}

fn broken(error: arrow::error::ArrowError) -> Failure {
    Failure::new("INTERNAL_ERROR", format!("failed to read the arrow stream: {error}"))
}

/// The columns in storage form, and which rows stay.
fn conform_batch(
    batch: &RecordBatch,
    targets: &Targets,
    order: &[usize],
    strict: bool,
    zone: SessionZone,
    progress: &mut Progress<'_>,
) -> Result<(Vec<ArrayRef>, Vec<bool>), Failure> {
    let mut kept = vec![true; batch.num_rows()];
    let mut arrays = Vec::with_capacity(order.len());
    for (target, source) in targets.columns.iter().zip(order) {
        let source = batch.column(*source);
        let array = conform_in(source, &target.ty, &zone).map_err(|e| {
            Failure::new(
                "INTERNAL_ERROR",
                format!("column {} of arrow type {} cannot be loaded: {e}", target.name, source.data_type()),
            )
        })?;
        for (row, keep) in kept.iter_mut().enumerate() {
            if let Some(reason) = problem(target, source, &array, row, strict)
                && std::mem::take(keep)
            {
                progress.filter(&reason, &format!("row {row} of an arrow batch"));
            }
        }
        arrays.push(array);
    }
    Ok((arrays, kept))
}

fn problem(target: &Target, source: &ArrayRef, array: &ArrayRef, row: usize, strict: bool) -> Option<String> {
    if array.is_null(row) {
        let lost = !source.is_null(row);
        let too_long = lost && matches!(target.ty, DorisType::Char(_) | DorisType::Varchar(_));
        if !target.nullable {
            return Some(not_null(target));
        }
        return (lost && (strict || too_long))
            .then(|| format!("column_name[{}], the value cannot be converted to {}", target.name, target.ty));
    }
    let (DorisType::Char(bytes) | DorisType::Varchar(bytes)) = target.ty else { return None };
    let length = array.as_string_opt::<i32>().map_or(0, |texts| texts.value(row).len());
    (length > bytes as usize).then(|| {
        format!(
            "column_name[{}], the length of input is too long than schema, schema length: {bytes}, actual length: {length}",
            target.name
        )
    })
}
