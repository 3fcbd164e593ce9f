//! Faults at the commits of a request: they are used up where the commit happens, not where the request begins.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::{Action, NodeFaults, NodeRequests, RequestId, Site};

/// How long after its answer a transaction becomes visible: the client has the answer by then.
const MOMENT: Duration = Duration::from_millis(50);

/// The faults that wait for the commits of one request. Dropping it, once the answer is written, lets go the
/// transactions that wait for no signal.
#[derive(Debug)]
pub(crate) struct CommitFaults {
    faults: NodeFaults,
    requests: NodeRequests,
    request: RequestId,
    site: Site,
    line: String,
    holds: Arc<PublishHolds>,
    held: Mutex<Vec<i64>>,
}

impl CommitFaults {
    /// Those of a request that arrived at `site` with this line.
    pub fn new(
        (faults, requests): (&NodeFaults, &NodeRequests),
        request: RequestId,
        site: Site,
        line: String,
        holds: &Arc<PublishHolds>,
    ) -> Self {
        let (faults, requests, holds) = (faults.clone(), requests.clone(), Arc::clone(holds));
        Self { faults, requests, request, site, line, holds, held: Mutex::default() }
    }

    fn take(&self, able: impl Fn(&Action) -> bool) -> Option<Action> {
        let action = self.faults.take_if(self.site, &self.line, able)?;
        self.requests.met(self.request, &action);
        Some(action)
    }

    /// The text with which the commit fails, if it shall. Asked when everything else is ready for it.
    pub fn fail(&self) -> Option<String> {
        match self.take(|action| matches!(action, Action::FailCommit(_))) {
            Some(Action::FailCommit(text)) => Some(text),
            _ => None,
        }
    }

    /// Whether the publishing of a transaction that is committed now is held.
    pub fn hold(&self, txn: i64) -> bool {
        match self.take(|action| matches!(action, Action::PublishTimeout | Action::HoldPublish(_))) {
            Some(Action::HoldPublish(signal)) => self.holds.add(txn, Some(signal)),
            Some(_) => self.held.lock().push(txn),
            None => return false,
        }
        true
    }

    /// Whether a transaction waits for the answer to be written.
    pub fn holds_any(&self) -> bool {
        !self.held.lock().is_empty()
    }
}

impl Drop for CommitFaults {
    fn drop(&mut self) {
        for txn in self.held.get_mut().drain(..) {
            self.holds.add(txn, None);
        }
    }
}

/// Transactions whose publishing faults hold, and what lets them go.
#[derive(Debug, Default)]
pub(crate) struct PublishHolds {
    new: Mutex<Vec<(i64, Option<Arc<Notify>>)>>,
    added: Notify,
}

impl PublishHolds {
    /// A transaction waits for a signal, or for a moment.
    fn add(&self, txn: i64, signal: Option<Arc<Notify>>) {
        self.new.lock().push((txn, signal));
        self.added.notify_one();
    }

    /// Releases transactions when it is time; ends only when it is dropped.
    pub async fn run(holds: Arc<Self>, release: impl Fn(i64)) {
        let mut waiting = FuturesUnordered::new();
        loop {
            tokio::select! {
                () = holds.added.notified() => {
                    let new = std::mem::take(&mut *holds.new.lock());
                    waiting.extend(new.into_iter().map(|(txn, signal)| async move {
                        match signal {
                            Some(signal) => signal.notified().await,
                            None => tokio::time::sleep(MOMENT).await,
                        }
                        txn
                    }));
                }
                Some(txn) = waiting.next() => release(txn),
            }
        }
    }
}
