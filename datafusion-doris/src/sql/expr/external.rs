//! Filters on tables of other systems, which Doris reads through an external catalog.
//!
//! Doris hands conditions on, and such a system may compare texts by a collation of its own: MySQL's usual one sees no
//! difference between `a`, `A` and `a `. An equality holds there for at least the rows for which it holds here, so it is sent and
//! DataFusion filters again. Of everything else on texts (`<>`, `<`, LIKE, NOT …) nothing is known, and it stays.

use datafusion::logical_expr::{BinaryExpr, Expr, Operator};

use super::typed::{is_text, literal_of};
use super::{Columns, PushedFilter, condition_sql, pushed_filter, superset_of};

/// [`pushed_filter`] over the columns of a table of another system.
pub(crate) fn pushed_external_filter(expr: &Expr, columns: &dyn Columns) -> Option<PushedFilter> {
    if !names_text(expr, columns) {
        return pushed_filter(expr, columns);
    }
    let known = |term: &Expr| match !names_text(term, columns) || is_equality(term) {
        true => condition_sql(term, columns),
        false => None,
    };
    known(expr).or_else(|| superset_of(expr, &known, 0)).map(PushedFilter::Superset)
}

fn names_text(expr: &Expr, columns: &dyn Columns) -> bool {
    let mut found = expr.column_refs().into_iter().filter_map(|column| columns.column(column));
    found.any(|column| is_text(&column.doris_type))
}

/// A column that equals a literal, or one of several.
fn is_equality(expr: &Expr) -> bool {
    match expr {
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) => matches!(
            (left.as_ref(), right.as_ref()),
            (Expr::Column(_), value) | (value, Expr::Column(_)) if literal_of(value).is_some()
        ),
        Expr::InList(list) => !list.negated && matches!(list.expr.as_ref(), Expr::Column(_)),
        _ => false,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use datafusion::logical_expr::{col, lit};

    use super::*;
    use crate::types::{ColumnSchema, DorisType, TableIdent, TableSchema};

    #[test]
    fn of_texts_only_equalities_are_sent_and_never_alone() {
        let table = TableSchema {
            table: TableIdent::new("db", "t"),
            model: None,
            columns: vec![
                ColumnSchema::new("id", DorisType::Int),
                ColumnSchema::new("s", DorisType::Varchar(20)),
                ColumnSchema::new("c", DorisType::Char(5)),
            ],
            properties: Default::default(),
        };
        let sent = |expr: Expr| pushed_external_filter(&expr, &table);
        let superset = |sql: &str| Some(PushedFilter::Superset(sql.into()));
        assert_eq!(sent(col("id").gt(lit(1i32))), Some(PushedFilter::Exact("(`id` > 1)".into())));
        assert_eq!(sent(col("s").eq(lit("a"))), superset("(`s` = 'a')"));
        assert_eq!(sent(lit("a").eq(col("c"))), superset("(`c` = 'a')"));
        assert_eq!(sent(col("s").in_list(vec![lit("a"), lit("b")], false)), superset("(`s` IN ('a', 'b'))"));
        let both = col("s").eq(lit("a")).and(col("s").not_eq(lit("b"))).and(col("id").lt(lit(5i32)));
        assert_eq!(sent(both), superset("((`s` = 'a') AND (`id` < 5))"));
        let either = col("s").eq(lit("a")).or(col("id").eq(lit(2i32)));
        assert_eq!(sent(either), superset("((`s` = 'a') OR (`id` = 2))"));
        for kept in [
            col("s").not_eq(lit("a")),
            col("s").lt(lit("a")),
            col("s").like(lit("a%")),
            col("s").eq(col("c")),
            col("s").in_list(vec![lit("a")], true),
            Expr::Not(Box::new(col("s").eq(lit("a")))),
            col("s").eq(lit("a")).or(col("s").gt(lit("b"))),
            col("s").eq(lit("a")).is_not_true(),
        ] {
            assert_eq!(sent(kept.clone()), None, "{kept}");
        }
    }
}
