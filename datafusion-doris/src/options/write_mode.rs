//! How rows get to Doris.

use std::fmt;
use std::str::FromStr;

use super::entries::Entries;
use super::key::OptionKey;
use super::value::{Parsed, parse_bool};
use crate::error::Result;

/// `sink.write-mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WriteMode {
    /// Rows flow into an open Stream Load while they arrive.
    #[default]
    StreamLoad,
    /// Rows are kept until there are enough of them for a Stream Load.
    StreamLoadBatch,
    /// Rows are put into object storage, and Doris reads them from there.
    Tvf,
}

impl WriteMode {
    /// The mode that `sink.write-mode` and `sink.enable.batch-mode` ask for: the latter goes before the former, as in the
    /// connector.
    ///
    /// # Errors
    /// [`crate::Error::Config`] for a mode that is not known.
    pub(super) fn from_entries(entries: &mut Entries) -> Result<Self> {
        let mode = entries.parse(OptionKey::WriteMode, str::parse)?.unwrap_or_default();
        let batch = entries.parse(OptionKey::EnableBatchMode, parse_bool)?.unwrap_or(false);
        Ok(if batch { Self::StreamLoadBatch } else { mode })
    }
}

impl fmt::Display for WriteMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::StreamLoad => "STREAM_LOAD",
            Self::StreamLoadBatch => "STREAM_LOAD_BATCH",
            Self::Tvf => "TVF",
        })
    }
}

impl FromStr for WriteMode {
    type Err = String;

    fn from_str(text: &str) -> Parsed<Self> {
        match text.trim().to_ascii_uppercase().as_str() {
            "STREAM_LOAD" => Ok(Self::StreamLoad),
            "STREAM_LOAD_BATCH" => Ok(Self::StreamLoadBatch),
            "TVF" => Ok(Self::Tvf),
            "COPY" => Err("COPY is not supported: it was of Doris Cloud's stages, use STREAM_LOAD".into()),
            _ => Err(format!("'{}' is no write mode, use STREAM_LOAD, STREAM_LOAD_BATCH or TVF", text.trim())),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_read_in_any_case() {
        for mode in [WriteMode::StreamLoad, WriteMode::StreamLoadBatch, WriteMode::Tvf] {
            let text = mode.to_string();
            assert_eq!(text.parse(), Ok(mode));
            assert_eq!(format!(" {} ", text.to_lowercase()).parse(), Ok(mode));
        }
        assert!("COPY".parse::<WriteMode>().unwrap_err().contains("use STREAM_LOAD"));
        assert!("bulk".parse::<WriteMode>().unwrap_err().contains("'bulk' is no write mode"));
    }
}
