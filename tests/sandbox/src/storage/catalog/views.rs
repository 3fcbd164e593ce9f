//! Views: a name for a query, with the columns it had when it was made.

use std::sync::Arc;

use super::{Catalog, check_name, is_system};
use crate::error::SqlError;
use crate::types::DorisType;

/// A column of a view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ViewColumn {
    /// Name.
    pub name: String,
    /// Type that the query gave it.
    pub ty: DorisType,
    /// NULLs may occur.
    pub nullable: bool,
    /// Comment, may be empty.
    pub comment: String,
}

/// A view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    /// Database.
    pub db: String,
    /// Name.
    pub name: String,
    /// Columns in order.
    pub columns: Vec<ViewColumn>,
    /// Comment, may be empty.
    pub comment: String,
    /// The query, its tables with catalog and database.
    pub query: String,
    /// Backslashes escaped in the text of the query.
    pub backslash_escapes: bool,
    /// Who made it.
    pub definer: String,
    /// Creation time, milliseconds.
    pub created_ms: i64,
}

/// What CREATE VIEW does when the name is taken by a view.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnExisting {
    /// 1050.
    Refuse,
    /// `IF NOT EXISTS`
    Keep,
    /// `OR REPLACE`
    Replace,
}

impl Catalog {
    /// A view, if there is one of this name.
    pub fn view(&self, db: &str, name: &str) -> Option<Arc<View>> {
        self.databases.read().get(db)?.views.get(name).cloned()
    }

    /// Views of a database by name; none when there is no such database.
    pub fn views(&self, db: &str) -> Vec<Arc<View>> {
        self.databases.read().get(db).map(|d| d.views.values().cloned().collect()).unwrap_or_default()
    }

    /// Stores a view.
    ///
    /// # Errors
    /// 1049; 1050 when a table or view has the name; a bad name.
    pub fn create_view(&self, view: View, on_existing: OnExisting) -> Result<(), SqlError> {
        check_name("table", &view.name)?;
        if is_system(&view.db) {
            return Err(SqlError::detail(format!("Access denied for user to database '{}'", view.db)));
        }
        let mut databases = self.databases.write();
        let database = databases.get_mut(&view.db).ok_or_else(|| SqlError::unknown_database(&view.db))?;
        let exists = || SqlError::coded(1050, format!("Table '{}' already exists", view.name));
        if database.tables.contains_key(&view.name) {
            return if on_existing == OnExisting::Keep { Ok(()) } else { Err(exists()) };
        }
        match on_existing {
            _ if !database.views.contains_key(&view.name) => {}
            OnExisting::Refuse => return Err(exists()),
            OnExisting::Keep => return Ok(()),
            OnExisting::Replace => {}
        }
        database.views.insert(view.name.clone(), Arc::new(view));
        Ok(())
    }

    /// Drops a view.
    ///
    /// # Errors
    /// 1049; 1347 when the name is a table's; 1051 when there is none.
    pub fn drop_view(&self, db: &str, name: &str, if_exists: bool) -> Result<(), SqlError> {
        let mut databases = self.databases.write();
        let database = databases.get_mut(db).ok_or_else(|| SqlError::unknown_database(db))?;
        if database.tables.contains_key(name) {
            return Err(wrong_object(db, name, "VIEW"));
        }
        match database.views.remove(name) {
            Some(_) => Ok(()),
            None if if_exists => Ok(()),
            None => Err(SqlError::coded(1051, format!("Unknown table '{name}'"))),
        }
    }
}

/// 1347: a view where a table is needed, or the other way round.
pub(crate) fn wrong_object(db: &str, name: &str, wanted: &str) -> SqlError {
    SqlError::coded(1347, format!("'{db}.{name}' is not {wanted}"))
}
