//! Plans over an unbounded table, in a session with four target partitions.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::streaming::StreamingTable;
use datafusion::catalog::{MemTable, Session, TableProvider};
use datafusion::datasource::TableType;
use datafusion::error::Result as DfResult;
use datafusion::execution::TaskContext;
use datafusion::logical_expr::Expr;
use datafusion::logical_expr::dml::InsertOp;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::PartitionStream;
use datafusion::physical_plan::{ExecutionPlan, SendableRecordBatchStream, displayable};
use datafusion::prelude::SessionContext;
use futures::StreamExt;

use super::*;
use crate::changelog::epoch_sources;
use crate::client::DorisClient;
use crate::options::{ConnectionOptions, Secret, SinkOptions};
use crate::sink::DorisSink;
use crate::types::{ColumnSchema, DorisType, TableIdent, TableSchema};

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("id", DataType::Int64, true), Field::new("name", DataType::Utf8, true)]))
}

fn rows(ids: std::ops::Range<i64>) -> RecordBatch {
    let names = ids.clone().map(|id| format!("n{id}"));
    let columns: [Arc<dyn arrow::array::Array>; 2] =
        [Arc::new(Int64Array::from_iter_values(ids)), Arc::new(StringArray::from_iter_values(names))];
    RecordBatch::try_new(schema(), columns.to_vec()).unwrap()
}

/// Gives four rows and then nothing, without an end.
#[derive(Debug)]
struct Quiet(SchemaRef);

impl PartitionStream for Quiet {
    fn schema(&self) -> &SchemaRef {
        &self.0
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        let stream = futures::stream::iter([Ok(rows(0..4))]).chain(futures::stream::pending());
        Box::pin(RecordBatchStreamAdapter::new(schema(), stream))
    }
}

/// A target in Doris that nothing is ever sent to.
#[derive(Debug)]
struct Target(Arc<DorisSink>);

#[async_trait]
impl TableProvider for Target {
    fn schema(&self) -> SchemaRef {
        schema()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        _: &dyn Session,
        _: Option<&Vec<usize>>,
        _: &[Expr],
        _: Option<usize>,
    ) -> DfResult<Arc<dyn ExecutionPlan>> {
        datafusion::common::not_impl_err!("only a target")
    }

    async fn insert_into(
        &self,
        _: &dyn Session,
        input: Arc<dyn ExecutionPlan>,
        _: InsertOp,
    ) -> DfResult<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(DorisSinkExec::new(input, Arc::clone(&self.0), epoch_sources)))
    }
}

fn context() -> SessionContext {
    let context = crate::session_context();
    context.state_ref().write().config_mut().options_mut().execution.target_partitions = 4;
    let stream = StreamingTable::try_new(schema(), vec![Arc::new(Quiet(schema()))]).unwrap().with_infinite_table(true);
    context.register_table("changes", Arc::new(stream)).unwrap();
    let fixed = MemTable::try_new(schema(), vec![vec![rows(0..100_000)]]).unwrap();
    context.register_table("fixed", Arc::new(fixed)).unwrap();
    let options = ConnectionOptions::new("127.0.0.1:8030", "root", Secret::default());
    let client = DorisClient::try_new(Arc::new(options)).unwrap();
    let doris = TableSchema {
        table: TableIdent::new("db", "target"),
        model: None,
        columns: vec![ColumnSchema::new("id", DorisType::BigInt), ColumnSchema::new("name", DorisType::String)],
        properties: BTreeMap::new(),
    };
    let sink = DorisSink::try_new(client, &doris, schema(), SinkOptions::default()).unwrap();
    context.register_table("target", Arc::new(Target(Arc::new(sink)))).unwrap();
    context
}

async fn plan(sql: &str) -> DfResult<(SessionContext, Arc<dyn ExecutionPlan>)> {
    let context = context();
    let plan = context.sql(sql).await?.create_physical_plan().await?;
    Ok((context, plan))
}

async fn text(sql: &str) -> String {
    let (_, plan) = plan(sql).await.unwrap();
    displayable(plan.as_ref()).indent(false).to_string()
}

/// Rows that are there while the stream is quiet.
async fn first_rows(sql: &str) -> usize {
    let (context, plan) = plan(sql).await.unwrap();
    let mut stream = datafusion::physical_plan::execute_stream(plan, context.task_ctx()).unwrap();
    let mut found = 0;
    // With paused time the clock moves on only when nobody has anything to do.
    while let Ok(Some(batch)) = tokio::time::timeout(Duration::from_secs(3600), stream.next()).await {
        found += batch.unwrap().num_rows();
    }
    found
}

#[tokio::test]
async fn no_round_robin_stands_between_changes_and_sink() {
    let insert = text("INSERT INTO target SELECT id, upper(name) FROM changes").await;
    assert!(insert.contains("DorisSinkExec") && !insert.contains("RepartitionExec"), "{insert}");
    let select = text("SELECT upper(name) FROM changes WHERE name LIKE '%1%'").await;
    assert!(!select.contains("RepartitionExec"), "{select}");
    // Where no changes flow, work is still spread.
    let fixed = text("SELECT upper(name) FROM fixed WHERE name LIKE '%1%'").await;
    assert!(fixed.contains("RoundRobinBatch(4)"), "{fixed}");
}

#[tokio::test]
async fn join_with_a_static_table_collects_the_static_side() {
    for sql in [
        "INSERT INTO target SELECT c.id, f.name FROM changes c JOIN fixed f ON c.id = f.id",
        "INSERT INTO target SELECT c.id, f.name FROM changes c LEFT JOIN fixed f ON c.id = f.id",
        "INSERT INTO target SELECT * FROM changes WHERE id IN (SELECT id FROM fixed)",
    ] {
        let plan = text(sql).await;
        assert!(plan.contains("HashJoinExec: mode=CollectLeft"), "{plan}");
        assert!(!plan.contains("Hash("), "{plan}");
    }
}

#[tokio::test]
async fn operators_that_cannot_run_in_epochs_are_refused_by_name() {
    for (sql, name) in [
        ("INSERT INTO target SELECT * FROM changes LIMIT 3", "StreamingTableExec"),
        ("INSERT INTO target SELECT * FROM changes UNION ALL SELECT * FROM fixed", "UnionExec"),
        ("INSERT INTO target SELECT f.id, c.name FROM fixed f LEFT JOIN changes c ON c.id = f.id", "HashJoinExec"),
        ("INSERT INTO target SELECT id, CAST(count(*) AS VARCHAR) FROM changes GROUP BY id", "AggregateExec"),
        ("INSERT INTO target SELECT * FROM changes ORDER BY id LIMIT 3", "SortExec"),
    ] {
        match plan(sql).await {
            Ok((_, plan)) => panic!("{sql}: planned as {}", displayable(plan.as_ref()).indent(true)),
            Err(error) => {
                let error = error.to_string();
                let own = " over a changelog in a continuous insert: it ";
                assert!(
                    error.contains(name) && error.contains(own) && error.contains("use filters, projections"),
                    "{sql}: {error}"
                );
            }
        }
    }
}

#[tokio::test]
async fn unions_and_filters_of_changes_run_in_epochs() {
    let insert = text("INSERT INTO target SELECT * FROM changes WHERE id > 1 UNION ALL SELECT * FROM changes").await;
    assert!(insert.contains("UnionExec"), "{insert}");
}

#[tokio::test(start_paused = true)]
async fn filter_and_join_show_rows_of_a_quiet_stream_at_once() {
    assert_eq!(first_rows("SELECT * FROM changes WHERE length(name) = 2").await, 4);
    assert_eq!(first_rows("SELECT c.id, f.name FROM changes c JOIN fixed f ON c.id = f.id").await, 4);
    assert_eq!(first_rows("SELECT c.id FROM fixed f JOIN changes c ON f.id < c.id WHERE f.id < 2").await, 5);
}

#[tokio::test]
async fn join_alone_has_the_small_batch_size() {
    let plan = text("SELECT c.id, f.name FROM changes c JOIN fixed f ON c.id = f.id").await;
    let sizes: Vec<&str> = plan.lines().map(str::trim).filter(|line| line.starts_with("BatchSizeExec")).collect();
    assert_eq!(
        sizes,
        ["BatchSizeExec: batch_size=1", "BatchSizeExec: batch_size=session", "BatchSizeExec: batch_size=session"]
    );
    let insert = text("INSERT INTO target SELECT c.id, f.name FROM changes c JOIN fixed f ON c.id = f.id").await;
    assert!(!insert.contains("BatchSizeExec"), "{insert}");
}

#[test]
fn batch_size_is_restored_below_nested_changes() {
    let leaf: Arc<dyn ExecutionPlan> = Arc::new(datafusion::physical_plan::empty::EmptyExec::new(schema()));
    let context = Arc::new(TaskContext::default());
    let session = context.session_config().batch_size();
    let one = BatchSizeExec::rows(Arc::clone(&leaf), 1);
    let below = one.context(&context);
    assert_eq!(below.session_config().batch_size(), 1);
    let again = one.context(&below);
    let restored = BatchSizeExec::session(leaf).context(&again);
    assert_eq!(restored.session_config().batch_size(), session);
}

#[test]
fn rules_are_placed_once_and_before_the_sanity_check() {
    let rules = datafusion::physical_optimizer::optimizer::PhysicalOptimizer::new().rules;
    let extended = with_stream_rules(&rules);
    let place = |name: &str| extended.iter().position(|rule| rule.name() == name).unwrap();
    assert!(place("doris_keep_change_order") < place("doris_stream_latency"));
    assert!(place("doris_stream_latency") < place("FilterPushdown(Post)"));
    assert!(place("doris_keep_change_order") < place("doris_static_sides"));
    assert_eq!(place("doris_refuse_endless") + 1, place("doris_publish_positions"));
    assert_eq!(place("doris_publish_positions") + 1, place("SanityCheckPlan"));
    assert_eq!(with_stream_rules(&extended).len(), extended.len());
}

#[tokio::test]
async fn static_sides_of_continuous_inserts_are_kept_when_asked_for() {
    let insert = "INSERT INTO target SELECT c.id, f.name FROM changes c JOIN fixed f ON c.id = f.id";
    assert!(!text(insert).await.contains("StaticSideExec"), "not by default");
    let context = context();
    context.sql("SET doris.job.static_ttl = '10m'").await.unwrap();
    let plan = |sql: &'static str| {
        let context = context.clone();
        async move { context.sql(sql).await.unwrap().create_physical_plan().await.unwrap() }
    };
    let shown = displayable(plan(insert).await.as_ref()).indent(false).to_string();
    let sides = shown.lines().filter(|line| line.contains("StaticSideExec: kept across epochs, ttl=600s")).count();
    assert_eq!(sides, 1, "{shown}");
    let below = shown.lines().position(|line| line.contains("StaticSideExec")).unwrap();
    assert!(shown.lines().nth(below + 1).unwrap().contains("DataSourceExec"), "{shown}");
    for other in ["INSERT INTO target SELECT * FROM fixed", "SELECT c.id FROM changes c JOIN fixed f ON c.id = f.id"] {
        let shown = displayable(plan(other).await.as_ref()).indent(false).to_string();
        assert!(!shown.contains("StaticSideExec"), "{shown}");
    }
    // The same job, whatever is kept.
    let kept = crate::checkpoint::fingerprint::plan_text(&plan(insert).await, |_| None);
    context.sql("SET doris.job.static_ttl = ''").await.unwrap();
    assert_eq!(crate::checkpoint::fingerprint::plan_text(&plan(insert).await, |_| None), kept);
}

/// Notes whether dynamic filters may be pushed down.
#[derive(Debug, Default)]
struct Probe(parking_lot::Mutex<Vec<bool>>);

impl PhysicalOptimizerRule for Probe {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, config: &ConfigOptions) -> DfResult<Arc<dyn ExecutionPlan>> {
        let optimizer = &config.optimizer;
        self.0.lock().extend([
            optimizer.enable_join_dynamic_filter_pushdown,
            optimizer.enable_topk_dynamic_filter_pushdown,
            optimizer.enable_aggregate_dynamic_filter_pushdown,
        ]);
        Ok(plan)
    }

    fn name(&self) -> &str {
        "FilterPushdown(Post)"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

#[tokio::test]
async fn no_dynamic_filter_outlives_an_epoch() {
    for (sql, allowed) in [
        ("INSERT INTO target SELECT * FROM changes", false),
        ("INSERT INTO target SELECT * FROM fixed", true),
        ("SELECT * FROM changes", true),
    ] {
        let probe = Arc::new(Probe::default());
        let rules = with_stream_rules(&[Arc::clone(&probe) as SharedRule]);
        let (_, plan) = plan(sql).await.unwrap();
        let rule = rules.iter().find(|rule| rule.name() == "FilterPushdown(Post)").unwrap();
        rule.optimize(plan, &ConfigOptions::new()).unwrap();
        assert_eq!(*probe.0.lock(), [allowed; 3], "{sql}");
    }
}
