//! The header `columns`: names of the body's columns, and expressions over them.

use super::HeaderError;

/// One item of the header `columns`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ColumnItem {
    /// The next column of the body.
    Source(String),
    /// A column that is computed.
    Mapped {
        /// Its name.
        name: String,
        /// Text of the expression.
        expr: String,
    },
}

/// Splits `a, ``b``, c = f(a, 'x,y')` at the commas between items.
pub(super) fn parse(list: &str) -> Result<Vec<ColumnItem>, HeaderError> {
    let syntax = || HeaderError::analysis(format!("Syntax error in columns: {list}"));
    let inner = list.strip_prefix('(').and_then(|l| l.strip_suffix(')')).unwrap_or(list);
    let mut items = Vec::new();
    for piece in split(inner).ok_or_else(syntax)? {
        items.push(item(piece.trim()).ok_or_else(syntax)?);
    }
    for (i, item) in items.iter().enumerate() {
        let twice = items[..i].iter().any(|earlier| match (earlier, item) {
            (ColumnItem::Source(a), ColumnItem::Source(b)) => a.eq_ignore_ascii_case(b),
            (ColumnItem::Mapped { name: a, .. }, ColumnItem::Mapped { name: b, .. }) => a.eq_ignore_ascii_case(b),
            _ => false,
        });
        if twice {
            let (ColumnItem::Source(name) | ColumnItem::Mapped { name, .. }) = item;
            return Err(HeaderError::analysis(format!("Duplicate column: {name}")));
        }
    }
    Ok(items)
}

/// The texts between commas outside of quotes and brackets; `None` when those do not match.
fn split(list: &str) -> Option<Vec<&str>> {
    let mut pieces = Vec::new();
    let (mut start, mut depth) = (0, 0_usize);
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

fn item(text: &str) -> Option<ColumnItem> {
    let (name, rest) = match text.strip_prefix('`') {
        Some(quoted) => {
            let (name, rest) = quoted.split_once('`')?;
            (name.trim(), rest)
        }
        None => {
            let end = text.find(|c: char| c == '=' || c.is_whitespace()).unwrap_or(text.len());
            let (name, rest) = text.split_at(end);
            let plain = |c: char| c.is_alphanumeric() || matches!(c, '_' | '$' | '@' | '-' | '.' | '/');
            (Some(name).filter(|n| n.chars().all(plain))?, rest)
        }
    };
    if name.is_empty() {
        return None;
    }
    match rest.trim() {
        "" => Some(ColumnItem::Source(name.to_owned())),
        rest => {
            let expr = rest.strip_prefix('=')?.trim();
            (!expr.is_empty()).then(|| ColumnItem::Mapped { name: name.to_owned(), expr: expr.to_owned() })
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    fn source(name: &str) -> ColumnItem {
        ColumnItem::Source(name.to_owned())
    }

    fn mapped(name: &str, expr: &str) -> ColumnItem {
        ColumnItem::Mapped { name: name.to_owned(), expr: expr.to_owned() }
    }

    #[test]
    fn names_lose_backticks_and_blanks() {
        assert_eq!(
            parse(" a, `b c` ,`d,e`,__DORIS_DELETE_SIGN__").expect("columns"),
            [source("a"), source("b c"), source("d,e"), source("__DORIS_DELETE_SIGN__")]
        );
        assert_eq!(parse("(a,b)").expect("columns"), [source("a"), source("b")]);
    }

    #[test]
    fn expressions_keep_their_commas_and_equal_signs() {
        assert_eq!(
            parse("a,tmp, `c` = tmp+1 ,user_id=to_bitmap(user_id),d=if(a = 1, 'x,(\\'', concat(\"`\", b)), e=[1,2]")
                .expect("columns"),
            [
                source("a"),
                source("tmp"),
                mapped("c", "tmp+1"),
                mapped("user_id", "to_bitmap(user_id)"),
                mapped("d", "if(a = 1, 'x,(\\'', concat(\"`\", b))"),
                mapped("e", "[1,2]"),
            ]
        );
    }

    #[test]
    fn what_is_no_list_is_refused() {
        for list in ["a,,b", "a,", "a b", "`a", "a=", "=1", "a)", "f(a", "a,b='x", "f(a)"] {
            let error = parse(list).expect_err(list);
            assert!(error.message.ends_with(&format!("Syntax error in columns: {list}")), "{list}: {error:?}");
        }
        for list in ["a,b,A", "a,b=a,B=1"] {
            assert!(parse(list).expect_err(list).message.contains("Duplicate column: "), "{list}");
        }
        assert!(parse("a,a=a+1").is_ok(), "a column may be computed from itself");
    }
}
