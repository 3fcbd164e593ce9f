//! From the batches of Doris to rows with a change kind.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Int64Array, TimestampMillisecondArray, UInt32Array, new_null_array,
};
use arrow::compute::{
    CastOptions, SortColumn, cast_with_options, concat_batches, filter_record_batch, lexsort_to_indices,
    take_record_batch,
};
use arrow::datatypes::{DataType, Field, Int64Type, SchemaRef, TimeUnit};
use arrow::record_batch::RecordBatch;

use super::drift::check_planned;
use super::reader::ChangelogSpec;
use super::row_kind::{ResultColumns, RowKind, constant_kinds, decode_kinds};
use super::window::Window;
use crate::error::{Error, Result};
use crate::options::MetadataColumn;
use crate::protocol::Tso;
use crate::scan::Conformer;
use crate::sql::{HiddenColumns, IncrementType};

/// The zone of `__commit_time`.
const COMMIT_TIME_ZONE: &str = "UTC";

/// The field of a metadata column: NULL for rows of the snapshot.
pub(crate) fn metadata_field(column: MetadataColumn) -> Field {
    let data_type = match column {
        MetadataColumn::Tso => DataType::Int64,
        MetadataColumn::Lsn => DataType::Decimal128(38, 0),
        MetadataColumn::CommitTime => DataType::Timestamp(TimeUnit::Millisecond, Some(COMMIT_TIME_ZONE.into())),
    };
    Field::new(column.column_name(), data_type, true)
}

/// Gives the rows of a snapshot their kind.
pub(super) fn snapshot_rows(
    spec: &ChangelogSpec,
    conformer: &mut Conformer,
    batch: &RecordBatch,
) -> Result<RecordBatch> {
    let batch = conformer.conform(batch)?;
    let rows = batch.num_rows();
    let mut columns = batch.columns().to_vec();
    columns.extend(spec.metadata.iter().map(|column| new_null_array(metadata_field(*column).data_type(), rows)));
    columns.push(constant_kinds(RowKind::Insert, rows));
    Ok(RecordBatch::try_new(Arc::clone(&spec.schema), columns)?)
}

/// Turns the batches of one window into rows with a change kind.
pub(super) struct WindowDecoder<'a> {
    spec: &'a ChangelogSpec,
    hidden: &'a HiddenColumns,
    columns: Option<(SchemaRef, ResultColumns)>,
    conformer: Conformer,
    /// Rows outside of these TSOs belong to other windows; `None`: the server has cut.
    tsos: Option<Range<i64>>,
}

impl<'a> WindowDecoder<'a> {
    /// `planned` is checked at once, so that a window without rows is validated too.
    pub fn new(
        spec: &'a ChangelogSpec,
        hidden: &'a HiddenColumns,
        window: Window,
        planned: &SchemaRef,
    ) -> Result<Self> {
        let tsos = match spec.increment_type {
            // The first half of a net change may carry the timestamp of an earlier commit of its window.
            IncrementType::MinDelta => None,
            IncrementType::Detail | IncrementType::AppendOnly => {
                Some(first_tso(window.start_ms)..first_tso(window.end_ms))
            }
        };
        let mut decoder = Self { spec, hidden, columns: None, conformer: spec.conformer()?, tsos };
        if !planned.fields().is_empty() {
            let columns = decoder.locate(planned)?.business.clone();
            let columns: Vec<&Field> = columns.into_iter().map(|index| planned.field(index)).collect();
            check_planned(spec, &columns)?;
        }
        Ok(decoder)
    }

    fn error(&self, reason: impl Into<String>) -> Error {
        Error::Changelog { table: self.spec.table.to_string(), reason: reason.into() }
    }

    fn locate(&mut self, schema: &SchemaRef) -> Result<&ResultColumns> {
        if self.columns.as_ref().is_none_or(|(known, _)| known != schema) {
            let found = ResultColumns::locate(&self.spec.table, schema, self.hidden, self.spec.columns.len())?;
            self.columns = Some((Arc::clone(schema), found));
        }
        match &self.columns {
            Some((_, columns)) => Ok(columns),
            None => Err(Error::Changelog { table: self.spec.table.to_string(), reason: "no result schema".into() }),
        }
    }

    /// The rows of this window, with the change kind last.
    pub fn decode(&mut self, batch: &RecordBatch) -> Result<RecordBatch> {
        let columns = self.locate(batch.schema_ref())?.clone();
        let batch = &self.cut(batch, &columns)?;
        let kinds = decode_kinds(&self.spec.table, batch.column(columns.operation))?;
        let rows = self.conformer.conform(&batch.project(&columns.business)?)?;
        let mut values = rows.columns().to_vec();
        for column in self.spec.metadata.iter() {
            values.push(self.metadata(*column, batch, &columns)?);
        }
        values.push(Arc::clone(&kinds));
        let rows = RecordBatch::try_new(Arc::clone(&self.spec.schema), values)?;
        if self.spec.increment_type != IncrementType::AppendOnly {
            return Ok(rows);
        }
        // What was asked for are inserts, whatever the server sends.
        let kinds = kinds.as_string::<i32>();
        let inserts: BooleanArray = kinds.iter().map(|kind| Some(kind == Some(RowKind::Insert.as_str()))).collect();
        match inserts.true_count() == rows.num_rows() {
            true => Ok(rows),
            false => Ok(filter_record_batch(&rows, &inserts)?),
        }
    }

    fn cut(&self, batch: &RecordBatch, columns: &ResultColumns) -> Result<RecordBatch> {
        let Some(range) = &self.tsos else { return Ok(batch.clone()) };
        let tsos = self.tsos_of(batch, columns)?;
        if tsos.values().iter().fold(true, |inside, tso| inside & range.contains(tso)) {
            return Ok(batch.clone());
        }
        let inside: BooleanArray = tsos.values().iter().map(|tso| Some(range.contains(tso))).collect();
        Ok(filter_record_batch(batch, &inside)?)
    }

    fn tsos_of(&self, batch: &RecordBatch, columns: &ResultColumns) -> Result<Int64Array> {
        let column = batch.column(columns.tso);
        let exact = CastOptions { safe: false, ..CastOptions::default() };
        let tsos = cast_with_options(column, &DataType::Int64, &exact)
            .map_err(|error| self.error(format!("the TSO column cannot be read as BIGINT: {error}")))?;
        match tsos.null_count() {
            0 => Ok(tsos.as_primitive::<Int64Type>().clone()),
            _ => Err(self.error("the TSO column holds NULL")),
        }
    }

    fn metadata(&self, column: MetadataColumn, batch: &RecordBatch, columns: &ResultColumns) -> Result<ArrayRef> {
        let exact = CastOptions { safe: false, ..CastOptions::default() };
        Ok(match column {
            MetadataColumn::Tso => Arc::new(self.tsos_of(batch, columns)?),
            MetadataColumn::Lsn => {
                cast_with_options(batch.column(columns.lsn), &DataType::Decimal128(38, 0), &exact)
                    .map_err(|error| self.error(format!("the LSN column cannot be read as a number: {error}")))?
            }
            MetadataColumn::CommitTime => {
                let tsos = self.tsos_of(batch, columns)?;
                let times: TimestampMillisecondArray = tsos.unary(|tso| Tso(tso).physical_ms());
                Arc::new(times.with_timezone(COMMIT_TIME_ZONE))
            }
        })
    }

    /// All rows of a window in the order of the changes: by TSO, LSN and operation, net changes by key and operation.
    pub fn sort(&mut self, batches: Vec<RecordBatch>) -> Result<Option<RecordBatch>> {
        let Some(first) = batches.first() else { return Ok(None) };
        let schema = first.schema();
        let columns = self.locate(&schema)?.clone();
        let all = concat_batches(&schema, &batches)?;
        let number = |index: usize| -> Result<SortColumn> {
            // LSN may come as the text of a 128 bit integer, of up to 39 digits: compare numbers, not texts, and
            // never take one that is no number for NULL.
            let exact = CastOptions { safe: false, ..CastOptions::default() };
            let values: ArrayRef = cast_with_options(all.column(index), &DataType::Decimal256(76, 0), &exact)?;
            Ok(SortColumn { values, options: None })
        };
        let mut order = match self.spec.increment_type {
            IncrementType::Detail | IncrementType::AppendOnly => vec![number(columns.tso)?, number(columns.lsn)?],
            IncrementType::MinDelta => {
                let position = |name: &String| self.spec.columns.iter().position(|column| column == name);
                let key = self.spec.key.iter().map(|name| position(name).map(|index| columns.business[index]));
                let key: Option<Vec<usize>> = key.collect();
                let key = key.ok_or_else(|| {
                    self.error("net changes came in parts and cannot be paired without all key columns: select them")
                })?;
                key.into_iter()
                    .map(|index| SortColumn { values: Arc::clone(all.column(index)), options: None })
                    .collect()
            }
        };
        order.push(number(columns.operation)?);
        let order: UInt32Array = lexsort_to_indices(&order, None)?;
        Ok(Some(take_record_batch(&all, &order)?))
    }
}

/// The first TSO of a millisecond; the ends of the range beyond it.
pub(super) fn first_tso(ms: i64) -> i64 {
    Tso::from_physical_ms(ms).map_or(if ms < 0 { i64::MIN } else { i64::MAX }, |tso| tso.0)
}
