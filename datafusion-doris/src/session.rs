//! DataFusion sessions with Doris.

use std::sync::Arc;

use datafusion::dataframe::DataFrame;
use datafusion::execution::session_state::SessionStateBuilder;
use datafusion::optimizer::AnalyzerRule;
use datafusion::prelude::{SessionConfig, SessionContext};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::tokenizer::{Location, Token, TokenWithSpan, Tokenizer};

use crate::error::Result;
use crate::factory::{DORIS_FORMAT, DorisTableFactory};
use crate::optimizer::{WholeStatements, with_stream_rules};
use crate::options::JobOptions;
use crate::pushdown::{DORIS_QUERY, DorisQueryFunction, prepare_queries, with_pushdown_rules};

/// Adds `STORED AS DORIS`, the optimizer rules for streams, pushdown, DELETE and UPDATE, and the settings `doris.*`
/// ([`JobOptions`]) to a context. Values that are set stay as they are.
///
/// Doing it twice changes nothing.
///
/// # Errors
/// None at present.
pub fn register(context: &SessionContext) -> Result<()> {
    let shared = context.state_ref();
    let mut state = shared.write();
    let rules = with_stream_rules(state.physical_optimizers());
    let pushdown = with_pushdown_rules(state.optimizers());
    let mut extended = SessionStateBuilder::new_from_existing(state.clone())
        .with_physical_optimizer_rules(rules)
        .with_optimizer_rules(pushdown)
        .build();
    if !extended.analyzer().rules.iter().any(|rule| rule.name() == WholeStatements.name()) {
        extended.add_analyzer_rule(Arc::new(WholeStatements));
    }
    JobOptions::register(extended.config_mut().options_mut());
    extended.table_factories_mut().insert(DORIS_FORMAT.to_string(), Arc::new(DorisTableFactory::default()));
    if !extended.table_functions().contains_key(DORIS_QUERY) {
        extended.register_udtf(DORIS_QUERY, Arc::new(DorisQueryFunction::default()));
    }
    *state = extended;
    Ok(())
}

/// A context to start with: Doris registered, `information_schema` on (for SHOW TABLES and DESCRIBE), text columns as
/// plain Utf8, which is what Doris sends.
pub fn session_context() -> SessionContext {
    let mut config = SessionConfig::new().with_information_schema(true);
    config.options_mut().sql_parser.map_string_types_to_utf8view = false;
    JobOptions::register(config.options_mut());
    let state = SessionStateBuilder::new().with_config(config).with_default_features();
    let rules = with_stream_rules(&datafusion::physical_optimizer::optimizer::PhysicalOptimizer::new().rules);
    let pushdown = with_pushdown_rules(&datafusion::optimizer::Optimizer::new().rules);
    let state = state
        .with_physical_optimizer_rules(rules)
        .with_analyzer_rule(Arc::new(WholeStatements))
        .with_optimizer_rules(pushdown)
        .with_table_factory(DORIS_FORMAT.to_string(), Arc::new(DorisTableFactory::default()))
        .build();
    let context = SessionContext::new_with_state(state);
    context.register_udtf(DORIS_QUERY, Arc::new(DorisQueryFunction::default()));
    context
}

/// Plans one statement, as [`SessionContext::sql`] does; `LOCATION` may be left out of `STORED AS DORIS`, and Doris is asked
/// for the columns of `doris_query(…)`.
///
/// # Errors
/// Those of [`SessionContext::sql`]; those of Doris about a query that it shall run.
pub async fn sql(context: &SessionContext, statement: &str) -> datafusion::error::Result<DataFrame> {
    prepare_queries(context, statement).await?;
    context.sql(&with_optional_location(statement)).await
}

/// `statement` with an empty `LOCATION` when it creates a Doris table and names none: DataFusion demands the clause.
pub(crate) fn with_optional_location(statement: &str) -> String {
    let Ok(tokens) = Tokenizer::new(&GenericDialect {}, statement).tokenize_with_location() else {
        // The parser tells what is wrong.
        return statement.to_string();
    };
    let significant: Vec<&TokenWithSpan> =
        tokens.iter().filter(|token| !matches!(token.token, Token::Whitespace(_) | Token::SemiColon)).collect();
    let words: Vec<&Token> = significant.iter().map(|token| &token.token).collect();
    let Some(last) = significant.last().filter(|_| creates_doris_table(&words) && !has_location(&words)) else {
        return statement.to_string();
    };
    // Before a final semicolon or comment. Columns count characters, and the end is the first one behind the token.
    let Location { line, column } = last.span.end;
    let (line, column) = (usize::try_from(line).unwrap_or(usize::MAX), usize::try_from(column).unwrap_or(usize::MAX));
    let line_start = match line {
        0 | 1 => 0,
        _ => statement.match_indices('\n').nth(line - 2).map_or(statement.len(), |(index, _)| index + 1),
    };
    let rest = &statement[line_start..];
    let end =
        rest.char_indices().nth(column.saturating_sub(1)).map_or(statement.len(), |(index, _)| line_start + index);
    format!("{} LOCATION ''{}", &statement[..end], &statement[end..])
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
    use datafusion::logical_expr::{DdlStatement, LogicalPlan};

    use super::*;

    #[test]
    fn location_is_added_only_where_it_is_missing() {
        let added = |sql: &str| with_optional_location(sql) != sql;
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
        for end in ["", ";", " ; ", " -- the end", "; -- the end", " /* the end */", "\n;\n-- ü\n"] {
            let sql = format!("CREATE EXTERNAL TABLE t -- ü\n STORED AS DORIS OPTIONS ('fenodes' 'it''s ü'){end}");
            let plan = context.state().create_logical_plan(&with_optional_location(&sql)).await;
            match plan {
                Ok(LogicalPlan::Ddl(DdlStatement::CreateExternalTable(table))) => {
                    assert_eq!(table.options["format.fenodes"], "it's ü", "{sql}");
                    assert_eq!(table.locations, [""], "{sql}");
                }
                other => panic!("{sql}: {other:?}"),
            }
        }
    }

    #[test]
    fn registering_keeps_tables_and_doing_it_twice_adds_nothing() {
        let context = SessionContext::new();
        let empty = datafusion::datasource::empty::EmptyTable::new(Arc::new(arrow::datatypes::Schema::empty()));
        context.register_table("mine", Arc::new(empty)).unwrap();
        register(&context).unwrap();
        assert!(context.table_exist("mine").unwrap());
        let rules = context.state().physical_optimizers().len();
        let session = context.session_id();
        register(&context).unwrap();
        assert_eq!(context.state().physical_optimizers().len(), rules);
        let whole = |rule: &&Arc<dyn AnalyzerRule + Send + Sync>| rule.name() == WholeStatements.name();
        assert_eq!(context.state().analyzer().rules.iter().filter(whole).count(), 1);
        assert_eq!(context.session_id(), session);
        assert!(context.state().table_factories().contains_key(DORIS_FORMAT));
    }
}
