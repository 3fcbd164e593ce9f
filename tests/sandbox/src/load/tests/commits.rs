//! Where a load commits: the master, privileges, faults, time.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Notify;

use super::*;
use crate::TxnState;

/// A load of `dup` whose body is 12 bytes long, half of it sent.
async fn half_sent(s: &Sandbox, headers: &str) -> TcpStream {
    let auth = basic("root", "pw");
    let mut stream = TcpStream::connect(s.backend(0).addresses().be_http).await.expect("connect");
    let head = format!(
        "PUT /api/d/dup/_stream_load HTTP/1.1\r\nHost: be\r\nConnection: close\r\nAuthorization: {auth}\r\n{headers}\
         Content-Length: 12\r\n\r\n1\ta\t1\n"
    );
    stream.write_all(head.as_bytes()).await.expect("write");
    s.until(|s| s.running_transactions() == 1).await;
    stream
}

/// Sends the other half; the answer.
async fn rest(mut stream: TcpStream) -> Value {
    stream.write_all(b"2\tb\t2\n").await.expect("write");
    answer(stream).await
}

async fn answer(mut stream: TcpStream) -> Value {
    let mut text = String::new();
    stream.read_to_string(&mut text).await.expect("read");
    let (_, body) = text.split_once("\r\n\r\n").expect("head");
    serde_json::from_str(body).expect("json")
}

fn state(s: &Sandbox, label: &str) -> TxnState {
    s.engine().label_state("d", label).expect("state").state
}

async fn all_published(s: &Sandbox) {
    s.until(|s| s.engine().unpublished_transactions().is_empty()).await;
}

#[tokio::test]
async fn a_load_whose_master_stops_is_not_committed() {
    let s = builder().frontends(2).start().await.expect("sandbox");
    let stream = half_sent(&s, "label: orphan\r\ntimeout: 60\r\n").await;
    s.frontend(0).stop().await;
    let refused = rest(stream).await;
    assert_eq!(refused["Status"], "Fail");
    assert!(message(&refused).starts_with("[THRIFT_RPC_ERROR]failed to call frontend service"), "{refused}");
    assert_eq!(state(&s, "orphan"), TxnState::Prepare, "nobody could abort it");
    s.elect_master(1);
    let taken = load(&s, "dup", &[("label", "orphan")], "1\ta\t1").await;
    assert_eq!(
        (taken["Status"].as_str(), taken["ExistingJobStatus"].as_str()),
        (Some("Label Already Exists"), Some("RUNNING"))
    );
    s.advance_clock(Duration::from_secs(61));
    assert_eq!(state(&s, "orphan"), TxnState::Aborted);
    assert_eq!(query(&s, "SELECT count(*) FROM d.dup").await, ["0"]);
}

#[tokio::test]
async fn a_load_waits_for_a_master_that_is_paused() {
    let s = builder().frontends(2).start().await.expect("sandbox");
    let stream = half_sent(&s, "label: patient\r\n").await;
    s.frontend(0).pause().await;
    let waiting = tokio::spawn(rest(stream));
    // However long it is left alone, it does not end.
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
    assert!(!waiting.is_finished());
    assert_eq!(state(&s, "patient"), TxnState::Prepare);
    s.frontend(0).resume().await;
    assert_eq!(waiting.await.expect("task")["Status"], "Success");
    // What waits for a paused master fails when that one stops.
    let stream = half_sent(&s, "two_phase_commit: true\r\n").await;
    s.frontend(0).pause().await;
    let waiting = tokio::spawn(rest(stream));
    s.frontend(0).stop().await;
    let refused = waiting.await.expect("task");
    assert!(message(&refused).starts_with("[THRIFT_RPC_ERROR]"), "{refused}");
    let sql = r#"INSERT INTO d.dup SELECT * FROM http_stream("format"="csv")"#;
    let url = format!("http://{}/api/_http_stream", s.benodes());
    let text = send(Method::PUT, url, &[("sql", sql)], "1\ta\t1\n").await;
    assert!(text.contains("[THRIFT_RPC_ERROR]"), "{text}");
}

#[tokio::test]
async fn a_stalled_load_ends_at_its_timeout() {
    let s = sandbox().await;
    let stream = half_sent(&s, "label: stalled\r\ntimeout: 1\r\n").await;
    s.advance_clock(Duration::from_secs(2));
    let late = answer(stream).await;
    assert_eq!(late["Status"], "Fail");
    let id = &late["TxnId"];
    let expected = format!(
        "[ANALYSIS_ERROR]TStatus: errCode = 2, detailMessage = transaction [{id}] is already aborted. abort reason: timeout by txn manager"
    );
    assert_eq!(message(&late), expected);
    let again = load(&s, "dup", &[("label", "stalled")], "1\ta\t1").await;
    assert_eq!(again["Status"], "Success", "{again}");
}

#[tokio::test]
async fn a_second_phase_needs_the_privilege_to_load_into_the_table() {
    let s = sandbox().await;
    s.execute("CREATE USER reader IDENTIFIED BY 'r'; GRANT SELECT_PRIV ON d.dup TO reader").await.expect("user");
    let first = load(&s, "dup", &[("two_phase_commit", "true"), ("label", "held")], "1\ta\t1").await;
    let txn = first["TxnId"].to_string();
    let second = async |node: &str, header: (&str, &str), operation: &str| {
        let url = format!("http://{node}/api/d/_stream_load_2pc");
        let request = http().put(url).basic_auth("reader", Some("r")).header("txn_operation", operation);
        request.header(header.0, header.1).send().await.expect("answer")
    };
    let denied = "Access denied; you need (at least one of) the (LOAD) privilege(s) for this operation";
    for (header, operation) in [(("txn_id", txn.as_str()), "commit"), (("label", "held"), "abort")] {
        let answer = second(&s.benodes(), header, operation).await.json::<Value>().await.expect("json");
        assert_eq!((answer["status"].as_str(), answer["msg"].as_str()), (Some("NOT_AUTHORIZED"), Some(denied)));
    }
    assert_eq!(state(&s, "held"), TxnState::PreCommitted);
    // The FE only names the BE, which asks the same.
    let moved = second(&s.fenodes(), ("txn_id", &txn), "commit").await;
    assert!(moved.headers()["location"].to_str().expect("text").contains(&s.benodes()));
    s.execute("GRANT LOAD_PRIV ON d.dup TO reader").await.expect("grant");
    let answer = second(&s.benodes(), ("txn_id", &txn), "commit").await.json::<Value>().await.expect("json");
    assert_eq!(answer["status"], "Success", "{answer}");
}

#[tokio::test]
async fn a_publish_that_takes_too_long_answers_so_and_its_rows_come_later() {
    let s = sandbox().await;
    let (done, release) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let hold = Action::HoldAnswer { done: Arc::clone(&done), release: Arc::clone(&release) };
    s.faults().push(Fault::new(hold).at(Site::Be));
    s.faults().push(Fault::new(Action::PublishTimeout).at(Site::Be).when("_stream_load "));
    let url = format!("http://{}/api/d/dup/_stream_load", s.benodes());
    let held = tokio::spawn(async move { send(Method::PUT, url, &[("label", "slow")], "1\ta\t1").await });
    done.notified().await;
    assert_eq!(state(&s, "slow"), TxnState::Committed);
    assert_eq!(query(&s, "SELECT count(*) FROM d.dup").await, ["0"], "the client has no answer yet");
    release.notify_one();
    let text = held.await.expect("task");
    assert!(text.contains("\"Publish Timeout\""), "{text}");
    all_published(&s).await;
    assert_eq!(state(&s, "slow"), TxnState::Visible);
    assert_eq!(query(&s, "SELECT id FROM d.dup").await, ["1"]);
}

#[tokio::test]
async fn publishing_is_held_for_one_transaction() {
    let s = sandbox().await;
    let signal = Arc::new(Notify::new());
    s.faults().push(Fault::new(Action::HoldPublish(Arc::clone(&signal))).at(Site::Be).when("/dup/_stream_load "));
    let slow = load(&s, "dup", &[("label", "slow")], "1\ta\t1").await;
    assert_eq!(slow["Status"], "Publish Timeout", "{slow}");
    assert_eq!(s.requests().matching(Site::Be, "_stream_load")[0].fault, Some("hold_publish"));
    let other = load(&s, "uniq", &[], "1\ta\t1").await;
    assert_eq!(other["Status"], "Success", "{other}");
    // Versions of one table follow each other: the next one waits and is told nothing of it.
    let next = load(&s, "dup", &[("label", "next")], "2\tb\t2");
    let released = async {
        s.until(|s| state(s, "next") == TxnState::Committed).await;
        assert_eq!(query(&s, "SELECT count(*) FROM d.dup").await, ["0"]);
        signal.notify_one();
    };
    let (next, ()) = tokio::join!(next, released);
    assert_eq!(next["Status"], "Success", "{next}");
    assert_eq!(query(&s, "SELECT id FROM d.dup ORDER BY id").await, ["1", "2"]);
}

#[tokio::test]
async fn a_second_phase_answers_success_before_its_rows_are_visible() {
    let s = sandbox().await;
    let signal = Arc::new(Notify::new());
    s.faults().push(Fault::new(Action::HoldPublish(Arc::clone(&signal))).at(Site::Be).when("_stream_load"));
    load(&s, "dup", &[("label", "two"), ("two_phase_commit", "true")], "1\ta\t1").await;
    assert_eq!(s.faults().armed(), 1, "phase one publishes nothing");
    let missing = second_phase(&s, &[("label", "none"), ("txn_operation", "commit")]).await;
    assert_eq!((missing.0.as_str(), s.faults().armed()), ("ANALYSIS_ERROR", 1));
    let answer = second_phase(&s, &[("label", "two"), ("txn_operation", "commit")]).await;
    assert_eq!(answer.0, "Success");
    assert_eq!((state(&s, "two"), s.faults().armed()), (TxnState::Committed, 0));
    let again = second_phase(&s, &[("label", "two"), ("txn_operation", "commit")]).await;
    assert_eq!(again.0, "ANALYSIS_ERROR");
    signal.notify_one();
    all_published(&s).await;
    assert_eq!(query(&s, "SELECT id FROM d.dup").await, ["1"]);
}

#[tokio::test]
async fn the_label_is_looked_at_before_the_replicas() {
    let s = builder().backends(2).start().await.expect("sandbox");
    assert_eq!(load(&s, "dup", &[("label", "l")], "1\ta\t1").await["Status"], "Success");
    s.backend(1).stop().await;
    let again = load(&s, "dup", &[("label", "l")], "1\ta\t1").await;
    assert_eq!(again["Status"], "Label Already Exists", "{again}");
    let other = load(&s, "dup", &[("label", "m")], "1\ta\t1").await;
    assert!(message(&other).contains("alive replica num 0"), "{other}");
    assert_eq!(state(&s, "m"), TxnState::Aborted);
}

#[tokio::test]
async fn a_body_too_short_to_be_cut_is_answered() {
    let s = sandbox().await;
    s.faults().push(Fault::new(Action::CutAfterBytes(1000)).at(Site::Be).when("_stream_load"));
    assert_eq!(load(&s, "dup", &[], "1\ta\t1").await["Status"], "Success");
    assert_eq!((s.faults().armed(), s.requests().matching(Site::Be, "_stream_load")[0].status), (0, Some(200)));
}

#[tokio::test]
async fn text_behind_an_array_is_a_bad_row() {
    let s = sandbox().await;
    let array = [("format", "json"), ("strip_outer_array", "true")];
    let body = r#"[{"id":1},{"id":2}] [{"id":3}]"#;
    let refused = load(&s, "dup", &array, body).await;
    assert_eq!((refused["Status"].as_str(), counts(&refused)), (Some("Fail"), [3, 0, 1, 0]), "{refused}");
    let text = error_log(&refused).await;
    assert!(text.contains("there is text behind the document at byte 20. src line [[{\"id\":3}]]"), "{text}");
    let tolerant = load(&s, "dup", &[&array[..], &[("max_filter_ratio", "0.5")]].concat(), body).await;
    assert_eq!((tolerant["Status"].as_str(), counts(&tolerant)), (Some("Success"), [3, 2, 1, 0]), "{tolerant}");
}
