//! CREATE DATABASE and CREATE TABLE.

use std::collections::BTreeMap;

use arrow::datatypes::SchemaRef;
use datafusion::sql::sqlparser::tokenizer::Token;

use super::column_def::{ColumnDef, check_aggregation, check_key_type, check_names, column_def};
use super::cursor::Cursor;
use super::ddl::{database_name, done, table_name};
use super::{partition, properties, query};
use crate::engine::StatementResult;
use crate::error::SqlError;
use crate::session::Session;
use crate::storage::{Column, KeysType, PartitionSpec, TableSpec, check_script};
use crate::types::{DorisType, VARCHAR_MAX};

/// Buckets when none are written, or AUTO.
const DEFAULT_BUCKETS: usize = 10;
/// Most buckets of a partition that the sandbox takes.
const MAX_BUCKETS: u64 = 768;

pub(super) async fn run(session: &mut Session, cursor: &mut Cursor<'_>) -> Result<StatementResult, SqlError> {
    if cursor.eat("DATABASE") || cursor.eat("SCHEMA") {
        let if_not_exists = cursor.eat_all(&["IF", "NOT", "EXISTS"]);
        let db = database_name(cursor)?;
        if cursor.eat("PROPERTIES") {
            cursor.properties()?;
        }
        cursor.expect_end()?;
        check_script("database", &db, unicode_names(session))?;
        session.engine.catalog.create_database(&db, if_not_exists)?;
        return Ok(done());
    }
    if cursor.eat("TABLE") {
        return table(session, cursor).await;
    }
    Err(SqlError::not_served(format!("CREATE {}", cursor.rest().split('(').next().unwrap_or_default().trim())))
}

fn unicode_names(session: &Session) -> bool {
    session.variables.is_true("enable_unicode_name_support")
}

async fn table(session: &mut Session, cursor: &mut Cursor<'_>) -> Result<StatementResult, SqlError> {
    let if_not_exists = cursor.eat_all(&["IF", "NOT", "EXISTS"]);
    let (db, name) = table_name(session, cursor)?;
    check_script("table", &name, unicode_names(session))?;
    if cursor.eat("LIKE") {
        return like(session, cursor, &db, name, if_not_exists);
    }
    let ctas = select_at(cursor);
    let mut defs = match ctas {
        Some(_) if cursor.peek() != Some(&Token::LParen) => Vec::new(),
        Some(_) if names_only(cursor) => {
            cursor.ident_list()?.into_iter().map(|name| named(name, DorisType::Null)).collect()
        }
        _ => column_defs(cursor)?,
    };
    let mut clauses = clauses(cursor)?;
    let query = match ctas {
        None => None,
        Some(at) => {
            cursor.eat("AS");
            if cursor.at != at {
                return Err(cursor.unexpected("AS"));
            }
            let prepared =
                query::prepare(session, &cursor.tokens[at..], cursor.text, &query::QueryOptions::default()).await?;
            take_types(&mut defs, &prepared.schema())?;
            if clauses.distribution.is_none() {
                clauses.distribution = defs.first().map(|d| (vec![d.column.name.clone()], DEFAULT_BUCKETS, true));
            }
            Some(at)
        }
    };
    if query.is_none() {
        cursor.expect_end()?;
    }
    let (spec, partitions) = assemble(session, db.clone(), name.clone(), defs, clauses)?;
    let created = session.engine.catalog.create_table(spec, partitions, if_not_exists)?;
    let Some(at) = query.filter(|_| created) else { return Ok(done()) };
    cursor.at = at;
    let filled = super::insert::fill(session, cursor, &db, &name).await;
    if filled.is_err() {
        // The table came with this statement and goes with it.
        session.engine.catalog.drop_table(&db, &name, true)?;
    }
    filled
}

/// `CREATE TABLE t LIKE s [WITH ROLLUP ...]`
fn like(
    session: &Session,
    cursor: &mut Cursor<'_>,
    db: &str,
    name: String,
    if_not_exists: bool,
) -> Result<StatementResult, SqlError> {
    let (source_db, source) = table_name(session, cursor)?;
    if cursor.is_word("WITH") {
        return Err(SqlError::not_served("ROLLUP"));
    }
    cursor.expect_end()?;
    let source = session.engine.table_handle(&source_db, &source)?;
    let mut spec = source.spec().clone();
    spec.db = db.to_owned();
    spec.name = name;
    spec.created_ms = session.engine.config().clock.now_ms();
    let partitions = source
        .partitions()
        .into_iter()
        .map(|p| PartitionSpec { name: p.name, bounds: p.bounds, buckets: p.buckets })
        .collect();
    session.engine.catalog.create_table(spec, partitions, if_not_exists)?;
    Ok(done())
}

/// Where the query of CREATE TABLE ... AS SELECT starts: the first query word outside parentheses.
fn select_at(cursor: &Cursor<'_>) -> Option<usize> {
    let mut depth = 0_i32;
    for (at, tok) in cursor.tokens.iter().enumerate().skip(cursor.at) {
        match &tok.token {
            Token::LParen | Token::LBracket => depth += 1,
            Token::RParen | Token::RBracket => depth -= 1,
            Token::Word(word) if depth == 0 && word.quote_style.is_none() => {
                let is = |text: &str| word.value.eq_ignore_ascii_case(text);
                if is("SELECT") || is("WITH") {
                    return Some(at);
                }
            }
            _ => {}
        }
    }
    None
}

/// Whether the parentheses hold names without types.
fn names_only(cursor: &Cursor<'_>) -> bool {
    matches!(cursor.peek_at(2), Some(Token::Comma | Token::RParen))
}

fn named(name: String, ty: DorisType) -> ColumnDef {
    ColumnDef { column: Column::new(name, ty), key: false, auto_increment_start: 1 }
}

/// Columns of a CREATE TABLE AS SELECT take the types of the query where none are written.
fn take_types(defs: &mut Vec<ColumnDef>, schema: &SchemaRef) -> Result<(), SqlError> {
    if !defs.is_empty() && defs.len() != schema.fields().len() {
        return Err(SqlError::detail("ctas column size is not equal to the query's"));
    }
    let bare = defs.is_empty();
    for (i, field) in schema.fields().iter().enumerate() {
        let ty = match DorisType::of_field(field) {
            Some(DorisType::Null) => DorisType::TinyInt,
            Some(DorisType::String) if i == 0 => DorisType::Varchar(VARCHAR_MAX),
            Some(ty) => ty,
            None => return Err(SqlError::not_served(format!("a column of type {}", field.data_type()))),
        };
        if bare {
            defs.push(named(field.name().clone(), ty));
            defs[i].column.nullable = field.is_nullable();
        } else if defs[i].column.ty == DorisType::Null {
            defs[i].column.ty = ty;
        }
    }
    Ok(())
}

/// What stands behind the columns.
struct Clauses {
    keys: Option<(KeysType, Vec<String>)>,
    comment: String,
    partition: Option<partition::Written>,
    distribution: Option<Distribution>,
    properties: BTreeMap<String, String>,
}

fn clauses(cursor: &mut Cursor<'_>) -> Result<Clauses, SqlError> {
    if cursor.eat("ENGINE") {
        cursor.expect_token(&Token::Eq)?;
        let engine = cursor.ident()?;
        if !engine.eq_ignore_ascii_case("OLAP") {
            return Err(SqlError::not_served(format!("ENGINE={engine}")));
        }
    }
    let keys = keys_clause(cursor)?;
    if cursor.is_word("CLUSTER") {
        return Err(SqlError::not_served("CLUSTER BY"));
    }
    let comment = if cursor.eat("COMMENT") { cursor.string()? } else { String::new() };
    let partition = partition::read(cursor)?;
    let distribution = distribution(cursor)?;
    if cursor.is_word("ROLLUP") {
        return Err(SqlError::not_served("ROLLUP"));
    }
    let properties = if cursor.eat("PROPERTIES") { cursor.properties()? } else { BTreeMap::new() };
    if cursor.is_word("BROKER") {
        return Err(SqlError::not_served(cursor.rest()));
    }
    Ok(Clauses { keys, comment, partition, distribution, properties })
}

/// Checks the whole statement and makes the definition.
fn assemble(
    session: &Session,
    db: String,
    name: String,
    mut defs: Vec<ColumnDef>,
    clauses: Clauses,
) -> Result<(TableSpec, Vec<PartitionSpec>), SqlError> {
    let (keys_type, _) = apply_keys(&mut defs, clauses.keys)?;
    let auto_increment_start = defs.iter().map(|d| d.auto_increment_start).find(|n| *n != 1).unwrap_or(1);
    let columns: Vec<Column> = defs.into_iter().map(|def| def.column).collect();
    check_names(&columns)?;
    columns.iter().try_for_each(|column| check_aggregation(column, keys_type))?;
    let decimal256 = session.variables.is_true("enable_decimal256");
    let profile = session.engine.profile();
    columns.iter().try_for_each(|c| c.ty.check_column(profile, decimal256)).map_err(SqlError::detail)?;
    let Some((hash_columns, buckets, auto_buckets)) = clauses.distribution else {
        return Err(SqlError::detail("Create olap table should contain distribution desc"));
    };
    check_distribution(&columns, keys_type, &hash_columns)?;
    let sequence = properties::sequence(&clauses.properties, keys_type, &columns)?;
    let (properties, changes) = properties::check(session.engine.as_ref(), clauses.properties, keys_type, &columns)?;
    let merge_on_write = properties.get("enable_unique_key_merge_on_write").is_some_and(|v| v == "true");
    let (partitioning, partitions) = match clauses.partition {
        None => (None, Vec::new()),
        Some(written) => {
            let (partitioning, partitions) = written.bind(&columns, keys_type, buckets)?;
            (Some(partitioning), partitions)
        }
    };
    let spec = TableSpec {
        db,
        name,
        columns,
        keys_type,
        merge_on_write,
        sequence,
        partitioning,
        hash_columns,
        buckets,
        auto_buckets,
        properties,
        comment: clauses.comment,
        changes,
        auto_increment_start,
        created_ms: session.engine.config().clock.now_ms(),
    };
    Ok((spec, partitions))
}

fn column_defs(cursor: &mut Cursor<'_>) -> Result<Vec<ColumnDef>, SqlError> {
    cursor.expect_token(&Token::LParen)?;
    let mut defs = Vec::new();
    loop {
        if cursor.is_word("INDEX") && !matches!(cursor.peek_at(1), Some(Token::LParen)) {
            // An index changes speed, not results.
            while !matches!(cursor.peek(), Some(Token::Comma | Token::RParen) | None) {
                if cursor.peek() == Some(&Token::LParen) { cursor.skip_group()? } else { cursor.at += 1 }
            }
        } else {
            defs.push(column_def(cursor)?);
        }
        if !cursor.eat_token(&Token::Comma) {
            break;
        }
    }
    cursor.expect_token(&Token::RParen)?;
    Ok(defs)
}

fn keys_clause(cursor: &mut Cursor<'_>) -> Result<Option<(KeysType, Vec<String>)>, SqlError> {
    let keys_type = if cursor.eat("DUPLICATE") {
        KeysType::Duplicate
    } else if cursor.eat("UNIQUE") {
        KeysType::Unique
    } else if cursor.eat("AGGREGATE") {
        KeysType::Aggregate
    } else {
        return Ok(None);
    };
    cursor.expect("KEY")?;
    Ok(Some((keys_type, cursor.ident_list()?)))
}

type Distribution = (Vec<String>, usize, bool);

fn distribution(cursor: &mut Cursor<'_>) -> Result<Option<Distribution>, SqlError> {
    if !cursor.eat("DISTRIBUTED") {
        return Ok(None);
    }
    cursor.expect("BY")?;
    let columns = if cursor.eat("RANDOM") {
        Vec::new()
    } else {
        cursor.expect("HASH")?;
        cursor.ident_list()?
    };
    if !cursor.eat("BUCKETS") {
        return Ok(Some((columns, DEFAULT_BUCKETS, true)));
    }
    if cursor.eat("AUTO") {
        return Ok(Some((columns, DEFAULT_BUCKETS, true)));
    }
    let buckets = cursor.number()?;
    if buckets == 0 {
        return Err(SqlError::detail("Buckets number of distribution should be greater than zero."));
    }
    if buckets > MAX_BUCKETS {
        return Err(SqlError::detail(format!(
            "Number of hash buckets should be less than max_bucket_num_per_partition {MAX_BUCKETS}"
        )));
    }
    Ok(Some((columns, buckets as usize, false)))
}

/// Marks the key columns; without a clause the table is DUPLICATE with the first one to three sortable columns as key.
fn apply_keys(defs: &mut [ColumnDef], clause: Option<(KeysType, Vec<String>)>) -> Result<(KeysType, usize), SqlError> {
    let (keys_type, names) = match clause {
        Some(clause) => clause,
        None => {
            let marked: Vec<String> = defs.iter().filter(|d| d.key).map(|d| d.column.name.clone()).collect();
            if defs.iter().any(|d| d.column.aggregation.is_some()) {
                let keys = defs.iter().take_while(|d| d.column.aggregation.is_none());
                (KeysType::Aggregate, keys.map(|d| d.column.name.clone()).collect())
            } else if !marked.is_empty() {
                (KeysType::Duplicate, marked)
            } else {
                let mut names = Vec::new();
                for def in defs.iter().take(3) {
                    if !def.column.ty.can_be_key() {
                        break;
                    }
                    names.push(def.column.name.clone());
                    if matches!(def.column.ty, DorisType::Varchar(_)) {
                        break;
                    }
                }
                if names.is_empty() {
                    return Err(SqlError::detail(
                        "The olap table first column could not be float, double, string or array, struct, map, please use decimal or varchar instead.",
                    ));
                }
                (KeysType::Duplicate, names)
            }
        }
    };
    for (i, name) in names.iter().enumerate() {
        let Some(at) = defs.iter().position(|d| d.column.name.eq_ignore_ascii_case(name)) else {
            return Err(SqlError::detail(format!("Key column[{name}] doesn't exist.")));
        };
        if at != i {
            return Err(SqlError::detail(format!(
                "Key columns should be a ordered prefix of the schema. KeyColumns[{i}] (starts from zero) is {name}, but corresponding column is {} in the previous columns declaration.",
                defs[i].column.name
            )));
        }
        let column = &mut defs[at].column;
        check_key_type(column)?;
        column.key = true;
    }
    Ok((keys_type, names.len()))
}

fn check_distribution(columns: &[Column], keys_type: KeysType, hash: &[String]) -> Result<(), SqlError> {
    if hash.is_empty() && keys_type == KeysType::Unique {
        return Err(SqlError::detail("Create unique keys table should not contain random distribution desc"));
    }
    for name in hash {
        let Some(column) = columns.iter().find(|c| c.name.eq_ignore_ascii_case(name)) else {
            return Err(SqlError::detail(format!("Distribution column({name}) doesn't exist.")));
        };
        if keys_type != KeysType::Duplicate && !column.key {
            return Err(SqlError::detail(format!("Distribution column[{name}] is not key column")));
        }
        if matches!(column.ty, DorisType::Float | DorisType::Double | DorisType::Json | DorisType::Variant)
            || column.ty.is_nested()
        {
            return Err(SqlError::detail(format!(
                "{} type should not be used in distribution column[{name}].",
                column.ty.primitive_name()
            )));
        }
    }
    Ok(())
}
