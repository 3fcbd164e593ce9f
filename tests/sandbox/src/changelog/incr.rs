//! `@incr(...)`: its parameters and the TSO window they mean.

use crate::changelog::{LOGICAL_BITS, LOGICAL_MAX};
use crate::engine::{Profile, TsoStatus};
use crate::error::SqlError;
use crate::storage::{KeysType, Table};
use crate::types::{SessionZone, parse_datetime};

/// What the rows of a window tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IncrType {
    /// Every change.
    Detail,
    /// Inserts only.
    AppendOnly,
    /// The net change of each key.
    MinDelta,
}

/// The parameters as written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct IncrSpec {
    pub(crate) start: Option<String>,
    pub(crate) end: Option<String>,
    pub(crate) kind: Option<String>,
}

/// A resolved window: TSOs in `[from, to)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IncrWindow {
    pub(crate) from: i64,
    pub(crate) to: i64,
    pub(crate) kind: IncrType,
    /// The end was written, so that reads of it must wait for running transactions.
    pub(crate) bounded: bool,
}

impl IncrSpec {
    /// Takes one parameter; keys are case-sensitive.
    pub(crate) fn set(&mut self, key: &str, value: &str) -> Result<(), SqlError> {
        let slot = match key {
            "startTimestamp" => &mut self.start,
            "endTimestamp" => &mut self.end,
            "incrementType" => &mut self.kind,
            _ => return Err(SqlError::detail(format!("Unsupported parameter in incr query: {key}"))),
        };
        *slot = Some(value.to_owned());
        Ok(())
    }

    /// Checks the parameters against the table and resolves the window.
    pub(crate) fn resolve(
        &self,
        table: &Table,
        profile: Profile,
        zone: &SessionZone,
        now: TsoStatus,
    ) -> Result<IncrWindow, SqlError> {
        let Some(changes) = table.spec().changes else {
            return Err(SqlError::detail("INCR query requires ROW binlog enabled on base table."));
        };
        let written = match self.kind.as_deref().map(str::to_ascii_uppercase).as_deref() {
            None => None,
            Some("DETAIL") => Some(IncrType::Detail),
            Some("APPEND_ONLY") => Some(IncrType::AppendOnly),
            Some("MIN_DELTA") => Some(IncrType::MinDelta),
            Some(_) => {
                let kind = self.kind.as_deref().unwrap_or_default();
                return Err(SqlError::detail(format!(
                    "Unsupported parameter in incr query: Unsupported increment type: {kind}"
                )));
            }
        };
        let kind = match (table.keys_type(), written) {
            (KeysType::Duplicate, _) => IncrType::AppendOnly,
            (KeysType::Unique, kind) => kind.unwrap_or(IncrType::MinDelta),
        };
        if kind == IncrType::MinDelta && !changes.before_image {
            let property = if profile == Profile::V5_0Binlog {
                "binlog.need_historical_value"
            } else {
                "changelog.need_historical_value"
            };
            return Err(SqlError::detail(format!(
                "MIN_DELTA INCR query requires base table to enable {property}=true"
            )));
        }
        let start = self.start.as_deref().map(|text| timestamp_ms(text, zone)).transpose()?;
        let end = self.end.as_deref().map(|text| timestamp_ms(text, zone)).transpose()?;
        if let Some(end) = end
            && end > now.physical_ms
        {
            return Err(end_in_future(profile, end, now));
        }
        let (from, to) = if profile == Profile::V5_0Binlog {
            let after = |ms: i64| ((ms << LOGICAL_BITS) | LOGICAL_MAX) + 1;
            (start.map_or(0, |ms| if ms == 0 { 0 } else { after(ms) }), end.map_or(i64::MAX, after))
        } else {
            (start.map_or(0, |ms| ms << LOGICAL_BITS), end.map_or(i64::MAX, |ms| ms << LOGICAL_BITS))
        };
        Ok(IncrWindow { from, to, kind, bounded: end.is_some() })
    }
}

/// `yyyy-MM-dd HH:mm:ss` in the session zone, or `0`.
fn timestamp_ms(text: &str, zone: &SessionZone) -> Result<i64, SqlError> {
    let text = text.trim();
    if text == "0" {
        return Ok(0);
    }
    let exact = text.len() == 19
        && text.bytes().enumerate().all(|(i, b)| match i {
            4 | 7 => b == b'-',
            10 => b == b' ',
            13 | 16 => b == b':',
            _ => b.is_ascii_digit(),
        });
    let micros = if exact { parse_datetime(text, 6, zone) } else { None };
    let micros = micros.ok_or_else(|| SqlError::detail(format!("Invalid TIMESTAMP format in incr clause: {text}")))?;
    Ok(zone.instant_of_wall(micros.div_euclid(1_000_000)) * 1000)
}

fn end_in_future(profile: Profile, end_ms: i64, now: TsoStatus) -> SqlError {
    if profile == Profile::V5_0Binlog {
        return SqlError::detail(format!(
            "endTimestamp exceeds the maximum supported time for an INCR read: requestedEndTimestampMs={end_ms}, \
             CURRENT_TSO_PHYSICAL_TIME={}",
            now.physical_ms
        ));
    }
    window_error(5100, "ERR_INCR_WINDOW_NOT_READY", "END_AFTER_CURRENT_TSO", end_ms, now, 100, 0)
}

/// The structured text of the codes 5100 and 5101.
pub(crate) fn window_error(
    code: u16,
    name: &'static str,
    reason: &str,
    end_ms: i64,
    now: TsoStatus,
    retry_after_ms: u64,
    timeout_ms: u64,
) -> SqlError {
    let mut error = SqlError::coded(
        code,
        format!(
            "{name}: reason={reason}, requestedEndTimestampMs={end_ms}, currentTSO={}, currentTSOPhysicalTimeMs={}, \
             committedTSO={}, committedTSOPhysicalTimeMs={}, retryAfterMs={retry_after_ms}, timeoutMs={timeout_ms}",
            now.current_tso, now.physical_ms, now.current_tso, now.physical_ms
        ),
    );
    error.name = Some(name);
    error
}

impl IncrWindow {
    /// The refusal when running transactions outlive the wait.
    pub(crate) fn wait_timeout(
        &self,
        profile: Profile,
        now: TsoStatus,
        timeout_ms: u64,
        watermark: i64,
        db_id: u64,
        table_id: u64,
    ) -> SqlError {
        // The structured error is for windows with an end; the others keep the older text.
        if profile == Profile::V5_0Binlog || !self.bounded {
            return SqlError::detail(format!(
                "timeout waiting previous transactions finish for time-based read, txnIdWatermark={watermark} dbId={db_id} \
                 tableIds=[{table_id}]"
            ));
        }
        let end_ms = self.to >> LOGICAL_BITS;
        window_error(5101, "ERR_INCR_VISIBLE_WAIT_TIMEOUT", "VISIBLE_WAIT_TIMEOUT", end_ms, now, 100, timeout_ms)
    }
}
