//! Snapshots over many epochs.

use super::*;

/// One row in each of 30 tablets.
fn server(exact: bool) -> (Arc<FakeServer>, DorisChangelogExec) {
    let rows = (0..30).map(|id| (id, "r")).collect();
    let manners = Manners { tablets: Mutex::new((0..30).collect()), ..Manners::default() };
    let server = FakeServer::new(vec![insert(START, 100, "x")], rows, manners);
    let node = node_of(&server, ChangelogSpec { exact_snapshot: exact, ..spec(true, false) });
    (server, node)
}

async fn epoch(node: &DorisChangelogExec, number: u64) -> Vec<String> {
    let source = node.epoch_source();
    source.begin_epoch(Epoch(number));
    assert!(source.arm().await.unwrap());
    let rows = drain(node).await.unwrap();
    source.piece_done();
    source.epoch_committed(Epoch(number));
    rows
}

#[tokio::test(start_paused = true)]
async fn snapshot_is_read_tablet_by_tablet_with_its_instant_pinned() {
    let (server, node) = server(true);
    let mut sizes = Vec::new();
    let mut all = Vec::new();
    let mut starts = Vec::new();
    for number in 1..=4 {
        assert!(node.epoch_source().has_backlog(), "the next part need not be waited for");
        let rows = epoch(&node, number).await;
        sizes.push(rows.len());
        all.extend(rows);
        match node.control().status().position {
            SourcePosition::Snapshot { start_ms, done_tablets } => {
                assert_eq!(done_tablets.len(), all.len());
                starts.push(start_ms);
            }
            SourcePosition::Changelog { next_ms } => starts.push(Some(next_ms)),
        }
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
    assert_eq!(sizes, [4, 8, 16, 2]);
    let mut expected: Vec<String> = (0..30).map(|id| format!("+I{id}r")).collect();
    all.sort();
    expected.sort();
    assert_eq!(all, expected, "every row once");
    assert!(starts.iter().all(|start| *start == starts[0]), "{starts:?}");
    let instants: Vec<String> = server.log.lock().iter().filter(|entry| entry.starts_with("as of")).cloned().collect();
    assert!(instants.len() == 4 && instants.iter().all(|instant| *instant == instants[0]), "{instants:?}");
    assert_eq!(epoch(&node, 5).await, ["+I100x"], "then the changes since");
}

#[tokio::test(start_paused = true)]
async fn snapshot_goes_on_behind_the_tablets_of_a_checkpoint() {
    let (_, first) = server(true);
    epoch(&first, 1).await;
    let position = first.control().status().position;
    let (server, second) = server(true);
    second.epoch_source().restore(&position, false).await.unwrap();
    // A partition was added meanwhile: its tablets have no rows of the pinned instant, or only such.
    server.manners.tablets.lock().push(31);
    let rows = epoch(&second, 1).await;
    assert_eq!(rows.len(), 4);
    assert!(rows.iter().all(|row| ["+I4r", "+I5r", "+I6r", "+I7r"].contains(&row.as_str())), "{rows:?}");
    let SourcePosition::Snapshot { start_ms, done_tablets } = second.control().status().position else {
        panic!("not done yet");
    };
    assert_eq!(done_tablets, (0..8).collect::<Vec<i64>>());
    assert_eq!(SourcePosition::Snapshot { start_ms, done_tablets: (0..4).collect() }, position);
}

#[tokio::test(start_paused = true)]
async fn tablet_that_is_gone_starts_the_snapshot_again_only_where_that_is_harmless() {
    for by_key in [true, false] {
        let (server, node) = server(true);
        let position = SourcePosition::Snapshot { start_ms: Some(START / 1000 * 1000), done_tablets: vec![3, 77] };
        node.epoch_source().restore(&position, by_key).await.unwrap();
        let source = node.epoch_source();
        source.begin_epoch(Epoch(1));
        match source.arm().await {
            Ok(armed) => {
                assert!(armed && by_key);
                let mut rows = drain(&node).await.unwrap();
                rows.sort();
                assert_eq!(rows, ["+I0r", "+I1r", "+I2r", "+I3r"]);
            }
            Err(error) => {
                assert!(!by_key);
                assert!(error.to_string().contains("tablet 77") && error.to_string().contains("begin anew"), "{error}");
                assert!(server.log.lock().iter().all(|entry| !entry.starts_with("tablet")));
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn read_goes_on_from_the_position_of_a_checkpoint_without_a_snapshot() {
    let (server, node) = server(true);
    let position = SourcePosition::Changelog { next_ms: (START / 1000 - 2) * 1000 };
    let source = node.epoch_source();
    source.restore(&position, false).await.unwrap();
    assert_eq!(source.position(), position);
    assert_eq!(epoch(&node, 1).await, Vec::<String>::new(), "the change is in the second that is not over");
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(epoch(&node, 2).await, ["+I100x"]);
    assert!(server.log.lock().iter().all(|entry| !entry.starts_with("tablet") && !entry.starts_with("as of")));
}

#[tokio::test(start_paused = true)]
async fn start_is_kept_when_the_first_epoch_is_rolled_back() {
    for snapshot in [true, false] {
        let server = FakeServer::new(vec![], vec![], Manners::default());
        let node = node(&server, snapshot, false);
        let source = node.epoch_source();
        assert_eq!(source.position(), SourcePosition::START);
        source.begin_epoch(Epoch(1));
        assert!(source.arm().await.unwrap());
        let fixed = source.position();
        assert_ne!(fixed, SourcePosition::START);
        source.epoch_aborted(Epoch(1));
        tokio::time::sleep(Duration::from_secs(100)).await;
        source.begin_epoch(Epoch(2));
        assert!(source.arm().await.unwrap());
        assert_eq!(source.position(), fixed);
    }
}
