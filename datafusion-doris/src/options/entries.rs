//! The string map after its keys are known: pulled apart by the option structs, then gone.

use std::collections::{BTreeMap, HashMap};

use super::key::{OptionKey, Support, as_typed, normalise};
use super::value::{Parsed, parse_bool};
use crate::error::{Error, Result};

/// Key as the user typed it, and its value.
#[derive(Debug)]
struct Entry {
    typed: String,
    value: String,
}

/// Options by key, and the open-ended `sink.properties.*` and `table.properties.*`.
#[derive(Debug, Default)]
pub(super) struct Entries {
    known: BTreeMap<OptionKey, Entry>,
    properties: BTreeMap<String, String>,
    table_properties: BTreeMap<String, String>,
}

impl Entries {
    /// Resolves every key; refuses unknown ones, contradicting spellings and what is not supported yet.
    pub(super) fn resolve(map: HashMap<String, String>) -> Result<Self> {
        // Sorted, so that the same mistakes always give the same message.
        let sorted: BTreeMap<String, String> = map.into_iter().collect();
        let mut entries = Self::default();
        for (typed, value) in sorted {
            let typed = as_typed(&typed).to_owned();
            let key: OptionKey = typed.parse()?;
            let open_ended = match key {
                OptionKey::SinkProperties => Some(("sink.properties.", &mut entries.properties)),
                OptionKey::TableProperties => Some(("table.properties.", &mut entries.table_properties)),
                _ => None,
            };
            if let Some((prefix, properties)) = open_ended {
                add_property(properties, prefix, &typed, value)?;
                continue;
            }
            if key.support() == Support::Later {
                check_later(key, &typed, &value)?;
            }
            if let Some(earlier) = entries.known.get(&key) {
                if earlier.value != value {
                    return Err(Error::config(typed, format!("contradicts '{}', give one of them", earlier.typed)));
                }
                continue;
            }
            entries.known.insert(key, Entry { typed, value });
        }
        Ok(entries)
    }

    /// The value of `key`, parsed; the parser's reason becomes an error that names the key as typed.
    pub(super) fn parse<T>(&mut self, key: OptionKey, parser: impl FnOnce(&str) -> Parsed<T>) -> Result<Option<T>> {
        match self.known.remove(&key) {
            None => Ok(None),
            Some(entry) => parser(&entry.value).map(Some).map_err(|reason| Error::config(entry.typed, reason)),
        }
    }

    /// Whether `key` was given by a spelling that ends so, without regard to case.
    pub(super) fn is_spelt(&self, key: OptionKey, end: &str) -> bool {
        self.known.get(&key).is_some_and(|entry| entry.typed.to_ascii_lowercase().ends_with(end))
    }

    /// The value of `key` as it is.
    pub(super) fn text(&mut self, key: OptionKey) -> Option<String> {
        self.known.remove(&key).map(|entry| entry.value)
    }

    /// Takes the `table.properties.*`, keys without that prefix and in lower case.
    pub(super) fn take_table_properties(&mut self) -> BTreeMap<String, String> {
        std::mem::take(&mut self.table_properties)
    }

    /// Refuses what only a catalog has.
    pub(super) fn refuse_catalog_options(&self) -> Result<()> {
        let advice = "is an option of catalogs (CREATE EXTERNAL CATALOG), leave it out of the table's";
        for key in [OptionKey::CatalogName, OptionKey::CatalogTtl, OptionKey::DefaultDatabase] {
            if let Some(entry) = self.known.get(&key) {
                return Err(Error::config(&entry.typed, advice));
            }
        }
        match self.table_properties.keys().next() {
            Some(name) => Err(Error::config(format!("table.properties.{name}"), advice)),
            None => Ok(()),
        }
    }

    /// Takes the `sink.properties.*`, keys without that prefix and in lower case.
    pub(super) fn take_properties(&mut self) -> BTreeMap<String, String> {
        std::mem::take(&mut self.properties)
    }
}

/// One of the options that begin with `prefix`, by the rest of its key.
fn add_property(properties: &mut BTreeMap<String, String>, prefix: &str, typed: &str, value: String) -> Result<()> {
    let key = normalise(typed);
    let key = key.strip_prefix("doris.").unwrap_or(&key);
    let name = key.strip_prefix(prefix).unwrap_or(key).to_owned();
    if let Some(earlier) = properties.get(&name)
        && *earlier != value
    {
        return Err(Error::config(typed, "given twice with different values"));
    }
    properties.insert(name, value);
    Ok(())
}

/// A text that must not be blank.
pub(super) fn parse_name(text: &str) -> Parsed<String> {
    let trimmed = text.trim();
    if trimmed.is_empty() { Err("must not be empty".into()) } else { Ok(trimmed.to_owned()) }
}

/// Accepts the values that ask for nothing new, so that an option is never ignored where it would change a result.
fn check_later(key: OptionKey, typed: &str, value: &str) -> Result<()> {
    let trimmed = value.trim();
    let lower = trimmed.to_ascii_lowercase();
    let advice = match key {
        OptionKey::Connector => {
            if lower == "doris" {
                return Ok(());
            }
            return Err(Error::config(typed, format!("'{trimmed}' is not 'doris'")));
        }
        OptionKey::EnableTls | OptionKey::UseOldApi | OptionKey::IgnoreCommitError => {
            let wanted = parse_bool(trimmed).map_err(|reason| Error::config(typed, reason))?;
            if !wanted {
                return Ok(());
            }
            match key {
                OptionKey::EnableTls => "connect to the plain ports",
                OptionKey::IgnoreCommitError => "it could lose rows silently, remove the option",
                _ => "remove the option",
            }
        }
        _ => "remove the option",
    };
    Err(Error::config(typed, format!("not supported yet, {advice}")))
}
