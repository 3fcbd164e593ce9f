//! A Doris table in DataFusion.

mod changes;
mod defaults;
mod dml;
mod events;
mod insert;
mod keys;
mod kind;
mod listed;
mod overwrite;
mod raw;
mod remote;
mod schema;
mod sign;

use std::collections::HashMap;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::{ScanArgs, ScanResult, Session, TableProvider};
use datafusion::common::tree_node::TreeNode;
use datafusion::common::{Constraint, Constraints, DFSchema, Result as DfResult, ScalarValue};
use datafusion::datasource::TableType;
use datafusion::logical_expr::dml::InsertOp;
use datafusion::logical_expr::expr_rewriter::unnormalize_cols;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown};
use datafusion::physical_expr::expressions::{Column, Literal};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::projection::{ProjectionExec, ProjectionExpr};
use futures::FutureExt;
use futures::future::BoxFuture;

use self::defaults::{ColumnDefaults, left_out, marked, with_defaults};
use self::events::{event_schema, with_change_format};
use self::kind::kind_column;
use self::raw::with_read_fields;
pub(crate) use self::remote::{RemoteColumn, RemoteSource};
use self::schema::BoundSchema;
use crate::changelog::{ChangelogRequest, ChangelogSpec, DorisChangelogExec, epoch_sources, read_schema, time_to_live};
use crate::client::DorisClient;
use crate::error::{Error, Result};
use crate::options::{DorisOptions, PushdownOptions, ScanMode};
use crate::scan::{DorisScanExec, ReadSettings, ScanPlan, plan_snapshot};
use crate::sink::{DorisSink, DorisSinkExec};
use crate::sql::{PushedFilter, condition_sql, pushed_external_filter, pushed_filter};
use crate::types::{KeyModel, TableSchema};

/// A table of Doris as a [`TableProvider`]: a snapshot, a changelog, a target of INSERT.
///
/// | `source.scan.mode` | a scan gives | schema |
/// | --- | --- | --- |
/// | `snapshot` (default) | the rows of now, bounded | the columns |
/// | `initial` | the rows of now as `+I`, then the changes | the columns, then `__change_kind` |
/// | `latest` | the changes from now on | the columns, then `__change_kind` |
/// | `from-timestamp` | the changes from an instant on | the columns, then `__change_kind` |
///
/// `__change_kind` (see `source.changelog.change-kind-column`) is Utf8, not null, and one of `+I`, `-U`, `+U`, `-D`.
/// In a changelog the columns outside of the key are nullable: a delete without historical values has only its key.
/// The metadata columns of `source.changelog.metadata-columns` stand before the change kind.
///
/// As a target, the table takes its columns, and with `sink.change-kind-column` that column too, last: `-D` deletes the
/// row's key. A table with that option has the column in its schema when it is read as well; a snapshot then gives
/// `+I` for every row. Likewise a declared last column `__DORIS_DELETE_SIGN__`: 1 deletes the row's key, 0 writes the row,
/// and a snapshot gives 0. With `sink.change-format` the table takes one text column, `event`, and cannot be read.
///
/// Columns that an INSERT's list leaves out are not sent: Doris gives them their defaults, or keeps their values in a
/// partial update (`sink.properties.partial_columns`). A default of the declaration is a value and is sent.
///
/// `INSERT OVERWRITE` replaces its rows ([`DorisOverwriteExec`](crate::sink::DorisOverwriteExec)); `DELETE`, `UPDATE` and
/// `TRUNCATE` are sent to Doris whole or refused ([`crate::dml`]).
#[derive(Debug, Clone)]
pub struct DorisTable {
    client: DorisClient,
    options: Arc<DorisOptions>,
    doris: Arc<TableSchema>,
    bound: BoundSchema,
    constraints: Option<Constraints>,
    defaults: Arc<dyn ColumnDefaults>,
    /// The server reads the table as it was at an instant; asked for in mode `initial` alone.
    exact_snapshot: bool,
    pushdown: PushdownOptions,
}

/// Makes a [`DorisTable`].
#[derive(Debug)]
#[must_use]
pub struct DorisTableBuilder {
    options: DorisOptions,
    client: Option<DorisClient>,
    declared: Option<SchemaRef>,
    defaults: Arc<dyn ColumnDefaults>,
}

impl DorisTableBuilder {
    /// A table of `options`, with the columns of the table in Doris.
    pub fn new(options: DorisOptions) -> Self {
        Self { options, client: None, declared: None, defaults: Arc::new(HashMap::new()) }
    }

    /// Uses an existing client, so that several tables of one cluster share its connections.
    pub fn with_client(mut self, client: DorisClient) -> Self {
        self.client = Some(client);
        self
    }

    /// Declares the columns: a subset of those in Doris, in any order, with types to which Doris' values convert
    /// exactly. Default: all columns, with the types of the type mapping.
    pub fn with_schema(mut self, schema: SchemaRef) -> Self {
        self.declared = Some(schema);
        self
    }

    /// Values for columns that an INSERT leaves out, by name.
    pub fn with_column_defaults(mut self, defaults: HashMap<String, Expr>) -> Self {
        self.defaults = Arc::new(defaults);
        self
    }

    /// Reads the table's schema from Doris and checks options and declared columns against it.
    ///
    /// # Errors
    /// [`Error::Config`] for options that contradict each other, [`Error::Schema`] when the table does not exist, or
    /// names the declared column that does not fit; [`Error::Auth`], [`Error::Transport`].
    pub async fn build(self) -> Result<DorisTable> {
        let Self { options, client, declared, mut defaults } = self;
        let client = match client {
            Some(client) => client,
            None => DorisClient::try_new(Arc::new(options.connection.clone()))?,
        };
        if options.table.catalog.is_some() && options.read.mode.is_changelog() {
            return Err(Error::unsupported(
                format!("reading the changes of {}", options.table),
                "tables of external catalogs have none, leave out 'source.scan.mode'",
            ));
        }
        let doris = client.table_schema(&options.table).await?;
        let options = with_change_format(options, &doris)?;
        let declared = with_read_fields(declared, &options, &doris)?;
        let kind = kind_column(&options, &doris, declared.as_ref())?;
        let bound = BoundSchema::bind(&doris, declared.as_ref(), kind, &options.sink)?;
        let columns = bound.schema().fields();
        let mut more: Vec<(String, Expr)> = columns.iter().take(bound.columns()).map(|field| left_out(field)).collect();
        if let (Some(value), Some(added)) = (bound.kind().of_rows(), columns.last()) {
            more.push((added.name().clone(), Expr::Literal(value, None)));
        }
        defaults = with_defaults(defaults, more);
        let constraints = match options.read.mode {
            ScanMode::Snapshot => bound.primary_key(&doris),
            ScanMode::Initial | ScanMode::Latest | ScanMode::FromTimestamp(_) => None,
        };
        let exact_snapshot =
            options.read.mode == ScanMode::Initial && client.reads_past_versions(&options.table).await?;
        let constraints = constraints.map(|key| Constraints::new_unverified(vec![Constraint::PrimaryKey(key)]));
        let (options, doris) = (Arc::new(options), Arc::new(doris));
        let pushdown = PushdownOptions::default();
        Ok(DorisTable { client, options, doris, bound, constraints, defaults, exact_snapshot, pushdown })
    }
}

impl DorisTable {
    /// A builder for the table of `options`.
    pub fn builder(options: DorisOptions) -> DorisTableBuilder {
        DorisTableBuilder::new(options)
    }

    /// The table as Doris describes it.
    pub fn doris_schema(&self) -> &TableSchema {
        &self.doris
    }

    /// The options of the table.
    pub fn options(&self) -> &DorisOptions {
        &self.options
    }

    fn is_changelog(&self) -> bool {
        self.options.read.mode.is_changelog()
    }

    /// `filter` as Doris SQL, as far as it means the same there.
    fn pushable(&self, filter: &Expr) -> Option<PushedFilter> {
        if !self.pushdown.filter || !self.all_alike(filter) {
            return None;
        }
        match self.doris.table.catalog {
            None => pushed_filter(filter, self.doris.as_ref()),
            Some(_) => pushed_external_filter(filter, self.doris.as_ref()),
        }
    }

    /// `filter` as Doris SQL that holds for the same rows, for statements that change them.
    fn exact_condition(&self, filter: &Expr) -> Option<String> {
        self.all_alike(filter).then(|| condition_sql(filter, self.doris.as_ref())).flatten()
    }

    /// True when all columns of `expr` are declared as they are in Doris.
    fn all_alike(&self, expr: &Expr) -> bool {
        expr.column_refs().into_iter().all(|column| self.bound.filters_alike(&column.name))
    }

    /// The scan of the columns `columns` that `filters` and `limit` leave, not yet split.
    fn snapshot_plan(&self, columns: &[usize], filters: &[Expr], limit: Option<usize>) -> ScanPlan {
        let conditions: Vec<Option<PushedFilter>> = filters.iter().map(|filter| self.pushable(filter)).collect();
        // A limit counts rows after all filters: with one that stays here, every row has to come.
        let all = conditions.iter().all(|condition| matches!(condition, Some(PushedFilter::Exact(_))));
        let limit = limit.filter(|_| all && self.pushdown.limit);
        let conditions = conditions.into_iter().flatten().map(PushedFilter::into_sql);
        let conditions: Vec<String> = self.own_condition().into_iter().chain(conditions).collect();
        ScanPlan {
            table: self.doris.table.clone(),
            query: None,
            columns: self.bound.stored_names(columns),
            filter: (!conditions.is_empty()).then(|| conditions.join(" AND ")),
            limit,
            as_of: None,
            settings: ReadSettings::default(),
            splits: vec![],
        }
    }

    async fn scan_snapshot(
        &self,
        plan: ScanPlan,
        columns: &[usize],
        projection: &[usize],
        partitions: usize,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let types = self.bound.types(columns);
        let (plan, facts) = plan_snapshot(&self.client, plan, &self.options.read, &types, partitions).await?;
        let schema = Arc::new(self.bound.schema().project(projection)?);
        let read = Arc::new(self.bound.schema().project(columns)?);
        let scan = DorisScanExec::new(self.client.clone(), plan, read, types)
            .with_facts(facts)
            .with_lookup(&self.options.read.lookup)
            .with_pushdown(self.pushdown);
        if columns.len() == projection.len() {
            return Ok(Arc::new(scan));
        }
        // The change kind of a target: every row that is there was inserted.
        let insert: Arc<dyn datafusion::physical_plan::PhysicalExpr> =
            Arc::new(Literal::new(self.bound.kind().of_rows().unwrap_or(ScalarValue::Null)));
        let mut next = 0;
        let outputs = projection.iter().zip(schema.fields()).map(|(index, field)| {
            let expr = match *index < self.bound.columns() {
                true => {
                    next += 1;
                    Arc::new(Column::new(field.name(), next - 1)) as _
                }
                false => Arc::clone(&insert),
            };
            ProjectionExpr { expr, alias: field.name().clone() }
        });
        let outputs: Vec<ProjectionExpr> = outputs.collect();
        Ok(Arc::new(ProjectionExec::try_new(outputs, Arc::new(scan))?))
    }

    fn scan_changelog(
        &self,
        state: &dyn Session,
        projection: &[usize],
        filters: &[Expr],
    ) -> DfResult<Arc<dyn ExecutionPlan>> {
        let read = &self.options.read;
        // Metadata and change kind are always read.
        let stored = self.bound.columns();
        let mut columns: Vec<usize> = projection.iter().copied().filter(|index| *index < stored).collect();
        for column in filters.iter().flat_map(Expr::column_refs) {
            columns.extend(self.bound.schema().index_of(&column.name).ok().filter(|index| *index < stored));
        }
        columns.sort_unstable();
        columns.dedup();
        if columns.is_empty() {
            // Rows must have a column to be read by.
            columns.push(0);
        }
        let fields = columns.iter().map(|index| self.bound.schema().field(*index).clone()).collect();
        let schema = read_schema(fields, self.bound.metadata(), &read.change_kind_column);
        let df_schema = DFSchema::try_from(Arc::clone(&schema))?;
        let value_column = filters.iter().flat_map(Expr::column_refs).find_map(|column| {
            let stored = self.doris.column(&column.name)?;
            (!stored.key).then(|| stored.name.clone())
        });
        let filters = unnormalize_cols(filters.iter().cloned());
        let filters: Vec<_> = filters
            .into_iter()
            .map(|filter| state.create_physical_expr(filter, &df_schema))
            .collect::<DfResult<_>>()?;
        let place = |index: &usize| match index.checked_sub(stored) {
            None => columns.binary_search(index).unwrap_or_default(),
            Some(added) => columns.len() + added,
        };
        let keys = || self.doris.columns.iter().filter(|column| column.key);
        let spec = ChangelogSpec {
            table: self.doris.table.clone(),
            columns: self.bound.stored_names(&columns).into(),
            types: self.bound.types(&columns),
            key: keys().map(|column| column.name.clone()).collect(),
            key_types: keys().map(|column| column.doris_type.clone()).collect(),
            hidden: read.hidden_columns.clone(),
            metadata: self.bound.metadata().into(),
            schema,
            snapshot: read.mode == ScanMode::Initial,
            exact_snapshot: self.exact_snapshot,
            start: match read.mode {
                ScanMode::FromTimestamp(start) => Some(start),
                ScanMode::Snapshot | ScanMode::Initial | ScanMode::Latest => None,
            },
            end: read.bounded,
            increment_type: read.increment_type,
            poll_interval: read.poll_interval,
            max_window: read.max_window,
            visible_wait_timeout: read.visible_wait_timeout,
            time_to_live: time_to_live(&self.doris.properties),
            on_expired: read.on_expired,
        };
        let request = ChangelogRequest {
            spec,
            filters,
            projection: projection.iter().map(place).collect(),
            append_only: self.doris.model == Some(KeyModel::Duplicate),
            old_values: self.doris.keeps_old_values(),
            tablets_per_split: read.tablets_per_split,
            offsets: read.offset.clone(),
        };
        let changelog = DorisChangelogExec::try_new(self.client.clone(), request)?;
        if !self.doris.keeps_old_values()
            && !changelog.inserts_only()
            && let Some(column) = value_column
        {
            return Err(Error::unsupported(
                format!("a condition on column '{column}' of the changelog of {}", self.doris.table),
                "the table records no old values, so rows that leave the condition, and deletes, could not be told; \
                 create the table with 'changelog.need_historical_value' = 'true', or filter by key columns",
            )
            .into());
        }
        Ok(Arc::new(changelog))
    }
}

/// `options` for writing to a table, with what goes with a change format.
pub(crate) fn change_options(options: DorisOptions, doris: &TableSchema) -> Result<DorisOptions> {
    with_change_format(options, doris)
}

/// Checks the change kind column that the options name.
pub(crate) fn check_kind_column(options: &DorisOptions, doris: &TableSchema) -> Result<()> {
    kind_column(options, doris, None).map(drop)
}

/// True when a condition can be evaluated row by row over the columns read.
fn evaluates_alone(filter: &Expr) -> bool {
    let needs_more = filter.exists(|expr| {
        Ok(matches!(
            expr,
            Expr::ScalarSubquery(_)
                | Expr::InSubquery(_)
                | Expr::Exists(_)
                | Expr::OuterReferenceColumn(..)
                | Expr::Placeholder(_)
                | Expr::AggregateFunction(_)
                | Expr::WindowFunction(_)
        ))
    });
    matches!(needs_more, Ok(false)) && !filter.is_volatile()
}

#[async_trait]
impl TableProvider for DorisTable {
    fn schema(&self) -> SchemaRef {
        match self.options.sink.change_format {
            Some(_) => event_schema(),
            None => Arc::clone(self.bound.schema()),
        }
    }

    fn table_type(&self) -> TableType {
        // Views have no model, nor have tables of external catalogs.
        match (&self.doris.model, &self.doris.table.catalog) {
            (None, None) => TableType::View,
            _ => TableType::Base,
        }
    }

    fn constraints(&self) -> Option<&Constraints> {
        self.constraints.as_ref()
    }

    fn get_column_default(&self, column: &str) -> Option<&Expr> {
        self.defaults.default_of(column)
    }

    // The two scans are no `async fn`: their futures would hold expressions, and proving inside of a future that an
    // `Expr` may be shared costs the compiler seconds, each time. Expressions become SQL before the future is made.
    fn scan<'life0, 'life1, 'life2, 'life3, 'async_trait>(
        &'life0 self,
        state: &'life1 dyn Session,
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
        let args = ScanArgs::default()
            .with_projection(projection.map(Vec::as_slice))
            .with_filters(Some(filters))
            .with_limit(limit);
        self.scan_with_args(state, args).map(|result| Ok(result?.into_inner())).boxed()
    }

    fn scan_with_args<'a, 'life0, 'life1, 'async_trait>(
        &'life0 self,
        state: &'life1 dyn Session,
        args: ScanArgs<'a>,
    ) -> BoxFuture<'async_trait, DfResult<ScanResult>>
    where
        'a: 'async_trait,
        'life0: 'async_trait,
        'life1: 'async_trait,
        Self: 'async_trait,
    {
        if self.options.sink.change_format.is_some() {
            let what = format!("reading table {} as a target of change events", self.doris.table);
            let advice = "declare it a second time without 'sink.change-format' to read it";
            return std::future::ready(Err(Error::unsupported(what, advice).into())).boxed();
        }
        let projection = match args.projection() {
            Some(projection) => projection.to_vec(),
            None => (0..self.bound.schema().fields().len()).collect(),
        };
        let filters = args.filters().unwrap_or_default();
        if let Err(error) = self.bound.check_readable(&projection) {
            return std::future::ready(Err(error.into())).boxed();
        }
        if self.is_changelog() {
            let plan = self.scan_changelog(state, &projection, filters);
            return std::future::ready(plan.map(ScanResult::new)).boxed();
        }
        let columns: Vec<usize> = projection.iter().copied().filter(|index| *index < self.bound.columns()).collect();
        let plan = self.snapshot_plan(&columns, filters, args.limit());
        let partitions = state.config().target_partitions();
        async move { Ok(ScanResult::new(self.scan_snapshot(plan, &columns, &projection, partitions).await?)) }.boxed()
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> DfResult<Vec<TableProviderFilterPushDown>> {
        let answer = |filter: &&Expr| match self.is_changelog() {
            true if evaluates_alone(filter) => TableProviderFilterPushDown::Exact,
            true => TableProviderFilterPushDown::Unsupported,
            false => match self.pushable(filter) {
                Some(PushedFilter::Exact(_)) => TableProviderFilterPushDown::Exact,
                Some(PushedFilter::Superset(_)) => TableProviderFilterPushDown::Inexact,
                None => TableProviderFilterPushDown::Unsupported,
            },
        };
        Ok(filters.iter().map(answer).collect())
    }

    async fn insert_into(
        &self,
        state: &dyn Session,
        input: Arc<dyn ExecutionPlan>,
        operation: InsertOp,
    ) -> DfResult<Arc<dyn ExecutionPlan>> {
        match operation {
            InsertOp::Append => {}
            InsertOp::Overwrite => return Ok(self.overwrite_plan(input)?),
            InsertOp::Replace => {
                let what = format!("REPLACE INTO {}", self.doris.table);
                let advice = "use INSERT INTO: a UNIQUE KEY table replaces rows of the same key";
                return Err(Error::unsupported(what, advice).into());
            }
        }
        self.check_takes_rows("INSERT INTO")?;
        let (input, options) = match self.decoded(&input)? {
            // An event names its columns itself.
            Some(rows) => (rows, self.options.sink.clone()),
            None => {
                self.check_rows(&input)?;
                self.check_deletes(&input)?;
                let options = self.sink_options(&input)?;
                (self.with_commits_in_order(input)?, options)
            }
        };
        let schema = marked(self.bound.schema(), &input.schema());
        let sink = DorisSink::try_new(self.client.clone(), &self.doris, schema, options)?;
        Ok(Arc::new(DorisSinkExec::new(input, Arc::new(sink), epoch_sources).planned_in(state.config())))
    }

    fn delete_from<'life0, 'life1, 'async_trait>(
        &'life0 self,
        _: &'life1 dyn Session,
        _: Vec<Expr>,
    ) -> BoxFuture<'async_trait, DfResult<Arc<dyn ExecutionPlan>>>
    where
        'life0: 'async_trait,
        'life1: 'async_trait,
        Self: 'async_trait,
    {
        std::future::ready(Err(self.not_whole("DELETE FROM").into())).boxed()
    }

    fn update<'life0, 'life1, 'async_trait>(
        &'life0 self,
        _: &'life1 dyn Session,
        _: Vec<(String, Expr)>,
        _: Vec<Expr>,
    ) -> BoxFuture<'async_trait, DfResult<Arc<dyn ExecutionPlan>>>
    where
        'life0: 'async_trait,
        'life1: 'async_trait,
        Self: 'async_trait,
    {
        std::future::ready(Err(self.not_whole("UPDATE").into())).boxed()
    }

    async fn truncate(&self, _: &dyn Session) -> DfResult<Arc<dyn ExecutionPlan>> {
        Ok(self.truncate_plan()?)
    }
}
