//! SHOW about sessions, jobs and sizes, and what the server answers to MySQL tools that ask for things it does not have.

use super::cursor::Cursor;
use super::ddl::{database_name, table_name};
use super::output::text_rows;
use super::privileges::is_visible;
use super::show::{Filter, Row, cell, time_text};
use crate::engine::{Profile, StatementResult};
use crate::error::SqlError;
use crate::session::Session;
use crate::txn::TxnState;

/// Columns of SHOW PROCESSLIST.
pub(super) fn process_columns(profile: Profile) -> Vec<&'static str> {
    let mut names = vec![
        "CurrentConnected",
        "Id",
        "User",
        "Host",
        "LoginTime",
        "Catalog",
        "Db",
        "Command",
        "Time",
        "State",
        "QueryId",
        "TraceId",
        "Info",
        "FE",
        "CloudCluster",
    ];
    if profile == Profile::V2_1 {
        names.retain(|name| *name != "TraceId");
    }
    names
}

/// Sessions that the user may see: all for an administrator, else the user's own.
pub(super) fn process_rows(session: &Session, full: bool) -> Vec<Row> {
    let engine = &session.engine;
    let (now, admin) = (engine.config().clock.now_ms(), engine.is_admin(&session.user));
    let fe = engine.topology().frontends.first().map_or_else(|| "127.0.0.1".to_owned(), |node| node.host.clone());
    let trace = engine.profile() != Profile::V2_1;
    let visible = engine.processes.list().into_iter().filter(|p| admin || p.user == session.user);
    visible
        .map(|process| {
            let running = process.running();
            let busy = !running.sql.is_empty();
            let info = if full { running.sql } else { running.sql.chars().take(100).collect() };
            let mut row = vec![
                cell(if process.id == session.id { "Yes" } else { "No" }),
                cell(process.id),
                cell(&process.user),
                cell(&process.host),
                cell(time_text(session, process.login_ms)),
                cell("internal"),
                cell(running.database.unwrap_or_default()),
                cell(if busy { "Query" } else { "Sleep" }),
                cell((now - running.since_ms).max(0) / 1000),
                cell(if busy { "OK" } else { "" }),
                cell(running.query_id),
            ];
            if trace {
                row.push(cell(""));
            }
            row.extend([cell(info), cell(&fe), cell("")]);
            row
        })
        .collect()
}

pub(super) fn processlist(session: &Session, cursor: &mut Cursor<'_>, full: bool) -> Result<StatementResult, SqlError> {
    let filter = Filter::read(cursor)?;
    let names = process_columns(session.engine.profile());
    let mut rows = process_rows(session, full);
    filter.apply(&names, &mut rows, 2)?;
    text_rows(&names, rows)
}

/// Bytes as `SHOW DATA` prints them.
fn size_text(bytes: u64) -> String {
    let units = ["", "KB", "MB", "GB", "TB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.3} {}", units[unit])
}

/// `SHOW DATA [FROM db[.table]]`
pub(super) fn data(session: &Session, cursor: &mut Cursor<'_>) -> Result<StatementResult, SqlError> {
    let engine = &session.engine;
    if (cursor.eat("FROM") || cursor.eat("IN"))
        && (cursor.peek_at(1) == Some(&datafusion::sql::sqlparser::tokenizer::Token::Period)
            || session.database.as_deref().is_some_and(|db| {
                cursor.peek().is_some_and(|t| engine.catalog.table(db, &t.to_string().replace('`', "")).is_ok())
            }))
    {
        let (db, name) = table_name(session, cursor)?;
        cursor.expect_end()?;
        let table = engine.table_handle(&db, &name)?;
        let (rows, bytes) = table.physical_size();
        let replicas = table.tablets().len();
        let names = ["TableName", "IndexName", "Size", "ReplicaCount", "RowCount", "RemoteSize"];
        let size = size_text(bytes);
        return text_rows(
            &names,
            vec![
                vec![cell(&name), cell(&name), cell(&size), cell(replicas), cell(rows), cell("0.000 ")],
                vec![cell(""), cell("Total"), cell(&size), cell(replicas), cell(""), cell("0.000 ")],
            ],
        );
    }
    let db = if cursor.at_end() {
        session.database.clone().ok_or_else(SqlError::no_database)?
    } else {
        database_name(cursor)?
    };
    cursor.expect_end()?;
    let (mut total, mut replicas) = (0, 0);
    let mut rows: Vec<Row> = Vec::new();
    for table in engine.catalog.tables(&db)? {
        let bytes = table.physical_size().1;
        let count = table.tablets().len();
        rows.push(vec![cell(table.name()), cell(size_text(bytes)), cell(count), cell("0.000 ")]);
        total += bytes;
        replicas += count;
    }
    let quota = 8192.0 * 1024.0 * 1024.0 * 1024.0;
    rows.push(vec![cell("Total"), cell(size_text(total)), cell(replicas), cell("0.000 ")]);
    rows.push(vec![cell("Quota"), cell("8192.000 TB"), cell(1_073_741_824_u64), cell("")]);
    rows.push(vec![
        cell("Left"),
        cell(size_text((quota * 1024.0) as u64 - total)),
        cell(1_073_741_824_u64 - replicas as u64),
        cell(""),
    ]);
    text_rows(&["TableName", "Size", "ReplicaCount", "RemoteSize"], rows)
}

/// `SHOW LOAD [FROM db] [WHERE label = 'l']`: loads that were statements.
pub(super) fn load(session: &Session, cursor: &mut Cursor<'_>) -> Result<StatementResult, SqlError> {
    let db = if cursor.eat("FROM") || cursor.eat("IN") {
        database_name(cursor)?
    } else {
        session.database.clone().ok_or_else(SqlError::no_database)?
    };
    session.engine.catalog.database_id(&db)?;
    let filter = Filter::read(cursor)?;
    let names = [
        "JobId",
        "Label",
        "State",
        "Progress",
        "Type",
        "EtlInfo",
        "TaskInfo",
        "ErrorMsg",
        "CreateTime",
        "EtlStartTime",
        "EtlFinishTime",
        "LoadStartTime",
        "LoadFinishTime",
        "URL",
        "JobDetails",
        "TransactionId",
        "ErrorTablets",
        "User",
        "Comment",
    ];
    let time = |ms: Option<i64>| ms.map(|ms| time_text(session, ms));
    let inserts = session.engine.txns.list(&db).into_iter().filter(|view| view.source == "INSERT");
    let mut rows: Vec<Row> = inserts
        .map(|view| {
            let (state, progress) = match view.state {
                TxnState::Visible | TxnState::Committed => ("FINISHED", "100.00% (1/1)"),
                TxnState::Aborted => ("CANCELLED", "0.00% (0/1)"),
                _ => ("LOADING", "0.00% (0/1)"),
            };
            let begun = Some(view.prepared_ms);
            vec![
                cell(view.id),
                cell(view.label),
                cell(state),
                cell(progress),
                cell("INSERT"),
                None,
                cell("cluster:N/A; timeout(s):14400; max_filter_ratio:0.0"),
                Some(view.reason).filter(|reason| !reason.is_empty()),
                time(begun),
                time(begun),
                time(begun),
                time(begun),
                time(view.finished_ms),
                cell(view.error_url.unwrap_or_default()),
                cell(format!("{{\"ScannedRows\":{},\"LoadBytes\":0}}", view.rows)),
                cell(view.id),
                cell("{}"),
                None,
                cell(""),
            ]
        })
        .collect();
    filter.apply(&names, &mut rows, 1)?;
    text_rows(&names, rows)
}

/// `SHOW CATALOGS [LIKE ..]`
pub(super) fn catalogs(cursor: &mut Cursor<'_>) -> Result<StatementResult, SqlError> {
    let filter = Filter::read(cursor)?;
    let names = ["CatalogId", "CatalogName", "Type", "IsCurrent", "CreateTime", "LastUpdateTime", "Comment"];
    let mut rows = vec![vec![
        cell(0),
        cell("internal"),
        cell("internal"),
        cell("yes"),
        cell("UNRECORDED"),
        None,
        cell("Doris internal catalog"),
    ]];
    filter.apply(&names, &mut rows, 1)?;
    text_rows(&names, rows)
}

/// Names of the databases that the user may see.
pub(super) fn databases(session: &Session) -> Vec<String> {
    let all = session.engine.databases().into_iter();
    all.filter(|db| is_visible(session, db, "")).collect()
}

const TRIGGERS: &[&str] = &[
    "Trigger",
    "Event",
    "Table",
    "Statement",
    "Timing",
    "Created",
    "sql_mode",
    "Definer",
    "character_set_client",
    "collation_connection",
    "Database Collation",
];
const EVENTS: &[&str] = &[
    "Db",
    "Name",
    "Definer",
    "Time zone",
    "Type",
    "Execute at",
    "Interval value",
    "Interval field",
    "Starts",
    "Ends",
    "Status",
    "Originator",
    "character_set_client",
    "collation_connection",
    "Database Collation",
];
const PROCEDURES: &[&str] = &[
    "Db",
    "Name",
    "Type",
    "Definer",
    "Modified",
    "Created",
    "Security_type",
    "Comment",
    "character_set_client",
    "collation_connection",
    "Database Collation",
];
const FUNCTIONS: &[&str] = &["Signature", "Return Type", "Function Type", "Intermediate Type", "Properties"];

/// What there is none of: the columns and no row. `None`: another statement.
pub(super) fn nothing(word: &str, cursor: &mut Cursor<'_>, full: bool) -> Result<Option<StatementResult>, SqlError> {
    let names: &[&str] = match word {
        "TRIGGERS" => TRIGGERS,
        "EVENTS" => EVENTS,
        "PROCEDURE" | "FUNCTION" => {
            cursor.expect("STATUS")?;
            PROCEDURES
        }
        "FUNCTIONS" if full => FUNCTIONS,
        "FUNCTIONS" => &["Function Name"],
        "BROKER" => &["Name", "Host", "Port", "Alive", "LastStartTime", "LastUpdateTime", "ErrMsg"],
        "STATUS" => &["Variable_name", "Value"],
        "OPEN" => {
            cursor.expect("TABLES")?;
            &["Database", "Table", "In_use", "Name_locked"]
        }
        "WARNINGS" | "ERRORS" => &["Level", "Code", "Message"],
        _ => return Ok(None),
    };
    if cursor.eat("FROM") || cursor.eat("IN") {
        database_name(cursor)?;
    }
    if word == "WARNINGS" || word == "ERRORS" {
        if cursor.eat("LIMIT") {
            cursor.number()?;
        }
        cursor.expect_end()?;
    } else {
        Filter::read(cursor)?.check(names)?;
    }
    text_rows(names, vec![]).map(Some)
}

/// What never changes: engines, collations and character sets.
pub(super) fn constant(word: &str, cursor: &mut Cursor<'_>) -> Result<StatementResult, SqlError> {
    let (names, row): (&[&str], &[&str]) = match word {
        "ENGINES" => (
            &["Engine", "Support", "Comment", "Transactions", "XA", "Savepoints"],
            &["Olap", "YES", "Default storage engine of palo", "NO", "NO", "NO"],
        ),
        "COLLATION" => (
            &["Collation", "Charset", "Id", "Default", "Compiled", "Sortlen"],
            &["utf8mb4_0900_bin", "utf8mb4", "309", "Yes", "Yes", "1"],
        ),
        _ => (
            &["Charset", "Description", "Default collation", "Maxlen"],
            &["utf8mb4", "UTF-8 Unicode", "utf8mb4_0900_bin", "4"],
        ),
    };
    let filter = Filter::read(cursor)?;
    let mut rows: Vec<Row> = vec![row.iter().map(cell).collect()];
    filter.apply(names, &mut rows, 0)?;
    text_rows(names, rows)
}
