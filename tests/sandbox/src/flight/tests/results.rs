//! Where results wait, for whom and how long (D.3, D.6).

use std::sync::Arc;

use arrow::array::Int32Array;
use arrow::datatypes::{Field, Schema};
use datafusion::error::DataFusionError;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::engine::ManualClock;
use crate::faults::FlightSchemaFault;
use crate::flight::results::{Holder, Sink, Terms};
use crate::flight::{FlightConfig, FlightResults};
use crate::testing::query;

async fn start(profile: Profile, change: impl FnOnce(&mut FlightConfig)) -> Sandbox {
    let mut config = FlightConfig::default();
    change(&mut config);
    builder().profile(profile).flight(config).start().await.expect("sandbox")
}

fn ticket_of(handle: &str) -> Ticket {
    Ticket::new(TicketStatementQuery { statement_handle: handle.to_owned().into() }.as_any().encode_to_vec())
}

#[tokio::test]
async fn batches_are_as_large_as_the_server_is_told() {
    let s = start(Profile::default(), |c| c.result_sink_buffer_size_rows = 10).await;
    fill(&s, 25).await;
    let mut fe = login(&s).await;
    let info = fe.execute("SELECT id FROM d.dup ORDER BY id".into(), None).await.expect("info");
    let batches = rows(&s, &info).await;
    assert_eq!(batches.iter().map(RecordBatch::num_rows).collect::<Vec<_>>(), [10, 10, 5]);
}

#[tokio::test]
async fn a_batch_may_be_larger_than_a_client_takes() {
    let s = sandbox().await;
    s.execute("CREATE TABLE d.wide (id INT, s STRING) DUPLICATE KEY(id) DISTRIBUTED BY HASH(id) BUCKETS 2")
        .await
        .expect("table");
    let text = "x".repeat(1 << 20);
    let body: String = (0..20).map(|i| format!("{i},{text}\n")).collect();
    let answer = crate::testing::load(&s, "wide", &[("column_separator", ",")], body).await;
    assert_eq!(answer["Status"], "Success", "{answer}");
    let mut fe = login(&s).await;
    for (limit, fits) in [(16 << 20, false), (64 << 20, true)] {
        let info = fe.execute("SELECT s FROM d.wide".into(), None).await.expect("info");
        let be = raw_client(s.addresses().be_flight).await.max_decoding_message_size(limit);
        let mut be = FlightSqlServiceClient::new_from_inner(be);
        match fetch(&mut be, ticket(&info, 0)).await {
            Ok(batches) => assert_eq!((fits, batches.len(), batches[0].num_rows()), (true, 1, 20)),
            Err(error) => assert_eq!((fits, status(error).code()), (false, Code::OutOfRange)),
        }
    }
}

#[tokio::test]
async fn a_result_that_nobody_reads_is_cancelled() {
    let clock = Arc::new(ManualClock::new(1_800_000_000_000));
    let s = builder().clock(Arc::clone(&clock) as _).start().await.expect("sandbox");
    fill(&s, 2).await;
    let mut fe = login(&s).await;
    let sql = "SELECT /*+ SET_VAR(query_timeout=900) */ id FROM d.dup";
    let info = fe.execute(sql.into(), None).await.expect("info");
    clock.advance(905_000);
    let mut be = client(s.addresses().be_flight).await;
    assert_eq!(ids(&fetch(&mut be, ticket(&info, 0)).await.expect("in time")), [0, 1]);
    let info = fe.execute(sql.into(), None).await.expect("info");
    clock.advance(905_001);
    let late = status(fetch(&mut be, ticket(&info, 0)).await.expect_err("too late"));
    assert!(late.message().contains("no result for this query"), "{late}");
    tokio::time::timeout(std::time::Duration::from_secs(60), s.until(|s| s.unfetched_results() == 0))
        .await
        .expect("swept");
}

#[tokio::test]
async fn a_query_is_open_until_the_build_learns_of_its_end() {
    let open = "SELECT `SQL` FROM information_schema.active_queries WHERE `SQL` LIKE '%FROM d.dup%'";
    let sql = "SELECT id FROM d.dup";
    for (profile, after_read) in [(Profile::V4_0, 0), (Profile::V5_0Changelog, 1)] {
        let s = start(profile, |_| {}).await;
        fill(&s, 2).await;
        let mut fe = login(&s).await;
        let info = fe.execute(sql.into(), None).await.expect("info");
        assert_eq!(query(&s, open).await, [sql], "{profile}");
        assert_eq!(s.engine().active_queries()[0].user, "root");
        rows(&s, &info).await;
        assert_eq!(query(&s, open).await.len(), after_read, "{profile}: after the rows were read");
        fe.execute("SHOW DATABASES".into(), None).await.expect("info");
        assert!(query(&s, open).await.is_empty(), "{profile}: after the next command");
        fe.execute(sql.into(), None).await.expect("info");
        close_session(&s, &fe).await;
        s.engine().active_queries().iter().for_each(|q| assert_ne!(q.sql, sql, "{profile}: after CloseSession"));
    }
}

#[tokio::test]
async fn tickets_name_the_instance_the_backend_and_the_statement() {
    let sql = "SELECT id & 1 AS odd FROM d.dup";
    for profile in [Profile::V4_0, Profile::V5_0Binlog] {
        let s = start(profile, |_| {}).await;
        fill(&s, 1).await;
        let mut fe = login(&s).await;
        let info = fe.execute("SELECT id FROM d.dup".into(), None).await.expect("info");
        let text = handle(&ticket(&info, 0));
        let parts: Vec<&str> = text.split('&').collect();
        assert_eq!((parts.len(), parts[1], parts[2]), (4, "127.0.0.1", "8060"), "{text}");
        assert_eq!(parts[0].split('-').count(), 2, "{text}");
        assert_eq!(parts[3] == "SELECT id FROM d.dup", profile == Profile::V4_0, "{text}");
        // Before #58830 an ampersand in the statement broke the ticket.
        let info = fe.execute(sql.into(), None).await.expect("info");
        let mut be = client(s.addresses().be_flight).await;
        let fetched = fetch(&mut be, ticket(&info, 0)).await;
        if profile == Profile::V4_0 {
            let error = status(fetched.expect_err("malformed"));
            assert_eq!(error.code(), Code::InvalidArgument);
            assert!(
                error.message().starts_with("Malformed ticket: ") && error.message().ends_with(", size: 5"),
                "{error}"
            );
        } else {
            assert_eq!(fetched.expect("rows")[0].num_rows(), 1);
        }
    }
}

#[tokio::test]
async fn tickets_that_no_server_gave() {
    let s = sandbox().await;
    let mut be = client(s.addresses().be_flight).await;
    for (text, code, message) in [
        ("", Code::InvalidArgument, "Malformed ticket: , size: 1"),
        ("1-2:SELECT 1", Code::InvalidArgument, "Malformed ticket: 1-2:SELECT 1, size: 1"),
        ("a&b&1&c&d", Code::InvalidArgument, "Malformed ticket: a&b&1&c&d, size: 5"),
        ("12&127.0.0.1&8060&", Code::InvalidArgument, "Malformed ticket: {}, missing query id: {}12&127.0.0.1&8060&12"),
        ("1-2&127.0.0.1&x&", Code::InvalidArgument, "stoi"),
        (
            "1-2&127.0.0.1&8060&",
            Code::Internal,
            "ArrowFlightBatchLocalReader fetch arrow data failed, no result for this query, finst_id=1-2",
        ),
        (
            "1-2&127.0.0.1&9999&",
            Code::InvalidArgument,
            "ArrowFlightBatchReader error=Connection refused, error_text=[E111]Fail to connect, packet_seq=0, \
             result=127.0.0.1:9999, finistId=1-2",
        ),
    ] {
        let error = status(fetch(&mut be, ticket_of(text)).await.expect_err("refused"));
        assert_eq!((error.code(), error.message()), (code, message), "{text}");
    }
    let mut fe = login(&s).await;
    let token = fe.token().expect("token").clone();
    for (text, message) in [
        ("abc", "ArrayIndexOutOfBoundsException: Index 1 out of bounds for length 1".to_owned()),
        (
            &format!("{token}:1-2"),
            "get stream statement failed, null, NullPointerException: null, error code: null, error msg: ".to_owned(),
        ),
    ] {
        let error = status(fetch(&mut fe, ticket_of(text)).await.expect_err("refused"));
        assert_eq!((error.code(), error.message()), (Code::Internal, message.as_str()), "{text}");
    }
    let foreign = status(fetch(&mut fe, ticket_of("zzzz:1-2")).await.expect_err("refused"));
    assert_eq!(foreign.code(), Code::Unauthenticated);
    // A result of a BE cannot be had from the FE, nor the other way round.
    fill(&s, 1).await;
    let info = fe.execute("SELECT id FROM d.dup".into(), None).await.expect("info");
    let id = handle(&ticket(&info, 0)).split('&').next().expect("id").to_owned();
    assert!(fetch(&mut fe, ticket_of(&format!("{token}:{id}"))).await.is_err());
}

#[tokio::test]
async fn a_result_of_the_fe_is_given_to_any_token() {
    let s = sandbox().await;
    let mut first = login(&s).await;
    let info = first.execute("SHOW DATABASES".into(), None).await.expect("info");
    let mut second = login(&s).await;
    assert!(fetch(&mut second, ticket(&info, 0)).await.expect("rows")[0].num_rows() > 0);
    let mut anonymous = client(s.addresses().fe_flight).await;
    let info = first.execute("SHOW DATABASES".into(), None).await.expect("info");
    let error = status(fetch(&mut anonymous, ticket(&info, 0)).await.expect_err("no token"));
    assert_eq!(error.code(), Code::Unauthenticated);
}

#[tokio::test]
async fn locations_name_the_public_host() {
    let s = start(Profile::default(), |c| c.public_host = Some("proxy.example".into())).await;
    let mut fe = login(&s).await;
    let sql = "SELECT id FROM d.dup";
    let info = fe.execute(sql.into(), None).await.expect("info");
    assert_eq!(locations(&info), [format!("grpc+tcp://proxy.example:{}", s.addresses().be_flight.port())]);
    let info = fe.execute("SHOW DATABASES".into(), None).await.expect("info");
    assert_eq!(locations(&info), [format!("grpc+tcp://{}", s.addresses().fe_flight)], "the FE names itself");
    let s = start(Profile::default(), |c| {
        c.public_host = Some("::1".into());
        c.public_port = Some(443);
    })
    .await;
    let info = login(&s).await.execute(sql.into(), None).await.expect("info");
    assert_eq!(locations(&info), ["grpc+tcp://[::1]:443"]);
}

#[tokio::test]
async fn point_queries_have_no_endpoint() {
    let s = sandbox().await;
    s.execute(
        "CREATE TABLE d.p (a INT NOT NULL, b INT NOT NULL, c STRING) UNIQUE KEY(a, b) DISTRIBUTED BY HASH(a) BUCKETS 1 \
         PROPERTIES (\"replication_num\" = \"1\", \"enable_unique_key_merge_on_write\" = \"true\", \
         \"store_row_column\" = \"true\"); INSERT INTO d.p VALUES (1, 2, 'x'), (3, -4, 'y')",
    )
    .await
    .expect("table");
    let mut fe = login(&s).await;
    for sql in [
        "SELECT * FROM d.p WHERE a = 1 AND b = 2",
        "SELECT c FROM d.p t WHERE (-4 = t.b) AND t.a = 3",
        "SELECT a AS x FROM internal.d.p WHERE b = 2 AND `A` = 1",
    ] {
        let error = refused(&mut fe, sql).await;
        assert_eq!(error.code(), Code::Internal, "{sql}");
        let text = "fetch arrow flight schema failed, no FlightSqlEndpointsLocations";
        assert!(error.message().contains(text), "{sql}: {error}");
    }
    for sql in [
        "SELECT * FROM d.p WHERE a = 1",
        "SELECT * FROM d.p WHERE a = 1 AND b > 1",
        "SELECT * FROM d.p WHERE a = 1 OR b = 2",
        "SELECT * FROM d.p WHERE a = 1 AND b = 2 LIMIT 1",
        "SELECT count(*) FROM d.p WHERE a = 1 AND b = 2",
        "SELECT * FROM d.p WHERE a = 1 AND b = 2 AND c = 'x'",
        "SELECT /*+ SET_VAR(enable_short_circuit_query=false) */ * FROM d.p WHERE a = 1 AND b = 2",
        "SELECT * FROM d.uniq WHERE id = 1",
    ] {
        fe.execute(sql.into(), None).await.unwrap_or_else(|e| panic!("{sql}: {e}"));
    }
    fe.execute("SET enable_short_circuit_query = false".into(), None).await.expect("set");
    let info = fe.execute("SELECT a FROM d.p WHERE a = 1 AND b = 2".into(), None).await.expect("the way round it");
    assert_eq!(ids(&rows(&s, &info).await), [1]);
}

#[tokio::test]
async fn a_schema_that_does_not_come() {
    for (fault, text) in [
        (FlightSchemaFault::NoAnswer, "fetch arrow flight schema timeout, queryId: "),
        (FlightSchemaFault::Timeout, "arrow flight schema fetch timeout, queryId: "),
        (FlightSchemaFault::Failed("[INTERNAL_ERROR]gone".into()), "errmsg: [INTERNAL_ERROR]gone"),
        (FlightSchemaFault::Empty, "get empty arrow flight schema, queryId: "),
        (FlightSchemaFault::Null, "fetch arrow flight schema is null"),
    ] {
        for profile in [Profile::V3_1, Profile::V5_0Changelog] {
            let s = start(profile, |_| {}).await;
            s.faults().push(Fault::new(Action::FlightSchema(fault.clone())).at(Site::FeFlight).when("d.dup"));
            let mut fe = login(&s).await;
            let error = refused(&mut fe, "SELECT id FROM d.dup").await;
            assert_eq!(error.code(), Code::Internal);
            assert!(error.message().contains(text), "{error}");
            let twice =
                error.message().starts_with("get flight info statement failed, get flight info statement failed, ");
            assert_eq!(twice, profile == Profile::V3_1, "{error}");
            assert_eq!((s.unfetched_results(), s.engine().active_queries().len()), (0, 0));
            fe.execute("SELECT id FROM d.dup".into(), None).await.expect("once");
        }
    }
}

#[tokio::test]
async fn the_error_of_a_plan_ends_the_stream_or_in_old_builds_the_rows() {
    let schema = Arc::new(Schema::new(vec![Field::new("a", DataType::Int32, false)]));
    let batch = RecordBatch::try_new(Arc::clone(&schema), vec![Arc::new(Int32Array::from(vec![1]))]).expect("batch");
    for failing_is_empty in [false, true] {
        let results = FlightResults::default();
        let items = [Ok(batch.clone()), Err(DataFusionError::Execution("division".into()))];
        let stream = Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&schema), futures::stream::iter(items)));
        let terms = Terms { valid: CancellationToken::new(), until_ms: i64::MAX, _query: None };
        let id = results.register(stream, Holder::Be(0), terms);
        let pending = results.take(&id, 0).expect("pending");
        let data = pending.into_data(Sink { rows: 10, failing_is_empty });
        let outcome: Result<Vec<_>, Status> = data.try_collect().await;
        match outcome {
            Ok(messages) => assert_eq!((failing_is_empty, messages.len()), (true, 2)),
            Err(error) => {
                assert!(!failing_is_empty);
                assert!(error.message().starts_with("ArrowFlightBatchLocalReader fetch arrow data failed"), "{error}");
            }
        }
    }
}

#[tokio::test]
async fn endpoints_are_as_many_as_there_are_sinks() {
    let s = start(Profile::default(), |c| c.parallel_endpoints = 5).await;
    fill(&s, 3).await;
    let mut fe = login(&s).await;
    fe.execute("SET enable_parallel_result_sink = true".into(), None).await.expect("set");
    let info = fe.execute("SELECT id FROM d.dup".into(), None).await.expect("info");
    assert_eq!(info.endpoint.len(), 5, "more than rows: some are empty");
    assert_eq!(ids(&rows(&s, &info).await), [0, 1, 2]);
    let info = fe.execute("SHOW DATABASES".into(), None).await.expect("info");
    assert_eq!(info.endpoint.len(), 1, "the FE has one");
}

#[tokio::test]
async fn an_fe_that_answers_itself_gives_texts() {
    let s = start(Profile::default(), |c| c.answers_in_fe = true).await;
    fill(&s, 3).await;
    let mut fe = login(&s).await;
    for (sql, in_fe) in [
        ("SELECT 1 AS a, TRUE AS b", true),
        ("SELECT COUNT(*) AS c FROM d.dup", true),
        ("SELECT * FROM (SELECT id FROM d.dup) AS q LIMIT 0", true),
        ("SELECT id FROM d.dup WHERE FALSE", true),
        ("SELECT id FROM d.dup WHERE id < 0", false),
        ("SELECT id, COUNT(*) AS c FROM d.dup GROUP BY id", false),
    ] {
        let info = fe.execute(sql.into(), None).await.expect("info");
        let texts = info.clone().try_decode_schema().expect("schema");
        let texts = texts.fields().iter().all(|field| *field.data_type() == DataType::Utf8);
        assert_eq!(texts, in_fe, "{sql}");
        assert_eq!(locations(&info)[0].ends_with(&s.addresses().fe_flight.port().to_string()), in_fe, "{sql}");
    }
}

#[tokio::test]
async fn rows_may_travel_with_other_bytes() {
    let s = sandbox().await;
    s.execute("INSERT INTO d.dup VALUES (1, 'abcd', 1)").await.expect("insert");
    let other = Action::OtherBytes { from: b"abcd".to_vec(), to: b"wxyz".to_vec() };
    s.faults().push(Fault::new(other).at(Site::BeFlight).when("d.dup"));
    let mut fe = login(&s).await;
    let texts =
        |batches: Vec<RecordBatch>| arrow::util::pretty::pretty_format_batches(&batches).expect("text").to_string();
    for expected in ["wxyz", "abcd"] {
        let info = fe.execute("SELECT * FROM d.dup".into(), None).await.expect("info");
        let shown = texts(rows(&s, &info).await);
        assert!(shown.contains(expected), "{shown}");
    }
}
