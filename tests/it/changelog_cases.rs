//! Failures that readers of changelogs reported, on both builds of the sandbox and with its clock moved by hand.

use std::sync::Arc;

use datafusion::prelude::SessionContext;
use doris_sandbox::engine::ManualClock;
use doris_sandbox::{Action, Fault, Profile, Sandbox, Site};

use crate::harness::{Cluster, lines, run, try_run};

const PROFILES: [Profile; 2] = [Profile::V5_0Changelog, Profile::V5_0Binlog];

/// 2026-01-01 10:00:00 UTC.
const T0: i64 = 1_767_261_600_000;

/// A cluster whose clock stands still unless it is moved.
pub struct Timed {
    pub cluster: Cluster,
    pub ctx: SessionContext,
    clock: Arc<ManualClock>,
    now_ms: i64,
}

impl Timed {
    pub async fn start(profile: Profile, zone: &str, now_ms: i64) -> Self {
        let clock = Arc::new(ManualClock::new(now_ms));
        let builder = Sandbox::builder().profile(profile).time_zone(zone).clock(Arc::clone(&clock) as _);
        let cluster = Cluster::of(builder).await;
        let ctx = cluster.context();
        Self { cluster, ctx, clock, now_ms }
    }

    /// Moves the clock on to an instant.
    pub fn at(&mut self, ms: i64) {
        self.clock.advance(ms - self.now_ms);
        self.now_ms = ms;
    }

    /// A unique table `t (id, v)` that records its changes with their old values.
    pub async fn table(&self, profile: Profile) {
        let properties = match profile {
            Profile::V5_0Binlog => {
                "'binlog.enable' = 'true', 'binlog.format' = 'ROW', 'binlog.need_historical_value' = 'true'"
            }
            _ => "'changelog.enable' = 'true', 'changelog.need_historical_value' = 'true'",
        };
        let ddl = format!(
            "CREATE TABLE {{db}}.t (id INT NOT NULL, v VARCHAR(20)) UNIQUE KEY(id) DISTRIBUTED BY HASH(id) BUCKETS 2
             PROPERTIES ('replication_num' = '1', 'enable_unique_key_merge_on_write' = 'true', {properties})"
        );
        self.cluster.doris(&ddl).await;
    }

    pub async fn declare(&self, name: &str, options: &[(&str, &str)]) {
        self.cluster.declare(&self.ctx, name, "t", options).await;
    }

    pub async fn rows(&self, sql: &str) -> Vec<String> {
        lines(&run(&self.ctx, sql).await)
    }
}

fn between<'a>(start: &'a str, end: &'a str, more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    let mut options = vec![
        ("source.scan.mode", "from-timestamp"),
        ("source.scan.timestamp", start),
        ("source.scan.bounded-mode", "timestamp"),
        ("source.scan.bounded-timestamp", end),
    ];
    options.extend(more);
    options
}

// C029. The start is inclusive on servers of either rule.
#[tokio::test]
async fn an_event_on_a_window_edge_comes_once_under_both_rules() {
    for profile in PROFILES {
        let mut timed = Timed::start(profile, "UTC", T0 - 60_000).await;
        timed.table(profile).await;
        for (id, ms) in [(1, -1), (2, 0), (3, 9_999), (4, 10_000), (5, 19_999), (6, 20_000)] {
            timed.at(T0 + ms);
            timed.cluster.doris(&format!("INSERT INTO {{db}}.t VALUES ({id}, 'x')")).await;
        }
        timed.at(T0 + 60_000);
        let options = between("2026-01-01 10:00:00", "2026-01-01 10:00:20", &[("source.changelog.max-window", "10s")]);
        timed.declare("changes", &options).await;
        let rows = timed.rows("SELECT * FROM changes").await;
        assert_eq!(rows, ["2 | x | +I", "3 | x | +I", "4 | x | +I", "5 | x | +I"], "{profile}");
    }
}

// C030
#[tokio::test]
async fn a_value_filter_sees_the_old_half_of_a_net_change() {
    for profile in PROFILES {
        let mut timed = Timed::start(profile, "UTC", T0 - 60_000).await;
        timed.table(profile).await;
        timed.cluster.doris("INSERT INTO {db}.t VALUES (31, 'Ulm')").await;
        timed.at(T0 + 1_500);
        timed.cluster.doris("UPDATE {db}.t SET v = 'Bonn' WHERE id = 31").await;
        timed.at(T0 + 60_000);
        let net = [("source.changelog.increment-type", "min_delta")];
        timed.declare("changes", &between("2026-01-01 10:00:00", "2026-01-01 10:00:20", &net)).await;
        // The row leaves the condition: for a mirror of the filtered table it is deleted.
        assert_eq!(timed.rows("SELECT * FROM changes WHERE v = 'Ulm'").await, ["31 | Ulm | -D"], "{profile}");
        assert_eq!(timed.rows("SELECT * FROM changes").await, ["31 | Ulm | -U", "31 | Bonn | +U"], "{profile}");
        let sent = timed.cluster.server().requests().matching(Site::FeFlight, "MIN_DELTA");
        assert!(!sent.is_empty() && sent.iter().all(|request| !request.target.to_lowercase().contains("ulm")));
    }
}

// C034, C035. The window is asked for again, whole, and ends by the server's time, which is years behind the client's.
#[tokio::test]
async fn a_window_that_is_not_visible_is_asked_for_again() {
    for profile in PROFILES {
        let mut timed = Timed::start(profile, "UTC", T0).await;
        timed.table(profile).await;
        timed.at(T0 + 1_500);
        timed.cluster.doris("INSERT INTO {db}.t VALUES (1, 'x')").await;
        timed.at(T0 + 5_500);
        let texts = match profile {
            Profile::V5_0Binlog => "timeout waiting previous transactions finish for time-based read, txnIdWatermark=7",
            _ => "ERR_INCR_VISIBLE_WAIT_TIMEOUT: reason=VISIBLE_WAIT_TIMEOUT, retryAfterMs=50, timeoutMs=10000",
        };
        let fault = Fault::new(Action::Status { code: 14, body: texts.into() });
        timed.cluster.server().faults().push(fault.at(Site::FeFlight).when("select `id`"));
        timed.declare("changes", &between("2026-01-01 10:00:00", "2026-01-01 10:00:04", &[])).await;
        assert_eq!(timed.rows("SELECT * FROM changes").await, ["1 | x | +I"], "{profile}");
        let windows = timed.cluster.server().requests().matching(Site::FeFlight, "SELECT `id`");
        assert!(windows.len() >= 2 && windows.iter().all(|window| window.target == windows[0].target), "{profile}");
        assert!(windows[0].target.contains("2026-01-01 10:00:04"), "{}", windows[0].target);
    }
}

// C036. Only the newer build drops changes.
#[tokio::test]
async fn a_position_older_than_what_is_kept_is_told() {
    for profile in PROFILES {
        let mut timed = Timed::start(profile, "UTC", T0 - 3 * 86_400_000).await;
        timed.table(profile).await;
        timed.at(T0 - 2 * 86_400_000);
        timed.cluster.doris("INSERT INTO {db}.t VALUES (1, 'lost')").await;
        timed.at(T0 - 3_600_000);
        timed.cluster.doris("INSERT INTO {db}.t VALUES (2, 'kept')").await;
        timed.at(T0 + 5_000);
        let window = ("source.changelog.max-window", "30d");
        timed.declare("changes", &between("2025-12-30 00:00:00", "2026-01-01 10:00:00", &[window])).await;
        let read = try_run(&timed.ctx, "SELECT id FROM changes").await;
        match profile {
            Profile::V5_0Binlog => assert_eq!(lines(&read.expect("nothing is dropped")), ["1", "2"]),
            _ => {
                let error = read.expect_err("the first change is gone").to_string();
                for part in ["2025-12-30 00:00:00 UTC", "2026-01-01 09:00:00 UTC", "'continue'"] {
                    assert!(error.contains(part), "{part}: {error}");
                }
                let go_on = [window, ("source.changelog.on-expired", "continue")];
                timed.declare("rest", &between("2025-12-30 00:00:00", "2026-01-01 10:00:00", &go_on)).await;
                assert_eq!(timed.rows("SELECT id FROM rest").await, ["2"]);
                let net = [window, ("source.changelog.increment-type", "min_delta")];
                timed.declare("net", &between("2025-12-30 00:00:00", "2026-01-01 10:00:00", &net)).await;
                let error = try_run(&timed.ctx, "SELECT id FROM net").await.expect_err("expired").to_string();
                assert!(error.contains("offset has expired") && error.contains("'initial'"), "{error}");
            }
        }
    }
}

// C038
#[tokio::test]
async fn the_night_in_which_the_clock_goes_back_is_read_once_through() {
    // 2 November 2025, 05:59:58 UTC: two seconds before New York's clock goes back from two to one.
    let base = 1_762_063_198_000;
    for profile in PROFILES {
        let mut timed = Timed::start(profile, "America/New_York", base - 3_600_000).await;
        timed.table(profile).await;
        for (id, ms) in [(1, 1_000), (2, 3_000), (3, 1_802_000)] {
            timed.at(base + ms);
            timed.cluster.doris(&format!("INSERT INTO {{db}}.t VALUES ({id}, 'x')")).await;
        }
        timed.at(base + 7_200_000);
        let options = between("2025-11-02 00:59:58", "2025-11-02 02:30:00", &[("source.changelog.max-window", "10m")]);
        timed.declare("changes", &options).await;
        assert_eq!(timed.rows("SELECT id FROM changes").await, ["1", "2", "3"], "{profile}");
        timed.declare("twice", &between("2025-11-02 01:30:00", "2025-11-02 02:30:00", &[])).await;
        let error = try_run(&timed.ctx, "SELECT id FROM twice").await.expect_err("ambiguous").to_string();
        assert!(error.contains("source.scan.timestamp") && error.contains("comes twice"), "{error}");
    }
}

// C033. Where the server reads past versions, the snapshot is that of the position.
#[tokio::test]
async fn the_snapshot_and_the_changes_meet_at_one_instant() {
    let profile = Profile::V5_0Changelog;
    let mut timed = Timed::start(profile, "UTC", T0 - 60_000).await;
    timed.table(profile).await;
    timed.cluster.doris("INSERT INTO {db}.t VALUES (1, 'a'), (2, 'b'), (3, 'c')").await;
    // In the second at which the changes begin: after the instant of the snapshot, though before it is read.
    timed.at(T0 + 500);
    timed.cluster.doris("UPDATE {db}.t SET v = 'c2' WHERE id = 3").await;
    timed.at(T0 + 900);
    let options = [
        ("source.scan.mode", "initial"),
        ("source.scan.bounded-mode", "timestamp"),
        ("source.scan.bounded-timestamp", "2026-01-01 10:00:00"),
    ];
    timed.declare("snapshot", &options).await;
    let mut rows = timed.rows("SELECT * FROM snapshot").await;
    rows.sort();
    assert_eq!(rows, ["1 | a | +I", "2 | b | +I", "3 | c | +I"]);
    let plan = timed.rows("EXPLAIN SELECT * FROM snapshot").await.join("\n");
    assert!(plan.contains("snapshot=as-of"), "{plan}");
}
