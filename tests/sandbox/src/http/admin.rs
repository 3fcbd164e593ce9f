//! The admin endpoint: what tests in other languages ask of a sandbox. It is not of Doris and has its own port.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path, Query, State};
use axum::response::Response;
use axum::routing::{get, post};
use http::StatusCode;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::envelope;
use crate::cluster::Cluster;
use crate::faults::{Action, Fault, FlightSchemaFault, NodeId, SeenRequest};
use crate::nodes::NodeHandle;

/// Pause after a failed accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

struct Admin {
    cluster: Arc<Cluster>,
    nodes: Vec<NodeHandle>,
    /// Signals that faults wait for, by name.
    signals: Mutex<BTreeMap<String, Arc<Notify>>>,
}

type Ctx = State<Arc<Admin>>;
type Refusal = (StatusCode, String);

/// Serves until the returned future is dropped.
pub(crate) async fn serve(listener: TcpListener, cluster: Arc<Cluster>, nodes: Vec<NodeHandle>) {
    let router = router(Arc::new(Admin { cluster, nodes, signals: Mutex::default() }));
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _peer)) => {
                    let service = TowerToHyperService::new(router.clone());
                    connections.spawn(async move {
                        let mut http = http1::Builder::new();
                        let served = http.timer(TokioTimer::new()).serve_connection(TokioIo::new(stream), service);
                        if let Err(error) = served.await {
                            tracing::debug!(%error, "admin connection ended");
                        }
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "accept failed");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

fn router(admin: Arc<Admin>) -> Router {
    Router::new()
        .route("/requests", get(requests).delete(forget_requests))
        .route("/state", get(state))
        .route("/faults", get(faults).post(arm).delete(disarm))
        .route("/signals/{name}", post(signal))
        .route("/nodes/{kind}/{number}/{change}", post(node))
        .route("/master/{number}", post(master))
        .route("/clock", post(clock))
        .route("/tso", post(tso))
        .route("/publish", post(publish))
        .route("/changes/expire", post(expire_changes))
        .fallback(|| async { (StatusCode::NOT_FOUND, "no such admin call\n") })
        .with_state(admin)
}

fn answer(value: &Value) -> Response {
    envelope::json(value.to_string() + "\n")
}

fn bad(text: impl Into<String>) -> Refusal {
    (StatusCode::BAD_REQUEST, text.into() + "\n")
}

fn read<T: for<'a> Deserialize<'a>>(body: &Bytes) -> Result<T, Refusal> {
    serde_json::from_slice(body).map_err(|error| bad(error.to_string()))
}

fn seen(request: &SeenRequest) -> Value {
    let headers: Vec<Value> = request.headers.iter().map(|(n, v)| json!([n, v])).collect();
    json!({
        "order": request.order,
        "node": request.node.to_string(),
        "site": request.site.name(),
        "method": request.method,
        "target": request.target,
        "headers": headers,
        "body_bytes": request.body_bytes,
        "status": request.status,
        "fault": request.fault,
    })
}

/// `GET /requests[?node=be0][&site=be][&contains=text]`
async fn requests(State(admin): Ctx, Query(query): Query<BTreeMap<String, String>>) -> Response {
    let is = |key: &str, value: &str| query.get(key).is_none_or(|wanted| wanted == value);
    let contains = query.get("contains").map(String::as_str).unwrap_or_default();
    let all = admin.cluster.requests.all();
    let wanted = all
        .iter()
        .filter(|r| is("node", &r.node.to_string()) && is("site", r.site.name()) && r.target.contains(contains));
    answer(&wanted.map(seen).collect())
}

async fn forget_requests(State(admin): Ctx) -> Response {
    admin.cluster.requests.clear();
    answer(&json!({}))
}

async fn state(State(admin): Ctx) -> Response {
    let cluster = &admin.cluster;
    let nodes: Vec<Value> = admin
        .nodes
        .iter()
        .map(|node| {
            json!({
                "node": node.id().to_string(),
                "state": node.state().name(),
                "alive": node.is_alive(),
                "master": node.id() == NodeId::Fe(cluster.master()),
                "http": node.http(),
                "flight_tokens": node.open_flight_tokens(),
            })
        })
        .collect();
    let tso = cluster.engine.tso();
    answer(&json!({
        "nodes": nodes,
        "running_transactions": cluster.engine.running_transactions(),
        "unpublished_transactions": cluster.engine.unpublished_transactions(),
        "flight_tokens": cluster.frontends.iter().map(|m| m.sessions.users().len()).sum::<usize>(),
        "unfetched_results": cluster.flight_results.len(),
        "mysql_connections": cluster.mysql_connections.get(),
        "http_requests": cluster.http_requests.get(),
        "armed_faults": cluster.faults.armed(),
        "tso": {"current": tso.current_tso, "physical_ms": tso.physical_ms, "logical": tso.logical},
        "now_ms": cluster.clock.common_ms(),
    }))
}

/// A fault as JSON gives it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FaultText {
    action: ActionText,
    site: Option<String>,
    node: Option<String>,
    when: Option<String>,
    #[serde(default)]
    skip: usize,
    /// A number, or `"always"`.
    times: Option<Times>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Times {
    Number(usize),
    Word(String),
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
enum ActionText {
    Status {
        code: u16,
        #[serde(default)]
        body: String,
    },
    DropAnswer,
    HoldAnswer {
        done: String,
        release: String,
    },
    CutAfterBytes {
        bytes: u64,
    },
    CutAnswerAfterBytes {
        bytes: u64,
    },
    Wait {
        signal: String,
    },
    Delay {
        ms: u64,
    },
    Redirect {
        location: String,
    },
    PublishTimeout,
    HoldPublish {
        release: String,
    },
    FailCommit {
        message: String,
    },
    FlightLocation {
        location: String,
    },
    FlightResults {
        statements: Vec<String>,
    },
    FlightSchema {
        way: SchemaWay,
        #[serde(default)]
        message: String,
    },
    TokenGone,
    RequireBearer,
    FlightSchemaOnly,
    FlightNoMessage,
    OtherBytes {
        from: String,
        to: Vec<u8>,
    },
    FlightCutAfterBatches {
        batches: usize,
    },
    FlightErrorAfterBatches {
        batches: usize,
        message: String,
    },
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum SchemaWay {
    NoAnswer,
    Timeout,
    Failed,
    Empty,
    Null,
}

impl ActionText {
    fn action(self, signal: impl Fn(String) -> Arc<Notify>) -> Action {
        match self {
            Self::Status { code, body } => Action::Status { code, body },
            Self::DropAnswer => Action::DropAnswer,
            Self::HoldAnswer { done, release } => Action::HoldAnswer { done: signal(done), release: signal(release) },
            Self::CutAfterBytes { bytes } => Action::CutAfterBytes(bytes),
            Self::CutAnswerAfterBytes { bytes } => Action::CutAnswerAfterBytes(bytes),
            Self::Wait { signal: name } => Action::Wait(signal(name)),
            Self::Delay { ms } => Action::Delay(Duration::from_millis(ms)),
            Self::Redirect { location } => Action::Redirect(location),
            Self::PublishTimeout => Action::PublishTimeout,
            Self::HoldPublish { release } => Action::HoldPublish(signal(release)),
            Self::FailCommit { message } => Action::FailCommit(message),
            Self::FlightLocation { location } => Action::FlightLocation(location),
            Self::FlightResults { statements } => Action::FlightResults(statements),
            Self::FlightSchema { way, message } => Action::FlightSchema(match way {
                SchemaWay::NoAnswer => FlightSchemaFault::NoAnswer,
                SchemaWay::Timeout => FlightSchemaFault::Timeout,
                SchemaWay::Failed => FlightSchemaFault::Failed(message),
                SchemaWay::Empty => FlightSchemaFault::Empty,
                SchemaWay::Null => FlightSchemaFault::Null,
            }),
            Self::TokenGone => Action::TokenGone,
            Self::RequireBearer => Action::RequireBearer,
            Self::FlightSchemaOnly => Action::FlightSchemaOnly,
            Self::FlightNoMessage => Action::FlightNoMessage,
            Self::OtherBytes { from, to } => Action::OtherBytes { from: from.into_bytes(), to },
            Self::FlightCutAfterBatches { batches } => Action::FlightCutAfterBatches(batches),
            Self::FlightErrorAfterBatches { batches, message } => Action::FlightErrorAfterBatches { batches, message },
        }
    }
}

async fn arm(State(admin): Ctx, body: Bytes) -> Result<Response, Refusal> {
    let text: FaultText = read(&body)?;
    let named = |name: String| Arc::clone(admin.signals.lock().entry(name).or_default());
    let mut fault = Fault::new(text.action.action(named)).skip(text.skip);
    if let Some(site) = text.site {
        fault = fault.at(site.parse().map_err(bad)?);
    }
    if let Some(node) = text.node {
        fault = fault.node(node.parse().map_err(bad)?);
    }
    if let Some(when) = text.when {
        fault = fault.when(&when);
    }
    fault = match text.times {
        None => fault,
        Some(Times::Number(times)) if times > 0 => fault.times(times),
        Some(Times::Word(word)) if word == "always" => fault.always(),
        Some(_) => return Err(bad("`times` is a number from 1 or \"always\"")),
    };
    admin.cluster.faults.push(fault);
    Ok(answer(&json!({"armed": admin.cluster.faults.armed()})))
}

async fn faults(State(admin): Ctx) -> Response {
    let faults = &admin.cluster.faults;
    let applied: Vec<Value> = faults
        .applied()
        .iter()
        .map(|a| json!({"node": a.node.to_string(), "site": a.site.name(), "line": a.line, "action": a.action}))
        .collect();
    let armed: Vec<String> = faults.list().iter().map(ToString::to_string).collect();
    answer(&json!({"armed": armed, "applied": applied}))
}

async fn disarm(State(admin): Ctx) -> Response {
    admin.cluster.faults.clear();
    answer(&json!({}))
}

/// Gives a signal that a fault waits for.
async fn signal(State(admin): Ctx, Path(name): Path<String>) -> Response {
    let signal = Arc::clone(admin.signals.lock().entry(name).or_default());
    signal.notify_one();
    answer(&json!({}))
}

/// `POST /nodes/{fe|be}/{number}/{stop|pause|resume|restart|alive|dead}`
async fn node(
    State(admin): Ctx,
    Path((kind, number, change)): Path<(String, usize, String)>,
) -> Result<Response, Refusal> {
    let id: NodeId = format!("{kind}{number}").parse().map_err(bad)?;
    let found = admin.nodes.iter().find(|node| node.id() == id);
    let node = found.ok_or_else(|| (StatusCode::NOT_FOUND, format!("there is no node {id}\n")))?;
    match change.as_str() {
        "stop" => node.stop().await,
        "pause" => node.pause().await,
        "resume" => node.resume().await,
        "restart" => {
            let failed = |error: crate::StartError| (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n"));
            node.restart().await.map_err(failed)?;
        }
        "alive" => node.set_alive(true),
        "dead" => node.set_alive(false),
        other => {
            return Err(bad(format!("unknown change `{other}`, use stop, pause, resume, restart, alive or dead")));
        }
    }
    Ok(answer(&json!({"node": id.to_string(), "state": node.state().name(), "alive": node.is_alive()})))
}

async fn master(State(admin): Ctx, Path(number): Path<usize>) -> Result<Response, Refusal> {
    if number >= admin.cluster.frontends.len() {
        return Err((StatusCode::NOT_FOUND, format!("there is no node fe{number}\n")));
    }
    admin.cluster.elect(number);
    Ok(answer(&json!({"master": number})))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ClockText {
    /// Moves the time of all nodes.
    #[serde(default)]
    advance_ms: i64,
    /// Sets a node's clock ahead of the others.
    node: Option<String>,
    offset_ms: Option<i64>,
}

/// A hundred years.
const CLOCK_LIMIT_MS: u64 = 100 * 366 * 86_400_000;

async fn clock(State(admin): Ctx, body: Bytes) -> Result<Response, Refusal> {
    let text: ClockText = read(&body)?;
    let cluster = &admin.cluster;
    match (text.node, text.offset_ms) {
        (None, None) => {}
        (Some(_), Some(offset)) if offset.unsigned_abs() > CLOCK_LIMIT_MS => {
            return Err(bad("`offset_ms` is more than a hundred years"));
        }
        (Some(node), Some(offset)) => {
            let id: NodeId = node.parse().map_err(bad)?;
            let member = cluster.member(id).ok_or_else(|| bad(format!("there is no node {id}")))?;
            cluster.set_clock_offset(member, offset);
        }
        _ => return Err(bad("`node` and `offset_ms` go together")),
    }
    if text.advance_ms.unsigned_abs() > CLOCK_LIMIT_MS {
        return Err(bad("`advance_ms` moves the clock by more than a hundred years"));
    }
    cluster.clock.advance(text.advance_ms);
    cluster.engine.sweep();
    Ok(answer(&json!({"now_ms": cluster.clock.common_ms()})))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TsoText {
    /// Milliseconds by which the shown TSO is behind.
    step_back_ms: i64,
}

async fn tso(State(admin): Ctx, body: Bytes) -> Result<Response, Refusal> {
    let text: TsoText = read(&body)?;
    admin.cluster.engine.tso_service().step_back(text.step_back_ms);
    let tso = admin.cluster.engine.tso();
    Ok(answer(&json!({"current": tso.current_tso, "physical_ms": tso.physical_ms})))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PublishText {
    held: bool,
    /// One transaction.
    txn_id: Option<i64>,
    /// One table; without all three, everything.
    db: Option<String>,
    table: Option<String>,
}

/// Holds publishing, or releases it.
async fn publish(State(admin): Ctx, body: Bytes) -> Result<Response, Refusal> {
    let text: PublishText = read(&body)?;
    let engine = &admin.cluster.engine;
    match (text.txn_id, text.db, text.table) {
        (Some(id), None, None) => engine.set_transaction_held(id, text.held),
        (None, Some(db), Some(table)) => {
            engine.set_publish_held(Some((&db, &table)), text.held).map_err(|error| bad(error.message))?;
        }
        (None, None, None) => engine.set_publish_held(None, text.held).map_err(|error| bad(error.message))?,
        _ => return Err(bad("either `txn_id`, or `db` and `table`, or none of them")),
    }
    Ok(answer(&json!({"unpublished_transactions": engine.unpublished_transactions()})))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ExpiryText {
    db: String,
    table: String,
    before_ms: i64,
}

async fn expire_changes(State(admin): Ctx, body: Bytes) -> Result<Response, Refusal> {
    let text: ExpiryText = read(&body)?;
    admin.cluster.engine.expire_changes(&text.db, &text.table, text.before_ms).map_err(|error| bad(error.message))?;
    Ok(answer(&json!({})))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests;
