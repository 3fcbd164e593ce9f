//! HTTP handlers of the BE.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Extension, Path, Query, Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, put};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, StatusCode};

use super::auth::Credentials;
use super::envelope::json;
use super::fe::Ctx;
use super::{Peer, header_text as header};
use crate::engine::{Privilege, TxnRef};
use crate::faults::CommitFaults;
use crate::load::{self, LoadTarget};
use crate::shared::Shared;

pub(super) fn router(shared: Arc<Shared>) -> Router {
    Router::new()
        .route("/", get(probe))
        .route("/api/health", get(health))
        .route("/api/show_config", get(super::nodes::show_config))
        .route("/api/_load_error_log", get(error_log))
        .route("/api/{db}/_stream_load_2pc", put(stream_load_2pc))
        .route("/api/{db}/{table}/_stream_load_2pc", put(stream_load_2pc_of_table))
        .route("/api/{db}/{table}/_stream_load", put(stream_load))
        .route("/api/_http_stream", put(http_stream))
        .fallback(not_served)
        .with_state(shared)
}

async fn not_served(request: Request) -> Response {
    let text = format!("the sandbox does not implement {} {}\n", request.method(), request.uri().path());
    (StatusCode::NOT_FOUND, text).into_response()
}

async fn probe() -> &'static str {
    "Doris backend\n"
}

async fn health() -> Response {
    json(r#"{"status":"OK","msg":"To Be Added"}"#.to_owned())
}

async fn error_log(State(shared): Ctx, Query(query): Query<BTreeMap<String, String>>) -> Response {
    let Some(file) = query.get("file").filter(|f| !f.is_empty()) else {
        return (StatusCode::BAD_REQUEST, "The parameter 'file' is missing\n").into_response();
    };
    match shared.error_logs.get(file).or_else(|| shared.engine.insert_logs.get(file)) {
        Some(text) => {
            let mut response = Response::new(Body::from(text));
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
            response
        }
        None => (StatusCode::NOT_FOUND, format!("the load error log {file} does not exist\n")).into_response(),
    }
}

async fn stream_load(
    State(shared): Ctx,
    Extension(peer): Extension<Peer>,
    Extension(commits): Extension<Arc<CommitFaults>>,
    Path((db, table)): Path<(String, String)>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let target = LoadTarget { db, table, client: peer.0.ip().to_string(), commits };
    let outcome = load::run(&shared, target, &headers, body).await;
    // Doris ends the text with a line feed.
    json(outcome.to_json(shared.profile()) + "\n")
}

async fn http_stream(
    State(shared): Ctx,
    Extension(peer): Extension<Peer>,
    Extension(commits): Extension<Arc<CommitFaults>>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let client = peer.0.ip().to_string();
    let outcome = load::http_stream::run(&shared, (client, commits), &headers, body).await;
    json(outcome.to_json(shared.profile()) + "\n")
}

async fn stream_load_2pc_of_table(
    ctx: Ctx,
    peer: Extension<Peer>,
    commits: Extension<Arc<CommitFaults>>,
    Path((db, _table)): Path<(String, String)>,
    headers: HeaderMap,
) -> Response {
    stream_load_2pc(ctx, peer, commits, Path(db), headers).await
}

async fn stream_load_2pc(
    State(shared): Ctx,
    Extension(peer): Extension<Peer>,
    Extension(commits): Extension<Arc<CommitFaults>>,
    Path(db): Path<String>,
    headers: HeaderMap,
) -> Response {
    let reached = shared.cluster.call_master(shared.node).await.map_err(|text| ("THRIFT_RPC_ERROR", text));
    let (status, message) = match reached.and_then(|()| second_phase(&shared, peer, &commits, &db, &headers)) {
        Ok((txn_id, message)) => {
            // Success whether it is visible or not, but a commit waits for those before it.
            shared.engine.published(txn_id).await;
            ("Success", message)
        }
        Err((code, message)) => (code, message),
    };
    let message = serde_json::to_string(&message).unwrap_or_default();
    json(format!("{{\n    \"status\": \"{status}\",\n    \"msg\": {message}\n}}\n"))
}

/// The transaction of a second phase and the `msg` of its success; else the status and the text.
fn second_phase(
    shared: &Shared,
    peer: Peer,
    commits: &CommitFaults,
    db: &str,
    headers: &HeaderMap,
) -> Result<(i64, String), (&'static str, String)> {
    let Some(credentials) = Credentials::from_headers(headers) else {
        return Err(("NOT_AUTHORIZED", "no valid Basic authorization".to_owned()));
    };
    let id = header(headers, "txn_id");
    let label = header(headers, "label");
    if id.is_empty() && label.is_empty() {
        return Err(("INVALID_ARGUMENT", "transaction id and label are both empty".to_owned()));
    }
    let txn_id = match id {
        "" => None,
        text => Some(
            text.parse::<i64>()
                .map_err(|e| ("INVALID_ARGUMENT", format!("convert txn_id [{text}] failed, reason={e}")))?,
        ),
    };
    let operation = header(headers, "txn_operation");
    let commit = match operation.to_ascii_lowercase().as_str() {
        "commit" => true,
        "abort" => false,
        _ => {
            let text = "transaction operation should be 'commit' or 'abort'".to_owned();
            return Err(("INVALID_ARGUMENT", text));
        }
    };
    if !shared.engine.authenticate(&credentials.user, &credentials.password) {
        let text = load::access_denied(&credentials, &peer.0.ip().to_string());
        return Err(("NOT_AUTHORIZED", text));
    }
    let txn = TxnRef { txn_id, label: (!label.is_empty()).then(|| label.to_owned()) };
    // A transaction that is not there is the engine's to refuse.
    let named = shared.engine.named_txn(db, &txn);
    if let Some((_, table)) = &named {
        let allowed = shared.engine.check_privilege(&credentials.user, db, table, Privilege::Load);
        allowed.map_err(|denied| ("NOT_AUTHORIZED", denied.text().to_owned()))?;
    }
    if let Some(text) = commits.fail() {
        return Err(("INTERNAL_ERROR", text));
    }
    let result = match commit {
        true => shared.engine.commit_txn_held(db, &txn, &|id| commits.hold(id)),
        false => shared.engine.abort_txn(db, &txn),
    };
    let message = result.map_err(|error| ("ANALYSIS_ERROR", error.message))?;
    Ok((named.map_or(0, |(id, _)| id), message))
}
