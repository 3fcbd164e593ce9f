//! What the loads of a sink have in common, and what becomes of a finished load that nobody takes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::watch;

use super::committer::Committer;
use super::encoder::{ArrowEncoder, ArrowPlan, CsvEncoder, Encoder, JsonEncoder, ParquetEncoder, RowLayout};
use super::metrics::{FilteredRows, SinkMetrics};
use super::run::LoadRun;
use crate::checkpoint::Committable;
use crate::client::DorisClient;
use crate::options::{Compression, SinkFormat, SinkOptions};
use crate::types::TableIdent;

/// Where loads go, and how rows are written in them.
#[derive(Debug)]
pub(super) struct LoadTarget {
    pub(super) client: DorisClient,
    pub(super) table: TableIdent,
    pub(super) options: SinkOptions,
    /// The header `columns`.
    pub(super) columns: Option<String>,
    pub(super) layout: RowLayout,
    pub(super) format: SinkFormat,
    /// In arrow and Parquet format.
    pub(super) arrow: Option<Arc<ArrowPlan>>,
    pub(super) committer: Committer,
    pub(super) metrics: Arc<SinkMetrics>,
    pub(super) tasks: TaskCount,
}

/// Counts the tasks that write loads: an aborted one is gone a little later than it was aborted.
#[derive(Debug)]
pub(super) struct TaskCount {
    alive: watch::Sender<usize>,
    had_some: AtomicBool,
}

impl Default for TaskCount {
    fn default() -> Self {
        Self { alive: watch::Sender::new(0), had_some: AtomicBool::new(false) }
    }
}

impl TaskCount {
    /// Waits until there are none.
    pub(super) async fn none(&self) {
        // The sender lives as long as `self`.
        let _ = self.alive.subscribe().wait_for(|tasks| *tasks == 0).await;
    }

    /// Whether there ever was one.
    pub(super) fn had_some(&self) -> bool {
        self.had_some.load(Ordering::Acquire)
    }

    fn add(&self) {
        self.had_some.store(true, Ordering::Release);
        self.alive.send_modify(|tasks| *tasks += 1);
    }

    fn remove(&self) {
        self.alive.send_modify(|tasks| *tasks = tasks.saturating_sub(1));
    }
}

/// Counts a task for as long as it lives.
pub(super) struct InTask {
    run: Option<Arc<LoadRun>>,
    target: Arc<LoadTarget>,
}

impl InTask {
    pub(super) fn new(run: &Arc<LoadRun>) -> Self {
        run.target.tasks.add();
        run.tasks.add();
        Self { run: Some(Arc::clone(run)), target: Arc::clone(&run.target) }
    }
}

impl Drop for InTask {
    fn drop(&mut self) {
        // The last owner of the run hands its loads to the client's clean-up: before the task is counted as gone.
        if let Some(run) = self.run.take() {
            run.tasks.remove();
        }
        self.target.tasks.remove();
    }
}

impl LoadTarget {
    pub(super) fn encoder(&self) -> Box<dyn Encoder> {
        match (&self.arrow, self.format) {
            (Some(plan), SinkFormat::Parquet) => {
                Box::new(ParquetEncoder::new(Arc::clone(plan), self.options.compression_of(self.format)))
            }
            (Some(plan), _) => Box::new(ArrowEncoder::new(Arc::clone(plan))),
            (None, SinkFormat::Json) => Box::new(JsonEncoder::new(self.layout.clone())),
            (None, _) => Box::new(CsvEncoder::new(self.layout.clone(), self.options.csv.clone())),
        }
    }

    /// Compression of the body as a whole: that of an arrow stream or a Parquet file is inside of it.
    pub(super) fn body_compression(&self) -> Compression {
        match self.format {
            SinkFormat::Arrow | SinkFormat::Parquet => Compression::None,
            SinkFormat::Csv | SinkFormat::Json => self.options.compression_of(self.format),
        }
    }

    /// A load of which only the label is known, and the writer.
    pub(super) fn load(&self, label: String, lane: u32) -> Committable {
        let TableIdent { database, table, .. } = self.table.clone();
        Committable { db: database, table, label, txn_id: None, host: String::new(), lane, staged: None }
    }
}

/// Aborts a load that is, or may be, pre-committed when its statement is dropped before the commit was answered.
#[derive(Debug)]
pub(super) struct AbortOnDrop {
    target: Arc<LoadTarget>,
    load: Option<Committable>,
}

impl AbortOnDrop {
    /// Guards `load` until [`Self::release`]. Without two-phase commit there is nothing to abort.
    pub(super) fn new(run: &LoadRun, load: Committable) -> Self {
        Self { target: Arc::clone(&run.target), load: run.two_phase.then_some(load) }
    }

    /// Guards `load` while `wait` runs: for the time in which only its label tells what became of it.
    pub(super) async fn during<T>(run: &LoadRun, load: &Committable, wait: impl Future<Output = T>) -> T {
        let guard = Self::new(run, load.clone());
        let outcome = wait.await;
        guard.release();
        outcome
    }

    /// The load is somebody else's from now on.
    pub(super) fn release(mut self) {
        self.load = None;
    }
}

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        if let Some(load) = self.load.take() {
            let committer = self.target.committer.clone();
            self.target.client.cleanup().later("abort transaction", async move {
                if let Err(error) = committer.abort(&load).await {
                    tracing::warn!(label = %load.label, %error, "a cancelled statement's load was not aborted");
                }
            });
        }
    }
}

/// A load that has ended well: pre-committed, or visible without two-phase commit.
#[derive(Debug)]
pub(super) struct Loaded {
    /// Rows that are in the load, as far as the server tells.
    pub(super) rows: u64,
    pub(super) load: Committable,
    /// Rows that Doris refused while it took the others.
    pub(super) filtered: Option<FilteredRows>,
    /// Doris told the rows, or it cannot have fewer; else its answer was lost, or is still to come, and `rows` were sent.
    pub(super) counted: bool,
}

/// Loads that wait for their commit, or are being committed. When their statement is dropped meanwhile, they end as one as far as possible.
#[derive(Debug)]
pub(super) struct SettleOnDrop {
    target: Arc<LoadTarget>,
    loads: Vec<Committable>,
}

impl SettleOnDrop {
    pub(super) fn new(target: &Arc<LoadTarget>, loads: Vec<Committable>) -> Self {
        Self { target: Arc::clone(target), loads }
    }

    pub(super) fn loads(&self) -> &[Committable] {
        &self.loads
    }

    /// They have ended.
    pub(super) fn release(mut self) {
        self.loads.clear();
    }
}

impl Drop for SettleOnDrop {
    fn drop(&mut self) {
        let loads = std::mem::take(&mut self.loads);
        if loads.is_empty() {
            return;
        }
        let committer = self.target.committer.clone();
        self.target.client.cleanup().later("settle transactions", async move {
            if let Err(error) = committer.give_up(&loads).await {
                tracing::warn!(%error, "a cancelled statement's loads were not aborted");
            }
        });
    }
}
