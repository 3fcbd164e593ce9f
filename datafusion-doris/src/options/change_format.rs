//! Options of input that tells changes instead of being rows.

use std::str::FromStr;

use chrono_tz::Tz;

use super::entries::Entries;
use super::key::OptionKey;
use crate::error::{Error, Result};

/// `sink.change-format`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeFormat {
    /// `debezium-json`: one text column of Debezium change events.
    DebeziumJson(DebeziumOptions),
}

/// How values are read that an event does not explain itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DebeziumOptions {
    /// `sink.debezium.time-precision`: unit of numbers in DATETIME columns, for events without schema; `None` = such
    /// numbers are refused.
    pub time_precision: Option<TimePrecision>,
    /// `sink.debezium.time-zone`: zone whose wall clock a DATETIME column shows of a time that comes with an offset;
    /// default UTC.
    pub time_zone: Tz,
}

impl Default for DebeziumOptions {
    fn default() -> Self {
        Self { time_precision: None, time_zone: Tz::UTC }
    }
}

/// Unit of a number that is a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimePrecision {
    /// Milliseconds.
    Millis,
    /// Microseconds.
    Micros,
    /// Nanoseconds.
    Nanos,
}

impl FromStr for TimePrecision {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.trim().to_ascii_lowercase().as_str() {
            "ms" => Ok(TimePrecision::Millis),
            "us" => Ok(TimePrecision::Micros),
            "ns" => Ok(TimePrecision::Nanos),
            _ => Err(format!("'{text}' is not ms, us or ns")),
        }
    }
}

impl ChangeFormat {
    pub(super) fn from_entries(entries: &mut Entries) -> Result<Option<Self>> {
        let format =
            entries.parse(OptionKey::ChangeFormat, |text| match text.trim().to_ascii_lowercase().as_str() {
                "debezium-json" => Ok(()),
                _ => Err(format!("'{text}' is unknown, use debezium-json")),
            })?;
        let time_precision = entries.parse(OptionKey::DebeziumTimePrecision, str::parse)?;
        let time_zone = entries.parse(OptionKey::DebeziumTimeZone, |text| {
            text.trim().parse::<Tz>().map_err(|_| format!("'{text}' is no time zone, give a name like Asia/Shanghai"))
        })?;
        let defaults = DebeziumOptions::default();
        // A default that is spelled out changes nothing.
        let given = [
            (OptionKey::DebeziumTimePrecision, time_precision.is_some()),
            (OptionKey::DebeziumTimeZone, time_zone.is_some_and(|zone| zone != defaults.time_zone)),
        ];
        if let (None, Some((option, _))) = (format, given.into_iter().find(|(_, given)| *given)) {
            let reason = "is for 'sink.change-format' = 'debezium-json', which is not set";
            return Err(Error::config(option.as_ref(), reason));
        }
        let options = DebeziumOptions { time_precision, time_zone: time_zone.unwrap_or(defaults.time_zone) };
        Ok(format.map(|()| ChangeFormat::DebeziumJson(options)))
    }
}
