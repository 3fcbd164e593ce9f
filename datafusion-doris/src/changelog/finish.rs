//! From what the reader gives to what a node gives: filtered, in the order that its target needs, and projected.

use std::collections::VecDeque;
use std::sync::Arc;

use arrow::record_batch::RecordBatch;
use datafusion::common::Result;
use datafusion::physical_plan::SendableRecordBatchStream;
use futures::{Stream, StreamExt};
use parking_lot::Mutex;

use super::commits::CommitOrder;
use super::filter::{ChangeFilterState, ChangeFilters};
use super::publish::Publishing;

/// The rows of one execution.
pub(super) struct FinishedRows {
    /// What the reader gives: all kinds, unfiltered; an empty batch stands behind the rows before a position.
    pub input: SendableRecordBatchStream,
    /// The positions of the empty batches.
    pub passed: Arc<Mutex<VecDeque<i64>>>,
    pub filters: ChangeFilters,
    /// Output columns, as indices of the columns read.
    pub projection: Arc<[usize]>,
    /// Puts each commit in order, where the target needs that.
    pub order: Option<CommitOrder>,
    pub publishing: Publishing,
}

/// How far an execution is.
#[derive(Default)]
struct State {
    filter: ChangeFilterState,
    ready: VecDeque<RecordBatch>,
    /// A position to tell when all that is ready was taken.
    due: Option<i64>,
    ended: bool,
    failed: bool,
}

impl FinishedRows {
    pub fn into_stream(self) -> impl Stream<Item = Result<RecordBatch>> + Send + 'static {
        futures::stream::unfold((self, State::default()), |(mut rows, mut state)| async move {
            let next = rows.next(&mut state).await?;
            Some((next, (rows, state)))
        })
    }

    async fn next(&mut self, state: &mut State) -> Option<Result<RecordBatch>> {
        while !state.failed {
            while let Some(batch) = state.ready.pop_front() {
                match batch.project(&self.projection) {
                    Ok(batch) if batch.num_rows() == 0 => {}
                    Ok(batch) => return Some(Ok(batch)),
                    Err(error) => {
                        state.failed = true;
                        return Some(Err(error.into()));
                    }
                }
            }
            if let Some(next_ms) = state.due.take() {
                self.publishing.passed(next_ms);
            }
            if state.ended {
                self.publishing.flush().await;
                return None;
            }
            let read = self.input.next().await.transpose();
            if let Err(error) = read.and_then(|read| self.take(read, state)) {
                state.failed = true;
                return Some(Err(error));
            }
        }
        None
    }

    /// Takes what the reader gave; `None` = its end.
    fn take(&mut self, read: Option<RecordBatch>, state: &mut State) -> Result<()> {
        match read {
            Some(batch) if batch.num_rows() == 0 => {
                let position = self.passed.lock().pop_front();
                // All rows before this position are asked past soon, unless one is held here.
                if !state.filter.holds() {
                    self.complete(state)?;
                    state.due = position.or(state.due);
                }
            }
            Some(batch) => {
                let rows = state.filter.apply(&self.filters, batch)?;
                self.give(rows, state)?;
            }
            None => {
                if let Some(rows) = state.filter.finish(&self.filters)? {
                    self.give(rows, state)?;
                }
                self.complete(state)?;
                state.ended = true;
            }
        }
        Ok(())
    }

    fn give(&mut self, rows: RecordBatch, state: &mut State) -> Result<()> {
        match &mut self.order {
            Some(order) => state.ready.extend(order.push(rows)?),
            None => state.ready.push_back(rows),
        }
        Ok(())
    }

    /// No commit goes on behind this place.
    fn complete(&mut self, state: &mut State) -> Result<()> {
        if let Some(order) = self.order.as_mut().filter(|order| order.holds()) {
            state.ready.extend(order.finish()?);
        }
        Ok(())
    }
}
