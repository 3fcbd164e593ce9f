//! REST handlers of the FE.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Extension, Path, Query, Request, State};
use axum::response::{Html, Response};
use axum::routing::{any, get, post, put};
use http::{HeaderMap, StatusCode, Uri};
use serde_json::json;

use super::auth::Credentials;
use super::envelope::{self, BAD_REQUEST, ERROR, NOT_FOUND, OK, UNAUTHORIZED, envelope, load_refusal};
use super::redirect::{check_policy, to_backend, to_https};
use super::{Peer, Secure, header_text as header};
use super::{nodes, statement, tables};
use crate::engine::{Privilege, Profile};
use crate::shared::Shared;
use crate::txn::TxnState;

/// Largest JSON body a handler reads.
pub(super) const MAX_JSON_BODY: usize = 16 * 1024 * 1024;

pub(super) type Ctx = State<Arc<Shared>>;
pub(super) type Reply = Result<Response, Box<Response>>;

pub(super) fn router(shared: Arc<Shared>) -> Router {
    Router::new()
        .route("/", get(probe))
        .route("/api/bootstrap", get(nodes::bootstrap))
        .route("/api/health", get(nodes::health))
        .route("/api/backends", get(nodes::backends))
        .route("/api/tso", get(tso))
        .route("/api/query/{ns}/{db}", any(statement::execute))
        .route("/api/_http_stream", any(http_stream))
        .route("/rest/v1/system", get(nodes::system))
        .route("/rest/v2/manager/node/{what}", get(nodes::list))
        .route("/rest/v2/manager/node/configuration_info", post(nodes::configuration_info))
        .route("/api/{db}/get_load_state", get(get_load_state))
        .route("/api/{db}/_load_info", get(load_info))
        .route("/api/{db}/_stream_load_2pc", put(stream_load_2pc))
        .route("/api/{db}/{table}/_stream_load_2pc", put(stream_load_2pc))
        .route("/api/{db}/{table}/_stream_load", put(stream_load))
        .route("/api/{db}/{table}/_schema", get(tables::schema))
        .route("/api/{catalog}/{db}/{table}/_schema", get(tables::schema_in_catalog))
        .route("/api/{db}/{table}/_query_plan", get(tables::query_plan).post(tables::query_plan))
        .fallback(not_served)
        .with_state(shared)
}

/// Checks the login of a request; why it is refused as a text.
fn check_login(shared: &Shared, headers: &HeaderMap, peer: Peer) -> Result<Credentials, String> {
    let Some(credentials) = Credentials::from_headers(headers) else {
        return Err("Need auth information.".to_owned());
    };
    if !shared.engine.authenticate(&credentials.user, &credentials.password) {
        return Err(format!("Access denied for {}@{}", credentials.user, peer.0.ip()));
    }
    Ok(credentials)
}

/// Checks the login of a request.
pub(super) fn login(shared: &Shared, headers: &HeaderMap, peer: Peer) -> Result<Credentials, Box<Response>> {
    check_login(shared, headers, peer).map_err(|text| Box::new(envelope(UNAUTHORIZED, text)))
}

/// The redirect of a call that came without TLS to an FE that has it.
pub(super) fn https_first(shared: &Shared, secure: bool, headers: &HeaderMap, uri: &Uri) -> Option<Response> {
    if secure { None } else { to_https(shared, headers, uri) }
}

/// Checks that the user may do something with a table.
pub(super) fn allowed(
    shared: &Shared,
    credentials: &Credentials,
    db: &str,
    table: &str,
    privilege: Privilege,
) -> Result<(), Box<Response>> {
    let checked = shared.engine.check_privilege(&credentials.user, db, table, privilege);
    checked.map_err(|denied| Box::new(envelope(UNAUTHORIZED, denied.text())))
}

pub(super) fn flatten(reply: Reply) -> Response {
    reply.unwrap_or_else(|refusal| *refusal)
}

async fn not_served(request: Request) -> Response {
    not_served_path(request.method().as_str(), request.uri().path())
}

/// 404 for what is not there.
pub(super) fn not_served_path(method: &str, path: &str) -> Response {
    let mut response = envelope(NOT_FOUND, format!("the sandbox does not implement {method} {path}"));
    *response.status_mut() = StatusCode::NOT_FOUND;
    response
}

async fn probe() -> Html<&'static str> {
    Html("<!DOCTYPE html><html><head><title>Apache Doris</title></head><body></body></html>")
}

/// `GET /api/tso`. Whatever goes wrong here is a bad request: the handler catches all, a wrong login too.
async fn tso(State(shared): Ctx, Extension(peer): Extension<Peer>, headers: HeaderMap) -> Response {
    let profile = shared.profile();
    if !profile.has_changes() {
        let mut response = envelope(NOT_FOUND, format!("profile {profile} has no /api/tso"));
        *response.status_mut() = StatusCode::NOT_FOUND;
        return response;
    }
    let credentials = match check_login(&shared, &headers, peer) {
        Ok(credentials) => credentials,
        Err(text) => return envelope(BAD_REQUEST, text),
    };
    if profile < Profile::V5_0Changelog && !shared.engine.is_admin(&credentials.user) {
        let text = "Access denied; you need (at least one of) the (ADMIN) privilege(s) for this operation";
        return envelope(BAD_REQUEST, text);
    }
    let now = shared.engine.tso();
    if !now.calibrated {
        return envelope(ERROR, "TSO timestamp is not calibrated, please check");
    }
    envelope(
        OK,
        json!({
            "window_end_physical_time": now.window_end_ms,
            "current_tso": now.current_tso,
            "current_tso_physical_time": now.physical_ms,
            "current_tso_logical_counter": now.logical,
        }),
    )
}

async fn get_load_state(
    State(shared): Ctx,
    Extension(peer): Extension<Peer>,
    Path(db): Path<String>,
    Query(query): Query<BTreeMap<String, String>>,
    headers: HeaderMap,
) -> Response {
    if let Err(refusal) = login(&shared, &headers, peer) {
        return *refusal;
    }
    let Some(label) = query.get("label").filter(|l| !l.is_empty()) else {
        return envelope(BAD_REQUEST, "No label selected");
    };
    match shared.engine.label_state(&db, label) {
        Ok(found) => envelope(OK, found.state.name()),
        Err(error) => envelope(ERROR, error.message),
    }
}

/// As [`stream_load`], with the table in the header `sql`, which only the BE reads.
async fn http_stream(
    State(shared): Ctx,
    Extension(peer): Extension<Peer>,
    Extension(Secure(secure)): Extension<Secure>,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    if let Some(moved) = https_first(&shared, secure, &headers, &uri) {
        return moved;
    }
    if let Err(refusal) = check_group_commit(&headers) {
        return *refusal;
    }
    let credentials = match login(&shared, &headers, peer) {
        Ok(credentials) => credentials,
        Err(refusal) => return *refusal,
    };
    if header(&headers, "expect").is_empty() {
        return load_refusal("There is no 100-continue header");
    }
    match check_policy(&headers) {
        Ok(()) => to_backend(&shared, &uri, Some(&credentials), secure, None),
        Err(refusal) => *refusal,
    }
}

/// State of a load that is a job of the FE: an INSERT.
async fn load_info(
    State(shared): Ctx,
    Extension(peer): Extension<Peer>,
    Path(db): Path<String>,
    Query(query): Query<BTreeMap<String, String>>,
    headers: HeaderMap,
) -> Response {
    if let Err(refusal) = login(&shared, &headers, peer) {
        return *refusal;
    }
    let Some(label) = query.get("label").filter(|l| !l.is_empty()) else {
        return load_refusal("No label selected.");
    };
    let found = shared.engine.txns.find_label(&db, label).filter(|txn| txn.source != "BACKEND_STREAMING");
    let Some(txn) = found else {
        return load_refusal("label does not exist");
    };
    let state = match txn.state {
        TxnState::Committed | TxnState::Visible => "FINISHED",
        TxnState::Aborted => "CANCELLED",
        TxnState::Unknown | TxnState::Prepare | TxnState::PreCommitted => "LOADING",
    };
    let info = json!({
        "dbName": db,
        "tblNames": [txn.table],
        "label": label,
        "clusterName": "default_cluster",
        "state": state,
        "failMsg": txn.reason,
        "trackingUrl": txn.error_url.unwrap_or_default(),
    });
    envelope::json(json!({"status": "OK", "msg": "Success", "jobInfo": info}).to_string())
}

/// Order of checks: group_commit value, login, Expect, names, BE choice. The body stays unread.
async fn stream_load(
    State(shared): Ctx,
    Extension(peer): Extension<Peer>,
    Extension(Secure(secure)): Extension<Secure>,
    Path((db, table)): Path<(String, String)>,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    if let Some(moved) = https_first(&shared, secure, &headers, &uri) {
        return moved;
    }
    flatten(redirect_load(&shared, (peer, secure), &db, &table, &uri, &headers))
}

/// Refuses a mode of group commit that does not exist.
fn check_group_commit(headers: &HeaderMap) -> Result<(), Box<Response>> {
    let mode = header(headers, "group_commit");
    let known = ["sync_mode", "async_mode", "off_mode"];
    if mode.is_empty() || known.iter().any(|m| mode.eq_ignore_ascii_case(m)) {
        return Ok(());
    }
    Err(Box::new(load_refusal("Header `group_commit` can only be `sync_mode`, `async_mode` or `off_mode`.")))
}

fn redirect_load(
    shared: &Shared,
    (peer, secure): (Peer, bool),
    db: &str,
    table: &str,
    uri: &Uri,
    headers: &HeaderMap,
) -> Reply {
    let refuse = |text: &str| Box::new(load_refusal(text));
    check_group_commit(headers)?;
    let group_commit = header(headers, "group_commit");
    let token = header(headers, "token");
    let credentials = match token {
        "" => Some(login(shared, headers, peer)?),
        // What nodes of a cluster send to each other.
        known if known == shared.cluster.token => None,
        _ => return Err(refuse(&format!("Invalid token: {token}"))),
    };
    if header(headers, "expect").is_empty() {
        return Err(refuse("There is no 100-continue header"));
    }
    if db.is_empty() {
        return Err(refuse("No database selected."));
    }
    if table.is_empty() {
        return Err(refuse("No table selected."));
    }
    if let Some(credentials) = &credentials {
        let checked = shared.engine.check_privilege(&credentials.user, db, table, Privilege::Load);
        checked.map_err(|denied| refuse(denied.text()))?;
    }
    // With group commit the FE chooses the BE by the table, so it looks for it.
    let grouped = ["sync_mode", "async_mode"].iter().any(|m| group_commit.eq_ignore_ascii_case(m));
    if grouped {
        if !shared.engine.databases().iter().any(|known| known == db) {
            return Err(refuse("Database not found."));
        }
        if shared.engine.table_meta(db, table).is_err() {
            return Err(refuse("OlapTable not found."));
        }
    }
    check_policy(headers)?;
    let table = format!("{db}.{table}");
    Ok(to_backend(shared, uri, credentials.as_ref(), secure, grouped.then_some(table.as_str())))
}

async fn stream_load_2pc(
    State(shared): Ctx,
    Extension(peer): Extension<Peer>,
    Extension(Secure(secure)): Extension<Secure>,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    if let Some(moved) = https_first(&shared, secure, &headers, &uri) {
        return moved;
    }
    let credentials = match login(&shared, &headers, peer) {
        Ok(credentials) => credentials,
        Err(refusal) => return *refusal,
    };
    if header(&headers, "txn_id").is_empty() && header(&headers, "label").is_empty() {
        return load_refusal("No transaction id or label selected.");
    }
    if header(&headers, "txn_operation").is_empty() {
        return load_refusal("No transaction operation('commit' or 'abort') selected.");
    }
    to_backend(&shared, &uri, Some(&credentials), secure, None)
}
