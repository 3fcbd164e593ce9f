#![allow(clippy::unwrap_used, clippy::expect_used)]

mod commits;
mod formats;
mod group;
mod http_stream;
mod mapping;
mod models;

use std::io::Write as _;
use std::sync::Arc;

use arrow::array::{Int32Array, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema};
use arrow::ipc::writer::StreamWriter;
use flate2::Compression;
use flate2::write::GzEncoder;
use reqwest::Method;
use serde_json::Value;

use crate::engine::Profile;
use crate::faults::{Action, Fault, Site};
use crate::sandbox::Sandbox;
use crate::testing::{basic, builder, http, load, query, raw, sandbox, second_phase, send};

fn message(answer: &Value) -> &str {
    answer["Message"].as_str().expect("message")
}

fn counts(answer: &Value) -> [u64; 4] {
    ["NumberTotalRows", "NumberLoadedRows", "NumberFilteredRows", "NumberUnselectedRows"]
        .map(|key| answer[key].as_u64().expect("count"))
}

async fn error_log(answer: &Value) -> String {
    let url = answer["ErrorURL"].as_str().expect("url");
    http().get(url).send().await.expect("answer").text().await.expect("text")
}

const CSV: (&str, &str) = ("column_separator", ",");

#[tokio::test]
async fn csv_rows_are_loaded_and_counted() {
    let s = sandbox().await;
    let answer = load(&s, "dup", &[CSV, ("label", "l1"), ("comment", "hello")], "1,a,10\n2,\\N,20\n\n3,,30").await;
    assert_eq!((answer["Status"].as_str(), message(&answer)), (Some("Success"), "OK"), "{answer}");
    assert_eq!(counts(&answer), [3, 3, 0, 0]);
    assert_eq!((answer["Label"].as_str(), answer["Comment"].as_str()), (Some("l1"), Some("hello")));
    assert!(answer["TxnId"].as_i64().expect("id") > 0);
    assert_eq!(answer["LoadBytes"], 21);
    assert_eq!(query(&s, "SELECT * FROM d.dup ORDER BY id").await, ["1|a|10", "2|NULL|20", "3||30"]);
}

#[tokio::test]
async fn the_reply_has_the_keys_in_order_and_ends_with_a_line_feed() {
    let s = sandbox().await;
    let url = format!("http://{}/api/d/dup/_stream_load", s.benodes());
    let text = send(Method::PUT, url, &[CSV], "1,a,10").await;
    assert!(text.starts_with("{\n    \"TxnId\": ") && text.ends_with("\n}\n"), "{text}");
    let keys: Vec<&str> = text.lines().filter_map(|l| l.trim().strip_prefix('"')?.split('"').next()).collect();
    assert_eq!(
        keys,
        [
            "TxnId",
            "Label",
            "Comment",
            "TwoPhaseCommit",
            "Status",
            "Message",
            "NumberTotalRows",
            "NumberLoadedRows",
            "NumberFilteredRows",
            "NumberUnselectedRows",
            "LoadBytes",
            "LoadTimeMs",
            "BeginTxnTimeMs",
            "StreamLoadPutTimeMs",
            "ReadDataTimeMs",
            "WriteDataTimeMs",
            "ReceiveDataTimeMs",
            "CommitAndPublishTimeMs",
        ]
    );
}

#[tokio::test]
async fn old_builds_reply_without_the_newer_keys() {
    let s = builder().profile(Profile::V2_1).start().await.expect("sandbox");
    let answer = load(&s, "dup", &[CSV], "x,a,\\N").await;
    for key in ["Comment", "ReceiveDataTimeMs", "FirstErrorMsg"] {
        assert!(answer.get(key).is_none(), "{key}");
    }
    assert!(answer.get("ErrorURL").is_some());
}

#[tokio::test]
async fn refusals_before_the_transaction_have_no_id() {
    let s = sandbox().await;
    let be = s.addresses().be_http;
    let auth = basic("root", "pw");
    let wrong = basic("root", "no");
    for (headers, expected) in [
        ("Content-Length: 0\r\n".to_owned(), "[NOT_AUTHORIZED]no valid Basic authorization".to_owned()),
        (
            format!("Authorization: {auth}\r\n"),
            "[INVALID_ARGUMENT]content_length is empty and transfer-encoding!=chunked, please set content_length or transfer-encoding=chunked".to_owned(),
        ),
        (
            format!("Authorization: {auth}\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n"),
            "[INVALID_ARGUMENT]please do not set both content_length and transfer-encoding".to_owned(),
        ),
        (
            format!("Authorization: {auth}\r\nContent-Length: abc\r\n"),
            "[INVALID_ARGUMENT]invalid HTTP header CONTENT_LENGTH=abc: stol".to_owned(),
        ),
        (
            format!("Authorization: {auth}\r\nContent-Length: 99999999999\r\n"),
            "[EXCEEDED_LIMIT]body size 99999999999 exceed BE's conf `streaming_load_max_mb` 10737418240. increase it if you are sure this load is reasonable".to_owned(),
        ),
        (
            format!("Authorization: {auth}\r\nContent-Length: 0\r\nformat: xml\r\n"),
            "[DATA_FILE_TYPE_ERROR]unknown data format, format=xml".to_owned(),
        ),
        (
            format!("Authorization: {wrong}\r\nContent-Length: 0\r\n"),
            "[NOT_AUTHORIZED]TStatus: errCode = 2, detailMessage = Access denied for user 'root@127.0.0.1' (using password: YES)".to_owned(),
        ),
    ] {
        let request = format!("PUT /api/d/dup/_stream_load HTTP/1.1\r\nHost: be\r\nConnection: close\r\n{headers}\r\n");
        let answer = raw(be, &request).await;
        let (head, body) = answer.split_once("\r\n\r\n").expect("body");
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        let body: Value = serde_json::from_str(body).expect("json");
        assert_eq!(message(&body), expected);
        assert_eq!((body["Status"].as_str(), body["TxnId"].as_i64()), (Some("Fail"), Some(-1)));
    }
    assert_eq!(s.running_transactions(), 0);
}

#[tokio::test]
async fn a_waiting_client_gets_its_refusal_without_a_continue() {
    let s = sandbox().await;
    let request = format!(
        "PUT /api/d/dup/_stream_load HTTP/1.1\r\nHost: be\r\nAuthorization: {}\r\nExpect: 100-continue\r\nContent-Length: 100\r\nstrict_mode: maybe\r\n\r\n",
        basic("root", "pw")
    );
    let answer = raw(s.addresses().be_http, &request).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(answer.contains("Invalid strict mode format. Must be bool type"), "{answer}");
    assert_eq!(s.running_transactions(), 0);
}

#[tokio::test]
async fn refusals_of_the_plan_carry_the_id_of_an_aborted_transaction() {
    let s = sandbox().await;
    let answer = load(&s, "dup", &[("label", "again"), ("merge_type", "UPSERT")], "1").await;
    assert_eq!(message(&answer), "[INVALID_ARGUMENT]Invalid merge type UPSERT");
    assert!(answer["TxnId"].as_i64().expect("id") > 0);
    let answer = load(&s, "dup", &[CSV, ("label", "again")], "1,a,1").await;
    assert_eq!(answer["Status"], "Success", "the label is free again: {answer}");
}

#[tokio::test]
async fn a_used_label_is_refused_with_the_old_transaction_in_the_text() {
    let s = sandbox().await;
    let first = load(&s, "dup", &[CSV, ("label", "twice")], "1,a,1").await;
    let again = load(&s, "dup", &[CSV, ("label", "twice")], "1,a,1").await;
    assert_eq!(again["Status"], "Label Already Exists");
    assert_eq!((again["ExistingJobStatus"].as_str(), again["TxnId"].as_i64()), (Some("FINISHED"), Some(-1)));
    let expected = format!("Label [twice] has already been used, relate to txn [{}]", first["TxnId"]);
    assert!(message(&again).starts_with("[LABEL_ALREADY_EXISTS]") && message(&again).contains(&expected), "{again}");
    assert_eq!(query(&s, "SELECT count(*) FROM d.dup").await, ["1"]);
}

#[tokio::test]
async fn too_many_filtered_rows_fail_the_load_and_leave_a_log() {
    let s = sandbox().await;
    let body = "1,a,1\n2,b\n3,toolong,3\n4,d,\\N\n";
    let answer = load(&s, "dup", &[CSV, ("max_filter_ratio", "0.5"), ("label", "r")], body).await;
    assert_eq!(message(&answer), "[DATA_QUALITY_ERROR]too many filtered rows");
    assert_eq!(counts(&answer), [4, 0, 3, 0]);
    let log = error_log(&answer).await;
    let lines: Vec<&str> = log.lines().collect();
    assert_eq!(lines.len(), 3, "{log}");
    assert!(lines[0].contains("actual column number in csv file is  less than  schema column number.actual number: 2, schema column number: 3"), "{log}");
    assert!(lines[0].contains("src line [2,b]"), "{log}");
    assert!(lines[1].contains("column_name[v], the length of input is too long than schema"), "{log}");
    assert!(lines[2].contains("column_name[n], null value for not null column, type=BIGINT"), "{log}");
    assert_eq!(answer["FirstErrorMsg"].as_str(), Some(lines[0]));
    assert_eq!(query(&s, "SELECT count(*) FROM d.dup").await, ["0"]);

    // Exactly the ratio is not more than the ratio.
    let answer = load(&s, "dup", &[CSV, ("max_filter_ratio", "0.75"), ("label", "r")], body).await;
    assert_eq!((answer["Status"].as_str(), counts(&answer)), (Some("Success"), [4, 1, 3, 0]));
    assert!(answer.get("ErrorURL").is_some());
    assert_eq!(query(&s, "SELECT * FROM d.dup").await, ["1|a|1"]);
}

#[tokio::test]
async fn strict_mode_filters_what_otherwise_becomes_null() {
    let s = sandbox().await;
    let answer = load(&s, "dup", &[CSV], "x,a,1\n").await;
    assert_eq!(answer["Status"], "Success");
    assert_eq!(query(&s, "SELECT * FROM d.dup").await, ["NULL|a|1"]);
    let answer = load(&s, "dup", &[CSV, ("strict_mode", "true")], "y,b,1\n").await;
    assert_eq!(message(&answer), "[DATA_QUALITY_ERROR]too many filtered rows");
}

#[tokio::test]
async fn an_unknown_error_log_is_not_found() {
    let s = sandbox().await;
    let url = format!("http://{}/api/_load_error_log?file=nothing", s.benodes());
    assert_eq!(http().get(url).send().await.expect("answer").status(), 404);
}

#[tokio::test]
async fn json_lines_keep_big_numbers_and_fill_defaults() {
    let s = sandbox().await;
    s.execute(
        "CREATE TABLE d.big (b BIGINT, l LARGEINT, d DECIMAL(38,10)) DUPLICATE KEY(b) DISTRIBUTED BY HASH(b) BUCKETS 1",
    )
    .await
    .expect("table");
    let body = r#"{"b":9007199254740993,"l":-170141183460469231731687303715884105728,"d":9999999999999999999999999999.9999999999}"#;
    let answer = load(&s, "big", &[("format", "json")], body).await;
    assert_eq!(answer["Status"], "Success", "{answer}");
    assert_eq!(
        query(&s, "SELECT * FROM d.big").await,
        ["9007199254740993|-170141183460469231731687303715884105728|9999999999999999999999999999.9999999999"]
    );
    let answer =
        load(&s, "dup", &[("format", "json")], "{\"v\":\"a\\tb\",\"id\":1}\n{\"id\":\"2\",\"n\":null}\n").await;
    assert_eq!(counts(&answer), [2, 0, 1, 0], "a NULL for a NOT NULL column is filtered: {answer}");
    let answer = load(&s, "dup", &[("format", "json")], "{\"v\":\"a\\tb\",\"id\":1,\"unknown\":[1]}").await;
    assert_eq!(answer["Status"], "Success", "{answer}");
    assert_eq!(query(&s, "SELECT * FROM d.dup").await, ["1|a\tb|7"]);
}

#[tokio::test]
async fn json_arrays_need_strip_outer_array() {
    let s = sandbox().await;
    let body = r#"[{"id":1,"v":"a","n":1},{"id":2,"v":"b","n":2}]"#;
    let answer = load(&s, "dup", &[("format", "json")], body).await;
    assert_eq!(answer["Status"], "Fail");
    let answer = load(&s, "dup", &[("format", "json"), ("strip_outer_array", "true")], body).await;
    assert_eq!((answer["Status"].as_str(), counts(&answer)), (Some("Success"), [2, 2, 0, 0]), "{answer}");
    let answer = load(&s, "dup", &[("format", "json"), ("strip_outer_array", "true")], r#"{"id":1}"#).await;
    assert!(answer["FirstErrorMsg"].as_str().expect("text").contains("not an array-object"), "{answer}");
}

fn gzip(text: &str) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(text.as_bytes()).expect("gzip");
    encoder.finish().expect("gzip")
}

#[tokio::test]
async fn gzip_bodies_are_read_and_broken_ones_fail() {
    let s = sandbox().await;
    let whole = gzip("1,a,1\n2,b,2\n");
    let answer = load(&s, "dup", &[CSV, ("compress_type", "gz"), ("content-encoding", "gzip")], whole.clone()).await;
    assert_eq!((answer["Status"].as_str(), counts(&answer)), (Some("Success"), [2, 2, 0, 0]), "{answer}");
    let answer = load(&s, "dup", &[CSV, ("compress_type", "gz")], whole[..whole.len() - 4].to_vec()).await;
    assert!(message(&answer).starts_with("[INTERNAL_ERROR]failed to read the body"), "{answer}");
    let probe = [CSV, ("compress_type", "gz"), ("two_phase_commit", "true"), ("content-length", "0")];
    let answer = load(&s, "dup", &probe, "").await;
    assert_eq!(answer["Status"], "Success", "a probe has no body at all: {answer}");
}

#[tokio::test]
async fn arrow_streams_are_matched_by_name() {
    let s = sandbox().await;
    let schema = Arc::new(Schema::new(vec![
        Field::new("n", DataType::Int64, true),
        Field::new("v", DataType::Utf8, true),
        Field::new("id", DataType::Int32, true),
    ]));
    let batch = RecordBatch::try_new(
        Arc::clone(&schema),
        vec![
            Arc::new(Int64Array::from(vec![Some(1), None, Some(3)])),
            Arc::new(StringArray::from(vec![Some("a"), Some("b"), Some("toolong")])),
            Arc::new(Int32Array::from(vec![1, 2, 3])),
        ],
    )
    .expect("batch");
    let mut body = Vec::new();
    let mut writer = StreamWriter::try_new(&mut body, &schema).expect("writer");
    writer.write(&batch).expect("write");
    writer.finish().expect("finish");
    drop(writer);
    let answer = load(&s, "dup", &[("format", "arrow"), ("max_filter_ratio", "0.7")], body).await;
    assert_eq!((answer["Status"].as_str(), counts(&answer)), (Some("Success"), [3, 1, 2, 0]), "{answer}");
    assert_eq!(query(&s, "SELECT * FROM d.dup").await, ["1|a|1"]);
}

#[tokio::test]
async fn deletes_by_sign_and_by_merge_type() {
    let s = sandbox().await;
    load(&s, "uniq", &[CSV], "1,a,1\n2,b,2\n3,c,3\n").await;
    let sign = ("hidden_columns", "__DORIS_DELETE_SIGN__");
    let answer = load(&s, "uniq", &[CSV, sign], "1,a,1,1\n2,B,2,0\n").await;
    assert_eq!(answer["Status"], "Success", "{answer}");
    assert_eq!(query(&s, "SELECT * FROM d.uniq ORDER BY id").await, ["2|B|2", "3|c|3"]);
    let answer = load(&s, "uniq", &[CSV, ("merge_type", "DELETE")], "3,c,3\n").await;
    assert_eq!(answer["Status"], "Success", "{answer}");
    assert_eq!(query(&s, "SELECT * FROM d.uniq").await, ["2|B|2"]);
    let columns = ("columns", "`id`,__DORIS_DELETE_SIGN__");
    let answer = load(&s, "uniq", &[CSV, columns], "2,1\n").await;
    assert_eq!(answer["Status"], "Success", "{answer}");
    assert_eq!(query(&s, "SELECT count(*) FROM d.uniq").await, ["0"]);
}

async fn pre_commit(s: &Sandbox, label: &str) -> String {
    let answer = load(s, "dup", &[CSV, ("label", label), ("two_phase_commit", "true")], "1,a,1\n").await;
    assert_eq!((answer["Status"].as_str(), answer["TwoPhaseCommit"].as_str()), (Some("Success"), Some("true")));
    answer["TxnId"].to_string()
}

#[tokio::test]
async fn two_phases_and_the_texts_of_their_refusals() {
    let s = sandbox().await;
    let id = pre_commit(&s, "a").await;
    assert_eq!(query(&s, "SELECT count(*) FROM d.dup").await, ["0"]);
    let taken = load(&s, "dup", &[CSV, ("label", "a")], "1,a,1\n").await;
    assert_eq!(taken["ExistingJobStatus"], "PRECOMMITTED");
    let commit = [("txn_operation", "commit"), ("txn_id", id.as_str())];
    assert_eq!(second_phase(&s, &commit).await, ("Success".into(), format!("transaction [{id}] commit successfully.")));
    assert_eq!(query(&s, "SELECT count(*) FROM d.dup").await, ["1"]);
    let tstatus = "TStatus: errCode = 2, detailMessage = ";
    assert_eq!(
        second_phase(&s, &commit).await,
        ("ANALYSIS_ERROR".into(), format!("{tstatus}transaction [{id}] is already visible, not pre-committed."))
    );

    let id = pre_commit(&s, "b").await;
    let abort = [("txn_operation", "abort"), ("label", "b")];
    assert_eq!(second_phase(&s, &abort).await, ("Success".into(), "label [b] abort successfully.".into()));
    let commit = [("txn_operation", "commit"), ("txn_id", id.as_str())];
    assert_eq!(
        second_phase(&s, &commit).await.1,
        format!("{tstatus}transaction [{id}] is already aborted. abort reason: User Abort")
    );
    assert_eq!(second_phase(&s, &abort).await.1, format!("{tstatus}running transaction not found, label=b"));
    assert_eq!(
        second_phase(&s, &[("txn_operation", "commit"), ("txn_id", "424242")]).await.1,
        format!("{tstatus}transaction [424242] not found.")
    );
    assert_eq!(
        second_phase(&s, &[("txn_operation", "purge"), ("txn_id", "1")]).await.1,
        "transaction operation should be 'commit' or 'abort'"
    );
    let (_, text) = second_phase(&s, &[("txn_operation", "commit"), ("txn_id", "x1")]).await;
    assert!(text.starts_with("convert txn_id [x1] failed, reason="), "{text}");
    assert_eq!(s.running_transactions(), 0);
}

#[tokio::test]
async fn a_client_that_leaves_in_the_middle_aborts_the_transaction() {
    let s = sandbox().await;
    s.faults().push(Fault::new(Action::CutAfterBytes(6)).at(Site::Be).when("_stream_load"));
    let url = format!("http://{}/api/d/dup/_stream_load", s.benodes());
    let body = reqwest::Body::wrap_stream(futures::stream::iter(["1,a,1\n", "2,b,2\n"].map(Ok::<_, std::io::Error>)));
    let sent = http().put(url).basic_auth("root", Some("pw")).header("label", "cut").body(body).send().await;
    assert!(sent.is_err());
    let answer = load(&s, "dup", &[CSV, ("label", "cut")], "3,c,3\n").await;
    assert_eq!(answer["Status"], "Success", "{answer}");
    assert_eq!(query(&s, "SELECT * FROM d.dup").await, ["3|c|3"]);
}

#[tokio::test]
async fn a_dropped_answer_leaves_the_work_done() {
    let s = sandbox().await;
    s.faults().push(Fault::new(Action::DropAnswer).at(Site::Be).when("/_stream_load "));
    let url = format!("http://{}/api/d/dup/_stream_load", s.benodes());
    let sent = http().put(&url).basic_auth("root", Some("pw")).header("label", "lost").body("1\ta\t1").send().await;
    assert!(sent.is_err());
    assert_eq!(query(&s, "SELECT * FROM d.dup").await, ["1|a|1"]);
    let seen = s.requests().matching(Site::Be, "_stream_load");
    assert_eq!(
        (seen.len(), seen[0].header("label"), seen[0].header("authorization")),
        (1, Some("lost"), Some("Basic ***"))
    );
}

#[tokio::test]
async fn a_body_larger_than_a_batch_is_loaded_whole() {
    let s = sandbox().await;
    let mut body = String::new();
    for i in 0..20_000 {
        body.push_str(&format!("{i},v,{i}\n"));
    }
    let chunks: Vec<_> = body.as_bytes().chunks(1000).map(|c| Ok::<_, std::io::Error>(c.to_vec())).collect();
    let answer = load(&s, "dup", &[CSV], reqwest::Body::wrap_stream(futures::stream::iter(chunks))).await;
    assert_eq!(counts(&answer), [20_000, 20_000, 0, 0], "{answer}");
    assert_eq!(query(&s, "SELECT count(*), sum(n) FROM d.dup").await, ["20000|199990000"]);
}

#[tokio::test]
async fn a_commit_that_fails_aborts_the_load() {
    let s = sandbox().await;
    let fail = Action::FailCommit("tablet writer write failed".to_owned());
    s.faults().push(Fault::new(fail).at(Site::Be).when("_stream_load").times(2));
    let refused = load(&s, "dup", &[("label", "failing")], "1\ta\t1").await;
    assert_eq!(refused["Status"], "Fail", "{refused}");
    assert_eq!(refused["Message"], "[INTERNAL_ERROR]tablet writer write failed");
    assert_eq!(s.engine().label_state("d", "failing").expect("state").state.name(), "ABORTED");
    let refused = second_phase(&s, &[("txn_id", "1"), ("txn_operation", "commit")]).await;
    assert_eq!(refused, ("INTERNAL_ERROR".to_owned(), "tablet writer write failed".to_owned()));
}
