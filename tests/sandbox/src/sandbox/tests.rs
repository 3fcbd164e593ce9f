#![allow(clippy::unwrap_used, clippy::expect_used)]

mod tls;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use arrow_flight::sql::client::FlightSqlServiceClient;
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Opts, OptsBuilder};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tonic::transport::{Channel, Endpoint};

use super::*;
use crate::NodeState;
use crate::engine::ManualClock;
use crate::faults::{Action, Fault, Site};
use crate::testing::{basic, builder, http, query, raw, send_json};

async fn cluster(frontends: usize, backends: usize) -> Sandbox {
    builder().frontends(frontends).backends(backends).start().await.expect("sandbox")
}

async fn get(node: &NodeHandle, path: &str) -> Value {
    send_json(Method::GET, format!("http://{}{path}", node.http()), &[], "").await
}

async fn get_raw(address: SocketAddr, path: &str) -> String {
    let auth = basic("root", "pw");
    let request = format!("GET {path} HTTP/1.1\r\nHost: fe\r\nConnection: close\r\nAuthorization: {auth}\r\n\r\n");
    raw(address, &request).await
}

/// `Location` of a load that is sent to an FE, or the body of its refusal.
async fn redirect_of(node: &NodeHandle, headers: &str) -> Result<String, Value> {
    let auth = basic("root", "pw");
    let request = format!(
        "PUT /api/d/dup/_stream_load HTTP/1.1\r\nHost: fe\r\nConnection: close\r\nAuthorization: {auth}\r\n\
         Expect: 100-continue\r\n{headers}Content-Length: 0\r\n\r\n"
    );
    let answer = raw(node.addresses().fe_http, &request).await;
    let (head, body) = answer.split_once("\r\n\r\n").expect("head");
    match head.lines().find_map(|line| line.strip_prefix("location: ")) {
        Some(location) => Ok(location.to_owned()),
        None => Err(serde_json::from_str(body).expect("json")),
    }
}

async fn load_at(node: &NodeHandle, headers: &[(&str, &str)], body: &str) -> Value {
    let url = format!("http://{}/api/d/dup/_stream_load", node.http());
    send_json(Method::PUT, url, headers, body.to_owned()).await
}

async fn mysql(node: &NodeHandle) -> mysql_async::Result<Conn> {
    let address = node.addresses().mysql;
    let options = OptsBuilder::default()
        .ip_or_hostname(address.ip().to_string())
        .tcp_port(address.port())
        .prefer_socket(false)
        .user(Some("root"))
        .pass(Some("pw"));
    Conn::new(Opts::from(options)).await
}

async fn flight(node: &NodeHandle) -> FlightSqlServiceClient<Channel> {
    let endpoint = Endpoint::from_shared(format!("http://{}", node.addresses().fe_flight)).expect("endpoint");
    FlightSqlServiceClient::new(endpoint.connect().await.expect("connect"))
}

fn column(shown: &Value, name: &str) -> Vec<String> {
    let names = shown["data"]["columnNames"].as_array().expect("names");
    let at = names.iter().position(|n| n == name).expect("column");
    let rows = shown["data"]["rows"].as_array().expect("rows");
    rows.iter().map(|row| row[at].as_str().expect("text").to_owned()).collect()
}

#[tokio::test]
async fn all_nodes_are_listed_with_their_ports_and_state() {
    let s = cluster(2, 3).await;
    let fe = s.frontend(1);
    let shown = get(&fe, "/rest/v2/manager/node/frontends").await;
    let ports: Vec<String> = (0..2).map(|i| s.frontend(i).addresses().mysql.port().to_string()).collect();
    assert_eq!(column(&shown, "QueryPort"), ports);
    assert_eq!(column(&shown, "IsMaster"), ["true", "false"]);
    s.backend(1).stop().await;
    let shown = get(&fe, "/rest/v2/manager/node/backends").await;
    assert_eq!(column(&shown, "Alive"), ["true", "false", "true"]);
    let alive = get(&fe, "/api/backends?is_alive=true").await["data"]["backends"].clone();
    assert_eq!(alive.as_array().expect("list").len(), 2);
    let all = get(&fe, "/api/backends").await["data"]["backends"].clone();
    assert_eq!(all[1]["is_alive"], false);
    assert_eq!(get(&fe, "/api/health").await["data"], json!({"total_backend_num": 3, "online_backend_num": 2}));
    assert_eq!(get(&fe, "/rest/v2/manager/node/node_list").await["data"]["backend"].as_array().expect("list").len(), 3);
    assert_eq!(s.fenodes().split(',').count(), 2);
}

#[tokio::test]
async fn each_connection_is_told_which_frontend_it_has() {
    let s = cluster(2, 1).await;
    for i in 0..2 {
        let mut conn = mysql(&s.frontend(i)).await.expect("connection");
        let rows: Vec<mysql_async::Row> = conn.query("SHOW FRONTENDS").await.expect("rows");
        let connected: Vec<String> = rows.iter().map(|r| r.get("CurrentConnected").expect("text")).collect();
        assert_eq!(connected[i], "Yes");
        assert_eq!(connected[1 - i], "No");
    }
}

#[tokio::test]
async fn loads_are_sent_round_the_backends_that_are_alive() {
    let s = cluster(1, 3).await;
    let mut seen = Vec::new();
    for _ in 0..3 {
        seen.push(redirect_of(&s.frontend(0), "").await.expect("location"));
    }
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 3, "{seen:?}");
    let grouped = redirect_of(&s.frontend(0), "group_commit: sync_mode\r\n").await.expect("location");
    assert_eq!(redirect_of(&s.frontend(0), "group_commit: sync_mode\r\n").await, Ok(grouped));
    s.backend(0).stop().await;
    s.backend(2).stop().await;
    for _ in 0..2 {
        let location = redirect_of(&s.frontend(0), "").await.expect("location");
        assert!(location.contains(&s.backend(1).http()), "{location}");
    }
    s.backend(1).set_alive(false);
    let refused = redirect_of(&s.frontend(0), "").await.expect_err("no backend");
    assert_eq!(refused["status"], "FAILED");
    assert!(
        refused["msg"].as_str().expect("text").contains(
            "No backend available for load, please check the status of your backends., policy: computeNode=false"
        ),
        "{refused}"
    );
}

#[tokio::test]
async fn the_cluster_token_stands_for_a_login() {
    let s = cluster(1, 1).await;
    let token = format!("token: {}\r\n", s.cluster_token());
    let request = format!(
        "PUT /api/d/dup/_stream_load HTTP/1.1\r\nHost: fe\r\nConnection: close\r\n{token}Expect: 100-continue\r\n\
         Content-Length: 0\r\n\r\n"
    );
    let answer = raw(s.addresses().fe_http, &request).await;
    assert!(answer.contains(&format!("location: http://{}/api/d/dup/_stream_load\r\n", s.benodes())), "{answer}");
    let full = get(&s.frontend(0), &format!("/api/bootstrap?cluster_id=1&token={}", s.cluster_token())).await;
    assert_eq!(full["data"]["queryPort"], s.addresses().mysql.port());
    for (query, code, text) in [
        ("cluster_id=x&token=t", 403, "invalid cluster id format: x"),
        ("cluster_id=7&token=t", 1, "invalid cluster id: 7"),
        ("cluster_id=1&token=t", 1, "invalid token: t"),
    ] {
        let refused = get(&s.frontend(0), &format!("/api/bootstrap?{query}")).await;
        assert_eq!((refused["code"].as_i64(), refused["data"].as_str()), (Some(code), Some(text)));
    }
}

#[tokio::test]
async fn a_stopped_node_refuses_and_comes_back_on_its_port_with_its_data() {
    let s = cluster(1, 2).await;
    assert_eq!(load_at(&s.backend(0), &[], "1\ta\t1").await["Status"], "Success");
    let node = s.backend(0);
    node.stop().await;
    assert_eq!(node.state(), NodeState::Stopped);
    for address in [node.addresses().be_http, node.addresses().be_flight] {
        assert!(TcpStream::connect(address).await.is_err());
    }
    let error = s.execute("SELECT * FROM d.dup").await.expect_err("no replica");
    assert!(error.message.contains("has no queryable replicas. err: replica "), "{error}");
    assert!(error.message.ends_with("'s backend 10001 does not exist or not alive"), "{error}");
    let refused = load_at(&s.backend(1), &[], "2\tb\t2").await;
    assert!(refused["Message"].as_str().expect("text").contains("alive replica num 0 < load required"), "{refused}");
    node.restart().await.expect("restart");
    assert_eq!(load_at(&node, &[], "2\tb\t2").await["Status"], "Success");
    assert_eq!(query(&s, "SELECT count(*) FROM d.dup").await, ["2"]);
}

#[tokio::test]
async fn a_load_on_a_backend_that_stops_is_aborted() {
    let s = cluster(1, 1).await;
    let signal = Arc::new(tokio::sync::Notify::new());
    let address = s.addresses().be_http;
    let auth = basic("root", "pw");
    let head = format!(
        "PUT /api/d/dup/_stream_load HTTP/1.1\r\nHost: be\r\nAuthorization: {auth}\r\nlabel: cut\r\n\
         Content-Length: 100\r\n\r\n1\ta\t1\n"
    );
    let begun = Arc::clone(&signal);
    let client = tokio::spawn(async move {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let mut stream = TcpStream::connect(address).await.expect("connect");
        stream.write_all(head.as_bytes()).await.expect("write");
        begun.notify_one();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        answer
    });
    signal.notified().await;
    s.until(|s| s.running_transactions() == 1).await;
    s.backend(0).stop().await;
    assert_eq!(s.running_transactions(), 0, "what ran is over when the node has stopped");
    assert!(client.await.expect("task").is_empty());
    let state = get(&s.frontend(0), "/api/d/get_load_state?label=cut").await;
    assert_eq!(state["data"], "ABORTED");
}

#[tokio::test]
async fn a_paused_node_accepts_and_answers_when_it_goes_on() {
    let s = cluster(2, 1).await;
    s.frontend(1).pause().await;
    assert!(s.frontend(1).is_alive());
    let held = tokio::spawn(get_raw(s.frontend(1).addresses().fe_http, "/api/health"));
    let held_login = {
        let node = s.frontend(1);
        tokio::spawn(async move { mysql(&node).await.is_ok() })
    };
    s.until(|s| s.open_mysql_connections() == 1).await;
    // Another node answers meanwhile.
    assert_eq!(get(&s.frontend(0), "/api/health").await["code"], 0);
    assert!(!held.is_finished() && !held_login.is_finished());
    s.frontend(1).resume().await;
    assert!(held.await.expect("task").starts_with("HTTP/1.1 200"));
    assert!(held_login.await.expect("task"));
}

#[tokio::test]
async fn connections_and_tokens_of_a_frontend_end_with_it() {
    let s = cluster(2, 1).await;
    let mut conn = mysql(&s.frontend(0)).await.expect("connection");
    let mut client = flight(&s.frontend(0)).await;
    client.handshake("root", "pw").await.expect("login");
    let token = client.token().expect("token").clone();
    assert_eq!((s.frontend(0).open_flight_tokens(), s.frontend(1).open_flight_tokens()), (1, 0));
    // A token is good at the FE that issued it.
    let mut other = flight(&s.frontend(1)).await;
    other.set_token(token.clone());
    let refused = other.execute("SELECT 1".to_owned(), None).await.expect_err("foreign token");
    assert!(
        refused.to_string().contains("Unauthenticated") || refused.to_string().contains("bearer token"),
        "{refused}"
    );
    s.frontend(0).restart().await.expect("restart");
    assert!(conn.query_drop("SELECT 1").await.is_err());
    s.until(|s| s.open_mysql_connections() == 0).await;
    let mut again = flight(&s.frontend(0)).await;
    again.set_token(token);
    assert!(again.execute("SELECT 1".to_owned(), None).await.is_err());
    assert!(mysql(&s.frontend(0)).await.is_ok());
}

#[tokio::test]
async fn followers_forward_or_redirect_what_is_the_masters() {
    let s = cluster(2, 1).await;
    let follower = s.frontend(1);
    let tso = get(&follower, "/api/tso").await;
    assert_eq!(tso["master_fe_addr"], s.frontend(0).http());
    assert!(tso["data"]["current_tso"].is_i64(), "{tso}");
    assert_eq!(get(&s.frontend(0), "/api/tso").await.get("master_fe_addr"), None);
    assert_eq!(s.requests().at_node(NodeId::Fe(0)).len(), 2, "the master saw both");
    let answer = get_raw(follower.addresses().fe_http, "/api/d/get_load_state?label=l").await;
    assert!(answer.starts_with("HTTP/1.1 307"), "{answer}");
    let location = format!("location: http://root:pw@{}/api/d/get_load_state?label=l\r\n", s.frontend(0).http());
    assert!(answer.contains(&location), "{answer}");

    s.elect_master(1);
    assert_eq!(get(&follower, "/api/d/get_load_state?label=l").await["data"], "UNKNOWN");
    assert_eq!(column(&get(&follower, "/rest/v2/manager/node/frontends").await, "IsMaster"), ["false", "true"]);
    follower.stop().await;
    let refused = get(&s.frontend(0), "/api/tso").await;
    assert_eq!(refused["code"], 1);
    assert!(refused["data"].as_str().expect("text").starts_with("I/O error on GET request for \"http://"), "{refused}");
    let refused = load_at(&s.backend(0), &[], "1\ta\t1").await;
    assert!(refused["Message"].as_str().expect("text").starts_with("[THRIFT_RPC_ERROR]"), "{refused}");
    s.elect_master(0);
    assert_eq!(load_at(&s.backend(0), &[], "1\ta\t1").await["Status"], "Success");
}

#[tokio::test]
async fn a_paused_master_holds_what_is_forwarded_to_it() {
    let s = cluster(3, 1).await;
    s.frontend(0).pause().await;
    let held = tokio::spawn(get_raw(s.frontend(1).addresses().fe_http, "/api/tso"));
    s.until(|s| s.open_http_requests() == 1).await;
    assert!(!held.is_finished());
    s.elect_master(2);
    assert!(held.await.expect("task").contains(&format!("\"master_fe_addr\":\"{}\"", s.frontend(2).http())));
}

#[tokio::test]
async fn the_timestamp_oracle_outlives_its_master_and_goes_back_by_fault_only() {
    let clock = Arc::new(ManualClock::new(1_700_000_000_000));
    let s = builder().frontends(2).clock(clock).start().await.expect("sandbox");
    s.frontend(1).set_clock_offset_ms(-60_000);
    let before = s.engine().tso().current_tso;
    s.elect_master(1);
    assert!(s.engine().tso().current_tso >= before);
    s.execute("INSERT INTO d.dup VALUES (1, 'a', 1)").await.expect("insert");
    assert!(s.engine().tso().current_tso > before);
    s.frontend(1).set_clock_offset_ms(5_000);
    assert_eq!(s.engine().tso().physical_ms, 1_700_000_005_000);
    s.tso_step_back(10_000);
    assert_eq!(s.engine().tso().physical_ms, 1_699_999_995_000);
}

#[tokio::test]
async fn moved_time_ends_what_is_overdue() {
    let s = builder().precommit_timeout(Duration::from_secs(60)).start().await.expect("sandbox");
    load_at(&s.backend(0), &[("two_phase_commit", "true"), ("label", "late")], "1\ta\t1").await;
    assert_eq!(s.running_transactions(), 1);
    s.advance_clock(Duration::from_secs(61));
    assert_eq!(s.running_transactions(), 0);
}

#[tokio::test]
async fn a_fault_can_be_of_one_node() {
    let s = cluster(2, 1).await;
    let busy = Action::Status { code: 503, body: "busy".to_owned() };
    s.faults().push(Fault::new(busy).node(NodeId::Fe(1)).at(Site::Fe).when("/api/health"));
    assert_eq!(get(&s.frontend(0), "/api/health").await["code"], 0);
    let answer = http().get(format!("http://{}/api/health", s.frontend(1).http())).send().await.expect("answer");
    assert_eq!(answer.status(), 503);
    assert_eq!(s.faults().applied()[0].node, NodeId::Fe(1));
}

#[tokio::test]
async fn a_cluster_needs_both_kinds_of_nodes() {
    assert!(matches!(Sandbox::builder().backends(0).start().await, Err(StartError::NoNode)));
}
