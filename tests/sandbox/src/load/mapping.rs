//! From the columns of a body to the columns of a table: which feeds which, what is computed, what is left out.
//!
//! ```text
//! source columns ──┬─ direct: cast ───────────────┐
//!                  └─ expressions of `columns` ───┴─ target columns ── `where` ── NOT NULL, lengths ── batch
//! ```
//!
//! As on the server, `columns` and `delete` see the source columns (texts for csv and json) and `where` sees the
//! target columns in their own types.

mod build;
mod select;

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch, RecordBatchOptions};
use arrow::datatypes::{DataType, SchemaRef};

use super::batch::{Fate, SourceRows};
use super::reply::Failure;
use crate::engine::MergeType;
use crate::sql::CompiledExpr;
use crate::types::{ColumnBuilder, DorisType, SessionZone, conform_in};

/// Value of a column that a JSON row does not have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Missing {
    Null,
    Default(String),
    /// Neither NULL nor a default: the row is bad.
    Refused,
}

/// One column of the body.
#[derive(Debug, Clone)]
pub(super) struct Source {
    pub name: String,
    /// Type in which expressions see it.
    pub ty: DorisType,
    pub missing: Missing,
    /// The target it feeds, when it feeds one directly.
    pub direct: Option<DorisType>,
    /// It is part of the key.
    pub key: bool,
    /// Position among the base columns of the table.
    pub base: Option<i32>,
}

/// Where the values of a target come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fill {
    Source(usize),
    Computed(usize),
    Skips,
}

#[derive(Debug, Clone)]
struct Target {
    name: String,
    ty: DorisType,
    nullable: bool,
    fill: Fill,
}

/// A computed column.
#[derive(Debug)]
struct Step {
    expr: CompiledExpr,
    /// Columns it sees: the sources, then computed columns under names of their own.
    scope: SchemaRef,
    /// Later expressions see it.
    seen: bool,
}

/// The way of rows into a table.
#[derive(Debug)]
pub(super) struct Mapping {
    pub sources: Vec<Source>,
    /// Rows bring columns of their own (flexible partial update).
    pub flexible: bool,
    /// Lines of csv may have more columns than these.
    pub open_ended: bool,
    /// Condition on the source columns that come with it.
    selection: Option<(CompiledExpr, SchemaRef)>,
    steps: Vec<Step>,
    targets: Vec<Target>,
    /// Schema of the batches for the table.
    schema: SchemaRef,
    /// `where`, and the target columns that it sees.
    filter: Option<(CompiledExpr, SchemaRef)>,
    strict: bool,
    /// Bytes of a STRING.
    string_limit: u32,
    pub zone: SessionZone,
}

/// A mapping and what the transaction has to know of it.
#[derive(Debug)]
pub(super) struct Planned {
    pub mapping: Mapping,
    /// Target columns; `None` means all base columns.
    pub columns: Option<Vec<String>>,
    pub merge_type: MergeType,
    pub sequence_column: Option<String>,
}

/// Rows for the table, and the place of each among the rows of the body's batch.
pub(super) struct Mapped {
    pub batch: RecordBatch,
    pub kept: Vec<usize>,
}

impl Mapping {
    /// Index of a source column, compared without case as Doris compares names.
    pub fn index(&self, name: &str) -> Option<usize> {
        self.sources.iter().position(|c| c.name.eq_ignore_ascii_case(name))
    }

    /// Maps a batch; what becomes of each row is noted in its `fates`. `None` when no row is kept.
    ///
    /// # Errors
    /// An expression that cannot be evaluated, or a pair of types without conversion: the load fails as a whole.
    pub fn map(&self, rows: &mut SourceRows) -> Result<Option<Mapped>, Failure> {
        let count = rows.fates.len();
        let options = RecordBatchOptions::new().with_row_count(Some(count));
        let computed = self.compute(rows, &options)?;
        let mut arrays = Vec::with_capacity(self.targets.len());
        for target in &self.targets {
            arrays.push(match target.fill {
                Fill::Source(i) => self.convert(&rows.arrays[i], target, &mut rows.fates)?,
                Fill::Computed(i) => conform_in(&computed[i], &target.ty, &self.zone)
                    .map_err(|e| no_conversion(&target.name, computed[i].data_type(), &target.ty, &e))?,
                Fill::Skips => rows.skips.clone().ok_or_else(|| {
                    Failure::new("INTERNAL_ERROR", "rows of a flexible partial update without their skipped columns")
                })?,
            });
        }
        if let Some((filter, schema)) = &self.filter {
            let visible = RecordBatch::try_new_with_options(Arc::clone(schema), arrays.clone(), &options)
                .map_err(|e| Failure::new("INTERNAL_ERROR", e.to_string()))?;
            let selected = filter.evaluate_filter(&visible).map_err(Failure::from_evaluation)?;
            select(&selected, &mut rows.fates);
        }
        self.check(&arrays, rows);
        let kept: Vec<usize> = (0..count).filter(|row| rows.fates[*row] == Fate::Kept).collect();
        if kept.is_empty() {
            return Ok(None);
        }
        if kept.len() < count {
            let mask: BooleanArray = rows.fates.iter().map(|fate| Some(*fate == Fate::Kept)).collect();
            for array in &mut arrays {
                *array =
                    arrow::compute::filter(array, &mask).map_err(|e| Failure::new("INTERNAL_ERROR", e.to_string()))?;
            }
        }
        let options = RecordBatchOptions::new().with_row_count(Some(kept.len()));
        let batch = RecordBatch::try_new_with_options(Arc::clone(&self.schema), arrays, &options)
            .map_err(|e| Failure::new("INTERNAL_ERROR", e.to_string()))?;
        Ok(Some(Mapped { batch, kept }))
    }

    fn compute(&self, rows: &mut SourceRows, options: &RecordBatchOptions) -> Result<Vec<ArrayRef>, Failure> {
        let mut computed = Vec::with_capacity(self.steps.len());
        if self.steps.is_empty() && self.selection.is_none() {
            return Ok(computed);
        }
        let mut scope = Vec::with_capacity(rows.arrays.len());
        for (source, array) in self.sources.iter().zip(&rows.arrays) {
            scope.push(
                conform_in(array, &source.ty, &self.zone)
                    .map_err(|e| no_conversion(&source.name, array.data_type(), &source.ty, &e))?,
            );
        }
        if let Some((selection, schema)) = &self.selection {
            let batch = RecordBatch::try_new_with_options(Arc::clone(schema), scope.clone(), options)
                .map_err(|e| Failure::new("INTERNAL_ERROR", e.to_string()))?;
            select(&selection.evaluate_filter(&batch).map_err(Failure::from_evaluation)?, &mut rows.fates);
        }
        for step in &self.steps {
            let batch = RecordBatch::try_new_with_options(Arc::clone(&step.scope), scope.clone(), options)
                .map_err(|e| Failure::new("INTERNAL_ERROR", e.to_string()))?;
            let array = step.expr.evaluate(&batch).map_err(Failure::from_evaluation)?;
            if step.seen {
                scope.push(Arc::clone(&array));
            }
            computed.push(array);
        }
        Ok(computed)
    }

    /// Casts a source column to its target. In strict mode a value that is lost filters its row; a text too long for
    /// its column does so in either mode.
    fn convert(&self, source: &ArrayRef, target: &Target, fates: &mut [Fate]) -> Result<ArrayRef, Failure> {
        let mut filter = |row: usize, reason: String| {
            if fates[row] == Fate::Kept {
                fates[row] = Fate::Filtered(reason);
            }
        };
        let bounded = matches!(target.ty, DorisType::Char(_) | DorisType::Varchar(_));
        if let Some(texts) = source.as_string_opt::<i32>() {
            let mut builder = ColumnBuilder::in_zone(&target.ty, self.zone);
            for (row, text) in texts.iter().enumerate() {
                let Some(text) = text else {
                    builder.append_null();
                    continue;
                };
                if let Err(problem) = builder.append_text(text) {
                    builder.append_null();
                    let column = &target.name;
                    if self.strict || bounded {
                        filter(row, format!("column_name[{column}], {problem}"));
                    }
                }
            }
            return Ok(builder.finish());
        }
        let array = conform_in(source, &target.ty, &self.zone)
            .map_err(|e| no_conversion(&target.name, source.data_type(), &target.ty, &e))?;
        if self.strict && array.null_count() > source.null_count() {
            for row in (0..source.len()).filter(|row| array.is_null(*row) && !source.is_null(*row)) {
                filter(row, format!("column_name[{}], the value cannot be converted to {}", target.name, target.ty));
            }
        }
        Ok(array)
    }

    /// What the table's columns themselves demand.
    fn check(&self, arrays: &[ArrayRef], rows: &mut SourceRows) {
        for (target, array) in self.targets.iter().zip(arrays) {
            if !target.nullable && array.null_count() > 0 {
                for row in (0..array.len()).filter(|row| array.is_null(*row)) {
                    if rows.fates[row] == Fate::Kept && !self.is_skipped(target, rows, row) {
                        rows.fates[row] = Fate::Filtered(not_null(target));
                    }
                }
            }
            let Some(bytes) = target.ty.max_bytes(self.string_limit) else { continue };
            let Some(texts) = array.as_string_opt::<i32>() else { continue };
            for (row, text) in texts.iter().enumerate() {
                let length = text.map_or(0, str::len);
                if length > bytes as usize && rows.fates[row] == Fate::Kept {
                    rows.fates[row] = Fate::Filtered(format!(
                        "column_name[{}], the length of input is too long than schema, schema length: {bytes}, actual length: {length}",
                        target.name
                    ));
                }
            }
        }
    }

    /// Whether a row does not bring this column.
    fn is_skipped(&self, target: &Target, rows: &SourceRows, row: usize) -> bool {
        let (Fill::Source(i), Some(skips)) = (target.fill, &rows.skips) else { return false };
        let Some(skipped) = skips.as_list_opt::<i32>().map(|list| list.value(row)) else { return false };
        let Some(position) = self.sources[i].base else { return false };
        skipped.as_primitive_opt::<arrow::datatypes::Int32Type>().is_some_and(|p| p.values().contains(&position))
    }
}

/// Leaves out the rows that a condition does not hold for.
fn select(selected: &BooleanArray, fates: &mut [Fate]) {
    for (row, fate) in fates.iter_mut().enumerate() {
        if *fate == Fate::Kept && !selected.value(row) {
            *fate = Fate::Unselected;
        }
    }
}

/// Reason of a NULL where none may be.
fn not_null(target: &Target) -> String {
    format!("column_name[{}], null value for not null column, type={}", target.name, target.ty.primitive_name())
}

fn no_conversion(column: &str, from: &DataType, ty: &DorisType, error: &arrow::error::ArrowError) -> Failure {
    Failure::new("INTERNAL_ERROR", format!("column {column} of arrow type {from} cannot be loaded into {ty}: {error}"))
}
