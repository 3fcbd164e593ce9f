//! INSERT INTO ... VALUES and INSERT INTO ... SELECT: one load transaction per statement.

use std::sync::Arc;
use std::time::Duration;

use arrow::array::{Array, ArrayRef, RecordBatch};
use arrow::datatypes::SchemaRef;
use datafusion::sql::sqlparser::tokenizer::Token;
use futures::StreamExt;

use super::cursor::Cursor;
use super::ddl::table_name;
use super::insert_errors::{Filtered, strict as filtered};
use super::lexer::Tok;
use super::literal;
use super::partition;
use super::query::{self, QueryOptions, engine_error};
use super::transaction::{OpenLoad, Transaction, told_rows};
use crate::changelog::Consumption;
use crate::engine::{Engine, LoadOutcome, LoadSpec, MergeType, NewKeyBehavior, Overwrite, StatementResult, UpdateMode};
use crate::error::SqlError;
use crate::faults::CommitFaults;
use crate::session::{LastInsert, Session};
use crate::storage::{DELETE_SIGN, DefaultValue, SEQUENCE_COL, Table};
use crate::txn::{LoadTxn, TxnState};
use crate::types::{ColumnBuilder, DorisType, Value, conform_in};

/// Rows per batch built from literals.
const VALUES_BATCH: usize = 8192;

pub(super) async fn run(session: &mut Session, cursor: &mut Cursor<'_>) -> Result<StatementResult, SqlError> {
    let mut into = Into::default();
    if cursor.eat("OVERWRITE") {
        into.overwrite = Overwrite::Targets;
        cursor.eat("INTO");
    } else {
        cursor.expect("INTO")?;
    }
    cursor.eat("TABLE");
    let (db, name) = table_name(session, cursor)?;
    let every = cursor.is_word("PARTITION") && cursor.peek_at(2) == Some(&Token::Mul);
    if every && into.overwrite == Overwrite::Targets {
        cursor.at += 1;
        cursor.skip_group()?;
        into.overwrite = Overwrite::Touched;
    } else {
        into.partitions = partition::names(cursor)?;
    }
    loop {
        if cursor.is_word("WITH") && cursor.is_word_at(1, "LABEL") {
            cursor.at += 2;
            into.label = Some(match cursor.peek() {
                Some(Token::SingleQuotedString(_)) => cursor.string()?,
                _ => label_name(cursor)?,
            });
        } else if cursor.peek() == Some(&Token::LParen) && into.columns.is_none() && !opens_query(cursor) {
            into.columns = Some(cursor.ident_list()?);
        } else {
            break;
        }
    }
    write(session, cursor, &db, &name, into).await
}

/// Fills a table with the query at the cursor.
pub(super) async fn fill(
    session: &mut Session,
    cursor: &mut Cursor<'_>,
    db: &str,
    name: &str,
) -> Result<StatementResult, SqlError> {
    write(session, cursor, db, name, Into::default()).await
}

/// What stands between INSERT and the rows.
#[derive(Default)]
struct Into {
    label: Option<String>,
    columns: Option<Vec<String>>,
    partitions: Option<Vec<String>>,
    overwrite: Overwrite,
}

async fn write(
    session: &mut Session,
    cursor: &mut Cursor<'_>,
    db: &str,
    name: &str,
    into: Into,
) -> Result<StatementResult, SqlError> {
    let engine = Arc::clone(&session.engine);
    let table = engine.table_handle(db, name)?;
    let strict = session.variables.is_true("enable_insert_strict");
    // Without a column list, or on other models, the variable changes nothing.
    let partial = session.variables.is_true("enable_unique_key_partial_update")
        && table.spec().is_mow()
        && into.overwrite == Overwrite::No
        && into.columns.is_some();
    if let Some(partitions) = &into.partitions {
        table.partition_ids(partitions)?;
    }
    table.check_columns(into.columns.as_deref(), partial)?;
    let targets = targets(&table, into.columns.as_deref())?;
    let is_values = cursor.is_word("VALUES") || cursor.is_word("VALUE");
    // Everything that can be refused without rows is refused before a transaction takes the label.
    let mut consumption = Consumption::default();
    let source = if is_values {
        cursor.at += 1;
        Source::Values(read_values(session, cursor, &targets)?)
    } else {
        let mut prepared =
            query::prepare(session, &cursor.tokens[cursor.at..], cursor.text, &QueryOptions::default()).await?;
        consumption = std::mem::take(&mut prepared.consumption);
        let width = prepared.schema().fields().len();
        if width != targets.len() {
            return Err(SqlError::coded(
                5010,
                format!(
                    "insert into cols should be corresponding to the query output: target {} columns, query {width}",
                    targets.len()
                ),
            ));
        }
        Source::Query(Box::new(prepared))
    };
    let timeout = session.variables.number("insert_timeout").unwrap_or(14_400);
    let spec = LoadSpec {
        db: db.to_owned(),
        table: name.to_owned(),
        label: into.label,
        two_phase: false,
        timeout: Duration::from_secs(timeout),
        columns: into.columns,
        merge_type: MergeType::Append,
        source: "INSERT",
        update_mode: if partial { UpdateMode::FixedColumns } else { UpdateMode::Upsert },
        new_key: if strict { NewKeyBehavior::Error } else { NewKeyBehavior::Append },
        partitions: into.partitions,
        overwrite: into.overwrite,
        ..LoadSpec::default()
    };
    if session.transaction.is_some() {
        if !consumption.is_empty() {
            return Err(SqlError::not_served("reading a table stream inside a transaction"));
        }
        return in_transaction(session, &engine, spec, source, &targets, strict).await;
    }
    let txn = engine.begin_load(spec)?;
    let written = write_source(session, &engine, &txn, source, &targets, strict).await;
    let checked = written.and_then(|refused| check_ratio(session, &refused, txn.rows()).map(|()| refused));
    let refused = match checked {
        Ok(refused) => refused,
        Err(error) => {
            engine.abort_load(txn, error.text());
            return Err(error);
        }
    };
    if let Some(url) = refused.keep(&engine) {
        engine.txns.set_error_url(txn.txn_id(), url);
    }
    let now = engine.config().clock.now_ms();
    let outcome = consumption.commit(now, publish(&engine, session.commits.clone(), txn)).await?;
    Ok(report(session, outcome, db, name))
}

async fn write_source(
    session: &Session,
    engine: &Arc<Engine>,
    txn: &LoadTxn,
    source: Source,
    targets: &[Target],
    strict: bool,
) -> Result<Filtered, SqlError> {
    let mut refused = Filtered::default();
    match source {
        Source::Values(batches) => {
            for batch in batches {
                write_all(engine, txn, batch, strict, &mut refused)?;
            }
        }
        Source::Query(prepared) => copy_rows(session, engine, txn, *prepared, targets, &mut refused).await?,
    }
    Ok(refused)
}

/// Whether so many filtered rows are too many. `written` counts the others.
fn check_ratio(session: &Session, filtered: &Filtered, written: u64) -> Result<(), SqlError> {
    let refused = filtered.rows;
    let ratio =
        session.variables.get("insert_max_filter_ratio").and_then(|text| text.parse::<f64>().ok()).unwrap_or(1.0);
    let all = refused + written;
    if refused as f64 > ratio * all as f64 {
        let text = format!("Insert has too many filtered data {refused}/{all} insert_max_filter_ratio is {ratio:.6}");
        return Err(filtered.refusal(&session.engine, text));
    }
    Ok(())
}

/// Adds rows to the load of the session's transaction. Rows that were written cannot be taken back one INSERT at a time:
/// a failure ends the transaction.
async fn in_transaction(
    session: &mut Session,
    engine: &Arc<Engine>,
    spec: LoadSpec,
    source: Source,
    targets: &[Target],
    strict: bool,
) -> Result<StatementResult, SqlError> {
    let Some(mut transaction) = session.transaction.take() else {
        return Err(SqlError::detail("There is no transaction"));
    };
    if spec.label.is_some() {
        session.transaction = Some(transaction);
        return Err(SqlError::detail("Transaction insert can not have label"));
    }
    let open = match transaction.open.take() {
        Some(open) => match open.check(&spec.db, &spec.table, spec.columns.as_deref()) {
            Ok(()) => open,
            Err(error) => {
                session.transaction = Some(Transaction { open: Some(open), ..transaction });
                return Err(error);
            }
        },
        None => {
            let (db, table, columns) = (spec.db.clone(), spec.table.clone(), spec.columns.clone());
            let txn = engine.begin_load(LoadSpec { label: Some(transaction.label.clone()), ..spec })?;
            OpenLoad { txn, db, table, columns }
        }
    };
    let before = open.txn.rows();
    if let Err(error) = write_source(session, engine, &open.txn, source, targets, strict).await {
        engine.abort_load(open.txn, error.text());
        return Err(error);
    }
    let told = told_rows(&transaction.label, "PREPARE", &open.txn.txn_id().to_string(), open.txn.rows() - before);
    session.transaction = Some(Transaction { open: Some(open), ..transaction });
    Ok(told)
}

enum Source {
    Values(Vec<RecordBatch>),
    Query(Box<query::Prepared>),
}

/// A label may be a word that holds `-` or `:`.
fn label_name(cursor: &mut Cursor<'_>) -> Result<String, SqlError> {
    let start = cursor.offset();
    cursor.ident()?;
    while matches!(cursor.peek(), Some(Token::Minus | Token::Colon))
        && cursor.tokens[cursor.at].start == cursor.tokens[cursor.at - 1].end
    {
        cursor.at += 2;
    }
    Ok(cursor.text_since(start).trim_matches('`').to_owned())
}

/// Whether the parenthesis opens a query and not a column list.
fn opens_query(cursor: &Cursor<'_>) -> bool {
    let mut ahead = 0;
    while cursor.peek_at(ahead) == Some(&Token::LParen) {
        ahead += 1;
    }
    cursor.is_word_at(ahead, "SELECT") || cursor.is_word_at(ahead, "WITH")
}

/// A target column of an INSERT.
pub(super) struct Target {
    pub(super) name: String,
    pub(super) ty: DorisType,
    pub(super) nullable: bool,
    default: DefaultValue,
}

pub(super) fn targets(table: &Table, columns: Option<&[String]>) -> Result<Vec<Target>, SqlError> {
    let of = |c: &crate::storage::Column| Target {
        name: c.name.clone(),
        ty: c.ty.clone(),
        nullable: c.nullable,
        default: c.default.clone(),
    };
    let Some(list) = columns else { return Ok(table.columns().iter().map(of).collect()) };
    list.iter()
        .map(|name| match table.column(name) {
            Some(column) => Ok(of(column)),
            None if name.eq_ignore_ascii_case(SEQUENCE_COL) && table.sequence_type().is_some() => Ok(Target {
                name: SEQUENCE_COL.to_owned(),
                ty: table.sequence_type().cloned().unwrap_or(DorisType::BigInt),
                nullable: true,
                default: DefaultValue::Null,
            }),
            None if name.eq_ignore_ascii_case(DELETE_SIGN) => Ok(Target {
                name: DELETE_SIGN.to_owned(),
                ty: DorisType::TinyInt,
                nullable: false,
                default: DefaultValue::Text("0".to_owned()),
            }),
            None => Err(SqlError::unknown_column(name, "table list")),
        })
        .collect()
}

fn schema_of(targets: &[Target]) -> SchemaRef {
    Arc::new(arrow::datatypes::Schema::new(
        targets.iter().map(|t| t.ty.storage_field(&t.name, true)).collect::<Vec<_>>(),
    ))
}

/// The rows of VALUES. Literals are converted directly; rows with expressions are evaluated as a query each.
fn read_values(session: &Session, cursor: &mut Cursor<'_>, targets: &[Target]) -> Result<Vec<RecordBatch>, SqlError> {
    let strict = session.variables.is_true("enable_insert_strict");
    let zone = session.variables.zone();
    let schema = schema_of(targets);
    let new_builders = || targets.iter().map(|t| ColumnBuilder::in_zone(&t.ty, zone)).collect::<Vec<_>>();
    let mut builders = new_builders();
    let mut rows = 0;
    let mut batches = Vec::new();
    let mut flush = |builders: &mut Vec<ColumnBuilder>, rows: &mut usize| -> Result<(), SqlError> {
        if *rows > 0 {
            let columns: Vec<ArrayRef> = builders.iter_mut().map(ColumnBuilder::finish).collect();
            batches.push(RecordBatch::try_new(Arc::clone(&schema), columns).map_err(SqlError::detail)?);
            *rows = 0;
        }
        Ok(())
    };
    loop {
        cursor.expect_token(&Token::LParen)?;
        for (i, (target, builder)) in targets.iter().zip(&mut builders).enumerate() {
            let last = i + 1 == targets.len();
            let start = cursor.at;
            let appended = match literal::read(cursor) {
                Some(literal::Literal::Default) => append_default(builder, target, session)?,
                Some(value) => literal::append(builder, &value),
                None => append_expression(session, cursor, builder)?,
            };
            if !appended {
                let text = &cursor.text[cursor.tokens[start].start..cursor.tokens[cursor.at - 1].end];
                let shown: String = text.chars().take(64).collect();
                if strict || !target.nullable {
                    let reason = format!("value {shown} is not valid for column {} {}", target.name, target.ty);
                    return Err(filtered(&session.engine, &reason));
                }
                builder.append_null();
            }
            if last {
                if cursor.peek() == Some(&Token::Comma) {
                    return Err(column_count(i + 2, targets.len()));
                }
                cursor.expect_token(&Token::RParen)?;
            } else if !cursor.eat_token(&Token::Comma) {
                return Err(column_count(i + 1, targets.len()));
            }
        }
        rows += 1;
        if rows == VALUES_BATCH {
            flush(&mut builders, &mut rows)?;
        }
        if !cursor.eat_token(&Token::Comma) {
            break;
        }
    }
    cursor.expect_end()?;
    flush(&mut builders, &mut rows)?;
    Ok(batches)
}

fn column_count(given: usize, wanted: usize) -> SqlError {
    SqlError::coded(
        5010,
        format!("Column count doesn't match value count: target {wanted} columns, value list {given}"),
    )
}

fn append_default(builder: &mut ColumnBuilder, target: &Target, session: &Session) -> Result<bool, SqlError> {
    match &target.default {
        DefaultValue::Text(text) => Ok(builder.append_text(text).is_ok()),
        DefaultValue::CurrentTimestamp(digits) => {
            let now = query::now_text(session, *digits);
            Ok(builder.append_text(&now).is_ok())
        }
        DefaultValue::Empty => Err(SqlError::not_served("DEFAULT for a state in VALUES; leave the column out")),
        DefaultValue::CurrentDate => {
            let now = query::now_text(session, 0);
            Ok(builder.append_text(&now[..10]).is_ok())
        }
        DefaultValue::Null | DefaultValue::None if target.nullable => {
            builder.append_null();
            Ok(true)
        }
        _ => Err(SqlError::detail(format!("Column has no default value, column={}", target.name))),
    }
}

/// Evaluates one constant expression of VALUES and appends it.
fn append_expression(
    session: &Session,
    cursor: &mut Cursor<'_>,
    builder: &mut ColumnBuilder,
) -> Result<bool, SqlError> {
    let start = cursor.at;
    let mut depth = 0_i32;
    while let Some(token) = cursor.peek() {
        match token {
            Token::LParen | Token::LBracket | Token::LBrace => depth += 1,
            Token::RParen if depth == 0 => break,
            Token::Comma if depth == 0 => break,
            Token::RParen | Token::RBracket | Token::RBrace => depth -= 1,
            _ => {}
        }
        cursor.at += 1;
    }
    if cursor.at == start {
        return Err(cursor.unexpected("a value"));
    }
    let tokens: Vec<Tok> = cursor.tokens[start..cursor.at].to_vec();
    let value = query::constant(session, &tokens, cursor.text)?;
    let converted = conform_in(&value, builder.doris_type(), &session.variables.zone()).map_err(SqlError::detail)?;
    if value.is_null(0) {
        builder.append_null();
        return Ok(true);
    }
    if matches!(builder.doris_type(), DorisType::Bitmap | DorisType::Hll) {
        // They have no text.
        let state = Value::read(&converted, 0, builder.doris_type());
        return Ok(builder.append_value(&state).is_ok());
    }
    let text = crate::types::text_value(&converted, 0, builder.doris_type(), crate::types::TextStyle::Mysql);
    Ok(text.is_some_and(|text| builder.append_text(&text).is_ok()))
}

/// Streams a query into the load, converting columns by position.
async fn copy_rows(
    session: &Session,
    engine: &Arc<Engine>,
    txn: &LoadTxn,
    prepared: query::Prepared,
    targets: &[Target],
    refused: &mut Filtered,
) -> Result<(), SqlError> {
    let strict = session.variables.is_true("enable_insert_strict");
    let zone = session.variables.zone();
    let schema = schema_of(targets);
    let mut stream = prepared.stream().await?;
    while let Some(batch) = stream.next().await {
        let batch = batch.map_err(engine_error)?;
        let mut columns = Vec::with_capacity(targets.len());
        for (column, target) in batch.columns().iter().zip(targets) {
            let converted = conform_in(column, &target.ty, &zone).map_err(SqlError::detail)?;
            if strict && converted.null_count() > column.logical_null_count() {
                let reason = format!("a value is not valid for column {} {}", target.name, target.ty);
                return Err(filtered(engine, &reason));
            }
            columns.push(converted);
        }
        let batch = RecordBatch::try_new_with_options(
            Arc::clone(&schema),
            columns,
            &arrow::array::RecordBatchOptions::new().with_row_count(Some(batch.num_rows())),
        )
        .map_err(SqlError::detail)?;
        write_all(engine, txn, batch, strict, refused)?;
    }
    Ok(())
}

/// Writes a batch; in strict mode the table must take every row. Notes those that it does not take.
pub(super) fn write_all(
    engine: &Engine,
    txn: &LoadTxn,
    batch: RecordBatch,
    strict: bool,
    noted: &mut Filtered,
) -> Result<(), SqlError> {
    let refused = engine.write_load(txn, batch)?;
    if let Some(refused) = refused.first().filter(|_| strict) {
        return Err(filtered(engine, &refused.reason));
    }
    refused.iter().for_each(|refused| noted.push(&refused.reason));
    Ok(())
}

/// Commits off the async threads: a large commit hashes every key.
pub(super) async fn publish(
    engine: &Arc<Engine>,
    faults: Option<Arc<CommitFaults>>,
    txn: LoadTxn,
) -> Result<LoadOutcome, SqlError> {
    if let Some(text) = faults.as_ref().and_then(|faults| faults.fail()) {
        engine.abort_load(txn, &text);
        return Err(SqlError::detail(text));
    }
    let committing = Arc::clone(engine);
    let held = move |id| faults.as_ref().is_some_and(|faults| faults.hold(id));
    let task = tokio::task::spawn_blocking(move || committing.finish_load_held(txn, false, &held));
    let outcome = task.await.map_err(|error| SqlError::detail(format!("commit task failed: {error}")))?;
    let mut outcome = outcome.map_err(SqlError::from)?;
    if outcome.state == TxnState::Committed {
        outcome.state = engine.published(outcome.txn_id).await;
    }
    Ok(outcome)
}

pub(super) fn report(session: &mut Session, outcome: LoadOutcome, db: &str, table: &str) -> StatementResult {
    session.last_insert = Some(LastInsert {
        txn_id: outcome.txn_id,
        label: outcome.label.clone(),
        db: db.to_owned(),
        table: table.to_owned(),
        status: outcome.state.name(),
        rows: outcome.rows,
        filtered: outcome.refused,
    });
    let status = outcome.state.name().to_lowercase();
    let info = format!("{{'label':'{}', 'status':'{}', 'txnId':'{}'}}", outcome.label, status, outcome.txn_id);
    StatementResult::Done { affected: outcome.rows, info, warnings: outcome.refused }
}
