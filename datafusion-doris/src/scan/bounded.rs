//! Streams of batches within bounds: rows of a batch, rows in all, memory.

use arrow::array::RecordBatchOptions;
use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use datafusion::common::Result as DfResult;
use datafusion::common::utils::memory::get_record_batch_memory_size;
use datafusion::execution::memory_pool::MemoryReservation;
use futures::stream::BoxStream;
use futures::{Stream, StreamExt};

use crate::error::{Error, Result};

/// `batches` with at most `rows` rows in each.
pub(super) fn in_slices(
    batches: BoxStream<'static, Result<RecordBatch>>,
    rows: Option<usize>,
) -> BoxStream<'static, Result<RecordBatch>> {
    let Some(rows) = rows.filter(|rows| *rows > 0) else { return batches };
    let slices = move |batch: Result<RecordBatch>| match batch {
        Ok(batch) => {
            let starts = (0..batch.num_rows()).step_by(rows);
            let slices = starts.map(|start| Ok(batch.slice(start, rows.min(batch.num_rows() - start))));
            slices.collect::<Vec<_>>()
        }
        Err(error) => vec![Err(error)],
    };
    batches.flat_map(move |batch| futures::stream::iter(slices(batch))).boxed()
}

/// The batch given last, and the next one, which is made of what came.
const HELD_BATCHES: usize = 2;

/// `batches`, reserved in the session's memory pool: the one given last and, at its size, the one that is made next. Those
/// before are their reader's ([`crate::client::ReadMemory`]). An error, when they do not fit.
pub(super) fn reserved(
    batches: BoxStream<'static, Result<RecordBatch>>,
    reservation: MemoryReservation,
) -> impl Stream<Item = DfResult<RecordBatch>> + Send + 'static {
    futures::stream::unfold(Some((batches, reservation)), |state| async move {
        let (mut batches, reservation) = state?;
        match batches.next().await? {
            Ok(batch) => {
                let bytes = get_record_batch_memory_size(&batch).saturating_mul(HELD_BATCHES);
                match reservation.try_resize(bytes) {
                    Ok(()) => Some((Ok(batch), Some((batches, reservation)))),
                    Err(error) => Some((Err(error), None)),
                }
            }
            Err(error) => Some((Err(error.into()), None)),
        }
    })
}

/// `rows` rows without columns, at most `batch_size` in a batch.
pub(super) fn empty_rows(
    schema: SchemaRef,
    rows: usize,
    batch_size: usize,
) -> impl Stream<Item = Result<RecordBatch>> + Send {
    futures::stream::unfold(rows, move |left| {
        let schema = SchemaRef::clone(&schema);
        async move {
            let slice = left.min(batch_size.max(1));
            if slice == 0 {
                return None;
            }
            let options = RecordBatchOptions::new().with_row_count(Some(slice));
            let batch = RecordBatch::try_new_with_options(schema, vec![], &options).map_err(Error::from);
            Some((batch, left - slice))
        }
    })
}

/// At most `fetch` rows of `batches`; nothing is polled once they are there.
pub(crate) fn cut_at(
    batches: impl Stream<Item = DfResult<RecordBatch>> + Send + 'static,
    fetch: Option<usize>,
) -> BoxStream<'static, DfResult<RecordBatch>> {
    let Some(fetch) = fetch else { return batches.boxed() };
    let state = (fetch > 0).then(|| (batches.boxed(), fetch));
    futures::stream::unfold(state, |state| async move {
        let (mut batches, left) = state?;
        match batches.next().await? {
            Ok(batch) if batch.num_rows() >= left => Some((Ok(batch.slice(0, left)), None)),
            Ok(batch) => {
                let left = left - batch.num_rows();
                Some((Ok(batch), Some((batches, left))))
            }
            Err(error) => Some((Err(error), None)),
        }
    })
    .boxed()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use std::sync::Arc;

    use arrow::array::Int64Array;
    use arrow::datatypes::{DataType, Field, Schema};
    use datafusion::execution::memory_pool::{GreedyMemoryPool, MemoryConsumer, MemoryPool};
    use futures::TryStreamExt;

    use super::*;

    fn numbers(values: std::ops::Range<i64>) -> RecordBatch {
        let schema = Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, false)]));
        RecordBatch::try_new(schema, vec![Arc::new(Int64Array::from_iter_values(values))]).unwrap()
    }

    #[tokio::test]
    async fn fetch_cuts_exactly_and_polls_no_further() {
        let forever = futures::stream::iter([Ok(numbers(0..3)), Ok(numbers(3..6))]).chain(futures::stream::pending());
        let cut: Vec<_> = cut_at(forever, Some(5)).try_collect().await.unwrap();
        assert_eq!(cut, vec![numbers(0..3), numbers(3..5)]);
        let none: Vec<_> = cut_at(futures::stream::pending(), Some(0)).try_collect().await.unwrap();
        assert!(none.is_empty());
    }

    #[tokio::test]
    async fn counted_rows_come_in_slices() {
        let schema = Arc::new(Schema::empty());
        let sizes = |rows, batch_size| {
            let batches = empty_rows(Arc::clone(&schema), rows, batch_size);
            async move {
                let batches: Vec<RecordBatch> = batches.try_collect().await.unwrap();
                batches.iter().map(RecordBatch::num_rows).collect::<Vec<_>>()
            }
        };
        assert_eq!(sizes(10, 4).await, vec![4, 4, 2]);
        assert_eq!(sizes(0, 4).await, Vec::<usize>::new());
    }

    #[tokio::test]
    async fn batches_are_cut_to_their_most_rows() {
        let batches = futures::stream::iter([Ok(numbers(0..5)), Ok(numbers(5..6))]).boxed();
        let cut: Vec<_> = in_slices(batches, Some(2)).try_collect().await.unwrap();
        assert_eq!(cut, vec![numbers(0..2), numbers(2..4), numbers(4..5), numbers(5..6)]);
    }

    #[tokio::test]
    async fn memory_is_reserved_while_a_stream_runs_and_freed_with_it() {
        let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(100_000));
        let batches = futures::stream::iter([Ok(numbers(0..100)), Ok(numbers(0..100_000)), Ok(numbers(0..1))]).boxed();
        let reservation = MemoryConsumer::new("scan").register(&pool);
        let mut batches = Box::pin(reserved(batches, reservation));
        assert_eq!(batches.next().await.unwrap().unwrap(), numbers(0..100));
        assert_eq!(pool.reserved(), get_record_batch_memory_size(&numbers(0..100)) * HELD_BATCHES);
        let refused = batches.next().await.unwrap().unwrap_err().to_string();
        assert!(refused.contains("scan"), "{refused}");
        assert!(batches.next().await.is_none());
        assert_eq!(pool.reserved(), 0);
    }
}
