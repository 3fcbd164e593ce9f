//! What a read asks and says beside its rows: safe window ends, lost changes, errors with their meaning.

use std::sync::atomic::Ordering;

use arrow::array::{Array, AsArray};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, Int64Type};
use futures::StreamExt;

use super::decode::first_tso;
use super::drift::explain_refusal;
use super::reader::Reader;
use super::retention::{Age, age};
use super::window::{Window, closed_second};
use crate::error::{Error, Result};
use crate::options::{OnExpired, OptionKey};
use crate::protocol::Tso;
use crate::sql::{IncrementType, commit_at_sql, first_change_sql, utc_text};

/// Ends of a window of net changes that are looked at in each direction for one at which nothing was committed.
const EDGE_TRIES: i64 = 5;

impl Reader {
    /// An end for `window` at which nothing was committed, so that both rules for bounds agree on it: a few seconds are
    /// looked at, back from its end, then on from it up to `latest_ms`. When all of them are busy, its end as it is;
    /// `None` when there is none to choose yet.
    pub(super) async fn clear_edge(&self, window: Window, latest_ms: i64) -> Result<Option<i64>> {
        let hidden = self.hidden_names(window).await?;
        let back = (0..EDGE_TRIES).map(|i| window.end_ms - i * 1000).take_while(|edge| *edge > window.start_ms);
        let on = (1..=EDGE_TRIES).map(|i| window.end_ms + i * 1000).take_while(|edge| *edge <= latest_ms);
        let mut looked_at = 0;
        for edge_ms in back.chain(on) {
            let sql = commit_at_sql(&self.spec.table, hidden, edge_ms, first_tso(edge_ms)..first_tso(edge_ms + 1))?;
            let mut rows = self.query_when_visible(&sql).await?;
            let mut found = 0;
            while let Some(batch) = rows.batches.next().await {
                found += batch?.num_rows();
            }
            if found == 0 {
                return Ok(Some(edge_ms));
            }
            looked_at += 1;
        }
        Ok((looked_at >= EDGE_TRIES).then_some(window.end_ms))
    }

    /// Looks whether changes from `start_ms` on may have been dropped for their age.
    pub(super) async fn check_retention(&self, start_ms: i64, server_ms: i64) -> Result<()> {
        let ttl_s = self.spec.time_to_live.unwrap_or_default().as_secs();
        let table = &self.spec.table;
        match age(start_ms, server_ms, self.spec.time_to_live) {
            Age::Fresh => return Ok(()),
            Age::HalfGone => {
                if !self.warned.half_gone.swap(true, Ordering::Relaxed) {
                    tracing::warn!(
                        %table, position_ms = start_ms, lag_ms = server_ms - start_ms, ttl_s,
                        "the changelog is read with a lag of more than half of the time that its changes are kept"
                    );
                }
                return Ok(());
            }
            // The server refuses a start that is too old itself.
            Age::Old if self.spec.increment_type == IncrementType::MinDelta => return Ok(()),
            Age::Old if self.warned.old.load(Ordering::Relaxed) => return Ok(()),
            Age::Old => {}
        }
        let first = self.first_change(closed_second(server_ms)).await?;
        if first.is_some_and(|tso| tso < first_tso(start_ms)) {
            return Ok(());
        }
        // Changes are dropped by their age, and none is older than its table.
        let created_ms = self.server.created_after_ms().await?;
        if created_ms.is_some_and(|created_ms| age(created_ms, server_ms, self.spec.time_to_live) != Age::Old) {
            return Ok(());
        }
        let kept = match first.and_then(|tso| utc_text(Tso(tso).physical_ms().div_euclid(1000) * 1000)) {
            Some(first) => format!("the oldest change that is left is of {first} UTC"),
            None => "no change is left".to_string(),
        };
        let from = utc_text(start_ms).map_or_else(|| format!("{start_ms} ms"), |text| format!("{text} UTC"));
        let gap = format!(
            "changes from {from} on are to be read, but changelog.ttl_seconds = {ttl_s} lets older ones be dropped, and \
             {kept}"
        );
        match self.spec.on_expired {
            OnExpired::Continue => {
                self.warned.old.store(true, Ordering::Relaxed);
                tracing::warn!(%table, "{gap}; reading goes on with what is left");
                Ok(())
            }
            OnExpired::Fail => Err(self.error(format!(
                "{gap}: start anew with 'source.scan.mode' = 'initial' (and another consumer id), or accept the gap by \
                 '{}' = 'continue'",
                OptionKey::OnExpired.as_ref()
            ))),
        }
    }

    /// Looks again when the server has accepted to read `window`: its start may have become too old while its transactions were waited for.
    pub(super) async fn check_still_kept(&self, window: Window) -> Result<()> {
        let Some((asked_ms, passed)) = self.control.last_asked() else { return Ok(()) };
        // A second more, for what the question took.
        let about_now = asked_ms.saturating_add(i64::try_from(passed.as_millis()).unwrap_or(i64::MAX - 1000) + 1000);
        let age_at = |server_ms| age(window.start_ms, server_ms, self.spec.time_to_live);
        if age_at(asked_ms) == Age::Old || age_at(about_now) != Age::Old {
            return Ok(());
        }
        self.check_retention(window.start_ms, self.server_ms().await?).await
    }

    /// TSO of the first change before `end_ms` that the server still has.
    async fn first_change(&self, end_ms: i64) -> Result<Option<i64>> {
        let hidden = self.hidden_names(Window { start_ms: end_ms - 1000, end_ms }).await?;
        let mut rows = self.query_when_visible(&first_change_sql(&self.spec.table, hidden, end_ms)?).await?;
        let mut first = None;
        while let Some(batch) = rows.batches.next().await {
            let batch = batch?;
            if batch.num_rows() == 1 && batch.num_columns() == 1 && batch.column(0).is_valid(0) {
                let exact = CastOptions { safe: false, ..CastOptions::default() };
                let tso = cast_with_options(batch.column(0), &DataType::Int64, &exact)?;
                first = Some(tso.as_primitive::<Int64Type>().value(0));
            }
        }
        Ok(first)
    }

    /// Says what an error of a statement over the table means for the reader.
    pub(super) fn explain(&self, error: Error) -> Error {
        let Error::Server { message, .. } = &error else { return error };
        if message.contains("Changelog offset has expired") {
            return self.error(format!(
                "its position is older than the changes that are kept ({message}): start anew with 'source.scan.mode' = \
                 'initial', and another consumer id"
            ));
        }
        explain_refusal(&self.spec, self.hidden.get(), message).unwrap_or(error)
    }

    /// The end of waiting for a window whose transactions do not become visible.
    pub(super) fn not_visible(&self, error: &Error) -> Error {
        let waited = self.spec.visible_wait_timeout;
        self.error(format!(
            "its changes were not visible within {waited:?} ({error}): look for loads of the table that are not ended \
             (SHOW TRANSACTION), or raise '{}'",
            OptionKey::VisibleWaitTimeout.as_ref()
        ))
    }
}
