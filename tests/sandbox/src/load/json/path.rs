//! JSON paths of `jsonpaths` and `json_root`: `$.a.b[0]`, `$.a[*].b`, `$."a.b"`.

use std::borrow::Cow;

use super::{JsonError, Scanner, Value};

#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    Member(String),
    Index(usize),
    All,
}

/// A way from the root of a document to a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonPath(Vec<Step>);

impl JsonPath {
    /// Reads a path; `None` when the text is not one.
    pub fn parse(text: &str) -> Option<Self> {
        let mut rest = text.trim().strip_prefix('$')?;
        let mut steps = Vec::new();
        // `$.` is the root, too.
        if rest == "." {
            rest = "";
        }
        while !rest.is_empty() {
            if let Some(member) = rest.strip_prefix('.') {
                let (name, after) = match member.strip_prefix('"') {
                    Some(quoted) => {
                        let (name, after) = quoted.split_once('"')?;
                        (name, after)
                    }
                    None => member.split_at(member.find(['.', '[']).unwrap_or(member.len())),
                };
                if name.is_empty() {
                    return None;
                }
                steps.push(Step::Member(name.to_owned()));
                rest = after;
            } else {
                let (index, after) = rest.strip_prefix('[')?.split_once(']')?;
                let index = index.trim();
                steps.push(match index {
                    "*" => Step::All,
                    digits if digits.bytes().all(|b| b.is_ascii_digit()) => Step::Index(digits.parse().ok()?),
                    quoted => {
                        let name = quoted.strip_prefix('"')?.strip_suffix('"').filter(|n| !n.is_empty())?;
                        Step::Member(name.to_owned())
                    }
                });
                rest = after;
            }
        }
        Some(Self(steps))
    }

    /// The value in `text`, which is JSON; `None` when nothing stands there.
    ///
    /// # Errors
    /// The text is not JSON.
    pub fn find<'a>(&self, text: &'a str) -> Result<Option<Value<'a>>, JsonError> {
        follow(&self.0, text)
    }
}

fn follow<'a>(steps: &[Step], text: &'a str) -> Result<Option<Value<'a>>, JsonError> {
    let Some((step, rest)) = steps.split_first() else { return Scanner::new(text).value().map(Some) };
    match step {
        Step::Member(name) => match member(text, name)? {
            Some(inner) => follow(rest, inner),
            None => Ok(None),
        },
        Step::Index(index) => match elements(text)?.get(*index) {
            Some(inner) => follow(rest, inner),
            None => Ok(None),
        },
        Step::All => {
            let mut found = Vec::new();
            for inner in elements(text)? {
                if let Some(value) = follow(rest, inner)? {
                    found.push(json_text(&value));
                }
            }
            let all = || Value::Nested(Cow::Owned(format!("[{}]", found.join(","))));
            Ok((!found.is_empty()).then(all))
        }
    }
}

/// Text of a member of an object; `None` when there is none or `text` is no object.
fn member<'a>(text: &'a str, name: &str) -> Result<Option<&'a str>, JsonError> {
    let mut scanner = Scanner::new(text);
    if !scanner.eat(b'{') || scanner.eat(b'}') {
        return Ok(None);
    }
    loop {
        scanner.blanks();
        let key = scanner.string()?;
        if !scanner.eat(b':') {
            return scanner.error("expected a colon");
        }
        let value = scanner.raw()?;
        if key == name {
            return Ok(Some(value));
        }
        if !scanner.eat(b',') {
            return Ok(None);
        }
    }
}

/// Texts of the elements of an array; none when `text` is no array.
fn elements(text: &str) -> Result<Vec<&str>, JsonError> {
    let mut scanner = Scanner::new(text);
    let mut out = Vec::new();
    if !scanner.enter_array() {
        return Ok(out);
    }
    while scanner.next_element(out.is_empty())? {
        out.push(scanner.raw()?);
    }
    Ok(out)
}

fn json_text(value: &Value<'_>) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Literal(text) => (*text).to_owned(),
        Value::Nested(text) => text.clone().into_owned(),
        Value::Text(text) => serde_json::to_string(text).unwrap_or_default(),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    const ROW: &str =
        r#"{"a": {"b": [ {"c": 1.50}, {"c": "x\"y"}, {"d": null} ], "n": null}, "a.b": true, "e": [[1, 2], [3]]}"#;

    fn found(path: &str) -> Option<Value<'static>> {
        JsonPath::parse(path).expect(path).find(ROW).expect("json")
    }

    #[test]
    fn values_are_found_with_their_digits() {
        for (path, value) in [
            ("$.a.b[0].c", Some(Value::Literal("1.50"))),
            ("$.a.b[1].c", Some(Value::Text("x\"y".into()))),
            ("$.a.n", Some(Value::Null)),
            ("$.a.b[2].d", Some(Value::Null)),
            ("$.\"a.b\"", Some(Value::Literal("true"))),
            ("$[\"a.b\"]", Some(Value::Literal("true"))),
            ("$.e[1]", Some(Value::Nested("[3]".into()))),
            ("$.a.b[*].c", Some(Value::Nested(r#"[1.50,"x\"y"]"#.into()))),
            ("$.e[*][0]", Some(Value::Nested("[1,3]".into()))),
            ("$.e[7]", None),
            ("$.x", None),
            ("$.e.x", None),
            ("$.a.b[*].x", None),
        ] {
            assert_eq!(found(path), value, "{path}");
        }
        assert_eq!(found("$"), found("$."));
        assert_eq!(found("$"), Some(Value::Nested(ROW.into())));
    }

    #[test]
    fn what_is_no_path_is_refused() {
        for text in ["", "a", "$a", "$..a", "$.a[", "$.a[x]", "$.a[-1]", "$.\"a", "$[]"] {
            assert_eq!(JsonPath::parse(text), None, "{text}");
        }
    }
}
