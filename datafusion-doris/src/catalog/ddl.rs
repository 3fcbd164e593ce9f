//! `CREATE TABLE`, `DROP TABLE` and databases, in Doris.
//!
//! DataFusion gives a catalog these statements by methods that cannot wait for a server, and `CREATE TABLE … AS` only with
//! all rows in memory. So [`execute`] takes their plans before DataFusion does: the table is made in Doris, the query is
//! streamed into it as an INSERT, and a table whose query fails, or is cancelled, is dropped again.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use arrow::datatypes::{Field, Fields, Schema};
use datafusion::common::{
    Column, Constraint, DFSchema, Result as DfResult, ScalarValue, SchemaReference, TableReference,
};
use datafusion::dataframe::DataFrame;
use datafusion::datasource::provider_as_source;
use datafusion::logical_expr::dml::InsertOp;
use datafusion::logical_expr::{CreateMemoryTable, DdlStatement, EmptyRelation, Expr, LogicalPlan, LogicalPlanBuilder};
use datafusion::physical_plan::ExecutionPlanProperties;
use datafusion::prelude::SessionContext;

use super::DorisCatalog;
use crate::error::{Error, Result};
use crate::options::{ReadOptions, SinkOptions};
use crate::sql::{CreateTable, create_database, quote_ident, quote_table};
use crate::table::DorisTable;
use crate::types::TableIdent;

/// Advice for DDL that arrives where nothing can be waited for.
pub(super) const USE_SQL: &str = "run CREATE and DROP of tables and databases by datafusion_doris::sql or in the shell, \
                                  make views in doris itself, and external tables in another catalog";

/// Executes a plan as [`SessionContext::execute_logical_plan`] does, DDL of Doris catalogs in Doris.
pub(crate) async fn execute(context: &SessionContext, plan: LogicalPlan) -> DfResult<DataFrame> {
    let LogicalPlan::Ddl(statement) = plan else { return context.execute_logical_plan(plan).await };
    let target = match &statement {
        DdlStatement::CreateMemoryTable(create) => table_of(context, &create.name),
        DdlStatement::CreateExternalTable(create) => table_of(context, &create.name),
        DdlStatement::CreateView(create) => table_of(context, &create.name),
        DdlStatement::DropTable(drop) => table_of(context, &drop.name),
        DdlStatement::DropView(drop) => table_of(context, &drop.name),
        DdlStatement::CreateCatalogSchema(create) => {
            let parts: Vec<&str> = create.schema_name.split('.').collect();
            match parts.as_slice() {
                [database] => table_of(context, &TableReference::partial(*database, "")),
                [catalog, database] => table_of(context, &TableReference::full(*catalog, *database, "")),
                _ => None,
            }
        }
        DdlStatement::DropCatalogSchema(drop) => match &drop.name {
            SchemaReference::Bare { schema } => table_of(context, &TableReference::partial(schema.as_ref(), "")),
            SchemaReference::Full { schema, catalog } => {
                table_of(context, &TableReference::full(catalog.as_ref(), schema.as_ref(), ""))
            }
        },
        _ => None,
    };
    let Some((catalog, table)) = target else {
        return context.execute_logical_plan(LogicalPlan::Ddl(statement)).await;
    };
    if let Some(external) = &table.catalog {
        let what = format!("DDL in the external catalog {external}");
        return Err(Error::unsupported(what, "run it where its tables come from").into());
    }
    match statement {
        DdlStatement::CreateMemoryTable(create) => Box::pin(create_table(context, &catalog, &table, create)).await?,
        DdlStatement::DropTable(drop) => catalog.drop_relation(&table, false, drop.if_exists).await?,
        DdlStatement::DropView(drop) => catalog.drop_relation(&table, true, drop.if_exists).await?,
        DdlStatement::CreateCatalogSchema(create) => {
            catalog.create_database(&table.database, create.if_not_exists).await?;
        }
        DdlStatement::DropCatalogSchema(drop) => {
            catalog.drop_database(&table.database, drop.if_exists, drop.cascade).await?;
        }
        DdlStatement::CreateView(_) => {
            let advice = "make it in doris itself (in the shell: \\doris CREATE VIEW …)";
            return Err(Error::unsupported(format!("CREATE VIEW {table}"), advice).into());
        }
        _ => {
            let advice = "it would be no table of doris; give it a name in another catalog";
            return Err(Error::unsupported(format!("CREATE EXTERNAL TABLE {table} in a doris catalog"), advice).into());
        }
    }
    empty(context)
}

/// The result of a statement without rows.
pub(crate) fn empty(context: &SessionContext) -> DfResult<DataFrame> {
    Ok(DataFrame::new(context.state(), LogicalPlanBuilder::empty(false).build()?))
}

/// The Doris catalog and the table that `name` means, when it is in one.
fn table_of(context: &SessionContext, name: &TableReference) -> Option<(DorisCatalog, TableIdent)> {
    let state = context.state();
    let defaults = &state.config_options().catalog;
    let name = name.clone().resolve(&defaults.default_catalog, &defaults.default_schema);
    let catalog = doris_catalog(context, &name.catalog)?;
    let table = catalog.options().table(&name.schema, &name.table);
    Some((catalog, table))
}

/// The Doris catalog that is registered as `name`.
pub(crate) fn doris_catalog(context: &SessionContext, name: &str) -> Option<DorisCatalog> {
    context.catalog(name)?.as_ref().downcast_ref::<DorisCatalog>().cloned()
}

async fn create_table(
    context: &SessionContext,
    catalog: &DorisCatalog,
    table: &TableIdent,
    create: CreateMemoryTable,
) -> DfResult<()> {
    let what = |clause: &str| format!("CREATE {clause} of {table}");
    if create.temporary {
        return Err(Error::unsupported(what("TEMPORARY TABLE"), "leave out the word").into());
    }
    if create.or_replace {
        let advice = "DROP TABLE first: a table of doris is never replaced in one step";
        return Err(Error::unsupported(what("OR REPLACE TABLE"), advice).into());
    }
    if catalog.exists(table).await? {
        return match create.if_not_exists {
            true => Ok(()),
            false => Err(Error::schema(table, "already exists").into()),
        };
    }
    let CreateMemoryTable { input, constraints, column_defaults, .. } = create;
    let fields = plain_fields(input.schema());
    let mut names = HashSet::new();
    if let Some(twice) = fields.iter().find(|field| !names.insert(field.name().to_lowercase())) {
        return Err(Error::schema(table, format!("column '{}' is named twice: use aliases", twice.name())).into());
    }
    let mut key = Vec::new();
    for constraint in constraints.iter() {
        match constraint {
            Constraint::PrimaryKey(columns) => key = columns.clone(),
            Constraint::Unique(_) => {
                return Err(Error::unsupported(what("UNIQUE constraint"), "use PRIMARY KEY").into());
            }
        }
    }
    let defaults = default_texts(table, &column_defaults)?;
    let properties = &catalog.options().table_properties;
    let made = CreateTable { table, fields: &fields, key: &key, defaults: &defaults, properties }.statements()?;

    // Everything that can fail without the table comes before it.
    let rows = match input.as_ref() {
        LogicalPlan::EmptyRelation(EmptyRelation { produce_one_row: false, .. }) => None,
        _ => Some(in_order(&input, &made.order)?),
    };
    if let Some(rows) = &rows {
        let plan = DataFrame::new(context.state(), rows.clone()).create_physical_plan().await?;
        if plan.boundedness().is_unbounded() {
            let advice = "its query has no end: create the table with its columns, then INSERT INTO it";
            return Err(Error::unsupported(what("TABLE … AS"), advice).into());
        }
    }

    catalog.client().run_ddl(&made.statements).await?;
    let half = HalfTable::new(catalog, table);
    if let Some(rows) = rows
        && let Err(error) = fill(context, catalog, table, rows).await
    {
        half.drop_table().await;
        return Err(error);
    }
    half.keep();
    catalog.note_table(table, true);
    Ok(())
}

/// The columns without what Doris does not keep.
fn plain_fields(schema: &DFSchema) -> Fields {
    schema
        .fields()
        .iter()
        .map(|field| Field::new(field.name(), field.data_type().clone(), field.is_nullable()))
        .collect()
}

/// `input` with its columns in another order.
fn in_order(input: &LogicalPlan, order: &[usize]) -> DfResult<LogicalPlan> {
    let schema = input.schema();
    let columns = order.iter().map(|at| {
        let (qualifier, field) = schema.qualified_field(*at);
        Expr::Column(Column::new(qualifier.cloned(), field.name())).alias(field.name())
    });
    LogicalPlanBuilder::from(input.clone()).project(columns)?.build()
}

/// Inserts the rows into the new table.
async fn fill(context: &SessionContext, catalog: &DorisCatalog, table: &TableIdent, rows: LogicalPlan) -> DfResult<()> {
    // The table as a target of plain rows, whatever the catalog's tables are read as.
    let sink = SinkOptions { change_kind_column: None, change_format: None, ..catalog.options().sink.clone() };
    let options = catalog.options().table_options(table.clone()).with_read(ReadOptions::default()).with_sink(sink);
    let declared = Arc::new(Schema::new(plain_fields(rows.schema())));
    let target =
        DorisTable::builder(options).with_client(catalog.client().clone()).with_schema(declared).build().await?;
    let target = provider_as_source(Arc::new(target));
    let insert =
        LogicalPlanBuilder::insert_into(rows, TableReference::bare(table.table.as_str()), target, InsertOp::Append)?;
    DataFrame::new(context.state(), insert.build()?).collect().await.map(drop)
}

/// Defaults of columns as Doris takes them: texts.
fn default_texts(table: &TableIdent, defaults: &[(String, Expr)]) -> Result<BTreeMap<String, String>> {
    let text = |(column, default): &(String, Expr)| match default {
        Expr::Literal(value, _) if value.is_null() => Ok(None),
        Expr::Literal(ScalarValue::Utf8(Some(text)) | ScalarValue::Utf8View(Some(text)), _) => {
            Ok(Some((column.clone(), text.clone())))
        }
        Expr::Literal(
            value @ (ScalarValue::Boolean(_)
            | ScalarValue::Int8(_)
            | ScalarValue::Int16(_)
            | ScalarValue::Int32(_)
            | ScalarValue::Int64(_)
            | ScalarValue::UInt64(_)
            | ScalarValue::Float64(_)
            | ScalarValue::Date32(_)),
            _,
        ) => Ok(Some((column.clone(), value.to_string()))),
        _ => Err(Error::schema(table, format!("column '{column}': its DEFAULT must be a constant"))),
    };
    Ok(defaults.iter().map(text).collect::<Result<Vec<_>>>()?.into_iter().flatten().collect())
}

/// A table that was made and is not filled yet. Dropping it drops the table in Doris.
struct HalfTable {
    catalog: DorisCatalog,
    table: TableIdent,
    keep: bool,
}

impl HalfTable {
    fn new(catalog: &DorisCatalog, table: &TableIdent) -> Self {
        Self { catalog: catalog.clone(), table: table.clone(), keep: false }
    }

    fn keep(mut self) {
        self.keep = true;
    }

    async fn drop_table(mut self) {
        self.keep = true;
        drop_half(&self.catalog, &self.table).await;
    }
}

impl Drop for HalfTable {
    fn drop(&mut self) {
        if !self.keep {
            let (catalog, table) = (self.catalog.clone(), self.table.clone());
            // Work that holds the client is done even when this was its last user.
            self.catalog.client().cleanup().later("drop a half table", async move {
                drop_half(&catalog, &table).await;
            });
        }
    }
}

async fn drop_half(catalog: &DorisCatalog, table: &TableIdent) {
    // By force: without, a load that was committed and is not visible yet would keep it.
    let statement = format!("DROP TABLE IF EXISTS {} FORCE", quote_table(table));
    if let Err(error) = catalog.client().run_ddl(&[statement]).await {
        tracing::warn!(%table, %error, "the table of a CREATE TABLE … AS that failed could not be dropped");
    }
}

impl DorisCatalog {
    /// Asks Doris whether a table or view is there.
    async fn exists(&self, table: &TableIdent) -> Result<bool> {
        Ok(self.client().tables_like(table).await?.iter().any(|name| name.table == table.table))
    }

    /// `DROP TABLE` or `DROP VIEW`.
    async fn drop_relation(&self, table: &TableIdent, view: bool, if_exists: bool) -> Result<()> {
        let kind = |view: bool| if view { "VIEW" } else { "TABLE" };
        let alike = self.client().tables_like(table).await?;
        let Some(found) = alike.iter().find(|name| name.table == table.table) else {
            if if_exists {
                return Ok(());
            }
            let hint = alike.first().map(|name| format!(", but \"{}\" does", name.table)).unwrap_or_default();
            return Err(Error::schema(table, format!("does not exist{hint}")));
        };
        if found.view != view {
            let (is, drop) = (kind(found.view).to_lowercase(), kind(found.view));
            return Err(Error::schema(table, format!("is a {is}, use DROP {drop}")));
        }
        let statement = format!("DROP {} {}", kind(view), quote_table(table));
        self.client().run_ddl(&[statement]).await?;
        self.note_table(table, false);
        Ok(())
    }

    async fn create_database(&self, database: &str, if_not_exists: bool) -> Result<()> {
        self.client().run_ddl(&create_database(database, if_not_exists)).await?;
        self.note_database(database, true);
        Ok(())
    }

    async fn drop_database(&self, database: &str, if_exists: bool, cascade: bool) -> Result<()> {
        if !cascade {
            self.refresh().await?;
            if let Some(table) = self.table_names(database).first() {
                return Err(Error::schema(
                    database,
                    format!("is a database with tables ('{table}' is one): add CASCADE to drop them all"),
                ));
            }
        }
        let clause = if if_exists { "IF EXISTS " } else { "" };
        self.client().run_ddl(&[format!("DROP DATABASE {clause}{}", quote_ident(database))]).await?;
        self.note_database(database, false);
        Ok(())
    }
}
