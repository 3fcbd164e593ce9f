//! Work that a dropped object leaves behind.

use std::fmt;
use std::future::Future;
use std::time::Duration;

use datafusion::common::runtime::SpawnedTask;
use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};

/// Pieces of work that may wait.
const QUEUE: usize = 64;
/// Time one piece may take.
const LIMIT: Duration = Duration::from_secs(30);

type Work = (&'static str, BoxFuture<'static, ()>);

/// Does what `Drop` cannot: closes sessions and aborts transactions at the server.
///
/// Best effort: one task, a bounded queue, a time limit per piece; what cannot be done is left to the server's
/// timeouts. The task is aborted with its owner, except that work which holds the owner is finished first.
#[derive(Default)]
pub(crate) struct Cleanup {
    worker: Mutex<Option<Worker>>,
}

struct Worker {
    queue: mpsc::Sender<Work>,
    _task: SpawnedTask<()>,
}

impl fmt::Debug for Cleanup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cleanup").finish_non_exhaustive()
    }
}

impl Cleanup {
    /// Queues `work`; `name` is for the log.
    pub(crate) fn later(&self, name: &'static str, work: impl Future<Output = ()> + Send + 'static) {
        if tokio::runtime::Handle::try_current().is_err() {
            tracing::debug!(name, "no runtime to clean up in, leaving it to the server");
            return;
        }
        let mut worker = self.worker.lock();
        // The runtime of an earlier worker may be gone.
        let live = worker.take().filter(|worker| !worker.queue.is_closed());
        let worker = worker.insert(live.unwrap_or_else(Worker::start));
        if worker.queue.try_send((name, work.boxed())).is_err() {
            tracing::debug!(name, "too much to clean up, leaving it to the server");
        }
    }

    /// Waits until the work that is queued by now is done, or given up.
    pub(crate) async fn done(&self) {
        let queue = self.worker.lock().as_ref().map(|worker| worker.queue.clone());
        let Some(queue) = queue else { return };
        let (reached, is_reached) = oneshot::channel();
        let marker = async move {
            let _ = reached.send(());
        };
        if queue.send(("marker", marker.boxed())).await.is_ok() {
            let _ = is_reached.await;
        }
    }
}

impl Worker {
    fn start() -> Self {
        let (queue, mut work) = mpsc::channel::<Work>(QUEUE);
        let task = SpawnedTask::spawn(async move {
            while let Some((name, work)) = work.recv().await {
                if tokio::time::timeout(LIMIT, work).await.is_err() {
                    tracing::debug!(name, "clean-up timed out, leaving it to the server");
                }
            }
        });
        Self { queue, _task: task }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[tokio::test]
    async fn queued_work_is_done() {
        let cleanup = Cleanup::default();
        let (done, is_done) = oneshot::channel();
        cleanup.later("test", async move {
            let _ = done.send(());
        });
        is_done.await.unwrap();
    }

    #[tokio::test]
    async fn queued_work_can_be_waited_for() {
        let cleanup = Cleanup::default();
        cleanup.done().await;
        let held = Arc::new(());
        for _ in 0..3 {
            let in_work = Arc::clone(&held);
            cleanup.later("test", async move {
                tokio::task::yield_now().await;
                drop(in_work);
            });
        }
        cleanup.done().await;
        assert_eq!(Arc::strong_count(&held), 1);
    }

    #[tokio::test]
    async fn work_that_hangs_ends_with_its_owner() {
        let cleanup = Cleanup::default();
        let held = Arc::new(());
        let (started, is_started) = oneshot::channel();
        let in_work = Arc::clone(&held);
        cleanup.later("test", async move {
            let _ = started.send(());
            std::future::pending::<()>().await;
            drop(in_work);
        });
        is_started.await.unwrap();
        drop(cleanup);
        while Arc::strong_count(&held) > 1 {
            tokio::task::yield_now().await;
        }
    }

    #[test]
    fn without_a_runtime_nothing_happens() {
        Cleanup::default().later("test", async {});
    }
}
