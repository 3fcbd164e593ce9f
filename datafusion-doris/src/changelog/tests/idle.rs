//! What polls cost when nothing happens, and that they miss nothing.

use datafusion::physical_plan::metrics::MetricValue;

use super::*;

fn gauge(node: &DorisChangelogExec, name: &str) -> usize {
    let metrics = node.metrics().unwrap();
    let found = metrics.iter().find_map(|metric| match metric.value() {
        MetricValue::Gauge { name: known, gauge } if known == name => Some(gauge.value()),
        MetricValue::Count { name: known, count } if known == name => Some(count.value()),
        _ => None,
    });
    found.unwrap_or_else(|| panic!("no metric {name}"))
}

fn asked(server: &FakeServer, what: &str) -> usize {
    server.log.lock().iter().filter(|sql| sql.contains(what)).count()
}

#[tokio::test(start_paused = true)]
async fn idle_poll_is_one_request_and_a_full_one_follows_each_minute() {
    let server = FakeServer::new(vec![], vec![], Manners::default());
    let node = node(&server, false, false);
    let mut stream = execute(&node);
    // The start, the first poll, and the first window, after which everything is known to be read.
    assert!(tokio::time::timeout(Duration::from_secs(15), stream.next()).await.is_err());
    assert_eq!((asked(&server, "tso"), asked(&server, "versions"), server.windows().len()), (3, 2, 1));
    let position_ms = gauge(&node, "position_ms");
    server.log.lock().clear();
    assert!(tokio::time::timeout(Duration::from_secs(50), stream.next()).await.is_err());
    assert_eq!(*server.log.lock(), ["versions"; 5]);
    assert_eq!(gauge(&node, "idle_polls"), 5);
    assert_eq!(gauge(&node, "position_ms"), position_ms, "the position stays");
    // At 60 s, fifty seconds after the last window.
    assert_eq!(gauge(&node, "lag_ms"), 50_500, "the lag is the server's time less the position");
    server.log.lock().clear();
    assert!(tokio::time::timeout(Duration::from_secs(10), stream.next()).await.is_err());
    assert_eq!((asked(&server, "tso"), asked(&server, "versions"), server.windows().len()), (1, 1, 1));
    assert_eq!(gauge(&node, "position_ms"), position_ms + 60_000);
}

#[tokio::test(start_paused = true)]
async fn change_is_read_at_the_next_poll_wherever_it_falls() {
    // The second one lies between the end of the window that the poll at 10 s reads and that poll.
    for at_ms in [START + 35_000, START + 9_700, START + 9_999, START + 10_001, START + 19_500] {
        let server = FakeServer::new(vec![insert(at_ms, 1, "x")], vec![], Manners::default());
        let mut stream = execute(&node(&server, false, false));
        let begun = Instant::now();
        assert_eq!(rows_of(&stream.next().await.unwrap().unwrap()), ["+I1x"]);
        let late = i64::try_from(begun.elapsed().as_millis()).unwrap() - (at_ms - START);
        assert!((0..=11_000).contains(&late), "committed at {at_ms}, read {late} ms later");
    }
}

#[tokio::test(start_paused = true)]
async fn frontend_that_shows_old_versions_delays_a_change_and_loses_none() {
    let manners = Manners { versions: Versions::Stuck, ..Manners::default() };
    let server = FakeServer::new(vec![insert(START + 35_000, 1, "x")], vec![], manners);
    let mut stream = execute(&node(&server, false, false));
    let begun = Instant::now();
    assert_eq!(rows_of(&stream.next().await.unwrap().unwrap()), ["+I1x"]);
    assert_eq!(begun.elapsed().as_secs(), 70);
}

#[tokio::test(start_paused = true)]
async fn server_that_tells_no_versions_or_too_many_is_asked_once_and_polled_in_full() {
    for versions in [Versions::Refused, Versions::TooMany] {
        let server = FakeServer::new(vec![], vec![], Manners { versions, ..Manners::default() });
        let rows = read_for(&node(&server, false, false), Duration::from_secs(95)).await;
        assert!(rows.is_empty());
        assert_eq!((asked(&server, "versions"), server.windows().len()), (1, 9));
    }
}

#[tokio::test(start_paused = true)]
async fn bounded_and_slow_reads_do_not_look_at_versions() {
    let server = FakeServer::new(vec![insert(START, 1, "x")], vec![], Manners::default());
    assert_eq!(drain(&node(&server, false, true)).await.unwrap(), ["+I1x"]);
    let slow = ChangelogSpec { poll_interval: Duration::from_secs(60), ..spec(false, false) };
    read_for(&node_of(&server, slow), Duration::from_secs(200)).await;
    assert_eq!(asked(&server, "versions"), 0);
}

#[tokio::test(start_paused = true)]
async fn net_changes_are_spared_idle_windows_too() {
    let server = FakeServer::new(vec![insert(START + 41_000, 1, "x")], vec![], Manners::default());
    let net = ChangelogSpec { increment_type: IncrementType::MinDelta, ..spec(false, false) };
    let node = node_of(&server, net);
    assert_eq!(read_for(&node, Duration::from_secs(65)).await, ["+I1x"]);
    assert!(gauge(&node, "idle_polls") >= 1);
    assert!(server.windows().len() <= 4, "{:?}", server.windows());
}

#[tokio::test(start_paused = true)]
async fn idle_job_keeps_waiting_and_hurries_when_somebody_waits_for_an_instant() {
    let server = FakeServer::new(vec![], vec![], Manners::default());
    let node = node(&server, false, false);
    let (source, control) = (node.epoch_source(), Arc::clone(node.control()));
    source.begin_epoch(Epoch(1));
    assert!(source.arm().await.unwrap());
    assert!(drain(&node).await.unwrap().is_empty());
    source.piece_done();
    source.epoch_committed(Epoch(1));
    source.begin_epoch(Epoch(2));
    let mut arming = source.arm();
    assert!(tokio::time::timeout(Duration::from_secs(35), arming.as_mut()).await.is_err(), "nothing to do");
    assert_eq!(gauge(&node, "idle_polls"), 3);
    let (wanted_ms, begun) = (server.now(), Instant::now());
    control.hurry(wanted_ms);
    while control.position().changelog_ms() < Some(wanted_ms) {
        assert!(arming.await.unwrap());
        assert!(drain(&node).await.unwrap().is_empty());
        source.piece_done();
        source.epoch_committed(Epoch(2));
        source.begin_epoch(Epoch(3));
        arming = source.arm();
    }
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    source.stop();
    assert!(!arming.await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn replayed_epoch_reads_again_whatever_the_versions_say() {
    let server = FakeServer::new(vec![insert(START + 1_000, 1, "x")], vec![], Manners::default());
    let node = node(&server, false, false);
    let source = node.epoch_source();
    source.begin_epoch(Epoch(1));
    assert!(source.arm().await.unwrap());
    source.piece_done();
    source.epoch_committed(Epoch(1));
    source.epoch_aborted(Epoch(2));
    for epoch in 2..=4 {
        source.begin_epoch(Epoch(epoch));
        assert!(source.arm().await.unwrap());
        source.piece_done();
        source.epoch_aborted(Epoch(epoch));
    }
    assert_eq!(source.position(), node.control().status().position);
}

#[tokio::test(start_paused = true)]
async fn idle_position_keeps_up_with_a_short_time_to_live() {
    // Between full polls the position stays; a minute would be older than what the server keeps.
    let server = FakeServer::new(vec![insert(START + 301_000, 1, "x")], vec![], Manners::default());
    let kept = ChangelogSpec { time_to_live: Some(Duration::from_secs(50)), ..spec(false, false) };
    let node = node_of(&server, kept);
    let mut stream = execute(&node);
    let mut longest_ms = 0;
    while server.now() < START + 300_000 {
        assert!(tokio::time::timeout(Duration::from_secs(1), stream.next()).await.is_err(), "nothing happens");
        if let Some(position_ms) = node.control().position().changelog_ms() {
            longest_ms = longest_ms.max(server.now() - position_ms);
        }
    }
    assert!(longest_ms < 25_000, "half of the time to live is never over: {longest_ms}");
    assert!(gauge(&node, "idle_polls") > 5, "every other poll is still spared");
    assert_eq!(rows_of(&stream.next().await.unwrap().unwrap()), ["+I1x"]);
    // A time to live that leaves no room for it spares none.
    let shorter = ChangelogSpec { time_to_live: Some(Duration::from_secs(40)), ..spec(false, false) };
    let node = node_of(&server, shorter);
    read_for(&node, Duration::from_secs(100)).await;
    assert_eq!(gauge(&node, "idle_polls"), 0);
}
