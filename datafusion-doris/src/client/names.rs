//! Names of databases and tables, and what changes them: metadata for catalogs.

use futures::FutureExt;
use futures::StreamExt;
use futures::future::BoxFuture;

use super::DorisClient;
use crate::error::{Error, Result};
use crate::sql::{quote_ident, string_literal};
use crate::types::TableIdent;

/// Rows that one statement gives at most; longer lists are read page by page.
pub(super) const PAGE: usize = 10_000;
/// Databases that are of the server and not of its users.
const SYSTEM_DATABASES: [&str; 3] = ["information_schema", "mysql", "__internal_schema"];

/// A table or view, by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableName {
    /// Database.
    pub database: String,
    /// Table.
    pub table: String,
    /// A view, not a table.
    pub view: bool,
}

impl DorisClient {
    /// Databases that the user may see, without those of the server itself; of `catalog`, or Doris' own.
    ///
    /// # Errors
    /// [`Error::Server`] for an unknown catalog, [`Error::Auth`], [`Error::Transport`].
    pub fn database_names<'a>(&'a self, catalog: Option<&'a str>) -> BoxFuture<'a, Result<Vec<String>>> {
        async move {
            let mut names = match catalog {
                None => self.paged("SCHEMA_NAME", "information_schema.schemata", &["SCHEMA_NAME"]).await?,
                Some(catalog) => {
                    let sql = format!("SHOW DATABASES FROM {}", quote_ident(catalog));
                    self.statement(&sql).await?.rows
                }
            };
            names.retain(|row| !row.is_empty());
            let names = names.into_iter().filter_map(|mut row| row.swap_remove(0));
            Ok(names.filter(|name| !SYSTEM_DATABASES.iter().any(|system| system.eq_ignore_ascii_case(name))).collect())
        }
        .boxed()
    }

    /// Tables and views that the user may see; of `catalog`, or Doris' own.
    ///
    /// # Errors
    /// As [`Self::database_names`].
    pub fn table_names<'a>(&'a self, catalog: Option<&'a str>) -> BoxFuture<'a, Result<Vec<TableName>>> {
        async move {
            let Some(catalog) = catalog else {
                let columns = "TABLE_SCHEMA, TABLE_NAME, TABLE_TYPE";
                let rows = self.paged(columns, "information_schema.tables", &["TABLE_SCHEMA", "TABLE_NAME"]).await?;
                return Ok(rows.into_iter().filter_map(table_name).collect());
            };
            let mut names = Vec::new();
            for database in self.database_names(Some(catalog)).await? {
                names.extend(self.external_tables(catalog, &database).await?);
            }
            Ok(names)
        }
        .boxed()
    }

    async fn external_tables(&self, catalog: &str, database: &str) -> Result<Vec<TableName>> {
        let sql = format!("SHOW FULL TABLES FROM {}.{}", quote_ident(catalog), quote_ident(database));
        let rows = self.statement(&sql).await?.rows;
        if rows.len() >= PAGE {
            tracing::warn!(
                catalog,
                database,
                "more tables than one list holds; those that are missing can be read by name"
            );
        }
        let name = |row: Vec<Option<String>>| {
            let mut row = row.into_iter();
            let (table, kind) = (row.next()??, row.next().flatten());
            table_name(vec![Some(database.to_string()), Some(table), kind])
        };
        Ok(rows.into_iter().filter_map(name).collect())
    }

    /// Tables and views of the database of `table` whose names are that of `table`, with or without its case.
    ///
    /// # Errors
    /// As [`Self::database_names`].
    pub fn tables_like<'a>(&'a self, table: &'a TableIdent) -> BoxFuture<'a, Result<Vec<TableName>>> {
        async move {
            let folded = table.table.to_lowercase();
            let tables = match &table.catalog {
                Some(catalog) => match self.external_tables(catalog, &table.database).await {
                    Ok(tables) => tables,
                    // No such database.
                    Err(Error::Server { .. }) => Vec::new(),
                    Err(error) => return Err(error),
                },
                None => {
                    // The database alone: a condition on a function of the name would describe all tables of all.
                    let condition = format!(
                        "TABLE_SCHEMA = {} AND LOWER(TABLE_NAME) = {}",
                        string_literal(&table.database),
                        string_literal(&folded)
                    );
                    let sql = format!(
                        "SELECT TABLE_SCHEMA, TABLE_NAME, TABLE_TYPE FROM information_schema.tables WHERE {condition}"
                    );
                    self.statement(&sql).await?.rows.into_iter().filter_map(table_name).collect()
                }
            };
            Ok(tables.into_iter().filter(|name| name.table.to_lowercase() == folded).collect())
        }
        .boxed()
    }

    /// All rows of a table of `information_schema`, in the order of `key`, which is unique.
    async fn paged(&self, columns: &str, table: &str, key: &[&str]) -> Result<Vec<Vec<Option<String>>>> {
        let mut rows: Vec<Vec<Option<String>>> = Vec::new();
        loop {
            let after = rows.last().map(|last| after_key(key, last)).unwrap_or_default();
            let order = key.join(", ");
            let sql = format!("SELECT {columns} FROM {table}{after} ORDER BY {order} LIMIT {PAGE}");
            let page = self.statement(&sql).await?.rows;
            let full = page.len() >= PAGE;
            rows.extend(page);
            if !full {
                return Ok(rows);
            }
        }
    }

    /// Runs statements that change metadata (CREATE, DROP), in order, in one session: over the MySQL protocol when
    /// `jdbc-url` is given, else over Arrow Flight SQL. Nothing is repeated.
    ///
    /// # Errors
    /// [`Error::Server`] with the server's text of the first statement that fails; those before it are done. After
    /// [`Error::Transport`] a statement may have been done.
    pub fn run_ddl<'a>(&'a self, statements: &'a [String]) -> BoxFuture<'a, Result<()>> {
        async move {
            if self.options().jdbc_url.is_some() {
                let mut connection = self.connection().await?;
                for statement in statements {
                    connection.execute(statement).await?;
                }
                if let Err(error) = connection.close().await {
                    tracing::debug!(%error, "closing a connection failed");
                }
                return Ok(());
            }
            let mut session = self.open_flight(&[]).await?;
            for statement in statements {
                let mut answer = std::pin::pin!(session.query(statement).await?.into_stream());
                while let Some(batch) = answer.next().await {
                    batch?;
                }
            }
            if let Err(error) = session.close().await {
                tracing::debug!(%error, "closing a flight session failed");
            }
            Ok(())
        }
        .boxed()
    }
}

/// The condition of rows behind `last`, whose first values are those of `key`.
fn after_key(key: &[&str], last: &[Option<String>]) -> String {
    let literals: Vec<String> =
        last.iter().take(key.len()).map(|value| string_literal(value.as_deref().unwrap_or_default())).collect();
    let behind = (0..literals.len()).map(|at| {
        let equal = key.iter().zip(&literals).take(at).map(|(name, value)| format!("{name} = {value} AND "));
        format!("({}{} > {})", equal.collect::<String>(), key[at], literals[at])
    });
    format!(" WHERE {}", behind.collect::<Vec<_>>().join(" OR "))
}

/// `TABLE_SCHEMA, TABLE_NAME, TABLE_TYPE`.
fn table_name(row: Vec<Option<String>>) -> Option<TableName> {
    let mut row = row.into_iter();
    let (database, table) = (row.next()??, row.next()??);
    let kind = row.next().flatten().unwrap_or_default();
    let system = SYSTEM_DATABASES.iter().any(|system| system.eq_ignore_ascii_case(&database));
    (!system).then(|| TableName { database, table, view: kind.to_ascii_uppercase().contains("VIEW") })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    #[test]
    fn the_next_page_begins_behind_the_last_row() {
        let last = [Some("d'b".to_string()), Some("t".to_string()), Some("VIEW".to_string())];
        assert_eq!(after_key(&["A"], &last[1..]), " WHERE (A > 't')");
        let condition = after_key(&["A", "B"], &last);
        let (quoted, quote) = (string_literal("d'b"), string_literal("t"));
        assert_eq!(condition, format!(" WHERE (A > {quoted}) OR (A = {quoted} AND B > {quote})"));
    }

    #[test]
    fn tables_of_the_server_itself_are_left_out() {
        let row =
            |database: &str, kind: &str| table_name(vec![Some(database.into()), Some("t".into()), Some(kind.into())]);
        assert_eq!(row("INFORMATION_SCHEMA", "SYSTEM VIEW"), None);
        assert!(row("sales", "VIEW").unwrap().view);
        assert!(!row("sales", "BASE TABLE").unwrap().view);
    }
}
