//! Session variables: known names, defaults, values checked where the engine uses them.

use std::collections::BTreeMap;

use crate::engine::EngineConfig;
use crate::error::SqlError;
use crate::types::SessionZone;

/// Names and defaults. `time_zone` comes from the configuration.
const DEFAULTS: &[(&str, &str)] = &[
    ("auto_increment_increment", "1"),
    ("autocommit", "true"),
    ("batch_size", "4064"),
    ("change_visible_timeout_ms", "10000"),
    ("character_set_client", "utf8mb4"),
    ("character_set_connection", "utf8mb4"),
    ("character_set_database", "utf8mb4"),
    ("character_set_results", "utf8mb4"),
    ("character_set_server", "utf8mb4"),
    ("collation_connection", "utf8mb4_0900_bin"),
    ("collation_database", "utf8mb4_0900_bin"),
    ("collation_server", "utf8mb4_0900_bin"),
    ("enable_decimal256", "false"),
    ("enable_eventual_consistent_change", "false"),
    ("enable_fallback_to_original_planner", "false"),
    ("enable_insert_strict", "true"),
    ("enable_nereids_planner", "true"),
    ("enable_parallel_result_sink", "false"),
    ("enable_pipeline_engine", "true"),
    ("enable_profile", "false"),
    ("enable_short_circuit_query", "true"),
    ("enable_sql_cache", "false"),
    ("enable_strict_cast", "false"),
    ("enable_unique_key_partial_update", "false"),
    ("exec_mem_limit", "107374182400"),
    ("group_commit", "off_mode"),
    ("have_openssl", "DISABLED"),
    ("init_connect", ""),
    ("insert_max_filter_ratio", "1.0"),
    ("insert_timeout", "14400"),
    ("interactive_timeout", "3600"),
    ("language", "/palo/share/english/"),
    ("license", "Apache License, Version 2.0"),
    ("lower_case_table_names", "0"),
    ("max_allowed_packet", "16777216"),
    ("net_buffer_length", "16384"),
    ("net_read_timeout", "600"),
    ("net_write_timeout", "600"),
    ("parallel_pipeline_task_num", "0"),
    ("performance_schema", "OFF"),
    ("query_cache_size", "1048576"),
    ("query_cache_type", "0"),
    ("query_timeout", "900"),
    ("show_hidden_columns", "false"),
    ("socket", ""),
    ("sql_auto_is_null", "OFF"),
    ("sql_mode", ""),
    ("sql_safe_updates", "false"),
    ("sql_select_limit", "9223372036854775807"),
    ("system_time_zone", "Asia/Shanghai"),
    ("transaction_isolation", "REPEATABLE-READ"),
    ("transaction_read_only", "OFF"),
    ("tx_isolation", "REPEATABLE-READ"),
    ("tx_read_only", "OFF"),
    ("wait_timeout", "28800"),
];

/// Variables that cannot be set in a session.
const READ_ONLY: &[&str] =
    &["language", "license", "lower_case_table_names", "system_time_zone", "version", "version_comment"];

/// Variables that take a boolean.
const BOOLEANS: &[&str] = &[
    "autocommit",
    "enable_decimal256",
    "enable_eventual_consistent_change",
    "enable_fallback_to_original_planner",
    "enable_insert_strict",
    "enable_nereids_planner",
    "enable_parallel_result_sink",
    "enable_pipeline_engine",
    "enable_profile",
    "enable_short_circuit_query",
    "enable_sql_cache",
    "enable_strict_cast",
    "enable_unique_key_partial_update",
    "show_hidden_columns",
    "sql_safe_updates",
];

/// Variables whose value must be a whole number.
const NUMBERS: &[&str] = &[
    "batch_size",
    "change_visible_timeout_ms",
    "exec_mem_limit",
    "insert_timeout",
    "interactive_timeout",
    "max_allowed_packet",
    "net_buffer_length",
    "net_read_timeout",
    "net_write_timeout",
    "parallel_pipeline_task_num",
    "query_timeout",
    "sql_select_limit",
    "wait_timeout",
];

/// Variables that would change results in ways the sandbox does not serve: only the default is accepted.
const FIXED: &[&str] = &["group_commit"];

/// The variables of one session.
#[derive(Debug, Clone)]
pub(crate) struct Variables {
    values: BTreeMap<String, String>,
    defaults: BTreeMap<String, String>,
    zone: SessionZone,
}

impl Variables {
    pub(crate) fn new(config: &EngineConfig) -> Self {
        let mut values: BTreeMap<String, String> =
            DEFAULTS.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let zone = config.time_zone.parse().unwrap_or(SessionZone::UTC);
        values.insert("time_zone".to_owned(), zone.to_string());
        values.insert("version".to_owned(), "5.7.99".to_owned());
        values.insert("version_comment".to_owned(), format!("Doris version {}", config.profile.version()));
        if !config.profile.has_changes() {
            values.remove("change_visible_timeout_ms");
            values.remove("enable_eventual_consistent_change");
        }
        Self { defaults: values.clone(), values, zone }
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.values.get(&name.to_ascii_lowercase()).map(String::as_str)
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

    /// String literals decode backslashes.
    pub(crate) fn backslash_escapes(&self) -> bool {
        !self.get("sql_mode").is_some_and(|mode| mode.to_ascii_uppercase().contains("NO_BACKSLASH_ESCAPES"))
    }

    /// Name, value, default and whether it was changed.
    pub(crate) fn list(&self) -> impl Iterator<Item = (&str, &str, &str, bool)> {
        self.values.iter().map(|(name, value)| {
            let default = self.defaults.get(name).map_or("", String::as_str);
            (name.as_str(), value.as_str(), default, value != default)
        })
    }

    /// Sets a variable; `None` means DEFAULT.
    pub(crate) fn set(&mut self, name: &str, value: Option<&str>) -> Result<(), SqlError> {
        let key = name.to_ascii_lowercase();
        let Some(default) = self.defaults.get(&key).cloned() else {
            return Err(SqlError::coded(1193, self.unknown_text(name)));
        };
        if READ_ONLY.contains(&key.as_str()) {
            return Err(SqlError::coded(1238, format!("Variable '{name}' is a read only variable")));
        }
        let value = value.unwrap_or(&default).to_owned();
        let wrong_type = || SqlError::coded(1232, format!("Incorrect argument type to variable '{name}'"));
        let wrong_value = || SqlError::coded(1231, format!("Variable '{name}' can't be set to the value of '{value}'"));
        let value = if BOOLEANS.contains(&key.as_str()) {
            match value.to_ascii_lowercase().as_str() {
                "true" | "1" | "on" => "true".to_owned(),
                "false" | "0" | "off" => "false".to_owned(),
                _ => return Err(wrong_value()),
            }
        } else if NUMBERS.contains(&key.as_str()) {
            if value.parse::<u64>().is_err() {
                return Err(wrong_type());
            }
            value
        } else {
            value
        };
        if FIXED.contains(&key.as_str()) && value != default {
            return Err(SqlError::not_served(format!("{key}={value}")));
        }
        if key == "time_zone" {
            self.zone = value.parse().map_err(|text: String| SqlError::coded(1298, text))?;
            self.values.insert(key, self.zone.to_string());
            return Ok(());
        }
        self.values.insert(key, value);
        Ok(())
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
