//! UPDATE and DELETE. On unique tables both become writes, with change records; on other tables DELETE kills the rows of a
//! simple condition, uncounted.

mod simple_condition;

use std::sync::Arc;
use std::time::Duration;

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::{UInt32Type, UInt64Type};
use datafusion::sql::sqlparser::tokenizer::Token;
use futures::StreamExt;

use super::cursor::Cursor;
use super::ddl::table_name;
use super::insert::{publish, report};
use super::insert_errors::Filtered;
use super::partition;
use super::query::{self, QueryOptions, engine_error};
use crate::engine::{LoadSpec, MergeType, StatementResult};
use crate::error::SqlError;
use crate::random;
use crate::session::Session;
use crate::storage::{Column, KeysType, RowVictims, SEQUENCE_COL, Table};
use crate::types::conform_in;

fn quoted(name: &str) -> String {
    format!("`{}`", name.replace('`', "``"))
}

/// `UPDATE t [alias] SET c = e, ... [WHERE p]`
pub(super) async fn update(session: &mut Session, cursor: &mut Cursor<'_>) -> Result<StatementResult, SqlError> {
    let (db, name) = table_name(session, cursor)?;
    let alias = if cursor.is_word("SET") {
        None
    } else {
        cursor.eat("AS");
        Some(cursor.ident()?)
    };
    cursor.expect("SET")?;
    let mut assignments: Vec<(String, String)> = Vec::new();
    loop {
        let mut column = cursor.ident()?;
        if cursor.eat_token(&Token::Period) {
            column = cursor.ident()?;
        }
        cursor.expect_token(&Token::Eq)?;
        let start = cursor.offset();
        let from = cursor.at;
        skip_expression(cursor);
        if cursor.at == from {
            return Err(cursor.unexpected("an expression"));
        }
        assignments.push((column, cursor.text_since(start).to_owned()));
        if !cursor.eat_token(&Token::Comma) {
            break;
        }
    }
    if cursor.is_word("FROM") {
        return Err(SqlError::not_served("UPDATE ... FROM"));
    }
    let predicate = predicate(cursor)?;
    let table = session.engine.table_handle(&db, &name)?;
    if table.keys_type() != KeysType::Unique {
        return Err(SqlError::detail("Only unique table could be updated."));
    }
    for (i, (column, _)) in assignments.iter().enumerate() {
        match table.column(column) {
            None => return Err(SqlError::unknown_column(column, "table list")),
            Some(known) if known.key => {
                return Err(SqlError::detail("Only value columns of unique table could be updated"));
            }
            Some(_) if assignments[..i].iter().any(|(c, _)| c.eq_ignore_ascii_case(column)) => {
                return Err(SqlError::detail(format!("Duplicate column name in update: {column}")));
            }
            Some(_) => {}
        }
    }
    let items: Vec<String> = table
        .columns()
        .iter()
        .map(|column| match assignments.iter().find(|(name, _)| name.eq_ignore_ascii_case(&column.name)) {
            Some((_, expression)) => format!("({expression}) AS {}", quoted(&column.name)),
            None => quoted(&column.name),
        })
        .collect();
    let filter = Filter { partitions: None, alias, predicate };
    rewrite_rows(session, &db, &table, items, filter, MergeType::Append).await
}

/// Which rows a statement is about.
struct Filter {
    partitions: Option<Vec<String>>,
    alias: Option<String>,
    predicate: Option<String>,
}

/// Tables that merge on read can only tell rows apart by their key.
fn check_delete_columns(table: &Table, cursor: &Cursor<'_>) -> Result<(), SqlError> {
    if table.keys_type() == KeysType::Duplicate || table.spec().is_mow() {
        return Ok(());
    }
    let named = cursor.tokens[cursor.at..].iter().any(|tok| match &tok.token {
        Token::Word(word) => table.column(&word.value).is_some_and(|c| !c.key),
        _ => false,
    });
    if !named {
        return Ok(());
    }
    let model = if table.keys_type() == KeysType::Aggregate { "Aggregate" } else { "merge-on-read Unique" };
    Err(SqlError::detail(format!(
        "delete predicate on value column only supports Unique table with merge-on-write enabled and Duplicate table, but Table[{}] is an {model} table.",
        table.name()
    )))
}

/// DELETE tells an unknown column with its own code.
fn unknown_column(error: SqlError) -> SqlError {
    if error.text().starts_with("Unknown column") { SqlError::coded(1054, error.text()) } else { error }
}

/// `DELETE FROM t [alias] WHERE p`
pub(super) async fn delete(session: &mut Session, cursor: &mut Cursor<'_>) -> Result<StatementResult, SqlError> {
    cursor.expect("FROM")?;
    let (db, name) = table_name(session, cursor)?;
    let partitions = partition::names(cursor)?;
    if cursor.is_word("USING") {
        return Err(SqlError::not_served("DELETE ... USING"));
    }
    let alias = if cursor.is_word("WHERE") || cursor.at_end() {
        None
    } else {
        cursor.eat("AS");
        Some(cursor.ident()?)
    };
    if cursor.at_end() {
        return Err(SqlError::detail("Where clause is not set"));
    }
    let table = session.engine.table_handle(&db, &name)?;
    if let Some(partitions) = &partitions {
        table.partition_ids(partitions)?;
    }
    check_delete_columns(&table, cursor)?;
    if table.keys_type() != KeysType::Unique {
        simple_condition::check(&table, cursor)?;
    }
    let filter = Filter { partitions, alias, predicate: predicate(cursor)? };
    if table.keys_type() == KeysType::Unique {
        let items: Vec<String> = table.columns().iter().map(|c| quoted(&c.name)).collect();
        return rewrite_rows(session, &db, &table, items, filter, MergeType::Delete).await;
    }
    let _guard = table.dml_lock().lock().await;
    let sql = select(&db, &name, &["__sandbox_tablet__".to_owned(), "__sandbox_row__".to_owned()], &filter);
    let statements = super::split(&sql, session.variables.backslash_escapes())?;
    let options = QueryOptions { row_ids: true, trusted: true, ..QueryOptions::default() };
    let prepared = query::prepare(session, &statements[0].tokens, &sql, &options).await.map_err(unknown_column)?;
    let epoch = prepared.epoch;
    let mut stream = prepared.stream().await?;
    let mut rows = Vec::new();
    while let Some(batch) = stream.next().await {
        let batch = batch.map_err(engine_error)?;
        let tablets = batch.column(0).as_primitive::<UInt32Type>();
        let ids = batch.column(1).as_primitive::<UInt64Type>();
        rows.extend(tablets.values().iter().copied().zip(ids.values().iter().copied()));
    }
    let engine = &session.engine;
    let _order = engine.commit_lock.lock();
    table.kill(&RowVictims { epoch, rows }, engine.config().clock.now_ms())?;
    // A condition is stored, rows are not counted.
    let (label, txn) = (random::uuid(), engine.catalog.next_ids(1));
    let info = format!("{{'label':'delete_{label}', 'status':'VISIBLE', 'txnId':'{txn}'}}");
    Ok(StatementResult::Done { affected: 0, info, warnings: 0 })
}

fn predicate(cursor: &mut Cursor<'_>) -> Result<Option<String>, SqlError> {
    if cursor.at_end() {
        return Ok(None);
    }
    cursor.expect("WHERE")?;
    if cursor.at_end() {
        return Err(cursor.unexpected("an expression"));
    }
    Ok(Some(cursor.rest().to_owned()))
}

/// Moves over an expression, to `,`, WHERE or FROM at its own depth.
fn skip_expression(cursor: &mut Cursor<'_>) {
    let mut depth = 0_i32;
    while let Some(token) = cursor.peek() {
        match token {
            Token::LParen | Token::LBracket | Token::LBrace => depth += 1,
            Token::RParen | Token::RBracket | Token::RBrace => depth -= 1,
            Token::Comma if depth == 0 => break,
            _ if depth == 0 && (cursor.is_word("WHERE") || cursor.is_word("FROM")) => break,
            _ => {}
        }
        cursor.at += 1;
    }
}

fn select(db: &str, name: &str, items: &[String], filter: &Filter) -> String {
    let names = |list: &[String]| list.iter().map(|p| quoted(p)).collect::<Vec<_>>().join(", ");
    let partitions = filter.partitions.as_ref().map(|p| format!(" PARTITION({})", names(p))).unwrap_or_default();
    let alias = filter.alias.as_ref().map(|a| format!(" AS {}", quoted(a))).unwrap_or_default();
    let condition = filter.predicate.as_ref().map(|p| format!(" WHERE {p}")).unwrap_or_default();
    format!("SELECT {} FROM {}.{}{partitions}{alias}{condition}", items.join(", "), quoted(db), quoted(name))
}

/// Reads the rows that match and writes them back, changed or as deletes, in one transaction.
async fn rewrite_rows(
    session: &mut Session,
    db: &str,
    table: &Arc<Table>,
    mut items: Vec<String>,
    filter: Filter,
    merge_type: MergeType,
) -> Result<StatementResult, SqlError> {
    let engine = Arc::clone(&session.engine);
    let _guard = table.dml_lock().lock().await;
    let mut targets: Vec<Column> = table.columns().to_vec();
    let mut list = None;
    if let Some(sequence) = table.spec().sequence.as_ref().filter(|s| s.column.is_none()) {
        // Rows go back with the sequence they have: an equal one wins.
        items.push(SEQUENCE_COL.to_owned());
        targets.push(Column::new(SEQUENCE_COL, sequence.ty.clone()));
        list = Some(targets.iter().map(|c| c.name.clone()).collect());
    }
    let sql = select(db, table.name(), &items, &filter);
    let statements = super::split(&sql, session.variables.backslash_escapes())?;
    let options = QueryOptions { row_ids: list.is_some(), ..QueryOptions::default() };
    let prepared = query::prepare(session, &statements[0].tokens, &sql, &options).await.map_err(unknown_column)?;
    let zone = session.variables.zone();
    let mut stream = prepared.stream().await?;
    let mut batches = Vec::new();
    let fields: Vec<_> = targets.iter().map(|c| c.ty.storage_field(&c.name, true)).collect();
    let schema = Arc::new(arrow::datatypes::Schema::new(fields));
    while let Some(batch) = stream.next().await {
        let batch = batch.map_err(engine_error)?;
        let mut columns = Vec::with_capacity(targets.len());
        for (array, column) in batch.columns().iter().zip(&targets) {
            columns.push(conform_in(array, &column.ty, &zone).map_err(SqlError::detail)?);
        }
        if batch.num_rows() > 0 {
            batches.push(RecordBatch::try_new(Arc::clone(&schema), columns).map_err(SqlError::detail)?);
        }
    }
    if batches.is_empty() {
        return Ok(StatementResult::Done { affected: 0, info: String::new(), warnings: 0 });
    }
    let txn = engine.begin_load(LoadSpec {
        db: db.to_owned(),
        table: table.name().to_owned(),
        label: None,
        two_phase: false,
        timeout: Duration::from_secs(14_400),
        columns: list,
        merge_type,
        source: "INSERT",
        ..LoadSpec::default()
    })?;
    for batch in batches {
        if let Err(error) = super::insert::write_all(&engine, &txn, batch, true, &mut Filtered::default()) {
            engine.abort_load(txn, error.text());
            return Err(error);
        }
    }
    let outcome = publish(&engine, session.commits.clone(), txn).await?;
    Ok(report(session, outcome, db, table.name()))
}
