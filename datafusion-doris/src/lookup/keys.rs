//! Keys of a stream's batch: which are distinct, and as which values the table has them.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BooleanArray, UInt64Array};
use arrow::compute::{CastOptions, cast_with_options, filter_record_batch, kernels::cmp::not_distinct, take};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use arrow::record_batch::RecordBatch;
use arrow::row::{OwnedRow, RowConverter, SortField};
use datafusion::common::Result;

/// One column of the key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeyColumn {
    /// Index among the columns of the table's rows.
    pub index: usize,
    /// Its type there.
    pub stored: DataType,
    /// The type it is compared in.
    pub compared: DataType,
}

/// True when no two values of `from` become the same in `to`, and none is changed: then a value of `to` equals at most
/// one of `from`, the one that it is cast back to.
pub(crate) fn casts_one_to_one(from: &DataType, to: &DataType) -> bool {
    let text = |data_type: &DataType| matches!(data_type, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View);
    let digits = |data_type: &DataType| match data_type {
        DataType::Int8 => Some((3, 0)),
        DataType::Int16 => Some((5, 0)),
        DataType::Int32 => Some((10, 0)),
        DataType::Int64 => Some((19, 0)),
        DataType::Decimal128(precision, scale) | DataType::Decimal256(precision, scale) => {
            Some((i16::from(*precision) - i16::from(*scale), i16::from(*scale)))
        }
        _ => None,
    };
    if from == to || (text(from) && text(to)) {
        return true;
    }
    if let (Some((from_whole, from_scale)), Some((to_whole, to_scale))) = (digits(from), digits(to)) {
        return from_whole <= to_whole && from_scale <= to_scale;
    }
    matches!((from, to), (DataType::Date32, DataType::Timestamp(TimeUnit::Microsecond | TimeUnit::Millisecond, None)))
}

/// Turns keys into bytes that are equal when they are.
#[derive(Debug)]
pub(super) struct KeyCoder {
    columns: Vec<KeyColumn>,
    schema: SchemaRef,
    converter: RowConverter,
}

/// The distinct keys of a batch, and where each first stands.
pub(super) type Distinct = HashMap<OwnedRow, u64>;

impl KeyCoder {
    pub fn try_new(columns: &[KeyColumn]) -> Result<Self> {
        let fields = columns.iter().map(|column| SortField::new(column.compared.clone())).collect();
        let named = columns.iter().enumerate();
        let stored: Vec<Field> =
            named.map(|(index, column)| Field::new(format!("k{index}"), column.stored.clone(), false)).collect();
        let schema = Arc::new(Schema::new(stored));
        Ok(Self { columns: columns.to_vec(), schema, converter: RowConverter::new(fields)? })
    }

    /// The distinct keys of `values` (in the types they are compared in); those with a NULL equal nothing.
    pub fn distinct(&self, values: &[ArrayRef]) -> Result<Distinct> {
        let rows = self.converter.convert_columns(values)?;
        let mut distinct = Distinct::new();
        for (index, row) in rows.iter().enumerate() {
            if values.iter().all(|column| column.is_valid(index)) {
                distinct.entry(row.owned()).or_insert(index as u64);
            }
        }
        Ok(distinct)
    }

    /// The keys at `places` of `values` as the table has them. Keys that no value of the table equals are left out.
    pub fn stored(&self, values: &[ArrayRef], places: &[u64]) -> Result<RecordBatch> {
        let places = UInt64Array::from(places.to_vec());
        let mut columns = Vec::with_capacity(values.len());
        let mut possible = BooleanArray::from(vec![true; places.len()]);
        for (column, values) in self.columns.iter().zip(values) {
            let compared = take(values, &places, None)?;
            let lossy = CastOptions { safe: true, ..Default::default() };
            let stored = cast_with_options(&compared, &column.stored, &lossy)?;
            let again = cast_with_options(&stored, &column.compared, &lossy)?;
            let same = not_distinct(&again, &compared)?;
            possible = arrow::compute::and(&possible, &same)?;
            columns.push(stored);
        }
        // Values that have no counterpart are NULL until they are left out.
        let nullable: Vec<Field> =
            self.schema.fields().iter().map(|field| field.as_ref().clone().with_nullable(true)).collect();
        let keys = RecordBatch::try_new(Arc::new(Schema::new(nullable)), columns)?;
        let keys = filter_record_batch(&keys, &possible)?;
        Ok(RecordBatch::try_new(Arc::clone(&self.schema), keys.columns().to_vec())?)
    }

    /// The keys of `rows` of the table, in order; `None` for one with a NULL.
    pub fn keys_of(&self, rows: &RecordBatch) -> Result<Vec<Option<OwnedRow>>> {
        let exact = CastOptions { safe: false, ..Default::default() };
        let values =
            self.columns.iter().map(|column| cast_with_options(rows.column(column.index), &column.compared, &exact));
        let values = values.collect::<Result<Vec<_>, _>>()?;
        let encoded = self.converter.convert_columns(&values)?;
        let keys = encoded.iter().enumerate().map(|(index, row)| {
            let whole = values.iter().all(|column| column.is_valid(index));
            whole.then(|| row.owned())
        });
        Ok(keys.collect())
    }
}
