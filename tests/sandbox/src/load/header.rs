//! Stream Load request headers: names, legal values, defaults and the texts of their refusals.
//!
//! Parsing is pure and happens in two steps, as on a BE: [`LoadHead`] before the transaction begins and
//! [`LoadPlan`] after it.

mod columns;
mod plan;

use std::time::Duration;

use http::HeaderMap;
use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};

pub use self::columns::ColumnItem;
pub use self::plan::{CsvOptions, JsonOptions, LoadPlan, MergeKind};
use crate::engine::Profile;

/// Seconds a load may last when the request does not say (`stream_load_default_timeout_second`).
const DEFAULT_TIMEOUT_SECONDS: u64 = 259_200;
/// Upper bound of the `timeout` header (`max_stream_load_timeout_second`).
const MAX_TIMEOUT_SECONDS: i64 = 259_200;
/// `streaming_load_max_mb` in bytes.
const MAX_BODY_BYTES: u64 = 10_240 * 1024 * 1024;
/// `streaming_load_json_max_mb` in bytes: a document that is not read by line is held whole.
pub(super) const MAX_JSON_BYTES: u64 = 100 * 1024 * 1024;

/// A refusal of a header: a Doris status code name and the text that follows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeaderError {
    /// Status code name, e.g. `INVALID_ARGUMENT`.
    pub code: &'static str,
    /// Human text.
    pub message: String,
}

impl HeaderError {
    fn invalid(message: impl Into<String>) -> Self {
        Self { code: "INVALID_ARGUMENT", message: message.into() }
    }

    fn limit(message: impl Into<String>) -> Self {
        Self { code: "EXCEEDED_LIMIT", message: message.into() }
    }

    /// An FE-side refusal, which a BE passes on in thrift form.
    pub fn analysis(message: impl AsRef<str>) -> Self {
        Self { code: "ANALYSIS_ERROR", message: format!("TStatus: errCode = 2, detailMessage = {}", message.as_ref()) }
    }

    /// Doris knows this feature, the sandbox does not.
    pub fn unsupported(what: impl AsRef<str>) -> Self {
        Self { code: "NOT_IMPLEMENTED_ERROR", message: format!("the sandbox does not implement {}", what.as_ref()) }
    }
}

/// Format of the body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Separated text; so many lines at the start hold names and types and carry no data.
    Csv {
        /// Lines of names (and types) to pass over.
        header_lines: usize,
    },
    /// JSON objects.
    Json,
    /// One Arrow IPC stream.
    Arrow,
    /// One Parquet file.
    Parquet,
}

/// Compression of the whole body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Compression {
    /// None.
    #[default]
    Plain,
    /// Any number of gzip members.
    Gzip,
    /// LZ4 frames.
    Lz4Frame,
    /// Blocks of LZ4 with big-endian lengths, as Hadoop writes them.
    Lz4Block,
    /// Raw deflate.
    Deflate,
    /// Zstandard frames.
    Zstd,
}

/// A mode of group commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupMode {
    /// The answer comes as soon as the rows are kept, before they are visible.
    Async,
    /// The answer comes when the shared commit is visible.
    Sync,
}

impl GroupMode {
    /// The mode of this name; `None` for `off_mode` and anything else.
    pub fn of(name: &str) -> Option<Self> {
        match name.to_ascii_lowercase().as_str() {
            "async_mode" => Some(Self::Async),
            "sync_mode" => Some(Self::Sync),
            _ => None,
        }
    }
}

/// Whether a load joins a group commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupRequest {
    /// No: the header says so, or the load is of a kind that cannot.
    Off,
    /// The header says so.
    Mode(GroupMode),
    /// The property `group_commit_mode` of the table decides.
    Table,
}

/// The headers a BE looks at before it begins the transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadHead {
    /// `two_phase_commit: true`.
    pub two_phase: bool,
    /// Format of the body.
    pub format: Format,
    /// Compression of the body.
    pub compression: Compression,
    /// Bytes of the body, when it announces them.
    pub length: Option<u64>,
    /// How long the transaction may stay in PREPARE.
    pub timeout: Duration,
}

/// Text of a header; absent and empty are the same to Doris.
fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|v| std::str::from_utf8(v.as_bytes()).ok()).map(str::trim).filter(|v| !v.is_empty())
}

/// Doris reads a boolean header as true only when it says `true`, whatever its case.
fn flag(headers: &HeaderMap, name: &str) -> bool {
    text(headers, name).is_some_and(|v| v.eq_ignore_ascii_case("true"))
}

/// A header that must be an `int`.
fn integer(headers: &HeaderMap, name: &str) -> Result<Option<i32>, HeaderError> {
    let Some(value) = text(headers, name) else { return Ok(None) };
    value.parse().map(Some).map_err(|_| HeaderError::invalid(format!("Invalid {name} format, {value}")))
}

fn is_chunked(headers: &HeaderMap) -> bool {
    headers
        .get(TRANSFER_ENCODING)
        .is_some_and(|v| v.as_bytes().to_ascii_lowercase().windows(7).any(|w| w == b"chunked"))
}

/// What the headers say about group commit. A BE looks at this before anything else.
///
/// # Errors
/// An unknown mode, or a label together with a mode.
pub fn group_commit(headers: &HeaderMap) -> Result<GroupRequest, HeaderError> {
    let mode = text(headers, "group_commit");
    let known = |m: &str| ["async_mode", "sync_mode", "off_mode"].iter().any(|k| m.eq_ignore_ascii_case(k));
    if mode.is_some_and(|m| !known(m)) {
        return Err(HeaderError::invalid("group_commit can only be [async_mode, sync_mode, off_mode]"));
    }
    // Doris falls back to an ordinary load without a word in these cases.
    let update_mode = text(headers, "unique_key_update_mode").is_some_and(|m| {
        m.eq_ignore_ascii_case("UPDATE_FIXED_COLUMNS") || m.eq_ignore_ascii_case("UPDATE_FLEXIBLE_COLUMNS")
    });
    let empty = text(headers, CONTENT_LENGTH.as_str()).is_none_or(|l| l.parse() == Ok(0)) && !is_chunked(headers);
    let falls_back = mode.is_some_and(|m| m.eq_ignore_ascii_case("off_mode"))
        || empty
        || text(headers, "two_phase_commit") == Some("true")
        || flag(headers, "partial_columns")
        || text(headers, "partitions").is_some()
        || text(headers, "temporary_partitions").is_some()
        || update_mode;
    if falls_back {
        return Ok(GroupRequest::Off);
    }
    let labelled = text(headers, "label").is_some();
    match mode.and_then(GroupMode::of) {
        Some(_) if labelled => Err(HeaderError::invalid("label and group_commit can't be set at the same time")),
        Some(mode) => Ok(GroupRequest::Mode(mode)),
        // A load with a label of its own cannot share another's.
        None if labelled => Ok(GroupRequest::Off),
        None => Ok(GroupRequest::Table),
    }
}

impl LoadHead {
    /// Reads the headers of the first step.
    ///
    /// # Errors
    /// The refusal of the first offending header, in the order a BE checks them.
    pub fn parse(headers: &HeaderMap, profile: Profile) -> Result<Self, HeaderError> {
        let (format, compression) = parse_format(headers, profile)?;
        let length = check_framing(headers, format)?;
        let timeout = match text(headers, "timeout") {
            None => DEFAULT_TIMEOUT_SECONDS,
            Some(v) => match v.parse::<i64>() {
                Err(_) => return Err(HeaderError::invalid(format!("Invalid timeout format, {v}"))),
                Ok(n) if !(1..=MAX_TIMEOUT_SECONDS).contains(&n) => {
                    return Err(HeaderError::analysis(format!(
                        "Invalid timeout. Timeout should between 1 and {MAX_TIMEOUT_SECONDS} seconds"
                    )));
                }
                Ok(n) => n.unsigned_abs(),
            },
        };
        Ok(Self {
            // Exactly this spelling: with any other the load is an ordinary one.
            two_phase: text(headers, "two_phase_commit") == Some("true"),
            format,
            compression,
            length,
            timeout: Duration::from_secs(timeout),
        })
    }
}

/// Exactly one of `Content-Length` and `Transfer-Encoding: chunked`, and not too long. Returns the length.
fn check_framing(headers: &HeaderMap, format: Format) -> Result<Option<u64>, HeaderError> {
    let chunked = is_chunked(headers);
    let length = headers.get(CONTENT_LENGTH).map(|v| String::from_utf8_lossy(v.as_bytes()).trim().to_owned());
    let Some(length) = length.filter(|l| !l.is_empty()) else {
        return if chunked {
            Ok(None)
        } else {
            Err(HeaderError::invalid(
                "content_length is empty and transfer-encoding!=chunked, please set content_length or transfer-encoding=chunked",
            ))
        };
    };
    let Ok(bytes) = length.parse::<u64>() else {
        return Err(HeaderError::invalid(format!("invalid HTTP header CONTENT_LENGTH={length}: stol")));
    };
    // Here only the header counts, not the default that makes a load without both headers one by line.
    let by_line = flag(headers, "read_json_by_line");
    if format == Format::Json && !by_line && bytes > MAX_JSON_BYTES {
        return Err(json_too_large(bytes));
    }
    if bytes > MAX_BODY_BYTES {
        return Err(HeaderError::limit(format!(
            "body size {bytes} exceed BE's conf `streaming_load_max_mb` {MAX_BODY_BYTES}. increase it if you are sure this load is reasonable"
        )));
    }
    if chunked {
        return Err(HeaderError::invalid("please do not set both content_length and transfer-encoding"));
    }
    Ok(Some(bytes))
}

/// Refusal of a document that would have to be held whole.
pub(super) fn json_too_large(bytes: u64) -> HeaderError {
    HeaderError::limit(format!(
        "json body size {bytes} exceed BE's conf `streaming_load_json_max_mb` {MAX_JSON_BYTES}. increase it if you are sure this load is reasonable"
    ))
}

fn parse_format(headers: &HeaderMap, profile: Profile) -> Result<(Format, Compression), HeaderError> {
    let name = text(headers, "format").unwrap_or("csv");
    let compression = text(headers, "compress_type").map(str::to_ascii_lowercase);
    // Builds before 4.0 know neither zstd nor JSON in compressed form.
    let newer = profile >= Profile::V4_0;
    let unknown =
        || HeaderError { code: "DATA_FILE_TYPE_ERROR", message: format!("unknown data format, format={name}") };
    let format = match name.to_ascii_lowercase().as_str() {
        "csv" => Format::Csv { header_lines: 0 },
        "csv_with_names" => Format::Csv { header_lines: 1 },
        "csv_with_names_and_types" => Format::Csv { header_lines: 2 },
        "json" => Format::Json,
        "arrow" => Format::Arrow,
        "parquet" => Format::Parquet,
        "orc" | "hive_text" | "wal" => {
            return Err(HeaderError::unsupported(format!("format {name}")));
        }
        _ => return Err(unknown()),
    };
    match format {
        // Their compression is inside; a BE does not look at the header.
        Format::Arrow | Format::Parquet => return Ok((format, Compression::Plain)),
        Format::Json if compression.is_some() && !newer => return Err(unknown()),
        Format::Csv { .. } | Format::Json => {}
    }
    let compression = match compression.as_deref() {
        None if text(headers, "content-encoding").is_some_and(|v| v.eq_ignore_ascii_case("gzip")) => Compression::Gzip,
        None => Compression::Plain,
        Some("gz") => Compression::Gzip,
        Some("lz4" | "lz4frame") => Compression::Lz4Frame,
        Some("lz4_block") => Compression::Lz4Block,
        Some("deflate") => Compression::Deflate,
        Some("zstd") if newer => Compression::Zstd,
        Some(other @ ("lzo" | "bz2" | "lzop" | "snappy_block")) => {
            return Err(HeaderError::unsupported(format!("compress_type {other}")));
        }
        Some(_) => return Err(unknown()),
    };
    Ok((format, compression))
}

#[cfg(test)]
mod tests;
