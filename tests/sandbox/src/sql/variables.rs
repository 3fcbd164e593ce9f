//! Session variables: known names, defaults, values checked where they are set.

mod known;

use std::collections::BTreeMap;

use self::known::{KNOWN, Kind, Known, SQL_MODES, Scope};
use crate::engine::EngineConfig;
use crate::error::SqlError;
use crate::types::SessionZone;

/// Values set with SET GLOBAL: what new sessions begin with.
pub(crate) type Globals = BTreeMap<String, String>;

/// The variables of one session.
#[derive(Debug, Clone)]
pub(crate) struct Variables {
    values: BTreeMap<String, String>,
    defaults: BTreeMap<String, String>,
    zone: SessionZone,
}

impl Variables {
    pub(crate) fn new(config: &EngineConfig, globals: &Globals) -> Self {
        let served = KNOWN.iter().filter(|variable| config.profile >= variable.since);
        let mut defaults: BTreeMap<String, String> =
            served.map(|variable| (variable.name.to_owned(), variable.default.to_owned())).collect();
        let zone: SessionZone = config.time_zone.parse().unwrap_or(SessionZone::UTC);
        defaults.insert("time_zone".to_owned(), zone.to_string());
        defaults.insert("version_comment".to_owned(), format!("Doris version {}", config.profile.version()));
        let mut values = defaults.clone();
        for (name, value) in globals {
            values.insert(name.clone(), value.clone());
        }
        let zone = values.get("time_zone").and_then(|zone| zone.parse().ok()).unwrap_or(zone);
        Self { defaults, values, zone }
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.values.get(&canonical(name)).map(String::as_str)
    }

    pub(crate) fn is_true(&self, name: &str) -> bool {
        self.get(name) == Some("true")
    }

    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        self.get(name)?.parse().ok()
    }

    pub(crate) fn zone(&self) -> SessionZone {
        self.zone
    }

    fn has_mode(&self, mode: &str) -> bool {
        self.get("sql_mode").is_some_and(|modes| modes.split(',').any(|m| m.eq_ignore_ascii_case(mode)))
    }

    /// String literals decode backslashes.
    pub(crate) fn backslash_escapes(&self) -> bool {
        !self.has_mode("NO_BACKSLASH_ESCAPES")
    }

    /// `||` joins texts.
    pub(crate) fn pipes_concat(&self) -> bool {
        self.has_mode("PIPES_AS_CONCAT") || self.has_mode("ANSI")
    }

    /// Name, value, default and whether it was changed.
    pub(crate) fn list(&self) -> impl Iterator<Item = (&str, &str, &str, bool)> {
        self.values.iter().map(|(name, value)| {
            let default = self.defaults.get(name).map_or("", String::as_str);
            (name.as_str(), value.as_str(), default, value != default)
        })
    }

    /// Checks a value (`None` means DEFAULT) and gives name and value as they are kept.
    ///
    /// # Errors
    /// 1193 for the name, 1238 when it cannot be set, 1229 when it is global only and `global` is false, 1231, 1232 or
    /// 1298 for the value.
    pub(crate) fn check(&self, name: &str, value: Option<&str>, global: bool) -> Result<(String, String), SqlError> {
        let key = canonical(name);
        let unknown = || SqlError::coded(1193, self.unknown_text(name));
        let default = self.defaults.get(&key).ok_or_else(unknown)?;
        let variable = KNOWN.iter().find(|variable| variable.name == key).ok_or_else(unknown)?;
        match variable.scope {
            Scope::ReadOnly => return Err(SqlError::coded(1238, format!("Variable '{name}' is a read only variable"))),
            Scope::GlobalOnly if !global => {
                return Err(SqlError::coded(
                    1229,
                    format!("Variable '{name}' is a GLOBAL variable and should be set with SET GLOBAL"),
                ));
            }
            _ => {}
        }
        let value = checked(variable, name, value.unwrap_or(default))?;
        if variable.fixed && value != *default {
            return Err(SqlError::not_served(format!("{key}={value}")));
        }
        Ok((key, value))
    }

    /// Sets a variable of the session; `None` means DEFAULT.
    ///
    /// # Errors
    /// As [`Variables::check`].
    pub(crate) fn set(&mut self, name: &str, value: Option<&str>) -> Result<(), SqlError> {
        let (key, value) = self.check(name, value, false)?;
        self.put(key, value);
        Ok(())
    }

    /// Stores what [`Variables::check`] gave.
    pub(crate) fn put(&mut self, key: String, value: String) {
        if key == "time_zone"
            && let Ok(zone) = value.parse()
        {
            self.zone = zone;
        }
        self.values.insert(key, value);
    }

    /// `Unknown system variable '%s',the similar variables are %s`
    pub(crate) fn unknown_text(&self, name: &str) -> String {
        let mut near: Vec<(usize, &str)> =
            self.values.keys().map(|known| (distance(&name.to_ascii_lowercase(), known), known.as_str())).collect();
        near.sort();
        let near: Vec<&str> = near.into_iter().take(3).map(|(_, known)| known).collect();
        format!("Unknown system variable '{name}',the similar variables are {{{}}}", near.join(", "))
    }
}

/// Lower case; experimental variables are also known by that prefix.
fn canonical(name: &str) -> String {
    let lower = name.to_ascii_lowercase();
    match lower.strip_prefix("experimental_") {
        Some(rest) if KNOWN.iter().any(|variable| variable.name == rest) => rest.to_owned(),
        _ => lower,
    }
}

fn checked(variable: &Known, name: &str, value: &str) -> Result<String, SqlError> {
    let wrong_type = || SqlError::coded(1232, format!("Incorrect argument type to variable '{name}'"));
    let wrong_value = || SqlError::coded(1231, format!("Variable '{name}' can't be set to the value of '{value}'"));
    match variable.kind {
        Kind::Text => Ok(value.to_owned()),
        Kind::Bool => match value.to_ascii_lowercase().as_str() {
            "true" | "1" | "on" => Ok("true".to_owned()),
            "false" | "0" | "off" => Ok("false".to_owned()),
            _ => Err(wrong_value()),
        },
        Kind::Int => value.trim().parse::<i64>().map(|n| n.to_string()).map_err(|_| wrong_type()),
        Kind::Positive => match value.trim().parse::<i64>() {
            Ok(n) if n > 0 => Ok(n.to_string()),
            Ok(n) => Err(SqlError::detail(format!("{name} can not be set to {n}, it must be greater than 0"))),
            Err(_) => Err(wrong_type()),
        },
        Kind::Float => match value.trim().parse::<f64>() {
            Ok(n) if n.is_finite() => Ok(value.trim().to_owned()),
            _ => Err(wrong_type()),
        },
        Kind::Choice(choices) => {
            let found = choices.iter().find(|choice| choice.eq_ignore_ascii_case(value));
            found.map(|choice| (*choice).to_owned()).ok_or_else(wrong_value)
        }
        Kind::TimeZone => {
            let zone: SessionZone = value.parse().map_err(|text: String| SqlError::coded(1298, text))?;
            Ok(zone.to_string())
        }
        Kind::SqlMode => {
            let modes: Vec<String> =
                value.split(',').map(|mode| mode.trim().to_ascii_uppercase()).filter(|mode| !mode.is_empty()).collect();
            // A number is a set of bits; the names of the bits are not shown.
            let known = |mode: &String| SQL_MODES.contains(&mode.as_str());
            match modes.iter().all(known) {
                true => Ok(modes.join(",")),
                false => Err(wrong_value()),
            }
        }
    }
}

/// Edit distance.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut previous = row[0];
        row[0] = i + 1;
        for (j, cb) in b.iter().enumerate() {
            let substitute = previous + usize::from(ca != *cb);
            previous = row[j + 1];
            row[j + 1] = substitute.min(row[j] + 1).min(previous + 1);
        }
    }
    row[b.len()]
}
