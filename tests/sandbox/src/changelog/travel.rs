//! `FOR TIME AS OF` and `FOR VERSION AS OF`: a table as it was.

use super::incr::timestamp_ms;
use super::{LOGICAL_BITS, LOGICAL_MAX, Names};
use crate::engine::Profile;
use crate::error::SqlError;
use crate::storage::{KeysType, Table};
use crate::types::SessionZone;

/// The moment as written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Travel {
    /// `FOR TIME AS OF '<yyyy-MM-dd HH:mm:ss>'`
    Time(String),
    /// `FOR VERSION AS OF <tso>`
    Version(String),
}

impl Travel {
    /// Checks that the past of the table can be told.
    pub(crate) fn check(table: &Table, profile: Profile) -> Result<(), SqlError> {
        let changes = table.spec().changes;
        if table.keys_type() != KeysType::Duplicate && !table.spec().is_mow() {
            return Err(SqlError::detail(
                "FOR VERSION/TIME AS OF is only supported on duplicate or unique merge-on-write tables",
            ));
        }
        let Some(changes) = changes else {
            return Err(SqlError::detail("FOR VERSION/TIME AS OF requires row binlog"));
        };
        if table.keys_type() == KeysType::Unique && !changes.before_image {
            return Err(SqlError::detail(format!(
                "FOR VERSION/TIME AS OF on merge-on-write table requires {}=true",
                Names::of(profile).property("need_historical_value")
            )));
        }
        Ok(())
    }

    /// The last TSO that belongs to the moment. A time ends where `@incr` from the same time begins.
    pub(crate) fn target(&self, zone: &SessionZone, profile: Profile) -> Result<i64, SqlError> {
        match self {
            Self::Time(text) => {
                let ms =
                    timestamp_ms(text, zone).ok_or_else(|| SqlError::detail(format!("can't parse time: {text}")))?;
                let first = ms << LOGICAL_BITS;
                Ok(if profile == Profile::V5_0Binlog { first | LOGICAL_MAX } else { first })
            }
            Self::Version(text) => text
                .parse()
                .map_err(|_| SqlError::detail(format!("FOR VERSION AS OF requires the TSO of a commit, not {text}"))),
        }
    }
}
