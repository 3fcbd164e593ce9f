//! `information_schema.columns` and `.views` over catalogs of Doris.
//!
//! DataFusion asks a catalog for each table it has, one after the other, and gives up with the first that fails. Here the
//! columns of a whole database come by one statement, and a table that cannot be read is left out.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use arrow::datatypes::{Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::information_schema::InformationSchemaProvider;
use datafusion::catalog::memory::{MemoryCatalogProvider, MemoryCatalogProviderList, MemorySchemaProvider};
use datafusion::catalog::streaming::StreamingTable;
use datafusion::catalog::{CatalogProvider, CatalogProviderList, SchemaProvider, Session, TableProvider};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult};
use datafusion::common::{Result as DfResult, ScalarValue};
use datafusion::datasource::empty::EmptyTable;
use datafusion::datasource::{TableType, provider_as_source, source_as_provider};
use datafusion::execution::SessionState;
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{Expr, LogicalPlan, Operator, TableProviderFilterPushDown};
use datafusion::optimizer::AnalyzerRule;
use datafusion::physical_plan::ExecutionPlan;
use futures::{StreamExt, TryStreamExt};
use tokio::time::Instant;

use super::DorisCatalog;
use crate::error::{Error, Result};
use crate::options::ScanMode;
use crate::table::DorisTable;
use crate::types::TableSchema;

/// Databases that are listed at once.
const DATABASES_AT_ONCE: usize = 4;
/// Tables of a database that are described at once, where its list does not tell them.
const TABLES_AT_ONCE: usize = 8;
/// Databases whose columns are kept; with more, all are read anew.
const KEPT_DATABASES: usize = 256;

const INFORMATION_SCHEMA: &str = "information_schema";
const COLUMNS: &str = "columns";
const VIEWS: &str = "views";

/// Schemas by table.
pub(super) type Schemas = BTreeMap<String, SchemaRef>;

impl DorisCatalog {
    /// The columns of all tables of `database`, kept for `catalog.ttl`.
    async fn schemas(&self, database: &str) -> Result<Arc<Schemas>> {
        let ttl = self.inner.options.time_to_live;
        if let Some((read, schemas)) = self.inner.listed.lock().get(database)
            && read.elapsed() < ttl
        {
            return Ok(Arc::clone(schemas));
        }
        let (read, generation) = (Instant::now(), self.inner.tables.lock().generation);
        let names = self.table_names(database);
        let mut schemas = Schemas::new();
        let all = names.len();
        let mut one_by_one = names.clone();
        if self.is_plain() {
            let mut listed = match self.inner.client.columns_of_tables(database).await {
                Ok(listed) => listed,
                Err(error @ (Error::Transport { .. } | Error::Auth { .. })) => return Err(error),
                Err(error) => {
                    tracing::debug!(database, %error, "no list of columns, asking for each table");
                    BTreeMap::new()
                }
            };
            one_by_one.clear();
            for name in names {
                // Views of which the list knows nothing are asked for as well.
                match listed.remove(&name).flatten() {
                    Some(columns) => {
                        let table = self.inner.options.table(database, &name);
                        let doris = TableSchema { table, model: None, columns, properties: BTreeMap::new() };
                        let options = self.inner.options.table_options(doris.table.clone());
                        if let Some(schema) = readable(database, &name, DorisTable::schema_of(options, &doris))? {
                            schemas.insert(name, schema);
                        }
                    }
                    None => one_by_one.push(name),
                }
            }
        }
        let described = futures::stream::iter(one_by_one).map(|name| async move {
            let schema = self.schema_of(database, &name).await;
            Ok::<_, Error>(readable(database, &name, schema)?.map(|schema| (name, schema)))
        });
        let described = described.buffer_unordered(TABLES_AT_ONCE).try_collect::<Vec<_>>().await?;
        schemas.extend(described.into_iter().flatten());
        let schemas = Arc::new(schemas);
        // What could not be read may be readable next time.
        if !ttl.is_zero() && schemas.len() == all && self.inner.tables.lock().generation == generation {
            let mut kept = self.inner.listed.lock();
            if kept.len() >= KEPT_DATABASES {
                kept.clear();
            }
            kept.insert(database.to_string(), (read, Arc::clone(&schemas)));
        }
        Ok(schemas)
    }

    /// The columns of one table.
    async fn schema_of(&self, database: &str, table: &str) -> Result<SchemaRef> {
        match self.table(database, table).await? {
            Some(table) => Ok(table.schema()),
            None => Err(Error::schema(format!("{database}.{table}"), "is gone")),
        }
    }

    /// The list of columns tells all that the schema of a table depends on.
    fn is_plain(&self) -> bool {
        let options = &self.inner.options;
        options.catalog.is_none()
            && options.read.mode == ScanMode::Snapshot
            && options.sink.change_kind_column.is_none()
            && options.sink.change_format.is_none()
    }

    /// The part of this catalog that `wanted` leaves, with columns if they are asked for.
    async fn listed(&self, wanted: &Wanted, columns: bool) -> Result<MemoryCatalogProvider> {
        self.refresh_when_old().await?;
        let databases: Vec<String> =
            self.database_names().into_iter().filter(|name| Wanted::has(&wanted.schema, name)).collect();
        let read = futures::stream::iter(databases).map(|database| async move {
            let tables = match (&wanted.table, columns) {
                (None, true) => self.schemas(&database).await?.as_ref().clone(),
                (Some(name), true) => {
                    let exists = self.table_names(&database).contains(name);
                    let schema = if exists { Some(self.schema_of(&database, name).await) } else { None };
                    let schema = schema.map(|schema| readable(&database, name, schema)).transpose()?.flatten();
                    schema.map(|schema| (name.clone(), schema)).into_iter().collect()
                }
                (_, false) => {
                    let names = self.table_names(&database).into_iter();
                    names.map(|name| (name, Arc::new(Schema::empty()))).collect()
                }
            };
            Ok::<_, Error>((database, tables))
        });
        let read: Vec<(String, Schemas)> = read.buffer_unordered(DATABASES_AT_ONCE).try_collect().await?;
        let catalog = MemoryCatalogProvider::new();
        for (database, tables) in read {
            let schema = MemorySchemaProvider::new();
            for (name, columns) in tables {
                schema.register_table(name, Arc::new(EmptyTable::new(columns)))?;
            }
            catalog.register_schema(&database, Arc::new(schema))?;
        }
        Ok(catalog)
    }
}

/// A table that cannot be read is left out of a list; without the cluster there is none.
fn readable(database: &str, table: &str, schema: Result<SchemaRef>) -> Result<Option<SchemaRef>> {
    match schema {
        Ok(schema) => Ok(Some(schema)),
        Err(error @ Error::Transport { .. }) => Err(error),
        Err(error) => {
            tracing::warn!(database, table, %error, "a table is left out of information_schema");
            Ok(None)
        }
    }
}

/// Names that conditions of the query ask for; `None`: all.
#[derive(Debug, Default, PartialEq, Eq)]
struct Wanted {
    catalog: Option<String>,
    schema: Option<String>,
    table: Option<String>,
}

impl Wanted {
    /// What `table_schema = 'x'` and the like say; other conditions are not looked at.
    fn of(filters: &[Expr]) -> Self {
        let mut wanted = Self::default();
        for term in filters.iter().flat_map(split_conjunction) {
            let Expr::BinaryExpr(binary) = term else { continue };
            let (column, value) = match (binary.left.as_ref(), binary.right.as_ref()) {
                (Expr::Column(column), Expr::Literal(value, _)) | (Expr::Literal(value, _), Expr::Column(column)) => {
                    (column, value)
                }
                _ => continue,
            };
            let (Operator::Eq, Some(Some(text))) = (binary.op, ScalarValue::try_as_str(value)) else { continue };
            let place = match column.name.as_str() {
                "table_catalog" => &mut wanted.catalog,
                "table_schema" => &mut wanted.schema,
                "table_name" => &mut wanted.table,
                _ => continue,
            };
            *place = Some(text.to_string());
        }
        wanted
    }

    fn has(wanted: &Option<String>, name: &str) -> bool {
        wanted.as_ref().is_none_or(|wanted| wanted == name)
    }
}

/// Has `information_schema.columns` and `.views` ask catalogs of Doris for whole databases.
#[derive(Debug)]
pub(crate) struct ListDatabases;

impl AnalyzerRule for ListDatabases {
    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> DfResult<LogicalPlan> {
        plan.transform_up_with_subqueries(|node| {
            let mut scan = match node {
                LogicalPlan::TableScan(scan) => scan,
                other => return Ok(Transformed::no(other)),
            };
            let name = &scan.table_name;
            let table = match (name.schema(), name.table()) {
                (Some(INFORMATION_SCHEMA), COLUMNS) => COLUMNS,
                (Some(INFORMATION_SCHEMA), VIEWS) => VIEWS,
                _ => return Ok(Transformed::no(LogicalPlan::TableScan(scan))),
            };
            match source_as_provider(&scan.source) {
                Ok(of_session) if of_session.is::<StreamingTable>() => {
                    scan.source = provider_as_source(Arc::new(Listing { of_session, table }));
                    Ok(Transformed::yes(LogicalPlan::TableScan(scan)))
                }
                _ => Ok(Transformed::no(LogicalPlan::TableScan(scan))),
            }
        })
        .data()
    }

    fn name(&self) -> &str {
        "doris_list_databases"
    }
}

/// A table of `information_schema`.
struct Listing {
    /// DataFusion's own.
    of_session: Arc<dyn TableProvider>,
    table: &'static str,
}

impl fmt::Debug for Listing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listing").field("table", &self.table).finish_non_exhaustive()
    }
}

impl Listing {
    /// The catalogs of the session, those of Doris as far as they are asked for; `None` when there is none of Doris.
    async fn catalogs(&self, session: &SessionState, filters: &[Expr]) -> DfResult<Option<MemoryCatalogProviderList>> {
        let (all, listed) = (session.catalog_list(), MemoryCatalogProviderList::new());
        let wanted = Wanted::of(filters);
        let mut any = false;
        for name in all.catalog_names() {
            let Some(catalog) = all.catalog(&name) else { continue };
            let catalog = match catalog.as_ref().downcast_ref::<DorisCatalog>() {
                None => catalog,
                Some(_) if !Wanted::has(&wanted.catalog, &name) => {
                    any = true;
                    continue;
                }
                Some(doris) => {
                    any = true;
                    Arc::new(doris.listed(&wanted, self.table == COLUMNS).await?) as _
                }
            };
            listed.register_catalog(name, catalog);
        }
        Ok(any.then_some(listed))
    }
}

#[async_trait]
impl TableProvider for Listing {
    fn schema(&self) -> SchemaRef {
        self.of_session.schema()
    }

    fn table_type(&self) -> TableType {
        self.of_session.table_type()
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> DfResult<Vec<TableProviderFilterPushDown>> {
        Ok(vec![TableProviderFilterPushDown::Inexact; filters.len()])
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> DfResult<Arc<dyn ExecutionPlan>> {
        let listed = match state.as_any().downcast_ref::<SessionState>() {
            Some(session) => self.catalogs(session, filters).await?,
            None => None,
        };
        let table = match listed {
            Some(listed) => InformationSchemaProvider::new(Arc::new(listed)).table(self.table).await?,
            None => None,
        };
        let table = table.unwrap_or_else(|| Arc::clone(&self.of_session));
        table.scan(state, projection, &[], limit).await
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use datafusion::logical_expr::{col, lit};

    use super::*;

    #[test]
    fn conditions_say_which_names_are_asked_for() {
        let filters = [
            col("table_catalog").eq(lit("d")).and(lit("s").eq(col("table_schema"))),
            col("table_name").not_eq(lit("t")),
            col("column_name").eq(lit("c")),
            col("table_name").eq(lit("x")).or(col("table_name").eq(lit("y"))),
        ];
        let wanted = Wanted { catalog: Some("d".into()), schema: Some("s".into()), table: None };
        assert_eq!(Wanted::of(&filters), wanted);
    }
}
