use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use arrow::array::{Int64Array, RecordBatchOptions};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::execution::memory_pool::GreedyMemoryPool;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::physical_plan::execution_plan::reset_plan_states;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use futures::TryStreamExt;

use super::*;

const TTL: Duration = Duration::from_secs(600);

/// A table whose rows count how often they were read.
#[derive(Debug)]
struct Table {
    schema: SchemaRef,
    reads: AtomicUsize,
    /// The next reading ends with an error.
    fails: AtomicBool,
    columns: usize,
    rows: i64,
}

impl Table {
    fn new(rows: i64) -> Arc<Self> {
        let schema = Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, false)]));
        Arc::new(Self { schema, reads: AtomicUsize::new(0), fails: AtomicBool::new(false), columns: 1, rows })
    }

    fn reads(&self) -> usize {
        self.reads.load(Ordering::Relaxed)
    }
}

#[derive(Debug)]
struct Part(Arc<Table>);

impl PartitionStream for Part {
    fn schema(&self) -> &SchemaRef {
        &self.0.schema
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        let table = Arc::clone(&self.0);
        let read = i64::try_from(table.reads.fetch_add(1, Ordering::Relaxed)).unwrap();
        let numbers = Int64Array::from_iter_values((0..table.rows).map(|row| read * 1000 + row));
        let options = RecordBatchOptions::new().with_row_count(Some(usize::try_from(table.rows).unwrap()));
        let columns = vec![Arc::new(numbers) as _; table.columns];
        let batch = RecordBatch::try_new_with_options(Arc::clone(&table.schema), columns, &options).unwrap();
        let mut batches = vec![Ok(batch)];
        if table.fails.swap(false, Ordering::Relaxed) {
            batches.push(datafusion::common::exec_err!("told to fail"));
        }
        Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&table.schema), futures::stream::iter(batches)))
    }
}

fn kept(table: &Arc<Table>, partitions: usize) -> Arc<dyn ExecutionPlan> {
    let parts = (0..partitions).map(|_| Arc::new(Part(Arc::clone(table))) as _).collect();
    let read = StreamingTableExec::try_new(Arc::clone(&table.schema), parts, None, vec![], false, None).unwrap();
    Arc::new(StaticSideExec::new(Arc::new(read), TTL))
}

fn context(limit: usize) -> (Arc<TaskContext>, Arc<dyn MemoryPool>) {
    let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(limit));
    let runtime = RuntimeEnvBuilder::new().with_memory_pool(Arc::clone(&pool)).build_arc().unwrap();
    (Arc::new(TaskContext::default().with_runtime(runtime)), pool)
}

/// The rows of an epoch, partition by partition.
async fn epoch(plan: &Arc<dyn ExecutionPlan>, context: &Arc<TaskContext>) -> Result<Vec<Vec<i64>>> {
    let fresh = reset_plan_states(Arc::clone(plan))?;
    let mut all = Vec::new();
    for partition in 0..fresh.output_partitioning().partition_count() {
        let batches: Vec<RecordBatch> = fresh.execute(partition, Arc::clone(context))?.try_collect().await?;
        let numbers = batches.iter().flat_map(|batch| {
            let numbers = datafusion::common::cast::as_int64_array(batch.column(0)).unwrap();
            numbers.values().to_vec()
        });
        all.push(numbers.collect());
    }
    Ok(all)
}

fn figure(plan: &Arc<dyn ExecutionPlan>, name: &str) -> usize {
    plan.metrics().unwrap().sum_by_name(name).map_or(0, |value| value.as_usize())
}

#[tokio::test(start_paused = true)]
async fn rows_are_read_once_until_they_are_older_than_the_time_to_live() {
    let table = Table::new(2);
    let plan = kept(&table, 1);
    let (context, pool) = context(1 << 20);
    for _ in 0..3 {
        assert_eq!(epoch(&plan, &context).await.unwrap(), [[0, 1]]);
        tokio::time::advance(Duration::from_secs(199)).await;
    }
    assert_eq!((table.reads(), figure(&plan, "static_reads"), figure(&plan, "static_reuses")), (1, 1, 2));
    assert!(pool.reserved() > 0);
    assert_eq!(figure(&plan, "static_bytes"), pool.reserved());
    tokio::time::advance(Duration::from_secs(3)).await;
    assert_eq!(epoch(&plan, &context).await.unwrap(), [[1000, 1001]], "600 seconds are over");
    assert_eq!(table.reads(), 2);
}

#[tokio::test(start_paused = true)]
async fn age_counts_from_before_the_reading() {
    let table = Table::new(1);
    let plan = kept(&table, 1);
    let (context, _) = context(1 << 20);
    let fresh = reset_plan_states(Arc::clone(&plan)).unwrap();
    let rows = fresh.execute(0, Arc::clone(&context)).unwrap();
    // Its rows may be as old as the moment at which the server was asked.
    tokio::time::advance(Duration::from_secs(400)).await;
    let _: Vec<RecordBatch> = rows.try_collect().await.unwrap();
    tokio::time::advance(Duration::from_secs(201)).await;
    epoch(&plan, &context).await.unwrap();
    assert_eq!(table.reads(), 2);
}

#[tokio::test(start_paused = true)]
async fn partitions_are_kept_and_read_anew_together() {
    let table = Table::new(1);
    let plan = kept(&table, 3);
    let (context, _) = context(1 << 20);
    assert_eq!(epoch(&plan, &context).await.unwrap(), [[0], [1000], [2000]]);
    assert_eq!(epoch(&plan, &context).await.unwrap(), [[0], [1000], [2000]]);
    // Two of three: a reading that is not whole is not kept.
    tokio::time::advance(TTL).await;
    let fresh = reset_plan_states(Arc::clone(&plan)).unwrap();
    for partition in [2, 0] {
        let _: Vec<RecordBatch> = fresh.execute(partition, Arc::clone(&context)).unwrap().try_collect().await.unwrap();
    }
    assert_eq!(epoch(&plan, &context).await.unwrap(), [[5000], [6000], [7000]]);
    // An epoch that begins before the end of the time to live stays with what it has.
    let fresh = reset_plan_states(Arc::clone(&plan)).unwrap();
    tokio::time::advance(TTL - Duration::from_secs(1)).await;
    let _ = fresh.execute(0, Arc::clone(&context)).unwrap();
    tokio::time::advance(Duration::from_secs(2)).await;
    let _: Vec<RecordBatch> = fresh.execute(2, Arc::clone(&context)).unwrap().try_collect().await.unwrap();
    assert_eq!(table.reads(), 8);
}

#[tokio::test(start_paused = true)]
async fn reading_that_failed_or_was_dropped_is_not_kept_and_frees_its_memory() {
    let table = Table::new(1);
    let plan = kept(&table, 1);
    let (context, pool) = context(1 << 20);
    table.fails.store(true, Ordering::Relaxed);
    assert!(epoch(&plan, &context).await.unwrap_err().to_string().contains("told to fail"));
    let fresh = reset_plan_states(Arc::clone(&plan)).unwrap();
    let mut dropped = fresh.execute(0, Arc::clone(&context)).unwrap();
    dropped.next().await.unwrap().unwrap();
    drop((dropped, fresh));
    assert_eq!(pool.reserved(), 0);
    assert_eq!(epoch(&plan, &context).await.unwrap(), [[2000]]);
}

#[tokio::test(start_paused = true)]
async fn expired_rows_are_freed_before_others_are_read_and_all_at_the_end() {
    let table = Table::new(1000);
    let plan = kept(&table, 1);
    // Room for one reading, not for two.
    let (context, pool) = context(12_000);
    epoch(&plan, &context).await.unwrap();
    tokio::time::advance(TTL).await;
    epoch(&plan, &context).await.unwrap();
    assert!(pool.reserved() >= 8000);
    forget(&plan);
    assert_eq!((pool.reserved(), figure(&plan, "static_bytes")), (0, 0));
    epoch(&plan, &context).await.unwrap();
    assert!(pool.reserved() >= 8000);
    drop(plan);
    assert_eq!(pool.reserved(), 0);
}

#[tokio::test(start_paused = true)]
async fn side_that_does_not_fit_is_refused_with_the_setting_and_the_limit() {
    let table = Table::new(1000);
    let plan = kept(&table, 1);
    let (context, pool) = context(4_000);
    let error = epoch(&plan, &context).await.unwrap_err();
    let text = error.to_string();
    for part in ["doris.job.static_ttl", "4000 bytes", "'0s'", "600s", "memory_limit"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert_eq!(Error::from(error).outlook(), crate::error::Outlook::Permanent, "trying again does not help");
    assert_eq!(pool.reserved(), 0);
}
