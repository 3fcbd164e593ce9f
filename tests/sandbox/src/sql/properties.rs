//! Properties of CREATE TABLE: which are known, which change what the sandbox does, what the server prints.

use std::collections::BTreeMap;

use crate::engine::{Engine, Profile};
use crate::error::SqlError;
use crate::storage::{ChangeConfig, Column, KeysType};
use crate::types::DorisType;

/// Properties that are kept and printed and do not change results.
const KEPT: &[&str] = &[
    "bloom_filter_columns",
    "colocate_with",
    "compaction_policy",
    "compression",
    "disable_auto_compaction",
    "enable_single_replica_compaction",
    "estimate_partition_size",
    "file_cache_ttl_seconds",
    "group_commit_data_bytes",
    "group_commit_interval_ms",
    "group_commit_mode",
    "in_memory",
    "inverted_index_storage_format",
    "is_being_synced",
    "light_schema_change",
    "min_load_replica_num",
    "replication_allocation",
    "replication_num",
    "row_store_columns",
    "storage_format",
    "storage_medium",
    "storage_policy",
    "storage_vault_name",
    "store_row_column",
    "skip_write_index_on_load",
];

const CHANGELOG: &[&str] =
    &["changelog.enable", "changelog.need_historical_value", "changelog.ttl_seconds", "changelog.max_bytes"];
const BINLOG: &[&str] = &[
    "binlog.enable",
    "binlog.format",
    "binlog.max_bytes",
    "binlog.max_history_nums",
    "binlog.need_historical_value",
    "binlog.ttl_seconds",
];

fn unknown(key: &str, value: &str) -> SqlError {
    SqlError::detail(format!("Unknown properties: {{{key}={value}}}"))
}

fn boolean(key: &str, value: &str) -> Result<bool, SqlError> {
    match value.to_ascii_lowercase().as_str() {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err(SqlError::detail(format!("Invalid value for property {key}: {value}, must be true or false"))),
    }
}

/// Checks the written properties and completes them to those SHOW CREATE TABLE prints.
pub(super) fn check(
    engine: &Engine,
    written: BTreeMap<String, String>,
    keys_type: KeysType,
    columns: &[Column],
) -> Result<(BTreeMap<String, String>, Option<ChangeConfig>), SqlError> {
    let profile = engine.profile();
    let mut out = BTreeMap::new();
    let mut merge_on_write = keys_type == KeysType::Unique;
    for (key, value) in &written {
        match key.as_str() {
            "enable_unique_key_merge_on_write" => {
                let on = boolean(key, value)?;
                if keys_type != KeysType::Unique {
                    return Err(unknown(key, value));
                }
                merge_on_write = on;
            }
            "enable_mow_light_delete" if !boolean(key, value)? => {}
            "enable_duplicate_without_keys_by_default" if !boolean(key, value)? => {}
            "enable_mow_light_delete" | "enable_duplicate_without_keys_by_default" => {
                return Err(SqlError::not_served(format!("property {key}={value}")));
            }
            "replication_num" => {
                let number: usize =
                    value.parse().map_err(|_| SqlError::detail(format!("Replication num invalid. Value: {value}")))?;
                let backends = engine.topology().backends.len().max(1);
                if number == 0 || number > backends {
                    return Err(SqlError::detail(format!(
                        "replication num should be less than the number of available backends. replication num is {number}, available backend num is {backends}"
                    )));
                }
            }
            // Reads of such a table are sent from encoded bytes, see `flight::replay`.
            "sandbox.replay" => {
                boolean(key, value)?;
            }
            "sandbox.replay.rows" => {
                value
                    .parse::<u64>()
                    .map_err(|_| SqlError::detail(format!("Invalid value for property {key}: {value}")))?;
            }
            key if KEPT.contains(&key) => {}
            key if CHANGELOG.contains(&key) && profile == Profile::V5_0Changelog => {}
            key if BINLOG.contains(&key) && profile == Profile::V5_0Changelog => {
                return Err(SqlError::detail(format!(
                    "property {key} is not supported any more, use changelog.enable (row changes) instead"
                )));
            }
            key if BINLOG.contains(&key) => {}
            key if key.starts_with("function_column.") || key.starts_with("dynamic_partition.") => {
                return Err(SqlError::not_served(format!("property {key}")));
            }
            _ => return Err(unknown(key, value)),
        }
        out.insert(key.clone(), value.clone());
    }
    let changes = changes(profile, &written, keys_type, merge_on_write, columns)?;
    let mut default = |key: &str, value: &str| {
        out.entry(key.to_owned()).or_insert_with(|| value.to_owned());
    };
    if !written.contains_key("replication_num") {
        default("replication_allocation", "tag.location.default: 1");
    }
    default("min_load_replica_num", "-1");
    default("is_being_synced", "false");
    default("storage_medium", "hdd");
    default("storage_format", "V2");
    default("inverted_index_storage_format", "V3");
    if keys_type == KeysType::Unique {
        default("enable_unique_key_merge_on_write", "true");
        default("enable_mow_light_delete", "false");
    }
    default("light_schema_change", "true");
    default("disable_auto_compaction", "false");
    default("enable_single_replica_compaction", "false");
    default("group_commit_interval_ms", "10000");
    default("group_commit_data_bytes", "134217728");
    if changes.is_some() {
        let stem = if profile == Profile::V5_0Changelog { "changelog" } else { "binlog" };
        default(&format!("{stem}.need_historical_value"), "false");
        default(&format!("{stem}.ttl_seconds"), "86400");
        default(&format!("{stem}.max_bytes"), "9223372036854775807");
        if profile == Profile::V5_0Binlog {
            default("binlog.max_history_nums", "9223372036854775807");
        }
    }
    if let Some(number) = out.remove("replication_num") {
        out.insert("replication_allocation".to_owned(), format!("tag.location.default: {number}"));
    }
    Ok((out, changes))
}

fn changes(
    profile: Profile,
    written: &BTreeMap<String, String>,
    keys_type: KeysType,
    merge_on_write: bool,
    columns: &[Column],
) -> Result<Option<ChangeConfig>, SqlError> {
    let stem = if profile == Profile::V5_0Changelog { "changelog" } else { "binlog" };
    let flag = |suffix: &str| {
        let key = format!("{stem}.{suffix}");
        written.get(&key).map_or(Ok(false), |value| boolean(&key, value))
    };
    for suffix in ["ttl_seconds", "max_bytes", "max_history_nums"] {
        let key = format!("{stem}.{suffix}");
        if let Some(value) = written.get(&key)
            && value.parse::<i64>().is_err()
        {
            return Err(SqlError::detail(format!("Invalid value for property {key}: {value}")));
        }
    }
    let before_image = flag("need_historical_value")?;
    if !flag("enable")? {
        return Ok(None);
    }
    if stem == "binlog" {
        match written.get("binlog.format").map(String::as_str) {
            Some("ROW") if profile == Profile::V5_0Binlog => {}
            Some("ROW") => return Err(unknown("binlog.format", "ROW")),
            None | Some("STATEMENT_AND_SNAPSHOT") => {
                return Err(SqlError::not_served("binlog.format=STATEMENT_AND_SNAPSHOT"));
            }
            Some(other) => return Err(SqlError::detail(format!("Invalid binlog format value: {other}"))),
        }
    }
    let feature = if stem == "binlog" { "binlog<Row>" } else { "changelog" };
    if keys_type == KeysType::Unique && !merge_on_write {
        return Err(SqlError::detail(format!("Only duplicate and mow table model support {feature}")));
    }
    if keys_type == KeysType::Duplicate && before_image {
        return Err(SqlError::detail("Duplicate table model don't support record historical value"));
    }
    if let Some(column) = columns.iter().find(|c| c.ty == DorisType::Variant) {
        return Err(SqlError::detail(format!(
            "VARIANT column {} is not supported on a table with {feature}",
            column.name
        )));
    }
    Ok(Some(ChangeConfig { before_image, ttl_seconds: None }))
}
