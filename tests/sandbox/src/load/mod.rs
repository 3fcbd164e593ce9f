//! Stream Load on the BE: one request body into one transaction.
//!
//! ```text
//! headers ── LoadHead, LoadPlan ──► begin_load ──► 100 Continue
//! body ──► bounded channel ──► [blocking thread: gz ─ csv │ json │ arrow ─ row batches ─ write_load] ──► finish_load
//! ```
//!
//! The thread owns the transaction. When the channel closes before the end of the body was announced, the client is
//! gone and the transaction is aborted; so it is when the request's future is dropped.

mod arrow;
mod csv;
mod error_log;
mod header;
mod input;
mod json;
mod reply;
mod rows;
mod worker;

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use futures::StreamExt;
use http::HeaderMap;
use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};

pub(crate) use self::error_log::ErrorLogs;
use self::header::{HeaderError, LoadHead, LoadPlan, MergeKind};
use self::input::BodySender;
pub(crate) use self::reply::LoadReply;
use self::reply::{Failure, Status};
use self::rows::Targets;
use self::worker::Job;
use crate::engine::{LoadSpec, MergeType};
use crate::error::LoadError;
use crate::http::auth::Credentials;
use crate::random;
use crate::shared::Shared;

/// `streaming_load_max_mb` in bytes.
const MAX_BODY_BYTES: u64 = 10_240 * 1024 * 1024;
/// Pieces of a body that wait for the parser.
const CHANNEL_PIECES: usize = 8;

/// Name of the hidden delete column.
pub(crate) const DELETE_SIGN: &str = "__DORIS_DELETE_SIGN__";

/// Where the rows of a request go.
pub(crate) struct LoadTarget {
    pub db: String,
    pub table: String,
    /// Address of the client, for texts of refused logins.
    pub client: String,
}

/// The FE's text for a wrong login of a load, as a BE passes it on.
pub(crate) fn access_denied(credentials: &Credentials, client: &str) -> String {
    let used = if credentials.password.is_empty() { "NO" } else { "YES" };
    format!(
        "TStatus: errCode = 2, detailMessage = Access denied for user '{}@{client}' (using password: {used})",
        credentials.user
    )
}

/// Runs one Stream Load; the reply carries every outcome.
pub(crate) async fn run(shared: &Arc<Shared>, target: LoadTarget, headers: &HeaderMap, body: Body) -> LoadReply {
    let started = Instant::now();
    let text = |name: &str| crate::http::header_text(headers, name);
    let label = match text("label") {
        "" => random::uuid(),
        given => given.to_owned(),
    };
    let two_phase = text("two_phase_commit").eq_ignore_ascii_case("true");
    let mut reply = LoadReply::new(label, text("comment").to_owned(), two_phase);
    if let Err(failure) = load(shared, &target, headers, body, &mut reply).await {
        reply.fail(failure);
    }
    reply.times.load = started.elapsed();
    reply
}

async fn load(
    shared: &Arc<Shared>,
    target: &LoadTarget,
    headers: &HeaderMap,
    body: Body,
    reply: &mut LoadReply,
) -> Result<(), Failure> {
    // Order of a BE: login header, format, framing, timeout, transaction, then everything else.
    let credentials = Credentials::from_headers(headers)
        .ok_or_else(|| Failure::new("NOT_AUTHORIZED", "no valid Basic authorization"))?;
    let head = LoadHead::parse(headers)?;
    check_framing(headers)?;
    if !shared.engine.authenticate(&credentials.user, &credentials.password) {
        return Err(Failure::new("NOT_AUTHORIZED", access_denied(&credentials, &target.client)));
    }
    let plan = LoadPlan::parse(headers);

    let begin = Instant::now();
    let columns = match &plan {
        Ok(plan) => target_columns(shared, target, plan)?,
        Err(_) => None,
    };
    let txn = shared.engine.begin_load(LoadSpec {
        db: target.db.clone(),
        table: target.table.clone(),
        label: Some(reply.label.clone()),
        two_phase: head.two_phase,
        timeout: head.timeout,
        merge_type: merge_type(&plan, columns.as_deref()),
        columns: columns.clone(),
        source: "BACKEND_STREAMING",
        ..LoadSpec::default()
    })?;
    reply.txn_id = txn.txn_id();
    reply.times.begin = begin.elapsed();

    let put = Instant::now();
    let planned = plan.map_err(Failure::from).and_then(|plan| {
        let meta = shared.engine.table_meta(&target.db, &target.table).map_err(Failure::from_sql)?;
        let targets = Targets::new(&shared.engine, &meta, columns.as_deref())?;
        Ok((plan, targets))
    });
    reply.times.put = put.elapsed();
    let (plan, targets) = match planned {
        Ok(planned) => planned,
        Err(failure) => {
            shared.engine.abort_load(txn, &failure.message);
            return Err(failure);
        }
    };

    let (sender, reader) = input::channel(CHANNEL_PIECES);
    let job = Job { engine: Arc::clone(&shared.engine), txn, head, plan, targets };
    let worker = tokio::task::spawn_blocking(move || job.run(reader));
    let receive = Instant::now();
    reply.load_bytes = forward(body, sender).await;
    reply.times.receive = receive.elapsed();
    let done = worker.await.map_err(|e| Failure::new("INTERNAL_ERROR", format!("the load thread ended early: {e}")))?;
    reply.times.read = done.read;
    reply.times.write = done.write;
    reply.times.commit = done.commit;
    reply.rows = done.rows;
    if !done.errors.is_empty() {
        let file = shared.error_logs.keep(&done.errors);
        let backend = shared.host_port(shared.addresses.be_http);
        reply.error_url = Some(format!("http://{backend}/api/_load_error_log?file={file}"));
        reply.first_error = done.errors.first().map(str::to_owned);
    }
    done.outcome
}

/// Hands the body to the parser; returns the bytes received. Polling the body is what sends `100 Continue`.
async fn forward(body: Body, sender: BodySender) -> u64 {
    let mut chunks = body.into_data_stream();
    let mut received = 0;
    while let Some(chunk) = chunks.next().await {
        match chunk {
            Ok(bytes) => {
                received += bytes.len() as u64;
                // The parser gave up: what follows is not wanted.
                if !sender.data(bytes).await {
                    return received;
                }
            }
            Err(error) => {
                tracing::debug!(%error, "the body of a load broke off");
                return received;
            }
        }
    }
    sender.end().await;
    received
}

/// Exactly one of `Content-Length` and `Transfer-Encoding: chunked`.
fn check_framing(headers: &HeaderMap) -> Result<(), Failure> {
    let invalid = |text: &str| Err(Failure::new("INVALID_ARGUMENT", text));
    let chunked = headers
        .get(TRANSFER_ENCODING)
        .is_some_and(|v| v.as_bytes().to_ascii_lowercase().windows(7).any(|w| w == b"chunked"));
    let length = headers.get(CONTENT_LENGTH).map(|v| String::from_utf8_lossy(v.as_bytes()).trim().to_owned());
    match (length.filter(|l| !l.is_empty()), chunked) {
        (None, false) => invalid(
            "content_length is empty and transfer-encoding!=chunked, please set content_length or transfer-encoding=chunked",
        ),
        (Some(_), true) => invalid("please do not set both content_length and transfer-encoding"),
        (None, true) => Ok(()),
        (Some(length), false) => match length.parse::<u64>() {
            Err(_) => invalid(&format!("invalid HTTP header CONTENT_LENGTH={length}")),
            Ok(n) if n > MAX_BODY_BYTES => invalid(&format!(
                "body size {n} exceed BE's conf `streaming_load_max_mb` {MAX_BODY_BYTES}. increase it if you are sure this load is reasonable"
            )),
            Ok(_) => Ok(()),
        },
    }
}

/// Columns of the body; `None` means the table's.
fn target_columns(shared: &Shared, target: &LoadTarget, plan: &LoadPlan) -> Result<Option<Vec<String>>, Failure> {
    if let Some(columns) = &plan.columns {
        return Ok(Some(columns.clone()));
    }
    if plan.hidden_columns.is_empty() {
        return Ok(None);
    }
    let meta = shared.engine.table_meta(&target.db, &target.table).map_err(Failure::from_sql)?;
    let base = meta.columns.iter().map(|c| c.name.clone());
    Ok(Some(base.chain(plan.hidden_columns.iter().cloned()).collect()))
}

fn merge_type(plan: &Result<LoadPlan, HeaderError>, columns: Option<&[String]>) -> MergeType {
    let signed = columns.is_some_and(|c| c.iter().any(|name| name.eq_ignore_ascii_case(DELETE_SIGN)));
    match plan {
        Ok(plan) if plan.merge == MergeKind::Delete => MergeType::Delete,
        _ if signed => MergeType::Merge,
        _ => MergeType::Append,
    }
}

impl From<HeaderError> for Failure {
    fn from(error: HeaderError) -> Self {
        Self::new(error.code, error.message)
    }
}

impl From<LoadError> for Failure {
    fn from(error: LoadError) -> Self {
        match error {
            LoadError::LabelExists { state, message, .. } => {
                Self { status: Status::LabelExists(state.existing_job_status()), code: "LABEL_ALREADY_EXISTS", message }
            }
            LoadError::Refused { code_name, message } => Self::new(code_name, message),
        }
    }
}

/// Time spent in a phase so far.
fn add(total: &mut Duration, since: Instant) {
    *total += since.elapsed();
}

#[cfg(test)]
mod tests;
