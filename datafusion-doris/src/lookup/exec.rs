//! The plan node of a lookup join.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::UInt64Array;
use arrow::compute::{concat_batches, take_record_batch};
use arrow::record_batch::RecordBatch;
use arrow::row::OwnedRow;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::utils::memory::get_record_batch_memory_size;
use datafusion::common::{JoinType, Result, internal_err};
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::physical_expr::EquivalenceProperties;
use datafusion::physical_plan::coop::cooperative;
use datafusion::physical_plan::execution_plan::{ChildrenPropertiesMode, ReplaceChildrenOptions, SchedulingType};
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::metrics::{Count, ExecutionPlanMetricsSet, MetricBuilder, MetricsSet};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, Partitioning, PhysicalExpr, PlanProperties,
    SendableRecordBatchStream,
};
use futures::{StreamExt, TryStreamExt};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::RowSource;
use super::cache::Cache;
use super::keys::{Distinct, KeyCoder, KeyColumn};
use crate::error::Outlook;
use crate::options::LookupOptions;

/// Joins each batch of a stream with the rows that a table has for its keys, asked for when the batch comes.
///
/// # Order
/// All rows of a batch are given before the next one is asked for, in the batch's order; keeps no state but the cache.
///
/// # Memory
/// Kept rows are counted against the session's memory pool, and those of a batch from their arrival until the batch is
/// joined, besides the build side that the join makes of them.
///
/// # Errors
/// The stream's are those of the lookups, after `lookup.max-retries` further attempts.
///
/// # Metrics
/// | name | what |
/// | --- | --- |
/// | `lookup_statements` | lookups sent |
/// | `lookup_keys` | keys asked for |
/// | `lookup_rows` | rows found for them |
/// | `lookup_cached_keys` | keys whose rows were kept |
#[derive(Debug)]
pub struct LookupJoinExec {
    stream: Arc<dyn ExecutionPlan>,
    lookup: Arc<Lookup>,
    properties: Arc<PlanProperties>,
}

/// What all copies of a node share.
#[derive(Debug)]
struct Lookup {
    /// The join as planned: its left side has the table as its only leaf.
    join: HashJoinExec,
    source: Arc<dyn RowSource>,
    options: LookupOptions,
    keys: KeyCoder,
    cache: Option<Mutex<Cache>>,
    metrics: ExecutionPlanMetricsSet,
    counts: Counts,
}

#[derive(Debug)]
struct Counts {
    statements: Count,
    keys: Count,
    rows: Count,
    cached_keys: Count,
}

impl LookupJoinExec {
    /// `join`, whose right side is a stream and whose left side has one leaf, as lookups of the rows of `source` by `keys`
    /// (one for each equality of the join).
    pub(crate) fn try_new(
        join: &HashJoinExec,
        source: Arc<dyn RowSource>,
        keys: &[KeyColumn],
        options: LookupOptions,
    ) -> Result<Self> {
        let metrics = ExecutionPlanMetricsSet::new();
        let counter = |name: &'static str| MetricBuilder::new(&metrics).global_counter(name);
        let counts = Counts {
            statements: counter("lookup_statements"),
            keys: counter("lookup_keys"),
            rows: counter("lookup_rows"),
            cached_keys: counter("lookup_cached_keys"),
        };
        let lookup = Lookup {
            join: join.builder().build()?,
            source,
            keys: KeyCoder::try_new(keys)?,
            cache: options.cache.map(|limits| Mutex::new(Cache::new(limits))),
            options,
            metrics,
            counts,
        };
        Ok(Self::over(Arc::clone(join.right()), Arc::new(lookup)))
    }

    fn over(stream: Arc<dyn ExecutionPlan>, lookup: Arc<Lookup>) -> Self {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(lookup.join.schema()),
            Partitioning::UnknownPartitioning(stream.output_partitioning().partition_count()),
            stream.pipeline_behavior(),
            stream.boundedness(),
        )
        .with_scheduling_type(SchedulingType::Cooperative);
        Self { stream, lookup, properties: Arc::new(properties) }
    }
}

impl Lookup {
    /// The rows of the keys of `batch`, and the memory of those that were asked for.
    async fn rows(
        &self,
        batch: &RecordBatch,
        memory: &MemoryReservation,
    ) -> Result<(Vec<RecordBatch>, Vec<MemoryReservation>)> {
        let values = self.join.on().iter().map(|(_, key)| key.evaluate(batch)?.into_array(batch.num_rows()));
        let values = values.collect::<Result<Vec<_>>>()?;
        let distinct = self.keys.distinct(&values)?;
        let now = Instant::now();
        let (mut found, missing) = self.kept(distinct, now);
        self.counts.keys.add(missing.len());
        let places: Vec<u64> = missing.values().copied().collect();
        let parts = places.chunks(self.options.batch_keys).map(|places| self.keys.stored(&values, places));
        let parts = parts.collect::<Result<Vec<_>>>()?;
        let parts: Vec<RecordBatch> = parts.into_iter().filter(|keys| keys.num_rows() > 0).collect();
        let asked = futures::stream::iter(parts).map(|keys| async move { self.ask(&keys, memory).await });
        let asked: Vec<(Vec<RecordBatch>, MemoryReservation)> =
            asked.buffer_unordered(self.options.statements_at_once).try_collect().await?;
        let (asked, held): (Vec<_>, Vec<_>) = asked.into_iter().unzip();
        let asked: Vec<RecordBatch> = asked.into_iter().flatten().collect();
        self.counts.rows.add(asked.iter().map(RecordBatch::num_rows).sum());
        self.keep(&asked, missing, now, memory)?;
        found.extend(asked);
        Ok((found, held))
    }

    /// Kept rows of some of the keys, and the other keys.
    fn kept(&self, mut distinct: Distinct, now: Instant) -> (Vec<RecordBatch>, Distinct) {
        let mut found = Vec::new();
        if let Some(cache) = &self.cache {
            let cache = cache.lock();
            let before = distinct.len();
            distinct.retain(|key, _| match cache.get(key, now) {
                Some(rows) => {
                    found.push(rows);
                    false
                }
                None => true,
            });
            self.counts.cached_keys.add(before - distinct.len());
        }
        (found, distinct)
    }

    /// Keeps what was found, and not found, for the keys that were asked for.
    fn keep(&self, rows: &[RecordBatch], asked: Distinct, since: Instant, memory: &MemoryReservation) -> Result<()> {
        let Some(cache) = &self.cache else { return Ok(()) };
        let copy = memory.new_empty();
        if copy.try_grow(rows.iter().map(get_record_batch_memory_size).sum()).is_err() {
            tracing::debug!("no memory is left to keep looked up rows");
            return Ok(());
        }
        let schema = self.source.schema();
        let rows = concat_batches(&schema, rows)?;
        let mut by_key: std::collections::HashMap<OwnedRow, Vec<u64>> =
            asked.into_keys().map(|key| (key, Vec::new())).collect();
        for (place, key) in self.keys.keys_of(&rows)?.into_iter().enumerate() {
            if let Some(places) = key.and_then(|key| by_key.get_mut(&key)) {
                places.push(place as u64);
            }
        }
        let mut cache = cache.lock();
        for (key, places) in by_key {
            cache.put(key, take_record_batch(&rows, &UInt64Array::from(places))?, since);
        }
        Ok(())
    }

    async fn ask(
        &self,
        keys: &RecordBatch,
        memory: &MemoryReservation,
    ) -> Result<(Vec<RecordBatch>, MemoryReservation)> {
        let mut attempt = 0;
        loop {
            self.counts.statements.add(1);
            let error = match self.collect(keys, memory).await {
                Ok(rows) => return Ok(rows),
                Err(error) => error,
            };
            if attempt >= self.options.max_retries || error.outlook() == Outlook::Permanent {
                return Err(error.into());
            }
            tracing::debug!(%error, attempt, "a lookup failed, asking again");
            tokio::time::sleep(Duration::from_secs(attempt as u64)).await;
            attempt += 1;
        }
    }

    /// The rows of `keys` by one statement, counted as they come.
    async fn collect(
        &self,
        keys: &RecordBatch,
        memory: &MemoryReservation,
    ) -> crate::Result<(Vec<RecordBatch>, MemoryReservation)> {
        let held = memory.new_empty();
        let mut rows = Vec::new();
        let mut batches = self.source.rows(keys, memory).await?;
        while let Some(batch) = batches.try_next().await? {
            if batch.num_rows() > 0 {
                held.try_grow(get_record_batch_memory_size(&batch))?;
                rows.push(batch);
            }
        }
        Ok((rows, held))
    }

    /// The join of `batch` with `rows`, the rows of its keys.
    fn join(&self, rows: Vec<RecordBatch>, batch: RecordBatch) -> Result<Arc<dyn ExecutionPlan>> {
        let found = MemorySourceConfig::try_new_exec(&[rows], self.source.schema(), None)?;
        let left = Arc::clone(self.join.left()).transform_up(|node| {
            let is_leaf = node.children().is_empty();
            Ok(if is_leaf { Transformed::yes(Arc::clone(&found) as _) } else { Transformed::no(node) })
        });
        let schema = batch.schema();
        let right = MemorySourceConfig::try_new_exec(&[vec![batch]], schema, None)?;
        // The build side of an earlier batch is no part of this one.
        self.join
            .builder()
            .reset_state()
            .with_new_children(vec![left.data()?, right])?
            .recompute_properties()
            .build_exec()
    }
}

impl DisplayAs for LookupJoinExec {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Lookup { join, source, options, .. } = self.lookup.as_ref();
        let on: Vec<String> = join.on().iter().map(|(table, stream)| format!("({table}, {stream})")).collect();
        let (join_type, text) = (join.join_type(), source.text());
        let cache = match options.cache {
            Some(cache) => format!("{} rows for {:?}", cache.max_rows, cache.ttl),
            None => "none".into(),
        };
        match format {
            // Settings that may change between two starts of a job are no part of what it is.
            DisplayFormatType::Default => {
                write!(f, "LookupJoinExec: join_type={join_type}, on=[{}], sql=[{text}]", on.join(", "))
            }
            DisplayFormatType::Verbose => {
                write!(
                    f,
                    "LookupJoinExec: join_type={join_type}, on=[{}], keys={}, ",
                    on.join(", "),
                    options.batch_keys
                )?;
                write!(f, "cache={cache}, sql=[{text}]")
            }
            DisplayFormatType::TreeRender => {
                if *join_type != JoinType::Inner {
                    writeln!(f, "join_type={join_type}")?;
                }
                writeln!(f, "on={}", on.join(", "))?;
                writeln!(f, "cache={cache}")?;
                writeln!(f, "sql={text}")
            }
        }
    }
}

impl ExecutionPlan for LookupJoinExec {
    fn name(&self) -> &str {
        "LookupJoinExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.stream]
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        self.lookup.join.on().iter().try_fold(TreeNodeRecursion::Continue, |_, (_, stream)| f(stream))
    }

    fn replace_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
        _options: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        match (children.pop(), children.is_empty()) {
            // What is kept and counted is shared: a job executes a fresh copy of its plan in each epoch.
            (Some(stream), true) => Ok(Arc::new(Self::over(stream, Arc::clone(&self.lookup)))),
            _ => internal_err!("LookupJoinExec has one child"),
        }
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        self.replace_children(children, ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        if let Some(cache) = &self.lookup.cache {
            cache.lock().reserve_in(context.memory_pool());
        }
        let consumer = MemoryConsumer::new(format!("LookupJoinExec[{partition}]"));
        let memory = Arc::new(consumer.register(context.memory_pool()));
        let batches = self.stream.execute(partition, Arc::clone(&context))?;
        let lookup = Arc::clone(&self.lookup);
        let joined = batches
            .try_filter(|batch| std::future::ready(batch.num_rows() > 0))
            .and_then(move |batch| {
                let (lookup, memory, context) = (Arc::clone(&lookup), Arc::clone(&memory), Arc::clone(&context));
                async move {
                    let (rows, held) = lookup.rows(&batch, &memory).await?;
                    let joined = lookup.join(rows, batch)?.execute(0, context)?;
                    // Counted until the batch is joined.
                    Ok(joined.inspect(move |_| {
                        let _ = &held;
                    }))
                }
            })
            .try_flatten()
            .boxed();
        Ok(Box::pin(cooperative(RecordBatchStreamAdapter::new(self.schema(), joined))))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.lookup.metrics.clone_inner())
    }
}
