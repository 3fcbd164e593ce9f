//! Record batches to the bytes of a Stream Load body: one file per format, no I/O.

mod arrow;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod arrow_tests;
mod column;
mod conform;
mod csv;
mod digits;
mod escape;
mod json;
mod parquet;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests;

use std::fmt;

use ::arrow::array::{Array, ArrayRef, AsArray};
use ::arrow::compute::kernels::zip::zip;
use ::arrow::compute::{CastOptions, cast_with_options, is_null};
use ::arrow::datatypes::{DataType, Int64Type, Schema};
use ::arrow::record_batch::RecordBatch;
use datafusion::common::{Result as DataFusionResult, ScalarValue};

pub(crate) use self::arrow::{ArrowEncoder, ArrowPlan};
use self::column::{Column, Values};
use self::conform::plain;
pub(crate) use self::csv::CsvEncoder;
pub(crate) use self::json::JsonEncoder;
pub(crate) use self::parquet::{ParquetEncoder, is_text_in_parquet};
use super::mapping::Changes;
use super::output::Output;
use crate::error::{Error, Result};

/// Turns batches into the bytes of one load.
pub(crate) trait Encoder: fmt::Debug + Send {
    /// Appends the rows of `batch` to `out` and gives their number; rows that the change kind drops do not count.
    ///
    /// # Errors
    /// [`Error::Encode`] for a value that cannot be written exactly, with its column and row.
    fn encode_to(&mut self, batch: &RecordBatch, out: &mut Output) -> Result<u64>;

    /// As [`Self::encode_to`], to the end of a text.
    #[cfg(test)]
    fn encode(&mut self, batch: &RecordBatch, out: &mut Vec<u8>) -> Result<u64> {
        let mut output = Output::default();
        std::mem::swap(out, output.tail());
        let rows = self.encode_to(batch, &mut output);
        std::mem::swap(out, output.tail());
        rows
    }

    /// Appends what stands after the last row; called once, at the end of a load that has rows.
    ///
    /// # Errors
    /// As [`Self::encode_to`].
    fn finish(&mut self, _out: &mut Vec<u8>) -> Result<()> {
        Ok(())
    }
}

/// Which columns of a batch are written, and what becomes of each row.
#[derive(Debug, Clone)]
pub(crate) struct RowLayout {
    /// `db.table`, for errors.
    table: String,
    columns: Vec<Target>,
    /// Where a row tells whether it deletes.
    changes: Changes,
    /// Write the delete sign after the columns.
    delete_sign: bool,
    /// Drop `-U` rows; otherwise they delete their key.
    ignore_update_before: bool,
    /// The written column that orders the writes of a key.
    sequence: Option<usize>,
    /// A value that is NULL is left out of its row, except in keys.
    sparse: bool,
}

/// One written column.
#[derive(Debug, Clone)]
struct Target {
    name: String,
    /// Index in the batch.
    at: usize,
    nullable: bool,
    /// Part of the key, by which a delete finds its row.
    key: bool,
}

/// What becomes of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RowAction {
    /// Written, with this digit as delete sign when the load has one.
    Write(Option<u8>),
    /// Not written.
    Skip,
}

/// The written columns of a batch, with what becomes of its rows.
struct Rows<C> {
    columns: Vec<C>,
    /// `None` = every row is written as it is.
    actions: Option<Vec<RowAction>>,
}

impl<C> Rows<C> {
    fn action(&self, row: usize) -> RowAction {
        self.actions.as_ref().map_or(RowAction::Write(None), |actions| actions[row])
    }
}

impl RowLayout {
    /// Plans the writing of batches of `schema`: `body` has the columns to write, with their names in the load.
    ///
    /// # Errors
    /// [`Error::Schema`] when a column has a type that cannot be written, or the change-kind column is not text.
    pub(crate) fn try_new(
        table: impl ToString,
        schema: &Schema,
        body: impl IntoIterator<Item = (usize, String)>,
        changes: Changes,
        delete_sign: bool,
    ) -> Result<Self> {
        let table = table.to_string();
        if let Changes::Kind(at) = changes {
            let field = schema.field(at);
            if !matches!(values_of(field.data_type()), DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View) {
                let advice = format!("change-kind column '{}' is {}, it must be text", field.name(), field.data_type());
                return Err(Error::schema(table, advice));
            }
        }
        let mut columns = Vec::with_capacity(schema.fields().len());
        for (at, name) in body {
            let field = schema.field(at);
            column::supported(field.data_type())
                .map_err(|reason| Error::schema(&table, format!("column '{}': {reason}", field.name())))?;
            columns.push(Target { name, at, nullable: field.is_nullable(), key: false });
        }
        if columns.is_empty() {
            return Err(Error::schema(table, "the input has no columns to write"));
        }
        let ignore_update_before = true;
        Ok(Self { table, columns, changes, delete_sign, ignore_update_before, sequence: None, sparse: false })
    }

    /// Sets whether `-U` rows are dropped (as without this) or delete their key.
    pub(crate) fn ignoring_update_before(self, ignore_update_before: bool) -> Self {
        Self { ignore_update_before, ..self }
    }

    /// Says which written column orders the writes of a key: a delete must know it, or Doris would keep the row.
    pub(crate) fn ordered_by(self, sequence: Option<usize>) -> Self {
        Self { sequence, ..self }
    }

    /// Sets whether values that are NULL are left out of their rows.
    pub(crate) fn leaving_out_nulls(self, sparse: bool) -> Self {
        Self { sparse, ..self }
    }

    /// Says which columns are the key: a delete must know them.
    pub(crate) fn with_keys(mut self, is_key: impl Fn(&str) -> bool) -> Self {
        self.columns.iter_mut().for_each(|column| column.key = is_key(&column.name));
        self
    }

    /// Says which columns are NOT NULL in the table, whatever the schema of the rows says.
    pub(crate) fn with_not_null(mut self, not_null: impl Fn(&str) -> bool) -> Self {
        self.columns.iter_mut().for_each(|column| column.nullable &= !not_null(&column.name));
        self
    }

    /// Names of the written columns in the load, in order, without the delete sign.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.columns.iter().map(|column| column.name.as_str())
    }

    /// Whether rows end with the delete sign.
    pub(crate) fn has_delete_sign(&self) -> bool {
        self.delete_sign
    }

    /// The columns of `batch` as texts.
    fn prepare(&self, batch: &RecordBatch) -> Result<Rows<Column>> {
        let Rows { columns, actions } = self.checked(batch)?;
        let columns = self
            .columns
            .iter()
            .zip(&columns)
            .map(|(target, array)| Column::new(array).map_err(|reason| self.refuse_column(&target.name, &reason)));
        Ok(Rows { columns: columns.collect::<Result<_>>()?, actions })
    }

    /// The columns of `batch` without NULL where there may be none.
    fn checked(&self, batch: &RecordBatch) -> Result<Rows<ArrayRef>> {
        let columns = self.columns.iter().map(|target| ArrayRef::clone(batch.column(target.at))).collect();
        let actions = match self.changes {
            Changes::None => None,
            Changes::Kind(at) => Some(self.actions(batch, at)?),
            Changes::Sign(at) => Some(self.signs(batch, at)?),
        };
        let mut rows = Rows { columns, actions };
        self.check_sequence(&rows, batch.num_rows())?;
        for (at, target) in self.columns.iter().enumerate() {
            if self.sparse && !target.key {
                continue;
            }
            let nulls = rows.columns[at].logical_nulls().filter(|nulls| nulls.null_count() > 0);
            let Some(nulls) = nulls.filter(|_| !target.nullable) else { continue };
            // A delete may know its key only.
            let missing = |row: &usize| {
                let written = match rows.action(*row) {
                    RowAction::Skip => false,
                    RowAction::Write(sign) => target.key || sign != Some(b'1'),
                };
                nulls.is_null(*row) && written
            };
            if let Some(row) = (0..batch.num_rows()).find(missing) {
                return Err(self.error(at, row, "NULL in a column that is NOT NULL".into()));
            }
            // Doris refuses the NULL even in a row that is only deleted: any value will do.
            rows.columns[at] = filled(&rows.columns[at]).map_err(|reason| self.refuse_column(&target.name, &reason))?;
        }
        Ok(rows)
    }

    /// A delete without its place in the order is older than any row: Doris would keep what it deletes.
    fn check_sequence(&self, rows: &Rows<ArrayRef>, count: usize) -> Result<()> {
        let Some(at) = self.sequence.filter(|_| rows.actions.is_some()) else { return Ok(()) };
        let Some(nulls) = rows.columns[at].logical_nulls().filter(|nulls| nulls.null_count() > 0) else {
            return Ok(());
        };
        let lost = |row: &usize| nulls.is_null(*row) && rows.action(*row) == RowAction::Write(Some(b'1'));
        match (0..count).find(lost) {
            None => Ok(()),
            Some(row) => {
                let reason = "a delete has NULL in the column that orders the writes of its key, and doris would keep \
                              the row; the delete must bring the value (a changelog has it with old values)";
                Err(self.error(at, row, reason.into()))
            }
        }
    }

    fn refuse_column(&self, name: &str, reason: &str) -> Error {
        Error::schema(&self.table, format!("column '{name}': {reason}"))
    }

    fn actions(&self, batch: &RecordBatch, at: usize) -> Result<Vec<RowAction>> {
        let refuse = |row: usize, reason: String| Error::Encode {
            table: self.table.clone(),
            column: batch.schema_ref().field(at).name().clone(),
            row,
            reason,
        };
        let kinds = Column::new(batch.column(at)).map_err(|reason| refuse(0, reason))?;
        let text = |row: usize| match &kinds.values {
            Values::Text(text) if !kinds.is_null(row) => Some(text.value(row)),
            _ => None,
        };
        (0..batch.num_rows())
            .map(|row| match text(row) {
                Some("+I" | "+U") => Ok(RowAction::Write(self.delete_sign.then_some(b'0'))),
                Some("-U") if self.ignore_update_before => Ok(RowAction::Skip),
                Some("-D" | "-U") if self.delete_sign => Ok(RowAction::Write(Some(b'1'))),
                Some(kind @ ("-D" | "-U")) => Err(refuse(
                    row,
                    format!("'{kind}' deletes, but this load sends no delete sign; write to a unique table with 'sink.enable-delete' = 'true'"),
                )),
                Some(kind) => Err(refuse(row, format!("unknown change kind '{kind}', expected +I, -U, +U or -D"))),
                None => Err(refuse(row, "the change kind is NULL, expected +I, -U, +U or -D".into())),
            })
            .collect()
    }

    /// What the delete sign in column `at` says of each row.
    fn signs(&self, batch: &RecordBatch, at: usize) -> Result<Vec<RowAction>> {
        let column = batch.schema_ref().field(at).name();
        let exact = CastOptions { safe: false, ..CastOptions::default() };
        let signs = cast_with_options(batch.column(at), &DataType::Int64, &exact)
            .map_err(|error| self.refuse_column(column, &error.to_string()))?;
        let signs = signs.as_primitive::<Int64Type>();
        let sign = |row: usize| match signs.is_valid(row).then(|| signs.value(row)) {
            Some(0) => Ok(RowAction::Write(Some(b'0'))),
            Some(1) => Ok(RowAction::Write(Some(b'1'))),
            other => Err(Error::Encode {
                table: self.table.clone(),
                column: column.clone(),
                row,
                reason: format!(
                    "{} is neither 0 (the row is written) nor 1 (it is deleted)",
                    other.map_or("NULL".to_string(), |sign| sign.to_string())
                ),
            }),
        };
        (0..batch.num_rows()).map(sign).collect()
    }

    fn error(&self, column: usize, row: usize, reason: String) -> Error {
        let column = self.columns.get(column).map(|column| column.name.clone()).unwrap_or_default();
        Error::Encode { table: self.table.clone(), column, row, reason }
    }
}

/// The type of the values of an encoded type.
fn values_of(data_type: &DataType) -> &DataType {
    match data_type {
        DataType::Dictionary(_, values) => values,
        DataType::RunEndEncoded(_, values) => values.data_type(),
        other => other,
    }
}

/// `array` with some value of its type in place of each NULL.
fn filled(array: &ArrayRef) -> Result<ArrayRef, String> {
    let fill = || -> DataFusionResult<ArrayRef> {
        let array = &plain(array)?;
        let filler = ScalarValue::new_default(array.data_type())?.to_scalar()?;
        Ok(zip(&is_null(array)?, &filler, array)?)
    };
    fill().map_err(|error| error.to_string())
}

/// Whether `schema` has a column that separated text carries badly: json is the better default then.
pub(crate) fn has_nested(schema: &Schema) -> bool {
    schema.fields().iter().any(|field| field.data_type().is_nested())
}
