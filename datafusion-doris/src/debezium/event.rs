//! The envelope of an event.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{MapAccess, Visitor};
use serde_json::value::RawValue;

use super::Failure;

/// What happened to a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    Create,
    Read,
    Update,
    Delete,
}

impl Operation {
    pub fn code(self) -> char {
        match self {
            Operation::Create => 'c',
            Operation::Read => 'r',
            Operation::Update => 'u',
            Operation::Delete => 'd',
        }
    }
}

/// One change of one row, its values not read yet.
#[derive(Debug)]
pub(super) struct Event<'a> {
    pub operation: Operation,
    pub before: Option<&'a RawValue>,
    pub after: Option<&'a RawValue>,
    /// The schema of the envelope, when the event has one.
    pub schema: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow, default)]
    schema: Option<&'a RawValue>,
    #[serde(borrow, default)]
    payload: Option<&'a RawValue>,
    #[serde(borrow, default)]
    op: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    before: Option<&'a RawValue>,
    #[serde(borrow, default)]
    after: Option<&'a RawValue>,
}

/// Tells whether a payload is there at all, be it null.
#[derive(Deserialize)]
struct Keys {
    #[serde(default, deserialize_with = "present")]
    payload: bool,
}

fn present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    serde::de::IgnoredAny::deserialize(deserializer).map(|_| true)
}

impl<'a> Event<'a> {
    /// Reads an event; `None` for those that change no row: tombstones and logical messages.
    ///
    /// # Errors
    /// The reason, when it is no change event or one that cannot be written.
    pub fn parse(text: &'a str) -> Result<Option<Self>, Failure> {
        let invalid = |error: serde_json::Error| Failure::from(format!("it is no JSON object: {error}"));
        if text.trim_ascii() == "null" {
            return Ok(None);
        }
        // An array would be taken for a struct's fields in their order.
        if !text.trim_ascii_start().starts_with('{') {
            return Err(Failure::from("it is no JSON object".to_string()));
        }
        let outer: Message<'a> = serde_json::from_str(text).map_err(invalid)?;
        let (schema, message) = match (outer.payload, &outer.op) {
            (Some(payload), None) => (outer.schema, serde_json::from_str(payload.get()).map_err(invalid)?),
            (None, None) if serde_json::from_str::<Keys>(text).is_ok_and(|keys| keys.payload) => return Ok(None),
            _ => (None, outer),
        };
        let operation = match message.op.as_deref() {
            Some("c") => Operation::Create,
            Some("r") => Operation::Read,
            Some("u") => Operation::Update,
            Some("d") => Operation::Delete,
            Some("m") => return Ok(None),
            Some("t") => {
                let reason = "the source table was truncated, which is not carried over: truncate the target by hand, and \
                              go on after this event (the connector's skipped.operations = 't' leaves them out)";
                return Err(Failure::from(reason.to_string()));
            }
            Some(other) => return Err(Failure::from(format!("operation '{other}' is unknown, expected c, r, u or d"))),
            None => {
                let reason = "it has no 'op': it is no change event, or was flattened (ExtractNewRecordState); only whole \
                              events tell deletes";
                return Err(Failure::from(reason.to_string()));
            }
        };
        Ok(Some(Self { operation, before: message.before, after: message.after, schema }))
    }
}

/// A field of a row.
#[derive(Debug, Clone, Copy)]
pub(super) struct FieldOf<'f, 'a> {
    /// As the event spells it.
    pub name: &'f str,
    pub value: &'a RawValue,
}

/// The fields of an object, in its order.
#[derive(Debug, Default)]
pub(super) struct Fields<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'a> Fields<'a> {
    pub fn parse(raw: &'a RawValue) -> Result<Self, Failure> {
        let fail = |error| Failure::from(format!("a row of it is no JSON object: {error}"));
        serde_json::from_str(raw.get()).map_err(fail)
    }

    /// The field of a column: as it is spelt, else in any case. `hint` = where it most likely is.
    pub fn find(&self, hint: usize, name: &str) -> Option<FieldOf<'_, 'a>> {
        let hinted = self.0.get(hint).filter(|(field, _)| field == name);
        hinted
            .or_else(|| self.0.iter().find(|(field, _)| field == name))
            .or_else(|| self.0.iter().find(|(field, _)| field.to_lowercase() == name.to_lowercase()))
            .map(|(name, value)| FieldOf { name, value })
    }

    pub fn iter(&self) -> impl Iterator<Item = FieldOf<'_, 'a>> {
        self.0.iter().map(|(name, value)| FieldOf { name, value })
    }
}

#[derive(Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'de> Deserialize<'de> for Fields<'de> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct FieldsVisitor;
        impl<'de> Visitor<'de> for FieldsVisitor {
            type Value = Fields<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut fields = Vec::with_capacity(map.size_hint().unwrap_or_default());
                while let Some((Name(name), value)) = map.next_entry::<Name<'de>, &'de RawValue>()? {
                    fields.push((name, value));
                }
                Ok(Fields(fields))
            }
        }
        deserializer.deserialize_map(FieldsVisitor)
    }
}
