//! SHOW statements about the cluster, databases, sessions and transactions.

use datafusion::sql::sqlparser::tokenizer::Token;

use super::cursor::Cursor;
use super::ddl::database_name;
use super::output::text_rows;
use super::{show_cluster, show_table, users, views};
use crate::engine::{CLUSTER_ID, StatementResult};
use crate::error::SqlError;
use crate::session::Session;
use crate::types::format_datetime;
use crate::users::Privilege;

pub(super) type Row = Vec<Option<String>>;

pub(super) fn cell(value: impl ToString) -> Option<String> {
    Some(value.to_string())
}

/// `LIKE 'pattern'`, or `WHERE column = 'value' [AND ...]` with `=`, `!=` and `LIKE`: a filter on the rows of a SHOW.
pub(super) struct Filter {
    pattern: Option<String>,
    conditions: Vec<Condition>,
}

struct Condition {
    column: String,
    test: Test,
    value: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Test {
    Equal,
    Unequal,
    Like,
}

impl Filter {
    /// Reads the end of a SHOW statement.
    pub(super) fn read(cursor: &mut Cursor<'_>) -> Result<Self, SqlError> {
        let mut filter = Self { pattern: None, conditions: Vec::new() };
        if cursor.eat("LIKE") {
            filter.pattern = Some(cursor.string()?);
        } else if cursor.eat("WHERE") {
            loop {
                filter.conditions.push(Condition::read(cursor)?);
                if !cursor.eat("AND") && cursor.peek() != Some(&Token::make_keyword("AND")) {
                    break;
                }
                if cursor.peek() == Some(&Token::make_keyword("AND")) {
                    cursor.at += 1;
                }
            }
        }
        cursor.expect_end()?;
        Ok(filter)
    }

    fn places(&self, names: &[&str]) -> Result<Vec<usize>, SqlError> {
        self.conditions
            .iter()
            .map(|condition| {
                let found = names.iter().position(|name| name.eq_ignore_ascii_case(&condition.column));
                found.ok_or_else(|| SqlError::unknown_column(&condition.column, "where clause"))
            })
            .collect()
    }

    /// Whether every column exists.
    pub(super) fn check(&self, names: &[&str]) -> Result<(), SqlError> {
        self.places(names).map(drop)
    }

    /// Keeps the rows that pass; a bare LIKE looks at column `like_at`.
    pub(super) fn apply(&self, names: &[&str], rows: &mut Vec<Row>, like_at: usize) -> Result<(), SqlError> {
        let places = self.places(names)?;
        rows.retain(|row| {
            let text = |at: usize| row.get(at).and_then(Option::as_deref);
            let liked = self.pattern.as_ref().is_none_or(|pattern| text(like_at).is_some_and(|t| like(t, pattern)));
            let passes = |(condition, at): (&Condition, &usize)| text(*at).is_some_and(|t| condition.passes(t));
            liked && self.conditions.iter().zip(&places).all(passes)
        });
        Ok(())
    }
}

impl Condition {
    fn read(cursor: &mut Cursor<'_>) -> Result<Self, SqlError> {
        let column = cursor.ident()?;
        let test = if cursor.eat("LIKE") {
            Test::Like
        } else if cursor.eat_token(&Token::Neq) {
            Test::Unequal
        } else {
            cursor.expect_token(&Token::Eq)?;
            Test::Equal
        };
        let value = match cursor.peek() {
            Some(Token::Number(_, _)) => cursor.number()?.to_string(),
            Some(Token::Word(_)) => cursor.ident()?,
            _ => cursor.string()?,
        };
        Ok(Self { column, test, value })
    }

    fn passes(&self, text: &str) -> bool {
        match self.test {
            Test::Equal => text.eq_ignore_ascii_case(&self.value),
            Test::Unequal => !text.eq_ignore_ascii_case(&self.value),
            Test::Like => like(text, &self.value),
        }
    }
}

/// MySQL LIKE without case, as SHOW compares.
pub(crate) fn like(text: &str, pattern: &str) -> bool {
    fn go(text: &[char], pattern: &[char]) -> bool {
        match pattern.first() {
            None => text.is_empty(),
            Some('%') => (0..=text.len()).any(|skip| go(&text[skip..], &pattern[1..])),
            Some('\\') if pattern.len() > 1 => text.first() == Some(&pattern[1]) && go(&text[1..], &pattern[2..]),
            Some('_') => !text.is_empty() && go(&text[1..], &pattern[1..]),
            Some(c) => text.first() == Some(c) && go(&text[1..], &pattern[1..]),
        }
    }
    let chars = |t: &str| t.to_lowercase().chars().collect::<Vec<_>>();
    go(&chars(text), &chars(pattern))
}

/// Milliseconds as `YYYY-MM-DD HH:MM:SS` in the session zone.
pub(super) fn time_text(session: &Session, ms: i64) -> String {
    let zone = session.variables.zone();
    format_datetime((ms + zone.offset_at(ms.div_euclid(1000)) * 1000) * 1000, 0)
}

pub(super) fn run(session: &mut Session, cursor: &mut Cursor<'_>) -> Result<StatementResult, SqlError> {
    let full = cursor.eat("FULL");
    let word = cursor.ident()?.to_ascii_uppercase();
    match word.as_str() {
        "DATABASES" | "SCHEMAS" => {
            if cursor.eat("FROM") || cursor.eat("IN") {
                super::ddl::check_catalog(&cursor.ident()?)?;
            }
            let filter = Filter::read(cursor)?;
            let mut rows: Vec<Row> =
                show_cluster::databases(session).into_iter().map(|name| vec![Some(name)]).collect();
            filter.apply(&["Database"], &mut rows, 0)?;
            text_rows(&["Database"], rows)
        }
        "CATALOGS" => show_cluster::catalogs(cursor),
        "TABLES" => show_table::tables(session, cursor, full),
        "COLUMNS" | "FIELDS" => match views::show_columns(session, cursor, full)? {
            Some(result) => Ok(result),
            None => show_table::columns(session, cursor, full),
        },
        "CREATE" => match views::show_create(session, cursor)? {
            Some(result) => Ok(result),
            None => show_table::create(session, cursor),
        },
        "VIEW" => views::show_using(session, cursor),
        "TABLE" => {
            cursor.expect("STATUS")?;
            show_table::status(session, cursor)
        }
        "PARTITIONS" => show_table::partitions(session, cursor),
        "ALTER" => super::alter::show(session, cursor),
        "TABLETS" => show_table::tablets(session, cursor),
        "COLUMN" => super::statistics::show(session, cursor),
        "INDEX" | "INDEXES" | "KEYS" => show_table::indexes(session, cursor),
        "FRONTENDS" => {
            let (names, rows) = frontends(session);
            text_rows(&names, rows)
        }
        "BACKENDS" => {
            let (names, rows) = backends(session)?;
            text_rows(&names, rows)
        }
        "VARIABLES" => variables(session, cursor, false),
        "SESSION" | "LOCAL" if cursor.eat("VARIABLES") => variables(session, cursor, false),
        "GLOBAL" if cursor.eat("VARIABLES") => variables(session, cursor, true),
        "SESSION" | "LOCAL" | "GLOBAL" if cursor.eat("STATUS") => nothing("STATUS", cursor, full),
        "PROCESSLIST" => show_cluster::processlist(session, cursor, full),
        "GRANTS" => users::show_grants(session, cursor, false),
        "ALL" => {
            cursor.expect("GRANTS")?;
            users::show_grants(session, cursor, true)
        }
        "ROLES" => users::show_roles(session, cursor),
        "PROPERTY" => users::show_property(session, cursor),
        "DATA" => show_cluster::data(session, cursor),
        "LOAD" => show_cluster::load(session, cursor),
        "TRANSACTION" => transaction(session, cursor),
        "LAST" => {
            cursor.expect("INSERT")?;
            last_insert(session)
        }
        "ENGINES" | "COLLATION" | "CHARSET" => show_cluster::constant(&word, cursor),
        "CHARACTER" => {
            cursor.expect("SET")?;
            show_cluster::constant("CHARSET", cursor)
        }
        _ => nothing(&word, cursor, full),
    }
}

fn nothing(word: &str, cursor: &mut Cursor<'_>, full: bool) -> Result<StatementResult, SqlError> {
    match show_cluster::nothing(word, cursor, full)? {
        Some(result) => Ok(result),
        None => Err(SqlError::not_served(format!("SHOW {word}"))),
    }
}

fn variables(session: &Session, cursor: &mut Cursor<'_>, global: bool) -> Result<StatementResult, SqlError> {
    let variables = match global {
        true => super::Variables::new(session.engine.config(), &session.engine.globals.read()),
        false => session.variables.clone(),
    };
    let filter = Filter::read(cursor)?;
    let names = ["Variable_name", "Value", "Default_Value", "Changed"];
    let mut rows: Vec<Row> = variables
        .list()
        .map(|(name, value, default, changed)| vec![cell(name), cell(value), cell(default), cell(u8::from(changed))])
        .collect();
    filter.apply(&names, &mut rows, 0)?;
    text_rows(&names, rows)
}

/// A port that is not served prints as -1.
fn port(port: u16) -> Option<String> {
    if port == 0 { cell(-1) } else { cell(port) }
}

/// What a node that sends no heartbeat is listed with.
fn down(alive: bool) -> &'static str {
    if alive { "" } else { "got exception: java.net.ConnectException: Connection refused" }
}

pub(super) fn frontends(session: &Session) -> (Vec<&'static str>, Vec<Row>) {
    let engine = &session.engine;
    let now = time_text(session, engine.config().clock.now_ms());
    let names = vec![
        "Name",
        "Host",
        "EditLogPort",
        "HttpPort",
        "QueryPort",
        "RpcPort",
        "ArrowFlightSqlPort",
        "Role",
        "IsMaster",
        "ClusterId",
        "Join",
        "Alive",
        "ReplayedJournalId",
        "LastStartTime",
        "LastHeartbeat",
        "IsHelper",
        "ErrMsg",
        "Version",
        "CurrentConnected",
    ];
    let topology = engine.topology();
    let rows = topology.frontends.iter().enumerate().map(|(i, node)| {
        vec![
            cell(format!("fe_{i}")),
            cell(&node.host),
            cell(9010 + 100 * i),
            port(node.http_port),
            port(node.query_port),
            cell(9020 + 100 * i),
            port(node.flight_port),
            cell("FOLLOWER"),
            cell(i == topology.master),
            cell(CLUSTER_ID),
            cell(true),
            cell(node.alive),
            cell(1),
            cell(time_text(session, node.started_ms)),
            cell(&now),
            cell(true),
            cell(down(node.alive)),
            cell(engine.profile().version()),
            cell(if i == session.frontend { "Yes" } else { "No" }),
        ]
    });
    (names, rows.collect())
}

pub(super) fn backends(session: &Session) -> Result<(Vec<&'static str>, Vec<Row>), SqlError> {
    let engine = &session.engine;
    super::privileges::check_global(session, &[Privilege::Admin, Privilege::Node])?;
    let now = time_text(session, engine.config().clock.now_ms());
    let names = vec![
        "BackendId",
        "Host",
        "HeartbeatPort",
        "BePort",
        "HttpPort",
        "BrpcPort",
        "ArrowFlightSqlPort",
        "LastStartTime",
        "LastHeartbeat",
        "Alive",
        "SystemDecommissioned",
        "TabletNum",
        "DataUsedCapacity",
        "TrashUsedCapacity",
        "AvailCapacity",
        "TotalCapacity",
        "UsedPct",
        "MaxDiskUsedPct",
        "RemoteUsedCapacity",
        "Tag",
        "ErrMsg",
        "Version",
        "Status",
        "HeartbeatFailureCounter",
        "CpuCores",
        "Memory",
        "RunningTasks",
        "NodeRole",
    ];
    let nodes = engine.topology().backends;
    let (tablets, backends) = (engine.tablet_count(), nodes.len().max(1));
    let rows = nodes.iter().enumerate().map(|(i, node)| {
        vec![
            cell(10_001 + i),
            cell(&node.host),
            cell(9050 + 100 * i),
            cell(9060 + 100 * i),
            port(node.http_port),
            cell(8060 + 100 * i),
            port(node.flight_port),
            cell(time_text(session, node.started_ms)),
            cell(&now),
            cell(node.alive),
            cell(false),
            cell(tablets.div_ceil(backends)),
            cell("0.000 "),
            cell("0.000 "),
            cell("1.000 TB"),
            cell("1.000 TB"),
            cell("0.00 %"),
            cell("0.00 %"),
            cell("0.000 "),
            cell("{\"location\" : \"default\"}"),
            cell(down(node.alive)),
            cell(engine.profile().version()),
            cell("{\"isQueryDisabled\":false,\"isLoadDisabled\":false,\"isActive\":true}"),
            cell(usize::from(!node.alive)),
            cell(2),
            cell("8.00 GB"),
            cell(0),
            cell("mix"),
        ]
    });
    Ok((names, rows.collect()))
}

/// `SHOW TRANSACTION [FROM db] WHERE id = n | label = 'l'`
fn transaction(session: &Session, cursor: &mut Cursor<'_>) -> Result<StatementResult, SqlError> {
    let db = if cursor.eat("FROM") || cursor.eat("IN") {
        database_name(cursor)?
    } else {
        session.database.clone().ok_or_else(SqlError::no_database)?
    };
    let engine = &session.engine;
    engine.catalog.database_id(&db)?;
    cursor.expect("WHERE")?;
    let column = cursor.ident()?.to_ascii_lowercase();
    cursor.expect_token(&Token::Eq)?;
    let found = match column.as_str() {
        "id" => {
            let id = cursor.number()? as i64;
            Some(
                engine
                    .txns
                    .find(&db, id)
                    .ok_or_else(|| SqlError::detail(format!("transaction with id {id} does not exist")))?,
            )
        }
        "label" => {
            let label = cursor.string()?;
            Some(
                engine
                    .txns
                    .find_label(&db, &label)
                    .ok_or_else(|| SqlError::detail(format!("transaction with label {label} does not exist")))?,
            )
        }
        "status" => None,
        _ => {
            return Err(SqlError::detail(
                "Where clause should looks like one of them: id = 123 or label = 'label' or status = 'prepare/precommitted/committed/visible/aborted'",
            ));
        }
    };
    let views = match found {
        Some(view) => vec![view],
        None => {
            let status = cursor.string()?;
            engine.txns.list(&db).into_iter().filter(|t| t.state.name().eq_ignore_ascii_case(&status)).collect()
        }
    };
    cursor.expect_end()?;
    let names = [
        "TransactionId",
        "Label",
        "Coordinator",
        "TransactionStatus",
        "LoadJobSourceType",
        "PrepareTime",
        "PreCommitTime",
        "CommitTime",
        "PublishTime",
        "FinishTime",
        "Reason",
        "ErrorReplicasCount",
        "ListenerId",
        "TimeoutMs",
        "ErrMsg",
        "TableName",
        "LoadedRows",
    ];
    let time = |ms: Option<i64>| ms.map(|ms| time_text(session, ms));
    let rows = views.into_iter().map(|view| {
        let visible = view.finished_ms.filter(|_| view.state == crate::txn::TxnState::Visible);
        let coordinator = view.coordinator();
        vec![
            cell(view.id),
            Some(view.label),
            cell(coordinator),
            cell(view.state),
            cell(if view.source == "INSERT" { "INSERT_STREAMING" } else { view.source }),
            time(Some(view.prepared_ms)),
            time(view.precommitted_ms),
            time(view.committed_ms),
            time(visible),
            time(view.finished_ms),
            Some(view.reason.clone()),
            cell(0),
            cell(-1),
            cell(view.timeout_ms),
            Some(view.reason),
            Some(view.table),
            cell(view.rows),
        ]
    });
    text_rows(&names, rows.collect())
}

fn last_insert(session: &Session) -> Result<StatementResult, SqlError> {
    let names = ["TransactionId", "Label", "Database", "Table", "TransactionStatus", "LoadedRows", "FilteredRows"];
    let rows = session.last_insert.iter().map(|last| {
        vec![
            cell(last.txn_id),
            cell(&last.label),
            cell(&last.db),
            cell(&last.table),
            cell(last.status),
            cell(last.rows),
            cell(last.filtered),
        ]
    });
    text_rows(&names, rows.collect())
}
