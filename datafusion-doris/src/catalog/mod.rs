//! A Doris cluster as a catalog of DataFusion: `SELECT … FROM doris.db.table` without any DDL.
//!
//! ```text
//! DorisCatalog ── schema(db) ──▶ DorisSchema ── table(name) ──▶ DorisTable
//!      │ lists of names: read when it is made, by `refresh`, and when they are older than `catalog.ttl`
//!      └ tables: columns read when a statement names the table, kept for `catalog.ttl`
//! ```
//!
//! DataFusion asks for lists of names without waiting, so these come from the last reading; a table is resolved with
//! waiting, so one that is not in the lists yet is found as well. [`crate::sql()`] reads old lists anew before a statement
//! that shows them, and in a context with Doris registered `information_schema.columns` takes one statement per database.

pub(crate) mod ddl;
mod listing;
mod schema;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;

use datafusion::catalog::{CatalogProvider, SchemaProvider};
use datafusion::common::Result as DfResult;
use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::{Mutex, RwLock};
use tokio::time::Instant;

pub(crate) use self::listing::ListDatabases;
use self::listing::Schemas;
pub use self::schema::DorisSchema;
use crate::client::{DorisClient, TableName};
use crate::error::{Error, Result};
use crate::options::CatalogOptions;
use crate::table::DorisTable;
use crate::types::TableIdent;

/// Tables kept at most; with more, all are read anew.
const KEPT_TABLES: usize = 4096;

/// All databases of a Doris cluster, or of one of its external catalogs. Clones share what is known.
///
/// A table of it is a [`DorisTable`] with the options of the catalog: it is read, written and pushed down to as a declared
/// one. Give `source.*` and `sink.*` options to the catalog to change how its tables are read and written; a second catalog
/// with `source.scan.mode` = `latest` shows the changes of all tables, for example.
///
/// ```no_run
/// # async fn example() -> datafusion::error::Result<()> {
/// use std::sync::Arc;
/// use datafusion_doris::catalog::DorisCatalog;
/// use datafusion_doris::options::{CatalogOptions, ConnectionOptions, Secret};
///
/// let context = datafusion_doris::session_context();
/// let connection = ConnectionOptions::new("fe:8030", "root", Secret::new(""));
/// let catalog = DorisCatalog::connect(CatalogOptions::new(connection)).await?;
/// context.register_catalog("doris", Arc::new(catalog));
/// context.sql("SELECT count(*) FROM doris.school.students").await?.show().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct DorisCatalog {
    inner: Arc<Inner>,
}

struct Inner {
    client: DorisClient,
    options: CatalogOptions,
    names: RwLock<Names>,
    tables: Mutex<Tables>,
    /// Columns of all tables, by database.
    listed: Mutex<HashMap<String, (Instant, Arc<Schemas>)>>,
}

/// The lists of names, as they were read.
#[derive(Debug, Default)]
struct Names {
    read: Option<Instant>,
    /// Tables by database; true for views.
    databases: BTreeMap<String, BTreeMap<String, bool>>,
}

/// Tables by name, with the time of reading.
#[derive(Debug, Default)]
struct Tables {
    /// Grows when tables are forgotten: what was read before must not be kept after.
    generation: u64,
    kept: HashMap<TableIdent, (Instant, Arc<DorisTable>)>,
}

impl fmt::Debug for DorisCatalog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { client, options, .. } = self.inner.as_ref();
        f.debug_struct("DorisCatalog")
            .field("client", client)
            .field("catalog", &options.catalog)
            .finish_non_exhaustive()
    }
}

impl DorisCatalog {
    /// Connects to the cluster of `options` and reads the lists of names.
    ///
    /// # Errors
    /// [`Error::Config`], [`Error::Auth`], [`Error::Transport`]; [`Error::Server`] for an unknown `catalog.name`.
    pub async fn connect(options: CatalogOptions) -> Result<Self> {
        let client = DorisClient::try_new(Arc::new(options.connection.clone()))?;
        let catalog = Self {
            inner: Arc::new(Inner {
                client,
                options,
                names: RwLock::default(),
                tables: Mutex::default(),
                listed: Mutex::default(),
            }),
        };
        catalog.refresh().await?;
        Ok(catalog)
    }

    /// The options of the catalog.
    pub fn options(&self) -> &CatalogOptions {
        &self.inner.options
    }

    /// The client that all its tables share.
    pub fn client(&self) -> &DorisClient {
        &self.inner.client
    }

    /// Reads the lists of names anew, and the columns of each table when it is named next.
    ///
    /// # Errors
    /// [`Error::Auth`], [`Error::Server`], [`Error::Transport`]; what was known stays then.
    pub fn refresh(&self) -> BoxFuture<'_, Result<()>> {
        async move {
            let catalog = self.inner.options.catalog.as_deref();
            let databases = self.inner.client.database_names(catalog).await?;
            let mut databases: BTreeMap<String, BTreeMap<String, bool>> =
                databases.into_iter().map(|name| (name, BTreeMap::new())).collect();
            for TableName { database, table, view } in self.inner.client.table_names(catalog).await? {
                databases.entry(database).or_default().insert(table, view);
            }
            *self.inner.names.write() = Names { read: Some(Instant::now()), databases };
            self.forget_tables();
            Ok(())
        }
        .boxed()
    }

    /// [`Self::refresh`], when the lists are older than `catalog.ttl`.
    pub(crate) async fn refresh_when_old(&self) -> Result<()> {
        let read = self.inner.names.read().read;
        if read.is_some_and(|read| read.elapsed() < self.inner.options.time_to_live) {
            return Ok(());
        }
        self.refresh().await
    }

    /// Reads the columns of every table anew when it is named next.
    fn forget_tables(&self) {
        let mut tables = self.inner.tables.lock();
        tables.generation += 1;
        tables.kept.clear();
        drop(tables);
        self.inner.listed.lock().clear();
    }

    /// The table `table` of `database`; `None` when there is none.
    ///
    /// # Errors
    /// [`Error::Schema`] when there is one that cannot be read, or only one with another case; [`Error::Config`] when the
    /// catalog's options do not fit the table; [`Error::Auth`], [`Error::Transport`].
    pub fn table<'a>(&'a self, database: &'a str, table: &'a str) -> BoxFuture<'a, Result<Option<Arc<DorisTable>>>> {
        async move {
            let ident = self.inner.options.table(database, table);
            let generation = {
                let tables = self.inner.tables.lock();
                match tables.kept.get(&ident) {
                    Some((read, table)) if read.elapsed() < self.inner.options.time_to_live => {
                        return Ok(Some(Arc::clone(table)));
                    }
                    _ => tables.generation,
                }
            };
            let begin = Instant::now();
            let options = self.inner.options.table_options(ident.clone());
            match DorisTable::builder(options).with_client(self.inner.client.clone()).build().await {
                Ok(table) => {
                    let table = Arc::new(table);
                    self.keep(ident, generation, begin, &table);
                    Ok(Some(table))
                }
                Err(error @ Error::Schema { .. }) => self.missing(&ident, error).await.map(|()| None),
                Err(error) => Err(error),
            }
        }
        .boxed()
    }

    fn keep(&self, ident: TableIdent, generation: u64, read: Instant, table: &Arc<DorisTable>) {
        let mut tables = self.inner.tables.lock();
        if self.inner.options.time_to_live.is_zero() || tables.generation != generation {
            return;
        }
        if tables.kept.len() >= KEPT_TABLES {
            tables.kept.clear();
        }
        tables.kept.insert(ident, (read, Arc::clone(table)));
    }

    /// Why a table could not be had: fine when it does not exist, else the reason.
    async fn missing(&self, ident: &TableIdent, reason: Error) -> Result<()> {
        let alike = self.inner.client.tables_like(ident).await?;
        if alike.iter().any(|name| name.table == ident.table) {
            return Err(reason);
        }
        match alike.first() {
            None => Ok(()),
            Some(name) => Err(Error::schema(
                ident,
                format!(
                    "does not exist, but \"{}\" does: names in doris keep their case, write it in double quotes",
                    name.table
                ),
            )),
        }
    }

    /// Databases, as they were when the lists were read.
    pub fn database_names(&self) -> Vec<String> {
        self.inner.names.read().databases.keys().cloned().collect()
    }

    /// Tables and views of a database, as they were when the lists were read.
    pub fn table_names(&self, database: &str) -> Vec<String> {
        self.inner
            .names
            .read()
            .databases
            .get(database)
            .map(|tables| tables.keys().cloned().collect())
            .unwrap_or_default()
    }

    /// Whether a name of the lists is a view; `None` when it is not in the lists.
    fn is_view(&self, database: &str, table: &str) -> Option<bool> {
        self.inner.names.read().databases.get(database)?.get(table).copied()
    }

    /// Notes a table that was made or dropped here.
    fn note_table(&self, ident: &TableIdent, exists: bool) {
        let mut names = self.inner.names.write();
        if exists {
            names.databases.entry(ident.database.clone()).or_default().insert(ident.table.clone(), false);
        } else if let Some(tables) = names.databases.get_mut(&ident.database) {
            tables.remove(&ident.table);
        }
        drop(names);
        self.forget_tables();
    }

    /// Notes a database that was made or dropped here.
    fn note_database(&self, database: &str, exists: bool) {
        let mut names = self.inner.names.write();
        if exists {
            names.databases.entry(database.to_string()).or_default();
        } else {
            names.databases.remove(database);
        }
        drop(names);
        self.forget_tables();
    }
}

impl CatalogProvider for DorisCatalog {
    fn schema_names(&self) -> Vec<String> {
        self.database_names()
    }

    /// A schema for each name: whether the database exists is known when one of its tables is asked for.
    fn schema(&self, name: &str) -> Option<Arc<dyn SchemaProvider>> {
        Some(Arc::new(DorisSchema::new(self.clone(), name)))
    }

    fn register_schema(
        &self,
        name: &str,
        _schema: Arc<dyn SchemaProvider>,
    ) -> DfResult<Option<Arc<dyn SchemaProvider>>> {
        Err(Error::unsupported(format!("making schema {name} in a doris catalog"), ddl::USE_SQL).into())
    }

    fn deregister_schema(&self, name: &str, _cascade: bool) -> DfResult<Option<Arc<dyn SchemaProvider>>> {
        Err(Error::unsupported(format!("dropping schema {name} of a doris catalog"), ddl::USE_SQL).into())
    }
}
