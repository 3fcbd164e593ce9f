//! `@incr(...)`: its parameters and the TSO window they mean.

use super::{Fence, LOGICAL_BITS, LOGICAL_MAX, Names};
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

/// Parameters that the table accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Incr {
    start_ms: Option<i64>,
    /// `None`: up to the moment the query starts.
    pub(crate) end_ms: Option<i64>,
    pub(crate) kind: IncrType,
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

    /// Checks the parameters against the table.
    pub(crate) fn check(&self, table: &Table, profile: Profile, zone: &SessionZone) -> Result<Incr, SqlError> {
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
            (_, kind) => kind.unwrap_or(IncrType::MinDelta),
        };
        if kind == IncrType::MinDelta && !changes.before_image {
            return Err(SqlError::detail(format!(
                "MIN_DELTA INCR query requires base table to enable {}=true",
                Names::of(profile).property("need_historical_value")
            )));
        }
        let bound = |text: &Option<String>| match text {
            None => Ok(None),
            // `0` is no bound.
            Some(text) if text == "0" => Ok(None),
            Some(text) => timestamp_ms(text, zone)
                .map(Some)
                .ok_or_else(|| SqlError::detail(format!("Invalid TIMESTAMP format in incr clause: {text}"))),
        };
        Ok(Incr { start_ms: bound(&self.start)?, end_ms: bound(&self.end)?, kind })
    }
}

impl Incr {
    /// The TSOs to read, `[from, to)`. A start that expired is moved, or refused where a net change would be wrong.
    pub(crate) fn window(&self, table: &Table, profile: Profile, fence: &Fence) -> Result<(i64, i64), SqlError> {
        // Nothing of the time before the table was there can have expired.
        let created_ms = table.spec().created_ms;
        let start = self.start_ms.map(|ms| boundary(ms, profile).max(created_ms << LOGICAL_BITS));
        let retained = retained_from(table, &fence.now);
        if self.kind == IncrType::MinDelta && start.is_some_and(|start| start < retained) {
            return Err(SqlError::detail(Names::of(profile).expired()));
        }
        let from = start.unwrap_or(0).max(retained);
        let to = self.end_ms.map_or(fence.upper, |ms| boundary(ms, profile));
        Ok((from, to.max(from)))
    }
}

/// The first TSO at or behind a bound: windows are `[start, end)`, in the older build `(start, end]` by the millisecond.
fn boundary(ms: i64, profile: Profile) -> i64 {
    if profile == Profile::V5_0Binlog { ((ms << LOGICAL_BITS) | LOGICAL_MAX) + 1 } else { ms << LOGICAL_BITS }
}

/// The first TSO whose records are still told. Records at the age of the TTL have expired.
pub(crate) fn retained_from(table: &Table, now: &TsoStatus) -> i64 {
    let by_age = table.spec().changes.and_then(|changes| changes.ttl_seconds).map_or(0, |ttl| {
        let expired_ms = now.physical_ms.saturating_sub(ttl.saturating_mul(1000));
        expired_ms.saturating_add(1).clamp(0, i64::MAX >> LOGICAL_BITS) << LOGICAL_BITS
    });
    by_age.max(table.expired_before())
}

/// `yyyy-MM-dd HH:mm:ss` in a zone, not before the epoch.
pub(super) fn timestamp_ms(text: &str, zone: &SessionZone) -> Option<i64> {
    let exact = text.len() == 19
        && text.bytes().enumerate().all(|(i, b)| match i {
            4 | 7 => b == b'-',
            10 => b == b' ',
            13 | 16 => b == b':',
            _ => b.is_ascii_digit(),
        });
    let micros = if exact { parse_datetime(text, 6, zone)? } else { return None };
    Some(zone.instant_of_wall(micros.div_euclid(1_000_000)) * 1000).filter(|ms| *ms >= 0)
}
