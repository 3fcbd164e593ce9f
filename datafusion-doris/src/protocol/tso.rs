//! Doris' timestamp oracle: `GET /api/tso` and `information_schema.tso_status`.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Malformed;
use super::envelope::integer;

/// Bits of the logical counter.
const LOGICAL_BITS: u32 = 18;

/// A timestamp of the oracle: `(physical ms << 18) | counter`, strictly increasing across the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Tso(pub i64);

impl Tso {
    /// The first timestamp of a millisecond since the Unix epoch; `None` out of range.
    pub fn from_physical_ms(ms: i64) -> Option<Self> {
        (0..=i64::MAX >> LOGICAL_BITS).contains(&ms).then_some(Self(ms << LOGICAL_BITS))
    }

    /// Milliseconds since the Unix epoch.
    pub fn physical_ms(self) -> i64 {
        self.0 >> LOGICAL_BITS
    }

    /// Counter within the millisecond.
    pub fn logical(self) -> i64 {
        self.0 & ((1 << LOGICAL_BITS) - 1)
    }
}

impl fmt::Display for Tso {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What the oracle tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TsoStatus {
    /// Newest timestamp given out.
    pub current: Tso,
    /// Newest timestamp whose predecessors are all committed, where the server tells it.
    pub committed: Option<Tso>,
}

impl TsoStatus {
    /// Reads `data` of `GET /api/tso`.
    ///
    /// # Errors
    /// [`Malformed`] when neither `current_tso` nor `current_tso_physical_time` is a number above zero.
    pub fn from_api(data: &Value) -> Result<Self, Malformed> {
        let read = |key: &str| data.get(key).and_then(integer).filter(|number| *number > 0);
        Self::from_numbers(
            read("current_tso"),
            read("current_tso_physical_time"),
            read("committed_tso").or_else(|| read("committedTSO")),
        )
    }

    /// Reads one row of `information_schema.tso_status`; columns are found by name, any case.
    ///
    /// # Errors
    /// As [`Self::from_api`].
    pub fn from_row(columns: &[String], row: &[Option<String>]) -> Result<Self, Malformed> {
        let read = |name: &str| {
            let at = columns.iter().position(|column| column.eq_ignore_ascii_case(name))?;
            row.get(at)?.as_deref()?.trim().parse().ok().filter(|number: &i64| *number > 0)
        };
        Self::from_numbers(read("CURRENT_TSO"), read("CURRENT_TSO_PHYSICAL_TIME"), read("COMMITTED_TSO"))
    }

    fn from_numbers(tso: Option<i64>, physical_ms: Option<i64>, committed: Option<i64>) -> Result<Self, Malformed> {
        let current = tso
            .map(Tso)
            .or_else(|| physical_ms.and_then(Tso::from_physical_ms))
            .ok_or_else(|| Malformed("no current_tso or current_tso_physical_time above zero".into()))?;
        Ok(Self { current, committed: committed.map(Tso) })
    }
}
