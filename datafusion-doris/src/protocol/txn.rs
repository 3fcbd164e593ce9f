//! The second phase of a two-phase commit: `PUT /api/{db}/_stream_load_2pc`.

use std::fmt;

use serde_json::Value;

use super::excerpt;
use crate::error::Retry;

/// What to do with a pre-committed transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TxnOperation {
    /// Make its rows visible.
    Commit,
    /// Drop them; frees the label.
    Abort,
}

impl fmt::Display for TxnOperation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TxnOperation::Commit => "commit",
            TxnOperation::Abort => "abort",
        })
    }
}

/// Which transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TxnRef {
    /// By id.
    Id(i64),
    /// By label.
    Label(String),
}

impl fmt::Display for TxnRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TxnRef::Id(id) => write!(f, "transaction {id}"),
            TxnRef::Label(label) => write!(f, "label {label}"),
        }
    }
}

/// Headers of the request, without `Authorization`.
pub fn txn_headers(operation: TxnOperation, txn: &TxnRef) -> [(&'static str, String); 2] {
    let reference = match txn {
        TxnRef::Id(id) => ("txn_id", id.to_string()),
        TxnRef::Label(label) => ("label", label.clone()),
    };
    [("txn_operation", operation.to_string()), reference]
}

/// What an answer says about the transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TxnOutcome {
    /// The operation was done now.
    Done,
    /// It had been committed before: done for a commit, too late for an abort.
    AlreadyCommitted,
    /// It had been aborted before: done for an abort, the rows are lost for a commit.
    AlreadyAborted,
    /// Its load is still running.
    StillLoading,
    /// Doris does not know it (any more): nothing to abort; a commit must ask the label's state.
    NotFound,
    /// Refused for another reason, or the answer tells nothing.
    Refused {
        /// What may be done next.
        retry: Retry,
        /// The server's text.
        message: String,
    },
}

/// Reads the answer to a commit or abort. Texts are compared without case: spellings differ between versions.
pub fn classify_txn(http_status: u16, body: &[u8]) -> TxnOutcome {
    let refused = |retry, message| TxnOutcome::Refused { retry, message };
    if http_status != 200 {
        let retry = match http_status {
            401 | 403 | 404 => Retry::Never,
            429 => Retry::SameLabel,
            400..500 => Retry::Never,
            _ => Retry::AskLabelState,
        };
        return refused(retry, format!("HTTP {http_status}, {}", excerpt(body)));
    }
    let Some(Value::Object(map)) = serde_json::from_slice::<Value>(body).ok() else {
        return refused(Retry::AskLabelState, excerpt(body));
    };
    let text = |key: &str| map.get(key).and_then(Value::as_str).map(str::trim).unwrap_or_default();
    let status = text("status");
    // The FE's envelope has the human text in `data`.
    let message = if status.is_empty() && !text("data").is_empty() { text("data") } else { text("msg") };
    if status.eq_ignore_ascii_case("success") || status.eq_ignore_ascii_case("ok") {
        return TxnOutcome::Done;
    }
    if let Some(state) = state_in(message) {
        return state;
    }
    if contains_ignoring_case(message, "transaction not found") {
        return TxnOutcome::NotFound;
    }
    if status.is_empty() && map.contains_key("code") {
        return refused(Retry::Never, message.to_owned());
    }
    refused(Retry::AskLabelState, if message.is_empty() { excerpt(body) } else { message.to_owned() })
}

/// The state that `transaction [N] is already <state>…`, `transaction [N] is prepare…`, `transaction [N] not found` or
/// `transaction's state is already <state>…` tells.
fn state_in(message: &str) -> Option<TxnOutcome> {
    let lower = message.to_ascii_lowercase();
    let rest = match lower.find("transaction [") {
        Some(at) => {
            let (digits, rest) = lower[at + "transaction [".len()..].split_once(']')?;
            digits.trim().parse::<i64>().ok()?;
            rest.trim_start()
        }
        None => {
            let at = lower.find("transaction's state is already")?;
            lower[at + "transaction's state ".len()..].trim_start()
        }
    };
    if rest.starts_with("not found") {
        return Some(TxnOutcome::NotFound);
    }
    let rest = rest.strip_prefix("is ")?.trim_start();
    let (already, rest) = match rest.strip_prefix("already ") {
        Some(rest) => (true, rest.trim_start()),
        None => (false, rest),
    };
    let state: String = rest.chars().take_while(char::is_ascii_alphabetic).collect();
    match (already, state.as_str()) {
        (true, "committed" | "visible") => Some(TxnOutcome::AlreadyCommitted),
        (true, "aborted") => Some(TxnOutcome::AlreadyAborted),
        (_, "prepare") => Some(TxnOutcome::StillLoading),
        _ => None,
    }
}

/// The id in `Label [L] has already been used, relate to txn [N]`.
pub(super) fn txn_of_used_label(message: &str) -> Option<i64> {
    let lower = message.to_ascii_lowercase();
    let at = lower.find("relate to txn [")? + "relate to txn [".len();
    let (digits, _) = lower[at..].split_once(']')?;
    digits.trim().parse().ok().filter(|id| *id > 0)
}

/// ASCII case is ignored.
pub(super) fn contains_ignoring_case(text: &str, wanted: &str) -> bool {
    text.to_ascii_lowercase().contains(&wanted.to_ascii_lowercase())
}
