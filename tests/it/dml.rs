//! DELETE, UPDATE and TRUNCATE, sent to Doris whole.

use std::sync::Arc;
use std::time::Duration;

use datafusion::common::ScalarValue;
use datafusion::prelude::{SessionContext, col, lit};
use datafusion_doris::DorisTable;
use datafusion_doris::options::DorisOptions;
use doris_sandbox::{Action, Fault, Site};
use tokio::sync::Notify;

use crate::cli::shell;
use crate::harness::{Cluster, lines, refusal, run, try_run};

const COLUMNS: &str = "id INT NOT NULL, name VARCHAR(10), grade INT, big BIGINT, price DECIMAL(9, 2), day DATE, \
                       at DATETIME(0), ok BOOLEAN, ratio DOUBLE";

/// A unique table `u` and a duplicate table `d` of the same rows, declared under these names.
async fn tables(cluster: &Cluster) -> SessionContext {
    cluster.unique_table("u", COLUMNS, "").await;
    cluster.duplicate_table("d", COLUMNS, "").await;
    for table in ["u", "d"] {
        cluster
            .doris(&format!(
                "INSERT INTO {{db}}.{table} VALUES
                 (1, 'a', 1, 10, 1.50, '2024-01-01', '2024-01-01 10:00:00', true, 0.5),
                 (2, 'it''s \\\\', 2, 20, 2.50, '2024-02-01', '2024-02-01 10:00:00', false, 1.5),
                 (3, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
                 (4, 'd', 4, 40, 4.50, '2024-04-01', '2024-04-01 10:00:00', true, 2.5)"
            ))
            .await;
    }
    let ctx = cluster.context();
    cluster.declare(&ctx, "u", "u", &[]).await;
    cluster.declare(&ctx, "d", "d", &[]).await;
    ctx
}

/// How often Doris was sent such a statement.
fn seen(cluster: &Cluster, text: &str) -> usize {
    cluster.server().requests().matching(Site::Mysql, text).len()
}

async fn ids(cluster: &Cluster, table: &str) -> String {
    let rows = cluster.doris(&format!("SELECT id FROM {{db}}.{table} ORDER BY id")).await;
    rows.into_iter().map(|row| row[0].clone().unwrap_or_default()).collect::<Vec<_>>().join(" ")
}

#[tokio::test]
async fn delete_removes_the_rows_that_datafusion_selects() {
    // On columns of each type, with literals that DataFusion coerces.
    for condition in [
        "id > 3",
        "id IN (1, 2)",
        "id IN (1, 3, 4, 9)",
        "name = 'it''s \\'",
        "name IS NULL",
        "grade BETWEEN 1 AND 2",
        "grade <> 2",
        "NOT (grade = 2)",
        "big = 10 AND id < 5",
        "price >= 2.5",
        "day < '2024-02-01'",
        "day = DATE '2024-01-01' + INTERVAL '1 month'",
        "at <= TIMESTAMP '2024-02-01 10:00:00'",
        "ok",
        "ok = false",
        "1 + 1 = id",
        "1 = 0",
        "name = NULL",
        "NULL",
    ] {
        let cluster = Cluster::start().await;
        let ctx = tables(&cluster).await;
        for table in ["u", "d"] {
            let kept = run(&ctx, &format!("SELECT id FROM {table} WHERE ({condition}) IS NOT TRUE ORDER BY id")).await;
            let expected = lines(&kept).join(" ");
            let deleted = run(&ctx, &format!("DELETE FROM {table} WHERE {condition}")).await;
            assert_eq!(ids(&cluster, table).await, expected, "{table}: {condition}");
            // Doris counts rows of unique tables only.
            let gone = if table == "u" { 4 - kept.iter().map(|batch| batch.num_rows()).sum::<usize>() } else { 0 };
            assert_eq!(lines(&deleted), [gone.to_string()], "{table}: {condition}");
        }
    }
}

#[tokio::test]
async fn conditions_that_would_be_lost_are_refused_and_nothing_is_deleted() {
    let cluster = Cluster::sandbox().await;
    let ctx = tables(&cluster).await;
    for (statement, expected) in [
        ("DELETE FROM u", "use TRUNCATE TABLE"),
        ("DELETE FROM u WHERE 1 = 1", "use TRUNCATE TABLE"),
        ("DELETE FROM u WHERE id IN (SELECT id FROM d)", "it holds a subquery"),
        ("DELETE FROM u WHERE grade = 1 AND id IN (SELECT id FROM d)", "it holds a subquery"),
        ("DELETE FROM u WHERE id = (SELECT max(id) FROM d)", "it holds a subquery"),
        ("DELETE FROM u WHERE EXISTS (SELECT 1 FROM d WHERE d.id = u.id)", "it holds a subquery"),
        ("DELETE FROM u WHERE id > 0 LIMIT 1", "LIMIT"),
        ("DELETE FROM u WHERE id > 0 AND upper(name) = 'A'", "the condition upper"),
        ("DELETE FROM u WHERE ratio = 0.5", "the condition"),
        ("DELETE FROM u WHERE random() < 0.5", "the condition random"),
        ("UPDATE u SET grade = 5 WHERE id IN (SELECT id FROM d)", "it holds a subquery"),
        ("UPDATE u SET grade = (SELECT max(grade) FROM d)", "column 'grade'"),
        ("UPDATE u SET name = upper(name)", "column 'name'"),
        ("UPDATE u SET name = 'longer than ten'", "VARCHAR(10)"),
        ("UPDATE u SET id = NULL", "NOT NULL"),
        ("UPDATE u SET grade = grade", "the values they have"),
    ] {
        let message = refusal(&ctx, statement).await;
        assert!(message.contains(expected) && message.contains(&cluster.table("u")), "{statement}: {message}");
    }
    assert_eq!(ids(&cluster, "u").await, "1 2 3 4");
    assert!(seen(&cluster, "DELETE FROM `") == 0 && seen(&cluster, "UPDATE `") == 0);
}

#[tokio::test]
async fn update_gives_the_values_that_datafusion_computes() {
    let cluster = Cluster::start().await;
    let ctx = tables(&cluster).await;
    for (assignments, expected) in [
        ("name = 'it''s \\'", "it's \\ | 4 | 40 | 4.50 | 2024-04-01 | 2024-04-01T10:00:00 | true | 2.5"),
        (
            "grade = grade + 1, big = big * 2 - grade",
            "it's \\ | 5 | 76 | 4.50 | 2024-04-01 | 2024-04-01T10:00:00 | true | 2.5",
        ),
        ("big = grade, price = 3", "it's \\ | 5 | 5 | 3.00 | 2024-04-01 | 2024-04-01T10:00:00 | true | 2.5"),
        ("grade = big, big = 7", "it's \\ | 5 | 7 | 3.00 | 2024-04-01 | 2024-04-01T10:00:00 | true | 2.5"),
        (
            "day = '2025-05-05', at = '2025-05-05 01:02:03', ok = false, ratio = 1e-3",
            "it's \\ | 5 | 7 | 3.00 | 2025-05-05 | 2025-05-05T01:02:03 | false | 0.001",
        ),
        ("name = NULL, ratio = NULL", "NULL | 5 | 7 | 3.00 | 2025-05-05 | 2025-05-05T01:02:03 | false | NULL"),
    ] {
        let statement = format!("UPDATE u SET {assignments} WHERE id >= 4");
        assert_eq!(lines(&run(&ctx, &statement).await), ["1"], "{assignments}");
        let row = run(&ctx, "SELECT name, grade, big, price, day, at, ok, ratio FROM u WHERE id = 4").await;
        assert_eq!(lines(&row), [expected], "{assignments}");
    }
    assert_eq!(lines(&run(&ctx, "UPDATE u AS x SET grade = 0 WHERE x.grade IS NULL").await), ["1"]);
    assert_eq!(lines(&run(&ctx, "UPDATE u SET ok = true").await), ["4"]);
    let rows = run(&ctx, "SELECT grade, ok FROM u ORDER BY id").await;
    assert_eq!(lines(&rows), ["1 | true", "2 | true", "0 | true", "5 | true"]);
}

#[tokio::test]
async fn update_that_overflows_a_column_changes_nothing() {
    let cluster = Cluster::start().await;
    let ctx = tables(&cluster).await;
    let message = refusal(&ctx, "UPDATE u SET grade = grade + 2147483644, name = 'x' WHERE grade >= 1").await;
    assert!(message.contains("of 1 rows does not fit"), "{message}");
    run(&ctx, "UPDATE u SET grade = grade + 2147483644 WHERE grade < 4").await;
    let rows = run(&ctx, "SELECT grade, name FROM u WHERE grade > 0 ORDER BY id").await;
    assert_eq!(lines(&rows), ["2147483645 | a", "2147483646 | it's \\", "4 | d"]);
}

#[tokio::test]
async fn truncate_empties_the_table() {
    let cluster = Cluster::start().await;
    let ctx = tables(&cluster).await;
    for table in ["u", "d"] {
        assert_eq!(lines(&run(&ctx, &format!("TRUNCATE TABLE {table}")).await), ["0"]);
        assert_eq!(ids(&cluster, table).await, "", "{table}");
    }
}

#[tokio::test]
async fn what_doris_refuses_is_told_in_its_words() {
    let cluster = Cluster::start().await;
    let ctx = tables(&cluster).await;
    cluster
        .doris(
            "CREATE TABLE {db}.a (k INT NOT NULL, s BIGINT SUM) AGGREGATE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 1
             PROPERTIES ('replication_num' = '1')",
        )
        .await;
    cluster.declare(&ctx, "a", "a", &[]).await;
    for (statement, expected) in [
        ("UPDATE d SET grade = 1 WHERE id = 1", "Only unique table could be updated."),
        ("UPDATE u SET id = 9 WHERE id = 1", "Only value columns of unique table could be updated"),
        ("DELETE FROM a WHERE s > 1", "only supports Unique table with merge-on-write"),
        ("DELETE FROM d WHERE id = 1 OR grade = 2", "only supports unique key model"),
        ("DELETE FROM d WHERE name LIKE 'a%'", "only supports unique key model"),
    ] {
        let message = refusal(&ctx, statement).await;
        let what = statement.split_whitespace().next().expect("a word");
        assert!(message.contains(expected) && message.contains(what), "{statement}: {message}");
    }
    assert_eq!(ids(&cluster, "d").await, "1 2 3 4");
    // A unique table takes them all.
    run(&ctx, "DELETE FROM u WHERE id = 1 OR name LIKE 'd%'").await;
    assert_eq!(ids(&cluster, "u").await, "2 3");
}

#[tokio::test]
async fn missing_privileges_are_told() {
    let cluster = Cluster::sandbox().await;
    let ctx = tables(&cluster).await;
    cluster.doris("CREATE USER reader IDENTIFIED BY 'pw'; GRANT SELECT_PRIV ON {db}.* TO reader").await;
    cluster.declare(&ctx, "r", "u", &[("username", "reader"), ("password", "pw")]).await;
    for statement in ["DELETE FROM r WHERE id = 1", "UPDATE r SET grade = 1 WHERE id = 1", "TRUNCATE TABLE r"] {
        let message = refusal(&ctx, statement).await;
        assert!(message.contains("denied") && message.contains("reader"), "{statement}: {message}");
    }
    assert_eq!(ids(&cluster, "u").await, "1 2 3 4");
}

#[tokio::test]
async fn tables_that_cannot_be_changed_say_why() {
    let cluster = Cluster::sandbox().await;
    let ctx = tables(&cluster).await;
    cluster.unique_table("s", "id INT NOT NULL, v INT", cluster.recording(true)).await;
    cluster.declare(&ctx, "changes", "s", &[("source.scan.mode", "latest")]).await;
    cluster.declare(&ctx, "events", "s", &[("sink.change-format", "debezium-json")]).await;
    cluster.declare(&ctx, "kinds", "s", &[("sink.change-kind-column", "kind")]).await;
    cluster.declare(&ctx, "part", "u", &[("doris.filter.query", "grade = 1")]).await;
    let bare = cluster.ddl("bare", "u", &[]);
    let start = bare.find("'jdbc-url'").expect("the option");
    let end = start + bare[start..].find(", ").expect("more options") + 2;
    run(&ctx, &format!("{}{}", &bare[..start], &bare[end..])).await;
    for (statement, expected) in [
        ("DELETE FROM changes WHERE id = 1", "source.scan.mode"),
        ("TRUNCATE TABLE changes", "source.scan.mode"),
        ("TRUNCATE TABLE events", "sink.change-format"),
        ("DELETE FROM kinds WHERE kind = '-D'", "kind"),
        ("UPDATE kinds SET kind = '-D'", "column 'kind'"),
        ("DELETE FROM part WHERE id < 10", "doris.filter.query"),
        ("UPDATE part SET grade = 7", "doris.filter.query"),
        ("TRUNCATE TABLE part", "doris.filter.query"),
        ("DELETE FROM bare WHERE id = 1", "jdbc-url"),
        ("TRUNCATE TABLE bare", "jdbc-url"),
    ] {
        let message = refusal(&ctx, statement).await;
        assert!(message.contains(expected), "{statement}: {message}");
    }
}

#[tokio::test]
async fn plain_sessions_refuse_instead_of_deleting_too_much() {
    let cluster = Cluster::sandbox().await;
    tables(&cluster).await;
    let options = [
        ("fenodes", cluster.fenodes()),
        ("jdbc-url", cluster.jdbc_url()),
        ("table.identifier", &cluster.table("u")),
        ("username", "root"),
        ("password", "s3cret"),
    ];
    let options = options.map(|(key, value)| (key.to_string(), value.to_string()));
    let options = DorisOptions::from_map(options.into_iter().collect()).expect("options");
    let table = Arc::new(DorisTable::builder(options).build().await.expect("a table"));
    let plain = SessionContext::new();
    plain.register_table("u", table).expect("registered");
    let message = plain.sql("DELETE FROM u WHERE id = 1").await.expect("a plan").collect().await;
    let message = message.expect_err("refused").to_string();
    assert!(message.contains("datafusion_doris::register"), "{message}");
    datafusion_doris::register(&plain).expect("registered");
    run(&plain, "DELETE FROM u WHERE id = 1").await;
    assert_eq!(ids(&cluster, "u").await, "2 3 4");
    let rest = plain.table("u").await.expect("a table").filter(col("id").gt(lit(3))).expect("a filter");
    assert_eq!(lines(&rest.collect().await.expect("rows")).len(), 1);
}

#[tokio::test]
async fn prepared_statements_are_planned_with_their_values() {
    let cluster = Cluster::start().await;
    let ctx = tables(&cluster).await;
    run(&ctx, "PREPARE gone(INT) AS DELETE FROM u WHERE id = $1").await;
    assert_eq!(lines(&run(&ctx, "EXECUTE gone(1)").await), ["1"]);
    let update = datafusion_doris::sql(&ctx, "UPDATE u SET name = $2 WHERE id = $1").await.expect("a plan");
    let update = update.with_param_values(vec![ScalarValue::from(2), ScalarValue::from("x'y")]).expect("values");
    assert_eq!(lines(&update.collect().await.expect("updated")), ["1"]);
    assert_eq!(lines(&run(&ctx, "SELECT id, name FROM u ORDER BY id").await), ["2 | x'y", "3 | NULL", "4 | d"]);
}

#[tokio::test]
async fn planning_and_explain_send_nothing() {
    let cluster = Cluster::sandbox().await;
    let ctx = tables(&cluster).await;
    let frame = datafusion_doris::sql(&ctx, "DELETE FROM u WHERE id = 1").await.expect("a plan");
    frame.create_physical_plan().await.expect("a plan");
    let plan = lines(&run(&ctx, "EXPLAIN UPDATE u SET grade = 1 WHERE id IN (1, 2)").await).join("\n");
    let table = format!("`{}`.`u`", cluster.database());
    let expected = format!("DorisStatementExec: UPDATE {table} SET `grade` = 1 WHERE (`id` IN (1, 2))");
    assert!(plan.contains(&expected), "{plan}");
    assert!(seen(&cluster, "UPDATE `") == 0 && seen(&cluster, "DELETE FROM `") == 0);
    assert_eq!(ids(&cluster, "u").await, "1 2 3 4");
}

#[tokio::test]
async fn statement_whose_answer_is_lost_is_an_unknown_outcome_and_never_sent_twice() {
    let cluster = Cluster::sandbox().await;
    let ctx = tables(&cluster).await;
    for (statement, sent, check) in [
        ("DELETE FROM u WHERE id = 1", "DELETE FROM `", "count the rows"),
        ("UPDATE u SET grade = grade + 1 WHERE id = 2", "UPDATE `", "look at the rows"),
        ("TRUNCATE TABLE d", "TRUNCATE TABLE `", "whether the table is empty"),
    ] {
        cluster.server().faults().push(Fault::new(Action::DropAnswer).at(Site::Mysql).when(sent));
        let message = refusal(&ctx, statement).await;
        assert!(message.contains("may have been executed") && message.contains(check), "{message}");
        assert_eq!(seen(&cluster, sent), 1, "{statement}");
    }
    assert_eq!(ids(&cluster, "u").await, "2 3 4");
    assert_eq!(cluster.scalar("SELECT grade FROM {db}.u WHERE id = 2").await, "3");
    assert_eq!(ids(&cluster, "d").await, "");
}

#[tokio::test]
async fn dropped_statement_is_ended_in_doris() {
    let cluster = Cluster::sandbox().await;
    let ctx = tables(&cluster).await;
    // The statement has arrived and Doris works on it.
    let release = Arc::new(Notify::new());
    cluster
        .server()
        .faults()
        .push(Fault::new(Action::Wait(Arc::clone(&release))).at(Site::Mysql).when("DELETE FROM `"));
    let statement = try_run(&ctx, "DELETE FROM u WHERE id = 1");
    let arrived = async {
        while seen(&cluster, "DELETE FROM `") == 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        ended = statement => panic!("it ended: {ended:?}"),
        () = arrived => {}
    }
    let killed = async {
        while seen(&cluster, "KILL QUERY") == 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), killed).await.expect("killed in time");
    release.notify_one();
}

#[tokio::test]
async fn the_example_changes_rows() {
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/change_rows.sql");
    let run = shell(&["--sandbox", "-q", "-f", example]).await;
    assert_eq!(run.code, 0, "{}", run.err);
    for line in ["| 2  | cup  | 25     | 2026-02-01 |", "| 2  | CUP  | 50     | 2026-02-01 |"] {
        assert!(run.out.contains(line), "{}", run.out);
    }
}
