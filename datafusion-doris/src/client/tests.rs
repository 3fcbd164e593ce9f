use std::time::Duration;

use bytes::Bytes;
use serde_json::json;

use super::testing::{Reply, Server, client, dead_address, loaded, options};
use super::*;
use crate::error::Retry;
use crate::options::SinkOptions;
use crate::protocol::{
    LabelState, LoadRequest, StreamLoadHeaders, StreamLoadResponse, Tso, TxnOperation, TxnOutcome, TxnRef,
};
use crate::types::{DorisType, KeyModel, TableIdent};

/// `Basic` of `app_rw` and `p@ss:/w%rd#1`.
const BASIC: &str = "Basic YXBwX3J3OnBAc3M6L3clcmQjMQ==";

fn load(table: &TableIdent) -> StreamLoad {
    let headers = headers(table, &SinkOptions::default());
    StreamLoad { table: table.clone(), label: "l1".into(), headers, buffer_count: 2, length: None }
}

fn headers(table: &TableIdent, options: &SinkOptions) -> StreamLoadHeaders {
    headers_of(table, options, true)
}

fn headers_of(table: &TableIdent, options: &SinkOptions, two_phase_commit: bool) -> StreamLoadHeaders {
    let headers = StreamLoadHeaders::build(&LoadRequest {
        table,
        options,
        columns: Some("`id`"),
        format: crate::options::SinkFormat::Csv,
        delete_sign: false,
        label: "l1",
        two_phase_commit,
    });
    headers.unwrap()
}

fn student() -> TableIdent {
    TableIdent::new("db", "student")
}

fn rows(columns: &[&str], rows: serde_json::Value) -> Reply {
    let meta: Vec<_> = columns.iter().map(|name| json!({ "name": name, "type": "STRING" })).collect();
    Reply::data(json!({ "type": "result_set", "meta": meta, "data": rows, "status": {}, "time": 1 }))
}

#[tokio::test]
async fn body_goes_to_the_backend_only_and_credentials_follow_the_redirect() {
    let be = Server::start([Reply::ok(loaded("Success", "OK", 2))]).await;
    let location = format!("http://app_rw:p%40ss@{}/api/db/student/_stream_load?k=%20v", be.address);
    let fe = Server::start([Reply::redirect(location)]).await;

    let mut open = client(&[&fe.address]).stream_load(load(&student())).await.unwrap();
    assert_eq!(open.host(), be.address);
    open.send(Bytes::from_static(b"1\n")).await.unwrap();
    open.send(Bytes::from_static(b"2\n")).await.unwrap();
    let answer = open.finish().await.unwrap();
    assert_eq!((answer.txn_id, answer.loaded_rows), (Some(4711), 2));

    let at_fe = &fe.received()[0];
    assert_eq!(at_fe.line, "PUT /api/db/student/_stream_load HTTP/1.1");
    assert_eq!((at_fe.header("expect"), at_fe.header("content-length")), ("100-continue", "0"));
    assert_eq!(at_fe.header("authorization"), BASIC);
    let at_be = &be.received()[0];
    assert_eq!(at_be.line, "PUT /api/db/student/_stream_load?k=%20v HTTP/1.1");
    assert_eq!(at_be.header("authorization"), BASIC);
    assert_eq!(at_be.header("label"), "l1");
    assert_eq!(at_be.header("two_phase_commit"), "true");
    assert_eq!(at_be.header("transfer-encoding"), "chunked");
    assert!(!at_be.headers.contains_key("content-length"));
    assert_eq!(at_be.body, b"1\n2\n");
}

#[tokio::test]
async fn refusal_before_the_end_of_the_body_reaches_the_sender() {
    let refusal = loaded("Fail", "[ANALYSIS_ERROR]TStatus: errCode = 2, detailMessage = unknown column x", 0);
    let be = Server::start([Reply::Early { body: refusal }]).await;
    let fe = Server::start([Reply::redirect(format!("http://{}/x", be.address))]).await;

    let mut open = client(&[&fe.address]).stream_load(load(&student())).await.unwrap();
    let chunk = Bytes::from(vec![b'x'; 1 << 20]);
    let error = loop {
        if let Err(error) = open.send(chunk.clone()).await {
            break error;
        }
    };
    assert!(error.to_string().contains("unknown column x"), "{error}");
    assert_eq!(error.retry(), Retry::Never);
    assert!(open.finish().await.unwrap_err().to_string().contains("earlier error"));
}

#[tokio::test]
async fn backend_that_reads_nothing_does_not_hang_the_sender() {
    let be = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = be.local_addr().unwrap();
    let fe = Server::start([Reply::redirect(format!("http://{address}/x"))]).await;
    let options = options(&[&fe.address]).with_read_timeout(Duration::from_secs(1));
    let client = DorisClient::try_new(Arc::new(options)).unwrap();
    let mut load = load(&student());
    let sink = SinkOptions { properties: [("timeout".to_string(), "1".to_string())].into(), ..SinkOptions::default() };
    load.headers = headers(&student(), &sink);
    let mut open = client.stream_load(load).await.unwrap();
    let error = loop {
        if let Err(error) = open.send(Bytes::from(vec![b'1'; 1 << 20])).await {
            break error;
        }
    };
    assert_eq!(error.retry(), Retry::SameLabel, "{error}");
    assert!(error.to_string().contains("sending the body of load l1"), "{error}");
    assert!(open.finish().await.unwrap_err().to_string().contains("earlier error"));
}

#[tokio::test]
async fn dropped_load_never_looks_complete() {
    let be = Server::start([Reply::ok(loaded("Success", "OK", 1))]).await;
    let fe = Server::start([Reply::redirect(format!("http://{}/x", be.address))]).await;
    let mut open = client(&[&fe.address]).stream_load(load(&student())).await.unwrap();
    open.send(Bytes::from_static(b"1\n")).await.unwrap();
    be.wait_for_begun(1).await;
    drop(open);
    assert!(!be.wait_for(1).await[0].complete);
}

/// A load of four bytes, which the BE has before anybody asks for its answer.
async fn answered_early(reply: Reply, options: &SinkOptions) -> Result<StreamLoadResponse> {
    let be = Server::start([reply]).await;
    let fe = Server::start([Reply::redirect(format!("http://{}/x", be.address))]).await;
    let headers = headers_of(&student(), options, options.two_phase(false));
    let whole = StreamLoad { length: Some(4), headers, ..load(&student()) };
    let mut open = client(&[&fe.address]).stream_load(whole).await.unwrap();
    open.send(Bytes::from_static(b"1\n")).await.unwrap();
    open.send(Bytes::from_static(b"2\n")).await.unwrap();
    open.answered().await;
    let answer = open.finish().await;
    assert_eq!((be.received()[0].body.as_slice(), be.received()[0].complete), (b"1\n2\n".as_slice(), true));
    answer
}

#[tokio::test]
async fn an_answer_to_a_whole_body_counts_though_nobody_has_asked_for_it_yet() {
    let group = [("group_commit".to_string(), "sync_mode".to_string())];
    let group = SinkOptions { two_phase_commit: Some(false), ..SinkOptions::default() }.with_properties(group.into());
    for (options, lost) in [
        (SinkOptions { two_phase_commit: Some(false), ..SinkOptions::default() }, Retry::AskLabelState),
        (SinkOptions::default(), Retry::AskLabelState),
        (group.unwrap(), Retry::CannotTell),
    ] {
        let answer = answered_early(Reply::ok(loaded("Success", "OK", 2)), &options).await.unwrap();
        assert_eq!((answer.txn_id, answer.loaded_rows), (Some(4711), 2));
        // The body may have arrived: it is not simply sent again.
        let error = answered_early(Reply::Lose, &options).await.unwrap_err();
        assert_eq!(error.retry(), lost, "{error}");
        let refused = Reply::ok(loaded("Fail", "[ANALYSIS_ERROR]unknown column x", 0));
        let error = answered_early(refused, &options).await.unwrap_err();
        assert_eq!((error.retry(), error.to_string().contains("unknown column x")), (Retry::Never, true), "{error}");
    }
}

#[tokio::test]
async fn lost_answer_asks_for_the_state_of_the_label() {
    let be = Server::start([Reply::Lose]).await;
    let fe = Server::start([Reply::redirect(format!("http://{}/x", be.address))]).await;
    let mut open = client(&[&fe.address]).stream_load(load(&student())).await.unwrap();
    open.send(Bytes::from_static(b"1\n")).await.unwrap();
    let error = open.finish().await.unwrap_err();
    assert_eq!(error.retry(), Retry::AskLabelState, "{error}");
    assert!(error.to_string().contains(&be.address), "{error}");
}

#[tokio::test]
async fn backend_that_dies_in_the_body_does_not_hang_the_sender() {
    let be = Server::start([Reply::Cut(64 << 10)]).await;
    let fe = Server::start([Reply::redirect(format!("http://{}/x", be.address))]).await;
    let mut open = client(&[&fe.address]).stream_load(load(&student())).await.unwrap();
    let error = loop {
        if let Err(error) = open.send(Bytes::from(vec![b'x'; 1 << 20])).await {
            break error;
        }
    };
    assert_eq!(error.retry(), Retry::SameLabel, "{error}");
}

#[tokio::test]
async fn refusal_of_the_frontend_is_not_a_redirect() {
    let fe = Server::start([
        Reply::ok(json!({ "status": "FAILED", "msg": "There is no 100-continue header" }).to_string()),
        Reply::ok(
            json!({ "msg": "Unauthorized", "code": 401, "data": "Access denied for app_rw@10.0.0.1" }).to_string(),
        ),
    ])
    .await;
    let client = client(&[&fe.address]);
    let error = client.stream_load(load(&student())).await.unwrap_err();
    assert!(error.to_string().contains("There is no 100-continue header"), "{error}");
    let error = client.stream_load(load(&student())).await.unwrap_err();
    assert!(matches!(error, Error::Auth { .. }), "{error}");
    assert!(!error.to_string().contains("p@ss"), "{error}");
}

#[tokio::test]
async fn named_backend_takes_the_load_without_a_frontend() {
    let be = Server::start([Reply::ok("{}"), Reply::ok(loaded("Success", "OK", 1))]).await;
    let dead = dead_address().await;
    let options = options(&["fe:1"]).with_benodes(vec![dead, be.address.clone()]);
    let client = DorisClient::try_new(Arc::new(options)).unwrap();
    let mut open = client.stream_load(load(&student())).await.unwrap();
    open.send(Bytes::from_static(b"1\n")).await.unwrap();
    open.finish().await.unwrap();
    assert_eq!(be.lines(), ["GET /api/health", "PUT /api/db/student/_stream_load"]);
}

#[tokio::test]
async fn dead_frontend_is_tried_once_and_then_last() {
    let fe = Server::start((0..3).map(|_| Reply::data(json!("VISIBLE")))).await;
    let dead = dead_address().await;
    let client = client(&[&dead, &fe.address]);
    for _ in 0..3 {
        assert_eq!(client.label_state("db", "l").await.unwrap(), LabelState::Visible);
    }
    assert_eq!(client.inner.frontends.in_order(), [fe.address.clone(), dead]);
    assert_eq!(fe.lines(), vec!["GET /api/db/get_load_state?label=l"; 3]);
}

#[tokio::test]
async fn metadata_request_is_repeated_as_often_as_the_option_says() {
    let fe = Server::start([Reply::Lose, Reply::Lose, Reply::data(json!("ABORTED"))]).await;
    assert_eq!(client(&[&fe.address]).label_state("db", "l").await.unwrap(), LabelState::Aborted);

    let fe = Server::start([Reply::Lose, Reply::Lose]).await;
    let client = DorisClient::try_new(Arc::new(options(&[&fe.address]).with_retries(2))).unwrap();
    let error = client.label_state("db", "l").await.unwrap_err();
    assert!(matches!(error, Error::Transport { .. }), "{error}");
}

#[tokio::test]
async fn silent_frontend_is_given_up_after_the_read_timeout() {
    let silent = Server::start([Reply::Hang]).await;
    let fe = Server::start([Reply::data(json!("VISIBLE"))]).await;
    let options = options(&[&silent.address, &fe.address]).with_read_timeout(Duration::from_millis(50));
    let client = DorisClient::try_new(Arc::new(options)).unwrap();
    assert_eq!(client.label_state("db", "l").await.unwrap(), LabelState::Visible);
}

#[tokio::test]
async fn follower_may_redirect_a_metadata_request_to_the_master() {
    let master = Server::start([Reply::data(json!("PRECOMMITTED"))]).await;
    let follower =
        Server::start([Reply::redirect(format!("http://{}/api/db/get_load_state?label=l", master.address))]).await;
    assert_eq!(client(&[&follower.address]).label_state("db", "l").await.unwrap(), LabelState::PreCommitted);
    assert_eq!(master.received()[0].header("authorization"), BASIC);
}

#[tokio::test]
async fn endless_redirects_end() {
    let fe = Server::start([]).await;
    fe.then((0..4).map(|_| Reply::redirect(format!("http://{}/again", fe.address))));
    let error = client(&[&fe.address]).label_state("db", "l").await.unwrap_err();
    assert!(error.to_string().contains("redirects"), "{error}");
}

#[tokio::test]
async fn table_schema_comes_from_three_answers() {
    let ddl = "CREATE TABLE `student` (\n  `id` int NOT NULL\n) ENGINE=OLAP\nUNIQUE KEY(`id`)\nDISTRIBUTED BY HASH(`id`) BUCKETS 2\nPROPERTIES (\n\"binlog.enable\" = \"true\",\n\"binlog.format\" = \"ROW\"\n);";
    let fe = Server::start([
        rows(
            &["Field", "Type", "Null", "Key", "Default", "Extra"],
            json!([["id", "int", "No", "true", null, ""], ["name", "varchar(20)", "Yes", "false", "x", "NONE"]]),
        ),
        Reply::data(json!({ "status": 200, "keysType": "UNIQUE_KEYS", "properties": [] })),
        rows(&["Table", "Create Table"], json!([["student", ddl]])),
    ])
    .await;
    let schema = client(&[&fe.address]).table_schema(&student()).await.unwrap();
    assert_eq!(schema.model, Some(KeyModel::Unique));
    let columns: Vec<_> = schema.columns.iter().map(|c| (c.name.as_str(), &c.doris_type, c.nullable, c.key)).collect();
    assert_eq!(columns, [("id", &DorisType::Int, false, true), ("name", &DorisType::Varchar(20), true, false)]);
    assert_eq!(schema.columns[1].default.as_deref(), Some("x"));
    assert_eq!(schema.properties.get("binlog.format").map(String::as_str), Some("ROW"));
    assert_eq!(
        fe.lines(),
        [
            "POST /api/query/default_cluster/information_schema",
            "GET /api/db/student/_schema",
            "POST /api/query/default_cluster/information_schema"
        ]
    );
}

#[tokio::test]
async fn unknown_table_is_a_schema_error_with_the_servers_text() {
    let text = "Failed to execute sql: errCode = 2, detailMessage = Unknown table 'student'";
    let fe = Server::start([Reply::ok(json!({ "msg": "Error", "code": 1, "data": text }).to_string())]).await;
    let error = client(&[&fe.address]).table_schema(&student()).await.unwrap_err();
    assert!(matches!(&error, Error::Schema { table, .. } if table == "db.student"), "{error}");
    assert!(error.to_string().contains("Unknown table"), "{error}");
}

#[tokio::test]
async fn model_of_a_table_without_rest_schema_is_read_from_its_ddl() {
    let ddl = "CREATE TABLE `t` (\n  `key` int\n)\nDUPLICATE KEY(`key`)\nDISTRIBUTED BY RANDOM";
    let fe = Server::start([
        rows(&["Field", "Type", "Null", "Key"], json!([["key", "int", "Yes", "true"]])),
        Reply::ok(json!({ "msg": "Error", "code": 1, "data": "not an olap table" }).to_string()),
        rows(&["Table", "Create Table"], json!([["t", ddl]])),
    ])
    .await;
    let schema = client(&[&fe.address]).table_schema(&student()).await.unwrap();
    assert_eq!(schema.model, Some(KeyModel::Duplicate));
    assert!(schema.properties.is_empty());
}

#[tokio::test]
async fn current_tso_falls_back_to_the_api_on_every_frontend() {
    let unknown = || Reply::ok(json!({ "msg": "Error", "code": 1, "data": "Unknown table 'tso_status'" }).to_string());
    let first = Server::start([
        unknown(),
        Reply::ok(json!({ "msg": "Bad Request", "code": 403, "data": "FE is not ready" }).to_string()),
    ])
    .await;
    let second = Server::start([
        unknown(),
        Reply::data(json!({
            "window_end_physical_time": 1_700_000_005_000u64,
            "current_tso": 445_644_800_000_000_000u64,
            "current_tso_physical_time": 1_700_000_000_000u64,
            "current_tso_logical_counter": 0,
        })),
    ])
    .await;
    let tso = client(&[&first.address, &second.address]).current_tso().await.unwrap();
    assert_eq!(tso, Tso(445_644_800_000_000_000));
}

#[tokio::test]
async fn tablets_are_listed_in_order_with_their_backends() {
    let fe = Server::start([Reply::data(json!({
        "status": 200,
        "opaqued_query_plan": "x",
        "partitions": {
            "10012": { "routings": ["be-2:9060"], "version": 2, "schemaHash": 0 },
            "9001": { "routings": ["be-1:9060", "be-2:9060"], "version": 2, "schemaHash": 0 },
        },
    }))])
    .await;
    let tablets = client(&[&fe.address]).tablets(&student(), Some("`id` > 3")).await.unwrap();
    assert_eq!(tablets.iter().map(|tablet| tablet.id).collect::<Vec<_>>(), [9001, 10012]);
    assert_eq!(tablets[0].backends, ["be-1:9060", "be-2:9060"]);
    let body: serde_json::Value = serde_json::from_slice(&fe.received()[0].body).unwrap();
    assert_eq!(body["sql"], "SELECT * FROM `db`.`student` WHERE `id` > 3");
}

#[tokio::test]
async fn refused_query_plan_is_a_server_error() {
    let exception = "only support single table filter-prune-scan, but found [ agg]";
    let fe = Server::start([Reply::data(json!({ "status": 400, "exception": exception }))]).await;
    let error = client(&[&fe.address]).tablets(&student(), None).await.unwrap_err();
    assert!(error.to_string().contains(exception), "{error}");
}

#[tokio::test]
async fn transaction_is_ended_at_the_redirected_backend() {
    let be = Server::start([Reply::ok(
        json!({ "status": "Success", "msg": "transaction [7] commit successfully." }).to_string(),
    )])
    .await;
    let fe = Server::start([Reply::redirect(format!("http://x:y@{}/api/db/_stream_load_2pc?", be.address))]).await;
    let answer = client(&[&fe.address]).finish_txn("db", TxnOperation::Commit, TxnRef::Id(7)).await.unwrap();
    assert_eq!(answer.outcome, TxnOutcome::Done);
    let at_be = &be.received()[0];
    assert_eq!(at_be.line, "PUT /api/db/_stream_load_2pc HTTP/1.1");
    assert_eq!((at_be.header("txn_operation"), at_be.header("txn_id")), ("commit", "7"));
}

#[tokio::test]
async fn flight_switched_off_is_a_clear_config_error() {
    let columns = ["Name", "Host", "HttpPort", "ArrowFlightSqlPort", "IsMaster", "Alive", "CurrentConnected"];
    let fe = Server::start([]).await;
    let port = fe.address.rsplit(':').next().unwrap().to_string();
    fe.then([rows(&columns, json!([["fe_1", "127.0.0.1", port, "-1", "true", "true", "Yes"]]))]);
    let error = client(&[&fe.address]).open_flight(&[]).await.unwrap_err();
    assert!(error.to_string().contains("arrow_flight_sql_port"), "{error}");
}

#[test]
fn debug_of_a_client_has_no_password() {
    assert!(!format!("{:?}", client(&["fe:8030"])).contains("p@ss"));
}

#[test]
fn client_without_frontends_is_refused() {
    let error = DorisClient::try_new(Arc::new(options(&[]))).unwrap_err();
    assert!(error.to_string().contains("fenodes"), "{error}");
}
