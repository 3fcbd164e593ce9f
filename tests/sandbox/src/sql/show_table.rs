//! SHOW and DESC statements about tables.

use std::sync::Arc;

use datafusion::sql::sqlparser::tokenizer::Token;

use super::cursor::Cursor;
use super::ddl::{database_name, table_name};
use super::output::text_rows;
use super::show::{Filter, Row, cell, time_text};
use crate::engine::{Profile, StatementResult};
use crate::error::SqlError;
use crate::session::Session;
use crate::storage::{
    COMMIT_TSO_COL, Column, DELETE_SIGN, DefaultValue, KeysType, PartitionKind, ROW_LSN_COL, SEQUENCE_COL, Table,
    VERSION_COL,
};
use crate::types::DorisType;

fn from_database(session: &Session, cursor: &mut Cursor<'_>) -> Result<String, SqlError> {
    if cursor.eat("FROM") || cursor.eat("IN") {
        return database_name(cursor);
    }
    session.database.clone().ok_or_else(SqlError::no_database)
}

pub(super) fn tables(session: &Session, cursor: &mut Cursor<'_>, full: bool) -> Result<StatementResult, SqlError> {
    let db = from_database(session, cursor)?;
    let filter = Filter::read(cursor)?;
    let mut rows: Vec<Row> = if db.eq_ignore_ascii_case("information_schema") {
        super::information::names(session).iter().map(|name| vec![cell(name), cell("SYSTEM VIEW"), cell("")]).collect()
    } else {
        let tables = session.engine.catalog.tables(&db)?;
        let mut rows: Vec<Row> =
            tables.iter().map(|t| vec![cell(t.name()), cell("BASE TABLE"), cell("NONE")]).collect();
        let views = session.engine.catalog.views(&db);
        rows.extend(views.iter().map(|v| vec![cell(&v.name), cell("VIEW"), cell("NONE")]));
        rows.retain(|row| super::privileges::is_visible(session, &db, row[0].as_deref().unwrap_or_default()));
        rows.sort();
        rows
    };
    let first = format!("Tables_in_{db}");
    let names = [first.as_str(), "Table_type", "Storage_format"];
    filter.apply(&names, &mut rows, 0)?;
    if full {
        return text_rows(&names, rows);
    }
    rows.iter_mut().for_each(|row| row.truncate(1));
    text_rows(&names[..1], rows)
}

/// A table that `FROM t [FROM db]` names.
fn from_table(session: &Session, cursor: &mut Cursor<'_>) -> Result<(String, Arc<Table>), SqlError> {
    if !cursor.eat("FROM") {
        cursor.expect("IN")?;
    }
    let (mut db, name) = if cursor.peek_at(1) == Some(&Token::Period) || session.database.is_some() {
        table_name(session, cursor)?
    } else {
        (String::new(), cursor.ident()?)
    };
    if cursor.eat("FROM") || cursor.eat("IN") {
        db = database_name(cursor)?;
    }
    if db.is_empty() {
        return Err(SqlError::no_database());
    }
    let table = session.engine.table_handle(&db, &name)?;
    Ok((db, table))
}

/// One line of DESC: hidden columns only when they are shown.
pub(super) fn described(session: &Session, table: &Table) -> Vec<(Column, String)> {
    let mut out: Vec<(Column, String)> =
        table.columns().iter().map(|c| (c.clone(), c.extra(table.keys_type()))).collect();
    if session.variables.is_true("show_hidden_columns") {
        let hidden = |name: &str, ty: DorisType| {
            let mut column = Column::new(name, ty);
            column.nullable = false;
            column.default = DefaultValue::Text("0".to_owned());
            (column, "NONE".to_owned())
        };
        if table.keys_type() == KeysType::Unique {
            out.push(hidden(DELETE_SIGN, DorisType::TinyInt));
            out.push(hidden(VERSION_COL, DorisType::BigInt));
        }
        if let Some(ty) = table.sequence_type() {
            out.push((Column::new(SEQUENCE_COL, ty.clone()), "NONE".to_owned()));
        }
        if table.spec().changes.is_some() {
            out.push(hidden(COMMIT_TSO_COL, DorisType::BigInt));
            let row_lsn = session.engine.profile() == Profile::V5_0Changelog;
            if row_lsn && table.keys_type() == KeysType::Duplicate {
                out.push(hidden(ROW_LSN_COL, DorisType::BigInt));
            }
        }
    }
    out
}

fn default_text(column: &Column) -> Option<String> {
    column.default.text().map(str::to_owned)
}

pub(super) fn describe(session: &Session, cursor: &mut Cursor<'_>) -> Result<StatementResult, SqlError> {
    let (db, name) = table_name(session, cursor)?;
    cursor.eat("ALL");
    cursor.expect_end()?;
    let table = super::streams::table_or_base(session, &db, &name)?;
    let rows = described(session, &table)
        .into_iter()
        .map(|(c, extra)| {
            vec![
                cell(&c.name),
                cell(c.ty.desc_name()),
                cell(if c.nullable { "Yes" } else { "No" }),
                cell(c.key),
                default_text(&c),
                cell(extra),
            ]
        })
        .collect();
    text_rows(&["Field", "Type", "Null", "Key", "Default", "Extra"], rows)
}

pub(super) fn columns(session: &Session, cursor: &mut Cursor<'_>, full: bool) -> Result<StatementResult, SqlError> {
    let (_, table) = from_table(session, cursor)?;
    let filter = Filter::read(cursor)?;
    let described = described(session, &table);
    let yes = |c: &Column| if c.nullable { "YES" } else { "NO" };
    let key = |c: &Column| if c.key { "YES" } else { "" };
    let (names, mut rows): (Vec<&str>, Vec<Row>) = if full {
        let row = |(c, _): &(Column, String)| {
            vec![
                cell(&c.name),
                cell(c.ty.desc_name()),
                None,
                cell(yes(c)),
                cell(key(c)),
                default_text(c),
                cell(""),
                cell(""),
                cell(&c.comment),
            ]
        };
        (
            vec!["Field", "Type", "Collation", "Null", "Key", "Default", "Extra", "Privileges", "Comment"],
            described.iter().map(row).collect(),
        )
    } else {
        let row = |(c, _): &(Column, String)| {
            vec![cell(&c.name), cell(c.ty.desc_name()), cell(yes(c)), cell(key(c)), default_text(c), cell("")]
        };
        (vec!["Field", "Type", "Null", "Key", "Default", "Extra"], described.iter().map(row).collect())
    };
    filter.apply(&names, &mut rows, 0)?;
    text_rows(&names, rows)
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"")
}

/// The statement that creates a table.
pub(super) fn create_text(table: &Table) -> String {
    let spec = table.spec();
    let quote = |name: &str| format!("`{}`", name.replace('`', "``"));
    let list = |names: Vec<&str>| names.iter().map(|name| quote(name)).collect::<Vec<_>>().join(", ");
    let lines: Vec<String> = spec
        .columns
        .iter()
        .map(|c| {
            let mut line = format!("  {} {}", quote(&c.name), type_text(&c.ty));
            if let Some(how) = c.aggregation {
                line.push_str(&format!(" {}", how.name()));
            }
            line.push_str(if c.nullable { " NULL" } else { " NOT NULL" });
            if c.auto_increment {
                line.push_str(&format!(" AUTO_INCREMENT({})", spec.auto_increment_start));
            }
            match &c.default {
                DefaultValue::Text(text) => line.push_str(&format!(" DEFAULT \"{}\"", escaped(text))),
                DefaultValue::CurrentTimestamp(0) => line.push_str(" DEFAULT CURRENT_TIMESTAMP"),
                DefaultValue::CurrentTimestamp(p) => line.push_str(&format!(" DEFAULT CURRENT_TIMESTAMP({p})")),
                DefaultValue::Empty if c.ty == DorisType::Hll => line.push_str(" DEFAULT HLL_EMPTY"),
                DefaultValue::Empty => line.push_str(" DEFAULT BITMAP_EMPTY"),
                DefaultValue::CurrentDate => line.push_str(" DEFAULT CURRENT_DATE"),
                DefaultValue::Null => line.push_str(" DEFAULT NULL"),
                DefaultValue::None => {}
            }
            if !c.comment.is_empty() {
                line.push_str(&format!(" COMMENT \"{}\"", escaped(&c.comment)));
            }
            line
        })
        .collect();
    let keys = list(spec.columns.iter().filter(|c| c.key).map(|c| c.name.as_str()).collect());
    let mut out = format!("CREATE TABLE {} (\n{}\n) ENGINE=OLAP\n", quote(&spec.name), lines.join(",\n"));
    out.push_str(&format!("{}({keys})\n", spec.keys_type.ddl_name()));
    if !spec.comment.is_empty() {
        out.push_str(&format!("COMMENT '{}'\n", spec.comment.replace('\'', "''")));
    }
    if let Some(partitioning) = &spec.partitioning {
        let kind = if partitioning.kind == PartitionKind::Range { "RANGE" } else { "LIST" };
        let columns = list(partitioning.columns.iter().map(String::as_str).collect());
        let parts: Vec<String> =
            table.partitions().iter().map(|p| format!("PARTITION {} {}", p.name, p.bounds.ddl())).collect();
        out.push_str(&format!("PARTITION BY {kind}({columns})\n({})\n", parts.join(",\n")));
    }
    let buckets = if spec.auto_buckets { "AUTO".to_owned() } else { spec.buckets.to_string() };
    if spec.hash_columns.is_empty() {
        out.push_str(&format!("DISTRIBUTED BY RANDOM BUCKETS {buckets}\n"));
    } else {
        let columns = list(spec.hash_columns.iter().map(String::as_str).collect());
        out.push_str(&format!("DISTRIBUTED BY HASH({columns}) BUCKETS {buckets}\n"));
    }
    let properties: Vec<String> =
        spec.properties.iter().map(|(key, value)| format!("\"{}\" = \"{}\"", escaped(key), escaped(value))).collect();
    out.push_str(&format!("PROPERTIES (\n{}\n);", properties.join(",\n")));
    out
}

/// SHOW CREATE TABLE prints STRING as `text`.
fn type_text(ty: &DorisType) -> String {
    ty.desc_name()
}

pub(super) fn create(session: &Session, cursor: &mut Cursor<'_>) -> Result<StatementResult, SqlError> {
    if cursor.eat("DATABASE") || cursor.eat("SCHEMA") {
        let db = database_name(cursor)?;
        cursor.expect_end()?;
        session.engine.catalog.database_id(&db)?;
        return text_rows(
            &["Database", "Create Database"],
            vec![vec![cell(&db), cell(format!("CREATE DATABASE `{db}`"))]],
        );
    }
    cursor.expect("TABLE")?;
    let (db, name) = table_name(session, cursor)?;
    cursor.expect_end()?;
    let table = session.engine.table_handle(&db, &name)?;
    text_rows(&["Table", "Create Table"], vec![vec![cell(&name), cell(create_text(&table))]])
}

pub(super) fn status(session: &Session, cursor: &mut Cursor<'_>) -> Result<StatementResult, SqlError> {
    let db = from_database(session, cursor)?;
    let filter = Filter::read(cursor)?;
    let names = [
        "Name",
        "Engine",
        "Version",
        "Row_format",
        "Rows",
        "Avg_row_length",
        "Data_length",
        "Max_data_length",
        "Index_length",
        "Data_free",
        "Auto_increment",
        "Create_time",
        "Update_time",
        "Check_time",
        "Collation",
        "Checksum",
        "Create_options",
        "Comment",
    ];
    let mut rows: Vec<Row> = Vec::new();
    for table in session.engine.catalog.tables(&db)? {
        let (count, bytes) = table.physical_size();
        rows.push(vec![
            cell(table.name()),
            cell("Doris"),
            None,
            None,
            cell(count),
            cell(bytes.checked_div(count).unwrap_or(0)),
            cell(bytes),
            None,
            None,
            None,
            None,
            cell(time_text(session, table.spec().created_ms)),
            cell(time_text(session, table.version().1)),
            None,
            cell("utf-8"),
            None,
            None,
            cell(&table.spec().comment),
        ]);
    }
    for view in session.engine.catalog.views(&db) {
        let mut row = vec![cell(&view.name), cell("View")];
        row.resize(11, None);
        row.extend([cell(time_text(session, view.created_ms)), None, None, cell("utf-8"), None, None]);
        row.push(cell(&view.comment));
        rows.push(row);
    }
    rows.retain(|row| super::privileges::is_visible(session, &db, row[0].as_deref().unwrap_or_default()));
    filter.apply(&names, &mut rows, 0)?;
    text_rows(&names, rows)
}

pub(super) fn partitions(session: &Session, cursor: &mut Cursor<'_>) -> Result<StatementResult, SqlError> {
    let (_, table) = from_table(session, cursor)?;
    let filter = Filter::read(cursor)?;
    let names = [
        "PartitionId",
        "PartitionName",
        "VisibleVersion",
        "VisibleVersionTime",
        "State",
        "PartitionKey",
        "Range",
        "DistributionKey",
        "Buckets",
        "ReplicationNum",
        "StorageMedium",
        "CooldownTime",
        "RemoteStoragePolicy",
        "LastConsistencyCheckTime",
        "DataSize",
        "IsInMemory",
        "ReplicaAllocation",
        "IsMutable",
        "SyncWithBaseTables",
        "UnsyncTables",
        "CommittedVersion",
        "RowCount",
    ];
    let spec = table.spec();
    let distribution = if spec.hash_columns.is_empty() { "RANDOM".to_owned() } else { spec.hash_columns.join(", ") };
    let key = spec.partitioning.as_ref().map(|p| p.columns.join(", ")).unwrap_or_default();
    let mut rows: Vec<Row> = table
        .partitions()
        .into_iter()
        .map(|p| {
            vec![
                cell(p.id),
                cell(p.name),
                cell(p.version),
                cell(time_text(session, p.version_time_ms)),
                cell("NORMAL"),
                cell(&key),
                cell(p.bounds.shown(spec.partitioning.as_ref())),
                cell(&distribution),
                cell(p.buckets),
                cell(1),
                cell("HDD"),
                cell("9999-12-31 23:59:59"),
                cell(""),
                None,
                cell(format!("{} B", p.bytes)),
                cell(false),
                cell("tag.location.default: 1"),
                cell(true),
                cell(true),
                None,
                cell(p.version),
                cell(p.rows),
            ]
        })
        .collect();
    filter.apply(&names, &mut rows, 1)?;
    text_rows(&names, rows)
}

pub(super) fn tablets(session: &Session, cursor: &mut Cursor<'_>) -> Result<StatementResult, SqlError> {
    let (_, table) = from_table(session, cursor)?;
    let partitions = super::partition::names(cursor)?;
    if let Some(partitions) = &partitions {
        table.partition_ids(partitions)?;
    }
    cursor.expect_end()?;
    let names = [
        "TabletId",
        "ReplicaId",
        "BackendId",
        "SchemaHash",
        "Version",
        "LstSuccessVersion",
        "LstFailedVersion",
        "LstFailedTime",
        "LocalDataSize",
        "RemoteDataSize",
        "RowCount",
        "State",
        "LstConsistencyCheckTime",
        "CheckVersion",
        "VersionCount",
        "QueryHits",
        "PathHash",
        "Path",
        "MetaUrl",
        "CompactionStatus",
    ];
    let backends = session.engine.topology().backends.len().max(1);
    let rows = table
        .tablets()
        .into_iter()
        .filter(|t| partitions.as_ref().is_none_or(|names| names.iter().any(|p| p.eq_ignore_ascii_case(&t.partition))))
        .map(|t| {
            vec![
                cell(t.id),
                cell(t.id + 1),
                cell(10_001 + t.backend % backends),
                cell(0),
                cell(t.version),
                cell(t.version),
                cell(-1),
                None,
                cell(0),
                cell(0),
                cell(t.rows),
                cell("NORMAL"),
                None,
                cell(-1),
                cell(t.version),
                cell(0),
                cell(0),
                cell(""),
                cell(""),
                cell(""),
            ]
        })
        .collect();
    text_rows(&names, rows)
}

/// Doris prints no rows for tables without secondary indexes.
pub(super) fn indexes(session: &Session, cursor: &mut Cursor<'_>) -> Result<StatementResult, SqlError> {
    from_table(session, cursor)?;
    cursor.expect_end()?;
    text_rows(
        &[
            "Table",
            "Non_unique",
            "Key_name",
            "Seq_in_index",
            "Column_name",
            "Collation",
            "Cardinality",
            "Sub_part",
            "Packed",
            "Null",
            "Index_type",
            "Comment",
            "Properties",
        ],
        vec![],
    )
}
