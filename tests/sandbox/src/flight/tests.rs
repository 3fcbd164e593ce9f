#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::net::SocketAddr;

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::{DataType, Int32Type};
use arrow_flight::decode::FlightRecordBatchStream;
use arrow_flight::error::FlightError;
use arrow_flight::flight_service_client::FlightServiceClient;
use arrow_flight::sql::client::FlightSqlServiceClient;
use arrow_flight::sql::{CommandGetDbSchemas, CommandGetTables, ProstMessageExt, SqlInfo, TicketStatementQuery};
use arrow_flight::{Action as FlightAction, FlightDescriptor, FlightInfo, Ticket};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use futures::TryStreamExt;
use prost::Message;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};

use crate::engine::Profile;
use crate::faults::{Action, Fault, Site};
use crate::sandbox::Sandbox;
use crate::testing::{builder, sandbox};

mod cluster;
mod dying;
mod governance;
mod metadata;
mod replay;
mod results;
mod session_options;

type Client = FlightSqlServiceClient<Channel>;

async fn raw_client(address: SocketAddr) -> FlightServiceClient<Channel> {
    let channel =
        Endpoint::from_shared(format!("http://{address}")).expect("endpoint").connect().await.expect("connect");
    FlightServiceClient::new(channel).max_decoding_message_size(64 << 20)
}

async fn client(address: SocketAddr) -> Client {
    FlightSqlServiceClient::new_from_inner(raw_client(address).await)
}

async fn login(sandbox: &Sandbox) -> Client {
    let mut client = client(sandbox.addresses().fe_flight).await;
    client.handshake("root", "pw").await.expect("login");
    client
}

/// An action with the token of a client; its only answer.
async fn action(sandbox: &Sandbox, client: &Client, name: &str, body: Vec<u8>) -> Result<bytes::Bytes, Status> {
    let mut raw = raw_client(sandbox.addresses().fe_flight).await;
    let mut request = Request::new(FlightAction { r#type: name.into(), body: body.into() });
    let value = format!("Bearer {}", client.token().expect("token"));
    request.metadata_mut().insert("authorization", value.parse().expect("value"));
    let answers: Vec<_> = raw.do_action(request).await?.into_inner().try_collect().await?;
    assert_eq!(answers.len(), 1);
    Ok(answers[0].body.clone())
}

/// Error of a statement that is refused at `GetFlightInfo`.
async fn refused(client: &mut Client, sql: &str) -> Status {
    status(client.execute(sql.into(), None).await.expect_err("refused"))
}

fn status(error: FlightError) -> Status {
    match error {
        FlightError::Tonic(status) => *status,
        other => panic!("{other}"),
    }
}

fn locations(info: &FlightInfo) -> Vec<String> {
    info.endpoint.iter().flat_map(|e| e.location.iter().map(|l| l.uri.clone())).collect()
}

fn ticket(info: &FlightInfo, endpoint: usize) -> Ticket {
    info.endpoint[endpoint].ticket.clone().expect("ticket")
}

fn handle(ticket: &Ticket) -> String {
    let any = arrow_flight::sql::Any::decode(&*ticket.ticket).expect("any");
    let ticket = TicketStatementQuery::decode(&*any.value).expect("ticket");
    String::from_utf8(ticket.statement_handle.to_vec()).expect("text")
}

async fn fetch(client: &mut Client, ticket: Ticket) -> Result<Vec<RecordBatch>, FlightError> {
    let stream: FlightRecordBatchStream = client.do_get(ticket).await?;
    stream.try_collect().await
}

/// Rows of all endpoints, fetched from the BE without a token.
async fn rows(sandbox: &Sandbox, info: &FlightInfo) -> Vec<RecordBatch> {
    let mut be = client(sandbox.addresses().be_flight).await;
    let mut all = Vec::new();
    for i in 0..info.endpoint.len() {
        all.extend(fetch(&mut be, ticket(info, i)).await.expect("rows"));
    }
    all
}

fn ids(batches: &[RecordBatch]) -> Vec<i32> {
    let mut ids: Vec<i32> =
        batches.iter().flat_map(|b| b.column(0).as_primitive::<Int32Type>().values().to_vec()).collect();
    ids.sort_unstable();
    ids
}

async fn fill(sandbox: &Sandbox, rows: usize) {
    let values: Vec<String> = (0..rows).map(|i| format!("({i}, 'v', {i})")).collect();
    sandbox.execute(&format!("INSERT INTO d.dup VALUES {}", values.join(","))).await.expect("insert");
}

#[tokio::test]
async fn a_basic_login_gives_a_bearer_token_of_26_characters() {
    let s = sandbox().await;
    let client = login(&s).await;
    let token = client.token().expect("token").clone();
    assert_eq!(token.len(), 26);
    assert!(token.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'v').contains(&b)), "{token}");
    assert_eq!(s.open_flight_tokens(), 1);
}

#[tokio::test]
async fn wrong_logins_and_unknown_tokens_are_unauthenticated() {
    let s = sandbox().await;
    let mut wrong = client(s.addresses().fe_flight).await;
    let error = wrong.handshake("root", "no").await.expect_err("refused");
    assert!(error.to_string().contains("wrong user or password"), "{error}");
    let mut unknown = client(s.addresses().fe_flight).await;
    let refused = status(unknown.execute("SELECT 1".into(), None).await.expect_err("refused"));
    assert_eq!(refused.code(), Code::Unauthenticated);
    unknown.set_token("0123456789abcdefghijklmnop".to_owned());
    let refused = status(unknown.execute("SELECT 1".into(), None).await.expect_err("refused"));
    assert_eq!(refused.code(), Code::Unauthenticated);
    assert!(refused.message().starts_with("invalid bearer token, token id: 0123***: no Arrow Flight SQL session"));
    assert!(!refused.message().contains("456789"), "the token is not repeated");
}

#[tokio::test]
async fn older_builds_do_not_say_why_a_token_is_refused() {
    let s = builder().profile(Profile::V2_1).start().await.expect("sandbox");
    let mut unknown = client(s.addresses().fe_flight).await;
    unknown.set_token("x".to_owned());
    let refused = status(unknown.execute("SELECT 1".into(), None).await.expect_err("refused"));
    assert_eq!((refused.code(), refused.message()), (Code::Unauthenticated, ""));
}

#[tokio::test]
async fn basic_on_any_call_works_unpadded_and_opens_a_token_each_time() {
    let s = sandbox().await;
    let mut client = raw_client(s.addresses().fe_flight).await;
    for opened in 1..=2 {
        let command = arrow_flight::sql::CommandStatementQuery { query: "SHOW DATABASES".into(), transaction_id: None };
        let mut request = Request::new(FlightDescriptor::new_cmd(command.as_any().encode_to_vec()));
        let value = format!("Basic {}", STANDARD_NO_PAD.encode("root:pw"));
        request.metadata_mut().insert("authorization", value.parse().expect("value"));
        let answer = client.get_flight_info(request).await.expect("info");
        let echoed = answer.metadata().get("authorization").expect("header").to_str().expect("text");
        assert!(echoed.starts_with("Bearer "), "{echoed}");
        assert_eq!(s.open_flight_tokens(), opened);
    }
}

#[tokio::test]
async fn rows_of_tables_come_from_the_be_once() {
    let s = sandbox().await;
    fill(&s, 10).await;
    let mut fe = login(&s).await;
    let info = fe.execute("SELECT id, v FROM d.dup".into(), None).await.expect("info");
    assert_eq!(locations(&info), [format!("grpc+tcp://{}", s.addresses().be_flight)]);
    assert_eq!((info.total_records, info.total_bytes, info.ordered), (-1, -1, false));
    assert_eq!(handle(&ticket(&info, 0)).split('&').count(), 4);
    let planned = info.clone().try_decode_schema().expect("schema");
    let batches = rows(&s, &info).await;
    assert_eq!(ids(&batches), (0..10).collect::<Vec<_>>());
    assert_eq!(*batches[0].schema(), planned);
    let mut be = client(s.addresses().be_flight).await;
    let again = status(fetch(&mut be, ticket(&info, 0)).await.expect_err("gone"));
    assert_eq!(again.code(), Code::Internal);
    assert!(again.message().contains("no result for this query"), "{again}");
}

#[tokio::test]
async fn an_empty_result_still_has_its_schema() {
    let s = sandbox().await;
    let mut fe = login(&s).await;
    let info = fe.execute("SELECT id, v FROM d.dup WHERE id < 0".into(), None).await.expect("info");
    let mut be = client(s.addresses().be_flight).await;
    let mut stream = be.do_get(ticket(&info, 0)).await.expect("stream");
    assert!(stream.try_next().await.expect("stream").is_none());
    assert_eq!(stream.schema().expect("schema").fields().len(), 2);
}

#[tokio::test]
async fn results_of_the_fe_are_texts_behind_its_own_location() {
    let s = sandbox().await;
    let mut fe = login(&s).await;
    let info = fe.execute("SHOW DATABASES".into(), None).await.expect("info");
    assert_eq!(locations(&info), [format!("grpc+tcp://{}", s.addresses().fe_flight)]);
    let token = fe.token().expect("token").clone();
    assert!(handle(&ticket(&info, 0)).starts_with(&format!("{token}:")));
    let batches = fetch(&mut fe, ticket(&info, 0)).await.expect("rows");
    assert!(batches[0].schema().fields().iter().all(|f| f.data_type() == &DataType::Utf8));
    assert!(batches[0].column(0).as_string::<i32>().iter().any(|d| d == Some("d")));
    assert!(fetch(&mut fe, ticket(&info, 0)).await.is_err(), "fetched once only");
}

#[tokio::test]
async fn statements_without_rows_answer_a_status() {
    let s = sandbox().await;
    let mut fe = login(&s).await;
    let info = fe.execute("INSERT INTO d.dup VALUES (1, 'a', 1)".into(), None).await.expect("info");
    let batches = fetch(&mut fe, ticket(&info, 0)).await.expect("rows");
    assert_eq!(batches[0].schema().field(0).name(), "StatusResult");
    assert_eq!(batches[0].column(0).as_string::<i32>().value(0), "0");
    let info = fe.execute("SELECT id FROM d.dup".into(), None).await.expect("info");
    assert_eq!(ids(&rows(&s, &info).await), [1], "the statement ran at GetFlightInfo");
}

#[tokio::test]
async fn one_token_is_one_session() {
    let s = sandbox().await;
    fill(&s, 1).await;
    let mut fe = login(&s).await;
    fe.execute("USE d".into(), None).await.expect("use");
    fe.execute("SELECT id FROM dup".into(), None).await.expect("the database is kept");
    let mut other = login(&s).await;
    assert!(other.execute("SELECT id FROM dup".into(), None).await.is_err());
}

#[tokio::test]
async fn the_next_statement_drops_what_was_not_fetched() {
    let s = sandbox().await;
    fill(&s, 3).await;
    let mut fe = login(&s).await;
    let first = fe.execute("SELECT id FROM d.dup".into(), None).await.expect("info");
    let second = fe.execute("SELECT id FROM d.dup".into(), None).await.expect("info");
    assert_eq!(s.unfetched_results(), 1);
    let mut be = client(s.addresses().be_flight).await;
    assert!(fetch(&mut be, ticket(&first, 0)).await.is_err());
    assert_eq!(ids(&rows(&s, &second).await), [0, 1, 2]);
    fe.execute("SELECT id FROM d.dup".into(), None).await.expect("info");
    close_session(&s, &fe).await;
    assert_eq!((s.unfetched_results(), s.open_flight_tokens()), (0, 0));
    let refused = status(fe.execute("SELECT 1".into(), None).await.expect_err("closed"));
    assert_eq!(refused.code(), Code::Unauthenticated);
}

async fn close_session(sandbox: &Sandbox, client: &Client) {
    let answer = action(sandbox, client, "CloseSession", Vec::new()).await.expect("answer");
    assert_eq!(answer.as_ref(), [0x08, 0x01], "CLOSED");
}

#[tokio::test]
async fn parallel_sinks_give_endpoints_that_all_hold_rows() {
    let s = sandbox().await;
    fill(&s, 30).await;
    let mut fe = login(&s).await;
    fe.execute("SET enable_parallel_result_sink = true".into(), None).await.expect("set");
    let info = fe.execute("SELECT id FROM d.dup".into(), None).await.expect("info");
    assert_eq!(info.endpoint.len(), 3);
    let mut be = client(s.addresses().be_flight).await;
    let mut all = Vec::new();
    for i in 0..3 {
        let part = fetch(&mut be, ticket(&info, i)).await.expect("rows");
        assert!(part.iter().any(|b| b.num_rows() > 0), "endpoint {i}");
        all.extend(part);
    }
    assert_eq!(ids(&all), (0..30).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_row_of_six_mebibytes_passes_in_one_message() {
    let s = sandbox().await;
    s.execute(
        "CREATE TABLE d.wide (id INT, a STRING, b STRING, c STRING, d STRING, e STRING, f STRING) DUPLICATE KEY(id) \
         DISTRIBUTED BY HASH(id) BUCKETS 1",
    )
    .await
    .expect("table");
    let text = "x".repeat(1 << 20);
    let body = format!("1{}", format!(",{text}").repeat(6));
    let answer = crate::testing::load(&s, "wide", &[("column_separator", ",")], body).await;
    assert_eq!(answer["Status"], "Success", "{answer}");
    let mut fe = login(&s).await;
    let info = fe.execute("SELECT a, b, c, d, e, f FROM d.wide".into(), None).await.expect("info");
    let batches = rows(&s, &info).await;
    let lengths: usize = batches[0].columns().iter().map(|column| column.as_string::<i32>().value(0).len()).sum();
    assert_eq!(lengths, 6 << 20);
    let longer = format!("2,{text}x,b,c,d,e,f");
    let answer = crate::testing::load(&s, "wide", &[("column_separator", ",")], longer).await;
    assert_eq!(answer["Status"], "Fail", "{answer}");
    assert!(answer["FirstErrorMsg"].as_str().unwrap_or_default().contains("schema length: 1048576"), "{answer}");
}

#[tokio::test]
async fn batches_are_bounded_in_rows() {
    let s = sandbox().await;
    let body: String = (0..100_000).map(|i| format!("{i},v,{i}\n")).collect();
    crate::testing::load(&s, "dup", &[("column_separator", ",")], body).await;
    let mut fe = login(&s).await;
    let info = fe.execute("SELECT id FROM d.dup ORDER BY id".into(), None).await.expect("info");
    let batches = rows(&s, &info).await;
    assert_eq!(batches.iter().map(RecordBatch::num_rows).sum::<usize>(), 100_000);
    assert!(batches.iter().all(|b| b.num_rows() <= 32_768));
}

#[tokio::test]
async fn failures_are_internal_with_the_description_of_doris() {
    let s = sandbox().await;
    let mut fe = login(&s).await;
    let refused = status(fe.execute("SELECT * FROM d.none".into(), None).await.expect_err("refused"));
    assert_eq!(refused.code(), Code::Internal);
    assert!(refused.message().starts_with("get flight info statement failed, "), "{refused}");
    assert!(
        refused.message().contains("error msg: errCode = 2, detailMessage = Table [none] does not exist"),
        "{refused}"
    );
    for sql in ["SELECT id FROM d.dup; SELECT id FROM d.dup", "USE d; USE d"] {
        let refused = status(fe.execute(sql.into(), None).await.expect_err("refused"));
        assert!(refused.message().contains("There can only be one stmt that returns the result and it is at the end."));
    }
    fe.execute("USE d; SELECT id FROM dup".into(), None).await.expect("rows at the end are fine");
    // A refused list is refused before any of it runs.
    let list = "CREATE DATABASE refused_list; SHOW DATABASES; SELECT 1";
    status(fe.execute(list.into(), None).await.expect_err("refused"));
    assert!(s.execute("USE refused_list").await.is_err());
}

#[tokio::test]
async fn malformed_be_tickets_are_refused() {
    let s = sandbox().await;
    let mut be = client(s.addresses().be_flight).await;
    let bad = TicketStatementQuery { statement_handle: "a&b".into() };
    let refused = status(fetch(&mut be, Ticket::new(bad.as_any().encode_to_vec())).await.expect_err("refused"));
    assert_eq!(refused.message(), "Malformed ticket: a&b, size: 2");
}

#[tokio::test]
async fn prepared_statements_run_their_text_and_stay_with_their_token() {
    let s = sandbox().await;
    fill(&s, 2).await;
    let mut fe = login(&s).await;
    let mut prepared = fe.prepare("SELECT id FROM d.dup".into(), None).await.expect("prepare");
    assert_eq!(prepared.dataset_schema().expect("schema").field(0).name(), "ResultMeta");
    let info = prepared.execute().await.expect("info");
    assert_eq!(ids(&rows(&s, &info).await), [0, 1]);
    prepared.close().await.expect("close");
    let unread = fe.prepare("THIS IS NOT SQL".into(), None).await;
    assert!(unread.is_ok(), "the text is not parsed before it runs");
}

#[tokio::test]
async fn updates_and_schemas_by_put_are_unimplemented() {
    let s = sandbox().await;
    let mut fe = login(&s).await;
    let refused =
        status(fe.execute_update("INSERT INTO d.dup VALUES (1,'a',1)".into(), None).await.expect_err("refused"));
    assert_eq!((refused.code(), refused.message()), (Code::Unimplemented, "acceptPutStatement unimplemented"));
    let mut raw = raw_client(s.addresses().fe_flight).await;
    let refused = raw.get_schema(FlightDescriptor::new_cmd(Vec::new())).await.expect_err("refused");
    assert_eq!((refused.code(), refused.message()), (Code::Unimplemented, "getSchemaStatement unimplemented"));
}

#[tokio::test]
async fn faults_of_location_bearer_and_empty_endpoints() {
    let s = sandbox().await;
    fill(&s, 2).await;
    let mut fe = login(&s).await;
    let sql = "SELECT id FROM d.dup";
    s.faults().push(Fault::new(Action::FlightLocation("grpc+tcp://0.0.0.0:1".into())).at(Site::FeFlight).when("d.dup"));
    let info = fe.execute(sql.into(), None).await.expect("info");
    assert_eq!(locations(&info), ["grpc+tcp://0.0.0.0:1"]);

    s.faults().push(Fault::new(Action::RequireBearer).at(Site::BeFlight).always());
    let mut be = client(s.addresses().be_flight).await;
    let refused = status(fetch(&mut be, ticket(&info, 0)).await.expect_err("refused"));
    assert_eq!(refused.code(), Code::Unauthenticated);
    be.set_token(fe.token().expect("token").clone());
    assert_eq!(ids(&fetch(&mut be, ticket(&info, 0)).await.expect("rows")), [0, 1]);
    s.faults().clear();

    for (action, schema) in [(Action::FlightSchemaOnly, true), (Action::FlightNoMessage, false)] {
        s.faults().push(Fault::new(action).at(Site::BeFlight).when("from d.dup"));
        let info = fe.execute(sql.into(), None).await.expect("info");
        let mut stream = be.do_get(ticket(&info, 0)).await.expect("stream");
        assert!(stream.try_next().await.expect("stream").is_none());
        assert_eq!(stream.schema().is_some(), schema);
    }
    assert_eq!(s.faults().armed(), 0);
}

#[tokio::test]
async fn calls_are_seen_without_their_credentials() {
    let s = sandbox().await;
    let mut fe = login(&s).await;
    fe.execute("SHOW DATABASES".into(), None).await.expect("info");
    let seen = s.requests().matching(Site::FeFlight, "SHOW DATABASES");
    assert_eq!((seen.len(), seen[0].method.as_str()), (1, "GetFlightInfo"));
    assert_eq!(seen[0].header("authorization"), Some("Bearer ***"));
}
