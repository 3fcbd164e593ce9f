//! VARIANT as the newest builds send it when they may (`enable_variant_v2`): two columns of bytes, in the layout of
//! Parquet's Variant.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BinaryBuilder, StructArray};
use arrow::datatypes::{DataType, Field, Fields};
use serde_json::Value;

/// Name of the extension type.
pub(super) const EXTENSION: &str = "arrow.parquet.variant";

/// `struct<metadata, value>`
pub(super) fn data_type() -> DataType {
    DataType::Struct(fields())
}

fn fields() -> Fields {
    ["metadata", "value"].into_iter().map(|name| Field::new(name, DataType::Binary, false)).collect()
}

/// JSON texts in the binary form. A text that is no JSON is a string, as Doris takes it.
pub(super) fn of_texts(texts: &ArrayRef) -> ArrayRef {
    let (mut metadata, mut values) = (BinaryBuilder::new(), BinaryBuilder::new());
    let texts = texts.as_string::<i32>();
    for text in texts {
        let text = text.unwrap_or("null");
        let value: Value = serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()));
        let mut names = BTreeSet::new();
        collect_names(&value, &mut names);
        let names: Vec<&str> = names.into_iter().collect();
        metadata.append_value(metadata_of(&names));
        let mut bytes = Vec::new();
        put(&mut bytes, &value, &names);
        values.append_value(bytes);
    }
    let columns: Vec<ArrayRef> = vec![Arc::new(metadata.finish()), Arc::new(values.finish())];
    Arc::new(StructArray::new(fields(), columns, texts.nulls().cloned()))
}

fn collect_names<'a>(value: &'a Value, names: &mut BTreeSet<&'a str>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| collect_names(item, names)),
        Value::Object(fields) => {
            for (name, field) in fields {
                names.insert(name);
                collect_names(field, names);
            }
        }
        _ => {}
    }
}

fn word(number: usize) -> [u8; 4] {
    u32::try_from(number).unwrap_or(u32::MAX).to_le_bytes()
}

/// Version 1, sorted, with offsets of 4 bytes.
fn metadata_of(names: &[&str]) -> Vec<u8> {
    let mut out = vec![0b1101_0001];
    out.extend(word(names.len()));
    let mut end = 0;
    out.extend(word(end));
    for name in names {
        end += name.len();
        out.extend(word(end));
    }
    names.iter().for_each(|name| out.extend(name.as_bytes()));
    out
}

fn put(out: &mut Vec<u8>, value: &Value, names: &[&str]) {
    let primitive = |out: &mut Vec<u8>, kind: u8, bytes: &[u8]| {
        out.push(kind << 2);
        out.extend(bytes);
    };
    match value {
        Value::Null => primitive(out, 0, &[]),
        Value::Bool(flag) => primitive(out, if *flag { 1 } else { 2 }, &[]),
        Value::Number(number) => match (number.as_i64(), number.as_u64(), number.as_f64()) {
            (Some(value), ..) => match (i8::try_from(value), i32::try_from(value)) {
                (Ok(value), _) => primitive(out, 3, &value.to_le_bytes()),
                (_, Ok(value)) => primitive(out, 5, &value.to_le_bytes()),
                _ => primitive(out, 6, &value.to_le_bytes()),
            },
            (None, Some(value), _) => {
                // A decimal of 16 bytes without fraction.
                primitive(out, 10, &[&[0][..], &i128::from(value).to_le_bytes()].concat());
            }
            (.., value) => primitive(out, 7, &value.unwrap_or_default().to_le_bytes()),
        },
        Value::String(text) => match u8::try_from(text.len()) {
            Ok(length) if length < 64 => {
                out.push(length << 2 | 1);
                out.extend(text.as_bytes());
            }
            _ => primitive(out, 16, &[&word(text.len())[..], text.as_bytes()].concat()),
        },
        Value::Array(items) => {
            let items: Vec<Vec<u8>> = items.iter().map(|item| encoded(item, names)).collect();
            out.push(0b111 << 2 | 3);
            out.extend(word(items.len()));
            put_parts(out, &items);
        }
        Value::Object(fields) => {
            // By name, as their numbers are.
            let mut fields: Vec<(usize, Vec<u8>)> = fields
                .iter()
                .map(|(name, field)| (names.binary_search(&name.as_str()).unwrap_or_default(), encoded(field, names)))
                .collect();
            fields.sort_by_key(|(id, _)| *id);
            out.push(0b11111 << 2 | 2);
            out.extend(word(fields.len()));
            fields.iter().for_each(|(id, _)| out.extend(word(*id)));
            let fields: Vec<Vec<u8>> = fields.into_iter().map(|(_, field)| field).collect();
            put_parts(out, &fields);
        }
    }
}

fn encoded(value: &Value, names: &[&str]) -> Vec<u8> {
    let mut out = Vec::new();
    put(&mut out, value, names);
    out
}

/// Offsets, and what they point to.
fn put_parts(out: &mut Vec<u8>, parts: &[Vec<u8>]) {
    let mut end = 0;
    out.extend(word(end));
    for part in parts {
        end += part.len();
        out.extend(word(end));
    }
    parts.iter().for_each(|part| out.extend(part));
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use arrow::array::StringArray;

    use super::*;

    #[test]
    fn documents_are_laid_out_as_parquet_says() {
        let texts: ArrayRef =
            Arc::new(StringArray::from(vec![Some("{\"b\":[1,\"x\"],\"a\":true}"), None, Some("plain")]));
        let made = of_texts(&texts);
        assert_eq!(made.data_type(), &data_type());
        let made = made.as_struct();
        assert!(made.is_null(1));
        let (metadata, values) = (made.column(0).as_binary::<i32>(), made.column(1).as_binary::<i32>());
        let names = [&[0xd1, 2, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0][..], b"ab"].concat();
        assert_eq!(metadata.value(0), names);
        let list = [&[0x1f, 2, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 4, 0, 0, 0][..], &[3 << 2, 1, 5, b'x']].concat();
        let object =
            [&[0x7e, 2, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0][..], &[0, 0, 0, 0, 1, 0, 0, 0, 22, 0, 0, 0, 4][..], &list]
                .concat();
        assert_eq!(values.value(0), object);
        assert_eq!(values.value(2), [&[5 << 2 | 1][..], b"plain"].concat());
    }
}
