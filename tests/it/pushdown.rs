//! What Doris does of a query: named cases, the statements in EXPLAIN, and the rows that travel.

use std::sync::Arc;

use datafusion::physical_plan::{ExecutionPlan, collect};
use datafusion::prelude::SessionContext;

use crate::harness::{Cluster, count, lines, refusal, run};

/// A duplicate table `t` of these columns and rows, declared under the same name.
async fn table(columns: &str, rows: &str) -> (Cluster, SessionContext) {
    let cluster = Cluster::start().await;
    let key = columns.split_whitespace().next().expect("a column");
    cluster
        .doris(&format!(
            "CREATE TABLE {{db}}.t ({columns}) DUPLICATE KEY({key}) DISTRIBUTED BY HASH({key}) BUCKETS 3
             PROPERTIES ('replication_num' = '1')"
        ))
        .await;
    if !rows.is_empty() {
        cluster.doris(&format!("INSERT INTO {{db}}.t VALUES {rows}")).await;
    }
    let ctx = cluster.context();
    cluster.declare(&ctx, "t", "t", &[]).await;
    (cluster, ctx)
}

async fn plan(ctx: &SessionContext, sql: &str) -> String {
    lines(&run(ctx, &format!("EXPLAIN {sql}")).await).join("\n")
}

async fn rows(ctx: &SessionContext, sql: &str) -> Vec<String> {
    lines(&run(ctx, sql).await)
}

/// The rows of a query with filters sent to Doris, which must be those without.
async fn filtered(ctx: &SessionContext, sql: &str) -> Vec<String> {
    let mut pushed = rows(ctx, sql).await;
    run(ctx, "SET doris.pushdown.filter = false").await;
    assert!(!plan(ctx, sql).await.contains(" WHERE "), "{sql}");
    let mut kept = rows(ctx, sql).await;
    run(ctx, "SET doris.pushdown.filter = true").await;
    pushed.sort();
    kept.sort();
    assert_eq!(pushed, kept, "{sql}");
    pushed
}

/// Whether a sandbox got a statement with `part` in it; another cluster does not tell.
fn arrived(cluster: &Cluster, part: &str) -> bool {
    std::env::var_os("DORIS_FENODES").is_some()
        || cluster
            .server()
            .requests()
            .matching(doris_sandbox::Site::FeFlight, part)
            .iter()
            .any(|seen| seen.method == "GetFlightInfo" && seen.target.contains("WHERE"))
}

/// The rows of a query, and how many of them came over the wire, and their bytes.
async fn received(ctx: &SessionContext, sql: &str) -> (Vec<String>, usize, usize) {
    fn sum(plan: &Arc<dyn ExecutionPlan>, metric: &str) -> usize {
        let own = plan.metrics().and_then(|metrics| metrics.sum_by_name(metric)).map_or(0, |value| value.as_usize());
        own + plan.children().into_iter().map(|child| sum(child, metric)).sum::<usize>()
    }
    let frame = datafusion_doris::sql(ctx, sql).await.expect("plans");
    let plan = frame.create_physical_plan().await.expect("plans");
    let batches = collect(Arc::clone(&plan), ctx.task_ctx()).await.expect("runs");
    (lines(&batches), sum(&plan, "rows_received"), sum(&plan, "bytes_received"))
}

#[tokio::test]
async fn c011_or_inside_and_keeps_its_brackets() {
    let (cluster, ctx) = table("id INT, k INT, g VARCHAR(5)", "(1,10,'A'),(2,20,'B'),(3,30,'B')").await;
    let sql = "SELECT id FROM t WHERE g='A' AND (id=1 OR k=20 OR id>2)";
    assert_eq!(filtered(&ctx, sql).await, ["1"]);
    assert!(arrived(&cluster, "((`id` = 1) OR ((`k` = 20) OR (`id` > 2)))"));
    let plan = plan(&ctx, sql).await;
    assert!(plan.contains("(`g` = 'A') AND (") && plan.contains("OR") && !plan.contains("FilterExec"), "{plan}");
}

#[tokio::test]
async fn c012_quotes_and_trailing_backslashes_stay_in_their_literal() {
    let values = r"(1,'C:\\temp\\'),(2,'O''Brien'),(3,'a\\b'),(4,'plain')";
    let (cluster, ctx) = table("id INT, s VARCHAR(30)", values).await;
    for (text, id) in [(r"C:\temp\", "1"), ("O''Brien", "2"), (r"a\b", "3")] {
        assert_eq!(filtered(&ctx, &format!("SELECT id FROM t WHERE s = '{text}'")).await, [id], "{text}");
        assert!(arrived(&cluster, &format!("`s` = '{}'", text.replace('\\', r"\\"))), "{text}");
    }
}

#[tokio::test]
async fn c013_like_with_an_escaped_percent_sign() {
    let values = r"(1,'100%'),(2,'100x'),(3,'100%\\'),(4,'_100%')";
    let (_cluster, ctx) = table("id INT, s VARCHAR(30)", values).await;
    for (condition, ids) in [
        (r"s LIKE '100\%'", &["1"][..]),
        ("starts_with(s, '100%')", &["1", "3"]),
        ("ends_with(s, '100%')", &["1", "4"]),
        (r"s LIKE '\_%'", &["4"]),
        (r"s LIKE '%\\'", &["3"]),
    ] {
        let sql = format!("SELECT id FROM t WHERE {condition}");
        assert_eq!(filtered(&ctx, &sql).await, ids, "{condition}");
        assert!(!plan(&ctx, &sql).await.contains("ESCAPE"), "{condition}");
    }
}

#[tokio::test]
async fn c014_not_in_over_a_nullable_column() {
    let (_cluster, ctx) = table("id INT, name VARCHAR(5)", "(1,'x'),(2,'y'),(3,'z'),(4,NULL)").await;
    let sql = "SELECT name FROM t WHERE name NOT IN ('x','y')";
    assert_eq!(filtered(&ctx, sql).await, ["z"]);
    assert!(plan(&ctx, sql).await.contains("WHERE"));
    assert!(filtered(&ctx, "SELECT name FROM t WHERE name NOT IN ('x', NULL)").await.is_empty());
}

#[tokio::test]
async fn c015_an_in_list_longer_than_the_limit_of_the_server() {
    let (cluster, ctx) = table("id INT", "").await;
    let values: Vec<String> = (0..20_000).map(|id| format!("({id})")).collect();
    cluster.doris(&format!("INSERT INTO {{db}}.t VALUES {}", values.join(","))).await;
    let list = |ids: std::ops::RangeInclusive<u32>| ids.map(|id| id.to_string()).collect::<Vec<_>>().join(",");
    let short = format!("SELECT count(*) FROM t WHERE id IN ({})", list(0..=4_000));
    assert_eq!(rows(&ctx, &short).await, ["4001"]);
    assert!(plan(&ctx, &short).await.contains(") OR ("), "several lists");
    assert_eq!(rows(&ctx, &format!("SELECT count(*) FROM t WHERE id IN ({})", list(0..=12_000))).await, ["12001"]);
}

#[tokio::test]
async fn c016_a_timestamp_literal_keeps_its_digits() {
    let values = "(1,'2027-01-15 08:00:00.123'),(2,'2027-01-15 08:00:00')";
    let (cluster, ctx) = table("id INT, ts DATETIME(3)", values).await;
    let sql = "SELECT id FROM t WHERE ts = TIMESTAMP '2027-01-15 08:00:00.123'";
    assert_eq!(filtered(&ctx, sql).await, ["1"]);
    assert!(plan(&ctx, sql).await.contains("'2027-01-15 08:00:00.123000'"));
    assert!(arrived(&cluster, "'2027-01-15 08:00:00.123000'"));
}

#[tokio::test]
async fn c017_case_in_a_filter() {
    let (_cluster, ctx) = table("id INT, a INT, b INT", "(1,12,4),(2,3,9),(3,11,9),(4,NULL,NULL)").await;
    let sql = "SELECT id FROM (SELECT id, CASE WHEN a>10 THEN b END AS x FROM t) q WHERE x IS NOT NULL";
    assert_eq!(filtered(&ctx, sql).await, ["1", "3"]);
    assert!(plan(&ctx, sql).await.contains("(CASE WHEN (`a` > 10) THEN `b` END) IS NOT NULL"));
}

#[tokio::test]
async fn c018_count_needs_no_column_and_one_row() {
    let (_cluster, ctx) = table("id INT, s STRING", "(1,'a'),(2,'b'),(3,NULL)").await;
    assert_eq!(received(&ctx, "SELECT count(*) FROM t").await.0, ["3"]);
    assert_eq!(received(&ctx, "SELECT count(*) FROM t").await.1, 1);
    run(&ctx, "SET doris.pushdown.aggregate = false").await;
    let (counted, moved, _) = received(&ctx, "SELECT count(*) FROM t").await;
    assert_eq!(counted, ["3"]);
    assert!(moved <= 3, "one number per split: {moved}");
    assert_eq!(rows(&ctx, "SELECT 1 FROM t").await, ["1", "1", "1"]);
    run(&ctx, "SET doris.pushdown.aggregate = true").await;

    // Tables of 3 rows and none, over two endpoints.
    let cluster = Cluster::of(doris_sandbox::Sandbox::builder().backends(2)).await;
    for table in ["t", "e"] {
        let columns = "(id INT, s STRING) DUPLICATE KEY(id) DISTRIBUTED BY HASH(id) BUCKETS 2";
        cluster.doris(&format!("CREATE TABLE {{db}}.{table} {columns}")).await;
    }
    cluster.doris("INSERT INTO {db}.t VALUES (1, 'a'), (2, 'b'), (3, NULL)").await;
    let ctx = cluster.context();
    for table in ["t", "e"] {
        cluster.declare(&ctx, table, table, &[]).await;
    }
    for aggregate in [true, false] {
        run(&ctx, &format!("SET doris.pushdown.aggregate = {aggregate}")).await;
        cluster.server().requests().clear();
        assert_eq!(rows(&ctx, "SELECT count(*) FROM t").await, ["3"]);
        assert_eq!(rows(&ctx, "SELECT count(*) FROM e").await, ["0"]);
        assert_eq!(rows(&ctx, "SELECT 1 FROM t").await, ["1", "1", "1"]);
        assert!(rows(&ctx, "SELECT 1 FROM e").await.is_empty());
        let asked = cluster.server().requests().matching(doris_sandbox::Site::FeFlight, "SELECT");
        assert!(asked.iter().all(|seen| !seen.target.contains("`s`")), "no column is read: {asked:?}");
    }
}

#[tokio::test]
async fn c019_a_limit_counts_after_a_filter_that_stays() {
    let cluster = Cluster::start().await;
    let columns = "(id INT, s VARCHAR(20)) DUPLICATE KEY(id) DISTRIBUTED BY HASH(id) BUCKETS 8";
    cluster.doris(&format!("CREATE TABLE {{db}}.t {columns} PROPERTIES ('replication_num' = '1')")).await;
    let ctx = cluster.context();
    cluster.declare(&ctx, "t", "t", &[]).await;
    let values = "SELECT value, CASE WHEN value = 49999 THEN 'azz' ELSE concat('s', value % 97) END";
    run(&ctx, &format!("INSERT INTO t {values} FROM generate_series(0, 49999)")).await;
    let sql = "SELECT id FROM t WHERE reverse(s) LIKE 'zz%' LIMIT 1";
    assert_eq!(rows(&ctx, sql).await, ["49999"]);
    let shown = plan(&ctx, sql).await;
    assert!(shown.contains("FilterExec") && !shown.contains("LIMIT 1"), "{shown}");
    let exact = plan(&ctx, "SELECT id FROM t WHERE id > 1 LIMIT 2 OFFSET 1").await;
    assert!(exact.contains("LIMIT 3"), "the offset stays above: {exact}");
    assert_eq!(count(&run(&ctx, "SELECT id FROM t WHERE id > 49996 LIMIT 2 OFFSET 2").await), 1);
}

#[tokio::test]
async fn c020_chinese_text_in_a_filter() {
    let (cluster, ctx) = table("name VARCHAR(30), age INT", "('数据',1),('??',2)").await;
    assert_eq!(filtered(&ctx, "SELECT age FROM t WHERE name='数据'").await, ["1"]);
    assert!(arrived(&cluster, "'数据'"));
    assert_eq!(filtered(&ctx, "SELECT age FROM t WHERE name LIKE '数_' AND character_length(name) = 2").await, ["1"]);
}

/// A condition of which Doris knows a part moves fewer rows, and DataFusion decides.
#[tokio::test]
async fn a_part_of_a_filter_is_sent_and_the_whole_stays() {
    let (_cluster, ctx) = table("id INT, s VARCHAR(20)", "(1,'Ab'),(2,'bc'),(3,'azz'),(4,'cd'),(5,'de')").await;
    let sql = "SELECT id FROM t WHERE (id < 3 AND upper(s) = 'AB') OR id = 5";
    let shown = plan(&ctx, sql).await;
    assert!(shown.contains("((`id` < 3) OR (`id` = 5))") && shown.contains("FilterExec"), "{shown}");
    let (_, moved, _) = received(&ctx, sql).await;
    assert_eq!(moved, 3);
    assert_eq!(filtered(&ctx, sql).await, ["1", "5"]);
    let limited = plan(&ctx, &format!("{sql} LIMIT 1")).await;
    assert!(!limited.contains("LIMIT 1 ") && !limited.contains("LIMIT 1]"), "{limited}");
}

#[tokio::test]
async fn whole_queries_are_one_statement() {
    let (_cluster, ctx) = table(
        "id INT, g VARCHAR(5), n INT, pay DECIMAL(10, 2)",
        "(1,'a',1,1.00),(2,'a',2,2.50),(3,'b',NULL,-3.01),(4,NULL,7,NULL),(5,'b',4,0.05)",
    )
    .await;
    let sql = "SELECT g, count(*) AS c, sum(n) AS s, avg(pay) AS a, min(id) FILTER (WHERE n > 1) AS m FROM t
               WHERE id < 5 GROUP BY g HAVING count(*) > 1 ORDER BY g DESC LIMIT 1";
    let (found, moved, _) = received(&ctx, sql).await;
    assert_eq!(found, ["a | 2 | 3 | 1.750000 | 2"]);
    assert_eq!(moved, 1);
    let shown = plan(&ctx, sql).await;
    for part in ["GROUP BY `t0`.`g`", "COUNT(*)", "ORDER BY", "DESC NULLS FIRST", "LIMIT 1", "(CASE WHEN"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert!(!shown.contains("AggregateExec") && !shown.contains("FilterExec"), "{shown}");
    // Each part can be taken back.
    for (switch, node) in [("aggregate", "AggregateExec"), ("topk", "SortExec"), ("filter", "FilterExec")] {
        run(&ctx, &format!("SET doris.pushdown.{switch} = false")).await;
        assert_eq!(rows(&ctx, sql).await, found, "{switch}");
        assert!(plan(&ctx, sql).await.contains(node), "{switch}");
        run(&ctx, &format!("SET doris.pushdown.{switch} = true")).await;
    }
    assert_eq!(rows(&ctx, "SELECT DISTINCT g FROM t ORDER BY g NULLS FIRST").await, ["NULL", "a", "b"]);
    assert_eq!(received(&ctx, "SELECT count(DISTINCT g), count(DISTINCT n) FROM t").await.1, 1);
    assert_eq!(received(&ctx, "SELECT count(DISTINCT g) FROM t").await.1, 1);
    assert_eq!(rows(&ctx, "SELECT sum(pay), count(*), avg(n) FROM t WHERE id > 100").await, ["NULL | 0 | NULL"]);
}

#[tokio::test]
async fn nulls_stand_where_the_query_says() {
    let (_cluster, ctx) = table("id INT, s VARCHAR(9)", "(1,'b'),(2,NULL),(3,'B'),(4,'ä'),(5,''),(6,'b ')").await;
    for (order, expected) in
        [("s", ["5", "3"]), ("s DESC", ["2", "4"]), ("s NULLS FIRST", ["2", "5"]), ("s DESC NULLS LAST", ["4", "6"])]
    {
        let sql = format!("SELECT id FROM t ORDER BY {order} LIMIT 2");
        let (found, moved, _) = received(&ctx, &sql).await;
        assert_eq!(found, expected, "{order}");
        assert_eq!(moved, 2, "{order}");
    }
}

/// Doubles sort and group otherwise (NaN, -0), so they stay.
#[tokio::test]
async fn what_means_something_else_in_doris_stays() {
    let (_cluster, ctx) = table(
        "id INT, d DOUBLE, big BIGINT, wide DECIMAL(38, 10), s VARCHAR(9)",
        "(1, 1.5, 1, 1.5, 'x'), (2, CAST('NaN' AS DOUBLE), 2, 2.5, 'Y')",
    )
    .await;
    for sql in [
        "SELECT id FROM t ORDER BY d LIMIT 1",
        "SELECT d, count(*) FROM t GROUP BY d",
        "SELECT max(d) FROM t",
        "SELECT sum(d) FROM t",
        "SELECT avg(big) FROM t",
        "SELECT sum(wide) FROM t",
        "SELECT lower(s), count(*) FROM t GROUP BY lower(s)",
        "SELECT stddev(id) FROM t",
        "SELECT g, count(*) FROM (SELECT id / big AS g FROM t) GROUP BY g",
        "SELECT sum(big + 1) FROM t",
    ] {
        let shown = plan(&ctx, sql).await;
        assert!(
            !shown.contains("ORDER BY") && !shown.contains("GROUP BY `") && !shown.contains("SELECT SUM"),
            "{sql}: {shown}"
        );
        assert!(shown.contains("AggregateExec") || shown.contains("SortExec"), "{sql}: {shown}");
        rows(&ctx, sql).await;
    }
}

async fn orders_and_people() -> (Cluster, SessionContext) {
    let cluster = Cluster::start().await;
    cluster
        .doris(
            "CREATE TABLE {db}.people (id INT, name VARCHAR(9)) DUPLICATE KEY(id) DISTRIBUTED BY HASH(id) BUCKETS 2;
             CREATE TABLE {db}.orders (id INT, person INT, pay DECIMAL(15, 2)) DUPLICATE KEY(id) DISTRIBUTED BY HASH(id) BUCKETS 2;
             INSERT INTO {db}.people VALUES (1,'Ada'),(2,'Bob'),(3,'Cy'),(NULL,'Nil');
             INSERT INTO {db}.orders VALUES (1,1,2.00),(2,1,3.00),(3,2,0.10),(4,9,7.00),(5,NULL,1.00)",
        )
        .await;
    let ctx = cluster.context();
    cluster.declare(&ctx, "people", "people", &[]).await;
    cluster.declare(&ctx, "orders", "orders", &[]).await;
    (cluster, ctx)
}

#[tokio::test]
async fn a_join_below_an_aggregate_is_one_statement() {
    let (_cluster, ctx) = orders_and_people().await;
    for (sql, expected) in [
        (
            "SELECT name, sum(pay * CAST(0.5 AS DECIMAL(2, 1))) FROM orders JOIN people ON person = people.id GROUP BY name ORDER BY 1 LIMIT 9",
            &["Ada | 2.500", "Bob | 0.050"][..],
        ),
        ("SELECT count(*) FROM orders o WHERE EXISTS (SELECT 1 FROM people p WHERE p.id = o.person)", &["3"]),
        ("SELECT count(*) FROM orders o WHERE NOT EXISTS (SELECT 1 FROM people p WHERE p.id = o.person)", &["2"]),
        ("SELECT count(*) FROM orders WHERE person NOT IN (SELECT id FROM people)", &["0"]),
    ] {
        assert_eq!(rows(&ctx, sql).await, expected, "{sql}");
        let whole = plan(&ctx, sql).await;
        run(&ctx, "SET doris.pushdown.join = false").await;
        assert_eq!(rows(&ctx, sql).await, expected, "{sql}");
        assert!(plan(&ctx, sql).await.contains("HashJoinExec"), "{sql}");
        run(&ctx, "SET doris.pushdown.join = true").await;
        // NOT IN means something else than NOT EXISTS as soon as there is a NULL.
        assert_eq!(whole.contains("HashJoinExec"), sql.contains("NOT IN"), "{sql}: {whole}");
    }
}

#[tokio::test]
async fn a_join_asks_its_larger_side_for_the_rows_of_the_smaller() {
    let (_cluster, ctx) = orders_and_people().await;
    let sql = "SELECT o.id FROM people p JOIN orders o ON o.person = p.id WHERE p.name = 'Ada' ORDER BY 1";
    let (found, moved, _) = received(&ctx, sql).await;
    assert_eq!(found, ["1", "2"]);
    run(&ctx, "SET doris.pushdown.dynamic_filter = false").await;
    let (same, all, _) = received(&ctx, sql).await;
    assert_eq!(same, found);
    assert!(moved < all, "{moved} of {all} rows");
}

/// The busiest airports and their delays, on a table of the same form as that of the flights; with `FLIGHTS_FILE` set to a
/// Parquet file, on its rows.
#[tokio::test]
async fn flights_by_origin_move_fewer_than_a_hundred_rows() {
    let cluster = Cluster::start().await;
    cluster
        .doris(
            "CREATE TABLE {db}.flights (day DATETIME(3), delay INT, distance INT, origin VARCHAR(4), destination VARCHAR(4))
             DUPLICATE KEY(day) DISTRIBUTED BY HASH(day) BUCKETS 4 PROPERTIES ('replication_num' = '1')",
        )
        .await;
    let row = |i: u32| {
        let (hour, delay) = (i % 24, i64::from(i * 7919 % 200) - 30);
        format!(
            "('2001-01-{:02} {hour:02}:00:00', {delay}, {}, 'A{:02}', 'B{:02}')",
            i % 28 + 1,
            i % 900,
            i * i % 60,
            i % 70
        )
    };
    let ctx = cluster.context();
    cluster.declare(&ctx, "flights", "flights", &[]).await;
    let rows = match std::env::var("FLIGHTS_FILE") {
        Ok(file) => {
            ctx.register_parquet("file", &file, Default::default()).await.expect("a parquet file");
            let columns = "\"date\", delay, distance, origin, destination";
            let loaded = run(&ctx, &format!("INSERT INTO flights SELECT {columns} FROM file")).await;
            lines(&loaded)[0].parse().expect("a number of rows")
        }
        Err(_) => {
            let values: Vec<String> = (0..5_000).map(row).collect();
            cluster.doris(&format!("INSERT INTO {{db}}.flights VALUES {}", values.join(","))).await;
            values.len()
        }
    };
    let asked = "SELECT origin, count(*), avg(delay) FROM flights GROUP BY origin ORDER BY 2 DESC LIMIT 10";
    let analyzed = lines(&run(&ctx, &format!("EXPLAIN ANALYZE {asked}")).await).join("\n");
    let scan = analyzed.lines().find(|line| line.contains("DorisScanExec")).expect("a scan");
    println!("EXPLAIN ANALYZE {asked}: {}", scan.trim());
    let metric = |name: &str| -> usize {
        let (_, behind) = scan.split_once(&format!("{name}=")).unwrap_or_else(|| panic!("{name}: {scan}"));
        let number: String = behind.chars().take_while(char::is_ascii_digit).collect();
        number.parse().expect("a number")
    };
    assert!((1..100).contains(&metric("rows_received")), "{scan}");
    // Airports with equally many flights in a fixed order, so that the answers can be compared.
    let sql = asked.replace("2 DESC", "2 DESC, 1");
    let sql = sql.as_str();
    let (found, moved, bytes) = received(&ctx, sql).await;
    for switch in ["aggregate", "topk"] {
        run(&ctx, &format!("SET doris.pushdown.{switch} = false")).await;
    }
    let (expected, all, all_bytes) = received(&ctx, sql).await;
    assert_eq!(found, expected);
    assert_eq!((found.len(), all), (10, rows));
    assert!(moved < 100 && bytes * 50 < all_bytes, "{moved} rows, {bytes} of {all_bytes} bytes");
    println!("flights: {moved} rows and {bytes} bytes moved, {all} rows and {all_bytes} bytes without");
}

#[tokio::test]
async fn a_statement_of_doris_is_a_table() {
    let (cluster, ctx) = orders_and_people().await;
    let orders = cluster.table("orders");
    let query = format!(
        "doris_query('people', 'SELECT person, BITMAP_COUNT(BITMAP_AGG(id)) AS n, ''it''''s'' AS s FROM {orders} GROUP BY person')"
    );
    let mut all = rows(&ctx, &format!("SELECT * FROM {query}")).await;
    all.sort();
    assert_eq!(all, ["1 | 2 | it's", "2 | 1 | it's", "9 | 1 | it's", "NULL | 1 | it's"]);
    let above = format!("SELECT s, person FROM {query} WHERE person > 1 LIMIT 1");
    let shown = plan(&ctx, &above).await;
    assert!(shown.contains("WHERE (`person` > 1) LIMIT 1") && !shown.contains("FilterExec"), "{shown}");
    assert_eq!(received(&ctx, &above).await.1, 1);
    // As a part of a larger query, and with the only cluster that there is.
    let join = format!("SELECT name, n FROM people JOIN {query} q ON q.person = people.id ORDER BY 1");
    assert_eq!(rows(&ctx, &join).await, ["Ada | 2", "Bob | 1"]);
    assert_eq!(rows(&ctx, &format!("SELECT max(n) FROM {query}")).await, ["2"]);
    assert_eq!(rows(&ctx, "SELECT a + 1 FROM doris_query('SELECT 41 AS a -- a comment')").await, ["42"]);
    for (call, part) in [
        ("doris_query('people', 'DROP TABLE x')", "DROP"),
        ("doris_query('people', 'SELECT 1; SELECT 2')", "semicolon"),
        ("doris_query('nobody', 'SELECT 1')", "nobody"),
        (&format!("doris_query('people', 'SELECT x FROM {}.nowhere')", cluster.database()), "nowhere"),
        ("doris_query(1, 2)", "two texts"),
    ] {
        let message = refusal(&ctx, &format!("SELECT * FROM {call}")).await;
        assert!(message.contains(part), "{call}: {message}");
    }
}
