//! The static side of a join, kept from one epoch to the next.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use arrow::record_batch::RecordBatch;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::utils::memory::get_record_batch_memory_size;
use datafusion::common::{Result, Statistics, internal_err};
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation};
use datafusion::physical_plan::coop::cooperative;
use datafusion::physical_plan::execution_plan::{ChildrenPropertiesMode, ReplaceChildrenOptions};
use datafusion::physical_plan::metrics::{Count, ExecutionPlanMetricsSet, Gauge, MetricBuilder, MetricsSet};
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PhysicalExpr, PlanProperties,
    SendableRecordBatchStream,
};
use futures::{Stream, StreamExt};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::error::Error;

/// The setting that keeps static sides.
const SETTING: &str = "doris.job.static_ttl";

/// Gives the rows of its (bounded) input again in later epochs, until they are older than a time to live.
///
/// Each epoch executes a fresh copy of the plan (`reset_plan_states`); copies of this node share what was read. The age
/// counts from just before the reading began, and is looked at when an epoch executes the node: then either all of its
/// partitions give what is kept, or all of them are read anew. Only whole readings are kept.
///
/// # Memory
/// The kept rows are reserved in the session's memory pool, beside what the join itself makes of them. Rows that do not
/// fit are refused with an error. They are freed when the run ends (`forget`) or the plan is dropped.
///
/// # Metrics
/// | name | what |
/// | --- | --- |
/// | `static_reads` | readings begun |
/// | `static_reuses` | epochs that took what was kept |
/// | `static_bytes` | bytes that are kept |
#[derive(Debug)]
pub struct StaticSideExec {
    input: Arc<dyn ExecutionPlan>,
    ttl: Duration,
    kept: Arc<Mutex<Option<Kept>>>,
    /// What this copy does, once it is known.
    round: Mutex<Option<Round>>,
    metrics: ExecutionPlanMetricsSet,
    counts: Counts,
}

#[derive(Debug, Clone)]
struct Counts {
    reads: Count,
    reuses: Count,
    bytes: Gauge,
}

/// A whole reading.
#[derive(Debug, Clone)]
struct Kept {
    read_at: Instant,
    partitions: Arc<[Vec<RecordBatch>]>,
    _memory: Arc<MemoryReservation>,
}

/// What the partitions of one copy do.
#[derive(Debug, Clone)]
enum Round {
    Give(Kept),
    Read(Arc<Reading>),
}

/// A reading that is not whole yet.
#[derive(Debug)]
struct Reading {
    read_at: Instant,
    memory: Arc<MemoryReservation>,
    partitions: Mutex<Vec<Partition>>,
}

#[derive(Debug)]
enum Partition {
    Unread,
    Reading,
    Read(Vec<RecordBatch>),
}

impl StaticSideExec {
    /// Keeps the rows of `input` for `ttl`.
    pub fn new(input: Arc<dyn ExecutionPlan>, ttl: Duration) -> Self {
        let metrics = ExecutionPlanMetricsSet::new();
        let counter = |name: &'static str| MetricBuilder::new(&metrics).global_counter(name);
        let counts = Counts {
            reads: counter("static_reads"),
            reuses: counter("static_reuses"),
            bytes: MetricBuilder::new(&metrics).global_gauge("static_bytes"),
        };
        Self { input, ttl, kept: Arc::default(), round: Mutex::default(), metrics, counts }
    }

    /// What is read.
    pub fn input(&self) -> &Arc<dyn ExecutionPlan> {
        &self.input
    }

    /// A copy over `input` that has not decided yet what to do.
    fn copy(&self, input: Arc<dyn ExecutionPlan>) -> Self {
        Self {
            input,
            ttl: self.ttl,
            kept: Arc::clone(&self.kept),
            round: Mutex::default(),
            metrics: self.metrics.clone(),
            counts: self.counts.clone(),
        }
    }

    fn round(&self, pool: &Arc<dyn MemoryPool>) -> Round {
        let mut round = self.round.lock();
        let decided = match round.take() {
            Some(decided) => decided,
            None => self.decide(pool),
        };
        *round = Some(decided.clone());
        decided
    }

    fn decide(&self, pool: &Arc<dyn MemoryPool>) -> Round {
        let mut kept = self.kept.lock();
        if let Some(fresh) = kept.as_ref().filter(|kept| kept.read_at.elapsed() < self.ttl) {
            self.counts.reuses.add(1);
            return Round::Give(fresh.clone());
        }
        // Before the rows that take its place are read: they need the memory.
        *kept = None;
        self.counts.bytes.set(0);
        self.counts.reads.add(1);
        let partitions = self.input.output_partitioning().partition_count();
        Round::Read(Arc::new(Reading {
            read_at: Instant::now(),
            memory: Arc::new(MemoryConsumer::new("StaticSideExec").register(pool)),
            partitions: Mutex::new((0..partitions).map(|_| Partition::Unread).collect()),
        }))
    }

    /// Passes the rows of a partition on, and keeps them.
    fn read(
        &self,
        partition: usize,
        reading: Arc<Reading>,
        input: SendableRecordBatchStream,
        pool: Arc<dyn MemoryPool>,
    ) -> impl Stream<Item = Result<RecordBatch>> + Send + 'static {
        let (ttl, kept, bytes) = (self.ttl, Arc::clone(&self.kept), self.counts.bytes.clone());
        let state = Some((input, Vec::new()));
        futures::stream::unfold(state, move |state| {
            let (reading, kept, pool, bytes) =
                (Arc::clone(&reading), Arc::clone(&kept), Arc::clone(&pool), bytes.clone());
            async move {
                let (mut input, mut batches) = state?;
                match input.next().await {
                    Some(Ok(batch)) => {
                        if reading.memory.try_grow(get_record_batch_memory_size(&batch)).is_err() {
                            let error = too_large(ttl, reading.memory.size(), pool.memory_limit());
                            return Some((Err(error.into()), None));
                        }
                        batches.push(batch.clone());
                        Some((Ok(batch), Some((input, batches))))
                    }
                    Some(Err(error)) => Some((Err(error), None)),
                    None => {
                        if let Some(whole) = reading.partition_done(partition, batches) {
                            bytes.set(reading.memory.size());
                            *kept.lock() = Some(whole);
                        }
                        None
                    }
                }
            }
        })
    }
}

impl Reading {
    /// True for the first who reads a partition: what others read of it is not kept.
    fn begin(&self, partition: usize) -> bool {
        match self.partitions.lock().get_mut(partition) {
            Some(state @ Partition::Unread) => {
                *state = Partition::Reading;
                true
            }
            _ => false,
        }
    }

    /// Notes the rows of a partition; the reading, when that was the last one.
    fn partition_done(&self, partition: usize, batches: Vec<RecordBatch>) -> Option<Kept> {
        let mut partitions = self.partitions.lock();
        *partitions.get_mut(partition)? = Partition::Read(batches);
        if !partitions.iter().all(|partition| matches!(partition, Partition::Read(_))) {
            return None;
        }
        let rows = partitions.drain(..).map(|partition| match partition {
            Partition::Read(batches) => batches,
            Partition::Unread | Partition::Reading => vec![],
        });
        Some(Kept { read_at: self.read_at, partitions: rows.collect(), _memory: Arc::clone(&self.memory) })
    }
}

fn too_large(ttl: Duration, kept_bytes: usize, limit: MemoryLimit) -> Error {
    let limit = match limit {
        MemoryLimit::Finite(bytes) => format!("whose limit is {bytes} bytes"),
        MemoryLimit::Infinite | MemoryLimit::Unknown => "whose limit is not known".to_string(),
    };
    Error::config(
        SETTING,
        format!(
            "the static side of a join is to be kept for {ttl:?}, but after {kept_bytes} bytes of it no more fits into \
             the session's memory pool, {limit}: raise the limit (datafusion.runtime.memory_limit), read fewer rows or \
             columns of the static table, or set {SETTING} = '0s', which keeps nothing between epochs"
        ),
    )
}

/// Frees what the static sides of `plan` keep.
pub fn forget(plan: &Arc<dyn ExecutionPlan>) {
    // The closure never fails, so neither does the walk.
    let _ = plan.apply(|node| {
        if let Some(side) = node.downcast_ref::<StaticSideExec>() {
            *side.kept.lock() = None;
            side.counts.bytes.set(0);
        }
        Ok(TreeNodeRecursion::Continue)
    });
}

impl DisplayAs for StaticSideExec {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match format {
            DisplayFormatType::Default | DisplayFormatType::Verbose => {
                write!(f, "StaticSideExec: kept across epochs, ttl={:?}", self.ttl)
            }
            DisplayFormatType::TreeRender => writeln!(f, "ttl={:?}", self.ttl),
        }
    }
}

impl ExecutionPlan for StaticSideExec {
    fn name(&self) -> &str {
        "StaticSideExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.input.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn apply_expressions(
        &self,
        _f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
        _options: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        match (children.pop(), children.is_empty()) {
            (Some(input), true) => Ok(Arc::new(self.copy(input))),
            _ => internal_err!("StaticSideExec has one child"),
        }
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        self.replace_children(children, ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let pool = context.memory_pool();
        let schema = self.schema();
        let reading = match self.round(pool) {
            Round::Give(kept) => {
                if partition >= kept.partitions.len() {
                    return internal_err!("StaticSideExec has no partition {partition}");
                }
                // The rows stay alive, and reserved, as long as somebody reads them.
                let given = futures::stream::unfold((kept, 0), move |(kept, next)| async move {
                    let batch = kept.partitions.get(partition)?.get(next)?.clone();
                    Some((Ok(batch), (kept, next + 1)))
                });
                return Ok(Box::pin(cooperative(RecordBatchStreamAdapter::new(schema, Box::pin(given)))));
            }
            Round::Read(reading) => reading,
        };
        let pool = Arc::clone(pool);
        let input = self.input.execute(partition, context)?;
        if !reading.begin(partition) {
            return Ok(input);
        }
        let rows = self.read(partition, reading, input, pool);
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, rows)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn child_stats_requests(&self, partition: Option<usize>) -> Vec<ChildStats> {
        vec![ChildStats::At(partition)]
    }

    fn statistics_from_inputs(
        &self,
        input_stats: &[Arc<Statistics>],
        _args: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        match input_stats {
            [input] => Ok(Arc::clone(input)),
            _ => internal_err!("StaticSideExec has one child"),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests;
