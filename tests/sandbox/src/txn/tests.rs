//! Transactions: the table of texts, states, timeouts and limits.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::sync::Arc;
use std::time::Duration;

use arrow::array::{Int32Array, RecordBatch};

use super::{LoadTxn, TxnState};
use crate::engine::{Engine, EngineConfig, LoadSpec, ManualClock, MergeType, Profile, Protocol, TxnRef};
use crate::error::LoadError;

struct Fixture {
    engine: Arc<Engine>,
    clock: Arc<ManualClock>,
}

impl Fixture {
    async fn new() -> Self {
        Self::with(|_| {}).await
    }

    async fn with(change: impl FnOnce(&mut EngineConfig)) -> Self {
        let clock = Arc::new(ManualClock::new(1_700_000_000_000));
        let mut config = EngineConfig { clock: Arc::clone(&clock) as _, ..EngineConfig::default() };
        change(&mut config);
        let engine = Engine::new(config);
        let mut session = engine.open_session("root", "127.0.0.1", Protocol::Http);
        session
            .execute(
                "CREATE DATABASE d; \
                 CREATE TABLE d.t (k INT NOT NULL) UNIQUE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 2; \
                 CREATE TABLE d.dup (k INT) DUPLICATE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 1",
            )
            .await
            .unwrap();
        Self { engine, clock }
    }

    fn spec(&self, label: &str) -> LoadSpec {
        LoadSpec {
            db: "d".into(),
            table: "t".into(),
            label: Some(label.into()),
            two_phase: true,
            timeout: Duration::from_secs(60),
            columns: None,
            merge_type: MergeType::Append,
            source: "BACKEND_STREAMING",
            ..LoadSpec::default()
        }
    }

    fn begin(&self, label: &str) -> LoadTxn {
        self.engine.begin_load(self.spec(label)).unwrap()
    }

    fn precommitted(&self, label: &str, key: i32) -> TxnRef {
        let txn = self.begin(label);
        self.write(&txn, key);
        let id = txn.txn_id();
        let outcome = self.engine.finish_load(txn, true).unwrap();
        assert_eq!((outcome.state, outcome.rows), (TxnState::PreCommitted, 1));
        by_id(id)
    }

    fn write(&self, txn: &LoadTxn, key: i32) {
        let schema = self.engine.table_meta("d", "t").unwrap().load_schema(None).unwrap();
        let batch = RecordBatch::try_new(schema, vec![Arc::new(Int32Array::from(vec![key]))]).unwrap();
        self.engine.write_load(txn, batch).unwrap();
    }

    async fn count(&self) -> u64 {
        self.engine.tablets("d", "t").unwrap().iter().map(|t| t.rows).sum()
    }

    fn state(&self, label: &str) -> TxnState {
        self.engine.label_state("d", label).unwrap().state
    }
}

fn by_id(id: i64) -> TxnRef {
    TxnRef { txn_id: Some(id), label: None }
}

fn by_label(label: &str) -> TxnRef {
    TxnRef { txn_id: None, label: Some(label.into()) }
}

const PREFIX: &str = "TStatus: errCode = 2, detailMessage = ";

#[tokio::test]
async fn rows_are_visible_from_the_commit_on() {
    let f = Fixture::new().await;
    let txn = f.precommitted("a", 1);
    assert_eq!((f.count().await, f.state("a")), (0, TxnState::PreCommitted));
    let id = txn.txn_id.unwrap();
    assert_eq!(f.engine.commit_txn("d", &txn).unwrap(), format!("transaction [{id}] commit successfully."));
    assert_eq!((f.count().await, f.state("a")), (1, TxnState::Visible));
    let txn = f.precommitted("b", 2);
    let both = TxnRef { label: Some("b".into()), ..txn.clone() };
    let id = txn.txn_id.unwrap();
    assert_eq!(f.engine.commit_txn("d", &both).unwrap(), format!("label [b] transaction [{id}] commit successfully."));
    f.precommitted("c", 3);
    assert_eq!(f.engine.abort_txn("d", &by_label("c")).unwrap(), "label [c] abort successfully.");
    assert_eq!((f.count().await, f.state("c")), (2, TxnState::Aborted));
}

#[tokio::test]
async fn second_phase_is_refused_with_the_servers_texts() {
    let f = Fixture::new().await;
    let visible = f.precommitted("visible", 1);
    f.engine.commit_txn("d", &visible).unwrap();
    let aborted = f.precommitted("aborted", 2);
    f.engine.abort_txn("d", &aborted).unwrap();
    let open = f.begin("open");
    let (v, a, o) = (visible.txn_id.unwrap(), aborted.txn_id.unwrap(), open.txn_id());
    let commits = [
        (by_id(v), format!("transaction [{v}] is already visible, not pre-committed.")),
        (by_id(o), format!("transaction [{o}] is prepare, not pre-committed.")),
        (by_id(a), format!("transaction [{a}] is already aborted. abort reason: User Abort")),
        (by_id(77), "transaction [77] not found.".to_owned()),
        (by_label("visible"), "running transaction not found, label=visible".to_owned()),
        (by_label("none"), "running transaction not found, label=none".to_owned()),
    ];
    for (txn, text) in commits {
        assert_eq!(f.engine.commit_txn("d", &txn).unwrap_err().message, format!("{PREFIX}{text}"));
    }
    let aborts = [
        (by_id(v), format!("transaction [{v}] is already VISIBLE, could not abort.")),
        (by_id(a), format!("transaction [{a}] is already aborted, abort reason: User Abort")),
        (by_id(77), "transaction [77] not found.".to_owned()),
        (by_label("aborted"), "running transaction not found, label=aborted".to_owned()),
    ];
    for (txn, text) in aborts {
        assert_eq!(f.engine.abort_txn("d", &txn).unwrap_err().message, format!("{PREFIX}{text}"));
    }
    for outcome in [f.engine.commit_txn("nope", &by_id(v)), f.engine.abort_txn("nope", &by_id(v))] {
        assert_eq!(outcome.unwrap_err().message, format!("{PREFIX}unknown database, database=nope"));
    }
    assert_eq!(
        f.engine.commit_txn("d", &TxnRef::default()).unwrap_err().message,
        "No transaction id or label selected."
    );
    assert_eq!(f.engine.label_state("nope", "x").unwrap_err().code, 1049);
    assert_eq!(f.state("none"), TxnState::Unknown);
}

#[tokio::test]
async fn labels_block_until_their_transaction_is_aborted() {
    let f = Fixture::new().await;
    let txn = f.precommitted("l", 1);
    let id = txn.txn_id.unwrap();
    let Err(LoadError::LabelExists { txn_id, state, message, .. }) = f.engine.begin_load(f.spec("l")) else { panic!() };
    assert_eq!((txn_id, state.existing_job_status()), (id, "PRECOMMITTED"));
    assert_eq!(
        message,
        format!("{PREFIX}Label [l] has already been used, relate to txn [{id}], status [PRECOMMITTED].")
    );
    f.engine.abort_txn("d", &txn).unwrap();
    let again = f.begin("l");
    let Err(LoadError::LabelExists { state, .. }) = f.engine.begin_load(f.spec("l")) else { panic!() };
    assert_eq!(state.existing_job_status(), "RUNNING");
    f.write(&again, 2);
    f.engine.finish_load(again, false).unwrap();
    let error = f.engine.begin_load(f.spec("l")).unwrap_err();
    let LoadError::LabelExists { state, .. } = &error else { panic!() };
    assert_eq!(state.existing_job_status(), "FINISHED");
    assert!(
        error.response_message().starts_with("[LABEL_ALREADY_EXISTS]TStatus: errCode = 2, detailMessage = Label [l]")
    );
    let old = Fixture::with(|c| c.profile = Profile::V2_1).await;
    let txn = old.begin("l");
    let message = old.engine.begin_load(old.spec("l")).unwrap_err().response_message();
    assert!(message.ends_with(&format!("relate to txn [{}]", txn.txn_id())), "{message}");
}

#[tokio::test]
async fn loads_are_refused_before_they_begin() {
    let f = Fixture::with(|c| c.max_running_txn_num_per_db = 1).await;
    let spec = |change: fn(&mut LoadSpec)| {
        let mut spec = f.spec("l");
        change(&mut spec);
        spec
    };
    let cases: [(LoadSpec, &str); 9] = [
        (spec(|s| s.db = "nope".into()), "unknown database, database=nope"),
        (spec(|s| s.table = "nope".into()), "unknown table, tables=[nope]"),
        (spec(|s| s.label = Some("a b".into())), "Label format error. regex: ^[-_A-Za-z0-9:]{1,128}$, label: a b"),
        (spec(|s| s.label = Some(String::new())), "Label format error. regex: ^[-_A-Za-z0-9:]{1,128}$, label: "),
        (
            spec(|s| (s.table, s.merge_type) = ("dup".into(), MergeType::Delete)),
            "Batch delete only supported in unique tables.",
        ),
        (spec(|s| s.columns = Some(vec!["nope".into()])), "Unknown column 'nope' in 'table list'"),
        (spec(|s| s.columns = Some(vec!["k".into(), "K".into()])), "Duplicate column: K"),
        (spec(|s| s.columns = Some(vec!["__DORIS_DELETE_SIGN__".into()])), "Column has no default value, column=k"),
        (
            spec(|s| (s.columns, s.merge_type) = (Some(vec!["k".into()]), MergeType::Merge)),
            "merge load without column __DORIS_DELETE_SIGN__",
        ),
    ];
    for (spec, text) in cases {
        let error = f.engine.begin_load(spec).unwrap_err();
        assert_eq!(error.response_message(), format!("[ANALYSIS_ERROR]{PREFIX}{text}"));
    }
    assert_eq!(f.engine.running_transactions(), 0);
    let _open = f.begin("first");
    let error = f.engine.begin_load(f.spec("second")).unwrap_err().response_message();
    assert!(error.contains("current running txns on db ") && error.ends_with(" is 1, larger than limit 1"), "{error}");
}

#[tokio::test]
async fn late_transactions_are_aborted_and_their_labels_freed() {
    let f = Fixture::new().await;
    let open = f.begin("prepare");
    f.precommitted("precommitted", 1);
    f.clock.advance(60_001);
    f.engine.sweep();
    assert_eq!((f.state("prepare"), f.state("precommitted")), (TxnState::Aborted, TxnState::PreCommitted));
    let id = open.txn_id();
    let error = f.engine.finish_load(open, false).unwrap_err().response_message();
    assert_eq!(
        error,
        format!("[ANALYSIS_ERROR]{PREFIX}transaction [{id}] is already aborted. abort reason: timeout by txn manager")
    );
    f.clock.advance(3_600_000);
    // No sweep: every access looks at the clock.
    assert_eq!(f.state("precommitted"), TxnState::Aborted);
    assert_eq!(f.engine.running_transactions(), 0);
    f.begin("prepare");
}

#[tokio::test]
async fn a_dropped_load_is_aborted() {
    let f = Fixture::new().await;
    drop(f.begin("l"));
    assert_eq!(f.state("l"), TxnState::Aborted);
    assert_eq!(f.engine.label_state("d", "l").unwrap().reason, "load cancelled");
    let txn = f.begin("l");
    f.engine.abort_load(txn, "bad rows");
    assert_eq!(f.engine.label_state("d", "l").unwrap().reason, "bad rows");
}

#[tokio::test]
async fn commit_into_a_dropped_table_is_refused() {
    let f = Fixture::new().await;
    let txn = f.precommitted("l", 1);
    let mut session = f.engine.open_session("root", "127.0.0.1", Protocol::Http);
    session.execute("DROP TABLE d.t").await.unwrap();
    let error = f.engine.commit_txn("d", &txn).unwrap_err();
    assert_eq!(error.message, format!("{PREFIX}Table [t] does not exist in database [d]."));
    assert_eq!(f.state("l"), TxnState::Aborted);
}

#[tokio::test]
async fn bad_batches_are_refused() {
    let f = Fixture::new().await;
    let txn = f.begin("l");
    let field = |name: &str, ty| arrow::datatypes::Field::new(name, ty, true);
    let batch = |name: &str, array: arrow::array::ArrayRef| {
        let schema = arrow::datatypes::Schema::new(vec![field(name, array.data_type().clone())]);
        RecordBatch::try_new(Arc::new(schema), vec![array]).unwrap()
    };
    let cases: [(RecordBatch, &str); 3] = [
        (batch("k", Arc::new(Int32Array::from(vec![None]))), "null value for not null column, column=k"),
        (batch("z", Arc::new(Int32Array::from(vec![1]))), "Unknown column 'z' in 'table list'"),
        (
            batch("k", Arc::new(arrow::array::Int64Array::from(vec![1]))),
            "column `k` has Arrow type Int64, expected Int32",
        ),
    ];
    for (batch, text) in cases {
        let error = f.engine.write_load(&txn, batch).unwrap_err();
        assert_eq!(error.response_message(), format!("[DATA_QUALITY_ERROR]{text}"));
    }
}

#[tokio::test]
async fn finished_labels_age_out() {
    let f = Fixture::new().await;
    let txn = f.precommitted("a", 1);
    f.engine.commit_txn("d", &txn).unwrap();
    f.clock.advance(43_200_000);
    assert_eq!(f.state("a"), TxnState::Visible);
    assert!(f.engine.begin_load(f.spec("a")).is_err());
    f.clock.advance(1);
    assert_eq!(f.state("a"), TxnState::Unknown);
    f.begin("a");
    assert_eq!(f.engine.running_transactions(), 0, "a dropped load is aborted");
}

#[tokio::test]
async fn a_held_publish_leaves_transactions_committed() {
    let f = Fixture::with(|config| config.max_publishing_txn_num_per_table = Some(2)).await;
    f.engine.set_publish_held(Some(("d", "t")), true).unwrap();
    let txn = f.begin("a");
    f.write(&txn, 1);
    assert_eq!(f.engine.finish_load(txn, false).unwrap().state, TxnState::Committed);
    let second = f.precommitted("b", 2);
    assert!(f.engine.commit_txn("d", &second).unwrap().ends_with("commit successfully."));
    assert_eq!((f.count().await, f.state("a"), f.state("b")), (0, TxnState::Committed, TxnState::Committed));
    let refused = f.engine.begin_load(f.spec("c")).unwrap_err().to_string();
    assert!(refused.contains("is 2, larger than limit 2"), "{refused}");
    let again = f.engine.commit_txn("d", &second).unwrap_err();
    assert!(again.message.ends_with("is already committed, not pre-committed."), "{again}");
    // Another table is not held.
    let txn = f.engine.begin_load(LoadSpec { table: "dup".into(), ..f.spec("d") }).unwrap();
    assert_eq!(f.engine.finish_load(txn, false).unwrap().state, TxnState::Visible);
    f.engine.set_publish_held(Some(("d", "t")), false).unwrap();
    assert_eq!((f.count().await, f.state("a"), f.state("b")), (2, TxnState::Visible, TxnState::Visible));
    f.engine.set_publish_held(None, true).unwrap();
    let txn = f.begin("e");
    f.write(&txn, 3);
    f.engine.finish_load(txn, false).unwrap();
    f.engine.set_publish_held(None, false).unwrap();
    assert_eq!((f.count().await, f.state("e")), (3, TxnState::Visible));
}

#[tokio::test]
async fn too_many_versions_refuse_a_load() {
    let f = Fixture::with(|config| {
        config.auto_compaction = false;
        config.max_tablet_version_num = 3;
    })
    .await;
    let load = |key: i32| {
        let txn = f.engine.begin_load(LoadSpec { label: None, ..f.spec("") }).unwrap();
        let schema = f.engine.table_meta("d", "t").unwrap().load_schema(None).unwrap();
        let batch = RecordBatch::try_new(schema, vec![Arc::new(Int32Array::from(vec![key]))]).unwrap();
        f.engine.write_load(&txn, batch)?;
        f.engine.finish_load(txn, false)
    };
    let mut refused = None;
    for _ in 0..6 {
        refused = refused.or(load(1).err());
    }
    let text = refused.expect("refused").response_message();
    let tablet = f.engine.tablets("d", "t").unwrap().into_iter().find(|t| t.rows > 0).unwrap().id;
    assert_eq!(
        text,
        format!(
            "[E-235]failed to init rowset builder. version count: 4, exceed limit: 3, tablet: {tablet}. Please reduce the frequency of loading data or adjust the max_tablet_version_num in be.conf to a larger value."
        )
    );
}

#[tokio::test]
async fn batches_that_belong_together_are_written_all_or_none() {
    let f = Fixture::new().await;
    let txn = f.begin("a");
    f.write(&txn, 1);
    let schema = f.engine.table_meta("d", "t").unwrap().load_schema(None).unwrap();
    let batch =
        |key: i32| RecordBatch::try_new(Arc::clone(&schema), vec![Arc::new(Int32Array::from(vec![key]))]).unwrap();
    let wrong: arrow::array::ArrayRef = Arc::new(arrow::array::StringArray::from(vec!["x"]));
    let wrong = RecordBatch::try_from_iter([("other", wrong)]).unwrap();
    assert!(f.engine.write_together(&txn, [batch(2), wrong]).is_err());
    assert_eq!(txn.rows(), 1);
    assert!(f.engine.write_together(&txn, [batch(3), batch(4)]).unwrap().is_empty());
    assert_eq!(txn.rows(), 3);
    f.engine.finish_load(txn, false).unwrap();
    assert_eq!(f.count().await, 3);
}
