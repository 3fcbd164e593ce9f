//! The table that holds the new rows until they are in place.

use crate::checkpoint::chain::unique;
use crate::client::{DorisClient, StatementOutput};
use crate::error::{Error, Result};
use crate::sql::{STATEMENT_PREFIX, quote_table};
use crate::types::TableIdent;

/// What the names begin with.
const PREFIX: &str = "datafusion_overwrite";
/// Characters of the target's name in a staging table's name: names have 64 at most.
const TARGET_CHARS: usize = 20;
/// Characters of the part that makes a name unique.
const UNIQUE_CHARS: usize = 16;

/// A table like the target. Dropping this drops the table too, later.
#[derive(Debug)]
pub(super) struct Staging {
    client: DorisClient,
    table: TableIdent,
    exists: bool,
}

impl Staging {
    /// Creates it beside the target.
    pub(super) async fn create(client: &DorisClient, target: &TableIdent) -> Result<Self> {
        let table = TableIdent::new(&target.database, name(&target.table, &unique()));
        let mut connection = client.connection().await?;
        // It may exist once the statement is sent.
        let staging = Self { client: client.clone(), table, exists: true };
        let sql =
            format!("{STATEMENT_PREFIX}CREATE TABLE {} LIKE {}", quote_table(&staging.table), quote_table(target));
        client.while_running(&mut connection, &sql).await.map_err(|error| match error {
            Error::Server { host, code, message, .. } => {
                let operation = format!("creating the staging table of INSERT OVERWRITE {target}");
                Error::Server { host, operation, code, message }
            }
            other => other,
        })?;
        Ok(staging)
    }

    pub(super) fn table(&self) -> &TableIdent {
        &self.table
    }

    /// Drops the table now.
    pub(super) async fn remove(mut self) {
        let removed = remove(&self.client, &self.table).await;
        self.exists = false;
        tell(&self.table, removed);
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        if !self.exists {
            return;
        }
        let (client, table) = (self.client.clone(), self.table.clone());
        self.client.cleanup().later("staging table", async move {
            let removed = remove(&client, &table).await;
            tell(&table, removed);
        });
    }
}

/// Without a way back: nobody wants it from the recycle bin.
async fn remove(client: &DorisClient, table: &TableIdent) -> Result<StatementOutput> {
    let mut connection = client.connection().await?;
    let sql = format!("{STATEMENT_PREFIX}DROP TABLE IF EXISTS {} FORCE", quote_table(table));
    let answer = connection.execute(&sql).await?;
    Ok(answer.into_iter().next().unwrap_or_default())
}

fn tell(table: &TableIdent, removed: Result<StatementOutput>) {
    if let Err(error) = removed {
        tracing::warn!(%table, %error, "a staging table was left behind, drop it");
    }
}

/// `datafusion_overwrite_<target>_<unique>`, of characters that every server takes.
fn name(target: &str, unique: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '_' { c } else { '_' };
    let target: String = target.chars().map(plain).take(TARGET_CHARS).collect();
    let unique: String = unique.chars().rev().filter(char::is_ascii_alphanumeric).take(UNIQUE_CHARS).collect();
    format!("{PREFIX}_{target}_{unique}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_short_plain_and_different() {
        let target = "表 with a very long name, longer than it may be";
        let (one, other) = (name(target, &unique()), name(target, &unique()));
        assert_ne!(one, other);
        assert!(one.starts_with("datafusion_overwrite___with_a_very_long_n_"), "{one}");
        assert!(one.len() <= 64 && one.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_'), "{one}");
    }
}
