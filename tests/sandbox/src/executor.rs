//! Where queries run: on threads of their own, so that one that computes for long keeps neither the servers' listeners
//! nor KILL and `query_timeout` from working.

use std::sync::OnceLock;

use arrow::array::RecordBatch;
use datafusion::common::DataFusionError;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::execute_stream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::StreamExt;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::deep_stack::DeepStack;

/// Threads of queries, at least: one that does not give way must not stop the others.
const LEAST_THREADS: usize = 4;
/// Batches computed ahead of the client.
const AHEAD: usize = 2;

/// The executor of this process. It ends with the process: a runtime must not be dropped inside of another one, where
/// embedded sandboxes live.
///
/// # Errors
/// When no threads can be started.
pub(crate) fn handle() -> std::io::Result<Handle> {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    if let Some(runtime) = RUNTIME.get() {
        return Ok(runtime.handle().clone());
    }
    let threads = std::thread::available_parallelism().map_or(LEAST_THREADS, |n| n.get().max(LEAST_THREADS));
    let runtime = Builder::new_multi_thread().worker_threads(threads).thread_name("query").enable_all().build()?;
    // When two start at once, the threads of one of them end here, before they ran anything.
    if let Err(second) = RUNTIME.set(runtime) {
        second.shutdown_background();
    }
    RUNTIME.get().map(|runtime| runtime.handle().clone()).ok_or_else(|| std::io::Error::other("no executor"))
}

/// Plans and runs a query; on `executor`, or right here without one. Dropping the stream ends the query.
pub(crate) async fn run(
    executor: Option<&Handle>,
    state: SessionState,
    plan: LogicalPlan,
) -> Result<SendableRecordBatchStream, DataFusionError> {
    let begin = async move {
        let plan = state.create_physical_plan(&plan).await?;
        execute_stream(plan, state.task_ctx())
    };
    let Some(executor) = executor else { return begin.await };
    // Its tasks end when it is dropped.
    let mut tasks = JoinSet::new();
    let (schema_out, schema) = tokio::sync::oneshot::channel();
    let (out, batches) = mpsc::channel::<Result<RecordBatch, DataFusionError>>(AHEAD);
    tasks.spawn_on(
        DeepStack::new(async move {
            let mut stream = match begin.await {
                Ok(stream) => stream,
                Err(error) => {
                    // Nobody waits any more when this fails.
                    let _ = schema_out.send(Err(error));
                    return;
                }
            };
            if schema_out.send(Ok(stream.schema())).is_err() {
                return;
            }
            while let Some(batch) = stream.next().await {
                if out.send(batch).await.is_err() {
                    return;
                }
            }
        }),
        executor,
    );
    let schema = schema.await.map_err(|_| ended())??;
    let rows = futures::stream::unfold((batches, tasks), |(mut batches, mut tasks)| async move {
        if let Some(batch) = batches.recv().await {
            return Some((batch, (batches, tasks)));
        }
        // No more batches: the task has ended, well or not.
        match tasks.join_next().await {
            Some(Err(_)) => Some((Err(ended()), (batches, tasks))),
            Some(Ok(())) | None => None,
        }
    });
    Ok(Box::pin(RecordBatchStreamAdapter::new(schema, rows)))
}

fn ended() -> DataFusionError {
    DataFusionError::Execution("the query ended early".to_owned())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use std::time::Duration;

    use datafusion::logical_expr::{ColumnarValue, Volatility, create_udf};
    use datafusion::prelude::SessionContext;

    use super::*;

    /// A query that computes without giving way leaves the thread of its caller alone.
    #[tokio::test]
    async fn computing_queries_do_not_hold_up_their_caller() {
        let (started_out, mut started) = mpsc::channel(1);
        let (release, released) = std::sync::mpsc::channel::<()>();
        let released = std::sync::Mutex::new(released);
        let computing = create_udf(
            "computing",
            vec![],
            arrow::datatypes::DataType::Int64,
            Volatility::Volatile,
            std::sync::Arc::new(move |_| {
                started_out.try_send(()).ok();
                released.lock().unwrap().recv().ok();
                Ok(ColumnarValue::Scalar(datafusion::common::ScalarValue::Int64(Some(7))))
            }),
        );
        let context = SessionContext::new();
        context.register_udf(computing);
        let plan = context.state().create_logical_plan("SELECT computing() AS n").await.unwrap();
        let mut rows = run(Some(&handle().unwrap()), context.state(), plan).await.unwrap();
        // The caller has one thread, and goes on while the query holds another.
        let next = rows.next();
        tokio::pin!(next);
        assert!(futures::poll!(next.as_mut()).is_pending());
        started.recv().await.unwrap();
        assert!(tokio::time::timeout(Duration::from_millis(1), next.as_mut()).await.is_err());
        release.send(()).unwrap();
        let batch = next.await.unwrap().unwrap();
        assert_eq!(batch.num_rows(), 1);
    }
}
