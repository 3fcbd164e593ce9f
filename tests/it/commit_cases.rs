//! What earlier connectors got wrong about labels and two-phase commit: cases C050 to C057.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::arrow::array::{Int32Array, RecordBatch, StringArray};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::execution::TaskContext;
use datafusion::physical_plan::SendableRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::prelude::SessionContext;
use datafusion_doris::checkpoint::{Committable, Epoch, EpochSink, Generation};
use datafusion_doris::client::DorisClient;
use datafusion_doris::options::DorisOptions;
use datafusion_doris::protocol::{LabelIdentity, LabelState, TxnOperation, TxnOutcome, TxnRef, is_valid_label};
use datafusion_doris::sink::DorisSink;
use doris_sandbox::{Action, Fault, SeenRequest, Site};
use futures::StreamExt;

use crate::harness::{Cluster, lines, refusal, run};
use crate::write::{FORMATS, insert};

const INSERT: &str = "INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, 'c')";

async fn table() -> Cluster {
    let cluster = Cluster::sandbox().await;
    cluster.duplicate_table("t", "id INT, s STRING", "").await;
    cluster
}

async fn declared(cluster: &Cluster, options: &[(&str, &str)]) -> SessionContext {
    let ctx = cluster.context();
    cluster.declare(&ctx, "t", "t", options).await;
    ctx
}

async fn rows(cluster: &Cluster) -> String {
    cluster.scalar("SELECT COUNT(*) FROM {db}.t").await
}

/// Requests to a BE of a second phase.
fn second_phases(cluster: &Cluster, operation: &str) -> Vec<SeenRequest> {
    let requests = cluster.server().requests().matching(Site::Be, "_stream_load_2pc");
    requests.into_iter().filter(|request| request.header("txn_operation") == Some(operation)).collect()
}

/// A commit, or another second phase, that is answered with this status and text, whatever the server thinks.
fn answered(operation: &str, status: &str, text: &str) -> Fault {
    let message = format!("TStatus: errCode = 2, detailMessage = {text}");
    let body = format!("{{\"status\": \"{status}\", \"msg\": \"{message}\"}}");
    Fault::new(Action::Status { code: 200, body }).at(Site::Be).when(&format!("_stream_load_2pc {operation}"))
}

/// An FE that tells this state of a label.
fn state_told(state: &str) -> Fault {
    let body = format!("{{\"msg\": \"success\", \"code\": 0, \"data\": \"{state}\", \"count\": 0}}");
    Fault::new(Action::Status { code: 200, body }).at(Site::Fe).when("get_load_state")
}

#[tokio::test]
async fn c050_commit_answered_already_visible() {
    for wording in ["visible", "committed", "COMMITTED"] {
        let cluster = table().await;
        let ctx = declared(&cluster, &[]).await;
        let faults = cluster.server().faults();
        // The first commit takes effect and its answer is lost; an FE behind the others does not know yet.
        faults.push(Fault::new(Action::DropAnswer).at(Site::Be).when("_stream_load_2pc commit"));
        faults.push(state_told("PRECOMMITTED"));
        if wording != "visible" {
            faults.push(answered(
                "commit",
                "ANALYSIS_ERROR",
                &format!("transaction [4711] is already {wording}, not pre-committed."),
            ));
        }
        assert_eq!(insert(&ctx, INSERT).await, 3, "{wording}");
        assert_eq!(faults.armed(), 0, "{wording}: the faults were met");
        assert_eq!(second_phases(&cluster, "commit").len(), 2, "{wording}: it is not sent a third time");
        assert_eq!(second_phases(&cluster, "abort").len(), 0, "{wording}");
        assert_eq!(rows(&cluster).await, "3", "{wording}");
    }
}

#[tokio::test]
async fn c051_commit_answered_with_an_unknown_status() {
    for (status, text) in [
        ("ANALYSIS_ERROR", "transaction [4712] is already aborted. abort reason: timeout by txn manager"),
        ("INTERNAL_ERROR", "transaction [4712] met something new"),
    ] {
        for format in FORMATS {
            let cluster = table().await;
            let ctx = declared(&cluster, &[format, &[("sink.max-retries", "1")]].concat()).await;
            cluster.server().faults().push(answered("commit", status, text).always());
            let message = refusal(&ctx, INSERT).await;
            let load = &cluster.server().requests().matching(Site::Be, "t/_stream_load")[0];
            let label = load.header("label").expect("a label");
            let txn = second_phases(&cluster, "commit")[0].header("txn_id").expect("an id").to_string();
            for part in [text, label, &format!("transaction {txn}")] {
                assert!(message.contains(part), "{status}: {part} is not in: {message}");
            }
            assert_eq!(rows(&cluster).await, "0", "{status}");
            assert_eq!(cluster.server().running_transactions(), 0, "{status}: nobody can commit it later");
        }
    }
}

#[tokio::test]
async fn c052_transaction_not_found() {
    let cluster = table().await;
    let ctx = declared(&cluster, &[("sink.max-retries", "2")]).await;
    let faults = cluster.server().faults();
    faults.push(answered("commit", "ANALYSIS_ERROR", "transaction [900] not found.").always());
    faults.push(state_told("UNKNOWN").always());
    let message = refusal(&ctx, INSERT).await;
    assert!(message.contains("cannot be confirmed"), "{message}");
    let commits = second_phases(&cluster, "commit");
    assert_eq!(commits.len(), 3, "as often as the options say");
    let txn = commits[0].header("txn_id").expect("an id");
    assert!(message.contains(&format!("transaction {txn}")), "{message}");
}

/// A job's sink for table `t`, as a process makes it.
async fn job_sink(cluster: &Cluster, format: &str) -> (DorisSink, DorisClient) {
    let options = [
        ("fenodes", cluster.fenodes().to_string()),
        ("table.identifier", cluster.table("t")),
        ("username", "root".to_string()),
        ("password", "s3cret".to_string()),
        ("sink.properties.format", format.to_string()),
        ("sink.properties.compress_type", String::new()),
        ("sink.buffer-size", "1kb".to_string()),
    ];
    let options = options.map(|(key, value)| (key.to_string(), value));
    let options = DorisOptions::from_map(HashMap::from(options)).expect("valid options");
    let client = DorisClient::try_new(Arc::new(options.connection.clone())).expect("a client");
    let target = client.table_schema(&options.table).await.expect("the table");
    let sink = DorisSink::try_new(client.clone(), &target, schema(), options.sink).expect("a sink");
    (sink.with_job("job", Generation(1)), client)
}

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("id", DataType::Int32, true), Field::new("s", DataType::Utf8, true)]))
}

fn two_rows() -> RecordBatch {
    let columns: [Arc<dyn datafusion::arrow::array::Array>; 2] =
        [Arc::new(Int32Array::from(vec![1, 2])), Arc::new(StringArray::from(vec!["a", "b"]))];
    RecordBatch::try_new(schema(), columns.into()).expect("two rows")
}

fn data(batches: impl futures::Stream<Item = RecordBatch> + Send + 'static) -> SendableRecordBatchStream {
    Box::pin(RecordBatchStreamAdapter::new(schema(), batches.map(Ok)))
}

/// Pre-commits two rows as this epoch.
async fn pre_commit(sink: &DorisSink, epoch: Epoch) -> Committable {
    let rows = data(futures::stream::iter([two_rows()]));
    let written = sink.write_epoch(epoch, rows, &Arc::new(TaskContext::default())).await.expect("pre-commits");
    assert_eq!((written.rows, written.committables.len()), (2, 1));
    written.committables.into_iter().next().expect("a load")
}

async fn commit(client: &DorisClient, load: &Committable) -> TxnOutcome {
    let txn = TxnRef::Id(load.txn_id.expect("an id"));
    client.finish_txn(&load.db, TxnOperation::Commit, txn).await.expect("an answer").outcome
}

#[tokio::test]
async fn c053_label_left_pre_committed_by_a_crash() {
    for format in ["csv", "json", "arrow"] {
        let cluster = table().await;
        let (killed, _) = job_sink(&cluster, format).await;
        let left = pre_commit(&killed, Epoch(5)).await;
        drop(killed);
        assert_eq!(cluster.server().running_transactions(), 1);

        cluster.server().requests().clear();
        let (sink, client) = job_sink(&cluster, format).await;
        let again = pre_commit(&sink, Epoch(5)).await;
        assert_eq!(again.label, left.label, "the label of the same work is the same");
        assert_ne!(again.txn_id, left.txn_id);
        let asked = cluster.server().requests().matching(Site::Fe, &format!("get_load_state?label={}", left.label));
        assert!(!asked.is_empty(), "the label's state is asked for");
        let [abort] = second_phases(&cluster, "abort").try_into().expect("one abort");
        assert_eq!(abort.header("label"), Some(left.label.as_str()));
        assert_eq!(commit(&client, &again).await, TxnOutcome::Done);
        assert_eq!((rows(&cluster).await.as_str(), cluster.server().running_transactions()), ("2", 0), "{format}");
    }
}

#[tokio::test]
async fn c054_closing_the_writer_aborts_no_handed_over_work() {
    let cluster = table().await;
    let (sink, _) = job_sink(&cluster, "csv").await;
    let handed_over = pre_commit(&sink, Epoch(1)).await;
    // The next epoch's load is in progress when the writer is closed.
    let endless = futures::stream::iter([two_rows()]).chain(futures::stream::repeat(two_rows()));
    let context = Arc::new(TaskContext::default());
    tokio::select! {
        ended = sink.write_epoch(Epoch(2), data(endless), &context) => panic!("an endless epoch ended: {ended:?}"),
        () = cluster.server().until(|server| server.running_transactions() == 2) => {}
    }
    drop(sink);
    cluster.server().until(|server| server.running_transactions() == 1).await;
    let (_, client) = job_sink(&cluster, "csv").await;
    let state = client.label_state(&handed_over.db, &handed_over.label).await.expect("an answer");
    assert_eq!(state, LabelState::PreCommitted);
    for abort in second_phases(&cluster, "abort") {
        assert_ne!(abort.header("label"), Some(handed_over.label.as_str()));
        assert_ne!(abort.header("txn_id").map(str::to_string), handed_over.txn_id.map(|id| id.to_string()));
    }
    assert_eq!(commit(&client, &handed_over).await, TxnOutcome::Done);
    assert_eq!((rows(&cluster).await.as_str(), cluster.server().running_transactions()), ("2", 0));
}

#[tokio::test]
async fn c055_nothing_to_write() {
    let cluster = table().await;
    for format in FORMATS {
        let ctx = declared(&cluster, format).await;
        run(&ctx, "SET datafusion.execution.target_partitions = 4").await;
        run(&ctx, "CREATE TABLE mem AS SELECT value::INT AS id, 'x' AS s FROM generate_series(1, 100)").await;
        cluster.server().requests().clear();
        assert_eq!(insert(&ctx, "INSERT INTO t SELECT * FROM mem WHERE id < 0").await, 0, "{format:?}");
        let all = cluster.server().requests().all();
        let loads: Vec<_> = all.iter().filter(|request| request.target.contains("_stream_load")).collect();
        assert!(loads.is_empty(), "{format:?}: {loads:?}");
    }
    assert_eq!(cluster.server().running_transactions(), 0);
}

/// Another process gives the same labels: they are written down here.
#[test]
fn c056_label_made_from_odd_or_long_names() {
    let long = "x".repeat(200);
    let names = ["\u{8ba2}\u{5355}\u{8868}", "events.v1", "events_v1", &long];
    let labels =
        names.map(|table| LabelIdentity { prefix: "job1", database: "db", table, job: "mirror" }.label(1, 12, 0));
    for (name, label) in names.iter().zip(&labels) {
        assert!(is_valid_label(label), "{name}: {label}");
    }
    assert_eq!(labels[3].len(), 128);
    let expected = [
        "job1_db_____39310231760dc7d9_1_12_0",
        "job1_db_events_v1_2d58a2df0967a080_1_12_0",
        "job1_db_events_v1_40b9cf8fda949f58_1_12_0",
    ];
    assert_eq!(labels[..3], expected);
}

#[tokio::test]
async fn c056_tables_with_odd_or_long_names_are_written() {
    let cluster = Cluster::sandbox().await;
    let long = "x".repeat(60);
    for name in ["events_v1", &long] {
        cluster.duplicate_table(name, "id INT, s STRING", "").await;
        let ctx = cluster.context();
        let prefix = format!("\u{8ba2}\u{5355}.{}", "p".repeat(200));
        cluster.declare(&ctx, "t", name, &[("sink.label-prefix", &prefix)]).await;
        cluster.server().requests().clear();
        assert_eq!(insert(&ctx, INSERT).await, 3, "{name}");
        let load = &cluster.server().requests().matching(Site::Be, "/_stream_load")[0];
        assert!(load.header("label").is_some_and(is_valid_label), "{load:?}");
    }
}

#[tokio::test]
async fn c057_too_many_open_transactions() {
    let cluster = Cluster::of(doris_sandbox::Sandbox::builder().max_running_transactions(2)).await;
    cluster.duplicate_table("t", "id INT, s STRING", "").await;
    let ctx = declared(&cluster, &[]).await;
    let (other, client) = job_sink(&cluster, "csv").await;
    let held = [pre_commit(&other, Epoch(1)).await, pre_commit(&other, Epoch(2)).await];

    let refused_now = declared(&cluster, &[("sink.max-retries", "0")]).await;
    let message = refusal(&refused_now, INSERT).await;
    for part in ["current running txns on db", "larger than limit 2", "SHOW PROC '/transactions'", "sink.max-retries"] {
        assert!(message.contains(part), "{message}");
    }
    // The refusal is met, then the others end, and the next attempt gets in.
    cluster.server().requests().clear();
    let refused_once = async {
        let answered = |server: &doris_sandbox::Sandbox| {
            let loads = server.requests().matching(Site::Be, "t/_stream_load");
            loads.iter().any(|load| load.status.is_some())
        };
        cluster.server().until(answered).await;
        for load in &held {
            assert_eq!(commit(&client, load).await, TxnOutcome::Done);
        }
    };
    let (written, ()) = tokio::join!(insert(&ctx, INSERT), refused_once);
    assert_eq!((written, rows(&cluster).await.as_str()), (3, "7"));
    assert_eq!(cluster.server().running_transactions(), 0);
}

#[tokio::test]
async fn c057_failed_runs_leave_no_transaction_open() {
    let cluster = Cluster::of(doris_sandbox::Sandbox::builder().max_running_transactions(3)).await;
    cluster.duplicate_table("t", "id INT, s STRING", "").await;
    let ctx = declared(&cluster, &[("sink.max-retries", "0")]).await;
    let broken = || Fault::new(Action::FailCommit("tablet writer is broken".into())).at(Site::Be);
    for run_number in 0..150 {
        if run_number % 3 == 0 {
            // In turns at the load and at its commit.
            let site = if run_number % 2 == 0 { "t/_stream_load " } else { "_stream_load_2pc commit" };
            cluster.server().faults().push(broken().when(site));
            let message = refusal(&ctx, INSERT).await;
            assert!(message.contains("tablet writer is broken"), "{message}");
        } else {
            assert_eq!(insert(&ctx, INSERT).await, 3);
        }
    }
    assert_eq!(cluster.server().running_transactions(), 0);
    assert_eq!(rows(&cluster).await, "300");
    assert_eq!(lines(&run(&ctx, "SELECT count(DISTINCT id) FROM t").await), ["3"]);
}
