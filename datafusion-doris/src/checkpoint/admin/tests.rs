use std::collections::BTreeMap;

use async_trait::async_trait;
use parking_lot::Mutex;

use super::super::fingerprint::Fingerprint;
use super::super::testing::MemoryStore;
use super::super::{AbortOutcome, CommitPermit, Epoch, LabelSeries};
use super::testing::at;
use super::*;
use crate::protocol::LabelState;

/// A server that knows some labels.
#[derive(Debug, Default)]
struct Labels(Mutex<BTreeMap<String, LabelState>>);

impl Labels {
    fn of(states: &[(&str, LabelState)]) -> Self {
        Self(Mutex::new(states.iter().map(|(label, state)| (label.to_string(), *state)).collect()))
    }

    fn state(&self, label: &str) -> LabelState {
        self.0.lock().get(label).copied().unwrap_or(LabelState::Unknown)
    }
}

#[async_trait]
impl LoadService for Labels {
    async fn label_state(&self, load: &Committable) -> Result<LabelState> {
        Ok(self.state(&load.label))
    }

    async fn commit(&self, load: &Committable, _: &CommitPermit) -> Result<()> {
        self.0.lock().insert(load.label.clone(), LabelState::Visible);
        Ok(())
    }

    async fn abort(&self, load: &Committable) -> Result<AbortOutcome> {
        self.0.lock().insert(load.label.clone(), LabelState::Aborted);
        Ok(AbortOutcome::RolledBack)
    }
}

fn series() -> LabelSeries {
    LabelSeries { prefix: "p".into(), db: "db".into(), table: "m".into(), writers: 1, open_ended: false, stage: None }
}

async fn claim(store: &Arc<MemoryStore>) -> Chain {
    let options = ChainOptions {
        job: "mirror".into(),
        retain: 3,
        fingerprint: Fingerprint::from_iter([("query", "q")]),
        tables: vec!["db.t".into()],
        labels: Some(series()),
        note: None,
        nodes: BTreeMap::new(),
        unnamed: false,
    };
    Chain::claim(Arc::clone(store) as Arc<dyn CheckpointStore>, options).await.unwrap()
}

fn sources(ms: i64) -> Vec<SourceState> {
    vec![SourceState { table: "db.t".into(), position: at(ms) }]
}

/// A process whose epoch 1, up to 20 s, is recorded with an open load, and which is writing its epoch 2.
async fn running(store: &Arc<MemoryStore>) -> (Chain, String, String) {
    let mut chain = claim(store).await;
    let job = chain.record().label_job();
    let load = |epoch| series().search(&job, Generation(1), Epoch(epoch)).next_load().unwrap();
    let draft = Draft {
        epoch: Epoch(1),
        sources: sources(20_000),
        previous: Some(sources(10_000)),
        committables: vec![load(1)],
        rows: Some(2),
        to_abort: vec![],
    };
    let record = chain.next_record(draft);
    assert!(matches!(chain.append(&record).await.unwrap(), Appended::Recorded(_)));
    (chain, load(1).label, load(2).label)
}

fn admin(store: &Arc<MemoryStore>) -> JobAdmin {
    JobAdmin::with_store("mirror", Arc::clone(store) as Arc<dyn CheckpointStore>)
}

fn to(at_ms: i64) -> ResetTarget {
    ResetTarget::Timestamp { at_ms, now_ms: 100_000 }
}

async fn fenced(chain: &mut Chain) -> String {
    let record = chain.record().clone();
    match chain.append(&record).await.unwrap() {
        Appended::Fenced { error, .. } => error.to_string(),
        Appended::Recorded(_) => panic!("not fenced"),
    }
}

#[tokio::test]
async fn reset_settles_what_is_open_and_fences_the_process_that_runs() {
    let store = Arc::new(MemoryStore::default());
    let (mut process, recorded, unrecorded) = running(&store).await;
    let server = Labels::of(&[(&recorded, LabelState::PreCommitted), (&unrecorded, LabelState::PreCommitted)]);
    let outcome = admin(&store).reset(&to(15_000), Some(&server)).await.unwrap();
    assert_eq!(outcome.generation, 2);
    let change = PositionChange::Again { from_ms: 15_000, to_ms: 20_000 };
    assert_eq!(outcome.sources, [(sources(15_000).remove(0), change)]);
    assert_eq!((outcome.loads.visible, outcome.loads.aborted), (vec![recorded.clone()], vec![unrecorded.clone()]));
    assert_eq!(server.state(&recorded), LabelState::Visible);
    assert_eq!(server.state(&unrecorded), LabelState::Aborted);
    let message = fenced(&mut process).await;
    assert!(message.contains("job mirror was reset to 1970-01-01 00:00:15 UTC at 2"), "{message}");
    let next = claim(&store).await;
    assert_eq!(next.record().sources, sources(15_000));
    assert!(next.record().committables.is_empty() && next.record().note.is_none());
}

#[tokio::test]
async fn rows_that_the_server_lost_count_from_where_they_began() {
    let store = Arc::new(MemoryStore::default());
    let (_process, recorded, _) = running(&store).await;
    let server = Labels::of(&[(&recorded, LabelState::Aborted)]);
    let outcome = admin(&store).reset(&to(20_000), Some(&server)).await.unwrap();
    assert_eq!(outcome.loads.lost, [recorded]);
    assert_eq!(outcome.sources[0].1, PositionChange::Skipped { from_ms: 10_000, to_ms: 20_000 });
}

#[tokio::test]
async fn open_loads_without_a_server_change_nothing() {
    let store = Arc::new(MemoryStore::default());
    let (mut process, ..) = running(&store).await;
    let before = admin(&store).describe().await.unwrap();
    let error = admin(&store).reset(&to(1000), None).await.unwrap_err().to_string();
    assert!(error.contains("name the server"), "{error}");
    assert!(admin(&store).drop_job(None, false, false).await.unwrap_err().to_string().contains("force"));
    assert_eq!(admin(&store).describe().await.unwrap(), before);
    process.done().await.unwrap();
    let outcome = admin(&store).reset(&to(1000), None).await.unwrap();
    assert_eq!(outcome.loads, LoadsOutcome::default());
    fenced(&mut process).await;
    let next = claim(&store).await;
    assert_eq!(next.record().to_abort.len(), 2, "the next start aborts them: {:?}", next.record().to_abort);
}

#[tokio::test]
async fn load_whose_state_tells_nothing_stops_a_reset_at_the_old_position() {
    let store = Arc::new(MemoryStore::default());
    running(&store).await;
    let error = admin(&store).reset(&to(1000), Some(&Labels::default())).await.unwrap_err().to_string();
    assert!(error.contains("cannot be told"), "{error}");
    let job = admin(&store).describe().await.unwrap();
    assert_eq!((job.current().unwrap().sources.clone(), job.open_loads().len()), (sources(20_000), 1));
}

#[tokio::test]
async fn savepoint_is_where_a_reset_goes() {
    let store = Arc::new(MemoryStore::default());
    let (process, recorded, _) = running(&store).await;
    process.keep("s").await.unwrap();
    let server = Labels::of(&[(&recorded, LabelState::Visible)]);
    let missing = admin(&store).reset(&ResetTarget::Savepoint("r".into()), Some(&server)).await.unwrap_err();
    assert!(missing.to_string().contains("there are: s"), "{missing}");
    let outcome = admin(&store).reset(&ResetTarget::Savepoint("s".into()), Some(&server)).await.unwrap();
    assert_eq!(outcome.sources[0].1, PositionChange::Same);
}

#[tokio::test]
async fn drop_commits_what_is_recorded_and_leaves_a_fence_alone() {
    let store = Arc::new(MemoryStore::default());
    let (mut process, recorded, unrecorded) = running(&store).await;
    process.keep("s").await.unwrap();
    store.put("mine.txt", vec![]).await.unwrap();
    let server = Labels::of(&[(&recorded, LabelState::PreCommitted), (&unrecorded, LabelState::PreCommitted)]);
    let outcome = admin(&store).drop_job(Some(&server), false, true).await.unwrap();
    assert_eq!((outcome.loads.visible.len(), outcome.loads.aborted.len()), (1, 1));
    assert_eq!(outcome.kept_savepoints, ["s"]);
    assert_eq!(store.list().await.unwrap(), ["checkpoint-000000000004.json", "mine.txt", "savepoint-s.json"]);
    assert!(fenced(&mut process).await.contains("was dropped"));
    let again = admin(&store).drop_job(None, false, false).await.unwrap();
    assert_eq!(again.removed, 3, "the savepoint, the fence before, and what the fenced process left");
    assert_eq!(store.list().await.unwrap(), ["checkpoint-000000000005.json", "mine.txt"]);
    let error = admin(&store).drop_job(None, false, false).await.unwrap_err().to_string();
    assert!(error.contains("was dropped"), "{error}");
    let next = claim(&store).await;
    assert_eq!(next.record().sources[0].position, super::super::SourcePosition::START);
    assert!(next.seq() > 4);
}

#[tokio::test]
async fn drop_by_force_names_what_it_leaves() {
    let store = Arc::new(MemoryStore::default());
    let (_process, recorded, _) = running(&store).await;
    let outcome = admin(&store).drop_job(None, true, false).await.unwrap();
    assert_eq!((outcome.loads.left, outcome.loads.visible), (vec![recorded.clone()], vec![]));
    let store = Arc::new(MemoryStore::default());
    running(&store).await;
    let outcome = admin(&store).drop_job(Some(&Labels::default()), true, false).await.unwrap();
    assert!(outcome.loads.left[0].contains("cannot be told"), "{outcome:?}");
}

#[tokio::test]
async fn record_of_a_newer_program_is_left_alone_unless_forced() {
    let store = Arc::new(MemoryStore::default());
    let (mut process, ..) = running(&store).await;
    store.put("checkpoint-000000000003.json", br#"{"version": 8, "generation": 4}"#.to_vec()).await.unwrap();
    let error = admin(&store).reset(&to(1000), Some(&Labels::default())).await.unwrap_err().to_string();
    assert!(error.contains("format version 8"), "{error}");
    let error = admin(&store).drop_job(Some(&Labels::default()), false, false).await.unwrap_err().to_string();
    assert!(error.contains("use force"), "{error}");
    let outcome = admin(&store).drop_job(None, true, false).await.unwrap();
    assert_eq!(outcome.loads.left, ["whatever checkpoint 3 holds"]);
    assert_eq!(store.list().await.unwrap(), ["checkpoint-000000000004.json"]);
    assert!(fenced(&mut process).await.contains("dropped"));
    assert_eq!(claim(&store).await.record().generation, Generation(6));
}
