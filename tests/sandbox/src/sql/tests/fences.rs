//! What an incremental read waits for and how it is refused, by build.

use std::time::Duration;

use super::Fixture;
use crate::engine::{IncrFailure, LoadSpec, Profile};

const END: &str = "'endTimestamp'='2024-01-01 00:00:01', 'incrementType'='DETAIL'";

async fn fixture(profile: Profile) -> Fixture {
    let mut f = Fixture::new(profile);
    let properties = match profile {
        Profile::V5_0Changelog => "'changelog.enable'='true'",
        _ => "'binlog.enable'='true', 'binlog.format'='ROW'",
    };
    f.run("CREATE DATABASE d; USE d").await;
    f.run(&format!(
        "CREATE TABLE s (id INT) UNIQUE KEY(id) DISTRIBUTED BY HASH(id) BUCKETS 1 PROPERTIES({properties})"
    ))
    .await;
    f
}

fn open_load(f: &Fixture) -> crate::LoadTxn {
    let spec = LoadSpec {
        db: "d".into(),
        table: "s".into(),
        label: Some("open".into()),
        two_phase: true,
        timeout: Duration::from_secs(600),
        ..LoadSpec::default()
    };
    f.engine.begin_load(spec).unwrap()
}

#[tokio::test]
async fn an_end_after_the_current_tso_is_refused_by_code_or_text() {
    let sql = format!("SELECT * FROM s@incr({END})");
    let plain = "endTimestamp exceeds the maximum supported time for an INCR read: requestedEndTimestampMs=1704067201000, \
                 CURRENT_TSO_PHYSICAL_TIME=1704067200000";
    let mut f = fixture(Profile::V5_0Changelog).await;
    let error = f.error(&sql).await;
    assert_eq!((error.code, error.name), (5100, Some("ERR_INCR_WINDOW_NOT_READY")));
    let current = super::START_MS << 18;
    assert_eq!(
        error.text(),
        format!(
            "ERR_INCR_WINDOW_NOT_READY: reason=END_AFTER_CURRENT_TSO, requestedEndTimestampMs=1704067201000, \
             currentTSO={current}, currentTSOPhysicalTimeMs=1704067200000, committedTSO={current}, \
             committedTSOPhysicalTimeMs=1704067200000, retryAfterMs=100, timeoutMs=0"
        )
    );
    // Mixed with an unbounded relation, and for eventual reads, the text of older builds stays.
    let mixed = format!("SELECT * FROM s@incr({END}) a JOIN s@incr('incrementType'='DETAIL') b ON a.id = b.id");
    assert_eq!(f.error(&mixed).await.text(), plain);
    f.run("SET enable_eventual_consistent_change = true").await;
    let error = f.error(&sql).await;
    assert_eq!((error.code, error.text()), (1105, plain));
    f.clock.advance(1000);
    f.run(&sql).await;
    let mut f = fixture(Profile::V5_0Binlog).await;
    let error = f.error(&sql).await;
    assert_eq!((error.code, error.name, error.text()), (1105, None, plain));
}

#[tokio::test(start_paused = true)]
async fn reads_wait_for_open_transactions_of_their_tables() {
    for profile in [Profile::V5_0Changelog, Profile::V5_0Binlog] {
        let mut f = fixture(profile).await;
        let txn = open_load(&f);
        f.clock.advance(2000);
        let unbounded = "SELECT * FROM s@incr('incrementType'='DETAIL')";
        let bounded = format!("SELECT * FROM s@incr({END})");
        let table = f.engine.table_meta("d", "s").unwrap().id;
        let db = f.engine.catalog.database_id("d").unwrap();
        let plain = format!(
            "timeout waiting previous transactions finish for time-based read, txnIdWatermark={} dbId={db} tableIds=[{table}]",
            txn.txn_id()
        );
        // The structured error is for windows with an end; a read up to now keeps the older text.
        let error = f.error(unbounded).await;
        assert_eq!((error.code, error.text()), (1105, plain.as_str()), "{profile}");
        f.run("SET change_visible_timeout_ms = 250").await;
        let error = f.error(&bounded).await;
        if profile == Profile::V5_0Changelog {
            assert_eq!((error.code, error.name), (5101, Some("ERR_INCR_VISIBLE_WAIT_TIMEOUT")));
            assert!(
                error.text().contains("reason=VISIBLE_WAIT_TIMEOUT, requestedEndTimestampMs=1704067201000"),
                "{error}"
            );
            assert!(error.text().ends_with("retryAfterMs=100, timeoutMs=250"), "{error}");
        } else {
            assert_eq!(error.text(), plain);
        }
        // Other tables do not wait, nor do eventual reads.
        f.run("SET enable_eventual_consistent_change = true").await;
        f.run(unbounded).await;
        f.run(&bounded).await;
        f.run("SET enable_eventual_consistent_change = false").await;
        f.engine.abort_load(txn, "done");
        f.run(unbounded).await;
        f.run(&bounded).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_read_without_end_is_fenced_where_it_starts() {
    let mut f = fixture(Profile::V5_0Changelog).await;
    f.run("INSERT INTO s VALUES (1)").await;
    let txn = open_load(&f);
    let engine = std::sync::Arc::clone(&f.engine);
    let mut other = engine.open_session("root", "127.0.0.1", crate::engine::Protocol::Mysql);
    // While the read waits for the load, another row is committed: it is behind the fence.
    let commits = async {
        tokio::task::yield_now().await;
        other.execute("INSERT INTO d.s VALUES (2)").await.unwrap();
        engine.abort_load(txn, "done");
    };
    let (rows, ()) = tokio::join!(f.rows("SELECT id FROM s@incr('incrementType'='DETAIL')"), commits);
    assert_eq!(rows, ["1"]);
    assert_eq!(f.sorted("SELECT id FROM s@incr('incrementType'='DETAIL')").await, ["1", "2"]);
}

#[tokio::test]
async fn a_new_master_recovers_before_it_answers_for_recent_windows() {
    let mut f = fixture(Profile::V5_0Changelog).await;
    f.run("INSERT INTO s VALUES (1)").await;
    let before = f.engine.tso();
    f.clock.advance(1500);
    f.engine.tso_service().restart();
    let after = f.engine.tso();
    assert!(after.recovering && after.current_tso > before.current_tso);
    let bounded = format!("SELECT * FROM s@incr({END})");
    let error = f.error(&bounded).await;
    assert_eq!(error.code, 5100, "{error}");
    assert!(error.text().contains("reason=TSO_RECOVERING"), "{error}");
    // The old master had told that nothing before this end is on its way.
    f.run("SELECT * FROM s@incr('endTimestamp'='2024-01-01 00:00:00', 'incrementType'='DETAIL')").await;
    f.engine.tso_service().set_calibrated(false);
    assert_eq!(f.error(&bounded).await.text(), "TSO timestamp is not calibrated, please check");
    f.engine.tso_service().set_calibrated(true);
    f.clock.advance(2500);
    assert!(!f.engine.tso().recovering);
    f.run(&bounded).await;
}

#[tokio::test]
async fn forced_failures_have_the_texts_of_the_server() {
    let bounded = "SELECT * FROM s@incr('endTimestamp'='2024-01-01 00:00:00', 'incrementType'='DETAIL')";
    let cases = [
        (IncrFailure::SynchronizeVersions, "timeout synchronizing visible versions for time-based read, dbId="),
        (IncrFailure::Watermark, "get transaction id watermark failed for time-based read"),
        (IncrFailure::WaitTimeout, "timeout waiting previous transactions finish for time-based read, txnIdWatermark="),
    ];
    for (failure, text) in cases {
        let mut f = fixture(Profile::V5_0Binlog).await;
        f.engine.fail_incr(failure);
        assert!(f.error(bounded).await.text().starts_with(text), "{failure:?}");
        f.run(bounded).await;
        f.session.set_frontend(1);
        f.engine.fail_incr(failure);
        let wrapped = format!("acquire time-based read fence from master FE failed: {text}");
        assert!(f.error(bounded).await.text().starts_with(&wrapped), "{failure:?}");
    }
    let mut f = fixture(Profile::V5_0Changelog).await;
    f.session.set_frontend(1);
    f.engine.fail_incr(IncrFailure::WindowNotReady);
    let error = f.error(bounded).await;
    assert_eq!(error.code, 5100);
    assert!(error.text().starts_with("ERR_INCR_WINDOW_NOT_READY: reason=WINDOW_NOT_READY, "));
    f.engine.fail_incr(IncrFailure::JournalReplay);
    let error = f.error(bounded).await;
    assert!(error.text().starts_with("timeout waiting follower journal replay for time-based read, maxJournalId="));
    f.engine.fail_incr(IncrFailure::MasterUnreachable);
    assert_eq!(f.error(bounded).await.text(), "failed to get master FE client for time-based read");
}
