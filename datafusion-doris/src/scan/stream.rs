//! Streams of record batches with metrics.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use datafusion::error::Result;
use datafusion::execution::RecordBatchStream;
use datafusion::physical_plan::metrics::BaselineMetrics;
use futures::stream::BoxStream;
use futures::{Stream, StreamExt};

/// A stream with a schema whose batches are counted.
pub(crate) struct MeteredStream {
    schema: SchemaRef,
    inner: BoxStream<'static, Result<RecordBatch>>,
    baseline: BaselineMetrics,
}

impl MeteredStream {
    pub fn new(
        schema: SchemaRef,
        inner: impl Stream<Item = Result<RecordBatch>> + Send + 'static,
        baseline: BaselineMetrics,
    ) -> Self {
        Self { schema, inner: inner.boxed(), baseline }
    }
}

impl Stream for MeteredStream {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let poll = self.inner.poll_next_unpin(cx);
        self.baseline.record_poll(poll)
    }
}

impl RecordBatchStream for MeteredStream {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}
