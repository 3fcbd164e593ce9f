//! DataFusion sessions with Doris.

use std::sync::Arc;

use datafusion::dataframe::DataFrame;
use datafusion::execution::session_state::SessionStateBuilder;
use datafusion::prelude::{SessionConfig, SessionContext};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::tokenizer::{Token, Tokenizer};

use crate::error::Result;
use crate::factory::{DORIS_FORMAT, DorisTableFactory};
use crate::optimizer::with_stream_rules;

/// Adds `STORED AS DORIS` and the optimizer rules for streams to a context. The session's settings stay as they are.
///
/// Doing it twice changes nothing.
///
/// # Errors
/// None at present.
pub fn register(context: &SessionContext) -> Result<()> {
    let shared = context.state_ref();
    let mut state = shared.write();
    let rules = with_stream_rules(state.physical_optimizers());
    let mut extended =
        SessionStateBuilder::new_from_existing(state.clone()).with_physical_optimizer_rules(rules).build();
    extended.table_factories_mut().insert(DORIS_FORMAT.to_string(), Arc::new(DorisTableFactory::default()));
    *state = extended;
    Ok(())
}

/// A context to start with: Doris registered, `information_schema` on (for SHOW TABLES and DESCRIBE), text columns as
/// plain Utf8, which is what Doris sends.
pub fn session_context() -> SessionContext {
    let mut config = SessionConfig::new().with_information_schema(true);
    config.options_mut().sql_parser.map_string_types_to_utf8view = false;
    let state = SessionStateBuilder::new().with_config(config).with_default_features();
    let rules = with_stream_rules(&datafusion::physical_optimizer::optimizer::PhysicalOptimizer::new().rules);
    let state = state
        .with_physical_optimizer_rules(rules)
        .with_table_factory(DORIS_FORMAT.to_string(), Arc::new(DorisTableFactory::default()))
        .build();
    SessionContext::new_with_state(state)
}

/// Plans one statement, as [`SessionContext::sql`] does; `LOCATION` may be left out of `STORED AS DORIS`.
///
/// # Errors
/// Those of [`SessionContext::sql`].
pub async fn sql(context: &SessionContext, statement: &str) -> datafusion::error::Result<DataFrame> {
    context.sql(&with_optional_location(statement)).await
}

/// `statement` with an empty `LOCATION` when it creates a Doris table and names none: DataFusion demands the clause.
pub(crate) fn with_optional_location(statement: &str) -> String {
    let Ok(tokens) = Tokenizer::new(&GenericDialect {}, statement).tokenize() else {
        // The parser tells what is wrong.
        return statement.to_string();
    };
    let significant: Vec<&Token> =
        tokens.iter().filter(|token| !matches!(token, Token::Whitespace(_) | Token::SemiColon)).collect();
    if !creates_doris_table(&significant) || has_location(&significant) {
        return statement.to_string();
    }
    // On a line of its own, since the statement may end with a comment; a final semicolon moves behind the clause.
    let mut text: Vec<Token> = tokens;
    while let Some(Token::Whitespace(_) | Token::SemiColon) = text.last() {
        text.pop();
    }
    let text: String = text.iter().map(Token::to_string).collect();
    format!("{text}\nLOCATION ''")
}

fn is_word(token: Option<&&Token>, word: &str) -> bool {
    matches!(token, Some(Token::Word(found)) if found.quote_style.is_none() && found.value.eq_ignore_ascii_case(word))
}

fn creates_doris_table(tokens: &[&Token]) -> bool {
    // CREATE [OR REPLACE] [UNBOUNDED] EXTERNAL …
    is_word(tokens.first(), "create")
        && tokens.iter().take(5).any(|token| is_word(Some(token), "external"))
        && tokens.windows(3).any(|found| {
            is_word(found.first(), "stored") && is_word(found.get(1), "as") && is_word(found.get(2), DORIS_FORMAT)
        })
}

/// True when the clause stands outside of parentheses (a column may be named `location`).
fn has_location(tokens: &[&Token]) -> bool {
    let mut depth = 0usize;
    tokens.windows(2).any(|pair| {
        match pair[0] {
            Token::LParen => depth += 1,
            Token::RParen => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth == 0
            && is_word(pair.first(), "location")
            && matches!(pair[1], Token::SingleQuotedString(_) | Token::DoubleQuotedString(_) | Token::LParen)
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    #[test]
    fn location_is_added_only_where_it_is_missing() {
        let added = |sql: &str| with_optional_location(sql).ends_with("\nLOCATION ''");
        assert!(added("CREATE EXTERNAL TABLE t STORED AS DORIS OPTIONS ('fenodes' 'a:1');"));
        assert!(added("create or replace unbounded external table t stored as doris"));
        assert!(added("CREATE EXTERNAL TABLE t (location VARCHAR) STORED AS DORIS"));
        assert!(added("CREATE EXTERNAL TABLE t STORED AS DORIS OPTIONS ('x' 'LOCATION ''''')"));
        assert!(!added("CREATE EXTERNAL TABLE t STORED AS DORIS LOCATION 'doris://fe:8030/db/t'"));
        assert!(!added("CREATE EXTERNAL TABLE t STORED AS CSV"));
        assert!(!added("SELECT 'CREATE EXTERNAL TABLE t STORED AS DORIS'"));
        assert!(!added("not 'closed"));
    }

    #[tokio::test]
    async fn statement_that_ends_with_a_comment_or_semicolon_still_parses() {
        let context = session_context();
        for end in ["", ";", " ; ", " -- the end", "; -- the end", " /* the end */"] {
            let sql = format!("CREATE EXTERNAL TABLE t STORED AS DORIS OPTIONS ('fenodes' 'it''s'){end}");
            let plan = context.state().create_logical_plan(&with_optional_location(&sql)).await;
            assert!(plan.is_ok(), "{sql}: {}", plan.unwrap_err());
        }
    }

    #[test]
    fn registering_twice_adds_nothing() {
        let context = SessionContext::new();
        register(&context).unwrap();
        let rules = context.state().physical_optimizers().len();
        let session = context.session_id();
        register(&context).unwrap();
        assert_eq!(context.state().physical_optimizers().len(), rules);
        assert_eq!(context.session_id(), session);
        assert!(context.state().table_factories().contains_key(DORIS_FORMAT));
    }
}
