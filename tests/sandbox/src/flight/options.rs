//! Session options of the newest build: the actions `SetSessionOptions` and `GetSessionOptions`.
//!
//! An option stands for the statement that sets it: `catalog` for SWITCH, `schema` for USE, any other name for SET of the
//! variable that SHOW VARIABLES lists under exactly this name.

use std::collections::HashMap;

use prost::Message;

use super::sessions::Command;
use crate::error::SqlError;

/// Option for the current catalog.
const CATALOG: &str = "catalog";
/// Option for the current database.
const SCHEMA: &str = "schema";

/// `SessionOptionValue` of the Flight protocol.
#[derive(Clone, PartialEq, Message)]
pub(super) struct SessionOptionValue {
    #[prost(oneof = "OptionValue", tags = "1, 2, 3, 4, 5")]
    pub option_value: Option<OptionValue>,
}

/// The kinds of a value; none of them is the empty value.
#[derive(Clone, PartialEq, prost::Oneof)]
pub(super) enum OptionValue {
    #[prost(string, tag = "1")]
    Text(String),
    #[prost(bool, tag = "2")]
    Bool(bool),
    #[prost(sfixed64, tag = "3")]
    Int(i64),
    #[prost(double, tag = "4")]
    Double(f64),
    #[prost(message, tag = "5")]
    List(StringList),
}

/// A list of texts.
#[derive(Clone, PartialEq, Message)]
pub(super) struct StringList {
    #[prost(string, repeated, tag = "1")]
    pub values: Vec<String>,
}

/// `SetSessionOptionsRequest`, and `GetSessionOptionsResult`, which has the same form.
#[derive(Clone, PartialEq, Message)]
pub(super) struct SessionOptions {
    #[prost(map = "string, message", tag = "1")]
    pub session_options: HashMap<String, SessionOptionValue>,
}

/// `SetSessionOptionsResult`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct SetSessionOptionsResult {
    #[prost(map = "string, message", tag = "1")]
    pub errors: HashMap<String, OptionError>,
}

/// Why one option was not set.
#[derive(Clone, PartialEq, Message)]
pub(super) struct OptionError {
    #[prost(enumeration = "ErrorValue", tag = "1")]
    pub value: i32,
}

/// The reasons there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub(super) enum ErrorValue {
    Unspecified = 0,
    InvalidName = 1,
    InvalidValue = 2,
    Error = 3,
}

impl SessionOptionValue {
    pub fn text(value: impl Into<String>) -> Self {
        Self { option_value: Some(OptionValue::Text(value.into())) }
    }
}

/// Sets each option on its own: catalog, schema, then the rest by name.
pub(super) fn set(context: &mut Command<'_>, options: SessionOptions) -> SetSessionOptionsResult {
    let mut names: Vec<&String> = options.session_options.keys().collect();
    names.sort_by_key(|name| (name.as_str() != CATALOG, name.as_str() != SCHEMA, name.as_str()));
    let mut errors = HashMap::new();
    for name in names {
        if let Err(value) = set_one(context, name, options.session_options[name].option_value.as_ref()) {
            errors.insert(name.clone(), OptionError { value: value as i32 });
        }
    }
    SetSessionOptionsResult { errors }
}

fn set_one(context: &mut Command<'_>, name: &str, value: Option<&OptionValue>) -> Result<(), ErrorValue> {
    match name {
        CATALOG => {
            // A session is always in a catalog: nothing leads out of it. The internal one is the only one here, and
            // going to it leaves the database, as SWITCH does.
            let catalog = text_of(value).filter(|c| !c.is_empty()).ok_or(ErrorValue::InvalidValue)?;
            if catalog != "internal" {
                return Err(ErrorValue::InvalidValue);
            }
            context.database = None;
            Ok(())
        }
        SCHEMA => {
            let database = text_of(value).ok_or(ErrorValue::InvalidValue)?;
            if database.is_empty() {
                context.database = None;
                return Ok(());
            }
            context.use_database(database).map_err(|_| ErrorValue::InvalidValue)
        }
        _ => set_variable(context, name, value),
    }
}

/// A text, the empty one for the empty value; nothing for values of other kinds.
fn text_of(value: Option<&OptionValue>) -> Option<&str> {
    match value {
        None => Some(""),
        Some(OptionValue::Text(text)) => Some(text),
        Some(_) => None,
    }
}

fn set_variable(context: &mut Command<'_>, name: &str, value: Option<&OptionValue>) -> Result<(), ErrorValue> {
    if !context.variables.list().any(|(known, ..)| known == name) {
        return Err(ErrorValue::InvalidName);
    }
    let literal = match value {
        None => None,
        Some(OptionValue::Text(text)) => Some(text.clone()),
        Some(OptionValue::Bool(value)) => Some(value.to_string()),
        Some(OptionValue::Int(value)) => Some(value.to_string()),
        Some(OptionValue::Double(value)) if value.is_finite() => Some(value.to_string()),
        Some(OptionValue::Double(_) | OptionValue::List(_)) => {
            return Err(if is_fixed(context, name) { ErrorValue::Error } else { ErrorValue::InvalidValue });
        }
    };
    context.variables.set(name, literal.as_deref()).map_err(|error| refusal(&error))
}

/// Whether the variable cannot be set in a session at all: that is told before the value is looked at.
fn is_fixed(context: &Command<'_>, name: &str) -> bool {
    context.variables.clone().set(name, None).is_err_and(|error| refusal(&error) == ErrorValue::Error)
}

fn refusal(error: &SqlError) -> ErrorValue {
    match error.code {
        // Read only, or global only.
        1238 | 1229 => ErrorValue::Error,
        _ => ErrorValue::InvalidValue,
    }
}

/// Catalog, database and all variables, as texts.
pub(super) fn get(context: &Command<'_>) -> SessionOptions {
    let mut session_options: HashMap<String, SessionOptionValue> =
        context.variables.list().map(|(name, value, ..)| (name.to_owned(), SessionOptionValue::text(value))).collect();
    session_options.insert(CATALOG.to_owned(), SessionOptionValue::text("internal"));
    session_options.insert(SCHEMA.to_owned(), SessionOptionValue::text(context.database().unwrap_or_default()));
    SessionOptions { session_options }
}
