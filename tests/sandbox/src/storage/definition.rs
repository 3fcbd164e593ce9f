//! What a table is: its definition, and what follows from it.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, new_null_array};
use arrow::datatypes::{Schema, SchemaRef};

use super::complete::default_array;
use super::partition::Partitioning;
use super::{Column, KeysType, SEQUENCE_COL, delete_sign_field};
use crate::error::SqlError;
use crate::types::DorisType;

/// Whether and how changes are recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChangeConfig {
    /// `need_historical_value`: updates and deletes keep the image before them.
    pub before_image: bool,
    /// `ttl_seconds`: age at which records expire; `None` where the build does not clean up.
    pub ttl_seconds: Option<i64>,
}

/// The hidden sequence column of a unique table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SequenceSpec {
    /// Type of `__DORIS_SEQUENCE_COL__`.
    pub ty: DorisType,
    /// `function_column.sequence_col`: the base column it copies; `None` with `function_column.sequence_type`.
    pub column: Option<String>,
}

/// Definition of a table.
#[derive(Debug, Clone)]
pub struct TableSpec {
    /// Database.
    pub db: String,
    /// Name.
    pub name: String,
    /// Columns, key columns first.
    pub columns: Vec<Column>,
    /// Key model.
    pub keys_type: KeysType,
    /// Unique tables: `enable_unique_key_merge_on_write`.
    pub merge_on_write: bool,
    /// Sequence column of a unique table.
    pub sequence: Option<SequenceSpec>,
    /// Range or list partitions; `None`: one partition named as the table.
    pub partitioning: Option<Partitioning>,
    /// Distribution columns, empty for RANDOM.
    pub hash_columns: Vec<String>,
    /// Buckets of a partition, unless it says otherwise.
    pub buckets: usize,
    /// `BUCKETS AUTO` was written.
    pub auto_buckets: bool,
    /// All properties, with defaults filled in.
    pub properties: BTreeMap<String, String>,
    /// Comment.
    pub comment: String,
    /// Change recording.
    pub changes: Option<ChangeConfig>,
    /// First value of the AUTO_INCREMENT column.
    pub auto_increment_start: i64,
    /// Creation time, milliseconds.
    pub created_ms: i64,
}

impl TableSpec {
    /// Position of a column, compared without case.
    pub fn position(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|c| c.name.eq_ignore_ascii_case(name))
    }

    /// Unique with merge-on-write.
    pub fn is_mow(&self) -> bool {
        self.keys_type == KeysType::Unique && self.merge_on_write
    }
}

/// A definition and what the storage derives from it. ALTER makes a new one; handles keep the one they were made with.
#[derive(Debug)]
pub(super) struct Definition {
    pub(super) spec: TableSpec,
    /// Base columns, then the sequence and the delete sign of unique tables.
    pub(super) schema: SchemaRef,
    /// Positions of the key columns.
    pub(super) keys: Vec<usize>,
    /// Position of the sequence column in `schema`.
    pub(super) sequence: Option<usize>,
    /// Position of the base column that the sequence copies.
    pub(super) mapped_sequence: Option<usize>,
    /// Counts the changes of the schema.
    pub(super) schema_version: u32,
    /// Identity of each base column through renames.
    pub(super) ids: Vec<u32>,
    /// Identity of the next new column.
    pub(super) next_column_id: u32,
}

impl Definition {
    /// The definition of a new table.
    pub(super) fn new(spec: TableSpec) -> Arc<Self> {
        let ids: Vec<u32> = (0..spec.columns.len() as u32).collect();
        let next = ids.len() as u32;
        Self::with_ids(spec, ids, next, 0)
    }

    /// A definition whose columns have these identities.
    pub(super) fn with_ids(spec: TableSpec, ids: Vec<u32>, next_column_id: u32, schema_version: u32) -> Arc<Self> {
        let mut fields: Vec<_> = spec.columns.iter().map(Column::field).collect();
        let sequence = spec.sequence.as_ref().map(|sequence| {
            fields.push(sequence.ty.storage_field(SEQUENCE_COL, true));
            fields.len() - 1
        });
        if spec.keys_type == KeysType::Unique {
            fields.push(delete_sign_field());
        }
        let mapped_sequence =
            spec.sequence.as_ref().and_then(|s| s.column.as_ref()).and_then(|column| spec.position(column));
        Arc::new(Self {
            schema: Arc::new(Schema::new(fields)),
            keys: (0..spec.columns.len()).filter(|i| spec.columns[*i].key).collect(),
            sequence,
            mapped_sequence,
            schema_version,
            ids,
            next_column_id,
            spec,
        })
    }

    /// Number of base columns.
    pub(super) fn base(&self) -> usize {
        self.spec.columns.len()
    }

    /// A batch of `from`'s schema in the schema of this definition: columns follow their identity, new ones take their
    /// default.
    pub(super) fn adapt(&self, from: &Definition, batch: &RecordBatch, now_ms: i64) -> Result<RecordBatch, SqlError> {
        let mut columns = self.adapt_base(from, batch, now_ms)?;
        if self.sequence.is_some() {
            columns.push(match from.sequence {
                Some(at) => Arc::clone(batch.column(at)),
                None => new_null_array(self.schema.field(self.base()).data_type(), batch.num_rows()),
            });
        }
        if self.spec.keys_type == KeysType::Unique {
            columns.extend(batch.columns().last().cloned());
        }
        RecordBatch::try_new(Arc::clone(&self.schema), columns).map_err(SqlError::detail)
    }

    /// The base columns of [`Definition::adapt`].
    pub(super) fn adapt_base(
        &self,
        from: &Definition,
        batch: &RecordBatch,
        now_ms: i64,
    ) -> Result<Vec<ArrayRef>, SqlError> {
        let mut columns = Vec::with_capacity(self.schema.fields().len());
        for (column, id) in self.spec.columns.iter().zip(&self.ids) {
            columns.push(match from.ids.iter().position(|known| known == id) {
                Some(at) if from.spec.columns[at].ty == column.ty => Arc::clone(batch.column(at)),
                Some(at) => crate::types::conform(batch.column(at), &column.ty).map_err(SqlError::detail)?,
                None => default_array(column, batch.num_rows(), now_ms)?,
            });
        }
        Ok(columns)
    }
}
