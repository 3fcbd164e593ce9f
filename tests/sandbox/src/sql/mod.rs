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
mod explain;
mod expression;
mod external;
mod floats;
mod functions;
mod information;
mod insert;
mod lexer;
mod literal;
mod misc;
mod output;
mod partition;
mod planner;
mod privileges;
mod properties;
mod provider;
mod query;
mod relations;
mod rewrite;
mod set;
mod shape;
mod show;
mod show_cluster;
mod show_table;
mod statistics;
mod stream_scan;
mod streams;
mod transaction;
mod tvf;
mod users;
mod variables;
mod views;

pub(crate) use dispatch::run;
pub(crate) use expression::{CompiledExpr, ExprContext, compile_expression};
pub(crate) use lexer::{Statement, statements as split};
pub(crate) use misc::masked;
pub(crate) use privileges::check_use;
pub(crate) use query::{describe, engine_error, plan_tablets};
pub(crate) use shape::{Shape, shape};
pub(crate) use show::like;
pub(crate) use transaction::Transaction;
pub(crate) use variables::{Globals, Variables};

#[cfg(test)]
mod tests;
