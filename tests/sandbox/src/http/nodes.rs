//! What FEs tell of the nodes: liveness, lists, configuration.

use std::collections::BTreeMap;

use axum::body::Bytes;
use axum::extract::{Extension, Path, Query, State};
use axum::response::Response;
use http::{HeaderMap, Uri};
use serde_json::{Value, json};

use super::envelope::{self, BAD_REQUEST, ERROR, OK, UNAUTHORIZED, envelope};
use super::fe::{Ctx, https_first, login, not_served_path};
use super::{Peer, Secure};
use crate::engine::{CLUSTER_ID, Profile};
use crate::error::SqlError;
use crate::shared::Shared;

type Params = Query<BTreeMap<String, String>>;

/// Titles of `configuration_info`, as the server has them in every language.
const FE_TITLES: [&str; 7] = ["配置项", "节点", "节点类型", "配置值类型", "MasterOnly", "配置值", "可修改"];
const BE_TITLES: [&str; 6] = ["配置项", "节点", "节点类型", "配置值类型", "配置值", "可修改"];

pub(super) async fn bootstrap(State(shared): Ctx, Query(query): Params) -> Response {
    let given = |name: &str| query.get(name).map(String::as_str).filter(|v| !v.is_empty());
    let (Some(cluster), Some(token)) = (given("cluster_id"), given("token")) else {
        let data = json!({"replayedJournalId": 0, "queryPort": 0, "rpcPort": 0, "version": "", "startTime": -1});
        return envelope(OK, data);
    };
    let Ok(id) = cluster.parse::<i32>() else {
        return envelope(BAD_REQUEST, format!("invalid cluster id format: {cluster}"));
    };
    if id != CLUSTER_ID {
        return envelope(ERROR, format!("invalid cluster id: {id}"));
    }
    if token != shared.cluster.token {
        return envelope(ERROR, format!("invalid token: {token}"));
    }
    let topology = shared.engine.topology();
    let started = match shared.node {
        crate::faults::NodeId::Fe(i) => topology.frontends.get(i).map_or(0, |node| node.started_ms),
        crate::faults::NodeId::Be(_) => 0,
    };
    envelope(
        OK,
        json!({
            "replayedJournalId": 1,
            "queryPort": shared.addresses.mysql.port(),
            "rpcPort": 9020,
            "version": shared.profile().version(),
            "startTime": started,
        }),
    )
}

pub(super) async fn health(State(shared): Ctx) -> Response {
    let total = shared.cluster.backends.len();
    let online = shared.cluster.alive_backends().count();
    envelope(OK, json!({"total_backend_num": total, "online_backend_num": online}))
}

pub(super) async fn backends(
    State(shared): Ctx,
    Extension(peer): Extension<Peer>,
    Query(query): Params,
    headers: HeaderMap,
) -> Response {
    if let Err(refusal) = login(&shared, &headers, peer) {
        return *refusal;
    }
    let only_alive = query.get("is_alive").is_some_and(|v| v.eq_ignore_ascii_case("true"));
    let listed = shared.cluster.backends.iter().filter(|member| member.alive() || !only_alive);
    let backends: Vec<Value> = listed
        .map(|member| {
            let port = member.addresses.be_http.port();
            json!({"ip": shared.host, "http_port": port, "is_alive": member.alive()})
        })
        .collect();
    envelope(OK, json!({"backends": backends}))
}

/// `GET /rest/v2/manager/node/{what}`
pub(super) async fn list(
    State(shared): Ctx,
    Extension(peer): Extension<Peer>,
    Extension(Secure(secure)): Extension<Secure>,
    Path(what): Path<String>,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    let credentials = match login(&shared, &headers, peer) {
        Ok(credentials) => credentials,
        Err(refusal) => return *refusal,
    };
    if shared.profile() == Profile::V2_1 && !shared.engine.is_admin(&credentials.user) {
        return denied("ADMIN");
    }
    match what.as_str() {
        "frontends" | "backends" | "brokers" => {
            if let Some(moved) = https_first(&shared, secure, &headers, &uri) {
                return moved;
            }
            match table_of(&shared, &what).await {
                Ok((names, rows)) => envelope(OK, json!({"columnNames": names, "rows": rows})),
                // Exceptions of this kind are answered as successes.
                Err(error) => envelope(OK, error.message),
            }
        }
        "node_list" => {
            envelope(OK, json!({"frontend": node_addresses(&shared, true), "backend": node_addresses(&shared, false)}))
        }
        "configuration_name" => {
            let names = |list: &[Setting]| list.iter().map(|s| s.name).collect::<Vec<_>>();
            let backend =
                if shared.cluster.alive_backends().next().is_some() { names(BE_SETTINGS) } else { Vec::new() };
            envelope(OK, json!({"frontend": names(FE_SETTINGS), "backend": backend}))
        }
        // This one is for other FEs and comes without an envelope.
        "config" => envelope::json(Value::from(fe_config(&shared)).to_string()),
        _ => not_served_path("GET", uri.path()),
    }
}

/// `POST /rest/v2/manager/node/configuration_info?type=fe|be`
pub(super) async fn configuration_info(
    State(shared): Ctx,
    Extension(peer): Extension<Peer>,
    Query(query): Params,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let credentials = match login(&shared, &headers, peer) {
        Ok(credentials) => credentials,
        Err(refusal) => return *refusal,
    };
    if !shared.engine.is_admin(&credentials.user) {
        return denied("ADMIN,NODE");
    }
    let asked: Value = serde_json::from_slice(&body).unwrap_or_default();
    let texts = |key: &str| -> Vec<String> {
        let list = asked.get(key).and_then(Value::as_array).into_iter().flatten();
        list.filter_map(|v| v.as_str().map(str::to_owned)).collect()
    };
    let (settings, nodes) = (texts("conf_name"), texts("node"));
    let kind = query.get("type").map(String::as_str).unwrap_or_default();
    let frontend = match kind.to_ascii_lowercase().as_str() {
        "fe" => true,
        "be" => false,
        _ => {
            let text = format!("Unsupported type: {kind}. Only types of fe or be are supported");
            return envelope(BAD_REQUEST, text);
        }
    };
    let mut rows = Vec::new();
    for address in node_addresses(&shared, frontend) {
        if !nodes.is_empty() && !nodes.contains(&address) {
            continue;
        }
        let config = if frontend { fe_config(&shared) } else { be_config() };
        for setting in config.into_iter().filter(|row| settings.is_empty() || settings.contains(&row[0])) {
            let (name, rest) = setting.split_first().map_or((String::new(), &[][..]), |(n, r)| (n.clone(), r));
            let mut row = vec![name, address.clone(), if frontend { "FE" } else { "BE" }.to_owned()];
            row.extend_from_slice(rest);
            rows.push(row);
        }
    }
    let titles: &[&str] = if frontend { &FE_TITLES } else { &BE_TITLES };
    envelope(OK, json!({"columnNames": titles, "rows": rows}))
}

/// `GET /rest/v1/system?path=//backends`, of connectors that are old.
pub(super) async fn system(
    State(shared): Ctx,
    Extension(peer): Extension<Peer>,
    Query(query): Params,
    headers: HeaderMap,
) -> Response {
    let credentials = match login(&shared, &headers, peer) {
        Ok(credentials) => credentials,
        Err(refusal) => return *refusal,
    };
    if !shared.engine.is_admin(&credentials.user) {
        return denied("ADMIN");
    }
    let path = query.get("path").map_or("/", String::as_str);
    let what = path.trim_matches('/');
    if !matches!(what, "frontends" | "backends" | "brokers") {
        return envelope(ERROR, format!("the sandbox does not implement system path {path}"));
    }
    match table_of(&shared, what).await {
        Ok((names, rows)) => {
            let row = |cells: &Vec<String>| -> Value {
                names.iter().zip(cells).map(|(n, c)| (n.clone(), Value::from(c.as_str()))).collect()
            };
            let rows: Vec<Value> = rows.iter().map(row).collect();
            envelope(OK, json!({"column_names": names, "rows": rows, "parent_url": "/rest/v1/system?path=/"}))
        }
        Err(error) => envelope(OK, error.message),
    }
}

/// `GET /api/show_config` of a BE.
pub(super) async fn show_config() -> Response {
    envelope::json(Value::from(be_config()).to_string())
}

fn denied(privileges: &str) -> Response {
    let text = format!("Access denied; you need (at least one of) the ({privileges}) privilege(s) for this operation");
    envelope(UNAUTHORIZED, text)
}

/// Columns and rows of a list of nodes, whoever asks.
async fn table_of(shared: &Shared, what: &str) -> Result<(Vec<String>, Vec<Vec<String>>), SqlError> {
    let show = match what {
        "frontends" => "SHOW FRONTENDS",
        "backends" => "SHOW BACKENDS",
        // There are none.
        _ => {
            let names = ["Name", "Host", "Port", "Alive", "LastStartTime", "LastUpdateTime", "ErrMsg"];
            return Ok((names.map(str::to_owned).to_vec(), Vec::new()));
        }
    };
    let admin = shared.engine.config().user.clone();
    shared.text_rows(&admin, "127.0.0.1", show).await
}

/// `host:http_port` of all nodes of a kind.
fn node_addresses(shared: &Shared, frontends: bool) -> Vec<String> {
    let cluster = &shared.cluster;
    if frontends {
        cluster.frontends.iter().map(|m| cluster.host_port(m.addresses.fe_http)).collect()
    } else {
        cluster.backends.iter().map(|m| cluster.host_port(m.addresses.be_http)).collect()
    }
}

/// One item of a configuration, with the default of the newest build.
struct Setting {
    name: &'static str,
    ty: &'static str,
    master_only: bool,
    value: &'static str,
    mutable: bool,
}

const fn setting(
    name: &'static str,
    ty: &'static str,
    value: &'static str,
    master_only: bool,
    mutable: bool,
) -> Setting {
    Setting { name, ty, master_only, value, mutable }
}

/// In the order of their names.
const FE_SETTINGS: &[Setting] = &[
    setting("arrow_flight_sql_port", "int", "", false, false),
    setting("commit_timeout_second", "int", "30", true, true),
    setting("edit_log_port", "int", "9010", false, false),
    setting("enable_https", "boolean", "", false, false),
    setting("expr_children_limit", "int", "10000", false, true),
    setting("expr_depth_limit", "int", "3000", false, true),
    setting("http_port", "int", "", false, false),
    setting("https_port", "int", "", false, false),
    setting("label_clean_interval_second", "int", "3600", false, false),
    setting("label_keep_max_second", "int", "259200", true, true),
    setting("max_publishing_txn_num_per_table", "long", "500", true, true),
    setting("max_running_txn_num_per_db", "int", "", true, true),
    setting("max_stream_load_timeout_second", "int", "259200", true, true),
    setting("min_load_timeout_second", "int", "1", true, true),
    setting("publish_version_timeout_second", "int", "30", true, true),
    setting("publish_wait_time_second", "int", "300", true, true),
    setting("qe_max_connection", "int", "1024", false, false),
    setting("query_port", "int", "", false, false),
    setting("rpc_port", "int", "9020", false, false),
    setting("stream_load_default_precommit_timeout_second", "int", "", true, true),
    setting("stream_load_default_timeout_second", "int", "259200", true, true),
    setting("streaming_label_keep_max_second", "int", "43200", true, true),
    setting("tablet_stat_update_interval_second", "int", "60", false, false),
    setting("transaction_clean_interval_second", "int", "30", false, false),
];

const BE_SETTINGS: &[Setting] = &[
    setting("arrow_flight_result_sink_buffer_size_rows", "int64_t", "32768", false, true),
    setting("be_port", "int32_t", "9060", false, false),
    setting("brpc_port", "int32_t", "8060", false, false),
    setting("heartbeat_service_port", "int32_t", "9050", false, false),
    setting("load_error_log_reserve_hours", "int64_t", "48", false, true),
    setting("streaming_load_json_max_mb", "int64_t", "100", false, true),
    setting("streaming_load_max_mb", "int64_t", "10240", false, true),
];

/// Rows of name, type, master only, value, mutable.
fn fe_config(shared: &Shared) -> Vec<Vec<String>> {
    let config = shared.engine.config();
    let value = |setting: &Setting| match setting.name {
        "arrow_flight_sql_port" => shared.addresses.fe_flight.port().to_string(),
        "enable_https" => shared.addresses.fe_https.is_some().to_string(),
        "http_port" => shared.addresses.fe_http.port().to_string(),
        "https_port" => shared.addresses.fe_https.map_or(8050, |a| a.port()).to_string(),
        "query_port" => shared.addresses.mysql.port().to_string(),
        "max_running_txn_num_per_db" => config.max_running_txn_num_per_db.to_string(),
        "stream_load_default_precommit_timeout_second" => config.precommit_timeout.as_secs().to_string(),
        _ => setting.value.to_owned(),
    };
    let row = |s: &Setting| {
        vec![s.name.to_owned(), s.ty.to_owned(), s.master_only.to_string(), value(s), s.mutable.to_string()]
    };
    FE_SETTINGS.iter().map(row).collect()
}

/// Rows of name, type, value, mutable.
fn be_config() -> Vec<Vec<String>> {
    let row = |s: &Setting| vec![s.name.to_owned(), s.ty.to_owned(), s.value.to_owned(), s.mutable.to_string()];
    BE_SETTINGS.iter().map(row).collect()
}
