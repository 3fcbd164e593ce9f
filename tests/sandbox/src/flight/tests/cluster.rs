//! Several nodes: where results are, and what a BE does with a ticket of another (D.3).

use super::*;
use crate::flight::FlightConfig;

async fn start(profile: Profile) -> Sandbox {
    let s = builder().profile(profile).backends(2).start().await.expect("sandbox");
    fill(&s, 4).await;
    s
}

const SQL: &str = "SELECT id FROM d.dup";

/// The backend that holds a result, by the port of its ticket.
fn holder(info: &FlightInfo) -> usize {
    let text = handle(&ticket(info, 0));
    let port: usize = text.split('&').nth(2).expect("port").parse().expect("number");
    port - 8060
}

async fn backend(s: &Sandbox, number: usize) -> Client {
    client(s.backend(number).addresses().be_flight).await
}

#[tokio::test]
async fn results_are_spread_over_the_backends() {
    let s = start(Profile::default()).await;
    let mut fe = login(&s).await;
    let mut holders = Vec::new();
    for _ in 0..4 {
        let info = fe.execute(SQL.into(), None).await.expect("info");
        let number = holder(&info);
        assert_eq!(locations(&info), [format!("grpc+tcp://{}", s.backend(number).addresses().be_flight)]);
        assert_eq!(ids(&fetch(&mut backend(&s, number).await, ticket(&info, 0)).await.expect("rows")), [0, 1, 2, 3]);
        holders.push(number);
    }
    holders.sort_unstable();
    assert_eq!(holders, [0, 0, 1, 1]);
    fe.execute("SET enable_parallel_result_sink = true".into(), None).await.expect("set");
    let info = fe.execute(SQL.into(), None).await.expect("info");
    let mut places = locations(&info);
    places.sort();
    places.dedup();
    assert_eq!((info.endpoint.len(), places.len()), (3, 2));
}

#[tokio::test]
async fn a_backend_pulls_what_another_one_holds() {
    let s = start(Profile::default()).await;
    let mut fe = login(&s).await;
    let info = fe.execute(SQL.into(), None).await.expect("info");
    let number = holder(&info);
    let (mut own, mut other) = (backend(&s, number).await, backend(&s, 1 - number).await);
    assert_eq!(ids(&fetch(&mut other, ticket(&info, 0)).await.expect("pulled")), [0, 1, 2, 3]);
    for be in [&mut own, &mut other] {
        let error = status(fetch(be, ticket(&info, 0)).await.expect_err("once only"));
        assert_eq!(error.code(), Code::Internal);
        assert!(error.message().contains("no result for this query, finst_id="), "{error}");
    }
}

#[tokio::test]
async fn an_empty_result_cannot_be_pulled_in_older_builds() {
    for profile in [Profile::V4_0, Profile::V5_0Changelog] {
        let s = start(profile).await;
        let mut fe = login(&s).await;
        let info = fe.execute("SELECT id FROM d.dup WHERE id < 0".into(), None).await.expect("info");
        let fetched = fetch(&mut backend(&s, 1 - holder(&info)).await, ticket(&info, 0)).await;
        match fetched {
            Ok(rows) => assert!(profile == Profile::V5_0Changelog && rows.is_empty()),
            Err(error) => {
                let error = status(error);
                assert_eq!((profile, error.code()), (Profile::V4_0, Code::InvalidArgument));
                assert!(
                    error.message().starts_with("ArrowFlightBatchReader received unexpected eos, packet_seq=0"),
                    "{error}"
                );
            }
        }
    }
}

#[tokio::test]
async fn a_comma_in_a_label_breaks_the_schema_of_a_pulled_result() {
    let s = start(Profile::default()).await;
    let mut fe = login(&s).await;
    for (pulled, fails) in [(false, false), (true, true)] {
        let info = fe.execute("SELECT id AS `a,b` FROM d.dup".into(), None).await.expect("info");
        let number = if pulled { 1 - holder(&info) } else { holder(&info) };
        let fetched = fetch(&mut backend(&s, number).await, ticket(&info, 0)).await;
        assert_eq!(fetched.is_err(), fails, "pulled: {pulled}");
    }
}

#[tokio::test]
async fn frozen_results_are_pulled_too() {
    let s = builder().backends(2).start().await.expect("sandbox");
    s.execute(
        "CREATE TABLE d.r (id INT) DUPLICATE KEY(id) DISTRIBUTED BY HASH(id) BUCKETS 1 \
         PROPERTIES (\"replication_num\" = \"1\", \"sandbox.replay\" = \"true\"); INSERT INTO d.r VALUES (1), (2)",
    )
    .await
    .expect("table");
    let mut fe = login(&s).await;
    for pulled in [false, true] {
        let info = fe.execute("SELECT id FROM d.r".into(), None).await.expect("info");
        let number = if pulled { 1 - holder(&info) } else { holder(&info) };
        assert_eq!(ids(&fetch(&mut backend(&s, number).await, ticket(&info, 0)).await.expect("rows")), [1, 2]);
    }
}

#[tokio::test]
async fn the_results_of_a_stopped_backend_are_lost() {
    let s = start(Profile::default()).await;
    let mut fe = login(&s).await;
    let info = fe.execute(SQL.into(), None).await.expect("info");
    let number = holder(&info);
    s.backend(number).stop().await;
    let error = status(fetch(&mut backend(&s, 1 - number).await, ticket(&info, 0)).await.expect_err("no owner"));
    assert_eq!(error.code(), Code::InvalidArgument);
    assert!(error.message().starts_with("ArrowFlightBatchReader error="), "{error}");
    s.backend(number).restart().await.expect("restart");
    let error = status(fetch(&mut backend(&s, number).await, ticket(&info, 0)).await.expect_err("forgotten"));
    assert!(error.message().contains("no result for this query"), "{error}");
}

#[tokio::test]
async fn a_proxy_before_all_backends_may_ask_any_of_them() {
    // The public address is that of the proxy; here it is one of the backends, which gets every ticket.
    let proxy = builder().backends(2).start().await.expect("sandbox").backend(1).addresses().be_flight.port();
    let flight =
        FlightConfig { public_host: Some("127.0.0.1".into()), public_port: Some(proxy), ..FlightConfig::default() };
    let s = builder().backends(2).flight(flight).start().await.expect("sandbox");
    fill(&s, 1).await;
    let mut fe = login(&s).await;
    for _ in 0..2 {
        let info = fe.execute(SQL.into(), None).await.expect("info");
        assert_eq!(locations(&info), [format!("grpc+tcp://127.0.0.1:{proxy}")]);
        assert_eq!(ids(&fetch(&mut backend(&s, 1).await, ticket(&info, 0)).await.expect("rows")), [0]);
    }
}

#[tokio::test]
async fn a_token_is_valid_on_the_fe_that_issued_it() {
    for profile in [Profile::V3_1, Profile::V5_0Changelog] {
        let s = builder().profile(profile).frontends(2).start().await.expect("sandbox");
        let mut fe = login(&s).await;
        fe.execute("SHOW DATABASES".into(), None).await.expect("info");
        let mut other = client(s.frontend(1).addresses().fe_flight).await;
        other.set_token(fe.token().expect("token").clone());
        assert_eq!(refused(&mut other, "SHOW DATABASES").await.code(), Code::Unauthenticated, "{profile}");
    }
}

#[tokio::test]
async fn a_service_that_is_switched_off_tells_no_port_and_listens_nowhere() {
    let flight = FlightConfig { switched_off: true, ..FlightConfig::default() };
    let s = builder().flight(flight).start().await.expect("sandbox");
    for statement in ["SHOW FRONTENDS", "SHOW BACKENDS"] {
        let outcomes = s.execute(statement).await.expect("shown");
        let Some(crate::Outcome::Rows { batches, .. }) = outcomes.first() else { panic!("no rows") };
        let column = batches[0].column_by_name("ArrowFlightSqlPort").expect("the column");
        assert_eq!(column.as_string::<i32>().value(0), "-1", "{statement}");
    }
    for address in [s.frontend(0).addresses().fe_flight, s.backend(0).addresses().be_flight] {
        assert!(tokio::net::TcpStream::connect(address).await.is_err(), "{address} is served");
    }
    s.backend(0).restart().await.expect("starts again");
}
