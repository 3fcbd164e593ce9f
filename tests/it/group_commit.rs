//! Loads by group commit: the server makes the label, so a lost answer stays unknown, and everybody is told.

use datafusion::prelude::SessionContext;
use datafusion_doris::Error;
use datafusion_doris::error::Retry;
use doris_sandbox::{Action, Fault, Site};

use crate::harness::{Cluster, lines, refusal, run, text, try_run};
use crate::write::{FORMATS, insert};

const INSERT: &str = "INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, 'c')";
/// The table's interval: how long a group stays open.
const SOON: &str = "'group_commit_interval_ms' = '20'";
const NEVER: &str = "'group_commit_interval_ms' = '3600000'";

async fn table(mode: &str, property: &str, more: &[(&str, &str)]) -> (Cluster, SessionContext) {
    let cluster = Cluster::sandbox().await;
    cluster.duplicate_table("t", "id INT, s STRING", property).await;
    let ctx = cluster.context();
    let options = [("sink.properties.group_commit", mode), ("sink.enable-2pc", "false")];
    cluster.declare(&ctx, "t", "t", &[&options, more].concat()).await;
    (cluster, ctx)
}

async fn rows(cluster: &Cluster) -> String {
    cluster.scalar("SELECT COUNT(*) FROM {db}.t").await
}

fn at_load(action: Action) -> Fault {
    Fault::new(action).at(Site::Be).when("t/_stream_load")
}

#[tokio::test]
async fn sync_mode_ends_with_visible_rows_in_each_format() {
    for format in FORMATS {
        let (cluster, ctx) = table("SYNC_mode", SOON, format).await;
        assert_eq!(insert(&ctx, INSERT).await, 3, "{format:?}");
        assert_eq!(rows(&cluster).await, "3", "{format:?}");
        let loads = cluster.server().requests().matching(Site::Be, "t/_stream_load");
        assert_eq!(loads.len(), 1);
        assert_eq!((loads[0].header("label"), loads[0].header("two_phase_commit")), (None, None));
        assert_eq!(loads[0].header("group_commit"), Some("SYNC_mode"));
    }
}

#[tokio::test]
async fn async_mode_ends_before_its_rows_are_visible() {
    let (cluster, ctx) = table("async_mode", NEVER, &[]).await;
    assert_eq!(insert(&ctx, INSERT).await, 3);
    assert_eq!(rows(&cluster).await, "0", "the group is open");
}

#[tokio::test]
async fn async_mode_can_wait_for_the_groups_transaction() {
    let (cluster, ctx) = table("async_mode", SOON, &[("sink.visible-wait-timeout", "10min")]).await;
    assert_eq!(insert(&ctx, INSERT).await, 3);
    assert_eq!(rows(&cluster).await, "3");
    let asked = cluster.server().requests().matching(Site::Fe, "get_load_state?label=group_commit_");
    assert!(!asked.is_empty(), "the label that the answer tells");
}

#[tokio::test]
async fn the_plan_says_what_group_commit_promises() {
    let (_cluster, ctx) = table("async_mode", SOON, &[]).await;
    let plan = text(&run(&ctx, &format!("EXPLAIN {INSERT}")).await);
    assert!(plan.contains("two_phase_commit=false, group_commit=async_mode"), "{plan}");
    assert!(plan.contains("guarantee=at-least-once (group commit: a lost answer cannot be resolved)"), "{plan}");
}

#[tokio::test]
async fn the_plan_of_a_continuous_insert_says_it_too() {
    let (cluster, ctx) = table("sync_mode", SOON, &[]).await;
    cluster.changing_table("source", "id INT, s STRING").await;
    cluster.declare(&ctx, "changes", "source", &[("source.scan.mode", "latest")]).await;
    let plan = text(&run(&ctx, "EXPLAIN INSERT INTO t SELECT id, s FROM changes WHERE __change_kind = '+I'").await);
    assert!(plan.contains("guarantee=at-least-once (group commit: a lost answer cannot be resolved)"), "{plan}");
}

#[tokio::test]
async fn a_lost_answer_is_an_error_that_says_so_and_nothing_is_sent_again() {
    // Whether the rows are in the table differs; what can be known does not.
    for (action, there) in [(Action::DropAnswer, "3"), (Action::CutAfterBytes(1), "0")] {
        let (cluster, ctx) = table("sync_mode", SOON, &[]).await;
        cluster.server().faults().push(at_load(action));
        let error = try_run(&ctx, INSERT).await.expect_err("the answer is lost");
        let message = error.to_string();
        assert!(message.contains("nothing tells whether its rows are in the table"), "{message}");
        let datafusion::error::DataFusionError::External(error) = error.find_root() else { panic!("{error:?}") };
        let error = error.downcast_ref::<Error>().expect("an error of this crate");
        assert_eq!(error.retry(), Retry::CannotTell);
        cluster.server().until(|server| server.running_transactions() == 0).await;
        assert_eq!(rows(&cluster).await, there);
        assert_eq!(cluster.server().requests().matching(Site::Be, "t/_stream_load").len(), 1);
        assert!(cluster.server().requests().matching(Site::Fe, "get_load_state").is_empty(), "there is no label");
    }
}

#[tokio::test]
async fn an_fe_that_is_not_ready_is_asked_again() {
    let (cluster, ctx) = table("sync_mode", SOON, &[]).await;
    let starting = Action::Status { code: 503, body: "starting".into() };
    cluster.server().faults().push(Fault::new(starting).at(Site::Fe).when("t/_stream_load"));
    assert_eq!(insert(&ctx, INSERT).await, 3);
    assert_eq!((cluster.server().faults().armed(), rows(&cluster).await.as_str()), (0, "3"));
}

/// Doris does not look at `max_filter_ratio` there, so it is looked at here.
#[tokio::test]
async fn refused_rows_are_an_error_though_the_others_stay() {
    let bad = "INSERT INTO t VALUES (1, 'a'), (2, 'much too long'), (3, 'c')";
    for (ratio, taken) in [("0.2", false), ("0.5", true)] {
        let cluster = Cluster::sandbox().await;
        cluster.duplicate_table("t", "id INT, s VARCHAR(5)", SOON).await;
        let ctx = cluster.context();
        let options = [
            ("sink.properties.group_commit", "sync_mode"),
            ("sink.enable-2pc", "false"),
            ("sink.properties.max_filter_ratio", ratio),
        ];
        cluster.declare(&ctx, "t", "t", &options).await;
        if taken {
            assert_eq!(insert(&ctx, bad).await, 2);
        } else {
            let message = refusal(&ctx, bad).await;
            for part in ["1 of 3 rows were refused", "the others are in the table", "schema length: 5"] {
                assert!(message.contains(part), "{part} is not in: {message}");
            }
        }
        assert_eq!(lines(&run(&ctx, "SELECT id FROM t ORDER BY id").await), ["1", "3"], "{ratio}");
    }
}

#[tokio::test]
async fn options_that_exclude_group_commit_are_refused_by_name() {
    let cluster = Cluster::sandbox().await;
    cluster.unique_table("t", "id INT, s STRING", "").await;
    let ctx = cluster.context();
    let group = ("sink.properties.group_commit", "async_mode");
    let one_phase = ("sink.enable-2pc", "false");
    for (options, named) in [
        (vec![group], "sink.properties.group_commit"),
        (vec![group, one_phase, ("sink.properties.partial_columns", "true")], "sink.properties.partial_columns"),
        (vec![group, one_phase, ("sink.properties.partitions", "p1")], "sink.properties.partitions"),
        (vec![group, one_phase, ("sink.properties.label", "mine")], "sink.properties.label"),
    ] {
        let message = refusal(&ctx, &cluster.ddl("t", "t", &options)).await;
        assert!(message.contains(&format!("option '{named}'")), "{message}");
    }
}
