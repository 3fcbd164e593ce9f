//! The header `columns` of a load: names of the body's columns, and expressions over them.

use super::value::Parsed;

/// `sink.properties.columns`, taken apart.
///
/// ```text
/// dt, page, user_id, user_id = to_bitmap(user_id)
/// ─────────────────  ───────────────────────────
/// body, in order     computed by Doris from the body
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LoadColumns {
    /// Names of the body's columns, in its order; none = what the rows have.
    pub body: Vec<String>,
    /// Columns that Doris computes: name and expression.
    pub computed: Vec<(String, String)>,
}

impl LoadColumns {
    /// Takes a list apart at the commas outside of quotes and brackets; names may stand in backticks.
    ///
    /// # Errors
    /// The reason, when the text is no such list or names a column twice.
    pub fn parse(text: &str) -> Result<Self, String> {
        let syntax = || format!("'{text}' is not a list of columns like a,b,c=f(a)");
        let text_of_list = text.trim();
        let list = text_of_list.strip_prefix('(').and_then(|list| list.strip_suffix(')')).unwrap_or(text_of_list);
        let mut columns = Self::default();
        for piece in pieces(list).ok_or_else(syntax)? {
            match item(piece.trim()).ok_or_else(syntax)? {
                (name, None) => columns.body.push(name),
                (name, Some(expression)) => columns.computed.push((name, expression)),
            }
        }
        let twice = |names: &[&str]| {
            let repeats = |at: &usize| names[..*at].iter().any(|earlier| earlier.eq_ignore_ascii_case(names[*at]));
            (0..names.len()).find(repeats).map(|at| names[at].to_string())
        };
        let body: Vec<&str> = columns.body.iter().map(String::as_str).collect();
        let computed: Vec<&str> = columns.computed.iter().map(|(name, _)| name.as_str()).collect();
        match twice(&body).or_else(|| twice(&computed)) {
            Some(name) => Err(format!("names column '{name}' twice")),
            None => Ok(columns),
        }
    }

    /// Whether the body has a column of this name; Doris compares names without case.
    pub fn in_body(&self, name: &str) -> bool {
        self.body.iter().any(|column| column.eq_ignore_ascii_case(name))
    }

    /// Whether a column of this name is computed.
    pub fn is_computed(&self, name: &str) -> bool {
        self.computed.iter().any(|(column, _)| column.eq_ignore_ascii_case(name))
    }
}

/// Checks a list without keeping it.
pub(super) fn check(text: &str) -> Parsed<()> {
    if text.chars().any(char::is_control) {
        return Err("has a control character, which a header cannot carry".into());
    }
    LoadColumns::parse(text).map(drop)
}

/// The texts between commas outside of quotes and brackets; `None` when those do not match.
fn pieces(list: &str) -> Option<Vec<&str>> {
    let mut pieces = Vec::new();
    let (mut start, mut depth) = (0, 0usize);
    let mut quote = None;
    let mut chars = list.char_indices();
    while let Some((at, c)) = chars.next() {
        match (quote, c) {
            (Some('\'' | '"'), '\\') => {
                chars.next();
            }
            (Some(open), c) if c == open => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"' | '`') => quote = Some(c),
            (None, '(' | '[') => depth += 1,
            (None, ')' | ']') => depth = depth.checked_sub(1)?,
            (None, ',') if depth == 0 => {
                pieces.push(&list[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    pieces.push(&list[start..]);
    (quote.is_none() && depth == 0).then_some(pieces)
}

/// `name`, or `name = expression`.
fn item(text: &str) -> Option<(String, Option<String>)> {
    let (name, rest) = match text.strip_prefix('`') {
        Some(quoted) => quoted.split_once('`')?,
        None => text.split_at(text.find(['=', ' ', '\t', '(', '`']).unwrap_or(text.len())),
    };
    let (name, rest) = (name.trim(), rest.trim());
    if name.is_empty() {
        return None;
    }
    if rest.is_empty() {
        return Some((name.to_string(), None));
    }
    let expression = rest.strip_prefix('=')?.trim();
    (!expression.is_empty()).then(|| (name.to_string(), Some(expression.to_string())))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_taken_apart() {
        type Case<'a> = (&'a str, &'a [&'a str], &'a [(&'a str, &'a str)]);
        let cases: [Case<'_>; 5] = [
            (
                "dt,page,user_id,user_id=to_bitmap(user_id)",
                &["dt", "page", "user_id"],
                &[("user_id", "to_bitmap(user_id)")],
            ),
            (" `a b` , B ", &["a b", "B"], &[]),
            ("(a,b)", &["a", "b"], &[]),
            ("c = if(a = 1, 'x,(\\'', concat(b, \"`\"))", &[], &[("c", "if(a = 1, 'x,(\\'', concat(b, \"`\"))")]),
            ("a,`c`=[a,1]", &["a"], &[("c", "[a,1]")]),
        ];
        for (text, body, computed) in cases {
            let columns = LoadColumns::parse(text).unwrap();
            assert_eq!(columns.body, body, "{text}");
            let found: Vec<(&str, &str)> = columns.computed.iter().map(|(n, e)| (n.as_str(), e.as_str())).collect();
            assert_eq!(found, computed, "{text}");
        }
        let columns = LoadColumns::parse("a,b=a").unwrap();
        assert!(columns.in_body("A") && columns.is_computed("B") && !columns.in_body("b"));
    }

    #[test]
    fn other_texts_are_refused() {
        for text in ["", "a,,b", "a b", "a=", "=1", "f(a", "f(a)", "a)", "`a", "a,b='x", "a,A", "x=1,X=2"] {
            assert!(LoadColumns::parse(text).is_err(), "{text}");
        }
        assert!(check("a,b\n").is_err());
    }
}
