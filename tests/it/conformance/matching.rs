//! Comparing what came with what a case expects.

use serde_json::Value;

/// Whether `text` is what `pattern` describes; `*` stands for any text.
pub fn glob(pattern: &str, text: &str) -> bool {
    let parts: Vec<&str> = pattern.split('*').collect();
    let [first, middle @ .., last] = parts.as_slice() else { return pattern == text };
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    for part in middle {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

/// The value at a path such as `data.rows.0`, as text: strings bare, everything else as compact JSON.
pub fn json_text(value: &Value, path: &str) -> Option<String> {
    let mut at = value;
    for step in path.split('.') {
        if step == "#" {
            let length = at.as_array().map(Vec::len).or_else(|| at.as_object().map(serde_json::Map::len))?;
            return Some(length.to_string());
        }
        at = match step.parse::<usize>() {
            Ok(index) if at.is_array() => at.get(index)?,
            _ => at.get(step)?,
        };
    }
    Some(at.as_str().map_or_else(|| at.to_string(), str::to_owned))
}

/// Top-level keys of a JSON object in the order of the text; a key may come twice.
pub fn keys(text: &str) -> Vec<String> {
    let (mut keys, mut depth, mut string) = (Vec::new(), 0_usize, None::<String>);
    let (mut last, mut escaped) = (None::<String>, false);
    for c in text.chars() {
        if let Some(read) = string.as_mut() {
            if escaped {
                escaped = false;
                read.push(c);
            } else if c == '\\' {
                escaped = true;
            } else if c == '"' {
                last = string.take();
            } else {
                read.push(c);
            }
            continue;
        }
        match c {
            '"' => string = Some(String::new()),
            '{' | '[' => depth += 1,
            '}' | ']' => depth = depth.saturating_sub(1),
            ':' if depth == 1 => keys.extend(last.take()),
            _ => {}
        }
    }
    keys
}

/// Compares a refusal, `CODE TEXT`, with what is expected of it: the text contains the expected one.
pub fn expect_refusal(expected: &str, got: &str) -> Result<(), String> {
    let (code, text) = expected.split_once(' ').unwrap_or((expected, ""));
    let (got_code, got_text) = got.split_once(' ').unwrap_or((got, ""));
    let same = glob(code, got_code) && glob(&format!("*{text}*"), got_text);
    if same { Ok(()) } else { Err(format!("expected error {expected}\ngot      error {got}")) }
}

/// A cell as the case files write it.
pub fn cell(text: Option<&str>) -> String {
    match text {
        None => "NULL".to_owned(),
        Some("") => "(empty)".to_owned(),
        Some(text) => text.replace('\n', "\\n").replace('\r', "\\r").replace('\t', "\\t"),
    }
}

/// Compares rows; the error says both.
pub fn rows(expected: &[String], got: &[String], sort: bool, among: bool) -> Result<(), String> {
    let (mut want, mut have) = (expected.to_vec(), got.to_vec());
    if sort {
        want.sort();
        have.sort();
    }
    let same = if among {
        want.iter().all(|row| have.iter().any(|candidate| glob(row, candidate)))
    } else {
        want.len() == have.len() && want.iter().zip(&have).all(|(row, candidate)| glob(row, candidate))
    };
    if same { Ok(()) } else { Err(format!("expected\n  {}\ngot\n  {}", want.join("\n  "), have.join("\n  "))) }
}
