//! The shell, run as a library with its arguments, captured output and injected signals.

use std::time::Duration;

use clap::Parser;
use datafusion_doris_cli::args::Args;
use datafusion_doris_cli::interrupt::{Interrupts, Signal};
use datafusion_doris_cli::output::{Captured, Output};
use doris_sandbox::Sandbox;

use crate::harness::Cluster;

const PATIENCE: Duration = Duration::from_secs(120);

/// How a run of the shell ended.
pub struct Outcome {
    pub code: u8,
    pub out: String,
    pub err: String,
}

/// Runs the shell to its end.
pub async fn shell(args: &[&str]) -> Outcome {
    let (_signals, interrupts) = Interrupts::channel();
    let (output, captured) = Output::captured();
    finished(args, output, captured, interrupts).await
}

async fn finished(args: &[&str], output: Output, captured: Captured, interrupts: Interrupts) -> Outcome {
    let args = Args::try_parse_from(std::iter::once(&"datafusion-doris-cli").chain(args)).expect("valid arguments");
    let code = tokio::time::timeout(PATIENCE, datafusion_doris_cli::run(args, output, interrupts)).await.expect("ends");
    Outcome { code, out: captured.out(), err: captured.err() }
}

/// Runs `sql` as a script file.
async fn script(sql: &str, more: &[&str]) -> Outcome {
    let directory = tempfile::tempdir().expect("directory");
    let path = directory.path().join("script.sql");
    std::fs::write(&path, sql).expect("script");
    let mut args = vec!["-f", path.to_str().expect("UTF-8 path")];
    args.extend(more);
    shell(&args).await
}

/// Runs `sql`, and sends Ctrl-C once `shown` stands in the output.
async fn interrupted(sql: &str, shown: &str) -> Outcome {
    let (signals, interrupts) = Interrupts::channel();
    let (output, captured) = Output::captured();
    let watched = captured.clone();
    let interrupt = async {
        watched.out_holds(shown).await;
        signals.send(Signal::Interrupt).await.expect("the shell listens");
    };
    let args = ["-c", sql, "--format", "csv"];
    let run = finished(&args, output, captured.clone(), interrupts);
    let (outcome, ()) = tokio::join!(run, interrupt);
    outcome
}

/// A cluster with a source and a mirror, and the DDL that declares `changes` and `mirror`.
async fn source_and_mirror() -> (Cluster, String) {
    let cluster = Cluster::start().await;
    cluster.changing_table("source", "id INT NOT NULL, v VARCHAR(20)").await;
    cluster.unique_table("mirror", "id INT NOT NULL, v VARCHAR(20)", "").await;
    cluster.doris("INSERT INTO {db}.source VALUES (1, 'a'), (2, 'b')").await;
    let changes =
        cluster.ddl("changes", "source", &[("source.scan.mode", "initial"), ("source.changelog.poll-interval", "1s")]);
    let mirror = cluster.ddl("mirror", "mirror", &[("sink.change-kind-column", "__change_kind")]);
    (cluster, format!("{changes};\n{mirror};\n"))
}

/// C075
#[tokio::test]
async fn semicolons_in_text_and_comments_do_not_split_a_script() {
    let sql = "SELECT 'a;b' AS one; SELECT 2 AS two -- c; d\n ; SELECT 3 AS three";
    let outcome = script(sql, &["--format", "csv", "-q"]).await;
    assert_eq!((outcome.code, outcome.out.as_str()), (0, "one\na;b\ntwo\n2\nthree\n3\n"), "{}", outcome.err);
    assert_eq!(outcome.err, "");
}

/// C076
#[tokio::test]
async fn a_backslash_reaches_doris_as_the_character_it_is() {
    let cluster = Cluster::start().await;
    cluster
        .doris(
            "CREATE TABLE {db}.t (id INT, s VARCHAR(10)) DUPLICATE KEY(id) DISTRIBUTED BY HASH(id) BUCKETS 1
             PROPERTIES ('replication_num' = '1');
             INSERT INTO {db}.t VALUES (1, '\\\\'), (2, '\\\\\\\\')",
        )
        .await;
    let ddl = cluster.ddl("t", "t", &[]);
    let sql = format!(
        r"{ddl}; SELECT id FROM t WHERE s = '\'; SELECT id AS two FROM t WHERE s = '\\'; SELECT length('\') AS n"
    );
    let outcome = script(&sql, &["--format", "csv", "-q"]).await;
    assert_eq!((outcome.code, outcome.out.as_str()), (0, "id\n1\ntwo\n2\nn\n1\n"), "{}", outcome.err);
}

/// C077
#[tokio::test]
async fn option_values_keep_their_case_and_unknown_options_are_named() {
    let sandbox = Sandbox::builder().user("App_RW").password("AbC/Xy+Z").start().await.expect("sandbox");
    let connect = format!("\\connect {} App_RW AbC/Xy+Z\n", sandbox.jdbc_url());
    let table = format!(
        "\\doris CREATE DATABASE d; CREATE TABLE d.T1 (id INT) DUPLICATE KEY(id) DISTRIBUTED BY HASH(id) BUCKETS 1
         PROPERTIES ('replication_num' = '1');
         \\doris INSERT INTO d.T1 VALUES (7);
         CREATE EXTERNAL TABLE t STORED AS DORIS OPTIONS ('fenodes' '{}', 'Table.Identifier' 'd.T1',
         PASSWORD 'AbC/Xy+Z', UserName 'App_RW'); SELECT * FROM t;",
        sandbox.fenodes()
    );
    // `\doris` ends at its first semicolon: the second statement needs its own.
    let table = table.replace("d; CREATE", "d;\n\\doris CREATE");
    let outcome = script(&(connect + &table), &["--format", "csv", "-q"]).await;
    assert_eq!((outcome.code, outcome.out.as_str()), (0, "id\n7\n"), "{}", outcome.err);

    let wrong = "CREATE EXTERNAL TABLE t STORED AS DORIS OPTIONS ('fenodes' 'h:1', 'pasword' 'x')";
    let outcome = shell(&["-c", wrong]).await;
    assert_eq!(outcome.code, 1);
    assert!(outcome.err.contains("pasword") && outcome.err.contains("password"), "{}", outcome.err);
}

/// C078
#[tokio::test]
async fn an_aggregate_over_an_endless_changelog_is_refused_by_name() {
    let (cluster, declare) = source_and_mirror().await;
    // Distinct: a row that changes while the read starts arrives with the snapshot and as a change.
    let query = "SELECT v, count(DISTINCT id) AS n FROM changes GROUP BY v ORDER BY v";
    let outcome = shell(&["-c", &declare, "-c", query]).await;
    assert_eq!(outcome.code, 1);
    assert!(outcome.err.contains("AggregateExec") || outcome.err.contains("SortExec"), "{}", outcome.err);
    assert!(outcome.err.len() < 400, "no dump of the plan: {}", outcome.err);

    let bounded =
        cluster.ddl("bounded", "source", &[("source.scan.mode", "initial"), ("source.scan.bounded-mode", "latest")]);
    let outcome = shell(&["--format", "csv", "-q", "-c", &bounded, "-c", &query.replace("changes", "bounded")]).await;
    assert_eq!((outcome.code, outcome.out.as_str()), (0, "v,n\na,1\nb,1\n"), "{}", outcome.err);
}

#[tokio::test]
async fn the_first_error_ends_a_script_with_its_line_and_code_1() {
    let outcome = script("SELECT 1 AS one;\n\nSELECT * FROM nowhere;\nSELECT 2 AS two;", &["--format", "csv"]).await;
    assert_eq!((outcome.code, outcome.out.as_str()), (1, "one\n1\n"));
    assert!(outcome.err.contains("script.sql, line 3: ") && outcome.err.contains("nowhere"), "{}", outcome.err);
}

#[tokio::test]
async fn assertions_that_do_not_hold_fail_the_script() {
    for (sql, reason) in [
        ("\\assert_empty SELECT 7 AS seven;", "the query must give no rows, it gave 1"),
        ("\\assert SELECT 1 = 2 AS same;", "`same` is false"),
        ("\\assert SELECT true WHERE false;", "the query must give one row, it gave none"),
        ("\\assert SELECT 1 AS n;", "column `n` is not a truth value"),
    ] {
        let outcome = shell(&["-c", sql]).await;
        assert_eq!(outcome.code, 1, "{sql}");
        assert!(outcome.err.contains(reason), "{sql}: {}", outcome.err);
    }
    let outcome = shell(&["-q", "-c", "\\assert SELECT 1 = 1; \\assert_empty SELECT 1 WHERE false;"]).await;
    assert_eq!((outcome.code, outcome.err.as_str()), (0, ""));
}

#[tokio::test]
async fn a_placeholder_without_a_value_is_an_error_that_names_it() {
    let outcome = shell(&["-c", "SELECT '${env:DATAFUSION_DORIS_IS_NOT_SET}'"]).await;
    assert_eq!(outcome.code, 1);
    assert!(outcome.err.contains("DATAFUSION_DORIS_IS_NOT_SET is not set"), "{}", outcome.err);
}

#[tokio::test]
async fn files_in_parquet_and_csv_are_tables() {
    let sql = "CREATE EXTERNAL TABLE flights STORED AS PARQUET LOCATION 'tests/fixtures/flights-small.parquet';
               CREATE EXTERNAL TABLE strikes STORED AS CSV LOCATION 'tests/fixtures/birdstrikes-small.csv'
               OPTIONS ('format.has_header' 'true');
               SELECT count(*) AS n FROM flights UNION ALL SELECT count(*) FROM strikes ORDER BY n";
    let outcome = shell(&["--format", "tsv", "-q", "-c", sql]).await;
    assert_eq!((outcome.code, outcome.out.as_str()), (0, "n\n200\n2000\n"), "{}", outcome.err);
}

#[tokio::test]
async fn an_endless_select_prints_rows_as_they_come_until_ctrl_c() {
    let (_cluster, declare) = source_and_mirror().await;
    let outcome = interrupted(&format!("{declare} SELECT id FROM changes"), "1\n").await;
    assert_eq!(outcome.code, 130, "{}", outcome.err);
    assert!(outcome.err.contains("cancelled"), "{}", outcome.err);
}

#[tokio::test]
async fn ctrl_c_ends_a_continuous_insert_after_its_epoch() {
    let (cluster, declare) = source_and_mirror().await;
    let (signals, interrupts) = Interrupts::channel();
    let (output, captured) = Output::captured();
    let sql = format!("{declare} INSERT INTO mirror SELECT * FROM changes");
    let args = ["-c", &sql];
    let run = finished(&args, output, captured, interrupts);
    let interrupt = async {
        // The mirror's rows are the signal: polled, since only Doris knows when the epoch is visible.
        while cluster.scalar("SELECT COUNT(*) FROM {db}.mirror").await != "2" {
            tokio::task::yield_now().await;
        }
        signals.send(Signal::Interrupt).await.expect("the shell listens");
    };
    let (outcome, ()) = tokio::join!(run, interrupt);
    assert_eq!(outcome.code, 130, "{}", outcome.err);
    assert!(outcome.err.contains("rows written"), "{}", outcome.err);
}

#[tokio::test]
async fn ctrl_c_during_an_insert_leaves_no_rows_and_no_open_transaction() {
    let cluster = Cluster::sandbox().await;
    cluster
        .doris(
            "CREATE TABLE {db}.t (id BIGINT) DUPLICATE KEY(id) DISTRIBUTED BY HASH(id) BUCKETS 2
             PROPERTIES ('replication_num' = '1')",
        )
        .await;
    let (signals, interrupts) = Interrupts::channel();
    let (output, captured) = Output::captured();
    let sql = format!("{}; INSERT INTO t SELECT value FROM generate_series(1, 1000000000)", cluster.ddl("t", "t", &[]));
    let args = ["-c", &sql];
    let run = finished(&args, output, captured, interrupts);
    let interrupt = async {
        while cluster.server().running_transactions() == 0 {
            tokio::task::yield_now().await;
        }
        signals.send(Signal::Interrupt).await.expect("the shell listens");
    };
    let (outcome, ()) = tokio::join!(run, interrupt);
    assert_eq!(outcome.code, 130, "{}", outcome.err);
    let ended = async {
        while cluster.server().running_transactions() > 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, ended).await.expect("the load is aborted");
    assert_eq!(cluster.scalar("SELECT COUNT(*) FROM {db}.t").await, "0");
}

#[tokio::test]
async fn a_job_runs_beside_later_statements_and_is_stopped_at_the_end() {
    let (cluster, declare) = source_and_mirror().await;
    let sql = format!(
        "{declare}\\job m INSERT INTO mirror SELECT * FROM changes;\n\\catchup m 100\nSELECT 1 AS beside;\n\\jobs\n"
    );
    let outcome = script(&sql, &["--format", "csv"]).await;
    assert_eq!(outcome.code, 0, "{}", outcome.err);
    assert!(outcome.out.contains("beside\n1\n") && outcome.out.contains("m,running,"), "{}", outcome.out);
    assert!(outcome.err.contains("job `m` stopped: "), "{}", outcome.err);
    assert_eq!(cluster.scalar("SELECT COUNT(*) FROM {db}.mirror").await, "2");
}

#[tokio::test]
async fn a_job_that_fails_makes_the_exit_code_1() {
    let (_cluster, declare) = source_and_mirror().await;
    let sql = format!(
        "{declare}\\job m INSERT INTO mirror SELECT id, arrow_cast('a string of more than twenty \
         characters', 'Utf8'), __change_kind FROM changes;\n\\catchup m 100\n"
    );
    let outcome = script(&sql, &[]).await;
    assert_eq!(outcome.code, 1, "{}", outcome.err);
    assert!(outcome.err.contains("job `m` failed: "), "{}", outcome.err);
}

#[tokio::test]
async fn the_mirror_example_ends_with_equal_tables() {
    let outcome = shell(&["--sandbox", "-q", "-f", "examples/mirror.sql"]).await;
    assert_eq!(outcome.code, 0, "{}\n{}", outcome.out, outcome.err);
    assert!(outcome.out.ends_with("The tables are equal.\n"), "{}", outcome.out);
}

#[tokio::test]
async fn the_load_example_gives_back_what_the_files_hold() {
    let outcome = shell(&["--sandbox", "-q", "-f", "examples/load_parquet.sql"]).await;
    assert_eq!(outcome.code, 0, "{}\n{}", outcome.out, outcome.err);
    assert!(outcome.out.ends_with("Doris gives back what the files hold.\n"), "{}", outcome.out);
}
