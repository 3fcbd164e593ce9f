//! The schemas that `GetTables` tells: made by the FE, and not always those of the batches.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, Fields, Schema};

use crate::engine::{Profile, TableMeta};
use crate::types::{DorisType, SessionZone, datetime_unit, wire};

/// Prefix of the column metadata of Flight SQL.
const PREFIX: &str = "ARROW:FLIGHT:SQL:";
/// Name that Java gives to the children of lists whose type it does not know.
const PLACEHOLDER: &str = "$data$";

/// The schema of a table.
pub(super) fn table_schema(meta: &TableMeta, profile: Profile) -> Schema {
    let place = Place { database: &meta.database, table: &meta.name, profile };
    Schema::new(meta.columns.iter().map(|c| place.field(&c.name, &c.ty, c.nullable)).collect::<Vec<_>>())
}

struct Place<'a> {
    database: &'a str,
    table: &'a str,
    profile: Profile,
}

impl Place<'_> {
    /// Until #66344 the FE described types of its own.
    fn drifts(&self) -> bool {
        self.profile < Profile::V5_0Changelog
    }

    fn field(&self, name: &str, ty: &DorisType, nullable: bool) -> FieldRef {
        let wired = wire::wire_field(name, ty, nullable, self.profile, &SessionZone::UTC);
        let mut metadata = wired.metadata().clone();
        metadata.extend(self.metadata(ty));
        Arc::new(Field::new(name, self.data_type(ty), nullable).with_metadata(metadata))
    }

    fn data_type(&self, ty: &DorisType) -> DataType {
        match ty {
            DorisType::Date if self.drifts() => DataType::Date64,
            // The FE knows no zone, and no Arrow type for TIME.
            DorisType::TimestampTz(p) => DataType::Timestamp(datetime_unit(*p), Some("UTC".into())),
            DorisType::Time(_) => DataType::Null,
            DorisType::Ipv4 => DataType::Int32,
            DorisType::LargeInt | DorisType::Ipv6 | DorisType::Json | DorisType::Variant => DataType::Utf8,
            DorisType::DateTime(p) if self.drifts() => DataType::Timestamp(datetime_unit(*p), Some("UTC".into())),
            DorisType::Array(_) if self.drifts() => DataType::List(placeholder()),
            DorisType::Map(..) if self.drifts() => {
                DataType::Map(Arc::new(Field::new("entries", DataType::List(placeholder()), false)), false)
            }
            DorisType::Struct(_) if self.drifts() => DataType::Struct(Fields::empty()),
            DorisType::Array(item) => DataType::List(self.field("item", item, true)),
            DorisType::Map(key, value) => {
                let key = Field::new("key", self.data_type(key), false);
                let entries = Fields::from(vec![Arc::new(key), self.field("value", value, true)]);
                DataType::Map(Arc::new(Field::new("entries", DataType::Struct(entries), false)), false)
            }
            DorisType::Struct(fields) => {
                DataType::Struct(fields.iter().map(|(name, ty)| self.field(name, ty, true)).collect())
            }
            flat => wire::wire_type(flat, self.profile, &SessionZone::UTC),
        }
    }

    fn metadata(&self, ty: &DorisType) -> HashMap<String, String> {
        let (precision, scale) = numbers(ty);
        let mut entries = vec![
            ("SCHEMA_NAME", self.database.to_owned()),
            ("TABLE_NAME", self.table.to_owned()),
            ("TYPE_NAME", ty.primitive_name().to_owned()),
            ("IS_AUTO_INCREMENT", "0".to_owned()),
            ("IS_CASE_SENSITIVE", "0".to_owned()),
            ("IS_READ_ONLY", "1".to_owned()),
            ("IS_SEARCHABLE", "1".to_owned()),
        ];
        entries.extend(precision.map(|p| ("PRECISION", p.to_string())));
        entries.extend(scale.map(|s| ("SCALE", s.to_string())));
        entries.into_iter().map(|(key, value)| (format!("{PREFIX}{key}"), value)).collect()
    }
}

fn placeholder() -> FieldRef {
    Arc::new(Field::new(PLACEHOLDER, DataType::Null, false))
}

/// Precision and scale that the FE tells of a type.
fn numbers(ty: &DorisType) -> (Option<u32>, Option<u32>) {
    match ty {
        DorisType::Boolean | DorisType::TinyInt | DorisType::SmallInt | DorisType::Int | DorisType::BigInt => {
            (None, Some(0))
        }
        DorisType::Float => (Some(7), Some(7)),
        DorisType::Double => (Some(15), Some(15)),
        DorisType::Decimal { precision, scale } => (Some(u32::from(*precision)), u32::try_from(i32::from(*scale)).ok()),
        DorisType::DateTime(p) | DorisType::TimestampTz(p) | DorisType::Time(p) => (None, Some(u32::from(*p))),
        _ => (None, None),
    }
}
