//! What earlier connectors got wrong about loads: cases C058 to C065, in each write mode that they apply to.

use std::time::Duration;

use datafusion::prelude::SessionContext;
use doris_sandbox::{Action, Fault, Site};

use crate::batch::{BATCH, count, label, loads, rows_to, table};
use crate::harness::{Cluster, refusal, run, text};
use crate::write::{FORMATS, insert};

const STREAM: (&str, &str) = ("sink.write-mode", "STREAM_LOAD");
const MODES: [(&str, &str); 2] = [STREAM, BATCH];
const AT_ONCE: (&str, &str) = ("sink.enable-2pc", "false");
/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// The table of [`table`] in another mode.
async fn in_mode(options: &[(&str, &str)]) -> (Cluster, SessionContext) {
    let (cluster, ctx) = table(&[]).await;
    run(&ctx, "DROP TABLE t").await;
    cluster.declare(&ctx, "t", "t", options).await;
    (cluster, ctx)
}

/// Questions for the state of a label.
fn questions(cluster: &Cluster) -> usize {
    cluster.server().requests().matching(Site::Fe, "get_load_state").len()
}

#[tokio::test]
async fn c058_answer_lost_after_commit() {
    for mode in MODES {
        for format in FORMATS {
            let (cluster, ctx) = in_mode(&[&[mode, AT_ONCE], format].concat()).await;
            cluster.server().faults().push(Fault::new(Action::DropAnswer).at(Site::Be).when("_stream_load "));
            assert_eq!(insert(&ctx, &rows_to(1000)).await, 1000, "{mode:?} {format:?}");
            assert_eq!(cluster.server().faults().armed(), 0, "the fault was used");
            assert_eq!((loads(&cluster).len(), count(&cluster).await.as_str()), (1, "1000"), "{mode:?} {format:?}");
            assert!(questions(&cluster) >= 1, "the label is asked for");
        }
    }
}

#[tokio::test]
async fn c058_a_load_that_is_not_there_is_sent_again_under_its_label() {
    for mode in MODES {
        for format in FORMATS {
            let (cluster, ctx) = in_mode(&[&[mode, AT_ONCE], format].concat()).await;
            cluster.server().faults().push(Fault::new(Action::CutAfterBytes(100)).at(Site::Be).when("_stream_load "));
            assert_eq!(insert(&ctx, &rows_to(1000)).await, 1000, "{mode:?} {format:?}");
            assert_eq!(count(&cluster).await, "1000", "{mode:?} {format:?}");
            let loads = loads(&cluster);
            assert_eq!(loads.len(), 2, "{mode:?} {format:?}");
            assert_eq!(label(&loads[0]), label(&loads[1]), "{mode:?} {format:?}");
        }
    }
}

/// A streamed load keeps a few chunks only; a batch is kept whole until it has landed.
#[tokio::test]
async fn c058_a_batch_of_many_chunks_is_sent_again_as_a_whole() {
    let options = [BATCH, ("sink.buffer-size", "1kb"), ("sink.properties.compress_type", "")];
    let (cluster, ctx) = in_mode(&options).await;
    cluster.server().faults().push(Fault::new(Action::CutAfterBytes(50_000)).at(Site::Be).when("_stream_load "));
    assert_eq!(insert(&ctx, &rows_to(10_000)).await, 10_000);
    assert_eq!((loads(&cluster).len(), count(&cluster).await.as_str()), (2, "10000"));
}

#[tokio::test]
async fn c059_publish_timeout() {
    for mode in MODES {
        for format in FORMATS {
            let (cluster, ctx) = in_mode(&[&[mode, AT_ONCE], format].concat()).await;
            cluster.server().faults().push(Fault::new(Action::PublishTimeout).at(Site::Be).when("_stream_load "));
            assert_eq!(insert(&ctx, &rows_to(10)).await, 10, "{mode:?} {format:?}");
            assert_eq!(cluster.server().faults().armed(), 0, "the fault was used");
            assert_eq!(loads(&cluster).len(), 1, "{mode:?} {format:?}");
            let visible = async { while count(&cluster).await != "10" {} };
            tokio::time::timeout(PATIENCE, visible).await.expect("it becomes visible");
        }
    }
}

#[tokio::test]
async fn c060_last_partial_batch() {
    let options = [("sink.buffer-flush.max-rows", "1000"), ("sink.properties.compress_type", "")];
    let (cluster, ctx) = table(&options).await;
    // Seven bytes each.
    let rows =
        "SELECT value, 'x' FROM generate_series(100, 999) UNION ALL SELECT value, '' FROM generate_series(1000, 2599)";
    assert_eq!(insert(&ctx, &format!("INSERT INTO t {rows}")).await, 2500);
    assert_eq!(count(&cluster).await, "2500");
    let bodies: Vec<u64> = loads(&cluster).iter().map(|load| load.body_bytes).collect();
    // 900 rows as `100<tab>"x"<nl>`, the others as `1000<tab>""<nl>`: eight bytes each.
    assert_eq!(bodies, [8000, 8000, 4000]);
}

#[tokio::test]
async fn c061_buffers_are_accounted_for_by_their_own_bytes() {
    for compression in ["gz", ""] {
        let options = [
            ("sink.buffer-flush.max-rows", "50"),
            ("sink.flush.queue-size", "2"),
            ("sink.properties.compress_type", compression),
        ];
        let (cluster, ctx) = table(&options).await;
        run(&ctx, "SET datafusion.execution.batch_size = 50").await;
        // The server tells of the compressed bytes.
        let insert = format!("EXPLAIN ANALYZE {}", rows_to(200 * 50));
        let written = tokio::time::timeout(Duration::from_secs(30), run(&ctx, &insert));
        let plan = text(&written.await.expect("it does not wait for ever"));
        assert!(plan.contains("buffered_bytes=0") && plan.contains("loads=200"), "{plan}");
        assert_eq!((loads(&cluster).len(), count(&cluster).await.as_str()), (200, "10000"));
    }
}

#[tokio::test]
async fn c062_background_load_fails() {
    for (two_phase, visible) in [("false", "10"), ("true", "0")] {
        let options = [("sink.buffer-flush.max-rows", "10"), ("sink.enable-2pc", two_phase)];
        let (cluster, ctx) = table(&options).await;
        let failure = Action::FailCommit("told to fail".to_string());
        cluster.server().faults().push(Fault::new(failure).at(Site::Be).when("_0_1_1"));
        let insert_50 = rows_to(50);
        let failed = tokio::time::timeout(Duration::from_secs(5), refusal(&ctx, &insert_50));
        let message = failed.await.expect("it fails soon");
        let sent = loads(&cluster);
        assert_eq!(sent.len(), 2, "nothing is sent after a load that failed");
        assert!(message.contains("told to fail") && message.contains(label(&sent[1])), "{message}");
        if two_phase == "false" {
            assert!(message.contains(label(&sent[0])) && message.contains("are in the table already"), "{message}");
        }
        assert_eq!(count(&cluster).await, visible, "2pc {two_phase}");
        assert_eq!(insert(&ctx, &rows_to(10)).await, 10, "the table works again");
        cluster.server().until(|server| server.running_transactions() == 0).await;
    }
}

#[tokio::test]
async fn c063_many_small_batches_of_the_input_are_one_load() {
    let (cluster, ctx) = table(&[]).await;
    run(&ctx, "SET datafusion.execution.batch_size = 1").await;
    assert_eq!(insert(&ctx, &rows_to(1000)).await, 1000);
    assert_eq!(count(&cluster).await, "1000");
    assert!(loads(&cluster).len() <= 2, "{}", loads(&cluster).len());
}

#[tokio::test]
async fn c063_too_many_versions_are_waited_for() {
    let versions = || {
        let text =
            "[E-235]failed to init rowset builder. version count: 2001, exceed limit: 2000, tablet: 10".to_string();
        Fault::new(Action::FailCommit(text)).at(Site::Be).when("_stream_load ")
    };
    for mode in MODES {
        for format in FORMATS {
            let (cluster, ctx) = in_mode(&[&[mode], format].concat()).await;
            cluster.server().faults().push(versions());
            assert_eq!(insert(&ctx, &rows_to(1000)).await, 1000, "{mode:?} {format:?}");
            assert_eq!(count(&cluster).await, "1000", "{mode:?} {format:?}");
            let loads = loads(&cluster);
            assert_eq!(loads.len(), 2, "{mode:?} {format:?}");
            assert_eq!(label(&loads[0]), label(&loads[1]), "{mode:?} {format:?}");
            assert_eq!(loads[0].body_bytes, loads[1].body_bytes, "the same rows");
        }
        let (cluster, ctx) = in_mode(&[mode, ("sink.max-retries", "1")]).await;
        cluster.server().faults().push(versions().always());
        let message = refusal(&ctx, &rows_to(1000)).await;
        let loads = loads(&cluster);
        assert_eq!(loads.len(), 2, "{mode:?}");
        assert!(message.contains("-235") && message.contains(label(&loads[0])), "{message}");
        assert_eq!(count(&cluster).await, "0");
    }
}

#[tokio::test]
async fn c064_rows_filtered_with_reason() {
    let bad = "INSERT INTO t VALUES (1, repeat('x', 41))";
    for mode in MODES {
        for format in FORMATS {
            let (cluster, ctx) = in_mode(&[&[mode], format].concat()).await;
            let message = refusal(&ctx, bad).await;
            let told = [
                label(&loads(&cluster)[0]).to_string(),
                "1 in all, 0 loaded, 1 filtered".to_string(),
                "_load_error_log?file=".to_string(),
                "Reason: ".to_string(),
                "schema length: 40".to_string(),
                "src line".to_string(),
            ];
            assert!(told.iter().all(|part| message.contains(part)), "{mode:?} {format:?}: {message}");
            assert_eq!(cluster.server().requests().matching(Site::Be, "_load_error_log").len(), 1);

            let gone = Action::Status { code: 404, body: "it is gone".to_string() };
            cluster.server().faults().push(Fault::new(gone).at(Site::Be).when("_load_error_log"));
            let message = refusal(&ctx, bad).await;
            assert_eq!(cluster.server().faults().armed(), 0, "the fault was used");
            let told = ["too many filtered rows", "1 in all, 0 loaded, 1 filtered", "_load_error_log?file="];
            assert!(told.iter().all(|part| message.contains(part)), "{mode:?} {format:?}: {message}");
            assert!(!message.contains("it is gone"), "{message}");

            run(&ctx, "DROP TABLE t").await;
            let lenient = ("sink.properties.max_filter_ratio", "1");
            cluster.declare(&ctx, "t", "t", &[&[mode, lenient], format].concat()).await;
            assert_eq!(insert(&ctx, bad).await, 0, "{mode:?} {format:?}: a filtered row is not counted");
            assert_eq!(count(&cluster).await, "0");
        }
    }
}

#[tokio::test]
async fn c064_the_log_is_asked_for_without_credentials() {
    let (cluster, ctx) = table(&[]).await;
    refusal(&ctx, "INSERT INTO t VALUES (1, repeat('x', 41))").await;
    let asked = cluster.server().requests().matching(Site::Be, "_load_error_log");
    assert_eq!(asked.len(), 1);
    assert_eq!(asked[0].header("authorization"), None);
}

#[tokio::test]
async fn c065_late_redirect() {
    let late = |mode: (&'static str, &'static str)| async move {
        let (cluster, ctx) = in_mode(&[mode, ("sink.properties.compress_type", "")]).await;
        cluster.doris("DROP TABLE {db}.t").await;
        cluster.duplicate_table("t", "id BIGINT NOT NULL, s STRING", "").await;
        run(&ctx, "DROP TABLE t").await;
        cluster.declare(&ctx, "t", "t", &[mode, ("sink.properties.compress_type", "")]).await;
        let delay = Action::Delay(Duration::from_secs(3));
        cluster.server().faults().push(Fault::new(delay).at(Site::Fe).when("_stream_load "));
        let rows = "SELECT value, repeat('x', 1000) FROM generate_series(1, 5000)";
        assert_eq!(insert(&ctx, &format!("INSERT INTO t {rows}")).await, 5000, "{mode:?}");
        assert_eq!(cluster.server().faults().armed(), 0, "the fault was used");
        let at_fe = cluster.server().requests().matching(Site::Fe, "_stream_load");
        let at_fe: Vec<_> = at_fe.iter().filter(|request| request.target.ends_with("_stream_load")).collect();
        assert!(at_fe.iter().all(|request| request.body_bytes == 0), "{at_fe:?}");
        assert!(at_fe.iter().all(|request| request.header("expect") == Some("100-continue")), "{at_fe:?}");
        let at_be = loads(&cluster);
        assert_eq!(at_be.len(), 1, "{mode:?}");
        assert!(at_be[0].body_bytes > 5_000_000, "{mode:?}: {}", at_be[0].body_bytes);
    };
    tokio::join!(late(STREAM), late(BATCH));
}
