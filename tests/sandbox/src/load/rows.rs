//! Rows of texts into batches of a table's columns.

use std::borrow::Cow;
use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions};
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;

use super::DELETE_SIGN;
use super::reply::Failure;
use crate::engine::{Engine, TableMeta};
use crate::storage::DefaultValue;
use crate::types::{ColumnBuilder, DorisType, SessionZone};

/// Rows per batch.
const BATCH_ROWS: usize = 8192;
/// Bytes of text after which a batch is full whatever its rows.
const BATCH_BYTES: usize = 16 * 1024 * 1024;

/// One column that the body fills.
#[derive(Debug, Clone)]
pub(super) struct Target {
    pub name: String,
    pub ty: DorisType,
    pub nullable: bool,
    /// Value of a JSON row without this key.
    pub default: Option<String>,
}

/// The columns that the body fills, in order.
#[derive(Debug, Clone)]
pub(super) struct Targets {
    pub columns: Vec<Target>,
    pub schema: SchemaRef,
}

impl Targets {
    /// # Errors
    /// A column the table does not have.
    pub fn new(engine: &Engine, meta: &TableMeta, columns: Option<&[String]>) -> Result<Self, Failure> {
        let schema = meta.load_schema(columns).map_err(Failure::from_sql)?;
        let columns = schema
            .fields()
            .iter()
            .map(|field| match meta.column(field.name()) {
                Some(column) => Ok(Target {
                    name: column.name.clone(),
                    ty: column.ty.clone(),
                    nullable: column.nullable,
                    default: default_text(engine, &column.default),
                }),
                None if field.name() == DELETE_SIGN => Ok(Target {
                    name: DELETE_SIGN.to_owned(),
                    ty: DorisType::TinyInt,
                    nullable: false,
                    default: Some("0".to_owned()),
                }),
                None => Err(Failure::new("INTERNAL_ERROR", format!("no type for column {}", field.name()))),
            })
            .collect::<Result<_, _>>()?;
        Ok(Self { columns, schema })
    }

    /// Index of a column, compared without case as Doris compares names.
    pub fn index(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|c| c.name.eq_ignore_ascii_case(name))
    }
}

/// Text that stands for a missing JSON key.
fn default_text(engine: &Engine, default: &DefaultValue) -> Option<String> {
    match default {
        DefaultValue::None | DefaultValue::Null => None,
        DefaultValue::Text(text) => Some(text.clone()),
        DefaultValue::CurrentTimestamp => {
            let config = engine.config();
            let zone: SessionZone = config.time_zone.parse().unwrap_or(SessionZone::UTC);
            Some(zone.wall_of_ms(config.clock.now_ms()).format("%Y-%m-%d %H:%M:%S%.6f").to_string())
        }
    }
}

/// Rows on their way into a batch.
pub(super) struct RowBatch {
    targets: Arc<Targets>,
    builders: Vec<ColumnBuilder>,
    kept: Vec<bool>,
    bytes: usize,
    strict: bool,
}

impl RowBatch {
    pub fn new(targets: Arc<Targets>, strict: bool, zone: SessionZone) -> Self {
        let builders = targets.columns.iter().map(|c| ColumnBuilder::in_zone(&c.ty, zone)).collect();
        Self { targets, builders, kept: Vec::new(), bytes: 0, strict }
    }

    /// Appends one row; `value` gives the text of each column, `None` for NULL.
    ///
    /// # Errors
    /// Why the row is filtered.
    pub fn push<'v>(&mut self, mut value: impl FnMut(usize, &Target) -> Option<Cow<'v, str>>) -> Result<(), String> {
        let mut rejected = None;
        for (i, (target, builder)) in self.targets.columns.iter().zip(&mut self.builders).enumerate() {
            // A filtered row still needs a value in every column to keep them level.
            if rejected.is_some() {
                builder.append_null();
                continue;
            }
            let text = value(i, target);
            self.bytes += text.as_ref().map_or(0, |t| t.len());
            rejected = append(builder, target, text.as_deref(), self.strict).err();
        }
        self.kept.push(rejected.is_none());
        rejected.map_or(Ok(()), Err)
    }

    pub fn is_full(&self) -> bool {
        self.kept.len() >= BATCH_ROWS || self.bytes >= BATCH_BYTES
    }

    /// The rows that were not filtered, if any.
    pub fn take(&mut self) -> Result<Option<RecordBatch>, ArrowError> {
        let arrays: Vec<ArrayRef> = self.builders.iter_mut().map(ColumnBuilder::finish).collect();
        let kept = std::mem::take(&mut self.kept);
        self.bytes = 0;
        keep_rows(&self.targets.schema, arrays, &kept)
    }
}

/// A batch of the rows marked in `kept`; `None` when there are none.
pub(super) fn keep_rows(
    schema: &SchemaRef,
    mut arrays: Vec<ArrayRef>,
    kept: &[bool],
) -> Result<Option<RecordBatch>, ArrowError> {
    let rows = kept.iter().filter(|k| **k).count();
    if rows == 0 {
        return Ok(None);
    }
    if rows < kept.len() {
        let mask = BooleanArray::from(kept.to_vec());
        for array in &mut arrays {
            *array = arrow::compute::filter(array, &mask)?;
        }
    }
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(Arc::clone(schema), arrays, &options).map(Some)
}

fn append(builder: &mut ColumnBuilder, target: &Target, text: Option<&str>, strict: bool) -> Result<(), String> {
    let problem = match text {
        None => None,
        Some(text) => match builder.append_text(text) {
            Ok(()) => return Ok(()),
            Err(error) => Some(error.message),
        },
    };
    builder.append_null();
    match problem {
        // A text too long for its column is bad data in either mode.
        Some(problem) if strict || matches!(target.ty, DorisType::Char(_) | DorisType::Varchar(_)) => {
            Err(format!("column_name[{}], {problem}", target.name))
        }
        Some(problem) if !target.nullable => Err(format!(
            "column_name[{}], null value for not null column, type={} ({problem})",
            target.name,
            target.ty.primitive_name()
        )),
        None if !target.nullable => Err(not_null(target)),
        _ => Ok(()),
    }
}

/// Reason of a NULL where none may be.
pub(super) fn not_null(target: &Target) -> String {
    format!("column_name[{}], null value for not null column, type={}", target.name, target.ty.primitive_name())
}
