//! Which columns of a row a load writes, and the properties that contradict each other about it.

use std::collections::BTreeMap;
use std::fmt;

use super::sink::SinkFormat;
use super::value::parse_bool;
use crate::error::{Error, Result};

/// What becomes of the columns that a load does not bring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum UpdateMode {
    /// They get their defaults: a row replaces the whole row of its key.
    #[default]
    Upsert,
    /// They keep their values; all rows bring the same columns (`partial_columns`, `UPDATE_FIXED_COLUMNS`).
    FixedColumns,
    /// They keep their values; each row brings columns of its own (`UPDATE_FLEXIBLE_COLUMNS`).
    FlexibleColumns,
}

impl fmt::Display for UpdateMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            UpdateMode::Upsert => "upsert",
            UpdateMode::FixedColumns => "fixed columns",
            UpdateMode::FlexibleColumns => "flexible columns (NULL is left out)",
        })
    }
}

impl UpdateMode {
    /// What the properties `unique_key_update_mode` and `partial_columns` say.
    ///
    /// # Errors
    /// [`Error::Config`] for an unknown mode, and when the two contradict each other.
    pub(super) fn of(properties: &BTreeMap<String, String>) -> Result<Self> {
        let partial = match properties.get("partial_columns") {
            None => None,
            Some(text) => Some(parse_bool(text).map_err(|reason| refuse("partial_columns", reason))?),
        };
        let mode = match properties.get("unique_key_update_mode") {
            None => None,
            Some(text) => Some(match text.trim().to_ascii_uppercase().as_str() {
                "UPSERT" => UpdateMode::Upsert,
                "UPDATE_FIXED_COLUMNS" => UpdateMode::FixedColumns,
                "UPDATE_FLEXIBLE_COLUMNS" => UpdateMode::FlexibleColumns,
                _ => {
                    let reason = format!("'{text}' is not UPSERT, UPDATE_FIXED_COLUMNS or UPDATE_FLEXIBLE_COLUMNS");
                    return Err(refuse("unique_key_update_mode", reason));
                }
            }),
        };
        match (partial, mode) {
            (None | Some(false), None) => Ok(UpdateMode::Upsert),
            (Some(true), None) => Ok(UpdateMode::FixedColumns),
            (None, Some(mode)) => Ok(mode),
            (Some(partial), Some(mode)) if partial == (mode == UpdateMode::FixedColumns) => Ok(mode),
            (Some(partial), Some(_)) => {
                let reason =
                    format!("'{partial}' contradicts 'sink.properties.unique_key_update_mode', give one of them");
                Err(refuse("partial_columns", reason))
            }
        }
    }

    /// Whether columns that are not brought keep their values.
    pub fn is_partial(self) -> bool {
        self != UpdateMode::Upsert
    }
}

fn refuse(property: &str, reason: impl Into<String>) -> Error {
    Error::config(format!("sink.properties.{property}"), reason)
}

/// Refuses properties that contradict each other, or another option, about what a row does to the table.
///
/// `changes` names the option by which rows tell changes, if any.
pub(super) fn check_together(
    properties: &BTreeMap<String, String>,
    changes: Option<&str>,
    format: Option<SinkFormat>,
) -> Result<()> {
    let mode = UpdateMode::of(properties)?;
    let merge = properties.get("merge_type").map(|text| text.trim().to_ascii_uppercase());
    match (merge.as_deref(), properties.contains_key("delete")) {
        (Some("MERGE"), false) => {
            return Err(refuse(
                "merge_type",
                "MERGE needs the condition of the rows that delete, 'sink.properties.delete'",
            ));
        }
        (None | Some("DELETE"), true) => {
            return Err(refuse("delete", "is for 'sink.properties.merge_type' = 'MERGE'"));
        }
        _ => {}
    }
    if let (Some(merge), Some(changes)) = (&merge, changes) {
        let reason = format!("'{merge}' says which rows delete, and so does '{changes}': give one of them");
        return Err(refuse("merge_type", reason));
    }
    if mode.is_partial() && merge.is_some() {
        return Err(refuse(
            "merge_type",
            "cannot be used with partial updates; delete by 'sink.change-kind-column' or a column __DORIS_DELETE_SIGN__",
        ));
    }
    if mode != UpdateMode::FlexibleColumns {
        return Ok(());
    }
    for property in ["columns", "where", "function_column.sequence_col"] {
        if properties.contains_key(property) {
            return Err(refuse(property, "cannot be used with UPDATE_FLEXIBLE_COLUMNS, remove one of them"));
        }
    }
    match format {
        None | Some(SinkFormat::Json) => Ok(()),
        Some(format) => {
            let reason =
                format!("{} cannot leave columns out row by row: UPDATE_FLEXIBLE_COLUMNS needs json", format.header());
            Err(refuse("format", reason))
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    fn map(properties: &[(&str, &str)]) -> BTreeMap<String, String> {
        properties.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect()
    }

    #[test]
    fn either_property_tells_the_mode() {
        for (properties, expected) in [
            (&[][..], Some(UpdateMode::Upsert)),
            (&[("partial_columns", "false")], Some(UpdateMode::Upsert)),
            (&[("partial_columns", "TRUE")], Some(UpdateMode::FixedColumns)),
            (&[("unique_key_update_mode", "upsert")], Some(UpdateMode::Upsert)),
            (&[("unique_key_update_mode", "update_fixed_columns")], Some(UpdateMode::FixedColumns)),
            (&[("unique_key_update_mode", "UPDATE_FLEXIBLE_COLUMNS")], Some(UpdateMode::FlexibleColumns)),
            (
                &[("partial_columns", "true"), ("unique_key_update_mode", "UPDATE_FIXED_COLUMNS")],
                Some(UpdateMode::FixedColumns),
            ),
            (&[("partial_columns", "true"), ("unique_key_update_mode", "UPSERT")], None),
            (&[("partial_columns", "true"), ("unique_key_update_mode", "UPDATE_FLEXIBLE_COLUMNS")], None),
            (&[("partial_columns", "false"), ("unique_key_update_mode", "UPDATE_FIXED_COLUMNS")], None),
            (&[("unique_key_update_mode", "SOME")], None),
        ] {
            assert_eq!(UpdateMode::of(&map(properties)).ok(), expected, "{properties:?}");
        }
    }

    #[test]
    fn contradictions_are_refused_by_name() {
        const FIXED: (&str, &str) = ("partial_columns", "true");
        const FLEXIBLE: (&str, &str) = ("unique_key_update_mode", "UPDATE_FLEXIBLE_COLUMNS");
        type Case<'a> = (&'a [(&'a str, &'a str)], Option<&'a str>, Option<SinkFormat>, Option<&'a str>);
        let cases: [Case<'_>; 15] = [
            (&[("merge_type", "delete")], None, None, None),
            (&[("merge_type", "MERGE"), ("delete", "a = 1")], None, None, None),
            (&[("merge_type", "MERGE")], None, None, Some("merge_type")),
            (&[("delete", "a = 1")], None, None, Some("delete")),
            (&[("merge_type", "DELETE"), ("delete", "a = 1")], None, None, Some("delete")),
            (&[("merge_type", "DELETE")], Some("sink.change-kind-column"), None, Some("merge_type")),
            (&[FIXED, ("merge_type", "DELETE")], None, None, Some("merge_type")),
            (&[FIXED, ("columns", "a,b"), ("where", "a > 1")], None, Some(SinkFormat::Csv), None),
            (&[FIXED], Some("sink.change-kind-column"), Some(SinkFormat::Arrow), None),
            (&[FLEXIBLE], Some("sink.change-kind-column"), Some(SinkFormat::Json), None),
            (&[FLEXIBLE], None, Some(SinkFormat::Csv), Some("format")),
            (&[FLEXIBLE], None, Some(SinkFormat::Arrow), Some("format")),
            (&[FLEXIBLE, ("columns", "a,b")], None, None, Some("columns")),
            (&[FLEXIBLE, ("where", "a > 1")], None, None, Some("where")),
            (&[FLEXIBLE, ("function_column.sequence_col", "a")], None, None, Some("function_column.sequence_col")),
        ];
        for (properties, changes, format, refused) in cases {
            match (check_together(&map(properties), changes, format), refused) {
                (Ok(()), None) => {}
                (Err(Error::Config { option, .. }), Some(name)) => {
                    assert_eq!(option, format!("sink.properties.{name}"), "{properties:?}");
                }
                (result, _) => panic!("{properties:?}: {result:?}"),
            }
        }
    }
}
