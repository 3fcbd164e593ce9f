//! `sink.parallelism`: several loads of one statement or epoch, all or none.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use datafusion::prelude::SessionContext;
use doris_sandbox::{Action, Fault, Site};
use tokio::sync::Notify;

use crate::harness::{Cluster, lines, refusal, run, text};
use crate::history::History;

const FOUR: (&str, &str) = ("sink.parallelism", "4");
const PATIENCE: Duration = Duration::from_secs(120);
const INSERT: &str = "INSERT INTO t SELECT value, concat('v', value) FROM generate_series(1, 20000)";
const LOAD: &str = "_stream_load ";
const SECOND_PHASE: &str = "_stream_load_2pc";
const COMMIT: &str = "_stream_load_2pc commit";

/// A unique table that is written by four loads.
async fn table(more: &[(&str, &str)]) -> (Cluster, SessionContext) {
    let cluster = Cluster::sandbox().await;
    cluster.unique_table("t", "id BIGINT NOT NULL, s VARCHAR(40)", "").await;
    let ctx = cluster.context();
    cluster.declare(&ctx, "t", "t", &[&[FOUR], more].concat()).await;
    (cluster, ctx)
}

async fn rows(cluster: &Cluster) -> String {
    cluster.scalar("SELECT COUNT(*) FROM {db}.t").await
}

/// Labels of the loads that the BE got.
fn labels(cluster: &Cluster) -> BTreeSet<String> {
    let loads = cluster.server().requests().matching(Site::Be, "_stream_load");
    let loads = loads.iter().filter(|request| request.method == "PUT" && request.target.ends_with("_stream_load"));
    loads.filter_map(|load| load.header("label")).map(str::to_string).collect()
}

async fn nothing_runs(cluster: &Cluster) {
    let closed = cluster.server().until(|server| server.running_transactions() == 0);
    tokio::time::timeout(PATIENCE, closed).await.expect("no transaction stays open");
}

#[tokio::test]
async fn four_loads_write_every_row_once_under_labels_of_their_own() {
    let (cluster, ctx) = table(&[]).await;
    let plan = text(&run(&ctx, &format!("EXPLAIN {INSERT}")).await);
    assert!(plan.contains("parallelism=4 by key (id), guarantee=all-or-nothing (several commits"), "{plan}");
    assert_eq!(lines(&run(&ctx, INSERT).await), ["20000"]);
    assert_eq!(cluster.scalar("SELECT COUNT(DISTINCT s) FROM {db}.t WHERE s = concat('v', id)").await, "20000");
    let labels = labels(&cluster);
    let writers: Vec<&str> = labels.iter().filter_map(|label| label.rsplit('_').next()).collect();
    assert_eq!(writers, ["0", "1", "2", "3"], "{labels:?}");
    assert_eq!(cluster.server().requests().matching(Site::Be, SECOND_PHASE).len(), 4);
    nothing_runs(&cluster).await;
}

#[tokio::test]
async fn a_duplicate_table_is_written_by_turns() {
    let (cluster, ctx) = table(&[]).await;
    cluster.duplicate_table("plain", "id BIGINT NOT NULL, s VARCHAR(40)", "").await;
    cluster.declare(&ctx, "plain", "plain", &[("sink.parallelism", "3")]).await;
    let insert = INSERT.replace("INTO t", "INTO plain");
    let plan = text(&run(&ctx, &format!("EXPLAIN {insert}")).await);
    assert!(plan.contains("parallelism=3 by turns"), "{plan}");
    run(&ctx, "SET datafusion.execution.batch_size = 1000").await;
    assert_eq!(lines(&run(&ctx, &insert).await), ["20000"]);
    assert_eq!(cluster.scalar("SELECT COUNT(DISTINCT id) FROM {db}.plain").await, "20000");
    assert_eq!(labels(&cluster).len(), 3);
}

#[tokio::test]
async fn the_last_of_many_rows_with_one_key_wins() {
    let (cluster, ctx) = table(&[]).await;
    run(&ctx, "SET datafusion.execution.batch_size = 64").await;
    run(&ctx, "SET datafusion.execution.target_partitions = 1").await;
    let insert = "INSERT INTO t SELECT value % 40, concat('v', value) FROM generate_series(0, 19999)";
    assert_eq!(lines(&run(&ctx, insert).await), ["20000"]);
    let wrong = cluster.scalar("SELECT COUNT(*) FROM {db}.t WHERE s <> concat('v', 19960 + id)").await;
    assert_eq!((rows(&cluster).await.as_str(), wrong.as_str()), ("40", "0"));
    assert_eq!(labels(&cluster).len(), 4);
}

#[tokio::test]
async fn one_load_that_fails_leaves_nothing_of_the_others() {
    let (cluster, ctx) = table(&[]).await;
    let refused = Action::Status { code: 403, body: "no".to_string() };
    cluster.server().faults().push(Fault::new(refused).at(Site::Be).when("_0_1_2").always());
    refusal(&ctx, INSERT).await;
    assert_eq!(rows(&cluster).await, "0");
    nothing_runs(&cluster).await;
    let second_phases = cluster.server().requests().matching(Site::Be, SECOND_PHASE);
    assert!(second_phases.iter().all(|request| request.header("txn_operation") == Some("abort")), "{second_phases:?}");
}

#[tokio::test]
async fn one_load_that_fails_stops_the_others_at_once() {
    let (cluster, ctx) = table(&[("sink.properties.compress_type", ""), ("sink.buffer-size", "1kb")]).await;
    let refused = Action::Status { code: 403, body: "no".to_string() };
    cluster.server().faults().push(Fault::new(refused).at(Site::Be).when("_0_1_2").always());
    let endless = INSERT.replace("20000", "1000000000");
    tokio::time::timeout(PATIENCE, refusal(&ctx, &endless)).await.expect("long before the input ends");
    nothing_runs(&cluster).await;
    assert_eq!(rows(&cluster).await, "0");
}

#[tokio::test]
async fn a_bad_row_of_one_load_is_told_and_leaves_nothing_of_the_others() {
    let (cluster, ctx) = table(&[]).await;
    let insert = INSERT.replace("concat('v', value)", "CASE value WHEN 7777 THEN repeat('x', 99) ELSE 'v' END");
    let message = refusal(&ctx, &insert).await;
    assert!(message.contains("too many filtered rows") && message.contains("_load_error_log"), "{message}");
    assert_eq!(rows(&cluster).await, "0");
    nothing_runs(&cluster).await;
}

#[tokio::test]
async fn a_lost_answer_of_one_load_or_commit_is_resolved_by_its_label() {
    for (request, skip) in [("_0_1_1", 0), (SECOND_PHASE, 0), (SECOND_PHASE, 2)] {
        let (cluster, ctx) = table(&[]).await;
        cluster.server().faults().push(Fault::new(Action::DropAnswer).at(Site::Be).when(request).skip(skip));
        assert_eq!(lines(&run(&ctx, INSERT).await), ["20000"]);
        assert_eq!(cluster.server().faults().armed(), 0, "the fault was used");
        assert_eq!(rows(&cluster).await, "20000");
        nothing_runs(&cluster).await;
    }
}

#[tokio::test]
async fn a_first_commit_that_is_refused_takes_all_loads_back() {
    let (cluster, ctx) = table(&[]).await;
    let refused = Action::Status { code: 403, body: "no".to_string() };
    cluster.server().faults().push(Fault::new(refused).at(Site::Be).when(COMMIT));
    refusal(&ctx, INSERT).await;
    assert_eq!(cluster.server().faults().armed(), 0, "the fault was used");
    assert_eq!(rows(&cluster).await, "0");
    nothing_runs(&cluster).await;
}

#[tokio::test]
async fn a_statement_of_which_the_server_dropped_a_part_says_what_is_visible() {
    let (cluster, ctx) = table(&[("sink.max-retries", "1")]).await;
    let refused = Action::Status { code: 403, body: "no".to_string() };
    cluster.server().faults().push(Fault::new(refused).at(Site::Be).when(COMMIT).skip(3).always());
    let message = refusal(&ctx, INSERT).await;
    let visible: BTreeSet<String> = labels(&cluster).into_iter().filter(|label| message.contains(label)).collect();
    assert_eq!(visible.len(), 4, "{message}");
    assert!(message.contains("are in table") && message.contains("run the statement again"), "{message}");
    let there: u64 = rows(&cluster).await.parse().expect("a number");
    assert!((1..20_000).contains(&there), "{there}");
    nothing_runs(&cluster).await;
    cluster.server().faults().clear();
    run(&ctx, INSERT).await;
    assert_eq!(rows(&cluster).await, "20000", "the advice is right");
}

#[tokio::test]
async fn without_two_phase_commit_an_error_names_the_loads_that_are_visible() {
    let (cluster, ctx) = table(&[("sink.enable-2pc", "false")]).await;
    let plan = text(&run(&ctx, &format!("EXPLAIN {INSERT}")).await);
    assert!(plan.contains("guarantee=all-or-nothing per load (no two-phase commit)"), "{plan}");
    assert_eq!(lines(&run(&ctx, INSERT).await), ["20000"]);
    assert_eq!(cluster.server().requests().matching(Site::Be, SECOND_PHASE).len(), 0);
    cluster.doris("TRUNCATE TABLE {db}.t").await;
    cluster.server().requests().clear();
    // The last load fails, after the others have ended.
    let go = Arc::new(Notify::new());
    cluster.server().faults().push(Fault::new(Action::Wait(Arc::clone(&go))).at(Site::Be).when("_0_1_3"));
    let others_ended = async {
        let ended = cluster.server().until(|server| {
            let loads = server.requests().matching(Site::Be, "_stream_load");
            loads.iter().filter(|load| load.status == Some(200)).count() == 3
        });
        tokio::time::timeout(PATIENCE, ended).await.expect("three loads end");
        let refused = Action::FailCommit("told to fail".to_string());
        cluster.server().faults().push(Fault::new(refused).at(Site::Be).when("_0_1_3").always());
        go.notify_one();
    };
    let (message, ()) = tokio::join!(refusal(&ctx, INSERT), others_ended);
    assert!(message.contains("told to fail") && message.contains("are in the table already"), "{message}");
    let visible: Vec<String> = labels(&cluster).into_iter().filter(|label| !label.ends_with('3')).collect();
    assert!(visible.len() == 3 && visible.iter().all(|label| message.contains(label)), "{visible:?}: {message}");
    let there: u64 = rows(&cluster).await.parse().expect("a number");
    assert!((10_000..20_000).contains(&there), "{there}");
}

#[tokio::test]
async fn dropping_an_insert_midway_cuts_every_load() {
    let (cluster, ctx) = table(&[("sink.properties.compress_type", ""), ("sink.buffer-size", "1kb")]).await;
    let endless = INSERT.replace("20000", "1000000000");
    let frame = datafusion_doris::sql(&ctx, &endless).await.expect("plans");
    {
        let running = frame.collect();
        tokio::pin!(running);
        let all_open = cluster.server().until(|server| server.running_transactions() == 4);
        tokio::select! {
            result = &mut running => panic!("ended: {result:?}"),
            opened = tokio::time::timeout(PATIENCE, all_open) => opened.expect("four loads are opened"),
        }
    }
    nothing_runs(&cluster).await;
    assert_eq!(rows(&cluster).await, "0");
}

#[tokio::test]
async fn dropping_an_insert_that_waits_for_one_of_its_loads_aborts_all() {
    let (cluster, ctx) = table(&[]).await;
    let (done, release) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let hold = Action::HoldAnswer { done: Arc::clone(&done), release: Arc::clone(&release) };
    cluster.server().faults().push(Fault::new(hold).at(Site::Be).when("_0_1_3"));
    let frame = datafusion_doris::sql(&ctx, INSERT).await.expect("plans");
    {
        let running = frame.collect();
        tokio::pin!(running);
        let held = async {
            done.notified().await;
            cluster.server().until(|server| server.running_transactions() == 4).await;
        };
        tokio::select! {
            result = &mut running => panic!("ended: {result:?}"),
            held = tokio::time::timeout(PATIENCE, held) => held.expect("the load is pre-committed"),
        }
    }
    nothing_runs(&cluster).await;
    assert_eq!(rows(&cluster).await, "0");
    release.notify_one();
}

/// A job of four loads at once that goes on with other numbers of them.
async fn killed_at(request: &str, skip: usize, then: &str) {
    History::new(&[FOUR]).await.killed_at(request, skip, &[("sink.parallelism", then)]).await;
}

#[tokio::test]
async fn a_job_killed_between_its_commits_makes_every_row_visible_once() {
    killed_at(SECOND_PHASE, 2, "4").await;
}

#[tokio::test]
async fn a_job_killed_between_its_pre_commits_leaves_no_load_to_a_start_with_fewer() {
    killed_at(LOAD, 2, "1").await;
    killed_at(LOAD, 3, "2").await;
}

#[tokio::test]
async fn a_job_killed_between_its_commits_goes_on_with_more_loads_or_fewer() {
    killed_at(SECOND_PHASE, 1, "1").await;
    killed_at(SECOND_PHASE, 2, "7").await;
}

#[tokio::test]
async fn changes_of_one_key_keep_their_order_through_several_loads() {
    let cluster = Cluster::start().await;
    let columns = "id INT NOT NULL, v VARCHAR(20)";
    cluster.changing_table("source", columns).await;
    cluster.unique_table("mirror", columns, "").await;
    let ctx = cluster.context();
    run(&ctx, "SET datafusion.execution.batch_size = 3").await;
    let start = cluster.scalar("SELECT DATE_FORMAT(NOW(), '%Y-%m-%d %H:%i:%s')").await;
    let source = [
        ("source.scan.mode", "from-timestamp"),
        ("source.scan.timestamp", start.as_str()),
        ("source.scan.bounded-mode", "latest"),
    ];
    cluster.declare(&ctx, "changes", "source", &source).await;
    let sink = [("sink.change-kind-column", "__change_kind"), ("sink.ignore.update-before", "false"), FOUR];
    cluster.declare(&ctx, "mirror", "mirror", &sink).await;
    for round in 0..6 {
        let rows: Vec<String> = (0..12).map(|id| format!("({id}, 'r{round}')")).collect();
        cluster.doris(&format!("INSERT INTO {{db}}.source VALUES {}", rows.join(", "))).await;
        cluster.doris(&format!("DELETE FROM {{db}}.source WHERE id % 3 = {}", round % 3)).await;
        cluster.doris(&format!("UPDATE {{db}}.source SET v = concat(v, 'u') WHERE id % 4 = {}", round % 4)).await;
    }
    cluster.next_second().await;
    run(&ctx, "INSERT INTO mirror SELECT * FROM changes").await;
    let all = "ORDER BY id";
    let source = cluster.doris(&format!("SELECT * FROM {{db}}.source {all}")).await;
    assert_eq!(source.len(), 8);
    assert_eq!(source, cluster.doris(&format!("SELECT * FROM {{db}}.mirror {all}")).await);
}
