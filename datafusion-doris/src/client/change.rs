//! Statements that change rows, over the MySQL protocol.

use super::{DorisClient, DorisConnection, StatementOutput};
use crate::error::{Error, Result, Retry};
use crate::sql::Change;

/// Literals end where the client says, and values that do not fit are errors.
const SETTINGS: &str = "SET sql_mode = ''; SET enable_insert_strict = true";

impl DorisClient {
    /// Runs a statement that changes rows, once, on a connection of its own.
    ///
    /// # Errors
    /// [`Error::Config`] without `jdbc-url`; [`Error::Server`] with the text of a refusal; [`Error::Transport`] with
    /// [`Retry::AskLabelState`] when the answer was lost: the statement has no label to ask for, so the error says what
    /// to look at.
    ///
    /// # Cancellation
    /// When the future is dropped while Doris works, the connection is closed and the client sends `KILL QUERY` from
    /// another one. The statement is done whole or not at all; it may have been done by then.
    pub async fn change(&self, change: &Change) -> Result<StatementOutput> {
        let Some(sql) = change.to_sql() else { return Ok(StatementOutput::default()) };
        let mut connection = self.connection().await?;
        let named = |error| match error {
            Error::Server { host, code, message, .. } => {
                Error::Server { host, operation: change.what.clone(), code, message }
            }
            other => other,
        };
        // Until here nothing has been done.
        let before = |error| match named(error) {
            Error::Transport { host, source, .. } => {
                Error::Transport { host, operation: change.what.clone(), retry: Retry::SameLabel, source }
            }
            other => other,
        };
        connection.execute(SETTINGS).await.map_err(before)?;
        if let Some(check) = &change.overflow_sql {
            let answer = self.while_running(&mut connection, check).await.map_err(before)?;
            let count = answer.rows.first().and_then(|row| row.first().cloned().flatten()).unwrap_or_default();
            if count != "0" {
                return Err(Error::unsupported(
                    change.what.clone(),
                    format!("the new value of {count} rows does not fit its column; nothing was changed"),
                ));
            }
        }
        let answer = self.while_running(&mut connection, &sql).await.map_err(|error| match named(error) {
            Error::Transport { host, retry, source, .. } => {
                let operation = change.what.clone();
                let told =
                    format!("{source}; its answer is lost, so it may have been executed: {}", change.after_lost_answer);
                Error::Transport { host, operation, retry, source: told.into() }
            }
            other => other,
        })?;
        if let Err(error) = connection.close().await {
            tracing::debug!(%error, "the connection of a statement that is done was not closed");
        }
        Ok(answer)
    }

    /// Runs one statement, and ends it in Doris when the future is dropped before its answer.
    pub(crate) async fn while_running(&self, connection: &mut DorisConnection, sql: &str) -> Result<StatementOutput> {
        let mut running =
            KillOnDrop { client: self.clone(), at: Some((connection.host().to_string(), connection.id())) };
        let answers = connection.execute(sql).await;
        running.at = None;
        Ok(answers?.pop().unwrap_or_default())
    }
}

/// Ends the statement of a connection when it is dropped.
struct KillOnDrop {
    client: DorisClient,
    /// Host and connection id; `None` = answered.
    at: Option<(String, u32)>,
}

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        let Some((host, id)) = self.at.take() else { return };
        let client = self.client.clone();
        self.client.cleanup().later("statement", async move {
            let options = client.options();
            let url = format!("mysql://{host}");
            let killed = async {
                let mut connection = DorisConnection::connect(&url, &options.username, &options.password).await?;
                connection.execute(&format!("KILL QUERY {id}")).await?;
                connection.close().await
            };
            if let Err(error) = killed.await {
                tracing::debug!(%error, "a statement that nobody waits for was not ended");
            }
        });
    }
}
