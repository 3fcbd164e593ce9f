//! Stream Load on the BE: one request body into one transaction.
//!
//! ```text
//! headers ── LoadHead, LoadPlan, Mapping ──► begin_load ──► 100 Continue
//! body ──► bounded channel ──► [blocking thread: decompress ─ csv │ json │ arrow │ parquet ─ mapping ─ write_load]
//!      ──► call to the master ──► finish_load
//! ```
//!
//! When the channel closes before the end of the body was announced, the client is gone and the transaction is aborted; so
//! it is when the request's future is dropped, and when the time of the load is over while its body stalls. Loads of a group
//! commit have no transaction of their own: their rows are kept until the body is at its end and then join the [`group`].

mod arrow;
mod arrow_stream;
mod batch;
mod csv;
mod csv_rows;
mod decompress;
mod discard;
mod error_log;
mod group;
mod header;
pub(crate) mod http_stream;
mod input;
mod intake;
mod json;
mod json_rows;
mod mapping;
mod parquet;
mod reply;
mod worker;

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use futures::StreamExt;
use http::HeaderMap;

pub(crate) use self::csv::{Fields as CsvFields, Records as CsvRecords};
pub(crate) use self::error_log::{ErrorLogs, ErrorRows};
pub(crate) use self::group::GroupCommits;
use self::group::GroupRows;
pub(crate) use self::header::CsvOptions;
use self::header::{GroupMode, GroupRequest, HeaderError, LoadHead, LoadPlan};
use self::input::BodySender;
use self::intake::Progress;
pub(crate) use self::json::{JsonError, Scanner as JsonScanner, Value as JsonValue};
use self::mapping::{Mapping, Planned};
pub(crate) use self::reply::LoadReply;
use self::reply::{Commit, Failure, Status};
use self::worker::{Done, Job};
use crate::engine::{LoadSpec, Privilege, Profile, TableMeta};
use crate::error::LoadError;
use crate::faults::CommitFaults;
use crate::http::auth::Credentials;
use crate::random;
use crate::shared::Shared;
use crate::txn::{LoadTxn, TxnState};

/// Pieces of a body that wait for the parser.
const CHANNEL_PIECES: usize = 8;

/// Name of the hidden delete column.
pub(crate) const DELETE_SIGN: &str = "__DORIS_DELETE_SIGN__";

/// Name of the hidden sequence column.
pub(crate) const SEQUENCE_COL: &str = "__DORIS_SEQUENCE_COL__";
/// Name of the hidden column that tells what a row of a flexible partial update does not bring.
pub(crate) const SKIP_BITMAP_COL: &str = "__DORIS_SKIP_BITMAP_COL__";

/// Where the rows of a request go.
pub(crate) struct LoadTarget {
    pub db: String,
    pub table: String,
    /// Address of the client, for texts of refused logins.
    pub client: String,
    /// Faults that wait for the commit.
    pub commits: Arc<CommitFaults>,
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
    let group = header::group_commit(headers);
    let grouped = matches!(group, Ok(GroupRequest::Mode(_)));
    let label = match text("label") {
        "" if grouped => String::new(),
        "" => random::uuid(),
        given => given.to_owned(),
    };
    let commit = if grouped { Commit::Group } else { Commit::Own { two_phase: text("two_phase_commit") == "true" } };
    let mut reply = LoadReply::new(label, text("comment").to_owned(), commit);
    let outcome = match group {
        Ok(group) => load(shared, &target, headers, body, group, &mut reply).await,
        Err(error) => Err(error.into()),
    };
    if let Err(failure) = outcome {
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
    group: GroupRequest,
    reply: &mut LoadReply,
) -> Result<(), Failure> {
    // Order of a BE: login header, format, framing, timeout, transaction, then everything else.
    if Credentials::from_headers(headers).is_none() {
        return Err(no_login());
    }
    let head = LoadHead::parse(headers, shared.profile())?;
    call_master(shared).await?;
    let credentials = authenticate(shared, target, headers)?;
    let put = Instant::now();
    let planned = plan(shared, target, &credentials.user, headers, &head);
    reply.times.put = put.elapsed();
    match group_mode(shared.profile(), group, &planned) {
        Some(mode) => {
            reply.commit = Commit::Group;
            reply.label.clear();
            grouped(shared, target, head, planned?, mode, body, reply).await
        }
        None => alone(shared, target, head, planned, body, reply).await,
    }
}

fn no_login() -> Failure {
    Failure::new("NOT_AUTHORIZED", "no valid Basic authorization")
}

/// Waits until the master answers; the error of a BE that does not reach it.
async fn call_master(shared: &Shared) -> Result<(), Failure> {
    shared.cluster.call_master(shared.node).await.map_err(|text| Failure::new("THRIFT_RPC_ERROR", text))
}

/// Checks the login as the FE does when the transaction begins.
fn authenticate(shared: &Shared, target: &LoadTarget, headers: &HeaderMap) -> Result<Credentials, Failure> {
    let credentials = Credentials::from_headers(headers).ok_or_else(no_login)?;
    if !shared.engine.authenticate(&credentials.user, &credentials.password) {
        return Err(Failure::new("NOT_AUTHORIZED", access_denied(&credentials, &target.client)));
    }
    let allowed = shared.engine.check_privilege(&credentials.user, &target.db, &target.table, Privilege::Load);
    allowed.map_err(|denied| Failure::new("NOT_AUTHORIZED", denied.text()))?;
    Ok(credentials)
}

/// The headers of the second step against the table.
struct PlannedLoad {
    plan: LoadPlan,
    meta: TableMeta,
    planned: Planned,
    /// The table keeps nothing.
    discard: bool,
}

fn plan(
    shared: &Shared,
    target: &LoadTarget,
    user: &str,
    headers: &HeaderMap,
    head: &LoadHead,
) -> Result<PlannedLoad, Failure> {
    let plan = LoadPlan::parse(headers, head.format)?;
    let meta = shared.engine.table_meta(&target.db, &target.table).map_err(Failure::from_sql)?;
    let planned = Mapping::plan(&shared.engine, user, &meta, &plan, head.format)?;
    let discard = meta.properties.get("sandbox.discard").is_some_and(|v| v.eq_ignore_ascii_case("true"));
    if discard {
        discard::check(&plan)?;
    }
    Ok(PlannedLoad { plan, meta, planned, discard })
}

/// Whether and how a load joins a group commit.
fn group_mode(profile: Profile, request: GroupRequest, planned: &Result<PlannedLoad, Failure>) -> Option<GroupMode> {
    match (request, planned) {
        (GroupRequest::Mode(mode), _) => Some(mode),
        (GroupRequest::Table, Ok(load)) if profile == Profile::V5_0Changelog => {
            load.meta.properties.get("group_commit_mode").and_then(|mode| GroupMode::of(mode))
        }
        _ => None,
    }
}

/// A load with a transaction of its own.
async fn alone(
    shared: &Arc<Shared>,
    target: &LoadTarget,
    head: LoadHead,
    planned: Result<PlannedLoad, Failure>,
    body: Body,
    reply: &mut LoadReply,
) -> Result<(), Failure> {
    let mut spec = LoadSpec {
        db: target.db.clone(),
        table: target.table.clone(),
        label: Some(reply.label.clone()),
        two_phase: head.two_phase,
        timeout: head.timeout,
        ..LoadSpec::default()
    };
    if let Ok(load) = &planned {
        spec.merge_type = load.planned.merge_type;
        spec.columns = load.planned.columns.clone();
        spec.sequence_column = load.planned.sequence_column.clone();
        spec.update_mode = load.plan.update_mode;
        spec.new_key = load.plan.new_key;
        spec.partitions = load.plan.partitions.clone();
        spec.negative = load.plan.negative;
    }
    let begin = Instant::now();
    let txn = shared.engine.begin_load(spec)?;
    reply.txn_id = txn.txn_id();
    reply.times.begin = begin.elapsed();
    let PlannedLoad { plan, planned, discard, .. } = match planned {
        Ok(load) => load,
        Err(failure) => {
            shared.engine.abort_load(txn, &failure.message);
            return Err(failure);
        }
    };
    let two_phase = head.two_phase;
    let job = Job { engine: Arc::clone(&shared.engine), txn: Some(txn), head, plan, mapping: planned.mapping, discard };
    let Done { outcome, txn, progress, .. } = work(shared, job, body, reply).await?;
    note_errors(shared, reply, &progress);
    let Some(txn) = txn else { return outcome };
    let since = Instant::now();
    let state = end(shared, target, txn, outcome, two_phase).await;
    reply.times.commit = since.elapsed();
    if state? == TxnState::Committed {
        reply.publish_timeout();
    }
    Ok(())
}

/// Commits, pre-commits or aborts a load that has read its body.
async fn end(
    shared: &Arc<Shared>,
    target: &LoadTarget,
    txn: LoadTxn,
    outcome: Result<(), Failure>,
    two_phase: bool,
) -> Result<TxnState, Failure> {
    // A BE tells the master of either end. When it cannot, the transaction stays as it is until its timeout.
    if let Err(failure) = call_master(shared).await {
        shared.engine.leave_load(txn);
        return Err(outcome.err().unwrap_or(failure));
    }
    let outcome = outcome.and_then(|()| match target.commits.fail() {
        Some(text) => Err(Failure::new("INTERNAL_ERROR", text)),
        None => Ok(()),
    });
    if let Err(failure) = outcome {
        shared.engine.abort_load(txn, &failure.message);
        return Err(failure);
    }
    let Some(work) = shared.member().begin_work().await else { return Err(stopped()) };
    let (engine, commits) = (Arc::clone(&shared.engine), Arc::clone(&target.commits));
    let txn_id = txn.txn_id();
    let committing = tokio::task::spawn_blocking(move || {
        let _work = work;
        engine.finish_load_held(txn, two_phase, &|id| commits.hold(id)).map(|outcome| outcome.state)
    });
    let state = committing.await.map_err(|e| ended_early(&e))??;
    Ok(if state == TxnState::Committed { shared.engine.published(txn_id).await } else { state })
}

/// A load whose rows join a group commit.
async fn grouped(
    shared: &Arc<Shared>,
    target: &LoadTarget,
    head: LoadHead,
    load: PlannedLoad,
    mode: GroupMode,
    body: Body,
    reply: &mut LoadReply,
) -> Result<(), Failure> {
    let PlannedLoad { plan, meta, planned, discard } = load;
    let Planned { mapping, columns, merge_type, sequence_column } = planned;
    let negative = plan.negative;
    let engine = Arc::clone(&shared.engine);
    let job = Job { engine, txn: None, head, plan, mapping, discard };
    let Done { outcome, mut progress, kept, .. } = work(shared, job, body, reply).await?;
    let joined = match outcome {
        Ok(()) => {
            let batches = kept.iter().map(|rows| rows.batch.clone()).collect();
            let bytes = reply.load_bytes;
            let rows = GroupRows { meta: &meta, columns, merge_type, sequence_column, negative, batches, bytes };
            join(shared, target, rows, mode).await
        }
        Err(failure) => Err(failure),
    };
    for (batch, refused) in joined.iter().flat_map(|joined| &joined.refused) {
        progress.filter(&refused.reason, &kept[*batch].line(refused.row));
    }
    note_errors(shared, reply, &progress);
    let joined = joined?;
    let txn_id = joined.txn_id;
    reply.txn_id = txn_id;
    reply.label.clone_from(&joined.label);
    if mode == GroupMode::Sync {
        joined.visible().await?;
        if shared.engine.published(txn_id).await == TxnState::Committed {
            reply.publish_timeout();
        }
    }
    Ok(())
}

/// Joining is the commit of a load without a transaction of its own.
async fn join(
    shared: &Shared,
    target: &LoadTarget,
    rows: GroupRows<'_>,
    mode: GroupMode,
) -> Result<group::Joined, Failure> {
    if mode == GroupMode::Sync {
        call_master(shared).await?;
    }
    if let Some(text) = target.commits.fail() {
        return Err(Failure::new("INTERNAL_ERROR", text));
    }
    let Some(_work) = shared.member().begin_work().await else { return Err(stopped()) };
    Ok(shared.groups.join(&shared.cluster, rows)?)
}

fn stopped() -> Failure {
    Failure::new("CANCELLED", "the backend stops")
}

fn ended_early(error: &tokio::task::JoinError) -> Failure {
    Failure::new("INTERNAL_ERROR", format!("the load thread ended early: {error}"))
}

/// Runs the job over the body until both are at their end, or the load's time is over.
async fn work(shared: &Shared, job: Job, body: Body, reply: &mut LoadReply) -> Result<Done, Failure> {
    let Some(work) = shared.member().begin_work().await else { return Err(stopped()) };
    let (sender, reader) = input::channel(CHANNEL_PIECES);
    let txn_id = job.txn.as_ref().map(LoadTxn::txn_id);
    let timeout = job.head.timeout;
    // What a job leaves behind is dropped before the node may end.
    let worker = tokio::task::spawn_blocking(move || (job.run(reader), work));
    let late = async {
        match txn_id {
            Some(id) => shared.engine.txns.timed_out(id).await,
            None => tokio::time::sleep(timeout).await,
        }
    };
    let receive = Instant::now();
    let late = tokio::select! {
        () = forward(body, sender, &mut reply.load_bytes) => false,
        () = late => true,
    };
    reply.times.receive = receive.elapsed();
    let (mut done, _work) = worker.await.map_err(|e| ended_early(&e))?;
    if late {
        let ended = txn_id.and_then(|id| shared.engine.ended_load(id)).map(Failure::from);
        done.outcome = Err(ended.unwrap_or_else(|| {
            Failure::new("TIMEOUT", format!("the load took longer than its timeout of {} s", timeout.as_secs()))
        }));
    }
    reply.times.read = done.read;
    reply.times.write = done.progress.write;
    Ok(done)
}

/// Notes what became of the rows, and where the bad ones are told.
fn note_errors(shared: &Shared, reply: &mut LoadReply, progress: &Progress) {
    reply.rows = progress.rows;
    if let Some(first) = progress.errors.first() {
        let file = shared.error_logs.keep(&progress.errors);
        let backend = shared.host_port(shared.addresses.be_http);
        let scheme = if shared.cluster.tls.be_http { "https" } else { "http" };
        reply.error_url = Some(format!("{scheme}://{backend}/api/_load_error_log?file={file}"));
        reply.set_first_error(first);
    }
}

/// Hands the body to the parser and counts the bytes received. Polling the body is what sends `100 Continue`.
async fn forward(body: Body, sender: BodySender, received: &mut u64) {
    let mut chunks = body.into_data_stream();
    while let Some(chunk) = chunks.next().await {
        match chunk {
            Ok(bytes) => {
                *received += bytes.len() as u64;
                // The parser gave up: what follows is not wanted.
                if !sender.data(bytes).await {
                    return;
                }
            }
            Err(error) => {
                tracing::debug!(%error, "the body of a load broke off");
                return;
            }
        }
    }
    sender.end().await;
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
