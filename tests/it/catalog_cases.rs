//! Known failure modes of other clients: schema, names and catalogs.

use doris_sandbox::{Action, Fault, Sandbox, Site};

use crate::harness::{Cluster, lines, refusal, run};

/// A view is listed with its columns and read by one statement: it has no tablets.
#[tokio::test]
async fn c071_views_are_listed_and_read() {
    let cluster = Cluster::start().await;
    cluster.duplicate_table("t", "id INT, name VARCHAR(10)", "").await;
    cluster.doris("INSERT INTO {db}.t VALUES (1, 'a'), (2, 'b'), (3, 'c')").await;
    cluster.doris("CREATE VIEW {db}.v AS SELECT id, upper(name) AS n FROM {db}.t WHERE id > 1").await;
    let ctx = cluster.context();
    run(&ctx, &cluster.catalog_ddl("d", &[])).await;
    let db = cluster.database();
    let listed = format!(
        "SELECT table_name, table_type FROM information_schema.tables WHERE table_schema = '{db}' ORDER BY table_name"
    );
    assert_eq!(lines(&run(&ctx, &listed).await), ["t | BASE TABLE", "v | VIEW"]);
    let described = lines(&run(&ctx, &format!("DESCRIBE d.{db}.v")).await);
    assert_eq!(described, ["id | Int32 | YES", "n | Utf8 | YES"]);
    cluster.declare(&ctx, "declared", "v", &[]).await;
    for view in [format!("d.{db}.v"), "declared".to_string()] {
        let query = format!("SELECT * FROM {view}");
        let mut rows = lines(&run(&ctx, &query).await);
        rows.sort();
        assert_eq!(rows, ["2 | B", "3 | C"]);
        let plan = lines(&run(&ctx, &format!("EXPLAIN {query}")).await).join("\n");
        assert!(plan.contains("DorisScanExec") && !plan.contains("TABLET("), "{plan}");
    }
}

/// Capitals: the quoted spelling works and travels as it is; the unquoted one is refused with the quoted one as advice.
#[tokio::test]
async fn c072_column_names_keep_their_capitals() {
    let cluster = Cluster::start().await;
    cluster.duplicate_table("t", "UserId INT, `order` INT", "").await;
    cluster.doris("INSERT INTO {db}.t VALUES (1, 10), (2, 20)").await;
    let ctx = cluster.context();
    cluster.declare(&ctx, "t", "t", &[]).await;
    let query = "SELECT \"UserId\" FROM t WHERE \"UserId\" = 1";
    assert_eq!(lines(&run(&ctx, query).await), ["1"]);
    let plan = lines(&run(&ctx, &format!("EXPLAIN {query}")).await).join("\n");
    assert!(plan.contains("`UserId` = 1"), "{plan}");
    assert_eq!(lines(&run(&ctx, "SELECT \"order\" FROM t WHERE \"order\" > 10").await), ["20"]);
    let error = refusal(&ctx, "SELECT UserId FROM t").await;
    assert!(error.contains("UserId"), "{error}");
    let all = run(&ctx, "SELECT * FROM t ORDER BY \"order\"").await;
    let names: Vec<String> = all[0].schema().fields().iter().map(|field| field.name().clone()).collect();
    assert_eq!(names, ["UserId", "order"]);
}

/// Databases, tables and columns of every odd name: listed, read, filtered and written.
#[tokio::test]
async fn odd_names_are_listed_read_and_written() {
    let cluster = Cluster::start().await;
    let ctx = cluster.context();
    run(&ctx, &cluster.catalog_ddl("d", &[("table.properties.replication_num", "1")])).await;
    let db = cluster.database();
    for (number, name) in ["数据", "MixedCase", "with-hyphen", "select", "_under"].iter().enumerate() {
        let (database, table) = (format!("{db}_{number}"), format!("\"{name}\""));
        run(&ctx, &format!("CREATE SCHEMA d.{database}")).await;
        let table = format!("d.{database}.{table}");
        run(&ctx, &format!("CREATE TABLE {table} (id INT, \"{name} 列\" VARCHAR, PRIMARY KEY (id))")).await;
        run(&ctx, &format!("INSERT INTO {table} VALUES (1, 'x'), (2, '中文')")).await;
        let query = format!("SELECT \"{name} 列\" FROM {table} WHERE \"{name} 列\" = '中文'");
        assert_eq!(lines(&run(&ctx, &query).await), ["中文"], "{name}");
        let listed = format!("SELECT table_name FROM information_schema.tables WHERE table_schema = '{database}'");
        assert_eq!(lines(&run(&ctx, &listed).await), [*name]);
        run(&ctx, &format!("DROP TABLE {table}")).await;
    }
    run(&ctx, &format!("CREATE TABLE d.{db}.\"Orders\" (id INT)")).await;
    let error = refusal(&ctx, &format!("SELECT * FROM d.{db}.Orders")).await;
    assert!(error.contains("\"Orders\"") && error.contains("double quotes"), "{error}");
}

/// The types of a table as servers spell them; a type that is unknown is refused by column and type, and spoils no other.
#[tokio::test]
async fn c073_type_texts_of_all_spellings_are_read() {
    let cluster = Cluster::start().await;
    cluster
        .doris(
            "CREATE TABLE {db}.t (id INT, a DECIMAL(10,2), b DECIMALV3(18, 6), c DECIMALV3(20, 0), d DATETIMEV2(6),
               e VARCHAR(65533), f STRING, g TEXT, h ARRAY<STRUCT<a:INT, b:MAP<STRING, DECIMALV3(10, 2)>>>)
             DUPLICATE KEY(id) DISTRIBUTED BY HASH(id) BUCKETS 1 PROPERTIES ('replication_num' = '1')",
        )
        .await;
    let ctx = cluster.context();
    cluster.declare(&ctx, "t", "t", &[]).await;
    let types: Vec<String> = lines(&run(&ctx, "DESCRIBE t").await)
        .iter()
        .map(|line| line.split(" | ").nth(1).expect("a type").to_string())
        .collect();
    assert_eq!(types[..4], ["Int32", "Decimal128(10, 2)", "Decimal128(18, 6)", "Decimal128(20, 0)"]);
    assert_eq!(types[4..8], ["Timestamp(µs)", "Utf8", "Utf8", "Utf8"]);
    assert!(types[8].starts_with("List(Struct(") && types[8].contains("Decimal128(10, 2)"), "{}", types[8]);

    // A type of tomorrow.
    let cluster = Cluster::sandbox().await;
    cluster.duplicate_table("t", "id INT, place STRING", "").await;
    cluster.doris("INSERT INTO {db}.t VALUES (1, 'x')").await;
    let body = r#"{"msg": "success", "code": 0, "data": {"type": "result_set", "meta": [
        {"name": "Field", "type": "CHAR"}, {"name": "Type", "type": "CHAR"}, {"name": "Null", "type": "CHAR"},
        {"name": "Key", "type": "CHAR"}, {"name": "Default", "type": "CHAR"}, {"name": "Extra", "type": "CHAR"}],
        "data": [["id", "int", "Yes", "true", null, ""], ["place", "geometry(4326)", "Yes", "false", null, "NONE"]],
        "status": {}, "time": 1}, "count": 0}"#;
    let described = Action::Status { code: 200, body: body.to_string() };
    cluster.server().faults().push(Fault::new(described).at(Site::Fe).when("/api/query/"));
    let ctx = cluster.context();
    cluster.declare(&ctx, "t", "t", &[]).await;
    assert_eq!(cluster.server().faults().armed(), 0, "DESC is asked for first");
    for sql in ["SELECT * FROM t", "SELECT place FROM t"] {
        let error = refusal(&ctx, sql).await;
        assert!(error.contains("column 'place'") && error.contains("geometry(4326)"), "{error}");
    }
    assert_eq!(lines(&run(&ctx, "SELECT id FROM t").await), ["1"]);
}

/// Names of three parts: an external catalog of Doris, as a catalog and as one table.
#[tokio::test]
async fn external_catalogs_are_read_by_three_part_names() {
    let cluster = Cluster::of(Sandbox::builder().external_catalog("hive")).await;
    cluster.doris("CREATE DATABASE hive__sales; CREATE DATABASE hive__empty").await;
    cluster
        .doris(
            "CREATE TABLE hive__sales.orders (id INT, name VARCHAR(10)) DUPLICATE KEY(id) DISTRIBUTED BY HASH(id)
             BUCKETS 4 PROPERTIES ('replication_num' = '1'); INSERT INTO hive__sales.orders VALUES (1, 'a'), (2, 'b')",
        )
        .await;
    let ctx = cluster.context();
    run(&ctx, &cluster.catalog_ddl("h", &[("catalog.name", "hive")])).await;
    let listed = "SELECT table_schema, table_name FROM information_schema.tables WHERE table_catalog = 'h' AND \
                  table_schema <> 'information_schema'";
    assert_eq!(lines(&run(&ctx, listed).await), ["sales | orders"]);
    run(&ctx, &cluster.ddl("orders", "x", &[("table.identifier", "hive.sales.orders")])).await;
    for table in ["h.sales.orders", "orders"] {
        let query = format!("SELECT name FROM {table} WHERE id = 2");
        assert_eq!(lines(&run(&ctx, &query).await), ["b"]);
        let plan = lines(&run(&ctx, &format!("EXPLAIN {query}")).await).join("\n");
        assert!(plan.contains("`hive`.`sales`.`orders`") && !plan.contains("TABLET("), "{plan}");
        // Another system may take 'b' and 'B' for equal: what is known of texts there is sent, and asked again here.
        for (condition, sent) in [
            ("name = 'b'", true),
            ("name IN ('b', 'c')", true),
            ("name <> 'a'", false),
            ("name > 'a'", false),
            ("name LIKE 'b%'", false),
        ] {
            let query = format!("SELECT id FROM {table} WHERE {condition}");
            assert_eq!(lines(&run(&ctx, &query).await), ["2"], "{condition}");
            let plan = lines(&run(&ctx, &format!("EXPLAIN FORMAT INDENT {query}")).await).join("\n");
            assert!(plan.contains("FilterExec") && plan.contains(" WHERE (") == sent, "{condition}: {plan}");
        }
        let query = format!("SELECT name, count(*) FROM {table} GROUP BY name ORDER BY name");
        assert_eq!(lines(&run(&ctx, &query).await), ["a | 1", "b | 1"]);
        let plan = lines(&run(&ctx, &format!("EXPLAIN FORMAT INDENT {query}")).await).join("\n");
        assert!(plan.contains("AggregateExec"), "{plan}");
        let plan = lines(&run(&ctx, &format!("EXPLAIN FORMAT INDENT SELECT max(id) FROM {table}")).await).join("\n");
        assert!(!plan.contains("AggregateExec"), "{plan}");
        for change in [
            format!("INSERT INTO {table} VALUES (3, 'c')"),
            format!("DELETE FROM {table} WHERE id = 2"),
            format!("UPDATE {table} SET name = 'c' WHERE id = 2"),
            format!("TRUNCATE TABLE {table}"),
        ] {
            let error = refusal(&ctx, &change).await;
            assert!(error.contains("read only"), "{change}: {error}");
        }
    }
    for statement in ["CREATE TABLE h.sales.made AS SELECT 1 AS id", "DROP TABLE h.sales.orders"] {
        assert!(refusal(&ctx, statement).await.contains("external catalog hive"), "{statement}");
    }
    let nothing = refusal(&ctx, "SELECT * FROM h.sales.nothing").await;
    assert!(nothing.contains("not found"), "{nothing}");
}
