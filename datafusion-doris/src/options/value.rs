//! Value types of options and the parsers of their texts.

use std::fmt;
use std::time::Duration;

/// A text that must never be shown: `Debug` and `Display` print `***`.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a secret text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The secret itself, for the place that sends it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// Outcome of a value parser: the reason of a failure, without the option's name.
pub(crate) type Parsed<T> = Result<T, String>;

/// `true` or `false`, any case.
pub(crate) fn parse_bool(text: &str) -> Parsed<bool> {
    match text.trim().to_ascii_lowercase().as_str() {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err(format!("'{text}' is neither true nor false")),
    }
}

/// A whole number that is not negative.
pub(crate) fn parse_count(text: &str) -> Parsed<usize> {
    text.trim().parse().map_err(|_| format!("'{text}' is not a whole number of zero or more"))
}

/// Splits `10 s` into its digits and its unit in lower case.
fn number_and_unit(text: &str) -> Parsed<(u64, String)> {
    let trimmed = text.trim();
    let end = trimmed.find(|c: char| !c.is_ascii_digit()).unwrap_or(trimmed.len());
    let (digits, unit) = trimmed.split_at(end);
    if digits.is_empty() {
        return Err(format!("'{text}' does not start with a number"));
    }
    let number = digits.parse().map_err(|_| format!("'{text}' is out of range"))?;
    Ok((number, unit.trim().to_lowercase()))
}

/// A duration as Flink reads it: `10s`, `5m`, `1 min`, `500 ms`, `2 days`; a plain number is milliseconds.
pub(crate) fn parse_duration(text: &str) -> Parsed<Duration> {
    let (number, unit) = number_and_unit(text)?;
    let nanos_per_unit: u128 = match unit.as_str() {
        "ns" | "nano" | "nanos" | "nanosecond" | "nanoseconds" => 1,
        "µs" | "us" | "micro" | "micros" | "microsecond" | "microseconds" => 1_000,
        "" | "ms" | "milli" | "millis" | "millisecond" | "milliseconds" => 1_000_000,
        "s" | "sec" | "secs" | "second" | "seconds" => 1_000_000_000,
        "m" | "min" | "mins" | "minute" | "minutes" => 60 * 1_000_000_000,
        "h" | "hour" | "hours" => 3_600 * 1_000_000_000,
        "d" | "day" | "days" => 86_400 * 1_000_000_000,
        other => return Err(format!("'{text}' has the unknown time unit '{other}'; use ms, s, min, h or d")),
    };
    let nanos = u128::from(number) * nanos_per_unit;
    let seconds = u64::try_from(nanos / 1_000_000_000).map_err(|_| format!("'{text}' is out of range"))?;
    // The remainder is below 1e9.
    Ok(Duration::new(seconds, (nanos % 1_000_000_000) as u32))
}

/// A size in bytes as Flink reads it: `100MB`, `1 kb`, `64m`; units are powers of 1024, a plain number is bytes.
pub(crate) fn parse_size(text: &str) -> Parsed<usize> {
    let (number, unit) = number_and_unit(text)?;
    let shift = match unit.as_str() {
        "" | "b" | "bytes" => 0,
        "k" | "kb" | "kibibytes" => 10,
        "m" | "mb" | "mebibytes" => 20,
        "g" | "gb" | "gibibytes" => 30,
        "t" | "tb" | "tebibytes" => 40,
        other => return Err(format!("'{text}' has the unknown size unit '{other}'; use b, kb, mb, gb or tb")),
    };
    number
        .checked_mul(1 << shift)
        .and_then(|bytes| usize::try_from(bytes).ok())
        .ok_or_else(|| format!("'{text}' is out of range"))
}

/// A comma list of `host:port`; each may carry a leading `http://` and a trailing slash, which are removed.
pub(crate) fn parse_nodes(text: &str) -> Parsed<Vec<String>> {
    let nodes = text.split(',').map(|node| parse_node(node.trim())).collect::<Parsed<Vec<_>>>()?;
    let mut unique: Vec<String> = Vec::with_capacity(nodes.len());
    for node in nodes {
        if !unique.contains(&node) {
            unique.push(node);
        }
    }
    Ok(unique)
}

fn parse_node(node: &str) -> Parsed<String> {
    if node.get(..8).is_some_and(|scheme| scheme.eq_ignore_ascii_case("https://")) {
        return Err(format!("'{node}': TLS is not supported yet, use host:port of the plain http port"));
    }
    let rest = match node.get(..7) {
        Some(scheme) if scheme.eq_ignore_ascii_case("http://") => &node[7..],
        _ => node,
    };
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    if rest.contains('@') {
        return Err("user and password do not belong here, use the options username and password".into());
    }
    let (host, port) = rest.rsplit_once(':').ok_or_else(|| format!("'{node}' is not host:port"))?;
    let bracketed = host.starts_with('[') && host.ends_with(']');
    let host_is_valid = if bracketed {
        host[1..host.len() - 1].parse::<std::net::Ipv6Addr>().is_ok()
    } else {
        !host.is_empty() && host.chars().all(|c| c.is_alphanumeric() || matches!(c, '.' | '-' | '_'))
    };
    if !host_is_valid {
        return Err(format!("'{node}' is not host:port"));
    }
    let port = parse_port(port).map_err(|reason| format!("'{node}': {reason}"))?;
    Ok(format!("{host}:{port}"))
}

/// A port, 1 to 65535.
pub(crate) fn parse_port(text: &str) -> Parsed<u16> {
    match text.trim().parse::<u16>() {
        Ok(port) if port > 0 => Ok(port),
        _ => Err(format!("'{text}' is not a port (1 to 65535)")),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    #[test]
    fn secret_is_never_shown() {
        let secret = Secret::new("pa55");
        assert_eq!((format!("{secret:?}"), format!("{secret}")), ("***".into(), "***".into()));
        assert_eq!(secret.reveal(), "pa55");
    }

    #[test]
    fn durations_are_read_as_flink_reads_them() {
        for (text, expected) in [
            ("10s", Duration::from_secs(10)),
            ("5m", Duration::from_secs(300)),
            ("1 min", Duration::from_secs(60)),
            (" 500 ms ", Duration::from_millis(500)),
            ("250", Duration::from_millis(250)),
            ("2 Hours", Duration::from_secs(7200)),
            ("3d", Duration::from_secs(259_200)),
            ("7 µs", Duration::from_micros(7)),
            ("0s", Duration::ZERO),
        ] {
            assert_eq!(parse_duration(text), Ok(expected), "{text}");
        }
        for text in ["", "s", "-1s", "1.5s", "10 parsecs", "99999999999999999999s"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_are_powers_of_1024() {
        for (text, expected) in [
            ("100MB", 100 << 20),
            ("1mb", 1 << 20),
            ("1 kb", 1024),
            ("64m", 64 << 20),
            ("2g", 2 << 30),
            ("17", 17),
            ("17 bytes", 17),
        ] {
            assert_eq!(parse_size(text), Ok(expected), "{text}");
        }
        for text in ["", "mb", "-1mb", "1 zb", "99999999999999 tb"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn nodes_are_host_and_port() {
        assert_eq!(
            parse_nodes("fe1:8030, http://fe2:8030/,[::1]:8030,fe1:8030").unwrap(),
            ["fe1:8030", "fe2:8030", "[::1]:8030"]
        );
        for text in ["", "fe", "fe:0", "fe:65536", ":8030", "a b:1", "u:p@fe:8030", "fe:8030/x", "::1:8030"] {
            assert!(parse_nodes(text).is_err(), "{text}");
        }
        assert!(parse_nodes("https://fe:8030").unwrap_err().contains("not supported yet"));
        assert!(!parse_nodes("root:pa55@fe:8030").unwrap_err().contains("pa55"));
    }
}
