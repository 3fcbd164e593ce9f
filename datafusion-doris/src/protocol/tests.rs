#![allow(clippy::unwrap_used, clippy::expect_used)]

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::error::Retry;
use crate::options::{Compression, CsvFormat, SinkFormat, SinkOptions};
use crate::types::TableIdent;

fn headers(options: &SinkOptions, format: SinkFormat, delete_sign: bool) -> crate::Result<StreamLoadHeaders> {
    StreamLoadHeaders::build(&LoadRequest {
        table: &TableIdent::new("db", "t"),
        options,
        columns: Some("`id`,`名`"),
        format,
        delete_sign,
        label: "L1",
        two_phase_commit: options.two_phase(false),
    })
}

#[test]
fn csv_load_names_its_columns_shape_and_delete_sign() {
    let headers = headers(&SinkOptions::default(), SinkFormat::Csv, true).unwrap();
    let found: Vec<(&str, &str)> = headers.iter().collect();
    assert_eq!(
        found,
        [
            ("column_separator", "\\x09"),
            ("columns", "`id`,`名`"),
            ("compress_type", "gz"),
            ("enclose", "\""),
            ("escape", "\\"),
            ("format", "csv"),
            ("hidden_columns", "__DORIS_DELETE_SIGN__"),
            ("label", "L1"),
            ("line_delimiter", "\\x0a"),
            ("strict_mode", "true"),
            ("trim_double_quotes", "true"),
            ("two_phase_commit", "true"),
        ]
    );
}

#[test]
fn json_load_is_read_by_line_and_keeps_user_properties() {
    let properties = [("strict_mode", "true"), ("where", "id > 1")].map(|(k, v)| (k.to_owned(), v.to_owned()));
    let options = SinkOptions::default()
        .with_two_phase_commit(false)
        .with_properties(properties.into())
        .unwrap()
        .with_compression(Compression::None);
    let found = headers(&options, SinkFormat::Json, false).unwrap();
    for (name, value) in [
        ("read_json_by_line", Some("true")),
        ("strict_mode", Some("true")),
        ("where", Some("id > 1")),
        ("two_phase_commit", None),
        ("compress_type", None),
        ("hidden_columns", None),
        ("enclose", None),
    ] {
        assert_eq!(found.get(name), value, "{name}");
    }
}

#[test]
fn arrow_loads_say_nothing_of_the_compression_inside_of_the_stream() {
    for (format, expected) in [(SinkFormat::Arrow, None), (SinkFormat::Json, Some("zstd"))] {
        let options = SinkOptions::default().with_compression(Compression::Zstd);
        let found = headers(&options, format, true).unwrap();
        assert_eq!((found.get("format"), found.get("compress_type")), (Some(format.header()), expected));
        assert_eq!(found.get("columns"), Some("`id`,`名`"));
        assert_eq!(found.get("read_json_by_line").is_some(), format == SinkFormat::Json);
    }
}

#[test]
fn values_that_do_not_convert_are_refused_unless_the_user_says_otherwise() {
    for (name, value, strict) in [
        ("strict_mode", "false", Some("false")),
        ("timezone", "UTC", Some("true")),
        ("partial_columns", "true", None),
        ("unique_key_update_mode", "update_fixed_columns", None),
        ("unique_key_update_mode", "update_flexible_columns", None),
        ("unique_key_update_mode", "upsert", Some("true")),
    ] {
        let properties = [(name.to_owned(), value.to_owned())];
        let options = SinkOptions::default().with_properties(properties.into()).unwrap();
        let found = headers(&options, SinkFormat::Csv, false).unwrap();
        assert_eq!(found.get("strict_mode"), strict, "{name}");
    }
}

#[test]
fn separators_are_printed_so_that_a_header_carries_them() {
    for (separator, expected) in
        [(&b"|"[..], "|"), (b"||", "||"), (&[1, 2], "\\x0102"), (b" ", "\\x20"), (b"\\", "\\x5c")]
    {
        let csv =
            CsvFormat { column_separator: separator.to_vec(), enclose: None, escape: None, ..CsvFormat::default() };
        let found = headers(&SinkOptions::default().with_csv(csv), SinkFormat::Csv, false).unwrap();
        assert_eq!(found.get("column_separator"), Some(expected));
    }
}

#[test]
fn load_answers_are_classified() {
    use LoadEvent::{LabelTaken, LostAnswer, Refused};
    let fail = |message: &str| json!({"TxnId": 7, "Label": "L", "Status": "Fail", "Message": message}).to_string();
    let used = "[LABEL_ALREADY_EXISTS]TStatus: errCode = 2, detailMessage = Label [L] has already been used, \
                relate to txn [2001]";
    let label = |state: &str| {
        json!({"TxnId": -1, "Label": "L", "Status": "Label Already Exists", "ExistingJobStatus": state, "Message": used})
            .to_string()
    };
    for (status, body, expected) in [
        (200, json!({"TxnId": 7, "Label": "L", "Status": "Success", "Message": "OK"}).to_string(), LoadEvent::Loaded),
        (200, json!({"Label": "L", "Status": "Publish Timeout"}).to_string(), LoadEvent::PublishTimeout),
        (200, label("PRECOMMITTED"), LabelTaken(ExistingJob::PreCommitted)),
        (200, label("RUNNING"), LabelTaken(ExistingJob::Running)),
        (200, label("FINISHED"), LabelTaken(ExistingJob::Finished)),
        (200, label(""), LabelTaken(ExistingJob::Unknown)),
        (200, fail("[DATA_QUALITY_ERROR]too many filtered rows"), Refused(Refusal::FilteredRows)),
        (
            200,
            fail("current running txns on db 10 is 1000, larger than limit 1000"),
            Refused(Refusal::TooManyTransactions),
        ),
        (200, fail("[E-235]failed to init rowset builder. version count: 2001"), Refused(Refusal::TooManyVersions)),
        (
            200,
            fail("[ANALYSIS_ERROR]tablet 1 alive replica num 0 < load required replica num 1"),
            Refused(Refusal::NoBackend),
        ),
        (200, fail("[THRIFT_RPC_ERROR]call frontend service failed"), Refused(Refusal::Unclear)),
        (
            200,
            json!({"status": "FAILED", "msg": "There is no 100-continue header"}).to_string(),
            Refused(Refusal::Other),
        ),
        (
            200,
            json!({"msg": "Unauthorized", "code": 401, "data": "Access denied for x"}).to_string(),
            Refused(Refusal::Access),
        ),
        (200, "<html>proxy</html>".into(), LostAnswer),
        (200, String::new(), LostAnswer),
        (401, String::new(), Refused(Refusal::Access)),
        (404, String::new(), Refused(Refusal::Other)),
        (429, String::new(), Refused(Refusal::Busy)),
        (502, "bad gateway".into(), LostAnswer),
    ] {
        let (event, message) = classify_load(status, body.as_bytes());
        assert_eq!(event, expected, "{status} {body}");
        let done = matches!(event, LoadEvent::Loaded | LoadEvent::PublishTimeout);
        assert!(done || !message.is_empty(), "{status} {body}");
    }
    let taken = StreamLoadResponse::parse(label("PRECOMMITTED").as_bytes()).unwrap();
    assert_eq!(taken.txn_of_label(), Some(2001));
}

#[test]
fn load_that_an_fe_refused_may_be_announced_again_when_the_reason_passes() {
    for (status, message, expected) in [
        (200, Some("There is no 100-continue header"), Refusal::Other),
        (200, Some("errCode = 2, detailMessage = No backend load available"), Refusal::NoBackend),
        (200, Some("timeout when waiting for the master"), Refusal::Unclear),
        (200, None, Refusal::Other),
        (404, Some("no such table"), Refusal::Other),
        (429, None, Refusal::Busy),
        (503, Some("starting"), Refusal::Unclear),
    ] {
        assert_eq!(classify_load_refusal(status, message), LoadEvent::AtFrontend(expected), "{status} {message:?}");
    }
}

#[test]
fn load_answer_tolerates_unknown_and_repeated_keys() {
    let body = br#"{"TxnId": 5, "Label": "L", "Comment": "", "TwoPhaseCommit": "true", "Status": "Success",
        "Message": "OK", "NumberTotalRows": 3, "NumberLoadedRows": "2", "NumberFilteredRows": 1,
        "ErrorURL": "http://be:8040/api/_load_error_log?file=x", "FirstErrorMsg": "", "Comment": "again", "Db": {}}"#;
    let response = StreamLoadResponse::parse(body).unwrap();
    assert_eq!((response.txn_id, response.two_phase_commit), (Some(5), Some(true)));
    assert_eq!((response.total_rows, response.loaded_rows, response.filtered_rows), (3, 2, 1));
    assert_eq!((response.first_error, response.error_url.is_some()), (None, true));
    assert!(StreamLoadResponse::parse(b"[]").is_err());
    assert!(!response.group_commit);
}

#[test]
fn answer_to_a_load_by_group_commit_is_read() {
    let body = br#"{"TxnId": 9, "Label": "group_commit_1", "GroupCommit": true, "Status": "Success", "LoadTimeMs": 8,
        "StreamLoadPutTimeMs": 1, "ReadDataTimeMs": 2, "WriteDataTimeMs": 3,
        "ErrorURL": "https://bucket.s3/log?X-Amz-Date=1&X-Amz-Signature=abc"}"#;
    let response = StreamLoadResponse::parse(body).unwrap();
    assert!(response.group_commit);
    let LoadTimes { begin_txn, stream_load_put, read_data, write_data, commit_and_publish } = response.times_ms;
    assert_eq!((begin_txn, commit_and_publish), (None, None));
    assert_eq!([stream_load_put, read_data, write_data], [Some(1), Some(2), Some(3)]);
    assert_eq!(response.error_url.as_deref(), Some("https://bucket.s3/log"), "a signature is a secret");
    let options = SinkOptions::default().with_two_phase_commit(false);
    let options = options.with_properties([("group_commit".into(), "async_mode".into())].into()).unwrap();
    let headers = headers(&options, SinkFormat::Csv, false).unwrap();
    assert_eq!((headers.get("label"), headers.kind()), (None, LoadKind::Group));
}

#[test]
fn txn_answers_are_classified_without_case() {
    let body = |status: &str, text: &str| json!({"status": status, "msg": text}).to_string();
    let failed = |text: &str| body("ANALYSIS_ERROR", &format!("TStatus: errCode = 2, detailMessage = {text}"));
    for (answer, expected) in [
        (body("Success", "transaction [5] commit successfully."), TxnOutcome::Done),
        (failed("transaction [5] is already visible, not pre-committed."), TxnOutcome::AlreadyCommitted),
        (failed("transaction [5] is already COMMITTED, could not abort."), TxnOutcome::AlreadyCommitted),
        (body("Fail", "transaction's state is already VISIBLE, could not abort"), TxnOutcome::AlreadyCommitted),
        (failed("transaction [5] is already aborted. abort reason: User Abort"), TxnOutcome::AlreadyAborted),
        (failed("transaction [5] is prepare, not pre-committed."), TxnOutcome::StillLoading),
        (failed("transaction [5] not found."), TxnOutcome::NotFound),
        (failed("running transaction not found, label=L"), TxnOutcome::NotFound),
    ] {
        assert_eq!(classify_txn(200, answer.as_bytes()), expected, "{answer}");
    }
    for (status, answer, expected) in [
        (200, failed("transaction [x] is already visible"), Retry::AskLabelState),
        (200, body("INTERNAL_ERROR", "rpc failed"), Retry::AskLabelState),
        (200, String::new(), Retry::AskLabelState),
        (200, json!({"code": 401, "msg": "Unauthorized", "data": "Access denied"}).to_string(), Retry::Never),
        (403, String::new(), Retry::Never),
        (500, String::new(), Retry::AskLabelState),
    ] {
        match classify_txn(status, answer.as_bytes()) {
            TxnOutcome::Refused { retry, .. } => assert_eq!(retry, expected, "{status} {answer}"),
            other => panic!("{answer}: {other:?}"),
        }
    }
}

#[test]
fn request_of_an_abort_names_operation_and_label() {
    let [operation, txn] = txn_headers(TxnOperation::Abort, &TxnRef::Label("L".into()));
    assert_eq!((operation, txn), (("txn_operation", "abort".into()), ("label", "L".into())));
}

#[test]
fn every_lost_answer_has_a_decision() {
    use LabelState::*;
    use NextStep::{AbortAgain, CommitAgain, Done, Resend, Stop, Wait};
    for (state, expected) in [
        (Unknown, [Wait, Wait, Wait, Wait, Resend]),
        (Prepare, [Wait, Wait, Wait, Wait, Wait]),
        (PreCommitted, [Stop, Done, CommitAgain, AbortAgain, AbortAgain]),
        (Committed, [Done, Stop, Done, Stop, Stop]),
        (Visible, [Done, Stop, Done, Stop, Stop]),
        (Aborted, [Resend, Resend, Stop, Done, Resend]),
    ] {
        assert_eq!(PendingOperation::ALL.map(|operation| after_unknown_outcome(operation, state)), expected, "{state}");
        assert_eq!(state.to_string().to_lowercase().parse(), Ok(state));
    }
    assert_eq!("CANCELLED".parse(), Ok(Aborted));
    assert!("SOMETHING".parse::<LabelState>().is_err());
}

#[test]
fn envelope_code_zero_with_a_text_is_no_success() {
    let kind = |status, body: serde_json::Value, expected| {
        parse_envelope(status, body.to_string().as_bytes(), expected).map_err(|error| (error.kind, error.message))
    };
    let ok = |data: serde_json::Value| json!({"msg": "success", "code": 0, "data": data, "count": 0});
    let error = |code: i64, data: &str| json!({"msg": "Error", "code": code, "data": data});
    let fail = |kind, message: &str| Err((kind, message.to_owned()));
    use EnvelopeErrorKind::{Auth, BadRequest, Server};
    for (body, expected, found) in [
        (ok(json!({"a": 1})), Envelope::Object, Ok(json!({"a": 1}))),
        (ok(json!("VISIBLE")), Envelope::Text, Ok(json!("VISIBLE"))),
        (ok(json!("no such table")), Envelope::Object, fail(Server, "no such table")),
        (ok(json!("Access denied; you need")), Envelope::Object, fail(Auth, "Access denied; you need")),
        (ok(json!({"status": 400, "exception": "only one table"})), Envelope::Object, fail(Server, "only one table")),
        (error(401, "Access denied for x@y"), Envelope::Object, fail(Auth, "Access denied for x@y")),
        (error(403, "No label selected"), Envelope::Text, fail(BadRequest, "No label selected")),
        (error(1, "unknown database"), Envelope::Any, fail(Server, "unknown database")),
        (json!({"status": "FAILED", "msg": "no"}), Envelope::Any, fail(Server, "no")),
    ] {
        assert_eq!(kind(200, body.clone(), expected), found, "{body}");
    }
    let html = parse_envelope(502, b"<html>", Envelope::Any).unwrap_err();
    assert_eq!((html.kind, html.code), (EnvelopeErrorKind::Unavailable, None));
}

#[test]
fn result_sets_of_both_endpoints_are_read() {
    let statement =
        json!({"type": "result_set", "meta": [{"name": "a"}, {"name": "b"}], "data": [["x", null], [1, true]]});
    let nodes = json!({"columnNames": ["a"], "rows": [["x"]]});
    let text = |text: &str| Some(text.to_owned());
    assert_eq!(
        parse_result_set(&statement),
        Ok((vec!["a".into(), "b".into()], vec![vec![text("x"), None], vec![text("1"), text("true")]]))
    );
    assert_eq!(parse_result_set(&nodes), Ok((vec!["a".into()], vec![vec![text("x")]])));
    assert_eq!(parse_result_set(&json!({"type": "exec_status", "status": {}})), Ok((vec![], vec![])));
    assert!(parse_result_set(&json!({"meta": [{"name": "a"}], "data": [["x", "y"]]})).is_err());
    assert!(parse_result_set(&json!({})).is_err());
}

#[test]
fn tso_is_read_from_api_and_table() {
    let ms = 1_770_000_000_123;
    let tso = Tso::from_physical_ms(ms).unwrap();
    assert_eq!((tso.physical_ms(), tso.logical(), Tso(tso.0 + 5).logical()), (ms, 0, 5));
    let api = TsoStatus::from_api(&json!({"current_tso": tso.0 + 7, "current_tso_physical_time": ms})).unwrap();
    assert_eq!((api.current, api.committed), (Tso(tso.0 + 7), None));
    assert_eq!(TsoStatus::from_api(&json!({"current_tso_physical_time": ms.to_string()})).unwrap().current, tso);
    for bad in [json!({}), json!({"current_tso_physical_time": 0}), json!({"current_tso": "x"}), json!("text")] {
        assert!(TsoStatus::from_api(&bad).is_err(), "{bad}");
    }
    let columns = ["current_tso_physical_time", "Committed_TSO"].map(str::to_owned);
    let row = TsoStatus::from_row(&columns, &[Some(ms.to_string()), Some("9".into())]).unwrap();
    assert_eq!((row.current, row.committed), (tso, Some(Tso(9))));
    assert!(TsoStatus::from_row(&columns, &[None, None]).is_err());
}

#[test]
fn flight_port_is_that_of_the_frontend_in_use() {
    let columns = ["Host", "HttpPort", "ArrowFlightSqlPort", "Alive", "CurrentConnected"].map(str::to_owned);
    let rows = [["10.0.0.1", "8030", "9090", "true", "No"], ["10.0.0.2", "8030", "-1", "true", "Yes"]]
        .map(|row| row.map(|cell| Some(cell.to_owned())).to_vec());
    let frontends = parse_frontends(&columns, &rows).unwrap();
    for (fenode, expected) in [("10.0.0.1:8030", Some(9090)), ("10.0.0.2:8030", None), ("balancer:80", None)] {
        assert_eq!(flight_port_of(&frontends, fenode), expected, "{fenode}");
    }
    assert_eq!(flight_port_of(&frontends[..1], "balancer:80"), Some(9090));
    assert!(parse_frontends(&["Name".to_owned()], &[]).is_err());
}

#[test]
fn redirect_is_taken_apart_and_its_password_stays_hidden() {
    for (location, url, user, password) in [
        ("http://10.0.0.5:8040/api/db/t/_stream_load", "http://10.0.0.5:8040/api/db/t/_stream_load", None, None),
        (
            "http://u%40x:p%2Fw@be:8040/api/d/t/_stream_load?",
            "http://be:8040/api/d/t/_stream_load",
            Some("u@x"),
            Some("p/w"),
        ),
        ("http://root:a/b@c#d@be:8040/api/d/t/_x?k=v", "http://be:8040/api/d/t/_x?k=v", Some("root"), Some("a/b@c#d")),
        ("https://[::1]:8050/api/x", "https://[::1]:8050/api/x", None, None),
        ("http://be:8040/api/api/t/_x", "http://be:8040/api/api/t/_x", None, None),
        ("HTTP://be/other", "http://be:80/other", None, None),
    ] {
        let target = parse_redirect(location).unwrap();
        assert_eq!(target.url(), url, "{location}");
        assert_eq!(target.user.as_deref(), user);
        assert_eq!(target.password.as_ref().map(|password| password.reveal()), password);
        assert!(password.is_none_or(|password| !format!("{target:?}").contains(password)));
    }
    for location in
        ["", "/api/x", "ftp://be:1/api/x", "http://:8040/api/x", "http://u:pa55@be:0/api/x", "http://a:b:1/api/"]
    {
        let error = parse_redirect(location).unwrap_err().to_string();
        assert!(!error.contains("pa55"), "{error}");
    }
}

#[test]
fn flight_location_without_a_host_is_the_one_connected_to() {
    for (uri, expected) in [
        ("", None),
        ("arrow-flight-reuse-connection://?", None),
        ("grpc+tcp://be:8050", Some("http://be:8050")),
        ("grpc://0.0.0.0:8050", Some("http://fe:8050")),
        ("grpc+tcp://[::]:8050/", Some("http://fe:8050")),
        ("grpc+tcp://:8050", Some("http://fe:8050")),
        ("grpc+tls://[fe80::1]:8050", Some("https://[fe80::1]:8050")),
    ] {
        assert_eq!(parse_flight_location(uri, "fe").unwrap().endpoint_url().as_deref(), expected, "{uri}");
    }
    for uri in ["be:8050", "grpc://be", "grpc+unix:///x", "grpc://be:99999"] {
        assert!(parse_flight_location(uri, "fe").is_err(), "{uri}");
    }
}

#[test]
fn label_is_stable_across_restarts() {
    let identity = LabelIdentity { prefix: "p", database: "db", table: "t", job: "mirror" };
    let label = identity.label(1, 2, 0);
    assert_eq!(label, LabelIdentity { ..identity }.label(1, 2, 0));
    assert!(label.starts_with("p_db_t_") && label.ends_with("_1_2_0"), "{label}");
}

proptest! {
    #[test]
    fn labels_are_valid_and_differ_with_their_identity(
        a in proptest::array::uniform4("\\PC{0,80}"), b in proptest::array::uniform4("\\PC{0,80}"),
        numbers in any::<(u64, u64, u32)>(), others in any::<(u64, u64, u32)>(),
    ) {
        let label = |parts: &[String; 4], (generation, epoch, writer): (u64, u64, u32)| {
            let [prefix, database, table, job] = parts.each_ref().map(String::as_str);
            LabelIdentity { prefix, database, table, job }.label(generation, epoch, writer)
        };
        let first = label(&a, numbers);
        prop_assert!(is_valid_label(&first), "{}", first);
        prop_assert_eq!(first == label(&b, numbers), a == b);
        prop_assert_eq!(first == label(&a, others), numbers == others);
    }

    #[test]
    fn parsers_never_panic(text in "\\PC{0,60}", status in 100u16..600) {
        let _ = classify_load(status, text.as_bytes());
        let _ = classify_txn(status, text.as_bytes());
        let _ = parse_redirect(&format!("http://{text}"));
        let _ = parse_flight_location(&format!("grpc://{text}"), "fe");
        let _ = classify_txn(200, json!({"status": "x", "msg": format!("transaction [{text}")}).to_string().as_bytes());
    }
}
