//! The builds that the sandbox can claim to be.

use std::fmt;
use std::str::FromStr;

/// The Doris build the sandbox imitates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Profile {
    /// 2.1: the oldest line served.
    V2_1,
    /// 3.1.
    V3_1,
    /// 4.0: the last line with zone-tagged DATETIME over Arrow.
    V4_0,
    /// 5.0 with row binlog (`binlog.*` names, windows `(start, end]`).
    V5_0Binlog,
    /// 5.0 after the rename to changelog (`changelog.*` names, windows `[start, end)`).
    #[default]
    V5_0Changelog,
}

impl Profile {
    /// DATETIME travels without zone over Arrow.
    pub fn naive_datetime(self) -> bool {
        self == Self::V5_0Changelog
    }

    /// Row changes can be recorded.
    pub fn has_changes(self) -> bool {
        self >= Self::V5_0Binlog
    }

    /// The version text of `SHOW FRONTENDS` and `version_comment`.
    pub fn version(self) -> &'static str {
        match self {
            Self::V2_1 => "doris-2.1.10",
            Self::V3_1 => "doris-3.1.2",
            Self::V4_0 => "doris-4.0.1",
            Self::V5_0Binlog | Self::V5_0Changelog => "doris-5.0.0",
        }
    }
}

impl FromStr for Profile {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "2.1" => Ok(Self::V2_1),
            "3.1" => Ok(Self::V3_1),
            "4.0" => Ok(Self::V4_0),
            "5.0-binlog" => Ok(Self::V5_0Binlog),
            "5.0-changelog" => Ok(Self::V5_0Changelog),
            other => Err(format!("unknown profile `{other}`, use 2.1, 3.1, 4.0, 5.0-binlog or 5.0-changelog")),
        }
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V2_1 => "2.1",
            Self::V3_1 => "3.1",
            Self::V4_0 => "4.0",
            Self::V5_0Binlog => "5.0-binlog",
            Self::V5_0Changelog => "5.0-changelog",
        })
    }
}
