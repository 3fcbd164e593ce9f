//! What the values of an event mean, as its schema says.

use std::collections::HashMap;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::Failure;
use crate::options::TimePrecision;

/// What a value is in the source, beyond its JSON type.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) enum Meaning {
    /// What its JSON type says.
    #[default]
    Plain,
    /// Days since 1970-01-01.
    Days,
    /// A wall clock time since 1970-01-01T00:00:00.
    DateTime(TimePrecision),
    /// A time of day since midnight.
    Time(TimePrecision),
    /// An unscaled two's complement number, base64.
    Decimal {
        /// Digits after the point.
        scale: i32,
    },
    /// `{scale, value}`, the value as above.
    VariableDecimal,
    /// A bit set, base64, least byte first.
    Bits,
    /// A list of values of one meaning.
    List(Box<Meaning>),
    /// A map to values of one meaning.
    Map(Box<Meaning>),
    /// A row within the row.
    Row(Arc<RowMeaning>),
}

/// What the fields of a row mean; those not listed are plain.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct RowMeaning(HashMap<String, Meaning>);

impl RowMeaning {
    pub fn of(&self, field: &str) -> &Meaning {
        self.0.get(field).unwrap_or(&Meaning::Plain)
    }
}

/// A Kafka Connect schema.
#[derive(Deserialize)]
struct Connect {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    field: Option<String>,
    #[serde(default)]
    fields: Vec<Connect>,
    #[serde(default)]
    items: Option<Box<Connect>>,
    #[serde(default)]
    values: Option<Box<Connect>>,
    #[serde(default)]
    parameters: HashMap<String, String>,
}

impl Connect {
    fn meaning(&self) -> Result<Meaning, String> {
        Ok(match self.name.as_deref() {
            Some("io.debezium.time.Date" | "org.apache.kafka.connect.data.Date") => Meaning::Days,
            Some("io.debezium.time.Timestamp" | "org.apache.kafka.connect.data.Timestamp") => {
                Meaning::DateTime(TimePrecision::Millis)
            }
            Some("io.debezium.time.MicroTimestamp") => Meaning::DateTime(TimePrecision::Micros),
            Some("io.debezium.time.NanoTimestamp") => Meaning::DateTime(TimePrecision::Nanos),
            Some("io.debezium.time.Time" | "org.apache.kafka.connect.data.Time") => {
                Meaning::Time(TimePrecision::Millis)
            }
            Some("io.debezium.time.MicroTime") => Meaning::Time(TimePrecision::Micros),
            Some("io.debezium.time.NanoTime") => Meaning::Time(TimePrecision::Nanos),
            Some("org.apache.kafka.connect.data.Decimal") => {
                let scale = self.parameters.get("scale").and_then(|scale| scale.parse().ok());
                Meaning::Decimal { scale: scale.ok_or("the schema gives no scale of a decimal")? }
            }
            Some("io.debezium.data.VariableScaleDecimal") => Meaning::VariableDecimal,
            Some("io.debezium.data.Bits") => Meaning::Bits,
            _ => match self.kind.as_str() {
                "array" => match &self.items {
                    Some(items) => Meaning::List(Box::new(items.meaning()?)),
                    None => Meaning::Plain,
                },
                "map" => match &self.values {
                    Some(values) => Meaning::Map(Box::new(values.meaning()?)),
                    None => Meaning::Plain,
                },
                "struct" => Meaning::Row(Arc::new(self.row()?)),
                _ => Meaning::Plain,
            },
        })
    }

    fn row(&self) -> Result<RowMeaning, String> {
        let mut row = RowMeaning::default();
        for field in &self.fields {
            let Some(name) = &field.field else { continue };
            let meaning = field.meaning()?;
            if meaning != Meaning::Plain {
                row.0.insert(name.clone(), meaning);
            }
        }
        Ok(row)
    }
}

/// Meanings of `before` and `after`.
type Halves = (Arc<RowMeaning>, Arc<RowMeaning>);

/// The schema that was read last: events of one table carry the same text for as long as the table stays the same.
#[derive(Debug, Clone, Default)]
pub(super) struct SchemaCache {
    text: String,
    halves: Halves,
}

impl SchemaCache {
    pub fn of(&mut self, schema: Option<&RawValue>) -> Result<Halves, Failure> {
        let Some(schema) = schema else { return Ok(Halves::default()) };
        if schema.get() != self.text {
            let invalid = |reason: String| Failure::from(format!("its schema cannot be read: {reason}"));
            let envelope: Connect = serde_json::from_str(schema.get()).map_err(|error| invalid(error.to_string()))?;
            let half = |name: &str| match envelope.fields.iter().find(|field| field.field.as_deref() == Some(name)) {
                Some(field) => field.row().map(Arc::new).map_err(invalid),
                None => Ok(Arc::default()),
            };
            self.halves = (half("before")?, half("after")?);
            self.text = schema.get().to_owned();
        }
        Ok(self.halves.clone())
    }
}
