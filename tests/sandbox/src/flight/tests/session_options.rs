//! `SetSessionOptions` and `GetSessionOptions` (D.2).

use std::collections::HashMap;

use super::*;
use crate::flight::options::{
    ErrorValue, OptionValue, SessionOptionValue, SessionOptions, SetSessionOptionsResult, StringList,
};

fn text(value: &str) -> Option<OptionValue> {
    Some(OptionValue::Text(value.to_owned()))
}

async fn set(s: &Sandbox, client: &Client, options: &[(&str, Option<OptionValue>)]) -> HashMap<String, ErrorValue> {
    let session_options = options
        .iter()
        .map(|(name, value)| ((*name).to_owned(), SessionOptionValue { option_value: value.clone() }))
        .collect();
    let body = SessionOptions { session_options }.encode_to_vec();
    let answer = action(s, client, "SetSessionOptions", body).await.expect("answer");
    let result = SetSessionOptionsResult::decode(answer).expect("result");
    result.errors.into_iter().map(|(name, error)| (name, error.value())).collect()
}

async fn get(s: &Sandbox, client: &Client) -> HashMap<String, String> {
    let answer = action(s, client, "GetSessionOptions", Vec::new()).await.expect("answer");
    let options = SessionOptions::decode(answer).expect("result").session_options;
    options
        .into_iter()
        .map(|(name, value)| match value.option_value {
            Some(OptionValue::Text(text)) => (name, text),
            other => panic!("{name} is not a text: {other:?}"),
        })
        .collect()
}

#[tokio::test]
async fn options_are_read_back_under_the_names_they_are_set_by() {
    let s = sandbox().await;
    let mut fe = login(&s).await;
    let before = get(&s, &fe).await;
    assert_eq!((before["catalog"].as_str(), before["schema"].as_str()), ("internal", ""));
    assert_eq!((before["query_timeout"].as_str(), before["enable_parallel_result_sink"].as_str()), ("900", "false"));
    let errors = set(
        &s,
        &fe,
        &[
            ("schema", text("d")),
            ("catalog", text("internal")),
            ("query_timeout", Some(OptionValue::Int(60))),
            ("enable_parallel_result_sink", Some(OptionValue::Bool(true))),
            ("time_zone", text("+08:00")),
        ],
    )
    .await;
    assert!(errors.is_empty(), "{errors:?}");
    let after = get(&s, &fe).await;
    assert_eq!((after["schema"].as_str(), after["query_timeout"].as_str()), ("d", "60"));
    assert_eq!((after["enable_parallel_result_sink"].as_str(), after["time_zone"].as_str()), ("true", "+08:00"));
    fe.execute("SELECT id FROM dup".into(), None).await.expect("the database is current");
    // The empty value resets.
    assert!(set(&s, &fe, &[("query_timeout", None), ("schema", None)]).await.is_empty());
    let reset = get(&s, &fe).await;
    assert_eq!((reset["schema"].as_str(), reset["query_timeout"].as_str()), ("", "900"));
    assert!(fe.execute("SELECT id FROM dup".into(), None).await.is_err(), "no database any more");
    set(&s, &fe, &[("schema", text("d"))]).await;
    assert!(set(&s, &fe, &[("schema", text(""))]).await.is_empty());
    assert_eq!(get(&s, &fe).await["schema"], "");
}

#[tokio::test]
async fn each_option_that_cannot_be_set_has_its_reason() {
    let s = sandbox().await;
    let fe = login(&s).await;
    let list = || Some(OptionValue::List(StringList { values: vec!["a".into()] }));
    for (name, value, error) in [
        ("no_such_variable", text("1"), ErrorValue::InvalidName),
        ("QUERY_TIMEOUT", Some(OptionValue::Int(1)), ErrorValue::InvalidName),
        ("Catalog", text("internal"), ErrorValue::InvalidName),
        ("query_timeout", text("soon"), ErrorValue::InvalidValue),
        ("query_timeout", list(), ErrorValue::InvalidValue),
        ("query_timeout", Some(OptionValue::Double(f64::NAN)), ErrorValue::InvalidValue),
        ("query_timeout", Some(OptionValue::Double(f64::INFINITY)), ErrorValue::InvalidValue),
        ("enable_parallel_result_sink", text("perhaps"), ErrorValue::InvalidValue),
        ("time_zone", text("Mars/Olympus"), ErrorValue::InvalidValue),
        ("catalog", text("hive"), ErrorValue::InvalidValue),
        ("catalog", text(""), ErrorValue::InvalidValue),
        ("catalog", None, ErrorValue::InvalidValue),
        ("catalog", Some(OptionValue::Int(1)), ErrorValue::InvalidValue),
        ("schema", text("none"), ErrorValue::InvalidValue),
        ("schema", Some(OptionValue::Bool(true)), ErrorValue::InvalidValue),
        ("version", text("1"), ErrorValue::Error),
        ("license", list(), ErrorValue::Error),
    ] {
        let errors = set(&s, &fe, &[(name, value.clone())]).await;
        assert_eq!(errors, HashMap::from([(name.to_owned(), error)]), "{name} {value:?}");
    }
    // One that fails does not keep the others from being set.
    let errors = set(&s, &fe, &[("schema", text("d")), ("catalog", text("hive")), ("query_timeout", text("7"))]).await;
    assert_eq!(errors.len(), 1);
    let now = get(&s, &fe).await;
    assert_eq!((now["schema"].as_str(), now["query_timeout"].as_str()), ("d", "7"));
}

#[tokio::test]
async fn older_builds_do_not_know_the_actions() {
    for profile in [Profile::V2_1, Profile::V5_0Binlog] {
        let s = builder().profile(profile).start().await.expect("sandbox");
        let fe = login(&s).await;
        for name in ["SetSessionOptions", "GetSessionOptions", "NoSuchAction"] {
            let error = action(&s, &fe, name, Vec::new()).await.expect_err("unknown");
            assert_eq!(error.code(), Code::Unimplemented, "{profile} {name}");
        }
    }
}

#[tokio::test]
async fn actions_are_listed_as_the_build_has_them() {
    for (profile, options) in [(Profile::V4_0, false), (Profile::V5_0Changelog, true)] {
        let s = builder().profile(profile).start().await.expect("sandbox");
        let mut raw = raw_client(s.addresses().fe_flight).await;
        let listed: Vec<_> = raw
            .list_actions(arrow_flight::Empty {})
            .await
            .expect("list")
            .into_inner()
            .try_collect()
            .await
            .expect("list");
        let has = |name: &str| listed.iter().any(|a| a.r#type == name);
        assert!(has("CloseSession") && has("CreatePreparedStatement"));
        assert_eq!((has("SetSessionOptions"), has("GetSessionOptions")), (options, options), "{profile}");
    }
}
