//! `doris.flight.host-map`: other addresses for the hosts that Flight locations name.

use super::value::Parsed;

/// Where hosts are reached that a server names by addresses of its own network, as BEs behind NAT do.
///
/// An entry for host and port goes before one for the host alone. What is not in the map is left as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostMap {
    entries: Vec<(Address, Address)>,
}

/// A host without brackets, and a port when one is told.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Address {
    host: String,
    port: Option<u16>,
}

impl HostMap {
    /// Reads `internal[:port]=external[:port]`, several of them separated by commas; IPv6 with a port in brackets.
    ///
    /// # Errors
    /// The reason, for a text of another form, or a host that is mapped twice.
    pub fn parse(text: &str) -> Parsed<Self> {
        let mut entries: Vec<(Address, Address)> = Vec::new();
        for entry in text.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
            let shape = || format!("'{entry}' is not of the form internal=external:port");
            let (from, to) = entry.split_once('=').ok_or_else(shape)?;
            let (from, to) = (address(from).ok_or_else(shape)?, address(to).ok_or_else(shape)?);
            if entries.iter().any(|(known, _)| *known == from) {
                return Err(format!("'{entry}' maps a host that is mapped before"));
            }
            entries.push((from, to));
        }
        Ok(Self { entries })
    }

    /// Where `host` (without brackets) and `port` are reached.
    pub fn resolve(&self, host: &str, port: u16) -> (String, u16) {
        let of = |wanted: Option<u16>| {
            self.entries.iter().find(|(from, _)| from.host.eq_ignore_ascii_case(host) && from.port == wanted)
        };
        match of(Some(port)).or_else(|| of(None)) {
            Some((_, to)) => (to.host.clone(), to.port.unwrap_or(port)),
            None => (host.to_owned(), port),
        }
    }
}

fn address(text: &str) -> Option<Address> {
    let text = text.trim();
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, rest) = rest.split_once(']')?;
            match rest.strip_prefix(':') {
                Some(port) => (host, Some(port)),
                None if rest.is_empty() => (host, None),
                None => return None,
            }
        }
        // More than one colon: IPv6 without a port.
        None if text.matches(':').count() > 1 => (text, None),
        None => text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
    };
    let port = match port {
        Some(port) => Some(port.parse().ok().filter(|port: &u16| *port > 0)?),
        None => None,
    };
    let malformed = host.is_empty() || host.contains(['/', '@', ' ', '=', '[', ']']);
    (!malformed).then(|| Address { host: host.to_owned(), port })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    #[test]
    fn most_exact_entry_wins_and_the_rest_is_left_alone() {
        let map =
            HostMap::parse("10.0.0.1=proxy:9000, 10.0.0.1:8051=proxy:9001 ,be-2=[::1], [fd00::1]:80=v4:1").unwrap();
        let cases = [
            (("10.0.0.1", 8050), ("proxy", 9000)),
            (("10.0.0.1", 8051), ("proxy", 9001)),
            (("BE-2", 8050), ("::1", 8050)),
            (("fd00::1", 80), ("v4", 1)),
            (("fd00::1", 81), ("fd00::1", 81)),
            (("other", 8050), ("other", 8050)),
        ];
        for ((host, port), (to, to_port)) in cases {
            assert_eq!(map.resolve(host, port), (to.to_string(), to_port), "{host}:{port}");
        }
    }

    #[test]
    fn malformed_entries_are_refused() {
        for text in ["a", "a=", "=b", "a=b:x", "a=b:0", "a:1:2=http://b", "a=b,a=c", "[::1=b", "a=user@b:1"] {
            assert!(HostMap::parse(text).is_err(), "{text}");
        }
        assert_eq!(HostMap::parse(" ").unwrap(), HostMap::default());
    }
}
