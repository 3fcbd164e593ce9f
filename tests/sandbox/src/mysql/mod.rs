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
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use self::client::Client;
use self::handshake::{Login, PLUGIN};
use self::packet::Packets;
use crate::connections::{Limits, Slot};
use crate::engine::{Engine, Profile, Protocol};
use crate::error::SqlError;
use crate::faults::Site;
use crate::random;
use crate::shared::Shared;

/// Pause after a failed accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// A client that does not log in within this time is cut off.
const LOGIN_TIME: Duration = Duration::from_secs(60);

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
    let Some((login, salt)) = login else { return Ok(()) };
    let slot = match admit(&shared.engine, &login.user) {
        Ok(slot) => slot,
        Err(error) => {
            packets.write(&reply::sql_err(&error)).await?;
            return packets.flush().await;
        }
    };
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
async fn log_in<S: AsyncRead + AsyncWrite + Unpin>(
    packets: &mut Packets<S>,
    shared: &Shared,
    id: u32,
    address: &str,
) -> io::Result<Option<(Login, [u8; 20])>> {
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
    if shared.engine.mysql_password_ok(&login.user, address, &salt, &login.auth) {
        return Ok(Some((login, salt)));
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
