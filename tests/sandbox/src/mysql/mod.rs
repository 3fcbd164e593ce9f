//! MySQL protocol of the FE (`query_port`).
//!
//! Written by hand rather than on a crate: Doris sends its own error numbers, its own login refusal, several results
//! per command with the more-results flag, and refuses commands it does not know.

mod binary;
mod client;
mod handshake;
mod packet;
mod prepared;
mod reply;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use self::client::Client;
use self::handshake::{Login, PLUGIN};
use self::packet::Packets;
use crate::connections::{Limits, Slot};
use crate::engine::{Engine, Profile, Protocol};
use crate::error::SqlError;
use crate::faults::Site;
use crate::net::{self, Connection, Listener, NodeStream};
use crate::random;
use crate::shared::Shared;

/// A client that does not log in within this time is cut off.
const LOGIN_TIME: Duration = Duration::from_secs(60);

/// Serves until the returned future is dropped; `tls` is offered to clients that ask.
pub(crate) async fn serve(listener: Listener, shared: Arc<Shared>, tls: Option<TlsAcceptor>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            (stream, _peer) = listener.accept() => {
                let (shared, tls) = (Arc::clone(&shared), tls.clone());
                let id = shared.engine.next_connection();
                connections.spawn(async move {
                    if let Err(error) = connection(stream, id, shared, tls).await {
                        tracing::debug!(%error, "mysql connection ended");
                    }
                });
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Serves one client, from the greeting to the end of the connection.
async fn connection(stream: NodeStream, id: u64, shared: Arc<Shared>, tls: Option<TlsAcceptor>) -> io::Result<()> {
    let _open = shared.cluster.open(|cluster| &cluster.mysql_connections);
    let address = stream.info().peer.ip().to_string();
    let packets = Packets::new(Connection::Plain(stream));
    let login = match tokio::time::timeout(LOGIN_TIME, log_in(packets, &shared, id, &address, tls)).await {
        Ok(login) => login?,
        Err(_) => return Ok(()),
    };
    let Some((mut packets, login, salt)) = login else { return Ok(()) };
    let slot = match admit(&shared.engine, &login.user) {
        Ok(slot) => slot,
        Err(error) => {
            packets.write(&reply::sql_err(&error)).await?;
            return packets.flush().await;
        }
    };
    let mut session = shared.open_session_as(id, &login.user, &address, Protocol::Mysql);
    let opened = login.database.as_deref().map_or(Ok(()), |db| session.use_database(db));
    match opened {
        Ok(()) => packets.write(&reply::ok(0, "", 0, false)).await?,
        Err(error) => {
            packets.write(&reply::sql_err(&error)).await?;
            return packets.flush().await;
        }
    }
    packets.flush().await?;
    Client::new(packets, session, shared, address, (login.capabilities, salt), slot).serve().await
}

/// Takes a place in the pool of connections.
fn admit(engine: &Engine, user: &str) -> Result<Slot, SqlError> {
    let config = &engine.config().flight;
    let property = engine.users.max_connections(user);
    let limits = Limits {
        total: config.qe_max_connection,
        user: property.unwrap_or(config.max_user_connections),
        flight: config.flight_connections(engine.profile()),
    };
    engine.connections.admit(user, false, limits).map_err(|reached| match engine.profile() {
        Profile::V5_0Changelog => SqlError::bare(1203, reached),
        _ if reached.current() < limits.total => {
            SqlError::bare(1203, format!("User {user} already has more than 'max_user_connections' active connections"))
        }
        _ => SqlError::bare(1203, "Reach limit of connections"),
    })
}

/// Greets and authenticates; `None` when the client was refused or left.
async fn log_in(
    mut packets: Packets<Connection>,
    shared: &Shared,
    id: u64,
    address: &str,
    tls: Option<TlsAcceptor>,
) -> io::Result<Option<(Packets<Connection>, Login, [u8; 20])>> {
    let salt = salt();
    packets.write(&handshake::greeting(id as u32, &salt, tls.is_some())).await?;
    packets.flush().await?;
    let Some(mut payload) = packets.read().await? else { return Ok(None) };
    if let Some(tls) = tls
        && handshake::asks_for_tls(&payload)
    {
        packets = packets
            .replace(|connection| async {
                match connection {
                    Connection::Plain(stream) => net::secure(stream, Some(tls)).await,
                    secure @ Connection::Tls(_) => Ok(secure),
                }
            })
            .await?;
        let Some(login) = packets.read().await? else { return Ok(None) };
        payload = login;
    }
    let secure = packets.stream().is_tls();
    let mut login = match handshake::parse_login(&payload, secure) {
        Ok(login) => login,
        Err(text) => {
            packets.write(&reply::err(1043, "08S01", text)).await?;
            packets.flush().await?;
            return Ok(None);
        }
    };
    if shared.cluster.tls.mysql_required && !secure {
        let text = "Connections using insecure transport are prohibited while --require_secure_transport=ON.";
        packets.write(&reply::err(3159, "HY000", text)).await?;
        packets.flush().await?;
        return Ok(None);
    }
    if login.plugin.as_deref().is_some_and(|p| p != PLUGIN) {
        packets.write(&handshake::auth_switch(&salt)).await?;
        packets.flush().await?;
        let Some(answer) = packets.read().await? else { return Ok(None) };
        login.auth = answer;
    }
    shared.requests.record(Site::Mysql, "LOGIN", &login.user, std::iter::empty());
    if shared.engine.mysql_password_ok(&login.user, address, &salt, &login.auth) {
        return Ok(Some((packets, login, salt)));
    }
    packets.write(&refused(&login, address)).await?;
    packets.flush().await?;
    Ok(None)
}

/// 1045.
fn refused(login: &Login, address: &str) -> Vec<u8> {
    let used = if login.auth.is_empty() { "NO" } else { "YES" };
    let text = format!("Access denied for user '{}@{address}' (using password: {used})", login.user);
    reply::err(1045, "28000", &text)
}

/// 20 bytes that hold neither NUL nor `$`.
fn salt() -> [u8; 20] {
    let mut salt = [0; 20];
    for (out, byte) in salt.iter_mut().zip(random::bytes()) {
        *out = b'0' + byte % 64;
    }
    salt
}

#[cfg(test)]
mod tests;
