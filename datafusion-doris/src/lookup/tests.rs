use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{Array, ArrayRef, AsArray, Int32Array, Int64Array, StringArray, UInt64Array};
use arrow::compute::take_record_batch;
use arrow::datatypes::{DataType, Field, Int32Type, Schema, TimeUnit};
use arrow::util::pretty::pretty_format_batches;
use datafusion::common::{JoinSide, JoinType, NullEquality};
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::execution::TaskContext;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{BinaryExpr, CastExpr, Column, Literal};
use datafusion::physical_plan::execution_plan::{ChildrenPropertiesMode, ReplaceChildrenOptions};
use datafusion::physical_plan::joins::utils::{ColumnIndex, JoinFilter};
use datafusion::physical_plan::joins::{HashJoinExec, PartitionMode};
use datafusion::physical_plan::{ExecutionPlan, PhysicalExpr, collect};
use datafusion::prelude::SessionContext;
use futures::{StreamExt, TryStreamExt};
use parking_lot::Mutex;

use super::keys::KeyCoder;
use super::*;
use crate::error::{Error, Retry};
use crate::options::{LookupCache, LookupOptions};

/// A table in memory, which remembers the keys it was asked for.
#[derive(Debug)]
struct Table {
    rows: RecordBatch,
    asked: Mutex<Vec<Vec<i32>>>,
    failures: Mutex<usize>,
}

#[async_trait]
impl RowSource for Table {
    fn schema(&self) -> SchemaRef {
        self.rows.schema()
    }

    async fn rows(
        &self,
        keys: &RecordBatch,
        _memory: &MemoryReservation,
    ) -> Result<BoxStream<'static, Result<RecordBatch>>> {
        let keys: Vec<i32> = keys.column(0).as_primitive::<Int32Type>().values().to_vec();
        self.asked.lock().push(keys.clone());
        let mut failures = self.failures.lock();
        if *failures > 0 {
            *failures -= 1;
            let source = "gone".into();
            return Err(Error::Transport { host: "be".into(), operation: "x".into(), retry: Retry::SameLabel, source });
        }
        let stored = self.rows.column(0).as_primitive::<Int32Type>();
        let found = (0..stored.len()).filter(|row| stored.is_valid(*row) && keys.contains(&stored.value(*row)));
        let found = UInt64Array::from_iter_values(found.map(|row| row as u64));
        let rows = take_record_batch(&self.rows, &found).unwrap();
        Ok(futures::stream::iter([Ok(rows)]).boxed())
    }

    fn text(&self) -> String {
        "table".into()
    }
}

fn table() -> Arc<Table> {
    let schema = Schema::new(vec![Field::new("k", DataType::Int32, true), Field::new("name", DataType::Utf8, true)]);
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int32Array::from(vec![Some(1), Some(2), Some(2), None, Some(4), Some(i32::MAX)])),
        Arc::new(StringArray::from(vec![Some("one"), Some("two"), Some("zwei"), Some("null"), None, Some("most")])),
    ];
    let rows = RecordBatch::try_new(Arc::new(schema), columns).unwrap();
    Arc::new(Table { rows, asked: Mutex::default(), failures: Mutex::default() })
}

fn batch(keys: Vec<Option<i64>>) -> RecordBatch {
    let schema = Schema::new(vec![Field::new("id", DataType::Int64, false), Field::new("k", DataType::Int64, true)]);
    let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(0..keys.len() as i64));
    RecordBatch::try_new(Arc::new(schema), vec![ids, Arc::new(Int64Array::from(keys))]).unwrap()
}

fn stream(batches: &[RecordBatch]) -> Arc<dyn ExecutionPlan> {
    MemorySourceConfig::try_new_exec(&[batches.to_vec()], batches[0].schema(), None).unwrap()
}

/// `CAST(table.k AS BIGINT) = stream.k`, over the rows of the table that are given.
fn join(
    rows: Vec<RecordBatch>,
    schema: SchemaRef,
    right: Arc<dyn ExecutionPlan>,
    join_type: JoinType,
    filter: Option<JoinFilter>,
) -> HashJoinExec {
    let left = MemorySourceConfig::try_new_exec(&[rows], schema, None).unwrap();
    let key: Arc<dyn PhysicalExpr> = Arc::new(CastExpr::new(Arc::new(Column::new("k", 0)), DataType::Int64, None));
    let on = vec![(key, Arc::new(Column::new("k", 1)) as _)];
    let mode = PartitionMode::CollectLeft;
    let nulls = NullEquality::NullEqualsNothing;
    HashJoinExec::try_new(left, right, on, filter, &join_type, None, mode, nulls, false).unwrap()
}

fn keys() -> Vec<KeyColumn> {
    vec![KeyColumn { index: 0, stored: DataType::Int32, compared: DataType::Int64 }]
}

fn lookup(
    table: &Arc<Table>,
    right: Arc<dyn ExecutionPlan>,
    join_type: JoinType,
    filter: Option<JoinFilter>,
    options: LookupOptions,
) -> Arc<dyn ExecutionPlan> {
    let join = join(vec![], table.schema(), right, join_type, filter);
    Arc::new(LookupJoinExec::try_new(&join, Arc::clone(table) as _, &keys(), options).unwrap())
}

async fn shown(plan: Arc<dyn ExecutionPlan>) -> String {
    let context = SessionContext::new();
    let batches = collect(plan, context.task_ctx()).await.unwrap();
    let text = pretty_format_batches(&batches).unwrap().to_string();
    let mut lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('+')).collect();
    lines.sort_unstable();
    lines.join("\n")
}

/// Rows of the stream with `id` above 0.
fn later_rows() -> JoinFilter {
    let schema = Arc::new(Schema::new(vec![Field::new("id", DataType::Int64, false)]));
    let zero = Arc::new(Literal::new(datafusion::common::ScalarValue::Int64(Some(0))));
    let condition = Arc::new(BinaryExpr::new(Arc::new(Column::new("id", 0)), Operator::Gt, zero));
    JoinFilter::new(condition, vec![ColumnIndex { index: 0, side: JoinSide::Right }], schema)
}

const CACHE: LookupCache = LookupCache { max_rows: 100, ttl: Duration::from_secs(3600) };

#[tokio::test]
async fn lookups_give_what_the_join_of_the_whole_table_gives() {
    let batches = [
        batch(vec![Some(1), Some(2), None, Some(5), Some(2), Some(1)]),
        batch(vec![None, None]),
        batch(vec![Some(2), Some(4), Some(i64::MAX), Some(i64::from(i32::MAX)), Some(-7)]),
    ];
    let options = [
        LookupOptions::default(),
        LookupOptions { cache: Some(CACHE), ..LookupOptions::default() },
        LookupOptions { cache: Some(LookupCache { max_rows: 2, ..CACHE }), ..LookupOptions::default() },
        LookupOptions { batch_keys: 1, statements_at_once: 3, ..LookupOptions::default() },
    ];
    for join_type in [JoinType::Inner, JoinType::Right, JoinType::RightSemi, JoinType::RightAnti, JoinType::RightMark] {
        for filter in [None, Some(later_rows())] {
            let whole = table();
            let rows = vec![whole.rows.clone()];
            let expected = join(rows, whole.schema(), stream(&batches), join_type, filter.clone());
            let expected = shown(Arc::new(expected)).await;
            for options in &options {
                let table = table();
                let joined = lookup(&table, stream(&batches), join_type, filter.clone(), options.clone());
                assert_eq!(shown(joined).await, expected, "{join_type} {options:?}");
            }
        }
    }
}

#[tokio::test]
async fn each_key_is_asked_for_once_and_those_that_the_table_cannot_hold_never() {
    let table = table();
    let batches =
        [batch(vec![Some(1), Some(1), None, Some(i64::MAX), Some(9)]), batch(vec![Some(9), Some(1), Some(4)])];
    let cached = LookupOptions { cache: Some(CACHE), ..LookupOptions::default() };
    let joined = lookup(&table, stream(&batches), JoinType::Inner, None, cached);
    shown(Arc::clone(&joined)).await;
    let asked: Vec<HashSet<i32>> = table.asked.lock().iter().map(|keys| keys.iter().copied().collect()).collect();
    assert_eq!(asked, [HashSet::from([1, 9]), HashSet::from([4])], "misses are kept too");
    // A fresh copy, as the next epoch of a job takes it, has what was kept.
    let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
    let again = Arc::clone(&joined).replace_children(vec![stream(&batches)], options).unwrap();
    shown(again).await;
    assert_eq!(table.asked.lock().len(), 2);
    let metrics = joined.metrics().unwrap();
    assert_eq!(metrics.sum_by_name("lookup_statements").unwrap().as_usize(), 2);
}

#[tokio::test]
async fn statements_hold_as_many_keys_as_asked_for() {
    let table = table();
    let options = LookupOptions { batch_keys: 2, ..LookupOptions::default() };
    shown(lookup(&table, stream(&[batch((0..5).map(Some).collect())]), JoinType::Right, None, options)).await;
    let mut sizes: Vec<usize> = table.asked.lock().iter().map(Vec::len).collect();
    sizes.sort_unstable();
    assert_eq!(sizes, [1, 2, 2]);
}

#[tokio::test(start_paused = true)]
async fn failed_lookups_are_tried_again_as_often_as_allowed() {
    for (failures, succeeds) in [(2, true), (3, false)] {
        let table = table();
        *table.failures.lock() = failures;
        let options = LookupOptions { max_retries: 2, ..LookupOptions::default() };
        let joined = lookup(&table, stream(&[batch(vec![Some(1)])]), JoinType::Inner, None, options);
        let result = collect(joined, SessionContext::new().task_ctx()).await;
        assert_eq!(result.is_ok(), succeeds, "{result:?}");
        assert_eq!(table.asked.lock().len(), 3);
    }
}

#[test]
fn only_casts_that_keep_values_apart_can_be_undone() {
    let micros = DataType::Timestamp(TimeUnit::Microsecond, None);
    for (from, to, expected) in [
        (DataType::Int32, DataType::Int64, true),
        (DataType::Int64, DataType::Int32, false),
        (DataType::Int32, DataType::Decimal128(10, 0), true),
        (DataType::Int32, DataType::Decimal128(10, 1), false),
        (DataType::Decimal128(10, 2), DataType::Decimal128(12, 3), true),
        (DataType::Decimal128(10, 2), DataType::Decimal128(12, 1), false),
        (DataType::Utf8, DataType::Utf8View, true),
        (DataType::Int64, DataType::Float64, false),
        (DataType::Int64, DataType::Utf8, false),
        (DataType::Date32, micros.clone(), true),
        (micros, DataType::Date32, false),
    ] {
        assert_eq!(casts_one_to_one(&from, &to), expected, "{from} to {to}");
    }
}

#[test]
fn keys_are_told_as_the_table_has_them() {
    let column = |stored, compared| KeyColumn { index: 0, stored, compared };
    let coder = KeyCoder::try_new(&[column(DataType::Int32, DataType::Int64)]).unwrap();
    let values: ArrayRef = Arc::new(Int64Array::from(vec![Some(3), None, Some(1 << 40), Some(3), Some(-1)]));
    let distinct = coder.distinct(&[Arc::clone(&values)]).unwrap();
    let mut places: Vec<u64> = distinct.values().copied().collect();
    places.sort_unstable();
    assert_eq!(places, [0, 2, 4]);
    let stored = coder.stored(&[values], &places).unwrap();
    assert_eq!(stored.column(0).as_primitive::<Int32Type>().values(), &[3, -1]);
}

#[tokio::test]
async fn looked_up_rows_are_counted_until_their_batch_is_joined() {
    let table = table();
    let context = |bytes: usize| {
        let runtime = RuntimeEnvBuilder::new().with_memory_limit(bytes, 1.0).build_arc().unwrap();
        Arc::new(TaskContext::default().with_runtime(runtime))
    };
    let keys = batch(vec![Some(1), Some(2)]);
    let plan = || lookup(&table, stream(std::slice::from_ref(&keys)), JoinType::Inner, None, LookupOptions::default());
    let tight = context(8);
    let refused = plan().execute(0, Arc::clone(&tight)).unwrap().try_collect::<Vec<_>>().await.unwrap_err();
    assert!(refused.to_string().contains("LookupJoinExec[0]"), "{refused}");
    assert_eq!(tight.memory_pool().reserved(), 0);
    let wide = context(100 << 20);
    let mut joined = plan().execute(0, Arc::clone(&wide)).unwrap();
    joined.next().await.unwrap().unwrap();
    let held = wide.memory_pool().reserved();
    assert!(held > 0, "rows of the batch are counted");
    assert!(joined.next().await.is_none());
    drop(joined);
    assert_eq!(wide.memory_pool().reserved(), 0);
}
