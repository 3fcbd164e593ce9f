//! A database of Doris as a schema of DataFusion.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::{SchemaProvider, TableProvider};
use datafusion::common::Result as DfResult;
use datafusion::datasource::TableType;

use super::{DorisCatalog, ddl};
use crate::error::Error;

/// One database of a [`DorisCatalog`].
#[derive(Debug)]
pub struct DorisSchema {
    catalog: DorisCatalog,
    database: String,
}

impl DorisSchema {
    pub(super) fn new(catalog: DorisCatalog, database: &str) -> Self {
        Self { catalog, database: database.to_string() }
    }
}

#[async_trait]
impl SchemaProvider for DorisSchema {
    fn table_names(&self) -> Vec<String> {
        self.catalog.table_names(&self.database)
    }

    async fn table(&self, name: &str) -> DfResult<Option<Arc<dyn TableProvider>>> {
        let table = self.catalog.table(&self.database, name).await?;
        Ok(table.map(|table| table as Arc<dyn TableProvider>))
    }

    async fn table_type(&self, name: &str) -> DfResult<Option<TableType>> {
        match self.catalog.is_view(&self.database, name) {
            Some(true) => Ok(Some(TableType::View)),
            Some(false) => Ok(Some(TableType::Base)),
            None => Ok(self.catalog.table(&self.database, name).await?.map(|table| table.table_type())),
        }
    }

    fn register_table(&self, name: String, _table: Arc<dyn TableProvider>) -> DfResult<Option<Arc<dyn TableProvider>>> {
        let what = format!("making table or view {}.{name} in a doris catalog", self.database);
        Err(Error::unsupported(what, ddl::USE_SQL).into())
    }

    fn deregister_table(&self, name: &str) -> DfResult<Option<Arc<dyn TableProvider>>> {
        let what = format!("dropping table {}.{name} of a doris catalog", self.database);
        Err(Error::unsupported(what, ddl::USE_SQL).into())
    }

    fn table_exist(&self, name: &str) -> bool {
        self.catalog.is_view(&self.database, name).is_some()
    }
}
