//! Filters over changes, evaluated right after the read.
//!
//! An update is a pair of rows. A condition on values may hold for one half only: the row moves into or out of what
//! the condition describes. Then the half that is left is no update any more: it becomes an insert or a delete, so
//! that a mirror of the filtered changelog stays equal to the filtered table. A condition on the change kind itself
//! is applied afterwards, to the kinds that the reader sees.
//!
//! This needs the old values of the row: a table that records none is not filtered by them. And it holds for the
//! conditions that are evaluated here. Operators above the read (joins, unnesting, conditions with subqueries) see the
//! two halves as rows; a sink over such an operator writes an old half as a delete of its key.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, StringArray};
use arrow::compute::{concat_batches, filter_record_batch, prep_null_mask_filter};
use arrow::record_batch::RecordBatch;
use datafusion::common::cast::as_boolean_array;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::error::Result;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_plan::PhysicalExpr;

use super::row_kind::RowKind;

/// The filters of one read, over batches whose last column is the change kind.
#[derive(Debug, Clone, Default)]
pub(super) struct ChangeFilters {
    /// Conditions that do not look at the change kind.
    values: Vec<Arc<dyn PhysicalExpr>>,
    /// Conditions that do.
    kinds: Vec<Arc<dyn PhysicalExpr>>,
}

impl ChangeFilters {
    /// Splits `filters`, whose columns are those of the read; `kind_column` is the index of the change kind.
    pub fn new(filters: Vec<Arc<dyn PhysicalExpr>>, kind_column: usize) -> Self {
        let (kinds, values) = filters
            .into_iter()
            .partition(|filter| collect_columns(filter).iter().any(|column| column.index() == kind_column));
        Self { values, kinds }
    }

    /// The conditions on values, and those on the change kind: what changes kinds stands between the two.
    pub fn split(self) -> (Self, Self) {
        (Self { values: self.values, kinds: vec![] }, Self { values: vec![], kinds: self.kinds })
    }

    /// The rows of `batch` whose change kind passes.
    ///
    /// # Errors
    /// When a condition cannot be evaluated.
    pub fn by_kind(&self, batch: RecordBatch) -> Result<RecordBatch> {
        by_kind(self, batch)
    }

    /// The same conditions over columns that stand elsewhere.
    pub fn moved(&self, place: impl Fn(usize) -> usize + Copy) -> Result<Self> {
        let moved = |filters: &[Arc<dyn PhysicalExpr>]| -> Result<Vec<_>> {
            filters.iter().map(|filter| moved_columns(filter, place)).collect()
        };
        Ok(Self { values: moved(&self.values)?, kinds: moved(&self.kinds)? })
    }

    /// All conditions.
    pub fn all(&self) -> impl Iterator<Item = &Arc<dyn PhysicalExpr>> {
        self.values.iter().chain(&self.kinds)
    }

    /// Row kinds that can pass the conditions which depend on the kind alone.
    pub fn passing_kinds(&self, schema: &arrow::datatypes::SchemaRef, kind_column: usize) -> Vec<RowKind> {
        let only_kind = self
            .kinds
            .iter()
            .filter(|filter| collect_columns(filter).iter().all(|column| column.index() == kind_column));
        let columns = schema.fields().iter().enumerate().map(|(index, field)| -> ArrayRef {
            match index == kind_column {
                true => Arc::new(StringArray::from_iter_values(RowKind::ALL.map(RowKind::as_str))),
                false => arrow::array::new_null_array(field.data_type(), RowKind::ALL.len()),
            }
        });
        let nullable: Vec<_> = schema.fields().iter().map(|field| field.as_ref().clone().with_nullable(true)).collect();
        let schema = Arc::new(arrow::datatypes::Schema::new(nullable));
        let Ok(probe) = RecordBatch::try_new(schema, columns.collect()) else {
            return RowKind::ALL.to_vec();
        };
        let mut passing = vec![true; RowKind::ALL.len()];
        for filter in only_kind {
            // A condition that cannot be evaluated here says nothing; it will say so at run time.
            if let Ok(mask) = mask(std::slice::from_ref(filter), &probe) {
                passing.iter_mut().zip(mask.values()).for_each(|(pass, ok)| *pass &= ok);
            }
        }
        RowKind::ALL.into_iter().zip(passing).filter_map(|(kind, pass)| pass.then_some(kind)).collect()
    }
}

fn moved_columns(expr: &Arc<dyn PhysicalExpr>, place: impl Fn(usize) -> usize) -> Result<Arc<dyn PhysicalExpr>> {
    let moved = Arc::clone(expr).transform(|expr| {
        let moved = expr.downcast_ref::<Column>().map(|column| Column::new(column.name(), place(column.index())));
        Ok(match moved {
            Some(column) => Transformed::yes(Arc::new(column) as Arc<dyn PhysicalExpr>),
            None => Transformed::no(expr),
        })
    });
    moved.data()
}

/// Applies [`ChangeFilters`] to consecutive batches of one read.
#[derive(Debug, Default)]
pub(super) struct ChangeFilterState {
    /// An update-before at the end of a batch, whose other half comes with the next one.
    held: Option<RecordBatch>,
}

impl ChangeFilterState {
    /// The rows of `batch` that pass.
    pub fn apply(&mut self, filters: &ChangeFilters, batch: RecordBatch) -> Result<RecordBatch> {
        let mut batch = batch;
        if !filters.values.is_empty() {
            if let Some(held) = self.held.take() {
                batch = concat_batches(&batch.schema(), [&held, &batch])?;
            }
            let rows = batch.num_rows();
            if rows > 0 && kinds(&batch).value(rows - 1) == RowKind::UpdateBefore.as_str() {
                self.held = Some(batch.slice(rows - 1, 1));
                batch = batch.slice(0, rows - 1);
            }
            batch = split_pairs(&filters.values, batch)?;
        }
        by_kind(filters, batch)
    }

    /// True when a row waits for its other half.
    pub fn holds(&self) -> bool {
        self.held.is_some()
    }

    /// What was held back, at the end of the read.
    pub fn finish(&mut self, filters: &ChangeFilters) -> Result<Option<RecordBatch>> {
        let Some(held) = self.held.take() else { return Ok(None) };
        by_kind(filters, split_pairs(&filters.values, held)?).map(Some)
    }
}

fn by_kind(filters: &ChangeFilters, batch: RecordBatch) -> Result<RecordBatch> {
    if filters.kinds.is_empty() {
        return Ok(batch);
    }
    Ok(filter_record_batch(&batch, &mask(&filters.kinds, &batch)?)?)
}

fn kinds(batch: &RecordBatch) -> &StringArray {
    batch.column(batch.num_columns() - 1).as_string::<i32>()
}

fn mask(filters: &[Arc<dyn PhysicalExpr>], batch: &RecordBatch) -> Result<BooleanArray> {
    let mut all = vec![true; batch.num_rows()];
    for filter in filters {
        let values = filter.evaluate(batch)?.into_array(batch.num_rows())?;
        let values = as_boolean_array(&values)?;
        let values = if values.null_count() > 0 { prep_null_mask_filter(values) } else { values.clone() };
        all.iter_mut().zip(values.values()).for_each(|(pass, ok)| *pass &= ok);
    }
    Ok(BooleanArray::from(all))
}

/// Filters by values; a half of an update that is left alone becomes an insert or a delete.
fn split_pairs(filters: &[Arc<dyn PhysicalExpr>], batch: RecordBatch) -> Result<RecordBatch> {
    let mask = mask(filters, &batch)?;
    let before = kinds(&batch);
    let mut after: Option<Vec<&str>> = None;
    for row in 1..batch.num_rows() {
        let pair = before.value(row - 1) == RowKind::UpdateBefore.as_str()
            && before.value(row) == RowKind::UpdateAfter.as_str();
        if !pair || mask.value(row - 1) == mask.value(row) {
            continue;
        }
        let after = after.get_or_insert_with(|| before.iter().map(Option::unwrap_or_default).collect());
        if mask.value(row) {
            after[row] = RowKind::Insert.as_str();
        } else {
            after[row - 1] = RowKind::Delete.as_str();
        }
    }
    let batch = match after {
        None => batch,
        Some(after) => {
            let mut columns = batch.columns().to_vec();
            columns.pop();
            columns.push(Arc::new(StringArray::from(after)));
            RecordBatch::try_new(batch.schema(), columns)?
        }
    };
    Ok(filter_record_batch(&batch, &mask)?)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use arrow::array::Int64Array;
    use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
    use datafusion::common::{DFSchema, ScalarValue};
    use datafusion::prelude::{Expr, SessionContext, col, lit};

    use super::*;

    fn schema() -> SchemaRef {
        Arc::new(Schema::new(vec![
            Field::new("id", DataType::Int64, true),
            Field::new("city", DataType::Utf8, true),
            Field::new("__change_kind", DataType::Utf8, false),
        ]))
    }

    fn filters(exprs: Vec<Expr>) -> ChangeFilters {
        let context = SessionContext::new();
        let schema = DFSchema::try_from(schema().as_ref().clone()).unwrap();
        let exprs = exprs.into_iter().map(|expr| context.create_physical_expr(expr, &schema).unwrap());
        ChangeFilters::new(exprs.collect(), 2)
    }

    fn batch(rows: &[(i64, Option<&str>, &str)]) -> RecordBatch {
        RecordBatch::try_new(
            schema(),
            vec![
                Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.0))),
                Arc::new(StringArray::from_iter(rows.iter().map(|row| row.1))),
                Arc::new(StringArray::from_iter_values(rows.iter().map(|row| row.2))),
            ],
        )
        .unwrap()
    }

    #[test]
    fn row_that_leaves_the_condition_becomes_a_delete_and_one_that_enters_an_insert() {
        let filters = filters(vec![col("city").eq(lit("Ulm"))]);
        let mut state = ChangeFilterState::default();
        let input = batch(&[
            (1, Some("Ulm"), "-U"),
            (1, Some("Bonn"), "+U"),
            (2, Some("Bonn"), "-U"),
            (2, Some("Ulm"), "+U"),
            (3, Some("Ulm"), "-U"),
            (3, Some("Ulm"), "+U"),
            (4, Some("Bonn"), "+I"),
            (5, None, "-D"),
            (6, Some("Ulm"), "-D"),
        ]);
        let expected = batch(&[
            (1, Some("Ulm"), "-D"),
            (2, Some("Ulm"), "+I"),
            (3, Some("Ulm"), "-U"),
            (3, Some("Ulm"), "+U"),
            (6, Some("Ulm"), "-D"),
        ]);
        assert_eq!(state.apply(&filters, input).unwrap(), expected);
        assert!(state.finish(&filters).unwrap().is_none());
    }

    #[test]
    fn pair_that_is_split_over_two_batches_is_judged_as_one() {
        let filters = filters(vec![col("city").eq(lit("Ulm"))]);
        let mut state = ChangeFilterState::default();
        let first = state.apply(&filters, batch(&[(7, Some("Ulm"), "+I"), (1, Some("Ulm"), "-U")])).unwrap();
        assert_eq!(first, batch(&[(7, Some("Ulm"), "+I")]));
        let second = state.apply(&filters, batch(&[(1, Some("Bonn"), "+U")])).unwrap();
        assert_eq!(second, batch(&[(1, Some("Ulm"), "-D")]));
        state.apply(&filters, batch(&[(2, Some("Ulm"), "-U")])).unwrap();
        assert_eq!(state.finish(&filters).unwrap().unwrap(), batch(&[(2, Some("Ulm"), "-U")]));
    }

    #[test]
    fn condition_on_the_kind_sees_whole_pairs() {
        let filters = filters(vec![col("__change_kind").not_eq(lit("-U"))]);
        let mut state = ChangeFilterState::default();
        let input = batch(&[(1, Some("a"), "-U"), (1, Some("b"), "+U")]);
        assert_eq!(state.apply(&filters, input).unwrap(), batch(&[(1, Some("b"), "+U")]));
    }

    #[test]
    fn kinds_that_a_condition_excludes_are_known_before_the_read() {
        let kind_column = 2;
        let in_list = col("__change_kind").in_list(vec![lit("+I"), lit("+U")], false);
        let upserts = filters(vec![in_list, col("id").gt(lit(1i64))]);
        assert_eq!(upserts.passing_kinds(&schema(), kind_column), vec![RowKind::Insert, RowKind::UpdateAfter]);
        let mixed = filters(vec![col("__change_kind").eq(lit("+I")).or(col("id").eq(lit(1i64)))]);
        assert_eq!(mixed.passing_kinds(&schema(), kind_column), RowKind::ALL.to_vec());
        let none = filters(vec![Expr::Literal(ScalarValue::Boolean(Some(true)), None)]);
        assert_eq!(none.passing_kinds(&schema(), kind_column), RowKind::ALL.to_vec());
    }
}
