//! ALTER TABLE: every change is in force when the statement answers.

use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion::sql::sqlparser::tokenizer::Token;

use super::column_def::{ColumnDef, check_aggregation, column_def};
use super::cursor::Cursor;
use super::ddl::{database_name, done, table_name};
use super::output::text_rows;
use super::partition;
use super::show::{Row, cell, time_text};
use crate::changelog::{Names, alter_properties, check_column};
use crate::engine::StatementResult;
use crate::error::SqlError;
use crate::session::Session;
use crate::storage::{Bounds, Column, KeysType, Redefinition, Table, check_name};
use crate::types::DorisType;

/// `ALTER TABLE t clause, ...`
pub(super) fn run(session: &Session, cursor: &mut Cursor<'_>) -> Result<StatementResult, SqlError> {
    cursor.expect("TABLE")?;
    let (db, name) = table_name(session, cursor)?;
    let engine = Arc::clone(&session.engine);
    let _order = engine.commit_lock.lock();
    let table = engine.table_handle(&db, &name)?;
    if cursor.eat_all(&["REPLACE", "WITH", "TABLE"]) {
        return replace_with(session, cursor, &db, &table);
    }
    if (cursor.is_word("ADD") || cursor.is_word("DROP") || cursor.is_word("RENAME"))
        && (cursor.is_word_at(1, "PARTITION") || cursor.is_word_at(1, "PARTITIONS"))
    {
        return change_partitions(session, cursor, &table);
    }
    let mut change = table.redefinition();
    loop {
        clause(session, cursor, &table, &mut change)?;
        if !cursor.eat_token(&Token::Comma) {
            break;
        }
    }
    cursor.expect_end()?;
    let changed = table.redefine(change, engine.catalog.next_ids(1), engine.config().clock.now_ms())?;
    engine.catalog.put_table(&db, &name, changed)?;
    Ok(done())
}

fn clause(
    session: &Session,
    cursor: &mut Cursor<'_>,
    table: &Table,
    change: &mut Redefinition,
) -> Result<(), SqlError> {
    if cursor.eat_all(&["ADD", "COLUMN"]) {
        return add_columns(session, cursor, change);
    }
    if cursor.eat_all(&["DROP", "COLUMN"]) {
        let name = cursor.ident()?;
        rollup_free(cursor)?;
        return drop_column(change, &name);
    }
    if cursor.eat_all(&["MODIFY", "COLUMN"]) {
        return modify_column(session, cursor, change);
    }
    if cursor.eat_all(&["MODIFY", "COMMENT"]) {
        change.spec.comment = cursor.string()?;
        return Ok(());
    }
    if cursor.eat_all(&["RENAME", "COLUMN"]) {
        return rename_column(session, cursor, change);
    }
    if cursor.is_word("RENAME") && !cursor.is_word_at(1, "ROLLUP") {
        cursor.at += 1;
        cursor.eat("TO");
        let name = cursor.ident()?;
        if name == table.name() {
            return Err(SqlError::detail(format!("Same table name {name}")));
        }
        check_name("table", &name)?;
        // The name is taken away from the catalog only when the new one is free.
        if session.engine.catalog.table(table.database(), &name).is_ok() {
            return Err(SqlError::coded(1050, format!("Table '{name}' already exists")));
        }
        change.spec.name = name;
        return Ok(());
    }
    if cursor.eat("SET") {
        let written = cursor.properties()?;
        return set_properties(session, change, written);
    }
    if cursor.eat_all(&["ENABLE", "FEATURE"]) {
        return enable_feature(cursor, change);
    }
    if cursor.is_word("ORDER") {
        not_with_changes(session, change)?;
    }
    Err(SqlError::not_served(format!("ALTER TABLE ... {}", cursor.rest())))
}

/// Rollups are not served, so nothing can be added to one.
fn rollup_free(cursor: &Cursor<'_>) -> Result<(), SqlError> {
    if cursor.is_word("TO") || cursor.is_word("FROM") || cursor.is_word("IN") {
        return Err(SqlError::not_served("ROLLUP"));
    }
    Ok(())
}

/// What tables that record changes cannot do.
fn not_with_changes(session: &Session, change: &Redefinition) -> Result<(), SqlError> {
    if change.spec.changes.is_none() {
        return Ok(());
    }
    let feature = Names::of(session.engine.profile()).feature;
    Err(SqlError::detail(format!("Not allowed to perform current operation on Table With {feature}")))
}

fn add_columns(session: &Session, cursor: &mut Cursor<'_>, change: &mut Redefinition) -> Result<(), SqlError> {
    if cursor.eat_token(&Token::LParen) {
        loop {
            let def = column_def(cursor)?;
            add_column(session, change, def, None)?;
            if !cursor.eat_token(&Token::Comma) {
                break;
            }
        }
        cursor.expect_token(&Token::RParen)?;
    } else {
        let def = column_def(cursor)?;
        let place = place(cursor, change)?;
        add_column(session, change, def, place)?;
    }
    rollup_free(cursor)?;
    if cursor.eat("PROPERTIES") {
        cursor.properties()?;
    }
    Ok(())
}

/// `FIRST` or `AFTER c`.
fn place(cursor: &mut Cursor<'_>, change: &Redefinition) -> Result<Option<usize>, SqlError> {
    if cursor.eat("FIRST") {
        return Ok(Some(0));
    }
    if !cursor.eat("AFTER") {
        return Ok(None);
    }
    let name = cursor.ident()?;
    match change.spec.position(&name) {
        Some(at) => Ok(Some(at + 1)),
        None => Err(SqlError::detail(format!("Column[{name}] does not found"))),
    }
}

fn add_column(
    session: &Session,
    change: &mut Redefinition,
    def: ColumnDef,
    place: Option<usize>,
) -> Result<(), SqlError> {
    let column = def.column;
    let name = &column.name;
    if change.spec.position(name).is_some() {
        return Err(SqlError::detail(format!("Can not add column which already exists in base table: {name}")));
    }
    if def.key {
        return Err(SqlError::not_served("ADD COLUMN of a key column"));
    }
    if column.auto_increment {
        return Err(SqlError::detail(format!("Can not add auto-increment column {name}")));
    }
    if !column.fillable() {
        return Err(SqlError::not_served("ADD COLUMN ... NOT NULL without DEFAULT"));
    }
    check_type(session, &column)?;
    check_aggregation(&column, change.spec.keys_type)?;
    if change.spec.changes.is_some() {
        check_column(&column, Names::of(session.engine.profile()).feature)?;
    }
    let keys = change.spec.columns.iter().filter(|c| c.key).count();
    let at = place.unwrap_or(change.spec.columns.len());
    if at < keys {
        return Err(SqlError::detail(format!(
            "Invalid column order. value should be after key. index[{}]",
            change.spec.name
        )));
    }
    change.add(at, column);
    Ok(())
}

fn check_type(session: &Session, column: &Column) -> Result<(), SqlError> {
    let decimal256 = session.variables.is_true("enable_decimal256");
    column.ty.check_column(session.engine.profile(), decimal256).map_err(SqlError::detail)
}

/// Refuses a column that places rows.
fn not_placing(change: &Redefinition, name: &str, what: &str) -> Result<(), SqlError> {
    let holds = |names: &[String]| names.iter().any(|known| known.eq_ignore_ascii_case(name));
    if change.spec.partitioning.as_ref().is_some_and(|p| holds(&p.columns)) {
        return Err(SqlError::detail(format!("Partition column[{name}] cannot be {what}.")));
    }
    if holds(&change.spec.hash_columns) {
        return Err(SqlError::detail(format!("Distribution column[{name}] cannot be {what}.")));
    }
    Ok(())
}

fn drop_column(change: &mut Redefinition, name: &str) -> Result<(), SqlError> {
    let Some(at) = change.spec.position(name) else {
        return Err(SqlError::detail(format!("Column does not exists: {name}")));
    };
    not_placing(change, name, "dropped")?;
    let table = &change.spec.name;
    if change.spec.columns[at].key {
        return Err(match change.spec.keys_type {
            KeysType::Unique => SqlError::detail(format!("Can not drop key column {name} in unique data model table")),
            _ => SqlError::not_served("DROP COLUMN of a key column"),
        });
    }
    let mapped = change.spec.sequence.as_ref().and_then(|s| s.column.as_deref());
    if mapped.is_some_and(|column| column.eq_ignore_ascii_case(name)) {
        return Err(SqlError::detail(format!(
            "Can not drop sequence mapping column[{name}] in Unique data model table[{table}]"
        )));
    }
    change.drop(at);
    Ok(())
}

fn rename_column(session: &Session, cursor: &mut Cursor<'_>, change: &mut Redefinition) -> Result<(), SqlError> {
    let name = cursor.ident()?;
    cursor.eat("TO");
    let new = cursor.ident()?;
    not_with_changes(session, change)?;
    let Some(at) = change.spec.position(&name) else {
        return Err(SqlError::detail(format!("Column[{name}] does not exists")));
    };
    if change.spec.position(&new).is_some_and(|known| known != at) {
        return Err(SqlError::detail(format!("Column name[{new}] is already used")));
    }
    if new.to_ascii_uppercase().starts_with("__DORIS_") {
        return Err(SqlError::coded(1166, format!("Incorrect column name '{new}'")));
    }
    let mut column = change.spec.columns[at].clone();
    column.name = new;
    change.replace(at, column);
    Ok(())
}

fn modify_column(session: &Session, cursor: &mut Cursor<'_>, change: &mut Redefinition) -> Result<(), SqlError> {
    if cursor.is_word_at(1, "COMMENT") {
        let name = cursor.ident()?;
        cursor.at += 1;
        let comment = cursor.string()?;
        let Some(at) = change.spec.position(&name) else {
            return Err(SqlError::detail(format!("Unknown column '{name}' in '{}'", change.spec.name)));
        };
        change.spec.columns[at].comment = comment;
        return Ok(());
    }
    let new = column_def(cursor)?.column;
    if cursor.is_word("FIRST") || cursor.is_word("AFTER") {
        return Err(SqlError::not_served("MODIFY COLUMN to another place"));
    }
    rollup_free(cursor)?;
    not_with_changes(session, change)?;
    let name = new.name.clone();
    let Some(at) = change.spec.position(&name) else {
        return Err(SqlError::detail(format!("Column[{name}] does not exists")));
    };
    not_placing(change, &name, "modified")?;
    check_type(session, &new)?;
    let old = change.spec.columns[at].clone();
    if old.nullable && !new.nullable {
        return Err(SqlError::detail(format!("Can not change from nullable to non-nullable, column={name}")));
    }
    if old.aggregation != new.aggregation {
        return Err(SqlError::detail(format!("Can not change aggregation type, column={name}")));
    }
    if old.default != new.default {
        return Err(SqlError::detail(format!("Can not change default value, column={name}")));
    }
    if old.ty != new.ty {
        widening(&old.ty, &new.ty)?;
        let longer = matches!((&old.ty, &new.ty), (DorisType::Varchar(_), DorisType::Varchar(_)));
        if old.key && !longer {
            return Err(SqlError::not_served("MODIFY COLUMN of the type of a key column"));
        }
    }
    let comment = if new.comment.is_empty() { old.comment.clone() } else { new.comment.clone() };
    change.replace(at, Column { name: old.name, key: old.key, auto_increment: old.auto_increment, comment, ..new });
    Ok(())
}

/// Whether every value of the old type is one of the new.
fn widening(old: &DorisType, new: &DorisType) -> Result<(), SqlError> {
    let rank = |ty: &DorisType| match ty {
        DorisType::TinyInt => Some(1),
        DorisType::SmallInt => Some(2),
        DorisType::Int => Some(3),
        DorisType::BigInt => Some(4),
        DorisType::LargeInt => Some(5),
        _ => None,
    };
    let shorter = || SqlError::detail(format!("Shorten type length is prohibited, srcType={old}, targetType={new}"));
    let wide = match (old, new) {
        (DorisType::Char(a) | DorisType::Varchar(a), DorisType::Char(b) | DorisType::Varchar(b)) => {
            if b < a {
                return Err(shorter());
            }
            !matches!((old, new), (DorisType::Varchar(_), DorisType::Char(_)))
        }
        (DorisType::Char(_) | DorisType::Varchar(_), DorisType::String) | (DorisType::Float, DorisType::Double) => true,
        (DorisType::Decimal { precision: a, scale: s }, DorisType::Decimal { precision: b, scale: t }) => {
            s == t && b >= a
        }
        _ => matches!((rank(old), rank(new)), (Some(a), Some(b)) if a < b),
    };
    if wide {
        return Ok(());
    }
    Err(SqlError::detail(format!("Can not change {} to {}", old.primitive_name(), new.primitive_name())))
}

fn set_properties(
    session: &Session,
    change: &mut Redefinition,
    written: BTreeMap<String, String>,
) -> Result<(), SqlError> {
    /// Properties that may change and change no result.
    const FREE: &[&str] = &[
        "compaction_policy",
        "disable_auto_compaction",
        "file_cache_ttl_seconds",
        "group_commit_data_bytes",
        "group_commit_interval_ms",
        "group_commit_mode",
        "in_memory",
        "is_being_synced",
        "light_schema_change",
        "min_load_replica_num",
        "storage_policy",
    ];
    let engine = &session.engine;
    let feature = engine.config().enable_feature_binlog;
    let (changes, owned) = alter_properties(engine.profile(), feature, change.spec.changes, &written)?;
    for (key, value) in &written {
        if owned.contains_key(key) || FREE.contains(&key.as_str()) {
            change.spec.properties.insert(key.clone(), value.clone());
        } else if change.spec.properties.contains_key(key) {
            return Err(SqlError::detail(format!("Property {key} can not be changed on table {}", change.spec.name)));
        } else {
            return Err(SqlError::detail(format!("Unknown table property: [{key}]")));
        }
    }
    change.spec.changes = changes;
    Ok(())
}

fn enable_feature(cursor: &mut Cursor<'_>, change: &mut Redefinition) -> Result<(), SqlError> {
    let feature = cursor.string()?;
    match feature.to_ascii_uppercase().as_str() {
        // Every unique table has it.
        "BATCH_DELETE" if change.spec.keys_type == KeysType::Unique => Ok(()),
        "BATCH_DELETE" => Err(SqlError::detail("Batch delete only supported in unique tables.")),
        "UPDATE_FLEXIBLE_COLUMNS" if change.spec.is_mow() => {
            let key = "enable_unique_key_skip_bitmap_column".to_owned();
            change.spec.properties.insert(key, "true".to_owned());
            Ok(())
        }
        "UPDATE_FLEXIBLE_COLUMNS" => Err(SqlError::detail(
            "Update flexible columns feature is only supported on unique table with merge-on-write",
        )),
        other => Err(SqlError::not_served(format!("ENABLE FEATURE \"{other}\""))),
    }
}

/// `ADD PARTITION[S]`, `DROP PARTITION` and `RENAME PARTITION`
fn change_partitions(session: &Session, cursor: &mut Cursor<'_>, table: &Table) -> Result<StatementResult, SqlError> {
    let engine = &session.engine;
    let spec = table.spec();
    let Some(partitioning) = &spec.partitioning else {
        return Err(SqlError::detail(format!("Table[{}] is not partitioned", spec.name)));
    };
    if cursor.eat("RENAME") {
        cursor.at += 1;
        let old = cursor.ident()?;
        let new = cursor.ident()?;
        cursor.expect_end()?;
        table.rename_partition(&old, &new)?;
        return Ok(done());
    }
    if cursor.eat("DROP") {
        cursor.at += 1;
        let if_exists = cursor.eat_all(&["IF", "EXISTS"]);
        let name = cursor.ident()?;
        cursor.eat("FORCE");
        cursor.expect_end()?;
        table.drop_partition(&name, if_exists)?;
        return Ok(done());
    }
    cursor.expect("ADD")?;
    let series = cursor.eat("PARTITIONS");
    if !series {
        cursor.expect("PARTITION")?;
    }
    let if_not_exists = cursor.is_word("IF");
    let item = if series { partition::item(cursor)? } else { partition::named(cursor)? };
    let mut buckets = spec.buckets;
    if cursor.eat_all(&["DISTRIBUTED", "BY"]) {
        if cursor.eat("HASH") {
            cursor.ident_list()?;
        } else {
            cursor.expect("RANDOM")?;
        }
        if cursor.eat("BUCKETS") && !cursor.eat("AUTO") {
            buckets = cursor.number()?.clamp(1, 768) as usize;
        }
    }
    if cursor.peek() == Some(&Token::LParen) {
        cursor.properties()?;
    }
    cursor.expect_end()?;
    let known: Vec<Bounds> = table.partitions().into_iter().map(|p| p.bounds).collect();
    for spec in partition::bind_item(item, partitioning, &known, buckets)? {
        let now = engine.config().clock.now_ms();
        table.add_partition(spec, if_not_exists, |n| engine.catalog.next_ids(n), now)?;
    }
    Ok(done())
}

/// `REPLACE WITH TABLE t2 [PROPERTIES("swap" = "true")]`
fn replace_with(
    session: &Session,
    cursor: &mut Cursor<'_>,
    db: &str,
    table: &Table,
) -> Result<StatementResult, SqlError> {
    let name = cursor.ident()?;
    let properties = if cursor.eat("PROPERTIES") { cursor.properties()? } else { BTreeMap::new() };
    cursor.expect_end()?;
    let swap = properties.get("swap").is_none_or(|value| !value.eq_ignore_ascii_case("false"));
    let engine = &session.engine;
    let other = engine.table_handle(db, &name)?;
    if other.id() == table.id() {
        return Err(SqlError::detail(format!("Same table name {name}")));
    }
    let now = engine.config().clock.now_ms();
    let named = |table: &Table, name: &str| {
        let mut change = table.redefinition();
        name.clone_into(&mut change.spec.name);
        table.redefine(change, engine.catalog.next_ids(1), now)
    };
    let second = named(table, &name)?;
    let first = named(&other, table.name())?;
    engine.catalog.replace_table(first, second, db, swap)?;
    Ok(done())
}

/// `SHOW ALTER TABLE COLUMN [FROM db] [WHERE c = v] [ORDER BY c [ASC|DESC]] [LIMIT n]`
pub(super) fn show(session: &Session, cursor: &mut Cursor<'_>) -> Result<StatementResult, SqlError> {
    cursor.expect("TABLE")?;
    if !cursor.eat("COLUMN") {
        return Err(SqlError::not_served(format!("SHOW ALTER TABLE {}", cursor.rest())));
    }
    let db = if cursor.eat("FROM") || cursor.eat("IN") {
        database_name(cursor)?
    } else {
        session.database.clone().ok_or_else(SqlError::no_database)?
    };
    let names = [
        "JobId",
        "TableName",
        "CreateTime",
        "FinishTime",
        "IndexName",
        "IndexId",
        "OriginIndexId",
        "SchemaVersion",
        "TransactionId",
        "State",
        "Msg",
        "Progress",
        "Timeout",
    ];
    let mut rows: Vec<Row> = Vec::new();
    for table in session.engine.catalog.tables(&db)? {
        for job in table.alter_jobs() {
            let at = time_text(session, job.at_ms);
            rows.push(vec![
                cell(job.id),
                cell(table.name()),
                cell(&at),
                cell(&at),
                cell(table.name()),
                cell(table.id()),
                cell(table.id()),
                cell(format!("{}:0", job.schema_version)),
                cell(-1),
                cell("FINISHED"),
                cell(""),
                cell("N/A"),
                cell(2_592_000),
            ]);
        }
    }
    let position = |name: &str| {
        names
            .iter()
            .position(|known| known.eq_ignore_ascii_case(name))
            .ok_or_else(|| SqlError::detail(format!("Column {name} is not supported in this statement")))
    };
    if cursor.eat("WHERE") {
        loop {
            let at = position(&cursor.ident()?)?;
            cursor.expect_token(&Token::Eq)?;
            let value = cursor.string()?;
            rows.retain(|row| row[at].as_deref().is_some_and(|cell| cell.eq_ignore_ascii_case(&value)));
            if !cursor.eat("AND") {
                break;
            }
        }
    }
    rows.sort_by_key(|row| row[0].as_deref().and_then(|id| id.parse::<u64>().ok()));
    if cursor.eat_all(&["ORDER", "BY"]) {
        let at = position(&cursor.ident()?)?;
        // Jobs are made in the order of their ids and times.
        rows.sort_by(|a, b| a[at].as_ref().map(|c| (c.len(), c)).cmp(&b[at].as_ref().map(|c| (c.len(), c))));
        if cursor.eat("DESC") {
            rows.reverse();
        } else {
            cursor.eat("ASC");
        }
    }
    if cursor.eat("LIMIT") {
        rows.truncate(cursor.number()? as usize);
    }
    cursor.expect_end()?;
    text_rows(&names, rows)
}
