//! Rows of a table by their keys.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use async_trait::async_trait;
use datafusion::common::ScalarValue;
use datafusion::execution::memory_pool::MemoryReservation;
use futures::StreamExt;
use futures::stream::BoxStream;

use super::read::Statement;
use super::{Conformer, ScanPlan, ScanSplit};
use crate::client::{DorisClient, ReadMemory};
use crate::error::Result;
use crate::lookup::RowSource;
use crate::sql::{KeyRows, key_rows, quote_ident};
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
    /// The condition on the key columns; `None` when no row can have any of the keys.
    fn condition(&self, keys: &RecordBatch) -> Result<Option<String>> {
        let names: Vec<String> = self.keys.iter().map(|index| quote_ident(&self.plan.columns[*index])).collect();
        // One column: a list. Several: the pairs, not all combinations of their values. Of keys that are asked for by the
        // same range it stands there once.
        let (mut listed, mut branches) = (Vec::new(), BTreeSet::new());
        'keys: for row in 0..keys.num_rows() {
            let mut terms = Vec::with_capacity(names.len());
            for ((index, name), values) in self.keys.iter().zip(&names).zip(keys.columns()) {
                let value = ScalarValue::try_from_array(values, row)?;
                match key_rows(name, &self.types[*index], &value) {
                    KeyRows::None => continue 'keys,
                    KeyRows::Equal(literal) if names.len() == 1 => listed.push(literal),
                    KeyRows::Equal(literal) => terms.push(format!("{name} = {literal}")),
                    KeyRows::Among(condition) => terms.push(condition),
                }
            }
            if !terms.is_empty() {
                branches.insert(format!("({})", terms.join(" AND ")));
            }
        }
        let list = names.first().filter(|_| !listed.is_empty());
        let list = list.map(|name| format!("({name} IN ({}))", listed.join(", ")));
        let branches: Vec<String> = list.into_iter().chain(branches).collect();
        Ok(match branches.as_slice() {
            [] => None,
            [one] => Some(one.clone()),
            several => Some(format!("({})", several.join(" OR "))),
        })
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

    async fn rows(
        &self,
        keys: &RecordBatch,
        memory: &MemoryReservation,
    ) -> Result<BoxStream<'static, Result<RecordBatch>>> {
        let Some(condition) = self.condition(keys)? else { return Ok(futures::stream::empty().boxed()) };
        let plan = self.limited_to(condition);
        let table = plan.table.to_string();
        let statement = Statement {
            client: self.client.clone(),
            table: table.clone(),
            sql: plan.sql(&ScanSplit::default()),
            settings: plan.settings.clone(),
            types: Arc::clone(&self.types),
            batch_rows: LOOKED_UP_ROWS,
            memory: ReadMemory::beside(memory),
        };
        let mut conformer = Conformer::new(table, Arc::clone(&self.schema), Arc::clone(&self.types));
        let batches = statement.run().await?;
        Ok(batches.map(move |batch| conformer.conform(&batch?)).boxed())
    }

    fn text(&self) -> String {
        let names: Vec<&str> = self.keys.iter().map(|index| self.plan.columns[*index].as_str()).collect();
        let plan = self.limited_to(format!("<keys of {}>", names.join(", ")));
        plan.display_sql(&ScanSplit::default())
    }
}
