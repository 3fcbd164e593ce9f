//! `doris_query('table', 'SELECT …')`: a statement of Doris as a table.

use std::any::Any;
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema};
use datafusion::catalog::{TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::common::{Result as DfResult, TableReference, plan_err};
use datafusion::logical_expr::Expr;
use datafusion::prelude::SessionContext;
use datafusion::sql::sqlparser::dialect::{GenericDialect, MySqlDialect};
use datafusion::sql::sqlparser::tokenizer::{Token, Tokenizer};
use parking_lot::Mutex;

use super::DorisQueryTable;
use crate::client::DorisClient;
use crate::error::{Error, Result};
use crate::scan::open_session;
use crate::sql::{ScanQuery, without_secrets};
use crate::table::DorisTable;
use crate::types::{DorisType, TableIdent, doris_type_of};

/// Name of the table function.
pub const DORIS_QUERY: &str = "doris_query";
/// Queries whose columns are kept.
const KEPT: usize = 64;

/// The table function `doris_query`.
///
/// ```sql
/// SELECT * FROM doris_query('students', 'SELECT BITMAP_COUNT(seen) AS n, grade FROM school.visits')
/// SELECT * FROM doris_query('SELECT 1')          -- when all Doris tables of the current schema are of one cluster
/// ```
///
/// The first argument names a Doris table of the session, whose connection is used; the statement is one SELECT of Doris, and
/// names tables with their databases. Its columns are those that Doris tells, with the Arrow types of the type mapping. The rows
/// stream; columns, filters, limits and aggregates above are sent around the statement as far as they are for a table.
///
/// DataFusion makes tables of functions without waiting, so the columns are asked for before: by [`fn@crate::sql`], or
/// [`prepare_queries`].
#[derive(Debug, Default)]
pub struct DorisQueryFunction {
    prepared: Mutex<VecDeque<(Call, Arc<DorisQueryTable>)>>,
}

/// The arguments.
#[derive(Clone, PartialEq, Eq)]
struct Call {
    table: Option<String>,
    sql: String,
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { table, sql } = self;
        f.debug_struct("Call").field("table", table).field("sql", &without_secrets(sql)).finish()
    }
}

impl DorisQueryFunction {
    fn keep(&self, call: Call, table: DorisQueryTable) {
        let mut prepared = self.prepared.lock();
        prepared.retain(|(known, _)| *known != call);
        if prepared.len() >= KEPT {
            prepared.pop_front();
        }
        prepared.push_back((call, Arc::new(table)));
    }
}

impl TableFunctionImpl for DorisQueryFunction {
    fn call_with_args(&self, args: TableFunctionArgs) -> DfResult<Arc<dyn TableProvider>> {
        let texts = args.exprs().iter().map(|expr| match expr {
            Expr::Literal(value, _) => value.try_as_str().flatten().map(str::to_string),
            _ => None,
        });
        let call = match texts.collect::<Option<Vec<_>>>().as_deref() {
            Some([sql]) => Call { table: None, sql: sql.clone() },
            Some([table, sql]) => Call { table: Some(table.clone()), sql: sql.clone() },
            _ => return plan_err!("{DORIS_QUERY} takes two texts: the name of a doris table and a SELECT of doris"),
        };
        match self.prepared.lock().iter().find(|(known, _)| *known == call) {
            Some((_, table)) => Ok(Arc::clone(table) as Arc<dyn TableProvider>),
            None => plan_err!(
                "the columns of {DORIS_QUERY} are not known: plan the statement with datafusion_doris::sql, or call \
                 datafusion_doris::pushdown::prepare_queries with it before"
            ),
        }
    }
}

/// Asks Doris for the columns of each `doris_query(…)` in `statement`, so that `context` can plan it.
///
/// # Errors
/// [`Error::Config`] when the connection is not clear, [`Error::Unsupported`] for a statement that is no SELECT or a column
/// that cannot be read; [`Error::Server`] with Doris' text for one that it refuses.
pub async fn prepare_queries(context: &SessionContext, statement: &str) -> Result<()> {
    let calls = calls(statement);
    if calls.is_empty() {
        return Ok(());
    }
    let function =
        context.state_ref().read().table_functions().get(DORIS_QUERY).map(|known| Arc::clone(known.function()));
    let Some(function) = function else { return Ok(()) };
    let Some(function) = (function.as_ref() as &dyn Any).downcast_ref::<DorisQueryFunction>() else { return Ok(()) };
    for call in calls {
        check_select(&call.sql)?;
        let client = match &call.table {
            Some(name) => named(context, name).await?,
            None => single(context).await?,
        };
        let table = describe(client, &call.sql).await?;
        function.keep(call, table);
    }
    Ok(())
}

/// The calls in a statement whose arguments are texts; others are refused when the statement is planned.
fn calls(statement: &str) -> Vec<Call> {
    let Ok(tokens) = Tokenizer::new(&GenericDialect {}, statement).tokenize() else { return vec![] };
    let tokens: Vec<&Token> = tokens.iter().filter(|token| !matches!(token, Token::Whitespace(_))).collect();
    let is_name = |token: &Token| matches!(token, Token::Word(word) if word.value.eq_ignore_ascii_case(DORIS_QUERY));
    let text = |token: &Token| match token {
        Token::SingleQuotedString(text) => Some(text.clone()),
        _ => None,
    };
    let starts = tokens.iter().enumerate().filter(|(_, token)| is_name(token)).map(|(index, _)| index + 1);
    let call = |start: usize| match tokens.get(start..)? {
        [Token::LParen, sql, Token::RParen, ..] => Some(Call { table: None, sql: text(sql)? }),
        [Token::LParen, table, Token::Comma, sql, Token::RParen, ..] => {
            Some(Call { table: Some(text(table)?), sql: text(sql)? })
        }
        _ => None,
    };
    starts.filter_map(call).collect()
}

/// Refuses everything but one SELECT.
fn check_select(sql: &str) -> Result<()> {
    let refuse = |what: &str| Err(Error::unsupported(format!("{what} in {DORIS_QUERY}"), "give it one SELECT"));
    let Ok(tokens) = Tokenizer::new(&MySqlDialect {}, sql).tokenize() else { return refuse("an unclosed text") };
    let mut words = tokens.iter().filter(|token| !matches!(token, Token::Whitespace(_) | Token::LParen));
    let first = match words.next() {
        Some(Token::Word(word)) => word.value.to_ascii_uppercase(),
        _ => return refuse("a statement without a verb"),
    };
    if !matches!(first.as_str(), "SELECT" | "WITH") {
        return refuse(&first);
    }
    if tokens.contains(&Token::SemiColon) {
        return refuse("a semicolon");
    }
    let words: Vec<&str> = tokens
        .iter()
        .filter_map(|token| if let Token::Word(word) = token { Some(word.value.as_str()) } else { None })
        .collect();
    let writes =
        words.windows(2).any(|pair| pair[0].eq_ignore_ascii_case("into") && pair[1].eq_ignore_ascii_case("outfile"));
    if writes { refuse("INTO OUTFILE") } else { Ok(()) }
}

/// The cluster of the table `name`.
async fn named(context: &SessionContext, name: &str) -> Result<DorisClient> {
    let missing = || Error::config(DORIS_QUERY, format!("'{name}' is no doris table of this session"));
    let provider = context.table_provider(TableReference::from(name)).await.map_err(|_| missing())?;
    let table = provider.downcast_ref::<DorisTable>().ok_or_else(missing)?;
    Ok(table.client().clone())
}

/// The cluster of all Doris tables of the current schema.
async fn single(context: &SessionContext) -> Result<DorisClient> {
    let refuse = |reason: &str| {
        Error::config(DORIS_QUERY, format!("{reason}; name a doris table of the cluster as the first argument"))
    };
    let (catalogs, default) = {
        let state = context.state_ref();
        let state = state.read();
        (Arc::clone(state.catalog_list()), state.config_options().catalog.clone())
    };
    let schema = catalogs.catalog(&default.default_catalog).and_then(|catalog| catalog.schema(&default.default_schema));
    let schema = schema.ok_or_else(|| refuse("there is no current schema"))?;
    let mut found: Option<DorisClient> = None;
    for name in schema.table_names() {
        let Ok(Some(provider)) = schema.table(&name).await else { continue };
        let Some(table) = provider.downcast_ref::<DorisTable>() else { continue };
        let client = table.client();
        match &found {
            Some(known) if !known.same_cluster(client) => {
                return Err(refuse("the tables of the current schema are of several clusters"));
            }
            Some(_) => {}
            None => found = Some(client.clone()),
        }
    }
    found.ok_or_else(|| refuse("the current schema has no doris table"))
}

/// Asks for the columns of `sql`.
async fn describe(client: DorisClient, sql: &str) -> Result<DorisQueryTable> {
    // A comment at the end must not hide the bracket behind it.
    let sql = format!("{}\n", sql.trim_end());
    let mut session = open_session(&client).await?;
    let described = |rows: u8| format!("SELECT * FROM ({sql}) AS `q` LIMIT {rows}");
    let mut told = session.query(&described(0)).await?.schema();
    // An FE that finds out by itself that there are no rows tells all columns as text; a BE does not.
    if told.fields().iter().all(|field| *field.data_type() == DataType::Utf8 && field.metadata().is_empty()) {
        match session.query(&described(1)).await {
            Ok(query) => told = query.schema(),
            Err(error) => tracing::debug!(%error, "a query is not described by a row of it"),
        }
    }
    if let Err(error) = session.close().await {
        tracing::debug!(%error, "closing a flight session failed");
    }
    if told.fields().is_empty() {
        return Err(Error::unsupported(
            format!("a query without columns in {DORIS_QUERY}"),
            "the server told no columns; read the table itself",
        ));
    }
    let (mut names, mut types, mut fields) = (vec![], vec![], vec![]);
    for field in told.fields() {
        let refuse = |reason: String| {
            Error::unsupported(
                format!("column '{}' of {DORIS_QUERY}", field.name()),
                format!("{reason}; convert it in the statement, for example by BITMAP_TO_STRING or CAST(… AS STRING)"),
            )
        };
        let doris_type = told_type(field).map_err(refuse)?;
        let data_type = doris_type.arrow_type().map_err(refuse)?;
        fields.push(Field::new(field.name(), data_type, true));
        names.push(field.name().clone());
        types.push(doris_type);
    }
    let query = ScanQuery { sql, columns: names };
    let table = TableIdent::new("doris", "query");
    Ok(DorisQueryTable::new(client, table, query, types, Arc::new(Schema::new(fields))))
}

/// The Doris type of a column of a result, by the server's note on it or by its Arrow type.
fn told_type(field: &Field) -> Result<DorisType, String> {
    match field.metadata().get("doris_type").map(|note| note.to_ascii_uppercase()).as_deref() {
        Some("LARGEINT") => return Ok(DorisType::LargeInt),
        Some("IPV4") => return Ok(DorisType::Ipv4),
        Some("IPV6") => return Ok(DorisType::Ipv6),
        Some("JSON" | "JSONB") => return Ok(DorisType::Json),
        Some("VARIANT") => return Ok(DorisType::Variant),
        _ => {}
    }
    match field.data_type() {
        // A zone is that of the session: servers before 4.1 send DATETIME so.
        DataType::Timestamp(..) => Ok(DorisType::DateTime(6)),
        data_type => doris_type_of(data_type),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_found_with_their_texts() {
        let found = calls("SELECT * FROM doris_query('t', 'SELECT ''a''') x JOIN Doris_Query ( 'SELECT 1' ) y ON true");
        let expected =
            [Call { table: Some("t".into()), sql: "SELECT 'a'".into() }, Call { table: None, sql: "SELECT 1".into() }];
        assert_eq!(found, expected);
        assert!(calls("SELECT 'doris_query(''t'', ''x'')'").is_empty());
        assert!(calls("SELECT * FROM doris_query(a, 'x')").is_empty());
    }

    #[test]
    fn only_one_select_is_taken() {
        for sql in ["SELECT 1", "with x as (select 1) select * from x", "(SELECT 1) -- the end", "SELECT ';'"] {
            assert!(check_select(sql).is_ok(), "{sql}");
        }
        for (sql, part) in [
            ("DROP TABLE t", "DROP"),
            ("INSERT INTO t VALUES (1)", "INSERT"),
            ("SELECT 1; DROP TABLE t", "semicolon"),
            ("SELECT 1 INTO OUTFILE 's3://x'", "OUTFILE"),
            ("SELECT 'x", "unclosed"),
            ("", "verb"),
        ] {
            let error = check_select(sql).unwrap_err().to_string();
            assert!(error.contains(part), "{sql}: {error}");
        }
    }
}
