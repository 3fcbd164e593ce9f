//! What a run must not leave behind when it ends or is dropped.

use std::sync::Arc;

use datafusion::physical_plan::ExecutionPlan;

use super::super::static_side;
use super::super::{Committable, EpochSink};
use crate::error::Result;

/// An open run of a sink.
pub(super) struct Run<'a>(&'a dyn EpochSink);

impl<'a> Run<'a> {
    pub(super) fn begin(sink: &'a dyn EpochSink) -> Result<Self> {
        sink.begin_run()?;
        Ok(Self(sink))
    }
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        self.0.end_run();
    }
}

/// What a plan keeps between epochs, freed at the end of the run.
pub(super) struct KeptSides(pub(super) Arc<dyn ExecutionPlan>);

impl Drop for KeptSides {
    fn drop(&mut self) {
        static_side::forget(&self.0);
    }
}

/// Loads between pre-commit and record (or commit, when there are no records).
pub(super) struct PreCommitted {
    pub(super) sink: Arc<dyn EpochSink>,
    pub(super) committables: Vec<Committable>,
}

impl Drop for PreCommitted {
    fn drop(&mut self) {
        if !self.committables.is_empty() {
            self.sink.abandon(std::mem::take(&mut self.committables));
        }
    }
}
