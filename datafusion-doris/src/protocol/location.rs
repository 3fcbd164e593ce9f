//! Where to go next: the `Location` of the FE's 307, and the location URIs of Flight endpoints.

use std::fmt;

use percent_encoding::percent_decode_str;

use super::Malformed;
use crate::options::Secret;

/// Target of a redirect.
#[derive(Clone, PartialEq, Eq)]
pub struct RedirectTarget {
    /// `http` or `https`.
    pub scheme: String,
    /// Host, IPv6 without brackets.
    pub host: String,
    /// Port.
    pub port: u16,
    /// Path and query as sent, `/` at least; an empty query is dropped.
    pub path: String,
    /// User of the user info, decoded. A client prefers its own credentials.
    pub user: Option<String>,
    /// Password of the user info, decoded.
    pub password: Option<Secret>,
}

impl RedirectTarget {
    /// The URL without user info.
    pub fn url(&self) -> String {
        format!("{}://{}{}", self.scheme, self.authority(), self.path)
    }

    /// `host:port`, IPv6 in brackets.
    pub fn authority(&self) -> String {
        authority(&self.host, self.port)
    }
}

impl fmt::Debug for RedirectTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RedirectTarget").field(&self.url()).finish()
    }
}

fn authority(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// `host[:port]`, IPv6 in brackets; the host in the result has none.
fn split_host_port(text: &str) -> Option<(String, Option<u16>)> {
    if let Some(rest) = text.strip_prefix('[') {
        let (host, rest) = rest.split_once(']')?;
        return match rest.strip_prefix(':') {
            Some(port) => Some((host.to_owned(), Some(port.parse().ok().filter(|port| *port > 0)?))),
            None if rest.is_empty() => Some((host.to_owned(), None)),
            None => None,
        };
    }
    match text.rsplit_once(':') {
        Some((host, port)) if !host.contains(':') => {
            Some((host.to_owned(), Some(port.parse().ok().filter(|port| *port > 0)?)))
        }
        Some(_) => None,
        None => Some((text.to_owned(), None)),
    }
}

/// Reads the `Location` of a redirect. The text may hold a password: it never stands in the error.
///
/// # Errors
/// [`Malformed`] for anything but an absolute http or https URL.
pub fn parse_redirect(location: &str) -> Result<RedirectTarget, Malformed> {
    let fail = || Malformed("the Location of the redirect is not an absolute http URL".into());
    let (scheme, rest) = location.trim().split_once("://").ok_or_else(fail)?;
    let scheme = scheme.to_ascii_lowercase();
    let default_port = match scheme.as_str() {
        "http" => 80,
        "https" => 443,
        _ => return Err(fail()),
    };
    // Old servers put the password in as it is, so a slash need not end the authority: the known path does.
    let end = rest.find("/api/").or_else(|| rest.find(['/', '?', '#'])).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let (user_info, host_port) = match authority.rsplit_once('@') {
        Some((user_info, host_port)) => (Some(user_info), host_port),
        None => (None, authority),
    };
    let (host, port) = split_host_port(host_port).ok_or_else(fail)?;
    if host.is_empty() || host.contains(['/', '?', '#', ' ']) {
        return Err(fail());
    }
    let decode = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
    let (user, password) = match user_info.map(|info| info.split_once(':').unwrap_or((info, ""))) {
        Some((user, password)) => (Some(decode(user)), Some(Secret::new(decode(password)))),
        None => (None, None),
    };
    let path = path.split_once('#').map_or(path, |(path, _)| path);
    let path = path.strip_suffix('?').unwrap_or(path);
    let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
    Ok(RedirectTarget { scheme, host, port: port.unwrap_or(default_port), path, user, password })
}

/// Where to fetch a Flight endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FlightLocation {
    /// On the connection that gave the endpoint.
    Reuse,
    /// At another server.
    Address {
        /// TLS.
        tls: bool,
        /// Host, IPv6 without brackets.
        host: String,
        /// Port.
        port: u16,
    },
}

impl FlightLocation {
    /// The location with host (without brackets) and port as `map` has them.
    pub fn mapped(self, map: impl FnOnce(&str, u16) -> (String, u16)) -> Self {
        match self {
            FlightLocation::Reuse => FlightLocation::Reuse,
            FlightLocation::Address { tls, host, port } => {
                let (host, port) = map(&host, port);
                FlightLocation::Address { tls, host, port }
            }
        }
    }

    /// `http://host:port` or `https://host:port`, as a gRPC channel wants it; `None` for [`Self::Reuse`].
    pub fn endpoint_url(&self) -> Option<String> {
        match self {
            FlightLocation::Reuse => None,
            FlightLocation::Address { tls, host, port } => {
                let scheme = if *tls { "https" } else { "http" };
                Some(format!("{scheme}://{}", authority(host, *port)))
            }
        }
    }
}

/// Reads a location URI of a Flight endpoint: `grpc://`, `grpc+tcp://`, `grpc+tls://` with a port, or
/// `arrow-flight-reuse-connection://`. An unset host (`0.0.0.0`, `::`, none) stands for `connected_host`, the host this
/// client reached the FE at. Empty text means [`FlightLocation::Reuse`].
///
/// # Errors
/// [`Malformed`] for any other scheme or a missing port.
pub fn parse_flight_location(uri: &str, connected_host: &str) -> Result<FlightLocation, Malformed> {
    let fail = || Malformed(format!("Flight location '{}' is not grpc://host:port", excerpt_uri(uri)));
    let uri = uri.trim();
    if uri.is_empty() {
        return Ok(FlightLocation::Reuse);
    }
    let (scheme, rest) = uri.split_once("://").ok_or_else(fail)?;
    let tls = match scheme.to_ascii_lowercase().as_str() {
        "arrow-flight-reuse-connection" => return Ok(FlightLocation::Reuse),
        "grpc" | "grpc+tcp" => false,
        "grpc+tls" => true,
        _ => return Err(fail()),
    };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let host_port = rest[..end].rsplit_once('@').map_or(&rest[..end], |(_, host_port)| host_port);
    let (host, port) = split_host_port(host_port).ok_or_else(fail)?;
    let port = port.ok_or_else(fail)?;
    let host = match host.as_str() {
        "" | "0.0.0.0" | "::" | "0:0:0:0:0:0:0:0" => {
            connected_host.trim_start_matches('[').trim_end_matches(']').to_owned()
        }
        _ => host,
    };
    Ok(FlightLocation::Address { tls, host, port })
}

/// The URI without user info.
fn excerpt_uri(uri: &str) -> String {
    match (uri.find("://"), uri.rfind('@')) {
        (Some(scheme), Some(at)) if scheme < at => format!("{}***{}", &uri[..scheme + 3], &uri[at..]),
        _ => uri.to_owned(),
    }
}
