//! DELETE and UPDATE of Doris tables are planned from the whole statement.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use chrono::Utc;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{DFSchemaRef, Result, not_impl_err};
use datafusion::datasource::{TableType, provider_as_source, source_as_provider};
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::{DmlStatement, EmptyRelation, Expr, LogicalPlan, Projection, WriteOp};
use datafusion::optimizer::AnalyzerRule;
use datafusion::optimizer::simplify_expressions::ExprSimplifier;
use datafusion::physical_plan::ExecutionPlan;
use futures::FutureExt;
use futures::future::BoxFuture;

use crate::error::Error;
use crate::table::DorisTable;

/// Plans `DELETE FROM` and `UPDATE` of a [`DorisTable`] as one statement of Doris ([`crate::dml::DorisStatementExec`]).
///
/// A table provider is given the conditions that are left of a statement after optimization: a subquery has become a
/// join by then and is not among them, nor is a LIMIT, so more rows would be deleted than were asked for. This rule looks
/// at the statement before that, refuses what is not a condition on the table alone, and hands the finished plan over.
#[derive(Debug)]
pub struct WholeStatements;

impl AnalyzerRule for WholeStatements {
    fn analyze(&self, plan: LogicalPlan, config: &ConfigOptions) -> Result<LogicalPlan> {
        plan.transform_up(|node| match node {
            LogicalPlan::Dml(statement) => planned(statement, config),
            other => Ok(Transformed::no(other)),
        })
        .data()
    }

    fn name(&self) -> &str {
        "doris_whole_statements"
    }
}

fn planned(statement: DmlStatement, config: &ConfigOptions) -> Result<Transformed<LogicalPlan>> {
    if !matches!(statement.op, WriteOp::Delete | WriteOp::Update) {
        return Ok(Transformed::no(LogicalPlan::Dml(statement)));
    }
    let Ok(provider) = source_as_provider(&statement.target) else {
        return Ok(Transformed::no(LogicalPlan::Dml(statement)));
    };
    let Some(table) = provider.downcast_ref::<DorisTable>() else {
        return Ok(Transformed::no(LogicalPlan::Dml(statement)));
    };
    let plan = match &statement.op {
        WriteOp::Delete => {
            let condition = condition(&statement, table, &statement.input, config)?;
            table.delete_plan(condition.as_ref())?
        }
        _ => {
            let LogicalPlan::Projection(projection) = statement.input.as_ref() else {
                return Err(not_alone(&statement, table).into());
            };
            let condition = condition(&statement, table, &projection.input, config)?;
            table.update_plan(&assignments(projection, config)?, condition.as_ref())?
        }
    };
    let target = Planned { schema: provider.schema(), plan };
    // Nothing is to be read, neither at planning.
    let input = LogicalPlan::EmptyRelation(EmptyRelation {
        produce_one_row: false,
        schema: Arc::clone(statement.input.schema()),
    });
    let statement =
        DmlStatement::new(statement.table_name, provider_as_source(Arc::new(target)), statement.op, Arc::new(input));
    Ok(Transformed::yes(LogicalPlan::Dml(statement)))
}

/// The condition of `input`, when that is a scan of the target and a filter, and nothing else.
fn condition(
    statement: &DmlStatement,
    table: &DorisTable,
    input: &LogicalPlan,
    config: &ConfigOptions,
) -> Result<Option<Expr>> {
    let (scan, condition) = match input {
        LogicalPlan::Filter(filter) => {
            (filter.input.as_ref(), Some(simplified(&filter.predicate, filter.input.schema(), config)?))
        }
        scan => (scan, None),
    };
    let scan = match scan {
        LogicalPlan::SubqueryAlias(alias) => alias.input.as_ref(),
        scan => scan,
    };
    match scan {
        LogicalPlan::TableScan(scan)
            if scan.table_name.resolved_eq(&statement.table_name)
                && scan.filters.is_empty()
                && scan.fetch.is_none() =>
        {
            Ok(condition)
        }
        _ => Err(not_alone(statement, table).into()),
    }
}

fn not_alone(statement: &DmlStatement, table: &DorisTable) -> Error {
    let (word, keys) = match statement.op {
        WriteOp::Delete => ("DELETE FROM", "deletes them"),
        _ => ("UPDATE", "replaces them"),
    };
    Error::unsupported(
        format!("{word} {} with LIMIT or other tables", table.doris_schema().table),
        format!(
            "only a WHERE over the table's own columns is sent to doris; an INSERT INTO … SELECT of the rows' keys with \
             'sink.change-kind-column' {keys} in a unique table"
        ),
    )
}

/// Columns that get a value other than their own.
fn assignments(projection: &Projection, config: &ConfigOptions) -> Result<Vec<(String, Expr)>> {
    let mut out = Vec::new();
    for expr in &projection.expr {
        let Expr::Alias(alias) = expr else { continue };
        let value = simplified(&alias.expr, projection.input.schema(), config)?;
        if !matches!(&value, Expr::Column(column) if column.name == alias.name) {
            out.push((alias.name.clone(), value));
        }
    }
    Ok(out)
}

/// Casts around columns moved to the literals, constants computed.
fn simplified(expr: &Expr, schema: &DFSchemaRef, config: &ConfigOptions) -> Result<Expr> {
    let context = SimplifyContext::builder()
        .with_schema(Arc::clone(schema))
        .with_config_options(Arc::new(config.clone()))
        .with_query_execution_start_time(Some(Utc::now()))
        .build();
    ExprSimplifier::new(context).simplify(expr.clone())
}

/// The target of a statement that is planned.
#[derive(Debug)]
struct Planned {
    schema: SchemaRef,
    plan: Arc<dyn ExecutionPlan>,
}

#[async_trait]
impl TableProvider for Planned {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        _: &dyn Session,
        _: Option<&Vec<usize>>,
        _: &[Expr],
        _: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        not_impl_err!("the target of a planned statement is not read")
    }

    // No `async fn`: their futures would hold expressions, see `DorisTable::scan`.
    fn delete_from<'life0, 'life1, 'async_trait>(
        &'life0 self,
        _: &'life1 dyn Session,
        _: Vec<Expr>,
    ) -> BoxFuture<'async_trait, Result<Arc<dyn ExecutionPlan>>>
    where
        'life0: 'async_trait,
        'life1: 'async_trait,
        Self: 'async_trait,
    {
        std::future::ready(Ok(Arc::clone(&self.plan))).boxed()
    }

    fn update<'life0, 'life1, 'async_trait>(
        &'life0 self,
        _: &'life1 dyn Session,
        _: Vec<(String, Expr)>,
        _: Vec<Expr>,
    ) -> BoxFuture<'async_trait, Result<Arc<dyn ExecutionPlan>>>
    where
        'life0: 'async_trait,
        'life1: 'async_trait,
        Self: 'async_trait,
    {
        std::future::ready(Ok(Arc::clone(&self.plan))).boxed()
    }
}
