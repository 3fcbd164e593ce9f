//! A statement of Doris as a table.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::{Column, Result as DfResult};
use datafusion::datasource::TableType;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown};
use datafusion::physical_plan::ExecutionPlan;
use futures::FutureExt;
use futures::future::BoxFuture;

use crate::client::DorisClient;
use crate::options::PushdownOptions;
use crate::scan::{DorisScanExec, ReadSettings, ScanPlan, ScanSplit, plan_query};
use crate::sql::{Columns, PushedFilter, ScanQuery, SqlColumn, pushed_filter, quote_ident};
use crate::table::{RemoteColumn, RemoteSource};
use crate::types::{DorisType, TableIdent, compares_alike};

/// The rows of a SELECT of Doris, read by one statement. Conditions, columns and limits above it are sent around it.
#[derive(Debug, Clone)]
pub struct DorisQueryTable {
    client: DorisClient,
    table: TableIdent,
    query: Arc<ScanQuery>,
    types: Arc<[DorisType]>,
    schema: SchemaRef,
    settings: ReadSettings,
    pushdown: PushdownOptions,
    limited: Option<usize>,
}

impl DorisQueryTable {
    /// The rows of `query`, whose columns are those of `schema`, with the types `types` in Doris. `table` names it in
    /// errors and plans.
    pub(crate) fn new(
        client: DorisClient,
        table: TableIdent,
        query: ScanQuery,
        types: Vec<DorisType>,
        schema: SchemaRef,
    ) -> Self {
        let (settings, pushdown) = (ReadSettings::default(), PushdownOptions::default());
        Self { client, table, query: Arc::new(query), types: types.into(), schema, settings, pushdown, limited: None }
    }

    /// Read as a table is read.
    pub(crate) fn with_settings(self, settings: ReadSettings) -> Self {
        Self { settings, ..self }
    }

    /// It gives at most so many rows.
    pub(crate) fn with_limited(self, limited: Option<usize>) -> Self {
        Self { limited, ..self }
    }

    pub(crate) fn with_pushdown(&self, pushdown: PushdownOptions) -> Self {
        Self { pushdown, ..self.clone() }
    }

    pub(crate) fn pushdown(&self) -> PushdownOptions {
        self.pushdown
    }

    /// The statement sent to Doris, when nothing is put around it.
    pub fn statement(&self) -> &str {
        &self.query.sql
    }

    pub(crate) fn remote(&self) -> RemoteSource<'_> {
        let columns = self.query.columns.iter().zip(self.types.iter()).zip(self.schema.fields());
        let columns = columns.map(|((name, doris_type), field)| RemoteColumn {
            stored: name.clone(),
            doris_type: doris_type.clone(),
            alike: alike(doris_type, field.data_type()),
        });
        RemoteSource {
            client: &self.client,
            table: &self.table,
            from: format!("({})", self.query.sql),
            columns: columns.collect(),
            settings: self.settings.clone(),
            pushdown: self.pushdown,
            limited: self.limited,
        }
    }

    fn pushable(&self, filter: &Expr) -> Option<PushedFilter> {
        if self.pushdown.filter { pushed_filter(filter, self) } else { None }
    }

    /// The scan, and the columns that it reads.
    fn scan_plan(
        &self,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> (ScanPlan, Vec<usize>) {
        let projection = projection.cloned().unwrap_or_else(|| (0..self.types.len()).collect());
        let conditions: Vec<Option<PushedFilter>> = filters.iter().map(|filter| self.pushable(filter)).collect();
        let exact = conditions.iter().all(|condition| matches!(condition, Some(PushedFilter::Exact(_))));
        let conditions: Vec<String> = conditions.into_iter().flatten().map(PushedFilter::into_sql).collect();
        let plan = ScanPlan {
            table: self.table.clone(),
            query: Some(self.query.as_ref().clone()),
            columns: projection.iter().map(|index| self.query.columns[*index].clone()).collect(),
            filter: (!conditions.is_empty()).then(|| conditions.join(" AND ")),
            limit: limit.filter(|_| exact && self.pushdown.limit),
            as_of: None,
            settings: self.settings.clone(),
            splits: vec![ScanSplit::default()],
        };
        (plan, projection)
    }
}

/// True when expressions on the column mean the same in Doris.
fn alike(doris_type: &DorisType, declared: &arrow::datatypes::DataType) -> bool {
    use arrow::datatypes::DataType;
    match (doris_type, declared) {
        (DorisType::Decimal(_, scale), DataType::Decimal128(_, declared)) => i16::from(*scale) == i16::from(*declared),
        _ => doris_type.arrow_type().is_ok_and(|natural| compares_alike(&natural, declared)),
    }
}

impl Columns for DorisQueryTable {
    fn column(&self, column: &Column) -> Option<SqlColumn> {
        let index = self.schema.index_of(&column.name).ok()?;
        let doris_type = self.types.get(index)?;
        alike(doris_type, self.schema.field(index).data_type())
            .then(|| SqlColumn { sql: quote_ident(&self.query.columns[index]), doris_type: doris_type.clone() })
    }
}

#[async_trait]
impl TableProvider for DorisQueryTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::View
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> DfResult<Vec<TableProviderFilterPushDown>> {
        let answer = |filter: &&Expr| match self.pushable(filter) {
            Some(PushedFilter::Exact(_)) => TableProviderFilterPushDown::Exact,
            Some(PushedFilter::Superset(_)) => TableProviderFilterPushDown::Inexact,
            None => TableProviderFilterPushDown::Unsupported,
        };
        Ok(filters.iter().map(answer).collect())
    }

    // No `async fn`, see `DorisTable::scan`.
    fn scan<'life0, 'life1, 'life2, 'life3, 'async_trait>(
        &'life0 self,
        _state: &'life1 dyn Session,
        projection: Option<&'life2 Vec<usize>>,
        filters: &'life3 [Expr],
        limit: Option<usize>,
    ) -> BoxFuture<'async_trait, DfResult<Arc<dyn ExecutionPlan>>>
    where
        'life0: 'async_trait,
        'life1: 'async_trait,
        'life2: 'async_trait,
        'life3: 'async_trait,
        Self: 'async_trait,
    {
        let (plan, projection) = self.scan_plan(projection, filters, limit);
        async move {
            let types: Arc<[DorisType]> = projection.iter().map(|index| self.types[*index].clone()).collect();
            let plan = plan_query(&self.client, plan, &types).await?;
            let schema = Arc::new(self.schema.project(&projection)?);
            let scan = DorisScanExec::new(self.client.clone(), plan, schema, types).with_pushdown(self.pushdown);
            Ok(Arc::new(scan) as Arc<dyn ExecutionPlan>)
        }
        .boxed()
    }
}
