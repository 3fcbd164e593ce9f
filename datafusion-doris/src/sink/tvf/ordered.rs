//! The position of each row in the input.

use std::sync::Arc;

use arrow::array::Int64Array;
use arrow::record_batch::RecordBatch;
use datafusion::physical_plan::SendableRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::StreamExt;

use super::positioned;

/// The rows of `data` with a further column: their positions, from zero on.
pub(in crate::sink) fn with_positions(data: SendableRecordBatchStream) -> SendableRecordBatchStream {
    let schema = positioned(&data.schema());
    let columns = Arc::clone(&schema);
    let mut next = 0_i64;
    let rows = data.map(move |batch| {
        let batch = batch?;
        // A statement has fewer rows than this counts.
        let end = next.saturating_add(i64::try_from(batch.num_rows()).unwrap_or(i64::MAX));
        let positions = Int64Array::from_iter_values(next..end);
        next = end;
        let mut all = batch.columns().to_vec();
        all.push(Arc::new(positions));
        Ok(RecordBatch::try_new(Arc::clone(&columns), all)?)
    });
    Box::pin(RecordBatchStreamAdapter::new(schema, rows))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use arrow::array::{ArrayRef, AsArray};
    use arrow::datatypes::Int64Type;
    use futures::TryStreamExt;

    use super::*;

    #[tokio::test]
    async fn positions_go_on_from_batch_to_batch() {
        let batch = |rows: usize| {
            let column: ArrayRef = Arc::new(Int64Array::from(vec![7; rows]));
            RecordBatch::try_from_iter([("v", column)]).unwrap()
        };
        let schema = batch(0).schema();
        let input = futures::stream::iter([2, 0, 3].map(|rows| Ok(batch(rows))));
        let data = with_positions(Box::pin(RecordBatchStreamAdapter::new(schema, input)));
        let batches: Vec<RecordBatch> = data.try_collect().await.unwrap();
        let positions: Vec<i64> =
            batches.iter().flat_map(|batch| batch.column(1).as_primitive::<Int64Type>().values().to_vec()).collect();
        assert_eq!(positions, [0, 1, 2, 3, 4]);
    }
}
