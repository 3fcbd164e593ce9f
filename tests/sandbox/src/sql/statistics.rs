//! Statistics of columns: ANALYZE gathers them, SHOW COLUMN STATS tells them. They change no result.

use arrow::array::AsArray;
use datafusion::sql::sqlparser::tokenizer::Token;
use futures::TryStreamExt;

use super::cursor::Cursor;
use super::ddl::{done, table_name};
use super::output::text_rows;
use super::query::{self, QueryOptions};
use super::show::{Row, cell, time_text};
use crate::engine::StatementResult;
use crate::error::SqlError;
use crate::session::Session;
use crate::storage::Column;
use crate::types::DorisType;
use crate::users::Privilege;

/// Columns of the answer to `SHOW COLUMN [CACHED] STATS`.
const NAMES: [&str; 14] = [
    "column_name",
    "index_name",
    "count",
    "ndv",
    "num_null",
    "data_size",
    "avg_size_byte",
    "min",
    "max",
    "method",
    "type",
    "trigger",
    "query_times",
    "updated_time",
];

/// Doris gathers no statistics of other types.
fn is_basic(column: &Column) -> bool {
    matches!(
        column.ty,
        DorisType::Boolean
            | DorisType::TinyInt
            | DorisType::SmallInt
            | DorisType::Int
            | DorisType::BigInt
            | DorisType::LargeInt
            | DorisType::Float
            | DorisType::Double
            | DorisType::Decimal { .. }
            | DorisType::Date
            | DorisType::DateTime(_)
            | DorisType::Char(_)
            | DorisType::Varchar(_)
            | DorisType::String
    )
}

/// `ANALYZE TABLE t [(columns)] [WITH ...]`, after ANALYZE. It is done when it is answered, with SYNC and without.
pub(super) async fn analyze(session: &mut Session, cursor: &mut Cursor<'_>) -> Result<StatementResult, SqlError> {
    if !cursor.eat("TABLE") {
        return Err(SqlError::not_served(format!("ANALYZE {}", cursor.rest())));
    }
    let (db, name) = table_name(session, cursor)?;
    let table = session.engine.table_handle(&db, &name)?;
    super::privileges::check_table(session, &db, &name, Privilege::Select)?;
    let mut asked = None;
    if cursor.peek() == Some(&Token::LParen) {
        let columns = cursor.ident_list()?;
        for column in &columns {
            if table.column(column).is_none() {
                return Err(SqlError::detail(format!("Column: {column} not exists")));
            }
        }
        asked = Some(columns);
    }
    let mut sync = false;
    while cursor.eat("WITH") {
        match cursor.ident()?.to_ascii_uppercase().as_str() {
            "SYNC" => sync = true,
            "SAMPLE" => {
                cursor.ident()?;
                cursor.number()?;
            }
            option => return Err(SqlError::not_served(format!("ANALYZE WITH {option}"))),
        }
    }
    cursor.expect_end()?;
    let wanted = |column: &&Column| {
        let named = asked.as_ref().is_none_or(|names| names.iter().any(|name| name.eq_ignore_ascii_case(&column.name)));
        named && is_basic(column)
    };
    let columns: Vec<Column> = table.columns().iter().filter(wanted).cloned().collect();
    let rows = gathered(session, &db, &name, &columns).await?;
    session.engine.keep_column_statistics(table.id(), rows);
    if sync {
        return Ok(done());
    }
    let columns: Vec<String> = table.columns().iter().map(|c| format!("{name}:{}", c.name)).collect();
    text_rows(
        &["Job_Id", "Catalog_Name", "DB_Name", "Table_Name", "Columns"],
        vec![vec![
            cell(session.engine.catalog.next_ids(1)),
            cell("internal"),
            cell(db),
            cell(name),
            cell(format!("[{}]", columns.join(","))),
        ]],
    )
}

/// A row of [`NAMES`] for each column, as the table is now.
async fn gathered(session: &mut Session, db: &str, table: &str, columns: &[Column]) -> Result<Vec<Row>, SqlError> {
    let now = time_text(session, session.engine.config().clock.now_ms());
    let mut rows = Vec::with_capacity(columns.len());
    for column in columns {
        let name = column.name.replace('`', "``");
        let sql = format!(
            "SELECT CAST(COUNT(*) AS STRING), CAST(COUNT(DISTINCT `{name}`) AS STRING),
               CAST(COUNT(*) - COUNT(`{name}`) AS STRING), CAST(MIN(`{name}`) AS STRING), CAST(MAX(`{name}`) AS STRING)
             FROM `{}`.`{}`",
            db.replace('`', "``"),
            table.replace('`', "``"),
        );
        let statements = session.split(&sql)?;
        let Some(statement) = statements.first() else { continue };
        let result = query::run(session, &statement.tokens, &sql, &QueryOptions::default()).await?;
        let StatementResult::Rows { stream, .. } = result else { continue };
        let batches: Vec<_> = stream.try_collect().await.map_err(|e| SqlError::detail(e.to_string()))?;
        let text = |index: usize| {
            let batch = batches.iter().find(|batch| batch.num_rows() > 0)?;
            let column = batch.column(index).as_string_opt::<i32>()?;
            (!arrow::array::Array::is_null(column, 0)).then(|| column.value(0).to_owned())
        };
        let quoted = |value: Option<String>| {
            let plain = !matches!(
                column.ty,
                DorisType::Char(_)
                    | DorisType::Varchar(_)
                    | DorisType::String
                    | DorisType::Date
                    | DorisType::DateTime(_)
            );
            match value {
                Some(value) if plain => cell(value),
                Some(value) => cell(format!("'{value}'")),
                None => cell("N/A"),
            }
        };
        rows.push(vec![
            cell(&column.name),
            cell(table),
            text(0),
            text(1),
            text(2),
            cell("0.0"),
            cell("0.0"),
            quoted(text(3)),
            quoted(text(4)),
            cell("FULL"),
            cell("FUNDAMENTALS"),
            cell("MANUAL"),
            cell(0),
            cell(&now),
        ]);
    }
    Ok(rows)
}

/// `SHOW COLUMN [CACHED] STATS t [(columns)]`, after COLUMN: nothing for columns that were never analyzed.
pub(super) fn show(session: &Session, cursor: &mut Cursor<'_>) -> Result<StatementResult, SqlError> {
    cursor.eat("CACHED");
    cursor.expect("STATS")?;
    let (db, name) = table_name(session, cursor)?;
    let table = session.engine.table_handle(&db, &name)?;
    super::privileges::check_table(session, &db, &name, Privilege::Select)?;
    let asked = if cursor.peek() == Some(&Token::LParen) { Some(cursor.ident_list()?) } else { None };
    cursor.expect_end()?;
    let mut rows = session.engine.column_statistics(table.id());
    rows.retain(|row| {
        let name = row[0].as_deref().unwrap_or_default();
        asked.as_ref().is_none_or(|names| names.iter().any(|asked| asked.eq_ignore_ascii_case(name)))
    });
    text_rows(&NAMES, rows)
}
