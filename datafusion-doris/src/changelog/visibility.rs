//! When a server says: ask again, transactions of this window are not visible yet.

use std::time::Duration;

use crate::error::Error;

/// First and longest pause between two tries.
pub(super) const PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(5));

/// `ERR_INCR_WINDOW_NOT_READY` and `ERR_INCR_VISIBLE_WAIT_TIMEOUT`.
const CODES: [u32; 2] = [5100, 5101];

/// What servers before the codes, and those between, say.
const TEXTS: [&str; 8] = [
    "timeout waiting transaction become visible for time-based read",
    "timeout waiting previous transactions finish for time-based read",
    "timeout synchronizing visible versions for time-based read",
    "timeout waiting follower journal replay for time-based read",
    "endTimestamp exceeds the maximum supported time for an INCR read",
    "TSO timestamp is not calibrated",
    "ERR_INCR_WINDOW_NOT_READY",
    "ERR_INCR_VISIBLE_WAIT_TIMEOUT",
];

/// The pause that the server asks for (zero when it names none), if `error` means: ask for the same window again.
pub(super) fn asks_again(error: &Error) -> Option<Duration> {
    let Error::Server { code, message, .. } = error else { return None };
    let waits = code.is_some_and(|code| CODES.contains(&code)) || TEXTS.iter().any(|text| message.contains(text));
    waits.then(|| Duration::from_millis(retry_after_ms(message)))
}

/// `retryAfterMs=250` of the structured texts.
fn retry_after_ms(message: &str) -> u64 {
    const KEY: &str = "retryAfterMs=";
    let Some(at) = message.find(KEY) else { return 0 };
    let digits = message[at + KEY.len()..].chars().take_while(char::is_ascii_digit);
    digits.collect::<String>().parse().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(code: Option<u32>, message: &str) -> Error {
        Error::Server { host: "fe:8070".into(), operation: "the statement".into(), code, message: message.into() }
    }

    #[test]
    fn waits_are_told_from_other_errors_by_code_or_text() {
        let structured = "ERR_INCR_VISIBLE_WAIT_TIMEOUT: reason=VISIBLE_WAIT_TIMEOUT, requestedEndTimestampMs=1, \
                          currentTSO=2, currentTSOPhysicalTimeMs=3, committedTSO=4, committedTSOPhysicalTimeMs=5, \
                          retryAfterMs=250, timeoutMs=10000";
        for (error, expected) in [
            (server(Some(5101), structured), Some(250)),
            (server(Some(5100), "reason=END_AFTER_CURRENT_TSO, retryAfterMs=-1"), Some(0)),
            (
                server(None, "detailMessage = timeout synchronizing visible versions for time-based read, dbId=1"),
                Some(0),
            ),
            (
                server(
                    None,
                    "acquire time-based read fence from master FE failed: timeout waiting previous transactions \
                              finish for time-based read, txnIdWatermark=7",
                ),
                Some(0),
            ),
            (server(None, "endTimestamp exceeds the maximum supported time for an INCR read: requested…"), Some(0)),
            (server(Some(1064), "syntax error"), None),
            (server(None, "Changelog offset has expired according to changelog.ttl_seconds"), None),
            (Error::config("fenodes", "timeout waiting previous transactions finish for time-based read"), None),
        ] {
            assert_eq!(asks_again(&error), expected.map(Duration::from_millis), "{error}");
        }
    }
}
