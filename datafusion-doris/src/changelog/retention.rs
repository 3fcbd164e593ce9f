//! What the table's retention means for a position: pure.
//!
//! A server drops changes that are older than the table's TTL and says nothing: a read of `detail` or `append_only`
//! from before gives what is left. So a position that is older than the TTL is looked at before it is read from.

use std::collections::BTreeMap;
use std::time::Duration;

/// The property that limits the age of changes. Its predecessor `binlog.ttl_seconds` had no effect.
const TTL_PROPERTY: &str = "changelog.ttl_seconds";

/// How long the table keeps its changes, from its properties; `None`: for ever, or unknown.
pub(crate) fn time_to_live(properties: &BTreeMap<String, String>) -> Option<Duration> {
    let seconds: u64 = properties.get(TTL_PROPERTY)?.trim().parse().ok()?;
    // Larger numbers stand for no limit.
    (seconds > 0 && seconds < i64::MAX as u64 / 1000).then(|| Duration::from_secs(seconds))
}

/// How a position stands against the retention.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Age {
    /// Everything from the position on is there.
    Fresh,
    /// More than half of the time to live is over.
    HalfGone,
    /// Changes from the position on may have been dropped.
    Old,
}

/// The age of a position at the server's time, both in epoch milliseconds.
pub(super) fn age(position_ms: i64, now_ms: i64, ttl: Option<Duration>) -> Age {
    let Some(ttl) = ttl else { return Age::Fresh };
    let age = u128::try_from(now_ms.saturating_sub(position_ms)).unwrap_or(0);
    match ttl.as_millis() {
        ttl if age >= ttl => Age::Old,
        ttl if age * 2 >= ttl => Age::HalfGone,
        _ => Age::Fresh,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn properties(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_string(), (*value).to_string())).collect()
    }

    #[test]
    fn only_the_property_that_has_an_effect_counts() {
        for (pairs, expected) in [
            (vec![], None),
            (vec![("changelog.ttl_seconds", "86400")], Some(86_400)),
            (vec![("binlog.ttl_seconds", "86400")], None),
            (vec![("changelog.ttl_seconds", "0")], None),
            (vec![("changelog.ttl_seconds", "9223372036854775807")], None),
            (vec![("changelog.ttl_seconds", "a day")], None),
        ] {
            assert_eq!(time_to_live(&properties(&pairs)), expected.map(Duration::from_secs), "{pairs:?}");
        }
    }

    #[test]
    fn half_of_the_time_to_live_is_a_warning_and_all_of_it_an_end() {
        let day = Some(Duration::from_secs(86_400));
        let now_ms = 1_000_000_000_000;
        for (hours, expected) in
            [(0, Age::Fresh), (11, Age::Fresh), (12, Age::HalfGone), (23, Age::HalfGone), (24, Age::Old)]
        {
            assert_eq!(age(now_ms - hours * 3_600_000, now_ms, day), expected, "{hours}");
        }
        assert_eq!(age(now_ms + 1, now_ms, day), Age::Fresh);
        assert_eq!(age(0, now_ms, None), Age::Fresh);
    }
}
