//! What the servers saw.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;

use super::{Action, NodeId, Site, mask};

/// Requests kept for inspection; older ones are forgotten.
const KEPT_REQUESTS: usize = 10_000;

/// A request as a server received it. Credentials are never kept: of `authorization` only the scheme is, and passwords
/// and keys in statements are masked.
#[derive(Clone, PartialEq, Eq)]
pub struct SeenRequest {
    /// Place in the order of arrival over all nodes, from 0.
    pub order: u64,
    /// Node that received it.
    pub node: NodeId,
    /// Where.
    pub site: Site,
    /// HTTP method, or the name of the Flight call or MySQL command.
    pub method: String,
    /// Path and query, or the statement.
    pub target: String,
    /// Headers in arrival order, names in lower case.
    pub headers: Vec<(String, String)>,
    /// Bytes of the HTTP body that were read so far.
    pub body_bytes: u64,
    /// HTTP status of the answer, or 0 for an answer without one; `None` while there is no answer (or never one).
    pub status: Option<u16>,
    /// [`Action::name`] of the fault it met.
    pub fault: Option<&'static str>,
}

impl SeenRequest {
    /// Value of the first header of this name.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v.as_str())
    }
}

impl fmt::Debug for SeenRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{} {} {:?} {} {} {:?}", self.order, self.node, self.site, self.method, self.target, self.headers)?;
        write!(f, " body {} status {:?} fault {:?}", self.body_bytes, self.status, self.fault)
    }
}

#[derive(Debug, Default)]
struct Seen {
    next: u64,
    kept: VecDeque<SeenRequest>,
}

/// The latest requests of all servers; clones share them.
#[derive(Debug, Clone, Default)]
pub struct Requests {
    seen: Arc<Mutex<Seen>>,
}

impl Requests {
    /// A copy of all that is kept, oldest first.
    pub fn all(&self) -> Vec<SeenRequest> {
        self.seen.lock().kept.iter().cloned().collect()
    }

    /// Requests at `site` whose target contains `text`.
    pub fn matching(&self, site: Site, text: &str) -> Vec<SeenRequest> {
        self.seen.lock().kept.iter().filter(|r| r.site == site && r.target.contains(text)).cloned().collect()
    }

    /// Requests that this node received.
    pub fn at_node(&self, node: NodeId) -> Vec<SeenRequest> {
        self.seen.lock().kept.iter().filter(|r| r.node == node).cloned().collect()
    }

    /// Forgets all; the numbers go on.
    pub fn clear(&self) {
        self.seen.lock().kept.clear();
    }

    /// The record as one node writes it.
    pub(crate) fn of(&self, node: NodeId) -> NodeRequests {
        NodeRequests { requests: self.clone(), node }
    }

    fn change(&self, id: RequestId, change: impl FnOnce(&mut SeenRequest)) {
        let mut seen = self.seen.lock();
        let Some(first) = seen.kept.front().map(|r| r.order) else { return };
        let place = id.0.checked_sub(first).and_then(|i| usize::try_from(i).ok());
        if let Some(request) = place.and_then(|i| seen.kept.get_mut(i)) {
            change(request);
        }
    }
}

/// A recorded request, to say later what became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RequestId(u64);

/// The record of a sandbox as the servers of one node write it.
#[derive(Debug, Clone)]
pub(crate) struct NodeRequests {
    requests: Requests,
    node: NodeId,
}

impl NodeRequests {
    /// Notes a request that arrived.
    pub fn record(
        &self,
        site: Site,
        method: &str,
        target: &str,
        headers: impl Iterator<Item = (String, String)>,
    ) -> RequestId {
        let headers = headers.map(|(name, value)| masked(name, value)).collect();
        let target = mask::secrets(target).into_owned();
        let mut seen = self.requests.seen.lock();
        if seen.kept.len() == KEPT_REQUESTS {
            seen.kept.pop_front();
        }
        let order = seen.next;
        seen.next += 1;
        seen.kept.push_back(SeenRequest {
            order,
            node: self.node,
            site,
            method: method.to_owned(),
            target,
            headers,
            body_bytes: 0,
            status: None,
            fault: None,
        });
        RequestId(order)
    }

    /// The request met a fault.
    pub fn met(&self, id: RequestId, action: &Action) {
        let name = action.name();
        self.requests.change(id, |r| r.fault = Some(name));
    }

    /// More of the request body was read.
    pub fn read(&self, id: RequestId, bytes: u64) {
        self.requests.change(id, |r| r.body_bytes += bytes);
    }

    /// The request was answered.
    pub fn answered(&self, id: RequestId, status: u16) {
        self.requests.change(id, |r| r.status = Some(status));
    }
}

fn masked(name: String, value: String) -> (String, String) {
    let secret = matches!(name.as_str(), "authorization" | "token" | "cookie" | "proxy-authorization");
    let value = match (secret, value.split_once(' ')) {
        (false, _) => mask::secrets(&value).into_owned(),
        (true, Some((scheme, _))) => format!("{scheme} ***"),
        (true, None) => "***".to_owned(),
    };
    (name, value)
}
