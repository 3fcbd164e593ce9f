//! The databases and their tables.

mod views;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;

use self::views::wrong_object;
pub use self::views::{OnExisting, View, ViewColumn};
use super::definition::TableSpec;
use super::partition::{Bounds, PartitionSpec};
use super::table::{Table, table_ids};
use crate::error::SqlError;

/// Databases every server has; they hold no user tables.
pub const SYSTEM_DATABASES: [&str; 3] = ["__internal_schema", "information_schema", "mysql"];

/// All databases. Names are case-sensitive, except those of the system databases.
#[derive(Debug)]
pub struct Catalog {
    databases: RwLock<BTreeMap<String, Database>>,
    ids: AtomicU64,
}

#[derive(Debug)]
struct Database {
    id: u64,
    tables: BTreeMap<String, Arc<Table>>,
    views: BTreeMap<String, Arc<View>>,
}

impl Default for Catalog {
    fn default() -> Self {
        Self { databases: RwLock::default(), ids: AtomicU64::new(10_000) }
    }
}

impl Catalog {
    /// Allocates `n` consecutive ids and gives the first.
    pub(crate) fn next_ids(&self, n: u64) -> u64 {
        self.ids.fetch_add(n, Ordering::Relaxed)
    }

    /// Sorted names, system databases included.
    pub fn database_names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.databases.read().keys().cloned().collect();
        names.extend(SYSTEM_DATABASES.map(str::to_owned));
        names.sort();
        names
    }

    /// Whether the database exists, system databases included.
    pub fn has_database(&self, db: &str) -> bool {
        is_system(db) || self.databases.read().contains_key(db)
    }

    /// Id of a database.
    ///
    /// # Errors
    /// 1049.
    pub fn database_id(&self, db: &str) -> Result<u64, SqlError> {
        if is_system(db) {
            return Ok(0);
        }
        self.databases.read().get(db).map(|d| d.id).ok_or_else(|| SqlError::unknown_database(db))
    }

    /// Creates a database.
    ///
    /// # Errors
    /// 1007 when it exists.
    pub fn create_database(&self, db: &str, if_not_exists: bool) -> Result<(), SqlError> {
        check_name("database", db)?;
        let mut databases = self.databases.write();
        if is_system(db) || databases.contains_key(db) {
            return if if_not_exists {
                Ok(())
            } else {
                Err(SqlError::coded(1007, format!("Can't create database '{db}'; database exists")))
            };
        }
        databases
            .insert(db.to_owned(), Database { id: self.next_ids(1), tables: BTreeMap::new(), views: BTreeMap::new() });
        Ok(())
    }

    /// Drops a database and its tables.
    ///
    /// # Errors
    /// 1008 when it does not exist; system databases cannot be dropped.
    pub fn drop_database(&self, db: &str, if_exists: bool) -> Result<(), SqlError> {
        if is_system(db) {
            return Err(SqlError::detail(format!("Access denied for user to database '{db}'")));
        }
        match self.databases.write().remove(db) {
            Some(database) => {
                database.tables.values().for_each(|table| table.mark_dropped());
                Ok(())
            }
            None if if_exists => Ok(()),
            None => Err(SqlError::coded(1008, format!("Can't drop database '{db}'; database doesn't exist"))),
        }
    }

    /// Names of the tables of a database, sorted.
    ///
    /// # Errors
    /// 1049.
    pub fn tables(&self, db: &str) -> Result<Vec<Arc<Table>>, SqlError> {
        if is_system(db) {
            return Ok(Vec::new());
        }
        let databases = self.databases.read();
        let database = databases.get(db).ok_or_else(|| SqlError::unknown_database(db))?;
        Ok(database.tables.values().cloned().collect())
    }

    /// A table.
    ///
    /// # Errors
    /// 1049 for the database, 1105 for the table.
    pub fn table(&self, db: &str, table: &str) -> Result<Arc<Table>, SqlError> {
        if is_system(db) {
            return Err(SqlError::unknown_table(db, table));
        }
        let databases = self.databases.read();
        let database = databases.get(db).ok_or_else(|| SqlError::unknown_database(db))?;
        database.tables.get(table).cloned().ok_or_else(|| match database.views.contains_key(table) {
            true => wrong_object(db, table, "BASE TABLE"),
            false => SqlError::unknown_table(db, table),
        })
    }

    /// Creates a table; `false` when it was there and `if_not_exists`. Without partitioning `partitions` is empty.
    ///
    /// # Errors
    /// 1049, 1050, or a bad name.
    pub fn create_table(
        &self,
        spec: TableSpec,
        mut partitions: Vec<PartitionSpec>,
        if_not_exists: bool,
    ) -> Result<bool, SqlError> {
        check_name("table", &spec.name)?;
        if is_system(&spec.db) {
            return Err(SqlError::detail(format!("Access denied for user to database '{}'", spec.db)));
        }
        let mut databases = self.databases.write();
        let database = databases.get_mut(&spec.db).ok_or_else(|| SqlError::unknown_database(&spec.db))?;
        if database.tables.contains_key(&spec.name) || database.views.contains_key(&spec.name) {
            return if if_not_exists {
                Ok(false)
            } else {
                Err(SqlError::coded(1050, format!("Table '{}' already exists", spec.name)))
            };
        }
        if spec.partitioning.is_none() {
            partitions = vec![PartitionSpec { name: spec.name.clone(), bounds: Bounds::All, buckets: spec.buckets }];
        }
        let first_id = self.next_ids(table_ids(&partitions));
        let table = Table::new(spec, partitions, first_id);
        database.tables.insert(table.name().to_owned(), Arc::new(table));
        Ok(true)
    }

    /// Drops a table.
    ///
    /// # Errors
    /// 1049; 1051 when it does not exist.
    pub fn drop_table(&self, db: &str, table: &str, if_exists: bool) -> Result<(), SqlError> {
        let mut databases = self.databases.write();
        let Some(database) = databases.get_mut(db) else { return Err(SqlError::unknown_database(db)) };
        match database.tables.remove(table) {
            Some(table) => {
                table.mark_dropped();
                Ok(())
            }
            None if database.views.contains_key(table) => Err(wrong_object(db, table, "BASE TABLE")),
            None if if_exists => Ok(()),
            None => Err(SqlError::coded(1051, format!("Unknown table '{table}'"))),
        }
    }
}

impl Catalog {
    /// Changes the tables of a database; `taken` tells whether a name is in use.
    pub(super) fn edit_tables(
        &self,
        db: &str,
        edit: impl FnOnce(&mut BTreeMap<String, Arc<Table>>, &dyn Fn(&str) -> bool) -> Result<(), SqlError>,
    ) -> Result<(), SqlError> {
        let mut databases = self.databases.write();
        let database = databases.get_mut(db).ok_or_else(|| SqlError::unknown_database(db))?;
        let names: BTreeSet<String> = database.tables.keys().chain(database.views.keys()).cloned().collect();
        edit(&mut database.tables, &|name| names.contains(name))
    }
}

fn is_system(db: &str) -> bool {
    SYSTEM_DATABASES.iter().any(|name| name.eq_ignore_ascii_case(db))
}

/// `^[a-zA-Z][a-zA-Z0-9\-_]*$`, at most 64 characters (tables may also start with an underscore), with letters of every
/// script: those beyond ASCII need a variable of the session, see [`check_script`].
pub(crate) fn check_name(what: &str, name: &str) -> Result<(), SqlError> {
    let mut chars = name.chars();
    let first = chars.next().is_some_and(|c| c.is_alphabetic() || c == '_');
    let allowed = |c: char| c.is_ascii_alphanumeric() || c.is_alphabetic() || matches!(c, '-' | '_');
    if first && name.chars().count() <= 64 && chars.all(allowed) {
        return Ok(());
    }
    Err(incorrect_name(what, name))
}

/// Letters beyond ASCII, which `enable_unicode_name_support` allows.
pub(crate) fn check_script(what: &str, name: &str, unicode: bool) -> Result<(), SqlError> {
    if unicode || name.is_ascii() { Ok(()) } else { Err(incorrect_name(what, name)) }
}

fn incorrect_name(what: &str, name: &str) -> SqlError {
    SqlError::coded(if what == "table" { 1103 } else { 1102 }, format!("Incorrect {what} name '{name}'"))
}
