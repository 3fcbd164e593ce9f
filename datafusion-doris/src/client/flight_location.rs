//! Where a Flight endpoint is to be fetched from.

use crate::error::{Error, Result};

/// A resolved location.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Location {
    /// The connection that answered `GetFlightInfo`.
    SameConnection,
    /// Another server, `host:port`.
    Server(String),
}

/// Resolves a location URI.
///
/// An empty URI and `arrow-flight-reuse-connection://` mean the same connection. A server that was not told its own
/// address names `0.0.0.0` or `[::]`: the host the client is connected to stands in for it.
///
/// # Errors
/// Anything but plain gRPC is refused.
pub(super) fn resolve(uri: &str, connected_host: &str) -> Result<Location> {
    let uri = uri.trim();
    if uri.is_empty() || uri.starts_with("arrow-flight-reuse-connection:") {
        return Ok(Location::SameConnection);
    }
    let (scheme, rest) = uri.split_once("://").unwrap_or(("", uri));
    match scheme {
        "grpc+tcp" | "grpc" | "http" | "" => {}
        _ => {
            return Err(Error::unsupported(
                format!("arrow flight location with scheme '{scheme}'"),
                "let the server offer plain grpc+tcp",
            ));
        }
    }
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    let Some((host, port)) = authority.rsplit_once(':') else {
        return Err(Error::unsupported(
            format!("arrow flight location '{authority}' without a port"),
            "check arrow_flight_sql_port of the server",
        ));
    };
    if port.parse::<u16>().is_err() {
        return Err(Error::unsupported(
            format!("arrow flight location '{authority}' with a port that is no number"),
            "check arrow_flight_sql_port of the server",
        ));
    }
    let host = match host {
        "" | "0.0.0.0" | "[::]" | "::" | "[0:0:0:0:0:0:0:0]" => connected_host.to_string(),
        host if host.contains(':') && !host.starts_with('[') => format!("[{host}]"),
        host => host.to_string(),
    };
    Ok(Location::Server(format!("{host}:{port}")))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    #[test]
    fn unspecified_and_empty_locations_fall_back_to_the_connected_host() {
        let server = |text: &str| Location::Server(text.to_string());
        let cases = [
            ("", Location::SameConnection),
            ("arrow-flight-reuse-connection://?", Location::SameConnection),
            ("grpc+tcp://10.0.0.7:8050", server("10.0.0.7:8050")),
            ("grpc://be-1.example.test:8050/", server("be-1.example.test:8050")),
            ("grpc+tcp://0.0.0.0:8070", server("fe-1:8070")),
            ("grpc+tcp://[::]:8070", server("fe-1:8070")),
            ("grpc+tcp://[fe80::1]:8070", server("[fe80::1]:8070")),
            ("grpc+tcp://fe80::1:8070", server("[fe80::1]:8070")),
        ];
        for (uri, expected) in cases {
            assert_eq!(resolve(uri, "fe-1").unwrap(), expected, "{uri}");
        }
    }

    #[test]
    fn locations_that_cannot_be_dialled_are_refused() {
        for uri in ["grpc+tls://be:8050", "grpc+unix:///tmp/x", "grpc+tcp://be", "grpc+tcp://be:port"] {
            assert!(resolve(uri, "fe-1").is_err(), "{uri}");
        }
    }
}
