//! Reads where Arrow Flight SQL is off, incomplete or unreachable: the same rows, or an error, never fewer rows.

use std::time::{Duration, Instant};

use datafusion::prelude::SessionContext;
use doris_sandbox::{Action, Fault, FlightConfig, Sandbox, Site};
use futures::{StreamExt, TryStreamExt};

use crate::harness::{Cluster, count, lines, refusal, run};

const PATIENCE: Duration = Duration::from_secs(60);
const BY_MYSQL: [(&str, &str); 1] = [("source.use-flight-sql", "false")];

const TYPES: &str = "CREATE TABLE {db}.types (id INT NOT NULL, b BOOLEAN, t TINYINT, s SMALLINT, i INT, l BIGINT, g LARGEINT,
       f FLOAT, d DOUBLE, p DECIMAL(10, 2), q DECIMAL(38, 10), a DATE, m DATETIME, n DATETIME(6), c CHAR(5), v VARCHAR(50),
       x STRING, j JSON, ip4 IPV4, ip6 IPV6, aint ARRAY<INT>, adate ARRAY<ARRAY<DATE>>, mp MAP<INT, DECIMAL(6, 3)>,
       st STRUCT<a:INT, b:BOOLEAN>)
     DUPLICATE KEY(id) DISTRIBUTED BY HASH(id) BUCKETS 3;
     INSERT INTO {db}.types VALUES
       (1, true, -128, 32767, -2147483648, 9223372036854775807, -170141183460469231731687303715884105728, 1.5, 1e300,
        -99999999.99, 1234567890123456789012345678.0123456789, '0001-01-01', '9999-12-31 23:59:59',
        '2024-02-29 00:00:00.000001', 'ab', 'it''s \"q\" \\\\', '中文', '{\"k\": [1, null, \"x\"]}', '192.168.0.1', 'fe80::1',
        [1, NULL, -3], [['2024-02-29'], []], {1:1.5, 2:NULL}, NAMED_STRUCT('a', 7, 'b', false)),
       (2, false, 127, -32768, 0, 0, 170141183460469231731687303715884105727, -0.25, -1.25, 0, 0, '9999-12-31',
        '1970-01-01 00:00:00', '1969-12-31 23:59:59.999999', '', '', '', '[]', '255.255.255.255', '::', [], NULL, {}, NULL),
       (3, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
        NULL, NULL, NULL, NULL)";

fn without_flight() -> doris_sandbox::SandboxBuilder {
    Sandbox::builder().flight(FlightConfig { switched_off: true, ..FlightConfig::default() })
}

async fn explain(ctx: &SessionContext, sql: &str) -> String {
    lines(&run(ctx, &format!("EXPLAIN {sql}")).await).join("\n")
}

/// A table of `rows` rows with the ids from 1 on.
async fn filled(cluster: &Cluster, rows: usize, options: &[(&str, &str)]) -> SessionContext {
    cluster.doris("CREATE TABLE {db}.t (id INT, s STRING) DUPLICATE KEY(id) DISTRIBUTED BY HASH(id) BUCKETS 1").await;
    let ctx = cluster.context();
    cluster.declare(&ctx, "w", "t", &[]).await;
    run(&ctx, &format!("INSERT INTO w SELECT value, repeat('x', 100) FROM generate_series(1, {rows})")).await;
    cluster.declare(&ctx, "t", "t", options).await;
    ctx
}

#[tokio::test]
async fn every_type_reads_the_same_over_flight_and_the_mysql_protocol() {
    let cluster = Cluster::start().await;
    cluster.doris(TYPES).await;
    let ctx = cluster.context();
    cluster.declare(&ctx, "flight", "types", &[]).await;
    cluster.declare(&ctx, "mysql", "types", &BY_MYSQL).await;
    let by_flight = run(&ctx, "SELECT * FROM flight ORDER BY id").await;
    let by_mysql = run(&ctx, "SELECT * FROM mysql ORDER BY id").await;
    assert_eq!(by_flight[0].schema(), by_mysql[0].schema());
    assert_eq!(lines(&by_flight), lines(&by_mysql));
    assert_eq!(by_flight, by_mysql);
    assert!(explain(&ctx, "SELECT id FROM mysql").await.contains("transport=mysql"));
    assert!(!explain(&ctx, "SELECT id FROM flight").await.contains("transport"));
    for sql in ["SELECT count(*) FROM {t}", "SELECT v FROM {t} WHERE i < 0 LIMIT 1", "SELECT id FROM {t} WHERE id < 0"]
    {
        let of = |table: &str| sql.replace("{t}", table);
        assert_eq!(lines(&run(&ctx, &of("flight")).await), lines(&run(&ctx, &of("mysql")).await), "{sql}");
    }
}

#[tokio::test]
async fn an_fe_without_flight_is_read_over_the_mysql_protocol() {
    let cluster = Cluster::of(without_flight()).await;
    let ctx = filled(&cluster, 20_000, &[]).await;
    assert!(explain(&ctx, "SELECT id FROM t").await.contains("transport=mysql"));
    assert_eq!(lines(&run(&ctx, "SELECT count(*), sum(id), min(length(s)) FROM t").await), ["20000 | 200010000 | 100"]);
    // The address is the FE's own when the options name none.
    let ddl = cluster.ddl("bare", "t", &[]);
    let start = ddl.find("'jdbc-url'").expect("is named");
    let end = start + ddl[start..].find(", ").expect("more follow") + 2;
    run(&ctx, &format!("{}{}", &ddl[..start], &ddl[end..])).await;
    assert_eq!(lines(&run(&ctx, "SELECT max(id) FROM bare").await), ["20000"]);
}

#[tokio::test]
async fn texts_inside_of_nested_values_are_refused_over_the_mysql_protocol() {
    let cluster = Cluster::start().await;
    cluster
        .doris("CREATE TABLE {db}.t (id INT, a ARRAY<STRING>) DUPLICATE KEY(id) DISTRIBUTED BY HASH(id) BUCKETS 1")
        .await;
    let ctx = cluster.context();
    cluster.declare(&ctx, "t", "t", &BY_MYSQL).await;
    let message = refusal(&ctx, "SELECT a FROM t").await;
    assert!(message.contains("'a'") && message.contains("arrow flight"), "{message}");
    assert_eq!(count(&run(&ctx, "SELECT id FROM t").await), 0);
}

#[tokio::test]
async fn a_satisfied_limit_or_a_dropped_read_leaves_no_mysql_connection() {
    let cluster = Cluster::of(without_flight()).await;
    let ctx = filled(&cluster, 50_000, &[]).await;
    let closed =
        || tokio::time::timeout(PATIENCE, cluster.server().until(|server| server.open_mysql_connections() == 0));
    assert_eq!(count(&run(&ctx, "SELECT * FROM t LIMIT 3").await), 3);
    closed().await.expect("closed after LIMIT");
    let frame = datafusion_doris::sql(&ctx, "SELECT * FROM t").await.expect("plans");
    let mut stream = frame.execute_stream().await.expect("runs");
    stream.next().await.expect("a batch").expect("rows");
    drop(stream);
    closed().await.expect("closed after a drop");
}

#[tokio::test]
async fn a_mysql_result_that_ends_early_is_an_error() {
    let cluster = Cluster::of(without_flight()).await;
    let ctx = filled(&cluster, 200_000, &[]).await;
    let frame = datafusion_doris::sql(&ctx, "SELECT * FROM t").await.expect("plans");
    let mut stream = frame.execute_stream().await.expect("runs");
    stream.next().await.expect("a batch").expect("rows");
    cluster.server().frontend(0).stop().await;
    let error = stream.try_for_each(|_| std::future::ready(Ok(()))).await.expect_err("rows are missing");
    assert!(error.to_string().contains("reading the result"), "{error}");
}

#[tokio::test]
async fn a_lost_mysql_answer_before_the_first_row_is_asked_for_again() {
    let cluster = Cluster::of(without_flight()).await;
    let ctx = filled(&cluster, 10, &[]).await;
    cluster.server().faults().push(Fault::new(Action::DropAnswer).at(Site::Mysql).when("select"));
    assert_eq!(lines(&run(&ctx, "SELECT sum(id) FROM t").await), ["55"]);
    assert_eq!(cluster.server().faults().armed(), 0, "the fault was used");
    let refused = Action::Status { code: 1105, body: "errCode = 2, detailMessage = no".to_string() };
    cluster.server().faults().push(Fault::new(refused).at(Site::Mysql).when("select").always());
    let message = refusal(&ctx, "SELECT sum(id) FROM t").await;
    assert!(message.contains("detailMessage = no"), "{message}");
    assert_eq!(cluster.server().faults().applied().len(), 2, "a refusal is final");
}

#[tokio::test]
async fn an_answer_without_endpoints_is_read_from_the_fe_itself() {
    let cluster = Cluster::sandbox().await;
    let ctx = filled(&cluster, 10, &[]).await;
    let nowhere = Action::FlightResults(vec![]);
    cluster.server().faults().push(Fault::new(nowhere).at(Site::FeFlight).when("`s`"));
    assert_eq!(lines(&run(&ctx, "SELECT sum(length(s)) FROM t").await), ["1000"]);
    assert_eq!(cluster.server().faults().armed(), 0, "the fault was used");
}

#[tokio::test]
async fn a_stream_that_breaks_is_an_error_or_read_again_from_its_start() {
    let config = FlightConfig { result_sink_buffer_size_rows: 100, ..FlightConfig::default() };
    let cluster = Cluster::of(Sandbox::builder().flight(config)).await;
    let ctx = filled(&cluster, 1_000, &[]).await;
    let error = |batches| Action::FlightErrorAfterBatches { batches, message: "disk is gone".to_string() };
    for broken in [Action::FlightCutAfterBatches(3), error(3)] {
        cluster.server().faults().push(Fault::new(broken.clone()).at(Site::BeFlight).when("`s`"));
        let message = refusal(&ctx, "SELECT id, s FROM t").await;
        assert!(message.contains("127.0.0.1"), "{message}");
        assert_eq!(cluster.server().faults().armed(), 0, "{broken:?} was used");
    }
    for broken in [Action::FlightCutAfterBatches(0), error(0)] {
        cluster.server().faults().push(Fault::new(broken.clone()).at(Site::BeFlight).when("`s`"));
        assert_eq!(lines(&run(&ctx, "SELECT sum(id), count(s) FROM t").await), ["500500 | 1000"]);
        assert_eq!(cluster.server().faults().armed(), 0, "{broken:?} was used");
    }
}

#[tokio::test]
async fn a_dead_endpoint_is_asked_for_again_and_named_when_there_is_no_other() {
    let cluster = Cluster::sandbox().await;
    let ctx = filled(&cluster, 10, &[("doris.request.retries", "2")]).await;
    let dead = |times| {
        let fault = Fault::new(Action::FlightLocation("grpc+tcp://127.0.0.1:1".to_string()));
        fault.at(Site::FeFlight).when("`id`").times(times)
    };
    cluster.server().faults().push(dead(1));
    assert_eq!(lines(&run(&ctx, "SELECT sum(id) FROM t").await), ["55"]);
    assert_eq!(cluster.server().faults().armed(), 0, "the fault was used");
    cluster.server().faults().push(dead(2));
    let message = refusal(&ctx, "SELECT sum(id) FROM t").await;
    assert!(message.contains("127.0.0.1:1 "), "{message}");
    assert_eq!(cluster.server().faults().armed(), 0, "the fault was used");
}

// C022
#[tokio::test]
async fn c022_be_address_is_private() {
    let cluster = Cluster::sandbox().await;
    let ctx = filled(&cluster, 10, &[("doris.request.connect.timeout", "2s")]).await;
    let private = Action::FlightLocation("grpc+tcp://10.255.255.1:8070".to_string());
    cluster.server().faults().push(Fault::new(private).at(Site::FeFlight).when("`id`").always());
    let began = Instant::now();
    let message = refusal(&ctx, "SELECT sum(id) FROM t").await;
    assert!(message.contains("10.255.255.1:8070"), "{message}");
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    let port = cluster.server().addresses().be_flight.port();
    for map in [format!("10.255.255.1=127.0.0.1:{port}"), format!("other=x,10.255.255.1:8070=127.0.0.1:{port}")] {
        let options = [("doris.flight.host-map", map.as_str()), ("doris.request.connect.timeout", "2s")];
        run(&ctx, "DROP TABLE IF EXISTS mapped").await;
        cluster.declare(&ctx, "mapped", "t", &options).await;
        assert_eq!(lines(&run(&ctx, "SELECT sum(id) FROM mapped").await), ["55"], "{map}");
    }
}

#[tokio::test]
async fn a_kept_session_that_the_server_ended_is_replaced() {
    let cluster = Cluster::sandbox().await;
    let ctx = filled(&cluster, 10, &[]).await;
    assert_eq!(lines(&run(&ctx, "SELECT sum(id) FROM t").await), ["55"]);
    cluster.server().expire_flight_tokens();
    assert_eq!(lines(&run(&ctx, "SELECT sum(id) FROM t").await), ["55"]);
    cluster.server().frontend(0).restart().await.expect("starts again");
    assert_eq!(lines(&run(&ctx, "SELECT sum(id) FROM t").await), ["55"]);
}
