//! Record batches to the bytes of a Stream Load body: one file per format, no I/O.

mod arrow;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod arrow_tests;
mod column;
mod conform;
mod csv;
mod digits;
mod json;
mod parquet;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests;

use std::fmt;

use ::arrow::array::{Array, ArrayRef};
use ::arrow::compute::is_null;
use ::arrow::compute::kernels::zip::zip;
use ::arrow::datatypes::{DataType, Schema};
use ::arrow::record_batch::RecordBatch;
use datafusion::common::{Result as DataFusionResult, ScalarValue};

pub(crate) use self::arrow::{ArrowEncoder, ArrowPlan};
use self::column::{Column, Text, Values};
use self::conform::plain;
pub(crate) use self::csv::CsvEncoder;
pub(crate) use self::json::JsonEncoder;
pub(crate) use self::parquet::{ParquetEncoder, is_text_in_parquet};
use crate::error::{Error, Result};

/// Turns batches into the bytes of one load.
pub(crate) trait Encoder: fmt::Debug + Send {
    /// Appends the rows of `batch` to `out` and gives their number; rows that the change kind drops do not count.
    ///
    /// # Errors
    /// [`Error::Encode`] for a value that cannot be written exactly, with its column and row.
    fn encode(&mut self, batch: &RecordBatch, out: &mut Vec<u8>) -> Result<u64>;

    /// Appends what stands after the last row; called once, at the end of a load that has rows.
    ///
    /// # Errors
    /// As [`Self::encode`].
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
    /// Index of the change-kind column.
    change_kind: Option<usize>,
    /// Write the delete sign after the columns.
    delete_sign: bool,
    /// Drop `-U` rows; otherwise they delete their key.
    ignore_update_before: bool,
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
    /// Plans the writing of batches of `schema`: every column except `change_kind_column`.
    ///
    /// # Errors
    /// [`Error::Schema`] when a column has a type that cannot be written, or the change-kind column is missing or
    /// not text.
    pub(crate) fn try_new(
        table: impl ToString,
        schema: &Schema,
        change_kind_column: Option<&str>,
        delete_sign: bool,
        ignore_update_before: bool,
    ) -> Result<Self> {
        let table = table.to_string();
        let change_kind = match change_kind_column {
            None => None,
            Some(name) => {
                let Some((at, field)) = schema.column_with_name(name) else {
                    let advice = format!("the input has no change-kind column '{name}' ('sink.change-kind-column')");
                    return Err(Error::schema(table, advice));
                };
                let values = match field.data_type() {
                    DataType::Dictionary(_, values) => values.as_ref(),
                    DataType::RunEndEncoded(_, values) => values.data_type(),
                    other => other,
                };
                if !matches!(values, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View) {
                    let advice = format!("change-kind column '{name}' is {}, it must be text", field.data_type());
                    return Err(Error::schema(table, advice));
                }
                Some(at)
            }
        };
        let mut columns = Vec::with_capacity(schema.fields().len());
        for (at, field) in schema.fields().iter().enumerate().filter(|(at, _)| Some(*at) != change_kind) {
            column::supported(field.data_type())
                .map_err(|reason| Error::schema(&table, format!("column '{}': {reason}", field.name())))?;
            columns.push(Target { name: field.name().clone(), at, nullable: field.is_nullable(), key: false });
        }
        if columns.is_empty() {
            return Err(Error::schema(table, "the input has no columns to write"));
        }
        Ok(Self {
            table,
            columns,
            change_kind,
            delete_sign: delete_sign && change_kind.is_some(),
            ignore_update_before,
        })
    }

    /// Says which columns are the key: a delete must know them.
    pub(crate) fn with_keys(mut self, is_key: impl Fn(&str) -> bool) -> Self {
        self.columns.iter_mut().for_each(|column| column.key = is_key(&column.name));
        self
    }

    /// Names of the written columns, in order, without the delete sign.
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
        let actions = self.change_kind.map(|at| self.actions(batch, at)).transpose()?;
        let mut rows = Rows { columns, actions };
        for (at, target) in self.columns.iter().enumerate() {
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
            Values::Text(text) if !kinds.is_null(row) => Some(Text::value(text, row)),
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

    fn error(&self, column: usize, row: usize, reason: String) -> Error {
        let column = self.columns.get(column).map(|column| column.name.clone()).unwrap_or_default();
        Error::Encode { table: self.table.clone(), column, row, reason }
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
