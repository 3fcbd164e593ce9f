//! Secrets in statements of users, as in `S3("s3.secret_key" = "…")`.

use datafusion::sql::sqlparser::dialect::MySqlDialect;
use datafusion::sql::sqlparser::tokenizer::{Token, Tokenizer};

/// `sql` for people to see: values that are given to a property of a secret are replaced. A statement that cannot be read
/// is left out whole.
pub(crate) fn without_secrets(sql: &str) -> String {
    let Ok(mut tokens) = Tokenizer::new(&MySqlDialect {}, sql).with_unescape(false).tokenize() else {
        return "(a statement that cannot be shown)".to_string();
    };
    let mut secret = false;
    for token in &mut tokens {
        match token {
            Token::SingleQuotedString(text) | Token::DoubleQuotedString(text) if secret => {
                "******".clone_into(text);
                secret = false;
            }
            Token::SingleQuotedString(text) | Token::DoubleQuotedString(text) => secret = names_secret(text),
            Token::Eq | Token::Whitespace(_) => {}
            _ => secret = false,
        }
    }
    tokens.iter().map(ToString::to_string).collect()
}

fn names_secret(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    ["secret", "password", "token", "access_key", "access-key"].iter().any(|word| text.contains(word))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    #[test]
    fn values_of_secrets_are_not_shown() {
        let sql =
            "SELECT 'it''s', `a` FROM S3('uri' = 's3://b/x', \"s3.secret_key\" = \"hunter2\", 's3.access_key'='id')";
        let shown = without_secrets(sql);
        assert!(!shown.contains("hunter2") && !shown.contains("'id'"), "{shown}");
        assert!(shown.contains("SELECT 'it''s', `a` FROM S3('uri' = 's3://b/x'"), "{shown}");
        assert!(!without_secrets("SELECT 'open").contains("open"));
    }
}
