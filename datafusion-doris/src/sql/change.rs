//! DELETE, UPDATE and TRUNCATE as whole statements of Doris.

use super::{AssignedValue, STATEMENT_PREFIX, quote_ident, quote_table};
use crate::types::TableIdent;

/// One statement that changes rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// What it is, for errors: `DELETE FROM db.t`.
    pub what: String,
    /// The statement, without the comment before it; `None` when there is nothing to do.
    pub sql: Option<String>,
    /// Counts the rows for which it must not run: those whose new value does not fit.
    pub overflow_sql: Option<String>,
    /// What to do when its answer is lost.
    pub after_lost_answer: &'static str,
}

impl Change {
    /// The statement as it is sent.
    pub fn to_sql(&self) -> Option<String> {
        self.sql.as_ref().map(|sql| format!("{STATEMENT_PREFIX}{sql}"))
    }
}

/// `DELETE FROM table WHERE condition`; no condition = no row matches.
pub fn delete_sql(table: &TableIdent, condition: Option<&str>) -> Change {
    Change {
        what: format!("DELETE FROM {table}"),
        sql: condition.map(|condition| format!("DELETE FROM {} WHERE {condition}", quote_table(table))),
        overflow_sql: None,
        after_lost_answer: "count the rows that match its condition: none are left when it was executed, and it may be \
                            sent again",
    }
}

/// `UPDATE table SET … [WHERE condition]`.
pub fn update_sql(table: &TableIdent, assignments: &[(String, AssignedValue)], condition: Option<&str>) -> Change {
    let set: Vec<String> =
        assignments.iter().map(|(column, value)| format!("{} = {}", quote_ident(column), value.sql)).collect();
    let filter = condition.map(|condition| format!(" WHERE {condition}")).unwrap_or_default();
    let overflows: Vec<&str> = assignments.iter().filter_map(|(_, value)| value.overflow.as_deref()).collect();
    let overflow_sql = (!overflows.is_empty()).then(|| {
        let both = condition.map(|condition| format!("({condition}) AND ")).unwrap_or_default();
        let table = quote_table(table);
        format!("{STATEMENT_PREFIX}SELECT COUNT(*) FROM {table} WHERE {both}({})", overflows.join(" OR "))
    });
    Change {
        what: format!("UPDATE {table}"),
        sql: Some(format!("UPDATE {} SET {}{filter}", quote_table(table), set.join(", "))),
        overflow_sql,
        after_lost_answer: "look at the rows of its condition before it is sent again: the rows change together or not \
                            at all",
    }
}

/// `TRUNCATE TABLE table`.
pub fn truncate_sql(table: &TableIdent) -> Change {
    Change {
        what: format!("TRUNCATE TABLE {table}"),
        sql: Some(format!("TRUNCATE TABLE {}", quote_table(table))),
        overflow_sql: None,
        after_lost_answer: "look whether the table is empty before it is sent again",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_are_printed_whole() {
        let table = TableIdent::new("d", "t`x");
        let value = |sql: &str, overflow: Option<&str>| AssignedValue {
            sql: sql.to_string(),
            overflow: overflow.map(str::to_string),
        };
        assert_eq!(
            delete_sql(&table, Some("(`a` = 1)")).sql.as_deref(),
            Some("DELETE FROM `d`.`t``x` WHERE (`a` = 1)")
        );
        assert_eq!(delete_sql(&table, None).to_sql(), None);
        let assignments = [("v".to_string(), value("1", None)), ("w".to_string(), value("`v`", Some("(o)")))];
        let update = update_sql(&table, &assignments, Some("(`a` = 1)"));
        assert_eq!(update.sql.as_deref(), Some("UPDATE `d`.`t``x` SET `v` = 1, `w` = `v` WHERE (`a` = 1)"));
        let overflow = "SELECT COUNT(*) FROM `d`.`t``x` WHERE ((`a` = 1)) AND ((o))";
        assert!(update.overflow_sql.is_some_and(|sql| sql.ends_with(overflow)));
        assert_eq!(update_sql(&table, &assignments[..1], None).overflow_sql, None);
        assert_eq!(truncate_sql(&table).sql.as_deref(), Some("TRUNCATE TABLE `d`.`t``x`"));
    }
}
