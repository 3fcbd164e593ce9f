//! Properties of CREATE TABLE: which are known, which change what the sandbox does, what the server prints.

use std::collections::BTreeMap;

use crate::changelog;
use crate::engine::Engine;
use crate::error::SqlError;
use crate::storage::{ChangeConfig, Column, KeysType, SequenceSpec, fits_sequence};
use crate::types::parse_type;

/// Properties that are kept and printed and do not change results.
const KEPT: &[&str] = &[
    "bloom_filter_columns",
    "colocate_with",
    "compaction_policy",
    "compression",
    "disable_auto_compaction",
    "dynamic_partition.enable",
    "enable_unique_key_skip_bitmap_column",
    "function_column.sequence_col",
    "function_column.sequence_type",
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
            // Loads into such a table are counted and dropped, see `load::discard`.
            "sandbox.discard" => {
                boolean(key, value)?;
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
            "dynamic_partition.enable" if boolean(key, value)? => {
                return Err(SqlError::not_served("property dynamic_partition.enable=true"));
            }
            "enable_unique_key_skip_bitmap_column" if boolean(key, value)? && !merge_on_write => {
                return Err(SqlError::detail(format!("{key} is only supported on unique tables with merge-on-write")));
            }
            key if KEPT.contains(&key) => {}
            key if changelog::owns_property(profile, key, value)? => {}
            key if key.starts_with("dynamic_partition.") => {
                return Err(SqlError::not_served(format!("property {key}")));
            }
            _ => return Err(unknown(key, value)),
        }
        out.insert(key.clone(), value.clone());
    }
    let feature = engine.config().enable_feature_binlog;
    let facts = changelog::ChangeFacts { profile, feature, keys_type, merge_on_write, columns };
    let (changes, shown) = changelog::check_properties(&facts, &written)?;
    out.extend(shown);
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
    if let Some(number) = out.remove("replication_num") {
        out.insert("replication_allocation".to_owned(), format!("tag.location.default: {number}"));
    }
    Ok((out, changes))
}

/// The sequence column that the written properties ask for.
pub(super) fn sequence(
    written: &BTreeMap<String, String>,
    keys_type: KeysType,
    columns: &[Column],
) -> Result<Option<SequenceSpec>, SqlError> {
    let named = written.get("function_column.sequence_col");
    let typed = written.get("function_column.sequence_type");
    if named.is_none() && typed.is_none() {
        return Ok(None);
    }
    if keys_type != KeysType::Unique {
        return Err(SqlError::detail("sequence column only support UNIQUE_KEYS"));
    }
    if named.is_some() && typed.is_some() {
        return Err(SqlError::detail("sequence_col and sequence_type cannot be set at the same time"));
    }
    let spec = if let Some(name) = named {
        let column = columns
            .iter()
            .find(|c| c.name.eq_ignore_ascii_case(name))
            .ok_or_else(|| SqlError::detail(format!("The specified sequence column[{name}] not exists")))?;
        SequenceSpec { ty: column.ty.clone(), column: Some(column.name.clone()) }
    } else {
        let ty = parse_type(typed.map_or("", String::as_str)).map_err(SqlError::detail)?;
        SequenceSpec { ty, column: None }
    };
    if !fits_sequence(&spec.ty) {
        return Err(SqlError::detail("Sequence type only support integer types and date types"));
    }
    Ok(Some(spec))
}
