//! CREATE, ALTER, DROP and SHOW of views.
//!
//! A view keeps the text of its query with every table qualified, and is planned anew by each statement that reads it: a
//! table that was dropped since shows at that moment.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::catalog::TableProvider;
use datafusion::common::Column;
use datafusion::datasource::ViewTable;
use datafusion::logical_expr::{Expr, LogicalPlanBuilder};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::Token;

use super::cursor::Cursor;
use super::ddl::{database_name, done, resolve, table_name};
use super::lexer::Tok;
use super::output::text_rows;
use super::query::{self, QueryOptions};
use super::rewrite::LABEL_MARK;
use super::show::{Filter, Row, cell};
use crate::engine::StatementResult;
use crate::error::SqlError;
use crate::session::Session;
use crate::storage::{OnExisting, View, ViewColumn};
use crate::types::DorisType;

/// Views that may stand inside each other.
const MAX_NESTING: usize = 32;

/// Whether the cursor stands on `[OR REPLACE] VIEW` (after CREATE, ALTER or DROP).
pub(super) fn is_next(cursor: &Cursor<'_>) -> bool {
    cursor.is_word("VIEW") || cursor.is_word("OR") && cursor.is_word_at(1, "REPLACE") && cursor.is_word_at(2, "VIEW")
}

/// `CREATE [OR REPLACE] VIEW [IF NOT EXISTS] name [(columns)] [COMMENT 'c'] AS query`, after CREATE.
pub(super) async fn create(session: &mut Session, cursor: &mut Cursor<'_>) -> Result<StatementResult, SqlError> {
    let replace = cursor.eat_all(&["OR", "REPLACE"]);
    cursor.expect("VIEW")?;
    let keep = cursor.eat_all(&["IF", "NOT", "EXISTS"]);
    let on_existing = match (replace, keep) {
        (true, true) => {
            return Err(SqlError::detail("[OR REPLACE] and [IF NOT EXISTS] cannot used at the same time"));
        }
        (true, false) => OnExisting::Replace,
        (false, true) => OnExisting::Keep,
        (false, false) => OnExisting::Refuse,
    };
    let (db, name) = table_name(session, cursor)?;
    session.engine.catalog.database_id(&db)?;
    let view = read(session, cursor, db, name).await?;
    session.engine.catalog.create_view(view, on_existing)?;
    Ok(done())
}

/// `ALTER VIEW name [(columns)] [COMMENT 'c'] AS query`, `ALTER VIEW name MODIFY COMMENT 'c'`, after ALTER.
pub(super) async fn alter(session: &mut Session, cursor: &mut Cursor<'_>) -> Result<StatementResult, SqlError> {
    cursor.expect("VIEW")?;
    let (db, name) = table_name(session, cursor)?;
    let catalog = &session.engine.catalog;
    let Some(old) = catalog.view(&db, &name) else {
        return Err(match catalog.table(&db, &name) {
            Ok(_) => SqlError::coded(1347, format!("'{db}.{name}' is not VIEW")),
            Err(error) => error,
        });
    };
    let view = if cursor.eat("MODIFY") {
        cursor.expect("COMMENT")?;
        let comment = cursor.string()?;
        cursor.expect_end()?;
        View { comment, ..old.as_ref().clone() }
    } else {
        let changed = read(session, cursor, db, name).await?;
        let comment = if changed.comment.is_empty() { old.comment.clone() } else { changed.comment };
        View { comment, created_ms: old.created_ms, definer: old.definer.clone(), ..changed }
    };
    session.engine.catalog.create_view(view, OnExisting::Replace)?;
    Ok(done())
}

/// `DROP VIEW [IF EXISTS] name`, after DROP.
pub(super) fn drop(session: &Session, cursor: &mut Cursor<'_>) -> Result<StatementResult, SqlError> {
    cursor.expect("VIEW")?;
    let if_exists = cursor.eat_all(&["IF", "EXISTS"]);
    let (db, name) = table_name(session, cursor)?;
    cursor.expect_end()?;
    session.engine.catalog.drop_view(&db, &name, if_exists)?;
    Ok(done())
}

/// Column list, comment and query.
async fn read(session: &Session, cursor: &mut Cursor<'_>, db: String, name: String) -> Result<View, SqlError> {
    let mut named: Option<Vec<(String, String)>> = None;
    if cursor.eat_token(&Token::LParen) {
        let mut columns = Vec::new();
        loop {
            let column = cursor.ident()?;
            let comment = if cursor.eat("COMMENT") { cursor.string()? } else { String::new() };
            columns.push((column, comment));
            if !cursor.eat_token(&Token::Comma) {
                break;
            }
        }
        cursor.expect_token(&Token::RParen)?;
        named = Some(columns);
    }
    let comment = if cursor.eat("COMMENT") { cursor.string()? } else { String::new() };
    cursor.expect("AS")?;
    let tokens = &cursor.tokens[cursor.at..];
    let prepared = query::prepare(session, tokens, cursor.text, &QueryOptions::default()).await?;
    let schema = prepared.schema();
    if named.as_ref().is_some_and(|columns| columns.len() != schema.fields().len()) {
        return Err(SqlError::coded(1353, "View's SELECT and view's field list have different column counts"));
    }
    let mut columns: Vec<ViewColumn> = Vec::with_capacity(schema.fields().len());
    for (i, field) in schema.fields().iter().enumerate() {
        let ty = DorisType::of_field(field)
            .ok_or_else(|| SqlError::not_served(format!("views with columns of Arrow type {}", field.data_type())))?;
        let (label, comment) = match &named {
            Some(columns) => columns[i].clone(),
            None => (field.name().split(LABEL_MARK).next().unwrap_or_default().to_owned(), String::new()),
        };
        if columns.iter().any(|known| known.name.eq_ignore_ascii_case(&label)) {
            return Err(SqlError::coded(1060, format!("Duplicate column name '{label}'")));
        }
        columns.push(ViewColumn { name: label, ty, nullable: field.is_nullable(), comment });
    }
    Ok(View {
        query: qualified(session, cursor.text, tokens)?,
        db,
        name,
        columns,
        comment,
        backslash_escapes: session.variables.backslash_escapes(),
        definer: session.user.clone(),
        created_ms: session.engine.config().clock.now_ms(),
    })
}

/// The text of a query with ``internal`.`db`.`table`` for every table.
fn qualified(session: &Session, text: &str, tokens: &[Tok]) -> Result<String, SqlError> {
    let ctes = cte_names(tokens);
    let (Some(first), Some(last)) = (tokens.first(), tokens.last()) else { return Ok(String::new()) };
    let mut out = String::new();
    let mut copied = first.start;
    // One entry per open parenthesis: whether a FROM clause is being read there.
    let mut in_from = vec![false];
    let mut at = 0;
    while let Some(tok) = tokens.get(at) {
        let mut starts_table = false;
        match &tok.token {
            Token::LParen => {
                // Parentheses inside FROM hold joins or queries; those after a name hold arguments.
                let call = at > 0
                    && matches!(&tokens[at - 1].token, Token::Word(w) if w.keyword == Keyword::NoKeyword || w.quote_style.is_some());
                let nested = !call && in_from.last() == Some(&true);
                in_from.push(nested);
                starts_table = nested;
            }
            Token::RParen => {
                in_from.pop();
            }
            Token::Comma => starts_table = in_from.last() == Some(&true),
            Token::Word(word) if word.quote_style.is_none() => match word.keyword {
                // `EXTRACT(x FROM y)` and its like open with a name.
                Keyword::FROM if !is_argument(tokens, at) => {
                    in_from.last_mut().into_iter().for_each(|clause| *clause = true);
                    starts_table = true;
                }
                Keyword::JOIN => starts_table = true,
                Keyword::SELECT
                | Keyword::WHERE
                | Keyword::GROUP
                | Keyword::HAVING
                | Keyword::ORDER
                | Keyword::LIMIT
                | Keyword::ON
                | Keyword::UNION
                | Keyword::INTERSECT
                | Keyword::EXCEPT => in_from.last_mut().into_iter().for_each(|clause| *clause = false),
                _ => {}
            },
            _ => {}
        }
        at += 1;
        if starts_table && let Some((parts, next)) = name_at(tokens, at) {
            let plain = parts.len() == 1 && ctes.contains(&parts[0].to_lowercase());
            let call = tokens.get(next).map(|t| &t.token) == Some(&Token::LParen);
            if !plain && !call {
                let (db, table) = resolve(session, parts)?;
                out.push_str(&text[copied..tokens[at].start]);
                out.push_str(&format!("`internal`.{}.{}", quoted(&db), quoted(&table)));
                copied = tokens[next - 1].end;
            }
            at = next;
        }
    }
    out.push_str(&text[copied..last.end]);
    Ok(out)
}

/// Whether the FROM at `at` belongs to a function: its parenthesis holds no SELECT.
fn is_argument(tokens: &[Tok], at: usize) -> bool {
    let mut depth = 0;
    for tok in tokens[..at].iter().rev() {
        match &tok.token {
            Token::RParen => depth += 1,
            Token::LParen if depth == 0 => return true,
            Token::LParen => depth -= 1,
            Token::Word(w) if depth == 0 && w.quote_style.is_none() && w.keyword == Keyword::SELECT => return false,
            _ => {}
        }
    }
    true
}

/// Names that WITH introduces, in lower case.
fn cte_names(tokens: &[Tok]) -> HashSet<String> {
    let word = |i: usize, keyword: Keyword| matches!(tokens.get(i).map(|t| &t.token), Some(Token::Word(w)) if w.keyword == keyword && w.quote_style.is_none());
    let mut names = HashSet::new();
    for (i, tok) in tokens.iter().enumerate() {
        if let Token::Word(name) = &tok.token
            && word(i + 1, Keyword::AS)
            && tokens.get(i + 2).map(|t| &t.token) == Some(&Token::LParen)
        {
            names.insert(name.value.to_lowercase());
        }
    }
    names
}

/// A dotted name that starts at a token, and where it ends.
fn name_at(tokens: &[Tok], at: usize) -> Option<(Vec<String>, usize)> {
    let word = |i: usize| match tokens.get(i).map(|t| &t.token) {
        Some(Token::Word(w)) if w.quote_style.is_some() || w.keyword != Keyword::SELECT => Some(w.value.clone()),
        _ => None,
    };
    let mut parts = vec![word(at)?];
    let mut next = at + 1;
    while parts.len() < 3 && tokens.get(next).map(|t| &t.token) == Some(&Token::Period) {
        parts.push(word(next + 1)?);
        next += 2;
    }
    Some((parts, next))
}

fn quoted(name: &str) -> String {
    format!("`{}`", name.replace('`', "``"))
}

/// The statement that creates a view.
pub(super) fn create_text(view: &View) -> String {
    let escaped = |text: &str| text.replace('\\', "\\\\").replace('\'', "''");
    let columns: Vec<String> = view
        .columns
        .iter()
        .map(|c| match c.comment.is_empty() {
            true => quoted(&c.name),
            false => format!("{} COMMENT '{}'", quoted(&c.name), escaped(&c.comment)),
        })
        .collect();
    let comment =
        if view.comment.is_empty() { String::new() } else { format!(" COMMENT '{}'", escaped(&view.comment)) };
    format!("CREATE VIEW {} ({}){comment} AS {};", quoted(&view.name), columns.join(", "), view.query)
}

/// The view that the name at the cursor means, if it means one.
fn at_cursor(session: &Session, cursor: &Cursor<'_>) -> Option<Arc<View>> {
    let mut ahead = Cursor { text: cursor.text, tokens: cursor.tokens, at: cursor.at };
    let (mut db, name) = table_name(session, &mut ahead).ok()?;
    if ahead.eat("FROM") || ahead.eat("IN") {
        db = database_name(&mut ahead).ok()?;
    }
    session.engine.catalog.view(&db, &name)
}

/// `SHOW CREATE VIEW v`, and `SHOW CREATE TABLE v` where `v` is a view; after CREATE. `None`: the name is a table's.
pub(super) fn show_create(session: &Session, cursor: &mut Cursor<'_>) -> Result<Option<StatementResult>, SqlError> {
    let start = cursor.at;
    let as_view = cursor.eat("VIEW");
    if !as_view && !cursor.eat("TABLE") {
        return Ok(None);
    }
    let Some(view) = at_cursor(session, cursor) else {
        if !as_view {
            cursor.at = start;
            return Ok(None);
        }
        let (db, name) = table_name(session, cursor)?;
        return Err(match session.engine.catalog.table(&db, &name) {
            Ok(_) => SqlError::coded(1347, format!("'{db}.{name}' is not VIEW")),
            Err(error) => error,
        });
    };
    table_name(session, cursor)?;
    cursor.expect_end()?;
    let rows = vec![vec![cell(&view.name), cell(create_text(&view)), cell("utf8mb4"), cell("utf8mb4_0900_bin")]];
    text_rows(&["View", "Create View", "character_set_client", "collation_connection"], rows).map(Some)
}

/// `DESC v`; `None`: the name is a table's.
pub(super) fn describe(session: &Session, cursor: &mut Cursor<'_>) -> Result<Option<StatementResult>, SqlError> {
    let Some(view) = at_cursor(session, cursor) else { return Ok(None) };
    table_name(session, cursor)?;
    cursor.eat("ALL");
    cursor.expect_end()?;
    let row = |c: &ViewColumn| {
        vec![
            cell(&c.name),
            cell(c.ty.desc_name()),
            cell(if c.nullable { "Yes" } else { "No" }),
            cell(false),
            None,
            cell(""),
        ]
    };
    let rows = view.columns.iter().map(row).collect();
    text_rows(&["Field", "Type", "Null", "Key", "Default", "Extra"], rows).map(Some)
}

/// `SHOW [FULL] COLUMNS FROM v [FROM db] [filter]`, after COLUMNS; `None`: the name is a table's.
pub(super) fn show_columns(
    session: &Session,
    cursor: &mut Cursor<'_>,
    full: bool,
) -> Result<Option<StatementResult>, SqlError> {
    if !cursor.is_word("FROM") && !cursor.is_word("IN") {
        return Ok(None);
    }
    let name = Cursor { text: cursor.text, tokens: cursor.tokens, at: cursor.at + 1 };
    let Some(view) = at_cursor(session, &name) else { return Ok(None) };
    cursor.at += 1;
    table_name(session, cursor)?;
    if cursor.eat("FROM") || cursor.eat("IN") {
        database_name(cursor)?;
    }
    let filter = Filter::read(cursor)?;
    let yes = |c: &ViewColumn| if c.nullable { "YES" } else { "NO" };
    let names: &[&str] = if full {
        &["Field", "Type", "Collation", "Null", "Key", "Default", "Extra", "Privileges", "Comment"]
    } else {
        &["Field", "Type", "Null", "Key", "Default", "Extra"]
    };
    let row = |c: &ViewColumn| {
        let (name, ty) = (cell(&c.name), cell(c.ty.desc_name()));
        if full {
            vec![name, ty, None, cell(yes(c)), cell(""), None, cell(""), cell(""), cell(&c.comment)]
        } else {
            vec![name, ty, cell(yes(c)), cell(""), None, cell("")]
        }
    };
    let mut rows: Vec<Row> = view.columns.iter().map(row).collect();
    filter.apply(names, &mut rows, 0)?;
    text_rows(names, rows).map(Some)
}

/// `SHOW VIEW FROM table [FROM db]`: the views that read a table.
pub(super) fn show_using(session: &Session, cursor: &mut Cursor<'_>) -> Result<StatementResult, SqlError> {
    if !cursor.eat("FROM") {
        cursor.expect("IN")?;
    }
    let (mut db, table) = table_name(session, cursor)?;
    if cursor.eat("FROM") || cursor.eat("IN") {
        db = database_name(cursor)?;
    }
    cursor.expect_end()?;
    session.engine.catalog.table(&db, &table)?;
    let used = format!("`internal`.{}.{}", quoted(&db), quoted(&table));
    let mut rows: Vec<Row> = Vec::new();
    for database in session.engine.databases() {
        for view in session.engine.catalog.views(&database) {
            if view.query.contains(&used) {
                rows.push(vec![cell(&view.name), cell(create_text(&view))]);
            }
        }
    }
    text_rows(&["View", "Create View"], rows)
}

/// Plans the query of a view under the view's column names.
pub(super) async fn relation(
    session: &Session,
    view: &View,
    nesting: usize,
) -> Result<Arc<dyn TableProvider>, SqlError> {
    if nesting >= MAX_NESTING {
        return Err(SqlError::not_served(format!("views nested deeper than {MAX_NESTING} levels")));
    }
    let statements = super::split(&view.query, view.backslash_escapes)?;
    let [statement] = statements.as_slice() else {
        return Err(SqlError::detail(format!("view {} does not hold one query", view.name)));
    };
    let options = QueryOptions { nesting: nesting + 1, trusted: true, ..QueryOptions::default() };
    let prepared = query::prepare(session, &statement.tokens, &view.query, &options).await?;
    let schema = prepared.plan.schema();
    if schema.fields().len() != view.columns.len() {
        return Err(SqlError::detail(format!("the columns of view {} no longer match its query", view.name)));
    }
    let outputs: Vec<Expr> = schema
        .iter()
        .zip(&view.columns)
        .map(|((qualifier, field), column)| {
            Expr::Column(Column::new(qualifier.cloned(), field.name())).alias(&column.name)
        })
        .collect();
    let plan = LogicalPlanBuilder::from(prepared.plan.clone())
        .project(outputs)
        .and_then(LogicalPlanBuilder::build)
        .map_err(query::engine_error)?;
    Ok(Arc::new(ViewTable::new(plan, Some(view.query.clone()))))
}
