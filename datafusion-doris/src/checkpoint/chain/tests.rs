use super::super::testing::MemoryStore;
use super::*;

fn options() -> ChainOptions {
    ChainOptions {
        job: "j".into(),
        retain: 2,
        fingerprint: Fingerprint::from_iter([("query", "q")]),
        tables: vec!["db.t".into()],
        labels: None,
        note: None,
        nodes: BTreeMap::new(),
        unnamed: false,
    }
}

fn at(next_ms: i64) -> Vec<SourceState> {
    vec![SourceState { table: "db.t".into(), position: SourcePosition::Changelog { next_ms } }]
}

fn load(label: &str) -> Committable {
    Committable {
        db: "db".into(),
        table: "m".into(),
        label: label.into(),
        txn_id: None,
        host: "be".into(),
        lane: 0,
        staged: None,
    }
}

fn draft(epoch: u64, committables: Vec<Committable>) -> Draft {
    let next_ms = 1000 * i64::try_from(epoch).unwrap();
    let previous = Some(at(next_ms - 1000));
    Draft { epoch: Epoch(epoch), sources: at(next_ms), previous, committables, rows: None, to_abort: vec![] }
}

async fn append(chain: &mut Chain, draft: Draft) -> Appended {
    let record = chain.next_record(draft);
    chain.append(&record).await.unwrap()
}

async fn claim(store: &Arc<MemoryStore>) -> Chain {
    Chain::claim(Arc::clone(store) as Arc<dyn CheckpointStore>, options()).await.unwrap()
}

#[tokio::test]
async fn first_claim_begins_at_the_start_and_later_ones_go_on() {
    let store = Arc::new(MemoryStore::default());
    let mut first = claim(&store).await;
    assert_eq!((first.seq(), first.record().generation, first.record().epoch), (1, Generation(1), Epoch(0)));
    assert_eq!(first.record().sources[0].position, SourcePosition::START);
    assert!(matches!(append(&mut first, draft(1, vec![])).await, Appended::Recorded(_)));
    let second = claim(&store).await;
    assert_eq!((second.seq(), second.record().generation, second.record().epoch), (3, Generation(2), Epoch(0)));
    assert_eq!(second.record().sources, at(1000));
    assert_eq!(second.record().chain, first.record().chain);
    assert_eq!(second.record().to_abort, [Leftover { generation: Generation(1), epoch: Epoch(2), labels: None }]);
}

#[tokio::test]
async fn open_loads_are_carried_over_until_they_are_marked_done() {
    let store = Arc::new(MemoryStore::default());
    let mut first = claim(&store).await;
    append(&mut first, draft(1, vec![load("a")])).await;
    let second = claim(&store).await;
    assert_eq!(second.record().committables, [load("a")]);
    assert_eq!((second.record().carried_from, second.record().previous.as_deref()), (Some(2), Some(&at(0)[..])));
    let third = claim(&store).await;
    assert_eq!((third.record().carried_from, third.record().committables.len()), (Some(2), 1));
    // The first generation says so late.
    first.done().await.unwrap();
    let fourth = claim(&store).await;
    assert!(fourth.record().committables.is_empty() && fourth.record().previous.is_none());
}

#[tokio::test]
async fn older_generation_is_fenced_and_told_by_whom() {
    let store = Arc::new(MemoryStore::default());
    let mut old = claim(&store).await;
    let new = claim(&store).await;
    let Appended::Fenced { error, recorded: false } = append(&mut old, draft(1, vec![load("a")])).await else {
        panic!("not fenced")
    };
    let message = error.to_string();
    assert!(message.contains("generation 2 of job j") && message.contains("took over"), "{message}");
    assert_eq!(newest(store.as_ref()).await.unwrap().unwrap().seq, new.seq());
}

#[tokio::test]
async fn dropped_job_begins_anew_and_its_processes_are_told() {
    let store = Arc::new(MemoryStore::default());
    let mut old = claim(&store).await;
    append(&mut old, draft(1, vec![])).await;
    let by_hand = ChainOptions { note: Some("dropped".into()), ..options() };
    let mut person = Chain::claim(Arc::clone(&store) as _, by_hand).await.unwrap();
    let record = person.next_record(draft(0, vec![]));
    let record = Checkpoint { note: Some("dropped".into()), dropped: true, sources: vec![], ..record };
    assert!(matches!(person.append(&record).await.unwrap(), Appended::Recorded(_)));
    let Appended::Fenced { error, recorded: false } = append(&mut old, draft(2, vec![load("a")])).await else {
        panic!("not fenced")
    };
    assert!(error.to_string().contains("job j was dropped at 2"), "{error}");
    let other = ChainOptions { tables: vec!["db.u".into()], fingerprint: Fingerprint::default(), ..options() };
    let new = Chain::claim(Arc::clone(&store) as _, other).await.unwrap();
    assert_eq!((new.seq(), new.record().generation), (5, Generation(3)));
    assert_ne!(new.record().chain, old.record().chain, "labels are others");
    assert_eq!(new.record().sources[0].position, SourcePosition::START);
    assert!(!new.record().dropped && new.record().note.is_none() && new.record().to_abort.is_empty());
}

#[tokio::test]
async fn number_that_was_taken_and_removed_is_not_taken_again() {
    let store = Arc::new(MemoryStore::default());
    let mut old = claim(&store).await;
    let mut new = claim(&store).await;
    for epoch in 1..6 {
        append(&mut new, draft(epoch, vec![load("a")])).await;
        new.done().await.unwrap();
    }
    assert!(store.read(&record_name(2)).await.unwrap().is_none(), "removed by now");
    let Appended::Fenced { error, recorded: false } = append(&mut old, draft(1, vec![load("old")])).await else {
        panic!("not fenced")
    };
    assert!(error.to_string().contains("generation 2 of job j"), "{error}");
    assert_eq!(newest(store.as_ref()).await.unwrap().unwrap().seq, 7);
}

#[tokio::test]
async fn write_whose_answer_was_lost_is_recognised() {
    let store = Arc::new(MemoryStore::default());
    let mut chain = claim(&store).await;
    store.lose_answers(1);
    let record = chain.next_record(draft(1, vec![]));
    assert!(chain.append(&record).await.is_err());
    assert!(matches!(chain.append(&record).await.unwrap(), Appended::Recorded(_)));
    assert_eq!(chain.seq(), 2);
}

#[tokio::test]
async fn last_records_are_kept_and_savepoints_for_ever() {
    let store = Arc::new(MemoryStore::default());
    let mut chain = claim(&store).await;
    append(&mut chain, draft(1, vec![load("a")])).await;
    chain.done().await.unwrap();
    chain.keep("before-upgrade").await.unwrap();
    for epoch in 2..6 {
        append(&mut chain, draft(epoch, vec![load("a")])).await;
        chain.done().await.unwrap();
    }
    append(&mut chain, draft(6, vec![load("b")])).await;
    let mut names = store.list().await.unwrap();
    names.sort();
    let expected = [
        "checkpoint-000000000005.done",
        "checkpoint-000000000005.json",
        "checkpoint-000000000006.done",
        "checkpoint-000000000006.json",
        "checkpoint-000000000007.json",
        "savepoint-before-upgrade.json",
    ];
    assert_eq!(names, expected);
    assert_eq!(chain.savepoint("before-upgrade").await.unwrap(), at(1000));
    let error = chain.savepoint("other").await.unwrap_err().to_string();
    assert!(error.contains("'other'") && error.contains("before-upgrade"), "{error}");
    assert!(chain.keep("../x").await.is_err());
}

#[tokio::test]
async fn another_job_is_refused_before_it_takes_over() {
    let store = Arc::new(MemoryStore::default());
    claim(&store).await;
    let other = ChainOptions { fingerprint: Fingerprint::from_iter([("query", "r")]), ..options() };
    let error = Chain::claim(Arc::clone(&store) as _, other).await.unwrap_err().to_string();
    assert!(error.contains("query: 'q' -> 'r'"), "{error}");
    let other = ChainOptions { tables: vec!["db.u".into()], ..options() };
    assert!(Chain::claim(Arc::clone(&store) as _, other).await.is_err());
    assert_eq!(newest(store.as_ref()).await.unwrap().unwrap().seq, 1, "nothing was written");
}

#[tokio::test]
async fn of_many_claims_at_once_each_gets_its_own_generation() {
    let store = Arc::new(MemoryStore::default());
    let chains = futures::future::join_all((0..8).map(|_| claim(&store))).await;
    let mut generations: Vec<u64> = chains.iter().map(|chain| chain.record().generation.0).collect();
    generations.sort_unstable();
    generations.dedup();
    assert_eq!(generations.len(), 8, "a claim that was overtaken at once is made again");
}

#[tokio::test]
async fn job_without_a_name_goes_on_with_a_cluster_that_has_kept_a_node_and_with_no_other() {
    let store = Arc::new(MemoryStore::default());
    let on = |sink: &[&str], unnamed| {
        let nodes = |nodes: &[&str]| nodes.iter().map(|node| node.to_string()).collect::<Vec<_>>();
        let nodes = BTreeMap::from([("source db.t".into(), nodes(&["a:1"])), ("sink".into(), nodes(sink))]);
        let options = ChainOptions { nodes, unnamed, ..options() };
        Chain::claim(Arc::clone(&store) as Arc<dyn CheckpointStore>, options)
    };
    on(&["b:1", "b:2"], true).await.unwrap();
    on(&["b:2", "b:3"], true).await.unwrap();
    let message = on(&["b:1", "c:1"], true).await.unwrap_err().to_string();
    for part in ["sink", "b:2, b:3", "b:1, c:1", "doris.job.name = 'j'"] {
        assert!(message.contains(part), "{part}: {message}");
    }
    let renamed = on(&["c:1"], false).await.unwrap();
    assert_eq!(renamed.record().generation, Generation(3), "a name is the user's word");
    on(&["c:1"], true).await.unwrap();
}

/// Of two processes one is overtaken between writing a record and looking whether it was first.
#[tokio::test]
async fn record_that_was_written_before_its_writer_was_overtaken_is_known_as_such() {
    let store = Arc::new(MemoryStore::default());
    let mut old = claim(&store).await;
    let overtaking = Arc::clone(&store);
    store.before_next_list(async move {
        let new = claim(&overtaking).await;
        assert_eq!(new.record().committables, [load("a")], "what the record names is the newer one's");
    });
    let Appended::Fenced { error, recorded: true } = append(&mut old, draft(1, vec![load("a")])).await else {
        panic!("not fenced, or not recorded")
    };
    assert!(error.to_string().contains("generation 2 of job j"), "{error}");
}
