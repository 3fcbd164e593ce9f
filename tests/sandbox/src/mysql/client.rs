//! The commands of a client that is logged in.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use tokio::io::{AsyncRead, AsyncWrite};

use super::handshake::{self, MULTI_STATEMENTS, PLUGIN};
use super::packet::{Packets, Take};
use super::prepared::PreparedStatement;
use super::{admit, binary, refused, reply};
use crate::connections::Slot;
use crate::engine::{Profile, Protocol, StatementResult};
use crate::error::SqlError;
use crate::faults::{Action, CommitFaults, OtherBytes, Site};
use crate::session::Session;
use crate::shared::Shared;
use crate::types::{TextStyle, text_value};

const COM_QUIT: u8 = 0x01;
const COM_INIT_DB: u8 = 0x02;
const COM_QUERY: u8 = 0x03;
const COM_FIELD_LIST: u8 = 0x04;
const COM_STATISTICS: u8 = 0x09;
const COM_PROCESS_INFO: u8 = 0x0a;
const COM_PROCESS_KILL: u8 = 0x0c;
const COM_PING: u8 = 0x0e;
const COM_CHANGE_USER: u8 = 0x11;
const COM_STMT_PREPARE: u8 = 0x16;
const COM_STMT_EXECUTE: u8 = 0x17;
const COM_STMT_SEND_LONG_DATA: u8 = 0x18;
const COM_STMT_CLOSE: u8 = 0x19;
const COM_STMT_RESET: u8 = 0x1a;
const COM_SET_OPTION: u8 = 0x1b;
const COM_RESET_CONNECTION: u8 = 0x1f;

/// Statements that one connection may have prepared (`max_prepared_stmt_count`).
const MAX_PREPARED: usize = 100_000;

/// One logged-in client.
pub(super) struct Client<S> {
    packets: Packets<S>,
    session: Session,
    shared: Arc<Shared>,
    address: String,
    salt: [u8; 20],
    multi_statements: bool,
    prepared: BTreeMap<u32, PreparedStatement>,
    next_prepared: u32,
    slot: Slot,
}

/// How the rows of a result are written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Text,
    Binary,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Client<S> {
    pub(super) fn new(
        packets: Packets<S>,
        session: Session,
        shared: Arc<Shared>,
        address: String,
        (capabilities, salt): (u32, [u8; 20]),
        slot: Slot,
    ) -> Self {
        let multi_statements = capabilities & MULTI_STATEMENTS != 0;
        let prepared = BTreeMap::new();
        Self { packets, session, shared, address, salt, multi_statements, prepared, next_prepared: 1, slot }
    }

    pub(super) async fn serve(mut self) -> io::Result<()> {
        loop {
            self.packets.reset_sequence();
            // The connection may be another one after COM_CHANGE_USER.
            let closed = self.session.listed.process.closed();
            let idle = self.session.variables.number("wait_timeout").unwrap_or(28_800);
            let read = tokio::select! {
                read = self.packets.read() => read,
                () = tokio::time::sleep(Duration::from_secs(idle)) => return Ok(()),
                () = closed.cancelled() => return Ok(()),
            };
            let payload = match read {
                Ok(Some(payload)) => payload,
                Ok(None) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                    let text = "Got a packet bigger than 'max_allowed_packet' bytes";
                    self.packets.write(&reply::err(1153, "08S01", text)).await?;
                    return self.packets.flush().await;
                }
                Err(error) => return Err(error),
            };
            let Some((&command, argument)) = payload.split_first() else {
                self.packets.write(&reply::err(1835, "HY000", "Malformed communication packet")).await?;
                return self.packets.flush().await;
            };
            if command == COM_QUIT {
                return Ok(());
            }
            let stays = self.command(command, argument).await?;
            self.packets.flush().await?;
            // What faults hold is let go now that the answer is out.
            self.session.commits = None;
            if !stays {
                return Ok(());
            }
        }
    }

    /// Answers a command; false when the connection ends with it.
    async fn command(&mut self, command: u8, argument: &[u8]) -> io::Result<bool> {
        match command {
            COM_QUERY => match std::str::from_utf8(argument) {
                Ok(sql) => self.query(sql).await?,
                Err(_) => self.packets.write(&reply::err(1300, "HY000", "Invalid utf8 character string")).await?,
            },
            COM_INIT_DB => {
                let result = self.session.use_database(&String::from_utf8_lossy(argument));
                self.done(result).await?;
            }
            COM_PING => self.packets.write(&reply::ok(0, "", 0, false)).await?,
            COM_RESET_CONNECTION => {
                self.session.reset();
                self.prepared.clear();
                self.done(Ok(())).await?;
            }
            COM_CHANGE_USER => return self.change_user(argument).await,
            COM_FIELD_LIST => self.field_list(argument).await?,
            COM_STATISTICS => {
                let engine = &self.shared.engine;
                let uptime = (engine.config().clock.now_ms() - engine.started_ms).max(0) / 1000;
                let threads = engine.processes.list().len();
                self.packets.write(format!("Uptime: {uptime}  Threads: {threads}").as_bytes()).await?;
            }
            COM_PROCESS_INFO => self.query("SHOW PROCESSLIST").await?,
            COM_PROCESS_KILL => match Take(argument).u32() {
                Some(id) => self.query(&format!("KILL {id}")).await?,
                None => self.packets.write(&reply::err(1047, "08S01", "Unknown command")).await?,
            },
            COM_SET_OPTION => {
                self.multi_statements = argument.first() == Some(&0);
                self.packets.write(&reply::eof(false)).await?;
            }
            COM_STMT_PREPARE => self.prepare(argument).await?,
            COM_STMT_EXECUTE => self.execute(argument).await?,
            // These two have no answer.
            COM_STMT_SEND_LONG_DATA => self.long_data(argument),
            COM_STMT_CLOSE => {
                if let Some(id) = Take(argument).u32() {
                    self.prepared.remove(&id);
                }
            }
            COM_STMT_RESET => {
                let known = Take(argument).u32().and_then(|id| self.prepared.get_mut(&id));
                let result = match known {
                    Some(statement) => {
                        statement.reset();
                        Ok(())
                    }
                    None => Err(unknown_statement(argument, "mysqld_stmt_reset")),
                };
                self.done(result).await?;
            }
            _ => self.packets.write(&reply::err(1047, "08S01", "Unknown command")).await?,
        }
        Ok(true)
    }

    /// COM_CHANGE_USER: logs in again on the same connection; a refusal ends it.
    async fn change_user(&mut self, argument: &[u8]) -> io::Result<bool> {
        let Some(mut login) = handshake::parse_change_user(argument) else {
            self.packets.write(&reply::err(1047, "08S01", "Unknown command")).await?;
            return Ok(false);
        };
        if login.plugin.as_deref().is_some_and(|p| p != PLUGIN) {
            self.packets.write(&handshake::auth_switch(&self.salt)).await?;
            self.packets.flush().await?;
            let Some(answer) = self.packets.read().await? else { return Ok(false) };
            login.auth = answer;
        }
        let engine = &self.shared.engine;
        if !engine.mysql_password_ok(&login.user, &self.address, &self.salt, &login.auth) {
            self.packets.write(&refused(&login, &self.address)).await?;
            return Ok(false);
        }
        let opened = admit(engine, &login.user).and_then(|slot| {
            let mut session = self.shared.open_session(&login.user, &self.address, Protocol::Mysql);
            login.database.as_deref().map_or(Ok(()), |db| session.use_database(db))?;
            Ok((slot, session))
        });
        match opened {
            Ok((slot, session)) => {
                (self.slot, self.session) = (slot, session);
                self.prepared.clear();
                self.done(Ok(())).await?;
                Ok(true)
            }
            Err(error) => {
                self.done(Err(error)).await?;
                Ok(false)
            }
        }
    }

    /// COM_STMT_PREPARE
    async fn prepare(&mut self, argument: &[u8]) -> io::Result<()> {
        match self.prepare_statement(argument).await {
            Ok((id, parameters, columns)) => {
                self.packets.write(&reply::prepared(id, columns.len(), parameters)).await?;
                for _ in 0..parameters {
                    self.packets.write(&reply::column("?", &crate::types::DorisType::Varchar(65533))).await?;
                }
                if parameters > 0 {
                    self.packets.write(&reply::eof(false)).await?;
                }
                for column in &columns {
                    self.packets.write(column).await?;
                }
                if !columns.is_empty() {
                    self.packets.write(&reply::eof(false)).await?;
                }
                Ok(())
            }
            Err(error) => self.packets.write(&reply::sql_err(&error)).await,
        }
    }

    /// Number, parameters and column definitions of a new prepared statement.
    async fn prepare_statement(&mut self, argument: &[u8]) -> Result<(u32, usize, Vec<Vec<u8>>), SqlError> {
        let sql = std::str::from_utf8(argument).map_err(|_| SqlError::bare(1300, "Invalid utf8 character string"))?;
        self.shared.requests.record(Site::Mysql, "PREPARE", sql, std::iter::empty());
        if self.prepared.len() >= MAX_PREPARED {
            return Err(SqlError::bare(1461, "Can't create more than max_prepared_stmt_count statements"));
        }
        let statement = PreparedStatement::new(&self.session, sql)?;
        let first = sql.trim_start().split(|c: char| !c.is_ascii_alphabetic()).next().unwrap_or_default();
        let preparable = ["SELECT", "INSERT", "WITH"].iter().any(|word| word.eq_ignore_ascii_case(first));
        if self.shared.profile() == Profile::V2_1 && !preparable {
            return Err(SqlError::bare(1295, "This command is not supported in the prepared statement protocol yet"));
        }
        let columns = self.session.describe(&statement.sample()).await?;
        let columns = columns.iter().map(|(name, ty)| reply::column(name, ty)).collect();
        let (id, parameters) = (self.next_prepared, statement.parameters());
        self.next_prepared = self.next_prepared.wrapping_add(1).max(1);
        self.prepared.insert(id, statement);
        Ok((id, parameters, columns))
    }

    /// COM_STMT_EXECUTE
    async fn execute(&mut self, argument: &[u8]) -> io::Result<()> {
        let escapes = self.session.variables.backslash_escapes();
        let mut take = Take(argument);
        let known = take.u32().and_then(|id| self.prepared.get_mut(&id));
        let Some(statement) = known else {
            let error = unknown_statement(argument, "mysqld_stmt_execute");
            return self.packets.write(&reply::sql_err(&error)).await;
        };
        // Flags ask for a cursor, which the server does not have; the iteration count is always one.
        let text = match take.bytes(5) {
            Some(_) => statement.literals(take.0, escapes).map(|literals| statement.with(&literals)),
            None => Err(SqlError::bare(1835, "Malformed communication packet")),
        };
        match text {
            Ok(text) => self.run(&text, Form::Binary).await,
            Err(error) => self.packets.write(&reply::sql_err(&error)).await,
        }
    }

    fn long_data(&mut self, argument: &[u8]) {
        let mut take = Take(argument);
        let (Some(id), Some(number)) = (take.u32(), take.bytes(2)) else { return };
        let number = usize::from(number[0]) | usize::from(number[1]) << 8;
        if let Some(statement) = self.prepared.get_mut(&id) {
            statement.add_long(number, take.0);
        }
    }

    async fn done(&mut self, result: Result<(), SqlError>) -> io::Result<()> {
        let packet = match result {
            Ok(()) => reply::ok(0, "", 0, false),
            Err(error) => reply::sql_err(&error),
        };
        self.packets.write(&packet).await
    }

    /// Column definitions of a table, for the name completion of old clients.
    async fn field_list(&mut self, argument: &[u8]) -> io::Result<()> {
        let table = String::from_utf8_lossy(Take(argument).until_nul()).into_owned();
        let meta = match self.session.database() {
            Some(db) => self.shared.engine.table_meta(db, &table),
            None => Err(SqlError::no_database()),
        };
        match meta {
            Ok(meta) => {
                for column in &meta.columns {
                    let mut definition = reply::column(&column.name, &column.ty);
                    definition.push(0xfb); // no default value
                    self.packets.write(&definition).await?;
                }
                self.packets.write(&reply::eof(false)).await
            }
            Err(error) => self.packets.write(&reply::sql_err(&error)).await,
        }
    }

    async fn query(&mut self, sql: &str) -> io::Result<()> {
        self.run(sql, Form::Text).await
    }

    async fn run(&mut self, sql: &str, form: Form) -> io::Result<()> {
        let id = self.shared.requests.record(Site::Mysql, "QUERY", sql, std::iter::empty());
        let able = |action: &Action| {
            matches!(action, Action::Status { .. } | Action::Wait(_) | Action::Delay(_) | Action::DropAnswer)
        };
        if self.shared.faults.any() {
            let (of, holds) = ((&self.shared.faults, &self.shared.requests), &self.shared.cluster.holds);
            self.session.commits = Some(Arc::new(CommitFaults::new(of, id, Site::Mysql, sql.to_owned(), holds)));
        }
        let fault = self.shared.faults.take_if(Site::Mysql, sql, able);
        if let Some(fault) = &fault {
            self.shared.requests.met(id, fault);
        }
        match fault {
            Some(Action::Status { code, body }) => {
                return self.packets.write(&reply::err(code, "HY000", &body)).await;
            }
            Some(Action::Delay(time)) => tokio::time::sleep(time).await,
            Some(Action::Wait(signal)) => signal.notified().await,
            Some(Action::DropAnswer) => {
                let _ = self.session.execute(sql).await;
                return Err(io::Error::other("connection cut by a fault"));
            }
            _ => {}
        }
        let statements = match self.session.split(sql) {
            Ok(statements) => statements,
            Err(error) => return self.packets.write(&reply::sql_err(&error)).await,
        };
        if statements.is_empty() {
            return self.packets.write(&reply::ok(0, "", 0, false)).await;
        }
        let other_bytes = self.shared.faults.other_bytes(Site::Mysql, sql);
        let last = statements.len() - 1;
        if last > 0 && !self.multi_statements {
            let text = "errCode = 2, detailMessage = several statements in one command need CLIENT_MULTI_STATEMENTS";
            return self.packets.write(&reply::err(1064, "42000", text)).await;
        }
        for (i, statement) in statements.iter().enumerate() {
            let result = match self.session.run(sql, statement).await {
                Ok(result) => result,
                Err(error) => return self.packets.write(&reply::sql_err(&error)).await,
            };
            // After an error no further result may follow.
            if !self.answer(result, i < last, form, other_bytes.as_ref()).await? {
                break;
            }
        }
        Ok(())
    }

    /// Sends one result; false when it ended in an error.
    async fn answer(
        &mut self,
        result: StatementResult,
        more: bool,
        form: Form,
        other_bytes: Option<&OtherBytes>,
    ) -> io::Result<bool> {
        let (schema, mut stream, types) = match result {
            StatementResult::Done { affected, info, warnings } => {
                self.packets.write(&reply::ok(affected, &info, warnings, more)).await?;
                return Ok(true);
            }
            StatementResult::Rows { schema, stream, types, .. } => (schema, stream, types),
        };
        self.packets.write(&reply::column_count(types.len())).await?;
        for (field, ty) in schema.fields().iter().zip(&types) {
            self.packets.write(&reply::column(field.name(), ty)).await?;
        }
        self.packets.write(&reply::eof(more)).await?;
        let mut line = Vec::new();
        while let Some(batch) = stream.next().await {
            let batch = match batch {
                Ok(batch) => batch,
                Err(error) => {
                    self.packets.write(&reply::sql_err(&crate::sql::engine_error(error))).await?;
                    return Ok(false);
                }
            };
            for row in 0..batch.num_rows() {
                let cells = batch.columns().iter().zip(&types);
                let text = |c: &arrow::array::ArrayRef, ty| text_value(c.as_ref(), row, ty, TextStyle::Mysql);
                match form {
                    Form::Text => reply::row(&mut line, cells.map(|(c, ty)| text(c, ty))),
                    Form::Binary => {
                        let cells: Vec<_> = cells.map(|(c, ty)| (reply::type_code(ty), text(c, ty))).collect();
                        binary::row(&mut line, &cells);
                    }
                }
                if let Some(other) = other_bytes {
                    other.put_into(&mut line);
                }
                self.packets.write(&line).await?;
            }
        }
        self.packets.write(&reply::eof(more)).await?;
        Ok(true)
    }
}

/// 1243.
fn unknown_statement(argument: &[u8], to: &str) -> SqlError {
    let id = Take(argument).u32().unwrap_or_default();
    SqlError::bare(1243, format!("Unknown prepared statement handler ({id}) given to {to}"))
}
