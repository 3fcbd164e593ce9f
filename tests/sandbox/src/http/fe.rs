//! REST handlers of the FE.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Extension, Path, Query, Request, State};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::{any, get, put};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, StatusCode, Uri};
use serde_json::{Value, json};

use super::auth::Credentials;
use super::envelope::{self, BAD_REQUEST, ERROR, NOT_FOUND, OK, UNAUTHORIZED, envelope, load_refusal};
use super::redirect::{check_policy, to_backend};
use super::statement;
use super::{Peer, header_text as header};
use crate::engine::{Privilege, Profile, TabletInfo};
use crate::error::SqlError;
use crate::shared::Shared;
use crate::txn::TxnState;
use crate::types::DorisType;

/// Largest JSON body a handler reads.
pub(super) const MAX_JSON_BODY: usize = 16 * 1024 * 1024;
/// Thrift port a BE names in query plans; nothing of the sandbox listens there.
const BE_THRIFT_PORT: u16 = 9060;

pub(super) type Ctx = State<Arc<Shared>>;
pub(super) type Reply = Result<Response, Box<Response>>;

pub(super) fn router(shared: Arc<Shared>) -> Router {
    Router::new()
        .route("/", get(probe))
        .route("/api/bootstrap", get(bootstrap))
        .route("/api/health", get(health))
        .route("/api/backends", get(backends))
        .route("/api/tso", get(tso))
        .route("/api/query/{ns}/{db}", any(statement::execute))
        .route("/api/_http_stream", any(http_stream))
        .route("/rest/v2/manager/node/{what}", get(nodes))
        .route("/api/{db}/get_load_state", get(get_load_state))
        .route("/api/{db}/_load_info", get(load_info))
        .route("/api/{db}/_stream_load_2pc", put(stream_load_2pc))
        .route("/api/{db}/{table}/_stream_load_2pc", put(stream_load_2pc))
        .route("/api/{db}/{table}/_stream_load", put(stream_load))
        .route("/api/{db}/{table}/_schema", get(schema))
        .route("/api/{catalog}/{db}/{table}/_schema", get(schema_in_catalog))
        .route("/api/{db}/{table}/_query_plan", get(query_plan).post(query_plan))
        .fallback(not_served)
        .with_state(shared)
}

/// Checks the login of a request.
pub(super) fn login(shared: &Shared, headers: &HeaderMap, peer: Peer) -> Result<Credentials, Box<Response>> {
    let Some(credentials) = Credentials::from_headers(headers) else {
        return Err(Box::new(envelope(UNAUTHORIZED, "Need auth information.")));
    };
    if !shared.engine.authenticate(&credentials.user, &credentials.password) {
        let text = format!("Access denied for {}@{}", credentials.user, peer.0.ip());
        return Err(Box::new(envelope(UNAUTHORIZED, text)));
    }
    Ok(credentials)
}

/// Checks that the user may do something with a table.
fn allowed(
    shared: &Shared,
    credentials: &Credentials,
    db: &str,
    table: &str,
    privilege: Privilege,
) -> Result<(), Box<Response>> {
    let checked = shared.engine.check_privilege(&credentials.user, db, table, privilege);
    checked.map_err(|denied| Box::new(envelope(UNAUTHORIZED, denied.text())))
}

fn flatten(reply: Reply) -> Response {
    reply.unwrap_or_else(|refusal| *refusal)
}

async fn not_served(request: Request) -> Response {
    let text = format!("the sandbox does not implement {} {}", request.method(), request.uri().path());
    let mut response = envelope(NOT_FOUND, text);
    *response.status_mut() = StatusCode::NOT_FOUND;
    response
}

async fn probe() -> Html<&'static str> {
    Html("<!DOCTYPE html><html><head><title>Apache Doris</title></head><body></body></html>")
}

async fn bootstrap() -> Response {
    let data = json!({"replayedJournalId": 0, "queryPort": 0, "rpcPort": 0, "version": "", "startTime": -1});
    envelope(OK, data)
}

async fn health() -> Response {
    envelope(OK, json!({"total_backend_num": 1, "online_backend_num": 1}))
}

async fn backends(State(shared): Ctx, Extension(peer): Extension<Peer>, headers: HeaderMap) -> Response {
    if let Err(refusal) = login(&shared, &headers, peer) {
        return *refusal;
    }
    let backend = json!({"ip": shared.host, "http_port": shared.addresses.be_http.port(), "is_alive": true});
    envelope(OK, json!({"backends": [backend]}))
}

async fn tso(State(shared): Ctx, Extension(peer): Extension<Peer>, headers: HeaderMap) -> Response {
    let credentials = match login(&shared, &headers, peer) {
        Ok(credentials) => credentials,
        Err(refusal) => return *refusal,
    };
    match shared.profile() {
        Profile::V5_0Changelog => {}
        Profile::V5_0Binlog if shared.engine.is_admin(&credentials.user) => {}
        Profile::V5_0Binlog => {
            let text =
                "Access denied; you need (at least one of) the (ADMIN) privilege(s) for this operation".to_owned();
            return envelope(UNAUTHORIZED, text);
        }
        older => {
            let mut response = envelope(NOT_FOUND, format!("profile {older} has no /api/tso"));
            *response.status_mut() = StatusCode::NOT_FOUND;
            return response;
        }
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

async fn nodes(
    State(shared): Ctx,
    Extension(peer): Extension<Peer>,
    Path(what): Path<String>,
    headers: HeaderMap,
) -> Response {
    let credentials = match login(&shared, &headers, peer) {
        Ok(credentials) => credentials,
        Err(refusal) => return *refusal,
    };
    let show = match what.as_str() {
        "frontends" => "SHOW FRONTENDS",
        "backends" => "SHOW BACKENDS",
        "node_list" => {
            let frontend = shared.host_port(shared.addresses.fe_http);
            let backend = shared.host_port(shared.addresses.be_http);
            return envelope(OK, json!({"frontend": [frontend], "backend": [backend]}));
        }
        other => return envelope(ERROR, format!("the sandbox does not implement node/{other}")),
    };
    match shared.text_rows(&credentials.user, &peer.0.ip().to_string(), show).await {
        Ok((names, rows)) => envelope(OK, json!({"columnNames": names, "rows": rows})),
        Err(error) => envelope(ERROR, error.message),
    }
}

async fn schema(
    State(shared): Ctx,
    Extension(peer): Extension<Peer>,
    Path((db, table)): Path<(String, String)>,
    headers: HeaderMap,
) -> Response {
    flatten(table_schema(&shared, &headers, peer, &db, &table))
}

async fn schema_in_catalog(
    State(shared): Ctx,
    Extension(peer): Extension<Peer>,
    Path((catalog, db, table)): Path<(String, String, String)>,
    headers: HeaderMap,
) -> Response {
    if catalog != "internal" && catalog != "default_cluster" {
        return match login(&shared, &headers, peer) {
            Ok(_) => envelope(ERROR, format!("Unknown catalog '{catalog}'")),
            Err(refusal) => *refusal,
        };
    }
    flatten(table_schema(&shared, &headers, peer, &db, &table))
}

fn table_schema(shared: &Shared, headers: &HeaderMap, peer: Peer, db: &str, table: &str) -> Reply {
    let credentials = login(shared, headers, peer)?;
    allowed(shared, &credentials, db, table, Privilege::Select)?;
    let meta = shared.engine.table_meta(db, table).map_err(|e| Box::new(envelope(ERROR, e.message)))?;
    let properties: Vec<Value> = meta
        .columns
        .iter()
        .map(|column| {
            let mut property = json!({
                "name": column.name,
                "type": column.ty.primitive_name(),
                "comment": column.comment,
                "aggregation_type": column.aggregation_type(),
            });
            // Only decimals have these two, and as strings.
            if let DorisType::Decimal { precision, scale } = column.ty {
                property["precision"] = precision.to_string().into();
                property["scale"] = scale.to_string().into();
            }
            property
        })
        .collect();
    Ok(envelope(OK, json!({"status": 200, "keysType": meta.keys_type.rest_name(), "properties": properties})))
}

async fn query_plan(
    State(shared): Ctx,
    Extension(peer): Extension<Peer>,
    Path((db, table)): Path<(String, String)>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    flatten(plan(&shared, &headers, peer, &db, &table, body).await)
}

async fn plan(shared: &Shared, headers: &HeaderMap, peer: Peer, db: &str, table: &str, body: Body) -> Reply {
    let credentials = login(shared, headers, peer)?;
    allowed(shared, &credentials, db, table, Privilege::Select)?;
    let bytes = axum::body::to_bytes(body, MAX_JSON_BODY).await.unwrap_or_default();
    let sql = serde_json::from_slice::<Value>(&bytes)
        .ok()
        .and_then(|root| root.get("sql").and_then(Value::as_str).map(str::to_owned))
        .filter(|sql| !sql.trim().is_empty())
        .ok_or_else(|| Box::new(envelope(BAD_REQUEST, "POST body must contains [sql] root object")))?;
    match shared.engine.plan_tablets(db, table, &sql).await {
        Ok(tablets) => Ok(envelope(OK, plan_data(shared, &tablets, &sql))),
        // Refusals of a plan travel inside a successful envelope.
        Err(error) => Ok(envelope(OK, json!({"status": 400, "exception": refusal_text(&error)}))),
    }
}

fn refusal_text(error: &SqlError) -> &str {
    error.text()
}

fn plan_data(shared: &Shared, tablets: &[TabletInfo], sql: &str) -> Value {
    let routing = format!("{}:{BE_THRIFT_PORT}", shared.host);
    let partitions: serde_json::Map<String, Value> = tablets
        .iter()
        .map(|t| (t.id.to_string(), json!({"routings": [routing], "version": t.version, "schemaHash": 0})))
        .collect();
    json!({"partitions": partitions, "opaqued_query_plan": STANDARD.encode(sql), "status": 200})
}

/// As [`stream_load`], with the table in the header `sql`, which only the BE reads.
async fn http_stream(State(shared): Ctx, Extension(peer): Extension<Peer>, uri: Uri, headers: HeaderMap) -> Response {
    let credentials = match login(&shared, &headers, peer) {
        Ok(credentials) => credentials,
        Err(refusal) => return *refusal,
    };
    if header(&headers, "expect").is_empty() {
        return load_refusal("There is no 100-continue header");
    }
    match check_policy(&headers) {
        Ok(()) => to_backend(&shared, &uri, &credentials),
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
        "trackingUrl": "",
    });
    envelope::json(json!({"status": "OK", "msg": "Success", "jobInfo": info}).to_string())
}

/// Order of checks: group_commit value, login, Expect, names, BE choice. The body stays unread.
async fn stream_load(
    State(shared): Ctx,
    Extension(peer): Extension<Peer>,
    Path((db, table)): Path<(String, String)>,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    flatten(redirect_load(&shared, peer, &db, &table, &uri, &headers))
}

fn redirect_load(shared: &Shared, peer: Peer, db: &str, table: &str, uri: &Uri, headers: &HeaderMap) -> Reply {
    let refuse = |text: &str| Box::new(load_refusal(text));
    let group_commit = header(headers, "group_commit");
    let known = ["sync_mode", "async_mode", "off_mode"];
    if !group_commit.is_empty() && !known.iter().any(|m| group_commit.eq_ignore_ascii_case(m)) {
        return Err(refuse("Header `group_commit` can only be `sync_mode`, `async_mode` or `off_mode`."));
    }
    let token = header(headers, "token");
    if !token.is_empty() {
        // The sandbox hands out no cluster tokens, so none is right.
        return Err(refuse(&format!("Invalid token: {token}")));
    }
    let credentials = login(shared, headers, peer)?;
    if header(headers, "expect").is_empty() {
        return Err(refuse("There is no 100-continue header"));
    }
    if db.is_empty() {
        return Err(refuse("No database selected."));
    }
    if table.is_empty() {
        return Err(refuse("No table selected."));
    }
    allowed(shared, &credentials, db, table, Privilege::Load)?;
    // With group commit the FE chooses the BE by the table, so it looks for it.
    if ["sync_mode", "async_mode"].iter().any(|m| group_commit.eq_ignore_ascii_case(m)) {
        if !shared.engine.databases().iter().any(|known| known == db) {
            return Err(refuse("Database not found."));
        }
        if shared.engine.table_meta(db, table).is_err() {
            return Err(refuse("OlapTable not found."));
        }
    }
    check_policy(headers)?;
    Ok(to_backend(shared, uri, &credentials))
}

async fn stream_load_2pc(
    State(shared): Ctx,
    Extension(peer): Extension<Peer>,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
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
    to_backend(&shared, &uri, &credentials).into_response()
}
