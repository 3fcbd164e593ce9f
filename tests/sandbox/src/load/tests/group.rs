//! Group commit.

use crate::engine::{Clock as _, ManualClock};

use super::*;

const ASYNC: (&str, &str) = ("group_commit", "async_mode");
const SYNC: (&str, &str) = ("group_commit", "sync_mode");
const START: i64 = 1_700_000_000_000;

async fn with_clock() -> (Sandbox, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::new(START));
    let s = builder().clock(Arc::clone(&clock) as _).start().await.expect("sandbox");
    s.execute(
        r#"CREATE TABLE d.small (id INT NULL) DUPLICATE KEY(id) DISTRIBUTED BY HASH(id) BUCKETS 1
           PROPERTIES ("replication_num" = "1", "group_commit_interval_ms" = "500", "group_commit_data_bytes" = "10");
           CREATE TABLE d.auto (id INT NULL) DUPLICATE KEY(id) DISTRIBUTED BY HASH(id) BUCKETS 1
           PROPERTIES ("replication_num" = "1", "group_commit_mode" = "async_mode");
           CREATE TABLE d.sums (id INT NULL, n BIGINT SUM NULL) AGGREGATE KEY(id) DISTRIBUTED BY HASH(id) BUCKETS 1
           PROPERTIES ("replication_num" = "1");
           CREATE TABLE d.part (id INT NOT NULL, v INT NULL) DUPLICATE KEY(id)
           PARTITION BY RANGE(id) (PARTITION p VALUES LESS THAN ("10")) DISTRIBUTED BY HASH(id) BUCKETS 1
           PROPERTIES ("replication_num" = "1");"#,
    )
    .await
    .expect("tables");
    (s, clock)
}

#[tokio::test]
async fn loads_of_a_group_share_a_transaction_that_becomes_visible_later() {
    let (s, clock) = with_clock().await;
    let first = load(&s, "dup", &[CSV, ASYNC], "1,a,1\n2,b,x\n").await;
    assert_eq!((first["Status"].as_str(), message(&first)), (Some("Success"), "OK"), "{first}");
    assert_eq!(counts(&first), [2, 1, 1, 0], "the ratio is not looked at");
    assert_eq!(first["GroupCommit"], true);
    let label = first["Label"].as_str().expect("label");
    assert!(label.starts_with("group_commit_"), "{label}");
    for key in ["TwoPhaseCommit", "BeginTxnTimeMs", "CommitAndPublishTimeMs"] {
        assert!(first.get(key).is_none(), "{key}: {first}");
    }
    let second = load(&s, "dup", &[CSV, ASYNC], "3,c,3\n").await;
    assert_eq!((&second["Label"], &second["TxnId"]), (&first["Label"], &first["TxnId"]));
    assert_eq!((query(&s, "SELECT count(*) FROM d.dup").await, s.running_transactions()), (vec!["0".into()], 1));
    clock.advance(9_999);
    assert_eq!(s.running_transactions(), 1);
    clock.advance(1);
    s.until(|s| s.running_transactions() == 0).await;
    assert_eq!(query(&s, "SELECT id FROM d.dup ORDER BY id").await, ["1", "3"]);
    let third = load(&s, "dup", &[CSV, ASYNC], "4,d,4\n").await;
    assert_ne!(third["Label"], first["Label"]);
    assert_eq!(clock.now_ms(), START + 10_000);
}

#[tokio::test]
async fn a_load_in_sync_mode_waits_for_the_shared_commit() {
    let (s, clock) = with_clock().await;
    let waiting = load(&s, "small", &[SYNC], "1\n");
    let moves = async {
        s.until(|s| s.running_transactions() == 1).await;
        assert_eq!(query(&s, "SELECT count(*) FROM d.small").await, ["0"]);
        clock.advance(500);
    };
    let (answer, ()) = tokio::join!(waiting, moves);
    assert_eq!(answer["Status"], "Success", "{answer}");
    assert_eq!(query(&s, "SELECT count(*) FROM d.small").await, ["1"]);
}

#[tokio::test]
async fn enough_bytes_commit_a_group_at_once() {
    let (s, _clock) = with_clock().await;
    load(&s, "small", &[ASYNC], "1\n2\n").await;
    assert_eq!(query(&s, "SELECT count(*) FROM d.small").await, ["0"]);
    let answer = load(&s, "small", &[SYNC], "3\n4\n5\n6\n").await;
    assert_eq!(answer["Status"], "Success", "{answer}");
    assert_eq!(query(&s, "SELECT count(*) FROM d.small").await, ["6"]);
}

#[tokio::test]
async fn the_property_of_the_table_decides_in_the_newest_build() {
    let (s, clock) = with_clock().await;
    let answer = load(&s, "auto", &[], "1\n").await;
    assert_eq!((answer["Status"].as_str(), answer["GroupCommit"].as_bool()), (Some("Success"), Some(true)), "{answer}");
    for headers in [vec![("label", "own")], vec![("group_commit", "off_mode")], vec![("two_phase_commit", "true")]] {
        let answer = load(&s, "auto", &headers, "2\n").await;
        assert!(answer.get("GroupCommit").is_none() && answer["Status"] == "Success", "{headers:?}: {answer}");
    }
    clock.advance(10_000);
    s.until(|s| s.running_transactions() == 1).await;
    assert_eq!(query(&s, "SELECT count(*) FROM d.auto").await, ["3"]);
}

#[tokio::test]
async fn refusals_and_fallbacks_of_group_commit() {
    let (s, _clock) = with_clock().await;
    let answer = load(&s, "dup", &[CSV, SYNC, ("label", "l")], "1,a,1\n").await;
    assert_eq!(message(&answer), "[INVALID_ARGUMENT]label and group_commit can't be set at the same time");
    let answer = load(&s, "dup", &[CSV, ("group_commit", "on")], "1,a,1\n").await;
    assert_eq!(message(&answer), "[INVALID_ARGUMENT]group_commit can only be [async_mode, sync_mode, off_mode]");
    let answer = load(&s, "dup", &[CSV, ASYNC, ("where", "nope > 1")], "1,a,1\n").await;
    assert_eq!((answer["Status"].as_str(), answer["TxnId"].as_i64()), (Some("Fail"), Some(-1)), "{answer}");
    let answer = load(&s, "dup", &[CSV, SYNC, ("content-length", "0")], "").await;
    assert_eq!(answer["TwoPhaseCommit"], "false", "an empty body is an ordinary load: {answer}");
    let answer = load(&s, "dup", &[CSV, ASYNC, ("two_phase_commit", "true"), ("label", "2pc")], "1,a,1\n").await;
    assert_eq!((answer["TwoPhaseCommit"].as_str(), answer["Label"].as_str()), (Some("true"), Some("2pc")));
}

#[tokio::test]
async fn what_was_accepted_is_committed_when_the_server_stops() {
    let (s, _clock) = with_clock().await;
    load(&s, "small", &[ASYNC], "1\n").await;
    let engine = Arc::clone(s.engine());
    assert_eq!(engine.running_transactions(), 1);
    drop(s);
    assert_eq!(engine.running_transactions(), 0);
    let tablets = engine.tablets("d", "small").expect("tablets");
    assert_eq!(tablets.iter().map(|t| t.rows).sum::<u64>(), 1);
}

/// Moves the time past every interval and waits for the commits.
async fn commit(s: &Sandbox, clock: &ManualClock) {
    clock.advance(10_000);
    s.until(|s| s.running_transactions() == 0).await;
}

#[tokio::test]
async fn no_client_ends_the_transaction_of_a_group() {
    let (s, clock) = with_clock().await;
    let first = load(&s, "dup", &[CSV, ASYNC], "1,a,1\n").await;
    let (label, id) = (first["Label"].as_str().expect("label"), first["TxnId"].to_string());
    let status = "TStatus: errCode = 2, detailMessage = transaction";
    for (header, operation, expected) in [
        (("label", label), "abort", format!("{status} [{id}] is of a group commit, could not abort.")),
        (("txn_id", id.as_str()), "abort", format!("{status} [{id}] is of a group commit, could not abort.")),
        (("txn_id", id.as_str()), "commit", format!("{status} [{id}] is prepare, not pre-committed.")),
    ] {
        let refused = second_phase(&s, &[header, ("txn_operation", operation)]).await;
        assert_eq!(refused, ("ANALYSIS_ERROR".to_owned(), expected));
    }
    let second = load(&s, "dup", &[CSV, ASYNC], "2,b,2\n").await;
    assert_eq!(second["TxnId"], first["TxnId"]);
    commit(&s, &clock).await;
    assert_eq!(query(&s, "SELECT id FROM d.dup ORDER BY id").await, ["1", "2"]);
}

#[tokio::test]
async fn what_a_group_has_taken_outlives_a_leap_of_the_clock() {
    let (s, _clock) = with_clock().await;
    load(&s, "small", &[ASYNC], "1\n").await;
    // The sweep that comes with it aborts what is overdue.
    s.advance_clock(std::time::Duration::from_secs(86_400));
    s.until(|s| s.running_transactions() == 0).await;
    assert_eq!(query(&s, "SELECT id FROM d.small").await, ["1"]);
}

#[tokio::test]
async fn negative_loads_of_a_group_subtract() {
    let (s, clock) = with_clock().await;
    load(&s, "sums", &[CSV, ASYNC], "1,10\n").await;
    let negative = load(&s, "sums", &[CSV, ASYNC, ("negative", "true")], "1,3\n").await;
    assert_eq!(negative["Status"], "Success", "{negative}");
    commit(&s, &clock).await;
    assert_eq!(query(&s, "SELECT n FROM d.sums").await, ["7"]);
}

#[tokio::test]
async fn rows_that_no_partition_takes_are_told_of() {
    let (s, clock) = with_clock().await;
    let answer = load(&s, "part", &[CSV, ASYNC], "x,0\n1,1\n11,2\n").await;
    assert_eq!((answer["Status"].as_str(), counts(&answer)), (Some("Success"), [3, 1, 2, 0]), "{answer}");
    let text = error_log(&answer).await;
    assert!(text.contains("no partition for this tuple") && text.contains("src line [11,2]"), "{text}");
    commit(&s, &clock).await;
    assert_eq!(query(&s, "SELECT id FROM d.part").await, ["1"]);
}

#[tokio::test]
async fn a_failed_commit_keeps_a_load_out_of_its_group() {
    let (s, clock) = with_clock().await;
    load(&s, "dup", &[CSV, ASYNC], "1,a,1\n").await;
    let fail = Action::FailCommit("no space left".to_owned());
    s.faults().push(Fault::new(fail).at(Site::Be).when("_stream_load "));
    let refused = load(&s, "dup", &[CSV, ASYNC], "2,b,2\n").await;
    assert_eq!((refused["Status"].as_str(), message(&refused)), (Some("Fail"), "[INTERNAL_ERROR]no space left"));
    assert_eq!(s.requests().matching(Site::Be, "_stream_load")[1].fault, Some("fail_commit"));
    commit(&s, &clock).await;
    assert_eq!(query(&s, "SELECT id FROM d.dup").await, ["1"]);
}
