//! Protocol 10 handshake with `mysql_native_password`.

use super::packet::Take;

/// Server version text of the builds served.
const VERSION: &str = "5.7.99";
/// The only authentication plugin.
pub(super) const PLUGIN: &[u8] = b"mysql_native_password";
/// Character set `utf8_general_ci`.
const CHARSET: u8 = 33;

const LONG_PASSWORD: u32 = 1;
const FOUND_ROWS: u32 = 1 << 1;
const LONG_FLAG: u32 = 1 << 2;
const CONNECT_WITH_DB: u32 = 1 << 3;
const PROTOCOL_41: u32 = 1 << 9;
const SSL: u32 = 1 << 11;
const TRANSACTIONS: u32 = 1 << 13;
const SECURE_CONNECTION: u32 = 1 << 15;
/// The client sends several statements in one command.
pub(super) const MULTI_STATEMENTS: u32 = 1 << 16;
const MULTI_RESULTS: u32 = 1 << 17;
const PLUGIN_AUTH: u32 = 1 << 19;
const CONNECT_ATTRS: u32 = 1 << 20;
const PLUGIN_AUTH_LENENC: u32 = 1 << 21;

const CAPABILITIES: u32 = LONG_PASSWORD
    | FOUND_ROWS
    | LONG_FLAG
    | CONNECT_WITH_DB
    | PROTOCOL_41
    | TRANSACTIONS
    | SECURE_CONNECTION
    | MULTI_STATEMENTS
    | MULTI_RESULTS
    | PLUGIN_AUTH
    | CONNECT_ATTRS
    | PLUGIN_AUTH_LENENC;

/// Bytes of the packet that asks for TLS.
const SSL_REQUEST_BYTES: usize = 32;

/// The first packet of a connection; `tls` offers TLS.
pub(super) fn greeting(connection: u32, salt: &[u8; 20], tls: bool) -> Vec<u8> {
    let mut out = vec![10];
    out.extend_from_slice(VERSION.as_bytes());
    out.push(0);
    out.extend_from_slice(&connection.to_le_bytes());
    out.extend_from_slice(&salt[..8]);
    out.push(0);
    let capabilities = (CAPABILITIES | if tls { SSL } else { 0 }).to_le_bytes();
    out.extend_from_slice(&capabilities[..2]);
    out.push(CHARSET);
    out.extend_from_slice(&[0, 0]); // status flags
    out.extend_from_slice(&capabilities[2..]);
    out.push(salt.len() as u8 + 1);
    out.extend_from_slice(&[0; 10]);
    out.extend_from_slice(&salt[8..]);
    out.push(0);
    out.extend_from_slice(PLUGIN);
    out.push(0);
    out
}

/// Asks the client to answer `salt` with our plugin.
pub(super) fn auth_switch(salt: &[u8; 20]) -> Vec<u8> {
    let mut out = vec![0xfe];
    out.extend_from_slice(PLUGIN);
    out.push(0);
    out.extend_from_slice(salt);
    out.push(0);
    out
}

/// What the client answers to the greeting.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Login {
    pub capabilities: u32,
    pub user: String,
    pub auth: Vec<u8>,
    pub database: Option<String>,
    pub plugin: Option<Vec<u8>>,
}

/// Whether the client asks for TLS before it logs in.
pub(super) fn asks_for_tls(payload: &[u8]) -> bool {
    payload.len() == SSL_REQUEST_BYTES && Take(payload).u32().is_some_and(|capabilities| capabilities & SSL != 0)
}

/// Reads a login packet; `secure` when it came over TLS.
///
/// # Errors
/// Why it is refused, as a text for the client.
pub(super) fn parse_login(payload: &[u8], secure: bool) -> Result<Login, &'static str> {
    let mut take = Take(payload);
    let capabilities = take.u32().ok_or("Bad handshake")?;
    if capabilities & PROTOCOL_41 == 0 {
        return Err("Bad handshake: the client must speak protocol 4.1");
    }
    if capabilities & SSL != 0 && !secure {
        return Err("Bad handshake: the client asked for SSL and did not begin it");
    }
    read_fields(capabilities, &mut take).ok_or("Bad handshake")
}

/// Reads the argument of COM_CHANGE_USER; `None` when it is too short.
pub(super) fn parse_change_user(argument: &[u8]) -> Option<Login> {
    let mut take = Take(argument);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let user = text(take.until_nul());
    let length = usize::from(take.u8()?);
    let auth = take.bytes(length)?.to_vec();
    let database = Some(text(take.until_nul())).filter(|db| !db.is_empty());
    take.bytes(2); // charset
    let plugin = (!take.0.is_empty()).then(|| take.until_nul().to_vec());
    Some(Login { capabilities: 0, user, auth, database, plugin })
}

fn read_fields(capabilities: u32, take: &mut Take<'_>) -> Option<Login> {
    let has = |flag: u32| capabilities & flag != 0;
    take.bytes(4 + 1 + 23)?; // max packet, charset, filler
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let user = text(take.until_nul());
    let auth = if has(PLUGIN_AUTH_LENENC) {
        let length = usize::try_from(take.length()?).ok()?;
        take.bytes(length)?
    } else if has(SECURE_CONNECTION) {
        let length = usize::from(take.u8()?);
        take.bytes(length)?
    } else {
        take.until_nul()
    }
    .to_vec();
    let database = has(CONNECT_WITH_DB).then(|| text(take.until_nul())).filter(|db| !db.is_empty());
    let plugin = has(PLUGIN_AUTH).then(|| take.until_nul().to_vec());
    Some(Login { capabilities, user, auth, database, plugin })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    fn login(capabilities: u32, tail: &[u8]) -> Result<Login, &'static str> {
        let mut payload = capabilities.to_le_bytes().to_vec();
        payload.extend_from_slice(&[0; 28]);
        payload.extend_from_slice(tail);
        parse_login(&payload, false)
    }

    #[test]
    fn a_login_with_database_and_plugin_is_read() {
        let caps = PROTOCOL_41 | SECURE_CONNECTION | CONNECT_WITH_DB | PLUGIN_AUTH | PLUGIN_AUTH_LENENC;
        let read = login(caps, b"root\0\x02ab\x64b\0mysql_native_password\0").expect("login");
        assert_eq!((read.user.as_str(), read.auth.as_slice()), ("root", b"ab".as_slice()));
        assert_eq!(read.database.as_deref(), Some("db"));
        assert_eq!(read.plugin.as_deref(), Some(PLUGIN));
    }

    #[test]
    fn short_and_foreign_logins_are_refused() {
        assert!(parse_login(&[1, 2], false).is_err());
        assert_eq!(login(PROTOCOL_41 | SECURE_CONNECTION, b"root\0\x20ab"), Err("Bad handshake"));
        assert!(login(SECURE_CONNECTION, b"root\0\0").is_err());
        assert!(login(PROTOCOL_41 | SSL, b"").is_err());
    }

    #[test]
    fn a_request_for_tls_is_a_login_cut_short() {
        let mut payload = (PROTOCOL_41 | SSL).to_le_bytes().to_vec();
        payload.extend_from_slice(&[0; 28]);
        assert!(asks_for_tls(&payload));
        payload.push(0);
        assert!(!asks_for_tls(&payload));
        assert!(parse_login(&payload, false).is_err());
        assert_eq!(parse_login(&payload, true).expect("login").user, "");
    }

    #[test]
    fn the_greeting_has_protocol_version_and_salt() {
        let salt = *b"abcdefghijklmnopqrst";
        let packet = greeting(7, &salt, false);
        let offering = greeting(7, &salt, true);
        let differing: Vec<usize> = (0..packet.len()).filter(|i| packet[*i] != offering[*i]).collect();
        assert_eq!(differing.len(), 1, "only the SSL flag");
        assert_eq!(packet[0], 10);
        assert!(packet.windows(6).any(|w| w == b"5.7.99"));
        assert!(packet.windows(8).any(|w| w == b"abcdefgh") && packet.windows(12).any(|w| w == b"ijklmnopqrst"));
    }
}
