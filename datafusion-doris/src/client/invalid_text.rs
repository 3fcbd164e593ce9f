//! Which column of a message that cannot be decoded holds text that is no UTF-8.
//!
//! Doris keeps whatever bytes a load gives, and declares them as text. Arrow refuses such a message as a whole and tells no
//! column, so the message is looked at again as bytes.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray};
use arrow::datatypes::{DataType, Field, FieldRef, Schema};
use arrow_flight::FlightData;
use arrow_flight::utils::flight_data_to_arrow_batch;
use parking_lot::Mutex;

use crate::types::no_utf8;

/// The schema and the last message of a stream; clones share them.
#[derive(Debug, Clone, Default)]
pub(super) struct Messages(Arc<Mutex<Kept>>);

#[derive(Debug, Default)]
struct Kept {
    schema: Option<FlightData>,
    last: Option<FlightData>,
}

impl Messages {
    /// Keeps a message, whose bytes are shared and not copied.
    pub fn keep(&self, message: &FlightData) {
        let mut kept = self.0.lock();
        let place = if kept.schema.is_none() { &mut kept.schema } else { &mut kept.last };
        *place = Some(message.clone());
    }

    /// The first column of the last message that holds text which is no UTF-8, and what is wrong with it.
    pub fn invalid_text(&self) -> Option<String> {
        let kept = self.0.lock();
        let schema = Schema::try_from(kept.schema.as_ref()?).ok()?;
        let fields: Vec<FieldRef> = schema.fields().iter().map(as_bytes).collect();
        let bytes = Arc::new(Schema::new(fields));
        let batch = flight_data_to_arrow_batch(kept.last.as_ref()?, bytes, &HashMap::new()).ok()?;
        let columns = schema.fields().iter().zip(batch.columns());
        let found = columns.filter_map(|(field, column)| Some((field.name(), invalid_in(field.data_type(), column)?)));
        found.map(|(name, value)| format!("column '{name}': {}", no_utf8(&value))).next()
    }
}

/// The field with bytes where it has texts, which are laid out alike.
fn as_bytes(field: &FieldRef) -> FieldRef {
    let inner = |field: &FieldRef| as_bytes(field);
    let data_type = match field.data_type() {
        DataType::Utf8 => DataType::Binary,
        DataType::LargeUtf8 => DataType::LargeBinary,
        DataType::List(item) => DataType::List(inner(item)),
        DataType::LargeList(item) => DataType::LargeList(inner(item)),
        DataType::Map(entries, sorted) => DataType::Map(inner(entries), *sorted),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(inner).collect()),
        other => other.clone(),
    };
    Arc::new(Field::new(field.name(), data_type, field.is_nullable()))
}

/// The first text in `column`, declared as `declared`, that is no UTF-8.
fn invalid_in(declared: &DataType, column: &ArrayRef) -> Option<Vec<u8>> {
    let first = |mut values: Box<dyn Iterator<Item = Option<&[u8]>> + '_>| {
        values.find_map(|value| value.filter(|value| std::str::from_utf8(value).is_err()).map(<[u8]>::to_vec))
    };
    match declared {
        DataType::Utf8 => first(Box::new(column.as_binary_opt::<i32>()?.iter())),
        DataType::LargeUtf8 => first(Box::new(column.as_binary_opt::<i64>()?.iter())),
        DataType::List(item) => invalid_in(item.data_type(), column.as_list_opt::<i32>()?.values()),
        DataType::LargeList(item) => invalid_in(item.data_type(), column.as_list_opt::<i64>()?.values()),
        DataType::Map(entries, _) => {
            let rows: ArrayRef = Arc::new(column.as_map_opt()?.entries().clone());
            invalid_in(entries.data_type(), &rows)
        }
        DataType::Struct(fields) => {
            let columns = column.as_struct_opt()?.columns();
            fields.iter().zip(columns).find_map(|(field, column)| invalid_in(field.data_type(), column))
        }
        _ => None,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use arrow::array::{Array, BinaryArray, Int32Array, ListArray, RecordBatch, StructArray};
    use arrow::buffer::OffsetBuffer;
    use arrow_flight::utils::batches_to_flight_data;

    use super::*;

    /// Messages of a column of this type, whose values are bytes.
    fn messages(declared: DataType, column: ArrayRef) -> Messages {
        let field = |data_type: DataType| {
            let fields = vec![Field::new("id", DataType::Int32, true), Field::new("s", data_type, true)];
            Schema::new(fields)
        };
        let ids: ArrayRef = Arc::new(Int32Array::from_iter_values(0..column.len() as i32));
        let sent = field(column.data_type().clone());
        let batch = RecordBatch::try_new(Arc::new(sent.clone()), vec![ids, column]).unwrap();
        let told = batches_to_flight_data(&field(declared), vec![]).unwrap();
        let rows = batches_to_flight_data(&sent, vec![batch]).unwrap();
        let messages = Messages::default();
        for message in told.iter().take(1).chain(rows.iter().skip(1)) {
            messages.keep(message);
        }
        messages
    }

    #[test]
    fn column_and_bytes_of_invalid_text_are_told() {
        let texts = || -> ArrayRef { Arc::new(BinaryArray::from(vec![&b"ok"[..], b"A\x84\xffB"])) };
        let found = messages(DataType::Utf8, texts()).invalid_text().unwrap();
        assert!(found.contains("column 's'") && found.contains("41 84 ff 42"), "{found}");
        assert_eq!(messages(DataType::Binary, texts()).invalid_text(), None, "bytes may be any");
        let valid: ArrayRef = Arc::new(BinaryArray::from(vec![&b"ok"[..], "ü".as_bytes()]));
        assert_eq!(messages(DataType::Utf8, valid).invalid_text(), None);
    }

    #[test]
    fn texts_inside_of_nested_values_are_looked_at() {
        let item = |data_type| Arc::new(Field::new("item", data_type, true));
        let inner = |data_type| Field::new("a", data_type, true);
        let texts: ArrayRef = Arc::new(BinaryArray::from(vec![&b"ok"[..], b"\xff"]));
        let rows = StructArray::try_new(vec![inner(DataType::Binary)].into(), vec![texts], None).unwrap();
        let offsets = OffsetBuffer::from_lengths([1, 1]);
        let list = ListArray::try_new(item(rows.data_type().clone()), offsets, Arc::new(rows), None).unwrap();
        let declared = DataType::List(item(DataType::Struct(vec![inner(DataType::Utf8)].into())));
        let found = messages(declared, Arc::new(list)).invalid_text().unwrap();
        assert!(found.contains("column 's'") && found.contains("(bytes ff)"), "{found}");
    }
}
