//! The JSON reply of a Stream Load.

use std::fmt::Write as _;
use std::time::Duration;

use crate::engine::Profile;
use crate::error::SqlError;

/// `Status` of a reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Status {
    Success,
    /// Committed, but not visible within the time a load waits.
    PublishTimeout,
    /// With `ExistingJobStatus`.
    LabelExists(&'static str),
    Fail,
}

/// Why a load did not succeed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    pub status: Status,
    pub code: &'static str,
    pub message: String,
}

impl Failure {
    pub fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self { status: Status::Fail, code, message: message.into() }
    }

    /// An expression that cannot be evaluated over the values of the body.
    pub fn from_evaluation(error: SqlError) -> Self {
        Self::new("INTERNAL_ERROR", error.text())
    }

    /// A refusal of the FE's planner.
    pub fn from_sql(error: SqlError) -> Self {
        Self::new("ANALYSIS_ERROR", format!("TStatus: {}", error.message))
    }
}

/// Rows of a load by what became of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct RowCounts {
    pub total: u64,
    pub filtered: u64,
    pub unselected: u64,
}

impl RowCounts {
    /// Whether more than `ratio` of the selected rows were filtered.
    pub fn exceeds(&self, ratio: f64) -> bool {
        let selected = self.total - self.unselected;
        selected > 0 && self.filtered as f64 / selected as f64 > ratio
    }
}

/// Time spent per phase.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Times {
    pub load: Duration,
    pub begin: Duration,
    pub put: Duration,
    pub read: Duration,
    pub write: Duration,
    pub receive: Duration,
    pub commit: Duration,
}

/// How the rows of a load are committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Commit {
    /// By the load itself, in one phase or two.
    Own { two_phase: bool },
    /// Together with other loads.
    Group,
}

/// Bytes of `FirstErrorMsg` (`first_error_msg_max_length`).
const FIRST_ERROR_BYTES: usize = 256;

/// One reply.
#[derive(Debug)]
pub(crate) struct LoadReply {
    /// -1 when no transaction began.
    pub txn_id: i64,
    pub label: String,
    pub comment: String,
    pub commit: Commit,
    pub status: Status,
    pub message: String,
    pub rows: RowCounts,
    pub load_bytes: u64,
    pub times: Times,
    pub error_url: Option<String>,
    pub first_error: Option<String>,
}

impl LoadReply {
    pub fn new(label: String, comment: String, commit: Commit) -> Self {
        Self {
            txn_id: -1,
            label,
            comment,
            commit,
            status: Status::Success,
            message: "OK".to_owned(),
            rows: RowCounts::default(),
            load_bytes: 0,
            times: Times::default(),
            error_url: None,
            first_error: None,
        }
    }

    pub fn fail(&mut self, failure: Failure) {
        self.status = failure.status;
        self.message = format!("[{}]{}", failure.code, failure.message);
    }

    /// The rows are durable and become visible later.
    pub fn publish_timeout(&mut self) {
        self.status = Status::PublishTimeout;
        self.message = "[PUBLISH_TIMEOUT]transaction commit successfully, BUT data will be visible later".to_owned();
    }

    /// Notes the first bad row, cut to the length that a reply carries.
    pub fn set_first_error(&mut self, text: &str) {
        let mut end = text.len().min(FIRST_ERROR_BYTES);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        self.first_error = Some(text[..end].to_owned());
    }

    fn loaded(&self) -> u64 {
        match self.status {
            Status::Success | Status::PublishTimeout => self.rows.total - self.rows.filtered - self.rows.unselected,
            _ => 0,
        }
    }

    /// The text, keys in the order a BE emits them, indented by four blanks.
    pub fn to_json(&self, profile: Profile) -> String {
        let quoted = |text: &str| serde_json::to_string(text).unwrap_or_default();
        let ms = |d: Duration| d.as_millis().to_string();
        // Builds of the 2.x line know neither comment, receive time nor first error.
        let newer = profile > Profile::V2_1;
        let mut out = String::from("{");
        let mut first = true;
        let mut member = |name: &str, value: String| {
            let comma = if std::mem::take(&mut first) { "" } else { "," };
            let _ = write!(out, "{comma}\n    \"{name}\": {value}");
        };
        member("TxnId", self.txn_id.to_string());
        member("Label", quoted(&self.label));
        if newer {
            member("Comment", quoted(&self.comment));
        }
        let grouped = self.commit == Commit::Group;
        match self.commit {
            Commit::Own { two_phase } => member("TwoPhaseCommit", quoted(if two_phase { "true" } else { "false" })),
            Commit::Group => member("GroupCommit", "true".to_owned()),
        }
        match self.status {
            Status::Success => member("Status", quoted("Success")),
            Status::PublishTimeout => member("Status", quoted("Publish Timeout")),
            Status::Fail => member("Status", quoted("Fail")),
            Status::LabelExists(job) => {
                member("Status", quoted("Label Already Exists"));
                member("ExistingJobStatus", quoted(job));
            }
        }
        member("Message", quoted(&self.message));
        member("NumberTotalRows", self.rows.total.to_string());
        member("NumberLoadedRows", self.loaded().to_string());
        member("NumberFilteredRows", self.rows.filtered.to_string());
        member("NumberUnselectedRows", self.rows.unselected.to_string());
        member("LoadBytes", self.load_bytes.to_string());
        member("LoadTimeMs", ms(self.times.load));
        if !grouped {
            member("BeginTxnTimeMs", ms(self.times.begin));
        }
        member("StreamLoadPutTimeMs", ms(self.times.put));
        member("ReadDataTimeMs", ms(self.times.read));
        member("WriteDataTimeMs", ms(self.times.write));
        if newer {
            member("ReceiveDataTimeMs", ms(self.times.receive));
        }
        if !grouped {
            member("CommitAndPublishTimeMs", ms(self.times.commit));
        }
        if let Some(url) = &self.error_url {
            member("ErrorURL", quoted(url));
        }
        if let (true, Some(text)) = (newer, &self.first_error) {
            member("FirstErrorMsg", quoted(text));
        }
        out.push_str("\n}");
        out
    }
}
