//! `DELETE`, `UPDATE` and `TRUNCATE`: one statement, run by Doris.

use std::fmt;
use std::sync::Arc;

use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::TaskContext;
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{
    Boundedness, ChildrenPropertiesMode, EmissionType, ReplaceChildrenOptions,
};
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties, SendableRecordBatchStream,
};

use crate::client::DorisClient;
use crate::count::{count_schema, counted};
use crate::sql::Change;

/// Sends one statement to Doris when it is polled, and gives one row, `count: UInt64`, not null: the rows that Doris
/// counted. It counts those of an UPDATE and of a DELETE from a unique table; a DELETE from other tables marks rows
/// without counting them and gives 0, as TRUNCATE does.
///
/// # Delivery
/// Doris does the statement whole or not at all. It is sent once; when its answer is lost, the error says what to look at.
///
/// # Cancellation
/// Dropping the stream ends the statement in Doris by `KILL QUERY`; it may have been done by then.
#[derive(Debug)]
pub struct DorisStatementExec {
    client: DorisClient,
    change: Change,
    properties: Arc<PlanProperties>,
}

impl DorisStatementExec {
    /// A plan that sends `change`.
    pub fn new(client: DorisClient, change: Change) -> Self {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(count_schema()),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Final,
            Boundedness::Bounded,
        );
        Self { client, change, properties: Arc::new(properties) }
    }
}

impl DisplayAs for DorisStatementExec {
    fn fmt_as(&self, display: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let statement = self.change.sql.as_deref().unwrap_or("nothing to do: no row matches");
        match display {
            DisplayFormatType::TreeRender => writeln!(f, "{statement}"),
            _ => write!(f, "DorisStatementExec: {statement}"),
        }
    }
}

impl ExecutionPlan for DorisStatementExec {
    fn name(&self) -> &str {
        "DorisStatementExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![]
    }

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if children.is_empty() {
            return Ok(self);
        }
        Err(DataFusionError::Internal("DorisStatementExec has no children".into()))
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        self.replace_children(children, ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute))
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn execute(&self, partition: usize, _: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        if partition != 0 {
            return Err(DataFusionError::Internal(format!("DorisStatementExec has one partition, not {partition}")));
        }
        let (client, change) = (self.client.clone(), self.change.clone());
        Ok(counted(async move { Ok(client.change(&change).await?.affected) }))
    }
}
