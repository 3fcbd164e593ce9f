//! Stream Load: the headers of a load and the verdict on its answer.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value;

use super::envelope::integer;
use super::outcomes::{LoadEvent, LoadKind, Refusal};
use super::txn::{contains_ignoring_case, txn_of_used_label};
use super::{EnvelopeErrorKind, Malformed, excerpt, parse_envelope};
use crate::error::Result;
use crate::options::{CsvFormat, SinkFormat, SinkOptions};
use crate::types::TableIdent;

/// Name of the hidden column of unique tables that marks a row as a delete (`1`) or not (`0`).
pub const DELETE_SIGN: &str = "__DORIS_DELETE_SIGN__";

/// One load, as far as its headers tell.
#[derive(Debug, Clone, Copy)]
pub struct LoadRequest<'a> {
    /// The table.
    pub table: &'a TableIdent,
    /// Options of the sink.
    pub options: &'a SinkOptions,
    /// The header `columns`; `None` = it is not sent, and the body's names are those of the table.
    pub columns: Option<&'a str>,
    /// Format of the body.
    pub format: SinkFormat,
    /// The body carries the delete sign: as the last csv value, or under its name in json and arrow.
    pub delete_sign: bool,
    /// Label of the load; not sent with group commit, where the server makes it.
    pub label: &'a str,
    /// Two-phase commit.
    pub two_phase_commit: bool,
}

/// Headers of a load, names in lower case; without `Authorization` and `Expect`, which belong to the sender.
///
/// Values are UTF-8 (column names need not be ASCII): send them as bytes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StreamLoadHeaders(BTreeMap<String, String>);

impl StreamLoadHeaders {
    /// Builds the headers of `load`; the user's properties come first, what this crate must set comes last.
    ///
    /// # Errors
    /// [`Error::Config`](crate::Error::Config) when the user's properties contradict each other.
    pub fn build(load: &LoadRequest<'_>) -> Result<Self> {
        let mut headers = load.options.properties.clone();
        let mut set = |name: &str, value: String| {
            headers.insert(name.to_owned(), value);
        };
        if !load.options.group_commit().is_on() {
            set("label", load.label.to_owned());
        }
        set("format", load.format.header().to_owned());
        if load.two_phase_commit {
            set("two_phase_commit", "true".into());
        }
        match load.format {
            SinkFormat::Csv => {
                let CsvFormat { column_separator, line_delimiter, enclose, escape } = &load.options.csv;
                set("column_separator", separator_header(column_separator));
                set("line_delimiter", separator_header(line_delimiter));
                if let Some(enclose) = enclose {
                    set("enclose", char::from(*enclose).to_string());
                    set("trim_double_quotes", "true".into());
                }
                if let Some(escape) = escape {
                    set("escape", char::from(*escape).to_string());
                }
            }
            SinkFormat::Json => set("read_json_by_line", "true".into()),
            SinkFormat::Arrow | SinkFormat::Parquet => {}
        }
        match (load.format, load.options.compression_of(load.format).header()) {
            // Compressed inside of the stream, which tells so itself.
            (SinkFormat::Arrow, _) | (_, None) => {}
            (_, Some(compression)) => set("compress_type", compression.into()),
        }
        match load.columns {
            Some(columns) => {
                set("columns", columns.to_owned());
                if load.delete_sign {
                    set("hidden_columns", DELETE_SIGN.into());
                }
            }
            None => {
                headers.remove("columns");
            }
        }
        // Without it a value that Doris cannot convert is loaded as NULL, and success reported. Partial updates are the
        // exception: strict mode would refuse new keys there.
        if !load.options.update_mode()?.is_partial() {
            headers.entry("strict_mode".into()).or_insert_with(|| "true".into());
        }
        Ok(Self(headers))
    }

    /// Name and value of each header, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// One value.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// How the rows become visible.
    pub fn kind(&self) -> LoadKind {
        let grouped = self.get("group_commit").is_some_and(|mode| !mode.eq_ignore_ascii_case("off_mode"));
        match (self.get("two_phase_commit"), grouped) {
            (Some("true"), _) => LoadKind::TwoPhase,
            (_, true) => LoadKind::Group,
            (_, false) => LoadKind::Plain,
        }
    }
}

/// Printable separators as they are, any other with every byte as `\xNN`.
fn separator_header(bytes: &[u8]) -> String {
    // A blank would be trimmed from a header, and a backslash could begin an escape.
    match std::str::from_utf8(bytes) {
        Ok(text) if bytes.iter().all(|byte| byte.is_ascii_graphic() && *byte != b'\\') => text.to_owned(),
        // The server reads the text as one run of hex digits after a single \x.
        _ => format!("\\x{}", bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>()),
    }
}

/// State of the load that holds a label already, as the answer tells; it may be older than the label's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ExistingJob {
    /// `RUNNING`: still loading.
    Running,
    /// `PRECOMMITTED`: waits for commit or abort.
    PreCommitted,
    /// `FINISHED`: committed, visible or soon so.
    Finished,
    /// Absent, empty or another text.
    Unknown,
}

impl ExistingJob {
    /// All states.
    pub const ALL: [ExistingJob; 4] =
        [ExistingJob::Running, ExistingJob::PreCommitted, ExistingJob::Finished, ExistingJob::Unknown];

    fn parse(text: Option<&str>) -> Self {
        match text.unwrap_or_default().trim().to_ascii_uppercase().as_str() {
            "RUNNING" | "PREPARE" => ExistingJob::Running,
            "PRECOMMITTED" => ExistingJob::PreCommitted,
            "FINISHED" | "COMMITTED" | "VISIBLE" => ExistingJob::Finished,
            _ => ExistingJob::Unknown,
        }
    }
}

impl fmt::Display for ExistingJob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ExistingJob::Running => "still loading",
            ExistingJob::PreCommitted => "pre-committed",
            ExistingJob::Finished => "finished",
            ExistingJob::Unknown => "in a state that the server does not tell",
        })
    }
}

/// Parts of the duration of a load, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LoadTimes {
    /// `BeginTxnTimeMs`; none with group commit.
    pub begin_txn: Option<u64>,
    /// `StreamLoadPutTimeMs`: getting the plan.
    pub stream_load_put: Option<u64>,
    /// `ReadDataTimeMs`.
    pub read_data: Option<u64>,
    /// `WriteDataTimeMs`.
    pub write_data: Option<u64>,
    /// `CommitAndPublishTimeMs`; none with group commit.
    pub commit_and_publish: Option<u64>,
}

/// The answer to a load.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StreamLoadResponse {
    /// Transaction; `None` when none began (-1).
    pub txn_id: Option<i64>,
    /// Label.
    pub label: String,
    /// `Status` as sent.
    pub status: String,
    /// `Message`.
    pub message: String,
    /// Pre-committed only; `None` when the server does not tell (group commit).
    pub two_phase_commit: Option<bool>,
    /// `ExistingJobStatus`, with `Label Already Exists`.
    pub existing_job_status: Option<String>,
    /// Rows read.
    pub total_rows: u64,
    /// Rows loaded.
    pub loaded_rows: u64,
    /// Rows refused for their values.
    pub filtered_rows: u64,
    /// Rows left out by `where`.
    pub unselected_rows: u64,
    /// Bytes read.
    pub load_bytes: u64,
    /// Duration in milliseconds.
    pub load_time_ms: u64,
    /// Parts of it, as far as the server tells.
    pub times_ms: LoadTimes,
    /// The load shared a transaction of the server, whose label is [`Self::label`].
    pub group_commit: bool,
    /// Where the refused rows are kept.
    pub error_url: Option<String>,
    /// First refused row and its reason.
    pub first_error: Option<String>,
}

impl StreamLoadResponse {
    /// How many rows there were, behind the reason of a refusal; empty when there were none.
    pub(crate) fn row_counts(&self) -> String {
        let Self { total_rows, loaded_rows, filtered_rows, .. } = self;
        match total_rows {
            0 => String::new(),
            _ => format!(" (rows: {total_rows} in all, {loaded_rows} loaded, {filtered_rows} filtered)"),
        }
    }

    /// Reads the answer of a BE, tolerant of unknown and repeated keys; also an FE's own refusal
    /// (`{"status":"FAILED","msg":…}`), then with [`Self::label`] empty.
    ///
    /// # Errors
    /// [`Malformed`] when the body is no object with a status.
    pub fn parse(body: &[u8]) -> Result<Self, Malformed> {
        let parsed: Option<Value> = serde_json::from_slice(body).ok();
        let Some(Value::Object(map)) = parsed else {
            return Err(Malformed(format!("no JSON object but {}", excerpt(body))));
        };
        let text = |key: &str| map.get(key).and_then(Value::as_str).filter(|text| !text.is_empty()).map(str::to_owned);
        let number = |key: &str| map.get(key).and_then(integer).and_then(|number| u64::try_from(number).ok());
        let status = text("Status")
            .or_else(|| text("status"))
            .ok_or_else(|| Malformed(format!("no Status in {}", excerpt(body))))?;
        let two_phase_commit = match map.get("TwoPhaseCommit") {
            Some(Value::Bool(enabled)) => Some(*enabled),
            Some(Value::String(text)) => text.to_ascii_lowercase().parse().ok(),
            _ => None,
        };
        Ok(Self {
            txn_id: map.get("TxnId").and_then(integer).filter(|id| *id > 0),
            label: text("Label").unwrap_or_default(),
            status,
            message: text("Message").or_else(|| text("msg")).unwrap_or_default(),
            two_phase_commit,
            existing_job_status: text("ExistingJobStatus"),
            total_rows: number("NumberTotalRows").unwrap_or_default(),
            loaded_rows: number("NumberLoadedRows").unwrap_or_default(),
            filtered_rows: number("NumberFilteredRows").unwrap_or_default(),
            unselected_rows: number("NumberUnselectedRows").unwrap_or_default(),
            load_bytes: number("LoadBytes").unwrap_or_default(),
            load_time_ms: number("LoadTimeMs").unwrap_or_default(),
            times_ms: LoadTimes {
                begin_txn: number("BeginTxnTimeMs"),
                stream_load_put: number("StreamLoadPutTimeMs"),
                read_data: number("ReadDataTimeMs"),
                write_data: number("WriteDataTimeMs"),
                commit_and_publish: number("CommitAndPublishTimeMs"),
            },
            group_commit: map.get("GroupCommit").is_some_and(|flag| flag == true || flag == "true"),
            error_url: text("ErrorURL").map(without_signature),
            first_error: text("FirstErrorMsg"),
        })
    }

    /// What this answer means, given that HTTP was 200.
    pub fn event(&self) -> LoadEvent {
        match self.status.to_ascii_lowercase().as_str() {
            "success" | "ok" => LoadEvent::Loaded,
            "publish timeout" => LoadEvent::PublishTimeout,
            "label already exists" => LoadEvent::LabelTaken(ExistingJob::parse(self.existing_job_status.as_deref())),
            _ => LoadEvent::Refused(Refusal::of(&self.message)),
        }
    }

    /// The transaction that holds the label, when the message of `Label Already Exists` tells.
    pub fn txn_of_label(&self) -> Option<i64> {
        txn_of_used_label(&self.message)
    }
}

/// A URL into object storage may be signed: whoever has the signature can read the object.
pub(super) fn without_signature(url: String) -> String {
    match url.split_once('?') {
        Some((object, query)) if contains_ignoring_case(query, "signature") => object.to_owned(),
        _ => url,
    }
}

/// What the answer of a BE means: HTTP status and body, and what the server said where it was no success.
///
/// A body that cannot be read, and a 5xx, leave the outcome unknown: the load may have been committed.
pub fn classify_load(http_status: u16, body: &[u8]) -> (LoadEvent, String) {
    let answered = |event| (event, format!("HTTP {http_status}, {}", excerpt(body)));
    match http_status {
        200 => {}
        401 | 403 => return answered(LoadEvent::Refused(Refusal::Access)),
        // The BE was busy or the request never reached a load.
        429 => return answered(LoadEvent::Refused(Refusal::Busy)),
        400..500 => return answered(LoadEvent::Refused(Refusal::Other)),
        _ => return answered(LoadEvent::LostAnswer),
    }
    match StreamLoadResponse::parse(body) {
        Ok(response) => (response.event(), response.message),
        // A wrong password and the like come as the FE's envelope: no load began.
        Err(malformed) => match parse_envelope(http_status, body, super::Envelope::Object) {
            Err(error) if error.code.is_some() => {
                let reason = match error.kind {
                    EnvelopeErrorKind::Unavailable => Refusal::NoBackend,
                    EnvelopeErrorKind::Auth => Refusal::Access,
                    _ => Refusal::Other,
                };
                (LoadEvent::Refused(reason), error.message)
            }
            _ => (LoadEvent::LostAnswer, malformed.to_string()),
        },
    }
}

/// What an FE means that answers a load instead of redirecting it. Nothing was loaded.
pub fn classify_load_refusal(http_status: u16, message: Option<&str>) -> LoadEvent {
    LoadEvent::AtFrontend(match (http_status, message) {
        (429, _) => Refusal::Busy,
        (500.., _) => Refusal::Unclear,
        (401 | 403, _) => Refusal::Access,
        (200, Some(message)) => Refusal::of(message),
        _ => Refusal::Other,
    })
}
