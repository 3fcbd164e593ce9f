//! CREATE, ALTER, SHOW and DROP STREAM.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::cursor::Cursor;
use super::ddl::{database_name, done, table_name};
use super::output::text_rows;
use super::show::{Filter, Row, cell};
use crate::changelog::{BaseTable, IncrType, Names, Offset, TableStream};
use crate::engine::StatementResult;
use crate::error::SqlError;
use crate::session::Session;
use crate::storage::{KeysType, Table};

/// Streams are refused by builds without row changes and by an FE that has them switched off.
fn check_enabled(session: &Session) -> Result<(), SqlError> {
    let engine = &session.engine;
    if !engine.profile().has_changes() {
        return Err(SqlError::not_served(format!("STREAM statements in profile {}", engine.profile())));
    }
    if !engine.config().enable_table_stream {
        return Err(SqlError::detail(
            "Table Stream is experimental. Please set enable_table_stream=true to enable it.",
        ));
    }
    Ok(())
}

pub(super) fn kind_name(kind: IncrType) -> &'static str {
    match kind {
        IncrType::Detail => "DETAIL",
        IncrType::AppendOnly => "APPEND_ONLY",
        IncrType::MinDelta => "MIN_DELTA",
    }
}

/// Runs a statement about streams; `None` when it is about something else. The cursor is behind the first word.
pub(super) fn statement(
    session: &Session,
    first: &str,
    cursor: &mut Cursor<'_>,
) -> Option<Result<StatementResult, SqlError>> {
    match first.to_ascii_uppercase().as_str() {
        "CREATE" if cursor.is_word("STREAM") || (cursor.is_word("OR") && cursor.is_word_at(2, "STREAM")) => {
            Some(create(session, cursor))
        }
        "ALTER" if cursor.eat("STREAM") => Some(alter(session, cursor)),
        "DROP" if cursor.eat("STREAM") => Some(drop(session, cursor)),
        "DROP" if cursor.is_word("TABLE") => not_a_table(session, cursor).map(Err),
        "SHOW" if cursor.eat("STREAMS") => Some(show(session, cursor)),
        "SHOW" if cursor.eat_all(&["CREATE", "STREAM"]) => Some(show_create(session, cursor)),
        _ => None,
    }
}

/// The refusal of DROP TABLE for a stream.
fn not_a_table(session: &Session, cursor: &Cursor<'_>) -> Option<SqlError> {
    let mut ahead = Cursor { text: cursor.text, tokens: cursor.tokens, at: cursor.at + 1 };
    ahead.eat_all(&["IF", "EXISTS"]);
    let (db, name) = table_name(session, &mut ahead).ok()?;
    lookup(session, &db, &name)?;
    Some(SqlError::coded(1347, format!("'{db}.{name}' is not TABLE. Use 'DROP STREAM {db}.{name}'")))
}

/// The stream of a name.
pub(super) fn lookup(session: &Session, db: &str, name: &str) -> Option<Arc<TableStream>> {
    let stream = session.engine.streams.get(db, name)?;
    if session.engine.catalog.database_id(db).is_ok_and(|id| id == stream.db_id) {
        return Some(stream);
    }
    // Its database was dropped, and it with it.
    session.engine.streams.remove(db, name);
    None
}

fn find(session: &Session, db: &str, name: &str) -> Result<Arc<TableStream>, SqlError> {
    lookup(session, db, name).ok_or_else(|| SqlError::unknown_table(db, name))
}

/// A table, or the base table of a stream: they have the same columns.
pub(super) fn table_or_base(session: &Session, db: &str, name: &str) -> Result<Arc<Table>, SqlError> {
    match lookup(session, db, name) {
        Some(stream) => base_table(session, &stream),
        None => session.engine.table_handle(db, name),
    }
}

/// All streams, of one database or of all.
fn list(session: &Session, db: Option<&str>) -> Vec<Arc<TableStream>> {
    let streams = session.engine.streams.list(db).into_iter();
    streams.filter_map(|stream| lookup(session, &stream.db, &stream.name)).collect()
}

/// The base table of a stream, wherever it is named now.
pub(super) fn base_table(session: &Session, stream: &TableStream) -> Result<Arc<Table>, SqlError> {
    let catalog = &session.engine.catalog;
    let tables = catalog.tables(&stream.base.db).unwrap_or_default();
    tables
        .into_iter()
        .find(|table| table.id() == stream.base.id)
        .ok_or_else(|| SqlError::unknown_table(&stream.base.db, &stream.base.name))
}

/// `CREATE STREAM [IF NOT EXISTS] s ON TABLE t [COMMENT '…'] [PROPERTIES (…)]`; the cursor is behind CREATE.
pub(super) fn create(session: &Session, cursor: &mut Cursor<'_>) -> Result<StatementResult, SqlError> {
    let replace = cursor.eat_all(&["OR", "REPLACE"]);
    cursor.expect("STREAM")?;
    check_enabled(session)?;
    if replace {
        return Err(SqlError::detail("do not support replace currently"));
    }
    let if_not_exists = cursor.eat_all(&["IF", "NOT", "EXISTS"]);
    let (db, name) = table_name(session, cursor)?;
    cursor.expect("ON")?;
    cursor.expect("TABLE")?;
    let (base_db, base_name) = table_name(session, cursor)?;
    let comment = if cursor.eat("COMMENT") { cursor.string()? } else { String::new() };
    let properties = if cursor.eat("PROPERTIES") { cursor.properties()? } else { BTreeMap::new() };
    cursor.expect_end()?;
    let engine = &session.engine;
    let db_id = engine.catalog.database_id(&db)?;
    let taken = lookup(session, &db, &name).is_some();
    if taken && if_not_exists {
        return Ok(done());
    }
    if taken || engine.catalog.table(&db, &name).is_ok() {
        return Err(SqlError::coded(1050, format!("Table '{name}' already exists")));
    }
    let table = engine.table_handle(&base_db, &base_name)?;
    let (kind, initial_rows) = read_properties(session, &table, &properties)?;
    let _order = engine.commit_lock.lock();
    let tso = engine.tso.status().current_tso;
    let offsets = if initial_rows {
        BTreeMap::new()
    } else {
        let offset = Offset { tso, consumed_ms: None };
        super::changes::partitions(&table).into_iter().map(|(id, _)| (id, offset)).collect()
    };
    let base = BaseTable { db: base_db, name: base_name, id: table.id() };
    let id = engine.catalog.next_ids(1);
    engine.streams.insert(TableStream::new((id, db_id), (db, name), base, kind, initial_rows, comment, offsets));
    Ok(done())
}

fn read_properties(
    session: &Session,
    table: &Table,
    written: &BTreeMap<String, String>,
) -> Result<(IncrType, bool), SqlError> {
    if let Some((key, value)) = written.iter().find(|(key, _)| !matches!(key.as_str(), "type" | "show_initial_rows")) {
        return Err(SqlError::detail(format!("Unknown properties: {{{key}={value}}}")));
    }
    let initial_rows = match written.get("show_initial_rows").map(|value| value.to_ascii_lowercase()).as_deref() {
        None | Some("false") => false,
        Some("true") => true,
        Some(other) => {
            return Err(SqlError::detail(format!("show_initial_rows must be `true` or `false`, got {other}")));
        }
    };
    let kind = match written.get("type").map(|value| value.to_ascii_uppercase()).as_deref() {
        None | Some("MIN_DELTA") => IncrType::MinDelta,
        Some("APPEND_ONLY") => IncrType::AppendOnly,
        Some("DETAIL") => IncrType::Detail,
        Some(_) => {
            let written = written.get("type").map(String::as_str).unwrap_or_default();
            return Err(SqlError::detail(format!("not supported type: {written}")));
        }
    };
    let Some(changes) = table.spec().changes else {
        return Err(SqlError::detail(format!(
            "Base Olap table {} need to enable row binlog for table stream",
            table.name()
        )));
    };
    if table.keys_type() == KeysType::Duplicate {
        return Ok((if kind == IncrType::MinDelta { IncrType::AppendOnly } else { kind }, initial_rows));
    }
    if kind != IncrType::AppendOnly && !changes.before_image {
        let property = Names::of(session.engine.profile()).property("need_historical_value");
        let kind = kind_name(kind);
        return Err(SqlError::detail(format!("{kind} table stream requires base mow table to enable {property}=true")));
    }
    Ok((kind, initial_rows))
}

/// `ALTER STREAM s SET COMMENT '…'`; the cursor is behind STREAM.
pub(super) fn alter(session: &Session, cursor: &mut Cursor<'_>) -> Result<StatementResult, SqlError> {
    check_enabled(session)?;
    let (db, name) = table_name(session, cursor)?;
    cursor.expect("SET")?;
    cursor.expect("COMMENT")?;
    let comment = cursor.string()?;
    cursor.expect_end()?;
    find(session, &db, &name)?.set_comment(comment);
    Ok(done())
}

/// `DROP STREAM [IF EXISTS] s [FORCE]`; the cursor is behind STREAM.
pub(super) fn drop(session: &Session, cursor: &mut Cursor<'_>) -> Result<StatementResult, SqlError> {
    check_enabled(session)?;
    let if_exists = cursor.eat_all(&["IF", "EXISTS"]);
    let (db, name) = table_name(session, cursor)?;
    let force = cursor.eat("FORCE");
    cursor.expect_end()?;
    let Some(stream) = lookup(session, &db, &name) else {
        return if if_exists { Ok(done()) } else { Err(SqlError::coded(1051, format!("Unknown table '{name}'"))) };
    };
    if !force {
        // A stream without its table can only be dropped by force.
        base_table(session, &stream)?;
    }
    session.engine.streams.remove(&db, &name);
    Ok(done())
}

/// `SHOW STREAMS [FROM db] [LIKE …]`; the cursor is behind STREAMS.
pub(super) fn show(session: &Session, cursor: &mut Cursor<'_>) -> Result<StatementResult, SqlError> {
    check_enabled(session)?;
    let db = if cursor.eat("FROM") || cursor.eat("IN") {
        database_name(cursor)?
    } else {
        session.database.clone().ok_or_else(SqlError::no_database)?
    };
    let filter = Filter::read(cursor)?;
    session.engine.catalog.database_id(&db)?;
    let names = [format!("Streams_in_{db}")];
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut rows: Vec<Row> = list(session, Some(&db)).iter().map(|s| vec![cell(&s.name)]).collect();
    filter.apply(&names, &mut rows, 0)?;
    text_rows(&names, rows)
}

/// `SHOW CREATE STREAM s`; the cursor is behind STREAM.
pub(super) fn show_create(session: &Session, cursor: &mut Cursor<'_>) -> Result<StatementResult, SqlError> {
    check_enabled(session)?;
    let (db, name) = table_name(session, cursor)?;
    cursor.expect_end()?;
    let stream = find(session, &db, &name)?;
    let (base_db, base) = match base_table(session, &stream) {
        Ok(table) => (table.database().to_owned(), table.name().to_owned()),
        Err(_) => (stream.base.db.clone(), stream.base.name.clone()),
    };
    let mut text = format!("CREATE STREAM `{}`\nON TABLE internal.{base_db}.{base}\n", stream.name);
    let comment = stream.comment();
    if !comment.is_empty() {
        text.push_str(&format!("COMMENT '{}'\n", comment.replace('\'', "''")));
    }
    text.push_str(&format!(
        "PROPERTIES (\n\"type\" = \"{}\",\n\"show_initial_rows\" = \"{}\"\n);",
        kind_name(stream.kind),
        stream.initial_rows
    ));
    text_rows(&["Stream", "Create Stream"], vec![vec![cell(&name), cell(text)]])
}

/// Rows of `information_schema.table_streams`: database, stream, id, type, database and name of the base table, whether it
/// can be read, and why not.
pub(super) fn status_rows(session: &Session) -> Vec<Vec<String>> {
    let row = |stream: &Arc<TableStream>| {
        let base = base_table(session, stream);
        let (base_db, base_name, stale, reason) = match &base {
            Ok(table) => (table.database(), table.name(), "0", "N/A"),
            Err(_) => (stream.base.db.as_str(), stream.base.name.as_str(), "1", "base table is dropped"),
        };
        let id = stream.id.to_string();
        [
            &stream.db,
            &stream.name,
            &id,
            kind_name(stream.kind),
            &stream.comment(),
            base_db,
            base_name,
            "1",
            stale,
            reason,
        ]
        .map(str::to_owned)
        .to_vec()
    };
    list(session, None).iter().map(row).collect()
}

/// Rows of `information_schema.table_stream_consumption`, one by partition of the base table.
pub(super) fn consumption_rows(session: &Session) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    for stream in list(session, None) {
        let Ok(table) = base_table(session, &stream) else { continue };
        let snapshot = table.snapshot();
        for (id, name) in super::changes::partitions(&table) {
            let offset = stream.offset(id);
            let tablets = snapshot.tablets.iter().filter(|t| super::changes::snapshot_partition(&table, t) == name);
            let written = tablets.flat_map(|t| &t.rowsets).map(|rowset| rowset.tso()).max();
            let recorded = table.changes(0, i64::MAX).iter().filter(|b| b.partition == id).map(|b| b.tso).max();
            let latest = written.max(recorded);
            let lag = match (offset, latest) {
                (_, None) => "0".to_owned(),
                (Some(offset), Some(latest)) => (latest - offset.tso).max(0).to_string(),
                (None, Some(_)) => "N/A".to_owned(),
            };
            rows.push(vec![
                stream.db.clone(),
                stream.name.clone(),
                stream.id.to_string(),
                name,
                offset.map_or_else(|| "N/A".to_owned(), |offset| offset.tso.to_string()),
                lag,
                offset.and_then(|offset| offset.consumed_ms).unwrap_or(-1).to_string(),
            ]);
        }
    }
    rows
}
