//! MySQL protocol of the FE (`query_port`).
//!
//! Written by hand rather than on a crate: Doris sends its own error numbers, its own login refusal, several results
//! per command with the more-results flag, and refuses commands it does not know.

mod handshake;
mod packet;
mod reply;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures::StreamExt;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use self::handshake::{Login, MULTI_STATEMENTS, PLUGIN};
use self::packet::Packets;
use crate::engine::{Protocol, StatementResult};
use crate::error::SqlError;
use crate::faults::{Action, Site};
use crate::random;
use crate::session::Session;
use crate::shared::Shared;
use crate::types::{TextStyle, text_value};

/// Pause after a failed accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// A client that does not log in within this time is cut off.
const LOGIN_TIME: Duration = Duration::from_secs(60);

const COM_QUIT: u8 = 0x01;
const COM_INIT_DB: u8 = 0x02;
const COM_QUERY: u8 = 0x03;
const COM_FIELD_LIST: u8 = 0x04;
const COM_STATISTICS: u8 = 0x09;
const COM_PING: u8 = 0x0e;
const COM_STMT_PREPARE: u8 = 0x16;
const COM_STMT_SEND_LONG_DATA: u8 = 0x18;
const COM_STMT_CLOSE: u8 = 0x19;
const COM_SET_OPTION: u8 = 0x1b;
const COM_RESET_CONNECTION: u8 = 0x1f;

/// Serves until the returned future is dropped.
pub(crate) async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    static CONNECTIONS: AtomicU32 = AtomicU32::new(1);
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => {
                    let shared = Arc::clone(&shared);
                    let id = CONNECTIONS.fetch_add(1, Ordering::Relaxed);
                    connections.spawn(async move {
                        if let Err(error) = stream.set_nodelay(true) {
                            tracing::debug!(%error, "no TCP_NODELAY");
                        }
                        if let Err(error) = connection(stream, peer, id, shared).await {
                            tracing::debug!(%error, "mysql connection ended");
                        }
                    });
                }
                Err(error) => {
                    // Out of file descriptors, most likely: they come back when connections end.
                    tracing::warn!(%error, "accept failed");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

/// One logged-in client.
struct Client<S> {
    packets: Packets<S>,
    session: Session,
    shared: Arc<Shared>,
    user: String,
    address: String,
    multi_statements: bool,
}

/// Serves one client over any transport, from the greeting to the end of the connection.
async fn connection<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    peer: SocketAddr,
    id: u32,
    shared: Arc<Shared>,
) -> io::Result<()> {
    let mut packets = Packets::new(stream);
    let address = peer.ip().to_string();
    let login = match tokio::time::timeout(LOGIN_TIME, log_in(&mut packets, &shared, id, &address)).await {
        Ok(login) => login?,
        Err(_) => return Ok(()),
    };
    let Some(login) = login else { return Ok(()) };
    let mut session = shared.engine.open_session(&login.user, &address, Protocol::Mysql);
    let opened = login.database.as_deref().map_or(Ok(()), |db| session.use_database(db));
    match opened {
        Ok(()) => packets.write(&reply::ok(0, "", false)).await?,
        Err(error) => {
            packets.write(&reply::sql_err(&error)).await?;
            return packets.flush().await;
        }
    }
    packets.flush().await?;
    let multi_statements = login.capabilities & MULTI_STATEMENTS != 0;
    Client { packets, session, shared, user: login.user, address, multi_statements }.serve().await
}

/// Greets and authenticates; `None` when the client was refused or left.
async fn log_in<S: AsyncRead + AsyncWrite + Unpin>(
    packets: &mut Packets<S>,
    shared: &Shared,
    id: u32,
    address: &str,
) -> io::Result<Option<Login>> {
    let salt = salt();
    packets.write(&handshake::greeting(id, &salt)).await?;
    packets.flush().await?;
    let Some(payload) = packets.read().await? else { return Ok(None) };
    let mut login = match handshake::parse_login(&payload) {
        Ok(login) => login,
        Err(text) => {
            packets.write(&reply::err(1043, "08S01", text)).await?;
            packets.flush().await?;
            return Ok(None);
        }
    };
    if login.plugin.as_deref().is_some_and(|p| p != PLUGIN) {
        packets.write(&handshake::auth_switch(&salt)).await?;
        packets.flush().await?;
        let Some(answer) = packets.read().await? else { return Ok(None) };
        login.auth = answer;
    }
    shared.requests.record(Site::Mysql, "LOGIN", &login.user, std::iter::empty());
    if shared.engine.mysql_password_ok(&login.user, &salt, &login.auth) {
        return Ok(Some(login));
    }
    let used = if login.auth.is_empty() { "NO" } else { "YES" };
    let text = format!("Access denied for user '{}@{address}' (using password: {used})", login.user);
    packets.write(&reply::err(1045, "28000", &text)).await?;
    packets.flush().await?;
    Ok(None)
}

/// 20 bytes that hold neither NUL nor `$`.
fn salt() -> [u8; 20] {
    let mut salt = [0; 20];
    for (out, byte) in salt.iter_mut().zip(random::bytes()) {
        *out = b'0' + byte % 64;
    }
    salt
}

impl<S: AsyncRead + AsyncWrite + Unpin> Client<S> {
    async fn serve(mut self) -> io::Result<()> {
        loop {
            self.packets.reset_sequence();
            let Some(payload) = self.packets.read().await? else { return Ok(()) };
            let Some((&command, argument)) = payload.split_first() else { continue };
            if command == COM_QUIT {
                return Ok(());
            }
            self.command(command, argument).await?;
            self.packets.flush().await?;
        }
    }

    async fn command(&mut self, command: u8, argument: &[u8]) -> io::Result<()> {
        match command {
            COM_QUERY => match std::str::from_utf8(argument) {
                Ok(sql) => self.query(sql).await,
                Err(_) => self.packets.write(&reply::err(1300, "HY000", "Invalid utf8 character string")).await,
            },
            COM_INIT_DB => {
                let result = self.session.use_database(&String::from_utf8_lossy(argument));
                self.done(result).await
            }
            COM_PING => self.packets.write(&reply::ok(0, "", false)).await,
            COM_RESET_CONNECTION => {
                let database = self.session.database().map(str::to_owned);
                self.session = self.shared.engine.open_session(&self.user, &self.address, Protocol::Mysql);
                let result = database.map_or(Ok(()), |db| self.session.use_database(&db));
                self.done(result).await
            }
            COM_FIELD_LIST => self.field_list(argument).await,
            COM_STATISTICS => self.packets.write(b"Uptime: 0").await,
            COM_SET_OPTION => {
                self.multi_statements = argument.first() == Some(&0);
                self.packets.write(&reply::eof(false)).await
            }
            // These two have no answer.
            COM_STMT_SEND_LONG_DATA | COM_STMT_CLOSE => Ok(()),
            COM_STMT_PREPARE => {
                let text = "This command is not supported in the prepared statement protocol yet";
                self.packets.write(&reply::err(1295, "HY000", text)).await
            }
            _ => self.packets.write(&reply::err(1047, "08S01", "Unknown command")).await,
        }
    }

    async fn done(&mut self, result: Result<(), SqlError>) -> io::Result<()> {
        let packet = match result {
            Ok(()) => reply::ok(0, "", false),
            Err(error) => reply::sql_err(&error),
        };
        self.packets.write(&packet).await
    }

    /// Column definitions of a table, for the name completion of old clients.
    async fn field_list(&mut self, argument: &[u8]) -> io::Result<()> {
        let table = String::from_utf8_lossy(packet::Take(argument).until_nul()).into_owned();
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
        self.shared.requests.record(Site::Mysql, "QUERY", sql, std::iter::empty());
        match self.shared.faults.take(Site::Mysql, sql) {
            Some(Action::Status { code, body }) => {
                return self.packets.write(&reply::err(code, "HY000", &body)).await;
            }
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
            return self.packets.write(&reply::ok(0, "", false)).await;
        }
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
            if !self.answer(result, i < last).await? {
                break;
            }
        }
        Ok(())
    }

    /// Sends one result; false when it ended in an error.
    async fn answer(&mut self, result: StatementResult, more: bool) -> io::Result<bool> {
        let (schema, mut stream, types) = match result {
            StatementResult::Done { affected, info } => {
                self.packets.write(&reply::ok(affected, &info, more)).await?;
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
                    self.packets.write(&reply::sql_err(&SqlError::detail(error.to_string()))).await?;
                    return Ok(false);
                }
            };
            for row in 0..batch.num_rows() {
                let cells = batch.columns().iter().zip(&types);
                reply::row(&mut line, cells.map(|(c, ty)| text_value(c.as_ref(), row, ty, TextStyle::Mysql)));
                self.packets.write(&line).await?;
            }
        }
        self.packets.write(&reply::eof(more)).await?;
        Ok(true)
    }
}

#[cfg(test)]
mod tests;
