//! Loads whose mapping is a statement.

use super::*;

async fn stream(s: &Sandbox, sql: &str, headers: &[(&str, &str)], body: &str) -> Value {
    let url = format!("http://{}/api/_http_stream", s.benodes());
    let headers = [&[("sql", sql)], headers].concat();
    let text = send(Method::PUT, url, &headers, body.to_owned()).await;
    serde_json::from_str(&text).expect("json")
}

#[tokio::test]
async fn rows_of_the_body_are_selected_into_the_table() {
    let s = sandbox().await;
    let sql = r#"insert into d.dup (n, id, v) select c1 * 10, c1, upper(c3) from http_stream("format"="CSV", "column_separator"=",") where c2 <> 'skip'"#;
    let answer = stream(&s, sql, &[("label", "h1")], "1,x,a,9\n2,skip,b,9\n3,x,c\n4,x,d,9\n").await;
    assert_eq!(message(&answer), "[DATA_QUALITY_ERROR]too many filtered rows", "a line has fewer columns: {answer}");
    let answer = stream(&s, sql, &[("label", "h1")], "1,x,a,9\n2,skip,b,9\n4,x,d,9\n").await;
    assert_eq!((answer["Status"].as_str(), counts(&answer)), (Some("Success"), [3, 2, 0, 1]), "{answer}");
    assert_eq!(answer["Label"], "h1");
    assert_eq!(query(&s, "SELECT * FROM d.dup ORDER BY id").await, ["1|A|10", "4|D|40"]);
}

#[tokio::test]
async fn a_star_and_json_keys() {
    let s = sandbox().await;
    let csv = r#"INSERT INTO d.dup WITH LABEL of_sql SELECT * FROM http_stream("format"="csv")"#;
    let answer = stream(&s, csv, &[], "1\ta\t1\n").await;
    assert_eq!((answer["Status"].as_str(), answer["Label"].as_str()), (Some("Success"), Some("of_sql")), "{answer}");
    let json = r#"INSERT INTO d.dup (id, n) SELECT k, if(flag = 'y', 1, 0) FROM http_stream("format"="json", "strip_outer_array"="true", "read_json_by_line"="false") WHERE k > 1"#;
    let answer = stream(&s, json, &[], r#"[{"k":1,"flag":"y"},{"k":2,"flag":"y"},{"k":3}]"#).await;
    assert_eq!((answer["Status"].as_str(), counts(&answer)), (Some("Success"), [3, 2, 0, 1]), "{answer}");
    assert_eq!(query(&s, "SELECT * FROM d.dup ORDER BY id").await, ["1|a|1", "2|NULL|1", "3|NULL|0"]);
    let two = r#"INSERT INTO d.dup (id, n) SELECT c1, c1 FROM http_stream("format"="csv")"#;
    let answer = stream(&s, two, &[("two_phase_commit", "true")], "7\n").await;
    let txn = answer["TxnId"].to_string();
    assert_eq!(second_phase(&s, &[("txn_operation", "abort"), ("txn_id", &txn)]).await.0, "Success");
}

#[tokio::test]
async fn statements_that_cannot_be_planned_are_refused() {
    let s = sandbox().await;
    for (sql, expected) in [
        ("", "the header sql must hold one statement"),
        ("SELECT 1", "mismatched input 'SELECT'"),
        (r#"INSERT INTO dup SELECT c1 FROM http_stream("format"="csv")"#, "No database selected"),
        (
            r#"INSERT INTO d.dup SELECT c1 FROM http_stream("format"="csv")"#,
            "insert into cols should be corresponding to the query output",
        ),
        (r#"INSERT INTO d.dup (id, n) SELECT c1, nope FROM http_stream("format"="csv")"#, "Unknown column 'nope'"),
        (r#"INSERT INTO d.dup (id) SELECT c1 FROM http_stream("column_separator"=",")"#, "format is not set"),
        (r#"INSERT INTO d.dup (id) SELECT c1 FROM http_stream("format"="csv", "color"="red")"#, "color=red"),
        (r#"INSERT INTO d.dup (id, n) SELECT c1, c9 FROM http_stream("format"="csv")"#, "Unknown column 'c3'"),
        (
            r#"INSERT INTO d.dup (id, n) SELECT c1, c2 FROM http_stream("format"="parquet")"#,
            "http_stream of this format",
        ),
    ] {
        let answer = stream(&s, sql, &[], "1\t2\n").await;
        assert_eq!(answer["Status"], "Fail", "{sql}");
        assert!(message(&answer).contains(expected), "{sql}: {answer}");
    }
    assert_eq!(s.running_transactions(), 0);
}

#[tokio::test]
async fn headers_and_faults_of_a_commit_are_looked_at() {
    let s = sandbox().await;
    let sql = r#"INSERT INTO d.dup SELECT * FROM http_stream("format"="csv")"#;
    for (mode, expected) in [
        ("sync_mode", "[NOT_IMPLEMENTED_ERROR]the sandbox does not implement the header group_commit of http_stream"),
        ("on", "[INVALID_ARGUMENT]group_commit can only be [async_mode, sync_mode, off_mode]"),
    ] {
        let answer = stream(&s, sql, &[("group_commit", mode)], "1\ta\t1\n").await;
        assert_eq!((answer["Status"].as_str(), message(&answer)), (Some("Fail"), expected));
    }
    let fail = Action::FailCommit("no space left".to_owned());
    s.faults().push(Fault::new(fail).at(Site::Be).when("_http_stream"));
    let answer = stream(&s, sql, &[("label", "h")], "1\ta\t1\n").await;
    assert_eq!((answer["Status"].as_str(), message(&answer)), (Some("Fail"), "[INTERNAL_ERROR]no space left"));
    assert_eq!(s.faults().armed(), 0);
    let answer = stream(&s, sql, &[("label", "h"), ("group_commit", "off_mode")], "1\ta\t1\n").await;
    assert_eq!(answer["Status"], "Success", "{answer}");
    let url = format!("http://{}/api/_http_stream", s.fenodes());
    let text = send(Method::PUT, url, &[("expect", "100-continue"), ("group_commit", "on")], "").await;
    assert!(text.contains("Header `group_commit` can only be"), "{text}");
}

#[tokio::test]
async fn the_fe_redirects_and_tells_of_inserts() {
    let s = sandbox().await;
    let url = format!("http://{}/api/_http_stream", s.fenodes());
    let refused = send(Method::PUT, url.clone(), &[], "").await;
    assert_eq!(refused, r#"{"status":"FAILED","msg":"There is no 100-continue header"}"#);
    let request = http().put(url).basic_auth("root", Some("pw")).header("expect", "100-continue");
    let answer = request.send().await.expect("answer");
    assert_eq!(answer.status(), 307);
    let location = answer.headers()["location"].to_str().expect("text").to_owned();
    assert_eq!(location, format!("http://root:pw@{}/api/_http_stream", s.benodes()));

    s.execute("INSERT INTO d.dup WITH LABEL job VALUES (1, 'a', 1)").await.expect("insert");
    let info = |query: &str| format!("http://{}/api/d/_load_info{query}", s.fenodes());
    let text = send(Method::GET, info("?label=job"), &[], "").await;
    let text: Value = serde_json::from_str(&text).expect("json");
    assert_eq!((text["status"].as_str(), text["jobInfo"]["state"].as_str()), (Some("OK"), Some("FINISHED")));
    assert_eq!(text["jobInfo"]["tblNames"][0], "dup");
    assert_eq!(send(Method::GET, info(""), &[], "").await, r#"{"status":"FAILED","msg":"No label selected."}"#);
    assert!(send(Method::GET, info("?label=none"), &[], "").await.contains("FAILED"));
}

#[tokio::test]
async fn the_fe_looks_for_the_table_of_a_group_commit() {
    let s = sandbox().await;
    for (path, mode, expected) in [
        ("none/dup", "async_mode", "Database not found."),
        ("d/none", "sync_mode", "OlapTable not found."),
        ("d/dup", "sometimes", "Header `group_commit` can only be `sync_mode`, `async_mode` or `off_mode`."),
    ] {
        let url = format!("http://{}/api/{path}/_stream_load", s.fenodes());
        let text = send(Method::PUT, url, &[("expect", "100-continue"), ("group_commit", mode)], "").await;
        assert_eq!(text, format!(r#"{{"status":"FAILED","msg":"{expected}"}}"#));
    }
}
