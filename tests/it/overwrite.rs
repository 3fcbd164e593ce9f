//! INSERT OVERWRITE: readers see the old rows or the new ones, and what fails leaves the old ones.

use std::sync::Arc;
use std::time::Duration;

use datafusion::prelude::SessionContext;
use doris_sandbox::{Action, Fault, Site};
use tokio::sync::Notify;

use crate::harness::{Cluster, lines, refusal, run, try_run};

const COLUMNS: &str = "id INT NOT NULL, v VARCHAR(20), n INT DEFAULT '7'";

/// Tables `u` (unique) and `d` (duplicate) with two rows, and a source of three.
async fn tables(cluster: &Cluster) -> SessionContext {
    cluster.unique_table("u", COLUMNS, "").await;
    cluster.duplicate_table("d", COLUMNS, "").await;
    let ctx = cluster.context();
    for table in ["u", "d"] {
        cluster.doris(&format!("INSERT INTO {{db}}.{table} VALUES (1, 'old', 1), (2, 'old', 2)")).await;
        cluster.declare(&ctx, table, table, &[]).await;
    }
    run(
        &ctx,
        "CREATE TABLE source (id INT, v VARCHAR, n INT) AS VALUES (2, 'new', 20), (3, 'new', 30), (4, NULL, NULL)",
    )
    .await;
    ctx
}

async fn rows(cluster: &Cluster, table: &str) -> Vec<String> {
    let rows = cluster.doris(&format!("SELECT * FROM {{db}}.{table} ORDER BY id, v")).await;
    let cell = |cell: Option<String>| cell.unwrap_or_else(|| "NULL".into());
    rows.into_iter().map(|row| row.into_iter().map(cell).collect::<Vec<_>>().join(" ")).collect()
}

/// Tables that statements left behind.
async fn left_behind(cluster: &Cluster) -> usize {
    let tables = cluster.doris("SHOW TABLES FROM {db}").await;
    tables.iter().filter(|row| row[0].as_deref().is_some_and(|name| name.starts_with("datafusion_overwrite"))).count()
}

async fn until_nothing_is_left_behind(cluster: &Cluster) {
    let gone = async { while left_behind(cluster).await > 0 {} };
    tokio::time::timeout(Duration::from_secs(60), gone).await.expect("dropped in time");
}

const OLD: [&str; 2] = ["1 old 1", "2 old 2"];
const NEW: [&str; 3] = ["2 new 20", "3 new 30", "4 NULL NULL"];
const OVERWRITE: &str = "INSERT OVERWRITE u SELECT * FROM source";
/// What the statement that replaces the rows begins with.
const REPLACE: &str = "INSERT OVERWRITE TABLE";

#[tokio::test]
async fn all_rows_are_replaced() {
    let cluster = Cluster::start().await;
    let ctx = tables(&cluster).await;
    for table in ["u", "d"] {
        let written = run(&ctx, &format!("INSERT OVERWRITE {table} SELECT * FROM source")).await;
        assert_eq!(lines(&written), ["3"]);
        assert_eq!(rows(&cluster, table).await, NEW, "{table}");
        // From the table itself.
        run(&ctx, &format!("INSERT OVERWRITE TABLE {table} SELECT id + 1, v, n FROM {table} WHERE id > 2")).await;
        assert_eq!(rows(&cluster, table).await, ["4 new 30", "5 NULL NULL"], "{table}");
        // By nothing.
        run(&ctx, &format!("INSERT OVERWRITE {table} SELECT * FROM source WHERE id > 9")).await;
        assert!(rows(&cluster, table).await.is_empty(), "{table}");
    }
    assert_eq!(left_behind(&cluster).await, 0);
}

#[tokio::test]
async fn several_loads_and_formats_and_columns_that_are_left_out() {
    let cluster = Cluster::start().await;
    let ctx = tables(&cluster).await;
    for (format, two_phases) in [("csv", "true"), ("json", "false"), ("arrow", "true")] {
        let more = [("sink.properties.format", format), ("sink.enable-2pc", two_phases), ("sink.parallelism", "3")];
        let ddl = cluster.ddl("some", "u", &more).replace("TABLE some", "TABLE some (v VARCHAR, id INT)");
        run(&ctx, &ddl).await;
        run(&ctx, "INSERT OVERWRITE some SELECT v, id FROM source").await;
        assert_eq!(rows(&cluster, "u").await, ["2 new 7", "3 new 7", "4 NULL 7"], "{format}");
        run(&ctx, "DROP TABLE some").await;
    }
    assert_eq!(left_behind(&cluster).await, 0);
}

#[tokio::test]
async fn partitions_are_replaced_by_name() {
    let cluster = Cluster::start().await;
    let ctx = tables(&cluster).await;
    cluster
        .doris(
            "CREATE TABLE {db}.p (id INT NOT NULL, v VARCHAR(20)) UNIQUE KEY(id)
             PARTITION BY RANGE(id) (PARTITION low VALUES LESS THAN ('10'), PARTITION high VALUES LESS THAN ('100'))
             DISTRIBUTED BY HASH(id) BUCKETS 1 PROPERTIES ('replication_num' = '1');
             INSERT INTO {db}.p VALUES (1, 'old'), (50, 'old')",
        )
        .await;
    cluster.declare(&ctx, "low", "p", &[("sink.properties.partitions", "low")]).await;
    cluster.declare(&ctx, "p", "p", &[]).await;
    run(&ctx, "INSERT OVERWRITE low SELECT id, v FROM source").await;
    assert_eq!(rows(&cluster, "p").await, ["2 new", "3 new", "4 NULL", "50 old"]);
    // A row that belongs elsewhere.
    let message = refusal(&ctx, "INSERT OVERWRITE low VALUES (60, 'x')").await;
    assert!(message.contains("staged for"), "{message}");
    assert_eq!(rows(&cluster, "p").await, ["2 new", "3 new", "4 NULL", "50 old"]);
    run(&ctx, "INSERT OVERWRITE p SELECT id, v FROM source WHERE id = 3").await;
    assert_eq!(rows(&cluster, "p").await, ["3 new"]);
    assert_eq!(left_behind(&cluster).await, 0);
}

#[tokio::test]
async fn sequence_values_without_a_column_are_kept() {
    let cluster = Cluster::start().await;
    let ctx = tables(&cluster).await;
    cluster.unique_table("s", "id INT NOT NULL, v VARCHAR(20), n INT", "'function_column.sequence_type' = 'int'").await;
    let more = [("sink.properties.function_column.sequence_col", "n"), ("sink.properties.format", "csv")];
    cluster.declare(&ctx, "s", "s", &more).await;
    run(&ctx, "INSERT OVERWRITE s VALUES (1, 'later', 9), (1, 'earlier', 3), (2, 'b', 5)").await;
    run(&ctx, "INSERT INTO s VALUES (1, 'too late', 8), (2, 'newer', 6)").await;
    assert_eq!(rows(&cluster, "s").await, ["1 later 9", "2 newer 6"]);
}

#[tokio::test]
async fn what_has_no_meaning_is_refused_with_advice() {
    let cluster = Cluster::sandbox().await;
    let ctx = tables(&cluster).await;
    cluster.unique_table("c", "id INT NOT NULL, v VARCHAR(20), n INT", cluster.recording(true)).await;
    cluster.declare(&ctx, "changes", "c", &[("source.scan.mode", "latest")]).await;
    cluster.declare(&ctx, "events", "u", &[("sink.change-format", "debezium-json")]).await;
    cluster.declare(&ctx, "kinds", "u", &[("sink.change-kind-column", "kind")]).await;
    cluster.declare(&ctx, "partial", "u", &[("sink.properties.partial_columns", "true")]).await;
    for (statement, expected) in [
        ("INSERT OVERWRITE u SELECT id, v, n FROM changes WHERE __change_kind IN ('+I', '+U')", "has no end"),
        ("INSERT OVERWRITE changes SELECT *, '+I' FROM source", "source.scan.mode"),
        ("INSERT OVERWRITE events VALUES ('{}')", "sink.change-format"),
        ("INSERT OVERWRITE kinds SELECT *, '+I' FROM source", "sink.change-kind-column"),
        ("INSERT OVERWRITE partial SELECT * FROM source", "sink.properties.partial_columns"),
    ] {
        let message = refusal(&ctx, statement).await;
        assert!(message.contains(expected), "{statement}: {message}");
    }
    assert_eq!(rows(&cluster, "u").await, OLD);
}

#[tokio::test]
async fn errors_leave_the_old_rows_and_no_staging_table() {
    let cluster = Cluster::sandbox().await;
    let ctx = tables(&cluster).await;
    // Of the input, of the load, of the statement.
    let message = refusal(&ctx, "INSERT OVERWRITE u SELECT id, v, 1 / (id - 3) FROM source").await;
    assert!(message.to_lowercase().contains("divide by zero"), "{message}");
    let message = refusal(&ctx, "INSERT OVERWRITE u SELECT id, repeat('x', 30), n FROM source").await;
    assert!(message.contains("staged for"), "{message}");
    let refused = Action::Status { code: 1105, body: "errCode = 2, detailMessage = no".into() };
    cluster.server().faults().push(Fault::new(refused.clone()).at(Site::Mysql).when(REPLACE));
    let message = refusal(&ctx, OVERWRITE).await;
    assert!(message.contains("detailMessage = no"), "{message}");
    assert_eq!(left_behind(&cluster).await, 0);
    cluster.server().faults().push(Fault::new(refused).at(Site::Mysql).when("CREATE TABLE"));
    let message = refusal(&ctx, OVERWRITE).await;
    assert!(message.contains("creating the staging table"), "{message}");
    until_nothing_is_left_behind(&cluster).await;
    assert_eq!(rows(&cluster, "u").await, OLD);
}

#[tokio::test]
async fn missing_privileges_are_told() {
    let cluster = Cluster::sandbox().await;
    let ctx = tables(&cluster).await;
    cluster.doris("CREATE USER writer IDENTIFIED BY 'pw'; GRANT SELECT_PRIV, LOAD_PRIV ON {db}.* TO writer").await;
    cluster.declare(&ctx, "w", "u", &[("username", "writer"), ("password", "pw")]).await;
    let message = refusal(&ctx, "INSERT OVERWRITE w SELECT * FROM source").await;
    assert!(message.contains("CREATE command denied") && message.contains("staging table"), "{message}");
    assert_eq!(rows(&cluster, "u").await, OLD);
}

#[tokio::test]
async fn lost_answer_is_resolved_and_rows_are_replaced_once() {
    let cluster = Cluster::sandbox().await;
    let ctx = tables(&cluster).await;
    // It was executed.
    cluster.server().faults().push(Fault::new(Action::DropAnswer).at(Site::Mysql).when(REPLACE));
    assert_eq!(lines(&run(&ctx, OVERWRITE).await), ["3"]);
    assert_eq!(rows(&cluster, "u").await, NEW);
    let sent = |cluster: &Cluster| cluster.server().requests().matching(Site::Mysql, REPLACE).len();
    assert_eq!(sent(&cluster), 1);
    assert_eq!(left_behind(&cluster).await, 0);
}

#[tokio::test]
async fn statement_that_never_arrived_is_sent_again_under_the_same_label() {
    let cluster = Cluster::sandbox().await;
    let ctx = tables(&cluster).await;
    let server = cluster.server();
    // The connection is lost while the statement waits, and then it fails.
    let release = Arc::new(Notify::new());
    server.faults().push(Fault::new(Action::Wait(Arc::clone(&release))).at(Site::Mysql).when(REPLACE));
    let statement = run(&ctx, OVERWRITE);
    let loses_its_connection = async {
        while server.requests().matching(Site::Mysql, REPLACE).is_empty() {
            tokio::task::yield_now().await;
        }
        server.frontend(0).restart().await.expect("restarted");
    };
    let (written, ()) = tokio::join!(statement, loses_its_connection);
    assert_eq!(lines(&written), ["3"]);
    assert_eq!(rows(&cluster, "u").await, NEW);
    let sent = server.requests().matching(Site::Mysql, REPLACE);
    let label =
        |text: &str| text.split_once("LABEL `").and_then(|(_, rest)| rest.split('`').next()).map(str::to_string);
    assert_eq!(sent.len(), 2);
    assert_eq!(label(&sent[0].target), label(&sent[1].target));
    assert_eq!(left_behind(&cluster).await, 0);
}

#[tokio::test]
async fn staged_rows_that_are_not_visible_yet_are_waited_for() {
    let cluster = Cluster::sandbox().await;
    let ctx = tables(&cluster).await;
    cluster.server().faults().push(Fault::new(Action::PublishTimeout).when("_stream_load"));
    assert_eq!(lines(&run(&ctx, OVERWRITE).await), ["3"]);
    assert_eq!(cluster.server().faults().armed(), 0);
    assert_eq!(rows(&cluster, "u").await, NEW);
}

#[tokio::test]
async fn readers_see_the_old_rows_until_all_are_replaced() {
    let cluster = Cluster::sandbox().await;
    let ctx = tables(&cluster).await;
    let server = cluster.server();
    let release = Arc::new(Notify::new());
    server.faults().push(Fault::new(Action::Wait(Arc::clone(&release))).at(Site::Mysql).when(REPLACE));
    let reader = async {
        while server.requests().matching(Site::Mysql, REPLACE).is_empty() {
            assert_eq!(rows(&cluster, "u").await, OLD);
        }
        // All rows are staged.
        assert_eq!(left_behind(&cluster).await, 1);
        assert_eq!(rows(&cluster, "u").await, OLD);
        release.notify_one();
        loop {
            match rows(&cluster, "u").await {
                seen if seen == OLD => {}
                seen => break assert_eq!(seen, NEW),
            }
        }
    };
    let (written, ()) = tokio::join!(run(&ctx, OVERWRITE), reader);
    assert_eq!(lines(&written), ["3"]);
}

#[tokio::test]
async fn dropped_statement_leaves_the_old_rows_and_no_staging_table() {
    let cluster = Cluster::sandbox().await;
    let ctx = tables(&cluster).await;
    let server = cluster.server();
    for held in ["_stream_load", REPLACE] {
        let release = Arc::new(Notify::new());
        server.faults().push(Fault::new(Action::Wait(Arc::clone(&release))).when(held));
        let arrived = async {
            while server.faults().armed() > 0 {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            ended = try_run(&ctx, OVERWRITE) => panic!("it ended: {ended:?}"),
            () = arrived => {}
        }
        until_nothing_is_left_behind(&cluster).await;
        release.notify_one();
        assert_eq!(rows(&cluster, "u").await, OLD, "{held}");
    }
}

#[tokio::test]
async fn process_that_ends_leaves_the_old_rows_and_a_table_that_tells_its_name() {
    let cluster = Cluster::sandbox().await;
    tables(&cluster).await;
    let server = cluster.server();
    let release = Arc::new(Notify::new());
    server.faults().push(Fault::new(Action::Wait(Arc::clone(&release))).when("_stream_load"));
    let (ctx, ddl) = (cluster.context(), cluster.ddl("u", "u", &[]));
    let process =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
    process.spawn(async move {
        run(&ctx, &ddl).await;
        run(&ctx, "INSERT OVERWRITE u VALUES (5, 'new', 5)").await;
    });
    while server.faults().armed() > 0 {
        tokio::task::yield_now().await;
    }
    process.shutdown_background();
    release.notify_one();
    assert_eq!(rows(&cluster, "u").await, OLD);
    assert_eq!(left_behind(&cluster).await, 1);
    // The next one is not disturbed by it.
    let ctx = cluster.context();
    cluster.declare(&ctx, "u", "u", &[]).await;
    run(&ctx, "INSERT OVERWRITE u VALUES (6, 'new', 6)").await;
    assert_eq!(rows(&cluster, "u").await, ["6 new 6"]);
}

#[tokio::test]
async fn explain_and_planning_send_nothing() {
    let cluster = Cluster::sandbox().await;
    let ctx = tables(&cluster).await;
    let plan = lines(&run(&ctx, &format!("EXPLAIN {OVERWRITE}")).await).join("\n");
    let expected = format!("DorisOverwriteExec: table={}, partitions=all", cluster.table("u"));
    assert!(plan.contains(&expected), "{plan}");
    assert_eq!(left_behind(&cluster).await, 0);
    assert!(cluster.server().requests().matching(Site::Mysql, "CREATE TABLE `").is_empty());
}
