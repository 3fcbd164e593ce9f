//! Rows told by change records, read in batches.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Int64Array, RecordBatch, RecordBatchOptions, new_null_array};
use arrow::compute::interleave;
use arrow::datatypes::{Field, Schema, SchemaRef};

use super::incr::IncrType;
use super::{BEFORE, ChangeBatch, ChangeColumns, fold};
use crate::engine::Profile;
use crate::error::SqlError;
use crate::storage::Table;
use crate::types::{DorisType, conform};

/// Rows per output batch.
const BATCH_ROWS: usize = 8192;

/// Which side of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Image {
    Before,
    After,
}

/// One output row: where its values stand and what its metadata are.
#[derive(Debug, Clone, Copy)]
pub(super) struct Emit {
    pub(super) batch: usize,
    pub(super) row: usize,
    pub(super) image: Image,
    pub(super) op: i64,
    pub(super) tso: i64,
    pub(super) lsn: i64,
}

/// The rows of a window, ready to be read in batches.
#[derive(Debug)]
pub(crate) struct ChangeRows {
    batches: Vec<Arc<ChangeBatch>>,
    rows: Vec<Emit>,
}

impl ChangeRows {
    /// Folds records, given in commit order, to rows of the type.
    pub(crate) fn new(
        table: &Table,
        batches: Vec<Arc<ChangeBatch>>,
        kind: IncrType,
        profile: Profile,
    ) -> Result<Self, SqlError> {
        let rows = fold::fold(table, &batches, kind, profile)?;
        Ok(Self { batches, rows })
    }

    /// The rows that the records superseded, as they were before the first of them.
    pub(crate) fn superseded(table: &Table, batches: Vec<Arc<ChangeBatch>>) -> Result<Self, SqlError> {
        let rows = fold::superseded(table, &batches)?;
        Ok(Self { batches, rows })
    }

    /// The records as they are.
    pub(crate) fn raw(batches: Vec<Arc<ChangeBatch>>) -> Self {
        let rows = fold::raw(&batches);
        Self { batches, rows }
    }

    /// Number of output batches.
    pub(crate) fn chunks(&self) -> usize {
        self.rows.len().div_ceil(BATCH_ROWS)
    }

    /// One output batch with the columns of `schema` (base columns and hidden ones, by name).
    pub(crate) fn read(&self, chunk: usize, schema: &SchemaRef) -> Result<RecordBatch, SqlError> {
        let end = ((chunk + 1) * BATCH_ROWS).min(self.rows.len());
        let rows = &self.rows[chunk * BATCH_ROWS..end];
        let columns = schema.fields().iter().map(|field| self.column(field, rows)).collect::<Result<Vec<_>, _>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
        RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options).map_err(SqlError::detail)
    }

    fn column(&self, field: &Field, rows: &[Emit]) -> Result<ArrayRef, SqlError> {
        let name = field.name();
        let metadata =
            |value: fn(&Emit) -> i64| Arc::new(Int64Array::from_iter_values(rows.iter().map(value))) as ArrayRef;
        if name.starts_with("__DORIS_") {
            if name.ends_with("_TSO__") {
                return Ok(metadata(|row| row.tso));
            }
            if name.ends_with("_OP__") {
                return Ok(metadata(|row| row.op));
            }
            if name.ends_with("_LSN__") {
                let ty = DorisType::of_field(field).unwrap_or(DorisType::BigInt);
                return conform(&metadata(|row| row.lsn), &ty).map_err(SqlError::detail);
            }
        }
        if let Some(base) = name.strip_prefix(BEFORE.0).and_then(|rest| rest.strip_suffix(BEFORE.1)) {
            return self.values(base, field, rows, |_| Image::Before);
        }
        self.values(name, field, rows, |row| row.image)
    }

    /// Column `name` of the images. A record from before the column was there has NULL.
    fn values(
        &self,
        name: &str,
        field: &Field,
        rows: &[Emit],
        image: impl Fn(&Emit) -> Image,
    ) -> Result<ArrayRef, SqlError> {
        let nothing = new_null_array(field.data_type(), 1);
        let mut sources: Vec<&dyn Array> = vec![nothing.as_ref()];
        let mut positions: HashMap<(usize, Image), usize> = HashMap::new();
        let mut indices = Vec::with_capacity(rows.len());
        for row in rows {
            let image = image(row);
            let source = *positions.entry((row.batch, image)).or_insert_with(|| {
                let batch = &self.batches[row.batch];
                let values = match image {
                    Image::Before => batch.before.as_ref(),
                    Image::After => Some(&batch.after),
                };
                let column = values.and_then(|values| values.column_by_name(name));
                match column.filter(|column| column.data_type() == field.data_type()) {
                    Some(column) => {
                        sources.push(column.as_ref());
                        sources.len() - 1
                    }
                    None => 0,
                }
            });
            indices.push(if source == 0 { (0, 0) } else { (source, row.row) });
        }
        interleave(&sources, &indices).map_err(SqlError::detail)
    }
}

/// The schema of an `@incr` read: base columns, of which values are nullable, then the hidden ones.
pub(crate) fn incr_schema(table: &Table, profile: Profile) -> SchemaRef {
    let mut fields = base_fields(table);
    fields.extend(ChangeColumns::of(profile).fields.iter().map(|f| f.as_ref().clone()));
    Arc::new(Schema::new(fields))
}

/// The schema of raw records: as of `@incr`, with the before image of each value column.
pub(crate) fn raw_schema(table: &Table, profile: Profile) -> SchemaRef {
    let mut fields = base_fields(table);
    if table.spec().changes.is_some_and(|changes| changes.before_image) {
        fields.extend(table.columns().iter().filter(|c| !c.key).map(|c| {
            let name = format!("{}{}{}", BEFORE.0, c.name, BEFORE.1);
            c.ty.storage_field(&name, true).as_ref().clone()
        }));
    }
    fields.extend(ChangeColumns::of(profile).fields.iter().map(|f| f.as_ref().clone()));
    Arc::new(Schema::new(fields))
}

fn base_fields(table: &Table) -> Vec<Field> {
    let nullable = |c: &crate::storage::Column| c.nullable || !c.key;
    table.columns().iter().map(|c| c.field().as_ref().clone().with_nullable(nullable(c))).collect()
}
