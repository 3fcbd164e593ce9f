//! Forms in which builds before those imitated sent some types over Arrow, and one of the newest, on request.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, FixedSizeBinaryArray, ListArray, MapArray, StringArray, StructArray, new_null_array,
};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef, Fields, Int32Type, UInt32Type};

use super::{DorisType, variant};

/// Which types travel in another form. Default: none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OldForms {
    /// LARGEINT as 16 bytes, little-endian, as the scanner of 2.x sent it.
    pub largeint_bytes: bool,
    /// DATE as text `YYYY-MM-DD`: type v1, and all dates of 2.0.
    pub date_text: bool,
    /// DATETIME as text `YYYY-MM-DD HH:MM:SS`, with a fraction where the type has one: type v1.
    pub datetime_text: bool,
    /// IPV4 as text.
    pub ipv4_text: bool,
    /// VARIANT as `struct<metadata, value>` of bytes, as the newest builds send it with `enable_variant_v2`.
    pub variant_struct: bool,
}

impl OldForms {
    /// `field` of a column of type `ty` in its old form.
    pub fn field(self, field: &FieldRef, ty: &DorisType) -> FieldRef {
        let made = field.as_ref().clone().with_data_type(self.data_type(field.data_type(), ty));
        if *ty != DorisType::Variant || !self.variant_struct {
            return Arc::new(made);
        }
        let mut metadata = made.metadata().clone();
        metadata.insert("ARROW:extension:name".to_owned(), variant::EXTENSION.to_owned());
        Arc::new(made.with_metadata(metadata))
    }

    fn data_type(self, wire: &DataType, ty: &DorisType) -> DataType {
        match (ty, wire) {
            (DorisType::LargeInt, _) if self.largeint_bytes => DataType::FixedSizeBinary(16),
            (DorisType::Date, _) if self.date_text => DataType::Utf8,
            (DorisType::DateTime(_), _) if self.datetime_text => DataType::Utf8,
            (DorisType::Ipv4, _) if self.ipv4_text => DataType::Utf8,
            (DorisType::Variant, _) if self.variant_struct => variant::data_type(),
            (DorisType::Array(item), DataType::List(field)) => DataType::List(self.field(field, item)),
            (DorisType::Map(key, value), DataType::Map(entries, sorted)) => {
                let DataType::Struct(fields) = entries.data_type() else { return wire.clone() };
                let pair = [(&fields[0], key), (&fields[1], value)].map(|(field, ty)| self.field(field, ty));
                let entries = Field::new(entries.name(), DataType::Struct(Fields::from(pair.to_vec())), false);
                DataType::Map(Arc::new(entries), *sorted)
            }
            (DorisType::Struct(types), DataType::Struct(fields)) => {
                DataType::Struct(fields.iter().zip(types).map(|(field, (_, ty))| self.field(field, ty)).collect())
            }
            _ => wire.clone(),
        }
    }

    /// A column in its wire form, made old.
    pub fn array(self, array: &ArrayRef, ty: &DorisType) -> ArrayRef {
        let target = self.data_type(array.data_type(), ty);
        if *array.data_type() == target {
            return Arc::clone(array);
        }
        let made: Option<ArrayRef> = match (ty, &target) {
            (DorisType::LargeInt, _) => {
                let values = array.as_string::<i32>().iter();
                let bytes = values.map(|text| text.and_then(|text| text.parse::<i128>().ok()).map(i128::to_le_bytes));
                FixedSizeBinaryArray::try_from_sparse_iter_with_size(bytes, 16).ok().map(|made| Arc::new(made) as _)
            }
            (DorisType::Ipv4, _) => {
                let bits: Vec<Option<u32>> = match array.data_type() {
                    DataType::UInt32 => array.as_primitive::<UInt32Type>().iter().collect(),
                    _ => array.as_primitive::<Int32Type>().iter().map(|bits| bits.map(|bits| bits as u32)).collect(),
                };
                let texts = bits.into_iter().map(|bits| bits.map(|bits| std::net::Ipv4Addr::from(bits).to_string()));
                Some(Arc::new(texts.collect::<StringArray>()))
            }
            (DorisType::Variant, _) => Some(variant::of_texts(array)),
            (DorisType::Date, _) => cast(array, &DataType::Utf8).ok(),
            (DorisType::DateTime(_), _) => datetime_text(array),
            (DorisType::Array(item), DataType::List(field)) => {
                let list = array.as_list::<i32>();
                let values = self.array(list.values(), item);
                let made = ListArray::new(Arc::clone(field), list.offsets().clone(), values, list.nulls().cloned());
                Some(Arc::new(made))
            }
            (DorisType::Map(key, value), DataType::Map(field, sorted)) => {
                let map = array.as_map();
                let DataType::Struct(fields) = field.data_type() else { return Arc::clone(array) };
                let columns = vec![self.array(map.keys(), key), self.array(map.values(), value)];
                let entries = StructArray::new(fields.clone(), columns, None);
                let (offsets, nulls) = (map.offsets().clone(), map.nulls().cloned());
                Some(Arc::new(MapArray::new(Arc::clone(field), offsets, entries, nulls, *sorted)))
            }
            (DorisType::Struct(types), DataType::Struct(fields)) => {
                let row = array.as_struct();
                let columns = row.columns().iter().zip(types).map(|(column, (_, ty))| self.array(column, ty));
                Some(Arc::new(StructArray::new(fields.clone(), columns.collect(), row.nulls().cloned())))
            }
            _ => None,
        };
        made.unwrap_or_else(|| new_null_array(&target, array.len()))
    }
}

/// The wall clock as Doris prints it.
fn datetime_text(array: &ArrayRef) -> Option<ArrayRef> {
    // In a build that names the zone, the text of the instant ends with its offset.
    let texts = cast(array, &DataType::Utf8).ok()?;
    let texts = texts.as_string::<i32>().iter().map(|text| {
        let text = text?.replacen('T', " ", 1);
        let end = text.char_indices().skip(19).find(|(_, c)| !(c.is_ascii_digit() || *c == '.'));
        Some(text[..end.map_or(text.len(), |(at, _)| at)].to_owned())
    });
    Some(Arc::new(texts.collect::<StringArray>()))
}

#[cfg(test)]
mod tests {
    use arrow::array::{Date32Array, Int32Array, TimestampMillisecondArray};

    use super::*;

    #[test]
    fn old_forms_hold_the_same_values() {
        let all = OldForms {
            largeint_bytes: true,
            date_text: true,
            datetime_text: true,
            ipv4_text: true,
            ..OldForms::default()
        };
        let cases: [(ArrayRef, DorisType, &[&str]); 3] = [
            (Arc::new(Date32Array::from(vec![0])), DorisType::Date, &["1970-01-01"]),
            (
                Arc::new(TimestampMillisecondArray::from(vec![1_500]).with_timezone("+08:00")),
                DorisType::DateTime(3),
                &["1970-01-01 08:00:01.500"],
            ),
            (Arc::new(Int32Array::from(vec![-1])), DorisType::Ipv4, &["255.255.255.255"]),
        ];
        for (array, ty, expected) in cases {
            let made = all.array(&array, &ty);
            assert_eq!(made.as_string::<i32>().iter().flatten().collect::<Vec<_>>(), expected, "{ty:?}");
            assert_eq!(OldForms::default().array(&array, &ty).data_type(), array.data_type());
        }
        let text: ArrayRef = Arc::new(StringArray::from(vec!["-2"]));
        let made = all.array(&text, &DorisType::LargeInt);
        assert_eq!(made.as_fixed_size_binary().value(0), (-2i128).to_le_bytes());
    }
}
