//! One statement or epoch, as its writers see it.

use std::sync::Arc;

use parking_lot::Mutex;

use super::target::{LoadTarget, Loaded, SettleOnDrop, TaskCount};
use super::tvf::Attempt;
use crate::checkpoint::{Epoch, Generation, LabelSeries};

/// Whether a label may be taken already by an earlier attempt or process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Labels {
    /// Nobody has used them.
    New,
    /// Looked after when rows are sent under them.
    Repeatable,
    /// An earlier attempt of this process used them, perhaps for other rows: all are freed.
    Repeated,
}

/// What the labels of a statement or epoch are made of.
#[derive(Debug, Clone)]
pub(super) struct LabelSet {
    pub(super) series: LabelSeries,
    pub(super) job: String,
    pub(super) generation: Generation,
    pub(super) epoch: Epoch,
    pub(super) kind: Labels,
}

impl LabelSet {
    /// The label of a load: its number is that of its writer, plus the number of writers for each load the writer had
    /// before.
    pub(super) fn label(&self, load: u32) -> String {
        self.series.label(&self.job, self.generation, self.epoch, load)
    }
}

/// The loads of one statement or epoch. Those that have ended well and are not taken are aborted when it is dropped.
#[derive(Debug)]
pub(super) struct LoadRun {
    pub(super) target: Arc<LoadTarget>,
    pub(super) labels: LabelSet,
    /// Loads are pre-committed, and committed together by whoever asked for the rows to be written.
    pub(super) two_phase: bool,
    /// Tasks that write its loads.
    pub(super) tasks: TaskCount,
    ended: Mutex<Vec<Loaded>>,
    /// The rows of all writers, staged for one load.
    pub(super) attempt: Option<Arc<Attempt>>,
}

impl LoadRun {
    pub(super) fn new(target: &Arc<LoadTarget>, labels: LabelSet, two_phase: bool) -> Arc<Self> {
        let (tasks, ended) = (TaskCount::default(), Mutex::default());
        let stage = target.committer.stage.as_ref();
        let attempt = stage.map(|stage| Arc::new(Attempt::new(stage, target.load(labels.label(0), 0))));
        Arc::new(Self { target: Arc::clone(target), labels, two_phase, tasks, ended, attempt })
    }

    /// A load has ended well. The loads of one writer end in the order of its rows.
    pub(super) fn ended(&self, load: Loaded) {
        self.ended.lock().push(load);
    }

    /// The loads that have ended well, which are the caller's from now on.
    pub(super) fn take_ended(&self) -> Vec<Loaded> {
        std::mem::take(&mut *self.ended.lock())
    }
}

impl Drop for LoadRun {
    fn drop(&mut self) {
        let loads = self.take_ended();
        if self.two_phase {
            drop(SettleOnDrop::new(&self.target, loads.into_iter().map(|load| load.load).collect()));
        }
    }
}
