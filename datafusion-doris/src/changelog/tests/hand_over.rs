//! Positions of free-running reads: never ahead of what was taken, whatever stands above the read.

use datafusion::catalog::{MemTable, Session, TableProvider};
use datafusion::datasource::TableType;
use datafusion::datasource::sink::{DataSink, DataSinkExec};
use datafusion::error::Result as DfResult;
use datafusion::logical_expr::Expr;
use datafusion::logical_expr::dml::InsertOp;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, displayable, execute_stream};
use datafusion::prelude::SessionContext;

use super::starts::{Kept, local, with_offsets};
use super::*;

/// A changelog whose position is kept.
#[derive(Debug)]
struct Positioned {
    server: Arc<FakeServer>,
    kept: Arc<Kept>,
    spec: ChangelogSpec,
}

#[async_trait]
impl TableProvider for Positioned {
    fn schema(&self) -> arrow::datatypes::SchemaRef {
        Arc::clone(&self.spec.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        _: &dyn Session,
        projection: Option<&Vec<usize>>,
        _: &[Expr],
        _: Option<usize>,
    ) -> DfResult<Arc<dyn ExecutionPlan>> {
        let all = (0..self.spec.schema.fields().len()).collect();
        let request = ChangelogRequest {
            spec: self.spec.clone(),
            filters: vec![],
            projection: projection.cloned().unwrap_or(all),
            append_only: false,
            old_values: true,
            tablets_per_split: 1,
            offsets: None,
        };
        let node = DorisChangelogExec::with_server(Arc::clone(&self.server) as Arc<dyn ChangelogServer>, request)?;
        Ok(Arc::new(with_offsets(node, &self.kept)))
    }
}

/// A target that notes what it has taken, and fails at its end if told so.
#[derive(Debug, Default)]
struct Target {
    ids: Mutex<Vec<i64>>,
    fails: bool,
}

impl DisplayAs for Target {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Target")
    }
}

#[async_trait]
impl DataSink for Target {
    fn schema(&self) -> &arrow::datatypes::SchemaRef {
        static SCHEMA: std::sync::OnceLock<arrow::datatypes::SchemaRef> = std::sync::OnceLock::new();
        SCHEMA.get_or_init(|| spec(false, false).schema)
    }

    async fn write_all(&self, mut data: SendableRecordBatchStream, _: &Arc<TaskContext>) -> DfResult<u64> {
        while let Some(batch) = data.next().await {
            self.ids.lock().extend(ids_of(&batch?));
        }
        if self.fails { datafusion::common::exec_err!("the disk is full") } else { Ok(self.ids.lock().len() as u64) }
    }
}

#[derive(Debug)]
struct TargetTable(Arc<Target>);

#[async_trait]
impl TableProvider for TargetTable {
    fn schema(&self) -> arrow::datatypes::SchemaRef {
        spec(false, false).schema
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
        Ok(Arc::new(DataSinkExec::new(input, Arc::clone(&self.0) as Arc<dyn DataSink>, None)))
    }
}

/// The start of the backlog, and its changes: one each five seconds, number 0 to 11.
const BACKLOG: i64 = START - 500 - 70_000;
const CHANGES: i64 = 12;

fn at_ms(id: i64) -> i64 {
    BACKLOG + 2_000 + id * 5_000
}

struct World {
    context: SessionContext,
    kept: Arc<Kept>,
    target: Arc<Target>,
}

fn world(kept: &Arc<Kept>, fails: bool) -> World {
    let context = crate::session_context();
    let changes: Vec<Change> = (0..CHANGES).map(|id| insert(at_ms(id), id, "x")).collect();
    for (name, bounded) in [("changes", false), ("others", false), ("bounded", true)] {
        let spec = ChangelogSpec {
            start: Some(local("2025-12-31 23:59:00")),
            max_window: Duration::from_secs(10),
            ..spec(false, bounded)
        };
        let server = FakeServer::new(changes.clone(), vec![], Manners::default());
        context.register_table(name, Arc::new(Positioned { server, kept: Arc::clone(kept), spec })).unwrap();
    }
    let fixed = RecordBatch::try_from_iter([
        ("id", Arc::new(Int64Array::from_iter_values(0..CHANGES)) as ArrayRef),
        ("label", Arc::new(StringArray::from_iter_values((0..CHANGES).map(|id| format!("l{id}")))) as ArrayRef),
    ]);
    let fixed = fixed.unwrap();
    context.register_table("fixed", Arc::new(MemTable::try_new(fixed.schema(), vec![vec![fixed]]).unwrap())).unwrap();
    let target = Arc::new(Target { fails, ..Target::default() });
    context.register_table("target", Arc::new(TargetTable(Arc::clone(&target)))).unwrap();
    World { context, kept: Arc::clone(kept), target }
}

impl World {
    async fn plan(&self, sql: &str) -> DfResult<Arc<dyn ExecutionPlan>> {
        self.context.sql(sql).await?.create_physical_plan().await
    }

    async fn shown(&self, sql: &str) -> String {
        displayable(self.plan(sql).await.unwrap().as_ref()).indent(false).to_string()
    }

    async fn run(&self, sql: &str) -> SendableRecordBatchStream {
        execute_stream(self.plan(sql).await.unwrap(), self.context.task_ctx()).unwrap()
    }

    /// The published position, in epoch milliseconds.
    fn published_ms(&self) -> Option<i64> {
        self.kept.0.lock().last().map(|time| time.to_epoch_ms(&ServerZone::UTC).unwrap())
    }

    /// Everything before the published position is among `ids`.
    fn assert_behind(&self, ids: &[i64], what: &str) {
        let Some(published_ms) = self.published_ms() else { return };
        let missing: Vec<i64> = (0..CHANGES).filter(|id| at_ms(*id) < published_ms && !ids.contains(id)).collect();
        assert!(missing.is_empty(), "{what}: {missing:?} were not taken, and {published_ms} is published");
    }
}

fn ids_of(batch: &RecordBatch) -> Vec<i64> {
    batch.column(0).as_primitive::<Int64Type>().values().to_vec()
}

/// Takes batches until there are `rows`, or nothing comes for some minutes.
async fn take(stream: &mut SendableRecordBatchStream, rows: usize) -> Vec<i64> {
    let mut ids = Vec::new();
    while ids.len() < rows {
        match tokio::time::timeout(Duration::from_secs(300), stream.next()).await {
            Ok(Some(batch)) => ids.extend(ids_of(&batch.unwrap())),
            Ok(None) | Err(_) => break,
        }
    }
    ids
}

#[tokio::test(start_paused = true)]
async fn consumer_that_stops_anywhere_finds_the_rest_at_its_position() {
    for sql in [
        "SELECT id, name, __change_kind FROM changes",
        "SELECT id, upper(name) FROM changes WHERE length(name) = 1",
        "SELECT c.id, f.label FROM changes c JOIN fixed f ON c.id = f.id",
        "SELECT c.id, upper(f.label) FROM changes c LEFT JOIN fixed f ON c.id = f.id WHERE length(c.name) < 3",
    ] {
        for rows in 0..=usize::try_from(CHANGES).unwrap() {
            let kept = Arc::new(Kept::default());
            let world = world(&kept, false);
            let what = format!("{sql} after {rows}");
            let mut stream = world.run(sql).await;
            let mut ids = take(&mut stream, rows).await;
            // What is prefetched meanwhile is not handed on.
            tokio::time::sleep(Duration::from_secs(5)).await;
            world.assert_behind(&ids, &what);
            drop(stream);
            tokio::time::sleep(Duration::from_secs(5)).await;
            world.assert_behind(&ids, &what);
            if rows > 4 {
                assert!(world.published_ms().is_some(), "{what}: two windows were taken");
            }
            let mut stream = world.run(sql).await;
            ids.extend(take(&mut stream, 100).await);
            ids.sort_unstable();
            ids.dedup();
            assert_eq!(ids, (0..CHANGES).collect::<Vec<_>>(), "{what}");
            world.assert_behind(&ids, &what);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn bounded_insert_publishes_behind_its_end_and_a_failed_one_nothing() {
    for fails in [true, false] {
        let kept = Arc::new(Kept::default());
        let world = world(&kept, fails);
        let shown = world.shown("INSERT INTO target SELECT * FROM bounded").await;
        assert!(shown.starts_with("PublishAtEndExec"), "{shown}");
        assert!(shown.contains("(position published at the end of the statement)"), "{shown}");
        let mut stream = world.run("INSERT INTO target SELECT * FROM bounded").await;
        assert_eq!(stream.next().await.unwrap().is_err(), fails);
        assert_eq!(world.target.ids.lock().len(), 12, "all rows were taken");
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(world.published_ms(), None, "the statement has not ended");
        assert!(stream.next().await.is_none());
        assert_eq!(world.published_ms(), (!fails).then_some(START + 500));
    }
}

#[tokio::test(start_paused = true)]
async fn operators_that_hold_rows_back_publish_at_the_end_of_the_plan() {
    for sql in ["SELECT id FROM bounded ORDER BY id DESC", "SELECT max(id) FROM bounded GROUP BY id % 2"] {
        let kept = Arc::new(Kept::default());
        let world = world(&kept, false);
        let mut stream = world.run(sql).await;
        stream.next().await.unwrap().unwrap();
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(world.published_ms(), None, "{sql}: the rows are not all given");
        drop(stream);
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(world.published_ms(), None, "{sql}: dropped before its end");
        let mut stream = world.run(sql).await;
        while let Some(batch) = stream.next().await {
            batch.unwrap();
        }
        assert!(world.published_ms() > Some(at_ms(11)), "{sql}");
    }
    let kept = Arc::new(Kept::default());
    let world = world(&kept, false);
    let limited = "SELECT id FROM bounded ORDER BY id LIMIT 2";
    assert!(world.shown(limited).await.contains("(no position is published under this LIMIT)"));
    assert_eq!(take(&mut world.run(limited).await, 100).await, [0, 1]);
    assert_eq!(world.published_ms(), None, "more rows may have been read than were asked for");
}

#[tokio::test(start_paused = true)]
async fn endless_plan_that_may_hold_rows_back_is_refused_with_a_position() {
    let world = world(&Arc::default(), false);
    for (sql, operator) in [
        ("SELECT id FROM changes UNION ALL SELECT id FROM others", "the merge of partitions"),
        ("SELECT c.id FROM fixed f JOIN changes c ON c.id <= f.id", "NestedLoopJoinExec"),
        // Whether it has stored what it took is known at its end.
        ("INSERT INTO target SELECT * FROM changes", "DataSinkExec"),
    ] {
        let message = world.plan(sql).await.unwrap_err().to_string();
        for part in [operator, "db.t", "'source.changelog.offset-table'", "leave the offset table out"] {
            assert!(message.contains(part), "{sql}: no {part} in {message}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn batches_without_rows_are_no_marks_of_positions() {
    // The second window's statement finds the changes of the second before it again, in parts, and leaves them out.
    let at = |ms| insert(BACKLOG + ms, ms, "x");
    let manners = Manners { parts: true, ..Manners::default() };
    let server = FakeServer::new(vec![at(9_200), at(9_600), at(25_000), at(26_000)], vec![], manners);
    let spec = ChangelogSpec {
        start: Some(local("2025-12-31 23:59:00")),
        max_window: Duration::from_secs(10),
        ..spec(false, false)
    };
    let kept = Arc::new(Kept::default());
    let mut stream = execute(&with_offsets(node_of(&server, spec), &kept));
    assert_eq!(rows_of(&stream.next().await.unwrap().unwrap()), ["+I9200x", "+I9600x"]);
    // The reader goes on as far as it may.
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(rows_of(&stream.next().await.unwrap().unwrap()), ["+I25000x", "+I26000x"]);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(kept.0.lock().last(), Some(&local("2025-12-31 23:59:20")), "the third window was not asked past");
}
