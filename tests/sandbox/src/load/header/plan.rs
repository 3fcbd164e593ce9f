//! The headers that a BE hands to the planner.

use http::HeaderMap;

use super::columns::{self, ColumnItem};
use super::{Format, HeaderError, flag, integer, text};
use crate::engine::{NewKeyBehavior, UpdateMode};
use crate::load::json::JsonPath;

/// What the rows of the body do to the table (`merge_type`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MergeKind {
    /// Rows are written.
    #[default]
    Append,
    /// Rows of the body delete the rows with their keys.
    Delete,
    /// Rows that meet the condition `delete` delete, the others are written.
    Merge,
}

/// The headers that describe how rows are read, checked after the transaction began.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadPlan {
    /// Columns of the body and those computed from them; `None` means the table's columns.
    pub columns: Option<Vec<ColumnItem>>,
    /// Hidden columns that follow the table's columns; only effective without `columns`.
    pub hidden_columns: Vec<String>,
    /// Condition that rows have to meet (`where`).
    pub filter: Option<String>,
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
    /// Condition of rows that delete (`delete`), with [`MergeKind::Merge`].
    pub delete_on: Option<String>,
    /// Column whose value orders the writes of a key (`function_column.sequence_col`).
    pub sequence_column: Option<String>,
    /// Whole rows or partial ones.
    pub update_mode: UpdateMode,
    /// Partial update of an absent key.
    pub new_key: NewKeyBehavior,
    /// Partitions that take rows.
    pub partitions: Option<Vec<String>>,
    /// SUM columns are subtracted.
    pub negative: bool,
    /// All rows into one tablet (`load_to_single_tablet`).
    pub single_tablet: bool,
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
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonOptions {
    /// One document per line.
    pub by_line: bool,
    /// A document is an array of rows.
    pub strip_outer_array: bool,
    /// Where the value of each column stands, in the order of the columns, and the header's text.
    pub paths: Option<(Vec<JsonPath>, String)>,
    /// Where the rows stand in a document.
    pub root: Option<JsonPath>,
}

impl LoadPlan {
    /// Reads the headers of the second step.
    ///
    /// # Errors
    /// The refusal of the first offending header, in the order a BE checks them; features of Doris that the sandbox
    /// lacks are refused by name.
    pub fn parse(headers: &HeaderMap, format: Format) -> Result<Self, HeaderError> {
        let mut csv = parse_csv(headers)?;
        let partitions = parse_partitions(headers)?;
        let strict_mode = match text(headers, "strict_mode") {
            None => false,
            Some(v) if v.eq_ignore_ascii_case("true") => true,
            Some(v) if v.eq_ignore_ascii_case("false") => false,
            Some(_) => return Err(HeaderError::invalid("Invalid strict mode format. Must be bool type")),
        };
        if text(headers, "exec_mem_limit").is_some_and(|v| v.parse::<i64>().is_err()) {
            return Err(HeaderError::invalid("Invalid mem limit format, stoll"));
        }
        integer(headers, "send_batch_parallelism")?;
        let (merge, delete_on) = parse_merge(headers)?;
        let max_filter_ratio = match text(headers, "max_filter_ratio") {
            None => 0.0,
            Some(v) => v.parse::<f64>().ok().filter(|r| (0.0..=1.0).contains(r)).ok_or_else(|| {
                HeaderError::invalid(format!("Invalid max_filter_ratio {v}: must be a number between 0 and 1"))
            })?,
        };
        csv.skip_lines = parse_skip_lines(headers)?;
        let update_mode = parse_update_mode(headers, format)?;
        let new_key = match text(headers, "partial_update_new_key_behavior").map(str::to_ascii_uppercase) {
            None => NewKeyBehavior::Append,
            Some(v) if v == "APPEND" => NewKeyBehavior::Append,
            Some(v) if v == "ERROR" => NewKeyBehavior::Error,
            Some(v) => {
                return Err(HeaderError::invalid(format!(
                    "Invalid partial_update_new_key_behavior {v}, must be one of {{'APPEND', 'ERROR'}}"
                )));
            }
        };
        integer(headers, "load_stream_per_node")?;
        // From here on it is the FE that refuses.
        let columns = text(headers, "columns").map(columns::parse).transpose()?;
        let hidden_columns = match (&columns, text(headers, "hidden_columns")) {
            (None, Some(list)) => names(list),
            _ => Vec::new(),
        };
        Ok(Self {
            columns,
            hidden_columns,
            filter: text(headers, "where").map(str::to_owned),
            csv,
            json: parse_json(headers)?,
            max_filter_ratio,
            strict_mode,
            timezone: text(headers, "timezone").or_else(|| text(headers, "time_zone")).map(str::to_owned),
            merge,
            delete_on,
            sequence_column: text(headers, "function_column.sequence_col").map(str::to_owned),
            update_mode,
            new_key,
            partitions,
            negative: text(headers, "negative") == Some("true"),
            single_tablet: flag(headers, "load_to_single_tablet"),
        })
    }
}

fn names(list: &str) -> Vec<String> {
    list.split(',').map(|n| n.trim().trim_matches('`').to_owned()).filter(|n| !n.is_empty()).collect()
}

fn parse_partitions(headers: &HeaderMap) -> Result<Option<Vec<String>>, HeaderError> {
    let partitions = text(headers, "partitions");
    let temporary = text(headers, "temporary_partitions");
    match (partitions, temporary) {
        (Some(_), Some(_)) => Err(HeaderError::invalid("Can not specify both partitions and temporary partitions")),
        (None, Some(_)) => Err(HeaderError::unsupported("the header temporary_partitions")),
        (partitions, None) => Ok(partitions.map(names)),
    }
}

fn parse_json(headers: &HeaderMap) -> Result<JsonOptions, HeaderError> {
    let by_line = match (text(headers, "read_json_by_line"), text(headers, "strip_outer_array")) {
        (None, None) => true,
        _ => flag(headers, "read_json_by_line"),
    };
    let wrong_path =
        |text: &str| HeaderError { code: "INVALID_JSON_PATH", message: format!("Invalid json path: {text}") };
    let paths = match text(headers, "jsonpaths") {
        None => None,
        Some(list) => {
            let texts: Vec<String> = serde_json::from_str(list).map_err(|_| wrong_path(list))?;
            let paths = texts.iter().map(|t| JsonPath::parse(t).ok_or_else(|| wrong_path(t)));
            Some((paths.collect::<Result<Vec<_>, _>>()?, list.to_owned()))
        }
    };
    let root = text(headers, "json_root").map(|t| JsonPath::parse(t).ok_or_else(|| wrong_path(t))).transpose()?;
    Ok(JsonOptions { by_line, strip_outer_array: flag(headers, "strip_outer_array"), paths, root })
}

fn parse_csv(headers: &HeaderMap) -> Result<CsvOptions, HeaderError> {
    let single = |name: &str| match text(headers, name) {
        None => Ok(None),
        Some(v) if v.len() == 1 => Ok(v.bytes().next()),
        Some(v) => Err(HeaderError::invalid(format!("{name} must be single-char, actually is {v}"))),
    };
    let enclose = single("enclose")?;
    let escape = single("escape")?.or(enclose.map(|_| b'\\'));
    Ok(CsvOptions {
        separator: separator(headers, "column_separator", b"\t")?,
        delimiter: separator(headers, "line_delimiter", b"\n")?,
        enclose,
        escape,
        skip_lines: 0,
        trim_double_quotes: flag(headers, "trim_double_quotes"),
        empty_field_as_null: flag(headers, "empty_field_as_null"),
    })
}

fn parse_skip_lines(headers: &HeaderMap) -> Result<usize, HeaderError> {
    match integer(headers, "skip_lines")? {
        None => Ok(0),
        Some(n) => usize::try_from(n).map_err(|_| HeaderError::invalid(format!("Invalid 'skip_lines': {n}"))),
    }
}

/// A separator as written, or `\x` followed by hex digits (also repeated: `\x01\x02`).
fn separator(headers: &HeaderMap, name: &str, default: &[u8]) -> Result<Vec<u8>, HeaderError> {
    // Not trimmed: a blank may be the separator. An empty header counts as absent.
    match headers.get(name).map(|v| v.as_bytes()).filter(|v| !v.is_empty()) {
        None => Ok(default.to_vec()),
        Some(raw) => separator_bytes(raw),
    }
}

/// Bytes of a separator as it is written in a header or a property.
fn separator_bytes(raw: &[u8]) -> Result<Vec<u8>, HeaderError> {
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

fn parse_merge(headers: &HeaderMap) -> Result<(MergeKind, Option<String>), HeaderError> {
    let condition = text(headers, "delete").map(str::to_owned);
    let given = text(headers, "merge_type");
    match given.unwrap_or("APPEND").to_ascii_uppercase().as_str() {
        "MERGE" if condition.is_none() => {
            Err(HeaderError::invalid("Excepted DELETE ON clause when merge type is MERGE."))
        }
        "MERGE" => Ok((MergeKind::Merge, condition)),
        "APPEND" | "DELETE" if condition.is_some() => {
            Err(HeaderError::invalid("Not support DELETE ON clause when merge type is not MERGE."))
        }
        "APPEND" => Ok((MergeKind::Append, None)),
        "DELETE" => Ok((MergeKind::Delete, None)),
        _ => Err(HeaderError::invalid(format!("Invalid merge type {}", given.unwrap_or_default()))),
    }
}

fn parse_update_mode(headers: &HeaderMap, format: Format) -> Result<UpdateMode, HeaderError> {
    let Some(mode) = text(headers, "unique_key_update_mode") else {
        // Only looked at without the newer header.
        return Ok(if flag(headers, "partial_columns") { UpdateMode::FixedColumns } else { UpdateMode::Upsert });
    };
    match mode.to_ascii_uppercase().as_str() {
        "UPSERT" => Ok(UpdateMode::Upsert),
        "UPDATE_FIXED_COLUMNS" => Ok(UpdateMode::FixedColumns),
        "UPDATE_FLEXIBLE_COLUMNS" => {
            check_flexible(headers, format)?;
            Ok(UpdateMode::FlexibleColumns)
        }
        _ => Err(HeaderError::invalid(format!(
            "Invalid unique_key_partial_mode {mode}, must be one of 'UPSERT', 'UPDATE_FIXED_COLUMNS' or 'UPDATE_FLEXIBLE_COLUMNS'"
        ))),
    }
}

/// What a flexible partial update cannot be combined with.
fn check_flexible(headers: &HeaderMap, format: Format) -> Result<(), HeaderError> {
    if format != Format::Json {
        return Err(HeaderError::invalid("flexible partial update only support json format as input file currently"));
    }
    if flag(headers, "fuzzy_parse") {
        return Err(HeaderError::invalid("Don't support flexible partial update when 'fuzzy_parse' is enabled"));
    }
    for name in ["columns", "jsonpaths", "hidden_columns", "function_column.sequence_col", "merge_type", "where"] {
        if text(headers, name).is_some() {
            return Err(HeaderError::invalid(format!(
                "Don't support flexible partial update when '{name}' is specified"
            )));
        }
    }
    Ok(())
}
