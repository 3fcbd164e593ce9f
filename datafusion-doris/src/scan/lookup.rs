//! Rows of a table by their keys.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use async_trait::async_trait;
use datafusion::common::ScalarValue;
use futures::TryStreamExt;

use super::read::Statement;
use super::{Conformer, ScanPlan, ScanSplit};
use crate::client::DorisClient;
use crate::error::{Error, Result};
use crate::lookup::RowSource;
use crate::sql::{key_literal, quote_ident};
use crate::types::DorisType;

/// Rows of a batch over the MySQL protocol.
const LOOKED_UP_ROWS: usize = 8192;

/// A scan of which only the rows of some keys are read, as the table is then.
#[derive(Debug)]
pub(super) struct DorisRows {
    pub client: DorisClient,
    pub plan: ScanPlan,
    pub schema: SchemaRef,
    pub types: Arc<[DorisType]>,
    /// Indexes of the key columns.
    pub keys: Vec<usize>,
}

impl DorisRows {
    /// The condition on the key columns: each key is a branch.
    fn condition(&self, keys: &RecordBatch) -> Result<String> {
        let table = self.plan.table.to_string();
        let mut branches = Vec::with_capacity(keys.num_rows());
        for row in 0..keys.num_rows() {
            let mut terms = Vec::with_capacity(self.keys.len());
            for (index, values) in self.keys.iter().zip(keys.columns()) {
                let (name, doris) = (&self.plan.columns[*index], &self.types[*index]);
                let value = ScalarValue::try_from_array(values, row)?;
                let literal = key_literal(doris, &value).ok_or_else(|| {
                    Error::schema(&table, format!("column '{name}' of type {doris} cannot be looked up by {value}"))
                })?;
                terms.push((quote_ident(name), literal));
            }
            branches.push(terms);
        }
        // One column: a list. Several: the pairs, not all combinations of their values.
        if let [_] = self.keys.as_slice() {
            let name = branches.first().and_then(|terms| terms.first()).map(|(name, _)| name.clone());
            let values: Vec<String> = branches.into_iter().flatten().map(|(_, literal)| literal).collect();
            return Ok(format!("({} IN ({}))", name.unwrap_or_default(), values.join(", ")));
        }
        let branches = branches.into_iter().map(|terms| {
            let terms: Vec<String> = terms.into_iter().map(|(name, literal)| format!("{name} = {literal}")).collect();
            format!("({})", terms.join(" AND "))
        });
        Ok(format!("({})", branches.collect::<Vec<_>>().join(" OR ")))
    }

    fn limited_to(&self, condition: String) -> ScanPlan {
        let mut plan = self.plan.clone();
        plan.filter = Some(match plan.filter {
            Some(filter) => format!("{filter} AND {condition}"),
            None => condition,
        });
        plan
    }
}

#[async_trait]
impl RowSource for DorisRows {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    async fn rows(&self, keys: &RecordBatch) -> Result<Vec<RecordBatch>> {
        let plan = self.limited_to(self.condition(keys)?);
        let table = plan.table.to_string();
        let statement = Statement {
            client: self.client.clone(),
            table: table.clone(),
            sql: plan.sql(&ScanSplit::default()),
            settings: plan.settings.clone(),
            types: Arc::clone(&self.types),
            batch_rows: LOOKED_UP_ROWS,
        };
        let mut conformer = Conformer::new(table, Arc::clone(&self.schema), Arc::clone(&self.types));
        let batches = statement.run().await?;
        batches.and_then(move |batch| std::future::ready(conformer.conform(&batch))).try_collect().await
    }

    fn text(&self) -> String {
        let names: Vec<&str> = self.keys.iter().map(|index| self.plan.columns[*index].as_str()).collect();
        let plan = self.limited_to(format!("<keys of {}>", names.join(", ")));
        plan.display_sql(&ScanSplit::default())
    }
}
