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
    /// Conditions that look at the rows as they are in order.
    pub of_ordered: ChangeFilters,
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
            Some(order) => {
                let ordered = order.push(rows)?;
                self.ordered(ordered, state)?;
            }
            None => state.ready.push_back(rows),
        }
        Ok(())
    }

    /// No commit goes on behind this place.
    fn complete(&mut self, state: &mut State) -> Result<()> {
        if let Some(order) = self.order.as_mut().filter(|order| order.holds()) {
            let ordered = order.finish()?;
            self.ordered(ordered, state)?;
        }
        Ok(())
    }

    fn ordered(&self, ordered: Vec<RecordBatch>, state: &mut State) -> Result<()> {
        for rows in ordered {
            state.ready.push_back(self.of_ordered.by_kind(rows)?);
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use arrow::array::{ArrayRef, AsArray, Int32Array, Int64Array, StringArray};
    use datafusion::common::ScalarValue;
    use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, UnboundedMemoryPool};
    use datafusion::logical_expr::Operator;
    use datafusion::physical_expr::expressions::{BinaryExpr, Column, Literal};
    use datafusion::physical_plan::PhysicalExpr;
    use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
    use futures::TryStreamExt;

    use super::super::commits::CommitColumns;
    use super::super::publish::HandOver;
    use super::*;

    #[tokio::test]
    async fn a_row_that_is_changed_and_goes_in_one_commit_is_a_delete_also_without_old_halves_of_updates() {
        let columns: [(&str, ArrayRef); 3] = [
            ("id", Arc::new(Int32Array::from(vec![1, 1, 1, 2, 2]))),
            ("tso", Arc::new(Int64Array::from(vec![7; 5]))),
            ("kind", Arc::new(StringArray::from(vec!["-U", "+U", "-D", "-U", "+U"]))),
        ];
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        let kind: Arc<dyn PhysicalExpr> = Arc::new(Column::new("kind", 2));
        let old: Arc<dyn PhysicalExpr> = Arc::new(Literal::new(ScalarValue::from("-U")));
        let no_old: Arc<dyn PhysicalExpr> = Arc::new(BinaryExpr::new(kind, Operator::NotEq, old));
        let pool: Arc<dyn MemoryPool> = Arc::new(UnboundedMemoryPool::default());
        let order = CommitColumns { key: vec![0], tso: 1, kind: 2 };
        let (filters, of_ordered) = ChangeFilters::new(vec![no_old], 2).split();
        let input = futures::stream::iter([Ok(batch.clone())]);
        let finished = FinishedRows {
            input: Box::pin(RecordBatchStreamAdapter::new(batch.schema(), input)),
            passed: Arc::default(),
            filters,
            of_ordered,
            projection: Arc::from([0, 2]),
            order: Some(CommitOrder::new("db.t", order, MemoryConsumer::new("test").register(&pool))),
            publishing: Publishing { offsets: None, hand_over: HandOver::default() },
        };
        let rows: Vec<RecordBatch> = finished.into_stream().try_collect().await.unwrap();
        let told: Vec<(i32, &str)> = rows
            .iter()
            .flat_map(|rows| {
                let ids = rows.column(0).as_primitive::<arrow::datatypes::Int32Type>().values();
                ids.iter().copied().zip(rows.column(1).as_string::<i32>().iter().flatten())
            })
            .collect();
        assert_eq!(told, [(1, "-D"), (2, "+U")]);
    }
}
