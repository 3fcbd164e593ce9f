//! Aggregates as statements of Doris.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::{Column, Result, TableReference};
use datafusion::logical_expr::expr::{AggregateFunction, AggregateFunctionParams};
use datafusion::logical_expr::{Aggregate, Cast, Expr, LogicalPlan, cast};

use super::average::decimal_average;
use super::relation::Relation;
use super::{DorisQueryTable, PUSHED, scan_of};
use crate::sql::{ScanQuery, SqlValue, quote_ident};
use crate::types::DorisType;

/// Digits of a decimal column whose sum cannot leave 38 digits.
const SUMMED_DIGITS: u8 = 28;

/// `aggregate` as a statement; `None` when Doris cannot do all of it with the same result.
pub(super) fn push_aggregate(aggregate: &Aggregate) -> Result<Option<LogicalPlan>> {
    let Some(relation) = Relation::of(&aggregate.input)? else { return Ok(None) };
    if !relation.pushdown.aggregate {
        return Ok(None);
    }
    let mut statement = Statement::default();
    let (mut exprs, mut keys) = (Vec::new(), Vec::new());
    let fields = aggregate.schema.iter();
    for ((qualifier, field), expr) in fields.zip(aggregate.group_expr.iter().chain(&aggregate.aggr_expr)) {
        let data_type = field.data_type();
        let grouped = exprs.len() < aggregate.group_expr.len();
        let result = if grouped {
            let Some(value) = relation.value(expr)?.filter(SqlValue::is_groupable) else { return Ok(None) };
            let Some((sql, doris_type)) = value.output(data_type) else { return Ok(None) };
            keys.push(sql.clone());
            statement.output(sql, doris_type, data_type.clone(), field.is_nullable())
        } else {
            let Expr::AggregateFunction(call) = expr.clone().unalias_nested().data else { return Ok(None) };
            let Some(result) = statement.aggregate(&relation, &call, data_type)? else { return Ok(None) };
            result
        };
        exprs.push(result.alias_qualified(qualifier.cloned(), field.name()));
    }
    if exprs.is_empty() || exprs.len() != aggregate.schema.fields().len() {
        return Ok(None);
    }
    let mut sql = format!("SELECT {} {}", statement.outputs.join(", "), relation.source_text());
    if !keys.is_empty() {
        sql.push_str(&format!(" GROUP BY {}", keys.join(", ")));
    }
    let query = ScanQuery { sql, columns: statement.names };
    let schema = Arc::new(Schema::new(statement.fields));
    let table = DorisQueryTable::new(relation.client, relation.table, query, statement.types, schema)
        .with_settings(relation.settings)
        .with_pushdown(relation.pushdown)
        .with_limited(aggregate.group_expr.is_empty().then_some(1));
    scan_of(table, exprs).map(Some)
}

/// The outputs of the statement, in step.
#[derive(Debug, Default)]
struct Statement {
    outputs: Vec<String>,
    names: Vec<String>,
    types: Vec<DorisType>,
    fields: Vec<Field>,
}

impl Statement {
    /// Adds an output and gives the column that reads it.
    fn output(&mut self, sql: String, doris_type: DorisType, data_type: DataType, nullable: bool) -> Expr {
        let name = format!("c{}", self.names.len());
        self.outputs.push(format!("{sql} AS {}", quote_ident(&name)));
        self.types.push(doris_type);
        self.fields.push(Field::new(&name, data_type, nullable));
        let column = Expr::Column(Column::new(Some(TableReference::bare(PUSHED)), &name));
        self.names.push(name);
        column
    }

    fn count(&mut self, of: &str) -> Expr {
        self.output(format!("COUNT({of})"), DorisType::BigInt, DataType::Int64, false)
    }

    /// Adds what the aggregate is made of, and gives it as an expression of type `data_type`.
    fn aggregate(
        &mut self,
        relation: &Relation,
        call: &AggregateFunction,
        data_type: &DataType,
    ) -> Result<Option<Expr>> {
        let AggregateFunctionParams { args, distinct, filter, order_by, null_treatment } = &call.params;
        let [arg] = args.as_slice() else { return Ok(None) };
        if !order_by.is_empty() || null_treatment.is_some() {
            return Ok(None);
        }
        let condition = match filter {
            Some(filter) => match relation.condition(filter)? {
                Some(condition) => Some(condition),
                None => return Ok(None),
            },
            None => None,
        };
        // Doris has no FILTER (WHERE …): what is left out becomes NULL, which no aggregate counts.
        let filtered = |sql: String| match &condition {
            Some(condition) => format!("(CASE WHEN {condition} THEN {sql} END)"),
            None => sql,
        };
        let name = call.func.name();
        if name == "count" {
            return Ok(match arg {
                Expr::Literal(value, _) if !value.is_null() && !distinct => match &condition {
                    Some(_) => Some(self.count(&filtered("1".into()))),
                    None => Some(self.count("*")),
                },
                arg if *distinct => {
                    let value = relation.value(arg)?.filter(SqlValue::is_groupable);
                    value.map(|value| self.count(&format!("DISTINCT {}", filtered(value.sql))))
                }
                arg => match relation.value(arg)? {
                    Some(value) => Some(self.count(&filtered(value.sql))),
                    None => relation
                        .plain_column(arg)?
                        .filter(|column| is_scalar(&column.doris_type))
                        .map(|column| self.count(&filtered(column.sql))),
                },
            });
        }
        if name == "min" || name == "max" {
            let Some(value) = relation.value(arg)?.filter(SqlValue::is_ordered) else { return Ok(None) };
            let Some((sql, doris_type)) = value.output(data_type) else { return Ok(None) };
            let sql = format!("{}({})", name.to_ascii_uppercase(), filtered(sql));
            return Ok(Some(self.output(sql, doris_type, data_type.clone(), true)));
        }
        if *distinct {
            return Ok(None);
        }
        match name {
            "sum" => {
                let Some(value) = relation.value(arg)? else { return Ok(None) };
                if value.is_integer() && *data_type == DataType::Int64 {
                    let sql = format!("SUM({})", filtered(value.sql));
                    return Ok(Some(self.output(sql, DorisType::BigInt, DataType::Int64, true)));
                }
                Ok(self.decimal_sum(&value, &filtered).map(|(sum, _)| cast(sum, data_type.clone())))
            }
            "avg" => self.average(relation, arg, data_type, &filtered),
            _ => Ok(None),
        }
    }

    /// The sum as Doris gives it, with its type: 38 digits.
    fn decimal_sum(&mut self, value: &SqlValue, filtered: &dyn Fn(String) -> String) -> Option<(Expr, u8)> {
        let DorisType::Decimal(precision, scale) = value.doris_type else { return None };
        if value.bare && precision > SUMMED_DIGITS {
            return None;
        }
        let data_type = DataType::Decimal128(38, i8::try_from(scale).ok()?);
        let sql = format!("SUM({})", filtered(value.sql.clone()));
        Some((self.output(sql, DorisType::Decimal(38, scale), data_type, true), scale))
    }

    fn average(
        &mut self,
        relation: &Relation,
        arg: &Expr,
        data_type: &DataType,
        filtered: &dyn Fn(String) -> String,
    ) -> Result<Option<Expr>> {
        let arg = arg.clone().unalias_nested().data;
        if *data_type == DataType::Float64 {
            // DataFusion averages whole numbers as doubles.
            let Expr::Cast(Cast { expr, field }) = &arg else { return Ok(None) };
            if *field.data_type() != DataType::Float64 {
                return Ok(None);
            }
            // Of BIGINT the sum of doubles, which DataFusion takes, depends on the order of the rows.
            let Some(value) = relation.value(expr)?.filter(SqlValue::fits_int) else { return Ok(None) };
            let sum = format!("SUM({})", filtered(value.sql.clone()));
            let sum = self.output(sum, DorisType::BigInt, DataType::Int64, true);
            let count = self.count(&filtered(value.sql));
            return Ok(Some(cast(sum, DataType::Float64) / cast(count, DataType::Float64)));
        }
        let Some(value) = relation.value(&arg)? else { return Ok(None) };
        let Some((sum, _)) = self.decimal_sum(&value, filtered) else { return Ok(None) };
        let count = self.count(&filtered(value.sql));
        Ok(decimal_average(sum, count, data_type))
    }
}

/// Types whose values COUNT can look at.
fn is_scalar(doris_type: &DorisType) -> bool {
    !matches!(
        doris_type,
        DorisType::Opaque(_)
            | DorisType::Unknown(_)
            | DorisType::VarBinary
            | DorisType::Json
            | DorisType::Variant
            | DorisType::Array(_)
            | DorisType::Map(..)
            | DorisType::Struct(_)
    )
}
