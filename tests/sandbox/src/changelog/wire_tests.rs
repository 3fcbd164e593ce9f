//! The codes of windows that are not ready, on the wire.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use arrow_flight::error::FlightError;
use arrow_flight::flight_service_client::FlightServiceClient;
use arrow_flight::sql::client::FlightSqlServiceClient;
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Error, OptsBuilder};
use tonic::Code;
use tonic::transport::Endpoint;

use crate::engine::{IncrFailure, Profile};
use crate::sandbox::Sandbox;
use crate::testing::builder;

const SQL: &str = "SELECT * FROM d.c@incr('endTimestamp'='2020-01-01 00:00:00', 'incrementType'='DETAIL')";

async fn start(profile: Profile) -> Sandbox {
    let sandbox = builder().profile(profile).start().await.expect("sandbox");
    let properties = match profile {
        Profile::V5_0Changelog => "'changelog.enable'='true'",
        _ => "'binlog.enable'='true', 'binlog.format'='ROW'",
    };
    let sql =
        format!("CREATE TABLE d.c (id INT) UNIQUE KEY(id) DISTRIBUTED BY HASH(id) BUCKETS 1 PROPERTIES({properties})");
    sandbox.execute(&sql).await.expect("table");
    sandbox
}

#[tokio::test]
async fn a_window_that_is_not_ready_is_unavailable_with_its_code() {
    let s = start(Profile::V5_0Changelog).await;
    let address = s.addresses().fe_flight;
    let channel =
        Endpoint::from_shared(format!("http://{address}")).expect("endpoint").connect().await.expect("channel");
    let mut client = FlightSqlServiceClient::new_from_inner(FlightServiceClient::new(channel));
    client.handshake("root", "pw").await.expect("login");
    for (failure, code, name) in [
        (IncrFailure::WindowNotReady, "5100", "ERR_INCR_WINDOW_NOT_READY"),
        (IncrFailure::WaitTimeout, "5101", "ERR_INCR_VISIBLE_WAIT_TIMEOUT"),
    ] {
        s.engine().fail_incr(failure);
        let Err(FlightError::Tonic(status)) = client.execute(SQL.to_owned(), None).await else { panic!("{name}") };
        assert_eq!(status.code(), Code::Unavailable);
        assert_eq!(status.metadata().get("doris-error-code").expect("code"), code);
        assert_eq!(status.metadata().get("doris-error-name").expect("name"), name);
        assert!(status.message().contains("retryAfterMs="), "{}", status.message());
    }
    client.execute(SQL.to_owned(), None).await.expect("ready");
    let older = start(Profile::V5_0Binlog).await;
    let address = older.addresses().fe_flight;
    let channel =
        Endpoint::from_shared(format!("http://{address}")).expect("endpoint").connect().await.expect("channel");
    let mut client = FlightSqlServiceClient::new_from_inner(FlightServiceClient::new(channel));
    client.handshake("root", "pw").await.expect("login");
    older.engine().fail_incr(IncrFailure::WaitTimeout);
    let Err(FlightError::Tonic(status)) = client.execute(SQL.to_owned(), None).await else { panic!("refused") };
    assert_eq!(status.code(), Code::Internal);
    assert!(status.message().contains("timeout waiting previous transactions finish"), "{}", status.message());
}

#[tokio::test]
async fn a_window_that_is_not_ready_has_its_mysql_code() {
    let s = start(Profile::V5_0Changelog).await;
    let address = s.addresses().mysql;
    let options = OptsBuilder::default()
        .ip_or_hostname(address.ip().to_string())
        .tcp_port(address.port())
        .prefer_socket(false)
        .user(Some("root"))
        .pass(Some("pw"));
    let mut conn = Conn::new(options).await.expect("connection");
    for (failure, code) in [(IncrFailure::WindowNotReady, 5100), (IncrFailure::WaitTimeout, 5101)] {
        s.engine().fail_incr(failure);
        let Err(Error::Server(error)) = conn.query_drop(SQL).await else { panic!("refused") };
        assert_eq!((error.code, error.state.as_str()), (code, "HY000"));
        assert!(error.message.contains("requestedEndTimestampMs="), "{}", error.message);
    }
}
