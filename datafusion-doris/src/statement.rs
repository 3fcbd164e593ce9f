//! Statements about catalogs, which DataFusion's SQL does not have.

use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::tokenizer::{Location, Token, TokenWithSpan, Tokenizer};

/// One of them.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum CatalogStatement {
    /// `CREATE [OR REPLACE] EXTERNAL CATALOG [IF NOT EXISTS] name STORED AS DORIS [LOCATION '…'] OPTIONS (…)`.
    Create {
        /// The same as a statement that DataFusion parses: with TABLE for CATALOG.
        as_table: String,
    },
    /// `REFRESH CATALOG name`.
    Refresh(String),
    /// `USE database`, `USE catalog` or `USE catalog.database`.
    Use(Vec<String>),
}

impl CatalogStatement {
    /// Reads `statement`; `None` when it is none of these, and DataFusion's to judge.
    pub(crate) fn parse(statement: &str) -> Option<Self> {
        let tokens = Tokenizer::new(&GenericDialect {}, statement).tokenize_with_location().ok()?;
        let tokens: Vec<TokenWithSpan> = tokens
            .into_iter()
            .filter(|token| !matches!(token.token, Token::Whitespace(_) | Token::SemiColon))
            .collect();
        let words: Vec<&Token> = tokens.iter().map(|token| &token.token).collect();
        let is = |at: usize, word: &str| is_word(words.get(at), word);
        if is(0, "create") {
            let external = if is(1, "or") && is(2, "replace") { 3 } else { 1 };
            let catalog =
                tokens.get(external + 1).filter(|_| is(external, "external") && is(external + 1, "catalog"))?;
            let begin = byte_of(statement, catalog.span.start);
            let end = byte_of(statement, catalog.span.end);
            let as_table = format!("{}TABLE{}", statement.get(..begin)?, statement.get(end..)?);
            return Some(Self::Create { as_table });
        }
        if is(0, "refresh") && is(1, "catalog") && words.len() == 3 {
            return Some(Self::Refresh(name(words[2])?));
        }
        if is(0, "use") {
            return match words[1..] {
                [one] => Some(Self::Use(vec![name(one)?])),
                [catalog, Token::Period, database] => Some(Self::Use(vec![name(catalog)?, name(database)?])),
                _ => None,
            };
        }
        None
    }
}

/// True when the statement shows lists of names.
pub(crate) fn shows_names(statement: &str) -> bool {
    let Ok(tokens) = Tokenizer::new(&GenericDialect {}, statement).tokenize() else { return false };
    let mut words = tokens.iter().filter(|token| !matches!(token, Token::Whitespace(_)));
    let first = words.next();
    is_word(first.as_ref(), "show")
        || tokens
            .iter()
            .any(|token| matches!(token, Token::Word(word) if word.value.eq_ignore_ascii_case("information_schema")))
}

/// An identifier as DataFusion reads it: in lower case unless quoted.
fn name(token: &Token) -> Option<String> {
    match token {
        Token::Word(word) if word.quote_style.is_some() => Some(word.value.clone()),
        Token::Word(word) => Some(word.value.to_lowercase()),
        _ => None,
    }
}

/// True for an unquoted `word`.
pub(crate) fn is_word(token: Option<&&Token>, word: &str) -> bool {
    matches!(token, Some(Token::Word(found)) if found.quote_style.is_none() && found.value.eq_ignore_ascii_case(word))
}

/// Where a place of the tokenizer is in the text: it counts lines and characters from 1.
pub(crate) fn byte_of(text: &str, Location { line, column }: Location) -> usize {
    let (line, column) = (usize::try_from(line).unwrap_or(usize::MAX), usize::try_from(column).unwrap_or(usize::MAX));
    let line_start = match line {
        0 | 1 => 0,
        _ => text.match_indices('\n').nth(line - 2).map_or(text.len(), |(index, _)| index + 1),
    };
    let rest = &text[line_start..];
    rest.char_indices().nth(column.saturating_sub(1)).map_or(text.len(), |(index, _)| line_start + index)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    #[test]
    fn statements_about_catalogs_are_told_from_others() {
        let names =
            |names: &[&str]| Some(CatalogStatement::Use(names.iter().map(|name| (*name).to_string()).collect()));
        let create = |text: &str| Some(CatalogStatement::Create { as_table: text.to_string() });
        for (sql, expected) in [
            ("CREATE EXTERNAL CATALOG d STORED AS DORIS", create("CREATE EXTERNAL TABLE d STORED AS DORIS")),
            (
                "create /* ü */ or replace\n external\n catalog d stored as doris",
                create("create /* ü */ or replace\n external\n TABLE d stored as doris"),
            ),
            ("CREATE EXTERNAL TABLE catalog STORED AS DORIS", None),
            ("CREATE TABLE catalog (id INT)", None),
            ("refresh catalog \"My\";", Some(CatalogStatement::Refresh("My".into()))),
            ("REFRESH TABLE t", None),
            ("USE Doris", names(&["doris"])),
            ("USE doris.`My Db`;", names(&["doris", "My Db"])),
            ("USE a.b.c", None),
            ("USE", None),
            ("SELECT 1", None),
            ("not 'closed", None),
        ] {
            assert_eq!(CatalogStatement::parse(sql), expected, "{sql}");
        }
    }

    #[test]
    fn statements_that_show_names_are_told_from_others() {
        assert!(shows_names(" SHOW TABLES"));
        assert!(shows_names("SELECT * FROM doris.Information_Schema.tables"));
        assert!(!shows_names("SELECT 'information_schema' FROM show"));
    }
}
