//! The answer of a plan that changes rows: how many, as DataFusion's own plans give it.

use std::sync::Arc;

use arrow::array::UInt64Array;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::record_batch::RecordBatch;
use datafusion::error::Result;
use datafusion::physical_plan::SendableRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;

/// `count: UInt64`, not null.
pub(crate) fn count_schema() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("count", DataType::UInt64, false)]))
}

/// One row with the number that `rows` gives; nothing is done before it is polled.
pub(crate) fn counted(rows: impl Future<Output = Result<u64>> + Send + 'static) -> SendableRecordBatchStream {
    let row = async {
        let rows = rows.await?;
        Ok(RecordBatch::try_new(count_schema(), vec![Arc::new(UInt64Array::from(vec![rows]))])?)
    };
    Box::pin(RecordBatchStreamAdapter::new(count_schema(), futures::stream::once(row)))
}
