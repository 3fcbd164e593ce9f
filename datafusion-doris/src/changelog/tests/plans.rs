//! Plans that SQL makes of changelogs: what they hold back, and what they refuse.

use datafusion::catalog::{MemTable, Session, TableProvider};
use datafusion::datasource::TableType;
use datafusion::error::Result as DfResult;
use datafusion::logical_expr::Expr;
use datafusion::physical_plan::displayable;
use datafusion::prelude::SessionContext;

use super::*;

/// A changelog as a table that leaves every filter to DataFusion.
#[derive(Debug)]
struct Changes {
    server: Arc<FakeServer>,
    bounded: bool,
}

#[async_trait]
impl TableProvider for Changes {
    fn schema(&self) -> arrow::datatypes::SchemaRef {
        spec(false, false).schema
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
        let spec = spec(false, self.bounded);
        let all = (0..spec.schema.fields().len()).collect();
        let request = ChangelogRequest {
            spec,
            filters: vec![],
            projection: projection.cloned().unwrap_or(all),
            append_only: false,
            old_values: true,
            tablets_per_split: 1,
            offsets: None,
        };
        let server = Arc::clone(&self.server) as Arc<dyn ChangelogServer>;
        Ok(Arc::new(DorisChangelogExec::with_server(server, request)?))
    }
}

/// Two changelogs with one change each, in a window whose stream stays open, and a static table.
fn context() -> (SessionContext, [Arc<FakeServer>; 2]) {
    let context = crate::session_context();
    let servers = [1, 2].map(|id| {
        let manners = Manners { stall: true, ..Manners::default() };
        FakeServer::new(vec![insert(START, id, "x")], vec![], manners)
    });
    for (name, server) in ["changes", "others"].into_iter().zip(&servers) {
        let table = Changes { server: Arc::clone(server), bounded: false };
        context.register_table(name, Arc::new(table)).unwrap();
    }
    let bounded = Changes { server: Arc::clone(&servers[0]), bounded: true };
    context.register_table("bounded", Arc::new(bounded)).unwrap();
    let fixed = RecordBatch::try_from_iter([
        ("id", Arc::new(Int64Array::from(vec![1, 2])) as ArrayRef),
        ("label", Arc::new(StringArray::from(vec!["one", "two"])) as ArrayRef),
    ]);
    let fixed = fixed.unwrap();
    context.register_table("fixed", Arc::new(MemTable::try_new(fixed.schema(), vec![vec![fixed]]).unwrap())).unwrap();
    (context, servers)
}

#[tokio::test(start_paused = true)]
async fn no_operator_holds_a_small_batch_back() {
    for (sql, operators, wanted) in [
        (
            "SELECT id + 1, upper(name), __change_kind FROM changes WHERE name LIKE '%x'",
            vec!["FilterExec", "ProjectionExec"],
            1,
        ),
        ("SELECT id FROM changes UNION ALL SELECT id FROM others", vec!["UnionExec"], 2),
        (
            "SELECT c.id, f.label FROM changes c JOIN fixed f ON c.id = f.id WHERE upper(c.name) = 'X'",
            vec!["HashJoinExec", "FilterExec"],
            1,
        ),
        ("SELECT c.id, f.label FROM changes c LEFT JOIN fixed f ON c.id = f.id", vec!["HashJoinExec"], 1),
        ("SELECT c.id FROM fixed f JOIN changes c ON c.id <= f.id", vec!["NestedLoopJoinExec"], 2),
        (
            "SELECT c.id, upper(f.label) FROM (SELECT * FROM changes WHERE id > 0 UNION ALL SELECT * FROM others) c
             JOIN fixed f ON c.id = f.id WHERE length(c.name) < 3",
            vec!["UnionExec", "HashJoinExec", "FilterExec", "ProjectionExec"],
            2,
        ),
    ] {
        let (context, servers) = context();
        assert_eq!(context.copied_config().batch_size(), 8192, "the default");
        let plan = context.sql(sql).await.unwrap().create_physical_plan().await.unwrap();
        let text = displayable(plan.as_ref()).indent(false).to_string();
        for operator in operators {
            assert!(text.contains(operator), "{sql}: no {operator} in\n{text}");
        }
        let mut stream = datafusion::physical_plan::execute_stream(plan, context.task_ctx()).unwrap();
        let mut rows = 0;
        while rows < wanted {
            // With paused time the clock moves on only when nobody has anything to do.
            let batch = tokio::time::timeout(Duration::from_secs(60), stream.next()).await;
            rows += batch.unwrap_or_else(|_| panic!("{sql}: {rows} rows\n{text}")).unwrap().unwrap().num_rows();
        }
        let served = servers.iter().filter_map(|server| *server.served.lock()).max().unwrap();
        assert!(served.elapsed() < Duration::from_millis(50), "{sql}: {:?} after the batch", served.elapsed());
    }
}

#[tokio::test]
async fn operators_that_need_an_end_are_refused_with_advice() {
    let (context, _) = context();
    for (sql, operator, words) in [
        ("SELECT * FROM changes ORDER BY name", "SortExec", "ORDER BY"),
        ("SELECT * FROM changes ORDER BY name LIMIT 3", "SortExec", "ORDER BY"),
        ("SELECT count(*) FROM changes", "AggregateExec", "an aggregation"),
        ("SELECT name, max(id) FROM changes GROUP BY name", "AggregateExec", "an aggregation"),
        ("SELECT DISTINCT name FROM changes", "AggregateExec", "an aggregation"),
        ("SELECT id, rank() OVER (PARTITION BY name ORDER BY id) FROM changes", "SortExec", "a window function"),
        ("SELECT id, sum(id) OVER () FROM changes", "WindowAggExec", "a window function"),
        ("SELECT c.id FROM changes c CROSS JOIN fixed f", "CrossJoinExec", "a join that collects"),
        ("SELECT c.id FROM changes c FULL JOIN fixed f ON c.id < f.id", "NestedLoopJoinExec", "a join that collects"),
    ] {
        let planned = context.sql(sql).await.unwrap().create_physical_plan().await;
        let error = match planned {
            Ok(plan) => panic!("{sql}: planned as\n{}", displayable(plan.as_ref()).indent(true)),
            Err(error) => error.to_string(),
        };
        for part in [words, operator, "over the changelog of db.t", "'source.scan.bounded-mode' = 'latest'"] {
            assert!(error.contains(part), "{sql}: no '{part}' in: {error}");
        }
    }
}

#[tokio::test]
async fn inserts_that_need_an_end_are_refused_with_advice() {
    let (context, _) = context();
    for (sql, words) in [
        (
            "INSERT INTO fixed SELECT id, name FROM changes ORDER BY id",
            "ORDER BY (SortExec) over the changelog of db.t",
        ),
        ("INSERT INTO fixed SELECT max(id), name FROM changes GROUP BY name", "an aggregation (AggregateExec) over"),
    ] {
        let planned = context.sql(sql).await.unwrap().create_physical_plan().await;
        let error = planned.unwrap_err().to_string();
        assert!(error.contains(words) && error.contains("'source.scan.bounded-mode' = 'latest'"), "{sql}: {error}");
    }
}

#[tokio::test]
async fn the_same_operators_run_over_a_bounded_changelog_and_below_a_limit() {
    let (context, _) = context();
    for sql in [
        "SELECT name, max(id) FROM bounded GROUP BY name ORDER BY name",
        "SELECT id, rank() OVER (ORDER BY id) FROM bounded",
        "SELECT count(*) FROM fixed",
    ] {
        let planned = context.sql(sql).await.unwrap().create_physical_plan().await;
        assert!(planned.is_ok(), "{sql}: {}", planned.unwrap_err());
    }
}
