//! What the properties of a Stream Load mean for the INSERT of the TVF mode: session variables, or nothing.

use super::csv_format::CsvFormat;
use super::key::OptionKey;
use super::sink::{SinkFormat, SinkOptions};
use super::value::parse_bool;
use super::write_mode::WriteMode;
use crate::error::{Error, Result};

/// Session variables of an INSERT that reads staged rows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InsertSettings {
    variables: Vec<(&'static str, String)>,
    /// Seconds that the statement may take; `None` = the server's `insert_timeout`.
    pub timeout_secs: Option<u64>,
    /// Rows may be refused while the others are taken.
    pub filters: bool,
    /// Only the columns that are written are replaced.
    pub partial: bool,
    /// Column that fills the hidden sequence column.
    pub sequence: Option<String>,
}

impl InsertSettings {
    /// The settings that the properties ask for.
    ///
    /// | `sink.properties.` | session variable |
    /// | --- | --- |
    /// | `strict_mode` | `enable_insert_strict`, `true` unless given (`false` for partial updates) |
    /// | `max_filter_ratio` | `insert_max_filter_ratio`, together with `enable_insert_strict` = `false` |
    /// | `timeout` | `insert_timeout` |
    /// | `partial_columns`, `unique_key_update_mode` | `enable_unique_key_partial_update` |
    ///
    /// # Errors
    /// [`Error::Config`] with the name of a property that an INSERT has no counterpart of.
    pub fn of(options: &SinkOptions) -> Result<Self> {
        let mut settings = Self::default();
        let (mut strict, mut ratio) = (None, None);
        for (name, value) in &options.properties {
            let refuse = |reason: &str| Err(Error::config(format!("sink.properties.{name}"), reason));
            let text = value.trim();
            match name.as_str() {
                "strict_mode" => strict = parse_bool(text).ok(),
                "max_filter_ratio" => ratio = Some(text.to_string()),
                "timeout" => settings.timeout_secs = text.parse().ok(),
                "partial_columns" => settings.partial |= parse_bool(text) == Ok(true),
                "unique_key_update_mode" if text.eq_ignore_ascii_case("UPDATE_FLEXIBLE_COLUMNS") => {
                    return refuse("has no counterpart in TVF mode: use STREAM_LOAD, or UPDATE_FIXED_COLUMNS");
                }
                "unique_key_update_mode" => settings.partial |= text.eq_ignore_ascii_case("UPDATE_FIXED_COLUMNS"),
                "function_column.sequence_col" => settings.sequence = Some(text.trim_matches('`').to_string()),
                "group_commit" if text.eq_ignore_ascii_case("off_mode") => {}
                // Digits are text in the staged objects anyway.
                "num_as_string" => {}
                "columns" | "where" | "jsonpaths" | "json_root" => {
                    return refuse("has no counterpart in TVF mode: put the expressions into the query");
                }
                "partitions" | "temporary_partitions" => {
                    return refuse("has no counterpart in TVF mode: use STREAM_LOAD");
                }
                _ => return refuse("has no meaning for the INSERT of TVF mode, remove it or use STREAM_LOAD"),
            }
        }
        if ratio.is_some() && strict == Some(true) {
            return Err(Error::config(
                "sink.properties.max_filter_ratio",
                "has no effect in TVF mode beside 'strict_mode' = 'true': an INSERT in strict mode ends with the first \
                 row that is filtered; remove one of them",
            ));
        }
        let strict = strict.unwrap_or(ratio.is_none() && !settings.partial);
        settings.variables.push(("enable_insert_strict", strict.to_string()));
        if !strict {
            // As a Stream Load: without being asked to, no row is left out.
            let ratio = ratio.unwrap_or_else(|| "0".into());
            settings.filters = ratio.parse().is_ok_and(|share: f64| share > 0.0);
            settings.variables.push(("insert_max_filter_ratio", ratio));
        }
        if let Some(seconds) = settings.timeout_secs {
            settings.variables.push(("insert_timeout", seconds.to_string()));
        }
        if settings.partial {
            settings.variables.push(("enable_unique_key_partial_update", "true".into()));
        }
        Ok(settings)
    }

    /// The statement that sets the variables. Literals of this crate need `sql_mode` to be empty.
    pub fn to_sql(&self) -> String {
        let list: Vec<String> = self.variables.iter().map(|(name, value)| format!("{name} = {value}")).collect();
        format!("SET sql_mode = '', {}", list.join(", "))
    }
}

impl SinkOptions {
    /// Whether the options go with the write mode.
    ///
    /// # Errors
    /// [`Error::Config`] that names the first that does not.
    pub(crate) fn check_write_mode(&self) -> Result<()> {
        if self.write_mode != WriteMode::Tvf {
            return match self.format {
                Some(SinkFormat::Parquet) => Err(Error::config(
                    "sink.properties.format",
                    "parquet is of TVF mode ('sink.write-mode' = 'TVF'): use csv, json or arrow",
                )),
                _ => Ok(()),
            };
        }
        if matches!(self.format, Some(SinkFormat::Csv | SinkFormat::Arrow)) {
            return Err(Error::config("sink.properties.format", "in TVF mode rows are staged as json or parquet"));
        }
        if self.csv != CsvFormat::default() {
            return Err(Error::config(
                "sink.properties.column_separator",
                "separators and quotes are of csv, and in TVF mode rows are staged as json or parquet: remove them",
            ));
        }
        if !self.two_phase(false) {
            return Err(Error::config(
                OptionKey::Enable2pc.as_ref(),
                "has no meaning in TVF mode, where one statement makes all rows visible: remove it",
            ));
        }
        InsertSettings::of(self).map(drop)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn settings(properties: &[(&str, &str)]) -> Result<InsertSettings> {
        let map: BTreeMap<String, String> =
            properties.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
        InsertSettings::of(&SinkOptions { properties: map, ..SinkOptions::default() })
    }

    #[test]
    fn properties_become_session_variables() {
        let cases: &[(&[(&str, &str)], &str)] = &[
            (&[], "enable_insert_strict = true"),
            (&[("strict_mode", "true"), ("timeout", "60")], "enable_insert_strict = true, insert_timeout = 60"),
            (&[("strict_mode", "false")], "enable_insert_strict = false, insert_max_filter_ratio = 0"),
            (&[("max_filter_ratio", "0.1")], "enable_insert_strict = false, insert_max_filter_ratio = 0.1"),
            (
                &[("partial_columns", "true")],
                "enable_insert_strict = false, insert_max_filter_ratio = 0, enable_unique_key_partial_update = true",
            ),
            (
                &[("unique_key_update_mode", "UPDATE_FIXED_COLUMNS"), ("strict_mode", "true")],
                "enable_insert_strict = true, enable_unique_key_partial_update = true",
            ),
            (&[("group_commit", "off_mode"), ("num_as_string", "true")], "enable_insert_strict = true"),
        ];
        for (properties, expected) in cases {
            assert_eq!(settings(properties).unwrap().to_sql(), format!("SET sql_mode = '', {expected}"));
        }
        assert_eq!(settings(&[("function_column.sequence_col", "`at`")]).unwrap().sequence.as_deref(), Some("at"));
        for (ratio, filters) in [("0", false), ("0.0", false), ("0.1", true), ("1", true)] {
            assert_eq!(settings(&[("max_filter_ratio", ratio)]).unwrap().filters, filters, "{ratio}");
        }
        assert!(!settings(&[("strict_mode", "false")]).unwrap().filters);
    }

    #[test]
    fn property_without_a_meaning_for_insert_is_refused_by_name() {
        for name in ["columns", "where", "partitions", "load_to_single_tablet", "timezone", "exec_mem_limit", "odd"] {
            let error = settings(&[(name, "1")]).unwrap_err().to_string();
            assert!(error.contains(&format!("'sink.properties.{name}'")), "{error}");
        }
        let error = settings(&[("unique_key_update_mode", "update_flexible_columns")]).unwrap_err().to_string();
        assert!(error.contains("'sink.properties.unique_key_update_mode'"), "{error}");
        let error = settings(&[("max_filter_ratio", "0.1"), ("strict_mode", "true")]).unwrap_err().to_string();
        assert!(error.contains("'sink.properties.max_filter_ratio'") && error.contains("strict_mode"), "{error}");
    }
}
