//! A cluster as a catalog: `SELECT … FROM doris.db.table` without DDL, and CREATE and DROP in Doris.

use std::sync::Arc;

use datafusion::catalog::CatalogProvider;
use datafusion::prelude::SessionContext;
use datafusion_doris::DorisCatalog;
use datafusion_doris::options::{CatalogOptions, ConnectionOptions, Secret};
use doris_sandbox::{Action, Fault, Site};

use crate::cli::shell;
use crate::harness::{Cluster, lines, refusal, run, try_run};

/// A catalog `d` over a cluster with a unique table `t` (3 rows) and a view `v` of it.
async fn catalog(options: &[(&str, &str)]) -> (Cluster, SessionContext) {
    let cluster = Cluster::start().await;
    cluster.unique_table("t", "id INT NOT NULL, name VARCHAR(20), price DECIMAL(10, 2)", "").await;
    cluster.doris("INSERT INTO {db}.t VALUES (1, 'a', 1.5), (2, 'b', 2.5), (3, NULL, NULL)").await;
    cluster.doris("CREATE VIEW {db}.v AS SELECT id, name FROM {db}.t WHERE id < 3").await;
    let ctx = cluster.context();
    let mut all = vec![("table.properties.replication_num", "1")];
    all.extend_from_slice(options);
    run(&ctx, &cluster.catalog_ddl("d", &all)).await;
    (cluster, ctx)
}

/// `sql` with `{db}` for the database.
fn sql(cluster: &Cluster, sql: &str) -> String {
    sql.replace("{db}", cluster.database())
}

async fn rows(cluster: &Cluster, ctx: &SessionContext, query: &str) -> Vec<String> {
    lines(&run(ctx, &sql(cluster, query)).await)
}

#[tokio::test]
async fn a_catalog_s_table_is_read_written_and_pushed_down_to_as_a_declared_one() {
    let (cluster, ctx) = catalog(&[]).await;
    let query = "SELECT name FROM d.{db}.t WHERE id = 2 AND price > 1";
    assert_eq!(rows(&cluster, &ctx, query).await, ["b"]);
    let plan = rows(&cluster, &ctx, &format!("EXPLAIN {query}")).await.join("\n");
    assert!(plan.contains("DorisScanExec") && plan.contains("`id` = 2") && !plan.contains("FilterExec"), "{plan}");
    assert_eq!(rows(&cluster, &ctx, "INSERT INTO d.{db}.t VALUES (4, 'd', 4)").await, ["1"]);
    assert_eq!(cluster.scalar("SELECT price FROM {db}.t WHERE id = 4").await, "4.00");
    let joined = "SELECT t.id, v.name FROM d.{db}.t JOIN d.{db}.v ON t.id = v.id ORDER BY 1";
    assert_eq!(rows(&cluster, &ctx, joined).await, ["1 | a", "2 | b"]);
}

/// The key of a unique table is one for the optimizer: grouping by it needs no other column.
#[tokio::test]
async fn the_key_of_a_unique_table_is_known_to_the_optimizer() {
    let (cluster, ctx) = catalog(&[]).await;
    let grouped = rows(&cluster, &ctx, "SELECT id, name, count(*) FROM d.{db}.t GROUP BY id ORDER BY id LIMIT 1").await;
    assert_eq!(grouped, ["1 | a | 1"]);
    let view = refusal(&ctx, &sql(&cluster, "SELECT id, name, count(*) FROM d.{db}.v GROUP BY id")).await;
    assert!(view.contains("name"), "{view}");
}

#[tokio::test]
async fn tables_and_views_are_listed_and_new_ones_are_found_without_a_list() {
    let (cluster, ctx) = catalog(&[("catalog.ttl", "1 d")]).await;
    let list = "SELECT table_name, table_type FROM d.information_schema.tables WHERE table_catalog = 'd' AND \
                table_schema = '{db}' ORDER BY 1";
    assert_eq!(rows(&cluster, &ctx, list).await, ["t | BASE TABLE", "v | VIEW"]);
    let columns = "SELECT column_name, data_type, is_nullable FROM information_schema.columns WHERE table_catalog = 'd' \
                   AND table_schema = '{db}' AND table_name = 't' ORDER BY ordinal_position";
    let expected = ["id | Int32 | NO", "name | Utf8 | YES", "price | Decimal128(10, 2) | YES"];
    assert_eq!(rows(&cluster, &ctx, columns).await, expected);
    for hidden in ["information_schema", "mysql", "__internal_schema"] {
        assert!(!ctx.catalog("d").expect("registered").schema_names().iter().any(|name| name == hidden), "{hidden}");
    }

    cluster.duplicate_table("later", "id INT", "").await;
    cluster.doris("INSERT INTO {db}.later VALUES (7)").await;
    assert_eq!(rows(&cluster, &ctx, "SELECT * FROM d.{db}.later").await, ["7"]);
    assert_eq!(rows(&cluster, &ctx, list).await.len(), 2, "the list is kept for catalog.ttl");
    run(&ctx, "REFRESH CATALOG d").await;
    assert_eq!(rows(&cluster, &ctx, list).await.len(), 3);
    let error = refusal(&ctx, &sql(&cluster, "SELECT * FROM d.{db}.nothing")).await;
    assert!(error.contains("nothing") && error.contains("not found"), "{error}");
    let error = refusal(&ctx, "SELECT * FROM d.nowhere.t").await;
    assert!(error.contains("nowhere") && error.contains("not found"), "{error}");
}

#[tokio::test]
async fn what_is_old_is_read_anew() {
    let (cluster, ctx) = catalog(&[("catalog.ttl", "0s")]).await;
    assert_eq!(rows(&cluster, &ctx, "SELECT * FROM d.{db}.v WHERE id = 1").await, ["1 | a"]);
    cluster.doris("DROP VIEW {db}.v; CREATE VIEW {db}.v AS SELECT name, id, 5 AS five FROM {db}.t").await;
    assert_eq!(rows(&cluster, &ctx, "SELECT * FROM d.{db}.v WHERE id = 1").await, ["a | 1 | 5"]);
    cluster.doris("CREATE VIEW {db}.w AS SELECT id FROM {db}.t").await;
    let shown = rows(&cluster, &ctx, "SHOW TABLES").await.join("\n");
    assert!(shown.contains(&format!("d | {} | w | VIEW", cluster.database())), "{shown}");
}

#[tokio::test]
async fn columns_are_kept_for_a_while_and_forgotten_on_request() {
    let (cluster, ctx) = catalog(&[("catalog.ttl", "1 d")]).await;
    let query = "SELECT * FROM d.{db}.v WHERE id = 1";
    assert_eq!(rows(&cluster, &ctx, query).await, ["1 | a"]);
    cluster.doris("DROP VIEW {db}.v; CREATE VIEW {db}.v AS SELECT id, 5 AS five FROM {db}.t").await;
    let error = refusal(&ctx, &sql(&cluster, query)).await;
    assert!(error.contains("name"), "a column that is gone is no NULL: {error}");
    run(&ctx, "REFRESH CATALOG d").await;
    assert_eq!(rows(&cluster, &ctx, query).await, ["1 | 5"]);
}

#[tokio::test]
async fn use_chooses_where_plain_names_are_looked_up() {
    let (cluster, ctx) = catalog(&[("default-database", "nope")]).await;
    run(&ctx, &sql(&cluster, "USE d.{db}")).await;
    assert_eq!(lines(&run(&ctx, "SELECT count(*) FROM t").await), ["3"]);
    run(&ctx, "USE d").await;
    assert!(refusal(&ctx, "SELECT count(*) FROM t").await.contains("d.nope.t"));
    run(&ctx, &sql(&cluster, "USE {db}")).await;
    assert_eq!(lines(&run(&ctx, "SELECT count(*) FROM v").await), ["2"]);
    run(&ctx, "USE datafusion.public").await;
    assert!(refusal(&ctx, "SELECT * FROM t").await.contains("datafusion.public.t"));
    assert!(refusal(&ctx, "USE datafusion.nope").await.contains("nope"));
}

#[tokio::test]
async fn create_table_as_makes_a_table_of_the_query_s_columns() {
    let (cluster, ctx) = catalog(&[]).await;
    let create = "CREATE TABLE d.{db}.made AS SELECT id, price * 2 AS double_price, name, TIMESTAMP '2024-02-29 01:02:03.5' \
                  AS at, [id, NULL] AS list, id > 1 AS big, CAST(id AS BIGINT UNSIGNED) AS wide FROM d.{db}.t";
    run(&ctx, &sql(&cluster, create)).await;
    assert_eq!(
        rows(&cluster, &ctx, "SELECT * FROM d.{db}.made ORDER BY id").await,
        [
            "1 | 3.00 | a | 2024-02-29T01:02:03.500 | [1, NULL] | false | 1",
            "2 | 5.00 | b | 2024-02-29T01:02:03.500 | [2, NULL] | true | 2",
            "3 | NULL | NULL | 2024-02-29T01:02:03.500 | [3, NULL] | true | 3",
        ]
    );
    let types: Vec<String> = cluster
        .doris("DESC {db}.made")
        .await
        .into_iter()
        .map(|row| format!("{} {} {}", row[0].clone().unwrap(), row[1].clone().unwrap(), row[2].clone().unwrap()))
        .collect();
    let types: Vec<String> = types.iter().map(|line| line.to_lowercase().replace(", ", ",")).collect();
    assert_eq!(types[0], "id int no");
    assert!(types[1].starts_with("double_price decimal"), "{types:?}");
    assert_eq!(types[2..4], ["name text yes", "at datetime(6) no"]);
    assert_eq!(types[4..], ["list array<int> yes", "big boolean no", "wide largeint no"]);
    let ddl = cluster.doris("SHOW CREATE TABLE {db}.made").await[0][1].clone().unwrap();
    assert!(ddl.contains("DUPLICATE KEY(`id`)") && ddl.contains("DISTRIBUTED BY RANDOM"), "{ddl}");
    assert!(ddl.to_lowercase().contains("replication"), "{ddl}");
}

#[tokio::test]
async fn create_table_with_columns_takes_the_primary_key_as_unique_key() {
    let (cluster, ctx) = catalog(&[]).await;
    let create = "CREATE TABLE d.{db}.made (note VARCHAR DEFAULT 'it''s', at TIMESTAMP, code VARCHAR NOT NULL, id BIGINT, \
                  PRIMARY KEY (id, code))";
    run(&ctx, &sql(&cluster, create)).await;
    let ddl = cluster.doris("SHOW CREATE TABLE {db}.made").await[0][1].clone().unwrap();
    assert!(ddl.contains("UNIQUE KEY(`id`, `code`)") && ddl.contains("DISTRIBUTED BY HASH(`id`, `code`)"), "{ddl}");
    assert!(ddl.contains("it's"), "{ddl}");
    run(
        &ctx,
        &sql(&cluster, "INSERT INTO d.{db}.made (id, code, at) VALUES (1, 'x', TIMESTAMP '2024-01-01 00:00:00')"),
    )
    .await;
    run(&ctx, &sql(&cluster, "INSERT INTO d.{db}.made (id, code, note) VALUES (1, 'x', 'second')")).await;
    assert_eq!(rows(&cluster, &ctx, "SELECT id, code, note, at FROM d.{db}.made").await, ["1 | x | second | NULL"]);
}

#[tokio::test]
async fn create_table_of_a_name_that_is_taken_changes_nothing() {
    let (cluster, ctx) = catalog(&[]).await;
    let error = refusal(&ctx, &sql(&cluster, "CREATE TABLE d.{db}.t AS SELECT 1 AS id")).await;
    assert!(error.contains("already exists"), "{error}");
    run(&ctx, &sql(&cluster, "CREATE TABLE IF NOT EXISTS d.{db}.t AS SELECT 1 AS id")).await;
    let error = refusal(&ctx, &sql(&cluster, "CREATE OR REPLACE TABLE d.{db}.t AS SELECT 1 AS id")).await;
    assert!(error.contains("DROP TABLE first"), "{error}");
    assert_eq!(cluster.scalar("SELECT count(*) FROM {db}.t").await, "3");
    for (columns, reason) in [
        ("SELECT 1 AS id, 2 AS \"ID\"", "named twice"),
        ("SELECT 1.5e0 AS x", "cannot be a key"),
        ("SELECT 1 AS id, X'00' AS b", "column 'b'"),
    ] {
        let error = refusal(&ctx, &sql(&cluster, &format!("CREATE TABLE d.{{db}}.made AS {columns}"))).await;
        assert!(error.contains(reason), "{columns}: {error}");
    }
    assert_eq!(cluster.doris("SHOW TABLES FROM {db} LIKE 'made'").await.len(), 0);
}

/// The query fails after the table was made, in DataFusion or in the load.
#[tokio::test]
async fn create_table_as_that_fails_leaves_no_table() {
    let (cluster, ctx) = catalog(&[]).await;
    let failing = "CREATE TABLE d.{db}.half AS SELECT id, 10 / (id - 3) AS q FROM d.{db}.t";
    let error = refusal(&ctx, &sql(&cluster, failing)).await;
    assert!(error.to_lowercase().contains("divide by zero"), "{error}");
    assert_eq!(cluster.doris("SHOW TABLES FROM {db} LIKE 'half'").await.len(), 0);
    // Finer than a DATETIME keeps: told by value, once rows are written.
    let finer = "CREATE TABLE d.{db}.half AS SELECT id, TIMESTAMP '2024-01-01 00:00:00.123456789' AS at FROM d.{db}.t";
    let error = refusal(&ctx, &sql(&cluster, finer)).await;
    assert!(error.contains("column 'at'"), "{error}");
    assert_eq!(cluster.doris("SHOW TABLES FROM {db} LIKE 'half'").await.len(), 0);
    assert!(refusal(&ctx, &sql(&cluster, "SELECT * FROM d.{db}.half")).await.contains("not found"));
}

#[tokio::test]
async fn create_table_as_that_is_cancelled_leaves_no_table() {
    let cluster = Cluster::sandbox().await;
    let ctx = cluster.context();
    run(&ctx, &cluster.catalog_ddl("d", &[("table.properties.replication_num", "1")])).await;
    let reached = Arc::new(tokio::sync::Notify::new());
    let (done, release) = (Arc::clone(&reached), Arc::new(tokio::sync::Notify::new()));
    cluster.server().faults().push(Fault::new(Action::HoldAnswer { done, release }).at(Site::Be).when("_stream_load"));
    let create = sql(&cluster, "CREATE TABLE d.{db}.half AS SELECT 1 AS id");
    tokio::select! {
        result = try_run(&ctx, &create) => panic!("ended: {result:?}"),
        () = reached.notified() => {}
    }
    // In the background: asked for until it is done.
    while !cluster.doris("SHOW TABLES FROM {db} LIKE 'half'").await.is_empty() {}
}

#[tokio::test]
async fn a_query_without_end_makes_no_table() {
    let (cluster, ctx) = catalog(&[]).await;
    cluster.changing_table("changing", "id INT NOT NULL").await;
    run(&ctx, &cluster.catalog_ddl("changes", &[("source.scan.mode", "latest")])).await;
    let error = refusal(&ctx, &sql(&cluster, "CREATE TABLE d.{db}.made AS SELECT * FROM changes.{db}.changing")).await;
    assert!(error.contains("no end"), "{error}");
    assert_eq!(cluster.doris("SHOW TABLES FROM {db} LIKE 'made'").await.len(), 0);
}

#[tokio::test]
async fn a_catalog_with_a_scan_mode_shows_the_changes_of_every_table() {
    let (cluster, ctx) = catalog(&[]).await;
    cluster.changing_table("changing", "id INT NOT NULL, v INT").await;
    cluster.doris("INSERT INTO {db}.changing VALUES (1, 10)").await;
    let options = [("source.scan.mode", "initial"), ("source.scan.bounded-mode", "latest")];
    run(&ctx, &cluster.catalog_ddl("changes", &options)).await;
    cluster.next_second().await;
    assert_eq!(rows(&cluster, &ctx, "SELECT * FROM changes.{db}.changing").await, ["1 | 10 | +I"]);
}

#[tokio::test]
async fn tables_and_views_are_dropped_as_what_they_are() {
    let (cluster, ctx) = catalog(&[]).await;
    let error = refusal(&ctx, &sql(&cluster, "DROP TABLE d.{db}.v")).await;
    assert!(error.contains("use DROP VIEW"), "{error}");
    run(&ctx, &sql(&cluster, "DROP VIEW d.{db}.v")).await;
    run(&ctx, &sql(&cluster, "DROP TABLE d.{db}.t")).await;
    assert_eq!(cluster.doris("SHOW TABLES FROM {db}").await.len(), 0);
    assert!(refusal(&ctx, &sql(&cluster, "DROP TABLE d.{db}.t")).await.contains("does not exist"));
    run(&ctx, &sql(&cluster, "DROP TABLE IF EXISTS d.{db}.t")).await;
    assert!(refusal(&ctx, &sql(&cluster, "SELECT * FROM d.{db}.t")).await.contains("not found"));
}

#[tokio::test]
async fn databases_are_made_and_dropped() {
    let (cluster, ctx) = catalog(&[]).await;
    let name = format!("{}_new", cluster.database());
    run(&ctx, &format!("CREATE SCHEMA d.{name}")).await;
    run(&ctx, &format!("CREATE SCHEMA IF NOT EXISTS d.{name}")).await;
    run(&ctx, &format!("CREATE TABLE d.{name}.t AS SELECT 1 AS id")).await;
    assert!(refusal(&ctx, &format!("DROP SCHEMA d.{name}")).await.contains("CASCADE"));
    run(&ctx, &format!("DROP SCHEMA d.{name} CASCADE")).await;
    assert_eq!(cluster.doris(&format!("SHOW DATABASES LIKE '{name}'")).await.len(), 0);
}

/// Without `jdbc-url`, statements go over Arrow Flight SQL.
#[tokio::test]
async fn ddl_needs_no_mysql_protocol() {
    let cluster = Cluster::start().await;
    let ctx = cluster.context();
    let ddl = cluster.catalog_ddl("d", &[("table.properties.replication_num", "1"), ("jdbc-url", "-")]);
    run(&ctx, &ddl.replace("'jdbc-url' '-'", "'catalog.name' 'internal'")).await;
    run(&ctx, &sql(&cluster, "CREATE TABLE d.{db}.made AS SELECT 1 AS id")).await;
    assert_eq!(rows(&cluster, &ctx, "SELECT * FROM d.{db}.made").await, ["1"]);
    let error = refusal(&ctx, &sql(&cluster, "CREATE TABLE d.{db}.\"a`b\" (id INT)")).await;
    assert!(!error.is_empty());
    run(&ctx, &sql(&cluster, "DROP TABLE d.{db}.made")).await;
    assert_eq!(cluster.doris("SHOW TABLES FROM {db}").await.len(), 0);
}

/// In a context of one's own: names resolve, and what it cannot do says how it is done.
#[tokio::test]
async fn a_plain_context_reads_and_writes_and_says_how_tables_are_made() {
    let cluster = Cluster::sandbox().await;
    cluster.duplicate_table("t", "id INT", "").await;
    let connection = ConnectionOptions::new(cluster.fenodes(), "root", Secret::new("s3cret"));
    let catalog = DorisCatalog::connect(CatalogOptions::new(connection)).await.expect("connects");
    assert!(!format!("{catalog:?}").contains("s3cret"));
    let ctx = SessionContext::new();
    ctx.register_catalog("d", Arc::new(catalog.clone()));
    let run = |text: &str| {
        let (ctx, text) = (ctx.clone(), sql(&cluster, text));
        async move { ctx.sql(&text).await?.collect().await }
    };
    run("INSERT INTO d.{db}.t VALUES (1), (2)").await.expect("written");
    assert_eq!(lines(&run("SELECT sum(id) FROM d.{db}.t").await.expect("read")), ["3"]);
    for statement in ["CREATE TABLE d.{db}.made AS SELECT 1 AS id", "CREATE VIEW d.{db}.w AS SELECT 1"] {
        let error = run(statement).await.expect_err(statement).to_string();
        assert!(error.contains("datafusion_doris::sql"), "{statement}: {error}");
    }
    // DataFusion says its own text for whatever keeps a table from being dropped.
    run("DROP TABLE d.{db}.t").await.expect_err("nothing can be dropped");
    assert_eq!(lines(&run("SELECT count(*) FROM d.{db}.t").await.expect("read")), ["2"]);
    assert!(catalog.schema_names().iter().any(|name| name == cluster.database()));
}

#[tokio::test]
async fn what_a_catalog_does_not_take_is_refused_by_name() {
    let (cluster, ctx) = catalog(&[]).await;
    for (options, word) in [
        (vec![("catalog.name", "nope")], "nope"),
        (vec![("password", "wrong")], "refused"),
        (vec![("catalog.tt", "1s")], "catalog.ttl"),
    ] {
        let error = refusal(&ctx, &cluster.catalog_ddl("e", &options)).await;
        assert!(error.contains(word) && !error.contains("s3cret"), "{options:?}: {error}");
    }
    let one_table = cluster.ddl("e", "t", &[]).replacen("EXTERNAL TABLE", "EXTERNAL CATALOG", 1);
    assert!(refusal(&ctx, &one_table).await.contains("table.identifier"));
    let again = cluster.catalog_ddl("d", &[]);
    assert!(refusal(&ctx, &again).await.contains("CREATE OR REPLACE"));
    run(&ctx, &again.replace("CREATE", "CREATE OR REPLACE")).await;
    run(&ctx, &again.replace("CATALOG d", "CATALOG IF NOT EXISTS d")).await;
    assert!(refusal(&ctx, "REFRESH CATALOG nope").await.contains("nope"));
    let view = refusal(&ctx, &sql(&cluster, "CREATE VIEW d.{db}.w AS SELECT 1")).await;
    assert!(view.contains("in doris itself"), "{view}");
    let external = refusal(&ctx, &cluster.ddl(&sql(&cluster, "d.{db}.x"), "t", &[])).await;
    assert!(external.contains("another catalog"), "{external}");
}

#[tokio::test]
async fn the_shell_shows_catalogs() {
    let select = "SELECT count(*) AS n FROM doris.shop.t";
    let made = "CREATE SCHEMA doris.shop; CREATE TABLE doris.shop.t AS SELECT 1 AS id UNION ALL SELECT 2;";
    let outcome = shell(&["--sandbox", "--catalog", "doris", "-q", "--format", "csv", "-c", made, "-c", select]).await;
    assert_eq!((outcome.code, outcome.out.as_str()), (0, "n\n2\n"), "{}", outcome.err);

    let cluster = Cluster::sandbox().await;
    let url = format!("d=doris://{}/{}?username=root&password=s3cret", cluster.fenodes(), cluster.database());
    cluster.duplicate_table("t", "id INT", "").await;
    let outcome =
        shell(&["--catalog", &url, "-q", "--format", "csv", "-c", "USE d; SELECT count(*) AS n FROM t"]).await;
    assert_eq!((outcome.code, outcome.out.as_str()), (0, "n\n0\n"), "{}", outcome.err);
    let outcome = shell(&["--catalog", &url.replace("s3cret", "wr0ng"), "-c", "SELECT 1"]).await;
    assert!(outcome.code == 1 && outcome.err.contains("refused") && !outcome.err.contains("wr0ng"), "{}", outcome.err);
}

#[tokio::test]
async fn the_example_runs() {
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/catalog.sql");
    let run = shell(&["--sandbox", "-q", "--format", "csv", "-f", example]).await;
    let means = "count\n4\nsensor,day,mean\n1,2026-05-01,21.0\n1,2026-05-02,19.0\n2,2026-05-02,\n";
    let tables = "table_name,table_type\nDailyMean,BASE TABLE\nreadings,BASE TABLE\n";
    assert_eq!((run.code, run.out), (0, format!("{means}{tables}")), "{}", run.err);
}
