//! SELECT: tokens to a plan over snapshots, run by DataFusion.

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::SchemaRef;
use datafusion::catalog::{
    CatalogProvider, MemoryCatalogProvider, MemorySchemaProvider, SchemaProvider, TableProvider,
};
use datafusion::common::{DataFusionError, SchemaError};
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::{LogicalPlan, LogicalPlanBuilder};
use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::sqlparser::ast::{self, Query, TableFactor, VisitMut, VisitorMut};
use datafusion::sql::sqlparser::tokenizer::Token;

use super::changes::{self, Wanted};
use super::columns::{self, Shown};
use super::explain::ScanNote;
use super::expression::{self, ExprContext};
use super::lexer::{Statement, Tok};
use super::provider::{Relation, Source};
use super::relations::{self, ScanSpec, scan_name};
use super::rewrite::{Rewriter, plain_name};
use super::{ddl, dialect, functions, information, output, privileges, stream_scan, streams, tvf, views};
use crate::changelog::{Consumption, Fence};
use crate::engine::{Engine, Origin, Profile, StatementResult, TabletInfo};
use crate::error::SqlError;
use crate::executor;
use crate::session::Session;
use crate::storage::Table;
use crate::types::{DorisType, format_datetime};
use crate::users::Privilege;

/// How a query is read.
#[derive(Debug, Clone, Default)]
pub(super) struct QueryOptions {
    /// Relations show where their rows stand.
    pub(super) row_ids: bool,
    /// Views around this query.
    pub(super) nesting: usize,
    /// Tables are read without a check of privileges: that of the statement, or of the view, was enough.
    pub(super) trusted: bool,
}

/// A planned query.
pub(super) struct Prepared {
    state: SessionState,
    /// Where it runs; `None`: where it is polled.
    executor: Option<tokio::runtime::Handle>,
    pub(super) plan: LogicalPlan,
    origin: Origin,
    /// The tables that are read.
    pub(super) scans: Vec<ScanNote>,
    /// Epoch of the last table bound.
    pub(super) epoch: u64,
    /// Offsets of streams that a statement moves when it writes the rows.
    pub(super) consumption: Consumption,
}

impl Prepared {
    /// Output schema in storage types.
    pub(super) fn schema(&self) -> SchemaRef {
        Arc::clone(self.plan.schema().inner())
    }

    /// The plan as it will run.
    pub(super) fn optimized(&self) -> Result<LogicalPlan, SqlError> {
        self.state.optimize(&self.plan).map_err(engine_error)
    }

    /// Runs the plan; batches in storage types.
    pub(super) async fn stream(self) -> Result<SendableRecordBatchStream, SqlError> {
        executor::run(self.executor.as_ref(), self.state, self.plan).await.map_err(engine_error)
    }
}

/// Runs a SELECT.
pub(super) async fn run(
    session: &Session,
    tokens: &[Tok],
    text: &str,
    options: &QueryOptions,
) -> Result<StatementResult, SqlError> {
    let mut prepared = prepare(session, tokens, text, options).await?;
    if let Some(limit) = session.variables.number("sql_select_limit").filter(|n| *n < i64::MAX as u64)
        && !matches!(prepared.plan, LogicalPlan::Limit(_))
    {
        let limited = LogicalPlanBuilder::from(prepared.plan).limit(0, Some(limit as usize));
        prepared.plan = limited.and_then(LogicalPlanBuilder::build).map_err(engine_error)?;
    }
    let origin = prepared.origin;
    let stream = prepared.stream().await?;
    let old = session.engine.config().flight.old_forms;
    output::to_result(stream, origin, session.engine.profile(), session.variables.zone(), session.protocol(), old)
}

/// Names and types of the columns that a query gives; empty for other statements.
pub(crate) async fn describe(
    session: &Session,
    text: &str,
    statement: &Statement,
) -> Result<Vec<(String, DorisType)>, SqlError> {
    if !matches!(statement.first_word().as_deref(), Some("SELECT" | "WITH")) {
        return Ok(Vec::new());
    }
    let prepared = prepare(session, &statement.tokens, text, &QueryOptions::default()).await?;
    let column = |field: &arrow::datatypes::FieldRef| {
        let label = field.name().split(super::rewrite::LABEL_MARK).next().unwrap_or_default().to_owned();
        DorisType::of_field(field).map(|ty| (label, ty))
    };
    Ok(prepared.schema().fields().iter().filter_map(column).collect())
}

/// Text of the wall clock in the session zone with up to six digits of fraction.
pub(super) fn now_text(session: &Session, digits: u8) -> String {
    let now = session.engine.config().clock.now_ms();
    let zone = session.variables.zone();
    format_datetime((now + zone.offset_at(now.div_euclid(1000)) * 1000) * 1000, digits)
}

pub(super) fn parse(tokens: Vec<Token>) -> Result<Box<Query>, SqlError> {
    let mut parser = dialect::parser(tokens);
    let query = parser.parse_query().map_err(|error| SqlError::syntax(parser_text(&error)))?;
    if parser.peek_token_ref().token != Token::EOF {
        return Err(SqlError::syntax(format!("mismatched input '{}' expecting <EOF>", parser.peek_token_ref().token)));
    }
    Ok(query)
}

pub(super) fn parser_text(error: &datafusion::sql::sqlparser::parser::ParserError) -> String {
    let text = error.to_string();
    text.strip_prefix("sql parser error: ").unwrap_or(&text).to_owned()
}

/// Plans a query: names are bound to one version of each table.
pub(super) async fn prepare(
    session: &Session,
    tokens: &[Tok],
    _text: &str,
    options: &QueryOptions,
) -> Result<Prepared, SqlError> {
    let rewritten = relations::rewrite(session, tokens)?;
    let named = columns::mentioned(&rewritten.tokens);
    let fence = changes::fence(session, &rewritten.scans).await?;
    let mut query = parse(rewritten.tokens)?;
    let mut collector = Collector::default();
    if let ControlFlow::Break(error) = query.visit(&mut collector) {
        return Err(error);
    }
    let default_db = session.database.clone().unwrap_or_else(|| "__no_database__".to_owned());
    let mut binder = Binder {
        session,
        named,
        options,
        scans: rewritten.scans,
        fence,
        consumption: Consumption::default(),
        schemas: HashMap::new(),
        names: HashMap::new(),
        spellings: HashSet::new(),
        hidden: HashMap::new(),
        epoch: 0,
        tables: 0,
        system: 0,
        notes: Vec::new(),
    };
    for name in &collector.relations {
        if name.contains('.') || !collector.ctes.contains(name) {
            binder.bind(name, &default_db).await?;
        }
    }
    let context = ExprContext::of_session(session);
    let (names, spellings) = (std::mem::take(&mut binder.names), std::mem::take(&mut binder.spellings));
    let mut rewriter = Rewriter::new(names, spellings, &binder.hidden, &context.facts);
    rewriter.rewrite(&mut query)?;
    let session_function = rewriter.session_function;
    let state = functions::state(&default_db, &context.env);
    let catalog = MemoryCatalogProvider::new();
    binder.schemas.entry(default_db).or_default();
    for (db, tables) in binder.schemas {
        let schema = MemorySchemaProvider::new();
        for (name, relation) in tables {
            schema.register_table(name, relation).map_err(engine_error)?;
        }
        catalog.register_schema(&db, Arc::new(schema)).map_err(engine_error)?;
    }
    state.catalog_list().register_catalog("internal".to_owned(), Arc::new(catalog));
    let statement = DfStatement::Statement(Box::new(ast::Statement::Query(query)));
    let plan = state.statement_to_plan(statement).await.map_err(engine_error)?;
    let from_fe = binder.tables == 0 && (rewritten.uses_variables || session_function || binder.system > 0)
        || session.engine.config().flight.answers_in_fe
            && known_without_reading(&state.optimize(&plan).map_err(engine_error)?);
    Ok(Prepared {
        state,
        executor: session.engine.config().executor.clone(),
        plan,
        origin: if from_fe { Origin::Fe } else { Origin::Be },
        scans: binder.notes,
        epoch: binder.epoch,
        consumption: binder.consumption,
    })
}

/// Whether the planner of some builds answers a query: from constants, or (as far as it goes there) from statistics.
fn known_without_reading(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::EmptyRelation(_) | LogicalPlan::Values(_) => true,
        LogicalPlan::Aggregate(aggregate) => aggregate.group_expr.is_empty(),
        LogicalPlan::Projection(_) | LogicalPlan::SubqueryAlias(_) | LogicalPlan::Limit(_) => {
            plan.inputs().into_iter().all(known_without_reading)
        }
        _ => false,
    }
}

/// Evaluates one expression without tables; one row.
pub(super) fn constant(session: &Session, tokens: &[Tok], _text: &str) -> Result<ArrayRef, SqlError> {
    let rewritten = relations::rewrite_expression(session, tokens)?;
    let context = ExprContext::of_session(session);
    let schema: SchemaRef = Arc::new(arrow::datatypes::Schema::empty());
    expression::compile_tokens(&context, rewritten.tokens, &schema)?.constant()
}

/// Names in FROM, and refusals of what stands there and is not served.
#[derive(Default)]
struct Collector {
    relations: Vec<String>,
    ctes: HashSet<String>,
}

impl VisitorMut for Collector {
    type Break = SqlError;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<SqlError> {
        if let Some(with) = &query.with {
            self.ctes.extend(with.cte_tables.iter().map(|cte| cte.alias.name.value.clone()));
        }
        if !query.locks.is_empty() {
            return ControlFlow::Break(SqlError::not_served("locking reads"));
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<SqlError> {
        match factor {
            TableFactor::Table { name, args, version, sample, with_hints, partitions, .. } => {
                let shown = plain_name(name);
                if args.is_some() {
                    return ControlFlow::Break(SqlError::not_served(format!("table function {shown}")));
                }
                if version.is_some() || sample.is_some() || !with_hints.is_empty() || !partitions.is_empty() {
                    return ControlFlow::Break(SqlError::not_served(format!("this form of reading table {shown}")));
                }
                self.relations.push(shown);
                ControlFlow::Continue(())
            }
            TableFactor::Derived { .. } | TableFactor::NestedJoin { .. } => ControlFlow::Continue(()),
            other => ControlFlow::Break(SqlError::not_served(format!("`{other}` in FROM"))),
        }
    }
}

/// Binds names to snapshots.
struct Binder<'a> {
    session: &'a Session,
    named: HashSet<String>,
    options: &'a QueryOptions,
    scans: Vec<ScanSpec>,
    fence: Option<Fence>,
    consumption: Consumption,
    schemas: HashMap<String, HashMap<String, Arc<dyn TableProvider>>>,
    names: HashMap<String, String>,
    spellings: HashSet<String>,
    hidden: HashMap<String, Vec<String>>,
    epoch: u64,
    tables: usize,
    system: usize,
    notes: Vec<ScanNote>,
}

impl Binder<'_> {
    async fn bind(&mut self, name: &str, default_db: &str) -> Result<(), SqlError> {
        let scan = (0..self.scans.len()).find(|i| scan_name(*i) == name);
        let (spec, place) = match scan {
            Some(i) => (self.scans[i].clone(), Some((default_db.to_owned(), name.to_owned()))),
            None => (ScanSpec { parts: name.split('.').map(str::to_owned).collect(), ..ScanSpec::default() }, None),
        };
        if spec.parts.len() > 3 {
            return Err(SqlError::syntax(format!("invalid table name {name}")));
        }
        if let Some(raw) = &spec.raw {
            self.tables += 1;
            let relation = changes::raw(self.session, raw)?;
            self.register(name, place.unwrap_or_default(), Arc::new(relation), Vec::new());
            return Ok(());
        }
        if let Some(function) = &spec.function {
            self.tables += 1;
            let relation = tvf::bind(self.session, function).await?;
            self.register(name, place.unwrap_or_default(), relation, Vec::new());
            return Ok(());
        }
        let (db, table) = ddl::resolve(self.session, spec.parts.clone())?;
        let (relation, hidden): (Arc<dyn TableProvider>, Vec<String>) = if db.eq_ignore_ascii_case("information_schema")
        {
            if spec.incr.is_some() || spec.travel.is_some() || spec.tablets.is_some() || spec.partitions.is_some() {
                return Err(SqlError::detail(format!("table {table} takes no read hints")));
            }
            self.system += 1;
            let batch = information::table(self.session, &table)?;
            (Arc::new(Relation::new(batch.schema(), Source::Rows(batch))), Vec::new())
        } else if let Some(view) = self.session.engine.catalog.view(&db, &table) {
            if spec.incr.is_some() || spec.travel.is_some() || spec.tablets.is_some() || spec.partitions.is_some() {
                return Err(SqlError::detail(format!("view {table} takes no read hints")));
            }
            privileges::check_table(self.session, &db, &table, Privilege::Select)?;
            self.tables += 1;
            (Box::pin(views::relation(self.session, &view, self.options.nesting)).await?, Vec::new())
        } else if let Some(stream) = streams::lookup(self.session, &db, &table) {
            self.tables += 1;
            let show_hidden = self.session.variables.is_true("show_hidden_columns");
            let wanted = Wanted { named: &self.named, show_hidden };
            let (relation, hidden) = stream_scan::bind(self.session, &stream, &spec, &wanted, &mut self.consumption)?;
            (Arc::new(relation), hidden)
        } else {
            if !self.options.trusted {
                privileges::check_table(self.session, &db, &table, Privilege::Select)?;
            }
            let table = self.session.engine.table_handle(&db, &table)?;
            self.tables += 1;
            let (relation, hidden) = self.table(&table, &spec)?;
            self.note(scan.map_or_else(|| table.name().to_owned(), scan_name), &table, &spec);
            (Arc::new(relation), hidden)
        };
        self.register(name, place.unwrap_or((db, table)), relation, hidden);
        Ok(())
    }

    fn register(&mut self, name: &str, place: (String, String), relation: Arc<dyn TableProvider>, hidden: Vec<String>) {
        for field in relation.schema().fields() {
            self.names.entry(field.name().to_lowercase()).or_insert_with(|| field.name().clone());
            self.spellings.insert(field.name().clone());
        }
        if !hidden.is_empty() {
            self.hidden.insert(name.to_owned(), hidden);
        }
        let (db, table) = place;
        self.schemas.entry(db).or_default().insert(table, relation);
    }

    /// Remembers a table for EXPLAIN.
    fn note(&mut self, place: String, table: &Table, spec: &ScanSpec) {
        let tablets = table.tablets();
        let all_tablets = tablets.len();
        let read = tablets.iter().filter(|t| spec.tablets.as_ref().is_none_or(|ids| ids.contains(&t.id)));
        let (ids, rows): (Vec<u64>, Vec<u64>) = read.map(|t| (t.id, t.rows)).unzip();
        let (db, table) = (table.database().to_owned(), table.name().to_owned());
        self.notes.push(ScanNote { place, db, table, tablets: ids, all_tablets, rows: rows.iter().sum() });
    }

    fn table(&mut self, table: &Arc<Table>, spec: &ScanSpec) -> Result<(Relation, Vec<String>), SqlError> {
        if let Some(partitions) = &spec.partitions {
            table.partition_ids(partitions)?;
        }
        let show_hidden = self.session.variables.is_true("show_hidden_columns");
        let wanted = Wanted { named: &self.named, show_hidden };
        if spec.stream_param.is_some() {
            return Err(SqlError::detail("Invalid param type for olap table"));
        }
        if spec.incr.is_some()
            && let Some(fence) = &self.fence
        {
            return changes::incr(self.session, table, spec, fence, &wanted);
        }
        if let Some(travel) = &spec.travel {
            return changes::past(self.session, table, spec, travel, &wanted);
        }
        let mut snapshot = table.snapshot();
        self.epoch = snapshot.epoch;
        if let Some(ids) = &spec.tablets {
            if let Some(unknown) = ids.iter().find(|id| !snapshot.tablets.iter().any(|t| t.id == **id)) {
                return Err(SqlError::detail(format!("Invalid tablet id: {unknown} for table {}", table.name())));
            }
            snapshot.tablets.retain(|t| ids.contains(&t.id));
        }
        if let Some(names) = &spec.partitions {
            snapshot.tablets.retain(|t| names.iter().any(|name| name.eq_ignore_ascii_case(&t.partition)));
        }
        let mut read = table.tablets();
        read.retain(|t| snapshot.tablets.iter().any(|s| s.id == t.id));
        crate::replicas::check_queryable(&self.session.engine, &read)?;
        let row_lsn = self.session.engine.profile() == Profile::V5_0Changelog;
        let Shown { schema, hidden } =
            columns::of_table(table, &self.named, show_hidden, self.options.row_ids, row_lsn);
        let source = Source::Tablets {
            version: snapshot.version,
            tablets: snapshot.tablets,
            show_deleted: show_hidden || self.session.variables.is_true("skip_delete_sign"),
        };
        Ok((Relation::new(schema, source), hidden))
    }
}

/// An error of DataFusion in the server's form.
pub(crate) fn engine_error(error: DataFusionError) -> SqlError {
    match error.find_root() {
        DataFusionError::SchemaError(inner, _) => match inner.as_ref() {
            SchemaError::FieldNotFound { field, .. } => {
                SqlError::detail(format!("Unknown column '{}' in 'table list'", field.name))
            }
            SchemaError::AmbiguousReference { field } => {
                SqlError::coded(1052, format!("Column '{}' in field list is ambiguous", field.name))
            }
            other => SqlError::detail(other),
        },
        DataFusionError::Plan(text) if text.starts_with("Projections require unique expression names") => {
            SqlError::not_served("several columns of one name in `*`, a derived table or a view")
        }
        DataFusionError::Plan(text) if text.starts_with("HAVING clause references") => {
            SqlError::detail("HAVING may name columns of the GROUP BY clause and aggregate functions")
        }
        DataFusionError::Plan(text) if text.contains("must appear in the GROUP BY clause") => SqlError::detail(
            "columns of the select list must appear in the GROUP BY clause or in an aggregate function",
        ),
        DataFusionError::Plan(text) | DataFusionError::Execution(text) => SqlError::detail(text),
        DataFusionError::NotImplemented(text) => SqlError::not_served(text),
        DataFusionError::External(inner) if inner.is::<SqlError>() => {
            inner.downcast_ref::<SqlError>().cloned().unwrap_or_else(|| SqlError::detail(inner))
        }
        other => SqlError::detail(other.strip_backtrace()),
    }
}

/// Tablets for `_query_plan`: one table, projection and filter, nothing else.
pub(crate) async fn plan_tablets(
    engine: &Arc<Engine>,
    db: &str,
    table: &str,
    sql: &str,
) -> Result<Vec<TabletInfo>, SqlError> {
    let mut session = engine.open_session(&engine.config().user, "127.0.0.1", crate::engine::Protocol::Http);
    session.use_database(db)?;
    let statements = super::split(sql, true)?;
    let [statement] = statements.as_slice() else {
        return Err(SqlError::detail("Select statement must have only one statement"));
    };
    let rewritten = relations::rewrite(&session, &statement.tokens)?;
    let query = parse(rewritten.tokens)?;
    let ast::SetExpr::Select(select) = query.body.as_ref() else {
        return Err(SqlError::detail("Select statement must not embed another statement"));
    };
    let [from] = select.from.as_slice() else {
        return Err(SqlError::detail("Select statement must have only one table"));
    };
    if !from.joins.is_empty() {
        return Err(SqlError::detail("Select statement must have only one table"));
    }
    let TableFactor::Table { name, .. } = &from.relation else {
        return Err(SqlError::detail("Select statement must not embed another statement"));
    };
    let shown = plain_name(name);
    let scan = (0..rewritten.scans.len()).find(|i| scan_name(*i) == shown).map(|i| rewritten.scans[i].clone());
    let parts = scan.as_ref().map_or_else(|| shown.split('.').map(str::to_owned).collect(), |s| s.parts.clone());
    let (read_db, read_table) = ddl::resolve(&session, parts)?;
    if read_db != db || read_table != table {
        return Err(SqlError::detail(format!(
            "requested database and table must consistent with sql: request [ {db}.{table}] and sql [{read_db}.{read_table}]"
        )));
    }
    // Names and functions must resolve too.
    let prepared = prepare(&session, &statement.tokens, sql, &QueryOptions::default()).await?;
    let mut found = Vec::new();
    let mut plan = &prepared.plan;
    let plain = loop {
        match plan {
            LogicalPlan::TableScan(_) => break true,
            LogicalPlan::Projection(_) | LogicalPlan::Filter(_) | LogicalPlan::SubqueryAlias(_) => {
                let inputs = plan.inputs();
                let [input] = inputs.as_slice() else { break false };
                plan = input;
            }
            other => {
                found.push(other.display().to_string().split([':', ' ']).next().unwrap_or_default().to_uppercase());
                break false;
            }
        }
    };
    if !plain {
        return Err(SqlError::detail(format!(
            "only support single table filter-prune-scan, but found [ {} ]",
            found.join(" ")
        )));
    }
    let (ids, partitions) = scan.map(|s| (s.tablets, s.partitions)).unwrap_or_default();
    let chosen = |t: &TabletInfo| {
        ids.as_ref().is_none_or(|ids| ids.contains(&t.id))
            && partitions.as_ref().is_none_or(|names| names.iter().any(|p| p.eq_ignore_ascii_case(&t.partition)))
    };
    let tablets = engine.tablets(db, table)?;
    Ok(tablets.into_iter().filter(chosen).collect())
}
