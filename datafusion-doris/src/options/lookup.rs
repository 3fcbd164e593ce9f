//! Options of lookup joins.

use std::time::Duration;

use super::entries::Entries;
use super::key::OptionKey;
use super::value::{Parsed, parse_bool, parse_count, parse_duration};
use crate::error::Result;

/// How a join of a stream with this table asks for rows by their keys (`lookup.*`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LookupOptions {
    /// `lookup.join`, default false: such joins read the whole table.
    pub enabled: bool,
    /// `lookup.cache.max-rows` with `lookup.cache.ttl`, default none: each batch of the stream asks anew.
    pub cache: Option<LookupCache>,
    /// `lookup.max-retries`, default 1: further attempts of a lookup, after 0, 1, 2 … seconds.
    pub max_retries: usize,
    /// `lookup.jdbc.read.batch.size`, default 128: most keys of one statement.
    pub batch_keys: usize,
    /// `lookup.jdbc.async` with `lookup.jdbc.read.thread-size`: statements at once, default 1.
    pub statements_at_once: usize,
}

/// Which looked up rows are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LookupCache {
    /// Most rows kept; a key without rows counts as one.
    pub max_rows: usize,
    /// How long a key's rows are given before they are asked for again.
    pub ttl: Duration,
}

impl Default for LookupOptions {
    fn default() -> Self {
        Self { enabled: false, cache: None, max_retries: 1, batch_keys: 128, statements_at_once: 1 }
    }
}

impl LookupOptions {
    pub(super) fn from_entries(entries: &mut Entries) -> Result<Self> {
        let defaults = Self::default();
        let max_rows = entries.parse(OptionKey::LookupCacheMaxRows, parse_max_rows)?.flatten();
        let ttl = entries.parse(OptionKey::LookupCacheTtl, parse_ttl)?.unwrap_or(Some(Duration::from_secs(10)));
        let at_once = entries.parse(OptionKey::LookupJdbcReadThreadSize, parse_at_least_one)?.unwrap_or(3);
        let parallel = entries.parse(OptionKey::LookupJdbcAsync, parse_bool)?.unwrap_or(false);
        Ok(Self {
            enabled: entries.parse(OptionKey::LookupJoin, parse_bool)?.unwrap_or(defaults.enabled),
            cache: max_rows.zip(ttl).map(|(max_rows, ttl)| LookupCache { max_rows, ttl }),
            max_retries: entries.parse(OptionKey::LookupMaxRetries, parse_count)?.unwrap_or(defaults.max_retries),
            batch_keys: entries
                .parse(OptionKey::LookupJdbcReadBatchSize, parse_batch_keys)?
                .unwrap_or(defaults.batch_keys),
            statements_at_once: if parallel { at_once } else { 1 },
        })
    }
}

/// A number of rows; -1 and 0 keep none.
fn parse_max_rows(text: &str) -> Parsed<Option<usize>> {
    match text.trim() {
        "-1" => Ok(None),
        text => Ok(Some(parse_count(text)?).filter(|rows| *rows > 0)),
    }
}

/// A duration; -1 and 0 keep nothing.
fn parse_ttl(text: &str) -> Parsed<Option<Duration>> {
    match text.trim() {
        "-1" => Ok(None),
        text => Ok(Some(parse_duration(text)?).filter(|ttl| !ttl.is_zero())),
    }
}

fn parse_at_least_one(text: &str) -> Parsed<usize> {
    match parse_count(text)? {
        0 => Err("must be at least 1".into()),
        number => Ok(number),
    }
}

/// Each key is a branch of an OR, whose number a server limits to 10000.
fn parse_batch_keys(text: &str) -> Parsed<usize> {
    match parse_count(text)? {
        number @ 1..=1000 => Ok(number),
        _ => Err("must be from 1 to 1000".into()),
    }
}
