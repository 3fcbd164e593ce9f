//! Faults a test can ask for, and what the servers saw.
//!
//! A fault is armed with [`Faults::push`], matches a site and a piece of the request, and acts a counted number of
//! times. Everything the servers receive is kept in [`Requests`], so that a test can assert it.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

/// Requests kept for inspection; older ones are forgotten.
const KEPT_REQUESTS: usize = 10_000;

/// Where a request arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Site {
    /// HTTP of the FE.
    Fe,
    /// HTTP of the BE.
    Be,
    /// MySQL protocol of the FE.
    Mysql,
    /// Flight SQL of the FE.
    FeFlight,
    /// Flight SQL of the BE.
    BeFlight,
}

/// What happens to a matching request.
#[derive(Debug, Clone)]
pub enum Action {
    /// HTTP: answer with this status and body, and do nothing else. Flight and MySQL: fail with the body as text.
    Status {
        /// HTTP status, or for Flight the gRPC code.
        code: u16,
        /// Body or message.
        body: String,
    },
    /// HTTP: do the work, then cut the connection instead of answering.
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
    /// Hold the request until the signal is given (`notify_one` may come first).
    Wait(Arc<Notify>),
    /// HTTP: use this `Location` in the redirect.
    Redirect(String),
    /// FE Flight: name this location instead of the right one.
    FlightLocation(String),
    /// BE Flight: refuse a call without a bearer token that the FE issued.
    RequireBearer,
    /// BE Flight: send the schema and no rows, whatever the result holds.
    FlightSchemaOnly,
    /// BE Flight: end the stream without any message.
    FlightNoMessage,
}

/// One armed fault.
#[derive(Debug, Clone)]
pub struct Fault {
    site: Option<Site>,
    contains: String,
    skip: usize,
    times: usize,
    action: Action,
}

impl Fault {
    /// A fault that acts on the next request, whatever it is.
    pub fn new(action: Action) -> Self {
        Self { site: None, contains: String::new(), skip: 0, times: 1, action }
    }

    /// Only at this site.
    #[must_use]
    pub fn at(mut self, site: Site) -> Self {
        self.site = Some(site);
        self
    }

    /// Only requests whose line contains `text`, without regard to case: `METHOD path?query [txn_operation]` for HTTP,
    /// the statement for MySQL and Flight, the call's name for other Flight calls.
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

    fn matches(&self, site: Site, line: &str) -> bool {
        self.site.is_none_or(|s| s == site) && line.contains(&self.contains)
    }
}

/// The armed faults of a sandbox; clones share them.
#[derive(Debug, Clone, Default)]
pub struct Faults {
    armed: Arc<Mutex<Vec<Fault>>>,
}

impl Faults {
    /// Arms a fault.
    pub fn push(&self, fault: Fault) {
        self.armed.lock().push(fault);
    }

    /// Disarms all.
    pub fn clear(&self) {
        self.armed.lock().clear();
    }

    /// Faults that still wait to act.
    pub fn armed(&self) -> usize {
        self.armed.lock().len()
    }

    /// The action for a request, using up one of its times. The fault armed first wins.
    pub(crate) fn take(&self, site: Site, line: &str) -> Option<Action> {
        self.take_if(site, line, |_| true)
    }

    /// As [`Self::take`], for a point of the code that can perform some actions only.
    pub(crate) fn take_if(&self, site: Site, line: &str, able: impl Fn(&Action) -> bool) -> Option<Action> {
        let line = line.to_ascii_lowercase();
        let mut armed = self.armed.lock();
        for i in 0..armed.len() {
            let fault = &mut armed[i];
            if !fault.matches(site, &line) || !able(&fault.action) {
                continue;
            }
            if fault.skip > 0 {
                fault.skip -= 1;
                continue;
            }
            fault.times = fault.times.saturating_sub(1);
            let action = fault.action.clone();
            if fault.times == 0 {
                armed.remove(i);
            }
            return Some(action);
        }
        None
    }
}

/// A request as a server received it. Credentials are never kept: of `authorization` only the scheme is.
#[derive(Clone, PartialEq, Eq)]
pub struct SeenRequest {
    /// Where.
    pub site: Site,
    /// HTTP method, or the name of the Flight call or MySQL command.
    pub method: String,
    /// Path and query, or the statement.
    pub target: String,
    /// Headers in arrival order, names in lower case.
    pub headers: Vec<(String, String)>,
}

impl SeenRequest {
    /// Value of the first header of this name.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v.as_str())
    }
}

impl fmt::Debug for SeenRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {} {} {:?}", self.site, self.method, self.target, self.headers)
    }
}

/// The latest requests of all servers; clones share them.
#[derive(Debug, Clone, Default)]
pub struct Requests {
    seen: Arc<Mutex<VecDeque<SeenRequest>>>,
}

impl Requests {
    /// A copy of all that is kept, oldest first.
    pub fn all(&self) -> Vec<SeenRequest> {
        self.seen.lock().iter().cloned().collect()
    }

    /// Requests at `site` whose target contains `text`.
    pub fn matching(&self, site: Site, text: &str) -> Vec<SeenRequest> {
        self.seen.lock().iter().filter(|r| r.site == site && r.target.contains(text)).cloned().collect()
    }

    /// Forgets all.
    pub fn clear(&self) {
        self.seen.lock().clear();
    }

    pub(crate) fn record(
        &self,
        site: Site,
        method: &str,
        target: &str,
        headers: impl Iterator<Item = (String, String)>,
    ) {
        let headers = headers
            .map(|(name, value)| {
                let secret = matches!(name.as_str(), "authorization" | "token" | "cookie" | "proxy-authorization");
                let value = match (secret, value.split_once(' ')) {
                    (false, _) => value,
                    (true, Some((scheme, _))) => format!("{scheme} ***"),
                    (true, None) => "***".to_owned(),
                };
                (name, value)
            })
            .collect();
        let mut seen = self.seen.lock();
        if seen.len() == KEPT_REQUESTS {
            seen.pop_front();
        }
        seen.push_back(SeenRequest { site, method: method.to_owned(), target: target.to_owned(), headers });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_acts_after_its_skips_and_only_its_times() {
        let faults = Faults::default();
        faults.push(Fault::new(Action::DropAnswer).at(Site::Be).when("_Stream_Load").skip(1).times(2));
        let hit = |site, line| faults.take(site, line).is_some();
        assert!(!hit(Site::Fe, "PUT /api/d/t/_stream_load"));
        assert!(!hit(Site::Be, "PUT /api/d/t/_stream_load"));
        assert!(hit(Site::Be, "PUT /api/d/t/_stream_load"));
        assert!(!hit(Site::Be, "GET /api/health"));
        assert!(hit(Site::Be, "PUT /api/d/t/_stream_load"));
        assert!(!hit(Site::Be, "PUT /api/d/t/_stream_load"));
        assert_eq!(faults.armed(), 0);
    }

    #[test]
    fn credentials_are_not_kept() {
        let requests = Requests::default();
        let headers = [("authorization", "Basic cm9vdDpwdw=="), ("token", "secret"), ("label", "a b")];
        requests.record(Site::Fe, "PUT", "/x", headers.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())));
        let seen = requests.all();
        assert_eq!(seen[0].header("authorization"), Some("Basic ***"));
        assert_eq!(seen[0].header("token"), Some("***"));
        assert_eq!(seen[0].header("label"), Some("a b"));
    }
}
