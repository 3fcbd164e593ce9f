//! DataFusion sessions with Doris.

use std::sync::Arc;

use datafusion::dataframe::DataFrame;
use datafusion::execution::session_state::SessionStateBuilder;
use datafusion::logical_expr::{DdlStatement, LogicalPlan};
use datafusion::optimizer::AnalyzerRule;
use datafusion::prelude::{SessionConfig, SessionContext};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer};

use crate::catalog::{DorisCatalog, ListDatabases, ddl};
use crate::error::{Error, Result};
use crate::factory::{DORIS_FORMAT, DorisTableFactory};
use crate::listed_sign;
use crate::optimizer::{WholeStatements, with_stream_rules};
use crate::options::{CatalogOptions, JobOptions};
use crate::pushdown::{DORIS_QUERY, DorisQueryFunction, prepare_queries, with_pushdown_rules};
use crate::statement::{CatalogStatement, byte_of, is_word, shows_names};

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
        extended.add_analyzer_rule(Arc::new(ListDatabases));
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
        .with_analyzer_rule(Arc::new(ListDatabases))
        .with_optimizer_rules(pushdown)
        .with_table_factory(DORIS_FORMAT.to_string(), Arc::new(DorisTableFactory::default()))
        .build();
    let context = SessionContext::new_with_state(state);
    context.register_udtf(DORIS_QUERY, Arc::new(DorisQueryFunction::default()));
    context
}

/// Plans one statement, as [`SessionContext::sql`] does; DDL takes effect. What it does beyond:
///
/// - `LOCATION` may be left out of `STORED AS DORIS`, and Doris is asked for the columns of `doris_query(…)`.
/// - `CREATE EXTERNAL CATALOG name STORED AS DORIS OPTIONS (…)` registers a [`DorisCatalog`]; `REFRESH CATALOG name` reads
///   its lists of names anew; `USE catalog.database` (or one of both) chooses where names without them are looked up.
/// - `CREATE TABLE`, `CREATE TABLE … AS`, `DROP TABLE`, `DROP VIEW`, `CREATE SCHEMA` and `DROP SCHEMA` of such a catalog are
///   done in Doris. The query of `CREATE TABLE … AS` is streamed; when it fails, the table is dropped.
/// - An `INSERT` whose list names `__DORIS_DELETE_SIGN__` needs no table that declares it: 1 deletes the row's key, 0 writes
///   the row.
/// - Lists of names that are older than `catalog.ttl` are read anew before a statement that shows them.
///
/// # Errors
/// Those of [`SessionContext::sql`]; this crate's for what is done in Doris, and those of Doris about a query that it shall
/// run.
///
/// # Cancellation
/// A `CREATE TABLE … AS` that is dropped before its end drops its table, in the background.
pub async fn sql(context: &SessionContext, statement: &str) -> datafusion::error::Result<DataFrame> {
    match CatalogStatement::parse(statement) {
        Some(CatalogStatement::Create { as_table }) => Box::pin(create_catalog(context, &as_table)).await?,
        Some(CatalogStatement::Refresh(name)) => match ddl::doris_catalog(context, &name) {
            Some(catalog) => catalog.refresh().await?,
            None => return Err(Error::config("REFRESH CATALOG", format!("'{name}' is no catalog of doris")).into()),
        },
        Some(CatalogStatement::Use(names)) => choose_database(context, &names)?,
        None => {
            if shows_names(statement) {
                for name in context.catalog_names() {
                    if let Some(catalog) = ddl::doris_catalog(context, &name) {
                        catalog.refresh_when_old().await?;
                    }
                }
            }
            prepare_queries(context, statement).await?;
            let plan = listed_sign::plan(context, &with_optional_location(statement)).await?;
            return Box::pin(ddl::execute(context, plan)).await;
        }
    }
    ddl::empty(context)
}

/// `CREATE EXTERNAL CATALOG`, given as a statement about a table.
async fn create_catalog(context: &SessionContext, as_table: &str) -> datafusion::error::Result<()> {
    let refuse = |reason: &str| Err(Error::config("CREATE EXTERNAL CATALOG", reason).into());
    let plan = context.state().create_logical_plan(&with_optional_location(as_table)).await?;
    let LogicalPlan::Ddl(DdlStatement::CreateExternalTable(create)) = plan else {
        return refuse("must end with STORED AS DORIS OPTIONS (…)");
    };
    if !create.file_type.eq_ignore_ascii_case(DORIS_FORMAT) {
        return refuse("is for STORED AS DORIS only");
    }
    if create.name.schema().is_some() || !create.schema.fields().is_empty() {
        return refuse("takes one name and no columns");
    }
    if create.unbounded || !create.table_partition_cols.is_empty() || !create.order_exprs.is_empty() {
        return refuse("takes a LOCATION and OPTIONS only");
    }
    let name = create.name.table();
    if context.catalog(name).is_some() && !create.or_replace {
        if create.if_not_exists {
            return Ok(());
        }
        return refuse(&format!("'{name}' exists already, say CREATE OR REPLACE EXTERNAL CATALOG"));
    }
    let location = match create.locations.as_slice() {
        [] => "",
        [location] => location,
        _ => return refuse("has several locations, name one cluster"),
    };
    let options = CatalogOptions::from_location_and_map(location, create.options.clone())?;
    context.register_catalog(name, Arc::new(DorisCatalog::connect(options).await?));
    Ok(())
}

/// `USE`: where names without catalog or database are looked up from now on.
fn choose_database(context: &SessionContext, names: &[String]) -> datafusion::error::Result<()> {
    let refuse = |reason: String| Err(Error::config("USE", reason).into());
    let state = context.state_ref();
    let current = state.read().config_options().catalog.default_catalog.clone();
    let (catalog, database) = match names {
        [catalog, database] => (catalog.clone(), Some(database.clone())),
        [name] if context.catalog(name).is_some() => (name.clone(), None),
        [database] => (current, Some(database.clone())),
        _ => return refuse("takes catalog.database, or one of both".into()),
    };
    let Some(provider) = context.catalog(&catalog) else {
        return refuse(format!("there is no catalog '{catalog}'"));
    };
    let doris = ddl::doris_catalog(context, &catalog);
    let default = doris.as_ref().and_then(|doris| doris.options().default_database.clone());
    let Some(database) = database.or(default).or_else(|| provider.schema_names().into_iter().next()) else {
        return refuse(format!("catalog '{catalog}' has no database, say USE {catalog}.database"));
    };
    // A database that was made elsewhere may be missing in the lists of a Doris catalog.
    if doris.is_none() && provider.schema(&database).is_none() {
        return refuse(format!("there is no '{database}' in catalog '{catalog}'"));
    }
    let mut state = state.write();
    let defaults = &mut state.config_mut().options_mut().catalog;
    defaults.default_catalog = catalog;
    defaults.default_schema = database;
    Ok(())
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
    // Before a final semicolon or comment: the end is the first character behind the token.
    let end = byte_of(statement, last.span.end);
    format!("{} LOCATION ''{}", &statement[..end], &statement[end..])
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
