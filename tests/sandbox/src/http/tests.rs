#![allow(clippy::unwrap_used, clippy::expect_used)]

use reqwest::Method;
use serde_json::{Value, json};

use crate::engine::Profile;
use crate::faults::{Action, Fault, NodeId, Site};
use crate::sandbox::Sandbox;
use crate::testing::{basic, builder, http, load, raw, sandbox, send_json};

fn fe(sandbox: &Sandbox, path: &str) -> String {
    format!("http://{}{path}", sandbox.fenodes())
}

async fn get(sandbox: &Sandbox, path: &str) -> Value {
    send_json(Method::GET, fe(sandbox, path), &[], "").await
}

async fn statement(sandbox: &Sandbox, db: &str, body: Value) -> Value {
    send_json(Method::POST, fe(sandbox, &format!("/api/query/default_cluster/{db}")), &[], body.to_string()).await
}

/// A load to the FE with these headers; the raw answer.
async fn fe_load(sandbox: &Sandbox, path: &str, headers: &str, body: &str) -> String {
    let request = format!("PUT {path} HTTP/1.1\r\nHost: fe\r\nConnection: close\r\n{headers}\r\n{body}");
    raw(sandbox.addresses().fe_http, &request).await
}

#[tokio::test]
async fn login_failures_are_status_200_with_code_401() {
    let s = sandbox().await;
    let answer = http().get(fe(&s, "/api/backends")).send().await.expect("answer");
    assert_eq!(answer.status(), 200);
    let body: Value = answer.json().await.expect("json");
    assert_eq!(body, json!({"msg": "Unauthorized", "code": 401, "data": "Need auth information.", "count": 0}));
    let answer = http().get(fe(&s, "/api/backends")).basic_auth("root", Some("no")).send().await.expect("answer");
    let body: Value = answer.json().await.expect("json");
    assert_eq!((body["code"].as_i64(), body["data"].as_str()), (Some(401), Some("Access denied for root@127.0.0.1")));
}

#[tokio::test]
async fn the_redirect_comes_before_the_body_and_without_a_continue() {
    let s = sandbox().await;
    let auth = basic("root", "pw");
    let headers = format!("Authorization: {auth}\r\nExpect: 100-continue\r\nContent-Length: 1000000\r\n");
    let answer = fe_load(&s, "/api/d/dup/_stream_load?x=1", &headers, "").await;
    assert!(answer.starts_with("HTTP/1.1 307"), "{answer}");
    let location = format!("location: http://root:pw@{}/api/d/dup/_stream_load?x=1\r\n", s.benodes());
    assert!(answer.contains(&location), "{answer}");
    assert!(answer.contains("content-type: text/html;charset=utf-8"), "{answer}");
}

#[tokio::test]
async fn a_client_that_sends_its_body_at_once_still_reads_the_redirect() {
    let s = sandbox().await;
    let auth = basic("root", "pw");
    let body = "x".repeat(4 << 20);
    let headers = format!("Authorization: {auth}\r\nExpect: 100-continue\r\nContent-Length: {}\r\n", body.len());
    let answer = fe_load(&s, "/api/d/dup/_stream_load", &headers, &body).await;
    assert!(answer.starts_with("HTTP/1.1 307"), "{answer}");
}

#[tokio::test]
async fn the_fe_refuses_loads_in_the_order_of_its_checks() {
    let s = sandbox().await;
    let auth = format!("Authorization: {}\r\n", basic("root", "pw"));
    for (headers, expected) in [
        (
            "group_commit: yes\r\n".to_owned(),
            json!({"status": "FAILED", "msg": "Header `group_commit` can only be `sync_mode`, `async_mode` or `off_mode`."}),
        ),
        ("token: t\r\n".to_owned(), json!({"status": "FAILED", "msg": "Invalid token: t"})),
        (String::new(), json!({"msg": "Unauthorized", "code": 401, "data": "Need auth information.", "count": 0})),
        (auth.clone(), json!({"status": "FAILED", "msg": "There is no 100-continue header"})),
        (
            format!("{auth}Expect: 100-continue\r\nredirect-policy: public\r\n"),
            json!({"status": "FAILED", "msg": "public endpoint is null, please check be public endpoint config"}),
        ),
    ] {
        let answer = fe_load(&s, "/api/d/dup/_stream_load", &format!("{headers}Content-Length: 0\r\n"), "").await;
        let (head, body) = answer.split_once("\r\n\r\n").expect("body");
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        assert_eq!(serde_json::from_str::<Value>(body).expect("json"), expected);
    }
}

#[tokio::test]
async fn the_second_phase_is_redirected_without_an_expectation() {
    let s = sandbox().await;
    let url = fe(&s, "/api/d/_stream_load_2pc");
    let refused = send_json(Method::PUT, url.clone(), &[], "").await;
    assert_eq!(refused, json!({"status": "FAILED", "msg": "No transaction id or label selected."}));
    let refused = send_json(Method::PUT, url.clone(), &[("txn_id", "1")], "").await;
    assert_eq!(refused["msg"], "No transaction operation('commit' or 'abort') selected.");
    let sent = http().put(url).basic_auth("root", Some("pw")).header("txn_id", "1").header("txn_operation", "abort");
    let answer = sent.send().await.expect("answer");
    assert_eq!(answer.status(), 307);
    let location = answer.headers()["location"].to_str().expect("text").to_owned();
    assert_eq!(location, format!("http://root:pw@{}/api/d/_stream_load_2pc", s.benodes()));
}

#[tokio::test]
async fn a_fault_can_send_the_redirect_elsewhere() {
    let s = sandbox().await;
    let elsewhere = "http://evil.example:1/".to_owned();
    s.faults().push(Fault::new(Action::Redirect(elsewhere.clone())).at(Site::Fe).when("_stream_load"));
    let headers = format!("Authorization: {}\r\nExpect: 100-continue\r\nContent-Length: 1\r\n", basic("root", "pw"));
    assert!(fe_load(&s, "/api/d/dup/_stream_load", &headers, "").await.contains(&format!("location: {elsewhere}")));
    assert!(!fe_load(&s, "/api/d/dup/_stream_load", &headers, "").await.contains(&elsewhere));
}

#[tokio::test]
async fn the_schema_names_primitive_types_and_decimal_digits_as_texts() {
    let s = sandbox().await;
    s.execute("CREATE TABLE d.s (k DATE COMMENT 'day', t DATETIME(3), a DECIMAL(10,2), j JSON, x ARRAY<INT>) DUPLICATE KEY(k) DISTRIBUTED BY HASH(k) BUCKETS 1").await.expect("table");
    let data = get(&s, "/api/d/s/_schema").await["data"].clone();
    assert_eq!((data["status"].as_i64(), data["keysType"].as_str()), (Some(200), Some("DUP_KEYS")));
    let types: Vec<&str> =
        data["properties"].as_array().expect("list").iter().map(|p| p["type"].as_str().expect("type")).collect();
    assert_eq!(types, ["DATEV2", "DATETIMEV2", "DECIMAL64", "JSONB", "ARRAY"]);
    assert_eq!(
        data["properties"][0],
        json!({
            "name": "k", "type": "DATEV2", "comment": "day", "aggregation_type": "", "column_uid": "0",
            "type_sql": "date", "type_desc": {"kind": "DATEV2", "sql": "date"}, "is_nullable": "Yes", "is_key": "Yes",
        })
    );
    assert_eq!(data["materialized_indexes"]["s"]["columns"][1]["type_desc"]["scale"], 3);
    assert_eq!(
        (data["properties"][2]["precision"].as_str(), data["properties"][2]["scale"].as_str()),
        (Some("10"), Some("2"))
    );
    assert_eq!(get(&s, "/api/internal/d/uniq/_schema").await["data"]["keysType"], "UNIQUE_KEYS");
    for path in ["/api/d/none/_schema", "/api/none/t/_schema"] {
        let refused = get(&s, path).await;
        assert_eq!((refused["code"].as_i64(), refused["msg"].as_str()), (Some(1), Some("Error")), "{refused}");
    }
}

#[tokio::test]
async fn older_builds_describe_columns_shortly() {
    let s = builder().profile(Profile::V3_1).start().await.expect("sandbox");
    let data = get(&s, "/api/d/dup/_schema").await["data"].clone();
    assert_eq!(data["tableType"], "Doris");
    assert_eq!(data["properties"][0], json!({"name": "id", "type": "INT", "comment": "", "aggregation_type": ""}));
}

#[tokio::test]
async fn a_login_for_statements_can_be_a_cookie() {
    let s = sandbox().await;
    let url = fe(&s, "/api/query/default_cluster/d");
    let body = json!({"stmt": "SELECT 1 AS x"}).to_string();
    let first = http().post(&url).basic_auth("root", Some("pw")).body(body.clone()).send().await.expect("answer");
    let cookie = first.headers()["set-cookie"].to_str().expect("text").to_owned();
    let pair = cookie.split(';').next().expect("pair").to_owned();
    let ask = |cookie: String| http().post(&url).header("cookie", cookie).body(body.clone()).send();
    let by_cookie: Value = ask(pair.clone()).await.expect("answer").json().await.expect("json");
    assert_eq!(by_cookie["data"]["data"], json!([[1]]), "{by_cookie}");
    let unknown: Value = ask("PALO_SESSION_ID=x".to_owned()).await.expect("answer").json().await.expect("json");
    assert_eq!((unknown["code"].as_i64(), unknown["data"].as_str()), (Some(401), Some("Cookie is invalid")));
    s.frontend(0).restart().await.expect("restart");
    let gone: Value = ask(pair).await.expect("answer").json().await.expect("json");
    assert_eq!(gone["code"], 401);
}

#[tokio::test]
async fn configurations_and_old_lists_of_nodes() {
    let s = sandbox().await;
    let names = get(&s, "/rest/v2/manager/node/configuration_name").await["data"].clone();
    assert!(names["frontend"].as_array().expect("list").contains(&json!("query_port")));
    assert!(names["backend"].as_array().expect("list").contains(&json!("streaming_load_max_mb")));
    let config = get(&s, "/rest/v2/manager/node/config").await;
    let port = s.addresses().mysql.port().to_string();
    assert!(config.as_array().expect("bare list").contains(&json!(["query_port", "int", "false", port, "false"])));
    let url = fe(&s, "/rest/v2/manager/node/configuration_info?type=fe");
    let info = send_json(Method::POST, url, &[], json!({"conf_name": ["query_port"]}).to_string()).await;
    assert_eq!(info["data"]["rows"], json!([["query_port", s.fenodes(), "FE", "int", "false", port, "false"]]));
    let url = fe(&s, "/rest/v2/manager/node/configuration_info?type=xx");
    assert_eq!(send_json(Method::POST, url, &[], "").await["code"], 403);
    let brokers = get(&s, "/rest/v2/manager/node/brokers").await["data"].clone();
    assert_eq!(brokers["rows"], json!([]));
    let old = get(&s, "/rest/v1/system?path=//backends").await["data"].clone();
    assert_eq!(old["rows"][0]["HttpPort"], s.addresses().be_http.port().to_string());
    let shown: Value = http()
        .get(format!("http://{}/api/show_config", s.benodes()))
        .send()
        .await
        .expect("answer")
        .json()
        .await
        .expect("json");
    assert_eq!(shown[0][0], "arrow_flight_result_sink_buffer_size_rows");
    assert_eq!(get(&s, "/rest/v2/manager/node/unknown").await["code"], 404);
}

#[tokio::test]
async fn query_plans_name_tablets_and_refuse_inside_a_successful_envelope() {
    let s = sandbox().await;
    let url = fe(&s, "/api/d/dup/_query_plan");
    let plan = |sql: &str| send_json(Method::POST, url.clone(), &[], json!({"sql": sql}).to_string());
    let data = plan("select id from `d`.`dup` where id > 1").await["data"].clone();
    assert_eq!((data["status"].as_i64(), data["partitions"].as_object().expect("map").len()), (Some(200), 2));
    assert!(data["opaqued_query_plan"].is_string());
    let refused = plan("select count(*) from d.dup").await;
    assert_eq!((refused["code"].as_i64(), refused["data"]["status"].as_i64()), (Some(0), Some(400)));
    let text = refused["data"]["exception"].as_str().expect("text");
    assert!(text.starts_with("only support single table filter-prune-scan, but found ["), "{text}");
    let empty = send_json(Method::POST, url, &[], "").await;
    assert_eq!(
        (empty["code"].as_i64(), empty["data"].as_str()),
        (Some(403), Some("POST body must contains [sql] root object"))
    );
}

#[tokio::test]
async fn nodes_are_listed() {
    let s = sandbox().await;
    let backends = get(&s, "/api/backends?is_alive=true").await["data"].clone();
    assert_eq!(
        backends,
        json!({"backends": [{"ip": "127.0.0.1", "http_port": s.addresses().be_http.port(), "is_alive": true}]})
    );
    let frontends = get(&s, "/rest/v2/manager/node/frontends").await["data"].clone();
    let names = frontends["columnNames"].as_array().expect("names");
    let at = names.iter().position(|n| n == "ArrowFlightSqlPort").expect("port column");
    assert_eq!(frontends["rows"][0][at], s.addresses().fe_flight.port().to_string());
    assert_eq!(get(&s, "/rest/v2/manager/node/node_list").await["data"]["backend"][0], s.benodes());
}

#[tokio::test]
async fn statements_answer_meta_and_data() {
    let s = sandbox().await;
    let shown = statement(&s, "information_schema", json!({"stmt": "show frontends"})).await;
    assert_eq!((shown["code"].as_i64(), shown["data"]["type"].as_str()), (Some(0), Some("result_set")), "{shown}");
    let meta = shown["data"]["meta"].as_array().expect("meta");
    let at = meta.iter().position(|m| m["name"] == "ArrowFlightSqlPort").expect("column");
    assert_eq!(shown["data"]["data"][0][at], s.addresses().fe_flight.port().to_string());
    let done =
        statement(&s, "d", json!({"stmt": "INSERT INTO dup VALUES (1, 'a\"b', 9007199254740993), (2, NULL, 2)"})).await;
    assert_eq!(done["data"]["type"], "exec_status", "{done}");
    let rows = statement(&s, "d", json!({"stmt": "SELECT id, v, n FROM dup ORDER BY id"})).await;
    assert_eq!(rows["data"]["data"], json!([[1, "a\"b", 9_007_199_254_740_993_i64], [2, null, 2]]), "{rows}");
    let limited = statement(&s, "d", json!({"stmt": "SELECT id FROM dup", "limit": 1})).await;
    assert_eq!(limited["data"]["data"].as_array().expect("rows").len(), 1);
}

#[tokio::test]
async fn statement_refusals() {
    let s = sandbox().await;
    let refused = statement(&s, "d", json!({"limit": 1})).await;
    assert_eq!(
        (refused["code"].as_i64(), refused["data"].as_str()),
        (Some(403), Some("Missing statement request body"))
    );
    let refused = statement(&s, "d", json!({"stmt": "SELECT 1", "is_sync": false})).await;
    assert_eq!(refused["data"], "Not support async query execution");
    let refused = statement(&s, "d", json!({"stmt": "SELECT * FROM none"})).await;
    assert_eq!(refused["code"], 1);
    assert!(
        refused["data"].as_str().expect("text").starts_with("Failed to execute sql: errCode = 2, detailMessage = "),
        "{refused}"
    );
}

#[tokio::test]
async fn the_tso_is_milliseconds_and_its_audience_depends_on_the_build() {
    let s = sandbox().await;
    let data = get(&s, "/api/tso").await["data"].clone();
    let physical = data["current_tso_physical_time"].as_i64().expect("ms");
    assert!(physical > 1_600_000_000_000, "{data}");
    assert_eq!(data["current_tso"].as_i64().expect("tso") >> 18, physical);
    let old = builder().profile(Profile::V4_0).start().await.expect("sandbox");
    assert_eq!(get(&old, "/api/tso").await["code"], 404);
    let binlog = builder().profile(Profile::V5_0Binlog).start().await.expect("sandbox");
    binlog.engine().set_user("reader", "r");
    let url = fe(&binlog, "/api/tso");
    let answer = http().get(url).basic_auth("reader", Some("r")).send().await.expect("answer");
    let refused: Value = answer.json().await.expect("json");
    assert_eq!(refused["code"], 403);
    assert!(get(&binlog, "/api/tso").await["data"]["current_tso"].is_i64());
}

#[tokio::test]
async fn load_states_by_label() {
    let s = sandbox().await;
    let refused = get(&s, "/api/d/get_load_state").await;
    assert_eq!((refused["code"].as_i64(), refused["data"].as_str()), (Some(403), Some("No label selected")));
    assert_eq!(get(&s, "/api/d/get_load_state?label=l").await["data"], "UNKNOWN");
    load(&s, "dup", &[("label", "l"), ("two_phase_commit", "true")], "1\ta\t1").await;
    assert_eq!(get(&s, "/api/d/get_load_state?label=l").await["data"], "PRECOMMITTED");
    assert_eq!(get(&s, "/api/none/get_load_state?label=l").await["code"], 1);
}

#[tokio::test]
async fn liveness_needs_no_login() {
    let s = sandbox().await;
    assert_eq!(http().get(fe(&s, "/")).send().await.expect("answer").status(), 200);
    let answer = http().get(fe(&s, "/api/bootstrap")).send().await.expect("answer");
    assert_eq!(answer.json::<Value>().await.expect("json")["data"]["startTime"], -1);
    let url = format!("http://{}/api/health", s.benodes());
    let answer = http().get(url).send().await.expect("answer");
    assert_eq!(answer.json::<Value>().await.expect("json"), json!({"status": "OK", "msg": "To Be Added"}));
}

#[tokio::test]
async fn what_is_not_served_says_so() {
    let s = sandbox().await;
    let refused = get(&s, "/api/_unknown").await;
    assert_eq!(
        (refused["code"].as_i64(), refused["data"].as_str()),
        (Some(404), Some("the sandbox does not implement GET /api/_unknown"))
    );
}

#[tokio::test]
async fn faults_answer_with_a_status_or_wait_for_a_signal() {
    let s = sandbox().await;
    let body = "busy".to_owned();
    s.faults().push(Fault::new(Action::Status { code: 503, body }).at(Site::Fe).when("/api/backends"));
    let answer = http().get(fe(&s, "/api/backends")).send().await.expect("answer");
    assert_eq!((answer.status().as_u16(), answer.text().await.expect("text")), (503, "busy".to_owned()));
    let signal = std::sync::Arc::new(tokio::sync::Notify::new());
    s.faults().push(Fault::new(Action::Wait(std::sync::Arc::clone(&signal))).at(Site::Fe));
    let held = tokio::spawn(http().get(fe(&s, "/api/health")).send());
    while s.faults().armed() > 0 {
        tokio::task::yield_now().await;
    }
    assert!(!held.is_finished());
    signal.notify_one();
    assert_eq!(held.await.expect("task").expect("answer").status(), 200);
}

#[tokio::test]
async fn an_answer_can_be_cut_within_its_body() {
    let s = sandbox().await;
    s.faults().push(Fault::new(Action::CutAnswerAfterBytes(10)).at(Site::Fe).when("/api/health"));
    let request = "GET /api/health HTTP/1.1\r\nHost: fe\r\nConnection: close\r\n\r\n";
    let answer = raw(s.addresses().fe_http, request).await;
    let (head, body) = answer.split_once("\r\n\r\n").expect("head");
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    assert_eq!(body, "{\"msg\":\"su");
    let whole = raw(s.addresses().fe_http, request).await;
    assert!(whole.ends_with('}'), "{whole}");
    let seen = s.requests().matching(Site::Fe, "/api/health");
    assert_eq!((seen[0].fault, seen[1].fault), (Some("cut_answer_after_bytes"), None));
}

#[tokio::test]
async fn requests_tell_their_node_size_and_answer() {
    let s = sandbox().await;
    load(&s, "dup", &[("label", "seen")], "1\ta\t1").await;
    s.faults().push(Fault::new(Action::Status { code: 500, body: String::new() }).at(Site::Be));
    http().get(format!("http://{}/api/health", s.benodes())).send().await.expect("answer");
    let seen = s.requests().at_node(NodeId::Be(0));
    assert_eq!((seen[0].body_bytes, seen[0].status, seen[0].fault), (5, Some(200), None));
    assert_eq!((seen[1].status, seen[1].fault), (Some(500), Some("status")));
    assert!(seen[0].order < seen[1].order);
}

#[tokio::test]
async fn a_dropped_sandbox_listens_no_more() {
    let s = sandbox().await;
    let addresses = s.addresses();
    let client = http();
    client.get(fe(&s, "/")).send().await.expect("answer");
    drop(s);
    for address in [addresses.fe_http, addresses.be_http, addresses.mysql, addresses.fe_flight, addresses.be_flight] {
        let mut refused = false;
        // The tasks end at their next turn.
        for _ in 0..1000 {
            refused = tokio::net::TcpStream::connect(address).await.is_err();
            if refused {
                break;
            }
            tokio::task::yield_now().await;
        }
        assert!(refused, "{address}");
    }
}

#[tokio::test]
async fn rest_calls_and_loads_need_privileges_on_the_table() {
    let s = sandbox().await;
    s.execute("CREATE USER reader IDENTIFIED BY 'r'").await.expect("user");
    let schema = async || {
        let url = format!("http://{}/api/d/dup/_schema", s.fenodes());
        let request = http().get(url).basic_auth("reader", Some("r"));
        request.send().await.expect("answer").json::<Value>().await.expect("json")
    };
    let load = async || {
        let url = format!("http://{}/api/d/dup/_stream_load", s.benodes());
        let request = http().put(url).basic_auth("reader", Some("r")).body("1\ta\t1\n");
        request.send().await.expect("answer").json::<Value>().await.expect("json")
    };
    let denied = |privilege: &str| {
        format!("Access denied; you need (at least one of) the ({privilege}) privilege(s) for this operation")
    };
    let answer = schema().await;
    assert_eq!((answer["code"].as_i64(), answer["data"].as_str()), (Some(401), Some(denied("SELECT").as_str())));
    let answer = load().await;
    assert_eq!(answer["Message"], format!("[NOT_AUTHORIZED]{}", denied("LOAD")));
    let url = format!("http://{}/api/d/dup/_stream_load", s.fenodes());
    let request = http().put(url).basic_auth("reader", Some("r")).header("expect", "100-continue");
    let answer = request.send().await.expect("answer").json::<Value>().await.expect("json");
    assert_eq!(answer, json!({"status": "FAILED", "msg": denied("LOAD")}));
    s.execute("GRANT SELECT_PRIV, LOAD_PRIV ON d.dup TO reader").await.expect("grant");
    assert_eq!(schema().await["code"], 0);
    assert_eq!(load().await["Status"], "Success");
}
