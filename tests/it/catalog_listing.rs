//! `information_schema` over a cluster with many tables, and pushdown through the names of a catalog.

use std::sync::Arc;

use datafusion::physical_plan::{ExecutionPlan, collect};
use datafusion::prelude::SessionContext;
use doris_sandbox::{Action, Fault, Site};

use crate::harness::{Cluster, lines, run};

/// A catalog `d` over the cluster.
async fn catalog(cluster: &Cluster, options: &[(&str, &str)]) -> SessionContext {
    let ctx = cluster.context();
    run(&ctx, &cluster.catalog_ddl("d", options)).await;
    ctx
}

async fn rows(cluster: &Cluster, ctx: &SessionContext, query: &str) -> Vec<String> {
    lines(&run(ctx, &query.replace("{db}", cluster.database())).await)
}

/// Tables `t0`, `t1`, … with the columns `id` and `c0`, `c1`, ….
async fn tables(cluster: &Cluster, tables: usize, columns: usize) {
    let columns: Vec<String> = (0..columns).map(|column| format!("c{column} INT")).collect();
    let ddl = |table: usize| {
        format!(
            "CREATE TABLE {{db}}.t{table} (id INT NOT NULL, {}) DUPLICATE KEY(id) DISTRIBUTED BY HASH(id) BUCKETS 1",
            columns.join(", ")
        )
    };
    let ddl: Vec<String> = (0..tables).map(ddl).collect();
    cluster.doris(&ddl.join(";")).await;
}

const COLUMNS: &str = "SELECT table_name, column_name, data_type, is_nullable FROM information_schema.columns WHERE \
                       table_schema = '{db}' ORDER BY table_name, ordinal_position";

#[tokio::test]
async fn columns_of_many_tables_take_few_requests() {
    let cluster = Cluster::sandbox().await;
    tables(&cluster, 60, 2).await;
    let ctx = catalog(&cluster, &[("catalog.ttl", "1 d")]).await;
    cluster.server().requests().clear();
    let listed = rows(&cluster, &ctx, COLUMNS).await;
    assert_eq!(listed.len(), 180);
    assert_eq!(listed[..3], ["t0 | id | Int32 | NO", "t0 | c0 | Int32 | YES", "t0 | c1 | Int32 | YES"]);
    let requests = cluster.server().requests().all().len();
    assert!(requests <= 4, "{requests} requests for 60 tables");
    // Kept for catalog.ttl, and read anew on request.
    cluster.doris("CREATE VIEW {db}.v AS SELECT id, c0 + 1 AS next FROM {db}.t0").await;
    cluster.server().requests().clear();
    assert_eq!(rows(&cluster, &ctx, COLUMNS).await, listed);
    assert_eq!(cluster.server().requests().all().len(), 0, "the list is kept");
    run(&ctx, "REFRESH CATALOG d").await;
    let listed = rows(&cluster, &ctx, COLUMNS).await;
    assert!(listed[180].starts_with("v | id | Int32"), "{:?}", &listed[180..]);
    // Of one table, only that one is asked for.
    run(&ctx, "REFRESH CATALOG d").await;
    cluster.server().requests().clear();
    let one = COLUMNS.replace("ORDER BY", "AND table_name = 't7' ORDER BY");
    assert_eq!(rows(&cluster, &ctx, &one).await.len(), 3);
    let requests = cluster.server().requests().all();
    assert!(requests.iter().all(|seen| !format!("{seen:?}").contains("t8")), "only t7 is described");
    assert_eq!(
        rows(&cluster, &ctx, "SELECT count(*) FROM information_schema.views WHERE table_schema = '{db}'").await,
        ["61"]
    );
}

/// One list holds 10,000 columns at most.
#[tokio::test]
async fn lists_of_columns_are_read_page_by_page() {
    let cluster = Cluster::sandbox().await;
    tables(&cluster, 104, 99).await;
    let ctx = catalog(&cluster, &[]).await;
    let counts = "SELECT count(*) AS n, count(DISTINCT table_name), count(DISTINCT table_name || '.' || column_name) FROM \
                  information_schema.columns WHERE table_schema = '{db}'";
    assert_eq!(rows(&cluster, &ctx, counts).await, ["10400 | 104 | 10400"]);
}

/// Types come whole, also those that a list cuts, and a table that cannot be read is left out.
#[tokio::test]
async fn a_table_that_cannot_be_read_does_not_fail_the_list() {
    let cluster = Cluster::sandbox().await;
    let model = "DUPLICATE KEY(id) DISTRIBUTED BY HASH(id) BUCKETS 1";
    let columns = "id INT NOT NULL, b BOOLEAN, l LARGEINT, d DECIMAL(20, 3), at DATETIME(6), n ARRAY<INT>, \
                   s STRUCT<a:INT,b:STRING>";
    for table in ["good", "bad"] {
        cluster.doris(&format!("CREATE TABLE {{db}}.{table} ({columns}) {model}")).await;
    }
    let ctx = catalog(&cluster, &[]).await;
    let refused = Action::Status { code: 401, body: "no".into() };
    cluster.server().faults().push(Fault::new(refused).at(Site::Fe).when("/bad/_schema").always());
    let listed = rows(&cluster, &ctx, COLUMNS).await;
    assert!(!cluster.server().faults().applied().is_empty(), "the fault was used");
    cluster.server().faults().clear();
    assert!(listed.iter().all(|line| line.starts_with("good | ")), "{listed:?}");
    // The list tells what the table has.
    let shown = rows(
        &cluster,
        &ctx,
        "SELECT arrow_typeof(b), arrow_typeof(l), arrow_typeof(n), arrow_typeof(s) FROM \
                                      (VALUES (1)) LEFT JOIN d.{db}.good ON true",
    )
    .await;
    for (line, types) in [(1, 0), (2, 1), (5, 2), (6, 3)] {
        let of_table = shown[0].split(" | ").nth(types).expect("a type");
        assert!(listed[line].contains(of_table), "{} is not {of_table}", listed[line]);
    }
    assert_eq!(listed.len(), 7);
    assert_eq!(rows(&cluster, &ctx, COLUMNS).await.len(), 14, "nothing of a failure is kept");
}

/// The rows of a query, and how many came over the wire.
async fn received(cluster: &Cluster, ctx: &SessionContext, sql: &str) -> (Vec<String>, usize) {
    fn sum(plan: &Arc<dyn ExecutionPlan>) -> usize {
        let own = plan.metrics().and_then(|metrics| metrics.sum_by_name("rows_received"));
        own.map_or(0, |value| value.as_usize()) + plan.children().into_iter().map(sum).sum::<usize>()
    }
    let frame = datafusion_doris::sql(ctx, &sql.replace("{db}", cluster.database())).await.expect("plans");
    let plan = frame.create_physical_plan().await.expect("plans");
    let batches = collect(Arc::clone(&plan), ctx.task_ctx()).await.expect("runs");
    (lines(&batches), sum(&plan))
}

/// As through tables that are declared: see `pushdown`.
#[tokio::test]
async fn queries_by_the_names_of_a_catalog_are_pushed_down_whole() {
    let cluster = Cluster::start().await;
    for (table, columns) in
        [("orders", "id INT, customer INT, price BIGINT"), ("customers", "id INT, name VARCHAR(20)")]
    {
        cluster
            .doris(&format!(
                "CREATE TABLE {{db}}.{table} ({columns}) DUPLICATE KEY(id) DISTRIBUTED BY HASH(id) BUCKETS 3"
            ))
            .await;
    }
    let orders: Vec<String> = (0..1_000).map(|id| format!("({id}, {}, {})", id % 10, id * 2)).collect();
    cluster.doris(&format!("INSERT INTO {{db}}.orders VALUES {}", orders.join(", "))).await;
    let customers: Vec<String> = (0..10).map(|id| format!("({id}, 'c{id}')")).collect();
    cluster.doris(&format!("INSERT INTO {{db}}.customers VALUES {}", customers.join(", "))).await;
    let ctx = catalog(&cluster, &[]).await;
    let joined = "SELECT name, sum(price) AS total FROM d.{db}.orders o JOIN d.{db}.customers c ON o.customer = c.id \
                  WHERE name IN ('c1', 'c2') GROUP BY name ORDER BY name";
    for (query, expected, most_rows, gone) in [
        ("SELECT id FROM d.{db}.orders WHERE price = 10 AND customer > 1", &["5"][..], 1, "FilterExec"),
        ("SELECT count(*), max(price) FROM d.{db}.orders WHERE id < 500", &["500 | 998"], 1, "AggregateExec"),
        ("SELECT id FROM d.{db}.orders ORDER BY price DESC LIMIT 2", &["999", "998"], 6, "nothing"),
        ("SELECT id FROM d.{db}.orders LIMIT 0", &[], 0, "DorisScanExec"),
        (joined, &["c1 | 99200", "c2 | 99400"], 2, "HashJoinExec"),
    ] {
        let (rows, received) = received(&cluster, &ctx, query).await;
        assert_eq!(rows, expected, "{query}");
        assert!(received <= most_rows, "{query}: {received} rows");
        let plan = lines(&run(&ctx, &format!("EXPLAIN {query}").replace("{db}", cluster.database())).await).join("\n");
        assert!(!plan.contains(gone), "{query}: {plan}");
    }
}
