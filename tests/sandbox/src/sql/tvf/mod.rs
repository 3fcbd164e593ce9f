//! Table functions in FROM: `S3`, `NUMBERS`, `BACKENDS`, `FRONTENDS`.

mod glob;
mod json;
mod parquet;
mod properties;
mod s3;
mod text;

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema};
use datafusion::catalog::TableProvider;
use datafusion::sql::sqlparser::tokenizer::Token;

use self::properties::S3Properties;
use self::s3::S3Table;
use super::cursor::Cursor;
use super::output::{text_batch, text_rows};
use super::provider::{Relation, Source};
use super::show::{self, Row, cell};
use crate::engine::StatementResult;
use crate::error::SqlError;
use crate::session::Session;
use crate::types::DorisType;

/// Table functions of Doris, in lower case.
const KNOWN: &[&str] = &[
    "active_queries",
    "backends",
    "catalogs",
    "file",
    "frontends",
    "frontends_disks",
    "group_commit",
    "hdfs",
    "http",
    "http_stream",
    "iceberg_meta",
    "jobs",
    "local",
    "mv_infos",
    "numbers",
    "partition_values",
    "partitions",
    "query",
    "s3",
    "tasks",
    "workload_groups",
];
/// Rows that `NUMBERS` makes at most, for they are made before the statement runs.
const MAX_NUMBERS: u64 = 50_000_000;

/// Whether a name means a table function when a parenthesis follows.
pub(super) fn is_known(name: &str) -> bool {
    KNOWN.contains(&name.to_ascii_lowercase().as_str())
}

/// A call in FROM.
#[derive(Clone)]
pub(super) struct TableFunction {
    pub(super) name: String,
    pub(super) properties: BTreeMap<String, String>,
}

impl std::fmt::Debug for TableFunction {
    /// The name only: properties hold credentials.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}(..)", self.name)
    }
}

/// The rows of a call.
pub(super) async fn bind(session: &Session, function: &TableFunction) -> Result<Arc<dyn TableProvider>, SqlError> {
    let batch = match function.name.to_ascii_lowercase().as_str() {
        "s3" => {
            let properties = S3Properties::new(&function.properties, session.engine.profile())?;
            return Ok(Arc::new(S3Table::open(properties, session.variables.zone()).await?));
        }
        "numbers" => numbers(&function.properties)?,
        "frontends" => {
            no_properties(function)?;
            text(show::frontends(session))?
        }
        "backends" => {
            no_properties(function)?;
            text(show::backends(session)?)?
        }
        other => return Err(SqlError::not_served(format!("table function {other}"))),
    };
    Ok(Arc::new(Relation::new(batch.schema(), Source::Rows(batch))))
}

fn text((names, rows): (Vec<&'static str>, Vec<Row>)) -> Result<RecordBatch, SqlError> {
    text_batch(&names, &rows)
}

fn no_properties(function: &TableFunction) -> Result<(), SqlError> {
    match function.properties.is_empty() {
        true => Ok(()),
        false => Err(SqlError::detail(format!("{} table-valued-function does not support any params", function.name))),
    }
}

/// `NUMBERS("number" = "n" [, "const_value" = "c"])`
fn numbers(properties: &BTreeMap<String, String>) -> Result<RecordBatch, SqlError> {
    let (mut count, mut constant) = (None, None);
    for (key, value) in properties {
        let read = |what: &str| {
            value
                .parse::<u64>()
                .map_err(|_| SqlError::detail(format!("can not parse `{what}` param to natural number")))
        };
        match key.to_ascii_lowercase().as_str() {
            "number" => count = Some(read("number")?),
            "const_value" => constant = Some(read("const_value")? as i64),
            _ => return Err(SqlError::detail(format!("'{key}' is invalid property"))),
        }
    }
    let count = count.ok_or_else(|| SqlError::detail("number not set"))?;
    if count > MAX_NUMBERS {
        return Err(SqlError::not_served(format!("NUMBERS of more than {MAX_NUMBERS}")));
    }
    let values: Int64Array = (0..count as i64).map(|n| constant.unwrap_or(n)).collect();
    let schema = Schema::new(vec![Field::new("number", DataType::Int64, false)]);
    RecordBatch::try_new(Arc::new(schema), vec![Arc::new(values)]).map_err(SqlError::detail)
}

/// `DESC FUNCTION name(...)`, after DESC.
pub(super) async fn describe(session: &Session, cursor: &mut Cursor<'_>) -> Result<StatementResult, SqlError> {
    cursor.expect("FUNCTION")?;
    let name = cursor.ident()?;
    if !is_known(&name) {
        return Err(SqlError::detail(format!("Could not find table function {name}")));
    }
    let properties = match (cursor.peek(), cursor.peek_at(1)) {
        (Some(Token::LParen), Some(Token::RParen)) => {
            cursor.at += 2;
            BTreeMap::new()
        }
        _ => cursor.properties()?,
    };
    cursor.expect_end()?;
    let relation = bind(session, &TableFunction { name, properties }).await?;
    let schema = relation.schema();
    let rows = schema.fields().iter().map(|field| {
        let ty = DorisType::of_field(field).map_or_else(|| "unknown".to_owned(), |ty| ty.desc_name());
        let null = if field.is_nullable() { "Yes" } else { "No" };
        vec![cell(field.name()), cell(ty), cell(null), cell(false), None, cell("NONE")]
    });
    text_rows(&["Field", "Type", "Null", "Key", "Default", "Extra"], rows.collect())
}
