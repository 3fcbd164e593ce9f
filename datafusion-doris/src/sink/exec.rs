//! The sink as a plan node.

use std::fmt;
use std::sync::Arc;

use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::datasource::sink::DataSink;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::TaskContext;
use datafusion::execution::config::SessionConfig;
use datafusion::physical_expr::{Distribution, EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{
    ChildrenPropertiesMode, EvaluationType, InvariantLevel, ReplaceChildrenOptions, SchedulingType,
    check_default_invariants,
};
use datafusion::physical_plan::metrics::MetricsSet;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, InputDistributionRequirements, Partitioning,
    PlanProperties, SendableRecordBatchStream,
};

use super::DorisSink;
use crate::changelog::check_change_order;
use crate::checkpoint::fingerprint::{default_job_name, plan_text};
use crate::checkpoint::{
    Checkpoints, EpochSink, EpochSource, RunControl, RunOptions, RunSetup, SourceFinder, check_stateless, coordinator,
    merge_partitions, store,
};
use crate::count::{count_schema, counted};
use crate::options::{JobOptions, WriteMode};
use crate::scan::scan_text;

/// Writes every partition of its input to a [`DorisSink`] and gives one row, `count: UInt64`, not null.
///
/// It runs all input partitions itself instead of asking the planner for a single one, so that no partition is lost
/// where that request does not travel (plans that cross an FFI or a network boundary), and merges them. The sink then
/// shares the rows out to its loads, those of one key to the same load.
///
/// A bounded input is one statement. An unbounded one runs as a sequence of epochs ([`coordinator::run`]), each
/// committed by itself; the row appears when all sources are finished or stopped. Its settings are those of the session
/// that executes it ([`JobOptions`]).
///
/// # Cancellation
/// Dropping the stream drops the statement, see [`DorisSink`].
#[derive(Debug)]
pub struct DorisSinkExec {
    input: Arc<dyn ExecutionPlan>,
    sink: Arc<DorisSink>,
    sources: SourceFinder,
    /// The session that planned it keeps checkpoints.
    checkpoints: bool,
    control: Arc<RunControl>,
    properties: Arc<PlanProperties>,
}

impl DorisSinkExec {
    /// Writes `input` to `sink`; `sources` finds the changelogs in an unbounded input.
    pub fn new(input: Arc<dyn ExecutionPlan>, sink: Arc<DorisSink>, sources: SourceFinder) -> Self {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(count_schema()),
            Partitioning::UnknownPartitioning(1),
            input.pipeline_behavior(),
            input.boundedness(),
        )
        .with_scheduling_type(SchedulingType::Cooperative)
        .with_evaluation_type(EvaluationType::Eager);
        let control = Arc::default();
        Self { input, sink, sources, checkpoints: false, control, properties: Arc::new(properties) }
    }

    /// Notes for EXPLAIN whether the session that plans the statement keeps checkpoints.
    pub fn planned_in(self, config: &SessionConfig) -> Self {
        Self { checkpoints: keeps_checkpoints(config), ..self }
    }

    /// Watches the epochs of an unbounded input; shared by all copies of the node.
    pub fn control(&self) -> &Arc<RunControl> {
        &self.control
    }

    /// The rows to write.
    pub fn input(&self) -> &Arc<dyn ExecutionPlan> {
        &self.input
    }

    /// Where they go.
    pub fn sink(&self) -> &Arc<DorisSink> {
        &self.sink
    }

    /// What a reader of the plan may rely on.
    fn guarantee(&self) -> &'static str {
        let unbounded = self.input.boundedness().is_unbounded();
        let options = &self.sink.target.options;
        if options.group_commit().is_on() {
            return "at-least-once (group commit: a lost answer cannot be resolved)";
        }
        let batches = options.write_mode == WriteMode::StreamLoadBatch;
        match (unbounded, options.two_phase(unbounded && self.checkpoints)) {
            (false, _) if self.sink.loads() == 1 && !batches => "all-or-nothing",
            (_, false) if batches => "at-least-once (each batch is visible as it lands)",
            (false, true) => "all-or-nothing (several commits, one after the other)",
            (false, false) => "all-or-nothing per load (no two-phase commit)",
            (true, true) if self.checkpoints => "exactly-once",
            (true, true) => "at-least-once after a restart (all-or-nothing per epoch; set doris.checkpoint.dir)",
            (true, false) => "at-least-once (no two-phase commit)",
        }
    }

    /// How an unbounded input is run in a session.
    fn run_options(
        &self,
        config: &SessionConfig,
        sources: &[Arc<dyn EpochSource>],
    ) -> crate::error::Result<RunOptions> {
        let options = JobOptions::of(config.options());
        let setup = config.get_extension::<RunSetup>().unwrap_or_default();
        let query = plan_text(&self.input, scan_text);
        let unnamed = options.job_name.is_none();
        let job = options.job_name.clone().unwrap_or_else(|| {
            let target = self.sink.table().to_string();
            default_job_name(&target, &format!("{} {query}", source_text(sources)))
        });
        let store = match (&setup.store, &options.checkpoint_dir) {
            (Some(store), _) => Some(Arc::clone(store)),
            (None, Some(dir)) => Some(store::open(dir, &job)?),
            (None, None) => None,
        };
        let keeps = store.is_some();
        match &store {
            Some(store) => tracing::info!(job, checkpoints = store.location(), "continuous insert with checkpoints"),
            None => tracing::warn!(
                table = %self.sink.table(),
                "continuous insert without checkpoints: a restart begins again, at-least-once (set doris.checkpoint.dir)"
            ),
        }
        let savepoint = setup.savepoint.clone();
        let retain = options.retain;
        Ok(RunOptions {
            checkpoints: store.map(|store| Checkpoints { store, job, unnamed, retain, savepoint }),
            interval: options.interval(keeps),
            restart_attempts: options.attempts(keeps),
            query,
            control: Arc::clone(&self.control),
        })
    }
}

fn keeps_checkpoints(config: &SessionConfig) -> bool {
    JobOptions::of(config.options()).checkpoint_dir.is_some()
        || config.get_extension::<RunSetup>().is_some_and(|setup| setup.store.is_some())
}

/// What tells the sources of one job from those of another. Not their columns: when these change, the job is the same,
/// and is told so.
fn source_text(sources: &[Arc<dyn EpochSource>]) -> String {
    let facts = sources.iter().flat_map(|source| source.facts()).filter(|(fact, _)| fact != "columns");
    facts.map(|(fact, value)| format!("{fact}={value}")).collect::<Vec<_>>().join(", ")
}

impl DisplayAs for DorisSinkExec {
    fn fmt_as(&self, display: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if display != DisplayFormatType::TreeRender {
            write!(f, "DorisSinkExec: ")?;
        }
        self.sink.fmt_as(display, f)?;
        match display {
            DisplayFormatType::TreeRender => writeln!(f, "guarantee={}", self.guarantee()),
            _ => write!(f, ", guarantee={}", self.guarantee()),
        }
    }
}

impl ExecutionPlan for DorisSinkExec {
    fn name(&self) -> &str {
        "DorisSinkExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn input_distribution_requirements(&self) -> InputDistributionRequirements {
        InputDistributionRequirements::new(vec![Distribution::UnspecifiedDistribution])
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        // Rows are merged and then split by key: round robin before that would let changes of a key overtake another.
        vec![false]
    }

    fn check_invariants(&self, check: InvariantLevel) -> Result<()> {
        check_default_invariants(self, check)?;
        if matches!(check, InvariantLevel::Executable) {
            check_change_order(&self.input)?;
            if self.input.boundedness().is_unbounded() {
                check_stateless(&self.input)?;
            }
        }
        Ok(())
    }

    fn replace_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        match (children.pop(), children.is_empty()) {
            (Some(input), true) => {
                let copy = Self::new(input, Arc::clone(&self.sink), self.sources);
                Ok(Arc::new(Self { checkpoints: self.checkpoints, control: Arc::clone(&self.control), ..copy }))
            }
            _ => Err(DataFusionError::Internal("DorisSinkExec has exactly one child".into())),
        }
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        self.replace_children(children, ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute))
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        if partition != 0 {
            return Err(DataFusionError::Internal(format!("DorisSinkExec has one partition, not {partition}")));
        }
        let (input, sink) = (Arc::clone(&self.input), Arc::clone(&self.sink));
        let run = match input.boundedness().is_unbounded() {
            true => {
                // The plan may have been built or changed after it was planned.
                check_change_order(&input)?;
                check_stateless(&input)?;
                let sources = (self.sources)(&input);
                let options = self.run_options(context.session_config(), &sources)?;
                Some((sources, options))
            }
            false => None,
        };
        Ok(counted(async move {
            if let Some((sources, options)) = run {
                Ok(coordinator::run(input, sources, sink as Arc<dyn EpochSink>, context, options).await?)
            } else {
                let data = merge_partitions(&input, &context)?;
                sink.write_all(data, &context).await
            }
        }))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        self.sink.metrics()
    }
}
