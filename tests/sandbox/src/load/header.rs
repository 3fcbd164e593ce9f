//! Stream Load request headers: names, legal values, defaults and the texts of their refusals.
//!
//! Parsing is pure and happens in two steps, as on a BE: [`LoadHead`] before the transaction begins and
//! [`LoadPlan`] after it.

use std::time::Duration;

use http::HeaderMap;

/// Seconds a load may last when the request does not say (`stream_load_default_timeout_second`).
const DEFAULT_TIMEOUT_SECONDS: u64 = 259_200;
/// Upper bound of the `timeout` header (`max_stream_load_timeout_second`).
const MAX_TIMEOUT_SECONDS: i64 = 259_200;

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

    /// An FE-side refusal, which a BE passes on in thrift form.
    fn analysis(message: impl AsRef<str>) -> Self {
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
}

/// What the rows of the body do to the table (`merge_type`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MergeKind {
    /// Rows are written.
    #[default]
    Append,
    /// Rows of the body delete the rows with their keys.
    Delete,
}

/// The headers a BE looks at before it begins the transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadHead {
    /// Given label; empty counts as absent.
    pub label: Option<String>,
    /// `two_phase_commit: true`.
    pub two_phase: bool,
    /// Format of the body.
    pub format: Format,
    /// Body is gzip.
    pub gzip: bool,
    /// How long the transaction may stay in PREPARE.
    pub timeout: Duration,
    /// Echoed text.
    pub comment: String,
}

/// The headers that describe how rows are read, checked after the transaction began.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadPlan {
    /// Column names of the body, in order; `None` means the table's columns.
    pub columns: Option<Vec<String>>,
    /// Hidden columns that follow the table's columns; only effective without `columns`.
    pub hidden_columns: Vec<String>,
    /// Text options.
    pub csv: CsvOptions,
    /// JSON options.
    pub json: JsonOptions,
    /// Share of filtered rows above which the load fails.
    pub max_filter_ratio: f64,
    /// Unconvertible values filter their row instead of becoming NULL.
    pub strict_mode: bool,
    /// Zone of zoned timestamps.
    pub timezone: Option<String>,
    /// Effect of the rows.
    pub merge: MergeKind,
}

/// How separated text is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CsvOptions {
    /// Between fields.
    pub separator: Vec<u8>,
    /// Between lines.
    pub delimiter: Vec<u8>,
    /// Byte around fields.
    pub enclose: Option<u8>,
    /// Byte that makes the next one plain inside an enclosed field.
    pub escape: Option<u8>,
    /// Leading lines to pass over.
    pub skip_lines: usize,
    /// Strip one pair of `"` around a field.
    pub trim_double_quotes: bool,
    /// An empty field is NULL.
    pub empty_field_as_null: bool,
}

/// How JSON is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JsonOptions {
    /// One document per line.
    pub by_line: bool,
    /// A document is an array of rows.
    pub strip_outer_array: bool,
}

/// Text of a header; absent and empty are the same to Doris.
fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|v| std::str::from_utf8(v.as_bytes()).ok()).map(str::trim).filter(|v| !v.is_empty())
}

/// Doris reads a boolean header as true only when it says `true`, whatever its case.
fn flag(headers: &HeaderMap, name: &str) -> bool {
    text(headers, name).is_some_and(|v| v.eq_ignore_ascii_case("true"))
}

impl LoadHead {
    /// Reads the headers of the first step.
    ///
    /// # Errors
    /// The refusal of the first offending header, in the order a BE checks them.
    pub fn parse(headers: &HeaderMap) -> Result<Self, HeaderError> {
        // Exactly this spelling: with any other the load is an ordinary one.
        let two_phase = text(headers, "two_phase_commit") == Some("true");
        let label = text(headers, "label").map(str::to_owned);
        check_group_commit(headers, two_phase, label.is_some())?;
        let (format, gzip) = parse_format(headers)?;
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
            label,
            two_phase,
            format,
            gzip,
            timeout: Duration::from_secs(timeout),
            comment: text(headers, "comment").unwrap_or_default().to_owned(),
        })
    }
}

fn check_group_commit(headers: &HeaderMap, two_phase: bool, labelled: bool) -> Result<(), HeaderError> {
    let Some(mode) = text(headers, "group_commit") else { return Ok(()) };
    let mode = mode.to_ascii_lowercase();
    if !matches!(mode.as_str(), "async_mode" | "sync_mode" | "off_mode") {
        return Err(HeaderError::invalid("group_commit can only be [async_mode, sync_mode, off_mode]"));
    }
    // Doris falls back to an ordinary load without a word in these cases.
    let update_mode = text(headers, "unique_key_update_mode").is_some_and(|m| !m.eq_ignore_ascii_case("UPSERT"));
    let falls_back = mode == "off_mode"
        || two_phase
        || flag(headers, "partial_columns")
        || text(headers, "partitions").is_some()
        || text(headers, "temporary_partitions").is_some()
        || update_mode;
    match (falls_back, labelled) {
        (true, _) => Ok(()),
        (false, true) => Err(HeaderError::invalid("label and group_commit can't be set at the same time")),
        (false, false) => Err(HeaderError::unsupported("group_commit")),
    }
}

fn parse_format(headers: &HeaderMap) -> Result<(Format, bool), HeaderError> {
    let name = text(headers, "format").unwrap_or("csv");
    let unknown =
        || HeaderError { code: "DATA_FILE_TYPE_ERROR", message: format!("unknown data format, format={name}") };
    let format = match name.to_ascii_lowercase().as_str() {
        "csv" => Format::Csv { header_lines: 0 },
        "csv_with_names" => Format::Csv { header_lines: 1 },
        "csv_with_names_and_types" => Format::Csv { header_lines: 2 },
        "json" => Format::Json,
        "arrow" => Format::Arrow,
        "parquet" | "orc" | "hive_text" | "wal" => {
            return Err(HeaderError::unsupported(format!("format {name}")));
        }
        _ => return Err(unknown()),
    };
    let encoded = text(headers, "content-encoding").is_some_and(|v| v.eq_ignore_ascii_case("gzip"));
    let gzip = match text(headers, "compress_type").map(str::to_ascii_lowercase).as_deref() {
        None => encoded,
        Some("gz") => true,
        Some(
            other @ ("lzo" | "bz2" | "lz4" | "lz4frame" | "lz4_block" | "lzop" | "snappy_block" | "deflate" | "zstd"),
        ) => {
            return Err(HeaderError::unsupported(format!("compress_type {other}")));
        }
        Some(_) => return Err(unknown()),
    };
    Ok((format, gzip))
}

impl LoadPlan {
    /// Reads the headers of the second step.
    ///
    /// # Errors
    /// The refusal of the first offending header; features of Doris that the sandbox lacks are refused by name.
    pub fn parse(headers: &HeaderMap) -> Result<Self, HeaderError> {
        let strict_mode = match text(headers, "strict_mode") {
            None => false,
            Some(v) if v.eq_ignore_ascii_case("true") => true,
            Some(v) if v.eq_ignore_ascii_case("false") => false,
            Some(_) => return Err(HeaderError::invalid("Invalid strict mode format. Must be bool type")),
        };
        let csv = parse_csv(headers)?;
        if text(headers, "partitions").is_some() && text(headers, "temporary_partitions").is_some() {
            return Err(HeaderError::invalid("Can not specify both partitions and temporary partitions"));
        }
        let merge = parse_merge(headers)?;
        refuse_missing_features(headers)?;
        let max_filter_ratio = match text(headers, "max_filter_ratio") {
            None => 0.0,
            Some(v) => v.parse::<f64>().ok().filter(|r| (0.0..=1.0).contains(r)).ok_or_else(|| {
                HeaderError::invalid(format!("Invalid max_filter_ratio {v}: must be a number between 0 and 1"))
            })?,
        };
        let columns = text(headers, "columns").map(parse_columns).transpose()?;
        let hidden_columns = match (&columns, text(headers, "hidden_columns")) {
            (None, Some(list)) => parse_hidden_columns(list)?,
            _ => Vec::new(),
        };
        let strip_outer_array = flag(headers, "strip_outer_array");
        let by_line = match (text(headers, "read_json_by_line"), text(headers, "strip_outer_array")) {
            (None, None) => true,
            _ => flag(headers, "read_json_by_line"),
        };
        let timezone = text(headers, "timezone").or_else(|| text(headers, "time_zone")).map(str::to_owned);
        Ok(Self {
            columns,
            hidden_columns,
            csv,
            json: JsonOptions { by_line, strip_outer_array },
            max_filter_ratio,
            strict_mode,
            timezone,
            merge,
        })
    }
}

fn parse_csv(headers: &HeaderMap) -> Result<CsvOptions, HeaderError> {
    let single = |name: &str| match text(headers, name) {
        None => Ok(None),
        Some(v) if v.len() == 1 => Ok(v.bytes().next()),
        Some(v) => Err(HeaderError::invalid(format!("{name} must be single-char, actually is {v}"))),
    };
    let enclose = single("enclose")?;
    let escape = single("escape")?.or(enclose.map(|_| b'\\'));
    let skip_lines = match text(headers, "skip_lines") {
        None => 0,
        Some(v) => v
            .parse::<i64>()
            .ok()
            .and_then(|n| usize::try_from(n).ok())
            .ok_or_else(|| HeaderError::invalid(format!("Invalid 'skip_lines': {v}")))?,
    };
    Ok(CsvOptions {
        separator: separator(headers, "column_separator", b"\t")?,
        delimiter: separator(headers, "line_delimiter", b"\n")?,
        enclose,
        escape,
        skip_lines,
        trim_double_quotes: flag(headers, "trim_double_quotes"),
        empty_field_as_null: flag(headers, "empty_field_as_null"),
    })
}

/// A separator as written, or `\x` followed by hex digits (also repeated: `\x01\x02`).
fn separator(headers: &HeaderMap, name: &str, default: &[u8]) -> Result<Vec<u8>, HeaderError> {
    // Not trimmed: a blank may be the separator. An empty header counts as absent.
    let Some(raw) = headers.get(name).map(|v| v.as_bytes()).filter(|v| !v.is_empty()) else {
        return Ok(default.to_vec());
    };
    let hex_form = raw.len() >= 2 && raw[0] == b'\\' && raw[1].eq_ignore_ascii_case(&b'x');
    if !hex_form {
        return Ok(raw.to_vec());
    }
    let digits: Vec<u8> = String::from_utf8_lossy(raw).replace("\\x", "").replace("\\X", "").into_bytes();
    if digits.is_empty() {
        return Err(HeaderError::analysis("Hex str is empty"));
    }
    if !digits.iter().all(u8::is_ascii_hexdigit) {
        return Err(HeaderError::analysis("Hex str format error"));
    }
    if !digits.len().is_multiple_of(2) {
        return Err(HeaderError::analysis("Hex str length error"));
    }
    let nibble = |d: u8| char::from(d).to_digit(16).unwrap_or_default() as u8;
    Ok(digits.chunks(2).map(|pair| nibble(pair[0]) << 4 | nibble(pair[1])).collect())
}

fn parse_merge(headers: &HeaderMap) -> Result<MergeKind, HeaderError> {
    let condition = text(headers, "delete").is_some();
    let given = text(headers, "merge_type");
    match given.unwrap_or("APPEND").to_ascii_uppercase().as_str() {
        "MERGE" if !condition => Err(HeaderError::invalid("Excepted DELETE ON clause when merge type is MERGE.")),
        "MERGE" => Err(HeaderError::unsupported("merge_type MERGE")),
        "APPEND" | "DELETE" if condition => {
            Err(HeaderError::invalid("Not support DELETE ON clause when merge type is not MERGE."))
        }
        "APPEND" => Ok(MergeKind::Append),
        "DELETE" => Ok(MergeKind::Delete),
        _ => Err(HeaderError::invalid(format!("Invalid merge type {}", given.unwrap_or_default()))),
    }
}

/// Features that would change the outcome; accepting them silently would be a lie.
fn refuse_missing_features(headers: &HeaderMap) -> Result<(), HeaderError> {
    let mode = text(headers, "unique_key_update_mode");
    match mode.map(str::to_ascii_uppercase).as_deref() {
        None | Some("UPSERT") => {}
        Some("UPDATE_FIXED_COLUMNS" | "UPDATE_FLEXIBLE_COLUMNS") => {
            return Err(HeaderError::unsupported("partial column update"));
        }
        Some(_) => {
            return Err(HeaderError::invalid(format!("Invalid unique_key_update_mode {}", mode.unwrap_or_default())));
        }
    }
    if mode.is_none() && flag(headers, "partial_columns") {
        return Err(HeaderError::unsupported("partial column update"));
    }
    if let Some(v) = text(headers, "partial_update_new_key_behavior")
        && !v.eq_ignore_ascii_case("APPEND")
        && !v.eq_ignore_ascii_case("ERROR")
    {
        return Err(HeaderError::invalid(format!(
            "Invalid partial_update_new_key_behavior {v}, must be one of {{'APPEND', 'ERROR'}}"
        )));
    }
    for name in
        ["where", "function_column.sequence_col", "partitions", "temporary_partitions", "jsonpaths", "json_root"]
    {
        if text(headers, name).is_some() {
            return Err(HeaderError::unsupported(format!("the header {name}")));
        }
    }
    for name in ["negative", "load_to_single_tablet", "fuzzy_parse"] {
        if flag(headers, name) {
            return Err(HeaderError::unsupported(format!("the header {name}")));
        }
    }
    Ok(())
}

/// Splits `a, ``b``, c` into names.
fn parse_columns(list: &str) -> Result<Vec<String>, HeaderError> {
    let inner = list.strip_prefix('(').and_then(|l| l.strip_suffix(')')).unwrap_or(list);
    let mut names = Vec::new();
    let mut current = String::new();
    let mut quoted = false;
    for c in inner.chars() {
        match c {
            '`' => quoted = !quoted,
            ',' if !quoted => names.push(std::mem::take(&mut current)),
            '=' if !quoted => return Err(HeaderError::unsupported("expressions in the header columns")),
            _ => current.push(c),
        }
    }
    names.push(current);
    let names: Vec<String> = names.into_iter().map(|n| n.trim().to_owned()).collect();
    if quoted || names.iter().any(String::is_empty) {
        return Err(HeaderError::analysis(format!("Syntax error in columns: {list}")));
    }
    Ok(names)
}

fn parse_hidden_columns(list: &str) -> Result<Vec<String>, HeaderError> {
    let names: Vec<String> = list.split(',').map(|n| n.trim().to_owned()).filter(|n| !n.is_empty()).collect();
    match names.iter().find(|n| !n.eq_ignore_ascii_case("__DORIS_DELETE_SIGN__")) {
        None => Ok(names),
        Some(other) => Err(HeaderError::unsupported(format!("the hidden column {other}"))),
    }
}

#[cfg(test)]
mod tests;
