//! What a scan sends to Doris: pure, and independent of live connections.

use serde::{Deserialize, Serialize};

use crate::client::DorisClient;
use crate::error::{Error, Result};
use crate::protocol::Tso;
use crate::sql::ScanSelect;
use crate::types::TableIdent;

/// One statement of a scan, read by one partition.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ScanSplit {
    /// Tablets read; empty = the whole table.
    pub tablets: Vec<i64>,
}

/// A scan as statements.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScanPlan {
    /// The table.
    pub table: TableIdent,
    /// Columns in output order; empty = only the number of rows.
    pub columns: Vec<String>,
    /// Condition in Doris SQL.
    pub filter: Option<String>,
    /// Most rows that each split need give.
    pub limit: Option<usize>,
    /// The table as it was after the last commit up to this TSO; `None`: as it is now.
    #[serde(default)]
    pub as_of: Option<Tso>,
    /// One per partition; none when nothing can match.
    pub splits: Vec<ScanSplit>,
}

impl ScanPlan {
    /// The statement of a split.
    pub fn sql(&self, split: &ScanSplit) -> String {
        self.select(split, |select| select.to_sql())
    }

    /// The statement of a split as EXPLAIN shows it.
    pub fn display_sql(&self, split: &ScanSplit) -> String {
        self.select(split, |select| select.body())
    }

    /// True when only the number of rows is asked for.
    pub fn counts_only(&self) -> bool {
        self.columns.is_empty()
    }

    fn select(&self, split: &ScanSplit, print: fn(&ScanSelect<'_>) -> String) -> String {
        let columns: Vec<&str> = self.columns.iter().map(String::as_str).collect();
        print(&ScanSelect {
            table: &self.table,
            columns: &columns,
            tablets: &split.tablets,
            filter: self.filter.as_deref(),
            limit: self.limit,
            as_of: self.as_of.map(|tso| tso.0),
        })
    }
}

/// Groups tablets into at most `partitions` splits of about equal size; fewer when a split would get less than
/// `tablets_per_split` tablets. Neighbouring ids stay together, and the same tablets always give the same splits.
fn group_tablets(mut tablets: Vec<i64>, partitions: usize, tablets_per_split: usize) -> Vec<ScanSplit> {
    tablets.sort_unstable();
    tablets.dedup();
    let groups = tablets.len().div_ceil(tablets_per_split.max(1)).min(partitions.max(1));
    let mut splits = Vec::with_capacity(groups);
    let mut rest = tablets.as_slice();
    for remaining in (1..=groups).rev() {
        let (group, others) = rest.split_at(rest.len().div_ceil(remaining));
        splits.push(ScanSplit { tablets: group.to_vec() });
        rest = others;
    }
    splits
}

/// Asks Doris which tablets `plan` has to read, and cuts it into at most `partitions` splits.
///
/// Views and external tables have no tablets: when the server refuses to plan, the table is read by one statement.
///
/// # Errors
/// [`Error::Auth`], [`Error::Transport`] when no FE could be asked.
pub(crate) async fn plan_scan(
    client: &DorisClient,
    mut plan: ScanPlan,
    partitions: usize,
    tablets_per_split: usize,
) -> Result<ScanPlan> {
    plan.splits = match client.tablets(&plan.table, plan.filter.as_deref()).await {
        Ok(tablets) => {
            let ids = tablets.into_iter().map(|tablet| tablet.id).collect();
            group_tablets(ids, partitions, tablets_per_split)
        }
        Err(error @ (Error::Server { .. } | Error::Unsupported { .. })) => {
            tracing::debug!(table = %plan.table, %error, "no tablets to split by, reading with one statement");
            vec![ScanSplit::default()]
        }
        Err(error) => return Err(error),
    };
    Ok(plan)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn plan() -> ScanPlan {
        ScanPlan {
            table: TableIdent::new("db", "t"),
            columns: vec!["id".to_string(), "na`me".to_string()],
            filter: Some("`id` > 3".into()),
            limit: Some(7),
            as_of: None,
            splits: vec![],
        }
    }

    #[test]
    fn statement_names_columns_tablets_filter_and_limit() {
        let sql = plan().display_sql(&ScanSplit { tablets: vec![10, 11] });
        assert_eq!(sql, "SELECT `id`, `na``me` FROM `db`.`t` TABLET(10,11) WHERE `id` > 3 LIMIT 7");
        assert!(plan().sql(&ScanSplit::default()).ends_with("FROM `db`.`t` WHERE `id` > 3 LIMIT 7"));
    }

    #[test]
    fn past_version_stands_between_table_and_tablets() {
        let plan = ScanPlan { as_of: Some(Tso(99)), ..plan() };
        let sql = plan.display_sql(&ScanSplit { tablets: vec![10] });
        assert!(sql.contains("FROM `db`.`t` FOR VERSION AS OF 99 TABLET(10) WHERE"), "{sql}");
    }

    #[test]
    fn empty_column_list_counts_rows_without_limit() {
        let plan = ScanPlan { columns: vec![], ..plan() };
        assert!(plan.counts_only());
        let sql = plan.display_sql(&ScanSplit::default());
        assert_eq!(sql, "SELECT COUNT(*) AS `row_count` FROM `db`.`t` WHERE `id` > 3");
    }

    #[test]
    fn no_tablets_give_no_splits() {
        assert!(group_tablets(vec![], 4, 1).is_empty());
    }

    #[test]
    fn splits_are_stable_and_respect_their_least_size() {
        let split = |ids: &[i64]| ScanSplit { tablets: ids.to_vec() };
        let expected = [split(&[1, 2, 3]), split(&[4, 5])];
        assert_eq!(group_tablets(vec![5, 1, 4, 2, 3], 2, 1), expected);
        assert_eq!(group_tablets(vec![3, 5, 4, 1, 2, 2], 8, 3), expected);
    }

    proptest! {
        #[test]
        fn each_tablet_is_in_exactly_one_split_of_about_equal_size(
            ids in prop::collection::hash_set(0i64..10_000, 1..200),
            partitions in 1usize..32,
        ) {
            let splits = group_tablets(ids.iter().copied().collect(), partitions, 1);
            prop_assert_eq!(splits.len(), partitions.min(ids.len()));
            let mut read: Vec<i64> = splits.iter().flat_map(|split| split.tablets.clone()).collect();
            let sizes: Vec<usize> = splits.iter().map(|split| split.tablets.len()).collect();
            prop_assert!(sizes.iter().max().unwrap() - sizes.iter().min().unwrap() <= 1);
            read.sort_unstable();
            let mut all: Vec<i64> = ids.into_iter().collect();
            all.sort_unstable();
            prop_assert_eq!(read, all);
        }
    }
}
