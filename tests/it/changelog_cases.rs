//! Failures that readers of changelogs reported, each under its number, on both builds of the sandbox and with its clock
//! moved by hand.

use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use datafusion_doris::job::SyncJob;
use doris_sandbox::{Action, Fault, IncrFailure, Profile, Site};
use tokio::sync::Notify;

use crate::harness::{Cluster, lines, on_both_builds, refusal, run, try_run};
use crate::timed::{Follower, T0, Timed, asked, utc};

on_both_builds!(
    c029_an_event_on_a_window_edge_comes_once_under_both_rules,
    c030_a_value_filter_sees_the_old_half_of_a_net_change,
    c031_hidden_columns_are_found_by_name,
    c031_an_unknown_operation_is_an_error_that_names_it,
    c032_changes_of_a_key_keep_their_order_over_endpoints,
    c033_the_snapshot_and_the_changes_leave_nothing_out,
    c033_changes_begin_after_the_snapshot_is_committed,
    c034_a_window_that_is_not_visible_is_asked_for_again,
    c034_any_other_error_fails_at_once,
    c035_a_client_clock_that_is_ahead_plays_no_part,
    c036_a_position_older_than_what_is_kept_is_told,
    c037_a_position_is_published_behind_its_commit,
    c037_a_missing_position_table_is_told_before_anything_is_read,
    c038_the_night_in_which_the_clock_goes_back_is_read_once_through,
);

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

/// The start is inclusive on servers of either rule.
async fn c029_an_event_on_a_window_edge_comes_once_under_both_rules(profile: Profile) {
    let mut timed = Timed::with_table(profile, "UTC", T0 - 60_000).await;
    for (id, ms) in [(1, -1), (2, 0), (3, 9_999), (4, 10_000), (5, 19_999), (6, 20_000)] {
        timed.at(T0 + ms);
        timed.cluster.doris(&format!("INSERT INTO {{db}}.t VALUES ({id}, 'x')")).await;
    }
    timed.at(T0 + 60_000);
    let options = between("2026-01-01 10:00:00", "2026-01-01 10:00:20", &[("source.changelog.max-window", "10s")]);
    timed.declare("changes", &options).await;
    let rows = timed.rows("SELECT * FROM changes").await;
    assert_eq!(rows, ["2 | x | +I", "3 | x | +I", "4 | x | +I", "5 | x | +I"]);
    let ends: Vec<i64> = asked(timed.cluster.server(), "t", 0).iter().map(|window| window.end_ms - T0).collect();
    assert_eq!(ends, [10_000, 20_000], "two windows that share their edge");
}

async fn c030_a_value_filter_sees_the_old_half_of_a_net_change(profile: Profile) {
    let mut timed = Timed::with_table(profile, "UTC", T0 - 60_000).await;
    timed.cluster.doris("INSERT INTO {db}.t VALUES (31, 'Ulm')").await;
    timed.at(T0 + 1_500);
    timed.cluster.doris("UPDATE {db}.t SET v = 'Bonn' WHERE id = 31").await;
    timed.at(T0 + 60_000);
    for increment in ["min_delta", "detail"] {
        let options = [("source.changelog.increment-type", increment)];
        timed.declare(increment, &between("2026-01-01 10:00:00", "2026-01-01 10:00:20", &options)).await;
        // The old half is there. Alone it is a delete: the row leaves the condition, and a mirror of the filtered table.
        assert_eq!(timed.rows(&format!("SELECT * FROM {increment} WHERE v = 'Ulm'")).await, ["31 | Ulm | -D"]);
        assert_eq!(timed.rows(&format!("SELECT * FROM {increment} WHERE v = 'Bonn'")).await, ["31 | Bonn | +I"]);
        assert_eq!(timed.rows(&format!("SELECT * FROM {increment}")).await, ["31 | Ulm | -U", "31 | Bonn | +U"]);
    }
    let sent = asked(timed.cluster.server(), "t", 0);
    assert!(sent.len() >= 6 && sent.iter().all(|window| !window.statement.to_lowercase().contains("ulm")), "{sent:?}");
}

/// A row of changes with its hidden columns at odd places.
fn odd_columns(profile: Profile, op: i64) -> String {
    let stem = if profile == Profile::V5_0Binlog { "BINLOG" } else { "CHANGELOG" };
    format!(
        "SELECT '3007' AS __DORIS_{stem}_LSN__, CAST(42 AS INT) AS id, CAST({op} AS BIGINT) AS __DORIS_{stem}_OP__,
         'old' AS name, CAST(555 AS BIGINT) AS __DORIS_{stem}_TSO__"
    )
}

/// A read of the first second of 1970, in which the TSO 555 lies, whose statements have these rows.
async fn odd_read(profile: Profile, statements: Vec<String>) -> Timed {
    let timed = Timed::start(profile, "UTC", T0).await;
    timed.cluster.changing_table("t", "id INT NOT NULL, name VARCHAR(20)").await;
    let fault = Fault::new(Action::FlightResults(statements)).at(Site::FeFlight).when("select `id`");
    timed.cluster.server().faults().push(fault);
    let more =
        [("source.changelog.metadata-columns", "tso, lsn, commit-time"), ("source.changelog.on-expired", "continue")];
    timed.declare("changes", &between("1970-01-01 00:00:00", "1970-01-01 00:00:10", &more)).await;
    timed
}

async fn c031_hidden_columns_are_found_by_name(profile: Profile) {
    let timed = odd_read(profile, vec![odd_columns(profile, 2)]).await;
    let sql = "SELECT id, name, __change_kind, __commit_tso, __commit_lsn FROM changes";
    assert_eq!(timed.rows(sql).await, ["42 | old | -U | 555 | 3007"]);
    assert_eq!(timed.cluster.server().faults().armed(), 0);
    for (op, kind) in [(0, "+I"), (1, "-D"), (2, "-U"), (3, "+U")] {
        let timed = odd_read(profile, vec![odd_columns(profile, op)]).await;
        let rows = timed.rows("SELECT id, name, __change_kind FROM changes").await;
        assert_eq!(rows, [format!("42 | old | {kind}")]);
    }
}

async fn c031_an_unknown_operation_is_an_error_that_names_it(profile: Profile) {
    // The second value is 2 in eight bits.
    for op in [9, 258] {
        let timed = odd_read(profile, vec![odd_columns(profile, op)]).await;
        let error = refusal(&timed.ctx, "SELECT id, name FROM changes").await;
        assert!(error.contains(&op.to_string()) && error.contains(&timed.cluster.table("t")), "{error}");
    }
}

async fn c032_changes_of_a_key_keep_their_order_over_endpoints(profile: Profile) {
    let stem = if profile == Profile::V5_0Binlog { "BINLOG" } else { "CHANGELOG" };
    let change = |lsn: i64, op: i64, name: &str| {
        format!(
            "SELECT CAST(5 AS INT) AS id, '{name}' AS name, CAST(555 AS BIGINT) AS __DORIS_{stem}_TSO__,
             '{lsn}' AS __DORIS_{stem}_LSN__, CAST({op} AS BIGINT) AS __DORIS_{stem}_OP__"
        )
    };
    let (first, second) = (change(12, 1, "b"), format!("{} UNION ALL {}", change(11, 2, "a"), change(11, 3, "b")));
    let timed = odd_read(profile, vec![first, second]).await;
    let rows = timed.rows("SELECT id, name, __change_kind FROM changes").await;
    assert_eq!(rows, ["5 | a | -U", "5 | b | +U", "5 | b | -D"]);
    // Texts of numbers are numbers: 9 comes before 11.
    let timed = odd_read(profile, vec![change(11, 1, "c"), change(9, 0, "c")]).await;
    assert_eq!(timed.rows("SELECT id, name, __change_kind FROM changes").await, ["5 | c | +I", "5 | c | -D"]);
}

async fn c033_the_snapshot_and_the_changes_leave_nothing_out(profile: Profile) {
    let mut timed = Timed::with_table(profile, "UTC", T0 - 60_000).await;
    timed.cluster.doris("INSERT INTO {db}.t VALUES (1, 'a'), (2, 'b'), (3, 'c')").await;
    timed.at(T0 + 900);
    let options = [
        ("source.scan.mode", "initial"),
        ("source.scan.bounded-mode", "timestamp"),
        ("source.scan.bounded-timestamp", "2026-01-01 10:00:01"),
    ];
    timed.declare("changes", &options).await;
    let plan = timed.rows("EXPLAIN SELECT * FROM changes").await.join("\n");
    assert!(plan.contains("snapshot=as-of"), "{plan}");

    // The snapshot's first statement waits until the row has changed.
    let changed = Arc::new(Notify::new());
    let server = timed.cluster.server();
    let hold = Fault::new(Action::Wait(Arc::clone(&changed))).at(Site::FeFlight).when("select `id`, `v` from");
    server.faults().push(hold);
    let ctx = timed.ctx.clone();
    let read = tokio::spawn(async move { lines(&run(&ctx, "SELECT * FROM changes").await) });
    while server.faults().armed() > 0 {
        tokio::task::yield_now().await;
    }
    timed.cluster.doris("UPDATE {db}.t SET v = 'c2' WHERE id = 3").await;
    timed.at(T0 + 2_000);
    changed.notify_one();
    let mut rows = read.await.expect("ends");
    let changes = rows.split_off(3);
    rows.sort();
    // As of the start of the changes: nothing comes twice.
    assert_eq!(rows, ["1 | a | +I", "2 | b | +I", "3 | c | +I"]);
    assert_eq!(changes, ["3 | c | -U", "3 | c2 | +U"]);

    let requests = timed.cluster.server().requests();
    let snapshot = requests.matching(Site::FeFlight, "SELECT `id`, `v` FROM")[0].order;
    let fence = &requests.matching(Site::FeFlight, "@incr")[0];
    assert!(fence.order < snapshot && fence.target.contains(&utc(T0)), "the position is taken first: {fence:?}");
    assert!(asked(timed.cluster.server(), "t", 0).iter().all(|window| window.order > snapshot));
}

async fn c033_changes_begin_after_the_snapshot_is_committed(profile: Profile) {
    let cluster = Cluster::sandbox_as(profile).await;
    cluster.changing_table("t", "id INT NOT NULL, v VARCHAR(20)").await;
    cluster.unique_table("mirror", "id INT NOT NULL, v VARCHAR(20)", "").await;
    cluster.doris("INSERT INTO {db}.t VALUES (1, 'a'), (2, 'b'), (3, 'c')").await;
    let ctx = cluster.context();
    // The snapshot is that of a whole second.
    cluster.next_second().await;
    let initial = [("source.scan.mode", "initial"), ("source.changelog.poll-interval", "1s")];
    cluster.declare(&ctx, "changes", "t", &initial).await;
    cluster.declare(&ctx, "mirror", "mirror", &[("sink.change-kind-column", "__change_kind")]).await;
    let job = SyncJob::submit(&ctx, "m", "INSERT INTO mirror SELECT * FROM changes").await.expect("starts");
    job.caught_up().await.expect("caught up");
    job.stop().await.expect("stops");
    let commits = cluster.server().requests().matching(Site::Be, "_stream_load_2pc");
    let windows = asked(cluster.server(), "t", 0);
    assert!(windows.iter().all(|window| window.order > commits[0].order), "{commits:?} {windows:?}");
    assert_eq!(cluster.scalar("SELECT COUNT(*) FROM {db}.mirror").await, "3");
}

async fn c034_a_window_that_is_not_visible_is_asked_for_again(profile: Profile) {
    let mut timed = Timed::with_table(profile, "UTC", T0).await;
    timed.at(T0 + 1_500);
    timed.cluster.doris("INSERT INTO {db}.t VALUES (1, 'x'), (2, 'y')").await;
    timed.at(T0 + 5_500);
    timed.declare("changes", &between("2026-01-01 10:00:00", "2026-01-01 10:00:04", &[])).await;
    let server = timed.cluster.server();
    // The window's statement is held until the failures are prepared: what is asked before it shall not meet them.
    let prepared = Arc::new(Notify::new());
    let hold = Fault::new(Action::Wait(Arc::clone(&prepared))).at(Site::FeFlight).when("select `id`");
    server.faults().push(hold);
    let ctx = timed.ctx.clone();
    let read = tokio::spawn(async move { lines(&run(&ctx, "SELECT * FROM changes").await) });
    while server.faults().armed() > 0 {
        tokio::task::yield_now().await;
    }
    (0..3).for_each(|_| server.engine().fail_incr(IncrFailure::WaitTimeout));
    let begun = Instant::now();
    prepared.notify_one();
    assert_eq!(read.await.expect("ends"), ["1 | x | +I", "2 | y | +I"], "once");
    // 1, 2 and 4 seconds: pauses that do not grow add up to less.
    assert!(begun.elapsed().as_secs() >= 5, "{:?}", begun.elapsed());
    let windows = asked(timed.cluster.server(), "t", 0);
    assert_eq!(windows.len(), 4);
    assert!(windows.iter().all(|window| window.statement == windows[0].statement), "{windows:?}");
    assert_eq!(windows[0].end_ms, T0 + 4_000);
}

async fn c034_any_other_error_fails_at_once(profile: Profile) {
    let timed = Timed::with_table(profile, "UTC", T0 + 5_500).await;
    timed.declare("changes", &between("2026-01-01 10:00:00", "2026-01-01 10:00:04", &[])).await;
    let error = Action::Status { code: 3, body: "errCode = 1064, detailMessage = no such thing".into() };
    timed.cluster.server().faults().push(Fault::new(error).at(Site::FeFlight).when("select `id`"));
    let message = refusal(&timed.ctx, "SELECT * FROM changes").await;
    assert!(message.contains("1064") && message.contains("no such thing"), "{message}");
    assert_eq!(asked(timed.cluster.server(), "t", 0).len(), 1);
}

async fn c035_a_client_clock_that_is_ahead_plays_no_part(profile: Profile) {
    // The server's clock is 90 seconds behind this machine's.
    let machine_ms = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_millis();
    let server_ms = i64::try_from(machine_ms).expect("an instant") / 1000 * 1000 - 90_000;
    let mut timed = Timed::with_table(profile, "UTC", server_ms).await;
    timed.declare("changes", &[("source.scan.mode", "latest"), Follower::PATIENT]).await;
    let mut follower = Follower::start(&timed, "SELECT * FROM changes").await;
    let server = timed.cluster.server();
    // It starts with the second that is over, and waits.
    follower.has_started(server).await;
    let mut ends = Vec::new();
    for (seconds, id) in [(30, Some(1)), (60, None), (100, Some(2))] {
        timed.at(server_ms + seconds * 1000 + 1);
        follower.poll();
        let server = timed.cluster.server();
        let rows = follower.reach(server, server_ms + seconds * 1000, 0).await;
        assert_eq!(rows, Vec::<String>::new(), "the changes come later");
        ends.push(asked(server, "t", follower.begun).last().expect("a window").end_ms);
        if let Some(id) = id {
            timed.cluster.doris(&format!("INSERT INTO {{db}}.t VALUES ({id}, 'x')")).await;
            timed.at(timed.now_ms() + 1_500);
            follower.poll();
            let end_ms = server_ms + (seconds + 1) * 1000;
            assert_eq!(follower.reach(timed.cluster.server(), end_ms, 1).await, [format!("{id} | x | +I")]);
        }
    }
    assert_eq!(ends, [30, 60, 100].map(|seconds| server_ms + seconds * 1000));
    assert_eq!(follower.stop().await, Vec::<String>::new());
}

/// Only the newer build drops changes.
async fn c036_a_position_older_than_what_is_kept_is_told(profile: Profile) {
    let mut timed = Timed::with_table(profile, "UTC", T0 - 3 * 86_400_000).await;
    timed.cluster.offset_table().await;
    timed.cluster.doris("INSERT INTO {db}.offsets VALUES ('c', '2025-12-29 10:00:00', NOW())").await;
    timed.at(T0 - 2 * 86_400_000);
    timed.cluster.doris("INSERT INTO {db}.t VALUES (1, 'lost')").await;
    timed.at(T0 - 3_600_000);
    timed.cluster.doris("INSERT INTO {db}.t VALUES (2, 'kept')").await;
    timed.at(T0 + 5_000);
    let offsets = timed.cluster.table("offsets");
    let options = |more: &[(&'static str, &'static str)]| {
        let mut options = vec![
            ("source.scan.mode", "latest"),
            ("source.scan.bounded-mode", "timestamp"),
            ("source.scan.bounded-timestamp", "2026-01-01 10:00:00"),
            ("source.changelog.max-window", "30d"),
            ("source.changelog.consumer-id", "c"),
            ("source.changelog.offset-table", offsets.as_str()),
        ];
        options.extend(more);
        options
    };
    timed.declare("changes", &options(&[])).await;
    let read = try_run(&timed.ctx, "SELECT id FROM changes").await;
    if profile == Profile::V5_0Binlog {
        assert_eq!(lines(&read.expect("nothing is dropped")), ["1", "2"]);
        return;
    }
    let error = read.expect_err("the first change is gone").to_string();
    for part in ["2025-12-29 10:00:00 UTC", "2026-01-01 09:00:00 UTC", "'continue'"] {
        assert!(error.contains(part), "{part}: {error}");
    }
    timed.declare("net", &options(&[("source.changelog.increment-type", "min_delta")])).await;
    let error = try_run(&timed.ctx, "SELECT id FROM net").await.expect_err("expired").to_string();
    assert!(error.contains("offset has expired") && error.contains("'initial'"), "{error}");
    timed.declare("rest", &options(&[("source.changelog.on-expired", "continue")])).await;
    assert_eq!(timed.rows("SELECT id FROM rest").await, ["2"]);
}

async fn c037_a_position_is_published_behind_its_commit(profile: Profile) {
    let cluster = Cluster::sandbox_as(profile).await;
    cluster.changing_table("t", "id INT NOT NULL, v VARCHAR(20)").await;
    cluster.unique_table("mirror", "id INT NOT NULL, v VARCHAR(20)", "").await;
    cluster.offset_table().await;
    let start = cluster.scalar("SELECT DATE_FORMAT(NOW(), '%Y-%m-%d %H:%i:%s')").await;
    cluster.doris("INSERT INTO {db}.t VALUES (1, 'a'), (2, 'b'), (3, 'c'), (4, 'd')").await;
    let ctx = cluster.context();
    let offsets = cluster.table("offsets");
    let options = [
        ("source.scan.mode", "from-timestamp"),
        ("source.scan.timestamp", start.as_str()),
        ("source.changelog.poll-interval", "1s"),
        ("source.changelog.consumer-id", "c"),
        ("source.changelog.offset-table", offsets.as_str()),
    ];
    cluster.declare(&ctx, "changes", "t", &options).await;
    let sink = [("sink.change-kind-column", "__change_kind"), ("sink.max-retries", "0")];
    cluster.declare(&ctx, "mirror", "mirror", &sink).await;
    let sql = "INSERT INTO mirror SELECT * FROM changes";

    // The rows are read and loaded, and the job dies before they are committed.
    let crash = Fault::new(Action::FailCommit("crashed".into())).at(Site::Be).when("_stream_load_2pc");
    cluster.server().faults().push(crash.always());
    let job = SyncJob::submit(&ctx, "m", sql).await.expect("starts");
    let error = job.caught_up().await.expect_err("the commit fails").to_string();
    assert!(error.contains("crashed"), "{error}");
    assert!(!asked(cluster.server(), "t", 0).is_empty(), "the rows were read");
    assert_eq!(cluster.scalar("SELECT COUNT(*) FROM {db}.offsets").await, "0");
    assert_eq!(cluster.scalar("SELECT COUNT(*) FROM {db}.mirror").await, "0");

    cluster.server().faults().clear();

    // They come again. That the position cannot be written once holds nothing up.
    let refused = Action::Status { code: 1105, body: "not now".into() };
    cluster.server().faults().push(Fault::new(refused).at(Site::Mysql).when("`offsets` (`consumer_id`"));
    let job = SyncJob::submit(&ctx, "m", sql).await.expect("starts");
    job.caught_up().await.expect("caught up");
    assert_eq!(cluster.scalar("SELECT COUNT(*) FROM {db}.mirror").await, "4");
    job.stop().await.expect("stops");
    assert_eq!(cluster.server().faults().armed(), 0, "a write of the position failed");
    let position = cluster.scalar("SELECT offset_timestamp FROM {db}.offsets").await;
    assert!(position > start, "{position} after {start}");
    let requests = cluster.server().requests();
    let commit = requests.matching(Site::Be, "_stream_load_2pc").last().map(|request| request.order);
    let published = requests.matching(Site::Mysql, "INSERT INTO").into_iter();
    let mut published = published.filter(|request| request.target.contains("`offsets`"));
    assert!(published.any(|request| Some(request.order) > commit), "published after the last commit");
}

async fn c037_a_missing_position_table_is_told_before_anything_is_read(profile: Profile) {
    let timed = Timed::with_table(profile, "UTC", T0).await;
    let offsets = timed.cluster.table("offsets");
    let kept = [("source.changelog.consumer-id", "c"), ("source.changelog.offset-table", offsets.as_str())];
    timed.declare("changes", &between("2026-01-01 09:00:00", "2026-01-01 09:30:00", &kept)).await;
    let error = refusal(&timed.ctx, "SELECT * FROM changes").await;
    assert!(error.contains(&offsets) && error.contains("consumer 'c'"), "{error}");
    assert_eq!(timed.cluster.server().requests().matching(Site::FeFlight, "@incr").len(), 0);
}

async fn c038_the_night_in_which_the_clock_goes_back_is_read_once_through(profile: Profile) {
    // 2 November 2025, 05:59:58 UTC: two seconds before New York's clock goes back from two to one.
    let base = 1_762_063_198_000;
    let mut timed = Timed::with_table(profile, "America/New_York", base).await;
    timed.declare("changes", &[("source.scan.mode", "latest"), Follower::PATIENT]).await;
    let mut follower = Follower::start(&timed, "SELECT * FROM changes").await;
    let server = timed.cluster.server();
    follower.has_started(server).await;
    let mut rows = Vec::new();
    for (poll, writes) in [(5_000, vec![(1, 1_000), (2, 3_000)]), (3_605_000, vec![(3, 1_802_000)])] {
        let wanted = writes.len();
        for (id, ms) in writes {
            timed.at(base + ms);
            timed.cluster.doris(&format!("INSERT INTO {{db}}.t VALUES ({id}, 'x')")).await;
        }
        timed.at(base + poll + 1);
        follower.poll();
        rows.extend(follower.reach(timed.cluster.server(), base + poll, wanted).await);
    }
    rows.extend(follower.stop().await);
    assert_eq!(rows, ["1 | x | +I", "2 | x | +I", "3 | x | +I"]);
    let windows = asked(timed.cluster.server(), "t", 0);
    assert!(windows.iter().all(|window| window.statement.contains(&utc(window.end_ms))), "positions are UTC");

    // As positions of the user, texts that the clock shows twice are refused.
    timed.declare("twice", &between("2025-11-02 01:30:00", "2025-11-02 02:30:00", &[])).await;
    let error = refusal(&timed.ctx, "SELECT id FROM twice").await;
    assert!(error.contains("source.scan.timestamp") && error.contains("comes twice"), "{error}");
}
