//! Windows, their order and their errors.

use super::*;

#[tokio::test(start_paused = true)]
async fn change_on_a_window_edge_comes_exactly_once_under_both_rules() {
    for start_exclusive in [false, true] {
        // Polls at 10.5, 20.5, 30.5: windows 10 to 10 (none), 10 to 20, 20 to 30.
        let base = START - 500;
        let edges = [base + 9_999, base + 10_000, base + 10_001, base + 19_999];
        let changes = edges.iter().zip(1..).map(|(at_ms, id)| insert(*at_ms, id, "x")).collect();
        let server = FakeServer::new(changes, vec![], Manners { start_exclusive, ..Manners::default() });
        let rows = read_for(&node(&server, false, false), Duration::from_secs(35)).await;
        assert_eq!(rows, ["+I1x", "+I2x", "+I3x", "+I4x"], "start_exclusive: {start_exclusive}");
        assert_eq!(server.windows().len(), 3);
    }
}

#[tokio::test(start_paused = true)]
async fn start_is_taken_before_the_snapshot_and_changes_follow_it() {
    let changes = vec![
        Change { at_ms: START + 100, lsn: 1, op: 2, id: 3, name: "c" },
        Change { at_ms: START + 100, lsn: 1, op: 3, id: 3, name: "c2" },
    ];
    let server = FakeServer::new(changes, vec![(1, "a"), (2, "b"), (3, "c")], Manners::default());
    let mut rows = read_for(&node(&server, true, false), Duration::from_secs(15)).await;
    let updates = rows.split_off(3);
    rows.sort();
    assert_eq!(rows, ["+I1a", "+I2b", "+I3c"]);
    assert_eq!(updates, ["-U3c", "+U3c2"]);
    let log = server.log.lock();
    let first = |what: &str| log.iter().position(|sql| sql.starts_with(what)).unwrap();
    assert!(first("tso") < first("snapshot"), "{log:?}");
    let fence = log.iter().position(|sql| sql.contains("@incr")).unwrap();
    assert!(fence < first("snapshot"), "transactions before the start must be visible to the snapshot: {log:?}");
}

#[tokio::test(start_paused = true)]
async fn same_window_is_asked_again_while_it_is_not_visible() {
    let manners = Manners { failures: Mutex::new(vec![5101, 5101, 5101]), ..Manners::default() };
    let server = FakeServer::new(vec![insert(START, 1, "x")], vec![], manners);
    let rows = read_for(&node(&server, false, false), Duration::from_secs(19)).await;
    assert_eq!(rows, ["+I1x"]);
    let windows = server.windows();
    assert_eq!(windows.len(), 4);
    assert!(windows.iter().all(|sql| *sql == windows[0]), "{windows:?}");
}

#[tokio::test(start_paused = true)]
async fn time_is_asked_for_again_while_a_new_master_has_no_timestamps() {
    let manners = Manners { uncalibrated: AtomicUsize::new(3), ..Manners::default() };
    let server = FakeServer::new(vec![insert(START + 8_000, 1, "x")], vec![], manners);
    assert_eq!(read_for(&node(&server, false, false), Duration::from_secs(30)).await, ["+I1x"]);
    let spec = ChangelogSpec { visible_wait_timeout: Duration::ZERO, ..spec(false, false) };
    let manners = Manners { uncalibrated: AtomicUsize::new(1), ..Manners::default() };
    let error = drain(&node_of(&FakeServer::new(vec![], vec![], manners), spec)).await.unwrap_err().to_string();
    assert!(error.contains("not calibrated"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn other_error_or_a_spent_budget_fails_at_once() {
    let manners = Manners { failures: Mutex::new(vec![1064]), ..Manners::default() };
    let server = FakeServer::new(vec![], vec![], manners);
    let error = drain(&node(&server, false, false)).await.unwrap_err().to_string();
    assert!(error.contains("not now"), "{error}");
    assert_eq!(server.windows().len(), 1);
    let manners = Manners { failures: Mutex::new(vec![5101; 1000]), ..Manners::default() };
    let server = FakeServer::new(vec![], vec![], manners);
    let begun = Instant::now();
    assert!(drain(&node(&server, false, false)).await.is_err());
    assert!(begun.elapsed() < Duration::from_secs(330), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn result_in_parts_is_put_in_the_order_of_the_changes() {
    let at_ms = START;
    let changes = vec![
        Change { at_ms, lsn: 12, op: 1, id: 5, name: "b" },
        Change { at_ms, lsn: 9, op: 3, id: 5, name: "b" },
        Change { at_ms, lsn: 9, op: 2, id: 5, name: "a" },
    ];
    let server = FakeServer::new(changes, vec![], Manners { parts: true, ..Manners::default() });
    let rows = read_for(&node(&server, false, false), Duration::from_secs(15)).await;
    assert_eq!(rows, ["-U5a", "+U5b", "-D5b"]);
}

#[tokio::test(start_paused = true)]
async fn longest_lsn_is_ordered_as_a_number() {
    let lsn = i128::MAX;
    let changes = vec![
        Change { at_ms: START, lsn, op: 1, id: 5, name: "b" },
        Change { at_ms: START, lsn: 9, op: 0, id: 5, name: "b" },
    ];
    let server = FakeServer::new(changes, vec![], Manners { parts: true, ..Manners::default() });
    let rows = read_for(&node(&server, false, false), Duration::from_secs(15)).await;
    assert_eq!(rows, ["+I5b", "-D5b"]);
}

#[tokio::test(start_paused = true)]
async fn older_names_of_the_hidden_columns_are_found() {
    let server =
        FakeServer::new(vec![insert(START, 1, "x")], vec![], Manners { old_names: true, ..Manners::default() });
    let rows = read_for(&node(&server, false, false), Duration::from_secs(25)).await;
    assert_eq!(rows, ["+I1x"]);
    let probes = server.log.lock().iter().filter(|sql| sql.contains("LIMIT 0")).count();
    assert_eq!(probes, 2, "the spelling is found once");
}

#[tokio::test(start_paused = true)]
async fn hidden_columns_of_an_option_are_not_probed_and_named_when_they_do_not_exist() {
    let server =
        FakeServer::new(vec![insert(START, 1, "x")], vec![], Manners { old_names: true, ..Manners::default() });
    let named = |hidden| ChangelogSpec { hidden: Some(hidden), ..spec(false, true) };
    assert_eq!(drain(&node_of(&server, named(HiddenColumns::binlog()))).await.unwrap(), ["+I1x"]);
    assert!(!server.log.lock().iter().any(|sql| sql.contains("LIMIT 0")));
    let mut wrong = HiddenColumns::binlog();
    wrong.op = "__DORIS_BINLOG_KIND__".into();
    let error = drain(&node_of(&server, named(wrong))).await.unwrap_err().to_string();
    assert!(
        error.contains("'__DORIS_BINLOG_KIND__'") && error.contains("'source.changelog.hidden-columns'"),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn bounded_read_gives_all_up_to_its_start_and_ends_soon() {
    let changes = vec![insert(START, 1, "x"), insert(START + 60_000, 2, "late")];
    let server = FakeServer::new(changes, vec![(7, "a")], Manners::default());
    let node = node(&server, true, true);
    assert!(!node.properties().boundedness.is_unbounded());
    let begun = Instant::now();
    assert_eq!(drain(&node).await.unwrap(), ["+I7a", "+I1x"]);
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn limit_makes_the_node_bounded_and_is_exact() {
    let changes = vec![insert(START, 1, "x"), insert(START, 2, "y"), insert(START, 3, "z")];
    let server = FakeServer::new(changes, vec![], Manners::default());
    let node = node(&server, false, false);
    assert!(node.properties().boundedness.is_unbounded());
    let limited = node.with_fetch(Some(2)).unwrap();
    assert!(!limited.boundedness().is_unbounded());
    let mut stream = limited.execute(0, Arc::new(TaskContext::default())).unwrap();
    assert_eq!(rows_of(&stream.next().await.unwrap().unwrap()), ["+I1x", "+I2y"]);
    assert!(stream.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn rows_are_there_as_soon_as_their_batch_is() {
    let server = FakeServer::new(vec![insert(START, 1, "x")], vec![], Manners { stall: true, ..Manners::default() });
    let rows = read_for(&node(&server, false, false), Duration::from_millis(10_010)).await;
    assert_eq!(rows, ["+I1x"], "the window's stream has not ended");
}

#[tokio::test(start_paused = true)]
async fn each_epoch_is_one_piece_of_work_and_an_aborted_one_is_replayed() {
    let changes = vec![insert(START, 1, "x"), insert(START + 11_000, 2, "y")];
    let server = FakeServer::new(changes, vec![(7, "a"), (8, "b")], Manners::default());
    let node = node(&server, true, false);
    let (source, control) = (node.epoch_source(), Arc::clone(node.control()));
    source.begin_epoch(Epoch(1));
    assert!(source.arm().await.unwrap());
    let mut snapshot = drain(&node).await.unwrap();
    snapshot.sort();
    assert_eq!(snapshot, ["+I7a", "+I8b"]);
    source.piece_done();
    assert!(control.status().position.changelog_ms().is_none(), "not committed yet");
    source.epoch_committed(Epoch(1));
    source.begin_epoch(Epoch(2));
    assert!(source.arm().await.unwrap());
    assert_eq!(drain(&node).await.unwrap(), ["+I1x"]);
    source.piece_done();
    let read = source.position();
    source.epoch_aborted(Epoch(2));
    tokio::time::sleep(Duration::from_secs(10)).await;
    source.begin_epoch(Epoch(3));
    assert!(source.arm().await.unwrap());
    assert_eq!(drain(&node).await.unwrap(), ["+I1x", "+I2y"], "from the committed position on");
    source.piece_done();
    assert!(source.position().changelog_ms() > read.changelog_ms());
    source.epoch_committed(Epoch(3));
    assert!(!source.finished());
    source.stop();
    source.begin_epoch(Epoch(4));
    assert!(!source.arm().await.unwrap(), "nothing is begun after a stop");
    assert!(drain(&node).await.unwrap().is_empty());
    assert!(source.finished());
    assert_eq!(control.status().epochs, 2);
    assert!(matches!(control.status().position, SourcePosition::Changelog { .. }));
}

#[tokio::test(start_paused = true)]
async fn window_is_fixed_when_it_is_armed_and_read_as_it_was_fixed() {
    let changes = vec![insert(START + 9_000, 1, "x"), insert(START + 12_000, 2, "late")];
    let server = FakeServer::new(changes, vec![], Manners::default());
    let node = node(&server, false, false);
    let source = node.epoch_source();
    source.begin_epoch(Epoch(1));
    assert!(source.arm().await.unwrap());
    assert!(server.windows().is_empty(), "arming reads no rows");
    // Whatever else the plan reads takes its time.
    tokio::time::sleep(Duration::from_secs(60)).await;
    source.stop();
    assert_eq!(drain(&node).await.unwrap(), ["+I1x"], "an armed piece is read, and no more");
}

#[tokio::test(start_paused = true)]
async fn piece_that_nobody_read_moves_on_and_the_next_one_waits_for_its_poll() {
    let server = FakeServer::new(vec![insert(START + 9_000, 1, "x")], vec![(7, "a")], Manners::default());
    let node = node(&server, true, false);
    let source = node.epoch_source();
    let begun = Instant::now();
    let mut positions = Vec::new();
    for epoch in 1..=4 {
        source.begin_epoch(Epoch(epoch));
        assert!(source.arm().await.unwrap());
        source.piece_done();
        source.epoch_committed(Epoch(epoch));
        positions.push(node.control().status().position.changelog_ms().unwrap());
    }
    assert!(positions.is_sorted_by(|before, after| before < after), "{positions:?}");
    assert!(begun.elapsed() >= Duration::from_secs(25), "{:?}", begun.elapsed());
    assert!(server.windows().is_empty());
}

#[tokio::test(start_paused = true)]
async fn stop_ends_a_wait_for_the_next_window() {
    let server = FakeServer::new(vec![], vec![], Manners::default());
    let node = node(&server, false, false);
    let source = node.epoch_source();
    source.begin_epoch(Epoch(1));
    let begun = Instant::now();
    let mut arming = source.arm();
    assert!(futures::poll!(arming.as_mut()).is_pending());
    source.stop();
    assert!(!arming.await.unwrap());
    assert!(begun.elapsed() < Duration::from_secs(1));
}

#[test]
fn explain_shows_the_statement_and_no_secret() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let _guard = runtime.enter();
    let server = FakeServer::new(vec![], vec![], Manners::default());
    let plan: Arc<dyn ExecutionPlan> = Arc::new(node(&server, true, false));
    let text = datafusion::physical_plan::displayable(plan.as_ref()).one_line().to_string();
    assert!(text.contains("mode=initial, unbounded=true, snapshot=overlapping"), "{text}");
    assert!(text.contains("FROM `db`.`t`@incr('startTimestamp' = '<start - 1s>', 'endTimestamp' = '<end>'"), "{text}");
    let schema: &Schema = &plan.schema();
    assert_eq!(schema.field(2).name(), "__change_kind");
}

#[tokio::test(start_paused = true)]
async fn rows_of_a_window_that_the_server_has_accepted_may_be_taken_late() {
    // Four windows of a backlog; the last one's rows wait for a consumer that pauses for longer than changes are kept.
    let changes = (0..4).map(|window| insert(START - 35_500 + window * 10_000, window, "x")).collect();
    let server = FakeServer::new(changes, vec![], Manners::default());
    let spec = ChangelogSpec {
        start: Some(starts::local("2025-12-31 23:59:30")),
        max_window: Duration::from_secs(10),
        time_to_live: Some(Duration::from_secs(100)),
        ..spec(false, true)
    };
    let mut stream = execute(&node_of(&server, spec));
    assert_eq!(rows_of(&stream.next().await.unwrap().unwrap()), ["+I0x"]);
    tokio::time::sleep(Duration::from_secs(1000)).await;
    assert_eq!(server.windows().len(), 4, "all were accepted before the pause");
    for id in 1..4 {
        assert_eq!(rows_of(&stream.next().await.unwrap().unwrap()), [format!("+I{id}x")]);
    }
    assert!(stream.next().await.is_none());
}
