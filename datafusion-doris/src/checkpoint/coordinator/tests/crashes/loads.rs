//! Epochs of several loads.

use super::*;

#[tokio::test(start_paused = true)]
async fn epochs_of_several_loads_are_written_once_whatever_number_each_start_has() {
    let mut crashes = 0;
    for first in SITES {
        for occurrence in 0..6 {
            for second in SITES {
                for writers in [[2, 2, 2], [3, 1, 2], [1, 3, 1]] {
                    let (doris, store) = (Arc::default(), Arc::new(MemoryStore::default()));
                    for (site, writers) in [Some((first, occurrence)), Some((second, 1)), None].into_iter().zip(writers)
                    {
                        let faults: Vec<_> = site.into_iter().map(|(site, n)| (site, n, Fault::Hang)).collect();
                        let process = Arc::new(Process { writers, ..Process::new(&doris, &faults) });
                        if run_or_drop(&process, &store).await.is_none() {
                            crashes += 1;
                        }
                    }
                    assert_eq!(rows(&doris), all_rows(), "{first:?} {occurrence}, then {second:?}, {writers:?}");
                    let left = Process::new(&doris, &[]).open();
                    assert_eq!(left, 0, "loads are left open: {first:?} {occurrence}, then {second:?}, {writers:?}");
                }
            }
        }
    }
    assert!(crashes > 600, "{crashes}");
}

#[tokio::test(start_paused = true)]
async fn lost_connections_between_the_loads_of_an_epoch_are_survived() {
    for site in SITES {
        for occurrence in 0..6 {
            let (doris, store) = (Arc::default(), Arc::new(MemoryStore::default()));
            let fault = (site, occurrence, Fault::Lost);
            let process = Arc::new(Process { writers: 2, ..Process::new(&doris, &[fault]) });
            run_or_drop(&process, &store).await.expect("ends").unwrap();
            assert_eq!((rows(&doris), process.open()), (all_rows(), 0), "{site:?} {occurrence}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn epoch_of_which_the_server_gave_up_a_part_is_told_as_torn() {
    let (doris, store) = (Arc::default(), Arc::new(MemoryStore::default()));
    // The second load, after the first is visible.
    let expire = (Site::BeforeCommit, 1, Fault::Expire);
    let process = Arc::new(Process { writers: 2, ..Process::new(&doris, &[expire]) });
    let message = start(&process, checkpoints(&store)).await.unwrap_err().to_string();
    assert!(message.contains("_1_1_0 (VISIBLE) is visible, and") && message.contains("_1_1_1 (ABORTED)"), "{message}");
    assert_eq!(rows(&doris), [0]);
    // Not recorded: the same is told, and nothing is written again.
    let doris = Arc::default();
    let process = Arc::new(Process { writers: 2, ..Process::new(&doris, &[expire]) });
    let message =
        start(&process, RunOptions { restart_attempts: Some(3), ..in_memory() }).await.unwrap_err().to_string();
    assert!(message.contains("_0_1_0 is visible, and p_db_t_") && message.contains("_0_1_1 is lost"), "{message}");
    assert_eq!(rows(&doris), [0]);
}

#[tokio::test(start_paused = true)]
async fn torn_epoch_is_read_again_into_a_target_that_replaces_rows_by_key() {
    for writers in [2, 3] {
        let (doris, store) = (Arc::default(), Arc::new(MemoryStore::default()));
        let expire = (Site::BeforeCommit, 1, Fault::Expire);
        let process = Arc::new(Process { writers, by_key: true, ..Process::new(&doris, &[expire]) });
        start(&process, checkpoints(&store)).await.unwrap();
        let mut keys = rows(&doris);
        keys.dedup();
        assert_eq!((keys, process.open()), (all_rows(), 0), "{writers} loads");
        assert!(rows(&doris).len() > all_rows().len(), "what was visible came again");
    }
}
