//! The change kind column of a table, and whether the table can have one.

use arrow::datatypes::{Field, SchemaRef};

use super::schema::KindColumn;
use crate::error::{Error, Result};
use crate::options::{DorisOptions, ScanMode};
use crate::protocol::DELETE_SIGN;
use crate::sink::{check_sign_column, is_delete_sign};
use crate::sql::IncrementType;
use crate::types::{KeyModel, TableSchema};

/// Which change kind column the table has, if any.
pub(super) fn kind_column(
    options: &DorisOptions,
    doris: &TableSchema,
    declared: Option<&SchemaRef>,
) -> Result<KindColumn> {
    let sink = options.sink.change_kind_column.as_ref();
    if let Some(sign) =
        declared.and_then(|declared| declared.fields().iter().find(|field| is_delete_sign(field.name())))
    {
        return sign_column(options, doris, sign);
    }
    let kind = match options.read.mode {
        ScanMode::Snapshot if options.read.bounded.is_some() => {
            return Err(Error::config(
                "source.scan.bounded-mode",
                "is for changelogs; a snapshot ends by itself (set 'source.scan.mode' to initial, latest or from-timestamp)",
            ));
        }
        ScanMode::Snapshot => sink.map_or(KindColumn::None, |name| KindColumn::Sink(name.clone())),
        _ if sink.is_some() => {
            return Err(Error::config(
                "sink.change-kind-column",
                "is for targets; declare the changelog to read and the table to write as two external tables",
            ));
        }
        ScanMode::Initial | ScanMode::Latest | ScanMode::FromTimestamp(_) => {
            if !matches!(doris.model, Some(KeyModel::Unique | KeyModel::Duplicate)) {
                return Err(Error::schema(
                    &doris.table,
                    "has no changelog: only DUPLICATE and UNIQUE (merge-on-write) tables can record one",
                ));
            }
            if !doris.records_changes() {
                return Err(Error::schema(
                    &doris.table,
                    "has no changelog: create it with 'changelog.enable' = 'true' (before the rename: 'binlog.enable' = \
                     'true' and 'binlog.format' = 'ROW')",
                ));
            }
            check_increment_type(options.read.increment_type, doris)?;
            if doris.model == Some(KeyModel::Unique) && doris.deletes_silently() {
                tracing::warn!(
                    table = %doris.table,
                    "a DELETE on this table leaves no change behind: set 'enable_mow_light_delete' = 'false'"
                );
            }
            for column in &options.read.metadata {
                let name = column.column_name();
                if doris.column(name).is_some() || options.read.change_kind_column == name {
                    return Err(Error::config(
                        "source.changelog.metadata-columns",
                        format!("table {} has a column '{name}' itself", doris.table),
                    ));
                }
            }
            KindColumn::Source(options.read.change_kind_column.clone(), options.read.metadata.clone())
        }
    };
    if let KindColumn::Sink(name) | KindColumn::Source(name, _) = &kind
        && doris.column(name).is_some()
    {
        let option = match kind {
            KindColumn::Sink(_) => "sink.change-kind-column",
            _ => "source.changelog.change-kind-column",
        };
        return Err(Error::config(
            option,
            format!("table {} has a column '{name}' itself, choose another", doris.table),
        ));
    }
    Ok(kind)
}

/// The delete sign of a target, when rows may have it.
fn sign_column(options: &DorisOptions, doris: &TableSchema, sign: &Field) -> Result<KindColumn> {
    if options.read.mode.is_changelog() {
        let reason = format!("column {DELETE_SIGN} is for targets; a changelog tells deletes by its change kind");
        return Err(Error::schema(&doris.table, reason));
    }
    if options.sink.change_kind_column.is_some() {
        let reason = format!("and the column {DELETE_SIGN} both tell deletes, give one of them");
        return Err(Error::config("sink.change-kind-column", reason));
    }
    check_sign_column(doris, sign)?;
    Ok(KindColumn::Sign(sign.clone()))
}

/// Refuses an increment type that the table cannot serve, before the server does.
fn check_increment_type(increment_type: IncrementType, doris: &TableSchema) -> Result<()> {
    if doris.merges_on_read() {
        return Err(Error::schema(
            &doris.table,
            "has no changelog: a UNIQUE KEY table records one only with 'enable_unique_key_merge_on_write' = 'true'",
        ));
    }
    if increment_type != IncrementType::MinDelta {
        return Ok(());
    }
    if doris.model != Some(KeyModel::Unique) {
        return Err(Error::schema(
            &doris.table,
            "gives no net changes: min_delta needs a UNIQUE KEY table; set 'source.changelog.increment-type' to detail",
        ));
    }
    if !doris.keeps_old_values() {
        return Err(Error::schema(
            &doris.table,
            "gives no net changes: min_delta needs 'changelog.need_historical_value' = 'true' (before the rename: \
             'binlog.need_historical_value') at its creation; set 'source.changelog.increment-type' to detail",
        ));
    }
    Ok(())
}
