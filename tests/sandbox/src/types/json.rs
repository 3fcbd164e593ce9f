//! JSON text in the form in which servers print it: valid, without blanks between tokens.

/// The text without blanks outside strings; `None` when it is not JSON.
pub fn canonical(text: &str) -> Option<String> {
    serde_json::from_str::<serde::de::IgnoredAny>(text).ok()?;
    let mut out = String::with_capacity(text.len());
    let (mut quoted, mut escaped) = (false, false);
    for c in text.chars() {
        if quoted {
            out.push(c);
            quoted = escaped || c != '"';
            escaped = !escaped && c == '\\';
        } else if !c.is_ascii_whitespace() {
            out.push(c);
            quoted = c == '"';
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::canonical;

    #[test]
    fn blanks_go_and_values_stay() {
        for (text, printed) in [
            (" { \"a b\" : [ 1 , 2.50 , \"x \\\" y\" ] } ", Some("{\"a b\":[1,2.50,\"x \\\" y\"]}")),
            ("\"\\\\\" ", Some("\"\\\\\"")),
            ("170141183460469231731687303715884105727", Some("170141183460469231731687303715884105727")),
            ("{a:1}", None),
            ("", None),
            ("[1] 2", None),
        ] {
            assert_eq!(canonical(text).as_deref(), printed, "{text}");
        }
    }
}
