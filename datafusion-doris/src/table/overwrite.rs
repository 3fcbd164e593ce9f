//! INSERT OVERWRITE of a table.

use std::sync::Arc;

use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};

use super::DorisTable;
use super::defaults::marked;
use crate::error::{Error, Result};
use crate::sink::{DorisOverwriteExec, Overwrite};

impl DorisTable {
    /// Replaces all rows, or those of the partitions in `sink.properties.partitions`, by `input`.
    pub(super) fn overwrite_plan(&self, input: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
        self.check_takes_rows("INSERT OVERWRITE of")?;
        let what = format!("INSERT OVERWRITE of {}", self.doris.table);
        if self.options.sink.change_format.is_some() {
            let advice = "events change rows instead of replacing all: declare the table a second time without \
                          'sink.change-format', or use INSERT INTO";
            return Err(Error::unsupported(what, advice));
        }
        if input.boundedness().is_unbounded() {
            let advice = "its input has no end, so the old rows would never be replaced; use INSERT INTO";
            return Err(Error::unsupported(what, advice));
        }
        self.check_rows(&input)?;
        let (client, target) = (self.client.clone(), Arc::clone(&self.doris));
        let schema = marked(self.bound.schema(), &input.schema());
        let overwrite = Overwrite::try_new(client, target, schema, self.options.sink.clone())?;
        Ok(Arc::new(DorisOverwriteExec::new(input, Arc::new(overwrite))))
    }
}
