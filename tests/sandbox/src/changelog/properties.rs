//! Properties of row changes in CREATE TABLE and ALTER TABLE.

use std::collections::BTreeMap;

use super::Names;
use crate::engine::Profile;
use crate::error::SqlError;
use crate::storage::{ChangeConfig, Column, KeysType};
use crate::types::DorisType;

/// `ttl_seconds` when it is not written.
const DEFAULT_TTL_SECONDS: i64 = 86_400;
/// `max_bytes` and `max_history_nums` when they are not written.
const UNLIMITED: &str = "9223372036854775807";
/// Suffixes that the newest build knows.
const CHANGELOG: [&str; 5] = ["enable", "need_historical_value", "ttl_seconds", "max_bytes", "max_history_nums"];
/// Suffixes of the cross-cluster binlog, which has the same stem as the row binlog.
const CROSS_CLUSTER: [&str; 4] = ["enable", "ttl_seconds", "max_bytes", "max_history_nums"];

/// What the properties depend on.
pub(crate) struct Facts<'a> {
    pub(crate) profile: Profile,
    /// `enable_feature_binlog` of the FE.
    pub(crate) feature: bool,
    pub(crate) keys_type: KeysType,
    pub(crate) merge_on_write: bool,
    pub(crate) columns: &'a [Column],
}

type Properties = BTreeMap<String, String>;

fn invalid(stem: &str, what: &str, value: &str) -> SqlError {
    SqlError::detail(format!("Invalid {stem} {what} value: {value}"))
}

fn unknown(key: &str, value: &str) -> SqlError {
    SqlError::detail(format!("Unknown properties: {{{key}={value}}}"))
}

/// Whether the key is one of row changes or of the cross-cluster binlog; refused when the build does not know it.
pub(crate) fn owns(profile: Profile, key: &str, value: &str) -> Result<bool, SqlError> {
    let Some((stem @ ("binlog" | "changelog"), suffix)) = key.split_once('.') else { return Ok(false) };
    let known = match (stem, profile) {
        ("changelog", Profile::V5_0Changelog) => CHANGELOG.contains(&suffix),
        ("changelog", _) => false,
        (_, Profile::V5_0Changelog) => {
            if matches!(suffix, "format" | "need_historical_value") {
                return Err(SqlError::detail(format!(
                    "property {key} is not supported any more, use changelog.enable (row changes) instead"
                )));
            }
            CROSS_CLUSTER.contains(&suffix)
        }
        (_, Profile::V5_0Binlog) => CHANGELOG.contains(&suffix) || suffix == "format",
        _ => CROSS_CLUSTER.contains(&suffix),
    };
    if known { Ok(true) } else { Err(unknown(key, value)) }
}

struct Reader<'a> {
    stem: &'static str,
    written: &'a Properties,
}

impl Reader<'_> {
    fn get(&self, suffix: &str) -> Option<&str> {
        self.written.get(&format!("{}.{suffix}", self.stem)).map(String::as_str)
    }

    fn flag(&self, suffix: &str) -> Result<Option<bool>, SqlError> {
        self.get(suffix)
            .map(|value| match value.to_ascii_lowercase().as_str() {
                "true" => Ok(true),
                "false" => Ok(false),
                _ => Err(invalid(self.stem, suffix, value)),
            })
            .transpose()
    }

    fn number(&self, suffix: &str) -> Result<Option<i64>, SqlError> {
        self.get(suffix).map(|value| value.parse().map_err(|_| invalid(self.stem, suffix, value))).transpose()
    }

    /// The lifetime as the build keeps it, and as it is printed.
    fn ttl(&self, profile: Profile) -> Result<Option<i64>, SqlError> {
        let ttl = self.number("ttl_seconds")?;
        if profile == Profile::V5_0Changelog && self.stem == "changelog" && ttl.is_some_and(|ttl| ttl <= 0) {
            return Err(SqlError::detail("changelog.ttl_seconds must be greater than 0"));
        }
        Ok(ttl)
    }
}

/// Checks the properties of CREATE TABLE. Returns how changes are recorded and what SHOW CREATE TABLE prints.
pub(crate) fn check(facts: &Facts<'_>, written: &Properties) -> Result<(Option<ChangeConfig>, Properties), SqlError> {
    let names = Names::of(facts.profile);
    let newest = facts.profile == Profile::V5_0Changelog;
    if facts.profile != Profile::V5_0Binlog {
        let cross = Reader { stem: "binlog", written };
        for suffix in ["ttl_seconds", "max_bytes", "max_history_nums"] {
            cross.number(suffix)?;
        }
        if cross.flag("enable")? == Some(true) {
            return Err(SqlError::not_served("binlog.enable for cross-cluster replication"));
        }
    }
    if !facts.profile.has_changes() {
        return Ok((None, Properties::new()));
    }
    let reader = Reader { stem: names.stem, written };
    let enable = reader.flag("enable")?.unwrap_or(false);
    let ttl = reader.ttl(facts.profile)?.unwrap_or(DEFAULT_TTL_SECONDS);
    reader.number("max_bytes")?;
    reader.number("max_history_nums")?;
    let before_image = reader.flag("need_historical_value")?.unwrap_or(false);
    let row = match reader.get("format").filter(|_| !newest) {
        None => newest,
        Some("ROW") => true,
        Some("STATEMENT_AND_SNAPSHOT") => false,
        Some(other) => return Err(invalid("binlog", "format", other)),
    };
    let shown = |enable: bool| {
        let mut shown = Properties::from([
            (names.property("enable"), enable.to_string()),
            (names.property("need_historical_value"), before_image.to_string()),
            (names.property("ttl_seconds"), ttl.to_string()),
        ]);
        for suffix in ["max_bytes", "max_history_nums"] {
            shown.insert(names.property(suffix), reader.get(suffix).unwrap_or(UNLIMITED).to_owned());
        }
        if !newest {
            let format = if row { "ROW" } else { "STATEMENT_AND_SNAPSHOT" };
            shown.insert(names.property("format"), format.to_owned());
        }
        shown
    };
    if !enable {
        // The older build prints the binlog of every table.
        let shown = if newest || !facts.feature { Properties::new() } else { shown(false) };
        return Ok((None, shown));
    }
    if !facts.feature {
        return Err(SqlError::detail("Binlog feature is not enabled"));
    }
    if !row {
        return Err(SqlError::not_served("binlog.format=STATEMENT_AND_SNAPSHOT"));
    }
    check_table(facts, names.feature, before_image)?;
    let ttl_seconds = newest.then_some(ttl);
    Ok((Some(ChangeConfig { before_image, ttl_seconds }), shown(true)))
}

/// Models and columns that have no row changes.
fn check_table(facts: &Facts<'_>, feature: &str, before_image: bool) -> Result<(), SqlError> {
    match facts.keys_type {
        KeysType::Duplicate if before_image => {
            return Err(SqlError::detail("Duplicate table model don't support record historical value"));
        }
        KeysType::Duplicate => {}
        KeysType::Unique if facts.merge_on_write => {}
        _ => {
            return Err(SqlError::detail(format!("Only duplicate and mow table model support {feature}")));
        }
    }
    if !facts.columns.iter().any(|column| column.key) {
        return Err(SqlError::detail("a table without key columns cannot record changes"));
    }
    for column in facts.columns {
        check_column(column, feature)?;
    }
    Ok(())
}

/// Columns that a table with row changes cannot have, at CREATE and at ADD COLUMN.
pub(crate) fn check_column(column: &Column, feature: &str) -> Result<(), SqlError> {
    if column.auto_increment {
        let name = &column.name;
        return Err(SqlError::detail(format!(
            "auto increment column {name} is not supported on a table with {feature}"
        )));
    }
    if column.ty == DorisType::Variant {
        let name = &column.name;
        return Err(SqlError::detail(format!("VARIANT column {name} is not supported on a table with {feature}")));
    }
    Ok(())
}

/// Checks ALTER TABLE … SET of a table that records changes as `current` says. Returns how it records them from now on and
/// the properties that change.
pub(crate) fn alter(
    profile: Profile,
    feature: bool,
    current: Option<ChangeConfig>,
    written: &Properties,
) -> Result<(Option<ChangeConfig>, Properties), SqlError> {
    let mut owned = Properties::new();
    for (key, value) in written {
        if owns(profile, key, value)? {
            owned.insert(key.clone(), value.clone());
        }
    }
    if owned.is_empty() {
        return Ok((current, owned));
    }
    if !feature {
        return Err(SqlError::detail("Binlog feature is not enabled"));
    }
    let names = Names::of(profile);
    let newest = profile == Profile::V5_0Changelog;
    let reader = Reader { stem: names.stem, written: &owned };
    match (current, reader.flag("enable")?) {
        (Some(_), Some(false)) if newest => return Err(SqlError::detail("can't disable changelog")),
        (Some(_), Some(false)) => return Err(SqlError::detail("can't disable binlog when format is [Row]")),
        (None, Some(true)) if newest => {
            return Err(SqlError::detail("not support change changelog.enable from false to true"));
        }
        _ => {}
    }
    if let Some(value) = reader.flag("need_historical_value")? {
        let old = current.is_some_and(|changes| changes.before_image);
        if value != old {
            let key = names.property("need_historical_value");
            return Err(SqlError::detail(format!("not support change {key} from {old} to {value}")));
        }
    }
    if let Some(format) = reader.get("format").filter(|_| !newest) {
        if !matches!(format, "ROW" | "STATEMENT_AND_SNAPSHOT") {
            return Err(invalid("binlog", "format", format));
        }
        let old = if current.is_some() { "ROW" } else { "STATEMENT_AND_SNAPSHOT" };
        if format != old {
            return Err(SqlError::detail(format!("not support change binlog format from {old} to {format}")));
        }
    }
    if owned.get("binlog.enable").is_some_and(|value| value.eq_ignore_ascii_case("true"))
        && (newest || current.is_none())
    {
        return Err(SqlError::not_served("binlog.enable for cross-cluster replication"));
    }
    reader.number("max_bytes")?;
    reader.number("max_history_nums")?;
    let mut changes = current;
    if let (Some(changes), Some(ttl)) = (&mut changes, reader.ttl(profile)?)
        && newest
    {
        changes.ttl_seconds = Some(ttl);
    }
    Ok((changes, owned))
}
