//! What Doris says of an INSERT over the MySQL protocol: in the info of the answer, and in the text of an error.

use super::LabelState;
use super::stream_load::without_signature;

/// The info of the answer to an INSERT: `{'label':'L', 'status':'visible', 'txnId':'N'}`, with `'err'` where something
/// was odd.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InsertAnswer {
    /// Label of the load.
    pub label: Option<String>,
    /// State of its transaction; `None` when the text does not tell one that is known.
    pub state: Option<LabelState>,
    /// Id of its transaction.
    pub txn_id: Option<i64>,
    /// A remark on what was not as usual.
    pub remark: Option<String>,
}

impl InsertAnswer {
    /// Reads the info, tolerant of keys in any order, of missing ones and of spaces.
    pub fn parse(info: &str) -> Self {
        let value = |key: &str| {
            let (_, rest) = info.split_once(&format!("'{key}'"))?;
            let rest = rest.trim_start().strip_prefix(':')?.trim_start().strip_prefix('\'')?;
            // A remark is a text of any kind, and the last value.
            let end = match key {
                "err" => rest.rfind('\'')?,
                _ => rest.find('\'')?,
            };
            Some(rest[..end].to_string()).filter(|value| !value.is_empty())
        };
        Self {
            label: value("label"),
            state: value("status").and_then(|status| status.parse().ok()),
            txn_id: value("txnId").and_then(|id| id.parse().ok()).filter(|id| *id > 0),
            remark: value("err"),
        }
    }
}

/// The address of the log of refused rows in the text of an error.
pub fn error_log_in(text: &str) -> Option<&str> {
    urls(text).map(|(_, url)| url).find(|url| url.contains("_load_error_log"))
}

/// The text without what a signed URL gives away: whoever has the signature can read the object.
pub fn without_signatures(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut end = 0;
    for (at, url) in urls(text) {
        out.push_str(&text[end..at]);
        out.push_str(&without_signature(url.to_string()));
        end = at + url.len();
    }
    out.push_str(&text[end..]);
    out
}

/// The URLs in a text and where they begin.
fn urls(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut from = 0;
    std::iter::from_fn(move || {
        loop {
            let at = from + text.get(from..)?.find("http")?;
            let rest = &text[at..];
            if !rest.starts_with("http://") && !rest.starts_with("https://") {
                from = at + "http".len();
                continue;
            }
            let is_end =
                |c: char| c.is_whitespace() || matches!(c, '\'' | '"' | '<' | '>' | ')' | '}' | ']' | ',' | ';');
            let url = rest.split(is_end).next().unwrap_or_default().trim_end_matches('.');
            from = at + url.len();
            return Some((at, url));
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn info_of_an_insert_is_read_in_every_form() {
        let answer = |label: &str, state, txn_id, remark: Option<&str>| InsertAnswer {
            label: Some(label.to_string()).filter(|label| !label.is_empty()),
            state,
            txn_id,
            remark: remark.map(str::to_string),
        };
        let cases = [
            (
                "{'label':'l_1', 'status':'visible', 'txnId':'4005'}",
                answer("l_1", Some(LabelState::Visible), Some(4005), None),
            ),
            (
                "{'label':'a-b:c', 'status':'COMMITTED', 'txnId':'7', 'err':'it's odd, 'really''}",
                answer("a-b:c", Some(LabelState::Committed), Some(7), Some("it's odd, 'really'")),
            ),
            ("{ 'txnId' : '9', 'status' : 'PREPARE' }", answer("", Some(LabelState::Prepare), Some(9), None)),
            ("{'label':'', 'status':'new', 'txnId':'-1'}", answer("", None, None, None)),
            ("{'label':'l', 'status':'vis", answer("l", None, None, None)),
            ("", InsertAnswer::default()),
        ];
        for (info, expected) in cases {
            assert_eq!(InsertAnswer::parse(info), expected, "{info}");
        }
    }

    #[test]
    fn address_of_the_log_is_found_in_errors() {
        let log = "http://10.0.0.7:8040/api/_load_error_log?file=__shard_0/error_log_insert_stmt_1-2";
        for (text, expected) in [
            (format!("Insert has filtered data in strict mode. url: {log}"), Some(log)),
            (format!("see https://doris.apache.org/x. url: {log}, first_error_msg: y"), Some(log)),
            (format!("[CANCELLED]too many filtered rows ({log})."), Some(log)),
            ("see http and https://doris.apache.org/docs".to_string(), None),
            ("http".to_string(), None),
            (String::new(), None),
        ] {
            assert_eq!(error_log_in(&text), expected, "{text}");
        }
    }

    #[test]
    fn signatures_are_in_no_text() {
        let signed =
            "url: https://b.s3/log?X-Amz-Date=1&X-Amz-Signature=abc, and http://be:8040/api/_load_error_log?file=x.";
        assert_eq!(without_signatures(signed), "url: https://b.s3/log, and http://be:8040/api/_load_error_log?file=x.");
        assert_eq!(without_signatures("no url: http é"), "no url: http é");
    }
}
