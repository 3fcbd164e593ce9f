#![allow(clippy::unwrap_used, clippy::expect_used)]

use super::*;

fn members(text: &str) -> Result<Vec<(String, Value<'_>)>, JsonError> {
    let mut out = Vec::new();
    let mut scanner = Scanner::new(text);
    scanner.object(|key, value| out.push((key.into_owned(), value)))?;
    assert!(scanner.at_end(), "{text}");
    Ok(out)
}

#[test]
fn numbers_keep_their_digits() {
    let text = r#"{"b": 9007199254740993, "l":-170141183460469231731687303715884105728, "d":9999999999999999999999999999.9999999999, "e":1.50E+3}"#;
    let values: Vec<Value<'_>> = members(text).expect("json").into_iter().map(|(_, v)| v).collect();
    assert_eq!(
        values,
        [
            Value::Literal("9007199254740993"),
            Value::Literal("-170141183460469231731687303715884105728"),
            Value::Literal("9999999999999999999999999999.9999999999"),
            Value::Literal("1.50E+3"),
        ]
    );
}

#[test]
fn values_of_every_kind() {
    let read = members(r#" { "a" : null, "b":true,"c":[1,{"x":"]"}], "d":{"k":[]}, "e":"x", "f":"" } "#).expect("json");
    let values: Vec<Value<'_>> = read.into_iter().map(|(_, v)| v).collect();
    assert_eq!(
        values,
        [
            Value::Null,
            Value::Literal("true"),
            Value::Nested(r#"[1,{"x":"]"}]"#.into()),
            Value::Nested(r#"{"k":[]}"#.into()),
            Value::Text("x".into()),
            Value::Text("".into()),
        ]
    );
    assert_eq!(members("{}").expect("json"), []);
}

#[test]
fn strings_are_unescaped() {
    let read = members(r#"{"\u00fc\"":"a\\b\/\n\t\u0041\ud83d\ude00é"}"#).expect("json");
    assert_eq!(read[0].0, "ü\"");
    assert_eq!(read[0].1, Value::Text("a\\b/\n\tA😀é".into()));
}

#[test]
fn texts_that_are_not_json_are_refused() {
    for text in [
        "",
        "1",
        "{",
        "{\"a\"}",
        "{\"a\":}",
        "{\"a\":1,}",
        "{\"a\":01}x",
        "{\"a\":1.}",
        "{\"a\":+1}",
        "{\"a\":nul}",
        "{\"a\":\"x}",
        "{\"a\":\"\\q\"}",
        "{\"a\":\"\\ud800\"}",
        "{\"a\":\"\\u12é4\"}",
        "{a:1}",
        "{\"a\":[1 2]}",
        "{\"a\":'x'}",
        "{\"a\":\"\n\"}",
    ] {
        let mut scanner = Scanner::new(text);
        let read = scanner.object(|_, _| {});
        assert!(read.is_err() || !scanner.at_end(), "{text}");
    }
}

#[test]
fn depth_is_bounded() {
    let deep = format!("{{\"a\":{}{}}}", "[".repeat(5000), "]".repeat(5000));
    assert_eq!(members(&deep).expect_err("too deep").what, "nested too deep");
}

#[test]
fn arrays_are_read_element_by_element() {
    let mut scanner = Scanner::new(r#"[{"a":1}, {"a":2}]"#);
    assert!(scanner.enter_array());
    let mut seen = Vec::new();
    let mut first = true;
    while scanner.next_element(first).expect("array") {
        first = false;
        scanner.object(|_, value| seen.push(value)).expect("object");
    }
    assert_eq!(seen, [Value::Literal("1"), Value::Literal("2")]);
    assert!(scanner.at_end());
}

proptest::proptest! {
    #[test]
    fn what_serde_prints_is_read_back(key in ".{0,8}", text in ".{0,16}", number in proptest::num::i64::ANY) {
        let printed = serde_json::json!({ "k": number, &key: &text }).to_string();
        let read = members(&printed).expect("json");
        let found = read.iter().any(|(k, v)| *k == key && *v == Value::Text(text.as_str().into()));
        proptest::prop_assert!(found, "{}", printed);
    }
}
