//! The JSON envelope of the FE's REST handlers: `{"msg", "code", "data", "count"}`.
//!
//! HTTP is 200 nearly always; the outcome is in `code`, and the human text of an error in `data`. Code 0 with a text
//! where an object belongs is an error too.

use serde_json::Value;

use super::{Malformed, excerpt};

/// What kind of refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EnvelopeErrorKind {
    /// Credentials or privilege.
    Auth,
    /// The request itself is wrong (body code 403, which Doris calls "Bad Request").
    BadRequest,
    /// Unknown path or object.
    NotFound,
    /// The server cannot serve now: another FE may, or a later attempt.
    Unavailable,
    /// Any other error of the server.
    Server,
    /// Not an envelope at all.
    Malformed,
}

/// A refusal in the envelope.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct EnvelopeError {
    /// What kind.
    pub kind: EnvelopeErrorKind,
    /// Body code, when there was an envelope.
    pub code: Option<i64>,
    /// The server's text.
    pub message: String,
}

/// What `data` must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Envelope {
    /// An object; text is an error message.
    Object,
    /// A text, as `get_load_state` gives.
    Text,
    /// Anything.
    Any,
}

/// `data` of an envelope, or the refusal.
///
/// # Errors
/// See [`EnvelopeErrorKind`].
pub fn parse_envelope(http_status: u16, body: &[u8], expected: Envelope) -> Result<Value, EnvelopeError> {
    let parsed: Option<Value> = serde_json::from_slice(body).ok().filter(Value::is_object);
    let Some(Value::Object(mut envelope)) = parsed else {
        let kind = match http_status {
            401 | 403 => EnvelopeErrorKind::Auth,
            404 => EnvelopeErrorKind::NotFound,
            500.. => EnvelopeErrorKind::Unavailable,
            _ => EnvelopeErrorKind::Malformed,
        };
        return Err(EnvelopeError { kind, code: None, message: format!("HTTP {http_status}, {}", excerpt(body)) });
    };
    let code = envelope.get("code").and_then(integer);
    let msg = envelope.get("msg").and_then(Value::as_str).unwrap_or_default().to_owned();
    let data = envelope.remove("data").unwrap_or(Value::Null);
    let refuse = |kind, message: String| Err(EnvelopeError { kind, code, message });
    let text_of = |data: &Value| match data {
        Value::String(text) if !text.is_empty() => text.clone(),
        Value::Null => msg.clone(),
        Value::String(_) => msg.clone(),
        other => other.to_string(),
    };
    match code {
        Some(0) => {}
        // `{"status":"FAILED","msg":…}` of the load endpoints has no code.
        None if envelope.get("status").is_some() => return refuse(EnvelopeErrorKind::Server, msg),
        None => return refuse(EnvelopeErrorKind::Malformed, format!("no code in {}", excerpt(body))),
        Some(code) => {
            let message = text_of(&data);
            let kind = match code {
                401 => EnvelopeErrorKind::Auth,
                403 => EnvelopeErrorKind::BadRequest,
                404 => EnvelopeErrorKind::NotFound,
                503 => EnvelopeErrorKind::Unavailable,
                _ if http_status >= 500 => EnvelopeErrorKind::Unavailable,
                _ => EnvelopeErrorKind::Server,
            };
            let denied = message.to_ascii_lowercase().contains("access denied");
            return refuse(if denied { EnvelopeErrorKind::Auth } else { kind }, message);
        }
    }
    match (expected, data) {
        (Envelope::Any, data)
        | (Envelope::Object, data @ Value::Object(_))
        | (Envelope::Text, data @ Value::String(_)) => match nested_refusal(&data) {
            Some(message) => refuse(EnvelopeErrorKind::Server, message),
            None => Ok(data),
        },
        (Envelope::Object, Value::String(message)) => {
            let denied = message.to_ascii_lowercase().contains("access denied");
            refuse(if denied { EnvelopeErrorKind::Auth } else { EnvelopeErrorKind::Server }, message)
        }
        (_, data) => {
            refuse(EnvelopeErrorKind::Malformed, format!("unexpected data {}", excerpt(data.to_string().as_bytes())))
        }
    }
}

/// `_query_plan` refuses with code 0 and `{"status":400,"exception":"…"}`.
fn nested_refusal(data: &Value) -> Option<String> {
    data.get("exception").map(|exception| exception.as_str().map_or_else(|| exception.to_string(), str::to_owned))
}

/// An integer that may be quoted.
pub(super) fn integer(value: &Value) -> Option<i64> {
    match value {
        Value::Number(number) => number.as_i64(),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    }
}

/// A cell as text; `None` for NULL.
fn cell(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    }
}

/// Column names and rows of the statement endpoint's `data` (`{"meta":[{"name"}],"data":[[…]]}`) or of the node
/// endpoints' (`{"columnNames":[…],"rows":[[…]]}`, older `column_names`). A statement without a result gives no columns.
///
/// # Errors
/// [`Malformed`] for any other shape, and when a row has another number of cells than there are columns.
#[allow(clippy::type_complexity)]
pub fn parse_result_set(data: &Value) -> Result<(Vec<String>, Vec<Vec<Option<String>>>), Malformed> {
    let shape = || Malformed(format!("no result set in {}", excerpt(data.to_string().as_bytes())));
    let (names, rows) = if let Some(meta) = data.get("meta").and_then(Value::as_array) {
        let names = meta.iter().map(|column| column.get("name").and_then(Value::as_str).map(str::to_owned));
        (names.collect::<Option<Vec<_>>>().ok_or_else(shape)?, data.get("data"))
    } else if let Some(names) = ["columnNames", "column_names"].iter().find_map(|key| data.get(key)?.as_array()) {
        let names = names.iter().map(|name| name.as_str().map(str::to_owned));
        (names.collect::<Option<Vec<_>>>().ok_or_else(shape)?, data.get("rows"))
    } else if data.get("type").and_then(Value::as_str) == Some("exec_status") {
        return Ok((Vec::new(), Vec::new()));
    } else {
        return Err(shape());
    };
    let rows = match rows {
        None | Some(Value::Null) => Vec::new(),
        Some(rows) => rows
            .as_array()
            .ok_or_else(shape)?
            .iter()
            .map(|row| Some(row.as_array()?.iter().map(cell).collect::<Vec<_>>()))
            .collect::<Option<Vec<_>>>()
            .ok_or_else(shape)?,
    };
    if rows.iter().any(|row| row.len() != names.len()) {
        return Err(Malformed("a row has another number of cells than there are columns".into()));
    }
    Ok((names, rows))
}
