//! DELETE, UPDATE and TRUNCATE of a table, as statements of Doris.

use std::sync::Arc;

use datafusion::common::ScalarValue;
use datafusion::common::tree_node::TreeNode;
use datafusion::logical_expr::expr::InList;
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{BinaryExpr, Expr, Operator};
use datafusion::physical_plan::ExecutionPlan;

use super::DorisTable;
use crate::dml::DorisStatementExec;
use crate::error::{Error, Result};
use crate::sql::{Change, assigned_value, delete_sql, truncate_sql, update_sql};

/// Which rows a statement is about.
enum Condition {
    All,
    None,
    Sql(String),
}

impl DorisTable {
    /// `DELETE FROM` the table, where `condition` (coerced and simplified) holds.
    pub(crate) fn delete_plan(&self, condition: Option<&Expr>) -> Result<Arc<dyn ExecutionPlan>> {
        let what = format!("DELETE FROM {}", self.doris.table);
        self.check_changeable(&what)?;
        let condition = match self.condition(&what, condition)? {
            Condition::Sql(condition) => Some(condition),
            Condition::None => None,
            Condition::All => {
                let advice =
                    "the statement would delete all rows, which doris does not do by DELETE: use TRUNCATE TABLE";
                return Err(Error::unsupported(what, advice));
            }
        };
        Ok(self.statement(delete_sql(&self.doris.table, condition.as_deref())))
    }

    /// `UPDATE` of the table: new values by column (coerced and simplified), where `condition` holds.
    pub(crate) fn update_plan(
        &self,
        assignments: &[(String, Expr)],
        condition: Option<&Expr>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let what = format!("UPDATE {}", self.doris.table);
        self.check_changeable(&what)?;
        if assignments.is_empty() {
            return Err(Error::unsupported(what, "it gives columns the values they have: leave it out"));
        }
        let condition = match self.condition(&what, condition)? {
            Condition::Sql(condition) => Some(condition),
            Condition::All => None,
            Condition::None => {
                return Ok(self.statement(Change { sql: None, ..update_sql(&self.doris.table, &[], None) }));
            }
        };
        let mut values = Vec::with_capacity(assignments.len());
        for (name, value) in assignments {
            let refuse = |reason: String| {
                let what = format!("UPDATE {}: column '{name}' = {}", self.doris.table, value.human_display());
                let advice = "assign a literal, a column of the same type or a sum of integers, or write the new rows \
                              by INSERT INTO … SELECT: a unique table replaces rows of the same key";
                Error::unsupported(what, format!("{reason}; {advice}"))
            };
            let Some(column) = self.doris.columns.iter().find(|column| column.name == *name) else {
                return Err(refuse("it is no column of the table in doris".into()));
            };
            if let Some(other) = self.declared_otherwise(value) {
                return Err(refuse(format!("column '{other}' is declared with a type that is not doris' own")));
            }
            let value = assigned_value(value, column, &self.doris).map_err(refuse)?;
            values.push((name.clone(), value));
        }
        Ok(self.statement(update_sql(&self.doris.table, &values, condition.as_deref())))
    }

    /// `TRUNCATE TABLE`.
    pub(crate) fn truncate_plan(&self) -> Result<Arc<dyn ExecutionPlan>> {
        self.check_changeable(&format!("TRUNCATE TABLE {}", self.doris.table))?;
        Ok(self.statement(truncate_sql(&self.doris.table)))
    }

    /// The error of a DELETE or UPDATE in a session without [`crate::optimizer::WholeStatements`].
    pub(super) fn not_whole(&self, word: &str) -> Error {
        Error::unsupported(
            format!("{word} {}", self.doris.table),
            "datafusion tells a table only a part of the statement's conditions; call datafusion_doris::register on the \
             session, or make it by datafusion_doris::session_context",
        )
    }

    fn statement(&self, change: Change) -> Arc<dyn ExecutionPlan> {
        Arc::new(DorisStatementExec::new(self.client.clone(), change))
    }

    /// Refuses what has no meaning, before anything is sent.
    fn check_changeable(&self, what: &str) -> Result<()> {
        if self.doris.table.catalog.is_some() {
            let advice = "an external table can be read only, change a table of doris itself";
            return Err(Error::unsupported(what, advice));
        }
        if self.options.read.filter_query.is_some() {
            let advice = "'doris.filter.query' shows a part of its rows only, and others would be changed too: declare the \
                          table a second time without it";
            return Err(Error::unsupported(what, advice));
        }
        if self.is_changelog() {
            let advice = "this declares its changelog: declare the table without 'source.scan.mode' to change it";
            return Err(Error::unsupported(what, advice));
        }
        if self.options.sink.change_format.is_some() {
            let advice = "this declares a target of change events: declare it a second time without \
                          'sink.change-format' to change its rows";
            return Err(Error::unsupported(what, advice));
        }
        if self.options.connection.jdbc_url.is_none() {
            let reason = format!("is needed for {what}; give jdbc:mysql://host:9030");
            return Err(Error::config("jdbc-url", reason));
        }
        Ok(())
    }

    fn declared_otherwise(&self, expr: &Expr) -> Option<String> {
        let other = expr.column_refs().into_iter().find(|column| !self.bound.filters_alike(&column.name));
        other.map(|column| column.name.clone())
    }

    fn condition(&self, what: &str, condition: Option<&Expr>) -> Result<Condition> {
        let Some(condition) = condition else { return Ok(Condition::All) };
        let mut terms = Vec::new();
        for term in split_conjunction(condition) {
            match term {
                Expr::Literal(ScalarValue::Boolean(Some(true)), _) => continue,
                // NULL is not true.
                Expr::Literal(ScalarValue::Boolean(_), _) => return Ok(Condition::None),
                _ => {}
            }
            let term = in_lists(term.clone());
            match self.exact_condition(&term) {
                Some(sql) => terms.push(sql),
                None => {
                    let reason = match self.declared_otherwise(&term) {
                        Some(other) => format!("column '{other}' is not declared as it is in doris"),
                        None if has_subquery(&term) => "it holds a subquery".to_string(),
                        None => "it is none that is known to mean the same there".to_string(),
                    };
                    let advice = "compare columns with literals of their type (=, <, BETWEEN, IN, LIKE, IS NULL, AND, \
                                  OR, NOT); rows of a unique table can be deleted or replaced by any query with INSERT \
                                  INTO and 'sink.change-kind-column'";
                    return Err(Error::unsupported(
                        format!("{what}: the condition {} cannot be sent to doris", term.human_display()),
                        format!("{reason}; {advice}"),
                    ));
                }
            }
        }
        Ok(if terms.is_empty() { Condition::All } else { Condition::Sql(terms.join(" AND ")) })
    }
}

fn has_subquery(expr: &Expr) -> bool {
    let is_subquery = |expr: &Expr| {
        matches!(expr, Expr::ScalarSubquery(_) | Expr::InSubquery(_) | Expr::Exists(_) | Expr::SetComparison(_))
    };
    matches!(expr.exists(|expr| Ok(is_subquery(expr))), Ok(true))
}

/// `c = 1 OR c = 2` as `c IN (1, 2)`: DataFusion makes the first of a short list, Doris takes only the second as a
/// condition of DELETE from tables without a unique key.
fn in_lists(term: Expr) -> Expr {
    let mut values = Vec::new();
    let mut column = None;
    let mut pending = vec![&term];
    while let Some(next) = pending.pop() {
        match next {
            Expr::BinaryExpr(BinaryExpr { left, op: Operator::Or, right }) => pending.extend([&**right, &**left]),
            Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) => match (&**left, &**right) {
                (Expr::Column(found), value @ Expr::Literal(..)) if *column.get_or_insert(found) == found => {
                    values.push(value.clone());
                }
                _ => return term,
            },
            _ => return term,
        }
    }
    match (column, values.len()) {
        (Some(column), 2..) => Expr::InList(InList::new(Box::new(Expr::Column(column.clone())), values, false)),
        _ => term,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use datafusion::logical_expr::{col, lit};

    use super::*;

    #[test]
    fn alternatives_of_one_column_become_a_list() {
        let one_of = |values: &[i32]| values.iter().map(|value| col("a").eq(lit(*value))).reduce(Expr::or).unwrap();
        assert_eq!(in_lists(one_of(&[1, 2, 3])), col("a").in_list(vec![lit(1), lit(2), lit(3)], false));
        for other in
            [one_of(&[1]), one_of(&[1, 2]).or(col("b").eq(lit(1))), col("a").eq(lit(1)).or(col("a").gt(lit(2)))]
        {
            assert_eq!(in_lists(other.clone()), other);
        }
    }
}
