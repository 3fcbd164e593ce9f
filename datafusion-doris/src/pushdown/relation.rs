//! A part of a plan that Doris can read as FROM and WHERE.

use std::collections::HashMap;

use arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, JoinType, NullEquality, Result, TableReference};
use datafusion::logical_expr::{Expr, Join, LogicalPlan, TableScan};

use super::{DorisQueryTable, provider_of};
use crate::client::DorisClient;
use crate::options::PushdownOptions;
use crate::scan::ReadSettings;
use crate::sql::{Columns, PushedFilter, SqlColumn, SqlValue, condition_sql, pushed_filter, quote_ident, value_sql};
use crate::table::{DorisTable, RemoteSource};
use crate::types::{DorisType, TableIdent};

/// Deepest plan that is looked at.
const MAX_DEPTH: usize = 64;
/// Most tables of one statement.
const MAX_TABLES: usize = 32;

/// Tables, conditions on them, and the columns of the plan as expressions over theirs.
#[derive(Debug)]
pub(super) struct Relation {
    pub client: DorisClient,
    pub table: TableIdent,
    pub settings: ReadSettings,
    pub pushdown: PushdownOptions,
    /// Of a plan that is one scan: the rows that it gives at most.
    pub limited: Option<usize>,
    /// `table AS alias`.
    tables: Vec<String>,
    conditions: Vec<String>,
    /// The columns of the plan, over the columns of the tables.
    columns: HashMap<Column, Expr>,
    /// The columns of the tables, by alias and name.
    base: HashMap<Column, Base>,
}

#[derive(Debug, Clone)]
struct Base {
    column: SqlColumn,
    alike: bool,
}

impl Columns for Relation {
    fn column(&self, column: &Column) -> Option<SqlColumn> {
        self.base.get(column).filter(|base| base.alike).map(|base| base.column.clone())
    }
}

impl Relation {
    /// `plan` as a relation; `None` when Doris cannot do all of it.
    pub fn of(plan: &LogicalPlan) -> Result<Option<Self>> {
        Builder { aliases: 0 }.relation(plan, 0)
    }

    /// `FROM … WHERE …`
    pub fn source_text(&self) -> String {
        let conditions = match self.conditions.as_slice() {
            [] => String::new(),
            conditions => format!(" WHERE {}", conditions.join(" AND ")),
        };
        format!("FROM {}{conditions}", self.tables.join(", "))
    }

    /// An expression over the plan's columns as a condition of Doris.
    pub fn condition(&self, expr: &Expr) -> Result<Option<String>> {
        Ok(self.substituted(expr)?.and_then(|expr| condition_sql(&expr, self)))
    }

    /// An expression over the plan's columns as a value of Doris; not a literal, which alone in GROUP BY and ORDER BY is the
    /// number of a column.
    pub fn value(&self, expr: &Expr) -> Result<Option<SqlValue>> {
        let expr = self.substituted(expr)?.map(|expr| expr.unalias_nested().data);
        let expr = expr.filter(|expr| !matches!(expr, Expr::Literal(..)));
        Ok(expr.and_then(|expr| value_sql(&expr, self)))
    }

    /// An expression as an output of the statement, for a column of type `data_type`: values, and columns of any type.
    pub fn output(&self, expr: &Expr, data_type: &DataType) -> Result<Option<(String, DorisType)>> {
        let Some(expr) = self.substituted(expr)? else { return Ok(None) };
        if let Some(value) = value_sql(&expr, self) {
            return Ok(value.output(data_type));
        }
        Ok(self.plain(&expr).map(|column| (column.sql, column.doris_type)))
    }

    /// A column of any type.
    pub fn plain_column(&self, expr: &Expr) -> Result<Option<SqlColumn>> {
        Ok(self.substituted(expr)?.and_then(|expr| self.plain(&expr)))
    }

    fn plain(&self, expr: &Expr) -> Option<SqlColumn> {
        match expr {
            Expr::Alias(alias) => self.plain(&alias.expr),
            Expr::Column(column) => self.base.get(column).map(|base| base.column.clone()),
            _ => None,
        }
    }

    /// `expr` over the columns of the tables.
    fn substituted(&self, expr: &Expr) -> Result<Option<Expr>> {
        let mut known = true;
        let substituted = expr.clone().transform(|expr| match expr {
            Expr::Column(column) => match self.columns.get(&column) {
                Some(inner) => Ok(Transformed::new(inner.clone(), true, TreeNodeRecursion::Jump)),
                None => {
                    known = false;
                    Ok(Transformed::no(Expr::Column(column)))
                }
            },
            other => Ok(Transformed::no(other)),
        })?;
        Ok(known.then_some(substituted.data))
    }

    /// Both relations side by side.
    fn merged(mut self, other: Self) -> Self {
        self.tables.extend(other.tables);
        self.conditions.extend(other.conditions);
        self.columns.extend(other.columns);
        self.base.extend(other.base);
        Self { limited: None, ..self }
    }

    /// True when one statement can read both.
    fn joins_with(&self, other: &Self) -> bool {
        self.tables.len() + other.tables.len() <= MAX_TABLES
            && self.pushdown.join
            && other.pushdown.join
            && self.client.same_cluster(&other.client)
    }
}

struct Builder {
    /// Aliases given so far.
    aliases: usize,
}

impl Builder {
    fn relation(&mut self, plan: &LogicalPlan, depth: usize) -> Result<Option<Relation>> {
        if depth > MAX_DEPTH {
            return Ok(None);
        }
        match plan {
            LogicalPlan::TableScan(scan) => Ok(self.scan(scan)),
            LogicalPlan::SubqueryAlias(alias) => {
                let Some(relation) = self.relation(&alias.input, depth + 1)? else { return Ok(None) };
                renamed(relation, &alias.input, plan)
            }
            LogicalPlan::Projection(projection) => {
                let Some(relation) = self.relation(&projection.input, depth + 1)? else { return Ok(None) };
                let mut columns = HashMap::with_capacity(projection.expr.len());
                for (expr, column) in projection.expr.iter().zip(projection.schema.columns()) {
                    // A column that cannot be said is missed only where it is used.
                    if let Some(expr) = relation.substituted(expr)? {
                        columns.insert(column, expr.unalias_nested().data);
                    }
                }
                Ok(Some(Relation { columns, ..relation }))
            }
            LogicalPlan::Filter(filter) => {
                let Some(mut relation) = self.relation(&filter.input, depth + 1)? else { return Ok(None) };
                if !relation.pushdown.filter {
                    return Ok(None);
                }
                let condition = relation.condition(&filter.predicate)?;
                Ok(condition.map(|condition| {
                    relation.conditions.push(condition);
                    relation
                }))
            }
            LogicalPlan::Join(join) => self.join(join, depth),
            _ => Ok(None),
        }
    }

    fn scan(&mut self, scan: &TableScan) -> Option<Relation> {
        let provider = provider_of(&scan.source)?;
        let source: RemoteSource<'_> = match provider.downcast_ref::<DorisTable>() {
            Some(table) => table.remote()?,
            None => provider.downcast_ref::<DorisQueryTable>()?.remote(),
        };
        // Rows that a limit leaves cannot be filtered or counted from outside.
        if scan.fetch.is_some() {
            return None;
        }
        let alias = format!("t{}", self.aliases);
        self.aliases += 1;
        let (mut columns, mut base, mut own) = (HashMap::new(), HashMap::new(), HashMap::new());
        let schema = provider.schema();
        for (column, field) in source.columns.iter().zip(schema.fields()) {
            let key = Column::new(Some(TableReference::bare(alias.as_str())), field.name());
            let sql = format!("`{alias}`.{}", quote_ident(&column.stored));
            let doris_type = column.doris_type.clone();
            base.insert(key.clone(), Base { column: SqlColumn { sql, doris_type }, alike: column.alike });
            own.insert(field.name().clone(), key);
        }
        for column in scan.projected_schema.columns() {
            // A column that is added to those of the table is not there.
            if let Some(key) = own.get(&column.name) {
                columns.insert(column, Expr::Column(key.clone()));
            }
        }
        let mut relation = Relation {
            client: source.client.clone(),
            table: source.table.clone(),
            settings: source.settings,
            pushdown: source.pushdown,
            limited: source.limited.filter(|_| scan.filters.is_empty()),
            tables: vec![format!("{} AS `{alias}`", source.from)],
            conditions: vec![],
            columns,
            base,
        };
        for filter in &scan.filters {
            // Filters name columns that are not read, too, with the name of the table or without.
            let qualified = filter.clone().transform(|expr| match expr {
                Expr::Column(column) => Ok(match own.get(&column.name) {
                    Some(key) => Transformed::yes(Expr::Column(key.clone())),
                    None => Transformed::no(Expr::Column(column)),
                }),
                other => Ok(Transformed::no(other)),
            });
            // A part of a filter will do: DataFusion asks for the whole above, where it stops what is above.
            let sql = pushed_filter(&qualified.ok()?.data, &relation).map(PushedFilter::into_sql)?;
            relation.conditions.push(sql);
        }
        Some(relation)
    }

    fn join(&mut self, join: &Join, depth: usize) -> Result<Option<Relation>> {
        let taken = matches!(join.join_type, JoinType::Inner | JoinType::LeftSemi | JoinType::LeftAnti)
            && join.null_equality == NullEquality::NullEqualsNothing
            && !join.null_aware
            && !join.on.is_empty();
        if !taken {
            return Ok(None);
        }
        let Some(left) = self.relation(&join.left, depth + 1)? else { return Ok(None) };
        let Some(right) = self.relation(&join.right, depth + 1)? else { return Ok(None) };
        if !left.joins_with(&right) {
            return Ok(None);
        }
        let mut on = Vec::with_capacity(join.on.len() + 1);
        for (a, b) in &join.on {
            let (Some(a), Some(b)) = (left.value(a)?, right.value(b)?) else { return Ok(None) };
            if !a.compares_with(&b) {
                return Ok(None);
            }
            on.push(format!("({} = {})", a.sql, b.sql));
        }
        let (left_tables, left_conditions, left_columns) =
            (left.tables.len(), left.conditions.len(), left.columns.clone());
        let mut both = left.merged(right);
        if let Some(filter) = &join.filter {
            let Some(condition) = both.condition(filter)? else { return Ok(None) };
            on.push(condition);
        }
        both.conditions.extend(on);
        if join.join_type == JoinType::Inner {
            return Ok(Some(both));
        }
        let tables = both.tables.split_off(left_tables).join(", ");
        let conditions = both.conditions.split_off(left_conditions).join(" AND ");
        let not = if join.join_type == JoinType::LeftAnti { "NOT " } else { "" };
        both.conditions.push(format!("({not}EXISTS (SELECT 1 FROM {tables} WHERE {conditions}))"));
        both.columns = left_columns;
        Ok(Some(both))
    }
}

/// `relation` with the columns of `outer`, which are those of `inner` under another name.
fn renamed(mut relation: Relation, inner: &LogicalPlan, outer: &LogicalPlan) -> Result<Option<Relation>> {
    let pairs = inner.schema().columns().into_iter().zip(outer.schema().columns());
    let columns = pairs.filter_map(|(inner, outer)| Some((outer, relation.columns.remove(&inner)?)));
    let columns = columns.collect();
    Ok(Some(Relation { columns, ..relation }))
}
