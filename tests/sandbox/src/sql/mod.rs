//! Doris SQL: lexing, the statements, queries through DataFusion with Doris's meaning.

mod alter;
mod changes;
mod column_def;
mod columns;
mod create;
mod cursor;
mod ddl;
mod delete;
mod dialect;
mod dispatch;
mod env;
mod expression;
mod functions;
mod information;
mod insert;
mod lexer;
mod literal;
mod output;
mod partition;
mod planner;
mod properties;
mod provider;
mod query;
mod relations;
mod rewrite;
mod shape;
mod show;
mod show_table;
mod stream_scan;
mod streams;
mod tvf;
mod udf;
mod variables;
mod views;

pub(crate) use dispatch::run;
pub(crate) use expression::{CompiledExpr, ExprContext, compile_expression};
pub(crate) use lexer::{Statement, statements as split};
pub(crate) use query::plan_tablets;
pub(crate) use shape::{Shape, shape};
pub(crate) use variables::Variables;

#[cfg(test)]
mod tests;
