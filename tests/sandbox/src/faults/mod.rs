//! Faults a test can ask for.
//!
//! A fault is armed with [`Faults::push`], matches a node, a site and a piece of the request, and acts a counted number
//! of times. Every use is noted in [`Faults::applied`], and in the request that it met (see [`crate::Requests`]).
//!
//! Servers ask through [`NodeFaults`], which knows the node they belong to.

mod commits;
mod mask;
mod other_bytes;
mod requests;

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

pub(crate) use self::commits::{CommitFaults, PublishHolds};
pub(crate) use self::other_bytes::OtherBytes;
pub(crate) use self::requests::{NodeRequests, RequestId};
pub use self::requests::{Requests, SeenRequest};

/// Uses kept for inspection; older ones are forgotten.
const KEPT_USES: usize = 10_000;

/// Where a request arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Site {
    /// HTTP of an FE.
    Fe,
    /// HTTP of a BE.
    Be,
    /// MySQL protocol of an FE.
    Mysql,
    /// Flight SQL of an FE.
    FeFlight,
    /// Flight SQL of a BE.
    BeFlight,
}

impl Site {
    /// Name in texts: `fe`, `be`, `mysql`, `fe_flight`, `be_flight`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fe => "fe",
            Self::Be => "be",
            Self::Mysql => "mysql",
            Self::FeFlight => "fe_flight",
            Self::BeFlight => "be_flight",
        }
    }
}

impl FromStr for Site {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        [Self::Fe, Self::Be, Self::Mysql, Self::FeFlight, Self::BeFlight]
            .into_iter()
            .find(|site| site.name() == text)
            .ok_or_else(|| format!("unknown site `{text}`, use fe, be, mysql, fe_flight or be_flight"))
    }
}

/// One node of the sandbox; the numbers start at 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NodeId {
    /// A frontend.
    Fe(usize),
    /// A backend.
    Be(usize),
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fe(i) => write!(f, "fe{i}"),
            Self::Be(i) => write!(f, "be{i}"),
        }
    }
}

impl FromStr for NodeId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let unknown = || format!("unknown node `{text}`, use fe0, fe1, .. or be0, be1, ..");
        let (kind, number) = text.split_at_checked(2).ok_or_else(unknown)?;
        let number = number.parse().map_err(|_| unknown())?;
        match kind {
            "fe" => Ok(Self::Fe(number)),
            "be" => Ok(Self::Be(number)),
            _ => Err(unknown()),
        }
    }
}

/// What happens to a matching request.
#[derive(Debug, Clone)]
pub enum Action {
    /// HTTP: answer with this status and body, and do nothing else. Flight and MySQL: fail with the body as text.
    Status {
        /// HTTP status, for Flight the gRPC code, for MySQL the error number.
        code: u16,
        /// Body or message.
        body: String,
    },
    /// Do the work, then cut the connection instead of answering.
    DropAnswer,
    /// HTTP: do the work, give the signal `done`, and answer after the signal `release`.
    HoldAnswer {
        /// Given when the work is done.
        done: Arc<Notify>,
        /// Waited for before the answer.
        release: Arc<Notify>,
    },
    /// HTTP: cut the connection once so many bytes of the request body have been read.
    CutAfterBytes(u64),
    /// HTTP: do the work and cut the connection after so many bytes of the answer's body.
    CutAnswerAfterBytes(u64),
    /// Hold the request until the signal is given (`notify_one` may come first).
    Wait(Arc<Notify>),
    /// Hold the request for so long, then go on.
    Delay(Duration),
    /// HTTP: use this `Location` in the redirect.
    Redirect(String),
    /// A transaction commits and is not visible yet when its answer leaves: `Publish Timeout` of a load, `committed` of an
    /// INSERT, success of a second phase. It becomes visible a moment after the answer was sent.
    PublishTimeout,
    /// As [`Action::PublishTimeout`], but it becomes visible when the signal is given.
    HoldPublish(Arc<Notify>),
    /// A load fails at its commit with this text; the transaction is aborted. A second phase is refused with it.
    FailCommit(String),
    /// FE Flight: name this location instead of the right one.
    FlightLocation(String),
    /// FE Flight: the rows of a query are those of these statements, an endpoint for each.
    FlightResults(Vec<String>),
    /// FE Flight: the FE does not get the schema of a query from the BE.
    FlightSchema(FlightSchemaFault),
    /// FE Flight: the call's token is gone before the call is looked at.
    TokenGone,
    /// BE Flight: refuse a call without a bearer token that an FE issued.
    RequireBearer,
    /// BE Flight: send the schema and no rows, whatever the result holds.
    FlightSchemaOnly,
    /// BE Flight: end the stream without any message.
    FlightNoMessage,
    /// BE Flight and MySQL: these bytes of the rows travel as those others, if there are as many of them. For texts that are
    /// no UTF-8, which this server itself cannot keep.
    OtherBytes {
        /// Bytes of the rows.
        from: Vec<u8>,
        /// What stands in their place.
        to: Vec<u8>,
    },
    /// Flight: cut the connection after so many batches of a stream.
    FlightCutAfterBatches(usize),
    /// Flight: fail a stream after so many batches.
    FlightErrorAfterBatches {
        /// Batches sent before.
        batches: usize,
        /// Text of the error, code INTERNAL.
        message: String,
    },
}

/// Why an FE has no schema for a query; each way has its own text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FlightSchemaFault {
    /// `fetch arrow flight schema timeout`
    NoAnswer,
    /// `arrow flight schema fetch timeout`
    Timeout,
    /// `fetch arrow flight schema failed` with this status of the BE.
    Failed(String),
    /// `get empty arrow flight schema`
    Empty,
    /// `fetch arrow flight schema is null`
    Null,
}

impl Action {
    /// Name in records and in JSON.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Status { .. } => "status",
            Self::DropAnswer => "drop_answer",
            Self::HoldAnswer { .. } => "hold_answer",
            Self::CutAfterBytes(_) => "cut_after_bytes",
            Self::CutAnswerAfterBytes(_) => "cut_answer_after_bytes",
            Self::Wait(_) => "wait",
            Self::Delay(_) => "delay",
            Self::Redirect(_) => "redirect",
            Self::PublishTimeout => "publish_timeout",
            Self::HoldPublish(_) => "hold_publish",
            Self::FailCommit(_) => "fail_commit",
            Self::FlightLocation(_) => "flight_location",
            Self::FlightResults(_) => "flight_results",
            Self::FlightSchema(_) => "flight_schema",
            Self::TokenGone => "token_gone",
            Self::RequireBearer => "require_bearer",
            Self::FlightSchemaOnly => "flight_schema_only",
            Self::FlightNoMessage => "flight_no_message",
            Self::OtherBytes { .. } => "other_bytes",
            Self::FlightCutAfterBatches(_) => "flight_cut_after_batches",
            Self::FlightErrorAfterBatches { .. } => "flight_error_after_batches",
        }
    }
}

/// One armed fault.
#[derive(Debug, Clone)]
pub struct Fault {
    site: Option<Site>,
    node: Option<NodeId>,
    contains: String,
    skip: usize,
    times: usize,
    action: Action,
}

impl Fault {
    /// A fault that acts on the next request, whatever it is.
    pub fn new(action: Action) -> Self {
        Self { site: None, node: None, contains: String::new(), skip: 0, times: 1, action }
    }

    /// Only at this site.
    #[must_use]
    pub fn at(mut self, site: Site) -> Self {
        self.site = Some(site);
        self
    }

    /// Only at this node.
    #[must_use]
    pub fn node(mut self, node: NodeId) -> Self {
        self.node = Some(node);
        self
    }

    /// Only requests whose line contains `text`, without regard to case: `METHOD path?query [txn_operation] [label]` for HTTP,
    /// the statement for MySQL and for `/api/query/…`, the call's name and the statement for Flight.
    #[must_use]
    pub fn when(mut self, text: &str) -> Self {
        self.contains = text.to_ascii_lowercase();
        self
    }

    /// Lets so many matching requests pass first.
    #[must_use]
    pub fn skip(mut self, requests: usize) -> Self {
        self.skip = requests;
        self
    }

    /// Acts so many times (default 1).
    #[must_use]
    pub fn times(mut self, times: usize) -> Self {
        self.times = times;
        self
    }

    /// Acts until [`Faults::clear`].
    #[must_use]
    pub fn always(self) -> Self {
        self.times(usize::MAX)
    }

    /// What it does.
    pub fn action(&self) -> &Action {
        &self.action
    }

    fn matches(&self, node: NodeId, site: Site, line: &str) -> bool {
        self.node.is_none_or(|n| n == node) && self.site.is_none_or(|s| s == site) && line.contains(&self.contains)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.action.name())?;
        if let Some(node) = self.node {
            write!(f, " at {node}")?;
        }
        if let Some(site) = self.site {
            write!(f, " on {}", site.name())?;
        }
        if !self.contains.is_empty() {
            write!(f, " when `{}`", self.contains)?;
        }
        if self.skip > 0 {
            write!(f, " after {}", self.skip)?;
        }
        if self.times == usize::MAX { f.write_str(" always") } else { write!(f, " {} times", self.times) }
    }
}

/// One use of a fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppliedFault {
    /// Node whose request it met.
    pub node: NodeId,
    /// Where.
    pub site: Site,
    /// The request's line in lower case, as [`Fault::when`] saw it, but for passwords and keys.
    pub line: String,
    /// [`Action::name`].
    pub action: &'static str,
}

#[derive(Debug, Default)]
struct Armed {
    faults: Vec<Fault>,
    applied: Vec<AppliedFault>,
}

/// The armed faults of a sandbox; clones share them.
#[derive(Debug, Clone, Default)]
pub struct Faults {
    armed: Arc<Mutex<Armed>>,
}

impl Faults {
    /// Arms a fault.
    pub fn push(&self, fault: Fault) {
        self.armed.lock().faults.push(fault);
    }

    /// Disarms all.
    pub fn clear(&self) {
        self.armed.lock().faults.clear();
    }

    /// Faults that still wait to act.
    pub fn armed(&self) -> usize {
        self.armed.lock().faults.len()
    }

    /// A copy of the faults that still wait to act, in the order in which they were armed.
    pub fn list(&self) -> Vec<Fault> {
        self.armed.lock().faults.clone()
    }

    /// Every use so far, oldest first.
    pub fn applied(&self) -> Vec<AppliedFault> {
        self.armed.lock().applied.clone()
    }

    /// The faults as one node asks for them.
    pub(crate) fn of(&self, node: NodeId) -> NodeFaults {
        NodeFaults { faults: self.clone(), node }
    }

    fn take(&self, node: NodeId, site: Site, line: &str, able: impl Fn(&Action) -> bool) -> Option<Action> {
        let line = line.to_ascii_lowercase();
        let mut armed = self.armed.lock();
        for i in 0..armed.faults.len() {
            let fault = &mut armed.faults[i];
            if !fault.matches(node, site, &line) || !able(&fault.action) {
                continue;
            }
            if fault.skip > 0 {
                fault.skip -= 1;
                continue;
            }
            if fault.times != usize::MAX {
                fault.times = fault.times.saturating_sub(1);
            }
            let action = fault.action.clone();
            if fault.times == 0 {
                armed.faults.remove(i);
            }
            if armed.applied.len() == KEPT_USES {
                armed.applied.remove(0);
            }
            let line = mask::secrets(&line).into_owned();
            armed.applied.push(AppliedFault { node, site, line, action: action.name() });
            return Some(action);
        }
        None
    }
}

/// How a fault ends a Flight stream early.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StreamEnd {
    /// The connection breaks.
    Cut,
    /// The stream fails with this text.
    Error(String),
}

/// A Flight stream that dies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StreamFault {
    /// Batches sent before.
    pub batches: usize,
    /// What comes then.
    pub end: StreamEnd,
}

/// The faults of a sandbox as the servers of one node ask for them.
#[derive(Debug, Clone)]
pub(crate) struct NodeFaults {
    faults: Faults,
    node: NodeId,
}

impl NodeFaults {
    /// The action for a request, using up one of its times, at a point of the code that can perform the actions that
    /// `able` tells. The fault armed first wins.
    pub fn take_if(&self, site: Site, line: &str, able: impl Fn(&Action) -> bool) -> Option<Action> {
        self.faults.take(self.node, site, line, able)
    }

    /// Whether any fault is armed, for ways of answering that perform none.
    pub fn any(&self) -> bool {
        self.faults.armed() > 0
    }

    /// Hook of a Flight `DoGet`: how its stream dies, if it shall. `line` is `DoGet <statement>`.
    pub fn stream_fault(&self, site: Site, line: &str) -> Option<StreamFault> {
        let able = |action: &Action| {
            matches!(action, Action::FlightCutAfterBatches(_) | Action::FlightErrorAfterBatches { .. })
        };
        match self.take_if(site, line, able)? {
            Action::FlightCutAfterBatches(batches) => Some(StreamFault { batches, end: StreamEnd::Cut }),
            Action::FlightErrorAfterBatches { batches, message } => {
                Some(StreamFault { batches, end: StreamEnd::Error(message) })
            }
            _ => None,
        }
    }

    /// Hook of the rows of a statement: which bytes travel as others, if any. `line` as for other faults of the site.
    pub fn other_bytes(&self, site: Site, line: &str) -> Option<OtherBytes> {
        match self.take_if(site, line, |action| matches!(action, Action::OtherBytes { .. }))? {
            Action::OtherBytes { from, to } => OtherBytes::new(from, to),
            _ => None,
        }
    }

    /// Hook of every FE Flight call with a bearer token: whether the token is gone. `line` is `<call> <statement>`.
    pub fn token_gone(&self, line: &str) -> bool {
        self.take_if(Site::FeFlight, line, |action| matches!(action, Action::TokenGone)).is_some()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests;
