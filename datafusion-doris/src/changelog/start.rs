//! Where a read begins, and by which names it asks.

use futures::StreamExt;

use super::control::Progress;
use super::reader::Reader;
use super::window::{TOLERATED_STEP_BACK_MS, Window, WindowPlanner, closed_second, covering_second};
use crate::checkpoint::SourcePosition;
use crate::error::{Error, Result};
use crate::options::{BoundedMode, OptionKey};
use crate::sql::{HiddenColumns, IncrementType, utc_text};
use crate::types::{LocalTime, ServerZone};

impl Reader {
    /// Fixes the first window's start, before any snapshot, and where the read ends. True when the start is the kept
    /// position of the consumer, which goes before the mode: then there is no snapshot.
    pub(super) async fn start(&self) -> Result<(WindowPlanner, bool)> {
        let server_ms = self.server_ms().await?;
        let zone = match (self.spec.start, self.spec.end, &self.offsets) {
            (None, None | Some(BoundedMode::Latest), None) => ServerZone::UTC,
            _ => self.server.time_zone().await?,
        };
        let kept_ms = match &self.offsets {
            Some(offsets) => offsets.start(zone).await?,
            None => None,
        };
        let instant = |time: LocalTime, option: OptionKey| {
            time.to_epoch_ms(&zone).map_err(|reason| Error::config(option.as_ref(), reason))
        };
        if let (Some(offsets), Some(kept_ms)) = (&self.offsets, kept_ms)
            && kept_ms - server_ms >= TOLERATED_STEP_BACK_MS
        {
            return Err(self.ahead(&offsets.to_string(), kept_ms, server_ms));
        }
        let start_ms = match (kept_ms, self.spec.start) {
            (Some(kept_ms), _) => kept_ms,
            (None, Some(start)) => {
                let start_ms = instant(start, OptionKey::ScanTimestamp)?;
                if start_ms - server_ms >= TOLERATED_STEP_BACK_MS {
                    return Err(self.ahead("'source.scan.timestamp'", start_ms, server_ms));
                }
                start_ms
            }
            (None, None) => self.start_now(self.usable(server_ms)).await?,
        };
        let bound_ms = match self.spec.end {
            None => None,
            Some(BoundedMode::Latest) => Some(covering_second(server_ms)),
            Some(BoundedMode::Timestamp(end)) => Some(instant(end, OptionKey::BoundedTimestamp)?),
        };
        tracing::debug!(table = %self.spec.table, start_ms, ?kept_ms, ?bound_ms, "changelog starts");
        Ok((self.planner(start_ms).with_bound(bound_ms), kept_ms.is_some()))
    }

    fn planner(&self, start_ms: i64) -> WindowPlanner {
        WindowPlanner::new(start_ms).with_longest(i64::try_from(self.spec.max_window.as_millis()).ok())
    }

    /// Goes to the position of a checkpoint, which goes before the consumer's position and the mode.
    pub(super) async fn restore_position(&self, position: &SourcePosition, by_key: bool) -> Result<()> {
        let progress = match position {
            SourcePosition::Snapshot { start_ms: None, .. } => None,
            SourcePosition::Snapshot { start_ms: Some(start_ms), done_tablets } => {
                let mut done = done_tablets.clone();
                done.sort_unstable();
                Some(Progress::Snapshot { then: self.planner(*start_ms), done: done.into() })
            }
            SourcePosition::Changelog { next_ms } => Some(Progress::Changes(self.planner(*next_ms))),
        };
        if let (Some(offsets), Some(_)) = (&self.offsets, &progress) {
            offsets.publish_in(self.server.time_zone().await?);
        }
        self.control.restore(progress, by_key);
        Ok(())
    }

    fn ahead(&self, what: &str, start_ms: i64, server_ms: i64) -> Error {
        self.error(format!(
            "{what} is {}, which lies ahead of the server's time, {}: correct it, or check which frontend is master and \
             its clock",
            text_of(start_ms),
            text_of(server_ms)
        ))
    }

    /// A start at which everything before is visible: reading the second before it waits for the transactions that may
    /// belong to it.
    async fn start_now(&self, now_ms: i64) -> Result<i64> {
        let mut start_ms = closed_second(now_ms);
        if self.spec.increment_type == IncrementType::MinDelta {
            let edges = Window { start_ms: start_ms - 60_000, end_ms: start_ms };
            start_ms = self.clear_edge(edges, start_ms).await?.unwrap_or(start_ms);
        }
        let fence = Window { start_ms: start_ms - 1000, end_ms: start_ms };
        let hidden = self.hidden_names(fence).await?;
        let mut rows = self.query_when_visible(&self.spec.select(&[], hidden, fence).to_sql()?).await?;
        while let Some(batch) = rows.batches.next().await {
            batch?;
        }
        Ok(start_ms)
    }

    /// The spelling of the hidden columns that this server knows, found by a query without rows.
    pub(super) async fn hidden_names(&self, window: Window) -> Result<&HiddenColumns> {
        let probe = async || {
            let mut first = None;
            for hidden in HiddenColumns::candidates() {
                let sql = self.spec.select(&[], &hidden, window).probe_sql()?;
                match self.query_when_visible(&sql).await {
                    Ok(mut rows) => {
                        while let Some(batch) = rows.batches.next().await {
                            batch?;
                        }
                        return Ok(hidden);
                    }
                    Err(error) => match self.explain(error) {
                        error @ Error::Server { .. } => {
                            first.get_or_insert(error);
                        }
                        error => return Err(error),
                    },
                }
            }
            Err(match first {
                // Still the server's answer: it may be one that passes.
                Some(Error::Server { host, operation, code, message }) => {
                    let message = format!("changelog of {}: it cannot be read: {message}", self.spec.table);
                    Error::Server { host, operation, code, message }
                }
                Some(error) => error,
                None => self.error("no spelling of its hidden columns is known"),
            })
        };
        self.hidden.get_or_try_init(probe).await
    }
}

/// An instant as UTC text, without parts of a second.
fn text_of(ms: i64) -> String {
    utc_text(ms.div_euclid(1000) * 1000).map_or_else(|| format!("{ms} ms"), |text| format!("{text} UTC"))
}
