use reqwest::Method;
use serde_json::{Value, json};

use crate::faults::{NodeId, Site};
use crate::sandbox::Sandbox;
use crate::testing::{builder, http, load};

async fn start() -> Sandbox {
    builder().frontends(2).backends(2).admin_port(0).start().await.expect("sandbox")
}

async fn admin(s: &Sandbox, method: Method, path: &str, body: Value) -> (u16, Value) {
    let url = format!("http://{}{path}", s.admin_address().expect("admin"));
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let answer = http().request(method, url).body(body).send().await.expect("answer");
    let status = answer.status().as_u16();
    let text = answer.text().await.expect("text");
    (status, serde_json::from_str(&text).unwrap_or_else(|_| text.trim_end().into()))
}

#[tokio::test]
async fn faults_are_armed_listed_and_cleared() {
    let s = start().await;
    let fault = json!({
        "site": "fe", "node": "fe1", "when": "/api/health", "times": 2,
        "action": {"type": "status", "code": 418, "body": "no"},
    });
    assert_eq!(admin(&s, Method::POST, "/faults", fault).await, (200, json!({"armed": 1})));
    for (node, expected) in [(0, 200), (1, 418), (1, 418), (1, 200)] {
        let answer = http().get(format!("http://{}/api/health", s.frontend(node).http())).send().await.expect("answer");
        assert_eq!(answer.status().as_u16(), expected);
    }
    let (_, listed) = admin(&s, Method::GET, "/faults", Value::Null).await;
    assert_eq!(listed["armed"], json!([]));
    assert_eq!(listed["applied"][1]["node"], "fe1");
    admin(&s, Method::POST, "/faults", json!({"action": {"type": "drop_answer"}, "times": "always"})).await;
    assert_eq!(s.faults().armed(), 1);
    admin(&s, Method::DELETE, "/faults", Value::Null).await;
    assert_eq!(s.faults().armed(), 0);
}

#[tokio::test]
async fn every_action_is_read() {
    let s = start().await;
    for action in [
        json!({"type": "status", "code": 500}),
        json!({"type": "drop_answer"}),
        json!({"type": "hold_answer", "done": "a", "release": "b"}),
        json!({"type": "cut_after_bytes", "bytes": 3}),
        json!({"type": "cut_answer_after_bytes", "bytes": 3}),
        json!({"type": "wait", "signal": "a"}),
        json!({"type": "delay", "ms": 5}),
        json!({"type": "redirect", "location": "http://x/"}),
        json!({"type": "publish_timeout"}),
        json!({"type": "hold_publish", "release": "a"}),
        json!({"type": "fail_commit", "message": "no"}),
        json!({"type": "flight_location", "location": "grpc+tcp://x:1"}),
        json!({"type": "flight_results", "statements": ["SELECT 1"]}),
        json!({"type": "flight_schema", "way": "failed", "message": "no"}),
        json!({"type": "token_gone"}),
        json!({"type": "require_bearer"}),
        json!({"type": "flight_schema_only"}),
        json!({"type": "flight_no_message"}),
        json!({"type": "other_bytes", "from": "ab", "to": [255, 65]}),
        json!({"type": "flight_cut_after_batches", "batches": 1}),
        json!({"type": "flight_error_after_batches", "batches": 1, "message": "no"}),
    ] {
        let name = action["type"].as_str().expect("name").to_owned();
        let (status, answer) = admin(&s, Method::POST, "/faults", json!({"action": action})).await;
        assert_eq!(status, 200, "{name}: {answer}");
        assert_eq!(s.faults().list()[0].action().name(), name);
        s.faults().clear();
    }
    for wrong in [
        json!({"action": {"type": "explode"}}),
        json!({"action": {"type": "drop_answer"}, "site": "web"}),
        json!({"action": {"type": "drop_answer"}, "node": "xx1"}),
        json!({"action": {"type": "drop_answer"}, "times": 0}),
        json!({"action": {"type": "drop_answer"}, "often": 1}),
        json!({}),
    ] {
        assert_eq!(admin(&s, Method::POST, "/faults", wrong.clone()).await.0, 400, "{wrong}");
    }
    assert_eq!(s.faults().armed(), 0);
}

#[tokio::test]
async fn requests_and_state_are_told() {
    let s = start().await;
    load(&s, "dup", &[("label", "held"), ("two_phase_commit", "true")], "1\ta\t1").await;
    let (_, seen) = admin(&s, Method::GET, "/requests?site=be&contains=_stream_load", Value::Null).await;
    let seen = seen.as_array().expect("list");
    assert_eq!(seen.len(), 1);
    assert_eq!((seen[0]["method"].as_str(), seen[0]["body_bytes"].as_u64()), (Some("PUT"), Some(5)));
    assert!(seen[0]["headers"].as_array().expect("headers").contains(&json!(["authorization", "Basic ***"])));
    let (_, state) = admin(&s, Method::GET, "/state", Value::Null).await;
    assert_eq!(state["running_transactions"], 1);
    assert_eq!(state["nodes"].as_array().expect("nodes").len(), 4);
    assert_eq!(state["nodes"][0]["master"], true);
    admin(&s, Method::DELETE, "/requests", Value::Null).await;
    assert!(s.requests().all().is_empty());
}

#[tokio::test]
async fn nodes_clocks_and_the_oracle_are_moved() {
    let s = start().await;
    let (_, stopped) = admin(&s, Method::POST, "/nodes/be/1/stop", Value::Null).await;
    assert_eq!(stopped, json!({"node": "be1", "state": "stopped", "alive": false}));
    let (_, again) = admin(&s, Method::POST, "/nodes/be/1/restart", Value::Null).await;
    assert_eq!(again["state"], "running");
    for (change, state) in [("pause", "paused"), ("resume", "running")] {
        let (_, changed) = admin(&s, Method::POST, &format!("/nodes/fe/1/{change}"), Value::Null).await;
        assert_eq!(changed["state"], state);
    }
    assert_eq!(admin(&s, Method::POST, "/nodes/be/7/stop", Value::Null).await.0, 404);
    assert_eq!(admin(&s, Method::POST, "/nodes/be/0/explode", Value::Null).await.0, 400);
    assert_eq!(admin(&s, Method::POST, "/master/1", Value::Null).await.1, json!({"master": 1}));
    assert_eq!(s.master(), 1);
    let before = s.engine().tso().physical_ms;
    admin(&s, Method::POST, "/clock", json!({"advance_ms": 3_600_000})).await;
    assert!(s.engine().tso().physical_ms >= before + 3_590_000);
    admin(&s, Method::POST, "/tso", json!({"step_back_ms": 7_200_000})).await;
    assert!(s.engine().tso().physical_ms < before);
    assert_eq!(admin(&s, Method::POST, "/clock", json!({"node": "be0"})).await.0, 400);
    assert_eq!(admin(&s, Method::POST, "/clock", json!({"node": "be0", "offset_ms": 5})).await.0, 200);
}

#[tokio::test]
async fn a_signal_lets_a_held_request_go_on() {
    let s = start().await;
    let wait = json!({"site": "fe", "action": {"type": "wait", "signal": "go"}});
    admin(&s, Method::POST, "/faults", wait).await;
    let held = tokio::spawn(http().get(format!("http://{}/api/health", s.frontend(0).http())).send());
    s.until(|s| s.open_http_requests() == 1 && s.faults().armed() == 0).await;
    assert!(!held.is_finished());
    admin(&s, Method::POST, "/signals/go", Value::Null).await;
    assert_eq!(held.await.expect("task").expect("answer").status(), 200);
    assert_eq!(s.requests().at_node(NodeId::Fe(0))[0].site, Site::Fe);
    assert_eq!(s.requests().at_node(NodeId::Fe(0))[0].fault, Some("wait"));
}

#[tokio::test]
async fn publishing_is_held_and_released() {
    let s = start().await;
    let held = load(&s, "dup", &[("label", "held"), ("two_phase_commit", "true")], "1\ta\t1").await;
    let id = &held["TxnId"];
    assert_eq!(admin(&s, Method::POST, "/publish", json!({"held": true, "txn_id": id})).await.0, 200);
    let commit = crate::testing::second_phase(&s, &[("label", "held"), ("txn_operation", "commit")]).await;
    assert_eq!(commit.0, "Success");
    let (_, state) = admin(&s, Method::GET, "/state", Value::Null).await;
    assert_eq!(state["unpublished_transactions"], json!([id]));
    let (_, released) = admin(&s, Method::POST, "/publish", json!({"held": false, "txn_id": id})).await;
    assert_eq!(released["unpublished_transactions"], json!([]));
    for (whose, status) in [
        (json!({"held": true, "db": "d", "table": "dup"}), 200),
        (json!({"held": false}), 200),
        (json!({"held": true, "db": "d", "table": "none"}), 400),
        (json!({"held": true, "db": "d"}), 400),
        (json!({"txn_id": 1}), 400),
    ] {
        assert_eq!(admin(&s, Method::POST, "/publish", whose.clone()).await.0, status, "{whose}");
    }
}
