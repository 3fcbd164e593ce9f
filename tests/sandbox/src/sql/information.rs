//! Tables of `information_schema`, made at the moment they are read.

mod facts;

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema};

use super::show::time_text;
use crate::error::SqlError;
use crate::session::Session;
use crate::storage::{PartitionKind, Table, View};
use crate::types::DorisType;

/// A value of a system table.
enum Cell {
    Null,
    Text(String),
    Number(i64),
}

fn text(value: impl Into<String>) -> Cell {
    Cell::Text(value.into())
}

fn number(value: u64) -> Cell {
    Cell::Number(value as i64)
}

type Rows = Vec<Vec<Cell>>;

/// Names of the served tables.
pub(super) fn names(session: &Session) -> Vec<&'static str> {
    let mut names = vec![
        "active_queries",
        "columns",
        "global_variables",
        "partitions",
        "schemata",
        "session_variables",
        "tables",
        "views",
    ];
    names.extend(facts::FILLED.iter().chain(facts::EMPTY).map(|(name, _)| *name));
    if session.engine.profile().has_changes() {
        names.extend(["table_stream_consumption", "table_streams", "tso_status"]);
    }
    names.sort_unstable();
    names
}

/// The current rows of a system table.
pub(super) fn table(session: &Session, name: &str) -> Result<RecordBatch, SqlError> {
    let lower = name.to_ascii_lowercase();
    if !names(session).contains(&lower.as_str()) {
        return Err(SqlError::unknown_table("information_schema", name));
    }
    match lower.as_str() {
        "active_queries" => batch(ACTIVE_QUERIES, active_queries(session)),
        "tables" => batch(TABLES, tables(session)?),
        "columns" => batch(COLUMNS, columns(session)?),
        "schemata" => batch(SCHEMATA, schemata(session)),
        "partitions" => batch(PARTITIONS, partitions(session)?),
        "session_variables" => batch(VARIABLES, variables(&session.variables)),
        "global_variables" => {
            let globals = session.engine.globals.read().clone();
            batch(VARIABLES, variables(&super::Variables::new(session.engine.config(), &globals)))
        }
        "tso_status" => batch(tso_columns(session), tso_status(session)),
        "table_streams" => batch(TABLE_STREAMS, texts(super::streams::status_rows(session))),
        "table_stream_consumption" => batch(STREAM_CONSUMPTION, texts(super::streams::consumption_rows(session))),
        "views" => batch(VIEWS, views(session)),
        other => match facts::FILLED.iter().find(|(name, _)| *name == other) {
            Some((name, columns)) => batch(columns, facts::rows(session, name)),
            None => {
                let empty = facts::EMPTY.iter().find(|(name, _)| *name == other);
                batch(empty.map_or(&[][..], |(_, columns)| columns), vec![])
            }
        },
    }
}

/// Column names; a `#` marks a BIGINT.
const ACTIVE_QUERIES: &[&str] = &[
    "QUERY_ID",
    "QUERY_START_TIME",
    "#QUERY_TIME_MS",
    "#WORKLOAD_GROUP_ID",
    "DATABASE",
    "FRONTEND_INSTANCE",
    "QUEUE_START_TIME",
    "QUEUE_END_TIME",
    "QUERY_STATUS",
    "USER",
    "SQL",
];
const TABLES: &[&str] = &[
    "TABLE_CATALOG",
    "TABLE_SCHEMA",
    "TABLE_NAME",
    "TABLE_TYPE",
    "ENGINE",
    "#VERSION",
    "ROW_FORMAT",
    "#TABLE_ROWS",
    "#AVG_ROW_LENGTH",
    "#DATA_LENGTH",
    "#MAX_DATA_LENGTH",
    "#INDEX_LENGTH",
    "#DATA_FREE",
    "#AUTO_INCREMENT",
    "CREATE_TIME",
    "UPDATE_TIME",
    "CHECK_TIME",
    "TABLE_COLLATION",
    "#CHECKSUM",
    "CREATE_OPTIONS",
    "TABLE_COMMENT",
];
const COLUMNS: &[&str] = &[
    "TABLE_CATALOG",
    "TABLE_SCHEMA",
    "TABLE_NAME",
    "COLUMN_NAME",
    "#ORDINAL_POSITION",
    "COLUMN_DEFAULT",
    "IS_NULLABLE",
    "DATA_TYPE",
    "#CHARACTER_MAXIMUM_LENGTH",
    "#CHARACTER_OCTET_LENGTH",
    "#NUMERIC_PRECISION",
    "#NUMERIC_SCALE",
    "#DATETIME_PRECISION",
    "CHARACTER_SET_NAME",
    "COLLATION_NAME",
    "COLUMN_TYPE",
    "COLUMN_KEY",
    "EXTRA",
    "PRIVILEGES",
    "COLUMN_COMMENT",
    "#COLUMN_SIZE",
    "#DECIMAL_DIGITS",
    "GENERATION_EXPRESSION",
    "#SRS_ID",
];
const SCHEMATA: &[&str] = &[
    "CATALOG_NAME",
    "SCHEMA_NAME",
    "DEFAULT_CHARACTER_SET_NAME",
    "DEFAULT_COLLATION_NAME",
    "SQL_PATH",
    "DEFAULT_ENCRYPTION",
];
const PARTITIONS: &[&str] = &[
    "TABLE_CATALOG",
    "TABLE_SCHEMA",
    "TABLE_NAME",
    "PARTITION_NAME",
    "SUBPARTITION_NAME",
    "#PARTITION_ORDINAL_POSITION",
    "#SUBPARTITION_ORDINAL_POSITION",
    "PARTITION_METHOD",
    "SUBPARTITION_METHOD",
    "PARTITION_EXPRESSION",
    "SUBPARTITION_EXPRESSION",
    "PARTITION_DESCRIPTION",
    "#TABLE_ROWS",
    "#AVG_ROW_LENGTH",
    "#DATA_LENGTH",
    "#MAX_DATA_LENGTH",
    "#INDEX_LENGTH",
    "#DATA_FREE",
    "CREATE_TIME",
    "UPDATE_TIME",
    "CHECK_TIME",
    "#CHECKSUM",
    "PARTITION_COMMENT",
    "NODEGROUP",
    "TABLESPACE_NAME",
];
const VARIABLES: &[&str] = &["VARIABLE_NAME", "VARIABLE_VALUE", "DEFAULT_VALUE", "CHANGED"];
const TABLE_STREAMS: &[&str] = &[
    "DB_NAME",
    "STREAM_NAME",
    "STREAM_ID",
    "CONSUME_TYPE",
    "STREAM_COMMENT",
    "BASE_TABLE_DB",
    "BASE_TABLE_NAME",
    "ENABLED",
    "IS_STALE",
    "STALE_REASON",
];
const STREAM_CONSUMPTION: &[&str] =
    &["DB_NAME", "STREAM_NAME", "STREAM_ID", "UNIT", "CONSUMPTION_STATUS", "LAG", "LAST_CONSUMPTION_TIME"];
const TSO_STATUS: &[&str] = &[
    "#WINDOW_END_PHYSICAL_TIME",
    "#CURRENT_TSO",
    "#CURRENT_TSO_PHYSICAL_TIME",
    "#CURRENT_TSO_LOGICAL_COUNTER",
    "#COMMITTED_TSO",
    "#COMMITTED_TSO_PHYSICAL_TIME",
];
const VIEWS: &[&str] = &[
    "TABLE_CATALOG",
    "TABLE_SCHEMA",
    "TABLE_NAME",
    "VIEW_DEFINITION",
    "CHECK_OPTION",
    "IS_UPDATABLE",
    "DEFINER",
    "SECURITY_TYPE",
    "CHARACTER_SET_CLIENT",
    "COLLATION_CONNECTION",
];
fn texts(rows: Vec<Vec<String>>) -> Rows {
    rows.into_iter().map(|row| row.into_iter().map(Cell::Text).collect()).collect()
}

fn batch(names: &[&str], rows: Rows) -> Result<RecordBatch, SqlError> {
    let mut fields = Vec::with_capacity(names.len());
    let mut arrays: Vec<ArrayRef> = Vec::with_capacity(names.len());
    for (i, name) in names.iter().enumerate() {
        match name.strip_prefix('#') {
            Some(name) => {
                fields.push(Field::new(name, DataType::Int64, true));
                let values = rows.iter().map(|row| match row.get(i) {
                    Some(Cell::Number(n)) => Some(*n),
                    _ => None,
                });
                arrays.push(Arc::new(values.collect::<Int64Array>()));
            }
            None => {
                fields.push(Field::new(*name, DataType::Utf8, true));
                let values = rows.iter().map(|row| match row.get(i) {
                    Some(Cell::Text(text)) => Some(text.as_str()),
                    _ => None,
                });
                arrays.push(Arc::new(values.collect::<StringArray>()));
            }
        }
    }
    RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays).map_err(SqlError::detail)
}

fn all_tables(session: &Session) -> Result<Vec<Arc<Table>>, SqlError> {
    let mut out = Vec::new();
    for db in session.engine.databases() {
        // A database may be dropped between the two calls.
        if let Ok(tables) = session.engine.catalog.tables(&db) {
            out.extend(tables.into_iter().filter(|t| super::privileges::is_visible(session, &db, t.name())));
        }
    }
    Ok(out)
}

fn all_views(session: &Session) -> Vec<Arc<View>> {
    let views = session.engine.databases().into_iter().flat_map(|db| session.engine.catalog.views(&db));
    views.filter(|view| super::privileges::is_visible(session, &view.db, &view.name)).collect()
}

fn views(session: &Session) -> Rows {
    all_views(session)
        .into_iter()
        .map(|view| {
            vec![
                text("internal"),
                text(&view.db),
                text(&view.name),
                text(&view.query),
                text("NONE"),
                text("NO"),
                text(format!("{}@%", view.definer)),
                text("DEFINER"),
                text("utf8mb4"),
                text("utf8mb4_0900_bin"),
            ]
        })
        .collect()
}

fn tables(session: &Session) -> Result<Rows, SqlError> {
    let mut rows: Rows = Vec::new();
    for table in all_tables(session)? {
        let (count, bytes) = table.physical_size();
        rows.push(vec![
            text("internal"),
            text(table.database()),
            text(table.name()),
            text("BASE TABLE"),
            text("Doris"),
            Cell::Null,
            Cell::Null,
            number(count),
            number(bytes.checked_div(count).unwrap_or(0)),
            number(bytes),
            Cell::Null,
            number(0),
            Cell::Null,
            Cell::Null,
            text(time_text(session, table.spec().created_ms)),
            text(time_text(session, table.version().1)),
            Cell::Null,
            text("utf-8"),
            Cell::Null,
            Cell::Null,
            text(&table.spec().comment),
        ]);
    }
    for view in all_views(session) {
        let mut row = vec![text("internal"), text(&view.db), text(&view.name), text("VIEW"), text("View")];
        row.resize_with(14, || Cell::Null);
        row.extend([text(time_text(session, view.created_ms)), Cell::Null, Cell::Null, text("utf-8")]);
        row.extend([Cell::Null, Cell::Null, text(&view.comment)]);
        rows.push(row);
    }
    for name in names(session) {
        let mut row =
            vec![text("internal"), text("information_schema"), text(name), text("SYSTEM VIEW"), text("MEMORY")];
        row.resize_with(20, || Cell::Null);
        row.push(text(""));
        rows.push(row);
    }
    Ok(rows)
}

/// Precision and scale of numbers.
fn numeric(ty: &DorisType) -> Option<(u64, u64)> {
    Some(match ty {
        DorisType::Boolean | DorisType::TinyInt => (3, 0),
        DorisType::SmallInt => (5, 0),
        DorisType::Int => (10, 0),
        DorisType::BigInt => (19, 0),
        DorisType::LargeInt => (39, 0),
        DorisType::Float => (7, 7),
        DorisType::Double => (15, 15),
        DorisType::Decimal { precision, scale } => (u64::from(*precision), u64::from(*scale)),
        _ => return None,
    })
}

fn columns(session: &Session) -> Result<Rows, SqlError> {
    let mut rows: Rows = Vec::new();
    for table in all_tables(session)? {
        for (i, (column, _)) in super::show_table::described(session, &table).iter().enumerate() {
            let key = if column.key { table.keys_type().column_key() } else { "" };
            let facts = ColumnFacts {
                name: &column.name,
                ty: &column.ty,
                nullable: column.nullable,
                comment: &column.comment,
                default: column.default.text(),
                key,
            };
            rows.push(column_row(table.database(), table.name(), i, &facts));
        }
    }
    for view in all_views(session) {
        for (i, column) in view.columns.iter().enumerate() {
            let facts = ColumnFacts {
                name: &column.name,
                ty: &column.ty,
                nullable: column.nullable,
                comment: &column.comment,
                default: None,
                key: "",
            };
            rows.push(column_row(&view.db, &view.name, i, &facts));
        }
    }
    Ok(rows)
}

/// What a row of `columns` tells of a column of a table or view.
struct ColumnFacts<'a> {
    name: &'a str,
    ty: &'a DorisType,
    nullable: bool,
    comment: &'a str,
    default: Option<&'a str>,
    key: &'a str,
}

fn column_row(db: &str, table: &str, i: usize, column: &ColumnFacts<'_>) -> Vec<Cell> {
    let length = match column.ty {
        DorisType::Char(n) | DorisType::Varchar(n) => Some(u64::from(*n)),
        DorisType::String => Some(2_147_483_643),
        _ => None,
    };
    let numeric = numeric(column.ty);
    let optional = |value: Option<u64>| value.map_or(Cell::Null, number);
    vec![
        text("internal"),
        text(db),
        text(table),
        text(column.name),
        number(i as u64 + 1),
        column.default.map_or(Cell::Null, text),
        text(if column.nullable { "YES" } else { "NO" }),
        text(column.ty.data_type_name()),
        optional(length),
        optional(length.map(|n| n * 4)),
        optional(numeric.map(|n| n.0)),
        optional(numeric.map(|n| n.1)),
        match column.ty {
            DorisType::DateTime(p) => number(u64::from(*p)),
            _ => Cell::Null,
        },
        Cell::Null,
        Cell::Null,
        text(column.ty.column_type_name()),
        text(column.key),
        text(""),
        text(""),
        text(column.comment),
        optional(length.or(numeric.map(|n| n.0))),
        optional(numeric.map(|n| n.1)),
        Cell::Null,
        Cell::Null,
    ]
}

fn schemata(session: &Session) -> Rows {
    let databases = super::show_cluster::databases(session).into_iter();
    databases
        .map(|db| vec![text("internal"), text(db), text("utf8mb4"), text("utf8mb4_0900_bin"), Cell::Null, Cell::Null])
        .collect()
}

fn partitions(session: &Session) -> Result<Rows, SqlError> {
    let mut rows: Rows = Vec::new();
    for table in all_tables(session)? {
        let partitioning = table.spec().partitioning.as_ref();
        let (method, expression) = match partitioning {
            None => ("UNPARTITIONED", None),
            Some(p) if p.kind == PartitionKind::Range => ("RANGE", Some(p.columns.join(", "))),
            Some(p) => ("LIST", Some(p.columns.join(", "))),
        };
        for (i, partition) in table.partitions().into_iter().enumerate() {
            let mut row = vec![text("internal"), text(table.database()), text(table.name()), text(&partition.name)];
            row.push(Cell::Null);
            row.push(number(i as u64 + 1));
            row.push(number(0));
            row.push(text(method));
            row.extend([Cell::Null, expression.as_ref().map_or(Cell::Null, text), Cell::Null]);
            row.push(partitioning.map_or(Cell::Null, |_| text(partition.bounds.shown(partitioning))));
            let (count, bytes) = (partition.rows, partition.bytes);
            row.extend([number(count), number(bytes.checked_div(count).unwrap_or(0)), number(bytes)]);
            rows.push(row);
        }
    }
    Ok(rows)
}

fn variables(variables: &super::Variables) -> Rows {
    variables
        .list()
        .map(|(name, value, default, changed)| {
            vec![text(name), text(value), text(default), text(if changed { "1" } else { "0" })]
        })
        .collect()
}

/// Queries that run, or whose results an Arrow Flight SQL client has not read or released.
fn active_queries(session: &Session) -> Rows {
    let engine = &session.engine;
    let now = engine.config().clock.now_ms();
    let frontend = engine.topology().frontends.first().map_or_else(String::new, |n| n.host.clone());
    let row = |query: crate::queries::ActiveQuery| {
        vec![
            text(query.query_id),
            text(time_text(session, query.start_ms)),
            Cell::Number(now - query.start_ms),
            number(1),
            text(query.database),
            text(frontend.clone()),
            Cell::Null,
            Cell::Null,
            text("RUNNING"),
            text(query.user),
            text(query.sql),
        ]
    };
    engine.active_queries().into_iter().map(row).collect()
}

/// Builds that tell no committed TSO have no columns for it.
fn tso_columns(session: &Session) -> &'static [&'static str] {
    if session.engine.tso().committed_tso.is_some() { TSO_STATUS } else { &TSO_STATUS[..4] }
}

fn tso_status(session: &Session) -> Rows {
    let now = session.engine.tso();
    vec![vec![
        Cell::Number(now.window_end_ms),
        Cell::Number(now.current_tso),
        Cell::Number(now.physical_ms),
        Cell::Number(now.logical),
        now.committed_tso.map_or(Cell::Null, Cell::Number),
        now.committed_tso.map_or(Cell::Null, |tso| Cell::Number(tso >> crate::changelog::LOGICAL_BITS)),
    ]]
}
