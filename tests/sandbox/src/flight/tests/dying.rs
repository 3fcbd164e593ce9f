//! Faults of streams, tokens and answers.

use std::sync::Arc;

use super::*;
use crate::flight::FlightConfig;

async fn start() -> Sandbox {
    let flight = FlightConfig { result_sink_buffer_size_rows: 10, ..FlightConfig::default() };
    let s = builder().flight(flight).start().await.expect("sandbox");
    fill(&s, 35).await;
    s
}

const SQL: &str = "SELECT id FROM d.dup ORDER BY id";

/// Batches until the stream ends, and how it ends.
async fn read(s: &Sandbox, info: &FlightInfo) -> (usize, Option<FlightError>) {
    let mut be = client(s.addresses().be_flight).await;
    let mut stream = be.do_get(ticket(info, 0)).await.expect("stream");
    let mut batches = 0;
    loop {
        match stream.try_next().await {
            Ok(Some(_)) => batches += 1,
            Ok(None) => return (batches, None),
            Err(error) => return (batches, Some(error)),
        }
    }
}

#[tokio::test]
async fn a_stream_fails_after_so_many_batches() {
    let s = start().await;
    let mut fe = login(&s).await;
    for batches in [0, 2, 4] {
        let action = Action::FlightErrorAfterBatches { batches, message: "out of memory".into() };
        s.faults().push(Fault::new(action).at(Site::BeFlight).when("from d.dup"));
        let info = fe.execute(SQL.into(), None).await.expect("info");
        let (got, end) = read(&s, &info).await;
        let error = status(end.expect("an error"));
        assert_eq!((got, error.code(), error.message()), (batches, Code::Internal, "out of memory"));
    }
    let info = fe.execute(SQL.into(), None).await.expect("info");
    assert!(matches!(read(&s, &info).await, (4, None)), "the fault is used up");
}

#[tokio::test]
async fn a_connection_breaks_after_so_many_batches() {
    let s = start().await;
    let mut fe = login(&s).await;
    s.faults().push(Fault::new(Action::FlightCutAfterBatches(2)).at(Site::BeFlight).when("from d.dup"));
    let info = fe.execute(SQL.into(), None).await.expect("info");
    let (got, end) = read(&s, &info).await;
    let error = status(end.expect("an error"));
    assert_eq!(got, 2);
    assert!(matches!(error.code(), Code::Unknown | Code::Unavailable | Code::Internal | Code::Cancelled), "{error:?}");
    let info = fe.execute(SQL.into(), None).await.expect("other connections live");
    assert!(matches!(read(&s, &info).await, (4, None)));
}

#[tokio::test]
async fn a_token_is_gone_when_a_fault_says_so() {
    for profile in [Profile::V2_1, Profile::V5_0Changelog] {
        let s = builder().profile(profile).start().await.expect("sandbox");
        let mut fe = login(&s).await;
        fe.execute("SHOW DATABASES".into(), None).await.expect("info");
        s.faults().push(Fault::new(Action::TokenGone).at(Site::FeFlight).when("GetFlightInfo"));
        assert_eq!(refused(&mut fe, "SHOW DATABASES").await.code(), Code::Unauthenticated, "{profile}");
        assert_eq!((s.open_flight_tokens(), s.faults().armed()), (0, 0));
        let seen = s.requests().matching(Site::FeFlight, "SHOW DATABASES");
        assert_eq!(seen.last().expect("request").fault, Some("token_gone"));
        let mut again = login(&s).await;
        again.execute("SHOW DATABASES".into(), None).await.expect("a new token works");
    }
}

#[tokio::test]
async fn the_statement_runs_though_its_answer_is_lost() {
    let s = sandbox().await;
    let mut fe = login(&s).await;
    let sql = "INSERT INTO d.dup VALUES (1, 'a', 1)";
    s.faults().push(Fault::new(Action::DropAnswer).at(Site::FeFlight).when("insert"));
    assert!(fe.execute(sql.into(), None).await.is_err());
    assert_eq!(crate::testing::query(&s, "SELECT count(*) FROM d.dup").await, ["1"]);
}

#[tokio::test]
async fn a_call_waits_for_its_signal() {
    let s = Arc::new(sandbox().await);
    let signal = Arc::new(tokio::sync::Notify::new());
    s.faults().push(Fault::new(Action::Wait(Arc::clone(&signal))).at(Site::FeFlight).when("SHOW"));
    let mut fe = login(&s).await;
    let call = tokio::spawn(async move { fe.execute("SHOW DATABASES".into(), None).await.map(|_| ()) });
    while s.requests().matching(Site::FeFlight, "SHOW").is_empty() {
        tokio::task::yield_now().await;
    }
    assert!(!call.is_finished());
    signal.notify_one();
    call.await.expect("task").expect("info");
    let error = Action::Status { code: 14, body: "try later".into() };
    s.faults().push(Fault::new(error).at(Site::BeFlight).when("DoGet"));
    fill(&s, 1).await;
    let mut fe = login(&s).await;
    let info = fe.execute("SELECT id FROM d.dup".into(), None).await.expect("info");
    let mut be = client(s.addresses().be_flight).await;
    let refused = status(fetch(&mut be, ticket(&info, 0)).await.expect_err("refused"));
    assert_eq!((refused.code(), refused.message()), (Code::Unavailable, "try later"));
}
