//! `CREATE EXTERNAL TABLE … STORED AS DORIS`.

use std::collections::HashMap;
use std::str::FromStr;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider, TableProviderFactory};
use datafusion::common::{Constraint, Result as DfResult};
use datafusion::logical_expr::CreateExternalTable;
use futures::FutureExt;
use futures::future::BoxFuture;

use crate::error::{Error, Result};
use crate::options::{DorisOptions, OptionKey, ScanMode};
use crate::table::DorisTable;
use crate::types::KeyModel;

/// The name after `STORED AS`.
pub const DORIS_FORMAT: &str = "DORIS";

/// Makes [`DorisTable`]s from DDL.
///
/// ```sql
/// CREATE EXTERNAL TABLE students (id INT, name VARCHAR)      -- the column list may be left out
/// STORED AS DORIS
/// LOCATION 'doris://fe:8030/db/students'                     -- or '' and the options fenodes, table.identifier
/// OPTIONS ('username' 'root', 'password' '…')
/// ```
///
/// `CREATE UNBOUNDED EXTERNAL TABLE` reads the changelog, in mode `initial` if no mode is given.
#[derive(Debug, Default)]
pub struct DorisTableFactory {}

/// Options and key columns of a statement.
#[derive(Debug)]
struct Declaration {
    options: DorisOptions,
    /// Names in the PRIMARY KEY clause.
    key: Option<Vec<String>>,
}

impl Declaration {
    fn try_new(cmd: &CreateExternalTable) -> Result<Self> {
        let unsupported =
            |clause: &str, advice: &str| Err(Error::unsupported(format!("{clause} of a doris table"), advice));
        if !cmd.table_partition_cols.is_empty() {
            return unsupported("PARTITIONED BY", "leave it out, partitions are doris' own");
        }
        if !cmd.order_exprs.is_empty() {
            return unsupported("WITH ORDER", "leave it out, doris does not promise an order");
        }
        let location = match cmd.locations.as_slice() {
            [] => "",
            [location] => location,
            _ => return Err(Error::config("LOCATION", "names several places, name one doris table")),
        };
        let mut map = cmd.options.clone();
        if cmd.unbounded {
            ask_for_changelog(&mut map);
        }
        let options = DorisOptions::from_location_and_map(location, map)?;
        if cmd.unbounded && options.read.mode == ScanMode::Snapshot {
            return Err(Error::config(
                "source.scan.mode",
                "'snapshot' contradicts UNBOUNDED: leave out the word or set the mode to 'initial' or 'latest'",
            ));
        }
        if cmd.unbounded && options.read.bounded.is_some() {
            return Err(Error::config(
                "source.scan.bounded-mode",
                "contradicts UNBOUNDED: leave out the word, the mode 'initial' or 'latest' says it",
            ));
        }
        let mut key = None;
        for constraint in cmd.constraints.iter() {
            match constraint {
                Constraint::PrimaryKey(columns) => {
                    key = Some(columns.iter().map(|index| cmd.schema.field(*index).name().clone()).collect());
                }
                Constraint::Unique(_) => {
                    return unsupported("UNIQUE", "use PRIMARY KEY for the columns of the UNIQUE KEY");
                }
            }
        }
        Ok(Self { options, key })
    }
}

/// Sets the mode of a changelog when the statement sets none.
fn ask_for_changelog(options: &mut HashMap<String, String>) {
    let is_mode = |key: &String| OptionKey::from_str(key).is_ok_and(|key| key == OptionKey::ScanMode);
    if !options.keys().any(is_mode) {
        options.insert(OptionKey::ScanMode.as_ref().to_string(), ScanMode::Initial.to_string());
    }
}

/// Compares the PRIMARY KEY clause with the key of the table.
fn check_key(table: &DorisTable, declared: &[String]) -> Result<()> {
    let doris = table.doris_schema();
    if doris.model != Some(KeyModel::Unique) {
        return Err(Error::schema(&doris.table, "has no UNIQUE KEY: leave out PRIMARY KEY"));
    }
    let key: Vec<&str> = doris.columns.iter().filter(|column| column.key).map(|column| column.name.as_str()).collect();
    let same =
        key.len() == declared.len() && declared.iter().all(|name| doris.column(name).is_some_and(|column| column.key));
    if same {
        return Ok(());
    }
    Err(Error::schema(
        &doris.table,
        format!("PRIMARY KEY ({}) is not its key, which is ({})", declared.join(", "), key.join(", ")),
    ))
}

#[async_trait]
impl TableProviderFactory for DorisTableFactory {
    // No `async fn`: its future would hold the statement with its expressions, see `DorisTable::scan`.
    fn create<'life0, 'life1, 'life2, 'async_trait>(
        &'life0 self,
        _state: &'life1 dyn Session,
        cmd: &'life2 CreateExternalTable,
    ) -> BoxFuture<'async_trait, DfResult<Arc<dyn TableProvider>>>
    where
        'life0: 'async_trait,
        'life1: 'async_trait,
        'life2: 'async_trait,
        Self: 'async_trait,
    {
        let Declaration { options, key } = match Declaration::try_new(cmd) {
            Ok(declared) => declared,
            Err(error) => return std::future::ready(Err(error.into())).boxed(),
        };
        let mut builder = DorisTable::builder(options).with_column_defaults(cmd.column_defaults.clone());
        if !cmd.schema.fields().is_empty() {
            builder = builder.with_schema(Arc::new(cmd.schema.as_arrow().clone()));
        }
        async move {
            let table = builder.build().await?;
            if let Some(key) = key {
                check_key(&table, &key)?;
            }
            Ok(Arc::new(table) as Arc<dyn TableProvider>)
        }
        .boxed()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use datafusion::logical_expr::{DdlStatement, LogicalPlan};
    use datafusion::prelude::SessionContext;

    use super::*;

    async fn declare(sql: &str) -> Result<Declaration> {
        let context = SessionContext::new();
        crate::register(&context).unwrap();
        let statement = crate::session::with_optional_location(sql);
        match context.state().create_logical_plan(&statement).await.unwrap() {
            LogicalPlan::Ddl(DdlStatement::CreateExternalTable(cmd)) => Declaration::try_new(&cmd),
            other => panic!("not a table: {other}"),
        }
    }

    const OPTIONS: &str = "STORED AS DORIS OPTIONS ('fenodes' 'fe:8030', 'table.identifier' 'db.t', 'username' 'root'";

    #[tokio::test]
    async fn unbounded_reads_the_changelog() {
        let declared = declare(&format!("CREATE UNBOUNDED EXTERNAL TABLE t {OPTIONS})")).await.unwrap();
        assert_eq!(declared.options.read.mode, ScanMode::Initial);
        let latest = format!("CREATE UNBOUNDED EXTERNAL TABLE t {OPTIONS}, 'source.scan.mode' 'latest')");
        assert_eq!(declare(&latest).await.unwrap().options.read.mode, ScanMode::Latest);
        let bounded = declare(&format!("CREATE EXTERNAL TABLE t {OPTIONS})")).await.unwrap();
        assert_eq!(bounded.options.read.mode, ScanMode::Snapshot);
    }

    #[tokio::test]
    async fn contradictions_are_refused_by_option() {
        let snapshot = format!("CREATE UNBOUNDED EXTERNAL TABLE t {OPTIONS}, 'source.scan.mode' 'snapshot')");
        let error = declare(&snapshot).await.unwrap_err().to_string();
        assert!(error.contains("source.scan.mode") && error.contains("UNBOUNDED"), "{error}");
        let bounded = format!(
            "CREATE UNBOUNDED EXTERNAL TABLE t {OPTIONS}, 'source.scan.mode' 'latest', 'source.scan.bounded-mode' 'latest')"
        );
        let error = declare(&bounded).await.unwrap_err().to_string();
        assert!(error.contains("source.scan.bounded-mode"), "{error}");
    }

    #[tokio::test]
    async fn location_names_the_table() {
        let declared = declare(
            "CREATE EXTERNAL TABLE t STORED AS DORIS LOCATION 'doris://fe:8030/db/students' OPTIONS (username 'root')",
        );
        let declared = declared.await.unwrap();
        assert_eq!(declared.options.table.to_string(), "db.students");
        assert_eq!(declared.options.connection.fenodes, ["fe:8030"]);
    }

    #[tokio::test]
    async fn primary_key_clause_is_kept_by_name() {
        let declared = declare(&format!("CREATE EXTERNAL TABLE t (a INT, b INT, PRIMARY KEY (b)) {OPTIONS})")).await;
        assert_eq!(declared.unwrap().key, Some(vec!["b".to_string()]));
    }

    #[tokio::test]
    async fn clauses_without_meaning_are_refused() {
        let ordered = format!("CREATE EXTERNAL TABLE t (a INT) {OPTIONS}) WITH ORDER (a ASC) LOCATION ''");
        let error = declare(&ordered).await.unwrap_err().to_string();
        assert!(error.contains("WITH ORDER"), "{error}");
    }
}
