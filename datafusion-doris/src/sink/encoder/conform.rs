//! Columns in the Arrow types that a BE reads into the columns of a table: exact, or refused.
//!
//! A BE takes one Arrow type per Doris type and reads nothing else into it. What it has no type for (LARGEINT, JSON,
//! IP addresses) travels as text, and so do DATETIME and TIMESTAMPTZ: older builds shift timestamps without a zone by
//! the zone of the load. Texts are those of csv, so that all formats mean the same.

use std::sync::Arc;

use arrow::array::cast::AsArray;
use arrow::array::{
    Array, ArrayRef, BooleanArray, ListArray, MapArray, StringArray, StructArray, UInt32Array, new_null_array,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::compute::kernels::cmp::distinct;
use arrow::compute::{cast, nullif, take};
use arrow::datatypes::{DataType, Field, FieldRef, Fields};
use arrow::error::ArrowError;

use super::column::Column;
use crate::types::DorisType;

/// Bytes of a text of a date with its time, which is what becomes text most often.
const TYPICAL_TEXT: usize = 20;

/// A value that cannot be carried.
#[derive(Debug)]
pub(super) struct Misfit {
    /// Row of the array.
    pub(super) row: usize,
    pub(super) reason: String,
}

/// The way of a column into the type that a BE reads.
#[derive(Debug, Clone)]
pub(super) struct Conform {
    step: Step,
    /// The type a BE reads.
    wire: DataType,
    /// The type of the table, for errors.
    doris_type: String,
}

#[derive(Debug, Clone)]
enum Step {
    /// Every value is NULL.
    Null,
    /// A cast that must give back every value.
    Exact,
    /// The text that csv has.
    Text,
    List(Box<Conform>),
    Map(Box<Conform>, Box<Conform>),
    /// Per field of the table, its place in the input.
    Struct(Vec<(usize, Conform)>),
}

impl Conform {
    /// How a column of `from` is loaded into one of `to`.
    ///
    /// # Errors
    /// The reason and what to do, when no value of `from` can be.
    pub(super) fn plan(from: &DataType, to: &DorisType) -> Result<Self, String> {
        let from = plain_type(from);
        let decimal = from.is_decimal();
        let text = matches!(from, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View);
        let dated = matches!(from, DataType::Date32 | DataType::Date64 | DataType::Timestamp(..));
        let step = match to {
            _ if *from == DataType::Null => Step::Null,
            DorisType::Boolean if *from == DataType::Boolean => Step::Exact,
            DorisType::TinyInt | DorisType::SmallInt | DorisType::Int | DorisType::BigInt | DorisType::Decimal(..)
                if from.is_integer() || decimal =>
            {
                Step::Exact
            }
            DorisType::LargeInt if from.is_integer() || decimal || text => Step::Text,
            DorisType::Float | DorisType::Double if from.is_integer() || from.is_floating() => Step::Exact,
            DorisType::Date if dated && !matches!(from, DataType::Timestamp(_, Some(_))) => Step::Exact,
            DorisType::DateTime(_) | DorisType::TimestampTz(_) if dated || text => Step::Text,
            DorisType::Char(_) | DorisType::Varchar(_) | DorisType::String | DorisType::Json | DorisType::Variant => {
                Step::Text
            }
            DorisType::Ipv4 | DorisType::Ipv6 | DorisType::Time(_) | DorisType::Opaque(_) if text => Step::Text,
            DorisType::Array(element) => match from {
                DataType::List(item)
                | DataType::LargeList(item)
                | DataType::ListView(item)
                | DataType::LargeListView(item)
                | DataType::FixedSizeList(item, _) => Step::List(Box::new(Self::plan(item.data_type(), element)?)),
                _ => return Err(refusal(from, to)),
            },
            DorisType::Map(key, value) => {
                let Some((keys, values)) = entries(from) else { return Err(refusal(from, to)) };
                let (key, value) = (Self::plan(keys.data_type(), key)?, Self::plan(values.data_type(), value)?);
                Step::Map(Box::new(key), Box::new(value))
            }
            DorisType::Struct(members) => match from {
                DataType::Struct(fields) if fields.len() == members.len() => Step::Struct(
                    members
                        .iter()
                        .map(|(name, member)| {
                            let found = fields.iter().position(|field| field.name().eq_ignore_ascii_case(name));
                            let at = found.ok_or_else(|| refusal(from, to))?;
                            Ok((at, Self::plan(fields[at].data_type(), member)?))
                        })
                        .collect::<Result<_, String>>()?,
                ),
                _ => return Err(refusal(from, to)),
            },
            _ => return Err(refusal(from, to)),
        };
        Ok(Self { step, wire: wire_type(to), doris_type: to.to_string() })
    }

    /// The type of the columns that [`Self::apply`] gives.
    pub(super) fn data_type(&self) -> &DataType {
        &self.wire
    }

    /// Converts a column.
    ///
    /// # Errors
    /// The first row whose value would change.
    pub(super) fn apply(&self, array: &ArrayRef) -> Result<ArrayRef, Misfit> {
        let array = &plain(array).map_err(broken)?;
        match &self.step {
            Step::Null => Ok(new_null_array(&self.wire, array.len())),
            _ if *array.data_type() == self.wire && !self.wire.is_nested() => Ok(Arc::clone(array)),
            Step::Exact => self.exact(array),
            Step::Text => self.text(array),
            Step::List(element) => self.list(array, element),
            Step::Map(key, value) => self.map(array, key, value),
            Step::Struct(members) => self.members(array, members),
        }
    }

    fn exact(&self, array: &ArrayRef) -> Result<ArrayRef, Misfit> {
        let converted = cast(array, &self.wire).map_err(broken)?;
        let back = cast(&converted, array.data_type()).map_err(broken)?;
        let changed = distinct(&back, array).map_err(broken)?;
        match changed.values().set_indices().next() {
            None => Ok(converted),
            Some(row) => {
                Err(Misfit { row, reason: format!("the value is none of {}; round or cast it", self.doris_type) })
            }
        }
    }

    fn text(&self, array: &ArrayRef) -> Result<ArrayRef, Misfit> {
        if matches!(array.data_type(), DataType::LargeUtf8 | DataType::Utf8View) {
            return cast(array, &self.wire).map_err(broken);
        }
        let column = Column::new(array).map_err(|reason| Misfit { row: 0, reason })?;
        let mut bytes = Vec::with_capacity(array.len() * TYPICAL_TEXT);
        let mut ends = Vec::with_capacity(array.len() + 1);
        ends.push(0);
        for row in 0..array.len() {
            if !column.is_null(row) {
                column.push_text(row, &mut bytes).map_err(|reason| Misfit { row, reason })?;
            }
            let end = i32::try_from(bytes.len()).map_err(|error| Misfit { row, reason: error.to_string() })?;
            ends.push(end);
        }
        let offsets = OffsetBuffer::new(ends.into());
        let texts = StringArray::try_new(offsets, bytes.into(), array.logical_nulls()).map_err(broken)?;
        Ok(Arc::new(texts))
    }

    fn list(&self, array: &ArrayRef, element: &Conform) -> Result<ArrayRef, Misfit> {
        let DataType::List(wire) = &self.wire else { return Err(broken(self.mismatch(array))) };
        let list = match array.data_type() {
            DataType::List(_) => Arc::clone(array),
            DataType::LargeList(item)
            | DataType::ListView(item)
            | DataType::LargeListView(item)
            | DataType::FixedSizeList(item, _) => cast(array, &DataType::List(Arc::clone(item))).map_err(broken)?,
            _ => return Err(broken(self.mismatch(array))),
        };
        let list = without_hidden(&list, |list| list.as_list::<i32>().offsets().clone())?;
        let list = list.as_list::<i32>();
        let (offsets, range) = rebased(list.offsets());
        let values = list.values().slice(range.start, range.len());
        let values = element.apply(&values).map_err(|misfit| misfit.of_parent(&offsets))?;
        let list = ListArray::try_new(Arc::clone(wire), offsets, values, list.nulls().cloned());
        Ok(Arc::new(list.map_err(broken)?))
    }

    fn map(&self, array: &ArrayRef, key: &Conform, value: &Conform) -> Result<ArrayRef, Misfit> {
        let (DataType::Map(wire, sorted), Some((keys, values))) = (&self.wire, entries(&self.wire)) else {
            return Err(broken(self.mismatch(array)));
        };
        let map = without_hidden(array, |map| map.as_map().offsets().clone())?;
        let map = map.as_map();
        let (offsets, range) = rebased(map.offsets());
        let fields: Fields = vec![Arc::clone(keys), Arc::clone(values)].into();
        let keys = key.apply(&map.keys().slice(range.start, range.len()));
        let keys = keys.map_err(|misfit| misfit.of_parent(&offsets))?;
        if let Some(row) = (0..keys.len()).find(|row| keys.is_null(*row)) {
            return Err(Misfit { row, reason: "a map key that is NULL".into() }.of_parent(&offsets));
        }
        let values = value.apply(&map.values().slice(range.start, range.len()));
        let values = values.map_err(|misfit| misfit.of_parent(&offsets))?;
        let entries = StructArray::try_new(fields, vec![keys, values], None).map_err(broken)?;
        let map = MapArray::try_new(Arc::clone(wire), offsets, entries, map.nulls().cloned(), *sorted);
        Ok(Arc::new(map.map_err(broken)?))
    }

    fn members(&self, array: &ArrayRef, members: &[(usize, Conform)]) -> Result<ArrayRef, Misfit> {
        let DataType::Struct(fields) = &self.wire else { return Err(broken(self.mismatch(array))) };
        let array = array.as_struct();
        // What a NULL struct holds is nobody's value.
        let hidden = array.nulls().map(|nulls| BooleanArray::new(!nulls.inner(), None));
        let mut columns = Vec::with_capacity(members.len());
        for (at, member) in members {
            let mut column = plain(array.column(*at)).map_err(broken)?;
            if let Some(hidden) = hidden.as_ref().filter(|_| *column.data_type() != DataType::Null) {
                column = nullif(&column, hidden).map_err(broken)?;
            }
            columns.push(member.apply(&column)?);
        }
        let array = StructArray::try_new(fields.clone(), columns, array.nulls().cloned());
        Ok(Arc::new(array.map_err(broken)?))
    }

    fn mismatch(&self, array: &ArrayRef) -> ArrowError {
        ArrowError::CastError(format!("type {} is not the planned one for {}", array.data_type(), self.doris_type))
    }
}

impl Misfit {
    /// The row of a list or map that holds the value.
    fn of_parent(self, offsets: &OffsetBuffer<i32>) -> Self {
        let row = offsets.partition_point(|offset| usize::try_from(*offset).unwrap_or(0) <= self.row);
        Self { row: row.saturating_sub(1), reason: self.reason }
    }
}

/// The Arrow type that a BE reads into a column of this type.
fn wire_type(doris_type: &DorisType) -> DataType {
    match doris_type {
        DorisType::Boolean => DataType::Boolean,
        DorisType::TinyInt => DataType::Int8,
        DorisType::SmallInt => DataType::Int16,
        DorisType::Int => DataType::Int32,
        DorisType::BigInt => DataType::Int64,
        DorisType::Float => DataType::Float32,
        DorisType::Double => DataType::Float64,
        DorisType::Decimal(precision, scale) => {
            // Precisions are at most 76, scales at most the precision.
            let scale = i8::try_from(*scale).unwrap_or(i8::MAX);
            if *precision <= 38 {
                DataType::Decimal128(*precision, scale)
            } else {
                DataType::Decimal256(*precision, scale)
            }
        }
        DorisType::Date => DataType::Date32,
        DorisType::Array(element) => DataType::List(member(Field::LIST_FIELD_DEFAULT_NAME, element)),
        DorisType::Map(key, value) => {
            let key = Arc::new(Field::new("key", wire_type(key), false));
            let entries = DataType::Struct(vec![key, member("value", value)].into());
            DataType::Map(Arc::new(Field::new("entries", entries, false)), false)
        }
        DorisType::Struct(members) => {
            DataType::Struct(members.iter().map(|(name, doris_type)| member(name, doris_type)).collect())
        }
        _ => DataType::Utf8,
    }
}

fn member(name: &str, doris_type: &DorisType) -> FieldRef {
    Arc::new(Field::new(name, wire_type(doris_type), true))
}

/// Key and value of a map type.
fn entries(data_type: &DataType) -> Option<(&FieldRef, &FieldRef)> {
    let DataType::Map(entries, _) = data_type else { return None };
    match entries.data_type() {
        DataType::Struct(pair) if pair.len() == 2 => Some((&pair[0], &pair[1])),
        _ => None,
    }
}

fn plain_type(data_type: &DataType) -> &DataType {
    match data_type {
        DataType::Dictionary(_, values) => plain_type(values),
        DataType::RunEndEncoded(_, values) => plain_type(values.data_type()),
        other => other,
    }
}

/// The array without dictionary or runs.
pub(super) fn plain(array: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    let (from, to) = (array.data_type(), plain_type(array.data_type()));
    if from == to { Ok(Arc::clone(array)) } else { cast(array, to) }
}

/// Lists or maps whose NULL rows hold nothing: what is in them is nobody's value.
fn without_hidden(array: &ArrayRef, offsets: impl Fn(&ArrayRef) -> OffsetBuffer<i32>) -> Result<ArrayRef, Misfit> {
    let hides = |nulls: &NullBuffer| {
        let offsets = offsets(array);
        (0..array.len()).any(|row| nulls.is_null(row) && offsets[row] != offsets[row + 1])
    };
    if !array.nulls().is_some_and(hides) {
        return Ok(Arc::clone(array));
    }
    let rows = UInt32Array::from_iter_values(0..u32::try_from(array.len()).unwrap_or(u32::MAX));
    take(array, &rows, None).map_err(broken)
}

/// Offsets that begin at zero, and the range of values they had.
fn rebased(offsets: &OffsetBuffer<i32>) -> (OffsetBuffer<i32>, std::ops::Range<usize>) {
    let index = |offset: Option<&i32>| offset.and_then(|offset| usize::try_from(*offset).ok()).unwrap_or(0);
    let range = index(offsets.first())..index(offsets.last());
    if range.start == 0 {
        return (offsets.clone(), range);
    }
    (OffsetBuffer::from_lengths(offsets.lengths()), range)
}

fn refusal(from: &DataType, to: &DorisType) -> String {
    format!("type {from} cannot be loaded into {to} in this format; cast it, or use another 'sink.properties.format'")
}

fn broken(error: ArrowError) -> Misfit {
    Misfit { row: 0, reason: error.to_string() }
}
