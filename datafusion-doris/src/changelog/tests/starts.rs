//! Where reads start and end, and what they may miss.

use super::*;

/// The paused clock's whole seconds: `START` is half a second past this.
const SECOND: i64 = START - 500;

fn update(at_ms: i64, lsn: i128, id: i64, old: &'static str, new: &'static str) -> [Change; 2] {
    [Change { at_ms, lsn, op: 2, id, name: old }, Change { at_ms, lsn, op: 3, id, name: new }]
}

pub(super) fn local(text: &str) -> LocalTime {
    LocalTime::parse(text).unwrap()
}

#[tokio::test(start_paused = true)]
async fn from_timestamp_starts_at_its_instant_inclusive_under_both_rules() {
    for start_exclusive in [false, true] {
        let start = SECOND - 60_000;
        let changes = [start - 1, start, start + 1, SECOND - 1, SECOND + 500]
            .iter()
            .zip(1..)
            .map(|(at_ms, id)| insert(*at_ms, id, "x"))
            .collect();
        let zone = Some("Asia/Shanghai".parse().unwrap());
        let server = FakeServer::new(changes, vec![], Manners { start_exclusive, zone, ..Manners::default() });
        // 2026-01-01 00:00:10 UTC less a minute, in Shanghai.
        let spec = ChangelogSpec {
            start: Some(local("2026-01-01 07:59:10")),
            end: Some(BoundedMode::Timestamp(local("2026-01-01 08:00:10"))),
            ..spec(false, false)
        };
        let node = node_of(&server, spec);
        assert!(!node.properties().boundedness.is_unbounded());
        assert_eq!(drain(&node).await.unwrap(), ["+I2x", "+I3x", "+I4x"], "start_exclusive: {start_exclusive}");
    }
}

#[tokio::test(start_paused = true)]
async fn hour_that_comes_twice_is_refused_by_option() {
    let zone = Some("America/New_York".parse().unwrap());
    let server = FakeServer::new(vec![], vec![], Manners { zone, ..Manners::default() });
    let ambiguous = ChangelogSpec { start: Some(local("2025-11-02 01:30:00")), ..spec(false, false) };
    let error = drain(&node_of(&server, ambiguous)).await.unwrap_err().to_string();
    assert!(error.contains("'source.scan.timestamp'") && error.contains("comes twice"), "{error}");
    let missing = BoundedMode::Timestamp(local("2026-03-08 02:30:00"));
    let error = drain(&node_of(&server, ChangelogSpec { end: Some(missing), ..spec(false, false) })).await.unwrap_err();
    assert!(error.to_string().contains("'source.scan.bounded-timestamp'"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn clock_change_night_is_read_once_through() {
    // Half past one in the night of 2 November 2025 in New York, which comes twice there; positions are instants.
    let zone = Some("America/New_York".parse().unwrap());
    let base = 1_762_063_199_000; // 05:59:59 UTC
    let changes = vec![insert(base, 1, "x"), insert(base + 2_000, 2, "x"), insert(base + 1_801_000, 3, "x")];
    let server = FakeServer::new(changes, vec![], Manners { zone, ..Manners::default() });
    let spec = ChangelogSpec {
        start: Some(local("2025-11-02 00:30:00")),
        end: Some(BoundedMode::Timestamp(local("2025-11-02 03:00:00"))),
        max_window: Duration::from_secs(600),
        ..spec(false, false)
    };
    assert_eq!(drain(&node_of(&server, spec)).await.unwrap(), ["+I1x", "+I2x", "+I3x"]);
}

#[tokio::test(start_paused = true)]
async fn backlog_is_read_in_windows_of_limited_length_without_a_pause() {
    let start = SECOND - 3_600_000;
    let changes = (0..60).map(|i| insert(start + i * 60_000, i, "x")).collect();
    let server = FakeServer::new(changes, vec![], Manners::default());
    let spec = ChangelogSpec {
        start: Some(local("2025-12-31 23:00:10")),
        max_window: Duration::from_secs(300),
        ..spec(false, false)
    };
    let rows = read_for(&node_of(&server, spec), Duration::from_secs(5)).await;
    assert_eq!(rows.len(), 60);
    assert_eq!(server.windows().len(), 12);
}

#[tokio::test(start_paused = true)]
async fn bound_that_lies_ahead_is_waited_for() {
    let changes = vec![insert(START + 4_000, 1, "x"), insert(START + 30_000, 2, "late")];
    let server = FakeServer::new(changes, vec![], Manners::default());
    let end = Some(BoundedMode::Timestamp(local("2026-01-01 00:00:25")));
    let begun = Instant::now();
    assert_eq!(drain(&node_of(&server, ChangelogSpec { end, ..spec(false, false) })).await.unwrap(), ["+I1x"]);
    assert!(begun.elapsed() > Duration::from_secs(14) && begun.elapsed() < Duration::from_secs(16));
}

#[tokio::test(start_paused = true)]
async fn exact_snapshot_is_read_as_of_the_instant_at_which_the_changes_begin() {
    let server = FakeServer::new(vec![insert(SECOND, 1, "x")], vec![(7, "a")], Manners::default());
    let node = node_of(&server, ChangelogSpec { exact_snapshot: true, ..spec(true, true) });
    assert_eq!(drain(&node).await.unwrap(), ["+I7a", "+I1x"]);
    let as_of = format!("as of {}", (SECOND << 18) - 1);
    assert!(server.log.lock().contains(&as_of), "{as_of}: {:?}", server.log.lock());
    let plan: Arc<dyn ExecutionPlan> = Arc::new(node);
    let text = datafusion::physical_plan::displayable(plan.as_ref()).one_line().to_string();
    assert!(text.contains("snapshot=as-of"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn net_changes_are_paired_by_key_and_their_windows_end_where_nothing_was_committed() {
    // A commit in the first millisecond of the second at which the first window would end.
    let edge = SECOND + 9_000;
    let [before, after] = update(START + 1_000, 5, 2, "b", "b2");
    let changes =
        vec![Change { at_ms: START + 3_000, ..after }, insert(START + 2_000, 1, "a"), before, insert(edge, 3, "edge")];
    let server = FakeServer::new(changes, vec![], Manners::default());
    let spec = ChangelogSpec { increment_type: IncrementType::MinDelta, ..spec(false, false) };
    let rows = read_for(&node_of(&server, spec), Duration::from_secs(35)).await;
    assert_eq!(rows, ["+I1a", "-U2b", "+U2b2", "+I3edge"]);
    let windows = server.windows();
    assert!(windows[0].contains("'endTimestamp' = '2026-01-01 00:00:18'"), "one second before the edge: {windows:?}");
    assert!(windows[1].contains("'startTimestamp' = '2026-01-01 00:00:18'"), "{windows:?}");
    assert!(windows.iter().all(|sql| sql.ends_with("ORDER BY `id`, `__DORIS_CHANGELOG_OP__`")), "{windows:?}");
}

#[tokio::test(start_paused = true)]
async fn short_windows_of_net_changes_pass_an_end_that_is_busy() {
    // A commit at the only end that a window of a second could have.
    let changes = vec![insert(SECOND + 1_000, 1, "a"), insert(SECOND + 1_500, 2, "b")];
    let server = FakeServer::new(changes, vec![], Manners::default());
    let spec = ChangelogSpec {
        increment_type: IncrementType::MinDelta,
        max_window: Duration::from_secs(1),
        start: Some(local("2026-01-01 00:00:10")),
        ..spec(false, false)
    };
    tokio::time::sleep(Duration::from_secs(20)).await;
    let rows = read_for(&node_of(&server, spec), Duration::from_secs(5)).await;
    assert_eq!(rows, ["+I1a", "+I2b"]);
}

#[tokio::test(start_paused = true)]
async fn append_only_gives_inserts_whatever_the_server_sends() {
    let [before, after] = update(START, 2, 2, "b", "b2");
    let changes = vec![insert(START, 1, "a"), before, after, Change { at_ms: START, lsn: 3, op: 1, id: 1, name: "a" }];
    let server = FakeServer::new(changes, vec![], Manners::default());
    let node = node_of(&server, ChangelogSpec { increment_type: IncrementType::AppendOnly, ..spec(false, true) });
    assert!(node.inserts_only() && !node.append_only());
    assert_eq!(drain(&node).await.unwrap(), ["+I1a"]);
}

#[tokio::test(start_paused = true)]
async fn metadata_columns_tell_commit_and_order_and_are_null_in_the_snapshot() {
    let server = FakeServer::new(vec![insert(START, 1, "x")], vec![(7, "a")], Manners::default());
    let metadata = [MetadataColumn::CommitTime, MetadataColumn::Tso, MetadataColumn::Lsn];
    let fields = vec![Field::new("id", DataType::Int64, false), Field::new("name", DataType::Utf8, true)];
    let spec = ChangelogSpec {
        schema: read_schema(fields, &metadata, "__change_kind"),
        metadata: Arc::new(metadata),
        ..spec(true, true)
    };
    let mut stream = execute(&node_of(&server, spec));
    let mut batches = Vec::new();
    while let Some(batch) = stream.next().await {
        batches.push(batch.unwrap());
    }
    let text = arrow::util::pretty::pretty_format_batches(&batches).unwrap().to_string();
    let expected = format!(
        "\
+----+------+--------------------------+--------------------+--------------+---------------+
| id | name | __commit_time            | __commit_tso       | __commit_lsn | __change_kind |
+----+------+--------------------------+--------------------+--------------+---------------+
| 7  | a    |                          |                    |              | +I            |
| 1  | x    | 2026-01-01T00:00:10.500Z | {} | 1            | +I            |
+----+------+--------------------------+--------------------+--------------+---------------+",
        START << 18
    );
    assert_eq!(text, expected);
}

fn old_start(on_expired: OnExpired) -> ChangelogSpec {
    ChangelogSpec {
        start: Some(local("2025-12-29 00:00:00")),
        time_to_live: Some(Duration::from_secs(86_400)),
        on_expired,
        max_window: Duration::from_secs(7 * 86_400),
        ..spec(false, true)
    }
}

#[tokio::test(start_paused = true)]
async fn start_that_is_older_than_what_is_kept_fails_or_goes_on_with_what_is_left() {
    let changes = || vec![insert(START - 80_000_000, 1, "old"), insert(START - 50_000_000, 2, "kept")];
    let manners = || Manners { kept_from_ms: START - 60_000_000, ..Manners::default() };
    let server = FakeServer::new(changes(), vec![], manners());
    let error = drain(&node_of(&server, old_start(OnExpired::Fail))).await.unwrap_err().to_string();
    for part in
        ["db.t", "2025-12-29 00:00:00 UTC", "changelog.ttl_seconds = 86400", "2025-12-31 10:06:50 UTC", "'continue'"]
    {
        assert!(error.contains(part), "{part}: {error}");
    }
    let server = FakeServer::new(changes(), vec![], manners());
    assert_eq!(drain(&node_of(&server, old_start(OnExpired::Continue))).await.unwrap(), ["+I2kept"]);
}

#[tokio::test(start_paused = true)]
async fn start_that_becomes_too_old_while_its_window_is_waited_for_is_told() {
    // Two minutes before its changes are dropped, and visible after four.
    let start_ms = SECOND - 86_400_000 + 120_000;
    let manners = |failures| Manners {
        failures: Mutex::new(vec![5101; failures]),
        kept_from_ms: SECOND - 3_600_000,
        ..Manners::default()
    };
    let changes = || vec![insert(start_ms + 1_000, 1, "lost"), insert(SECOND - 1_000, 2, "kept")];
    let spec = ChangelogSpec {
        start: Some(local("2025-12-31 00:02:10")),
        max_window: Duration::from_secs(7 * 86_400),
        ..old_start(OnExpired::Fail)
    };
    let server = FakeServer::new(changes(), vec![], manners(50));
    let error = drain(&node_of(&server, spec.clone())).await.unwrap_err().to_string();
    assert!(error.contains("2025-12-31 00:02:10 UTC") && error.contains("changelog.ttl_seconds"), "{error}");
    let server = FakeServer::new(changes(), vec![], manners(5));
    assert_eq!(drain(&node_of(&server, spec)).await.unwrap(), ["+I2kept"], "nobody knows of a change dropped early");
}

#[tokio::test(start_paused = true)]
async fn start_before_a_young_table_was_created_misses_nothing() {
    let changes = || vec![insert(START - 50_000_000, 1, "x")];
    let young = Manners { created_ms: Some(START - 80_000_000), ..Manners::default() };
    let server = FakeServer::new(changes(), vec![], young);
    assert_eq!(drain(&node_of(&server, old_start(OnExpired::Fail))).await.unwrap(), ["+I1x"]);
    let old = Manners { created_ms: Some(START - 90_000_000), ..Manners::default() };
    let server = FakeServer::new(changes(), vec![], old);
    assert!(drain(&node_of(&server, old_start(OnExpired::Fail))).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn old_start_with_older_changes_still_there_is_read() {
    let changes = vec![insert(START - 10 * 86_400_000, 1, "older"), insert(START - 86_400_000, 2, "x")];
    let server = FakeServer::new(changes, vec![], Manners::default());
    assert_eq!(drain(&node_of(&server, old_start(OnExpired::Fail))).await.unwrap(), ["+I2x"]);
}

/// A kept position, and what was written over it.
#[derive(Debug, Default)]
pub(super) struct Kept(pub Mutex<Vec<LocalTime>>);

#[async_trait]
impl OffsetStore for Kept {
    async fn read(&self) -> Result<Option<LocalTime>> {
        Ok(self.0.lock().last().copied())
    }

    async fn write(&self, next: LocalTime) -> Result<()> {
        self.0.lock().push(next);
        Ok(())
    }

    fn describe(&self) -> String {
        "the position of consumer 'c' in db.o".into()
    }
}

pub(super) fn with_offsets(node: DorisChangelogExec, kept: &Arc<Kept>) -> DorisChangelogExec {
    node.with_offsets(Arc::new(Offsets::new(Arc::clone(kept) as Arc<dyn OffsetStore>)))
}

#[tokio::test(start_paused = true)]
async fn kept_position_goes_before_the_mode_and_no_snapshot_is_read() {
    let kept = Arc::new(Kept(Mutex::new(vec![local("2025-12-31 23:59:50")])));
    let changes = vec![insert(START - 30_000, 1, "before"), insert(START - 15_000, 2, "x")];
    let server = FakeServer::new(changes, vec![(7, "a")], Manners::default());
    let node = with_offsets(node(&server, true, true), &kept);
    assert_eq!(drain(&node).await.unwrap(), ["+I2x"]);
    assert_eq!(kept.0.lock().last(), Some(&local("2026-01-01 00:00:11")), "flushed at the end");
}

#[tokio::test(start_paused = true)]
async fn position_is_published_once_the_consumer_polled_past_its_rows() {
    let kept = Arc::new(Kept::default());
    let changes = vec![insert(START + 1_000, 1, "x"), insert(START + 12_000, 2, "y")];
    let server = FakeServer::new(changes, vec![], Manners::default());
    let node = with_offsets(node(&server, false, false), &kept);
    let mut stream = execute(&node);
    assert_eq!(rows_of(&stream.next().await.unwrap().unwrap()), ["+I1x"]);
    // The rows were given, but nobody says that they were used.
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(kept.0.lock().is_empty());
    assert_eq!(rows_of(&stream.next().await.unwrap().unwrap()), ["+I2y"]);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(*kept.0.lock(), [local("2026-01-01 00:00:20")]);
}

#[tokio::test(start_paused = true)]
async fn epochs_publish_what_is_committed() {
    let kept = Arc::new(Kept::default());
    let server = FakeServer::new(vec![insert(START, 1, "x")], vec![], Manners::default());
    let node = with_offsets(node(&server, false, false), &kept);
    let source = node.epoch_source();
    source.begin_epoch(Epoch(1));
    assert!(source.arm().await.unwrap());
    assert_eq!(drain(&node).await.unwrap(), ["+I1x"]);
    source.piece_done();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(kept.0.lock().is_empty(), "not committed yet");
    source.epoch_committed(Epoch(1));
    source.closed().await;
    assert_eq!(*kept.0.lock(), [local("2026-01-01 00:00:20")]);
}

#[tokio::test(start_paused = true)]
async fn start_far_ahead_of_the_server_is_refused_by_name() {
    let server = FakeServer::new(vec![], vec![], Manners::default());
    let ahead = ChangelogSpec { start: Some(local("2062-01-01 00:00:00")), ..spec(false, false) };
    let error = drain(&node_of(&server, ahead)).await.unwrap_err().to_string();
    assert!(error.contains("'source.scan.timestamp' is 2062-01-01 00:00:00 UTC"), "{error}");
    assert!(error.contains("ahead of the server's time, 2026-01-01 00:00:10 UTC"), "{error}");
    let kept = Arc::new(Kept(Mutex::new(vec![local("2026-01-01 00:05:00")])));
    let error = drain(&with_offsets(node(&server, true, false), &kept)).await.unwrap_err().to_string();
    assert!(error.contains("consumer 'c' in db.o is 2026-01-01 00:05:00 UTC"), "{error}");
}
