//! System tables about users, sessions and what the server is made of, and those that are always empty.

use super::{Cell, Rows, number, text};
use crate::session::Session;
use crate::sql::privileges::is_visible;
use crate::sql::show_cluster;
use crate::users::{Grants, Identity, Scope};

/// A table: name and columns; a `#` marks a BIGINT.
type Table = (&'static str, &'static [&'static str]);

/// Tables with rows of this module.
pub(super) const FILLED: &[Table] = &[
    ("character_sets", &["CHARACTER_SET_NAME", "DEFAULT_COLLATE_NAME", "DESCRIPTION", "#MAXLEN"]),
    ("collations", &["COLLATION_NAME", "CHARACTER_SET_NAME", "#ID", "IS_DEFAULT", "IS_COMPILED", "#SORTLEN"]),
    ("engines", &["ENGINE", "SUPPORT", "COMMENT", "TRANSACTIONS", "XA", "SAVEPOINTS"]),
    ("processlist", PROCESSLIST),
    ("schema_privileges", &["GRANTEE", "TABLE_CATALOG", "TABLE_SCHEMA", "PRIVILEGE_TYPE", "IS_GRANTABLE"]),
    ("table_privileges", &["GRANTEE", "TABLE_CATALOG", "TABLE_SCHEMA", "TABLE_NAME", "PRIVILEGE_TYPE", "IS_GRANTABLE"]),
    ("table_properties", &["TABLE_CATALOG", "TABLE_SCHEMA", "TABLE_NAME", "PROPERTY_NAME", "PROPERTY_VALUE"]),
    ("user_privileges", &["GRANTEE", "TABLE_CATALOG", "PRIVILEGE_TYPE", "IS_GRANTABLE"]),
];

const PROCESSLIST: &[&str] = &[
    "CURRENT_CONNECTED",
    "#ID",
    "USER",
    "HOST",
    "LOGIN_TIME",
    "CATALOG",
    "DB",
    "COMMAND",
    "#TIME",
    "STATE",
    "QUERY_ID",
    "TRACE_ID",
    "INFO",
    "FE",
    "CLOUD_CLUSTER",
];

/// Tables without rows.
pub(super) const EMPTY: &[Table] = &[
    (
        "column_privileges",
        &["GRANTEE", "TABLE_CATALOG", "TABLE_SCHEMA", "TABLE_NAME", "COLUMN_NAME", "PRIVILEGE_TYPE", "IS_GRANTABLE"],
    ),
    (
        "events",
        &[
            "EVENT_CATALOG",
            "EVENT_SCHEMA",
            "EVENT_NAME",
            "DEFINER",
            "TIME_ZONE",
            "EVENT_BODY",
            "EVENT_DEFINITION",
            "EVENT_TYPE",
            "EXECUTE_AT",
            "INTERVAL_VALUE",
            "INTERVAL_FIELD",
            "SQL_MODE",
            "STARTS",
            "ENDS",
            "STATUS",
            "ON_COMPLETION",
            "CREATED",
            "LAST_ALTERED",
            "LAST_EXECUTED",
            "EVENT_COMMENT",
            "#ORIGINATOR",
            "CHARACTER_SET_CLIENT",
            "COLLATION_CONNECTION",
            "DATABASE_COLLATION",
        ],
    ),
    (
        "files",
        &[
            "#FILE_ID",
            "FILE_NAME",
            "FILE_TYPE",
            "TABLESPACE_NAME",
            "TABLE_CATALOG",
            "TABLE_SCHEMA",
            "TABLE_NAME",
            "LOGFILE_GROUP_NAME",
            "#LOGFILE_GROUP_NUMBER",
            "ENGINE",
            "FULLTEXT_KEYS",
            "#DELETED_ROWS",
            "#UPDATE_COUNT",
            "#FREE_EXTENTS",
            "#TOTAL_EXTENTS",
            "#EXTENT_SIZE",
            "#INITIAL_SIZE",
            "#MAXIMUM_SIZE",
            "#AUTOEXTEND_SIZE",
            "CREATION_TIME",
            "LAST_UPDATE_TIME",
            "LAST_ACCESS_TIME",
            "#RECOVER_TIME",
            "#TRANSACTION_COUNTER",
            "#VERSION",
            "ROW_FORMAT",
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
            "STATUS",
            "EXTRA",
        ],
    ),
    (
        "key_column_usage",
        &[
            "CONSTRAINT_CATALOG",
            "CONSTRAINT_SCHEMA",
            "CONSTRAINT_NAME",
            "TABLE_CATALOG",
            "TABLE_SCHEMA",
            "TABLE_NAME",
            "COLUMN_NAME",
            "#ORDINAL_POSITION",
            "#POSITION_IN_UNIQUE_CONSTRAINT",
            "REFERENCED_TABLE_SCHEMA",
            "REFERENCED_TABLE_NAME",
            "REFERENCED_COLUMN_NAME",
        ],
    ),
    (
        "parameters",
        &[
            "SPECIFIC_CATALOG",
            "SPECIFIC_SCHEMA",
            "SPECIFIC_NAME",
            "#ORDINAL_POSITION",
            "PARAMETER_MODE",
            "PARAMETER_NAME",
            "DATA_TYPE",
            "#CHARACTER_OCTET_LENGTH",
            "#NUMERIC_PRECISION",
            "#NUMERIC_SCALE",
            "#DATETIME_PRECISION",
            "CHARACTER_SET_NAME",
            "COLLATION_NAME",
            "DTD_IDENTIFIER",
        ],
    ),
    (
        "referential_constraints",
        &[
            "CONSTRAINT_CATALOG",
            "CONSTRAINT_SCHEMA",
            "CONSTRAINT_NAME",
            "UNIQUE_CONSTRAINT_CATALOG",
            "UNIQUE_CONSTRAINT_SCHEMA",
            "UNIQUE_CONSTRAINT_NAME",
            "MATCH_OPTION",
            "UPDATE_RULE",
            "DELETE_RULE",
            "TABLE_NAME",
            "REFERENCED_TABLE_NAME",
        ],
    ),
    (
        "routines",
        &[
            "SPECIFIC_NAME",
            "ROUTINE_CATALOG",
            "ROUTINE_SCHEMA",
            "ROUTINE_NAME",
            "ROUTINE_TYPE",
            "DTD_IDENTIFIER",
            "ROUTINE_BODY",
            "ROUTINE_DEFINITION",
            "EXTERNAL_NAME",
            "EXTERNAL_LANGUAGE",
            "PARAMETER_STYLE",
            "IS_DETERMINISTIC",
            "SQL_DATA_ACCESS",
            "SQL_PATH",
            "SECURITY_TYPE",
            "CREATED",
            "LAST_ALTERED",
            "SQL_MODE",
            "ROUTINE_COMMENT",
            "DEFINER",
            "CHARACTER_SET_CLIENT",
            "COLLATION_CONNECTION",
            "DATABASE_COLLATION",
        ],
    ),
    (
        "statistics",
        &[
            "TABLE_CATALOG",
            "TABLE_SCHEMA",
            "TABLE_NAME",
            "#NON_UNIQUE",
            "INDEX_SCHEMA",
            "INDEX_NAME",
            "#SEQ_IN_INDEX",
            "COLUMN_NAME",
            "COLLATION",
            "#CARDINALITY",
            "#SUB_PART",
            "PACKED",
            "NULLABLE",
            "INDEX_TYPE",
            "COMMENT",
            "INDEX_COMMENT",
        ],
    ),
    (
        "table_constraints",
        &[
            "CONSTRAINT_CATALOG",
            "CONSTRAINT_SCHEMA",
            "CONSTRAINT_NAME",
            "TABLE_SCHEMA",
            "TABLE_NAME",
            "CONSTRAINT_TYPE",
            "CONSTRAINT_METHOD",
        ],
    ),
    (
        "triggers",
        &[
            "TRIGGER_CATALOG",
            "TRIGGER_SCHEMA",
            "TRIGGER_NAME",
            "EVENT_MANIPULATION",
            "EVENT_OBJECT_CATALOG",
            "EVENT_OBJECT_SCHEMA",
            "EVENT_OBJECT_TABLE",
            "#ACTION_ORDER",
            "ACTION_CONDITION",
            "ACTION_STATEMENT",
            "ACTION_ORIENTATION",
            "ACTION_TIMING",
            "ACTION_REFERENCE_OLD_TABLE",
            "ACTION_REFERENCE_NEW_TABLE",
            "ACTION_REFERENCE_OLD_ROW",
            "ACTION_REFERENCE_NEW_ROW",
            "CREATED",
            "SQL_MODE",
            "DEFINER",
            "CHARACTER_SET_CLIENT",
            "COLLATION_CONNECTION",
            "DATABASE_COLLATION",
        ],
    ),
];

/// Rows of one of [`FILLED`].
pub(super) fn rows(session: &Session, name: &str) -> Rows {
    match name {
        "character_sets" => vec![vec![text("utf8mb4"), text("utf8mb4_0900_bin"), text("UTF-8 Unicode"), number(4)]],
        "collations" => {
            vec![vec![text("utf8mb4_0900_bin"), text("utf8mb4"), number(309), text("Yes"), text("Yes"), number(1)]]
        }
        "engines" => {
            let cells = ["Olap", "YES", "Default storage engine of palo", "NO", "NO", "NO"];
            vec![cells.into_iter().map(text).collect()]
        }
        "processlist" => processes(session),
        "table_properties" => properties(session),
        privileges => granted(session, privileges),
    }
}

fn processes(session: &Session) -> Rows {
    let rows = show_cluster::process_rows(session, true);
    let with_trace = show_cluster::process_columns(session.engine.profile()).contains(&"TraceId");
    rows.into_iter()
        .map(|row| {
            let mut cells: Vec<Cell> = row
                .into_iter()
                .enumerate()
                .map(|(i, cell)| match (i, cell) {
                    (1 | 8, Some(digits)) => digits.parse().map_or(Cell::Null, Cell::Number),
                    (_, Some(value)) => text(value),
                    (_, None) => Cell::Null,
                })
                .collect();
            if !with_trace {
                cells.insert(11, text(""));
            }
            cells
        })
        .collect()
}

fn properties(session: &Session) -> Rows {
    let mut rows = Rows::new();
    for db in session.engine.databases() {
        for table in session.engine.catalog.tables(&db).unwrap_or_default() {
            if !is_visible(session, &db, table.name()) {
                continue;
            }
            for (key, value) in &table.spec().properties {
                rows.push(vec![text("internal"), text(&db), text(table.name()), text(key), text(value)]);
            }
        }
    }
    rows
}

/// Privileges at one level, one row each; all accounts for an administrator, else the user's own.
fn granted(session: &Session, level: &str) -> Rows {
    let admin = session.engine.is_admin(&session.user);
    let accounts = session.engine.users.list().into_iter().filter(|(id, _)| admin || id.name == session.user);
    accounts.flat_map(|(id, user)| of_level(&id, &user.grants, level)).collect()
}

fn of_level(id: &Identity, grants: &Grants, level: &str) -> Rows {
    let mut rows = Rows::new();
    for (scope, privilege) in grants.iter() {
        let place = match (level, scope) {
            ("user_privileges", Scope::Global) => vec![],
            ("schema_privileges", Scope::Database(db)) => vec![text(db)],
            ("table_privileges", Scope::Table(db, table)) => vec![text(db), text(table)],
            _ => continue,
        };
        let mut row = vec![text(id.to_string()), text("internal")];
        row.extend(place);
        row.extend([text(privilege.word()), text("NO")]);
        rows.push(row);
    }
    rows
}
