//! One expression over the rows of a batch, outside a query: `columns:` and `where:` of a load, constants of statements.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch, RecordBatchOptions};
use arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::DFSchema;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::sql::sqlparser::ast::ExprWithAlias;
use datafusion::sql::sqlparser::tokenizer::Token;

use super::env::Env;
use super::query::engine_error;
use super::rewrite::{Facts, Rewriter};
use super::{dialect, functions};
use crate::deep_stack::on_deep_stack;
use crate::error::SqlError;
use crate::types::{DorisType, conform_in};

/// What an expression depends on beside its rows: zone, settings, clock, identity.
#[derive(Debug, Clone)]
pub(crate) struct ExprContext {
    pub(super) env: Env,
    pub(super) facts: Facts,
    pub(super) backslash_escapes: bool,
}

/// A planned expression.
#[derive(Debug, Clone)]
pub(crate) struct CompiledExpr {
    physical: Arc<dyn PhysicalExpr>,
    ty: DorisType,
    context: ExprContext,
}

/// Plans the text of one expression with the meaning it has in a query. Columns are found by name without case;
/// the Doris type of a field is that of [`DorisType::storage_field`] (its tag, else the type of its Arrow type).
///
/// # Errors
/// A text that is no expression, an unknown column or function, operands that do not go together, or what only a
/// query can evaluate (aggregates, subqueries).
pub(crate) fn compile_expression(
    context: &ExprContext,
    text: &str,
    schema: &SchemaRef,
) -> Result<CompiledExpr, SqlError> {
    let statements = super::split(text, context.backslash_escapes)?;
    let [statement] = statements.as_slice() else {
        return Err(SqlError::syntax(format!("expected one expression at `{text}`")));
    };
    statement.check_size()?;
    let tokens = statement.tokens.iter().map(|tok| tok.token.clone()).collect();
    compile_tokens(context, tokens, schema)
}

/// As [`compile_expression`], of tokens.
pub(super) fn compile_tokens(
    context: &ExprContext,
    tokens: Vec<Token>,
    schema: &SchemaRef,
) -> Result<CompiledExpr, SqlError> {
    on_deep_stack(|| compile(context, tokens, schema))
}

fn compile(context: &ExprContext, tokens: Vec<Token>, schema: &SchemaRef) -> Result<CompiledExpr, SqlError> {
    let mut parser = dialect::parser(tokens);
    let mut expr = parser.parse_expr().map_err(|error| SqlError::syntax(super::query::parser_text(&error)))?;
    if parser.peek_token_ref().token != Token::EOF {
        return Err(SqlError::syntax(format!("mismatched input '{}'", parser.peek_token_ref().token)));
    }
    let names = schema.fields().iter().map(|f| (f.name().to_lowercase(), f.name().clone())).collect();
    let spellings: HashSet<String> = schema.fields().iter().map(|f| f.name().clone()).collect();
    let hidden = HashMap::new();
    let mut rewriter = Rewriter::new(names, spellings, &hidden, &context.facts);
    rewriter.rewrite_expr(&mut expr)?;
    let state = functions::state("__no_database__", &context.env);
    let df_schema = DFSchema::try_from(Arc::clone(schema)).map_err(engine_error)?;
    let logical = state
        .create_logical_expr_from_sql_expr(ExprWithAlias { expr, alias: None }, &df_schema)
        .map_err(engine_error)?;
    let physical = state.create_physical_expr(logical, &df_schema).map_err(engine_error)?;
    let field = physical.return_field(schema).map_err(engine_error)?;
    let ty = DorisType::of_field(&field)
        .ok_or_else(|| SqlError::not_served(format!("expressions of Arrow type {}", field.data_type())))?;
    Ok(CompiledExpr { physical, ty, context: context.clone() })
}

impl CompiledExpr {
    /// Type of the values.
    pub(crate) fn doris_type(&self) -> &DorisType {
        &self.ty
    }

    /// One value per row, in the storage type of [`CompiledExpr::doris_type`].
    ///
    /// # Errors
    /// What fails while it runs, such as an invalid pattern.
    pub(crate) fn evaluate(&self, batch: &RecordBatch) -> Result<ArrayRef, SqlError> {
        self.evaluate_as(batch, &self.ty)
    }

    /// As [`CompiledExpr::evaluate`], cast to a type: what cannot be converted is NULL.
    ///
    /// # Errors
    /// As [`CompiledExpr::evaluate`], and types without a cast.
    pub(crate) fn evaluate_as(&self, batch: &RecordBatch, ty: &DorisType) -> Result<ArrayRef, SqlError> {
        let rows = batch.num_rows();
        let value = on_deep_stack(|| self.physical.evaluate(batch).and_then(|value| value.into_array(rows)));
        let array = value.map_err(engine_error)?;
        if array.data_type() == &ty.storage() && *ty == self.ty {
            return Ok(array);
        }
        conform_in(&array, ty, &self.context.env.zone).map_err(SqlError::detail)
    }

    /// Which rows the expression is true for; NULL is not.
    ///
    /// # Errors
    /// As [`CompiledExpr::evaluate_as`].
    pub(crate) fn evaluate_filter(&self, batch: &RecordBatch) -> Result<BooleanArray, SqlError> {
        let array = self.evaluate_as(batch, &DorisType::Boolean)?;
        Ok(match array.data_type() {
            DataType::Boolean => array.as_boolean().iter().map(|flag| Some(flag == Some(true))).collect(),
            _ => BooleanArray::from(vec![false; batch.num_rows()]),
        })
    }

    /// The value of an expression without columns.
    ///
    /// # Errors
    /// As [`CompiledExpr::evaluate`].
    pub(crate) fn constant(&self) -> Result<ArrayRef, SqlError> {
        let options = RecordBatchOptions::new().with_row_count(Some(1));
        let one_row = RecordBatch::try_new_with_options(Arc::new(arrow::datatypes::Schema::empty()), vec![], &options)
            .map_err(SqlError::detail)?;
        self.evaluate(&one_row)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests;
