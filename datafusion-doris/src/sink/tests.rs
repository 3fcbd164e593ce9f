mod events;

use std::io::Read;

use arrow::array::{Int32Array, StringArray, UInt64Array};
use arrow::datatypes::{DataType, Field, Schema};
use arrow::record_batch::RecordBatch;
use datafusion::catalog::memory::MemorySourceConfig;
use datafusion::physical_plan::displayable;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use serde_json::json;

use super::*;
use crate::client::testing::{Received, Reply, Server, client, dead_address, loaded};
use crate::error::Retry;
use crate::types::{ColumnSchema, DorisType};

fn target(model: KeyModel) -> TableSchema {
    TableSchema {
        table: TableIdent::new("db", "t"),
        model: Some(model),
        columns: vec![ColumnSchema::new("id", DorisType::Int), ColumnSchema::new("name", DorisType::String)],
        properties: Default::default(),
    }
}

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("id", DataType::Int32, true), Field::new("name", DataType::Utf8, true)]))
}

fn batch(ids: &[i32]) -> RecordBatch {
    let names: Vec<String> = ids.iter().map(|id| format!("n{id}")).collect();
    RecordBatch::try_new(schema(), vec![Arc::new(Int32Array::from(ids.to_vec())), Arc::new(StringArray::from(names))])
        .unwrap()
}

fn data(batches: Vec<RecordBatch>) -> SendableRecordBatchStream {
    Box::pin(RecordBatchStreamAdapter::new(schema(), futures::stream::iter(batches.into_iter().map(Ok))))
}

fn sink(fe: &Server, options: SinkOptions) -> DorisSink {
    DorisSink::try_new(client(&[&fe.address]), &target(KeyModel::Duplicate), schema(), options).unwrap()
}

async fn write(sink: &DorisSink, ids: &[i32]) -> Result<u64> {
    Ok(sink.write_all(data(vec![batch(ids)]), &Arc::new(TaskContext::default())).await?)
}

fn to(server: &Server) -> Reply {
    Reply::redirect(format!("http://{}/be", server.address))
}

fn state(state: &str) -> Reply {
    Reply::data(json!(state))
}

fn txn(status: &str, message: &str) -> Reply {
    Reply::ok(json!({ "status": status, "msg": message }).to_string())
}

fn committed() -> Reply {
    txn("Success", "transaction [4711] commit successfully.")
}

fn aborted() -> Reply {
    txn("Success", "transaction [4711] abort successfully.")
}

fn load_ok(rows: u64) -> Reply {
    Reply::ok(loaded("Success", "OK", rows))
}

/// Rows of a load's body, sorted.
fn lines(load: &Received) -> Vec<String> {
    let mut text = String::new();
    flate2::read::GzDecoder::new(load.body.as_slice()).read_to_string(&mut text).unwrap();
    let mut lines: Vec<String> = text.lines().map(str::to_string).collect();
    lines.sort();
    lines
}

fn operations(server: &Server) -> Vec<String> {
    server.received().iter().map(|request| request.header("txn_operation").to_string()).collect()
}

#[tokio::test]
async fn rows_are_loaded_once_and_then_committed() {
    let be = Server::start([load_ok(2), committed()]).await;
    let fe = Server::start([to(&be), to(&be)]).await;
    assert_eq!(write(&sink(&fe, SinkOptions::default()), &[1, 2]).await.unwrap(), 2);

    let [load, commit] = be.received().try_into().unwrap();
    assert_eq!(lines(&load), ["1\t\"n1\"", "2\t\"n2\""]);
    assert_eq!(load.header("compress_type"), "gz");
    assert_eq!(load.header("columns"), "`id`,`name`");
    assert!(load.header("label").starts_with("datafusion_doris_db_t_"), "{}", load.header("label"));
    assert_eq!((commit.header("txn_operation"), commit.header("txn_id")), ("commit", "4711"));
}

#[tokio::test]
async fn no_rows_mean_no_request() {
    let fe = Server::start([]).await;
    let sink = sink(&fe, SinkOptions::default());
    assert_eq!(sink.write_all(data(vec![batch(&[])]), &Arc::new(TaskContext::default())).await.unwrap(), 0);
    assert!(fe.lines().is_empty());
}

#[tokio::test]
async fn every_input_partition_ends_in_the_one_load() {
    let be = Server::start([load_ok(40), committed()]).await;
    let fe = Server::start([to(&be), to(&be)]).await;
    let partitions: Vec<Vec<RecordBatch>> =
        (0..4).map(|at| vec![batch(&(at * 10..at * 10 + 10).collect::<Vec<_>>())]).collect();
    let input = MemorySourceConfig::try_new_exec(&partitions, schema(), None).unwrap();
    let sink = Arc::new(sink(&fe, SinkOptions::default()));
    let exec = Arc::new(DorisSinkExec::new(input, sink, |_| Vec::new()));
    let shown = displayable(exec.as_ref()).one_line().to_string();
    assert_eq!(
        shown.trim(),
        "DorisSinkExec: table=db.t, format=csv, label_prefix=datafusion_doris, two_phase_commit=true, \
         guarantee=all-or-nothing"
    );
    let rows = datafusion::physical_plan::collect(exec, Arc::new(TaskContext::default())).await.unwrap();
    let count = rows[0].column(0).as_any().downcast_ref::<UInt64Array>().unwrap();
    assert_eq!(count.value(0), 40);
    assert_eq!(lines(&be.received()[0]).len(), 40);
}

#[tokio::test]
async fn commit_that_answers_already_visible_is_done() {
    for text in ["is already visible, not pre-committed.", "is already COMMITTED, not pre-committed."] {
        let message = format!("TStatus: errCode = 2, detailMessage = transaction [4711] {text}");
        let be = Server::start([load_ok(3), txn("ANALYSIS_ERROR", &message)]).await;
        let fe = Server::start([to(&be), to(&be)]).await;
        assert_eq!(write(&sink(&fe, SinkOptions::default()), &[1, 2, 3]).await.unwrap(), 3);
    }
}

#[tokio::test]
async fn lost_commit_is_resolved_by_the_label_and_not_repeated() {
    let be = Server::start([load_ok(1), Reply::Lose]).await;
    let fe = Server::start([to(&be), to(&be), state("VISIBLE")]).await;
    assert_eq!(write(&sink(&fe, SinkOptions::default()), &[1]).await.unwrap(), 1);
    let label = be.received()[0].header("label").to_string();
    assert_eq!(fe.lines()[2], format!("GET /api/db/get_load_state?label={label}"));
}

#[tokio::test]
async fn commit_of_an_aborted_transaction_fails_with_the_servers_text() {
    let message = "transaction [4711] is already aborted. abort reason: timeout by txn manager";
    let be = Server::start([load_ok(1), txn("ANALYSIS_ERROR", message), txn("ANALYSIS_ERROR", message)]).await;
    let fe = Server::start([to(&be), to(&be), to(&be)]).await;
    let error = write(&sink(&fe, SinkOptions::default()), &[1]).await.unwrap_err().to_string();
    assert!(error.contains("4711") && error.contains("timeout by txn manager"), "{error}");
    assert_eq!(operations(&be), ["", "commit", "abort"]);
}

#[tokio::test]
async fn commit_of_an_unknown_transaction_ends_after_the_retries() {
    let not_found = || txn("ANALYSIS_ERROR", "transaction [900] not found.");
    let be = Server::start([not_found(), not_found(), not_found()]).await;
    let fe = Server::start((0..3).flat_map(|_| [to(&be), state("UNKNOWN")])).await;
    let sink = sink(&fe, SinkOptions::default().with_max_retries(2));
    let load = Committable {
        db: "db".into(),
        table: "t".into(),
        label: "l9".into(),
        txn_id: Some(900),
        host: String::new(),
        lane: 0,
        staged: None,
    };
    let error = EpochSink::commit(&sink, &[load], &CommitPermit::for_test()).await.unwrap_err();
    assert_eq!(error.retry(), Retry::AskLabelState);
    assert!(error.to_string().contains("900") && error.to_string().contains("cannot be confirmed"), "{error}");
}

#[tokio::test]
async fn lost_answer_to_a_load_is_resolved_by_its_label() {
    let be = Server::start([Reply::Lose, committed()]).await;
    let fe = Server::start([to(&be), state("PRECOMMITTED"), to(&be)]).await;
    assert_eq!(write(&sink(&fe, SinkOptions::default()), &[1, 2]).await.unwrap(), 2);
    let [load, commit] = be.received().try_into().unwrap();
    assert_eq!(commit.header("label"), load.header("label"));
}

#[tokio::test]
async fn without_two_phase_commit_a_committed_load_is_not_sent_again() {
    let be = Server::start([Reply::Lose]).await;
    let fe = Server::start([to(&be), state("PREPARE"), state("VISIBLE")]).await;
    let options = SinkOptions::default().with_two_phase_commit(false);
    assert_eq!(write(&sink(&fe, options), &[1]).await.unwrap(), 1);
    assert_eq!(be.received()[0].header("two_phase_commit"), "");
}

#[tokio::test]
async fn aborted_load_is_sent_again_under_the_same_label() {
    let be = Server::start([Reply::Lose, load_ok(1), committed()]).await;
    let fe = Server::start([to(&be), state("ABORTED"), to(&be), to(&be)]).await;
    assert_eq!(write(&sink(&fe, SinkOptions::default()), &[1]).await.unwrap(), 1);
    let [first, second, _] = be.received().try_into().unwrap();
    assert_eq!(first.header("label"), second.header("label"));
    assert_eq!(lines(&first), lines(&second));
}

#[tokio::test]
async fn passing_refusal_is_tried_again() {
    let busy = "[ANALYSIS_ERROR]TStatus: errCode = 2, detailMessage = current running txns on db 1 is 100, larger than limit 100";
    let be = Server::start([Reply::ok(loaded("Fail", busy, 0)), load_ok(1), committed()]).await;
    let fe = Server::start([to(&be), state("UNKNOWN"), to(&be), to(&be)]).await;
    assert_eq!(write(&sink(&fe, SinkOptions::default()), &[1]).await.unwrap(), 1);
}

#[tokio::test]
async fn final_refusal_shows_reason_and_error_log() {
    let refusal = json!({
        "TxnId": 4711, "Label": "l", "Status": "Fail", "Message": "[DATA_QUALITY_ERROR]too many filtered rows",
        "ErrorURL": "http://be:8040/api/_load_error_log?file=x", "FirstErrorMsg": "null value for not null column",
    });
    let be = Server::start([Reply::ok(refusal.to_string())]).await;
    let fe = Server::start([to(&be)]).await;
    let error = write(&sink(&fe, SinkOptions::default()), &[1]).await.unwrap_err().to_string();
    for part in ["db.t", "too many filtered rows", "_load_error_log?file=x", "null value for not null column"] {
        assert!(error.contains(part), "{error}");
    }
}

#[tokio::test]
async fn publish_timeout_is_a_success() {
    let be = Server::start([Reply::ok(loaded("Publish Timeout", "publish timeout", 1))]).await;
    let fe = Server::start([to(&be)]).await;
    let options = SinkOptions::default().with_two_phase_commit(false);
    assert_eq!(write(&sink(&fe, options), &[1]).await.unwrap(), 1);
}

#[tokio::test]
async fn leftover_of_an_earlier_process_is_aborted_before_its_label_is_used() {
    let be = Server::start([aborted(), load_ok(2)]).await;
    let fe = Server::start([state("PRECOMMITTED"), to(&be), to(&be)]).await;
    let sink = sink(&fe, SinkOptions::default()).with_job("job", Generation(3));
    let context = Arc::new(TaskContext::default());
    let written = sink.write_epoch(Epoch(7), data(vec![batch(&[1, 2])]), &context).await.unwrap();
    assert_eq!((written.rows, written.committables.len()), (2, 1));
    let label = &written.committables[0].label;
    assert!(label.ends_with("_3_7_0"), "{label}");
    let [abort, load] = be.received().try_into().unwrap();
    assert_eq!((abort.header("txn_operation"), abort.header("label")), ("abort", label.as_str()));
    assert_eq!(load.header("label"), label);
}

#[tokio::test]
async fn epoch_that_is_committed_already_is_not_written_twice() {
    let fe = Server::start([state("VISIBLE")]).await;
    let sink = sink(&fe, SinkOptions::default()).with_job("job", Generation(3));
    let context = Arc::new(TaskContext::default());
    let error = sink.write_epoch(Epoch(7), data(vec![batch(&[1])]), &context).await.unwrap_err();
    assert!(matches!(error, Error::Checkpoint { .. }), "{error}");
}

#[tokio::test]
async fn failing_input_makes_nothing_visible() {
    let fe = Server::start([]).await;
    let broken = futures::stream::iter([
        Ok(batch(&[1])),
        Err(datafusion::error::DataFusionError::Execution("division by zero".into())),
    ]);
    let broken = Box::pin(RecordBatchStreamAdapter::new(schema(), broken));
    let sink = sink(&fe, SinkOptions::default());
    let error = sink.write_all(broken, &Arc::new(TaskContext::default())).await.unwrap_err();
    assert!(error.to_string().contains("division by zero"), "{error}");
    assert!(fe.lines().is_empty());
}

#[tokio::test]
async fn statement_dropped_before_its_commit_is_answered_is_aborted() {
    let be = Server::start([load_ok(1), Reply::Hang, aborted()]).await;
    let fe = Server::start([to(&be), to(&be), to(&be)]).await;
    let sink = sink(&fe, SinkOptions::default());
    {
        let writing = write(&sink, &[1]);
        tokio::select! {
            _ = writing => panic!("the commit is never answered"),
            _ = be.wait_for(2) => {}
        }
    }
    be.wait_for(3).await;
    assert_eq!(operations(&be), ["", "commit", "abort"]);
}

#[tokio::test]
async fn load_survives_a_dead_frontend() {
    let be = Server::start([load_ok(1), committed()]).await;
    let fe = Server::start([to(&be), to(&be)]).await;
    let dead = dead_address().await;
    let client = client(&[&dead, &fe.address]);
    let sink = DorisSink::try_new(client, &target(KeyModel::Unique), schema(), SinkOptions::default()).unwrap();
    assert_eq!(write(&sink, &[1]).await.unwrap(), 1);
}

#[tokio::test]
async fn big_load_arrives_in_order_through_small_chunks() {
    let be = Server::start([load_ok(20_000), committed()]).await;
    let fe = Server::start([to(&be), to(&be)]).await;
    let options = SinkOptions::default().with_buffers(1024, 2);
    let ids: Vec<i32> = (0..20_000).collect();
    assert_eq!(write(&sink(&fe, options), &ids).await.unwrap(), 20_000);
    let mut text = String::new();
    flate2::read::GzDecoder::new(be.received()[0].body.as_slice()).read_to_string(&mut text).unwrap();
    let read: Vec<i32> = text.lines().map(|line| line.split('\t').next().unwrap().parse().unwrap()).collect();
    assert_eq!(read, ids);
}

#[test]
fn column_that_the_table_does_not_have_is_refused_by_name() {
    let odd = Arc::new(Schema::new(vec![Field::new("nope", DataType::Int32, true)]));
    let client = client(&["fe:1"]);
    let error = DorisSink::try_new(client, &target(KeyModel::Unique), odd, SinkOptions::default()).unwrap_err();
    assert_eq!(error.to_string(), "table db.t: has no column 'nope'");
}

#[test]
fn plan_text_and_debug_hide_the_password() {
    let client = client(&["fe:1"]);
    let sink = DorisSink::try_new(client, &target(KeyModel::Unique), schema(), SinkOptions::default()).unwrap();
    assert!(!format!("{sink:?}").contains("p@ss"));
}

#[tokio::test]
async fn body_is_what_a_load_would_send() {
    let fe = client(&[&dead_address().await]);
    let options = SinkOptions::default().with_compression(crate::options::Compression::None).with_buffers(1024, 2);
    let sink = DorisSink::try_new(fe, &target(KeyModel::Duplicate), schema(), options).unwrap();
    let mut body = sink.body().unwrap();
    let ids: Vec<i32> = (0..3000).collect();
    body.write(&batch(&ids)).unwrap();
    let mut bytes: Vec<u8> = body.chunk().unwrap().into();
    assert!(bytes.len() >= 1024);
    assert_eq!((body.rows(), body.chunk()), (3000, None));
    bytes.extend(body.finish().unwrap());
    let rows: String = ids.iter().map(|id| format!("{id}\t\"n{id}\"\n")).collect();
    assert_eq!(String::from_utf8(bytes).unwrap(), rows);
}
