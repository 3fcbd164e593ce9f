//! When the batch mode sends what it has.

use std::time::Duration;

use super::entries::Entries;
use super::key::OptionKey;
use super::value::{Parsed, parse_count, parse_duration, parse_size};
use crate::error::Result;

/// Fewest rows and bytes that the connector takes: less makes many small loads, each of which is a version of every
/// tablet that it touches.
const ADVISED_ROWS: usize = 10_000;
const ADVISED_BYTES: usize = 10 << 20;
/// Shortest interval, as in the connector.
const SHORTEST: Duration = Duration::from_secs(1);

/// `sink.buffer-flush.*` and `sink.flush.queue-size`: when a buffer of [`super::WriteMode::StreamLoadBatch`] is sent,
/// whichever comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlushOptions {
    /// `sink.buffer-flush.max-rows`, default 500000: a buffer never has more.
    pub max_rows: usize,
    /// `sink.buffer-flush.max-bytes`, default 100 MB: bytes of the format, before compression, as in the connector. A buffer
    /// ends with the first 1024 rows at most that reach it. All buffers of a writer together, as they are after
    /// compression, take no more memory than that.
    pub max_bytes: usize,
    /// `sink.buffer-flush.interval`, default 10 s: age of the first row of a buffer.
    pub interval: Duration,
    /// `sink.flush.queue-size`, default 2: filled buffers that wait while one is sent.
    pub queue_size: usize,
}

impl Default for FlushOptions {
    fn default() -> Self {
        Self { max_rows: 500_000, max_bytes: 100 << 20, interval: Duration::from_secs(10), queue_size: 2 }
    }
}

impl FlushOptions {
    /// # Errors
    /// [`crate::Error::Config`] for a value out of range.
    pub(super) fn from_entries(entries: &mut Entries) -> Result<Self> {
        let defaults = Self::default();
        let (rows, bytes) = (OptionKey::BufferFlushMaxRows, OptionKey::BufferFlushMaxBytes);
        let flush = Self {
            max_rows: entries.parse(rows, |text| positive(parse_count(text)?))?.unwrap_or(defaults.max_rows),
            max_bytes: entries.parse(bytes, |text| positive(parse_size(text)?))?.unwrap_or(defaults.max_bytes),
            interval: entries.parse(OptionKey::BufferFlushInterval, parse_interval)?.unwrap_or(defaults.interval),
            queue_size: entries
                .parse(OptionKey::FlushQueueSize, |text| positive(parse_count(text)?))?
                .unwrap_or(defaults.queue_size),
        };
        for (key, value, advised) in [(rows, flush.max_rows, ADVISED_ROWS), (bytes, flush.max_bytes, ADVISED_BYTES)] {
            if value < advised {
                let option = key.as_ref();
                tracing::warn!(
                    option,
                    value,
                    advised,
                    "small batches make many loads, and many versions of each tablet"
                );
            }
        }
        Ok(flush)
    }
}

fn positive(number: usize) -> Parsed<usize> {
    if number == 0 { Err("must be above 0".into()) } else { Ok(number) }
}

fn parse_interval(text: &str) -> Parsed<Duration> {
    match parse_duration(text)? {
        interval if interval < SHORTEST => Err("must be at least 1s".into()),
        interval => Ok(interval),
    }
}
