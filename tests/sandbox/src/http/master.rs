//! Calls that only the master answers, when they arrive at another FE: forwarded to it, or redirected.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use http::{Method, Uri};
use serde_json::Value;

use super::envelope::{ERROR, envelope};
use super::redirect::to_frontend;
use super::{Peer, Secure, fe};
use crate::cluster::Master;
use crate::engine::Profile;
use crate::faults::{NodeId, Site};
use crate::shared::Shared;

/// Largest answer of a master that is passed on.
const MAX_ANSWER: usize = 16 * 1024 * 1024;

/// What becomes of a call at an FE that is not master.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// The FE calls the master and hands its answer on; `master_fe_addr` is added when set.
    Forward { tell_master: bool },
    /// 307 to the master.
    Redirect,
}

fn way(method: &Method, path: &str, profile: Profile) -> Option<Way> {
    let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    match parts.as_slice() {
        ["api", "tso"] if method == Method::GET && profile.has_changes() => {
            Some(Way::Forward { tell_master: profile >= Profile::V5_0Changelog })
        }
        ["rest", "v2", "manager", "node", "frontends" | "backends" | "brokers"] if method == Method::GET => {
            Some(Way::Forward { tell_master: false })
        }
        ["api", _, "get_load_state"] if method == Method::GET => Some(Way::Redirect),
        _ => None,
    }
}

/// Answers a call in the master's stead, or gives the request back when this FE answers itself.
pub(super) async fn elsewhere(
    request: Request,
    peer: SocketAddr,
    secure: bool,
    shared: &Arc<Shared>,
) -> Result<Request, Box<Response>> {
    let Some(way) = way(request.method(), request.uri().path(), shared.profile()) else { return Ok(request) };
    if shared.node == NodeId::Fe(shared.cluster.master()) {
        return Ok(request);
    }
    // A wrong login is refused here, with the handler's own words.
    let Ok(credentials) = fe::login(shared, request.headers(), Peer(peer)) else { return Ok(request) };
    let cluster = &shared.cluster;
    let Way::Forward { tell_master } = way else {
        let master = cluster.frontends.get(cluster.master()).unwrap_or_else(|| shared.member());
        return Err(Box::new(to_frontend(shared, &master.addresses, secure, request.uri(), &credentials)));
    };
    let master = match cluster.reach_master(shared.node).await {
        Master::Here => return Ok(request),
        Master::Down(i) => return Err(Box::new(unreachable(shared, i, request.method(), request.uri()))),
        Master::There(i) => i,
    };
    let (method, uri) = (request.method().clone(), request.uri().clone());
    let Some(there) = cluster.shared(NodeId::Fe(master)) else {
        return Err(Box::new(unreachable(shared, master, &method, &uri)));
    };
    let router = fe::router(Arc::clone(&there));
    let asked = Box::pin(super::handle(request, peer, Secure(secure), router, &there, Site::Fe)).await;
    let Ok(answer) = asked else { return Err(Box::new(unreachable(shared, master, &method, &uri))) };
    let address = cluster.host_port(there.addresses.fe_http);
    Err(Box::new(passed_on(answer, tell_master.then_some(address)).await))
}

async fn passed_on(answer: Response, master: Option<String>) -> Response {
    let (parts, body) = answer.into_parts();
    let bytes = match axum::body::to_bytes(body, MAX_ANSWER).await {
        Ok(bytes) => bytes,
        Err(error) => return envelope(ERROR, error.to_string()),
    };
    if !parts.status.is_success() {
        return envelope(ERROR, format!("{}: \"{}\"", parts.status, String::from_utf8_lossy(&bytes)));
    }
    let Some(master) = master else { return Response::from_parts(parts, Body::from(bytes)) };
    match serde_json::from_slice::<Value>(&bytes) {
        Ok(mut answer @ Value::Object(_)) => {
            answer["master_fe_addr"] = master.into();
            super::envelope::json(answer.to_string())
        }
        _ => Response::from_parts(parts, Body::from(bytes)),
    }
}

/// What an FE says when its call to the master fails.
fn unreachable(shared: &Shared, master: usize, method: &Method, uri: &Uri) -> Response {
    let address = shared.cluster.frontends.get(master).map(|m| shared.host_port(m.addresses.fe_http));
    let address = address.unwrap_or_default();
    let path = uri.path();
    envelope(ERROR, format!("I/O error on {method} request for \"http://{address}{path}\": Connection refused"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_some_calls_are_the_masters() {
        let way = |path| way(&Method::GET, path, Profile::V5_0Changelog);
        assert_eq!(way("/api/tso"), Some(Way::Forward { tell_master: true }));
        assert_eq!(way("/rest/v2/manager/node/backends"), Some(Way::Forward { tell_master: false }));
        assert_eq!(way("/api/d/get_load_state"), Some(Way::Redirect));
        for own in ["/api/backends", "/rest/v2/manager/node/node_list", "/api/d/t/_schema", "/api/d/_stream_load_2pc"] {
            assert_eq!(way(own), None, "{own}");
        }
        assert_eq!(super::way(&Method::GET, "/api/tso", Profile::V4_0), None);
    }
}
