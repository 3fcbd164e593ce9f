//! Cases of the catalogue about Flight connections: endpoints, tokens, sessions, replicas.

use std::time::Duration;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::DataType;
use datafusion::prelude::SessionContext;
use datafusion_doris::client::DorisClient;
use datafusion_doris::options::{ConnectionOptions, Secret};
use doris_sandbox::{Action, Fault, FlightConfig, NodeId, Sandbox, SandboxBuilder, Site};
use futures::TryStreamExt;

use crate::harness::{Cluster, count, lines, refusal, run};

const PATIENCE: Duration = Duration::from_secs(60);

async fn numbers(builder: SandboxBuilder, rows: usize) -> (Cluster, SessionContext) {
    numbers_in(builder, rows, 4).await
}

async fn numbers_in(builder: SandboxBuilder, rows: usize, tablets: usize) -> (Cluster, SessionContext) {
    let cluster = Cluster::of(builder).await;
    let model = format!("DUPLICATE KEY(id) DISTRIBUTED BY HASH(id) BUCKETS {tablets}");
    cluster.doris(&format!("CREATE TABLE {{db}}.t (id INT, s STRING) {model}")).await;
    let values: Vec<String> = (1..=rows).map(|id| format!("({id}, 'r{id}')")).collect();
    cluster.doris(&format!("INSERT INTO {{db}}.t VALUES {}", values.join(", "))).await;
    let ctx = cluster.context();
    cluster.declare(&ctx, "t", "t", &[]).await;
    (cluster, ctx)
}

fn ids(rows: usize) -> Vec<String> {
    (1..=rows).map(|id| id.to_string()).collect()
}

async fn read_ids(ctx: &SessionContext) -> Vec<RecordBatch> {
    run(ctx, "SELECT id FROM t ORDER BY id").await
}

#[tokio::test]
async fn c021_endpoint_says_0_0_0_0() {
    let (cluster, ctx) = numbers(Sandbox::builder(), 2).await;
    let port = cluster.server().addresses().be_flight.port();
    let anywhere = Action::FlightLocation(format!("grpc+tcp://0.0.0.0:{port}"));
    cluster.server().faults().push(Fault::new(anywhere).at(Site::FeFlight).when("`id`").always());
    assert_eq!(lines(&read_ids(&ctx).await), ids(2));
    assert!(!cluster.server().faults().applied().is_empty(), "the fault was used");
    // What the FE itself holds.
    cluster.doris("CREATE VIEW {db}.v AS SELECT id FROM {db}.t").await;
    let port = cluster.server().addresses().fe_flight.port();
    let anywhere = Action::FlightLocation(format!("grpc+tcp://0.0.0.0:{port}"));
    cluster.server().faults().push(Fault::new(anywhere).at(Site::FeFlight).when("show tables"));
    let options = ConnectionOptions::new(cluster.fenodes(), cluster.username(), Secret::new(cluster.password()));
    let client = DorisClient::try_new(options.into()).expect("options");
    let mut session = client.open_flight(&[]).await.expect("logs in");
    let shown = session.query(&format!("SHOW TABLES FROM {}", cluster.database())).await.expect("answers");
    let shown: Vec<RecordBatch> = shown.into_stream().try_collect().await.expect("rows");
    assert_eq!(lines(&shown), ["t", "v"]);
    session.close().await.expect("closes");
    assert_eq!(cluster.server().faults().armed(), 1, "the second fault was used");
}

#[tokio::test]
async fn c023_several_endpoints_one_of_them_empty() {
    let (cluster, ctx) = numbers(Sandbox::builder().backends(2), 15).await;
    ctx.state_ref().write().config_mut().options_mut().execution.target_partitions = 1;
    let table = cluster.table("t");
    let parts = |columns: &str| {
        let part = |condition: &str| format!("SELECT {columns} FROM {table} WHERE {condition}");
        Action::FlightResults(vec![part("id <= 10"), part("id > 100"), part("id > 10")])
    };
    cluster.server().faults().push(Fault::new(parts("id")).at(Site::FeFlight).when("`id`"));
    assert_eq!(lines(&read_ids(&ctx).await), ids(15));
    // The count of a scan; an aggregate that Doris does itself comes in one part.
    run(&ctx, "SET doris.pushdown.aggregate = false").await;
    cluster.server().faults().push(Fault::new(parts("COUNT(*) AS row_count")).at(Site::FeFlight).when("count("));
    assert_eq!(lines(&run(&ctx, "SELECT count(*) FROM t").await), ["15"]);
    assert_eq!(cluster.server().faults().armed(), 0, "the faults were used");
}

#[tokio::test]
async fn c024_bearer_token_missing_on_the_data_call() {
    let (cluster, ctx) = numbers(Sandbox::builder().backends(2), 12).await;
    cluster.server().faults().push(Fault::new(Action::RequireBearer).at(Site::BeFlight).always());
    assert_eq!(lines(&read_ids(&ctx).await), ids(12));
    let nodes = |node| cluster.server().requests().at_node(NodeId::Be(node)).iter().any(|seen| seen.method == "DoGet");
    assert!(nodes(0) && nodes(1), "both BEs were asked");
}

#[tokio::test]
async fn c025_row_larger_than_4_mib() {
    let cluster = Cluster::of(Sandbox::builder().string_limit_bytes(8 << 20)).await;
    cluster.doris("CREATE TABLE {db}.t (id INT, s STRING) DUPLICATE KEY(id) DISTRIBUTED BY HASH(id) BUCKETS 1").await;
    let ctx = cluster.context();
    cluster.declare(&ctx, "t", "t", &[]).await;
    run(&ctx, "INSERT INTO t SELECT 1, repeat('x', 6291456)").await;
    cluster.declare(&ctx, "by_mysql", "t", &[("source.use-flight-sql", "false")]).await;
    for table in ["t", "by_mysql"] {
        // The condition is no part of what Doris does, so that the row travels.
        let sql = format!("SELECT length(s) FROM {table} WHERE upper(s) <> ''");
        assert_eq!(lines(&run(&ctx, &sql).await), ["6291456"], "{table}");
    }
    for limit in ["1mb", "4mb"] {
        run(&ctx, "DROP TABLE IF EXISTS small").await;
        cluster.declare(&ctx, "small", "t", &[("doris.flight.max-message-size", limit)]).await;
        let message = refusal(&ctx, "SELECT s FROM small").await;
        assert!(message.contains("doris.flight.max-message-size"), "{message}");
    }
    // A batch of 32768 rows, as servers send them, was 20 MB in a report of users.
    let default = ConnectionOptions::new("fe", "root", Secret::new("")).flight_max_message_bytes;
    assert!(default > 20_748_753, "{default}");
}

#[tokio::test]
async fn c026_connections_pile_up_on_the_fe() {
    let flight = FlightConfig { max_user_connections: 51, ..FlightConfig::default() };
    let (cluster, ctx) = numbers_in(Sandbox::builder().flight(flight), 3, 1).await;
    cluster.server().requests().clear();
    for _ in 0..500 {
        assert_eq!(lines(&run(&ctx, "SELECT 1 FROM t LIMIT 1").await), ["1"]);
    }
    let calls = |method: &str| cluster.server().requests().all().iter().filter(|seen| seen.method == method).count();
    let logins = calls("Handshake");
    assert!((1..=8).contains(&logins), "{logins} logins");
    assert!(cluster.server().open_flight_tokens() <= 8);
    cluster.server().requests().clear();
    drop(ctx);
    tokio::time::timeout(PATIENCE, cluster.server().until(|server| server.open_flight_tokens() == 0))
        .await
        .expect("all sessions are closed");
    let closed = cluster.server().requests().matching(Site::FeFlight, "CloseSession").len();
    assert_eq!(closed, logins, "each session is closed by the action");
}

#[tokio::test]
async fn c027_point_query_returns_no_endpoint() {
    let cluster = Cluster::start().await;
    cluster
        .doris(
            "CREATE TABLE {db}.t (k1 INT, k2 VARCHAR(10), v VARCHAR(10)) UNIQUE KEY(k1, k2)
             DISTRIBUTED BY HASH(k1) BUCKETS 1
             PROPERTIES ('replication_num' = '1', 'enable_unique_key_merge_on_write' = 'true', 'store_row_column' = 'true');
             INSERT INTO {db}.t VALUES (1, 'a', 'one'), (2, 'a', 'two')",
        )
        .await;
    let ctx = cluster.context();
    cluster.declare(&ctx, "t", "t", &[]).await;
    assert_eq!(lines(&run(&ctx, "SELECT v FROM t WHERE k1 = 1 AND k2 = 'a'").await), ["one"]);
    let nothing = run(&ctx, "SELECT v FROM t WHERE k1 = 9 AND k2 = 'a'").await;
    assert!(lines(&nothing).is_empty());
}

/// An endpoint that sends a schema only, and one that sends no message at all.
#[tokio::test]
async fn c028_zero_rows_lose_the_schema() {
    let cluster = Cluster::sandbox().await;
    cluster
        .duplicate_table("t", "id INT, s STRING, l LARGEINT, d DECIMAL(10, 2), ts DATETIME(3), a ARRAY<DATE>", "")
        .await;
    cluster.doris("INSERT INTO {db}.t VALUES (1, 'a', 1, 1.5, '2024-01-01 00:00:00', [])").await;
    let ctx = cluster.context();
    cluster.declare(&ctx, "t", "t", &[]).await;
    let columns = |schema: &datafusion::common::DFSchema| -> Vec<(String, DataType)> {
        schema.fields().iter().map(|field| (field.name().clone(), field.data_type().clone())).collect()
    };
    let wanted = columns(datafusion_doris::sql(&ctx, "SELECT * FROM t").await.expect("plans").schema());
    assert_eq!(wanted.len(), 6);
    for action in [Action::FlightSchemaOnly, Action::FlightNoMessage] {
        let name = action.name();
        cluster.server().faults().clear();
        cluster.server().faults().push(Fault::new(action).at(Site::BeFlight).always());
        let before = cluster.server().faults().applied().len();
        for condition in ["id < 0", "false"] {
            let frame =
                datafusion_doris::sql(&ctx, &format!("SELECT * FROM t WHERE {condition}")).await.expect("plans");
            assert_eq!(columns(frame.schema()), wanted, "{name} {condition}");
            let batches = frame.collect().await.expect("runs");
            assert_eq!(count(&batches), 0, "{name} {condition}");
            assert!(batches.iter().all(|batch| batch.num_columns() == 6), "{name} {condition}");
            run(&ctx, "DROP TABLE IF EXISTS x").await;
            run(&ctx, &format!("CREATE TABLE x AS SELECT * FROM t WHERE {condition}")).await;
            let made = datafusion_doris::sql(&ctx, "SELECT * FROM x").await.expect("plans");
            assert_eq!(columns(made.schema()), wanted, "{name} {condition}");
            assert_eq!(count(&made.collect().await.expect("runs")), 0, "{name} {condition}");
        }
        assert_eq!(lines(&run(&ctx, "SELECT sum(d) FROM (SELECT * FROM t WHERE upper(s) = 'B')").await), ["NULL"]);
        assert!(cluster.server().faults().applied().len() > before, "{name} was used");
    }
}

#[tokio::test]
async fn c071_views() {
    let (cluster, ctx) = numbers(Sandbox::builder(), 3).await;
    cluster.doris("CREATE VIEW {db}.v AS SELECT id, s FROM {db}.t WHERE id < 3").await;
    cluster.declare(&ctx, "v", "v", &[]).await;
    assert_eq!(lines(&run(&ctx, "SELECT * FROM v ORDER BY id").await), ["1 | r1", "2 | r2"]);
    let plan = lines(&run(&ctx, "EXPLAIN SELECT * FROM v").await).join("\n");
    assert!(plan.contains("partitions=1") && !plan.contains("TABLET("), "{plan}");
}

#[tokio::test]
async fn c086_tablet_read_fails_on_first_be() {
    let (cluster, ctx) = numbers(Sandbox::builder().backends(2), 12).await;
    let busy = || Fault::new(Action::Status { code: 13, body: "too many scans".to_string() }).at(Site::BeFlight);
    cluster.server().faults().push(busy().node(NodeId::Be(0)).times(2));
    assert_eq!(lines(&read_ids(&ctx).await), ids(12));
    assert_eq!(cluster.server().faults().armed(), 0, "the fault was used");
    cluster.server().faults().push(busy().always());
    let message = refusal(&ctx, "SELECT id FROM t ORDER BY id").await;
    assert!(message.contains("too many scans"), "{message}");
}
