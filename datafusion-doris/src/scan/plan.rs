//! What a scan sends to Doris: pure, and independent of live connections.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::groups::group_tablets;
use super::text;
use crate::client::{DorisClient, TableFacts};
use crate::error::{Error, Result};
use crate::options::ReadOptions;
use crate::protocol::Tso;
use crate::sql::{ScanQuery, ScanSelect, without_secrets};
use crate::types::{DorisType, TableIdent};

/// One statement of a scan, read by one partition.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ScanSplit {
    /// Tablets read; empty = the whole table.
    pub tablets: Vec<i64>,
}

/// The protocol that rows come by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Transport {
    /// Arrow Flight SQL.
    #[default]
    Flight,
    /// The MySQL protocol, whose texts become the same Arrow types.
    Mysql,
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Transport::Flight => "flight",
            Transport::Mysql => "mysql",
        })
    }
}

/// How the statements of a scan are run.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ReadSettings {
    /// The protocol.
    pub transport: Transport,
    /// Most rows of a batch; `None`: as they come.
    pub batch_rows: Option<usize>,
    /// Bytes that a statement may take in Doris; `None`: as the server has it.
    pub exec_mem_limit: Option<usize>,
}

/// A scan as statements.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScanPlan {
    /// The table; of a query over several, the first of them.
    pub table: TableIdent,
    /// Read in the place of the table: what a query was pushed down to, or the statement of `doris_query`.
    #[serde(default)]
    pub query: Option<ScanQuery>,
    /// Columns in output order; empty = only the number of rows.
    pub columns: Vec<String>,
    /// Condition in Doris SQL.
    pub filter: Option<String>,
    /// Most rows that each split need give.
    pub limit: Option<usize>,
    /// The table as it was after the last commit up to this TSO; `None`: as it is now.
    #[serde(default)]
    pub as_of: Option<Tso>,
    /// How they are run.
    #[serde(default)]
    pub settings: ReadSettings,
    /// One per partition; none when nothing can match.
    pub splits: Vec<ScanSplit>,
}

impl ScanPlan {
    /// The statement of a split.
    pub fn sql(&self, split: &ScanSplit) -> String {
        self.select(split, |select| select.to_sql())
    }

    /// The statement of a split as EXPLAIN shows it, without secrets.
    pub fn display_sql(&self, split: &ScanSplit) -> String {
        let sql = self.select(split, |select| select.body());
        if self.query.is_some() { without_secrets(&sql) } else { sql }
    }

    /// True when only the number of rows is asked for.
    pub fn counts_only(&self) -> bool {
        self.columns.is_empty()
    }

    fn select(&self, split: &ScanSplit, print: fn(&ScanSelect<'_>) -> String) -> String {
        let columns: Vec<&str> = self.columns.iter().map(String::as_str).collect();
        print(&ScanSelect {
            table: &self.table,
            query: self.query.as_ref(),
            columns: &columns,
            tablets: &split.tablets,
            filter: self.filter.as_deref(),
            limit: self.limit,
            as_of: self.as_of.map(|tso| tso.0),
        })
    }
}

/// Asks Doris which tablets `plan` has to read, and cuts it into at most `partitions` splits of about equal size.
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
            let ids: Vec<i64> = tablets.into_iter().map(|tablet| tablet.id).collect();
            let partitions = partitions.min(client.options().max_connections);
            let sizes = match partitions > 1 && ids.len() > partitions {
                true => client.tablet_sizes(&plan.table).await,
                false => Arc::default(),
            };
            group_tablets(ids, partitions, tablets_per_split, &sizes)
        }
        Err(error @ (Error::Server { .. } | Error::Unsupported { .. })) => {
            tracing::debug!(table = %plan.table, %error, "no tablets to split by, reading with one statement");
            vec![ScanSplit::default()]
        }
        Err(error) => return Err(error),
    };
    Ok(plan)
}

/// [`plan_scan`] of the snapshot of a table, by the protocol that its options and the server leave.
///
/// # Errors
/// As [`plan_scan`]; [`Error::Unsupported`] for columns of `types` that the MySQL protocol cannot tell exactly.
pub(crate) async fn plan_snapshot(
    client: &DorisClient,
    mut plan: ScanPlan,
    options: &ReadOptions,
    types: &[DorisType],
    partitions: usize,
) -> Result<(ScanPlan, TableFacts)> {
    let facts = client.table_facts(&plan.table);
    let (transport, facts) = futures::future::join(transport(client, &plan, types), facts).await;
    plan.settings =
        ReadSettings { transport: transport?, batch_rows: options.batch_rows, exec_mem_limit: options.exec_mem_limit };
    let plan = plan_scan(client, plan, partitions, options.tablets_per_split).await?;
    Ok((plan, facts))
}

/// `plan`, whose statement stands, by the protocol that options and server leave.
///
/// # Errors
/// As [`plan_snapshot`].
pub(crate) async fn plan_query(client: &DorisClient, mut plan: ScanPlan, types: &[DorisType]) -> Result<ScanPlan> {
    plan.settings.transport = transport(client, &plan, types).await?;
    Ok(plan)
}

async fn transport(client: &DorisClient, plan: &ScanPlan, types: &[DorisType]) -> Result<Transport> {
    let flight = client.options().use_flight && client.serves_flight().await?;
    let transport = if flight { Transport::Flight } else { Transport::Mysql };
    if transport == Transport::Mysql {
        let columns = plan.columns.iter().zip(types);
        for (column, doris) in columns {
            text::check_readable(doris).map_err(|reason| {
                let what = format!("reading column '{column}' of {} over the mysql protocol", plan.table);
                Error::unsupported(what, reason)
            })?;
        }
    }
    Ok(transport)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    fn plan() -> ScanPlan {
        ScanPlan {
            table: TableIdent::new("db", "t"),
            query: None,
            columns: vec!["id".to_string(), "na`me".to_string()],
            filter: Some("`id` > 3".into()),
            limit: Some(7),
            as_of: None,
            settings: ReadSettings::default(),
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
    fn debug_hides_secrets_of_the_query() {
        let sql = r#"SELECT * FROM S3("uri"="s3://b/k","s3.secret_key"="hunter2")"#.to_string();
        let plan = ScanPlan { query: Some(ScanQuery { sql, columns: vec![] }), ..plan() };
        assert!(!format!("{plan:?}").contains("hunter2"), "{plan:?}");
    }

    #[test]
    fn query_stands_alone_or_as_a_table() {
        let columns = vec!["id".to_string(), "na`me".to_string()];
        let query = ScanQuery { sql: "SELECT 1".into(), columns };
        let wrapped = ScanPlan { query: Some(query), ..plan() };
        let sql = wrapped.display_sql(&ScanSplit::default());
        assert_eq!(sql, "SELECT `id`, `na``me` FROM (SELECT 1) AS `q` WHERE `id` > 3 LIMIT 7");
        let alone = ScanPlan { filter: None, limit: None, ..wrapped };
        assert_eq!(alone.display_sql(&ScanSplit::default()), "SELECT 1");
    }
}
